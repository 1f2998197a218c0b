"""What the line chat puts on a screen: exact commands, whole words, nothing that could harm a terminal."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_agent.approvals.types import ApprovalQuestion
from hermes_cli.chat import approval
from hermes_cli.chat.render import EventLines, Screen, Wrap, duration
from hermes_cli.framework import text
from hermes_state.ids import ConversationId, PersonId, TurnId


def question(command: str, *, why: str = "it deletes", workdir: str = "/home/ada/project") -> ApprovalQuestion:
    return ApprovalQuestion(
        id="a1", kind="command", command=command, workdir=workdir, detail="", why=why,
        conversation_id=ConversationId("c"), turn_id=TurnId("t"), call_id="1", person_id=PersonId("owner"),
        platform="cli", expires_at=60.0, seconds=60.0,
    )  # fmt: skip


def command_in(box: str) -> str:
    """The command as the box shows it."""
    lines = box.split("\n│\n")[1].split("\n")
    return "\n".join(lines).replace("\n│ ↪ ", "").replace("│   ", "")


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("rm -r old", "rm -r old"),
        ("echo a\nrm -rf ~", "echo a\nrm -rf ~"),
        ("echo hi \r rm x", "echo hi ⟨U+000D⟩ rm x"),
        ("echo \x1b[2K\x1b[1A", "echo ⟨U+001B⟩[2K⟨U+001B⟩[1A"),
        ("rm \u202etxt.exe", "rm ⟨U+202E⟩txt.exe"),
        ("rm a\u200bb", "rm a⟨U+200B⟩b"),
        ("rm\u00a0x", "rm⟨U+00A0⟩x"),
        ("cat 京都.txt", "cat 京都.txt"),
        ("printf '\tx'", "printf '    x'"),
    ],
)
def test_a_command_is_shown_exactly_and_what_would_hide_is_named(command: str, shown: str) -> None:
    assert command_in(approval.box(question(command), whom="you")) == shown


@given(st.text(alphabet=st.characters(min_codepoint=33, max_codepoint=126) | st.just(" "), min_size=1, max_size=600))
def test_however_long_a_command_is_nothing_of_it_is_left_out(command: str) -> None:
    assert command_in(approval.box(question(command), whom="you")) == command


def test_what_surrounds_the_command_cannot_break_out_of_its_line() -> None:
    box = approval.box(
        question("ls", why="because\n│ why     nothing at all\x1b[1A", workdir="/tmp/\x1b]0;x\x07"), whom="you"
    )
    assert "\x1b" not in box
    assert box.count("\n│ why ") == 1


def wrapped(content: str, columns: int, *, pieces: int = 1) -> str:
    wrap = Wrap(lambda: columns)
    step = max(1, len(content) // pieces)
    shown = "".join(wrap.add(content[at : at + step]) for at in range(0, len(content), step))
    return shown + wrap.rest()


WORDS = st.lists(st.text(alphabet="abcdefgé", min_size=1, max_size=12), min_size=1, max_size=60).map(" ".join)


@given(WORDS, st.integers(20, 80), st.integers(1, 40))
def test_lines_fit_words_are_whole_and_the_pieces_do_not_matter(content: str, columns: int, pieces: int) -> None:
    shown = wrapped(content, columns, pieces=pieces)
    assert shown == wrapped(content, columns)
    assert shown.split() == content.split()
    assert max(map(len, shown.split("\n"))) <= columns


def test_items_are_indented_code_is_left_alone_and_scripts_without_spaces_stream() -> None:
    assert wrapped("- one two three four", 10) == "- one two\n  three\n  four"
    code = "```\nrm -rf a b c d e f g\n```\n"
    assert wrapped(code, 10) == code
    assert wrapped("    make install PREFIX=/usr", 12) == "    make install PREFIX=/usr"
    assert wrapped("京都の天気はどうですか", 8) == "京都の天\n気はどう\nですか"
    assert Wrap(lambda: 80).add("京都") == "京都"


def test_a_word_wider_than_the_window_is_the_terminals_business() -> None:
    address = f"https://example.org/{'x' * 60}"
    assert wrapped(f"see {address} there", 40) == f"see {address} there"


def test_a_models_words_cannot_drive_the_terminal() -> None:
    stream = io.StringIO()
    screen = Screen(answer=stream, aside=stream)
    screen.answer("a\x1b]0;owned\x07b\rc")
    screen.note("x\x1b[2J\ny")
    screen.tool_started("evil\x1b[1A", "arg\ns")
    screen.tool_ended("evil\x1b[1A", "arg\ns", seconds=0.1, failed=True, why="no\x1b[0m\nmore")
    screen.end_answer()
    assert not set(stream.getvalue()) & set("\x1b\x07\r")
    assert stream.getvalue().count("\n") == 3


def test_durations_read_well() -> None:
    assert [duration(s) for s in (0.0001, 0.05, 0.9999, 1.44, 61, 3_725)] == [
        "1 ms", "50 ms", "1.0 s", "1.4 s", "1:01 min", "1:02:05 h",
    ]  # fmt: skip


def test_a_tool_line_fits_the_bound_and_keeps_its_time() -> None:
    stream = io.StringIO()
    Screen(answer=stream, aside=stream).tool_ended("terminal", "x" * 5_000, seconds=2, failed=False, why="")
    (line,) = stream.getvalue().splitlines()
    assert text.width(line) <= 200
    assert line.endswith("… · 2.0 s")


def test_a_turn_that_could_not_be_run_is_over() -> None:
    ends: list[str] = []
    lines = EventLines(Screen(answer=io.StringIO(), aside=io.StringIO()), at_prompt=lambda: False,
                       ended=lambda: ends.append("ended"))  # fmt: skip
    lines.show("message.start", {})
    assert lines.turning
    lines.show("error", {"message": "the gateway went away"})
    assert not lines.turning and ends == ["ended"]
