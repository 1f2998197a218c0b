"""Event hooks of a home: `<home>/hooks/<folder>/HOOK.yaml` with a `handler.py` beside it.

HOOK.yaml names the hook and its events; `handler.py` has `handle(event_type, context)`, plain or async. Its code runs
with the gateway's rights, so only the folders in `hooks.enabled` of config.yaml are imported, as with plug-ins. A hook
runs off the event loop and within `limits.hook_ms`; if it cannot be loaded, raises or hangs, the log says so and only
that call fails. Handlers of the exact event come first, then those of `kind:*`.
"""

from __future__ import annotations

import logging
import shlex
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_cli import plugins
from hermes_config.limits import DEFAULTS, Limits

if TYPE_CHECKING:
    from hermes_config.config import Config

_log = logging.getLogger("hermes.gateway")

Handle = Callable[[str, dict[str, Any]], Any]
EVENTS = (
    "gateway:startup", "session:start", "session:end", "session:reset", "session:compress", "agent:start", "agent:end",
    "gateway:*", "session:*", "agent:*",
)  # fmt: skip
"""What hooks can listen to, besides `command:NAME` and `command:*`."""


def enabled_hooks(config: Config) -> frozenset[str]:
    """`hooks.enabled`: the names of the folders that are loaded. Raises `ConfigError`."""
    config.require("hooks")
    return frozenset(config.hooks.enabled)


def hook_folders(home: Path) -> list[Path]:
    """The folders in `<home>/hooks`, loaded or not, in the order of their names."""
    root = home / "hooks"
    found = sorted(root.iterdir()) if root.is_dir() else []
    return [folder for folder in found if folder.is_dir() and not folder.name.startswith(".")]


def hooks_off(config: Config) -> list[str]:
    """Folders in `<home>/hooks` that `hooks.enabled` does not name."""
    enabled = enabled_hooks(config)
    return [folder.name for folder in hook_folders(config.home) if folder.name not in enabled]


def how_to_enable(name: str, enabled: Iterable[str]) -> str:
    """The command that loads one more hook."""
    names = ", ".join(sorted({*enabled, name}))
    return f"hermes config set hooks.enabled {shlex.quote(f'[{names}]')}"


class HookRegistry:
    """The hooks that were found at start. `loaded_hooks` is what `hermes gateway status` shows."""

    def __init__(self, home: Path, limits: Limits = DEFAULTS, *, enabled: Iterable[str] = ()) -> None:
        self._home, self._enabled = home, frozenset(enabled)
        self._seconds = limits.hook_ms / 1000
        self._handlers: dict[str, list[tuple[str, Handle]]] = {}
        self.loaded_hooks: list[dict[str, Any]] = []

    def discover_and_load(self) -> None:
        """Load the enabled folders by name. Broken hooks and hooks that are not enabled are logged."""
        for folder in hook_folders(self._home):
            if folder.name not in self._enabled:
                self._leave_out(folder, f"to load it: {how_to_enable(folder.name, self._enabled)}")
                continue
            try:
                self._load(folder)
            except (Exception, SystemExit) as error:  # noqa: BLE001 - boundary: somebody else's code and YAML
                self._leave_out(folder, f"{type(error).__name__}: {error}")

    async def emit(self, event: str, context: Mapping[str, Any] | None = None) -> None:
        """Call the handlers of an event; ignores results and errors."""
        if self._handlers:
            await self.emit_collect(event, context)

    async def emit_collect(self, event: str, context: Mapping[str, Any] | None = None) -> list[Any]:
        """Call the handlers of an event; returns their results without None. Each gets its own dictionary."""
        answers = []
        for name, handle in self._listening(event):
            try:
                answer = await plugins.call_plugin(handle, event, dict(context or {}), seconds=self._seconds)
            except (Exception, SystemExit) as error:  # noqa: BLE001 - boundary: somebody else's code
                kind = type(error).__name__
                _log.error(
                    "the hook %s failed at %s (%s)", name, event, kind, extra={"action": "hook_failed", "hook": name}
                )
                continue
            if answer is not None:
                answers.append(answer)
        return answers

    def listens(self, event: str) -> bool:
        return bool(self._listening(event))

    def _listening(self, event: str) -> list[tuple[str, Handle]]:
        return [*self._handlers.get(event, ()), *self._handlers.get(f"{event.partition(':')[0]}:*", ())]

    def _load(self, folder: Path) -> None:
        import yaml  # only homes with hooks pay for it here

        file, code = folder / "HOOK.yaml", folder / "handler.py"
        if not file.is_file() or not code.is_file():
            return self._leave_out(folder, "HOOK.yaml or handler.py is missing")
        said = yaml.safe_load(file.read_text(encoding="utf-8"))
        events = said.get("events") if isinstance(said, dict) else None
        if not isinstance(events, list) or not events or not all(isinstance(event, str) for event in events):
            return self._leave_out(folder, "HOOK.yaml has no list of events")
        handle = vars(plugins.import_file(f"hermes_hooks.{folder.name}", code)).get("handle")
        if not callable(handle):
            return self._leave_out(folder, "handler.py has no function handle(event_type, context)")
        name = str(said.get("name") or folder.name)
        if unknown := [event for event in events if event not in EVENTS and event.partition(":")[0] != "command"]:
            _log.warning("the hook %s listens to %s, which Hermes never calls", name, ", ".join(unknown))
        for event in dict.fromkeys(events):
            self._handlers.setdefault(event, []).append((name, handle))
        about = str(said.get("description") or "")
        self.loaded_hooks.append({"name": name, "description": about, "events": events, "path": str(folder)})
        return None

    def _leave_out(self, folder: Path, why: str) -> None:
        _log.warning("the hook %s is not loaded: %s", folder, why, extra={"action": "hook_left_out"})
