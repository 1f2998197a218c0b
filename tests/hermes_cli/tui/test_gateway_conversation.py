"""A window at a conversation of a phone, which a gateway drives."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import pytest
from tests.support.terminal import Terminal

from hermes_state import SessionDB
from hermes_testing.scenario import Scenario
from hermes_testing.telegram.server import FakeTelegram

pytestmark = pytest.mark.slow

CONFIG = {"model": "demo", "demo": {"tokens_per_second": 200}, "auto_title": False}


def test_what_was_queued_by_a_command_is_shown_as_one_s_own_words(tmp_path: Path) -> None:
    with Scenario(FakeTelegram(), config=CONFIG) as scene:
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
            assert "❯ what is 2 + 3?" in terminal.shown and "another window" not in terminal.shown
            terminal.press("ctrl-d")
            assert terminal.end() == 0
