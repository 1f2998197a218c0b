"""Logging of a process into `<home>/logs/`, never onto a person's screen.

A log file is private and bounded: a full `agent.log` replaces `agent.log.1`. The file is opened for each line, so that
several processes can share it and each can rename it. Secrets are covered before a record reaches any handler. With
`HERMES_DEBUG=1` the same lines also go to stderr.
"""

from __future__ import annotations

import logging
import os
import time
import traceback
from collections.abc import Callable
from typing import Any

from hermes_config.errors import HermesError
from hermes_config.home import ensure_folder, private_open
from hermes_config.limits import DEFAULTS


class LogFile(logging.Handler):
    """A log handler that opens its file only to write a line."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    def emit(self, record: logging.LogRecord) -> None:
        try:
            file = ensure_folder("logs") / self._name
            if file.exists() and file.stat().st_size > DEFAULTS.log_bytes:
                file.replace(file.with_name(f"{self._name}.1"))
            with private_open(file, "a") as opened:
                opened.write(f"{self.format(record)}\n")
        except (OSError, HermesError):  # a full disk must not end the turn it is reporting on
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  logging's name
        """Ignore the error: it could only be shown on the person's screen."""


def prints_into(name: str) -> bool:
    """Whether what this process prints goes into `<home>/logs/<name>`, which its parent opened."""
    try:
        return os.path.samestat(os.fstat(2), (ensure_folder("logs") / name).stat())
    except (OSError, HermesError):
        return False


def bound_printed(name: str) -> None:
    """If this process prints into `<home>/logs/<name>`, bound that file: when it is full, only its newest half stays.

    It was opened for appending, so it can be cut while in use.
    """
    try:
        if os.fstat(2).st_size <= DEFAULTS.log_bytes or not prints_into(name):
            return
        with (ensure_folder("logs") / name).open("rb") as opened:
            opened.seek(-(DEFAULTS.log_bytes // 2), os.SEEK_END)
            newest = opened.read()
        os.ftruncate(2, 0)
        os.write(2, newest.partition(b"\n")[2])
    except (OSError, HermesError):  # no such file, or a full disk: there is another round
        return


class _Lines(logging.Formatter):
    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%SZ"
    default_msec_format = None

    def format(self, record: logging.LogRecord) -> str:
        """A record as one line with an indented traceback below, so that no quoted text can look like a record."""
        facts = vars(record)
        head, *rest = super().format(record).splitlines()
        marks = [_one_line(str(facts[name])) for name in ("action", "trace_id") if facts.get(name)]
        if marks:
            head = head.replace(" · ", f" · {' · '.join(marks)} · ", 1)
        return "\n".join([head, *(f"  {_one_line(line)}" for line in rest)])

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  logging's name
        record.message = _one_line(record.message)
        return super().formatMessage(record)


def _one_line(text: str) -> str:
    """The text with line breaks, controls and direction marks escaped."""
    if text.isprintable():
        return text
    return "".join(mark if mark.isprintable() else mark.encode("unicode_escape").decode() for mark in text)


def install(name: str = "agent.log", *, level: int = logging.WARNING, screen: bool = False) -> None:
    """Start logging for this process; `screen`: also to stderr. A second call does nothing."""
    root = logging.getLogger()
    if any(isinstance(handler, LogFile) for handler in root.handlers):
        return
    redact_records()
    handlers: list[logging.Handler] = [LogFile(name)]
    if screen or os.environ.get("HERMES_DEBUG"):
        handlers.append(logging.StreamHandler())
    logging.getLogger("hermes").setLevel(level)
    for handler in handlers:
        handler.setLevel(level)
        handler.setFormatter(_Lines("%(asctime)s %(levelname)s %(name)s · %(message)s"))
        root.addHandler(handler)


def redact_records() -> None:
    """Cover secrets in all log records of this process from now on. A second call does nothing."""
    before = logging.getLogRecordFactory()
    if isinstance(before, _RedactingFactory):
        return
    logging.setLogRecordFactory(_RedactingFactory(before))


class _RedactingFactory:
    def __init__(self, make: Callable[..., logging.LogRecord]) -> None:
        self._make = make

    def __call__(self, *args: Any, **kwargs: Any) -> logging.LogRecord:
        from hermes_config import redaction

        record = self._make(*args, **kwargs)
        cover = redaction.redactor()
        try:
            said = record.getMessage()
        except Exception as error:  # noqa: BLE001 - a mistake in a log line must not fail what it reports on
            # logging would print the arguments it could not format.
            record.msg, record.args = f"a log line could not be made ({type(error).__name__})", None
        else:
            covered = cover(said)
            if covered != said:
                record.msg, record.args = covered, None
        if record.exc_info and record.exc_info[1] is not None:
            said = "".join(traceback.format_exception(*record.exc_info))
            covered = cover(said)
            if covered != said:
                record.exc_text = covered.rstrip("\n")  # formatters use it instead of making their own
        return record
