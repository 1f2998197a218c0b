"""A database of hermes-agent, opened so that not a byte of its folder changes.

A file at rest is opened in place as immutable: SQLite then takes no lock and makes no side file, even in a read-only
folder. A file with a write-ahead log or a rollback journal is copied with it to a private temporary folder and opened
there, so that committed rows in the log are read. Afterwards `unchanged` tells whether anybody wrote meanwhile. Their
columns vary with age: `messages` and `rows` give every row the requested columns, with NULL for missing ones.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import apsw

from hermes_state.errors import FutureSchema, NotADatabase, StateError, StoreUnavailable
from hermes_state.storage import schema
from hermes_state.storage.base import Row
from hermes_state.storage.sqlite import open_in_this_process
from hermes_state.storage.sqlite_errors import translated
from hermes_state.storage.statements import Queries
from hermes_state.transfer.tables import quoted

Q = Queries("import_home")

NEWEST = 22
_MAGIC = b"SQLite format 3\0"
_BATCH = 2_000
_NEEDED = {"sessions": {"id"}, "messages": {"id", "session_id", "role"}}


class AlreadyOurs(NotADatabase):
    """The database already belongs to this Hermes."""


@dataclass(frozen=True, slots=True)
class AgentHome:
    """A folder of hermes-agent and its readable parts."""

    folder: Path
    database: Path | None
    sessions_file: Path | None
    whole: bool
    """False when the caller named only a database file: then the rest of its folder is ignored."""


def find(path: Path) -> AgentHome:
    """The home at `path`, which is its folder or its database file."""
    if not path.exists():
        raise StoreUnavailable("this folder does not exist", where=str(path), hint="Name the folder of the other home.")
    if path.is_file() and path.name != "state.db":
        return AgentHome(path.parent, path, None, whole=False)
    folder = path.parent if path.is_file() else path
    database, index = folder / "state.db", folder / "sessions" / "sessions.json"
    if not database.is_file() and not index.is_file():
        raise NotADatabase(
            "this is not a home of hermes-agent: it has neither state.db nor sessions/sessions.json",
            where=str(folder),
            hint="Name the folder of the other home.",
        )
    return AgentHome(folder, database if database.is_file() else None, index if index.is_file() else None, whole=True)


class HomeDatabase:
    """Their database, open for reading until `close`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.where = str(path)
        if open_in_this_process(path):
            raise StoreUnavailable(
                "this process has the database open as its store", where=self.where, hint="Close the store first."
            )
        self._seen = _state_of(path)
        self._copy: Path | None = None
        with translated(self.where):
            self._refuse_no_database()
            self._raw = self._open()
            try:
                self._inspect()
            except BaseException:
                self.close()
                raise

    def _refuse_no_database(self) -> None:
        try:
            with self.path.open("rb") as file:
                head = file.read(len(_MAGIC))
        except OSError as error:
            raise StoreUnavailable(f"the file cannot be read: {error.strerror}", where=self.where) from error
        if head != _MAGIC:
            what = "the file is not a database" if head else "the file is empty"
            raise NotADatabase(f"{what}; it was left untouched", where=self.where)

    def _open(self) -> apsw.Connection:
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        side = [Path(f"{self.path}{end}") for end in ("-wal", "-journal")]
        side = [file for file in side if file.exists() and file.stat().st_size > 0]
        if not side:
            return apsw.Connection(f"file:{quote(str(self.path.absolute()))}?immutable=1", flags)
        self._copy = Path(tempfile.mkdtemp(prefix="hermes-import-"))
        try:
            for file in (self.path, *side):
                shutil.copyfile(file, self._copy / file.name)
        except OSError as error:
            shutil.rmtree(self._copy, ignore_errors=True)
            raise StoreUnavailable(
                f"the database cannot be copied aside: {error.strerror}",
                where=str(self._copy),
                hint="Free some space, or set TMPDIR to a larger disk.",
            ) from error
        return apsw.Connection(str(self._copy / self.path.name), apsw.SQLITE_OPEN_READWRITE)

    def _inspect(self) -> None:
        tables = [row[0] for row in self._raw.execute(Q.source_tables.sqlite)]
        self.indexes = [row[0] for row in self._raw.execute(Q.source_indexes.sqlite)]
        shadows = tuple(f"{index}_" for index in self.indexes)
        self.tables: dict[str, dict[str, str]] = {
            table: {str(name): str(kind) for name, kind in self._raw.execute(Q.source_columns.sqlite, (table,))}
            for table in tables
            if not table.startswith(shadows or "\0")
        }
        if "conversations" in self.tables and "schema_version" in self.tables:
            raise AlreadyOurs(
                "this database belongs to Hermes, not to hermes-agent",
                where=self.where,
                hint="Use hermes backup or hermes sessions export and import.",
            )
        if any(not columns <= self.tables.get(table, {}).keys() for table, columns in _NEEDED.items()):
            raise NotADatabase("the database belongs to another program; it was left untouched", where=self.where)
        self.version = self._version()
        if self.version > NEWEST:
            raise FutureSchema(
                f"this home has schema {self.version} of hermes-agent, newer than {NEWEST}; it was left untouched",
                where=self.where,
                hint="A newer Hermes may know it.",
            )
        self.message_count, self.first_id, self.last_id = self._one(Q.source_range.sqlite)

    def _version(self) -> int:
        """The schema version; 0 for a file from before versions."""
        if "version" not in self.tables.get("schema_version", {}):
            return 0
        found = self._one(Q.source_version.sqlite)[0]
        version = found if isinstance(found, int) else 0
        if version >= schema.OURS_FROM:
            raise FutureSchema("this database belongs to a newer Hermes", where=self.where)
        return version

    # -- reading -----------------------------------------------------------------------------------------

    def rows(self, table: str, columns: Sequence[str]) -> list[Row]:
        """All rows of a table, with these `columns`."""
        sql = Q.source_rows.on(quoted(table)).sqlite
        return self._read(sql, table, columns, ())

    def count(self, table: str) -> int:
        return int(self._one(Q.source_count.on(quoted(table)).sqlite)[0])

    def messages(self, columns: Sequence[str]) -> Iterator[list[Row]]:
        """The transcript in batches, by id. `id` must be the first column."""
        last = -(2**63)
        while True:
            batch = self._read(Q.source_messages.sqlite, "messages", columns, (last, _BATCH))
            if not batch:
                return
            yield batch
            last = batch[-1][0]

    def messages_of(self, session_id: str, columns: Sequence[str]) -> list[Row]:
        return self._read(Q.source_messages_of.sqlite, "messages", columns, (session_id,))

    def activity(self) -> dict[object, tuple[int, object]]:
        """Session id → number of messages and the time of the newest."""
        if "timestamp" not in self.tables["messages"]:
            return {}
        return {session: (count, newest) for session, count, newest in self._all(Q.source_activity.sqlite)}

    def first_user_messages(self) -> list[Row]:
        """(session id, stored content)."""
        columns = self.tables["messages"]
        if "timestamp" not in columns or "content" not in columns:
            return []
        try:
            return self._all(Q.source_first_user.sqlite)
        except UnicodeDecodeError:
            lenient = Q.source_first_user.sqlite.replace("m.content", "CAST(m.content AS BLOB)", 1)
            return [tuple(map(readable, row)) for row in self._all(lenient)]

    def _read(self, sql: str, table: str, columns: Sequence[str], params: tuple[object, ...]) -> list[Row]:
        there = self.tables[table]
        names = [quoted(name) if name in there else "NULL" for name in columns]
        try:
            return self._all(sql.replace("{columns}", ", ".join(names)), params)
        except UnicodeDecodeError:  # invalid text: read as bytes, shown with U+FFFD
            lenient = [
                f"CASE typeof({name}) WHEN 'text' THEN CAST({name} AS BLOB) ELSE {name} END" if name != "NULL" else name
                for name in names
            ]
            found = self._all(sql.replace("{columns}", ", ".join(lenient)), params)
            return [tuple(map(readable, row)) for row in found]

    def _all(self, sql: str, params: tuple[object, ...] = ()) -> list[Row]:
        with translated(self.where):
            return self._raw.execute(sql, params).fetchall()

    def _one(self, sql: str) -> Row:
        return self._all(sql)[0]

    def unchanged(self) -> bool:
        """Whether nobody wrote to the home since it was opened."""
        return _state_of(self.path) == self._seen

    def require_unchanged(self) -> None:
        if not self.unchanged():
            raise StateError(
                "the home was written to while it was being read; nothing was stored",
                where=self.where,
                hint="Stop the program that uses it and try again.",
            )

    def close(self) -> None:
        self._raw.close()
        if self._copy is not None:
            shutil.rmtree(self._copy, ignore_errors=True)

    def __enter__(self) -> HomeDatabase:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def readable(value: object) -> object:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _state_of(path: Path) -> dict[str, tuple[int, int]]:
    """Size and time of the file and its log. The shared-memory file is ignored: readers change it."""
    found = {}
    for file in (str(path), f"{path}-wal", f"{path}-journal"):
        try:
            status = os.stat(file)  # noqa: PTH116
        except OSError:
            continue
        found[file] = (status.st_size, status.st_mtime_ns)
    return found
