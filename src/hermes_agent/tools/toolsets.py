"""Which toolsets a configuration switches on.

`platform_toolsets.<platform>` wins over `toolsets`, which wins over everything being on; `agent.disabled_toolsets` is
taken away at the end, so nothing can bring back what an operator switched off. A name may be a toolset, a single tool
or one of the composites that existing homes use. Names we do not have (a toolset of another program, or of a plug-in
that is not loaded) choose nothing and break nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from hermes_agent.tools.base import Tool

_ALL = "*"
_LOOKING = frozenset({"skills", "todo", "memory", "session_search", "clarify"})
_COMPOSITES: Mapping[str, frozenset[str]] = {
    "all": frozenset({_ALL}),
    "coding": frozenset({"terminal", "file", "skills", "todo", "session_search", "clarify"}),
    "debugging": frozenset({"terminal", "file", "web"}),
    "safe": _LOOKING,
    "hermes-webhook": frozenset({"web", "vision", "clarify"}),
}


class Choice(NamedTuple):
    """Names that are on, names that are off."""

    on: frozenset[str]
    off: frozenset[str]

    def takes(self, tool: Tool) -> bool:
        names = {tool.name, tool.toolset}
        return bool(names & self.on or _ALL in self.on) and not (names & self.off or _ALL in self.off)


def choose(
    config: Mapping[str, Any], *, platform: str, enabled: Sequence[str] | None, disabled: Sequence[str]
) -> Choice:
    """What the configuration, narrowed by the caller, switches on and off."""
    per_platform = config.get("platform_toolsets")
    chosen: Any = enabled
    if chosen is None and isinstance(per_platform, Mapping):
        chosen = per_platform.get(platform)
    if chosen is None:
        chosen = config.get("toolsets")
    agent = config.get("agent")
    off = [*_names(agent.get("disabled_toolsets") if isinstance(agent, Mapping) else None), *disabled]
    on = frozenset({_ALL}) if chosen is None else _expand(_names(chosen))
    return Choice(on, _expand(off))


def unknown(names: Sequence[str], tools: Sequence[Tool]) -> list[str]:
    """Those of `names` that choose nothing among these tools, whatever is switched off."""
    known = {name for tool in tools for name in (tool.name, tool.toolset)} | {_ALL}
    return [name for name in names if name not in _COMPOSITES and not _expand([name]) <= known]


def names(tools: Sequence[Tool]) -> list[str]:
    """What a person can choose by: the toolsets of these tools, and the composites."""
    return [*sorted({tool.toolset for tool in tools}), *_COMPOSITES]


def _names(value: Any) -> list[str]:
    if isinstance(value, str):
        value = value.split(",")
    return [str(name).strip() for name in value if str(name).strip()] if isinstance(value, Sequence) else []


def _expand(names: Sequence[str]) -> frozenset[str]:
    found: set[str] = set()
    for name in names:
        composite = _COMPOSITES.get(name)
        if composite is None and name.startswith("hermes-"):
            composite = _COMPOSITES["all"]  # hermes-cli, hermes-telegram …: what that surface has by default
        found |= composite or {name}
    return frozenset(found)
