"""What is owed goes out through the real adapter to the strict fake: in order, once, and honestly unknown."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gateway.config import Platform
from gateway.outbound.deliverer import Deliverer
from gateway.outbound.send_item import REPEATED, request
from gateway.platforms.base import Outgoing
from gateway.platforms.context import PlatformContext, WebhookRoutes
from gateway.platforms.telegram.adapter import TelegramAdapter
from gateway.services import Services
from hermes_state.people import media_files
from hermes_state.turns.outbox import NewOutboxItem, OutboxItem
from hermes_testing.clock import Clock
from hermes_testing.scenario import Scenario
from hermes_testing.scripted.model import Hold, ScriptedModel, call, say
from hermes_testing.telegram.client import SeenMessage
from hermes_testing.telegram.faults import OFF, Fault, FloodRules
from hermes_testing.telegram.server import FakeTelegram

pytestmark = pytest.mark.slow

Connected = Callable[..., Any]


def owed(services: Services, chat: int, key: str, **payload: Any) -> OutboxItem:
    new_item = NewOutboxItem(
        dedup_key=key, platform="telegram", chat_id=str(chat), payload={"kind": "answer", **payload}
    )
    return services.db.outbox.enqueue(new_item)


@asynccontextmanager
async def delivering(services: Services, adapter: TelegramAdapter) -> AsyncIterator[Deliverer]:
    deliverer = Deliverer(services, {Platform.TELEGRAM: adapter}, poll_seconds=0.02)
    await deliverer.start()
    try:
        yield deliverer
    finally:
        await deliverer.drain(5)


async def states(services: Services, *items: OutboxItem) -> list[str]:
    """What became of the items, once that is settled."""
    async with asyncio.timeout(20):
        while True:
            found = [services.db.outbox.get(item.id) for item in items]
            settled = [row.state for row in found if row is not None]
            if not {"pending", "sending"} & set(settled):
                return settled
            await asyncio.sleep(0.01)


async def as_real_time_does(clock: Clock) -> None:
    while True:
        await asyncio.sleep(0.05)
        clock.advance(0.05)


def test_long_answers_arrive_whole_in_order_and_once(
    services: Services, telegram: FakeTelegram, connected: Connected
) -> None:
    telegram.flood("off")

    async def run() -> None:
        ada = telegram.person("ada")
        chat = ada.say("hi").chat
        texts = [
            f"**Answer {number}**\n\n" + "\n".join(f"line {number}.{line}" for line in range(900)) for number in (1, 2)
        ]
        async with connected() as (adapter, _), delivering(services, adapter):
            items = [owed(services, chat, f"answer:{number}", text=text) for number, text in enumerate(texts)]
            assert await states(services, *items) == ["sent", "sent"]
        shown = "\n".join(seen.text for seen in ada.replies())
        assert shown.split() == " ".join(texts).replace("*", "").split()
        assert all(seen.edits == (len(seen.text) > 200) for seen in ada.replies()), "the first sentence, then all of it"
        sent = [call.parameters["text"] for call in telegram.journal("sendMessage")]
        assert all(len(text) <= 200 for text in sent)

    asyncio.run(run())


def test_a_flood_is_waited_for_and_nothing_comes_twice(
    services: Services, telegram: FakeTelegram, connected: Connected, clock: Clock
) -> None:
    telegram.flood(FloodRules(chat_per_second=2.0, chat_burst=1, group_per_minute=0, all_per_second=0))

    async def run() -> None:
        ada = telegram.person("ada")
        chat = ada.say("hi").chat
        async with connected() as (adapter, _), delivering(services, adapter):
            items = [owed(services, chat, f"answer:{number}", text=f"number {number}") for number in range(3)]
            going = asyncio.create_task(as_real_time_does(clock))
            assert await states(services, *items) == ["sent"] * 3
            going.cancel()
        assert [seen.text for seen in ada.replies()] == ["number 0", "number 1", "number 2"]
        assert telegram.facts()["impatient"] == 0

    asyncio.run(run())


def test_what_follows_waits_for_the_pause_that_another_message_of_the_chat_met(
    telegram: FakeTelegram, connected: Connected
) -> None:
    """The edit of a draft does not go out inside the pause of an answer; another chat is not held up."""

    async def run() -> None:
        ada, bob = (telegram.person(name) for name in ("ada", "bob"))
        chat, other = (str(person.say("hi").chat) for person in (ada, bob))
        async with connected() as (adapter, _):
            draft = await adapter.send(chat, Outgoing(text="begun"))
            answer = partial(adapter.send, chat, Outgoing(text="the answer"))
            edit = partial(adapter.edit_message, chat, str(draft.message_id), "begun, and more")
            telegram.faults(Fault("flood", method="sendMessage", times=1, seconds=2))
            assert (await request(adapter, chat, answer, seconds=10)).error_kind == "rate_limited"
            early = await request(adapter, chat, edit, seconds=10)
            assert early.not_sent and early.retry_after is not None and 0 < early.retry_after <= 2
            assert not telegram.journal("editMessageText"), "it was not even tried"
            there = partial(adapter.send, other, Outgoing(text="hello"))
            assert (await request(adapter, other, there, seconds=10)).success
            await asyncio.sleep(2.1)
            assert (await request(adapter, chat, edit, seconds=10)).success

    asyncio.run(run())


def test_a_short_answer_that_may_have_arrived_is_sent_again_with_a_mark(
    services: Services, telegram: FakeTelegram, connected: Connected, clock: Clock
) -> None:
    async def run() -> None:
        ada = telegram.person("ada")
        chat = ada.say("hi").chat
        going = asyncio.create_task(as_real_time_does(clock))
        async with connected() as (adapter, _), delivering(services, adapter):
            telegram.faults(Fault("drop_after", method="sendMessage", times=1))
            assert await states(services, owed(services, chat, "answer:1", text="the answer")) == ["sent"]
        going.cancel()
        assert [seen.text for seen in ada.replies()] == ["the answer", f"{REPEATED}\n\nthe answer"]

    asyncio.run(run())


@pytest.mark.parametrize("kind", ["drop_before", "drop_after"])
@pytest.mark.parametrize("method", ["sendMessage", "editMessageText"])
def test_a_long_answer_is_there_once_whatever_breaks(
    services: Services, telegram: FakeTelegram, connected: Connected, clock: Clock, kind: Any, method: str
) -> None:
    text = "The first sentence. " + "And a further one. " * 400

    async def run() -> None:
        ada = telegram.person("ada")
        chat = ada.say("hi").chat
        going = asyncio.create_task(as_real_time_does(clock))
        async with connected() as (adapter, _), delivering(services, adapter):
            telegram.faults(Fault(kind, method=method, times=2))
            assert await states(services, owed(services, chat, "answer:1", text=text)) == ["sent"]
        going.cancel()
        seen = [one.text for one in ada.replies()]
        strays = 2 if (kind, method) == ("drop_after", "sendMessage") else 0
        assert seen[:strays] == ["The first sentence."] * strays
        assert " ".join(seen[strays:]).split() == text.split()

    asyncio.run(run())


@pytest.mark.parametrize("status", [500, 502])
def test_a_server_error_of_telegrams_counts_as_unknown(
    services: Services, telegram: FakeTelegram, connected: Connected, clock: Clock, status: int
) -> None:
    async def run() -> None:
        ada = telegram.person("ada")
        chat = ada.say("hi").chat
        going = asyncio.create_task(as_real_time_does(clock))
        async with connected() as (adapter, _), delivering(services, adapter):
            telegram.faults(Fault("error", method="sendMessage", times=1, status=status))
            assert await states(services, owed(services, chat, "answer:1", text="the answer")) == ["sent"]
        going.cancel()
        assert [seen.text for seen in ada.replies()] == [f"{REPEATED}\n\nthe answer"]

    asyncio.run(run())


def test_who_blocked_the_bot_gets_nothing_and_nobody_tries_again(
    services: Services, telegram: FakeTelegram, connected: Connected
) -> None:
    async def run() -> None:
        ada = telegram.person("ada")
        chat = ada.say("hi").chat
        ada.block()
        async with connected() as (adapter, _), delivering(services, adapter):
            assert await states(services, owed(services, chat, "answer:1", text="hello?")) == ["failed"]
        assert len(telegram.journal("sendMessage")) == 1

    asyncio.run(run())


@pytest.mark.parametrize("down", [False, True], ids=["the gateway runs", "the gateway is down"])
def test_after_unblocking_the_bot_a_person_gets_the_answer_once(down: bool) -> None:
    held = Hold()
    model = ScriptedModel(say("The answer.", hold=held), say("Welcome back."))
    fake = FakeTelegram(flood=OFF)
    with Scenario(fake, model, config={"auto_title": False, "streaming": {"enabled": False}}) as scene:
        ada = scene.owner("ada")
        scene.start()
        asked = ada.say("a question")
        scene.wait(lambda: held.is_reached, "the model writes")
        ada.block()
        held.release()
        scene.wait(lambda: "failed" in scene.hermes("outbox", "list", "--stuck"), "the answer is given up")
        if down:
            scene.stop()
        ada.block(False)
        if down:
            scene.start()
        assert ada.expect("The answer.", after=asked.message).edits == 0
        ada.say("I am back")
        ada.expect("Welcome back.")
        ada.block()
        ada.say("/start")  # which unblocks it again
        ada.expect("Hello")
        assert [seen.text for seen in ada.replies(after=asked.message)][:2] == ["The answer.", "Welcome back."]
        assert sum("The answer." in seen.text for seen in ada.replies()) == 1


def test_an_answer_to_a_closed_topic_arrives_when_the_topic_is_open_again(
    services: Services, telegram: FakeTelegram, connected: Connected
) -> None:
    async def run() -> None:
        ada = telegram.person("ada")
        forum = telegram.group("Club", ada, forum=True)
        topic = telegram.topic(forum, "Kyoto")
        telegram.call("close_topic", chat=forum, thread=topic)
        async with connected() as (adapter, _), delivering(services, adapter) as deliverer:
            adapter.context = PlatformContext(services.db, adapter, WebhookRoutes(), deliverer.reachable_again)
            item = owed(services, forum, "answer:1", text="The answer.", thread_id=str(topic))
            assert await states(services, item) == ["failed"]
            telegram.call("reopen_topic", name="ada", chat=forum, thread=topic)
            await telegram.wait_async(lambda: ada.replies(chat=forum), "it arrives")
            assert await states(services, item) == ["sent"]
            assert [seen.text for seen in ada.replies(chat=forum)] == ["The answer."]

    asyncio.run(run())


def test_back_in_a_group_the_bot_sends_what_the_group_missed(
    services: Services, telegram: FakeTelegram, connected: Connected
) -> None:
    async def run() -> None:
        ada = telegram.person("ada")
        group = telegram.group("Club", ada, admin=True)
        telegram.call("expel_bot", name="ada", chat=group)
        async with connected() as (adapter, _), delivering(services, adapter) as deliverer:
            adapter.context = PlatformContext(services.db, adapter, WebhookRoutes(), deliverer.reachable_again)
            items = [owed(services, group, f"answer:{number}", text=f"number {number}") for number in range(2)]
            assert await states(services, *items) == ["failed"] * 2
            telegram.call("let_bot_in", name="ada", chat=group)
            await telegram.wait_async(lambda: len(ada.replies(chat=group)) == 2, "both arrive")
            assert await states(services, *items) == ["sent"] * 2
            assert [seen.text for seen in ada.replies(chat=group)] == ["number 0", "number 1"]
            update = telegram.updates()[-1]["body"]
            telegram.inject(update)  # it comes again
            await asyncio.sleep(0.3)
            assert len(ada.replies(chat=group)) == 2

    asyncio.run(run())


def test_a_store_that_is_away_when_the_bot_is_unblocked_is_asked_again(
    services: Services, telegram: FakeTelegram, connected: Connected, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.platforms.telegram.polling.NOT_TAKEN_PAUSE", 0.05)
    failures = iter([OSError("the disk is full")] * 2)

    async def run() -> None:
        ada = telegram.person("ada")
        chat = ada.say("hi").chat
        ada.block()
        async with connected() as (adapter, _), delivering(services, adapter) as deliverer:

            async def reachable(*chat: str) -> int:
                if (failure := next(failures, None)) is not None:
                    raise failure
                return await deliverer.reachable_again(*chat)

            adapter.context = PlatformContext(services.db, adapter, WebhookRoutes(), reachable)
            item = owed(services, chat, "answer:1", text="the answer")
            assert await states(services, item) == ["failed"]
            ada.block(False)
            await telegram.wait_async(lambda: bool(ada.replies()), "it arrives")

    asyncio.run(run())


def test_a_file_arrives_under_the_name_it_had(services: Services, telegram: FakeTelegram, connected: Connected) -> None:
    async def run() -> None:
        ada = telegram.person("ada")
        chat = ada.say("hi").chat
        draft = media_files.draft(services.home)
        draft.write_bytes(b"a,b\n")
        kept = media_files.keep(services.home, draft, ending=".csv", most=100)
        file = {"path": str(kept.path), "name": "report.csv", "caption": "The figures"}
        async with connected() as (adapter, _), delivering(services, adapter):
            assert await states(services, owed(services, chat, "file:1", text="", files=[file])) == ["sent"]
        (seen,) = ada.replies()
        assert seen.file is not None
        assert (seen.file["name"], seen.text) == ("report.csv", "The figures")

    asyncio.run(run())


PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 32


def on_disk(folder: Path, **contents: bytes) -> list[dict[str, str]]:
    """Files of an item: `a_png=PNG` is a.png; the first one has a caption."""
    made = []
    for name, content in contents.items():
        path = folder / name.replace("_", ".")
        path.write_bytes(content)
        made.append({"path": str(path), "caption": "" if made else "The pictures"})
    return made


def albums(seen: list[SeenMessage]) -> list[list[str]]:
    """The names of the files by album; a file that came alone has one of its own."""
    found: dict[str, list[str]] = {}
    for one in seen:
        assert one.file is not None
        found.setdefault(one.album or f"alone {one.id}", []).append(one.file["name"])
    return list(found.values())


def test_pictures_and_documents_go_out_as_albums_of_their_kind(
    services: Services, telegram: FakeTelegram, connected: Connected, tmp_path: Path
) -> None:
    telegram.flood("off")

    async def run() -> None:
        ada = telegram.person("ada")
        chat = ada.say("hi").chat
        files = on_disk(tmp_path, a_png=PNG, b_jpg=PNG, c_csv=b"1", d_txt=b"2", e_png=PNG)
        files += on_disk(tmp_path, **{f"{number}_png": PNG for number in range(11)})
        async with connected() as (adapter, _), delivering(services, adapter):
            item = owed(services, chat, "file:1", text="", files=files)
            assert await states(services, item) == ["sent"]
        seen = ada.replies()
        pictures = ["e.png", *(f"{number}.png" for number in range(9))]
        assert albums(seen) == [["a.png", "b.jpg"], ["c.csv", "d.txt"], pictures, ["9.png", "10.png"]]
        found = services.db.outbox.get(item.id)
        assert found is not None and list(found.platform_ids) == [str(one.id) for one in seen]
        assert [one.text for one in seen if one.text] == ["The pictures"] * 2
        assert len(telegram.journal("sendMediaGroup")) == 4 and not telegram.journal("sendPhoto")

    asyncio.run(run())


def test_what_the_model_sends_in_one_call_arrives_as_one_album_also_after_a_kill() -> None:
    names = ["a.csv", "b.csv", "c.csv"]
    written = [call("write_file", {"path": name, "content": name}) for name in names]
    sent = call("send_file", {"path": names[0], "more": names[1:], "caption": "The figures"})
    model, fake = ScriptedModel(say(calls=[*written, sent]), say("There they are.")), FakeTelegram(flood=OFF)
    with Scenario(fake, model, config={"auto_title": False}) as scene:
        ada = scene.owner("ada")
        scene.start()
        fake.faults(Fault("late", method="sendMediaGroup", times=1, seconds=60))
        ada.say("send me the figures")
        scene.wait(lambda: len(ada.replies()) == 3, "the album is there, and no answer of Telegram's")
        scene.kill()
        scene.start()
        ada.expect("There they are.")
    seen = [one for one in ada.replies() if one.file]
    assert albums(seen) == [names, names], "nobody knew whether it had arrived"
    assert [one.text for one in seen] == ["The figures", "", "", f"{REPEATED}\n\nThe figures", "", ""]


@pytest.mark.parametrize("bad", ["picture", "gone"])
def test_one_bad_file_of_an_album_does_not_lose_the_others(
    services: Services, telegram: FakeTelegram, connected: Connected, tmp_path: Path, bad: str
) -> None:
    telegram.flood("off")

    async def run() -> None:
        ada = telegram.person("ada")
        chat = ada.say("hi").chat
        files = on_disk(tmp_path, a_png=PNG, b_png=b"no picture", c_png=PNG)
        if bad == "gone":
            (tmp_path / "b.png").unlink()
        async with connected() as (adapter, _), delivering(services, adapter):
            item = owed(services, chat, "file:1", text="", files=files)
            assert await states(services, item) == ["sent" if bad == "picture" else "failed"]
        kinds = [(one.file["name"], one.file["kind"]) for one in ada.replies() if one.file]
        others = [("a.png", "photo"), ("c.png", "photo")]
        assert kinds == ([others[0], ("b.png", "document"), others[1]] if bad == "picture" else others)
        found = services.db.outbox.get(item.id)
        assert found is not None
        assert found.error == (None if bad == "picture" else
                               "1 of 3 files could not be sent: b.png: the file b.png no longer exists")  # fmt: skip

    asyncio.run(run())


@pytest.mark.parametrize(
    ("fault", "copies", "marks"),
    [
        (Fault("drop_before", method="sendMediaGroup", times=1, skip=1), 1, 1),
        (Fault("drop_after", method="sendMediaGroup", times=1, skip=1), 2, 1),
        (Fault("error", method="sendMediaGroup", times=1, skip=1, status=502), 1, 1),
        (Fault("flood", method="sendMediaGroup", times=1, skip=1, seconds=1), 1, 0),
    ],
    ids=lambda value: value.kind if isinstance(value, Fault) else "",
)
def test_an_album_that_meets_trouble_is_repeated_as_such_and_the_one_before_it_is_not(
    services: Services,
    telegram: FakeTelegram,
    connected: Connected,
    clock: Clock,
    tmp_path: Path,
    fault: Fault,
    copies: int,
    marks: int,
) -> None:
    telegram.flood("off")

    async def run() -> None:
        ada = telegram.person("ada")
        chat = ada.say("hi").chat
        files = on_disk(tmp_path, a_png=PNG, b_png=PNG, c_csv=b"1", d_csv=b"2")
        going = asyncio.create_task(as_real_time_does(clock))
        async with connected() as (adapter, _), delivering(services, adapter):
            telegram.faults(fault)
            assert await states(services, owed(services, chat, "file:1", text="", files=files)) == ["sent"]
        going.cancel()
        seen = ada.replies()
        assert albums(seen) == [["a.png", "b.png"], *[["c.csv", "d.csv"]] * copies]
        assert [one.text for one in seen if REPEATED in one.text] == [REPEATED] * marks
        assert telegram.facts()["impatient"] == 0

    asyncio.run(run())


def test_an_album_for_a_group_that_became_a_supergroup_arrives_there(
    services: Services, telegram: FakeTelegram, connected: Connected, tmp_path: Path
) -> None:
    async def run() -> None:
        ada = telegram.person("ada")
        group = telegram.group("Club", ada, kind="group", admin=True)
        new = telegram.call("upgrade", name="ada", chat=group)
        async with connected() as (adapter, _), delivering(services, adapter):
            item = owed(services, group, "file:1", text="", files=on_disk(tmp_path, a_png=PNG, b_png=PNG))
            assert await states(services, item) == ["sent"]
        found = services.db.outbox.get(item.id)
        assert found is not None
        assert [f"{new}/{one.id}" for one in ada.replies(chat=new)] == list(found.platform_ids)

    asyncio.run(run())


@pytest.mark.parametrize("text", ["A short answer.", "The first sentence. " + "And a further one. " * 400])
def test_an_answer_for_a_group_that_became_a_supergroup_arrives_there(
    services: Services, telegram: FakeTelegram, connected: Connected, text: str
) -> None:
    telegram.flood("off")

    async def run() -> None:
        ada = telegram.person("ada")
        group = telegram.group("Club", ada, kind="group", admin=True)
        asked = ada.say("a question", chat=group)
        new = telegram.call("upgrade", name="ada", chat=group)
        async with connected() as (adapter, _), delivering(services, adapter):
            item = owed(services, group, "answer:1", text=text, reply_to=str(asked.message))
            assert await states(services, item) == ["sent"]
            sent = services.db.outbox.get(item.id)
            assert sent is not None
            shown = ada.replies(chat=new)
            assert [f"{new}/{seen.id}" for seen in shown] == list(sent.platform_ids)
            assert " ".join(" ".join(seen.text for seen in shown).split()) == text.strip()
            assert not any(seen.reply_to for seen in shown) and not ada.replies(chat=group)

    asyncio.run(run())


def test_a_message_of_a_group_and_one_of_its_supergroup_may_have_the_same_number(
    telegram: FakeTelegram, connected: Connected
) -> None:
    """A supergroup counts anew, and the process that sent a message may be another than the one that edits it."""

    async def run() -> None:
        ada = telegram.person("ada")
        group = telegram.group("Club", ada, kind="group", admin=True)
        ada.say("a question", chat=group)
        new = telegram.call("upgrade", name="ada", chat=group)
        async with connected() as (adapter, _):
            sent = await adapter.send(str(group), Outgoing(text="begun"))
            (seen,) = ada.replies(chat=new)
            assert sent.message_id is not None
            old = await adapter.edit_message(str(group), str(seen.id), "an older answer")
            assert old.error_kind == "not_found" and not await adapter.delete_message(str(group), str(seen.id))
        async with connected() as (adapter, _):
            assert (await adapter.edit_message(str(group), sent.message_id, "finished")).success
            assert [one.text for one in ada.replies(chat=new)] == ["finished"]
            assert await adapter.delete_message(str(group), sent.message_id)
            assert not ada.replies(chat=new)

    asyncio.run(run())
