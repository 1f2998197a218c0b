"""How a conversation's segments come to be, inside the ledger's transactions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from hermes_state import chain, messages, sessions, transcript
from hermes_state.engine.base import Connection
from hermes_state.errors import IdTaken
from hermes_state.handles import Fresh, Q
from hermes_state.ids import PersonId, SessionId, checked_id, new_session_id
from hermes_state.transcript import Encoded

CARRIED = (
    "source", "user_id", "session_key", "chat_id", "chat_type", "thread_id", "display_name", "origin_json", "model",
    "model_config", "system_prompt", "cwd", "git_branch", "git_repo_root", "profile_name", "title", "preview",
    "archived", "compression_fallback_streak",
)  # fmt: skip
"""What a segment takes over from the one it continues or branches off."""


@dataclass(frozen=True, slots=True)
class New:
    """What a new conversation starts with."""

    source: str
    owner: PersonId | None
    session_id: str | None
    fields: dict[str, Any]
    entry: Mapping[str, Any] | None
    fresh: Fresh | None = None
    said: tuple[Encoded, ...] = ()
    """What was said before, elsewhere: the first conversation of a route begins with it."""

    def first(self) -> New:
        """For a route that had no conversation before."""
        return self if self.fresh is None else replace(self, entry=self.fresh(None, None))


def insert(conn: Connection, row: dict[str, Any], wanted: str | None, now: float) -> SessionId:
    """Insert under the wanted id, which must be free, or under a fresh one."""
    for _ in range(8):
        session_id = SessionId(checked_id(wanted)) if wanted is not None else new_session_id(now)
        if sessions.insert(conn, {"root_id": session_id, **row, "id": session_id}):
            return session_id
        if wanted is not None:
            raise IdTaken(f"a session {wanted!r:.80} exists already")
    raise IdTaken("no free session id was found")  # eight collisions of 32 random bits within one second


def count_copied(conn: Connection, session_id: str, now: float) -> None:
    copied = conn.rows(Q.live_rows, (session_id,))
    calls = sum(transcript.calls_of(role, tool_calls) for role, tool_calls, _ in copied)
    newest = max((timestamp for _, _, timestamp in copied), default=now)
    conn.run(Q.set_copied, (len(copied), calls, newest, session_id))
    messages.settle_minute(conn, session_id)


def found(conn: Connection, root: str, kind: str, origin: str | None, owner: str | None, now: float) -> None:
    chain.found_conversation(conn, root, tip_id=root, kind=kind, origin=origin, owner=owner, now=now)
    chain.settle(conn, root)
