"""What an agent keeps of its conversation from one turn to the next: where it is, the warm bytes, small notes.

None of it is the truth. The segment is looked up again when a turn opens, the bytes can be dropped at any moment and
made again from the store, and the notes (the to-do list) are lost with the agent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from hermes_agent import hooks, process_identity
from hermes_agent.prompt.transcript import TranscriptCache
from hermes_agent.setup import Setup
from hermes_agent.turn.model_step import Spent
from hermes_state.ids import ConversationId, SessionId
from hermes_state.turns.journal import Journal


class AgentState:
    """One for each agent."""

    def __init__(self, setup: Setup, session_id: SessionId | None, origin: Mapping[str, Any]) -> None:
        self._setup = setup
        self.session_id = session_id
        """The segment the conversation is at; None before the first turn of a new one."""
        self.origin = dict(origin)
        """Columns of a session that is made here."""
        self.notes: dict[str, Any] = {}
        self.spent = Spent()
        """What the last turn came to."""
        self._track: TranscriptCache | None = None
        self._announced = ""
        self._titles: set[asyncio.Task[None]] = set()

    @property
    def known_session(self) -> SessionId:
        assert self.session_id is not None, "`ready` comes first"
        return self.session_id

    @property
    def warm(self) -> bool:
        """It had a turn here."""
        return self._track is not None

    @property
    def nbytes(self) -> int:
        return 0 if self._track is None else self._track.nbytes

    def message_count(self, session_id: SessionId) -> int | None:
        return None if self._track is None else self._track.message_count(session_id)

    async def ready(self, history: Sequence[Mapping[str, Any]] = ()) -> None:
        """The conversation exists, and `session_id` names one of its segments: a turn opens on the newest."""
        if self.warm and not history:
            return  # should it be deleted since, opening the next turn says so
        if not history and self._setup.db.engine.dialect == "sqlite" and self._found():
            return  # two rows of a local file, by their keys: less than handing the question to a thread
        if await asyncio.to_thread(self._ensure, history):
            endpoint, platform = self._setup.endpoint, self._setup.platform
            await hooks.fire("on_session_start", session_id=self.session_id, model=endpoint.model, platform=platform)

    def _ensure(self, history: Sequence[Mapping[str, Any]]) -> bool:
        """Make the session when there is none, and fill it when it is empty. True when it is new."""
        db, setup = self._setup.db, self._setup
        new = not self._found()
        if new:
            handle = db.ledger.open(
                source=str(self.origin.get("source") or setup.platform), owner=setup.person_id,
                session_id=self.session_id,
                fields={"model": setup.endpoint.model, "cwd": str(setup.workdir), **self.origin},
            )  # fmt: skip
            self.session_id = handle.session_id
        if history and db.message_count(self.known_session) == 0:
            db.append_messages(self.known_session, history)
        return new

    def _found(self) -> bool:
        """Whether the session is there; if so, `session_id` names the newest segment of its conversation."""
        db, known = self._setup.db, self.session_id
        if known is None or db.get_session(known) is None:
            return False
        self.session_id = SessionId(db.get_compression_tip(known))
        return True

    async def begin_anew(self) -> None:
        """The conversation was deleted meanwhile: what is said now begins it again."""
        self.release()
        self._track = None
        await self.ready()

    def free(self) -> bool:
        """Take the lease from a process that is gone for certain."""
        db = self._setup.db
        return process_identity.release_gone(db, ConversationId(db.get_conversation_root(self.known_session)))

    def exchange(self, setup: Setup, reason: str) -> None:
        """Other parts from now on; the bytes that were made with the old ones go."""
        self.release()
        self._track = None
        self._setup = setup
        self.announce(reason)

    def announce(self, reason: str) -> None:
        """The next turn renders what the prompt begins with anew."""
        self._announced = reason

    def track(self, journal: Journal) -> TranscriptCache:
        """The bytes of the conversation that the turn is in."""
        if self._track is None or self._track.conversation_id != journal.conversation_id:
            self._track = TranscriptCache(self._setup, journal.conversation_id)
        if self._announced:
            self._track.announce(self._announced)
            self._announced = ""
        return self._track

    def release(self) -> None:
        if self._track is not None:
            self._track.release()

    def title_soon(self, journal: Journal) -> None:
        """Beside the chat; nobody waits for it but `titled`."""
        from hermes_agent import titles

        task = titles.after_turn(self._setup, journal.conversation_id, journal.session_id)
        if task is not None:
            self._titles.add(task)
            task.add_done_callback(self._titles.discard)

    async def titled(self, *, seconds: float) -> None:
        if self._titles:
            await asyncio.wait(set(self._titles), timeout=seconds)
