"""When a conversation is compressed: pure functions of the model's window and of what was counted.

The numbers are those an existing home relies on: half of the window, three quarters where the window is below 512,000
tokens, never below 64,000 tokens unless the window itself is not larger. What is decided here is only whether to try;
whether the outcome is any good is decided by `run`, which applies it or not.

Nothing here reads a clock or a database. `Pace` is the memory of one conversation's agent; what must survive a restart
(the time until which to wait, how many summaries in a row failed) is on the session's row.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from hermes_config.limits import DEFAULTS
from hermes_config.sections import CompressionSection

if TYPE_CHECKING:
    from hermes_agent.models.base import Endpoint

SUMMARY_CALLS = DEFAULTS.summary_calls
"""Summary calls a turn, at most."""
PASSES = DEFAULTS.compressions_per_turn
"""Compressions a turn, at most."""
MIN_ROWS = 4

_LEAST = 64_000
_LARGE = 512_000
_STRIKES = 2
_AFTER_TIMEOUT = (60.0, 300.0, 900.0)
# The summariser could not be asked, not even after retries: what is there is better than a guess at it.
_UNREACHABLE = frozenset(
    {"auth", "billing", "network", "budget", "model_not_found", "policy", "rate_limit", "overloaded"}
)

Mode = Literal["summarise", "fallback", "wait"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextWindow:
    """A model's window and how much of it a conversation may fill. All numbers are tokens unless they say otherwise."""

    context_length: int
    max_tokens: int = 0
    model: str = ""
    settings: CompressionSection = field(default_factory=CompressionSection)
    prefix_tokens: int = 0
    """What every request carries besides the conversation: system text and tools."""

    @property
    def usable(self) -> int:
        """The window without the room for an answer; a quarter of it stays where `max_tokens` makes no sense."""
        return max(self.context_length - self.max_tokens, self.context_length // 4)

    @property
    def trigger(self) -> int:
        """From here on a request is too near to the window."""
        set_to = self.settings.threshold
        threshold = set_to if self.context_length >= _LARGE else max(set_to, 0.75)
        tokens = max(int(self.usable * threshold), _LEAST)
        return tokens if tokens < self.usable else int(self.usable * 0.85)

    @property
    def tail_budget(self) -> int:
        """About how much of the newest is kept as it is."""
        return int(self.trigger * self.settings.target_ratio)

    @property
    def target(self) -> int:
        """What the messages may come to after a compression: well below the trigger, or it would be due again soon."""
        return max(self.trigger - self.prefix_tokens, self.trigger // 4) * 3 // 4


def window_for(endpoint: Endpoint, settings: CompressionSection) -> ContextWindow:
    """The window of a model with the settings of config.yaml."""
    return ContextWindow(
        context_length=endpoint.context_length, max_tokens=endpoint.max_tokens or 0, model=endpoint.model,
        settings=settings,
    )  # fmt: skip


@dataclass(slots=True)
class Pace:
    """What an agent remembers of its conversation's compressions, so that one does not follow another for nothing."""

    turns_since: int | None = None
    """Turns begun since the last compression; None when there was none."""
    proven: int = 0
    """The estimate of the last request that the provider counted below the trigger."""
    ineffective: int = 0
    """Compressions in a row after which the provider still counted as much as the trigger."""
    uncounted: bool = False
    """The first request after a compression has not been counted yet."""

    def turn_began(self) -> None:
        if self.turns_since is not None:
            self.turns_since += 1

    def compacted(self) -> None:
        self.turns_since, self.proven, self.uncounted = 0, 0, True

    def counted(self, window: ContextWindow, *, estimated: int, reported: int) -> None:
        """The provider counted a request for which we had estimated so much."""
        fits = 0 < reported < window.trigger
        if self.uncounted:
            self.ineffective = 0 if fits else self.ineffective + 1
            self.uncounted = False
        if fits:
            self.proven = estimated

    def is_too_early(self, estimated: int) -> bool:
        """Whether an estimate above the trigger is no reason yet to compress before the call."""
        if self.ineffective >= _STRIKES or self.uncounted or self.turns_since == 1:
            return True
        return bool(self.proven) and estimated - self.proven < max(4_096, self.proven // 20)


def due(window: ContextWindow, *, estimated: int, compactions: int, pace: Pace) -> bool:
    """Before a call for which so many tokens were estimated: would it come too near to the window?"""
    if not window.settings.enabled or compactions >= PASSES or pace.is_too_early(estimated):
        return False
    return estimated >= window.trigger


def mode(
    window: ContextWindow,
    *,
    tokens: int,
    cooling: bool,
    streak: int,
    calls_left: int,
    force: bool = False,
    must: bool = False,
) -> Mode:
    """How to compress now. Somebody who asks for it is never told to wait."""
    if calls_left <= 0:
        return "fallback"
    if force and not must:
        return "summarise"
    if cooling or streak >= _STRIKES:
        # The summariser has just failed, perhaps again and again. Only what would not fit any more cannot wait.
        return "fallback" if must or tokens >= window.usable else "wait"
    return "summarise"


def unreachable(kind: str) -> bool:
    """A failure that says nothing about the conversation: nothing is left out of it because of that."""
    return kind in _UNREACHABLE


def gives_up(window: ContextWindow, kind: str) -> bool:
    """After a summary that failed this way: leave everything as it is, rather than do without a model."""
    return unreachable(kind) or (bool(kind) and window.settings.abort_on_summary_failure)


def cooldown(kind: str, streak: int) -> float:
    """Seconds without an automatic compression after a summary that failed this way, `streak` in a row before it."""
    if kind == "timeout":
        return _AFTER_TIMEOUT[min(streak, len(_AFTER_TIMEOUT) - 1)]
    return 30.0 if kind == "protocol" else 60.0
