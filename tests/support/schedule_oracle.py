"""Which instants a cron expression means, found without any cron library: by looking at every minute.

`Days` lists the minutes around a change of the clock once; `instants` then asks each of them. Generated expressions
(`expressions`) and the changes of the clock in tzdata (`transitions`) come from here, too.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import NamedTuple
from zoneinfo import ZoneInfo, available_timezones

_MINUTE = 60
FIRST_YEAR, LAST_YEAR = 2026, 2037


class Transition(NamedTuple):
    """A change of a zone's clock: at `instant`, from one offset to the other (seconds)."""

    instant: int
    before: int
    after: int
    zone: str


def transitions(first: int = FIRST_YEAR, last: int = LAST_YEAR) -> list[Transition]:
    """Every change of an offset in tzdata between these years; of zones that change alike, one."""
    found: dict[tuple[int, int, int], Transition] = {}
    for name in sorted(available_timezones()):
        zone = ZoneInfo(name)
        at, end = (int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) for year in (first, last + 1))
        offset = _offset(zone, at)
        while at < end:
            then = min(at + 86_400, end)
            if (new := _offset(zone, then)) != offset:
                instant = _change(zone, at, then)
                found.setdefault((instant, offset, new), Transition(instant, offset, new, name))
                offset = new
            at = then
    return sorted(found.values())


def _offset(zone: ZoneInfo, at: int) -> int:
    moved = datetime.fromtimestamp(at, zone).utcoffset()
    assert moved is not None
    return int(moved.total_seconds())


def _change(zone: ZoneInfo, low: int, high: int) -> int:
    before = _offset(zone, low)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _offset(zone, middle) == before else (low, middle)
    return high


class Days:
    """Every minute of the hours around an instant, as the zone's clock shows it."""

    def __init__(self, zone: str, around: int, hours: int = 48) -> None:
        self.zone = ZoneInfo(zone)
        self.start = (around - hours * 3_600) // _MINUTE * _MINUTE
        self.end = self.start + 2 * hours * 3_600

    @cached_property
    def minutes(self) -> list[tuple[int, datetime]]:
        """(instant, wall clock) of real minutes."""
        return [(at, datetime.fromtimestamp(at, self.zone)) for at in range(self.start, self.end, _MINUTE)]

    @cached_property
    def shown(self) -> list[tuple[int, datetime]]:
        """(instant, wall clock) of every minute that a clock without changes would show: skipped ones happen at the
        first minute after the gap, repeated ones the first time."""
        first = self.minutes[0][1].replace(tzinfo=None)
        last = self.minutes[-1][1].replace(tzinfo=None)
        real: dict[datetime, int] = {}
        for at, wall in self.minutes:
            real.setdefault(wall.replace(tzinfo=None, fold=0), at)
        found, wall, pending = [], first, []
        while wall <= last:
            at = real.get(wall)
            pending.append(wall)
            if at is not None:
                found += [(at, one) for one in pending]
                pending = []
            wall += timedelta(minutes=1)
        return found

    def instants(self, expression: str) -> list[int]:
        """The instants of the expression within these days."""
        minute, hour, day, month, weekday = expression.split()
        fields = (
            _set(minute, 0, 59), _set(hour, 0, 23), _set(day, 1, 31), _set(month, 1, 12),
            {number % 7 for number in _set(weekday, 0, 7)},
        )  # fmt: skip
        either = not day.startswith("*") and not weekday.startswith("*")
        by_clock = not minute.startswith("*") and not hour.startswith("*")
        rows = self._by_clock if by_clock else self._by_time
        found = (one for h in fields[1] for m in fields[0] for one in rows.get((h, m), ()))
        return sorted({at for at, wall in found if _fits(wall, fields[2:], either)})

    @cached_property
    def _by_time(self) -> dict[tuple[int, int], list[tuple[int, datetime]]]:
        return _by_hour_and_minute(self.minutes)

    @cached_property
    def _by_clock(self) -> dict[tuple[int, int], list[tuple[int, datetime]]]:
        return _by_hour_and_minute(self.shown)


def _by_hour_and_minute(rows: list[tuple[int, datetime]]) -> dict[tuple[int, int], list[tuple[int, datetime]]]:
    found: dict[tuple[int, int], list[tuple[int, datetime]]] = {}
    for at, wall in rows:
        found.setdefault((wall.hour, wall.minute), []).append((at, wall))
    return found


def _fits(wall: datetime, fields: tuple[set[int], ...], either: bool) -> bool:
    days, months, weekdays = fields
    if wall.month not in months:
        return False
    on_day, on_weekday = wall.day in days, wall.isoweekday() % 7 in weekdays
    return on_day or on_weekday if either else on_day and on_weekday


def _set(field: str, low: int, high: int) -> set[int]:
    found: set[int] = set()
    for term in field.split(","):
        span, _, step = term.partition("/")
        first, _, last = ("*", "", "") if span == "*" else span.partition("-")
        start = low if first == "*" else int(first)
        end = high if first == "*" or (step and not last) else int(last or first)
        found |= set(range(start, end + 1, int(step or 1)))
    return found


def expressions(count: int, seed: int) -> list[str]:
    """Cron expressions as people write them, and some that nobody writes."""
    chance = random.Random(seed)
    return [_expression(chance) for _ in range(count)]


def _expression(chance: random.Random) -> str:
    minute = chance.choice([
        str(chance.randrange(60)), "0", "30", "*", "*/15", "*/7", "5,35", "10-20/5", f"{chance.randrange(30)}-59/10",
    ])  # fmt: skip
    hour = chance.choice([
        str(chance.randrange(24)), str(chance.randrange(4)), "*", "*/2", "*/5", "1-4", "0,2,3", "2", "3", "22-23",
    ])  # fmt: skip
    days = ["* * 0", "* * 1-5", "* * 6,0", "1-15 * *", "*/2 * *", "* 3,10,11 *", "13 * 5"]
    rest = chance.choice(["* * *"] * 6 + days)
    return f"{minute} {hour} {rest}"
