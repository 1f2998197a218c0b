"""The prompt's prefix through fifty turns of an eventful life: no byte moves but where it was announced.

The suite's own eye is independent of ours: it takes the bytes the model server recorded and compares each request with
the one before it to the same model. The counter in the store must say the same.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.hermes_agent.conftest import MakeAgent

from hermes_agent import AIAgent
from hermes_state import SessionDB
from hermes_testing.scripted.model import ScriptedModel, call, fail, say

CLOSING = b"]}"


def moved(requests: list[bytes]) -> list[int]:
    """Which requests do not begin with the one before them (without its closing brackets)."""
    bodies = [body.rstrip() for body in requests]
    return [i for i in range(1, len(bodies)) if not bodies[i].startswith(bodies[i - 1].removesuffix(CLOSING))]


def recorded(model: ScriptedModel, marker: str) -> list[bytes]:
    """The bodies of the requests of one conversation, in order."""
    return [request.body for request in model.requests if marker.encode() in request.body]


def test_nothing_moves_in_fifty_turns(
    db: SessionDB, make_agent: MakeAgent, quiet_home: Path, run: Any, tmp_path: Path
) -> None:
    big = tmp_path / "work" / "big.txt"
    steps: list[Any] = [say(f"answer {i}") for i in range(49)]
    steps[7] = [say("looking", calls=[call("read_file", {"path": str(big)})]), say("a large file")]
    steps[11] = [
        say("noting", calls=[call("memory", {"action": "add", "target": "memory", "content": "likes tea"})]),
        say("noted"),
    ]
    steps[20] = fail(402)  # once: the fallback answers this turn
    flat = [step for group in steps for step in (group if isinstance(group, list) else [group])]
    with (
        ScriptedModel(*flat, say("from B")) as model,
        ScriptedModel(say("the stand-in's answer"), model="other-1") as spare,
    ):
        big.write_text("".join(f"{i:05d} the quick brown fox jumps\n" for i in range(1_000)))

        def fresh(session_id: str | None = None) -> AIAgent:
            return make_agent(model, session_id=session_id, fallbacks=[spare.endpoint()])

        a, b = fresh(), fresh()
        for i in range(49):
            if i == 5:
                a = fresh(a.session_id)  # a restart: a new agent, nothing in memory
            if i == 9:
                a.release()  # evicted from the cache
            if i == 15:
                (quiet_home / "config.yaml").write_text("auto_title: false\ndisplay:\n  skin: dark\n")
                (quiet_home / "SOUL.md").write_text("You are somebody else now.")
                a = fresh(a.session_id)
            if i == 30:
                assert run(b.arun_conversation("conversation B"))["final_response"] is not None  # A → B → A
            result = run(a.arun_conversation(f"conversation A, turn {i}"))
            assert result["completed"], result
        requests = recorded(model, "conversation A, turn 0")
        assert len(requests) == 51
        assert moved(requests) == []
        assert len(spare.requests) == 1
    assert db.prefixes.break_count() == 0
    assert [epoch.reason for epoch in db.prefixes.epochs(a.session_id)] != []
    assert len(db.prefixes.epochs(a.session_id)) == 1


def test_a_byte_moved_on_purpose_is_seen_by_both(
    db: SessionDB, make_agent: MakeAgent, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ScriptedModel(say("one"), say("two"), say("three")) as model:
        agent = make_agent(model)
        run(agent.arun_conversation("first"))
        run(agent.arun_conversation("second"))
        row = db.get_messages(agent.session_id)[0]["id"]
        db._execute_write(lambda conn: conn.run("UPDATE messages SET content = 'First' WHERE id = ?", (row,)))
        run(make_agent(model, session_id=agent.session_id).arun_conversation("third"))
        assert moved([request.body for request in model.requests]) == [2]
    assert db.prefixes.break_count() == 1
    assert json.loads(model.requests[2].body)["messages"][1]["content"] == "First"
