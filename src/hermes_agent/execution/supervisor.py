"""The process that starts commands for Hermes and outlives it just long enough to end them.

Hermes starts one supervisor at its first command. It is small and has one thread, so it can fork safely and cheaply. It
keeps two keepers ready, one for each of the next requests. A keeper starts the command (with bubblewrap, with Landlock,
or with limits only), adopts the command's orphans, watches memory, processes and disk, and reports the end to Hermes.
It ends all its descendants when Hermes says so or dies, also by kill -9, because the socket to Hermes then closes.

A request is one byte with three descriptors (a socket to Hermes, where the output goes, the working folder), or with
five (also its input, and its output without its errors), so that one keeper gets it whole; what to run follows on that
socket as a JSON object. This file runs as a program of its own: it imports the standard library and its neighbours,
nothing else.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import json
import os
import resource
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Iterator
from typing import Any, NoReturn

from hermes_agent.execution import landlock, seccomp
from hermes_agent.execution.base import BINDS, FILTER_FD, STATUS_FD

_READY = 2
_MOST_LOST = 10
"""Keepers in a row that ended before they took a request: then they cannot work here, and who waits is told."""
_LOOK_SECONDS = 0.1
_START_SECONDS = 0.02
_KILLING_SECONDS = 10.0
"""Seconds after which an unkillable process (one that waits for a lost disk) is left alone."""
_SET_UP_FAILED = 125
_SET_FLAGS, _UP = 0x8914, 1  # of a network interface
_KILLED_FIRST = 500
"""Points of 1000 for the kernel's choice of what to end when memory runs out."""
_MOST_PROCESSES = 8192
"""The limit for all commands of all Hermes processes on the machine together."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ)


def main(channel: int, *, own_networks: bool) -> None:
    """Keep keepers ready for the next requests, until Hermes closes the channel.

    `own_networks`: the commands have only a loopback network, so each keeper waits in such a network. A keeper takes a
    request itself and reports it only when its command runs or has ended: forking the next keeper while the sandbox is
    being built would cost the command a millisecond.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # Ctrl-C in a terminal is for Hermes; we end when it does
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    _bound_processes()
    gc.freeze()
    with socket.socket(fileno=channel) as requests:
        ready = [_new_keeper(requests, own_networks) for _ in range(_READY)]
        lost = 0
        while True:
            for taken in select.select(ready, [], [])[0]:
                lost = 0 if os.read(taken, 1) else lost + 1
                if lost and (lost > _MOST_LOST or _is_closed(requests)):
                    return
                os.close(taken)
                ready.remove(taken)
                ready.append(_new_keeper(requests, own_networks))


def _is_closed(requests: socket.socket) -> bool:
    """Whether Hermes is gone; a keeper may also have been killed."""
    try:
        return not requests.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True


def _new_keeper(requests: socket.socket, own_networks: bool) -> int:
    """Fork a keeper; return the descriptor on which it reports that it has taken a request."""
    taken, taking = os.pipe()
    if os.fork() == 0:
        os.close(taken)
        _keep(requests, taking, own_networks)
    os.close(taking)
    return taken


def _bound_processes() -> None:
    """If Hermes is root, put all commands into one control group, the only process limit that applies to root.

    The group is entered once, because each move into another costs milliseconds. Best effort: in most containers the
    control group file system is read-only, and only the count of a command's processes is checked.
    """
    if os.geteuid() != 0 or sys.platform != "linux":
        return
    unified = os.path.exists("/sys/fs/cgroup/cgroup.controllers")  # noqa: PTH110
    path = "/sys/fs/cgroup/hermes-commands" if unified else "/sys/fs/cgroup/pids/hermes-commands"
    with contextlib.suppress(OSError):
        os.makedirs(path, exist_ok=True)  # noqa: PTH103
        _write(f"{path}/pids.max", str(_MOST_PROCESSES))
        _write(f"{path}/cgroup.procs", "0")


def _warm_up() -> None:
    """Use the memory that a command will need, while nobody waits: a fork copies each page on first use."""
    json.loads(json.dumps({"argv": ["x"] * 100, "environ": {str(number): "x" for number in range(20)}}))
    os.fsencode("/"), os.uname(), seccomp.program(os.uname().machine, "private")
    reading, writing = os.pipe()
    select.select([reading], [], [], 0)
    os.close(reading)
    os.close(writing)
    _below(os.getpid())
    _tasks()


def _receive(requests: socket.socket) -> tuple[socket.socket, int, int, int, int] | None:
    """The next request's socket to Hermes, its output, its working folder, and its two streams or -1."""
    signs, descriptors, _, _ = socket.recv_fds(requests, 1, 5)
    if not signs:
        return None
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    control, output, folder, source, sink = (*descriptors, -1, -1)[:5]
    return socket.socket(fileno=control), output, folder, source, sink


def _read_request(hermes: socket.socket) -> dict[str, Any] | None:
    """Read a request: four bytes with its length, then its JSON; None if Hermes closed the socket."""
    head = hermes.recv(4, socket.MSG_WAITALL)
    if len(head) < 4:
        return None
    left = int.from_bytes(head, "big")
    parts: list[bytes] = []
    while left:
        part = hermes.recv(min(left, 1 << 18))
        if not part:
            return None
        parts.append(part)
        left -= len(part)
    request: dict[str, Any] = json.loads(b"".join(parts))
    return request


def _keep(requests: socket.socket, taking: int, own_network: bool) -> NoReturn:
    """One command from its request to the end of everything it started."""
    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        if sys.platform == "linux":
            landlock.adopt_orphans()
        inside = own_network and _enter_own_network()
        _warm_up()
        received = _receive(requests)
        if received is None:
            os._exit(0)
        requests.close()
        hermes, output, folder, source, sink = received
        with hermes:
            request = _read_request(hermes)
            if request is None:
                os._exit(0)
            keeper = _Keeper(request, hermes, output, folder, taking=taking, inside=inside, source=source, sink=sink)
            try:
                keeper.run()
            finally:
                keeper.say_taken()
        code = 0
    finally:
        os._exit(code)


def _enter_own_network() -> bool:
    """Enter a new network with only a loopback; False if bubblewrap has to do that.

    bubblewrap would do it while somebody waits. Only root can do it without a user namespace.
    """
    if sys.platform != "linux" or os.geteuid() != 0:
        return False
    try:
        landlock.leave_network()
        _keep_devices()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as loopback:
            fcntl.ioctl(loopback, _SET_FLAGS, struct.pack("16sH14x", b"lo", _UP))
    except OSError:  # as in most containers; where only the loopback is refused, bubblewrap makes a network of its own
        return False
    return True


def _keep_devices() -> None:
    """Leave the machine's mounts for a copy in which devices are read-only, which does not keep anybody from writing to
    them. Otherwise a command of root, who owns /dev/null, could close it to every program of the machine."""
    if sys.platform == "linux" and os.geteuid() == 0:
        with contextlib.suppress(OSError):  # in most containers root has no right to mount
            landlock.make_devices_read_only()


class _Keeper:
    def __init__(
        self,
        request: dict[str, Any],
        hermes: socket.socket,
        output: int,
        folder: int,
        *,
        taking: int = -1,
        inside: bool = False,
        source: int = -1,
        sink: int = -1,
    ) -> None:
        self._request, self._hermes, self._output, self._folder = request, hermes, output, folder
        self._taking = taking
        self._source = source
        """Where the command reads its input; -1: it has none."""
        self._sink = sink
        """Where its output goes; -1: to where its errors go."""
        self._inside = inside
        """Whether this process is in its own network, which the command inherits."""
        self._sandbox: str | None = request.get("sandbox", request.get("wall"))
        """`wall`: the key of version 0.1, of which a gateway may still run when this file is newer already."""
        self._limits: dict[str, int] = request.get("limits") or {}
        self._disks = _disks([folder, *request.get("disks", ())])
        self._free = [_room(disk) for disk in self._disks]
        self._least = self._limits.get("disk_reserve", 0), self._limits.get("entries_reserve", 0)
        self._memory_left = 0

    def run(self) -> None:
        status, said = os.pipe()
        if self._sandbox == "bubblewrap" and not self._inside:
            _keep_devices()
        if self._sandbox != "landlock":
            child = self._child = self._spawn(said)
        else:
            child = self._child = os.fork()
            if child == 0:
                self._run_command(said)
        os.close(said)
        os.close(self._output)
        self._output = -1
        self._memory_left = _available_memory()
        for stream in (self._source, self._sink):
            if stream >= 0:
                os.close(stream)  # otherwise nobody would notice that the command reads or writes no more
        ended = self._watch(child, status)
        left = ended is not None and self._left_processes()
        if ended is not None and left:
            self._report(ended, left=True)
            self.say_taken()
            select.select([self._hermes], [], [])  # until Hermes has waited for its output, or is gone
        self._end(child, gentle=ended is None)
        if scratch := self._request.get("scratch"):
            with contextlib.suppress(OSError):
                remove_folder(scratch)
        if ended is not None and not left:
            self._report(ended, left=False)

    def say_taken(self) -> None:
        if self._taking >= 0:
            with contextlib.suppress(OSError):  # the supervisor has ended
                os.write(self._taking, b"1")
            os.close(self._taking)
            self._taking = -1

    def _spawn(self, status: int) -> int:
        """Start the command without a fork of this process: bubblewrap builds the sandbox, and limits are inherited."""
        os.fchdir(self._folder)
        self._apply_limits()
        errors = self._output if self._request.get("with_errors", True) else os.open(os.devnull, os.O_WRONLY)
        places = [(_above(self._output if self._sink < 0 else self._sink), 1), (_above(errors), 2)]
        argv = self._request["argv"]
        if self._sandbox == "bubblewrap":
            filters, writing = os.pipe()
            os.write(writing, seccomp.program(os.uname().machine, self._request["sockets"]))
            os.close(writing)
            places += [(_above(filters), FILTER_FD), (_above(status), STATUS_FD)]
            argv = self._with_binds(argv)
            if self._request["own_network"] and not self._inside:
                argv.insert(1, "--unshare-net")
        places.append((_above(os.open(os.devnull, os.O_RDONLY) if self._source < 0 else self._source), 0))
        actions: list[tuple[int, ...]] = [(os.POSIX_SPAWN_DUP2, old, new) for old, new in places]
        try:
            with _killed_first(confined=bool(self._limits)):
                return os.posix_spawnp(
                    argv[0], argv, self._request["environ"], setpgroup=0, setsigdef=_SIGNALS, file_actions=actions
                )
        except OSError as error:
            os.write(status, f"{error.strerror} {argv[0]}".encode())
            return os.posix_spawn("/bin/false", ["false"], {}, setpgroup=0)
        finally:
            for old, _ in places:
                os.close(old)

    def _with_binds(self, argv: list[str]) -> list[str]:
        """The command line with mounts whose sources are opened here, so that no link can replace them."""
        made: list[str] = []
        for option, path in self._request["binds"]:
            try:
                handle = fcntl.fcntl(landlock.opened(path), fcntl.F_DUPFD, STATUS_FD + 1)  # bubblewrap inherits it
            except OSError:  # gone, or now a link; changes to it are undone afterwards
                continue
            made += [option, str(handle), path]
        place = argv.index(BINDS)
        return [*argv[:place], *made, *argv[place + 1 :]]

    def _left_processes(self) -> bool:
        """Whether the command left processes running; with bubblewrap they end with the first one."""
        return self._sandbox != "bubblewrap" and bool(_below(os.getpid()))

    def _run_command(self, status: int) -> NoReturn:
        """In the new process: apply limits and sandbox, then run the command. A failure is reported and ends it."""
        try:
            os.setpgid(0, 0)
            if sys.platform == "linux":
                landlock.die_with_parent(signal.SIGKILL)
            for number in _SIGNALS:
                signal.signal(number, signal.SIG_DFL)
            os.fchdir(self._folder)
            os.dup2(os.open(os.devnull, os.O_RDONLY) if self._source < 0 else self._source, 0)
            os.dup2(self._output if self._sink < 0 else self._sink, 1)
            errors = self._output if self._request.get("with_errors", True) else os.open(os.devnull, os.O_WRONLY)
            os.dup2(errors, 2)
            self._apply_limits()
            argv = self._request["argv"]
            with _killed_first(confined=bool(self._limits)):
                if self._sandbox == "landlock":
                    rules = [(path, access) for path, access in self._request["rules"]]
                    landlock.restrict(rules, sockets=self._request["sockets"])
                os.execvpe(argv[0], argv, self._request["environ"])
        except BaseException as error:  # noqa: BLE001 - the boundary of a forked process
            why = getattr(error, "strerror", None) or type(error).__name__
            place = getattr(error, "filename", None) or ""
            os.write(status, f"{why} {place}".strip().encode("utf-8", "replace"))
        finally:
            os._exit(_SET_UP_FAILED)

    def _apply_limits(self) -> None:
        for name, value in (self._request.get("rlimits") or {}).items():
            _limit(getattr(resource, name), value)
        processes = self._limits.get("processes")
        if processes is not None:
            # The kernel counts all processes of a user; `_over_limit` counts the command's own.
            _limit(resource.RLIMIT_NPROC, _tasks() + processes)

    def _watch(self, child: int, status: int) -> tuple[int, str] | None:
        """Wait for the end: (status, reason if a limit ended it). None: Hermes ordered the end."""
        handle = os.pidfd_open(child) if hasattr(os, "pidfd_open") else None
        waiting: list[Any] = [self._hermes, *([handle] if handle is not None else [])]
        while True:
            ready, _, _ = select.select(waiting, [], [], _START_SECONDS if self._taking >= 0 else _LOOK_SECONDS)
            if self._hermes in ready:
                return None
            if handle in ready or handle is None:
                done, result = os.waitpid(child, os.WNOHANG)
                if done:
                    os.close(handle) if handle is not None else None
                    return self._outcome(os.waitstatus_to_exitcode(result), status)
            if not ready and self._taking >= 0:
                self.say_taken()
            elif not ready and (why := self._over_limit()):
                self._kill_all()
                return -signal.SIGKILL, why

    def _outcome(self, code: int, status: int) -> tuple[int, str]:
        said = b""
        os.set_blocking(status, False)
        with contextlib.suppress(BlockingIOError):
            said = os.read(status, 65_536)
        if self._sandbox == "bubblewrap":
            # bubblewrap reports the command's exit code; without that report nothing was run.
            if b'"exit-code"' in said or code < 0:
                return code, ""
            return code, "sandbox" if said.startswith(b"{") else f"sandbox: {said.decode('utf-8', 'replace')}"
        return (code, f"sandbox: {said.decode('utf-8', 'replace')}") if said else (code, "")

    def _over_limit(self) -> str:
        found = _below(os.getpid())
        if len(found) > self._limits.get("processes", 1 << 30):
            return "processes"
        most = self._limits.get("memory", 1 << 62)
        # What several processes share counts once for each of them here; only beyond the limit the exact sum is taken.
        if sum(map(_resident, found)) > most and sum(map(_memory, found)) > most:
            return "memory"
        # Memory that no process has mapped, such as files in memory: more has been taken than what is left.
        left = _available_memory()
        if left < self._limits.get("memory_reserve", 0) and left < self._memory_left - left:
            return "memory"
        for disk, free in zip(self._disks, self._free, strict=True):
            if any(now < min(most) for now, *most in zip(_room(disk), self._least, free, strict=True)):
                return "disk"
        return ""

    def _report(self, ended: tuple[int, str], *, left: bool) -> None:
        facts = {"code": ended[0], "why": ended[1], "left": left}
        try:
            self._hermes.sendall(json.dumps(facts).encode() + b"\n")
        except OSError:  # Hermes has ended; the remaining work is the same
            return

    def _end(self, child: int, *, gentle: bool) -> None:
        if gentle:
            self.say_taken()  # this may take a while
            for pid in _below(os.getpid()):
                if pid != child or self._sandbox != "bubblewrap":
                    _send(pid, signal.SIGTERM)
            deadline = time.monotonic() + float(self._request.get("grace", 1.0))
            while time.monotonic() < deadline and (left := _below(os.getpid())):
                if self._sandbox == "bubblewrap" and set(left) <= {child}:
                    break
                _reap()
                time.sleep(0.01)
        elif self._sandbox == "bubblewrap":
            # The first process in its namespace is our child now; all others there end with it.
            with contextlib.suppress(OSError, IndexError):  # it has been ended already, or the kernel has no handles
                select.select([os.pidfd_open(_children(os.getpid())[0])], [], [], _START_SECONDS)
        self._kill_all()

    def _kill_all(self) -> None:
        _send(-self._child, signal.SIGKILL)  # the group, for systems without /proc
        kill_descendants()


@contextlib.contextmanager
def _killed_first(*, confined: bool) -> Iterator[None]:
    """When memory runs out, the kernel shall end the confined command that is started here before other programs."""
    points, before = -1, b""
    with contextlib.suppress(OSError):
        if confined:
            points = os.open("/proc/self/oom_score_adj", os.O_RDWR | os.O_CLOEXEC)
            before = os.read(points, 8)
            os.pwrite(points, b"%d" % _KILLED_FIRST, 0)
    try:
        yield
    finally:
        if points >= 0:
            with contextlib.suppress(OSError):
                os.pwrite(points, before, 0)
            os.close(points)


def kill_descendants() -> None:
    """End all descendants of this process, which adopts their orphans.

    A process that only forks and exits is hardly ever seen. So the loop ends when the kernel knows of no child of
    this process: an orphan becomes our child before its parent can be waited for.
    """
    deadline = time.monotonic() + _KILLING_SECONDS
    before: list[int] = []
    while _reap() and time.monotonic() < deadline:
        found = _below(os.getpid())
        for pid in found:
            _send(pid, signal.SIGKILL)
        if found == before:
            time.sleep(0.001)
        before = found


def fork_keeper(request: dict[str, Any], *, output: int, folder: int, source: int, others: list[int]) -> socket.socket:
    """Start a keeper for one command; return the socket on which it reports. Closing that orders the command's end.

    `source`: where the command reads its input. `others`: descriptors of the caller that the keeper closes.
    """
    ours, theirs = socket.socketpair()
    if os.fork():
        theirs.close()
        return ours
    try:
        ours.close()
        for descriptor in others:
            os.close(descriptor)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # it ends when the caller does, after the command
        os.setsid()
        if sys.platform == "linux":
            landlock.adopt_orphans()
        inside = bool(request.get("own_network")) and _enter_own_network()
        _Keeper(request, theirs, output, folder, inside=inside, source=source).run()
    finally:
        os._exit(0)


def _disks(places: list[int | str]) -> list[int | str]:
    """One of the places for each disk they are on."""
    found: dict[int, int | str] = {}
    for place in places:
        with contextlib.suppress(OSError):  # it is gone
            found.setdefault(os.stat(place).st_dev, place)  # noqa: PTH116
    return list(found.values())


def _room(place: int | str) -> tuple[int, int]:
    """The free bytes and free entries of a disk; plenty where the file system does not count entries."""
    try:
        found = os.statvfs(place)
    except OSError:
        return 1 << 62, 1 << 62
    return found.f_bavail * found.f_frsize, found.f_favail if found.f_files else 1 << 62


def remove_folder(folder: str) -> None:
    """Remove the folder of an ended command with everything in it.

    The command may have made folders too deep for a path or a recursion, and closed them. So each one is opened up,
    moved to the top and emptied there.
    """
    top = os.open(folder, _FOLDER)
    mark, number, waiting = os.urandom(8).hex(), 0, ["."]
    try:
        while waiting:
            name = waiting.pop()
            within = os.open(name, _FOLDER, dir_fd=top)
            try:
                with os.scandir(within) as entries:
                    found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
                for entry, is_folder in found:
                    if not is_folder:
                        os.unlink(entry, dir_fd=within)
                        continue
                    number += 1
                    os.chmod(entry, 0o700, dir_fd=within)
                    os.rename(entry, f"{mark}{number}", src_dir_fd=within, dst_dir_fd=top)
                    waiting.append(f"{mark}{number}")
            finally:
                os.close(within)
            if name != ".":
                os.rmdir(name, dir_fd=top)
    finally:
        os.close(top)
    os.rmdir(folder)  # noqa: PTH106


def _write(path: str, text: str) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(handle, text.encode())
    finally:
        os.close(handle)


def _tasks() -> int:
    """The number of processes and threads on the machine."""
    try:
        with open("/proc/loadavg", "rb") as file:  # noqa: PTH123
            return int(file.read().split()[3].partition(b"/")[2])
    except (OSError, IndexError, ValueError):
        return 1 << 16


def _limit(kind: int, value: int) -> None:
    _, hard = resource.getrlimit(kind)
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(kind, (value, value))


def _above(descriptor: int) -> int:
    """The descriptor under a number above those that bubblewrap uses."""
    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, STATUS_FD + 1)


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return


def _reap() -> bool:
    """Collect ended children; True if others remain."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _below(pid: int) -> list[int]:
    """Every living descendant of a process; zombies do not count."""
    found: list[int] = []
    waiting = [pid]
    while waiting:
        for child in _children(waiting.pop()):
            waiting.append(child)
            if _alive(child):
                found.append(child)
    return found


def _children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - plain calls, this is on a path that repeats
            with open(f"/proc/{pid}/task/{task}/children", "rb") as file:  # noqa: PTH123
                found += map(int, file.read().split())
    except OSError:
        return found
    return found


def _alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
            return file.read().rpartition(b")")[2].split()[:1] not in ([b"Z"], [b"X"])
    except OSError:
        return False


def _resident(pid: int) -> int:
    """The memory that a process has mapped, with program files and with what it shares."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:  # noqa: PTH123
            return int(file.read().split()[1]) * resource.getpagesize()
    except (OSError, IndexError, ValueError):
        return 0


def _memory(pid: int) -> int:
    """Its own memory and its part of what it shares with other processes, without files. A hundred times as slow."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:  # noqa: PTH123
            lines = [line.split() for line in file if line.startswith((b"Pss_Anon:", b"Pss_Shmem:"))]
    except OSError:
        return _resident(pid)
    return sum(int(words[1]) for words in lines) * 1024


def _available_memory() -> int:
    """The machine's memory that is left; where the kernel does not say, no limit is ever reached."""
    try:
        with open("/proc/meminfo", "rb") as file:  # noqa: PTH123
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith(b"MemAvailable:"))
    except (OSError, StopIteration):
        return 1 << 62
