"""Points in time as people type them: `2026-11-01`, `2026-11-01 14:30`, or how long ago: `90min`, `12h`, `7d`, `2w`.

Dates are in this machine's zone unless they carry one of their own.
"""

from __future__ import annotations

import argparse
import re
import time
from datetime import datetime

_AGE = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)\s*(min|h|d|w|mo|y)?(?:\s+ago)?")
_SECONDS = {"min": 60, "h": 3_600, "d": 86_400, "w": 7 * 86_400, "mo": 30 * 86_400, "y": 365 * 86_400}


def instant(text: str) -> float:
    """Seconds since 1970, from a date or an age with its unit."""
    found = _AGE.fullmatch(text.strip().lower())
    if found and found[2]:
        return time.time() - float(found[1]) * _SECONDS[found[2]]
    try:
        return datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, OverflowError, OSError):  # the latter two: a year no clock of this machine reaches
        raise argparse.ArgumentTypeError(
            f"must be a date such as 2026-11-01 or an age such as 12h, 7d, 2w, not {text[:40]!r}"
        ) from None


def days(text: str) -> float:
    """A length of time in days; a bare number counts days."""
    found = _AGE.fullmatch(text.strip().lower())
    if not found:
        raise argparse.ArgumentTypeError(f"must be a number of days or an age such as 12h, 7d, 2w, not {text[:40]!r}")
    return float(found[1]) * _SECONDS[found[2] or "d"] / _SECONDS["d"]
