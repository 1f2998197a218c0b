"""`Recovery`: finds turns of dead processes, queued rows and old messages in the store.

A message that is older than `gateway.max_message_age` when the gateway first sees it is not answered by itself: its
author may no longer want an answer. It stays queued, its chat is told how many there are, and /catchup answers them. An
old command is dropped. Age and state are in the row, so a restart changes nothing.
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
from hermes_agent.turn.recovery import waiting_call
from hermes_agent.turn.tool_calls import NO_STEP
from hermes_state.errors import TurnOver
from hermes_state.ids import SessionId
from hermes_state.storage.writer import queued
from hermes_state.turns.jobs import CUT_OFF, is_lane
from hermes_state.turns.turns import SET_ASIDE

if TYPE_CHECKING:
    from gateway.chat.commands import ChatCommands
    from gateway.inbound.lanes import Tell
    from gateway.services import Services
    from hermes_state.ids import SessionKey
    from hermes_state.turns.approvals import Approval
    from hermes_state.turns.inbox import InboxRow, Outcome
    from hermes_state.turns.outbox import NewOutboxItem
    from hermes_state.turns.turns import Turn

_PAGE = 500
_LEASE_SECONDS = 30.0
_COMMAND_SECONDS = 900.0
"""After this time a command of another machine counts as dead; no command takes minutes."""
_FORGOTTEN_SECONDS = 60.0
"""A row that waits longer in no lane was stored by a process that could not tell its lane."""


GONE = "the client had gone"
OLD_COMMAND = "a command from before the gateway started"


def nobody_waits(row: InboxRow) -> bool:
    """Whether nobody can read the answer: an HTTP request from before this process, without an Idempotency-Key."""
    return row.platform == Platform.API_SERVER.value and "digest" not in (row.payload or {})


class QueuedRows(NamedTuple):
    """Queued rows of a route: those to answer, in order, and whether some wait for /catchup."""

    fresh: list[InboxRow]
    held: bool


class Recovery:
    """Reads the store for the lanes and ends what cannot continue; the lanes decide what runs."""

    def __init__(self, services: Services, commands: ChatCommands, tell: Tell) -> None:
        self._services, self._commands, self.tell = services, commands, tell

    def abandoned(self) -> list[Turn]:
        """Running turns whose process is dead, those with the fewest attempts first. Blocks."""
        db = self._services.db
        found = []
        for turn in db.turns.running():
            lease = None if turn.route is None else db.leases.get(turn.conversation_id)
            if turn.route is not None and (lease is None or process_identity.is_gone(lease.holder)):
                found.append(turn)
        return sorted(found, key=lambda turn: turn.attempt)

    async def answered(self) -> list[Turn]:
        """Waiting turns whose question was answered, to be continued on this machine."""
        waiting = await asyncio.to_thread(self._services.db.turns.waiting)
        return [turn for turn in waiting if turn.reason != SET_ASIDE and await self.may_continue(turn)]

    async def may_continue(self, turn: Turn) -> bool:
        """Whether a waiting turn can continue now. One that never can is ended, and the card of its question says why.

        A turn continues on the machine that asked, where its workspace is.
        """
        may, why, told = await asyncio.to_thread(self._look_at_waiting, turn)
        if why and turn.reason != SET_ASIDE:
            self._commands.question_closed(turn.reason or "", why)
        if why and told:
            source, rows = await self.source_and_rows(turn)
            if source is not None:
                said, account = f"I did not continue the waiting task: {why}.", rows[-1].account if rows else ""
                await self.tell(source, said, what="moved_on", occasion=turn.id, account=account)
        if may and turn.reason != SET_ASIDE:
            self._commands.question_answered(turn.reason or "")
        return may

    def _look_at_waiting(self, turn: Turn) -> tuple[bool, str, bool]:
        """(whether it may continue, why it was ended just now, whether its chat expects that it continues)"""
        db = self._services.db
        now = db.turns.get(turn.id)
        if now is None or now.state != "waiting":
            return False, "", False
        question = None if now.reason == SET_ASIDE else db.approvals.get(now.reason or "")
        why = self._never_continues(now, question)
        if why:
            if not db.turns.end_waiting(now.id, reason=why):
                return False, "", False
            if question is not None:
                db.approvals.withdraw(question.id, reason=why)
            return False, why, question is None or question.scope is not None
        if question is None:
            return True, "", False
        here = question.call.get("machine") in (None, process_identity.machine())
        return question.state != "pending" and here, "", False

    def _never_continues(self, turn: Turn, question: Approval | None) -> str:
        """Why a waiting turn can never continue; empty if it may."""
        db, asks = self._services.db, turn.reason != SET_ASIDE
        if asks and question is None:
            return "its question was deleted"
        if question is not None and question.state == "revoked":
            return question.reason or "its question was closed"
        if question is not None and (
            question.state == "lapsed" or (question.state == "pending" and question.expires_at <= db.clock())
        ):
            return "nobody answered in time"
        tip = SessionId(db.get_compression_tip(turn.session_id))
        if not is_lane(turn.route):
            here = None if turn.route is None else self._services.store.peek_session_id(turn.route)
            if here is None or db.get_conversation_root(here) != turn.conversation_id:
                return "this chat is now in another conversation"
            if asks and ((session := db.get_session(tip)) is None or session["ended_at"] is not None):
                return "the conversation has ended"
        if question is not None and waiting_call(db, tip, turn.id, question) is None:
            return NO_STEP
        return ""

    async def source_and_rows(self, turn: Turn) -> tuple[SessionSource | None, tuple[InboxRow, ...]]:
        """The chat of a turn, and its rows. A turn from a command has no rows: its route names the chat."""
        rows = await asyncio.to_thread(self._services.db.inbox.of_turn, turn.id)
        if rows:
            return source_of(rows[-1]), rows
        assert turn.route is not None, "turns without a route are not recovered here"
        entry = await asyncio.to_thread(self._services.store._entries.get, turn.route)
        return None if entry is None else entry.origin, ()

    def is_too_old(self, turn: Turn) -> bool:
        """Whether continuing it could surprise its author: `agent.gateway_auto_continue_freshness`, 0 is never."""
        most = self._services.settings.resume_window
        return 0 < most < self._services.db.clock() - turn.updated_at

    async def forgo_old(self, turn: Turn, source: SessionSource, *, account: str) -> None:
        """Set aside for /catchup a turn that was cut off too long ago; the same transaction tells its chat."""
        if is_lane(turn.route):
            await self._give_up_job(turn, source, account=account)
            return
        said = notices.old_turn(self._services.db.clock() - turn.updated_at)
        reply = notices.to_chat("old_turn", turn.id, said, source, account=account, trace_id=turn.trace_id)
        await asyncio.to_thread(self._under_lease, turn, partial(self._services.db.turns.set_aside, reply=reply))

    async def _give_up_job(self, turn: Turn, source: SessionSource, *, account: str) -> None:
        """End a job's run that was cut off long ago: what its tools did is not known, and the next run comes."""
        ago = notices.span(self._services.db.clock() - turn.updated_at)
        said = f"A scheduled job was interrupted {ago} ago, and I did not continue it."
        told = notices.to_chat("old_turn", turn.id, said, source, account=account, trace_id=turn.trace_id)
        await self.forgo(turn, CUT_OFF, reply=None if source.platform is Platform.LOCAL else told)

    async def set_aside(self, route: SessionKey) -> list[Turn]:
        """Turns of a route that wait for /catchup."""
        found = await asyncio.to_thread(self._services.db.turns.waiting)
        return [turn for turn in found if turn.route == route and turn.reason == SET_ASIDE]

    async def show_closed(self, turn: Turn) -> None:
        """If a question was closed when its turn continued (what was approved has changed), say so on its card."""
        question = await asyncio.to_thread(self._services.db.approvals.get, turn.reason or "")
        if question is not None and question.state == "revoked":
            self._commands.question_closed(question.id, question.reason or "")

    async def forgo(self, turn: Turn, reason: str = GONE, *, reply: NewOutboxItem | None = None) -> bool:
        """Cancel a dead process's turn, or one that waited; False when another process has recovered it."""
        if turn.state == "waiting":
            await asyncio.to_thread(self._services.db.approvals.revoke, turn.reason or "", reason=reason)
            return await asyncio.to_thread(self._services.db.turns.end_waiting, turn.id, reason=reason)
        cancel = partial(self._services.db.turns.cancel, reason=reason, reply=reply)
        return await asyncio.to_thread(self._under_lease, turn, cancel)

    def _under_lease(self, turn: Turn, change: Callable[..., object]) -> bool:
        db = self._services.db
        process_identity.release_gone(db, turn.conversation_id)
        lease = db.leases.acquire(turn.conversation_id, holder=process_identity.new_holder(), ttl=_LEASE_SECONDS)
        if lease is None:
            return False
        try:
            with contextlib.suppress(TurnOver):  # another process has ended it
                change(turn.id, fence=lease.fence)
        finally:
            db.leases.release(lease)
        return True

    async def routes(self) -> list[SessionKey]:
        return list(await asyncio.to_thread(self._services.db.inbox.waiting, limit=100_000))

    async def queued(self, route: SessionKey) -> QueuedRows:
        """The queued rows of a route. Old commands and edits of answered messages get their outcome here."""
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
                await self.drop_old_command(row)
        return QueuedRows(fresh, held)

    def forgotten(self, known: Container[int]) -> list[InboxRow]:
        """Queued rows that no lane has: their process was cut off before it told the lane. Blocks."""
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
        """Send one notice about all messages of a route that wait for /catchup; a restart does not repeat it."""
        rows = await self.held(route)
        if rows:
            last = rows[-1]
            text = notices.stale(len(rows), hours=self._services.settings.max_message_age / 3600)
            await self.tell(source_of(last), text, what="stale", occasion=last.id, account=last.account)

    async def end_cut_off(self) -> None:
        """End commands that were running when their process died, with a notice that the outcome is not known.

        One whose turn is recovered (`/retry`, a skill) ends silently. A command of another gateway that may be alive
        is left to it, unless the command is too old.
        """
        db = self._services.db
        old = db.clock() - _COMMAND_SECONDS
        for row in await asyncio.to_thread(db.inbox.cut_off_commands):
            if row.reason and not process_identity.is_gone(row.reason) and row.received_at > old:
                continue
            name = event_of(row).get_command() or "command"
            said = notices.cut_off_command(name)
            reply = notices.to_chat("cut_off", row.id, said, source_of(row), account=row.account, trace_id=row.trace_id)
            why = "it was running when the process died"
            end = partial(db.inbox.end_command_in, row_id=row.id, outcome="error", reason=why, reply=reply)
            if await asyncio.to_thread(self._has_turn, row):
                end = partial(db.inbox.end_command_in, row_id=row.id, outcome="answered", reason="its turn goes on")
            await queued(db.engine, end)

    def _has_turn(self, command: InboxRow) -> bool:
        """Whether a command had begun a turn that will answer: one with a message, but without an inbox row.

        The turn of `/compress` has no message, and recovery ends it in silence.
        """
        db = self._services.db
        return any(
            bool(db.turn_rows(db.get_compression_tip(one.session_id), one.id))
            for one in db.turns.of_trace(command.trace_id)
            if one.state == "running" and not db.inbox.of_turn(one.id)
        )

    async def drop_old_command(self, row: InboxRow) -> None:
        """End a command that was sent while no gateway ran, and tell its chat; a crash in between repeats neither."""
        said = notices.old_command(event_of(row).get_command())
        await self.tell(source_of(row), said, what="old_command", occasion=row.id, account=row.account)
        await self.finish([row.id], "dropped", OLD_COMMAND)

    async def finish(self, ids: list[int], outcome: Outcome, reason: str) -> None:
        await asyncio.to_thread(self._services.db.inbox.finish, ids, outcome, reason=reason)

    def _queued(self, route: SessionKey) -> list[InboxRow]:
        """The queued rows of a route, oldest first; an edit has the position of the message it replaced."""
        inbox = self._services.db.inbox
        found: list[InboxRow] = []
        while page := inbox.queued(route, after=found[-1].id if found else 0, limit=_PAGE):
            found += page
        positions = {row.id: self._position(row) for row in found}
        late = [row.id for row in found if positions[row.id] is None]
        if late:
            inbox.finish(late, "silent", reason="an edit of a message that was already answered")
        return sorted((row for row in found if row.id not in late), key=lambda row: positions[row.id] or row.id)

    def _position(self, row: InboxRow) -> int | None:
        """The row id that orders a row; None for an edit that came after the answer."""
        if not row.version:
            return row.id
        versions = self._services.db.inbox.versions(
            platform=row.platform, account=row.account, chat_id=row.chat_id, message_id=row.message_id
        )
        if any(one.state in ("answered", "silent", "error") for one in versions):
            return None
        return min(one.id for one in versions)
