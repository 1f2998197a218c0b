"""`hermes approvals`: permissions in force are listed and can be revoked; the log shows what left the sandbox."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.sample_store import grants_of
from tests.support.stores import transact

from hermes_state import SessionDB
from hermes_state.ids import LOCAL_OWNER, ConversationId, PersonId, TurnId
from hermes_state.turns.approvals import Exit, Verdict, Wanted


@pytest.fixture
def granted(db: SessionDB, named_store: str | Path, home: Path) -> dict[str, str]:
    """Answers for the owner and for Bea, by what they allow."""
    home.mkdir()
    handle = db.ledger.open(source="cli")
    db.append_message(handle.session_id, "user", "tidy up")
    db.set_session_title(handle.session_id, "Tidying")
    lease = db.leases.acquire(handle.conversation_id, holder="test", ttl=60)
    assert lease is not None
    work = transact(
        db.turns.begin_in, conversation_id=handle.conversation_id, session_id=handle.session_id, fence=lease.fence
    )
    turn = TurnId(work.turn.id)

    def answer(what: str, verdict: Verdict, who: PersonId, *needs: list[str], **bounds: Any) -> str:
        asked = db.approvals.ask(
            conversation_id=ConversationId(handle.conversation_id), turn_id=turn, call_hash=f"h-{what}",
            call={"kind": "command", "text": what, "needs": list(needs)}, requester_id=who, approver_id=who, seconds=60,
        )  # fmt: skip
        assert db.approvals.decide(asked.id, verdict, approver_id=who, **bounds)
        return grants_of(db, asked.id)[0].id

    bea = db.people.ensure(platform="telegram", native_id="1", display_name="Bea").id
    made = {
        "always": answer("rm -r old", "always", LOCAL_OWNER),
        "session": answer("git push", "session", LOCAL_OWNER, ["network", "git"], uses=3),
        "task": answer("cp a /srv/x/a", "task", LOCAL_OWNER, ["folder", "/srv/x"]),
        "once": answer("make install", "once", LOCAL_OWNER),
        "bea": answer("rm -r hers", "always", bea),
        "who": bea,
    }
    where = {"conversation_id": ConversationId(handle.conversation_id), "turn_id": turn}
    assert db.approvals.spend(**where, call_hash="h-make install", person_id=LOCAL_OWNER)
    assert db.approvals.spend(
        **where, call_hash="h-other push", person_id=LOCAL_OWNER, needs=(Wanted("network"),),
        leaves=Exit("command", "git push\x1b[2J", "/w", "network", "d1"),
    )  # fmt: skip
    db.approvals.log_exit(
        Exit("command", "terraform plan", "/w", "network", "d2"), **where, person_id=bea, rule="command_allowlist"
    )
    return made


def test_everybodys_permissions_are_listed_with_what_is_left_of_them(granted: dict[str, str], run: Any) -> None:
    shown = run("approvals", "list").out
    lines = {row.split()[0]: row for row in shown.splitlines() if row.startswith("grant_")}
    assert set(lines) == {granted[name] for name in ("always", "session", "task", "bea")}, "what is used up is gone"
    assert "exactly: rm -r old" in lines[granted["always"]] and "when revoked" in lines[granted["always"]]
    assert "network" in lines[granted["session"]] and "after 2 uses more" in lines[granted["session"]]
    assert "Tidying" in lines[granted["session"]]
    assert "writes to /srv/x" in lines[granted["task"]] and "with its task" in lines[granted["task"]]
    assert "Bea" in lines[granted["bea"]]
    rows = {row["id"]: row for row in run("approvals", "list", "--json").data}
    session = rows[granted["session"]]
    assert (session["kind"], session["span"], session["uses_left"]) == ("network", "conversation", 2)
    assert [row["id"] for row in run("approvals", "list", "--json", "--person", granted["who"]).data] == [
        granted["bea"]
    ]


def test_what_is_revoked_allows_nothing_any_more(db: SessionDB, granted: dict[str, str], run: Any) -> None:
    (here,) = db.approvals.grants(person_id=PersonId(granted["who"]))
    call = {
        "conversation_id": here.conversation_id, "turn_id": TurnId("t9"), "call_hash": "h-rm -r hers",
        "person_id": PersonId(granted["who"]),
    }  # fmt: skip
    assert db.approvals.spend(**call)
    assert run("approvals", "revoke", granted["bea"]).out == "Revoked: exactly: rm -r hers\n"
    assert not db.approvals.spend(**call)
    assert "hers" not in run("approvals", "list").out


def test_only_what_is_in_force_can_be_revoked(granted: dict[str, str], run: Any) -> None:
    for wanted in ("nothing", "", granted["once"]):
        assert "is not a valid permission" in run("approvals", "revoke", wanted).err
    assert "matches several" in run("approvals", "revoke", "grant_").err
    for name in ("always", "session", "task", "bea"):
        run("approvals", "revoke", granted[name])
    assert "There are no permissions: Hermes asks" in run("approvals", "list").out
    run("config", "set", "approvals.mode", "off")
    assert "Hermes asks nothing" in run("approvals", "list").out


def test_the_log_says_what_left_the_sandbox_and_who_allowed_it(granted: dict[str, str], run: Any) -> None:
    newest, oldest = run("approvals", "log").out.splitlines()[-2:]
    assert "terraform plan" in newest and "Bea" in newest and "config.yaml" in newest
    assert "git push" in oldest and granted["session"] in oldest and "\x1b" not in oldest
    first, second = run("approvals", "log", "--json").data
    assert (first["allowed_by"], first["rule"], first["grants"]) == ("config", "command_allowlist", [])
    assert (second["allowed_by"], second["grants"]) == ("grant", [granted["session"]])
    assert second["granted_by"] == [LOCAL_OWNER] and second["opening"] == "network" and second["digest"] == "d1"
    assert len(run("approvals", "log", "-n", "1", "--json").data) == 1


def test_nothing_left_the_sandbox(db: SessionDB, named_store: str | Path, home: Path, run: Any) -> None:
    home.mkdir()
    assert run("approvals", "log").out == "No command has left the sandbox.\n"


def test_a_permission_may_be_given_before_anybody_asks(
    db: SessionDB, named_store: str | Path, home: Path, run: Any, tmp_path: Path
) -> None:
    home.mkdir()
    db.people.ensure(platform="telegram", native_id="1", display_name="Bea")
    said = run("approvals", "add", "--tool", "deploy", "--where", "to=test-*", "--times", "5").out
    assert "Allowed: tool deploy where to=test-*, after 5 uses more" in said
    other = run("approvals", "add", "--tool", "other").out
    assert "Allowed: tool other, until revoked." in other
    run("approvals", "revoke", other.split()[-3])
    (folder := tmp_path / "shared").mkdir()
    run("approvals", "add", "--folder", str(folder), "--hours", "2")
    for too_much in ("/", str(home), str(folder / "nowhere")):
        assert run("approvals", "add", "--folder", too_much).code == 2, too_much
    grants = db.approvals.grants(person_id=LOCAL_OWNER)
    assert [(one.kind, one.uses_left, one.expires_at is not None) for one in grants] == [
        ("tool", 5, False), ("folder", None, True),
    ]  # fmt: skip
    for wrong in (["--network", "--where", "a=b"], ["--tool", "x", "--where", "a"], ["--network", "--person", "p"], []):
        assert run("approvals", "add", *wrong).code == 2, wrong


def test_the_help_has_examples(run: Any) -> None:
    for verb in ("list", "revoke", "add", "log"):
        assert f"hermes approvals {verb}" in run("approvals", verb, "--help").out
