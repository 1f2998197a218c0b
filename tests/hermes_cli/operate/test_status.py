"""`hermes status`: what it says of a home in each state."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.hermes_cli.conftest import Run
from tests.support.stores import transact

from gateway import status
from hermes_cli.framework import store
from hermes_config import config
from hermes_state.turns.outbox import NewOutboxItem

pytestmark = pytest.mark.slow

HERMES = [sys.executable, "-m", "hermes_cli"]


def test_status_of_nothing_makes_nothing(run: Run, home: Path) -> None:
    shown = run("status").out
    assert f"{home} (does not exist yet)" in shown and "hermes setup chooses one" in shown
    assert not home.exists()


def test_a_model_without_its_key_is_not_called_none(run: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    config.set_value("model.default", "openai/gpt-5")
    shown = run("status").out
    assert "openai/gpt-5, which cannot be used" in shown and "OPENAI_API_KEY is not set" in shown


def test_status_tells_where_what_and_how_much_is_left(run: Run, home: Path) -> None:
    config.set_value("model.default", "demo")
    config.set_value("budget.day.usd", 5)
    assert run("chat", "-q", "hello there").code == 0
    shown = run("status").out
    for words in (str(home / "state.db"), "1 conversation, 2 messages", "demo/demo", "not running", "0 breaks",
                  "$5.00 left today", "hello there"):  # fmt: skip
        assert words in shown
    facts = run("status", "--json").data
    assert facts["database"]["conversations"] == 1 and facts["prefix_breaks"] == 0 and facts["problems"] == []
    assert facts["budget"][0]["used"] == 0 and facts["gateway"]["running"] is False


def test_an_open_question_is_shown_wherever_it_was_asked(run: Run, home: Path) -> None:
    assert run("chat", "-q", "hello there", "--model", "demo").code == 0
    assert "questions" not in run("status").out
    with store.open_store() as db:
        (turn,) = db.turns.list(limit=1)
        db.approvals.ask(
            conversation_id=turn.conversation_id, turn_id=turn.id, call_hash="x", call={"text": "rm -r old"},
            requester_id=None, approver_id=None, seconds=7_200,
        )  # fmt: skip
    assert re.search(r"questions +1 open, the oldest expires in .*: rm -r old", run("status").out)


def test_a_long_name_does_not_run_into_its_value(run: Run, home: Path) -> None:
    config.set_value("budget.day.tokens", 30_000)
    assert "budget.day.tokens  30,000 tokens left today" in run("status").out


def test_a_message_that_could_not_be_delivered_is_a_warning(run: Run, home: Path) -> None:
    assert run("chat", "-q", "hello there", "--model", "demo").code == 0
    with store.open_store() as db:
        db.outbox.enqueue(NewOutboxItem(dedup_key="one", platform="telegram", chat_id="42", payload={"text": "hi"}))
        (item,) = transact(db.outbox.claim_due_in, sender="a")
        transact(db.outbox.close_in, item, "failed", error="blocked")
    said = "1 message could not be delivered; hermes outbox list --stuck shows why"
    assert re.search(rf"^warning +{said}$", run("status").out, re.MULTILINE)


def test_a_limit_is_told_before_the_first_conversation(run: Run, home: Path) -> None:
    config.set_value("budget.day.usd", 5)
    assert "$5.00 left today" in run("status").out
    assert run("status", "--json").data["budget"][0]["left"] == 5_000_000_000
    used = run("usage")
    assert used.code == 0 and "Nothing was used since" in used.out
    assert "budget.day.usd" in used.out and "$5.00" in used.out
    assert run("usage", "--json").data["limits"][0]["left"] == 5
    assert not (home / "state.db").exists(), "looking makes nothing"


def test_a_limit_is_told_while_the_store_cannot_be_read(run: Run, home: Path) -> None:
    config.set_value("budget.day.usd", 5)
    (home / "state.db").write_text("this is no database")
    shown = run("status").out
    assert "$5.00 a day; the rest is unknown" in shown and "no limit a day" not in shown


def test_a_platform_that_was_not_heard_of_says_so_once(run: Run, home: Path) -> None:
    home.mkdir()
    lock = status.acquire_gateway_lock(home)
    silent = {"telegram": {"last_contact": None, "problem": "not connected yet"}}
    status.write_runtime_status(home, started_at=time.time(), platforms=silent)
    try:
        for command in (("status",), ("gateway", "status")):
            (line,) = [line for line in run(*command).out.splitlines() if line.startswith("telegram")]
            assert line.split(maxsplit=1)[1] == "not connected yet"
    finally:
        lock.close()


def test_status_of_a_broken_home_is_a_status(run: Run, home: Path) -> None:
    home.mkdir()
    (home / "config.yaml").write_text("sessions: {retention_days: soon}\n")
    shown = run("status")
    assert shown.code == 0 and "retention_days" in shown.out and "hermes doctor shows what to do" in shown.out
    assert shown.out.count("retention_days") == 1


def test_what_a_broken_configuration_would_say_is_not_known(run: Run, home: Path) -> None:
    config.set_value("model.default", "demo")
    config.set_value("budget.day.usd", 5)
    assert run("chat", "-q", "hello there").code == 0
    with (home / "config.yaml").open("a") as file:
        file.write("display: {skin: [\n")
    shown = run("status").out
    for name in ("model", "budget", "database"):
        assert f"{name:<16}unknown: the configuration does not load" in shown
    assert "no limit" not in shown and "hermes setup" not in shown
    assert run("status", "--json").data["config_loads"] is False


def test_a_home_that_cannot_be_is_told_as_that(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERMES_HOME", "/proc/nowhere")
    assert "cannot create the home" in run("status").out
    ran = subprocess.run([*HERMES, "doctor", "--json"], capture_output=True, text=True, check=False)
    found = {one["check"]: one["says"] for one in json.loads(ran.stdout)["checks"]}
    assert "it cannot be created" in found["home"] and "disk" not in found
