"""An exact dry run of any code that works on a store: run it, then roll it back.

The code gets an engine on which all reads and writes happen inside one transaction, so a dry run reports exactly what
the run would do. On SQLite other writers wait until it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar, TypeVarTuple

from hermes_state.storage.base import Connection, Engine
from hermes_state.storage.writer import QueuedWrite

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


def run_and_roll_back(engine: Engine, fn: Callable[[Engine], T]) -> T:
    """The result of `fn`, called with an engine whose writes are rolled back."""

    def run(conn: Connection) -> None:
        raise _RolledBack(fn(_DryRunEngine(engine, conn)))

    try:
        engine.write(run)
    except _RolledBack as end:
        result: T = end.result
        return result
    raise AssertionError("unreachable")


class _RolledBack(Exception):
    """Carries a result out of a transaction that is rolled back."""

    def __init__(self, result: Any) -> None:
        super().__init__()
        self.result = result


class _DryRunEngine:
    """An engine whose every read and write uses one connection, inside its transaction."""

    def __init__(self, engine: Engine, conn: Connection) -> None:
        self.dialect = engine.dialect
        self.where = engine.where
        self.on_long_wait = engine.on_long_wait
        self._conn = conn

    def read(self, fn: Callable[[Connection], T], *, snapshot: bool = False) -> T:
        return fn(self._conn)

    def write(self, fn: Callable[[Connection, *Ts], T], *args: *Ts, single: bool = False) -> T:
        return fn(self._conn, *args)

    def submit(self, jobs: Iterable[QueuedWrite]) -> None:
        raise NotImplementedError("a dry run waits for each write")

    def close(self) -> None:
        """Does nothing: the caller of `run_and_roll_back` owns the connection."""
