"""The workshop's own promises: stores are real, separate, and gone afterwards."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from tests.support.stores import EngineName, TestPostgres, TestStores

from hermes_state.session_db import SessionDB
from hermes_testing.clock import Clock


def _remember(db: SessionDB, value: str) -> None:
    db._execute_write(lambda conn: conn.run("INSERT INTO state_meta VALUES ('note', ?)", (value,)))


def _recall(db: SessionDB) -> list[tuple[str]]:
    return db.engine.read(lambda conn: conn.rows("SELECT value FROM state_meta WHERE key = 'note'"))


def test_two_fresh_stores_share_nothing(engine: EngineName, stores: TestStores) -> None:
    first, second = SessionDB(stores.fresh(engine)), SessionDB(stores.fresh(engine))
    try:
        _remember(first, "mine")
        assert _recall(first) == [("mine",)]
        assert _recall(second) == []
    finally:
        first.close()
        second.close()


def test_reopening_finds_the_rows(db: SessionDB, reopen: Callable[[SessionDB], SessionDB]) -> None:
    _remember(db, "kept")
    assert _recall(reopen(db)) == [("kept",)]


def test_an_empty_postgres_database_gets_its_schema_from_the_first_opening(stores: TestStores) -> None:
    url = stores.postgresql(empty=True)
    with psycopg.connect(url) as conn:
        tables = "SELECT count(*) FROM information_schema.tables WHERE table_schema = 'public'"
        assert conn.execute(tables).fetchone() == (0,)
    SessionDB(url).close()
    with psycopg.connect(url) as conn:
        assert conn.execute(tables).fetchone() > (5,)


def test_another_server_can_be_used_and_is_left_clean(stores: TestStores, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERMES_TEST_POSTGRES", stores.server.url)
    guest = TestPostgres()
    url = guest.fresh()
    SessionDB(url).close()
    guest.close()
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(url)
    SessionDB(stores.postgresql()).close()  # the server itself still runs


def test_a_missing_server_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HERMES_TEST_POSTGRES", f"postgresql:///x?host={tmp_path}")
    with pytest.raises(psycopg.OperationalError):
        TestStores(tmp_path).postgresql()


def test_the_home_is_thrown_away_and_the_environment_is_clean(home: Path) -> None:
    assert os.environ["HERMES_HOME"] == str(home)
    assert {n for n in os.environ if n.startswith("HERMES_")} <= {"HERMES_HOME", "HERMES_TEST_POSTGRES"}


def test_the_clock_moves_both_ways() -> None:
    clock = Clock(100.0)
    clock.advance(5)
    assert clock() == 105.0
    clock.advance(-10)
    assert clock() == 95.0
    clock.set(3.0)
    assert clock() == 3.0
