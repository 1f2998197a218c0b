"""Decides when a conversation is compressed: pure functions of the model's window and the counted tokens.

Compression starts at half of the window, at three quarters of a window below 512,000 tokens, and never below 64,000
tokens unless the window is smaller; existing homes rely on these numbers. This module only decides whether to try;
`compress` decides whether the outcome is applied.

Nothing here reads a clock or a database. `Pace` belongs to one conversation's agent; values that must survive a restart
(the end of a pause, how many summaries in a row failed) are in the session's row.
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
# The summariser could not be reached, even after retries: the full conversation is better than a guessed summary.
_UNREACHABLE = frozenset(
    {"auth", "billing", "network", "budget", "model_not_found", "policy", "rate_limit", "overloaded"}
)

Mode = Literal["summarise", "fallback", "wait"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextWindow:
    """A model's window and how much of it a conversation may fill, in tokens."""

    context_length: int
    max_tokens: int = 0
    model: str = ""
    settings: CompressionSection = field(default_factory=CompressionSection)
    prefix_tokens: int = 0
    """Tokens of the prefix (system text and tools), which every request carries."""

    @property
    def usable(self) -> int:
        """The window minus the longest answer; at least a quarter of the window, whatever `max_tokens` says."""
        return max(self.context_length - self.max_tokens, self.context_length // 4)

    @property
    def trigger(self) -> int:
        """The request size from which on the conversation is compressed."""
        set_to = self.settings.threshold
        threshold = set_to if self.context_length >= _LARGE else max(set_to, 0.75)
        tokens = max(int(self.usable * threshold), _LEAST)
        return tokens if tokens < self.usable else int(self.usable * 0.85)

    @property
    def tail_budget(self) -> int:
        """About how many of the newest tokens are kept unchanged."""
        return int(self.trigger * self.settings.target_ratio)

    @property
    def target(self) -> int:
        """The most tokens of messages after a compression: well below the trigger, so that it is not due again soon."""
        return max(self.trigger - self.prefix_tokens, self.trigger // 4) * 3 // 4


def window_for(endpoint: Endpoint, settings: CompressionSection) -> ContextWindow:
    """A model's window under the settings of config.yaml."""
    return ContextWindow(
        context_length=endpoint.context_length, max_tokens=endpoint.max_tokens or 0, model=endpoint.model,
        settings=settings,
    )  # fmt: skip


@dataclass(slots=True)
class Pace:
    """An agent's record of its conversation's compressions; it prevents useless repetitions."""

    turns_since: int | None = None
    """Turns begun since the last compression; None if there was none."""
    proven: int = 0
    """Our estimate for the last request that the provider counted below the trigger."""
    ineffective: int = 0
    """Compressions in a row after which the provider's count still reached the trigger."""
    uncounted: bool = False
    """Whether the first request after a compression has not been counted yet."""

    def turn_began(self) -> None:
        if self.turns_since is not None:
            self.turns_since += 1

    def compacted(self) -> None:
        self.turns_since, self.proven, self.uncounted = 0, 0, True

    def counted(self, window: ContextWindow, *, estimated: int, reported: int) -> None:
        """Record the provider's count of a request, and our estimate for it."""
        fits = 0 < reported < window.trigger
        if self.uncounted:
            self.ineffective = 0 if fits else self.ineffective + 1
            self.uncounted = False
        if fits:
            self.proven = estimated

    def is_too_early(self, estimated: int) -> bool:
        """Whether to make the call without compressing, although the estimate is above the trigger."""
        if self.ineffective >= _STRIKES or self.uncounted or self.turns_since == 1:
            return True
        return bool(self.proven) and estimated - self.proven < max(4_096, self.proven // 20)


def due(window: ContextWindow, *, estimated: int, compactions: int, pace: Pace) -> bool:
    """Whether to compress before a call with this estimate of tokens."""
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
    """How to compress now. A person who asks for it never has to wait."""
    if calls_left <= 0:
        return "fallback"
    if force and not must:
        return "summarise"
    if cooling or streak >= _STRIKES:
        # The summariser has just failed, perhaps repeatedly. Only a conversation that no longer fits cannot wait.
        return "fallback" if must or tokens >= window.usable else "wait"
    return "summarise"


def unreachable(kind: str) -> bool:
    """Whether the failure has nothing to do with the conversation, so that nothing is left out because of it."""
    return kind in _UNREACHABLE


def gives_up(window: ContextWindow, kind: str) -> bool:
    """Whether, after this failure, nothing is compressed rather than summarised without a model."""
    return unreachable(kind) or (bool(kind) and window.settings.abort_on_summary_failure)


def cooldown(kind: str, streak: int) -> float:
    """Seconds without automatic compression after this failure; `streak`: how many summaries failed before it."""
    if kind == "timeout":
        return _AFTER_TIMEOUT[min(streak, len(_AFTER_TIMEOUT) - 1)]
    return 30.0 if kind == "protocol" else 60.0
