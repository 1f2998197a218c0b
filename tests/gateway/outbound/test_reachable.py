"""A chat that can be written to again gets what it missed: in order, once, and nothing else. Both engines."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from tests.gateway.api.door import until
from tests.gateway.outbound.test_deliverer import (
    BLOCKED,
    FLOOD,
    TIMED_OUT,
    delivering,
    new_item,
    put_off,
    run,
    settled,
)
from tests.support.gateways import PretendGateway

from gateway.platforms.base import SendResult
from gateway.services import Services
from hermes_state import SessionDB
from hermes_testing.clock import Clock
from hermes_testing.memory_platform import PretendAdapter

pytestmark = [pytest.mark.both_engines, pytest.mark.slow]

CHAT = ("telegram", "", "42")
AWAY = SendResult(success=False, error="offline", not_sent=True, retryable=True, retry_after=3_600)
NO_CHAT = SendResult(success=False, error="chat not found", error_kind="not_found", not_sent=True)


@pytest.mark.parametrize("trouble", [BLOCKED, NO_CHAT])
def test_what_a_closed_chat_missed_comes_in_order_and_once(services: Services, trouble: SendResult) -> None:
    async def story() -> None:
        adapter = PretendAdapter(limit=20)
        adapter.script = [SendResult(success=True), *[trouble] * 4]
        async with delivering(services, adapter) as deliverer:
            long = new_item("a", "the first line here\nand the second one")
            items = [await deliverer.say(one) for one in (long, new_item("b", "two"))]
            items.append(await deliverer.say(replace(new_item("n"), payload={"text": "I am busy", "kind": "notice"})))
            other = await deliverer.say(new_item("c", "elsewhere", chat="43"))
            for item in (*items, other):
                assert (await settled(services, item)).state == "failed"
            assert await deliverer.reachable_again(*CHAT) == 2
            assert await deliverer.reachable_again(*CHAT) in (0, 2)  # again, while they are sent
            for item in items[:2]:
                assert (await settled(services, item, "sent")).error is None
            assert await deliverer.reachable_again(*CHAT) == 0
            await asyncio.sleep(0.1)
        assert adapter.chat() == ["the first line here", "and the second one", "two"]
        assert [one.dedup_key for one in services.db.outbox.dead_letters()] == ["c", "n"]

    run(story())


def test_what_is_too_old_stays_a_dead_letter(services: Services, clock: Clock) -> None:
    async def story() -> None:
        adapter = PretendAdapter()
        adapter.script = [BLOCKED]
        async with delivering(services, adapter) as deliverer:
            item = await deliverer.say(new_item("a"))
            await settled(services, item)
            clock.advance(services.db.limits.retry_seconds + 1)
            assert await deliverer.reachable_again(*CHAT) == 0
        assert adapter.chat() == [] and services.db.outbox.dead_letters()[0].id == item.id

    run(story())


def test_what_waits_for_an_absent_recipient_comes_at_once_and_a_flood_is_kept(services: Services) -> None:
    async def story() -> None:
        adapter = PretendAdapter()
        adapter.script = [AWAY, replace(FLOOD, retry_after=3_600)]
        async with delivering(services, adapter) as deliverer:
            waiting = await deliverer.say(new_item("a", "for you"))
            assert (await put_off(services, waiting)).state == "pending"
            flooded = await deliverer.say(new_item("b", "later", chat="43"))
            await put_off(services, flooded)
            assert await deliverer.reachable_again(*CHAT) == 1
            assert await deliverer.reachable_again("telegram", "", "43") == 0
            await settled(services, waiting, "sent")
        assert [one.text for one in adapter.messages] == ["for you"]

    run(story())


def test_a_chat_that_comes_and_goes_does_not_get_attempts_without_end(services: Services) -> None:
    async def story() -> None:
        adapter = PretendAdapter()
        adapter.script = [BLOCKED] * 100
        async with delivering(services, adapter) as deliverer:
            item = await deliverer.say(new_item("a"))
            for attempt in range(100):
                await put_off(services, item, after=attempt)
                if not await deliverer.reachable_again(*CHAT):
                    break
        assert adapter.begun == 3 * services.db.limits.delivery_attempts

    run(story())


def test_what_may_have_arrived_is_left_to_a_person_or_marked(services: Services, clock: Clock) -> None:
    async def story() -> None:
        adapter = PretendAdapter()
        adapter.script = [TIMED_OUT, BLOCKED]
        async with delivering(services, adapter) as deliverer:
            item = await deliverer.say(new_item("a"))
            await put_off(services, item)
            clock.advance(10)
            await settled(services, item)
            lost = services.db.outbox.enqueue(replace(new_item("b", "lost"), sender="gone"))
            services.db.outbox.lose_senders(dead="gone")
            assert await deliverer.reachable_again(*CHAT) == 1
            await settled(services, item, "sent")
        assert adapter.chat() == ["hello", "(repeated: an earlier copy may have arrived)\n\nhello"]
        found = services.db.outbox.get(lost.id)
        assert found is not None and found.state == "unknown"

    run(story())


def test_through_a_gateway_and_not_for_somebody_who_lost_access(db: SessionDB, home: Path) -> None:
    """An answer, a command's reply and a shut-out member's answer, by what an adapter calls."""

    async def story() -> None:
        async with PretendGateway(db, home, streaming={"enabled": False}) as gateway:
            adapter = gateway.chat
            adapter.script = [BLOCKED] * 3
            for count, (text, user) in enumerate((("hello", "42"), ("/status", "42"), ("hello", "7")), 1):
                await adapter.say(text, user)
                await until(lambda: len(db.outbox.dead_letters()) == count)  # noqa: B023 - awaited in this round
            assert adapter.messages == []
            assert await asyncio.to_thread(lambda: db.pairings.revoke(platform="telegram", native_id="7"))
            for chat in ("42", "7"):
                await adapter.context.reachable_again(chat)
            shown = await adapter.heard(2)
            await asyncio.sleep(0.2)
        assert len(shown) == 2 and "none running" in shown[1].text
        assert [one.chat_id for one in db.outbox.dead_letters()] == ["7"]

    run(story())
