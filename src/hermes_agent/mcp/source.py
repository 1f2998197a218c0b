"""The tools of all MCP servers, as a tool source, and the thread on which their connections live.

The list is made of the servers' last lists, so it is there before a server is, and stays when one goes. The tools are
not listed in the prompt: the model finds them with `find_tool` and calls them with `use_tool`, so a server that comes,
goes or changes does not move the prompt. A person is asked before a call, unless the tool's name has a permission;
what a server says of its own tools (`readOnlyHint`) is not believed.
"""

from __future__ import annotations

import asyncio
import atexit
import fnmatch
import hashlib
import json
import logging
import re
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_agent import process_identity
from hermes_agent.mcp import results
from hermes_agent.mcp.connection import (
    LAZY,
    ServerConnection,
    ServerLists,
    ServerState,
    ToolCaller,
    keep_json,
    last_failure,
)
from hermes_agent.mcp.servers import McpServer, ServerUnusable, configured
from hermes_agent.sync_loop import LoopThread
from hermes_agent.tools import registry
from hermes_agent.tools.base import Tool, ToolContext, ToolResult, ToolSource, parameters, value

if TYPE_CHECKING:
    from mcp import Client

    from hermes_config.config import Config

log = logging.getLogger("hermes.mcp")
KEY = "hermes/idempotency-key"
"""The name in `_meta` under which a server gets (turn, call): the same after a restart."""
Request = Callable[[McpServer, "Client", dict[str, Any], ToolContext], Awaitable[ToolResult]]
"""One request to a server: (server, client, arguments, context) → result."""
_LONGEST_NAME = 64
_END_SECONDS = 5.0
"""How long the connections may take to end."""
_FIRST_SECONDS = 10.0
"""How long a search for tools waits for servers that were never connected before."""
_LOOK_SECONDS = 0.05
_STATES = ("connected", "needs login", "retrying", "off")


class McpTools(ToolSource):
    """The tools of the configured servers, and their connections."""

    def __init__(self) -> None:
        self._loop = LoopThread("hermes-mcp")
        self._lock = threading.Lock()
        self._connections: dict[str, ServerConnection] = {}
        self._tools: tuple[Tool, ...] = ()
        self._home: Path | None = None
        self._holder = process_identity.new_holder()
        self._started = self._published = False
        self._unreadable: set[str] = set()
        """Servers whose list cannot be read, and of which the log says so."""

    def use(self, config: Config, *, connect: bool = False, look: bool = False) -> None:
        """Take the servers of a configuration: new and changed ones are connected anew, missing ones are closed.

        `connect`: connect now. Otherwise a server is connected when it is called, or if its tools are not known and
        `look` does not say that the known ones are enough.
        """
        wanted = {name: one for name, one in configured(config).items() if one.settings.enabled}
        with self._lock:
            self._home = config.home
            self._published = connect = self._published or connect
            for name, old in list(self._connections.items()):
                new = wanted.get(name)
                if new is None or new.values() != old.server.values():
                    del self._connections[name]
                    self._loop.get().call_soon_threadsafe(old.cancel)
                else:
                    del wanted[name]
            for name, server in wanted.items():
                self._connections[name] = ServerConnection(server, on_change=self._publish, on_lists=self._rebuild)
                self._started = True
            ours = list(self._connections.values())
        for one in ours:
            if connect or (one.lists is None and not look):
                self._loop.get().call_soon_threadsafe(one.start)
        self._rebuild()

    def tools(self) -> tuple[Tool, ...]:
        return self._tools

    async def until_listed(self, stop: asyncio.Event) -> None:
        """Wait until the tools of each server are known, or it failed; a few seconds at most."""
        until = time.monotonic() + _FIRST_SECONDS
        while any(one.is_unheard for one in list(self._connections.values())):
            if stop.is_set() or time.monotonic() > until:
                return
            await asyncio.sleep(_LOOK_SECONDS)

    def without_list(self) -> list[str]:
        """The servers whose tools are not known, each with its state."""
        with self._lock:
            return [f"{name} ({one.state.state})" for name, one in self._connections.items() if one.lists is None]

    def states(self) -> dict[str, ServerState]:
        with self._lock:
            return {name: one.state for name, one in self._connections.items()}

    def close(self) -> None:
        """End all connections, and with them the programs of this process."""
        with self._lock:
            ours, self._connections = list(self._connections.values()), {}
        if self._started:
            with suppress(Exception):  # the process ends; its programs end with it in any case
                self._loop.submit(_closed(ours)).result(_END_SECONDS + 1)
            self._loop.stop()
            self._started = False
        if self._published and self._home is not None:
            self._state_file(self._home).unlink(missing_ok=True)

    def _rebuild(self) -> None:
        """Make the tools anew from the lists; the generation changes only if they did."""
        with self._lock:
            made = tuple(_unique(tool for one in self._connections.values() for tool in self._usable(one)))
            if [(tool.spec, tool.place) for tool in made] != [(tool.spec, tool.place) for tool in self._tools]:
                self._tools, self.generation = made, self.generation + 1

    def _publish(self) -> None:
        """Tell other processes the states, in a file; only a process that stays does."""
        if not self._published or self._home is None:
            return
        with self._lock:
            ours = {name: {"mark": one.server.mark, **asdict(one.state)} for name, one in self._connections.items()}
        keep_json(self._state_file(self._home), {"holder": self._holder, "servers": ours})

    def _state_file(self, home: Path) -> Path:
        return home / "mcp" / "state" / f"{_plain_name(self._holder.partition('/')[2])}.json"

    def _usable(self, connection: ServerConnection) -> list[tuple[str, Tool]]:
        """The tools of a server; none if its list cannot be read, which costs no other server anything."""
        name = connection.server.name
        try:
            found = list(self._tools_of(connection))
        except Exception as error:  # noqa: BLE001 - boundary: what a server, or a file, says of its tools
            if name not in self._unreadable:
                self._unreadable.add(name)
                what = "the tools of %s are left out: its list cannot be read (%s)"
                log.warning(what, name, type(error).__name__, extra={"action": "mcp_list_unreadable", "server": name})
            return []
        self._unreadable.discard(name)
        return found

    def _tools_of(self, connection: ServerConnection) -> Iterator[tuple[str, Tool]]:
        """(the server's own name, the tool) of every tool of a server that the filters let through."""
        server, lists = connection.server, connection.lists or ServerLists()
        for record in lists.tools:
            if _lets_through(server, record["name"]):
                yield self._tool(
                    server, record["name"], record["description"], record["schema"], _call_tool(record["name"])
                )
        if lists.resources and server.settings.tools.resources:
            about = f"List the resources of the MCP server {server.name}, or read one."
            schema = parameters(uri=value("string", "The resource to read; without it, the list."))
            yield self._tool(server, "read_resource", about, schema, _read_resource)
        if lists.prompts and server.settings.tools.prompts:
            about = f"List the prompts that the MCP server {server.name} offers, or get one."
            given = value("object", "Its arguments.", additionalProperties={"type": "string"})
            schema = parameters(name=value("string", "The prompt to get; without it, the list."), arguments=given)
            yield self._tool(server, "get_prompt", about, schema, _get_prompt)

    def _tool(
        self, server: McpServer, own: str, about: str, schema: Mapping[str, Any], request: Request
    ) -> tuple[str, Tool]:
        async def call(args: dict[str, Any], ctx: ToolContext) -> ToolResult:
            """Run the request on the thread of the connections; it is cancelled there if it is cancelled here."""
            connection = self._connections.get(server.name)
            if connection is None:
                return ToolResult(f"The MCP server {server.name} is not configured any more.", is_error=True)
            work = connection.run(
                lambda client: request(server, client, args, ctx), ToolCaller(ctx, asyncio.get_running_loop())
            )
            return await asyncio.wrap_future(self._loop.submit(work))

        return own, Tool(
            name=f"{tool_names(server.name)}{_plain_name(own)}", toolset=f"mcp-{server.name}",
            source=f"MCP server {server.name}", place=server.place, description=about, parameters=schema, handler=call,
            listed=False, summary=lambda args: f"{_plain_name(own)} of {server.name}",
        )  # fmt: skip


def _call_tool(named: str) -> Request:
    async def call(server: McpServer, client: Client, args: dict[str, Any], ctx: ToolContext) -> ToolResult:
        meta: Any = {KEY: f"{ctx.turn_id}/{ctx.call_id}"}
        return results.of_call(server.name, await client.call_tool(named, args, meta=meta))

    return call


async def _read_resource(server: McpServer, client: Client, args: dict[str, Any], ctx: ToolContext) -> ToolResult:
    if uri := args.get("uri"):
        return results.of_resource(server.name, await client.read_resource(uri))
    found = (await client.list_resources()).resources
    rows = [(str(one.uri), one.description or one.title or one.name) for one in found]
    templates = (await client.list_resource_templates()).resource_templates
    rows += [(one.uri_template, one.description or one.title or one.name) for one in templates]
    return results.listed(server.name, rows, "resources", server.config.limits)


async def _get_prompt(server: McpServer, client: Client, args: dict[str, Any], ctx: ToolContext) -> ToolResult:
    if name := args.get("name"):
        given = {str(key): str(one) for key, one in (args.get("arguments") or {}).items()}
        return results.of_prompt(server.name, await client.get_prompt(name, given))
    rows = []
    for one in (await client.list_prompts()).prompts:
        wants = ", ".join(f"{arg.name}{'' if arg.required else '?'}" for arg in one.arguments or ())
        rows.append((f"{one.name}({wants})", one.description or one.title or ""))
    return results.listed(server.name, rows, "prompts", server.config.limits)


async def _closed(connections: list[ServerConnection]) -> None:
    """Close them, and wait for those that were replaced a moment ago: they end on the same loop."""
    for one in connections:
        one.cancel()
    if others := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.wait(others, timeout=_END_SECONDS)


def _lets_through(server: McpServer, name: str) -> bool:
    chosen = server.settings.tools
    included = not chosen.include or any(fnmatch.fnmatchcase(name, pattern) for pattern in chosen.include)
    return included and not any(fnmatch.fnmatchcase(name, pattern) for pattern in chosen.exclude)


def tool_names(server: str) -> str:
    """How the names of a server's tools begin."""
    return f"mcp__{_plain_name(server)}__"


def _plain_name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", text)


def _unique(found: Iterable[tuple[str, Tool]]) -> Iterator[Tool]:
    """The tools in order of their names. Of tools whose names are too long or the same, each gets a mark: none takes a
    name, and a permission for it, that belonged to another before. What a server lists twice is there once."""
    once = {(tool.toolset, own): tool for own, tool in found}
    often = Counter(tool.name for tool in once.values())
    for (toolset, own), tool in sorted(once.items(), key=lambda one: (one[1].name, one[0])):
        if often[tool.name] == 1 and len(tool.name) <= _LONGEST_NAME:
            yield tool
        else:
            mark = hashlib.sha256(f"{toolset}/{own}".encode()).hexdigest()[:8]
            yield replace(tool, name=f"{tool.name[: _LONGEST_NAME - 9]}_{mark}")


# -- for the rest of Hermes --------------------------------------------------------------------------------------------

_shared: McpTools | None = None
_making = threading.Lock()


def use(config: Config, *, connect: bool = False, look: bool = False) -> None:
    """Offer the tools of the configured servers in this process. Costs nothing if there are none and were none."""
    global _shared  # noqa: PLW0603 - one a process
    with _making:
        if _shared is None:
            if not config.mcp_servers:
                return
            _shared = McpTools()
            atexit.register(_shared.close)
            registry.add_source("mcp", _shared)
    _shared.use(config, connect=connect, look=look)


def shared() -> McpTools | None:
    """The servers of this process; None without any."""
    return _shared


def close() -> None:
    """End the servers of this process, while it still has threads."""
    if _shared is not None:
        _shared.close()


def states(config: Config) -> dict[str, ServerState]:
    """The state of every configured server: of this process, else of another one that runs."""
    ours = _shared.states() if _shared is not None else {}
    others = _published_states(config.home)
    found: dict[str, ServerState] = {}
    for name, server in configured(config).items():
        if not server.settings.enabled:
            found[name] = ServerState("off", "`enabled` is false")
            continue
        lists = ServerLists.kept(config.home / "mcp" / "lists" / f"{name}.json") or ServerLists()
        told = (said.get((name, server.mark)) for said in others)
        known = [one for one in (ours.get(name), *told) if one is not None]
        state = min(known, key=lambda one: _STATES.index(one.state)) if known else ServerState("off", LAZY)
        if state.reason == LAZY:
            why, at = _failure(server)
            state = ServerState("off", why or LAZY, at, lists.protocol, len(lists.tools))
        found[name] = state
    return found


def _failure(server: McpServer) -> tuple[str, float]:
    """Why a server that nobody uses now cannot start, or could not the last time, and when that was; else nothing."""
    try:
        server.check()
        server.opening()
        if server.settings.command:
            server.program()
    except ServerUnusable as error:
        return error.what, 0.0
    return last_failure(server)


def described(config: Config) -> list[tuple[str, str, str]]:
    """(name, state, words) of every configured server, for status, doctor and /mcp."""
    found: list[tuple[str, str, str]] = []
    for name, one in states(config).items():
        since = time.strftime(" since %Y-%m-%d %H:%M", time.localtime(one.since)) if one.since else ""
        tools = f", {one.tools} tool{'' if one.tools == 1 else 's'}" if one.tools else ""
        found.append((name, one.state, f"{one.state}{since}{tools}{f': {one.reason}' if one.reason else ''}"))
    return found


def _published_states(home: Path) -> list[dict[tuple[str, str], ServerState]]:
    """What other processes say: by the name of the server and the mark of the settings they use."""
    found = []
    with suppress(OSError):
        for file in (home / "mcp" / "state").glob("*.json"):
            with suppress(OSError, ValueError, KeyError, TypeError):
                said = json.loads(file.read_text("utf-8"))
                if process_identity.is_gone(said["holder"]):
                    file.unlink(missing_ok=True)
                    continue
                found.append({(name, one.pop("mark")): ServerState(**one) for name, one in said["servers"].items()})
    return found
