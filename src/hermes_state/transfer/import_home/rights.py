"""Everything in a home that gives rights or runs: the list that its owner confirms before an import.

A home of hermes-agent is a folder of files, and a few lines in them decide who is the owner, whether anybody is asked,
and whose code runs. So nothing of that is imported unread: `offers` lists it by kind, and only the taken kinds are
imported. `config_text` and `env_text` return the two files without the rest.

A kind is taken as a whole. `settings` are all other keys of config.yaml and `.env`; `files` all other files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_config import dotenv, yaml_file
from hermes_config.errors import ConfigError

if TYPE_CHECKING:
    from hermes_state.transfer.import_home.home_files import HomeFile
    from hermes_state.transfer.import_home.scan import HomeScan

KINDS: Mapping[str, str] = {
    "owners": "who can do everything, and who answers questions",
    "admins": "who can do nearly everything",
    "allow": "who can write: allow lists, pairings, API keys",
    "approvals": "what runs without a question, and where",
    "routes": "which chat continues in which conversation",
    "hooks": "code that runs at events",
    "plugins": "code that runs inside Hermes",
    "servers": "MCP servers: programs that Hermes starts or calls",
    "jobs": "cron jobs: prompts that run by themselves",
    "settings": "all other settings, and secrets such as API keys and bot tokens",
    "files": "all other files",
}
"""Kind → what it decides, in the order of display."""

_SECTIONS = {
    "owners": "owners", "approvers": "owners", "admins": "admins", "approvals": "approvals",
    "command_allowlist": "approvals", "executor": "approvals", "sandbox": "approvals", "hooks": "hooks",
    "plugins": "plugins",
    "mcp_servers": "servers", "mcp": "servers", "cron": "jobs",
}  # fmt: skip
"""Keys at the top of config.yaml, or below `gateway:`."""
_ALLOW = frozenset(
    {
        "allowed_users", "allow_all_users", "group_allowed_users", "group_allowed_chats", "allow_bots",
        "unauthorized_dm_behavior", "allow_from", "group_allow_from",
    }
)  # fmt: skip
"""Keys that let people in, at any level."""
_ALLOW_VARIABLE = re.compile(r"_(ALLOWED_USERS|ALLOW_ALL_USERS|ALLOWED_CHATS|ALLOW_BOTS)$|^API_SERVER_(?:OWNER_)?KEY$")
_FILES = {
    "config.yaml": "settings", ".env": "settings", "gateway.json": "allow", "pairing": "allow", "platforms": "allow",
    "hooks": "hooks", "plugins": "plugins", "cron": "jobs",
}  # fmt: skip
_LARGEST = 4 << 20
_SHOWN = 8
Path_ = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class RightsOffer:
    """One line of the list."""

    kind: str
    entries: tuple[str, ...]
    """The content of this kind, for a person; never a secret."""


@dataclass(frozen=True, slots=True)
class HomeConfig:
    """The readable parts of the home's config.yaml and .env, and their unusable parts."""

    text: str = ""
    data: Mapping[Any, Any] | None = None
    env: str = ""
    variables: Mapping[str, str] | None = None
    problems: tuple[str, ...] = ()


def read(home: Path) -> HomeConfig:
    """Read the two files that hold settings. An unreadable one is not imported."""
    problems: list[str] = []
    text, data = _read(home / "config.yaml", lambda said: yaml_file.parse(said, file="config.yaml").data, problems)
    env, variables = _read(home / ".env", lambda said: dotenv.parse(said, file=".env"), problems)
    return HomeConfig(text, data, env, variables, tuple(problems))


def _read(file: Path, parse: Any, problems: list[str]) -> tuple[str, Any]:
    if file.is_symlink() or not file.is_file():
        return "", None
    try:
        if file.stat().st_size > _LARGEST:
            raise ConfigError(f"is larger than {_LARGEST:,} bytes", file=file.name)
        text = file.read_text(encoding="utf-8")
        return text, parse(text)
    except ConfigError as error:
        problems.append(f"{file.name} cannot be read and is not imported: {error.one_line()}")
    except (OSError, UnicodeDecodeError) as error:
        problems.append(f"{file.name} cannot be read and is not imported: {type(error).__name__}")
    return "", None


# -- the list ------------------------------------------------------------------------------------------------------


def offers(found: HomeScan, read: HomeConfig, items: Iterable[HomeFile]) -> list[RightsOffer]:
    """Everything of the home beyond its conversations, by kind; `items` are the files that can be imported."""
    entries: dict[str, list[str]] = {kind: [] for kind in KINDS}
    coming = {item.name for item in items if not item.left}
    if "config.yaml" in coming and read.data is not None:
        for path, value, kind in _keys(read.data):
            if kind != "settings":
                entries[kind].append(_shown(path, value, kind))
        if any(kind == "settings" for *_, kind in _keys(read.data)):
            entries["settings"].append("config.yaml")
    if ".env" in coming and read.variables is not None:
        lists = [name for name in read.variables if _ALLOW_VARIABLE.search(name)]
        entries["allow"] += [_variable(name, read.variables[name]) for name in lists]
        if len(lists) < len(read.variables):
            entries["settings"].append(".env")
    if found.routes:
        entries["routes"].append(_counted(len(found.routes), "route"))
    home = found.home.folder
    for name in sorted(coming - {"config.yaml", ".env"}):
        kind = kind_of_file(name)
        inside = _folders(home / name) if kind in ("hooks", "plugins") else []
        entries[kind] += inside or ([_jobs(home / name)] if kind == "jobs" else [name])
    return [RightsOffer(kind, tuple(said)) for kind, said in entries.items() if said]


def kind_of_file(name: str) -> str:
    """The kind of an entry of the folder."""
    return _FILES.get(name, "files")


def hook_names(home: Path) -> list[str]:
    return _folders(home / "hooks")


def backend_note(read: HomeConfig) -> str:
    """The meaning of `terminal.backend: local` here; empty when that is not set."""
    section = (read.data or {}).get("terminal")
    named = section.get("backend") if isinstance(section, Mapping) else None
    if str(named).strip().lower() == "local":
        return "terminal.backend local means executor: confined here: commands run in a sandbox, not as you"
    return ""


def _keys(data: Mapping[Any, Any], above: Path_ = ()) -> Iterator[tuple[Path_, Any, str]]:
    """(path, value, kind) of every key that belongs to one kind as a whole."""
    top = above in ((), ("gateway",))
    for name, value in data.items():
        path, word = (*above, name), str(name)
        kind = _SECTIONS.get(word, "") if top else ""
        if not kind and word in _ALLOW:
            kind = "allow"
        if kind:
            yield path, value, kind
        elif isinstance(value, Mapping) and value:
            yield from _keys(value, path)
        else:
            yield path, value, "settings"


def _shown(path: Path_, value: Any, kind: str) -> str:
    name = ".".join(map(str, path))
    if kind == "servers" and isinstance(value, Mapping):
        return _list(f"{key} ({_program(server)})" for key, server in value.items())
    if kind in ("owners", "admins", "allow"):
        return f"{name}: {_list(value if isinstance(value, list | tuple) else [value])}"
    if kind == "approvals" and isinstance(value, Mapping):
        return _list(f"{name}.{key}: {_brief(one)}" for key, one in value.items())
    if kind == "plugins" and isinstance(value, Mapping):
        enabled = value.get("enabled") or []
        return f"plugins.enabled: {_list(enabled if isinstance(enabled, list | tuple) else [enabled])}"
    return f"{name}: {_brief(value)}" if kind == "approvals" else name


def _program(server: Any) -> str:
    """The program or address of a server, without arguments and headers, which may hold secrets."""
    if not isinstance(server, Mapping):
        return "?"
    if url := server.get("url"):
        return re.sub(r"^(\w+://)(?:[^/@]*@)?([^/?#]*).*$", r"\1\2", str(url), flags=re.DOTALL)[:60]
    return str(server.get("command") or "?")[:60]


def _variable(name: str, value: str) -> str:
    return f".env: {name}" if name.endswith("_KEY") else f".env: {name} {_list(value.split(','))}"


def _brief(value: Any) -> str:
    if isinstance(value, list | tuple):
        return _list(value)
    return "…" if isinstance(value, Mapping) else str(value)[:40]


def _list(values: Iterable[Any]) -> str:
    said = [str(value).strip()[:60] for value in values]
    more = len(said) - _SHOWN
    return ", ".join((*said[:_SHOWN], *([f"{more:,} more"] if more > 0 else [])))


def _folders(folder: Path) -> list[str]:
    try:
        found = sorted(entry for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith((".", "__")))
    except OSError:
        return []
    return [entry.name for entry in found]


def _jobs(folder: Path) -> str:
    """The number of jobs, and their names."""
    file = folder / "jobs.json"
    try:
        said = json.loads(file.read_text(encoding="utf-8")) if file.stat().st_size <= _LARGEST else None
    except (OSError, ValueError):
        return folder.name
    rows = said.get("jobs") if isinstance(said, dict) else said
    names = [str(row.get("name") or row.get("id") or "?") for row in rows or [] if isinstance(row, dict)]
    return f"{_counted(len(names), 'job')}: {_list(names)}" if names else folder.name


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


# -- the taken parts of the two files ------------------------------------------------------------------------------


def config_text(read: HomeConfig, taken: frozenset[str]) -> str | None:
    """config.yaml with the taken kinds; None when nothing of it is left."""
    if read.data is None:
        return None
    keys = list(_keys(read.data))
    if "settings" not in taken:
        kept: dict[Any, Any] = {}
        for path, value, kind in keys:
            if kind in taken:
                kept = yaml_file.set_in_data(kept, path, value)
        return yaml_file.dump(kept) if kept else None
    gone = [path for path, _, kind in keys if kind not in taken]
    text = read.text
    for path in gone:
        text = yaml_file.remove_in_text(text, path, file="config.yaml").text
    return text


def env_text(read: HomeConfig, taken: frozenset[str]) -> str | None:
    """`.env` with the taken kinds; None when nothing of it is left."""
    if read.variables is None:
        return None
    lists = {name for name in read.variables if _ALLOW_VARIABLE.search(name)}
    if "settings" not in taken:
        kept = [name for name in read.variables if name in lists] if "allow" in taken else []
        return "".join(f"{dotenv.line(name, read.variables[name])}\n" for name in kept) or None
    text = read.env
    for name in lists if "allow" not in taken else ():
        text = dotenv.without(name, text, file=".env")
    return text
