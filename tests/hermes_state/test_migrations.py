"""An older database of ours becomes a current one: the same shape as a fresh one, with every row, or not at all."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from hermes_state import migrate
from hermes_state.errors import FutureSchema, StateError
from hermes_state.session_db import SessionDB
from hermes_state.storage import schema, statements
from hermes_state.storage.base import Connection, Engine
from hermes_testing.stores import EngineName, TestStores

OLD = Path(__file__).parent / "schemas"

Address = str | Path


def bare_engine(address: Address) -> Engine:
    if isinstance(address, Path):
        from hermes_state.storage.sqlite import SqliteEngine

        return SqliteEngine(address)
    from hermes_state.storage.postgres import PgEngine

    return PgEngine(address)


@pytest.fixture
def old(engine: EngineName, stores: TestStores) -> Address:
    """A database with schema 100 and a conversation in it, as the version before wrote it."""
    address = stores.fresh(engine, empty=True)
    writer = bare_engine(address)

    def fill(conn: Connection) -> None:
        for statement in statements.split((OLD / f"100-{engine}.sql").read_text(encoding="utf-8")):
            conn.run(statement)
        conn.run("INSERT INTO schema_version (version) VALUES (100)")
        conn.run(
            "INSERT INTO sessions (id, source, started_at, root_id, last_active, message_count)"
            " VALUES ('s1', 'cli', 1.5, 's1', 2.5, 2)"
        )
        conn.run("INSERT INTO conversations (id, tip_id, created_at) VALUES ('s1', 's1', 1.5)")
        for text in ("hello", "部署OK"):
            conn.run(
                "INSERT INTO messages (session_id, role, content, timestamp) VALUES ('s1', 'user', ?, 2.5)", (text,)
            )

    writer.write(fill)
    writer.close()
    return address


def shape(address: Address) -> dict[str, Any]:
    """Everything a schema is made of, in a form that can be compared."""
    reader = bare_engine(address)
    try:
        return reader.read(_sqlite_shape if isinstance(address, Path) else _postgres_shape)
    finally:
        reader.close()


def _sqlite_shape(conn: Connection) -> dict[str, Any]:
    tables = [r[0] for r in conn.rows("SELECT name FROM sqlite_master WHERE type = 'table'")]
    found: dict[str, Any] = {
        table: sorted(conn.rows(f"SELECT name, type, \"notnull\", dflt_value, pk FROM pragma_table_info('{table}')"))
        for table in tables
    }
    found["foreign keys"] = sorted(
        (table, *row) for table in tables for row in conn.rows(f"PRAGMA foreign_key_list('{table}')")
    )
    indexes = conn.rows("SELECT tbl_name, name, sql FROM sqlite_master WHERE type IN ('index', 'trigger', 'view')")
    found["indexes"] = sorted((table, name, " ".join((sql or "").split())) for table, name, sql in indexes)
    return found


def _postgres_shape(conn: Connection) -> dict[str, Any]:
    return {
        "columns": sorted(
            conn.rows(
                "SELECT table_name, column_name, data_type, is_nullable, column_default, is_identity, collation_name"
                " FROM information_schema.columns WHERE table_schema = current_schema()"
            ),
            key=str,
        ),
        "indexes": sorted(
            conn.rows("SELECT tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = current_schema()")
        ),
        "constraints": sorted(
            conn.rows(
                "SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint"
                " WHERE connamespace = current_schema()::regnamespace"
            )
        ),
    }


def test_migrations_make_the_fresh_schema(old: Address, engine: EngineName, stores: TestStores) -> None:
    fresh = stores.fresh(engine, empty=True)
    for address in (old, fresh):
        SessionDB(address).close()
    assert shape(old) == shape(fresh)


def test_the_comparison_sees_a_missing_index(engine: EngineName, stores: TestStores) -> None:
    one, other = stores.fresh(engine, empty=True), stores.fresh(engine, empty=True)
    SessionDB(one).close()
    db = SessionDB(other)
    db._execute_write(lambda conn: conn.run("DROP INDEX idx_outbox_due"))
    db.close()
    assert shape(one) != shape(other)


def test_every_row_survives_and_the_new_tables_work(old: Address) -> None:
    db = SessionDB(old)
    assert [m["content"] for m in db.get_messages("s1")] == ["hello", "部署OK"]
    session = db.get_session("s1")
    assert session is not None and session["started_at"] == 1.5
    accepted = db.inbox.accept(platform="p", chat_id="c", message_id="1", route="r", payload={})
    assert accepted.new
    db.close()
    assert version(old) == schema.CURRENT


def test_rules_of_the_old_form_permit_nothing_and_stay_on_record(old: Address) -> None:
    """Schema 106: an "always" for one call was not bound to content or opening, so such calls are asked about again."""
    before = bare_engine(old)
    steps = migrate.shipped("sqlite" if isinstance(old, Path) else "postgresql")
    migrate.migrate(before, 100, [step for step in steps if step.version <= 105])
    before.write(
        lambda conn: conn.run(
            "INSERT INTO approvals (id, conversation_id, turn_id, call_hash, call, requester_id, state, scope,"
            " created_at, expires_at) VALUES ('ask_1', 's1', 't1', 'h', '{}', 'ana', 'granted', 'always', 1, 2)"
        )
    )
    before.close()
    db = SessionDB(old)
    kept = db.approvals.get("ask_1")
    assert kept is not None and (kept.state, kept.scope) == ("revoked", "always") and "106" in str(kept.reason)
    assert db.approvals.grants() == ()
    db.close()


def version(address: Address) -> int:
    reader = bare_engine(address)
    try:
        return int(reader.read(lambda conn: conn.rows("SELECT version FROM schema_version"))[0][0])
    finally:
        reader.close()


def test_a_sqlite_file_is_copied_first(stores: TestStores) -> None:
    path = old_sqlite(stores)
    SessionDB(path).close()
    copy = path.with_name(f"{path.name}.before-{schema.CURRENT}.bak")
    assert version(copy) == 100
    assert copy.stat().st_mode & 0o777 == 0o600
    rows = bare_engine(copy)
    assert rows.read(lambda conn: conn.rows("SELECT content FROM messages")) == [("hello",)]
    rows.close()
    assert not list(path.parent.glob("*.partial*"))


def old_sqlite(stores: TestStores) -> Path:
    path = stores.sqlite()
    writer = bare_engine(path)

    def fill(conn: Connection) -> None:
        for statement in statements.split((OLD / "100-sqlite.sql").read_text(encoding="utf-8")):
            conn.run(statement)
        conn.run("INSERT INTO schema_version (version) VALUES (100)")
        conn.run("INSERT INTO sessions (id, source, started_at, root_id, last_active) VALUES ('s', 'cli', 1, 's', 1)")
        conn.run("INSERT INTO messages (session_id, role, content, timestamp) VALUES ('s', 'user', 'hello', 1)")

    writer.write(fill)
    writer.close()
    return path


def test_a_step_that_fails_leaves_the_old_database_working(old: Address) -> None:
    target = bare_engine(old)
    good = migrate.Step(101, ["CREATE TABLE first_step (x INTEGER)"])
    bad = migrate.Step(102, ["CREATE TABLE half (x INTEGER)", "INSERT INTO no_such_table VALUES (1)"])
    with pytest.raises(StateError) as failed:
        migrate.migrate(target, 100, [good, bad])
    assert "still at 101" in failed.value.one_line() and "\n" not in failed.value.one_line()
    with pytest.raises(StateError):
        target.read(lambda conn: conn.rows("SELECT * FROM half"))
    texts = target.read(lambda conn: conn.rows("SELECT content FROM messages ORDER BY id"))
    assert texts == [("hello",), ("部署OK",)]
    target.write(lambda conn: conn.run("INSERT INTO state_meta (key, value) VALUES ('still', 'writable')"))
    target.close()
    assert version(old) == 101


def test_without_the_copy_nothing_is_changed(stores: TestStores) -> None:
    path = old_sqlite(stores)
    blocker = path.with_name(f"{path.name}.before-{schema.CURRENT}.bak.partial")
    blocker.mkdir()
    (blocker / "x").touch()
    with pytest.raises(StateError, match="Nothing was changed"):
        SessionDB(path)
    assert version(path) == 100


def test_of_several_openers_one_migrates(old: Address) -> None:
    script = (
        "import sys; from pathlib import Path; from hermes_state.session_db import SessionDB\n"
        "a = sys.argv[1]; db = SessionDB(a if '://' in a else Path(a))\n"
        "assert [m['content'] for m in db.get_messages('s1')] == ['hello', '部署OK']; db.close()"
    )
    command = [sys.executable, "-X", "utf8", "-c", script, str(old)]
    openers = [subprocess.Popen(command, stderr=subprocess.PIPE, env=dict(os.environ)) for _ in range(4)]
    for opener in openers:
        _out, complaint = opener.communicate(timeout=60)
        assert opener.returncode == 0, complaint.decode()
    assert version(old) == schema.CURRENT


def test_a_step_is_done_by_one_even_when_all_begin_at_once(old: Address) -> None:
    slow = migrate.Step(101, [f"CREATE TABLE made_{number} (x INTEGER)" for number in range(300)])
    engines = [bare_engine(old) for _ in range(3)]
    ready = threading.Barrier(len(engines))
    failures: list[StateError] = []

    def run(engine: Engine) -> None:
        ready.wait()
        try:
            migrate.migrate(engine, 100, [slow])
        except StateError as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(engine,)) for engine in engines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for engine in engines:
        engine.close()
    assert failures == []
    assert version(old) == 101


def test_a_read_only_opening_migrates_nothing(old: Address) -> None:
    with pytest.raises(StateError, match="older schema 100"):
        SessionDB(old, read_only=True)
    assert version(old) == 100


def test_a_database_from_the_future_is_left_alone(old: Address) -> None:
    writer = bare_engine(old)
    writer.write(lambda conn: conn.run("UPDATE schema_version SET version = 9999"))
    writer.close()
    before = shape(old)
    with pytest.raises(FutureSchema):
        SessionDB(old)
    assert shape(old) == before


def test_steps_are_numbered_without_gaps_up_to_the_current_schema(engine: EngineName) -> None:
    numbers = [step.version for step in migrate.shipped(engine)]
    assert numbers == list(range(schema.OURS_FROM + 1, schema.CURRENT + 1))
