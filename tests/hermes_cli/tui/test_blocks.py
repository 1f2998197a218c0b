"""What is longer than the window is wide goes on below where its words began."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from tests.hermes_cli.tui.conftest import Sit

from hermes_cli.tui import widgets
from hermes_cli.tui.blocks import NoteBlock

pytestmark = pytest.mark.slow

_BESIDE = r"  /uncompress {9,}undo the last compression; what was\n? {0,40}said\n? {31,}since stays"
_BELOW = r"  /uncompress\n      undo the last compression; what\n      was said since stays"
INKS = widgets.inks(dark=True)


@pytest.mark.parametrize(("columns", "row"), [(80, _BESIDE), (40, _BELOW)])
def test_a_long_line_of_help_goes_on_below_its_description(sit: Sit, columns: int, row: str) -> None:
    async def scene() -> None:
        async with sit(size=(columns, 120)) as person:
            await person.ready()
            await person.say("/help")
            await person.see("Of this window:")
            shown = "\n".join(line.removeprefix(" ") for line in person.lines)
            assert re.search(row, shown)
            first = {line.split()[0] for line in shown.splitlines() if line[:1].strip()}
            assert first >= {"Conversation", "Turns", "Settings", "About", "·", "❯"} and "since" not in first

    asyncio.run(scene())


def test_a_remark_goes_on_beside_its_mark_and_a_sentence_is_no_table() -> None:
    assert _lines(NoteBlock("one two three four five", "trouble"), 16) == ["✗ one two three", "  four five"]
    sentence = "One.  Two three four five."
    assert _lines(NoteBlock(sentence, "plain"), 16) == ["One.  Two three", "four five."]


@pytest.mark.parametrize("width", [4, 8, 12, 20, 40])
def test_no_word_is_lost_in_a_window_of_any_width(width: int) -> None:
    table = "  /one [what]    words that 京都 goes on with\n  /another       and others\n\n      deeper than that"
    shown = _lines(NoteBlock(table, "note"), width)
    assert "".join("".join(shown).split()) == "·" + "".join(table.split())


def _lines(remark: NoteBlock, width: int) -> list[str]:
    return [strip.text.rstrip() for strip in remark.lines(width, INKS)[1:]]


def test_a_folder_is_named_from_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    named = [widgets.folder(str(path)) for path in (tmp_path, tmp_path / "trip", Path("/srv"))]
    assert named == ["~", "~/trip", "/srv"]
