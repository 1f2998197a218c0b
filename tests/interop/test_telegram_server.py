"""The fake Telegram over real HTTP, driven by plain python-telegram-bot."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import httpx2
import pytest
import telegram
from telegram import (
    InlineKeyboardButton,
    InlineKeyboardMarkup,
    InputMediaAudio,
    InputMediaDocument,
    InputMediaPhoto,
    InputMediaVideo,
    ReplyParameters,
)
from telegram.error import BadRequest, ChatMigrated, Conflict, Forbidden, InvalidToken, TelegramError

from hermes_testing.clock import Clock
from hermes_testing.telegram.client import FakePerson
from hermes_testing.telegram.faults import FloodRules
from hermes_testing.telegram.server import FakeTelegram

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 32
Talk = Callable[[telegram.Bot], Coroutine[Any, Any, Any]]


@pytest.fixture
def fake() -> Iterator[FakeTelegram]:
    with FakeTelegram() as server:
        yield server


@pytest.fixture
def ada(fake: FakeTelegram) -> FakePerson:
    """Somebody who has written to the bot."""
    person = fake.person("ada")
    person.say("/start")
    return person


def run(fake: FakeTelegram, talk: Talk, token: str | None = None) -> Any:
    async def whole() -> Any:
        bot = telegram.Bot(token or fake.token, base_url=fake.base_url, base_file_url=fake.base_file_url)
        async with bot:
            return await talk(bot)

    return asyncio.run(whole())


def refused(fake: FakeTelegram, talk: Talk) -> str:
    """Telegram's words, without python-telegram-bot's polish: from the journal."""
    with pytest.raises(TelegramError):
        run(fake, talk)
    return fake.journal()[-1].description


def ask(fake: FakeTelegram, method: str, *, token: str | None = None, **parameters: Any) -> httpx2.Response:
    return httpx2.post(f"{fake.base_url}{token or fake.token}/{method}", json=parameters, trust_env=False)


# -- tokens, methods, bodies ---------------------------------------------------------------------------------------


def test_a_bot_finds_itself(fake: FakeTelegram) -> None:
    async def me(bot: telegram.Bot) -> telegram.User:
        return await bot.get_me()

    found = run(fake, me)
    assert (found.id, found.is_bot, found.username) == (123456, True, "hermes_demo_bot")
    assert found.can_read_all_group_messages is False


def test_a_wrong_token_is_refused(fake: FakeTelegram) -> None:
    with pytest.raises(InvalidToken):
        run(fake, telegram.Bot.get_me, token="123456:wrong")
    answer = ask(fake, "getMe", token="123456:wrong")
    assert (answer.status_code, answer.json()["description"]) == (401, "Unauthorized")
    answer = ask(fake, "getMe", token="no-token")
    assert (answer.status_code, answer.json()) == (404, {"ok": False, "error_code": 404, "description": "Not Found"})


def test_an_unknown_method_is_refused_and_names_are_not_case_sensitive(fake: FakeTelegram) -> None:
    answer = ask(fake, "sendTelepathy")
    assert (answer.status_code, answer.json()["description"]) == (404, "Not Found: method not found")
    assert ask(fake, "GETME", nonsense="is ignored").json()["ok"] is True


def test_every_way_of_passing_parameters(fake: FakeTelegram, ada: FakePerson) -> None:
    url = f"{fake.base_url}{fake.token}/sendMessage"
    values = {"chat_id": str(ada.id), "text": "naïve 京都"}
    with httpx2.Client(trust_env=False) as http:
        answers = [
            http.get(url, params=values),
            http.post(url, data=values),
            http.post(url, json={"chat_id": ada.id, "text": "naïve 京都"}),
            http.post(url, files={"chat_id": (None, str(ada.id)), "text": (None, "naïve 京都")}),
        ]
        assert [answer.json()["result"]["text"] for answer in answers] == ["naïve 京都"] * 4
        broken = http.post(url, content=b"{", headers={"content-type": "application/json"})
        assert broken.json()["description"] == "Bad Request: can't parse JSON object"
        assert http.put(url).status_code == 405


# -- updates -------------------------------------------------------------------------------------------------------


def test_an_update_comes_again_until_an_offset_acknowledges_it(fake: FakeTelegram, ada: FakePerson) -> None:
    ada.say("two")

    async def poll(bot: telegram.Bot) -> None:
        first = await bot.get_updates(limit=1)
        assert [update.message.text for update in first if update.message] == ["/start"]
        again = await bot.get_updates()
        assert [update.message.text for update in again if update.message] == ["/start", "two"]
        rest = await bot.get_updates(offset=first[0].update_id + 1)
        assert [update.message.text for update in rest if update.message] == ["two"]
        assert len(await bot.get_updates(offset=-1)) == 1
        assert await bot.get_updates(offset=again[-1].update_id + 1) == ()

    run(fake, poll)
    told = fake.updates()
    assert [update["delivered"] for update in told] == [2, 3]
    assert all(update["acknowledged_at"] is not None for update in told)


def test_a_long_poll_ends_when_somebody_writes(fake: FakeTelegram, ada: FakePerson) -> None:
    async def poll(bot: telegram.Bot) -> float:
        (first,) = await bot.get_updates()
        began = time.monotonic()
        asyncio.get_running_loop().call_later(0.2, ada.say, "late")
        (update,) = await bot.get_updates(offset=first.update_id + 1, timeout=5)
        assert update.message is not None
        assert update.message.text == "late"
        return time.monotonic() - began

    assert 0.15 < run(fake, poll) < 2


def test_a_long_poll_ends_empty_after_its_time(fake: FakeTelegram) -> None:
    began = time.monotonic()
    assert ask(fake, "getUpdates", timeout=1).json()["result"] == []
    assert 0.9 < time.monotonic() - began < 3


def test_of_two_pollers_the_one_that_waits_is_sent_away(fake: FakeTelegram) -> None:
    async def two(bot: telegram.Bot) -> None:
        first = asyncio.create_task(bot.get_updates(timeout=5))
        await fake.wait_async(lambda: bool(fake.journal("getUpdates")), "the first poll")
        async with telegram.Bot(fake.token, base_url=fake.base_url) as other:
            assert await other.get_updates(timeout=0) == ()
        with pytest.raises(Conflict):
            await first

    run(fake, two)
    waited = fake.journal("getUpdates")[0]
    assert waited.description == (
        "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running"
    )


def test_a_poller_that_went_away_no_longer_counts(fake: FakeTelegram, ada: FakePerson) -> None:
    url = f"{fake.base_url}{fake.token}/getUpdates"
    ask(fake, "getUpdates", offset=10_000)
    with pytest.raises(httpx2.ReadTimeout):
        httpx2.get(url, params={"timeout": "30"}, timeout=0.3, trust_env=False)
    left = ada.say("hello")
    assert [one["update_id"] for one in ask(fake, "getUpdates").json()["result"]] == [left.update]


def test_only_the_kinds_that_were_asked_for(fake: FakeTelegram, ada: FakePerson) -> None:
    assert _kinds(fake) == ["message"]
    assert ask(fake, "getUpdates", offset=10_000, allowed_updates=["edited_message", "my_chat_member"]).json()["ok"]
    said = ada.say("not asked for")
    assert said.update is None
    ada.edit(said.message, "asked for")
    ada.block()
    assert _kinds(fake) == ["edited_message", "my_chat_member"]
    assert ask(fake, "getUpdates", offset=10_000, allowed_updates=[]).json()["ok"]
    ada.say("the usual ones again")
    assert _kinds(fake) == ["my_chat_member", "message"], "who writes unblocks the bot first"


def _kinds(fake: FakeTelegram) -> list[str]:
    return [kind for update in ask(fake, "getUpdates").json()["result"] for kind in update if kind != "update_id"]


def test_an_update_is_kept_for_a_day() -> None:
    clock = Clock()
    with FakeTelegram(now=clock) as fake:
        fake.person("ada").say("old")
        clock.advance(23 * 3_600)
        fake.person("ada").say("new")
        clock.advance(2 * 3_600)
        assert [update["message"]["text"] for update in ask(fake, "getUpdates").json()["result"]] == ["new"]


def test_a_webhook_and_polling_exclude_each_other(fake: FakeTelegram) -> None:
    assert refused(fake, lambda bot: bot.set_webhook("http://example.org")) == (
        "Bad Request: bad webhook: An HTTPS URL must be provided for webhook"
    )
    assert ask(fake, "setWebhook", url="https://example.org/hook").json()["result"] is True
    assert ask(fake, "getWebhookInfo").json()["result"]["url"] == "https://example.org/hook"
    answer = ask(fake, "getUpdates")
    assert (answer.status_code, answer.json()["description"]) == (
        409,
        "Conflict: can't use getUpdates method while webhook is active; use deleteWebhook to delete the webhook first",
    )
    assert ask(fake, "deleteWebhook").json()["result"] is True
    assert ask(fake, "getUpdates").json()["ok"] is True


# -- sending -------------------------------------------------------------------------------------------------------


def test_what_the_bot_says_is_what_ada_sees(fake: FakeTelegram, ada: FakePerson) -> None:
    async def send(bot: telegram.Bot) -> telegram.Message:
        return await bot.send_message(ada.id, "<b>Hello</b>, 京都 \N{PILE OF POO} <i>Ada</i>", parse_mode="HTML")

    message = run(fake, send)
    assert message.text == "Hello, 京都 \N{PILE OF POO} Ada"
    assert message.parse_entities() == dict(zip(message.entities, ("Hello", "Ada"), strict=True))
    seen = ada.expect("Hello")
    assert (seen.id, seen.text, seen.bot, seen.sender, seen.edits) == (
        message.message_id,
        message.text,
        True,
        "Hermes",
        0,
    )


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"text": ""}, "message text is empty"),
        ({"text": " \n\t "}, "text must be non-empty"),
        ({"text": "<b></b>", "parse_mode": "HTML"}, "text must be non-empty"),
        ({"text": "x" * 4097}, "message is too long"),
        ({"text": "\N{PILE OF POO}" * 2049}, "message is too long"),
        ({"text": "x", "parse_mode": "XML"}, "unsupported parse_mode"),
        ({"text": "a <br> b", "parse_mode": "HTML"},
         "can't parse entities: Unsupported start tag \"br\" at byte offset 2"),
        ({"text": "<b>a", "parse_mode": "HTML"},
         "can't parse entities: Can't find end tag corresponding to start tag \"b\""),
        ({"text": "1.", "parse_mode": "MarkdownV2"}, "this fake parses HTML only, because that is what Hermes sends"),
        ({"text": "x", "chat_id": ""}, "chat_id is empty"),
        ({"text": "x", "chat_id": 999}, "chat not found"),
        ({"text": "x", "message_thread_id": 5}, "message thread not found"),
        ({"text": "x", "reply_parameters": {"message_id": 999}}, "message to be replied not found"),
        ({"text": "x", "reply_markup": "{"}, "can't parse reply keyboard markup JSON object"),
        ({"text": "x", "reply_markup": {"inline_keyboard": [[{"callback_data": "a"}]]}},
         "can't parse inline keyboard button: can't find field \"text\""),
        ({"text": "x", "reply_markup": {"inline_keyboard": [[{"text": "a"}]]}},
         "can't parse inline keyboard button: Text buttons are unallowed in the inline keyboard"),
        ({"text": "x", "reply_markup": {"inline_keyboard": [[{"text": "a", "callback_data": ""}]]}},
         "BUTTON_DATA_INVALID"),
        ({"text": "x", "reply_markup": {"inline_keyboard": [[{"text": "a", "callback_data": "é" * 33}]]}},
         "BUTTON_DATA_INVALID"),
        ({"text": "x", "entities": [{"type": "bold", "offset": 0, "length": 1}]},
         "this fake takes formats as HTML only, because that is what Hermes sends"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_refuses_to_send(fake: FakeTelegram, ada: FakePerson, parameters: dict[str, Any], words: str) -> None:
    answer = ask(fake, "sendMessage", **({"chat_id": ada.id} | parameters))
    assert answer.json() == {"ok": False, "error_code": 400, "description": f"Bad Request: {words}"}
    assert answer.status_code == 400
    assert ada.replies() == []


def test_the_longest_text_counts_after_parsing(fake: FakeTelegram, ada: FakePerson) -> None:
    longest = "\N{PILE OF POO}" * 2048
    assert ask(fake, "sendMessage", chat_id=ada.id, text=longest).json()["ok"] is True
    marked = f"<b>{'&lt;' * 4096}</b>"
    assert (
        ask(fake, "sendMessage", chat_id=ada.id, text=marked, parse_mode="HTML").json()["result"]["text"] == "<" * 4096
    )


def test_a_reply_names_what_it_answers(fake: FakeTelegram, ada: FakePerson) -> None:
    asked = ada.say("what?")

    async def reply(bot: telegram.Bot) -> telegram.Message:
        gone = ReplyParameters(999, allow_sending_without_reply=True)
        assert (await bot.send_message(ada.id, "to nothing", reply_parameters=gone)).reply_to_message is None
        return await bot.send_message(ada.id, "this", reply_parameters=ReplyParameters(asked.message))

    replied = run(fake, reply).reply_to_message
    assert replied is not None
    assert replied.text == "what?"


def test_who_may_not_be_written_to(fake: FakeTelegram, ada: FakePerson) -> None:
    stranger, robot = fake.person("stranger"), fake.person("robot", is_bot=True)

    async def send(bot: telegram.Bot, to: int) -> None:
        with pytest.raises(Forbidden):
            await bot.send_message(to, "hello")

    def words(to: int) -> str:
        run(fake, lambda bot: send(bot, to))
        return fake.journal()[-1].description

    assert words(stranger.id) == "Forbidden: bot can't initiate conversation with a user"
    assert words(robot.id) == "Forbidden: bot can't send messages to bots"
    ada.block()
    assert words(ada.id) == "Forbidden: bot was blocked by the user"
    ada.block(False)
    assert ask(fake, "sendMessage", chat_id=ada.id, text="again").json()["ok"] is True
    fake.call("deactivate", name="ada")
    assert words(ada.id) == "Forbidden: user is deactivated"
    group = fake.group("Trip", fake.person("bob"))
    fake.call("expel_bot", name="bob", chat=group)
    assert words(group) == "Forbidden: bot was kicked from the supergroup chat"


# -- editing and deleting ------------------------------------------------------------------------------------------


def test_an_edit_replaces_the_text_and_an_equal_one_is_refused(fake: FakeTelegram, ada: FakePerson) -> None:
    keyboard = InlineKeyboardMarkup([[InlineKeyboardButton("stop", callback_data="stop")]])

    async def edit(bot: telegram.Bot) -> None:
        sent = await bot.send_message(ada.id, "one", reply_markup=keyboard)
        await bot.edit_message_text("one <b>two</b>", ada.id, sent.message_id, parse_mode="HTML", reply_markup=keyboard)
        with pytest.raises(BadRequest, match="not modified"):
            await bot.edit_message_text(
                "one <strong>two</strong>", ada.id, sent.message_id, parse_mode="HTML", reply_markup=keyboard
            )
        await bot.edit_message_text("one <b>two</b>", ada.id, sent.message_id, parse_mode="HTML")  # without buttons

    run(fake, edit)
    assert fake.journal("editMessageText")[1].description == (
        "Bad Request: message is not modified: specified new message content and reply markup are exactly the same as "
        "a current content and reply markup of the message"
    )
    (seen,) = ada.replies()
    assert (seen.text, seen.edits, seen.versions, seen.buttons) == ("one two", 1, ["one"], [])


def test_refuses_to_edit(fake: FakeTelegram, ada: FakePerson) -> None:
    asked = ada.say("mine")

    async def photo(bot: telegram.Bot) -> int:
        return (await bot.send_photo(ada.id, PNG)).message_id

    picture = run(fake, photo)
    text = ask(fake, "sendMessage", chat_id=ada.id, text="text").json()["result"]["message_id"]

    def words(method: str, **parameters: Any) -> str:
        return str(ask(fake, method, chat_id=ada.id, **parameters).json()["description"])

    edit = "editMessageText"
    assert words(edit, message_id=999, text="x") == "Bad Request: message to edit not found"
    assert words(edit, text="x") == "Bad Request: message identifier is not specified"
    assert words(edit, message_id=asked.message, text="x") == "Bad Request: message can't be edited"
    assert words(edit, message_id=picture, text="x") == "Bad Request: there is no text in the message to edit"
    assert words(edit, message_id=text, text="x" * 4097) == "Bad Request: MESSAGE_TOO_LONG"


def test_deleting(fake: FakeTelegram, ada: FakePerson) -> None:
    sent = ask(fake, "sendMessage", chat_id=ada.id, text="soon gone").json()["result"]["message_id"]
    assert ask(fake, "deleteMessage", chat_id=ada.id, message_id=sent).json() == {"ok": True, "result": True}
    assert ada.replies() == []
    answer = ask(fake, "deleteMessage", chat_id=ada.id, message_id=sent)
    assert answer.json()["description"] == "Bad Request: message to delete not found"
    group = fake.group("Trip", ada)
    hers = ada.say("@hermes_demo_bot hi", chat=group)
    answer = ask(fake, "deleteMessage", chat_id=group, message_id=hers.message)
    assert answer.json()["description"] == "Bad Request: message can't be deleted"


def test_nothing_is_deleted_after_two_days() -> None:
    clock = Clock()
    with FakeTelegram(now=clock) as fake:
        said = fake.person("ada").say("hello")
        clock.advance(49 * 3_600)
        answer = ask(fake, "deleteMessage", chat_id=said.chat, message_id=said.message)
        assert answer.json()["description"] == "Bad Request: message can't be deleted"


# -- typing, buttons, commands -------------------------------------------------------------------------------------


def test_typing_is_shown_until_the_message_comes() -> None:
    clock = Clock()
    with FakeTelegram(now=clock) as fake:
        ada = fake.person("ada")
        ada.say("hi")
        assert ask(fake, "sendChatAction", chat_id=ada.id, action="juggling").json()["description"] == (
            "Bad Request: wrong parameter action in request"
        )
        ask(fake, "sendChatAction", chat_id=ada.id, action="typing")
        assert ada.typing()
        clock.advance(6)
        assert not ada.typing()
        ask(fake, "sendChatAction", chat_id=ada.id, action="typing")
        ask(fake, "sendMessage", chat_id=ada.id, text="here")
        assert not ada.typing()


def test_a_button_is_pressed_and_answered_once() -> None:
    clock = Clock()
    buttons = {"inline_keyboard": [[{"text": "Yes", "callback_data": "y"}, {"text": "No", "callback_data": "n"}]]}
    with FakeTelegram(now=clock) as fake:
        ada = fake.person("ada")
        ada.say("hi")
        ask(fake, "sendMessage", chat_id=ada.id, text="really?", reply_markup=buttons)
        press = ada.press("No")
        query = ask(fake, "getUpdates").json()["result"][-1]["callback_query"]
        assert (query["id"], query["data"], query["from"]["id"]) == (press, "n", ada.id)
        assert query["message"]["text"] == "really?"
        assert ask(fake, "answerCallbackQuery", callback_query_id=press, text="as you wish").json()["result"] is True
        assert ada.toasts() == ["as you wish"]
        too_old = "Bad Request: query is too old and response timeout expired or query ID is invalid"
        assert ask(fake, "answerCallbackQuery", callback_query_id=press).json()["description"] == too_old
        late = ada.press("Yes")
        clock.advance(120)
        assert ask(fake, "answerCallbackQuery", callback_query_id=late).json()["description"] == too_old
        with pytest.raises(AssertionError, match="no button 'Perhaps'"):
            ada.press("Perhaps")


def test_commands(fake: FakeTelegram) -> None:
    def words(*commands: dict[str, str]) -> str:
        return str(ask(fake, "setMyCommands", commands=list(commands)).json().get("description", "done"))

    assert words({"command": "new", "description": "Begin again"}) == "done"
    assert fake.world.commands == [{"command": "new", "description": "Begin again"}]
    assert words({"command": "New!", "description": "x"}) == "Bad Request: BOT_COMMAND_INVALID"
    assert words({"command": "new", "description": ""}) == "Bad Request: BOT_COMMAND_DESCRIPTION_INVALID"
    assert (
        words(*[{"command": f"c{n}", "description": "x"} for n in range(101)]) == "Bad Request: BOT_COMMANDS_TOO_MUCH"
    )


def test_chats(fake: FakeTelegram, ada: FakePerson) -> None:
    group = fake.group("Trip", ada)

    async def look(bot: telegram.Bot) -> None:
        private, room = await bot.get_chat(ada.id), await bot.get_chat(group)
        assert (private.type, private.first_name, room.type, room.title) == ("private", "Ada", "supergroup", "Trip")

    run(fake, look)


# -- files ---------------------------------------------------------------------------------------------------------


def test_files_go_both_ways(fake: FakeTelegram, ada: FakePerson) -> None:
    said = ada.document(b"some text", filename="notes.txt", caption="read *this*")

    async def both(bot: telegram.Bot) -> None:
        update = (await bot.get_updates())[-1]
        assert update.message is not None
        assert update.message.document is not None
        assert (update.message.message_id, update.message.caption) == (said.message, "read *this*")
        assert (update.message.document.file_name, update.message.document.mime_type) == ("notes.txt", "text/plain")
        file = await bot.get_file(update.message.document.file_id)
        assert bytes(await file.download_as_bytearray()) == b"some text"
        again = await bot.send_document(ada.id, update.message.document.file_id)
        assert again.document is not None
        assert again.document.file_name == "notes.txt"
        sent = await bot.send_photo(ada.id, PNG, caption="<i>a</i> picture", parse_mode="HTML")
        assert (sent.caption, len(sent.photo), sent.caption_entities[0].type) == ("a picture", 1, "italic")

    run(fake, both)
    kinds = [seen.file["kind"] for seen in ada.replies() if seen.file]
    assert kinds == ["document", "photo"]


def test_refuses_files(fake: FakeTelegram, ada: FakePerson) -> None:
    def send(part: str, content: bytes, **values: str) -> str:
        method = {"photo": "sendPhoto", "document": "sendDocument"}[part]
        answer = httpx2.post(
            f"{fake.base_url}{fake.token}/{method}", data={"chat_id": str(ada.id), **values},
            files={part: ("file.bin", content)}, trust_env=False, timeout=30,
        )  # fmt: skip
        return str(answer.json().get("description", "done"))

    assert send("document", b"") == "Bad Request: file must be non-empty"
    assert send("document", b"x", caption="x" * 1025) == "Bad Request: message caption is too long"
    assert send("photo", b"no picture") == "Bad Request: IMAGE_PROCESS_FAILED"
    assert send("photo", PNG + b"\0" * (10 << 20)).endswith("too big for a photo; the maximum size is 10485760 bytes")
    assert send("document", b"\0" * (51 << 20)) == "Request Entity Too Large"
    assert send("document", b"\0" * (21 << 20)) == "done"
    large = ada.look()["messages"][-1]["file"]["path"]
    assert (
        ask(fake, "sendDocument", chat_id=ada.id).json()["description"].endswith("there is no document in the request")
    )
    file_id = next(file.id for file in fake.world.files.values() if file.path == large)
    assert ask(fake, "getFile", file_id=file_id).json()["description"] == "Bad Request: file is too big"
    assert ask(fake, "getFile", file_id="nonsense").json()["description"].startswith("Bad Request: wrong file_id")
    missing = httpx2.get(f"{fake.base_file_url}{fake.token}/documents/none", trust_env=False)
    assert (missing.status_code, missing.json()["description"]) == (404, "Not Found")
    stolen = httpx2.get(f"{fake.base_file_url}123456:wrong/{large}", trust_env=False)
    assert stolen.status_code == 401


def test_an_album_is_a_message_for_each_item(fake: FakeTelegram, ada: FakePerson) -> None:
    fake.flood("off")
    room = fake.group("Trip", ada, forum=True)
    topic = fake.topic(room, "Pictures")

    async def send(bot: telegram.Bot) -> None:
        mixed = [
            InputMediaPhoto(PNG, caption="<b>All</b> of it", parse_mode="HTML"),
            InputMediaVideo(b"film", filename="film.mp4"),
            InputMediaPhoto(PNG),
        ]
        sent = await bot.send_media_group(room, mixed, message_thread_id=topic)
        assert len({one.media_group_id for one in sent}) == 1 and sent[0].media_group_id
        assert [one.message_id for one in sent] == list(range(sent[0].message_id, sent[0].message_id + 3))
        assert [(bool(one.photo), bool(one.video)) for one in sent] == [(True, False), (False, True), (True, False)]
        assert (sent[0].caption, sent[0].caption_entities[0].type, sent[1].caption) == ("All of it", "bold", None)
        assert {one.message_thread_id for one in sent} == {topic}
        again = await bot.send_media_group(ada.id, [InputMediaPhoto(sent[0].photo[0]), InputMediaPhoto(PNG)])
        assert again[0].media_group_id != sent[0].media_group_id
        for make in (InputMediaDocument, InputMediaAudio):
            sent = await bot.send_media_group(ada.id, [make(b"x", filename=f"{number}.bin") for number in range(2)])
            names = [getattr(one, "document" if make is InputMediaDocument else "audio").file_name for one in sent]
            assert names == ["0.bin", "1.bin"]
        (caption, *_) = await bot.send_media_group(ada.id, [InputMediaPhoto(PNG)] * 2, caption="for all")
        assert caption.caption == "for all"

    run(fake, send)
    kinds = [(seen.file or {}).get("kind") for seen in ada.replies(chat=room)]
    assert kinds == ["photo", "video", "photo"] and len({seen.album for seen in ada.replies(chat=room)}) == 1


def test_refuses_albums_as_a_whole(fake: FakeTelegram, ada: FakePerson) -> None:
    def send(*items: dict[str, Any], **parts: bytes) -> str:
        answer = httpx2.post(
            f"{fake.base_url}{fake.token}/sendMediaGroup",
            data={"chat_id": str(ada.id), "media": json.dumps(items)},
            files={name: (f"{name}.bin", content) for name, content in parts.items()}, trust_env=False, timeout=30,
        )  # fmt: skip
        return str(answer.json().get("description", "done")).removeprefix("Bad Request: ")

    photo, file = {"type": "photo", "media": "attach://p"}, {"type": "document", "media": "attach://d"}
    audio = {"type": "audio", "media": "attach://d"}
    assert ask(fake, "sendMediaGroup", chat_id=ada.id).json()["description"].endswith('parameter "media" is required')
    assert send() == "there are no messages to send"
    assert send(photo, p=PNG) == "an album must include 2-10 items"
    assert send(*[photo] * 11, p=PNG) == "too many messages to send as an album"
    assert send(photo, file, p=PNG, d=b"x") == "document can't be mixed with other media types"
    assert send(audio, photo, p=PNG, d=b"x") == "audio can't be mixed with other media types"
    assert send(photo, photo) == "can't parse InputMedia: media not found"
    assert send(photo, {"type": "voice", "media": "attach://p"}, p=PNG).startswith("can't parse InputMedia: type")
    assert send(photo, {**photo, "caption": "x" * 1025}, p=PNG) == "message caption is too long"
    bad = {"type": "photo", "media": "attach://d"}
    failed = 'failed to send message #2 with the error message "{}"'
    assert send(photo, bad, p=PNG, d=b"no picture") == failed.format("IMAGE_PROCESS_FAILED")
    wrong = failed.format("wrong remote file identifier specified: Wrong string length")
    assert send(photo, {"type": "photo", "media": "none"}, p=PNG) == wrong
    ada.block()
    assert send(photo, photo, p=PNG) == "Forbidden: bot was blocked by the user"
    assert not ada.replies()


def test_each_message_of_an_album_counts_for_the_flood(fake: FakeTelegram, ada: FakePerson) -> None:
    fake.flood(FloodRules(chat_per_second=1.0, chat_burst=1, group_per_minute=0, all_per_second=0))

    async def send(bot: telegram.Bot) -> None:
        await bot.send_media_group(ada.id, [InputMediaPhoto(PNG)] * 3)

    run(fake, send)
    refused = ask(fake, "sendMessage", chat_id=ada.id, text="more").json()
    assert (refused["error_code"], refused["parameters"]) == (429, {"retry_after": 3})


# -- groups --------------------------------------------------------------------------------------------------------


def test_in_a_group_the_bot_hears_what_is_meant_for_it(fake: FakeTelegram, ada: FakePerson) -> None:
    group = fake.group("Trip", ada)
    assert ada.say("just talking", chat=group).update is None
    assert ada.say("hey @Hermes_demo_bot", chat=group).update is not None
    assert ada.say("/help", chat=group).update is not None
    sent = ask(fake, "sendMessage", chat_id=group, text="hello all").json()["result"]["message_id"]
    assert ada.say("nice", chat=group, reply_to=sent).update is not None
    fake.settings(reads_all=True)
    assert ada.say("just talking", chat=group).update is not None
    robot = fake.person("robot", is_bot=True)
    room = fake.group("Robots", ada, robot)
    assert robot.say("@hermes_demo_bot hi", chat=room).update is None
    fake.settings(hears_bots=True)
    assert robot.say("@hermes_demo_bot hi", chat=room).update is not None


def test_a_group_that_became_a_supergroup_has_another_id(fake: FakeTelegram, ada: FakePerson) -> None:
    group = fake.group("Trip", ada, kind="group")
    new = fake.call("upgrade", name="ada", chat=group)

    async def send(bot: telegram.Bot) -> None:
        with pytest.raises(ChatMigrated) as caught:
            await bot.send_message(group, "hello")
        assert caught.value.new_chat_id == new
        await bot.send_message(new, "hello")
        told = [update.message for update in await bot.get_updates() if update.message]
        assert [(one.migrate_to_chat_id, one.migrate_from_chat_id) for one in told[-2:]] == [(new, None), (None, group)]

    run(fake, send)
    assert [seen.text for seen in ada.replies(chat=new)] == ["hello"]


def test_topics(fake: FakeTelegram, ada: FakePerson) -> None:
    forum = fake.group("Forum", ada, forum=True)
    topic = fake.topic(forum, "Kyoto")
    ada.say("/help", chat=forum, thread=topic)
    message = ask(fake, "getUpdates").json()["result"][-1]["message"]
    assert (message["message_thread_id"], message["is_topic_message"], message["chat"]["is_forum"]) == (
        topic,
        True,
        True,
    )
    sent = ask(fake, "sendMessage", chat_id=forum, text="here", message_thread_id=topic).json()["result"]
    assert sent["message_thread_id"] == topic
    fake.call("close_topic", chat=forum, thread=topic)
    closed = ask(fake, "sendMessage", chat_id=forum, text="here", message_thread_id=topic).json()
    assert closed["description"] == "Bad Request: TOPIC_CLOSED"
    fake.call("reopen_topic", name="ada", chat=forum, thread=topic)

    async def read(bot: telegram.Bot) -> None:
        told = (await bot.get_updates())[-1].message
        assert told is not None and told.forum_topic_reopened is not None
        assert (told.message_thread_id, told.is_topic_message) == (topic, True)
        await bot.send_message(forum, "here again", message_thread_id=topic)

    run(fake, read)


def test_message_ids_count_for_each_supergroup_alone(fake: FakeTelegram, ada: FakePerson) -> None:
    first, second = fake.group("A", ada), fake.group("B", ada)
    assert ada.say("/a", chat=first).message == ada.say("/b", chat=second).message == 1
    assert ada.say("more").message == 2


# -- the control endpoint ------------------------------------------------------------------------------------------


def test_the_control_endpoint_needs_the_token_and_says_what_is_wrong(fake: FakeTelegram) -> None:
    def post(verb: str, token: str, body: bytes) -> httpx2.Response:
        return httpx2.post(f"{fake.address}/control/bot{token}/{verb}", content=body, trust_env=False)

    assert post("say", "123456:wrong", b"{}").status_code == 401
    for body, words in (
        (b'{"name": "nobody", "text": "x"}', "nobody is called 'nobody'"),
        (b"[]", "mapping"),
        (b"{", "Expecting"),
        (b'{"nonsense": 1}', "nonsense"),
    ):
        answer = post("say", fake.token, body)
        assert answer.status_code == 400
        assert words in answer.json()["description"]
    assert "no verb" in post("fly", fake.token, b"{}").json()["description"]
    assert json.loads(post("person", fake.token, b'{"name": "eve"}').content)["result"]["first_name"] == "Eve"
