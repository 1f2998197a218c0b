"""Finds plug-ins and decides which of them may be loaded. It imports no plug-in code.

Three places are searched; of two plug-ins with one key the later place wins:

    user       `<home>/plugins/`
    project    `./.hermes/plugins/`, only when `HERMES_ENABLE_PROJECT_PLUGINS` is set, since a cloned project is not
               trusted. Its plug-ins are called `project:NAME`, so none of them can replace one that was enabled
    package    installed packages that declare an entry point in the group `hermes_agent.plugins`

In a folder a plug-in is `NAME/plugin.yaml` with `NAME/__init__.py`, or one level deeper as `CATEGORY/NAME`. A plug-in
is loaded only when `plugins.enabled` names it; `plugins.disabled` wins over that.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from hermes_config import yaml_file
from hermes_config.errors import ConfigError
from hermes_config.limits import DEFAULTS

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from hermes_config.config import Config

Source = Literal["user", "project", "package"]
State = Literal["loaded", "off", "failed"]

PACKAGE = "hermes_plugins"
PROJECT = "project:"
ENTRY_POINTS = "hermes_agent.plugins"
_MANIFESTS = ("plugin.yaml", "plugin.yml")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Manifest(NamedTuple):
    """`plugin.yaml`."""

    name: str
    version: str = ""
    description: str = ""
    kind: str = "standalone"
    requires_env: tuple[str, ...] = ()


class FoundPlugin(NamedTuple):
    """A plug-in that was found, loaded or not."""

    key: str
    manifest: Manifest
    source: Source
    home: Path
    folder: Path | None = None
    entry_point: EntryPoint | None = None
    problem: str = ""
    """Why it cannot be loaded whatever the configuration says."""

    @property
    def module_name(self) -> str:
        slug = re.sub(r"\W", "_", self.key.replace("/", "__"))
        return f"{PACKAGE}.{slug}"

    @property
    def names(self) -> frozenset[str]:
        """The names that config.yaml may use for it."""
        if self.source == "project":
            return frozenset({self.key})
        return frozenset({self.key, self.key.rpartition("/")[2], self.manifest.name})


class PluginSettings(NamedTuple):
    """`plugins:` of config.yaml."""

    enabled: frozenset[str] = frozenset()
    disabled: frozenset[str] = frozenset()
    entries: Mapping[str, Mapping[str, Any]] = MappingProxyType({})

    @classmethod
    def of(cls, config: Config) -> PluginSettings:
        config.require("plugins")
        settings = config.plugins
        entries = {name: value for name, value in settings.entries.items() if isinstance(value, Mapping)}
        return cls(frozenset(settings.enabled), frozenset(settings.disabled), entries)

    def settings(self, found: FoundPlugin) -> Mapping[str, Any]:
        shared = {} if found.source == "project" else self.entries.get(found.manifest.name)
        return self.entries.get(found.key) or shared or {}

    def judge(self, found: FoundPlugin) -> tuple[State, str]:
        """Decide whether to load a plug-in; return the state and the reason."""
        if found.names & self.disabled:
            return "off", "it is under plugins.disabled"
        if not found.names & self.enabled:
            return "off", f"it is not under plugins.enabled; to load it: hermes plugins enable {found.key}"
        return ("failed", found.problem) if found.problem else ("loaded", "")

    def missing(self, found: Sequence[FoundPlugin]) -> list[str]:
        """Names that are enabled and were not found."""
        known = frozenset[str]().union(*(plugin.names for plugin in found))
        return sorted(self.enabled - self.disabled - known)


def look(home: Path, *, packages: bool) -> list[FoundPlugin]:
    """Find all plug-ins, in loading order. `packages` also searches installed packages, which takes time."""
    everywhere = [*_in_folder(home / "plugins", "user", home)]
    if truthy("HERMES_ENABLE_PROJECT_PLUGINS"):
        everywhere += _in_folder(Path.cwd() / ".hermes" / "plugins", "project", home)
    if packages:
        everywhere += _in_packages(home)
    found: dict[str, FoundPlugin] = {}
    for plugin in everywhere:
        found.pop(plugin.key, None)
        found[plugin.key] = plugin
    return list(found.values())


def truthy(variable: str) -> bool:
    return os.environ.get(variable, "").strip().lower() not in ("", "0", "false", "no", "off")


def _in_folder(root: Path, source: Source, home: Path) -> Iterator[FoundPlugin]:
    for folder in _folders(root):
        if manifest := _manifest_file(folder):
            yield _read(folder, manifest, source, home, category="")
            continue
        for inner in _folders(folder):
            if manifest := _manifest_file(inner):
                yield _read(inner, manifest, source, home, category=folder.name)


def _folders(root: Path) -> list[Path]:
    try:
        entries = sorted(root.iterdir())
    except OSError:  # missing or not readable: nothing to load
        return []
    return [entry for entry in entries if not entry.name.startswith((".", "__")) and entry.is_dir()]


def _manifest_file(folder: Path) -> Path | None:
    return next((file for name in _MANIFESTS if (file := folder / name).is_file()), None)


def _read(folder: Path, file: Path, source: Source, home: Path, *, category: str) -> FoundPlugin:
    problem, data = "", {}
    try:
        if file.stat().st_size > DEFAULTS.plugin_manifest_bytes:
            raise ConfigError(f"is larger than {DEFAULTS.plugin_manifest_bytes:,} bytes", file=str(file))
        data = yaml_file.parse(file.read_text(encoding="utf-8"), file=str(file)).data
    except ConfigError as error:
        problem = error.one_line()
    except (OSError, UnicodeDecodeError) as error:
        problem = f"{file} cannot be read: {type(error).__name__}"
    if not problem and not (folder / "__init__.py").is_file():
        problem = f"there is no __init__.py in {folder}"
    name = str(data.get("name") or folder.name)
    if not problem and not _NAME.fullmatch(name):
        problem = f"{name[:60]!r} is not a name: letters, digits, dots, _ and -"
    if problem:
        name = folder.name
    manifest = Manifest(
        name=name,
        version=str(data.get("version") or ""),
        description=str(data.get("description") or ""),
        kind=str(data.get("kind") or "standalone"),
        requires_env=_variables(data.get("requires_env")),
    )
    key = f"{category}/{folder.name}" if category else name
    if source == "project":
        key = f"{PROJECT}{key}"
    return FoundPlugin(key=key, manifest=manifest, source=source, home=home, folder=folder, problem=problem)


def _in_packages(home: Path) -> Iterator[FoundPlugin]:
    from importlib.metadata import entry_points  # 20 ms, and most homes enable nothing

    for point in sorted(entry_points(group=ENTRY_POINTS), key=lambda point: point.name):
        about = point.dist.metadata if point.dist is not None else None
        manifest = Manifest(
            name=point.name,
            version=point.dist.version if point.dist is not None else "",
            description=(about["Summary"] or "") if about is not None and "Summary" in about else "",
        )
        yield FoundPlugin(key=point.name, manifest=manifest, source="package", home=home, entry_point=point)


def _variables(value: Any) -> tuple[str, ...]:
    """Names, or objects with a name."""
    rows = value if isinstance(value, list) else [value] if isinstance(value, str | dict) else []
    names = (row.get("name") if isinstance(row, dict) else row for row in rows)
    return tuple(str(name) for name in names if name)
