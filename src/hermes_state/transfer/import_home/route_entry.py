"""Parse one entry of hermes-agent's routing index (`sessions.json`, `gateway_routing`), with the same checks.

`parse` takes an entry of the file and returns it in its full stored form, or raises `BadEntry` with the reason. Pure
functions, no database. Keys that carry credentials are dropped: a model override keeps only model, provider and
base_url, and unknown keys are not taken over.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from typing import Any

from hermes_state.columns import clean, scrub
from hermes_state.ids import PLATFORMS, is_possible_id

_OVERRIDE = ("model", "provider", "base_url")
_NUMBERS = (
    "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "total_tokens", "last_prompt_tokens",
)  # fmt: skip
_DRIVE = re.compile(r"[A-Za-z]:[\\/]|[A-Za-z]:$")
_ORIGIN_ALWAYS = ("chat_name", "user_id", "user_name", "thread_id", "chat_topic")
_ORIGIN_WHEN_SET = ("user_id_alt", "chat_id_alt", "parent_chat_id", "message_id", "profile", "auto_thread_initial_name")


class BadEntry(ValueError):
    """The entry cannot be used; the text says why."""


def parse(entry: object) -> dict[str, Any]:
    """The entry in its stored form, with defaults for missing keys."""
    if not isinstance(entry, Mapping):
        raise BadEntry(f"it is not an entry but a {type(entry).__name__}")
    for name in ("session_key", "session_id", "created_at", "updated_at"):
        if name not in entry:
            raise BadEntry(f"{name} is missing")
    get = entry.get
    # Old files use another name for this flag; it counts only without the new one.
    finalized = get("expiry_finalized") if "expiry_finalized" in entry else get("memory_flushed")
    written: dict[str, Any] = {
        "session_key": session_key(entry["session_key"]),
        "session_id": session_id(entry["session_id"]),
        "created_at": _instant(entry["created_at"], "created_at"),
        "updated_at": _instant(entry["updated_at"], "updated_at"),
        "display_name": text_or_none(get("display_name")),
        "platform": platform(get("platform")),
        "chat_type": text_or_none(get("chat_type")) or "dm",
        **{name: _number(get(name)) for name in _NUMBERS},
        "estimated_cost_usd": _cost(get("estimated_cost_usd")),
        "cost_status": text_or_none(get("cost_status")) or "unknown",
        "expiry_finalized": bool(finalized),
        "suspended": bool(get("suspended")),
        "resume_pending": bool(get("resume_pending")),
        "resume_reason": text_or_none(get("resume_reason")),
        "last_resume_marked_at": _instant_or_none(get("last_resume_marked_at")),
        "is_fresh_reset": bool(get("is_fresh_reset")),
        "was_auto_reset": bool(get("was_auto_reset")),
        "auto_reset_reason": text_or_none(get("auto_reset_reason")),
        "reset_had_activity": bool(get("reset_had_activity")),
    }
    if get("origin"):
        written["origin"] = origin(get("origin"))
    override = model_override(get("model_override"))
    if override:
        written["model_override"] = override
    return written


def session_id(value: object) -> str:
    """A session id that is safe as part of a file name on every system."""
    if not isinstance(value, str) or not is_possible_id(value):
        raise BadEntry("session_id is not a valid id")
    if ".." in value or "/" in value or "\\" in value or _DRIVE.match(value):
        raise BadEntry("session_id looks like a path")
    return value


def session_key(value: object) -> str:
    """Some platforms have `/` inside their ids, so only keys that could leave a folder are refused."""
    if not isinstance(value, str) or not is_possible_id(value):
        raise BadEntry("session_key is not a valid key")
    if ".." in value or value.startswith(("/", "\\")) or _DRIVE.match(value):
        raise BadEntry("session_key looks like a path")
    return value


def platform(value: object) -> str | None:
    """The platform's name; None for an unknown one."""
    name = value.strip().lower() if isinstance(value, str) else ""
    return name if name in PLATFORMS else None


def origin(source: object) -> dict[str, Any]:
    """The chat that a route's messages come from, in its stored form."""
    if not isinstance(source, Mapping):
        raise BadEntry("origin is not a mapping")
    if platform(source.get("platform")) is None:
        raise BadEntry("origin names an unknown platform")
    if source.get("chat_id") is None:
        raise BadEntry("origin has no chat_id")
    written: dict[str, Any] = {
        "platform": platform(source.get("platform")),
        "chat_id": text_or_none(source["chat_id"]),
        "chat_type": text_or_none(source.get("chat_type")) or "dm",
        **{name: text_or_none(source.get(name)) for name in _ORIGIN_ALWAYS},
    }
    scope = text_or_none(source.get("scope_id")) or text_or_none(source.get("guild_id"))
    if scope:
        written |= {"scope_id": scope, "guild_id": scope}
    written |= {name: text_or_none(source[name]) for name in _ORIGIN_WHEN_SET if source.get(name)}
    if source.get("auto_thread_created"):
        written["auto_thread_created"] = True
    return written


def model_override(value: object) -> dict[str, str]:
    if not isinstance(value, Mapping):
        return {}
    return {name: scrub(str(value[name])) for name in _OVERRIDE if value.get(name)}


def epoch(written: str) -> float:
    """UTC seconds from one of their times, which are local and have no zone."""
    try:
        return dt.datetime.fromisoformat(written).timestamp()
    except (ValueError, OverflowError, OSError):
        return 0.0


def _instant(value: object, name: str) -> str:
    found = _instant_or_none(value)
    if found is None:
        raise BadEntry(f"{name} is not a date: {value!r:.40}")
    return found


def _instant_or_none(value: object) -> str | None:
    if not isinstance(value, str):
        return None
    try:
        return dt.datetime.fromisoformat(value).isoformat()
    except ValueError:
        return None


def text_or_none(value: object) -> str | None:
    """A value of any kind as storable text."""
    return None if value is None else str(clean(str(value)))


def _number(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        return 0
    return int(value) if abs(value) < 2**62 else 0


def _cost(value: object) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0
