"""Decides when a route starts a new conversation by itself: pure functions of a rule, route, time and zone.

Idle time is a distance between instants. The daily hour is a wall-clock hour of the person's own zone: on the day the
clock jumps over it, the moment of the jump counts; on the day it comes twice, the first one does. An instant in the
future (a clock that was set back) makes nothing due.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime, time, timedelta, tzinfo
from pathlib import Path
from typing import Literal

from gateway.config import SessionResetPolicy

Reason = Literal["idle", "daily", "suspended", "resume_pending_expired"]
_LOCALTIME = Path("/etc/localtime")


def due(
    policy: SessionResetPolicy, last_active: float, now: float, zone: Callable[[], tzinfo]
) -> Literal["idle", "daily"] | None:
    """Why a conversation that was last active then (epoch seconds) has expired, or None."""
    if policy.mode in ("idle", "both") and now > last_active + policy.idle_minutes * 60:
        return "idle"
    if policy.mode in ("daily", "both") and last_active < daily_boundary(policy.at_hour, now, zone()):
        return "daily"
    return None


def daily_boundary(hour: int, now: float, zone: tzinfo) -> float:
    """The last time at which it was `hour`:00 in `zone`."""
    today = datetime.fromtimestamp(now, zone).date()
    for back in range(3):  # a zone may have skipped a whole day
        # `fold` 0 is the earlier of two; for an hour that does not exist it gives the moment of the jump.
        moment = datetime.combine(today - timedelta(days=back), time(hour), tzinfo=zone).timestamp()
        if moment <= now:
            return moment
    return 0.0


def latest_due(policy: SessionResetPolicy, now: float) -> float | None:
    """A route used at or after this instant cannot be due, wherever its person lives. None: no route ever is."""
    if policy.mode == "none" or policy.mode not in ("idle", "daily", "both"):
        return None
    # The daily hour was at most a day ago in every zone, and at its latest it is now.
    return now if policy.mode in ("daily", "both") else now - policy.idle_minutes * 60


def zone_of(*names: str | None) -> tzinfo:
    """The first of the named IANA zones that exists here, else the system's, else UTC."""
    for name in names:
        if name and (found := _zone(name)) is not None:
            return found
    return _system_zone()


def _zone(name: str) -> tzinfo | None:
    import zoneinfo

    try:
        return zoneinfo.ZoneInfo(name)  # it keeps those it has read
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return None


def _system_zone() -> tzinfo:
    import zoneinfo

    if (named := os.environ.get("TZ", "").lstrip(":")) and (found := _zone(named)) is not None:
        return found
    try:
        with _LOCALTIME.open("rb") as file:
            return zoneinfo.ZoneInfo.from_file(file)
    except (OSError, ValueError):
        return UTC
