"""Delegated work: children run beside the turn that waits, their results come back once, and limits hold."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from tests.hermes_agent.conftest import MakeAgent, Person

from hermes_agent import delegation
from hermes_agent.models.base import TokenUsage
from hermes_agent.receipts import receipt
from hermes_agent.tools.builtin.delegate_task import TOOL
from hermes_state import SessionDB
from hermes_state.ids import ConversationId
from hermes_state.turns.inbox import local_route
from hermes_testing.scripted.model import ScriptedModel, ScriptedRequest, always, call, say


def goals(*names: str, **more: Any) -> list[Any]:
    return [call("delegate_task", {"tasks": [{"goal": name, **more} for name in names]})]


def is_child(request: ScriptedRequest) -> bool:
    return request.messages[1]["content"].startswith("task ")


def for_task(name: str) -> Any:
    return lambda request: request.messages[1]["content"].startswith(f"task {name}")


def results(request: ScriptedRequest) -> bool:
    return not is_child(request) and request.messages[-1]["role"] == "tool"


def asked(request: ScriptedRequest) -> bool:
    return not is_child(request) and request.messages[-1]["role"] == "user"


def test_the_schema_is_small() -> None:
    import json

    assert len(json.dumps(TOOL.spec)) / 4 <= 190


def test_children_report_in_order_and_have_neither_memory_nor_questions(make_agent: MakeAgent, db: SessionDB) -> None:
    names = ["a", "b", "c", "d", "e"]
    with ScriptedModel(
        say(calls=goals(*(f"task {name}" for name in names), context="two files"), when=asked),
        *(say(f"report {name}", when=for_task(name)) for name in names),
        say("All is known.", when=results),
    ) as model:
        result = make_agent(model, session_id="chat").run_conversation("compare them")
        assert result["final_response"] == "All is known."
        told = db.get_messages("chat")[2]["content"]
        assert [told.index(f"report {name}") for name in names] == sorted(told.index(f"report {n}") for n in names)
        child = next(one for one in model.requests if is_child(one))
        assert "Context:\ntwo files" in child.messages[1]["content"]
        (turn,) = db.turns.last_ended(ConversationId("chat"))
        told_of = receipt.short_text(receipt.receipt_of(db, turn))
        assert "Delegated 5 tasks, 5 done, their cost is not known." in told_of, "the model has no price"
        offered = set(child.tools)
        assert offered.isdisjoint({"memory", "clarify", "delegate_task", "send_file"}) and "read_file" in offered
    children = db.children.of_parent(ConversationId("chat"))
    assert [(one.state, one.returned) for one in children] == [("done", "call")] * 5
    assert all(db.get_session(one.id) is not None for one in children)
    assert [row["id"] for row in db.list_sessions_rich()] == ["chat"], "children are not listed as conversations"
    kinds = [event.kind for event in db.events.since(conversation_id=ConversationId("chat")).events]
    assert kinds.count("child.begun") == kinds.count("child.ended") == 5


def test_a_child_that_fails_or_has_no_such_toolset_is_told_of(make_agent: MakeAgent, db: SessionDB) -> None:
    with ScriptedModel(
        say(calls=goals("task a", toolsets=["nothing"]), when=asked),
        say(
            calls=goals("task a", toolsets=["file"]),
            when=lambda request: results(request) and "no toolset" in str(request.messages[-1]),
        ),
        say("done", when=for_task("a")),
        say("ok", when=lambda request: results(request) and "## 1. task a" in str(request.messages[-1])),
    ) as model:
        assert make_agent(model, session_id="chat").run_conversation("x")["final_response"] == "ok"
        child = next(one for one in model.requests if is_child(one))
        assert set(child.tools) == {"read_file", "write_file", "patch", "search_files"}


def test_when_the_wait_ends_the_results_come_later_in_one_row(
    make_agent: MakeAgent, db: SessionDB, quiet_home: Any, run: Any
) -> None:
    (quiet_home / "config.yaml").write_text("auto_title: false\ndelegation: {wait_seconds: 0.3}\n")
    with ScriptedModel(
        say(calls=goals("task a", "task b"), when=asked),
        say("report a", when=for_task("a")),
        say("report b", when=for_task("b"), delay=1.0),
        say("They are at work.", when=results),
    ) as model:

        async def go() -> None:
            agent = make_agent(model, session_id="chat")
            assert (await agent.arun_conversation("x"))["final_response"] == "They are at work."
            assert db.inbox.queued(local_route("chat")) == ()
            await asyncio.gather(*delegation._calls.values())

        run(go())
    (row,) = db.inbox.queued(local_route("chat"))
    text = (row.payload or {})["text"]
    assert text.index("report a") < text.index("report b")
    assert {one.returned for one in db.children.of_parent(ConversationId("chat"))} == {"row"}
    assert db.children.settle() == 0


def test_stopping_the_parent_stops_its_children_also_those_that_wait(
    make_agent: MakeAgent, db: SessionDB, quiet_home: Any, run: Any
) -> None:
    (quiet_home / "config.yaml").write_text("auto_title: false\ndelegation: {max_concurrent_children: 1}\n")
    with ScriptedModel(
        say(calls=goals("task a", "task b"), when=asked), say("never", when=for_task("a"), delay=30.0)
    ) as model:

        async def go() -> None:
            agent = make_agent(model, session_id="chat")
            turn = asyncio.ensure_future(agent.arun_conversation("x"))
            while not any(is_child(one) for one in model.requests):  # noqa: ASYNC110 - the model rings no bell
                await asyncio.sleep(0.01)
            agent.interrupt()
            assert (await turn)["interrupted"]

        run(go())
    children = db.children.of_parent(ConversationId("chat"))
    assert [one.state for one in children] == ["cancelled", "cancelled"]
    assert db.inbox.queued(local_route("chat")) == ()


def test_what_children_spend_counts_for_the_parent(make_agent: MakeAgent, db: SessionDB, quiet_home: Any) -> None:
    """Five children under a conversation's limit for which the money of two is left: the limit holds."""
    price = "models: {scripted-1: {price: {input: 100, output: 100}}}"
    (quiet_home / "config.yaml").write_text(
        f"auto_title: false\nbudget: {{conversation: {{usd: 2.5}}}}\ndelegation: {{budget_usd: 3}}\n{price}\n"
    )
    with ScriptedModel(
        say(calls=goals(*(f"task {name}" for name in "abcde")), when=asked),
        always(say("x" * 400, when=is_child, usage=TokenUsage(input_tokens=2_000, output_tokens=6_000))),
        always(say("ok", when=results)),
    ) as model:
        make_agent(model, session_id="chat").run_conversation("x")
    states = [one.state for one in db.children.of_parent(ConversationId("chat"))]
    assert "failed" in states and "done" in states
    spent = db.budgets.used("conversation", "chat")[1].nano_usd / 1e9
    every = sum(
        (db.get_session(one.id) or {})["estimated_cost_usd"] or 0
        for one in db.children.of_parent(ConversationId("chat"))
    )
    assert 0 < every < spent <= 2.5


def test_what_children_spend_counts_for_the_own_limit_of_a_job(
    make_agent: MakeAgent, db: SessionDB, quiet_home: Any
) -> None:
    """Nothing is limited in the configuration; the agent that delegates has a limit, as that of a job with a budget."""
    (quiet_home / "config.yaml").write_text(
        "auto_title: false\nmodels: {scripted-1: {price: {input: 100, output: 100}}}\n"
    )
    with ScriptedModel(
        say(calls=goals(*(f"task {name}" for name in "abcde")), when=asked),
        always(say("x" * 400, when=is_child, usage=TokenUsage(input_tokens=2_000, output_tokens=6_000))),
        always(say("ok", when=results)),
    ) as model:
        make_agent(model, session_id="chat", budget_usd=2.5).run_conversation("x")
    states = [one.state for one in db.children.of_parent(ConversationId("chat"))]
    assert "failed" in states and "done" in states
    assert 0.8 < db.budgets.used("conversation", "chat")[1].nano_usd / 1e9 <= 2.5


def test_a_child_without_a_known_price_cannot_spend_the_budget_of_a_job(
    make_agent: MakeAgent, db: SessionDB, quiet_home: Any
) -> None:
    with ScriptedModel(
        say(calls=goals("task a", model="scripted-2"), when=asked), always(say("ok", when=results))
    ) as model:
        settings = {"auto_title": False, "model": model.settings()}
        settings["models"] = {"scripted-1": {"price": {"input": 1, "output": 1}}}
        (quiet_home / "config.yaml").write_text(json.dumps(settings))
        make_agent(model, session_id="chat", budget_usd=2.5).run_conversation("x")
    (child,) = db.children.of_parent(ConversationId("chat"))
    assert child.state == "failed" and "the price of scripted-2 is not known" in str(child.result)
    assert not any(is_child(request) for request in model.requests)


def test_a_conversation_has_only_so_many_tasks_at_work(
    make_agent: MakeAgent, db: SessionDB, quiet_home: Any, run: Any
) -> None:
    (quiet_home / "config.yaml").write_text(
        "auto_title: false\ndelegation: {max_children: 2, wait_seconds: 0, max_concurrent_children: 1}\n"
    )
    with ScriptedModel(
        say(calls=goals("task a", "task b"), when=asked),
        always(say("report", when=is_child, delay=5.0)),
        say(calls=goals("task c"), when=results),
        say("ok", when=results),
    ) as model:
        agent = make_agent(model, session_id="chat")

        async def go() -> None:
            await agent.arun_conversation("x")
            await delegation.leave_open()

        run(go())
        said = [str(request.messages[-1]["content"]) for request in model.requests if not is_child(request)]
        assert "2 tasks of this conversation are still at work" in said[-1]
    assert len(db.children.of_parent(ConversationId("chat"))) == 2


def test_a_question_of_a_child_names_its_task_and_goes_to_the_same_person(make_agent: MakeAgent, db: SessionDB) -> None:
    person = Person("once")
    with ScriptedModel(
        say(calls=goals("task a"), when=asked),
        say(calls=[call("terminal", {"command": "curl https://example.org"})], when=for_task("a")),
        say("report", when=lambda request: is_child(request) and request.messages[-1]["role"] == "tool"),
        say("ok", when=results),
    ) as model:
        make_agent(model, session_id="chat", approver=person).run_conversation("x")
    assert "for the delegated task “task a”" in person.asked[0].why


def test_a_child_may_delegate_once_more_if_the_setting_says_so(
    make_agent: MakeAgent, db: SessionDB, quiet_home: Any
) -> None:
    below = lambda request: for_task("a")(request) and request.messages[-1]["role"]  # noqa: E731
    with ScriptedModel(
        say(calls=goals("task a"), when=asked),
        say(calls=goals("task b"), when=lambda request: below(request) == "user"),
        say(
            calls=goals("task c"),
            when=lambda request: for_task("b")(request) and request.messages[-1]["role"] == "user",
        ),
        say(
            "report b",
            when=lambda request: (
                for_task("b")(request) and "There is no tool named 'delegate_task'" in request.messages[-1]["content"]
            ),
        ),
        say("report a with b", when=lambda request: below(request) == "tool"),
        say("ok", when=results),
    ) as model:
        price = {"price": {"input": 1, "output": 1}}
        (quiet_home / "config.yaml").write_text(
            f"auto_title: false\ndelegation: {{max_depth: 2, budget_usd: 5}}\nmodels: {{scripted-1: {price}}}\n"
        )
        assert make_agent(model, session_id="chat").run_conversation("x")["final_response"] == "ok"
    (child,) = db.children.of_parent(ConversationId("chat"))
    (grandchild,) = db.children.of_parent(child.id)
    assert (child.depth, grandchild.depth, grandchild.returned) == (1, 2, "call")
    spent = [db.budgets.used("conversation", one.id)[1].nano_usd for one in (child, grandchild)]
    assert spent[0] > spent[1] > 0, "what the grandchild spends counts for the child's limit"


def test_a_new_message_instead_of_a_stop_leaves_the_children_at_work(
    make_agent: MakeAgent, db: SessionDB, run: Any
) -> None:
    with ScriptedModel(say(calls=goals("task a"), when=asked), say("report a", when=for_task("a"), delay=0.5)) as model:

        async def go() -> None:
            agent = make_agent(model, session_id="chat")
            turn = asyncio.ensure_future(agent.arun_conversation("x"))
            while not any(is_child(one) for one in model.requests):  # noqa: ASYNC110 - the model rings no bell
                await asyncio.sleep(0.01)
            agent.interrupt("something else")
            assert (await turn)["interrupted"]
            await asyncio.gather(*delegation._calls.values())

        run(go())
    assert "still at work" in db.get_messages("chat")[2]["content"]
    (row,) = db.inbox.queued(local_route("chat"))
    assert "report a" in str(row.payload)


def test_later_rows_on_behalf_of_a_child_go_to_its_parent(make_agent: MakeAgent, db: SessionDB) -> None:
    steps = (say(calls=goals("task a"), when=asked), say("x", when=for_task("a")), say("ok", when=results))
    with ScriptedModel(*steps) as model:
        make_agent(model, session_id="chat").run_conversation("x")
    (child,) = db.children.of_parent(ConversationId("chat"))
    turn = db.turns.list(conversation_id=child.id)[0]
    address = db.inbox.address(turn.id)
    assert address is not None and address.chat_id == "chat"
