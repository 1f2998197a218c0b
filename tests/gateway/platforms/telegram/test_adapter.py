"""What goes out: pieces, edits, buttons, files, and the exact word for what became of each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import JSONResponse, Response
from telegram.error import NetworkError

from gateway.config import Platform, PlatformConfig
from gateway.outbound import send_item
from gateway.outbound.send_item import judge
from gateway.platforms import registry
from gateway.platforms.base import Answer, Button, CannotFetch, Outgoing, OutgoingFile
from gateway.platforms.telegram import buttons
from gateway.platforms.telegram.adapter import TelegramAdapter
from gateway.platforms.telegram.client import BotClient
from gateway.platforms.telegram.errors import as_result
from hermes_testing.telegram.faults import STRICT, Fault
from hermes_testing.telegram.server import FakeTelegram

pytestmark = pytest.mark.slow

Connected = Callable[..., Any]
PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360000002000100"
    "05fe02fea7356a5d0000000049454e44ae426082"
)


def test_an_answer_is_sent_rendered_and_edited(telegram: FakeTelegram, connected: Connected) -> None:
    async def run() -> None:
        ada = telegram.person("ada")
        said = ada.say("hi")
        async with connected() as (adapter, _):
            (piece,) = adapter.pieces("**Hello** <you> & `me`")
            sent = await adapter.send(str(said.chat), Outgoing(text=piece, reply_to=str(said.message)))
            assert sent.success
            (seen,) = ada.replies()
            assert (seen.text, seen.reply_to) == ("Hello <you> & me", said.message)
            assert {entity["type"] for entity in seen.entities} == {"bold", "code"}
            edited = await adapter.edit_message(str(said.chat), sent.message_id, "now *plain*", finalize=True)
            assert edited.success
            assert ada.replies()[0].text == "now *plain*"
            again = await adapter.edit_message(str(said.chat), sent.message_id, "now *plain*")
            assert again.success, "not modified is as good as modified"
            assert again.message_id == sent.message_id
            assert ada.replies()[0].edits == 1

    asyncio.run(run())


def test_a_reply_to_a_message_that_is_gone_is_sent_all_the_same(telegram: FakeTelegram, connected: Connected) -> None:
    async def run() -> None:
        ada = telegram.person("ada")
        said = ada.say("hi")
        ada.unsay(said.message)
        async with connected() as (adapter, _):
            assert (await adapter.send(str(said.chat), Outgoing(text="still here", reply_to=str(said.message)))).success

    asyncio.run(run())


def test_html_that_telegram_does_not_understand_goes_out_as_plain_text(
    telegram: FakeTelegram, connected: Connected
) -> None:
    async def run() -> None:
        ada = telegram.person("ada")
        said = ada.say("hi")
        async with connected() as (adapter, _):
            sent = await adapter.send(str(said.chat), Outgoing(text="if a < b: <unknown> <b>x</b>"))
            assert sent.success
            assert ada.replies()[0].text == "if a < b: <unknown> x"
            edited = await adapter.edit_message(str(said.chat), sent.message_id, "c < d")
            assert edited.success
            assert ada.replies()[0].text == "c < d"
            assert (await adapter.send(str(said.chat), Outgoing(text="<b>no</b> marks", plain=True))).success
            assert (ada.replies()[1].text, ada.replies()[1].entities) == ("no marks", [])

    asyncio.run(run())


def test_what_a_no_of_telegram_means(telegram: FakeTelegram, connected: Connected) -> None:
    async def run() -> None:
        ada, bob = telegram.person("ada"), telegram.person("bob")
        said, other = ada.say("hi"), bob.say("hi")
        bob.block()
        async with connected() as (adapter, _):
            blocked = await adapter.send(str(other.chat), Outgoing(text="hello?"))
            assert (blocked.error_kind, blocked.not_sent, blocked.retryable) == ("forbidden", True, False)
            nowhere = await adapter.send("987654", Outgoing(text="hello?"))
            assert (nowhere.error_kind, nowhere.not_sent) == ("not_found", True)
            gone = await adapter.edit_message(str(said.chat), "4711", "hello?")
            assert (gone.error_kind, gone.not_sent) == ("not_found", True)
            too_long = await adapter.send(str(said.chat), Outgoing(text="x" * 5000))
            assert (too_long.error_kind, too_long.not_sent) == ("too_long", True)
            not_a_number = await adapter.edit_message(str(said.chat), "../1", "hello?")
            assert not_a_number.error_kind == "not_found"

    asyncio.run(run())


def test_a_flood_is_told_with_its_pause(telegram: FakeTelegram, connected: Connected) -> None:
    async def run() -> None:
        ada = telegram.person("ada")
        said = ada.say("hi")
        telegram.flood(STRICT)
        async with connected() as (adapter, _):
            results = [await adapter.send(str(said.chat), Outgoing(text=f"number {number}")) for number in range(3)]
            assert results[0].success
            flooded = [result for result in results if not result.success]
            assert flooded
            assert all(result.error_kind == "rate_limited" and result.not_sent for result in flooded)
            assert all((result.retry_after or 0) >= 1 for result in flooded)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("fault", "arrived"),
    [
        (Fault("drop_after", method="sendMessage", times=1), True),
        (Fault("drop_before", method="sendMessage", times=1), False),
        (Fault("error", method="sendMessage", times=1, status=502), False),
    ],
)
def test_a_lost_answer_is_never_called_a_failure(
    telegram: FakeTelegram, connected: Connected, fault: Fault, arrived: bool
) -> None:
    async def run() -> None:
        ada = telegram.person("ada")
        said = ada.say("hi")
        async with connected() as (adapter, _):
            telegram.faults(fault)
            result = await adapter.send(str(said.chat), Outgoing(text="hello"))
            assert (result.success, result.error_kind, result.not_sent) == (False, "transient", False)
            assert bool(ada.replies()) is arrived
            broke = "the connection to Telegram broke before it answered"
            assert fault.kind == "error" or result.error == broke, "hermes outbox list shows it to people"

    asyncio.run(run())


@pytest.mark.parametrize("status", [301, 400, 401, 403, 404, 407, 408, 451])
def test_a_page_of_a_proxy_is_a_refusal_that_says_nothing_about_the_chat(
    telegram: FakeTelegram, connected: Connected, status: int
) -> None:
    async def run() -> None:
        said = telegram.person("ada").say("hi")
        async with connected() as (adapter, _):
            telegram.faults(Fault("error", method="sendMessage", times=1, status=status))
            result = await adapter.send(str(said.chat), Outgoing(text="hello"))
            assert result.error == f"HTTP {status}, which is no answer of Telegram's"
            assert judge(result, repeatable=False).state == "later"

    asyncio.run(run())


@pytest.mark.parametrize(
    ("code", "answer", "state"),
    [
        (200, {"ok": False, "error_code": 403, "description": "Forbidden: bot was blocked by the user"}, "failed"),
        (200, {"ok": False, "error_code": 429, "description": "Too Many Requests"}, "later"),
        (200, {"ok": False, "error_code": 500, "description": "Internal Server Error"}, "unknown"),
        (429, {"ok": False, "error_code": 429, "description": "Too Many Requests"}, "later"),
        (429, None, "later"),
        (413, {"ok": False, "error_code": 413, "description": "Request Entity Too Large"}, "failed"),
        (413, None, "failed"),
        (418, {"ok": False, "error_code": 418, "description": "I'm a teapot"}, "failed"),
        (500, {"ok": False, "error_code": 500, "description": "Internal Server Error"}, "unknown"),
        (503, None, "unknown"),
        (200, None, "unknown"),
    ],
)
def test_every_4xx_is_a_refusal_and_every_5xx_leaves_it_open(
    telegram: FakeTelegram, connected: Connected, monkeypatch: pytest.MonkeyPatch, code: int, answer: Any, state: str
) -> None:
    """`None` is the page of a proxy; a server of one's own may put its refusal into a 200."""

    async def run() -> None:
        said = telegram.person("ada").say("hi")
        async with connected() as (adapter, _):
            page = Response("<html>") if answer is None else JSONResponse(answer)
            page.status_code = code
            monkeypatch.setattr("hermes_testing.telegram.server._broken", lambda status: page)
            telegram.faults(Fault("error", method="sendMessage", times=1))
            assert judge(await adapter.send(str(said.chat), Outgoing(text="hello")), repeatable=False).state == state

    asyncio.run(run())


def test_a_proxy_that_makes_no_connection_has_passed_on_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    async def run() -> None:
        server = await asyncio.start_server(refuse, "127.0.0.1", 0)
        proxy = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        monkeypatch.setenv("HTTPS_PROXY", proxy)
        line = await BotClient.open("1:a", {"base_url": "https://telegram.invalid/bot"})
        try:
            with pytest.raises(NetworkError) as caught:
                await line.bot.send_message(1, "hello")
        finally:
            await line.close()
            server.close()
        assert as_result(caught.value, "1:a", "telegram").not_sent

    asyncio.run(run())


def test_a_group_is_edited_less_often_than_telegram_would_refuse() -> None:
    adapter = registry.make(Platform.TELEGRAM, PlatformConfig(token="1:a"))
    assert 60 / adapter.edit_pause("-100123") < 20
    assert 1 <= adapter.edit_pause("42") < 2


def test_nothing_is_sent_while_disconnected(telegram: FakeTelegram, connected: Connected) -> None:
    async def run() -> None:
        async with connected() as (adapter, _):
            await adapter.disconnect()
            await adapter.disconnect()
            result = await adapter.send("1", Outgoing(text="hello"))
            assert (result.success, result.not_sent, result.retryable) == (False, True, True)
            assert adapter.health().problem == "disconnected"

    asyncio.run(run())


# -- buttons -----------------------------------------------------------------------------------------------------------


def test_a_pressed_button_arrives_as_an_answer_of_whoever_pressed(telegram: FakeTelegram, connected: Connected) -> None:
    async def run() -> None:
        ada, mallory = telegram.person("ada"), telegram.person("mallory")
        group = telegram.group("Team", ada, mallory)
        async with connected() as (adapter, inbox):
            rows = (
                (Button(label="Once", answer=Answer(kind="approval", id="ask_0123456789ab", choice="once")),),
                (Button(label="Deny", answer=Answer(kind="approval", id="ask_0123456789ab", choice="deny")),),
            )
            assert (await adapter.send(str(group), Outgoing(text="Run <code>rm</code>?", buttons=rows))).success
            mallory.press("Once", chat=group)
            await telegram.wait_async(lambda: len(inbox.events) == 1, "the press")
            (event,) = inbox.events
            assert event.answer == Answer(kind="approval", id="ask_0123456789ab", choice="once")
            assert event.source.user_id == str(mallory.id)
            assert event.source.chat_id == str(group)
            assert event.text == ""
            await telegram.wait_async(lambda: bool(telegram.journal("answerCallbackQuery")), "the toast")

    asyncio.run(run())


def test_a_forged_button_starts_nothing(telegram: FakeTelegram, connected: Connected) -> None:
    seal = buttons.Seal(telegram.token)
    answer = Answer(kind="approval", id="ask_0123456789ab", choice="always")
    data = seal.write("1", answer)
    assert data is not None
    assert seal.read("1", data) == answer
    assert seal.read("2", data) is None, "written for another chat"
    assert buttons.Seal("another token").read("1", data) is None
    for forged in ("", "a", "a|b|c|d", data.replace("always", "once"), data + "x", "é|" * 4, "a|é|always|x"):
        assert seal.read("1", forged) is None
    assert seal.write("1", Answer(kind="clarify", id="q", choice="x" * 60)) is None
    assert seal.write("1", Answer(kind="clarify", id="q", choice="a|b")) is None

    async def run() -> None:
        ada = telegram.person("ada")
        said = ada.say("hi")
        async with connected() as (_, inbox):
            await telegram.wait_async(lambda: len(inbox.events) == 1, "the message")
            message = {"message_id": said.message, "date": 1, "chat": {"id": said.chat, "type": "private"}}
            sender = {"id": ada.id, "is_bot": False, "first_name": "Ada"}
            query = {"id": "77", "from": sender, "chat_instance": "1", "message": message, "data": "a|x|always|ask_1"}
            telegram.inject({"callback_query": query})
            await telegram.wait_async(lambda: telegram.facts()["pending"] == 0, "the update to be taken")
            assert len(inbox.events) == 1

    asyncio.run(run())


def test_answers_that_do_not_fit_a_button_are_left_to_words(telegram: FakeTelegram, connected: Connected) -> None:
    async def run() -> None:
        ada = telegram.person("ada")
        said = ada.say("hi")
        async with connected() as (adapter, _):
            rows = ((Button(label="Long", answer=Answer(kind="clarify", id="q1", choice="y" * 100)),),)
            assert (await adapter.send(str(said.chat), Outgoing(text="Which one?", buttons=rows))).success
            assert ada.replies()[0].labels == []

    asyncio.run(run())


# -- files -------------------------------------------------------------------------------------------------------------


def test_files_go_out_as_pictures_or_documents(telegram: FakeTelegram, connected: Connected, tmp_path: Path) -> None:
    async def run() -> None:
        ada = telegram.person("ada")
        said = ada.say("hi")
        picture, notes = tmp_path / "0f3a.png", tmp_path / "notes.txt"
        picture.write_bytes(PNG)
        notes.write_text("remember the milk")
        async with connected() as (adapter, _):
            chat = str(said.chat)
            assert (
                await adapter.send_file(chat, Outgoing(text="A dot", file=OutgoingFile(path=picture, name="dot.png")))
            ).success
            assert (await adapter.send_file(chat, Outgoing(file=OutgoingFile(path=notes)))).success
            first, second = ada.replies()
            assert first.file is not None
            assert second.file is not None
            assert (first.file["kind"], first.text) == ("photo", "A dot")
            assert (second.file["kind"], second.file["name"]) == ("document", "notes.txt")

    asyncio.run(run())


def test_what_cannot_be_sent_says_why(telegram: FakeTelegram, connected: Connected, tmp_path: Path) -> None:
    async def run() -> None:
        said = telegram.person("ada").say("hi")
        link, large = tmp_path / "link.txt", tmp_path / "large.bin"
        link.symlink_to("/etc/passwd")
        with large.open("wb") as file:
            file.truncate(51 * 1024 * 1024)
        async with connected() as (adapter, _):
            for path in (link, large, tmp_path / "missing", tmp_path):
                result = await adapter.send_file(str(said.chat), Outgoing(file=OutgoingFile(path=path)))
                assert (result.success, result.not_sent) == (False, True)
                assert path.name in (result.error or "")

    asyncio.run(run())


def test_a_file_is_fetched_only_when_asked_for_and_within_its_limit(
    telegram: FakeTelegram, connected: Connected, tmp_path: Path
) -> None:
    async def run() -> None:
        ada = telegram.person("ada")
        ada.document(b"a,b\n1,2\n", filename="t.csv", caption="the table")
        async with connected() as (adapter, inbox):
            await telegram.wait_async(lambda: len(inbox.events) == 1, "the document")
            (attachment,) = inbox.events[0].attachments
            assert telegram.journal("getFile") == []
            target = tmp_path / "got"
            await adapter.fetch(attachment, target, limit=100)
            assert target.read_bytes() == b"a,b\n1,2\n"
            assert target.stat().st_mode & 0o777 == 0o600
            with pytest.raises(CannotFetch, match="at most 3 bytes are accepted"):
                await adapter.fetch(attachment, tmp_path / "other", limit=3)

    asyncio.run(run())


def test_typing_is_shown(telegram: FakeTelegram, connected: Connected) -> None:
    async def run() -> None:
        ada = telegram.person("ada")
        said = ada.say("hi")
        async with connected() as (adapter, _):
            await adapter.send_typing(str(said.chat))
            assert ada.typing()
            await adapter.send_typing("987654")

    asyncio.run(run())


@pytest.mark.parametrize("refused", ["sendChatAction", "deleteMessage", "answerCallbackQuery"])
def test_a_pause_that_telegram_asked_for_holds_for_everything_in_the_chat(
    telegram: FakeTelegram, connected: Connected, refused: str
) -> None:
    async def run() -> None:
        ada = telegram.person("ada")
        chat = str(ada.say("hi").chat)
        async with connected() as (adapter, _):
            answer = Answer(kind="approval", id="ask_0123456789ab", choice="once")
            buttons = ((Button(label="Once", answer=answer),),)
            assert (await adapter.send(chat, Outgoing(text="Run it?", buttons=buttons))).success

            async def everything() -> None:
                await adapter.send_typing(chat)
                await adapter.delete_message(chat, "4711")
                ada.press("Once")
                await telegram.wait_async(lambda: telegram.facts()["pending"] == 0, "the press is taken")
                await send_item.request(adapter, chat, partial(adapter.send, chat, Outgoing(text="more")), seconds=5)

            telegram.faults(Fault("flood", method=refused, times=1, seconds=60))
            await everything()
            await telegram.wait_async(lambda: adapter.flood.left(chat) > 55, "the pause")
            before = len(telegram.journal())
            await everything()
            await asyncio.sleep(0.1)
            assert {call.method for call in telegram.journal(after=before)} <= {"getUpdates"}

    asyncio.run(run())


def _busy(adapter: Any) -> list[Any]:
    pool = adapter._line.bot.request._client._transport._pool
    return [connection for connection in pool.connections if not connection.is_idle()]


def test_calls_that_are_given_up_cost_no_connection(telegram: FakeTelegram, connected: Connected) -> None:
    """A sign of typing is given up whenever a turn ends, at any moment of its request."""

    async def run() -> None:
        said = telegram.person("ada").say("hi")
        async with connected() as (adapter, _):
            for wait in [0.0, 0.0005, 0.001, 0.002, 0.003, 0.004, 0.006, 0.008, 0.01, 0.015] * 25:
                sign = asyncio.create_task(adapter.send_typing(str(said.chat)))
                await asyncio.sleep(wait)
                sign.cancel()
                await asyncio.wait([sign])
            for _ in range(200):
                if len(_busy(adapter)) <= 1:  # the one that waits for updates
                    break
                await asyncio.sleep(0.05)
            assert len(_busy(adapter)) <= 1
            result = await adapter.send(str(said.chat), Outgoing(text="still here"))
            assert result.success

    asyncio.run(run())


def test_a_toast_that_hangs_holds_up_nobody(
    telegram: FakeTelegram, connected: Connected, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hangs(self: TelegramAdapter, query: object, text: str) -> None:
        await asyncio.Event().wait()

    async def run() -> None:
        ada, bob = telegram.person("ada"), telegram.person("bob")
        monkeypatch.setattr(TelegramAdapter, "_toast", hangs)
        async with connected() as (adapter, inbox):
            ada.say("hi")
            answer = Answer(kind="approval", id="ask_0123456789ab", choice="once")
            asked = Outgoing(text="Run it?", buttons=((Button(label="Once", answer=answer),),))
            assert (await adapter.send(str(ada.id), asked)).success
            ada.press("Once")
            bob.say("hello")
            await telegram.wait_async(lambda: "hello" in inbox.texts, "the message of another chat")
            foreign = {"id": "7", "from": {"id": bob.id, "is_bot": False, "first_name": "Bob"}, "data": "not ours"}
            message = {"message_id": 1, "date": 1, "chat": {"id": bob.id, "type": "private"}}
            telegram.inject({"callback_query": {**foreign, "chat_instance": "1", "message": message}})
            bob.say("still there?")
            await telegram.wait_async(lambda: "still there?" in inbox.texts, "what follows a button that is not ours")

    asyncio.run(run())
