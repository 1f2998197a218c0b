"""Names that plug-ins of hermes-agent call on session rows."""

from __future__ import annotations

import pytest

from hermes_state.session_db import SessionDB


def test_a_session_is_made_once_and_filled_later(db: SessionDB) -> None:
    assert db.ensure_session("s") == "s"
    db.ensure_session("s", "telegram", "big", user_id="42")
    row = db.get_session("s")
    assert row is not None and (row["source"], row["model"]) == ("unknown", "big")


def test_model_and_configuration_are_set(db: SessionDB) -> None:
    db.create_session("s", "cli", model="small")
    db.update_session_model("s", "big\0")
    db.update_session_meta("s", {"temperature": 1})
    row = db.get_session("s")
    assert row is not None and (row["model"], row["model_config"]) == ("big", '{"temperature": 1}')


def test_all_sessions_are_listed_newest_first(db: SessionDB) -> None:
    for name, source in (("a", "cli"), ("b", "telegram"), ("c", "cli")):
        db.create_session(name, source)
        db.append_message(name, "user", "hello", timestamp={"a": 300, "b": 200, "c": 100}[name])
    db.set_session_archived("b", True)
    assert [row["id"] for row in db.search_sessions()] == ["a", "b", "c"]
    assert [row["id"] for row in db.search_sessions("cli", limit=1, offset=1)] == ["c"]


def test_append_message_takes_fields_by_place_and_refuses_unknown_ones(db: SessionDB) -> None:
    db.create_session("s", "cli")
    db.append_message("s", "tool", "done", "terminal", None, "c1", timestamp=5)
    (row,) = db.get_messages("s")
    assert (row["tool_name"], row["tool_calls"], row["tool_call_id"], row["timestamp"]) == ("terminal", None, "c1", 5)
    with pytest.raises(TypeError, match="colour"):
        db.append_message("s", "user", "hi", colour="red")


def test_an_empty_folder_replaces_none(db: SessionDB) -> None:
    db.create_session("s", "cli")
    db.update_session_cwd("s", "/work", git_branch="main", git_repo_root="/work")
    db.update_session_cwd("s", "", git_branch="side")
    row = db.get_session("s")
    assert row is not None and (row["cwd"], row["git_branch"], row["git_repo_root"]) == ("/work", "side", "/work")


def test_another_payee_needs_another_system_text(db: SessionDB) -> None:
    db.create_session("s", "cli", system_prompt="You are served by one.")
    db.update_session_billing_route("s", provider="two", base_url="http://two.example", billing_mode="api")
    row = db.get_session("s")
    assert row is not None and row["system_prompt"] is None
    route = row["billing_provider"], row["billing_base_url"], row["billing_mode"]
    assert route == ("two", "http://two.example", "api")
