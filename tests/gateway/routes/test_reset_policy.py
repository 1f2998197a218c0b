"""When a chat starts over by itself, in the person's own zone and across the two days on which clocks change."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from gateway.config import GatewayConfig, SessionResetPolicy
from gateway.routes.reset_policy import daily_boundary, due, latest_due, zone_of
from gateway.routes.resolver import RouteRules
from gateway.routes.source import local_time

NEW_YORK, BERLIN = ZoneInfo("America/New_York"), ZoneInfo("Europe/Berlin")
IDLE = SessionResetPolicy(mode="idle", idle_minutes=30)
DAILY = SessionResetPolicy(mode="daily", at_hour=4)


def utc(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize("mode", ["none", "banana"])
def test_without_a_rule_nothing_is_ever_due(mode: str) -> None:
    assert due(SessionResetPolicy(mode=mode), 0.0, 1e9, lambda: UTC) is None
    assert latest_due(SessionResetPolicy(mode=mode), 1e9) is None


def test_idle_is_a_distance_between_instants() -> None:
    assert due(IDLE, 1000.0, 1000.0 + 1800, lambda: UTC) is None
    assert due(IDLE, 1000.0, 1000.0 + 1801, lambda: UTC) == "idle"
    assert due(IDLE, 5000.0, 1000.0, lambda: UTC) is None, "a clock that was set back makes nothing due"


def test_both_says_idle_first() -> None:
    both = SessionResetPolicy(mode="both", idle_minutes=30, at_hour=4)
    assert due(both, utc("2026-07-01T03:00"), utc("2026-07-01T10:00"), lambda: UTC) == "idle"
    assert due(both, utc("2026-07-01T03:50"), utc("2026-07-01T04:10"), lambda: UTC) == "daily"


@pytest.mark.parametrize(
    ("zone", "hour", "now", "boundary"),
    [
        (UTC, 4, "2026-07-01T03:59", "2026-06-30T04:00"),
        (UTC, 4, "2026-07-01T04:00", "2026-07-01T04:00"),
        # New York, 8 March 2026: 02:00 EST becomes 03:00 EDT at 07:00 UTC.
        (NEW_YORK, 4, "2026-03-08T07:59", "2026-03-07T09:00"),
        (NEW_YORK, 4, "2026-03-08T08:00", "2026-03-08T08:00"),
        (NEW_YORK, 2, "2026-03-08T06:59", "2026-03-07T07:00"),
        (NEW_YORK, 2, "2026-03-08T07:00", "2026-03-08T07:00"),
        # New York, 1 November 2026: 02:00 EDT becomes 01:00 EST at 06:00 UTC, so 01:00 comes twice.
        (NEW_YORK, 1, "2026-11-01T05:00", "2026-11-01T05:00"),
        (NEW_YORK, 1, "2026-11-01T06:30", "2026-11-01T05:00"),
        (NEW_YORK, 4, "2026-11-01T08:59", "2026-10-31T08:00"),
        (NEW_YORK, 4, "2026-11-01T09:00", "2026-11-01T09:00"),
        # Berlin, 29 March 2026: 02:00 CET becomes 03:00 CEST at 01:00 UTC; back on 25 October at 01:00 UTC.
        (BERLIN, 2, "2026-03-29T00:59", "2026-03-28T01:00"),
        (BERLIN, 2, "2026-03-29T01:00", "2026-03-29T01:00"),
        (BERLIN, 4, "2026-03-29T02:00", "2026-03-29T02:00"),
        (BERLIN, 2, "2026-10-25T00:00", "2026-10-25T00:00"),
        (BERLIN, 2, "2026-10-25T01:30", "2026-10-25T00:00"),
        (BERLIN, 4, "2026-10-25T02:59", "2026-10-24T02:00"),
        (BERLIN, 4, "2026-10-25T03:00", "2026-10-25T03:00"),
    ],
)
def test_the_daily_hour_is_the_persons_own(zone: ZoneInfo, hour: int, now: str, boundary: str) -> None:
    assert daily_boundary(hour, utc(now), zone) == utc(boundary)


def test_the_same_moment_is_due_for_one_person_and_not_for_another() -> None:
    now, last = utc("2026-07-01T03:00"), utc("2026-07-01T01:00")
    assert due(DAILY, last, now, lambda: BERLIN) == "daily"  # 05:00 there
    assert due(DAILY, last, now, lambda: NEW_YORK) is None  # 23:00 there


def test_the_hour_that_comes_twice_starts_over_once() -> None:
    rule = SessionResetPolicy(mode="daily", at_hour=1)
    first, second = utc("2026-11-01T05:00"), utc("2026-11-01T06:00")
    assert due(rule, first - 60, first + 1, lambda: NEW_YORK) == "daily"
    assert due(rule, first + 60, second + 60, lambda: NEW_YORK) is None


class Rules(RouteRules):
    runs = False

    def busy(self, session_key: str) -> bool:
        return self.runs


def test_marks_count_when_somebody_writes_and_nothing_is_due_while_a_process_runs() -> None:
    rules, none = Rules(GatewayConfig(resume_window=3600)), SessionResetPolicy(mode="none")

    def reason(rule: SessionResetPolicy, entry: dict[str, Any], now: float, *, at_message: bool = True) -> str | None:
        return rules.reason(rule, "key", entry, 9_000.0, now, lambda: UTC, at_message=at_message)

    assert reason(none, {"suspended": True}, 9_010.0) == "suspended"
    assert reason(none, {"suspended": True}, 9_010.0, at_message=False) is None
    cut_off = {"resume_pending": True, "last_resume_marked_at": local_time(1_000.0).isoformat()}
    assert reason(none, cut_off, 10_000.0) is None
    assert reason(IDLE, cut_off, 10_000.0) == "resume_pending_expired"
    assert reason(IDLE, cut_off, 10_000.0, at_message=False) is None
    assert reason(IDLE, cut_off, 4_000.0) is None
    assert reason(IDLE, {}, 1e6) == "idle"
    rules.runs = True
    assert reason(IDLE, cut_off, 10_000.0) is reason(IDLE, {}, 1e6) is None


def test_a_zone_nobody_knows_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    assert zone_of("Middle/Earth", None, "Europe/Berlin") == BERLIN
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    assert zone_of(None, "") == ZoneInfo("Asia/Tokyo")
