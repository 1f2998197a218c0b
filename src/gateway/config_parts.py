"""The pieces of the gateway's configuration: platforms, their homes, reset rules, streaming.

Each reads itself from a dictionary of any origin with `from_dict`, which never raises over a bad value: it takes the
default, as programs that build these in code expect. Files are read by `config_read`, which names bad values first.
Tokens, keys and `extra` never stand in a `repr`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from gateway import config_values as coerce

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
    """Names that plug-ins of this process have registered."""
    from hermes_cli.plugins import get_plugin_manager

    return set(get_plugin_manager().registries.platforms)


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
