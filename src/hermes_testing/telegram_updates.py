"""Updates on their way to the bot, and how a poller waits for them.

An update stays in the queue until `getUpdates` is called with an offset above its id, or until it is a day old. Which
kinds are queued at all is decided when they happen, by the last `allowed_updates` anybody gave. What became of each
is kept for checkers.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from dataclasses import dataclass, field

from hermes_testing.telegram_answers import Json

DAY = 86_400.0
KEPT = 100_000
KINDS = frozenset(
    {
        "message", "edited_message", "channel_post", "edited_channel_post", "callback_query", "inline_query",
        "my_chat_member", "chat_member", "message_reaction", "message_reaction_count", "chat_join_request", "poll",
        "poll_answer",
    }
)  # fmt: skip
UNASKED = KINDS - {"chat_member", "message_reaction", "message_reaction_count"}
"""What a bot gets that never said what it wants."""


class Bell:
    """Wakes every coroutine that waits for something to change, from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()

    def ring(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, set()
        for loop, event in waiting:
            if not loop.is_closed():
                loop.call_soon_threadsafe(event.set)

    def listen(self) -> asyncio.Event:
        """An event that the next `ring` sets. Take it before looking, wait on it after."""
        event = asyncio.Event()
        with self._lock:
            self._waiting.add((asyncio.get_running_loop(), event))
        return event


@dataclass(slots=True)
class Update:
    id: int
    kind: str
    body: Json
    at: float
    chat_id: int = 0
    message_id: int = 0
    delivered: int = 0
    """How many times it was handed out."""
    acknowledged_at: float | None = None

    def json(self) -> Json:
        return {"update_id": self.id, **self.body}


@dataclass(slots=True)
class UpdateQueue:
    bell: Bell
    pending: list[Update] = field(default_factory=list)
    done: deque[Update] = field(default_factory=lambda: deque(maxlen=KEPT))
    """The acknowledged ones, newest last."""
    allowed: frozenset[str] = UNASKED
    last_id: int = 1_000

    def put(self, kind: str, body: Json, at: float, *, chat_id: int = 0, message_id: int = 0) -> int | None:
        """Queue an update; None when the bot did not ask for its kind."""
        if kind not in self.allowed:
            return None
        return self.force({kind: body}, at, kind=kind, chat_id=chat_id, message_id=message_id)

    def force(self, body: Json, at: float, *, kind: str = "raw", chat_id: int = 0, message_id: int = 0) -> int:
        """Queue any object as an update, also one that Telegram would never send."""
        self.last_id += 1
        self.pending.append(Update(self.last_id, kind, body, at, chat_id, message_id))
        self.bell.ring()
        return self.last_id

    def allow(self, kinds: list[str] | None) -> None:
        """`allowed_updates`: None keeps what was said before, an empty list goes back to the usual ones."""
        if kinds is not None:
            self.allowed = frozenset(kinds) & KINDS or UNASKED

    def take(self, offset: int, limit: int, now: float) -> list[Update]:
        """Acknowledge what lies below the offset; the first ones from there on. Negative: that many from the end."""
        if offset < 0:
            offset = self.pending[offset].id if len(self.pending) >= -offset else 0
        for update in self.pending:
            if update.id < offset:
                update.acknowledged_at = now
        self.done.extend(update for update in self.pending if update.id < offset)
        self.pending = [update for update in self.pending if update.id >= offset and now - update.at <= DAY]
        batch = self.pending[:limit]
        for update in batch:
            update.delivered += 1
        return batch

    def drop(self) -> None:
        self.pending.clear()
