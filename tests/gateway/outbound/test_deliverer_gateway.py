"""Streaming and delivery in a whole gateway: demo model, real turns, a pretend platform that can edit."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from tests.gateway.engine import starter

from hermes_cli.main import main
from hermes_state.errors import WriteLost
from hermes_state.session_db import SessionDB
from hermes_state.transfer import sqlite_copy
from hermes_testing.clock import Clock
from hermes_testing.memory_platform import PretendAdapter
from hermes_testing.scripted.model import ScriptedModel, always, say

pytestmark = pytest.mark.slow

PACED = {"demo": {"tokens_per_second": 800}, "streaming": {"edit_interval": 0.05}}


def _answers(db: SessionDB) -> list[str]:
    return [
        row["content"]
        for session in db.list_sessions_rich()
        for row in db.get_messages(session["id"])
        if row["role"] == "assistant"
    ]


def test_a_streamed_answer_ends_as_what_the_transcript_says(db: SessionDB, home: Path) -> None:
    async def story() -> None:
        async with starter(db, home)(adapter=PretendAdapter(edits=True), **PACED) as gateway:
            await gateway.chat.say("tell me a long story")
            await gateway.chat.heard(1)
            await gateway.quiet(seconds=30)
        assert gateway.chat.chat() == gateway.chat.pieces(_answers(db)[-1])
        assert len(gateway.chat.messages[0].versions) > 3
        (item,) = db.outbox.list()
        assert (item.state, item.platform_ids) == ("sent", tuple(message.id for message in gateway.chat.messages))

    asyncio.run(story())


def test_hermes_turns_cancel_ends_a_turn_of_a_running_gateway(
    db: SessionDB, home: Path, clock: Clock, address: str | Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_DATABASE_URL", address if isinstance(address, str) else f"sqlite:///{address}")
    clock.advance(time.time() - clock())

    async def story() -> None:
        slow = {**PACED, "demo": {"tokens_per_second": 20}}
        async with starter(db, home)(adapter=PretendAdapter(edits=True), **slow) as gateway:
            await gateway.chat.say("tell me a long story")
            await gateway.chat.heard(1)
            (turn,) = db.turns.list(state="running")
            assert await asyncio.to_thread(main, ["turns", "cancel", turn.id]) == 0
            await gateway.until(lambda: db.turns.list(state="running") == ())
            await gateway.quiet()
        (message,) = gateway.chat.messages
        assert "▉" not in message.text, "what was shown stays, and does not look unfinished"
        assert all(row.state != "queued" for row in db.inbox.list())
        (ended,) = db.turns.list()
        assert (ended.state, ended.reason) == ("cancelled", "cancelled with hermes turns cancel")

    asyncio.run(story())


def test_a_backup_that_takes_the_databases_place_loses_no_later_message(home: Path) -> None:
    """Nobody should do that while a gateway runs; its row numbers begin anew, where the backup ends."""

    async def story() -> None:
        db = SessionDB(home / "state.db")
        async with starter(db, home)(ScriptedModel(always(say("Yes.")))) as gateway:
            for count in (1, 2):
                await gateway.chat.say("in the backup" if count == 1 else "after it")
                await gateway.chat.heard(count)
                await gateway.quiet()
                if count == 1:
                    db.engine.with_writer(lambda raw: sqlite_copy.copy(raw, home / "older.db"))
            (home / "older.db").replace(home / "state.db")
            with pytest.raises(WriteLost):  # the platform keeps the message, and the person is told
                await gateway.chat.say("once more")
            assert "cannot store" in (await gateway.chat.heard(3))[2].text
            await gateway.chat.say("once more")
            await gateway.chat.heard(4)
            await gateway.quiet()
            rows = [(row.payload or {})["text"] for row in db.inbox.list()]
        db.close()
        assert rows == ["once more", "in the backup"]

    asyncio.run(story())
