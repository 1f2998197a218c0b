"""Input and result of a `hermes doctor` check, and the shell commands that it recommends.

The commands are printed for a person to copy. A command that needs root rights begins with sudo.
"""

from __future__ import annotations

import os
import re
import shlex
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hermes_cli.framework import store
from hermes_config import config
from hermes_config.config import Config
from hermes_config.errors import ConfigError, HermesError
from hermes_config.home import owner_of
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
    """A command line to copy and run."""
    advice: str = ""
    """What to do without such a command, or an alternative to it."""
    repair: Callable[[], object] | None = None
    """Runs the fix without losing data."""


def ok(check: str, says: str) -> CheckResult:
    return CheckResult(check, "ok", says)


Repair = Callable[[], object]


def warning(check: str, says: str, fix: str = "", advice: str = "", repair: Repair | None = None) -> CheckResult:
    return CheckResult(check, "warning", says, fix, advice, repair)


def problem(check: str, says: str, fix: str = "", advice: str = "", repair: Repair | None = None) -> CheckResult:
    return CheckResult(check, "problem", says, fix, advice, repair)


def problem_of(check: str, error: HermesError) -> CheckResult:
    """Turn a Hermes error into a result; its hint becomes the advice, without "run the doctor"."""
    where = f" ({error.where})" if error.where else ""
    advice = _ASK_THE_DOCTOR.sub("", error.hint)
    if not advice.startswith("hermes "):  # a command stays as it is typed
        advice = f"{advice[:1].upper()}{advice[1:]}"
    return problem(check, f"{error.what}{where}", advice=advice)


# -- commands that make a folder usable --------------------------------------------------------------------------------


def to_be_made(home: Path) -> CheckResult:
    """Report a missing home, and whether it can be created."""
    why_not = why_no_home(home)
    if not why_not:
        return warning("home", f"there is no home yet ({home})", "hermes setup")
    says = f"there is no home, and it cannot be created: {why_not} ({home})"
    fix = with_rights(f"install -d -m 700 -o {os.getuid()} {shlex.quote(str(home))}")
    if os.environ.get("HERMES_HOME"):
        fix = "unset HERMES_HOME"
    elif os.statvfs(_above(home)).f_flag & os.ST_RDONLY:
        fix = _to_remount(_above(home))
    return problem("home", says, fix, "Or set HERMES_HOME to a folder that you can write.")


def why_no_home(home: Path) -> str:
    """Say why the home cannot be created; empty when it can. This creates a folder: permission bits are not enough."""
    try:
        with tempfile.TemporaryDirectory(prefix=".hermes-", dir=_above(home)):
            return ""
    except OSError as error:
        return error.strerror or str(error)


def _above(home: Path) -> Path:
    return next(one for one in home.parents if one.exists())


def to_write(folder: Path, closed: Sequence[Path] = ()) -> tuple[str, str]:
    """Return the command that lets this user read and write a folder with its files, and what to do instead."""
    instead = "Or set HERMES_HOME to a folder that you can write."
    if os.statvfs(folder).f_flag & os.ST_RDONLY:
        return _to_remount(folder), instead
    others = [one for one in (folder, *closed) if one.stat().st_uid != os.getuid()]
    if not others:
        return f"chmod -R u+rwX {shlex.quote(str(folder))}", instead
    if folder in others and folder.stat().st_uid != 0:
        owner = owner_of(folder)
        return "", f"It belongs to {owner}: sudo -u {shlex.quote(owner)} hermes … works as {owner}. {instead}"
    return with_rights(f"chown -R {os.getuid()} {shlex.quote(str(folder))}"), instead


def _to_remount(folder: Path) -> str:
    return with_rights(f"mount -o remount,rw {shlex.quote(str(_mount_point(folder)))}")


def to_move(home: Path) -> str:
    """Return the commands that copy a home to a local disk. Hermes does not open its database, so it is not in use."""
    place = shlex.quote(str(config.free_name(Path.home() / ".hermes")))
    return f"cp -a {shlex.quote(str(home))} {place} && export HERMES_HOME={place}"


def with_rights(command: str) -> str:
    """Return the command, with sudo unless the user is root."""
    return command if os.getuid() == 0 else f"sudo {command}"


def _mount_point(folder: Path) -> Path:
    """Find the mount of a folder. Bind mounts look like plain folders, so this reads the kernel's table."""
    try:
        table = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return next(one for one in (folder, *folder.parents) if one.is_mount())
    mounted = {line.split()[4].encode().decode("unicode_escape") for line in table.splitlines()}
    place = folder.resolve()
    return next((one for one in (place, *place.parents) if str(one) in mounted), place)
