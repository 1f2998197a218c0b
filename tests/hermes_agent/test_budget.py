"""Spending limits as a turn meets them: the call that would pass one is not made, in whatever process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tests.hermes_agent.conftest import Person
from tests.support.processes import Worker

from hermes_agent.agent import AIAgent
from hermes_agent.budget import Budget, Reservation, amount, spent_today
from hermes_agent.models.base import Endpoint, ModelError, TokenUsage
from hermes_config import config
from hermes_state.ids import ConversationId, PersonId
from hermes_state.people import usage as usage_report
from hermes_state.people.budgets import NANO
from hermes_state.session_db import SessionDB
from hermes_testing.clock import Clock
from hermes_testing.scripted.model import Hold, ScriptedModel, always, call, say

pytestmark = pytest.mark.slow

T = TypeVar("T")
Make = Callable[..., Budget]
WORKERS = Path(__file__).parent / "workers"
PRICE = "models: {m: {price: {input: 100, output: 1000, cache_read: 10, cache_write: 125}}}\n"
SCRIPTED = "models: {scripted-1: {price: {input: 100, output: 1000}}}\n"


@pytest.fixture
def make(home: Path, db: SessionDB) -> Make:
    """`make("budget: …")`: the door, with this configuration."""

    def budget(text: str, store: SessionDB | None = None) -> Budget:
        home.mkdir(exist_ok=True)
        (home / "config.yaml").write_text(text)
        return Budget(store or db, config.load())

    return budget


def now(job: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(job)


def reserve(
    budget: Budget,
    *,
    model: str = "m",
    provider: str = "custom",
    fed: int = 1_000,
    answer: int | None = 100,
    person: str | None = "ada",
    task: str = "",
) -> Reservation:
    endpoint = Endpoint(provider, "chat", "http://127.0.0.1:1/v1", model, context_length=10_000, max_tokens=answer)
    return now(
        budget.reserve(
            endpoint, estimated_input=fed, conversation_id=ConversationId("chat"),
            person_id=None if person is None else PersonId(person), task=task,
        )
    )  # fmt: skip


def refusal(budget: Budget, **options: Any) -> str:
    with pytest.raises(ModelError) as refused:
        reserve(budget, **options)
    assert refused.value.kind == "budget" and not refused.value.retryable
    line = refused.value.one_line()
    assert "\n" not in line
    return line


def used(db: SessionDB) -> str:
    return amount(db.budgets.used("day")[1].nano_usd, "usd")


def test_without_a_limit_nothing_is_written_and_the_cost_is_known(make: Make, db: SessionDB, make_db: Any) -> None:
    budget = make(PRICE, make_db(read_only=True))
    reservation = reserve(budget)
    usage = TokenUsage(input_tokens=1_000, output_tokens=100, cache_read_tokens=600, cache_write_tokens=200)
    # 200 fresh at 100, 600 read at 10, 200 written at 125, 100 answered at 1000 dollars for a million
    assert now(budget.settle(reservation, usage)) == pytest.approx(0.02 + 0.006 + 0.025 + 0.1)
    now(budget.release(reserve(budget)))
    assert now(budget.settle(reserve(budget, model="unheard-of"), usage)) is None


def test_the_most_a_call_can_come_to_is_reserved_and_what_it_came_to_is_counted(make: Make, db: SessionDB) -> None:
    budget = make(PRICE + "budget: {day: {usd: 10}}")
    reservation = reserve(budget)
    assert used(db) == "$0.225"  # all of the input at the price of writing to the cache
    assert now(budget.settle(reservation, TokenUsage(input_tokens=1_000, output_tokens=10))) == pytest.approx(0.11)
    assert used(db) == "$0.11"


def test_without_max_tokens_some_answer_is_reserved_all_the_same(make: Make, db: SessionDB) -> None:
    budget = make("budget: {day: {tokens: 100000}}")
    reserve(budget, answer=None)
    assert db.budgets.used("day")[1].tokens == 1_000 + 8_192
    reserve(budget, fed=9_000, answer=None)
    assert db.budgets.used("day")[1].tokens == 9_192 + 10_000, "no more than the window holds"


def test_a_refusal_says_which_limit_what_is_used_and_which_key_to_change(make: Make, db: SessionDB) -> None:
    budget = make(PRICE + "budget: {day: {usd: 0.5}}")
    now(budget.settle(reserve(budget), TokenUsage(input_tokens=1_000, output_tokens=100)))
    reserve(budget)
    line = refusal(budget)
    assert "today's spending limit is $0.50; $0.425 is used ($0.225 of it by calls that have not ended)" in line
    # input, and the shortest answer that is worth a call
    assert "could take $0.189" in line and "budget.day.usd" in line and "tomorrow" in line
    assert used(db) == "$0.425"


def test_an_answer_may_be_as_long_as_the_limits_leave(make: Make, db: SessionDB) -> None:
    budget = make(PRICE + "budget: {conversation: {usd: 0.2}, day: {tokens: 1090}}")
    reservation = reserve(budget)
    assert reservation.longest == 75 and used(db) == "$0.20"  # 1,000 of input, and 75 at a thousand for a million
    assert "cut at 75 tokens" in reservation.cut and "budget.conversation.usd" in reservation.cut
    now(budget.release(reservation))
    whole = reserve(budget, answer=10)
    assert (whole.longest, whole.cut) == (10, "")


def test_a_limit_that_is_in_no_configuration_says_where_it_is_from(make: Make, db: SessionDB) -> None:
    make(PRICE)
    job = Budget(db, config.load(), conversation_usd=0.01)
    assert refusal(job).endswith("A job's limit is set when it is made: hermes cron add --budget.")
    make(f"{PRICE}budget: {{conversation: {{usd: 0.01}}}}\n")
    same = Budget(db, config.load(), conversation_usd=5)
    assert "Raise budget.conversation.usd in config.yaml" in refusal(same)


def test_the_tightest_limit_decides(make: Make, db: SessionDB) -> None:
    budget = make(PRICE + "budget: {conversation: {usd: 0.2}, day: {tokens: 1070}}")
    reservation = reserve(budget)
    assert reservation.longest == 70 and "budget.day.tokens" in reservation.cut
    assert db.budgets.used("day")[1].tokens == 1_070


def test_an_answer_that_has_to_think_first_is_not_cut_below_its_thoughts(make: Make) -> None:
    budget = make("budget: {day: {tokens: 5000}}")
    thinking = ("thinking", {"type": "enabled", "budget_tokens": 4_000})
    endpoint = Endpoint("custom", "anthropic", "http://127.0.0.1:1", "m", max_tokens=8_000, options=(thinking,))
    ids = {"conversation_id": ConversationId("chat"), "person_id": PersonId("ada")}
    assert now(budget.reserve(endpoint, estimated_input=500, **ids)).longest == 4_500
    with pytest.raises(ModelError, match="tokens"):
        now(budget.reserve(endpoint, estimated_input=500, **ids))


@pytest.mark.parametrize(
    "thinking", [("thinking", {"type": "enabled", "budget_tokens": 9_000}), ("reasoning", {"max_tokens": 9_000})]
)
def test_without_max_tokens_the_thoughts_are_reserved_besides_the_answer(make: Make, thinking: Any) -> None:
    budget = make("budget: {day: {tokens: 500000}}")
    endpoint = Endpoint("custom", "chat", "http://127.0.0.1:1", "m", context_length=64_000, options=(thinking,))
    ids = {"conversation_id": ConversationId("chat"), "person_id": PersonId("ada")}
    assert now(budget.reserve(endpoint, estimated_input=500, **ids)).longest == 9_000 + 8_192


def test_months_have_limits_of_their_own(make: Make, db: SessionDB, clock: Clock) -> None:
    budget = make(PRICE + "budget: {month: {usd: 0.5}, person_month: {tokens: 3000}}")
    now(budget.settle(reserve(budget), TokenUsage(input_tokens=1_000, output_tokens=100)))
    clock.advance(86_400)
    now(budget.settle(reserve(budget), TokenUsage(input_tokens=1_000, output_tokens=100)))
    assert db.budgets.used("month")[1].nano_usd == db.budgets.used("person_month", "ada")[1].nano_usd == NANO * 0.4
    assert "this month's spending limit is $0.50" in refusal(budget, person="bob")
    line = refusal(make("budget: {person_month: {tokens: 3000}}"))
    assert "your spending limit for this month is 3,000 tokens; 2,200 tokens are used" in line and "next month" in line
    clock.advance(31 * 86_400)
    reserve(budget)


def test_tokens_and_people_have_limits_of_their_own(make: Make) -> None:
    budget = make("budget: {person_day: {tokens: 2000}}")
    now(budget.settle(reserve(budget), TokenUsage(input_tokens=900, output_tokens=50)))
    line = refusal(budget)
    assert "your spending limit for today is 2,000 tokens; 950 tokens are used" in line
    assert "budget.person_day.tokens" in line
    reserve(budget, person="bob")


def test_a_money_limit_needs_a_price(make: Make) -> None:
    budget = make("budget: {conversation: {usd: 5}}")
    line = refusal(budget, model="unheard-of")
    assert "models.unheard-of.price" in line and "budget.conversation.usd" in line
    reserve(budget, provider="ollama")  # runs without charge
    reserve(make("budget: {day: {tokens: 5000}}"), model="unheard-of")


def test_a_wrong_price_is_one_line(make: Make) -> None:
    assert "models.m.price" in refusal(make("models: {m: {price: {input: lots}}}\nbudget: {day: {usd: 1}}"))


def test_what_costs_nothing_is_never_stopped_by_a_money_limit(make: Make) -> None:
    budget = make(PRICE + "budget: {day: {usd: 0}}")
    assert "$0.00" in refusal(budget)
    reserve(budget, model="local-thing", provider="ollama")


def test_what_costs_nothing_has_a_known_cost_without_reported_usage(home: Path, make: Make, db: SessionDB) -> None:
    with ScriptedModel(say("Hello.", usage=TokenUsage(input_tokens=0, output_tokens=0))).served() as server:
        make(
            f"model: {{provider: custom, default: scripted-1, base_url: '{server.origin}/v1', api_key: scripted-key}}\n"
            "auto_title: false\nmodels: {scripted-1: {price: {input: 0, output: 0}}}\n"
        )
        result = AIAgent(session_db=db).run_conversation("hello")
    assert (result["cost_status"], result["estimated_cost_usd"]) == ("estimated", 0.0)
    assert spent_today(db, config.load(), PersonId("ada")) == "today $0.00, no limit set"


def test_the_person_is_warned_once(make: Make, db: SessionDB, clock: Clock) -> None:
    budget = make(PRICE + "budget: {day: {usd: 1}, person_day: {tokens: 5000}}")
    for _ in range(3):
        quiet = reserve(budget)
        now(budget.settle(quiet, TokenUsage(input_tokens=1_000, output_tokens=100)))
        assert quiet.notices == []
    loud = reserve(budget)
    now(budget.settle(loud, TokenUsage(input_tokens=1_000, output_tokens=100)))
    assert loud.notices == [
        "80 % of today's spending limit is used: $0.80 of $1.00 (budget.day.usd).",
        "88 % of your spending limit for today is used: 4,400 tokens of 5,000 tokens (budget.person_day.tokens).",
    ]
    after = reserve(budget, fed=10, answer=10)
    now(budget.settle(after, TokenUsage(input_tokens=10, output_tokens=10)))
    assert after.notices == []


def test_an_attempt_without_an_answer_counts_in_full_unless_it_was_refused(make: Make, db: SessionDB) -> None:
    budget = make(PRICE + "budget: {day: {usd: 1}}")
    now(budget.failed(reserve(budget), ModelError("rate_limit", "slow down", unbilled=True)))
    assert used(db) == "$0.00"
    now(budget.failed(reserve(budget), ModelError("network", "broke off")))
    assert used(db) == "$0.225"
    now(budget.failed(reserve(budget), asyncio.CancelledError()))
    assert used(db) == "$0.45"


@pytest.mark.parametrize("reported", [None, TokenUsage(), TokenUsage(output_tokens=5), TokenUsage(input_tokens=5)])
def test_an_answer_without_reported_usage_counts_in_full(
    make: Make, db: SessionDB, reported: TokenUsage | None
) -> None:
    budget = make(PRICE + "budget: {day: {usd: 1}}")
    assert now(budget.settle(reserve(budget), reported)) is None
    assert used(db) == "$0.225"


def test_calls_beside_the_chat_pass_the_same_door(make: Make, db: SessionDB) -> None:
    budget = make(PRICE + "budget: {conversation: {usd: 0.3}}")
    reserve(budget, task="title")
    assert [call.task for call in db.budgets.open_calls()] == ["title"]
    refusal(budget)


# -- several processes ------------------------------------------------------------------------------------------------


def test_of_two_processes_at_a_limit_none_makes_the_call_that_would_pass_it(make: Make, address: str | Path) -> None:
    make(SCRIPTED + "budget: {day: {usd: 5}}")  # 25 calls of $0.20
    answer = say("Yes.", usage=TokenUsage(input_tokens=1_000, output_tokens=100), delay=0.02)
    with ScriptedModel(always(answer)).served() as server, ExitStack() as stack:
        workers = [stack.enter_context(Worker(WORKERS / "spend.py", address, server.origin, 40)) for _ in range(2)]
        assert [worker.line() for worker in workers] == ["ready", "ready"]
        for worker in workers:
            worker.go()
        said = [line for worker in workers for line in worker.finish()]
        asked = server.model.received
    made, refused = [line for line in said if line == "made 0.2"], [line for line in said if line.startswith("refused")]
    assert (len(made), len(refused), asked) == (25, 55, 25)
    assert all(line.startswith("refused budget ") and "budget.day.usd" in line for line in refused)
    db = SessionDB(address)
    try:
        total = db.budgets.used("day")[1]
        assert (total.nano_usd / NANO, total.tokens) == (5, 25 * 1_100)
        assert db.budgets.open_calls() == ()
    finally:
        db.close()


def test_a_killed_process_leaves_its_call_counted(make: Make, address: str | Path) -> None:
    budget_text = SCRIPTED + "budget: {conversation: {usd: 5}, day: {usd: 0.3}}"
    hold = Hold()
    with ScriptedModel(always(say("Yes.", hold=hold))).served() as server:
        make(budget_text)
        with Worker(WORKERS / "spend.py", address, server.origin, 1) as worker:
            assert worker.line() == "ready"
            worker.go()
            now(hold.reached(30))
            worker.kill()
        hold.release()
    db = SessionDB(address)
    try:
        line = refusal(make(budget_text, db), model="scripted-1")
        assert "$0.20 is used ($0.20 of it by calls that have not ended)" in line
        assert [call.model for call in db.budgets.open_calls()] == ["scripted-1"]
    finally:
        db.close()


# -- a whole turn -----------------------------------------------------------------------------------------------------


def test_a_turn_is_warned_then_refused_and_the_conversation_stays_usable(
    home: Path, make: Make, db: SessionDB, clock: Clock
) -> None:
    answer = say("Yes.", usage=TokenUsage(input_tokens=9_000, output_tokens=100))  # $1.00
    with ScriptedModel(always(answer)).served() as server:
        make(
            f"model: {{provider: custom, default: scripted-1, base_url: '{server.origin}/v1', api_key: scripted-key,"
            f" max_tokens: 10}}\nauto_title: false\n{SCRIPTED}budget: {{person_day: {{usd: 2}}}}\n"
        )
        heard: list[tuple[str, ...]] = []
        agent = AIAgent(session_db=db, person_id=PersonId("ada"))
        agent.status_callback = lambda *said: heard.append(said)
        assert agent.run_conversation("one")["final_response"] == "Yes."
        assert heard == []
        assert agent.run_conversation("two")["final_response"] == "Yes."
        assert [said for said in heard if "budget.person_day.usd" in said[1]] == [
            ("warn", "100 % of your spending limit for today is used: $2.00 of $2.00 (budget.person_day.usd).")
        ]
        refused = agent.run_conversation("three")
        assert refused["failed"] and "budget.person_day.usd" in refused["error"]
        assert server.model.received == 2
        clock.advance(86_400)
        assert agent.run_conversation("four")["final_response"] == "Yes."
    (line,) = usage_report.report(db, "person").lines
    assert (line.key, line.calls) == ("ada", 3) and line.cost_usd == pytest.approx(3.0)


def test_a_limit_that_is_set_again_knows_what_was_used_without_it(home: Path, make: Make, db: SessionDB) -> None:
    """Each call costs a dollar. Neither a limit that was removed nor a job's own one hides what comes after it."""

    def talk(budget: str, times: int, **options: Any) -> list[bool]:
        make(
            f"model: {{provider: custom, default: scripted-1, base_url: '{server.origin}/v1', api_key: scripted-key,"
            f" max_tokens: 10}}\nauto_title: false\n{SCRIPTED}budget: {budget}\n"
        )
        agent = AIAgent(session_db=db, person_id=PersonId("ada"), **options)
        return [bool(agent.run_conversation("more")["failed"]) for _ in range(times)]

    answer = say("Yes.", usage=TokenUsage(input_tokens=9_000, output_tokens=100))  # $1.00
    with ScriptedModel(always(answer)).served() as server:
        assert talk("{day: {usd: 9}}", 1) == [False]
        assert talk("{}", 2) == [False, False]
        assert talk("{}", 1, budget_usd=5) == [False]
        assert used(db) == "$4.00"
        assert talk("{day: {usd: 5}, month: {usd: 9}}", 2) == [False, True]
        assert used(db) == "$5.00"
        assert talk("{month: {usd: 9}}", 2) == [False, False]
        assert talk("{}", 1) == [False]
        assert talk("{person_month: {usd: 8}}", 1) == [True]
        assert db.budgets.used("month")[1].nano_usd == 8 * NANO


@pytest.mark.parametrize("thoughts", [(), ("Let me think. ", "All that they ever asked me, one by one. " * 40)])
def test_an_interrupted_answer_is_counted_with_its_reasoning(
    home: Path, make: Make, db: SessionDB, thoughts: tuple[str, ...]
) -> None:
    hold = Hold()
    said = () if thoughts else ("So far ", "and more")
    with ScriptedModel(say(*said, reasoning=thoughts, hold=hold)).served() as server:
        make(
            f"model: {{provider: custom, default: scripted-1, base_url: '{server.origin}/v1', api_key: scripted-key}}\n"
            f"auto_title: false\n{SCRIPTED}budget: {{day: {{usd: 100}}}}\n"
        )

        async def stop() -> dict[str, Any]:
            agent, heard = AIAgent(session_db=db, person_id=PersonId("ada")), asyncio.Event()
            agent.stream_delta_callback = agent.reasoning_callback = lambda text: heard.set()
            turn = asyncio.ensure_future(agent.arun_conversation("tell me"))
            await hold.reached()
            await asyncio.wait_for(heard.wait(), 10)  # sent is not yet received
            agent.interrupt()
            return await turn

        assert now(stop())["interrupted"]
        hold.release()
    assert db.budgets.open_calls() == () and used(db) > "$0.00"


# -- a call that costs much -------------------------------------------------------------------------------------------


@pytest.fixture
def dear(make: Make, db: SessionDB, tmp_path: Path) -> Iterator[Callable[..., tuple[dict[str, Any], int]]]:
    """`dear(person, ask_usd)`: a turn of two model calls, of about a dollar each; its result, and the calls made."""

    def turn(person: Person | None, ask_usd: float) -> tuple[dict[str, Any], int]:
        done = say("Done.", when=lambda request: b'"tool"' in request.body)
        with ScriptedModel(always(done), always(say(calls=[call("todo")]))).served() as server:
            make(
                f"model: {{provider: custom, default: scripted-1, base_url: '{server.origin}/v1', max_tokens: 1000,"
                f" api_key: scripted-key}}\nauto_title: false\n{SCRIPTED}budget: {{ask_usd: {ask_usd}}}\n"
            )
            agent = AIAgent(session_db=db, person_id=PersonId("ada"), role="owner", approver=person, workdir=tmp_path)
            return agent.run_conversation("do it"), server.model.received

    yield turn


def test_a_dear_call_asks_first_with_its_estimate(dear: Callable[..., Any]) -> None:
    result, calls = dear(person := Person("once"), 0.5)
    assert (result["final_response"], calls) == ("Done.", 2)
    first, second = person.asked
    assert (first.kind, first.command) == ("spend", "a call to scripted-1")
    assert "it may cost up to $" in first.why and "budget.ask_usd ($0.50)" in first.why
    assert first.id != second.id
    assert first.choices == ("task", "once", "deny")  # what later calls cost is not known


def test_a_yes_for_the_task_is_for_all_its_calls(dear: Callable[..., Any]) -> None:
    result, calls = dear(person := Person("task"), 0.5)
    assert (result["final_response"], calls, len(person.asked)) == ("Done.", 2, 1)


def test_a_cheap_call_does_not_ask(dear: Callable[..., Any]) -> None:
    result, calls = dear(person := Person("deny"), 50)
    assert (result["final_response"], calls, person.asked) == ("Done.", 2, [])


def test_an_answer_is_no_longer_than_it_was_estimated(home: Path, make: Make, db: SessionDB) -> None:
    with ScriptedModel(say("So", finish="length")).served() as server:
        make(
            f"model: {{provider: custom, default: scripted-1, base_url: '{server.origin}/v1', api_key: scripted-key}}\n"
            f"auto_title: false\n{SCRIPTED}budget: {{ask_usd: 50}}\n"
        )
        answer = AIAgent(session_db=db).run_conversation("tell me all")["final_response"]
        assert server.model.requests[0].json["max_tokens"] == 8_192
    assert answer == (
        "So\n\n(The answer was cut at 8,192 tokens, because spending is limited. Set model.max_tokens in config.yaml"
        " for longer ones.)"
    )


@pytest.mark.parametrize("person", [Person("deny"), None])
def test_a_dear_call_without_a_yes_is_not_made(dear: Callable[..., Any], person: Person | None) -> None:
    result, calls = dear(person, 0.5)
    assert result["failed"] and result["error_kind"] == "budget" and calls == 0
    assert "scripted-1 was not asked" in result["error"] and "may cost up to $" in result["error"]
    assert "Raise budget.ask_usd in config.yaml." in result["error"] and "hermes approvals" not in result["error"]
