"""Brings a home of hermes-agent over, and stands still when it is half through: `import_and_stop.py ADDRESS HOME`."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from tests.support.processes import say

from hermes_state.session_db import SessionDB
from hermes_state.transfer.import_home import scan, source, write


def stop_at_half(done: int, total: int | None) -> None:
    if total is not None and done >= total / 2:
        say("half")
        time.sleep(60)


home = source.find(Path(sys.argv[2]))
assert home.database is not None
write.write_home(SessionDB(sys.argv[1]), scan.scan_home(home, source.HomeDatabase(home.database)), tick=stop_at_half)
