"""The Telegram adapter: one bot, updates come by long polling, messages go out by `sendMessage` and similar methods.

It holds nothing that a restart could lose: updates wait at Telegram until their message is in the inbox, and every
message to send is in the outbox. A `SendResult` reports every error of a send (`errors.py` classifies them). Text is
sent as Telegram's HTML, made by `render.py`; a piece that Telegram cannot parse is sent once more as plain text. Links
have no preview, because fetching one would tell a stranger's server the address that the model wrote.
"""

from __future__ import annotations

import asyncio
import html
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gateway.platforms.base import (
    Attachment,
    BasePlatformAdapter,
    Button,
    CannotFetch,
    Health,
    Outgoing,
    OutgoingFile,
    SendResult,
    first_sentence,
)
from gateway.platforms.telegram import buttons as sealed
from gateway.platforms.telegram import errors, files, polling, render, updates

if TYPE_CHECKING:
    from telegram import InlineKeyboardMarkup

    from gateway.platforms.base import CursorMove
    from gateway.platforms.telegram.client import BotClient

log = logging.getLogger("hermes.gateway")

_STOP_SECONDS = 5.0
_TOAST_SECONDS = 5.0
_NOT_CONNECTED = SendResult(
    success=False, error="Telegram is not connected", error_kind="transient", retryable=True, not_sent=True
)
_ENDED = "asking Telegram for messages has ended by a defect; restart the gateway"
_LABEL_CHARS, _COMMAND_CHARS, _DESCRIPTION_CHARS = 64, 32, 256
_IN = "/"
_GROUP_EDIT_SECONDS = 4.0  # a group takes some 20 messages a minute, edits among them
_TOASTS = {"refused": "This is not for you to decide.", "ignored": "Nothing was done."}


class TelegramAdapter(BasePlatformAdapter):
    """The adapter of one Telegram bot."""

    MAX_MESSAGE_LENGTH = render.LIMIT
    connect_pause = 15.0
    supports_edit = True
    edit_seconds = 1.2
    """Telegram takes about one message or edit a second in a chat."""
    supports_typing = True
    supports_buttons = True

    _line: BotClient | None = None
    _poller: polling.Poller | None = None
    _polling: asyncio.Task[None] | None = None
    _reading: updates.ReadingContext | None = None
    _seal: sealed.Seal | None = None
    _trouble = ""
    _is_noted = False
    """Whether the store knows which bot this is."""

    def __init__(self, *facts: Any) -> None:
        super().__init__(*facts)
        self._beside: set[asyncio.Task[None]] = set()

    # -- life --------------------------------------------------------------------------------------------

    async def connect(self, *, is_reconnect: bool = False) -> bool:
        """Open the connection, read the bot's identity, and start polling."""
        await self.disconnect()
        self._is_noted = False
        token = (self.config.token or "").strip()
        if not token:
            self._trouble = f"no token is set; run hermes gateway setup {self.platform.value}"
            return False
        from gateway.platforms.telegram.client import BotClient

        line = await BotClient.open(token, self.config.extra)
        from telegram.error import InvalidToken, TelegramError  # there by now: opening the line imports it in a thread

        try:
            me = await self._who(line)
        except TelegramError as error:
            await line.close()
            refused = isinstance(error, InvalidToken)
            self._trouble = errors.refused(self.platform.value) if refused else errors.unreachable(error, line)
            return False
        self._trouble = ""
        self._line, self._seal = line, sealed.Seal(token)
        self._reading = updates.ReadingContext(
            me=me,
            source=self.build_source,
            answer=self._seal.read,
            require_mention=self.config.extra.get("require_mention") is not False,
        )
        cursor = self.context.cursor(str(me.id))  # each bot counts anew
        self._poller = polling.Poller(line, self._take, cursor=cursor, name=self.platform.value)
        self._polling = asyncio.create_task(self._poller.run(), name="telegram-polling")
        self._start_beside(self._publish_commands(line))
        log.info("connected to Telegram as @%s", me.username, extra={"action": "telegram.connected"})
        return True

    @staticmethod
    async def _who(line: BotClient) -> updates.Me:
        user = await line.bot.get_me()
        return updates.Me(user.id, user.username or "", user.full_name)

    async def disconnect(self) -> None:
        task, self._polling = self._polling, None
        for work in self._beside:
            work.cancel()
        line, self._line = self._line, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task}, timeout=_STOP_SECONDS)
        if line is not None:
            await line.close()

    def health(self) -> Health:
        if self._poller is None or self._trouble:
            return Health(problem=self._trouble or "not connected yet")
        found = self._poller.health
        if self._polling is None:
            return Health(last_contact=found.last_contact, problem="disconnected")
        if self._polling.done() and not found.problem:
            return Health(last_contact=found.last_contact, problem=_ENDED)
        return found

    async def _take(self, update: dict[str, Any], cursor: CursorMove | None) -> None:
        """Store one update in the inbox. When this returns, the update may be acknowledged."""
        assert self._reading is not None
        if not self._is_noted:  # here and not in `connect`: a store that is away for a moment ends no connection
            await self.context.connected_as(str(self._reading.me.id))
            self._is_noted = True
        if (chat := updates.open_again(update)) is not None:
            await self.context.reachable_again(chat)
        if (moved := updates.moved(update)) is not None:
            await self.context.chat_moved(*moved)
        event = updates.read(update, self._reading)
        if event is None:
            if isinstance(query := update.get("callback_query"), dict):
                self._start_toast(query, "This button does not work any more.")
            return
        if event.timestamp is not None and self._poller is not None:
            event.timestamp = self._poller.sent_at(event.timestamp)
        receipt = await self.receive(event, cursor=cursor)
        if event.answer is not None:
            self._start_toast(event.raw_message, _TOASTS.get(receipt.state, ""))

    async def _publish_commands(self, line: BotClient) -> None:
        """The menu that Telegram shows at a `/`: what every person on the list can use. Best effort."""
        menu = [
            (row.name.replace("-", "_")[:_COMMAND_CHARS], row.description[:_DESCRIPTION_CHARS])
            for row in self.context.commands(role="member")
        ]
        result = await self._call(lambda: line.bot.set_my_commands(menu))
        if not result.success:
            log.debug("the menu was not published: %s", result.error, extra={"action": "telegram.menu"})

    def _start_toast(self, query: Mapping[str, Any], text: str) -> None:
        self._start_beside(self._toast(query, text))

    def _start_beside(self, work: Coroutine[Any, Any, None]) -> None:
        """In a task of its own: no chat waits for it."""
        task = asyncio.create_task(work)
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)

    async def _toast(self, query: Mapping[str, Any], text: str) -> None:
        """Tell the presser's app that the press arrived, so that its button stops waiting. Best effort."""
        line, number = self._line, query.get("id")
        if line is None or not isinstance(number, str):
            return
        chat = str(updates.chat_of({"callback_query": query}))
        result = await self._outside_pause(
            chat, lambda: line.bot.answer_callback_query(number, text or None, read_timeout=_TOAST_SECONDS)
        )
        if not result.success:
            log.debug("a press was not answered: %s", result.error, extra={"action": "telegram.toast"})

    async def open_private_chat(self, user_id: str) -> str | None:
        """A private chat has the id of the person. Telegram lets us write there once they have written to us."""
        return user_id if user_id.isascii() and user_id.isdecimal() else None

    # -- out ---------------------------------------------------------------------------------------------

    def edit_pause(self, chat_id: str) -> float:
        return _GROUP_EDIT_SECONDS if chat_id.startswith("-") else self.edit_seconds

    def pieces(self, text: str) -> list[str]:
        return render.pieces(text, self.MAX_MESSAGE_LENGTH)

    def beginning(self, piece: str) -> str:
        plain = render.to_plain(piece)
        first = first_sentence(plain)
        return piece if first == plain.strip() else html.escape(first, quote=False)

    async def send(self, chat_id: str, message: Outgoing) -> SendResult:
        """Buttons whose answers are too long for Telegram are left out: the text says how to answer in words."""
        if self._line is None:
            return _NOT_CONNECTED
        from telegram import LinkPreviewOptions, ReplyParameters

        bot, replied = self._line.bot, _number(message.reply_to)

        def send(text: str, mode: str | None, chat: str) -> Awaitable[Any]:
            options: dict[str, Any] = {
                "message_thread_id": _number(message.thread_id),
                "link_preview_options": LinkPreviewOptions(is_disabled=True),
                "reply_markup": self._keyboard(chat, message.buttons) if message.buttons else None,
            }
            if replied is not None and chat == chat_id:
                options["reply_parameters"] = ReplyParameters(replied, allow_sending_without_reply=True)
            return bot.send_message(chat, text, parse_mode=mode, **options)

        return await self._say(
            message.text, lambda text, mode: self._posted(chat_id, partial(send, text, mode)), plain=message.plain
        )

    async def _posted(self, chat_id: str, call: Callable[[str], Awaitable[Any]]) -> Any:
        """Send a message; if the group has become a supergroup meanwhile, into that, which is the same room."""
        from telegram.error import ChatMigrated

        try:
            return await call(chat_id)
        except ChatMigrated as moved:
            new = str(moved.new_chat_id)
            return _Elsewhere(f"{new}{_IN}{(await call(new)).message_id}")

    def _keyboard(self, chat_id: str, rows: Sequence[Sequence[Button]]) -> InlineKeyboardMarkup | None:
        from telegram import InlineKeyboardButton, InlineKeyboardMarkup

        seal = self._seal
        if seal is None:
            return None
        made = [
            [
                InlineKeyboardButton(button.label[:_LABEL_CHARS], callback_data=data)
                for button in row
                if (data := seal.write(chat_id, button.answer)) is not None
            ]
            for row in rows
        ]
        return InlineKeyboardMarkup([row for row in made if row]) if any(made) else None

    async def edit_message(
        self, chat_id: str, message_id: str, content: str, *, thread_id: str | None = None, finalize: bool = False
    ) -> SendResult:
        if self._line is None:
            return _NOT_CONNECTED
        chat, number = _address(chat_id, message_id)
        if number is None:
            return SendResult(success=False, error="no such message", error_kind="not_found", not_sent=True)
        from telegram import LinkPreviewOptions

        bot, quiet = self._line.bot, LinkPreviewOptions(is_disabled=True)
        result = await self._say(
            content,
            lambda text, mode: bot.edit_message_text(text, chat, number, parse_mode=mode, link_preview_options=quiet),
        )
        return SendResult(success=True, message_id=message_id) if result.success else result

    async def _say(
        self, content: str, call: Callable[[str, str | None], Awaitable[Any]], *, plain: bool = False
    ) -> SendResult:
        """A piece as HTML; as plain text when that is wanted, or when Telegram does not understand it."""
        if not plain:
            result = await self._call(lambda: call(content, "HTML"))
            if result.error_kind != "bad_format":
                return result
            log.warning("Telegram did not understand a piece: %s", result.error, extra={"action": "telegram.bad_html"})
        return await self._call(lambda: call(render.to_plain(content), None))

    async def _call(self, call: Callable[[], Awaitable[Any]]) -> SendResult:
        """Send one request and classify its outcome."""
        from telegram.error import TelegramError

        try:
            answer = await call()
        except TelegramError as error:
            if errors.is_not_modified(error):
                return SendResult(success=True)
            return errors.as_result(error, self.config.token or "", self.platform.value)
        return SendResult(success=True, message_id=None if answer is True else str(answer.message_id))

    async def _outside_pause(self, chat_id: str, call: Callable[[], Awaitable[Any]]) -> SendResult:
        """Send a request whose outcome the deliverer does not see, and not during a pause that Telegram asked for."""
        if self.flood.left(chat_id):
            return SendResult(success=False, error="Telegram asked for a pause", not_sent=True)
        result = await self._call(call)
        if result.error_kind == "rate_limited":
            self.flood.refused(chat_id, result.retry_after)
        return result

    async def delete_message(self, chat_id: str, message_id: str, *, thread_id: str | None = None) -> bool:
        (chat, number), line = _address(chat_id, message_id), self._line
        if number is None or line is None:
            return False
        return (await self._outside_pause(chat_id, lambda: line.bot.delete_message(chat, number))).success

    async def send_file(self, chat_id: str, message: Outgoing) -> SendResult:
        if self._line is None:
            return _NOT_CONNECTED
        upload = await self._upload(message)
        if isinstance(upload, SendResult):
            return upload
        bot, short = self._line.bot, files.fitting_caption(message.text)
        options: dict[str, Any] = {"message_thread_id": _number(message.thread_id), "caption": short or None}

        def send(method: Callable[..., Awaitable[Any]]) -> Awaitable[SendResult]:
            post = partial(method, filename=upload.name, **options)
            return self._call(lambda: self._posted(chat_id, lambda chat: post(chat, upload.data)))

        if upload.is_picture:
            result = await send(bot.send_photo)
            if result.success or not (result.not_sent and result.error_kind == "unknown"):
                return result  # Telegram may say that a picture has the wrong size or shape; a document has none
        return await send(bot.send_document)

    def together(self, outgoing: Sequence[OutgoingFile]) -> int:
        return files.album(outgoing)

    async def send_files(self, chat_id: str, messages: Sequence[Outgoing]) -> Sequence[SendResult]:
        """An album: Telegram takes all of it or nothing."""
        if self._line is None:
            return [_NOT_CONNECTED]
        from telegram import InputMediaDocument, InputMediaPhoto

        bot, thread, sent = self._line.bot, _number(messages[0].thread_id), list[str]()
        media: list[InputMediaDocument | InputMediaPhoto] = []
        for message in messages:
            upload = await self._upload(message)
            if isinstance(upload, SendResult):
                return [upload]
            make = InputMediaPhoto if upload.is_picture else InputMediaDocument
            caption = files.fitting_caption(message.text) or None
            media.append(make(upload.data, filename=upload.name, caption=caption))

        async def post(chat: str) -> Any:
            shown = await bot.send_media_group(chat, media, message_thread_id=thread)
            there = "" if chat == chat_id else f"{chat}{_IN}"
            sent[:] = [f"{there}{one.message_id}" for one in shown]
            return shown[0]

        result = await self._call(lambda: self._posted(chat_id, post))
        return [SendResult(success=True, message_id=number) for number in sent] if result.success else [result]

    async def _upload(self, message: Outgoing) -> files.FileUpload | SendResult:
        assert message.file is not None, "a file is sent"
        path, name = message.file.path, message.file.name
        try:
            return await asyncio.to_thread(files.read_upload, path, name or path.name)
        except files.CannotSend as error:
            return SendResult(success=False, error=str(error), error_kind="unknown", not_sent=True)

    async def send_typing(self, chat_id: str, thread_id: str | None = None) -> None:
        if self._line is None or not self.config.typing_indicator:
            return
        bot, thread = self._line.bot, _number(thread_id)
        result = await self._outside_pause(
            chat_id, lambda: bot.send_chat_action(chat_id, "typing", message_thread_id=thread)
        )
        if not result.success:
            log.debug("typing was not shown: %s", result.error, extra={"action": "telegram.typing"})

    # -- look --------------------------------------------------------------------------------------------

    async def fetch(self, attachment: Attachment, target: Path, *, limit: int) -> None:
        if self._line is None:
            raise CannotFetch("Telegram is not connected")
        local = self.config.extra.get("local_mode") is True
        await files.fetch(self._line, attachment, target, limit=limit, local=local)


class _Elsewhere(NamedTuple):
    """A message that was sent into the supergroup that its group has become."""

    message_id: str


def _address(chat_id: str, message_id: str) -> tuple[str, int | None]:
    """Where a message stands. A supergroup counts its messages anew, so the id of one that was sent there for its
    group names the supergroup: `-1001234/57`."""
    there, slash, number = message_id.rpartition(_IN)
    return there if slash else chat_id, _number(number)


def _number(text: object) -> int | None:
    """A message or topic id of Telegram's; None for what can be none."""
    word = str(text) if isinstance(text, str | int) else ""
    return int(word) if word.isascii() and word.isdigit() and len(word) < 16 else None
