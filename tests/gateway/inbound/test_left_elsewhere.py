"""A conversation that several places lead to, and a turn that a lost process left in it: it is answered where it was
asked, whoever writes next."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.engine import ROUTE, Start, starter
from tests.support.gateways import PretendGateway
from tests.support.processes import GONE

from gateway.api.exchange import Exchange
from gateway.config import Platform
from gateway.routes.source import SessionSource
from hermes_agent import AIAgent
from hermes_state import SessionDB
from hermes_state.ids import SessionKey
from hermes_state.turns.journal import Journal
from hermes_testing.clock import Clock
from hermes_testing.memory_platform import PretendAdapter
from hermes_testing.scripted.model import Hold, ScriptedModel, say
from hermes_testing.scripted.steps import Say
from tui_gateway.session import attach

pytestmark = pytest.mark.slow

FOR_A = "only for the first place"
LONG_FOR_A = Say(pieces=tuple(f"{FOR_A}, part {n}. " for n in range(8)), pace=0.1)
"""Long enough to be shown while it is made."""


@pytest.fixture
def gateway(db: SessionDB, home: Path) -> Start:
    return starter(db, home)


async def conversation(here: PretendGateway, *others: SessionSource) -> str:
    """One that the chat 42 has begun and these places lead to as well, as after /resume."""
    await here.chat.say("first", message_id="first")
    await here.quiet()
    store = here.parts.services.store
    session = str(store.peek_session_id(ROUTE))
    for other in others:
        store.lead(other, store.key(other), session)
    return session


async def left(
    db: SessionDB, session: str, source: SessionSource, route: SessionKey, at: float, **more: Any
) -> Journal:
    """What a process leaves that was killed right after it began to answer a message from there."""
    row = db.inbox.accept(
        platform=source.platform.value, chat_id=str(source.chat_id), message_id="lost", route=route,
        person_id=db.inbox.list(limit=1)[0].person_id,
        payload={"text": "the lost question", "type": "text", "source": source.to_dict(), "at": at, **more},
    ).row  # fmt: skip
    user = {"role": "user", "content": "the lost question"}
    journal = await Journal.open(db, session, holder=GONE, ttl=600, user=user, route=route, claim=(row.id,))
    assert journal is not None
    return journal


def places(here: PretendGateway, words: str) -> set[tuple[str, str | None]]:
    """Where these words stand, or stood."""
    return {(one.chat_id, one.thread_id) for one in here.chat.messages if words in one.text}


@pytest.mark.parametrize("edits", [False, True])
@pytest.mark.parametrize("other", [{"chat": "4242"}, {"thread_id": "5"}])
def test_it_is_answered_where_it_was_asked(
    gateway: Start, db: SessionDB, clock: Clock, edits: bool, other: dict[str, str]
) -> None:
    async def go() -> None:
        chat = PretendAdapter(edits=edits)
        there = chat.source("42", **other)
        with ScriptedModel(say("one"), LONG_FOR_A, say("for the second place")) as model:
            async with gateway(model, adapter=chat) as here:
                session = await conversation(here, there)
                await left(db, session, chat.source("42"), ROUTE, clock())
                await chat.receive(chat.event("question", source=there, message_id="next", at=clock()))
                await here.quiet()
                assert places(here, FOR_A) == {("42", None)}
                assert places(here, "for the second place") == {(str(there.chat_id), there.thread_id)}
                assert here.outcomes() == {"first": "answered", "lost": "answered", "next": "answered"}

    asyncio.run(go())


def test_a_request_over_http_is_not_answered_in_a_chat(gateway: Start, db: SessionDB, clock: Clock) -> None:
    async def go() -> None:
        client = SessionSource(platform=Platform.API_SERVER, chat_id="k1/~abc", chat_type="dm", user_id="k1")
        with ScriptedModel(say("one"), LONG_FOR_A, say("for the chat")) as model:
            async with gateway(model, adapter=PretendAdapter(edits=True)) as here:
                session = await conversation(here, client)
                await left(db, session, client, here.parts.services.store.key(client), clock(), digest="d")
                await here.chat.say("question", at=clock())
                await here.until(lambda: "for the chat" in here.chat.chat("42"))
                assert places(here, FOR_A) == set()
                assert db.outbox.list(state="pending")[0].platform == "api_server", "it waits for its client"

    asyncio.run(go())


def test_the_next_message_of_the_same_place_brings_both_answers_at_once(
    gateway: Start, db: SessionDB, clock: Clock
) -> None:
    async def go() -> None:
        with ScriptedModel(say("one"), say(FOR_A), say("two")) as model:
            async with gateway(model, adapter=PretendAdapter(edits=False)) as here:
                session = await conversation(here)
                await left(db, session, here.chat.source("42"), ROUTE, clock())
                await here.chat.say("second", at=clock())
                await here.until(lambda: here.chat.chat("42") == ["one", FOR_A, "two"])

    asyncio.run(go())


def test_what_was_asked_at_a_terminal_is_not_said_in_a_chat(gateway: Start, db: SessionDB, clock: Clock) -> None:
    async def go() -> None:
        with ScriptedModel(say("one"), LONG_FOR_A, say("two")) as model:
            async with gateway(model, adapter=PretendAdapter(edits=True)) as here:
                session = await conversation(here)
                lost = await Journal.open(
                    db, session, holder=GONE, ttl=600, user={"role": "user", "content": "typed at a terminal"}
                )
                assert lost is not None
                await here.chat.say("second", at=clock())
                await here.quiet()
                assert here.chat.chat("42") == ["one", "two"] and places(here, FOR_A) == set()
                answered = db.turns.get(lost.turn_id)
                assert answered is not None and answered.state == "done"

    asyncio.run(go())


def test_a_client_that_reads_along_gets_its_own_answer_alone(gateway: Start, db: SessionDB, clock: Clock) -> None:
    async def go() -> None:
        with ScriptedModel(say("one"), say(FOR_A), say("two")) as model:
            async with gateway(model) as here:
                session = await conversation(here)
                await left(db, session, here.chat.source("42"), ROUTE, clock())
                client = Exchange(streams=True)
                event = here.chat.event("second", at=clock())
                await here.parts.intake.receive(event, adapter=here.chat, watcher=client)
                await here.quiet()
                assert (client.streamed, client.text) == ("two", "two")

    asyncio.run(go())


def test_what_a_command_asked_for_is_answered_where_it_was_typed(gateway: Start, db: SessionDB, clock: Clock) -> None:
    async def go() -> None:
        chat = PretendAdapter()
        there = chat.source("42", chat="4242")
        with ScriptedModel(say("one"), say(FOR_A), say("two")) as model:
            async with gateway(model, adapter=chat) as here:
                session = await conversation(here, there)
                user = {"role": "user", "content": "once more"}
                assert await Journal.open(
                    db, session, holder=GONE, ttl=600, user=user, route=here.parts.services.store.key(there)
                )
                await chat.say("second", at=clock())
                await here.until(lambda: chat.chat("42")[-1:] == ["two"])
                await here.quiet()
                assert chat.chat("4242") == [FOR_A]

    asyncio.run(go())


def test_stop_in_a_place_that_waits_does_not_stop_the_turn_it_waits_for(
    gateway: Start, db: SessionDB, clock: Clock
) -> None:
    async def go() -> None:
        hold, chat = Hold(), PretendAdapter()
        there = chat.source("42", chat="4242")
        with ScriptedModel(say("one"), say(FOR_A, hold=hold)) as model:
            async with gateway(model, adapter=chat) as here:
                session = await conversation(here, there)
                await left(db, session, chat.source("42"), ROUTE, clock())
                await chat.receive(chat.event("question", source=there, message_id="there", at=clock()))
                await hold.reached()
                await chat.receive(chat.event("/stop", source=there, message_id="stop", at=clock()))
                await here.until(lambda: here.outcomes()["there"] == "dropped")
                hold.release()
                await here.quiet()
                assert chat.chat("42")[-1] == FOR_A
                assert here.outcomes()["lost"] == "answered"

    asyncio.run(go())


def test_a_terminal_that_goes_on_with_what_a_command_asked_for_owes_it_to_that_place(
    gateway: Start, db: SessionDB
) -> None:
    async def go() -> None:
        chat = PretendAdapter()
        there = chat.source("42", chat="4242")
        with ScriptedModel(say("one"), say(FOR_A), say("two")) as model:
            async with gateway(model, adapter=chat) as here:
                session = await conversation(here, there)
                route = here.parts.services.store.key(there)
            user = {"role": "user", "content": "once more"}
            assert await Journal.open(db, session, holder=GONE, ttl=600, user=user, route=route)
            agent = AIAgent(session_db=db, session_id=session)
            result = await agent.arun_conversation("at the terminal", request=attach.turn_request(db, session))
            await agent.aclose()
            assert result["final_response"] == "two" and result.get("outbox_item") is None
            (owed,) = db.outbox.list(state="pending")
            assert (owed.chat_id, owed.payload["text"]) == ("4242", FOR_A)

    asyncio.run(go())


def test_a_turn_that_its_own_place_cannot_go_on_with_does_not_keep_others_waiting(
    gateway: Start, db: SessionDB, clock: Clock
) -> None:
    async def go() -> None:
        chat = PretendAdapter()
        there = chat.source("42", chat="4242")
        with ScriptedModel(say("one"), say("two")) as model:
            async with gateway(model, adapter=chat) as here:
                session = await conversation(here, there)
                await left(db, session, chat.source("42"), ROUTE, clock())
                here.parts.services.store.set_model_override(ROUTE, {"model": "gone", "provider": "nowhere"})
                await chat.receive(chat.event("question", source=there, message_id="next", at=clock()))
                await here.until(lambda: chat.chat("4242")[-1:] == ["two"])
                assert "/retry" in chat.chat("42")[-1], "who asked was told"
                assert here.outcomes()["lost"] == "dropped"

    asyncio.run(go())


def test_a_turn_whose_place_is_gone_does_not_keep_others_waiting(gateway: Start, db: SessionDB, clock: Clock) -> None:
    async def go() -> None:
        with ScriptedModel(say("one"), say("two")) as model:
            async with gateway(model) as here:
                session = await conversation(here)
                lost = await Journal.open(
                    db, session, holder=GONE, ttl=600, user={"role": "user", "content": "/retry, say"},
                    route=SessionKey("agent:main:telegram:dm:gone"),
                )  # fmt: skip
                assert lost is not None
                await here.chat.say("second", at=clock())
                await here.until(lambda: here.chat.chat("42")[-1:] == ["two"])

    asyncio.run(go())
