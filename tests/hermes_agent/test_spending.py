"""Spending stays below every limit, whatever the provider does: generated behaviours against generated limits.

The provider keeps its own bill: for each request it decides what it counts as input (its own number of tokens for a
byte, at most one), how long its answer is (at most as long as the request allows), and whether anybody is told. What it
bills for a call that breaks off, times out or fails with a 500 is as much as it may. The agent, its budget, the wires
and the store are the real ones, over a real socket; nothing in here knows how they count.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from hermes_agent.agent import AIAgent
from hermes_agent.models import http
from hermes_agent.models.base import TokenUsage
from hermes_config import config as configuration
from hermes_state.ids import PersonId
from hermes_state.session_db import SessionDB
from hermes_testing.scripted.model import Hold, ScriptedModel, ScriptedRequest, Step, call, disconnect, fail, raw, say

pytestmark = pytest.mark.slow

CASES, LONG_CASES = 80, 400
AT_ONCE = 20
PRICES = {"small-1": (3.0, 15.0, 0.3), "large-1": (15.0, 75.0, 1.5)}
SCOPES = ("day", "month", "person_day", "person_month", "conversation")
WORDS = "the lamp in the third room is green and nobody knows why "


@dataclass
class Provider:
    """One model that bills as it likes, within its rights."""

    name: str
    rng: random.Random
    density: float
    """Tokens that it counts for a byte."""
    wire: Any = "chat"
    usd: float = 0.0
    tokens: int = 0
    seen: Counter[str] = field(default_factory=Counter)
    uncapped: int = 0
    hold: Hold | None = None
    """For the next answer: it waits there, and the turn is stopped."""

    def step(self, request: ScriptedRequest) -> Step:
        """Decide what becomes of a request, and bill it."""
        body, rng = request.json, self.rng
        cap = body.get("max_tokens") or body.get("max_completion_tokens")
        if cap is None:
            self.uncapped, cap = self.uncapped + 1, 100_000
        given = -int(-len(request.body) * self.density // 1)
        kind = "interrupted" if self.hold is not None else self._kind(body)
        self.seen[kind] += 1
        text = (WORDS * 3)[: rng.randint(8, 150)]
        if kind == "refused":
            return fail(rng.choice((400, 401, 429, 503)), headers={"retry-after-ms": "5"})
        said = cap if kind in ("cut", "half a call") else min(cap, rng.choice((rng.randint(1, 400), cap)))
        usage = TokenUsage(input_tokens=given, output_tokens=said, cache_read_tokens=rng.choice((0, 0, given // 2)))
        self._bill(usage)
        hold, self.hold = self.hold, None
        match kind:
            case "fails":
                return fail(rng.choice((500, 502, 504)))
            case "breaks":
                breaks = rng.choice(("disconnect", "end", "error"))
                return say(*text.split(" "), breaks=breaks, break_after=rng.randint(1, 3))
            case "silent":
                return say(text, delay=2.0, usage=usage)
            case "lost":
                return disconnect()
            case "garbage":
                return raw(b"data: {\n\n")
            case "interrupted":
                return say(text, "and more", hold=hold, usage=usage)
            case "cut":
                return say(text, finish="length", usage=usage)
            case "tool":
                return say(text, calls=[call("todo", {"todos": [{"id": "1", "content": text}]})], usage=usage)
            case "half a call":
                return say(calls=[call("todo", '{"todos": [{"id"')], finish="length", usage=usage)
            case "thinks":
                return say(text, reasoning=[text, text], usage=usage)
            case "no usage":
                return say(text, usage=TokenUsage())
            case "nonsense":
                return raw(self._nonsense(text, usage))
            case _:
                return say(text, usage=usage)

    def _kind(self, body: Any) -> str:
        kinds = {
            "answers": 6, "cut": 2, "thinks": 1, "no usage": 2, "refused": 2, "fails": 2, "breaks": 2, "silent": 1,
            "lost": 1, "garbage": 1, "nonsense": 2,
        }  # fmt: skip
        if any("todo" in json.dumps(tool)[:80] for tool in body.get("tools") or ()):
            kinds |= {"tool": 2, "half a call": 1}
        return self.rng.choices(list(kinds), list(kinds.values()))[0]

    def _nonsense(self, text: str, usage: TokenUsage) -> bytes:
        """An answer whose usage cannot be right, or is reported again as less."""
        odd = self.rng.choice(("1e400", "NaN", "-7", '"12"', "true", "null", "9" * 25, "0", "1"))
        fed, said = json.dumps(usage.input_tokens), json.dumps(usage.output_tokens)
        if self.wire == "chat":
            events = [
                f'{{"choices": [{{"delta": {{"content": "{text}"}}, "finish_reason": "stop"}}]}}',
                f'{{"choices": [], "usage": {{"prompt_tokens": {fed}, "completion_tokens": {said}}}}}',
                f'{{"choices": [], "usage": {{"prompt_tokens": {odd}, "completion_tokens": {odd}}}}}',
            ]
            if odd not in ("0", "1"):
                del events[1]
            begun = f'{{"prompt_tokens": {fed}, "completion_tokens": 1}}'
            events.insert(0, f'{{"choices": [{{"delta": {{"role": "assistant"}}}}], "usage": {begun}}}')
        else:
            block = (
                f'{{"type": "content_block_start", "index": 0, "content_block": {{"type": "text", "text": "{text}"}}}}'
            )
            told = (
                f'{{"input_tokens": {odd}, "output_tokens": {said}}}'
                if odd in ("0", "1")
                else f'{{"output_tokens": {odd}}}'
            )
            events = [
                f'{{"type": "message_start", "message": {{"usage": {{"input_tokens": {fed}, "output_tokens": 1}}}}}}',
                block,
                f'{{"type": "message_delta", "delta": {{"stop_reason": "end_turn"}}, "usage": {told}}}',
                '{"type": "message_stop"}',
            ]
        return "".join(f"data: {event}\n\n" for event in events).encode()

    def _bill(self, usage: TokenUsage) -> None:
        (fresh, said, cached), read = PRICES[self.name], usage.cache_read_tokens
        self.usd += ((usage.input_tokens - read) * fresh + read * cached + usage.output_tokens * said) / 1e6
        self.tokens += usage.input_tokens + usage.output_tokens


@dataclass
class Outcome:
    seed: int
    limits: dict[str, dict[str, float]]
    usd: float
    tokens: int
    counted: tuple[float, int]
    seen: Counter[str]
    refused: int
    cut: int
    uncapped: int

    @property
    def share(self) -> float:
        """How much of its nearest limit was really spent."""
        spent = {"usd": self.usd, "tokens": self.tokens}
        return max(spent[unit] / most for units in self.limits.values() for unit, most in units.items())


def limits_for(rng: random.Random) -> dict[str, dict[str, float]]:
    def limit() -> dict[str, float]:
        if rng.random() < 0.7:
            return {"usd": round(rng.uniform(0.05, 2.0), 4)}
        return {"tokens": rng.randint(20_000, 200_000)}

    return {scope: limit() for scope in rng.sample(SCOPES, rng.randint(1, 3))}


def make_home(folder: Path, limits: dict[str, dict[str, float]], rng: random.Random) -> None:
    names = ("input", "output", "cache_read")
    settings: dict[str, Any] = {
        "models": {model: {"price": dict(zip(names, price, strict=True))} for model, price in PRICES.items()},
        "budget": limits,
        "agent": {"api_max_retries": rng.randint(0, 2)},
        "limits": {"model_first_byte_ms": 900, "model_idle_ms": 900, "summary_seconds": 3, "title_seconds": 3},
        "auto_title": rng.random() < 0.5,
    }
    folder.mkdir(mode=0o700)
    (folder / "config.yaml").write_text(json.dumps(settings))


async def one_case(seed: int, folder: Path) -> Outcome:
    rng = random.Random(seed)
    density = rng.choice((0.2, 0.28, 0.5, 1.0))
    wires = [rng.choice(("chat", "anthropic")) for _ in PRICES]
    hosts = [Provider(name, rng, density, wire) for name, wire in zip(PRICES, wires, strict=True)]
    limits = limits_for(rng)
    make_home(folder, limits, rng)
    db = SessionDB(folder / "state.db")
    refused = cut = 0
    try:
        async with AsyncExitStack() as stack:
            endpoints = []
            for host in hosts:
                model = ScriptedModel(wire=host.wire, model=host.name, improvise=host.step, allow_rejections=True)
                server = await stack.enter_async_context(model.served())
                longest = rng.choice((None, 500, 4_000))
                endpoints.append(model.endpoint(server.origin, max_tokens=longest))
            agent = AIAgent(
                session_db=db, config=configuration.load(folder), endpoint=endpoints[0], workdir=folder,
                fallbacks=endpoints[1:] if rng.random() < 0.6 else (), person_id=PersonId("ada"), role="owner",
                enabled_toolsets=["todo"], skip_memory=True, skip_context_files=True, max_iterations=4,
            )  # fmt: skip
            for _ in range(rng.randint(2, 5)):
                if rng.random() < 0.2:
                    hosts[0].hold = hold = Hold()
                    turn = asyncio.ensure_future(agent.arun_conversation(WORDS * rng.randint(1, 40)))
                    reached = asyncio.ensure_future(hold.reached(20))
                    await asyncio.wait({turn, reached}, return_when=asyncio.FIRST_COMPLETED)
                    agent.interrupt()
                    result = await turn
                    hold.release()
                    hosts[0].hold = None
                    reached.cancel()
                else:
                    result = await agent.arun_conversation(WORDS * rng.randint(1, 40))
                refused += result.get("error_kind") == "budget"
                cut += "answer was cut" in (result["final_response"] or "")
            if rng.random() < 0.5:
                await agent.compress()
            await agent.aclose()
        used = db.budgets.used("conversation", db.get_conversation_root(agent.session_id or ""))[1]
        assert db.budgets.open_calls() == ()
    finally:
        db.close()
    seen = sum((host.seen for host in hosts), Counter[str]())
    return Outcome(
        seed, limits, sum(host.usd for host in hosts), sum(host.tokens for host in hosts),
        (used.nano_usd / 1e9, used.tokens), seen, refused, cut, sum(host.uncapped for host in hosts),
    )  # fmt: skip


def test_generated_providers_never_get_more_than_a_limit(
    tmp_path: Path, seed: int, pytestconfig: pytest.Config
) -> None:
    cases = LONG_CASES if pytestconfig.getoption("--long") else CASES

    async def every() -> list[Outcome]:
        slots = asyncio.Semaphore(AT_ONCE)

        async def one(number: int) -> Outcome:
            async with slots:
                return await one_case(seed + number, tmp_path / str(number))

        found = await asyncio.gather(*map(one, range(cases)))
        await http.close_clients()
        return found

    found = asyncio.run(every())
    over = [
        (one.seed, scope, unit, most, one.usd, one.tokens)
        for one in found
        for scope, units in one.limits.items()
        for unit, most in units.items()
        if (one.usd if unit == "usd" else one.tokens) > most
    ]
    seen = sum((one.seen for one in found), Counter[str]())
    near = sum(one.share > 0.5 for one in found)
    print(f"{len(found)} cases, {seen.total()} requests: {dict(seen.most_common())}")
    print(f"{sum(o.refused for o in found)} turns refused, {sum(o.cut for o in found)} answers cut by a limit")
    print(f"billed ${sum(o.usd for o in found):.2f}, counted ${sum(o.counted[0] for o in found):.2f}")
    print(f"most of a limit that was spent: {max(o.share for o in found):.3f}; above half of it: {near} cases")
    assert over == []
    assert [one.seed for one in found if one.uncapped] == []
    short = [one for one in found if one.usd > one.counted[0] + 1e-9 or one.tokens > one.counted[1]]
    assert short == []
    # It is no test of limits if nothing ever came near one.
    assert near > cases // 10 and sum(one.refused for one in found) > cases // 10
    assert len(seen) == 14 and min(seen.values()) >= cases // 40
