"""Tokens and cost: what a session shows, and how it is split by model."""

from __future__ import annotations

from typing import Any

import pytest

from hermes_state.errors import InvalidValue
from hermes_state.session_db import SessionDB
from hermes_testing.clock import Clock


def by_model(db: SessionDB) -> list[dict[str, Any]]:
    query = "SELECT * FROM session_model_usage ORDER BY session_id, task, model, billing_provider"
    return db.engine.read(lambda conn: conn.execute(query).dicts())


def session(db: SessionDB, session_id: str = "s") -> dict[str, Any]:
    found = db.get_session(session_id)
    assert found is not None
    return found


def test_calls_add_up_and_the_unknown_cost_stays_unknown(db: SessionDB) -> None:
    db.create_session("s", "cli")
    db.update_token_counts("s", input_tokens=100, output_tokens=10, api_call_count=1)
    db.update_token_counts("s", 20, 5, cache_read_tokens=7, cache_write_tokens=3, reasoning_tokens=2, api_call_count=1)
    row = session(db)
    assert (row["input_tokens"], row["output_tokens"], row["api_call_count"]) == (120, 15, 2)
    assert (row["cache_read_tokens"], row["cache_write_tokens"], row["reasoning_tokens"]) == (7, 3, 2)
    assert row["estimated_cost_usd"] is None and row["actual_cost_usd"] is None
    db.update_token_counts("s", 1, estimated_cost_usd=0.25, cost_status="estimated", pricing_version="v1")
    db.update_token_counts("s", 1, estimated_cost_usd=0.5)
    row = session(db)
    assert row["estimated_cost_usd"] == pytest.approx(0.75)
    assert (row["actual_cost_usd"], row["cost_status"], row["pricing_version"]) == (None, "estimated", "v1")


def test_absolute_sets_the_counters_and_leaves_the_split_alone(db: SessionDB) -> None:
    db.update_token_counts("s", 100, 10, model="m", api_call_count=1, estimated_cost_usd=1.0)
    db.update_token_counts("s", 40, 4, model="m", api_call_count=3, absolute=True)
    row = session(db)
    assert (row["input_tokens"], row["output_tokens"], row["api_call_count"]) == (40, 4, 3)
    assert row["estimated_cost_usd"] == 1.0  # none was given
    assert [(r["input_tokens"], r["api_call_count"]) for r in by_model(db)] == [(100, 1)]


def test_a_session_nobody_knows_is_made(db: SessionDB) -> None:
    db.update_token_counts("new", 5, model="m", api_call_count=1)
    assert session(db, "new")["source"] == "unknown"
    assert [row["session_id"] for row in by_model(db)] == ["new"]


def test_the_first_accounted_call_decides_the_route_later_ones_only_fill_gaps(db: SessionDB) -> None:
    db.create_session("s", "cli", model="guess")
    guessed = "UPDATE sessions SET billing_provider = 'guessed', billing_base_url = 'http://old' WHERE id = 's'"
    db._execute_write(lambda conn: conn.run(guessed))
    db.update_token_counts("s", model="real", billing_provider="paid")  # no usage: says nothing
    assert session(db)["model"] == "guess"
    db.update_token_counts("s", 10, model="real", billing_provider="paid", api_call_count=1)
    row = session(db)
    assert (row["model"], row["billing_provider"], row["billing_base_url"]) == ("real", "paid", None)
    db.update_token_counts(
        "s", 10, model="other", billing_provider="else", billing_base_url="http://x", api_call_count=1
    )
    row = session(db)
    assert (row["model"], row["billing_provider"], row["billing_base_url"]) == ("real", "paid", "http://x")


def test_each_call_is_split_by_its_own_model(db: SessionDB, clock: Clock) -> None:
    db.update_token_counts("s", 10, 1, model="a", billing_provider="p", api_call_count=1, estimated_cost_usd=0.1)
    seen = clock()
    clock.advance(60)
    db.update_token_counts("s", 20, 2, api_call_count=1)  # names none: it is the session's
    db.update_token_counts("s", 30, 3, model="b", api_call_count=1)  # names another: provider unknown
    a, b = by_model(db)
    assert (a["model"], a["billing_provider"], a["input_tokens"], a["api_call_count"]) == ("a", "p", 30, 2)
    assert (a["first_seen"], a["last_seen"]) == (seen, seen + 60)
    assert (b["model"], b["billing_provider"], b["input_tokens"], b["api_call_count"]) == ("b", "", 30, 1)


def test_auxiliary_calls_are_counted_apart_and_inherit_nothing(db: SessionDB) -> None:
    db.update_token_counts("s", 10, model="a", billing_provider="p", api_call_count=1)
    for _ in range(2):
        db.record_auxiliary_usage("s", "title", model="small", input_tokens=5, output_tokens=1, estimated_cost_usd=0.01)
    assert (session(db)["input_tokens"], session(db)["api_call_count"]) == (10, 1)
    title = by_model(db)[1]
    assert (title["task"], title["model"], title["billing_provider"]) == ("title", "small", "")
    assert (title["api_call_count"], title["input_tokens"]) == (2, 10)
    assert title["estimated_cost_usd"] == pytest.approx(0.02)


@pytest.mark.parametrize(
    "bad",
    [
        {"input_tokens": "many"},
        {"input_tokens": 10**30},
        {"output_tokens": float("nan")},
        {"estimated_cost_usd": float("inf")},
        {"model": "m" * 10_000},
    ],
)
def test_nonsense_is_refused_in_one_line_and_changes_nothing(db: SessionDB, bad: dict[str, Any]) -> None:
    db.update_token_counts("s", 10, api_call_count=1)
    before = session(db), by_model(db)
    with pytest.raises(InvalidValue) as refused:
        db.update_token_counts("s", **{"api_call_count": 1, **bad})
    assert "\n" not in refused.value.one_line()
    assert (session(db), by_model(db)) == before


def test_hostile_names_are_opaque(db: SessionDB) -> None:
    name = "m'; DROP TABLE sessions; --\0\ud800%_"
    db.update_token_counts("it's", 1, model=name, api_call_count=1)
    assert session(db, "it's")["model"] == "m'; DROP TABLE sessions; --\ufffd%_"
    with pytest.raises(InvalidValue):
        db.update_token_counts("x" * 10_000, 1)
