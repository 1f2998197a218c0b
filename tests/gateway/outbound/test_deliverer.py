"""Deliveries: in order, once, and honest about what nobody knows. Real store on both engines, a pretend platform."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.api.door import until
from tests.support.stores import transact

from gateway.config import Platform, PlatformConfig
from gateway.outbound.deliverer import Deliverer
from gateway.outbound.send_item import SENT_AGAIN, note
from gateway.platforms.base import Answer, SendResult
from gateway.services import Services
from hermes_agent import process_identity
from hermes_state.storage.writer import queued
from hermes_state.turns.outbox import OutboxItem, Parcel
from hermes_testing.clock import Clock
from hermes_testing.memory_platform import PretendAdapter

pytestmark = [pytest.mark.both_engines, pytest.mark.slow]

FLOOD = SendResult(success=False, error="Too Many Requests", error_kind="rate_limited", retry_after=7.0, not_sent=True)
TIMED_OUT = SendResult(success=False, error="timed out", error_kind="transient")
NO_NETWORK = SendResult(
    success=False, error="connection refused", error_kind="transient", not_sent=True, retryable=True
)
BUSY = SendResult(success=False, error="502", error_kind="unknown", not_sent=True, retryable=True)
BLOCKED = SendResult(success=False, error="bot was blocked by the user", error_kind="forbidden", not_sent=True)
BAD_FORMAT = SendResult(success=False, error="can't parse entities", error_kind="bad_format", not_sent=True)


def parcel(key: str, text: str = "hello", *, chat: str = "42", **payload: Any) -> Parcel:
    return Parcel(dedup_key=key, platform="telegram", chat_id=chat, payload={"text": text, "kind": "answer", **payload})


@asynccontextmanager
async def delivering(services: Services, *adapters: PretendAdapter) -> AsyncIterator[Deliverer]:
    deliverer = Deliverer(services, {one.platform: one for one in adapters}, poll_seconds=0.02)
    await deliverer.start()
    try:
        yield deliverer
    finally:
        await deliverer.drain(5)


async def settled(services: Services, item: OutboxItem, *states: str, seconds: float = 10) -> OutboxItem:
    async with asyncio.timeout(seconds):
        while True:
            found = services.db.outbox.get(item.id)
            assert found is not None
            if found.state in (states or ("sent", "failed", "unknown")):
                return found
            await asyncio.sleep(0.01)


async def put_off(services: Services, item: OutboxItem, *, after: int = 0, seconds: float = 10) -> OutboxItem:
    """The item, once more than `after` attempts at it have come to an end."""
    async with asyncio.timeout(seconds):
        while True:
            found = services.db.outbox.get(item.id)
            assert found is not None
            if found.attempts > after and found.state != "sending":
                return found
            await asyncio.sleep(0.005)


async def due_before(services: Services, item: OutboxItem, moment: float) -> None:
    def is_due() -> bool:
        found = services.db.outbox.get(item.id)
        assert found is not None and found.next_attempt_at is not None
        return found.next_attempt_at < moment

    await until(is_due)


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def test_what_is_owed_arrives_and_is_noted(services: Services) -> None:
    async def story() -> None:
        adapter = PretendAdapter()
        async with delivering(services, adapter) as deliverer:
            item = await deliverer.say(parcel("a", "good morning", thread_id="9", reply_to="77"))
            found = await settled(services, item)
        assert (found.state, found.platform_ids) == ("sent", ("1",))
        assert [(m.text, m.thread_id, m.reply_to) for m in adapter.messages] == [("good morning", "9", "77")]
        assert services.metrics.value("hermes_deliveries_total", platform="telegram", outcome="sent") == 1

    run(story())


def test_an_item_made_for_us_goes_out_without_a_claim(services: Services) -> None:
    async def story() -> None:
        adapter = PretendAdapter()
        async with delivering(services, adapter) as deliverer:
            item = services.db.outbox.enqueue(replace(parcel("a"), sender=services.holder))
            assert item.state == "sending"
            task = deliverer.deliver(item)
            assert task is not None and await task == "sent"
            assert deliverer.deliver(item) is None, "handed over twice, sent once"
            await settled(services, item)
        assert adapter.chat() == ["hello"]

    run(story())


def test_an_item_whose_turn_died_before_it_was_handed_over_goes_out_all_the_same(services: Services) -> None:
    async def story() -> None:
        adapter = PretendAdapter()
        async with delivering(services, adapter) as deliverer:
            first = services.db.outbox.enqueue(replace(parcel("a", "first"), sender=services.holder))
            second = await deliverer.say(parcel("b", "second"))
            await settled(services, first), await settled(services, second)
        assert adapter.chat() == ["first", "second"]

    run(story())


def test_a_chat_hears_everything_in_order_and_others_do_not_wait_for_it(services: Services) -> None:
    async def story() -> None:
        adapter = PretendAdapter(delay=0.2)
        async with delivering(services, adapter) as deliverer:
            items = [
                services.db.outbox.enqueue(parcel(f"{c}{n}", f"{n}", chat=c)) for n in range(4) for c in "abcdefgh"
            ]
            began = asyncio.get_running_loop().time()
            deliverer.wake()
            for item in items:
                await settled(services, item)
            took = asyncio.get_running_loop().time() - began
        assert all(adapter.chat(chat) == ["0", "1", "2", "3"] for chat in "abcdefgh")
        assert took < 0.2 * len(items) / 2, "chats are served side by side"

    run(story())


def test_a_long_text_goes_on_with_the_next_piece_after_a_flood(services: Services, clock: Clock) -> None:
    async def story() -> None:
        adapter = PretendAdapter(limit=20)
        adapter.script = [SendResult(success=True), FLOOD]
        async with delivering(services, adapter) as deliverer:
            item = await deliverer.say(parcel("a", "the first line here\nand the second one\nand a third"))
            waiting = await put_off(services, item)
            assert waiting.state == "pending" and waiting.next_attempt_at == pytest.approx(clock() + 7, rel=0, abs=0.5)
            assert waiting.platform_ids == ("1",)
            await asyncio.sleep(0.1)
            assert adapter.chat() == ["the first line here"], "Retry-After is honoured"
            clock.advance(7.5)
            found = await settled(services, item)
        assert (found.state, found.platform_ids) == ("sent", ("1", "2", "3"))
        assert adapter.chat() == ["the first line here", "and the second one", "and a third"]

    run(story())


def test_a_clock_that_is_set_back_by_an_hour_does_not_delay_the_next_try(services: Services, clock: Clock) -> None:
    async def story() -> None:
        adapter = PretendAdapter()
        adapter.script = [FLOOD]
        async with delivering(services, adapter) as deliverer:
            item = await deliverer.say(parcel("a", "hello"))
            waiting = await put_off(services, item)
            assert waiting.next_attempt_at == pytest.approx(clock() + 7, rel=0, abs=0.5)
            clock.advance(-3_600)
            await due_before(services, item, clock() + 8)
            assert adapter.chat() == [], "Retry-After is honoured all the same"
            clock.advance(8)
            assert (await settled(services, item)).state == "sent"

    run(story())


def test_a_time_out_is_unknown_and_never_sent_again_by_itself(services: Services, clock: Clock) -> None:
    async def story() -> None:
        adapter = PretendAdapter()
        adapter.script = [TIMED_OUT]
        async with delivering(services, adapter) as deliverer:
            item = await deliverer.say(parcel("a", "the answer"))
            found = await settled(services, item)
            assert found.state == "unknown" and found.error == "timed out"
            clock.advance(100_000)
            messages = await adapter.heard(2)
            assert messages[0].text == "the answer" and "may or may not have arrived" in messages[1].text
            await asyncio.sleep(0.1)
            assert len(adapter.messages) == 2

            assert services.db.outbox.retry(item.id)  # a person decides
            deliverer.wake()
            await settled(services, item, "sent")
        assert adapter.chat()[-1] == f"{SENT_AGAIN}\n\nthe answer"
        assert len(adapter.messages) == 3

    run(story())


@pytest.mark.parametrize("trouble", [BLOCKED, replace(BLOCKED, error_kind="not_found")])
def test_a_chat_that_is_closed_to_us_is_a_certain_failure(services: Services, trouble: SendResult) -> None:
    async def story() -> None:
        adapter = PretendAdapter()
        adapter.script = [trouble]
        async with delivering(services, adapter) as deliverer:
            found = await settled(services, await deliverer.say(parcel("a")))
        assert (found.state, found.attempts, found.error) == ("failed", 1, "bot was blocked by the user")
        assert adapter.messages == [], "there is no use in a notice"

    run(story())


def test_what_the_platform_cannot_parse_is_sent_once_more_as_plain_text(services: Services) -> None:
    async def story() -> None:
        adapter = PretendAdapter()
        adapter.script = [BAD_FORMAT]
        async with delivering(services, adapter) as deliverer:
            good = await settled(services, await deliverer.say(parcel("a", "*odd")))
            adapter.script = [BAD_FORMAT, BAD_FORMAT]
            bad = await settled(services, await deliverer.say(parcel("b", "*odder", chat="43")))
            told = await adapter.heard(1, "43")
        assert good.state == "sent" and adapter.chat() == ["*odd"]
        assert bad.state == "failed" and "could not be delivered" in told[0].text

    run(story())


def test_attempts_are_bounded_and_further_apart_each_time(services: Services, clock: Clock) -> None:
    async def story() -> None:
        adapter = PretendAdapter()
        adapter.script = [BUSY] * 20
        attempts = services.db.limits.delivery_attempts
        pauses = []
        async with delivering(services, adapter) as deliverer:
            item = await deliverer.say(parcel("a"))
            for number in range(attempts - 1):
                waiting = await put_off(services, item, after=number)
                assert waiting.next_attempt_at is not None
                pauses.append(waiting.next_attempt_at - clock())
                clock.advance(pauses[-1] + 0.01)
            found = await settled(services, item, "failed")
        assert found.attempts == attempts
        assert all(0.75 * 2**n <= pause <= 1.3 * 2**n for n, pause in enumerate(pauses)), pauses

    run(story())


def test_without_a_connection_items_wait_and_go_out_when_it_is_back(services: Services) -> None:
    async def story() -> None:
        adapter = PretendAdapter()
        adapter.script = [NO_NETWORK]
        async with delivering(services, adapter) as deliverer:
            item = await deliverer.say(parcel("a"))
            waiting = await put_off(services, item)
            assert waiting.state == "pending" and adapter.messages == []
            deliverer.back(Platform.TELEGRAM)
            await settled(services, item, "sent")
        assert waiting.give_up_after - waiting.attempts == services.db.limits.delivery_attempts, "none is used up"
        assert adapter.chat() == ["hello"]

    run(story())


def test_an_adapter_that_is_not_there_keeps_its_items_waiting(services: Services) -> None:
    async def story() -> None:
        adapters: dict[Platform, PretendAdapter] = {}
        deliverer = Deliverer(services, adapters, poll_seconds=0.02)
        await deliverer.start()
        queued = await deliverer.say(parcel("a", "one"))
        handed = services.db.outbox.enqueue(replace(parcel("b", "two", chat="43"), sender=services.holder))
        deliverer.deliver(handed)
        await put_off(services, handed)
        await asyncio.sleep(0.1)
        assert [services.db.outbox.get(i.id).state for i in (queued, handed)] == ["pending"] * 2  # type: ignore[union-attr]
        adapter = adapters[Platform.TELEGRAM] = PretendAdapter()
        deliverer.back(Platform.TELEGRAM)
        await settled(services, queued, "sent"), await settled(services, handed, "sent")
        await deliverer.drain(5)
        assert sorted(m.text for m in adapter.messages) == ["one", "two"]

    run(story())


def test_an_adapter_that_raises_leaves_the_item_unknown_and_the_others_alone(services: Services) -> None:
    async def story() -> None:
        adapter = PretendAdapter()
        adapter.script = [RuntimeError("a defect in somebody's adapter")]
        async with delivering(services, adapter) as deliverer:
            bad = await settled(services, await deliverer.say(parcel("a")))
            good = await settled(services, await deliverer.say(parcel("b", chat="43")))
        assert (bad.state, good.state) == ("unknown", "sent")

    run(story())


def test_a_platform_that_never_answers_is_given_up(make_db: Callable[..., Any], services: Services) -> None:
    async def story() -> None:
        short = replace(services, db=make_db(limits=services.db.limits.changed(send_seconds=1)))
        adapter = PretendAdapter(delay=60)
        async with delivering(short, adapter) as deliverer:
            found = await settled(short, await deliverer.say(parcel("a")))
        assert found.state == "unknown" and found.error == "no answer within 1 s"

    run(story())


def test_buttons_and_files_go_with_the_text(services: Services, tmp_path: Path) -> None:
    async def story() -> None:
        adapter = PretendAdapter(limit=20)
        file = tmp_path / "chart.png"
        file.write_bytes(b"png")
        answer = {"kind": "approval", "id": "7", "choice": "once"}
        async with delivering(services, adapter) as deliverer:
            asked = parcel("q", "May I do this now?\nIt is rm -r old", buttons=[[{"label": "Once", "answer": answer}]])
            await settled(services, await deliverer.say(asked))
            sent = await settled(services, await deliverer.say(parcel("f", "", files=[{"path": str(file)}])))
            gone = await settled(services, await deliverer.say(parcel("g", "", files=[{"path": str(tmp_path / "no")}])))
        first, second, third = adapter.messages[:3]
        assert first.buttons == () and second.buttons[0][0].answer == Answer(kind="approval", id="7", choice="once")
        assert third.file == file and sent.platform_ids == ("3",)
        assert gone.state == "failed" and gone.error == "the file no is not there any more"

    run(story())


def test_replies_quote_as_the_configuration_says(services: Services) -> None:
    async def story() -> None:
        adapter = PretendAdapter(PlatformConfig(enabled=True, reply_to_mode="off"))
        async with delivering(services, adapter) as deliverer:
            await settled(services, await deliverer.say(parcel("a", reply_to="5")))
        assert adapter.messages[0].reply_to is None

    run(story())


# -- senders that are gone --------------------------------------------------------------------------------------------


def _dead_holder() -> str:
    script = "from hermes_agent import process_identity; print(process_identity.new_holder())"
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.strip()


def test_what_a_dead_sender_had_in_hand_is_unknown_and_the_chat_is_told(services: Services) -> None:
    async def story() -> None:
        item = services.db.outbox.enqueue(replace(parcel("a", "an answer"), sender=_dead_holder()))
        adapter = PretendAdapter()
        async with delivering(services, adapter):
            told = await adapter.heard(1)
            assert "may or may not have arrived" in told[0].text
            await asyncio.sleep(0.1)
        found = services.db.outbox.get(item.id)
        assert found is not None and found.state == "unknown"
        assert len(adapter.messages) == 1

    run(story())


def test_pieces_that_were_sent_before_the_crash_are_not_sent_again(services: Services) -> None:
    async def story() -> None:
        outbox, text = services.db.outbox, "the first line here\nand the second one\nand a third"
        cut = outbox.enqueue(replace(parcel("a", text), sender=_dead_holder()))
        transact(outbox.progress_in, cut, platform_ids=["900"], draft=note(under_way=None))
        lost = outbox.enqueue(replace(parcel("b", text, chat="43"), sender=cut.sender))
        transact(outbox.progress_in, lost, platform_ids=["901"], draft=note(under_way=1))
        adapter = PretendAdapter(limit=20)
        async with delivering(services, adapter):
            found = await settled(services, cut)
            assert (await settled(services, lost)).state == "unknown"
        assert found.state == "sent" and adapter.chat("42") == ["and the second one", "and a third"]
        assert [text for text in adapter.chat("43") if "line" in text] == []

    run(story())


def test_a_living_sender_is_left_alone(services: Services) -> None:
    async def story() -> None:
        item = services.db.outbox.enqueue(replace(parcel("a"), sender=f"{services.holder}x"))
        async with delivering(services, PretendAdapter()):
            await asyncio.sleep(0.1)
        found = services.db.outbox.get(item.id)
        assert found is not None and found.state == "sending"

    run(story())


# -- the end ----------------------------------------------------------------------------------------------------------


def test_draining_finishes_what_is_under_way_and_writes_everything_down(services: Services) -> None:
    async def story() -> None:
        adapter = PretendAdapter(delay=0.2)
        deliverer = Deliverer(services, {adapter.platform: adapter}, poll_seconds=0.02)
        await deliverer.start()
        items = [services.db.outbox.enqueue(replace(parcel(c, chat=c), sender=services.holder)) for c in "abcdef"]
        for item in items:
            deliverer.deliver(item)
        await until(lambda: adapter.begun == len(items))
        assert await deliverer.drain(5)
        assert {services.db.outbox.get(item.id).state for item in items} == {"sent"}  # type: ignore[union-attr]

    run(story())


def test_draining_puts_back_what_was_not_begun(make_db: Callable[..., Any], services: Services) -> None:
    async def story() -> None:
        narrow = replace(services, db=make_db(limits=services.db.limits.changed(deliveries=1)))
        adapter = PretendAdapter(delay=30)
        deliverer = Deliverer(narrow, {adapter.platform: adapter}, poll_seconds=0.02)
        await deliverer.start()
        first, second = (narrow.db.outbox.enqueue(replace(parcel(c, chat=c), sender=services.holder)) for c in "ab")
        deliverer.deliver(first), deliverer.deliver(second)
        await until(lambda: adapter.begun)
        assert not await deliverer.drain(0.1)
        states = [narrow.db.outbox.get(item.id).state for item in (first, second)]  # type: ignore[union-attr]
        assert states == ["sending", "pending"], "the first may have arrived, the second was never begun"

    run(story())


def test_what_was_claimed_in_the_moment_of_the_end_is_sent_by_the_next_process(services: Services) -> None:
    async def story() -> None:
        adapter, writer, go_on = PretendAdapter(), services.db.engine.writer, threading.Event()
        ending = replace(services, holder=process_identity.new_holder())
        deliverer = Deliverer(ending, {adapter.platform: adapter}, poll_seconds=0.02)
        await deliverer.start()
        busy = asyncio.create_task(asyncio.to_thread(services.db.engine.write, lambda conn: go_on.wait(10)))
        await until(writer.lock.locked)
        said = asyncio.create_task(deliverer.say(parcel("a")))
        deliverer.wake()
        await until(lambda: len(writer.queue) == 2)  # what is said, and behind it the deliverer's claim
        end = asyncio.create_task(deliverer.drain(5))
        await asyncio.wait({end}, timeout=0.2)
        go_on.set()
        assert await end
        await busy, await said
        left = await queued(services.db.engine, lambda conn: services.db.outbox.of_sender_in(conn, ending.holder))
        assert left == () and adapter.messages == []
        async with delivering(services, adapter):
            await settled(services, await said)
        assert adapter.chat() == ["hello"]

    run(story())
