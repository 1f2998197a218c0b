"""The transcript: a long conversation opens at its end and can be read to its beginning, without a hole."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from tests.hermes_cli.tui.conftest import Sit, configure

from hermes_state import SessionDB

pytestmark = pytest.mark.slow

_MANY = 400
_ID = "20261101_100000_aaaaaaaa"


def _converse(home: Path) -> None:
    db = SessionDB(home / "state.db")
    db.create_session(_ID, "cli")
    for number in range(_MANY // 2):
        db.append_message(_ID, "user", f"Question {number:04}.")
        lines = "\n".join(f"- {number:04}.{line}" for line in range(number % 7 + 1))
        db.append_message(_ID, "assistant", f"Answer {number:04}.\n\n{lines}\n\n```python\nx = {number}\n```")
    db.close()


def test_every_line_of_a_long_conversation_comes_by_once_and_in_order(sit: Sit, home: Path, place: Path) -> None:
    _converse(home)

    async def scene() -> None:
        async with sit(_ID) as person:
            await person.see(f"Answer {_MANY // 2 - 1:04}.")
            assert len(person.app._transcript.blocks) < _MANY, "only the end was asked for"
            transcript, seen = person.app._transcript, set[int]()
            while 0 not in seen:
                top = person.lines[: transcript.size.height]
                assert any(line.strip() for line in top[:3]), "a hole"
                asked = [int(found[1]) for line in top if (found := re.search(r"❯ Question (\d+)", line))]
                assert asked == list(range(asked[0], asked[-1] + 1)) and (not seen or asked[-1] >= min(seen) - 1)
                seen.update(asked)
                transcript.scroll_relative(y=-(transcript.size.height // 2), animate=False)
                await person.pilot.pause()
                if 0 not in seen:
                    await person.until(lambda _, top=top: person.lines[: len(top)] != top, "further up")
            assert seen == set(range(_MANY // 2))
            assert sum(len(block.drawn) for block in transcript.blocks) < transcript.virtual_size.height / 1.5
            height = transcript.virtual_size.height
            await person.press("ctrl+end")
            shown = await person.see(f"Answer {_MANY // 2 - 1:04}.")
            assert f"x = {_MANY // 2 - 1}" in shown and transcript.virtual_size.height == height

    asyncio.run(scene())


def test_who_reads_further_up_is_left_there_while_an_answer_comes(sit: Sit, home: Path, place: Path) -> None:
    _converse(home)
    configure(home, pace=200)

    async def scene() -> None:
        async with sit(_ID) as person:
            await person.see(f"Answer {_MANY // 2 - 1:04}.")
            await person.say("tell me the long story")
            await person.see("harbour town")
            await person.press("pageup", "pageup")
            await person.pilot.pause()
            before, height = person.lines[:10], person.app._transcript.virtual_size.height
            await person.until(lambda _: person.app._transcript.virtual_size.height > height + 1, "more of the story")
            assert person.lines[:10] == before
            await person.pilot.resize_terminal(60, 24)
            await person.pilot.pause()
            assert before[0].strip()[:20] in person.screen or before[1].strip()[:20] in person.screen
            await person.press("escape")
            await person.press("ctrl+end")
            await person.see("interrupted; finished work")

    asyncio.run(scene())


def test_what_a_tool_prints_cannot_touch_the_terminal(sit: Sit, home: Path, place: Path) -> None:
    (place / "evil.txt").write_text("\x1b[2J\x1b]0;owned\x07red\x1b[31m\x9b5mend\u202etxt\n")

    async def scene() -> None:
        async with sit() as person:
            await person.say("read evil.txt")
            await person.see("✓ read_file")
            await person.ready()
            await person.press("ctrl+o")
            await person.see("▾")
            shown = await person.see("red")
            assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]", shown)

    asyncio.run(scene())
