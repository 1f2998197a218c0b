"""`/why` over Telegram with a real gateway: ten kinds of turns explain themselves on a phone, each to those who may."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from hermes_testing.scenario import Scenario
from hermes_testing.scripted.model import Hold, ScriptedModel, call, fail, overflow, say
from hermes_testing.scripted.steps import Step
from hermes_testing.telegram.client import FakePerson, SeenMessage
from hermes_testing.telegram.faults import OFF, Fault
from hermes_testing.telegram.server import FakeTelegram

pytestmark = pytest.mark.slow
PRICED = {"auto_title": False, "models": {"scripted-1": {"price": {"input": 1, "output": 2}}}}
END = "Details: hermes turns show turn_"


def run(command: str, **more: object) -> Step:
    return say(calls=[call("terminal", {"command": command, **more})])


def why(person: FakePerson, about: SeenMessage | None) -> list[str]:
    """The lines of the receipt of a message, or of the last answer."""
    asked = person.say("/why", reply_to=0 if about is None else about.id)
    lines = person.expect(END, after=asked.message).text.splitlines()
    assert 3 <= len(lines) <= 12 and lines[-1].startswith(END) and all(len(line) <= 110 for line in lines)
    return lines


def scene(*steps: Step, home: Path | None = None, **config: object) -> Scenario:
    fake = FakeTelegram(flood=OFF)
    script = ScriptedModel(*steps, allow_rejections=True)
    return Scenario(fake, script, config={**PRICED, **config}, home=home)


@pytest.mark.needs_bubblewrap
def test_seven_kinds_of_turns_explain_themselves() -> None:
    """Plain, tools, allowed, denied, outside the sandbox, failed, compressed; and nobody else's."""
    written = call("write_file", {"path": "a.txt", "content": "x\n[exit code 7]\n"})
    files = say(calls=[written, call("read_file", {"path": "a.txt"}), call("read_file", {"path": "none.txt"})])
    steps = (
        say("Hello."), files, run("ls; false"), say("Listed. " * 900), run("rm -rf old"), say("Removed."),
        run("rm -rf new"), say("Not removed."), run("id", outside=True), say("Outside."), fail(401), overflow(),
        say("<summary>All of it.</summary>"), say("After compression."),
    )  # fmt: skip
    with scene(*steps) as stage:
        ada, bob = stage.owner("ada"), stage.member("bob")
        stage.start()
        stage.fake.flood("off")  # type: ignore[attr-defined]
        ada.say("hi")
        plain = why(ada, ada.expect("Hello."))
        assert plain[0].startswith("Answered in") and plain[0].endswith("for Ada on telegram")
        assert plain[1].startswith("Model: scripted-1, 1 call,") and "$0.00" in plain[1]
        assert plain[2].startswith("Delivered on telegram as message")
        ada.say("list")
        text = "\n".join(why(ada, ada.expect("Listed.")))
        assert "Ran ls; false (exit code 1, in the sandbox)" in text
        assert "Read a.txt\nWrote a.txt" in text and "none.txt" not in text
        ada.say("tidy")
        ada.press("This command once", message=ada.expect("rm -rf old").id)
        allowed = why(ada, ada.expect("Removed."))
        assert "Ran rm -rf old (exit code 0, in the sandbox, allowed by Ada, once)" in allowed
        ada.say("tidy more")
        ada.press("Deny", message=ada.expect("rm -rf new").id)
        assert "Asked for rm -rf new (not run, denied by Ada)" in why(ada, ada.expect("Not removed."))
        ada.say("who am I")
        ada.press("This command once", message=ada.expect("outside bubblewrap").id)
        assert "Ran id (exit code 0, outside the sandbox, allowed by Ada, once)" in why(ada, ada.expect("Outside."))
        ada.say("fail")
        failed = why(ada, ada.expect("/retry"))
        assert failed[0].startswith("Failed in") and "refused the key (401)" in failed[0]
        ada.say("go on")
        assert "Compressed once to fit the model." in why(ada, ada.expect("After compression."))
        turns = json.loads(stage.hermes("turns", "list", "--json"))["turns"]
        for asked in ("/why", f"/why {turns[0]['id']}"):
            told = bob.say(asked)
            answer = bob.expect("no", after=told.message).text
            assert "turn_" not in answer and "scripted" not in answer
        shown = json.loads(stage.hermes("turns", "show", turns[0]["id"], "--json"))
        assert shown["compressions"] == 1 and [one["task"] for one in shown["model_calls"]] == ["", "compression", ""]
        document = json.loads(stage.hermes("trace", shown["trace_id"], "--request", "3", "--json"))
        assert document["exact"] and "go on" in document["body"]


def test_stopped_recovered_repeated_and_cut_turns_explain_themselves() -> None:
    stopped, killed = Hold(), Hold()
    steps = (say("Half ", "a word", hold=stopped), say("Half ", "way", hold=killed), say("Survived."), say("Twice?"))
    cut = say("A long story", finish="length")
    with scene(*steps, cut) as stage:
        ada = stage.owner("ada")
        stage.start()
        stage.fake.flood("off")  # type: ignore[attr-defined]
        ada.say("stop me")
        stage.wait(lambda: stopped.is_reached, "the model writes")
        ada.say("/stop")
        ada.expect("Stopped")
        assert why(ada, None)[0].endswith("for Ada on telegram: interrupted by the person")
        ada.say("kill me")
        stage.wait(lambda: killed.is_reached, "the model writes")
        time.sleep(0.5)  # the beginning is shown
        stage.kill()
        stage.start()
        recovered = why(ada, ada.expect("Survived."))
        assert "Recovered: its process died once." in recovered
        stage.fake.faults(Fault("drop_after", method="sendMessage", times=1))  # type: ignore[attr-defined]
        ada.say("again")
        marked = why(ada, ada.expect("(repeated: an earlier copy may have arrived)"))
        assert any("sent again with a mark" in line for line in marked)
        stage.stop()
        stage.config = {**PRICED, "budget": {"day": {"tokens": 40_000}}}
        stage.start()
        ada.say("tell me a story")
        ada.expect("The answer was cut at")
        limited = why(ada, None)
        assert "cut short by a limit" in "\n".join(limited)
