"""The `hermes` command: finds the row of the table, runs it, and turns every end into an exit code.

The top-level help and version are printed from the table without argparse, `typing` or another package of ours, so
they cost little more than starting Python. Everything is caught here: an error of ours and a fault of the machine (a
full disk, a folder without permission) become one line, Ctrl-C is 130, a reader that went away is silent, and a defect
becomes a line that says where the report was written. `HERMES_DEBUG=1` shows the traceback instead.
"""

from __future__ import annotations

import gc
import os
import sys

from hermes_cli.commands import COMMANDS, GROUPS
from hermes_config.errors import HermesError, UsageError

_INTERRUPTED = 130
_READER_GONE = 141
_COLLECTED_AFTER = 20_000
"""New objects before the first garbage collection: while modules are imported, 60 of them would find nothing."""


def run() -> None:
    """The process `hermes`. With no thread or log to wait for, it exits without taking its modules apart.

    That saves a tenth of a short command's time.
    """
    gc.set_threshold(_COLLECTED_AFTER)
    if None in (sys.stdin, sys.stdout, sys.stderr):
        _open_closed_streams()
    try:
        code = main()
    finally:  # a signal that ends us comes this way too
        gone = _output_is_gone()
    threading = sys.modules.get("threading")
    if "logging" in sys.modules or (threading is not None and threading.active_count() > 1):
        import signal

        # Ctrl-C during the exit ends it without Python's own traceback.
        signal.signal(signal.SIGINT, lambda *_: os._exit(code))
        sys.exit(code)  # threads and log handlers finish
    os._exit(code or (_READER_GONE if gone else 0))


def _output_is_gone() -> bool:
    """Write out what a command said. Whether nobody can read it any more: then it is dropped, since Python would try
    once more while it exits, complain, and exit with 120."""
    gone = False
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            gone = True
    return gone


def _open_closed_streams() -> None:
    """Open streams that our caller closed (`<&-`, `>&-`) on /dev/null, so that no file of ours gets their numbers."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if vars(sys)[name] is None:
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
            os.set_inheritable(number, True)
            setattr(sys, name, open(number, "w" if number else "r", encoding="utf-8"))  # noqa: SIM115, PTH123


def main(argv: list[str] | None = None) -> int:
    """Run `hermes` with the given arguments and return its exit code."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    _replace_odd_text()
    try:
        code = _dispatch(arguments)
        sys.stdout.flush()
        return code
    except HermesError as error:
        if os.environ.get("HERMES_DEBUG"):
            _cover_secrets()
            raise
        _complain(error.one_line())
        return error.exit_code
    except KeyboardInterrupt:
        _complain("interrupted")
        return _INTERRUPTED
    except BrokenPipeError:
        return _READER_GONE
    except Exception as error:  # boundary of the command line: recorded, and reported in one line
        if os.environ.get("HERMES_DEBUG"):
            _cover_secrets()
            raise
        from hermes_cli.framework import crash

        if (line := crash.fault_of_the_machine(error)) is not None:
            _complain(line)
            return 1
        _complain(crash.report(error, command=arguments[0] if arguments else ""))
        return 70


def _dispatch(arguments: list[str]) -> int:
    if arguments[:1] in (["-h"], ["--help"], ["help"]):
        print(_overview())
        return 0
    if arguments[:1] in (["-V"], ["--version"], ["version"]):
        from hermes_config.version import VERSION

        print(f"hermes {VERSION}")
        return 0
    if not arguments or arguments[0].startswith("-"):
        arguments = ["chat", *arguments]  # `hermes` alone is `hermes chat`
    from hermes_cli.framework import old_forms

    name, *rest = old_forms.rewritten(arguments)
    if name in COMMANDS:
        from hermes_cli.framework.parser import parser_of

        parser = parser_of(COMMANDS[name], rest)
    else:
        from hermes_cli.maintenance import plugin_commands

        found = plugin_commands.parser_of(name)
        if found is None:
            hint = old_forms.INSTEAD.get(name) or _suggestion(name)
            raise UsageError(f"there is no command {name[:60]!r}", hint=hint)
        parser = found
    try:
        parsed = parser.parse_args(rest)
    except SystemExit as end:  # argparse ends this way after --help
        return int(end.code or 0)
    if "run" not in parsed:
        parser.print_help()
        return 0
    outcome = parsed.run(parsed)
    if isinstance(outcome, int | None):
        return outcome or 0
    return int(outcome.print(as_json="json" in parsed and parsed.json))


def _overview() -> str:
    lines = [
        "usage: hermes                      chat; in a pipe, answer the piped text",
        "       hermes -q TEXT              answer one question (-z: the bare answer, for scripts)",
        "       hermes --continue           continue the latest conversation (--resume ID: that one)",
        "       hermes COMMAND …",
        "",
        "Hermes: an AI agent whose conversations are never lost, doubled or mixed up.",
    ]
    width = max(len(name) for name in COMMANDS)
    for title, rows in GROUPS.items():
        lines += ["", f"{title}:", *(f"  {row.name:<{width}}  {row.help}" for row in rows)]
    lines += ["", "hermes COMMAND --help shows more (hermes chat --help: all options of a chat)."]
    return "\n".join(lines)


def _suggestion(name: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, COMMANDS, n=1)
    return f"Did you mean hermes {near[0]}?" if near else "hermes --help lists them."


def _cover_secrets() -> None:
    """Keep secrets out of the traceback that Python is about to print."""
    from hermes_cli.framework import crash

    sys.excepthook = crash.show


def _complain(line: str) -> None:
    from hermes_cli.framework.text import harmless

    try:
        print(f"hermes: {harmless(line)}", file=sys.stderr, flush=True)
    except OSError:  # stderr is gone; the exit code still tells
        return


def _replace_odd_text() -> None:
    # A terminal that cannot show a character, or a stored lone surrogate, must not end a command.
    from io import TextIOWrapper

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
