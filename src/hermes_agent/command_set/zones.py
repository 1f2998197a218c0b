"""Which time zone somebody means: IANA names, in whatever case, by their city alone, or nearly right."""

from __future__ import annotations

import datetime as dt
import zoneinfo
from difflib import get_close_matches

_LONGEST = 64


def meant(wanted: str) -> tuple[str | None, list[str]]:
    """(the zone, or None; then names it may have been)."""
    known = {name.lower(): name for name in zoneinfo.available_timezones()}
    low = "_".join(wanted.lower().split())
    if low in known:
        return known[low], []
    if not low or len(low) > _LONGEST:
        return None, []
    by_city = [name for lower, name in sorted(known.items()) if lower.rpartition("/")[2] == low]
    if len(by_city) == 1:
        return by_city[0], []
    if by_city:
        return None, by_city[:3]
    cities = {lower.rpartition("/")[2]: name for lower, name in sorted(known.items(), reverse=True)}
    near = [known[one] for one in get_close_matches(low, known, n=2, cutoff=0.75)]
    near += [cities[one] for one in get_close_matches(low.rpartition("/")[2], cities, n=2, cutoff=0.75)]
    return None, list(dict.fromkeys(near))[:3]


def clock(zone: str, instant: float) -> str:
    return dt.datetime.fromtimestamp(instant, tz=zoneinfo.ZoneInfo(zone)).strftime("%H:%M")
