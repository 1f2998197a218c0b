"""What the configuration and the environment say about who gets in.

| meaning | environment or `.env` | config.yaml |
|---|---|---|
| these users | `<PLATFORM>_ALLOWED_USERS` | `platforms.<platform>.allowed_users` |
| everybody | `<PLATFORM>_ALLOW_ALL_USERS` | `….allow_all_users` |
| these users, in groups | `<PLATFORM>_GROUP_ALLOWED_USERS` | `….group_allowed_users` |
| everybody in these groups | `<PLATFORM>_GROUP_ALLOWED_CHATS` | `….group_allowed_chats` |
| bots: none, mentions, all | `<PLATFORM>_ALLOW_BOTS` | `….allow_bots` |
| strangers in private: pair, ignore | | `….unauthorized_dm_behavior`, or for all platforms at the top |
| these users, everywhere | `GATEWAY_ALLOWED_USERS` | `gateway.allowed_users` |
| everybody, where no list is | `GATEWAY_ALLOW_ALL_USERS` | `gateway.allow_all_users` |
| owners, admins, who gives leave | | `gateway.owners`, `gateway.admins`, `gateway.approvers`: `telegram:42` |

A list is `a, b` or a YAML list; `*` stands for everybody. The environment wins over the file, whole lists at a time. A
platform's keys may also stand in its `extra:`, under `gateway.platforms`, or in a block of its own at the top, as in
existing homes. Ids are kept as written but for the spaces around them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from gateway.authorisation import Policy, Rules
from hermes_config.errors import ConfigError

if TYPE_CHECKING:
    from hermes_config.config import Config
    from hermes_state.people import Role

_SETTINGS = ("allowed_users", "allow_all_users", "group_allowed_users", "group_allowed_chats", "allow_bots")
_DM = "unauthorized_dm_behavior"
_OURS = frozenset({*_SETTINGS, _DM})
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0", "")
# Environment names that do not follow the platform's own.
_PREFIXES = {"qqbot": "QQ"}
_NAMES = {("qqbot", "group_allowed_chats"): "QQ_GROUP_ALLOWED_USERS"}


def read(loaded: Config) -> Policy:
    """Everything but the people. Raises `ConfigError`, naming the key."""
    reader = _Reader(loaded)
    everyone, users = reader.names("", "allowed_users")
    named = {
        **dict.fromkeys(reader.identities("admins"), "admin"),
        **dict.fromkeys(reader.identities("owners"), "owner"),
    }
    roles: dict[tuple[str, str], Role] = {key: "owner" if role == "owner" else "admin" for key, role in named.items()}
    rules = {platform: _rules(reader, platform, listed=bool(users)) for platform in reader.platforms()}
    return Policy(
        platforms=MappingProxyType(rules),
        others=_rules(reader, "", listed=bool(users)),
        everyone=everyone or reader.flag("", "allow_all_users"),
        users=users,
        roles=MappingProxyType(roles),
        approvers=frozenset(reader.identities("approvers")),
    )


def named_ids(rules: Policy) -> frozenset[str]:
    """Every user's id that stands on a list."""
    found = {native_id for _, native_id in (*rules.roles, *rules.approvers)} | rules.users
    for platform in rules.platforms.values():
        found |= platform.users | platform.group_users
    return frozenset(found)


def _rules(reader: _Reader, platform: str, *, listed: bool) -> Rules:
    """`listed`: there is a list for all platforms."""
    if not platform:
        return Rules(unknown_dm=reader.unknown_dm(platform, listed=listed))
    any_user, users = reader.names(platform, "allowed_users")
    any_in_groups, group_users = reader.names(platform, "group_allowed_users")
    any_group, chats = reader.names(platform, "group_allowed_chats")
    return Rules(
        everyone=any_user or reader.flag(platform, "allow_all_users"),
        users=users,
        group_everyone=any_in_groups,
        group_users=group_users,
        every_group=any_group,
        group_chats=chats,
        bots=reader.bots(platform),
        unknown_dm=reader.unknown_dm(platform, listed=listed or bool(users or group_users or chats)),
    )


class _Reader:
    """One setting at a time, by platform; the platform `''` stands for the gateway as a whole."""

    def __init__(self, loaded: Config) -> None:
        self._config = loaded
        self._tree = loaded.tree

    def platforms(self) -> set[str]:
        """Every platform that anything was said about."""
        found = {str(name).lower() for blocks in self._blocks() for name in blocks}
        found |= {
            name for name, block in self._tree.items() if isinstance(block, Mapping) and {*_SETTINGS, _DM} & {*block}
        }
        endings = tuple(f"_{setting.upper()}" for setting in _SETTINGS)
        prefixes = {short: platform for platform, short in _PREFIXES.items()}
        for name in {*os.environ, *self._config.dotenv}:
            ending = next((ending for ending in endings if name.endswith(ending)), None)
            if ending is not None:
                prefix = name.removesuffix(ending).removesuffix("_GROUP")
                found.add(prefixes.get(prefix, prefix.lower()))
        return found - {"", "gateway"}

    def _blocks(self) -> Iterator[Mapping[str, Any]]:
        """Where platforms are described, the strongest place first."""
        gateway = self._tree.get("gateway")
        for place in (self._tree.get("platforms"), gateway.get("platforms") if isinstance(gateway, Mapping) else None):
            if isinstance(place, Mapping):
                yield place

    def _written(self, platform: str, setting: str) -> tuple[str, Any]:
        """Where it is set, and to what; None: nowhere."""
        if setting != _DM:
            prefix = _PREFIXES.get(platform, platform.upper() or "GATEWAY")
            name = _NAMES.get((platform, setting), f"{prefix}_{setting.upper()}")
            found = self._config.environ(name)
            if found is not None:
                return name, found
        for place, block in self._places(platform):
            if isinstance(block, Mapping) and block.get(setting) is not None:
                return f"{place}{setting}", block[setting]
        return setting, None

    def _places(self, platform: str) -> Iterator[tuple[str, Any]]:
        if not platform:
            yield "", self._tree if self._tree.get(_DM) is not None else None
            yield "gateway.", self._tree.get("gateway")
            return
        for blocks in self._blocks():
            block = next((value for name, value in blocks.items() if str(name).lower() == platform), None)
            yield f"platforms.{platform}.", block
            if isinstance(block, Mapping):
                yield f"platforms.{platform}.extra.", block.get("extra")
        yield f"{platform}.", self._tree.get(platform)

    def names(self, platform: str, setting: str) -> tuple[bool, frozenset[str]]:
        """Whether it names everybody, and whom else."""
        key, value = self._written(platform, setting)
        found = frozenset(self._list(key, value))
        return "*" in found, found - {"*"}

    def _list(self, key: str, value: Any) -> Iterator[str]:
        items = value.split(",") if isinstance(value, str) else [value] if isinstance(value, int) else value
        if items is None:
            return
        if not isinstance(items, list | tuple):
            raise self._error(key, "must be a list of ids")
        for item in items:
            if isinstance(item, bool) or not isinstance(item, str | int):
                raise self._error(key, f"must hold ids, not {item!r:.40}")
            if name := str(item).strip():
                yield name

    def identities(self, setting: str) -> Iterator[tuple[str, str]]:
        """`telegram:42` as (telegram, 42), from a list under `gateway:`."""
        gateway = self._tree.get("gateway")
        key = f"gateway.{setting}"
        for name in self._list(key, gateway.get(setting) if isinstance(gateway, Mapping) else None):
            platform, colon, native_id = name.partition(":")
            if not colon or not platform.strip() or not native_id.strip():
                raise self._error(key, f"must hold platform:id such as telegram:42, not {name!r:.40}")
            yield platform.strip().lower(), native_id.strip()

    def flag(self, platform: str, setting: str) -> bool:
        key, value = self._written(platform, setting)
        word = "" if value is None else str(value).strip().lower()
        if word not in _TRUE and word not in _FALSE:
            raise self._error(key, f"must be true or false, not {word!r:.40}")
        return word in _TRUE

    def bots(self, platform: str) -> Literal["none", "mentions", "all"]:
        key, value = self._written(platform, "allow_bots")
        word = "" if value is None else str(value).strip().lower()
        if word in ("mentions", "all"):
            return "mentions" if word == "mentions" else "all"
        if word != "none" and word not in _FALSE:  # existing homes say false, or nothing
            raise self._error(key, f"must be none, mentions or all, not {word!r:.40}")
        return "none"

    def unknown_dm(self, platform: str, *, listed: bool) -> Literal["pair", "ignore"]:
        """What a stranger hears in private. Where there is a list its makers have said who belongs to it."""
        own, chosen = self._written(platform, _DM) if platform else ("", None)
        if chosen is None and platform == "email":
            return "ignore"  # anybody can write one in anybody's name
        if chosen is None:
            own, chosen = self._written("", _DM)
        word = "" if chosen is None else str(chosen).strip().lower()
        if word not in ("pair", "ignore", ""):
            raise self._error(own, f"must be pair or ignore, not {word!r:.40}")
        if word:
            return "pair" if word == "pair" else "ignore"
        return "ignore" if listed else "pair"

    def _error(self, key: str, reason: str) -> ConfigError:
        file = "environment" if key.isupper() and key in os.environ else ".env" if key.isupper() else "config.yaml"
        where = file if file == "environment" else str(self._config.home / file)
        return ConfigError(reason, file=where, key=key)
