"""Classifies a path: workspace, temporary folder, system, disk, control file of Hermes.

A path is resolved as the kernel would (links first, then `..`). A link can change before the command runs: this module
only decides whom to ask, and the sandbox decides what can be written.
"""

from __future__ import annotations

import os.path
import posixpath
import re
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

from hermes_agent.approvals.shell.words import UNKNOWN, Word, names

_SYSTEM = names(
    "/ /bin /boot /dev /etc /lib /lib32 /lib64 /libx32 /opt /proc /root /run /sbin /srv /sys /usr /var /home /mnt "
    "/media /System /Library /Applications /Users /Volumes /private /nix"
)
_DEEP = names("/bin /boot /dev /lib /lib32 /lib64 /libx32 /proc /sbin /sys /usr /System")
_OPEN_BELOW = ("/usr/local", "/usr/src", "/dev/shm")
_TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm", "/private/tmp")
_SINKS = re.compile(r"/dev/(?:null|zero|full|tty|stdin|stdout|stderr|ptmx|pts/\d+|fd/\d+)|/proc/self/fd/\d+")
_DISK = re.compile(
    r"/dev/(?:[hsvx]+v?d[a-z]|nvme\d|mmcblk\d|r?disk\d|loop\d|dm-\d|md\d|sr\d|zram\d|nbd\d|mapper/|disk/|block/)"
)
_DATABASE = ("state.db", "state.search.db")
_CONTROL = ("config.yaml", ".env", "auth.json", "hooks", "plugins")


def within(path: str, *folders: str) -> bool:
    return any(path == folder or path.startswith(folder.rstrip("/") + "/") for folder in folders)


class Places:
    """The folders a call is judged against, all absolute. `home` is that of Hermes."""

    def __init__(self, workspace: str, home: str, user_home: str) -> None:
        workspace, self.home, self.user_home = map(os.path.normpath, (workspace, home, user_home))
        self.real_home = os.path.realpath(home)
        self._kept = (self.home, self.user_home, self.real_home, os.path.realpath(user_home))
        self._roots = [os.path.realpath(posixpath.join(home, "workspace"))]
        if workspace not in _SYSTEM - {"/root"}:  # a system folder is never a workspace
            self._roots.append(os.path.realpath(workspace))
        self.path = cache(self._path)

    def _path(self, word: Word, cwd: str | None) -> str | None:
        """The path of a word; None if only the running shell knows it."""
        if UNKNOWN in word.text or not 0 < len(word.text) <= 4_096 or (cwd is None and word.text[0] != "/"):
            return None
        joined = posixpath.join(cwd or "/", word.text)
        if _SINKS.fullmatch(joined):
            return joined
        return "/" + (posixpath.normpath(joined) if word.glob else os.path.realpath(joined)).lstrip("/")

    def outside(self, word: Word, cwd: str | None, *, temporary: bool = True) -> str | None:
        """The folder to open for writing there; None in the workspace and in temporary folders."""
        path = self.path(word, cwd)
        if path is None or _SINKS.fullmatch(path) or self.in_workspace(path):
            return None
        if temporary and within(path, *_TEMPORARY) and not within(path, self.real_home):
            return None
        folder = Path(path) if Path(path).is_dir() else Path(path).parent
        existing = next(parent for parent in (folder, *folder.parents) if parent.is_dir())
        return str(folder if str(existing) in _SYSTEM | {self.user_home} else existing)

    def in_workspace(self, path: str) -> bool:
        return within(path, *self._roots) and not self.is_control(path)

    def is_temporary(self, word: Word, cwd: str | None) -> bool:
        """Whether the path is visibly in a temporary folder, and not in a workspace there."""
        path = self.path(Word(word.text.replace(UNKNOWN, "x"), glob=True), cwd)
        inside = path is not None and within(path, *_TEMPORARY) and path not in _TEMPORARY
        return inside and not self.in_workspace(str(path)) and not word.text.startswith(UNKNOWN)

    def is_control(self, path: str) -> bool:
        """Whether the path is the database of Hermes or a file that controls its permissions."""
        return self.is_database(path) or within(path, *(f"{self.real_home}/{name}" for name in _CONTROL))

    def is_database(self, path: str, *, glob: bool = False) -> bool:
        """Whether the path is the database, its log, or the search index."""
        folder, name = posixpath.split(path)
        own = folder in (self.home, self.real_home) and name.startswith(_DATABASE)
        return own or (glob and any(_matches(f"{self.home}/{name}", path) for name in _DATABASE))

    def unwritable(self, word: Word, cwd: str | None) -> str:
        """Why nothing may ever write there; empty if a person may be asked."""
        path = self.path(word, cwd) or ""
        if self.is_database(path, glob=word.glob):
            return f"{path} is the database of Hermes"
        return f"{path} is a disk" if _DISK.match(path) else "it commands the kernel" if "/sysrq-tr" in path else ""

    def ruin(self, word: Word, cwd: str | None) -> str:
        """Why this path must never be deleted recursively; empty if a person may be asked."""
        path = self.path(word, cwd) or "/tmp/x"
        parent, last = posixpath.split(path)
        whole = parent if word.glob and re.fullmatch(r"[*?.\[\]!^]+", last) else path
        if whole in _SYSTEM or any(within(place, whole) for place in self._kept):
            return f"it would delete all of {whole}"
        if word.glob and any(_matches(place, path) for place in (*_SYSTEM, *self._kept)):
            return f"it would delete {path}"
        deep = within(path, *_DEEP) and not within(path, *_OPEN_BELOW) and not self.in_workspace(path)
        return f"{path} is part of the system" if deep else ""


def _matches(path: str, pattern: str) -> bool:
    """Whether a path matches a pattern component by component, as in the shell."""
    parts, wanted = path.split("/"), pattern.split("/")
    return len(parts) == len(wanted) and all(map(fnmatchcase, parts, wanted))
