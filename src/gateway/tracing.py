"""The trace id of the message that is being worked on, in every log line that is written meanwhile.

A context variable, so tasks that a turn starts inherit it and two turns never mix. Rows carry the same id
(`hermes trace` shows them as a timeline); a record that names an id of its own keeps that.
"""

from __future__ import annotations

import logging
from contextvars import ContextVar

_current: ContextVar[str] = ContextVar("hermes_trace", default="")


def follow(trace_id: str) -> None:
    """From here on, in this task and those it starts."""
    _current.set(trace_id)


def current() -> str:
    return _current.get()


class TraceFilter(logging.Filter):
    """Adds `trace_id` to records; lets all of them through."""

    def filter(self, record: logging.LogRecord) -> bool:
        if trace_id := _current.get():
            vars(record).setdefault("trace_id", trace_id)
        return True


def install() -> None:
    """For every handler that is there. Called again, it does nothing."""
    for handler in logging.getLogger().handlers:
        if not any(isinstance(one, TraceFilter) for one in handler.filters):
            handler.addFilter(TraceFilter())
