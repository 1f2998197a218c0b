"""Workload: the life of some conversations, every verb of the ledger and of the transcript once."""

from __future__ import annotations

from typing import Any

from tests.support.sweep import Journal

from hermes_state.conversations.ledger import Search
from hermes_state.conversations.routes import RouteChange, Routes
from hermes_state.session_db import SessionDB

PHONE, DESK = "agent:main:telegram:dm:42", "agent:main:cli:desk"
CALL = {"id": "c1", "type": "function", "function": {"name": "list_files", "arguments": "{}"}}
SUMMARY = [{"role": "user", "content": "summary so far"}, {"role": "assistant", "content": "noted"}]


def work(db: SessionDB, journal: Journal) -> None:
    ledger, do = db.ledger, journal.do
    do("open", lambda: ledger.open(source="telegram", route=PHONE, session_id="a", fields={"title": "Trip"}))
    do("append", lambda: db.append_message("a", "user", "京都に行きたい"))
    do("append call", lambda: db.append_message("a", "assistant", None, tool_calls=[CALL]))
    journal.effect("the tool runs")
    results = [
        {"role": "tool", "content": "a.txt", "tool_call_id": "c1", "tool_name": "list_files"},
        {"role": "assistant", "content": "There is one file."},
    ]
    do("append turn", lambda: db.append_messages("a", results))
    do("second route", lambda: ledger.switch(DESK, "a"))
    do("rotate", lambda: ledger.rotate("a", SUMMARY, new_id="b"))
    asked = do("append to child", lambda: db.append_message("b", "user", "and then?"))
    do("rewind", lambda: db.rewind_to_message("b", asked))
    do("branch", lambda: ledger.branch("b", title="Other trip", new_id="c", route=DESK))
    do("rotate again", lambda: ledger.rotate("b", SUMMARY, new_id="d"))
    do("compact in place", lambda: db.archive_and_compact("d", SUMMARY[:1]))
    do("replace", lambda: db.replace_messages("c", [{"role": "user", "content": "started over"}]))
    do("rename", lambda: db.set_session_title("d", "Trip to Kyoto"))
    do("reset", lambda: ledger.reset(PHONE, session_id="e"))
    do("append after reset", lambda: db.append_message("e", "user", "new subject"))
    do("end", lambda: ledger.end("c", "user_exit"))
    do("reopen", lambda: ledger.reopen("c"))
    do("switch back", lambda: ledger.switch(PHONE, "a"))
    routes, place = Routes(db, ""), Search("telegram", (DESK,), lambda entry, session: session is not None)

    def resolve(route: str, **how: Any) -> object:
        return db.engine.write(ledger.resolving(route, **how))

    do("forget a route", lambda: routes.drop_unused([PHONE], 1e12))
    do("find it again", lambda: resolve(PHONE, source="telegram", search=Search("telegram")))
    do("under an older key", lambda: resolve("agent:main:cli:table", source="cli", search=place))
    gone = RouteChange(PHONE, {"expiry_finalized": True}, {})
    do("close it", lambda: routes.finish(gone, "d", used_at=1e12))
    moved = {"chat_id": "-100", "chat_type": "group"}
    do("the chat has a new id", lambda: ledger.take_along(PHONE, "agent:main:telegram:group:-100", fields=moved))


def check(db: SessionDB, _effects: list[str]) -> list[str]:
    """A segment ended by compression has one successor, which has its messages, and no route is left behind."""
    rows = db.engine.read(lambda conn: conn.rows(WHOLE))
    return [f"half a rotation: {row}" for row in rows if row[1:] != (1, 1, 0, 0)]


WHOLE = """
SELECT p.id,
    (SELECT count(*) FROM sessions c WHERE c.parent_session_id = p.id AND c.root_id = p.root_id),
    (SELECT count(DISTINCT m.session_id) FROM messages m JOIN sessions c ON c.id = m.session_id
     WHERE c.parent_session_id = p.id AND c.root_id = p.root_id AND m.content = 'summary so far'),
    (SELECT count(*) FROM routes r WHERE r.session_id = p.id),
    (SELECT count(*) FROM sessions t WHERE t.id = p.id AND (t.title IS NOT NULL OR t.ended_at IS NULL))
FROM sessions p WHERE p.end_reason = 'compression'
"""
