"""Files that other programs run when they start: what a command did to them is undone when it has ended.

bubblewrap mounts them read-only, but a folder above one can be moved away and made anew, a file that was not there
cannot be mounted over, and Landlock cannot exempt a file from its folder. So the files are remembered before a command
and compared after it. A changed one gets its content back. A new one in a folder that was there before is renamed, with
nothing lost; in a folder that the command made itself (a repository, an unpacked archive) it is the command's own.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from hermes_config.secret_places import PROTECTED_FILES, Found

ASIDE = ".set-aside"
_MOST_FILES = 2_000
_MOST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class _File:
    content: bytes
    mode: int


class Protection:
    """The protected files of a workspace as they were before one command."""

    def __init__(self, found: Found) -> None:
        self._found = found
        self._files: dict[Path, _File] = {}
        for path in found.protected:
            for file in _files(path):
                if len(self._files) >= _MOST_FILES:
                    return
                if (kept := _read(file)) is not None:
                    self._files[file] = kept

    def undo(self, now: Found) -> list[str]:
        """Put back what was changed, set aside what is new. One line each, for the model and the log."""
        said: list[str] = []
        for path, before in self._files.items():
            if path.is_symlink() or (path.exists() and _read(path) != before):
                said.append(_attempt(path, "has its old content back", partial(_put_back, before)))
        known = {*self._found.protected, *self._found.secrets}
        # A file can be both, such as .envrc.
        for path in (*now.protected, *(path for path in now.secrets if path.name in PROTECTED_FILES)):
            if path in known:
                said += [_set_aside(file) for file in _files(path) if self._is_new(file)]
            elif str(path.parent) in self._found.folders:
                said.append(_set_aside(path))
        return said

    def _is_new(self, file: Path) -> bool:
        full = len(self._files) >= _MOST_FILES
        return not full and file not in self._files and not file.name.endswith(ASIDE)


def _files(path: Path) -> Iterator[Path]:
    """The file itself, or the files of a folder that somebody could run."""
    if path.is_symlink() or not path.is_dir():
        yield path
        return
    for folder, folders, names in os.walk(path):
        folders[:] = [name for name in folders if not os.path.islink(os.path.join(folder, name))]  # noqa: PTH114, PTH118
        for name in names:
            if not name.endswith(".sample"):
                yield Path(folder, name)


def _read(path: Path) -> _File | None:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MOST_BYTES:
            return None
        return _File(file.read(_MOST_BYTES), stat.S_IMODE(status.st_mode))


def _put_back(before: _File, path: Path) -> None:
    draft = path.with_name(f".{path.name}.{os.urandom(6).hex()}")
    with draft.open("xb") as file:
        os.fchmod(file.fileno(), before.mode)
        file.write(before.content)
    if path.is_dir() and not path.is_symlink():
        path.rename(_free_name(path))
    draft.replace(path)


def _set_aside(path: Path) -> str:
    target = _free_name(path)
    return _attempt(path, f"is now {target.name}", lambda old: old.rename(target))


def _free_name(path: Path) -> Path:
    names = (path.with_name(f"{path.name}{ASIDE}{number or ''}") for number in range(10_000))
    return next(name for name in names if not os.path.lexists(name))


def _attempt(path: Path, done: str, act: Callable[[Path], object]) -> str:
    try:
        act(path)
    except OSError as error:
        return f"{path} is run by other programs, was changed, and could not be put back ({error.strerror}): look at it"
    return f"{path} is run by other programs when they start: it {done}; write_file asks a person to write it"
