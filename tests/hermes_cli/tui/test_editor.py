"""What stands in the line where a person types."""

from __future__ import annotations

import asyncio

import pytest
from tests.hermes_cli.tui.conftest import Sit
from textual import events

pytestmark = pytest.mark.slow

_LINES = "\n".join(f"line {number}" for number in range(300))


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_a_long_paste_is_as_many_lines_as_it_has_whatever_its_end(sit: Sit, end: str) -> None:
    async def scene() -> None:
        async with sit() as person:
            person.app._editor.post_message(events.Paste(_LINES + end))
            await person.see("[paste 1: 300 lines]")
            assert person.app.unsent() == [_LINES + end.replace("\r", "")]

    asyncio.run(scene())


def test_120_lines_can_be_edited_by_hand_and_121_not(sit: Sit) -> None:
    async def scene() -> None:
        async with sit() as person:
            editor = person.app._editor
            editor.post_message(events.Paste("x\n" * 120))
            await person.until(lambda screen: bool(editor.text), "it stands there")
            assert editor.text == "x\n" * 120
            editor.clear()
            editor.post_message(events.Paste("x\n" * 121))
            await person.see("[paste 1: 121 lines]")

    asyncio.run(scene())
