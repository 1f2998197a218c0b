"""A group that becomes a supergroup has another id and is the same room: its conversations go along, rights do not."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from hermes_testing.scenario import Scenario
from hermes_testing.scripted.model import ScriptedModel, always, say
from hermes_testing.telegram.client import FakePerson, until
from hermes_testing.telegram.faults import OFF
from hermes_testing.telegram.server import FakeTelegram

pytestmark = pytest.mark.slow

BOT = "hermes_demo_bot"
Ask = Callable[[FakePerson, str, int], str]


def ask_of(model: ScriptedModel) -> Ask:
    def ask(person: FakePerson, text: str, chat: int) -> str:
        """What the model was sent for this message in the group."""
        before = len(model.requests)
        person.say(f"@{BOT} {text}", chat=chat)
        until(lambda: len(model.requests) > before, lambda: f"the model was not asked {text!r}", 30)
        return model.requests[before].body.decode()

    return ask


def test_the_conversation_of_each_person_goes_along() -> None:
    fake, model = FakeTelegram(flood=OFF), ScriptedModel(always(say("Understood.")))
    ask = ask_of(model)
    with Scenario(fake, model, config={"auto_title": False}) as scene:
        ada, bob = scene.owner("ada"), scene.member("bob")
        scene.start()
        club = fake.group("Club", ada, bob, kind="group")
        ask(ada, "my word is marmalade", club)
        ask(bob, "my word is harbour", club)
        scene.kill()
        new = fake.call("upgrade", name="ada", chat=club)
        scene.start()
        sent = ask(ada, "which is my word?", new)
        assert "marmalade" in sent and "harbour" not in sent
        scene.kill()
        scene.start()
        sent = ask(bob, "and which is mine?", new)
        assert "harbour" in sent and "marmalade" not in sent
        listed = json.loads(scene.hermes("sessions", "list", "--json"))
        assert {row["chat_id"] for row in listed} == {str(new)} and len(listed) == 2
        asked = ada.say(f"/new@{BOT}", chat=new)
        ada.expect("/resume brings others back", chat=new, after=asked.message)
        assert "marmalade" not in ask(ada, "which was it?", new)


def test_who_may_write_there_is_decided_by_the_new_id() -> None:
    fake, model = FakeTelegram(flood=OFF), ScriptedModel(always(say("Understood.")))
    ask = ask_of(model)
    with Scenario(fake, model, config={"auto_title": False}) as scene:
        scene.owner("ada")
        guest = scene.stranger("guest")
        scene.start()
        club = fake.group("Club", guest, kind="group")
        allow = "platforms.telegram.group_allowed_chats"
        scene.hermes("config", "set", allow, f"['{club}']")
        ask(guest, "my word is marmalade", club)
        guest.expect("Understood.", chat=club)
        new = fake.call("upgrade", name="guest", chat=club)
        asked = guest.say(f"@{BOT} which is my word?", chat=new)
        guest.expect_silence(1.0, chat=new, after=asked.message)
        scene.hermes("config", "set", allow, f"['{club}', '{new}']")
        assert "marmalade" in ask(guest, "which is my word?", new)


def test_answers_that_waited_for_the_owner_wait_in_the_new_group_too() -> None:
    fake, model = FakeTelegram(flood=OFF), ScriptedModel(always(say("Understood.")))
    with Scenario(fake, model, config={"auto_title": False}) as scene:
        ada, bob = scene.owner("ada"), scene.member("bob")
        scene.start()
        club = fake.group("Club", ada, bob, kind="group")
        ada.say("hello")
        ada.expect("Understood.")
        ada.say(f"/hold on telegram:{club}")
        ada.expect(f"answers to telegram:{club} wait")
        new = fake.call("upgrade", name="ada", chat=club)
        asked = bob.say(f"@{BOT} when do you close?", chat=new)
        ada.expect("is held")
        assert not bob.replies(chat=new, after=asked.message)
