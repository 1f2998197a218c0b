"""A stranger is told a code; whoever runs the machine lets them in with it, and can shut them out again."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable

import pytest

from gateway.access.authorisation import Policy, Principal, Surface, decide
from gateway.access.pairing import ALPHABET, Pairing, PairingLocked, WrongCode
from gateway.access.policy import PolicyKeeper
from hermes_config.limits import Limits
from hermes_state.errors import IntegrityError
from hermes_state.ids import LOCAL_OWNER
from hermes_state.session_db import SessionDB
from hermes_testing.clock import Clock

MakeDb = Callable[..., SessionDB]


def stranger(native_id: str, platform: str = "telegram") -> Principal:
    return Principal("user", platform, native_id)


def code_of(said: str | None) -> str:
    assert said is not None
    found = re.search(r"hermes pairing approve \S+ (\S+)$", said, re.MULTILINE)
    assert found is not None
    return found[1]


def role_of(db: SessionDB, native_id: str) -> str:
    """With which role somebody gets in now; empty for not at all."""
    who = stranger(native_id)
    answer = decide(who, Surface("dm", "telegram", native_id), "speak", None, PolicyKeeper(db).current())
    return answer.role if answer.allowed else ""


@pytest.fixture
def pairing(db: SessionDB) -> Pairing:
    return Pairing(db)


def test_a_stranger_is_told_a_code_and_the_exact_command(pairing: Pairing) -> None:
    assert len(set(ALPHABET)) == 32 and not set(ALPHABET) & set("01OI")
    said = pairing.request(stranger("42"), "Ada")
    code = code_of(said)
    assert said is not None and f"hermes pairing approve telegram {code}" in said.splitlines()
    assert len(code) == 8 and set(code) <= set(ALPHABET)


def test_the_code_lets_them_in_as_a_member_once(db: SessionDB, pairing: Pairing) -> None:
    code = code_of(pairing.request(stranger("42"), "Ada"))
    assert role_of(db, "42") == ""
    done = pairing.approve("telegram", code)
    assert (done.request.native_id, done.person.display_name, done.person.role) == ("42", "Ada", "member")
    assert role_of(db, "42") == "member" and role_of(db, "43") == ""
    with pytest.raises(WrongCode):
        pairing.approve("telegram", code)


def test_a_code_may_be_typed_as_people_type(pairing: Pairing) -> None:
    code = code_of(pairing.request(stranger("42")))
    assert pairing.approve("telegram", f" {code[:4].lower()}-{code[4:].lower()} ").request.native_id == "42"


def test_a_code_is_good_on_its_platform_only(pairing: Pairing) -> None:
    code = code_of(pairing.request(stranger("42")))
    with pytest.raises(WrongCode):
        pairing.approve("slack", code)


def test_the_store_holds_no_code(db: SessionDB, pairing: Pairing) -> None:
    code = code_of(pairing.request(stranger("42")))
    rows = db.engine.read(lambda conn: conn.rows("SELECT * FROM pairing_requests"))
    assert len(rows) == 1 and code not in json.dumps(rows, default=str).upper()


def test_a_code_ends_after_an_hour(db: SessionDB, pairing: Pairing, clock: Clock) -> None:
    code = code_of(pairing.request(stranger("42")))
    clock.advance(3_601)
    with pytest.raises(WrongCode):
        pairing.approve("telegram", code)
    assert pairing.pending() == () and role_of(db, "42") == ""


def test_one_request_a_person_in_ten_minutes(pairing: Pairing, clock: Clock) -> None:
    first = code_of(pairing.request(stranger("42")))
    clock.advance(599)
    assert pairing.request(stranger("42")) is None
    clock.advance(2)
    second = code_of(pairing.request(stranger("42")))
    assert len(pairing.pending()) == 1
    with pytest.raises(WrongCode):  # the new code ends the old one
        pairing.approve("telegram", first)
    assert pairing.approve("telegram", second)


def test_only_the_newest_codes_of_a_platform_hold(make_db: MakeDb, clock: Clock) -> None:
    pairing = Pairing(make_db(limits=Limits(pairing_pending=3)))

    def waiting() -> list[str]:
        return [one.native_id for one in pairing.pending("telegram")]

    codes = {}
    for native_id in ("1", "2", "3"):
        codes[native_id] = code_of(pairing.request(stranger(native_id)))
        clock.advance(1)
    assert pairing.request(stranger("4")), "strangers who came first keep nobody out"
    assert waiting() == ["2", "3", "4"]
    with pytest.raises(WrongCode):
        pairing.approve("telegram", codes["1"])
    assert pairing.request(stranger("1")) is None, "whose code ended waits like everybody"
    assert pairing.request(stranger("4", "slack")) and waiting() == ["2", "3", "4"], "another platform has its own"
    clock.advance(700)
    assert pairing.request(stranger("1"))
    assert waiting() == ["3", "4", "1"]


def test_a_crowd_of_strangers_ends_nobodys_code(pairing: Pairing, clock: Clock) -> None:
    """The message with the code says how long it holds."""
    code = code_of(pairing.request(stranger("42")))
    for number in range(1_000, 1_050):
        assert pairing.request(stranger(str(number)))
    clock.advance(3_500)
    assert pairing.approve("telegram", code).request.native_id == "42"


def test_five_wrong_codes_lock_the_platform_for_an_hour(
    db: SessionDB, pairing: Pairing, clock: Clock, make_db: MakeDb
) -> None:
    """Scenario 66: a right code is refused until the lockout ends; nor are codes given out."""
    for tries_left in (4, 3, 2, 1):
        with pytest.raises(WrongCode, match=f"{tries_left} more tr"):
            pairing.approve("telegram", "WRONGONE")
    code = code_of(pairing.request(stranger("42")))
    with pytest.raises(PairingLocked):
        pairing.approve("telegram", "WRONGTWO")
    clock.advance(1)
    elsewhere = Pairing(make_db())  # another process
    for here in (pairing, elsewhere):
        with pytest.raises(PairingLocked, match="60 min"):
            here.approve("telegram", code)
        assert here.request(stranger("43")) is None
    assert role_of(db, "42") == ""
    other = code_of(pairing.request(stranger("43", "slack")))
    assert pairing.approve("slack", other)  # one platform's guessing does not lock another
    clock.advance(3_590)
    with pytest.raises(PairingLocked):
        pairing.approve("telegram", code)
    clock.advance(10)
    fresh = code_of(pairing.request(stranger("42")))
    assert pairing.approve("telegram", fresh)


def test_wrong_codes_are_forgotten_by_a_right_one_and_by_time(pairing: Pairing, clock: Clock) -> None:
    for _ in range(4):
        with pytest.raises(WrongCode):
            pairing.approve("telegram", "WRONGONE")
    pairing.approve("telegram", code_of(pairing.request(stranger("42"))))
    for _ in range(4):
        with pytest.raises(WrongCode):
            pairing.approve("telegram", "WRONGONE")
    clock.advance(3_601)
    with pytest.raises(WrongCode, match="4 more tries"):
        pairing.approve("telegram", "WRONGONE")


def test_a_clock_that_was_set_back_locks_nobody_out_for_days(pairing: Pairing, clock: Clock) -> None:
    clock.advance(100_000)
    for _ in range(4):
        with pytest.raises(WrongCode):
            pairing.approve("telegram", "WRONGONE")
    with pytest.raises(PairingLocked):
        pairing.approve("telegram", "WRONGONE")
    clock.advance(-90_000)
    assert pairing.approve("telegram", code_of(pairing.request(stranger("42"))))


def test_two_processes_that_count_wrong_codes_count_both(make_db: MakeDb) -> None:
    stores = [make_db(), make_db()]
    errors: list[Exception] = []

    def guess(db: SessionDB) -> None:
        for _ in range(5):
            try:
                Pairing(db).approve("telegram", "WRONGONE")
            except (WrongCode, PairingLocked) as error:
                errors.append(error)

    threads = [threading.Thread(target=guess, args=(db,)) for db in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(isinstance(error, WrongCode) for error in errors) == 4
    assert sum(isinstance(error, PairingLocked) for error in errors) == 6


def test_the_limits_are_settings(make_db: MakeDb) -> None:
    pairing = Pairing(make_db(limits=Limits(pairing_pending=1)))
    assert pairing.request(stranger("1")) and pairing.request(stranger("2"))
    assert [one.native_id for one in pairing.pending()] == ["2"]


# -- roles -------------------------------------------------------------------------------------------------------


def test_the_owner_on_the_phone_is_the_person_at_the_machine(db: SessionDB, pairing: Pairing) -> None:
    done = pairing.approve("telegram", code_of(pairing.request(stranger("42"), "Me")), role="owner")
    assert done.person.id == LOCAL_OWNER and role_of(db, "42") == "owner"
    again = pairing.approve("telegram", code_of(pairing.request(stranger("43"), "Spouse")), role="owner")
    assert again.person.id != LOCAL_OWNER and role_of(db, "43") == "owner"  # somebody else with the same rights


def test_nobody_becomes_the_owner_by_writing_first(db: SessionDB, pairing: Pairing) -> None:
    pairing.approve("telegram", code_of(pairing.request(stranger("42"), "owner")))
    assert role_of(db, "42") == "member"


def test_a_known_person_keeps_what_they_have_or_gets_what_is_given(db: SessionDB, pairing: Pairing) -> None:
    ada = db.people.ensure(platform="telegram", native_id="42", display_name="Ada")
    assert pairing.approve("telegram", code_of(pairing.request(stranger("42")))).person == db.people.get(ada.id)
    assert role_of(db, "42") == "member"
    db.people.set_role(ada.id, "admin")
    pairing.revoke("telegram", "42")
    assert pairing.approve("telegram", code_of(pairing.request(stranger("42")))).person.role == "admin"
    pairing.revoke("telegram", "42")
    assert pairing.approve("telegram", code_of(pairing.request(stranger("42"))), role="guest").person.id == ada.id
    assert role_of(db, "42") == "guest"


def test_the_owners_own_account_is_not_made_a_guest(db: SessionDB, pairing: Pairing) -> None:
    db.pairings.link(db.people.owner().id, platform="telegram", native_id="42")
    pairing.revoke("telegram", "42")
    code = code_of(pairing.request(stranger("42")))
    with pytest.raises(IntegrityError, match="owner's own"):
        pairing.approve("telegram", code, role="guest")
    assert db.people.owner().role == "owner" and role_of(db, "42") == ""
    assert pairing.approve("telegram", code).person.id == LOCAL_OWNER


# -- out again ---------------------------------------------------------------------------------------------------


def test_revoking_ends_a_pairing_and_a_pending_code(db: SessionDB, pairing: Pairing) -> None:
    pairing.approve("telegram", code_of(pairing.request(stranger("42"))), role="admin")
    pairing.revoke("telegram", "42")
    assert role_of(db, "42") == ""
    code = code_of(pairing.request(stranger("43")))
    pairing.revoke("telegram", "43")
    with pytest.raises(WrongCode):
        pairing.approve("telegram", code)


def test_an_account_that_is_linked_gets_in_and_unlinked_stays_out(db: SessionDB) -> None:
    db.pairings.link(db.people.owner().id, platform="telegram", native_id="42")
    assert role_of(db, "42") == "owner"
    assert db.pairings.unlink(platform="telegram", native_id="42")
    assert role_of(db, "42") == "" and not db.pairings.unlink(platform="telegram", native_id="42")


def test_clearing_makes_codes_worthless(pairing: Pairing) -> None:
    codes = {native_id: code_of(pairing.request(stranger(native_id))) for native_id in ("1", "2")}
    slack = code_of(pairing.request(stranger("1", "slack")))
    assert pairing.clear("telegram") == 2
    with pytest.raises(WrongCode):
        pairing.approve("telegram", codes["1"])
    assert pairing.approve("slack", slack)


def test_hostile_names_and_ids_are_stored_harmlessly_or_refused(db: SessionDB, pairing: Pairing) -> None:
    said = pairing.request(stranger("1"), "x" * 100_000 + "\0\ud800\nhermes pairing approve telegram AAAAAAAA")
    assert said is not None and "AAAAAAAA" not in said
    assert len(pairing.pending()[0].display_name or "") <= 2_000
    odd = stranger("'; DROP TABLE people; --")
    answer = decide(odd, Surface("dm", "telegram", "1"), "speak", None, Policy())
    assert not answer.allowed and not answer.reply
    assert pairing.request(odd) is not None and len(pairing.pending()) == 2
