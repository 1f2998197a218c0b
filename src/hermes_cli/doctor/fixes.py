"""Places, for the advice of `hermes doctor`: commands that make one usable, and where this Hermes came from.

They are printed for a person to run as they stand. What needs more rights than this person has begins with sudo.
"""

from __future__ import annotations

import os
import re
import shlex
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hermes_config import config
from hermes_config.config import Config
from hermes_config.errors import ConfigError, HermesError


def to_be_made(home: Path) -> Seen:
    """There is no home yet; and whether one could be made there."""
    why_not = hindrance(home)
    if not why_not:
        return Seen(check="home", mark="warning", says=f"there is no home yet ({home})", fix="hermes setup")
    says = f"there is no home, and none can be made: {why_not} ({home})"
    fix = "unset HERMES_HOME" if os.environ.get("HERMES_HOME") else to_write(_above(home))
    return Seen(check="home", mark="problem", says=says, fix=fix, advice="Or set it to a folder you can write.")


def hindrance(home: Path) -> str:
    """Why no home can be made there; empty when one can. Tried, for permissions alone do not tell."""
    try:
        with tempfile.TemporaryDirectory(prefix=".hermes-", dir=_above(home)):
            return ""
    except OSError as error:
        return error.strerror or str(error)


def _above(home: Path) -> Path:
    return next(one for one in home.parents if one.exists())


def to_write(folder: Path) -> str:
    """The command after which this person can read and write there."""
    if os.statvfs(folder).f_flag & os.ST_RDONLY:
        return with_rights(f"mount -o remount,rw {shlex.quote(str(_mount_point(folder)))}")
    if folder.stat().st_uid == os.getuid():
        return f"chmod -R u+rwX {shlex.quote(str(folder))}"
    return with_rights(f"chown -R {os.getuid()} {shlex.quote(str(folder))}")


def to_move(home: Path) -> str:
    """The commands that take a home to a disk of this machine. Nobody has its database open: Hermes refuses to."""
    place = shlex.quote(str(config.free_name(Path.home() / ".hermes")))
    return f"cp -a {shlex.quote(str(home))} {place} && export HERMES_HOME={place}"


def with_rights(command: str) -> str:
    """The command, as somebody has to call it who is not root."""
    return command if os.getuid() == 0 else f"sudo {command}"


def _mount_point(folder: Path) -> Path:
    """The kernel's table knows bind mounts, which look like plain folders; without one, the folder itself must do."""
    try:
        table = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return next(one for one in (folder, *folder.parents) if one.is_mount())
    mounted = {line.split()[4].encode().decode("unicode_escape") for line in table.splitlines()}
    place = folder.resolve()
    return next((one for one in (place, *place.parents) if str(one) in mounted), place)


def origin() -> str:
    """Where this Hermes was installed from: a folder or a wheel, as pip wrote it down; else its name."""
    import json
    from importlib import metadata
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    written = metadata.distribution("hermes-gateway").read_text("direct_url.json")
    url = str(json.loads(written)["url"]) if written else ""
    return url2pathname(urlsplit(url).path) if url.startswith("file:") else url or "hermes-gateway"


_ASK_THE_DOCTOR = re.compile(r"^hermes doctor says what to do(?:[.;] ?)?(?:or )?")

Mark = Literal["ok", "warning", "problem"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Patient:
    """One home. `config` is None when it cannot be read; then `trouble` says why."""

    home: Path
    config: Config | None
    trouble: ConfigError | None = None
    online: bool = False

    @property
    def database(self) -> Path | None:
        """The SQLite file; None for a server, or when the configuration does not tell."""
        from hermes_cli.framework import store

        if self.config is None:
            return None
        return store.database_file(self.config.database_url() or self.home / "state.db")

    @property
    def has_store(self) -> bool:
        file = self.database
        return self.config is not None and (file is None or file.exists())


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One line of the report."""

    check: str
    mark: Mark
    says: str
    fix: str = ""
    """A command line, to be run as it stands."""
    advice: str = ""
    """What to do where there is no such command, or what else could be done."""
    mend: Callable[[], object] | None = None


Check = Callable[[Patient], Iterator[Seen]]


def ok(check: str, says: str) -> Seen:
    return Seen(check=check, mark="ok", says=says)


def problem_of(check: str, error: HermesError) -> Seen:
    """An error of ours as a finding; its hint is the advice, without the one to ask the doctor."""
    where = f" ({error.where})" if error.where else ""
    advice = _ASK_THE_DOCTOR.sub("", error.hint)
    return Seen(check=check, mark="problem", says=f"{error.what}{where}", advice=f"{advice[:1].upper()}{advice[1:]}")
