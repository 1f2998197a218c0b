"""The part of the file system that a confined command sees: the workspace and an allow-list of folders.

Readable are the system's folders, the tool chains in the person's home (on PATH, or by usual names), the skills of
Hermes and the folders of `sandbox.read`. Writable are the workspace, its git folder and the folders of `sandbox.write`.
The rest of the home, /run, /var and /tmp are absent; this also keeps a command from the unix sockets of other programs,
because a socket can be connected to through a read-only mount. Secret files inside a visible folder are covered; files
that other programs run at their start are read-only.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from hermes_agent.execution.base import CLOSED, SandboxOpening
from hermes_config import secret_files
from hermes_config.protected_files import plain_content

_SYSTEM = (
    "/usr", "/etc", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/gnu", "/snap",
    "/nix/store", "/nix/var/nix/profiles", "/var/lib/texmf",  # beside the profiles is the socket of Nix
)  # fmt: skip
_IN_HOME = (
    ".pyenv", ".rbenv", ".nodenv", ".asdf", ".nvm", ".volta", ".fnm", ".bun", ".deno", ".cargo", ".rustup", ".sdkman",
    ".local/bin", ".local/lib", ".local/pipx", ".local/share/pipx", ".local/share/uv", ".local/share/mise",
    ".local/share/fnm", ".local/share/pnpm", ".local/share/virtualenvs", ".virtualenvs", "go", ".go", ".ghcup", ".opam",
    ".dotnet", ".juliaup", ".julia/juliaup", ".m2/repository", ".gradle/wrapper", ".npm-global", ".gem", "bin",
    "anaconda3", "miniconda3", "miniforge3", "mambaforge", ".linuxbrew", ".nix-profile", ".config/git/ignore",
    ".config/git/attributes", ".cache/ms-playwright",
)  # fmt: skip
_NAMED_BY = (
    "VIRTUAL_ENV", "CONDA_PREFIX", "PYENV_ROOT", "NVM_DIR", "GOPATH", "GOROOT", "CARGO_HOME", "RUSTUP_HOME",
    "JAVA_HOME",
)  # fmt: skip
_TOO_WIDE = frozenset(
    map(Path, ("/", "/home", "/usr", "/etc", "/var", "/opt", "/tmp", "/run", "/dev", "/proc", "/sys"))
)
_STANDING_SECONDS = 10
_ETC_SECONDS = 60
_KEY_IN_SETTINGS = re.compile(rb"https?://[^/\s@]+@|://[^/\s@]*:[^/\s@]+@|extraheader|password|token", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class FilesystemView:
    """The paths that one command sees. All are absolute and real."""

    workspace: Path
    user_home: Path
    read: tuple[Path, ...]
    write: tuple[Path, ...]
    hidden: tuple[Path, ...] = ()
    """Secret files and folders below the visible ones."""
    protected: tuple[Path, ...] = ()
    """Read-only below the writable ones; whoever knows them adds them."""
    links: Mapping[str, str] = field(default_factory=dict)
    """Folders of the system that are links (`/bin` → `usr/bin`)."""

    def holds(self, path: Path) -> bool:
        """Whether the command sees a path."""
        return is_below(path, (*self.read, *self.write))


def too_wide(folder: Path, user_home: Path) -> bool:
    """Whether a folder cannot be a workspace, because it holds far more than a project."""
    return folder in _TOO_WIDE or (user_home != folder and user_home.is_relative_to(folder))


def view(
    *,
    workspace: Path,
    home: Path,
    environ: Mapping[str, str],
    read: Iterable[Path] = (),
    write: Iterable[Path] = (),
    opening: SandboxOpening = CLOSED,
    hidden: Iterable[Path] = (),
    own: tuple[str, ...] = (),
    git_writable: bool = True,
    secrets_in: Callable[[Path], Iterable[Path]] = lambda folder: (),
) -> FilesystemView:
    """The view of a command in this workspace.

    `home` is Hermes' own; `hidden` lies in the workspace; `own` are the owner's patterns of secrets;
    `git_writable`: whether the sandbox can protect git's settings in a git folder outside the workspace; `secrets_in`
    finds the files to hide in other visible folders.
    """
    user_home = Path(os.path.realpath(environ.get("HOME") or Path.home()))
    root = Path(os.path.realpath(workspace))
    repository, git_folders = _repository(root, user_home)
    if not git_writable:
        repository, git_folders = [*repository, *git_folders], []
    writable = _outermost(_real([root, *git_folders, *write, *map(Path, opening.folders)]), user_home)
    key = tuple((name, environ.get(name, "")) for name in ("PATH", *_NAMED_BY))
    standing = _always_readable(user_home, key, home, int(time.monotonic() / _STANDING_SECONDS))
    more = _real([*repository, *read, *_settings(user_home), *([Path("/etc/resolv.conf")] if opening.network else [])])
    readable = _outermost([*standing, *more], user_home) if more else list(standing)
    visible = (*readable, *writable)
    beside = _real([*repository, *read, *write, *map(Path, opening.folders)])
    links = _links(user_home)
    secrets = [*_places_within_reach(user_home, home, own, visible, links), *hidden]
    secrets += _closed_in_etc(int(time.monotonic() / _ETC_SECONDS)) if os.geteuid() == 0 else ()
    secrets += [path for folder in beside if not is_below(folder, [root]) for path in secrets_in(folder)]
    return FilesystemView(
        workspace=root,
        user_home=user_home,
        # Paths below a writable folder are not mounted by name: a command could have replaced them by links.
        read=tuple(path for path in readable if not is_below(path, writable)),
        write=tuple(writable),
        hidden=tuple(
            path for path in dict.fromkeys(_below(secrets, visible)) if is_below(path, writable) or not _empty(path)
        ),
        links=_system()[0],
    )


@lru_cache(maxsize=8)
def _always_readable(
    user_home: Path, environ: tuple[tuple[str, str], ...], home: Path, moment: int
) -> tuple[Path, ...]:
    """The paths readable in every workspace. A newly installed tool chain appears some seconds later."""
    _, system = _system()
    found = _real([*system, *_tool_chains(user_home, environ), home / "skills"])
    return tuple(_outermost(found, user_home))


@lru_cache(maxsize=8)
def _places_within_reach(
    user_home: Path, home: Path, own: tuple[str, ...], visible: tuple[Path, ...], links: frozenset[str]
) -> tuple[Path, ...]:
    """The paths to hide, without those that are not visible anyway: most are in an absent part of the home.

    A path is reachable if its name lies below a visible folder, or if the part of the home it lies in is a link.
    """
    roots = tuple(f"{root}/" for root in visible)
    start = f"{user_home}/"

    def reached(text: str) -> bool:
        below_home = text.startswith(start) and text[len(start) :].partition("/")[0] not in links
        return not below_home or f"{text}/".startswith(roots)

    return tuple(path for path in secret_files.places(user_home, home, own=own) if reached(str(path)))


@lru_cache(maxsize=1)
def _closed_in_etc(moment: int) -> tuple[Path, ...]:
    """The files and folders of /etc that only root can read, as Hermes does: they hold passwords and keys."""
    found: list[Path] = []
    waiting = ["/etc"]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.is_symlink():
                        continue
                    if not entry.stat().st_mode & 0o004:
                        found.append(Path(entry.path))
                    elif entry.is_dir():
                        waiting.append(entry.path)
        except OSError:  # removed meanwhile
            continue
    return tuple(found)


def _links(folder: Path) -> frozenset[str]:
    try:
        with os.scandir(folder) as entries:
            return frozenset(entry.name for entry in entries if entry.is_symlink())
    except OSError:
        return frozenset()


def _real(paths: Iterable[Path]) -> list[Path]:
    """The real paths of those that exist. Uses strings for speed: this runs before every command."""
    return [Path(text) for text in dict.fromkeys(map(_real_path, map(str, paths))) if text is not None]


def _real_path(path: str) -> str | None:
    """The real path; None for a missing one. Asking the kernel takes a fifth of the time of `realpath`."""
    if sys.platform != "linux":
        return os.path.realpath(path) if os.path.exists(path) else None  # noqa: PTH110
    try:
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return os.readlink(f"/proc/self/fd/{handle}")  # noqa: PTH115
    finally:
        os.close(handle)


def _outermost(paths: Iterable[Path], user_home: Path) -> list[Path]:
    """The paths without those below another one, because each mount costs a fraction of a millisecond.

    The home is a mount of its own, so paths in it do not lie below anything outside it.
    """
    kept: list[str] = []
    for path in sorted(map(str, paths), key=lambda one: (one.startswith(f"{user_home}/"), one)):
        at_home = path.startswith(f"{user_home}/")
        around = (one for one in kept if one.startswith(f"{user_home}/") == at_home or one == str(user_home))
        if not any(path.startswith(f"{one}/") for one in around):
            kept.append(path)
    return [Path(path) for path in kept]


def is_below(path: Path, roots: Iterable[Path | str]) -> bool:
    """Whether a path is one of these folders or lies in one."""
    return f"{path}/".startswith(tuple(f"{root}/" for root in roots))  # three times as fast as `is_relative_to`


def _below(paths: Iterable[Path], visible: Iterable[Path]) -> list[Path]:
    """The real paths of those that exist and lie below a visible folder."""
    roots = tuple(f"{root}/" for root in visible)
    return [path for path in _real(paths) if f"{path}/".startswith(roots)]


def _empty(path: Path) -> bool:
    """Whether a folder is empty, like most /etc/ssl/private, so that it needs no cover."""
    try:
        if path.is_dir():
            with os.scandir(path) as entries:
                return next(entries, None) is None
        return path.is_file() and not path.stat().st_size
    except OSError:
        return False


@lru_cache(maxsize=1)
def _system() -> tuple[dict[str, str], tuple[Path, ...]]:
    links = {name: os.readlink(name) for name in _SYSTEM if os.path.islink(name)}  # noqa: PTH114, PTH115
    return links, tuple(Path(name) for name in _SYSTEM if name not in links and os.path.exists(name))  # noqa: PTH110


@lru_cache(maxsize=8)
def _tool_chains(user_home: Path, environ: tuple[tuple[str, str], ...]) -> tuple[Path, ...]:
    """The folders of programs: those on PATH, those that variables name, and the usual ones of a home."""
    named = dict(environ)
    found = [user_home / name for name in _IN_HOME]
    found += [Path(named[name]) for name in _NAMED_BY if named.get(name)]
    found += [Path(sys.prefix), Path(sys.base_prefix), Path(os.path.realpath(sys.executable)).parent]
    for entry in filter(None, named.get("PATH", "").split(os.pathsep)):
        folder = Path(os.path.abspath(entry))  # noqa: PTH100 - links are resolved later
        found.append(folder)
        prefix = Path(os.path.realpath(folder)).parent
        if folder.name in ("bin", "sbin", "shims", "Scripts") and prefix.is_relative_to(user_home):
            # ~/.local and the home itself hold far more than programs; deeper folders are tool chains.
            if prefix != user_home and prefix.name != ".local":
                found.append(prefix)
        elif folder.name in ("bin", "sbin"):
            found.append(prefix)
    return tuple(path for path in found if not too_wide(Path(os.path.realpath(path)), user_home) and path != user_home)


def _settings(user_home: Path) -> list[Path]:
    """The person's git settings, which hold the name for commits; left out if they also hold a key."""
    kept: list[Path] = []
    for path in (user_home / ".gitconfig", user_home / ".config/git/config"):
        try:
            text = path.read_bytes()
        except OSError:
            continue
        if not _KEY_IN_SETTINGS.search(text):
            kept.append(path)
    return kept


def _repository(root: Path, user_home: Path) -> tuple[list[Path], list[Path]]:
    """The workspace's repository: (further paths to read, outside git folders to write)."""
    for folder in (root, *root.parents):
        if folder in _TOO_WIDE or (folder == user_home and folder != root):
            return [], []
        git = folder / ".git"
        if git.is_dir():
            return ([folder], [git]) if folder != root else ([], [])
        if git.is_file():
            common = _linked_worktree(git)
            return ([folder] if folder != root else []), [common] if common else []
    return [], []


def _linked_worktree(pointer: Path) -> Path | None:
    """The git folder that a worktree's `.git` file names, if that folder names the worktree in return.

    The second condition makes it safe: a command can write the file, but not the git folder outside the workspace.
    """
    named = os.fsdecode(plain_content(pointer, 4096) or b"").partition("gitdir:")[2].strip()
    if not named or "\0" in named:
        return None
    own = Path(os.path.realpath(pointer.parent / named))
    back = os.fsdecode(plain_content(own / "gitdir", 4096) or b"").strip()
    if "\0" in back:
        return None
    if own.parent.name != "worktrees" or os.path.realpath(back) != os.path.realpath(pointer):
        return None
    if own.is_relative_to(os.path.realpath(pointer.parent)):
        return None  # inside the workspace, where a command can have written both
    return own.parent.parent
