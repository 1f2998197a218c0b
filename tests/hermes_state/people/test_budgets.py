"""Spending limits in the store: what counts, what is refused, and what a crash, a deletion and a new day leave."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest
from tests.support.stores import transact

from hermes_config.limits import Limits
from hermes_state.errors import OverLimit
from hermes_state.ids import ConversationId, PersonId
from hermes_state.maintenance import retention
from hermes_state.people import usage
from hermes_state.people.budgets import NANO, Amount, Held, Limit
from hermes_state.people.usage import Used
from hermes_state.session_db import SessionDB
from hermes_testing.clock import Clock

T = TypeVar("T")
DAY = Limit("day", "usd", 10 * NANO)
CHAT, ADA = ConversationId("chat"), PersonId("ada")


def now(job: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(job)


def hold(
    db: SessionDB, dollars: float, *limits: Limit, tokens: int = 0, chat: str = CHAT, person: str | None = None
) -> Held:
    estimate = Amount(round(dollars * NANO), tokens)
    return now(
        db.budgets.reserve(
            limits or (DAY,), estimate, conversation_id=ConversationId(chat),
            person_id=None if person is None else PersonId(person), model="m",
        )
    )  # fmt: skip


def used_today(db: SessionDB) -> float:
    return db.budgets.used("day")[1].nano_usd / NANO


def test_a_reservation_counts_until_it_is_settled_or_released(db: SessionDB) -> None:
    first, second = hold(db, 4), hold(db, 3)
    assert used_today(db) == 7
    now(db.budgets.settle(first, Amount(NANO // 2, 10)))
    assert used_today(db) == 3.5
    now(db.budgets.release(second))
    assert used_today(db) == 0.5
    assert db.budgets.open_calls() == ()


def test_handing_back_twice_counts_once(db: SessionDB) -> None:
    held = hold(db, 4)
    now(db.budgets.settle(held, Amount(NANO)))
    now(db.budgets.settle(held, Amount(NANO)))
    now(db.budgets.release(held))
    assert used_today(db) == 1


def test_a_call_whose_usage_is_unknown_stays_at_its_estimate(db: SessionDB) -> None:
    now(db.budgets.settle(hold(db, 4), None))
    assert used_today(db) == 4 and db.budgets.open_calls() == ()


def test_what_would_pass_the_limit_is_refused_and_leaves_nothing(db: SessionDB) -> None:
    hold(db, 7)
    with pytest.raises(OverLimit) as refused:
        hold(db, 3.5)
    over = refused.value
    assert (over.scope, over.unit, over.most, over.used, over.asked) == (
        "day", "usd", 10 * NANO, 7 * NANO, round(3.5 * NANO),
    )  # fmt: skip
    assert over.reserved == 7 * NANO
    assert used_today(db) == 7
    hold(db, 3)  # exactly to the limit
    with pytest.raises(OverLimit):
        hold(db, 0.000000001)
    hold(db, 0)  # what costs nothing passes no limit


def test_each_scope_and_unit_has_its_own_limit(db: SessionDB) -> None:
    limits = (
        Limit("day", "usd", 100 * NANO), Limit("person_day", "usd", 3 * NANO), Limit("conversation", "tokens", 50),
    )  # fmt: skip
    hold(db, 2, *limits, tokens=30, chat="a", person="ada")
    with pytest.raises(OverLimit) as by_person:
        hold(db, 2, *limits, chat="b", person="ada")
    assert by_person.value.scope == "person_day"
    with pytest.raises(OverLimit) as by_chat:
        hold(db, 1, *limits, tokens=30, chat="a", person="bob")
    assert (by_chat.value.scope, by_chat.value.unit) == ("conversation", "tokens")
    hold(db, 2, *limits, tokens=30, chat="b", person="bob")
    hold(db, 50, *limits, chat="c")  # nobody known: no person's limit


def test_a_new_day_begins_at_midnight_where_the_person_lives(
    db: SessionDB, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    person = db.people.ensure(platform="p", native_id="1").id
    db.people.set_zone(person, "Pacific/Kiritimati")  # UTC+14
    clock.set(1_700_042_400.0)  # 2023-11-15 10:00 UTC: midnight there
    limit = Limit("person_day", "usd", NANO)
    clock.advance(-1)
    hold(db, 1, limit, person=person)
    with pytest.raises(OverLimit) as refused:
        hold(db, 1, limit, person=person)
    assert refused.value.period == "2023-11-15"
    clock.advance(1)
    hold(db, 1, limit, person=person)
    assert db.budgets.used("person_day", person, zone="Pacific/Kiritimati") == ("2023-11-16", Amount(NANO, 0))


def test_the_evening_of_a_person_in_the_west_does_not_count_for_the_next_day(db: SessionDB, clock: Clock) -> None:
    person = db.people.ensure(platform="p", native_id="1").id
    db.people.set_zone(person, "Pacific/Honolulu")  # UTC-10: its evening is the next day of the machine
    limit, month = Limit("person_day", "usd", NANO), Limit("person_month", "usd", 100 * NANO)
    db.ledger.open(source="cli", session_id=CHAT, owner=person)
    december = 1_701_424_800.0  # its first midnight there, 10:00 UTC
    for hours, in_month in ((-28, 1), (-9, 2), (1, 1)):  # from -10 on, the machine is in December
        clock.set(december + hours * 3_600)
        held = hold(db, 1, limit, month, person=person)
        now(db.budgets.settle(held, Amount(NANO, 10)))
        db.update_token_counts(CHAT, 5, 5, model="m", estimated_cost_usd=1.0, person_id=person, api_call_count=1)
        with pytest.raises(OverLimit):
            hold(db, 0.1, limit, month, person=person)
        assert db.budgets.used("person_month", person, zone="Pacific/Honolulu")[1].nano_usd == in_month * NANO


@pytest.mark.parametrize("others", [["Pacific/Kiritimati"], ["Pacific/Pago_Pago"], ["Pacific/Kiritimati", None, "UTC"]])
def test_another_zone_does_not_begin_another_day(db: SessionDB, clock: Clock, others: list[str | None]) -> None:
    person = db.people.ensure(platform="p", native_id="1").id
    db.people.set_zone(person, "Europe/Lisbon")
    clock.set(1_700_042_400.0 + 2 * 86_400)  # 10:00 in Lisbon
    limit = Limit("person_day", "usd", NANO)
    hold(db, 1, limit, person=person)
    for zone in others:
        db.people.set_zone(person, zone)
        with pytest.raises(OverLimit) as refused:
            hold(db, 1, limit, person=person)
        assert refused.value.period == "2023-11-17"
        assert db.budgets.used("person_day", person, zone=zone) == ("2023-11-17", Amount(NANO, 0))
    clock.advance(14 * 3600 - 1)
    with pytest.raises(OverLimit):
        hold(db, 1, limit, person=person)
    clock.advance(2 * 86_400)
    hold(db, 1, limit, person=person)


def test_a_warning_is_given_once_a_limit_and_period(db: SessionDB, clock: Clock) -> None:
    held = hold(db, 9)
    assert held.warnings == ()  # nothing is used yet: the estimate is not spent
    (warned,) = now(db.budgets.settle(held, Amount(8 * NANO)))
    assert (warned.limit, warned.used) == (DAY, 8 * NANO)
    again = hold(db, 1)
    assert again.warnings == () and now(db.budgets.settle(again, Amount(NANO))) == ()
    raised = Limit("day", "usd", 11 * NANO)
    (other,) = hold(db, 0.1, raised).warnings
    assert other.limit == raised
    clock.advance(86_400)
    (next_day,) = now(db.budgets.settle(hold(db, 9), Amount(9 * NANO)))
    assert next_day.period > warned.period


def test_a_limit_that_is_set_late_knows_what_was_used_before(db: SessionDB) -> None:
    db.ledger.open(source="cli", session_id=CHAT, owner=ADA)
    db.update_token_counts(CHAT, 900, 100, model="m", estimated_cost_usd=9.5, api_call_count=3)
    for limit in (DAY, Limit("person_day", "usd", 10 * NANO), Limit("conversation", "tokens", 1_000)):
        with pytest.raises(OverLimit) as refused:
            hold(db, 1, limit, tokens=1, person=ADA)
        assert refused.value.used == (1_000 if limit.unit == "tokens" else round(9.5 * NANO))
    hold(db, 0.5, person=ADA)
    with pytest.raises(OverLimit):
        hold(db, 0.5, person=ADA)


def test_a_lost_call_stays_counted_and_is_named_until_maintenance(db: SessionDB, clock: Clock) -> None:
    limit = Limit("conversation", "usd", 5 * NANO)
    held = hold(db, 4, limit)
    assert [call.lost for call in db.budgets.open_calls()] == [False]
    clock.advance(db.limits.reservation_seconds + 1)
    (call,) = db.budgets.open_calls()
    assert call.lost and call.amount == Amount(4 * NANO, 0) and call.conversation_id == CHAT
    clock.advance(86_400)
    assert retention.prune(db)["budgets"] == 1
    assert db.budgets.open_calls() == ()
    with pytest.raises(OverLimit):
        hold(db, 2, limit)
    now(db.budgets.settle(held, Amount(0)))  # it comes back after all, too late
    assert db.budgets.used("conversation", CHAT)[1].nano_usd == 4 * NANO


def test_earlier_days_are_forgotten_a_conversation_is_not(db: SessionDB, clock: Clock) -> None:
    now(db.budgets.settle(hold(db, 4, person=ADA), Amount(NANO)))
    clock.advance(db.limits.budget_days * 86_400 + 1)
    assert retention.prune(db)["budgets"] == 4  # day and month, everybody's and the person's
    assert db.budgets.used("conversation", CHAT)[1].nano_usd == NANO


def test_a_month_is_not_forgotten_before_its_end(make_db: Any, clock: Clock) -> None:
    db = make_db(limits=Limits(budget_days=1))
    month = Limit("month", "usd", 5 * NANO)
    clock.set(1_698_796_800.0 - 30 * 86_400)  # 2023-10-02
    hold(db, 1, month)
    clock.advance(31 * 86_400)  # in November
    held = hold(db, 5, month)
    now(db.budgets.settle(held, None))
    clock.advance(25 * 86_400)
    retention.prune(db)
    with pytest.raises(OverLimit):
        hold(db, 1, month)


def test_a_cancelled_reservation_is_taken_back(db: SessionDB) -> None:
    async def interrupted() -> None:
        task = asyncio.ensure_future(
            db.budgets.reserve((DAY,), Amount(4 * NANO), conversation_id=CHAT, person_id=None, model="m")
        )
        await asyncio.sleep(0)  # it is on its way to the writer
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        # What is queued after it is done after it.
        await db.budgets.reserve((DAY,), Amount(NANO), conversation_id=CHAT, person_id=None, model="m")

    now(interrupted())
    assert used_today(db) == 1
    assert len(db.budgets.open_calls()) == 1


def test_many_at_once_fill_a_limit_exactly(db: SessionDB) -> None:
    async def crowd() -> int:
        asked = [
            db.budgets.reserve(
                (DAY,), Amount(NANO), conversation_id=ConversationId(f"c{i % 7}"), person_id=PersonId(f"p{i % 5}"),
                model="m",
            )
            for i in range(60)
        ]  # fmt: skip
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
        assert all(isinstance(one, (Held, OverLimit)) for one in outcomes)
        return sum(isinstance(one, Held) for one in outcomes)

    assert now(crowd()) == 10
    assert used_today(db) == 10


def test_a_deleted_conversation_leaves_its_cost_in_the_day(db: SessionDB) -> None:
    db.ledger.open(source="cli", session_id=CHAT, owner=ADA)
    db.update_token_counts(CHAT, 10, 5, model="m", estimated_cost_usd=2.0, api_call_count=1)
    held = hold(db, 3, person=ADA)
    db.delete_session(CHAT)
    (call,) = db.budgets.open_calls()
    assert call.conversation_id == ""
    now(db.budgets.settle(held, Amount(NANO)))
    assert used_today(db) == 3
    assert db.budgets.used("conversation", CHAT)[1] == Amount()
    (line,) = usage.report(db, "person").lines
    assert (line.key, line.calls, line.cost_usd) == (ADA, 1, 2.0)
    (nameless,) = usage.report(db, "conversation").lines
    assert (nameless.key, nameless.calls) == ("", 1)
    assert db.engine.read(lambda conn: conn.rows("SELECT session_id FROM usage_days")) == [("",)]


def test_a_conversation_that_loses_its_first_segment_keeps_its_tally(db: SessionDB) -> None:
    db.ledger.open(source="cli", session_id=CHAT)
    heir = db.ledger.rotate(CHAT, [{"role": "user", "content": "summary"}], new_id="chat-2")
    limit = Limit("conversation", "usd", 5 * NANO)
    held = hold(db, 4, limit)
    db.delete_session(CHAT)
    with pytest.raises(OverLimit):
        hold(db, 2, limit, chat=heir.session_id)
    now(db.budgets.settle(held, Amount(NANO)))
    assert db.budgets.used("conversation", heir.session_id)[1].nano_usd == NANO


# -- what reports say -------------------------------------------------------------------------------------------------


@pytest.fixture
def spent(db: SessionDB, clock: Clock) -> SessionDB:
    """Two people, two models, two days, a title, and a call nobody knows the price of."""
    clock.set(1_700_000_000.0)
    for name in ("ada", "bob"):
        db.ledger.open(source="cli", session_id=f"of-{name}", owner=PersonId(name))
    db.update_token_counts(
        "of-ada", 100, 10, model="big", billing_provider="anthropic", cache_read_tokens=60, cache_write_tokens=20,
        estimated_cost_usd=1.5, api_call_count=2,
    )  # fmt: skip
    db.record_auxiliary_usage(
        "of-ada",
        "title",
        model="small",
        billing_provider="openai",
        input_tokens=7,
        output_tokens=3,
        estimated_cost_usd=0.25,
    )
    clock.advance(86_400)
    db.update_token_counts(
        "of-ada", 50, 5, model="big", billing_provider="anthropic", estimated_cost_usd=0.5, api_call_count=1
    )
    db.update_token_counts("of-bob", 9, 1, model="small", billing_provider="openai", api_call_count=1)
    return db


def sums(db: SessionDB, by: usage.By, **options: Any) -> list[tuple[Any, ...]]:
    found = usage.report(db, by, **options)
    return [
        (line.key, line.calls, line.unpriced_calls, line.input_tokens, line.output_tokens, line.cost_usd)
        for line in found.lines
    ]


def test_a_report_adds_up_by_whatever_is_asked(spent: SessionDB) -> None:
    days = sums(spent, "day")
    assert [row[1:] for row in days] == [(3, 0, 107, 13, 1.75), (2, 1, 59, 6, 0.5)]
    assert days[0][0] < days[1][0]
    assert sums(spent, "person") == [("ada", 4, 0, 157, 18, 2.25), ("bob", 1, 1, 9, 1, 0.0)]
    assert sums(spent, "model") == [
        ("anthropic/big", 3, 0, 150, 15, 2.0), ("openai/small", 2, 1, 16, 4, 0.25),
    ]  # fmt: skip
    assert [row[0] for row in sums(spent, "conversation")] == ["of-ada", "of-bob"]
    whole = usage.report(spent, "model").total
    assert (whole.calls, whole.cache_read_tokens, whole.cache_write_tokens, whole.cost_usd) == (5, 60, 20, 2.25)


def test_since_leaves_out_earlier_days(spent: SessionDB, clock: Clock) -> None:
    assert sums(spent, "person", since=clock()) == [("ada", 1, 0, 50, 5, 0.5), ("bob", 1, 1, 9, 1, 0.0)]


def test_whose_call_it_was_beats_whose_conversation_it_is(spent: SessionDB) -> None:
    lease = spent.leases.acquire(ConversationId("of-ada"), holder="h", ttl=60)
    assert lease is not None
    begun = transact(
        spent.turns.begin_in, conversation_id=ConversationId("of-ada"), session_id="of-ada", fence=lease.fence
    )  # type: ignore[arg-type]
    assert begun is not None
    used = Used(input_tokens=4, api_call_count=1, estimated_cost_usd=9.0, model="big", person_id="carol")
    transact(spent.turns.commit_in, begun.turn.id, fence=lease.fence, used=(used,))
    assert sums(spent, "person")[0] == ("carol", 1, 0, 4, 0, 9.0)


def test_what_was_used_before_days_were_kept_counts_at_its_last_call(
    spent: SessionDB, reopen: Callable[[SessionDB], SessionDB]
) -> None:
    before = {by: sums(spent, by) for by in ("person", "model", "conversation")}
    spent._execute_write(lambda conn: conn.run("DELETE FROM usage_days"))
    assert {by: sums(spent, by) for by in ("person", "model", "conversation")} == before  # type: ignore[arg-type]
    (first, second) = sums(spent, "day")
    assert (first[1], second[1]) == (1, 4)  # the chat with Ada went on to the second day
    spent.update_token_counts("of-bob", 1, 1, model="small", billing_provider="openai", api_call_count=1)
    assert sums(spent, "person")[1] == ("bob", 2, 2, 10, 2, 0.0)
