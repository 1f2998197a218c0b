"""Deliveries: in order, once, and honest about what nobody knows. Real store on both engines, a pretend platform."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.api.door import until
from tests.support.stores import transact

from gateway.config import Platform, PlatformConfig
from gateway.outbound.deliverer import Deliverer
from gateway.outbound.send_item import REPEATED, note
from gateway.platforms.base import Answer, FloodWindow, Means, Outgoing, SendResult
from gateway.services import Services
from hermes_agent import process_identity
from hermes_state import SessionDB
from hermes_state.storage.writer import queued
from hermes_state.turns.outbox import NewOutboxItem, OutboxItem
from hermes_testing.clock import Clock
from hermes_testing.memory_platform import PretendAdapter, Shown

pytestmark = [pytest.mark.both_engines, pytest.mark.slow]

FLOOD = SendResult(success=False, error="Too Many Requests", error_kind="rate_limited", retry_after=7.0, not_sent=True)
TIMED_OUT = SendResult(success=False, error="timed out", error_kind="transient")
NO_NETWORK = SendResult(
    success=False, error="connection refused", error_kind="transient", not_sent=True, retryable=True
)
BUSY = SendResult(success=False, error="502", error_kind="unknown", not_sent=True, retryable=True)
BLOCKED = SendResult(success=False, error="bot was blocked by the user", error_kind="forbidden", not_sent=True)
BAD_FORMAT = SendResult(success=False, error="can't parse entities", error_kind="bad_format", not_sent=True)


def new_item(key: str, text: str = "hello", *, chat: str = "42", **payload: Any) -> NewOutboxItem:
    return NewOutboxItem(
        dedup_key=key, platform="telegram", chat_id=chat, payload={"text": text, "kind": "answer", **payload}
    )


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
            item = await deliverer.say(new_item("a", "good morning", thread_id="9", reply_to="77"))
            found = await settled(services, item)
        assert (found.state, found.platform_ids) == ("sent", ("1",))
        assert [(m.text, m.thread_id, m.reply_to) for m in adapter.messages] == [("good morning", "9", "77")]
        labels = {"platform": "telegram", "outcome": "sent"}
        assert services.metrics.registry.get_sample_value("hermes_deliveries_total", labels) == 1

    run(story())


def test_an_item_made_for_us_goes_out_without_a_claim(services: Services) -> None:
    async def story() -> None:
        adapter = PretendAdapter()
        async with delivering(services, adapter) as deliverer:
            item = services.db.outbox.enqueue(replace(new_item("a"), sender=services.holder))
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
            first = services.db.outbox.enqueue(replace(new_item("a", "first"), sender=services.holder))
            second = await deliverer.say(new_item("b", "second"))
            await settled(services, first), await settled(services, second)
        assert adapter.chat() == ["first", "second"]

    run(story())


class HeldChat(PretendAdapter):
    """A platform that answers to nothing in chat `a` until it is freed."""

    def __init__(self) -> None:
        super().__init__()
        self.free = asyncio.Event()

    async def send(self, chat_id: str, message: Outgoing) -> SendResult:
        if chat_id == "a":
            await self.free.wait()
        return await super().send(chat_id, message)


def test_a_chat_hears_everything_in_order_and_others_do_not_wait_for_it(services: Services) -> None:
    async def story() -> None:
        adapter = HeldChat()
        async with delivering(services, adapter) as deliverer:
            items = [
                services.db.outbox.enqueue(new_item(f"{c}{n}", f"{n}", chat=c)) for n in range(4) for c in "abcdefgh"
            ]
            deliverer.wake()
            for item in items:
                if item.chat_id != "a":
                    await settled(services, item)
            assert adapter.chat("a") == []
            adapter.free.set()
            for item in items:
                await settled(services, item)
        assert all(adapter.chat(chat) == ["0", "1", "2", "3"] for chat in "abcdefgh")

    run(story())


def test_a_long_text_goes_on_with_the_next_piece_after_a_flood(services: Services, clock: Clock) -> None:
    async def story() -> None:
        adapter = PretendAdapter(limit=20)
        adapter.flood = FloodWindow(clock)
        adapter.script = [SendResult(success=True), FLOOD]
        async with delivering(services, adapter) as deliverer:
            item = await deliverer.say(new_item("a", "the first line here\nand the second one\nand a third"))
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
        adapter, steady = PretendAdapter(), Clock()
        adapter.flood = FloodWindow(steady)
        adapter.script = [FLOOD]
        async with delivering(services, adapter) as deliverer:
            item = await deliverer.say(new_item("a", "hello"))
            waiting = await put_off(services, item)
            assert waiting.next_attempt_at == pytest.approx(clock() + 7, rel=0, abs=0.5)
            clock.advance(-3_600)
            await due_before(services, item, clock() + 8)
            assert adapter.chat() == [], "Retry-After is honoured all the same"
            clock.advance(8)
            steady.advance(8)
            assert (await settled(services, item)).state == "sent"

    run(story())


def test_what_may_have_arrived_is_sent_again_with_a_mark_until_it_is_certain(services: Services, clock: Clock) -> None:
    async def story() -> None:
        adapter = PretendAdapter()
        adapter.script = [TIMED_OUT, TIMED_OUT]
        async with delivering(services, adapter) as deliverer:
            item = await deliverer.say(new_item("a", "the answer"))
            for attempt in (0, 1):
                assert (await put_off(services, item, after=attempt)).state == "pending"
                clock.advance(10)
            found = await settled(services, item)
        assert found.state == "sent"
        assert adapter.chat() == ["the answer", *[f"{REPEATED}\n\nthe answer"] * 2]
        assert (
            services.metrics.registry.get_sample_value(
                "hermes_deliveries_total", {"platform": "telegram", "outcome": "repeated"}
            )
            == 2
        )

    run(story())


def test_a_refusal_after_a_time_out_keeps_the_mark_and_one_before_it_makes_none(
    services: Services, clock: Clock
) -> None:
    async def story() -> None:
        adapter = PretendAdapter()
        adapter.script = [replace(FLOOD, retry_after=0.01), TIMED_OUT, replace(FLOOD, retry_after=0.01)]
        async with delivering(services, adapter) as deliverer:
            item = await deliverer.say(new_item("a", "the answer"))
            for attempt in range(3):
                await put_off(services, item, after=attempt)
                await asyncio.sleep(0.05)
                clock.advance(10)
            await settled(services, item)
        assert adapter.chat() == ["the answer", f"{REPEATED}\n\nthe answer"]

    run(story())


def test_where_the_owner_wants_to_be_asked_it_is_unknown_until_somebody_says_so(
    services: Services, clock: Clock
) -> None:
    asking = replace(services, settings=copy(services.settings))
    asking.settings.delivery = copy(services.settings.delivery)
    asking.settings.delivery.on_unknown = "ask"

    async def story() -> None:
        adapter = PretendAdapter()
        adapter.script = [TIMED_OUT]
        async with delivering(asking, adapter) as deliverer:
            item = await deliverer.say(new_item("a", "the answer"))
            found = await settled(asking, item)
            assert found.state == "unknown" and found.error == "timed out"
            clock.advance(100_000)
            messages = await adapter.heard(2)
            assert messages[0].text == "the answer" and "may or may not have arrived" in messages[1].text
            (button,) = messages[1].buttons[0]
            assert (button.label, button.answer.choice) == ("Send again", f"/resend {item.id}")
            await asyncio.sleep(0.1)
            assert len(adapter.messages) == 2

            assert asking.db.outbox.retry(item.id)  # a person decides
            deliverer.wake()
            await settled(asking, item, "sent")
        assert adapter.chat()[-1] == f"{REPEATED}\n\nthe answer"
        assert len(adapter.messages) == 3

    run(story())


def test_where_the_owner_wants_to_be_asked_each_unknown_attempt_is_told_even_if_the_telling_is_unknown(
    services: Services, clock: Clock
) -> None:
    asking = replace(services, settings=copy(services.settings))
    asking.settings.delivery = copy(services.settings.delivery)
    asking.settings.delivery.on_unknown = "ask"

    async def story() -> None:
        adapter = PretendAdapter()
        adapter.script = [TIMED_OUT, TIMED_OUT]  # the answer, and the notice about it
        async with delivering(asking, adapter) as deliverer:
            item = await deliverer.say(new_item("a", "the answer"))
            await settled(asking, item, "unknown")
            await until(lambda: asking.db.outbox.find(f"notice:delivery:1:{item.id}"))
            notice = asking.db.outbox.find(f"notice:delivery:1:{item.id}")
            assert notice is not None
            await put_off(asking, notice)
            clock.advance(100)
            deliverer.wake()
            await settled(asking, notice, "sent")
            assert adapter.chat()[-1].startswith(f"{REPEATED}\n\nMy answer may or may not have arrived")

            adapter.script = [TIMED_OUT]
            assert asking.db.outbox.retry(item.id)
            deliverer.wake()
            await until(lambda: asking.db.outbox.find(f"notice:delivery:2:{item.id}"))
            assert "may or may not have arrived" in (await adapter.heard(5))[-1].text

    run(story())


class Helpful(PretendAdapter):
    """A platform that can be asked, or that takes a message with a key once."""

    def __init__(self, means: Means) -> None:
        super().__init__()
        self.means = means
        self.taken: dict[str, SendResult] = {}

    async def send(self, chat_id: str, message: Outgoing) -> SendResult:
        key = message.key
        if self.means == "key" and key in self.taken:
            return self.taken[key]
        answer = await super().send(chat_id, message)
        self.taken[key] = SendResult(success=True, message_id=self.messages[-1].id)
        return answer

    async def find_sent(self, chat_id: str, message: Outgoing, *, since: float) -> SendResult:
        return self.taken.get(message.key, SendResult(success=False, not_sent=True))


@pytest.mark.parametrize("means", ["key", "lookup"])
def test_a_platform_that_can_tell_has_one_copy_without_a_mark(services: Services, clock: Clock, means: Means) -> None:
    async def story() -> None:
        adapter = Helpful(means)
        adapter.script = [TIMED_OUT]
        async with delivering(services, adapter) as deliverer:
            item = await deliverer.say(new_item("a", "the answer"))
            await put_off(services, item)
            clock.advance(10)
            found = await settled(services, item)
        assert (found.state, found.platform_ids) == ("sent", ("1",))
        assert adapter.chat() == ["the answer"]

    run(story())


def test_a_message_of_a_former_store_is_not_taken_for_one_of_this(
    services: Services, clock: Clock, tmp_path: Path
) -> None:
    """Row numbers, and so the keys of commands' replies, begin anew in a new home."""

    async def story() -> None:
        adapter = Helpful("lookup")
        async with delivering(services, adapter) as deliverer:
            await settled(services, await deliverer.say(new_item("command:1", "of the former store")))
        adapter.script = [RuntimeError("it did not arrive")]
        new = replace(services, db=SessionDB(tmp_path / "new.db", clock=clock))
        async with delivering(new, adapter) as deliverer:
            item = await deliverer.say(new_item("command:1", "of the new one"))
            await put_off(new, item)
            clock.advance(10)
            assert (await settled(new, item)).state == "sent"
        new.db.close()
        assert adapter.chat() == ["of the former store", "of the new one"]

    run(story())


def test_attempts_that_all_end_in_doubt_end_in_a_question(make_db: Callable[..., Any], services: Services) -> None:
    few = replace(services, db=make_db(limits=services.db.limits.changed(delivery_attempts=1)))

    async def story() -> None:
        adapter = PretendAdapter()
        adapter.script = [TIMED_OUT]
        async with delivering(few, adapter) as deliverer:
            found = await settled(few, await deliverer.say(new_item("a", "the answer")))
            told = await adapter.heard(2)
        assert found.state == "unknown" and f"/resend {found.id}" in told[1].text

    run(story())


def test_a_long_answer_gets_on_however_often_it_is_refused(services: Services, clock: Clock) -> None:
    """Each attempt does at least one thing more, and does nothing again that was done."""

    class Slow(PretendAdapter):
        room = 0

        async def _scripted(self) -> SendResult | None:
            if self.room <= 0:
                return replace(FLOOD, retry_after=0.001)
            self.room -= 1
            return None

    async def story() -> None:
        adapter = Slow(edits=True, limit=300)
        text = "\n\n".join(f"Part {number} begins. " + "And goes on. " * 20 + "It ends." for number in range(8))
        async with delivering(services, adapter) as deliverer:
            item = await deliverer.say(new_item("a", text))
            for _ in range(40):
                adapter.room = 1
                await asyncio.sleep(0.02)
                clock.advance(1)
                found = services.db.outbox.get(item.id)
                assert found is not None
                if found.state == "sent":
                    break
        assert found.state == "sent"
        assert " ".join(adapter.chat()).split() == text.split()
        assert all(len(one.versions) == 2 for one in adapter.messages), "one send and one edit each"

    run(story())


def test_a_flood_uses_up_no_attempts_and_makes_no_later_pause_longer(services: Services, clock: Clock) -> None:
    async def story() -> None:
        adapter = PretendAdapter()
        adapter.script = [*[replace(FLOOD, retry_after=0.01)] * 12, BUSY]
        async with delivering(services, adapter) as deliverer:
            item = await deliverer.say(new_item("a"))
            for attempt in range(12):
                await put_off(services, item, after=attempt)
                await asyncio.sleep(0.02)
                clock.advance(1)
            waiting = await put_off(services, item, after=12)
            assert waiting.next_attempt_at is not None and waiting.next_attempt_at - clock() < 1.3
            clock.advance(1.3)
            assert (await settled(services, item)).state == "sent"

    run(story())


@pytest.mark.parametrize("trouble", [BLOCKED, replace(BLOCKED, error_kind="not_found")])
def test_a_chat_that_is_closed_to_us_is_a_certain_failure(services: Services, trouble: SendResult) -> None:
    async def story() -> None:
        adapter = PretendAdapter()
        adapter.script = [trouble]
        async with delivering(services, adapter) as deliverer:
            found = await settled(services, await deliverer.say(new_item("a")))
        assert (found.state, found.attempts, found.error) == ("failed", 1, "bot was blocked by the user")
        assert adapter.messages == [], "there is no use in a notice"

    run(story())


def test_what_the_platform_cannot_parse_is_sent_once_more_as_plain_text(services: Services) -> None:
    async def story() -> None:
        adapter = PretendAdapter()
        adapter.script = [BAD_FORMAT]
        async with delivering(services, adapter) as deliverer:
            good = await settled(services, await deliverer.say(new_item("a", "*odd")))
            adapter.script = [BAD_FORMAT, BAD_FORMAT]
            bad = await settled(services, await deliverer.say(new_item("b", "*odder", chat="43")))
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
            item = await deliverer.say(new_item("a"))
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
            item = await deliverer.say(new_item("a"))
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
        queued = await deliverer.say(new_item("a", "one"))
        handed = services.db.outbox.enqueue(replace(new_item("b", "two", chat="43"), sender=services.holder))
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


def test_an_adapter_that_raises_may_have_sent_it_and_the_others_go_on(services: Services, clock: Clock) -> None:
    async def story() -> None:
        adapter = PretendAdapter()
        adapter.script = [RuntimeError("a defect in somebody's adapter")]
        async with delivering(services, adapter) as deliverer:
            bad = await deliverer.say(new_item("a"))
            await put_off(services, bad)
            good = await settled(services, await deliverer.say(new_item("b", chat="43")))
            clock.advance(10)
            assert (good.state, (await settled(services, bad)).state) == ("sent", "sent")
        assert adapter.chat()[-1] == f"{REPEATED}\n\nhello"

    run(story())


def test_a_text_that_an_adapter_fails_to_split_was_not_sent_and_fails_with_the_reason(
    make_db: Callable[..., Any], services: Services
) -> None:
    class Clumsy(PretendAdapter):
        def pieces(self, text: str) -> list[str]:
            if text == "hello":
                raise ValueError(text)
            return super().pieces(text)

    async def story() -> None:
        few = replace(services, db=make_db(limits=services.db.limits.changed(delivery_attempts=1)))
        adapter = Clumsy()
        async with delivering(few, adapter) as deliverer:
            found = await settled(few, await deliverer.say(new_item("a")))
            assert found.state == "failed" and "failed to split the text (pieces: ValueError)" in str(found.error)
            assert (await settled(few, await deliverer.say(new_item("b", "goodbye")))).state == "sent"
        assert "hello" not in adapter.chat()

    run(story())


def test_a_platform_that_never_answers_is_given_up(make_db: Callable[..., Any], services: Services) -> None:
    async def story() -> None:
        short = replace(services, db=make_db(limits=services.db.limits.changed(send_seconds=1)))
        adapter = PretendAdapter(delay=60)
        async with delivering(short, adapter) as deliverer:
            found = await put_off(short, await deliverer.say(new_item("a")))
        assert found.state == "pending" and found.error == "no answer within 1 s"

    run(story())


def test_buttons_and_files_go_with_the_text(services: Services, tmp_path: Path) -> None:
    async def story() -> None:
        adapter = PretendAdapter(limit=20)
        file = tmp_path / "chart.png"
        file.write_bytes(b"png")
        answer = {"kind": "approval", "id": "7", "choice": "once"}
        async with delivering(services, adapter) as deliverer:
            asked = new_item(
                "q", "May I do this now?\nIt is rm -r old", buttons=[[{"label": "Once", "answer": answer}]]
            )
            await settled(services, await deliverer.say(asked))
            sent = await settled(services, await deliverer.say(new_item("f", "", files=[{"path": str(file)}])))
            gone = await settled(
                services, await deliverer.say(new_item("g", "", files=[{"path": str(tmp_path / "no")}]))
            )
        first, second, third = adapter.messages[:3]
        assert first.buttons == () and second.buttons[0][0].answer == Answer(kind="approval", id="7", choice="once")
        assert third.file == file and sent.platform_ids == ("3",)
        assert gone.state == "failed" and gone.error == "the file no no longer exists"

    run(story())


def test_replies_quote_as_the_configuration_says(services: Services) -> None:
    async def story() -> None:
        adapter = PretendAdapter(PlatformConfig(enabled=True, reply_to_mode="off"))
        async with delivering(services, adapter) as deliverer:
            await settled(services, await deliverer.say(new_item("a", reply_to="5")))
        assert adapter.messages[0].reply_to is None

    run(story())


# -- senders that are gone --------------------------------------------------------------------------------------------


def _dead_holder() -> str:
    script = "from hermes_agent import process_identity; print(process_identity.new_holder())"
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.strip()


def test_what_a_dead_sender_had_in_hand_is_sent_again_with_a_mark(services: Services) -> None:
    async def story() -> None:
        item = services.db.outbox.enqueue(replace(new_item("a", "an answer"), sender=_dead_holder()))
        adapter = PretendAdapter()
        async with delivering(services, adapter):
            assert (await settled(services, item)).state == "sent"
        assert adapter.chat() == [f"{REPEATED}\n\nan answer"]

    run(story())


def test_a_long_answer_of_a_dead_sender_needs_no_mark_where_it_is_filled_by_edits(services: Services) -> None:
    async def story() -> None:
        text = "The first sentence of it. " + "More of it. " * 20 + "The end."
        unsent = services.db.outbox.enqueue(replace(new_item("a", text), sender=_dead_holder()))
        begun = services.db.outbox.enqueue(replace(new_item("b", text, chat="43"), sender=unsent.sender))
        adapter = PretendAdapter(edits=True)
        adapter.messages.append(Shown("900", "43", "The first sentence of it.", versions=["The first sentence of it."]))
        transact(services.db.outbox.progress_in, begun, platform_ids=["900"], draft=note(under_way=None, live=True))
        async with delivering(services, adapter):
            await settled(services, unsent), await settled(services, begun)
        assert adapter.chat("42") == adapter.chat("43") == [text]
        assert (
            services.metrics.registry.get_sample_value(
                "hermes_deliveries_total", {"platform": "telegram", "outcome": "stray"}
            )
            == 1
        )

    run(story())


def test_pieces_that_were_sent_before_the_crash_are_not_sent_again(services: Services) -> None:
    async def story() -> None:
        outbox, text = services.db.outbox, "the first line here\nand the second one\nand a third"
        cut = outbox.enqueue(replace(new_item("a", text), sender=_dead_holder()))
        transact(outbox.progress_in, cut, platform_ids=["900"], draft=note(under_way=None))
        lost = outbox.enqueue(replace(new_item("b", text, chat="43"), sender=cut.sender))
        transact(outbox.progress_in, lost, platform_ids=["901"], draft=note(under_way=1))
        adapter = PretendAdapter(limit=20)
        async with delivering(services, adapter):
            assert (await settled(services, cut)).state == (await settled(services, lost)).state == "sent"
        assert adapter.chat("42") == ["and the second one", "and a third"]
        assert adapter.chat("43") == [f"{REPEATED}\n\nand the second one", "and a third"]

    run(story())


def test_a_doubt_about_the_next_message_outlives_a_sender_that_died_at_an_edit(services: Services) -> None:
    """The second message of a streamed answer got no answer; the process that completes the first one dies."""

    async def story() -> None:
        outbox = services.db.outbox
        item = outbox.enqueue(replace(new_item("a", "the first line here\nand the second one"), sender=_dead_holder()))
        draft = note(under_way=None, live=True, repeat=1)
        transact(outbox.progress_in, item, platform_ids=["900"], draft=draft)
        adapter = PretendAdapter(edits=True, limit=20)
        adapter.messages.append(Shown("900", "42", "the first", versions=["the first"]))
        async with delivering(services, adapter):
            await settled(services, item)
        assert adapter.chat() == ["the first line here", f"{REPEATED}\n\nand the second one"]

    run(story())


def test_nothing_is_in_hand_of_a_process_that_is_killed_before_its_platform_is_connected(services: Services) -> None:
    async def story() -> None:
        adapter = PretendAdapter()
        item = services.db.outbox.enqueue(new_item("a", "an answer"))
        deliverer = Deliverer(services, {adapter.platform: adapter}, poll_seconds=0.02)
        await deliverer.start(connecting=60)
        await asyncio.sleep(0.2)
        found = services.db.outbox.get(item.id)
        assert found is not None and (found.state, found.attempts) == ("pending", 0)
        deliverer.back(adapter.platform)
        await settled(services, item)
        await deliverer.drain(5)
        assert adapter.chat() == ["an answer"]

    run(story())


def test_an_answer_that_is_made_before_its_platform_is_connected_brings_no_others_into_hand(services: Services) -> None:
    async def story() -> None:
        adapter = PretendAdapter()
        adapter.script = [SendResult(success=False, error="not connected", error_kind="transient", not_sent=True)]
        waiting = services.db.outbox.enqueue(new_item("a", "an answer", chat="7"))
        deliverer = Deliverer(services, {adapter.platform: adapter}, poll_seconds=0.02)
        await deliverer.start(connecting=60)
        made = services.db.outbox.enqueue(replace(new_item("b", "just made"), sender=services.holder))
        deliverer.deliver(made)
        await asyncio.sleep(2.3)  # longer than a pause after a failed try
        found = services.db.outbox.get(waiting.id)
        assert found is not None and (found.state, found.attempts) == ("pending", 0) and adapter.begun == 1
        deliverer.back(adapter.platform)
        await settled(services, made)
        await settled(services, waiting)
        await deliverer.drain(5)

    run(story())


def test_a_living_sender_is_left_alone(services: Services) -> None:
    async def story() -> None:
        item = services.db.outbox.enqueue(replace(new_item("a"), sender=f"{services.holder}x"))
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
        items = [services.db.outbox.enqueue(replace(new_item(c, chat=c), sender=services.holder)) for c in "abcdef"]
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
        first, second = (narrow.db.outbox.enqueue(replace(new_item(c, chat=c), sender=services.holder)) for c in "ab")
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
        said = asyncio.create_task(deliverer.say(new_item("a")))
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
