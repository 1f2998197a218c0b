"""What a gateway finds when it starts: messages from long ago, queued ones, cut-off commands, turns left behind."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.engine import ROUTE, Start, answers, starter, told, user_texts
from tests.support.processes import GONE

from gateway.inbound import lanes
from gateway.inbound.recovery import Recovery
from hermes_agent import process_identity
from hermes_state import SessionDB
from hermes_state.ids import PersonId, SessionKey
from hermes_state.people import media_files
from hermes_state.storage.writer import queued
from hermes_state.turns.inbox import InboxRow
from hermes_state.turns.journal import Journal
from hermes_state.turns.outbox import NewOutboxItem
from hermes_testing.clock import Clock
from hermes_testing.memory_platform import PretendAdapter
from hermes_testing.scripted.model import Hold, ScriptedModel, always, say

HOUR = 3_600.0


@pytest.fixture
def gateway(db: SessionDB, home: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    monkeypatch.setattr(lanes, "_STALE_SECONDS", 0.1)
    return starter(db, home)


def accept(db: SessionDB, text: str, number: int, *, at: float, person: str = "42") -> InboxRow:
    """As a gateway that was lost a moment later had stored it."""
    source = PretendAdapter().source(person).to_dict()
    payload = {"text": text, "type": "command" if text.startswith("/") else "text", "source": source, "at": at}
    return db.inbox.accept(
        platform="telegram", chat_id=person, message_id=f"m{number}", payload=payload,
        route=SessionKey(f"agent:main:telegram:dm:{person}"), person_id=PersonId("owner"),
    ).row  # fmt: skip


def test_old_messages_are_told_of_once_and_answered_on_request(gateway: Start, db: SessionDB, clock: Clock) -> None:
    async def go() -> None:
        accept(db, "one", 1, at=clock() - 3 * HOUR)
        accept(db, "/new", 2, at=clock() - 3 * HOUR)
        accept(db, "two", 3, at=clock() - 2 * HOUR)
        with ScriptedModel(always(say("ok"))) as model:
            for _ in range(2):  # a restart changes nothing and tells nothing again
                async with gateway(model) as here:
                    await here.quiet()
                assert here.outcomes() == {"m1": "queued", "m2": "dropped", "m3": "queued"}
            (notice,) = told(here, "stale")
            assert "2 messages" in notice and "/catchup" in notice
            assert told(here, "old_command") == [
                "I was offline when you sent /new, and did not run it. Send /new again if you still need it."
            ]
            async with gateway(model) as here:
                await here.chat.say("fresh", at=clock())
                await here.quiet()
                await here.chat.say("/catchup", at=clock())
                await here.quiet()
            assert set(here.outcomes().values()) == {"answered", "dropped"}
            assert user_texts(db) == ["fresh", "one", "two"]

    asyncio.run(go())


def test_what_a_platform_kept_for_us_for_hours_is_held_too(gateway: Start, clock: Clock) -> None:
    async def go() -> None:
        with ScriptedModel(always(say("ok"))) as model:
            async with gateway(model) as here:
                for number in range(3):
                    await here.chat.say(f"old {number}", at=clock() - 5 * HOUR)
                await here.chat.say("/stop", at=clock() - 5 * HOUR)
                await here.until(lambda: told(here, "stale"))
                await here.chat.say("new", at=clock())
                await here.quiet()
                assert answers(here) == ["ok"]
                assert "3 messages" in told(here, "stale")[0]
                assert "/stop" in told(here, "old_command")[0]
                states = list(here.outcomes().values())
                assert (states.count("queued"), states.count("dropped"), states.count("answered")) == (3, 1, 1)

    asyncio.run(go())


def test_queued_messages_of_a_lost_process_are_answered_in_order(gateway: Start, db: SessionDB, clock: Clock) -> None:
    async def go() -> None:
        for number in range(1, 8):
            accept(db, f"number {number}", number, at=clock())
        with ScriptedModel(always(say("ok"))) as model:
            async with gateway(model) as here:
                await here.quiet()
            assert user_texts(db) == [f"number {number}" for number in range(1, 8)]
            assert set(here.outcomes().values()) == {"answered"}

    asyncio.run(go())


def test_a_command_that_was_cut_off_is_reported_and_never_run_again(
    gateway: Start, db: SessionDB, clock: Clock
) -> None:
    async def go() -> None:
        row = accept(db, "/again", 1, at=clock())
        await queued(db.engine, lambda conn: db.inbox.take_command_in(conn, row.id))
        with ScriptedModel() as model:
            for _ in range(2):
                async with gateway(model) as here:
                    await here.quiet()
                assert here.parts.lanes._commands.ran == []  # type: ignore[attr-defined]
            assert here.outcomes() == {"m1": "error"}
            (said,) = told(here, "cut_off")
            assert "/again" in said and "do not know" in said

    asyncio.run(go())


def test_a_command_whose_turn_is_recovered_is_not_reported(gateway: Start, db: SessionDB, clock: Clock) -> None:
    async def go() -> None:
        with ScriptedModel(say("one"), say("Ten loaves.")) as model:
            async with gateway(model) as here:
                await here.chat.say("first", at=clock())
                await here.quiet()
                session = str(here.parts.services.store.peek_session_id(ROUTE))
            row = accept(db, "/bread ten loaves", 2, at=clock())
            await queued(db.engine, lambda conn: db.inbox.take_command_in(conn, row.id))
            user = {"role": "user", "content": "ten loaves"}
            journal = Journal.open(db, session, holder=GONE, ttl=600, user=user, route=ROUTE, trace_id=row.trace_id)
            assert await journal is not None
            async with gateway(model) as there:
                await there.quiet()
            assert answers(there) == ["Ten loaves."] and told(there, "cut_off") == []
            assert there.outcomes() == {"in-1": "answered", "m2": "answered"}

    asyncio.run(go())


def test_a_compress_that_was_cut_off_is_reported(gateway: Start, db: SessionDB, clock: Clock) -> None:
    async def go() -> None:
        with ScriptedModel(say("one")) as model:
            async with gateway(model) as here:
                await here.chat.say("first", at=clock())
                await here.quiet()
                session = str(here.parts.services.store.peek_session_id(ROUTE))
            row = accept(db, "/compress", 2, at=clock())
            await queued(db.engine, lambda conn: db.inbox.take_command_in(conn, row.id))
            journal = Journal.open(db, session, holder=GONE, ttl=600, route=ROUTE, trace_id=row.trace_id)
            assert await journal is not None
            async with gateway(model) as there:
                await there.quiet()
            assert len(told(there, "cut_off")) == 1
            assert there.outcomes() == {"in-1": "answered", "m2": "error"}

    asyncio.run(go())


def test_a_command_that_another_gateway_runs_is_left_to_it(gateway: Start, db: SessionDB, clock: Clock) -> None:
    async def go() -> None:
        alive, lost = accept(db, "/again", 1, at=clock()), accept(db, "/again", 2, at=clock())
        for row, holder in ((alive, process_identity.new_holder()), (lost, GONE)):
            await queued(db.engine, partial(db.inbox.take_command_in, row_id=row.id, holder=holder))
        with ScriptedModel() as model:
            async with gateway(model) as here:
                await here.quiet()
            assert here.outcomes() == {"m1": "claimed", "m2": "error"}
            clock.advance(3_600)
            async with gateway(model) as here:
                await here.quiet()
            assert here.outcomes() == {"m1": "error", "m2": "error"}, "nobody runs a command for an hour"

    asyncio.run(go())


def test_a_turn_left_behind_comes_before_what_waits(gateway: Start, db: SessionDB, clock: Clock) -> None:
    async def go() -> None:
        with ScriptedModel(say("one"), say("two"), say("three")) as model:
            async with gateway(model) as here:
                await here.chat.say("first", at=clock())
                await here.quiet()
                session = str(here.parts.services.store.peek_session_id(ROUTE))
            row = accept(db, "second", 2, at=clock())
            lost: Any = await Journal.open(
                db, session, holder=GONE, ttl=600, user={"role": "user", "content": "second"}, route=ROUTE,
                claim=(row.id,),
            )  # fmt: skip
            accept(db, "third", 3, at=clock())
            async with gateway(model) as there:
                await there.quiet()
            assert answers(there) == ["two", "three"]
            assert user_texts(db) == ["first", "second", "third"]
            assert there.outcomes() == {"in-1": "answered", "m2": "answered", "m3": "answered"}
            turn = db.turns.get(lost.turn_id)
            assert turn is not None and (turn.state, turn.attempt) == ("done", 2)

    asyncio.run(go())


@pytest.mark.parametrize("sent", [False, True])
def test_a_file_whose_process_was_lost_is_sent_once(
    gateway: Start, db: SessionDB, clock: Clock, home: Path, sent: bool
) -> None:
    """Whether the process was lost before it stored the file for the chat or after."""
    made = {"name": "send_file", "arguments": json.dumps({"path": "plan.txt"})}

    async def go() -> None:
        with ScriptedModel(say("one"), say("There it is.")) as model:
            async with gateway(model) as here:
                await here.chat.say("first", at=clock())
                await here.quiet()
                session = str(here.parts.services.store.peek_session_id(ROUTE))
            (home / "workspace").mkdir(exist_ok=True)
            (home / "workspace" / "plan.txt").write_text("a plan")
            row = accept(db, "the plan, please", 2, at=clock())
            user = {"role": "user", "content": "the plan, please"}
            lost: Any = await Journal.open(db, session, holder=GONE, ttl=600, user=user, route=ROUTE, claim=(row.id,))
            step = {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"id": "c1", "type": "function", "function": made}],
            }
            (number,) = await lost.append(step)
            await lost.call_started(f"{number}:0", tool="send_file")
            if sent:
                kept = media_files.keep_bytes(home, b"a plan", ending=".txt")
                files = [{"path": str(kept.path), "name": "plan.txt", "caption": ""}]
                db.outbox.enqueue(
                    NewOutboxItem(
                        dedup_key=f"file:{lost.turn_id}:c1", platform="telegram", chat_id="42",
                        payload={"text": "", "kind": "file", "files": files}, turn_id=lost.turn_id,
                    )
                )  # fmt: skip
            async with gateway(model) as there:
                await there.quiet()
                assert [one.state for one in db.outbox.list() if one.payload.get("kind") == "file"] == ["sent"]
            assert "on its way" in model.requests[1].json["messages"][-1]["content"]

    asyncio.run(go())


def test_an_edit_of_a_message_whose_turn_is_recovered_is_read(gateway: Start, db: SessionDB, clock: Clock) -> None:
    async def go() -> None:
        hold = Hold()
        with ScriptedModel(say("hello"), say("never", hold=hold), say("to the new text")) as model:
            async with gateway(model) as here:
                await here.chat.say("first", at=clock())
                await here.quiet()
                session = str(here.parts.services.store.peek_session_id(ROUTE))
            row = accept(db, "second", 2, at=clock())
            await Journal.open(
                db, session, holder=GONE, ttl=600, user={"role": "user", "content": "second"}, route=ROUTE,
                claim=(row.id,),
            )  # fmt: skip
            async with gateway(model) as there:
                await hold.reached()
                await there.chat.say("second, better", message_id="m2", version=1, at=clock())
                await there.quiet()
            assert there.outcomes() == {"in-1": "answered", "m2": "dropped", "m2.1": "answered"}
            assert answers(there) == ["to the new text"]
            assert user_texts(db) == ["first", "second", "second, better"]

    asyncio.run(go())


def test_a_turn_that_is_stopped_while_it_waits_to_be_recovered_does_not_go_on(
    gateway: Start, db: SessionDB, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "_STOP_SECONDS", 0.1)

    async def go() -> None:
        hold = Hold()
        with ScriptedModel(say("hello"), say("done", hold=hold), say("fresh")) as model:
            async with gateway(model) as here:
                await here.chat.say("first", at=clock())
                await here.quiet()
                session = str(here.parts.services.store.peek_session_id(ROUTE))
            row = accept(db, "second", 2, at=clock())
            lost: Any = await Journal.open(
                db, session, holder=GONE, ttl=600, user={"role": "user", "content": "second"}, route=ROUTE,
                claim=(row.id,),
            )  # fmt: skip
            there = gateway(model, max_concurrent_sessions=1)
            accept(db, "of somebody else", 3, at=clock(), person="7")
            abandoned = Recovery.abandoned
            monkeypatch.setattr(Recovery, "abandoned", lambda self: ())  # the other one takes the only place first
            async with there:
                await hold.reached()
                monkeypatch.setattr(Recovery, "abandoned", abandoned)
                await there.parts.lanes.recover()
                await there.until(lambda: there.parts.lanes.busy(ROUTE))
                await there.chat.say("/stop", message_id="m4", at=clock())
                await there.until(lambda: any("stopped True" in text for text in there.chat.chat()))
                hold.release()
                await there.until(lambda: db.turns.get(lost.turn_id).state == "cancelled")  # type: ignore[union-attr]
                assert await there.parts.lanes.recover() == 0
                await there.chat.say("third", message_id="m5", at=clock())
                await there.quiet()
            assert there.outcomes()["m2"] == "dropped"
            assert there.chat.chat("7") == ["done"]
            assert [text for text in answers(there) if "stopped" not in text] == ["fresh"]

    asyncio.run(go())


def test_an_edit_that_was_stored_and_not_read_stands_in_its_place(gateway: Start, db: SessionDB, clock: Clock) -> None:
    async def go() -> None:
        accept(db, "one", 1, at=clock())
        accept(db, "two", 2, at=clock())
        accept(db, "three", 3, at=clock())
        source = PretendAdapter().source("42").to_dict()
        await db.inbox.aaccept(
            platform="telegram", chat_id="42", message_id="m2", version=1, route=ROUTE, person_id=PersonId("owner"),
            payload={"text": "two, better", "type": "text", "source": source, "at": clock()},
        )  # fmt: skip
        with ScriptedModel(always(say("ok"))) as model:
            async with gateway(model) as here:
                await here.quiet()
        assert user_texts(db) == ["one", "two, better", "three"]

    asyncio.run(go())


def test_a_turn_left_behind_long_ago_is_not_gone_on_with_and_its_chat_is_told(
    gateway: Start, db: SessionDB, clock: Clock
) -> None:
    async def go() -> None:
        with ScriptedModel(say("one"), say("two, at last")) as model:
            async with gateway(model) as here:
                await here.chat.say("first", at=clock())
                await here.quiet()
                session = str(here.parts.services.store.peek_session_id(ROUTE))
            row = accept(db, "second", 2, at=clock())
            lost: Any = await Journal.open(
                db, session, holder=GONE, ttl=600, user={"role": "user", "content": "second"}, route=ROUTE,
                claim=(row.id,),
            )  # fmt: skip
            clock.advance(2 * HOUR)
            async with gateway(model, adapter=here.chat) as there:
                await there.quiet()
            assert answers(there) == ["one"] and len(model.requests) == 1
            (notice,) = told(there, "old_turn")
            assert "2h ago" in notice and "/catchup" in notice
            turn = db.turns.get(lost.turn_id)
            assert turn is not None and turn.state == "waiting"
            async with gateway(model, adapter=there.chat) as again:
                await again.quiet()
                assert len(model.requests) == 1, "another start does not touch it"
                await again.chat.say("/catchup", at=clock())
                await again.until(lambda: "two, at last" in again.chat.chat())
                await again.quiet()
            assert db.turns.get(lost.turn_id).state == "done"  # type: ignore[union-attr]

    asyncio.run(go())
