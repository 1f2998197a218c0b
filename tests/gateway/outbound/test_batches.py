"""Batches of files: one request where the platform can, and the same rules. Real store on both engines."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.outbound.test_deliverer import (
    BLOCKED,
    FLOOD,
    TIMED_OUT,
    _dead_holder,
    delivering,
    new_item,
    put_off,
    run,
    settled,
)
from tests.support.stores import transact

from gateway.outbound.send_item import REPEATED, note
from gateway.platforms.base import Outgoing, OutgoingFile, SendResult
from gateway.services import Services
from hermes_state.turns.outbox import NewOutboxItem
from hermes_testing.clock import Clock
from hermes_testing.memory_platform import PretendAdapter, Shown

pytestmark = [pytest.mark.both_engines, pytest.mark.slow]

REFUSED = SendResult(success=False, error="wrong file", error_kind="unknown", not_sent=True)


def files(folder: Path, count: int, *, key: str = "f", **more: Any) -> NewOutboxItem:
    made = []
    for number in range(count):
        (folder / f"{number}.txt").write_text(f"file {number}")
        made.append({"path": str(folder / f"{number}.txt"), "caption": "Look" if number == 0 else ""})
    return new_item(key, "", kind="file", files=made, **more)


def shown(adapter: PretendAdapter) -> list[tuple[str, str, str]]:
    """Each file in the chat, with the batch it came in and its caption."""
    return [("" if one.file is None else one.file.stem, one.album, one.text) for one in adapter.messages]


def test_files_of_one_item_go_out_in_as_few_batches_as_the_platform_allows(services: Services, tmp_path: Path) -> None:
    async def story() -> None:
        adapter = PretendAdapter(album=3)
        async with delivering(services, adapter) as deliverer:
            found = await settled(services, await deliverer.say(files(tmp_path, 7)))
        assert (found.state, found.platform_ids) == ("sent", tuple("1234567"))
        assert shown(adapter) == [
            ("0", "1", "Look"), ("1", "1", ""), ("2", "1", ""), ("3", "4", ""), ("4", "4", ""), ("5", "4", ""),
            ("6", "", ""),
        ]  # fmt: skip
        assert adapter.begun == 3

    run(story())


def test_a_batch_that_may_have_arrived_is_repeated_once_with_a_mark_and_what_was_sent_before_is_not(
    services: Services, tmp_path: Path, clock: Clock
) -> None:
    async def story() -> None:
        adapter = PretendAdapter(album=2)
        adapter.script = [SendResult(success=True), TIMED_OUT]
        async with delivering(services, adapter) as deliverer:
            item = await deliverer.say(files(tmp_path, 5))
            assert (await put_off(services, item)).platform_ids == ("1", "2")
            clock.advance(10)
            found = await settled(services, item)
        assert [(name, text) for name, _, text in shown(adapter)] == [
            ("0", "Look"), ("1", ""), ("2", ""), ("3", ""), ("2", REPEATED), ("3", ""), ("4", "")
        ]  # fmt: skip
        assert found.platform_ids == ("1", "2", "5", "6", "7")
        assert found.draft == {"repeated": 2}

    run(story())


def test_where_the_owner_is_asked_a_batch_is_unknown_until_somebody_says_so(services: Services, tmp_path: Path) -> None:
    asking = replace(services, settings=copy(services.settings))
    asking.settings.delivery = copy(services.settings.delivery)
    asking.settings.delivery.on_unknown = "ask"

    async def story() -> None:
        adapter = PretendAdapter(album=3)
        adapter.script = [TIMED_OUT]
        async with delivering(asking, adapter) as deliverer:
            item = await deliverer.say(files(tmp_path, 3))
            assert (await settled(asking, item)).state == "unknown"
            await adapter.heard(4)
            assert asking.db.outbox.retry(item.id)
            deliverer.wake()
            await settled(asking, item, "sent")
        assert [text for _, _, text in shown(adapter)][4:] == [f"{REPEATED}\n\nLook", "", ""]

    run(story())


@pytest.mark.parametrize("under_way", [None, 2])
def test_after_a_crash_between_two_batches_only_the_second_one_is_sent(
    services: Services, tmp_path: Path, under_way: int | None
) -> None:
    """The process died before it began with the second batch, or while it sent that."""

    async def story() -> None:
        outbox = services.db.outbox
        item = outbox.enqueue(replace(files(tmp_path, 5), sender=_dead_holder()))
        left = note(under_way=under_way, together=2)
        transact(outbox.progress_in, item, platform_ids=["901", "902"], draft=left)
        adapter = PretendAdapter(album=2)
        async with delivering(services, adapter):
            found = await settled(services, item)
        mark = "" if under_way is None else REPEATED
        assert [(name, text) for name, _, text in shown(adapter)] == [("2", mark), ("3", ""), ("4", "")]
        assert found.platform_ids == ("901", "902", "1", "2", "3")

    run(story())


def test_only_what_may_have_arrived_has_the_mark(services: Services, tmp_path: Path) -> None:
    """The process died while it sent the first file alone, because its batch had been refused."""

    async def story() -> None:
        outbox = services.db.outbox
        item = outbox.enqueue(replace(files(tmp_path, 4), sender=_dead_holder()))
        transact(outbox.progress_in, item, platform_ids=[], draft=note(under_way=0))
        adapter = PretendAdapter(album=3)
        async with delivering(services, adapter):
            await settled(services, item)
        assert shown(adapter) == [
            ("0", "", f"{REPEATED}\n\nLook"), ("1", "2", ""), ("2", "2", ""), ("3", "2", "")
        ]  # fmt: skip

    run(story())


def test_files_of_a_process_that_died_before_it_began_with_them_are_sent_without_a_mark(
    services: Services, tmp_path: Path
) -> None:
    async def story() -> None:
        item = services.db.outbox.enqueue(replace(files(tmp_path, 2), sender=_dead_holder()))
        adapter = PretendAdapter(album=2)
        async with delivering(services, adapter):
            await settled(services, item)
        assert shown(adapter) == [("0", "1", "Look"), ("1", "1", "")]

    run(story())


def test_a_file_that_is_refused_costs_the_others_nothing_and_can_be_sent_again(
    services: Services, tmp_path: Path, clock: Clock
) -> None:
    async def story() -> None:
        adapter = PretendAdapter(album=3)
        adapter.script = [REFUSED, SendResult(success=True), REFUSED, SendResult(success=True)]
        async with delivering(services, adapter) as deliverer:
            item = await deliverer.say(files(tmp_path, 4))
            found = await settled(services, item)
            assert (found.state, found.error) == ("failed", "1 of 4 files could not be sent: 1.txt: wrong file")
            assert [name for name, _, _ in shown(adapter)][:3] == ["0", "2", "3"]
            (told,) = (await adapter.heard(4))[3:]
            assert "1 of 4 files could not be sent: 1.txt: wrong file" in told.text

            assert services.db.outbox.retry(item.id)
            deliverer.wake()
            found = await settled(services, item, "sent")
        assert [name for name, _, _ in shown(adapter)][4:] == ["1"]
        assert found.platform_ids == ("1", "5", "2", "3")

    run(story())


def test_a_file_that_is_gone_costs_the_others_nothing(services: Services, tmp_path: Path) -> None:
    async def story() -> None:
        adapter = PretendAdapter(album=3)
        owed = files(tmp_path, 3)
        (tmp_path / "0.txt").unlink()
        async with delivering(services, adapter) as deliverer:
            found = await settled(services, await deliverer.say(owed))
        assert [name for name, _, _ in shown(adapter)][:2] == ["1", "2"]
        assert found.error == "1 of 3 files could not be sent: 0.txt: the file 0.txt no longer exists"

    run(story())


def test_a_batch_for_a_chat_that_is_closed_to_us_is_not_tried_file_by_file(services: Services, tmp_path: Path) -> None:
    async def story() -> None:
        adapter = PretendAdapter(album=3)
        adapter.script = [BLOCKED]
        async with delivering(services, adapter) as deliverer:
            found = await settled(services, await deliverer.say(files(tmp_path, 3)))
        assert (found.state, adapter.begun) == ("failed", 1)

    run(story())


def test_a_flood_between_two_batches_is_waited_for(services: Services, tmp_path: Path, clock: Clock) -> None:
    async def story() -> None:
        adapter = PretendAdapter(album=2)
        adapter.script = [SendResult(success=True), replace(FLOOD, retry_after=0.05)]
        async with delivering(services, adapter) as deliverer:
            item = await deliverer.say(files(tmp_path, 4))
            await put_off(services, item)
            await asyncio.sleep(0.1)
            clock.advance(10)
            await settled(services, item, "sent")
        assert [(name, text) for name, _, text in shown(adapter)] == [("0", "Look"), ("1", ""), ("2", ""), ("3", "")]

    run(story())


class OneByOne(PretendAdapter):
    """Batches, which the base class sends one by one."""

    def together(self, files: Sequence[OutgoingFile]) -> int:
        return len(files)

    async def send_files(self, chat_id: str, messages: Sequence[Outgoing]) -> Sequence[SendResult]:
        return await super(PretendAdapter, self).send_files(chat_id, messages)


@pytest.mark.parametrize("trouble", [replace(FLOOD, retry_after=0.05), TIMED_OUT, REFUSED])
def test_of_a_batch_that_stops_in_the_middle_what_was_sent_is_not_sent_again(
    services: Services, tmp_path: Path, clock: Clock, trouble: SendResult
) -> None:
    async def story() -> None:
        adapter = OneByOne()
        adapter.script = [SendResult(success=True), trouble]
        async with delivering(services, adapter) as deliverer:
            item = await deliverer.say(files(tmp_path, 4))
            if trouble is not REFUSED:
                assert (await put_off(services, item)).platform_ids == ("1",)
                await asyncio.sleep(0.1)
                clock.advance(10)
            await settled(services, item, "sent")
        again = [("1", ""), ("1", REPEATED)] if trouble is TIMED_OUT else [("1", "")]
        assert [(name, text) for name, _, text in shown(adapter)] == [("0", "Look"), *again, ("2", ""), ("3", "")]

    run(story())


def test_an_adapter_that_fails_to_group_files_sends_them_one_by_one(services: Services, tmp_path: Path) -> None:
    class Clumsy(PretendAdapter):
        def together(self, files: Sequence[OutgoingFile]) -> int:
            raise ValueError(files)

    async def story() -> None:
        adapter = Clumsy()
        async with delivering(services, adapter) as deliverer:
            assert (await settled(services, await deliverer.say(files(tmp_path, 2)))).state == "sent"
        assert shown(adapter) == [("0", "", "Look"), ("1", "", "")]

    run(story())


class Asked(PretendAdapter):
    """A platform that can say which files are there."""

    def __init__(self) -> None:
        super().__init__(album=3)
        self.means = "lookup"

    async def find_sent(self, chat_id: str, message: Outgoing, *, since: float) -> SendResult:
        assert message.key
        for one in self.messages:
            if one.file is not None and one.versions == [message.key]:
                return SendResult(success=True, message_id=one.id)
        return SendResult(success=False, not_sent=True)

    async def send_files(self, chat_id: str, messages: Sequence[Outgoing]) -> Sequence[SendResult]:
        """Only the first one arrives, and no answer."""
        (first, *_) = messages
        assert first.file is not None
        self.messages.append(Shown("900", chat_id, first.text, file=first.file.path, versions=[first.key]))
        return [TIMED_OUT]


def test_where_the_platform_can_be_asked_each_file_of_a_doubtful_batch_is_looked_up(
    services: Services, tmp_path: Path, clock: Clock
) -> None:
    async def story() -> None:
        adapter = Asked()
        async with delivering(services, adapter) as deliverer:
            item = await deliverer.say(files(tmp_path, 3))
            await put_off(services, item)
            clock.advance(10)
            found = await settled(services, item)
        assert [(name, text) for name, _, text in shown(adapter)] == [("0", "Look"), ("1", ""), ("2", "")]
        assert found.platform_ids == ("900", "1", "2")

    run(story())
