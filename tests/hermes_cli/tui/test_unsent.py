"""Words that were typed and not taken up: whatever happens, they are seen again."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests.hermes_cli.tui.conftest import Person, Sit, configure
from tests.support.sample_store import stored
from tests.support.terminal import Terminal
from textual import events

from hermes_state import SessionDB

pytestmark = pytest.mark.slow

_QUEUE = "display:\n  busy_input_mode: queue\n"
_BACK = "what is 2 + 3?\n\nand half a li"


def _stopped(person: Person) -> Coroutine[Any, Any, None]:
    return person.press("escape")


async def _stopped_by_another_client(person: Person) -> None:
    await person.link.ask("slash.exec", session_id=person.app.conversation.sid, command="/stop")


@pytest.mark.parametrize("happens", [_stopped, _stopped_by_another_client])
def test_what_waited_comes_back_in_front_of_what_is_being_typed(
    sit: Sit, home: Path, happens: Callable[[Person], Coroutine[Any, Any, None]]
) -> None:
    async def scene() -> None:
        configure(home, pace=40, more=_QUEUE)
        async with sit() as person:
            await person.say("tell me the long story")
            await person.see("harbour town")
            await person.say("what is 2 + 3?")
            await person.until(lambda screen: bool(person.app.conversation.unsent.known), "it waits at the server")
            await person.write("and half a li")
            await happens(person)
            await person.until(lambda screen: "❯ what is 2 + 3?" in screen and "next:" not in screen, "the words")
            assert person.app._editor.text == _BACK

    asyncio.run(scene())
    assert [words for role, words in stored(home) if role == "user"] == ["tell me the long story"]


def test_what_waited_when_the_server_was_killed_is_answered_by_the_next_one(sit: Sit, home: Path) -> None:
    async def scene() -> None:
        configure(home, pace=40, more=_QUEUE)
        async with sit() as person:
            await person.say("tell me the long story")
            await person.see("harbour town")
            await person.say("what is 2 + 3?")
            await person.until(lambda screen: bool(person.app.conversation.unsent.known), "it is stored")
            await person.write("and half a li")
            configure(home, pace=0, more=_QUEUE)
            assert person.link.pid is not None
            os.kill(person.link.pid, signal.SIGKILL)
            await person.see("a new one continues here")
            await person.see("2 + 3 = 5")
            await person.ready()
            assert person.app._editor.text == "and half a li"

    asyncio.run(scene())
    said = [words for role, words in stored(home) if role == "user"]
    assert said == ["tell me the long story", "what is 2 + 3?"], "each once"


def test_leaving_says_which_words_were_not_taken_up(home: Path, place: Path) -> None:
    configure(home, pace=40, more=_QUEUE)
    command = [sys.executable, "-m", "hermes_cli"]
    with Terminal(command, env={"TERM": "xterm-256color"}, lines=24, cwd=place) as terminal:
        terminal.see("ready")
        terminal.type("tell me the long story")
        terminal.see("harbour")
        terminal.type("what is 2 + 3?")
        terminal.see("next: what is 2 + 3?")
        terminal.press("ctrl-d")
        assert terminal.end() == 0
        left = terminal.raw.rpartition("\x1b[?1049l")[2]
        assert "Messages that were not answered when the window closed:" in left and "what is 2 + 3?" in left
    with contextlib.closing(SessionDB(home / "state.db")) as db:
        rows = {str((row.payload or {})["text"]): (row.state, row.reason) for row in db.inbox.list()}
    assert rows["what is 2 + 3?"] == ("dropped", "taken back"), "who was told that it was not taken up may say it again"


def test_a_command_that_is_refused_during_a_turn_leaves_what_it_said_on_the_screen(sit: Sit, home: Path) -> None:
    async def scene() -> None:
        configure(home, pace=40, more=_QUEUE)
        async with sit(size=(80, 60)) as person:
            await person.say("what is 1 + 1?")
            await person.see("1 + 1 = 2")
            await person.ready()
            await person.say("tell me the long story")
            await person.see("harbour town")
            for command in ("/undo", "/redo", "/retry", "/compress"):
                await person.say(command)
                await person.see(f"then {command}")
                assert "harbour town" in person.screen

    asyncio.run(scene())


def test_a_message_that_is_too_long_is_refused_at_once_and_can_be_edited(sit: Sit, home: Path) -> None:
    async def scene() -> None:
        configure(home, more="limits:\n  rpc_frame_bytes: 65536\n")
        async with sit() as person:
            await person.ready()
            await person.write("look ")
            person.app._editor.post_message(events.Paste("x" * 70_000))
            await person.see("[paste 1: 70,000 characters]")
            await person.press("enter")
            await person.see("✗ this is too long to be sent: 70 kB, and 66 kB is the most")
            await person.ready()
            assert person.app._editor.text == "look [paste 1: 70,000 characters]"
            await person.press("ctrl+u")
            await person.say("京" * 20_000)  # 60 kB, as characters and not as escapes
            await person.see("built-in demo model")

    asyncio.run(scene())
    assert [words for role, words in stored(home) if role == "user"] == ["京" * 20_000]
