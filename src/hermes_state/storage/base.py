"""The interface of storage engines.

A `Connection` runs one statement at a time, takes `?` parameters on both engines and returns finished rows, never a
cursor. An `Engine` lends connections to readers and runs a function inside one write transaction. The engine may run
that function again on a retry, so the function must have no effect except through the connection.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar, TypeVarTuple

from hermes_config.limits import Limits
from hermes_state.columns import DAY
from hermes_state.ids import is_possible_id
from hermes_state.storage.statements import Statement

if TYPE_CHECKING:
    from hermes_state.storage.writer import QueuedWrite


_BATCH = 500
T = TypeVar("T")
D = TypeVar("D")
Ts = TypeVarTuple("Ts")
Row = tuple[Any, ...]
Params = Sequence[Any]


class Result:
    """The finished result of one statement: its rows, their column names, and how many rows it changed."""

    __slots__ = ("_at", "columns", "rowcount", "rows")

    def __init__(self, rows: list[Row], columns: Sequence[str], rowcount: int) -> None:
        self.rows = rows
        self.columns = columns
        self.rowcount = rowcount
        self._at = 0

    def fetchone(self) -> Row | None:
        if self._at >= len(self.rows):
            return None
        self._at += 1
        return self.rows[self._at - 1]

    def fetchall(self) -> list[Row]:
        rest = self.rows[self._at :]
        self._at = len(self.rows)
        return rest

    def __iter__(self) -> Iterator[Row]:
        return iter(self.fetchall())

    def dicts(self) -> list[dict[str, Any]]:
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


class Connection(Protocol):
    """One connection; in a write it is inside the transaction."""

    @property
    def dialect(self) -> str: ...

    @property
    def written(self) -> int:
        """Grows with every row that is written, or may be."""

    def execute(self, sql: str | Statement, params: Params = ()) -> Result:
        """Run one statement; rows, column names and count are complete when this returns."""

    def rows(self, sql: str | Statement, params: Params = ()) -> list[Row]:
        """Run one statement and return only its rows; the fast way to read."""

    def run(self, sql: str | Statement, params: Params = ()) -> int:
        """Run an INSERT, UPDATE or DELETE and return how many rows it changed; the fast way to write."""

    def many(self, sql: str | Statement, rows: Sequence[Params]) -> None:
        """Run the statement for each of `rows`."""

    def last_id(self) -> int:
        """The number that the database assigned to the row that this connection inserted last."""


OnLongWait = Callable[[int], object]
"""Called with the seconds after which the write gives up."""


class Engine(Protocol):
    """One open database."""

    on_long_wait: OnLongWait | None
    """Called in the waiting thread when another process delays a write for longer than a person expects. Only SQLite
    calls it: a PostgreSQL server does the waiting itself."""

    @property
    def dialect(self) -> str: ...

    @property
    def where(self) -> str:
        """The file or the address without a password, for messages to people."""

    def read(self, fn: Callable[[Connection], T], *, snapshot: bool = False) -> T:
        """Call `fn` with a reader's connection; with `snapshot` all its statements see the same state."""

    def write(self, fn: Callable[[Connection, *Ts], T], *args: *Ts, single: bool = False) -> T:
        """Run `fn(conn, *args)` in one durable transaction. `single`: fn runs exactly one statement."""

    def submit(self, jobs: Iterable[QueuedWrite]) -> None:
        """Like `write`, in the store's own thread, which calls each job's `notify` afterwards."""

    def close(self) -> None: ...


def first(rows: list[Row]) -> Row | None:
    return rows[0] if rows else None


def scalar(rows: list[Row]) -> Any:
    return rows[0][0] if rows else None


def insert_statement(table: str, names: Iterable[str], *, skip_known: bool = False) -> str:
    """INSERT of one row by its column names; with `skip_known` a row whose key exists stays unchanged.

    Here and in `set_columns` table and column names come from our own schema.
    """
    columns = list(names)
    end = ") ON CONFLICT DO NOTHING" if skip_known else ")"
    return " ".join(("INSERT INTO", table, "(", ", ".join(columns), ") VALUES (", ", ".join("?" for _ in columns), end))


def put(conn: Connection, table: str, row: Mapping[str, Any]) -> bool:
    """Insert a row unless its key exists; whether it was inserted."""
    return conn.run(insert_statement(table, row, skip_known=True), tuple(row.values())) == 1


def set_columns(conn: Connection, table: str, row_id: str, /, **values: Any) -> bool:
    """Set columns of the row with this `id`; False without such a row."""
    settings = ", ".join(f"{name} = ?" for name in values)
    return conn.run(" ".join(("UPDATE", table, "SET", settings, "WHERE id = ?")), (*values.values(), row_id)) == 1


Clock = Callable[[], float]


class Store:
    """The engine, clock and limits that every part needs; it opens and closes nothing."""

    def __init__(self, engine: Engine, *, clock: Clock = time.time, limits: Limits | None = None) -> None:
        self.engine = engine
        self.clock = clock
        self.limits = limits or Limits()

    def _execute_write(self, fn: Callable[[Connection], T]) -> T:
        """Run `fn(conn)` in one transaction; `conn.execute(sql, params)` takes `?` parameters on both engines."""
        return self.engine.write(fn)

    def look(self, row_id: object, fn: Callable[[Connection], T], nothing: D, *, snapshot: bool = False) -> T | D:
        """The result of `fn(conn)`, which reads one row; `nothing` for an impossible id."""
        return self.engine.read(fn, snapshot=snapshot) if is_possible_id(row_id) else nothing


S = TypeVar("S", bound="Store | StorePart")
P = ParamSpec("P")


def in_transaction(method: Callable[Concatenate[S, Connection, P], T]) -> Callable[Concatenate[S, P], T]:
    """Decorator for a method that takes a connection: each call is one transaction, durable when it returns.

    The engine may run the method again on a retry, so one run must not consume its arguments.
    """

    @functools.wraps(method)
    def verb(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.engine.write(lambda conn: method(self, conn, *args, **kwargs))

    return verb


class StorePart:
    """A part of the store that is an attribute of `SessionDB`: `db.inbox`, `db.outbox` …"""

    def __init__(self, store: Store) -> None:
        self._store = store

    @property
    def engine(self) -> Engine:
        return self._store.engine

    def _rows(self, statement: Statement, params: Params = ()) -> list[Row]:
        return self._store.engine.read(lambda conn: conn.rows(statement, params))

    def _one(self, make: Callable[[Row], T], statement: Statement, params: Params) -> T | None:
        """The first row of one read, converted by `make`; None without rows."""
        found = self._rows(statement, params)
        return make(found[0]) if found else None

    def _run(self, statement: Statement, params: Params = ()) -> int:
        """Run one write in its own transaction; returns how many rows it changed."""
        return self._store.engine.write(lambda conn: conn.run(statement, params), single=True)

    def _remove_old(self, days: float, *statements: Statement, times: int = 1) -> int:
        """Run bounded DELETEs of rows from before so many days, in short transactions, until nothing is left.

        Their parameters are that time, `times` times, and the bound.
        """
        params = (*(self._store.clock() - days * DAY,) * times, _BATCH)

        def step(conn: Connection) -> int:
            return sum(conn.run(statement, params) for statement in statements)

        removed = 0
        while (count := self.engine.write(step)) >= _BATCH:
            removed += count
        return removed + count
