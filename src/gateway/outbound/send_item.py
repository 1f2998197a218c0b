"""One outbox item to one adapter: its pieces in order, what became of it, and what a crash lets us know about it.

The pieces of a text are a pure function of it, so an item that was cut off goes on by number. Messages that stand in
the chat already are edited to their final text where they need it; missing ones are sent, each noted before the next,
so that a crash is never followed by a second copy. Then come the item's files. This module decides nothing about when
an item is tried again; it says what happened.

An item's note (`OutboxItem.draft`) is written before a message is sent whose loss we could not tell from its arrival,
and says which one: `under_way`. Edits need no note, because an edit made twice is an edit. So after a crash the note
tells what may be done without a second copy of anything:

- no note: the claim itself said that the first message is under way, and nobody knows whether it arrived;
- a note with nothing under way: only edits were left to do, they are done again;
- `live` and something under way: it was the beginning of an answer that was still being made. The answer itself was
  never sent, so it is, with a mark that an unfinished copy may stand above it;
- something under way that was not live: a message of the reply itself, and nobody knows.

`again` is set when a person had an unknown item sent once more: the message says so. A delivery that began with such a
mark keeps it in `marked` until it is done.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from gateway.platforms.base import Answer, BasePlatformAdapter, Button, SendResult
from hermes_config import redaction
from hermes_config.limits import Limits
from hermes_state.turns.outbox import SENDING_SECONDS, OutboxItem

log = logging.getLogger("hermes.gateway")

SENT_AGAIN = "(sent again; an earlier copy may have arrived)"
UNFINISHED_ABOVE = "(an unfinished copy of this may stand above)"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryProgress:
    ids: Sequence[str] = ()
    """The platform's ids of our messages, in order."""
    shown: Sequence[str] = ()
    """What they say, as far as this process knows."""
    under_way: int | None = None
    """The number of a message that may or may not have arrived."""
    live: bool = False
    """The messages show an answer that was still being made, so they have to be brought to their final text."""
    again: bool = False
    marked: str = ""
    """The mark that the messages which stand there were sent with."""
    noted: bool = False
    """The item's row has a note."""

    @classmethod
    def of(cls, item: OutboxItem) -> DeliveryProgress:
        """What the row knows."""
        note = item.draft
        if note is None:
            return cls(ids=item.platform_ids)
        under_way = note.get("under_way")
        return cls(
            ids=item.platform_ids,
            under_way=under_way if isinstance(under_way, int) else None,
            live=bool(note.get("live")),
            again=bool(note.get("again")),
            marked=str(note.get("marked") or ""),
            noted=True,
        )

    @property
    def mark(self) -> str:
        """What the message has to say before its text; empty in nearly all cases."""
        if self.again:
            return SENT_AGAIN
        return UNFINISHED_ABOVE if self.live and self.under_way is not None else self.marked

    @property
    def outdated(self) -> bool:
        """The messages that stand there do not say what the item says: they show a draft, or lack its mark."""
        return self.live or self.mark != self.marked


def note(*, under_way: int | None, live: bool = False, marked: str = "") -> Mapping[str, Any]:
    """As it is kept with the item."""
    return {"under_way": under_way, "live": live, "marked": marked}


def can_go_on(item: OutboxItem) -> bool:
    """Whether an item whose sender died can be finished without a second copy of a reply."""
    if item.draft is None:
        return False
    standing = DeliveryProgress.of(item)
    return standing.live or standing.under_way is None


State = Literal["sent", "later", "waits", "failed", "unknown", "lost"]
"""`later`: tried and certainly not there. `waits`: there was nobody to hand it to, which counts as no attempt.
`lost`: the item is not ours any more."""

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


class _Stop(Exception):
    """The delivery ends here."""

    def __init__(self, verdict: DeliveryOutcome) -> None:
        self.verdict = verdict


async def bounded(call: Awaitable[SendResult], *, seconds: float) -> SendResult:
    """An adapter's answer, in time. The named boundary around adapters: whatever they raise, it may have arrived."""
    try:
        async with asyncio.timeout(seconds):
            return await call
    except TimeoutError:
        return SendResult(success=False, error=f"no answer within {seconds:g} s", error_kind="transient")
    except Exception as error:  # an adapter may be anybody's code
        log.warning("an adapter raised: %s", type(error).__name__, exc_info=error, extra={"action": "adapter.raised"})
        return SendResult(success=False, error=f"the adapter failed: {type(error).__name__}", error_kind="transient")


async def deleted(adapter: BasePlatformAdapter, chat_id: str, message_id: str, *, seconds: float) -> bool:
    """Whether a message of ours is gone, as far as we know."""

    async def call() -> SendResult:
        return SendResult(success=await adapter.delete_message(chat_id, message_id))

    return (await bounded(call(), seconds=seconds)).success


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
    item: OutboxItem, adapter: BasePlatformAdapter, standing: DeliveryProgress, *, progress: Progress, limits: Limits
) -> DeliveryOutcome:
    """Deliver an item that is ours, from where it stands."""
    run = _Run(item, adapter, standing, progress, limits)
    try:
        await run.texts()
        await run.files()
    except _Stop as stop:
        return replace(stop.verdict, ids=tuple(run.ids))
    if not run.ids:
        return DeliveryOutcome(state="failed", error="there is nothing in it to send")
    return DeliveryOutcome(state="sent", ids=tuple(run.ids))


@dataclass(slots=True)
class _Run:
    item: OutboxItem
    adapter: BasePlatformAdapter
    standing: DeliveryProgress
    progress: Progress
    limits: Limits
    ids: list[str] = field(init=False)
    noted: int | None = field(init=False)
    """The number that the row says is under way; a claim without a note says 0."""

    text_messages: int = 0

    def __post_init__(self) -> None:
        editable = self.adapter.supports_edit and not self._files()
        self.ids = list(self.standing.ids) if editable or not self.standing.outdated else []
        fresh = not self.standing.noted and not self.standing.ids
        self.noted = 0 if fresh else None

    # -- texts -------------------------------------------------------------------------------------------

    async def texts(self) -> None:
        text, mark = str(self.item.payload.get("text") or ""), self.standing.mark
        parts = pieces(self.adapter, f"{mark}\n\n{text}" if mark else text) if text.strip() else []
        self.text_messages = len(parts)
        if self.standing.outdated:
            await self._bring_up_to_date(parts)
        more = bool(self._files())
        for number in range(len(self.ids), len(parts)):
            last = number == len(parts) - 1
            await self._intend(number)
            result = await self._send_text(parts[number], first=number == 0, last=last)
            await self._add(result, number, more=more or not last)

    async def _bring_up_to_date(self, parts: Sequence[str]) -> None:
        """Messages that show something else than the final text are edited; those beyond it are taken away."""
        shown = self.standing.shown
        for number, message_id in enumerate(list(self.ids[: len(parts)])):
            if number < len(shown) and shown[number] == parts[number]:
                continue
            if not await self._edit(message_id, parts[number]):
                await self._take_away(self.ids[number:])
                del self.ids[number:]  # it is sent anew, and what follows too
                return
        await self._take_away(self.ids[len(parts) :])
        del self.ids[len(parts) :]

    async def _take_away(self, message_ids: Sequence[str]) -> None:
        """Best effort: where a platform cannot delete, the message says that it is of no use any more."""
        for message_id in message_ids:
            if not await deleted(self.adapter, self.item.chat_id, message_id, seconds=self.limits.send_seconds):
                await self._edit(message_id, _ELSEWHERE)

    async def _edit(self, message_id: str, content: str) -> bool:
        """False when it cannot be edited, for certain: it was deleted, or the platform does not take this edit."""
        result = await bounded(
            self.adapter.edit_message(self.item.chat_id, message_id, content, finalize=True),
            seconds=self.limits.send_seconds,
        )
        if result.success:
            return True
        verdict = judge(result, repeatable=True)
        if verdict.state == "failed" and result.error_kind != "forbidden":
            return False
        raise _Stop(verdict)

    async def _send_text(self, content: str, *, first: bool, last: bool) -> SendResult:
        result = await self._send_once(content, self._metadata(), first=first, last=last)
        if result.success or result.error_kind not in ("bad_format", "too_long"):
            return result
        # The platform refused how it is written, not what it says: once more without any formatting.
        return await self._send_once(content, {**self._metadata(), "plain": True}, first=first, last=last)

    async def _send_once(self, content: str, metadata: dict[str, Any], *, first: bool, last: bool) -> SendResult:
        item, adapter = self.item, self.adapter
        buttons = _buttons(item) if last and adapter.supports_buttons else ()
        if buttons:
            call = adapter.send_buttons(item.chat_id, content, buttons, metadata)
        else:
            mode = adapter.config.reply_to_mode
            reply_to = item.payload.get("reply_to") if mode == "all" or (mode == "first" and first) else None
            call = adapter.send(item.chat_id, content, reply_to, metadata)
        return await bounded(call, seconds=self.limits.send_seconds)

    def _metadata(self) -> dict[str, Any]:
        thread = self.item.payload.get("thread_id")
        about = {"trace_id": self.item.trace_id}
        return about if thread is None else {**about, "thread_id": str(thread)}

    # -- files -------------------------------------------------------------------------------------------

    def _files(self) -> list[dict[str, Any]]:
        return list(self.item.payload.get("files") or ())

    async def files(self) -> None:
        files, before = self._files(), len(self.ids)
        done = before - self.text_messages
        for number, file in enumerate(files[done:], start=before):
            path = Path(file["path"])
            if not await asyncio.to_thread(path.is_file):
                raise _Stop(DeliveryOutcome(state="failed", error=f"the file {path.name} is not there any more"))
            await self._intend(number, seconds=self.limits.send_file_seconds)
            metadata = {**self._metadata(), "name": str(file.get("name") or path.name)}
            caption = redaction.current()(str(file.get("caption") or ""))
            result = await bounded(
                self.adapter.send_file(self.item.chat_id, path, caption=caption, metadata=metadata),
                seconds=self.limits.send_file_seconds,
            )
            await self._add(result, number, more=number < before + len(files) - done - 1)

    # -- notes -------------------------------------------------------------------------------------------

    async def _intend(self, number: int, *, seconds: float = 0) -> None:
        """Before message `number` is sent, the row says so; a lease that is too short for it is made longer."""
        if self.noted != number or seconds:
            await self._note(number, seconds=seconds)

    async def _add(self, result: SendResult, number: int, *, more: bool) -> None:
        if not result.success:
            raise _Stop(judge(result, repeatable=False))
        self.ids.append(result.message_id or "")
        if more:
            await self._note(number + 1)

    async def _note(self, number: int, *, seconds: float = 0) -> None:
        written = await self.progress(
            self.item,
            platform_ids=self.ids,
            draft=note(under_way=number, marked=self.standing.mark),
            seconds=SENDING_SECONDS + seconds,
        )
        if not written:
            raise _Stop(DeliveryOutcome(state="lost", error="another sender has taken it over"))
        self.noted = number


def _buttons(item: OutboxItem) -> tuple[tuple[Button, ...], ...]:
    rows = item.payload.get("buttons") or ()
    return tuple(tuple(Button(label=one["label"], answer=Answer(**one["answer"])) for one in row) for row in rows)
