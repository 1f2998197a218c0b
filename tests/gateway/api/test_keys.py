"""What each key opens: a client key its own conversations, an owner key everything; asked of a real gateway by HTTP."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path

import pytest
from tests.gateway.api.conftest import Open
from tests.gateway.api.door import KEY, OWNER_KEY, said
from tests.gateway.api.test_sessions import mine
from tests.support.stores import transact

from gateway.api import auth
from gateway.api.conversations import Conversations
from hermes_config import config as configuration
from hermes_config.errors import ConfigError
from hermes_state import SessionDB
from hermes_state.errors import InvalidValue
from hermes_state.ids import API_CLIENT, LOCAL_OWNER
from hermes_testing.scripted.model import ScriptedModel, call, say

OWNERS = {"terminal", "read_file", "write_file", "patch", "search_files"}
CLIENT, OWNER = {"authorization": f"Bearer {KEY}"}, {"authorization": f"Bearer {OWNER_KEY}"}


def test_a_client_key_has_no_terminal_and_no_files_and_an_owner_key_has(door: Open, home: Path) -> None:
    """The model behind the key calls the terminal and the file tools."""
    marks = {name: home / "workspace" / name for name in ("client", "owner")}
    texts = {name: home / "workspace" / f"{name}.txt" for name in marks}

    def wants(name: str) -> list[object]:
        step = [call("terminal", {"command": f"touch {marks[name]}"}), call("write_file", {"path": str(texts[name]),
                "content": "x"}), call("read_file", {"path": "/etc/hostname"})]  # fmt: skip
        return [say(calls=step), say("Done.")]

    async def go() -> None:
        with ScriptedModel(*wants("client"), *wants("owner")) as model:  # type: ignore[arg-type]
            async with door(model, terminal={"cwd": str(home / "workspace")}) as here:
                (home / "workspace").mkdir(exist_ok=True)
                assert said(await here.ask("run it", headers=CLIENT)) == "Done."
                offered = {tool["function"]["name"] for tool in json.loads(model.requests[0].body).get("tools", ())}
                assert not offered & OWNERS and "todo" in offered
                results = str(model.requests[1].messages)
                assert results.count("no tool named") == 3, results
                assert not marks["client"].exists() and not texts["client"].exists()
                assert "role      member" in said(await here.ask("/whoami", headers=CLIENT))
                for tool in OWNERS:
                    assert tool not in said(await here.ask("/tools", headers=CLIENT))

                assert said(await here.ask("run it", headers=OWNER)) == "Done."
                offered = {tool["function"]["name"] for tool in json.loads(model.requests[2].body)["tools"]}
                assert offered >= OWNERS
                assert marks["owner"].exists() and texts["owner"].exists()
                assert "role      owner" in said(await here.ask("/whoami", headers=OWNER))

    asyncio.run(go())


def test_a_client_key_sees_its_own_conversations_alone(door: Open, db: SessionDB) -> None:
    async def go() -> None:
        private = mine(db, "the owner's diary", "Noted.")
        with ScriptedModel(say("One."), say("Two.")) as model:
            async with door(model) as here:
                assert said(await here.ask("hello", name="both", headers=CLIENT)) == "One."
                assert said(await here.ask("hello", name="both", headers=OWNER)) == "Two."
                seen = await here.get("/api/sessions")
                assert [db.ledger.owner(row["id"]) for row in seen["data"]] == [API_CLIENT]
                assert (await here.get("/api/sessions", q="diary"))["data"] == []
                assert (await here.client.get(f"/api/sessions/{private}")).status_code == 404
                theirs = (await here.client.get("/api/sessions", headers=OWNER)).json()["data"]
                assert {db.ledger.owner(row["id"]) for row in theirs} == {LOCAL_OWNER} and len(theirs) == 2
                resumed = said(await here.ask(f"/resume {private}", name="both", headers=CLIENT))
                assert "diary" not in resumed and "Resumed" not in resumed

    asyncio.run(go())


def test_the_key_of_an_older_home_becomes_a_clients_and_leads_to_none_of_the_owners_conversations(
    door: Open, db: SessionDB, caplog: pytest.LogCaptureFixture
) -> None:
    """There every key was linked to the owner, and its conversations were the owner's."""
    db.people.owner()
    transact(db.people.link_in, LOCAL_OWNER, ("api_server", "", auth.key_id(KEY)), "API key")

    async def go() -> None:
        with ScriptedModel(say("I do not know.")) as model:
            async with door(model) as here:
                # Where this name led for the same key before.
                before = Conversations(here.runner.parts.services, auth.key_id(KEY), "owner").of_name("plans")
                old = here.runner.session_store.resolve(before.source, before.route).handle.session_id
                db.append_message(old, "user", "my secret plans")
                own = "UPDATE conversations SET owner_id = ? WHERE id = ?"
                db._execute_write(lambda conn: conn.run(own, (LOCAL_OWNER, db.get_conversation_root(old))))
                assert said(await here.ask("what are my plans?", name="plans")) == "I do not know."
                assert b"secret plans" not in model.requests[0].body
                assert (await here.client.get(f"/api/sessions/{old}")).status_code == 404
                assert "role      member" in said(await here.ask("/whoami", name="plans"))

    with caplog.at_level(logging.WARNING, "hermes"):
        asyncio.run(go())
    assert "API_SERVER_KEY was the owner's and is a client's" in caplog.text and KEY not in caplog.text
    found = db.people.find(platform="api_server", native_id=auth.key_id(KEY))
    assert found is not None and (found.id, found.role) == (API_CLIENT, "member")


def test_a_key_that_was_shut_out_stays_out_whatever_its_role(door: Open, db: SessionDB) -> None:
    db.people.owner()
    for key in (KEY, OWNER_KEY):
        transact(db.people.link_in, LOCAL_OWNER, ("api_server", "", auth.key_id(key)))
        db.pairings.revoke(platform="api_server", native_id=auth.key_id(key))

    async def go() -> None:
        async with door() as here:
            for headers in (CLIENT, OWNER):
                for path in ("/api/sessions", "/v1/models", "/metrics", "/health/detailed"):
                    assert (await here.client.get(path, headers=headers)).status_code == 403, path
                assert (await here.ask("hello", headers=headers)).status_code == 403

    asyncio.run(go())


def test_nobody_makes_a_client_more_than_a_member(db: SessionDB) -> None:
    assert db.people.api_client().role == "member"
    for role in ("admin", "owner"):
        with pytest.raises(InvalidValue, match="never more than a member"):
            db.people.set_role(API_CLIENT, role)  # type: ignore[arg-type]
    assert db.people.api_client().role == "member"


def test_keys_are_taken_and_dropped_while_the_gateway_runs(door: Open) -> None:
    async def go() -> None:
        async with door() as here:
            env = here.home / ".env"
            assert (await here.client.get("/v1/models", headers=OWNER)).status_code == 200
            env.write_text(f"API_SERVER_KEY={KEY}\n", encoding="utf-8")
            assert (await here.client.get("/v1/models", headers=OWNER)).status_code == 401, "it was taken out"
            assert (await here.client.get("/v1/models", headers=CLIENT)).status_code == 200
            new = {"authorization": f"Bearer {auth.make(here.home, 'owner')}"}
            assert "role      owner" in said(await here.ask("/whoami", headers=new))
            env.write_text(f"API_SERVER_KEY={KEY}\nAPI_SERVER_OWNER_KEY={KEY}\n", encoding="utf-8")
            assert "role      member" in said(await here.ask("/whoami", headers=CLIENT)), "the last good ones stay"

    asyncio.run(go())


def test_another_client_key_is_the_same_client(door: Open) -> None:
    async def go() -> None:
        with ScriptedModel(say("One.")) as model:
            async with door(model) as here:
                assert said(await here.ask("hello")) == "One."
                new = {"authorization": f"Bearer {auth.replace(here.home)}"}
                listed = (await here.client.get("/api/sessions", headers=new)).json()["data"]
                assert [row["preview"] for row in listed] == ["hello"]
                assert (await here.client.get("/api/sessions")).status_code == 401

    asyncio.run(go())


def test_one_text_cannot_be_both_keys(home: Path) -> None:
    home.mkdir(mode=0o700)
    (home / ".env").write_text(f"API_SERVER_KEY={KEY}\nAPI_SERVER_OWNER_KEY={KEY}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="is the same as API_SERVER_KEY") as wrong:
        auth.all_configured(configuration.load(home))
    assert KEY not in wrong.value.one_line()
