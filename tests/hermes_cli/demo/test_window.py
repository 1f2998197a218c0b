"""`hermes demo` at a terminal that draws: the window, the phone and the gateway behind them are one conversation."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.hermes_cli.demo.scene import clone, hermes, processes, until
from tests.support.screen_terminal import ScreenTerminal
from tests.support.terminal import Terminal

from gateway import status
from hermes_testing.telegram.client import RemoteTelegram

pytestmark = [pytest.mark.xdist_group("demo"), pytest.mark.slow]
DEMO = (sys.executable, "-m", "hermes_cli", "demo")
QUIET_SECONDS = 0.7
"""So long no key may have been pressed before one answers a question."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return clone(tmp_path, monkeypatch)


@pytest.fixture
def window(folder: Path) -> Iterator[ScreenTerminal]:
    with ScreenTerminal(DEMO, lines=120) as opened:  # a whole story is on the screen
        opened.see("gateway answers")
        yield opened
    until(lambda: not processes(folder), "the end of the demo's processes")


@pytest.fixture
def telegram(folder: Path, window: ScreenTerminal) -> Iterator[RemoteTelegram]:
    told = json.loads((folder / ".demo" / "phone.json").read_text(encoding="utf-8"))
    with RemoteTelegram(told["address"], told["token"]) as remote:
        yield remote


def faster(folder: Path) -> None:
    config = folder / ".demo" / "config.yaml"
    config.write_text(config.read_text().replace("tokens_per_second: 60", "tokens_per_second: 0"))


def test_desk_and_phone_are_one_conversation_each_answer_once(
    window: ScreenTerminal, telegram: RemoteTelegram, folder: Path
) -> None:
    assert window.raw.index("demo home ./.demo") < window.raw.index("\x1b[?1049h"), "whose home it is comes first"
    ada = telegram.person("ada")
    window.type("what is 2 + 3?")
    window.see("2 + 3 = 5")
    ada.expect("(from the terminal) what is 2 + 3?")
    ada.expect("2 + 3 = 5")
    window.type("ask me something")
    window.see("2. a story")
    window.type("2")
    window.see("The person answers: a story")
    window.see("❯ 2  (went along with the turn above)")
    until(lambda: "next: 2" not in _at_rest(window), "the end of its waiting")
    ada.say("what is 17 * 4?")
    ada.expect("17 * 4 = 68")
    shown = window.see("17 * 4 = 68")
    assert "❯ what is 17 * 4?  (telegram)" in shown and shown.count("17 * 4 = 68") == 1
    ada.say("tell me the long story")
    window.see("there was a small post office")
    assert "The end." not in window.shown and "writing" in window.shown, "it is seen while it is told"
    window.keys("\x1b")
    window.see("interrupted; finished work is kept")
    until(lambda: "Stopped" in ada.chat_text(), "the word that it was stopped, on the phone")
    ada.say("what is 3 + 3?")
    assert "Stopped." not in window.see("3 + 3 = 6"), "told once"
    assert sum("2 + 3 = 5" in message.text for message in ada.messages()) == 1


def _at_rest(window: ScreenTerminal) -> str:
    """The screen once all that was on its way is painted."""
    while window._read(time.monotonic() + 0.1):
        pass
    return window.shown


def test_leave_is_asked_in_both_places_and_given_once_in_either(
    window: ScreenTerminal, telegram: RemoteTelegram, folder: Path
) -> None:
    ada, old = telegram.person("ada"), folder / ".demo" / "workspace" / "old"
    ada.say("delete the folder old")
    box = window.see("[d] Deny (Enter)")
    for told in ("rm -r old", ".demo/workspace", "for     Ada (owner)", "why     rm -r deletes", "expires in "):
        assert told in box, told
    ada.expect("Hermes wants to run a command")
    time.sleep(QUIET_SECONDS)
    window.press("enter")
    window.see("✗ terminal  rm -r old")
    ada.expect("denied")
    assert old.is_dir()
    window.see("ready")
    window.type("delete the folder old")
    window.see("[d] Deny (Enter)")
    until(lambda: ada.chat_text().count("Hermes wants to run a command") == 2, "the question on the phone")
    ada.press("This command once")
    assert "[d]eny" not in window.see("It is gone.")
    shown = window.see("Allowed, this once: rm -r old")
    assert shown.index("Allowed, this once: rm -r old") < shown.index("It is gone.")
    assert not old.exists()


def test_a_kill_in_the_middle_of_an_answer_is_told_and_the_answer_goes_on_once(
    window: ScreenTerminal, telegram: RemoteTelegram, folder: Path
) -> None:
    window.type("tell me the long story")
    window.see("there was a small post office")
    os.kill(_server(window, folder), signal.SIGKILL)
    shown = window.see("a new one continues here")
    assert "nothing leaves this machine" not in shown, "the first screen does not come again"
    assert "The end." not in window.see("harbour town where"), "its beginning is there while it goes on"
    before = status.read_pid(folder / ".demo")
    faster(folder)
    told = hermes("demo", "crash")
    assert "accepted 1, answered 1, doubled 0" in told
    assert status.read_pid(folder / ".demo") not in (None, before)
    shown = window.see("The end. It is also written down.")
    assert shown.count("The conversation that would not be lost") == shown.count("harbour town where") == 1
    assert "· the process that worked on this died; another one continues where it stopped" in shown
    ada = telegram.person("ada")
    stories = [one for one in ada.messages() if "The conversation that would not be lost" in one.text]
    assert len(stories) == 1 and stories[0].edits > 0


def _server(window: ScreenTerminal, folder: Path) -> int:
    """The process behind the window."""
    return next(one for one in processes(folder) if b"tui_gateway" in Path(f"/proc/{one}/cmdline").read_bytes())


def test_two_terminals_and_a_phone_agree(window: ScreenTerminal, telegram: RemoteTelegram, folder: Path) -> None:
    ada, environment = telegram.person("ada"), {"HERMES_HOME": str(folder / ".demo")}
    command = (sys.executable, "-m", "hermes_cli", "--plain", "--resume", "Trip to Kyoto")
    with Terminal(command, env=environment) as lines:
        lines.ready()
        window.type("what is 2 + 3?")
        lines.see("another window > what is 2 + 3?\n2 + 3 = 5\n")
        lines.ready()
        lines.type("what is 4 + 4?")
        lines.see("4 + 4 = 8")
        shown = window.see("4 + 4 = 8")
        assert "❯ what is 4 + 4?  (another window)" in shown
        lines.ready()
        ada.say("what is 17 * 4?")
        lines.see("telegram > what is 17 * 4?\n17 * 4 = 68\n")
        window.see("17 * 4 = 68")
        lines.ready()
        lines.press("ctrl-d")
        assert lines.end() == 0
    for answer in ("2 + 3 = 5", "4 + 4 = 8", "17 * 4 = 68"):
        ada.expect(answer)
        assert lines.shown.count(answer) == window.shown.count(answer) == 1
        assert sum(answer in message.text for message in ada.messages()) == 1


@pytest.mark.parametrize("how", ["ctrl-d", "SIGTERM", "closed"])
def test_whatever_ends_the_window_ends_everything(folder: Path, how: str) -> None:
    terminal = ScreenTerminal(DEMO)
    terminal.see("gateway answers")
    assert len(processes(folder)) == 3, "the pretend Telegram, the gateway, and the window's server"
    if how == "ctrl-d":
        terminal.press("ctrl-d")
        assert terminal.end() == 0
        assert terminal.raw.rfind("\x1b[?1049l") > terminal.raw.rfind("\x1b[?1049h")
        assert "Continue in this shell:" in terminal.shown
    elif how == "SIGTERM":
        os.kill(terminal.pid, signal.SIGTERM)
        assert terminal.end() == 128 + signal.SIGTERM
        assert terminal.raw.rfind("\x1b[?1049l") > terminal.raw.rfind("\x1b[?1049h")
    else:
        os.close(terminal._window)
        assert os.waitstatus_to_exitcode(os.waitpid(terminal.pid, 0)[1]) == 128 + signal.SIGHUP
    until(lambda: processes(folder) == [], "the end of the demo's processes")
