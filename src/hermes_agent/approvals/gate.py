"""The one way to permission."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_agent.approvals.base import Approver, Yolo
from hermes_agent.tools.base import Action, Verdict
from hermes_state.ids import ConversationId, PersonId, TurnId

if TYPE_CHECKING:
    from hermes_state import SessionDB


class CommandGate:
    """Permission for the calls of one turn. `for_call` gives the gate that a tool's context carries."""

    def __init__(
        self,
        *,
        db: SessionDB,
        home: Path,
        config: Mapping[str, Any],
        conversation_id: ConversationId,
        turn_id: TurnId,
        person_id: PersonId | None,
        approver: Approver | None,
        approver_id: PersonId | None = None,
        fence: int | None = None,
        yolo: Yolo | None = None,
        platform: str = "",
    ) -> None:
        self._home = home

    def for_call(self, call_id: str, *, extra_reasons: Sequence[str] = ()) -> CommandGate:
        """The same gate for one tool call; `extra_reasons` (a plug-in's) make it ask whatever the judge says."""
        return self

    async def permit(self, action: Action) -> Verdict:
        return Verdict(False, "was not approved; do not retry")
