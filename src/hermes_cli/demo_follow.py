"""What is new in a chat that a gateway serves, read from the store by somebody who looks on.

The event log says which turns began, were taken up again and ended; the rows of a turn say what was done and said; the
inbox has what was typed elsewhere, the outbox what the gateway itself had to say. `Follower.news` gives what came since
the last call, in the order in which a person would have seen it. It writes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gateway import beside, onlookers
from hermes_agent.tools import registry
from hermes_state.routes import Routes

if TYPE_CHECKING:
    from hermes_state import SessionDB
    from hermes_state.approvals import Approval
    from hermes_state.events import Event
    from hermes_state.ids import SessionKey, TurnId
    from hermes_state.turns import Turn

_LISTED = 50
_SCOPE = "sessions"
"""Where the gateway keeps its routes."""
_FAILED = ("was not run", "failed:", "was stopped", "was interrupted")
_ENDED = ("turn.done", "turn.failed", "turn.cancelled", "turn.parked")


@dataclass(frozen=True, slots=True)
class Typed:
    """A message that came in from the chat itself."""

    text: str


@dataclass(frozen=True, slots=True)
class Said:
    """Words of the model, or of the gateway."""

    text: str
    notice: bool = False
    reply: bool = False
    """To a command: it may come in the middle of what the model is saying."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Some more of what is being said; `Said` ends it."""

    text: str


@dataclass(frozen=True, slots=True)
class Called:
    """A tool call with its end."""

    name: str
    summary: str
    seconds: float
    failed: bool
    why: str = ""


@dataclass(frozen=True, slots=True)
class Asked:
    """A question of permission that is open."""

    approval: Approval


@dataclass(frozen=True, slots=True)
class TakenUp:
    """The process that worked on the turn was lost, and another one goes on."""

    attempt: int


@dataclass(frozen=True, slots=True)
class Ended:
    """A turn's end, with what it used."""

    model: str
    tokens: int


News = Typed | Piece | Said | Called | Asked | TakenUp | Ended


@dataclass(slots=True)
class _Followed:
    """A turn that runs: which of its rows were told."""

    turn: Turn
    tokens: int
    last_row: int = 0
    last_at: float = 0.0
    calls: dict[str, tuple[str, str]] = field(default_factory=dict)
    said: str = ""
    steps: int = 0
    """How many times the model has said something whole."""
    shown: str = ""
    """What was shown of what it is saying now."""
    asked: set[str] = field(default_factory=set)


class Follower:
    """One chat, from now on."""

    def __init__(self, db: SessionDB, home: Path, route: SessionKey, chat_id: str) -> None:
        self._db, self._home, self._route, self._chat = db, home, route, chat_id
        rows, items = db.inbox.list(limit=1), db.outbox.list(limit=1)
        self._row, self._item = rows[0].id if rows else 0, items[0].id if items else 0
        self._cursor = self._at_end()
        self._turns: dict[TurnId, _Followed] = {}
        here = Routes(db, _SCOPE).look(route)
        self._before = {} if here is None or here.session_id is None else {here.session_id: self._used(here.session_id)}
        """What a session had used after its last turn: a quick one has begun and ended before anybody looks."""

    def _at_end(self) -> str:
        batch = self._db.events.since()
        while batch.events:
            batch = self._db.events.since(batch.cursor)
        return batch.cursor

    @property
    def busy(self) -> bool:
        """A turn was running when `news` was last asked for."""
        return bool(self._turns)

    def news(self) -> list[News]:
        # The events are read first: what a turn wrote before its end is there when its end is.
        batch = self._db.events.since(self._cursor)
        self._cursor = batch.cursor
        here = Routes(self._db, _SCOPE).look(self._route)
        if here is not None and here.root_id is not None:
            onlookers.look_on(self._home, here.root_id)
        told: list[News] = [*self._typed()]
        for event in batch.events:
            told += self._happened(event)
        for followed in self._turns.values():
            told += [*self._rows(followed), *self._questions(followed), *self._pieces(followed)]
        return [*told, *self._notices()]

    # -- from the chat -------------------------------------------------------------------------------------

    def _typed(self) -> Iterator[News]:
        new = [row for row in self._db.inbox.list(route=self._route, limit=_LISTED) if row.id > self._row]
        for row in reversed(new):
            self._row = row.id
            if not beside.is_beside(row) and "answer" not in (row.payload or {}):
                yield Typed(str((row.payload or {}).get("text") or ""))

    def _notices(self) -> Iterator[News]:
        """What the gateway itself says; a question is shown from its own row, an answer from the turn's."""
        new = [item for item in self._db.outbox.list(limit=_LISTED) if item.id > self._item]
        for item in reversed(new):
            self._item = item.id
            kind = item.payload.get("kind")
            told = kind in ("command", "notice") and not item.dedup_key.startswith("notice:beside:")
            if item.chat_id == self._chat and told:
                yield Said(str(item.payload.get("text") or ""), notice=kind == "notice", reply=kind == "command")

    # -- a turn --------------------------------------------------------------------------------------------

    def _happened(self, event: Event) -> Iterator[News]:
        if event.turn_id is None:
            return
        followed = self._turns.get(event.turn_id)
        if event.kind in ("turn.begun", "turn.resumed") and followed is None:
            turn = self._db.turns.get(event.turn_id)
            if turn is not None and turn.route == self._route:
                used = self._before.get(turn.session_id)
                self._turns[turn.id] = _Followed(
                    turn, self._used(turn.session_id) if used is None else used, last_at=turn.started_at,
                )  # fmt: skip
        elif event.kind == "turn.resumed" and followed is not None:
            yield from self._rows(followed)
            followed.steps = 0  # it is said anew, from the beginning; what was shown of it is not shown again
            yield TakenUp(int((event.detail or {}).get("attempt", 0)))
        elif event.kind in _ENDED and followed is not None:
            yield from self._rows(followed)
            yield from self._end(followed, event)

    def _end(self, followed: _Followed, event: Event) -> Iterator[News]:
        del self._turns[followed.turn.id]
        turn = self._db.turns.get(followed.turn.id) or followed.turn
        number = (event.detail or {}).get("outbox")
        item = None if number is None else self._db.outbox.get(int(number))
        text = "" if item is None else str(item.payload.get("text") or "")
        if text and not _is_known(text.strip(), followed.said.strip(), stopped=event.kind == "turn.cancelled"):
            yield Said(text)
        model = str((self._db.get_session(turn.session_id) or {}).get("model") or "")
        used = self._before[turn.session_id] = self._used(turn.session_id)
        tokens = used - (followed.tokens if turn.session_id == followed.turn.session_id else 0)
        yield Ended(model, tokens)

    def _rows(self, followed: _Followed) -> Iterator[News]:
        turn = self._db.turns.get(followed.turn.id) or followed.turn
        for row in self._db.get_messages(turn.session_id):
            if row["id"] > followed.last_row and row.get("turn_id") == turn.id:
                followed.last_row = row["id"]
                yield from self._row_news(followed, row)
                followed.last_at = float(row["timestamp"])

    def _row_news(self, followed: _Followed, row: dict[str, Any]) -> Iterator[News]:
        text = row["content"] if isinstance(row["content"], str) else ""
        if row["role"] == "assistant":
            followed.said = text
            shown, followed.shown, followed.steps = followed.shown, "", followed.steps + 1
            if text.strip():
                yield Said(text.removeprefix(shown))  # when it was not that, it is told once more
            for call in row.get("tool_calls") or ():
                name, arguments = call["function"]["name"], call["function"]["arguments"]
                followed.calls[call["id"]] = (name, _summary(name, arguments))
        elif row["role"] == "tool":
            name, summary = followed.calls.pop(str(row["tool_call_id"]), (str(row["tool_name"]), ""))
            waited, denied = self._waited(followed, since=followed.last_at)
            seconds = max(0.0, float(row["timestamp"]) - followed.last_at - waited)
            failed = denied or any(words in text[:200] for words in _FAILED)
            yield Called(name, summary, seconds, failed, why="not allowed" if denied else text if failed else "")

    def _waited(self, followed: _Followed, *, since: float) -> tuple[float, bool]:
        """How long a person took to answer since then, which is not the tool's time; and whether they said no."""
        seconds, denied = 0.0, False
        for one in map(self._db.approvals.get, followed.asked):
            if one is not None and one.created_at >= since:
                seconds += (one.decided_at or one.expires_at) - one.created_at
                denied = denied or one.state in ("denied", "lapsed", "revoked")
        return seconds, denied

    def _questions(self, followed: _Followed) -> Iterator[News]:
        for approval in self._db.approvals.pending():
            if approval.turn_id == followed.turn.id and approval.id not in followed.asked:
                followed.asked.add(approval.id)
                yield Asked(approval)

    def _pieces(self, followed: _Followed) -> Iterator[News]:
        """What was said since, of the step whose row is not there yet."""
        found = onlookers.made(self._home, followed.turn.conversation_id)
        if found is None or found.turn_id != followed.turn.id or followed.steps >= len(found.steps):
            return
        now = found.steps[followed.steps]
        if len(now) > len(followed.shown):
            yield Piece(now.removeprefix(followed.shown))
            followed.shown = now

    def _used(self, session_id: str) -> int:
        row = self._db.get_session(session_id) or {}
        return int(row.get("input_tokens") or 0) + int(row.get("output_tokens") or 0)


def _is_known(text: str, said: str, *, stopped: bool) -> bool:
    """What stands in the chat at the end was shown here. Of a turn that was stopped its tool lines stand there too."""
    return text == said or (stopped and bool(said) and text.startswith(said))


def _summary(name: str, arguments: str) -> str:
    tool = registry.shared().get(name)
    try:
        given = json.loads(arguments or "{}")
    except ValueError:
        return ""
    return tool.summary(given) if tool is not None and isinstance(given, dict) else ""
