"""`GatewayConfig`: the gateway's part of a home's configuration, and how it is loaded.

`load_gateway_config` reads it from the home's files and the environment; a bad value there is a `ConfigError` with
file, line, key and reason (see `config_read`). `GatewayConfig.from_dict` is for programs: it forgives everything and
takes the default. Secrets stay out of every `repr`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from gateway import config_values as coerce
from gateway.config_parts import (
    HomeChannel,
    Platform,
    PlatformConfig,
    SessionResetPolicy,
    StreamingConfig,
)
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
