"""Schedules: a person's words, every change of every zone's clock, and what an outage leaves."""

from __future__ import annotations

import itertools
import random
from bisect import bisect_left, bisect_right
from datetime import UTC, datetime

import pytest
from tests.support.schedule_oracle import FIRST_YEAR, LAST_YEAR, Days, Transition, expressions, transitions

from hermes_agent import schedules
from hermes_agent.schedules import Schedule, UnclearSchedule

NOW = datetime(2026, 11, 16, 18, 27, tzinfo=UTC).timestamp()  # a Monday; 19:27 in Berlin
BERLIN = "Europe/Berlin"
SCHEDULES = 400


@pytest.mark.parametrize(
    ("said", "expression", "then"),
    [
        ("every weekday at 8", "0 8 * * 1-5", "Tue 17 Nov 08:00"),
        ("every day at 7:30", "30 7 * * *", "Tue 17 Nov 07:30"),
        ("every monday and thursday 18:15", "15 18 * * 1,4", "Thu 19 Nov 18:15"),
        ("every sunday, tuesday and friday at 6 pm", "0 18 * * 0,2,5", "Tue 17 Nov 18:00"),
        ("mondays at 9", "0 9 * * 1", "Mon 23 Nov 09:00"),
        ("weekends at 10.30", "30 10 * * 0,6", "Sat 21 Nov 10:30"),
        ("daily at noon", "0 12 * * *", "Tue 17 Nov 12:00"),
        ("every month on the 1st at 9", "0 9 1 * *", "Tue 01 Dec 09:00"),
        ("@daily", "0 0 * * *", "Tue 17 Nov 00:00"),
        ("30 7 * * 1-5", "30 7 * * 1-5", "Tue 17 Nov 07:30"),
        ("every 2h", f"7200@{int(NOW) + 7200}", "Mon 16 Nov 21:27"),
        ("every 90 minutes", f"5400@{int(NOW) + 5400}", "Mon 16 Nov 20:57"),
        ("in 20 minutes", None, "Mon 16 Nov 19:47"),
        ("in 2 hours and 30 minutes", None, "Mon 16 Nov 21:57"),
        ("30m", None, "Mon 16 Nov 19:57"),
        ("1d", None, "Tue 17 Nov 19:27"),
        ("tomorrow at 9", None, "Tue 17 Nov 09:00"),
        ("at 17:00", None, "Tue 17 Nov 17:00"),
        ("next friday at 5pm", None, "Fri 20 Nov 17:00"),
        ("monday at 9", None, "Mon 23 Nov 09:00"),
        ("2027-01-31T09:00", None, "Sun 31 Jan 09:00"),
        ("2027-01-31T09:00+00:00", None, "Sun 31 Jan 10:00"),
        ("on 2026-12-24 at 18:00", None, "Thu 24 Dec 18:00"),
        ("in half an hour", None, "Mon 16 Nov 19:57"),
        ("in 1.5 hours", None, "Mon 16 Nov 20:57"),
        ("in 1h30m", None, "Mon 16 Nov 20:57"),
        ("in two days", None, "Wed 18 Nov 19:27"),
        ("at 8 tomorrow", None, "Tue 17 Nov 08:00"),
        ("tomorrow 9:00", None, "Tue 17 Nov 09:00"),
        ("tonight at 8", None, "Mon 16 Nov 20:00"),
        ("tonight at 2", None, "Tue 17 Nov 02:00"),
        ("tomorrow night at 12", None, "Wed 18 Nov 00:00"),
        ("on monday at 9", None, "Mon 23 Nov 09:00"),
        ("the day after tomorrow at noon", None, "Wed 18 Nov 12:00"),
        ("24 December at 18:00", None, "Thu 24 Dec 18:00"),
        ("Dec 24 9am", None, "Thu 24 Dec 09:00"),
        ("9 dec 10:00", None, "Wed 09 Dec 10:00"),
        ("29 feb at 9", None, "Tue 29 Feb 09:00"),
        ("tomorrow at 9 Europe/Lisbon", None, "Tue 17 Nov 10:00"),
        ("hourly", "0 * * * *", "Mon 16 Nov 20:00"),
        ("weekly on monday at 9", "0 9 * * 1", "Mon 23 Nov 09:00"),
        ("every morning at 8", "0 8 * * *", "Tue 17 Nov 08:00"),
        ("every evening at 8", "0 20 * * *", "Mon 16 Nov 20:00"),
    ],
)
def test_words_and_expressions(said: str, expression: str | None, then: str) -> None:
    made = schedules.parse(said, now=NOW, zone=BERLIN)
    at = made.after(NOW)
    assert at is not None and schedules.wall_clock(at, BERLIN) == then
    assert made.kind == "once" if expression is None else made.expression == expression
    if made.kind == "once":
        assert made.after(at) is None


@pytest.mark.parametrize(
    "said",
    ["", "soon", "every", "in 5 eggs", "weekday at 9", "monday and tuesday at 9", "every other monday at 9",
     "every monday night at 1", "8", "🎉", "x" * 5_000, "* * * *", "24.12. at 18:00"],
)  # fmt: skip
def test_what_is_not_clear_is_one_line_with_examples(said: str) -> None:
    with pytest.raises(UnclearSchedule) as caught:
        schedules.parse(said, now=NOW, zone=BERLIN)
    line = caught.value.one_line()
    assert "\n" not in line and len(line) < 250
    assert line.startswith("not a schedule: ") and "Examples:" in line


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("tomorrow", "tomorrow at what time? For example: tomorrow at 9."),
        ("every monday", "every monday at what time? For example: every monday at 9."),
        ("every day", "every day at what time?"),
        ("2027-01-31", "2027-01-31 at what time?"),
        ("weekly", "weekly on which day? For example: weekly on monday at 9."),
        ("monthly at 9", "monthly on which day?"),
        ("25:00", "there is no such time: 25:00."),
        ("at 9:75", "there is no such time: 9:75."),
        ("every weekday at 25", "there is no such time: 25."),
        ("every day at 13 pm", "there is no such time: 13 pm."),
        ("2027-02-30 at 9", "there is no such date: 2027-02-30."),
        ("2027-02-30T09:00", "there is no such time: 2027-02-30T09:00 (day is out of range for month)."),
        ("31 november at 9", "there is no such date: 31 november."),
        ("29 feb 2027 at 9", "there is no such date: 29 feb 2027."),
        ("0 0 31 2 *", "the cron expression '0 0 31 2 *' never happens."),
        ("99 * * * *", "the cron expression '99 * * * *' cannot be read: bad minute."),
        ("in -5 minutes", "'in -5 minutes' is not in the future."),
        ("in 0 minutes", "'in 0 minutes' is not in the future."),
        ("every 0 minutes", "'every 0 minutes' is too often."),
        ("every 10s", "'every 10s' is too often."),
        ("in 9999999 weeks", "'in 9999999 weeks' is too far away."),
        ("9998-01-01T09:00", "'9998-01-01T09:00' is too far away."),
        ("today at 5", "'today at 5' has passed."),
        ("2020-01-01T00:00", "'2020-01-01T00:00' has passed."),
    ],
)
def test_what_is_wrong_is_named(said: str, reason: str) -> None:
    with pytest.raises(UnclearSchedule) as caught:
        schedules.parse(said, now=NOW, zone=BERLIN)
    assert caught.value.one_line().startswith(reason)


def test_a_reminder_is_a_time_and_a_text() -> None:
    for said, text, then in (
        ("in 20 minutes take out the pizza", "take out the pizza", "Mon 16 Nov 19:47"),
        ("in 20 minutes to eat", "eat", "Mon 16 Nov 19:47"),
        ("eat in 20 minutes", "eat", "Mon 16 Nov 19:47"),
        ("to eat in 20 minutes", "eat", "Mon 16 Nov 19:47"),
        ("in 20 minutes 5 minutes break", "5 minutes break", "Mon 16 Nov 19:47"),
        ("in 20 minutes ask about tomorrow", "ask about tomorrow", "Mon 16 Nov 19:47"),
        ("at 8 tomorrow eat", "eat", "Tue 17 Nov 08:00"),
        ("at 20:00 on friday, eat", "eat", "Fri 20 Nov 20:00"),
        ("tommorow at 9 to call mum", "call mum", "Tue 17 Nov 09:00"),
        ("call mum tomorrow at 9", "call mum", "Tue 17 Nov 09:00"),
        ("at 8:00 5 things", "5 things", "Tue 17 Nov 08:00"),
        ("every weekday at 8 stand\nup", "stand\nup", "Tue 17 Nov 08:00"),
    ):
        made, rest = schedules.split(said, now=NOW, zone=BERLIN)
        assert (rest, schedules.wall_clock(made.after(NOW) or 0, BERLIN)) == (text, then), said


@pytest.mark.parametrize(
    "said",
    ["take out the pizza", "tomorrow eat", "tomorrow eat at 8", "at 8 eat tomorrow", "at 8 sun cream",
     "at 8 in two weeks eat", "10.12 at 18:00 eat", "eat every other monday at 9", "every monday stand up",
     "eat on friday or at 8", "at 25:00 eat"],
)  # fmt: skip
def test_no_part_of_a_time_becomes_a_text(said: str) -> None:
    with pytest.raises(UnclearSchedule):
        schedules.split(said, now=NOW, zone=BERLIN)


def test_a_time_that_the_clock_skips_or_repeats() -> None:
    spring = datetime(2027, 3, 27, 12, tzinfo=UTC).timestamp()
    for said in ("2027-03-28T02:30", "tomorrow at 2:30", "every day at 2:30"):
        at = schedules.parse(said, now=spring, zone=BERLIN).after(spring)
        assert at is not None and schedules.written(at) == "2027-03-28T01:00:00Z", (
            "03:00, the first minute that there is"
        )
    autumn = datetime(2027, 10, 30, 12, tzinfo=UTC).timestamp()
    made = schedules.parse("every day at 2:30", now=autumn, zone=BERLIN)
    first = made.after(autumn)
    assert first is not None and schedules.written(first) == "2027-10-31T00:30:00Z"
    assert schedules.written(made.after(first) or 0) == "2027-11-01T01:30:00Z", "not again an hour later"
    again = datetime(2027, 10, 31, 1, 10, tzinfo=UTC).timestamp()  # 02:10, for the second time
    assert schedules.written(made.after(again) or 0) == "2027-11-01T01:30:00Z"
    hourly = schedules.parse("0 * * * *", now=autumn, zone=BERLIN)
    found = [at for at, _ in zip(hourly._after(autumn + 43_000), range(4), strict=False)]
    assert [late - early for early, late in itertools.pairwise(found)] == [3_600.0] * 3


def swept(transition: Transition, wanted: list[str], chance: random.Random) -> int:
    """Compare with the oracle, then look at random moments with outages; returns how many instants were settled."""
    days, instants = Days(transition.zone, transition.instant, 14), 0
    for expression in wanted:
        schedule = Schedule("cron", expression, transition.zone, expression)
        expected = days.instants(expression)
        found: list[int] = []
        for at in schedule._after(days.start - 1):
            if at >= days.end:
                break
            found.append(int(at))
        assert found == expected, f"{expression} {transition}"
        instants += len(expected)
        _settled_once(schedule, expected, days, chance)
    return instants


def _settled_once(schedule: Schedule, expected: list[int], days: Days, chance: random.Random) -> None:
    outcome: dict[int, str] = {}
    now, due = float(days.start), schedule.after(days.start - 1)
    while due is not None and due < days.end:
        now += chance.choice([1, 20, 60, 300, 1_800, 7_200, 40_000])
        if due > now:
            continue
        settled = schedule.settle(due, min(now, days.end - 1))
        gone = settled.missed
        covered = expected[bisect_left(expected, gone.first) : bisect_right(expected, gone.last)] if gone else []
        assert len(covered) == (settled.missed.count if settled.missed else 0)
        for at, what in [*((at, "missed") for at in covered), *((int(one.instant), "ran") for one in settled.fresh)]:
            assert at not in outcome, f"{schedule} {at} was settled twice"
            outcome[at] = what
            late = min(now, days.end - 1) - at
            assert late >= 0 and (what == "ran") == (late <= 120 or (what == "ran" and late <= 7_200))
        due = settled.next_at
        if now >= days.end:
            break
    assert sorted(outcome) == expected, f"{schedule}: {set(expected) ^ set(outcome)}"


@pytest.mark.parametrize("year", range(FIRST_YEAR, LAST_YEAR + 1))
def test_every_change_of_every_clock_with_outages(year: int, seed: int, pytestconfig: pytest.Config) -> None:
    """In full (`--long`): 400 schedules at each change in tzdata; else a part of them that the seed draws."""
    chance, found = random.Random(seed * 100 + year), transitions(year, year)
    assert len(found) >= 40, "tzdata has the rules of the years to come"
    wanted, instants = expressions(SCHEDULES, seed), 0
    if not pytestconfig.getoption("--long"):
        found = chance.sample(found, 3)
    for transition in found:
        chosen = wanted if pytestconfig.getoption("--long") else chance.sample(wanted, 12)
        instants += swept(transition, chosen, chance)
    print(f"{year}: {len(found)} changes of a clock, {instants:,} instants, each with one outcome")
    assert instants > 0


def test_a_long_absence_is_one_gap(seed: int) -> None:
    minutely = schedules.parse("* * * * *", now=NOW, zone="UTC")
    first = minutely.after(NOW)
    assert first is not None
    settled = minutely.settle(first, first + 400 * 86_400 + 30)
    assert settled.missed is not None and settled.missed.at_least and settled.missed.count >= 20_000
    assert settled.missed.last == first + 400 * 86_400 - 120, "to the last instant that is too late"
    assert [one.instant - settled.missed.last for one in settled.fresh] == [60, 120]
    assert settled.next_at == first + 400 * 86_400 + 60
    assert minutely.latest(settled.missed, 3) == [
        settled.missed.last - 120,
        settled.missed.last - 60,
        settled.missed.last,
    ]


def test_an_interval_keeps_its_distance_through_a_change_of_the_clock() -> None:
    made = schedules.parse("every 2h", now=NOW, zone=BERLIN)
    first = made.after(NOW)
    assert first is not None
    settled = made.settle(first, first + 86_400 * 200)
    assert settled.missed is not None and settled.missed.count == 200 * 12
    assert [one.instant for one in settled.fresh] == [first + 86_400 * 200]
    assert settled.next_at == first + 86_400 * 200 + 7_200


def test_the_latest_instants_of_a_gap_of_years() -> None:
    schedule = Schedule("cron", "0 8 1 1 *", "UTC", "yearly")
    first, last = (datetime(year, 1, 1, 8, tzinfo=UTC).timestamp() for year in (2027, 2030))
    settled = schedule.settle(first, last + 86_400)
    assert settled.missed is not None and settled.missed.count == 4
    found = [datetime.fromtimestamp(at, UTC).year for at in schedule.latest(settled.missed, 3)]
    assert found == [2028, 2029, 2030]
