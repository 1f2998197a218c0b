"""A person at the window: talks, is asked, stops, goes back and forth between conversations."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests.hermes_cli.model_server import ModelServer
from tests.hermes_cli.tui.conftest import Person, Sit, configure
from tests.support.sample_store import stored
from textual import events

from hermes_cli.main import main
from hermes_state import SessionDB

pytestmark = pytest.mark.slow


def play(scene: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scene)


def test_a_tool_call_is_one_line_that_unfolds_and_the_answer_is_markdown(sit: Sit) -> None:
    async def scene() -> None:
        async with sit() as person:
            await person.say("list the files here")
            shown = await person.see("Say “delete the folder old”")
            assert "❯ list the files here" in shown and "▸ ✓ terminal  ls -1p" in shown
            assert " • Files: notes.md" in shown and "`" not in shown
            await person.ready()
            await person.press("ctrl+o")
            await person.see("▾ ✓ terminal")
            await person.see("[exit code 0]")
            row = _at(person.lines, "▾ ✓ terminal")
            await person.pilot.click("#transcript", offset=(6, row))
            await person.see("▸ ✓ terminal")
            assert "context" in person.lines[-1] and "demo" in person.lines[-1]
            before, number = person.lines, person.app.conversation.stored_id
        async with sit(session_id=number) as person:
            await person.see("▸ ✓ terminal")
            above = [lines[_at(lines, "✓ terminal") - 1] for lines in (before, person.lines)]
            assert above == ["", ""], "an empty line stands above it, as when it was made"

    play(scene())


def test_what_would_run_is_shown_and_keys_on_their_way_answer_nothing(
    sit: Sit, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hermes_cli.tui.dialogs._QUIET_SECONDS", 3.0)  # a busy machine has its pauses

    async def scene() -> None:
        async with sit() as person:
            await person.say("delete the folder old")
            shown = await person.see("expires")
            assert "Hermes wants to run a command" in shown and "rm -r old" in shown and str(place) in person.letters
            await person.press("o")  # somebody was typing when it appeared
            await asyncio.sleep(0.2)
            assert "Hermes wants" in person.screen and (place / "old").is_dir()
            await asyncio.sleep(3.1)
            await person.press("o")
            await person.see("It is gone")
            assert not (place / "old").exists()

    play(scene())


def test_enter_denies(sit: Sit, place: Path) -> None:
    async def scene() -> None:
        async with sit() as person:
            await person.say("delete the folder old")
            await person.see("Hermes wants to run a command")
            await asyncio.sleep(0.7)
            await person.press("enter")
            await person.see("✗ terminal  rm -r old")
            await person.ready()
            assert (place / "old").is_dir()

    play(scene())


def test_escape_stops_and_the_next_message_is_answered(sit: Sit, home: Path) -> None:
    async def scene() -> None:
        configure(home, pace=40)
        async with sit() as person:
            await person.say("tell me the long story")
            await person.see("harbour town")
            await person.press("escape")
            await person.see("interrupted; finished work is kept")
            await person.ready()
            await person.say("what is 17 * 4?")
            await person.see("17 * 4 = 68")
            number = person.app.conversation.stored_id
        async with sit(session_id=number) as person:
            shown = await person.see("17 * 4 = 68")
            assert shown.index("interrupted; finished work is kept") < shown.index("❯ what is 17 * 4?")

    play(scene())


def test_what_is_typed_meanwhile_waits_in_sight_and_is_answered_once(sit: Sit, home: Path) -> None:
    async def scene() -> None:
        configure(home, pace=10, more="display:\n  busy_input_mode: queue\n")
        async with sit() as person:
            await person.say("hello")
            await person.see("I am")
            await person.say("what is 2 + 3?")
            await person.see("next: what is 2 + 3?")
            await person.see("2 + 3 = 5")
            await person.ready()
            assert "next:" not in person.screen

    play(scene())
    assert [words for role, words in stored(home) if role == "user"] == ["hello", "what is 2 + 3?"]


def test_undo_gives_the_words_back_and_a_branch_goes_on_beside(sit: Sit, home: Path) -> None:
    async def scene() -> None:
        async with sit() as person:
            await person.say("what is 1 + 1?")
            await person.see("1 + 1 = 2")
            await person.ready()
            await person.say("what is 2 + 2?")
            await person.see("2 + 2 = 4")
            await person.ready()
            await person.say("/undo")
            await person.until(lambda screen: "2 + 2 = 4" not in screen, "taken back")
            await person.until(lambda screen: "❯ what is 2 + 2?" in screen.splitlines()[-2], "the words, in the line")
            await person.press("ctrl+u")
            await person.say("/branch another way")
            await person.until(lambda screen: "another way" in screen, "the branch")
            await person.say("what is 3 + 3?")
            await person.see("3 + 3 = 6")
            await person.ready()
            await person.press("ctrl+r")
            assert "another way" in await person.see("↳ branch of")

    play(scene())


def test_help_names_the_windows_own_commands_and_quit_takes_words(sit: Sit) -> None:
    async def scene() -> None:
        async with sit() as person:
            await person.ready()
            await person.say("/help")
            await person.see("Of this window: /keys (F1) · /theme · /paste")
            await person.say("/quit now")
            await person.until(lambda screen: not person.app.is_running, "left")

    play(scene())


def test_a_conversation_is_found_by_what_was_said_in_it(sit: Sit) -> None:
    async def scene() -> None:
        async with sit() as person:
            await person.say(f"{'a long way to it ' * 12} the word marmalade for me")
            await person.until(lambda screen: screen.count("marmalade") >= 1 and " ready" in screen, "answered")
            await person.ready()
            await person.say("/new")
            await person.until(lambda screen: "❯ a long way" not in screen, "a new one")
            await person.say("what is 5 + 5?")
            await person.see("5 + 5 = 10")
            await person.ready()
            await person.press("ctrl+r")
            await person.see("Enter chooses")
            await person.write("marmalade")
            await person.until(lambda screen: "5 + 5?" not in _box(screen), "the other one left out")
            await person.until(lambda screen: _box(screen).count("marmalade") == 2, "the word, typed and found")
            await asyncio.sleep(0.3)
            await person.press("enter")
            await person.see("the word marmalade")

    play(scene())


def test_the_choices_of_a_question_are_on_a_small_screen_too(sit: Sit) -> None:
    async def scene() -> None:
        async with sit(size=(40, 14)) as person:
            await person.say("delete the folder old")
            shown = await person.see("[d] Deny")
            assert "[t] " in shown and "rm -r old" in shown

    play(scene())


def test_each_conversation_of_the_list_is_one_line_in_a_narrow_window(sit: Sit) -> None:
    async def scene() -> None:
        async with sit(size=(46, 24)) as person:
            await person.say("over the hills and far away, and back again")
            await person.until(lambda screen: "overflow" in screen, "answered")
            await person.ready()
            await person.press("ctrl+r")
            shown = await person.until(lambda screen: "terminal" in _box(screen), "the list")
            listed = [line for line in _box(shown).splitlines() if "│" in line]
            mine = next(at for at, line in enumerate(listed) if "over the hills" in line)
            assert "terminal" in listed[mine] and "me" not in listed[mine + 1]

    play(scene())


def _at(lines: list[str], words: str) -> int:
    return next(at for at, line in enumerate(lines) if words in line)


def _box(screen: str) -> str:
    return "\n".join(line for line in screen.splitlines() if "│" in line)


def test_a_server_that_is_killed_is_followed_by_another(sit: Sit, home: Path) -> None:
    async def scene() -> None:
        async with sit() as person:
            await person.say("what is 4 + 4?")
            await person.see("4 + 4 = 8")
            await person.ready()
            assert person.link.pid is not None
            os.kill(person.link.pid, signal.SIGKILL)
            await person.see("ended by signal 9; a new one continues here")
            assert "4 + 4 = 8" in person.screen
            await person.say("what is 6 + 6?")
            await person.see("6 + 6 = 12")

    play(scene())
    assert [words for role, words in stored(home) if role == "user"] == ["what is 4 + 4?", "what is 6 + 6?"]


def test_commands_and_files_are_completed(sit: Sit) -> None:
    async def scene() -> None:
        async with sit() as person:
            await person.ready()
            await person.write("/sta")
            await person.see("where this conversation stands")
            await person.press("tab")
            assert person.app._editor.text == "/status "
            await person.press("enter")
            await person.see("none running")
            await person.say("/sesions")
            await person.see("There is no command /sesions. Did you mean /sessions?")
            await person.press("ctrl+u")
            await person.write("read @no")
            await person.see("notes.md")
            await person.press("tab")
            assert person.app._editor.text == "read @notes.md "

    play(scene())


def test_the_line_always_has_the_keyboard(sit: Sit) -> None:
    async def scene() -> None:
        async with sit() as person:
            await person.ready()
            for away in ("tab", "shift+tab"):
                await person.press(away)
                await person.say("what is 2 * 3?")
                await person.see("2 * 3 = 6")
                await person.ready()
            await person.pilot.click("#transcript")
            await person.write("/stat")
            await person.press("tab", "tab", "u", "s")
            assert person.app._editor.text == "/status us"

    play(scene())


def test_words_that_begin_with_a_path_are_said_and_commands_come_before_their_aliases(sit: Sit) -> None:
    async def scene() -> None:
        async with sit() as person:
            await person.say("/etc/hosts, what is it?")
            await person.see("built-in demo model")
            await person.ready()
            await person.write("/re")
            shown = await person.see("/reset [title]")
            assert shown.index("/resume [") < shown.index("/retry ") < shown.index("/reset [title]")

    play(scene())


def test_a_conversation_that_was_erased_elsewhere_begins_anew_and_one_is_told(sit: Sit, home: Path) -> None:
    async def scene() -> None:
        async with sit() as person:
            await person.say("what is 2 * 3?")
            await person.see("2 * 3 = 6")
            await person.ready()
            with contextlib.closing(SessionDB(home / "state.db")) as db:
                db.ledger.delete(person.app.conversation.stored_id)
            await person.say("what is 4 * 4?")
            await person.see("this conversation was deleted elsewhere")
            await person.see("4 * 4 = 16")

    play(scene())
    assert [words for role, words in stored(home) if role == "user"] == ["what is 4 * 4?"]


def test_what_one_window_takes_back_is_gone_in_the_other(sit: Sit) -> None:
    async def scene() -> None:
        async with sit() as first:
            for question, answer in (("what is 2 * 3?", "2 * 3 = 6"), ("what is 5 * 5?", "5 * 5 = 25")):
                await first.say(question)
                await first.see(answer)
                await first.ready()
            async with sit(session_id=first.app.conversation.stored_id) as second:
                await second.see("5 * 5 = 25")
                await first.say("/undo")
                await first.see("Took back 1 turn")
                await second.see("the last turn was taken back")
                assert "2 * 3 = 6" in second.screen and "5 * 5 = 25" not in second.screen
                await second.say("/redo")
                await second.see("Brought back 1 turn")
                await first.see("what was taken back is here again")
                assert "5 * 5 = 25" in first.screen and "5 * 5 = 25" in second.screen

    play(scene())


def test_a_file_goes_along_and_one_that_cannot_gives_the_words_back(sit: Sit, home: Path, place: Path) -> None:
    (place / "two words.txt").write_text("marmalade\n")
    (place / "picture.png").write_bytes(b"\x89PNG\0\0")

    async def scene() -> None:
        async with sit() as person:
            await person.ready()
            await person.write("@tw")
            await person.see("two words.txt")
            await person.press("tab", "enter")
            shown = await person.see("+ two words.txt (1 line)")
            assert '❯ @"two words.txt"' in shown and "marmalade" not in shown
            await person.ready()
            await person.say("look at @picture.png")
            shown = await person.see("✗ @picture.png is not text")
            assert person.app._editor.text == "look at @picture.png" and shown.count("❯ look at") == 1

    play(scene())
    assert "marmalade" in stored(home)[0][1]


def test_a_window_of_20_by_5_and_back(sit: Sit) -> None:
    async def scene() -> None:
        async with sit() as person:
            await person.say("list the files here")
            await person.see("Say “delete")
            await person.ready()
            await person.pilot.resize_terminal(20, 5)
            await person.until(lambda screen: len(screen.splitlines()) == 5, "small")
            assert all(len(line) <= 20 for line in person.lines)
            await person.say("run sleep 2")
            await person.until(lambda screen: "running" in screen.splitlines()[-1], "what it does")
            await person.ready()
            await person.pilot.resize_terminal(80, 24)
            await person.see("❯ list the files here")

    play(scene())


def test_no_store_is_said_and_the_window_stays(sit: Sit, home: Path) -> None:
    async def scene() -> None:
        (home / "config.yaml").write_text("model: [\n")
        async with sit() as person:
            await person.see("✗ ")
            assert "config.yaml" in person.letters
            configure(home)
            await person.say("what is 7 + 7?")
            await person.see("7 + 7 = 14")

    play(scene())


async def _answered(person: Person, question: str, answer: str) -> None:
    await person.say(question)
    await person.see(answer)
    await person.ready()


def test_light_and_dark_are_remembered(sit: Sit, home: Path) -> None:
    async def scene() -> None:
        async with sit() as person:
            await _answered(person, "what is 1 + 2?", "1 + 2 = 3")
            dark = person.app.theme
            await person.press("f4")
            await person.until(lambda screen: person.app.theme != dark, "the other one")
            assert "1 + 2 = 3" in person.screen
            await person.until(lambda screen: "skin: light" in (home / "config.yaml").read_text(), "written down")

    play(scene())
    assert "skin: light" in (home / "config.yaml").read_text()


def test_who_speaks_is_taken_to_the_end_and_the_way_back_is_shown(sit: Sit) -> None:
    async def scene() -> None:
        async with sit() as person:
            for number in range(4):
                await _answered(person, f"list the files here, {number}", "Say “delete")
            for _ in range(2):  # unfolded and folded again, it is still at the end
                await person.press("ctrl+o")
                await person.pilot.pause()
            await person.press("pageup")
            await person.see("↓ Ctrl+End newest")
            await person.press("ctrl+end")
            await person.until(lambda screen: "newest" not in screen, "the end")
            await person.press("pageup")
            await _answered(person, "what is 9 * 9?", "9 * 9 = 81")

    play(scene())


def test_copying_by_key_and_by_mouse(sit: Sit, home: Path, place: Path) -> None:
    (place / "京都.txt").write_text("x\n")

    async def scene() -> None:
        async with sit() as person:
            await _answered(person, "run printf 'one\\ntwo\\n'", "ran.")
            await person.press("ctrl+y")
            await person.see("again: its code")
            assert person.app.clipboard.startswith("`printf") and "```" in person.app.clipboard
            await person.press("ctrl+y")
            await person.see("copied code block: 2 lines")
            assert person.app.clipboard == "one\ntwo"
            await _answered(person, "list the files here", "京都.txt")
            row = next(at for at, line in enumerate(person.lines) if "Files: " in line)
            column = person.lines[row].index("京")
            await person.pilot.mouse_down("#transcript", offset=(column, row))
            await person.pilot.hover("#transcript", offset=(column + 7, row))
            await person.pilot.mouse_up("#transcript", offset=(column + 7, row))
            await person.press("ctrl+c")
            assert person.app.clipboard == "京都.txt"
            await person.pilot.click("#transcript", offset=(4, row), times=2)
            await person.press("ctrl+c")
            assert person.app.clipboard.startswith("I looked: ") and "京都.txt" in person.app.clipboard
            assert not person.app.screen.get_selected_text()

    play(scene())


def test_all_keys_are_a_box_that_any_key_closes(sit: Sit) -> None:
    async def scene() -> None:
        async with sit() as person:
            await person.ready()
            await person.press("f1")
            shown = await person.see("Ctrl+Y")
            assert all(len(line) <= 80 for line in shown.splitlines()) and "leave; the conversation is kept" in shown
            await person.press("x")
            await person.until(lambda screen: "Ctrl+Y" not in screen, "closed")
            assert person.app._editor.text == ""

    play(scene())


def test_an_answer_that_is_not_what_was_streamed_takes_its_place(sit: Sit) -> None:
    async def scene() -> None:
        async with sit() as person:
            await person.ready()
            for kind, payload in (
                ("message.start", None),
                ("message.delta", {"text": "Half of somethi"}),
                ("message.complete", {"text": "Said anew, whole.", "status": "complete"}),
            ):
                person.app.conversation.heard(
                    {"type": kind, "session_id": person.app.conversation.sid, "payload": payload}
                )
            shown = await person.see("Said anew, whole.")
            assert "Half of" not in shown

    play(scene())


def test_what_looks_like_html_a_formula_or_a_wide_table_is_shown_whole(sit: Sit) -> None:
    cells = ("2026-11-16T02:03:04Z", "DE89370400440532013000", "https://example.org/a/long/path", "1,463,722.00")
    table = f"| when | account | where | amount |\n|---|---|---|--:|\n| {' | '.join(cells)} |"
    links = "![plan](http://x.example/p.png)\n\n<http://y.example>"
    said = f"Use List<String> or Vec<u8>, press <Enter>, run cat <file>.\n\nThen \\(x\\,y\\).\n\n{links}\n\n{table}"

    async def scene(columns: int) -> None:
        async with sit(size=(columns, 40)) as person:
            await person.ready()
            for kind, payload in (
                ("message.start", None),
                ("message.delta", {"text": said}),
                ("message.complete", {"text": said, "status": "complete"}),
            ):
                person.app.conversation.heard(
                    {"type": kind, "session_id": person.app.conversation.sid, "payload": payload}
                )
            await person.see("Vec<u8>")
            await person.until(lambda screen: "press <Enter>" in " ".join(screen.split()), "the key")
            assert "List<String>" in person.screen and "<file>" in person.screen and "\\(x\\,y\\)" in person.screen
            assert "(http://x.example/p.png)" in person.screen and person.screen.count("//y.example") == 1
            assert "…" not in person.screen.replace("/…", "")
            lines = [line for line in person.lines if line.strip()]
            shown = "".join(lines) if columns < 60 else ""
            for place, cell in enumerate(cells):
                assert cell in _column(lines, place) or cell in shown.replace(" ", ""), f"{cell}\n{person.screen}"

    play(scene(70))
    play(scene(36))


def _column(lines: list[str], place: int) -> str:
    """The letters of a column of the table, from above to below."""
    rule = next((at for at, line in enumerate(lines) if "────" in line), None)
    if rule is None:
        return ""
    heads = ("when", "account", "where", "amount")
    starts = [lines[rule - 1].index(head) for head in heads]
    starts[3] -= 8  # it stands to the right
    ends = [*starts[1:], 200]
    return "".join(line[starts[place] : ends[place]].strip() for line in lines[rule + 1 : rule + 6])


def test_the_wheel_goes_on_from_where_the_reader_is(sit: Sit) -> None:
    async def scene() -> None:
        async with sit() as person:
            for number in range(6):
                await _answered(person, f"list the files here, {number}", "Say “delete")
            for _ in range(3):
                await person.press("pageup")
            await person.see("↓ Ctrl+End newest")
            await person.press("ctrl+end")
            await person.until(lambda screen: "newest" not in screen, "the end")
            bottom = person.app._transcript.scroll_offset.y
            await person.pilot._post_mouse_events([events.MouseScrollUp], "#transcript", offset=(5, 5))
            await person.see("↓ Ctrl+End newest")
            await person.pilot.wait_for_animation()
            assert 0 < bottom - person.app._transcript.scroll_offset.y < 8

    play(scene())


def test_a_line_that_ctrl_c_cleared_comes_back_and_history_is_read_from_its_end(sit: Sit) -> None:
    async def scene() -> None:
        async with sit() as person:
            for word in ("1 + 1", "2 + 2", "3 + 3"):
                await _answered(person, f"what is {word}?", f"{word} = ")
            await person.press("up", "up")
            assert person.app._editor.text == "what is 2 + 2?"
            await person.press("ctrl+c")
            assert person.app._editor.text == ""
            await person.press("up")
            assert person.app._editor.text == "what is 3 + 3?"
            await person.press("ctrl+c")
            await person.write("half a line")
            await person.press("ctrl+c", "up")
            assert person.app._editor.text == "half a line"
            await person.press("f1")
            assert "clear the line" in await person.see("Ctrl+Y")

    play(scene())


def test_a_model_belongs_to_its_conversation(sit: Sit, home: Path) -> None:
    """It survives a lost server and the next window, and stays out of a new conversation."""
    with contextlib.closing(ModelServer(models=("mock", "slow"))) as server:
        (home / "config.yaml").write_text(
            f"model: {{default: mock, provider: custom, base_url: 'http://{server.address}/v1'}}\nauto_title: false\n"
        )

        async def scene() -> None:
            async with sit() as person:
                await person.ready()
                await _answered(person, "zero", "ok")
                await person.press("f3")
                assert "slow" in await person.see("mock"), "what the server offers"
                await person.write("slow")
                await person.until(lambda screen: "mock  custom" not in screen, "narrowed")
                await person.press("enter")
                await person.see("From now on here: slow (custom)")
                await _answered(person, "one", "ok")
                assert person.link.pid is not None
                os.kill(person.link.pid, signal.SIGKILL)
                await person.see("a new one continues here")
                await _answered(person, "two", "ok")
                number = person.app.conversation.stored_id
                await person.say("/new")
                await person.until(lambda screen: "mock" in screen.splitlines()[-1], "the configured model")
                await _answered(person, "three", "ok")
            async with sit(session_id=number) as person:
                await person.see("two")
                await _answered(person, "four", "ok")
                await person.say("/model slwo")
                shown = await person.see("did you mean")
                assert "From now on here: slwo" in shown and "does not list that; did you mean slow?" in shown

        play(scene())
        assert server.asked == ["mock", "slow", "slow", "mock", "slow"]


def test_a_question_that_failed_says_so_when_its_conversation_is_opened_again(sit: Sit) -> None:
    async def scene() -> None:
        async with sit() as person:
            await person.say("fail with 401")
            await person.see("wants a key (401)")
            await person.ready()
            number = person.app.conversation.stored_id
        async with sit(session_id=number) as person:
            shown = await person.see("not answered: demo wants a key (401)")
            assert "❯ fail with 401" in shown and "/retry asks again" in " ".join(shown.split())
        assert await asyncio.to_thread(main, ["sessions", "compress", number]) == 1, "there is nothing to compress"
        async with sit(session_id=number) as person:  # a turn of another kind does not hide it
            await person.see("not answered: demo wants a key (401)")
            await _answered(person, "what is 2 + 2?", "2 + 2 = 4")
        async with sit(session_id=number) as person:
            assert "not answered" not in await person.see("2 + 2 = 4")

    play(scene())


def test_a_long_command_says_how_much_of_it_is_below(sit: Sit) -> None:
    command = "rm -r " + " ".join(f"old/folder-{number}" for number in range(60)) + " the-last"

    async def scene() -> None:
        async with sit() as person:
            await person.say(f"run {command}")
            shown = await person.see("more lines below")
            assert "the-last" not in shown.partition("❯")[0].rpartition("Hermes wants")[2]
            for _ in range(6):
                await person.press("pagedown")
            await person.see("the-last")
            await person.until(lambda screen: "lines below" not in screen, "the end is in sight")

    play(scene())


def test_what_takes_long_says_for_how_long(sit: Sit) -> None:
    async def scene() -> None:
        async with sit() as person:
            await person.say("run sleep 6")
            await person.until(lambda screen: re.search(r"running terminal [3-9] s", screen) is not None, "the seconds")
            await person.press("escape")
            await person.ready()

    play(scene())
