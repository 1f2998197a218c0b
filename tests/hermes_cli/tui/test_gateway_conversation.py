"""A window at a conversation of a phone, which a gateway drives."""

from __future__ import annotations

import base64
import contextlib
import sys
import time
from pathlib import Path

import pytest
from tests.support.terminal import Terminal

from hermes_state import SessionDB
from hermes_testing.scenario import Scenario
from hermes_testing.scripted.model import ScriptedModel, call, say
from hermes_testing.telegram.faults import OFF
from hermes_testing.telegram.server import FakeTelegram

pytestmark = pytest.mark.slow

CONFIG = {"model": "demo", "demo": {"tokens_per_second": 200}, "auto_title": False}


def test_a_voice_note_of_the_phone_and_a_picture_of_the_window_are_one_conversation(tmp_path: Path) -> None:
    png = b"\x89PNG\r\n\x1a\n" + b"0" * 64
    (tmp_path / "cat.png").write_bytes(png)
    model = ScriptedModel(say("Milk is on the list."), say("A cat."))
    config = {"auto_title": False, "model": {"vision": True}, "stt": {"command": "head -c 4 {file} && echo : buy milk"}}
    with Scenario(FakeTelegram(flood=OFF), model, config=config) as scene:
        ada = scene.owner("ada")
        scene.start()
        ada.voice(b"OggS....")
        ada.expect("🎙 “OggS: buy milk”")
        ada.expect("Milk is on the list.")
        with contextlib.closing(SessionDB(scene.home / "state.db")) as db:
            session = db.list_sessions_rich(limit=1)[0]["id"]
        command = [sys.executable, "-m", "hermes_cli", "--resume", session]
        env = {"TERM": "xterm-256color", "HERMES_HOME": str(scene.home)}
        with Terminal(command, env=env, lines=40, cwd=tmp_path) as terminal:
            terminal.see("buy milk")
            terminal.see("ready")
            terminal.type("what is @cat.png?")
            terminal.see("A cat.")
            ada.expect("(from the terminal) what is @cat.png?")
            ada.expect("A cat.")
            terminal.press("ctrl-d")
            assert terminal.end() == 0
        assert base64.b64encode(png).decode() in model.requests[-1].body.decode()


def test_a_question_of_the_phone_that_waits_is_answered_in_a_window_that_opens_later(tmp_path: Path) -> None:
    model = ScriptedModel(say(calls=[call("terminal", {"command": "rm -rf old"})]), say("Tidied up."))
    config = {"auto_title": False, "approvals": {"timeout": 1}}
    with Scenario(FakeTelegram(), model, config=config) as scene:
        ada = scene.owner("ada")
        scene.start()
        ada.say("tidy up")
        ada.expect("stays open for 24h")
        with contextlib.closing(SessionDB(scene.home / "state.db")) as db:
            session = db.list_sessions_rich(limit=1)[0]["id"]
        command = [sys.executable, "-m", "hermes_cli", "--resume", session]
        env = {"TERM": "xterm-256color", "HERMES_HOME": str(scene.home)}
        with Terminal(command, env=env, lines=40, cwd=tmp_path) as terminal:
            terminal.see("This command once")
            time.sleep(1)  # the first key is no answer to a card that has just appeared
            terminal.keys("o")
            terminal.see("Tidied up.")
            ada.expect("Tidied up.")
            scene.wait(lambda: "allowed, this once" in ada.chat_text(), "the card on the phone shows the answer")
            terminal.press("ctrl-d")
            assert terminal.end() == 0


def test_words_of_a_command_are_shown_with_where_they_were_typed(tmp_path: Path) -> None:
    with Scenario(FakeTelegram(flood=OFF), config=CONFIG) as scene:
        ada = scene.owner("ada")
        scene.start()
        ada.say("hello")
        ada.expect("demo model")
        with contextlib.closing(SessionDB(scene.home / "state.db")) as db:
            session = db.list_sessions_rich(limit=1)[0]["id"]
        command = [sys.executable, "-m", "hermes_cli", "--resume", session]
        env = {"TERM": "xterm-256color", "HERMES_HOME": str(scene.home)}
        with Terminal(command, env=env, lines=40, cwd=tmp_path) as terminal:
            terminal.see("ready")
            terminal.type("/queue what is 2 + 3?")
            terminal.see("2 + 3 = 5")
            assert "❯ what is 2 + 3?" in terminal.shown
            (scene.home / "skills" / "bread").mkdir(parents=True)
            (scene.home / "skills" / "bread" / "SKILL.md").write_text("---\nname: bread\ndescription: x\n---\nBake.\n")
            ada.say("/bread ten loaves")
            terminal.see("❯ /bread ten loaves  (telegram)")
            assert "another window" not in terminal.shown
            terminal.press("ctrl-d")
            assert terminal.end() == 0
