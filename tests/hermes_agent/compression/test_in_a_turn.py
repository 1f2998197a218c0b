"""What the contract says of compression inside turns (state-and-gateway §10), as far as it is the agent's part."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from hermes_agent import AIAgent
from hermes_agent.agent import ConversationBusy
from hermes_agent.compression import summary
from hermes_config import config as configuration
from hermes_state import SessionDB
from hermes_testing.scripted.model import Hold, ScriptedModel, ScriptedRequest, always, fail, overflow, say

GOOD = "## Goal\nThe person counts lamps."


def aside(request: ScriptedRequest) -> bool:
    return "tools" not in request.json


def chatting(request: ScriptedRequest) -> bool:
    return "tools" in request.json


@pytest.fixture
def make(db: SessionDB, quiet_home: Path, tmp_path: Path) -> Any:
    """`make(model)`: an agent whose conversation is nearly too long for the model, on a store of either engine."""
    work = tmp_path / "work"
    work.mkdir()

    def agent(model: ScriptedModel, *, facts: int = 30, window: int = 12_000) -> AIAgent:
        session = db.ledger.open(source="cli").session_id
        for n in range(facts):
            db.append_message(session, "user", f"Fact {n}. " + "Some more words. " * 100)
            db.append_message(session, "assistant", "Noted.")
        endpoint = model.endpoint(context_length=window)
        return AIAgent(
            session_db=db, config=configuration.load(quiet_home), endpoint=endpoint, session_id=session, workdir=work
        )

    return agent


def contents(db: SessionDB, session_id: Any) -> list[Any]:
    return [message["content"] for message in db.get_messages(session_id)]


def test_a_turn_that_was_compressed_and_then_failed_names_the_new_segment(db: SessionDB, make: Any, run: Any) -> None:
    with ScriptedModel(say(GOOD, when=aside), fail(400, when=chatting), allow_rejections=True) as model:
        agent = make(model)
        old = agent.session_id
        result = run(agent.arun_conversation("and now?"))
    assert result["failed"]
    assert result["session_id"] == agent.session_id == db.get_compression_tip(old) != old
    assert contents(db, agent.session_id)[-1] == "and now?"  # the message stays


def test_two_agents_of_one_conversation_make_one_child_and_others_are_not_touched(
    db: SessionDB, make: Any, run: Any
) -> None:
    hold = Hold()
    with ScriptedModel(say(GOOD, when=aside, hold=hold), always(say("Fine.", when=chatting))) as model:
        first, other = make(model), make(model, facts=2)
        second = AIAgent(session_db=db, endpoint=model.endpoint(), session_id=first.session_id)
        old = first.session_id

        async def together() -> Any:
            compressing = asyncio.create_task(first.compress())
            await hold.reached()
            apart = await other.arun_conversation("how are you?")
            with pytest.raises(ConversationBusy):
                await second.compress()
            hold.release()
            assert await compressing
            return apart

        assert run(together())["completed"]
    assert len(db.get_compression_lineage(old)) == 2


def test_a_request_that_never_fits_is_given_up_and_says_so(db: SessionDB, make: Any, run: Any) -> None:
    with ScriptedModel(always(say(GOOD, when=aside)), always(overflow(when=chatting))) as model:
        agent = make(model, facts=60, window=128_000)
        result = run(agent.arun_conversation("and now?"))
        asked = [aside(request) for request in model.requests]
    assert (result["failed"], result["compression_exhausted"]) == (True, True)
    assert asked.count(True) <= 2
    assert asked.count(False) <= 4
    assert contents(db, agent.session_id)[-1] == "and now?"


def test_a_request_that_did_not_fit_is_made_smaller_and_answered(db: SessionDB, make: Any, run: Any) -> None:
    steps = (overflow(when=chatting), say(GOOD, when=aside), say("Here I am.", when=chatting))
    with ScriptedModel(*steps) as model:
        agent = make(model, facts=60, window=128_000)
        result = run(agent.arun_conversation("and now?"))
        sizes = [len(request.body) for request in model.requests if chatting(request)]
    assert result["final_response"] == "Here I am."
    assert sizes[1] < sizes[0] * 0.75
    assert contents(db, agent.session_id)[-2:] == ["and now?", "Here I am."]


def test_a_summariser_that_refuses_the_key_drops_nothing_and_the_person_is_told(
    db: SessionDB, make: Any, run: Any
) -> None:
    with ScriptedModel(fail(401, when=aside), say("Fine.", when=chatting), allow_rejections=True) as model:
        agent = make(model, facts=12)
        old, told = agent.session_id, []
        agent.status_callback = lambda kind, text: told.append((kind, text))
        result = run(agent.arun_conversation("and now? " + "Some more words. " * 600))
    assert result["completed"]
    assert agent.session_id == old and len(contents(db, old)) == 26
    assert any(kind == "warn" and "nothing was left out" in text for kind, text in told)


def test_a_summary_made_without_a_model_is_told(db: SessionDB, make: Any, run: Any) -> None:
    with ScriptedModel(always(say("", when=aside))) as model:
        agent, told = make(model), []
        agent.status_callback = lambda kind, text: told.append(text)
        assert run(agent.compress())
    assert any("No summary could be made (the summary was not usable" in text for text in told)
    assert "/uncompress" in agent.compressed_words() and "missing" in agent.compressed_words()


def test_an_agent_says_that_it_compresses(db: SessionDB, make: Any) -> None:
    async def go() -> list[bool]:
        hold = Hold()
        with ScriptedModel(say(GOOD, when=aside, hold=hold)) as model:
            agent = make(model)
            found = [agent.compressing]
            task = asyncio.ensure_future(agent.compress())
            await hold.reached()
            found.append(agent.compressing)
            hold.release()
            assert await task
            return [*found, agent.compressing]

    assert asyncio.run(go()) == [False, True, False]


def test_a_summariser_that_is_busy_is_asked_again(db: SessionDB, make: Any, run: Any) -> None:
    busy = fail(429, headers={"retry-after-ms": "300"}, when=aside)
    with ScriptedModel(busy, busy, say(GOOD, when=aside)) as model:
        agent, told = make(model), []
        agent.status_callback = lambda kind, text: told.append(text)
        assert run(agent.compress())
    assert any(GOOD in str(text) for text in contents(db, agent.session_id))
    assert "is a summary now" in agent.compressed_words()


def test_a_summariser_that_stays_busy_drops_nothing(db: SessionDB, make: Any, run: Any) -> None:
    with ScriptedModel(always(fail(429, headers={"retry-after-ms": "10"}, when=aside))) as model:
        agent, told = make(model), []
        old = agent.session_id
        agent.status_callback = lambda kind, text: told.append(text)
        assert not run(agent.compress())
        assert model.received == 4
    assert agent.session_id == old
    assert any("nothing was left out" in text for text in told)


def test_a_compression_that_is_stopped_is_cancelled_and_changes_nothing(db: SessionDB, make: Any, run: Any) -> None:
    hold = Hold()
    with ScriptedModel(say(GOOD, when=aside, hold=hold)) as model:
        agent = make(model)
        old = agent.session_id

        async def stopped() -> bool:
            compressing = asyncio.create_task(agent.compress())
            await hold.reached()
            agent.interrupt(reason="the person changed their mind")
            return bool(await asyncio.wait_for(compressing, 10))

        assert not run(stopped())
    assert agent.session_id == old
    assert [(turn.state, turn.reason) for turn in db.turns.list()] == [("cancelled", "the person changed their mind")]


def test_a_compression_that_is_put_down_is_left_for_the_next_process(db: SessionDB, make: Any, run: Any) -> None:
    hold = Hold()
    with ScriptedModel(say(GOOD, when=aside, hold=hold)) as model:
        agent = make(model)

        async def put_down() -> None:
            compressing = asyncio.create_task(agent.compress())
            await hold.reached()
            agent.leave_open()
            await asyncio.wait({compressing}, timeout=10)

        run(put_down())
    assert [turn.state for turn in db.turns.list()] == ["running"]


def test_undone_by_hand_the_agent_goes_on_where_it_was(db: SessionDB, make: Any, run: Any) -> None:
    with ScriptedModel(say(GOOD, when=aside), always(say("Fine.", when=chatting))) as model:
        agent = make(model, facts=8)
        old = agent.session_id
        assert run(agent.compress("lamps"))
        run(agent.arun_conversation("one"))
        db.ledger.uncompress(agent.session_id)
        result = run(agent.arun_conversation("two"))
        last = model.requests[-1].body.decode()
    assert result["session_id"] == agent.session_id == old
    assert contents(db, old)[-4:] == ["one", "Fine.", "two", "Fine."]
    assert "Fact 3." in last and summary.PREFIX not in last
