"""`hermes inbox`: what came in and what became of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hermes_state.ids import SessionKey
from hermes_state.session_db import SessionDB
from hermes_state.turns.inbox import InboxRow

pytestmark = pytest.mark.usefixtures("named_store")


def _came(db: SessionDB, message: str, text: str, route: str = "agent:main:telegram:dm:42") -> InboxRow:
    return db.inbox.accept(
        platform="telegram", chat_id="42", message_id=message, route=SessionKey(route), payload={"text": text}
    ).row


def test_lists_by_state_and_route_in_pages(run: Callable[..., Any], db: SessionDB) -> None:
    assert run("inbox", "list").out == "No message has come in yet.\n"
    rows = [_came(db, str(n), f"message {n}") for n in range(4)]
    _came(db, "other", "elsewhere", route="agent:main:telegram:dm:43")
    db.inbox.finish([rows[0].id], "silent", reason="nothing to say")
    db.inbox.refuse(platform="telegram", chat_id="66", message_id="1", reason="not on the list")

    page = run("inbox", "list", "--limit", "2")
    assert "telegram:66" in page.out and "not on the list" in page.out and "elsewhere" in page.out
    assert "4 queued, 1 refused, 1 silent" in page.err and "shows older ones" in page.err
    silent = run("inbox", "list", "--state", "silent", "--json").data["messages"]
    assert [(row["id"], row["reason"]) for row in silent] == [(rows[0].id, "nothing to say")]
    by_route = run("inbox", "list", "--route", "agent:main:telegram:dm:43", "--json").data["messages"]
    assert [row["payload"]["text"] for row in by_route] == ["elsewhere"]


def test_shows_one(run: Callable[..., Any], db: SessionDB) -> None:
    row = _came(db, "7", "hello there")
    shown = run("inbox", "show", str(row.id)).out
    assert "queued" in shown and "agent:main:telegram:dm:42" in shown and shown.endswith("hello there\n")
    assert run("inbox", "show", str(row.id), "--json").data["trace_id"] == row.trace_id
    assert run("inbox", "show", "999").err == "hermes: there is no message 999. hermes inbox list shows them.\n"
