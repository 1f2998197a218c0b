"""A state machine drives the store and a plain-Python model side by side, with restarts in between.

Every rule does one thing twice, in the store and in `tests.support.store_model`; after each step everything the store
holds must be what the model holds. `test_it_finds_a_planted_bug` shows that it can fail: it plants three bugs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from tests.support import store_model
from tests.support.stores import EngineName, TestStores, transact

from hermes_config.limits import Limits
from hermes_state.conversations import routes, transcript
from hermes_state.errors import ConversationHeld, HeadMoved, SessionEnded, StaleFence, TurnOver
from hermes_state.session_db import SessionDB
from hermes_state.storage.statements import Statement
from hermes_state.turns import leases
from hermes_state.turns.outbox import NewOutboxItem
from hermes_testing.clock import Clock

pytestmark = pytest.mark.slow

LIMITS = Limits(delivery_attempts=2)
ROUTES = st.sampled_from(["phone", "desk", "room"])
CHATS = st.sampled_from(["42", "43"])
REASONS = st.sampled_from(["user_exit", "agent_close", "idle"])
MOVES = st.sampled_from([0.5, 20.0, 400.0, 100_000.0, -15.0, -5_000.0])
ANY_SESSION = precondition(lambda self: self.said.segments)
ANY_FENCE = precondition(lambda self: self.fences)
ANY_TURN = precondition(lambda self: self.work.turns and self.fences)
ANY_CLAIM = precondition(lambda self: self.claims)


def any_item(*states: str) -> Any:
    return precondition(lambda self: any(item.state in states for item in self.work.outbox.values()))


class StoreMachine(RuleBasedStateMachine):
    """Draws what to do; `said` and `work` are the model, `db` is the store."""

    def __init__(self, address: Any, discard: Callable[[Any], None]) -> None:
        super().__init__()
        self.address, self.discard = address, discard
        self.clock = Clock()
        self.db = self.open_store()
        self.said = store_model.Conversations()
        self.work = store_model.Work(LIMITS.delivery_attempts)
        self.fences: list[leases.Lease] = []
        self.claims: list[Any] = []
        self.used = 0

    def open_store(self) -> SessionDB:
        return SessionDB(self.address, clock=self.clock, limits=LIMITS)

    def new(self, letter: str) -> str:
        self.used += 1
        return f"{letter}{self.used}"

    def session(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(list(self.said.segments)), "session")

    def some(self, data: st.DataObject) -> list[tuple[str, str]]:
        return [
            (role, self.new("m")) for role in data.draw(st.lists(st.sampled_from(["user", "assistant"]), max_size=3))
        ]

    def both(self, in_model: Callable[[], Any], in_store: Callable[[], Any]) -> tuple[Any, Any]:
        """What the model and the store answer; where the model refuses, the store must refuse for the same reason."""
        refusals: dict[type[Exception], type[Exception]] = {
            store_model.Ended: SessionEnded, store_model.Stale: StaleFence, store_model.Over: TurnOver,
            store_model.Held: ConversationHeld,
        }  # fmt: skip
        try:
            expected = in_model()
        except tuple(refusals) as refused:
            with pytest.raises(refusals[type(refused)]) as caught:
                in_store()
            if isinstance(refused, store_model.Ended):
                assert caught.value.tip == refused.tip
            return None, None
        return expected, in_store()

    # -- conversations -----------------------------------------------------------------------------------

    @rule(route=st.none() | ROUTES)
    def open(self, route: str | None) -> None:
        new = self.new("s")
        if route in self.said.routes:  # opening takes the route and leaves what it led to as it is
            self.said.routes.pop(route)
        self.said.open(new, route)
        self.db.ledger.open(source="test", route=route, session_id=new)

    @rule(route=ROUTES)
    def resolve(self, route: str) -> None:
        found = self.db.engine.write(self.db.ledger.resolving(route))
        assert (found and found.handle.session_id) == self.said.resolve(route)

    @rule(route=ROUTES)
    def resolve_or_open(self, route: str) -> None:
        found = self.db.engine.write(self.db.ledger.resolving(route, source="test"))
        assert found is not None
        assert found.handle.session_id == self.said.resolve(route, found.handle.session_id)
        assert found.handle.conversation_id == self.said.root(found.handle.session_id)

    @ANY_SESSION
    @rule(data=st.data(), moved=st.booleans())
    def rotate(self, data: st.DataObject, moved: bool) -> None:
        old, new, said = self.session(data), self.new("s"), self.some(data)
        if moved and self.said.segments[old].live() and self.said.segments[old].ended != "compression":
            with pytest.raises(HeadMoved):
                self.db.ledger.rotate(old, _rows(said), new_id=new, expected_head=0)
            return
        self.both(lambda: self.said.rotate(old, said, new), lambda: self.db.ledger.rotate(old, _rows(said), new_id=new))

    @ANY_FENCE
    @rule(data=st.data())
    def rotate_under_a_fence(self, data: st.DataObject) -> None:
        lease, new = data.draw(st.sampled_from(self.fences), "lease"), self.new("s")
        if lease.conversation_id not in self.said.segments:
            return
        tip = self.said.tip(lease.conversation_id)

        def in_model() -> None:
            self.work.check(lease.conversation_id, lease.fence, self.clock())
            self.said.rotate(tip, [], new)

        self.both(in_model, lambda: self.db.ledger.rotate(tip, [], new_id=new, fence=lease.fence))

    @ANY_SESSION
    @rule(data=st.data(), route=st.none() | ROUTES)
    def branch(self, data: st.DataObject, route: str | None) -> None:
        origin, new = self.session(data), self.new("s")
        self.said.branch(origin, new, route)
        self.db.ledger.branch(origin, new_id=new, route=route)

    @ANY_SESSION
    @rule(data=st.data(), route=ROUTES)
    def switch(self, data: st.DataObject, route: str) -> None:
        target = self.session(data)
        assert self.db.ledger.switch(route, target).session_id == self.said.switch(route, target)

    @rule(route=ROUTES, new_route=ROUTES)
    def take_along(self, route: str, new_route: str) -> None:
        assert self.db.ledger.take_along(route, new_route) == self.said.take_along(route, new_route)

    @rule(route=ROUTES)
    def reset(self, route: str) -> None:
        new, before = self.new("s"), self.said.routes.get(route)
        self.said.reset(route, new)
        assert self.db.ledger.reset(route, session_id=new).previous == before

    @ANY_SESSION
    @rule(data=st.data(), reason=REASONS)
    def end(self, data: st.DataObject, reason: str) -> None:
        session = self.session(data)
        assert self.db.ledger.end(session, reason) == self.said.end(session, reason)

    @ANY_SESSION
    @rule(data=st.data())
    def reopen(self, data: st.DataObject) -> None:
        session = self.session(data)
        assert self.db.ledger.reopen(session).session_id == self.said.reopen(session)

    @ANY_SESSION
    @rule(data=st.data())
    def rename(self, data: st.DataObject) -> None:
        session, title = self.session(data), self.new("title ")
        self.said.rename(session, title)
        assert self.db.set_session_title(session, title)

    @precondition(lambda self: len(self.said.segments) > 2)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        session = self.session(data)
        root = self.said.root(session)
        routes = {route for route, leads in self.said.routes.items() if self.said.root(leads) == root}

        def in_model() -> int:
            self.work.erase(root, routes, self.clock())
            return len(self.said.delete(session))

        expected, erased = self.both(in_model, lambda: self.db.ledger.delete(session))
        assert erased == expected

    # -- transcripts -------------------------------------------------------------------------------------

    @ANY_SESSION
    @rule(data=st.data())
    def append(self, data: st.DataObject) -> None:
        session, said = self.session(data), [("user", self.new("m"))]
        self.both(lambda: self.said.append(session, said), lambda: self.db.append_message(session, *said[0]))

    @ANY_SESSION
    @rule(data=st.data())
    def append_several(self, data: st.DataObject) -> None:
        session, said = self.session(data), [*self.some(data), ("user", self.new("m"))]
        self.both(lambda: self.said.append(session, said), lambda: self.db.append_messages(session, _rows(said)))

    @ANY_SESSION
    @rule(data=st.data())
    def rewind(self, data: st.DataObject) -> None:
        session = self.session(data)
        visible = self.said.segments[session].visible()
        users = [n for n, row in enumerate(visible) if row.role == "user"]
        if users:
            index = data.draw(st.sampled_from(users), "message")
            target = self.db.get_messages(session, include_inactive=True)[index]["id"]
            rewound = self.db.rewind_to_message(session, target)["rewound_count"]
            assert rewound == self.said.rewind(session, index)

    @ANY_SESSION
    @rule(data=st.data(), compact=st.booleans())
    def rewrite(self, data: st.DataObject, compact: bool) -> None:
        session, said = self.session(data), self.some(data)
        (self.said.compact if compact else self.said.replace)(session, said)
        (self.db.archive_and_compact if compact else self.db.replace_messages)(session, _rows(said))

    # -- leases, inbox, turns ----------------------------------------------------------------------------

    @ANY_SESSION
    @rule(data=st.data(), ttl=st.sampled_from([1.0, 60.0, 3_600.0]))
    def acquire(self, data: st.DataObject, ttl: float) -> None:
        root = self.said.root(self.session(data))
        lease = self.db.leases.acquire(root, holder="me", ttl=ttl)
        assert (lease and lease.fence) == self.work.acquire(root, "me", ttl, self.clock())
        if lease is not None:
            self.fences.append(lease)

    @ANY_FENCE
    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        lease = data.draw(st.sampled_from(self.fences), "lease")
        kept = transact(self.db.leases.renew_in, lease, ttl=30) is not None
        assert kept == self.work.renew(lease.conversation_id, lease.fence, 30, self.clock())

    @ANY_FENCE
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        lease = data.draw(st.sampled_from(self.fences), "lease")
        assert self.db.leases.release(lease) == self.work.release(lease.conversation_id, lease.fence)

    @rule(data=st.data(), route=ROUTES)
    def accept(self, data: st.DataObject, route: str) -> None:
        known = st.sampled_from(sorted(self.work.inbox)) if self.work.inbox else st.nothing()
        message = data.draw(st.builds(lambda: self.new("i")) | known, "message")
        new = self.work.accept(message, route, self.clock())
        got = self.db.inbox.accept(platform="p", chat_id="c", message_id=message, route=route, payload={"n": message})
        assert got.new == new

    @ANY_SESSION
    @rule(data=st.data(), route=ROUTES)
    def take_up(self, data: st.DataObject, route: str) -> None:
        """What a gateway does: a message comes in, the conversation is free, a turn begins."""
        self.accept(data, route)
        self.acquire(data, 60.0)
        if self.fences:
            self.begin(data, route)

    @ANY_FENCE
    @rule(data=st.data(), route=ROUTES)
    def begin(self, data: st.DataObject, route: str) -> None:
        lease, turn = data.draw(_mostly_last(self.fences), "lease"), self.new("t")
        root = lease.conversation_id
        if root not in self.said.segments:
            return
        tip, now = self.said.tip(root), self.clock()

        def begin(conn: Any) -> Any:
            self.db.leases.check(conn, root, lease.fence)
            return self.db.turns.begin_in(
                conn, conversation_id=root, session_id=tip, fence=lease.fence, route=route, claim=1, turn_id=turn
            )

        expected, work = self.both(
            lambda: self.work.begin(turn, root, tip, lease.fence, route, now),
            lambda: self.db.engine.write(begin),
        )
        assert (work and work.inbox[0].message_id) == expected

    @ANY_TURN
    @rule(data=st.data(), chat=st.none() | CHATS, stale=st.booleans())
    def commit(self, data: st.DataObject, chat: str | None, stale: bool) -> None:
        turn, lease = self.turn_and_lease(data)
        known, said = self.work.turns[turn], [("assistant", self.new("m"))]
        segment = known.segment if stale else self.said.tip(known.conversation)
        reply = chat and NewOutboxItem(dedup_key=f"reply {turn}", platform="p", chat_id=chat, payload={})

        def in_model() -> None:
            self.work.may_commit(turn, lease.fence, self.clock())
            self.said.append(segment, said)
            self.work.finish(turn, "done", "answered" if reply else "silent")
            if chat:
                self.work.owe(f"reply {turn}", chat, known.conversation, turn)

        self.both(
            in_model,
            lambda: transact(
                self.db.turns.commit_in,
                turn,
                fence=lease.fence,
                session_id=segment,
                final=_rows(said),
                reply=reply or None,
            ),
        )

    @ANY_TURN
    @rule(data=st.data(), how=st.sampled_from(["fail", "park", "resume"]))
    def give_up(self, data: st.DataObject, how: str) -> None:
        turn, lease = self.turn_and_lease(data)

        def in_model() -> None:
            self.work.may_take_over(turn, lease.fence, self.clock())
            if how == "resume":
                self.work.resume(turn, lease.fence)
            else:
                self.work.finish(turn, {"fail": "failed", "park": "given_up"}[how], "error")

        verbs = {
            "fail": lambda: transact(self.db.turns.give_up_in, turn, "failed", fence=lease.fence, reason="x"),
            "park": lambda: transact(self.db.turns.give_up_in, turn, "given_up", fence=lease.fence, reason="x"),
            "resume": lambda: transact(self.db.turns.resume_in, turn, fence=lease.fence),
        }
        self.both(in_model, verbs[how])

    def turn_and_lease(self, data: st.DataObject) -> tuple[str, leases.Lease]:
        """A turn and, mostly, a lease of its conversation: the present one, an old one, or somebody else's."""
        turn = data.draw(_mostly_last(list(self.work.turns)), "turn")
        own = [lease for lease in self.fences if lease.conversation_id == self.work.turns[turn].conversation]
        return turn, data.draw(_mostly_last(own or self.fences), "lease")

    # -- outbox ------------------------------------------------------------------------------------------

    @rule(data=st.data(), chat=CHATS)
    def owe(self, data: st.DataObject, chat: str) -> None:
        known = st.sampled_from(sorted(self.work.outbox)) if self.work.outbox else st.nothing()
        key = data.draw(st.builds(lambda: self.new("o")) | known, "key")
        self.work.owe(key, chat)
        self.db.outbox.enqueue(NewOutboxItem(dedup_key=key, platform="p", chat_id=chat, payload={}))

    @any_item("pending")
    @rule()
    def claim_due(self) -> None:
        found = transact(self.db.outbox.claim_due_in, sender="me")
        assert {item.dedup_key for item in found} == self.work.claim_due("me", self.clock())
        self.claims += found

    @ANY_CLAIM
    @rule(data=st.data(), outcome=st.sampled_from(["sent", "pending", "failed", "unknown"]))
    def report(self, data: st.DataObject, outcome: str) -> None:
        item = data.draw(st.sampled_from(self.claims), "item")
        verbs = {
            "sent": lambda: transact(self.db.outbox.sent_in, item, platform_ids=["1"]),
            "pending": lambda: transact(self.db.outbox.put_off_in, item, seconds=30, error="x") is not None,
            "failed": lambda: transact(self.db.outbox.close_in, item, "failed", error="x") is not None,
            "unknown": lambda: transact(self.db.outbox.close_in, item, "unknown", error="x") is not None,
        }
        delay = 30 if outcome == "pending" else 0
        assert verbs[outcome]() == self.work.report(item.dedup_key, item.attempts, outcome, self.clock(), delay)

    @any_item("sending")
    @rule(seconds=st.sampled_from([0.0, 130.0]))
    def lose_senders(self, seconds: float) -> None:
        self.clock.advance(seconds)
        found = self.db.outbox.lose_senders()
        assert {item.dedup_key for item in found} == self.work.lose_senders(self.clock())

    @any_item("failed", "unknown")
    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        item = self.item(data)
        assert self.db.outbox.retry(item.id) == self.work.retry(item.dedup_key)

    @any_item("pending", "sending", "failed", "unknown")
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        item = self.item(data)
        assert self.db.outbox.drop(item.id) == self.work.drop(item.dedup_key)

    def item(self, data: st.DataObject) -> Any:
        return data.draw(st.sampled_from(self.db.outbox.list(limit=1000)), "item")

    # -- the world ---------------------------------------------------------------------------------------

    @rule(seconds=MOVES)
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule()
    def restart(self) -> None:
        self.db.close()
        self.db = self.open_store()

    @ANY_SESSION
    @rule(data=st.data())
    def look_through_the_public_doors(self, data: st.DataObject) -> None:
        """A transcript, its newest segment, the list with one row a conversation, what recovery would find."""
        segment = self.said.segments[self.session(data)]
        shown = [(row["role"], row["content"]) for row in self.db.get_messages(segment.id)]
        assert shown == [(row.role, row.content) for row in segment.live()]
        assert self.db.get_compression_tip(segment.id) == self.said.tip(segment.id)
        listed = [row["id"] for row in self.db.list_sessions_rich(limit=1000, order_by_last_active=True)]
        assert sorted(listed) == sorted(self.said.tip(root) for root in self.said.roots())
        held = {
            (one.conversation_id, one.fence) for one in map(self.db.leases.get, self.said.roots()) if one is not None
        }
        left = {turn.id for turn in self.db.turns.running() if (turn.conversation_id, turn.fence) not in held}
        assert left == self.work.unfinished(self.clock())

    @invariant()
    def store_is_as_the_model(self) -> None:
        assert self.db.engine.read(store_model.stored, snapshot=True) == store_model.modelled(self.said, self.work)

    def teardown(self) -> None:
        self.db.close()
        self.discard(self.address)


def _mostly_last(choices: list[Any]) -> st.SearchStrategy[Any]:
    """The newest one is usually the one that still counts."""
    return st.sampled_from([*choices, *[choices[-1]] * 2 * len(choices)])


def _rows(said: list[tuple[str, str]]) -> list[dict[str, Any]]:
    return [{"role": role, "content": content} for role, content in said]


def _run(stores: TestStores, engine: EngineName, *, examples: int, phases: tuple[Phase, ...], fixed: bool) -> None:
    """`fixed`: the same examples each time, so that a pull request does not fail by somebody else's luck."""
    run_state_machine_as_test(
        lambda: StoreMachine(stores.fresh(engine), stores.discard),
        settings=settings(
            max_examples=examples,
            stateful_step_count=60,
            deadline=None,
            database=None,
            derandomize=fixed,
            phases=phases,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_the_store_does_what_the_model_does(
    stores: TestStores, engine: EngineName, pytestconfig: pytest.Config
) -> None:
    long = pytestconfig.getoption("--long")
    examples = {"sqlite": 60, "postgresql": 20}[engine] * (50 if long else 1)
    _run(stores, engine, examples=examples, phases=(Phase.generate, Phase.shrink), fixed=not long)


LOOK_AWAY = Statement("planted", "SELECT ?, ?", "SELECT %s, %s")
TAKE_BACK_ALL = "UPDATE messages SET active = 0 WHERE session_id = ? AND ? IS NOT NULL AND active = 1"
PLANTED: dict[str, tuple[object, str, object, str]] = {
    "a rotation leaves the routes behind": (routes.Q, "move_routes", LOOK_AWAY, "'routes'"),
    "a lost fence may write": (leases, "check", lambda *_: None, "DID NOT RAISE.*StaleFence"),
    "undo undoes too much": (transcript.Q, "take_back", Statement("planted", TAKE_BACK_ALL, ""), r"assert \d+ == \d+"),
}


@pytest.mark.parametrize("bug", PLANTED)
def test_it_finds_a_planted_bug(stores: TestStores, monkeypatch: pytest.MonkeyPatch, bug: str) -> None:
    where, name, instead, symptom = PLANTED[bug]
    monkeypatch.setattr(where, name, instead)
    with pytest.raises((AssertionError, pytest.fail.Exception), match=symptom):
        _run(stores, "sqlite", examples=300, phases=(Phase.generate,), fixed=True)
