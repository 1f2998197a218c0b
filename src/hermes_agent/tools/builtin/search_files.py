"""`search_files`: finds lines by a regular expression, or files by name.

The search runs in a child process that can be killed: ripgrep if it is installed, else a small Python program of ours
(a slow regular expression would hold the interpreter's lock and block every other conversation). Both print the same
lines. `paths` filters the matches before the model sees them: files that may hold secrets and the closed parts of the
Hermes home are left out, and their number is reported.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from hermes_agent.tools import output, paths
from hermes_agent.tools.base import Tool, ToolContext, ToolResult, parameters, value

_DEFAULT_HITS = 50
_LINE_CHARS = 500
_LINE = re.compile(rb"(\d+)([:-])(.*)", re.DOTALL)
_WORKER = Path(__file__).parent.parent / "search_worker.py"


@dataclass(slots=True)
class _Findings:
    """The matches so far, of which one page is kept."""

    takes: Callable[[bytes], bool]
    first: int
    last: int
    shown: list[tuple[str, str]] = field(default_factory=list)
    """(file, line) in order; a line is empty when only the file counts."""
    counts: dict[str, int] = field(default_factory=dict)
    hits: int = 0
    hidden: set[bytes] = field(default_factory=set)
    open: set[bytes] = field(default_factory=set)
    complaint: str = ""
    full: asyncio.Event = field(default_factory=asyncio.Event)
    _rest: bytes = b""

    def add(self, data: bytes) -> None:
        lines = (self._rest + data).split(b"\n")
        self._rest = lines.pop()
        for line in lines:
            self._line(line)

    def _line(self, line: bytes) -> None:
        name, separator, rest = line.partition(b"\0")
        found = _LINE.match(rest) if separator else None
        if found is None:
            if line != b"--" and len(self.complaint) < _LINE_CHARS:
                self.complaint += f"{line.decode('utf-8', 'replace')} "
            return
        if name in self.hidden or self.full.is_set():
            return
        if name not in self.open:
            if not self.takes(name):
                self.hidden.add(name)
                return
            self.open.add(name)
        is_hit = found[2] == b":"
        self.hits += is_hit
        file = os.fsdecode(name)
        if self.first <= self.hits <= self.last or (not is_hit and self.first - 1 <= self.hits <= self.last):
            text = output.clean(found[3][: 4 * _LINE_CHARS].decode("utf-8", "replace"))[:_LINE_CHARS]
            self.shown.append((file, f"{found[1].decode()}{found[2].decode()}{text}"))
        if is_hit:
            self.counts[file] = self.counts.get(file, 0) + 1
        if self.hits > self.last:
            self.full.set()


async def search_files(args: dict[str, Any], ctx: ToolContext) -> ToolResult:
    raw = args.get("path") or "."
    root = await paths.for_reading(raw, ctx, folder=True)
    limits = ctx.db.limits
    first = args.get("offset", 0) + 1
    last = first - 1 + min(args.get("limit", _DEFAULT_HITS), limits.search_files_hits)
    mode = args.get("output_mode", "content")
    names = args.get("target", "content") == "files"
    private = paths.is_private(root, ctx)

    def takes(name: bytes) -> bool:
        """Whether the model may see this file and its name; a permitted root stays permitted."""
        path = Path(os.fsdecode(name))
        place = paths.FilePlace(path, path, None)
        return private or not (paths.is_private(place, ctx) or paths.is_store_file(path, None, ctx))

    # If files are listed or counted, a page consists of files, and every line must be read.
    paged = mode == "content" or names
    found = _Findings(takes, first if paged else 1, last if paged else sys.maxsize)
    argv = _ripgrep(args, root.real, ctx) or _python(args, root.real, limits.read_file_bytes)
    status = await _run(argv, root.real, found, ctx)
    if status == 2 and not found.hits:
        return ToolResult(f"The search could not be made: {' '.join(found.complaint.split())[:300]}", is_error=True)
    body, total = _body(found, names=names, mode=mode, first=first, last=last, ctx=ctx)
    text = "\n".join([*body, *_notes(found, total, status, first, last, ctx)])
    return ToolResult(text, shown=f"{total} found", source=f"files in {root.named.name or root.named}")


async def _run(argv: list[str], root: Path, found: _Findings, ctx: ToolContext) -> int | None:
    """The exit status; None if the search was stopped early."""
    from hermes_agent.execution.base import ShellCommand
    from hermes_agent.execution.executor import Executor

    grace = ctx.db.limits.tool_stop_ms / 3_000
    run = Executor(ctx.home, ctx.config, ctx.db.limits)
    command = ShellCommand(tuple(argv), ctx.workdir, ctx.environ)
    async with run.run(
        command, workspace=ctx.workdir, on_output=found.add, grace=grace, ours=True, reads=(root,)
    ) as child:
        seconds = ctx.db.limits.search_files_seconds
        status = await child.ended(seconds, found.full)
        if status is not None:
            await child.drained(seconds)
        return status


def _ripgrep(args: dict[str, Any], root: Path, ctx: ToolContext) -> list[str] | None:
    """The command line for ripgrep, if it is installed and lines are searched."""
    from hermes_agent.execution.executor import Executor

    if args.get("target") == "files":
        return None  # names are quick to find anywhere, and ripgrep's globs differ from ours
    program = Executor(ctx.home, ctx.config, ctx.db.limits).program("rg", os.environ, ctx.workdir)
    if program is None:
        return None
    argv = [program, "--no-config", "--null", "--line-number", "--with-filename", "--no-heading", "--color=never"]
    argv += ["--no-messages", "--hidden", "--glob=!.git", "--sort=path", "--max-columns=2000", "--max-columns-preview"]
    if args.get("file_glob"):
        argv.append(f"--glob={args['file_glob']}")
    if args.get("context") and args.get("output_mode", "content") == "content":
        argv.append(f"--context={args['context']}")
    return [*argv, f"--regexp={args['pattern']}", "--", str(root)]


def _python(args: dict[str, Any], root: Path, largest: int) -> list[str]:
    question = {
        "root": str(root),
        "pattern": args["pattern"],
        "names": args.get("target") == "files",
        "glob": args.get("file_glob") or "",
        "context": args.get("context", 0) if args.get("output_mode", "content") == "content" else 0,
        "largest": largest,
    }
    # Isolated and without site packages: it starts in a few milliseconds and imports nothing from the folder. Its text
    # is passed as an argument, because a confined process does not see where Hermes is installed.
    return [sys.executable, "-I", "-S", "-c", _worker(), json.dumps(question)]


@cache
def _worker() -> str:
    return _WORKER.read_text("utf-8")


def _body(
    found: _Findings, *, names: bool, mode: str, first: int, last: int, ctx: ToolContext
) -> tuple[list[str], int]:
    """The lines of the page, and the total number of items."""
    if names:
        return [_named(file, ctx) for file, _ in found.shown], found.hits
    if mode == "content":
        lines: list[str] = []
        before = ""
        for file, line in found.shown:
            if file != before:
                lines.append(f"{_named(file, ctx)}:")
                before = file
            lines.append(f"  {line}")
        return lines, found.hits
    page = list(found.counts.items())[first - 1 : last]
    return [_named(file, ctx) + (f": {count}" if mode == "count" else "") for file, count in page], len(found.counts)


def _notes(found: _Findings, total: int, status: int | None, first: int, last: int, ctx: ToolContext) -> list[str]:
    notes: list[str] = []
    if total == 0:
        notes.append("Nothing was found.")
    elif total < first:
        notes.append(f"There are only {total:,} matches.")
    elif total > last:
        notes.append(f"[there is more; go on with offset {last}]")
    if status is None and not found.full.is_set():
        seconds = ctx.db.limits.search_files_seconds
        notes.append(f"[the search was ended after {seconds} s; not everything was looked at]")
    if found.hidden:
        notes.append(f"[{len(found.hidden)} files that may hold credentials or belong to Hermes were left out]")
    return notes


def _named(file: str, ctx: ToolContext) -> str:
    try:
        return str(Path(file).relative_to(os.path.realpath(ctx.workdir)))
    except ValueError:
        return file


TOOL = Tool(
    name="search_files",
    toolset="file",
    description=(
        "Find lines by a regular expression (target content), or files by a glob such as src/**/test_*.py (target"
        " files; * lists everything), instead of grep, find or ls. Leaves out what .gitignore names, binary files"
        " and files that may hold credentials."
    ),
    parameters=parameters(
        "pattern",
        pattern=value("string", "A regular expression, or a glob for files.", minLength=1),
        target=value("string", "Default content.", enum=["content", "files"]),
        path=value("string", "The folder or file to look in. Default: the working directory."),
        file_glob=value("string", "content: only in files of this name, e.g. *.md."),
        limit=value("integer", "Default 50, at most 200.", minimum=1),
        offset=value("integer", "Matches to skip.", minimum=0),
        output_mode=value(
            "string",
            "content: lines (default), files, or counts.",
            enum=["content", "files_only", "count"],
        ),
        context=value("integer", "Lines around each match.", minimum=0, maximum=20),
    ),
    handler=search_files,
    changes=False,
    roles=frozenset({"owner", "admin"}),
    summary=lambda args: str(args.get("pattern", "")),
)
