"""A turn on behalf of a chat: the message, its answer and the delivery that is owed share their transactions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.hermes_agent.conftest import MakeAgent
from tests.support.processes import GONE
from tests.support.stores import transact

from hermes_agent.agent import ConversationBusy
from hermes_agent.context import TurnIdentity
from hermes_agent.turn.request import TurnEnd, TurnRequest
from hermes_state import SessionDB
from hermes_state.errors import NotQueued
from hermes_state.ids import PersonId, SessionKey
from hermes_state.storage import writer
from hermes_state.turns.inbox import InboxRow
from hermes_state.turns.journal import Journal
from hermes_state.turns.outbox import NewOutboxItem
from hermes_state.turns.turns import Work
from hermes_testing.scripted.model import Hold, ScriptedModel, call, fail, say

ROUTE = SessionKey("agent:main:telegram:dm:42")


def accept(db: SessionDB, number: int, text: str = "hello", person: str | None = None) -> InboxRow:
    return db.inbox.accept(
        platform="telegram", chat_id="42", message_id=str(number), route=ROUTE, payload={"text": text},
        person_id=None if person is None else PersonId(person),
    ).row  # fmt: skip


def make_reply(work: Work, ending: TurnEnd) -> NewOutboxItem:
    numbers = ",".join(row.message_id for row in work.inbox)
    return NewOutboxItem(
        dedup_key=f"answer:{work.turn.id}", platform="telegram", chat_id="42", sender="us",
        payload={"text": ending.text or f"error: {ending.facts.get('error')}", "for": numbers, "state": ending.state},
    )  # fmt: skip


def turn_request(*rows: InboxRow, **more: Any) -> TurnRequest:
    return TurnRequest(route=ROUTE, claim=tuple(row.id for row in rows), make_reply=make_reply, **more)


def outcomes(db: SessionDB) -> list[tuple[str, str]]:
    return sorted((row.message_id, row.state) for row in db.inbox.list())


def owed(db: SessionDB) -> list[dict[str, Any]]:
    return [item.payload for item in reversed(db.outbox.list())]


def test_the_answer_is_owed_and_the_message_done_in_one_step(db: SessionDB, make_agent: MakeAgent) -> None:
    async def go() -> dict[str, Any]:
        with ScriptedModel(say("Hi.")) as model:
            return await make_agent(model).arun_conversation("hello", request=turn_request(accept(db, 1)))

    item = asyncio.run(go())["outbox_item"]
    assert (item.state, item.sender, item.attempts, item.payload["text"]) == ("sending", "us", 1, "Hi.")
    assert outcomes(db) == [("1", "answered")]
    assert db.turns.list()[0].route == ROUTE
    assert transact(db.outbox.claim_due_in, sender="somebody else") == (), "it is being sent already"


def test_an_older_item_of_the_chat_goes_first(db: SessionDB, make_agent: MakeAgent) -> None:
    db.outbox.enqueue(NewOutboxItem(dedup_key="older", platform="telegram", chat_id="42", payload={"text": "older"}))

    async def go() -> dict[str, Any]:
        with ScriptedModel(say("Hi.")) as model:
            return await make_agent(model).arun_conversation("hello", request=turn_request(accept(db, 1)))

    assert asyncio.run(go())["outbox_item"].state == "pending"
    assert [item.dedup_key for item in transact(db.outbox.claim_due_in, sender="us")] == ["older"]


def test_a_message_that_waits_no_more_opens_no_turn(db: SessionDB, make_agent: MakeAgent) -> None:
    row = accept(db, 1)
    db.inbox.finish([row.id], "dropped", reason="taken back")

    async def go() -> None:
        with ScriptedModel() as model:
            agent = make_agent(model)
            with pytest.raises(NotQueued):
                await agent.arun_conversation("hello", request=turn_request(row, accept(db, 2)))
            assert db.message_count(agent.session_id) == 0

    asyncio.run(go())
    assert outcomes(db) == [("1", "dropped"), ("2", "queued")]
    assert db.turns.list() == ()


def test_a_failure_is_owed_too(db: SessionDB, make_agent: MakeAgent) -> None:
    async def go() -> dict[str, Any]:
        with ScriptedModel(fail(401)) as model:
            return await make_agent(model, fallbacks=[]).arun_conversation("hello", request=turn_request(accept(db, 1)))

    result = asyncio.run(go())
    assert result["failed"] and result["outbox_item"].payload["state"] == "failed"
    assert result["outbox_item"].payload["text"].startswith("error: ")
    assert outcomes(db) == [("1", "error")]


def test_a_word_in_the_middle_is_the_turns_when_the_model_gets_it(db: SessionDB, make_agent: MakeAgent) -> None:
    async def go() -> dict[str, Any]:
        with ScriptedModel(say(calls=[call("todo", {"todos": []})]), say("Done.")) as model:
            agent = make_agent(model)
            late = accept(db, 2, "and shorter")
            agent.tool_start_callback = lambda *_: agent.steer("and shorter", late.id)
            return await agent.arun_conversation("hello", request=turn_request(accept(db, 1)))

    result = asyncio.run(go())
    assert outcomes(db) == [("1", "answered"), ("2", "answered")]
    assert result["outbox_item"].payload["for"] == "1"
    assert [m["content"] for m in result["messages"] if m["role"] == "user"] == ["hello", "and shorter"]


def test_a_word_that_was_taken_back_is_not_read_with_those_that_were_not(db: SessionDB, make_agent: MakeAgent) -> None:
    async def go() -> dict[str, Any]:
        with ScriptedModel(say(calls=[call("todo", {"todos": []})]), say("Done.")) as model:
            agent = make_agent(model)
            kept, back = accept(db, 2, "and shorter"), accept(db, 3, "and in French")

            def add(*_: object) -> None:
                agent.steer("and shorter", kept.id)
                agent.steer("and in French", back.id)
                agent.steer("typed here")
                db.inbox.finish([back.id], "dropped", reason="/stop")

            agent.tool_start_callback = add
            return await agent.arun_conversation("hello", request=turn_request(accept(db, 1)))

    result = asyncio.run(go())
    assert outcomes(db) == [("1", "answered"), ("2", "answered"), ("3", "dropped")]
    said = [m["content"] for m in result["messages"] if m["role"] == "user"]
    assert said == ["hello", "and shorter\ntyped here"]


def test_a_word_that_came_too_late_stays_in_the_queue(db: SessionDB, make_agent: MakeAgent) -> None:
    async def go() -> dict[str, Any]:
        with ScriptedModel(say("Done.")) as model:
            agent = make_agent(model)
            late = accept(db, 2, "and shorter")
            agent.stream_delta_callback = lambda *_: agent.steer("and shorter", late.id)
            return await agent.arun_conversation("hello", request=turn_request(accept(db, 1)))

    assert "and shorter" in asyncio.run(go())["pending_steer"]
    assert outcomes(db) == [("1", "answered"), ("2", "queued")]


def test_a_word_that_a_stopped_turn_never_showed_the_model_stays_in_the_queue(
    db: SessionDB, make_agent: MakeAgent
) -> None:
    """The turn after it answers it, or the one who stopped drops it: it is not lost with the turn."""

    async def go() -> dict[str, Any]:
        with ScriptedModel(say(calls=[call("todo", {"todos": []})])) as model:
            agent = make_agent(model)
            late = accept(db, 2, "and shorter")

            def add_and_stop(*_: object) -> None:
                agent.steer("and shorter", late.id)
                agent.interrupt()

            agent.tool_start_callback = add_and_stop
            return await agent.arun_conversation("hello", request=turn_request(accept(db, 1)))

    result = asyncio.run(go())
    assert result["interrupted"] and "and shorter" in result["pending_steer"]
    assert outcomes(db) == [("1", "dropped"), ("2", "queued")]
    assert [m["content"] for m in result["messages"] if m["role"] == "user"] == ["hello"]


def test_a_lost_turn_is_answered_for_its_own_messages(db: SessionDB, make_agent: MakeAgent) -> None:
    told: list[tuple[str, ...]] = []

    async def go() -> None:
        with ScriptedModel(say("One."), say("For the lost one."), say("Three.")) as model:
            agent = make_agent(model)
            await agent.arun_conversation("first", request=turn_request(accept(db, 1)))
            lost = accept(db, 2, person="bob")
            journal = await Journal.open(
                db, str(agent.session_id), holder=GONE, ttl=60, route=ROUTE, claim=[lost.id],
                user={"role": "user", "content": "second"},
            )  # fmt: skip
            assert journal is not None
            next_one = turn_request(
                accept(db, 3),
                began=lambda work: told.append(tuple(row.message_id for row in work.inbox)),
                identity=lambda work: TurnIdentity(platform="telegram", message_id=work.inbox[0].message_id),
            )
            await agent.arun_conversation("third", request=next_one)

    asyncio.run(go())
    assert told == [("2",), ("3",)]
    assert [(one["text"], one["for"]) for one in owed(db)] == [
        ("One.", "1"),
        ("For the lost one.", "2"),
        ("Three.", "3"),
    ]
    assert outcomes(db) == [("1", "answered"), ("2", "answered"), ("3", "answered")]


def test_an_abandoned_turn_is_left_for_the_next_process(db: SessionDB, make_agent: MakeAgent) -> None:
    async def go() -> None:
        hold = Hold()
        with ScriptedModel(say("Half", hold=hold), say("Late, but here.")) as model:
            agent = make_agent(model)
            running = asyncio.ensure_future(agent.arun_conversation("hello", request=turn_request(accept(db, 1))))
            await hold.reached()
            agent.abandon()
            running.cancel()
            await asyncio.wait({running})
            assert outcomes(db) == [("1", "claimed")]
            other = make_agent(model, session_id=agent.session_id)
            with pytest.raises(ConversationBusy, match="a chat message is still unanswered here"):
                await other.resume_unfinished()  # it could not say what the chat is owed
            result = await other.resume_unfinished(request=turn_request())
            assert result is not None and result["outbox_item"].payload["for"] == "1"

    asyncio.run(go())
    assert outcomes(db) == [("1", "answered")]


def test_however_often_a_gateway_ends_in_order_the_turn_is_not_given_up_for_it(
    db: SessionDB, make_agent: MakeAgent
) -> None:
    async def put_down(model: ScriptedModel, hold: Hold, session_id: str | None = None) -> str | None:
        agent = make_agent(model, session_id=session_id)
        if session_id is None:
            running = asyncio.ensure_future(agent.arun_conversation("hello", request=turn_request(accept(db, 1))))
        else:
            running = asyncio.ensure_future(agent.resume_unfinished(request=turn_request()))
        await hold.reached()
        agent.abandon()
        running.cancel()
        await asyncio.wait({running})
        return agent.session_id

    async def go() -> None:
        holds = [Hold() for _ in range(db.limits.turn_attempts + 1)]
        with ScriptedModel(*(say("Half", hold=hold) for hold in holds), say("Late, but here.")) as model:
            session_id = None
            for hold in holds:
                session_id = await put_down(model, hold, session_id)
            result = await make_agent(model, session_id=session_id).resume_unfinished(request=turn_request())
            assert result is not None and result["final_response"] == "Late, but here."

    asyncio.run(go())
    assert outcomes(db) == [("1", "answered")]


def test_a_conversation_that_somebody_works_on_leaves_the_message_in_the_queue(
    db: SessionDB, make_agent: MakeAgent
) -> None:
    async def go() -> None:
        with ScriptedModel(say("One.")) as model:
            agent = make_agent(model)
            await agent.arun_conversation("first")
            lease = db.leases.acquire(db.get_conversation_root(agent.session_id), holder="another machine", ttl=60)
            assert lease is not None
            with pytest.raises(ConversationBusy):
                await agent.arun_conversation("second", request=turn_request(accept(db, 1)))

    asyncio.run(go())
    assert outcomes(db) == [("1", "queued")]


def test_a_command_is_taken_once_and_ended_with_its_reply(db: SessionDB) -> None:
    row = accept(db, 1, "/new")
    reply = NewOutboxItem(dedup_key=f"command:{row.id}", platform="telegram", chat_id="42", payload={"text": "Done."})

    async def go() -> None:
        async def queue(fn: Any) -> Any:
            return await writer.queued(db.engine, fn)

        assert await queue(lambda conn: db.inbox.take_command_in(conn, row.id))
        assert not await queue(lambda conn: db.inbox.take_command_in(conn, row.id)), "never twice"
        assert [cut.id for cut in db.inbox.cut_off_commands()] == [row.id]
        item = await queue(lambda conn: db.inbox.end_command_in(conn, row.id, "answered", reply=reply))
        assert item.payload == {"text": "Done."}
        assert await queue(lambda conn: db.inbox.end_command_in(conn, row.id, "error", reply=reply)) is None

    asyncio.run(go())
    assert outcomes(db) == [("1", "answered")]
    assert db.inbox.cut_off_commands() == ()
