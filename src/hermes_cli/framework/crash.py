"""Crash reports of defects, and the one-line messages of machine faults, which are not defects.

A report is a private file in `<home>/logs`, with the traceback and the versions, and without the arguments
of the command or any secret (`hermes_config.redaction`). Only the newest few are kept. Nothing is sent anywhere.
"""

from __future__ import annotations

import os
import platform
import sys
import time
import traceback
from types import TracebackType

from hermes_config.errors import HermesError
from hermes_config.home import advice, ensure_folder, private_open
from hermes_config.limits import DEFAULTS
from hermes_config.redaction import redacted
from hermes_config.version import VERSION


def report(error: BaseException, *, command: str) -> str:
    """Write the crash report and return the line to print."""
    summary = redacted(f"{type(error).__name__}: {error}")
    lines = [
        f"hermes {VERSION} · Python {platform.python_version()} · {platform.platform()}",
        f"command: {command}",
        f"at: {time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())}",
        "",
        redacted("".join(traceback.format_exception(error))),
    ]
    try:
        folder = ensure_folder("logs")
        stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
        file = folder / f"crash-{stamp}-{os.getpid()}.txt"
        with private_open(file) as opened:
            opened.write("\n".join(lines))
        for old in sorted(folder.glob("crash-*.txt"))[: -DEFAULTS.crash_reports]:
            old.unlink(missing_ok=True)
    except (HermesError, OSError) as trouble:
        return f"internal error: {summary} (no report: {trouble}). HERMES_DEBUG=1 shows more."
    return f"internal error: {summary}. The report is in {file}; nothing was sent anywhere."


def machine_fault(error: Exception) -> str | None:
    """Return the line for an operating system error that a person can fix; None for a defect."""
    if not isinstance(error, OSError) or not (hint := advice(error)):
        return None
    where = f" ({error.filename})" if error.filename else ""
    return redacted(f"{error.strerror}{where}. {hint}")


def show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print the traceback on stderr without secrets (the `sys.excepthook` of `HERMES_DEBUG=1`)."""
    print(redacted("".join(traceback.format_exception(kind, error, trace))), end="", file=sys.stderr)
