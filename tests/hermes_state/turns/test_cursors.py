"""Cursors of platforms: they move with the inbox row, or not at all."""

from __future__ import annotations

import asyncio

import pytest

from hermes_state.errors import InvalidValue, StateError
from hermes_state.ids import SessionKey
from hermes_state.session_db import SessionDB
from hermes_state.turns.cursors import LONGEST, CursorMove
from hermes_state.turns.inbox import Accepted
from hermes_testing.clock import Clock


def to(value: str, name: str = "") -> CursorMove:
    return CursorMove("p", "", name, value)


def accept(db: SessionDB, message_id: str, cursor: CursorMove | None) -> Accepted:
    async def go() -> Accepted:
        return await db.inbox.aaccept(
            platform="p", chat_id="c", message_id=message_id, route=SessionKey("r"), payload={}, cursor=cursor
        )

    return asyncio.run(go())


def test_a_cursor_moves_with_the_message_also_when_it_comes_again(db: SessionDB, clock: Clock) -> None:
    assert db.cursors.get("p") is None
    accept(db, "1", to("one"))
    accept(db, "2", to("two", name="INBOX"))
    assert (db.cursors.get("p") or [""])[0] == "one"
    clock.advance(5)
    again = accept(db, "1", to("three"))
    assert not again.new
    assert db.cursors.get("p") == ("three", clock())
    assert (db.cursors.get("p", name="INBOX") or [""])[0] == "two"
    assert db.cursors.get("p", "another account") is None


def test_a_refusal_moves_it_too_and_a_move_needs_no_message(db: SessionDB) -> None:
    db.inbox.refuse(platform="p", chat_id="c", message_id="1", reason="a stranger", cursor=to("one"))
    assert (db.cursors.get("p") or [""])[0] == "one"
    asyncio.run(db.cursors.move(to("two")))
    assert (db.cursors.get("p") or [""])[0] == "two"


def test_neither_is_stored_when_one_cannot_be(db: SessionDB) -> None:
    db.engine.write(lambda conn: conn.run("DROP TABLE platform_cursors"))
    with pytest.raises(StateError):
        accept(db, "1", to("one"))
    assert db.inbox.list() == ()


@pytest.mark.parametrize("value", ["x" * (LONGEST + 1), "half \ud800", "a\0b"], ids=["long", "half", "nul"])
def test_what_cannot_be_stored_is_refused_before_anything_is_written(db: SessionDB, value: str) -> None:
    with pytest.raises(InvalidValue):
        accept(db, "1", to(value))
    assert db.inbox.list() == ()


def test_after_a_change_of_bots_the_numbers_of_the_old_one_are_new_again(db: SessionDB) -> None:
    assert not db.cursors.connected_as("p", "", "bot one")
    ended, waiting = accept(db, "1", None), accept(db, "2", None)
    db.inbox.finish([ended.row.id], "silent")
    assert not db.cursors.connected_as("p", "", "bot one"), "a restart changes nothing"
    assert not accept(db, "1", None).new
    assert db.cursors.connected_as("p", "", "bot two")
    assert accept(db, "1", None).new, "the first message to another bot is no repetition"
    assert not accept(db, "2", None).new and waiting.new, "a message that waits for its answer keeps its key"
    db.cursors.connected_as("p", "", "bot one")
    assert db.cursors.connected_as("p", "", "bot two"), "there and back, as often as one likes"
