"""People, and the identities by which platforms know them.

A person is a human or an API client; an identity is (platform, our account there, their stable id) and points at one
person. Names are only displayed and decide nothing. The user of this machine's terminal is the owner, known by the
identity `local`. Writing to us makes nobody more than a guest: an owner gives roles. Being known is not being allowed:
`pairings` stores who is let in or kept out by hand.

Every change of rights changes `version_in` in the same transaction, so that every process notices.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal, get_args

from hermes_state import columns
from hermes_state.errors import IntegrityError, InvalidValue, StateError
from hermes_state.ids import API_CLIENT, LOCAL_OWNER, PersonId, new_person_id
from hermes_state.storage import meta
from hermes_state.storage.base import Connection, Row, StorePart, first, in_transaction, scalar
from hermes_state.storage.statements import Queries

Q = Queries("people")

Role = Literal["owner", "admin", "member", "guest"]
LOCAL = "local"
_VERSION = "people_version"
IdentityKey = tuple[str, str, str]
"""(platform, our account there, their id)."""


@dataclass(frozen=True, slots=True)
class Person:
    id: PersonId
    display_name: str | None
    role: Role
    zone: str | None
    created_at: float


@dataclass(frozen=True, slots=True)
class Identity:
    platform: str
    account: str
    native_id: str
    person_id: PersonId
    display_name: str | None
    created_at: float


class People(StorePart):
    """Finds or creates people, links identities, gives roles."""

    def ensure(
        self,
        *,
        platform: str,
        native_id: str,
        account: str = "",
        display_name: str | None = None,
        role: Role = "guest",
    ) -> Person:
        """The person of an identity; a new one is created with `role`, a known one stays unchanged."""
        key = identity_key(platform, account, native_id)
        known = self._one(_person, Q.by_identity, key)
        return known or self.engine.write(lambda conn: self.ensure_in(conn, key, display_name, role))

    def ensure_in(self, conn: Connection, key: IdentityKey, display_name: str | None, role: Role) -> Person:
        """Like `ensure`, in the caller's transaction."""
        check_role(role)
        known = first(conn.rows(Q.by_identity, key))
        if known is not None:
            return Person(*known)
        name, now = columns.note(display_name), self._store.clock()
        person = Person(new_person_id(), name, role, None, now)
        conn.run(Q.add, (person.id, name, role, None, now))
        if conn.run(Q.link, (*key, person.id, name, now)):
            if role != "guest":  # an open platform lets in any number of guests, and none of them has rights
                touch(conn)
            return person
        conn.run(Q.remove, (person.id,))  # another process met the same stranger at the same moment
        return Person(*conn.rows(Q.by_identity, key)[0])

    def owner(self) -> Person:
        """The user of this machine's terminal, who owns conversations begun there."""
        return self.get(LOCAL_OWNER) or self.engine.write(self.owner_in)

    def owner_in(self, conn: Connection) -> Person:
        """Like `owner`, in the caller's transaction."""
        now = self._store.clock()
        conn.run(Q.add, (LOCAL_OWNER, None, "owner", None, now))
        conn.run(Q.link, (LOCAL, "", "owner", LOCAL_OWNER, None, now))
        return Person(*conn.rows(Q.get, (LOCAL_OWNER,))[0])

    def api_client(self) -> Person:
        """The holder of the HTTP API's client key: one person with their own conversations."""
        return self.get(API_CLIENT) or self.engine.write(self._api_client_in)

    def _api_client_in(self, conn: Connection) -> Person:
        conn.run(Q.add, (API_CLIENT, "API client", "member", None, self._store.clock()))
        touch(conn)
        return Person(*conn.rows(Q.get, (API_CLIENT,))[0])

    @in_transaction
    def move(
        self, conn: Connection, person_id: PersonId, *, platform: str, native_id: str, display_name: str | None = None
    ) -> bool:
        """Give the identity to this person, whoever had it; False when it already was theirs.

        Whether it is kept out by hand (`pairings`) stays unchanged.
        """
        key = identity_key(platform, "", native_id)
        known = first(conn.rows(Q.by_identity, key))
        if known is not None and known[0] == person_id:
            return False
        unlink_in(conn, key)
        self.link_in(conn, person_id, key, display_name)
        return True

    def find(self, *, platform: str, native_id: str, account: str = "") -> Person | None:
        return self._one(_person, Q.by_identity, identity_key(platform, account, native_id))

    def known_as(self, *, platform: str, native_id: str) -> tuple[Person, ...]:
        """Everybody with this id, under any of our accounts."""
        identity_key(platform, "", native_id)
        return tuple(map(_person, self._rows(Q.known_as, (platform, native_id))))

    def get(self, person_id: PersonId) -> Person | None:
        return self._one(_person, Q.get, (person_id,))

    def list(self, *, limit: int = 1_000, offset: int = 0) -> tuple[Person, ...]:
        """People in the order in which we met them."""
        return tuple(Person(*row) for row in self._rows(Q.list, (limit, offset)))

    def count(self) -> int:
        found: int = scalar(self._rows(Q.count))
        return found

    def identities(self, person_id: PersonId) -> tuple[Identity, ...]:
        return tuple(Identity(*row) for row in self._rows(Q.identities, (person_id,)))

    def link_in(self, conn: Connection, person_id: PersonId, key: IdentityKey, display_name: str | None = None) -> None:
        """Add an identity to a person; an error when somebody else has it."""
        if not conn.rows(Q.get, (person_id,)):
            raise _nobody(person_id)
        if conn.run(Q.link, (*key, person_id, columns.note(display_name), self._store.clock())):
            touch(conn)
        elif conn.rows(Q.by_identity, key)[0][0] != person_id:
            raise IntegrityError(f"{key[0]} {key[2]} belongs to another person", hint="Unlink it there first.")

    def set_role(self, person_id: PersonId, role: Role) -> None:
        """Set a role; the person at this machine stays the owner."""
        self._store.engine.write(lambda conn: set_role_in(conn, person_id, role))

    @in_transaction
    def set_zone(self, conn: Connection, person_id: PersonId, zone: str | None) -> None:
        """Set an IANA zone such as Europe/Lisbon; None for the machine's."""
        from hermes_state.people import budgets

        if zone is not None:
            _check_zone(zone)
        known = first(conn.rows(Q.get, (person_id,)))
        if known is None:
            raise _nobody(person_id)
        if known[3] != zone:
            budgets.keep_zone(conn, person_id, known[3], self._store.clock())
            conn.run(Q.set_zone, (zone, person_id))

    def set_name(self, person_id: PersonId, display_name: str | None) -> None:
        if not self._run(Q.set_name, (columns.note(display_name), person_id)):
            raise _nobody(person_id)


def identity_key(platform: str, account: str, native_id: str) -> IdentityKey:
    """The key of an identity, or an error when one of the three parts cannot be stored."""
    columns.outside_key(platform=platform, account=account, native_id=native_id)
    return platform, account, native_id


def _person(row: Row) -> Person:
    return Person(*row)


def unlink_in(conn: Connection, key: IdentityKey) -> bool:
    """Unlink the identity (platform, account, native id) from its person; False when it had none."""
    if not conn.run(Q.unlink, key):
        return False
    touch(conn)
    return True


def set_role_in(conn: Connection, person_id: PersonId, role: Role) -> None:
    check_role(role)
    if person_id == LOCAL_OWNER and role != "owner":
        raise InvalidValue("the person at this machine always stays the owner")
    if person_id == API_CLIENT and role not in ("member", "guest"):
        hint = "hermes api key --role owner makes a key that is the owner's."
        raise InvalidValue("a client of the API is never more than a member", hint=hint)
    if not conn.run(Q.set_role, (role, person_id)):
        raise _nobody(person_id)
    touch(conn)


def touch(conn: Connection) -> None:
    """Announce to every process that rights have changed. The value is random: no restored copy repeats one."""
    meta.put(conn, _VERSION, os.urandom(8).hex())


def version_in(conn: Connection) -> str:
    """Changes when anybody's rights do."""
    return meta.get(conn, _VERSION) or ""


def _nobody(person_id: str) -> StateError:
    return StateError(f"no person {person_id!r:.80}")


def check_role(role: str) -> None:
    if role not in get_args(Role):
        raise InvalidValue(f"no such role: {role!r:.40}", hint=f"One of {', '.join(get_args(Role))}.")


def _check_zone(zone: str) -> None:
    import zoneinfo  # not needed to open a store

    try:
        zoneinfo.ZoneInfo(zone)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidValue(f"no such time zone: {zone!r:.60}", hint="For example Europe/Lisbon.") from None
