"""What plug-ins can do to a turn, and what they cannot: hold up others, lose words, let a call through by failing."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.hermes_agent.conftest import MakeAgent, Person

from hermes_agent.agent import ConversationBusy
from hermes_agent.approvals.types import Choice
from hermes_state import SessionDB
from hermes_testing.plugins import plugin_home
from hermes_testing.scripted.model import Hold, ScriptedModel, call, fail, say

Plug = Callable[[str], None]
SEEING = "claude-scripted"
"""A model that is known to see."""
PICTURE = {"type": "image_url", "image_url": {"url": "https://example.org/cat.png"}}


@pytest.fixture
def plug(quiet_home: Path) -> Iterator[Plug]:
    """A plug-in from the body of its `register`."""
    with plugin_home(quiet_home) as plugged:

        def load(body: str) -> None:
            lines = "\n".join(f"    {line}" for line in body.strip().splitlines())
            plugged.add("mine", f"import time\n\ndef register(ctx):\n{lines}\n")
            plugged.load("mine")

        yield load


def sent(model: ScriptedModel, at: int) -> list[dict[str, Any]]:
    return list(json.loads(model.requests[at].body)["messages"])


def test_a_hook_that_waits_holds_up_nobody_else(make_agent: MakeAgent, plug: Plug) -> None:
    plug("""
global waits, others, seen
import threading
waits, others, seen = threading.Event(), threading.Event(), []
ctx.register_hook("pre_llm_call", lambda **_: waits.set() or seen.append(others.wait(10)))
""")
    module: Any = sys.modules["hermes_plugins.mine"]

    async def go() -> None:
        with ScriptedModel(say("Done.")) as model:
            task = asyncio.ensure_future(make_agent(model).arun_conversation("go"))
            while not module.waits.is_set():  # noqa: ASYNC110 - set by another thread
                await asyncio.sleep(0.01)
            module.others.set()
            await task

    asyncio.run(go())
    assert module.seen == [True], "the loop went on while the hook waited for it"


@pytest.mark.parametrize(("answer", "runs"), [("once", True), ("deny", False)])
def test_a_plugin_can_have_a_person_asked(
    db: SessionDB, make_agent: MakeAgent, plug: Plug, run: Any, answer: Choice, runs: bool
) -> None:
    plug('ctx.register_hook("pre_tool_call", lambda **_: {"action": "approve", "message": "lists are dear"})')
    person = Person(answer)
    with ScriptedModel(say(calls=[call("todo")]), say("Well.")) as model:
        run(make_agent(model, approver=person).arun_conversation("plan"))
        result = sent(model, 1)[-1]["content"]
    assert ["lists are dear" in question.why for question in person.asked] == [True]
    assert ("was not run" not in result) is runs


def test_without_anybody_to_ask_the_call_is_not_made(make_agent: MakeAgent, plug: Plug, run: Any) -> None:
    plug('ctx.register_hook("pre_tool_call", lambda **_: {"action": "approve"})')
    with ScriptedModel(say(calls=[call("todo")]), say("Well.")) as model:
        run(make_agent(model).arun_conversation("plan"))
        assert "was not run" in sent(model, 1)[-1]["content"]


def test_no_plugin_hears_of_a_message_that_a_busy_conversation_refuses(make_agent: MakeAgent, plug: Plug) -> None:
    plug("""
global heard
heard = []
ctx.register_hook("pre_llm_call", lambda user_message, **_: heard.append(user_message))
""")

    async def go() -> None:
        hold = Hold()
        with ScriptedModel(say("Slow.", hold=hold)) as model:
            agent = make_agent(model)
            task = asyncio.ensure_future(agent.arun_conversation("one"))
            await hold.reached()
            for busy in (agent, make_agent(model, session_id=agent.session_id)):
                with pytest.raises(ConversationBusy):
                    await busy.arun_conversation("two")
            hold.release()
            await task

    asyncio.run(go())
    assert vars(sys.modules["hermes_plugins.mine"])["heard"] == ["one"]


def test_what_a_hook_adds_to_a_picture_is_sent_now_and_later(
    db: SessionDB, make_agent: MakeAgent, plug: Plug, run: Any
) -> None:
    plug('ctx.register_hook("pre_llm_call", lambda user_message, **_: user_message.clear() or "It is raining."\n'
         'if isinstance(user_message, list) else None)')  # fmt: skip
    message = [{"type": "text", "text": "What is this?"}, PICTURE]
    with ScriptedModel(say("A cat."), say("Yes."), model=SEEING) as model:
        agent = make_agent(model)
        run(agent.arun_conversation(message))
        run(make_agent(model, session_id=agent.session_id).arun_conversation("sure?"))
        first, second = sent(model, 0)[1], sent(model, 1)[1]
    assert first == second
    assert "What is this?" in str(first)
    assert "It is raining." in str(first)
    assert "cat.png" in str(first)
    assert db.get_messages(agent.session_id)[0]["content"] == message
    assert db.prefixes.break_count() == 0


def test_what_is_stored_may_differ_from_what_is_sent_with_a_picture(
    db: SessionDB, make_agent: MakeAgent, run: Any
) -> None:
    with ScriptedModel(say("A cat."), model=SEEING) as model:
        agent = make_agent(model)
        message = [{"type": "text", "text": "[in a group] What is this?"}, PICTURE]
        run(agent.arun_conversation(message, persist_user_message="What is this?"))
        asked = str(sent(model, 0)[1])
    assert "[in a group] What is this?" in asked
    assert "cat.png" in asked


def test_a_hook_knows_what_was_said_before(make_agent: MakeAgent, plug: Plug, run: Any) -> None:
    plug("""
def note(user_message, conversation_history, is_first_turn, task_id, **_):
    seen.append((user_message, [row["content"] for row in conversation_history], is_first_turn, task_id))
global seen
seen = []
ctx.register_hook("pre_llm_call", note)
""")
    module: Any = sys.modules["hermes_plugins.mine"]
    with ScriptedModel(say("One."), say("Two.")) as model:
        agent = make_agent(model)
        run(agent.arun_conversation("first"))
        run(agent.arun_conversation("second", task_id="t"))
    assert module.seen == [("first", [], True, ""), ("second", ["first", "One."], False, "t")]


def test_the_reply_is_told_once(make_agent: MakeAgent, plug: Plug, run: Any, tmp_path: Path) -> None:
    told = tmp_path / "told"
    plug(f"""
def note(user_message, assistant_response, **_):
    with open({str(told)!r}, "a") as file:
        file.write(user_message + " → " + assistant_response + ";")
ctx.register_hook("post_llm_call", note)
""")
    with ScriptedModel(say(calls=[call("todo")]), say("Planned.")) as model:
        run(make_agent(model).arun_conversation("plan"))
    assert told.read_text() == "plan → Planned.;"


def test_a_history_fills_a_session_that_is_there_and_empty(db: SessionDB, make_agent: MakeAgent, run: Any) -> None:
    db.ledger.open(source="cli", owner="owner", session_id="chat")
    history = [{"role": "user", "content": "Before."}, {"role": "assistant", "content": "Yes."}]
    with ScriptedModel(say("Now."), say("Again.")) as model:
        agent = make_agent(model, session_id="chat")
        for text in ("after", "once more"):
            run(agent.arun_conversation(text, conversation_history=history))
    texts = [m["content"] for m in db.get_messages("chat")]
    assert texts == ["Before.", "Yes.", "after", "Now.", "once more", "Again."]


def test_hooks_get_the_keywords_that_the_page_names(make_agent: MakeAgent, plug: Plug, run: Any) -> None:
    page = (Path(__file__).parents[3] / "docs" / "contributors" / "plugins.md").read_text(encoding="utf-8")
    table = page.partition("| hook | keywords |")[2].partition("\n\n")[0].splitlines()[2:]
    told: dict[str, set[str]] = {}
    for line in table:
        _, hooks, keywords, _ = line.split("|")
        names = set(re.findall(r"`(\w+)`", keywords)) - told.keys()
        if "those" in keywords:
            before = re.search(r"those of `(\w+)`", keywords)
            names |= told[before[1] if before else next(reversed(told))]
        told.update(dict.fromkeys(re.findall(r"`(\w+)`", hooks), names))
    lines = ["global got", "got = {}", f"for name in {sorted(told)}:"]
    lines += ["    ctx.register_hook(name, lambda name=name, **facts: got.setdefault(name, set(facts)) and None)"]
    plug("\n".join(lines))
    delegated = call("delegate_task", {"tasks": [{"goal": "look"}]})
    steps = (
        say(calls=[call("terminal", {"command": "rm -r old"}), delegated]), say("Seen."), say("Done."), fail(401),
    )  # fmt: skip
    with ScriptedModel(*steps) as model:
        agent = make_agent(model, approver=Person("once"))
        run(agent.arun_conversation("go"))
        run(agent.arun_conversation("again"))
    got = sys.modules["hermes_plugins.mine"].got
    assert got == {name: told[name] | {"telemetry_schema_version"} for name in got}
    outside = {"on_session_finalize", "on_session_reset", "pre_gateway_dispatch"}  # not of a turn
    assert told.keys() - got.keys() == outside
