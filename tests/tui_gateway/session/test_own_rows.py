"""Rows of Hermes itself, at a terminal that is open: they start its lane like a prompt, once."""

from __future__ import annotations

from pathlib import Path

from tests.tui_gateway.client import StdioClient

from hermes_state import SessionDB
from hermes_state.ids import LOCAL_OWNER, ConversationId
from hermes_state.turns.inbox import LOCAL, Address, local_route


def _store(db: SessionDB, conversation: ConversationId, key: str, text: str) -> None:
    address = Address(
        platform=LOCAL, account="", chat_id=conversation, route=local_route(conversation), person_id=LOCAL_OWNER,
        source=None,
    )  # fmt: skip
    db.engine.write(
        lambda conn: db.inbox.accept_own_in(conn, address, message_id=f"hermes:test:{key}", text=text, about={})
    )


def test_an_own_row_starts_the_lane_of_an_idle_terminal_and_waits_behind_a_turn(demo_home: Path) -> None:
    db = SessionDB(demo_home / "state.db")
    with StdioClient(demo_home) as client:
        sid = client.call("session.create")["session_id"]
        client.call("prompt.submit", session_id=sid, text="hello")
        client.event("message.complete", sid)
        conversation = ConversationId(db.list_sessions_rich(limit=1)[0]["id"])
        _store(db, conversation, "one", "what is 2 + 3?")
        _store(db, conversation, "two", "what is 3 + 3?")
        seen = []
        for _ in range(2):
            assert client.event("message.user", sid)["source"] == "hermes"
            seen.append(client.event("message.complete", sid)["text"])
        assert "5" in seen[0] and "6" in seen[1], "each row is a turn of its own"
        rows = [row for row in db.inbox.list(route=local_route(conversation)) if row.message_id.startswith("hermes:")]
        assert [row.state for row in rows] == ["answered", "answered"]
        assert len({row.turn_id for row in rows}) == 2
    db.close()
