"""A compression as it happens: on a real store, with summarisers that are good, bad, slow and gone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from hermes_agent.compression import compress as run
from hermes_agent.compression import policy, summary
from hermes_agent.compression.compress import CompressionOutcome, Summarise
from hermes_agent.compression.policy import ContextWindow
from hermes_agent.messages import tokens_of
from hermes_agent.models.base import ErrorKind, ModelError
from hermes_config.sections import CompressionSection
from hermes_state import SessionDB
from hermes_state.errors import StaleFence
from hermes_state.ids import SessionId, TurnId
from hermes_state.turns.journal import Journal
from hermes_state.turns.leases import Lease
from hermes_testing.clock import Clock

pytestmark = pytest.mark.slow

WINDOW = ContextWindow(context_length=12_000, settings=CompressionSection(protect_last_n=6))
KEY = "agent:main:telegram:dm:42"
GOOD = "## Goal\nPlan a week in Kyoto.\n## Critical context\nAda is allergic to nuts."


def exchange(n: int, words: int = 200) -> list[dict[str, Any]]:
    return [
        {"role": "user", "content": f"question {n} " + "word " * words},
        {"role": "assistant", "content": f"answer {n} " + "word " * words},
    ]


@pytest.fixture
def chat(db: SessionDB) -> SessionId:
    session_id = db.ledger.open(source="telegram", route=KEY).session_id
    db.append_messages(session_id, [row for n in range(20) for row in exchange(n)])
    db.set_session_title(session_id, "Kyoto")
    return session_id


class Summariser:
    """Answers with one text, or does what it is told to."""

    def __init__(self, act: Callable[[str], Awaitable[str]] | str = GOOD) -> None:
        self.act = act
        self.asked: list[str] = []

    async def __call__(self, prompt: str, most: int) -> str:
        self.asked.append(prompt)
        return self.act if isinstance(self.act, str) else await self.act(prompt)


def failing(kind: ErrorKind) -> Summariser:
    async def act(prompt: str) -> str:
        raise ModelError(kind, "no")

    return Summariser(act)


def compress(db: SessionDB, session_id: str, summarise: Summarise, **options: Any) -> CompressionOutcome:
    """As a turn does it: with the writer of a lease. `seconds`: how long a summary may take."""
    if (seconds := options.pop("seconds", None)) is not None:
        db.limits = db.limits.changed(summary_seconds=seconds)
    lease = None if "writer" in options else leased(db, session_id)
    writer = options.pop("writer", None) or journal_of(db, lease, session_id)
    facts: dict[str, Any] = {"db": db, "writer": writer, "session_id": session_id, "window": WINDOW, **options}
    try:
        return asyncio.run(run.compress(run.Compression(summarise=summarise, **facts)))
    finally:
        if lease is not None:
            asyncio.run(writer.give_up("cancelled", reason="the turn is over"))


def journal_of(db: SessionDB, lease: Lease | None, session_id: str) -> Journal:
    """Of a turn that has just begun under the lease."""
    assert lease is not None
    fence, segment = lease.fence, SessionId(session_id)
    work = db.engine.write(
        lambda conn: db.turns.begin_in(
            conn, conversation_id=lease.conversation_id, session_id=segment, fence=fence, turn_id=TurnId(f"t{fence}")
        )
    )
    assert work is not None
    return Journal(db, lease, work, segment)


def leased(db: SessionDB, session_id: str) -> Lease:
    lease = db.leases.acquire(db.get_conversation_root(session_id), holder="turn", ttl=600)
    assert lease is not None
    return lease


def rows(db: SessionDB, session_id: str) -> list[Any]:
    return [message["content"] for message in db.get_messages(session_id)]


def tip(db: SessionDB) -> str:
    found = db.engine.write(db.ledger.resolving(KEY))
    assert found is not None
    return found.handle.session_id


def test_the_middle_becomes_a_labelled_summary_in_a_new_segment(db: SessionDB, chat: SessionId) -> None:
    before = rows(db, chat)
    outcome = compress(db, chat, Summariser())
    assert outcome.kind == "rotated"
    new = tip(db)
    assert tip(db) == new != chat
    assert db.get_session_title(new) == "Kyoto"
    assert rows(db, chat) == before  # what was left out is still there
    kept = rows(db, new)
    assert kept[:3] == before[:3]
    assert kept[-6:] == before[-6:]
    said = [body for message in db.get_messages(new) if (body := summary.body(message))]
    assert said == [GOOD]
    assert (outcome.summary_calls, outcome.fallback) == (1, False)
    assert outcome.after_tokens < outcome.before_tokens
    assert outcome.after_tokens <= WINDOW.target


def test_rows_are_carried_over_with_everything_they_say(db: SessionDB, chat: SessionId) -> None:
    lease = db.leases.acquire(db.get_conversation_root(chat), holder="p", ttl=600)
    assert lease is not None
    writer = journal_of(db, lease, chat)
    details = [{"type": "thinking", "signature": "s"}]
    call = [{"id": "c1", "type": "function", "function": {"name": "t", "arguments": '{"a": 1}'}}]
    said: list[dict[str, Any]] = [
        {"content": "now", "api_content": "now, at noon", "platform_message_id": "m1", "person_id": "ada"},
        {"role": "assistant", "content": "", "tool_calls": call, "reasoning": "hm", "reasoning_details": details},
        {"role": "tool", "content": "done", "tool_call_id": "c1", "tool_name": "t"},
    ]
    asyncio.run(writer.append(*({"role": "user", **row} for row in said)))
    before = db.get_messages_as_conversation(chat)[-3:]
    outcome = compress(db, chat, Summariser(), writer=writer)
    assert outcome.kind == "rotated"
    assert writer.session_id == tip(db)
    assert db.get_messages_as_conversation(writer.session_id)[-3:] == before
    assert [(m["turn_id"], m["person_id"]) for m in db.get_messages(writer.session_id)[-3:]] == [
        ("t1", "ada"), ("t1", None), ("t1", None),
    ]  # fmt: skip
    asyncio.run(writer.append({"role": "assistant", "content": "and on"}))  # the turn goes on in the new segment


def test_a_later_compression_brings_the_summary_up_to_date(db: SessionDB, chat: SessionId) -> None:
    compress(db, chat, Summariser())
    second = tip(db)
    db.append_messages(second, [row for n in range(20, 40) for row in exchange(n)])
    model = Summariser("## Goal\nPlan two weeks in Kyoto.")
    assert compress(db, second, model, focus="the second week").kind == "rotated"
    assert "Ada is allergic to nuts." in model.asked[0]
    assert "the second week" in model.asked[0]
    bodies = [body for message in db.get_messages(tip(db)) if (body := summary.body(message))]
    assert bodies == ["## Goal\nPlan two weeks in Kyoto."]


# -- summarisers that are no good ----------------------------------------------------------------------------------


async def _echo(prompt: str) -> str:
    return prompt


async def _endless(prompt: str) -> str:
    return "\n".join(f"line {n} of a summary that does not end" for n in range(100_000))


async def _asleep(prompt: str) -> str:
    await asyncio.sleep(3_600)
    return GOOD


BAD: dict[str, tuple[Callable[[], Summariser], int]] = {
    "empty": (lambda: Summariser("  \n"), 2),
    "echo": (lambda: Summariser(_echo), 2),
    "ten times longer": (lambda: Summariser(_endless), 2),
    "error": (lambda: failing("server"), 2),
    "overflow": (lambda: failing("context_overflow"), 2),
    "time-out": (lambda: Summariser(_asleep), 1),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_summariser_costs_two_calls_and_loses_no_fact_of_the_tail(
    db: SessionDB, chat: SessionId, clock: Clock, name: str
) -> None:
    make, calls = BAD[name]
    db.append_message(chat, "user", "the code word is HERON")
    db.append_message(chat, "assistant", "noted")
    model = make()
    outcome = compress(db, chat, model, seconds=0.05)
    assert (outcome.kind, outcome.fallback, outcome.summary_calls) == ("rotated", True, calls)
    assert len(model.asked) == calls
    assert outcome.after_tokens < outcome.before_tokens
    new = tip(db)
    assert rows(db, new)[-2:] == ["the code word is HERON", "noted"]
    assert db.get_compression_fallback_streak(new) == 1
    cooling = db.get_compression_failure_cooldown(new)
    assert cooling is not None
    clock.advance(cooling["remaining_seconds"] + 1)
    assert db.get_compression_failure_cooldown(new) is None


@pytest.mark.parametrize("name", BAD)
def test_twenty_turns_with_a_bad_summariser_all_fit(
    db: SessionDB, clock: Clock, name: str, reopen: Callable[[SessionDB], SessionDB]
) -> None:
    """The fault is durable: a restart does not ask again at once, and no turn is left without room."""
    make, _ = BAD[name]
    db.ledger.open(source="telegram", route=KEY)
    asked = 0
    for turn in range(20):
        session, model = tip(db), make()
        db.append_messages(session, exchange(turn, words=700))
        db.append_message(session, "user", f"fact {turn}: HERON")
        for compactions in range(policy.PASSES):
            weight = sum(tokens_of(message) for message in db.get_messages(tip(db)))
            if not policy.due(WINDOW, estimated=weight, compactions=compactions, pace=policy.Pace()):
                break
            compress(db, tip(db), model, calls_left=policy.SUMMARY_CALLS - len(model.asked), seconds=0.02)
        assert len(model.asked) <= policy.SUMMARY_CALLS
        asked += len(model.asked)
        weight = sum(tokens_of(message) for message in db.get_messages(tip(db)))
        assert weight < WINDOW.usable
        assert rows(db, tip(db))[-1] == f"fact {turn}: HERON"
        db.append_message(tip(db), "assistant", "noted")
        clock.advance(5)
        if turn % 7 == 6:
            db = reopen(db)
    assert 0 < asked < 20


@pytest.mark.parametrize("kind", ["auth", "billing", "network", "budget"])
def test_a_summariser_out_of_reach_leaves_everything_as_it_is(db: SessionDB, chat: SessionId, kind: ErrorKind) -> None:
    before = rows(db, chat)
    outcome = compress(db, chat, failing(kind))
    assert (outcome.kind, outcome.summary_calls) == ("not_applied", 1)
    assert "nothing was left out" in outcome.reason
    assert (tip(db), rows(db, chat)) == (chat, before)
    assert compress(db, chat, Summariser()).kind == "not_applied"  # it waits, and asks nobody
    assert compress(db, chat, Summariser(), force=True).kind == "rotated"  # a person does not wait


def test_what_does_not_fit_is_made_to_fit_without_a_summariser(db: SessionDB, chat: SessionId) -> None:
    outcome = compress(db, chat, failing("network"), must=True)
    assert (outcome.kind, outcome.fallback) == ("rotated", True)
    assert outcome.after_tokens <= outcome.before_tokens * 6 // 10
    model = Summariser()
    second = compress(db, tip(db), model, must=True)
    assert (second.kind, second.summary_calls, model.asked) == ("rotated", 0, [])
    assert second.reason == outcome.reason != "", (
        "the person is told why, also while Hermes waits before it tries again"
    )
    third = compress(db, tip(db), model, must=True, calls_left=0)
    assert (third.kind, third.summary_calls, model.asked) == ("rotated", 0, [])


def test_a_home_that_wants_no_summary_without_a_model_gets_none(db: SessionDB, chat: SessionId) -> None:
    settings = CompressionSection(protect_last_n=6, abort_on_summary_failure=True)
    strict = ContextWindow(context_length=12_000, settings=settings)
    assert compress(db, chat, Summariser(""), window=strict).kind == "not_applied"
    assert tip(db) == chat


def test_a_good_summary_ends_the_streak(db: SessionDB, chat: SessionId) -> None:
    db.set_compression_fallback_streak(chat, 2)
    assert compress(db, chat, Summariser()).kind == "not_applied"
    assert compress(db, chat, Summariser(), force=True).kind == "rotated"
    assert db.get_compression_fallback_streak(tip(db)) == 0


# -- who else is there ---------------------------------------------------------------------------------------------


def test_two_at_once_make_one_child(db: SessionDB, chat: SessionId) -> None:
    async def slow(prompt: str) -> str:
        await asyncio.sleep(0.05)
        return GOOD

    async def both() -> list[CompressionOutcome]:
        lease = leased(db, chat)
        journal = journal_of(db, lease, chat)
        jobs = ({"db": db, "writer": journal, "session_id": chat, "window": WINDOW} for _ in "ab")
        return await asyncio.gather(*(run.compress(run.Compression(summarise=Summariser(slow), **job)) for job in jobs))  # type: ignore[arg-type]

    assert sorted(outcome.kind for outcome in asyncio.run(both())) == ["busy", "rotated"]
    assert len(db.get_compression_lineage(chat)) == 2
    db.leases.release_holder("turn")
    late = compress(db, chat, Summariser())
    assert (late.kind, tip(db) in late.reason) == ("busy", True)
    assert len(db.get_compression_lineage(chat)) == 2


def test_a_turn_that_lost_its_lease_changes_nothing(db: SessionDB, chat: SessionId) -> None:
    lease = leased(db, chat)
    db.leases.release(lease)
    with pytest.raises(StaleFence):
        compress(db, chat, Summariser(), writer=journal_of(db, lease, chat))
    assert tip(db) == chat


def test_a_message_that_comes_in_meanwhile_is_kept(db: SessionDB, chat: SessionId) -> None:
    async def interrupted(prompt: str) -> str:
        if rows(db, chat)[-1] != "one more thing":
            await asyncio.to_thread(db.append_message, chat, "user", "one more thing")
        return GOOD

    model = Summariser(interrupted)
    outcome = compress(db, chat, model)
    assert (outcome.kind, outcome.fallback, len(model.asked)) == ("rotated", False, 2)
    assert rows(db, tip(db))[-1] == "one more thing"


def test_an_undo_meanwhile_is_respected(db: SessionDB, chat: SessionId) -> None:
    last = db.get_messages(chat)[-2]

    async def interrupted(prompt: str) -> str:
        if db.get_messages(chat)[-1]["id"] > last["id"]:
            await asyncio.to_thread(db.rewind_to_message, chat, last["id"])
        return GOOD

    outcome = compress(db, chat, Summariser(interrupted))
    assert (outcome.kind, outcome.summary_calls) == ("rotated", 2)
    assert rows(db, tip(db))[-1].startswith("answer 18")


def test_a_short_conversation_says_so_to_who_asks(db: SessionDB) -> None:
    session = db.ledger.open(source="cli").session_id
    db.append_messages(session, exchange(0)[:2])
    outcome = compress(db, session, Summariser(), force=True)
    assert (outcome.kind, outcome.summary_calls) == ("not_needed", 0)
    assert "nothing to leave out" in outcome.reason
    assert compress(db, session, Summariser()).reason == ""


def test_undoing_it_brings_everything_back(db: SessionDB, chat: SessionId) -> None:
    before = rows(db, chat)
    assert compress(db, chat, Summariser()).kind == "rotated"
    db.append_message(tip(db), "user", "since then")
    db.ledger.uncompress(tip(db))
    assert (tip(db), rows(db, chat)) == (chat, [*before, "since then"])
