"""A turn that kills the gateway again and again is given up; the turns that ran beside it each time are answered."""

from __future__ import annotations

import time
from pathlib import Path

from hermes_state import SessionDB
from hermes_testing.scenario import Scenario
from hermes_testing.scripted.model import ScriptedModel, ScriptedRequest, Step, call, say
from hermes_testing.telegram.faults import OFF
from hermes_testing.telegram.server import FakeTelegram

_GIVEN_UP = "This turn was given up"
_GATEWAY = """$(sed 's/.*"pid": \\([0-9]*\\).*/\\1/' "$HERMES_HOME/gateway.pid")"""


def improvise(request: ScriptedRequest) -> Step:
    """For mallory a command that kills the gateway, whatever became of it before; for others an answer, slowly."""
    if any("end it" in str(message.get("content")) for message in request.messages):
        return say("I do. ", calls=[call("terminal", {"command": f"sleep 0.3; kill -9 {_GATEWAY}"})])
    return say("Here ", "you ", "are.", pace=0.4)


def test_one_turn_that_kills_the_gateway_costs_itself_alone(tmp_path: Path) -> None:
    fake, model = FakeTelegram(flood=OFF), ScriptedModel(improvise=improvise)
    # Long enough that the next of them never begins while one is answered, however slow the machine.
    # Behind a sandbox no command could do it.
    config = {
        "auto_title": False, "approvals": {"mode": "off"}, "executor": "host", "limits": {"turn_alone_ms": 30_000},
    }  # fmt: skip
    with Scenario(fake, model, home=tmp_path / "home", config=config, seconds=60.0) as scene:
        others = [scene.owner(f"person{number}") for number in range(4)]
        mallory = scene.owner("mallory")
        scene.start()
        for one in (mallory, *others):
            one.say("end it" if one is mallory else "hello")
        lives = 1
        until = time.monotonic() + 90.0
        while _GIVEN_UP not in mallory.chat_text():
            assert time.monotonic() < until, scene.log()
            if not scene.running:
                scene.start(wait=False)
                lives += 1
            time.sleep(0.05)
        for one in others:
            one.expect("Here you are.")
        scene.stop()
    assert lives == 5, "its own, one in which all were recovered together, and two in which it ran alone"
    db = SessionDB(tmp_path / "home" / "state.db")
    states = sorted(turn.state for turn in db.turns.list())
    db.close()
    assert states == ["done"] * 4 + ["given_up"]


def test_turns_that_others_kill_again_and_again_are_answered(tmp_path: Path) -> None:
    """The process is killed from outside, five times while turns run: no turn is to blame, and each gets its answer."""
    fake, model = FakeTelegram(flood=OFF), ScriptedModel(improvise=improvise)
    home = tmp_path / "home"
    with Scenario(fake, model, home=home, config={"auto_title": False}, seconds=60.0) as scene:
        people = [scene.owner(f"person{number}") for number in range(6)]
        scene.start()
        for one in people:
            one.say("hello")
        attempts = 0
        for _ in range(5):
            until = time.monotonic() + 30.0
            while (now := _attempts(home)) <= attempts or now < len(people):
                assert time.monotonic() < until, scene.log()
                time.sleep(0.02)
            attempts = now
            scene.kill()
            scene.start(wait=False)
        for one in people:
            one.expect("Here you are.")
        scene.stop()
    db = SessionDB(home / "state.db")
    turns = db.turns.list()
    died = max(db.turns.deaths(turn, turn.attempt - 1).all for turn in turns)
    db.close()
    assert [turn.state for turn in turns] == ["done"] * 6
    assert died >= 3, "otherwise nothing was shown: it would not have been given up before"


def _attempts(home: Path) -> int:
    db = SessionDB(home / "state.db")
    try:
        return sum(turn.attempt for turn in db.turns.list())
    finally:
        db.close()
