"""What goes wrong on the way, as data.

    Fault("drop_after", method="sendMessage", times=1)      the message is sent, the answer never arrives
    Fault("error", chance=0.1, status=502)                  one request in ten meets a bad gateway
    Fault("reorder", chance=0.5)                            updates come shuffled

| kind | what happens |
|---|---|
| `drop_before` | the connection closes and nothing was done |
| `drop_after` | it was done, and the connection closes without an answer |
| `delay` | it is done `seconds` later |
| `late` | it is done at once, and the answer takes `seconds` longer |
| `error` | `status` (500, 502, 504) from whatever stands before Telegram; nothing was done |
| `flood` | 429 with `retry_after=seconds`, whatever the rules say |
| `duplicate` | `getUpdates`: every update of the answer twice |
| `reorder` | `getUpdates`: the updates of the answer in another order |
| `redeliver` | `getUpdates`: updates that were acknowledged come once more |
| `malformed` | `getUpdates`: an update with an id of its own and a body that makes no sense |

A rule fires for requests whose method fits (`*` for any), after the first `skip` of them, with `chance`, at most
`times` times. The dice are seeded: the same requests in the same order meet the same faults.
"""

from __future__ import annotations

import fnmatch
import math
import random
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, get_args

from hermes_testing.telegram.answers import Json, too_many_requests
from hermes_testing.telegram.world import FakeChat, UpdateQueue

FaultKind = Literal[
    "drop_before", "drop_after", "delay", "late", "error", "flood", "duplicate", "reorder", "redeliver", "malformed"
]
_ON_UPDATES = ("duplicate", "reorder", "redeliver", "malformed")

MALFORMED: tuple[Json, ...] = (
    {},
    {"message": None},
    {"message": "hello"},
    {"message": {"message_id": 7}},
    {"message": {"message_id": "seven", "date": "yesterday", "chat": {"id": "here", "type": "cave"}, "text": 5}},
    {"message": {"message_id": 8, "date": 0, "chat": {"id": 0, "type": "private"}, "text": ["a"], "from": []}},
    {"callback_query": {"id": 9}},
    {"a_kind_of_next_year": {"id": 1, "deep": [[[[{}]]]]}},
)
"""What `malformed` sends, one after the other."""


@dataclass(frozen=True, slots=True)
class Fault:
    kind: FaultKind
    method: str = "*"
    chance: float = 1.0
    times: int | None = None
    skip: int = 0
    seconds: float = 0.0
    status: int = 502

    def json(self) -> Json:
        return asdict(self)

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> Fault:
        """Read a fault from JSON. Raises `ValueError` if it is invalid."""
        unknown = set(raw) - {one.name for one in fields(cls)}
        if unknown or raw.get("kind") not in get_args(FaultKind):
            raise ValueError(f"no such fault: {dict(raw)!r}; the kinds are {', '.join(get_args(FaultKind))}")
        return cls(**raw)


class Faults:
    """The current rules, and how often each has fired."""

    def __init__(self, rules: Iterable[Fault] = (), *, seed: int = 0) -> None:
        self.rules: tuple[Fault, ...] = ()
        self.fired: list[int] = []
        self.set(rules, seed=seed)

    def set(self, rules: Iterable[Fault], *, seed: int = 0) -> None:
        self.rules = tuple(rules)
        self.fired = [0] * len(self.rules)
        self._seen = [0] * len(self.rules)
        self._dice = random.Random(seed)
        self._nonsense = 0

    def on_request(self, method: str) -> list[Fault]:
        """Return the faults of this request."""
        return [rule for rule in self._firing(method) if rule.kind not in _ON_UPDATES]

    def _firing(self, method: str, *, updates: bool = False) -> list[Fault]:
        met = []
        for index, rule in enumerate(self.rules):
            if (rule.kind in _ON_UPDATES) is not updates:
                continue
            if not fnmatch.fnmatchcase(method.lower(), rule.method.lower()):
                continue
            self._seen[index] += 1
            over = rule.times is not None and self.fired[index] >= rule.times
            if over or self._seen[index] <= rule.skip or self._dice.random() >= rule.chance:
                continue
            self.fired[index] += 1
            met.append(rule)
        return met

    def on_updates(self, queue: UpdateQueue, batch: list[Json], now: float) -> list[Json]:
        """Return what the poller gets instead of a batch that is not empty."""
        for rule in self._firing("getUpdates", updates=True):
            if rule.kind == "duplicate":
                batch = [update for update in batch for _ in range(2)]
            elif rule.kind == "reorder":
                batch = self._dice.sample(batch, len(batch))
            elif rule.kind == "redeliver":
                batch = [update.json() for update in list(queue.done)[-3:]] + batch
            elif rule.kind == "malformed":
                nonsense = MALFORMED[self._nonsense % len(MALFORMED)]
                self._nonsense += 1
                number = queue.force(nonsense, now, kind="malformed")
                queue.pending[-1].delivered += 1
                batch = [*batch, {"update_id": number, **nonsense}]
        return batch


@dataclass(frozen=True, slots=True)
class FloodRules:
    """Zero switches a rule off."""

    chat_per_second: float = 1.0
    chat_burst: int = 5
    group_per_minute: int = 20
    all_per_second: int = 30

    def json(self) -> Json:
        return asdict(self)


OFF = FloodRules(0, 0, 0, 0)
STRICT = FloodRules(chat_burst=1)
"""One message a second to a chat and not one more."""
USUAL = FloodRules()
NAMED = {"off": OFF, "strict": STRICT, "usual": USUAL}


class FloodControl:
    """Counts what was sent. `clock` is monotonic."""

    def __init__(self, rules: FloodRules = OFF, clock: Callable[[], float] = time.monotonic) -> None:
        self.rules = rules
        self.impatient = 0
        """Requests that came before `retry_after` was over."""
        self._clock = clock
        self._all: deque[float] = deque()
        self._groups: dict[int, deque[float]] = {}
        self._buckets: dict[int, tuple[float, float]] = {}
        self._closed_until: dict[int, float] = {}

    def spend(self, chat: FakeChat, messages: int = 1) -> None:
        """Count messages to a chat, or raise the refusal; what is refused is not counted.

        An album goes through where one message does, and counts as many as it has.
        """
        if self.rules == OFF:
            return
        now = self._clock()
        closed = self._closed_until.get(chat.id, 0.0)
        if now < closed:
            self.impatient += 1
            raise too_many_requests(math.ceil(closed - now))
        wait = max(self._bucket_wait(chat, now), self._group_wait(chat, now), self._all_wait(now))
        if wait > 0:
            seconds = max(1, math.ceil(wait))
            self._closed_until[chat.id] = now + seconds
            raise too_many_requests(seconds)
        if self.rules.chat_per_second:
            self._buckets[chat.id] = (self._tokens(chat, now) - messages, now)
        self._all.extend([now] * messages)
        if chat.type != "private":
            self._groups.setdefault(chat.id, deque()).extend([now] * messages)

    def _tokens(self, chat: FakeChat, now: float) -> float:
        tokens, at = self._buckets.get(chat.id, (float(self.rules.chat_burst), now))
        return min(float(self.rules.chat_burst), tokens + (now - at) * self.rules.chat_per_second)

    def _bucket_wait(self, chat: FakeChat, now: float) -> float:
        if not self.rules.chat_per_second:
            return 0.0
        missing = min(1, self.rules.chat_burst) - self._tokens(chat, now)
        return missing / self.rules.chat_per_second if missing > 1e-9 else 0.0

    def _group_wait(self, chat: FakeChat, now: float) -> float:
        if not self.rules.group_per_minute or chat.type == "private":
            return 0.0
        return _wait(self._groups.setdefault(chat.id, deque()), now, 60.0, self.rules.group_per_minute)

    def _all_wait(self, now: float) -> float:
        return _wait(self._all, now, 1.0, self.rules.all_per_second) if self.rules.all_per_second else 0.0


def _wait(sent: deque[float], now: float, window: float, most: int) -> float:
    while sent and sent[0] <= now - window:
        sent.popleft()
    return sent[len(sent) - most] + window - now if len(sent) >= most else 0.0
