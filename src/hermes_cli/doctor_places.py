"""Places, for the advice of `hermes doctor`: commands that make one usable, and where this Hermes came from.

They are printed for a person to run as they stand. What needs more rights than this person has begins with sudo.
"""

from __future__ import annotations

import os
import shlex
import tempfile
from pathlib import Path

from hermes_cli.doctor_base import Seen
from hermes_config import config


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
