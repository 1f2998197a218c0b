"""Where warnings and what was caught go while a person talks: into `<home>/logs/agent.log`, never onto the screen.

The file is private and bounded: when it is full it becomes `agent.log.1`, and the one before that is gone. It is opened
for each line anew, so that several processes can share it and each can put it aside. Secrets are covered before a
record reaches any handler (`hermes_config.log_guard`). With `HERMES_DEBUG=1` the same lines go to stderr as well.
"""

from __future__ import annotations

import logging
import os
import time

from hermes_config import log_guard
from hermes_config.errors import HermesError
from hermes_config.home import ensure_folder, private_open
from hermes_config.limits import DEFAULTS

_NAME = "agent.log"


class LogFile(logging.Handler):
    """A log that costs nothing until there is something to write."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            file = ensure_folder("logs") / _NAME
            if file.exists() and file.stat().st_size > DEFAULTS.log_bytes:
                file.replace(file.with_name(f"{_NAME}.1"))
            with private_open(file, "a") as opened:
                opened.write(f"{self.format(record)}\n")
        except (OSError, HermesError):  # a full disk must not end the turn it is reporting on
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  logging's name
        """Say nothing: the only other place would be the person's screen."""


class _Lines(logging.Formatter):
    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%SZ"
    default_msec_format = None

    def format(self, record: logging.LogRecord) -> str:
        action = vars(record).get("action")
        said = super().format(record)
        return said if action is None else said.replace(" · ", f" · {action} · ", 1)


def install() -> None:
    """For the rest of this process. Called again, it does nothing."""
    root = logging.getLogger()
    if any(isinstance(handler, LogFile) for handler in root.handlers):
        return
    log_guard.install()
    handlers: list[logging.Handler] = [LogFile()]
    if os.environ.get("HERMES_DEBUG"):
        handlers.append(logging.StreamHandler())
    for handler in handlers:
        handler.setLevel(logging.WARNING)
        handler.setFormatter(_Lines("%(asctime)s %(levelname)s %(name)s · %(message)s"))
        root.addHandler(handler)
