"""Moving a store to another database: all of it arrives, verified, or nothing does."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.sample_store import fill_every_table, tell_story
from tests.support.stores import EngineName, TestStores

from hermes_config.limits import Limits
from hermes_state.errors import StateError
from hermes_state.session_db import SessionDB
from hermes_state.storage.base import Connection
from hermes_state.transfer import archive_write, backup, copy_all, kept, tables
from hermes_state.transfer.archive_read import ArchiveFile

pytestmark = pytest.mark.slow

Open = Callable[[EngineName], SessionDB]
DIRECTIONS = [("sqlite", "postgresql"), ("postgresql", "sqlite")]


@pytest.fixture
def open_store(stores: TestStores) -> Iterator[Open]:
    opened = []

    def fresh(engine: EngineName) -> SessionDB:
        opened.append(SessionDB(stores.fresh(engine)))
        return opened[-1]

    yield fresh
    for db in opened:
        db.close()


def content(db: SessionDB, folder: Path, name: str) -> dict[str, str]:
    made = archive_write.export(db, folder / f"{name}.zip")
    return {file: promise["sha256"] for file, promise in made["files"].items()}


def database_tables(db: SessionDB) -> set[str]:
    """What the database itself says it holds, asked without our own list."""
    question = {
        "sqlite": "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'",
        "postgresql": "SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()",
    }
    found = db.engine.read(lambda conn: conn.rows(question[conn.dialect]))
    return {row[0] for row in found} - {"schema_version", "search_forget", "live_views"}


def counts(db: SessionDB) -> dict[str, int]:
    names = database_tables(db)
    return db.engine.read(lambda conn: {name: conn.rows(f"SELECT count(*) FROM {name}")[0][0] for name in names})


@pytest.mark.parametrize(("here", "there"), DIRECTIONS)
def test_a_moved_store_gives_the_same_archive(
    here: EngineName, there: EngineName, open_store: Open, tmp_path: Path
) -> None:
    source, target = open_store(here), open_store(there)
    tell_story(source)
    before = content(source, tmp_path, "before")
    moved = copy_all.move(source.engine, target.engine)
    assert not moved.source_changed
    assert content(target, tmp_path, "after") == before
    assert content(source, tmp_path, "source") == before


@pytest.mark.parametrize(("here", "there"), DIRECTIONS)
def test_no_table_is_forgotten(here: EngineName, there: EngineName, open_store: Open) -> None:
    source, target = open_store(here), open_store(there)
    fill_every_table(source)
    left_out = [name for name, rows in counts(source).items() if not rows]
    assert not left_out, f"the sample leaves these tables empty, so nothing is known about moving them: {left_out}"
    copy_all.move(source.engine, target.engine)
    assert counts(target) == counts(source)
    for table in tables.every():
        theirs = source.engine.read(lambda conn, table=table: list(tables.rows(conn, table)))
        ours = target.engine.read(lambda conn, table=table: list(tables.rows(conn, table)))
        assert ours == theirs, table.name


def test_both_engines_hold_the_same_columns(open_store: Open) -> None:
    db = open_store("postgresql")
    for table in tables.every():
        found = db.engine.read(lambda conn, table=table: conn.execute(f"SELECT * FROM {table.name} LIMIT 0").columns)
        assert set(found) - {"xid", "active_minute"} == set(table.names), table.name


@pytest.mark.parametrize(("here", "there"), DIRECTIONS)
def test_numbers_go_on_where_they_stopped(here: EngineName, there: EngineName, open_store: Open) -> None:
    source, target = open_store(here), open_store(there)
    source.create_session("s", "cli")
    used = [source.append_message("s", "user", f"{n}") for n in range(3)]
    source._execute_write(lambda conn: conn.run("DELETE FROM messages WHERE id = ?", (used[-1],)))
    copy_all.move(source.engine, target.engine)
    assert target.append_message("s", "user", "next") > used[-1], "an id that was used is never used again"


@pytest.mark.parametrize(("here", "there"), DIRECTIONS)
def test_a_target_with_rows_is_refused_untouched(here: EngineName, there: EngineName, open_store: Open) -> None:
    source, target = open_store(here), open_store(there)
    tell_story(source)
    target.create_session("mine", "cli")
    before = counts(target)
    with pytest.raises(StateError, match="is not empty"):
        copy_all.move(source.engine, target.engine)
    assert counts(target) == before


def test_a_row_the_target_cannot_hold_stops_the_move_and_leaves_nothing(open_store: Open) -> None:
    source, target = open_store("sqlite"), open_store("postgresql")
    tell_story(source)
    source._execute_write(lambda conn: conn.run("UPDATE sessions SET display_name = ? WHERE id = 'desk'", ("a\0b",)))
    with pytest.raises(StateError, match="sessions cannot be copied") as caught:
        copy_all.move(source.engine, target.engine)
    assert "\n" not in caught.value.one_line()
    assert not any(counts(target).values())


def test_a_difference_found_on_reading_back_is_an_error_that_names_the_row() -> None:
    people = tables.named("people")
    sent = [("ada", "Ada", "admin", None, 1.0), ("bob", "Bob", "guest", None, 2.0)]
    for arrived in ([sent[0]], [sent[0], ("bob", "Bob", "admin", None, 2.0)], [*sent, ("eve", "", "owner", None, 3.0)]):
        with pytest.raises(StateError, match=r"people \[(bob|eve)\]"):
            copy_all.verify(people, iter(sent), iter(arrived), lambda rows: None)


_KILLED = """
import os, signal, sys
from pathlib import Path
from hermes_state.transfer import copy_all
from hermes_state.session_db import SessionDB
def opened(address):
    return SessionDB(address if "://" in address else Path(address)).engine
def progress(done, total):
    if done > total * float(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)
copy_all.move(opened(sys.argv[1]), opened(sys.argv[2]), progress=progress)
"""


@pytest.mark.parametrize(("here", "there"), DIRECTIONS)
def test_a_killed_move_leaves_nothing_behind_and_can_be_done_again(
    here: EngineName, there: EngineName, stores: TestStores
) -> None:
    addresses = stores.fresh(here), stores.fresh(there)
    source = SessionDB(addresses[0])
    tell_story(source)
    for part in (0.1, 0.5, 0.9):
        command = [sys.executable, "-c", _KILLED, *map(str, addresses), str(part)]
        assert subprocess.run(command, check=False, timeout=60).returncode == -signal.SIGKILL
        target = SessionDB(addresses[1])
        assert not any(counts(target).values())
        target.close()
    target = SessionDB(addresses[1])
    copy_all.move(source.engine, target.engine)
    assert counts(target) == counts(source)
    target.close()
    source.close()


def test_a_source_that_is_written_to_meanwhile_is_told(open_store: Open) -> None:
    source, target = open_store("sqlite"), open_store("postgresql")
    tell_story(source)
    wrote = []

    def progress(done: int, total: int) -> None:
        if not wrote:
            wrote.append(source.append_message("trip-2", "user", "meanwhile"))

    assert copy_all.move(source.engine, target.engine, progress=progress).source_changed


def test_progress_reaches_the_total(open_store: Open) -> None:
    source, target = open_store("sqlite"), open_store("postgresql")
    tell_story(source)
    seen: list[tuple[int, int]] = []
    moved = copy_all.move(source.engine, target.engine, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (2 * moved.total, 2 * moved.total)


ODD = 'SELECT * FROM "odd ""name" ORDER BY x'
KEPT = "SELECT session_id, message_id, name, value FROM kept_columns ORDER BY value"


def kept_by_an_import(db: SessionDB) -> None:
    """Columns and tables as an import of hermes-agent leaves them, with more rows than a page holds."""
    first = db.get_messages("trip-2")[0]["id"]

    def keep(conn: Connection) -> None:
        conn.run('CREATE TABLE "odd ""name" (x INTEGER, "from" VARCHAR(20), z)')
        rows = [(1, "a\0b 京都", b"\xff\0"), (2, None, 1.5), *((n, "x", n) for n in range(3, 700))]
        conn.many('INSERT INTO "odd ""name" VALUES (?, ?, ?)', rows)
        conn.run("CREATE TABLE empty_one (x INTEGER)")
        kept.make_columns(conn)
        of_messages = [(None, first, f"extra{n}", f'"{n:04}"') for n in range(1_200)]
        conn.many(kept.Q.insert_column, [("trip-2", None, "mood", '"fine"'), *of_messages])

    db.engine.write(keep)


def _files(path: Path) -> dict[str, Any]:
    with ArchiveFile(path, Limits()) as archive:
        return dict(archive.manifest["files"])


def test_what_an_import_kept_comes_back_from_a_move_and_from_an_archive(open_store: Open, tmp_path: Path) -> None:
    source, server, back, restored = (open_store(name) for name in ("sqlite", "postgresql", "sqlite", "sqlite"))
    tell_story(source)
    kept_by_an_import(source)
    odd, columns = (source.engine.read(lambda conn, sql=sql: conn.rows(sql)) for sql in (ODD, KEPT))
    assert len(odd) == 699 and len(columns) == 1_201
    assert copy_all.move(source.engine, server.engine).left == {}
    assert server.engine.read(lambda conn: conn.rows(KEPT)) == columns
    assert copy_all.move(server.engine, back.engine).left == {}
    made = [backup.create(db, tmp_path / f"{n}.zip") for n, db in enumerate((source, server, back))]
    assert [one.left for one in made] == [{}, {}, {}]
    files = [_files(one.path) for one in made]
    assert files[0] == files[1] == files[2] and files[0]["kept_rows.jsonl"]["rows"] == 699
    copy_all.restore_store(restored, made[1].path)
    for db in (back, restored):
        assert db.engine.read(lambda conn: conn.rows(ODD)) == odd
        assert db.engine.read(lambda conn: conn.rows(KEPT)) == columns


def test_a_virtual_table_of_others_stays_behind_and_is_named(open_store: Open, tmp_path: Path) -> None:
    source, target = open_store("sqlite"), open_store("postgresql")
    tell_story(source)
    source.engine.write(lambda conn: conn.run("CREATE VIRTUAL TABLE theirs USING fts5(body)"))
    source.engine.write(lambda conn: conn.run("INSERT INTO theirs VALUES ('x'), ('y')"))
    assert copy_all.move(source.engine, target.engine).left == {"theirs": 2}
    assert backup.create(source, tmp_path / "b.zip").left == {"theirs": 2}


def test_a_column_that_somebody_added_to_our_tables_stays_behind_and_is_named(open_store: Open) -> None:
    source, server, back = (open_store(name) for name in ("sqlite", "postgresql", "sqlite"))
    tell_story(source)
    for db, move_to in ((source, server), (server, back)):
        assert copy_all.move(db.engine, move_to.engine).left == {}
    messages = counts(source)["messages"]
    for db in (source, server):
        target = open_store("sqlite")
        db.engine.write(lambda conn: conn.run("ALTER TABLE messages ADD COLUMN mood TEXT DEFAULT 'glad'"))
        assert copy_all.move(db.engine, target.engine).left == {"messages.mood": messages}
