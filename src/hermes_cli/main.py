"""The `hermes` command: finds the command in the table, runs it and returns an exit code.

The top-level help and version are printed from the table without importing argparse, `typing` or another Hermes
package, so they cost little more than starting Python. This module catches every exception: Hermes errors and machine
faults (a full disk, a missing permission) become one line, Ctrl-C returns 130, a closed pipe prints nothing, and a
defect becomes a line with the path of the crash report. `HERMES_DEBUG=1` shows the traceback instead.
"""

from __future__ import annotations

import gc
import os
import sys
from types import TracebackType

from hermes_cli.commands import COMMANDS, GROUPS
from hermes_config.errors import HermesError, UsageError

_INTERRUPTED = 130
_READER_GONE = 141
_ALSO_FOR_ROOT = ("doctor", "demo", "completion")
"""Commands that root may run on somebody else's home: they write nothing there."""
_COLLECTED_AFTER = 20_000
"""New objects before the first garbage collection. The default would run 60 useless collections during imports."""


def run() -> None:
    """Entry point of the `hermes` process. Without threads or logs, it skips the interpreter's teardown.

    Skipping the teardown saves a tenth of a short command's time.
    """
    gc.set_threshold(_COLLECTED_AFTER)
    if None in (sys.stdin, sys.stdout, sys.stderr):
        _open_closed_streams()
    try:
        code = main()
    finally:  # also runs when a signal ends the process
        gone = flush_output()
    threading = sys.modules.get("threading")
    if "logging" in sys.modules or (threading is not None and threading.active_count() > 1):
        import signal

        # Ctrl-C during the exit ends it without Python's own traceback.
        signal.signal(signal.SIGINT, lambda *_: os._exit(code))
        sys.exit(code)  # threads and log handlers finish
    os._exit(code or (_READER_GONE if gone else 0))


def flush_output() -> bool:
    """Flush stdout and stderr, and return whether a reader is gone.

    A stream without a reader is pointed at /dev/null: otherwise Python would flush it again at exit and exit with 120.
    """
    gone = False
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            gone = True
    return gone


def _open_closed_streams() -> None:
    """Open streams that the caller closed (`<&-`, `>&-`) on /dev/null, so that no later file gets their numbers."""
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
    except KeyboardInterrupt:
        _complain("interrupted")
        return _INTERRUPTED
    except BrokenPipeError:
        return _READER_GONE
    except Exception as error:  # boundary of the command line: print one line
        if os.environ.get("HERMES_DEBUG"):
            sys.excepthook = _show_traceback
            raise
        code, line = _described(error, command=arguments[0] if arguments else "")
        _complain(line)
        return code


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
    if os.geteuid() == 0 and name not in _ALSO_FOR_ROOT:
        from hermes_config.home import hermes_home, refuse_root

        refuse_root(hermes_home())
    outcome = parsed.run(parsed)
    if isinstance(outcome, int | None):
        return outcome or 0
    return int(outcome.print(as_json="json" in parsed and parsed.json))


def _overview() -> str:
    lines = [
        "usage: hermes                      start a chat; in a pipe, answer the piped text",
        "       hermes -q TEXT              answer one question (-z: print only the answer, for scripts)",
        "       hermes --continue           continue the latest conversation (--resume ID: a specific one)",
        "       hermes COMMAND …            run a command from the list below",
        "",
        "Hermes: an AI agent whose conversations are never lost, doubled or mixed up.",
    ]
    width = max(len(name) for name in COMMANDS)
    for title, rows in GROUPS.items():
        lines += ["", f"{title}:", *(f"  {row.name:<{width}}  {row.help}" for row in rows)]
    lines += [
        "",
        "hermes COMMAND --help shows the options of a command (hermes chat --help: those of a chat).",
        "Plug-ins can add commands: hermes plugins list shows them.",
    ]
    return "\n".join(lines)


def _suggestion(name: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, COMMANDS, n=1)
    return f"Did you mean hermes {near[0]}?" if near else "hermes --help lists all commands."


def _described(error: Exception, *, command: str) -> tuple[int, str]:
    """Return the exit code and the line of an error; a defect is also written to a crash report."""
    if isinstance(error, HermesError):
        return error.exit_code, error.one_line()
    from hermes_config.home import advice
    from hermes_config.redaction import redacted

    if isinstance(error, OSError) and (hint := advice(error)):  # a person can fix it
        where = f" ({error.filename})" if error.filename else ""
        return 1, redacted(f"{error.strerror}{where}. {hint}")
    summary = redacted(f"{type(error).__name__}: {error}")
    try:
        return 70, f"internal error: {summary}. The report is in {_report(error, command)}; nothing was sent anywhere."
    except (HermesError, OSError) as trouble:
        return 70, f"internal error: {summary} (no report: {trouble}). HERMES_DEBUG=1 shows more."


def _report(error: Exception, command: str) -> str:
    """Write a crash report and return its path.

    It is a private file in `<home>/logs`, with the traceback and the versions, and without the arguments of the command
    or any secret. Only the newest few are kept.
    """
    import platform
    import time
    import traceback

    from hermes_config.home import ensure_folder, private_open
    from hermes_config.limits import DEFAULTS
    from hermes_config.redaction import redacted
    from hermes_config.version import VERSION

    now = time.gmtime()
    lines = [
        f"hermes {VERSION} · Python {platform.python_version()} · {platform.platform()}",
        f"command: {command}",
        f"at: {time.strftime('%Y-%m-%dT%H:%M:%SZ', now)}",
        "",
        redacted("".join(traceback.format_exception(error))),
    ]
    folder = ensure_folder("logs")
    file = folder / f"crash-{time.strftime('%Y%m%d-%H%M%S', now)}-{os.getpid()}.txt"
    with private_open(file) as opened:
        opened.write("\n".join(lines))
    for old in sorted(folder.glob("crash-*.txt"))[: -DEFAULTS.crash_reports]:
        old.unlink(missing_ok=True)
    return str(file)


def _show_traceback(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print a traceback without secrets (the `sys.excepthook` of `HERMES_DEBUG=1`)."""
    import traceback

    from hermes_config.redaction import redacted

    print(redacted("".join(traceback.format_exception(kind, error, trace))), end="", file=sys.stderr)


def _complain(line: str) -> None:
    from hermes_cli.framework import output

    try:
        output.complain(line)
    except OSError:  # stderr is closed; the exit code still reports the error
        return


def _replace_odd_text() -> None:
    # A terminal that cannot show a character, or a stored lone surrogate, must not end a command.
    from io import TextIOWrapper

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
