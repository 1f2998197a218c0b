"""Moving a store to another database: all of it arrives, verified, or nothing does."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.sample_store import fill_every_table, tell_story
from tests.support.stores import EngineName, TestStores

from hermes_state.errors import StateError
from hermes_state.session_db import SessionDB
from hermes_state.transfer import archive_write, backup, copy_all, tables

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


def test_tables_of_others_stay_behind_and_are_named(open_store: Open, tmp_path: Path) -> None:
    source, target = open_store("sqlite"), open_store("postgresql")
    tell_story(source)
    source.engine.write(lambda conn: conn.run("CREATE VIRTUAL TABLE theirs USING fts5(body)"))
    source.engine.write(lambda conn: conn.run("INSERT INTO theirs VALUES ('x'), ('y')"))
    source.engine.write(lambda conn: conn.run('CREATE TABLE "odd ""name" (x INTEGER)'))
    source.engine.write(lambda conn: conn.run('INSERT INTO "odd ""name" VALUES (1)'))
    left = {"theirs": 2, 'odd "name': 1}
    assert copy_all.move(source.engine, target.engine).left == left
    assert backup.create(source, tmp_path / "b.zip").left == left


def test_a_backup_of_0_1_is_restored_without_the_data_of_others_in_it(open_store: Open, tmp_path: Path) -> None:
    source, target = open_store("sqlite"), open_store("sqlite")
    tell_story(source)
    made = backup.create(source, tmp_path / "new.zip")
    line = b'{"columns":"[]","row_values":"[1]","table_name":"odd"}\n'
    with zipfile.ZipFile(tmp_path / "new.zip") as new, zipfile.ZipFile(tmp_path / "old.zip", "w") as old:
        manifest = json.loads(new.read("manifest.json"))
        digest = hashlib.sha256(line).hexdigest()
        manifest["files"]["kept_rows.jsonl"] = {"rows": 1, "bytes": len(line), "sha256": digest}
        members = {name: new.read(name) for name in new.namelist()}
        for name, data in {**members, "manifest.json": json.dumps(manifest), "kept_rows.jsonl": line}.items():
            old.writestr(name, data)
    assert copy_all.restore_store(target, tmp_path / "old.zip") == made.rows
