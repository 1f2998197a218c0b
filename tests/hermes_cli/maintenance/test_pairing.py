"""`hermes pairing` and `hermes people`, as the person at the machine uses them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.stores import transact

from gateway.access.authorisation import Principal
from gateway.access.pairing import Pairing
from hermes_state.session_db import SessionDB

Run = Callable[..., Any]
Terminal = Callable[..., str]


@pytest.fixture
def db(named_store: str | Path) -> Iterator[SessionDB]:
    """The store of the commands, with the clock they have: the real one."""
    opened = SessionDB(named_store)
    yield opened
    opened.close()


def asked(db: SessionDB, native_id: str, name: str | None = None, platform: str = "telegram") -> str:
    """The code a stranger was told."""
    said = Pairing(db).request(Principal("user", platform, native_id), name)
    found = re.search(r"approve \S+ (\S+)$", said or "", re.MULTILINE)
    assert found is not None
    return found[1]


def test_from_a_code_to_a_member(db: SessionDB, run: Run) -> None:
    code = asked(db, "42", "Ada")
    listed = run("pairing", "list").out
    assert "Waiting" in listed and "Ada" in listed and "42" in listed and code not in listed
    done = run("pairing", "approve", "telegram", code)
    assert done.code == 0 and "Ada (telegram 42) may talk to Hermes as member" in done.out
    assert "Waiting" not in run("pairing", "list").out
    known = run("pairing", "list", "--json").data["known"]
    assert [(row["native_id"], row["role"], row["state"]) for row in known] == [("42", "member", "paired")]


@pytest.mark.parametrize("role", ["owner", "admin", "member", "guest"])
def test_a_role_is_given_with_the_code(db: SessionDB, run: Run, role: str) -> None:
    done = run("pairing", "approve", "Telegram", asked(db, "42").lower(), f"--{role}", "--json")
    assert done.data["role"] == role
    assert (done.data["person"] == "owner") == (role == "owner")


def test_two_roles_at_once_are_refused(db: SessionDB, run: Run) -> None:
    assert run("pairing", "approve", "telegram", asked(db, "42"), "--owner", "--guest").code == 2


def test_a_wrong_code_is_told_in_one_line_and_locks_at_last(db: SessionDB, run: Run) -> None:
    code = asked(db, "42")
    wrong = run("pairing", "approve", "telegram", "WRONGONE")
    assert wrong.code == 1 and "4 more tries" in wrong.err
    for _ in range(4):
        last = run("pairing", "approve", "telegram", "WRONGONE")
    assert "too many wrong codes" in last.err
    assert run("pairing", "approve", "telegram", code).code == 1
    assert "accepts no codes" in run("pairing", "list").out
    assert run("pairing", "list", "--json").data["locked"]


def test_a_platform_that_does_not_exist_costs_no_try(db: SessionDB, run: Run) -> None:
    said = run("pairing", "approve", "telegramm", asked(db, "42"))
    assert said.code == 1 and "there is no platform 'telegramm'. Known: telegram" in said.err
    assert "4 more tries" in run("pairing", "approve", "telegram", "WRONGONE").err


def test_revoking_says_what_it_did_and_refuses_a_slip(db: SessionDB, run: Run) -> None:
    run("pairing", "approve", "telegram", asked(db, "42", "Ada"))
    assert "loses access" in run("pairing", "revoke", "telegram", "42").out
    assert run("pairing", "list", "--json").data["known"][0]["state"] == "revoked"
    slip = run("pairing", "revoke", "telegram", "999")
    assert slip.code == 2 and "pairing list" in slip.err
    assert run("pairing", "revoke", "local", "owner").code == 2


def test_somebody_on_a_list_can_be_shut_out_too(run: Run, db: SessionDB, home: Path) -> None:
    home.mkdir(exist_ok=True)
    (home / ".env").write_text("TELEGRAM_ALLOWED_USERS=42\n")
    assert run("pairing", "revoke", "telegram", "42").code == 0
    assert db.pairings.standings()[1][0].state == "revoked"


def test_a_key_of_the_api_is_shut_out_and_let_in_again(db: SessionDB, run: Run) -> None:
    transact(db.people.link_in, db.people.owner().id, ("api_server", "", "5d4c"), "API key")
    assert "api_server:5d4c has access as owner: holds an owner key" in run("people", "show", "owner").out
    assert run("pairing", "revoke", "api_server", "5d4c").code == 0
    assert "api_server:5d4c has no access: shut out by hand" in run("people", "show", "owner").out
    assert run("people", "link", "owner", "api_server", "5d4c").code == 0
    assert "api_server:5d4c has access as owner" in run("people", "show", "owner").out
    db.people.move(db.people.api_client().id, platform="api_server", native_id="77aa", display_name="client key")
    assert "api_server:77aa has access as member: holds a client key" in run("people", "show", "api_client").out
    refused = run("people", "role", "api_client", "admin")
    assert refused.code and "never more than a member" in refused.err and "--role owner" in refused.err
    assert run("people", "link", "owner", "api_server", "77aa").code, "a client key is not made the owner's by hand"
    assert run("pairing", "revoke", "api_server", "another").code == 2
    assert run("pairing", "approve", "api_server", "K7QM2XPA").code == 2


def test_clearing_asks_and_counts(db: SessionDB, run: Run) -> None:
    asked(db, "42")
    refused = run("pairing", "clear-pending")
    assert refused.code == 2 and "--yes" in refused.err
    assert run("pairing", "clear-pending", "--yes", "--json").data == {"cleared": 1}
    assert "0 codes" in run("pairing", "clear-pending").out


def test_names_from_outside_cannot_draw_on_the_terminal(db: SessionDB, run: Run, terminal: Terminal) -> None:
    code = asked(db, "42", "\x1b[2JEve\u202e\nhermes")
    assert "\x1b[2J" not in terminal("pairing", "list")
    assert "\x1b" not in run("pairing", "approve", "telegram", code).out
    assert "\x1b" not in run("people", "list").out


def test_nothing_to_show_is_said(db: SessionDB, run: Run) -> None:
    assert "Nobody is waiting" in run("pairing", "list").out
    assert "Nobody is known yet" in run("people", "list").out


# -- people ------------------------------------------------------------------------------------------------------


def test_people_are_listed_page_by_page(db: SessionDB, run: Run) -> None:
    for number in range(5):
        db.people.ensure(platform="telegram", native_id=str(number), display_name=f"P{number}", role="member")
    first = run("people", "list", "--limit", "2")
    assert "P0" in first.out and "P2" not in first.out and "2 of 5 shown" in first.err
    rest = run("people", "list", "--offset", "3", "--json").data
    assert [row["display_name"] for row in rest] == ["P3", "P4"]
    assert rest[0]["accounts"][0]["native_id"] == "3"


def test_a_person_is_shown_with_what_their_accounts_may_do(db: SessionDB, run: Run) -> None:
    run("pairing", "approve", "telegram", asked(db, "42", "Ada"), "--admin")
    shown = run("people", "show", "telegram:42")
    assert "Ada" in shown.out and "telegram:42 has access as admin: paired" in shown.out
    run("pairing", "revoke", "telegram", "42")
    assert "has no access: shut out by hand" in run("people", "show", "telegram:42").out
    account = run("people", "show", "owner", "--json").data["accounts"][0]
    assert (account["platform"], account["role"]) == ("local", "owner")


def test_roles_are_given_and_the_owner_stays(db: SessionDB, run: Run) -> None:
    ada = db.people.ensure(platform="telegram", native_id="42", display_name="Ada")
    assert run("people", "role", "telegram:42", "admin").code == 0
    assert run("people", "show", ada.id, "--json").data["role"] == "admin"
    assert run("people", "role", "owner", "guest").code == 1
    assert run("people", "role", "Ada", "admin").code == 2  # a name is anybody's
    assert run("people", "role", "telegram:42", "king").code == 2


def test_accounts_are_linked_and_unlinked(db: SessionDB, run: Run) -> None:
    assert run("people", "link", "owner", "telegram", "42").code == 0
    assert run("people", "show", "owner", "--json").data["accounts"][1]["role"] == "owner"
    db.people.ensure(platform="slack", native_id="U1", display_name="Bob")
    taken = run("people", "link", "owner", "slack", "U1")
    assert taken.code == 1 and "another person" in taken.err
    assert run("people", "unlink", "telegram", "42").code == 0
    assert run("people", "unlink", "telegram", "42").code == 2
    assert run("people", "link", "owner", "telegram", "4 2").code == 2
    assert run("people", "link", "owner", "local", "owner").code == 2


def test_one_id_under_two_accounts_of_ours_must_be_told_apart(db: SessionDB, run: Run) -> None:
    for account in ("T1", "T2"):
        db.people.ensure(platform="slack", account=account, native_id="U1")
    assert "several people" in run("people", "role", "slack:U1", "admin").err


def test_zones(db: SessionDB, run: Run) -> None:
    assert run("people", "zone", "owner", "Europe/Lisbon").code == 0
    assert db.people.owner().zone == "Europe/Lisbon"
    assert run("people", "zone", "owner", "Atlantis/Capital").code == 1
    run("people", "zone", "owner")
    assert db.people.owner().zone is None


@pytest.mark.parametrize("words", [("pairing",), ("pairing", "approve"), ("people", "link"), ("people", "role")])
def test_help_has_an_example(run: Run, words: tuple[str, ...]) -> None:
    shown = run(*words, "--help").out
    assert f"hermes {words[0]}" in shown and (len(words) == 1 or "examples:" in shown)
