"""The ground the parts of `SessionDB` stand on: an engine and a clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from hermes_config.limits import Limits
from hermes_state.engine.base import Connection, Engine

T = TypeVar("T")
Clock = Callable[[], float]


class Store:
    """Holds what every part needs; opens and closes nothing."""

    def __init__(self, engine: Engine, *, clock: Clock = time.time, limits: Limits | None = None) -> None:
        self.engine = engine
        self.clock = clock
        self.limits = limits or Limits()

    def _execute_write(self, fn: Callable[[Connection], T]) -> T:
        """`fn(conn)` in one transaction; `conn.execute(sql, params)` takes `?` parameters on both engines."""
        return self.engine.write(fn)

    def _read(self, fn: Callable[[Connection], T]) -> T:
        return self.engine.read(fn)
