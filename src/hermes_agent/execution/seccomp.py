"""The filter of system calls that every confined command runs under, as a program for the kernel (classic BPF).

It refuses what no sandbox of mounts can stop: tracing and reading other processes, io_uring, new namespaces and mounts,
kernel interfaces that had most of the escapes (bpf, keyrings, userfaultfd …), system calls of a foreign architecture,
typing into a terminal, files with the set-user-id bit, and families of sockets that are not the network's. Where the
command shares its processes with the machine, it also refuses changes of other processes that are not signals.

A refused call fails with EPERM, so programs go on without it. `clone3` and `openat2` fail with ENOSYS, because their
arguments lie in memory that a filter cannot read; the C library then uses `clone` and `openat`, which it can.
"""

from __future__ import annotations

import errno
import struct
from functools import lru_cache
from typing import Literal

Sockets = Literal["private", "network", "none"]
"""The sockets a command may create. `private`: it has its own network namespace, so unix and internet sockets.
`network`: internet sockets alone (without a namespace a unix socket would reach services of the machine). `none`: none;
`socketpair` works always."""

_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN, _AND = 0x20, 0x15, 0x35, 0x45, 0x06, 0x54
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_X32 = 0x40000000
_NAMESPACES = 0x7E020000  # CLONE_NEW*, but for NEWTIME, which only clone3 and unshare know
_SET_ID = 0o6000
_MAKES_FILE = 0o100 | 0o20000000  # O_CREAT, O_TMPFILE without O_DIRECTORY
_TERMINAL_INPUT = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX
_PERSONALITIES = (0, 0x0040000, 0xFFFFFFFF)  # the plain one, without address randomisation, asking
_INTERNET, _INTERNET6, _UNIX, _NETLINK = 2, 10, 1, 16
_DATAGRAM = 2
_DEVICE_NEWS = 15  # NETLINK_KOBJECT_UEVENT, which tells of the machine's devices

# name: (number on x86_64, number on aarch64); None where the architecture does not have it.
_NUMBERS: dict[str, tuple[int | None, int | None]] = {
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "pidfd_getfd": (438, 438), "process_madvise": (440, 440), "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426), "io_uring_register": (427, 427), "bpf": (321, 280),
    "perf_event_open": (298, 241), "userfaultfd": (323, 282), "add_key": (248, 217), "request_key": (249, 218),
    "keyctl": (250, 219), "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41),
    "move_mount": (429, 429), "open_tree": (428, 428), "fsopen": (430, 430), "fsconfig": (431, 431),
    "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442), "open_tree_attr": (467, 467),
    "unshare": (272, 97), "setns": (308, 268), "chroot": (161, 51), "init_module": (175, 105),
    "finit_module": (313, 273), "delete_module": (176, 106), "kexec_load": (246, 104), "kexec_file_load": (320, 294),
    "reboot": (169, 142), "swapon": (167, 224), "swapoff": (168, 225), "acct": (163, 89), "syslog": (103, 116),
    "quotactl": (179, 60), "quotactl_fd": (443, 443), "open_by_handle_at": (304, 265), "fanotify_init": (300, 262),
    "settimeofday": (164, 170), "clock_settime": (227, 112), "clock_adjtime": (305, 266), "adjtimex": (159, 171),
    "sethostname": (170, 161), "setdomainname": (171, 162), "vhangup": (153, 58), "ioperm": (173, None),
    "iopl": (172, None), "modify_ldt": (154, None), "uselib": (134, None), "nfsservctl": (180, 42),
}  # fmt: skip
# Shared memory, semaphores and queues that any process of the machine can name.
_NAMED_BY_ALL: tuple[tuple[int, int], ...] = (
    (29, 194), (30, 196), (31, 195), (64, 190), (65, 193), (220, 192), (66, 191), (68, 186), (69, 189), (70, 188),
    (71, 187), (240, 180), (241, 181),
)  # fmt: skip
_NOT_THERE = {"clone3": (435, 435), "openat2": (437, 437)}
_CLONE, _SOCKET, _SOCKETPAIR, _IOCTL, _PERSONALITY = (56, 220), (41, 198), (53, 199), (16, 29), (135, 92)
# (number, argument) of every call that sets a mode, and for those that only may: the argument with their flags.
_MODES: tuple[tuple[tuple[int | None, int | None], int, int | None], ...] = (
    ((90, None), 1, None), ((91, 52), 1, None), ((268, 53), 2, None), ((452, 452), 2, None),  # chmod and its kin
    ((85, None), 1, None), ((133, None), 1, None), ((259, 33), 2, None),  # creat, mknod, mknodat
    ((2, None), 2, 1), ((257, 56), 3, 2),  # open, openat
)  # fmt: skip
# Calls by which a process changes another one, and the argument that names it; 0 is the caller itself. For those whose
# first argument says what is named: the values for a process and a group, so that nobody names all of a user's.
_OF_OTHERS: tuple[tuple[tuple[int, int], int, tuple[int, int] | None], ...] = (
    ((302, 261), 0, None), ((141, 140), 1, (0, 1)), ((251, 30), 1, (1, 2)), ((203, 122), 0, None),
    ((144, 119), 0, None), ((142, 118), 0, None), ((314, 274), 0, None), ((256, 238), 0, None), ((279, 239), 0, None),
)  # fmt: skip
_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}


def supported(machine: str) -> bool:
    return machine in _ARCHITECTURES


@lru_cache(maxsize=4)
def program(machine: str, sockets: Sockets) -> bytes:
    """The filter for this architecture (`os.uname().machine`), as an array of `struct sock_filter`."""
    column, audit = _ARCHITECTURES[machine]
    filters = _Filter()
    filters.load(_ARCHITECTURE)
    filters.skip_unless(_EQUAL, audit, [(_RETURN, 0, 0, _KILL)], when=False)
    filters.load(_NUMBER)
    if machine == "x86_64":
        filters.skip_unless(_AT_LEAST, _X32, [(_RETURN, 0, 0, _KILL)])
    for numbers in _NUMBERS.values():
        filters.refuse_number(numbers[column])
    for numbers in _NOT_THERE.values():
        filters.refuse_number(numbers[column], errno.ENOSYS)
    filters.refuse_if(_CLONE[column], 0, _ANY_BIT, (_NAMESPACES,))
    filters.refuse_if(_IOCTL[column], 1, _EQUAL, _TERMINAL_INPUT)
    filters.refuse_unless(_PERSONALITY[column], 0, _PERSONALITIES)
    for numbers, argument, flags in _MODES:
        filters.refuse_modes(numbers[column], argument, flags)
    families = {"private": (_UNIX, _INTERNET, _INTERNET6, _NETLINK), "network": (_INTERNET, _INTERNET6, _NETLINK)}
    filters.refuse_device_news(_SOCKET[column])
    filters.refuse_unless(_SOCKET[column], 0, families.get(sockets, ()))
    if sockets != "private":
        for numbers in _NAMED_BY_ALL:
            filters.refuse_number(numbers[column])
        filters.refuse_datagram_pairs(_SOCKETPAIR[column])
        for numbers, argument, kinds in _OF_OTHERS:
            filters.refuse_others(numbers[column], argument, kinds)
    filters.refuse_unless(_SOCKETPAIR[column], 0, (_UNIX,))
    filters.add(_RETURN, _ALLOW)
    return filters.encoded()


class _Filter:
    """Builds the program. After each test, the accumulator holds the number of the system call."""

    def __init__(self) -> None:
        self._lines: list[tuple[int, int, int, int]] = []

    def add(self, code: int, value: int) -> None:
        self._lines.append((code, 0, 0, value))

    def load(self, offset: int) -> None:
        self.add(_LOAD, offset)

    def skip_unless(self, test: int, value: int, body: list[tuple[int, int, int, int]], *, when: bool = True) -> None:
        """Run `body` when the test holds (or, with `when` false, when it does not)."""
        yes, no = (0, len(body)) if when else (len(body), 0)
        self._lines.append((test, yes, no, value))
        self._lines += body

    def refuse_number(self, number: int | None, error: int = errno.EPERM) -> None:
        if number is not None:
            self.skip_unless(_EQUAL, number, [(_RETURN, 0, 0, _ERRNO | error)])

    def refuse_if(self, number: int, argument: int, test: int, values: tuple[int, ...]) -> None:
        """Refuse the call when the test holds between its argument and one of the values."""
        body: list[tuple[int, int, int, int]] = [_argument(argument)]
        for value in values:
            body += [(test, 0, 1, value), (_RETURN, 0, 0, _ERRNO | errno.EPERM)]
        self.skip_unless(_EQUAL, number, [*body, (_RETURN, 0, 0, _ALLOW)])

    def refuse_unless(self, number: int, argument: int, values: tuple[int, ...]) -> None:
        """Refuse the call unless its argument is one of the values."""
        body: list[tuple[int, int, int, int]] = [_argument(argument)]
        for value in values:
            body += [(_EQUAL, 0, 1, value), (_RETURN, 0, 0, _ALLOW)]
        self.skip_unless(_EQUAL, number, [*body, (_RETURN, 0, 0, _ERRNO | errno.EPERM)])

    def refuse_others(self, number: int, argument: int, kinds: tuple[int, int] | None) -> None:
        """Refuse the call unless it names the caller; with `kinds`, unless its first argument is one of the two."""
        refusal = (_RETURN, 0, 0, _ERRNO | errno.EPERM)
        body = [_argument(argument), (_EQUAL, 0, 1, 0), (_RETURN, 0, 0, _ALLOW), refusal]
        if kinds is not None:
            body = [_argument(0), (_EQUAL, 2, 0, kinds[0]), (_EQUAL, 1, 0, kinds[1]), refusal, *body]
        self.skip_unless(_EQUAL, number, body)

    def refuse_modes(self, number: int | None, mode: int, flags: int | None) -> None:
        """Refuse a mode with the set-user-id or set-group-id bit; with `flags`, only where a file may be made."""
        if number is None:
            return
        body = [_argument(mode), (_ANY_BIT, 0, 1, _SET_ID), (_RETURN, 0, 0, _ERRNO | errno.EPERM)]
        if flags is not None:
            body = [_argument(flags), (_ANY_BIT, 0, len(body), _MAKES_FILE), *body]
        self.skip_unless(_EQUAL, number, [*body, (_RETURN, 0, 0, _ALLOW)])

    def refuse_datagram_pairs(self, number: int) -> None:
        """Refuse datagram pairs: one end could be connected to another socket of the machine later."""
        refusal = (_RETURN, 0, 0, _ERRNO | errno.EPERM)
        body = [_argument(1), (_AND, 0, 0, 0xF), (_EQUAL, 0, 1, _DATAGRAM), refusal, (_LOAD, 0, 0, _NUMBER)]
        self.skip_unless(_EQUAL, number, body)

    def refuse_device_news(self, number: int) -> None:
        refusal = (_RETURN, 0, 0, _ERRNO | errno.EPERM)
        body = [_argument(0), (_EQUAL, 0, 3, _NETLINK), _argument(2), (_EQUAL, 0, 1, _DEVICE_NEWS), refusal]
        self.skip_unless(_EQUAL, number, [*body, (_LOAD, 0, 0, _NUMBER)])

    def encoded(self) -> bytes:
        return b"".join(struct.pack("=HBBI", *line) for line in self._lines)


def _argument(place: int) -> tuple[int, int, int, int]:
    """Load the low half of an argument, which is all the tests above need, on little-endian machines."""
    return (_LOAD, 0, 0, _ARGUMENTS + 8 * place)
