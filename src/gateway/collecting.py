"""When cyclic garbage is looked for.

A full collection looks at everything that lives while nothing else runs: a fifth of a second with a thousand turns in
the middle of a question. Python begins one whenever what survived has grown by a quarter, so a crowd that arrives sets
off one after the other, at the worst moment. Hence three rules in a gateway's process:

- What is there when it is ready (modules, tables, the configuration) stays for good and is not looked at again.
- Young objects are collected as ever. Nearly all that a turn leaves behind goes before that, by reference counts.
- A full collection comes when one is due by Python's own measure and little is being made, or in the end in any case:
  what cannot be freed otherwise is bounded by `_MOST` young generations.

Should the watcher end, Python's own rule holds again from `_PYTHONS` on.
"""

from __future__ import annotations

import asyncio
import gc

_YOUNG = (2_000, 10)
"""Objects made before the youngest are looked at; how often that, before their elders are."""
_DUE = 10
"""How many times those elders, before all are."""
_MOST, _PYTHONS = 100, 200
_LOOK_SECONDS = 1.0
_QUIET = 1
"""Collections of the youngest between two looks."""


async def watch() -> None:
    """To be called when the process is ready: the rules hold from then on, until it is cancelled."""
    gc.freeze()
    gc.set_threshold(*_YOUNG, _PYTHONS)
    before = _made()
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        made, waiting = _made(), gc.get_count()[2]
        if waiting >= _MOST or (waiting >= _DUE and made - before <= _QUIET):
            gc.collect()
        before = made


def _made() -> int:
    """Grows by one with every `_YOUNG[0]` objects or so."""
    return int(gc.get_stats()[0]["collections"])
