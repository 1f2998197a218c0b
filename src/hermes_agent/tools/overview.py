"""All tools that there are, for people who look at them: what each does, and whether it is offered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hermes_agent.tools import registry


def rows(tree: Mapping[str, Any], *, platform: str) -> list[dict[str, str]]:
    """name, toolset, state (on, off, not set up), description; as the owner sees them from `platform`."""
    known = registry.shared()
    on = {tool.name for tool in known.offered(tree, role="owner", platform=platform)}
    found = []
    for tool in known.tools():
        state = "on" if tool.name in on else "off" if tool.available(tree) else "not set up"
        about = " ".join(tool.description.split()).partition(". ")[0].rstrip(".")
        found.append({"name": tool.name, "toolset": tool.toolset, "state": state, "description": about})
    return found
