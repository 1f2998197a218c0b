"""The gateway's part of a home's configuration.

`hermes_config.sections` declares the settings; this module reads them from all their sources. By precedence: an
environment variable, the top of config.yaml, `gateway:` in config.yaml, `gateway.json` of older homes. A bad value is a
`ConfigError` with file, line, key and reason. `GatewayConfig.from_dict` is for programs: it replaces every bad value by
the default.

**Platforms** are set under `platforms:`, or in a block of their own at the top (`slack: {...}`), which takes
precedence; keys that are not ours there belong to the adapter and go into `extra`. The fields of a platform's
`Descriptor` name environment variables, which take precedence over both. A secret in the environment enables its
platform, unless the files say `enabled: false`. `gateway.access.policy` reads who may write.

**Accounts**: a block `slack@work` is another account of a platform, with variables of its own
(`hermes_config.accounts`). It inherits nothing from the block `slack`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_config import accounts, schema
from hermes_config.errors import ConfigError
from hermes_config.home import advice
from hermes_config.schema import Part, PlainText, Problem, Unfit, Value
from hermes_config.sections import (
    UNUSED,
    Access,
    ApiServerConfig,
    BusyMode,
    ChannelOverride,
    GatewaySettings,
    PlatformChats,
    PlatformSettings,
    SessionResetPolicy,
    StreamingConfig,
)
from hermes_state.ids import PLATFORMS

if TYPE_CHECKING:
    from gateway.platforms.registry import Descriptor
    from hermes_config.config import Config

__all__ = [
    "ApiServerConfig",
    "BusyMode",
    "GatewayConfig",
    "HomeChannel",
    "Platform",
    "PlatformConfig",
    "SessionResetPolicy",
    "Source",
    "StreamingConfig",
    "load_gateway_config",
]

_MOVE = "Correct it or move it away."


_BROUGHT_BY_PLUGINS = frozenset({"google_chat", "irc", "line", "ntfy", "photon", "raft", "simplex", "teams"})
_KNOWN_PLATFORMS = tuple(name for name in PLATFORMS if name not in _BROUGHT_BY_PLUGINS)


class _ByName(type):
    """`Platform.SLACK` is `Platform("slack")`, and `Platform` lists all that are known."""

    def __iter__(cls) -> Iterator[Platform]:
        return (Platform(name) for name in dict.fromkeys((*PLATFORMS, *_registered())))

    def __getattr__(cls, name: str) -> Platform:
        found = Platform.find(name) if name.isupper() else None
        if found is None:
            raise AttributeError(name)
        setattr(cls, name, found)  # found at once from now on
        return found


class Platform(metaclass=_ByName):
    """A platform by name, with one object for each name; an unknown name is a ValueError.

    The set is open: plug-ins can register platforms, and `slack@work` is another account of a known one.
    """

    __slots__ = ("value",)
    value: str

    def __new__(cls, name: object) -> Platform:
        if isinstance(name, Platform):
            return name
        text = name.strip().lower() if isinstance(name, str) else ""
        if (known := _platforms.get(text)) is not None:
            return known
        known_name = accounts.platform_of(text)
        if not text or accounts.fault(text) or not (known_name in PLATFORMS or known_name in _registered()):
            raise ValueError(f"{name!r} is not a platform")
        made = super().__new__(cls)
        made.value = text
        return _platforms.setdefault(text, made)  # two threads may meet a new name at once: one object for both

    @property
    def name(self) -> str:
        return self.value.upper()

    def __reduce__(self) -> tuple[type[Platform], tuple[str]]:
        return Platform, (self.value,)

    def __repr__(self) -> str:
        return f"Platform({self.value!r})"

    @classmethod
    def find(cls, name: object) -> Platform | None:
        """The platform of that name, or None."""
        try:
            return cls(name)
        except ValueError:
            return None


_platforms: dict[str, Platform] = {}


def _registered() -> set[str]:
    """Names that are registered in this process, ours and those of plug-ins."""
    from hermes_cli.plugins import get_platforms

    return set(get_platforms())


@dataclass(slots=True)
class HomeChannel:
    """The chat that notices without an addressee go to."""

    platform: Platform
    chat_id: str
    name: str = "Home"
    thread_id: str | None = None

    @classmethod
    def from_dict(cls, data: object, platform: Platform | None = None) -> HomeChannel | None:
        """None without a chat id or a platform."""
        given = data if isinstance(data, Mapping) else {}
        where = Platform.find(given.get("platform")) or platform
        chat_id, name, thread_id = (_text(given.get(key)) for key in ("chat_id", "name", "thread_id"))
        return None if where is None or chat_id is None else cls(where, chat_id, name or "Home", thread_id)


class PlatformConfig(PlatformSettings):
    """One platform: whether it is on, how it signs in, how it behaves. `extra` is the adapter's own."""

    def __init__(
        self, *, home_channel: HomeChannel | None = None, extra: dict[str, Any] | None = None, **settings: Any
    ) -> None:
        super().__init__(**settings)
        self.home_channel = home_channel
        self.channel_overrides: Mapping[str, ChannelOverride] = {}
        """What holds in single chats, by the chat's id, `CHAT:THREAD` or `*`."""
        self.extra: dict[str, Any] = {} if extra is None else extra
        self.name = ""
        """The platform or account that it is for, such as `slack@work`; empty if that is not known."""
        self.problem = ""
        """Why this account cannot be connected although its settings are there."""

    def to_dict(self) -> dict[str, Any]:
        """All settings, also the secrets."""
        written = {**schema.plain(self), "extra": dict(self.extra)}
        if (home := self.home_channel) is not None:
            where = {"platform": home.platform.value, "chat_id": home.chat_id, "name": home.name}
            written["home_channel"] = where if home.thread_id is None else {**where, "thread_id": home.thread_id}
        if self.channel_overrides:
            written["channel_overrides"] = {
                chat: {"model": one.model, "provider": one.provider, "system_prompt": one.instructions}
                for chat, one in self.channel_overrides.items()
            }
        return {name: value for name, value in written.items() if value is not None}

    @classmethod
    def from_dict(cls, data: object, platform: Platform | None = None) -> PlatformConfig:
        given = _mapping(data)
        extra = _mapping(given.get("extra"))
        given.setdefault("typing_indicator", extra.get("typing_indicator"))  # it may also stand in `extra`
        made = schema.read(cls, [Value(given, Path())], [])
        made.extra, made.home_channel = extra, HomeChannel.from_dict(given.get("home_channel"), platform)
        made.channel_overrides = schema.read(PlatformChats, [Value(given, Path())], []).channel_overrides
        return made


class GatewayConfig(GatewaySettings):
    """All settings of the gateway."""

    def __init__(self, *, platforms: dict[Platform, PlatformConfig] | None = None, **settings: Any) -> None:
        super().__init__(**settings)
        self.platforms: dict[Platform, PlatformConfig] = {} if platforms is None else platforms
        self.unknown_platforms: tuple[str, ...] = ()
        """Names under `platforms:` that are switched on, and that no platform of this process has."""

    def get_reset_policy(self, platform: Platform | None = None, session_type: str | None = None) -> SessionResetPolicy:
        """The platform's rule, else the chat type's, else the general one."""
        for name in () if platform is None else accounts.names(platform.value):
            if (rule := self.reset_by_platform.get(Platform(name))) is not None:
                return rule
        if session_type is not None and session_type in self.reset_by_type:
            return self.reset_by_type[session_type]
        return self.default_reset_policy

    def get_connected_platforms(self) -> list[Platform]:
        """The platforms that are enabled and can sign in, by name."""
        ready = [name for name, config in self.platforms.items() if config.enabled and _can_sign_in(name, config)]
        return sorted(ready, key=lambda platform: str(platform.value))

    def get_home_channel(self, platform: Platform) -> HomeChannel | None:
        config = self.platforms.get(platform)
        return None if config is None else config.home_channel

    def take_over(self, new: GatewayConfig) -> None:
        """Change every setting that can change while the gateway runs."""
        for name, row in GatewaySettings.settings.items():
            if not row.restart:
                setattr(self, name, getattr(new, name))
        for platform, config in self.platforms.items():
            config.channel_overrides = new.platforms[platform].channel_overrides if platform in new.platforms else {}

    def chat_override(self, platform: Platform, chat_id: object, thread_id: object = None) -> ChannelOverride:
        """Model and instructions of a chat: each from its thread's entry, else from its own, else from that of all."""
        config = self.platforms.get(platform)
        listed = {} if config is None else config.channel_overrides
        found = [one for key in (f"{chat_id}:{thread_id}", str(chat_id), "*") if (one := listed.get(key)) is not None]
        model = next((one for one in found if one.model or one.provider), ChannelOverride())
        said = next((one.instructions for one in found if one.instructions is not None), None)
        return ChannelOverride(model=model.model, provider=model.provider, instructions=said)

    def to_dict(self) -> dict[str, Any]:
        return {
            **schema.plain(self),
            "platforms": {platform.value: config.to_dict() for platform, config in self.platforms.items()},
            "reset_by_platform": {name.value: schema.plain(policy) for name, policy in self.reset_by_platform.items()},
            "sessions_dir": str(self.sessions_dir),
        }

    @classmethod
    def from_dict(cls, data: object) -> GatewayConfig:
        given = _mapping(data)
        days = given.get("session_store_max_age_days")
        if isinstance(days, int | float) and not isinstance(days, bool) and abs(days) < schema.MOST:
            given["session_store_max_age_days"] = max(0, int(days))
        made = schema.read(cls, [Value(given, Path())], [])
        blocks = ((Platform.find(name), block) for name, block in _mapping(given.get("platforms")).items())
        made.platforms = {name: PlatformConfig.from_dict(block, name) for name, block in blocks if name is not None}
        return _finished(made)


def _finished(made: GatewayConfig) -> GatewayConfig:
    """Convert platform names to platforms, and numbers that mean the default."""
    named = ((Platform.find(name), policy) for name, policy in made.reset_by_platform.items())
    made.reset_by_platform = {platform: policy for platform, policy in named if platform is not None}
    made.max_concurrent_sessions = made.max_concurrent_sessions or None
    # hermes-agent's default of 0, written into many homes, would cut every running turn short.
    made.drain_seconds = made.drain_seconds or GatewayConfig().drain_seconds
    return made


def load_gateway_config(config: Config | None = None) -> GatewayConfig:
    """Defaults, then `gateway.json` of older homes, then config.yaml, then the environment and `.env`.

    Raises `ConfigError`.
    """
    from hermes_config import config as configuration

    source = Source(configuration.load() if config is None else config)
    _load_plugins(source.config)
    problems = source.mistyped()
    made = schema.read(GatewayConfig, source.places, problems, environ=source.environ)
    by_platform = source.find("reset_by_platform")
    for name, value in [] if by_platform is None or problems else by_platform.parts():
        if Platform.find(name) is None:
            problems.append(Problem(value, "is not a known platform", "`hermes gateway setup` lists them."))
    if problems:
        raise problems[0].error()
    folder = Path("sessions") if source.find("sessions_dir") is None else made.sessions_dir.expanduser()
    made.sessions_dir = source.config.home / folder
    made.platforms, made.unknown_platforms = _read_platforms(source)
    return _finished(made)


def _load_plugins(config: Config) -> None:
    """Load this home's plug-ins, once a process: they may register platforms."""
    from hermes_cli.plugins import discover_plugins
    from hermes_config.home import hermes_home

    if config.tree.get("plugins") and config.home == hermes_home():
        discover_plugins()


class Source:
    """The sections that may hold settings of the gateway, by precedence."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._top = Value(config.tree, config.home / "config.yaml")
        self.places = [self._top]
        if (own := self._top.at("gateway")) is not None:
            own.section()
            self.places.append(own)
        if (older := _older(config.home / "gateway.json")) is not None:
            self.places.append(older)

    def find(self, name: str) -> Value | None:
        return next((value for place in self.places if (value := place.at(name)) is not None), None)

    def all(self, name: str) -> list[Value]:
        """The values of a setting in all sections, the one with precedence last."""
        return [value for place in reversed(self.places) if (value := place.at(name)) is not None]

    def elsewhere(self, *path: str) -> Value | None:
        """A value at the top of config.yaml."""
        return self._top.at(*path)

    def environ(self, name: str) -> str | None:
        return (self.config.environ(name) or "").strip() or None

    def mistyped(self) -> list[Problem]:
        """Keys under `gateway:` that look like misspelt settings."""
        own = self._top.at("gateway")
        sections = (GatewaySettings, Access)
        known = {row.key for cls in sections for row in cls.settings.values()} | {"platforms"}
        known |= {key.partition(".")[0] for key in UNUSED} | {"agents", "agent_bytes", "max_live_sessions"}
        return [] if own is None else schema.unknown_names(own, known)


def _older(file: Path) -> Value | None:
    """`gateway.json`, which older homes have."""
    try:
        raw = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except OSError as error:
        what = f"{file.name} cannot be read: {error.strerror}"
        raise ConfigError(what, file=str(file), hint=advice(error)) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file.name} is not UTF-8 text", file=str(file), hint=_MOVE) from error
    except ValueError as error:
        raise ConfigError(f"{file.name} is not valid JSON: {error}", file=str(file), hint=_MOVE) from None
    if not isinstance(raw, dict):
        raise ConfigError(f"{file.name} must hold an object", file=str(file), hint=_MOVE)
    return Value(raw, file)


# -- platforms -----------------------------------------------------------------------------------------------------

_NOT_BLOCKS = frozenset({Platform.LOCAL, Platform.API_SERVER})
"""Blocks of config.yaml that share their name with a platform and mean something else."""
_OWN_KEYS = {*PlatformConfig.settings, *PlatformChats.settings, "home_channel", "extra"} | {
    key.rpartition(".")[2] for key in UNUSED if key.startswith("platforms.")
}


def _read_platforms(source: Source) -> tuple[dict[Platform, PlatformConfig], tuple[str, ...]]:
    """The platforms and accounts, and the names of switched-on blocks that belong to none."""
    from gateway.platforms import registry

    given: dict[Platform, dict[str, Any]] = {}
    unknown: dict[str, None] = {}
    for value in source.all("platforms"):
        for name, block in value.parts():
            if fault := accounts.fault(name.strip().lower()):
                raise block.wrong(fault, hint=f"Write for example {registry.example()}@work.")
            if (known := Platform.find(name)) is not None:
                _check(block)
                given[known] = _merged(given.get(known, {}), _mapping(block.raw))
            elif _mapping(block.raw).get("enabled"):  # of a plug-in that is not loaded, or misspelt
                unknown[name] = None
    own_blocks = (*_KNOWN_PLATFORMS, *_registered(), *filter(accounts.is_account, map(str, source.config.tree)))
    for platform in filter(None, map(Platform.find, dict.fromkeys(own_blocks))):
        own = source.elsewhere(str(platform.value))
        if own is not None and platform not in _NOT_BLOCKS:
            _check(own)
            given[platform] = _merged(given.get(platform, {}), _bridged(_mapping(own.raw)))
    descriptors = _descriptors(given)
    for platform, about in descriptors.items():
        told, has_secret = _from_variables(source, about)
        if has_secret or (told and platform in given):
            given[platform] = _merged({"enabled": has_secret, **given.get(platform, {})}, told)
    told_also = {platform: _merged(block, _from_environment(source, platform)) for platform, block in given.items()}
    made = {platform: PlatformConfig.from_dict(block, platform) for platform, block in told_also.items()}
    for platform, config in made.items():
        config.name = platform.value
    _keep_apart(made, descriptors)
    return made, tuple(unknown)


def _descriptors(given: Mapping[Platform, Any]) -> dict[Platform, Descriptor]:
    """The descriptors of all registered platforms that have one, and of the accounts that are given."""
    from gateway.platforms import registry

    names = (*registry.names(), *(one.value for one in given if accounts.is_account(one.value)))
    return {Platform(name): about for name in names if (about := registry.find(name)) is not None}


def _keep_apart(made: Mapping[Platform, PlatformConfig], descriptors: Mapping[Platform, Descriptor]) -> None:
    """Mark every account that would be the same one as another: they would take each other's messages."""
    from gateway.platforms import registry

    taken: dict[object, str] = {}
    for platform, config in sorted(made.items(), key=lambda one: one[0].value):
        about, name = descriptors.get(platform), platform.value
        if about is None or not config.enabled:
            continue
        required = tuple((one.key, str(registry.setting(config, one.key))) for one in about.fields if one.required)
        first = taken.setdefault(("variables", accounts.variable("_", name), accounts.platform_of(name)), name)
        if first != name:
            config.problem = f"it would have the variables of {first}; choose another name"
        elif required and not about.missing_fields(config):
            first = taken.setdefault((accounts.platform_of(name), required), name)
            if first != name:
                what = " and ".join(key.rpartition(".")[2] for key, _ in required)
                config.problem = f"it has the same {what} as {first}; each account needs its own"


def _from_variables(source: Source, about: Descriptor) -> tuple[dict[str, Any], bool]:
    """The values of a platform's environment variables, and whether one is a secret."""
    told: dict[str, Any] = {}
    has_secret = False
    for one in about.fields:
        if one.env and (said := source.environ(one.env)) is not None:
            has_secret = has_secret or one.secret
            section, _, name = one.key.rpartition(".")
            (told.setdefault(section, {}) if section else told)[name] = said
    return told, has_secret


def _from_environment(source: Source, platform: Platform) -> dict[str, Any]:
    """The settings in variables such as `SLACK_HOME_CHANNEL`."""
    start, told = accounts.platform_of(platform.value).upper(), dict[str, Any]()

    def said(ending: str) -> str | None:
        return source.environ(accounts.variable(f"{start}_{ending}", platform.value))

    if (chat := said("HOME_CHANNEL")) is not None:
        name, thread = said("HOME_CHANNEL_NAME"), said("HOME_CHANNEL_THREAD_ID")
        told["home_channel"] = {"chat_id": chat, "name": name, "thread_id": thread}
    if (mode := said("REPLY_TO_MODE")) is not None:
        told["reply_to_mode"] = mode
    if (mention := said("REQUIRE_MENTION")) is not None:
        told["extra"] = {"require_mention": mention.lower() not in ("false", "0", "no", "off")}
    return told


def _check(block: Value) -> None:
    """Raise `ConfigError` for an invalid platform block."""
    block.read(Part(PlatformSettings))
    block.read(Part(PlatformChats))
    for name in ("extra", "home_channel"):
        if (section := block.at(name)) is not None:
            section.section()
    home = block.at("home_channel")
    if home is not None and home.at("chat_id") is None:
        raise home.wrong("needs a chat_id", hint="The id of the chat that notices go to.")


def _can_sign_in(platform: Platform, config: PlatformConfig) -> bool:
    """Whether all fields are set that its descriptor requires; without a descriptor, whether any credential is set."""
    from gateway.platforms import registry

    about = registry.find(str(platform.value))
    if config.problem:
        return False
    if about is not None:
        return not about.missing_fields(config)
    return bool(config.token or config.api_key or config.extra)


def _bridged(block: dict[str, Any]) -> dict[str, Any]:
    """A platform's own block, with the adapter's keys moved into `extra`."""
    extra = {name: value for name, value in block.items() if name not in _OWN_KEYS}
    ours = {name: value for name, value in block.items() if name in _OWN_KEYS}
    return _merged({"extra": extra}, ours) if extra else ours


def _merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    extra = {**_mapping(below.get("extra")), **_mapping(above.get("extra"))}
    return {**below, **above, "extra": extra}


def _mapping(value: object) -> dict[str, Any]:
    """A mutable copy of a mapping; {} for anything else."""
    return dict(schema.plain(value)) if isinstance(value, Mapping) else {}


def _text(value: object) -> str | None:
    try:
        return PlainText().read(value)
    except Unfit:
        return None
