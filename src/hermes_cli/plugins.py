"""Plug-ins. (Signatures; the bodies follow.)"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginTool:
    """A tool as a plug-in gave it; `hermes_agent.tools.registry` makes a Tool of it."""

    plugin: str
    name: str
    toolset: str
    schema: Mapping[str, Any]
    handler: Callable[..., Any]
    """handler(args, **facts) → text or JSON-able data; a coroutine function when `is_async`."""
    description: str = ""
    check_fn: Callable[[], bool] | None = None
    requires_env: tuple[str, ...] = ()
    is_async: bool = False
    emoji: str = ""
    override: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginCommand:
    """A slash command; `wants_context` handlers are called as built-in ones are: handler(ctx, raw_args)."""

    plugin: str
    name: str
    handler: Callable[..., Any]
    description: str = ""
    args_hint: str = ""
    wants_context: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginSkill:
    plugin: str
    name: str
    path: str
    description: str = ""


@dataclass(frozen=True, slots=True)
class PreToolDecision:
    action: Literal["block", "approve"]
    message: str = ""
    rule_key: str = ""


def discover_plugins(force: bool = False) -> None:
    """Load what the home enables, once; again with `force`. Never raises because of a plug-in."""
    raise NotImplementedError


def has_hook(name: str) -> bool:
    return False


def invoke_hook(name: str, /, **facts: Any) -> list[Any]:
    """What the callbacks returned, without the None; a callback that raises is logged and skipped."""
    return []


async def ainvoke_hook(name: str, timeout: float | None = None, /, **facts: Any) -> list[Any]:  # noqa: ASYNC109
    """As `invoke_hook`, off the event loop and within `timeout` seconds (the table of limits when None)."""
    return []


def resolve_pre_tool_block(answers: Iterable[Any]) -> PreToolDecision | None:
    """What the answers of `pre_tool_call` decide; the first valid one wins."""
    raise NotImplementedError


def get_plugin_tools() -> tuple[PluginTool, ...]:
    return ()


def get_plugin_commands() -> Mapping[str, PluginCommand]:
    return {}


def get_plugin_skills() -> tuple[PluginSkill, ...]:
    return ()
