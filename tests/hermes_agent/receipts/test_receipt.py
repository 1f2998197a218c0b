"""Receipts from the store alone, on both engines: turns of Hermes itself, lost calls, unknown deliveries."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from tests.support.stores import transact

from hermes_agent import AIAgent
from hermes_agent.receipts import receipt
from hermes_config import config as configuration
from hermes_state import SessionDB
from hermes_state.ids import ConversationId, SessionKey
from hermes_state.turns.approvals import Exit
from hermes_state.turns.inbox import Address
from hermes_state.turns.journal import Journal
from hermes_state.turns.outbox import NewOutboxItem, answer_key
from hermes_testing.clock import Clock

pytestmark = pytest.mark.both_engines
ROUTE = SessionKey("agent:main:telegram:dm:42")
CALL = {"id": "c1", "type": "function", "function": {"name": "terminal", "arguments": '{"command": "make `x`"}'}}


async def opened(db: SessionDB, **more: Any) -> Journal:
    journal = await Journal.open(db, "s1", holder="h", ttl=60, user={"role": "user", "content": "go"}, **more)
    assert journal is not None
    return journal


def own_row(db: SessionDB) -> None:
    person = db.people.ensure(platform="telegram", native_id="42", display_name="Ada").id
    address = Address(
        platform="telegram", account="", chat_id="42", route=ROUTE, person_id=person, source={"platform": "telegram"}
    )
    about = {"kind": "process", "id": "p1"}
    transact(db.inbox.accept_own_in, address, message_id="hermes:process:p1", text="it ended", about=about)


def test_a_turn_of_hermes_itself_with_a_lost_call_and_an_unknown_delivery(db: SessionDB, clock: Clock) -> None:
    db.create_session("s1", "telegram")
    own_row(db)
    clock.advance(90)

    async def run() -> Journal:
        journal = await opened(db, route=ROUTE, claim=1)
        (row,) = await journal.append({"role": "assistant", "content": "", "tool_calls": [CALL]})
        await journal.call_started(f"{row}:0", tool="terminal")
        db.leases.release(journal.lease)  # as if its process died
        clock.advance(5)
        again = await Journal.resume(db, "s1", holder="h2", ttl=60)
        assert again is not None
        reply = NewOutboxItem(
            dedup_key=answer_key(again.turn_id), platform="telegram", chat_id="42", sender="me",
            payload={"text": "x", "kind": "answer"},
        )  # fmt: skip
        ended = await again.give_up("given_up", reason="the process was lost 3 times", reply=reply)
        assert ended.reply is not None
        assert transact(db.outbox.close_in, ended.reply, "unknown", error="no answer")
        return again

    turn_id = asyncio.run(run()).turn_id
    turn = receipt.last_turn(db, ConversationId("s1"))
    assert turn is not None and turn.id == turn_id
    made = receipt.receipt_of(db, turn)
    assert (made["own"], made["queued_seconds"]) == ({"kind": "process", "id": "p1"}, 90)
    assert [one["why"] for one in made["attempts"]] == ["the message came", "its process died"]
    assert receipt.short_text(made).splitlines() == [
        "Given up in 5.0 s, for Hermes itself (process): the process was lost 3 times",
        "Model: no calls are recorded.",
        "Ran `` make `x` `` (unknown, in the sandbox)",
        "Recovered: its process died once.",
        "Waited 90 s in the queue.",
        "Nobody knows whether it arrived on telegram",
        f"Details: hermes turns show {turn_id}",
    ]
    item = db.outbox.find(answer_key(turn_id))
    assert item is not None
    for wanted in (turn_id, turn.trace_id, str(item.id)):
        assert receipt.find(db, wanted) == turn
    for wanted in ("turn_nothing", "", "0", "9" * 30, "\x00", "é"):
        with pytest.raises(receipt.NoSuchTurn):
            receipt.find(db, wanted)


def test_a_long_turn_stays_within_a_screen_of_a_phone(db: SessionDB) -> None:
    db.create_session("s1", "telegram")

    async def run() -> None:
        journal = await opened(db)
        for number in range(30):
            name, argument = ("terminal", "command") if number % 2 else ("write_file", "path")
            arguments = f'{{"{argument}": "{"long words " * 40}{number}"}}'
            call = {"id": f"c{number}", "type": "function", "function": {"name": name, "arguments": arguments}}
            await journal.append({"role": "assistant", "content": "", "tool_calls": [call]})
            content = f"it said\n[exit code {number}]"
            await journal.append({"role": "tool", "content": content, "tool_call_id": f"c{number}", "tool_name": name})
        await journal.commit({"role": "assistant", "content": "done"})

    asyncio.run(run())
    turn = receipt.last_turn(db, ConversationId("s1"))
    assert turn is not None
    made = receipt.receipt_of(db, turn)
    lines = receipt.short_text(made).splitlines()
    assert len(lines) <= 12 and all(len(line) <= 110 for line in lines) and len(made["tools"]) == 30
    assert "… and 11 more commands" in lines and len(made["files_written"]) == 15


def test_a_full_receipt_says_what_failed_and_how_the_answer_was_delivered(db: SessionDB) -> None:
    made: dict[str, Any] = dict.fromkeys(("reason", "own", "received_at"))
    tools = [("terminal", "exit code 0")] * 7 + [("web_extract", "done"), ("web_extract", "failed")]
    tools += [("write_file", "failed"), ("write_file", "done"), ("delegate_task", "not run")]
    calls = [{"input_tokens": 1, "outcome": "length"}]
    made |= {
        "turn_id": "turn_1", "state": "done", "started_at": 0.0, "ended_at": 1.0, "origin": "Ada on telegram",
        "queued_seconds": 0.0, "asked_seconds": 5.0, "attempts": [{"why": "its process died"}],
        "tools": [{"name": n, "summary": "x", "outcome": o, "outside": False, "allowed_by": ""} for n, o in tools],
        "files_read": ["a"], "files_written": ["b"], "web_requests": [], "permissions": [], "model_calls": calls,
        "totals": {"calls": 1, "retries": 1, "input_tokens": 1, "output_tokens": 1, "cost_usd": 0.0, "models": ["m"]},
        "delegated": [], "compressions": 0,
        "deliveries": [{"kind": "answer", "state": "sent", "platform": "telegram", "messages": ["8"], "held": "",
                        "streamed": False, "repeated": 0, "attempts": 1, "error": None}],
    }  # fmt: skip
    assert receipt.short_text(made).splitlines()[2:] == [
        "Asked again once after temporary errors.",
        "Ran `x` (exit code 0, in the sandbox)",
        "… and 6 more commands",
        "Used web_extract ×2 (1 failed), write_file ×1 (1 failed), delegate_task ×1 (1 not run)",
        "Read `a`",
        "Wrote `b`",
        "The model's text was cut short by a limit of its length.",
        "Recovered: its process died once.",
        "Delivered on telegram as message 8",
        "Details: hermes turns show turn_1",
    ]


def test_a_message_typed_beside_a_chat_is_from_a_terminal(db: SessionDB, clock: Clock) -> None:
    db.create_session("s1", "telegram")
    person = db.people.ensure(platform="telegram", native_id="42", display_name="Ada").id
    db.inbox.accept(
        platform="telegram", chat_id="42", message_id="beside:1", route=ROUTE, payload={"text": "go"}, person_id=person
    )

    async def run() -> None:
        await (await opened(db, route=ROUTE, claim=1)).commit({"role": "assistant", "content": "done"})
        clock.advance(1)
        await (await opened(db, route=ROUTE)).commit({"role": "assistant", "content": "what /retry asked for"})

    asyncio.run(run())
    by_command, typed = db.turns.last_ended(ConversationId("s1"))
    assert receipt.receipt_of(db, typed)["origin"] == "Ada at a terminal"
    assert receipt.receipt_of(db, by_command)["origin"] == "a command on telegram"


def test_a_command_that_was_refused_before_it_began_was_not_run(db: SessionDB, home: Path) -> None:
    home.mkdir(mode=0o700)
    (home / "config.yaml").write_text("model: demo\ndemo:\n  tokens_per_second: 0\nauto_title: false\n")
    agent = AIAgent(session_db=db, config=configuration.load(home), workdir=Path("/"))
    answer = asyncio.run(agent.arun_conversation("run sleep 0"))["final_response"]
    assert "is too wide for a workspace" in answer
    turn = receipt.last_turn(db, ConversationId(db.get_conversation_root(agent.session_id)))
    assert turn is not None
    assert "Asked for `sleep 0` (not run)" in receipt.short_text(receipt.receipt_of(db, turn)).splitlines()


def a_call(call_id: str, command: str) -> dict[str, Any]:
    arguments = json.dumps({"command": command})
    return {"id": call_id, "type": "function", "function": {"name": "terminal", "arguments": arguments}}


def test_calls_with_the_same_id_and_the_same_command_are_told_apart(db: SessionDB, clock: Clock) -> None:
    """A server that uses one id in every step; and a command that left the sandbox the second time only."""
    db.create_session("s1", "telegram")

    async def run() -> None:
        journal = await opened(db)
        for number in (0, 1):
            (row,) = await journal.append({"role": "assistant", "content": "", "tool_calls": [a_call("toolu_x", "id")]})
            await journal.call_started(f"{row}:0", tool="terminal")
            clock.advance(1)
            if number:
                leaves = Exit(kind="terminal", text="id", workdir="/", opening="no sandbox", digest="d")
                where = {"conversation_id": ConversationId("s1"), "turn_id": journal.turn_id}
                db.approvals.log_exit(leaves, person_id=None, rule="r", **where)
            content = f"[exit code {number}]"
            result = {"role": "tool", "content": content, "tool_call_id": "toolu_x", "tool_name": "terminal"}
            await journal.call_finished(f"{row}:0", result)
            clock.advance(1)
        await journal.commit({"role": "assistant", "content": "done"})

    asyncio.run(run())
    turn = receipt.last_turn(db, ConversationId("s1"))
    assert turn is not None
    lines = receipt.short_text(receipt.receipt_of(db, turn)).splitlines()
    assert "Ran `id` (exit code 0, in the sandbox)" in lines
    assert "Ran `id` (exit code 1, outside the sandbox, allowed by the setting r)" in lines


def test_a_secret_is_covered_wherever_it_stands_in_a_receipt(
    db: SessionDB, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = 'q7"/é\\Zt+ne 4Rk'
    monkeypatch.setenv("DEMO_API_KEY", secret)
    db.create_session("s1", "telegram")
    written = [
        secret, quote(secret), quote(secret, safe=""), base64.b64encode(secret.encode()).decode(),
        base64.b64encode(b"k=" + secret.encode()).decode(), json.dumps(json.dumps(json.dumps(secret))),
    ]  # fmt: skip

    async def run() -> None:
        journal = await opened(db)
        for number, text in enumerate(written):
            await journal.append({"role": "assistant", "content": "", "tool_calls": [a_call(f"c{number}", text)]})
        reply = NewOutboxItem(
            dedup_key="a", platform="telegram", chat_id="42", sender="me", payload={"text": "x", "kind": "answer"}
        )
        ended = await journal.give_up("failed", reason=f"refused: {secret}", reply=reply)
        assert ended.reply is not None
        assert transact(db.outbox.close_in, ended.reply, "failed", error=f"POST /bot{secret}/send")

    asyncio.run(run())
    turn = receipt.last_turn(db, ConversationId("s1"))
    assert turn is not None
    made = receipt.receipt_of(db, turn)
    assert [one["summary"] for one in made["tools"]][:3] == ["[secret]"] * 3
    assert made["reason"] == "refused: [secret]" and made["deliveries"][0]["error"] == "POST /bot[secret]/send"
    shown = json.dumps(made, ensure_ascii=False) + receipt.short_text(made)
    for part in ("Zt", quote(secret)[:8], base64.b64encode(secret.encode()).decode()[:12], "ne 4"):
        assert part not in shown, part
