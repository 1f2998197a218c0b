"""What the gateway itself says: once for each occasion, with what to do."""

from __future__ import annotations

import pytest

from gateway.config import SessionResetPolicy
from gateway.outbound import notices
from hermes_state.session_db import SessionDB


def test_an_occasion_is_told_once(db: SessionDB) -> None:
    said = notices.new_item("stale", "r1", "first", platform="telegram", chat_id="42", thread_id="7")
    again = notices.new_item("stale", "r1", "noticed again", platform="telegram", chat_id="42")
    other = notices.new_item("stale", "r2", "elsewhere", platform="telegram", chat_id="43")
    items = [db.outbox.enqueue(one) for one in (said, again, other)]
    assert items[0].id == items[1].id != items[2].id
    assert items[1].payload == {"text": "first", "kind": "notice", "thread_id": "7"}


def test_a_notice_about_a_delivery_stands_in_its_chat_and_trace(db: SessionDB) -> None:
    new_item = notices.new_item("x", 1, "an answer", platform="telegram", chat_id="42", account="bot", thread_id="7")
    item = db.outbox.enqueue(new_item)
    about = db.outbox.enqueue(notices.unknown_delivery(item))
    assert (about.platform, about.account, about.chat_id, about.trace_id) == ("telegram", "bot", "42", item.trace_id)
    assert about.payload["thread_id"] == "7" and f"/resend {item.id}" in about.payload["text"]


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("idle", "inactive for 24h"),
        ("daily", "daily schedule at 4:00"),
        ("suspended", "stopped or interrupted"),
        ("resume_pending_expired", "restart timed out"),
    ],
)
def test_a_reset_says_why_and_how_to_go_back(reason: str, words: str) -> None:
    text = notices.reset(reason, SessionResetPolicy(mode="both"))
    assert "automatically reset" in text and words in text and "History cleared" in text and "/resume" in text
    assert ("session_reset in config.yaml" in text) == (reason in ("idle", "daily"))


def test_spans_are_short_and_right() -> None:
    assert "inactive for 90m" not in notices.reset("idle", SessionResetPolicy(idle_minutes=90))
    assert "inactive for 1h 30m" in notices.reset("idle", SessionResetPolicy(idle_minutes=90))
    assert "inactive for 45m" in notices.reset("idle", SessionResetPolicy(idle_minutes=45))


@pytest.mark.parametrize(
    ("reason", "notify", "platform", "active", "told"),
    [
        ("idle", True, "telegram", True, True),
        ("idle", True, "telegram", False, False),
        ("idle", False, "telegram", True, False),
        ("daily", True, "api_server", True, False),
        ("suspended", False, "api_server", False, True),
        ("resume_pending_expired", False, "telegram", False, True),
    ],
)
def test_whether_a_reset_is_told(reason: str, notify: bool, platform: str, active: bool, told: bool) -> None:
    policy = SessionResetPolicy(mode="both", notify=notify)
    assert notices.reset_is_told(reason, policy, platform=platform, had_activity=active) is told


def test_counts_are_in_plain_words() -> None:
    one, many = notices.stale(1, hours=1), notices.stale(3, hours=2.5)
    assert "you sent 1 message" in one and "/catchup answers it" in one
    assert "you sent 3 messages" in many and "2h 30m" in many and "/catchup answers them" in many
    assert "(3 waiting)" in notices.busy("queue", waiting=3) and "waiting" not in notices.busy("queue", waiting=1)
    assert "send /undo again" in notices.cut_off_command("undo")
