"""People are known by stable ids, and nobody gets a role by writing to us."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
from tests.support.stores import transact

from hermes_state.errors import IntegrityError, InvalidValue, StateError
from hermes_state.ids import PersonId
from hermes_state.people.people import Person
from hermes_state.session_db import SessionDB
from hermes_state.storage.base import Connection


def test_an_identity_is_one_person(db: SessionDB, reopen: Callable[[SessionDB], SessionDB]) -> None:
    ana = db.people.ensure(platform="telegram", native_id="42", display_name="Ana")
    assert (ana.role, ana.display_name, ana.zone) == ("guest", "Ana", None)
    db = reopen(db)
    people = db.people
    assert people.ensure(platform="telegram", native_id="42", display_name="Owner", role="owner") == ana
    assert people.find(platform="telegram", native_id="42") == ana
    assert people.find(platform="telegram", account="second bot", native_id="42") is None
    assert people.find(platform="slack", native_id="42") is None
    assert people.get(ana.id) == ana and people.get(PersonId("nope")) is None


def test_a_name_decides_nothing(db: SessionDB) -> None:
    one = db.people.ensure(platform="telegram", native_id="1", display_name="Ana")
    two = db.people.ensure(platform="telegram", native_id="2", display_name="Ana")
    assert one.id != two.id


def test_the_terminal_user_is_the_owner(db: SessionDB) -> None:
    db.create_session("begun at the terminal", "cli")
    owner = db.people.owner()
    assert db.list_sessions_rich(owner=owner.id)
    assert owner.role == "owner" and db.people.owner() == owner
    assert db.people.list() == (owner,)


def test_identities_are_linked_to_one_person_only(db: SessionDB) -> None:
    people = db.people
    owner, ana = people.owner(), people.ensure(platform="telegram", native_id="42")
    transact(people.link_in, owner.id, ("slack", "team", "U1"), "me")
    transact(people.link_in, owner.id, ("slack", "team", "U1"))
    assert people.find(platform="slack", account="team", native_id="U1") == owner
    with pytest.raises(IntegrityError, match="another person"):
        transact(people.link_in, ana.id, ("slack", "team", "U1"))
    assert [(i.platform, i.native_id) for i in people.identities(owner.id)] == [("local", "owner"), ("slack", "U1")]
    assert db.pairings.unlink(platform="slack", account="team", native_id="U1")
    assert not db.pairings.unlink(platform="slack", account="team", native_id="U1")
    assert people.find(platform="slack", account="team", native_id="U1") is None
    with pytest.raises(StateError, match="no person"):
        transact(people.link_in, PersonId("nobody"), ("x", "", "1"))


def test_role_zone_and_name_can_be_set(db: SessionDB) -> None:
    people = db.people
    ana = people.ensure(platform="telegram", native_id="42")
    people.set_role(ana.id, "member")
    people.set_zone(ana.id, "Europe/Lisbon")
    people.set_name(ana.id, "Ana\0 \ud800")
    changed = people.get(ana.id)
    assert changed is not None
    assert (changed.role, changed.zone, changed.display_name) == ("member", "Europe/Lisbon", "Ana \ufffd")
    people.set_zone(ana.id, None)
    for wrong in ("Atlantis/Capital", "../../etc/passwd", "", "Europe/Lisbon\0"):
        with pytest.raises(InvalidValue):
            people.set_zone(ana.id, wrong)
    with pytest.raises(InvalidValue):
        people.set_role(ana.id, "king")
    with pytest.raises(StateError, match="no person"):
        people.set_role(PersonId("nobody"), "admin")


def test_two_processes_meeting_a_stranger_make_one_person(make_db: Callable[..., SessionDB]) -> None:
    here, there = make_db(), make_db()
    met: list[Person] = []
    other = threading.Thread(target=lambda: met.append(there.people.ensure(platform="telegram", native_id="42")))

    def meet(conn: Connection) -> None:
        met.append(here.people.ensure_in(conn, ("telegram", "", "42"), None, "guest"))
        other.start()
        time.sleep(0.3)  # the other one has looked, found nobody and is about to make the same person

    here._execute_write(meet)
    other.join()
    assert met[0] == met[1]
    assert here.people.list() == (met[0],)
