"""Checks of the machine and the home's folder: SQLite, hermes-agent, folder, files, clock, disk.

Files are never opened: closing a descriptor of a database would drop SQLite's locks.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import stat
import sys
import time
import zoneinfo
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from gateway.platforms import registry
from hermes_cli.doctor import fixes
from hermes_cli.doctor.fixes import CheckContext, CheckResult, ok, problem, warning
from hermes_cli.framework import text
from hermes_config import config
from hermes_config.errors import HermesError
from hermes_config.version import installed_from
from hermes_state.storage.sqlite import refuse_network, sqlite_version
from hermes_state.transfer.import_home import in_use

# 3.51.3 fixes a rare way in which a checkpoint could lose a commit that another process had just made.
_SQLITE = (3, 51, 3)
_EARLIEST = 1_735_689_600  # 2025-01-01: an earlier time means a wrong clock
_LITTLE = 1_000_000_000
_TOO_LITTLE = 100_000_000
# Files with conversations or keys. The private folder protects all others.
_PRIVATE = ("state.db*", "state.search.db*", "backups", "logs", "media", "sessions", "gateway*")


def sqlite(context: CheckContext) -> Iterator[CheckResult]:
    version = sqlite_version()
    if tuple(map(int, version.split("."))) >= _SQLITE:
        yield ok("sqlite", f"SQLite {version}")
        return
    least = ".".join(map(str, _SQLITE))
    fix = f"{shlex.quote(sys.executable)} -m pip install --upgrade apsw"
    yield problem("sqlite", f"SQLite {version} can lose a commit; Hermes needs {least} or newer", fix)


def _extras() -> str:
    """Return the extras of a full installation."""
    return ",".join(
        sorted({"postgres", "sandbox", "tui", *filter(None, (one.extra for one in registry.known().values()))})
    )


def other_version(context: CheckContext) -> Iterator[CheckResult]:
    version = in_use.hermes_agent_installed()
    if version is None:
        yield ok("hermes-agent", "not installed in this Python environment")
        return
    says = f"hermes-agent {version} is installed in this Python environment, and its packages have the same names"
    fix = f"pipx install --force {shlex.quote(f'{installed_from()}[{_extras()}]')}"
    yield problem("hermes-agent", says, fix, "Then use that hermes; the other environment can stay unchanged.")


def folder(context: CheckContext) -> Iterator[CheckResult]:
    home = context.home
    quoted = shlex.quote(str(home))
    if not home.exists():
        yield fixes.to_be_made(home)
    elif not home.is_dir():
        aside = shlex.quote(str(config.free_name(home.with_name(f"{home.name}.aside"))))
        says = f"the home is not a folder ({home})"
        yield problem("home", says, f"mv {quoted} {aside}", "Or set HERMES_HOME to a folder.")
    elif not os.access(home, os.R_OK | os.W_OK | os.X_OK):
        yield problem("home", f"the home cannot be written ({home})", *fixes.to_write(home))
    elif _is_open(home):
        says = f"other users can read the home ({home})"
        yield problem("home", says, f"chmod 700 {quoted}", repair=lambda: home.chmod(0o700))
    else:
        yield ok("home", str(home))


def files(context: CheckContext) -> Iterator[CheckResult]:
    """Check that only their owner can read files with conversations or keys."""
    if not context.home.is_dir() or not os.access(context.home, os.R_OK | os.X_OK):
        return  # the check of the folder reports it
    secret = context.home / ".env"
    private = sorted(one for pattern in _PRIVATE for one in context.home.glob(pattern))
    ours = [one for one in (context.home / "config.yaml", secret, *private) if one.exists()]
    if closed := [one for one in ours if not os.access(one, os.R_OK | os.W_OK)]:
        says = f"you cannot read and write {', '.join(one.name for one in closed[:3])}"
        yield problem("files", says, *fixes.to_write(context.home, closed))
        return
    for check, which in (("env-file", [secret]), ("files", private)):
        readable = [one for one in which if _is_open(one)]
        if not readable:
            yield ok(check, "only you have access" if any(one.exists() for one in which) else "not made yet")
            continue
        names = ", ".join(one.name for one in readable[:3]) + (" …" if len(readable) > 3 else "")
        quoted = " ".join(shlex.quote(str(one)) for one in readable)
        yield problem(
            check, f"other users can read {names}", f"chmod go-rwx {quoted}", repair=partial(_close, readable)
        )


def _is_open(path: Path) -> bool:
    try:
        status = path.lstat()
    except FileNotFoundError:
        return False
    kind = stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)
    return kind and bool(stat.S_IMODE(status.st_mode) & 0o077)


def _close(paths: list[Path]) -> None:
    for path in paths:
        path.chmod(stat.S_IMODE(path.stat().st_mode) & 0o700)


def file_system(context: CheckContext) -> Iterator[CheckResult]:
    where = context.database.parent if context.database else context.home
    if context.config is not None and context.database is None:
        yield ok("file-system", "the database is on a server")
        return
    if not where.is_dir() or not os.access(where, os.X_OK):
        return
    try:
        refuse_network(where)
    except HermesError as error:
        advice = f"Keep that HERMES_HOME in your shell's profile. {error.hint}"
        yield problem("file-system", f"{error.what} ({where})", fixes.to_move(context.home), advice)
        return
    yield ok("file-system", "the database is on a local disk")


def disk(context: CheckContext) -> Iterator[CheckResult]:
    folder = next(one for one in (context.home, *context.home.parents) if one.exists())
    total, _used, free = shutil.disk_usage(folder)
    if not total:
        return  # not a disk at all (/proc): the check of the folder reports it
    says = f"{text.size(free)} free on the disk of the home"
    if free >= _LITTLE:
        yield ok("disk", says)
        return
    file = context.database  # a vacuum writes the database anew before it frees anything
    fix = "hermes state maintain --vacuum" if file and file.exists() and file.stat().st_size < free else ""
    advice = "This command frees deleted space; or delete files on that disk." if fix else "Delete files on that disk."
    yield CheckResult("disk", "problem" if free < _TOO_LITTLE else "warning", f"only {says}", fix, advice)


def clock(context: CheckContext) -> Iterator[CheckResult]:
    now = time.time()
    zone = os.environ.get("TZ", "")
    shown = time.strftime("%Y-%m-%d %H:%M %Z", time.localtime(now))
    if now < _EARLIEST:
        fix = fixes.with_rights("timedatectl set-ntp true")
        yield problem("clock", f"the clock is wrong: it shows {shown}", fix)
    elif zone and not _zone_exists(zone.removeprefix(":")):
        says = f"TZ={zone} is not a time zone, so times are shown in UTC"
        yield warning("clock", says, "unset TZ", "Or set it to a zone such as Europe/Lisbon.")
    else:
        yield ok("clock", shown)


def _zone_exists(name: str) -> bool:
    if name.startswith("/"):
        return Path(name).exists()
    try:
        zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return bool(re.fullmatch(r"[A-Za-z<][A-Za-z0-9<>+-]*[0-9][A-Za-z0-9,:./<>+-]*", name))  # POSIX: EST5EDT
    return True
