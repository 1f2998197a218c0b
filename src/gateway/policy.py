"""The policy in memory, and how it stays fresh.

`PolicyKeeper` is asked at each message. It looks whether anything changed: config.yaml, `.env` and the pairing files of
an existing home (their stamps), and who has which rights (one indexed read of a word that changes with every such
change, by whichever process). Only then is the policy made anew. So a removal holds at the next message, also one made
by `hermes pairing revoke` beside a running gateway.

A configuration that cannot be read leaves the last good rules in force and is named in `problem`; at the start there
are none, and the keeper raises. A store that cannot be read raises: without an answer nobody is let in.

Homes of the reference keep who was paired in `<platform>-approved.json` under `platforms/pairing` or `pairing`. Those
files are read and never written; `hermes pairing revoke` shuts out whom such a file lets in.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from gateway import policy_rules
from gateway.authorisation import Decision, Known, Policy, Principal
from hermes_config import config
from hermes_config.errors import ConfigError
from hermes_config.home import hermes_home

if TYPE_CHECKING:
    from hermes_state.people.people import Person
    from hermes_state.session_db import SessionDB

log = logging.getLogger("hermes.gateway")

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
        self._looked = 0.0
        """When it was last seen that nothing had changed."""
        self._lock = threading.Lock()
        self.problem: ConfigError | None = None
        """What is wrong with a configuration that is therefore not in force; None when all is well."""

    def current(self) -> Policy:
        """The policy as of now."""
        return self._unchanged() or self._make()

    async def fresh(self, *, within: float = 0.0) -> Policy:
        """`current`, from an event loop: a look costs less there than a thread, making it anew does not.

        `within`: so many seconds ago is early enough, for what comes right behind a decision on the same message.
        """
        made = self._made
        if made is not None and time.monotonic() < self._looked + within:
            return made.policy
        if self._db.engine.dialect == "sqlite" and (policy := self._unchanged()):
            return policy
        return await asyncio.to_thread(self.current)

    def _unchanged(self) -> Policy | None:
        made, now = self._made, time.monotonic()
        if made is None or made.files != _stamp(self._home) or made.version != self._db.pairings.version():
            return None
        self._looked = now
        return made.policy

    def _make(self) -> Policy:
        with self._lock:
            files = _stamp(self._home)  # before anything is read: a change meanwhile is seen at the next look
            rules = self._rules()
            version, found = self._db.pairings.standings(policy_rules.named_ids(rules))
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
            return policy_rules.read(loaded)
        except ConfigError as error:
            if self._made is None:
                raise
            self.problem = error
            log.warning("%s", error.one_line(), extra={"action": "policy_kept"})
            return self._made.policy

    def person(self, principal: Principal, decision: Decision, display_name: str | None = None) -> Person:
        """The person behind somebody who was let in, with the role in force; their row is made at the first message.

        What the configuration gives (`gateway.owners`) is not stored: taken out there, it is gone.
        """
        assert decision.allowed, "nobody is put down who was not let in"
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
        except OSError:  # not there, or nothing we may read; reading it says so
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
    """(platform, id) of everybody whom a file lets in. A file that makes no sense lets nobody in."""
    for file in map(Path, _pairing_files(home)):
        try:
            if file.stat().st_size > _MOST_BYTES:
                raise ValueError("too large")
            found: Any = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            said = {"action": "pairing_file_unreadable", "file": file.name, "error": type(error).__name__}
            log.warning("a pairing file cannot be read and lets nobody in", extra=said)
            continue
        platform = file.name.removesuffix(_ENDING).lower()
        if isinstance(found, dict):
            yield from ((platform, name) for name in found)
