"""What a path means: the workspace, somebody's secrets, the system, a disk, the memory of Hermes itself.

A path is judged as it is written and as the file system resolves it (a link inside the workspace may lead out of it);
the worse of the two counts. Between this look and the moment the command runs, a link can still be changed: the gate
is there for a model that errs, not for a program that races it.
"""

from __future__ import annotations

import os.path
import posixpath
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from hermes_agent.approvals import words
from hermes_agent.approvals.base import Level
from hermes_agent.approvals.words import UNKNOWN, Word

SYSTEM = words.names(
    "/bin /boot /dev /etc /lib /lib32 /lib64 /libx32 /opt /proc /root /run /sbin /srv /sys /usr /var /home /mnt /media"
    " /System /Library /Applications /Users /Volumes /private /nix"
)
_DEEP = ("/bin", "/boot", "/dev", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/sbin", "/sys", "/usr", "/System")
_OPEN_BELOW = ("/usr/local", "/usr/src", "/dev/shm")
_BLOCK = re.compile(
    r"/dev/(?:[hsvx]+v?d[a-z]|nvme\d|mmcblk\d|r?disk\d|loop\d|dm-\d|md\d|sr\d|zram\d|nbd\d|mapper/|disk/|block/)"
)
_SINKS = re.compile(r"/dev/(?:null|zero|full|tty|stdin|stdout|stderr|fd/\d+)")
_DATABASE = ("state.db", "state.search.db")
_SECRET_NAMES = re.compile(
    r"\.env(?!\.(?:example|sample|template|dist)$)(?:\..*)?|\.netrc|\.pgpass|\.git-credentials|\.npmrc|\.pypirc|\.htpasswd"
    r"|id_(?:rsa|dsa|ecdsa|ed25519)|.*\.(?:pem|key|p12|pfx|kdbx)|credentials(?:\.json)?|auth\.json|secrets?\.(?:json|ya?ml|toml)"
)
_SECRET_FOLDERS = (".ssh", ".gnupg", ".aws", ".azure", ".config/gcloud", ".kube", ".docker", ".password-store")
_SECRET_FILES = ("/etc/shadow", "/etc/gshadow", "/etc/sudoers")
_START_FILES = re.compile(
    r"\.(?:bash|zsh|k?sh|csh|tcsh|fish)(?:rc|_profile|_login|_logout|env|_aliases)?|\.profile|\.zprofile|\.zlogin|\.inputrc"
    r"|\.gitconfig|\.vimrc|\.tmux\.conf|\.envrc|\.pythonrc(?:\.py)?|authorized_keys|crontab"
)
_OPEN_IN_HOME = ("workspace", "skills", "logs")
_STARS = re.compile(r"[*?.\[\]!^]+")


@dataclass(frozen=True, slots=True)
class Finding:
    level: Level
    why: str


@dataclass(frozen=True, slots=True)
class Places:
    workspace: str
    home: str
    user_home: str
    resolve: Callable[[str], str] = os.path.realpath

    def paths(self, word: Word, folders: Iterable[str | None]) -> list[str] | None:
        """The absolute paths a word can mean; None when that is not known."""
        if UNKNOWN in word.text:
            return None
        found: list[str] = []
        for folder in folders:
            if not word.text.startswith("/") and folder is None:
                return None
            written = posixpath.normpath(posixpath.join(folder or "/", word.text))
            found.append("/" + written.lstrip("/"))
        return list(dict.fromkeys(found + [self.resolve(path) for path in found if not word.glob]))

    # --- writing --------------------------------------------------------------------------------------------------

    def writing(self, word: Word, folders: Iterable[str | None]) -> Finding | None:
        """What is wrong with writing there; None for the workspace."""
        paths = self.paths(word, folders)
        if paths is None:
            return Finding("ask", "where it writes is known only to the running shell")
        found = [finding for path in paths if (finding := self._writing(path, word)) is not None]
        worst = [finding for finding in found if finding.level == "never"] + found
        return worst[0] if worst else None if word.sure else Finding("ask", "where it writes is not certain")

    def _writing(self, path: str, word: Word) -> Finding | None:
        if self.is_memory(path, glob=word.glob):
            return Finding("never", f"{path} is the database of Hermes")
        if _BLOCK.match(path):
            return Finding("never", f"{path} is a disk")
        if path == "/proc/sysrq-trigger":
            return Finding("never", "it commands the kernel")
        if _SINKS.fullmatch(path):
            return None
        if path.startswith(("/dev/", "/proc/", "/sys/")):
            return Finding("ask", f"it writes to {path}")
        if self.is_secret(path, glob=word.glob):
            return Finding("ask", f"{path} may hold secrets")
        if _START_FILES.fullmatch(posixpath.basename(path)):
            return Finding("ask", f"{path} is run or read by other programs when they start")
        if "/.git/" in f"{path}/":
            return Finding("ask", f"{path} belongs to git itself")
        if _within(path, self.home) and not _within(path, posixpath.join(self.home, "workspace")):
            return Finding("ask", f"{path} belongs to the Hermes home")
        if self.in_workspace(path):
            return None
        return Finding("ask", f"{path} is outside the workspace")

    def in_workspace(self, path: str) -> bool:
        """Inside the workspace — unless that is / or a whole home, which is nobody's workspace."""
        roots = [posixpath.join(self.home, "workspace")]
        if (self.workspace not in ("/", *SYSTEM) and self.workspace != self.user_home) or (
            self.workspace == self.user_home and not path.startswith(f"{self.user_home}/.")
        ):
            roots.append(self.workspace)
        return any(_within(path, root) or _within(path, self.resolve(root)) for root in roots)

    # --- reading --------------------------------------------------------------------------------------------------

    def reading(self, word: Word, folders: Iterable[str | None], *, deep: bool = False) -> Finding | None:
        """What is wrong with showing it to the model; None for anything but secrets. `deep`: all that lies below."""
        places = list(folders)
        paths = self.paths(word, places)
        if paths is None and (secret := self._known_part(word, places)):
            return Finding("ask", f"{secret} may hold secrets")
        for path in paths or ():
            if path.startswith(("/dev/tcp/", "/dev/udp/")):
                return Finding("ask", "it reaches the network")
            if self.is_secret(path, glob=word.glob):
                return Finding("ask", f"{path} may hold secrets")
            if self.is_memory(path, glob=word.glob):
                return Finding("ask", f"{path} holds everybody's conversations")
            if (
                _within(path, self.home)
                and path != self.home
                and not any(_within(path, posixpath.join(self.home, part)) for part in _OPEN_IN_HOME)
            ):
                return Finding("ask", f"{path} may hold another person's data")
            if deep and (_within(self.user_home, path) or path == self.home):
                return Finding("ask", f"secrets lie below {path}")
        return None

    def _known_part(self, word: Word, folders: Iterable[str | None]) -> str:
        """The place of secrets that a word names whatever the shell makes of the rest: `/proc/$PPID/environ`."""
        text = word.text.replace(UNKNOWN, "…")
        for folder in folders:
            path = posixpath.normpath(posixpath.join(folder or "/…", text))
            if self.is_secret(path) or (folder is None and posixpath.basename(path) == "environ"):
                return path
        return ""

    def is_secret(self, path: str, *, glob: bool = False) -> bool:
        own = (f"{self.home}/.env", f"{self.home}/auth.json", f"{self.home}/config.yaml", *_SECRET_FILES)
        if path in own or _SECRET_NAMES.fullmatch(posixpath.basename(path)) or re.match(r"/proc/.+/environ$", path):
            return True
        if any(f"/{folder}/" in f"{path}/" for folder in _SECRET_FOLDERS):
            return True
        if not glob:
            return False
        examples = [*own, *(f"{self.user_home}/{folder}/id_rsa" for folder in _SECRET_FOLDERS)]
        examples += [f"{self.user_home}/.aws/credentials", f"{self.user_home}/.netrc", f"{self.workspace}/.env"]
        return any(_matches(example, path) for example in examples)

    def is_memory(self, path: str, *, glob: bool = False) -> bool:
        """The database, its log, and the search index."""
        folder, name = posixpath.split(path)
        if folder in (self.home, self.resolve(self.home)) and name.startswith(_DATABASE):
            return True
        return glob and any(_matches(f"{self.home}/{name}", path) for name in _DATABASE)

    # --- deleting -------------------------------------------------------------------------------------------------

    def ruin(self, word: Word, folders: Iterable[str | None]) -> str:
        """Why everything below this place must never be deleted; empty when it may be asked about."""
        for path in self.paths(word, folders) or ():
            if self.in_workspace(path) and not self._precious(path) and not word.glob:
                continue
            parent, last = posixpath.split(path)
            if word.glob and _STARS.fullmatch(last) and self._precious(parent):
                return f"it would delete all of {parent}"
            if word.glob and any(_matches(place, path) for place in self._all_precious()):
                return f"it would delete {path}"
            if self._precious(path):
                return f"it would delete {path}"
            deep = any(_within(path, top) for top in _DEEP) and not any(_within(path, top) for top in _OPEN_BELOW)
            if deep and not self.in_workspace(path):
                return f"{path} is part of the system"
        return ""

    def _precious(self, path: str) -> bool:
        return path in SYSTEM or any(
            _within(place, path) for place in (self.user_home, self.home, f"{self.home}/state.db")
        )

    def _all_precious(self) -> tuple[str, ...]:
        return (*SYSTEM, self.user_home, self.home)


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _matches(path: str, pattern: str) -> bool:
    """Component by component, as the shell does."""
    parts, wanted = path.split("/"), pattern.split("/")
    return len(parts) == len(wanted) and all(map(fnmatchcase, parts, wanted))
