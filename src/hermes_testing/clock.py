"""A clock that stands still until it is moved, forwards or backwards."""

from __future__ import annotations


class Clock:
    """Called like `time.time`; moved by the test that owns it."""

    __slots__ = ("now",)

    def __init__(self, start: float = 1_790_000_000.0) -> None:
        self.now = start

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> float:
        """Move by `seconds` (negative: the machine's clock was set back); returns the new time."""
        self.now += seconds
        return self.now

    def set(self, now: float) -> None:
        self.now = now
