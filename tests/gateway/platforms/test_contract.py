"""What the gateway does for every adapter, and that no part of it knows a platform by name."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.support.gateways import PretendGateway

import gateway
from gateway.platforms import registry
from gateway.platforms.base import MessageEvent
from hermes_state import SessionDB
from hermes_testing.memory_platform import PretendAdapter
from hermes_testing.scripted.model import ScriptedModel, say

SOURCE = Path(gateway.__file__).parents[1]
_PACKAGES = ("gateway", "tui_gateway", "hermes_agent", "hermes_cli", "hermes_config", "hermes_state")
_ITS_OWN = ("gateway/platforms/telegram/", "hermes_cli/setup/telegram.py", "hermes_cli/demo/")
_OLD_HOMES = ("hermes_state/transfer/import_home/",)
_OTHERS_WORDS = {
    "hermes_config/secret_files.py": ".local/share/TelegramDesktop",  # a program that keeps secrets
    "hermes_state/ids.py": '"local", "telegram", "discord"',  # the names in homes of hermes-agent
}


def test_no_core_file_names_a_platform_that_is_a_folder() -> None:
    found = []
    for package in _PACKAGES:
        for file in (SOURCE / package).rglob("*"):
            name = file.relative_to(SOURCE).as_posix()
            if file.suffix not in (".py", ".sql") or name.startswith((*_ITS_OWN, *_OLD_HOMES)):
                continue
            text = file.read_text(encoding="utf-8").replace(_OTHERS_WORDS.get(name, "\0"), "")
            found += [f"{name}: {one}" for one in registry.built_in() if one in text.lower()]
    assert registry.built_in() == ("telegram",) and found == []


@pytest.mark.slow
def test_an_answer_stands_in_the_thread_that_the_adapter_opened(db: SessionDB, home: Path) -> None:
    class Threaded(PretendAdapter):
        opens_threads = True

        async def open_thread(self, event: MessageEvent) -> str | None:
            return None if event.source.user_id == "7" else f"of-{event.message_id}"

    async def go() -> None:
        chat = Threaded()
        with ScriptedModel(say("In a thread."), say("In the chat.")) as model:
            async with PretendGateway(db, home, model, adapter=chat) as here:
                await chat.say("hello", message_id="m1")
                assert (await chat.heard(1))[0].thread_id == "of-m1"
                await chat.say("hello", "7")
                assert (await chat.heard(2))[1].thread_id is None
                await chat.say("get lost", "666", message_id="m3")
                assert here.db.inbox.list(state="refused")[0].message_id == "m3"

    asyncio.run(go())


@pytest.mark.slow
def test_a_thread_is_opened_once_and_for_no_command(db: SessionDB, home: Path) -> None:
    class Threaded(PretendAdapter):
        opens_threads = True
        opened = 0

        async def open_thread(self, event: MessageEvent) -> str | None:
            self.opened += 1
            return f"thread {self.opened}"

    async def go() -> None:
        chat = Threaded()
        with ScriptedModel(say("Hello.")) as model:
            async with PretendGateway(db, home, model, adapter=chat):
                await chat.say("/status")
                assert (await chat.heard(1))[0].thread_id is None and chat.opened == 0
                await chat.say("hello", message_id="m1")
                assert (await chat.heard(2))[1].thread_id == "thread 1"
                assert (await chat.say("hello", message_id="m1")).state == "duplicate"
                assert chat.opened == 1

    asyncio.run(go())


@pytest.mark.slow
def test_the_cursor_moves_with_what_is_stored_and_with_what_is_refused(db: SessionDB, home: Path) -> None:
    async def go() -> None:
        chat = PretendAdapter()
        async with PretendGateway(db, home, adapter=chat):
            cursor = chat.context.cursor("feed")
            assert await cursor.read() is None
            for user, value in (("42", "one"), ("666", "two"), ("42", "three")):
                await chat.say("/status", user, cursor=cursor.at(value))
                found = await cursor.read()
                assert found is not None and found.value == value
            await cursor.move("four")
        found = db.cursors.get("telegram", name="feed")
        assert found is not None and found.value == "four"

    asyncio.run(go())


@pytest.mark.slow
def test_an_adapter_is_told_the_commands_that_a_role_can_use(db: SessionDB, home: Path) -> None:
    async def go() -> None:
        chat = PretendAdapter()
        async with PretendGateway(db, home, adapter=chat):
            owner = {row.name: row for row in chat.context.commands()}
            guest = {row.name for row in chat.context.commands(role="guest")}
        assert owner["new"].description == "start a new conversation" and owner["new"].args_hint == "[title]"
        assert guest < set(owner)
        assert owner["new"].in_groups and not owner["new"].shows
        assert owner["help"].shows and owner["whoami"].shows and not owner["whoami"].in_groups

    asyncio.run(go())
