"""The line under an answer: which model, how many tokens, and what the day has cost of what it may cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hermes_cli.framework import text

if TYPE_CHECKING:
    from hermes_config.config import Config
    from hermes_state import SessionDB
    from hermes_state.ids import PersonId


def line(result: Mapping[str, Any], *, db: SessionDB, config: Config, person_id: PersonId) -> str:
    """For a finished turn. Reads the store: not on an event loop."""
    from hermes_agent import spending  # brings the budget and what belongs to it

    tokens = int(result.get("total_tokens") or 0)
    return f"{result.get('model', '')} · {text.counted(tokens, 'token')} · {spending.today(db, config, person_id)}"
