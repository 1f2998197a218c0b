"""What turns are saying: shown while somebody watches, and no part of the history."""

from __future__ import annotations

import zipfile
from pathlib import Path

from tests.support.stores import transact

from hermes_state.ids import ConversationId, TurnId
from hermes_state.maintenance import retention
from hermes_state.session_db import SessionDB
from hermes_state.transfer import backup, copy_all, tables
from hermes_state.turns.live_views import LiveText
from hermes_testing.clock import Clock

ONE, TWO = ConversationId("one"), ConversationId("two")
TEXT = LiveText(TurnId("t1"), 2, "half an answ")


def rows(db: SessionDB) -> int:
    return int(db.engine.read(lambda conn: conn.rows("SELECT count(*) FROM live_views"))[0][0])


def test_text_is_shown_only_while_somebody_watches(db: SessionDB, clock: Clock) -> None:
    assert not transact(db.live_views.show_in, ONE, TEXT) and rows(db) == 0
    db.live_views.watch(ONE)
    assert db.live_views.watched() == {ONE}
    assert db.live_views.get(ONE) is None
    assert transact(db.live_views.show_in, ONE, TEXT) and db.live_views.get(ONE) == TEXT
    clock.advance(11)
    assert db.live_views.watched() == frozenset()
    assert not transact(db.live_views.show_in, ONE, TEXT._replace(text="half an answer"))
    assert db.live_views.get(ONE) == TEXT


def test_a_turn_clears_its_own_text_and_its_watchers_stay(db: SessionDB) -> None:
    db.live_views.watch(ONE)
    transact(db.live_views.show_in, ONE, TEXT)
    transact(db.live_views.clear_in, ONE, TurnId("another"))
    assert db.live_views.get(ONE) == TEXT
    transact(db.live_views.clear_in, ONE, TEXT.turn_id)
    assert db.live_views.get(ONE) is None and ONE in db.live_views.watched()


def test_maintenance_forgets_what_was_left(db: SessionDB, clock: Clock) -> None:
    db.live_views.watch(ONE)
    transact(db.live_views.show_in, ONE, TEXT)
    clock.advance(71)
    db.live_views.watch(TWO)
    assert retention.prune(db)["live_views"] == 1
    assert db.live_views.get(ONE) is None and rows(db) == 1


def test_it_goes_with_its_conversation(db: SessionDB) -> None:
    session = db.ledger.open(source="cli").session_id
    conversation = db.get_conversation_root(session)
    db.live_views.watch(conversation)
    transact(db.live_views.show_in, conversation, TEXT)
    assert db.delete_session(session) and rows(db) == 0


def test_it_is_in_no_backup_and_no_archive(db: SessionDB, tmp_path: Path) -> None:
    db.create_session("s", "cli")
    db.live_views.watch(ONE)
    transact(db.live_views.show_in, ONE, TEXT)
    assert "live_views" not in {table.name for table in tables.every()}
    copy_all.export_store(db, tmp_path / "all.zip")
    with zipfile.ZipFile(tmp_path / "all.zip") as archive:
        assert not [name for name in archive.namelist() if TEXT.text.encode() in archive.read(name)]
    made = backup.create(db, tmp_path / ("copy.zip" if db.engine.dialect == "postgresql" else "copy.db"))
    assert TEXT.text.encode() not in made.path.read_bytes()
    assert db.live_views.get(ONE) == TEXT, "the store itself keeps it"
