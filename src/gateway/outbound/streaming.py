"""Shows an answer in its chat while the model writes it: `ChatStream`, its `Draft` message, and the typing indicator.

`ChatStream` watches a turn. It sends the beginning of the answer, then edits the same message, also across tool calls,
whose lines appear between the texts. At the end the deliverer edits the message to exactly the stored text. Where a
platform cannot edit, or streaming is off, the chat only shows the typing indicator.

The settings (`Display`) come from `streaming:` and `display:`; `display.platforms.<name>` is for that platform alone.
Answers stream wherever the platform can edit a message, unless the configuration says otherwise. hermes-agent's default
is off, ours is on, because a person who looks at an empty chat for a minute writes again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from gateway.outbound import send_item
from gateway.outbound.deliverer import Deliverer
from gateway.outbound.send_item import DeliveryProgress, deleted, note, pieces, thread_of
from gateway.platforms.base import BasePlatformAdapter, Outgoing, SendResult, whole_sentence
from gateway.retry import set_within
from gateway.turns import reply
from hermes_agent.text import brief
from hermes_config import accounts
from hermes_config.sections import PlatformDisplay
from hermes_state.errors import StateError
from hermes_state.storage.base import Connection
from hermes_state.storage.writer import look, queued
from hermes_state.turns.outbox import NewOutboxItem, OutboxItem, answer_key
from hermes_state.turns.turns import Work

if TYPE_CHECKING:
    from gateway.services import Services

log = logging.getLogger("hermes.gateway")


@dataclass(frozen=True, slots=True, kw_only=True)
class Display:
    streams: bool
    interval: float
    """The least seconds between two edits of a message."""
    threshold: int
    """How many characters, if no sentence is complete after `_SENTENCE_SECONDS`, before anything is shown."""
    cursor: str
    tool_lines: str
    preview_chars: int


def of(services: Services, adapter: BasePlatformAdapter) -> Display:
    """The display settings for an adapter's platform. Answers stream unless the configuration says otherwise."""
    streaming, name, display = services.settings.streaming, adapter.platform.value, services.config.display
    own = accounts.told(display.platforms, name, PlatformDisplay())
    streams = (streaming.enabled or not streaming.chosen) if own.streaming is None else own.streaming
    return Display(
        streams=adapter.supports_edit and streaming.transport != "off" and streams,
        interval=max(streaming.edit_interval, adapter.edit_seconds),
        threshold=streaming.buffer_threshold,
        cursor=streaming.cursor,
        tool_lines=own.tool_progress or display.tool_progress or adapter.tool_lines,
        preview_chars=own.tool_preview_length or display.tool_preview_length,
    )


_TYPING_SECONDS = 0.3
"""A turn that ends sooner shows no typing indicator, and costs the platform no request."""
_EVERY = 4.0
_ONE_CALL = 1.5


class TypingSign:
    """The typing indicator: `start()` … `stop()`; both are quick and may be called twice.

    It is sent again every few seconds, because platforms let it fade; not while the turn waits for a person. An
    indicator that fails or hangs is ignored.
    """

    def __init__(
        self,
        adapter: BasePlatformAdapter,
        chat_id: str,
        thread_id: str | None = None,
        *,
        most_seconds: float,
        every: float = _EVERY,
    ) -> None:
        self._adapter = adapter
        self._chat_id = chat_id
        self._thread_id = thread_id
        self._most_seconds = most_seconds
        self._every = every
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._held = False

    def start(self) -> None:
        if self._timer is None and self._adapter.supports_typing and self._adapter.config.typing_indicator:
            self._timer = asyncio.get_running_loop().call_later(min(_TYPING_SECONDS, self._every), self._begin)

    def _begin(self) -> None:
        self._task = asyncio.create_task(self._repeat(), name="typing sign")

    def hold(self, held: bool) -> None:
        """Pause the indicator while the turn waits for a person."""
        self._held = held

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _repeat(self) -> None:
        clock = asyncio.get_running_loop().time
        end = clock() + self._most_seconds
        while clock() < end:
            if not self._held:
                await self._show()
            await asyncio.sleep(self._every)

    async def _show(self) -> None:
        """The error boundary of an adapter call that nobody waits for."""
        try:
            async with asyncio.timeout(_ONE_CALL):
                await self._adapter.send_typing(self._chat_id, self._thread_id)
        except TimeoutError:
            log.debug("the typing indicator took too long", extra={"action": "typing.slow"})
        except Exception as error:
            log.debug("the typing indicator failed", exc_info=error, extra={"action": "typing.failed"})


_LATE_SECONDS = 10.0
"""An edit without an answer for so long may still be made, behind later ones. Connections break sooner."""
_DRAFT_SECONDS = 0.2
"""An answer that is complete sooner is not shown in parts."""


class Draft:
    """The chat message that shows a growing answer: it shows `text()` after each call of `changed`, until `settle`.

    It is one outbox item from the first word on: a draft under the key of the turn's answer, stored before anything is
    sent (`send_item`). When the turn ends, the same item becomes the answer; the deliverer asks the draft to settle and
    edits the messages to the final text. After a crash the recovered turn finds the item by its key and edits the same
    message. When a question is asked in the chat meanwhile, the messages above it are deleted and sent again below it,
    where people look by then.

    No error here reaches the turn. When a platform says "too often", the draft pauses as long as the platform asks, and
    after `limits.stream_floods` such pauses until the end. After an edit that timed out the final text is sent as a new
    message, and the edit, if it is made after all, finds nothing. A long message begins with its first sentence alone,
    which is sent again when the platform did not answer: the earlier copy, if it arrived, is a stray, and is counted.
    """

    def __init__(
        self,
        services: Services,
        adapter: BasePlatformAdapter,
        new_item: NewOutboxItem,
        display: Display,
        text: Callable[[], str],
    ) -> None:
        self._services = services
        self._db = services.db
        self._adapter = adapter
        self._new_item = new_item
        self._display = display
        self._text = text
        self._item: OutboxItem | None = None
        self._progress = DeliveryProgress()
        self._floods = 0
        self._behind = False
        """The chat gets other outbox items first."""
        self._gives_way = False
        """A question is open in the chat: nothing is shown until it is answered."""
        self._above = False
        """The draft's messages are above a question, and have to be deleted."""
        self._changed = asyncio.Event()
        self._over = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def stands(self) -> bool:
        """Whether a message of the draft is, or may be, in the chat."""
        return bool(self._progress.ids or self._progress.repeat)

    def changed(self) -> None:
        """Show the new text soon."""
        self._changed.set()
        if self._timer is None and not self._over.is_set():
            self._timer = asyncio.get_running_loop().call_later(_DRAFT_SECONDS, self._begin)

    def give_way(self, waits: bool) -> None:
        """Make way for a question in the chat (`waits`), or go on after its answer."""
        self._gives_way = waits
        self._above = self._above or waits
        if self._task is not None:
            self._changed.set()

    def _begin(self) -> None:
        self._task = asyncio.create_task(self._show(), name="draft")

    async def settle(self) -> DeliveryProgress | None:
        """Show nothing more, and return the progress once the platform has answered the last request.

        None: this process showed nothing, so only the item's row knows, which a dead process may have written.
        """
        self._over.set()
        self._changed.set()
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            await asyncio.wait({self._task})
        if self._item is None:
            return None
        with contextlib.suppress(StateError):  # the row may name deleted messages: the deliverer finds that out
            await self._take_away()
        return replace(self._progress, ids=[*self._progress.ids], live=True, noted=None)

    # -- the loop ----------------------------------------------------------------------------------------

    async def _show(self) -> None:
        """Show the text until `settle`. This is the draft's error boundary: if the store fails, the turn goes on."""
        try:
            while not self._over.is_set():
                self._changed.clear()
                if not await self._bring_up_to_date():
                    return
                chat = self._new_item.chat_id
                least = max(self._display.interval, self._adapter.edit_pause(chat), self._adapter.flood.left(chat))
                pause = least if self._item else _DRAFT_SECONDS
                # What waits for the end of a sentence is shown in the end, also when nothing follows.
                await (self._changed.wait() if self._item else set_within(self._changed, _SENTENCE_SECONDS))
                await set_within(self._over, pause)
        except StateError as error:
            log.warning("a draft is no longer updated: %s", error, extra={"action": "draft.store"})

    async def _bring_up_to_date(self) -> bool:
        """Show new text; False when the draft should stop."""
        await self._take_away()
        text = self._text()
        if not text or self._gives_way:
            return True
        parts = pieces(self._adapter, text, grows=True, end=self._display.cursor)[: self._db.limits.stream_messages]
        if not parts:
            return True
        if self._item is None and not await self._open_item():
            return self._behind
        progress = self._progress
        for number, piece in enumerate(parts):
            if number < len(progress.shown) and progress.shown[number] == piece:
                continue
            done = await (self._edit(number, piece) if number < len(progress.ids) else self._send(number, piece))
            if not done:
                return self._floods < self._db.limits.stream_floods
        return True

    async def _take_away(self) -> None:
        """Delete the messages above a question, newest first; a message that cannot be deleted is edited as before."""
        progress = self._progress
        above, self._above = self._above and not progress.repeat, False
        if not above or not progress.ids:
            return
        chat, thread, seconds = self._new_item.chat_id, thread_of(self._new_item.payload), self._db.limits.send_seconds
        while progress.ids and await deleted(self._adapter, chat, progress.ids[-1], thread_id=thread, seconds=seconds):
            del progress.ids[-1], progress.shown[-1]
        await self._note(None)

    async def _open_item(self) -> bool:
        """Make the item, or find the one of a dead process; False when its turn has ended, or it has to wait."""
        item: OutboxItem | None = await queued(self._db.engine, self._drafted)
        self._behind = item is None
        if item is None:
            self._changed.set()  # try again, even without new text
            return False
        if item.state != "draft":
            return False
        self._item = item
        self._progress = DeliveryProgress.of(item)
        self._progress.shown = [""] * len(self._progress.ids)
        return not self._progress.repeat

    def _drafted(self, conn: Connection) -> OutboxItem | None:
        """The item, and in the same commit the note that its first message is being sent.

        None while the chat still gets earlier items, above which this would appear, and when the turn has just ended,
        because its commit could not see the draft.
        """
        outbox = self._db.outbox
        if not outbox.may_show_in(conn, self._new_item):
            return None
        item = outbox.draft_in(conn, self._new_item)
        if item.state == "draft" and item.draft is None:
            outbox.progress_in(conn, item, platform_ids=(), draft=note(under_way=0, live=True))
        return item

    # -- on the platform ---------------------------------------------------------------------------------

    async def _edit(self, number: int, piece: str) -> bool:
        chat, thread, message_id = self._new_item.chat_id, thread_of(self._new_item.payload), self._progress.ids[number]
        began = asyncio.get_running_loop().time()
        result = await self._answered(lambda: self._adapter.edit_message(chat, message_id, piece, thread_id=thread))
        if result.success:
            self._progress.shown[number] = piece
        elif result.error_kind == "not_found":  # somebody deleted it: the answer will be a new message
            del self._progress.ids[number:], self._progress.shown[number:]
            self._floods = self._db.limits.stream_floods
        elif not result.not_sent and asyncio.get_running_loop().time() - began > _LATE_SECONDS:
            self._progress.late = min(number, number if self._progress.late is None else self._progress.late)
            self._floods = self._db.limits.stream_floods
            await self._note(len(self._progress.ids) if self._progress.repeat else None)
        return result.success

    async def _send(self, number: int, piece: str) -> bool:
        progress = self._progress
        if progress.noted != number:  # the first one was noted with the row itself
            await self._note(number)
        if progress.repeat:
            self._services.metrics.deliveries(self._new_item.platform, "stray").inc()
        payload, mode, chat = self._new_item.payload, self._adapter.config.reply_to_mode, self._new_item.chat_id
        reply_to = payload.get("reply_to") if mode == "all" or (mode == "first" and number == 0) else None
        first = self._adapter.beginning(piece)
        assert self._item is not None, "an item is opened before anything is sent"
        key = send_item.sent_key(self._item, number)
        message = Outgoing(text=first, reply_to=reply_to, thread_id=thread_of(payload), key=key)
        result = await self._answered(lambda: self._adapter.send(chat, message))
        if not result.success and not (
            result.not_sent or result.error_kind in ("rate_limited", "forbidden", "not_found")
        ):
            progress.repeat = True  # it may have arrived; the row notes that it was being sent
            self._changed.set()
            if first == piece:  # a second copy of a short answer needs a mark, which the deliverer adds
                self._floods = self._db.limits.stream_floods
            return False
        if result.success:
            progress.ids.append(result.message_id or "")
            progress.shown.append(first)
            progress.repeat = False
            if first != piece:
                self._changed.set()
        await self._note(number if progress.repeat else None)
        return result.success

    async def _answered(self, call: Callable[[], Awaitable[SendResult]]) -> SendResult:
        result = await send_item.request(
            self._adapter, self._new_item.chat_id, call, seconds=self._db.limits.send_seconds
        )
        if not result.success:
            self._floods += 1
        return result

    async def _note(self, under_way: int | None) -> None:
        item, ids = self._item, tuple(self._progress.ids)
        assert item is not None
        written = note(under_way=under_way, live=True, late=self._progress.late)
        await queued(
            self._db.engine, lambda conn: self._db.outbox.progress_in(conn, item, platform_ids=ids, draft=written)
        )
        self._progress.noted = under_way


_SENTENCE_SECONDS = 2.0
"""How long a first sentence that goes on is waited for. The phone shows as notification what is sent first."""


class ChatStream:
    """The `Watcher` that shows one turn in its chat. `began` may be called for a recovered turn first."""

    def __init__(
        self,
        services: Services,
        adapter: BasePlatformAdapter,
        deliverer: Deliverer,
        *,
        chat_id: str,
        account: str = "",
        thread_id: str | None = None,
        reply_to: str | None = None,
    ) -> None:
        self._services = services
        self._adapter = adapter
        self._deliverer = deliverer
        self._display = of(services, adapter)
        self._chat = {"chat_id": chat_id, "platform": adapter.platform.value, "account": account}
        self._payload = {"kind": "answer", "thread_id": thread_id, "reply_to": reply_to}
        self._sign = TypingSign(adapter, chat_id, thread_id, most_seconds=services.db.limits.typing_seconds)
        self._key = ""
        self._draft: Draft | None = None
        self._story = _Story(self._display)

    @property
    def shown(self) -> str:
        """The part of the answer that is, or may be, in the chat; empty when there is none."""
        stands = self._draft is not None and self._draft.stands
        return (self._story.said() or "…") if stands else ""

    def asking(self, waits: bool, here: bool) -> None:
        """Hide the typing indicator, and text above the question, while the turn waits for a person."""
        self._sign.hold(waits)
        if here and self._draft is not None:
            self._draft.give_way(waits)

    # -- as a watcher ------------------------------------------------------------------------------------

    def began(self, work: Work) -> None:
        self._sign.start()
        if self._draft is not None:
            self._deliverer.background(self._draft.settle())
        self._story = _Story(self._display)
        self._key = answer_key(work.turn.id)
        self._draft = None
        if not (self._display.streams and self._is_answered_here(work)):
            return
        new_item = NewOutboxItem(
            dedup_key=self._key,
            conversation_id=work.turn.conversation_id,
            turn_id=work.turn.id,
            trace_id=work.turn.trace_id,
            payload={"text": "", **{name: value for name, value in self._payload.items() if value is not None}},
            chat_id=self._chat["chat_id"],
            platform=self._chat["platform"],
            account=self._chat["account"],
        )
        self._draft = Draft(self._services, self._adapter, new_item, self._display, self._story.text)
        self._deliverer.showing(self._key, self._draft)

    def delta(self, text: str) -> None:
        self._story.say(text)
        self._changed()

    def broke_off(self) -> None:
        self._story.again()

    def step(self) -> None:
        self._story.close()

    def tool(self, event: str, name: str, preview: str, *, duration: float | None, failed: bool) -> None:
        if self._story.tool(event, name, preview, duration=duration, failed=failed):
            self._changed()

    def status(self, kind: str, text: str) -> None:
        if self._display.tool_lines == "verbose":
            self._story.line(f"_{_plain(text, 200)}_")
            self._changed()

    def ended(self, result: dict[str, Any]) -> None:
        self._sign.stop()
        if self._draft is None or result.get("outbox_item") is not None:
            return  # the deliverer settles it
        self._deliverer.forget(self._key)
        self._deliverer.background(self._leave(self._draft, self._story.said()))

    def left(self) -> None:
        """Show nothing more: the turn broke off here, and another process may continue it."""
        self._sign.stop()
        if self._draft is not None:
            self._deliverer.forget(self._key)
            self._deliverer.background(self._draft.settle())

    def _is_answered_here(self, work: Work) -> bool:
        """Whether the turn answers in this chat: one route may have two chats, if a person has two ids there."""
        row = work.inbox[-1] if work.inbox else None
        return row is None or row.chat_id == self._chat["chat_id"]

    def _changed(self) -> None:
        if self._draft is not None:
            self._draft.changed()

    async def _leave(self, draft: Draft, said: str) -> None:
        """The turn has no answer: keep the shown text, without the cursor. Of what a dead process showed nobody knows
        the text, so that is deleted."""
        standing = await draft.settle()
        if standing is None:
            db = self._services.db
            item = await look(db, db.outbox.find, self._key)
            standing = DeliveryProgress.of(item) if item is not None and item.state == "dropped" else None
        if standing is None or not standing.ids:
            return
        chat, seconds = self._chat["chat_id"], self._services.db.limits.send_seconds
        pieces, thread = send_item.pieces(self._adapter, said), thread_of(self._payload)
        for number, message_id in enumerate(standing.ids):
            if number < len(pieces):
                edit = partial(
                    self._adapter.edit_message, chat, message_id, pieces[number], thread_id=thread, finalize=True
                )
                await send_item.request(self._adapter, chat, edit, seconds=seconds)
            else:
                await send_item.deleted(self._adapter, chat, message_id, thread_id=thread, seconds=seconds)


class _Story:
    """The texts and tool lines of a turn, in order."""

    def __init__(self, how: Display) -> None:
        self._how = how
        self._before: list[str] = []
        self._current: list[str] = []
        self._last_tool = ""
        self._began: float | None = None
        self._ready = False

    def say(self, text: str) -> None:
        self._began = self._began or time.monotonic()
        self._current.append(text)

    def again(self) -> None:
        """Drop the text since the last step, because the model writes it again."""
        self._current.clear()

    def close(self) -> None:
        """End the current text, before the next tool calls."""
        text = "".join(self._current).strip()
        self._current.clear()
        self._last_tool = ""
        if text:
            self._before.append(text)

    def line(self, text: str) -> None:
        self.close()
        self._before.append(text)

    def tool(self, event: str, name: str, preview: str, *, duration: float | None, failed: bool) -> bool:
        """Add a line for a tool event; False when the settings hide it."""
        how = self._how.tool_lines
        if how == "off" or event not in ("tool.started", "tool.completed"):
            return False
        if event == "tool.completed":
            if not failed and how != "verbose":
                return False
            took = "" if duration is None else f" · {duration:.1f} s"
            return self._tool_line(f"{'✗' if failed else '✓'} {_plain(name, 40)}{took}", name)
        if how == "new" and name == self._last_tool:
            return False
        shown = _plain(preview, self._how.preview_chars)
        return self._tool_line(f"⚙ {_plain(name, 40)}" + (f" `{shown}`" if shown else ""), name)

    def _tool_line(self, text: str, name: str) -> bool:
        together = bool(self._last_tool) and not self._current
        self.close()
        if together:
            self._before[-1] += f"\n{text}"
        else:
            self._before.append(text)
        self._last_tool = name
        return True

    def said(self) -> str:
        """All texts and lines, without a silence marker or the beginning of one."""
        current = "".join(self._current).strip()
        parts = [*self._before, *([current] if current and not reply.may_be_silence(current) else [])]
        return "\n\n".join(parts)

    def text(self) -> str:
        """The text to show now; empty while its first sentence goes on."""
        text = self.said()
        if not self._ready and text:
            waited = self._began is not None and time.monotonic() - self._began > _SENTENCE_SECONDS
            enough = waited and len(text) >= self._how.threshold
            self._ready = bool(self._before) or enough or bool(whole_sentence("".join(self._current).lstrip()))
        return text if self._ready else ""


def _plain(text: str, most: int) -> str:
    """One line without backticks and line breaks."""
    return brief(text.replace("`", "'"), most)
