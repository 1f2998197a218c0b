"""What the configuration and the environment say about who gets in.

| meaning | environment or `.env` | config.yaml |
|---|---|---|
| these users | `<PLATFORM>_ALLOWED_USERS` | `platforms.<platform>.allowed_users` |
| everybody | `<PLATFORM>_ALLOW_ALL_USERS` | `….allow_all_users` |
| these users, in groups | `<PLATFORM>_GROUP_ALLOWED_USERS` | `….group_allowed_users` |
| everybody in these groups | `<PLATFORM>_GROUP_ALLOWED_CHATS` | `….group_allowed_chats` |
| bots: none, mentions, all | `<PLATFORM>_ALLOW_BOTS` | `….allow_bots` |
| strangers in private: pair, ignore | | `….unauthorized_dm_behavior`, or at the top for all |
| these users, everywhere | `GATEWAY_ALLOWED_USERS` | `gateway.allowed_users` |
| everybody, where no list is | `GATEWAY_ALLOW_ALL_USERS` | `gateway.allow_all_users` |
| owners, admins, approvers | | `gateway.owners`, `gateway.admins`, `gateway.approvers`: `telegram:42` |

A list is `a, b` or a YAML list; `*` stands for everybody. The environment wins over the files, whole lists at a time. A
platform's keys may also stand in its `extra:`, under `gateway.platforms`, in a block of its own at the top, or in
`gateway.json`, as in existing homes. Ids are kept as written but for the spaces around them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, cast

from gateway.authorisation import Policy, Rules
from gateway.config import Source
from hermes_config import redaction
from hermes_config.schema import Flag, Value
from hermes_config.sections import BOTS, STRANGERS

if TYPE_CHECKING:
    from hermes_config.config import Config
    from hermes_state.people import Role

_SETTINGS = ("allowed_users", "allow_all_users", "group_allowed_users", "group_allowed_chats", "allow_bots")
_STRANGERS = "unauthorized_dm_behavior"
# Environment names that do not follow the platform's own.
_PREFIXES = {"qqbot": "QQ"}
_NAMES = {("qqbot", "group_allowed_chats"): "QQ_GROUP_ALLOWED_USERS"}
_NO_PLATFORMS = frozenset({"", "gateway", "local", "api_server"})


def read(loaded: Config) -> Policy:
    """Everything but the people. Raises `ConfigError`, naming file, line and key."""
    reader = _Reader(Source(loaded))
    everyone, users = reader.names("", "allowed_users")
    roles: dict[tuple[str, str], Role] = dict.fromkeys(reader.identities("admins"), "admin")
    roles |= dict.fromkeys(reader.identities("owners"), "owner")
    return Policy(
        platforms=MappingProxyType({name: _rules(reader, name, listed=bool(users)) for name in reader.platforms()}),
        others=Rules(unknown_dm=reader.strangers("", listed=bool(users))),
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
    anybody, users = reader.names(platform, "allowed_users")
    anybody_in_groups, group_users = reader.names(platform, "group_allowed_users")
    any_group, chats = reader.names(platform, "group_allowed_chats")
    return Rules(
        everyone=anybody or reader.flag(platform, "allow_all_users"),
        users=users,
        group_everyone=anybody_in_groups,
        group_users=group_users,
        every_group=any_group,
        group_chats=chats,
        bots=reader.bots(platform),
        unknown_dm=reader.strangers(platform, listed=listed or bool(users or group_users or chats)),
    )


class _Reader:
    """One setting at a time, by platform; the platform `''` stands for the gateway as a whole."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def platforms(self) -> set[str]:
        """Every platform that anything was said about, and mail, which has a rule of its own."""
        found = {name.lower() for blocks in self._source.all("platforms") for name, _ in blocks.parts()}
        ours = frozenset({*_SETTINGS, _STRANGERS})
        tree = self._source.config.tree
        found |= {name for name, block in tree.items() if isinstance(block, Mapping) and ours & {*block}}
        prefixes = {short: platform for platform, short in _PREFIXES.items()}
        for name in {*os.environ, *self._source.config.dotenv}:
            ending = next((ending for setting in _SETTINGS if name.endswith(ending := f"_{setting.upper()}")), None)
            if ending is not None:
                prefix = name.removesuffix(ending).removesuffix("_GROUP")
                found.add(prefixes.get(prefix, prefix.lower()))
        return (found | {"email"}) - _NO_PLATFORMS

    def _written(self, platform: str, setting: str) -> Value | None:
        """The setting where it counts; None: it is set nowhere."""
        prefix = _PREFIXES.get(platform, platform.upper() or "GATEWAY")
        name = _NAMES.get((platform, setting), f"{prefix}_{setting.upper()}")
        said = None if setting == _STRANGERS else self._source.environ(name)
        if said is not None:
            return Value(
                said, Path("environment" if name in os.environ else self._source.config.home / ".env"), (name,)
            )
        return next((value for place in self._places(platform) if (value := place.at(setting)) is not None), None)

    def _places(self, platform: str) -> Iterator[Value]:
        """Sections in which a platform's settings may stand, the one that counts first."""
        if not platform:
            gateway = self._source.elsewhere("gateway")
            yield from () if gateway is None else (gateway,)
            return
        blocks = [self._source.elsewhere(platform)]
        for described in reversed(self._source.all("platforms")):
            blocks += [block for name, block in described.parts() if name.lower() == platform]
        for block in blocks:
            if block is not None:
                yield block
                yield from () if (extra := block.at("extra")) is None else (extra,)

    def names(self, platform: str, setting: str) -> tuple[bool, frozenset[str]]:
        """Whether it names everybody, and whom else."""
        found = frozenset(_ids(self._written(platform, setting)))
        return "*" in found, found - {"*"}

    def identities(self, setting: str) -> list[tuple[str, str]]:
        """`telegram:42` as (telegram, 42)."""
        value = self._source.find(setting)
        found = []
        for name in _ids(value):
            platform, _, native_id = (part.strip() for part in name.partition(":"))
            if value is not None and not (platform and native_id):
                raise value.wrong(f"must hold platform:id such as telegram:42, not {redaction.shown(name)}")
            found.append((platform.lower(), native_id))
        return found

    def flag(self, platform: str, setting: str) -> bool:
        value = self._written(platform, setting)
        return value is not None and bool(value.read(Flag()))

    def bots(self, platform: str) -> Literal["none", "mentions", "all"]:
        value = self._written(platform, "allow_bots")
        return "none" if value is None else cast(Literal["none", "mentions", "all"], value.read(BOTS))

    def strangers(self, platform: str, *, listed: bool) -> Literal["pair", "ignore"]:
        """What a stranger hears in private. Where there is a list, its makers have said who belongs to it."""
        value = self._written(platform, _STRANGERS) if platform else None
        if value is None and platform == "email":
            return "ignore"  # anybody can write one in anybody's name
        value = value or self._source.find(_STRANGERS)
        if value is not None:
            return cast(Literal["pair", "ignore"], value.read(STRANGERS))
        return "ignore" if listed else "pair"


def _ids(value: Value | None) -> Iterator[str]:
    if value is None:
        return
    raw = value.raw
    items = raw.split(",") if isinstance(raw, str) else raw if isinstance(raw, list | tuple) else [raw]
    for item in items:
        if isinstance(item, bool) or not isinstance(item, str | int):
            raise value.wrong(f"must be a list of ids, not {redaction.shown(item)}", hint="Write ids in quotes.")
        if name := str(item).strip():
            yield name
