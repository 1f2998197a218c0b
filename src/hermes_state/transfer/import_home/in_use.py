"""Which process uses a home now, and whether hermes-agent is installed beside Hermes.

A home is in use when its `gateway.pid` names a living process of hermes-agent, when somebody holds its `gateway.lock`,
or when another process has its database open. The last check reads /proc and is a best effort: other users' processes
are invisible, and other systems have no /proc. Reading is safe in any case: if the source changes while it is read, the
import is refused afterwards.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import sys
from pathlib import Path

from hermes_config.errors import HermesError
from hermes_state.errors import StateError

_DISTRIBUTION = "hermes-agent"
_RECORD = re.compile(r"hermes[-_.]agent-([^-]+)(?:-[^/]*)?\.(?:dist|egg)-info", re.IGNORECASE)


class HomeInUse(StateError):
    """Another program is using this home; nothing was changed."""


class HermesAgentInstalled(HermesError):
    """hermes-agent is installed in the same environment."""


def hermes_agent_installed() -> str | None:
    """The version of hermes-agent in this Python environment; None when it is not installed.

    Read from the names of the folders in which installers record packages: `importlib.metadata` reads the same, and
    costs every command that opens a store a tenth of its time.
    """
    for folder in sys.path:
        try:
            names = os.listdir(folder or ".")  # noqa: PTH208 - names are all that is wanted
        except OSError:  # some entries of the path are no folders
            continue
        for name in names:
            found = _RECORD.fullmatch(name)
            if found is not None:
                return found[1]
    return None


def refuse_hermes_agent_installed() -> None:
    """Refuse to run beside hermes-agent: both have packages of the same names, and one would run the other's code."""
    version = hermes_agent_installed()
    if version is not None:
        raise HermesAgentInstalled(
            f"{_DISTRIBUTION} {version} is installed in the same Python environment and has packages of the same names",
            hint="Install Hermes into its own environment, for example with pipx or python -m venv.",
        )


def refuse_in_use(home: Path) -> None:
    holder = describe_user(home)
    if holder is not None:
        raise HomeInUse(
            f"another program is using this home ({holder}); nothing was changed",
            where=str(home),
            hint="Stop it and try again.",
        )


def describe_user(home: Path) -> str | None:
    """A few words about the process that uses `home`; None when there is none."""
    return _by_pid_file(home / "gateway.pid") or _by_lock(home / "gateway.lock") or _by_open_files(home / "state.db")


def _by_pid_file(file: Path) -> str | None:
    try:
        noted = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    pid = noted.get("pid") if isinstance(noted, dict) else noted
    if not isinstance(pid, int) or isinstance(pid, bool) or pid <= 0 or pid == os.getpid() or not _alive(pid):
        return None
    started = noted.get("start_time") if isinstance(noted, dict) else None
    if _is_another_program(pid, started):
        return None  # another process has the number now
    return f"its gateway runs as process {pid}"


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _is_another_program(pid: int, started: object) -> bool:
    """True only when we can see that the process is not the one that wrote the file."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    except OSError:
        return False
    if b"hermes" in command or b"gateway" in command:
        return False
    return str(started) != fields[19]  # field 22 of proc(5): its start time


def _by_lock(file: Path) -> str | None:
    try:
        descriptor = os.open(file, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return f"{file.name} is locked"
    except OSError:
        return None  # a file system without locks
    finally:
        os.close(descriptor)
    return None


def _by_open_files(database: Path) -> str | None:
    wanted = set()
    for file in (database, Path(f"{database}-wal")):
        try:
            status = file.stat()
        except OSError:
            continue
        wanted.add((status.st_dev, status.st_ino))
    if not wanted or not Path("/proc/self/fd").is_dir():
        return None
    for process in Path("/proc").iterdir():
        if process.name.isdecimal() and int(process.name) != os.getpid() and _has_open(process / "fd", wanted):
            return f"process {process.name} has {database.name} open"
    return None


def _has_open(descriptors: Path, wanted: set[tuple[int, int]]) -> bool:
    try:
        names = list(descriptors.iterdir())
    except OSError:  # it ended, or it belongs to another user
        return False
    for name in names:
        try:
            status = name.stat()
        except OSError:
            continue
        if (status.st_dev, status.st_ino) in wanted:
            return True
    return False
