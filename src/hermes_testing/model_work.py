"""What the store means, in plain Python: leases with fences, inbox, turns and outbox. See `model`."""

from __future__ import annotations

from dataclasses import dataclass, field

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
