"""The judge of storms: a run in which all went well has no violation, and each promise that is broken is named."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.support.history import RULES, History, Labelled

from gateway.outbound.send_item import REPEATED
from hermes_state.turns.inbox import InboxRow
from hermes_state.turns.outbox import OutboxItem
from hermes_state.turns.turns import Turn
from hermes_testing.telegram.client import FakePerson, SeenMessage, TelegramControl

ADA = FakePerson(TelegramControl(), "ada", 42)


def row(number: int, **changes: Any) -> InboxRow:
    facts = {
        "id": number, "platform": "telegram", "account": "", "chat_id": "42", "message_id": str(number), "version": 0,
        "route": "dm:42", "person_id": None, "trace_id": "t", "payload": {"text": f"plain #7-{number}"},
        "state": "answered", "turn_id": f"turn{number}", "reason": None, "received_at": 1.0, "ended_at": 2.0,
    }  # fmt: skip
    return InboxRow(**(facts | changes))


def item(number: int, **changes: Any) -> OutboxItem:
    facts = {
        "id": number, "dedup_key": f"answer:turn{number}", "platform": "telegram", "account": "", "chat_id": "42",
        "conversation_id": "c", "turn_id": f"turn{number}", "trace_id": "t",
        "payload": {"text": f"Answer to #7-{number}.", "kind": "answer"}, "state": "sent", "attempts": 1,
        "give_up_after": 8, "next_attempt_at": None, "sender": None, "sending_until": None,
        "platform_ids": (str(100 + number),), "draft": None, "error": None, "created_at": 1.0, "ended_at": 2.0,
    }  # fmt: skip
    return OutboxItem(**(facts | changes))


def turn(number: int, **changes: Any) -> Turn:
    facts = {
        "id": f"turn{number}", "conversation_id": "c", "session_id": "s", "route": "dm:42", "trace_id": "t",
        "fence": number, "attempt": 1, "state": "done", "reason": None, "progress": None, "started_at": 1.0,
        "updated_at": 2.0, "ended_at": 2.0,
    }  # fmt: skip
    return Turn(**(facts | changes))


def seen(number: int, text: str) -> SeenMessage:
    return SeenMessage(
        id=number, sender="Hermes", sender_id=1, mine=False, bot=True, text=text, entities=[], file=None, buttons=[],
        thread=0, reply_to=0, edits=0, versions=[], date=0,
    )  # fmt: skip


def good() -> History:
    numbers = (1, 2)
    return History(
        said=[Labelled(f"#7-{number}", ADA, number) for number in numbers],
        chats={"42": [seen(100 + number, f"Answer to #7-{number}.") for number in numbers]},
        updates=[
            {"chat_id": 42, "message_id": number, "acknowledged_at": 1.0, "delivered": 1} for number in numbers
        ],
        inbox=[row(number) for number in numbers],
        outbox=[item(number) for number in numbers],
        turns={f"turn{number}": turn(number) for number in numbers},
        transcripts={"42": [{"role": "user", "content": f"plain #7-{number}"} for number in numbers]},
        effects=["#7-1"],
        refused=(),
        breaks=0,
    )  # fmt: skip


def test_nothing_is_found_where_nothing_is_wrong() -> None:
    assert good().violations() == []


TWICE = [seen(101, "Answer to #7-1."), seen(102, "Answer to #7-2."), seen(103, "Answer to #7-1.")]


@pytest.mark.parametrize(
    ("rule", "words", "changes"),
    [
        ("stored", "was acknowledged and is not stored", {"inbox": [row(1)]}),
        ("stored", "is stored 2 times", {"inbox": [row(1), row(1), row(2)]}),
        ("ended", "has no outcome: it is claimed", {"inbox": [row(1), row(2, state="claimed", ended_at=None)]}),
        ("ended", "nothing was owed", {"outbox": [item(1)], "chats": {"42": [seen(101, "Answer to #7-1.")]}}),
        ("ended", "nobody can look up why", {"inbox": [row(1), row(2, state="dropped")]}),
        ("ended", "never ended", {"turns": {"turn1": turn(1), "turn2": turn(2, state="running")}}),
        ("delivered", "is still pending", {"outbox": [item(1), item(2, state="pending")]}),
        ("delivered", "is missing: it is unknown", {"outbox": [item(1), item(2, state="unknown")]}),
        ("delivered", "does not stand in its chat", {"chats": {"42": [seen(101, "Answer to #7-1.")]}}),
        ("delivered", "shows", {"chats": {"42": [seen(101, "Answer to #7-1."), seen(102, "Answer to #7-2. And")]}}),
        ("once", "stands 2 times", {"chats": {"42": TWICE}}),
        ("once", "was answered 2 times", {"outbox": [item(1), item(2), item(3, payload=item(1).payload)]}),
        ("ordered", "out of order: 2 before 1", {"chats": {"42": [seen(1, "Answer to #7-2"), *TWICE[:1]]}}),
        ("ordered", "was stored out of order", {"inbox": [row(2), row(1)]}),
        ("transcribed", "is not in the transcript", {"transcripts": {"42": []}}),
        ("transcribed", "stands 2 times", {"transcripts": {"42": [*good().transcripts["42"]] * 2}}),
        ("acted", "ran 2 times", {"effects": ["#7-1", "#7-1"]}),
        ("valid", "refused a request", {"refused": ["no"]}),
        ("valid", "did not begin", {"breaks": 1}),
    ],
)
def test_each_broken_promise_is_named(rule: str, words: str, changes: dict[str, Any]) -> None:
    found = replace(good(), **changes).violations()
    assert any(line.startswith(f"{rule}: ") and words in line for line in found), found


def test_a_second_copy_that_says_so_is_none() -> None:
    marked = [*TWICE[:2], seen(103, f"{REPEATED}\n\nAnswer to #7-1.")]
    assert [line for line in replace(good(), chats={"42": marked}).violations() if line.startswith("once")] == []


def test_a_first_sentence_beside_a_long_answer_is_a_stray_and_beside_a_short_one_a_copy() -> None:
    long = "Answer to #7-1. " + "And more. " * 30
    chat = [seen(90, "Answer to #7-1."), seen(101, long), seen(102, "Answer to #7-2.")]
    found = replace(good(), chats={"42": chat}, outbox=[item(1, payload={"text": long}), item(2)])
    assert found.violations() == [] and found.strays() == {("42", 90)}
    short = replace(good(), chats={"42": [chat[0], *good().chats["42"]]})
    assert any("stands 2 times" in line for line in short.violations())


def test_every_rule_is_tried_here() -> None:
    tried = {case[0] for case in test_each_broken_promise_is_named.pytestmark[0].args[1]}  # type: ignore[attr-defined]
    assert tried == set(RULES)
