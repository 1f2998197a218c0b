"""The world behind the fake: people, chats, topics, messages and files, and how Telegram writes them as JSON.

Plain state. `api` changes it for the bot, `people` for everybody else;
both hold `World.lock` while they do, so that a test may act from any thread. Message ids count up for all private
chats and basic groups together and for each supergroup alone, as Telegram's do.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from hermes_testing.telegram.answers import Json, bad_request
from hermes_testing.telegram.text import Formatted

ChatType = Literal["private", "group", "supergroup"]
MediaKind = Literal["photo", "video", "audio", "document", "voice"]
FIRST_SUPERGROUP = -1_000_000_000_000
TYPING_SECONDS = 5.0


@dataclass(slots=True)
class User:
    id: int
    first_name: str
    username: str = ""
    last_name: str = ""
    is_bot: bool = False
    started: bool = False
    """Whether the person has written to the bot, which may then answer."""
    blocked: bool = False
    deactivated: bool = False

    def json(self) -> Json:
        body: Json = {"id": self.id, "is_bot": self.is_bot, "first_name": self.first_name}
        body |= {name: value for name, value in (("last_name", self.last_name), ("username", self.username)) if value}
        if not self.is_bot:
            body["language_code"] = "en"
        return body


@dataclass(slots=True)
class StoredFile:
    id: str
    kind: MediaKind
    name: str
    mime: str
    size: int
    path: str
    seconds: int = 0
    sized: bool = True
    """Whether the Bot API tells its size, which is optional there."""

    def json(self) -> Json:
        body: Json = {"file_id": self.id, "file_unique_id": f"u{self.id}"}
        if self.sized:
            body["file_size"] = self.size
        match self.kind:
            case "photo":
                return body | {"width": 640, "height": 480}
            case "voice":
                return body | {"duration": self.seconds, "mime_type": self.mime}
            case "video":
                size = {"width": 640, "height": 480, "duration": self.seconds}
                return body | size | {"file_name": self.name, "mime_type": self.mime}
            case "audio":
                return body | {"duration": self.seconds, "file_name": self.name, "mime_type": self.mime}
            case "document":
                return body | {"file_name": self.name, "mime_type": self.mime}


@dataclass(slots=True)
class Message:
    id: int
    chat_id: int
    sender_id: int
    date: int
    text: str = ""
    """The text, or the caption of a file."""
    entities: list[Json] = field(default_factory=list)
    file_id: str = ""
    keyboard: list[list[Json]] = field(default_factory=list)
    thread_id: int = 0
    reply_to: int = 0
    album: str = ""
    edits: int = 0
    edit_date: int = 0
    versions: list[str] = field(default_factory=list)
    """Its earlier texts, oldest first."""


@dataclass(slots=True)
class FakeChat:
    id: int
    type: ChatType
    title: str = ""
    is_forum: bool = False
    members: list[int] = field(default_factory=list)
    bot_status: Literal["member", "administrator", "left", "kicked"] = "member"
    topics: dict[int, str] = field(default_factory=dict)
    closed_topics: list[int] = field(default_factory=list)
    upgraded_to: int = 0
    """The supergroup that this group has become."""
    messages: dict[int, Message] = field(default_factory=dict)
    last_message_id: int = 0
    action: str = ""
    """The bot's shown action, until `action_until`."""
    action_until: float = 0.0
    toasts: list[Json] = field(default_factory=list)
    """Answers to button presses, as they pop up."""
    version: int = 0
    """Counts the visible changes of the chat."""


@dataclass(slots=True)
class Press:
    """A button press that the bot may answer."""

    id: str
    user_id: int
    chat_id: int
    message_id: int
    at: float
    answered: bool = False


class World:
    """All state of the fake. `now` is the wall clock; tests may give a `hermes_testing.clock.Clock`."""

    def __init__(self, token: str, *, username: str = "hermes_demo_bot", now: Callable[[], float] = time.time) -> None:
        self.token = token
        self.now = now
        self.lock = threading.RLock()
        self.bell = Bell()
        bot_id = int(token.partition(":")[0])
        self.bot = User(bot_id, "Hermes", username, is_bot=True, started=True)
        self.reads_all_group_messages = False
        """Whether privacy mode is off."""
        self.hears_bots = False
        self.users: dict[int, User] = {bot_id: self.bot}
        self.names: dict[str, int] = {}
        """The short names of people, and their ids."""
        self.chats: dict[int, FakeChat] = {}
        self.files: dict[str, StoredFile] = {}
        self.contents: dict[str, bytes] = {}
        self.presses: dict[str, Press] = {}
        self.commands: list[Json] = []
        """The menu that the bot has set."""
        self.webhook: Json = {}
        self.last_message_id = 0
        self.made = 0
        """The number of people, groups, files and presses so far, from which their ids are made."""
        self.updates = UpdateQueue(self.bell)

    def next_number(self) -> int:
        self.made += 1
        return self.made

    def changed(self, chat: FakeChat) -> None:
        chat.version += 1
        self.bell.ring()

    # -- who and where ---------------------------------------------------------------------------------------------

    def private_chat(self, user: User) -> FakeChat:
        return self.chats.setdefault(user.id, FakeChat(user.id, "private"))

    def message(self, chat: FakeChat, message_id: int, missing: str) -> Message:
        """Return a message. Raises a refusal with the text `missing`."""
        found = chat.messages.get(message_id)
        if found is None:
            raise bad_request(missing)
        return found

    def post(
        self,
        chat: FakeChat,
        sender: User,
        content: Formatted,
        *,
        file_id: str = "",
        keyboard: list[list[Json]] | None = None,
        thread_id: int = 0,
        reply_to: int = 0,
        album: str = "",
    ) -> Message:
        """Add a message to a chat."""
        if chat.type == "supergroup":
            chat.last_message_id += 1
            number = chat.last_message_id
        else:
            self.last_message_id += 1
            number = chat.last_message_id = self.last_message_id
        message = Message(
            number, chat.id, sender.id, int(self.now()), content.text, content.json(), file_id, keyboard or [],
            thread_id, reply_to, album,
        )  # fmt: skip
        chat.messages[number] = message
        if sender is self.bot:
            chat.action = ""  # typing ends when the message arrives
        self.changed(chat)
        return message

    def revise(
        self, chat: FakeChat, message: Message, content: Formatted | None, keyboard: list[list[Json]] | None = None
    ) -> None:
        """Edit a message. None keeps the old value; a change of only the buttons does not count as an edit."""
        if content is not None and (content.text, content.json()) != (message.text, message.entities):
            message.versions.append(message.text)
            message.text, message.entities = content.text, content.json()
            message.edits += 1
        if keyboard is not None:
            message.keyboard = keyboard
        message.edit_date = int(self.now())
        self.changed(chat)

    def store(
        self, kind: MediaKind, content: bytes, *, name: str, mime: str, seconds: int = 0, sized: bool = True
    ) -> StoredFile:
        number = self.next_number()
        folder = {"voice": "voice", "audio": "music"}.get(kind, f"{kind}s")
        suffix = {"photo": ".jpg", "voice": ".oga"}.get(kind) or ("." + name.rpartition(".")[2] if "." in name else "")
        file = StoredFile(f"F{kind[0].upper()}{number:08d}", kind, name, mime, len(content), "", seconds, sized)
        file.path = f"{folder}/file_{number}{suffix}"
        self.files[file.id] = file
        self.contents[file.path] = content
        return file

    # -- as JSON ---------------------------------------------------------------------------------------------------

    def chat_json(self, chat: FakeChat) -> Json:
        if chat.type == "private":
            user = self.users[chat.id]
            body: Json = {"id": chat.id, "type": "private", "first_name": user.first_name}
            body |= {key: text for key, text in (("last_name", user.last_name), ("username", user.username)) if text}
            return body
        body = {"id": chat.id, "type": chat.type, "title": chat.title}
        return body | ({"is_forum": True} if chat.is_forum else {})

    def message_json(self, message: Message, *, deep: bool = True) -> Json:
        chat = self.chats[message.chat_id]
        body: Json = {
            "message_id": message.id,
            "from": self.users[message.sender_id].json(),
            "chat": self.chat_json(chat),
            "date": message.date,
        }
        if message.thread_id:
            body |= {"message_thread_id": message.thread_id, "is_topic_message": True}
        if message.album:
            body["media_group_id"] = message.album
        if message.edit_date:
            body["edit_date"] = message.edit_date
        if deep and (replied := chat.messages.get(message.reply_to)):
            body["reply_to_message"] = self.message_json(replied, deep=False)
        if message.file_id:
            file = self.files[message.file_id]
            body[file.kind] = [file.json()] if file.kind == "photo" else file.json()
        if message.text:
            body["caption" if message.file_id else "text"] = message.text
        if message.entities:
            body["caption_entities" if message.file_id else "entities"] = message.entities
        if message.keyboard:
            body["reply_markup"] = {"inline_keyboard": message.keyboard}
        return body


DAY = 86_400.0
KEPT = 100_000
KINDS = frozenset(
    {
        "message", "edited_message", "channel_post", "edited_channel_post", "callback_query", "inline_query",
        "my_chat_member", "chat_member", "message_reaction", "message_reaction_count", "chat_join_request", "poll",
        "poll_answer",
    }
)  # fmt: skip
UNASKED = KINDS - {"chat_member", "message_reaction", "message_reaction_count"}
"""What a bot gets that never said what it wants."""


class Bell:
    """Wakes every coroutine that waits for something to change, from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()

    def ring(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, set()
        for loop, event in waiting:
            if not loop.is_closed():
                loop.call_soon_threadsafe(event.set)

    def listen(self) -> asyncio.Event:
        """Return an event that the next `ring` sets. Get it before you look, wait on it afterwards."""
        event = asyncio.Event()
        with self._lock:
            self._waiting.add((asyncio.get_running_loop(), event))
        return event

    @staticmethod
    async def rung(event: asyncio.Event, deadline: float) -> None:
        """Wait for an event of `listen`, at most until the monotonic clock shows `deadline`."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(event.wait(), max(0.0, deadline - time.monotonic()))


@dataclass(slots=True)
class Update:
    id: int
    kind: str
    body: Json
    at: float
    chat_id: int = 0
    message_id: int = 0
    delivered: int = 0
    """The number of deliveries."""
    acknowledged_at: float | None = None

    def json(self) -> Json:
        return {"update_id": self.id, **self.body}


@dataclass(slots=True)
class UpdateQueue:
    bell: Bell
    pending: list[Update] = field(default_factory=list)
    done: deque[Update] = field(default_factory=lambda: deque(maxlen=KEPT))
    """The acknowledged updates, newest last."""
    allowed: frozenset[str] = UNASKED
    last_id: int = 1_000

    def put(self, kind: str, body: Json, at: float, *, chat_id: int = 0, message_id: int = 0) -> int | None:
        """Queue an update; None when the bot did not ask for its kind."""
        if kind not in self.allowed:
            return None
        return self.force({kind: body}, at, kind=kind, chat_id=chat_id, message_id=message_id)

    def force(self, body: Json, at: float, *, kind: str = "raw", chat_id: int = 0, message_id: int = 0) -> int:
        """Queue any object as an update, also one that Telegram would never send."""
        self.last_id += 1
        self.pending.append(Update(self.last_id, kind, body, at, chat_id, message_id))
        self.bell.ring()
        return self.last_id

    def allow(self, kinds: list[str] | None) -> None:
        """Set `allowed_updates`: None keeps the current kinds, an empty list restores the default."""
        if kinds is not None:
            self.allowed = frozenset(kinds) & KINDS or UNASKED

    def take(self, offset: int, limit: int, now: float) -> list[Update]:
        """Acknowledge the updates below the offset and return the next ones. A negative offset counts from the end."""
        if offset < 0:
            offset = self.pending[offset].id if len(self.pending) >= -offset else 0
        for update in self.pending:
            if update.id < offset:
                update.acknowledged_at = now
        self.done.extend(update for update in self.pending if update.id < offset)
        self.pending = [update for update in self.pending if update.id >= offset and now - update.at <= DAY]
        batch = self.pending[:limit]
        for update in batch:
            update.delivered += 1
        return batch

    def drop(self) -> None:
        self.pending.clear()
