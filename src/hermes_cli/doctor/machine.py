"""What `hermes doctor` looks at on the machine and in the home: SQLite, neighbours, folder, files, clock, disk.

Files are only asked about by name, never opened: closing a descriptor of a database would drop SQLite's locks.
"""

from __future__ import annotations

import os
import shlex
import shutil
import stat
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from hermes_cli.doctor import fixes
from hermes_cli.doctor.fixes import Patient, Seen, ok
from hermes_cli.framework import text
from hermes_config import config
from hermes_config.errors import HermesError

# 3.51.3 mends a rare way in which a checkpoint could lose a commit that another process had just made.
_SQLITE = (3, 51, 3)
_EARLIEST = 1_735_689_600  # 2025-01-01: no clock that is right shows less
_LITTLE = 1_000_000_000
_TOO_LITTLE = 100_000_000
# What holds conversations or keys. Other files of a home may be anybody's; the closed folder protects them.
_PRIVATE = ("state.db*", "state.search.db*", "backups", "logs", "media", "sessions", "gateway*", "beside")


def sqlite(patient: Patient) -> Iterator[Seen]:
    from hermes_state.storage.sqlite import sqlite_version

    version = sqlite_version()
    if tuple(map(int, version.split("."))) >= _SQLITE:
        yield ok("sqlite", f"SQLite {version}")
        return
    least = ".".join(map(str, _SQLITE))
    yield Seen(
        check="sqlite", mark="problem", says=f"SQLite {version} is older than {least} and can lose a commit",
        fix=f"{shlex.quote(sys.executable)} -m pip install --upgrade apsw",
    )  # fmt: skip


def reference(patient: Patient) -> Iterator[Seen]:
    from hermes_state.transfer.import_home import in_use

    version = in_use.hermes_agent_installed()
    if version is None:
        yield ok("reference", "not installed in this Python environment")
        return
    yield Seen(
        check="reference", mark="problem",
        says=f"the reference ({version}) is installed in this Python environment and has packages of the same names",
        fix=f"pipx install --force {shlex.quote(f'{fixes.origin()}[postgres,sandbox,telegram,tui]')}",
        advice="Then use that hermes; the other environment can stay as it is.",
    )  # fmt: skip


def folder(patient: Patient) -> Iterator[Seen]:
    home = patient.home
    quoted = shlex.quote(str(home))
    if not home.exists():
        yield fixes.to_be_made(home)
        return
    if not home.is_dir():
        aside = shlex.quote(str(config.free_name(home.with_name(f"{home.name}.aside"))))
        says, advice = f"the home is not a folder ({home})", "Or set HERMES_HOME to a folder."
        yield Seen(check="home", mark="problem", says=says, fix=f"mv {quoted} {aside}", advice=advice)
        return
    if not os.access(home, os.R_OK | os.W_OK | os.X_OK):
        says, fix = f"the home cannot be written ({home})", fixes.to_write(home)
        yield Seen(check="home", mark="problem", says=says, fix=fix, advice="Or set HERMES_HOME to a folder of yours.")
        return
    if _is_open(home):
        yield Seen(
            check="home", mark="problem", says=f"other users can look into the home ({home})",
            fix=f"chmod 700 {quoted}", mend=lambda: home.chmod(0o700),
        )  # fmt: skip
        return
    yield ok("home", str(home))


def files(patient: Patient) -> Iterator[Seen]:
    """What holds conversations or keys is for its owner alone."""
    if not patient.home.is_dir() or not os.access(patient.home, os.R_OK | os.X_OK):
        return  # told by the check of the folder
    secret = patient.home / ".env"
    private = sorted(one for pattern in _PRIVATE for one in patient.home.glob(pattern))
    ours = [one for one in (patient.home / "config.yaml", secret, *private) if one.exists()]
    if closed := [one for one in ours if not os.access(one, os.R_OK | os.W_OK)]:
        says = f"you cannot read and write {', '.join(one.name for one in closed[:3])}"
        yield Seen(check="files", mark="problem", says=says, fix=fixes.to_write(patient.home))
        return
    for check, which in (("env-file", [secret]), ("files", private)):
        readable = [one for one in which if _is_open(one)]
        if not readable:
            yield ok(check, "readable by you alone" if any(one.exists() for one in which) else "there is none yet")
            continue
        names = ", ".join(one.name for one in readable[:3]) + (" …" if len(readable) > 3 else "")
        quoted = " ".join(shlex.quote(str(one)) for one in readable)
        yield Seen(
            check=check, mark="problem", says=f"other users can read {names}", fix=f"chmod go-rwx {quoted}",
            mend=partial(_close, readable),
        )  # fmt: skip


def _is_open(path: Path) -> bool:
    if sys.platform == "win32":
        return False  # access there is a matter of the folder's owner
    try:
        status = path.lstat()
    except FileNotFoundError:
        return False
    kind = stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)
    return kind and bool(stat.S_IMODE(status.st_mode) & 0o077)


def _close(paths: list[Path]) -> None:
    for path in paths:
        path.chmod(stat.S_IMODE(path.stat().st_mode) & 0o700)


def file_system(patient: Patient) -> Iterator[Seen]:
    from hermes_state.storage import sqlite as database_files

    where = patient.database.parent if patient.database else patient.home
    if patient.config is not None and patient.database is None:
        yield ok("file-system", "the database is on a server")
        return
    if not where.is_dir() or not os.access(where, os.X_OK):
        return
    try:
        database_files.refuse_network(where)
    except HermesError as error:
        fix = fixes.to_move(patient.home)
        advice = f"Keep that HERMES_HOME in your shell's profile. {error.hint}"
        yield Seen(check="file-system", mark="problem", says=f"{error.what} ({where})", fix=fix, advice=advice)
        return
    yield ok("file-system", "the database lies on a disk of this machine")


def disk(patient: Patient) -> Iterator[Seen]:
    place = next(one for one in (patient.home, *patient.home.parents) if one.exists())
    total, _used, free = shutil.disk_usage(place)
    if not total:
        return  # no disk at all (/proc): the check of the folder tells that no home can be there
    says = f"{text.size(free)} free where the home is"
    if free >= _LITTLE:
        yield ok("disk", says)
        return
    fix = "hermes state maintain --vacuum" if patient.has_store else ""
    yield Seen(
        check="disk", mark="problem" if free < _TOO_LITTLE else "warning", says=f"only {says}", fix=fix,
        advice="It gives back what was deleted; or make room on that disk." if fix else "Make room on that disk.",
    )  # fmt: skip


def clock(patient: Patient) -> Iterator[Seen]:
    now = time.time()
    zone = os.environ.get("TZ", "")
    shown = time.strftime("%Y-%m-%d %H:%M %Z", time.localtime(now))
    if now < _EARLIEST:
        yield Seen(
            check="clock",
            mark="problem",
            says=f"the clock is wrong: it shows {shown}",
            fix=fixes.with_rights("timedatectl set-ntp true"),
        )
    elif zone and not _zone_exists(zone.removeprefix(":")):
        says = f"TZ={zone} names no time zone, so times are shown in UTC"
        yield Seen(
            check="clock", mark="warning", says=says, fix="unset TZ", advice="Or set it to one like Europe/Lisbon."
        )
    else:
        yield ok("clock", shown)


def _zone_exists(name: str) -> bool:
    import re
    import zoneinfo

    if name.startswith("/"):
        return Path(name).exists()
    try:
        zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return bool(re.fullmatch(r"[A-Za-z<][A-Za-z0-9<>+-]*[0-9][A-Za-z0-9,:./<>+-]*", name))  # POSIX: EST5EDT
    return True
