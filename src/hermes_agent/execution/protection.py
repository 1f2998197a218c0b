"""Protects files that other programs run at their start: a command's changes to them are undone after it ends.

bubblewrap mounts them read-only, but a folder above one can be moved and created anew, a missing file cannot be mounted
over, and Landlock cannot exempt a file from its folder. So the files are recorded before a command and compared after:

- a changed file gets its content back, and a moved git folder its path;
- a new file, or a link, in a folder that existed before is renamed, and nothing is lost;
- a new symbolic link in a git folder is removed, because git writes through it;
- a file in a folder that the command created (an unpacked archive, say) stays. The exception is a new repository: a
  shell prompt or an editor runs git there at once, and `git status` of a repository enters its submodules. Its hooks,
  and settings that may name programs, are renamed; so is a `.git` file or a `commondir` that leads to a git folder
  which was not checked.
"""

from __future__ import annotations

import json
import logging
import os
import re
import stat
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from hermes_agent.tools.descriptors import Folder, opened
from hermes_config import home as hermes_home
from hermes_config import secret_files
from hermes_config.protected_files import GIT_FILES, PROTECTED_FILES, git_files
from hermes_config.secret_files import WorkspaceFiles, birth

_log = logging.getLogger("hermes.agent")
ASIDE = ".set-aside"
_VERSION = 1
"""Of a kept record."""
_MOST_FILES = 2_000
_MOST_MEMORY, _A_FILE = 16 << 20, 500
_MOST_BYTES = 1 << 20
_MOST_RENAMED = 50
"""New files of one folder."""
_OPENING_SECONDS = 10.0
"""For opening folders that a command closed. The next command does not see those that stay closed."""
_OBEYED_OF_WORKTREES = ("config.worktree", "commondir")
_BRANCH = re.compile(r"refs/heads/\w[\w/-]*")
_SETTING = re.compile(
    r"\s*(?:\[([a-z0-9.-]+)(?:[ \t]+\"(?:[^\"\\]|\\.)*\")?\])?\s*(?:([a-z][a-z0-9-]*)\s*(?:=\s*([^\\]*))?|[#;].*)?",
    re.IGNORECASE | re.ASCII,
)
"""A line of git's settings: a section, a name and a value, each optional. A value that is continued does not match."""
_HARMLESS_SETTINGS = frozenset({
    "core.repositoryformatversion", "core.filemode", "core.bare", "core.logallrefupdates", "core.ignorecase",
    "core.precomposeunicode", "core.symlinks", "core.autocrlf", "core.eol", "core.safecrlf", "core.quotepath",
    "core.sparsecheckout", "core.sparsecheckoutcone", "core.abbrev", "core.compression", "core.untrackedcache",
    "core.sharedrepository", "remote.url", "remote.fetch", "remote.push", "remote.tagopt", "remote.prune",
    "remote.pushdefault", "branch.remote", "branch.merge", "branch.rebase", "branch.pushremote",
    "branch.autosetuprebase", "branch.autosetupmerge", "branch.sort",
    "branch.description", "branch.vscode-merge-base", "user.name", "user.email", "author.name", "author.email",
    "committer.name", "committer.email", "submodule.url", "submodule.active", "submodule.recurse", "init.defaultbranch",
    "pull.rebase", "pull.ff", "push.default", "push.autosetupremote", "push.followtags", "fetch.prune", "merge.ff",
    "merge.conflictstyle", "merge.renamelimit", "diff.renames", "diff.renamelimit", "diff.algorithm",
    "rebase.autosquash", "rebase.autostash", "rerere.enabled", "advice.detachedhead", "color.ui", "gc.auto",
    "commit.gpgsign", "tag.gpgsign", "index.version", "index.threads", "pack.threads", "extensions.objectformat",
    "extensions.refstorage", "extensions.worktreeconfig", "lfs.repositoryformatversion",
})  # fmt: skip
"""Settings of a new repository that cannot make git run a program, write elsewhere or reach the network unasked."""
_PARTIAL_CLONE = frozenset({"remote.promisor", "remote.partialclonefilter", "extensions.partialclone"})
"""Git fetches what is missing by itself, even for `git diff`. A command that had the network may make such a clone."""


@dataclass(frozen=True, slots=True)
class _File:
    content: bytes
    mode: int


class Protection:
    """The protected files of a workspace and of its outside git folders, as recorded before its commands."""

    def __init__(
        self,
        found: WorkspaceFiles,
        *,
        root: Path,
        user_home: Path,
        home: Path,
        mounted: frozenset[Path],
    ) -> None:
        """`home`: the Hermes home, whose files are not watched if it lies in the workspace. `mounted`: see `undo`;
        files mounted directly in the workspace cannot be replaced and are not recorded."""
        self._root, self._user_home, self._home = root, user_home, home
        self._folders = set(found.folders)
        self.unseen = found.unseen
        """The folders that could not be read."""
        self._pinned = {git: _inode(git) for git in found.pinned}
        self._secrets = {path: birth(path) for path in found.secrets}
        self._links: dict[Path, str] | None = dict(found.links)
        """Links in git folders; None in a record of a version that did not keep them."""
        self._units: dict[Path, list[Path]] = {}
        """Each protected file or folder, with its files."""
        self._files: dict[Path, _File] = {}
        room = _MOST_MEMORY
        for unit in sorted(self._protected(found)):
            mine = unit in mounted and unit.parent == root
            self._units[unit] = [] if mine else list(islice(_files(unit), _MOST_FILES))
            for file in self._units[unit]:
                if room > 0 and (kept := _read(file)) is not None:
                    self._files[file] = kept
                    room -= len(kept.content) + _A_FILE
        self._above = {folder: _inode(folder) for unit in self._units for folder in unit.parents}

    def record(self) -> dict[str, Any]:
        """Everything that `undo` needs, for JSON."""
        return {
            "root": str(self._root), "user_home": str(self._user_home), "home": str(self._home),
            "folders": sorted(self._folders), "unseen": _texts(self.unseen),
            "pinned": [(str(path), inode) for path, inode in self._pinned.items()],
            "secrets": [(str(path), born) for path, born in self._secrets.items()],
            "units": [(str(unit), _texts(files)) for unit, files in self._units.items()],
            "files": [(str(p), b64encode(one.content).decode(), one.mode) for p, one in self._files.items()],
            "above": [(str(path), inode) for path, inode in self._above.items()],
            "links": None if self._links is None else [(str(link), target) for link, target in self._links.items()],
        }  # fmt: skip

    @classmethod
    def of_record(cls, kept: Mapping[str, Any]) -> Protection:
        made = cls.__new__(cls)
        made._root, made._user_home, made._home = (Path(kept[name]) for name in ("root", "user_home", "home"))
        made._folders = set(kept["folders"])
        made.unseen = tuple(map(Path, kept["unseen"]))
        made._pinned = {Path(path): _pair(inode) for path, inode in kept["pinned"]}
        made._secrets = {Path(path): (born[0], born[1], born[2]) for path, born in kept["secrets"]}
        made._units = {Path(unit): list(map(Path, files)) for unit, files in kept["units"]}
        made._files = {Path(path): _File(b64decode(content), mode) for path, content, mode in kept["files"]}
        made._above = {Path(path): _pair(inode) for path, inode in kept["above"]}
        links = kept.get("links")
        made._links = None if links is None else {Path(link): target for link, target in links}
        return made

    def _protected(self, found: WorkspaceFiles) -> set[Path]:
        """Every file and folder to watch; some are secrets too, such as `.envrc`."""
        units = {*found.protected, *(path for path in found.secrets if path.name in PROTECTED_FILES)}
        units.update(_existing(found.worktrees, _OBEYED_OF_WORKTREES))
        return {unit for unit in units if not unit.is_relative_to(self._home)}

    def undo(
        self, now: WorkspaceFiles, *, mounted: frozenset[Path], changes: bool, network: bool, alone: bool
    ) -> list[str]:
        """Restore changed files and rename new ones; return one line each, for the model and the log.

        `mounted`: the command's read-only mounts, which it can replace only by moving a folder above them; the person
        made any other difference there. `changes`: a person approved a change of the workspace, so removed files stay
        removed. `network`: a person gave it the network. `alone`: no other command runs there; otherwise moved secrets
        stay until that command ends.
        """
        said = [line for git, inode in self._pinned.items() for line in self._returned(git, inode, now)]
        for unit, files in self._units.items():
            if not (unit in mounted and self._has_same_parents(unit)):
                said += [line for file in files for line in self._restored(file, gone=not changes)]
        named = {path for git in self._pinned for path in git_files(str(git), [""], str(self._user_home))}
        for unit in sorted(self._protected(now)):
            if unit in self._units:
                if not (unit in mounted and self._has_same_parents(unit)):
                    said += self._without_new(unit)
            elif str(unit.parent) in self._folders or str(unit) in named or self._leads_elsewhere(unit, now):
                said.append(_set_aside(unit))
        for git in now.pinned:
            if git not in self._pinned:
                files = _existing([git], GIT_FILES)
                said += [_set_aside(unit) for unit in files if self._names_programs(unit, network=network)]
        said += [_unlinked(link) for link, target in now.links if self._is_planted(link, target)]
        if alone and not mounted and not changes:
            said += self._secrets_back(now)
        return said

    def _is_planted(self, link: Path, target: str) -> bool:
        """Whether the command made this link in a git folder; in a plain folder that became one, only old links stay.

        Git itself can make `HEAD` a link to a branch."""
        if self._links is None or self._links.get(link) == target:
            return False
        if link.name == "HEAD" and _BRANCH.fullmatch(target):
            return False
        return ".git" in link.parts or str(link.parent) not in self._folders

    def _has_same_parents(self, unit: Path) -> bool:
        """Whether every folder above it is still the same one."""
        return all(_inode(folder) == self._above[folder] for folder in unit.parents)

    def _restored(self, file: Path, *, gone: bool) -> list[str]:
        before = self._files.get(file)
        if before is None:  # a link, or too large to record: the old content is unknown
            return []
        link = _first_link(file)
        said = [] if link is None else [_set_aside(link)]
        missing = gone and os.path.isdir(file.parent) and not os.path.lexists(file)  # noqa: PTH112 - never raises
        if link == file or missing or (os.path.lexists(file) and _read(file) != before):
            said.append(_put_back(file, before))
        return said

    def _secrets_back(self, now: WorkspaceFiles) -> list[str]:
        """Give a renamed secret its name back, because names identify secrets; remove new links to secrets."""
        said: list[str] = []
        born = {one: path for path, one in self._secrets.items()}
        for path in now.secrets:
            old = born.get(birth(path))
            if old is None or path == old or path in self._secrets:
                continue
            if not os.path.lexists(old) and old.parent.is_dir():
                said.append(_moved_back(path, old))
            elif os.path.lexists(old):
                said.append(_removed(path))
        return said

    def _without_new(self, unit: Path) -> list[str]:
        """Rename the new files of a folder that was there before; if they are very many, the whole folder."""
        known = set(self._units[unit])
        if len(known) >= _MOST_FILES:  # not all of them are known
            return []
        new = (file for file in _files(unit) if file not in known and ASIDE not in file.name)
        found = list(islice(new, _MOST_RENAMED + 1))
        if len(found) <= _MOST_RENAMED:
            return [_set_aside(file) for file in found if os.path.lexists(file)]
        return [_set_aside(unit), *(_put_back(file, self._files[file]) for file in known & self._files.keys())]

    def _returned(self, git: Path, inode: tuple[int, int] | None, now: WorkspaceFiles) -> list[str]:
        """Move a git folder back; a command may have moved it to put another one there."""
        if os.path.lexists(git) or not git.parent.is_dir():
            return []
        moved = next((other for other in now.pinned if _inode(other) == inode), None)
        if moved is None:
            return []

        return [_moved_back(moved, git)]

    def _leads_elsewhere(self, unit: Path, now: WorkspaceFiles) -> bool:
        """Whether a new file of a new folder makes git obey files that were not checked."""
        if unit.name == "config.worktree":
            return self._names_programs(unit)
        if unit.name not in (".git", "commondir"):
            return False
        git = _git_folder(unit)
        if unit.name == ".git" and git in now.worktrees:
            git = _git_folder(git / "commondir")
        return git not in self._pinned and git not in now.pinned

    def _names_programs(self, unit: Path, *, network: bool = False) -> bool:
        """Whether git may run a program by this file of a git folder, or write outside the workspace."""
        if unit.name == "hooks":
            return any(True for _ in _files(unit))
        kept = _read(unit)
        harmless = _HARMLESS_SETTINGS | _PARTIAL_CLONE if network else _HARMLESS_SETTINGS
        return kept is None or (unit.name != "commondir" and not self._is_harmless(kept.content, unit.parent, harmless))

    def _is_work_tree_of(self, git: Path, named: str) -> bool:
        """Whether this is the relative path of a submodule in the workspace, which leads back to its git folder."""
        path = Path(os.path.realpath(git / named))
        plain = re.fullmatch(r"(\.\./)+[\w./-]+", named) is not None
        return plain and path.is_relative_to(self._root) and _git_folder(path / ".git") == git

    def _is_harmless(self, settings: bytes, git: Path, harmless: frozenset[str]) -> bool:
        section = ""
        for line in settings.decode("utf-8", "replace").split("\n"):
            found = _SETTING.fullmatch(line)
            if found is None:
                return False
            section, name, value = (found[1] or section).lower(), (found[2] or "").lower(), (found[3] or "").strip()
            if f"{section}.{name}" == "core.worktree" and self._is_work_tree_of(git, value):
                continue
            if name and f"{section}.{name}" not in harmless:
                return False
        return True


@dataclass(frozen=True, slots=True)
class WatchScope:
    """Where a command's changes to protected files are looked for, and which of them it may have made."""

    folders: tuple[Path, ...]
    """The workspace, then other writable folders."""
    user_home: Path
    own: tuple[str, ...]
    home: Path
    mounted: frozenset[Path]
    changes: bool
    network: bool = False

    @property
    def root(self) -> Path:
        return self.folders[0]

    @property
    def file_name(self) -> str:
        """The name of a kept record of this workspace, in the folder of its background command."""
        import hashlib  # here and below: only background commands need it

        return f"watch.{hashlib.sha256(os.fsencode(self.root)).hexdigest()[:16]}"

    def look(self, *, thorough: bool = False) -> WorkspaceFiles:
        return files_in(self.folders, self.user_home, self.own, thorough=thorough)


@dataclass(frozen=True, slots=True)
class WorkspaceWatch:
    """One command's record of the protected files."""

    scope: WatchScope
    protection: Protection

    def look(self) -> WorkspaceFiles:
        """The files after the command, also where it may have hidden a repository from the walk."""
        now = self.scope.look()
        closed = set(now.unseen).difference(self.protection.unseen)
        deadline = time.monotonic() + _OPENING_SECONDS
        if sum(_is_opened_up_below(folder, deadline) for folder in closed):
            now = self.scope.look()
        if any(secret_files.has_submodule_in_bulk(git) for git in (*now.pinned, *now.worktrees)):
            return self.scope.look(thorough=True)
        return now

    def undo(self, now: WorkspaceFiles, *, alone: bool) -> list[str]:
        """Undo the command's changes; see `Protection.undo`."""
        scope = self.scope
        return self.protection.undo(
            now, mounted=scope.mounted, changes=scope.changes, network=scope.network, alone=alone
        )

    def keep(self, folder: Path) -> None:
        """Keep the record in the folder of a background command; another version of Hermes may read it."""
        scope = self.scope
        places = {
            "folders": _texts(scope.folders), "user_home": str(scope.user_home), "own": list(scope.own),
            "home": str(scope.home), "mounted": _texts(scope.mounted), "changes": scope.changes,
            "network": scope.network,
        }  # fmt: skip
        kept = {"version": _VERSION, "scope": places, "files": self.protection.record()}
        hermes_home.write_atomic(folder / scope.file_name, json.dumps(kept).encode())


def kept_watches(scope: WatchScope) -> list[Path]:
    """The kept records of background commands in this workspace, oldest first."""
    folder = scope.home / "processes"
    if not folder.is_dir():
        return []
    found = [(_made(file), file) for file in folder.glob(f"*/{scope.file_name}")]
    return [file for made, file in sorted(found) if made]


def _made(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:  # its command has just ended
        return 0.0


def protection_of_background(scope: WatchScope) -> Protection | None:
    """The record of the oldest background command that has not ended in this workspace."""
    for file in kept_watches(scope):
        if (watch := kept_watch(file)) is not None:
            return watch.protection
    return None


def kept_watch(file: Path) -> WorkspaceWatch | None:
    """Read a record; None without one, and for one that this version cannot read, which is logged."""
    try:
        data = file.read_bytes()
    except OSError:  # its command has just ended
        return None
    try:
        kept = json.loads(data)
        if kept["version"] != _VERSION:
            raise ValueError(f"version {kept['version']}")
        at = kept["scope"]
        scope = WatchScope(
            folders=tuple(map(Path, at["folders"])), user_home=Path(at["user_home"]), own=tuple(at["own"]),
            home=Path(at["home"]), mounted=frozenset(map(Path, at["mounted"])), changes=bool(at["changes"]),
            network=bool(at.get("network")),
        )  # fmt: skip
        return WorkspaceWatch(scope, Protection.of_record(kept["files"]))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        extra = {"action": "process.record", "path": str(file)}
        _log.warning("the record of a background command cannot be read (%s): no change is undone", error, extra=extra)
        return None


def files_in(
    folders: tuple[Path, ...], user_home: Path, own: tuple[str, ...], *, thorough: bool = False, **limits: int
) -> WorkspaceFiles:
    """The secret and protected files of everything that a command can write to."""
    return secret_files.together(
        secret_files.found_in(folder, user_home=user_home, own=own, writable=folders, thorough=thorough, **limits)
        for folder in folders
    )


def _is_opened_up(folder: Path, rights: int) -> bool:
    """Whether a command had closed a folder to its owner, who can use it again now."""
    try:
        with opened(folder) as one:
            return one.open_up(rights)
    except OSError:  # not ours, or gone
        return False


def _is_opened_up_below(folder: Path, deadline: float) -> bool:
    """Whether a command had closed a folder to its owner, who can use it again now, with all folders in it."""
    if not _is_opened_up(folder, 0o500):
        return False
    waiting = [folder]
    while waiting and time.monotonic() < deadline:
        path = waiting.pop()
        with suppress(OSError), opened(path) as one:
            one.open_up(0o500)
            waiting += [path / name for name, is_folder in one.entries() if is_folder]
    return True


def _existing(folders: Iterable[Path], names: Iterable[str]) -> list[Path]:
    return [folder / name for folder in folders for name in names if os.path.lexists(folder / name)]


def _git_folder(pointer: Path) -> Path:
    """The real path of the git folder that a `.git` or `commondir` file leads to; itself if it leads nowhere."""
    real = Path(os.path.realpath(pointer))
    if real.is_dir():
        return real
    kept = _read(real)
    if kept is None or b"\0" in kept.content:
        return pointer
    prefix = b"gitdir: " if pointer.name == ".git" else b""
    named = os.fsdecode(kept.content.removeprefix(prefix).rstrip(b"\r\n"))  # git itself strips no more
    return Path(os.path.realpath(pointer.parent / named))


def _texts(paths: Iterable[Path]) -> list[str]:
    return [str(path) for path in paths]


def _pair(inode: Sequence[int] | None) -> tuple[int, int] | None:
    return None if inode is None else (inode[0], inode[1])


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        status = path.lstat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _files(path: Path) -> Iterator[Path]:
    """The file itself, or the executable files of a folder."""
    if path.is_symlink() or not path.is_dir():
        yield path
        return
    waiting = [str(path)]
    while waiting:  # `os.walk` fails in folders that are very deep
        with suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                elif not entry.name.endswith(".sample"):
                    yield Path(entry.path)


def _first_link(path: Path) -> Path | None:
    """The outermost part of a path that has become a link since the path was recorded."""
    parts: Iterable[Path] = (*reversed(path.parents), path)
    return next((part for part in parts if os.path.islink(part)), None)  # noqa: PTH114 - never raises


def _read(path: Path) -> _File | None:
    """The content of a plain file; None for anything else, also if a part of its path is a link."""
    try:
        with opened(path.parent) as folder, os.fdopen(folder.open(path.name), "rb") as file:
            status = os.fstat(file.fileno())
            if status.st_size > _MOST_BYTES:
                return None
            return _File(file.read(_MOST_BYTES), stat.S_IMODE(status.st_mode))
    except OSError:
        return None


def _moved_back(path: Path, old: Path) -> str:
    def act() -> None:
        with opened(path.parent) as source, opened(old.parent) as target:
            source.move(path.name, target, old.name)

    return _attempt(old, "it is back in its place", act, why="is hidden from commands, or run by other programs")


def _removed(link: Path) -> str:
    def act() -> None:
        with opened(link.parent) as folder:
            folder.remove(link.name)

    return _attempt(link, "this second name of it is gone", act, why="is hidden from commands")


def _unlinked(link: Path) -> str:
    def act() -> None:
        with opened(link.parent) as folder:
            status = folder.status(link.name)
            if status is not None and stat.S_ISLNK(status.st_mode):
                folder.remove(link.name)

    return _attempt(link, "this link is gone", act, why="would lead git to write elsewhere")


def _put_back(path: Path, before: _File) -> str:
    def act() -> None:
        with opened(path.parent, make=True) as folder:
            if folder.status(path.name) is not None:
                folder.rename(path.name, _free_name(folder, path.name))
            folder.write(path.name, before.content, mode=before.mode, replace=True)

    return _attempt(path, f"it has its old content back, what it held is {path.name}{ASIDE}", act)


def _set_aside(path: Path) -> str:
    def act() -> None:
        with opened(path.parent) as folder:
            folder.rename(path.name, _free_name(folder, path.name))

    return _attempt(path, f"it is now {path.name}{ASIDE}", act)


def _free_name(folder: Folder, name: str) -> str:
    short = name if len(os.fsencode(name)) < 200 else name[:50]
    names = (f"{short}{ASIDE}{number or ''}" for number in range(100))
    return next((one for one in names if folder.status(one) is None), f"{short}{ASIDE}{os.urandom(6).hex()}")


def _attempt(path: Path, done: str, act: Callable[[], None], *, why: str = "is run by other programs") -> str:
    try:
        try:
            act()
        except PermissionError:
            if not _is_opened_up(path.parent, 0o700):
                raise
            act()
    except OSError as error:
        return f"{path} {why}, was changed, and could not be restored ({error.strerror}): check it"
    return f"{path} {why}: {done}; write_file asks a person to write it"
