"""Maintenance: what is over goes, what somebody needs stays, and a dry run says the same beforehand."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.sample_store import tell_story

from hermes_config.limits import Limits
from hermes_config.sections import SessionsSection
from hermes_state.ids import ConversationId, SessionKey
from hermes_state.maintenance import retention
from hermes_state.people import media_files
from hermes_state.session_db import SessionDB
from hermes_state.transfer import tables
from hermes_state.turns.outbox import NewOutboxItem
from hermes_testing.clock import Clock

DAY = 86_400


def done(steps: list[retention.RetentionStep]) -> dict[str, int]:
    return {step.step: step.count for step in steps if step.count and step.step not in ("index", "log")}


def everything(db: SessionDB) -> dict[str, list[tuple[object, ...]]]:
    return db.engine.read(lambda conn: {t.name: list(tables.rows(conn, t)) for t in tables.every()})


def unused_continuation(db: SessionDB) -> str:
    """What other programs leave behind: a compression whose continuation nobody ever used."""
    db.create_session("parent", "telegram")
    db.append_message("parent", "user", "hello")
    db.end_session("parent", "compression")
    db.create_session("child", "telegram", parent_session_id="parent")
    db.append_message("child", "user", "summary")
    return "child"


def is_open(db: SessionDB, session_id: str) -> bool:
    session = db.get_session(session_id)
    assert session is not None
    return session["ended_at"] is None


def test_an_unused_continuation_is_closed_after_a_week(db: SessionDB, clock: Clock) -> None:
    child = unused_continuation(db)
    clock.advance(6 * DAY)
    assert done(retention.run(db)) == {}
    clock.advance(2 * DAY)
    assert done(retention.run(db)) == {"orphans": 1}
    assert not is_open(db, child)
    assert db.get_messages(child), "its messages stay"


def test_the_folder_of_files_is_bounded_but_what_has_to_be_sent_stays(
    make_db: Callable[..., SessionDB], tmp_path: Path
) -> None:
    with contextlib.closing(make_db(limits=Limits(media_folder_bytes=250))) as db:
        kept = [media_files.keep_bytes(tmp_path, bytes([number]) * 100, ending=".bin").path for number in range(5)]
        for number, path in enumerate(kept):
            os.utime(path, (number, number))
        files = [{"path": str(kept[0]), "name": "a.bin", "caption": ""}]
        payload = {"text": "", "kind": "file", "files": files}
        item = db.outbox.enqueue(NewOutboxItem(dedup_key="key", platform="telegram", chat_id="42", payload=payload))
        assert done(retention.run(db, dry_run=True, home=tmp_path)) == {"media": 3} and kept[1].exists()
        assert done(retention.run(db, home=tmp_path)) == {"media": 3}
        assert [path.exists() for path in kept] == [True, False, False, False, True]
        assert db.outbox.drop(item.id)
        media_files.keep_bytes(tmp_path, b"x" * 100, ending=".bin")
        assert done(retention.run(db, home=tmp_path)) == {"media": 1} and not kept[0].exists()


def test_the_picture_of_a_message_that_waits_for_the_gateway_stays(
    make_db: Callable[..., SessionDB], tmp_path: Path
) -> None:
    with contextlib.closing(make_db(limits=Limits(media_folder_bytes=50))) as db:
        picture = media_files.keep_bytes(tmp_path, b"x" * 100, ending=".png").path
        payload = {"text": "what is this?", "attachments": [{"ref": picture.name, "kind": "photo"}]}
        row = db.inbox.accept(
            platform="telegram", chat_id="42", message_id="m1", payload=payload, route=SessionKey("r"), person_id=None
        ).row
        assert done(retention.run(db, home=tmp_path)) == {} and picture.exists()
        assert db.engine.write(lambda conn: db.inbox.drop_in(conn, row.id, reason="dropped"))
        assert done(retention.run(db, home=tmp_path)) == {"media": 1} and not picture.exists()


def test_a_chat_that_was_compressed_and_left_alone_stays_open(db: SessionDB, clock: Clock) -> None:
    opened = db.ledger.open(source="telegram", route="agent:main:telegram:dm:1")
    db.append_message(opened.session_id, "user", "hello")
    rotated = db.ledger.rotate(opened.session_id, [{"role": "user", "content": "summary"}])
    clock.advance(8 * DAY)
    assert done(retention.run(db, prune_days=1)) == {}
    assert is_open(db, rotated.session_id)
    resolved = db.engine.write(db.ledger.resolving("agent:main:telegram:dm:1"))
    assert resolved is not None
    assert resolved.handle == rotated


def test_what_a_route_leads_to_or_somebody_works_on_is_left_alone(db: SessionDB, clock: Clock) -> None:
    child = unused_continuation(db)
    clock.advance(8 * DAY)
    lease = db.leases.acquire(ConversationId("parent"), holder="somebody", ttl=60)
    assert lease is not None
    assert done(retention.run(db)) == {}
    db.leases.release(lease)
    db.save_gateway_routing_entry("agent:main:telegram:dm:9", '{"session_id": "child"}')
    assert done(retention.run(db)) == {}
    assert is_open(db, child)


def test_replaced_rows_are_kept_for_a_while_and_then_really_gone(db: SessionDB, clock: Clock) -> None:
    db.create_session("s", "cli")
    db.append_message("s", "user", "a forgotten aardvark")
    assert db.search_messages("aardvark")
    db.replace_messages("s", [{"role": "user", "content": "hello"}])
    clock.advance(29 * DAY)
    assert done(retention.run(db)) == {}
    clock.advance(2 * DAY)
    assert done(retention.run(db)) == {"replaced": 1}
    rows = db.engine.read(lambda conn: conn.rows("SELECT content FROM messages"))
    assert rows == [("hello",)]
    assert db.engine.read(lambda conn: conn.rows("SELECT * FROM search_forget")) == [], "the index was told"
    assert [m["content"] for m in db.get_messages("s")] == ["hello"]


def test_an_old_message_that_was_replaced_just_now_is_kept_for_its_while(db: SessionDB, clock: Clock) -> None:
    db.create_session("s", "cli")
    db.append_message("s", "user", "said long ago", timestamp=clock() - 400 * 86400)
    db.replace_messages("s", [])
    assert done(retention.run(db)) == {}


def test_more_replaced_rows_than_one_step_takes(db: SessionDB, clock: Clock) -> None:
    db.create_session("s", "cli")
    db.append_messages("s", ({"role": "user", "content": str(n)} for n in range(1_200)))
    db.clear_messages("s")
    clock.advance(31 * DAY)
    assert done(retention.run(db)) == {"replaced": 1_200}


def test_old_conversations_go_only_when_asked(db: SessionDB, clock: Clock) -> None:
    told = tell_story(db)
    clock.advance(20 * DAY)
    assert done(retention.run(db)) == {}
    assert done(retention.run(db, prune_days=10)) == {"prune": 1}
    assert db.get_session(told["desk"]) is None
    assert db.get_session(told["trip"]) is not None, "its newest segment is open and a route leads there"


def test_a_dry_run_says_what_the_run_does_and_changes_nothing(db: SessionDB, clock: Clock) -> None:
    db.clear_messages(tell_story(db)["branch"])
    unused_continuation(db)
    db.create_session("ghost", "tui")
    db.end_session("ghost", "user_exit")
    db.inbox.refuse(platform="telegram", chat_id="1", message_id="1", reason="not on the list")
    clock.advance(40 * DAY)
    before = everything(db)
    rehearsed = done(retention.run(db, dry_run=True, prune_days=30))
    assert everything(db) == before
    assert {"orphans", "ghosts", "prune", "replaced", "inbox"} <= rehearsed.keys()
    assert done(retention.run(db, prune_days=30)) == rehearsed
    assert done(retention.run(db, prune_days=30)) == {}


def test_the_log_is_empty_afterwards(tmp_path: Path) -> None:
    db = SessionDB(tmp_path / "state.db")
    tell_story(db)
    log = tmp_path / "state.db-wal"
    assert log.stat().st_size > 0
    retention.run(db, vacuum=True)
    assert log.stat().st_size == 0
    db.append_message("trip-2", "user", "on it goes")
    db.close()


def test_automatic_backups_beyond_their_number_go_and_yours_stay(
    make_db: Callable[..., SessionDB], tmp_path: Path
) -> None:
    db = make_db(limits=Limits(backups_kept=1))
    (tmp_path / "backups").mkdir()
    for name in ("auto-replaced-1.db", "auto-replaced-2.db", "mine.db"):
        (tmp_path / "backups" / name).touch()
    assert done(retention.run(db, dry_run=True, home=tmp_path)) == {"backups": 1}
    assert len(list((tmp_path / "backups").iterdir())) == 3
    assert done(retention.run(db, home=tmp_path)) == {"backups": 1}
    left = {path.name for path in (tmp_path / "backups").iterdir()}
    assert "mine.db" in left
    assert len(left) == 2


def test_bounds_come_from_the_limits(make_db: Callable[..., SessionDB], clock: Clock) -> None:
    db = make_db(limits=Limits(replaced_days=1))
    db.create_session("s", "cli")
    db.append_message("s", "user", "old")
    db.clear_messages("s")
    clock.advance(2 * DAY)
    assert done(retention.run(db)) == {"replaced": 1}


def test_by_itself_it_runs_once_a_day_and_leaves_conversations_alone(
    db: SessionDB, clock: Clock, tmp_path: Path
) -> None:
    def tidy(**sessions: bool) -> dict[str, int]:
        settings = SessionsSection(**sessions)
        return done(retention.run_when_due(db, settings, home=tmp_path, sessions_dir=tmp_path / "sessions"))

    for number in ("1", "2"):
        row = db.inbox.accept(platform="p", chat_id="c", message_id=number, route=SessionKey("r"), payload={}).row
        db.inbox.finish([row.id], "answered")
    db.create_session("s", "cli")
    db.append_message("s", "user", "words")
    db.end_session("s", "user_exit")
    clock.advance(91 * 86_400)
    first = tidy()
    assert first == {"inbox": 2}
    assert db.inbox.counts() == {} and db.get_session("s") is not None
    clock.advance(3_600)
    assert tidy(auto_prune=True) == {}
    clock.advance(86_400)
    assert tidy(auto_prune=True)["prune"] == 1
    assert db.get_session("s") is None


@pytest.mark.parametrize(("ended", "compact"), [(2, False), (30, True)])
def test_by_itself_a_database_is_made_compact_only_where_much_of_it_is_free(
    tmp_path: Path, clock: Clock, ended: int, compact: bool
) -> None:
    with contextlib.closing(SessionDB(tmp_path / "state.db", clock=clock)) as db:
        for number in range(40):
            db.create_session(str(number), "cli")
            db.append_message(str(number), "user", f"{number} " * 5_000)
            if number < ended:
                db.end_session(str(number), "user_exit")
        clock.advance(91 * 86_400)
        settings = SessionsSection(auto_prune=True)
        did = done(retention.run_when_due(db, settings, home=tmp_path, sessions_dir=tmp_path / "sessions"))
        assert did["prune"] == ended and ("vacuum" in did) is compact


def test_a_prompt_that_no_turn_took_goes_with_its_conversation(db: SessionDB) -> None:
    for chat in ("chat", "other"):
        db.create_session(chat, "cli")
        db.inbox.accept(platform="local", chat_id=chat, message_id="1", route=SessionKey(chat), payload={"text": "hi"})
    db.engine.write(lambda conn: retention.erase(conn, [ConversationId("chat")]))
    assert db.engine.read(lambda conn: conn.rows("SELECT chat_id FROM inbox")) == [("other",)]
