"""The tools that need no files: to-do list, memory, past conversations, questions, skills."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hermes_agent.tools import environment
from hermes_agent.tools.base import ToolContext
from hermes_agent.turn.control import Stop
from hermes_config.config import of as config_of
from hermes_state.ids import LOCAL_OWNER, ConversationId, PersonId, SessionId, TurnId
from hermes_state.session_db import SessionDB

from ..conftest import Bench, Gatekeeper


def _bench(db: SessionDB, home: Path, session: str, person: PersonId | None) -> Bench:
    """A bench on whatever store and conversation the test has."""
    gate = Gatekeeper()
    ctx = ToolContext(
        db=db, home=home, workdir=environment.working_directory(home, started_in=None),
        conversation_id=ConversationId(db.get_conversation_root(session)),
        session_id=lambda: SessionId(db.get_compression_tip(session)),
        turn_id=TurnId("turn"), call_id="call", person_id=person, platform="cli", gate=gate, ask=None,
        emit=lambda text: None, environ=dict(os.environ), stop=Stop(), config=config_of(Path(), {}),
    )  # fmt: skip
    return Bench(ctx, gate, [])


# -- todo ------------------------------------------------------------------------------------------------------


def _todos(result: Any) -> list[tuple[str, str, str]]:
    return [(item["id"], item["content"], item["status"]) for item in json.loads(result.content)["todos"]]


def test_the_list_is_written_changed_and_read(bench: Bench) -> None:
    bench.call("todo", todos=[{"id": "1", "content": "look", "status": "in_progress"}, {"id": 2, "content": "leap"}])
    changed = bench.call("todo", todos=[{"id": "1", "status": "completed"}, {"id": "3", "content": "land"}], merge=True)
    assert _todos(changed) == [("1", "look", "completed"), ("2", "leap", "pending"), ("3", "land", "pending")]
    assert changed.shown == "1 of 3 done"
    assert _todos(bench.call("todo")) == _todos(changed)
    assert bench.call("todo", todos=[{"id": "1", "status": "soon"}]).is_error
    bench.limited(todo_items=2)
    assert bench.call("todo", todos=[{"id": str(n), "content": "x"} for n in range(3)]).is_error


def test_a_fresh_process_finds_the_list_also_across_a_compression(
    db: SessionDB, home: Path, reopen: Callable[[SessionDB], SessionDB]
) -> None:
    session = db.ledger.open(source="cli", owner=LOCAL_OWNER).session_id
    made = _bench(db, home, session, LOCAL_OWNER).call("todo", todos=[{"id": "1", "content": "look"}])
    db.append_message(session, "user", "plan it")
    db.append_message(session, "tool", made.content, tool_call_id="c1", tool_name="todo")
    db.append_message(session, "tool", "todo: at most 2 items", tool_call_id="c2", tool_name="todo")
    db.ledger.rotate(session, [{"role": "user", "content": "summary"}])
    db = reopen(db)
    again = _bench(db, home, session, LOCAL_OWNER)
    assert again.ctx.session_id() != session
    assert _todos(again.call("todo")) == [("1", "look", "pending")]


# -- memory ----------------------------------------------------------------------------------------------------


def test_something_is_remembered_changed_and_forgotten(bench: Bench) -> None:
    added = bench.call("memory", action="add", target="user", content="Ada is allergic to nuts.")
    assert not added.is_error and "Ada is allergic" in added.content
    assert "allergic to nuts" in (bench.ctx.home / "memories/USER.md").read_text()
    bench.call("memory", action="replace", target="user", old_text="nuts", content="Ada is allergic to shellfish.")
    assert "shellfish" in (bench.ctx.home / "memories/USER.md").read_text()
    gone = bench.call("memory", action="remove", target="user", old_text="shellfish")
    assert "0 entries" in gone.content


@pytest.mark.parametrize(
    "args",
    [
        {},
        {"action": "add"},
        {"action": "replace", "content": "x"},
        {"action": "remove", "old_text": "not there"},
        {"operations": [{"action": "add", "content": "a"}, {"action": "remove"}]},
        {"action": "forget", "content": "x"},
        {"action": "add", "content": "x" * 3_000},
    ],
)
def test_a_memory_call_that_cannot_be_done_changes_nothing(bench: Bench, args: dict[str, Any]) -> None:
    bench.call("memory", action="add", content="The build needs make.")
    before = (bench.ctx.home / "memories/MEMORY.md").read_text()
    assert bench.call("memory", **args).is_error
    assert (bench.ctx.home / "memories/MEMORY.md").read_text() == before


def test_there_is_no_memory_in_a_group_whoever_asks(db: SessionDB, home: Path) -> None:
    group = db.ledger.open(source="telegram", fields={"user_id": "7", "chat_type": "group"}).session_id
    for person in (LOCAL_OWNER, None):
        result = _bench(db, home, group, person).call("memory", action="add", content="private")
        assert result.is_error
    assert not list(home.rglob("MEMORY.md"))


# -- past conversations ------------------------------------------------------------------------------------------


@pytest.fixture
def chats(db: SessionDB) -> dict[str, str]:
    """Two people with a conversation each, and a group."""
    eve = db.people.ensure(platform="telegram", native_id="eve").id
    made = {"eve_person": str(eve)}
    for name, source, owner in (("mine", "cli", LOCAL_OWNER), ("older", "cli", LOCAL_OWNER), ("eves", "telegram", eve)):
        made[name] = db.ledger.open(source=source, owner=owner).session_id
    made["group"] = db.ledger.open(source="telegram", fields={"chat_type": "group"}).session_id
    for name, text in (
        ("older", "the kyoto hotel is booked"),
        ("eves", "kyoto is eve's secret"),
        ("group", "kyoto with everybody"),
        ("mine", "hello"),
    ):
        db.append_message(made[name], "user", text)
    return made


def test_a_search_finds_what_the_person_owns_and_nothing_else(db: SessionDB, home: Path, chats: dict[str, str]) -> None:
    mine = _bench(db, home, chats["mine"], LOCAL_OWNER)
    found = mine.call("session_search", query="kyoto").content
    assert "hotel is booked" in found and "secret" not in found and "everybody" not in found
    assert chats["older"] in found


def test_in_a_group_only_the_group_is_searched(db: SessionDB, home: Path, chats: dict[str, str]) -> None:
    for person in (LOCAL_OWNER, PersonId(chats["eve_person"]), None):
        group = _bench(db, home, chats["group"], person)
        found = group.call("session_search", query="kyoto").content
        assert "everybody" in found and "hotel" not in found and "secret" not in found
        assert group.call("session_search").is_error
        assert group.call("session_search", session_id=chats["older"]).is_error


def test_a_foreign_conversation_looks_like_none(db: SessionDB, home: Path, chats: dict[str, str]) -> None:
    mine = _bench(db, home, chats["mine"], LOCAL_OWNER)
    foreign = mine.call("session_search", session_id=chats["eves"]).content
    none = mine.call("session_search", session_id="no_such_session").content
    assert foreign.replace(chats["eves"], "X") == none.replace("no_such_session", "X")


def test_a_hit_can_be_read_around_and_the_newest_are_listed(db: SessionDB, home: Path, chats: dict[str, str]) -> None:
    mine = _bench(db, home, chats["mine"], LOCAL_OWNER)
    db.append_message(chats["older"], "assistant", "it is the small one by the river")
    first = db.get_messages(chats["older"])[0]["id"]
    around = mine.call("session_search", session_id=chats["older"], around_message_id=first).content
    assert "river" in around and "booked" in around
    listed = mine.call("session_search").content
    assert chats["older"] in listed and chats["eves"] not in listed and chats["group"] not in listed
    assert "Nothing about" in mine.call("session_search", query="osaka").content


# -- questions -------------------------------------------------------------------------------------------------


def test_a_question_reaches_the_person_and_the_answer_comes_back(bench: Bench) -> None:
    asked: list[tuple[str, tuple[str, ...]]] = []

    async def ask(question: str, choices: tuple[str, ...]) -> str | None:
        asked.append((question, choices))
        return "the red one"

    result = bench.with_(ask=ask).call("clarify", question="Which?", choices=["red", " blue ", ""])
    assert result.content == "The person answers: the red one"
    assert asked == [("Which?", ("red", "blue"))]


def test_when_nobody_can_be_asked_the_model_is_told_to_decide(bench: Bench) -> None:
    async def nobody(question: str, choices: tuple[str, ...]) -> str | None:
        return None

    for ask in (None, nobody):
        assert "Nobody can be asked" in bench.with_(ask=ask).call("clarify", question="Which?").content


# -- skills ----------------------------------------------------------------------------------------------------


@pytest.fixture
def skilled(bench: Bench) -> Bench:
    folder = bench.ctx.home / "skills/writing/letters"
    (folder / "references").mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\nname: letters\ndescription: How to write letters\n---\nBegin with Dear.\n")
    (folder / "references/style.md").write_text("Be brief.\n")
    return bench


def test_skills_are_listed_and_loaded(skilled: Bench) -> None:
    assert "letters: How to write letters" in skilled.call("skills_list").content
    assert "letters" in skilled.call("skills_list", category="writing").content
    assert "no skills in cooking" in skilled.call("skills_list", category="cooking").content
    loaded = skilled.call("skill_view", name="letters").content
    assert "Begin with Dear." in loaded and "references/style.md" in loaded
    assert "Be brief." in skilled.call("skill_view", name="letters", file_path="references/style.md").content


@pytest.mark.parametrize("args", [{"name": "nope"}, {"name": "letters", "file_path": "../../../state.db"}])
def test_a_skill_that_is_not_there_is_an_error_in_words(skilled: Bench, args: dict[str, str]) -> None:
    result = skilled.call("skill_view", **args)
    assert result.is_error and "\n" not in result.content and "SQLite" not in result.content


def test_an_empty_home_has_no_skills(bench: Bench) -> None:
    assert bench.call("skills_list").content.startswith("There are no skills")
