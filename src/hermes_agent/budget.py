"""Hard spending limits: every model call passes here twice, before it is made and after it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hermes_agent.models.base import Endpoint, Price, Usage
from hermes_state.ids import ConversationId, PersonId

if TYPE_CHECKING:
    from hermes_config.config import Config
    from hermes_state import SessionDB


@dataclass(slots=True, kw_only=True)
class Reservation:
    """One call that may be made. Hand it back once: to `settle`, or to `release`."""

    price: Price | None
    notices: list[str] = field(default_factory=list)
    """For the person: a limit of which 80 % is used. Look after `reserve` and again after `settle`."""


class Budget:
    """The limits of one configuration, over the store that all processes share."""

    def __init__(self, db: SessionDB, config: Config) -> None:
        self._db, self._config = db, config

    async def reserve(
        self,
        endpoint: Endpoint,
        *,
        estimated_input: int,
        max_tokens: int | None,
        conversation_id: ConversationId,
        person_id: PersonId | None,
        task: str = "",
    ) -> Reservation:
        """Room for one call. Raises `ModelError("budget")` when a limit would be passed: then it is not made."""
        raise NotImplementedError

    async def settle(self, reservation: Reservation, usage: Usage | None) -> float | None:
        """The call was answered: count what it used. Its cost in dollars, None when its price is not known."""
        raise NotImplementedError

    async def release(self, reservation: Reservation, *, received: str = "") -> None:
        """The call failed. Nothing is counted, or, when part of an answer had been `received`, what that came to."""
        raise NotImplementedError
