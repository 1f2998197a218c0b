"""What a check of `hermes doctor` gets and returns, and the commands that its advice consists of.

The commands are printed for a person to run as they stand. One that needs more rights begins with sudo.
"""

from __future__ import annotations

import os
import re
import shlex
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hermes_cli.framework import store
from hermes_config import config
from hermes_config.config import Config
from hermes_config.errors import ConfigError, HermesError
from hermes_state import SessionDB

_ASK_THE_DOCTOR = re.compile(r"^hermes doctor (?:says|shows) what to do(?:[.;] ?)?(?:or )?")

Mark = Literal["ok", "warning", "problem"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckContext:
    """One home. `config` is None when it does not load (`config_error`), `db` when it does not open (`store_error`)."""

    home: Path
    config: Config | None
    config_error: ConfigError | None = None
    db: SessionDB | None = None
    store_error: HermesError | None = None
    online: bool = False

    @property
    def database(self) -> Path | None:
        """The SQLite file; None for a server, or when the configuration does not load."""
        if self.config is None:
            return None
        return store.database_file(self.config.database_url() or self.home / "state.db")

    @property
    def has_store(self) -> bool:
        file = self.database
        return self.config is not None and (file is None or file.exists())


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One line of the report."""

    check: str
    mark: Mark
    says: str
    fix: str = ""
    """A command line, to be run as it stands."""
    advice: str = ""
    """What to do where there is no such command, or what else could be done."""
    mend: Callable[[], object] | None = None
    """Does what `fix` does, without losing anything."""


def ok(check: str, says: str) -> CheckResult:
    return CheckResult(check, "ok", says)


Mend = Callable[[], object]


def warning(check: str, says: str, fix: str = "", advice: str = "", mend: Mend | None = None) -> CheckResult:
    return CheckResult(check, "warning", says, fix, advice, mend)


def problem(check: str, says: str, fix: str = "", advice: str = "", mend: Mend | None = None) -> CheckResult:
    return CheckResult(check, "problem", says, fix, advice, mend)


def problem_of(check: str, error: HermesError, fix: str = "") -> CheckResult:
    """An error of ours as a result; its hint is the advice, without the one to run the doctor."""
    where = f" ({error.where})" if error.where else ""
    advice = _ASK_THE_DOCTOR.sub("", error.hint)
    return problem(check, f"{error.what}{where}", fix, f"{advice[:1].upper()}{advice[1:]}")


# -- commands that make a folder usable --------------------------------------------------------------------------------


def to_be_made(home: Path) -> CheckResult:
    """The result where there is no home yet: whether one can be made there."""
    why_not = why_no_home(home)
    if not why_not:
        return warning("home", f"there is no home yet ({home})", "hermes setup")
    says = f"there is no home, and none can be made: {why_not} ({home})"
    fix = "unset HERMES_HOME" if os.environ.get("HERMES_HOME") else to_write(_above(home))
    return problem("home", says, fix, "Or set it to a folder you can write.")


def why_no_home(home: Path) -> str:
    """Why no home can be made there; empty when one can. It is tried, since permissions alone do not tell."""
    try:
        with tempfile.TemporaryDirectory(prefix=".hermes-", dir=_above(home)):
            return ""
    except OSError as error:
        return error.strerror or str(error)


def _above(home: Path) -> Path:
    return next(one for one in home.parents if one.exists())


def to_write(folder: Path) -> str:
    """The command that lets this person read and write there."""
    if os.statvfs(folder).f_flag & os.ST_RDONLY:
        return with_rights(f"mount -o remount,rw {shlex.quote(str(_mount_point(folder)))}")
    if folder.stat().st_uid == os.getuid():
        return f"chmod -R u+rwX {shlex.quote(str(folder))}"
    return with_rights(f"chown -R {os.getuid()} {shlex.quote(str(folder))}")


def to_move(home: Path) -> str:
    """The commands that move a home to a disk of this machine. No Hermes has its database open: it refuses to."""
    place = shlex.quote(str(config.free_name(Path.home() / ".hermes")))
    return f"cp -a {shlex.quote(str(home))} {place} && export HERMES_HOME={place}"


def with_rights(command: str) -> str:
    """The command, with sudo for those who are not root."""
    return command if os.getuid() == 0 else f"sudo {command}"


def _mount_point(folder: Path) -> Path:
    """The mount that holds a folder. The kernel's table knows bind mounts, which look like plain folders."""
    try:
        table = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return next(one for one in (folder, *folder.parents) if one.is_mount())
    mounted = {line.split()[4].encode().decode("unicode_escape") for line in table.splitlines()}
    place = folder.resolve()
    return next((one for one in (place, *place.parents) if str(one) in mounted), place)
