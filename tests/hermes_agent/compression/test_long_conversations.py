"""Compression in the middle of turns: who summarises how badly, the conversation goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hermes_agent import AIAgent
from hermes_config import config as configuration
from hermes_state import SessionDB
from hermes_testing.scripted.model import ScriptedModel, ScriptedRequest, always, call, fail, say

pytestmark = pytest.mark.slow

WINDOW = 12_000


def summary_asked(request: ScriptedRequest) -> bool:
    """A side call: it offers no tools."""
    return "tools" not in request.json


def answered(request: ScriptedRequest) -> bool:
    return "tools" in request.json


SUMMARISERS = {
    "good": say("## Goal\nThe person plans a trip and tells one fact a turn.", when=summary_asked),
    "empty": say("", when=summary_asked),
    "echo": say("fact " * 2_000, when=summary_asked),
    "ten times longer": say("and then " * 12_000, when=summary_asked),
    "error": fail(400, when=summary_asked),
    "overloaded": fail(529, when=summary_asked),
}


@pytest.fixture
def agent(db: SessionDB, quiet_home: Path, tmp_path: Path) -> Any:
    def make(model: ScriptedModel, **options: Any) -> AIAgent:
        work = tmp_path / "work"
        work.mkdir(exist_ok=True)
        endpoint = model.endpoint(context_length=WINDOW)
        return AIAgent(session_db=db, config=configuration.load(quiet_home), endpoint=endpoint, workdir=work, **options)

    return make


@pytest.mark.parametrize("kind", sorted(SUMMARISERS))
def test_twenty_turns_whatever_the_summariser_does(kind: str, db: SessionDB, agent: Any, run: Any) -> None:
    with ScriptedModel(always(SUMMARISERS[kind]), always(say("Noted.", when=answered)), allow_rejections=True) as model:
        chat = agent(model)
        first = None
        for i in range(20):
            before = len(model.requests)
            result = run(chat.arun_conversation(f"Fact {i}: the {i}th lamp is green. " + "Some more words. " * 150))
            assert result["completed"], result
            first = first or result["session_id"]
            # A call that is made again after a passing fault has the same bytes.
            calls = {request.body for request in model.requests[before:] if summary_asked(request)}
            assert len(calls) <= 2, f"turn {i}: {len(calls)} summary calls"
        last = model.requests[-1].body.decode()
    assert "Fact 19" in last
    assert "Fact 18" in last
    assert len(last) < WINDOW * 5
    assert chat.session_id != first
    assert db.get_compression_tip(first) == chat.session_id
    assert db.session_count(exclude_children=True) == 1
    assert len(db.get_compression_lineage(first)) >= 2


def test_a_tool_its_child_and_the_next_step_see_the_new_segment(db: SessionDB, agent: Any, run: Any) -> None:
    """The step after a rotation runs tools: they are told the segment that is current then."""
    show = {"command": "echo id=$HERMES_SESSION_ID"}
    steps = [say("", calls=[call("terminal", show)], when=answered) for _ in range(2)]
    with ScriptedModel(always(SUMMARISERS["good"]), *steps, always(say("Done.", when=answered))) as model:
        old = db.ledger.open(source="cli").session_id
        chat = agent(model, yolo=True, session_id=old)
        for i in range(30):
            db.append_message(old, "user", f"Fact {i}. " + "Some more words. " * 100)
            db.append_message(old, "assistant", "Noted.")
        result = run(chat.arun_conversation("which session is this?"))
    new = result["session_id"]
    assert new == chat.session_id != old
    rows = db.get_messages(new)
    printed = [m["content"] for m in rows if m["role"] == "tool"]
    assert len(printed) == 2
    assert all(f"id={new}" in text for text in printed)
    assert {m["session_id"] for m in rows} == {new}
    assert db.get_messages(old)[-1]["content"] != "Done."


def test_compress_on_request_and_the_prompt_is_small_after_a_restart(db: SessionDB, agent: Any, run: Any) -> None:
    with ScriptedModel(always(SUMMARISERS["good"]), always(say("Fine.", when=answered))) as model:
        chat = agent(model)
        for i in range(8):
            run(chat.arun_conversation(f"Fact {i}. " + "Some more words. " * 60))
        large = len(model.requests[-1].body)
        db.set_session_title(chat.session_id, "Lamps")
        assert run(chat.compress("the lamps")) is True
        assert "the lamps" in model.requests[-1].body.decode()
        again = agent(model, session_id=chat.session_id)
        run(again.arun_conversation("and now?"))
        assert len(model.requests[-1].body) < large
    assert db.get_session_title(again.session_id) == "Lamps"
    assert [row["title"] for row in db.list_sessions_rich()] == ["Lamps"]
    assert json.loads(model.requests[-1].body)["messages"][-1]["content"] == "and now?"
