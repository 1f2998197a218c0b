"""A whole gateway on a store, a home of its own, and a clock that another process sets: STORE HOME CLOCK.

Its platform is in memory; its model is the demo model. It runs until it is killed.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from tests.support.gateways import PretendGateway

from gateway import scheduler
from hermes_state import SessionDB


async def main(store: str, home: Path, clock: Path) -> None:
    kept = os.open(clock, os.O_RDONLY)
    db = SessionDB(store, clock=lambda: float(os.pread(kept, 32, 0)))
    assert scheduler.watch.__kwdefaults__ is not None
    scheduler.watch.__kwdefaults__["seconds"] = 0.02  # the clock is set by hand, and nobody waits for two seconds
    async with PretendGateway(db, home, streaming={"enabled": False}):
        print("ready", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    os.environ["HERMES_HOME"] = sys.argv[2]
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])))
