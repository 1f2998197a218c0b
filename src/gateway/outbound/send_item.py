"""Sends one outbox item through one adapter: its pieces in order, their outcome, and what to do after a crash.

The same text always gives the same pieces, so an item that was cut off continues by number; its files follow the text.
Files that an adapter can send together (`together`) are one request. A batch that is refused is sent file by file, and
a file that is refused does not hold up the others: the item fails when all others were sent, with the reason.
An answer must arrive in the chat, and must not appear there twice without a mark. After a send without an answer from
the platform, the means that the platform's descriptor names decides:

- `edit`: of an answer longer than `SHORT` characters only the first sentence of each piece is sent, and an edit, which
  is safe to repeat, adds the rest. A first sentence that may not have arrived is sent again; the earlier copy, if it
  arrived, is a *stray*, and is counted.
- `key`: the platform accepts messages with the same key once; the message is sent again with its key.
- `lookup`: the platform is asked whether the message is there before it is sent again.
- `none`, and with `edit` a short text, a text that is no answer of the model, or a file: it is sent again with a mark
  (`REPEATED`). With `delivery.on_unknown: ask` it stays unknown, and a person decides.

An item's note (`OutboxItem.draft`) says what a crash would leave open. `under_way`: the number of the message that is
being sent; without a note it is the first one, because the item is claimed. `live`: the messages in the chat show less
than the item, because its answer was still streaming or was being filled by edits; the first `done` of them are
complete, and from number `late` on an edit without an answer may still be made. `repeat`: the message `under_way` may
have arrived. `together`: so many messages from that one on are meant. `refused`: files that the platform refused, by
number, with the reason. `allowed`: a person asked to send it again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

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
T = TypeVar("T")

REPEATED = "(repeated: an earlier copy may have arrived)"


@dataclass(slots=True, kw_only=True)
class DeliveryProgress:
    """How far an item has come in its chat: changed by whoever sends it, and noted in its row for the next process."""

    ids: list[str] = field(default_factory=list)
    """The platform's ids of our messages, in order."""
    shown: list[str] = field(default_factory=list)
    """The text that each message shows, as far as this process knows."""
    live: bool = False
    """The messages show less than the item's text, and have to be edited."""
    done: int = 0
    """How many messages have their final text."""
    late: int | None = None
    """From this message on, an edit that was given up may still be made, also after the last one."""
    repeat: int = 0
    """How many of the next messages may have arrived already."""
    refused: dict[int, str] = field(default_factory=dict)
    """The numbers of refused files, which have an empty id, and why."""
    allowed: bool = False
    """A person asked to send it again."""
    noted: int | None = None
    """The number of the message that the row notes as being sent; a claim without a note means the first."""

    @classmethod
    def of(cls, item: OutboxItem) -> DeliveryProgress:
        """The progress that the item's row records."""
        note, ids = item.draft, list(item.platform_ids)
        if note is None:
            return cls(ids=ids, noted=None if ids else 0)
        live = bool(note.get("live"))
        # A draft's message whose sending got no answer stays noted as under way after the end of the turn.
        repeat = bool(note.get("repeat")) or (live and note.get("under_way") is not None)
        return cls(
            ids=ids, live=live, done=min(int(note.get("done") or 0), len(ids)), late=note.get("late"),
            repeat=int(note.get("together") or 1) if repeat else 0, allowed=bool(note.get("allowed")),
            refused={int(number): str(why) for number, why in (note.get("refused") or {}).items()},
        )  # fmt: skip


def note(
    *,
    under_way: int | None,
    live: bool = False,
    done: int = 0,
    late: int | None = None,
    repeat: int = 0,
    together: int = 1,
    refused: Mapping[int, str] | None = None,
) -> Mapping[str, Any]:
    """The progress note that is stored with the item."""
    made: dict[str, Any] = {"under_way": under_way, "live": live, "done": done, "repeat": bool(repeat)}
    if together > 1:
        made["together"] = together
    if late is not None:
        made["late"] = late
    return made | {"refused": dict(refused)} if refused else made


def after_loss(item: OutboxItem) -> Mapping[str, Any]:
    """The note of an item whose sender died or got no answer: the message that was being sent may have arrived."""
    has_text = str(item.payload.get("text") or "").strip()  # files are noted before they are sent, the first too
    kept = item.draft or note(under_way=len(item.platform_ids) if has_text else None)
    return {**kept, "repeat": bool(kept.get("repeat")) or kept.get("under_way") is not None, "allowed": False}


State = Literal["sent", "later", "again", "waits", "failed", "unknown", "lost"]
"""`later`: it certainly did not arrive, and is tried again. `again`: it may have arrived, and is sent again. `unknown`:
it may have arrived, and a person decides. `waits`: the platform cannot be reached, which counts as no attempt. `lost`:
another sender has the item."""

_ABOVE, _BELOW, _EMPTY = "(continued above)", "(continued below)", "the item is empty"

KeepProgress = Callable[..., Awaitable[bool]]
"""`keep(item, platform_ids=…, draft=…, seconds=…)`, durable when it returns; False: another sender has the item."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryOutcome:
    state: State
    ids: Sequence[str] = ()
    error: str = ""
    seconds: float | None = None
    """The pause that the platform asked for."""
    gone: bool = False
    """The chat cannot be written to: no notice would arrive there either."""
    away: bool = False
    """The recipient is away, and `seconds` says when to try again."""
    strays: int = 0
    """First sentences that were sent again and may appear twice."""
    repeats: int = 0
    """Messages that were sent again with a mark."""
    note: Mapping[str, Any] | None = None
    """Of state `again`: what the row notes for the next attempt."""


class _Stop(Exception):
    """Ends the delivery with an outcome."""

    def __init__(self, verdict: DeliveryOutcome) -> None:
        self.verdict = verdict


async def request(
    adapter: BasePlatformAdapter, chat_id: str, call: Callable[[], Awaitable[SendResult]], *, seconds: float
) -> SendResult:
    """Call an adapter with a time limit, and not during a pause that the platform asked for (`FloodWindow`).

    This is the error boundary around adapters: after any exception the message may have arrived.
    """
    if (left := adapter.flood.left(chat_id)) > 0:
        error = f"the platform asked for a pause of another {left:.0f} s"
        return SendResult(success=False, error=error, error_kind="rate_limited", retry_after=left, not_sent=True)
    try:
        async with asyncio.timeout(seconds):
            result = await call()
    except TimeoutError:
        return SendResult(success=False, error=f"no answer within {seconds:g} s", error_kind="transient")
    except Exception as error:  # an adapter may come from a plug-in
        log.warning("an adapter raised: %s", type(error).__name__, exc_info=error, extra={"action": "adapter.raised"})
        return SendResult(success=False, error=f"the adapter failed: {type(error).__name__}", error_kind="transient")
    if result.error_kind == "rate_limited":
        adapter.flood.refused(chat_id, result.retry_after)
    return result


async def deleted(
    adapter: BasePlatformAdapter, chat_id: str, message_id: str, *, thread_id: str | None, seconds: float
) -> bool:
    """Delete a message; True if the adapter says that it is deleted."""

    async def call() -> SendResult:
        return SendResult(success=await adapter.delete_message(chat_id, message_id, thread_id=thread_id))

    return (await request(adapter, chat_id, call, seconds=seconds)).success


def pieces(adapter: BasePlatformAdapter, text: str, *, grows: bool = False, end: str = "") -> list[str]:
    """Split a text into messages of a chat, with secrets redacted. Every text for a chat passes here.

    `grows`: more text will follow, so a possible beginning of a secret is held back. `end`: added after the text.
    """
    redact = redaction.current()
    if grows:
        text = text[: redact.settled(text)]
    text = redact(text)
    return adapter.pieces(f"{text}{end}") if text.strip() else []


def judge(result: SendResult, *, repeatable: bool) -> DeliveryOutcome:
    """The outcome of a failed request. `repeatable`: it is safe to do again, as an edit is."""
    error = (result.error or result.error_kind or "no reason given")[:500]
    kind = result.error_kind
    if kind == "rate_limited":
        return DeliveryOutcome(state="later", error=error, seconds=result.retry_after)
    away = result.not_sent and result.retry_after is not None
    if kind in ("forbidden", "not_found"):
        return DeliveryOutcome(state="failed", error=error, gone=True)
    if kind in ("bad_format", "too_long"):
        return DeliveryOutcome(state="failed", error=error)
    if result.not_sent and kind == "transient":
        return DeliveryOutcome(state="waits", error=error, seconds=result.retry_after)
    if result.not_sent and not result.retryable:
        return DeliveryOutcome(state="failed", error=error)
    if result.not_sent or repeatable:
        return DeliveryOutcome(state="later", error=error, seconds=result.retry_after, away=away)
    return DeliveryOutcome(state="unknown", error=error)


async def carry(
    item: OutboxItem,
    adapter: BasePlatformAdapter,
    progress: DeliveryProgress,
    *,
    keep: KeepProgress,
    limits: Limits,
    ask: bool = False,
) -> DeliveryOutcome:
    """Deliver a claimed item from its progress on. `ask`: a person decides about messages in an unknown state."""
    run = _Run(item, adapter, progress, keep, limits, ask)
    try:
        await run.texts()
        await run.files()
        verdict = DeliveryOutcome(state="sent" if progress.ids else "failed", error="" if progress.ids else _EMPTY)
    except _Stop as stop:
        verdict = stop.verdict
        if verdict.state == "again":
            verdict = replace(verdict, note=run.doubt())
    return replace(verdict, ids=tuple(progress.ids), strays=run.strays, repeats=run.repeats)


@dataclass(slots=True)
class _Run:
    item: OutboxItem
    adapter: BasePlatformAdapter
    progress: DeliveryProgress
    keep: KeepProgress
    limits: Limits
    ask: bool
    parts: list[str] = field(default_factory=list)
    _files: list[Mapping[str, Any]] = field(default_factory=list)
    _noted_together: int = 1
    """How many messages the row notes as being sent."""
    _alone: int = 0
    """Files below this number are sent one by one, because their batch was refused."""
    strays: int = 0
    repeats: int = 0

    async def texts(self) -> None:
        text = str(self.item.payload.get("text") or "")
        self.parts = self._made("pieces", lambda: pieces(self.adapter, text))
        if self.progress.live and self.adapter.supports_edit:
            await self._bring_up_to_date()
        elif self.progress.live:  # what is there cannot be completed: all of it is sent again
            self.progress.ids.clear()
        is_answer = self.item.payload.get("kind") == "answer" and not _buttons(self.item)
        by_edit = self.adapter.means == "edit" and is_answer and len(text) > SHORT
        for number in range(len(self.progress.ids), len(self.parts)):
            part = self.parts[number]
            first = self._made("beginning", partial(self.adapter.beginning, part)) if by_edit else ""
            if first and first != part:
                await self._fill(number, first)
            else:
                await self._whole(number)

    def _made(self, what: str, make: Callable[[], T]) -> T:
        """What an adapter makes of the text. If it raises, nothing was sent: the attempt counts, and is made again."""
        try:
            return make()
        except Exception as error:  # boundary: an adapter
            extra = {"action": "adapter.raised", "trace_id": self.item.trace_id}
            log.warning("an adapter raised: %s", type(error).__name__, exc_info=error, extra=extra)
            why = f"the adapter failed to split the text ({what}: {type(error).__name__})"
            raise _Stop(DeliveryOutcome(state="later", error=why)) from error

    async def files(self) -> None:
        self._files = list(self.item.payload.get("files") or ())
        progress, end, seconds = self.progress, len(self.parts) + len(self._files), self.limits.send_file_seconds
        # All were tried before, so a person asks for those that were refused.
        for number in sorted(progress.refused) if len(progress.ids) == end else ():
            await self._whole(number, seconds=seconds)
        while (number := len(progress.ids)) < end:
            await self._whole(number, count=await self._batch(number), seconds=seconds)
        if progress.refused:
            await self._note(None)
            raise _Stop(DeliveryOutcome(state="failed", error=self._why_refused()))

    async def _batch(self, number: int) -> int:
        """How many files from this number on go out together."""
        files = [self._file(at) for at in range(number, len(self.parts) + len(self._files))]
        if len(files) == 1 or number < self._alone or (self.progress.repeat and self.adapter.means == "lookup"):
            return 1  # what may be there already is looked up one by one
        most = self.progress.repeat or len(files)
        made = partial(self._made, "together", lambda: int(self.adapter.together(files[:most])))
        try:
            return max(1, min(await asyncio.to_thread(made), most, len(files)))
        except _Stop:  # the adapter failed, which is logged: one by one they may arrive
            return 1

    def _why_refused(self) -> str:
        refused, files = self.progress.refused, len(self._files)
        if files == 1:
            return next(iter(refused.values()))
        told = "; ".join(f"{self._file(number).name}: {refused[number]}" for number in sorted(refused))
        return f"{len(refused)} of {files} files could not be sent: {told}"[:500]

    async def _fill(self, number: int, first: str) -> None:
        """Send the first sentence of a piece, then add the rest by an edit."""
        await self._intend(number)
        self.strays += bool(self.progress.repeat)
        self._sent(number, await self._send_text(number, first), repeatable=True)
        await self._note(None, live=True)
        if not await self._edit(self.progress.ids[-1], self.parts[number]):
            raise _Stop(DeliveryOutcome(state="later", error="the message could not be completed by an edit"))
        self.progress.done = len(self.progress.ids)

    async def _whole(self, number: int, *, count: int = 1, seconds: float = 0) -> None:
        """Send messages whole; if they may have arrived already, by the platform's means or with a mark.

        `count`: so many files, in one batch.
        """
        means = self.adapter.means
        safe = means in ("key", "lookup")
        if self.progress.repeat and self.ask and not safe and not self.progress.allowed:
            raise _Stop(DeliveryOutcome(state="unknown", error=self.item.error or "nobody knows whether it arrived"))
        if self.progress.repeat and means == "lookup" and await self._is_there(number):
            return
        await self._intend(number, together=count, seconds=seconds)
        mark = REPEATED if self.progress.repeat and not safe else ""
        self.repeats += count if mark else 0
        if number < len(self.parts):
            results = [await self._send_text(number, f"{mark}\n\n{self.parts[number]}" if mark else self.parts[number])]
        else:
            results = await self._send_files(number, count, mark)
        for at, result in enumerate(results, number):
            if not result.success and at > number:  # the others of the batch are known to be there
                await self._note(at, together=number + count - at, seconds=seconds)
            if number < len(self.parts) or not self._is_refused(at, result, left=number + count - at):
                self._sent(at, result, repeatable=safe or not self.ask)
        self.progress.done = len(self.progress.ids)

    def _is_refused(self, number: int, result: SendResult, *, left: int) -> bool:
        """Whether the platform refuses this file or its batch for good, which then costs no other file its delivery.

        `left`: how many files of the batch have no outcome yet.
        """
        if result.success or (verdict := judge(result, repeatable=False)).state != "failed" or verdict.gone:
            return False
        if left > 1:
            self._alone = number + left
        else:
            self._place(number, "")
            self.progress.refused[number] = verdict.error
        return True

    async def _is_there(self, number: int) -> bool:
        """Ask the platform for the message; if it is there, count it as sent."""
        item, message = self.item, self._message(number)
        found = await self._request(
            lambda: self.adapter.find_sent(item.chat_id, message, since=item.created_at), self.limits.send_seconds
        )
        if found.success:
            self._sent(number, found, repeatable=True)
        elif not found.not_sent:
            raise _Stop(DeliveryOutcome(state="later", error=found.error or "the platform did not answer the lookup"))
        return found.success

    def _sent(self, number: int, result: SendResult, *, repeatable: bool) -> None:
        """Count a message as sent, or stop. `repeatable`: a message that may have arrived is sent again."""
        if not result.success:
            verdict = judge(result, repeatable=False)
            again = repeatable and verdict.state == "unknown"
            raise _Stop(replace(verdict, state="again") if again else verdict)
        self._place(number, result.message_id or "")
        self.progress.refused.pop(number, None)

    def _place(self, number: int, message_id: str) -> None:
        self.progress.ids[number : number + 1] = [message_id]
        self.progress.repeat = max(0, self.progress.repeat - 1)

    def doubt(self) -> Mapping[str, Any]:
        """The note of an item whose messages from the noted one on may have arrived."""
        number = len(self.progress.ids) if self.progress.noted is None else self.progress.noted
        return note(under_way=number, repeat=1, together=self._noted_together, refused=self.progress.refused)

    async def _bring_up_to_date(self) -> None:
        """Edit messages that do not show the final text, and delete those that are too many."""
        parts, shown, done_before = self.parts, self.progress.shown, self.progress.done
        late = len(parts) if self.progress.late is None else self.progress.late
        if self.progress.late is not None or self.progress.ids != list(self.item.platform_ids):
            await self._note(None, live=True)  # the row may not know: the draft's last request ended after the turn
        for number in range(done_before, min(len(self.progress.ids), len(parts))):
            if number >= late or not (number < len(shown) and shown[number] == parts[number]):
                try:
                    edited = number < late and await self._edit(self.progress.ids[number], parts[number])
                except _Stop:
                    if number > done_before:  # the next attempt need not repeat finished edits
                        await self._note(None, live=True)
                    raise
                if not edited:
                    await self._take_away(self.progress.ids[number:], _BELOW)
                    del self.progress.ids[number:]  # this message and all after it are sent again
                    self.progress.late = None
                    return
            self.progress.done = number + 1
        await self._take_away(self.progress.ids[len(parts) :], _ABOVE)
        del self.progress.ids[len(parts) :]
        self.progress.late = None

    async def _take_away(self, message_ids: Sequence[str], where: str) -> None:
        """Delete messages, or where a platform cannot, edit them to say where the answer is."""
        chat, thread, seconds = self.item.chat_id, thread_of(self.item.payload), self.limits.send_seconds
        for message_id in message_ids:
            if not await deleted(self.adapter, chat, message_id, thread_id=thread, seconds=seconds):
                await self._edit(message_id, where)

    async def _edit(self, message_id: str, content: str) -> bool:
        """Edit a message; False when the platform refuses the edit, for instance because the message was deleted."""
        chat, thread = self.item.chat_id, thread_of(self.item.payload)
        edit = partial(self.adapter.edit_message, chat, message_id, content, thread_id=thread, finalize=True)
        result = await self._request(edit, self.limits.send_seconds)
        if result.success:
            return True
        verdict = judge(result, repeatable=True)
        if verdict.state == "failed" and result.error_kind != "forbidden":
            return False
        raise _Stop(verdict)

    async def _send_text(self, number: int, content: str) -> SendResult:
        item, mode = self.item, self.adapter.config.reply_to_mode
        last, asked = number == len(self.parts) - 1, item.payload.get("reply_to")
        quoted = asked if mode == "all" or (mode == "first" and number == 0) else None
        message = self._message(
            number, text=content,
            buttons=_buttons(item) if last and self.adapter.supports_buttons else (),
            reply_to=quoted,
        )  # fmt: skip
        person = item.payload.get("only_for")
        if person and self.adapter.shows_to_one:
            # A platform may need the message that is answered, whatever is quoted.
            result = await self._send_readable(replace(message, only_for=str(person), reply_to=asked))
            if result.error_kind != "expired":
                return result
        return await self._send_readable(message)

    async def _send_readable(self, message: Outgoing) -> SendResult:
        """Send a message; if the platform refuses its formatting, once more without any."""
        result = await self._send_once(message)
        if result.success or result.error_kind not in ("bad_format", "too_long"):
            return result
        return await self._send_once(replace(message, plain=True))

    async def _send_once(self, message: Outgoing) -> SendResult:
        return await self._request(partial(self.adapter.send, self.item.chat_id, message), self.limits.send_seconds)

    async def _request(self, call: Callable[[], Awaitable[SendResult]], seconds: float) -> SendResult:
        return await request(self.adapter, self.item.chat_id, call, seconds=seconds)

    def _message(self, number: int, **more: Any) -> Outgoing:
        return Outgoing(
            thread_id=thread_of(self.item.payload), key=sent_key(self.item, number),
            trace_id=self.item.trace_id or "", **more,
        )  # fmt: skip

    async def _send_files(self, number: int, count: int, mark: str) -> list[SendResult]:
        """Send files in one request; the outcomes up to the first failure. The mark stands with the first of them."""
        messages = [self._file_message(at, mark if at == number else "") for at in range(number, number + count)]
        for file in (message.file for message in messages):
            if file is not None and not await asyncio.to_thread(file.path.is_file):
                why = f"the file {file.path.name} no longer exists"
                return [SendResult(success=False, error=why, error_kind="unknown", not_sent=True)]
        results: list[SendResult] = []

        async def send() -> SendResult:
            if count == 1:
                return await self.adapter.send_file(self.item.chat_id, messages[0])
            found = list(await self.adapter.send_files(self.item.chat_id, messages))
            failed = next((at for at, one in enumerate(found) if not one.success), len(found))
            if failed == len(found) < count:
                raise ValueError(f"{len(found)} outcomes for {count} files")
            results.extend(found[:failed][:count])
            return found[-1] if failed == len(found) else found[failed]

        last = await self._request(send, self.limits.send_file_seconds)
        return results if len(results) == count else [*results, last]

    def _file(self, number: int) -> OutgoingFile:
        file = self._files[number - len(self.parts)]
        path = Path(file["path"])
        return OutgoingFile(path=path, name=str(file.get("name") or path.name))

    def _file_message(self, number: int, mark: str) -> Outgoing:
        caption = redaction.current()(str(self._files[number - len(self.parts)].get("caption") or ""))
        if mark:
            caption = f"{mark}\n\n{caption}" if caption else mark
        return self._message(number, text=caption, file=self._file(number))

    # -- notes -------------------------------------------------------------------------------------------

    async def _intend(self, number: int, *, together: int = 1, seconds: float = 0) -> None:
        """Note in the row that message `number` is about to be sent; `seconds` extends the claim."""
        if self.progress.noted != number or seconds:
            await self._note(number, together=together, seconds=seconds)

    async def _note(self, number: int | None, *, live: bool = False, together: int = 1, seconds: float = 0) -> None:
        progress = self.progress
        self._noted_together = max(together, progress.repeat)
        written = await self.keep(
            self.item, platform_ids=progress.ids, seconds=SENDING_SECONDS + seconds,
            draft=note(
                under_way=number, live=live, done=progress.done, late=progress.late, repeat=progress.repeat,
                together=self._noted_together, refused=progress.refused,
            ),
        )  # fmt: skip
        if not written:
            raise _Stop(DeliveryOutcome(state="lost", error="another sender has taken it over"))
        progress.noted = number


def sent_key(item: OutboxItem, number: int) -> str:
    """The key of a message for platforms. A new or restored store gives row numbers again; a trace is random."""
    return f"{item.dedup_key}:{number}:{item.trace_id}"


def thread_of(payload: Mapping[str, Any]) -> str | None:
    """The thread that an item's messages stand in."""
    thread = payload.get("thread_id")
    return None if thread is None else str(thread)


def _buttons(item: OutboxItem) -> tuple[tuple[Button, ...], ...]:
    rows = item.payload.get("buttons") or ()
    return tuple(tuple(Button(label=one["label"], answer=Answer(**one["answer"])) for one in row) for row in rows)
