"""A cheaper model for titles and summaries: it is asked and billed; the conversation's own if it cannot answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hermes_agent import AIAgent
from hermes_agent.models import providers
from hermes_config import config as configuration
from hermes_config.errors import ConfigError
from hermes_state import SessionDB
from hermes_testing.scripted.model import ScriptedModel, ScriptedRequest, fail, in_system, say

SUMMARY = "## Goal\nThe person counts lamps."
LONG = "Some more words. " * 100


def is_chat(request: ScriptedRequest) -> bool:
    return "tools" in request.json


def is_aside(request: ScriptedRequest) -> bool:
    return not is_chat(request)


@contextmanager
def cheaper(home: Path, *steps: Any, task: str = "default", context: int = 64_000, **more: Any) -> Iterator[Any]:
    """A second model, which `auxiliary.<task>` of the home's configuration names."""
    with ScriptedModel(*steps, model="small-1", allow_rejections=True).served() as server:
        entry = {**server.model.settings(server.origin), "context_length": context}
        entry["model"] = entry.pop("default")
        price = {
            "small-1": {"price": {"input": 1, "output": 1}},
            "scripted-1": {"price": {"input": 100, "output": 100}},
        }
        home.mkdir(mode=0o700, exist_ok=True)
        written = {"agent": {"api_max_retries": 0}, "auxiliary": {task: entry}, "models": price, **more}
        (home / "config.yaml").write_text(json.dumps(written))
        yield server.model


def usage(db: SessionDB) -> dict[str, tuple[str, float]]:
    """Who was billed what, by task."""
    rows = db.engine.read(lambda conn: conn.rows("SELECT task, model, estimated_cost_usd FROM session_model_usage"))
    return {task: (model, cost) for task, model, cost in rows}


def say_hello(db: SessionDB, home: Path, model: ScriptedModel, **options: Any) -> AIAgent:
    agent = AIAgent(session_db=db, config=configuration.load(home), endpoint=model.endpoint(**options))

    async def turn() -> None:
        assert (await agent.arun_conversation("hello"))["completed"]
        await agent.aclose()

    asyncio.run(turn())
    return agent


def test_the_title_is_made_and_billed_by_the_cheaper_model(db: SessionDB, home: Path) -> None:
    with cheaper(home, say("Lamps in Kyoto")), ScriptedModel(say("Hello.")) as main:
        agent = say_hello(db, home, main)
    assert db.get_session_title(agent.session_id) == "Lamps in Kyoto"
    billed = usage(db)
    assert billed["title"][0] == "small-1" and 0 < billed["title"][1] < billed[""][1] / 10


@pytest.mark.parametrize("fault", [fail(500), fail(401), fail(404)])
def test_the_conversations_model_makes_it_when_the_cheaper_one_fails(
    db: SessionDB, home: Path, fault: Any, caplog: pytest.LogCaptureFixture
) -> None:
    title = say("Lamps", when=in_system("You name conversations"))
    with cheaper(home, fault) as small, ScriptedModel(say("Hello."), title) as main:
        agent = say_hello(db, home, main)
        assert len(small.requests) == 1
    assert db.get_session_title(agent.session_id) == "Lamps" and usage(db)["title"][0] == "scripted-1"
    assert "auxiliary.title: custom, small-1 could not be asked" in caplog.text


def compressed(db: SessionDB, home: Path, main: ScriptedModel) -> str:
    """A conversation after a compression: its first row."""
    session = db.ledger.open(source="cli").session_id
    for number in range(30):
        db.append_message(session, "user", f"Fact {number}. {LONG}")
        db.append_message(session, "assistant", "Noted.")
    agent = AIAgent(
        session_db=db, config=configuration.load(home), endpoint=main.endpoint(context_length=12_000),
        session_id=session,
    )  # fmt: skip
    assert asyncio.run(agent.compress())
    return str([row["content"] for row in db.get_messages(agent.session_id)])


def test_a_summary_of_the_cheaper_model_counts_in_the_receipt(db: SessionDB, home: Path) -> None:
    with cheaper(home, say(SUMMARY), task="compression", auto_title=False), ScriptedModel() as main:
        assert "counts lamps" in compressed(db, home, main) and not main.requests
    (row,) = db.engine.read(lambda conn: conn.rows("SELECT model, task, cost_usd FROM model_calls"))
    assert row[:2] == ("small-1", "compression") and row[2] > 0


@pytest.mark.parametrize(("answer", "context"), [("", 64_000), (SUMMARY, 3_000)])
def test_an_unusable_summary_or_too_small_a_window_is_left_to_the_conversations_model(
    db: SessionDB, home: Path, answer: str, context: int
) -> None:
    steps = [say(answer)] if not answer else []
    with cheaper(home, *steps, context=context, auto_title=False) as small, ScriptedModel(say(SUMMARY)) as main:
        assert "counts lamps" in compressed(db, home, main)
        assert (len(small.requests), len(main.requests)) == (len(steps), 1)


def test_entries_that_name_no_model_and_tasks_of_others_change_nothing(home: Path) -> None:
    home.mkdir(mode=0o700)
    known = {"title": {"provider": "auto", "model": ""}, "vision": "demo", "approval": {"model": "m"}}
    (home / "config.yaml").write_text(json.dumps({"auxiliary": known}))
    config = configuration.load(home)
    assert providers.auxiliary(config, "title") is None and providers.auxiliary(config, "compression") is None
    assert (found := providers.auxiliary(config, "vision")) is not None and found.model == "demo"
    (home / "config.yaml").write_text(json.dumps({"auxiliary": {"default": {"provider": "nobody", "model": "m"}}}))
    with pytest.raises(ConfigError, match="no provider called 'nobody'"):
        providers.auxiliary(configuration.load(home), "title")


def test_a_title_of_a_model_that_has_to_think_leaves_room_for_it(db: SessionDB, home: Path) -> None:
    """Anthropic refuses an answer that is not longer than the thinking."""
    with ScriptedModel(say("Hello."), say("Lamps in Kyoto"), wire="anthropic").served() as server:
        thinking = {"thinking": {"type": "enabled", "budget_tokens": 2_000}}
        home.mkdir(mode=0o700, exist_ok=True)
        entry = {**server.model.settings(server.origin), "api_mode": "anthropic_messages", "extra_body": thinking}
        price = {"scripted-1": {"price": {"input": 1, "output": 100}}}
        (home / "config.yaml").write_text(json.dumps({"model": entry, "models": price, "budget": {"day": {"usd": 1}}}))
        agent = AIAgent(session_db=db, config=configuration.load(home))

        async def turn() -> None:
            assert (await agent.arun_conversation("hello"))["completed"]
            await agent.aclose()

        asyncio.run(turn())
        assert all(request.json["max_tokens"] > 2_000 for request in server.model.requests)
    assert db.get_session_title(agent.session_id) == "Lamps in Kyoto"
