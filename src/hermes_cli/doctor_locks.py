"""What `hermes doctor` looks at around the database's lock: can it be written now, and if not, who is in the way.

SQLite lets one program write at a time. One that began and does not end keeps everybody else waiting, while reading
goes on; the kernel knows which process that is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from hermes_cli.doctor_base import Patient, Seen, ok
from hermes_state.errors import StateError, StoreBusy

_PATIENCE_MS = 2_000  # a program that is well needs a fraction of that
_WRITE_LOCK = "120"  # the byte of the -shm file that SQLite locks for writing
_TABLE = Path("/proc/locks")


def writing(patient: Patient) -> Iterator[Seen]:
    from hermes_state import SessionDB

    if patient.config is None or patient.database is None or not patient.has_store:
        return
    limits = replace(patient.config.limits, write_wait_ms=_PATIENCE_MS)
    try:
        db = SessionDB(patient.database, limits=limits)
        try:
            db.engine.write(lambda _: None)
        finally:
            db.close()
    except StoreBusy:
        yield _held(patient.database)
    except StateError:
        return  # told by the check of the database
    else:
        yield ok("writing", "the database can be written")


def _held(database: Path) -> Seen:
    says = f"another program holds the database and lets nobody write ({database})"
    pid = _holder(database)
    if pid is None:
        return Seen(check="writing", mark="problem", says=says, advice=f"fuser -v {database} shows which; end it.")
    name = Path(f"/proc/{pid}/comm")
    called = name.read_text(encoding="utf-8", errors="replace").strip() if name.exists() else "a program"
    says = f"{says}: {called}, process {pid}"
    advice = "What it had not yet committed is not stored then; close it by its own means if you can."
    return Seen(check="writing", mark="problem", says=says, fix=f"kill {pid}", advice=advice)


def _holder(database: Path) -> int | None:
    """The process that the kernel names as the writer; None where it names none."""
    shared = database.with_name(f"{database.name}-shm")
    if not _TABLE.exists() or not shared.exists():
        return None
    ours = f":{shared.stat().st_ino}"
    for line in _TABLE.read_text(encoding="ascii", errors="replace").splitlines():
        words = line.split()
        if len(words) == 8 and words[3] == "WRITE" and words[5].endswith(ours) and words[6] == _WRITE_LOCK:
            return int(words[4]) if int(words[4]) > 0 else None
    return None
