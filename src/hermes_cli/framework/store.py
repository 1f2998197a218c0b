"""Opens the store that the environment or the configuration names.

A command that only reads never creates a database: without one, it prints a one-line error.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_cli.framework import text
from hermes_config import config
from hermes_config.errors import UsageError
from hermes_state.errors import StoreUnavailable

if TYPE_CHECKING:
    from hermes_state import SessionDB


def address() -> str | Path:
    """Return the address of the store: `HERMES_DATABASE_URL`, then `state.database_url`, else `<home>/state.db`."""
    return _address(config.load())


def _address(loaded: config.Config) -> str | Path:
    return loaded.database_url() or loaded.home / "state.db"


@contextmanager
def open_store(
    *, create: bool = False, says_waits: bool = True, write_wait_ms: int | None = None
) -> Iterator[SessionDB]:
    """Open the store, and close it at the end. Only `create` makes a new one.

    With `says_waits`, one line on stderr says that the command waits for another program's lock.
    """
    from hermes_state import SessionDB  # importing the engine costs more than the rest of a command
    from hermes_state.transfer.import_home import in_use

    in_use.refuse_hermes_agent_installed()
    loaded = config.load()
    where = _address(loaded)
    file = database_file(where)
    if file is not None and not create and not file.exists():
        hint = "HERMES_HOME names another home; hermes demo shows one."
        raise StoreUnavailable("there are no conversations yet", where=str(file), hint=hint)
    limits = loaded.limits
    if write_wait_ms is not None:
        limits = limits.changed(write_wait_ms=write_wait_ms)
    db = SessionDB(where, synchronous=loaded.state.synchronous.upper(), limits=limits)

    def say(seconds: int) -> None:
        db.engine.on_long_wait = None
        line = f"hermes: another program holds the database ({db.engine.where}); waiting up to {seconds} s for it"
        with suppress(OSError):  # stderr is closed
            print(text.harmless(line), file=sys.stderr, flush=True)

    db.engine.on_long_wait = say if says_waits else None
    try:
        yield db
    finally:
        db.engine.on_long_wait = None  # another store may share the engine
        db.close()


def exists() -> bool:
    """Whether a store exists; a database server counts as one."""
    file = database_file(address())
    return file is None or file.exists()


def database_file(where: str | Path) -> Path | None:
    """The SQLite file of an address; None for a server."""
    file = str(where).removeprefix("sqlite:///")
    return None if "://" in file else Path(file)


def refuse_database(path: Path) -> None:
    """Raise an error if `path` is a file of the store, its log or its index."""
    file = database_file(address())
    if file is None:
        return
    own, given = Path(os.path.realpath(file)), Path(os.path.realpath(path))
    if given.parent == own.parent and given.name.startswith((own.name, f"{own.stem}.search.db")):
        raise UsageError("this file belongs to the database itself", where=str(path), hint="Give another file.")
