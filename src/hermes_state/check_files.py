"""The files of a store on SQLite: who may read them, and how large the log is. (A store on a network file system is
refused when it is opened.)

Only asks the file system about them by name: to open a database file beside SQLite would drop its locks.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_state import maintenance
from hermes_state.engine.sqlite import SqliteEngine
from hermes_state.findings import Finding

if TYPE_CHECKING:
    from hermes_state.session_db import SessionDB

_PARTS = ("", "-wal", "-shm")


def check_files(db: SessionDB) -> Iterator[Finding]:
    """What is wrong with the files."""
    if not isinstance(db.engine, SqliteEngine):
        return
    path = db.engine.path
    readable = [str(one) for one in _open_to_others(path)]
    if readable:
        what = "files of the store can be read by other users"
        yield Finding("mode", what, "--fix closes them", len(readable), readable[:5], mendable=True)
    size = _log_size(path)
    if size > db.limits.wal_bytes:
        what = f"the write-ahead log has {size:,} bytes, more than wal_bytes allows"
        yield Finding("log", what, "--fix empties it; if it grows again, a reader stays open for long", mendable=True)


def fix_files(db: SessionDB) -> dict[str, int]:
    """Close files to others; empty a log that is too large."""
    if not isinstance(db.engine, SqliteEngine):
        return {}
    mended: dict[str, int] = {}
    for path in _open_to_others(db.engine.path):
        path.chmod(0o700 if path.is_dir() else 0o600)
        mended["mode"] = mended.get("mode", 0) + 1
    if _log_size(db.engine.path) > db.limits.wal_bytes and maintenance.empty_log(db):
        mended["log"] = 1
    return mended


def _open_to_others(path: Path) -> Iterator[Path]:
    if sys.platform == "win32":
        return  # access there is a matter of the folder's owner
    beside = [path.with_name(f"{stem}{end}") for stem in (path.name, f"{path.stem}.search.db") for end in _PARTS]
    for one in (*beside, path.parent / "backups"):
        try:
            status = one.stat()
        except FileNotFoundError:
            continue
        if stat.S_IMODE(status.st_mode) & 0o077 and status.st_uid == os.getuid():
            yield one


def _log_size(path: Path) -> int:
    log = path.with_name(f"{path.name}-wal")
    return log.stat().st_size if log.exists() else 0
