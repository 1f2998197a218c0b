"""Another model is asked the same turns: twenty of them, and no tool runs, no file changes, no row is written."""

from __future__ import annotations

import hashlib
import itertools
import os
from pathlib import Path
from typing import Any

import pytest
from tests.hermes_agent.conftest import MakeAgent

from hermes_agent.receipts import replay
from hermes_agent.tools import registry
from hermes_config import config as configuration
from hermes_state import SessionDB
from hermes_state.ids import ConversationId
from hermes_testing.clock import Clock
from hermes_testing.scripted.model import ScriptedModel, call, say

pytestmark = pytest.mark.slow
TURNS = 20


def recorded(number: int) -> list[Any]:
    """The steps of one turn: every kind of call, in different numbers."""
    write = call("write_file", {"path": f"{number}.txt", "content": f"number {number}"})
    read, plan = call("read_file", {"path": f"{number}.txt"}), call("use_tool", {"name": "todo"})
    run = call("terminal", {"command": f"echo {number} >> log.txt; cat log.txt"})
    kinds = ([], [[write]], [[write, read]], [[run]], [[plan], [write, run], [read]])
    return [*(say(calls=calls) for calls in kinds[number % len(kinds)]), say(f"Answer {number}.")]


def files(folder: Path) -> dict[str, tuple[int, str]]:
    return {
        str(path): (path.stat().st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest())
        for path in folder.rglob("*") if path.is_file() and os.access(path, os.R_OK)  # the sandbox keeps a closed one
    }  # fmt: skip


def rows(db: SessionDB) -> list[Any]:
    tables = ("messages", "inbox", "turns", "outbox", "effects", "events", "approvals", "wall_exits", "model_calls")
    return [db.engine.read(lambda conn, table=table: conn.rows(f"SELECT * FROM {table}")) for table in tables]  # type: ignore[misc]


def test_twenty_turns_are_asked_again_without_one_effect(
    db: SessionDB,
    clock: Clock,
    make_agent: MakeAgent,
    run: Any,
    tmp_path: Path,
    quiet_home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    script = list(itertools.chain.from_iterable(recorded(number) for number in range(TURNS)))
    with ScriptedModel(*script) as model:
        agent = make_agent(model)
        for number in range(TURNS):
            run(agent.arun_conversation(f"do {number}"))
            clock.advance(1)
    root = ConversationId(db.get_conversation_root(agent.session_id))
    turns = list(reversed(db.turns.last_ended(root, limit=TURNS)))
    assert len(turns) == TURNS
    handled: list[str] = []
    real = registry.run_call

    async def counted(tool: Any, *args: Any) -> Any:
        handled.append(tool.name)
        return await real(tool, *args)

    monkeypatch.setattr(registry, "run_call", counted)
    before, stored, config = files(tmp_path / "work"), rows(db), configuration.load(quiet_home)
    assert len(before) == 13, "the turns themselves wrote files"
    done = []
    for number, turn in enumerate(turns):
        with ScriptedModel(*recorded(number), model="other-1", wire="anthropic") as other:
            done.append(run(replay.replay(db, config, turn, other.endpoint())))
    assert handled == [] and files(tmp_path / "work") == before
    assert rows(db) == stored, "nothing is written to the conversation"
    assert [one.replayed.text for one in done] == [f"Answer {number}." for number in range(TURNS)]
    assert [one.replayed.text for one in done] == [one.recorded.text for one in done]
    assert [one.from_journal for one in done] == [len(one.recorded.calls) for one in done]
    assert sum(one.from_journal for one in done) == 32 and sum(one.not_executed for one in done) == 0
    assert all(one.replayed.input_tokens > 0 and one.replayed.model == "other-1" for one in done)
    tasks = db.engine.read(lambda conn: conn.rows("SELECT task, SUM(calls) FROM usage_days GROUP BY task"))
    assert dict(tasks)["replay"] == sum(one.replayed.model_calls for one in done)


def test_calls_that_the_turn_did_not_make_are_not_executed(
    db: SessionDB, make_agent: MakeAgent, run: Any, tmp_path: Path, quiet_home: Path
) -> None:
    first, second = (call("terminal", {"command": f"echo {n} >> log.txt"}) for n in (1, 2))
    with ScriptedModel(say(calls=[first]), say(calls=[second]), say("Both.")) as model:
        agent = make_agent(model)
        run(agent.arun_conversation("both"))
    root = ConversationId(db.get_conversation_root(agent.session_id))
    (turn,) = db.turns.last_ended(root)
    other_order = call(
        "use_tool", '{ "arguments": "{ \\"command\\" : \\"echo 2 >> log.txt\\" }", "name" : "terminal" }'
    )
    new = call("terminal", {"command": "rm -rf ."})
    script = (say(calls=[other_order, new]), say(calls=[first]), say("Done."))
    with ScriptedModel(*script) as other:
        done = run(replay.replay(db, configuration.load(quiet_home), turn, other.endpoint()))
        told = [message["content"] for message in other.requests[-1].messages if message["role"] == "tool"]
    assert (done.from_journal, done.not_executed) == (1, 2), "a call behind the journal's place is not repeated either"
    assert "exit code 0" in told[0] and told[1:] == [replay.NOT_EXECUTED] * 2
    assert (tmp_path / "work" / "log.txt").read_text() == "1\n2\n"


def test_calls_with_one_id_in_every_step_are_answered_each_with_its_own_result(
    db: SessionDB, make_agent: MakeAgent, run: Any, tmp_path: Path, quiet_home: Path
) -> None:
    """A server gives each call the same id; the memory and a delegation must not happen again either."""
    steps = [
        call("terminal", {"command": "echo 1 | tee -a log.txt"}, call_id="toolu_x"),
        call("terminal", {"command": "echo 2 | tee -a log.txt"}, call_id="toolu_x"),
        call("memory", {"action": "add", "text": "Likes tea."}, call_id="toolu_x"),
    ]
    with ScriptedModel(*(say(calls=[step]) for step in steps), say("Both.")) as model:
        agent = make_agent(model)
        run(agent.arun_conversation("both"))
    (turn,) = db.turns.last_ended(ConversationId(db.get_conversation_root(agent.session_id)))
    background = call("terminal", {"command": "touch background", "background": True})
    delegated = call("delegate_task", {"goal": "touch delegated"})
    script = (*(say(calls=[step]) for step in steps), say(calls=[background, delegated]), say("Done."))
    stored = files(quiet_home)
    with ScriptedModel(*script) as other:
        done = run(replay.replay(db, configuration.load(quiet_home), turn, other.endpoint()))
        told = [str(message["content"]) for message in other.requests[-1].messages if message["role"] == "tool"]
    assert (done.from_journal, done.not_executed) == (3, 2) and done.recorded.calls == [
        "terminal",
        "terminal",
        "memory",
    ]
    assert told[0].startswith("1\n") and told[1].startswith("2\n") and told[3:] == [replay.NOT_EXECUTED] * 2
    assert sorted(path.name for path in (tmp_path / "work").iterdir()) == ["log.txt"]
    assert (tmp_path / "work" / "log.txt").read_text() == "1\n2\n" and files(quiet_home) == stored
    assert not db.children.of_turn(turn.id)


def test_the_spending_limit_holds_for_a_replay(
    db: SessionDB, make_agent: MakeAgent, run: Any, quiet_home: Path
) -> None:
    with ScriptedModel(say("One.")) as model:
        agent = make_agent(model)
        run(agent.arun_conversation("first"))
    (turn,) = db.turns.last_ended(ConversationId(db.get_conversation_root(agent.session_id)))
    (quiet_home / "config.yaml").write_text("auto_title: false\nbudget:\n  day:\n    tokens: 100\n")
    with ScriptedModel() as other, pytest.raises(Exception, match=r"today's spending limit is 100 tokens"):
        run(replay.replay(db, configuration.load(quiet_home), turn, other.endpoint()))
