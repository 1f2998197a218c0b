"""Two bots in one gateway, `telegram` and `telegram@work`: the same person, the same ids, two of everything else."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from hermes_state.ids import LOCAL_OWNER
from hermes_state.session_db import SessionDB
from hermes_testing.scenario import Scenario, merged
from hermes_testing.scripted.model import ScriptedModel, call, say
from hermes_testing.scripted.steps import Hold, ScriptedRequest, Step, text_of
from hermes_testing.telegram.client import FakePerson
from hermes_testing.telegram.faults import OFF
from hermes_testing.telegram.server import FakeTelegram

pytestmark = pytest.mark.slow

WORK = "654321:the-token-of-the-bot-for-work-is-another"
ADA = 42


@contextmanager
def two_bots(model: ScriptedModel, **more: Any) -> Iterator[tuple[Scenario, FakePerson, FakePerson]]:
    """A scenario with Ada, who owns both bots: as the private one and as the one for work sees her."""
    with FakeTelegram(token=WORK, username="hermes_work_bot", flood=OFF) as work:
        config = {
            "auto_title": False,
            "platforms": {"telegram@work": {"enabled": True, **work.gateway_settings()}},
            "gateway": {"owners": [f"telegram:{ADA}", f"telegram@work:{ADA}"]},
        }
        environment = {"TELEGRAM_BOT_TOKEN__WORK": WORK, "TELEGRAM_HOME_CHANNEL__WORK": str(ADA)}
        private = FakeTelegram(flood=OFF)
        with Scenario(private, model, config=merged(config, more), environment=environment) as scene:
            yield scene, scene.owner("ada", number=ADA), work.person("ada", number=ADA)


def words(request: ScriptedRequest) -> str:
    """The people's words in a conversation, in order; they are all in capitals here."""
    said = (text_of(message["content"]) for message in request.messages if message["role"] == "user")
    return " ".join(re.findall(r"\b[A-Z]{4,}\b", " ".join(said)))


def hearing(hold: Hold, *, at: str) -> Callable[[ScriptedRequest], Step]:
    """A model that says which words it was told in this conversation; it waits at one of them."""

    def improvise(request: ScriptedRequest) -> Step:
        return say("I heard ", words(request), hold=hold if at in words(request) else None)

    return improvise


def texts(person: FakePerson) -> list[str]:
    return [one.text for one in person.replies()]


def test_each_bot_has_its_own_conversation_and_a_crash_mixes_nothing_up() -> None:
    hold = Hold()
    model = ScriptedModel(improvise=hearing(hold, at="HOLD"))
    with two_bots(model, streaming={"enabled": False}) as (scene, private, work):
        scene.start()
        first = private.say("ALPHA"), work.say("BRAVO")
        assert len({(one.chat, one.message) for one in first}) == 1, "the same chat id and message id on both"
        private.expect("I heard ALPHA")
        work.expect("I heard BRAVO")
        private.say("CHARLIE HOLD")
        work.say("DELTA HOLD")
        scene.wait(lambda: model.calls >= 4, "both turns ask the model")
        scene.kill()
        private.say("ECHO")
        hold.release()
        scene.start()
        private.expect("I heard ALPHA CHARLIE HOLD ECHO")
        work.expect("I heard BRAVO DELTA HOLD")
        work.say("FOXTROT")
        work.expect("I heard BRAVO DELTA HOLD FOXTROT")
        time.sleep(1)
        for person, others in ((private, ("BRAVO", "DELTA")), (work, ("ALPHA", "CHARLIE"))):
            shown = texts(person)
            assert len(shown) == len(set(shown)) and not any(one in text for text in shown for one in others), shown
        with closing(SessionDB(scene.home / "state.db")) as db:
            rows = db.inbox.list(limit=100)
            assert {(row.platform, row.route, row.state) for row in rows} == {
                (name, f"agent:main:{name}:dm:{ADA}", "answered") for name in ("telegram", "telegram@work")
            }
            sent = {(item.platform, item.chat_id) for item in db.outbox.list(limit=100)}
            assert sent == {("telegram", str(ADA)), ("telegram@work", str(ADA))}
            conversations = db.list_sessions_rich(limit=10)
            assert sorted(str(row["source"]) for row in conversations) == ["telegram", "telegram@work"]
        # What the operator sees, and a message from outside, which goes out by the account that it names.
        scene.hermes("send", "telegram@work", "The build is green.")
        work.expect("The build is green.")
        assert "The build is green." not in private.chat_text()
        seen = json.loads(scene.hermes("gateway", "status", "--json"))["platforms"]
        assert {name: one["problem"] for name, one in seen.items()} == {"telegram": "", "telegram@work": ""}
        trace = next(row.trace_id for row in rows if row.platform == "telegram@work")
        assert "telegram@work → inbox" in scene.hermes("trace", trace)
        assert WORK not in scene.log(10_000)


def test_a_question_of_one_account_is_not_answered_in_the_other() -> None:
    danger = call("terminal", {"command": "rm -rf old; echo ran >> log.txt"})
    model = ScriptedModel(say(calls=[danger]), say("You said yes to me."), say("Tidied up."))
    with two_bots(model) as (scene, private, work):
        log = scene.home / "workspace" / "log.txt"
        scene.start()
        work.say("tidy up")
        scene.wait(lambda: any(one.labels for one in work.replies()), "the card")
        assert not any(one.labels for one in private.replies()), "nobody is asked by the other bot"
        time.sleep(3.1)  # sooner, a bare word may be meant for something before the card
        private.say("yes")
        private.expect("You said yes to me.")
        assert not log.exists()
        work.say("yes")
        work.expect("Tidied up.")
        assert log.read_text() == "ran\n"


def test_the_owner_is_asked_about_an_answer_of_an_account_by_that_account() -> None:
    model = ScriptedModel(say("We close at five."), say("We close at six."))
    hold = {"hold": ["telegram:7", "telegram@work:7"]}
    with two_bots(model, delivery=hold, gateway={"owners": []}) as (scene, private, work):
        eve, eve_at_work = scene.member("eve", number=7), work.telegram.person("eve", number=7)
        scene.environment["TELEGRAM_ALLOWED_USERS__WORK"] = "7"
        scene.start()
        scene.config["gateway"] = {"owners": []}
        for name, person in (("telegram", private), ("telegram@work", work)):
            scene.hermes("people", "link", "owner", name, str(ADA))
            person.say("/start")
            person.expect("Hello")
        for asker, near, far, text in (
            (eve_at_work, work, private, "We close at five."), (eve, private, work, "We close at six."),
        ):  # fmt: skip
            asker.say("when do you close?")
            card = near.expect("is held")
            assert text in card.text and text not in far.chat_text()
            near.press("Send", message=card.id)
            asker.expect(text)


def test_access_to_one_account_is_none_to_another() -> None:
    model = ScriptedModel(improvise=lambda request: say("I heard ", words(request)))
    with two_bots(model) as (scene, _, work):
        eve, eve_at_work = scene.member("eve", number=7), work.telegram.person("eve", number=7)
        scene.start()
        eve.say("PRIVATE")
        eve.expect("I heard PRIVATE")
        eve_at_work.say("WORKING")
        code = re.search(r"pairing approve telegram@work (\w{8})", eve_at_work.expect("I do not know you yet").text)
        assert code is not None and model.calls == 1
        scene.hermes("pairing", "approve", "telegram@work", code[1])
        eve_at_work.expect("You now have access")
        eve_at_work.say("AGAIN")
        eve_at_work.expect("I heard AGAIN")
        with closing(SessionDB(scene.home / "state.db")) as db:
            both = [db.people.find(platform=name, native_id="7") for name in ("telegram", "telegram@work")]
            assert None not in both and len({person.id for person in both if person}) == 2, "nobody joined them"
        # And what is taken away in one place stays in the other.
        scene.hermes("pairing", "revoke", "telegram", "7")
        before = model.calls
        eve.say("NOTHING")
        eve.expect_silence(1.0, after=eve.messages()[-1].id)
        eve_at_work.say("THIRD")
        eve_at_work.expect("I heard AGAIN THIRD")
        assert model.calls == before + 1


def test_one_person_of_both_accounts_where_the_owner_says_so() -> None:
    model = ScriptedModel(improvise=lambda request: say("I heard ", words(request)))
    with two_bots(model) as (scene, _, work):
        eve, eve_at_work = scene.member("eve", number=7), work.telegram.person("eve", number=7)
        scene.start()
        eve.say("FIRST")
        eve.expect("I heard FIRST")
        scene.hermes("people", "link", "telegram:7", "telegram@work", "7")
        eve_at_work.say("SECOND")
        assert eve_at_work.expect("I heard SECOND").text == "I heard SECOND", "a conversation of its own"
        with closing(SessionDB(scene.home / "state.db")) as db:
            both = [db.people.find(platform=name, native_id="7") for name in ("telegram", "telegram@work")]
            assert both[0] is not None and both[0] == both[1] and both[0].id != LOCAL_OWNER


def test_two_accounts_never_share_a_bot() -> None:
    model = ScriptedModel(say("Only once."))
    with two_bots(model) as (scene, private, _):
        scene.environment["TELEGRAM_BOT_TOKEN__WORK"] = scene.fake.gateway_environment([])["TELEGRAM_BOT_TOKEN"]
        same = scene.fake.gateway_settings()
        scene.config = merged(scene.config, {"platforms": {"telegram@work": same}})
        scene.start()
        private.say("hello")
        private.expect("Only once.")
        why = "it has the same token as telegram; each account needs its own"
        assert f"telegram@work: {why}" in scene.log(10_000)
        assert why in scene.hermes("gateway", "status")
        with closing(SessionDB(scene.home / "state.db")) as db:
            assert [row.platform for row in db.inbox.list(limit=10)] == ["telegram"]


def test_without_a_token_of_its_own_an_account_takes_no_other() -> None:
    model = ScriptedModel(say("Hello."))
    with two_bots(model) as (scene, private, _):
        del scene.environment["TELEGRAM_BOT_TOKEN__WORK"]
        scene.start()
        private.say("hello")
        private.expect("Hello.")
        missing = "platforms.telegram@work.token (or the variable TELEGRAM_BOT_TOKEN__WORK) is not set"
        assert missing in scene.log(10_000) and missing in scene.hermes("gateway", "status")


def test_an_account_is_set_up_while_the_gateway_serves_the_other() -> None:
    model = ScriptedModel(say("Hello from work."))
    with two_bots(model) as (scene, _, work):
        del scene.environment["TELEGRAM_BOT_TOKEN__WORK"]
        scene.start()
        scene.wait(lambda: '"telegram"' in scene.hermes("gateway", "status", "--json"), "the first heartbeat")
        scene.environment["TELEGRAM_BOT_TOKEN__WORK"] = WORK
        command = [sys.executable, "-m", "hermes_cli", "gateway", "setup", "telegram@work"]
        environment = {**os.environ, **scene.environment, "HERMES_HOME": str(scene.home)}
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
            try:
                assert process.stdout is not None
                code = next(found[1] for line in process.stdout if (found := re.search(r"/start (\w{8}) ", line)))
                work.say(f"/start {code}")
                shown = process.stdout.read()
                assert process.wait(20) == 0 and "hermes gateway restart" in shown
            finally:
                process.kill()
        scene.config["gateway"] = {"owners": []}
        scene.restart()
        work.say("hello")
        work.expect("Hello from work.")


def test_a_reminder_goes_out_by_the_account_that_it_was_set_in() -> None:
    model = ScriptedModel()
    with two_bots(model) as (scene, private, work):
        scene.start()
        work.say("/remind in 2 seconds STANDUP")
        work.expect("STANDUP")
        scene.kill()
        time.sleep(2.1)
        scene.start()
        scene.wait(lambda: any("STANDUP" in one and "remind" not in one.lower() for one in texts(work)[1:]), "it")
        assert "STANDUP" not in private.chat_text()
