"""The stored facts of a call render the bytes that were sent, and anything else is called different."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from tests.hermes_agent.conftest import MakeAgent

from hermes_agent.models.base import WireName
from hermes_agent.prompt import sent_request
from hermes_state import SessionDB
from hermes_state.ids import ConversationId
from hermes_state.turns.turns import Turn
from hermes_testing.clock import Clock
from hermes_testing.scripted.model import ScriptedModel, call, fail, overflow, say

pytestmark = pytest.mark.slow
PLAN = {"todos": [{"id": "1", "content": "päck 🧳", "status": "pending"}]}


def turns(db: SessionDB, session_id: str) -> list[Turn]:
    root = ConversationId(db.get_conversation_root(session_id))
    return list(reversed(db.turns.last_ended(root, limit=50)))


@pytest.mark.parametrize("wire", ["chat", "anthropic"])
def test_every_request_is_rendered_byte_for_byte(
    db: SessionDB, clock: Clock, make_agent: MakeAgent, run: Any, wire: WireName
) -> None:
    steps = (
        *(say("Hello. " * 900) for _ in range(6)), say("First.", calls=[call("todo", PLAN), call("todo")]),
        say("Planned."), fail(500), say("Again."), overflow(), say("<summary>Päcked.</summary>"), say("Small now."),
    )  # fmt: skip
    with ScriptedModel(*steps, wire=wire, allow_rejections=True) as model:
        agent = make_agent(model, endpoint=model.endpoint(options=(("temperature", 0.5),), max_tokens=900))
        for text in ("hi", *"12345", "plan ✓", "once more", "long"):
            run(agent.arun_conversation(text))
            clock.advance(1)
        bodies = [request.body for request in model.requests]
    made = [(turn, one) for turn in turns(db, agent.session_id) for one in db.model_calls.of_turn(turn.id)]
    assert [one.retries for _, one in made] == [0] * 8 + [1, 0, 0, 0]
    assert [one.task for _, one in made].count("compression") == 1
    sent = [sent_request.rendered(db, turn.conversation_id, one) for turn, one in made if not one.task]
    assert all(one.exact for one in sent)
    assert {one.content for one in sent} <= set(bodies), "the bytes that the provider received"
    assert [one.sha256 for one in sent] == [hashlib.sha256(one.content).hexdigest() for one in sent]
    with pytest.raises(sent_request.NotKept):
        summary = next((turn, one) for turn, one in made if one.task)
        sent_request.rendered(db, summary[0].conversation_id, summary[1])


def test_an_undone_turn_is_exact_and_a_changed_message_is_not(
    db: SessionDB, clock: Clock, make_agent: MakeAgent, run: Any
) -> None:
    with ScriptedModel(say("One."), say("Two.")) as model:
        agent = make_agent(model)
        run(agent.arun_conversation("first"))
        clock.advance(1)
        run(agent.arun_conversation("second"))
    first, second = turns(db, agent.session_id)
    db.undo.take_back(agent.session_id, 2, stays=lambda content: False)
    (one,), (two,) = db.model_calls.of_turn(first.id), db.model_calls.of_turn(second.id)
    assert sent_request.rendered(db, second.conversation_id, two).exact, "undone rows were live then"
    assert sent_request.rendered(db, first.conversation_id, one).exact
    db.engine.write(lambda conn: conn.run("UPDATE messages SET content = 'other' WHERE content = 'first'"))
    changed = sent_request.rendered(db, second.conversation_id, two)
    assert not changed.exact and "changed" in changed.why_not and b"other" in changed.content
    db.engine.write(lambda conn: conn.run("DELETE FROM messages WHERE content = 'One.'"))
    assert "3 messages were sent, and 2" in sent_request.rendered(db, second.conversation_id, two).why_not
    db.engine.write(lambda conn: conn.run("DELETE FROM prefix_epochs"))
    with pytest.raises(sent_request.NotKept, match="epoch 1"):
        sent_request.rendered(db, second.conversation_id, two)


@pytest.mark.both_engines
def test_the_calls_of_a_turn_go_with_it(db: SessionDB, make_agent: MakeAgent, run: Any) -> None:
    with ScriptedModel(say("One.")) as model:
        agent = make_agent(model)
        run(agent.arun_conversation("first"))
    (turn,) = turns(db, agent.session_id)
    assert len(db.model_calls.of_turn(turn.id)) == 1
    assert db.delete_session(agent.session_id)
    assert db.model_calls.of_turn(turn.id) == ()
