"""`hermes sessions compress` and `uncompress`, on the demo model: no network, the real way through."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest

from hermes_agent.compression import summary
from hermes_state import SessionDB
from hermes_testing.clock import Clock

KEY = "agent:main:telegram:dm:42"


@pytest.fixture
def chat(db: SessionDB, named_store: str | Path, home: Path) -> str:
    home.mkdir(mode=0o700, exist_ok=True)
    (home / "config.yaml").write_text("model: demo\n")
    session = db.ledger.open(source="telegram", route=KEY).session_id
    for n in range(20):
        db.append_message(session, "user", f"question {n}: what about day {n} in Kyoto? " + "We like gardens. " * 20)
        db.append_message(session, "assistant", f"answer {n}: a quiet one. " + "There is a path along the river. " * 20)
    db.set_session_title(session, "Trip to Kyoto")
    return session


def tip(db: SessionDB) -> str:
    found = db.engine.write(db.ledger.resolving(KEY))
    assert found is not None
    return found.handle.session_id


def test_there_and_back_again(db: SessionDB, chat: str, run: Any) -> None:
    before = [message["content"] for message in db.get_messages(chat)]
    done = run("sessions", "compress", "trip", "--focus", "gardens")  # as docs/users/sessions.md has it
    new = tip(db)
    assert done.code == 0 and new != chat
    assert "Trip to Kyoto" in done.out and f"hermes sessions uncompress {new}" in done.out
    assert "without it" not in done.out
    assert [summary.body(message) for message in db.get_messages(new) if summary.body(message)]
    assert db.get_session_title(new) == "Trip to Kyoto"
    db.append_message(new, "user", "since then")
    back = run("sessions", "uncompress", chat[:14])
    assert back.code == 0
    assert f"continues as {chat}" in back.out and "1 message since then" in back.out
    assert tip(db) == chat
    assert [message["content"] for message in db.get_messages(chat)] == [*before, "since then"]
    assert db.get_session_title(chat) == "Trip to Kyoto"


def test_what_cannot_be_done_is_said_in_one_line(db: SessionDB, chat: str, run: Any, clock: Clock) -> None:
    assert "not made by a compression" in run("sessions", "uncompress", chat).err
    short = db.ledger.open(source="cli").session_id
    db.append_message(short, "user", "hello")
    refused = run("sessions", "compress", short)
    assert refused.code == 1 and "nothing to leave out" in refused.err
    assert run("sessions", "compress", "nobody").code != 0
    clock.set(time.time())  # the command goes by the real time
    lease = db.leases.acquire(db.get_conversation_root(chat), holder="gateway", ttl=60)
    assert lease is not None
    busy = run("sessions", "compress", chat)
    assert busy.code == 1 and "Another turn is running" in busy.err
    assert tip(db) == chat


def test_a_home_that_wants_it_in_place_is_told(home: Path, run: Any) -> None:
    home.mkdir(mode=0o700, exist_ok=True)
    assert "note" not in run("config", "check").out
    (home / "config.yaml").write_text("compression:\n  in_place: true\n")
    said = run("config", "check").out
    assert re.search(r"compression\.in_place +not used \(harmless\) +a compression always makes a new segment", said)
    assert [one["name"] for one in run("config", "check", "--json").data["entries"]] == ["compression.in_place"]


def test_both_are_in_the_help(run: Any) -> None:
    for verb in ("compress", "uncompress"):
        shown = run("sessions", verb, "--help")
        assert shown.code == 0 and "examples:" in shown.out
