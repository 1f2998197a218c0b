"""Turns that are cut off: by a lost process, a cancelled task, Ctrl-C, a stream that breaks. Nothing is left open,
nothing happens twice, nothing the person said or saw is lost."""

from __future__ import annotations

import asyncio
import json

# A process of this machine that is gone: nobody has this number.
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.hermes_agent.conftest import MakeAgent
from tests.support.processes import GONE

from hermes_agent import AIAgent
from hermes_agent.agent import ConversationBusy
from hermes_state import SessionDB
from hermes_state.errors import StaleFence
from hermes_state.ids import ConversationId
from hermes_state.turns.journal import Journal
from hermes_testing.clock import Clock
from hermes_testing.scripted.model import Hold, ScriptedModel, call, overflow, say


def said(db: SessionDB, agent: Any) -> list[tuple[str, Any]]:
    return [(m["role"], m["content"]) for m in db.get_messages(agent.session_id)]


def left_open(db: SessionDB, agent: AIAgent) -> tuple[int, Any]:
    return db.turns.counts().get("running", 0), db.leases.get(ConversationId(str(agent.session_id)))


async def lost_turn(db: SessionDB, agent: AIAgent, text: str | None, *, ttl: float = 60) -> Journal:
    """What a process leaves that was killed right after it began a turn in the agent's conversation."""
    user = None if text is None else {"role": "user", "content": text}
    journal = await Journal.open(db, str(agent.session_id), holder=GONE, ttl=ttl, user=user)
    assert journal is not None
    return journal


async def lost_in_a_call(db: SessionDB, agent: AIAgent, *commands: str) -> None:
    """The same for one that was killed in the first of the calls of a step."""
    journal = await lost_turn(db, agent, "write it")
    made = [
        {"id": f"c{n}", "type": "function", "function": {"name": "terminal", "arguments": json.dumps({"command": one})}}
        for n, one in enumerate(commands)
    ]
    (step,) = await journal.append({"role": "assistant", "content": "", "tool_calls": made})
    await journal.call_started(f"{step}:0", tool="terminal")


# -- a process was lost ------------------------------------------------------------------------------------


def test_a_turn_another_process_lost_is_answered_before_the_next_one(db: SessionDB, make_agent: MakeAgent) -> None:
    async def go() -> AIAgent:
        with ScriptedModel(say("One."), say("For the lost one."), say("Three.")) as model:
            agent = make_agent(model)
            await agent.arun_conversation("first")
            await lost_turn(db, agent, "from a process that dies")
            assert (await agent.arun_conversation("third"))["final_response"] == "Three."
            return agent

    agent = asyncio.run(go())
    assert [text for _, text in said(db, agent)] == [
        "first", "One.", "from a process that dies", "For the lost one.", "third", "Three.",
    ]  # fmt: skip
    assert db.turns.counts() == {"done": 3}
    assert left_open(db, agent) == (0, None)


def test_a_compression_that_was_killed_is_not_answered(db: SessionDB, make_agent: MakeAgent) -> None:
    async def go() -> AIAgent:
        with ScriptedModel(say("One."), say("Two.")) as model:
            agent = make_agent(model)
            await agent.arun_conversation("first")
            await lost_turn(db, agent, None)
            assert await agent.resume_unfinished() is None
            await agent.arun_conversation("second")
            return agent

    agent = asyncio.run(go())
    assert [text for _, text in said(db, agent)] == ["first", "One.", "second", "Two."]
    assert db.turns.counts() == {"cancelled": 1, "done": 2}


def test_an_effect_that_had_begun_is_reported_whatever_was_written_beside_it(
    db: SessionDB, make_agent: MakeAgent
) -> None:
    async def go() -> list[Any]:
        with ScriptedModel(say("One."), say("I will look first.")) as model:
            agent = make_agent(model, yolo=True)
            await agent.arun_conversation("first")
            await lost_in_a_call(db, agent, "touch again")
            db.append_message(str(agent.session_id), "user", "meanwhile, from elsewhere")
            await agent.resume_unfinished()
            return list(json.loads(model.requests[-1].body)["messages"])

    sent = asyncio.run(go())
    (result,) = [m["content"] for m in sent if m["role"] == "tool"]
    assert "its outcome is unknown. It was not repeated" in result


def test_calls_behind_one_whose_outcome_is_unknown_are_not_run(
    db: SessionDB, make_agent: MakeAgent, tmp_path: Path
) -> None:
    async def go() -> list[str]:
        with ScriptedModel(say("One."), say("I will look first.")) as model:
            agent = make_agent(model, yolo=True)
            await agent.arun_conversation("first")
            await lost_in_a_call(db, agent, "touch begun", "touch behind")
            await agent.resume_unfinished()
            return [m["content"] for m in json.loads(model.requests[-1].body)["messages"] if m["role"] == "tool"]

    unknown, behind = asyncio.run(go())
    assert "its outcome is unknown. It was not repeated" in unknown
    assert behind.startswith("Not run: the outcome of a call before it is unknown.")
    assert not list(tmp_path.rglob("be[gh]*"))


def test_an_effect_that_had_begun_is_not_repeated_after_a_compression(
    db: SessionDB, make_agent: MakeAgent, tmp_path: Path
) -> None:
    async def go() -> AIAgent:
        with ScriptedModel(say("One."), say("I will look first.")) as model:
            agent = make_agent(model, yolo=True)
            await agent.arun_conversation("first")
            await lost_in_a_call(db, agent, "touch again")
            rows = db.get_messages(str(agent.session_id))
            db.ledger.rotate(str(agent.session_id), [{k: v for k, v in row.items() if k != "id"} for row in rows])
            await agent.resume_unfinished()
            return agent

    agent = asyncio.run(go())
    assert not (tmp_path / "work" / "again").exists()
    assert any("outcome is unknown" in str(text) for role, text in said(db, agent) if role == "tool")


# -- a task is cancelled -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("state", "outcome"), [("running", "cancelled"), ("done", "done")])
def test_cancelled_at_the_very_moment_its_row_is_written(
    db: SessionDB, make_agent: MakeAgent, state: str, outcome: str
) -> None:
    """The commit has happened and the task has not heard of it: the turn has one end all the same."""

    async def go() -> AIAgent:
        hold = Hold()
        with ScriptedModel(say("Done.", hold=hold)) as model:
            agent = make_agent(model)
            task = asyncio.ensure_future(agent.arun_conversation("go"))
            if state == "done":
                hold.release()
            while not db.turns.counts().get(state):  # noqa: ASYNC110 - the loop must not hear of it first
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            model._steps.clear()
            return agent

    agent = asyncio.run(go())
    assert db.turns.counts() == {outcome: 1}
    assert left_open(db, agent) == (0, None)


def test_a_call_that_was_cancelled_has_a_result_that_says_so(
    db: SessionDB, make_agent: MakeAgent, tmp_path: Path
) -> None:
    async def go() -> list[Any]:
        command = "touch runs; sleep 60"
        steps = (say(calls=[call("terminal", {"command": command}), call("todo")]), say("I will look."))
        with ScriptedModel(*steps) as model:
            agent = make_agent(model, yolo=True)
            sign = agent._setup.workdir / "runs"
            task = asyncio.ensure_future(agent.arun_conversation("wait"))
            async with asyncio.timeout(20):
                while not sign.exists():  # noqa: ASYNC110 - a file has no event
                    await asyncio.sleep(0.01)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await agent.arun_conversation("and now?")
            return list(json.loads(model.requests[-1].body)["messages"])

    first, second = [m["content"] for m in asyncio.run(go()) if m["role"] == "tool"]
    assert "outcome is unknown" in first
    assert second == "The turn ended before this call ran."


def test_ctrl_c_keeps_what_was_shown_and_leaves_nothing_open(db: SessionDB, make_agent: MakeAgent) -> None:
    def press() -> None:
        while not hold.is_reached:
            time.sleep(0.01)
        signal.pthread_kill(main, signal.SIGINT)

    hold, main = Hold(), threading.main_thread().ident or 0
    with ScriptedModel(say("Once upon a time", hold=hold), say("Good.")) as model:
        agent = make_agent(model)
        threading.Thread(target=press, daemon=True).start()
        with pytest.raises(KeyboardInterrupt):
            agent.run_conversation("tell me")
        assert left_open(db, agent) == (0, None)
        assert agent.run_conversation("never mind")["final_response"] == "Good."
    assert [role for role, _ in said(db, agent)][-2:] == ["user", "assistant"]
    assert db.turns.counts() == {"cancelled": 1, "done": 1}


# -- the person stops or adds something -------------------------------------------------------------------------


def test_a_word_that_comes_while_the_end_is_written_is_handed_back(db: SessionDB, make_agent: MakeAgent) -> None:
    """`steer` said that it was taken, so it must not be lost."""

    async def go() -> tuple[list[str], str]:
        taken: list[str] = []
        with ScriptedModel(say("Done.")) as model:
            agent = make_agent(model)
            task = asyncio.ensure_future(agent.arun_conversation("go"))
            while not task.done():
                if agent.steer(word := f"<{len(taken)}>"):
                    taken.append(word)
                await asyncio.sleep(0)
            return taken, (await task).get("pending_steer", "")

    taken, back = asyncio.run(go())
    assert taken
    assert back.split("\n") == taken


def test_a_compression_can_be_stopped_too(db: SessionDB, make_agent: MakeAgent) -> None:
    def summary(request: Any) -> bool:
        return "tools" not in json.loads(request.body)

    async def go() -> None:
        hold = Hold()
        steps = (overflow(), say("## Goal\nNothing.", hold=hold, when=summary), say("Good."))
        with ScriptedModel(*steps) as model:
            agent = make_agent(model, session_id=db.ledger.open(source="cli").session_id)
            for i in range(40):
                db.append_message(agent.session_id, "user", f"number {i} " + "word " * 400)
                db.append_message(agent.session_id, "assistant", f"heard {i}")
            task = asyncio.ensure_future(agent.arun_conversation("go on"))
            await hold.reached()
            agent.interrupt()
            result = await asyncio.wait_for(task, 5)
            assert result["interrupted"]
            assert left_open(db, agent) == (0, None)
            assert (await agent.arun_conversation("again"))["final_response"] == "Good."

    asyncio.run(go())


def _runs_out(db: SessionDB, conversation: ConversationId) -> float:
    lease = db.leases.get(conversation)
    return 0.0 if lease is None else lease.expires_at


def test_a_slow_compression_keeps_its_conversation(db: SessionDB, make_agent: MakeAgent, clock: Clock) -> None:
    async def go() -> None:
        hold = Hold()
        with ScriptedModel(say("## Goal\n", "The person counts to forty.", hold=hold)) as model:
            agent = make_agent(model, session_id=db.ledger.open(source="cli").session_id)
            agent._setup = replace(agent._setup, lease_seconds=0.6)
            for i in range(40):
                db.append_message(agent.session_id, "user", f"number {i} " + "word " * 400)
                db.append_message(agent.session_id, "assistant", f"heard {i}")
            task = asyncio.ensure_future(agent.compress())
            await hold.reached()
            conversation = ConversationId(str(agent.session_id))
            for _ in range(4):
                clock.advance(0.4)
                async with asyncio.timeout(10):
                    while _runs_out(db, conversation) < clock() + 0.5:  # noqa: ASYNC110 - a row rings no bell
                        await asyncio.sleep(0.02)
            with pytest.raises(ConversationBusy):
                await make_agent(model, session_id=agent.session_id).arun_conversation("me too")
            hold.release()
            assert await task

    asyncio.run(go())
    assert db.turns.counts() == {"done": 1}


def test_a_turn_whose_conversation_was_taken_over_stops_and_writes_nothing_more(
    db: SessionDB, make_agent: MakeAgent
) -> None:
    async def go() -> AIAgent:
        hold = Hold()
        with ScriptedModel(say("Too late.", hold=hold)) as model:
            agent = make_agent(model, session_id=db.ledger.open(source="cli").session_id)
            agent._setup = replace(agent._setup, lease_seconds=0.3)
            task = asyncio.ensure_future(agent.arun_conversation("hello"))
            await hold.reached()
            lease = db.leases.get(ConversationId(str(agent.session_id)))
            assert lease is not None and db.leases.release(lease)
            assert db.leases.acquire(lease.conversation_id, holder="another process", ttl=60)
            async with asyncio.timeout(10):
                with pytest.raises(StaleFence):
                    await task
            assert not task.cancelling()
            hold.release()
            return agent

    agent = asyncio.run(go())
    assert said(db, agent) == [("user", "hello")]
    assert db.turns.counts() == {"running": 1}  # the other process ends it


# -- the model ----------------------------------------------------------------------------------------------------


def test_a_refused_signature_of_earlier_thinking_is_left_out_and_the_turn_goes_on(
    db: SessionDB, make_agent: MakeAgent, caplog: pytest.LogCaptureFixture
) -> None:
    async def go() -> list[Any]:
        asks = say(reasoning="of the second", calls=[call("todo", {"todos": []})])
        with ScriptedModel(say("One.", reasoning="of the first"), asks, say("Two."), wire="anthropic") as model:
            model.allow_rejections = True
            agent = make_agent(model)
            await agent.arun_conversation("first")
            row = db.get_messages(str(agent.session_id))[-1]
            details = json.dumps([{"type": "thinking", "thinking": "of another host", "signature": "its own"}])
            sql = "UPDATE messages SET reasoning_details = ? WHERE id = ?"
            db.engine.write(lambda conn: conn.run(sql, (details, row["id"])))
            assert (await make_agent(model, session_id=agent.session_id).arun_conversation("second"))["completed"]
            return [(one.rejected is None, [m["content"] for m in one.messages]) for one in model.requests]

    _, (accepted, _), (again, _), (next_step, sent) = asyncio.run(go())
    assert (accepted, again, next_step) == (False, True, True), "one refusal a turn"
    thoughts = [block["thinking"] for content in sent for block in content if block["type"] == "thinking"]
    assert thoughts == ["of the second"], "that of the running turn stays"
    assert "asking again without the thinking of earlier turns" in caplog.text


def test_an_answer_that_broke_off_is_asked_for_again(db: SessionDB, make_agent: MakeAgent, run: Any) -> None:
    heard: list[str | None] = []
    told: list[str] = []
    broken = say("It was a dark and ", "stormy", breaks="disconnect", break_after=1)
    with ScriptedModel(broken, say("It was night.")) as model:
        agent = make_agent(model)
        agent.status_callback = lambda kind, text: told.append(text)
        result = run(agent.arun_conversation("tell me", stream_callback=heard.append))
        assert result["final_response"] == "It was night."
        assert said(db, agent) == [("user", "tell me"), ("assistant", "It was night.")]
    assert heard == ["It was a dark and ", None, "It was night."]
    assert any("trying again" in text for text in told)


def test_what_was_shown_of_an_answer_that_broke_off_for_good_stays(
    db: SessionDB, make_agent: MakeAgent, run: Any, quiet_home: Path
) -> None:
    with (quiet_home / "config.yaml").open("a") as settings:
        settings.write("agent: {api_max_retries: 0}\n")
    shown: list[str] = []
    broken = say("It was a dark and ", "stormy", breaks="disconnect", break_after=1)
    with ScriptedModel(broken, say("Sorry.")) as model:
        agent = make_agent(model)
        result = run(agent.arun_conversation("tell me", stream_callback=shown.append))
        assert result["failed"]
        assert said(db, agent) == [("user", "tell me"), ("assistant", "".join(shown).strip())]
        assert run(agent.arun_conversation("what?"))["final_response"] == "Sorry."
    assert db.prefixes.break_count() == 0
