"""Messages come in: each at least once, in order, acknowledged only when it is stored, whatever happens on the way."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

import pytest

from gateway.platforms import connections
from gateway.platforms.base import CursorMove, MessageEvent, Outgoing, Receipt
from gateway.platforms.telegram import polling
from gateway.platforms.telegram.errors import refused
from hermes_testing.telegram.faults import Fault
from hermes_testing.telegram.server import FakeTelegram

from .conftest import Inbox, made

pytestmark = pytest.mark.slow

Connected = Callable[..., Any]
DM = {"id": 1, "type": "private"}


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses as in life, only shorter."""
    monkeypatch.setattr(polling, "LONGEST_PAUSE", 0.05)
    monkeypatch.setattr(polling, "CONFLICT_PAUSE", 0.1)


def test_a_message_arrives_and_is_acknowledged(telegram: FakeTelegram, connected: Connected) -> None:
    async def run() -> None:
        ada = telegram.person("ada")
        async with connected() as (adapter, inbox):
            ada.say("hello")
            await telegram.wait_async(lambda: inbox.texts == ["hello"], "the message")
            await telegram.wait_async(lambda: telegram.facts()["pending"] == 0, "the acknowledgement")
            assert abs((adapter.health().last_contact or 0) - time.time()) < 5
            assert adapter.health().problem == ""

    asyncio.run(run())


def test_a_clock_that_is_hours_ahead_makes_no_new_message_old(telegram: FakeTelegram, connected: Connected) -> None:
    """Of what waited before the first question nobody knows; a later message was sent after that question."""

    async def run() -> None:
        telegram.world.now = lambda: time.time() - 7_200
        ada = telegram.person("ada")
        ada.say("sent long ago, or by another clock")
        async with connected() as (_, inbox):
            for text in ("now", "now again"):
                await telegram.wait_async(lambda: telegram.facts()["pending"] == 0, "the acknowledgement")
                ada.say(text)
                await telegram.wait_async(lambda text=text: inbox.texts[-1:] == [text], text)
        ages = [time.time() - event.timestamp.timestamp() for event in inbox.events]
        assert ages[0] > 7_000 and all(0 <= age < 60 for age in ages[1:])

    asyncio.run(run())


class Dying(Inbox):
    """Stores a message and its place, and never returns: as a process that is killed right after the commit."""

    def __init__(self) -> None:
        super().__init__()
        self.stored = asyncio.Event()

    async def __call__(self, event: MessageEvent, *, cursor: CursorMove | None = None) -> Receipt:
        await super().__call__(event, cursor=cursor)
        self.stored.set()
        return await asyncio.Future()


@pytest.mark.parametrize("recent", [True, False])
def test_a_new_process_goes_on_behind_what_the_old_one_stored(
    telegram: FakeTelegram, connected: Connected, monkeypatch: pytest.MonkeyPatch, recent: bool
) -> None:
    """After days without a message the place is not used: Telegram may have begun to count anew below it."""

    async def run() -> None:
        telegram.person("ada").say("hello")
        dying = Dying()
        async with connected(dying):
            await asyncio.wait_for(dying.stored.wait(), 10)
        assert telegram.facts()["pending"] == 1, "it was stored, and Telegram does not know that"
        if not recent:
            monkeypatch.setattr(polling, "_OLDEST_OFFSET", 0.0)
        async with connected() as (_, inbox):
            await telegram.wait_async(lambda: telegram.facts()["pending"] == 0, "the acknowledgement")
        assert inbox.texts == ([] if recent else ["hello"])

    asyncio.run(run())


def test_another_bot_is_not_asked_from_where_the_last_one_was_read(
    telegram: FakeTelegram, connected: Connected
) -> None:
    """Telegram would forget everything that was said to it below that number."""

    async def run() -> None:
        async with connected() as (_, inbox):
            for number in range(3):
                telegram.person("ada").say(f"old {number}")
            await telegram.wait_async(lambda: len(inbox.texts) == 3, "the messages to the old bot")
        with FakeTelegram(token="654321:a-pretend-token-of-another-bot") as other:
            other.person("ada").say("to the new one")
            async with connected(fake=other) as (_, inbox):
                await other.wait_async(lambda: other.facts()["pending"] == 0, "the acknowledgement")
                assert inbox.texts == ["to the new one"]
                noted = inbox.db.cursors.get("telegram", "", "%connected_as")
                assert noted is not None and noted.value == "654321", "its messages count from 1 again"

    asyncio.run(run())


def test_a_store_that_cannot_say_the_offset_does_not_end_the_asking(
    telegram: FakeTelegram, connected: Connected
) -> None:
    async def run() -> None:
        async with connected(store_away=True) as (adapter, _):
            await telegram.wait_async(lambda: adapter.health().last_contact is not None, "an answer of Telegram")
            assert adapter.health().problem == ""

    asyncio.run(run())


def test_what_was_not_stored_is_asked_for_again_and_nothing_behind_it_is_lost(
    telegram: FakeTelegram, connected: Connected
) -> None:
    async def run() -> None:
        ada = telegram.person("ada")
        async with connected() as (_, inbox):
            inbox.fails = 3
            for number in range(5):
                ada.say(f"message {number}")
            await telegram.wait_async(lambda: len(inbox.events) == 5, "all five")
            assert inbox.texts == [f"message {number}" for number in range(5)]

    asyncio.run(run())


def test_an_update_is_not_acknowledged_before_its_message_is_stored(
    telegram: FakeTelegram, connected: Connected
) -> None:
    async def run() -> None:
        ada = telegram.person("ada")
        async with connected() as (_, inbox):
            inbox.fails = 10**6
            ada.say("hold on")
            await telegram.wait_async(lambda: inbox.fails < 10**6 - 2, "three attempts")
            assert telegram.facts()["pending"] == 1
            inbox.fails = 0
            await telegram.wait_async(lambda: inbox.texts == ["hold on"], "the message")

    asyncio.run(run())


def test_the_operator_sees_that_messages_are_not_stored(telegram: FakeTelegram, connected: Connected) -> None:
    async def run() -> None:
        async with connected() as (adapter, inbox):
            inbox.fails = 10**6
            telegram.person("ada").say("hold on")
            wanted = polling.NOT_TAKEN.format("")
            await telegram.wait_async(lambda: adapter.health().problem.startswith(wanted), "the trouble")
            polls = len(telegram.journal("getUpdates"))
            seen = set()

            def tried_again() -> bool:
                seen.add(adapter.health().problem)
                return len(telegram.journal("getUpdates")) > polls + 1

            await telegram.wait_async(tried_again, "further attempts")
            assert "" not in seen, "it is shown during the next attempt, too"
            inbox.fails = 0
            await telegram.wait_async(lambda: adapter.health().problem == "", "the end of the trouble")

    asyncio.run(run())


def test_a_message_that_meets_a_defect_holds_up_its_own_chat_only(telegram: FakeTelegram, connected: Connected) -> None:
    async def run() -> None:
        ada, mallory = telegram.person("ada"), telegram.person("mallory")
        inbox = Inbox()
        inbox.poison = "boom"
        async with connected(inbox):
            mallory.say("boom")
            mallory.say("behind it")
            ada.say("hello")
            await telegram.wait_async(lambda: inbox.texts == ["hello"], "the other chat's message")
            ada.say("again")
            await telegram.wait_async(lambda: inbox.texts == ["hello", "again"], "and the next")
            assert telegram.facts()["pending"] == 4, "nothing is acknowledged past what was not taken"
            inbox.poison = ""
            await telegram.wait_async(lambda: len(inbox.events) == 4, "all of them")
            assert inbox.texts[2:] == ["boom", "behind it"]
            await telegram.wait_async(lambda: telegram.facts()["pending"] == 0, "the acknowledgements")

    asyncio.run(run())


def test_doubled_shuffled_redelivered_and_broken_updates_do_no_harm(
    telegram: FakeTelegram, connected: Connected
) -> None:
    telegram.faults(
        Fault("duplicate", method="getUpdates", chance=0.3),
        Fault("reorder", method="getUpdates", chance=0.5),
        Fault("redeliver", method="getUpdates", chance=0.3),
        Fault("malformed", method="getUpdates", chance=0.3),
        Fault("drop_after", method="getUpdates", chance=0.2),
        Fault("error", method="getUpdates", chance=0.1, status=502),
        seed=4,
    )

    async def run() -> None:
        ada, bob = telegram.person("ada"), telegram.person("bob")
        async with connected() as (_, inbox):
            for number in range(40):
                (ada if number % 2 else bob).say(f"message {number}")
                await asyncio.sleep(0.01)
            await telegram.wait_async(lambda: len(inbox.events) == 40, "all forty")
            telegram.faults()
            await telegram.wait_async(lambda: telegram.facts()["pending"] == 0, "the acknowledgements")
            for chat in (ada, bob):
                texts = [event.text for event in inbox.events if event.source.user_id == str(chat.id)]
                assert sorted(texts, key=lambda text: int(text.split()[1])) == texts

    asyncio.run(run())


@pytest.mark.parametrize(
    "update",
    [
        {"message": 5},
        {"message": {"message_id": "x", "chat": DM, "from": {"id": 1}, "date": 1, "text": "a"}},
        {"message": {"message_id": 1, "date": 1, "text": "no chat", "from": {"id": 1}}},
        {"message": {"message_id": 1, "chat": DM, "from": {"id": 1}, "date": 10**30, "text": "a"}},
        {"message": {"message_id": 1, "chat": DM, "from": {"id": 1}, "date": 1, "photo": [3]}},
        {"message": {"message_id": 1, "chat": DM, "from": {"id": 1}, "date": 1, "text": "a", "entities": {"x": 1}}},
        {"message": {"message_id": 1, "chat": [], "from": None, "date": {}, "text": 7}},
        {"callback_query": {"id": 5, "from": {}, "message": {}, "data": "x"}},
        {"edited_message": {"message_id": 1, "chat": DM, "from": {"id": 1}, "text": "a"}},
        {"nonsense": True},
        {},
    ],
)  # fmt: skip
def test_a_malformed_update_costs_nothing_but_itself(
    telegram: FakeTelegram, connected: Connected, update: dict[str, Any]
) -> None:
    async def run() -> None:
        async with connected() as (_, inbox):
            telegram.inject(update)
            telegram.person("ada").say("still there?")
            await telegram.wait_async(lambda: inbox.texts == ["still there?"], "the message behind it")
            await telegram.wait_async(lambda: telegram.facts()["pending"] == 0, "the acknowledgement of both")

    asyncio.run(run())


def test_a_second_poller_is_named_and_waited_for(telegram: FakeTelegram, connected: Connected) -> None:
    async def run() -> None:
        async with connected() as (first, one), connected() as (second, two):
            await telegram.wait_async(
                lambda: polling.CONFLICT in (first.health().problem, second.health().problem), "the conflict"
            )
            telegram.person("ada").say("to one of you")
            await telegram.wait_async(lambda: len(one.events) + len(two.events) >= 1, "the message")
            await second.disconnect()
            await telegram.wait_async(lambda: first.health().problem == "", "the first alone again")

    asyncio.run(run())


def test_the_network_goes_and_comes_back(telegram: FakeTelegram, connected: Connected) -> None:
    async def run() -> None:
        async with connected() as (adapter, inbox):
            port = int(telegram.address.rpartition(":")[2])
            telegram.stop()
            told = (
                f"Telegram cannot be reached: no connection to 127.0.0.1:{port}; see platforms.telegram.extra.base_url"
            )
            await telegram.wait_async(lambda: adapter.health().problem == told, "the trouble, in words")
            result = await adapter.send("1", Outgoing(text="hello"))
            assert not result.success
            assert (result.not_sent, result.retryable, result.error_kind) == (True, True, "transient")
            telegram.start(port)
            telegram.person("ada").say("are you back?")
            await telegram.wait_async(lambda: inbox.texts == ["are you back?"], "the message")
            assert adapter.health().problem == ""

    asyncio.run(run())


def test_a_gateway_that_starts_without_a_network_tries_again_within_15_seconds(
    telegram: FakeTelegram, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "FIRST_PAUSE", 100.0)
    adapter = made(telegram)
    telegram.stop()

    async def run() -> None:
        keeper = connections.Connections({adapter.platform: adapter})
        keeper.start()
        await telegram.wait_async(lambda: keeper.health()["telegram"].retry_at is not None, "the first try")
        again = keeper.health()["telegram"].retry_at
        await keeper.stop()
        assert again is not None and again - time.time() <= 15

    asyncio.run(run())


def test_a_refused_token_is_said_and_not_tried_again(telegram: FakeTelegram, connected: Connected) -> None:
    from gateway.config import Platform, PlatformConfig
    from gateway.platforms import registry

    async def run() -> None:
        extra = {"base_url": telegram.base_url}
        wrong = PlatformConfig(enabled=True, token="123456:some-other-token", extra=extra)
        adapter = registry.make(Platform.TELEGRAM, wrong)
        assert await adapter.connect() is False
        assert adapter.health().problem == refused("telegram")
        async with connected() as (live, _):
            telegram.token = "123456:revoked-and-replaced-by-this"
            telegram.stop()
            telegram.start(int(telegram.address.rpartition(":")[2]))
            await telegram.wait_async(lambda: live.health().problem == refused("telegram"), "the refusal")
            asked = len(telegram.journal())
            await asyncio.sleep(0.3)
            assert len(telegram.journal()) == asked

    asyncio.run(run())


@pytest.mark.parametrize("status", [401, 404])
def test_a_page_of_a_proxy_is_no_refused_token(telegram: FakeTelegram, connected: Connected, status: int) -> None:
    async def run() -> None:
        async with connected() as (adapter, inbox):
            telegram.faults(Fault("error", method="getUpdates", times=1, status=status))
            telegram.person("ada").say("first")  # the poll that is open takes this one, and the next one fails
            telegram.person("ada").say("still there?")
            await telegram.wait_async(lambda: inbox.texts == ["first", "still there?"], "the messages")
            await telegram.wait_async(lambda: telegram.fault_rules.fired == [1], "the page")
            await telegram.wait_async(lambda: adapter.health().problem == "", "polling goes on")

    asyncio.run(run())


def test_a_long_pause_that_telegram_asks_for_does_not_make_the_bot_deaf(
    telegram: FakeTelegram, connected: Connected
) -> None:
    async def run() -> None:
        async with connected() as (_, inbox):
            telegram.faults(Fault("flood", method="getUpdates", times=1, seconds=3_600))
            telegram.person("ada").say("first")
            telegram.person("ada").say("/stop")
            await telegram.wait_async(lambda: inbox.texts == ["first", "/stop"], "the messages")
            await telegram.wait_async(lambda: telegram.fault_rules.fired == [1], "the pause")

    asyncio.run(run())


def test_the_token_is_in_no_log_line_and_no_error(
    telegram: FakeTelegram, connected: Connected, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with connected() as (adapter, inbox):
            telegram.person("ada").say("hello")
            await telegram.wait_async(lambda: bool(inbox.events), "the message")
            await adapter.send(inbox.events[0].source.chat_id, Outgoing(text="hi"))
            telegram.stop()
            result = await adapter.send("1", Outgoing(text="hello"))
            await telegram.wait_async(lambda: bool(adapter.health().problem), "the trouble")
            assert telegram.token not in str(result) + str(adapter.health())

    with caplog.at_level(logging.DEBUG):
        asyncio.run(run())
    assert caplog.records
    assert telegram.token not in caplog.text
