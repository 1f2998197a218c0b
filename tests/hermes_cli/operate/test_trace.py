"""`hermes trace`: a message's life as a person reads it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.stores import transact

from hermes_state.conversations.ledger import Handle
from hermes_state.ids import ConversationId, SessionKey
from hermes_state.session_db import SessionDB
from hermes_state.turns.effects import UNKNOWN
from hermes_state.turns.inbox import BESIDE, Address
from hermes_state.turns.outbox import NewOutboxItem
from hermes_state.turns.turns import Turn
from hermes_testing.clock import Clock

pytestmark = pytest.mark.usefixtures("named_store")

ROUTE = SessionKey("agent:main:telegram:dm:42")


def _reply(**more: Any) -> NewOutboxItem:
    return NewOutboxItem(dedup_key="answer:1", platform="telegram", chat_id="42", payload={"text": "once upon"}, **more)


def _fence(db: SessionDB, conversation_id: ConversationId, holder: str) -> int:
    lease = db.leases.acquire(conversation_id, holder=holder, ttl=30)
    assert lease is not None
    return lease.fence


def _begun(db: SessionDB, handle: Handle) -> tuple[Turn, int]:
    """A turn of the oldest queued message, and its fence."""
    fence = _fence(db, handle.conversation_id, "a")
    facts = {"conversation_id": handle.conversation_id, "session_id": handle.session_id}
    work = transact(db.turns.begin_in, **facts, fence=fence, route=ROUTE, claim=1)
    assert work is not None
    return work.turn, fence


def test_a_turn_whose_process_was_lost(run: Callable[..., Any], db: SessionDB, clock: Clock) -> None:
    handle = db.ledger.open(source="telegram", route=ROUTE)
    row = db.inbox.accept(
        platform="telegram", chat_id="42", message_id="7", route=ROUTE, payload={"text": "a long story"}
    ).row
    db.prefixes.begin(handle.conversation_id, b"prefix", reason="first use")
    clock.advance(1.0)
    turn, first = _begun(db, handle)
    draft = transact(db.outbox.draft_in, _reply(turn_id=turn.id, trace_id=row.trace_id))
    transact(db.outbox.progress_in, draft, platform_ids=["41"])
    clock.advance(31.5)
    second = _fence(db, handle.conversation_id, "b")
    transact(db.turns.resume_in, turn.id, fence=second)
    clock.advance(0.25)
    transact(db.turns.commit_in, turn.id, fence=second, reply=_reply())
    assert run("trace", "last").out.endswith(
        ".750  outbox → telegram    edited message 41 · pending; a running gateway sends it\n"
    )
    (owed,) = transact(db.outbox.claim_due_in, sender="b")
    transact(db.outbox.sent_in, owed, platform_ids=["41"])

    lines = [re.sub(r"^\d\d:\d\d:\d\d", "", line) for line in run("trace", "last").out.splitlines()]
    assert lines[0].startswith(f"trace {row.trace_id} · 20")
    digest = db.prefixes.epochs(handle.conversation_id)[0].hash[:4]
    seen = time.strftime("%H:%M:%S", time.localtime(turn.started_at))
    assert lines[1:] == [
        ".000  telegram → inbox     stored, then acknowledged to the platform",
        f".000  turn  fence {first}        prefix {digest}… kept (0 breaks)",
        f".500  ✗ process died       its last sign of life: {seen}.000",
        f".500  turn  fence {second}        recovered from the log, no tool repeated",
        ".750  outbox → telegram    edited message 41 · sent",
    ]
    by_id = run("trace", row.trace_id, "--json").data
    assert by_id["trace_id"] == row.trace_id and by_id["moments"][0]["what"] == "received"


def test_a_message_that_was_not_answered(run: Callable[..., Any], db: SessionDB) -> None:
    row = db.inbox.accept(
        platform="telegram", chat_id="42", message_id="8", route=ROUTE, payload={"text": "\x1b[2Jhello"}
    ).row
    db.inbox.finish([row.id], "dropped", reason="stopped by the person")
    shown = run("trace", "last").out
    assert "dropped · stopped by the person" in shown and "hello" not in shown


def test_an_answer_without_a_delivery_ends_the_trace(run: Callable[..., Any], db: SessionDB, clock: Clock) -> None:
    """As that of a job without a chat, or of a terminal; a silent turn is shown by its message."""
    handle = db.ledger.open(source="telegram", route=ROUTE)
    for number, end in ((1, "answered; there is no chat to send it to"), (2, "silent")):
        db.inbox.accept(
            platform="telegram", chat_id="42", message_id=str(number), route=ROUTE, payload={"text": "say hi"}
        )  # fmt: skip
        turn, fence = _begun(db, handle)
        clock.advance(1.0)
        transact(db.turns.commit_in, turn.id, fence=fence, answered=number == 1)
        db.leases.release_holder("a")
        shown = run("trace", "last").out
        assert shown.endswith(f"{end}\n") and shown.count("answered;") == (number == 1)


def test_what_was_typed_at_a_terminal_came_from_there(run: Callable[..., Any], db: SessionDB) -> None:
    db.inbox.accept(platform="telegram", chat_id="42", message_id=f"{BESIDE}1", route=ROUTE, payload={"text": "hello"})
    shown = run("trace", "last").out
    assert "terminal → inbox" in shown and "acknowledged to the platform" not in shown


def test_a_question_that_nobody_answered_is_told_as_that(run: Callable[..., Any], db: SessionDB) -> None:
    handle = db.ledger.open(source="telegram", route=ROUTE)
    db.inbox.accept(platform="telegram", chat_id="42", message_id="9", route=ROUTE, payload={"text": "go"})
    turn, _ = _begun(db, handle)
    question = db.approvals.ask(
        conversation_id=handle.conversation_id, turn_id=turn.id, call_hash="x", call={"tool": "terminal"},
        requester_id=None, approver_id=None, seconds=60,
    )  # fmt: skip
    db.approvals.revoke(question.id, reason="nobody answered in time")
    told = [line.split("approval")[1].strip() for line in run("trace", "last").out.splitlines() if "approval" in line]
    assert told == ["asked", "nobody answered in time"]


def test_the_time_a_person_took_is_not_the_tools(run: Callable[..., Any], db: SessionDB, clock: Clock) -> None:
    handle = db.ledger.open(source="telegram", route=ROUTE)
    db.inbox.accept(platform="telegram", chat_id="42", message_id="9", route=ROUTE, payload={"text": "go"})
    turn, fence = _begun(db, handle)
    for mark, answer in (("1:0", "once"), ("1:1", "session")):
        transact(db.effects.start_in, turn.id, mark, tool="terminal", fence=fence)
        clock.advance(0.25)
        question = db.approvals.ask(
            conversation_id=handle.conversation_id, turn_id=turn.id, call_hash=mark,
            call={"text": "rm -r canary", "mark": mark}, requester_id="owner", approver_id="owner", seconds=600,
        )  # fmt: skip
        clock.advance(12)
        db.approvals.decide(question.id, answer, approver_id="owner")
        clock.advance(0.5)
        transact(db.effects.finish_in, turn.id, mark, fence=fence)
    shown = run("trace", "last").out
    assert re.findall(r"(?:tool|approval) .*", shown) == [
        "approval             asked",
        "approval             granted · waited for you 12.0 s",
        "tool  terminal       done in 750 ms",
        "approval             asked",
        "approval             granted · waited for you 12.0 s",
        "tool  terminal       done in 750 ms",
    ]
    clock.advance(3_600)
    db.approvals.revoke(question.id, reason="taken back")
    lines = re.findall(r"(?:tool|approval) .*", run("trace", "last").out)
    assert lines[1].endswith("waited for you 12.0 s") and lines[2].endswith("done in 750 ms")
    assert lines[-1] == "approval             taken back", "leave that was taken back has lost when it was given"
    told = run("trace", "last", "--json").data["moments"]
    assert {one["detail"]["effect"] for one in told if one["where"] == "approval"} == {"1:0", "1:1"}
    assert "canary" not in str(told)


def test_a_question_that_lapsed_waited_until_then(run: Callable[..., Any], db: SessionDB, clock: Clock) -> None:
    handle = db.ledger.open(source="telegram", route=ROUTE)
    db.inbox.accept(platform="telegram", chat_id="42", message_id="9", route=ROUTE, payload={"text": "go"})
    turn, fence = _begun(db, handle)
    transact(db.effects.start_in, turn.id, "1:0", tool="terminal", fence=fence)
    db.approvals.ask(
        conversation_id=handle.conversation_id, turn_id=turn.id, call_hash="x", call={"mark": "1:0"},
        requester_id=None, approver_id=None, seconds=5,
    )  # fmt: skip
    clock.advance(5.25)
    transact(db.effects.finish_in, turn.id, "1:0", fence=fence)
    assert "done in 250 ms" in run("trace", "last").out, "nobody has looked yet whether it lapsed"
    clock.advance(900)
    db.approvals.lapse()
    shown = run("trace", "last").out
    assert "nobody answered in time · waited for you 5.0 s" in shown and "done in 250 ms" in shown


def test_the_last_of_a_home_without_messages_is_the_newest_turn(run: Callable[..., Any], home: Path) -> None:
    assert run("chat", "-q", "hello", "--model", "demo").code == 0
    assert "turn  fence 1" in run("trace", "last").out
    assert '"model":"demo"' in run("trace", "last", "--request", "1").out


def test_there_is_none(run: Callable[..., Any], db: SessionDB) -> None:
    assert run("trace", "last").err.startswith("hermes: no message has come in yet")
    assert "there is no trace nothing" in run("trace", "nothing").err


def _own(db: SessionDB, message_id: str, about: dict[str, Any]) -> None:
    person = db.people.ensure(platform="telegram", native_id="42", display_name="Ada").id
    address = Address(
        platform="telegram", account="", chat_id="42", route=ROUTE, person_id=person, source={"platform": "telegram"}
    )
    transact(db.inbox.accept_own_in, address, message_id=message_id, text="eat", about=about)


def test_a_row_of_hermes_itself_says_where_it_came_from(run: Callable[..., Any], db: SessionDB) -> None:
    for kind, line in {
        "job:1:2": "job → inbox          stored when it was due, for telegram",
        "process:p1": "process → inbox      its end, stored, for telegram",
        "children:t:c": "delegation → inbox   the results of the delegated work, stored, for telegram",
    }.items():
        _own(db, f"hermes:{kind}", {"kind": kind.split(":")[0]})
        shown = run("trace", "last").out
        assert line in shown and "acknowledged" not in shown
    asked = run("trace", "last", "--request", "1")
    assert asked.code == 1 and asked.err.startswith("hermes: no model was asked for trace ")
    assert "there were no turns yet" in run("turns", "show", "last").err
    _own(db, "hermes:child:c1", {"kind": "child"})
    assert "delegation → inbox   the results" in run("trace", "last").out, "a child's task is not the newest message"


def test_a_turn_is_found_by_its_id_its_beginning_and_as_the_last(run: Callable[..., Any], db: SessionDB) -> None:
    handle = db.ledger.open(source="telegram", route=ROUTE)
    row = db.inbox.accept(platform="telegram", chat_id="42", message_id="7", route=ROUTE, payload={"text": "hi"}).row
    turn, _ = _begun(db, handle)
    by_trace = run("trace", row.trace_id).out
    assert by_trace and all(run("trace", one).out == by_trace for one in (turn.id, turn.id[:14], "last"))
    for one in (turn.id, turn.id[:14], "last"):
        assert run("turns", "show", one, "--json").data["turn_id"] == turn.id
    assert run("turns", "show", "turn_f" if turn.id[5] != "f" else "turn_0").code == 1


def test_secrets_in_reasons_and_errors_are_covered(
    run: Callable[..., Any], db: SessionDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEMO_API_KEY", "q7/Zt+ne-4Rk")
    handle = db.ledger.open(source="telegram", route=ROUTE)
    row = db.inbox.accept(platform="telegram", chat_id="42", message_id="7", route=ROUTE, payload={"text": "x"}).row
    turn, fence = _begun(db, handle)
    transact(db.turns.commit_in, turn.id, fence=fence, reply=_reply())
    (owed,) = transact(db.outbox.claim_due_in, sender="b")
    assert transact(db.outbox.close_in, owed, "failed", error="POST /botq7/Zt+ne-4Rk/sendMessage: 404")
    shown = run("trace", row.trace_id)
    assert "POST /bot[secret]/sendMessage" in shown.out and "Zt+ne" not in shown.out
    assert "Zt+ne" not in run("trace", row.trace_id, "--json").out


def test_a_call_whose_process_was_lost_is_not_called_done(run: Callable[..., Any], db: SessionDB, clock: Clock) -> None:
    handle = db.ledger.open(source="telegram", route=ROUTE)
    db.inbox.accept(platform="telegram", chat_id="42", message_id="9", route=ROUTE, payload={"text": "go"})
    turn, first = _begun(db, handle)
    transact(db.effects.start_in, turn.id, "1:0", tool="terminal", fence=first)
    clock.advance(40)
    second = _fence(db, handle.conversation_id, "b")
    transact(db.turns.resume_in, turn.id, fence=second)
    transact(db.effects.finish_in, turn.id, "1:0", fence=second, result=UNKNOWN)
    (line,) = [line for line in run("trace", "last").out.splitlines() if "tool  terminal" in line]
    assert line.endswith("terminal       its process died; the outcome is unknown")


def test_a_message_that_another_ones_turn_took_along_shows_that_turn(run: Callable[..., Any], db: SessionDB) -> None:
    handle = db.ledger.open(source="telegram", route=ROUTE)
    rows = [
        db.inbox.accept(
            platform="telegram", chat_id="42", message_id=str(number), route=ROUTE, payload={"text": "a picture"}
        ).row
        for number in (1, 2)
    ]
    fence = _fence(db, handle.conversation_id, "a")
    facts = {"conversation_id": handle.conversation_id, "session_id": handle.session_id}
    work = transact(db.turns.begin_in, **facts, fence=fence, route=ROUTE, claim=2)
    assert work is not None and {row.id for row in work.inbox} == {row.id for row in rows}
    transact(db.effects.start_in, work.turn.id, "1:0", tool="terminal", fence=fence)
    transact(db.effects.finish_in, work.turn.id, "1:0", fence=fence)
    transact(db.turns.commit_in, work.turn.id, fence=fence, reply=_reply())
    (owed,) = transact(db.outbox.claim_due_in, sender="a")
    transact(db.outbox.sent_in, owed, platform_ids=["41"])
    shown = [run("trace", row.trace_id).out.splitlines()[1:] for row in rows]
    assert shown[0][1:] == shown[1][1:]
    assert sorted(line[14:].split()[0] for line in shown[1]) == ["outbox", "telegram", "tool", "turn"]


def test_an_answer_for_a_client_of_the_api_says_whether_it_was_collected(
    run: Callable[..., Any], db: SessionDB
) -> None:
    handle = db.ledger.open(source="api_server", route=ROUTE)
    db.inbox.accept(platform="api_server", chat_id="c", message_id="1", route=ROUTE, payload={"text": "hello"})
    turn, fence = _begun(db, handle)
    reply = NewOutboxItem(dedup_key="answer:1", platform="api_server", chat_id="c", payload={"text": "hi"})
    transact(db.turns.commit_in, turn.id, fence=fence, reply=reply)
    (owed,) = transact(db.outbox.claim_due_in, sender="a")
    transact(db.outbox.sent_in, owed, platform_ids=["not collected: the client had gone"])
    assert run("trace", "last").out.count("outbox → api_server  not collected: the client had gone\n") == 1
