"""`terminal`: runs one shell command inside the executor's sandbox, in the foreground or in the background.

The command runs in bash (the shell that the judge parses), without a terminal and without input, with the environment
of `environment`. When it ends (by itself, by its time-out, by an interruption or at a limit), everything it started
ends too. Output is kept in bounded memory and, beyond that, in the call's result file. The result of a command that
failed inside a sandbox adds one line about what the sandbox hides and forbids.
"""

from __future__ import annotations

import asyncio
import codecs
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from hermes_agent import hooks
from hermes_agent.text import brief
from hermes_agent.tools import output, paths
from hermes_agent.tools.base import Action, Tool, ToolContext, ToolResult, parameters, value
from hermes_agent.turn.control import Interrupted, until_stopped

if TYPE_CHECKING:
    from hermes_agent.execution.base import Permit, ShellCommand
    from hermes_agent.execution.executor import Executor
    from hermes_agent.tools.output import Capture

_DRAIN_SECONDS = 0.3
_FIRST_SECONDS = 1.0
"""How long a background command is watched at its start: most mistakes show at once."""
_LIMITS = {
    "memory": "memory than limits.command_memory_bytes",
    "processes": "processes than limits.command_processes",
    "disk": "disk than limits.command_disk_reserve_bytes leaves free",
}


class _Ended(NamedTuple):
    status: int | None
    why: Literal["exit", "time", "stop", "flood"]
    left_running: bool
    trouble: str
    """The limit that ended the command, or the failure to build its sandbox."""
    undone: tuple[str, ...]


async def terminal(args: dict[str, Any], ctx: ToolContext) -> ToolResult:
    from hermes_agent.execution import executor  # here and below: listing tools does not need it
    from hermes_agent.execution.base import CommandChanged, ExecutorUnavailable, ShellCommand
    from hermes_agent.tools.output import Capture

    command = args["command"]
    shell = executor.shell()
    if shell is None or "\0" in command:
        return ToolResult("There is no shell here." if shell is None else "A command cannot hold NUL.", is_error=True)
    where = await asyncio.to_thread(_folder, args.get("workdir"), ctx)
    outside = bool(args.get("outside"))
    action = Action("command", command, str(where), outside=outside)
    try:
        verdict = await until_stopped(ctx.gate.permit(action), ctx.stop)
    except Interrupted:
        return ToolResult("The command was not run: interrupted by the person.", is_error=True)
    if not verdict.allowed:
        return ToolResult(f"The command was not run: {verdict.reason}", is_error=True, shown="not allowed")
    await ctx.begin()
    began = time.monotonic()
    run = executor.Executor(ctx.home, ctx.config, ctx.db.limits)
    # A compression may have moved the conversation to its next segment since the call was prepared.
    environ = {**ctx.environ, "HERMES_SESSION_ID": ctx.session_id(), "PWD": str(where)}
    child = ShellCommand((shell, "-c", command), where, environ, command)
    if args.get("background"):
        return await _start(run, child, verdict.permit, args, ctx)
    seconds = _seconds(args.get("timeout"), ctx)
    with Capture(tool_name=TOOL.name, ctx=ctx) as capture:
        try:
            ended = await _run(run, child, verdict.permit, seconds, capture, ctx)
        except (ExecutorUnavailable, CommandChanged) as error:  # both are raised before it starts
            return ToolResult(f"The command was not run: {error.one_line()}", is_error=True, shown="not run")
        output = await _transformed(capture.text(), command, ended, ctx)
    notes = _notes(ended, seconds, ctx)
    if verdict.permit is None and run.sandbox != "host" and (ended.status or ended.trouble):
        notes.append(f"[{run.explanation(ctx.workdir)}]")
    text = "\n".join([*([output.rstrip("\n")] if output.strip() else ["(no output)"]), *notes])
    shown = f"{notes[0].strip('[]')}, {time.monotonic() - began:.1f} s"
    failed = ended.why != "exit" or ended.status != 0
    return ToolResult(text, is_error=failed, shown=shown, source=_source(command))


async def _start(
    run: Executor, command: ShellCommand, permit: Permit | None, args: dict[str, Any], ctx: ToolContext
) -> ToolResult:
    """Start the command in the background. One that ends at once gets its result here, and no notice."""
    from hermes_agent import processes
    from hermes_config.errors import HermesError

    most = ctx.db.limits.process_seconds
    try:
        row = await asyncio.to_thread(
            processes.start, run, command, ctx, permit=permit, seconds=min(args.get("timeout") or most, most),
            notify=bool(args.get("notify", True)),
        )  # fmt: skip
    except HermesError as error:
        return ToolResult(f"The command was not run: {error.one_line()}", is_error=True, shown="not run")
    row = await asyncio.to_thread(processes.wait, ctx.db, ctx.home, row, seconds=_FIRST_SECONDS)
    lines = await asyncio.to_thread(processes.tail, ctx.home, row)
    if not row.running:
        await asyncio.to_thread(ctx.db.processes.take_notice, row)
        how = processes.ending(row.state, row.exit_code, row.trouble)
        return ToolResult(
            "\n".join([*lines, f"[{how}]"]), is_error=row.exit_code != 0, shown=how, source=_source(row.command)
        )
    told = "You are told when it ends" if row.notify else "Nobody is told when it ends"
    said = f"[runs in the background as {row.id}, at most {processes.span(row.ends_by - row.started_at)}. {told}.]"
    text = "\n".join([*(lines if len(lines) > 1 else []), said])
    return ToolResult(text, shown=f"in the background: {row.id}", source=_source(row.command))


def _source(command: str) -> str:
    return f"the output of {brief(command, 60)}"


async def _transformed(output: str, command: str, ended: _Ended, ctx: ToolContext) -> str:
    """The output after the hook `transform_terminal_output`; unchanged without such a hook."""
    facts = {"command": command, "output": output, "returncode": ended.status, "task_id": ctx.turn_id}
    answers = await hooks.fire("transform_terminal_output", env_type="local", **facts)
    return next((answer for answer in answers if isinstance(answer, str)), output)


def _folder(raw: str | None, ctx: ToolContext) -> Path:
    place = paths.locate(raw or ".", ctx)
    if not place.is_folder:
        what = "is not a folder" if place.status else "does not exist"
        raise paths.ToolRefused(f"the working directory {place.named} {what}")
    return place.real


def _seconds(asked: float | None, ctx: ToolContext) -> float:
    """The call's own time-out, else `terminal.timeout` of config.yaml, else the table's; never beyond its bound."""
    limits = ctx.db.limits
    return min(asked or ctx.config.terminal.timeout or limits.terminal_seconds, limits.terminal_longest_seconds)


async def _run(
    executor: Executor, command: ShellCommand, permit: Permit | None, seconds: float, capture: Capture, ctx: ToolContext
) -> _Ended:
    """Run the command until it ends or is ended. When this returns, nothing it started is left."""
    limits = ctx.db.limits
    flooded = asyncio.Event()
    decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def take(data: bytes) -> None:
        room = limits.terminal_live_bytes - capture.size  # watchers see the beginning
        capture.add(data)
        if room > 0 and (text := output.clean(decoder.decode(data[:room]))):
            ctx.emit(text)
        if capture.size > limits.terminal_output_bytes:
            flooded.set()

    grace = limits.tool_stop_ms / 3_000
    why: Literal["exit", "time", "stop", "flood"] = "exit"
    left = False
    async with executor.run(command, workspace=ctx.workdir, on_output=take, permit=permit, grace=grace) as child:
        status = await child.ended(seconds, ctx.stop, flooded)
        if status is not None:
            left = not await child.drained(_DRAIN_SECONDS) or child.left_running
        else:
            why = "stop" if ctx.stop.is_set() else "flood" if flooded.is_set() else "time"
    return _Ended(status, why, left, child.trouble, tuple(child.undone))


def _notes(ended: _Ended, seconds: float, ctx: ToolContext) -> list[str]:
    """Lines about how the command ended; people see the first."""
    if ended.why == "time":
        return [f"[stopped after {seconds:g} s: the command had not ended; it and its children were killed]"]
    if ended.why == "stop":
        return ["[interrupted by the person; the command and its children were killed]"]
    if ended.why == "flood":
        return [f"[killed: it printed more than {ctx.db.limits.terminal_output_bytes:,} bytes]"]
    status = ended.status or 0
    if ended.trouble.startswith("sandbox"):
        notes = [f"[not run: the sandbox around it could not be set up{ended.trouble.removeprefix('sandbox')}]"]
    elif ended.trouble:
        notes = [f"[killed: it needed more {_LIMITS.get(ended.trouble, ended.trouble)}]"]
    else:
        notes = [_exit(status)]
    if ended.left_running:
        notes.append("[processes it left running in the background were ended]")
    return [*notes, *(f"[{line}]" for line in ended.undone)]


def _exit(status: int) -> str:
    if status < 0:
        return f"[killed by {_signal_name(-status)}]"
    # Shells and bubblewrap report a command's death by a signal as 128 plus the signal's number.
    name = _signal_name(status - 128) if 128 < status < 192 else ""
    return f"[exit code {status} ({name})]" if name.startswith("SIG") else f"[exit code {status}]"


def _signal_name(number: int) -> str:
    import signal

    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


TOOL = Tool(
    name="terminal",
    toolset="terminal",
    description=(
        "Run a shell command (bash) and get its output and exit code. Each call is a new shell in the working"
        " directory, without a terminal or input: use non-interactive flags. Commands run in a sandbox: only the"
        " working directory is kept (/tmp and the home vanish with the command), the only network is a private"
        " loopback, and secret files are hidden. A person is asked about a command that plainly needs more. If a"
        " command fails only because of the sandbox, run exactly the same one with outside=true, which asks. Do not"
        " try a denied command in other words. For files use the file tools."
    ),
    parameters=parameters(
        "command",
        command=value("string", "The command line.", minLength=1),
        timeout=value("number", "Seconds until it is killed. Default 180, at most 600.", minimum=1),
        workdir=value("string", "The folder to run it in. Default: the working directory."),
        outside=value("boolean", "Run it outside the sandbox, if a person says yes."),
        background=value("boolean", "Return at once and let it run (see process)."),
        notify=value("boolean", "Background: be told when it ends. Default true."),
    ),
    handler=terminal,
    begins=True,
    roles=frozenset({"owner", "admin"}),
    summary=lambda args: str(args.get("command", "")),
    own_timeout=True,
)
