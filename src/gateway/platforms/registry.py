"""The registry of chat platforms, which imports none of their libraries.

A platform is registered by `ctx.register_platform(name, **fields)`, ours (`gateway.platforms.register`) as those of
plug-ins; the fields are those of `Descriptor`. Configuration, set-up, doctor, status, the prompt and the docs read
descriptors; the adapter's module, and with it the platform's library, is imported by `make` when it is switched on.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from dataclasses import fields as fields_of
from typing import TYPE_CHECKING, Any, get_args

from hermes_cli import plugins
from hermes_config import accounts, redaction, version
from hermes_config.errors import HermesError

if TYPE_CHECKING:
    from gateway.config import Platform, PlatformConfig
    from gateway.platforms.base import BasePlatformAdapter, Means, ToolLines


PROBE_SECONDS = 15.0


class PlatformUnusable(HermesError):
    """The platform cannot be used."""


class ProbeFailed(PlatformUnusable):
    """A platform's settings do not work. `fix` is a command that may help."""

    def __init__(self, what: str, *, fix: str = "", hint: str = "") -> None:
        super().__init__(what, hint=hint)
        self.fix = fix


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A setting of a platform: in `config.yaml` under `platforms.<name>`, or in an environment variable."""

    key: str
    """Below `platforms.<name>`: `token`, `api_key`, or one of the adapter's own such as `extra.base_url`."""
    help: str
    env: str = ""
    required: bool = False
    secret: bool = False
    """Kept in `.env`, never in config.yaml, so it needs `env`."""

    def __post_init__(self) -> None:
        if self.secret and not self.env:
            raise TypeError(f"the field {self.key} is a secret and names no variable (env)")

    def where(self, platform: str) -> str:
        """Where it can be set, for people."""
        key = f"platforms.{platform}.{self.key}"
        return f"{key} (or the variable {self.env})" if self.env else key


@dataclass(frozen=True, slots=True, kw_only=True)
class Descriptor:
    """A platform's facts before its library is imported."""

    name: str
    title: str
    adapter: str | type
    """`module:Class` or the class itself, a subclass of `BasePlatformAdapter`. In a plug-in `:Class` is in its own
    module, `.adapter:Class` in a file of its folder."""
    fields: tuple[Field, ...] = ()
    """The settings. The platform connects when it is enabled and every required field is set."""
    packages: tuple[str, ...] = ()
    """Modules that must be importable."""
    extra: str = ""
    """Our package extra that installs them: `hermes_config.version.adding` gives the command."""
    means: Means = "none"
    """How the platform prevents second copies of a message after a send without an answer."""
    tool_lines: ToolLines = "new"
    """Which tool calls a streaming answer shows: none, each new kind, or each call."""
    prompt_hint: str = ""
    """A line for the model about the platform and its formatting."""
    webhooks: bool = False
    """The adapter uses `self.context.http`, so the HTTP server runs whenever the platform is enabled."""
    setup_help: str = ""
    """Where a person gets the required settings, in a line or two."""
    setup_invitation: str = ""
    """One line for `hermes setup`, which offers the platform when it has one."""
    setup: str | Callable[..., None] = ""
    """Steps of its own for `hermes gateway setup`: `setup(args, about, pasted)`, or where it is, as `module:function`.
    Without one, set-up asks for the required fields and keeps them."""
    probe: str | Callable[..., Any] = ""
    """For `hermes doctor --online` and set-up: `async probe(config, running)` returns what works in a line, or raises
    `ProbeFailed`, which may name a command; or where it is. `running`: whether the gateway runs now."""
    module: str = ""
    """The plug-in's module, which relative names are in; set by the registry."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """The variables that hold secrets."""
        return tuple(field.env for field in self.fields if field.secret and field.env)

    def of_account(self, name: str) -> Descriptor:
        """The same platform for the account `name` (`slack@work`), whose fields have variables of their own."""
        fields = tuple(replace(one, env=accounts.variable(one.env, name)) for one in self.fields)
        return replace(self, name=name, title=f"{self.title} ({accounts.account_of(name)})", fields=fields)

    def missing_packages(self) -> tuple[str, ...]:
        return tuple(name for name in self.packages if importlib.util.find_spec(name) is None)

    def missing_fields(self, config: PlatformConfig) -> tuple[Field, ...]:
        """Required fields that are not set."""
        return tuple(field for field in self.fields if field.required and not setting(config, field.key))

    def load(self, what: Any) -> Any:
        """What `module:name` names; anything else is returned as it is."""
        if not isinstance(what, str) or not what:
            return what
        module, _, name = what.partition(":")
        if not module or module.startswith("."):
            module = importlib.util.resolve_name(module or ".", self.module).rstrip(".")
        return getattr(importlib.import_module(module), name)


def setting(config: PlatformConfig, key: str) -> Any:
    """The value of a field; None when it is not set."""
    section, _, name = key.rpartition(".")
    return config.extra.get(name) if section == "extra" else getattr(config, name, None)


def built_in() -> tuple[str, ...]:
    """The names of our own platforms."""
    return tuple(plugins.built_in("platforms"))


def names() -> tuple[str, ...]:
    """The names of every platform: ours, then those that plug-ins of this process have registered."""
    return tuple(plugins.get_platforms())


def example() -> str:
    """A platform to name where a person is told how to connect one."""
    return built_in()[0]


def known() -> dict[str, Descriptor]:
    """Every platform that is described well: ours, then those that plug-ins of this process have registered."""
    return {name: about for name in names() if (about := find(name)) is not None}


def descriptor(name: str) -> Descriptor:
    """The descriptor of one platform, or of an account such as `slack@work`. Raises `PlatformUnusable`."""
    rows, platform = plugins.get_platforms(), accounts.platform_of(name)
    if platform not in rows:
        raise no_such(platform)
    if fault := accounts.fault(name):
        raise PlatformUnusable(fault, hint=f"For example {platform}@work.")
    about = _described(rows[platform])
    return about.of_account(name) if accounts.is_account(name) else about


def no_such(name: str) -> PlatformUnusable:
    """The error about a name that no platform has."""
    known = ", ".join(plugins.get_platforms())
    return PlatformUnusable(f"there is no platform {accounts.platform_of(name)[:60]!r}", hint=f"Known: {known}.")


def find(name: str) -> Descriptor | None:
    """The descriptor of one platform; None when there is none or it is invalid."""
    try:
        return descriptor(name)
    except PlatformUnusable:
        return None


def installed(name: str) -> Descriptor:
    """The descriptor of a platform whose packages are there. Raises `PlatformUnusable`, which says what is missing."""
    about = descriptor(name)
    if missing := about.missing_packages():
        hint = version.adding(*missing, extra=about.extra)
        raise PlatformUnusable(f"{about.title} needs {', '.join(missing)}", hint=hint)
    return about


def usable(name: str, config: PlatformConfig) -> Descriptor:
    """The descriptor of a platform that has all it needs. Raises `PlatformUnusable`, which says what is missing."""
    about = installed(name)
    if config.problem:
        raise PlatformUnusable(config.problem, hint=f"hermes config set platforms.{name}.enabled false ends this.")
    if unset := about.missing_fields(config):
        where = ", ".join(field.where(name) for field in unset)
        verb = "is" if len(unset) == 1 else "are"
        raise PlatformUnusable(f"{where} {verb} not set", hint=f"hermes gateway setup {name} asks for it.")
    return about


def make(platform: Platform, config: PlatformConfig) -> BasePlatformAdapter:
    """The adapter of a platform, not yet connected. Raises `PlatformUnusable` when it cannot be had."""
    about = usable(platform.value, config)
    try:
        made = about.load(about.adapter)(config, platform)
    except HermesError:
        raise
    except Exception as error:  # boundary: an adapter may be anybody's code
        raise PlatformUnusable(
            f"the adapter of {about.title} cannot be made: {plugins.execution.where(error)}"
        ) from error
    return _as_adapter(made, about)


def probe(about: Descriptor, config: PlatformConfig, *, running: bool) -> str:
    """What the platform's probe says. Raises an error of ours, whatever the probe raises and however long it takes."""
    # On a thread, because a probe that blocks cannot be cancelled.
    asked = plugins.execution.start(
        plugins.get_plugin_manager().workers, lambda: asyncio.run(about.load(about.probe)(config, running))
    )
    try:
        return str(asked.result(PROBE_SECONDS))
    except HermesError:
        raise
    except (Exception, SystemExit) as error:  # boundary: a probe may be anybody's code
        late = f"did not end within {PROBE_SECONDS:g} s"
        said = late if not asked.done() else f"failed: {redaction.redacted(plugins.execution.said(error))}"
        raise ProbeFailed(f"the probe of {about.title} {said}") from error


def _as_adapter(made: object, about: Descriptor) -> BasePlatformAdapter:
    from gateway.platforms.base import BasePlatformAdapter

    if not isinstance(made, BasePlatformAdapter):
        raise PlatformUnusable(f"{about.adapter} is not a platform adapter", where=about.name)
    made.means, made.tool_lines = about.means, about.tool_lines
    return made


def _described(row: plugins.PluginPlatform) -> Descriptor:
    """Registered fields as a descriptor; `fields` may be plain mappings there."""
    allowed = {field.name for field in fields_of(Descriptor)} - {"name", "module"}
    if unknown := sorted(set(row.fields) - allowed):
        raise PlatformUnusable(f"the platform {row.name} of {row.plugin} names unknown fields: {', '.join(unknown)}")
    given: dict[str, Any] = {"title": row.name, **row.fields}
    try:
        given["fields"] = tuple(Field(**one) if isinstance(one, Mapping) else one for one in given.get("fields", ()))
        made = Descriptor(name=row.name, module=row.module, **given)
        _check(made)
        return made
    except TypeError as error:
        raise PlatformUnusable(f"the platform {row.name} of {row.plugin} is invalid: {error}") from error


def _check(made: Descriptor) -> None:
    """Raise TypeError for a value that means nothing."""
    from gateway.platforms.base import Means, ToolLines

    for name, words in (("means", get_args(Means)), ("tool_lines", get_args(ToolLines))):
        if getattr(made, name) not in words:
            raise TypeError(f"{name} is {str(getattr(made, name))[:40]!r}, not one of {', '.join(words)}")
    for one in made.fields:
        if not isinstance(one, Field):
            raise TypeError(f"a field is {type(one).__name__}, not a mapping")
