"""Markdown that is drawn while it arrives looks as if it had been drawn at once, however it was cut."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_agent.text import skill_request
from hermes_cli.tui import widgets
from hermes_cli.tui.blocks import AnswerBlock, ToolBlock, UserBlock, of_history

pytestmark = pytest.mark.slow

INKS = widgets.inks(dark=True)
BLOCKS = (
    "A paragraph with *words*, `code` and a [link](http://example.org).",
    "# A heading",
    "- one\n- two\n\n  still two\n- three",
    "1. first\n2. second",
    "```python\ndef f():\n\n    return '# no heading'\n```",
    "> quoted\n> on",
    "| a | b |\n|---|---|\n| 1 | 2 |",
    "***",
    "~~~\nfenced ``` within\n~~~",
)
TEXTS = st.lists(st.sampled_from(BLOCKS), min_size=1, max_size=6).map("\n\n".join)


def _text(strips: list[object]) -> list[str]:
    return [str(strip.text).rstrip() for strip in strips]  # type: ignore[attr-defined]


@settings(max_examples=60, deadline=None)
@given(text=TEXTS, step=st.integers(min_value=1, max_value=60), width=st.integers(min_value=20, max_value=100))
def test_in_steps_or_at_once(text: str, step: int, width: int) -> None:
    growing = AnswerBlock()
    for at in range(0, len(text), step):
        growing.add(text[at : at + step])
        growing.lines(width, INKS)
    again = AnswerBlock(text)
    assert _text([*growing.lines(width, INKS)]) == _text([*again.lines(width, INKS)])


def test_a_long_answer_is_drawn_in_parts_that_lose_nothing() -> None:
    code = "\n".join(f"line_{number} = {number}" for number in range(2_000))
    text = f"Before.\n\n```python\n{code}\n```\n\nAfter.\n\n" + "word " * 5_000 + "\n\nThe end."
    parts = of_history({"role": "assistant", "text": text})
    assert len(parts) > 10 and all(isinstance(part, AnswerBlock) for part in parts)
    shown = [line for part in parts for line in _text([*part.lines(78, INKS)])]
    assert [line.strip() for line in shown if "line_" in line] == code.split("\n")
    assert sum(line.count("word") for line in shown) == 5_000
    assert shown[-1] == "The end." and not any("```" in line for line in shown)


def test_a_paste_that_was_sent_is_shown_by_its_beginning() -> None:
    said = UserBlock("x\n" * 13_000)
    lines = _text([*said.lines(78, INKS)])
    assert len(lines) < 250 and lines[-1] == "  … 12,800 more lines"
    assert _text([*UserBlock("one line\n").lines(78, INKS)]) == ["", "❯ one line"]
    asked = skill_request("bread", "ten loaves")
    assert _text([*UserBlock(asked).lines(78, INKS)]) == ["", "❯ /bread ten loaves"]


def test_a_tool_that_prints_for_ever_is_kept_small() -> None:
    call = ToolBlock("terminal", "yes")
    for _ in range(300):
        call.heard("y\n" * 1_000)
    assert len(call.lines(78, INKS)) < 8
    call.fold(True)
    assert len(call.lines(78, INKS)) < 260
