"""A Telegram to talk to, and an inbox that remembers what the adapter handed over."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.config import Platform, PlatformConfig
from gateway.platforms import registry
from gateway.platforms.base import MessageEvent, Receipt
from gateway.platforms.context import PlatformContext, WebhookRoutes
from gateway.platforms.telegram.adapter import TelegramAdapter
from hermes_state.session_db import SessionDB
from hermes_state.turns.cursors import CursorMove
from hermes_testing.telegram.server import FakeTelegram


class Inbox:
    """Takes messages in as the gateway's would: once each. `fails` makes the next ones fail, `poison` some texts."""

    def __init__(self) -> None:
        self.events: list[MessageEvent] = []
        self.keys: set[tuple[str, str | None, int]] = set()
        self.duplicates = 0
        self.fails = 0
        self.poison = ""
        self.db: SessionDB | None = None

    async def __call__(self, event: MessageEvent, *, cursor: CursorMove | None = None) -> Receipt:
        receipt = self._receipt(event)
        if cursor is not None and self.db is not None:
            await self.db.cursors.move(cursor)
        return receipt

    def _receipt(self, event: MessageEvent) -> Receipt:
        if self.fails:
            self.fails -= 1
            raise OSError("the disk is full")
        if self.poison and self.poison in event.text:
            raise TypeError("a defect that this text meets")
        key = (event.source.chat_id, event.message_id, event.version)
        if key in self.keys:
            self.duplicates += 1
            return Receipt(state="duplicate")
        self.keys.add(key)
        self.events.append(event)
        return Receipt(state="accepted")

    @property
    def texts(self) -> list[str]:
        return [event.text for event in self.events]


@pytest.fixture
def telegram() -> Iterator[FakeTelegram]:
    with FakeTelegram() as fake:
        yield fake


def made(fake: FakeTelegram, **extra: Any) -> TelegramAdapter:
    given = {"base_url": fake.base_url, "base_file_url": fake.base_file_url, **extra}
    adapter = registry.make(Platform.TELEGRAM, PlatformConfig(enabled=True, token=fake.token, extra=given))
    assert isinstance(adapter, TelegramAdapter)
    return adapter


@pytest.fixture
def connected(telegram: FakeTelegram, tmp_path: Path) -> Callable[..., Any]:
    """`async with connected() as (adapter, inbox)`"""

    @asynccontextmanager
    async def opened(
        inbox: Inbox | None = None, *, fake: FakeTelegram | None = None, store_away: bool = False, **extra: Any
    ) -> AsyncIterator[tuple[TelegramAdapter, Inbox]]:
        taken = inbox or Inbox()
        adapter = made(fake or telegram, **extra)
        adapter.set_message_handler(taken)
        taken.db = SessionDB(tmp_path / "cursors.db")
        if store_away:
            taken.db.close()
        adapter.context = PlatformContext(taken.db, adapter, WebhookRoutes())
        assert await adapter.connect()
        try:
            yield adapter, taken
        finally:
            await adapter.disconnect()
            taken.db.close()

    return opened
