"""`hermes outbox`: see what is owed, and decide about what could not be delivered."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.stores import transact

from hermes_state.session_db import SessionDB
from hermes_state.turns.outbox import NewOutboxItem, OutboxItem

pytestmark = pytest.mark.usefixtures("named_store")


def _owed(db: SessionDB, key: str, text: str = "hello", chat: str = "42") -> OutboxItem:
    return db.outbox.enqueue(NewOutboxItem(dedup_key=key, platform="telegram", chat_id=chat, payload={"text": text}))


def _sending(db: SessionDB, key: str, text: str = "hello") -> OutboxItem:
    _owed(db, key, text, chat=key)
    (item,) = transact(db.outbox.claim_due_in, sender="somebody")
    return item


def test_nothing_yet(run: Callable[..., Any], db: SessionDB) -> None:
    assert run("outbox", "list").out == "There were no deliveries yet.\n"
    assert run("outbox", "list", "--stuck").out == "Nothing matches.\n"


def test_lists_newest_first_in_pages(run: Callable[..., Any], db: SessionDB) -> None:
    items = [_owed(db, f"k{n}", f"text {n}") for n in range(5)]
    first = run("outbox", "list", "--limit", "2")
    assert [line.split()[0] for line in first.out.splitlines()[1:]] == [str(items[4].id), str(items[3].id)]
    assert "In all: 5 pending." in first.err and f"--before {items[3].id} shows older ones." in first.err
    rest = run("outbox", "list", "--before", str(items[3].id), "--json").data
    assert [item["payload"]["text"] for item in rest["items"]] == ["text 2", "text 1", "text 0"]
    assert rest["counts"] == {"pending": 5}


def test_a_hostile_text_does_nothing_to_the_terminal(run: Callable[..., Any], db: SessionDB) -> None:
    item = _owed(db, "k", "\x1b[2Jline one\nline two\u202e")
    assert "\x1b" not in run("outbox", "list").out and "\x1b" not in run("outbox", "show", str(item.id)).out


def test_a_long_answer_does_not_make_every_row_long(run: Callable[..., Any], db: SessionDB) -> None:
    _owed(db, "k", "word " * 200)
    lines = run("outbox", "list").out.splitlines()
    assert max(map(len, lines)) < 150 and "word word" in lines[1]


def test_what_nobody_here_can_deliver_says_so(
    run: Callable[..., Any], db: SessionDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = _owed(db, "k")
    assert "waiting: telegram is disabled or not set up" in run("outbox", "list").out
    shown = run("outbox", "show", str(item.id)).out
    assert f"hermes gateway setup telegram, or hermes outbox drop {item.id}" in shown
    monkeypatch.setenv("TELEGRAM_BOT_TOKEN", "123456:abcdefghijklmnopqrstuvwxyz0123456789")
    assert "waits:" not in run("outbox", "list").out


def test_a_dead_letter_is_shown_with_what_to_do_and_sent_again(run: Callable[..., Any], db: SessionDB) -> None:
    item = _sending(db, "k", "the answer")
    transact(db.outbox.close_in, item, "unknown", error="timed out")
    shown = run("outbox", "show", str(item.id)).out
    assert "timed out" in shown and f"hermes outbox retry {item.id}" in shown and shown.endswith("the answer\n")
    assert run("outbox", "list", "--stuck", "--json").data["items"][0]["id"] == item.id

    done = run("outbox", "retry", str(item.id))
    assert "will say that it is a repetition" in done.out and "No gateway is running" in done.err
    after = db.outbox.get(item.id)
    assert after is not None and after.state == "pending" and after.draft == {"repeat": True, "allowed": True}


def test_a_failed_one_is_sent_again_without_a_mark(run: Callable[..., Any], db: SessionDB) -> None:
    item = _sending(db, "k")
    transact(db.outbox.close_in, item, "failed", error="blocked")
    assert run("outbox", "retry", str(item.id), "--json").data == {"queued": [item.id]}
    after = db.outbox.get(item.id)
    assert after is not None and after.state == "pending" and after.draft is None


def test_only_dead_letters_are_sent_again(run: Callable[..., Any], db: SessionDB) -> None:
    item = _sending(db, "k")
    assert "is sending" in run("outbox", "retry", str(item.id)).err
    transact(db.outbox.sent_in, item, platform_ids=["1"])
    refused = run("outbox", "retry", str(item.id))
    assert refused.code == 2 and "is sent" in refused.err
    assert run("outbox", "retry", "999").err == "hermes: there is no delivery 999. hermes outbox list shows them.\n"


def test_drop_asks_and_leaves_alone_what_is_under_way(run: Callable[..., Any], db: SessionDB) -> None:
    waiting = _owed(db, "a")
    assert "Add --yes" in run("outbox", "drop", str(waiting.id)).err
    assert run("outbox", "drop", str(waiting.id), "--yes").out == f"Dropped: {waiting.id}.\n"
    after = db.outbox.get(waiting.id)
    assert after is not None and after.state == "dropped"
    sending = _sending(db, "b")
    assert "is sending and cannot be dropped" in run("outbox", "drop", str(sending.id), "--yes").err


@pytest.mark.parametrize("verb", ["list", "show", "retry", "drop"])
def test_help_has_an_example(
    run: Callable[..., Any], capsys: pytest.CaptureFixture[str], verb: str, home: Path
) -> None:
    from hermes_cli.main import main

    assert main(["outbox", verb, "--help"]) == 0
    assert f"hermes outbox {verb}" in capsys.readouterr().out.split("examples:")[1]
