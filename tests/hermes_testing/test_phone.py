"""The pretend phone: in a window, and in a pipe."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from tests.support.screen_terminal import ScreenTerminal

from hermes_cli.framework.text import width as cells
from hermes_testing.phone import app, screen
from hermes_testing.phone.screen import Style
from hermes_testing.telegram.server import FakeTelegram, announce

pytestmark = pytest.mark.slow

BUTTONS = {"inline_keyboard": [[{"text": "Once", "callback_data": "o"}, {"text": "Deny", "callback_data": "d"}]]}


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeTelegram]:
    with FakeTelegram() as server:
        server.person("ada")
        announce(tmp_path / "phone.json", server.address, server.token)
        yield server


def bot(fake: FakeTelegram, method: str, **parameters: object) -> dict[str, int]:
    answer = httpx2.post(f"{fake.base_url}{fake.token}/{method}", json=parameters, trust_env=False).json()
    assert answer["ok"], answer
    result: dict[str, int] = answer["result"]
    return result


def _phone(tmp_path: Path) -> list[str]:
    return [sys.executable, "-m", "hermes_testing.phone", "--as", "ada", "--at", str(tmp_path / "phone.json")]


class Window(ScreenTerminal):
    """The phone in a window of 60 × 24."""

    def __init__(self, tmp_path: Path) -> None:
        super().__init__(_phone(tmp_path), columns=60, lines=24)


def test_a_chat_in_a_window(fake: FakeTelegram, tmp_path: Path) -> None:
    ada = fake.person("ada")
    with Window(tmp_path) as window:
        assert "pretend Telegram" in window.see("Nothing yet. Write to Hermes.")
        window.type("hello 京都")
        fake.wait(lambda: len(ada.messages()) == 1, "the message")
        bot(fake, "sendChatAction", chat_id=ada.id, action="typing")
        window.see("Hermes is typing…")
        sent = bot(fake, "sendMessage", chat_id=ada.id, text="Draft")
        assert "hello 京都 ▐" in window.see("▌ Draft")
        bot(
            fake,
            "editMessageText",
            chat_id=ada.id,
            message_id=sent["message_id"],
            text="Finished",
            reply_markup=BUTTONS,
        )
        shown = window.see("[1 Once]  [2 Deny]")
        assert "▌ Finished" in shown
        assert "Draft" not in shown
        assert "edited" in shown
        window.type("2")
        fake.wait(lambda: fake.updates()[-1]["kind"] == "callback_query", "the press")
        press = fake.updates()[-1]["body"]["callback_query"]
        bot(fake, "answerCallbackQuery", callback_query_id=press["id"], text="as you wish")
        window.see("as you wish")
        assert press["data"] == "d"
        assert len(ada.messages()) == 2  # the number was a press, not a message
        window.type(":edit hello 奈良")
        fake.wait(lambda: ada.messages()[0].text == "hello 奈良", "the edit")
        window.type(f":file {tmp_path / 'phone.json'}")
        fake.wait(lambda: len(ada.messages()) == 3, "the file")
        assert "phone.json" in window.see("📎")
        window.type(":file /nowhere")
        window.see("there is no file /nowhere")
        window.press("ctrl-d")
        assert window.end() == 0
        assert "\x1b[?1049l" in window.raw  # the screen from before is back


def test_lines_that_come_at_once_are_a_message_each(fake: FakeTelegram, tmp_path: Path) -> None:
    ada = fake.person("ada")
    with Window(tmp_path) as window:
        window.see("Nothing yet")
        window.keys("one\rtwo\rthree\r")
        fake.wait(lambda: len(ada.messages()) == 3, "the messages")
        assert [message.text for message in ada.messages()] == ["one", "two", "three"]


def test_a_terminal_that_is_gone_ends_it(fake: FakeTelegram, tmp_path: Path) -> None:
    """Also below a program that keeps SIGHUP to itself, as make does."""
    below = ["sh", "-c", "trap '' HUP; \"$@\"; exit $?", "sh", *_phone(tmp_path)]
    window = ScreenTerminal(below, env={"PYTHONUNBUFFERED": ""}, columns=60, lines=24)  # as on most machines
    window.see("Nothing yet")
    os.close(window._window)
    deadline = time.monotonic() + 10
    while not (ended := os.waitpid(window.pid, os.WNOHANG))[0]:
        assert time.monotonic() < deadline, "it lives on without a terminal"
        time.sleep(0.05)
    assert os.waitstatus_to_exitcode(ended[1]) == 129


def test_it_finds_the_next_pretend_telegram_by_itself(tmp_path: Path) -> None:
    with FakeTelegram() as first:
        ada = first.person("ada")
        announce(tmp_path / "phone.json", first.address, first.token)
        window = Window(tmp_path)
        window.see("Nothing yet")
        ada.say("hello")
        bot(first, "sendMessage", chat_id=ada.id, text="from the first")
        bot(first, "sendChatAction", chat_id=ada.id, action="typing")
        window.see("Hermes is typing…")
    with window:
        assert "is typing" not in window.see("no connection to the pretend Telegram")
        window.type("hello again")
        assert "> hello again" in window.see("not sent")
        with FakeTelegram() as second:
            ada = second.person("ada")
            announce(tmp_path / "phone.json", second.address, second.token)
            assert "from the first" not in window.see("Nothing yet")
            ada.say("hello")
            bot(second, "sendMessage", chat_id=ada.id, text="from the second")
            assert "no connection" not in window.see("from the second")
            window.type("")
            second.wait(lambda: [seen.text for seen in ada.messages() if seen.mine][-1] == "hello again", "the message")


def test_the_help_fits_a_window_of_80_columns() -> None:
    assert cells(app._HELP) <= 77


def test_a_long_line_stays_on_its_row(fake: FakeTelegram, tmp_path: Path) -> None:
    with Window(tmp_path) as window:
        window.see("Nothing yet")
        window.keys("京" * 40 + " the end")
        shown = window.see("the end")
        assert max(cells(line) for line in shown.splitlines()) <= 60
        assert len(shown.splitlines()) == 24
        window.keys("\x1b[H")
        assert "the end" not in window.see(f"> {'京' * 27}")
        window.press("ctrl-c")
        assert window.end() == 0


def test_in_a_pipe(fake: FakeTelegram, tmp_path: Path) -> None:
    ada = fake.person("ada")
    ada.say("before")

    def answering() -> None:
        said = ada.messages()[-1].id
        fake.wait(lambda: ada.messages()[-1].id > said, "the first line")
        sent = bot(fake, "sendMessage", chat_id=ada.id, text="Dra ▉")
        time.sleep(0.8)  # more than it waits for an answer that rests: this one is still being written
        bot(fake, "editMessageText", chat_id=ada.id, message_id=sent["message_id"], text="Draft\x1b[2J\nof two lines")
        fake.wait(lambda: ada.messages()[-1].mine, "the second line")
        bot(fake, "sendMessage", chat_id=ada.id, text="May I?", reply_markup=BUTTONS)

    thread = threading.Thread(target=answering)
    thread.start()
    result = _piped(tmp_path, "one\ntwo\n", "--settle", "0.3")
    thread.join()
    assert result.stdout.splitlines() == [
        "Ada: one",
        "Hermes: Draft·[2J",
        "    of two lines",
        "Ada: two",
        "Hermes: May I?",
        "    [1] Once",
        "    [2] Deny",
    ]
    assert (result.returncode, result.stderr) == (0, "")


def test_in_a_pipe_silence_is_told(fake: FakeTelegram, tmp_path: Path) -> None:
    result = _piped(tmp_path, "anybody?\n", "--wait", "0.4", "--settle", "0.1")
    assert result.stdout.splitlines() == ["Ada: anybody?", "(no answer within 0.4 s)"]
    assert result.returncode == 1


def test_without_a_telegram_it_says_what_to_do(tmp_path: Path) -> None:
    result = _piped(tmp_path, "")
    assert (result.returncode, result.stdout) == (1, "")
    names = f"({tmp_path / 'phone.json'} names none)"
    assert result.stderr == f"phone: no demo is running here {names}: first make run, in another terminal\n"
    announce(tmp_path / "phone.json", "http://127.0.0.1:9", "1:x")
    assert _piped(tmp_path, "").stderr.endswith("does not answer: first make run, in another terminal\n")


def _piped(tmp_path: Path, lines: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [*_phone(tmp_path), *arguments]
    return subprocess.run(command, input=lines, capture_output=True, text=True, timeout=60, check=False)


def test_no_line_is_wider_than_the_window(fake: FakeTelegram) -> None:
    ada = fake.person("ada")
    ada.say("京都" * 200)
    bot(fake, "sendMessage", chat_id=ada.id, text="x" * 300 + " word " * 50 + "\n    indented", reply_markup=BUTTONS)
    for width in (24, 40, 80, 200):
        shown = screen.lines(ada.look(), width, Style(colour=False))
        assert max(cells(line) for line in shown) <= width
        assert sum(line.count("京") for line in shown) == 200
        assert any("    indented" in line for line in shown)
