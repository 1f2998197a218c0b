"""A day with Hermes, on the phone and in the window side by side, with two restarts: each thing happens once.

A briefing at a time of day, a reminder, a delegated comparison, a question asked in the window and answered on the
phone, /why, and an answer to somebody else that is held and changed.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.terminal import Terminal

from hermes_state import SessionDB
from hermes_testing.scenario import Scenario
from hermes_testing.scripted.model import Hold, ScriptedModel, ScriptedRequest, call, say
from hermes_testing.telegram.faults import OFF
from hermes_testing.telegram.server import FakeTelegram

pytestmark = pytest.mark.slow


def asked(words: str, *, role: str = "user") -> Callable[[ScriptedRequest], bool]:
    """The last message is a person's (or a tool's), in a request whose last message of a person has these words."""
    return lambda request: words in request.last_user_text and request.messages[-1]["role"] == role


def done_children(scene: Scenario) -> list[str]:
    with contextlib.closing(SessionDB(scene.home / "state.db")) as db:
        (turn,) = db.turns.list(state="running", limit=9)[-1:] or (None,)
        return [] if turn is None else [one.goal for one in db.children.of_turn(turn.id) if one.state == "done"]


def test_a_day(tmp_path: Path) -> None:
    compare = call("delegate_task", {"tasks": [{"goal": "price of tea"}, {"goal": "price of coffee"}]})
    brewing = Hold()
    model = ScriptedModel(
        say("Good morning.", when=asked("hello")),
        say(calls=[compare], when=asked("compare")),
        say("Tea is 3.", when=asked("price of tea")),
        say("never", when=asked("price of coffee"), hold=brewing),
        say("Coffee is 4.", when=asked("price of coffee")),
        say("Tea is cheaper.", when=asked("compare", role="tool")),
        say(calls=[call("terminal", {"command": "rm -rf old"})], when=asked("tidy up")),
        say("It is tidy.", when=asked("tidy up", role="tool")),
        say("We close at five.", when=asked("when do you close")),
        say("Rain at noon.", when=asked("Brief me.")),
        say("Rain, as I wrote.", when=asked("will it rain")),
    )
    with Scenario(FakeTelegram(flood=OFF), model, seconds=60) as scene:
        ada, bob = scene.owner("ada"), scene.member("bob")
        scene.config = {"auto_title": False, "delivery": {"hold": [f"telegram:{bob.id}"]}}
        scene.start()
        ada.say("hello")
        ada.expect("Good morning.")

        at = time.localtime(time.time() + 65)  # the rest of the day happens meanwhile
        ada.say(f"/cron add every day at {at.tm_hour}:{at.tm_min:02} Brief me.")
        ada.expect("Added: ")
        ada.say("/remind in 40 seconds the pizza")
        ada.expect("I will remind you")

        with contextlib.closing(SessionDB(scene.home / "state.db")) as db:
            session = db.list_sessions_rich(limit=1)[0]["id"]
        env = {"TERM": "xterm-256color", "HERMES_HOME": str(scene.home)}
        command = [sys.executable, "-m", "hermes_cli", "--resume", session]
        with Terminal(command, env=env, lines=50, cwd=tmp_path) as window:
            window.see("Good morning.")
            ada.say("compare tea and coffee")
            scene.wait(lambda: brewing.is_reached and done_children(scene) == ["price of tea"], "a child at work")
            scene.kill()  # with one child done and one at work
            brewing.release()
            scene.start()
            ada.expect("Tea is cheaper.")
            window.see("Tea is cheaper.")

            window.type("tidy up")
            ada.press("This command once", message=ada.expect("rm -rf old").id)
            tidy = ada.expect("It is tidy.")
            window.see("It is tidy.")
            why = ada.say("/why", reply_to=tidy.id)
            assert (
                "rm -rf old (exit code 0, in the sandbox, allowed by Ada" in ada.expect("Ran ", after=why.message).text
            )
            window.press("ctrl-d")
            assert window.end() == 0

        bob.say("when do you close?")
        card = ada.expect("is held")
        ada.say("We close at six.", reply_to=card.id)
        bob.expect("We close at six.")

        assert scene.stop() == 0
        scene.start()
        ada.expect("the pizza", within=90)
        ada.expect("Rain at noon.", within=120)
        with contextlib.closing(SessionDB(scene.home / "state.db")) as db:  # nobody answers before it is recorded
            scene.wait(lambda: not db.outbox.counts().keys() & {"pending", "sending"}, "the record of the delivery")
        ada.say("will it rain?")
        ada.expect("Rain, as I wrote.")
        assert "Rain at noon." in model.requests[-1].last_user_text, "the chat knows what its job wrote"

        replies = [one.text for one in ada.replies()]
        for text in ("Good morning.", "Tea is cheaper.", "It is tidy.", "Rain, as I wrote."):
            assert replies.count(text) == 1, text
        assert replies.count("the pizza") == 1 and sum("Rain at noon." in text for text in replies) == 1
        assert [one.text for one in bob.replies()] == ["We close at six."]
        ledger = json.loads(scene.hermes("cron", "ledger", "--json"))
        assert sorted(row["outcome"] for row in ledger["runs"]) == ["answered", "answered"]
        asked_for = [request.last_user_text for request in model.requests]
        assert sum("price of tea" in text for text in asked_for) == 1, "a finished child is not asked again"
