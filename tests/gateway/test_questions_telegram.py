"""Questions of permission over Telegram, with a real gateway process: pressed, refused, and open while it is killed."""

from __future__ import annotations

from hermes_testing.scenario import Scenario
from hermes_testing.scripted_model import ScriptedModel, call, say
from hermes_testing.telegram_server import FakeTelegram

WIPE = say(calls=[call("terminal", {"command": "rm -rf old"})])


def test_leave_is_asked_for_pressed_and_shown_and_survives_a_kill() -> None:
    with Scenario(FakeTelegram(), ScriptedModel(WIPE, say("It is gone.")), config={"auto_title": False}) as scene:
        ada = scene.owner("ada")
        scene.start()
        ada.say("tidy up")
        asked = ada.expect("rm -rf old")
        assert asked.labels == [
            "This command for this task", "This command once", "This command in this conversation",
            "This command always", "Deny",
        ]  # fmt: skip
        scene.wait(lambda: "sent" in scene.hermes("outbox", "list", "--state", "sent", "--json"), "it counts as sent")
        scene.kill()
        scene.start()
        ada.press("This command once", message=asked.id)
        ada.expect("It is gone.")
        scene.wait(lambda: "allowed, this once" in ada.chat_text(), "the question shows its answer")
        shown = [one for one in ada.replies() if "rm -rf old" in one.text]
        assert len(shown) == 1 and shown[0].labels == []


def test_an_admin_is_told_who_was_asked_and_cannot_answer_themselves() -> None:
    with Scenario(FakeTelegram(), ScriptedModel(WIPE, say("I was not allowed to."))) as scene:
        ada, bob = scene.owner("ada"), scene.member("bob")
        scene.config = {"auto_title": False, "gateway": {"admins": [f"telegram:{bob.id}"]}}
        scene.start()
        ada.say("/whoami")
        ada.expect("owner")
        bob.say("tidy up")
        asked = ada.expect("rm -rf old")
        assert f"telegram:{bob.id}" in asked.text
        bob.expect(f"telegram:{ada.id}")
        number = next(word for word in asked.text.split() if word.startswith("ask_"))
        bob.say(f"/approve {number} always")
        bob.expect("cannot allow this yourself")
        ada.press("Deny", message=asked.id)
        bob.expect("I was not allowed to.")
