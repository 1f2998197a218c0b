"""The gateway's metrics for Prometheus, and trace ids in log lines. No label names a chat, a person or a text.

Counters count events as they happen; gauges of the store (queue depth, failed deliveries, prefix breaks) are computed
when `/metrics` is read. `prometheus_client` is imported with the first gateway, not with this module.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


_QUICK = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)


class Metrics:
    """The metrics `hermes_*` of one gateway. Their names are public: dashboards use them."""

    def __init__(self) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

        self.registry: CollectorRegistry = CollectorRegistry()
        reg = self.registry

        # The result is called with label values; the cache saves the lock and list that `labels` uses each time.
        def counter(name: str, about: str, *labels: str) -> Callable[..., Counter]:
            return cache(Counter(name, about, labels, registry=reg).labels)

        def seconds(name: str, about: str, *labels: str) -> Callable[..., Histogram]:
            return cache(Histogram(name, about, labels, buckets=_QUICK, registry=reg).labels)

        self.received = counter(
            "hermes_messages_received", "Messages by platform and whether they were taken", "platform", "state"
        )
        self.turns = counter("hermes_turns", "Turns by platform and outcome", "platform", "outcome")
        self.turn_seconds = seconds("hermes_turn_seconds", "From stored message to committed answer", "platform")
        self.deliveries = counter("hermes_deliveries", "Deliveries by platform and outcome", "platform", "outcome")
        self.delivery_seconds = seconds(
            "hermes_delivery_seconds", "From committed answer to the platform's receipt", "platform"
        )
        self.commands = counter("hermes_commands", "Slash commands by outcome", "outcome")
        self.requests = counter("hermes_api_requests", "API requests by path and status", "path", "status")
        self.compressions = Counter(
            "hermes_compressions", "Conversations compressed, by themselves or by hand", registry=reg
        )
        self.loop_lag = Histogram("hermes_loop_lag_seconds", "How late the event loop is", buckets=_QUICK, registry=reg)
        self._gauge = Gauge

    def ask(self, name: str, about: str, read: Callable[[], float]) -> None:
        """Add a gauge that is computed when it is read: `ask("hermes_inbox_queued", "…", count)`."""
        gauge = self._gauge(name, about, registry=self.registry)
        gauge.set_function(read)

    def text(self) -> bytes:
        """The text of `/metrics`. Gauges may read the store, so call this off the event loop."""
        from prometheus_client import generate_latest

        return generate_latest(self.registry)


_current: ContextVar[str] = ContextVar("hermes_trace", default="")


def follow_trace(trace_id: str) -> None:
    """Add this trace id to the log lines of this task and of tasks that it starts.

    Rows have the same id (`hermes trace` shows them as a timeline); a record with its own id keeps that.
    """
    _current.set(trace_id)


class TraceFilter(logging.Filter):
    """Adds `trace_id` to records; lets all of them through."""

    def filter(self, record: logging.LogRecord) -> bool:
        if trace_id := _current.get():
            vars(record).setdefault("trace_id", trace_id)
        return True


def install_trace_filter() -> None:
    """Add the filter to every log handler, once."""
    for handler in logging.getLogger().handlers:
        if not any(isinstance(one, TraceFilter) for one in handler.filters):
            handler.addFilter(TraceFilter())
