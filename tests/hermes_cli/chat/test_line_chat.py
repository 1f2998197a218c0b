"""The line chat as a person meets it: a real terminal, the built-in model, real tools, a real store."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.support.sample_store import stored
from tests.support.terminal import Terminal

from hermes_testing.scripted.model import Hold, ScriptedModel, call, say

pytestmark = pytest.mark.slow

Sit = Callable[..., Terminal]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the person's shell stands."""
    place = tmp_path / "place"
    (place / "old").mkdir(parents=True)
    (place / "notes.md").write_text("# Notes\n")
    return place


@pytest.fixture
def sit(home: Path, folder: Path) -> Iterator[Sit]:
    """`sit("--continue")`: Hermes at a terminal, answering at once."""
    home.mkdir(exist_ok=True)
    (home / "config.yaml").write_text("model: demo\ndemo:\n  tokens_per_second: 0\nauto_title: false\n")
    opened: list[Terminal] = []

    def down(*arguments: str, config: str = "", **options: object) -> Terminal:
        if config:
            (home / "config.yaml").write_text(config)
        terminal = Terminal([sys.executable, "-m", "hermes_cli", "--plain", *arguments], cwd=folder, **options)  # type: ignore[arg-type]
        opened.append(terminal)
        return terminal

    yield down
    for terminal in opened:
        terminal.__exit__(None, None, None)


def test_minute_one_a_tool_line_with_its_time_the_answer_and_the_footer(sit: Sit) -> None:
    chat = sit()
    chat.ready()
    chat.type("list the files here")
    shown = chat.see("no limit set")
    assert re.search(r"^✓ terminal  ls -1p · \d+ ms$", shown, re.MULTILINE)
    assert "Files: `notes.md`" in shown
    assert re.search(r"^demo · [\d,]+ tokens · today \$0\.00, no limit set$", shown, re.MULTILINE)
    chat.ready()
    chat.press("ctrl-d")
    assert chat.end() == 0
    assert re.search(r"^Continue it with: hermes --resume \d{8}_\d{6}_[0-9a-f]{8}$", chat.shown, re.MULTILINE)


def test_the_footer_tells_what_is_left_of_the_day(sit: Sit) -> None:
    chat = sit(config="model: demo\ndemo: {tokens_per_second: 0}\nbudget: {day: {usd: 1, tokens: 1000000}}\n")
    chat.type("hello")
    shown = chat.see("of 1,000,000 tokens")
    assert re.search(r"today [\d,]+ tokens of 1,000,000 tokens", shown)


def test_minute_two_it_asks_and_enter_alone_is_no(sit: Sit, folder: Path) -> None:
    chat = sit()
    chat.type("delete the folder old")
    question = chat.see("(Enter) >")
    unbroken = question.replace(f"\n│ {'':8}", "")  # a long path goes on in the next line
    facts = (f"│ where   {folder}\n", "│ for     you (owner)", "│ why     ", "│ expires in 60 s")
    for told in ("│   rm -r old\n", *facts):
        assert told in unbroken, told
    chat.press("enter")
    chat.see("no limit set")
    assert "→ denied" in chat.shown
    assert "✗ terminal  rm -r old" in chat.shown
    assert (folder / "old").is_dir()


def test_yes_lets_this_one_call_through_and_the_next_one_asks_again(sit: Sit, folder: Path) -> None:
    chat = sit()
    chat.type("delete the folder old")
    chat.see("(Enter) >")
    chat.type("o")
    chat.see("✓ terminal  rm -r old")
    assert not (folder / "old").exists()
    chat.see("no limit set")
    chat.type("delete the folder old")
    chat.see("(Enter) >", times=2)


def test_a_letter_nobody_knows_is_asked_about_again(sit: Sit, folder: Path) -> None:
    chat = sit()
    chat.type("delete the folder old")
    chat.see("(Enter) >")
    chat.type("sure, why not")
    chat.see("(Enter) >", times=2)
    chat.type("d")
    chat.see("→ denied")
    assert (folder / "old").is_dir()


def test_keys_pressed_before_the_question_do_not_answer_it(sit: Sit, folder: Path) -> None:
    hold = Hold()
    asks = say("That cannot be undone.\n", calls=[call("terminal", {"command": "rm -r old"})], hold=hold)
    with ScriptedModel(asks, say("I left it alone.")).served() as server:
        model = f"provider: custom, default: scripted-1, base_url: '{server.origin}/v1', api_key: scripted-key"
        chat = sit(config=f"model: {{{model}}}\nauto_title: false\n")
        chat.type("delete the folder old")
        chat.see("That cannot be undone.")
        chat.keys("o")  # half a line, typed while the model still talks; its Enter comes too late
        hold.release()
        chat.see("(Enter) >")
        chat.press("enter")
        chat.see("→ denied")
        chat.see("I left it alone.")
        assert (folder / "old").is_dir()


def test_a_question_nobody_answers_lapses_into_a_denial(sit: Sit, folder: Path) -> None:
    chat = sit(config="model: demo\ndemo: {tokens_per_second: 0}\napprovals: {timeout: 1}\n")
    chat.type("delete the folder old")
    chat.see("expires in 1 s")
    chat.see("→ no answer: denied")
    chat.see("no limit set")
    assert (folder / "old").is_dir()


def test_ctrl_c_at_the_question_denies_and_stops_the_turn(sit: Sit, folder: Path) -> None:
    chat = sit()
    chat.type("delete the folder old")
    chat.see("(Enter) >")
    chat.press("ctrl-c")
    chat.see("interrupted; finished work is kept")
    chat.type("hello")
    chat.see("no limit set")
    assert (folder / "old").is_dir()


def test_ctrl_c_stops_the_answer_keeps_what_was_shown_and_the_chat_goes_on(sit: Sit, home: Path) -> None:
    chat = sit(config="model: demo\ndemo: {tokens_per_second: 30}\nauto_title: false\n")
    chat.type("tell me the long story")
    chat.see("harbour town")
    chat.press("ctrl-c")
    chat.see("interrupted; finished work is kept")
    chat.type("what is 17 * 4?")
    chat.see("17 * 4 = 68")
    chat.ready()
    chat.press("ctrl-d")
    assert chat.end() == 0
    roles = stored(home)
    assert [role for role, _ in roles] == ["user", "assistant", "user", "assistant"]
    assert "harbour town" in roles[1][1]


def test_ctrl_c_ends_a_tool_and_its_outcome_is_stored(sit: Sit, home: Path) -> None:
    chat = sit()
    chat.type("run sleep 60")
    chat.see("terminal  sleep 60")
    chat.press("ctrl-c")
    chat.see("✗ terminal  sleep 60")
    chat.see("interrupted; finished work is kept")
    chat.type("/quit")
    assert chat.end() == 0
    assert [role for role, _ in stored(home)][:3] == ["user", "assistant", "tool"]


def test_a_line_added_before_ctrl_c_is_answered_as_it_was_promised(sit: Sit, home: Path) -> None:
    chat = sit()
    chat.type("run sleep 60")
    chat.see("terminal  sleep 60")
    chat.type("what is 17 * 4?")
    chat.see("noted: Hermes reads it with the next step, or answers it next")
    chat.press("ctrl-c")
    chat.see("interrupted; finished work is kept")
    chat.see("now answering what you added: what is 17 * 4?")
    chat.see("17 * 4 = 68")
    chat.type("/quit")
    assert chat.end() == 0
    assert [role for role, _ in stored(home)] == ["user", "assistant", "tool", "user", "assistant"]


def test_ctrl_c_brings_back_the_lines_that_waited_behind_another_windows_turn(sit: Sit, home: Path) -> None:
    first = sit()
    first.type("run sleep 60")
    first.see("terminal  sleep 60")
    second = sit("--continue")
    second.ready()
    second.type("what is 17 * 4?")
    second.see("yours is next")
    second.type("and twice that?")
    second.see("noted: Hermes answers it next")
    second.press("ctrl-c")
    second.see("this turn runs elsewhere")
    first.press("ctrl-c")
    first.see("interrupted; finished work is kept")
    second.see("> what is 17 * 4? and twice that?")
    assert [role for role, _ in stored(home)] == ["user", "assistant", "tool"]


def test_ctrl_d_while_it_answers_leaves_when_it_is_done(sit: Sit, home: Path) -> None:
    chat = sit()
    chat.type("be slow 1")
    chat.see("…")
    chat.press("ctrl-d")
    assert chat.end() == 0
    assert "That took 1 s" in stored(home)[1][1]


def test_a_killed_turn_is_told_of_and_taken_up_where_it_stood(sit: Sit, home: Path) -> None:
    chat = sit(config="model: demo\ndemo: {tokens_per_second: 30}\nauto_title: false\n")
    chat.type("tell me the long story")
    chat.see("harbour town")
    os.kill(chat.pid, signal.SIGKILL)
    chat.end()
    told = sit(columns=160).ready()
    assert "the process of a turn died; to recover the turn: hermes --resume " in told
    again = sit("--continue", config="model: demo\ndemo: {tokens_per_second: 0}\nauto_title: false\n")
    again.see("harbour town")
    again.see("no limit set")
    assert [role for role, _ in stored(home)] == ["user", "assistant"]


def press_ctrl_c_for(chat: Terminal, words: str, *, times: int = 1) -> None:
    """As a person would: again, when nothing happens. Python loses the key in the instant before it waits for one."""
    for _ in range(5):
        chat.press("ctrl-c")
        with suppress(AssertionError):
            chat.see(words, times=times, seconds=2)
            return
    chat.see(words, times=times, seconds=1)


def test_ctrl_c_at_the_prompt_drops_the_line_and_asks_for_another_one(sit: Sit) -> None:
    chat = sit()
    chat.ready()
    chat.keys("half a thought")
    chat.see("> half a thought")
    press_ctrl_c_for(chat, "(Ctrl-C again leaves)")
    chat.ready()
    chat.type("what is 2 + 2?")
    chat.see("2 + 2 = 4")
    chat.ready()
    press_ctrl_c_for(chat, "(Ctrl-C again leaves)\n> ", times=2)
    press_ctrl_c_for(chat, "Continue it with:")
    assert chat.end() == 0


def test_a_paste_of_several_lines_is_one_message(sit: Sit, home: Path) -> None:
    chat = sit()
    chat.ready()
    chat.paste("first line\n/new is no command here\nthird line")
    chat.press("enter")
    chat.see("no limit set")
    assert stored(home)[0] == ("user", "first line\n/new is no command here\nthird line")


def test_a_backslash_goes_on_in_the_next_line(sit: Sit, home: Path) -> None:
    chat = sit()
    chat.ready()
    chat.type("one \\")
    chat.ready("… ")
    chat.type("two")
    chat.see("no limit set")
    assert stored(home)[0] == ("user", "one \ntwo")


def test_what_is_typed_meanwhile_goes_along_or_is_answered_next(sit: Sit, home: Path) -> None:
    chat = sit()
    chat.type("be slow 3")
    chat.see("…")
    chat.type("what is 6 * 7?")
    chat.see("noted:")
    chat.see("6 * 7 = 42")
    assert [content for role, content in stored(home) if role == "user"] == ["be slow 3", "what is 6 * 7?"]


def test_stop_typed_meanwhile_stops(sit: Sit) -> None:
    chat = sit()
    chat.type("run sleep 60")
    chat.see("terminal  sleep 60")
    chat.type("/stop")
    chat.see("Stopped. What was done so far is kept.")


def test_commands_new_undo_with_prefill_retry_and_an_unknown_one(sit: Sit, home: Path) -> None:
    chat = sit()
    chat.type("what is 2 + 3?")
    chat.see("2 + 3 = 5")
    chat.type("/retry")
    chat.see("2 + 3 = 5", times=2)
    chat.see("no limit set", times=2)
    chat.type("/undo")
    chat.see("Took back 1 turn")
    chat.see("> what is 2 + 3?", times=2)  # typed once, and back in the line to be edited
    chat.type(" And 4 + 4?")
    chat.see("no limit set", times=3)
    chat.type("/titel")
    chat.see("Did you mean /title?")
    chat.type("/new Fresh")
    chat.see("A new conversation: Fresh.")
    chat.type("/help")
    chat.see("/quit")
    chat.type("/exit")
    assert chat.end() == 0


def test_a_file_named_with_at_is_completed_and_goes_along(sit: Sit, home: Path, folder: Path) -> None:
    (folder / "picture.png").write_bytes(b"\x89PNG\0\0")
    chat = sit()
    chat.ready()
    chat.keys("what is in @no\t")
    chat.see("@notes.md ")
    chat.press("enter")
    chat.see("no limit set")
    assert "# Notes" in stored(home)[0][1]
    chat.type("/undo")
    chat.see("Took back 1 turn")
    chat.type(" and in @picture.png")
    chat.see("@picture.png is not text")


def test_a_failing_model_is_one_line_and_the_chat_goes_on(sit: Sit) -> None:
    chat = sit()
    chat.type("fail with 401")
    shown = chat.see("✗ demo wants a key (401)")
    assert "Traceback" not in shown
    chat.type("what is 2 + 2?")
    chat.see("2 + 2 = 4")


def test_resume_by_title_shows_where_it_stood_and_goes_on(sit: Sit) -> None:
    chat = sit()
    chat.type("/new Sums")
    chat.see("A new conversation: Sums.")
    chat.type("what is 2 + 3?")
    chat.see("no limit set")
    chat.ready()
    chat.press("ctrl-d")
    assert chat.end() == 0
    assert 'hermes --resume "Sums"' in chat.shown
    for arguments, before in ((("--resume", "Sums"), "what is 2 + 3?"), (("--continue",), "what did I just say?")):
        again = sit(*arguments)
        shown = again.ready()
        assert "Sums · " in shown
        assert f"\n> {before}\n" in shown
        again.type("what did I just say?")
        again.see("no limit set")
        assert f"You just said: “{before}”" in again.shown
        again.ready()
        again.press("ctrl-d")
        assert again.end() == 0


def test_a_question_that_failed_says_so_when_its_conversation_is_opened_again(sit: Sit) -> None:
    chat = sit()
    chat.type("fail with 401")
    chat.see("wants a key (401)")
    chat.ready()
    chat.press("ctrl-d")
    assert chat.end() == 0
    again = sit("--continue")
    shown = again.ready()
    assert "fail with 401" in shown
    assert "not answered: demo wants a key (401)" in shown and "/retry asks again" in " ".join(shown.split())


def test_calls_that_cost_nothing_cost_nothing_after_an_import(
    sit: Sit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer's, and the one that made the title."""
    chat = sit(config="model: demo\ndemo: {tokens_per_second: 0}\n")
    chat.type("what is 2 + 3?")
    chat.see("2 + 3 = 5")
    chat.ready()
    chat.press("ctrl-d")
    assert chat.end() == 0
    archive = str(tmp_path / "all.zip")
    for home, verb in (("home", ("export", archive)), ("other", ("import", archive))):
        monkeypatch.setenv("HERMES_DATABASE_URL", f"sqlite:///{tmp_path}/other.db" if home == "other" else "")
        hermes("sessions", *verb)
    used = hermes("usage")
    assert re.search(r"^\d{4}-\d\d-\d\d +2 .*\$0\.00$", used, re.MULTILINE) and "not known" not in used, used


def hermes(*words: str) -> str:
    ran = subprocess.run([sys.executable, "-m", "hermes_cli", *words], capture_output=True, text=True, check=True)
    return ran.stdout


def test_yolo_says_so_asks_nothing_and_still_keeps_the_floor(sit: Sit, folder: Path) -> None:
    chat = sit("--yolo")
    chat.see("yolo: you are not asked")
    chat.type("delete the folder old")
    chat.see("✓ terminal  rm -r old")
    assert not (folder / "old").exists()
    chat.see("no limit set")
    chat.type("run rm -rf /")
    chat.see("✗ terminal  rm -rf /")


def test_the_model_can_ask_a_question(sit: Sit) -> None:
    chat = sit()
    chat.type("ask me something")
    chat.ready("  > ")  # what is typed before a question is asked is no answer to it
    chat.type("2")
    chat.see("The person answers: a story")


def test_words_are_not_broken_and_nothing_is_wider_than_the_window(sit: Sit) -> None:
    chat = sit(columns=44)
    chat.type("list the files here")
    shown = chat.see("no limit\nset")
    assert max(map(len, shown.partition("I looked")[2].splitlines())) < 44
    assert "There is a folder `old/`. Say “delete the\nfolder old” to see" in shown


def test_quit_that_is_typed_while_a_turn_runs_leaves_when_it_has_ended(sit: Sit) -> None:
    chat = sit()
    chat.type("run sleep 2")
    chat.see("terminal  sleep 2")
    chat.type("/quit")
    assert chat.end() == 0
    assert "There is no command" not in chat.shown


def test_no_model_is_one_line_that_says_what_to_do(sit: Sit, home: Path) -> None:
    chat = sit(config="model: {provider: openai}\n")
    assert chat.end() == 1
    assert chat.shown.startswith("hermes: model.default: no model is chosen")
    assert "--model demo" in chat.shown


def test_without_any_model_yet_set_up_comes_first_and_then_the_talk(sit: Sit) -> None:
    chat = sit(config="{}\n")
    chat.see("No model is set up yet")
    chat.see("Which model should Hermes use?")
    chat.type("demo")
    chat.see("Paste the bot's token")
    for question in ("does something risky?", "on models per day?"):
        chat.type("")
        chat.see(question)
    chat.type("")
    chat.ready()
    chat.type("what is 3 * 3?")
    chat.see("3 * 3 = 9")


def test_who_leaves_set_up_is_not_sat_down_to_talk(sit: Sit) -> None:
    chat = sit(config="{}\n")
    chat.see("Which model should Hermes use?")
    chat.press("ctrl-c")
    assert chat.end() == 130
    assert "Traceback" not in chat.shown
