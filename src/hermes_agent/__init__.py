"""The agent: runs the turns of a conversation.

Start reading at `agent` (`AIAgent`, the class that other packages call), then `turn.run`. The chapters: `turn`,
`prompt` (the bytes of a request), `models` (providers), `compression`, `tools`, `approvals` (permission), `execution`
(running commands), `commands` (slash commands), `knowledge` (memory and skills), `mcp` (tools of MCP servers), `web`,
`media` (voice and pictures), `receipts` (what a turn did). `AIAgent` is imported on first use, so `import hermes_agent`
is cheap.
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
