"""`GatewayConfig`: the gateway's part of a home's configuration, and how it is loaded.

`load_gateway_config` reads it from the home's files and the environment; a bad value there is a `ConfigError` with
file, line, key and reason (see `config_read`). `GatewayConfig.from_dict` is for programs: it forgives everything and
takes the default. Secrets stay out of every `repr`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from gateway import config_values as coerce
from hermes_config.home import hermes_home

if TYPE_CHECKING:
    from hermes_config.config import Config


__all__ = [
    "ApiServerConfig",
    "GatewayConfig",
    "HomeChannel",
    "Platform",
    "PlatformConfig",
    "SessionResetPolicy",
    "StreamingConfig",
    "load_gateway_config",
]

RESET_MODES = ("none", "idle", "daily", "both")
REPLY_MODES = ("off", "first", "all")
TRANSPORTS = ("auto", "draft", "edit", "off")


class Platform(Enum):
    """Where people write from. Names of platforms that plug-ins bring become members when they are first asked for."""

    LOCAL = "local"
    TELEGRAM = "telegram"
    DISCORD = "discord"
    WHATSAPP = "whatsapp"
    WHATSAPP_CLOUD = "whatsapp_cloud"
    SLACK = "slack"
    SIGNAL = "signal"
    MATTERMOST = "mattermost"
    MATRIX = "matrix"
    HOMEASSISTANT = "homeassistant"
    EMAIL = "email"
    SMS = "sms"
    DINGTALK = "dingtalk"
    API_SERVER = "api_server"
    WEBHOOK = "webhook"
    MSGRAPH_WEBHOOK = "msgraph_webhook"
    FEISHU = "feishu"
    WECOM = "wecom"
    WECOM_CALLBACK = "wecom_callback"
    WEIXIN = "weixin"
    BLUEBUBBLES = "bluebubbles"
    QQBOT = "qqbot"
    YUANBAO = "yuanbao"
    RELAY = "relay"

    @classmethod
    def _missing_(cls, value: object) -> Platform | None:
        name = value.strip().lower() if isinstance(value, str) else ""
        known = cls._value2member_map_.get(name)
        if isinstance(known, cls):
            return known
        if not name or (name not in _BROUGHT_BY_PLUGINS and name not in _registered()):
            return None
        member = object.__new__(cls)
        member._name_ = name.upper()
        member._value_ = name
        # Two threads may meet a new name at once: the first one's member counts for both.
        return cls._value2member_map_.setdefault(name, member)  # type: ignore[return-value]

    @classmethod
    def find(cls, name: object) -> Platform | None:
        """The platform of that name, or None."""
        try:
            return cls(name)
        except ValueError:
            return None


_BROUGHT_BY_PLUGINS = frozenset({"google_chat", "irc", "line", "ntfy", "photon", "raft", "simplex", "teams"})


def _registered() -> set[str]:
    """Names that plug-ins of this process have registered, or would when they are loaded."""
    from hermes_cli.plugins import get_plugin_manager

    manager = get_plugin_manager()
    waiting = (name for row in manager.plugins.values() if row.state == "later" for name in row.found.names)
    return {*manager.registries.platforms, *waiting}


@dataclass(slots=True)
class HomeChannel:
    """The chat that notices without an addressee go to."""

    platform: Platform
    chat_id: str
    name: str = "Home"
    thread_id: str | None = None

    def to_dict(self) -> dict[str, Any]:
        written = {"platform": self.platform.value, "chat_id": self.chat_id, "name": self.name}
        return written if self.thread_id is None else {**written, "thread_id": self.thread_id}

    @classmethod
    def from_dict(cls, data: object, platform: Platform | None = None) -> HomeChannel | None:
        """None where there is no chat to speak of."""
        if not isinstance(data, Mapping):
            return None
        place = Platform.find(data.get("platform")) or platform
        chat_id = coerce.text(data.get("chat_id"))
        if place is None or chat_id is None:
            return None
        name = coerce.text(data.get("name")) or "Home"
        return cls(place, chat_id, name, coerce.text(data.get("thread_id")))


@dataclass(slots=True)
class PlatformConfig:
    """One platform: whether it is on, how it signs in, how it behaves. `extra` is the adapter's own."""

    enabled: bool = False
    token: str | None = field(default=None, repr=False)
    api_key: str | None = field(default=None, repr=False)
    home_channel: HomeChannel | None = None
    reply_to_mode: str = "first"
    gateway_restart_notification: bool = True
    typing_indicator: bool = True
    typing_status_text: str | None = None
    channel_overrides: dict[str, dict[str, Any]] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """As it is written to a file: with the secrets, which are only left out where there are none."""
        written: dict[str, Any] = {
            "enabled": self.enabled,
            "extra": dict(self.extra),
            "reply_to_mode": self.reply_to_mode,
            "gateway_restart_notification": self.gateway_restart_notification,
            "typing_indicator": self.typing_indicator,
        }
        if_set = {"token": self.token, "api_key": self.api_key, "typing_status_text": self.typing_status_text}
        written |= {name: value for name, value in if_set.items() if value is not None}
        if self.home_channel is not None:
            written["home_channel"] = self.home_channel.to_dict()
        if self.channel_overrides:
            written["channel_overrides"] = {key: dict(value) for key, value in self.channel_overrides.items()}
        return written

    @classmethod
    def from_dict(cls, data: object, platform: Platform | None = None) -> PlatformConfig:
        given = coerce.mapping(data)
        extra = coerce.mapping(given.get("extra"))
        both = {**extra, **given}  # these three may also stand in `extra`
        mode = (coerce.text(given.get("reply_to_mode")) or "first").lower()
        overrides = coerce.mapping(given.get("channel_overrides"))
        return cls(
            enabled=coerce.flag(given.get("enabled"), False),
            token=coerce.text(given.get("token")),
            api_key=coerce.text(given.get("api_key")),
            home_channel=HomeChannel.from_dict(given.get("home_channel"), platform),
            reply_to_mode=mode if mode in REPLY_MODES else "first",
            gateway_restart_notification=coerce.flag(both.get("gateway_restart_notification"), True),
            typing_indicator=coerce.flag(both.get("typing_indicator"), True),
            typing_status_text=coerce.text(both.get("typing_status_text")),
            channel_overrides={key: value for key, value in overrides.items() if isinstance(value, dict)},
            extra=extra,
        )


@dataclass(slots=True)
class SessionResetPolicy:
    """When a chat starts over by itself: never, after a pause, at an hour of the day, or both."""

    mode: str = "none"
    at_hour: int = 4
    idle_minutes: int = 1440
    notify: bool = True
    notify_exclude_platforms: tuple[str, ...] = ("api_server", "webhook")
    bg_process_max_age_hours: int = 24

    def to_dict(self) -> dict[str, Any]:
        return {
            "mode": self.mode,
            "at_hour": self.at_hour,
            "idle_minutes": self.idle_minutes,
            "notify": self.notify,
            "notify_exclude_platforms": list(self.notify_exclude_platforms),
            "bg_process_max_age_hours": self.bg_process_max_age_hours,
        }

    @classmethod
    def from_dict(cls, data: object) -> SessionResetPolicy:
        given = coerce.mapping(data)
        default = cls()
        mode = (coerce.text(given.get("mode")) or "none").lower()
        hour = coerce.number(given.get("at_hour"), default.at_hour)
        idle = int(coerce.number(given.get("idle_minutes"), default.idle_minutes))
        return cls(
            mode=mode if mode in RESET_MODES else "none",
            at_hour=int(hour) if hour < 24 else default.at_hour,
            idle_minutes=idle or default.idle_minutes,
            notify=coerce.flag(given.get("notify"), True),
            notify_exclude_platforms=coerce.names(
                given.get("notify_exclude_platforms"), default.notify_exclude_platforms
            ),
            bg_process_max_age_hours=int(coerce.number(given.get("bg_process_max_age_hours"), 24)),
        )


@dataclass(slots=True)
class StreamingConfig:
    """Whether an answer is shown while it is made, and how."""

    enabled: bool = False
    transport: str = "auto"
    edit_interval: float = 0.8
    buffer_threshold: int = 24
    cursor: str = " ▉"
    fresh_final_after_seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        return {
            "enabled": self.enabled,
            "transport": self.transport,
            "edit_interval": self.edit_interval,
            "buffer_threshold": self.buffer_threshold,
            "cursor": self.cursor,
            "fresh_final_after_seconds": self.fresh_final_after_seconds,
        }

    @classmethod
    def from_dict(cls, data: object) -> StreamingConfig:
        """`mode` is another name for `transport` that also switches streaming on (or, being off, off)."""
        given = coerce.mapping(data) if not isinstance(data, bool) else {"enabled": data}
        default = cls()
        mode = _transport(given.get("mode"))
        transport = mode or _transport(given.get("transport")) or default.transport
        implied = mode is not None and mode != "off"
        cursor = given.get("cursor")
        return cls(
            enabled=coerce.flag(given.get("enabled"), implied),
            transport=transport,
            edit_interval=coerce.number(given.get("edit_interval"), default.edit_interval),
            buffer_threshold=int(coerce.number(given.get("buffer_threshold"), default.buffer_threshold)),
            cursor=cursor if isinstance(cursor, str) else default.cursor,
            fresh_final_after_seconds=coerce.number(given.get("fresh_final_after_seconds"), 0.0),
        )


def _transport(value: object) -> str | None:
    """YAML reads a bare `off` as false and `on` as true."""
    if isinstance(value, bool):
        return "auto" if value else "off"
    word = (coerce.text(value) or "").lower()
    return word if word in TRANSPORTS else None


BusyMode = Literal["interrupt", "queue", "steer"]
BUSY_MODES = ("interrupt", "queue", "steer")
UNKNOWN_DM = ("pair", "ignore")


@dataclass(frozen=True, slots=True)
class ApiServerConfig:
    """The HTTP server of the gateway. Its keys are secrets of the environment and not here."""

    enabled: bool = False
    host: str = "127.0.0.1"
    port: int = 8642
    hosts: tuple[str, ...] = ()
    """Further names by which it may be called (`Host`), besides those of loopback and the address it listens on."""
    cors_origins: tuple[str, ...] = ()
    model_name: str | None = None


@dataclass(slots=True)
class GatewayConfig:
    """Everything that shapes the switchboard. The first block has the names other programs know."""

    platforms: dict[Platform, PlatformConfig] = field(default_factory=dict)
    default_reset_policy: SessionResetPolicy = field(default_factory=SessionResetPolicy)
    reset_by_type: dict[str, SessionResetPolicy] = field(default_factory=dict)
    reset_by_platform: dict[Platform, SessionResetPolicy] = field(default_factory=dict)
    reset_triggers: list[str] = field(default_factory=lambda: ["/new", "/reset"])
    quick_commands: dict[str, Any] = field(default_factory=dict)
    sessions_dir: Path = field(default_factory=lambda: hermes_home() / "sessions")
    write_sessions_json: bool = True
    always_log_local: bool = True
    filter_silence_narration: bool = True
    stt_enabled: bool = True
    stt_echo_transcripts: bool = True
    group_sessions_per_user: bool = True
    thread_sessions_per_user: bool = False
    max_concurrent_sessions: int | None = None
    multiplex_profiles: bool = False
    systemd_watchdog_seconds: int = 0
    unauthorized_dm_behavior: str = "pair"
    streaming: StreamingConfig = field(default_factory=StreamingConfig)
    session_store_max_age_days: int = 90
    profile_routes: list[Any] = field(default_factory=list)

    timezone: str | None = None
    max_message_age: int = 3600
    drain_seconds: float = 30.0
    resume_window: float = 3600.0
    turn_seconds: float = 1800.0
    busy_input_mode: BusyMode = "interrupt"
    tool_progress: bool = True
    media_bytes: int = 20 * 1024 * 1024
    api_server: ApiServerConfig = ApiServerConfig()
    model_choice: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Which models `/model` gives to admins and members besides the configured ones; `*`: any."""

    def get_reset_policy(self, platform: Platform | None = None, session_type: str | None = None) -> SessionResetPolicy:
        """The platform's rule, else the chat type's, else the general one."""
        if platform is not None and platform in self.reset_by_platform:
            return self.reset_by_platform[platform]
        if session_type is not None and session_type in self.reset_by_type:
            return self.reset_by_type[session_type]
        return self.default_reset_policy

    def get_connected_platforms(self) -> list[Platform]:
        """Those that are switched on and can sign in, by name."""
        ready = [platform for platform, config in self.platforms.items() if config.enabled and _can_sign_in(config)]
        return sorted(ready, key=lambda platform: str(platform.value))

    def get_home_channel(self, platform: Platform) -> HomeChannel | None:
        config = self.platforms.get(platform)
        return None if config is None else config.home_channel

    def get_unauthorized_dm_behavior(self, platform: Platform | None = None) -> str:
        """`pair` or `ignore`: the platform's own word, else mail is ignored, else the general one."""
        own = self._extra(platform).get("unauthorized_dm_behavior")
        if isinstance(own, str) and own.strip().lower() in UNKNOWN_DM:
            return own.strip().lower()
        return "ignore" if platform is Platform.EMAIL else self.unauthorized_dm_behavior

    def get_notice_delivery(self, platform: Platform | None = None) -> str:
        """Where the gateway's own notices go: `public` into the chat, `private` to the person."""
        own = self._extra(platform).get("notice_delivery")
        word = own.strip().lower() if isinstance(own, str) else ""
        return word if word in ("public", "private") else "public"

    def _extra(self, platform: Platform | None) -> dict[str, Any]:
        config = None if platform is None else self.platforms.get(platform)
        return {} if config is None else config.extra

    def to_dict(self) -> dict[str, Any]:
        return {
            "platforms": {platform.value: config.to_dict() for platform, config in self.platforms.items()},
            "default_reset_policy": self.default_reset_policy.to_dict(),
            "reset_by_type": {name: policy.to_dict() for name, policy in self.reset_by_type.items()},
            "reset_by_platform": {name.value: policy.to_dict() for name, policy in self.reset_by_platform.items()},
            "reset_triggers": list(self.reset_triggers),
            "quick_commands": dict(self.quick_commands),
            "sessions_dir": str(self.sessions_dir),
            "write_sessions_json": self.write_sessions_json,
            "always_log_local": self.always_log_local,
            "filter_silence_narration": self.filter_silence_narration,
            "stt_enabled": self.stt_enabled,
            "stt_echo_transcripts": self.stt_echo_transcripts,
            "group_sessions_per_user": self.group_sessions_per_user,
            "thread_sessions_per_user": self.thread_sessions_per_user,
            "max_concurrent_sessions": self.max_concurrent_sessions,
            "multiplex_profiles": self.multiplex_profiles,
            "systemd_watchdog_seconds": self.systemd_watchdog_seconds,
            "unauthorized_dm_behavior": self.unauthorized_dm_behavior,
            "streaming": self.streaming.to_dict(),
            "session_store_max_age_days": self.session_store_max_age_days,
            "profile_routes": list(self.profile_routes),
            "timezone": self.timezone,
            "max_message_age": self.max_message_age,
            "drain_seconds": self.drain_seconds,
            "busy_input_mode": self.busy_input_mode,
        }

    @classmethod
    def from_dict(cls, data: object) -> GatewayConfig:
        given = coerce.mapping(data)
        stt = coerce.mapping(given.get("stt"))
        dm = (coerce.text(given.get("unauthorized_dm_behavior")) or "pair").lower()
        busy = (coerce.text(given.get("busy_input_mode")) or "interrupt").lower()
        folder = coerce.text(given.get("sessions_dir"))
        return cls(
            platforms=_platforms(given.get("platforms")),
            default_reset_policy=SessionResetPolicy.from_dict(given.get("default_reset_policy")),
            reset_by_type=_policies(given.get("reset_by_type")),
            reset_by_platform=_by_platform(_policies(given.get("reset_by_platform"))),
            reset_triggers=list(coerce.names(given.get("reset_triggers"), ("/new", "/reset"))),
            quick_commands=coerce.mapping(given.get("quick_commands")),
            sessions_dir=Path(folder) if folder else hermes_home() / "sessions",
            write_sessions_json=coerce.flag(given.get("write_sessions_json"), True),
            always_log_local=coerce.flag(given.get("always_log_local"), True),
            filter_silence_narration=coerce.flag(given.get("filter_silence_narration"), True),
            stt_enabled=coerce.flag(given.get("stt_enabled", stt.get("enabled")), True),
            stt_echo_transcripts=coerce.flag(given.get("stt_echo_transcripts", stt.get("echo_transcripts")), True),
            group_sessions_per_user=coerce.flag(given.get("group_sessions_per_user"), True),
            thread_sessions_per_user=coerce.flag(given.get("thread_sessions_per_user"), False),
            max_concurrent_sessions=coerce.positive_whole(given.get("max_concurrent_sessions")),
            multiplex_profiles=coerce.flag(given.get("multiplex_profiles"), False),
            systemd_watchdog_seconds=coerce.days(given.get("systemd_watchdog_seconds"), 0),
            unauthorized_dm_behavior=dm if dm in UNKNOWN_DM else "pair",
            streaming=StreamingConfig.from_dict(given.get("streaming")),
            session_store_max_age_days=coerce.days(given.get("session_store_max_age_days"), 90),
            profile_routes=list(routes) if isinstance(routes := given.get("profile_routes"), list) else [],
            timezone=coerce.text(given.get("timezone")),
            max_message_age=coerce.days(given.get("max_message_age"), 3600),
            drain_seconds=coerce.number(given.get("drain_seconds"), 30.0),
            busy_input_mode=cast(BusyMode, busy) if busy in BUSY_MODES else "interrupt",
        )


def load_gateway_config(config: Config | None = None) -> GatewayConfig:
    """Defaults, then `gateway.json` of older homes, then config.yaml, then the environment and `.env`."""
    from gateway import config_read
    from hermes_config import config as configuration

    return config_read.read(configuration.load() if config is None else config)


def _can_sign_in(config: PlatformConfig) -> bool:
    # A platform that needs neither token nor key (a local server, a webhook) says so by what it has in `extra`.
    return bool(config.token or config.api_key or config.extra)


def _platforms(data: object) -> dict[Platform, PlatformConfig]:
    """Names that nobody knows are left out."""
    given = coerce.mapping(data)
    known = ((Platform.find(name), value) for name, value in given.items())
    return {name: PlatformConfig.from_dict(value, name) for name, value in known if name is not None}


def _policies(data: object) -> dict[str, SessionResetPolicy]:
    return {
        name: SessionResetPolicy.from_dict(value)
        for name, value in coerce.mapping(data).items()
        if isinstance(value, Mapping)
    }


def _by_platform(policies: dict[str, SessionResetPolicy]) -> dict[Platform, SessionResetPolicy]:
    found = ((Platform.find(name), policy) for name, policy in policies.items())
    return {name: policy for name, policy in found if name is not None}
