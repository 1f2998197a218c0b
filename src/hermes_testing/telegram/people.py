"""What people do: write, edit, send files, press buttons, block the bot, and look at the chat.

Each verb is one function of the world and some named fields, and gives JSON, so that the same verbs serve a test in
this process and the control endpoint (of `server`). People are named by their short name (`ada`), chats by
their id; without a chat it is the person's private one with the bot.

Whether the bot hears of a message in a group is decided as Telegram does with privacy mode on: commands, mentions,
replies to it. Other bots it never hears, unless the world says `hears_bots`.
"""

from __future__ import annotations

import base64
import mimetypes
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from hermes_testing.telegram.answers import CallLog, Json
from hermes_testing.telegram.faults import Fault, Faults, FloodControl, FloodRules
from hermes_testing.telegram.text import Formatted, formatted
from hermes_testing.telegram.world import FIRST_SUPERGROUP, FakeChat, MediaKind, Message, Press, User, World

_VERBS = frozenset({
    "person", "group", "topic", "close_topic", "reopen_topic", "say", "attach", "edit", "unsay", "press", "block",
    "deactivate", "expel_bot", "let_bot_in", "upgrade", "inject", "look", "settings", "flood", "faults", "journal",
    "updates", "facts",
})  # fmt: skip
_MIMES = {"photo": "image/jpeg", "voice": "audio/ogg"}


class CannotDo(Exception):
    """The action is impossible: there is no such chat, message or button."""


class FakePeople:
    """The actions of people, and of tests that prepare them."""

    def __init__(self, world: World, flood: FloodControl, faults: Faults, log: CallLog) -> None:
        self._world, self._flood, self._faults, self._log = world, flood, faults, log

    def perform(self, verb: str, fields: Mapping[str, Any]) -> Any:
        """Raises `CannotDo`, or `TypeError` for fields the verb does not have."""
        if verb not in _VERBS:
            raise CannotDo(f"there is no verb {verb!r}")
        with self._world.lock:
            return getattr(self, verb)(**fields)

    async def watch(self, name: str, version: int, chat: int | None = None, within: float = 25.0) -> Json:
        """Return the chat, once its version differs from the given one."""
        deadline = time.monotonic() + min(within, 30.0)
        while True:
            event = self._world.bell.listen()
            seen: Json = self.perform("look", {"name": name, "chat": chat})
            if seen["version"] != version or time.monotonic() >= deadline:
                return seen
            await self._world.bell.rung(event, deadline)

    # -- making them -----------------------------------------------------------------------------------------------

    def person(
        self,
        name: str,
        *,
        number: int | None = None,
        first_name: str = "",
        last_name: str = "",
        username: str | None = None,
        is_bot: bool = False,
        started: bool = False,
    ) -> Json:
        """Return the person called `name`, made at the first call. `started`: the bot may write to them."""
        if name not in self._world.names:
            if number is None:
                numbers = iter(lambda: 4_200 + self._world.next_number(), None)
                number = next(one for one in numbers if one not in self._world.users)
            if number in self._world.users:
                raise CannotDo(f"there is somebody with the id {number} already")
            user = User(number, first_name or name.title(), name if username is None else username, last_name, is_bot)
            self._world.users[number] = user
            self._world.names[name] = number
        if started:
            self._user(name).started = True
            self._world.private_chat(self._user(name))
        return self._user(name).json() | {"name": name}

    def group(
        self, title: str, members: list[str], *, kind: str = "supergroup", forum: bool = False, admin: bool = False
    ) -> Json:
        """Make a group or supergroup with the bot in it; `admin`: the bot is an administrator and hears everything."""
        number = self._world.next_number()
        chat_id = FIRST_SUPERGROUP - number if kind == "supergroup" else -number
        chat = FakeChat(chat_id, "supergroup" if kind == "supergroup" else "group", title, forum)
        chat.members = [self._user(name).id for name in members]
        chat.bot_status = "administrator" if admin else "member"
        self._world.chats[chat_id] = chat
        return self._world.chat_json(chat)

    def topic(self, chat: int, title: str) -> int:
        """Make a topic of a forum; return its number for `thread`."""
        found = self._chat(chat)
        if not found.is_forum:
            raise CannotDo(f"the chat {chat} has no topics: it is no forum")
        found.last_message_id += 1
        found.topics[found.last_message_id] = title
        return found.last_message_id

    def close_topic(self, chat: int, thread: int) -> None:
        self._chat(chat).closed_topics.append(thread)

    def reopen_topic(self, name: str, chat: int, thread: int) -> None:
        """Open a topic again; the bot is told in it."""
        place = self._chat(chat)
        place.closed_topics.remove(thread)
        message = self._world.post(place, self._user(name), Formatted(""), thread_id=thread)
        told = self._world.message_json(message) | {"forum_topic_reopened": {}}
        self._world.updates.put("message", told, self._world.now(), chat_id=place.id)

    # -- doing something -------------------------------------------------------------------------------------------

    def say(self, name: str, text: str, *, chat: int | None = None, reply_to: int = 0, thread: int = 0) -> Json:
        content = formatted(text)
        if not content.text:
            raise CannotDo("a message needs a text")
        return self._posted(name, chat, content, reply_to=reply_to, thread=thread)

    def attach(
        self,
        name: str,
        kind: MediaKind,
        content: str,
        *,
        filename: str = "",
        mime: str = "",
        caption: str = "",
        seconds: int = 1,
        sized: bool = True,
        chat: int | None = None,
        reply_to: int = 0,
        thread: int = 0,
    ) -> Json:
        """Send a photo, document or voice note; `content` is base64. Without `sized` the bot is not told its size."""
        guessed = mime or _MIMES.get(kind) or mimetypes.guess_type(filename)[0] or "application/octet-stream"
        raw = base64.b64decode(content)
        named = filename or f"{kind}.bin"
        file = self._world.store(kind, raw, name=named, mime=guessed, seconds=seconds, sized=sized)
        return self._posted(name, chat, formatted(caption), file_id=file.id, reply_to=reply_to, thread=thread)

    def edit(self, name: str, message: int, text: str, *, chat: int | None = None) -> Json:
        place, found = self._own(name, message, chat)
        content = formatted(text)
        if content.text == found.text:
            raise CannotDo("that is what the message says already")
        self._world.revise(place, found, content)
        heard = self._heard(place, found)
        return self._told("edited_message", place, found) if heard else {"message": found.id, "update": None}

    def unsay(self, name: str, message: int, *, chat: int | None = None) -> None:
        """Delete an own message; the bot is not told, as with Telegram."""
        place, found = self._own(name, message, chat)
        del place.messages[found.id]
        self._world.changed(place)

    def press(
        self,
        name: str,
        message: int,
        *,
        label: str = "",
        data: str = "",
        index: int | None = None,
        chat: int | None = None,
    ) -> Json:
        """Press a button, named by its label, its data or its place from 0."""
        user, place = self._user(name), self._place(name, chat)
        found = self._message(place, message)
        buttons = [button for row in found.keyboard for button in row if "callback_data" in button]
        if index is not None:
            buttons = buttons[index : index + 1]
        elif data:
            buttons = [button for button in buttons if button["callback_data"] == data]
        else:
            buttons = [button for button in buttons if button["text"] == label]
        if not buttons:
            raise CannotDo(f"message {message} has no such button")
        pressed = Press(str(7_000_000 + self._world.next_number()), user.id, place.id, message, self._world.now())
        self._world.presses[pressed.id] = pressed
        body = {
            "id": pressed.id, "from": user.json(), "message": self._world.message_json(found),
            "chat_instance": str(abs(place.id)), "data": buttons[0]["callback_data"],
        }  # fmt: skip
        update = self._world.updates.put(
            "callback_query", body, self._world.now(), chat_id=place.id, message_id=message
        )
        return {"press": pressed.id, "update": update}

    def block(self, name: str, blocked: bool = True) -> None:
        user = self._user(name)
        user.blocked = blocked
        old, new = ("member", "kicked") if blocked else ("kicked", "member")
        self._membership(user, self._world.private_chat(user), old, new)

    def deactivate(self, name: str) -> None:
        self._user(name).deactivated = True

    def expel_bot(self, name: str, chat: int) -> None:
        """Remove the bot from a group."""
        place = self._chat(chat)
        old, place.bot_status = place.bot_status, "kicked"
        self._membership(self._user(name), place, old, "kicked")

    def let_bot_in(self, name: str, chat: int) -> None:
        """Bring the bot back into a group."""
        place = self._chat(chat)
        old, place.bot_status = place.bot_status, "member"
        self._membership(self._user(name), place, old, "member")

    def upgrade(self, name: str, chat: int) -> int:
        """Turn a basic group into a supergroup with another id; the bot is told in both."""
        old, user = self._chat(chat), self._user(name)
        new = self._chat(self.group(old.title, [])["id"])
        new.members, new.bot_status, old.upgraded_to = list(old.members), old.bot_status, new.id
        for place, fact in ((old, {"migrate_to_chat_id": new.id}), (new, {"migrate_from_chat_id": old.id})):
            told = self._world.message_json(self._world.post(place, user, Formatted(""))) | fact
            self._world.updates.put("message", told, self._world.now(), chat_id=place.id)
        return new.id

    def inject(self, update: dict[str, Any]) -> int:
        """Queue any object as an update, also an invalid one; return its id."""
        body = {key: value for key, value in update.items() if key != "update_id"}
        return self._world.updates.force(body, self._world.now())

    # -- looking ---------------------------------------------------------------------------------------------------

    def look(self, name: str, *, chat: int | None = None, thread: int = 0) -> Json:
        """Return the chat as the person sees it now, oldest message first."""
        user, place = self._user(name), self._place(name, chat)
        seen = [message for message in place.messages.values() if not thread or message.thread_id == thread]
        toasts = [toast for toast in place.toasts if toast["for"] == user.id]
        return {
            "version": place.version,
            "chat": place.id,
            "title": place.title or self._world.bot.first_name,
            "bot": self._world.bot.username,
            "action": place.action if self._world.now() < place.action_until else "",
            "messages": [self._seen(user, message) for message in seen],
            "toasts": toasts,
        }

    def _seen(self, user: User, message: Message) -> Json:
        sender = self._world.users[message.sender_id]
        file = self._world.files.get(message.file_id)
        return {
            "id": message.id,
            "sender": sender.first_name,
            "sender_id": sender.id,
            "mine": sender.id == user.id,
            "bot": sender is self._world.bot,
            "text": message.text,
            "entities": message.entities,
            "file": {"kind": file.kind, "name": file.name, "size": file.size, "path": file.path} if file else None,
            "buttons": message.keyboard,
            "thread": message.thread_id,
            "reply_to": message.reply_to,
            "album": message.album,
            "edits": message.edits,
            "versions": message.versions,
            "date": message.date,
        }

    # -- the stage ------------------------------------------------------------------------------------------------

    def settings(self, reads_all: bool | None = None, hears_bots: bool | None = None) -> None:
        if reads_all is not None:
            self._world.reads_all_group_messages = reads_all
        if hears_bots is not None:
            self._world.hears_bots = hears_bots

    def flood(self, rules: Mapping[str, Any]) -> None:
        self._flood.rules = FloodRules(**rules)

    def faults(self, rules: list[Mapping[str, Any]], seed: int = 0) -> None:
        self._faults.set([Fault.of(rule) for rule in rules], seed=seed)

    def journal(self, method: str = "", after: int = 0) -> list[Json]:
        return [call.json() for call in self._log.after(after, method)]

    def updates(self, after: int = 0) -> list[Json]:
        queue = self._world.updates
        return [asdict(update) for update in (*queue.done, *queue.pending) if update.id > after]

    def facts(self) -> Json:
        return {
            "calls": self._log.total,
            "impatient": self._flood.impatient,
            "fired": [[rule.kind, fired] for rule, fired in zip(self._faults.rules, self._faults.fired, strict=True)],
            "pending": len(self._world.updates.pending),
        }

    # -- inside ----------------------------------------------------------------------------------------------------

    def _user(self, name: str) -> User:
        if name not in self._world.names:
            raise CannotDo(f"nobody is called {name!r}")
        return self._world.users[self._world.names[name]]

    def _chat(self, chat: int) -> FakeChat:
        if chat not in self._world.chats:
            raise CannotDo(f"there is no chat {chat}")
        return self._world.chats[chat]

    def _place(self, name: str, chat: int | None) -> FakeChat:
        return self._world.private_chat(self._user(name)) if chat is None else self._chat(chat)

    def _message(self, place: FakeChat, number: int) -> Message:
        if number not in place.messages:
            raise CannotDo(f"there is no message {number} in the chat {place.id}")
        return place.messages[number]

    def _own(self, name: str, message: int, chat: int | None) -> tuple[FakeChat, Message]:
        place = self._place(name, chat)
        found = self._message(place, message)
        if found.sender_id != self._user(name).id:
            raise CannotDo(f"message {message} is not by {name}")
        return place, found

    def _posted(
        self, name: str, chat: int | None, content: Formatted, *, file_id: str = "", reply_to: int = 0, thread: int = 0
    ) -> Json:
        user, place = self._user(name), self._place(name, chat)
        if place.type != "private" and user.id not in place.members:
            raise CannotDo(f"{name} is not in the chat {place.id}")
        if place.type == "private":
            user.started = True
            if user.blocked:  # who writes to a bot has to unblock it first
                self.block(name, False)
        message = self._world.post(place, user, content, file_id=file_id, thread_id=thread, reply_to=reply_to)
        if not self._heard(place, message):
            return {"message": message.id, "chat": place.id, "update": None}
        return self._told("message", place, message)

    def _told(self, kind: str, place: FakeChat, message: Message) -> Json:
        body = self._world.message_json(message)
        update = self._world.updates.put(kind, body, self._world.now(), chat_id=place.id, message_id=message.id)
        return {"message": message.id, "chat": place.id, "update": update}

    def _heard(self, place: FakeChat, message: Message) -> bool:
        """Whether the bot gets an update for a message."""
        if place.type == "private":
            return True
        if place.bot_status in ("left", "kicked"):
            return False
        if self._world.users[message.sender_id].is_bot:
            return self._world.hears_bots
        if self._world.reads_all_group_messages or place.bot_status == "administrator":
            return True
        replied = place.messages.get(message.reply_to)
        if replied is not None and replied.sender_id == self._world.bot.id:
            return True
        mention = f"@{self._world.bot.username}".lower()
        return message.text.startswith("/") or mention in message.text.lower()

    def _membership(self, user: User, place: FakeChat, old: str, new: str) -> None:
        body = {
            "chat": self._world.chat_json(place), "from": user.json(), "date": int(self._world.now()),
            "old_chat_member": {"user": self._world.bot.json(), "status": old, "until_date": 0},
            "new_chat_member": {"user": self._world.bot.json(), "status": new, "until_date": 0},
        }  # fmt: skip
        self._world.updates.put("my_chat_member", body, self._world.now(), chat_id=place.id)
        self._world.changed(place)
