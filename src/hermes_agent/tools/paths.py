"""From a path a model wrote to a file a tool may open.

Every path is resolved to where it really leads (`..`, `~`, symbolic links) before anything is decided, and the decision
is about that place. Device files, pipes and the kernel's folders are refused. So are the files of our own database: to
open and close one beside SQLite drops the store's locks, whoever asks. A place that may hold credentials, or lies in
the Hermes home outside the workspace, is read only with the gate's leave; every write asks the gate.

Between leave and write the place is looked at again, and the new content arrives by one rename. What remains is the
moment between that look and the rename, in which another program of the same user could move a folder.
"""

from __future__ import annotations

import asyncio
import fnmatch
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from hermes_agent.tools.arguments import close_names
from hermes_agent.tools.base import Action, ToolContext
from hermes_config.errors import HermesError
from hermes_config.records import record
from hermes_state import session_files

if TYPE_CHECKING:
    from hermes_state import SessionDB
    from hermes_state.ids import ConversationId

_KERNEL = ("/proc", "/sys", "/dev")
_OPEN_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW if os.name == "posix" else os.O_RDONLY
_SECRET_FILES = (
    ".env", ".env.*", "*.env", ".envrc", "*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.kdbx", "*.ppk",
    "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", ".netrc", "_netrc", ".pgpass", ".my.cnf", ".npmrc", ".pypirc",
    ".git-credentials", ".htpasswd", ".vault-token", "credentials", "credentials.*", ".credentials.*", "auth.json",
    "secrets.*", "*.secret", "kubeconfig", "service-account*.json", "client_secret*.json", "shadow", "shadow-",
    "gshadow", "sudoers", "master.key",
)  # fmt: skip
_HARMLESS_FILES = ("*.example", "*.sample", "*.template", "*.dist", "*.pub")
_SECRET_FOLDERS = frozenset({".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", "gcloud", ".password-store", "gh"})
_OPEN_IN_HOME = ("workspace", "skills")


class Refused(HermesError):
    """The path cannot be used."""


class Surroundings(Protocol):
    """What a path is judged against: a `ToolContext`, or the desk of a person who names a file."""

    @property
    def db(self) -> SessionDB: ...
    @property
    def home(self) -> Path: ...
    @property
    def workdir(self) -> Path: ...
    @property
    def conversation_id(self) -> ConversationId: ...
    @property
    def environ(self) -> Mapping[str, str]: ...


@record
class Place:
    """A path as it was written, where it leads, and what is there now."""

    named: Path
    real: Path
    status: os.stat_result | None

    @property
    def is_folder(self) -> bool:
        return self.status is not None and stat.S_ISDIR(self.status.st_mode)


async def for_reading(raw: str, ctx: ToolContext, *, folder: bool = False) -> Place:
    """An existing file (or, with `folder`, also a folder) that may be read now. Raises `Refused`."""
    place = await asyncio.to_thread(locate, raw, ctx)
    if place.status is None:
        raise Refused(f"{raw} does not exist", hint=await asyncio.to_thread(_near, place))
    if place.is_folder and not folder:
        raise Refused(f"{raw} is a folder", hint="search_files with target files lists it.")
    if is_private(place, ctx):
        await _permit("read", place, ctx, "this place may hold credentials or another person's data")
    return place


async def for_writing(raw: str, ctx: ToolContext, *, detail: str) -> Place:
    """A file, there or not, that may be written now. Raises `Refused`."""
    place = await asyncio.to_thread(locate, raw, ctx)
    if place.is_folder:
        raise Refused(f"{raw} is a folder")
    await _permit("write", place, ctx, detail)
    again = await asyncio.to_thread(locate, raw, ctx)
    if again.real != place.real or again.is_folder:
        raise Refused(f"{raw} leads to another place than the one that was allowed")
    return again


async def _permit(kind: str, place: Place, ctx: ToolContext, detail: str) -> None:
    verdict = await ctx.gate.permit(Action(kind, str(place.real), str(ctx.workdir), detail))
    if not verdict.allowed:
        raise Refused(f"{place.named} may not be {'read' if kind == 'read' else 'written'}: {verdict.reason}")


def locate(raw: str, ctx: Surroundings) -> Place:
    """Where a path leads. Refuses what nobody may open; blocks on the file system."""
    if not raw.strip() or "\0" in raw:
        raise Refused("the path is empty or contains a NUL character")
    named = Path(os.path.abspath(ctx.workdir / expanded(raw, ctx.environ)))  # noqa: PTH100 - `..` by name, links come next
    try:
        real = Path(os.path.realpath(named))
        status = _status(real)
    except (OSError, ValueError) as error:
        raise Refused(f"{raw[:200]} cannot be used: {_why(error)}") from error
    for path in (named, real):
        if any(path == Path(kernel) or path.is_relative_to(kernel) for kernel in _KERNEL):
            raise Refused(f"{raw} is not a plain file", hint="/proc, /sys and /dev are closed to file tools.")
    if status is not None and not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
        raise Refused(f"{raw} is not a plain file but a device, a pipe or a socket")
    if is_store_file(real, status, ctx):
        raise Refused(f"{raw} is a file of Hermes' own database", hint="session_search reads conversations.")
    return Place(named, real, status)


def expanded(raw: str, environ: Mapping[str, str]) -> Path:
    """With the person's home in place of `~`."""
    home = environ.get("HOME")
    if home and (raw == "~" or raw.startswith("~/")):
        return Path(home, raw[2:])
    return Path(raw)


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None


def is_store_file(real: Path, status: os.stat_result | None, ctx: Surroundings) -> bool:
    """Whether this is the database, its index or one of their logs, by name or by whatever hard link."""
    stores = {ctx.home / "state.db"}
    # Every engine on files has a path; asking the class would import SQLite for those who have none.
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


def is_private(place: Place, ctx: Surroundings) -> bool:
    """Whether reading this needs leave: credentials by their usual names, and the home but for its open parts."""
    home = Path(os.path.realpath(ctx.home))
    if place.real.is_relative_to(home):
        open_parts = [home / part for part in _OPEN_IN_HOME]
        open_parts.append(session_files.results_folder(home, ctx.conversation_id))
        if not any(place.real.is_relative_to(part) for part in open_parts):
            return True
    return looks_secret(place.named) or looks_secret(place.real)


def looks_secret(path: Path) -> bool:
    """Whether a file of this name usually holds credentials."""
    name = path.name.lower()
    if _SECRET_FOLDERS.intersection(part.lower() for part in path.parts):
        return True
    if any(fnmatch.fnmatchcase(name, pattern) for pattern in _HARMLESS_FILES):
        return False
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in _SECRET_FILES)


def _near(place: Place) -> str:
    try:
        names = os.listdir(place.real.parent)  # noqa: PTH208 - names are all that is wanted
    except OSError:
        return f"There is no folder {place.named.parent}."
    near = close_names(place.real.name, names)
    return f"Near it: {', '.join(near)}." if near else ""


def read_bytes(place: Place, *, most: int) -> bytes:
    """The whole file. Blocks; raises `Refused` for what is larger than `most` or became something else meanwhile."""
    try:
        handle = os.open(place.real, _OPEN_FLAGS)
    except OSError as error:
        raise Refused(f"{place.named} cannot be read: {_why(error)}") from error
    with os.fdopen(handle, "rb", buffering=0) as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise Refused(f"{place.named} is not a plain file")
        if status.st_size > most:
            raise Refused(
                f"{place.named} has {status.st_size:,} bytes; at most {most:,} are read",
                hint="Look at a part of it with the terminal (head, tail, sed -n).",
            )
        data = file.read(most + 1) or b""
        while len(data) <= most and (more := file.read(most + 1 - len(data))):
            data += more
    return data[:most]


def replace_file(place: Place, data: bytes) -> None:
    """Put `data` in the place in one step; an existing file keeps its mode. Makes missing folders. Blocks."""
    target = place.real
    draft = target.with_name(f".{target.name[:100]}.{os.urandom(6).hex()}.tmp")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with draft.open("xb") as file:
            if place.status is not None:
                os.fchmod(file.fileno(), stat.S_IMODE(place.status.st_mode))
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(target)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise Refused(f"{place.named} cannot be written: {_why(error)}") from error


def remove_file(place: Place) -> None:
    """Remove the file; one that is not there is no error. Blocks."""
    try:
        place.real.unlink(missing_ok=True)
    except OSError as error:
        raise Refused(f"{place.named} cannot be removed: {_why(error)}") from error


def _why(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
