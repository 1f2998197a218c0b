"""When cyclic garbage is looked for.

A full collection looks at everything that lives while nothing else runs: a quarter of a second with a thousand turns in
the middle of a question. Python begins one whenever what survived has grown by a quarter, so a crowd that arrives sets
off one after the other, at the worst moment. Hence three rules in a gateway's process:

- What is there when it is ready (modules, tables, the configuration) stays for good and is not looked at again.
- Young objects are collected as ever. Nearly all that a turn leaves behind goes before that, by reference counts.
- A full collection comes when one is due by Python's own measure, little is being made and few turns run, which is when
  it costs least; or in the end in any case: what cannot be freed otherwise is bounded by `_MOST` young generations.

Should the watcher end, Python's own rule holds again from `_PYTHONS` on.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable

_YOUNG = (2_000, 10)
"""Objects made before the youngest are looked at; how often that, before their elders are."""
_DUE = 10
"""How many times those elders, before all are."""
_MOST, _PYTHONS = 100, 200
_LOOK_SECONDS = 1.0
_QUIET = 1
"""Collections of the youngest between two looks."""
_FEW_TURNS = 100


async def watch(turns: Callable[[], int]) -> None:
    """To be called when the process is ready: the rules hold from then on. `turns`: how many run now."""
    gc.freeze()
    gc.set_threshold(*_YOUNG, _PYTHONS)
    before = _made()
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        made, waiting = _made(), gc.get_count()[2]
        at_ease = made - before <= _QUIET and turns() <= _FEW_TURNS
        if waiting >= _MOST or (waiting >= _DUE and at_ease):
            gc.collect()
        before = made


def _made() -> int:
    """Grows by one with every `_YOUNG[0]` objects or so."""
    return int(gc.get_stats()[0]["collections"])
