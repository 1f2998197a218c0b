"""All writes of one turn, in as few commits as its guarantees allow.

    open            lease, turn row and the user's text               one commit
                    (or the turn of a dead process, which has to end first)
    append          a model's step, before any of its tools runs       one commit
    call_started    the mark before an effect                          one commit
    call_finished   the result and the mark after it                   one commit
    commit          last message, usage, outcome, lease given back     one commit

The event loop queues every write to the store's writer, so many turns share commits and none occupies a thread.
Every write carries the fence: when another process has taken the conversation over, `StaleFence` is raised and
nothing is written. A compression in the middle of the turn moves it to the new segment.
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
from hermes_state.turns import held_answers, leases, prefixes
from hermes_state.turns.effects import UNKNOWN, Effects, Started
from hermes_state.turns.inbox import OWN, Inbox
from hermes_state.turns.leases import Lease, Leases
from hermes_state.turns.model_calls import ModelCall, ModelCalls
from hermes_state.turns.outbox import NewOutboxItem
from hermes_state.turns.turns import Ended, EndState, Turns, Work

T = TypeVar("T")
Row = Mapping[str, Any]


class Begun(NamedTuple):
    """The state of the conversation in the transaction that wrote the user's row.

    The turn holds the lease from then on, so an agent that kept the conversation in memory need not read it again.
    """

    row: Row
    """The user's row."""
    row_id: int
    live: transcript.LiveState | None
    """Counts the user's row; its head is the row before that one."""
    prefix: tuple[int, str] | None
    """(epoch, hash) of the newest prefix."""


_Opened = tuple[Lease, Work, SessionId, Begun | None]


class Journal:
    """The writes of one running turn. `open` or `resume` creates it; `commit` or `give_up` ends it once."""

    def __init__(
        self, store: Store, lease: Lease, work: Work, session_id: SessionId, begun: Begun | None = None
    ) -> None:
        self._store = store
        self.begun = begun
        """Set when opening the turn wrote a user's row."""
        self._turns, self._effects, self._leases = Turns(store), Effects(store), Leases(store)
        self.lease = lease
        self.work = work
        self.lane: SessionKey | None = None
        """The lane of messages that may join a turn without a route."""
        self.session_id = session_id
        """The segment that takes rows; a compression changes it."""
        self._model_calls: list[ModelCall] = []
        """Calls that have ended; the next rows of the turn are stored together with them."""

    @property
    def conversation_id(self) -> ConversationId:
        return self.lease.conversation_id

    @property
    def turn_id(self) -> TurnId:
        return self.work.turn.id

    @property
    def fence(self) -> int:
        return self.lease.fence

    # -- begin -------------------------------------------------------------------------------------------

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
        trace_id: str = "",
        left_open: Callable[[], bool] = lambda: False,
    ) -> Journal | None:
        """Open a new turn on the newest segment, with the user's row; None while somebody else holds the lease.

        A turn that a dead process left running comes first: then that turn is opened (`resumed`), `user` is not
        written, and the caller calls again after the turn has ended. `claim`: how many queued rows of the route (or of
        the `lane`, for a turn without a route) the turn takes, or their ids. `left_open`: called when the caller is
        cancelled; True leaves the turn for another process to recover, False ends it.
        """

        def begin(conn: Connection, lease: Lease, segment: SessionId) -> _Opened | None:
            work = Turns(store).begin_in(
                conn, conversation_id=lease.conversation_id, session_id=segment, fence=lease.fence, route=route,
                lane=lane, claim=claim, trace_id=trace_id,
            )  # fmt: skip
            if work is None or user is None:
                return None if work is None else (lease, work, segment, None)
            said = held_answers.with_notes(conn, lease.conversation_id, user)
            if own := [row for row in work.claimed if row.message_id.startswith(OWN)]:
                said = {**said, "origin": ((own[0].payload or {}).get("own") or {}).get("origin")}
            row = transcript.encode({"turn_id": work.turn.id, **said}, store.clock(), store.limits.message_bytes)
            row_id = transcript.append(conn, segment, row)
            live = transcript.state_in(conn, segment, below=row_id)
            return lease, work, segment, Begun(said, row_id, live, prefixes.newest_in(conn, lease.conversation_id))

        return await cls._open_or_recover(store, session_id, begin, holder=holder, ttl=ttl, left_open=left_open)

    @classmethod
    async def resume(
        cls, store: Store, session_id: str, *, holder: str, ttl: float, left_open: Callable[[], bool] = lambda: False
    ) -> Journal | None:
        """Recover the turn of a dead process; None when there is none, or another process holds the conversation."""
        return await cls._open_or_recover(store, session_id, None, holder=holder, ttl=ttl, left_open=left_open)

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
        """Continue a turn that waited for an answer; None when it does not wait, or somebody else holds the lease."""

        def begin(conn: Connection, lease: Lease, segment: SessionId) -> _Opened | None:
            work = Turns(store).wake_in(conn, turn_id, fence=lease.fence, session_id=segment)
            return None if work is None else (lease, work, segment, None)

        return await cls._open_or_recover(store, session_id, begin, holder=holder, ttl=ttl, left_open=left_open)

    @classmethod
    async def _open_or_recover(
        cls,
        store: Store,
        session_id: str,
        begin: Callable[[Connection, Lease, SessionId], _Opened | None] | None,
        *,
        holder: str,
        ttl: float,
        left_open: Callable[[], bool],
    ) -> Journal | None:
        """Open the turn that a dead process left, else the one that `begin` creates.

        If the caller is cancelled, the turn it just opened is ended, or left for another process.
        """
        import asyncio

        def run(conn: Connection) -> _Opened | None:
            conversation, segment = _conversation_and_segment(conn, session_id)
            lease = Leases(store).acquire_in(conn, conversation, holder=holder, ttl=ttl)
            if lease is None:
                return None
            left = Turns(store).abandoned_in(conn, conversation, fence=lease.fence)
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
        """Whether a process that is gone began the turn."""
        return self.work.turn.attempt > 1

    async def renew(self, *, ttl: float) -> bool:
        """Renew the lease; False when it is lost and the work must stop."""
        lease = await self._queue(lambda conn: self._leases.renew_in(conn, self.lease, ttl=ttl))
        return lease is not None

    # -- steps and tool calls ----------------------------------------------------------------------------

    async def append(self, *rows: Row) -> list[int]:
        """Append rows in one commit, perhaps shared with other turns; returns their ids. Raises `StaleFence`."""
        encoded, segment, write_calls = [self._encoded(row) for row in rows], self.session_id, self._calls_writer()

        def run(conn: Connection) -> list[int]:
            leases.check(self._store, conn, self.conversation_id, self.fence)
            write_calls(conn)
            return [transcript.append(conn, segment, row) for row in encoded]

        return await self._queue(run)

    def rotate(self, compacted: Iterable[Row], *, expected_head: int | None = None) -> Handle:
        """Compress under the fence; the turn continues in the child. Blocks."""
        ledger = Ledger(self._store)
        handle = ledger.rotate(self.session_id, compacted, fence=self.fence, expected_head=expected_head)
        self.session_id = handle.session_id
        return handle

    async def append_with(
        self, ids: Sequence[int], row: Callable[[Collection[int]], Row | None]
    ) -> tuple[Row, int] | None:
        """Claim these queued messages for this turn and append one row that contains them.

        `row` is called in the transaction with the messages that were still queued: those edited or dropped meanwhile
        are left out. None: there was nothing to append.
        """
        segment = self.session_id

        def run(conn: Connection) -> tuple[Row, int] | None:
            leases.check(self._store, conn, self.conversation_id, self.fence)
            made = row(self._claimed(conn, ids))
            return None if made is None else (made, transcript.append(conn, segment, self._encoded(made)))

        return await self._queue(run)

    async def call_started(self, call_id: str, *, tool: str) -> Started:
        """Mark an effect before it happens. It may happen only if `.new` is true."""
        turn_id, fence = self.turn_id, self.fence
        return await self._queue(lambda conn: self._effects.start_in(conn, turn_id, call_id, tool=tool, fence=fence))

    async def call_finished(
        self, call_id: str, row: Row, *, unknown: bool = False, also: Callable[[Connection], None] | None = None
    ) -> int:
        """Store the result's row and mark the effect as finished, together. `also`: a write of the transaction.

        `unknown`: the row says that nobody knows what the call did.
        """
        turn_id, fence, segment = self.turn_id, self.fence, self.session_id
        encoded = self._encoded(row)

        def run(conn: Connection) -> int:
            self._effects.finish_in(conn, turn_id, call_id, fence=fence, result=UNKNOWN if unknown else None)
            if also is not None:
                also(conn)
            return transcript.append(conn, segment, encoded)

        return await self._queue(run)

    # -- end ---------------------------------------------------------------------------------------------

    async def commit(
        self,
        *final: Row,
        used: Sequence[usage.Used] = (),
        reply: NewOutboxItem | None = None,
        reason: str = "",
        note: Mapping[str, Any] | None = None,
        also: Callable[[Connection], None] | None = None,
        answered: bool = False,
    ) -> Ended:
        """End the turn as done. `note`: a note for the next turn; `also`: a small write of the same transaction.

        `answered`: there is an answer that is not sent to a chat.
        """
        turn_id, fence, segment = self.turn_id, self.fence, self.session_id
        rows, write_calls = [{"turn_id": turn_id, **row} for row in final], self._calls_writer()

        def run(conn: Connection) -> Ended:
            ended = self._turns.commit_in(
                conn, turn_id, fence=fence, session_id=segment, final=rows, reply=reply, reason=reason, used=used,
                note=note, answered=answered or self.work.turn.route is None,
            )  # fmt: skip
            write_calls(conn)
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
        reply: NewOutboxItem | None = None,
    ) -> Ended:
        """End the turn as failed, cancelled or given up; `last` are rows that belong to the transcript nevertheless."""
        turn_id, fence, segment = self.turn_id, self.fence, self.session_id
        rows, write_calls = [self._encoded(row) for row in last], self._calls_writer()

        def run(conn: Connection) -> Ended:
            leases.check(self._store, conn, self.conversation_id, fence)
            write_calls(conn)
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
        """Release the turn unfinished, for another process to recover."""
        await self._queue(lambda conn: self._turns.leave_in(conn, self.turn_id, self.lease))

    async def wait(self, question_id: str, *, used: Sequence[usage.Used] = ()) -> None:
        """Release the turn until the question is answered."""
        write_calls = self._calls_writer()

        def run(conn: Connection) -> None:
            write_calls(conn)
            for one in used:
                usage.account(conn, self.session_id, one.checked(), self._store.clock())
            self._turns.wait_in(conn, self.turn_id, self.lease, question_id=question_id, session_id=self.session_id)

        await self._queue(run)

    async def waited_finished(
        self, question_id: str, row: Row, *, unknown: bool = False, also: Callable[[Connection], None] | None = None
    ) -> int:
        """Store the result of the call that waited and mark its question as finished, as `call_finished` does."""
        turn_id, fence, segment = self.turn_id, self.fence, self.session_id
        encoded = self._encoded(row)

        def run(conn: Connection) -> int:
            for mark in (f"ask:{question_id}", f"run:{question_id}"):
                self._effects.start_in(conn, turn_id, mark, tool="question", fence=fence)
                self._effects.finish_in(conn, turn_id, mark, fence=fence, result=UNKNOWN if unknown else None)
            if also is not None:
                also(conn)
            return transcript.append(conn, segment, encoded)

        return await self._queue(run)

    def record_call(self, call: ModelCall) -> None:
        """Remember a model call that has ended. The commit of the turn's next row, or of its end, stores it."""
        self._model_calls.append(call)

    def _calls_writer(self) -> Callable[[Connection], None]:
        calls, self._model_calls = self._model_calls, []
        attempt = self.work.turn.attempt
        return lambda conn: ModelCalls(self._store).add_in(conn, self.turn_id, attempt, calls) if calls else None

    def _claimed(self, conn: Connection, ids: Sequence[int]) -> set[int]:
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
        result: T = await writer.queued(self._store.engine, fn, no_savepoint=True)
        return result


def _conversation_and_segment(conn: Connection, session_id: str) -> tuple[ConversationId, SessionId]:
    """The conversation of a session, and its segment that takes rows."""
    tip, node = chain.tip_node(conn, session_id)
    if node is None:
        raise SessionNotFound(f"no session {session_id!r:.80}")
    return ConversationId(node[1]), tip
