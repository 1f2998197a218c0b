"""Delegated work of a person who lost access while no gateway ran."""

from __future__ import annotations

import contextlib

import pytest

from hermes_state import SessionDB
from hermes_testing.scenario import Scenario
from hermes_testing.scripted.model import Hold, ScriptedModel, call, say, saying
from hermes_testing.telegram.faults import OFF
from hermes_testing.telegram.server import FakeTelegram

pytestmark = pytest.mark.slow


def test_it_is_stopped() -> None:
    working, again = Hold(), Hold()
    task = call("delegate_task", {"tasks": [{"goal": "look at one"}, {"goal": "look at two"}]})
    model = ScriptedModel(
        say(calls=[task], when=saying("compare")),
        say("never", when=saying("look at one"), hold=working),
        say("never", when=saying("look at one"), hold=again),
        say("The results come later.", when=lambda request: request.messages[-1]["role"] == "tool"),
    )
    config = {
        "auto_title": False, "streaming": {"enabled": False},
        "delegation": {"wait_seconds": 1, "max_concurrent_children": 1},
    }  # fmt: skip
    with Scenario(FakeTelegram(flood=OFF), model, config=config) as scene:
        scene.owner("ada")
        bob = scene.member("bob")
        scene.start()
        bob.say("compare")
        bob.expect("The results come later.")
        scene.wait(lambda: working.is_reached, "a child at work")
        scene.kill()
        working.release()
        scene._allowed.remove(bob.id)
        scene.start()
        scene.wait(lambda: states(scene) == {"cancelled"}, "the end of the children")  # `again` is never released
        assert not any("look at two" in request.last_user_text for request in model.requests)


def states(scene: Scenario) -> set[str]:
    with contextlib.closing(SessionDB(scene.home / "state.db")) as db:
        return {child.state for turn in db.turns.list(limit=9) for child in db.children.of_turn(turn.id)}
