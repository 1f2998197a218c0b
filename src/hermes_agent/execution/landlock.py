"""The second sandbox: Landlock rules and the system-call filter, which a process applies to itself before its command.

It is used where bubblewrap cannot run, such as in a container. Landlock lists reachable paths and cannot hide a path
below a readable one (see `view`). It does not cover file modes and times, nor the names of files. This module uses only
the standard library, because the supervisor, which applies the sandbox, has nothing else.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys
from typing import Any

from hermes_agent.execution import seccomp

NEEDED = 6
"""The first version that confines signals and abstract unix sockets."""

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_PATH_BENEATH = 1
_SET_NO_NEW_PRIVS, _SET_SECCOMP, _SECCOMP_FILTER, _DROP_BOUND, _SET_DEATH_SIGNAL = 38, 22, 2, 24, 1
_CAPSET = {"x86_64": 126, "aarch64": 91}
_NEW_NETWORK, _NEW_MOUNTS = 0x40000000, 0x00020000
_MS_READ_ONLY, _MS_REMOUNT, _MS_BIND, _MS_RECURSIVE, _MS_SLAVE = 1, 1 << 5, 1 << 12, 1 << 14, 1 << 19
_OPENAT2, _AT_FDCWD, _O_PATH, _NO_LINKS = 437, -100, 0o10000000, 0x06

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 1 << 1, 1 << 2, 1 << 3
_REMOVE = (1 << 4) | (1 << 5)
_MAKE = (1 << 7) | (1 << 8) | (1 << 9) | (1 << 10) | (1 << 12)  # folder, file, socket, pipe, link; no devices
_REFER, _TRUNCATE = 1 << 13, 1 << 14
_EVERYTHING = (1 << 16) - 1
READ = _EXECUTE | _READ_FILE | _READ_DIR
WRITE = READ | _WRITE_FILE | _REMOVE | _MAKE | _REFER | _TRUNCATE
DEVICE = _READ_FILE | _WRITE_FILE | (1 << 15)
BLIND = WRITE & ~_READ_FILE
"""Rights on a folder that holds secret files: all but reading, which its other entries get one by one."""
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | (1 << 15)

_DEVICES = (
    "/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/ptmx",
)  # fmt: skip
_KERNEL_FILES = (
    "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/uptime", "/proc/loadavg", "/proc/version",
    "/proc/filesystems", "/proc/vmstat", "/proc/sys/kernel", "/proc/sys/vm", "/proc/sys/fs",
)  # fmt: skip
"""Files in /proc about the machine, not about a process."""

_HOW = struct.pack("=QQQ", _O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW, 0, _NO_LINKS)
_HOW_SIZE = ctypes.c_size_t(len(_HOW))
_libc: Any = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def version() -> int:
    """The kernel's version of Landlock; 0 if it has none or a filter blocks it."""
    if _libc is None:
        return 0
    found: int = _libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), 1)
    return max(0, found)


def restrict(rules: list[tuple[str, int]], *, sockets: seccomp.Sockets) -> None:
    """Confine the calling process permanently. Raises OSError if any part of the sandbox fails."""
    # handled: files; TCP bind and connect too where no socket may be made; scoped: abstract sockets and signals.
    network = 3 if sockets == "none" else 0
    attributes = ctypes.create_string_buffer(struct.pack("=QQQ", _EVERYTHING, network, 3), 24)
    ruleset = _checked(_libc.syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(24), 0), "landlock")
    for path, access in rules:
        _allow(ruleset, path, access)
    drop_capabilities()
    _checked(_libc.prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    _checked(_libc.syscall(_RESTRICT_SELF, ruleset, 0), "landlock")
    os.close(ruleset)
    load_filter(seccomp.program(os.uname().machine, sockets))


def opened(path: str) -> int:
    """A descriptor for a real path, without following a link anywhere in it.

    Another command may run in the same workspace and replace a folder by a link while this one starts.
    """
    return _checked(_libc.syscall(_OPENAT2, _AT_FDCWD, os.fsencode(path), _HOW, _HOW_SIZE), path)


def _allow(ruleset: int, path: str, access: int) -> None:
    """Add one rule. A missing path needs none."""
    try:
        handle = opened(path)
    except OSError as error:
        if error.errno == errno.ENOSYS:
            raise
        return
    try:
        for rights in (access, access & _OF_FILES):  # a file, which has no more rights than those, is refused others
            rule = struct.pack("=Qi", rights, handle)
            if _libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0) == 0:
                return
        _checked(-1, path)
    finally:
        os.close(handle)


def drop_capabilities() -> None:
    """Give up root's capabilities. Does nothing for other users."""
    for capability in range(64):
        if _libc.prctl(_DROP_BOUND, capability, 0, 0, 0) != 0:
            break
    header = ctypes.create_string_buffer(struct.pack("=Ii", 0x20080522, 0), 8)
    nothing = ctypes.create_string_buffer(24)
    _checked(_libc.syscall(_CAPSET[os.uname().machine], header, nothing), "capset")


def load_filter(program: bytes) -> None:
    class FilterProgram(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("lines", ctypes.c_void_p))

    lines = ctypes.create_string_buffer(program, len(program))
    packed = FilterProgram(len(program) // 8, ctypes.addressof(lines))
    _checked(_libc.prctl(_SET_SECCOMP, _SECCOMP_FILTER, ctypes.byref(packed), 0, 0), "seccomp")


def die_with_parent(signal: int) -> None:
    """Ask the kernel for a signal when the thread that started this process ends."""
    _checked(_libc.prctl(_SET_DEATH_SIGNAL, signal, 0, 0, 0), "PR_SET_PDEATHSIG")


def adopt_orphans() -> None:
    """Become the parent of orphaned descendants."""
    _checked(_libc.prctl(36, 1, 0, 0, 0), "PR_SET_CHILD_SUBREAPER")


def leave_network() -> None:
    """Enter a new, empty network namespace."""
    _checked(_libc.unshare(_NEW_NETWORK), "network")


def make_devices_read_only() -> None:
    """Enter mounts of our own, in which nobody can change the modes and times of devices."""
    _checked(_libc.unshare(_NEW_MOUNTS), "mounts")
    _checked(_libc.mount(b"none", b"/", None, _MS_RECURSIVE | _MS_SLAVE, None), "mounts")
    for device in map(os.fsencode, filter(os.path.exists, (*_DEVICES, "/dev/tty"))):
        _checked(_libc.mount(device, device, None, _MS_BIND, None), "devices")
        _checked(_libc.mount(b"none", device, None, _MS_BIND | _MS_REMOUNT | _MS_READ_ONLY, None), "devices")


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)
    return result


def rules(
    read: list[str], write: list[str], hidden: list[str], kept: list[str], *, scratch: str
) -> list[tuple[str, int]]:
    """The rules for these folders. A folder with hidden files gets a rule for each of its other entries instead.

    `kept`: folders in which nothing may be written, wherever they are; nor can new entries be made in a folder that
    holds one of them.
    """
    found: list[tuple[str, int]] = [(path, DEVICE) for path in _DEVICES]
    found += [(path, READ & ~_EXECUTE) for path in _KERNEL_FILES]
    found.append((scratch, WRITE))
    spread = _Spread(hidden, kept, found)
    for access, roots in ((READ, read), (WRITE, write)):
        for root in roots:
            spread.add(root, access)
    return found


class _Spread:
    """Adds the rule for a folder, or for its entries one by one where they have different rights."""

    def __init__(self, hidden: list[str], kept: list[str], found: list[tuple[str, int]]) -> None:
        self._hidden, self._kept, self._found = set(hidden), set(kept), found
        self._above_hidden = {parent for path in hidden for parent in _parents(path)}
        self._above_kept = {parent for path in kept for parent in _parents(path)}

    def add(self, path: str, access: int) -> None:
        waiting = [(path, access)]  # a command can make folders that are deeper than calls can be
        while waiting:
            waiting += self._within(*waiting.pop())

    def _within(self, path: str, access: int) -> list[tuple[str, int]]:
        """Add a rule for the path itself; returns its entries that need rules of their own."""
        if path in self._hidden:
            return []
        if path in self._kept:
            access &= READ
        fixed = access == WRITE and path in self._above_kept
        if path in self._above_hidden:
            # New files can be created here, unless it is fixed; the next command can read them.
            self._found.append((path, BLIND if access == WRITE and not fixed else _READ_DIR))
        else:
            self._found.append((path, READ if fixed else access))
            if not fixed:
                return []
        try:
            with os.scandir(path) as entries:
                within = [(entry.path, entry.is_dir()) for entry in entries if not entry.is_symlink()]
        except OSError:  # unreadable or gone: nothing in it is allowed
            return []
        return [(name, access if is_folder else access & _OF_FILES) for name, is_folder in within]


def _parents(path: str) -> list[str]:
    found: list[str] = []
    while (path := path.rpartition("/")[0]) != "":
        found.append(path)
    return found
