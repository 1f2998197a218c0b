"""Held answers over Telegram with a real gateway: sent, changed, dropped, killed in between, and by nobody else."""

from __future__ import annotations

import json

import pytest

from hermes_testing.scenario import Scenario
from hermes_testing.scripted.model import ScriptedModel, call, say
from hermes_testing.scripted.steps import text_of
from hermes_testing.telegram.faults import OFF
from hermes_testing.telegram.server import FakeTelegram

pytestmark = pytest.mark.slow


def kill_when_quiet(scene: Scenario) -> None:
    """Kill the gateway when it sends nothing: what it was sending would be repeated with a mark."""
    counts = lambda: json.loads(scene.hermes("outbox", "list", "--json"))["counts"]  # noqa: E731
    scene.wait(lambda: not {"pending", "sending"} & set(counts()), "everything is sent")
    scene.kill()


def test_the_owner_changes_drops_and_sends_and_the_model_learns_it() -> None:
    script = ScriptedModel(say("We close at five."), say("Dropped one."), say("Third."), say("Fourth."))
    with Scenario(FakeTelegram(flood=OFF), script) as scene:
        ada, bob = scene.owner("ada"), scene.member("bob")
        scene.config = {"auto_title": False, "delivery": {"hold": [f"telegram:{bob.id}"]}}
        scene.start()
        scene.fake.flood("off")  # type: ignore[attr-defined]
        ada.say("/start")
        ada.expect("Hello")
        bob.say("when do you close?")
        card = ada.expect("is held")
        assert "We close at five." in card.text and card.labels == ["Send", "Edit", "Drop"]
        bob.expect_silence()
        assert not bob.typing()
        assert f"for Bob (telegram:{bob.id}), who wrote: when do you close?" in card.text
        waits = bob.say("/why")
        bob.expect("No answer was sent", after=waits.message)
        number = card.text.split()[1]
        ada.press("Edit", message=card.id)
        ada.expect(f"Reply to the card with the text that should be sent instead, or write /held edit {number}")
        ada.say("We close at six.", reply_to=card.id)
        bob.expect("We close at six.")
        scene.wait(lambda: "changed and sent by Ada" in ada.chat_text(), "the card says what happened")
        bob.say("thanks")
        second = ada.expect("Dropped one.")
        assert script.requests[-1].messages[-1]["content"].endswith("We close at six.\n\nthanks")
        assert "“We close at five.”" in script.requests[-1].messages[-1]["content"]
        ada.press("Drop", message=second.id)
        ada.expect("Dropped.")
        asked = bob.say("/why")
        why = bob.expect("No answer was sent", after=asked.message).text
        assert why.startswith("No answer in ") and "held" not in why and "Ada" not in why
        dropped = next(one for one in json.loads(scene.hermes("turns", "list", "--json"))["turns"])
        assert "Not sent: it was held, and Ada dropped it" in scene.hermes("turns", "show", dropped["id"])
        bob.say("and now?")
        third = ada.expect("Third.")
        assert "was not sent: the owner dropped it" in text_of(script.requests[-1].messages[-1]["content"])
        number = third.text.split()[1]
        told = bob.say(f"/held send {number}")
        bob.expect("no held answer", after=told.message)
        bob.say("hello?")
        fourth = ada.expect("Fourth.")
        ada.press("Send", message=fourth.id)
        ada.expect(f"decide about {number} first")
        assert json.loads(scene.hermes("outbox", "send", number, "--json"))["outcome"] == "sent"
        bob.expect("Third.")
        kill_when_quiet(scene)
        scene.start()
        for _ in range(2):
            ada.press("Send", message=fourth.id)
        bob.expect("Fourth.")
        ada.expect("already decided")
        assert [one.text for one in bob.replies()].count("Fourth.") == 1
        assert [one.text for one in bob.replies() if not any(word in one.text for word in ("held", "No answer"))] == [
            "We close at six.", "Third.", "Fourth.",
        ]  # fmt: skip


def test_a_chat_is_held_by_hand_with_its_files_and_a_kill_loses_and_doubles_nothing() -> None:
    send = say(calls=[call("write_file", {"path": "a.txt", "content": "x"}), call("send_file", {"path": "a.txt"})])
    script = ScriptedModel(send, say("Here it is."), say("Free again."))
    with Scenario(FakeTelegram(flood=OFF), script, config={"auto_title": False}) as scene:
        ada, bob = scene.owner("ada"), scene.owner("bob")
        scene.start()
        scene.fake.flood("off")  # type: ignore[attr-defined]
        ada.say("/start")
        ada.expect("Hello")
        bob.say("/hold on")
        bob.expect(f"answers to telegram:{bob.id} wait")
        bob.say("a file please")
        scene.wait(lambda: sum("is held" in one.text for one in ada.replies()) == 2, "both cards")
        assert "Here it is." not in "".join(one.text for one in bob.replies() if "is held" not in one.text)
        file, answer = (one for one in ada.replies() if "is held" in one.text)
        assert file.labels == ["Send", "Drop"] and "file: a.txt" in file.text
        kill_when_quiet(scene)
        for _ in range(3):
            ada.press("Send", message=file.id)
        scene.start()
        scene.wait(lambda: sum(bool(one.file) for one in bob.replies()) == 1, "the file")
        kill_when_quiet(scene)  # decided beside a dead gateway, and sent by the next one
        number = answer.text.split()[1]
        assert json.loads(scene.hermes("outbox", "edit", number, "There.", "--json"))["outcome"] == "edited"
        scene.start()
        bob.expect("There.")
        bob.say("/hold off")
        bob.expect("sent at once again")
        bob.say("and now?")
        bob.expect("Free again.")
        assert sum(bool(one.file) for one in bob.replies()) == 1
        assert sum(one.text == "There." for one in bob.replies()) == 1


def test_in_a_group_nobody_reads_that_an_answer_was_held_and_nobody_elses_receipt() -> None:
    script = ScriptedModel(say("We close at five."), say("Private."))
    with Scenario(FakeTelegram(flood=OFF), script, config={"auto_title": False}) as scene:
        ada, bob = scene.owner("ada"), scene.member("bob")
        scene.start()
        scene.fake.flood("off")  # type: ignore[attr-defined]
        group = scene.fake.group("Shop", ada, bob)  # type: ignore[attr-defined]
        ada.say("/start")
        ada.expect("Hello")
        ada.say(f"/hold on telegram:{group}")
        ada.expect(f"answers to telegram:{group} wait")
        bot = "hermes_demo_bot"
        bob.say(f"@{bot} when do you close?", chat=group)
        card = ada.expect("is held")
        ada.say("We close at six.", reply_to=card.id)
        answer = bob.expect("We close at six.", chat=group)
        for person in (ada, bob):
            asked = person.say("/why", chat=group, reply_to=answer.id)
            told = person.expect("Details: ", chat=group, after=asked.message).text
            assert "Delivered on telegram" in told and "held" not in told, "everybody reads the group"
            turn = told.rsplit(maxsplit=1)[-1]
        asked = ada.say(f"/why {turn}")
        assert "Details: " not in ada.expect("no record", after=asked.message).text
        assert "held, then changed and sent by Ada" in scene.hermes("turns", "show", turn)
        ada.say("just for me")
        private = ada.expect("Private.")
        secret = scene.hermes("turns", "show", "last", "--json")
        for person, chat in ((bob, None), (bob, group), (ada, group)):
            asked = person.say(f"/why@{bot} {json.loads(secret)['turn_id']}", chat=chat)
            person.expect("no record", chat=chat, after=asked.message)
        asked = ada.say("/why", reply_to=private.id)
        ada.expect("Details: ", after=asked.message)
