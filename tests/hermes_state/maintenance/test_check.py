"""The check: silent about a store in order, precise about one that is not, and its repairs lose nothing."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest
from tests.support.sample_store import tell_story

from hermes_config.limits import Limits
from hermes_state.errors import SessionEnded
from hermes_state.maintenance import check
from hermes_state.session_db import SessionDB
from hermes_testing.clock import Clock


def problems(db: SessionDB) -> dict[str, int]:
    return {found.code: found.count for found in check.check(db) if not found.note}


def notes(db: SessionDB) -> dict[str, int]:
    return {found.code: found.count for found in check.check(db) if found.note}


def sql(db: SessionDB, text: str, *params: object) -> None:
    db._execute_write(lambda conn: conn.run(text, params))


def messages(db: SessionDB) -> list[tuple[object, ...]]:
    return db.engine.read(lambda conn: conn.rows("SELECT id, session_id, content FROM messages ORDER BY id"))


def test_a_store_that_only_we_wrote_to_is_in_order(db: SessionDB, clock: Clock) -> None:
    told = tell_story(db)
    db.search_messages("Kyoto")
    db.ledger.reset("agent:main:telegram:dm:42")
    db.delete_session(told["desk"])
    clock.advance(30 * 86_400)
    assert check.check(db) == []
    assert check.fix(db) == {}


def test_every_finding_says_what_to_do(db: SessionDB) -> None:
    for rule in check.rules():
        assert rule.what
        assert rule.fix
        assert ("--fix" in rule.fix) == (rule.repair is not None), rule.code


def test_the_page_for_operators_names_every_finding() -> None:
    page = Path(__file__).parents[3] / "docs" / "operators" / "maintenance.md"
    text = page.read_text(encoding="utf-8")
    assert [rule.code for rule in check.rules() if f"`{rule.code}`" not in text] == []


# -- what others leave behind: each of these is found, mended, and the conversation works again ------------------------


def test_a_compression_without_a_continuation(db: SessionDB, clock: Clock) -> None:
    db.create_session("s", "telegram")
    db.append_message("s", "user", "hello")
    db.end_session("s", "compression")
    assert problems(db) == {}, "another program may be about to make the continuation"
    clock.advance(7_200)
    assert problems(db) == {"half-rotation": 1}
    with pytest.raises(SessionEnded):
        db.append_message("s", "user", "stuck")
    assert check.fix(db) == {"half-rotation": 1}
    assert db.append_message("s", "user", "and on")
    assert problems(db) == {}


def test_a_continuation_whose_parent_was_never_ended(db: SessionDB) -> None:
    told = tell_story(db)
    sql(db, "UPDATE sessions SET ended_at = NULL, end_reason = NULL WHERE id = ?", told["trip"])
    assert problems(db) == {"parent-open": 1}
    assert check.fix(db) == {"parent-open": 1}
    assert problems(db) == {}
    assert db.get_compression_tip(told["trip"]) == told["tip"]


def test_a_wrong_tip_and_a_conversation_listed_twice(db: SessionDB) -> None:
    told = tell_story(db)
    sql(db, "UPDATE conversations SET tip_id = ? WHERE id = ?", told["trip"], told["trip"])
    sql(db, "UPDATE sessions SET listed = 1 WHERE root_id = ?", told["trip"])
    assert problems(db).keys() == {"tip", "listed"}
    check.fix(db)
    assert problems(db) == {}
    listed = [row["id"] for row in db.list_sessions_rich()]
    assert listed.count(told["tip"]) == 1
    assert told["trip"] not in listed


def test_a_conversation_row_that_is_gone(db: SessionDB) -> None:
    told = tell_story(db)
    sql(db, "DELETE FROM conversations WHERE id = ?", told["trip"])
    assert problems(db) == {"conversation-missing": 1}
    check.fix(db)
    assert problems(db) == {}
    assert db.get_compression_tip(told["trip"]) == told["tip"]


def test_a_conversation_without_sessions(db: SessionDB) -> None:
    sql(db, "INSERT INTO conversations (id, tip_id, created_at) VALUES ('nobody', 'nobody', 1)")
    assert problems(db) == {"conversation-empty": 1}
    assert check.fix(db) == {"conversation-empty": 1}
    assert problems(db) == {}


def test_a_segment_that_nothing_leads_to(db: SessionDB) -> None:
    told = tell_story(db)
    before = messages(db)
    sql(db, "UPDATE sessions SET parent_session_id = NULL WHERE id = ?", told["tip"])
    assert "chain-broken" in problems(db)
    check.fix(db)
    assert problems(db) == {}
    assert messages(db) == before
    assert told["tip"] in [row["id"] for row in db.list_sessions_rich()]


def test_a_first_segment_that_is_gone(db: SessionDB) -> None:
    told = tell_story(db)
    before = [row for row in messages(db) if row[1] != told["trip"]]
    sql(db, "UPDATE sessions SET parent_session_id = NULL WHERE id = ?", told["tip"])
    sql(db, "DELETE FROM messages WHERE session_id = ?", told["trip"])
    sql(db, "DELETE FROM sessions WHERE id = ?", told["trip"])
    assert "root-missing" in problems(db)
    check.fix(db)
    assert problems(db) == {}
    assert messages(db) == before
    assert db.append_message(told["tip"], "user", "and on")


def test_a_route_that_was_left_behind(db: SessionDB) -> None:
    told = tell_story(db)
    sql(db, "UPDATE routes SET session_id = ?", told["trip"])
    assert problems(db) == {"route-behind": 1}
    assert check.fix(db) == {"route-behind": 1}
    assert db.engine.read(lambda conn: conn.rows("SELECT session_id FROM routes")) == [(told["tip"],)]


def test_a_counter_that_fell_behind(db: SessionDB) -> None:
    told = tell_story(db)
    sql(db, "UPDATE sessions SET message_count = 0, last_active = 0 WHERE id = ?", told["desk"])
    assert problems(db) == {"counters": 1}
    check.fix(db)
    session = db.get_session(told["desk"])
    assert session is not None
    assert session["message_count"] == 1
    assert session["last_active"] > 0
    assert problems(db) == {}


def test_notes_are_no_problems(db: SessionDB) -> None:
    db.save_gateway_routing_entry("agent:main:telegram:dm:7", '{"session_id": "not-yet"}')
    db.create_session("s", "cli")
    db.append_message("s", "user", "not in the index yet")
    assert problems(db) == {}
    assert notes(db).keys() >= {"route-nowhere"}
    assert check.fix(db) == {}


def test_a_check_changes_nothing(db: SessionDB, clock: Clock) -> None:
    told = tell_story(db)
    sql(db, "UPDATE sessions SET ended_at = NULL, end_reason = NULL WHERE id = ?", told["trip"])
    first = problems(db)
    assert problems(db) == first == {"parent-open": 1}


# -- the file ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def sqlite_store(tmp_path: Path) -> Callable[..., SessionDB]:
    def opened(limits: Limits | None = None) -> SessionDB:
        return SessionDB(tmp_path / "store" / "state.db", limits=limits)

    return opened


def test_files_that_others_can_read_are_closed(sqlite_store: Callable[..., SessionDB]) -> None:
    db = sqlite_store()
    path = Path(db.engine.where)
    path.chmod(0o644)
    assert problems(db) == {"mode": 1}
    assert check.fix(db) == {"mode": 1}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    db.close()


def test_a_log_that_cannot_shrink_is_named_and_shrinks_when_it_can(sqlite_store: Callable[..., SessionDB]) -> None:
    db = sqlite_store(Limits(wal_bytes=1 << 20, checkpoint_pages=100_000))
    db.create_session("s", "cli")
    reader = apsw.Connection(db.engine.where, apsw.SQLITE_OPEN_READONLY)  # another program that does not let go
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM sessions").fetchall()
    db.append_messages("s", ({"role": "user", "content": "x" * 10_000} for _ in range(300)))
    assert problems(db) == {"log": 1}
    reader.close()
    check.fix(db)
    assert problems(db) == {}
    db.close()


def test_a_parent_that_does_not_exist_and_a_message_of_nobody(sqlite_store: Callable[..., SessionDB]) -> None:
    db = sqlite_store()
    tell_story(db)
    db.close()
    raw = apsw.Connection(str(db.engine.where))  # another program, which does not look after links
    raw.execute("UPDATE sessions SET parent_session_id = 'ghost' WHERE id = 'a-branch'")
    raw.execute("INSERT INTO messages (session_id, role, timestamp) VALUES ('ghost', 'user', 1)")
    raw.close()
    db = sqlite_store()
    assert problems(db) == {"parent-missing": 1, "links": 1}
    assert check.fix(db) == {"parent-missing": 1}
    assert problems(db) == {"links": 1}, "what cannot be mended without losing something is left to a person"
    db.close()


def test_a_damaged_file_is_told_and_where_to_go_from_there(sqlite_store: Callable[..., SessionDB]) -> None:
    db = sqlite_store()
    tell_story(db)
    root = db.engine.read(
        lambda conn: conn.rows("SELECT rootpage FROM sqlite_schema WHERE name = 'idx_messages_session'")
    )
    db.close()
    path = Path(db.engine.where)
    data = bytearray(path.read_bytes())
    start = (root[0][0] - 1) * 4096
    data[start + 100 : start + 4000] = b"\xff" * 3900
    path.write_bytes(data)
    db = sqlite_store()
    found = {one.code: one for one in check.check(db)}
    assert "backup" in found["damaged"].fix
    db.close()
