"""Rights of people in a real gateway on Telegram: each test is an attack that once worked."""

from __future__ import annotations

import hashlib
import json
import re
import zipfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from hermes_state.session_db import SessionDB
from hermes_testing.scenario import Scenario
from hermes_testing.scripted.model import ScriptedModel, always, say
from hermes_testing.telegram.client import FakePerson
from hermes_testing.telegram.faults import OFF
from hermes_testing.telegram.server import FakeTelegram

pytestmark = pytest.mark.slow

CONFIG = {"auto_title": False}
OPS = """
import subprocess

def register(ctx):
    ctx.register_command("ops", lambda args: subprocess.run(args, shell=True, capture_output=True, text=True).stdout)
"""
DICE = """
def register(ctx):
    ctx.register_command("dice", dice, roles=("owner", "admin", "member", "guest"))

def dice(raw_args, asker):
    return f"{asker.role} on {asker.platform}: {asker.person_id}"
"""


def answer(person: FakePerson, text: str) -> str:
    """What the gateway replies to this message."""
    said = person.say(text)
    return person.expect("", after=said.message).text


def forged(archive: Path, changes: dict[str, str], *, without: tuple[str, ...] = ()) -> Path:
    """An archive after its maker has replaced words in it, checksums included."""
    with zipfile.ZipFile(archive) as file:
        found = {name: file.read(name) for name in file.namelist()}
    manifest = json.loads(found.pop("manifest.json"))
    for name, data in found.items():
        for old, new in changes.items():
            data = data.replace(old.encode(), new.encode())
        found[name] = b"" if name in without else data
    manifest["files"] = {
        name: {"rows": data.count(b"\n"), "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for name, data in found.items()
    }
    target = archive.with_name("forged.zip")
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in {"manifest.json": json.dumps(manifest).encode(), **found}.items():
            file.writestr(name, data)
    return target


def requests_said(model: ScriptedModel) -> list[str]:
    return [request.body.decode() for request in model.requests]


@pytest.mark.parametrize("without", [(), ("routes.jsonl",)], ids=["with-route", "without-route"])
def test_an_archive_does_not_lead_a_chat_to_a_conversation_of_its_maker(
    tmp_path: Path, without: tuple[str, ...]
) -> None:
    model = ScriptedModel(always(say("understood")))
    with Scenario(FakeTelegram(flood=OFF), model, home=tmp_path / "home", config=CONFIG) as scene:
        bob, carol = scene.member("bob"), scene.member("carol")
        scene.start()
        assert answer(bob, "hello, I am bob") == "understood"
        listed = json.loads(scene.hermes("sessions", "list", "--json"))
        scene.stop()
        (session,) = (row["id"] for row in listed)
        scene.hermes("sessions", "export", str(tmp_path / "innocent.zip"), session)
        evil = forged(
            tmp_path / "innocent.zip",
            {session: "20261115_010101_deadbeef", str(bob.id): str(carol.id)},
            without=without,
        )
        said = scene.hermes("sessions", "import", str(evil))
        scene.start()
        assert answer(carol, "private: my diagnosis is X7") == "understood"
        assert "hello, I am bob" not in requests_said(model)[-1]
        assert "deadbeef" not in answer(bob, "/sessions")
        assert answer(bob, "/resume 20261115_010101_deadbeef").startswith("You have no conversation")
        answer(bob, "go on")
        assert "go on" in requests_said(model)[-1] and "X7" not in requests_said(model)[-1]
        assert "private: my diagnosis" in answer(carol, "/sessions")
        assert "holds no rights and no routes" in said


@pytest.mark.parametrize("commands_first", [False, True])
def test_a_route_to_another_persons_conversation_is_not_used(tmp_path: Path, *, commands_first: bool) -> None:
    """Whatever put it there, such as an older version or a hand in the database."""
    model = ScriptedModel(always(say("understood")))
    with Scenario(FakeTelegram(flood=OFF), model, home=tmp_path / "home", config=CONFIG) as scene:
        bob, carol = scene.member("bob"), scene.member("carol")
        scene.start()
        answer(bob, "hello, I am bob")
        answer(carol, "hello, I am carol")
        scene.stop()
        of = _routes(scene.home)
        with closing(SessionDB(scene.home / "state.db")) as db:
            db.ledger.switch(f"agent:main:telegram:dm:{carol.id}", of[str(bob.id)], scope="sessions")
        assert _routes(scene.home)[str(carol.id)] == of[str(bob.id)]
        scene.start()
        if commands_first:
            assert answer(carol, "/title Stolen") == "Title: Stolen"
            assert answer(bob, "/title") == "This conversation has no title yet. /title TEXT gives it one."
        assert answer(carol, "private: my diagnosis is X7") == "understood"
        assert "hello, I am bob" not in requests_said(model)[-1]
        assert answer(bob, "go on") == "understood"
        assert "X7" not in requests_said(model)[-1]
        assert "hello, I am bob" in requests_said(model)[-1], "his own conversation goes on"
        now = _routes(scene.home)
        assert now[str(bob.id)] == of[str(bob.id)]
        assert now[str(carol.id)] not in of.values()
        logged = scene.log(200)
        assert "led to another person's conversation" in logged
        assert answer(carol, "and on") == "understood"
        assert "X7" in requests_said(model)[-1], "the new conversation is hers"


def test_a_slash_command_of_a_plugin_is_for_staff_unless_it_says_otherwise(tmp_path: Path) -> None:
    for name, code in (("ops", OPS), ("dice", DICE)):
        folder = tmp_path / "home" / "plugins" / name
        folder.mkdir(parents=True)
        (folder / "plugin.yaml").write_text(f"name: {name}\nversion: '1'\n", encoding="utf-8")
        (folder / "__init__.py").write_text(code, encoding="utf-8")
    config = {**CONFIG, "plugins": {"enabled": ["ops", "dice"]}}
    environment = {"TELEGRAM_ALLOW_ALL_USERS": "true"}
    with Scenario(FakeTelegram(flood=OFF), home=tmp_path / "home", config=config, environment=environment) as scene:
        ada, bob, mallory = scene.owner("ada"), scene.member("bob"), scene.stranger("mallory")
        scene.start()
        assert "guest" in answer(mallory, "/whoami")
        for person, role in ((mallory, "guest"), (bob, "member")):
            assert answer(person, "/ops touch owned; echo ran") == f"/ops is not for {role}s."
            assert "/ops" not in answer(person, "/commands")
        assert not (scene.home / "owned").exists()
        assert answer(ada, "/ops echo ran").strip() == "ran"
        told = [answer(person, "/dice") for person in (mallory, bob, ada)]
        roles = [f"{role} on telegram" for role in ("guest", "member", "owner")]
        assert [one.rpartition(": ")[0] for one in told] == roles
        people = json.loads(scene.hermes("people", "list", "--json"))
        known = {one["native_id"]: row["id"] for row in people for one in row["accounts"]}
        assert [one.rpartition(": ")[2] for one in told] == [known[str(who.id)] for who in (mallory, bob, ada)]


def test_a_hook_of_the_home_runs_only_when_the_configuration_names_it(tmp_path: Path) -> None:
    folder = tmp_path / "home" / "hooks" / "audit"
    folder.mkdir(parents=True)
    (folder / "HOOK.yaml").write_text("name: audit\nevents: ['command:whoami']\n", encoding="utf-8")
    code = "from pathlib import Path\nPath(__file__).with_name('ran').touch()\ndef handle(event, context): ...\n"
    (folder / "handler.py").write_text(code, encoding="utf-8")
    line = "hermes config set hooks.enabled '[audit]'"
    config = {**CONFIG, "model": "demo", "hooks": {"enabled": []}}
    with Scenario(FakeTelegram(flood=OFF), home=tmp_path / "home", config=config) as scene:
        ada = scene.owner("ada")
        scene.start()
        assert "owner" in answer(ada, "/whoami")
        assert not (folder / "ran").exists()
        assert scene.log(200).count(line) == 1
        assert line in scene.hermes("config", "check")
        checks = json.loads(scene.hermes("doctor", "--json"))["checks"]
        assert [one["fix"] for one in checks if one["check"] == "hooks"] == [line]
        scene.config["hooks"] = {"enabled": ["audit"]}
        scene.restart()
        assert (folder / "ran").exists()
        assert line not in scene.hermes("config", "check")


def test_a_spent_budget_is_told_as_one_and_another_time_zone_does_not_refill_it(tmp_path: Path) -> None:
    model = ScriptedModel(always(say("understood")))
    config = {**CONFIG, "budget": {"person_day": {"tokens": 20_000}}, "model": {"max_tokens": 1_000}}
    with Scenario(FakeTelegram(flood=OFF), model, home=tmp_path / "home", config=config) as scene:
        bob = scene.member("bob")
        scene.start()
        replies = []
        for number in range(40):
            replies.append(answer(bob, f"say it, number {number}"))
            if "understood" not in replies[-1]:
                break
        assert len(replies) > 1 and "your spending limit for today is 20,000 tokens" in replies[-1]
        assert "context window" not in replies[-1]
        for zone in ("Pacific/Pago_Pago", "Pacific/Kiritimati"):
            assert zone in answer(bob, f"/timezone {zone}")
            assert "your spending limit for today" in answer(bob, "and now?")


def test_a_title_of_another_person_is_neither_taken_nor_told(tmp_path: Path) -> None:
    model = ScriptedModel(always(say("understood")))
    with Scenario(FakeTelegram(flood=OFF), model, home=tmp_path / "home", config=CONFIG) as scene:
        ada, bob = scene.owner("ada"), scene.member("bob")
        scene.start()
        for person in (ada, bob):
            answer(person, "hello")
        assert answer(ada, "/title Private Title") == "Title: Private Title"
        assert answer(bob, "/title Private Title") == "Title: Private Title"
        answer(bob, "/branch")
        assert answer(bob, "/title") == "Title: Private Title #2"
        answer(ada, "/branch")
        assert answer(ada, "/title") == "Title: Private Title #2", "the numbers of others do not count"
        answer(ada, "/new")
        assert answer(ada, "hello again") == "understood"
        assert "already" in answer(ada, "/title Private Title"), "one's own titles stay unique"


def test_strangers_cannot_hold_all_pairing_codes(tmp_path: Path) -> None:
    few = {**CONFIG, "limits": {"pairing_pending": 3}}
    with Scenario(FakeTelegram(flood=OFF), home=tmp_path / "home", config=few) as scene:
        strangers = [scene.stranger(name) for name in ("eve", "mallory", "trent", "carol")]
        scene.start()
        codes = [re.findall(r"Your code is (\w+)", answer(one, "let me in"))[0] for one in strangers]
        waiting = [one["native_id"] for one in json.loads(scene.hermes("pairing", "list", "--json"))["pending"]]
        assert waiting == [str(one.id) for one in strangers[1:]], "the oldest code ended"
        said = strangers[0].say("let me in")
        strangers[0].expect_silence(after=said.message)
        scene.hermes("pairing", "approve", "telegram", codes[-1])
        strangers[-1].expect("You now have access")
        assert "member" in answer(strangers[-1], "/whoami")


def test_guests_have_no_skills(tmp_path: Path) -> None:
    folder = tmp_path / "home" / "skills" / "deploy"
    folder.mkdir(parents=True)
    written = "---\nname: deploy\ndescription: how we deploy\n---\nThe host is prod-7.\n"
    (folder / "SKILL.md").write_text(written, encoding="utf-8")
    model = ScriptedModel(always(say("understood")))
    environment = {"TELEGRAM_ALLOW_ALL_USERS": "true"}
    with Scenario(
        FakeTelegram(flood=OFF), model, home=tmp_path / "home", config=CONFIG, environment=environment
    ) as scene:
        bob, mallory = scene.member("bob"), scene.stranger("mallory")
        scene.start()
        answer(bob, "hello")
        assert "skill_view" in requests_said(model)[-1] and "how we deploy" in requests_said(model)[-1]
        assert "deploy" in answer(bob, "/skills")
        answer(mallory, "hello")
        assert "skill" not in requests_said(model)[-1] and "how we deploy" not in requests_said(model)[-1]
        assert answer(mallory, "/skills") == "/skills is not for guests."


def _routes(home: Path) -> dict[str, Any]:
    with closing(SessionDB(home / "state.db", read_only=True)) as db:
        rows = db.load_gateway_routing_entries(scope="sessions")
    return {re.split(":", key)[-1]: json.loads(text)["session_id"] for key, text in rows.items()}
