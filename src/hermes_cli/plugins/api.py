"""The plug-in API: the hooks that a plug-in can use and the things that it can add.

A plug-in is a module with `register(ctx)`. `HOOKS` lists the hooks, `PluginContext` the calls; there is nothing else.
Registrations are plain data in `Registries`, which the other packages read.
"""

from __future__ import annotations

import functools
import importlib
import re
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from hermes_cli.plugins.discovery import FoundPlugin, Manifest
from hermes_config.errors import HermesError

HOOKS: Mapping[str, str] = {
    "pre_tool_call": "before each tool: {action: block, message} vetoes it, {action: approve, message} asks the person",
    "post_tool_call": "after each tool, with result, duration_ms and status",
    "transform_tool_result": "after that: the first text returned replaces what the model reads",
    "transform_terminal_output": "a command's output before it is shortened: the first text returned replaces it",
    "pre_llm_call": "once a message, before its turn begins: a text or {context} is added to it, for the model",
    "transform_llm_output": "the finished reply: the first text returned replaces it",
    "post_llm_call": "once a turn, after a reply",
    "pre_api_request": "before every request to a provider; its retries are not told",
    "post_api_request": "after every answer of a provider, with usage",
    "api_request_error": "a request to a provider failed, and so did its retries",
    "on_session_start": "the first turn of a new session",
    "on_session_end": "the end of every turn",
    "on_session_finalize": "a session is over: /new, expiry, shutdown, close",
    "on_session_reset": "its successor is ready",
    "subagent_start": "a child conversation begins to work on a delegated task",
    "subagent_stop": "it has ended, with child_summary, child_status (done, failed, cancelled) and duration_ms",
    "pre_gateway_dispatch": "every message from a platform: {action: skip | rewrite, text | allow}",
    "pre_approval_request": "a person is about to be asked for consent",
    "post_approval_response": "consent was given, refused, or not answered in time",
}
"""Hook → when it is called. A callback gets keywords only and must take `**facts`: more of them may come."""

_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_COMMAND_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")

STAFF = frozenset({"owner", "admin"})
_ROLES = STAFF | {"member", "guest"}

Callback = Callable[..., Any]


class PluginError(HermesError):
    """A plug-in asked for something it cannot have."""


class ToolOverrideDenied(PluginError, PermissionError):
    """A plug-in may not replace a tool."""


class Hook:
    """A callback that listens to a hook."""

    __slots__ = ("callback", "calls", "name", "plugin")

    def __init__(self, plugin: str, name: str, callback: Callback) -> None:
        self.plugin, self.name, self.callback = plugin, name, callback
        self.calls: dict[object, float] = {}
        """Running calls, with the time at which each began."""

    def begin(self) -> object:
        call = object()
        self.calls[call] = time.monotonic()
        return call

    def hangs(self, seconds: float) -> bool:
        """Whether an earlier call has run longer than that; then the callback is not called again."""
        now = time.monotonic()
        return any(now - began > seconds for began in list(self.calls.values()))


class PluginTool(NamedTuple):
    """A tool as a plug-in gave it; `hermes_agent.tools.registry` makes a Tool of it."""

    plugin: str
    name: str
    toolset: str
    schema: Mapping[str, Any]
    """{"description", "parameters"}, as a provider takes it."""
    handler: Callback
    """handler(args, **facts) → text or JSON-able data; may be a coroutine function."""
    description: str = ""
    check_fn: Callable[[], bool] | None = None
    requires_env: tuple[str, ...] = ()
    override: bool = False


class Asker(NamedTuple):
    """Who typed a slash command."""

    person_id: str
    role: str
    """owner, admin, member or guest."""
    platform: str
    """Where it was typed: a platform's name, cli or tui."""


class PluginCommand(NamedTuple):
    """A slash command. With `wants_context` its handler is a coroutine function like those of our own commands."""

    plugin: str
    name: str
    handler: Callback
    description: str = ""
    args_hint: str = ""
    wants_context: bool = False
    roles: frozenset[str] = STAFF
    tells_asker: bool = False
    """The handler takes the keyword `asker`."""


class PluginCliCommand(NamedTuple):
    """`hermes NAME`: `setup_fn(parser)` adds arguments, `handler_fn(args)` runs and may return an exit code."""

    plugin: str
    name: str
    help: str
    setup_fn: Callback
    handler_fn: Callback
    description: str = ""


class PluginSkill(NamedTuple):
    """A skill folder or SKILL.md, found as `plugin:name`."""

    plugin: str
    name: str
    path: Path
    description: str = ""


class PluginPlatform(NamedTuple):
    """A chat platform; `gateway.platforms.registry` makes a descriptor of its fields."""

    plugin: str
    name: str
    fields: Mapping[str, Any]
    module: str
    """The module of the plug-in, which an adapter's name such as `.adapter:Class` is relative to."""


class PluginToolSource(NamedTuple):
    """A list of tools that may change; `hermes_agent.tools.base.ToolSource` is the contract."""

    plugin: str
    name: str
    source: Any


class PluginProvider(NamedTuple):
    """A provider of models; the fields are those of `hermes_agent.models.provider_table.Provider`."""

    plugin: str
    name: str
    fields: Mapping[str, Any]


class PluginExecutor(NamedTuple):
    """What runs commands, if the owner names it; `hermes_agent.execution.base.CommandRunner` is the contract."""

    plugin: str
    name: str
    make: Callback


class PluginWebSearch(NamedTuple):
    """A search engine for `web_search`."""

    plugin: str
    name: str
    search: Callback
    """search(query, *, count, page, time) → a list of {url, title, snippet, date}; may be a coroutine function."""


class Registries:
    """The registrations of all plug-ins of this process, in order."""

    def __init__(self) -> None:
        self.hooks: dict[str, list[Hook]] = {}
        self.tools: dict[str, PluginTool] = {}
        self.commands: dict[str, PluginCommand] = {}
        self.cli_commands: dict[str, PluginCliCommand] = {}
        self.skills: dict[str, PluginSkill] = {}
        self.platforms: dict[str, PluginPlatform] = {}
        self.tool_sources: dict[str, PluginToolSource] = {}
        self.providers: dict[str, PluginProvider] = {}
        self.executors: dict[str, PluginExecutor] = {}
        self.web_search: dict[str, PluginWebSearch] = {}

    def withdraw(self, plugin: str) -> None:
        """Forget everything that a plug-in has added."""
        self.hooks = {
            name: kept for name, hooks in self.hooks.items() if (kept := [h for h in hooks if h.plugin != plugin])
        }
        for kind, table in vars(self).items():
            if kind != "hooks":
                for name in [name for name, row in table.items() if row.plugin == plugin]:
                    del table[name]


class PluginContext:
    """What `register(ctx)` is given. Everything here may also be called later, as long as the plug-in is loaded."""

    def __init__(
        self, found: FoundPlugin, registries: Registries, *, settings: Mapping[str, Any], note: Callable[[str], None]
    ) -> None:
        self.manifest = found.manifest
        self.settings = settings
        """`plugins.entries.<key>` of config.yaml, read-only."""
        self.profile_name = found.home.name if found.home.parent.name == "profiles" else "default"
        self._found = found
        self._registries: Registries | None = registries
        self._note = note

    def register_hook(self, name: str, callback: Callback) -> None:
        """Call `callback(**facts)` whenever the hook `name` fires. It may be a coroutine function."""
        if name not in HOOKS:
            self._note(f"listens to {name[:60]!r}, a hook this Hermes never calls")
        hook = Hook(self._found.key, name, _called(callback, name))
        self._open().hooks.setdefault(name, []).append(hook)

    def register_tool(
        self, name: str, toolset: str, schema: Mapping[str, Any], handler: Callback,
        check_fn: Callable[[], bool] | None = None, requires_env: Iterable[str] | None = None, is_async: bool = False,
        description: str = "", emoji: str = "", override: bool = False,
    ) -> None:  # fmt: skip
        """Offer a tool to the model. To `override` one of ours needs plugins.entries.<key>.allow_tool_override.

        Plug-ins of hermes-agent also give `is_async` and `emoji`; a coroutine is noticed anyway, and no emoji is shown.
        """
        if not _TOOL_NAME.fullmatch(name):
            raise PluginError(f"no tool can be named {name[:80]!r}", hint="Up to 64 letters, digits, _ and -.")
        if override and self.settings.get("allow_tool_override") is not True:
            raise ToolOverrideDenied(
                f"{self._found.key} may not replace the tool {name}",
                hint=f"To allow it, set plugins.entries.{self._found.key}.allow_tool_override to true.",
            )
        about = description or str(schema.get("description") or "")
        self._add(self._open().tools, "tool", override, PluginTool(
            plugin=self._found.key, name=name, toolset=toolset, schema=schema, handler=_called(handler, name),
            description=about, check_fn=check_fn, requires_env=tuple(requires_env or ()), override=override,
        ))  # fmt: skip

    def register_command(
        self, name: str, handler: Callback, description: str = "", args_hint: str = "", *,
        wants_context: bool = False, roles: Iterable[str] = STAFF,
    ) -> None:  # fmt: skip
        """Add `/name`: `handler(raw_args)` gives the answer or None; with `wants_context` it is `async (ctx, args)`.

        Only people with one of `roles` can use it: owner and admin unless you name others. A handler that has a
        parameter `asker` (or `**facts`) is told who asks, as an `Asker`.
        """
        clean = _command_name(name)
        wanted = frozenset([roles] if isinstance(roles, str) else roles)
        if not wanted <= _ROLES or not wanted:
            wrong = ", ".join(sorted(map(str, wanted - _ROLES))) or "none"
            known = ", ".join(sorted(_ROLES))
            raise PluginError(f"/{clean} names unknown roles: {wrong[:80]}", hint=f"Some of {known}.")
        self._add(self._open().commands, "command", False, PluginCommand(
            plugin=self._found.key, name=clean, handler=_called(handler, name), description=description,
            args_hint=args_hint, wants_context=wants_context, roles=wanted, tells_asker=_takes_asker(handler),
        ))  # fmt: skip

    def register_cli_command(
        self,
        name: str,
        help: str,  # noqa: A002  argparse's word
        setup_fn: Callback,
        handler_fn: Callback,
        description: str = "",
    ) -> None:
        """Add `hermes name`: `setup_fn(parser)` declares arguments, `handler_fn(args)` runs."""
        self._add(self._open().cli_commands, "command line", False, PluginCliCommand(
            plugin=self._found.key, name=_command_name(name), help=help, setup_fn=_called(setup_fn, name),
            handler_fn=_called(handler_fn, name), description=description,
        ))  # fmt: skip

    def register_skill(self, name: str, path: str | Path, description: str = "") -> None:
        """Add a skill: a folder with SKILL.md, or that file. Relative paths are inside the plug-in's folder."""
        place = (self._found.folder or Path.cwd()) / path
        if not place.exists():
            raise PluginError(f"the skill {name[:60]!r} is not there", where=str(place))
        full = f"{self._found.manifest.name}:{name}"
        skill = PluginSkill(plugin=self._found.key, name=full, path=place, description=description)
        self._add(self._open().skills, "skill", False, skill)

    def register_platform(self, name: str, **fields: Any) -> None:
        """Add a chat platform; the fields are those of `gateway.platforms.registry.Descriptor`."""
        module = self._found.entry_point.module if self._found.entry_point else self._found.module_name
        row = PluginPlatform(plugin=self._found.key, name=_command_name(name), fields=fields, module=module)
        self._add(self._open().platforms, "platform", False, row)

    def register_tool_source(self, name: str, source: Any) -> None:
        """Add tools that may come and go: `source` is a `hermes_agent.tools.base.ToolSource`."""
        if not callable(getattr(source, "tools", None)):
            raise PluginError(f"the tool source {name[:60]!r} is not a ToolSource but {type(source).__name__}")
        row = PluginToolSource(plugin=self._found.key, name=_command_name(name), source=source)
        self._add(self._open().tool_sources, "tool source", False, row)

    def register_provider(self, name: str, **fields: Any) -> None:
        """Add a provider of models; the fields are those of `hermes_agent.models.provider_table.Provider`."""
        row = PluginProvider(plugin=self._found.key, name=_command_name(name), fields=fields)
        self._add(self._open().providers, "provider", False, row)

    def register_executor(self, name: str, make: Callback) -> None:
        """Offer to run commands. Used only where config.yaml says `executor: plugin:NAME`.

        `make(config)` returns a `hermes_agent.execution.base.CommandRunner`.
        """
        row = PluginExecutor(plugin=self._found.key, name=_command_name(name), make=_called(make, name))
        self._add(self._open().executors, "executor", False, row)

    def register_web_search_provider(self, name: str, search: Callback) -> None:
        """Add a search engine: `search(query, *, count, page, time)` returns a list of {url, title, snippet, date}.

        It is asked if `web.search_backend` names it, or if no other engine is configured.
        """
        row = PluginWebSearch(plugin=self._found.key, name=_command_name(name), search=_called(search, name))
        self._add(self._open().web_search, "search engine", False, row)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"this Hermes has no ctx.{name}")

    def close(self) -> None:
        """Mark the plug-in as unloaded; it can add nothing from now on."""
        self._registries = None

    def _open(self) -> Registries:
        if self._registries is None:
            raise PluginError(f"the plug-in {self._found.key} is not loaded any more")
        return self._registries

    def _add(self, table: dict[str, Any], what: str, override: bool, row: Any) -> None:
        taken = table.get(row.name)
        if taken is not None and taken.plugin != self._found.key and not override:
            self._note(f"its {what} {row.name} was left out: {taken.plugin} has one of that name")
            return
        table[row.name] = row


OURS = "hermes"
"""Who has registered what Hermes brings along."""
_BUILT_INS = {
    "platforms": "gateway.platforms", "tool_sources": "hermes_agent.tools.builtin",
    "providers": "hermes_agent.models.provider_table",
}  # fmt: skip


@functools.cache
def built_in(kind: str) -> Mapping[str, Any]:
    """Return the built-in entries of a kind: their module has `register(ctx)` and makes the same calls as a plug-in."""
    registries = Registries()
    found = FoundPlugin(OURS, Manifest(OURS), "package", Path())
    module = importlib.import_module(_BUILT_INS[kind])
    module.register(PluginContext(found, registries, settings={}, note=lambda text: None))
    rows: dict[str, Any] = getattr(registries, kind)
    return rows


def _called(callback: Any, name: str) -> Callback:
    if not callable(callback):
        raise PluginError(f"what is registered as {name[:60]!r} cannot be called: {type(callback).__name__}")
    function: Callback = callback
    return function


def _takes_asker(handler: Callback) -> bool:
    """Whether a handler accepts `asker`; older handlers take only the arguments."""
    import inspect  # only where a plug-in adds a command

    try:
        parameters = inspect.signature(handler).parameters.values()
    except (TypeError, ValueError):  # a builtin without a signature
        return False
    return any(
        one.kind is one.VAR_KEYWORD or (one.name == "asker" and one.kind is not one.POSITIONAL_ONLY)
        for one in parameters
    )


def _command_name(name: str) -> str:
    clean = name.strip().removeprefix("/").lower()
    if not _COMMAND_NAME.fullmatch(clean):
        raise PluginError(f"no command can be named {name[:80]!r}", hint="Up to 32 letters, digits, _ and -.")
    return clean
