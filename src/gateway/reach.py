"""Which platforms can be written to now, and to how many more of their chats.

A platform whose connection fails before anything was sent is left alone for a while, a longer one each time, because
the next chat would fare no better; one success, or the word that it is back, ends that.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from gateway.config import Platform
from gateway.platforms.base import BasePlatformAdapter

_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 30.0


class _Away(NamedTuple):
    pause: float
    until: float


class Reach:
    def __init__(self, adapters: Mapping[Platform, BasePlatformAdapter], *, most: int) -> None:
        self._adapters = adapters
        self._most = most
        self._busy: Counter[str] = Counter()
        self._away: dict[str, _Away] = {}

    def room(self) -> tuple[int, list[str]]:
        """Platforms that something may be claimed for, and how many items at once."""
        now = asyncio.get_running_loop().time()
        away = {name for name, away in self._away.items() if away.until > now}
        names = (platform.value for platform in self._adapters)
        there = [name for name in names if name not in away and self._busy[name] < self._most]
        return min((self._most - self._busy[name] for name in there), default=0), there

    def begun(self, platform: str) -> None:
        self._busy[platform] += 1

    def ended(self, platform: str) -> bool:
        """True when there was no room before."""
        full = self._busy[platform] >= self._most
        self._busy[platform] -= 1
        return full

    def failed(self, platform: str, *, seconds: float | None = None) -> None:
        """It could not be reached; `seconds`: for so long, as it said itself."""
        before = self._away.get(platform)
        pause = seconds or (_FIRST_PAUSE if before is None else min(_LONGEST_PAUSE, before.pause * 2))
        self._away[platform] = _Away(pause, asyncio.get_running_loop().time() + pause)

    def answered(self, platform: str) -> None:
        """It said something, or is known to be back."""
        self._away.pop(platform, None)
