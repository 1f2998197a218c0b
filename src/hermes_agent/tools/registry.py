"""The tool registry: all tools, the tools offered to a conversation, and running a call.

Tools come from sources (`ToolSource`), built-in ones and those of plug-ins, and from `ctx.register_tool`. The offered
list is a pure function of configuration, platform, role and the sources' lists, in a fixed order (built-ins as in their
table, then the others by name). The prompt's prefix lists some of the built-in tools (`Tool.listed`); the model finds
all others with `find_tool`. Plug-in tools are for owner and admins, and ask a person before they run, unless the tool's
name has a permission.

`run_call` is the boundary around a handler: every outcome becomes one result that the model can read. It does not ask
for permission (the handler does, through `ctx.gate`) and calls no hooks (the turn does).
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from hermes_agent.text import close_names
from hermes_agent.tools import arguments
from hermes_agent.tools.base import Action, PersonWait, Tool, ToolContext, ToolResult, ToolSource
from hermes_agent.tools.builtin import BUILT_INS, BuiltInTools, built_in
from hermes_cli import plugins
from hermes_config import accounts
from hermes_config.errors import HermesError

if TYPE_CHECKING:
    from hermes_agent.mcp.source import McpTools
    from hermes_config.config import Config


log = logging.getLogger("hermes.agent")

_STAFF = frozenset({"owner", "admin"})
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
INTERRUPTED = "interrupted by the person"
_NAMED = 30
"""How many tools the answer to an unknown name lists."""
ASK_AGAIN_SECONDS = 10.0
"""The pause after a tool source failed."""


# -- toolsets: which tools a configuration switches on --------------------------------------------------------------
# `platform_toolsets.<platform>` wins over `toolsets`; without both, all tools are on. `agent.disabled_toolsets` is
# removed last, so nothing re-enables a tool that an operator switched off. A name may be a toolset, a single tool or a
# composite that existing homes use. Unknown names are ignored.

_ALL = "*"
_FINDER = "find"
"""The toolset of `find_tool` and `use_tool`, which is on where something is on that the prompt does not list."""
_COMPOSITES: Mapping[str, frozenset[str]] = {
    "all": frozenset({_ALL}),
    "coding": frozenset({"terminal", "file", "skills", "todo", "session_search", "clarify"}),
    "debugging": frozenset({"terminal", "file", "web"}),
    "safe": frozenset({"skills", "todo", "memory", "session_search", "clarify"}),
    "hermes-webhook": frozenset({"web", "vision", "clarify"}),
}


class ToolChoice(NamedTuple):
    """The names that are switched on, and those that are switched off."""

    on: frozenset[str]
    off: frozenset[str]

    def takes(self, tool: Tool) -> bool:
        names = {tool.name, tool.toolset}
        return bool(names & self.on or _ALL in self.on) and not (names & self.off or _ALL in self.off)


def choose_toolsets(
    config: Config, *, platform: str, enabled: Sequence[str] | None, disabled: Sequence[str]
) -> ToolChoice:
    """The names that the configuration, narrowed by the caller, switches on and off."""
    chosen = accounts.told(config.platform_toolsets, platform, config.toolsets) if enabled is None else enabled
    on = frozenset({_ALL}) if chosen is None else _expand(chosen)
    return ToolChoice(on, _expand([*config.agent.disabled_toolsets, *disabled]))


def unknown_toolsets(names: Sequence[str], tools: Sequence[Tool]) -> list[str]:
    """The `names` that match none of these tools."""
    known = {name for tool in tools for name in (tool.name, tool.toolset)} | {_ALL}
    return [name for name in names if name not in _COMPOSITES and not _expand([name]) <= known]


def toolset_names(tools: Sequence[Tool]) -> list[str]:
    """The names a person can choose: the toolsets of these tools, and the composites."""
    return [*sorted({tool.toolset for tool in tools}), *_COMPOSITES]


def _expand(names: Sequence[str]) -> frozenset[str]:
    found: set[str] = set()
    for name in names:
        composite = _COMPOSITES.get(name)
        if composite is None and name.startswith("hermes-"):
            composite = _COMPOSITES["all"]  # hermes-cli, hermes-slack …: what that surface has by default
        found |= composite or {name}
    return frozenset(found)


# -- the registry ------------------------------------------------------------------------------------------------------


class NameTaken(HermesError):
    """A tool of this name is already registered."""


class Registry:
    """The tools of one process. `generation` changes with every registration, for caches."""

    def __init__(self, *, generation: int = 0) -> None:
        self._tools: dict[str, Tool] = {}
        """The tools of plug-ins, from `register_tool` or their sources."""
        self.generation = generation

    def register(self, tool: Tool, *, override: bool = False) -> None:
        """Add a tool. A name in use is refused unless `override`; an overriding tool keeps the position in the list."""
        if not override and (tool.name in self._tools or tool.name in BUILT_INS):
            advice = "Choose another name, or register it with override=True."
            raise NameTaken(f"another tool has the name {tool.name}", hint=advice)
        replaced = built_in(tool.name)
        self._tools[tool.name] = replace(tool, listed=replaced is not None and replaced.listed)
        self.generation += 1

    def names(self) -> tuple[str, ...]:
        """The names of all tools, in the order the model sees them."""
        return (*BUILT_INS, *sorted(set(self._tools).difference(BUILT_INS)))

    def get(self, name: str, *, role: str | None = None) -> Tool | None:
        """The tool of this name; None if there is none or the role may not use it."""
        tool = self._tools.get(name) or built_in(name)
        return None if tool is None or (role is not None and role not in tool.roles) else tool

    def is_added(self, name: str) -> bool:
        """Whether a plug-in provides the tool; such tools may disappear."""
        return name in self._tools

    def tools(self) -> tuple[Tool, ...]:
        """All tools, for every role."""
        return tuple(tool for name in self.names() if (tool := self.get(name)))

    def offered(
        self,
        config: Config,
        *,
        role: str,
        platform: str = "cli",
        enabled: Sequence[str] | None = None,
        disabled: Sequence[str] = (),
    ) -> tuple[Tool, ...]:
        """The tools of a conversation. `enabled` and `disabled` name toolsets or tools for this agent alone."""
        choice = choose_toolsets(config, platform=platform, enabled=enabled, disabled=disabled)
        if self._may_find(choice):
            choice = choice._replace(on=choice.on | {_FINDER})
        tools = (self.get(name, role=role) for name in self.names())
        useful = (tool for tool in tools if tool and tool.on_platform(platform))
        return tuple(tool for tool in useful if choice.takes(tool) and tool.available(config))

    def _may_find(self, choice: ToolChoice) -> bool:
        """Whether something that is on may not be listed; the same whether its server is there or not."""
        ours = BuiltInTools().tools()
        listed = {name for tool in ours if tool.listed for name in (tool.name, tool.toolset)}
        return bool(choice.on - listed) or any(choice.takes(tool) for tool in ours if not tool.listed)


class _ToldList(NamedTuple):
    """The list that a source told last."""

    source: ToolSource
    tools: tuple[Tool, ...] | None = None
    """None before the first list."""
    generation: int = 0
    ask_at: float = 0.0
    """After a failure: when to ask again, by the monotonic clock."""


class _Shared:
    """The registry of this process, and the plug-in state it was built from."""

    registry: Registry | None = None
    made_of: tuple[Any, ...] = ()
    told: Mapping[str, _ToldList] = MappingProxyType({})
    added: tuple[plugins.PluginToolSource, ...] = ()
    """Sources that other parts of Hermes added."""


def add_source(name: str, source: ToolSource) -> None:
    """Add a tool source of another part of Hermes, when that part is used."""
    _Shared.added = (*_Shared.added, plugins.PluginToolSource(plugin=name, name=name, source=source))


def use_mcp_servers(config: Config, *, look: bool = False) -> None:
    """Offer the tools of the configured MCP servers; without any, nothing is imported.

    `look`: the tools that are known already are enough, and no server is started.
    """
    if config.mcp_servers or "hermes_agent.mcp.source" in sys.modules:
        from hermes_agent.mcp import source

        source.use(config, look=look)


def mcp_servers() -> McpTools | None:
    """The MCP servers of this process; None without any."""
    if "hermes_agent.mcp.source" not in sys.modules:
        return None
    from hermes_agent.mcp import source

    return source.shared()


def shared() -> Registry:
    """The registry of this process, with the tools of the loaded plug-ins and their sources."""
    # The first source is our own, which every registry has.
    records, (_, *sources) = plugins.get_plugin_tools(), (*plugins.get_tool_sources(), *_Shared.added)
    told = _Shared.told = {row.name: _ask(row, _Shared.told.get(row.name)) for row in sources}
    made_of = (records, *((name, one.source, one.tools) for name, one in told.items()))
    if _Shared.registry is None or made_of != _Shared.made_of:
        generation = 0 if _Shared.registry is None else _Shared.registry.generation + 1
        made = Registry(generation=generation)
        for record in records:
            _add(made, record.plugin, _guarded(record.plugin, from_plugin(record)), override=record.override)
        for row in sources:
            for tool in told[row.name].tools or ():
                _add(made, row.plugin, _guarded(row.plugin, tool))
        _Shared.registry, _Shared.made_of = made, made_of
    return _Shared.registry


def _add(registry: Registry, plugin: str, tool: Tool, *, override: bool = False) -> None:
    try:
        registry.register(tool, override=override)
    except NameTaken as error:
        log.warning("%s", error.one_line(), extra={"action": "tool_refused", "plugin": plugin})


def _ask(row: plugins.PluginToolSource, known: _ToldList | None) -> _ToldList:
    """The source's current list. A source that fails, or has no list yet, keeps the former one and is asked again."""
    if known is None or known.source is not row.source:
        known = _ToldList(row.source)
    now = time.monotonic()
    if now < known.ask_at:
        return known
    try:
        generation = row.source.generation
        if known.tools is not None and generation == known.generation:
            return known
        found = row.source.tools()
        return known if found is None else _ToldList(row.source, _valid(found), generation)
    except Exception as error:  # noqa: BLE001 - boundary: a plug-in
        plugins.complain(error, plugin=row.plugin, action="tool_source_failed")
        return known._replace(ask_at=now + ASK_AGAIN_SECONDS)


def _valid(found: Sequence[Any]) -> tuple[Tool, ...]:
    tools = tuple(found)
    if wrong := [tool for tool in tools if not isinstance(tool, Tool) or not _NAME.fullmatch(tool.name)]:
        raise TypeError(f"not a tool, or not a name for one: {wrong[0]!r:.80}")
    json.dumps([tool.spec for tool in tools])  # as every request to a model will
    return tools


def _guarded(plugin: str, tool: Tool) -> Tool:
    """A tool that is not ours with the permission gate around it, for owner and admins."""

    async def call(args: dict[str, Any], ctx: ToolContext) -> ToolResult | str:
        if refused := await _refused(tool, args, ctx, plugin=tool.source if tool.place else plugin):
            return refused
        await ctx.begin()
        return _from_outside(tool.name, await tool.run(args, ctx))

    return replace(
        tool, handler=call, begins=True, targets=(), roles=_STAFF, source=tool.source or f"plug-in {plugin}",
        available=lambda config: _checked(tool.name, tool.available, config),
        on_platform=lambda platform: _checked(tool.name, tool.on_platform, platform),
        summary=lambda args: str(_asked(tool.name, "", tool.summary, args)),
    )  # fmt: skip


async def _refused(tool: Tool, args: dict[str, Any], ctx: ToolContext, *, plugin: str = "") -> ToolResult | None:
    """Ask for permission to call a plug-in's tool, an MCP server's (it has a `place`), or one of ours with targets.

    None if it is given, else the error.
    """
    from hermes_agent.approvals.targets import of_call

    text = f"{tool.name} {json.dumps(args, ensure_ascii=False, sort_keys=True)}"
    kind, detail = ("plugin", f"a tool of {plugin}") if plugin else ("reach", "")
    if tool.place:
        kind, detail = "mcp", f"a tool of the {plugin}"
    found = of_call(tool.name, tool.targets, tool.parameters, args, ctx.config, workspace=str(ctx.workdir))
    action = Action(
        kind, text, str(ctx.workdir), detail, targets=found, reads=not tool.changes, place=tool.place
    )  # fmt: skip
    verdict = await ctx.gate.permit(action)
    return None if verdict.allowed else ToolResult(f"{tool.name} was not run: {verdict.reason}", is_error=True)


def _from_outside(name: str, outcome: Any) -> ToolResult:
    """The result of a tool that is not ours: other people's words, whether it says so or not."""
    made = _as_result(outcome)
    return replace(made, source=made.source or f"the tool {name}", is_answer=False)


def unknown_tool(name: str, offered: Iterable[str]) -> ToolResult:
    """The result of a call to a tool that the conversation does not have."""
    names = list(offered)
    near = close_names(name, names)
    some = f"There are: {', '.join(names[:_NAMED]) or 'none'}{' … find_tool finds more' if names[_NAMED:] else ''}."
    hint = f"Did you mean {' or '.join(near)}?" if near else some
    return ToolResult(f"There is no tool named {name[:80]!r}. {hint}", is_error=True)


async def run_call(tool: Tool, raw_arguments: str, ctx: ToolContext) -> ToolResult:
    """Run one call, from the arguments the model wrote to the result it reads. Raises only cancellation."""
    from hermes_agent.tools import output

    try:
        args = arguments.parse(raw_arguments, tool.parameters, longest=ctx.db.limits.tool_arguments_bytes)
        if tool.targets and (refused := await _refused(tool, args, ctx)):
            return refused
        if not tool.begins:
            await ctx.begin()
        outcome = await _run_bounded(tool, args, ctx)
        return output.fit(_as_result(outcome), tool=tool, ctx=ctx)
    except arguments.BadArguments as error:
        schema = "" if tool.listed else f"\nIts arguments: {tool.schema_text}"
        return ToolResult(f"{tool.name}: {error}.{schema}", is_error=True, source=tool.source if schema else "")
    except HermesError as error:
        return ToolResult(f"{tool.name}: {output.clean(error.one_line())}", is_error=True, source=tool.source)
    except Exception as error:  # noqa: BLE001 - the tool boundary: a broken tool costs its call, never the turn
        # An exception's text may quote private data, so the log gets only its type and location.
        place = plugins.execution.where(error)
        log.error("tool failed", extra={"action": "tool_failed", "tool": tool.name, "error": place})
        said = " ".join(output.clean(str(error)).split())[:500]
        what = f"{tool.name} failed: {type(error).__name__}{f': {said}' if said else ''}"
        return ToolResult(what, is_error=True, source=tool.source)


async def _run_bounded(tool: Tool, args: dict[str, Any], ctx: ToolContext) -> Any:
    """Run the handler within its time-out and until the person interrupts."""
    limits = ctx.db.limits
    if ctx.stop.is_set():
        return ToolResult(f"{tool.name} was not run: {INTERRUPTED}.", is_error=True)
    grace = limits.tool_stop_ms / 1000
    call = asyncio.ensure_future(tool.run(args, ctx))
    stopped = asyncio.ensure_future(ctx.stop.wait())
    try:
        seconds = None if tool.own_timeout else limits.tool_seconds
        await _wait_within(seconds, {call, stopped}, ctx.person_wait)
        if stopped.done() and tool.own_timeout:
            await asyncio.wait({call}, timeout=grace)
        if call.done():
            return call.result()
        doubt = " It may have had an effect already; look before you repeat it." if tool.changes else ""
        if stopped.done():
            return ToolResult(f"{tool.name} was {INTERRUPTED}.{doubt}", is_error=True)
        return ToolResult(f"{tool.name} was stopped after {seconds} s without an end.{doubt}", is_error=True)
    finally:
        stopped.cancel()
        await _end(call, grace, tool.name)


_LOOK_AGAIN = 0.25


async def _wait_within(seconds: float | None, either: set[asyncio.Future[Any]], person: PersonWait) -> None:
    """Wait until one of the futures ends or the time is up, not counting the time in which a person is asked."""
    began = time.monotonic()
    while True:
        left = None if seconds is None else seconds + person.seconds - (time.monotonic() - began)
        if left is not None and left <= 0:
            return
        done, _ = await asyncio.wait(either, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        if done:
            return
        while person.asked and not done:  # the clock continues after the answer or the end of the question
            done, _ = await asyncio.wait(either, timeout=_LOOK_AGAIN, return_when=asyncio.FIRST_COMPLETED)
        if done:
            return


async def _end(call: asyncio.Future[Any], grace: float, name: str) -> None:
    """Cancel the handler and wait for its end, so that no part of a call outlives its result."""
    if not call.done():
        call.cancel()
        await asyncio.wait({call}, timeout=grace)
    if not call.done():
        log.error("tool does not end", extra={"action": "tool_hangs", "tool": name})
    elif not call.cancelled():
        call.exception()  # retrieved, so that the loop does not report it again


def _as_result(outcome: Any) -> ToolResult:
    """The handler's return value as a result; structured data becomes JSON text."""
    made = outcome if isinstance(outcome, ToolResult) else ToolResult()
    data = made.data if isinstance(outcome, ToolResult) else outcome
    if isinstance(data, str):
        return replace(made, content=data, data=None)
    if data is None and isinstance(outcome, ToolResult):
        return made
    written = json.dumps(data, ensure_ascii=False, default=str)
    return replace(made, content=f"{made.content}\n{written}" if made.content else written, data=None)


def tool_rows(config: Config, *, platform: str) -> list[dict[str, str]]:
    """name, toolset, state (on, off, not set up), description; as the owner sees them from `platform`."""
    known = shared()
    on = {tool.name for tool in known.offered(config, role="owner", platform=platform)}
    found = []
    for tool in known.tools():
        state = "on" if tool.name in on else "off" if tool.available(config) else "not set up"
        about = " ".join(tool.description.split()).partition(". ")[0].rstrip(".")
        found.append({"name": tool.name, "toolset": tool.toolset, "state": state, "description": about})
    return found


# -- tools of plug-ins -------------------------------------------------------------------------------------------------


def from_plugin(record: plugins.PluginTool) -> Tool:
    """The tool a record describes. A schema may come bare or wrapped in {"type": "function", "function": …}."""
    wrapped = record.schema.get("function")
    schema: Mapping[str, Any] = wrapped if isinstance(wrapped, Mapping) else record.schema
    parameters = schema.get("parameters")

    async def call(args: dict[str, Any], ctx: ToolContext) -> Any:
        facts = {"session_id": ctx.session_id(), "task_id": ctx.turn_id, "tool_call_id": ctx.call_id}
        # The registry's own time-out comes first; this one only ends the wait after it.
        return await plugins.call_plugin(record.handler, args, seconds=ctx.db.limits.tool_seconds, **facts)

    def available(config: Config) -> bool:
        return all(map(config.environ, record.requires_env)) and (record.check_fn is None or record.check_fn())

    return Tool(
        name=record.name,
        toolset=record.toolset,
        description=record.description or str(schema.get("description") or record.name),
        parameters=parameters if isinstance(parameters, Mapping) else {"type": "object", "properties": {}},
        handler=call,
        available=available,
    )


def _checked(name: str, check: Callable[..., Any], *args: Any) -> bool:
    """What a check says; one that fails is a no."""
    return bool(_asked(name, False, check, *args))


def _asked(name: str, otherwise: Any, callback: Callable[..., Any], *args: Any) -> Any:
    try:
        return callback(*args)
    except Exception as error:  # noqa: BLE001 - boundary: a plug-in's callback
        facts = {"action": "tool_check_failed", "tool": name, "error": type(error).__name__}
        log.warning("a tool's check failed", extra=facts)
        return otherwise
