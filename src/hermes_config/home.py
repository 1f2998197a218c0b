"""The Hermes home: its folder, and writing private files there.

The home is `HERMES_HOME`, else `~/.hermes`. It is looked up at each call, never remembered. The
folder is 0700, its files are 0600.

`write_atomic` replaces a whole file so that a reader, or a crash, sees the old content or the new one and
never a part. It must not be used on a database file: those are opened by SQLite and nothing else.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shlex
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from hermes_config.errors import HomeError

# Files that identify a home. A folder named by mistake (such as `/tmp`) must keep its permissions.
_LANDMARKS = ("state.db", "config.yaml", ".env", "sessions")

_POLL_SECONDS = 0.02
_ELSEWHERE = "set HERMES_HOME to a folder you can write"
_ADVICE: Mapping[int, str] = {
    errno.EROFS: f"That file system is read-only: remount it, or {_ELSEWHERE}.",
    errno.ENOSPC: "Make room on the disk and try again.",
    errno.EDQUOT: "Make room in your share of the disk and try again.",
    errno.ENOTDIR: "A file stands where a folder should be: move it away, or set HERMES_HOME to a folder.",
    errno.EISDIR: "A folder stands where a file should be: move it away.",
    errno.EACCES: f"hermes doctor says what to do; or {_ELSEWHERE}.",
    errno.EPERM: f"hermes doctor says what to do; or {_ELSEWHERE}.",
    errno.ENAMETOOLONG: f"The name is too long: {_ELSEWHERE} that has a shorter one.",
    errno.EIO: "The disk reports errors: check it before anything else.",
}


def advice(error: OSError) -> str:
    """What a person can do about an error of the operating system; empty if it may be a defect of Hermes."""
    return _ADVICE.get(error.errno or 0, "")


def fault(error: OSError, what: str, where: Path | str) -> HomeError:
    """A `HomeError` for an error of the operating system at a file of the home."""
    return HomeError(f"{what}: {error.strerror}", where=str(where), hint=advice(error) or f"You can {_ELSEWHERE}.")


def hermes_home() -> Path:
    """The home, as an absolute path. Nothing is created."""
    try:
        return _named_home() or Path.home() / ".hermes"
    except RuntimeError as error:  # an unknown `~user`, or no HOME and no entry for this user
        hint = "Set HERMES_HOME to a folder."
        raise HomeError("there is no such home folder", where=os.environ.get("HERMES_HOME", "~"), hint=hint) from error


def home_key() -> object:
    """A cache key that changes with the home, in a twentieth of the time of `hermes_home`."""
    return os.environ.get("HERMES_HOME"), os.environ.get("HOME")


def _named_home() -> Path | None:
    named = os.environ.get("HERMES_HOME", "").strip()
    if not named:
        return None
    if not named.isascii() and named != named.encode(errors="replace").decode():
        raise HomeError("the name in HERMES_HOME is not UTF-8", hint="Set it to another folder.")
    return Path(named).expanduser().absolute()


def ensure_home() -> Path:
    """Create the home with mode 0700, or remove others' access to an existing one; return its path."""
    home = hermes_home()
    try:
        home.mkdir(mode=0o700, parents=True)
        return home
    except FileExistsError:
        pass
    except OSError as error:
        raise fault(error, "cannot create the Hermes home", home) from error
    if not home.is_dir():
        raise HomeError("the Hermes home is not a folder", where=str(home), hint="Set HERMES_HOME to a folder.")
    _close_to_others(home)
    return home


def _close_to_others(home: Path) -> None:
    status = home.stat()
    if status.st_uid != os.getuid() or not status.st_mode & 0o077 or status.st_mode & stat.S_ISVTX:
        return
    names = {entry.name for entry in home.iterdir()}
    if not names or names.intersection(_LANDMARKS):
        home.chmod(0o700)


def refuse_root(home: Path) -> None:
    """Raise `HomeError` when root would work on somebody else's home: its owner could not read what root writes."""
    if os.geteuid() != 0 or not home.exists() or home.stat().st_uid == 0:
        return
    owner = owner_of(home)
    what = f"the home belongs to {owner}, who could not read what root writes there"
    raise HomeError(what, where=str(home), hint=f"sudo -u {shlex.quote(owner)} hermes … works as {owner}.")


def owner_of(path: Path) -> str:
    """The account that a path belongs to, as `sudo -u` takes it."""
    import pwd

    number = path.stat().st_uid
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"#{number}"


def ensure_folder(name: str) -> Path:
    """A folder directly inside the home (`logs`, `backups`, …), created with mode 0700."""
    folder = ensure_home() / name
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise fault(error, "cannot create a folder of the home", folder) from error
    return folder


def private_open(path: Path | str, mode: str = "w") -> IO[Any]:
    """`open`, creating the file with mode 0600 whatever the umask. Text is UTF-8 with unchanged newlines."""

    def opener(name: str, flags: int) -> int:
        return os.open(name, flags, 0o600)

    if "b" in mode:
        return open(path, mode, opener=opener)
    return open(path, mode, encoding="utf-8", newline="", opener=opener)


def gateway_lock(home: Path, mode: str = "a+b", *, shared: bool = False) -> IO[Any] | None:
    """The locked file; None when another process has the lock. Processes that only check share the lock."""
    file = private_open(home / "gateway.lock", mode)
    if _lock(file, shared=shared):
        return file
    file.close()
    return None


def _lock(file: IO[Any], *, shared: bool = False) -> bool:
    """Try once to lock an open file. The lock ends with its descriptor, also when the process dies."""
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


@contextmanager
def locked(path: Path, seconds: float) -> Iterator[None]:
    """Run the block with a lock file that excludes other threads and processes. Raises `HomeError` after so long."""
    give_up = time.monotonic() + seconds
    with private_open(path, "ab") as file:
        while not _lock(file):
            if time.monotonic() >= give_up:
                raise HomeError("somebody else is writing there", where=str(path), hint="Try again in a moment.")
            time.sleep(_POLL_SECONDS)
        yield


def gateway_runs(home: Path) -> bool:
    """Whether the process of a gateway holds the lock at this moment."""
    if not (home / "gateway.lock").exists():
        return False
    file = gateway_lock(home, "rb", shared=True)  # works on a read-only home too
    if file is None:
        return True
    file.close()
    return False


def write_atomic(path: Path | str, data: bytes | str) -> None:
    """Replace a file's content in one step, durably, mode 0600. A symbolic link stays one."""
    try:
        with replacing(path, "xb") as file:
            file.write(data.encode() if isinstance(data, str) else data)
    except OSError as error:
        raise fault(error, "cannot write", Path(os.path.realpath(path))) from error


@contextmanager
def replacing(path: Path | str, mode: str = "x") -> Iterator[IO[Any]]:
    """`write_atomic` for a file written in parts: it replaces `path` when the block succeeds."""
    target = Path(os.path.realpath(path))
    draft = target.with_name(f".{target.name}.{os.getpid()}-{os.urandom(4).hex()}.tmp")
    try:
        with private_open(draft, mode) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        draft.replace(target)
    except BaseException:
        with suppress(OSError):  # only the first failure is reported
            draft.unlink()
        raise
    sync_folder(target.parent)


def sync_folder(folder: Path) -> None:
    """Make a new or changed name in `folder` survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
