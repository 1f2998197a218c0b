"""A gateway and `hermes --plain --resume` on one conversation: one turn at a time, both see every word, one prefix."""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path

from tests.support.terminal import Terminal

from hermes_state import SessionDB
from hermes_testing.scenario import Scenario
from hermes_testing.scripted.model import Hold, ScriptedModel, ScriptedRequest, Step, say
from hermes_testing.scripted.steps import text_of
from hermes_testing.telegram.faults import OFF
from hermes_testing.telegram.server import FakeTelegram

gate = Hold()


def improvise(request: ScriptedRequest) -> Step:
    asked = request.last_user_text.splitlines()[-1]
    return say(f"I heard {asked}, ", "and that is all.", hold=gate if asked == "question three" else None)


def spoken(request: ScriptedRequest) -> list[str]:
    """What people said, as the model gets it."""
    return [text_of(said["content"]).splitlines()[-1] for said in request.messages if said["role"] == "user"]


def test_they_take_turns(tmp_path: Path) -> None:
    model = ScriptedModel(improvise=improvise)
    with Scenario(FakeTelegram(flood=OFF), model, home=tmp_path / "gateway", config={"auto_title": False}) as scene:
        ada = scene.owner("ada")
        scene.start()
        ada.say("question one")
        ada.expect("I heard question one, and that is all.")
        command = [sys.executable, "-m", "hermes_cli", "--plain", "--resume", conversation(scene.home)]
        with Terminal(command, env={"HERMES_HOME": str(scene.home)}, cwd=scene.home) as desk:
            desk.ready()
            desk.type("question two")
            desk.see("I heard question two, and that is all.")
            # The gateway is in the middle of its answer when somebody types at the desk: that waits, and is not lost.
            ada.say("question three")
            scene.wait(lambda: gate.is_reached, "the gateway's question")
            desk.ready()
            desk.type("question four")
            assert [spoken(one)[-1] for one in model.requests] == ["question one", "question two", "question three"]
            gate.release()
            ada.expect("I heard question three, and that is all.")
            shown = desk.see("I heard question four, and that is all.")
            assert "question four" in shown
            ada.say("question five")
            ada.expect("I heard question five, and that is all.")
            desk.press("ctrl-d")
            assert desk.end() == 0
        scene.stop()

        every = [f"question {word}" for word in ("one", "two", "three", "four", "five")]
        assert [spoken(request) for request in model.requests] == [every[: count + 1] for count in range(5)]
        heads = [request.body[: request.body.index(b'"content":"question one"')] for request in model.requests]
        assert len(set(heads)) == 1, "every request begins with the same bytes, whoever asks"
        for before, after in pairwise(model.requests):
            assert after.messages[: len(before.messages)] == before.messages

        db = SessionDB(scene.home / "state.db")
        assert db.prefixes.break_count() == 0
        assert len(db.list_sessions_rich()) == 1
        rows = db.get_messages(conversation(scene.home))
        assert [row["role"] for row in rows] == ["user", "assistant"] * 5
        turns = sorted(db.turns.list(limit=50), key=lambda turn: turn.fence)
        assert all(turn.ended_at <= later.started_at for turn, later in pairwise(turns))  # type: ignore[operator]
        db.close()


def conversation(home: Path) -> str:
    db = SessionDB(home / "state.db")
    try:
        return str(db.list_sessions_rich()[0]["id"])
    finally:
        db.close()
