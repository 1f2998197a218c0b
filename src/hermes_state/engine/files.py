"""What we want to know about a database file before and while we open it."""

from __future__ import annotations

import os
from pathlib import Path

import apsw

from hermes_config.home import advice
from hermes_state.errors import NetworkFilesystem, StoreUnavailable

_NETWORK = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "fuse.sshfs", "davfs", "lustre"}

_ELSEWHERE = "Set HERMES_HOME to a folder you can write."


def prepare(path: Path) -> None:
    """Make the folder (0700) and a fresh, private, empty file where there is none; refuse a network file system."""
    folder = path.parent
    if not folder.is_dir():
        try:
            folder.mkdir(parents=True, mode=0o700, exist_ok=True)
        except OSError as error:
            raise StoreUnavailable(
                f"the folder of the database cannot be made: {error.strerror}",
                where=str(folder),
                hint=advice(error) or _ELSEWHERE,
            ) from error
    refuse_network(folder)
    try:
        # Only where no file exists: closing a descriptor of an open database would drop SQLite's locks.
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        pass
    except OSError as error:
        raise StoreUnavailable(
            f"the database file cannot be made: {error.strerror}",
            where=str(path),
            hint=advice(error) or _ELSEWHERE,
        ) from error


def refuse_network(folder: Path) -> None:
    """SQLite's locks and its shared memory do not work across machines; PostgreSQL does."""
    kind = filesystem(folder)
    if kind in _NETWORK:
        raise NetworkFilesystem(
            f"the database would lie on a network file system ({kind}), where SQLite loses data",
            where=str(folder),
            hint="Put the home on a local disk, or set HERMES_DATABASE_URL to a PostgreSQL server.",
        )


def filesystem(folder: Path) -> str:
    """The file system's name, "" when it has a disk of its own or cannot be told."""
    device = folder.stat().st_dev
    if os.major(device) != 0:  # a block device of this machine
        return ""
    wanted = f"{os.major(device)}:{os.minor(device)}"
    try:
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:  # not Linux
        return ""
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        if left.split()[2] == wanted:
            return right.split()[0]
    return ""


def sqlite_version() -> str:
    """Of the SQLite that the store uses: the one inside apsw, not Python's own."""
    return apsw.sqlite_lib_version()


def is_ours(raw: apsw.Connection) -> bool:
    """False for what other programs keep in a database: it must not be changed by merely being opened."""
    tables = {row[0] for row in raw.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    return not tables or "conversations" in tables
