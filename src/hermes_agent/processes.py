"""Background processes: start them, read and write them, end them, and record their end.

A process has a row (`hermes_state.turns.processes`), a folder in the home, and a supervisor of its own, which goes on
when Hermes ends (`execution.background` describes the folder). Whoever looks first, a gateway, a terminal or a command,
records the end: `settle`. A process without a report whose lock is free is lost; nothing of it runs any more.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from hermes_agent import process_identity
from hermes_agent.execution import background, protection
from hermes_agent.execution.base import CLOSED, ExecutorUnavailable, SandboxOpening
from hermes_agent.tools import output
from hermes_config import home as hermes_home
from hermes_config.errors import HermesError
from hermes_state.errors import StateError
from hermes_state.ids import is_child
from hermes_state.turns.inbox import Address
from hermes_state.turns.processes import FOLDER, End, ProcessRow, new_process_id

if TYPE_CHECKING:
    from hermes_agent.execution.base import Permit, ShellCommand
    from hermes_agent.execution.executor import Executor
    from hermes_agent.tools.base import ToolContext
    from hermes_state import SessionDB

_log = logging.getLogger("hermes.agent")
_STORE = "store"
_TAIL_BYTES, _TAIL_LINES = 4_096, 20
_FULL_MS = 1_000
_START_MS = 30_000
_NEW_SECONDS = 60.0
"""A younger folder without a row may be one that is just being made."""
_NO_CHATS = ("api_server", "webhook")
"""Platforms that can send nothing by themselves."""
_started: list[int] = []
"""The supervisors that this process started, whose exit status it has to collect."""


class ProcessGone(HermesError):
    """The process does not run, or takes no input."""


# -- start ---------------------------------------------------------------------------------------------------------


def start(
    run: Executor, command: ShellCommand, ctx: ToolContext, *, permit: Permit | None, seconds: float, notify: bool
) -> ProcessRow:
    """Start a command that the gate has allowed. Blocks. Raises if it cannot run, and leaves nothing then."""
    host = permit is not None and permit.opening.host
    if run.sandbox == "plugin" and not host:
        raise ExecutorUnavailable("the plug-in's executor runs no background commands", hint="Use the foreground.")
    folder, lock, workdir = _folder(ctx.home, new_process_id()), -1, -1
    try:
        for made in (folder.parent, folder):
            made.mkdir(mode=0o700, exist_ok=made == folder.parent)
        (folder / _STORE).write_text(ctx.db.engine.where, "utf-8")
        lock = os.open(folder / "unlocked", os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        (folder / "unlocked").rename(folder / background.LOCK)
        for name in (background.CONTROL, background.INPUT):
            os.mkfifo(folder / name, 0o600)
        workdir = run.working_folder(command, permit)
        request = _request(run, command, ctx, folder, permit)
        order = {
            "folder": str(folder), "seconds": seconds, "output_bytes": ctx.db.limits.process_output_bytes,
            "request": {**request, "grace": ctx.db.limits.tool_stop_ms / 1_000},
        }  # fmt: skip
        try:
            sandbox = "host" if host else run.sandbox
            opening = SandboxOpening(host=True) if sandbox == "host" else CLOSED if permit is None else permit.opening
            row = _stored(command, ctx, folder.name, seconds, notify=notify, sandbox=sandbox, opening=opening.shown)
        except HermesError:  # too many of them
            if scratch := request.get("scratch"):
                shutil.rmtree(scratch, ignore_errors=True)
            raise
        pid = _supervise(folder.name, lock, workdir, json.dumps(order).encode("utf-8", "surrogateescape"))
        ctx.db.processes.supervised(row.id, f"{pid}/{process_identity.started(pid) or 0}")
        return row
    except OSError as error:
        ctx.db.processes.silence(folder.name)
        said = f"it cannot be started in the background ({error.strerror})"
        raise ExecutorUnavailable(said, where=str(folder), hint=hermes_home.advice(error)) from error
    finally:
        for descriptor in (lock, workdir):
            if descriptor >= 0:
                os.close(descriptor)  # the supervisor has it
        settle(ctx.db, ctx.home)  # if there is none, this removes what was made


def _request(
    run: Executor, command: ShellCommand, ctx: ToolContext, folder: Path, permit: Permit | None
) -> dict[str, Any]:
    """The keeper's request. The record of the workspace is left to whoever settles the process."""
    prepared = run.prepare(command, workspace=ctx.workdir, permit=permit)
    try:
        prepared.hand_over(folder)
    except BaseException:
        prepared.undo()
        raise
    return prepared.request


def _stored(
    command: ShellCommand,
    ctx: ToolContext,
    process_id: str,
    seconds: float,
    *,
    notify: bool,
    sandbox: str,
    opening: str,
) -> ProcessRow:
    address = ctx.db.inbox.address(ctx.turn_id)
    if address is None and is_child(ctx.conversation_id):
        notify = False  # of a child whose parent waits for its result alone: nobody would read the row
    address = address or Address.local(ctx.conversation_id, ctx.person_id)
    return ctx.db.processes.begin(
        process_id, conversation_id=ctx.conversation_id, turn_id=ctx.turn_id, call_id=ctx.call_id,
        person_id=ctx.person_id, machine=process_identity.machine(), command=command.text,
        workdir=str(command.workdir), wall=sandbox, opening=opening, address=address,
        notify=notify and address.platform not in _NO_CHATS, seconds=seconds,
    )  # fmt: skip


def _supervise(process_id: str, lock: int, workdir: int, order: bytes) -> int:
    """Start the supervisor, in a systemd scope of its own where that works; return its process id."""
    source = Path(__file__).parents[1]
    code = (
        f"import sys; sys.path.insert(0, {str(source)!r})\n"
        f"from hermes_agent.execution import background; background.main({lock}, {workdir})"
    )
    keep = {name: os.environ[name] for name in ("XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS") if name in os.environ}
    for scope in (_scope(process_id), []):
        if scope is None:
            continue
        process = subprocess.Popen(
            [*scope, sys.executable, "-I", "-S", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, pass_fds=(lock, workdir), start_new_session=True, cwd="/",
            env={"PATH": os.defpath, **(keep if scope else {})},
        )  # fmt: skip
        _started.append(process.pid)
        process.returncode = 0  # nobody waits for it here
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(BrokenPipeError), process.stdin as its_input:
            its_input.write(order)
        with process.stdout as said:
            ready = select.poll()
            ready.register(said, select.POLLIN)
            begun = bool(ready.poll(_START_MS)) and said.read(1)
        if begun:
            return process.pid
        with contextlib.suppress(OSError):
            os.kill(process.pid, 9)
    raise OSError(0, "it ended at once")


def _scope(process_id: str) -> list[str] | None:
    """The program that starts a scope, if this process belongs to a systemd service, whose stop would end all of it."""
    program = shutil.which("systemd-run")
    try:
        lines = Path("/proc/self/cgroup").read_text("utf-8").splitlines()
    except OSError:
        return None
    group = next((line for line in lines if line.endswith(".service")), None)
    if program is None or group is None:
        return None
    whose = [] if "/user@" not in group and os.geteuid() == 0 else ["--user"]
    return [program, *whose, "--scope", "--quiet", "--collect", f"--unit=hermes-{process_id}", "--"]


# -- a running process ---------------------------------------------------------------------------------------------


def send(home: Path, process_id: str, text: str, *, close: bool = False) -> None:
    """Write to the standard input of a process; `close` ends that input. Raises `ProcessGone`."""
    data = text.encode("utf-8", "surrogateescape")
    if data:
        _write(home, process_id, background.INPUT, data)
    if close:
        _write(home, process_id, background.CONTROL, b"close\n")


def kill(db: SessionDB, home: Path, row: ProcessRow, *, quiet: bool, seconds: float = 15.0) -> ProcessRow:
    """End a process and everything it started; wait for that. `quiet`: a person does it, and gets no notice."""
    if quiet:
        db.processes.silence(row.id)
    with contextlib.suppress(ProcessGone):
        _write(home, row.id, background.CONTROL, b"kill\n")
    ended = wait(db, home, row, seconds=seconds)
    if ended.running and _folder(home, row.id).exists():
        _kill_supervisor(row)  # it does not answer; its keeper ends the command then
        ended = wait(db, home, row, seconds=seconds)
    return ended


def wait(db: SessionDB, home: Path, row: ProcessRow, *, seconds: float) -> ProcessRow:
    """The row when the process has ended or the time is up. Blocks."""
    deadline = time.monotonic() + seconds
    while True:
        _collect()
        _settle_if_ended(db, home, _folder(home, row.id) / background.LOCK)
        row = db.processes.get(row.id) or row
        if not row.running or time.monotonic() >= deadline:
            return row
        time.sleep(0.05)


def _kill_supervisor(row: ProcessRow) -> None:
    pid, _, began = (row.supervisor or "0/0").partition("/")
    if row.machine == process_identity.machine() and int(began) and process_identity.started(int(pid)) == int(began):
        with contextlib.suppress(OSError):
            os.kill(int(pid), 9)


def _write(home: Path, process_id: str, pipe_name: str, data: bytes) -> None:
    try:
        pipe = os.open(_folder(home, process_id) / pipe_name, os.O_WRONLY | os.O_NONBLOCK)
    except OSError as error:  # ENXIO: nobody reads it any more
        input_closed = "or has closed its input, " if pipe_name == background.INPUT else ""
        raise ProcessGone(f"the process {process_id} has ended, {input_closed}or runs on another machine") from error
    waiting = select.poll()  # not `select`: a gateway may have thousands of descriptors
    waiting.register(pipe, select.POLLOUT)
    try:
        while data:
            if not waiting.poll(_FULL_MS):
                left = f"{len(data):,} bytes were not sent"
                raise ProcessGone(f"the process {process_id} does not read its input; {left}")
            with contextlib.suppress(BlockingIOError):  # there is room, but not for all of this
                data = data[os.write(pipe, data[: select.PIPE_BUF]) :]
    except OSError as error:
        raise ProcessGone(f"the process {process_id} has closed its input") from error
    finally:
        os.close(pipe)


class KeptOutput(NamedTuple):
    data: bytes
    offset: int
    """Where the data begins."""
    dropped: int
    """Bytes between there and its end that are not kept; a mark in the data says so."""
    size: int
    """All that the process printed."""


def read(home: Path, process_id: str, *, offset: int | None = None, most: int) -> KeptOutput:
    """A part of the output: from `offset` on, or its last `most` bytes."""
    parts = sorted(_parts(_folder(home, process_id)))
    size = max((at + length for at, length, _ in parts), default=0)
    begin = max(0, size - most) if offset is None else min(max(0, offset), size)
    data, dropped, here = bytearray(), 0, begin
    for at, length, file in (*(part for part in parts if part[1]), (size, 1, None)):
        if at + length <= here or len(data) >= most:
            continue
        if at > here:
            data += f"\n[… {at - here:,} bytes were dropped here …]\n".encode()
            dropped, here = dropped + at - here, at
        if file is not None:
            with contextlib.suppress(OSError), file.open("rb") as opened:
                opened.seek(here - at)
                found = opened.read(most - len(data))
                data += found
                here += len(found)
    return KeptOutput(bytes(data), begin, dropped, size)


def _parts(folder: Path) -> Iterator[tuple[int, int, Path]]:
    for file in folder.glob(f"{background.OUTPUT}*"):
        with contextlib.suppress(OSError, ValueError):
            yield int(file.name.removeprefix(background.OUTPUT)), file.stat().st_size, file


def _folder(home: Path, process_id: str) -> Path:
    return home / FOLDER / Path(process_id).name


# -- the end -------------------------------------------------------------------------------------------------------


def settle(db: SessionDB, home: Path) -> bool:
    """Record the end of every process of this home that has ended; returns whether some run on."""
    _collect()
    locks = (home / FOLDER).glob(f"*/{background.LOCK}")
    running = [lock.parent for lock in locks if not _settle_if_ended(db, home, lock)]
    known = {row.id for row in db.processes.running()} if running else set()
    for folder in running:
        with contextlib.suppress(ProcessGone, OSError):  # it has just ended
            old = time.time() - folder.stat().st_mtime > _NEW_SECONDS
            if folder.name not in known and old and _is_of(db, folder):
                _write(home, folder.name, background.CONTROL, b"kill\n")
    return bool(running)


def any_started() -> bool:
    """Whether this process has started one that may run."""
    return bool(_started)


def _collect() -> None:
    """Collect the exit status of supervisors that have ended. Other threads may do the same, or add one."""
    for one in list(_started):
        if _reaped(one):
            with contextlib.suppress(ValueError):
                _started.remove(one)


def _settle_if_ended(db: SessionDB, home: Path, lock: Path) -> bool:
    """Record the end of one process; False if it runs, or somebody else does this. One defect stops no other's end."""
    with _free(lock) as free:
        if free:
            try:
                _settle(db, home, lock.parent)
            except StateError:
                raise
            except Exception as error:  # noqa: BLE001 - boundary: a folder that cannot be read, say
                facts = {"action": "process.settle", "process_id": lock.parent.name}
                _log.error("the end of a background process was not recorded", exc_info=error, extra=facts)
        return free


def _reaped(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] != 0
    except ChildProcessError:  # another thread has done it
        return True


@contextlib.contextmanager
def _free(lock: Path) -> Iterator[bool]:
    """Whether the supervisor is gone, and nobody else is recording that."""
    try:
        handle = os.open(lock, os.O_RDWR)
    except OSError:  # just settled
        yield False
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        yield False
    else:
        yield lock.exists()
    finally:
        os.close(handle)


def _is_of(db: SessionDB, folder: Path) -> bool:
    """Whether the process belongs to this store. If it has no row there, its conversation was deleted."""
    try:
        return (folder / _STORE).read_text("utf-8") == db.engine.where
    except OSError:
        return False


def _settle(db: SessionDB, home: Path, folder: Path) -> None:
    row = db.processes.get(folder.name)
    if row is None and not _is_of(db, folder):
        return  # the process of another store: whoever works with that one records its end
    undone = _undone(folder)
    if row is None:
        shutil.rmtree(folder, ignore_errors=True)
        return
    if row.running:
        status = _status(folder)
        size = status.get("output_bytes") or read(home, row.id, most=0).size
        at = status.get("ended_at") or db.clock()
        notice = _notice(home, row, {**status, "ended_at": at}, undone)
        if db.processes.end(
            row.id, status["state"], exit_code=status.get("exit_code"), trouble=status.get("trouble") or "",
            output_bytes=size, ended_at=at, notice=notice,
        ):  # fmt: skip
            facts = {"action": "process.end", "process_id": row.id, "state": status["state"]}
            _log.info("a background process ended: %s", status["state"], extra=facts)
    # The lock last: without it the process is settled.
    for name in (background.CONTROL, background.INPUT, _STORE, background.LOCK):
        (folder / name).unlink(missing_ok=True)


def _status(folder: Path) -> dict[str, Any]:
    """The supervisor's report; without one, or with one that it has not written (a command without a sandbox), lost."""
    try:
        found = json.loads((folder / background.STATUS).read_bytes())
        status = {
            "state": found["state"], "trouble": str(found.get("trouble") or ""),
            "exit_code": None if found.get("exit_code") is None else int(found["exit_code"]),
            "output_bytes": int(found["output_bytes"]), "ended_at": min(time.time(), float(found["ended_at"])),
        }  # fmt: skip
        if status["state"] in get_args(End):
            return status
    except (OSError, ValueError, TypeError, KeyError, OverflowError, AttributeError):
        pass
    return {"state": "lost"}


def _undone(folder: Path) -> list[str]:
    """Undo what the command changed of protected files; its record is removed afterwards."""
    said: list[str] = []
    for file in folder.glob("watch.*"):
        if (watch := protection.kept_watch(file)) is not None:
            said += watch.undo(watch.look(), alone=len(protection.kept_watches(watch.scope)) < 2)
        file.unlink(missing_ok=True)
    return said


def ending(state: str, exit_code: int | None, trouble: str | None) -> str:
    """How a process ended, in a few words."""
    if state == "exited" and trouble:
        not_set_up = trouble.startswith(("sandbox", "wall"))  # `wall`: in rows of earlier versions
        return "not run: its sandbox could not be set up" if not_set_up else f"ended: too much {trouble}"
    said = {
        "running": "running", "killed": "killed", "timed_out": "ended: its time was up",
        "lost": "lost: its supervisor ended without a report, and the process with it",
    }  # fmt: skip
    if exit_code is not None and exit_code < 0:
        return f"killed by signal {-exit_code}"
    return said.get(state) or f"exit code {exit_code}"


def described(row: ProcessRow, now: float) -> str:
    """`exit code 0, 3.2 s`"""
    return f"{ending(row.state, row.exit_code, row.trouble)}, {span((row.ended_at or now) - row.started_at)}"


def _notice(home: Path, row: ProcessRow, status: Mapping[str, Any], undone: list[str]) -> str:
    how = ending(status["state"], status.get("exit_code"), status.get("trouble"))
    lines = [f"[Background process {row.id}: {how}, after {span(status['ended_at'] - row.started_at)}.]"]
    command = row.command if len(row.command) <= 300 else f"{row.command[:300]}…"
    lines.append(f"Command: {command}")
    return "\n".join([*lines, *tail(home, row), *(f"[{line}]" for line in undone)])


def tail(home: Path, row: ProcessRow) -> list[str]:
    """The last lines of the output."""
    kept = read(home, row.id, most=_TAIL_BYTES)
    text = output.text_of(kept.data).strip("\n")
    if not text.strip():
        return ["It printed nothing."]
    lines = text.split("\n")
    shown = "\n".join(lines[-_TAIL_LINES:])
    whole = len(lines) <= _TAIL_LINES and kept.size <= _TAIL_BYTES
    return [f"{'Output' if whole else 'The end of its output'} ({kept.size:,} bytes):", shown]


def span(seconds: float) -> str:
    """A length of time for people: `3.2 s`, `3 min 2 s`, `2 h`."""
    if seconds < 60:
        return f"{max(seconds, 0):.1f} s"
    large, small, units = (seconds // 60, seconds % 60, ("min", "s"))
    if large >= 60:
        large, small, units = (large // 60, large % 60, ("h", "min"))
    return f"{large:.0f} {units[0]}" + (f" {int(small)} {units[1]}" if int(small) else "")
