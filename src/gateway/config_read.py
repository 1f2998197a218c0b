"""Reading the gateway's settings from a home, strictly: defaults, gateway.json, config.yaml, the environment.

One line a setting. Bad values are refused with file, line, key and reason (`config_source`); a key nobody knows is
left alone. Platforms are in `config_platforms`; who may write, and in which role, in `policy_rules`.
"""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any, cast

from gateway import config_values as coerce
from gateway.config import (
    BUSY_MODES,
    RESET_MODES,
    TRANSPORTS,
    UNKNOWN_DM,
    ApiServerConfig,
    BusyMode,
    GatewayConfig,
    SessionResetPolicy,
    StreamingConfig,
)
from gateway.config_platforms import platform_named, read_platforms
from gateway.config_source import YEAR, Source, Value
from hermes_config import redaction
from hermes_config.config import Config

_HOST = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,252})|[0-9A-Fa-f:.]{2,45}")
_NAMES = tuple(field.name for field in fields(GatewayConfig))
# Names of settings in a file that are not those of fields, or are read elsewhere.
_OTHER_NAMES = (
    "session_reset", "stt", "allowed_users", "allow_all_users", "owners", "admins", "approvers", "agents",
    "agent_bytes", "delivery_ledger", "restart_loop_guard",
)  # fmt: skip


def read(config: Config) -> GatewayConfig:
    """The settings of a home. Raises `ConfigError`."""
    source = Source(config)
    if (own := source.elsewhere("gateway")) is not None:
        own.check_names([*_NAMES, *_OTHER_NAMES])
    settings = GatewayConfig(
        platforms=read_platforms(source),
        default_reset_policy=_policy(source.find("session_reset", "default_reset_policy")),
        reset_by_type={name: _policy(value) for name, value in _parts(source.find("reset_by_type"))},
        reset_by_platform={platform_named(n, v): _policy(v) for n, v in _parts(source.find("reset_by_platform"))},
        reset_triggers=list(source.names("reset_triggers", ("/new", "/reset"))),
        quick_commands={name: coerce.plain(value.raw) for name, value in _parts(source.find("quick_commands"))},
        sessions_dir=_folder(source),
        write_sessions_json=source.flag("write_sessions_json", True),
        always_log_local=source.flag("always_log_local", True),
        filter_silence_narration=source.flag("filter_silence_narration", True),
        stt_enabled=_stt(source, "enabled", "stt_enabled"),
        stt_echo_transcripts=_stt(source, "echo_transcripts", "stt_echo_transcripts"),
        group_sessions_per_user=source.flag("group_sessions_per_user", True),
        thread_sessions_per_user=source.flag("thread_sessions_per_user", False),
        max_concurrent_sessions=source.whole("max_concurrent_sessions", 0) or None,
        multiplex_profiles=_multiplex(source),
        systemd_watchdog_seconds=source.whole("systemd_watchdog_seconds", 0, most=YEAR),
        unauthorized_dm_behavior=_choice(source.find("unauthorized_dm_behavior"), "pair", UNKNOWN_DM),
        streaming=_streaming(source.find("streaming")),
        session_store_max_age_days=source.whole("session_store_max_age_days", 90, most=36_500),
        profile_routes=_list(source.find("profile_routes")),
        timezone=_zone(source),
        max_message_age=source.whole("max_message_age", 3600, most=YEAR),
        api_server=_api_server(source),
        model_choice=_model_choice(source.find("model_choice")),
    )
    _other_rooms(settings, source)
    return settings


def _other_rooms(settings: GatewayConfig, source: Source) -> None:
    """GatewayConfig that existing homes keep under `agent:` and `display:`."""
    value = source.find("drain_seconds") or source.elsewhere("agent", "restart_drain_timeout")
    # The reference's default of 0, written into many homes, cut every running turn short.
    drain = 0.0 if value is None else value.number(0, 3600)
    settings.drain_seconds = drain or settings.drain_seconds
    if (value := source.elsewhere("agent", "gateway_auto_continue_freshness")) is not None:
        settings.resume_window = value.number(0, YEAR)
    if (value := source.elsewhere("agent", "gateway_timeout")) is not None:
        settings.turn_seconds = value.number(0, YEAR)
    busy = source.find("busy_input_mode") or source.elsewhere("display", "busy_input_mode")
    settings.busy_input_mode = cast(BusyMode, _choice(busy, "interrupt", BUSY_MODES))
    if (value := source.elsewhere("display", "tool_progress")) is not None:
        # Elsewhere this is a level (off, new, all, verbose); to the gateway any level is "shown".
        settings.tool_progress = value.raw is not False and (coerce.text(value.raw) or "").lower() != "off"
    settings.media_bytes = source.whole("media_bytes", settings.media_bytes, least=1)


def _policy(value: Value | None) -> SessionResetPolicy:
    if value is None:
        return SessionResetPolicy()
    value.check_names([field.name for field in fields(SessionResetPolicy)])
    if (mode := value.at("mode")) is not None and mode.raw is not False:
        mode.choice(RESET_MODES)
    bounds = (("at_hour", 0, 23), ("idle_minutes", 1, 60 * 24 * 3650), ("bg_process_max_age_hours", 0, 8784))
    for name, least, most in bounds:
        if (number := value.at(name)) is not None:
            number.whole(least, most)
    if (notify := value.at("notify")) is not None:
        notify.flag()
    if (excluded := value.at("notify_exclude_platforms")) is not None:
        excluded.names()
    return SessionResetPolicy.from_dict(value.raw)


def _streaming(value: Value | None) -> StreamingConfig:
    if value is None:
        return StreamingConfig()
    if not isinstance(value.raw, bool):
        value.check_names(["mode", *(field.name for field in fields(StreamingConfig))])
    for name in ("mode", "transport"):
        if (found := value.at(name)) is not None and found.raw is not True:
            found.choice(TRANSPORTS)
    for name in ("edit_interval", "buffer_threshold", "fresh_final_after_seconds"):
        if (found := value.at(name)) is not None:
            found.number(0, YEAR)
    if (found := value.at("enabled")) is not None:
        found.flag()
    return StreamingConfig.from_dict(value.raw)


def _model_choice(value: Value | None) -> dict[str, tuple[str, ...]]:
    """Models by role. Guests choose none, and the owner any."""
    if value is None:
        return {}
    for role in value.section():
        if role not in ("admin", "member"):
            raise value.wrong(f"has lists for admin and member, not for {redaction.shown(role)}")
    return {role: names.names() for role, names in value.parts()}


def _hosts(value: Value) -> tuple[str, ...]:
    """Names and addresses alone: a port, a path or a `*` in one would let nobody in, or everybody."""
    for name in value.names():
        if not _HOST.fullmatch(name.strip("[]")):
            hint = "Write it as hermes.example or 10.0.0.7, without http:// and without a port."
            raise value.wrong(f"must be a list of host names, not {redaction.shown(name)}", hint=hint)
    return value.names()


def _api_server(source: Source) -> ApiServerConfig:
    """`api_server:`, or what `API_SERVER_*` says; the keys are looked up by whoever needs them."""
    value = source.find("api_server")
    given = {} if value is None else dict(value.parts())
    for name in ("enabled", "host", "port", "hosts", "cors_origins", "model_name"):
        if (said := source.environ(f"API_SERVER_{name.upper()}")) is not None:
            given[name] = Value(said, Path("environment"), (f"API_SERVER_{name.upper()}",))
    default = ApiServerConfig()
    return ApiServerConfig(
        enabled=given["enabled"].flag() if "enabled" in given else default.enabled,
        host=given["host"].text() if "host" in given else default.host,
        port=given["port"].whole(0, 65_535) if "port" in given else default.port,
        hosts=_hosts(given["hosts"]) if "hosts" in given else (),
        cors_origins=given["cors_origins"].names() if "cors_origins" in given else (),
        model_name=given["model_name"].text() if "model_name" in given else None,
    )


def _zone(source: Source) -> str | None:
    import zoneinfo

    value = source.find("timezone")
    if value is None:
        return None
    name = value.text()
    try:
        zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise value.wrong(f"no such time zone: {name!r:.60}", hint="For example Europe/Lisbon.") from None
    return name


def _stt(source: Source, name: str, flat: str) -> bool:
    """`stt: {enabled, echo_transcripts}`, or flat as programs write it."""
    section = source.find("stt")
    nested = None if section is None else section.at(name)
    value = nested or source.find(flat)
    return True if value is None else value.flag()


def _multiplex(source: Source) -> bool:
    said = source.environ("GATEWAY_MULTIPLEX_PROFILES")
    return coerce.flag(said, source.flag("multiplex_profiles", False))


def _folder(source: Source) -> Path:
    value = source.find("sessions_dir")
    return source.config.home / ("sessions" if value is None else Path(value.text()).expanduser())


def _choice(value: Value | None, default: str, options: tuple[str, ...]) -> str:
    return default if value is None else value.choice(options)


def _parts(value: Value | None) -> list[tuple[str, Value]]:
    return [] if value is None else value.parts()


def _list(value: Value | None) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value.raw, list | tuple):
        raise value.wrong("must be a list")
    return [coerce.plain(item) for item in value.raw]
