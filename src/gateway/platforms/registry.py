"""Which chat platforms there are, told without importing any of their libraries.

A platform is a folder whose `__init__` holds a `DESCRIPTOR` and nothing else: what it is called, what has to be
set, which packages it needs, and where its adapter is. Set-up, status and docs read descriptors; the adapter's
module, and with it the platform's library, is imported by `make` when the platform is switched on.

Plug-ins bring platforms through `ctx.register_platform(name, **fields)`, where the fields are those of `Descriptor`.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import fields as fields_of
from typing import TYPE_CHECKING, Any

from hermes_config import version
from hermes_config.errors import HermesError

if TYPE_CHECKING:
    from gateway.config import Platform, PlatformConfig
    from gateway.platforms.base import BasePlatformAdapter, Means

_BUILT_IN: Mapping[str, str] = {"telegram": "gateway.platforms.telegram"}


class PlatformUnusable(HermesError):
    """The platform cannot be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """Something that can be set for a platform: in `config.yaml` under `platforms.<name>`, or by a variable."""

    key: str
    """Below `platforms.<name>`, dotted: `token`, `extra.base_url`."""
    help: str
    env: str = ""
    required: bool = False
    secret: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Descriptor:
    """All that is known of a platform before its library is imported."""

    name: str
    title: str
    adapter: str
    """`module:Class`, a subclass of `BasePlatformAdapter`."""
    fields: tuple[Field, ...] = ()
    packages: tuple[str, ...] = ()
    """Modules that must be importable."""
    extra: str = ""
    """The extra of ours that brings them: `hermes_config.version.adding` gives the command."""
    means: Means = "none"
    """What the platform offers against second copies of a message whose sending nobody answered."""
    setup_help: str = ""
    """Where a person gets what has to be set, in a line or two."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """The variables that hold secrets."""
        return tuple(field.env for field in self.fields if field.secret and field.env)

    def missing_packages(self) -> tuple[str, ...]:
        return tuple(name for name in self.packages if importlib.util.find_spec(name) is None)


def built_in() -> tuple[str, ...]:
    """The names of our own platforms."""
    return tuple(_BUILT_IN)


def known() -> dict[str, Descriptor]:
    """Every platform: ours, then those that plug-ins of this process have registered."""
    from hermes_cli import plugins

    found = {name: _built_in(name) for name in _BUILT_IN}
    for name, row in plugins.get_plugin_manager().registries.platforms.items():
        found.setdefault(name, _from_plugin(row))
    return found


def descriptor(name: str) -> Descriptor:
    """The descriptor of one platform. Raises `PlatformUnusable`."""
    if name in _BUILT_IN:
        return _built_in(name)
    from hermes_cli import plugins

    row = plugins.get_plugin_manager().registries.platforms.get(name)
    if row is None:
        raise PlatformUnusable(f"there is no platform {name[:60]!r}", hint=f"There are: {', '.join(known())}.")
    return _from_plugin(row)


def make(platform: Platform, config: PlatformConfig) -> BasePlatformAdapter:
    """The adapter of a platform, not yet connected. Raises `PlatformUnusable` when it cannot be had."""
    about = descriptor(platform.value)
    if missing := about.missing_packages():
        hint = version.adding(*missing, extra=about.extra)
        raise PlatformUnusable(f"{about.title} needs {', '.join(missing)}", hint=hint)
    module, _, name = about.adapter.partition(":")
    made = getattr(importlib.import_module(module), name)(config, platform)
    return _as_adapter(made, about)


def _as_adapter(made: object, about: Descriptor) -> BasePlatformAdapter:
    from gateway.platforms.base import BasePlatformAdapter

    if not isinstance(made, BasePlatformAdapter):
        raise PlatformUnusable(f"{about.adapter} is no platform adapter", where=about.name)
    made.means = about.means
    return made


def _built_in(name: str) -> Descriptor:
    found: Descriptor = importlib.import_module(_BUILT_IN[name]).DESCRIPTOR
    return found


def _from_plugin(row: Any) -> Descriptor:
    """A plug-in's fields as a descriptor; `fields` may be plain mappings there."""
    allowed = {field.name for field in fields_of(Descriptor)} - {"name"}
    if unknown := sorted(set(row.fields) - allowed):
        raise PlatformUnusable(f"the platform {row.name} of {row.plugin} names unknown fields: {', '.join(unknown)}")
    given = dict(row.fields)
    given.setdefault("title", row.name)
    try:
        given["fields"] = tuple(
            field if isinstance(field, Field) else Field(**field) for field in given.get("fields", ())
        )
        return Descriptor(name=row.name, **given)
    except TypeError as error:
        raise PlatformUnusable(f"the platform {row.name} of {row.plugin} is not described well: {error}") from error
