"""What goes wrong around the window: it stays usable, and says what happened."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from pathlib import Path

import apsw
import pytest
from tests.hermes_cli.tui.conftest import Person, Sit, configure
from tests.support.sample_store import stored

from hermes_cli.tui.rpc_client import RequestRefused
from hermes_state import SessionDB
from hermes_testing.scripted.model import ScriptedModel, say

pytestmark = pytest.mark.slow

_CONTROLS = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]")
_LONG = "\n\n".join(
    f"## Part {number}\n\n" + "Some *words* of it. " * 40 + f"\n\n```python\npart = {number}\n```"
    for number in range(250)
)


def test_a_turn_whose_server_is_killed_goes_on_under_its_own_question(sit: Sit, home: Path) -> None:
    async def scene() -> None:
        configure(home, pace=40)
        async with sit() as person:
            await person.say("tell me the long story")
            await person.see("harbour town")
            _kill_server(person)
            await person.see("a new one continues here")
            await person.see("recovering the turn of a process that was lost")
            assert "❯ tell me the long story" in person.screen
            await person.until(lambda screen: "harbour town" in screen, "the story, from its beginning")
            await person.say("what is 6 + 6?")
            await person.see("6 + 6 = 12")
            await person.ready()

    asyncio.run(scene())
    said = [words for role, words in stored(home) if role == "user"]
    assert said == ["tell me the long story", "what is 6 + 6?"]


def test_what_is_said_before_a_lost_turn_was_ended_waits_behind_it(sit: Sit, home: Path) -> None:
    async def scene() -> None:
        configure(home, pace=40, more="display:\n  busy_input_mode: queue\n")
        async with sit() as person:
            await person.say("tell me the long story")
            await person.see("harbour town")
            person.link.restarts += [time.monotonic()] * 3  # no other server is started
            _kill_server(person)
            await person.see("hermes doctor may tell why")
        async with sit(session_id=_newest(home)) as person:
            await person.say("what is 6 + 6?")
            await person.see("next: what is 6 + 6?")
            await person.see("harbour town")
            assert "❯ what is 6 + 6?" not in person.screen
            await person.press("escape")
            await person.ready()
            assert person.app._editor.text == "what is 6 + 6?"
            await person.press("enter")
            await person.see("6 + 6 = 12")

    asyncio.run(scene())
    said = [words for role, words in stored(home) if role == "user"]
    assert said == ["tell me the long story", "what is 6 + 6?"]


def _kill_server(person: Person) -> None:
    assert person.link.pid is not None
    os.kill(person.link.pid, signal.SIGKILL)


def _newest(home: Path) -> str:
    db = SessionDB(home / "state.db")
    try:
        return str(db.list_sessions_rich(order_by_last_active=True, limit=1)[0]["id"])
    finally:
        db.close()


def test_a_store_that_is_locked_is_said_and_the_words_stay(sit: Sit, home: Path, place: Path) -> None:
    async def scene() -> None:
        configure(home, more="limits:\n  write_wait_ms: 300\n")
        async with sit() as person:
            await person.say("what is 1 + 1?")
            await person.see("1 + 1 = 2")
            await person.ready()
            other = apsw.Connection(str(home / "state.db"))
            other.execute("BEGIN IMMEDIATE")
            await person.say("what is 2 + 2?")
            await person.see("locked")
            await person.ready()
            other.execute("ROLLBACK")
            other.close()
            await person.say("what is 3 + 3?")
            await person.see("3 + 3 = 6")

    asyncio.run(scene())


def test_an_answer_of_200_kb_comes_whole_and_keys_are_heard_meanwhile(sit: Sit, home: Path) -> None:
    assert len(_LONG) > 200_000

    async def scene(address: str) -> None:
        model = f"provider: custom, default: m-1, base_url: '{address}/v1', api_key: scripted-key"
        (home / "config.yaml").write_text(f"auto_title: false\nmodel: {{{model}}}\n")
        async with sit() as person:
            await person.say("all of it, please")
            await person.see("Some words of it.")
            worked = waited = 0.0
            while "Part 249" not in person.screen or " ready" not in person.lines[-1]:
                busy, began = time.process_time(), time.perf_counter()
                await person.press("x")
                worked = max(worked, time.process_time() - busy)  # what other programs take is no matter of ours
                waited = max(waited, time.perf_counter() - began)
                await asyncio.sleep(0.05)
            assert worked < 2.0 and waited < 10.0 and set(person.app._editor.text) <= {"x"}
            await person.press("ctrl+u", "ctrl+y")
            await person.see("copied the answer")
            assert person.app.clipboard == _LONG
            person.app._transcript.scroll_home(animate=False)
            await person.see("❯ all of it, please")

    pieces = [_LONG[at : at + 400] for at in range(0, len(_LONG), 400)]
    with ScriptedModel(say(*pieces), model="m-1").served() as server:
        asyncio.run(asyncio.wait_for(scene(server.origin), 60))


def test_a_server_that_is_lost_while_a_list_is_open_does_not_end_the_window(sit: Sit, home: Path) -> None:
    async def scene() -> None:
        async with sit() as person:
            await person.ready()
            os.kill(person.link.pid or 0, signal.SIGSTOP)  # it will not answer the list's question
            await person.press("f2")
            await person.see("words of a title")
            _kill_server(person)
            await person.see("a new one continues here")
            await person.say("what is 1 + 1?")
            await person.see("1 + 1 = 2")
            assert person.app.failure is None

    asyncio.run(scene())


def test_a_list_that_the_server_refuses_says_why(sit: Sit, home: Path) -> None:
    async def scene() -> None:
        async with sit() as person:
            await person.ready()
            person.app._client.ask = _refuses  # type: ignore[method-assign]
            await person.press("f2")
            await person.see("the store is locked")
            assert person.app.failure is None

    async def _refuses(method: str, **params: object) -> dict[str, object]:
        raise RequestRefused(5001, "the store is locked")

    asyncio.run(scene())


def test_control_sequences_are_harmless_wherever_they_come_from(sit: Sit, home: Path, place: Path) -> None:
    evil = "\x1b[2J\x1b]52;c;aGk=\x07\x1b[?1049l\x9bm\u202e"
    (place / f"a{evil}b.txt").write_text("x")

    async def scene() -> None:
        async with sit() as person:
            await person.ready()
            await person.write("@a")
            await person.see("b.txt")
            await person.press("escape", "ctrl+u")
            await person.say(f"look {evil} here")
            await person.see("built-in demo model")
            await person.ready()
            person.app.conversation.heard({"type": "session.title", "payload": {"title": f"t{evil}t"}})
            person.app.conversation.heard({"type": "status.update", "payload": {"kind": "x", "text": evil}})
            person.app.conversation.heard(
                {"type": "tool.start", "payload": {"tool_id": "1", "name": evil, "context": evil}}
            )
            await person.pilot.pause()
            assert not _CONTROLS.search(person.screen)

    asyncio.run(scene())


def test_stored_words_and_names_of_files_are_harmless_in_the_editor_and_stay_as_they_are(
    sit: Sit, home: Path, place: Path
) -> None:
    name, said = "a\x1b]0;OWNED\x07\u202eb.txt", f"look {chr(27)}]0;OWNED{chr(7)}\there"
    (place / name).write_text("x")

    async def scene() -> None:
        async with sit() as person:
            await person.ready()
            await person.write("@a")
            await person.see("b.txt")
            await person.press("tab")
            assert name in person.app._editor.text and "@a␛]0;OWNED␇" in person.screen
            assert not _CONTROLS.search(person.screen)
            await person.press("ctrl+u")
            await person.say(said)
            await person.see("built-in demo model")
            await person.ready()
            number = person.app.conversation.stored_id
        async with sit(session_id=number) as person:
            await person.ready()
            await person.press("up")
            assert person.app._editor.text == said and "❯ look ␛]0;OWNED␇" in person.lines[-2]
            assert not _CONTROLS.search(person.screen)
            await person.press("ctrl+u")
            await person.say("/undo")
            await person.until(lambda screen: "␛" in screen.splitlines()[-2], "the words, to be edited")
            assert person.app._editor.text == said and not _CONTROLS.search(person.screen)
            person.app._editor.put("\x02" * 100)  # as wide as what is shown, not as what is written
            await person.until(lambda screen: screen.count("␂") == 100, "all of it")
            await person.press("backspace", "X")
            assert person.lines[-2].endswith("␂X") and person.app._editor.text == "\x02" * 99 + "X"

    asyncio.run(scene())
