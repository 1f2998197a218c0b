"""When the messages of each block of ids were written.

Ids follow the order of writing, times mostly do too; an import brings old messages under new ids. A search by time
walks the matches by id and needs to know when nothing better can follow: this table says which times can lie below or
above an id.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Iterable, Sequence

from hermes_state.storage.base import Row

BLOCK = 256  # ids a block


def widened(rows: Iterable[Row]) -> list[tuple[int, float, float]]:
    """What rows that begin with id and timestamp add to the table: (block, oldest, newest)."""
    found: dict[int, tuple[float, float]] = {}
    for id_, when, *_ in rows:
        low, high = found.get(id_ // BLOCK, (when, when))
        found[id_ // BLOCK] = (min(low, when), max(high, when))
    return [(number, low, high) for number, (low, high) in found.items()]


class TimeTable:
    """The blocks as (number, oldest, newest), by number."""

    def __init__(self, blocks: Sequence[Row] = ()) -> None:
        self._numbers: list[int] = [block[0] for block in blocks]
        self._oldest: list[float] = [block[1] for block in blocks]
        self._newest: list[float] = [block[2] for block in blocks]
        self._reach: list[float] = list(itertools.accumulate(self._newest, max))

    def followed_by(self, blocks: Sequence[Row]) -> TimeTable:
        """This table with its end from the first of `blocks` on replaced by them."""
        table = TimeTable()
        keep = bisect.bisect_left(self._numbers, blocks[0][0]) if blocks else len(self._numbers)
        table._numbers = self._numbers[:keep] + [block[0] for block in blocks]
        table._oldest = self._oldest[:keep] + [block[1] for block in blocks]
        table._newest = self._newest[:keep] + [block[2] for block in blocks]
        start = self._reach[keep - 1 : keep] if keep else []
        table._reach = (
            self._reach[:keep]
            + list(itertools.accumulate([*start, *(block[2] for block in blocks)], max))[len(start) :]
        )
        return table

    @property
    def last(self) -> int:
        return self._numbers[-1] if self._numbers else 0

    def ends_with(self, blocks: Sequence[Row]) -> bool:
        return len(blocks) == 1 and bool(self._numbers) and blocks[0] == (
            self._numbers[-1], self._oldest[-1], self._newest[-1]
        )  # fmt: skip

    def newest_below(self, id_: int) -> float:
        """No message with a smaller id is newer than this."""
        at = bisect.bisect_right(self._numbers, (id_ - 1) // BLOCK)
        return self._reach[at - 1] if at else float("-inf")

    def oldest_above(self, id_: int) -> float:
        """No message with a larger id is older than this."""
        return min(self._oldest[bisect.bisect_left(self._numbers, (id_ + 1) // BLOCK) :], default=float("inf"))

    def ids_between(self, since: float, until: float) -> tuple[int, int]:
        """The ids between which every message of that time lies; (1, 0) when there is none."""
        hits = [
            number
            for number, low, high in zip(self._numbers, self._oldest, self._newest, strict=True)
            if high >= since and low <= until
        ]
        return (hits[0] * BLOCK, hits[-1] * BLOCK + BLOCK - 1) if hits else (1, 0)


class CachedTimes:
    """The table of an index to which ids are only ever added at the end, kept between searches."""

    def __init__(self) -> None:
        self._kept = ("", TimeTable())

    def current(self, generation: str, read_from: Callable[[int], Sequence[Row]]) -> TimeTable:
        """No lock: tables are not changed once made, and two threads at worst read the same blocks."""
        kept_for, table = self._kept
        if kept_for != generation:
            table = TimeTable()
        blocks = read_from(table.last)
        if not table.ends_with(blocks):
            table = table.followed_by(blocks)
            self._kept = (generation, table)
        return table
