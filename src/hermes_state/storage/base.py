"""What the rest of the package sees of an engine.

A `Connection` runs one statement at a time, takes `?` parameters on both engines and hands back finished
rows: nobody holds a cursor. An `Engine` lends connections to readers and runs a function inside one write
transaction. That function may be run again when the engine has to retry, so it must have no effect but
through the connection.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar, TypeVarTuple

from hermes_config.limits import Limits
from hermes_state.ids import is_possible_id
from hermes_state.storage.statements import Statement

if TYPE_CHECKING:
    from hermes_state.storage.writer import Job


T = TypeVar("T")
D = TypeVar("D")
Ts = TypeVarTuple("Ts")
Row = tuple[Any, ...]
Params = Sequence[Any]


class Result:
    """The finished outcome of one statement: its rows, their column names, how many rows it changed."""

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
        """Just the rows: the quick way to read."""

    def run(self, sql: str | Statement, params: Params = ()) -> int:
        """How many rows an INSERT, UPDATE or DELETE touched: the quick way to write."""

    def many(self, sql: str | Statement, rows: Sequence[Params]) -> None:
        """The same statement for each of `rows`."""


OnLongWait = Callable[[int], object]
"""Gets the seconds after which the write gives up."""


class Engine(Protocol):
    """One database, opened."""

    on_long_wait: OnLongWait | None
    """Told, in the thread that waits, when another process holds a write up for longer than a person expects. SQLite
    alone knows: a server does the waiting by itself."""

    @property
    def dialect(self) -> str: ...

    @property
    def where(self) -> str:
        """The file or the address, without a password: for messages to people."""

    def read(self, fn: Callable[[Connection], T], *, snapshot: bool = False) -> T:
        """`fn` with a reader's connection; with `snapshot` all its statements see one moment."""

    def write(self, fn: Callable[[Connection, *Ts], T], *args: *Ts, single: bool = False) -> T:
        """`fn(conn, *args)` in one transaction, durable when this returns. `single`: fn runs exactly one statement."""

    def submit(self, jobs: Iterable[Job]) -> None:
        """As `write`, from a thread of the store's own; each job's `notify` is called there afterwards."""

    def close(self) -> None: ...


def first(rows: list[Row]) -> Row | None:
    return rows[0] if rows else None


def scalar(rows: list[Row]) -> Any:
    return rows[0][0] if rows else None


def insert_statement(table: str, names: Iterable[str], *, skip_known: bool = False) -> str:
    """INSERT of one row by the names of its columns; with `skip_known` a row whose key is there already is left alone.

    Here and in `set_columns` table and column names come from our own schema.
    """
    columns = list(names)
    end = ") ON CONFLICT DO NOTHING" if skip_known else ")"
    return " ".join(("INSERT INTO", table, "(", ", ".join(columns), ") VALUES (", ", ".join("?" for _ in columns), end))


def put(conn: Connection, table: str, row: Mapping[str, Any]) -> bool:
    """Insert a row unless its key is there already; whether it was inserted."""
    return conn.run(insert_statement(table, row, skip_known=True), tuple(row.values())) == 1


def set_columns(conn: Connection, table: str, row_id: str, /, **values: Any) -> bool:
    """Set columns of the row with this `id`; False when there is none."""
    settings = ", ".join(f"{name} = ?" for name in values)
    return conn.run(" ".join(("UPDATE", table, "SET", settings, "WHERE id = ?")), (*values.values(), row_id)) == 1


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

    def look(self, row_id: object, fn: Callable[[Connection], T], nothing: D, *, snapshot: bool = False) -> T | D:
        """What `fn(conn)` reads of one row; `nothing` for an id that no row can have."""
        return self.engine.read(fn, snapshot=snapshot) if is_possible_id(row_id) else nothing


S = TypeVar("S", bound="Store | StorePart")
P = ParamSpec("P")


def in_transaction(method: Callable[Concatenate[S, Connection, P], T]) -> Callable[Concatenate[S, P], T]:
    """For a method that takes a connection: each call of it is one transaction, durable when it returns.

    The method may be run again when the engine has to retry: its arguments must not be used up by one run.
    """

    @functools.wraps(method)
    def verb(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.engine.write(lambda conn: method(self, conn, *args, **kwargs))

    return verb


class StorePart:
    """A part of the store that hangs on `SessionDB` as an attribute: `db.inbox`, `db.outbox` …"""

    def __init__(self, store: Store) -> None:
        self._store = store

    @property
    def engine(self) -> Engine:
        return self._store.engine

    def _rows(self, statement: Statement, params: Params = ()) -> list[Row]:
        """The rows of one read."""
        return self._store.engine.read(lambda conn: conn.rows(statement, params))

    def _one(self, make: Callable[[Row], T], statement: Statement, params: Params) -> T | None:
        """The first row of one read, as `make` gives it; None without rows."""
        found = self._rows(statement, params)
        return make(found[0]) if found else None

    def _run(self, statement: Statement, params: Params = ()) -> int:
        """How many rows one write touched; it is a transaction of its own."""
        return self._store.engine.write(lambda conn: conn.run(statement, params), single=True)
