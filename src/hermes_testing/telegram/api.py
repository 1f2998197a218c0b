"""The bot's methods that Hermes uses: sending, editing, itself, chats, files, buttons, commands, webhooks, polling.

`BotMethods.call` performs one request and gives its `result`, or raises the `BotApiError` that Telegram would answer
with. `getUpdates` waits and therefore lives with the server. Parameters nobody knows are ignored, names of methods
are not case sensitive, as with the real one. A webhook is remembered and blocks `getUpdates`; nothing is ever posted
to it.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

from hermes_testing.telegram.answers import NO_SUCH_METHOD, BotApiError, Json, bad_request, conflict, forbidden
from hermes_testing.telegram.faults import Faults, FloodControl
from hermes_testing.telegram.text import Formatted, formatted, units
from hermes_testing.telegram.world import TYPING_SECONDS, FakeChat, MediaKind, Message, StoredFile, World

TEXT_UNITS = 4_096
CAPTION_UNITS = 1_024
PHOTO_BYTES = 10 * 1024 * 1024
UPLOAD_BYTES = 50 * 1024 * 1024
DELETE_SECONDS = 48 * 3_600
DOWNLOAD_BYTES = 20 * 1024 * 1024
PRESS_SECONDS = 60.0
"""How long a button press can be answered. Telegram does not say; it is some seconds to a minute."""
NOT_MODIFIED = (
    "message is not modified: specified new message content and reply markup are exactly the same as a current content "
    "and reply markup of the message"
)
_IMAGES = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF8", b"RIFF", b"BM")
_TOO_OLD = "query is too old and response timeout expired or query ID is invalid"
_METHODS = (
    "get_me", "get_chat", "get_file", "answer_callback_query", "set_my_commands", "set_webhook", "delete_webhook",
    "get_webhook_info", "send_message", "send_photo", "send_document", "send_media_group", "edit_message_text",
    "delete_message", "send_chat_action",
)  # fmt: skip


class BotMethods:
    """Every method but `getUpdates`, by its name."""

    def __init__(self, world: World, flood: FloodControl) -> None:
        self._world = world
        self._flood = flood
        self._methods: dict[str, Callable[[Parameters], object]] = {
            name.replace("_", ""): getattr(self, name) for name in _METHODS
        }

    def call(self, name: str, parameters: Parameters) -> object:
        method = self._methods.get(name.lower())
        if method is None:
            raise NO_SUCH_METHOD
        if not parameters.values.keys().isdisjoint(("entities", "caption_entities")):
            raise bad_request("this fake takes formats as HTML only, because that is what Hermes sends")
        with self._world.lock:
            return method(parameters)

    # -- who and where ---------------------------------------------------------------------------------------------

    def get_me(self, _parameters: Parameters) -> Json:
        abilities = {
            "can_join_groups": True,
            "can_read_all_group_messages": self._world.reads_all_group_messages,
            "supports_inline_queries": False,
        }
        return self._world.bot.json() | abilities

    def get_chat(self, parameters: Parameters) -> Json:
        chat = self.known_chat(parameters)
        more: Json = {"accent_color_id": 0, "max_reaction_count": 11, "accepted_gift_types": _NO_GIFTS}
        if chat.type != "private":
            more["permissions"] = {"can_send_messages": True}
        return self._world.chat_json(chat) | more

    # -- files -----------------------------------------------------------------------------------------------------

    def get_file(self, parameters: Parameters) -> Json:
        named = parameters.text("file_id")
        if not named:
            raise bad_request("file_id not specified")
        file = self._world.files.get(named)
        if file is None:
            raise bad_request("wrong file_id or the file is temporarily unavailable")
        if file.size > DOWNLOAD_BYTES:
            raise bad_request("file is too big")
        told = {"file_size": file.size} if file.sized else {}
        return {"file_id": file.id, "file_unique_id": f"u{file.id}", "file_path": file.path, **told}

    # -- buttons ---------------------------------------------------------------------------------------------------

    def answer_callback_query(self, parameters: Parameters) -> bool:
        text = parameters.text("text")
        press = self._world.presses.get(parameters.text("callback_query_id"))
        if press is None or press.answered or self._world.now() - press.at > PRESS_SECONDS:
            raise bad_request(_TOO_OLD)
        if units(text) > 200:
            raise bad_request("MESSAGE_TOO_LONG")
        press.answered = True
        chat = self._world.chats[press.chat_id]
        if text:
            toast = {"text": text, "alert": parameters.flag("show_alert"), "message": press.message_id}
            chat.toasts.append(toast | {"for": press.user_id, "at": self._world.now()})
        self._world.changed(chat)
        return True

    # -- commands --------------------------------------------------------------------------------------------------

    def set_my_commands(self, parameters: Parameters) -> bool:
        listed = parameters.parsed("commands", "commands") or []
        if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
            raise bad_request("expected an Array of BotCommand")
        if len(listed) > 100:
            raise bad_request("BOT_COMMANDS_TOO_MUCH")
        for one in listed:
            if not re.fullmatch(r"/?[a-z0-9_]{1,32}", str(one.get("command", ""))):
                raise bad_request("BOT_COMMAND_INVALID")
            if not 1 <= units(str(one.get("description", ""))) <= 256:
                raise bad_request("BOT_COMMAND_DESCRIPTION_INVALID")
        self._world.commands = [
            {"command": one["command"].removeprefix("/"), "description": one["description"]} for one in listed
        ]
        return True

    # -- webhooks --------------------------------------------------------------------------------------------------

    def set_webhook(self, parameters: Parameters) -> bool:
        url = parameters.text("url")
        if url and not url.startswith("https://"):
            raise bad_request("bad webhook: An HTTPS URL must be provided for webhook")
        if parameters.flag("drop_pending_updates"):
            self._world.updates.drop()
        self._world.webhook = {"url": url} if url else {}
        self._world.bell.ring()
        return True

    def delete_webhook(self, parameters: Parameters) -> bool:
        return self.set_webhook(Parameters({"drop_pending_updates": parameters.text("drop_pending_updates")}))

    def get_webhook_info(self, _parameters: Parameters) -> Json:
        return {
            "url": self._world.webhook.get("url", ""),
            "has_custom_certificate": False,
            "pending_update_count": len(self._world.updates.pending),
        }

    # -- sending ---------------------------------------------------------------------------------------------------

    def send_message(self, parameters: Parameters) -> Json:
        content = _text(parameters)
        if units(content.text) > TEXT_UNITS:
            raise bad_request("message is too long")
        return self._send(parameters, content)

    def send_photo(self, parameters: Parameters) -> Json:
        return self._send_file(parameters, "photo")

    def send_document(self, parameters: Parameters) -> Json:
        return self._send_file(parameters, "document")

    def send_media_group(self, parameters: Parameters) -> list[Json]:
        """Send an album: all of it, or nothing."""
        items = _album(parameters)
        chat = self.writable_chat(parameters)
        thread, reply_to = self._thread(chat, parameters), self._replied(chat, parameters)
        files = []
        for number, (kind, media, _) in enumerate(items, 1):
            try:
                files.append(self._file_at(parameters, kind, media))
            except BotApiError as error:
                if error.code != 400:
                    raise
                words = error.description.removeprefix("Bad Request: ")
                raise bad_request(f'failed to send message #{number} with the error message "{words}"') from None
        self._flood.spend(chat, len(items))
        album = str(13_000_000_000 + self._world.next_number())
        sent = [
            self._world.post(
                chat, self._world.bot, content, file_id=file.id, thread_id=thread, reply_to=reply_to, album=album
            )
            for (_, _, content), file in zip(items, files, strict=True)
        ]
        return [self._world.message_json(message) for message in sent]

    def _send_file(self, parameters: Parameters, kind: MediaKind) -> Json:
        return self._send(parameters, _caption(parameters), self._file(parameters, kind))

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

    def _file(self, parameters: Parameters, kind: MediaKind) -> StoredFile:
        """Return the file of a request: an upload, or one that Telegram already has."""
        named = parameters.text(kind)
        upload = parameters.files.get(named.removeprefix("attach://") if named.startswith("attach://") else kind)
        if upload is None:
            if not named:
                raise bad_request(f"there is no {kind} in the request")
            if named.startswith(("http://", "https://")):
                raise bad_request("failed to get HTTP URL content")
            if (known := self._world.files.get(named)) is None:
                raise bad_request("wrong remote file identifier specified: Wrong string length")
            return known
        _check_upload(upload, kind)
        return self._world.store(kind, upload.content, name=upload.name, mime=upload.mime)

    def _file_at(self, parameters: Parameters, kind: MediaKind, media: str) -> StoredFile:
        """The file of an album's item; a file that Telegram already has must be of that kind."""
        file = self._file(Parameters({kind: media}, parameters.files), kind)
        if file.kind != kind:
            raise bad_request("type of file mismatch")
        return file

    # -- editing and deleting --------------------------------------------------------------------------------------

    def edit_message_text(self, parameters: Parameters) -> Json:
        content = _text(parameters)
        buttons = keyboard(parameters) or []
        chat, message = self._own_message(parameters)
        if message.file_id:
            raise bad_request("there is no text in the message to edit")
        if units(content.text) > TEXT_UNITS:
            raise bad_request("MESSAGE_TOO_LONG")
        self._flood.spend(chat)  # an edit that changes nothing counts as well
        if (content.text, content.json(), buttons) == (message.text, message.entities, message.keyboard):
            raise bad_request(NOT_MODIFIED)
        self._world.revise(chat, message, content, buttons)
        return self._world.message_json(message)

    def _own_message(self, parameters: Parameters) -> tuple[FakeChat, Message]:
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

    def known_chat(self, parameters: Parameters) -> FakeChat:
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

    def writable_chat(self, parameters: Parameters) -> FakeChat:
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

    def _thread(self, chat: FakeChat, parameters: Parameters) -> int:
        thread = parameters.integer("message_thread_id")
        if thread and thread not in chat.topics:
            raise bad_request("message thread not found")
        if thread in chat.closed_topics:
            raise bad_request("TOPIC_CLOSED")
        return thread

    def _replied(self, chat: FakeChat, parameters: Parameters) -> int:
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


_NO_GIFTS = {
    "unlimited_gifts": False, "limited_gifts": False, "unique_gifts": False, "premium_subscription": False,
    "gifts_from_channels": False,
}  # fmt: skip


_ACTIONS = frozenset(
    {
        "typing", "upload_photo", "record_video", "upload_video", "record_voice", "upload_voice", "upload_document",
        "choose_sticker", "find_location", "record_video_note", "upload_video_note",
    }
)  # fmt: skip


def _text(parameters: Parameters) -> Formatted:
    if not parameters.text("text"):
        raise bad_request("message text is empty")
    content = formatted(parameters.text("text"), parameters.text("parse_mode"))
    if not content.text:
        raise bad_request("text must be non-empty")
    return content


def _caption(parameters: Parameters) -> Formatted:
    content = formatted(parameters.text("caption"), parameters.text("parse_mode"))
    if units(content.text) > CAPTION_UNITS:
        raise bad_request("message caption is too long")
    return content


_IN_ALBUMS: tuple[MediaKind, ...] = ("photo", "video", "document", "audio")


def _album(parameters: Parameters) -> list[tuple[MediaKind, str, Formatted]]:
    """The items of an album: kind, file and caption."""
    listed = parameters.parsed("media", "media")
    if not isinstance(listed, list):
        raise bad_request('parameter "media" is required' if listed is None else "expected an Array of InputMedia")
    items = [_album_item(raw, parameters) for raw in listed]
    if not items:
        raise bad_request("there are no messages to send")
    if len(items) == 1:
        raise bad_request("an album must include 2-10 items")  # as its page says; Telegram sends an ordinary message
    if len(items) > 10:
        raise bad_request("too many messages to send as an album")
    kinds = {kind for kind, _, _ in items}
    for alone in ("document", "audio"):
        if alone in kinds and len(kinds) > 1:
            raise bad_request(f"{alone} can't be mixed with other media types")
    return items


def _album_item(raw: object, parameters: Parameters) -> tuple[MediaKind, str, Formatted]:
    def wrong(words: str) -> BotApiError:
        return bad_request(f"can't parse InputMedia: {words}")

    if not isinstance(raw, dict):
        raise wrong("expected an Object")
    if not raw.keys().isdisjoint(("caption_entities",)):
        raise bad_request("this fake takes formats as HTML only, because that is what Hermes sends")
    content = _caption(Parameters({name: str(raw.get(name) or "") for name in ("caption", "parse_mode")}))
    kind = next((kind for kind in _IN_ALBUMS if kind == raw.get("type")), None)
    if kind is None:
        raise wrong(f'type "{raw.get("type")}" can\'t be used in sendMediaGroup')
    media = raw.get("media")
    attached = isinstance(media, str) and media.startswith("attach://")
    if not isinstance(media, str) or not media or (attached and media[9:] not in parameters.files):
        raise wrong("media not found")
    return kind, media, content


def _check_upload(upload: UploadedFile, kind: MediaKind) -> None:
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


_DISPOSITION = re.compile(r'(?P<name>\w+\*?)="(?P<value>(?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True)
class UploadedFile:
    name: str
    content: bytes
    mime: str = "application/octet-stream"


@dataclass(frozen=True, slots=True)
class Parameters:
    values: dict[str, str] = field(default_factory=dict)
    files: dict[str, UploadedFile] = field(default_factory=dict)

    def text(self, name: str) -> str:
        return self.values.get(name, "")

    def integer(self, name: str, default: int = 0) -> int:
        """Return a number; like Telegram, the default for anything else."""
        raw = self.values.get(name, "").strip()
        return int(raw) if re.fullmatch(r"[+-]?[0-9]{1,18}", raw) else default

    def between(self, name: str, default: int, low: int, high: int) -> int:
        """Return a number, limited to `low` and `high`."""
        return min(max(self.integer(name, default), low), high)

    def flag(self, name: str) -> bool:
        return self.values.get(name, "").strip().lower() in ("true", "yes", "1")

    def parsed(self, name: str, what: str) -> Any:
        """Return a parsed JSON value; None without one."""
        if not (raw := self.values.get(name, "")):
            return None
        try:
            return json.loads(raw)
        except ValueError:
            raise bad_request(f"can't parse {what} JSON object") from None


def read(query: str, content_type: str, body: bytes) -> Parameters:
    """Raises `BotApiError` for a body that cannot be read."""
    values = dict(parse_qsl(query, keep_blank_values=True))
    files: dict[str, UploadedFile] = {}
    kind, _semicolon, rest = content_type.partition(";")
    match kind.strip().lower():
        case "application/json" if body:
            values |= _from_json(body)
        case "application/x-www-form-urlencoded":
            values |= dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))
        case "multipart/form-data":
            more, files = _from_multipart(rest, body)
            values |= more
    return Parameters(values, files)


def _from_json(body: bytes) -> dict[str, str]:
    try:
        raw = json.loads(body)
    except ValueError:
        raise bad_request("can't parse JSON object") from None
    if not isinstance(raw, dict):
        raise bad_request("JSON object expected")
    return {name: text for name, value in raw.items() if (text := _as_text(value)) is not None}


def _as_text(value: object) -> str | None:
    if value is None:
        return None
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _from_multipart(rest: str, body: bytes) -> tuple[dict[str, str], dict[str, UploadedFile]]:
    boundary = re.search(r'boundary="?([^";]+)"?', rest)
    if boundary is None:
        raise bad_request("boundary field not found")
    values: dict[str, str] = {}
    files: dict[str, UploadedFile] = {}
    mark = b"--" + boundary[1].encode("latin-1")
    # The first part needs no line break before its mark; with one in front, all marks look alike.
    for part in (b"\r\n" + body).split(b"\r\n" + mark)[1:]:
        if part.startswith(b"--"):
            break
        head, _blank, content = part.partition(b"\r\n\r\n")
        headers = _headers(head)
        facts = {
            found["name"]: found["value"] for found in _DISPOSITION.finditer(headers.get("content-disposition", ""))
        }
        if "filename" in facts:
            mime = headers.get("content-type", "application/octet-stream")
            files[facts.get("name", "")] = UploadedFile(facts["filename"], content, mime)
        elif "name" in facts:
            values[facts["name"]] = content.decode("utf-8", "replace")
    return values, files


def _headers(head: bytes) -> dict[str, str]:
    lines = head.decode("utf-8", "replace").split("\r\n")
    pairs = (line.partition(":") for line in lines if ":" in line)
    return {name.strip().lower(): value.strip() for name, _colon, value in pairs}


def keyboard(parameters: Parameters) -> list[list[Json]] | None:
    """The rows of an inline keyboard in `reply_markup`; other markups are accepted and ignored."""
    markup = parameters.parsed("reply_markup", "reply keyboard markup")
    if markup is None:
        return None
    if not isinstance(markup, dict):
        raise bad_request("object expected as reply markup")
    if "inline_keyboard" not in markup:
        return None
    rows = markup["inline_keyboard"]
    if not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
        raise bad_request('field "inline_keyboard" must be of type Array')
    checked = [[_button(button) for button in row] for row in rows if row]
    if sum(len(row) for row in checked) > 100:
        raise bad_request("reply markup is too long")
    return checked


def _button(raw: object) -> Json:
    if not isinstance(raw, dict):
        raise bad_request("can't parse inline keyboard button: expected an Object")
    text = raw.get("text")
    if not isinstance(text, str):
        raise bad_request("can't parse inline keyboard button: can't find field \"text\"")
    if not text.strip():
        raise bad_request("inline keyboard button text is empty")
    if isinstance(data := raw.get("callback_data"), str):
        if not 1 <= len(data.encode()) <= 64:
            raise bad_request("BUTTON_DATA_INVALID")
        return {"text": text, "callback_data": data}
    if isinstance(url := raw.get("url"), str):
        if not re.match(r"(?:https?|tg)://\S+$", url) and "." not in url:
            raise bad_request(f"inline keyboard button URL '{url}' is invalid: Wrong HTTP URL")
        return {"text": text, "url": url}
    raise bad_request("can't parse inline keyboard button: Text buttons are unallowed in the inline keyboard")


LONGEST_SECONDS = 50
_OTHER = "terminated by other getUpdates request; make sure that only one bot instance is running"
_WEBHOOK = "can't use getUpdates method while webhook is active; use deleteWebhook to delete the webhook first"


class Polling:
    def __init__(self, world: World) -> None:
        self._world = world
        self._current: object = None

    async def poll(self, parameters: Parameters, faults: Faults) -> list[Json]:
        """The updates for one request."""
        kinds = _allowed(parameters)
        deadline = time.monotonic() + parameters.between("timeout", 0, 0, LONGEST_SECONDS)
        me = self._current = object()
        with self._world.lock:
            if self._world.webhook:
                raise conflict(_WEBHOOK)
            self._world.updates.allow(kinds)
        bell = self._world.bell
        bell.ring()  # whoever waited learns that it no longer should
        while True:
            event = bell.listen()
            batch = self._taken(me, parameters, faults)
            if batch or time.monotonic() >= deadline:
                return batch
            await bell.rung(event, deadline)

    def _taken(self, me: object, parameters: Parameters, faults: Faults) -> list[Json]:
        if self._current is not me:
            raise conflict(_OTHER)
        with self._world.lock:
            if self._world.webhook:
                raise conflict("terminated by setWebhook request")
            now = self._world.now()
            queue = self._world.updates
            taken = queue.take(parameters.integer("offset"), parameters.between("limit", 100, 1, 100), now)
            batch = [update.json() for update in taken]
            return faults.on_updates(queue, batch, now) if batch else batch


def _allowed(parameters: Parameters) -> list[str] | None:
    raw = parameters.parsed("allowed_updates", "allowed_updates")
    if raw is None:
        return None
    if not isinstance(raw, list):
        raise bad_request("expected an Array of String as allowed_updates")
    return [str(kind) for kind in raw]
