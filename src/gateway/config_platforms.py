"""Reading platforms: `platforms:`, a block under a platform's own name, and the environment.

A token in the environment switches its platform on unless the files say `enabled: false`; what other variables say
counts above the files. A platform's own block at the top of config.yaml (`telegram: {...}`) counts above the same one
under `platforms:`; what is no field of ours there belongs to the adapter and goes into `extra`. Who may write is read
by `policy_rules`, at each change of the files.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from gateway import config_values as coerce
from gateway.config import REPLY_MODES, Platform, PlatformConfig
from gateway.config_source import Source, Value

_TOKENS = {
    Platform.TELEGRAM: "TELEGRAM_BOT_TOKEN",
    Platform.DISCORD: "DISCORD_BOT_TOKEN",
    Platform.SLACK: "SLACK_BOT_TOKEN",
    Platform.MATTERMOST: "MATTERMOST_TOKEN",
    Platform.MATRIX: "MATRIX_ACCESS_TOKEN",
    Platform.HOMEASSISTANT: "HASS_TOKEN",
}
_FIELDS = frozenset(field.name for field in fields(PlatformConfig))
# Blocks of config.yaml that share their name with a platform and mean something else.
_NOT_BLOCKS = frozenset({Platform.LOCAL, Platform.API_SERVER})


def platform_named(name: str, value: Value) -> Platform:
    found = Platform.find(name)
    if found is None:
        raise value.wrong("is no platform we know", hint="`hermes gateway setup` lists them.")
    return found


def read_platforms(source: Source) -> dict[Platform, PlatformConfig]:
    given: dict[Platform, dict[str, Any]] = {}
    for value in source.all("platforms"):
        for name, block in value.parts():
            # One that nobody knows belongs to a plug-in that is not loaded now.
            if (platform := Platform.find(name)) is not None:
                _check(block)
                given[platform] = _merged(given.get(platform, {}), coerce.mapping(block.raw))
    for platform, block in _own_blocks(source):
        _check(block)
        given[platform] = _merged(given.get(platform, {}), _bridged(coerce.mapping(block.raw)))
    for platform, variable in _TOKENS.items():
        if (token := source.environ(variable)) is not None:
            known = given.get(platform, {})
            given[platform] = {"enabled": True, **known, "token": token}
    told = {platform: _merged(block, _from_environment(source, platform)) for platform, block in given.items()}
    return {platform: PlatformConfig.from_dict(block, platform) for platform, block in told.items()}


def _from_environment(source: Source, platform: Platform) -> dict[str, Any]:
    """What variables such as `TELEGRAM_HOME_CHANNEL` say of a platform that there is."""
    start, told = str(platform.value).upper(), dict[str, Any]()
    if (chat := source.environ(f"{start}_HOME_CHANNEL")) is not None:
        name, thread = (source.environ(f"{start}_HOME_CHANNEL_{part}") for part in ("NAME", "THREAD_ID"))
        told["home_channel"] = {"chat_id": chat, "name": name, "thread_id": thread}
    if (mode := source.environ(f"{start}_REPLY_TO_MODE")) is not None:
        told["reply_to_mode"] = mode
    if (mention := source.environ(f"{start}_REQUIRE_MENTION")) is not None:
        told["extra"] = {"require_mention": coerce.flag(mention, True)}
    return told


def _own_blocks(source: Source) -> list[tuple[Platform, Value]]:
    found = ((platform, source.elsewhere(str(platform.value))) for platform in Platform)
    return [(platform, block) for platform, block in found if block is not None and platform not in _NOT_BLOCKS]


def _check(block: Value) -> None:
    block.section()
    for name in ("enabled", "gateway_restart_notification", "typing_indicator"):
        if (value := block.at(name)) is not None:
            value.flag()
    if (mode := block.at("reply_to_mode")) is not None:
        mode.choice(REPLY_MODES)
    for name in ("token", "api_key"):
        if (secret := block.at(name)) is not None and coerce.text(secret.raw) is None:
            raise secret.wrong("must be a text")  # never shown
    for name in ("extra", "channel_overrides"):
        if (section := block.at(name)) is not None:
            section.section()
    if (home := block.at("home_channel")) is not None:
        home.section()
        if home.at("chat_id") is None:
            raise home.wrong("needs a chat_id", hint="The id of the chat that notices go to.")


def _bridged(block: dict[str, Any]) -> dict[str, Any]:
    """A platform's own block: what is no field of ours is the adapter's."""
    extra = {name: value for name, value in block.items() if name not in _FIELDS}
    ours = {name: value for name, value in block.items() if name in _FIELDS}
    return _merged({"extra": extra}, ours) if extra else ours


def _merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    extra = {**coerce.mapping(below.get("extra")), **coerce.mapping(above.get("extra"))}
    return {**below, **above, "extra": extra}
