"""What a path means: the workspace, a temporary folder, the system, a disk, the control files of Hermes itself.

A path is looked at as the kernel would resolve it (links first, then `..`). Between this look and the moment the
command runs a link can be changed: this decides whom to ask, the wall decides what can be written.
"""

from __future__ import annotations

import os.path
import posixpath
import re
from fnmatch import fnmatchcase

from hermes_agent.approvals.shell.words import UNKNOWN, Word, names

SYSTEM = names(
    "/bin /boot /dev /etc /lib /lib32 /lib64 /libx32 /opt /proc /root /run /sbin /srv /sys /usr /var /home /mnt "
    "/media /System /Library /Applications /Users /Volumes /private /nix"
)
_DEEP = ("/bin", "/boot", "/dev", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/sbin", "/sys", "/usr", "/System")
_OPEN_BELOW = ("/usr/local", "/usr/src", "/dev/shm")
_TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm", "/private/tmp")
_SINKS = re.compile(r"/dev/(?:null|zero|full|tty|stdin|stdout|stderr|ptmx|pts/\d+|fd/\d+)|/proc/self/fd/\d+")
_DISK = re.compile(
    r"/dev/(?:[hsvx]+v?d[a-z]|nvme\d|mmcblk\d|r?disk\d|loop\d|dm-\d|md\d|sr\d|zram\d|nbd\d|mapper/|disk/|block/)"
)
_DATABASE = ("state.db", "state.search.db")
_CONTROL = ("config.yaml", ".env", "auth.json", "hooks", "plugins")
_STARS = re.compile(r"[*?.\[\]!^]+")
_START_FILES = re.compile(
    r"\.(?:bash|zsh|k?sh|csh|tcsh|fish)(?:rc|_profile|_login|_logout|env|_aliases)?|\.profile|\.zprofile|\.zlogin"
    r"|\.inputrc|\.gitconfig|\.vimrc|\.tmux\.conf|\.envrc|\.pythonrc(?:\.py)?|authorized_keys|crontab"
)
_GIT_OWN = re.compile(r"(?:.*/)?\.git/(?:(?:.+/)?hooks(?:/.*)?|(?:.+/)?config(?:\.worktree)?|info/attributes)")


def within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def is_protected(path: str, workspace: str) -> bool:
    """Files of a workspace that other programs run or obey: git's hooks and settings, files read at start."""
    inner = posixpath.relpath(path, workspace)
    return bool(_GIT_OWN.fullmatch(inner) or _START_FILES.fullmatch(posixpath.basename(path)))


class Places:
    """The folders a call is judged against, all absolute. `home` is that of Hermes."""

    def __init__(self, workspace: str, home: str, user_home: str) -> None:
        self.workspace, self.home, self.user_home = workspace, home, user_home
        self.real_home = os.path.realpath(home)
        self._roots = [os.path.realpath(posixpath.join(home, "workspace"))]
        if workspace != "/" and workspace not in SYSTEM - {"/root"}:  # those are nobody's workspace
            self._roots.append(os.path.realpath(workspace))
        self._paths: dict[tuple[Word, str | None], str | None] = {}

    def path(self, word: Word, cwd: str | None) -> str | None:
        """Where a word leads; None when only the running shell knows."""
        key = (word, cwd)
        if key not in self._paths:
            self._paths[key] = self._path(word, cwd)
        return self._paths[key]

    def _path(self, word: Word, cwd: str | None) -> str | None:
        if UNKNOWN in word.text or not word.text or len(word.text) > 4_096:
            return None
        if not word.text.startswith("/") and cwd is None:
            return None
        joined = posixpath.join(cwd or "/", word.text)
        if _SINKS.fullmatch(joined):
            return joined
        return "/" + (posixpath.normpath(joined) if word.glob else os.path.realpath(joined)).lstrip("/")

    def outside(self, word: Word, cwd: str | None, *, temporary: bool = True) -> str | None:
        """The folder that would have to be opened to write there; None in the workspace and in temporary folders."""
        path = self.path(word, cwd)
        if path is None or _SINKS.fullmatch(path) or self.in_workspace(path):
            return None
        if temporary and any(within(path, folder) for folder in _TEMPORARY):
            return None
        folder = posixpath.dirname(path)
        parent = folder
        while not os.path.isdir(parent):
            parent = posixpath.dirname(parent)
        return folder if parent in ("/", self.user_home, *SYSTEM) else parent

    def in_workspace(self, path: str) -> bool:
        return any(within(path, root) for root in self._roots) and not self.is_control(path)

    def is_control(self, path: str) -> bool:
        """The database of Hermes and the files that say what it may do."""
        return self.is_database(path) or any(within(path, f"{self.real_home}/{name}") for name in _CONTROL)

    def is_database(self, path: str, *, glob: bool = False) -> bool:
        """The database, its log, and the search index."""
        folder, name = posixpath.split(path)
        if folder in (self.home, self.real_home) and name.startswith(_DATABASE):
            return True
        return glob and any(_matches(f"{self.home}/{name}", path) for name in _DATABASE)

    def unwritable(self, word: Word, cwd: str | None) -> str:
        """Why nothing may ever write there; empty when it may be asked about."""
        path = self.path(word, cwd)
        if path is None:
            return ""
        if self.is_database(path, glob=word.glob):
            return f"{path} is the database of Hermes"
        return f"{path} is a disk" if _DISK.match(path) else "it commands the kernel" if "/sysrq-tr" in path else ""

    def ruin(self, word: Word, cwd: str | None) -> str:
        """Why everything below this place must never be deleted; empty when it may be asked about."""
        path = self.path(word, cwd)
        if path is None:
            return ""
        precious = (*SYSTEM, "/", self.user_home, self.home)
        parent, last = posixpath.split(path)
        whole = parent if word.glob and _STARS.fullmatch(last) else path
        if whole in SYSTEM or any(within(place, whole) for place in (self.user_home, self.home)):
            return f"it would delete all of {whole}"
        if word.glob and any(_matches(place, path) for place in precious):
            return f"it would delete {path}"
        deep = any(within(path, top) for top in _DEEP) and not any(within(path, top) for top in _OPEN_BELOW)
        return f"{path} is part of the system" if deep and not self.in_workspace(path) else ""


def _matches(path: str, pattern: str) -> bool:
    """Component by component, as the shell does."""
    parts, wanted = path.split("/"), pattern.split("/")
    return len(parts) == len(wanted) and all(map(fnmatchcase, parts, wanted))
