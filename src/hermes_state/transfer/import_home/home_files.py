"""The other files of a home: configuration, memories, skills, pairings — everything but databases and process state.

Each entry of the folder is imported completely, or not at all when our home has one of that name: it is copied beside
its path and renamed, so that a kill leaves no half of it. Files become private (0600; 0700 for executables). Links are
not followed and not copied: they may lead out of the home. Contents are never printed. Entries that give rights or run
are imported only when their kind was taken (`rights`).
"""

from __future__ import annotations

import fnmatch
import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from hermes_config.home import private_open, sync_folder
from hermes_state.transfer.import_home import rights

NOT_TAKEN = "not taken"
# Entries that are not imported, and the reason we print.
_LEFT = {
    "state.db*": "its conversations are imported as rows",
    "sessions": "its routes are imported as rows; transcripts and dumps in files are not",
    "logs": "logs", "*.log": "logs", "cache": "can be made again", "*_cache": "can be made again",
    "backups": "backups stay with their home", "import": "left by an earlier import",
    "hermes-agent": "hermes-agent itself", "node": "hermes-agent itself", "bin": "hermes-agent itself",
    "gateway": "state of a running process", "gateway.pid": "state of a running process",
    "gateway.lock": "state of a running process", "gateway_state.json": "state of a running process",
    ".gateway-*": "state of a running process", ".clean_shutdown": "state of a running process",
    ".restart_*": "state of a running process", ".drain_request.json": "state of a running process",
    ".upgrade-*": "left by an interrupted upgrade", ".import-*": "left by an interrupted import",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class HomeFile:
    """One entry of the folder and whether it is imported."""

    name: str
    files: int
    size: int
    left: str = ""
    """Why it is not imported; empty when it is."""


def plan(home: Path, target: Path) -> list[HomeFile]:
    """The entries that would be copied to `target`, sorted by name."""
    items = []
    for entry in sorted(home.iterdir()):
        files, size = _measure(entry)
        items.append(HomeFile(entry.name, files, size, _reason(entry, target)))
    return items


def _reason(entry: Path, target: Path) -> str:
    for pattern, reason in _LEFT.items():
        if fnmatch.fnmatchcase(entry.name, pattern):
            return reason
    if entry.is_symlink():
        return "a link"
    if not entry.is_dir() and not entry.is_file():
        return "not a file"
    if os.path.lexists(target / entry.name):
        return "your home already has one, which stays"
    return ""


def without(items: list[HomeFile], taken: frozenset[str]) -> list[HomeFile]:
    """The plan without the kinds that were not taken."""
    files = {"config.yaml", ".env"}  # these two are cut to the taken kinds
    found = []
    for item in items:
        kind = rights.kind_of_file(item.name)
        if item.left or kind in taken or (item.name in files and taken):
            found.append(item)
        else:
            found.append(replace(item, left=f"{NOT_TAKEN}; to take it: --take {kind}"))
    return found


def _measure(entry: Path) -> tuple[int, int]:
    if entry.is_symlink() or not entry.is_dir():
        return 1, entry.lstat().st_size
    sizes = [file.lstat().st_size for file in _files(entry)]
    return len(sizes), sum(sizes)


def _files(folder: Path) -> Iterator[Path]:
    for here, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not Path(here, name).is_symlink()]
        yield from (Path(here, name) for name in files)


def copy(home: Path, target: Path, items: list[HomeFile], texts: Mapping[str, str | None]) -> dict[str, str]:
    """Copy the planned entries; returns those that could not be read, with the reason.

    `texts` are files with new contents; None: do not import the file.
    """
    failed: dict[str, str] = {}
    for item in items:
        if item.left or os.path.lexists(target / item.name) or texts.get(item.name, "") is None:
            continue
        draft = target / f".import-{item.name}"
        _remove(draft)
        try:
            if text := texts.get(item.name):
                with private_open(draft, "xb") as writing:
                    writing.write(text.encode())
            else:
                _copy(home / item.name, draft, failed, item.name)
            draft.replace(target / item.name)
        except OSError as error:
            failed[item.name] = error.strerror or str(error)
            _remove(draft)
    sync_folder(target)
    return failed


def _copy(source: Path, draft: Path, failed: dict[str, str], name: str) -> None:
    if source.is_symlink():
        failed[name] = "a link, not imported"
    elif source.is_dir():
        draft.mkdir(mode=0o700)
        for entry in sorted(source.iterdir()):
            _copy(entry, draft / entry.name, failed, f"{name}/{entry.name}")
    elif source.is_file():
        _copy_file(source, draft, failed, name)
    else:
        failed[name] = "not a file, not imported"


def _copy_file(source: Path, draft: Path, failed: dict[str, str], name: str) -> None:
    try:
        reading = source.open("rb")
    except OSError as error:  # one unreadable file must not keep the others from being imported
        failed[name] = error.strerror or str(error)
        return
    with reading, private_open(draft, "xb") as writing:
        shutil.copyfileobj(reading, writing)
        writing.flush()
        os.fsync(writing.fileno())
        if os.fstat(reading.fileno()).st_mode & stat.S_IXUSR:
            os.fchmod(writing.fileno(), 0o700)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
