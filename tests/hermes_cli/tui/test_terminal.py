"""At a real terminal: whatever ends the window, the terminal is as it was."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import sys
import termios
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.hermes_cli.tui.conftest import configure
from tests.support.terminal import Terminal
from textual.drivers._writer_thread import MAX_QUEUED_WRITES, WriterThread

from hermes_cli.tui.driver import _Watched
from hermes_state import SessionDB

pytestmark = pytest.mark.slow

_OPENED, _CLOSED = "\x1b[?1049h", "\x1b[?1049l"
Open = Callable[..., Terminal]


@pytest.fixture
def window(place: Path) -> Open:
    """`hermes` at a terminal of 80 × 24."""

    def opened(ahead: str = "", **env: str) -> Terminal:
        terminal = Terminal(
            [sys.executable, "-m", "hermes_cli"], env={"TERM": "xterm-256color", **env}, lines=24, cwd=place
        )
        terminal.keys(ahead)
        terminal.see("ready")
        return terminal

    return opened


def _ended(terminal: Terminal) -> int:
    code = terminal.end()
    raw = terminal.raw
    assert raw.rfind(_CLOSED) > raw.rfind(_OPENED) and raw.rfind("\x1b[?25h") > raw.rfind("\x1b[?25l")
    assert raw.rfind("\x1b[?1000l") > raw.rfind("\x1b[?1000h") and "Traceback" not in raw
    modes = termios.tcgetattr(terminal._window)[3]
    assert modes & termios.ICANON and modes & termios.ECHO
    return code


def test_leaving_says_how_to_go_on(window: Open) -> None:
    with window() as terminal:
        terminal.type("what is 3 * 3?")
        terminal.see("3 * 3 = 9")
        terminal.type("/title Nines")
        terminal.see("Title: Nines")
        terminal.see("context")
        terminal.press("ctrl-d")
        assert _ended(terminal) == 0
        assert re.search(r"Continue it with: hermes --resume \d{8}_\d{6}_[0-9a-f]{8}", terminal.shown)
        assert 'or: hermes --resume "Nines"' in terminal.shown


def test_what_is_typed_before_the_window_is_there_is_not_lost(window: Open) -> None:
    """A person who knows what they want does not wait for the screen."""
    with window(ahead="what is 3 * 4?\rwhat is 5 * 5?") as terminal:
        terminal.see("3 * 4 = 12")
        terminal.keys("\r")
        terminal.see("5 * 5 = 25")
        terminal.press("ctrl-d")
        assert _ended(terminal) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_in_order(window: Open, number: signal.Signals) -> None:
    with window() as terminal:
        os.kill(terminal.pid, number)
        assert _ended(terminal) == 128 + number


def test_an_idle_window_writes_nothing(window: Open) -> None:
    with window() as terminal:
        terminal.type("what is 3 * 3?")
        terminal.see("3 * 3 = 9")
        terminal.see("context")
        painted = time.monotonic() + 30
        while terminal._read(time.monotonic() + 1.5):  # the last of the answer
            assert time.monotonic() < painted, "it never rests"
        before = len(terminal.raw)
        until = time.monotonic() + 1.5
        while time.monotonic() < until:
            terminal._read(until)
        assert terminal.raw[before:] == ""
        terminal.press("ctrl-d")
        assert _ended(terminal) == 0


def test_over_a_slow_link_keys_come_before_the_story(home: Path, place: Path, window: Open) -> None:
    """Some 8 kB a second, where the story alone would take ten times as much."""
    configure(home, pace=200)

    def slowly(most: int, until: str = "") -> int:
        """Reads so many bytes, or up to these words; how many they were: a busy machine is no slower link."""
        read = b""
        while len(read) < most and not (until and until.encode() in read):
            assert select.select([terminal._window], [], [], 30)[0], "nothing is painted any more"
            read += os.read(terminal._window, 400)
            time.sleep(0.05)
        return len(read)

    with window() as terminal:
        terminal.type("tell me the long story")
        terminal.see("harbour")
        slowly(3 * 8_000)
        terminal.keys("QQQQ")
        assert slowly(10 * 8_000, until="QQQQ") < 6 * 8_000
        os.kill(terminal.pid, signal.SIGTERM)
        assert _ended(terminal) == 128 + signal.SIGTERM


def test_ctrl_c_twice_leaves(window: Open) -> None:
    with window() as terminal:
        terminal.press("ctrl-c")
        terminal.see("again leaves")
        terminal.press("ctrl-c")
        assert _ended(terminal) == 0


def test_ctrl_z_gives_the_terminal_back_and_comes_back(window: Open) -> None:
    with window() as terminal:
        terminal.keys("\x1a")
        deadline = time.monotonic() + 10
        while not os.waitpid(terminal.pid, os.WUNTRACED | os.WNOHANG)[0]:
            assert time.monotonic() < deadline
            terminal._read(time.monotonic() + 0.05)
        assert termios.tcgetattr(terminal._window)[3] & termios.ICANON
        os.kill(terminal.pid, signal.SIGCONT)
        while terminal.raw.count(_OPENED) < 2:
            assert terminal._read(deadline)
        terminal.type("what is 2 * 4?")
        terminal.see("2 * 4 = 8")
        terminal.press("ctrl-d")
        assert _ended(terminal) == 0


def test_ctrl_z_under_make_or_a_script_gives_the_shell(place: Path) -> None:
    """Whoever started the window stops with it; else the shell goes on waiting, and the terminal seems to hang."""
    env = {"TERM": "xterm-256color", "PS1": "$ "}
    with Terminal(["bash", "--norc", "--noediting", "-i"], env=env, lines=24, cwd=place) as terminal:
        terminal.type(f"sh -c '{sys.executable} -m hermes_cli; echo went $((40 + 3))'")
        terminal.see("ready")
        terminal.keys("\x1a")
        terminal.see("Stopped")
        terminal.type("echo shell-$((40 + 2))")
        terminal.see("shell-42")
        terminal.type("fg")
        deadline = time.monotonic() + 10
        while terminal.raw.count(_OPENED) < 2:
            assert terminal._read(deadline)
        terminal.type("what is 2 * 4?")
        terminal.see("2 * 4 = 8")
        terminal.press("ctrl-d")
        terminal.see("went 43")
        terminal.type("exit")
        assert _ended(terminal) == 0


def test_bytes_that_are_no_text_and_a_megabyte_are_taken(window: Open) -> None:
    with window() as terminal:
        os.write(terminal._window, b"caf\xe9 \xff\xfe ")
        terminal.see("caf\ufffd")
        body = "\x1b[200~" + ("x" * 79 + "\r") * 12_500 + "\x1b[201~"
        rest = body.encode()
        os.set_blocking(terminal._window, False)
        while rest:
            try:
                rest = rest[os.write(terminal._window, rest[:4_096]) :]
            except BlockingIOError:
                terminal._read(time.monotonic() + 0.02)
        os.set_blocking(terminal._window, True)
        terminal.see("[paste 1: 12,500 lines]")
        terminal.press("ctrl-c")
        terminal.press("ctrl-d")
        assert _ended(terminal) == 0


def test_no_colour_means_none(window: Open) -> None:
    with window(NO_COLOR="1") as terminal:
        terminal.type("hello")
        terminal.see("scripted")
        terminal.press("ctrl-d")
        assert _ended(terminal) == 0
        styles = {code for found in re.findall(r"\x1b\[([0-9;]*)m", terminal.raw) for code in found.split(";")}
        assert not styles & {"38", "48", *map(str, range(30, 38)), *map(str, range(40, 48))}


def test_a_terminal_that_is_gone_ends_window_and_server(window: Open) -> None:
    terminal = window()
    servers = Path(f"/proc/{terminal.pid}/task/{terminal.pid}/children").read_text().split()
    assert len(servers) == 1
    os.close(terminal._window)
    deadline = time.monotonic() + 10
    while True:
        pid, status = os.waitpid(terminal.pid, os.WNOHANG)
        if pid:
            break
        assert time.monotonic() < deadline, "it lives on without a terminal"
        time.sleep(0.05)
    assert os.waitstatus_to_exitcode(status) in (129, -signal.SIGHUP)
    while Path(f"/proc/{servers[0]}").exists():
        assert time.monotonic() < deadline + 10, "the server lives on without a window"
        time.sleep(0.05)


def test_a_terminal_that_goes_away_while_much_is_painted_keeps_nobody_waiting() -> None:
    person, ours = os.openpty()
    screen = os.fdopen(ours, "w")
    painter = WriterThread(_Watched(screen))
    painter.start()
    os.close(person)

    def paint() -> None:
        for _ in range(3 * MAX_QUEUED_WRITES):
            painter.write("word " * 100)
        painter.stop()

    painting = threading.Thread(target=paint, daemon=True)
    painting.start()
    painting.join(10)
    assert not painting.is_alive()
    with contextlib.suppress(OSError):  # what was not taken
        screen.close()


def test_a_home_that_cannot_be_is_one_line_and_no_window(place: Path) -> None:
    env = {"TERM": "xterm-256color", "HERMES_HOME": "/proc/nowhere"}
    with Terminal([sys.executable, "-m", "hermes_cli"], env=env, cwd=place) as terminal:
        terminal.see("cannot create the Hermes home")
        assert terminal.end() == 1
        why = "hermes: cannot create the Hermes home: No such file or directory (/proc/nowhere)."
        assert " ".join(terminal.shown.split()) == f"{why} You can set HERMES_HOME to a folder you can write."
        assert _OPENED not in terminal.raw


def test_a_defect_of_the_window_itself_leaves_the_terminal_in_order(place: Path, home: Path) -> None:
    broken = (
        "from hermes_cli.tui import conversation; conversation.TurnView.more = None; "
        "import hermes_cli.main as m; exit(m.main())"
    )
    with Terminal([sys.executable, "-c", broken], env={"TERM": "xterm-256color"}, lines=24, cwd=place) as terminal:
        terminal.see("ready")
        terminal.type("what is 3 * 3?")
        terminal.see("internal error: TypeError")
        assert _ended(terminal) != 0
    assert list((home / "logs").glob("crash-*.txt"))


def test_ctrl_c_at_any_moment(place: Path) -> None:
    """From before the first paint on, in a box and while an answer comes: it never breaks, and it ends."""
    command = [sys.executable, "-m", "hermes_cli"]
    with Terminal(command, env={"TERM": "xterm-256color"}, lines=24, cwd=place) as terminal:
        terminal.see("starting")
        terminal.press("ctrl-c")
        terminal.see("ready")
        terminal.type("delete the folder old")
        terminal.see("Hermes wants to run a command")
        terminal.press("ctrl-c")
        terminal.see("interrupted; finished work")
        assert (place / "old").is_dir()
        terminal.keys("\x12")  # Ctrl+R: the conversations
        terminal.see("Enter chooses")
        terminal.press("ctrl-c")
        terminal.type("what is 5 * 5?")
        terminal.see("5 * 5 = 25")
        for _ in range(12):
            terminal.press("ctrl-c")
            terminal._read(time.monotonic() + 0.05)
        assert _ended(terminal) in (0, -signal.SIGINT, 128 + signal.SIGINT)


def test_plain_and_a_dumb_terminal_get_lines(place: Path) -> None:
    for arguments, kind in ((("--plain",), "xterm"), ((), "dumb")):
        command = [sys.executable, "-m", "hermes_cli", *arguments]
        with Terminal(command, env={"TERM": kind}, cwd=place) as terminal:
            terminal.ready()
            terminal.press("ctrl-d")
            assert terminal.end() == 0
            assert _OPENED not in terminal.raw


@pytest.mark.parametrize("end", ["kill", "leave"])
def test_a_question_whose_window_went_away_is_answered_in_the_next(
    window: Open, place: Path, home: Path, end: str
) -> None:
    with window() as terminal:
        terminal.type("be slow 2")
        terminal.see("Esc stops")
        _until_a_turn_runs(home)
        if end == "kill":
            os.kill(terminal.pid, signal.SIGKILL)
        else:
            terminal.press("ctrl-d")
            assert _ended(terminal) == 0
    again = [sys.executable, "-m", "hermes_cli", "--continue"]
    with Terminal(again, env={"TERM": "xterm-256color"}, lines=24, cwd=place) as terminal:
        terminal.see("That took 2 s, as you asked.")
        assert "be slow 2" in terminal.shown
        terminal.press("ctrl-d")
        assert _ended(terminal) == 0


def _until_a_turn_runs(home: Path) -> None:
    with contextlib.closing(SessionDB(home / "state.db")) as db:
        until = time.monotonic() + 20
        while not db.turns.list(state="running"):
            assert time.monotonic() < until
            time.sleep(0.02)
