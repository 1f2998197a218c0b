"""The message in which an answer is shown while it is made.

It is one outbox item from the first word on: a draft under the key of the turn's answer, whose row is written before
anything is sent (`standing`). When the turn ends, the same item is owed; the deliverer asks the draft to settle and
brings what stands in the chat to the final text. After a crash the turn that goes on finds the item by its key and
edits the same message. When something is asked in the chat meanwhile, what stands above it is taken away and comes
again below it, where people look by then.

Nothing that goes wrong here reaches the turn. A platform that says "too often" is left alone for as long as it asks,
and after `limits.stream_floods` of these until the end. A message whose sending was not answered stays the last one:
nobody knows its id, and the answer itself will come whole.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from gateway.board import Board
from gateway.display import Display
from gateway.platforms.base import BasePlatformAdapter, SendResult
from gateway.sending import bounded, deleted, pieces
from gateway.standing import Standing, note
from hermes_state.errors import StateError
from hermes_state.storage.base import Connection
from hermes_state.storage.writer import queued
from hermes_state.turns.outbox import OutboxItem, Parcel

log = logging.getLogger("hermes.gateway")

_FIRST_SECONDS = 0.2
"""An answer that is complete by then is not shown in parts at all."""


class Draft:
    """Shows what `text()` gives, whenever `changed` was called, until it is settled."""

    def __init__(
        self, board: Board, adapter: BasePlatformAdapter, parcel: Parcel, display: Display, text: Callable[[], str]
    ) -> None:
        self._db = board.db
        self._adapter = adapter
        self._parcel = parcel
        self._display = display
        self._text = text
        self._item: OutboxItem | None = None
        self._ids: list[str] = []
        self._shown: list[str] = []
        self._under_way: int | None = None
        self._noted: int | None = None
        """The number that the row says is under way."""
        self._floods = 0
        self._quiet_until = 0.0
        self._behind = False
        """The chat is owed something else first."""
        self._gives_way = False
        """Something is asked in the chat: nothing is shown until it is answered."""
        self._above = False
        """What stands in the chat stands above a question, and is to be taken away."""
        self._changed = asyncio.Event()
        self._over = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def stands(self) -> bool:
        """Whether something of it is, or may be, in the chat."""
        return bool(self._ids) or self._under_way is not None

    def changed(self) -> None:
        """There is more to show."""
        self._changed.set()
        if self._timer is None and not self._over.is_set():
            self._timer = asyncio.get_running_loop().call_later(_FIRST_SECONDS, self._begin)

    def give_way(self, waits: bool) -> None:
        """A question stands in the chat, or is answered."""
        self._gives_way = waits
        self._above = self._above or waits
        if self._task is not None:
            self._changed.set()

    def _begin(self) -> None:
        self._task = asyncio.create_task(self._show(), name="draft")

    async def settle(self) -> Standing | None:
        """Show nothing more; what stands in the chat, once whatever was under way has been answered.

        None: nothing was shown here, so the item's row knows best, which a lost process may have written to.
        """
        self._over.set()
        self._changed.set()
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            await asyncio.wait({self._task})
        if self._item is None:
            return None
        with contextlib.suppress(StateError):  # the row names what is gone: the deliverer finds that out
            await self._take_away()
        return Standing(
            ids=tuple(self._ids), shown=tuple(self._shown), under_way=self._under_way, live=True, noted=True
        )

    # -- the loop ----------------------------------------------------------------------------------------

    async def _show(self) -> None:
        """The named boundary of what is shown: a store that takes no notes ends it, and the turn goes on."""
        clock = asyncio.get_running_loop().time
        try:
            while not self._over.is_set():
                self._changed.clear()
                if not await self._bring_up_to_date():
                    return
                least = max(self._display.interval, self._adapter.edit_pause(self._parcel.chat_id))
                pause = max(least, self._quiet_until - clock()) if self._item else _FIRST_SECONDS
                await self._changed.wait()
                await self._over_within(pause)
        except StateError as error:
            log.warning("a draft is shown no further: %s", error, extra={"action": "draft.store"})

    async def _over_within(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._over.wait()

    async def _bring_up_to_date(self) -> bool:
        """Show what is new; False when there is no use in going on."""
        await self._take_away()
        text = self._text()
        if not text or self._gives_way:
            return True
        parts = pieces(self._adapter, text, grows=True, end=self._display.cursor)[: self._db.limits.stream_messages]
        if not parts:
            return True
        if self._item is None and not await self._take_up():
            return self._behind
        for number, piece in enumerate(parts):
            if number < len(self._shown) and self._shown[number] == piece:
                continue
            done = await (self._edit(number, piece) if number < len(self._ids) else self._send(number, piece))
            if not done:
                return self._floods < self._db.limits.stream_floods and self._under_way is None
        return True

    async def _take_away(self) -> None:
        """What stands above a question, newest first; what cannot be deleted stays, and is edited as if none were."""
        above, self._above = self._above and self._under_way is None, False
        if not above or not self._ids:
            return
        seconds = self._db.limits.send_seconds
        while self._ids and await deleted(self._adapter, self._parcel.chat_id, self._ids[-1], seconds=seconds):
            del self._ids[-1], self._shown[-1]
        await self._note(None)

    async def _take_up(self) -> bool:
        """Make the item, or find the one that a lost process left; False when it is owed already, or has to wait."""
        item: OutboxItem | None = await queued(self._db.engine, self._drafted)
        self._behind = item is None
        if item is None:
            self._changed.set()  # looked at again, whether or not there is more to show by then
            return False
        if item.state != "draft":
            return False
        self._item = item
        before = Standing.of(item)
        self._ids, self._shown = list(before.ids), [""] * len(before.ids)
        self._under_way, self._noted = before.under_way, before.under_way if before.noted else 0
        return self._under_way is None

    def _drafted(self, conn: Connection) -> OutboxItem | None:
        """The item, and in the same commit the note that its first message is under way.

        None while the chat is still owed something from before, above which this would stand, and when the turn has
        just ended, whose commit could not see it any more.
        """
        outbox = self._db.outbox
        if not outbox.may_show_in(conn, self._parcel):
            return None
        item = outbox.draft_in(conn, self._parcel)
        if item.state == "draft" and item.draft is None:
            outbox.progress_in(conn, item, platform_ids=(), draft=note(under_way=0, live=True))
        return item

    # -- on the platform ---------------------------------------------------------------------------------

    async def _edit(self, number: int, piece: str) -> bool:
        result = await self._answered(self._adapter.edit_message(self._parcel.chat_id, self._ids[number], piece))
        if result.success:
            self._shown[number] = piece
        elif result.error_kind == "not_found":  # somebody deleted it: the answer will be a new message
            del self._ids[number:], self._shown[number:]
            self._floods = self._db.limits.stream_floods
        return result.success

    async def _send(self, number: int, piece: str) -> bool:
        if self._noted != number:  # the first one was noted with the row itself
            await self._note(number)
        self._under_way = number
        payload, mode = self._parcel.payload, self._adapter.config.reply_to_mode
        reply_to = payload.get("reply_to") if mode == "all" or (mode == "first" and number == 0) else None
        thread = payload.get("thread_id")
        metadata = {} if thread is None else {"thread_id": str(thread)}
        result = await self._answered(self._adapter.send(self._parcel.chat_id, piece, reply_to, metadata))
        if result.success:
            self._ids.append(result.message_id or "")
            self._shown.append(piece)
        elif not (result.not_sent or result.error_kind in ("rate_limited", "forbidden", "not_found")):
            return False  # it may have arrived
        self._under_way = None
        await self._note(None)
        return result.success

    async def _answered(self, call: Awaitable[SendResult]) -> SendResult:
        result = await bounded(call, seconds=self._db.limits.send_seconds)
        if not result.success:
            self._floods += 1
            wait = result.retry_after if result.retry_after is not None else self._display.interval
            self._quiet_until = asyncio.get_running_loop().time() + wait
        return result

    async def _note(self, under_way: int | None) -> None:
        item, ids = self._item, tuple(self._ids)
        assert item is not None
        written = note(under_way=under_way, live=True)
        await queued(
            self._db.engine,
            lambda conn: self._db.outbox.progress_in(conn, item, platform_ids=ids, draft=written),
        )
        self._noted = under_way
