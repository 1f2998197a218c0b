"""The files of a home in a backup: memories, skills, hooks, plug-ins and everything else a person stored there.

One zip beside the copy of the store, `NAME.home.zip`. It holds the whole home except files that the store's copy, a
start or a search makes again, files with credentials (the logins of MCP servers too), and the two folders that may be
very large: `media` and `workspace` are included on request. Links are not followed.

`restore` replaces each entry that the zip has, completely, by renaming; other entries stay. The replaced entries are
zipped first.
"""

from __future__ import annotations

import fnmatch
import os
import shutil
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from hermes_config.home import fault, private_open
from hermes_state.errors import BackupRefused
from hermes_state.transfer.sqlite_copy import drafted

ENDING = ".home.zip"
LARGE = ("media", "workspace")
_NOT_OURS = (
    "state.db*", "state.search.db*", "backups", "logs", "*.log", "cache", "*_cache", "import", "sandbox", "gateway",
    "gateway.pid", "gateway.lock", "gateway.out", "gateway_state.json", "processes", "sessions", ".*", "config.yaml*",
    "auth.json",
)  # fmt: skip
_WITHIN = ("mcp/files", "sessions/saved")
"""Entries of folders that are otherwise left out: `mcp` has the logins of MCP servers, too."""


@dataclass(frozen=True, slots=True)
class HomeFiles:
    """The content of the zip beside a backup."""

    path: Path
    files: int
    entries: tuple[str, ...]
    """The entries of the home that it contains."""


def beside(backup: Path) -> Path:
    return backup.with_name(f"{backup.name}{ENDING}")


def create(home: Path, backup: Path, *, large: frozenset[str] = frozenset()) -> HomeFiles | None:
    """Zip the files of `home` beside a backup; None when there are none. `large`: the included names of `LARGE`."""
    return _zip(home, beside(backup), [entry for entry in _entries(home) if entry not in LARGE or entry in large])


def _zip(home: Path, target: Path, entries: list[str]) -> HomeFiles | None:
    found = [path for entry in entries for path in _files(home / entry)]
    if not found:
        return None
    with (
        drafted(target, "the files of the home cannot be copied: {}") as draft,
        zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as archive,
    ):
        for path in found:
            archive.write(path, path.relative_to(home).as_posix())
    return verify(target)


def verify(path: Path) -> HomeFiles:
    """Read all of it; raises when it cannot be restored."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            wrong = next((name for name in names if _entry_of(name) is None), None) or archive.testzip()
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError) as error:
        raise BackupRefused(f"the files of the home cannot be read: {error}", where=str(path)) from error
    if wrong is not None:
        raise BackupRefused(f"{wrong[:80]!r} in it is damaged or unexpected", where=str(path))
    if not names:  # its last bytes are damaged
        raise BackupRefused("the files of the home cannot be read: it lists none", where=str(path))
    return HomeFiles(path, len(names), tuple(sorted({_entry_of(name) or "" for name in names})))


def restore(path: Path, home: Path, *, replaced: Path) -> None:
    """Restore the entries of a zip to the home; those they replace are zipped to `replaced` first."""
    found = verify(path)
    _zip(home, replaced, [entry for entry in found.entries if (home / entry).exists()])
    draft = Path(tempfile.mkdtemp(prefix=".restore-", dir=home))
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                _extract(archive, member, draft)
        for entry in found.entries:
            (home / entry).parent.mkdir(mode=0o700, exist_ok=True)
            old = draft / f".{entry.replace('/', '-')}.old"
            if os.path.lexists(home / entry):
                (home / entry).rename(old)
            (draft / entry).rename(home / entry)
    except OSError as error:
        raise fault(error, "the files of the home cannot be restored", home) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _extract(archive: zipfile.ZipFile, member: zipfile.ZipInfo, folder: Path) -> None:
    target = folder / member.filename
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    runs = bool(member.external_attr >> 16 & stat.S_IXUSR)
    with archive.open(member) as source, private_open(target, "xb") as out:
        shutil.copyfileobj(source, out)
    if runs:
        target.chmod(0o700)


def _entries(home: Path) -> Iterator[str]:
    for path in sorted(home.iterdir()):
        if not any(fnmatch.fnmatchcase(path.name, pattern) for pattern in (*_NOT_OURS, "mcp")):
            yield path.name
    yield from (entry for entry in _WITHIN if (home / entry).is_dir())


def _files(entry: Path) -> Iterator[Path]:
    if entry.is_symlink():
        return
    if entry.is_file():
        yield entry
        return
    for folder, _, names in os.walk(entry):
        paths = (Path(folder, name) for name in sorted(names))
        yield from (path for path in paths if path.is_file() and not path.is_symlink())


def _entry_of(name: str) -> str | None:
    """The home's entry that a member belongs to; None for one that no backup of ours contains."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or name.endswith("/") or not path.parts:
        return None
    if "/".join(path.parts[:2]) in _WITHIN and len(path.parts) > 2:
        return "/".join(path.parts[:2])
    if any(fnmatch.fnmatchcase(path.parts[0], pattern) for pattern in _NOT_OURS):
        return None
    return path.parts[0]
