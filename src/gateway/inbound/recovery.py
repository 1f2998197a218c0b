"""What the table holds for the lanes at a start, and messages from long ago.

A message that is older than `gateway.max_message_age` when we come to see it is not answered by itself: its author may
not want it any more. It stays queued, its chat is told how many there are, and /catchup takes them up. A command from
long ago is dropped. Nothing of this is kept in memory: age and state are in the row, so a restart changes nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Container
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from gateway.config import Platform
from gateway.inbound.stored_message import event_of, is_stale, source_of
from gateway.outbound import notices
from gateway.routes.source import SessionSource
from hermes_agent import process_identity
from hermes_state.errors import TurnOver
from hermes_state.storage.writer import queued
from hermes_state.turns.turns import SET_ASIDE

if TYPE_CHECKING:
    from gateway.inbound.lanes import Commands, Tell
    from gateway.services import Services
    from hermes_state.ids import SessionKey
    from hermes_state.turns.inbox import InboxRow, Outcome
    from hermes_state.turns.outbox import Parcel
    from hermes_state.turns.turns import Turn

_PAGE = 500
_LEASE_SECONDS = 30.0
_COMMAND_SECONDS = 900.0
"""After this time a command of another machine counts as lost; none of them takes minutes."""
_FORGOTTEN_SECONDS = 60.0
"""A row that waits longer and is in no lane was stored by somebody whom its lane did not hear of."""


GONE = "the client had gone"


def nobody_waits(row: InboxRow) -> bool:
    """A request over HTTP from before this process; without an Idempotency-Key its client cannot come back for it."""
    return row.platform == Platform.API_SERVER.value and "digest" not in (row.payload or {})


class QueuedRows(NamedTuple):
    """Queued rows of a route: those to work off, in order, and whether some wait for /catchup."""

    fresh: list[InboxRow]
    held: bool


class Recovery:
    """Reads the table; whoever asks decides what runs."""

    def __init__(self, services: Services, commands: Commands, tell: Tell) -> None:
        self._services, self._commands, self.tell = services, commands, tell

    async def left_behind(self) -> list[Turn]:
        """Turns of routes whose process is gone."""
        return await asyncio.to_thread(self._left_behind)

    def _left_behind(self) -> list[Turn]:
        db = self._services.db
        found = []
        for turn in db.turns.running():
            lease = None if turn.route is None else db.leases.get(turn.conversation_id)
            if turn.route is not None and (lease is None or process_identity.is_gone(lease.holder)):
                found.append(turn)
        return found

    async def answered(self) -> list[Turn]:
        """Turns that wait, and whose question was answered; those whose question is closed without one are ended.

        A turn goes on where its workspace is: on the machine that asked.
        """
        found, closed = await asyncio.to_thread(self._answered)
        for turn in closed:
            self._commands.question_closed(turn.reason or "", "nobody answered in time")
        return found

    def _answered(self) -> tuple[list[Turn], list[Turn]]:
        db = self._services.db
        found: list[Turn] = []
        closed: list[Turn] = []
        for turn in db.turns.waiting():
            if turn.reason == SET_ASIDE:
                continue
            question = db.approvals.get(turn.reason or "")
            if question is None or question.state == "revoked":
                db.turns.end_waiting(turn.id, reason="its question was closed")
            elif question.state == "lapsed" or (question.state == "pending" and question.expires_at <= db.clock()):
                if db.turns.end_waiting(turn.id, reason="nobody answered its question"):
                    db.approvals.revoke(question.id, reason="nobody answered in time")
                    closed.append(turn)
            elif question.state != "pending" and question.call.get("machine") in (None, process_identity.machine()):
                found.append(turn)
        return found, closed

    async def moved_on(self, turn: Turn) -> bool:
        """Whether the route of a turn that waited leads to another conversation by now: then it is ended."""
        return await asyncio.to_thread(self._moved_on, turn)

    def _moved_on(self, turn: Turn) -> bool:
        db = self._services.db
        now = None if turn.route is None else self._services.store.peek_session_id(turn.route)
        if now is not None and db.get_conversation_root(now) == turn.conversation_id:
            return False
        return db.turns.end_waiting(turn.id, reason="its chat has moved on to another conversation")

    async def source_and_rows(self, turn: Turn) -> tuple[SessionSource | None, tuple[InboxRow, ...]]:
        """Where a turn belongs, and its rows. A turn that a command asked for has none: its route says where."""
        rows = await asyncio.to_thread(self._services.db.inbox.of_turn, turn.id)
        if rows:
            return source_of(rows[-1]), rows
        assert turn.route is not None, "others are not taken up here"
        entry = await asyncio.to_thread(self._services.store._entries.get, turn.route)
        return None if entry is None else entry.origin, ()

    def is_too_old(self, turn: Turn) -> bool:
        """Whether going on with it could surprise its author: `agent.gateway_auto_continue_freshness`, 0 is never."""
        most = self._services.settings.resume_window
        return 0 < most < self._services.db.clock() - turn.updated_at

    async def forgo_old(self, turn: Turn, source: SessionSource, *, account: str) -> None:
        """A turn that was left behind too long ago waits for /catchup; its chat is told in the same transaction."""
        said = notices.old_turn(self._services.db.clock() - turn.updated_at)
        reply = notices.parcel(
            "old_turn", turn.id, said, platform=source.platform.value, chat_id=str(source.chat_id), account=account,
            thread_id=source.thread_id, trace_id=turn.trace_id,
        )  # fmt: skip
        await asyncio.to_thread(self._under_lease, turn, partial(self._services.db.turns.set_aside, reply=reply))

    async def set_aside(self, route: SessionKey) -> list[Turn]:
        """Turns of a route that wait for /catchup."""
        found = await asyncio.to_thread(self._services.db.turns.waiting)
        return [turn for turn in found if turn.route == route and turn.reason == SET_ASIDE]

    async def forgo(self, turn: Turn, reason: str = GONE, *, reply: Parcel | None = None) -> bool:
        """End a turn that was left behind and that nobody goes on with; False when somebody has taken it up."""
        return await asyncio.to_thread(self._forgo, turn, reason, reply)

    def _forgo(self, turn: Turn, reason: str, reply: Parcel | None) -> bool:
        return self._under_lease(turn, partial(self._services.db.turns.cancel, reason=reason, reply=reply))

    def _under_lease(self, turn: Turn, change: Callable[..., object]) -> bool:
        db = self._services.db
        process_identity.release_gone(db, turn.conversation_id)
        lease = db.leases.acquire(turn.conversation_id, holder=process_identity.new_holder(), ttl=_LEASE_SECONDS)
        if lease is None:
            return False
        try:
            with contextlib.suppress(TurnOver):  # somebody was quicker, which is as good
                change(turn.id, fence=lease.fence)
        finally:
            db.leases.release(lease)
        return True

    async def routes(self) -> list[SessionKey]:
        return list(await asyncio.to_thread(self._services.db.inbox.waiting, limit=100_000))

    async def queued(self, route: SessionKey) -> QueuedRows:
        """What is queued on a route. Old commands among it, and edits of what was answered, get their outcome here."""
        rows = await asyncio.to_thread(self._queued, route)
        now, most = self._services.db.clock(), self._services.settings.max_message_age
        fresh, held = [], False
        for row in rows:
            if nobody_waits(row):
                await self.finish([row.id], "dropped", GONE)
            elif not is_stale(row, now=now, most=most):
                fresh.append(row)
            elif self._commands.kind(row) == "turn":
                held = True
            else:
                await self.finish([row.id], "dropped", "a command from before the gateway was there")
        return QueuedRows(fresh, held)

    async def forgotten(self, known: Container[int]) -> list[InboxRow]:
        """Rows that wait and that no lane has: their storing was cut off before the lane was told."""
        return await asyncio.to_thread(self._forgotten, known)

    def _forgotten(self, known: Container[int]) -> list[InboxRow]:
        inbox, now, most = self._services.db.inbox, self._services.db.clock(), self._services.settings.max_message_age
        ids = inbox.waiting_between(now - most, now - _FORGOTTEN_SECONDS)
        rows = [row for one in ids if one not in known and (row := inbox.get(one)) is not None]
        return [row for row in rows if row.state == "queued" and not is_stale(row, now=now, most=most)]

    async def held(self, route: SessionKey) -> list[InboxRow]:
        """Messages that wait for /catchup."""
        rows = await asyncio.to_thread(self._queued, route)
        now, most = self._services.db.clock(), self._services.settings.max_message_age
        return [row for row in rows if is_stale(row, now=now, most=most) and self._commands.kind(row) == "turn"]

    async def tell_held(self, route: SessionKey) -> None:
        """One notice for as many as there are; the same ones are not told twice, by whichever process."""
        rows = await self.held(route)
        if rows:
            last = rows[-1]
            text = notices.stale(len(rows), hours=self._services.settings.max_message_age / 3600)
            await self.tell(source_of(last), text, what="stale", occasion=last.id, account=last.account)

    async def end_cut_off(self) -> None:
        """Commands that were running when a process was lost: nobody knows how far they came.

        A command of another gateway that may be alive is left to it, unless it came too long ago.
        """
        db = self._services.db
        old = db.clock() - _COMMAND_SECONDS
        for row in await asyncio.to_thread(db.inbox.cut_off_commands):
            if row.reason and not process_identity.is_gone(row.reason) and row.received_at > old:
                continue
            name = event_of(row).get_command() or "command"
            source = source_of(row)
            reply = notices.parcel(
                "cut_off", row.id, notices.cut_off_command(name), platform=row.platform, chat_id=row.chat_id,
                account=row.account, thread_id=source.thread_id, trace_id=row.trace_id,
            )  # fmt: skip
            why = "it was under way when the process was lost"
            end = partial(db.inbox.end_command_in, row_id=row.id, outcome="error", reason=why, reply=reply)
            await queued(db.engine, end)

    async def finish(self, ids: list[int], outcome: Outcome, reason: str) -> None:
        await asyncio.to_thread(self._services.db.inbox.finish, ids, outcome, reason=reason)

    def _queued(self, route: SessionKey) -> list[InboxRow]:
        """Oldest first; an edit stands in the place of the message it replaced."""
        inbox = self._services.db.inbox
        found: list[InboxRow] = []
        while page := inbox.queued(route, after=found[-1].id if found else 0, limit=_PAGE):
            found += page
        places = {row.id: self._place(row) for row in found}
        late = [row.id for row in found if places[row.id] is None]
        if late:
            inbox.finish(late, "silent", reason="an edit of a message that was answered already")
        return sorted((row for row in found if row.id not in late), key=lambda row: places[row.id] or row.id)

    def _place(self, row: InboxRow) -> int | None:
        """None for an edit that came after the answer."""
        if not row.version:
            return row.id
        versions = self._services.db.inbox.versions(
            platform=row.platform, account=row.account, chat_id=row.chat_id, message_id=row.message_id
        )
        if any(one.state in ("answered", "silent", "error") for one in versions):
            return None
        return min(one.id for one in versions)
