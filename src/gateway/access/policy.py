"""`PolicyKeeper`: the policy in memory, read from configuration, environment and store, and kept current.

Every message asks the keeper. It checks for changes: of config.yaml, `.env` and the pairing files of an existing home
(their stamps), and of people's rights (one indexed read of a version that every process changes with them). Only then
it makes a new policy. So a removal holds at the next message, also one by `hermes pairing revoke` beside a running
gateway.

If the configuration cannot be read, the last good rules stay in force and `problem` names the error; at the start there
are none, and the keeper raises. If the store cannot be read, the keeper raises: without an answer nobody gets access.

Homes of hermes-agent keep who was paired in `<platform>-approved.json` under `platforms/pairing` or `pairing`. Those
files are read and never written; `hermes pairing revoke` overrules them.

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
| owners, admins, approvers | | `gateway.owners`, `gateway.admins`, `gateway.approvers`: `slack:U42` |

A list is `a, b` or a YAML list; `*` stands for everybody. The environment wins over the files, whole lists at a time. A
platform's keys may also stand in its `extra:`, under `gateway.platforms`, in a block of its own at the top, or in
`gateway.json`, as in existing homes. Ids are kept as written but for the spaces around them.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
import os
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from gateway.access.authorisation import Decision, Known, PlatformRules, Policy, Principal
from gateway.config import Source
from hermes_config import config, redaction
from hermes_config.errors import ConfigError
from hermes_config.home import hermes_home
from hermes_config.schema import Flag, Value
from hermes_config.sections import BOTS, STRANGERS

if TYPE_CHECKING:
    from hermes_config.config import Config
    from hermes_state.people.people import Person, Role
    from hermes_state.session_db import SessionDB

log = logging.getLogger("hermes.gateway")


_SETTINGS = ("allowed_users", "allow_all_users", "group_allowed_users", "group_allowed_chats", "allow_bots")
_STRANGERS = "unauthorized_dm_behavior"
# Environment names that do not follow the platform's own.
_PREFIXES = {"qqbot": "QQ"}
_NAMES = {("qqbot", "group_allowed_chats"): "QQ_GROUP_ALLOWED_USERS"}
_NO_PLATFORMS = frozenset({"", "gateway", "local", "api_server"})


def read(loaded: Config) -> Policy:
    """The policy without people. Raises `ConfigError`, naming file, line and key."""
    reader = _Reader(Source(loaded))
    everyone, users = reader.names("", "allowed_users")
    roles: dict[tuple[str, str], Role] = dict.fromkeys(reader.identities("admins"), "admin")
    roles |= dict.fromkeys(reader.identities("owners"), "owner")
    return Policy(
        platforms=MappingProxyType({name: _rules(reader, name, listed=bool(users)) for name in reader.platforms()}),
        others=PlatformRules(unknown_dm=reader.strangers("", listed=bool(users))),
        everyone=everyone or reader.flag("", "allow_all_users"),
        users=users,
        roles=MappingProxyType(roles),
        approvers=frozenset(reader.identities("approvers")),
    )


def named_ids(rules: Policy) -> frozenset[str]:
    """The ids of all users on lists."""
    found = {native_id for _, native_id in (*rules.roles, *rules.approvers)} | rules.users
    for platform in rules.platforms.values():
        found |= platform.users | platform.group_users
    return frozenset(found)


def _rules(reader: _Reader, platform: str, *, listed: bool) -> PlatformRules:
    """`listed`: there is a list for all platforms."""
    anybody, users = reader.names(platform, "allowed_users")
    anybody_in_groups, group_users = reader.names(platform, "group_allowed_users")
    any_group, chats = reader.names(platform, "group_allowed_chats")
    return PlatformRules(
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
    """Reads one setting at a time, by platform; the platform `''` is the gateway as a whole."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def platforms(self) -> set[str]:
        """Every platform with a setting, and mail, which has a rule of its own."""
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
        """The setting in the section that takes precedence; None: it is not set."""
        prefix = _PREFIXES.get(platform, platform.upper() or "GATEWAY")
        name = _NAMES.get((platform, setting), f"{prefix}_{setting.upper()}")
        said = None if setting == _STRANGERS else self._source.environ(name)
        if said is not None:
            return Value(
                said, Path("environment" if name in os.environ else self._source.config.home / ".env"), (name,)
            )
        return next((value for one in self._sections(platform) if (value := one.at(setting)) is not None), None)

    def _sections(self, platform: str) -> Iterator[Value]:
        """The sections that may hold a platform's settings, by precedence."""
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
        """Whether a list names everybody, and the ids on it."""
        found = frozenset(_ids(self._written(platform, setting)))
        return "*" in found, found - {"*"}

    def identities(self, setting: str) -> list[tuple[str, str]]:
        """`slack:U42` as (slack, U42)."""
        value = self._source.find(setting)
        found = []
        for name in _ids(value):
            platform, _, native_id = (part.strip() for part in name.partition(":"))
            if value is not None and not (platform and native_id):
                raise value.wrong(f"must hold platform:id such as slack:U42, not {redaction.shown(name)}")
            found.append((platform.lower(), native_id))
        return found

    def flag(self, platform: str, setting: str) -> bool:
        value = self._written(platform, setting)
        return value is not None and bool(value.read(Flag()))

    def bots(self, platform: str) -> Literal["none", "mentions", "all"]:
        value = self._written(platform, "allow_bots")
        return "none" if value is None else cast(Literal["none", "mentions", "all"], value.read(BOTS))

    def strangers(self, platform: str, *, listed: bool) -> Literal["pair", "ignore"]:
        """Whether strangers get a pairing code in private; by default only where no list of users exists."""
        value = self._written(platform, _STRANGERS) if platform else None
        if value is None and platform == "email":
            return "ignore"  # anybody can send mail in anybody's name
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


_FOLDERS = ("platforms/pairing", "pairing")
_ENDING = "-approved.json"
_MOST_BYTES = 4 * 1024 * 1024
_Stamp = tuple[tuple[str, int, int, int], ...]


class _Made(NamedTuple):
    files: _Stamp
    version: str
    policy: Policy


class PolicyKeeper:
    """One a process; any thread may ask."""

    def __init__(self, db: SessionDB, home: Path | None = None) -> None:
        self._db = db
        self._home = home or hermes_home()
        self._made: _Made | None = None
        """When `_made` was last found unchanged, by the monotonic clock."""
        self._lock = threading.Lock()
        self.problem: ConfigError | None = None
        """What is wrong with a configuration that is therefore not in force; None when all is well."""

    def current(self) -> Policy:
        """The current policy."""
        return self._unchanged() or self._make()

    @property
    def last(self) -> Policy | None:
        """The policy that was made last, for when the store cannot be read; do not use it to give access."""
        return None if self._made is None else self._made.policy

    async def fresh(self) -> Policy:
        """`current`, for an event loop: the check runs on the loop, a new policy is made in a thread."""
        if self._db.engine.dialect == "sqlite" and (policy := self._unchanged()):
            return policy
        return await asyncio.to_thread(self.current)

    def _unchanged(self) -> Policy | None:
        made = self._made
        if made is None or made.files != _stamp(self._home) or made.version != self._db.pairings.version():
            return None
        return made.policy

    def _make(self) -> Policy:
        with self._lock:
            files = _stamp(self._home)  # before reading, so that the next check sees a change meanwhile
            rules = self._rules()
            version, found = self._db.pairings.standings(named_ids(rules))
            people = {
                (row.platform, row.account, row.native_id): Known(row.person_id, row.role, row.state) for row in found
            }
            imported = frozenset(_approved(self._home))
            policy = dataclasses.replace(rules, people=MappingProxyType(people), imported=imported)
            self._made = _Made(files, version, policy)
        log.info("policy made", extra={"action": "policy_made", "identities": len(people)})
        return policy

    def _rules(self) -> Policy:
        try:
            loaded, self.problem = config.load_or_last_good(self._home)
            return read(loaded)
        except ConfigError as error:
            if self._made is None:
                raise
            self.problem = error
            log.warning("%s", error.one_line(), extra={"action": "policy_kept"})
            return self._made.policy

    def person(self, principal: Principal, decision: Decision, display_name: str | None = None) -> Person:
        """The person of a sender with access, with the role in force; the first message makes the person's row.

        A role from the configuration (`gateway.owners`) is not stored, and ends when it is removed there.
        """
        assert decision.allowed, "only a person with access gets a row"
        found = None if decision.person_id is None else self._db.people.get(decision.person_id)
        if found is None:
            platform, account, native_id = principal.key
            found = self._db.people.ensure(
                platform=platform, account=account, native_id=native_id, display_name=display_name,
                role="guest" if decision.role == "guest" else "member",
            )  # fmt: skip
        return dataclasses.replace(found, role=decision.role)


# -- files -------------------------------------------------------------------------------------------------------


def _stamp(home: Path) -> _Stamp:
    stamps = []
    for file in (f"{home}/config.yaml", f"{home}/.env", f"{home}/gateway.json", *_pairing_files(home)):
        try:
            status = os.stat(file)  # noqa: PTH116 - at each message: half the price
        except OSError:  # missing or unreadable; the reader of the file reports that
            continue
        stamps.append((file, status.st_mtime_ns, status.st_size, status.st_ino))
    return tuple(stamps)


def _pairing_files(home: Path) -> Iterator[str]:
    for name in _FOLDERS:
        folder = f"{home}/{name}"
        if not os.access(folder, os.F_OK):  # the rule, and the quick way to see it
            continue
        try:
            names = os.listdir(folder)  # noqa: PTH208 - at each message: half the price
        except OSError:
            continue
        yield from (f"{folder}/{file}" for file in sorted(names) if file.endswith(_ENDING))


def _approved(home: Path) -> Iterator[tuple[str, str]]:
    """(platform, id) of everybody on the pairing files. An invalid file gives nobody access."""
    for file in map(Path, _pairing_files(home)):
        try:
            if file.stat().st_size > _MOST_BYTES:
                raise ValueError("too large")
            found: Any = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            said = {"action": "pairing_file_unreadable", "file": file.name, "error": type(error).__name__}
            log.warning("cannot read a pairing file, so it gives nobody access", extra=said)
            continue
        platform = file.name.removesuffix(_ENDING).lower()
        if isinstance(found, dict):
            yield from ((platform, name) for name in found)
