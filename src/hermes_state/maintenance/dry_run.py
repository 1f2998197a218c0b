"""Doing something for real and taking it back: an exact dry run of any code that works on a store.

`rehearse(engine, fn)` hands `fn` an engine on which reads and writes happen inside one transaction, and rolls that
back at the end. So a dry run cannot tell anything else than the run would do. On SQLite others wait to write for as
long as it takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar, TypeVarTuple

from hermes_state.storage.base import Connection, Engine
from hermes_state.storage.writer import Job

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


def run_and_roll_back(engine: Engine, fn: Callable[[Engine], T]) -> T:
    """What `fn` returns, given an engine on which nothing lasts."""

    def run(conn: Connection) -> None:
        raise _TakenBack(fn(_Rehearsal(engine, conn)))

    try:
        engine.write(run)
    except _TakenBack as end:
        result: T = end.result
        return result
    raise AssertionError("unreachable")


class _TakenBack(Exception):
    """Carries a result out of a transaction that must not last."""

    def __init__(self, result: Any) -> None:
        super().__init__()
        self.result = result


class _Rehearsal:
    """An engine whose every read and write goes to one connection, inside its transaction."""

    def __init__(self, engine: Engine, conn: Connection) -> None:
        self.dialect = engine.dialect
        self.where = engine.where
        self.on_long_wait = engine.on_long_wait
        self._conn = conn

    def read(self, fn: Callable[[Connection], T], *, snapshot: bool = False) -> T:
        return fn(self._conn)

    def write(self, fn: Callable[[Connection, *Ts], T], *args: *Ts, single: bool = False) -> T:
        return fn(self._conn, *args)

    def submit(self, jobs: Iterable[Job]) -> None:
        raise NotImplementedError("a rehearsal waits for each write")

    def close(self) -> None:
        """The connection belongs to whoever rehearses."""
