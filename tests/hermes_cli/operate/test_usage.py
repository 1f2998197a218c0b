"""`hermes usage`, as a person types it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hermes_agent import process_identity
from hermes_state.ids import ConversationId, PersonId
from hermes_state.people.budgets import NANO, Amount, Limit
from hermes_state.session_db import SessionDB

Run = Callable[..., Any]
pytestmark = [pytest.mark.usefixtures("spent"), pytest.mark.slow]


@pytest.fixture
def spent(address: str | Path, named_store: object, home: Path) -> None:
    """Ada used $1.75 of three calls on two models; one call of Bob's has no price. All on one day."""
    now = time.localtime()
    left = 86_400 - (now.tm_hour * 60 + now.tm_min) * 60 - now.tm_sec
    if left < 20:
        time.sleep(left)
    home.mkdir()
    db = SessionDB(address)
    ada = db.people.ensure(platform="telegram", native_id="1", display_name="Ada").id
    db.ledger.open(source="cli", session_id="trip", owner=ada)
    db.set_session_title("trip", "Trip to Kyoto")
    db.update_token_counts(
        "trip", 12_000, 300, model="big", billing_provider="anthropic", cache_read_tokens=8_000,
        estimated_cost_usd=1.5, api_call_count=2,
    )  # fmt: skip
    db.record_auxiliary_usage(
        "trip", "title", model="small", billing_provider="openai", input_tokens=70, output_tokens=5,
        estimated_cost_usd=0.25,
    )  # fmt: skip
    db.ledger.open(source="cli", session_id="desk", owner=PersonId("bob"))
    db.update_token_counts("desk", 40, 4, model="small", billing_provider="openai", api_call_count=1)
    db.close()


def today() -> str:
    return time.strftime("%Y-%m-%d")


def limit(home: Path, text: str) -> None:
    (home / "config.yaml").write_text(f"budget: {text}\n")


def row(out: str, name: str) -> list[str]:
    """The cells of the line that begins so."""
    (line,) = [line for line in out.splitlines() if line.startswith(name)]
    return line.removeprefix(name).split()


def test_by_day(run: Run) -> None:
    done = run("usage")
    assert row(done.out, "Day") == ["Calls", "Input", "Cached", "Output", "Cost"]
    assert row(done.out, today()) == ["4", "12,110", "8,000", "309", "$1.75+"]
    assert "The price of 1 call is not known" in done.out
    assert "No spending limit is set; hermes config set budget.day.usd 5" in done.out


def test_by_model_person_and_conversation(run: Run) -> None:
    by_model = run("usage", "--by", "model").out
    assert row(by_model, "anthropic/big") == ["2", "12,000", "8,000", "300", "$1.50"]
    assert row(by_model, "openai/small") == ["2", "110", "0", "9", "$0.25+"]
    assert row(by_model, "total") == ["4", "12,110", "8,000", "309", "$1.75+"]
    by_person = run("usage", "--by", "person").out
    assert row(by_person, "Ada")[-1] == "$1.75" and row(by_person, "bob")[-1] == "–"
    assert row(run("usage", "--by", "conversation").out, "Trip to Kyoto")[0] == "3"


def test_since(run: Run) -> None:
    assert "Nothing was used since 2999-01-01." in run("usage", "--since", "2999-01-01").out
    assert row(run("usage", "--since", "2d").out, today())[0] == "4"


def test_limits_and_what_is_left_of_them(run: Run, home: Path) -> None:
    limit(home, "{day: {usd: 5}, person_day: {tokens: 20000}, conversation: {usd: 2}}")
    out = run("usage").out
    assert row(out, "budget.day.usd") == ["everybody,", "today", "$1.75", "$5.00", "$3.25"]
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "budget.person_day.tokens Ada, today 12,375 tokens 20,000 tokens 7,625 tokens" in lines
    assert "budget.person_day.tokens bob, today 44 tokens 20,000 tokens 19,956 tokens" in lines
    assert "budget.conversation.usd conversation trip $1.75 $2.00 $0.25" in lines


def test_calls_that_have_not_ended_are_shown(run: Run, home: Path, address: str | Path) -> None:
    limit(home, "{conversation: {usd: 2}}")
    reserve(address, process_identity.new_holder())
    out = run("usage").out
    assert row(out, "budget.conversation.usd  conversation trip") == ["$2.00", "$2.00", "$0.00"]
    assert "1 call being made, counted as estimated: $0.25, 500 tokens." in out


def test_a_call_whose_process_is_gone_is_shown_as_cut_off(run: Run, address: str | Path) -> None:
    told = "from hermes_agent import process_identity; print(process_identity.new_holder())"
    gone = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True).stdout.strip()
    reserve(address, gone)
    out = run("usage").out
    assert "1 call cut off when their process died, counted as estimated: $0.25, 500 tokens." in out
    assert "being made" not in out and [call["lost"] for call in run("usage", "--json").data["open_calls"]] == [True]


def test_calls_that_count_in_full_are_told_from_those_in_the_table(run: Run, home: Path, address: str | Path) -> None:
    limit(home, "{day: {usd: 5}}")
    assert "no row above" not in run("usage").out
    reserve(address, process_identity.new_holder(), broke_off=True)
    out = run("usage").out
    assert row(out, "budget.day.usd") == ["everybody,", "today", "$2.00", "$5.00", "$3.00"]
    assert "$0.25 of today's use has no row above: a call without reported usage counts in full, and" in out


def reserve(address: str | Path, holder: str, *, broke_off: bool = False) -> None:
    async def call() -> None:
        held = await db.budgets.reserve(
            (Limit("conversation", "usd", 2 * NANO),), Amount(NANO // 4, 500), conversation_id=ConversationId("trip"),
            person_id=None, model="big", holder=holder,
        )  # fmt: skip
        if broke_off:
            await db.budgets.settle(held, None)

    db = SessionDB(address)
    asyncio.run(call())
    db.close()


def test_json(run: Run, home: Path) -> None:
    limit(home, "{day: {usd: 5}}")
    data = run("usage", "--by", "model", "--json").data
    assert data["by"] == "model"
    assert data["lines"][0] == {
        "key": "anthropic/big", "name": "", "calls": 2, "unpriced_calls": 0, "input_tokens": 12_000,
        "cache_read_tokens": 8_000, "cache_write_tokens": 0, "output_tokens": 300, "cost_usd": 1.5,
    }  # fmt: skip
    assert data["total"]["cost_usd"] == 1.75 and data["open_calls"] == []
    assert data["limits"] == [
        {
            "key": "budget.day.usd", "scope": "day", "unit": "usd", "subject": None, "period": today(), "limit": 5.0,
            "used": 1.75, "left": 3.25,
        }
    ]  # fmt: skip


def test_mistakes_are_one_line(run: Run, home: Path) -> None:
    assert run("usage", "--by", "colour").code == 2
    assert run("usage", "--since", "soon").code == 2
    limit(home, "{day: {eur: 5}}")
    done = run("usage")
    assert done.code == 1 and "budget.day.eur" in done.err and "config.yaml:1" in done.err
