"""Logs without secrets: every record of this process is covered when it is made, before any handler sees it.

One place, because handlers are other people's: a service manager's, a plug-in's, a test's. What is covered is the
message and the traceback. Values under `extra` are ours to choose and are names and numbers, never text of others.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from typing import Any


def install() -> None:
    """Cover the records of this process from now on. Called again, it does nothing."""
    before = logging.getLogRecordFactory()
    if isinstance(before, _Guard):
        return
    logging.setLogRecordFactory(_Guard(before))


class _Guard:
    def __init__(self, make: Callable[..., logging.LogRecord]) -> None:
        self._make = make

    def __call__(self, *args: Any, **kwargs: Any) -> logging.LogRecord:
        from hermes_config import secrets  # its patterns take 4 ms to build, and most processes log nothing

        record = self._make(*args, **kwargs)
        cover = secrets.redactor()
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
