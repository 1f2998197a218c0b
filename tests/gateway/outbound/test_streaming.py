"""An answer shown while it is made: one message, edited, that ends as exactly what was stored."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from copy import copy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.api.door import until
from tests.support.stores import transact

from gateway.config import StreamingConfig
from gateway.outbound import streaming
from gateway.outbound.deliverer import Deliverer
from gateway.outbound.send_item import REPEATED
from gateway.outbound.streaming import ChatStream, TypingSign
from gateway.platforms.base import Outgoing, SendResult
from gateway.services import Services
from hermes_config import config
from hermes_state.ids import ConversationId, SessionId, SessionKey
from hermes_state.turns.leases import Lease
from hermes_state.turns.outbox import NewOutboxItem, OutboxItem, answer_key
from hermes_state.turns.turns import Work
from hermes_testing.clock import Clock
from hermes_testing.memory_platform import PretendAdapter

pytestmark = pytest.mark.slow

FLOOD = SendResult(success=False, error="Too Many Requests", error_kind="rate_limited", retry_after=0.05, not_sent=True)
TIMED_OUT = SendResult(success=False, error="timed out", error_kind="transient")


@pytest.fixture
def quick(services: Services) -> Services:
    """Edits every few milliseconds."""
    streaming = StreamingConfig(enabled=True, edit_interval=0.02, buffer_threshold=24)
    settings = copy(services.settings)
    settings.streaming = streaming
    return replace(services, settings=settings)


class Chat:
    """One chat and the turns in it, as the lanes drive them."""

    def __init__(self, services: Services, adapter: PretendAdapter, deliverer: Deliverer) -> None:
        self.services, self.adapter, self.deliverer = services, adapter, deliverer
        self.lease: Lease | None = None

    def projection(self) -> ChatStream:
        return ChatStream(self.services, self.adapter, self.deliverer, chat_id="42", thread_id="7")

    def begin(self) -> Work:
        db = self.services.db
        db.create_session("s", source="telegram")
        self.lease = db.leases.acquire(ConversationId("s"), holder=self.services.holder, ttl=60)
        assert self.lease is not None
        work = transact(
            db.turns.begin_in,
            conversation_id=ConversationId("s"),
            session_id=SessionId("s"),
            fence=self.lease.fence,
            route=SessionKey("r"),
        )
        assert work is not None
        return work

    def started(self) -> tuple[Work, ChatStream]:
        """A turn, and what is shown of it."""
        work, shown = self.begin(), self.projection()
        shown.began(work)
        return work, shown

    def resume(self, work: Work) -> Work:
        db = self.services.db
        assert self.lease is not None
        db.leases.release(self.lease)
        self.lease = db.leases.acquire(ConversationId("s"), holder=self.services.holder, ttl=60)
        assert self.lease is not None
        return transact(db.turns.resume_in, work.turn.id, fence=self.lease.fence)

    def commit(self, work: Work, text: str) -> OutboxItem:
        assert self.lease is not None
        reply = NewOutboxItem(
            dedup_key=answer_key(work.turn.id), platform="telegram", chat_id="42", sender=self.services.holder,
            payload={"text": text, "kind": "answer", "thread_id": "7"},
        )  # fmt: skip
        final = [{"role": "assistant", "content": text}]
        ended = transact(
            self.services.db.turns.commit_in, work.turn.id, fence=self.lease.fence, final=final, reply=reply
        )
        assert ended.reply is not None
        return ended.reply

    async def end(self, work: Work, shown: ChatStream, text: str) -> OutboxItem:
        item = self.commit(work, text)
        shown.ended({"outbox_item": item})
        task = self.deliverer.deliver(item)
        assert task is not None
        await task
        return await self.until(item, "sent")

    async def until(self, item: OutboxItem, *states: str) -> OutboxItem:
        async with asyncio.timeout(10):
            while True:
                found = self.services.db.outbox.get(item.id)
                assert found is not None
                if found.state in states:
                    return found
                await asyncio.sleep(0.01)


@asynccontextmanager
async def chatting(services: Services, adapter: PretendAdapter) -> AsyncIterator[Chat]:
    deliverer = Deliverer(services, {adapter.platform: adapter}, poll_seconds=0.02)
    await deliverer.start()
    yield Chat(services, adapter, deliverer)
    assert await deliverer.drain(5)


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(story)


async def speak(shown: ChatStream, *words: str, pause: float = 0.03) -> None:
    for word in words:
        shown.delta(word)
        await asyncio.sleep(pause)


async def show(shown: ChatStream, adapter: PretendAdapter, *words: str) -> None:
    """One word after the other, each once the one before it stands in the chat."""
    for word in words:
        shown.delta(word)
        await until(lambda word=word: adapter.messages and word.strip() in adapter.messages[-1].text)


STORY = [f"This is sentence number {number} of it. " for number in range(12)]


def test_the_message_grows_and_ends_as_exactly_the_stored_text(quick: Services) -> None:
    async def story() -> None:
        adapter = PretendAdapter(edits=True)
        async with chatting(quick, adapter) as chat:
            work, shown = chat.started()
            await show(shown, adapter, *STORY)
            assert shown.shown
            item = await chat.end(work, shown, "".join(STORY).strip())
        (message,) = adapter.messages
        stored = [row["content"] for row in quick.db.get_messages("s") if row["role"] == "assistant"]
        assert message.text == stored[-1] == "".join(STORY).strip()
        assert message.thread_id == "7" and item.platform_ids == (message.id,)
        assert len(message.versions) > 3, "it was shown while it was made"
        assert all(a != b for a, b in zip(message.versions, message.versions[1:], strict=False)), "no edit said nothing"
        assert all(version.endswith(" ▉") for version in message.versions[:-1])

    run(story())


@pytest.mark.parametrize("seconds", [60.0, 0.3])
def test_what_is_sent_first_is_a_sentence_unless_that_takes_too_long(
    quick: Services, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    monkeypatch.setattr(streaming, "_SENTENCE_SECONDS", seconds)

    async def story() -> None:
        adapter = PretendAdapter(edits=True)
        async with chatting(quick, adapter) as chat:
            work, shown = chat.started()
            await speak(shown, "1. The ", "capital ", "of ", "Australia ", "is ", "Canberra, ", pause=0.05)
            if seconds < 1:
                await until(lambda: adapter.messages)  # nothing follows for a while
            await speak(shown, "which was chosen as a compromise. ")
            await until(lambda: adapter.messages)
            await chat.end(work, shown, "Canberra.")
        (message,) = adapter.messages
        first = message.versions[0].removesuffix("▉").strip()
        assert first.endswith("compromise." if seconds > 1 else "Canberra,")

    run(story())


def test_a_quick_answer_is_one_message_and_one_commit_less(quick: Services) -> None:
    async def story() -> None:
        adapter = PretendAdapter(edits=True)
        async with chatting(quick, adapter) as chat:
            work, shown = chat.started()
            shown.delta("All of it at once, and rather long for that.")
            await chat.end(work, shown, "All of it at once, and rather long for that.")
        assert [message.versions for message in adapter.messages] == [["All of it at once, and rather long for that."]]

    run(story())


def test_tool_calls_stay_in_the_same_message_and_leave_no_trace_in_the_end(quick: Services, home: Path) -> None:
    home.mkdir(parents=True, exist_ok=True)
    (home / "config.yaml").write_text("display:\n  platforms:\n    telegram:\n      tool_progress: all\n")
    spoken = replace(quick, config=config.load())

    async def story() -> None:
        adapter = PretendAdapter(edits=True)
        async with chatting(spoken, adapter) as chat:
            work, shown = chat.started()
            await show(shown, adapter, "Let me look at the files first. ")
            shown.step()
            shown.tool("tool.started", "terminal", "ls `-la`\n/tmp", duration=None, failed=False)
            await until(lambda: "⚙ terminal" in adapter.messages[-1].text)
            shown.tool("tool.completed", "terminal", "", duration=0.2, failed=True)
            await show(shown, adapter, "There are three of them.")
            await chat.end(work, shown, "There are three of them.")
        (message,) = adapter.messages
        longest = max(message.versions, key=len)
        assert "Let me look at the files first." in longest and "⚙ terminal `ls '-la' /tmp`\n✗ terminal" in longest
        assert message.text == "There are three of them."

    run(story())


def test_what_does_not_fit_goes_on_in_a_new_message(quick: Services) -> None:
    async def story() -> None:
        adapter = PretendAdapter(edits=True, limit=100)
        async with chatting(quick, adapter) as chat:
            work, shown = chat.started()
            await speak(shown, *STORY)
            await until(lambda: len(adapter.messages) > 2)  # shown before the end
            item = await chat.end(work, shown, "".join(STORY).strip())
        assert adapter.chat() == adapter.pieces("".join(STORY).strip())
        assert item.platform_ids == tuple(message.id for message in adapter.messages)

    run(story())


def test_a_shorter_end_takes_away_what_it_does_not_need(quick: Services) -> None:
    async def story() -> None:
        adapter = PretendAdapter(edits=True, limit=100)
        async with chatting(quick, adapter) as chat:
            work, shown = chat.started()
            await speak(shown, *STORY)
            await until(lambda: len(adapter.messages) > 2)
            await chat.end(work, shown, "In short: no.")
        assert adapter.chat() == ["In short: no."]

    run(story())


def test_a_flood_pauses_the_edits_and_three_end_them_until_the_end(quick: Services) -> None:
    async def story() -> None:
        adapter = PretendAdapter(edits=True)
        async with chatting(quick, adapter) as chat:
            work, shown = chat.started()
            await show(shown, adapter, STORY[0])
            adapter.script = [FLOOD, FLOOD, FLOOD]
            for number in (1, 2, 3):
                shown.delta(STORY[number])
                await until(lambda left=3 - number: len(adapter.script) == left)
            await speak(shown, *STORY[4:])
            (message,) = adapter.messages
            assert adapter.script == [] and len(message.versions) == 1, "left alone"
            await chat.end(work, shown, "".join(STORY).strip())
        assert adapter.chat() == ["".join(STORY).strip()] and len(message.versions) == 2

    run(story())


def test_a_message_that_somebody_deleted_is_sent_anew_at_the_end(quick: Services) -> None:
    async def story() -> None:
        adapter = PretendAdapter(edits=True)
        async with chatting(quick, adapter) as chat:
            work, shown = chat.started()
            await show(shown, adapter, STORY[0])
            adapter.messages.clear()
            shown.delta(STORY[1])
            await until(lambda: adapter.begun == 2)
            await chat.end(work, shown, "The answer.")
        assert adapter.chat() == ["The answer."]

    run(story())


class Late(PretendAdapter):
    """The second edit is made after its sender has given up."""

    edit = 0

    async def edit_message(self, chat_id: str, message_id: str, content: str, **more: Any) -> SendResult:
        self.edit += 1
        if self.edit != 2:
            return await super().edit_message(chat_id, message_id, content, **more)
        self.late = partial(super().edit_message, chat_id, message_id, content, **more)
        await asyncio.sleep(0.3)
        return TIMED_OUT


async def with_a_late_edit(chat: Chat, adapter: Late) -> tuple[Work, ChatStream]:
    """A turn whose answer is shown up to that edit."""
    work, shown = chat.started()
    await show(shown, adapter, *STORY[:2])
    shown.delta(STORY[2])
    await until(lambda: adapter.edit == 2)
    return work, shown


def test_an_edit_that_comes_after_its_time_out_does_not_replace_the_answer(
    quick: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "_LATE_SECONDS", 0.2)

    async def story() -> None:
        adapter = Late(edits=True)
        async with chatting(quick, adapter) as chat:
            work, shown = await with_a_late_edit(chat, adapter)
            await chat.end(work, shown, "".join(STORY).strip())
            assert (await adapter.late()).error_kind == "not_found"
        assert adapter.chat() == ["".join(STORY).strip()]

    run(story())


def test_what_was_said_of_a_late_edit_holds_for_the_next_attempt(
    quick: Services, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    """The platform asks for a pause, so the old message is still there when the attempt ends."""
    monkeypatch.setattr(streaming, "_LATE_SECONDS", 0.2)

    class Flooded(Late):
        refusals = 1

        async def delete_message(self, chat_id: str, message_id: str, **more: Any) -> bool:
            self.refusals -= 1
            if self.refusals < 0:
                return await super().delete_message(chat_id, message_id, **more)
            self.flood.refused(chat_id, 0.3)
            return False

    async def story() -> None:
        adapter = Flooded(edits=True)
        async with chatting(quick, adapter) as chat:
            work, shown = await with_a_late_edit(chat, adapter)
            item = chat.commit(work, "".join(STORY).strip())
            shown.ended({"outbox_item": item})
            chat.deliverer.deliver(item)
            await chat.until(item, "pending")
            await asyncio.sleep(0.3)
            clock.advance(10)
            chat.deliverer.wake()
            await chat.until(item, "sent")
            assert (await adapter.late()).error_kind == "not_found"
        assert adapter.chat() == ["".join(STORY).strip()]

    run(story())


def test_a_message_that_was_being_sent_when_its_turn_ended_is_completed_by_the_next_attempt_too(
    quick: Services, clock: Clock
) -> None:
    class Slow(PretendAdapter):
        async def send(self, chat_id: str, message: Outgoing) -> SendResult:
            result = await super().send(chat_id, message)
            await asyncio.sleep(0.2)
            return result

    async def story() -> None:
        adapter = Slow(edits=True)
        async with chatting(quick, adapter) as chat:
            work, shown = chat.started()
            shown.delta(STORY[0])
            await until(lambda: adapter.messages)
            adapter.script = [FLOOD]
            item = chat.commit(work, "".join(STORY).strip())
            shown.ended({"outbox_item": item})
            chat.deliverer.deliver(item)
            await chat.until(item, "pending")
            await asyncio.sleep(0.1)
            clock.advance(10)
            chat.deliverer.wake()
            await chat.until(item, "sent")
        assert adapter.chat() == ["".join(STORY).strip()]

    run(story())


def test_where_nothing_can_be_deleted_the_old_message_says_that_the_answer_is_below(
    quick: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "_LATE_SECONDS", 0.2)

    class Kept(Late):
        async def delete_message(self, chat_id: str, message_id: str, **more: Any) -> bool:
            return False

    async def story() -> None:
        adapter = Kept(edits=True)
        async with chatting(quick, adapter) as chat:
            work, shown = await with_a_late_edit(chat, adapter)
            await chat.end(work, shown, "".join(STORY).strip())
        assert adapter.chat() == ["(continued below)", "".join(STORY).strip()]

    run(story())


def test_a_beginning_that_was_not_answered_for_is_followed_by_the_marked_answer(quick: Services) -> None:
    async def story() -> None:
        adapter = PretendAdapter(edits=True)
        adapter.script = [TIMED_OUT]
        async with chatting(quick, adapter) as chat:
            work, shown = chat.started()
            await show(shown, adapter, STORY[0])
            await speak(shown, *STORY[1:3])
            await chat.end(work, shown, "The answer.")
        beginning, answer = adapter.chat()
        assert beginning.endswith("▉") and answer == f"{REPEATED}\n\nThe answer."

    run(story())


LONG = ["The first sentence of it. ", "More of it follows, and more. " * 12, "And its end."]


def test_the_first_sentence_of_a_long_answer_that_was_not_answered_for_is_sent_again_and_filled(
    quick: Services,
) -> None:
    async def story() -> None:
        adapter = PretendAdapter(edits=True)
        adapter.script = [TIMED_OUT]
        async with chatting(quick, adapter) as chat:
            work, shown = chat.started()
            shown.delta("".join(LONG[:2]))
            await until(lambda: adapter.begun >= 3)
            await chat.end(work, shown, "".join(LONG))
        stray, answer = adapter.messages
        assert stray.versions == ["The first sentence of it."], "what may stand there twice is one sentence"
        assert answer.versions[0] == "The first sentence of it." and answer.text == "".join(LONG)
        strays = quick.metrics.registry.get_sample_value(
            "hermes_deliveries_total", {"platform": "telegram", "outcome": "stray"}
        )
        assert strays == 1, "and it is counted"

    run(story())


def test_silence_is_never_shown(quick: Services) -> None:
    async def story() -> None:
        adapter = PretendAdapter(edits=True)
        settings = copy(quick.settings)
        settings.streaming = copy(settings.streaming)
        settings.streaming.buffer_threshold = 1
        eager = replace(quick, settings=settings)
        async with chatting(eager, adapter) as chat:
            shown = chat.projection()
            shown.began(chat.begin())
            await speak(shown, "NO_", "REPLY", pause=0.3)
            shown.ended({"outbox_item": None})
            await asyncio.sleep(0.1)
        assert adapter.messages == []

    run(story())


def test_a_turn_that_owes_nothing_leaves_what_was_shown_without_a_cursor(quick: Services) -> None:
    async def story() -> None:
        adapter = PretendAdapter(edits=True)
        async with chatting(quick, adapter) as chat:
            work, shown = chat.started()
            await show(shown, adapter, STORY[0])
            assert chat.lease is not None
            quick.db.turns.cancel(work.turn.id, fence=chat.lease.fence, reason="stopped")
            shown.ended({"outbox_item": None})
        assert adapter.chat() == [STORY[0].strip()]

    run(story())


# -- after a crash ----------------------------------------------------------------------------------------------------


async def _crash(chat: Chat, work: Work, *words: str) -> None:
    """A process shows something and is no more: its tasks do nothing further, its rows stay."""
    shown = chat.projection()
    shown.began(work)
    await show(shown, chat.adapter, *words)
    shown.left()


def test_the_turn_that_is_taken_up_again_edits_the_same_message(quick: Services) -> None:
    async def story() -> None:
        adapter = PretendAdapter(edits=True)
        async with chatting(quick, adapter) as before:
            work = before.begin()
            await _crash(before, work, STORY[0])
        reborn = replace(quick, holder=f"{quick.holder}x")
        async with chatting(reborn, adapter) as chat:
            chat.lease = before.lease
            shown = chat.projection()
            shown.began(chat.resume(work))
            await show(shown, adapter, f"Taken up again: {STORY[0]}", *STORY[1:4])
            assert adapter.messages[0].text.startswith("Taken up again: ")
            await chat.end(work, shown, "Taken up again, and done.")
        assert adapter.chat() == ["Taken up again, and done."]

    run(story())


def test_a_turn_that_is_stopped_after_a_crash_leaves_no_cursor(quick: Services) -> None:
    async def story() -> None:
        adapter = PretendAdapter(edits=True)
        async with chatting(quick, adapter) as before:
            work = before.begin()
            await _crash(before, work, STORY[0])
        assert "▉" in adapter.chat()[0]
        reborn = replace(quick, holder=f"{quick.holder}x")
        async with chatting(reborn, adapter) as chat:
            shown = _with_lease(chat, before).projection()
            shown.began(chat.resume(work))
            assert chat.lease is not None
            quick.db.turns.cancel(work.turn.id, fence=chat.lease.fence, reason="stopped")
            shown.ended({"outbox_item": None})
        assert adapter.chat() == []

    run(story())


def test_an_answer_that_was_committed_and_not_sent_is_edited_into_the_same_message(quick: Services) -> None:
    async def story() -> None:
        adapter = PretendAdapter(edits=True)
        async with chatting(quick, adapter) as before:
            work = before.begin()
            await _crash(before, work, STORY[0])
        dead = replace(quick, holder="somewhere/1/0/dead")
        item = Chat.commit(_with_lease(Chat(dead, adapter, before.deliverer), before), work, "The whole answer.")
        assert item.state == "sending"
        quick.db.clock.advance(500)  # type: ignore[attr-defined]
        async with chatting(quick, adapter) as chat:
            await chat.until(item, "sent")
        assert adapter.chat() == ["The whole answer."], "one message, edited; not unknown, not doubled"

    run(story())


def _with_lease(chat: Chat, other: Chat) -> Chat:
    chat.lease = other.lease
    return chat


def test_a_crash_while_the_first_words_were_sent_ends_in_a_marked_answer(quick: Services) -> None:
    async def story() -> None:
        adapter = PretendAdapter(edits=True)
        adapter.script = [TIMED_OUT]  # it arrived, and the process never heard of it
        async with chatting(quick, adapter) as before:
            work = before.begin()
            await _crash(before, work, STORY[0])
        async with chatting(quick, adapter) as chat:
            chat.lease = before.lease
            shown = chat.projection()
            shown.began(chat.resume(work))
            await speak(shown, *STORY[:2], pause=0.3)
            await chat.end(work, shown, "The answer.")
        assert adapter.chat()[1:] == [f"{REPEATED}\n\nThe answer."]

    run(story())


# -- how it is shown --------------------------------------------------------------------------------------------------


def _display(services: Services, home: Path, text: str, *, edits: bool = True) -> streaming.Display:
    from gateway.config import load_gateway_config

    home.mkdir(parents=True, exist_ok=True)
    (home / "config.yaml").write_text(text)
    loaded = config.load()
    return streaming.of(
        replace(services, config=loaded, settings=load_gateway_config(loaded)), PretendAdapter(edits=edits)
    )


@pytest.mark.parametrize(
    ("text", "streams"),
    [
        ("", True),
        ("streaming:\n  edit_interval: 2\n", True),
        ("streaming:\n  enabled: false\n", False),
        ("gateway:\n  streaming:\n    enabled: false\n", False),
        ("streaming:\n  enabled: true\n", True),
        ("streaming:\n  transport: off\n", False),
        ("streaming:\n  enabled: true\ndisplay:\n  platforms:\n    telegram:\n      streaming: false\n", False),
    ],
)
def test_answers_stream_where_a_platform_can_edit_unless_somebody_said_no(
    services: Services, home: Path, text: str, streams: bool
) -> None:
    assert _display(services, home, text).streams is streams
    assert not _display(services, home, text, edits=False).streams


def test_tool_lines_are_a_platforms_own_choice(services: Services, home: Path) -> None:
    assert _display(services, home, "").tool_lines == "off"
    assert _display(services, home, "display:\n  tool_progress: verbose\n").tool_lines == "verbose"
    text = "display:\n  tool_progress: all\n  platforms:\n    telegram:\n      tool_progress: off\n"
    assert _display(services, home, text).tool_lines == "off"


# -- typing -----------------------------------------------------------------------------------------------------------


def test_the_typing_sign_is_shown_again_and_held_back_while_somebody_is_asked() -> None:
    async def story() -> None:
        adapter = PretendAdapter()
        sign = TypingSign(adapter, "42", most_seconds=60, every=0.02)
        sign.start()
        await until(lambda: len(adapter.typed) >= 3)
        sign.hold(True)
        seen = len(adapter.typed)
        await asyncio.sleep(0.1)
        assert len(adapter.typed) == seen
        sign.hold(False)
        await until(lambda: len(adapter.typed) > seen)
        sign.stop()
        last = len(adapter.typed)
        await asyncio.sleep(0.1)
        assert len(adapter.typed) == last

    run(story())


def test_no_typing_sign_where_it_is_switched_off() -> None:
    async def story() -> None:
        adapter = PretendAdapter()
        adapter.config.typing_indicator = False
        sign = TypingSign(adapter, "42", most_seconds=60, every=0.02)
        sign.start()
        await asyncio.sleep(0.05)
        assert adapter.typed == []

    run(story())
