"""The list of secret files, and the walk that finds the secret and protected files of a workspace.

Everything that shows or opens files uses this list: the executor hides the files before a command runs, file tools ask
a person before they read one, and `search_files`, `@file` and `@diff` leave them out.

**Secrets** are found in three ways. `HOME_PLACES` are places in a person's home, `SYSTEM_PLACES` places of the machine,
and `SECRET_NAMES` are names of files that hold a secret wherever they are, except in the folders of the operating
system (`/usr/share/doc/x/server.pem` is an example, and without `/etc/ssl/certs` nothing speaks TLS). An owner adds
patterns with `sandbox.secrets` in config.yaml. `*.example`, `*.pub` and the like are never secret.

`is_secret` judges by the name alone. `found_in`, which decides what a confined command does not see, also looks into
the few kinds of file whose name says too little: a `.pem` may be a certificate, an `auth.json` a translation. It takes
keys below a folder of tests or of installed packages for examples, as the project's own tests need them.
"""

# Strings and not paths: this runs before every command, and pathlib would take most of the time.
# ruff: noqa: PTH112, PTH113, PTH116

from __future__ import annotations

import ctypes
import errno
import os
import pwd
import re
import stat
import time
from collections import OrderedDict
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import translate
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any

from hermes_config.protected_files import (
    GIT_MARKS,
    PROTECTED_FILES,
    PROTECTED_FOLDERS,
    WORKTREE_MARKS,
    git_files,
    is_protected_at_home,
    plain_content,
)

HOME_PLACES: tuple[str, ...] = (
    # keys and passwords
    ".ssh", ".gnupg", ".password-store", ".pki", ".local/share/keyrings", ".local/share/kwalletd", ".gnome2/keyrings",
    ".config/1Password", ".config/Bitwarden", ".config/keepassxc", ".config/sops", ".config/age", ".age", ".step",
    ".netrc", "_netrc", ".git-credentials", ".config/git/credentials", ".vault-token", ".Xauthority", ".ICEauthority",
    ".acme.sh", "Library/Keychains",
    # clouds and clusters
    ".aws", ".azure", ".kube", ".docker", ".config/gcloud", ".config/containers/auth.json", ".config/doctl", ".oci",
    ".config/hcloud", ".config/linode-cli", ".config/scw", ".boto", ".s3cfg", ".passwd-s3fs", ".config/rclone",
    ".rclone.conf", ".terraformrc", ".tfrc", ".terraform.d/credentials.tfrc.json", ".databrickscfg", ".snowsql",
    ".snowflake", ".cloudflared", ".wrangler", ".config/.wrangler", ".config/heroku", ".config/netlify", ".fly",
    ".config/ngrok", ".ngrok2", ".config/stripe", ".config/op",
    # code and package servers
    ".config/gh", ".config/hub", ".config/glab-cli", ".npmrc", ".yarnrc.yml", ".pypirc", ".cargo/credentials",
    ".cargo/credentials.toml", ".gem/credentials", ".bundle/config", ".composer/auth.json",
    ".config/composer/auth.json", ".m2/settings.xml", ".m2/settings-security.xml", ".gradle/gradle.properties",
    ".ivy2/.credentials", ".sbt/credentials", ".nuget/NuGet/NuGet.Config", ".config/NuGet",
    ".pub-cache/credentials.json",
    # models and other agents
    ".huggingface", ".cache/huggingface/token", ".cache/huggingface/stored_tokens", ".kaggle", ".config/wandb",
    ".openai", ".anthropic", ".config/anthropic", ".codex", ".claude", ".claude.json", ".gemini", ".qwen",
    ".config/github-copilot", ".local/share/opencode/auth.json", ".aider.conf.yml",
    # databases
    ".pgpass", ".my.cnf", ".mylogin.cnf", ".dbshell",
    # browsers, mail and chat
    ".mozilla", ".config/google-chrome", ".config/chromium", ".config/BraveSoftware", ".config/microsoft-edge",
    ".config/opera", ".config/vivaldi", ".thunderbird", ".var/app", "snap/firefox", "snap/chromium",
    "snap/thunderbird", ".config/Signal", ".config/Slack", ".config/discord", ".local/share/TelegramDesktop",
    ".config/evolution", ".local/share/evolution", ".purple", ".irssi", ".weechat", ".config/weechat",
    ".fetchmailrc", ".msmtprc", ".mbsyncrc", ".offlineimaprc", ".muttrc", ".mutt", "Library/Cookies",
    "Library/Application Support/Google/Chrome", "Library/Application Support/Firefox",
    "Library/Application Support/BraveSoftware", "Library/Messages", "Library/Mail",
    # other machines
    ".smbcredentials", ".config/filezilla", ".filezilla", ".config/remmina", ".local/share/remmina", ".vnc",
    ".config/lftp", ".lftprc",
    # what was typed
    ".bash_history", ".zsh_history", ".zhistory", ".sh_history", ".ksh_history", ".history", ".python_history",
    ".node_repl_history", ".psql_history", ".mysql_history", ".sqlite_history", ".rediscli_history", ".irb_history",
    ".lesshst", ".viminfo", ".local/share/fish/fish_history", ".local/state/bash/history", ".local/state/zsh/history",
    # money
    ".bitcoin", ".ethereum", ".electrum", ".config/solana",
)  # fmt: skip
"""Secret files and whole folders below the person's home."""

SYSTEM_PLACES: tuple[str, ...] = (
    "/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/sudoers", "/etc/sudoers.d",
    "/etc/security/opasswd", "/etc/ssl/private", "/etc/pki/tls/private", "/etc/pki/private", "/etc/letsencrypt",
    "/etc/krb5.keytab", "/etc/wireguard", "/etc/openvpn", "/etc/ipsec.secrets", "/etc/ppp/chap-secrets",
    "/etc/ppp/pap-secrets", "/etc/NetworkManager/system-connections", "/etc/mysql/debian.cnf", "/etc/kubernetes",
    "/etc/rancher", "/run/secrets", "/var/run/secrets", "/run/credentials", "/var/lib/sss/secrets",
    "/var/spool/cron", "/var/spool/mail", "/var/mail", "/Library/Keychains",
    *(f"/etc/ssh/ssh_host_{kind}_key" for kind in ("rsa", "dsa", "ecdsa", "ed25519")),
)  # fmt: skip
"""Secret files and whole folders of the machine."""

SECRET_NAMES: tuple[str, ...] = (
    ".env", ".env.*", "*.env", ".env-*", ".env_*", ".envrc",
    "*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.ppk", "*.kdbx", "*.agekey", "*.keytab", "*.ovpn",
    "*.keychain", "*.keychain-db", "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", "*_rsa", "*_dsa", "*_ecdsa",
    "*_ed25519", "wallet.dat",
    ".netrc", "_netrc", ".pgpass", ".my.cnf", ".mylogin.cnf", ".npmrc", ".pypirc", ".git-credentials", ".htpasswd",
    ".vault-token", ".boto", ".s3cfg", ".terraformrc", ".tfrc", "*.tfrc", "*.tfrc.json", "*.tfstate",
    "*.tfstate.backup", ".databrickscfg", ".dockercfg", ".dockerconfigjson", ".smbcredentials",
    "credentials", "credentials.json", "credentials.yml", "credentials.yaml", "credentials.toml", "credentials.ini",
    "credentials.xml", "credentials.csv", "credentials.txt", ".credentials", ".credentials.*", "auth.json",
    "secret.json", "secret.yml", "secret.yaml", "secret.toml", "secret.ini", "secret.txt",
    "secrets.json", "secrets.yml", "secrets.yaml", "secrets.toml", "secrets.ini", "secrets.txt", "*.secret",
    "*.secrets", "secret*.tfvars", "kubeconfig", "*.kubeconfig", "service-account*.json", "service_account*.json",
    "*-firebase-adminsdk-*.json", "client_secret*.json", "application_default_credentials.json",
    "cookies.sqlite", "key4.db", "logins.json", "login.keyring",
    ".bash_history", ".zsh_history", ".psql_history", ".mysql_history", ".python_history", ".node_repl_history",
    ".rediscli_history", ".sqlite_history",
)  # fmt: skip
"""Names of secret files, in any case."""

HARMLESS_NAMES: tuple[str, ...] = (
    "*.example", "*.sample", "*.template", "*.tmpl", "*.tpl", "*.dist", "*.schema", "*.pub", "*.crt", "*.cer",
    ".env.example.*", ".env[-_]example*", ".env[-_]sample*", ".env[-_]template*", ".env[-_]dist*",
    "example.env", "sample.env", "template.env", "dist.env",
    "cacert*.pem", "ca-bundle*.pem", "ca-certificates*.pem", "fullchain*.pem", "debug.keystore",
)  # fmt: skip

SECRET_FOLDERS: tuple[str, ...] = (".ssh", ".gnupg", ".password-store")
"""Names of folders that hold only secrets. A `.docker` or `.aws` of a project often holds none."""

SECRET_PAIRS: frozenset[tuple[str, str]] = frozenset({
    (".aws", "config"), (".kube", "config"), (".docker", "config.json"), (".bundle", "config"), ("gh", "hosts.yml"),
    ("rclone", "rclone.conf"), ("gcloud", "credentials.db"), ("gcloud", "access_tokens.db"), (".m2", "settings.xml"),
    ("huggingface", "token"), (".huggingface", "token"),
})  # fmt: skip
"""(folder, file): file names that are secret only in that folder."""

OPEN_IN_HERMES_HOME: tuple[str, ...] = ("workspace", "skills")
"""The folders of the Hermes home that commands and file tools may read; the rest is private data."""

_AT_HOME, _IN_SYSTEM = frozenset(HOME_PLACES), frozenset(SYSTEM_PLACES)
_SYSTEM_ROOTS = (
    "/usr/", "/bin/", "/sbin/", "/lib/", "/lib32/", "/lib64/", "/libx32/", "/boot/", "/nix/store/", "/etc/ssl/certs/",
    "/etc/pki/ca-trust/", "/etc/ca-certificates/", "/System/", "/Applications/",
)  # fmt: skip
_KEYS = re.compile(r".*\.(?:pem|key|p12|pfx|jks|keystore|ppk)|(?:id|.*)_(?:rsa|dsa|ecdsa|ed25519)", re.DOTALL)
_EXAMPLE_FOLDERS = frozenset({
    "test", "tests", "__tests__", "testing", "testdata", "test_data", "fixtures", "spec", "node_modules",
    "site-packages", "dist-packages",
})  # fmt: skip
_BULK = frozenset({
    "node_modules", "site-packages", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".tox", ".nox",
})  # fmt: skip
_MARKS = GIT_MARKS | WORKTREE_MARKS
_BACKUP = re.compile(r"(?<=.)(?:~|\.(?:bak|backup|old|orig|save))+\Z")
"""The end of the name of a copy: `.env~` and `server.key.bak` are as secret as the file itself."""
_PROCESS = re.compile(r"/proc/[^/]+/(?:task/[^/]+/)?(?:environ|mem|auxv|maps|fd(?:/.*)?)")


_SUBMODULE = b"\0\0\xe0\0"
_SUBMODULE_IN_BULK = re.compile(
    rb"\0\0\xe0\0.{34,50}(?:[^\0]{0,4096}/)?(?:%b)/" % b"|".join(re.escape(name.encode()) for name in _BULK), re.DOTALL
)
"""An entry of git's index: mode, owner, size, hash, flags and path."""


# -- by name -------------------------------------------------------------------------------------------------------


class _Names:
    """A set of name patterns that decides most names by two look-ups."""

    def __init__(self, patterns: Iterable[str]) -> None:
        exact, endings, others = set(), set(), []
        for pattern in (pattern.lower() for pattern in patterns):
            bare = not re.search(r"[*?\[]", pattern[2:])
            if not re.search(r"[*?\[]", pattern):
                exact.add(pattern)
            elif pattern.startswith("*.") and bare and "." not in pattern[2:]:
                endings.add(pattern[2:])
            else:
                others.append(f"(?:{translate(pattern)})")
        self._exact, self._endings = frozenset(exact), frozenset(endings)
        self._others = re.compile("|".join(others) or r"(?!)")

    def __contains__(self, low: object) -> bool:
        assert isinstance(low, str)
        return low in self._exact or low.rpartition(".")[2] in self._endings or self._others.match(low) is not None


_SECRET, _HARMLESS = _Names(SECRET_NAMES), _Names(HARMLESS_NAMES)


def _is_secret_name(folder: str, name: str) -> bool:
    low = _BACKUP.sub("", name.lower())
    return ((low in _SECRET) and low not in _HARMLESS) or (folder.lower(), low) in SECRET_PAIRS


class _Own:
    """The owner's patterns: for a name, or with a `/` for a path (absolute, with `~`, or at the end of one)."""

    def __init__(self, patterns: tuple[str, ...], user_home: str) -> None:
        self.fixed: list[str] = []
        """The patterns that are a single absolute path."""
        names, paths = [], []
        for pattern in patterns:
            if pattern == "~" or pattern.startswith("~/"):
                pattern = f"{user_home}{pattern[1:]}"
            if "/" not in pattern.rstrip("/"):
                names.append(pattern.rstrip("/"))
            elif pattern.startswith("/") and not re.search(r"[*?\[]", pattern):
                self.fixed.append(pattern.rstrip("/"))
            else:
                paths.append(pattern.rstrip("/") if pattern.startswith("/") else f"*/{pattern.strip('/')}")
        self._names = _Names(names) if names else None
        self._paths = re.compile("|".join(f"(?:{translate(path)})" for path in paths)) if paths else None

    def __bool__(self) -> bool:
        return bool(self._names or self._paths or self.fixed)

    def matches(self, path: str, name: str) -> bool:
        """Whether a pattern matches this file or folder itself."""
        return (
            (self._names is not None and name.lower() in self._names)
            or (self._paths is not None and self._paths.match(path) is not None)
            or path in self.fixed
        )

    def covers(self, path: str) -> bool:
        """Whether a pattern matches this path or a folder above it."""
        return any(self.matches(above, above.rpartition("/")[2]) for above in _upwards(path))


@lru_cache(maxsize=16)
def _own(patterns: tuple[str, ...], user_home: str) -> _Own:
    return _Own(patterns, user_home)


def is_secret(
    path: Path, *, user_home: Path, root: Path | None = None, own: tuple[str, ...] = (), folder: bool = False
) -> bool:
    """Whether a file of this absolute path usually holds secrets; the file need not exist.

    `root`: the workspace; below it (without it: below the home) keys in a folder of tests are examples. `own`: the
    owner's patterns. `folder`: this is a folder, so names of files do not count for it.
    """
    text = path.as_posix()
    for home in _homes(str(user_home)):
        if text.startswith(f"{home}/") and _below(text[len(home) + 1 :], _AT_HOME):
            return True
    if _below(text, _IN_SYSTEM) or (text.startswith("/proc/") and _PROCESS.fullmatch(text)):
        return True
    if own and _own(own, str(user_home)).covers(text):
        return True
    parts = path.parts
    if text.startswith(_SYSTEM_ROOTS):
        return False
    if any(part.lower() in SECRET_FOLDERS for part in parts):
        return True
    above = parts[-2] if len(parts) > 1 else ""
    if folder or not _is_secret_name(above, path.name):
        return False
    return not (_KEYS.fullmatch(path.name.lower()) and _is_example(path, root or user_home))


def _is_example(path: Path, root: Path) -> bool:
    return path.is_relative_to(root) and not _EXAMPLE_FOLDERS.isdisjoint(path.relative_to(root).parts[:-1])


def places(user_home: Path, hermes_home: Path, *, own: tuple[str, ...] = ()) -> tuple[Path, ...]:
    """The paths to hide whatever the workspace, existing or not: of the home, the machine, and the owner's patterns.

    The last one is the whole Hermes home; `OPEN_IN_HERMES_HOME` names its readable folders. Besides `user_home` the
    account's own home counts, if `HOME` names another folder.
    """
    found = [Path(home, place) for home in _homes(str(user_home)) for place in HOME_PLACES]
    found += [Path(place) for place in SYSTEM_PLACES]
    found += [Path(place) for place in _own(own, str(user_home)).fixed]
    return (*dict.fromkeys(found), hermes_home)


@lru_cache(maxsize=8)
def _homes(user_home: str) -> tuple[str, ...]:
    """The given home, the account's own, and their real paths."""
    homes = [user_home.rstrip("/")]
    with suppress(KeyError):  # an account without an entry, as in containers, has no other home
        homes.append(pwd.getpwuid(os.getuid()).pw_dir.rstrip("/"))
    found = [home for one in homes for home in (one, os.path.realpath(one))]
    return tuple(dict.fromkeys(home for home in found if home not in ("", "/")))


def _below(path: str, known: frozenset[str]) -> bool:
    return any(above in known for above in _upwards(path))


def _upwards(path: str) -> Iterable[str]:
    """The path and every folder above it."""
    while path:
        yield path
        path = path.rpartition("/")[0]


# -- in a workspace ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WorkspaceFiles:
    """The secret and protected files that a walk found; existing absolute paths."""

    secrets: tuple[Path, ...]
    """Files and folders that a command must not see. For a link, its target."""
    protected: tuple[Path, ...]
    """Files and folders that a command must not change."""
    pinned: tuple[Path, ...]
    """Git's own folders: they hold protected files and are written to, but must not be replaced as a whole."""
    complete: bool
    """False if the walk reached its limits, so that it may have missed secrets."""
    unseen: tuple[Path, ...] = ()
    """Folders that the walk did not read then."""
    folders: Collection[str] = field(default=(), compare=False)
    """Every folder that the walk read."""
    worktrees: tuple[Path, ...] = ()
    """Git's folders for linked worktrees, which name the git folder they belong to."""
    links: tuple[tuple[Path, str], ...] = ()
    """Symbolic links in git folders, with their targets: git writes through them."""


def together(founds: Iterable[WorkspaceFiles]) -> WorkspaceFiles:
    """The files found in several folders, as one object."""
    every = list(founds)
    return WorkspaceFiles(
        tuple(path for one in every for path in one.secrets), tuple(path for one in every for path in one.protected),
        tuple(path for one in every for path in one.pinned), all(one.complete for one in every),
        tuple(path for one in every for path in one.unseen), {folder for one in every for folder in one.folders},
        tuple(path for one in every for path in one.worktrees), tuple(link for one in every for link in one.links),
    )  # fmt: skip


_BulkIdentity = tuple[tuple[int, int, int], ...]


@dataclass(slots=True)
class _Folder:
    """The state of a folder when it was read."""

    identity: tuple[int, int, int]
    """Device, inode and the time of its last change, which no program can set."""
    settled: bool
    """Whether every later change is certain to alter that time."""
    folders: list[str] = field(default_factory=list)
    bulk: list[str] = field(default_factory=list)
    secrets: list[str] = field(default_factory=list)
    protected: list[str] = field(default_factory=list)
    links: list[tuple[str, str]] = field(default_factory=list)
    is_git: bool = False
    is_worktree: bool = False
    entries: int = 0


@dataclass(slots=True)
class _Tree:
    """The cached walk of one workspace."""

    folders: dict[str, _Folder] = field(default_factory=dict)
    bulk: dict[str, tuple[_BulkIdentity, dict[str, _Folder]]] = field(default_factory=dict)
    """Folder → its state, and those folders below it that hold something we look for."""
    known: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    """Secret → device, inode, time of change. Moving a folder above the secret changes none of them."""
    lock: Lock = field(default_factory=Lock)


_MOST_TREES = 16
_trees: OrderedDict[tuple[str, str, tuple[str, ...]], _Tree] = OrderedDict()
_lock = Lock()
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_SETTLING_NS = 100_000_000
_SETTLING_SECONDS_NS = 2_100_000_000
"""Nanoseconds; some file systems keep times in whole seconds."""
_CONTENT_BYTES = 1_000_000
_INDEX_BYTES = 200_000_000
_NOTHING = (-1, -1, -1)


def found_in(
    root: Path,
    *,
    user_home: Path,
    own: tuple[str, ...] = (),
    writable: Iterable[Path] = (),
    thorough: bool = False,
    deepest: int = 1 << 30,
    most_entries: int = 2_000_000,
    seconds: float = 10.0,
) -> WorkspaceFiles:
    """The secrets and the protected files of a workspace, as they are now. Blocks on the file system.

    The first call reads every folder. Later calls check each folder's time of change and read only changed ones; they
    skip deep folders of `node_modules`, packages or git's objects. If a secret has moved, the next walk is thorough
    again and searches it everywhere by its inode, so that moving a folder with a secret uncovers nothing.

    `writable`: other folders a command can write to; files there that git's settings name are protected too.
    `thorough`: read every folder again.
    Beyond `most_entries`, `seconds` or `deepest` folders within each other the result is not `complete`; the caller
    must then hide the `unseen` folders, or ask.
    """
    text = os.path.realpath(root)
    with _lock:
        tree = _trees.setdefault((text, str(user_home), own), _Tree())
        _trees.move_to_end((text, str(user_home), own))
        while len(_trees) > _MOST_TREES:
            _trees.popitem(last=False)
    with tree.lock:
        if thorough:
            tree.folders, tree.bulk = {}, {}
        walk = _Walk(tree, text, str(user_home), own, most_entries, time.monotonic() + seconds, deepest)
        return walk.run(tuple(map(str, writable)))


class _Walk:
    def __init__(
        self, tree: _Tree, root: str, user_home: str, own: tuple[str, ...], most: int, deadline: float, deepest: int
    ) -> None:
        self._tree, self._root, self._own = tree, root, _own(own, user_home)
        self._user_home = user_home
        self._is_home = root in _homes(user_home)
        self._most, self._deadline, self._deepest = most, deadline, root.count("/") + deepest
        self._identities = {identity[1]: identity for identity in tree.known.values()}
        self._seen = 0

    def run(self, writable: tuple[str, ...]) -> WorkspaceFiles:
        tree = self._tree
        old, tree.folders = tree.folders, {}
        old_bulk, tree.bulk = tree.bulk, {}
        if any(birth(path) != identity for path, identity in tree.known.items()):
            old, old_bulk = {}, {}  # a secret has moved: search it everywhere
        secrets: list[str] = []
        protected: list[str] = []
        pinned: list[str] = []
        worktrees: list[str] = []
        unseen: list[str] = []
        links: list[tuple[str, str]] = []
        roots = (self._root, *writable)
        waiting = [self._root]
        while waiting:
            path = waiting.pop()
            if self._is_too_far(path):
                unseen.append(path)
                continue
            folder = self._known(path, old.get(path)) or self._read(path)
            if folder is None:
                unseen += self._closed(path)
                continue
            tree.folders[path] = folder
            self._seen += folder.entries
            waiting += folder.folders
            found = {path: folder}
            for bulk in folder.bulk:
                inside, whole = self._bulk(bulk, old_bulk.get(bulk))
                found |= inside
                if not whole:
                    unseen.append(bulk)
            for at, one in found.items():
                secrets += one.secrets
                links += one.links
                if one is folder:
                    protected += one.protected
                else:  # of the files of an installed package, only git's are obeyed from outside
                    protected += [name for name in one.protected if name.endswith("/.git")]
                if one.is_git:
                    pinned.append(at)
                    protected += git_files(at, roots, self._user_home)
                if one.is_worktree:
                    worktrees.append(at)
        tree.known = {**(tree.known if unseen else {}), **{path: birth(path) for path in secrets}}
        kept = dict.fromkeys(secrets)
        within_git = tuple(f"{git}/" for git in (*pinned, *worktrees))
        return WorkspaceFiles(
            tuple(map(Path, kept)),
            tuple(Path(path) for path in dict.fromkeys(protected) if path not in kept),
            tuple(map(Path, pinned)),
            not unseen,
            tuple(map(Path, unseen)),
            tree.folders.keys(),
            tuple(map(Path, worktrees)),
            tuple((Path(link), target) for link, target in links if link.startswith(within_git)),
        )

    def _is_too_far(self, path: str) -> bool:
        """Whether a limit of the walk is reached here."""
        return path.count("/") > self._deepest or self._seen > self._most or time.monotonic() > self._deadline

    @staticmethod
    def _known(path: str, before: _Folder | None) -> _Folder | None:
        if before is None or not before.settled:
            return None
        return before if _identity(path) == before.identity else None

    @staticmethod
    def _closed(path: str) -> list[str]:
        """What must be hidden because this folder could not be read: itself, since its owner, also a command, can open
        it again with chmod; or the folder that holds it, if it lies too deep for a path. Nothing if it is gone."""
        try:
            return [path] if stat.S_ISDIR(os.stat(path, follow_symlinks=False).st_mode) else []
        except OSError as error:
            return [path.rpartition("/")[0]] if error.errno == errno.ENAMETOOLONG else []

    def _read(self, path: str) -> _Folder | None:
        """Read a folder; None if it is gone, has become a link, or is unreadable."""
        now = time.time_ns()
        try:
            handle = os.open(path, _FOLDER_FLAGS)
        except OSError:
            return None
        try:
            status = os.fstat(handle)
            changed = status.st_ctime_ns
            margin = _SETTLING_NS if changed % 1_000_000_000 else _SETTLING_SECONDS_NS
            folder = _Folder((status.st_dev, status.st_ino, changed), changed < now - margin)
            with os.scandir(handle) as entries:
                self._sort(path, entries, folder)
        except OSError:
            return None
        finally:
            os.close(handle)
        return folder

    def _sort(self, path: str, entries: Iterable[os.DirEntry[str]], folder: _Folder) -> None:
        marks: set[str] = set()
        at_home = self._is_home and path == self._root
        parent = path.rpartition("/")[2]
        for entry in entries:
            name = entry.name
            folder.entries += 1
            full = f"{path}/{name}"
            if name in _MARKS:
                marks.add(name)
            if entry.is_symlink():
                with suppress(OSError):  # gone
                    folder.links.append((full, os.readlink(full)))  # noqa: PTH115
            if self._identities and self._is_known(entry.inode(), full):
                folder.secrets.append(full)
            elif self._own and self._own.matches(full, name):
                self._add_secret(full, entry.is_symlink(), folder)
            elif entry.is_dir(follow_symlinks=False):
                if name in SECRET_FOLDERS:
                    folder.secrets.append(full)
                    continue
                (folder.bulk if name in _BULK else folder.folders).append(full)
                if name in PROTECTED_FOLDERS:
                    folder.protected.append(full)
            else:
                if _is_secret_name(parent, name):
                    if self._holds_secret(full, name):
                        self._add_secret(full, entry.is_symlink(), folder)
                    else:
                        folder.settled = False  # its content may change without altering the folder's time
                elif name in SECRET_FOLDERS:
                    self._add_secret(full, True, folder)
                # Programs also obey a link or a file instead of such a folder.
                if name in PROTECTED_FILES or name in PROTECTED_FOLDERS or name == ".git":
                    folder.protected.append(full)
            if at_home and is_protected_at_home(name):
                folder.protected.append(full)
        folder.is_worktree = marks >= WORKTREE_MARKS
        if marks >= GIT_MARKS:
            folder.is_git = True
            objects = f"{path}/objects"
            if objects in folder.folders:
                folder.folders.remove(objects)
                folder.bulk.append(objects)

    def _is_known(self, inode: int, full: str) -> bool:
        """Whether this is a known secret, wherever it is now. Inodes are reused, so more than the inode is compared."""
        return inode in self._identities and birth(full) == self._identities[inode]

    def _holds_secret(self, full: str, name: str) -> bool:
        low = name.lower()
        if _KEYS.fullmatch(low) and not _EXAMPLE_FOLDERS.isdisjoint(full[len(self._root) :].split("/")[:-1]):
            return False
        return _content_is_secret(full, low)

    def _add_secret(self, full: str, is_link: bool, folder: _Folder) -> None:
        if not is_link:
            folder.secrets.append(full)
            return
        folder.settled = False  # a link's target may change without altering the folder's time
        target = os.path.realpath(full)
        within = self._root == target or self._root.startswith(f"{target.rstrip('/')}/")
        if within or target.startswith(_SYSTEM_ROOTS) or not (os.path.isfile(target) or os.path.isdir(target)):
            return  # hiding it would hide the workspace or a part of the system, or it does not exist
        folder.secrets.append(target)

    def _bulk(
        self, top: str, before: tuple[_BulkIdentity, dict[str, _Folder]] | None
    ) -> tuple[dict[str, _Folder], bool]:
        """The folders that matter below a folder of very many files, and whether all of it was read."""
        parts = (top, f"{top}/info", f"{top}/pack") if top.endswith("/objects") else (top,)
        identity = tuple(map(_identity, parts))
        if before is not None and before[0] == identity:
            self._tree.bulk[top] = before
            return before[1], True
        found: dict[str, _Folder] = {}
        waiting = [top]
        while waiting:
            path = waiting.pop()
            if self._is_too_far(path):
                return found, False
            folder = self._read(path)
            if folder is None and self._closed(path):
                return found, False
            if folder is not None:
                self._seen += folder.entries
                waiting += folder.folders
                waiting += folder.bulk
                if folder.secrets or folder.protected or folder.links or folder.is_git or folder.is_worktree:
                    found[path] = folder
        self._tree.bulk[top] = (identity, found)
        return found, True


def has_submodule_in_bulk(git: Path) -> bool:
    """Whether the index of a git folder names a submodule in a folder of very many files, which a walk may skip."""
    return any(_names_submodule_in_bulk(str(index), _identity(str(index))) for index in git.glob("*index*"))


@lru_cache(maxsize=64)
def _names_submodule_in_bulk(index: str, identity: tuple[int, int, int]) -> bool:
    data = plain_content(index, _INDEX_BYTES) or b""
    # Version 4 shortens paths by what they share with the path before.
    return _SUBMODULE in data and (data[4:8] == b"\0\0\0\4" or _SUBMODULE_IN_BULK.search(data) is not None)


def _identity(path: str) -> tuple[int, int, int]:
    try:
        status = os.stat(path, follow_symlinks=False)
    except OSError:
        return _NOTHING
    return status.st_dev, status.st_ino, status.st_ctime_ns


def birth(path: str | Path) -> tuple[int, int, int]:
    """Device, inode and creation time, which a file keeps when it is renamed, written to or touched."""
    try:
        status = os.stat(path, follow_symlinks=False)
    except OSError:
        return _NOTHING
    return status.st_dev, status.st_ino, _birth_time(path)


def _birth_time(path: str | Path) -> int:
    """The creation time in nanoseconds; 0 if the system does not keep it, so that the inode alone decides."""
    call = _statx()
    if call is None:
        return 0
    told = (ctypes.c_uint32 * 64)()
    # AT_FDCWD, AT_SYMLINK_NOFOLLOW, STATX_BTIME; the time of birth stands at byte 80: seconds, then nanoseconds.
    if call(-100, os.fsencode(path), 0x100, 0x800, told) != 0 or not told[0] & 0x800:
        return 0
    return ((told[21] << 32) | told[20]) * 1_000_000_000 + told[22]


@lru_cache(maxsize=1)
def _statx() -> Any:
    try:
        return ctypes.CDLL(None, use_errno=True).statx
    except (AttributeError, OSError, TypeError):  # not Linux, or an old C library
        return None


def _content_is_secret(path: str, low: str) -> bool:
    """Decide by content, for ambiguous names; an unreadable or very long file counts as secret."""
    if low == ".npmrc":
        harmless = not _matches(path, rb"_auth|_password|:(?://|_)?[^/\s]*@|certfile|\bkey\s*=")
    elif low == "auth.json":
        harmless = not _matches(path, rb"http-basic|oauth|_token|bearer|API_KEY|\"auths\"|\"key\"|\"token\"|private")
    elif low.endswith((".pem", ".key")):
        # A certificate, a public key, or a presentation.
        harmless = _matches(path, rb"\A(?:PK\x03\x04|.*-----BEGIN )") and not _matches(path, rb"PRIVATE KEY|SECRET")
    else:
        return True
    return not harmless


def _matches(path: str, pattern: bytes) -> bool:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return True
    with os.fdopen(handle, "rb", buffering=0) as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _CONTENT_BYTES:
            return status.st_size > _CONTENT_BYTES
        return re.search(pattern, file.read(_CONTENT_BYTES) or b"", re.DOTALL | re.IGNORECASE) is not None
