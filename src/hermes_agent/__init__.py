"""The mind: one turn — model, tools, approvals, compression, memory, skills.

`AIAgent` is the door; it is imported when first asked for, so that `import hermes_agent` costs next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hermes_agent.agent import AIAgent as AIAgent

__all__ = ["AIAgent"]


def __getattr__(name: str) -> Any:
    if name != "AIAgent":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from hermes_agent.agent import AIAgent

    return AIAgent
