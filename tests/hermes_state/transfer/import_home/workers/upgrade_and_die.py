"""Upgrades copies of a home and is killed at its 1st, 2nd, 3rd … point: `upgrade_and_die.py HOME SCRATCH STRIDE`.

After each kill the home must be the old one, whole and openable by hermes-agent, or the new one with the backup
beside it; and a second run must bring it to its end. Says one line a complaint, then how many points there are.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import sys
from pathlib import Path

from tests.support.kill_points import Points
from tests.support.processes import say

from hermes_state.transfer.import_home import upgrade as upgrading

_END = 15
_MOVES = ("os.rename", "os.mkdir", "os.remove", "os.rmdir")


def upgrade(home: Path, fatal: int, out: int) -> None:
    """In a child: what it does to databases and to names in the folder is a point."""
    points = Points(fatal)
    points.watch()
    sys.addaudithook(lambda event, _: points.reached(event) if event in _MOVES else None)
    upgrading.upgrade(home)
    os.write(out, str(points.count).encode())


def in_child(home: Path, fatal: int) -> int:
    """How many points it passed; 0 when it was killed."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            upgrade(home, fatal, writing)
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    said = os.read(reading, 100)
    os.close(reading)
    _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status) and os.WEXITSTATUS(status):
        say(f"point {fatal}: the upgrade failed")
    return int(said or 0)


def content(database: Path) -> tuple[int, str, int, int]:
    """Version, integrity, sessions, messages: as hermes-agent's own SQLite reads them."""
    with sqlite3.connect(database) as db:
        asked = ("SELECT version FROM schema_version", "SELECT count(*) FROM sessions", "SELECT count(*) FROM messages")
        version, sessions, messages = (db.execute(sql).fetchone()[0] for sql in asked)
        integrity = db.execute("PRAGMA integrity_check").fetchone()[0]
    db.close()
    return version, integrity, sessions, messages


def judge(home: Path, fatal: int, before: tuple[int, str, int, int]) -> bool:
    """True when the home is the new one."""
    found = content(home / "state.db")
    if found[1:] != before[1:]:
        say(f"point {fatal}: {found} instead of {before}")
    if found[0] == before[0]:
        return False
    backups = list((home / "backups").glob("state-before-upgrade-*.db"))
    if not any(content(backup) == before for backup in backups):
        say(f"point {fatal}: the new database without a backup")
    return True


original, scratch, stride = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
home = scratch / "home"
shutil.copytree(original, scratch / "looked-at")  # looking moves the log into the file
before = content(scratch / "looked-at" / "state.db")
shutil.copytree(original, home)
total = in_child(home, 0)
old = new = 0
# The last ones are those around the rename.
for fatal in sorted({*range(1, total + 1, stride), *range(total - _END, total + 1)}):
    shutil.rmtree(home)
    shutil.copytree(original, home)
    in_child(home, fatal)
    if judge(home, fatal, before):
        new += 1
        continue
    old += 1
    if fatal % (4 * stride) == 1:
        in_child(home, 0)
        if not judge(home, fatal, before) or list(home.glob(".upgrade-*")):
            say(f"point {fatal}: a second run did not finish it")
say(f"{total} points; killed at {old + new} of them: {old} times the old home, {new} times the new one")
