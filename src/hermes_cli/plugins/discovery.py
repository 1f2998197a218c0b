"""Which plug-ins there are, and which of them may be loaded. Nothing is imported here.

Four places are looked at; of two plug-ins with one key the later place wins:

    bundled    `bundled_plugins/` beside this file, or `HERMES_BUNDLED_PLUGINS`
    user       `<home>/plugins/`
    project    `./.hermes/plugins/`, only when `HERMES_ENABLE_PROJECT_PLUGINS` is set: a cloned project is a stranger.
               Its plug-ins are called `project:NAME`, so none of them can take the place of one that was enabled
    package    installed packages that declare an entry point in the group `hermes_agent.plugins`

In a folder a plug-in is `NAME/plugin.yaml` with `NAME/__init__.py`, or one level deeper as `CATEGORY/NAME`. Code of
others runs only when the person named it under `plugins.enabled`; `plugins.disabled` wins over everything.
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

Source = Literal["bundled", "user", "project", "package"]
State = Literal["loaded", "off", "failed", "later", "recorded"]

KINDS = ("standalone", "backend", "exclusive", "platform", "model-provider")
PACKAGE = "hermes_plugins"
PROJECT = "project:"
ENTRY_POINTS = "hermes_agent.plugins"
_MANIFESTS = ("plugin.yaml", "plugin.yml")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_BUNDLED = Path(__file__).with_name("bundled_plugins")


class Manifest(NamedTuple):
    """`plugin.yaml`."""

    name: str
    version: str = ""
    description: str = ""
    author: str = ""
    kind: str = "standalone"
    requires_env: tuple[str, ...] = ()
    provides_tools: tuple[str, ...] = ()
    provides_hooks: tuple[str, ...] = ()


class Found(NamedTuple):
    """A plug-in that is there, loaded or not."""

    key: str
    manifest: Manifest
    source: Source
    home: Path
    folder: Path | None = None
    entry_point: EntryPoint | None = None
    problem: str = ""
    """Why it cannot be loaded whatever the configuration says."""
    notes: tuple[str, ...] = ()

    @property
    def module_name(self) -> str:
        slug = re.sub(r"\W", "_", self.key.replace("/", "__"))
        return f"{PACKAGE}.{slug}"

    @property
    def names(self) -> frozenset[str]:
        """What config.yaml may call it."""
        if self.source == "project":
            return frozenset({self.key})
        return frozenset({self.key, self.key.rpartition("/")[2], self.manifest.name})


class Wishes(NamedTuple):
    """`plugins:` of config.yaml."""

    enabled: frozenset[str] = frozenset()
    disabled: frozenset[str] = frozenset()
    entries: Mapping[str, Mapping[str, Any]] = MappingProxyType({})

    @classmethod
    def of(cls, config: Config) -> Wishes:
        config.require("plugins")
        settings = config.plugins
        entries = {name: value for name, value in settings.entries.items() if isinstance(value, Mapping)}
        return cls(frozenset(settings.enabled), frozenset(settings.disabled), entries)

    def settings(self, found: Found) -> Mapping[str, Any]:
        shared = {} if found.source == "project" else self.entries.get(found.manifest.name)
        return self.entries.get(found.key) or shared or {}

    def judge(self, found: Found) -> tuple[State, str]:
        """What becomes of a plug-in, and why; `loaded` means that it is to be loaded now."""
        if found.names & self.disabled:
            return "off", "it is under plugins.disabled"
        ours = found.source == "bundled"
        if found.manifest.kind in ("exclusive", "model-provider"):
            return "recorded", f"of the kind {found.manifest.kind}: it is chosen by its own setting"
        if not found.names & self.enabled and not (ours and found.manifest.kind in ("backend", "platform")):
            return "off", f"it is not under plugins.enabled; to load it: hermes plugins enable {found.key}"
        if found.problem:
            return "failed", found.problem
        if ours and found.manifest.kind == "platform":
            return "later", "it is loaded when its platform is first used"
        return "loaded", ""

    def missing(self, found: Sequence[Found]) -> list[str]:
        """What is enabled and nowhere to be found."""
        known = frozenset[str]().union(*(plugin.names for plugin in found))
        return sorted(self.enabled - self.disabled - known)


def look(home: Path, *, packages: bool) -> list[Found]:
    """All plug-ins, in the order in which they are loaded. Reading the list of packages costs time: only on request."""
    found: dict[str, Found] = {}
    for plugin in _everywhere(home, packages=packages):
        found.pop(plugin.key, None)
        found[plugin.key] = plugin
    return list(found.values())


def truthy(variable: str) -> bool:
    return os.environ.get(variable, "").strip().lower() not in ("", "0", "false", "no", "off")


def _everywhere(home: Path, *, packages: bool) -> Iterator[Found]:
    bundled = os.environ.get("HERMES_BUNDLED_PLUGINS", "").strip()
    yield from _in_folder(Path(bundled) if bundled else _BUNDLED, "bundled", home)
    yield from _in_folder(home / "plugins", "user", home)
    if truthy("HERMES_ENABLE_PROJECT_PLUGINS"):
        yield from _in_folder(Path.cwd() / ".hermes" / "plugins", "project", home)
    if packages:
        yield from _in_packages(home)


def _in_folder(root: Path, source: Source, home: Path) -> Iterator[Found]:
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
    except OSError:  # there is none, or it is not ours to read: nothing to load either way
        return []
    return [entry for entry in entries if not entry.name.startswith((".", "__")) and entry.is_dir()]


def _manifest_file(folder: Path) -> Path | None:
    return next((file for name in _MANIFESTS if (file := folder / name).is_file()), None)


def _read(folder: Path, file: Path, source: Source, home: Path, *, category: str) -> Found:
    problem, notes, data = "", [], {}
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
    kind = str(data.get("kind") or "standalone")
    if kind not in KINDS:
        notes.append(f"its kind {kind[:40]!r} is not known and counts as standalone")
        kind = "standalone"
    name = str(data.get("name") or folder.name)
    if not problem and not _NAME.fullmatch(name):
        problem = f"{name[:60]!r} is not a name: letters, digits, dots, _ and -"
    if problem:
        name = folder.name
    manifest = Manifest(
        name=name,
        version=str(data.get("version") or ""),
        description=str(data.get("description") or ""),
        author=str(data.get("author") or ""),
        kind=kind,
        requires_env=_variables(data.get("requires_env")),
        provides_tools=_texts(data.get("provides_tools")),
        provides_hooks=_texts(data.get("provides_hooks")),
    )
    key = f"{category}/{folder.name}" if category else name
    if source == "project":
        key = f"{PROJECT}{key}"
    return Found(
        key=key, manifest=manifest, source=source, home=home, folder=folder, problem=problem, notes=tuple(notes)
    )


def _in_packages(home: Path) -> Iterator[Found]:
    from importlib.metadata import entry_points  # 20 ms, and most homes enable nothing

    for point in sorted(entry_points(group=ENTRY_POINTS), key=lambda point: point.name):
        about = point.dist.metadata if point.dist is not None else None
        manifest = Manifest(
            name=point.name,
            version=point.dist.version if point.dist is not None else "",
            description=(about["Summary"] or "") if about is not None and "Summary" in about else "",
        )
        yield Found(key=point.name, manifest=manifest, source="package", home=home, entry_point=point)


def _texts(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    return tuple(str(item) for item in value) if isinstance(value, list) else ()


def _variables(value: Any) -> tuple[str, ...]:
    """Names, or objects with a name."""
    rows = value if isinstance(value, list) else [value] if isinstance(value, str | dict) else []
    names = (row.get("name") if isinstance(row, dict) else row for row in rows)
    return tuple(str(name) for name in names if name)
