"""One outbox item to one adapter: its pieces in order, what became of it, and what is known of it after a crash.

The pieces of a text are a pure function of it, so an item that was cut off goes on by number; its files come behind
them. An answer must be present in the chat, and must not stand there twice without saying so. How that is kept after a
send that nobody answered depends on the means that the platform's descriptor names:

- `edit`: of an answer longer than `SHORT` characters only the first sentence of each piece is sent, and an edit, which
  is safe to repeat, brings in the rest. A first sentence whose sending is unknown is sent again; the one that may stand
  above it is a *stray*, which is counted.
- `key`: the platform takes the same message twice as one, by a key; it is sent again with the same key.
- `lookup`: the platform is asked whether the message is there before it is sent again.
- `none`, and with `edit` what is short, no answer of the model, or a file: sent again with a mark (`REPEATED`). With
  `delivery.on_unknown: ask` it stays unknown, and a person decides.

An item's note (`OutboxItem.draft`) says what a crash would leave open. `under_way`: the number of the message that is
being sent; without a note it is the first one, which the claim says. `live`: the messages that stand there show less
than the item, because it was still being made or was being filled by edits; the first `done` of them are complete.
`repeat`: what was under way may have arrived. `allowed`: a person had it sent again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from gateway.platforms.base import (
    SHORT,
    Answer,
    BasePlatformAdapter,
    Button,
    Outgoing,
    OutgoingFile,
    SendResult,
)
from hermes_config import redaction
from hermes_config.limits import Limits
from hermes_state.turns.outbox import SENDING_SECONDS, OutboxItem

log = logging.getLogger("hermes.gateway")

REPEATED = "(repeated: an earlier copy may have arrived)"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryProgress:
    ids: Sequence[str] = ()
    """The platform's ids of our messages, in order."""
    shown: Sequence[str] = ()
    """What they say, as far as this process knows."""
    live: bool = False
    """The messages show less than the item says, so they have to be brought to their final text."""
    done: int = 0
    """So many of them have their final text."""
    repeat: bool = False
    """The next message may have arrived already."""
    allowed: bool = False
    """A person had it sent again."""
    noted: bool = False
    """The item's row has a note."""

    @classmethod
    def of(cls, item: OutboxItem) -> DeliveryProgress:
        """What the row knows."""
        note = item.draft
        if note is None:
            return cls(ids=item.platform_ids)
        live = bool(note.get("live"))
        # A draft's message whose sending was not answered is noted as under way, and stays so when the turn has ended.
        repeat = bool(note.get("repeat")) or (live and note.get("under_way") is not None)
        return cls(
            ids=item.platform_ids, live=live, done=int(note.get("done") or 0), repeat=repeat,
            allowed=bool(note.get("allowed")), noted=True,
        )  # fmt: skip


def note(*, under_way: int | None, live: bool = False, done: int = 0, repeat: bool = False) -> Mapping[str, Any]:
    """As it is kept with the item."""
    return {"under_way": under_way, "live": live, "done": done, "repeat": repeat}


def after_loss(item: OutboxItem) -> Mapping[str, Any]:
    """The note of an item whose sender died, or had no answer: what was under way may have arrived."""
    kept = item.draft or note(under_way=len(item.platform_ids))
    return {**kept, "repeat": kept.get("under_way") is not None, "allowed": False}


State = Literal["sent", "later", "again", "waits", "failed", "unknown", "lost"]
"""`later`: tried and certainly not there. `again`: it may be there, and is sent again. `unknown`: it may be there, and
a person decides. `waits`: there was nobody to hand it to, which counts as no attempt. `lost`: the item is not ours any
more."""

_ELSEWHERE = "(continued above)"

Progress = Callable[..., Awaitable[bool]]
"""`progress(item, platform_ids=…, draft=…, seconds=…)`, durable when it returns; False: it is not ours any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryOutcome:
    state: State
    ids: Sequence[str] = ()
    error: str = ""
    seconds: float | None = None
    """When the platform said how long to wait."""
    gone: bool = False
    """The chat cannot be written to: nothing else would arrive there either."""
    strays: int = 0
    """First sentences that were sent again and may stand there twice."""
    repeats: int = 0
    """Messages that were sent again with a mark."""


class _Stop(Exception):
    """The delivery ends here."""

    def __init__(self, verdict: DeliveryOutcome) -> None:
        self.verdict = verdict


async def request(
    adapter: BasePlatformAdapter, chat_id: str, call: Callable[[], Awaitable[SendResult]], *, seconds: float
) -> SendResult:
    """An adapter's answer, in time, and not while the platform wants to be left alone (`FloodWindow`).

    The named boundary around adapters: whatever they raise, it may have arrived.
    """
    if (left := adapter.flood.left(chat_id)) > 0:
        error = f"the platform asked for a pause of another {left:.0f} s"
        return SendResult(success=False, error=error, error_kind="rate_limited", retry_after=left, not_sent=True)
    try:
        async with asyncio.timeout(seconds):
            result = await call()
    except TimeoutError:
        return SendResult(success=False, error=f"no answer within {seconds:g} s", error_kind="transient")
    except Exception as error:  # an adapter may be anybody's code
        log.warning("an adapter raised: %s", type(error).__name__, exc_info=error, extra={"action": "adapter.raised"})
        return SendResult(success=False, error=f"the adapter failed: {type(error).__name__}", error_kind="transient")
    if result.error_kind == "rate_limited":
        adapter.flood.refused(chat_id, result.retry_after)
    return result


async def deleted(adapter: BasePlatformAdapter, chat_id: str, message_id: str, *, seconds: float) -> bool:
    """Whether a message of ours is gone, as far as we know."""

    async def call() -> SendResult:
        return SendResult(success=await adapter.delete_message(chat_id, message_id))

    return (await request(adapter, chat_id, call, seconds=seconds)).success


def pieces(adapter: BasePlatformAdapter, text: str, *, grows: bool = False, end: str = "") -> list[str]:
    """A text as messages of a chat, its secrets covered. The one way of a text into a chat.

    `grows`: more of it will come; what may be the beginning of a secret waits for it. `end`: stands behind it.
    """
    redact = redaction.current()
    if grows:
        text = text[: redact.settled(text)]
    text = redact(text)
    return adapter.pieces(f"{text}{end}") if text.strip() else []


def judge(result: SendResult, *, repeatable: bool) -> DeliveryOutcome:
    """What a result that is no success means. `repeatable`: doing it again does no harm, as with an edit."""
    error = (result.error or result.error_kind or "no reason given")[:500]
    kind = result.error_kind
    if kind == "rate_limited":
        return DeliveryOutcome(state="later", error=error, seconds=result.retry_after)
    if kind in ("forbidden", "not_found"):
        return DeliveryOutcome(state="failed", error=error, gone=True)
    if kind in ("bad_format", "too_long"):
        return DeliveryOutcome(state="failed", error=error)
    if result.not_sent and kind == "transient":
        return DeliveryOutcome(state="waits", error=error, seconds=result.retry_after)
    if result.not_sent and not result.retryable:
        return DeliveryOutcome(state="failed", error=error)
    if result.not_sent or repeatable:
        return DeliveryOutcome(state="later", error=error, seconds=result.retry_after)
    return DeliveryOutcome(state="unknown", error=error)


async def carry(
    item: OutboxItem,
    adapter: BasePlatformAdapter,
    standing: DeliveryProgress,
    *,
    progress: Progress,
    limits: Limits,
    ask: bool = False,
) -> DeliveryOutcome:
    """Deliver an item that is ours, from where it stands. `ask`: a person decides about what is unknown."""
    run = _Run(item, adapter, standing, progress, limits, ask)
    try:
        await run.texts()
        await run.files()
        verdict = DeliveryOutcome(state="sent")
        if not run.ids:
            verdict = DeliveryOutcome(state="failed", error="there is nothing in it to send")
    except _Stop as stop:
        verdict = stop.verdict
    return replace(verdict, ids=tuple(run.ids), strays=run.strays, repeats=run.repeats)


@dataclass(slots=True)
class _Run:
    item: OutboxItem
    adapter: BasePlatformAdapter
    standing: DeliveryProgress
    progress: Progress
    limits: Limits
    ask: bool
    ids: list[str] = field(init=False)
    done: int = field(init=False)
    """So many messages have their final text."""
    repeat: bool = field(init=False)
    """The next message may have arrived already."""
    noted: int | None = field(init=False)
    """The number that the row says is under way; a claim without a note says 0."""
    parts: list[str] = field(default_factory=list)
    _files: list[Mapping[str, Any]] = field(default_factory=list)
    strays: int = 0
    repeats: int = 0

    def __post_init__(self) -> None:
        can_edit = self.adapter.supports_edit or not self.standing.live
        self.ids = list(self.standing.ids) if can_edit else []
        self.done = min(self.standing.done, len(self.ids))
        self.repeat = self.standing.repeat
        self.noted = None if self.standing.noted or self.standing.ids else 0

    async def texts(self) -> None:
        text = str(self.item.payload.get("text") or "")
        self.parts = pieces(self.adapter, text) if text.strip() else []
        if self.standing.live:
            await self._bring_up_to_date()
        is_answer = self.item.payload.get("kind") == "answer" and not _buttons(self.item)
        by_edit = self.adapter.means == "edit" and is_answer and len(text) > SHORT
        for number in range(len(self.ids), len(self.parts)):
            first = self.adapter.beginning(self.parts[number]) if by_edit else ""
            if first and first != self.parts[number]:
                await self._fill(number, first)
            else:
                await self._whole(number)

    async def files(self) -> None:
        self._files = list(self.item.payload.get("files") or ())
        for number in range(len(self.ids), len(self.parts) + len(self._files)):
            await self._whole(number, seconds=self.limits.send_file_seconds)

    async def _fill(self, number: int, first: str) -> None:
        """Send the first sentence of a piece, then bring in the rest by an edit."""
        await self._intend(number)
        self.strays += self.repeat
        self._sent(await self._send_text(number, first), repeatable=True)
        await self._note(None, live=True)
        if not await self._edit(self.ids[-1], self.parts[number]):
            raise _Stop(DeliveryOutcome(state="later", error="the message could not be completed by an edit"))
        self.done = len(self.ids)

    async def _whole(self, number: int, *, seconds: float = 0) -> None:
        """Send one message whole; by the platform's means, or with a mark, when it may have arrived already."""
        means = self.adapter.means
        safe = means in ("key", "lookup")
        if self.repeat and self.ask and not safe and not self.standing.allowed:
            raise _Stop(DeliveryOutcome(state="unknown", error=self.item.error or "nobody knows whether it arrived"))
        if self.repeat and means == "lookup" and await self._is_there(number):
            return
        await self._intend(number, seconds=seconds)
        mark = REPEATED if self.repeat and not safe else ""
        self.repeats += bool(mark)
        if number < len(self.parts):
            result = await self._send_text(number, f"{mark}\n\n{self.parts[number]}" if mark else self.parts[number])
        else:
            result = await self._send_file(number, mark)
        self._sent(result, repeatable=safe or not self.ask)
        self.done = len(self.ids)

    async def _is_there(self, number: int) -> bool:
        """Whether the platform has the message already; then it counts as sent."""
        chat, since = self.item.chat_id, self.item.created_at
        found = await request(
            self.adapter, chat, lambda: self.adapter.find_sent(chat, self._message(number), since=since),
            seconds=self.limits.send_seconds,
        )  # fmt: skip
        if found.success:
            self._sent(found, repeatable=True)
        elif not found.not_sent:
            raise _Stop(DeliveryOutcome(state="later", error=found.error or "the platform did not say what is there"))
        return found.success

    def _sent(self, result: SendResult, *, repeatable: bool) -> None:
        """Count a message as sent, or stop. `repeatable`: if nobody knows whether it arrived, it is sent again."""
        if not result.success:
            verdict = judge(result, repeatable=False)
            again = repeatable and verdict.state == "unknown"
            raise _Stop(replace(verdict, state="again") if again else verdict)
        self.ids.append(result.message_id or "")
        self.repeat = False

    async def _bring_up_to_date(self) -> None:
        """Messages that show less than the final text are edited; those beyond it are taken away."""
        parts, shown = self.parts, self.standing.shown
        for number in range(self.done, min(len(self.ids), len(parts))):
            if not (number < len(shown) and shown[number] == parts[number]):
                try:
                    edited = await self._edit(self.ids[number], parts[number])
                except _Stop:
                    if number > self.standing.done:  # what is done need not be done again at the next attempt
                        await self._note(None, live=True)
                    raise
                if not edited:
                    await self._take_away(self.ids[number:])
                    del self.ids[number:]  # it is sent anew, and what follows too
                    return
            self.done = number + 1
        await self._take_away(self.ids[len(parts) :])
        del self.ids[len(parts) :]

    async def _take_away(self, message_ids: Sequence[str]) -> None:
        """Best effort: where a platform cannot delete, the message says that it is of no use any more."""
        for message_id in message_ids:
            if not await deleted(self.adapter, self.item.chat_id, message_id, seconds=self.limits.send_seconds):
                await self._edit(message_id, _ELSEWHERE)

    async def _edit(self, message_id: str, content: str) -> bool:
        """False when it cannot be edited, for certain: it was deleted, or the platform does not take this edit."""
        chat = self.item.chat_id
        result = await request(
            self.adapter, chat, lambda: self.adapter.edit_message(chat, message_id, content, finalize=True),
            seconds=self.limits.send_seconds,
        )  # fmt: skip
        if result.success:
            return True
        verdict = judge(result, repeatable=True)
        if verdict.state == "failed" and result.error_kind != "forbidden":
            return False
        raise _Stop(verdict)

    async def _send_text(self, number: int, content: str) -> SendResult:
        item, mode = self.item, self.adapter.config.reply_to_mode
        last = number == len(self.parts) - 1
        message = replace(
            self._message(number), text=content,
            buttons=_buttons(item) if last and self.adapter.supports_buttons else (),
            reply_to=item.payload.get("reply_to") if mode == "all" or (mode == "first" and number == 0) else None,
        )  # fmt: skip
        result = await self._send_once(message)
        if result.success or result.error_kind not in ("bad_format", "too_long"):
            return result
        # The platform refused how it is written, not what it says: once more without any formatting.
        return await self._send_once(replace(message, plain=True))

    async def _send_once(self, message: Outgoing) -> SendResult:
        chat = self.item.chat_id
        return await request(
            self.adapter, chat, lambda: self.adapter.send(chat, message), seconds=self.limits.send_seconds
        )

    def _message(self, number: int) -> Outgoing:
        thread = self.item.payload.get("thread_id")
        return Outgoing(
            thread_id=None if thread is None else str(thread), key=f"{self.item.dedup_key}:{number}",
            trace_id=self.item.trace_id or "",
        )  # fmt: skip

    async def _send_file(self, number: int, mark: str) -> SendResult:
        file = self._files[number - len(self.parts)]
        path = Path(file["path"])
        if not await asyncio.to_thread(path.is_file):
            raise _Stop(DeliveryOutcome(state="failed", error=f"the file {path.name} is not there any more"))
        caption = redaction.current()(str(file.get("caption") or ""))
        if mark:
            caption = f"{mark}\n\n{caption}" if caption else mark
        named = OutgoingFile(path=path, name=str(file.get("name") or path.name))
        message, chat = replace(self._message(number), text=caption, file=named), self.item.chat_id
        return await request(
            self.adapter, chat, lambda: self.adapter.send_file(chat, message), seconds=self.limits.send_file_seconds
        )

    # -- notes -------------------------------------------------------------------------------------------

    async def _intend(self, number: int, *, seconds: float = 0) -> None:
        """Before message `number` is sent, the row says so; a lease that is too short for it is made longer."""
        if self.noted != number or seconds:
            await self._note(number, seconds=seconds)

    async def _note(self, number: int | None, *, live: bool = False, seconds: float = 0) -> None:
        written = await self.progress(
            self.item,
            platform_ids=self.ids,
            draft=note(under_way=number, live=live, done=self.done, repeat=self.repeat),
            seconds=SENDING_SECONDS + seconds,
        )
        if not written:
            raise _Stop(DeliveryOutcome(state="lost", error="another sender has taken it over"))
        self.noted = number


def _buttons(item: OutboxItem) -> tuple[tuple[Button, ...], ...]:
    rows = item.payload.get("buttons") or ()
    return tuple(tuple(Button(label=one["label"], answer=Answer(**one["answer"])) for one in row) for row in rows)
