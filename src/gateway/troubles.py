"""What a lane does when a turn could not be run: try again, wait, tell the person, or let it be.

Every kind of trouble has its rule here, and ends in one of two ways: the rows get an outcome, or they stay queued and
are tried again. None of it touches another lane.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Literal

from gateway import busy, replies
from gateway.insisting import written
from gateway.looking import look
from gateway.running import Running, ShutOut, Stopped
from hermes_agent.agent import ConversationBusy, LeftElsewhere
from hermes_config.errors import HermesError
from hermes_state.errors import NotQueued, SessionNotFound, StaleFence, StateError
from hermes_state.storage.writer import queued
from hermes_state.turns.outbox import Parcel

if TYPE_CHECKING:
    from gateway.board import Board
    from gateway.lane import Tell
    from hermes_state.ids import TurnId
    from hermes_state.storage.base import Connection
    from hermes_state.turns.inbox import InboxRow, Outcome

_log = logging.getLogger("hermes.gateway")
_FIRST_PAUSE, _LONGEST_BUSY, _LONGEST_STORE = 0.05, 2.0, 15.0
_TOLD_AFTER = 6
"""Tries: by then somebody else has had the conversation for two seconds."""


class Troubles:
    """Shared by all lanes; what it remembers of one turn is in `Patience`."""

    def __init__(self, board: Board, tell: Tell, make_way: Callable[[TurnId], Awaitable[object]]) -> None:
        """`make_way`: has a turn that was left behind brought to its end, for which another place waits."""
        self._board, self._tell, self._make_way = board, tell, make_way
        self.closing = asyncio.Event()
        """Set when the gateway ends: nobody waits any longer."""

    async def after(self, error: Exception, running: Running, patience: Patience) -> bool:
        """Deal with it; True: try the turn again."""
        try:
            return await self._after(error, running, patience)
        except StateError as worse:
            _log.error("a lane waits for the store: %s", worse.one_line(), extra=_about(running, "store_trouble"))
            return await self._pause(patience, _LONGEST_STORE)

    async def look_failed(self, error: StateError, patience: Patience) -> None:
        """A lane could not read what comes next: it looks again after a while."""
        _log.error("a lane waits for the store: %s", error.one_line(), extra={"action": "store_trouble"})
        await self._pause(patience, _LONGEST_STORE)

    async def _after(self, error: Exception, running: Running, patience: Patience) -> bool:
        if isinstance(error, Stopped):
            await self.finish(running.rows, "dropped", "stopped by the person")
            return False
        if isinstance(error, ShutOut):
            await self.finish(running.rows, "dropped", "its author was shut out before it was read")
            return False
        if isinstance(error, ConversationBusy):
            return await self._busy(error, running, patience)
        if isinstance(error, NotQueued):
            running.rows = tuple([row for row in running.rows if await self._is_queued(row)])
            return bool(running.rows)
        if isinstance(error, StaleFence):
            _log.warning("another process took a conversation over", extra=_about(running, "taken_over"))
            return False  # it will end the turn; its rows are that turn's
        if isinstance(error, SessionNotFound) and not patience.missed:
            patience.missed = True  # deleted between two looks: the route is asked anew
            return True
        if isinstance(error, StateError):
            _log.error("a turn was not stored: %s", error.one_line(), extra=_about(running, "store_trouble"))
            if not await self._pause(patience, _LONGEST_STORE):
                return False
            return await self._still_ours(running) or await self._let_go(running)
        if isinstance(error, HermesError):
            _log.warning("a turn failed: %s", error.one_line(), extra=_about(running, "turn_failed"))
            await self.failed(running, error.in_chat())
            return False
        _log.error("a turn failed in our own code", exc_info=error, extra=_about(running, "turn_defect"))
        await self.failed(running, f"Something went wrong inside Hermes ({type(error).__name__}).")
        return False

    async def _busy(self, error: ConversationBusy, running: Running, patience: Patience) -> bool:
        running.agent = None  # it may be at work for another place, which a /stop here is not for
        if isinstance(error, LeftElsewhere):
            await self._make_way(error.turn_id)
        if patience.tries == _TOLD_AFTER and running.rows:
            row = running.rows[-1]
            await self._tell(
                running.source, busy.elsewhere(), what="elsewhere", occasion=row.id, account=row.account
            )  # fmt: skip
        return await self._pause(patience, _LONGEST_BUSY)

    async def _pause(self, patience: Patience, most: float) -> bool:
        """Wait a little longer each time; False when there is no use in it any more: then the rows stay queued."""
        seconds = min(most, _FIRST_PAUSE * 2.0 ** min(patience.tries, 16))
        patience.tries += 1
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.closing.wait()
        return not self.closing.is_set()

    async def _still_ours(self, running: Running) -> bool:
        """After trouble with the store: rows that no turn has may be tried again; a turn's are taken up with it."""
        running.rows = tuple([row for row in running.rows if await self._is_queued(row)])
        return bool(running.rows)

    async def _let_go(self, running: Running) -> Literal[False]:
        """A turn has the rows, and the store failed in the middle of it: free, it is taken up at the next look.

        Else whoever looks would wait until the lease has run out, which is in the name of this living process.
        """
        agent, leases = running.agent, self._board.db.leases
        if agent is not None and not agent.in_turn:
            await written(
                self._board.db, lambda conn: leases.release_holder_in(conn, agent.holder), what="that a turn is free"
            )
        return False

    async def _is_queued(self, row: InboxRow) -> bool:
        db = self._board.db
        now = await look(db, db.inbox.get, row.id)
        return now is not None and now.state == "queued"

    async def failed(self, running: Running, said: str) -> None:
        """No turn came of it: the person is told, and that is the rows' outcome."""
        text = replies.normalize_empty_agent_response({"failed": True, "error": said}, "")
        if not running.rows:
            await self._tell(
                running.source, text, what="failed", occasion=running.left or f"{running.route}:{running.since}"
            )
            return
        row, inbox = running.rows[-1], self._board.db.inbox
        thread = {"thread_id": running.source.thread_id} if running.source.thread_id else {}
        reply = Parcel(
            dedup_key=f"answer:inbox:{row.id}", platform=row.platform, account=row.account, chat_id=row.chat_id,
            payload={"text": text, "kind": "answer", **thread}, trace_id=row.trace_id,
        )  # fmt: skip

        def run(conn: Connection) -> None:
            for one in running.rows:
                if inbox.take_command_in(conn, one.id):
                    owed = reply if one is row else None
                    inbox.end_command_in(conn, one.id, "error", reason=said, reply=owed)

        await queued(self._board.db.engine, run)

    async def finish(self, rows: tuple[InboxRow, ...], outcome: Outcome, reason: str) -> None:
        """An outcome for rows that no turn has."""
        ids = [row.id for row in rows]
        await asyncio.to_thread(self._board.db.inbox.finish, ids, outcome, reason=reason)


class Patience:
    """What was tried already for one turn."""

    __slots__ = ("missed", "tries")

    def __init__(self) -> None:
        self.tries = 0
        self.missed = False


def _about(running: Running, action: str) -> dict[str, object]:
    trace = running.rows[-1].trace_id if running.rows else None
    return {"action": action, "trace_id": trace}
