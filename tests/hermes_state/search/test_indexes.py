"""The index is derived data: it may be behind, locked, damaged or gone, and that costs time, never an answer."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest
from tests.support.stores import TestStores

from hermes_config.limits import Limits
from hermes_state.errors import StateError
from hermes_state.session_db import SessionDB

pytestmark = pytest.mark.slow

OpenStore = Callable[..., SessionDB]
_spawn = multiprocessing.get_context("spawn")


def filled(db: SessionDB, count: int = 20, word: str = "zebra") -> list[int]:
    if db.get_session("chat") is None:
        db.create_session("chat", "cli")
    return db.append_messages("chat", [{"role": "user", "content": f"{word} number {i}"} for i in range(count)])


def ids(db: SessionDB, query: str = "zebra", **options: Any) -> list[int]:
    return sorted(hit["id"] for hit in db.search_messages(query, limit=1_000, **options))


# -- on both engines -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("sort", [None, "newest", "oldest"])
def test_a_search_without_time_to_catch_up_reads_the_tail_and_says_so(make_db: OpenStore, sort: str | None) -> None:
    db = make_db(limits=Limits(search_catch_up_ms=0))
    early = filled(db, 700)
    db.reindex()
    late = filled(db, 600)  # more than one batch: the index stays behind
    hits = db.search_messages("zebra", limit=2_000, sort=sort)
    assert sorted(hit["id"] for hit in hits) == early + late
    assert 0 < hits.index_lag < 600
    if sort is None:
        assert hits[0]["id"] == late[-1]
    assert ids(db, "number NOT zebra") == []


def test_a_search_in_a_long_tail_cuts_snippets_of_its_page_only(
    make_db: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = make_db(limits=Limits(search_catch_up_ms=0))
    late = filled(db, 900)  # more than one batch is not indexed, and matches
    cut: list[str] = []
    monkeypatch.setattr("hermes_state.search.snippets.snippet", lambda text, found, phrases: cut.append(text) or "cut")
    hits = db.search_messages("zebra", limit=5, offset=2)
    assert [hit["id"] for hit in hits] == late[-3:-8:-1] and hits.index_lag > 5
    assert len(cut) == 5


def test_the_feed_keeps_the_index_up(db: SessionDB) -> None:
    filled(db, 30)
    assert db.search_status()["behind"] == 30
    assert db.feed(10_000) == 30
    assert db.feed(10_000) == 0
    status = db.search_status()
    assert status["behind"] == 0 and status["bytes"] > 0 and status["note"] == ""
    assert db.search_messages("zebra").index_lag == 0


def test_reindex_builds_everything_anew_and_tells_how_far_it_is(db: SessionDB) -> None:
    expected = filled(db, 50)
    assert ids(db) == expected
    told: list[tuple[int, int]] = []
    db.reindex(lambda done, total: told.append((done, total)))
    assert told[-1] == (50, 50)
    assert ids(db) == expected and db.search_messages("zebra").index_lag == 0
    db.rebuild_fts()
    assert ids(db) == expected
    assert db.optimize_fts() == 1
    assert ids(db) == expected


def test_a_read_only_store_is_searched_without_being_fed(make_db: OpenStore) -> None:
    writer = make_db()
    expected = filled(writer)
    reader = make_db(read_only=True)
    assert ids(reader) == expected  # no index yet
    writer.feed(10_000)
    later = filled(writer, 5)
    hits = reader.search_messages("zebra", limit=100)
    assert sorted(hit["id"] for hit in hits) == expected + later and hits.index_lag == 5


def test_what_was_forgotten_twice_or_never_known_is_harmless(db: SessionDB) -> None:
    expected = filled(db, 5)
    db.create_session("doomed", "cli")
    (gone,) = db.append_messages("doomed", [{"role": "user", "content": "zebra"}])
    db.feed(10_000)
    db.delete_session("doomed")
    db.feed(10_000)
    # A crash after the index let go and before the store noted it: the same ids come again.
    db._execute_write(lambda c: c.many("INSERT INTO search_forget (message_id) VALUES (?)", [(gone,), (10**6,)]))
    assert db.feed(10_000) == 2
    assert ids(db) == expected
    assert db.feed(10_000) == 0


def test_threads_search_while_others_write(db: SessionDB) -> None:
    db.create_session("chat", "cli")
    failed: list[BaseException] = []

    def work(name: str) -> None:
        try:
            for i in range(25):
                mine = db.append_message("chat", "user", f"zebra {name} {i}")
                assert mine in ids(db, f"zebra {name}")
        except BaseException as error:  # noqa: BLE001 - boundary: reported by the test below
            failed.append(error)

    threads = [threading.Thread(target=work, args=(f"w{i}",)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert len(ids(db)) == 100


def _feed_and_search(address: str | Path, name: str) -> int:
    db = SessionDB(address)
    try:
        missing = 0
        for i in range(40):
            mine = db.append_message("chat", "user", f"zebra {name} {i}")
            missing += mine not in ids(db, f'"zebra {name} {i}"')
            db.feed(50)
        return missing
    finally:
        db.close()


def test_several_processes_feed_and_search_at_once(make_db: OpenStore, address: str | Path) -> None:
    db = make_db()
    filled(db, 0)
    with _spawn.Pool(3) as pool:
        assert pool.starmap(_feed_and_search, [(address, f"p{i}") for i in range(3)]) == [0, 0, 0]
    hits = db.search_messages("zebra", limit=1_000)
    assert len(hits) == 120 and hits.index_lag == 0


# -- the file ------------------------------------------------------------------------------------------------


@pytest.fixture
def path(stores: TestStores) -> Path:
    return stores.sqlite()


def index_of(path: Path) -> Path:
    return path.with_name("state.search.db")


def _delete(index: Path) -> None:
    index.unlink()


def _delete_all(index: Path) -> None:
    for each in index.parent.glob("state.search.db*"):
        each.unlink()


def _cut_short(index: Path) -> None:
    os.truncate(index, 5_000)


def _empty(index: Path) -> None:
    os.truncate(index, 0)


def _overwrite(index: Path) -> None:
    _delete_all(index)
    index.write_bytes(b"this is no database\n" * 1_000)


def _other_database(index: Path) -> None:
    _delete_all(index)
    connection = apsw.Connection(str(index))
    connection.execute("CREATE TABLE something (x)").fetchall()
    connection.close()


def _scramble(index: Path) -> None:
    """Every page but the first few, as a bad disk might."""
    size = index.stat().st_size
    with index.open("r+b") as file:
        for offset in range(4096 * 2, size, 4096):
            file.seek(offset + 8)
            file.write(os.urandom(2_000))


def _from_the_future(index: Path) -> None:
    connection = apsw.Connection(str(index))
    connection.execute("UPDATE feed SET format = 999").fetchall()
    connection.close()


def _drop_table(index: Path) -> None:
    connection = apsw.Connection(str(index))
    connection.execute("DROP TABLE entries").fetchall()
    connection.close()


@pytest.mark.parametrize("is_open", [True, False])
@pytest.mark.parametrize(
    "damage",
    [_delete, _delete_all, _cut_short, _empty, _overwrite, _other_database, _scramble, _from_the_future, _drop_table],
)
def test_a_lost_or_damaged_index_is_replaced(path: Path, damage: Callable[[Path], None], is_open: bool) -> None:
    db = SessionDB(path)
    expected = filled(db, 300)
    assert ids(db) == expected
    db.close_index()
    # The log is moved into the file, so that the damage is really met.
    connection = apsw.Connection(str(index_of(path)))
    connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    connection.close()
    if is_open:
        assert ids(db) == expected
    else:
        db.close()
    damage(index_of(path))
    if not is_open:
        db = SessionDB(path)
    expected += filled(db, 10)
    assert ids(db) == expected
    assert ids(db, "number zebra", sort="newest") == expected
    assert ids(db) == expected and db.search_messages("zebra").index_lag == 0
    assert index_of(path).stat().st_mode & 0o777 == 0o600
    db.close()


def _hold(path: str, mode: str, ready: Any, done: Any) -> None:
    connection = apsw.Connection(path)
    connection.pragma("locking_mode", mode)
    connection.execute("BEGIN EXCLUSIVE").fetchall()
    connection.execute("UPDATE feed SET position = position").fetchall()
    ready.set()
    done.wait(30)
    connection.execute("ROLLBACK").fetchall()
    connection.close()


@pytest.mark.parametrize(("mode", "unread"), [("normal", 5), ("exclusive", 25)])
def test_an_index_locked_by_another_process_is_not_waited_for(path: Path, mode: str, unread: int) -> None:
    db = SessionDB(path)
    expected = filled(db)
    assert ids(db) == expected
    if mode == "exclusive":
        db.close_index()  # nobody can lock readers out while one is there
    ready, done = _spawn.Event(), _spawn.Event()
    other = _spawn.Process(target=_hold, args=(str(index_of(path)), mode, ready, done))
    other.start()
    assert ready.wait(30)
    expected += filled(db, 5)  # a write does not notice
    hits = db.search_messages("zebra", limit=100)
    assert sorted(hit["id"] for hit in hits) == expected
    assert hits.index_lag == unread and "locked" in hits.index_note
    done.set()
    other.join()
    assert ids(db) == expected and db.search_messages("zebra").index_lag == 0
    db.close()


def test_where_no_index_can_be_made_the_transcript_is_read(path: Path) -> None:
    db = SessionDB(path)
    expected = filled(db)
    index_of(path).mkdir()  # in its way, and not to be removed
    hits = db.search_messages("zebra", limit=100)
    assert sorted(hit["id"] for hit in hits) == expected
    assert hits.index_note and hits.index_lag == 20
    assert db.feed(1_000) == 0 and db.optimize_fts() == 0
    assert db.search_status()["note"]
    with pytest.raises(StateError, match="cannot be built"):
        db.reindex()
    index_of(path).rmdir()
    assert ids(db) == expected and db.search_messages("zebra").index_note == ""
    db.close()


@pytest.mark.parametrize("appended", [0, 3, 30])
def test_a_store_put_back_from_a_backup_does_not_meet_its_later_index(path: Path, appended: int) -> None:
    db = SessionDB(path)
    filled(db, 10)
    db.close()
    shutil.copy(path, path.with_name("backup"))
    db = SessionDB(path)
    filled(db, 20, "lion")
    assert len(ids(db, "lion")) == 20
    db.close()
    shutil.copy(path.with_name("backup"), path)
    db = SessionDB(path)
    new = filled(db, appended, "tiger")
    assert ids(db, "lion") == [] and ids(db, "tiger") == new and len(ids(db)) == 10
    db.close()


# -- the schema ----------------------------------------------------------------------------------------------


def test_a_transaction_held_open_hides_nothing(stores: TestStores) -> None:
    """Rows above the oldest open transaction cannot be indexed yet; they are read all the same."""
    url = stores.postgresql()
    db = SessionDB.connect(url)
    expected = filled(db, 10)
    other = psycopg.connect(url)
    other.execute(
        "INSERT INTO messages (session_id, role, content, timestamp) VALUES ('chat', 'user', 'zebra late', 1)"
    )
    expected += filled(db, 10)
    hits = db.search_messages("zebra", limit=100)
    assert sorted(hit["id"] for hit in hits) == expected and hits.index_lag == 10
    db.feed(1_000)
    assert ids(db) == expected
    other.commit()  # a smaller id than others that were found before
    hits = db.search_messages("zebra", limit=100)
    assert len(hits) == 21 and hits.index_lag == 0
    other.close()
    db.close()
    stores.discard(url)


@pytest.mark.parametrize("batch", [1, 256])
def test_transactions_are_followed_by_number_where_one_digit_more_begins(
    stores: TestStores, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    """As texts, 10 comes before 9: what was said around such a moment was found twice, or never again."""
    monkeypatch.setattr("hermes_state.search.tsvector.TsvectorIndex.batch", batch)
    url = stores.postgresql()
    db = SessionDB.connect(url)
    expected = filled(db, 4)
    with psycopg.connect(url, autocommit=True) as other:
        for number, row in zip((8, 9, 10, 11), expected, strict=True):
            other.execute("UPDATE messages SET xid = %s::text::xid8 WHERE id = %s", (str(number), row))
    for _ in range(2):
        assert ids(db) == expected
    assert db.search_messages("zebra").index_lag == 0
    db.close()
    stores.discard(url)


def test_a_dropped_schema_is_made_again(stores: TestStores) -> None:
    url = stores.postgresql()
    db = SessionDB.connect(url)
    expected = filled(db, 10)
    assert ids(db) == expected
    with psycopg.connect(url, autocommit=True) as other:
        other.execute("DROP SCHEMA public_search CASCADE")
    assert ids(db) == expected
    assert db.search_messages("zebra").index_lag == 0
    db.close()
    stores.discard(url)


def test_a_schema_made_while_one_waited_to_make_it_is_kept(stores: TestStores) -> None:
    """Two processes search a new store at once; the second finds the first one's index and does not drop it."""
    url = stores.postgresql()
    first, second = SessionDB.connect(url), SessionDB.connect(url)
    expected = filled(first, 10)
    assert ids(first) == expected
    with psycopg.connect(url) as other, ThreadPoolExecutor(1) as pool:
        made = other.execute("SELECT 'public_search.feed'::regclass::oid").fetchone()
        other.execute("ALTER SCHEMA public_search RENAME TO aside")
        other.commit()  # as if nobody had made it yet
        other.execute("SELECT pg_advisory_xact_lock(720575941, hashtext('public_search'))")
        search = pool.submit(ids, second)
        waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        deadline = time.monotonic() + 30
        while other.execute(waiting).fetchone() != (1,):
            assert time.monotonic() < deadline, "the second search did not wait"
            time.sleep(0.01)
        other.execute("ALTER SCHEMA aside RENAME TO public_search")
        other.commit()
        assert search.result(30) == expected
        assert other.execute("SELECT 'public_search.feed'::regclass::oid").fetchone() == made
    first.close()
    second.close()
    stores.discard(url)


def test_searches_go_on_while_the_index_is_built_anew_again_and_again(stores: TestStores) -> None:
    url = stores.postgresql()
    db, builder = SessionDB.connect(url), SessionDB.connect(url)
    expected = filled(db, 50)
    with ThreadPoolExecutor(3) as pool:
        building = pool.submit(lambda: [builder.reindex() for _ in range(15)])
        searches = [pool.submit(lambda: [ids(db) for _ in range(40)]) for _ in range(2)]
        building.result(120)
        assert all(found == expected for search in searches for found in search.result(120))
    with psycopg.connect(url) as other:
        circles = other.execute("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
        assert circles.fetchone() == (0,)
    db.close()
    builder.close()
    stores.discard(url)


def test_a_tail_that_is_too_long_is_read_in_part_and_the_answer_says_so(
    make_db: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a large import the index needs some searches or a feed; until then no search reads all of the rest."""
    monkeypatch.setattr("hermes_state.search.finder._TAIL_ROWS", 10)
    monkeypatch.setattr("hermes_state.search.finder._TAIL_LEAST", 20)
    db = make_db(limits=Limits(search_catch_up_ms=0))
    monkeypatch.setattr(db._index, "feed", lambda budget, *, forget: 0)
    db.create_session("chat", "cli")
    ids = db.append_messages("chat", [{"role": "user", "content": f"zebra {n}"} for n in range(50)])
    for sort in (None, "newest", "oldest"):
        hits = db.search_messages("zebra", sort=sort, limit=100)
        assert {hit["id"] for hit in hits} == set(ids[-20:]) and hits.cut
        assert (hits.index_lag, hits.unread) == (50, 30)
    monkeypatch.undo()
    while db.feed(1_000):
        pass
    hits = db.search_messages("zebra", limit=100)
    assert len(hits) == 50 and not hits.cut and hits.unread == 0
