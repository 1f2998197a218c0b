"""Turns that wait for permission, over Telegram with its flood control and a real gateway: nights, words, kills."""

from __future__ import annotations

import tempfile
import time
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from hermes_agent import process_identity
from hermes_state import SessionDB
from hermes_state.turns.approvals import Approval
from hermes_testing.scenario import Scenario
from hermes_testing.scripted.model import ScriptedModel, call, say
from hermes_testing.scripted.steps import Step, text_of
from hermes_testing.telegram.client import FakePerson, SeenMessage
from hermes_testing.telegram.server import FakeTelegram

pytestmark = pytest.mark.slow

RUN = "rm -rf old; echo ran >> log.txt; sleep {}"


def scenario(*steps: Step, seconds: float = 0, home: Path | None = None, found: bool = False) -> Scenario:
    """`found`: the model calls the tool through `use_tool`."""
    arguments = {"command": RUN.format(seconds)}
    made = call("use_tool", {"name": "terminal", "arguments": arguments}) if found else call("terminal", arguments)
    first = say(calls=[made])
    config = {"auto_title": False, "approvals": {"timeout": 1}}
    return Scenario(FakeTelegram(), ScriptedModel(first, *steps), config=config, home=home)


def put_down(scene: Scenario, ada: FakePerson) -> SeenMessage:
    """Ask for something that nobody answers in time: the card of the question, which stays open."""
    scene.start()
    ada.say("tidy up")
    ada.expect("stays open for 24h")
    return next(one for one in ada.replies() if one.labels)


def number(card: SeenMessage) -> str:
    return next(word for word in card.text.split() if word.startswith("ask_")).rstrip(".")


def ran(scene: Scenario) -> int:
    log = scene.home / "workspace" / "log.txt"
    return len(log.read_text().splitlines()) if log.exists() else 0


def question(scene: Scenario, card: SeenMessage) -> Approval:
    with closing(SessionDB(scene.home / "state.db")) as db:
        found = db.approvals.get(number(card))
    assert found is not None
    return found


def told(scene: Scenario) -> str:
    """The last words of the last request to the model."""
    assert scene.model is not None
    return text_of(scene.model.requests[-1].messages[-1]["content"])


def hours_pass(home: Path, hours: float) -> None:
    """While no gateway runs: everything that is stored happened that much earlier."""
    with apsw.Connection(str(home / "state.db")) as store:
        for table in [name for (name,) in store.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]:
            times = [
                row[1] for row in store.execute(f"PRAGMA table_info({table})") if row[1].endswith(("_at", "stamp"))
            ]
            if times:
                moved = ", ".join(f"{one} = {one} - {hours * 3_600}" for one in times)
                store.execute(f"UPDATE {table} SET {moved}")
    store.close()


def test_asked_at_18_and_answered_at_8_from_another_chat_of_the_owner() -> None:
    with scenario(say("It is late."), say("Tidied up.")) as scene:
        ada, office = scene.owner("ada"), scene.owner("office")
        card = put_down(scene, ada)
        ada.say("what time is it?")
        ada.expect("It is late.")
        for _ in range(2):
            scene.stop()
            hours_pass(scene.home, 7)
            scene.start()
        assert ran(scene) == 0 and question(scene, card).state == "pending"
        office.say(f"/approve {number(card)}")
        office.expect("Allowed, this once")
        ada.expect("Tidied up.")
        scene.wait(lambda: "allowed, this once" in ada.chat_text(), "the card shows its answer")
        scene.restart()
        ada.expect_silence(1.0, after=ada.replies()[-1].id)
        asked = question(scene, card)
        assert ran(scene) == 1 and asked.state == "used" and asked.call["text"] == RUN.format(0)
        assert [one.text for one in ada.replies()].count("Tidied up.") == 1
        assert "gave permission" in told(scene)


def test_a_bare_word_after_something_else_was_said_is_for_the_model() -> None:
    words = ("yes", "no", "ok")
    steps = [say(text) for word in words for text in (f"Shall I tell the story of {word}?", f"Once there was {word}.")]
    with scenario(*steps, say("Tidied up.")) as scene:
        ada = scene.owner("ada")
        card = put_down(scene, ada)
        for word in words:
            ada.say("I am bored")
            ada.expect(f"Shall I tell the story of {word}?")
            time.sleep(3.1)
            ada.say(word)
            ada.expect(f"Once there was {word}.")
            assert told(scene).endswith(word) and question(scene, card).state == "pending" and ran(scene) == 0
        ada.say("/approve")
        ada.expect(f"1 question open. Reply to the one you mean, or give its id:\n{number(card)}")
        assert question(scene, card).state == "pending"
        ada.say("yes", reply_to=card.id)
        ada.expect("Tidied up.")
        assert ran(scene) == 1


def test_a_bare_word_to_the_last_thing_that_was_said_answers_after_a_restart() -> None:
    with scenario(say("Tidied up."), found=True) as scene:
        ada = scene.owner("ada")
        put_down(scene, ada)
        scene.restart()
        time.sleep(3.1)
        ada.say("yes")
        ada.expect("Tidied up.")
        assert ran(scene) == 1


def test_words_that_are_no_answer_keep_their_place() -> None:
    with scenario(say("Yes?"), say("One."), say("Two.")) as scene:
        ada = scene.owner("ada")
        put_down(scene, ada)
        ada.say("are you there?")
        ada.expect("Yes?")
        scene.stop()
        ada.say("ok")
        ada.say("go on")
        scene.start()
        ada.expect("Two.")
        assert scene.model is not None
        said = [text_of(one["content"]) for one in scene.model.requests[-1].messages if one["role"] == "user"]
        assert [text.rpartition("\n")[2] for text in said[-2:]] == ["ok", "go on"]


def test_it_is_cancelled_from_a_shell_and_the_card_says_so() -> None:
    with scenario() as scene:
        ada = scene.owner("ada")
        card = put_down(scene, ada)
        with closing(SessionDB(scene.home / "state.db")) as db:
            (turn,) = db.turns.waiting()
        assert "its question is closed" in scene.hermes("turns", "cancel", turn.id)
        scene.wait(lambda: "cancelled with hermes turns cancel" in ada.chat_text(), "the card says why")
        assert question(scene, card).state == "revoked" and ran(scene) == 0
        with closing(SessionDB(scene.home / "state.db")) as db:
            assert not db.turns.waiting()


def test_a_call_that_was_cut_off_after_the_answer_is_not_run_again_and_both_are_told() -> None:
    with scenario(say("I had better look."), seconds=30) as scene:
        ada = scene.owner("ada")
        card = put_down(scene, ada)
        ada.press("This command once", message=card.id)
        scene.wait(lambda: ran(scene) == 1, "the call runs")
        scene.kill()
        scene.start()
        assert "its outcome is unknown" in ada.expect("I had better look.").text
        assert "outcome is unknown. It was not repeated" in told(scene) and ran(scene) == 1


@pytest.mark.parametrize("woken", [False, True], ids=["answered", "woken"])
def test_a_crash_between_the_answer_and_the_call_runs_it_once(woken: bool) -> None:
    with tempfile.TemporaryDirectory() as folder, scenario(say("Tidied up."), home=Path(folder)) as scene:
        ada = scene.owner("ada")
        card, gone = put_down(scene, ada), f"{process_identity.machine()}/{scene.pid}/1/gone"
        scene.kill()
        with closing(SessionDB(scene.home / "state.db")) as db:  # as the lost process left it
            asked = db.approvals.get(number(card))
            assert asked is not None
            db.approvals.decide(asked.id, "once", approver_id=asked.requester_id)
            if woken:
                (turn,) = db.turns.waiting()
                lease = db.leases.acquire(turn.conversation_id, holder=gone, ttl=60.0)
                assert lease is not None
                fence, session = lease.fence, turn.session_id
                db.engine.write(lambda conn: db.turns.wake_in(conn, turn.id, fence=fence, session_id=session))
        scene.start()
        ada.expect("Tidied up.")
        assert ran(scene) == 1 and "gave permission" in told(scene)
