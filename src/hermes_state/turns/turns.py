"""Turns: one inbound batch each, its attempts, and exactly one outcome.

`running` → `done`, `failed`, `cancelled` or `given_up`. A turn works under the fence of its conversation's lease; every
change checks it in the same transaction, so an attempt that lost the lease writes nothing more.

`commit_in` ends a good turn in one transaction: the last message rows, usage, the outbox item, the inbox rows' outcome,
the turn's state and the event. When a turn's process died, `resume_in` continues the turn under a new fence; the
transcript and the effect marks say how far it came. After `limits.turn_attempts` processes have died under it, the turn
has to be given up, so that one poisoned message cannot kill the gateway for ever. Two kinds of attempts do not count:
a process that shuts down normally releases its turn (`leave_in`), and beside an `accompanied` turn other recovered
turns ran, one of which may have killed the process.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from hermes_state import columns
from hermes_state.conversations import transcript
from hermes_state.errors import NotQueued, StateError, TurnOver
from hermes_state.ids import (
    ConversationId,
    SessionId,
    SessionKey,
    TurnId,
    checked_id,
    is_child,
    new_trace_id,
    new_turn_id,
)
from hermes_state.people import usage
from hermes_state.storage.base import Connection, Store, StorePart, scalar
from hermes_state.storage.statements import Queries
from hermes_state.turns import leases
from hermes_state.turns.effects import Effects
from hermes_state.turns.events import Events
from hermes_state.turns.inbox import Inbox, InboxRow, Outcome
from hermes_state.turns.outbox import NewOutboxItem, Outbox, OutboxItem

if TYPE_CHECKING:
    from hermes_state.turns.children import Children


SET_ASIDE = "set aside"
"""The `reason` of a turn that waits for /catchup; other waiting turns have the id of their question there."""
EndState = Literal["done", "failed", "cancelled", "given_up"]


class Deaths(NamedTuple):
    """How many processes died under a turn, and under how many of them it may be to blame."""

    all: int
    blamed: int


@dataclass(frozen=True, slots=True)
class Turn:
    id: TurnId
    conversation_id: ConversationId
    session_id: SessionId
    route: SessionKey | None
    trace_id: str
    fence: int
    attempt: int
    state: str
    reason: str | None
    progress: dict[str, Any] | None
    started_at: float
    updated_at: float
    ended_at: float | None


_turn = columns.RowType(Turn)
Q = Queries("turns", columns=_turn.columns)


@dataclass(frozen=True, slots=True)
class Work:
    """A running turn and the inbox rows that it answers, in order, without a terminal's prompts."""

    turn: Turn
    inbox: tuple[InboxRow, ...]
    claimed: tuple[InboxRow, ...] = ()
    """For a turn that begins: every row it took, a terminal's and a child's too."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a turn ended: the ids of the message rows it wrote, and the outbox item of its reply."""

    message_ids: tuple[int, ...]
    reply: OutboxItem | None


class Turns(StorePart):
    """Begins, resumes and ends turns."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._inbox = Inbox(store)
        self._outbox = Outbox(store)
        self._events = Events(store)

    # -- begin and resume --------------------------------------------------------------------------------

    def begin_in(
        self,
        conn: Connection,
        *,
        conversation_id: ConversationId,
        session_id: SessionId,
        fence: int,
        route: SessionKey | None = None,
        lane: SessionKey | None = None,
        claim: int | Sequence[int] = 0,
        turn_id: TurnId | None = None,
        trace_id: str = "",
    ) -> Work | None:
        """Begin a new turn, in a transaction that has just taken or checked the lease.

        `claim`: how many of the route's oldest queued rows it takes (None is returned when none waits), or exactly
        which rows; `NotQueued` when one of them is no longer queued. `lane`: the route of the rows, for a terminal's
        turn, which has no route itself. Such rows end with the turn like others, but get no outbox item. `trace_id`:
        that of the command that asked for the turn.
        """
        new = turn_id or new_turn_id()
        checked_id(new, what="turn id")
        checked_id(session_id)
        taken: tuple[InboxRow, ...] = ()
        if (queue := route or lane) is not None and claim:
            if isinstance(claim, int):
                taken = self._inbox.claim_in(conn, route=queue, turn_id=new, limit=claim)
                if not taken:
                    return None
            else:
                taken = self._inbox.claim_ids_in(conn, route=queue, turn_id=new, ids=claim)
                if missing := len(claim) - len(taken):
                    raise NotQueued(f"of {len(claim)} messages {missing} are not waiting any more")
        now = self._store.clock()
        trace = taken[0].trace_id if taken else trace_id or new_trace_id()
        conn.run(Q.begin, (new, conversation_id, session_id, route, trace, fence, now, now))
        turn = Turn(new, conversation_id, session_id, route, trace, fence, 1, "running", None, None, now, now, None)
        self._event(conn, turn, new, "turn.begun", inbox=[row.id for row in taken], fence=fence)
        if is_child(conversation_id):
            self._children().begun_in(conn, conversation_id)
        return Work(turn, () if route is None else taken, taken)

    def resume_in(self, conn: Connection, turn_id: TurnId, *, fence: int, session_id: SessionId | None = None) -> Work:
        """Recover a turn that nobody works on: the next attempt, under the caller's own fence."""
        turn = self._take_over(conn, turn_id, fence)
        now, segment, seen = self._store.clock(), session_id or turn.session_id, turn.updated_at
        turn = _turn(conn.rows(Q.resume, (fence, segment, now, turn_id))[0])
        self._event(conn, turn, turn_id, "turn.resumed", attempt=turn.attempt, fence=fence, last_seen=seen)
        return Work(turn, () if turn.route is None else self._inbox.of_turn_in(conn, turn_id))

    def leave_in(self, conn: Connection, turn_id: TurnId, lease: leases.Lease) -> None:
        """Release a turn and its lease normally: another process may recover it at once."""
        held = leases.hold_turn(self._store, conn, turn_id, lease.fence)
        self._event(conn, held, turn_id, "turn.left", fence=lease.fence)
        leases.Leases(self._store).release_in(conn, lease)

    def wait_in(
        self, conn: Connection, turn_id: TurnId, lease: leases.Lease, *, question_id: str, session_id: SessionId
    ) -> None:
        """Release a turn and its lease until its question is answered; nobody works on it meanwhile."""
        held = leases.hold_turn(self._store, conn, turn_id, lease.fence)
        self._outbox.set_aside_drafts_in(conn, turn_id, reason="the turn waits for permission")
        conn.run(Q.wait, (question_id, session_id, self._store.clock(), turn_id))
        self._event(conn, held, turn_id, "turn.waiting", question=question_id, fence=lease.fence)
        leases.Leases(self._store).release_in(conn, lease)

    def wake_in(self, conn: Connection, turn_id: TurnId, *, fence: int, session_id: SessionId) -> Work | None:
        """Continue a turn that waited, in a transaction that has just taken the lease; None when it does not wait.

        The mark `ask:<question>` stays open until the result of the call that waited is in the transcript.
        """
        found = conn.rows(Q.get.locked, (turn_id,))
        waited = _turn(found[0]) if found else None
        if waited is None or waited.state != "waiting":
            return None
        turn = _turn(conn.rows(Q.wake, (fence, session_id, self._store.clock(), turn_id))[0])
        if waited.reason != SET_ASIDE:
            Effects(self._store).start_in(conn, turn_id, f"ask:{waited.reason}", tool="question", fence=fence)
        self._event(conn, turn, turn_id, "turn.woken", attempt=turn.attempt, fence=fence, question=waited.reason)
        return Work(turn, () if turn.route is None else self._inbox.of_turn_in(conn, turn_id))

    def set_aside(self, turn_id: TurnId, *, fence: int, reply: NewOutboxItem | None = None) -> bool:
        """Make a turn that was left too long ago wait until somebody asks for it; its `reason` becomes `SET_ASIDE`."""

        def run(conn: Connection) -> bool:
            turn = self._take_over(conn, turn_id, fence)
            self._outbox.set_aside_drafts_in(conn, turn_id, reason=SET_ASIDE)
            conn.run(Q.wait, (SET_ASIDE, turn.session_id, turn.updated_at, turn_id))
            if reply is not None:
                self._outbox.enqueue_in(conn, reply)
            self._event(conn, turn, turn_id, "turn.waiting", reason=SET_ASIDE)
            return True

        return self._store.engine.write(run)

    def waiting(self, conversation_id: ConversationId | None = None) -> tuple[Turn, ...]:
        """Turns that wait for a person's answer, oldest first; `reason` is the id of the question."""
        return tuple(map(_turn, self._rows(Q.waiting, (conversation_id, conversation_id))))

    def answered(self) -> tuple[tuple[TurnId, str], ...]:
        """The waiting turns whose question is no longer open, or whose segment has ended (a compression, a reset), with
        the states of their questions. One indexed read of few rows."""
        return tuple((TurnId(row[0]), str(row[1])) for row in self._rows(Q.answered))

    def end_waiting(self, turn_id: TurnId, *, reason: str) -> bool:
        """Cancel a waiting turn; False when it no longer waits."""

        def run(conn: Connection) -> bool:
            found = conn.rows(Q.get.locked, (turn_id,))
            turn = _turn(found[0]) if found else None
            if turn is None or turn.state != "waiting":
                return False
            held = leases.HeldTurn(turn.conversation_id, turn.session_id, turn.trace_id, turn.attempt)
            self._end(conn, turn_id, held, turn.session_id, "cancelled", "dropped", reason, None)
            return True

        return self._store.engine.write(run)

    def deaths(self, turn: Turn, attempts: int) -> Deaths:
        """How many processes died under its first `attempts` attempts; the others released it normally."""
        seen = {str(kind): int(count) for kind, count in self._rows(Q.times_left, (turn.conversation_id, turn.id))}
        beside = seen.pop("turn.accompanied", 0)
        died = attempts - sum(seen.values())
        return Deaths(died, died - beside)

    def accompanied(self, turn: Turn) -> None:
        """Note that other suspects run beside this attempt: should its process die, nobody knows which one did it."""
        self._store.engine.write(lambda conn: self._event(conn, turn, turn.id, "turn.accompanied"))

    def interrupted_in(self, conn: Connection, turn_id: TurnId) -> None:
        """Note that the store failed during this attempt, and not its process; as a death it counts all the same."""
        found = conn.rows(Q.get, (turn_id,))
        if found and (turn := _turn(found[0])).state == "running":
            self._event(conn, turn, turn_id, "turn.interrupted", reason="the database was full or away")

    def abandoned_in(self, conn: Connection, conversation_id: ConversationId, *, fence: int) -> Turn | None:
        """The turn that a dead process left running, for the holder of a lease that was just taken.

        Of several, the newest is continued; the others are ended, because nobody can answer them any more.
        """
        running = [_turn(row) for row in conn.rows(Q.running, (conversation_id,))]
        for older in running[1:]:
            why = "its process was lost, and a newer turn came"
            self.give_up_in(conn, older.id, "failed", fence=fence, reason=why)
        return running[0] if running else None

    def note_in(self, conn: Connection, turn_id: TurnId, progress: Mapping[str, Any], *, fence: int) -> None:
        """Store what the turn is doing, for watchers."""
        text = columns.to_json(progress, self._store.limits, what="the note")
        leases.hold_turn(self._store, conn, turn_id, fence)
        conn.run(Q.note, (text, self._store.clock(), turn_id))

    def last_note(self, conversation_id: ConversationId) -> dict[str, Any] | None:
        """The note of the newest turn that has one, whatever its outcome."""
        return self._one(lambda row: columns.from_json(row[0]), Q.last_note, (conversation_id,))

    # -- requests from other processes -------------------------------------------------------------------

    def ask_to_stop(self, turn_id: TurnId, *, reason: str) -> bool:
        """Ask the process that runs a turn to end it; False when it has ended. Needs no fence."""
        return self._run(Q.ask_to_stop, (columns.note(reason), self._store.clock(), turn_id)) == 1

    def asked_to_stop(self) -> tuple[Turn, ...]:
        """Running turns that somebody asked to end; `reason` says why. One indexed read of few rows."""
        return tuple(map(_turn, self._rows(Q.asked_to_stop)))

    # -- ending ------------------------------------------------------------------------------------------

    def commit_in(
        self,
        conn: Connection,
        turn_id: TurnId,
        *,
        fence: int,
        session_id: SessionId | None = None,
        final: Iterable[Mapping[str, Any]] = (),
        reply: NewOutboxItem | None = None,
        reason: str = "",
        used: Sequence[usage.Used] = (),
        note: Mapping[str, Any] | None = None,
        answered: bool = False,
    ) -> Ended:
        """End a good turn: with a reply (or `answered` without one) its inbox rows are answered, else silent.

        `note` is the turn's note for the next one.
        """
        outcome: Outcome = "answered" if answered or reply is not None else "silent"
        now, top, final = self._store.clock(), self._store.limits.message_bytes, list(final)
        encoded = [transcript.encode(message, now, top) for message in final]
        held = leases.hold_turn(self._store, conn, turn_id, fence)
        segment = session_id or held.session_id
        ids = tuple(transcript.append(conn, segment, row) for row in encoded)
        for one in used:
            usage.account(conn, segment, one.checked(), now)
        item = self._end(conn, turn_id, held, segment, "done", outcome, reason, reply, note)
        if is_child(held.conversation_id):
            text = str(final[-1].get("content") or "") if final else reason
            self._children().ended_in(conn, held.conversation_id, "done", text)
        return Ended(ids, item)

    def cancel(self, turn_id: TurnId, *, fence: int, reason: str, reply: NewOutboxItem | None = None) -> Ended:
        """End a turn that was stopped on purpose; its messages are dropped."""
        return self._store.engine.write(
            lambda conn: self.give_up_in(conn, turn_id, "cancelled", fence=fence, reason=reason, reply=reply)
        )

    def give_up_in(
        self,
        conn: Connection,
        turn_id: TurnId,
        state: EndState,
        *,
        fence: int,
        reason: str,
        reply: NewOutboxItem | None = None,
        session_id: SessionId | None = None,
    ) -> Ended:
        """End an unsuccessful turn; `reply` tells the person.

        The fence may belong to a recovery instead of the turn. The messages of a cancelled turn are dropped.
        """
        turn = self._take_over(conn, turn_id, fence)
        segment = session_id or turn.session_id
        held = leases.HeldTurn(turn.conversation_id, segment, turn.trace_id, turn.attempt)
        outcome: Outcome = "dropped" if state == "cancelled" else "error"
        ended = Ended((), self._end(conn, turn_id, held, segment, state, outcome, reason, reply))
        if is_child(turn.conversation_id):
            how: Literal["cancelled", "failed"] = "cancelled" if state == "cancelled" else "failed"
            self._children().ended_in(conn, turn.conversation_id, how, reason)
        return ended

    def _children(self) -> Children:
        from hermes_state.turns.children import Children  # for the turns of children alone

        return Children(self._store)

    def _take_over(self, conn: Connection, turn_id: TurnId, fence: int) -> Turn:
        """The turn, when it runs and `fence` (its own or a newer one) holds its conversation."""
        found = conn.rows(Q.get.locked, (turn_id,))
        if not found:
            raise StateError(f"no turn {turn_id!r:.80}")
        turn = _turn(found[0])
        if turn.state != "running":
            raise TurnOver(turn_id, turn.state)
        leases.check(self._store, conn, turn.conversation_id, fence)
        return turn

    def _end(
        self,
        conn: Connection,
        turn_id: TurnId,
        held: leases.HeldTurn,
        session_id: SessionId,
        state: EndState,
        outcome: Outcome,
        reason: str,
        reply: NewOutboxItem | None,
        note: Mapping[str, Any] | None = None,
    ) -> OutboxItem | None:
        item = None
        if reply is not None:  # the reply belongs to its turn, conversation and trace, whatever the caller filled in
            own = replace(reply, conversation_id=held.conversation_id, turn_id=turn_id, trace_id=held.trace_id)
            item = self._outbox.enqueue_in(conn, own)
        else:
            self._outbox.drop_drafts_in(conn, turn_id, reason=reason or state)
        ended = self._inbox.finish_turn_in(conn, turn_id, outcome, reason=reason)
        now, text = self._store.clock(), columns.to_json(note, self._store.limits, what="the note")
        conn.run(Q.end, (state, columns.note(reason), session_id, now, now, text, turn_id))
        detail: dict[str, Any] = {"reason": reason, "inbox": ended, "outbox": item.id if item else None}
        if item is not None and item.platform_ids:
            detail["shown"] = list(item.platform_ids)  # the chat already showed it as a draft
        self._event(conn, held, turn_id, f"turn.{state}", **detail)
        return item

    def _event(
        self, conn: Connection, whose: Turn | leases.HeldTurn, turn_id: TurnId, kind: str, **detail: Any
    ) -> None:
        of = whose.conversation_id
        self._events.append_in(conn, of, kind, detail=detail, turn_id=turn_id, trace_id=whose.trace_id)

    # -- reads -------------------------------------------------------------------------------------------

    def get(self, turn_id: TurnId) -> Turn | None:
        return self._one(_turn, Q.get, (turn_id,))

    def beginning_with(self, start: str) -> tuple[Turn, ...]:
        """At most two turns whose ids begin so; `start` is `turn_` and hexadecimal digits."""
        return tuple(map(_turn, self._rows(Q.beginning, (start, f"{start}g"))))

    def running(self) -> tuple[Turn, ...]:
        """Running turns, oldest first, also those whose process died."""
        return tuple(map(_turn, self._rows(Q.all_running)))

    def list(
        self,
        *,
        state: str | None = None,
        conversation_id: ConversationId | None = None,
        offset: int = 0,
        limit: int = 50,
    ) -> tuple[Turn, ...]:
        """Turns, newest first."""
        return tuple(map(_turn, self._rows(Q.list, (state, state, conversation_id, conversation_id, limit, offset))))

    def of_trace(self, trace_id: str) -> tuple[Turn, ...]:
        """The turns of a message, oldest first; nearly always one."""
        return tuple(map(_turn, self._rows(Q.of_trace, (trace_id,))))

    def last_ended(self, conversation_id: ConversationId, *, limit: int = 5) -> tuple[Turn, ...]:
        """The newest turns of a conversation that have ended, newest first."""
        return tuple(map(_turn, self._rows(Q.last_ended, (conversation_id, limit))))

    def done(self, conversation_id: ConversationId) -> int:
        """How many turns of a conversation were answered."""
        return int(scalar(self._rows(Q.done, (conversation_id,))))

    def counts(self) -> dict[str, int]:
        return dict(self._store.engine.read(lambda conn: [(r[0], r[1]) for r in conn.rows(Q.counts)]))

    def prune(self) -> int:
        """Remove turns that ended longer ago than `limits.turns_days`, once no other row names them."""
        return self._remove_old(self._store.limits.turns_days, Q.prune)
