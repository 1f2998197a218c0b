"""The MCP server at `/mcp`, driven by the official client in both eras: who sees what, and `ask` as a task."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp.shared.exceptions import MCPError
from tests.gateway.api.door import KEY, OWNER_KEY, Door
from tests.support.mcp_agent import McpAgent

from gateway.api import auth
from gateway.mcp_server.tools import IDEMPOTENCY_META
from hermes_state import SessionDB
from hermes_state.ids import LOCAL_OWNER
from hermes_testing.scripted.model import Fail, Hold, ScriptedModel, say

pytestmark = pytest.mark.slow

Open = Callable[..., Door]
MODES = pytest.mark.parametrize("mode", ["auto", "legacy"])


@pytest.fixture
def door(db: SessionDB, home: Path) -> Open:
    def make(model: ScriptedModel | None = None, /, **config: Any) -> Door:
        return Door(db, home, model, **{"api_server": {"mcp": True}, **config})

    return partial(make)


def agent(here: Door, key: str = KEY, **more: Any) -> McpAgent:
    return McpAgent(f"{here.url}/mcp", key=key, **more)


def owners(db: SessionDB, *words: str, title: str) -> str:
    db.people.owner()
    return _stored(db, LOCAL_OWNER, words, title)


def _stored(db: SessionDB, person: Any, words: tuple[str, ...], title: str) -> str:
    handle = db.ledger.open(source="telegram", owner=person)
    for at, text in enumerate(words):
        db.append_message(handle.session_id, "user" if at % 2 == 0 else "assistant", text)
    db.set_session_title(handle.session_id, title)
    return str(handle.session_id)


@MODES
def test_each_key_sees_its_own_conversations(door: Open, db: SessionDB, mode: str) -> None:
    async def go() -> None:
        mine = owners(db, "the attic key", "under the mat", title="Attic")
        bob = db.people.ensure(platform="telegram", native_id="7", role="member").id
        his = _stored(db, bob, ("bob has an attic", "I see"), "Bob")
        with ScriptedModel(say("It is noon.")) as model:
            async with (
                door(model) as here,
                agent(here, mode=mode) as client,
                agent(here, OWNER_KEY, mode=mode) as owner,
            ):
                tools = [tool.name for tool in (await client.client.list_tools()).tools]
                assert tools == [
                    "conversations_list", "conversations_search", "conversation_read", "conversation_send", "ask",
                ]  # fmt: skip
                theirs = (await owner.tool("conversations_list"))["conversations"]
                assert [one["title"] for one in theirs] == ["Attic"]
                found = await owner.tool("conversations_search", query="attic")
                assert [one["id"] for one in found["conversations"]] == [mine] and not found["has_more"]
                read = await owner.tool("conversation_read", conversation=mine)
                assert [one["text"] for one in read["messages"]] == ["the attic key", "under the mat"]
                assert (await client.tool("conversations_list"))["conversations"] == []
                assert (await client.tool("conversations_search", query="attic"))["conversations"] == []
                for other in (mine, his, "no-such-conversation"):
                    told = await client.refusal("conversation_read", conversation=other)
                    assert told.startswith("there is no such conversation"), told
                    assert (await client.refusal("conversation_send", message="hi", conversation=other)) == told
                assert (await owner.refusal("conversation_read", conversation=his)).startswith("there is no such")
                assert await client.answer(await client.ask("what time is it?")) == "It is noon."
                own = (await client.tool("conversations_list"))["conversations"]
                assert [one["preview"] for one in own] == ["what time is it?"]
                row = db.inbox.list(limit=1)[0]
                assert row.person_id == db.people.api_client().id, "another agent's words are not the owner's"
                assert (await owner.refusal("conversation_read", conversation=own[0]["id"])).startswith("there is no")

    asyncio.run(go())


def test_a_long_conversation_is_read_in_pages(door: Open, db: SessionDB) -> None:
    async def go() -> None:
        said = [f"number {at} {'x' * 30_000 if at == 3 else ''}".strip() for at in range(7)]
        long = owners(db, *said, title="Long")
        async with door() as here, agent(here, OWNER_KEY, tasks=False) as owner:
            last = await owner.tool("conversation_read", conversation=long, limit=2)
            assert (last["offset"], last["total"]) == (5, 7) and "next_offset" not in last
            at, seen = 0, []
            while at is not None:
                page = await owner.tool("conversation_read", conversation=long, offset=at, limit=3)
                seen += [one["text"] for one in page["messages"]]
                at = page.get("next_offset")
            assert [one[:8] for one in seen] == [one[:8] for one in said]
            assert seen[3].endswith("… (30,009 characters)") and len(seen[3]) < 20_100
            first = await owner.tool("conversations_list", limit=1)
            assert not first["has_more"]
            assert "limit" in await owner.refusal("conversations_list", limit=201)
            assert "message" in await owner.refusal("ask", message="")

    asyncio.run(go())


@MODES
def test_ask_is_a_task_that_outlives_its_caller(door: Open, mode: str) -> None:
    async def go() -> None:
        hold = Hold()
        with ScriptedModel(say("Forty", "-two.", hold=hold)) as model:
            async with door(model) as here:
                async with agent(here, mode=mode) as first:
                    task = await first.ask("the question", key="q1")
                    working = await first.task(task)
                    assert working["status"] == "working" and working["createdAt"].endswith("Z")
                    assert working["ttl" if mode == "legacy" else "ttlMs"] == 30 * 86_400_000
                    assert await first.ask("the question", key="q1") == task, "the same key is the same task"
                    with pytest.raises(MCPError, match="used with another message"):
                        await first.ask("another question", key="q1")
                async with agent(here, mode=mode) as again, agent(here, OWNER_KEY, mode=mode) as other:
                    with pytest.raises(MCPError, match="no such task"):
                        await other.task(task)
                    with pytest.raises(MCPError, match="no such task"):
                        await again.task(task[:-1] + ("0" if task[-1] != "0" else "1"))
                    hold.release()
                    assert await again.answer(task) == "Forty-two."
                    assert model.calls == 1

    asyncio.run(go())


def test_a_caller_without_tasks_waits_for_the_answer(door: Open) -> None:
    async def go() -> None:
        with ScriptedModel(say("Yes."), Fail(status=400)) as model:
            async with door(model) as here, agent(here, tasks=False) as plain, agent(here) as other:
                meta: Any = {IDEMPOTENCY_META: "turn-1/call-2"}
                for _ in range(2):
                    said = await plain.client.call_tool("ask", {"message": "really?"}, meta=meta)
                    assert said.structured_content is not None and said.structured_content["answer"] == "Yes."
                assert model.calls == 1
                with pytest.raises(MCPError, match="did not declare"):
                    await plain.task(said.structured_content["task"])
                failed = await other.until(await other.ask("and now?"), "completed")
                assert failed["result"]["isError"] and "error" not in failed

    asyncio.run(go())


@MODES
def test_cancel_stops_that_turn_and_no_other(door: Open, mode: str) -> None:
    async def go() -> None:
        hold = Hold()
        with ScriptedModel(say("I will count: 1, ", "2", hold=hold), say("Here I am.")) as model:
            async with door(model) as here, agent(here, mode=mode) as caller:
                first = await caller.ask("count", key="c")
                await caller.until(first, "working")
                while not hold.is_reached:  # noqa: ASYNC110 - the model lives in a thread
                    await asyncio.sleep(0.01)
                conversation = (await caller.tool("conversations_list"))["conversations"][0]["id"]
                waiting = await caller.ask("never mind", conversation=conversation)
                behind = await caller.ask("are you there?", conversation=conversation)
                await caller.rpc("tasks/cancel", taskId=waiting)
                await caller.rpc("tasks/cancel", taskId=first)
                hold.release()
                assert (await caller.until(first, "cancelled", "completed"))["status"] == "cancelled"
                assert (await caller.until(waiting, "cancelled", "completed"))["status"] == "cancelled"
                assert await caller.answer(behind) == "Here I am."
                if mode == "legacy":
                    with pytest.raises(MCPError, match="has ended"):
                        await caller.rpc("tasks/cancel", taskId=behind)
                else:
                    assert (await caller.rpc("tasks/cancel", taskId=behind))["resultType"] == "complete"

    asyncio.run(go())


def test_it_is_off_until_the_owner_sets_it_and_the_guard_stands_before_it(door: Open, db: SessionDB) -> None:
    async def go() -> None:
        async with door(api_server={}) as here:
            assert (await here.client.post("/mcp", json={})).status_code == 404
        async with door() as here:
            call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
            async with httpx2.AsyncClient(base_url=here.url) as anybody:
                assert (await anybody.post("/mcp", json=call)).status_code == 401
            for headers in ({"host": "evil.example"}, {"origin": "https://evil.example"}):
                assert (await here.client.post("/mcp", json=call, headers=headers)).status_code in (403, 421)
            about = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
            accept = {"accept": "application/json, text/event-stream"}
            opened = await here.client.post(
                "/mcp", json={**call, "method": "initialize", "params": about}, headers=accept
            )
            session = {**accept, "mcp-session-id": opened.headers["mcp-session-id"]}
            assert (await here.client.post("/mcp", json=call, headers=session)).status_code == 200
            stolen = {**session, "authorization": f"Bearer {OWNER_KEY}"}
            assert (await here.client.post("/mcp", json=call, headers=stolen)).status_code == 404
            async with agent(here) as client:
                assert await client.tool("conversations_list")
                db.pairings.revoke(platform="api_server", native_id=auth.key_id(KEY))
            refused = await here.client.post("/mcp", json=call)
            assert (refused.status_code, refused.json()["error"]["code"]) == (403, "not_allowed")

    asyncio.run(go())


def test_a_server_that_cannot_be_opened_answers_and_is_opened_by_the_next_request(
    door: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def go() -> None:
        async with door() as here:
            with monkeypatch.context() as patch:
                patch.setattr("gateway.mcp_server.tools.make", lambda caller: 1 / 0)
                async with asyncio.timeout(10):
                    failed = await here.client.post("/mcp", json={})
            assert (failed.status_code, failed.json()["error"]["code"]) == (500, "mcp_failed")
            async with agent(here) as client:
                assert await client.tool("conversations_list") == {"conversations": [], "has_more": False}

    asyncio.run(go())


def test_without_the_sdk_it_says_what_to_install(door: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    async def go() -> None:
        async with door() as here:
            with monkeypatch.context() as patch:
                patch.setitem(sys.modules, "mcp.server.transport_security", None)
                missing = await here.client.post("/mcp", json={})
            assert missing.status_code == 501 and "extra mcp" in missing.json()["error"]["message"]
            async with agent(here) as client:
                assert await client.tool("conversations_list") == {"conversations": [], "has_more": False}

    asyncio.run(go())
