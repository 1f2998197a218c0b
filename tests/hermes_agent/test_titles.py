"""Automatic titles: one small call after the first exchange, and never in anybody's way."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from hermes_agent import AIAgent, titles
from hermes_config import config as configuration
from hermes_state import SessionDB
from hermes_testing.scripted.model import ScriptedModel, fail, in_system, say


@pytest.fixture
def talk(db: SessionDB, home: Path, tmp_path: Path) -> Any:
    """`talk(model, "text", …)`: a conversation of a home with its defaults, to its end; the agent."""
    home.mkdir(mode=0o700, exist_ok=True)

    def go(model: ScriptedModel, *texts: str, **options: Any) -> AIAgent:
        agent = AIAgent(
            session_db=db, config=configuration.load(home), endpoint=model.endpoint(), workdir=tmp_path, **options
        )

        async def turns() -> None:
            for text in texts:
                result = await agent.arun_conversation(text)
                assert result["completed"], result
                await agent.aclose()  # waits for what goes on beside

        asyncio.run(turns())
        return agent

    return go


def titled(answer: str) -> Any:
    return say(answer, when=in_system("You name conversations"))


def test_the_first_exchange_names_the_conversation(db: SessionDB, talk: Any) -> None:
    with ScriptedModel(say("Late March is good."), titled('"A week in Kyoto."')) as model:
        agent = talk(model, "When should we go to Kyoto?")
        asked = model.requests[1].last_user_text
    assert db.get_session_title(agent.session_id) == "A week in Kyoto"
    assert "When should we go to Kyoto?" in asked and "Late March is good." in asked
    row = db.get_session(agent.session_id)
    assert row["api_call_count"] == 1  # the chat's own counters do not know it
    used = db.engine.read(lambda conn: conn.rows("SELECT task, api_call_count FROM session_model_usage ORDER BY task"))
    assert used == [("", 1), ("title", 1)]
    assert [m["role"] for m in db.get_messages(agent.session_id)] == ["user", "assistant"]


def test_a_second_exchange_asks_for_no_second_title(db: SessionDB, talk: Any) -> None:
    with ScriptedModel(say("one"), titled("First title"), say("two"), say("three")) as model:
        agent = talk(model, "a", "b", "c")
    assert db.get_session_title(agent.session_id) == "First title"


def test_a_persons_title_stays(db: SessionDB, talk: Any) -> None:
    session = db.ledger.open(source="cli").session_id
    db.set_session_title(session, "Mine")
    with ScriptedModel(say("one")) as model:
        talk(model, "a", session_id=session)
    assert db.get_session_title(session) == "Mine"


def test_a_title_that_is_taken_gets_a_number(db: SessionDB, talk: Any) -> None:
    db.set_session_title(db.ledger.open(source="cli").session_id, "Kyoto")
    with ScriptedModel(say("one"), titled("Kyoto")) as model:
        agent = talk(model, "a")
    assert db.get_session_title(agent.session_id) == "Kyoto #2"


def test_a_failure_is_silent_and_has_a_second_chance_only(db: SessionDB, talk: Any, caplog: Any) -> None:
    refused = [fail(400, when=in_system("You name conversations")) for _ in range(2)]
    with caplog.at_level("INFO"), ScriptedModel(say("one"), refused[0], say("two"), refused[1], say("three")) as model:
        agent = talk(model, "the secret word", "b", "c")
    assert db.get_session_title(agent.session_id) is None
    assert [record.action for record in caplog.records if hasattr(record, "action")].count("title_failed") == 2
    assert "the secret word" not in caplog.text


@pytest.mark.parametrize("switch", ["false", "no", "'off'", "0"])
def test_it_can_be_switched_off(db: SessionDB, talk: Any, home: Path, switch: str) -> None:
    (home / "config.yaml").write_text(f"auto_title: {switch}\n")
    with ScriptedModel(say("one")) as model:
        agent = talk(model, "a")
    assert db.get_session_title(agent.session_id) is None


@pytest.mark.parametrize(
    ("answer", "title"),
    [
        ("Trip to Kyoto", "Trip to Kyoto"),
        ("Title: **Trip to Kyoto**\n\nI chose this because …", "Trip to Kyoto"),
        ("<think>what shall I say</think>\n「京都への旅」", "京都への旅"),
        ("# Reise nach Kyoto.", "Reise nach Kyoto"),
        ("\n\n  «Voyage\u202e à Kyoto» ", "Voyage à Kyoto"),
        ("Sure! Here is a title for this conversation that I think you will like very much: Kyoto", None),
        ("Plans of the 👨\u200d👩\u200d👧 for 👩🏽\u200d🚀", "Plans of the 👨\u200d👩\u200d👧 for 👩🏽\u200d🚀"),
        ("Hid\u200dden \u200dwords\u200b 👨\u200d", "Hidden words 👨"),
        ("", None),
        ("<think>only thoughts", None),
        ("…", None),
        ("x" * 300, "x" * 80),
        ("Supercalifragilistic " * 6, "Supercalifragilistic Supercalifragilistic Supercalifragilistic"),
    ],
)
def test_what_a_model_answers_becomes_one_clean_line(answer: str, title: str | None) -> None:
    assert titles.cleaned(answer) == title
