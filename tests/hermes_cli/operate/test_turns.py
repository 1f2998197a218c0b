"""`hermes turns`: what is being worked on, and ending it, whether its process lives or not."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.stores import transact

from hermes_agent import process_identity
from hermes_state.ids import ConversationId, SessionId, SessionKey
from hermes_state.session_db import SessionDB
from hermes_state.turns.leases import Lease
from hermes_state.turns.turns import Work
from hermes_testing.clock import Clock

pytestmark = [pytest.mark.usefixtures("named_store"), pytest.mark.slow]


@pytest.fixture(autouse=True)
def today(clock: Clock) -> None:
    """The command has a clock of its own: the machine's."""
    clock.advance(time.time() - clock())


def _working(db: SessionDB, name: str, holder: str) -> tuple[Work, Lease]:
    db.create_session(name, source="telegram")
    route = SessionKey(f"agent:main:telegram:dm:{name}")
    db.inbox.accept(platform="telegram", chat_id=name, message_id="1", route=route, payload={"text": "do it"})
    lease = db.leases.acquire(ConversationId(name), holder=holder, ttl=600)
    assert lease is not None
    work = transact(
        db.turns.begin_in,
        conversation_id=ConversationId(name),
        session_id=SessionId(name),
        fence=lease.fence,
        route=route,
        claim=1,
    )
    assert work is not None
    return work, lease


def _dead_holder() -> str:
    script = "from hermes_agent import process_identity; print(process_identity.new_holder())"
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.strip()


def test_lists_who_works_on_what(run: Callable[..., Any], db: SessionDB) -> None:
    assert run("turns", "list").out == "There were no turns yet.\n"
    alive, lease = _working(db, "a", process_identity.new_holder())
    lost, _ = _working(db, "b", _dead_holder())
    done, other = _working(db, "c", process_identity.new_holder())
    transact(db.turns.give_up_in, done.turn.id, "failed", fence=other.fence, reason="the model was down")

    lines = {line.split()[0]: line for line in run("turns", "list").out.splitlines()[1:]}
    assert f"process {lease.holder.split('/')[1]}" in lines[alive.turn.id]
    assert "its process died" in lines[lost.turn.id]
    assert "the model was down" in lines[done.turn.id]
    running = run("turns", "list", "--state", "running", "--json").data
    assert {turn["id"]: turn["holder"] for turn in running["turns"]} == {
        alive.turn.id: lease.holder,
        lost.turn.id: None,
    }
    assert len(run("turns", "list", "--limit", "2", "--offset", "2", "--json").data["turns"]) == 1


def test_a_living_turn_is_asked_to_stop(run: Callable[..., Any], db: SessionDB) -> None:
    work, lease = _working(db, "a", process_identity.new_holder())
    said = run("turns", "cancel", work.turn.id[:12])
    assert "was asked to stop" in said.out
    (asked,) = db.turns.asked_to_stop()
    assert asked.id == work.turn.id and asked.state == "running" and asked.reason
    db.turns.cancel(work.turn.id, fence=lease.fence, reason="stopped")
    assert db.turns.asked_to_stop() == ()
    over = run("turns", "cancel", work.turn.id)
    assert over.code == 2 and "has already ended (cancelled)" in over.err


def test_a_turn_without_a_process_is_closed_and_its_message_has_an_outcome(
    run: Callable[..., Any], db: SessionDB
) -> None:
    work, _ = _working(db, "a", _dead_holder())
    assert run("turns", "cancel", work.turn.id, "--json").data["outcome"] == "closed"
    turn = db.turns.get(work.turn.id)
    assert turn is not None and turn.state == "cancelled" and "hermes turns cancel" in (turn.reason or "")
    (row,) = db.inbox.of_turn(work.turn.id)
    assert row.state == "dropped"
    assert db.leases.acquire(ConversationId("a"), holder="next", ttl=60) is not None, "the conversation is free"


def test_unknown_and_ambiguous_names(run: Callable[..., Any], db: SessionDB) -> None:
    _working(db, "a", process_identity.new_holder())
    _working(db, "b", process_identity.new_holder())
    assert "2 running turns begin with 'turn_'" in run("turns", "cancel", "turn_").err
    assert run("turns", "cancel", "zzz").err.startswith("hermes: no running turn begins with 'zzz'")
    assert run("turns", "cancel", "").code == 1, "nothing is no beginning"
    assert db.turns.asked_to_stop() == ()


def test_a_turn_at_a_terminal_heeds_the_wish(run: Callable[..., Any], db: SessionDB, home: Path) -> None:
    home.mkdir(mode=0o700)
    (home / "config.yaml").write_text("model: demo\nauto_title: false\n")
    asked = subprocess.Popen(
        [sys.executable, "-m", "hermes_cli", "-q", "be slow 60"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    until = time.monotonic() + 20
    while not (turns := db.turns.list(state="running")):
        assert time.monotonic() < until and asked.poll() is None
        time.sleep(0.05)
    assert "was asked to stop" in run("turns", "cancel", turns[0].id).out
    _, told = asked.communicate(timeout=20)
    assert asked.returncode == 130 and b"interrupted; finished work is kept" in told
    turn = db.turns.get(turns[0].id)
    assert turn is not None and (turn.state, turn.reason) == ("cancelled", "cancelled with hermes turns cancel")
