"""What opening decides: which databases are ours, which are refused, and the steps from an older schema."""

from __future__ import annotations

import hashlib
import shutil
import threading
from pathlib import Path

import pytest
from tests.support.stores import ENGINES, EngineName, TestStores, transact

from hermes_state.errors import FutureSchema, OldSchema, StateError
from hermes_state.ids import ConversationId
from hermes_state.session_db import SessionDB
from hermes_state.storage import schema, statements
from hermes_state.storage.base import Connection, Engine

Address = str | Path


FIRST_SCHEMA = {
    "sqlite": "3d2c61275180bd96d601be6ce0c05fd4f08a23c22eaf706691ca6072d66f46c0",
    "postgresql": "8fb9d0e499d8bc3b0f5dc11faeaad4d4a5932374f8606a9b905c46a9a3c501de",
}
"""The hashes of the statements of release 0.1."""


def bare_engine(address: Address) -> Engine:
    if isinstance(address, Path):
        from hermes_state.storage.sqlite import SqliteEngine

        return SqliteEngine(address)
    from hermes_state.storage.postgres import PgEngine

    return PgEngine(address)


@pytest.fixture
def filled(engine: EngineName, stores: TestStores) -> Address:
    """A database of this schema with a conversation in it."""
    address = stores.fresh(engine, empty=True)
    db = SessionDB(address)
    db.create_session("s1", "cli")
    for text in ("hello", "部署OK"):
        db.append_message("s1", "user", text)
    db.close()
    return address


def run(address: Address, sql: str) -> None:
    writer = bare_engine(address)
    writer.write(lambda conn: conn.run(sql))
    writer.close()


def version(address: Address) -> int:
    reader = bare_engine(address)
    try:
        return int(reader.read(lambda conn: conn.rows("SELECT version FROM schema_version"))[0][0])
    finally:
        reader.close()


# -- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [100, 105, schema.OLDEST - 1])
def test_a_database_from_before_the_first_release_is_refused_with_the_way(filled: Address, number: int) -> None:
    run(filled, f"UPDATE schema_version SET version = {number}")
    before = filled.read_bytes() if isinstance(filled, Path) else None
    for read_only in (False, True):
        with pytest.raises(OldSchema, match=rf"before Hermes 0\.1 \(schema {number}\)") as refused:
            SessionDB(filled, read_only=read_only)
        line = refused.value.one_line()
        assert "\n" not in line and "docs/operators/upgrade.md" in line
    assert version(filled) == number
    if isinstance(filled, Path):
        assert filled.read_bytes() == before, "an existing home is left as it is, byte for byte"
        assert not list(filled.parent.glob("*.bak*"))


def test_the_page_that_the_refusal_names_says_how() -> None:
    page = Path(__file__).parents[3] / "docs" / "operators" / "upgrade.md"
    assert "before 0.1" in page.read_text(encoding="utf-8")


def test_a_database_from_the_future_is_left_alone(filled: Address) -> None:
    run(filled, "UPDATE schema_version SET version = 9999")
    with pytest.raises(FutureSchema):
        SessionDB(filled)
    assert version(filled) == 9999


# -- the schema ------------------------------------------------------------------------------------------------------


def test_every_macro_of_the_schema_is_known_to_both_engines() -> None:
    for dialect in ("sqlite", "postgresql"):
        text = "\n".join(statements.schema(dialect))
        assert "{" not in text and "@" not in text
        assert ("xid8" in text) == (dialect == "postgresql")


def test_both_engines_have_the_same_tables_and_columns(stores: TestStores) -> None:
    found = []
    for engine in ENGINES:
        db = SessionDB(stores.fresh(engine, empty=True))
        found.append(db.engine.read(_columns))
        db.close()
    assert found and all(one == found[0] for one in found)


def _columns(conn: Connection) -> set[tuple[str, str]]:
    if conn.dialect == "sqlite":
        sql = "SELECT m.name, p.name FROM sqlite_master m, pragma_table_info(m.name) p WHERE m.type = 'table'"
    else:
        sql = "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = current_schema()"
    rows = {(table, column) for table, column in conn.rows(sql) if not table.startswith("sqlite_")}
    return rows - {("messages", "xid"), ("events", "xid")}


# -- steps from an older schema --------------------------------------------------------------------------------------


def test_the_shipped_steps_lead_from_the_first_release_to_the_current_schema(engine: EngineName) -> None:
    numbers = [number for number, _ in statements.migrations(engine)]
    assert numbers == list(range(schema.OLDEST + 1, schema.CURRENT + 1))


def test_the_schema_of_the_first_release_never_changes(engine: EngineName) -> None:
    """Databases of 0.1 exist; what is added to this file would be missing there. Write a migration instead."""
    text = "\n".join(" ".join(statement.split()) for statement in statements.first_schema(engine))
    assert hashlib.sha256(text.encode()).hexdigest() == FIRST_SCHEMA[engine]


def test_a_database_of_the_first_release_becomes_equal_to_a_fresh_one(
    engine: EngineName, stores: TestStores, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh, old = stores.fresh(engine, empty=True), stores.fresh(engine, empty=True)
    SessionDB(fresh).close()
    monkeypatch.setattr(statements, "schema", statements.first_schema)
    monkeypatch.setattr(schema, "CURRENT", schema.OLDEST)
    db = SessionDB(old)
    db.engine.write(lambda conn: conn.run("INSERT INTO state_meta (key, value) VALUES ('kept', 'yes')"))
    db.close()
    monkeypatch.undo()
    db = SessionDB(old)
    assert db.engine.read(lambda conn: conn.rows("SELECT value FROM state_meta WHERE key = 'kept'")) == [("yes",)]
    db.close()
    assert version(old) == schema.CURRENT
    assert _shape(old) == _shape(fresh)


def _shape(address: Address) -> set[tuple[object, ...]]:
    """Every column with its type and default, and every index."""
    reader = bare_engine(address)
    if reader.dialect == "sqlite":
        sql = (
            'SELECT m.name, p.name, p.type, p."notnull", p.dflt_value, p.pk FROM sqlite_master m, '
            "pragma_table_info(m.name) p WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite_%'"
        )
        indexes = "SELECT name, tbl_name, sql FROM sqlite_master WHERE type IN ('index', 'trigger')"
    else:
        sql = (
            "SELECT table_name, column_name, data_type, is_nullable, column_default FROM information_schema.columns "
            "WHERE table_schema = current_schema()"
        )
        indexes = (
            "SELECT indexname, tablename, regexp_replace(indexdef, ' ON [^ ]+ ', ' ON ') FROM pg_indexes "
            "WHERE schemaname = current_schema()"
        )
    try:
        return {tuple(row) for row in [*reader.read(lambda c: c.rows(sql)), *reader.read(lambda c: c.rows(indexes))]}
    finally:
        reader.close()


def test_opening_runs_the_steps_that_are_due_after_a_copy(
    filled: Address, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shutil.copytree(statements._SQL, tmp_path / "sql")
    steps = {schema.CURRENT + 1: "CREATE TABLE added (x {integer});", schema.CURRENT + 2: "DROP TABLE added;"}
    for number, text in steps.items():
        (tmp_path / "sql" / "migrations" / f"{number:04}_step.sql").write_text(text, encoding="utf-8")
    monkeypatch.setattr(statements, "_SQL", tmp_path / "sql")
    before = schema.CURRENT
    monkeypatch.setattr(schema, "CURRENT", before + 2)
    db = SessionDB(filled)
    assert [m["content"] for m in db.get_messages("s1")] == ["hello", "部署OK"]
    db.close()
    assert version(filled) == schema.CURRENT
    if isinstance(filled, Path):
        copy = filled.with_name(f"{filled.name}.before-{schema.CURRENT}.bak")
        assert version(copy) == before and copy.stat().st_mode & 0o777 == 0o600
        kept = bare_engine(copy)
        assert kept.read(lambda conn: conn.rows("SELECT content FROM messages")) == [("hello",), ("部署OK",)]
        kept.close()


def test_a_step_that_fails_leaves_the_database_working_at_the_last_one(filled: Address) -> None:
    target = bare_engine(filled)
    good = (201, ["CREATE TABLE first_step (x INTEGER)"])
    bad = (202, ["CREATE TABLE half (x INTEGER)", "INSERT INTO no_such_table VALUES (1)"])
    with pytest.raises(StateError) as failed:
        schema.migrate(target, schema.CURRENT, [good, bad])
    assert "still at 201" in failed.value.one_line() and "\n" not in failed.value.one_line()
    with pytest.raises(StateError):
        target.read(lambda conn: conn.rows("SELECT * FROM half"))
    texts = target.read(lambda conn: conn.rows("SELECT content FROM messages ORDER BY id"))
    assert texts == [("hello",), ("部署OK",)]
    target.write(lambda conn: conn.run("INSERT INTO state_meta (key, value) VALUES ('still', 'writable')"))
    target.close()
    assert version(filled) == 201


def test_without_the_copy_nothing_is_changed(stores: TestStores) -> None:
    path = stores.sqlite()
    SessionDB(path).close()
    path.with_name(f"{path.name}.before-201.bak").mkdir()
    target = bare_engine(path)
    with pytest.raises(StateError, match="nothing was changed"):
        schema.migrate(target, schema.CURRENT, [(201, ["CREATE TABLE first_step (x INTEGER)"])])
    target.close()
    assert version(path) == schema.CURRENT


def test_a_step_is_done_by_one_even_when_all_begin_at_once(filled: Address) -> None:
    slow = (201, [f"CREATE TABLE made_{number} (x INTEGER)" for number in range(300)])
    engines = [bare_engine(filled) for _ in range(3)]
    ready = threading.Barrier(len(engines))
    failures: list[StateError] = []

    def begin(engine: Engine) -> None:
        ready.wait()
        try:
            schema.migrate(engine, schema.CURRENT, [slow])
        except StateError as error:
            failures.append(error)

    threads = [threading.Thread(target=begin, args=(engine,)) for engine in engines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for engine in engines:
        engine.close()
    assert failures == []
    assert version(filled) == 201


def test_a_read_only_opening_migrates_nothing(filled: Address, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "CURRENT", schema.CURRENT + 1)
    with pytest.raises(StateError, match=f"older schema {schema.CURRENT - 1}"):
        SessionDB(filled, read_only=True)
    assert version(filled) == schema.CURRENT - 1


# -- pg_dump and restore ---------------------------------------------------------------------------------------------


def test_a_database_restored_into_another_cluster_is_searched_and_followed(stores: TestStores) -> None:
    """A restore keeps the transaction numbers of the cluster that was dumped; the new cluster begins below them."""
    address = stores.postgresql()
    db = SessionDB(address)
    db.create_session("chat", "cli")
    db.append_message("chat", "user", "zebra before")
    transact(db.events.append_in, ConversationId("chat"), "told")
    assert len(db.search_messages("zebra")) == 1
    db.close()
    for table in ("messages", "events", "public_search.feed"):
        run(address, f"UPDATE {table} SET xid = (xid::text::bigint + 1000000)::text::xid8")
    db = SessionDB(address)
    db.append_message("chat", "user", "zebra after")
    hits = db.search_messages("zebra", sort="newest")
    assert [hit["snippet"] for hit in hits] == [">>>zebra<<< after", ">>>zebra<<< before"]
    assert db.search_status()["behind"] == 0
    seen = db.events.since()
    assert [event.kind for event in seen.events] == ["told"]
    transact(db.events.append_in, ConversationId("chat"), "told again")
    assert [event.kind for event in db.events.since(seen.cursor).events] == ["told again"]
    db.close()
