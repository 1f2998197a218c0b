"""The inventory of a home: whether Hermes uses each setting, variable, job, server, hook and plug-in in it.

A home of hermes-agent holds more than Hermes uses. Each entry is *used*, *not used (harmless)*, or *not used and unsafe
to ignore*: a person may rely on it without knowing. Such an entry is a restriction (an isolating backend, a blocking
hook, an approval, an allowlist) or unattended work (a job, a webhook). Hermes does not start until every unsafe entry
is named under `acknowledged:` in config.yaml (`hermes config acknowledge NAME`). A changed value asks again.

`inventory` makes the one table that `hermes import hermes --dry-run`, `hermes config check` and `hermes doctor` print.
Only names are in it, never values, which may be secrets; a backend and the schedule of a job are the exceptions.
"""

from __future__ import annotations

import hashlib
import re
import shlex
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from hermes_agent.models import provider_table
from hermes_cli import plugins
from hermes_config import accounts, schema, sections, yaml_file
from hermes_config.config import Config
from hermes_config.errors import ConfigError, HermesError
from hermes_config.schema import Environ
from hermes_state.ids import PLATFORMS

Use = Literal["unsafe", "harmless", "used"]
VERDICTS: Mapping[Use, str] = {
    "unsafe": "not used and unsafe to ignore", "harmless": "not used (harmless)", "used": "used",
}  # fmt: skip
_VARIABLE_STARTS = {"HASS": "homeassistant", "TWILIO": "sms", "QQ": "qqbot"}
_EXTRA = {"base_url", "base_file_url", "local_mode", "require_mention", "typing_indicator"}
_DECIDING_HOOKS = {
    "pre_tool_call": "it can block a tool call, and is not run",
    "pre_gateway_dispatch": "it can drop or change a message, and is not run",
    "pre_verify": "it can keep a turn going, and is not run",
    "pre_llm_call": "it adds instructions for the model, and is not run",
    "transform_tool_result": "it changes what the model reads, and is not run",
    "transform_terminal_output": "it changes what the model reads, and is not run",
    "transform_llm_output": "it changes what people read, and is not run",
}
"""Hooks whose result changes what hermes-agent does. Other hooks only observe."""
_RESTRICTS = re.compile(
    r"(?:^|[._])(?:allow(?:ed|list)?|whitelist|deny|denied|denylist|block(?:ed|list)?|blacklist|forbid|forbidden|approv"
    r"(?:al|als|e)|confirm|redact|restrict(?:ed)?|sandbox|read_?only|guard|protect(?:ed)?|privacy|security|safe|safety"
    r"|strict|ignored|excluded?)"
    r"(?=[._]|$)",
    re.IGNORECASE,
)
"""Words in an unknown key that say it restricts something."""
_OFF = (False, None, "", 0, "off", "no", "none", "false", "never", "disabled")
_MOST_KEYS = 5_000
_MARK = re.compile(r"#[0-9a-f]{8}$")
_DOTTED = "it is one name with a dot; write it below its section"
_UNKNOWN = "it is not a setting of Hermes"


class HomeEntry(NamedTuple):
    """One row of the table."""

    name: str
    """The name to acknowledge: a key, or `jobs/NAME`, `hooks/FOLDER`, `plugins/NAME`, `webhooks/NAME`."""
    use: Use
    about: str = ""
    """Why Hermes does not use the entry, or how Hermes differs; never a secret."""
    acknowledged: bool = False
    mark: str = ""
    """A short hash of the value, which tells a changed value from an acknowledged one; empty for what has no value."""

    @property
    def as_acknowledged(self) -> str:
        """What `acknowledged:` holds for it. A name without a mark, as people write it, is good for every value."""
        return f"{self.name}#{self.mark}" if self.mark else self.name

    @property
    def stops_start(self) -> bool:
        return self.use == "unsafe" and not self.acknowledged

    @property
    def verdict(self) -> str:
        return f"{VERDICTS[self.use]}{', acknowledged' if self.use == 'unsafe' and self.acknowledged else ''}"


class NotAcknowledged(HermesError):
    """This home has entries that Hermes does not use and that are unsafe to ignore."""


def inventory(
    home: Path, tree: Mapping[Any, Any], variables: Mapping[str, str], environ: Environ | None = None,
    *, jobs_taken: bool = False,
) -> list[HomeEntry]:  # fmt: skip
    """Every entry of a home; the entries that prevent the start come first. `variables`: the entries of `.env`.

    `environ` returns a variable of the environment or `.env`; without one, `.env` alone counts. `jobs_taken`: as after
    `hermes cron import`.
    """
    accepted = _names(tree.get("acknowledged"))
    order = list(VERDICTS)
    found: dict[str, HomeEntry] = {}
    for entry in (
        *_settings(tree, environ or variables.get), *_gateway_json(home, environ or variables.get),
        *_variables(tree, variables), *_jobs(home, jobs_taken), *_webhooks(home), *_event_hooks(home, tree),
        *_plugins(home, tree), *_files(home),
    ):  # fmt: skip
        known = found.get(entry.name)
        if known is None or order.index(entry.use) < order.index(known.use):  # a.b and "a.b" have one name
            found[entry.name] = entry
    entries = [_with_mark(one, accepted, tree, variables) if one.use == "unsafe" else one for one in found.values()]
    return sorted(entries, key=lambda one: (one.acknowledged, order.index(one.use), one.name))


def _with_mark(
    entry: HomeEntry, accepted: Collection[str], tree: Mapping[Any, Any], variables: Mapping[str, str]
) -> HomeEntry:
    """The entry with the hash of its value, and whether it is acknowledged with this value."""
    variable = entry.name.removeprefix(".env ")
    value = variables.get(variable) if variable != entry.name else _value_at(tree, entry.name.split("."))
    entry = entry._replace(mark=entry.mark or ("" if value is None else _hash(value)))
    known = entry.name in accepted or entry.as_acknowledged in accepted
    if known or entry.name not in map(name_of, accepted):
        return entry._replace(acknowledged=known)
    return entry._replace(about=f"{entry.about}; it was acknowledged with another value")


def _hash(value: Any) -> str:
    parts: list[str] = []
    waiting = [value]
    while waiting and len(parts) < _MOST_KEYS:  # YAML aliases can expand a short text without end
        match waiting.pop():
            case Mapping() as section:
                parts.append(f"section {len(section)}")
                waiting += [one for pair in section.items() for one in pair]
            case (list() | tuple()) as items:
                parts.append(f"list {len(items)}")
                waiting += items
            case plain:
                parts.append(repr(plain))
    return hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()[:8]


def name_of(written: str) -> str:
    """The name of an entry in `acknowledged:`."""
    return _MARK.sub("", written)


def of(config: Config) -> list[HomeEntry]:
    """Every entry of a configuration's home."""
    return inventory(config.home, config.tree, config.dotenv, config.environ)


_accepted: Config | None = None
"""The last accepted configuration, because most agents of a process share one."""


def require_acknowledged(config: Config) -> None:
    """Raise `NotAcknowledged` if an unsafe entry of the home is not acknowledged."""
    global _accepted  # noqa: PLW0603 - one slot; see above
    if config is _accepted:
        return
    config.require("acknowledged")
    open_entries = [one for one in of(config) if one.stops_start]
    if not open_entries:
        _accepted = config
        return
    first, more = open_entries[0], len(open_entries) - 1
    others = f"; and {more} more that hermes config check lists" if more else ""
    raise NotAcknowledged(
        f"{first.name} is not used and unsafe to ignore: {first.about}{others}",
        where=str(config.home),
        hint=f"{command(open_entries)} accepts that.",
    )


def command(entries: Sequence[HomeEntry]) -> str:
    """The command that acknowledges these entries."""
    return f"hermes config acknowledge {shlex.join(one.name for one in entries)}"


# -- settings and variables ----------------------------------------------------------------------------------------


def _settings(tree: Mapping[str, Any], environ: Environ) -> Iterator[HomeEntry]:
    for number, path in enumerate(schema.paths(tree)):
        if number == _MOST_KEYS:  # YAML aliases can expand a short text without end
            yield HomeEntry("config.yaml", "unsafe", f"it has more than {_MOST_KEYS:,} keys, and only these are listed")
            return
        if path[0] != "acknowledged":
            yield _setting(tree, path, environ)


def _gateway_json(home: Path, environ: Environ) -> Iterator[HomeEntry]:
    """The settings of older homes in `gateway.json`, which the gateway reads below config.yaml."""
    if not (home / "gateway.json").is_file():
        return
    from hermes_agent import jobs_file  # only such a home needs it

    try:
        said = jobs_file.document(home / "gateway.json")
    except (OSError, ValueError):  # the gateway does not start with it, and says so
        return
    for one in _settings(said, environ) if isinstance(said, Mapping) else ():
        yield one._replace(name=f"gateway.json {one.name}", mark=_hash(_value_at(said, one.name.split("."))))


def _setting(tree: Mapping[str, Any], path: tuple[str, ...], environ: Environ) -> HomeEntry:
    meant = _canonical_key(path)
    if meant[0] == "platforms" and meant[2:]:
        platform = accounts.platform_of(meant[1].strip().lower())
        if platform in other_platforms() - {*plugins.get_platforms()}:
            return _other_platform(meant)
        if platform not in {*own_platforms(), *plugins.get_platforms()}:
            why = f"there is no platform {platform}; a plug-in that brings it must be enabled"
            return HomeEntry(".".join(path), "harmless", why)  # nobody gets in there, whatever the key restricts
    if meant[0] == "hooks" and meant[1:] and meant[1] != "enabled":
        return _shell_hook(_value_at(tree, path[:2]), meant[1])
    if meant == ("terminal", "backend"):
        return _backend(tree, path)
    if meant[:2] == ("platforms", "api_server") and meant[-1] in {*sections.ApiServerConfig.settings} - {"enabled"}:
        return _unknown(tree, path, f"api_server.{meant[-1]} sets it")
    row = sections.table().find(meant)
    fields = _platform_fields(meant[1]) if meant[0] == "platforms" and meant[1:] else {}
    key = ".".join(meant[2:4] if meant[2:3] == ("extra",) else meant[2:3])
    if fields and meant[2:3] == ("extra",) and meant[3:] and key not in fields and meant[3] not in _EXTRA:
        return _unknown(tree, path, f"it is not a setting of {meant[1]}, which has {', '.join(fields)}")
    variable = fields.get(key) or ("" if row is None else row.variable)
    if variable and "<" not in variable and (environ(variable) or "").strip():
        return HomeEntry(".".join(path), "harmless", f"the variable {variable} is set, and counts above it")
    if row is None:
        return _unknown(tree, path, _DOTTED if "." in path[0] else _UNKNOWN)
    if row.unused is None:
        return HomeEntry(".".join(path), "used")
    name = path[: len(path) - (len(meant) - row.key.count(".") - 1)]  # one entry for all keys below this one
    unsafe = row.unused.unsafe and _is_on(_value_at(tree, name))
    return HomeEntry(".".join(name), "unsafe" if unsafe else "harmless", row.unused.reason)


def _canonical_key(path: tuple[str, ...]) -> tuple[str, ...]:
    """The key as in the table of settings. A platform's keys may appear in several sections."""
    if path[0] == "gateway" and len(path) > 1:
        path = path[1:]
    if accounts.platform_of(path[0]) in {*other_platforms(), *plugins.built_in("platforms")} and len(path) > 1:
        path = ("platforms", *path)
        if path[2] in _EXTRA:
            path = (*path[:2], "extra", *path[2:])
    if (
        path[0] == "platforms"
        and path[2:3] == ("extra",)
        and accounts.platform_of(path[1]) in own_platforms()
        and path[3:4]
        and path[3] not in _EXTRA
    ):
        path = (*path[:2], *path[3:])
    return path


def _platform_fields(name: str) -> dict[str, str]:
    """The fields that a platform declares, each with its variable or an empty text; {} if it declares none."""
    row = plugins.get_platforms().get(accounts.platform_of(name))
    declared = () if row is None else row.fields.get("fields", ())
    try:
        plain = [one if isinstance(one, Mapping) else {"key": one.key, "env": one.env} for one in declared]
        return {str(one["key"]): accounts.variable(str(one.get("env") or ""), name) for one in plain}
    except (AttributeError, KeyError, TypeError):  # not described well, which the doctor says
        return {}


def _unknown(tree: Mapping[str, Any], path: tuple[str, ...], why: str = _UNKNOWN) -> HomeEntry:
    name = ".".join(path)
    if _RESTRICTS.search(name) and _is_on(_value_at(tree, path)):
        return HomeEntry(name, "unsafe", f"{why}, and its name says that it restricts something")
    return HomeEntry(name, "harmless", why)


def _other_platform(path: tuple[str, ...]) -> HomeEntry:
    if accounts.platform_of(path[1]) == "webhook" and path[2:4] == ("extra", "routes") and len(path) > 4:
        return _webhook(path[4], {})
    return HomeEntry(f"platforms.{path[1]}", "harmless", "there is no adapter; people there get no answer")


def _shell_hook(value: Any, event: str) -> HomeEntry:
    name = f"hooks.{event}"
    if event in _DECIDING_HOOKS and _is_on(value):
        return HomeEntry(name, "unsafe", _DECIDING_HOOKS[event])
    return HomeEntry(name, "harmless", "a shell hook that looks on, and is not run; a plug-in can")


def _backend(tree: Mapping[str, Any], path: tuple[str, ...]) -> HomeEntry:
    backend = str(_value_at(tree, path)).strip().lower()[:40]
    if backend in ("", "local"):
        return HomeEntry("terminal.backend", "used", "it means executor: confined")
    if tree.get("executor") is not None:
        return HomeEntry("terminal.backend", "harmless", "executor says where commands run")
    about = f"{backend} is not supported; commands would run confined on this machine"
    return HomeEntry("terminal.backend", "unsafe", about)


def _variables(tree: Mapping[str, Any], variables: Mapping[str, str]) -> Iterator[HomeEntry]:
    rows = sections.table().rows.values()
    passed = _names(_value_at(tree, ("terminal", "env_passthrough")))
    known = {*sections.VARIABLES, *(row.variable for row in rows), *_key_variables(tree), *passed}
    for provider in provider_table.table().values():
        known |= {*provider.keys, provider.base_url_variable}
    ends = {row.variable.removeprefix("<PLATFORM>") for row in rows if row.variable.startswith("<PLATFORM>")}
    ends |= {"_HOME_CHANNEL_NAME", "_HOME_CHANNEL_THREAD_ID", "_REQUIRE_MENTION"}
    known |= set(_account_variables(tree, ends))
    for name, value in variables.items():
        platform = _platform_of(name)
        fields = _platform_fields(platform).values()
        if name in known or (platform in own_platforms() and name[len(platform) :] in ends):
            yield HomeEntry(f".env {name}", "used")
        elif platform in other_platforms() - {*plugins.get_platforms()}:
            yield HomeEntry(f".env {name}", "harmless", f"there is no adapter for {platform}")
        elif "__" in name and name.partition("__")[0] in {*(f"{platform.upper()}{end}" for end in ends), *fields}:
            yield HomeEntry(f".env {name}", "harmless", f"config.yaml has no such account of {platform}")
        elif (why := sections.UNUSED_VARIABLES.get(name)) is not None:
            yield HomeEntry(f".env {name}", "harmless", why)
        elif (
            (platform in own_platforms() or name.startswith("HERMES_"))
            and _RESTRICTS.search(name)
            and _is_on(value.strip().lower())
        ):
            about = "it is not a variable of Hermes, and its name says that it restricts something"
            yield HomeEntry(f".env {name}", "unsafe", about)
        elif platform in _registered():
            yield HomeEntry(f".env {name}", "used")
        else:
            yield HomeEntry(f".env {name}", "harmless", "Hermes itself does not read it; plug-ins may")


def _account_variables(tree: Mapping[str, Any], ends: Collection[str]) -> Iterator[str]:
    """The variables of the accounts that the configuration names, such as `SLACK_BOT_TOKEN__WORK`."""
    blocks = (tree, tree.get("platforms"), _value_at(tree, ("gateway", "platforms")))
    for name in {str(key) for block in blocks if isinstance(block, Mapping) for key in block}:
        if accounts.is_account(name) and not accounts.fault(name):
            start = accounts.platform_of(name).upper()
            yield from (accounts.variable(f"{start}{end}", name) for end in ends)
            yield from _platform_fields(name).values()


def _platform_of(variable: str) -> str:
    """The platform that a variable such as `DISCORD_BOT_TOKEN` belongs to; empty for none."""
    for start, platform in _VARIABLE_STARTS.items():
        if variable.startswith(f"{start}_"):
            return platform
    names = sorted((*own_platforms(), *other_platforms(), *_registered()), key=len, reverse=True)
    return next((name for name in names if variable.startswith(f"{name.upper()}_")), "")


def _key_variables(tree: Mapping[str, Any]) -> Iterator[str]:
    """The variables named by entries under `models`."""
    for section in ("model", "custom_providers", "fallback_providers", "fallback_model"):
        found = tree.get(section)
        subtrees = found.values() if isinstance(found, Mapping) else ()
        entries = found if isinstance(found, list | tuple) else (found, *subtrees)
        yield from (str(one["key_env"]) for one in entries if isinstance(one, Mapping) and one.get("key_env"))


def _registered() -> frozenset[str]:
    """Platforms registered by plug-ins of this process."""
    return frozenset(plugins.get_plugin_manager().registries.platforms)


def own_platforms() -> tuple[str, ...]:
    """Built-in platforms of Hermes; plug-ins may add more."""
    return ("api_server", "local", *plugins.built_in("platforms"))


def other_platforms() -> frozenset[str]:
    """Further platforms that hermes-agent has."""
    return frozenset(PLATFORMS).difference(own_platforms())


# -- files ---------------------------------------------------------------------------------------------------------


def _jobs(home: Path, taken: bool) -> Iterator[HomeEntry]:
    file = home / "cron" / "jobs.json"
    if not file.exists():
        return
    from hermes_agent import jobs_file, schedules  # only such a home needs them

    try:
        jobs = jobs_file.rows(file)
    except (OSError, ValueError):
        yield HomeEntry("cron/jobs.json", "unsafe", "it cannot be read: which jobs do not run is not known")
        return
    names, now, zone = [jobs_file.name_of(row) for row in jobs], time.time(), schedules.zone_name()
    for row, name in zip(jobs, names, strict=True):
        if names.count(name) > 1:
            name = f"{name} {row.get('id')}"
        wanted = jobs_file.read(row, now=now, zone=zone)
        if jobs_file.is_off(row):
            yield HomeEntry(f"jobs/{name}", "harmless", "it does not run there, either")
        elif row.get("taken") or (taken and not isinstance(wanted, str)):
            yield HomeEntry(f"jobs/{name}", "used")
        elif isinstance(wanted, str):
            yield HomeEntry(f"jobs/{name}", "unsafe", f"it does not run: {wanted}")
        else:
            yield HomeEntry(
                f"jobs/{name}", "unsafe", "it runs only when you take it over: --take jobs, or hermes cron import"
            )


def _webhooks(home: Path) -> Iterator[HomeEntry]:
    file = home / "webhook_subscriptions.json"
    if not file.exists():
        return
    from hermes_agent import jobs_file  # only such a home needs it

    try:
        said = jobs_file.document(file)
    except (OSError, ValueError):
        yield HomeEntry(file.name, "unsafe", "it cannot be read: which events are lost is not known")
        return
    for name, row in said.items() if isinstance(said, Mapping) else ():
        if isinstance(row, Mapping):
            yield _webhook(str(name)[:80], row)


def _webhook(name: str, row: Mapping[str, Any]) -> HomeEntry:
    if row.get("enabled") is False:
        return HomeEntry(f"webhooks/{name}", "harmless", "it is switched off there, too")
    return HomeEntry(f"webhooks/{name}", "unsafe", "there is no webhook server; its events are lost")


def _event_hooks(home: Path, tree: Mapping[str, Any]) -> Iterator[HomeEntry]:
    said = _value_at(tree, ("hooks", "enabled"))
    for folder in _folders(home / "hooks"):
        name, events = f"hooks/{folder.name}", _events(folder)
        if folder.name in _names(said) and not events:
            yield HomeEntry(name, "harmless", "its HOOK.yaml has no list of events, so it is not loaded")
        elif folder.name in _names(said):
            silent = [event for event in events if event == "agent:step"]
            yield HomeEntry(name, "used", f"never called for {', '.join(silent)}" if silent else "")
        elif said is None and any(event.startswith("command:") for event in events):
            yield HomeEntry(name, "unsafe", "it can deny commands, and hooks.enabled does not name it")
        else:
            yield HomeEntry(name, "harmless", "hooks.enabled does not name it")


def _events(folder: Path) -> list[str]:
    try:
        said = yaml_file.parse((folder / "HOOK.yaml").read_text(encoding="utf-8"), file="HOOK.yaml").data
    except (OSError, UnicodeDecodeError, ConfigError):  # hermes-agent cannot load it either
        return []
    events = said.get("events")
    return [str(event) for event in events] if isinstance(events, list) else []


def _plugins(home: Path, tree: Mapping[str, Any]) -> Iterator[HomeEntry]:
    on, off = (set(_names(_value_at(tree, ("plugins", key)))) for key in ("enabled", "disabled"))
    found = plugins.discovery.look(home, packages=False)
    if missing := on - off - frozenset[str]().union(*(one.names for one in found)):
        found = plugins.discovery.look(home, packages=True)
        missing -= frozenset[str]().union(*(one.names for one in found))
    for one in found:
        if one.source == "package" and not one.names & on:
            continue
        if one.names & off or not one.names & on:
            yield HomeEntry(f"plugins/{one.key}", "harmless", "it is not enabled")
        elif one.problem:
            yield HomeEntry(f"plugins/{one.key}", "unsafe", f"it is enabled and cannot be loaded: {one.problem}")
        else:
            yield HomeEntry(f"plugins/{one.key}", "used")
    for name in sorted(missing):
        yield HomeEntry(f"plugins/{name}", "unsafe", "it is enabled and not here; what it blocks or does is not done")


def _files(home: Path) -> Iterator[HomeEntry]:
    if (home / "auth.json").is_file():
        yield HomeEntry("auth.json", "harmless", "logins are not used; hermes setup asks for a key")
    for folder in _folders(home / "profiles"):
        yield HomeEntry(f"profiles/{folder.name}", "harmless", "a home of its own: import it by its path")


def _folders(folder: Path) -> list[Path]:
    try:
        return sorted(one for one in folder.iterdir() if one.is_dir() and not one.name.startswith((".", "__")))
    except OSError:
        return []


# -- values --------------------------------------------------------------------------------------------------------


def _value_at(tree: Any, path: Sequence[str]) -> Any:
    for name in path:  # keys may be numbers
        tree = next((one for key, one in tree.items() if str(key) == name), None) if isinstance(tree, Mapping) else None
    return tree


def _is_on(value: Any) -> bool:
    """Whether a setting is anything but off; in a section, `enabled` decides."""
    if isinstance(value, Mapping):
        return _is_on(value["enabled"]) if "enabled" in value else bool(value)
    if isinstance(value, list | tuple):
        return bool(value)
    return (value.strip().lower() if isinstance(value, str) else value) not in _OFF


def _names(value: Any) -> tuple[str, ...]:
    parts = value.split(",") if isinstance(value, str) else value if isinstance(value, list | tuple) else ()
    return tuple(str(part).strip() for part in parts)
