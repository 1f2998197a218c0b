"""One compression: locked, planned, summarised, and applied as one rotation or not at all. (Bodies follow.)"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from hermes_agent.compression.when import SUMMARY_CALLS, Window

if TYPE_CHECKING:
    from hermes_state import SessionDB
    from hermes_state.ledger import Handle
    from hermes_state.turn_writer import TurnWriter

Summarise = Callable[[str, int], Awaitable[str]]
"""(prompt, most tokens of the answer) → the summary. May raise `ModelError` or `TimeoutError`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of it."""

    kind: Literal["rotated", "not_needed", "not_applied", "busy"]
    reason: str = ""
    """Why not, for a person; empty when there is nothing to say."""
    handle: Handle | None = None
    summary_calls: int = 0
    before_tokens: int = 0
    after_tokens: int = 0
    fallback: bool = False
    """The summary was put together without a model."""
    summarised: int = 0
    """How many messages the summary stands for."""


async def compress(
    *,
    db: SessionDB,
    writer: TurnWriter | None,
    session_id: str,
    summarise: Summarise,
    window: Window,
    focus: str | None = None,
    force: bool = False,
    must: bool = False,
    calls_left: int = SUMMARY_CALLS,
    keep_exchanges: int | None = None,
    seconds: float = 120.0,
) -> Outcome:
    """Make the segment smaller, or leave it as it is. The rows are read here, under the lock.

    `force`: a person asked for it. `must`: the last request did not fit, so something has to go whatever the summariser
    does. `writer` is the running turn's; without one the conversation's lease is taken for as long as this runs.
    `keep_exchanges`: keep so many of the newest exchanges as they are.
    """
    raise NotImplementedError
