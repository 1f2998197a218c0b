"""Checks a path that a model wrote, and opens its file for a tool.

Every path is first resolved to its real path (`..`, `~`, symbolic links), and the decision is about that real path.
Device files, pipes and the kernel's folders are refused. So are the files of our own database: opening and closing one
beside SQLite drops the store's locks. A path that may hold secrets (`hermes_config.secret_files`), or lies in the
Hermes home outside the workspace, is read only with the gate's permission. Every write asks the gate, which gets the
file's old and new content.

Only the judged path is then opened (`descriptors`). A write reads the old content again through the same folder, and is
refused if that differs from the content for which permission was given.
"""

from __future__ import annotations

import asyncio
import errno
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from hermes_agent.execution.base import Permit, content_digest
from hermes_agent.text import close_names
from hermes_agent.tools import descriptors
from hermes_agent.tools.base import Action, FileContext, GateDecision, ToolContext
from hermes_config import protected_files, secret_files
from hermes_config.errors import HermesError
from hermes_state.conversations import delete

_COMPARED = 2_000
"""Names that are compared with a misspelt one; a command can leave very many."""
_KERNEL = ("/proc", "/sys", "/dev")
_NO_WORKSPACES = frozenset({
    "/", "/bin", "/boot", "/etc", "/home", "/lib", "/lib64", "/mnt", "/media", "/opt", "/run", "/sbin", "/srv", "/usr",
    "/var", "/nix", "/System", "/Library", "/Applications", "/Users", "/Volumes", "/private",
})  # fmt: skip
"""System folders: a turn that works in one has no workspace, and every write asks."""


class ToolRefused(HermesError):
    """The path cannot be used."""


@dataclass(frozen=True, slots=True)
class FilePlace:
    """A path as written, its real path, and the file's present status."""

    named: Path
    real: Path
    status: os.stat_result | None

    @property
    def is_folder(self) -> bool:
        return self.status is not None and stat.S_ISDIR(self.status.st_mode)


@dataclass(frozen=True, slots=True)
class Write:
    """A permitted change of one file. None stands for no file."""

    place: FilePlace
    before: bytes | None
    after: bytes | None
    digest: str
    """The permission, which covers the path, the old and the new content."""
    most: int
    """The largest file that is read."""


async def for_reading(raw: str, ctx: ToolContext, *, folder: bool = False) -> FilePlace:
    """An existing file (or, with `folder`, also a folder) that may be read. Raises `ToolRefused`."""
    place = await asyncio.to_thread(locate, raw, ctx)
    private = is_private(place, ctx)
    if place.status is None:
        raise ToolRefused(f"{raw} does not exist", hint="" if private else await asyncio.to_thread(_near, place))
    if place.is_folder and not folder:
        raise ToolRefused(f"{raw} is a folder", hint="search_files with target files lists it.")
    if private:
        detail = "this place may hold secrets or another person's data"
        await _permit(Action("read", str(place.real), str(ctx.workdir), detail, outside=True), place, ctx)
    return place


async def for_writing(raw: str, after: bytes | None, ctx: ToolContext, *, detail: str) -> Write:
    """Get permission to write this content to a new or existing file (None: remove it). Raises `ToolRefused`."""
    place = await asyncio.to_thread(locate, raw, ctx)
    if place.is_folder:
        raise ToolRefused(f"{raw} is a folder")
    if after is not None and len(after) > (longest := ctx.db.limits.write_file_bytes):
        raise ToolRefused(f"{raw} would have {len(after):,} bytes; at most {longest:,} are written")
    most = ctx.db.limits.read_file_bytes
    before = None if place.status is None else await asyncio.to_thread(read_bytes, place, most=most)
    action = Action(
        "write", str(place.real), str(ctx.workdir), detail,
        outside=is_outside(place, ctx), before=before, after=after,
    )  # fmt: skip
    verdict = await _permit(action, place, ctx)
    again = await asyncio.to_thread(locate, raw, ctx)
    if again.real != place.real or again.is_folder:
        raise ToolRefused(f"{raw} leads to another path than the approved one")
    digest = content_digest(place.real, before, after)
    if isinstance(verdict.permit, Permit):
        digest = verdict.permit.digest
    return Write(place, before, after, digest, most)


async def _permit(action: Action, place: FilePlace, ctx: ToolContext) -> GateDecision:
    verdict = await ctx.gate.permit(action)
    if not verdict.allowed:
        raise ToolRefused(f"{place.named} is not {'read' if action.kind == 'read' else 'written'}: {verdict.reason}")
    return verdict


def locate(raw: str, ctx: FileContext) -> FilePlace:
    """Resolve a path and refuse forbidden files. Blocks on the file system."""
    if not raw.strip() or "\0" in raw:
        raise ToolRefused("the path is empty or contains a NUL character")
    named = Path(os.path.abspath(ctx.workdir / expanded(raw, ctx.environ)))  # noqa: PTH100 - `..` by name, links come next
    try:
        real = Path(os.path.realpath(named))
        status = _status(real)
    except (OSError, ValueError) as error:
        raise ToolRefused(f"{raw[:200]} cannot be used: {_why(error)}") from error
    for path in (named, real):
        if any(path == Path(kernel) or path.is_relative_to(kernel) for kernel in _KERNEL):
            raise ToolRefused(f"{raw} is not a plain file", hint="/proc, /sys and /dev are closed to file tools.")
    if status is not None and not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
        raise ToolRefused(f"{raw} is not a plain file but a device, a pipe or a socket")
    if is_store_file(real, status, ctx):
        raise ToolRefused(f"{raw} is a file of Hermes' own database", hint="session_search reads conversations.")
    return FilePlace(named, real, status)


def expanded(raw: str, environ: Mapping[str, str]) -> Path:
    """The path with `~` replaced by the person's home."""
    home = environ.get("HOME")
    if home and (raw == "~" or raw.startswith("~/")):
        return Path(home, raw[2:])
    return Path(raw)


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None


def is_store_file(real: Path, status: os.stat_result | None, ctx: FileContext) -> bool:
    """Whether this is the database, its index or one of their logs, by name or by any hard link."""
    stores = {ctx.home / "state.db"}
    # Engines on files have a path; an isinstance check would import SQLite for every other engine.
    own = getattr(ctx.db.engine, "path", None)
    if isinstance(own, Path):
        stores.add(own)
    for store in stores:
        parent = Path(os.path.realpath(store.parent))
        if real.parent == parent and real.name.startswith((store.name, f"{store.stem}.search.db")):
            return True
        if status is not None and status.st_nlink > 1 and stat.S_ISREG(status.st_mode):
            parts = (f"{name}{end}" for name in (store.name, f"{store.stem}.search.db") for end in ("", "-wal", "-shm"))
            if any((found := _status(parent / part)) and os.path.samestat(found, status) for part in parts):
                return True
    return False


def is_private(place: FilePlace, ctx: FileContext) -> bool:
    """Whether reading needs permission: files with usual names of secrets, and closed parts of the Hermes home."""
    home = Path(os.path.realpath(ctx.home))
    if place.real.is_relative_to(home):
        open_parts = [home / part for part in secret_files.OPEN_IN_HERMES_HOME]
        open_parts.append(delete.results_folder(home, ctx.conversation_id))
        if not any(place.real.is_relative_to(part) for part in open_parts):
            return True
    return any(
        secret_files.is_secret(
            path, user_home=user_home(ctx), root=Path(os.path.realpath(ctx.workdir)),
            own=ctx.config.sandbox.secrets, folder=place.is_folder,
        )
        for path in dict.fromkeys((place.named, place.real))
    )  # fmt: skip


def is_outside(place: FilePlace, ctx: FileContext) -> bool:
    """Whether a person must be asked about a write: outside the workspace, a secret, or run by other programs."""
    own = Path(os.path.realpath(ctx.home / "workspace"))
    workspaces = [own]
    if (current := os.path.realpath(ctx.workdir)) not in _NO_WORKSPACES:
        workspaces.append(Path(current))
    holding = [workspace for workspace in workspaces if place.real.is_relative_to(workspace)]
    if not holding or is_private(place, ctx):
        return True
    return any(
        protected_files.is_protected(path, workspace, user_home=user_home(ctx))
        for workspace in holding
        for path in (place.named, place.real)
    )


def user_home(ctx: FileContext) -> Path:
    """The home folder of this process's account."""
    return Path(ctx.environ.get("HOME") or Path.home())


def _near(place: FilePlace) -> str:
    try:
        with os.scandir(place.real.parent) as entries:
            names = [entry.name for entry in islice(entries, _COMPARED)]
    except OSError:
        return f"There is no folder {place.named.parent}."
    near = close_names(place.real.name, names)
    return f"Near it: {', '.join(near)}." if near else ""


def read_bytes(place: FilePlace, *, most: int) -> bytes:
    """The whole file. Blocks; raises `ToolRefused` if it is larger than `most` or was replaced meanwhile."""
    try:
        with descriptors.opened(place.real.parent) as folder:
            return _content(folder, place, most)
    except OSError as error:
        raise ToolRefused(f"{place.named} cannot be read: {_why(error)}") from error


def _content(folder: descriptors.Folder, place: FilePlace, most: int) -> bytes:
    handle = folder.open(place.real.name)
    with os.fdopen(handle, "rb", buffering=0) as file:
        size = os.fstat(handle).st_size
        if size > most:
            raise ToolRefused(
                f"{place.named} has {size:,} bytes; at most {most:,} are read",
                hint="Look at a part of it with the terminal (head, tail, sed -n).",
            )
        data = file.read(most + 1) or b""
        while len(data) <= most and (more := file.read(most + 1 - len(data))):
            data += more
    return data[:most]


def check(write: Write) -> None:
    """Check that the file is unchanged since the permission was given. Blocks; raises `ToolRefused`."""
    try:
        with descriptors.opened(write.place.real.parent) as folder:
            _check(folder, write)
    except FileNotFoundError:
        if write.before is not None:
            raise _changed(write) from None
    except OSError as error:
        raise ToolRefused(f"{write.place.named} cannot be read: {_why(error)}") from error


def _check(folder: descriptors.Folder, write: Write) -> None:
    place = write.place
    there = folder.status(place.real.name)
    now = None if there is None else _content(folder, place, write.most)
    if content_digest(place.real, now, write.after) != write.digest:
        raise _changed(write)


def _changed(write: Write) -> ToolRefused:
    return ToolRefused(
        f"{write.place.named} was changed by somebody else after this was approved", hint="Read it again."
    )


def carry_out(write: Write) -> None:
    """Make the change in one step, if the file is unchanged since the permission was given. Blocks.

    An existing file keeps its mode; missing folders are created.
    """
    place, name = write.place, write.place.real.name
    try:
        with descriptors.opened(place.real.parent, make=write.after is not None) as folder:
            _check(folder, write)
            if write.after is None:
                folder.remove(name)
                return
            mode = None if place.status is None else stat.S_IMODE(place.status.st_mode)
            folder.write(name, write.after, mode=mode, replace=write.before is not None)
    except FileExistsError:
        raise _changed(write) from None
    except OSError as error:
        raise ToolRefused(f"{place.named} cannot be written: {_why(error)}") from error


def undo(write: Write) -> None:
    """Restore the old content of a file just changed, unless somebody else has changed it since. Blocks."""
    before, after = write.before, write.after
    carry_out(Write(write.place, after, before, content_digest(write.place.real, after, before), write.most))


def _why(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno == errno.ELOOP:
        return "a folder on the way has become a link"
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
