"""A chat platform that exists in memory only: a real adapter, for tests of whatever stands behind one.

    adapter = PretendAdapter()
    adapter.set_message_handler(intake…)
    await adapter.say("hello", user="42")
    assert (await adapter.heard(1))[0].text == "…"

People's side is `say`, `press`, `chat` and `heard`. What the platform does with each piece can be scripted: `script` is
a list of `SendResult`s or exceptions that the next sends and edits use up, one each. A message is found only in the
thread that it was sent to. It knows nothing of flood control or formats; the strict fakes of real platforms do.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gateway.config import Platform, PlatformConfig
from gateway.platforms.base import (
    Answer,
    Attachment,
    BasePlatformAdapter,
    Button,
    Health,
    MessageEvent,
    MessageType,
    Outgoing,
    OutgoingFile,
    Receipt,
    SendResult,
)
from gateway.session import SessionSource
from hermes_state.turns.cursors import CursorMove


@dataclass(slots=True)
class Shown:
    """A message that Hermes sent, as the chat shows it now."""

    id: str
    chat_id: str
    text: str
    thread_id: str | None = None
    reply_to: str | None = None
    buttons: tuple[tuple[Button, ...], ...] = ()
    file: Path | None = None
    album: str = ""
    """The id of the first file of its batch."""
    only_for: str | None = None
    """The one person who sees it."""
    versions: list[str] = field(default_factory=list)
    """All its texts, from the first on."""


class PretendAdapter(BasePlatformAdapter):
    """One account on a platform in memory."""

    supports_typing = True
    supports_buttons = True
    tool_lines = "off"

    def __init__(
        self,
        config: PlatformConfig | None = None,
        platform: Platform = Platform.TELEGRAM,
        *,
        edits: bool = False,
        limit: int = 4096,
        delay: float = 0.0,
        album: int = 1,
        to_one: bool = False,
    ) -> None:
        """`edits`: answers may stream. `delay`: how long the platform takes for each piece. `album`: how many files it
        takes at once. `to_one`: it can show a message to one person."""
        super().__init__(config or PlatformConfig(enabled=True), platform)
        self.supports_edit = edits
        self.means = "edit" if edits else "none"
        self.edit_seconds = 0.0
        self.MAX_MESSAGE_LENGTH = limit
        self.delay = delay
        self.album = album
        self.shows_to_one = to_one
        self.connected = False
        self.connects: bool = True
        """The result of `connect`."""
        self.messages: list[Shown] = []
        self.begun = 0
        """How many sends and edits have reached the platform, answered or not."""
        self.typed: list[str] = []
        """Chats that were shown "typing"."""
        self.script: list[SendResult | BaseException] = []
        self.files: dict[str, bytes] = {}
        """The files that can be fetched, by `Attachment.ref`."""
        self._ids = itertools.count(1)
        self._inbound = itertools.count(1)
        self._news = asyncio.Condition()

    # -- the contract ------------------------------------------------------------------------------------

    async def connect(self, *, is_reconnect: bool = False) -> bool:
        self.connected = self.connects
        return self.connected

    async def disconnect(self) -> None:
        self.connected = False

    def health(self) -> Health:
        return Health(problem="" if self.connected else "not connected")

    async def open_private_chat(self, user_id: str) -> str | None:
        return user_id

    async def send(self, chat_id: str, message: Outgoing) -> SendResult:
        shown = Shown(
            "", chat_id, message.text, message.thread_id, message.reply_to, buttons=message.buttons,
            only_for=message.only_for,
        )  # fmt: skip
        return await self._put(shown)

    async def send_file(self, chat_id: str, message: Outgoing) -> SendResult:
        path = None if message.file is None else message.file.path
        return await self._put(Shown("", chat_id, message.text, message.thread_id, file=path))

    def together(self, files: Sequence[OutgoingFile]) -> int:
        return min(self.album, len(files))

    async def send_files(self, chat_id: str, messages: Sequence[Outgoing]) -> Sequence[SendResult]:
        """All of them or none; the script has one step for the batch."""
        refused, first = await self._scripted(), len(self.messages)
        if refused is None or (refused.error_kind == "transient" and not refused.not_sent):
            for message in messages:
                shown = Shown(
                    str(next(self._ids)), chat_id, message.text, message.thread_id, versions=[message.text],
                    file=None if message.file is None else message.file.path,
                )  # fmt: skip
                shown.album = self.messages[first].id if len(self.messages) > first else shown.id
                self.messages.append(shown)
            await self._tell()
        if refused is not None:
            return [refused]
        return [SendResult(success=True, message_id=shown.id) for shown in self.messages[first:]]

    async def edit_message(
        self, chat_id: str, message_id: str, content: str, *, thread_id: str | None = None, finalize: bool = False
    ) -> SendResult:
        refused = await self._scripted()
        if refused is not None and not refused.success:
            return refused
        for shown in self.messages:
            if (shown.chat_id, shown.thread_id, shown.id) == (chat_id, thread_id, message_id):
                shown.text = content
                shown.versions.append(content)
                await self._tell()
                return SendResult(success=True, message_id=message_id)
        return SendResult(success=False, error="message to edit not found", error_kind="not_found", not_sent=True)

    async def delete_message(self, chat_id: str, message_id: str, *, thread_id: str | None = None) -> bool:
        before = len(self.messages)
        gone = (chat_id, thread_id, message_id)
        self.messages = [one for one in self.messages if (one.chat_id, one.thread_id, one.id) != gone]
        return len(self.messages) < before

    async def send_typing(self, chat_id: str, thread_id: str | None = None) -> None:
        self.typed.append(chat_id)

    async def fetch(self, attachment: Attachment, target: Path, *, limit: int) -> None:
        content = self.files[attachment.ref]
        if len(content) > limit:
            raise ValueError(f"{attachment.ref} is larger than {limit} bytes")
        await asyncio.to_thread(target.write_bytes, content)

    async def _put(self, shown: Shown) -> SendResult:
        scripted = await self._scripted()
        if scripted is not None and not scripted.success and scripted.error_kind != "transient":
            return scripted
        # A time-out is the case in which the platform did it and we do not hear of it, unless it says `not_sent`.
        if scripted is None or not scripted.not_sent:
            self.messages.append(replace(shown, id=str(next(self._ids)), versions=[shown.text]))
            await self._tell()
        return scripted or SendResult(success=True, message_id=self.messages[-1].id)

    async def _scripted(self) -> SendResult | None:
        self.begun += 1
        if self.delay:
            await asyncio.sleep(self.delay)
        if not self.script:
            return None
        step = self.script.pop(0)
        if isinstance(step, BaseException):
            raise step
        return None if step.success and step.message_id is None else step

    async def _tell(self) -> None:
        async with self._news:
            self._news.notify_all()

    # -- people's side -----------------------------------------------------------------------------------

    def source(
        self, user: str = "42", *, chat: str | None = None, group: bool = False, name: str = "", **more: Any
    ) -> SessionSource:
        chat_id = chat if chat is not None else ("-100" if group else user)
        return SessionSource(
            platform=self.platform, chat_id=chat_id, chat_type="group" if group else "dm", user_id=user,
            user_name=name or f"user {user}", **more,
        )  # fmt: skip

    def event(
        self,
        text: str,
        user: str = "42",
        *,
        message_id: str | None = None,
        chat: str | None = None,
        group: bool = False,
        name: str = "",
        at: float | None = None,
        source: SessionSource | None = None,
        **more: Any,
    ) -> MessageEvent:
        kind = MessageType.COMMAND if text.startswith("/") else MessageType.TEXT
        more.setdefault("message_type", kind)
        more.setdefault("mentions_us", group)
        return MessageEvent(
            text=text,
            source=source or self.source(user, chat=chat, group=group, name=name),
            message_id=message_id or f"in-{next(self._inbound)}",
            timestamp=None if at is None else datetime.fromtimestamp(at, tz=UTC),
            **more,
        )

    async def say(self, text: str, user: str = "42", *, cursor: CursorMove | None = None, **more: Any) -> Receipt:
        """Let a person write a message; return its receipt."""
        return await self.receive(self.event(text, user, **more), cursor=cursor)

    async def press(self, button: Button, user: str = "42", **more: Any) -> Receipt:
        """Let a person press a button."""
        return await self.answer(button.answer, user, **more)

    async def answer(self, answer: Answer, user: str = "42", **more: Any) -> Receipt:
        return await self.receive(self.event("", user, answer=answer, **more))

    def chat(self, chat_id: str = "42") -> list[str]:
        """Return the messages of Hermes in a chat, in order."""
        return [shown.text for shown in self.messages if shown.chat_id == chat_id]

    async def heard(self, count: int, chat_id: str | None = None, *, seconds: float = 10.0) -> list[Shown]:
        """Wait for at least this many messages of Hermes in a chat."""

        def there() -> list[Shown]:
            return [shown for shown in self.messages if chat_id in (None, shown.chat_id)]

        async with asyncio.timeout(seconds), self._news:
            await self._news.wait_for(lambda: len(there()) >= count)
        return there()
