"""Crash reports: what a defect leaves behind for the person who will mend it.

A report is a private file in `<home>/logs`, with the traceback and the versions, and without the arguments
of the command or any value the environment or `.env` marks as a secret. Only the newest few are kept.
Nothing is sent anywhere.
"""

from __future__ import annotations

import os
import platform
import re
import time
import traceback
from collections.abc import Iterator

from hermes_config.errors import HermesError
from hermes_config.home import ensure_folder, private_open
from hermes_config.limits import DEFAULTS
from hermes_config.version import VERSION

_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|DATABASE_URL", re.IGNORECASE)
_URL_PASSWORD = re.compile(r"(?<=://)[^/\s@]*@")


def report(error: BaseException, *, command: str) -> str:
    """Write the report and return the line for the person."""
    summary = redact(f"{type(error).__name__}: {error}")
    lines = [
        f"hermes {VERSION} · Python {platform.python_version()} · {platform.platform()}",
        f"command: {command}",
        f"at: {time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())}",
        "",
        redact("".join(traceback.format_exception(error))),
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


def redact(content: str) -> str:
    """The text without passwords in URLs and without the values of secrets this process knows."""
    for secret in _known_secrets():
        content = content.replace(secret, "[secret]")
    return _URL_PASSWORD.sub("[secret]@", content)


def _known_secrets() -> Iterator[str]:
    from hermes_config import config

    for name, value in os.environ.items():
        if _SECRET_NAME.search(name) and len(value) >= 8:
            yield value
    try:
        entries, _ = config.load_or_last_good()
    except HermesError:  # a broken .env was never loaded, so none of it can be in a traceback
        return
    yield from (value for value in entries.dotenv.values() if len(value) >= 8)
