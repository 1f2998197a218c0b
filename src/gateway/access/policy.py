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

An account such as `slack@work` has rules of its own: its block, and variables with `__WORK` behind the platform's
(`SLACK_ALLOWED_USERS__WORK`). Nothing that lets somebody write to one account holds for another.

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
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from gateway.access.authorisation import Decision, Known, PlatformRules, Policy, Principal
from gateway.config import Source
from hermes_config import accounts, config, schema
from hermes_config.errors import ConfigError
from hermes_config.home import hermes_home
from hermes_config.schema import Problem, Section, Value
from hermes_config.sections import Access, PlatformAccess

if TYPE_CHECKING:
    from hermes_config.config import Config
    from hermes_state.people.people import Person, Role
    from hermes_state.session_db import SessionDB

log = logging.getLogger("hermes.gateway")


_SETTINGS = tuple(PlatformAccess.settings)
# Environment names that do not follow the platform's own.
_PREFIXES = {"qqbot": "QQ"}
_NAMES = {"QQ_GROUP_ALLOWED_CHATS": "QQ_GROUP_ALLOWED_USERS"}
_NO_PLATFORMS = frozenset({"", "gateway", "local", "api_server"})
S = TypeVar("S", bound=Section)


def read(loaded: Config) -> Policy:
    """The policy without people. Raises `ConfigError`, naming file, line and key."""
    source = Source(loaded)
    own = source.elsewhere("gateway")
    lists = _section(source, Access, () if own is None else (own,))
    named = _section(source, Access, source.places)
    everyone, users = _listed(lists.allowed_users)
    roles: dict[tuple[str, str], Role] = dict.fromkeys(_identities(named.admins), "admin")
    roles |= dict.fromkeys(_identities(named.owners), "owner")
    strangers = named.unauthorized_dm_behavior
    return Policy(
        platforms=MappingProxyType(
            {name: _rules(source, name, strangers, listed=bool(users)) for name in _platforms(source)}
        ),
        others=PlatformRules(unknown_dm=strangers or ("ignore" if users else "pair")),
        everyone=everyone or lists.allow_all_users,
        users=users,
        roles=MappingProxyType(roles),
        approvers=frozenset(_identities(named.approvers)),
    )


def named_ids(rules: Policy) -> frozenset[str]:
    """The ids of all users on lists."""
    found = {native_id for _, native_id in (*rules.roles, *rules.approvers)} | rules.users
    for platform in rules.platforms.values():
        found |= platform.users | platform.group_users
    return frozenset(found)


def _rules(
    source: Source, platform: str, strangers: Literal["pair", "ignore"] | None, *, listed: bool
) -> PlatformRules:
    """`strangers`: the setting for all platforms. `listed`: there is a list for all platforms.

    Strangers get a pairing code in private, by default only where no list of users exists.
    """
    own = _section(source, PlatformAccess, [*_blocks(source, platform)], platform)
    everyone, users = _listed(own.allowed_users)
    group_everyone, group_users = _listed(own.group_allowed_users)
    every_group, chats = _listed(own.group_allowed_chats)
    if accounts.platform_of(platform) == "email":  # anybody can send mail in anybody's name
        strangers = "ignore"
    by_default: Literal["pair", "ignore"] = "ignore" if listed or users or group_users or chats else "pair"
    return PlatformRules(
        everyone=everyone or own.allow_all_users, users=users, group_everyone=group_everyone, group_users=group_users,
        every_group=every_group, group_chats=chats, bots=own.allow_bots,
        unknown_dm=own.unauthorized_dm_behavior or strangers or by_default,
    )  # fmt: skip


def _section(source: Source, cls: type[S], places: Sequence[Value], platform: str = "") -> S:
    """The settings of these sections, by precedence; a variable wins over all of them. Raises `ConfigError`."""
    kind = accounts.platform_of(platform)
    prefix = _PREFIXES.get(kind, kind.upper())

    def variable(name: str) -> str:
        name = name.replace("<PLATFORM>", prefix)
        return accounts.variable(_NAMES.get(name, name), platform)

    problems: list[Problem] = []
    made = schema.read(cls, places, problems, environ=lambda name: source.environ(variable(name)))
    if problems:
        value, named = problems[0].value, tuple(map(variable, problems[0].value.path))
        if value.file == Path("environment") and named[0] not in os.environ:
            value = value._replace(file=source.config.home / ".env")
        raise problems[0]._replace(value=value._replace(path=named)).error()
    return made


def _platforms(source: Source) -> set[str]:
    """Every platform with a setting, and mail, which has a rule of its own."""
    found = {name.lower() for blocks in source.all("platforms") for name, _ in blocks.parts()}
    ours, tree = frozenset(_SETTINGS), source.config.tree
    own = {str(name): block for name, block in tree.items() if isinstance(block, Mapping)}
    found |= {name for name, block in own.items() if ours & {*block} or accounts.is_account(name)}
    prefixes = {short: platform for platform, short in _PREFIXES.items()}
    for name in {*os.environ, *source.config.dotenv}:
        ending = next((ending for setting in _SETTINGS if name.endswith(ending := f"_{setting.upper()}")), None)
        if ending is not None:
            prefix = name.removesuffix(ending).removesuffix("_GROUP")
            found.add(prefixes.get(prefix, prefix.lower()))
    return (found | {"email"}) - _NO_PLATFORMS


def _blocks(source: Source, platform: str) -> Iterator[Value]:
    """The sections that may hold a platform's settings, by precedence."""
    blocks = [source.elsewhere(platform)]
    for described in reversed(source.all("platforms")):
        blocks += [block for name, block in described.parts() if name.lower() == platform]
    for block in blocks:
        if block is not None:
            yield block
            yield from () if (extra := block.at("extra")) is None else (extra,)


def _listed(names: Sequence[str]) -> tuple[bool, frozenset[str]]:
    """Whether a list names everybody, and the ids on it."""
    found = frozenset(names)
    return "*" in found, found - {"*"}


def _identities(names: Sequence[str]) -> list[tuple[str, str]]:
    """`slack:U42` as (slack, U42)."""
    parts = (name.partition(":") for name in names)
    return [(platform.strip().lower(), native_id.strip()) for platform, _, native_id in parts]


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
        self._lock = threading.Lock()
        self._checked: Policy | None = None
        """The policy that was checked in this iteration of the event loop."""
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
        """`current`, for an event loop: the check runs on the loop, a new policy is made in a thread.

        One check counts for one iteration of the loop: its messages came at the same moment.
        """
        if self._checked is not None:
            return self._checked
        if self._db.engine.dialect == "sqlite" and (policy := self._unchanged()):
            self._checked = policy
            asyncio.get_running_loop().call_soon(self._forget_check)
            return policy
        return await asyncio.to_thread(self.current)

    def _forget_check(self) -> None:
        self._checked = None

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
