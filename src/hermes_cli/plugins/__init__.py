"""Plug-ins: the manager that finds, loads and calls them. Every package may import this; it imports only hermes_config.

`api` is the interface for plug-ins, `discovery` finds them, `execution` imports and calls their code. A process has one
manager: each entry point calls `discover_plugins()` when it starts, the packages call hooks and read the registries.
The platforms, tools and providers of Hermes itself are registered by the same calls (`built_in`).

A plug-in that fails (in its manifest, on import, in `register`, in a callback, by hanging) affects only itself: Hermes
removes its registrations, keeps the reason for `hermes plugins list`, and continues with the others. A plug-in runs in
the Hermes process with its rights, so enable only plug-ins that you trust. `HERMES_SAFE_MODE=1` loads none.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, NamedTuple

from hermes_cli.plugins import discovery, execution
from hermes_cli.plugins.api import (
    HOOKS,
    Asker,
    PluginCliCommand,
    PluginCommand,
    PluginContext,
    PluginError,
    PluginExecutor,
    PluginPlatform,
    PluginProvider,
    PluginSkill,
    PluginTool,
    PluginToolSource,
    PluginWebSearch,
    Registries,
    ToolOverrideDenied,
    built_in,
)
from hermes_cli.plugins.discovery import FoundPlugin, PluginSettings, State, truthy
from hermes_config import logs
from hermes_config.errors import ConfigError
from hermes_config.limits import DEFAULTS, Limits

__all__ = [
    "HOOKS", "Asker", "LoadedPlugin", "PluginCliCommand", "PluginCommand", "PluginContext", "PluginError",
    "PluginExecutor", "PluginManager", "PluginPlatform", "PluginProvider", "PluginSkill", "PluginTool",
    "PluginToolSource", "PluginWebSearch", "PreToolDecision", "ToolOverrideDenied", "built_in", "call_plugin",
    "complain", "discover_plugins", "get_executors", "get_platforms", "get_plugin_cli_commands",
    "get_plugin_command_handler", "get_plugin_commands", "get_plugin_manager", "get_plugin_skills",
    "get_plugin_tools", "get_providers", "get_tool_sources", "get_web_search_providers", "has_hook",
    "import_file", "invoke_hook", "resolve_plugin_command_result", "resolve_pre_tool_block",
]  # fmt: skip

TELEMETRY_SCHEMA = "hermes.observer.v1"

log = execution.log
complain = execution.complain
import_file = execution.import_file


class LoadedPlugin:
    """A plug-in with its state."""

    def __init__(self, found: FoundPlugin, state: State, reason: str = "") -> None:
        self.found = found
        self.state = state
        self.reason = reason
        """Why it is not loaded."""
        self.notes: list[str] = []
        self.context: PluginContext | None = None

    @property
    def error(self) -> str | None:
        return self.reason if self.state == "failed" else None


class PluginManager:
    """The plug-ins of this process."""

    def __init__(self) -> None:
        self.plugins: dict[str, LoadedPlugin] = {}
        self.missing: list[str] = []
        """Enabled, but not found."""
        self.registries = Registries()
        self.limits: Limits = DEFAULTS
        self._lock = threading.Lock()
        self._discovered = False
        self.workers = execution.Workers(DEFAULTS.plugin_threads)

    # -- finding and loading ------------------------------------------------------------------------------

    def discover(self, *, force: bool = False, packages: bool = False) -> None:
        """Load the plug-ins that the current home enables; a second call does nothing unless forced.

        Installed packages are searched when a plug-in is enabled, or with `packages`.
        """
        with self._lock:
            if self._discovered and not force:
                return
            self._forget()
            self._discovered = True
            safe = truthy("HERMES_SAFE_MODE")
            if safe and not packages:
                return
            from hermes_config import config

            _show_log_if_asked()
            try:
                loaded = config.load()
                wanted = PluginSettings.of(loaded)
            except ConfigError as error:  # reported in full where the configuration is needed
                log.error("no plug-in is loaded: %s", error.one_line(), extra={"action": "plugins_unconfigured"})
                return
            self.limits = loaded.limits
            found = discovery.look(loaded.home, packages=packages or bool(wanted.enabled))
            self.missing = wanted.missing(found)
            for plugin in found:
                row = LoadedPlugin(plugin, "off", "HERMES_SAFE_MODE is set")
                if not safe:
                    row.state, row.reason = wanted.judge(plugin)
                self.plugins[plugin.key] = row
                if row.state == "loaded":
                    self._load(row, wanted.settings(plugin))
                log.debug("%s: %s %s", plugin.key, row.state, row.reason, extra={"action": "plugin_found"})

    def _load(self, row: LoadedPlugin, settings: Mapping[str, Any]) -> None:
        """Import and register on a thread, with a time limit: a plug-in that hangs must not block the start."""
        context = PluginContext(row.found, self.registries, settings=settings, note=row.notes.append)
        seconds = self.limits.plugin_start_ms / 1000
        started = execution.start(self.workers, execution.import_and_register, row.found, context)
        try:
            started.result(seconds)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - boundary: a plug-in's start
            context.close()
            self.registries.withdraw(row.found.key)
            late = isinstance(error, TimeoutError) and not started.done()
            row.state = "failed"
            row.reason = f"it was not ready after {seconds:g} s" if late else execution.said(error)
            execution.complain(error, plugin=row.found.key, action="plugin_failed")
            return
        row.state, row.reason, row.context = "loaded", "", context
        row.notes += [f"needs {name}, which is not set" for name in _unset(row.found)]

    def _forget(self) -> None:
        for row in self.plugins.values():
            if row.context is not None:
                row.context.close()
        execution.forget_modules()
        self.plugins, self.missing, self.registries = {}, [], Registries()

    # -- calling --------------------------------------------------------------------------------------------

    def invoke(self, name: str, facts: dict[str, Any]) -> list[Any]:
        answers = []
        seconds = self.limits.hook_ms / 1000
        for hook in self.registries.hooks.get(name, ()):
            if hook.hangs(seconds):
                continue
            call = hook.begin()
            try:
                answer = execution.settle(hook.callback(**facts), seconds, self.workers)
            except (Exception, SystemExit) as error:  # noqa: BLE001 - boundary: a plug-in's callback
                execution.complain(error, plugin=hook.plugin, action="hook_failed", hook=name)
                continue
            finally:
                hook.calls.pop(call, None)
            if answer is not None:
                answers.append(answer)
        return answers


_manager = PluginManager()


def get_plugin_manager() -> PluginManager:
    return _manager


def discover_plugins(force: bool = False) -> None:
    """Load the enabled plug-ins, once per process; again with `force`. Never raises because of a plug-in."""
    _manager.discover(force=force)


def has_hook(name: str) -> bool:
    """Whether the hook has a callback; check this before gathering facts on a hot path."""
    return name in _manager.registries.hooks


def invoke_hook(name: str, /, **facts: Any) -> list[Any]:
    """Call the callbacks of a hook and return their results in order, without None. One that raises is logged."""
    if name not in _manager.registries.hooks:
        return []
    facts.setdefault("telemetry_schema_version", TELEMETRY_SCHEMA)
    return _manager.invoke(name, facts)


async def call_plugin(fn: Callable[..., Any], /, *args: Any, seconds: float, **kwargs: Any) -> Any:
    """Call a plug-in's function off the event loop; a returned coroutine is awaited here. Its errors are raised."""
    return await execution.finish(execution.start(_manager.workers, fn, *args, **kwargs), seconds)


def resolve_plugin_command_result(value: Any) -> Any:
    """Return the result of a command's handler; a coroutine runs for at most `limits.plugin_command_ms`."""
    return execution.settle(value, _manager.limits.plugin_command_ms / 1000, _manager.workers)


class PreToolDecision(NamedTuple):
    """The decision of plug-ins about a tool call."""

    action: Literal["block", "approve"]
    message: str = ""


def resolve_pre_tool_block(answers: Iterable[Any]) -> PreToolDecision | None:
    """Return the decision of the `pre_tool_call` answers: the first valid one wins; None allows the call."""
    for answer in answers:
        if not isinstance(answer, Mapping):
            continue
        said = answer.get("message")
        message = said if isinstance(said, str) else ""
        if answer.get("action") == "block":
            return PreToolDecision("block", message or "a plug-in blocked this call")
        if answer.get("action") == "approve":
            return PreToolDecision("approve", message)
    return None


def get_plugin_tools() -> tuple[PluginTool, ...]:
    return tuple(_manager.registries.tools.values())


def get_plugin_commands() -> Mapping[str, PluginCommand]:
    return dict(_manager.registries.commands)


def get_plugin_command_handler(name: str) -> Callable[..., Any] | None:
    """The handler of `/name`, as plug-ins of hermes-agent look it up."""
    row = _manager.registries.commands.get(name)
    return None if row is None else row.handler


def get_plugin_cli_commands() -> Mapping[str, PluginCliCommand]:
    return dict(_manager.registries.cli_commands)


def get_plugin_skills() -> tuple[PluginSkill, ...]:
    return tuple(_manager.registries.skills.values())


def get_platforms() -> Mapping[str, PluginPlatform]:
    """Ours, then those of plug-ins that are loaded; none of them replaces one of ours."""
    ours = built_in("platforms")
    return {**ours, **{name: row for name, row in _manager.registries.platforms.items() if name not in ours}}


def get_tool_sources() -> tuple[PluginToolSource, ...]:
    """Return the built-in tool sources, then those of plug-ins by name."""
    own = _manager.registries.tool_sources
    return (*built_in("tool_sources").values(), *(own[name] for name in sorted(own)))


def get_providers() -> Mapping[str, PluginProvider]:
    """Ours, then those of plug-ins that are loaded; none of them replaces one of ours."""
    ours = built_in("providers")
    return {**ours, **{name: row for name, row in _manager.registries.providers.items() if name not in ours}}


def get_executors() -> Mapping[str, PluginExecutor]:
    return dict(_manager.registries.executors)


def get_web_search_providers() -> Mapping[str, PluginWebSearch]:
    return dict(_manager.registries.web_search)


def _unset(found: FoundPlugin) -> list[str]:
    from hermes_config import config

    known = config.load(found.home)
    return [name for name in found.manifest.requires_env if not known.environ(name)]


def _show_log_if_asked() -> None:
    """With `HERMES_PLUGINS_DEBUG=1`, log each found plug-in and its state on stderr."""
    logs.redact_records()
    if truthy("HERMES_PLUGINS_DEBUG") and not log.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("plugins: %(message)s"))
        log.addHandler(handler)
        log.setLevel(logging.DEBUG)
