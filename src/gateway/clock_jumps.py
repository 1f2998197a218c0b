"""Noticing that the wall clock was set back while we ran.

Moments in the store are wall-clock time, because they must mean something after a restart. What was put off until such
a moment would wait longer by as much as the clock was set back, so whoever waits asks here and moves what waits.
"""

from __future__ import annotations

import time
from collections.abc import Callable

_NOTICED = 5.0
"""Seconds between two looks: less is a clock that is being trimmed, and delays nothing worth speaking of."""


class ClockJumps:
    """Compares the wall clock with one that nobody can set."""

    def __init__(self, wall: Callable[[], float], *, steady: Callable[[], float] = time.monotonic) -> None:
        self._wall, self._steady = wall, steady
        self._last = wall(), steady()

    def set_back(self) -> float:
        """By how many seconds the clock was set back since the last look; 0 when it was not."""
        (wall, steady), now = self._last, (self._wall(), self._steady())
        self._last = now
        back = (now[1] - steady) - (now[0] - wall)
        return back if back >= _NOTICED else 0.0
