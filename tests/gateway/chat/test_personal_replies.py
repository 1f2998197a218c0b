"""Where a platform can show a reply to one person, a group does not read what concerns that person alone."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.api.door import until
from tests.gateway.outbound.test_deliverer import BAD_FORMAT, BLOCKED, TIMED_OUT
from tests.support.gateways import PretendGateway

from gateway.config import PlatformConfig
from gateway.outbound.send_item import REPEATED
from gateway.platforms.base import SendResult
from hermes_state import SessionDB
from hermes_state.turns.outbox import NewOutboxItem
from hermes_testing.clock import Clock
from hermes_testing.memory_platform import PretendAdapter, Shown

pytestmark = [pytest.mark.both_engines, pytest.mark.slow]

EXPIRED = SendResult(success=False, error="unknown interaction", error_kind="expired", not_sent=True)
GROUP = {"group_sessions_per_user": False}


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


async def reply(chat: PretendAdapter, text: str, user: str = "7", **more: Any) -> Shown:
    before = len(chat.messages)
    await chat.say(text, user, **more)
    return (await chat.heard(before + 1))[before]


PERSONAL = (
    "/help", "/help new", "/commands", "/status", "/usage", "/tools", "/start", "/why",  # shows something
    "/whoami", "/mcp", "/compress",  # refused: only in private, only for staff, changes it for everybody
    "/hepl", "/yolo",  # no such command
    "/steer", "/resend", "/title", "/model",  # how it is used, and what holds now
    "/remind tomorrowish hello", "/model nonsense",  # an error
)  # fmt: skip
FOR_ALL = ("/new", "/stop", "/queue go on", "/resend 77")


def test_what_concerns_one_person_is_for_that_person(db: SessionDB, home: Path) -> None:
    async def story() -> None:
        chat = PretendAdapter(to_one=True)
        async with PretendGateway(db, home, adapter=chat, **GROUP):
            for text in PERSONAL:
                shown = await reply(chat, text, group=True, message_id=f"asked {text}")
                assert (shown.only_for, shown.reply_to) == ("7", f"asked {text}"), (text, shown)
            for text in FOR_ALL:
                shown = await reply(chat, text, group=True)
                assert shown.only_for is None, (text, shown)
                if "queue" in text:
                    await chat.heard(len(chat.messages) + 1)  # the answer, which is for all
            assert all(one.only_for is None for one in chat.messages[len(PERSONAL) :])
            for text in ("/help", "/whoami", "/hepl"):
                assert (await reply(chat, text)).only_for is None, "in private there is nobody else"

    run(story())


def test_elsewhere_nothing_changes(db: SessionDB, home: Path) -> None:
    async def story() -> None:
        chat = PretendAdapter(PlatformConfig(enabled=True, reply_to_mode="off"))
        async with PretendGateway(db, home, adapter=chat, **GROUP):
            shown = await reply(chat, "/hepl", group=True)
        assert (shown.only_for, shown.reply_to) == (None, None) and "Did you mean /help?" in shown.text

    run(story())


def test_when_it_is_too_late_to_show_it_to_one_it_is_an_ordinary_reply(db: SessionDB, home: Path) -> None:
    async def story() -> None:
        chat = PretendAdapter(PlatformConfig(enabled=True, reply_to_mode="off"), to_one=True)
        chat.script = [EXPIRED, SendResult(success=True), BAD_FORMAT]
        async with PretendGateway(db, home, adapter=chat, **GROUP):
            shown = await reply(chat, "/hepl", group=True)
            assert (shown.only_for, shown.reply_to, chat.begun) == (None, None, 2)
            assert (await reply(chat, "/hepl", group=True)).only_for == "7", "as plain text, and still for one"

    run(story())


def test_it_is_as_durable_as_any_answer(db: SessionDB, home: Path, clock: Clock) -> None:
    async def story() -> None:
        chat = PretendAdapter(to_one=True)
        chat.script = [TIMED_OUT]
        async with PretendGateway(db, home, adapter=chat, **GROUP) as gateway:
            await reply(chat, "/hepl", group=True, message_id="asked")
            await until(lambda: db.outbox.list()[0].state == "pending")
            clock.advance(10)
            again = (await chat.heard(2))[1]
            assert again.only_for == "7" and again.text.startswith(REPEATED)
            chat.script = [replace(BLOCKED, error_kind="unknown", error="no")]
            said = await reply(chat, "/status", group=True)
            assert "could not be delivered here: no." in said.text and said.only_for == "7"
            (item,) = (one for one in db.outbox.list() if one.dedup_key.startswith("command:") and one.state == "sent")
            payload = {**item.payload, "text": "from the last process"}
        later = NewOutboxItem(dedup_key="later", platform="telegram", chat_id="-100", payload=payload)
        db.outbox.enqueue(later)
        async with PretendGateway(db, home, adapter=chat, **GROUP) as gateway:
            assert (await gateway.chat.heard(4))[3].only_for == "7"

    run(story())
