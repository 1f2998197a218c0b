"""`hermes demo`: what a newcomer meets first. tests/docs compares its screens with docs/users/first-five-minutes.md."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.hermes_cli.demo.scene import clone, hermes, processes, until
from tests.support.terminal import Terminal

from gateway import status
from gateway.platforms import registry
from hermes_cli.demo.processes import claim_port
from hermes_testing.telegram.client import RemoteTelegram

# They look for a free port, one after the other.
pytestmark = [pytest.mark.xdist_group("demo"), pytest.mark.slow]
DEMO = (sys.executable, "-m", "hermes_cli", "demo", "--plain")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return clone(tmp_path, monkeypatch)


@pytest.fixture
def desk(folder: Path) -> Iterator[Terminal]:
    """The demo at a terminal, ready for the first line."""
    with Terminal(DEMO) as chat:
        chat.ready()
        yield chat
        # Killed without a word when the test ends; whoever it started notices.
    until(lambda: not processes(folder), "the end of the demo's processes")


@pytest.fixture
def telegram(folder: Path, desk: Terminal) -> Iterator[RemoteTelegram]:
    told = json.loads((folder / ".demo" / "phone.json").read_text(encoding="utf-8"))
    with RemoteTelegram(told["address"], told["token"]) as remote:
        yield remote


def outcomes(folder: Path) -> list[str]:
    """What became of each message of the demo, newest first."""
    listed = json.loads(hermes("inbox", "list", "--json", HERMES_HOME=str(folder / ".demo")))
    return [row["state"] for row in listed["messages"]]


# -- without a terminal ---------------------------------------------------------------------------------------


def test_without_a_terminal_it_plays_one_turn_through_the_gateway_and_leaves_nobody_behind(folder: Path) -> None:
    shown = hermes("demo")
    assert shown.startswith("Hermes · demo home ./.demo   (throw-away; ~/.hermes is not touched)\n")
    assert re.search(r"^> list the files here\n.*^✓ terminal  ls -1p · .*^- Files: `notes.md`", shown, re.M | re.S)
    assert "today $0.00 of $1.00" in shown
    assert "\x1b" not in shown
    assert stat.S_IMODE((folder / ".demo").stat().st_mode) == 0o700
    assert processes(folder) == []
    assert outcomes(folder) == ["answered"]


def test_without_the_packages_of_its_phone_it_says_so_at_once(
    folder: Path, run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry.Descriptor, "missing_packages", lambda self: ("telegram",))
    said = run("demo")
    assert said.code == 1 and "Telegram needs telegram. " in said.err and "[telegram]" in said.err
    assert not (folder / ".demo").exists()


def test_text_in_a_pipe_is_not_taken_for_typed_messages(folder: Path) -> None:
    piped = "hello\n/quit\n"
    shown = subprocess.run(DEMO, input=piped, capture_output=True, text=True, check=True).stdout
    assert "busy" not in shown
    assert outcomes(folder) == ["answered"]


def test_what_was_said_in_its_conversations_is_found_and_others_is_not(folder: Path) -> None:
    hermes("demo")
    found = hermes("-z", "search our chats for 京都", HERMES_HOME=str(folder / ".demo"))
    assert "Trip to Kyoto" in found
    assert "北京" not in found  # Lin's, not the owner's


def test_the_commands_it_proposes_work_as_they_stand(folder: Path) -> None:
    lines = hermes("demo").partition("Continue in this shell:\n")[2].splitlines()
    commands = [re.split(r"\s{3,}", line.strip())[0] for line in lines]
    assert len(commands) == 8
    script = "\n".join(commands).replace("hermes --continue", "echo hello | hermes --continue")
    ran = subprocess.run(
        ["/bin/sh", "-ec", script], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    assert ran.returncode == 0, ran.stderr
    assert "17 * 4 = 68" in ran.stdout
    assert (folder / "trip.zip").exists()


def test_nothing_of_the_environment_leads_out_of_the_demo(folder: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere.db"
    shown = hermes(
        "demo", HERMES_DATABASE_URL=f"sqlite:///{elsewhere}", TELEGRAM_BOT_TOKEN="1:real", HTTP_PROXY="http://127.0.0.1:9",
        DISCORD_BOT_TOKEN="real",
    )  # fmt: skip
    assert "HERMES_DATABASE_URL= " in shown
    assert "- Files: `notes.md`" in shown
    assert not elsewhere.exists()
    log = (folder / ".demo" / "gateway.out").read_text(encoding="utf-8")
    assert "platforms: telegram" in log and "discord" not in log


def test_it_can_be_run_again_and_starts_afresh(folder: Path) -> None:
    assert "the last demo's conversations were removed" not in hermes("demo")
    (folder / ".demo" / "leftover").mkdir()
    hermes("sessions", "delete", "Invoice 2231", "--yes", HERMES_HOME=str(folder / ".demo"))
    again = hermes("demo")
    assert "Invoice 2231" in again and "the last demo's conversations were removed" in again
    assert not (folder / ".demo" / "leftover").exists()


@pytest.mark.parametrize("kind", ["folder", "file", "link"])
def test_what_no_demo_made_is_left_alone(folder: Path, tmp_path: Path, run, kind: str) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "state.db").write_text("mine")
    target = folder / ".demo"
    if kind == "folder":
        precious.rename(target)
        precious = target
    elif kind == "file":
        target.write_text("mine")
    else:
        (precious / "THIS_IS_A_DEMO").write_text("")
        target.symlink_to(precious)
    ran = run("demo")
    assert ran.code == 2
    assert "nothing was changed" in ran.err
    assert (precious / "state.db").read_text() == "mine"
    assert ran.out == ""


# -- at the desk, with the phone -------------------------------------------------------------------------------


def test_yes_deletes_in_the_demos_own_workspace_only(folder: Path, desk: Terminal) -> None:
    (folder / "old").mkdir()
    desk.type("delete the folder old")
    desk.see("(Enter) >")
    desk.type("o")
    desk.see("It is gone.")
    assert not (folder / ".demo" / "workspace" / "old").exists()
    assert (folder / "old").is_dir()


def test_what_is_asked_at_the_desk_can_be_answered_on_the_phone(desk: Terminal, telegram: RemoteTelegram) -> None:
    desk.type("delete the folder old")
    desk.see("(Enter) >")
    ada = telegram.person("ada")
    ada.expect("Hermes wants to run a command")
    ada.press("This command once")
    desk.see("→ answered on another device or window")
    shown = desk.see("It is gone.")
    assert "✓ terminal  rm -r old" in shown
    desk.ready()


def test_phone_and_desk_are_one_conversation(desk: Terminal, telegram: RemoteTelegram) -> None:
    ada = telegram.person("ada")
    desk.keys("half a li")
    ada.say("what is 17 * 4?")
    ada.expect("17 * 4 = 68")
    shown = desk.see("of $1.00")
    assert "telegram > what is 17 * 4?\n17 * 4 = 68\n" in shown
    assert shown.count("17 * 4 = 68") == 1
    desk.see("\n\n> half a li")  # what was being typed still stands there
    desk.press("ctrl-c")
    desk.ready()
    desk.type("what is 2 + 3?")
    desk.see("2 + 3 = 5")
    ada.expect("(from the terminal) what is 2 + 3?")
    ada.expect("2 + 3 = 5")
    assert sum("2 + 3 = 5" in message.text for message in ada.messages()) == 1


def test_a_stranger_is_told_how_to_get_in_and_the_model_never_hears_of_it(
    folder: Path, desk: Terminal, telegram: RemoteTelegram
) -> None:
    mallory = telegram.person("mallory")
    mallory.say("what did Ada say?")
    mallory.expect("I do not know you yet")
    assert outcomes(folder) == ["refused"]
    assert "what did Ada say" not in desk.shown + (folder / ".demo" / "gateway.out").read_text(encoding="utf-8")


def test_ctrl_c_stops_what_runs_and_ctrl_d_leaves(folder: Path) -> None:
    with Terminal(DEMO) as chat:
        chat.ready()
        chat.type("tell me the long story")
        chat.see("harbour town")
        chat.press("ctrl-c")
        chat.see("interrupted; finished work is kept")
        chat.ready()
        chat.press("ctrl-d")
        assert chat.end() == 0
    assert processes(folder) == []


def test_ctrl_c_at_a_question_leaves_what_was_said(desk: Terminal, telegram: RemoteTelegram) -> None:
    desk.type("delete the folder old")
    desk.see("(Enter) >")
    ada = telegram.person("ada")
    ada.expect("Hermes wants to run a command")
    desk.press("ctrl-c")
    desk.see("interrupted; finished work is kept")
    desk.ready()
    assert "\n· stopping" in desk.shown and "\n…\n" not in desk.shown.partition("· stopping")[2]
    assert all(message.text != "…" for message in ada.messages())


def test_a_reply_to_a_command_has_its_own_line_in_the_middle_of_an_answer(desk: Terminal) -> None:
    desk.type("tell me the long story")
    desk.see("harbour town")
    desk.type("/queue what is 2 + 3?")
    desk.see("\nYour message is next.\n")
    desk.press("ctrl-c")
    desk.see("1 waiting message will not be answered.")


def test_a_question_of_the_model_is_answered_by_what_is_typed_next(desk: Terminal) -> None:
    desk.type("ask me something")
    desk.see("Which do you want to see next?")
    desk.type("a poem")
    desk.see("The person answers: a poem")
    desk.ready()


def test_a_gateway_that_was_restarted_by_hand_is_the_demos(folder: Path) -> None:
    with Terminal(DEMO) as chat:
        chat.ready()
        until(lambda: status.read_status(folder / ".demo").started_at is not None, "the gateway")
        before = status.read_pid(folder / ".demo")
        told = hermes("gateway", "restart", HERMES_HOME=str(folder / ".demo"))
        assert re.search(r"The gateway is running \(process \d+\)", told)
        until(lambda: status.read_pid(folder / ".demo") not in (None, before), "another one")
        chat.type("what is 2 + 3?")
        chat.see("2 + 3 = 5")
        chat.ready()
        chat.press("ctrl-d")
        assert chat.end() == 0
    assert processes(folder) == []
    assert "Hermes · demo home" in hermes("demo")


def test_terminated_it_takes_its_processes_with_it(folder: Path) -> None:
    with Terminal(DEMO) as chat:
        chat.ready()
        until(lambda: len(processes(folder)) == 3, "the gateway, the pretend Telegram and the server")
        os.kill(chat.pid, signal.SIGTERM)
        assert chat.end() == 128 + signal.SIGTERM
    assert processes(folder) == []


_SIGNAL_IN_A_HOOK = """
import os, readline, signal
from hermes_cli.chat import keyboard as chat_keyboard
from hermes_cli.demo import command as cmd_demo
signal.signal(signal.SIGTERM, cmd_demo._quit)
readline.insert_text = lambda text: os.kill(os.getpid(), signal.SIGTERM)
keyboard = chat_keyboard.Keyboard()
keyboard.prefill("hello")
keyboard.message("> ")
"""


def test_a_signal_that_meets_readline_at_work_is_heard_all_the_same() -> None:
    """What is raised in a hook of readline's is swallowed: the prompt would stand there for ever."""
    with Terminal([sys.executable, "-c", _SIGNAL_IN_A_HOOK], seconds=20) as chat:
        assert chat.end() == 128 + signal.SIGTERM


def test_a_second_demo_in_the_same_folder_is_refused(folder: Path, desk: Terminal, run) -> None:
    until(lambda: status.is_running(folder / ".demo"), "the gateway")
    ran = run("demo")
    assert ran.code == 2
    assert "a demo runs on this folder already" in ran.err
    ending = re.search(r"end it with Ctrl-D there \(or kill (\d+)\)", ran.err)
    assert ending is not None
    os.kill(int(ending[1]), signal.SIGTERM)
    until(lambda: not processes(folder), "the end of the demo's processes")


# -- the crash -------------------------------------------------------------------------------------------------


def test_a_gateway_killed_in_the_middle_of_an_answer_is_back_and_nothing_is_lost_or_doubled(
    folder: Path, desk: Terminal, telegram: RemoteTelegram
) -> None:
    config = folder / ".demo" / "config.yaml"
    ada = telegram.person("ada")
    ada.say("tell me the long story")
    ada.expect("harbour town")
    before = status.read_pid(folder / ".demo")
    config.write_text(config.read_text().replace("tokens_per_second: 60", "tokens_per_second: 0"))  # not all night
    told = hermes("demo", "crash")
    assert re.search(r"back after [\d.]+ s", told)
    assert "accepted 1, answered 1, doubled 0" in told
    assert status.read_pid(folder / ".demo") not in (None, before)
    stories = [message for message in ada.messages() if "The conversation that would not be lost" in message.text]
    assert len(stories) == 1 and stories[0].edits > 0
    shown = desk.see("It is also written down.")
    assert "· the process that worked on this died" in shown
    assert shown.count("It is also written down.") == 1


def test_what_the_person_interrupts_after_the_crash_is_no_failure(folder: Path, telegram: RemoteTelegram) -> None:
    ada = telegram.person("ada")
    ada.say("tell me the long story")
    ada.expect("harbour town")
    crash = [sys.executable, "-m", "hermes_cli", "demo", "crash"]
    with subprocess.Popen(crash, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True) as watching:
        assert watching.stdout is not None
        assert any("waiting until the interrupted turn ends" in line for line in iter(watching.stdout.readline, ""))
        ada.say("what is 30+1?")
        told = watching.stdout.read()
        assert watching.wait() == 0
    assert "accepted 1, answered 0, interrupted by you 1, doubled 0" in told


def test_what_was_shown_at_the_desk_before_the_crash_is_not_shown_again(folder: Path, desk: Terminal) -> None:
    config = folder / ".demo" / "config.yaml"
    desk.type("tell me the long story")
    desk.see("harbour town")
    config.write_text(config.read_text().replace("tokens_per_second: 60", "tokens_per_second: 0"))
    told = hermes("demo", "crash")
    (row,) = json.loads(hermes("inbox", "list", "--json", HERMES_HOME=str(folder / ".demo")))["messages"]
    assert f"trace {row['trace_id']}\n" in told
    shown = desk.see("It is also written down.")
    assert "· the process that worked on this died" in shown
    assert shown.count("The conversation that would not be lost") == 1
    assert shown.count("harbour town") == 1


def test_nothing_is_killed_where_no_demo_runs(folder: Path, run) -> None:
    ran = run("demo", "crash")
    assert (ran.code, ran.out) == (2, "")
    assert "no demo is running here" in ran.err


def test_the_next_port_is_taken_where_somebody_listens() -> None:
    first, claim = claim_port()
    claim.close()
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", first))
        listener.listen()
        following, claim = claim_port()
        claim.close()
        assert following > first


def test_two_demos_that_start_at_the_same_moment_have_a_port_each(folder: Path) -> None:
    both = [
        subprocess.Popen((*DEMO, "--home", name), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        for name in ("one", "two")
    ]
    cards = [each.communicate(timeout=120)[0] for each in both]
    assert [each.returncode for each in both] == [0, 0]
    ports = [re.findall(r"^api +127\.0\.0\.1:(\d+) ", card, re.M) for card in cards]
    assert len(ports[0]) == 1 and ports[0] != ports[1]
