"""Flood control: how many messages a bot may send, to whom, how fast.

Telegram's page says about one message a second to one chat with short bursts, 20 a minute to one group, some 30 a
second in all; edits count as messages. Who goes over gets 429 with `retry_after`, and gets it again until that time
has passed: asking earlier is noted in the journal as impatient.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass

from hermes_testing.telegram_answers import Json, too_many_requests
from hermes_testing.telegram_chats import Chat


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
        """How often somebody asked again before `retry_after` was over."""
        self._clock = clock
        self._all: deque[float] = deque()
        self._groups: dict[int, deque[float]] = {}
        self._buckets: dict[int, tuple[float, float]] = {}
        self._closed_until: dict[int, float] = {}

    def spend(self, chat: Chat, messages: int = 1) -> None:
        """Count messages to a chat, or raise the refusal; a refused one is not counted."""
        if self.rules == OFF:
            return
        now = self._clock()
        closed = self._closed_until.get(chat.id, 0.0)
        if now < closed:
            self.impatient += 1
            raise too_many_requests(math.ceil(closed - now))
        wait = max(self._bucket_wait(chat, now, messages), self._group_wait(chat, now), self._all_wait(now))
        if wait > 0:
            seconds = max(1, math.ceil(wait))
            self._closed_until[chat.id] = now + seconds
            raise too_many_requests(seconds)
        self._count(chat, now, messages)

    def _tokens(self, chat: Chat, now: float) -> float:
        tokens, at = self._buckets.get(chat.id, (float(self.rules.chat_burst), now))
        return min(float(self.rules.chat_burst), tokens + (now - at) * self.rules.chat_per_second)

    def _bucket_wait(self, chat: Chat, now: float, messages: int) -> float:
        if not self.rules.chat_per_second:
            return 0.0
        # An album may be larger than the burst; it needs a full bucket and leaves it in debt.
        missing = min(messages, self.rules.chat_burst) - self._tokens(chat, now)
        return missing / self.rules.chat_per_second if missing > 1e-9 else 0.0

    def _group_wait(self, chat: Chat, now: float) -> float:
        if not self.rules.group_per_minute or chat.type == "private":
            return 0.0
        return _wait(self._groups.setdefault(chat.id, deque()), now, 60.0, self.rules.group_per_minute)

    def _all_wait(self, now: float) -> float:
        return _wait(self._all, now, 1.0, self.rules.all_per_second) if self.rules.all_per_second else 0.0

    def _count(self, chat: Chat, now: float, messages: int) -> None:
        if self.rules.chat_per_second:
            self._buckets[chat.id] = (self._tokens(chat, now) - messages, now)
        for _ in range(messages):
            self._all.append(now)
            if chat.type != "private":
                self._groups.setdefault(chat.id, deque()).append(now)


def _wait(sent: deque[float], now: float, window: float, most: int) -> float:
    while sent and sent[0] <= now - window:
        sent.popleft()
    return sent[0] + window - now if len(sent) >= most else 0.0
