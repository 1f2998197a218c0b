"""What a bot says: sending, editing and deleting, each checked in the order in which Telegram checks it.

First the content, then the markup, then the chat, then what it replies to, then flood control; only then does
anything happen. Sizes: 4,096 UTF-16 units of text and 1,024 of a caption, both after parsing; a photo of 10 MB, other
files of 50.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from hermes_testing.telegram_answers import BotApiError, Json, bad_request, forbidden
from hermes_testing.telegram_chats import TYPING_SECONDS, Chat, MediaKind, Message, StoredFile, World
from hermes_testing.telegram_entities import Formatted, formatted, units
from hermes_testing.telegram_flood import FloodControl
from hermes_testing.telegram_parameters import Parameters, Upload, keyboard

TEXT_UNITS = 4_096
CAPTION_UNITS = 1_024
PHOTO_BYTES = 10 * 1024 * 1024
UPLOAD_BYTES = 50 * 1024 * 1024
DELETE_SECONDS = 48 * 3_600
NOT_MODIFIED = (
    "message is not modified: specified new message content and reply markup are exactly the same as a current content "
    "and reply markup of the message"
)
_IMAGES = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF8", b"RIFF", b"BM")


class Sending:
    """The methods that put something into a chat or change it there."""

    def __init__(self, world: World, flood: FloodControl) -> None:
        self._world = world
        self._flood = flood
        self.methods: dict[str, Callable[[Parameters], object]] = {
            "sendmessage": self.send_message,
            "sendphoto": lambda parameters: self.send_file(parameters, "photo"),
            "senddocument": lambda parameters: self.send_file(parameters, "document"),
            "sendvoice": lambda parameters: self.send_file(parameters, "voice"),
            "sendmediagroup": self.send_media_group,
            "editmessagetext": self.edit_message_text,
            "editmessagecaption": self.edit_message_caption,
            "editmessagereplymarkup": self.edit_message_reply_markup,
            "deletemessage": self.delete_message,
            "sendchataction": self.send_chat_action,
        }

    # -- sending ---------------------------------------------------------------------------------------------------

    def send_message(self, parameters: Parameters) -> Json:
        content = _text(parameters)
        if units(content.text) > TEXT_UNITS:
            raise bad_request("message is too long")
        return self._send(parameters, content)

    def send_file(self, parameters: Parameters, kind: MediaKind) -> Json:
        file = self._file(parameters, kind, parameters.text(kind), kind)
        return self._send(parameters, _caption(parameters), file)

    def send_media_group(self, parameters: Parameters) -> list[Json]:
        listed = parameters.parsed("media", "media")
        if not isinstance(listed, list) or not listed:
            raise bad_request("there are no messages to send")
        if not 2 <= len(listed) <= 10:
            raise bad_request("wrong number of messages specified: an album has 2-10 of them")
        items = []
        for one in listed:
            kind = one.get("type") if isinstance(one, dict) else None
            if kind not in ("photo", "document"):
                raise bad_request("can't parse InputMedia: type must be one of photo, document")
            values = {name: one[name] for name in ("caption", "parse_mode") if name in one}
            values |= {"caption_entities": json.dumps(one["caption_entities"])} if "caption_entities" in one else {}
            items.append((self._file(parameters, kind, str(one.get("media", "")), kind), _caption(Parameters(values))))
        chat = self.writable_chat(parameters)
        thread, reply_to = self._thread(chat, parameters), self._replied(chat, parameters)
        self._flood.spend(chat, len(items))
        album = str(self._world.next_number())
        sent = [
            self._world.post(
                chat, self._world.bot, caption, file_id=file.id, thread_id=thread, reply_to=reply_to, album=album
            )
            for file, caption in items
        ]
        return [self._world.message_json(message) for message in sent]

    def _send(self, parameters: Parameters, content: Formatted, file: StoredFile | None = None) -> Json:
        buttons = keyboard(parameters) or []
        chat = self.writable_chat(parameters)
        thread, reply_to = self._thread(chat, parameters), self._replied(chat, parameters)
        self._flood.spend(chat)
        message = self._world.post(
            chat, self._world.bot, content, file_id=file.id if file else "", keyboard=buttons, thread_id=thread,
            reply_to=reply_to,
        )  # fmt: skip
        return self._world.message_json(message)

    def _file(self, parameters: Parameters, kind: MediaKind, named: str, part: str) -> StoredFile:
        """The file of a request: a new one, or one that Telegram has already."""
        upload = parameters.files.get(named.removeprefix("attach://") if named.startswith("attach://") else part)
        if upload is None:
            if not named:
                raise bad_request(f"there is no {kind} in the request")
            if named.startswith(("http://", "https://")):
                raise bad_request("failed to get HTTP URL content")
            if (known := self._world.files.get(named)) is None:
                raise bad_request("wrong remote file identifier specified: Wrong string length")
            return known
        _check_upload(upload, kind)
        seconds = parameters.integer("duration")
        mime = "audio/ogg" if kind == "voice" else upload.mime
        return self._world.store(kind, upload.content, name=upload.name, mime=mime, seconds=seconds)

    # -- editing and deleting --------------------------------------------------------------------------------------

    def edit_message_text(self, parameters: Parameters) -> Json:
        content = _text(parameters)
        buttons = keyboard(parameters) or []
        chat, message = self._own_message(parameters)
        if message.file_id:
            raise bad_request("there is no text in the message to edit")
        if units(content.text) > TEXT_UNITS:
            raise bad_request("MESSAGE_TOO_LONG")
        return self._revise(chat, message, content, buttons)

    def edit_message_caption(self, parameters: Parameters) -> Json:
        content = _caption(parameters)
        buttons = keyboard(parameters) or []
        chat, message = self._own_message(parameters)
        if not message.file_id:
            raise bad_request("there is no caption in the message to edit")
        return self._revise(chat, message, content, buttons)

    def _revise(self, chat: Chat, message: Message, content: Formatted, buttons: list[list[Json]]) -> Json:
        self._flood.spend(chat)  # an edit that changes nothing counts as well
        if (content.text, content.json(), buttons) == (message.text, message.entities, message.keyboard):
            raise bad_request(NOT_MODIFIED)
        self._world.revise(chat, message, content, buttons)
        return self._world.message_json(message)

    def edit_message_reply_markup(self, parameters: Parameters) -> Json:
        buttons = keyboard(parameters) or []
        chat, message = self._own_message(parameters)
        self._flood.spend(chat)
        if buttons == message.keyboard:
            raise bad_request(NOT_MODIFIED)
        self._world.revise(chat, message, None, buttons)
        return self._world.message_json(message)

    def _own_message(self, parameters: Parameters) -> tuple[Chat, Message]:
        if not parameters.text("chat_id") and parameters.text("inline_message_id"):
            raise bad_request("MESSAGE_ID_INVALID")
        chat = self.writable_chat(parameters)
        if (number := parameters.integer("message_id")) <= 0:
            raise bad_request("message identifier is not specified")
        message = self._world.message(chat, number, "message to edit not found")
        if message.sender_id != self._world.bot.id:
            raise bad_request("message can't be edited")
        return chat, message

    def delete_message(self, parameters: Parameters) -> bool:
        chat = self.known_chat(parameters)
        message = self._world.message(chat, parameters.integer("message_id"), "message to delete not found")
        own = message.sender_id == self._world.bot.id
        may = own or chat.type == "private" or chat.bot_status == "administrator"
        if not may or self._world.now() - message.date > DELETE_SECONDS:
            raise bad_request("message can't be deleted")
        del chat.messages[message.id]
        self._world.changed(chat)
        return True

    def send_chat_action(self, parameters: Parameters) -> bool:
        action = parameters.text("action").lower()
        if not action:
            raise bad_request("parameter action is required")
        if action not in _ACTIONS:
            raise bad_request("wrong parameter action in request")
        chat = self.writable_chat(parameters)
        chat.action, chat.action_until = action, self._world.now() + TYPING_SECONDS
        self._world.changed(chat)
        return True

    # -- the chat --------------------------------------------------------------------------------------------------

    def known_chat(self, parameters: Parameters) -> Chat:
        named = parameters.text("chat_id").strip()
        if not named:
            raise bad_request("chat_id is empty")
        chat = self._world.chats.get(parameters.integer("chat_id"))
        if chat is None:
            user = self._world.users.get(parameters.integer("chat_id"))
            if user is None:
                raise bad_request("chat not found")
            if user.is_bot:
                raise forbidden("bot can't send messages to bots")
            raise forbidden("bot can't initiate conversation with a user")
        if chat.upgraded_to:
            words = "Bad Request: group chat was upgraded to a supergroup chat"
            raise BotApiError(400, words, migrate_to=chat.upgraded_to)
        return chat

    def writable_chat(self, parameters: Parameters) -> Chat:
        chat = self.known_chat(parameters)
        if chat.type == "private":
            user = self._world.users[chat.id]
            if user.deactivated:
                raise forbidden("user is deactivated")
            if user.blocked:
                raise forbidden("bot was blocked by the user")
            if not user.started:
                raise forbidden("bot can't initiate conversation with a user")
        elif chat.bot_status == "kicked":
            raise forbidden(f"bot was kicked from the {chat.type} chat")
        elif chat.bot_status == "left":
            raise forbidden(f"bot is not a member of the {chat.type} chat")
        return chat

    def _thread(self, chat: Chat, parameters: Parameters) -> int:
        thread = parameters.integer("message_thread_id")
        if thread and thread not in chat.topics:
            raise bad_request("message thread not found")
        if thread in chat.closed_topics:
            raise bad_request("TOPIC_CLOSED")
        return thread

    def _replied(self, chat: Chat, parameters: Parameters) -> int:
        raw = parameters.parsed("reply_parameters", "reply parameters")
        if raw is None:
            number, anyway = parameters.integer("reply_to_message_id"), parameters.flag("allow_sending_without_reply")
        elif not isinstance(raw, dict) or not isinstance(raw.get("message_id"), int):
            raise bad_request('can\'t parse reply parameters: Field "message_id" must be of type Number')
        else:
            number, anyway = raw["message_id"], bool(raw.get("allow_sending_without_reply"))
        if not number or number in chat.messages:
            return number
        if anyway:
            return 0
        raise bad_request("message to be replied not found")


_ACTIONS = frozenset(
    {
        "typing", "upload_photo", "record_video", "upload_video", "record_voice", "upload_voice", "upload_document",
        "choose_sticker", "find_location", "record_video_note", "upload_video_note",
    }
)  # fmt: skip


def _text(parameters: Parameters) -> Formatted:
    if not parameters.text("text"):
        raise bad_request("message text is empty")
    content = formatted(parameters.text("text"), parameters.text("parse_mode"), parameters.text("entities"))
    if not content.text:
        raise bad_request("text must be non-empty")
    return content


def _caption(parameters: Parameters) -> Formatted:
    raw = parameters.text("caption")
    content = formatted(raw, parameters.text("parse_mode"), parameters.text("caption_entities"))
    if units(content.text) > CAPTION_UNITS:
        raise bad_request("message caption is too long")
    return content


def _check_upload(upload: Upload, kind: MediaKind) -> None:
    if not upload.content:
        raise bad_request("file must be non-empty")
    if len(upload.content) > UPLOAD_BYTES:
        raise BotApiError(413, "Request Entity Too Large")
    if kind == "photo":
        if len(upload.content) > PHOTO_BYTES:
            size = f"file of size {len(upload.content)} bytes"
            raise bad_request(f"{size} is too big for a photo; the maximum size is {PHOTO_BYTES} bytes")
        if not upload.content.startswith(_IMAGES):
            raise bad_request("IMAGE_PROCESS_FAILED")
