"""What the store means, in plain Python: conversations, transcripts and routes.

The state machine of the tests does everything twice, here and in a real store, and compares. So this is the
shortest complete description of the ledger's verbs; where the two disagree, one of them is wrong. It knows
nothing of files, processes or SQL. `model_work` has leases, inbox, turns and outbox.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hermes_state.storage.base import Connection

ACCIDENTS = ("agent_close", "ws_orphan_reap")


@dataclass
class Row:
    role: str
    content: str
    state: str = "live"  # live | taken back | summarised | replaced


@dataclass
class Segment:
    id: str
    root: str
    parent: str | None = None
    ended: str | None = None
    title: str | None = None
    rows: list[Row] = field(default_factory=list)
    count: int = 0

    def live(self) -> list[Row]:
        return [row for row in self.rows if row.state == "live"]

    def visible(self) -> list[Row]:
        return [row for row in self.rows if row.state != "replaced"]

    def put(self, said: list[tuple[str, str]]) -> None:
        """These rows, and the counter says exactly that many."""
        self.rows += [Row(role, content) for role, content in said]
        self.count = len(said)


class Ended(Exception):
    """The segment was compressed and continues at `tip`."""

    def __init__(self, tip: str) -> None:
        super().__init__(tip)
        self.tip = tip


class Conversations:
    """Segments by id, and where routes lead. Every method is one verb; `new` is the id the verb must use."""

    def __init__(self) -> None:
        self.segments: dict[str, Segment] = {}
        self.routes: dict[str, str] = {}

    # -- looking -------------------------------------------------------------------------------------------

    def tip(self, session: str) -> str:
        """Follow compressions to the segment that is written to."""
        while self.segments[session].ended == "compression":
            (session,) = [s.id for s in self.segments.values() if s.parent == session and s.root == self.root(session)]
        return session

    def root(self, session: str) -> str:
        return self.segments[session].root

    def roots(self) -> list[str]:
        return [s.id for s in self.segments.values() if s.root == s.id]

    # -- the ledger ----------------------------------------------------------------------------------------

    def open(self, new: str, route: str | None = None) -> None:
        self.segments[new] = Segment(new, new)
        if route is not None:
            self.routes[route] = new

    def resolve(self, route: str, new: str | None = None) -> str | None:
        """What the route leads to; with `new`, a fresh conversation where there is none or it was ended for good."""
        if route not in self.routes:
            if new is not None:
                self.open(new, route)
            return new
        here = self.segments[self.routes[route]]
        if here.ended in ACCIDENTS:
            here.ended = None
        elif here.ended is not None:
            if new is not None:
                self.open(new, route)
            return new
        return here.id

    def rotate(self, session: str, said: list[tuple[str, str]], new: str) -> None:
        parent = self._writable(session)
        child = Segment(new, parent.root, parent.id, title=parent.title)
        child.put(said)
        parent.ended, parent.title = "compression", None
        self.segments[new] = child
        self.routes = {route: new if leads == session else leads for route, leads in self.routes.items()}

    def branch(self, session: str, new: str, route: str | None = None) -> None:
        self.segments[new] = Segment(new, new, session)
        self.segments[new].put([(row.role, row.content) for row in self.segments[session].live()])
        if route is not None:
            self._leave(route, "session_switch")
            self.routes[route] = new

    def switch(self, route: str, target: str) -> str:
        tip = self.tip(target)
        if self.routes.get(route) != tip:
            self._leave(route, "session_switch")
            self.routes[route] = tip
        self.segments[tip].ended = None
        return tip

    def take_along(self, route: str, new_route: str) -> bool:
        """Both routes lead there from now on, unless the new one led somewhere already."""
        if route not in self.routes or new_route in self.routes:
            return False
        self.routes[new_route] = self.tip(self.routes[route])
        return True

    def reset(self, route: str, new: str) -> None:
        self._leave(route, "session_reset")
        self.open(new, route)

    def end(self, session: str, reason: str) -> bool:
        """The first real reason stays; an accident gives way to it."""
        tip = self.segments[self.tip(session)]
        if tip.ended is not None and tip.ended not in ACCIDENTS:
            return False
        tip.ended = reason
        return True

    def reopen(self, session: str) -> str:
        tip = self.tip(session)
        self.segments[tip].ended = None
        return tip

    def delete(self, session: str) -> list[str]:
        """Erase the whole conversation; the ids that are gone."""
        root = self.root(session)
        gone = [s.id for s in self.segments.values() if s.root == root]
        self.segments = {s.id: s for s in self.segments.values() if s.id not in gone}
        self.routes = {route: leads for route, leads in self.routes.items() if leads not in gone}
        for segment in self.segments.values():
            if segment.parent in gone:
                segment.parent = None
        return gone

    def rename(self, session: str, title: str) -> None:
        self.segments[session].title = title

    def _leave(self, route: str, reason: str) -> None:
        """What a route turns away from ends, unless another route still leads there."""
        left = self.routes.pop(route, None)
        if left is not None and left not in self.routes.values():
            self.end(left, reason)

    # -- the transcript ------------------------------------------------------------------------------------

    def append(self, session: str, said: list[tuple[str, str]]) -> None:
        segment = self._writable(session)
        segment.rows += [Row(role, content) for role, content in said]
        segment.count += len(said)

    def rewind(self, session: str, visible_index: int) -> int:
        """Take back a visible row and every live one after it; how many."""
        segment = self.segments[session]
        back = [row for row in segment.visible()[visible_index:] if row.state == "live"]
        for row in back:
            row.state = "taken back"
        return len(back)

    def replace(self, session: str, said: list[tuple[str, str]]) -> None:
        segment = self.segments[session]
        for row in segment.rows:
            row.state = "replaced"
        segment.put(said)

    def compact(self, session: str, said: list[tuple[str, str]]) -> None:
        segment = self.segments[session]
        for row in segment.live():
            row.state = "summarised"
        segment.put(said)

    def _writable(self, session: str) -> Segment:
        tip = self.tip(session)
        if self.segments[session].ended == "compression":
            raise Ended(tip)
        return self.segments[session]


SENDING_SECONDS = 120.0
RETRY_SECONDS = 86_400


@dataclass
class Lease:
    fence: int
    holder: str | None
    expires: float
    ttl: float

    def live(self, now: float) -> bool:
        """Held, not run out, and not from a future that only a clock set back can make."""
        return self.holder is not None and now < self.expires <= now + self.ttl + 1


@dataclass
class Message:
    route: str
    came: float
    state: str = "queued"
    turn: str | None = None


@dataclass
class Turn:
    conversation: str
    segment: str
    fence: int
    attempt: int = 1
    state: str = "running"


@dataclass
class Item:
    chat: str
    conversation: str | None
    turn: str | None
    gives_up: int
    due: float
    state: str = "pending"
    attempts: int = 0
    sender: str | None = None
    until: float = 0.0


class Stale(Exception):
    """The fence does not hold the conversation."""


class Over(Exception):
    """The turn has its outcome already."""


class Held(Exception):
    """Somebody is at work on the conversation."""


@dataclass
class Work:
    """Keys: conversation id, platform message id, turn id, dedup key. `now` is given where time matters."""

    attempts: int
    leases: dict[str, Lease] = field(default_factory=dict)
    inbox: dict[str, Message] = field(default_factory=dict)
    turns: dict[str, Turn] = field(default_factory=dict)
    outbox: dict[str, Item] = field(default_factory=dict)
    fence_floor: int = 0

    # -- leases --------------------------------------------------------------------------------------------

    def acquire(self, conversation: str, holder: str, ttl: float, now: float) -> int | None:
        held = self.leases.get(conversation)
        if held is not None and held.live(now):
            return None
        fence = 1 + (held.fence if held is not None else self.fence_floor)
        self.leases[conversation] = Lease(fence, holder, now + ttl, ttl)
        return fence

    def renew(self, conversation: str, fence: int, ttl: float, now: float) -> bool:
        """A lease that ran out stays lost; one from before a clock was set back is put right."""
        held = self.leases.get(conversation)
        if held is None or held.fence != fence or held.holder is None or held.expires <= now:
            return False
        held.expires, held.ttl = now + ttl, ttl
        return True

    def release(self, conversation: str, fence: int) -> bool:
        held = self.leases.get(conversation)
        if held is None or held.fence != fence or held.holder is None:
            return False
        held.holder = None
        return True

    def check(self, conversation: str, fence: int, now: float) -> None:
        held = self.leases.get(conversation)
        if held is None or held.fence != fence or not held.live(now):
            raise Stale

    # -- inbox and turns -----------------------------------------------------------------------------------

    def accept(self, message: str, route: str, now: float) -> bool:
        if message in self.inbox:
            return False
        self.inbox[message] = Message(route, now)
        return True

    def begin(self, turn: str, conversation: str, segment: str, fence: int, route: str, now: float) -> str | None:
        """A turn with the oldest queued message of the route; None, and no turn, when none waits."""
        self.check(conversation, fence, now)
        for name, message in self.inbox.items():
            if message.route == route and message.state == "queued":
                message.state, message.turn = "claimed", turn
                self.turns[turn] = Turn(conversation, segment, fence)
                return name
        return None

    def may_commit(self, turn: str, fence: int, now: float) -> None:
        """A turn commits under its own fence only."""
        found = self.turns.get(turn)
        if found is None or found.conversation not in self.leases:
            raise Stale
        self._running(turn)
        if found.fence != fence:
            raise Stale
        self.check(found.conversation, fence, now)

    def may_take_over(self, turn: str, fence: int, now: float) -> None:
        """Giving up and resuming need the conversation's fence of now, whoever's turn it was."""
        self._running(turn)
        self.check(self.turns[turn].conversation, fence, now)

    def _running(self, turn: str) -> None:
        if self.turns[turn].state != "running":
            raise Over

    def finish(self, turn: str, state: str, outcome: str) -> None:
        self.turns[turn].state = state
        for message in self.inbox.values():
            if message.turn == turn and message.state == "claimed":
                message.state = outcome

    def resume(self, turn: str, fence: int) -> None:
        self.turns[turn].fence = fence
        self.turns[turn].attempt += 1

    def unfinished(self, now: float) -> set[str]:
        def abandoned(turn: Turn) -> bool:
            held = self.leases.get(turn.conversation)
            return held is None or held.fence != turn.fence or not held.live(now)

        return {name for name, turn in self.turns.items() if turn.state == "running" and abandoned(turn)}

    # -- outbox --------------------------------------------------------------------------------------------

    def owe(self, key: str, chat: str, conversation: str | None = None, turn: str | None = None) -> None:
        """Due at once, whatever becomes of the clock."""
        self.outbox.setdefault(key, Item(chat, conversation, turn, self.attempts, due=0.0))

    def claim_due(self, sender: str, now: float) -> set[str]:
        """The first unfinished item of each chat, when it is due."""
        first: dict[str, str] = {}
        for key, item in self.outbox.items():
            if item.state in ("pending", "sending"):
                first.setdefault(item.chat, key)
        claimed = set()
        for key in first.values():
            item = self.outbox[key]
            if item.state == "pending" and not now < item.due <= now + RETRY_SECONDS:
                item.state, item.sender, item.until = "sending", sender, now + SENDING_SECONDS
                item.attempts += 1
                claimed.add(key)
        return claimed

    def report(self, key: str, attempt: int, state: str, now: float, delay: float = 0) -> bool:
        """sent | pending (put off) | failed | unknown; counts only from the attempt that has the item."""
        item = self.outbox.get(key)
        late = state == "sent" and item is not None and item.state == "unknown"
        if item is None or item.attempts != attempt or not (item.state == "sending" or late):
            return False
        if state == "pending" and item.attempts >= item.gives_up:
            state = "failed"
        item.state, item.due = state, now + delay
        return True

    def lose_senders(self, now: float) -> set[str]:
        lost = set()
        for key, item in self.outbox.items():
            if item.state == "sending" and not now < item.until <= now + RETRY_SECONDS:
                item.state = "unknown"
                lost.add(key)
        return lost

    def retry(self, key: str) -> bool:
        item = self.outbox[key]
        if item.state not in ("failed", "unknown"):
            return False
        item.state, item.due, item.gives_up = "pending", 0.0, item.attempts + self.attempts
        return True

    def drop(self, key: str) -> bool:
        item = self.outbox[key]
        if item.state not in ("pending", "failed", "unknown"):
            return False
        item.state = "dropped"
        return True

    # -- deleting ------------------------------------------------------------------------------------------

    def erase(self, conversation: str, routes: set[str], now: float) -> None:
        """`routes` lead to it: a message that came on one of them within the hour is about to be worked on."""
        running = any(turn.conversation == conversation and turn.state == "running" for turn in self.turns.values())
        waits = any(m.route in routes and m.state == "queued" and m.came > now - 3600 for m in self.inbox.values())
        if running or waits or self.acquire(conversation, "delete", 60, now) is None:
            raise Held
        turns = {name for name, turn in self.turns.items() if turn.conversation == conversation}
        self.inbox = {name: m for name, m in self.inbox.items() if m.turn not in turns}
        self.outbox = {
            key: item
            for key, item in self.outbox.items()
            if item.conversation != conversation and item.turn not in turns
        }
        self.turns = {name: turn for name, turn in self.turns.items() if name not in turns}
        lease = self.leases.pop(conversation, None)
        if lease is not None:
            self.fence_floor = max(self.fence_floor, lease.fence)


def modelled(said: Conversations, work: Work) -> dict[str, Any]:
    return {
        "sessions": {s.id: (s.root, s.parent, s.ended, s.title, s.count) for s in said.segments.values()},
        "tips": {root: said.tip(root) for root in said.roots()},
        "routes": said.routes,
        "messages": {s.id: [(r.role, r.content, r.state) for r in s.rows] for s in said.segments.values() if s.rows},
        "leases": {name: (lease.fence, lease.holder) for name, lease in work.leases.items()},
        "inbox": {name: (m.route, m.state, m.turn) for name, m in work.inbox.items()},
        "turns": {name: (t.conversation, t.fence, t.attempt, t.state) for name, t in work.turns.items()},
        "outbox": {key: (i.chat, i.conversation, i.turn, i.state, i.attempts) for key, i in work.outbox.items()},
    }


def stored(conn: Connection) -> dict[str, Any]:
    def table(columns: str, name: str) -> dict[str, Any]:
        found = conn.rows(f"SELECT {columns} FROM {name}")
        return {row[0]: row[1] if len(row) == 2 else tuple(row[1:]) for row in found}

    transcripts: dict[str, list[tuple[str, str, str]]] = {}
    states = {(1, 0, 0): "live", (0, 0, 0): "taken back", (0, 1, 0): "summarised"}
    rows = conn.rows("SELECT session_id, role, content, active, compacted, replaced FROM messages ORDER BY id")
    for session, role, content, *flags in rows:
        state = "replaced" if flags[2] else states[tuple(flags)]
        transcripts.setdefault(session, []).append((role, content, state))
    return {
        "sessions": table("id, root_id, parent_session_id, end_reason, title, message_count", "sessions"),
        "tips": table("id, tip_id", "conversations"),
        "routes": table("session_key, session_id", "routes"),
        "messages": transcripts,
        "leases": table("conversation_id, fence, holder", "leases"),
        "inbox": table("message_id, route, state, turn_id", "inbox"),
        "turns": table("id, conversation_id, fence, attempt, state", "turns"),
        "outbox": table("dedup_key, chat_id, conversation_id, turn_id, state, attempts", "outbox"),
    }
