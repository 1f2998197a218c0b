"""What a turn works with, gathered once when an agent is made. Frozen: it goes down, nothing reaches up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_agent.approvals.types import Approver, Yolo
from hermes_agent.models.base import Endpoint, ToolSpec
from hermes_agent.tools.base import Ask, Tool
from hermes_config.config import Config
from hermes_state.ids import PersonId

if TYPE_CHECKING:
    from hermes_agent.budget import Budget
    from hermes_state import SessionDB


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    db: SessionDB
    config: Config
    workdir: Path
    endpoint: Endpoint
    fallbacks: tuple[Endpoint, ...]
    tools: Mapping[str, Tool]
    specs: tuple[ToolSpec, ...]
    budget: Budget
    platform: str
    person_id: PersonId | None
    role: str
    """What the person may use; `tools` is made by it."""
    approver: Approver | None = None
    approver_id: PersonId | None = None
    ask: Ask | None = None
    yolo: Yolo = field(default_factory=Yolo)
    holder: str = ""
    """Who we are in leases: process, agent."""
    lease_seconds: float = 60.0
    max_steps: int = 90
    max_retries: int = 3
    extra_text: str = ""
    """What the caller adds to the system text: a personality, a channel's prompt."""
    with_memory: bool = True
    with_context_files: bool = True

    @property
    def home(self) -> Path:
        return self.config.home
