"""Letting people in and keeping them out by hand, and strangers' requests for it.

A request stores a salted hash of its code, never the code. `ask` and `approve` are one transaction each and hold the
platform's guard row, so the limits (requests waiting, requests per person, wrong codes) apply to the database, however
many processes use it. Wrong codes lock a platform for a while: no code is issued and none is accepted, right ones
included.

Who is let in (`paired`) or kept out (`revoked`) is a separate row beside the identity: being known is not being
allowed. `gateway.access.pairing` defines the form of codes and the texts around them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Literal, NamedTuple

from hermes_state import columns
from hermes_state.errors import IntegrityError
from hermes_state.ids import LOCAL_OWNER, PersonId
from hermes_state.people import people
from hermes_state.people.people import People, Person, Role
from hermes_state.storage.base import Connection, Row, Store, StorePart, first, in_transaction, scalar
from hermes_state.storage.statements import Queries

Q = Queries("pairings")


class Request(NamedTuple):
    platform: str
    account: str
    native_id: str
    display_name: str | None
    requested_at: float
    expires_at: float


class Standing(NamedTuple):
    platform: str
    account: str
    native_id: str
    person_id: PersonId | None
    role: Role
    state: Literal["paired", "revoked", "seen"]
    display_name: str | None
    since: float | None


class Approved(NamedTuple):
    request: Request
    person: Person


class Refused(NamedTuple):
    """A code that fits no request, or any code while the platform is locked."""

    locked_until: float | None
    tries_left: int


Asked = Literal["issued", "early", "locked"]


class Pairings(StorePart):
    """Stores requests, approves and revokes them."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._people = People(store)

    def ask(
        self, *, platform: str, native_id: str, salt: str, code_hash: str, account: str = "", name: str | None = None
    ) -> Asked:
        """Record that somebody gets a code; any result but `issued` means that they must not get it."""
        key, limits, now = people.identity_key(platform, account, native_id), self._store.limits, self._store.clock()
        until = now + limits.pairing_seconds
        # A stranger who keeps writing costs a read each time, not a transaction.
        refused = self._store.engine.read(
            lambda conn: self._refusal(conn, key, now, first(conn.rows(Q.guarded, (platform,))))
        )
        if refused is not None:
            return refused

        def run(conn: Connection) -> Asked:
            refused = self._refusal(conn, key, now, self._guard(conn, platform))
            if refused is not None:
                return refused
            conn.run(Q.forget, (platform, now, now - limits.pairing_wait_seconds))
            conn.run(Q.put_request, (*key, columns.note(name), salt, code_hash, now, until))
            # The oldest codes expire: else the first strangers could keep everybody else from getting one.
            conn.run(Q.end_oldest, (now, platform, now, platform, now, account, native_id, limits.pairing_pending))
            return "issued"

        return self._store.engine.write(run)

    def _guard(self, conn: Connection, platform: str) -> Row:
        conn.run(Q.guard, (platform,))
        return conn.rows(Q.guarded.locked, (platform,))[0]

    def _refusal(self, conn: Connection, key: tuple[str, str, str], now: float, guard: Row | None) -> Asked | None:
        limits = self._store.limits
        if guard is not None and self._locked_until(guard, now) is not None:
            return "locked"
        asked = scalar(conn.rows(Q.asked_at, key))
        # A time in the future means that the clock was set back; nobody waits for it.
        if asked is not None and 0 <= now - asked < limits.pairing_wait_seconds:
            return "early"
        return None

    def _locked_until(self, guard: Row, now: float) -> float | None:
        until: float | None = guard[2]
        return until if until is not None and 0 < until - now <= self._store.limits.pairing_lockout_seconds else None

    @in_transaction
    def approve(
        self, conn: Connection, platform: str, fits: Callable[[str, str], bool], *, role: Role | None = None
    ) -> Approved | Refused:
        """Let in the person whose code satisfies `fits(salt, hash)`; a code that fits nothing is counted."""
        if role is not None:
            people.check_role(role)
        now = self._store.clock()
        guard = self._guard(conn, platform)
        locked = self._locked_until(guard, now)
        if locked is not None:
            return Refused(locked, 0)
        for salt, code_hash, *rest in conn.rows(Q.codes, (platform, now)):
            if fits(salt, code_hash):
                request = Request(*rest)
                person = self._let_in(conn, request, role, now)
                conn.run(Q.set_guard, (0, 0, None, platform))
                return Approved(request, person)
        return self._count_wrong(conn, platform, guard, now)

    def _count_wrong(self, conn: Connection, platform: str, guard: Row, now: float) -> Refused:
        limits = self._store.limits
        failures, failed_at, _ = guard
        recent = 0 <= now - failed_at < limits.pairing_lockout_seconds
        failures = failures + 1 if recent else 1
        left = limits.pairing_failures - failures
        until = now + limits.pairing_lockout_seconds if left <= 0 else None
        conn.run(Q.set_guard, (0 if until else failures, now, until, platform))
        return Refused(until, max(0, left))

    def _let_in(self, conn: Connection, request: Request, role: Role | None, now: float) -> Person:
        key = (request.platform, request.account, request.native_id)
        known = first(conn.rows(people.Q.by_identity, key))
        if known is None and role == "owner" and not conn.rows(Q.has_identity, (LOCAL_OWNER, *key[:2])):
            # The person at this machine, on this platform for the first time: both accounts are one person.
            person = self._people.owner_in(conn)
            conn.run(people.Q.link, (*key, person.id, request.display_name, now))
        elif known is None:
            person = self._people.ensure_in(conn, key, request.display_name, role or "member")
        else:
            person = self._with_role(conn, Person(*known), role)
        conn.run(Q.set_state, (*key, "paired", now))
        conn.run(Q.drop_request, key)
        people.touch(conn)
        return person

    def _with_role(self, conn: Connection, person: Person, role: Role | None) -> Person:
        """A known person's role: the given one, else their own, but at least member."""
        wanted = role or ("member" if person.role == "guest" else person.role)
        if person.id == LOCAL_OWNER and wanted != "owner":
            raise IntegrityError("that is the owner's own account", hint="`hermes people unlink` it first.")
        people.set_role_in(conn, person.id, wanted)
        return Person(*conn.rows(people.Q.get, (person.id,))[0])

    # -- by hand -----------------------------------------------------------------------------------------

    @in_transaction
    def link(self, conn: Connection, person_id: PersonId, *, platform: str, native_id: str, account: str = "") -> None:
        """Link this account to that person and let it in."""
        now, key = self._store.clock(), people.identity_key(platform, account, native_id)
        self._people.link_in(conn, person_id, key)
        conn.run(Q.set_state, (*key, "paired", now))
        conn.run(Q.drop_request, key)
        people.touch(conn)

    @in_transaction
    def unlink(self, conn: Connection, *, platform: str, native_id: str, account: str = "") -> bool:
        """Unlink this account from its person and keep it out; False when it had none."""
        now, key = self._store.clock(), (platform, account, native_id)
        if not people.unlink_in(conn, key):
            return False
        conn.run(Q.set_state, (*key, "revoked", now))
        return True

    @in_transaction
    def revoke(self, conn: Connection, *, platform: str, native_id: str, account: str | None = None) -> tuple[str, ...]:
        """Keep somebody out, under one of our accounts or all; returns which. They stay known and keep their data."""
        people.identity_key(platform, account or "", native_id)
        now = self._store.clock()
        found = {"", *(row[0] for row in conn.rows(Q.accounts, (platform, native_id, platform, native_id)))}
        chosen = sorted(found) if account is None else [account]
        for one in chosen:
            conn.run(Q.set_state, (platform, one, native_id, "revoked", now))
            conn.run(Q.drop_request, (platform, one, native_id))
        people.touch(conn)
        return tuple(chosen)

    # -- reads -------------------------------------------------------------------------------------------

    def pending(self) -> tuple[Request, ...]:
        """Requests that wait for approval."""
        now = self._store.clock()
        return tuple(Request(*row) for row in self._rows(Q.waiting, (now,)))

    def locked_until(self, platform: str) -> float | None:
        now = self._store.clock()
        guard = first(self._rows(Q.guarded, (platform,)))
        return None if guard is None else self._locked_until(guard, now)

    def clear(self, platform: str | None = None) -> int:
        """Delete requests; their codes become invalid."""
        statement, params = (Q.clear, ()) if platform is None else (Q.clear_platform, (platform,))
        return self._run(statement, params)

    def standings(self, listed: Collection[str] = ()) -> tuple[str, tuple[Standing, ...]]:
        """The facts for decisions about identities, and their version.

        Everybody who has a role, was let in or was kept out, and everybody with an id in `listed`.
        """
        wanted = columns.texts(sorted(listed))

        def read(conn: Connection) -> tuple[str, list[Row]]:
            return people.version_in(conn), conn.rows(Q.standings, (wanted,))

        version, found = self._store.engine.read(read, snapshot=True)
        return version, tuple(Standing(*row) for row in found)

    def version(self) -> str:
        """Changes with every change of the result of `standings`: one indexed read."""
        return self._store.engine.read(people.version_in)
