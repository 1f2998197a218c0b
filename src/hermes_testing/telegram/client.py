"""The people's side in Python: `ada.say("hello")`, `ada.expect("Hello, Ada")`.

    with FakeTelegram() as telegram:
        ada = telegram.person("ada")
        ada.say("hello")
        answer = ada.expect("Hello")

The same whether the fake runs in this process (`server.FakeTelegram`) or in another
(`RemoteTelegram(address, token)`). Every wait is bounded and says, when it fails, what stood in the chat. The
`…_async` forms wait without blocking the event loop.
"""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

from hermes_testing.telegram.answers import BotCall, Json
from hermes_testing.telegram.faults import NAMED, Fault, FloodRules
from hermes_testing.telegram.world import MediaKind

Seen = TypeVar("Seen")
WITHIN = 15.0
_PAUSE = 0.01


@dataclass(frozen=True, slots=True)
class SeenMessage:
    """A message as a person sees it now."""

    id: int
    sender: str
    sender_id: int
    mine: bool
    bot: bool
    text: str
    entities: list[Json]
    file: Json | None
    buttons: list[list[Json]]
    thread: int
    reply_to: int
    edits: int
    versions: list[str]
    """Its texts before each edit."""
    date: int
    album: str = ""
    """The `media_group_id` of the messages of one album; else empty."""

    @property
    def labels(self) -> list[str]:
        """The labels of its buttons."""
        return [button["text"] for row in self.buttons for button in row]


@dataclass(frozen=True, slots=True)
class SentByPerson:
    """A sent message: its id, and the id of the update for the bot; None when the bot gets none."""

    message: int
    chat: int
    update: int | None


class TelegramControl:
    """Controls a fake in this or another process."""

    def call(self, verb: str, /, **fields: Any) -> Any:
        raise NotImplementedError

    def person(self, name: str, **facts: Any) -> FakePerson:
        """Return the person of this name; the first call makes it: `number=` (the id), `first_name=`, `is_bot=` …"""
        made = self.call("person", name=name, **facts)
        return FakePerson(self, name, made["id"])

    def group(
        self, title: str, *members: FakePerson, kind: str = "supergroup", forum: bool = False, admin: bool = False
    ) -> int:
        """Make a group of these people and the bot; return its id."""
        names = [member.name for member in members]
        made = self.call("group", title=title, members=names, kind=kind, forum=forum, admin=admin)
        return int(made["id"])

    def topic(self, chat: int, title: str) -> int:
        return int(self.call("topic", chat=chat, title=title))

    def inject(self, update: Mapping[str, Any]) -> int:
        """Queue any object as an update."""
        return int(self.call("inject", update=dict(update)))

    def settings(self, *, reads_all: bool | None = None, hears_bots: bool | None = None) -> None:
        """Set whether the bot reads all group messages (privacy mode off) and hears other bots."""
        self.call("settings", reads_all=reads_all, hears_bots=hears_bots)

    def flood(self, rules: FloodRules | str) -> None:
        """Set flood control: `usual` (the default), `off`, `strict`, or your own numbers."""
        self.call("flood", rules=(NAMED[rules] if isinstance(rules, str) else rules).json())

    def faults(self, *faults: Fault, seed: int = 0) -> None:
        """Replace the faults by these; without any, nothing fails."""
        self.call("faults", rules=[fault.json() for fault in faults], seed=seed)

    def journal(self, method: str = "", *, after: int = 0) -> list[BotCall]:
        """Return the requests of the bot, oldest first."""
        return [BotCall(**raw) for raw in self.call("journal", method=method, after=after)]

    def updates(self, *, after: int = 0) -> list[Json]:
        """Return all updates: id, kind, chat, message, number of deliveries, time of acknowledgement (or None)."""
        return list(self.call("updates", after=after))

    def facts(self) -> Json:
        """Return counters: calls, impatient calls, fired faults, pending updates."""
        return dict(self.call("facts"))

    def wait(self, condition: Callable[[], bool], what: str, *, within: float = WITHIN) -> None:
        until(condition, lambda: f"{what} did not happen within {within:g} s", within)

    async def wait_async(self, condition: Callable[[], bool], what: str, *, within: float = WITHIN) -> None:
        await until_async(condition, lambda: f"{what} did not happen within {within:g} s", within)


@dataclass(frozen=True, slots=True)
class FakePerson:
    """A person who writes, in the private chat with the bot unless `chat` is given."""

    telegram: TelegramControl
    name: str
    id: int

    def say(self, text: str, *, chat: int | None = None, reply_to: int = 0, thread: int = 0) -> SentByPerson:
        raw = self.telegram.call("say", name=self.name, text=text, chat=chat, reply_to=reply_to, thread=thread)
        return SentByPerson(**raw)

    def photo(self, content: bytes | Path, **more: Any) -> SentByPerson:
        return self._attach("photo", content, **more)

    def document(self, content: bytes | Path, **more: Any) -> SentByPerson:
        """`filename=`, `mime=`, `caption=`, `sized=`, `chat=`, `reply_to=`, `thread=`."""
        return self._attach("document", content, **more)

    def voice(self, content: bytes | Path, **more: Any) -> SentByPerson:
        return self._attach("voice", content, **more)

    def _attach(self, kind: MediaKind, content: bytes | Path, **more: Any) -> SentByPerson:
        if isinstance(content, Path):
            more.setdefault("filename", content.name)
            content = content.read_bytes()
        coded = base64.b64encode(content).decode()
        return SentByPerson(**self.telegram.call("attach", name=self.name, kind=kind, content=coded, **more))

    def edit(self, message: int, text: str, *, chat: int | None = None) -> int | None:
        """Edit an own message; return the update's id."""
        raw = self.telegram.call("edit", name=self.name, message=message, text=text, chat=chat)
        update: int | None = raw["update"]
        return update

    def unsay(self, message: int, *, chat: int | None = None) -> None:
        self.telegram.call("unsay", name=self.name, message=message, chat=chat)

    def press(self, label: str, *, message: int | None = None, chat: int | None = None) -> str:
        """Press a button, on the newest message that has it unless one is named; return the id of the press."""
        if message is None:
            having = [seen.id for seen in self.messages(chat=chat) if label in seen.labels]
            if not having:
                raise AssertionError(f"there is no button {label!r} in the chat:\n{self.chat_text(chat=chat)}")
            message = having[-1]
        raw = self.telegram.call("press", name=self.name, message=message, label=label, chat=chat)
        return str(raw["press"])

    def block(self, blocked: bool = True) -> None:
        self.telegram.call("block", name=self.name, blocked=blocked)

    # -- looking ---------------------------------------------------------------------------------------------------

    def look(self, *, chat: int | None = None) -> Json:
        """Return the chat with its version, the bot's action and the pop-ups."""
        seen: Json = self.telegram.call("look", name=self.name, chat=chat)
        return seen

    def messages(self, *, chat: int | None = None) -> list[SeenMessage]:
        return [SeenMessage(**raw) for raw in self.look(chat=chat)["messages"]]

    def replies(self, *, after: int = 0, chat: int | None = None) -> list[SeenMessage]:
        """Return the messages of the bot after a message."""
        return [seen for seen in self.messages(chat=chat) if seen.bot and seen.id > after]

    def typing(self, *, chat: int | None = None) -> bool:
        return bool(self.look(chat=chat)["action"])

    def toasts(self, *, chat: int | None = None) -> list[str]:
        """Return the pop-ups after button presses."""
        return [toast["text"] for toast in self.look(chat=chat)["toasts"]]

    def chat_text(self, *, chat: int | None = None) -> str:
        lines = [f"{seen.id:>4} {seen.sender}: {seen.text}" for seen in self.messages(chat=chat)]
        return "\n".join(lines) or "(nothing)"

    # -- waiting ---------------------------------------------------------------------------------------------------

    def expect(self, words: str, *, after: int = 0, within: float = WITHIN, chat: int | None = None) -> SeenMessage:
        """Wait for a message of the bot that contains the words, sent or edited; return it."""
        return until(lambda: self._saying(words, after, chat), self._missing(words, within, chat), within)

    async def expect_async(
        self, words: str, *, after: int = 0, within: float = WITHIN, chat: int | None = None
    ) -> SeenMessage:
        missing = self._missing(words, within, chat)
        return await until_async(lambda: self._saying(words, after, chat), missing, within)

    def expect_silence(self, seconds: float = 0.5, *, after: int = 0, chat: int | None = None) -> None:
        """Check that the bot sends nothing after a message for this time."""
        time.sleep(seconds)
        heard = self.replies(after=after, chat=chat)
        if heard:
            raise AssertionError(f"the bot should have said nothing, but:\n{self.chat_text(chat=chat)}")

    def _saying(self, words: str, after: int, chat: int | None) -> SeenMessage | None:
        fitting = [seen for seen in self.replies(after=after, chat=chat) if words in seen.text]
        return fitting[-1] if fitting else None

    def _missing(self, words: str, within: float, chat: int | None) -> Callable[[], str]:
        return lambda: f"the bot did not say {words!r} within {within:g} s; the chat:\n{self.chat_text(chat=chat)}"


class RemoteTelegram(TelegramControl):
    """Controls a fake in another process over HTTP. Close it when done."""

    def __init__(self, address: str, token: str) -> None:
        import httpx2

        self.address = address
        self.token = token
        self._http = httpx2.Client(base_url=f"{address}/control/bot{token}/", timeout=40.0, trust_env=False)

    def call(self, verb: str, /, **fields: Any) -> Any:
        answer = self._http.post(verb, json=fields)
        body = answer.json()
        if not body["ok"]:
            raise RuntimeError(f"the fake Telegram refuses {verb}: {body['description']}")
        return body["result"]

    def watch(self, name: str, *, version: int, chat: int | None = None, within: float = 25.0) -> Json:
        """Return the chat like `look`, once its version differs, or after `within` seconds."""
        seen: Json = self.call("watch", name=name, chat=chat, version=version, within=within)
        return seen

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def until(condition: Callable[[], Seen | None], failure: Callable[[], str], within: float) -> Seen:
    """Return the first true result of the condition. Raises `AssertionError` with the text of `failure`."""
    deadline = time.monotonic() + within
    while not (seen := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(failure())
        time.sleep(_PAUSE)
    return seen


async def until_async(condition: Callable[[], Seen | None], failure: Callable[[], str], within: float) -> Seen:
    deadline = time.monotonic() + within
    while not (seen := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(failure())
        await asyncio.sleep(_PAUSE)
    return seen
