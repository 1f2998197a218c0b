"""Reading platforms and allow lists: `platforms:`, a block under a platform's own name, and the environment.

A token in the environment switches its platform on unless the files say `enabled: false`. A platform's own block at
the top of config.yaml (`telegram: {...}`) counts above the same one under `platforms:`; what is no field of ours there
belongs to the adapter and goes into `extra`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import partial
from typing import Any, cast

from gateway import config_values as coerce
from gateway.config import BOT_RULES, AllowList, BotRule
from gateway.config_parts import REPLY_MODES, Platform, PlatformConfig
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
_ACCESS = ("allowed_users", "allow_all_users", "group_allowed_chats", "allow_bots")


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
    return {platform: PlatformConfig.from_dict(block, platform) for platform, block in given.items()}


def read_allow(source: Source) -> dict[str, AllowList]:
    """Who may write, by platform; under "" for all. The environment's word counts above the files'."""
    found = {"": _allow(source, "", source.find)}
    places: dict[str, list[Value]] = {str(platform.value): [] for platform in Platform}
    for platform, block in _blocks(source):
        extra = block.at("extra")
        places.setdefault(str(platform.value), [])[:0] = [block] if extra is None else [block, extra]
    for name, blocks in places.items():
        allow = _allow(source, name, partial(_first, blocks))
        if allow != AllowList():
            found[name] = allow
    return found


def _first(places: list[Value], key: str) -> Value | None:
    return next((value for place in places if (value := place.at(key)) is not None), None)


def _allow(source: Source, platform: str, find: Callable[[str], Value | None]) -> AllowList:
    prefix = platform.upper() or "GATEWAY"
    said = {key: source.environ(f"{prefix}_{key.upper()}") for key in _ACCESS}
    users, everybody, chats, bots = (find(key) for key in _ACCESS)
    rule = coerce.text(said["allow_bots"]) or ("none" if bots is None else bots.choice(BOT_RULES))
    return AllowList(
        users=coerce.names(said["allowed_users"], () if users is None else users.names()),
        everybody=coerce.flag(said["allow_all_users"], False if everybody is None else everybody.flag()),
        group_chats=coerce.names(said["group_allowed_chats"], () if chats is None else chats.names()),
        bots=cast(BotRule, rule.lower()) if rule.lower() in BOT_RULES else "none",
    )


def _blocks(source: Source) -> list[tuple[Platform, Value]]:
    """Every block that says something of a platform, the one that counts last."""
    below = [
        (platform, block)
        for value in source.all("platforms")
        for name, block in value.parts()
        if (platform := Platform.find(name)) is not None
    ]
    return below + _own_blocks(source)


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
