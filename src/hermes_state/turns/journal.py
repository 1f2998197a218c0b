"""The store's side of one turn, in as few commits as its promises allow.

    open            lease, turn row and the user's text               one commit
                    (or the turn that a lost process left here, which has to be ended first)
    append          a model's step, before any of its tools runs       one commit
    call_started    the mark before an effect                          one commit
    call_finished   the result and the mark after it                   one commit
    commit          last message, usage, outcome, lease given back     one commit

All of it is queued to the store's writer from the event loop, so many turns share commits and none holds a thread.
Every write carries the fence: when another process has taken the conversation over, `StaleFence` is raised and
nothing is written. The segment moves with a compression in the middle of the turn.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from hermes_state.conversations import chain, transcript
from hermes_state.conversations.ledger import Handle, Ledger
from hermes_state.errors import SessionNotFound
from hermes_state.ids import ConversationId, SessionId, SessionKey, TurnId
from hermes_state.people import usage
from hermes_state.storage import writer
from hermes_state.storage.base import Connection, Store
from hermes_state.turns import leases, prefixes
from hermes_state.turns.effects import Effects, Started
from hermes_state.turns.inbox import Inbox
from hermes_state.turns.leases import Lease, Leases
from hermes_state.turns.outbox import Parcel
from hermes_state.turns.turns import Ended, EndState, Turns, Work

T = TypeVar("T")
Row = Mapping[str, Any]


class Begun(NamedTuple):
    """What stands in the store behind the user's row, seen in the transaction that wrote it.

    The lease is held from there on: an agent that kept the conversation need not look again.
    """

    row: Row
    """The user's."""
    row_id: int
    live: transcript.LiveState | None
    """It counts the row, and its head is the one before it."""
    prefix: tuple[int, str] | None
    """(epoch, hash) of the newest."""


_Opened = tuple[Lease, Work, SessionId, Begun | None]


class Journal:
    """A turn that is being written down. Made by `open` or `resume`, ended once by `commit` or `give_up`."""

    def __init__(
        self, store: Store, lease: Lease, work: Work, session_id: SessionId, begun: Begun | None = None
    ) -> None:
        self._store = store
        self.begun = begun
        """When a user's row was written as the turn was opened."""
        self._turns, self._effects, self._leases = Turns(store), Effects(store), Leases(store)
        self.lease = lease
        self.work = work
        self.lane: SessionKey | None = None
        """Where messages wait that may join a turn without a route."""
        self.session_id = session_id
        """The segment that takes rows; a compression moves it."""

    @property
    def conversation_id(self) -> ConversationId:
        return self.lease.conversation_id

    @property
    def turn_id(self) -> TurnId:
        return self.work.turn.id

    @property
    def fence(self) -> int:
        return self.lease.fence

    # -- beginning ---------------------------------------------------------------------------------------

    @classmethod
    async def open(
        cls,
        store: Store,
        session_id: str,
        *,
        holder: str,
        ttl: float,
        user: Row | None = None,
        route: SessionKey | None = None,
        lane: SessionKey | None = None,
        claim: int | Sequence[int] = 0,
        left_open: Callable[[], bool] = lambda: False,
    ) -> Journal | None:
        """A new turn on the newest segment of the conversation, with the user's row; None while somebody else works.

        A turn that a lost process left behind comes first: then that one is opened (`resumed`), nothing of `user` is
        written, and the caller asks again when it has ended. `claim`: how many of the queued rows of the route (or the
        `lane`, for a turn without a route) it takes, or which. `left_open`:
        asked when the caller is cancelled, whether the turn is for another process to take up; else it ends there.
        """

        def begin(conn: Connection, lease: Lease, segment: SessionId) -> _Opened | None:
            work = Turns(store).begin_in(
                conn, conversation_id=lease.conversation_id, session_id=segment, fence=lease.fence, route=route,
                lane=lane, claim=claim,
            )  # fmt: skip
            if work is None or user is None:
                return None if work is None else (lease, work, segment, None)
            row = transcript.encode({"turn_id": work.turn.id, **user}, store.clock(), store.limits.message_bytes)
            row_id = transcript.append(conn, segment, row)
            live = transcript.state_in(conn, segment, below=row_id)
            return lease, work, segment, Begun(user, row_id, live, prefixes.newest_in(conn, lease.conversation_id))

        return await cls._opened(store, session_id, begin, holder=holder, ttl=ttl, left_open=left_open)

    @classmethod
    async def resume(
        cls, store: Store, session_id: str, *, holder: str, ttl: float, left_open: Callable[[], bool] = lambda: False
    ) -> Journal | None:
        """Take over the turn whose process is gone; None when there is none, or somebody works on the conversation."""
        return await cls._opened(store, session_id, None, holder=holder, ttl=ttl, left_open=left_open)

    @classmethod
    async def wake(
        cls,
        store: Store,
        session_id: str,
        turn_id: TurnId,
        *,
        holder: str,
        ttl: float,
        left_open: Callable[[], bool] = lambda: False,
    ) -> Journal | None:
        """Go on with a turn that waited for an answer; None when it does not wait, or somebody works here."""

        def begin(conn: Connection, lease: Lease, segment: SessionId) -> _Opened | None:
            work = Turns(store).wake_in(conn, turn_id, fence=lease.fence, session_id=segment)
            return None if work is None else (lease, work, segment, None)

        return await cls._opened(store, session_id, begin, holder=holder, ttl=ttl, left_open=left_open)

    @classmethod
    async def _opened(
        cls,
        store: Store,
        session_id: str,
        begin: Callable[[Connection, Lease, SessionId], _Opened | None] | None,
        *,
        holder: str,
        ttl: float,
        left_open: Callable[[], bool],
    ) -> Journal | None:
        """The turn that was left behind, else the one that `begin` makes.

        If the caller is cancelled, the turn that it just opened is ended, or left for another process.
        """
        import asyncio

        def run(conn: Connection) -> _Opened | None:
            conversation, segment = _place(conn, session_id)
            lease = Leases(store).acquire_in(conn, conversation, holder=holder, ttl=ttl)
            if lease is None:
                return None
            left = Turns(store).left_behind_in(conn, conversation, fence=lease.fence)
            if left is not None:
                resumed = Turns(store).resume_in(conn, left.id, fence=lease.fence, session_id=segment)
                return lease, resumed, segment, None
            opened = None if begin is None else begin(conn, lease, segment)
            if opened is None:
                Leases(store).release_in(conn, lease)
            return opened

        opening = writer.queued(store.engine, run, no_savepoint=True)
        try:
            opened = await asyncio.shield(opening)
        except asyncio.CancelledError:
            await asyncio.wait({opening})
            if opening.exception() is None and (late := opening.result()) is not None:
                journal = cls(store, *late)
                await (journal.leave() if left_open() else journal.give_up("cancelled", reason="cancelled"))
            raise
        return None if opened is None else cls(store, *opened)

    @property
    def resumed(self) -> bool:
        """It was begun by a process that is gone."""
        return self.work.turn.attempt > 1

    async def renew(self, *, ttl: float) -> bool:
        """Keep the lease; False when it is lost and the work must stop."""
        lease = await self._queue(lambda conn: self._leases.renew_in(conn, self.lease, ttl=ttl))
        return lease is not None

    # -- on the way --------------------------------------------------------------------------------------

    async def append(self, *rows: Row) -> list[int]:
        """Rows in one commit, perhaps together with other turns'; their ids. `StaleFence` without the lease."""
        encoded, segment = [self._encoded(row) for row in rows], self.session_id

        def run(conn: Connection) -> list[int]:
            leases.check(self._store, conn, self.conversation_id, self.fence)
            return [transcript.append(conn, segment, row) for row in encoded]

        return await self._queue(run)

    def rotate(self, compacted: Iterable[Row], *, expected_head: int | None = None) -> Handle:
        """Compress under the fence; the turn goes on in the child. Blocks."""
        ledger = Ledger(self._store)
        handle = ledger.rotate(self.session_id, compacted, fence=self.fence, expected_head=expected_head)
        self.session_id = handle.session_id
        return handle

    async def append_with(
        self, ids: Sequence[int], row: Callable[[Collection[int]], Row | None]
    ) -> tuple[Row, int] | None:
        """A row that takes in what these queued messages say: from now on they are this turn's.

        `row` is made in the transaction, from those that still waited: one that was edited or dropped meanwhile says
        nothing here. None: nothing was left to say.
        """
        segment = self.session_id

        def run(conn: Connection) -> tuple[Row, int] | None:
            leases.check(self._store, conn, self.conversation_id, self.fence)
            made = row(self._joined(conn, ids))
            return None if made is None else (made, transcript.append(conn, segment, self._encoded(made)))

        return await self._queue(run)

    async def call_started(self, call_id: str, *, tool: str) -> Started:
        """Before an effect. Only when `.new` may it happen."""
        turn_id, fence = self.turn_id, self.fence
        return await self._queue(lambda conn: self._effects.start_in(conn, turn_id, call_id, tool=tool, fence=fence))

    async def call_finished(self, call_id: str, row: Row) -> int:
        """The result's row and the mark that the effect is over, together."""
        turn_id, fence, segment = self.turn_id, self.fence, self.session_id
        encoded = self._encoded(row)

        def run(conn: Connection) -> int:
            self._effects.finish_in(conn, turn_id, call_id, fence=fence)
            return transcript.append(conn, segment, encoded)

        return await self._queue(run)

    # -- the end -----------------------------------------------------------------------------------------

    async def commit(
        self,
        *final: Row,
        used: Sequence[usage.Used] = (),
        reply: Parcel | None = None,
        reason: str = "",
        note: Mapping[str, Any] | None = None,
        also: Callable[[Connection], None] | None = None,
    ) -> Ended:
        """A good end. `note`: what the turn leaves for the next one; `also`: something small that is stored with it."""
        turn_id, fence, segment = self.turn_id, self.fence, self.session_id
        rows = [{"turn_id": turn_id, **row} for row in final]

        def run(conn: Connection) -> Ended:
            ended = self._turns.commit_in(
                conn, turn_id, fence=fence, session_id=segment, final=rows, reply=reply, reason=reason, used=used,
                note=note, answered=self.work.turn.route is None,
            )  # fmt: skip
            if also is not None:
                also(conn)
            self._leases.release_in(conn, self.lease)
            return ended

        return await self._queue(run)

    async def give_up(
        self,
        state: EndState,
        *last: Row,
        reason: str,
        used: Sequence[usage.Used] = (),
        reply: Parcel | None = None,
    ) -> Ended:
        """Failed, cancelled or given up; `last` are rows that belong to the transcript all the same."""
        turn_id, fence, segment = self.turn_id, self.fence, self.session_id
        rows = [self._encoded(row) for row in last]

        def run(conn: Connection) -> Ended:
            leases.check(self._store, conn, self.conversation_id, fence)
            ids = tuple(transcript.append(conn, segment, row) for row in rows)
            for one in used:
                usage.account(conn, segment, one.checked(), self._store.clock())
            ended = self._turns.give_up_in(
                conn, turn_id, state, fence=fence, reason=reason, reply=reply, session_id=segment
            )
            self._leases.release_in(conn, self.lease)
            return Ended(ids, ended.reply)

        return await self._queue(run)

    async def leave(self) -> None:
        """Put the turn down as it is, for another process to take up."""
        await self._queue(lambda conn: self._turns.leave_in(conn, self.turn_id, self.lease))

    async def wait(self, question_id: str, *, used: Sequence[usage.Used] = ()) -> None:
        """Put the turn down until the question is answered."""

        def run(conn: Connection) -> None:
            for one in used:
                usage.account(conn, self.session_id, one.checked(), self._store.clock())
            self._turns.wait_in(conn, self.turn_id, self.lease, question_id=question_id, session_id=self.session_id)

        await self._queue(run)

    async def waited_finished(self, question_id: str, row: Row) -> int:
        """What became of the call that waited, and that its question needs nothing more, together."""
        turn_id, fence, segment = self.turn_id, self.fence, self.session_id
        encoded = self._encoded(row)

        def run(conn: Connection) -> int:
            for mark in (f"ask:{question_id}", f"run:{question_id}"):
                self._effects.start_in(conn, turn_id, mark, tool="question", fence=fence)
                self._effects.finish_in(conn, turn_id, mark, fence=fence)
            return transcript.append(conn, segment, encoded)

        return await self._queue(run)

    def _joined(self, conn: Connection, ids: Sequence[int]) -> set[int]:
        route = self.work.turn.route or self.lane
        if not ids or route is None:
            return set()
        taken = Inbox(self._store).claim_ids_in(conn, route=route, turn_id=self.turn_id, ids=ids)
        return {row.id for row in taken}

    def _encoded(self, row: Row) -> transcript.Encoded:
        return transcript.encode(
            {"turn_id": self.turn_id, **row}, self._store.clock(), self._store.limits.message_bytes
        )

    async def _queue(self, fn: Callable[[Connection], T]) -> T:
        result: T = await writer.queued(self._store.engine, fn)
        return result


def _place(conn: Connection, session_id: str) -> tuple[ConversationId, SessionId]:
    """The conversation of a session, and the segment that takes rows."""
    tip, node = chain.tip_node(conn, session_id)
    if node is None:
        raise SessionNotFound(f"no session {session_id!r:.80}")
    return ConversationId(node[1]), tip
