"""`/api/sessions`: a person's conversations by HTTP, whichever platform they are from, and nobody else's."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.gateway.api.conftest import Open
from tests.gateway.api.door import OWNER_KEY, Door, events, said, until

from gateway.config import Platform
from gateway.routes.source import SessionSource
from gateway.session import SessionStore
from hermes_state import SessionDB
from hermes_state.ids import LOCAL_OWNER
from hermes_testing.scripted.model import Hold, ScriptedModel, say


def told(db: SessionDB, native_id: str, *words: str, title: str | None = None) -> str:
    """A conversation of somebody on Telegram."""
    person = db.people.ensure(platform="telegram", native_id=native_id, role="member").id
    return _stored(db, person, words, title)


def mine(db: SessionDB, *words: str, title: str | None = None) -> str:
    db.people.owner()
    return _stored(db, LOCAL_OWNER, words, title)


def _stored(db: SessionDB, person: str, words: tuple[str, ...], title: str | None) -> str:
    handle = db.ledger.open(source="telegram", owner=person)  # type: ignore[arg-type]
    for at, text in enumerate(words):
        db.append_message(handle.session_id, "user" if at % 2 == 0 else "assistant", text)
    if title:
        db.set_session_title(handle.session_id, title)
    return handle.session_id


def test_list_pages_and_search(door: Open, db: SessionDB) -> None:
    async def go() -> None:
        ids = [mine(db, f"about number {n}", "I see", title=f"Number {n}") for n in range(5)]
        mine(db, "a trip to 京都", "lovely")
        told(db, "7", "a secret trip to 京都", "hush")
        async with door(key=OWNER_KEY) as here:
            page = await here.get("/api/sessions", limit=4)
            rest = await here.get("/api/sessions", limit=4, offset=4)
            assert len(page["data"]) == 4 and page["has_more"] and len(rest["data"]) == 2 and not rest["has_more"]
            assert {row["id"] for row in page["data"] + rest["data"]} >= set(ids)
            found = await here.get("/api/sessions", q="京都")
            assert [row["preview"] for row in found["data"]] == ["a trip to 京都"]
            assert "京都" in found["data"][0]["matches"][0]["snippet"]
            assert [row["title"] for row in (await here.get("/api/sessions", title="number 3"))["data"]] == ["Number 3"]
            for query in ("limit=0", "limit=1000", "limit=x", "offset=-1", "limit=9999999999999"):
                assert (await here.client.get(f"/api/sessions?{query}")).status_code == 400

    asyncio.run(go())


def test_what_is_somebody_elses_does_not_exist(door: Open, db: SessionDB) -> None:
    async def go() -> None:
        theirs = told(db, "7", "a secret", "hush", title="Secret")
        async with door() as here:
            for method, path in (
                ("GET", ""), ("PATCH", ""), ("DELETE", ""), ("GET", "/messages"), ("POST", "/chat"),
                ("POST", "/chat/stream"), ("POST", "/compress"), ("POST", "/fork"),
            ):  # fmt: skip
                for wanted in (theirs, "nothing", "..%2f..%2fetc", "%00", "x" * 2000, "京都"):
                    body = {"title": "x", "message": "hi"} if method in ("POST", "PATCH") else None
                    answer = await here.client.request(method, f"/api/sessions/{wanted}{path}", json=body)
                    assert answer.status_code == 404, (method, path, wanted)
                    assert "secret" not in answer.text.lower()
            assert (await here.get("/api/sessions"))["data"] == []
            assert db.get_session_title(theirs) == "Secret"

    asyncio.run(go())


def test_make_read_rename_delete(door: Open, db: SessionDB) -> None:
    async def go() -> None:
        with ScriptedModel(say("Hi.")) as model:
            async with door(model) as here:
                made = (await here.client.post("/api/sessions", json={"title": "Plans", "name": "plans"})).json()
                assert made["title"] == "Plans" and made["name"] == "plans" and made["message_count"] == 0
                assert said(await here.ask("hello", name="plans")) == "Hi."
                assert said_in(await here.get(f"/api/sessions/{made['id']}/messages")) == ["hello", "Hi."]
                page = await here.get(f"/api/sessions/{made['id']}/messages", limit=1, offset=1)
                assert said_in(page) == ["Hi."] and page["total"] == 2
                renamed = await here.client.patch(f"/api/sessions/{made['id']}", json={"title": "Other plans"})
                assert renamed.json()["title"] == "Other plans"
                assert (await here.client.patch(f"/api/sessions/{made['id']}", json={})).status_code == 400
                gone = await here.client.delete(f"/api/sessions/{made['id']}")
                assert gone.json()["deleted"] is True
                assert (await here.client.get(f"/api/sessions/{made['id']}")).status_code == 404
            assert db.session_count() == 0

    asyncio.run(go())


def test_a_conversation_is_not_deleted_while_a_turn_runs_or_a_message_waits(door: Open, db: SessionDB) -> None:
    async def go() -> None:
        hold = Hold()
        with ScriptedModel(say("One."), say("Two, ", "three.", hold=hold), say("Four.")) as model:
            async with door(model) as here:
                await here.ask("first", name="n1")
                mine = f"/api/sessions/{(await here.get('/api/sessions'))['data'][0]['id']}"
                asking = asyncio.create_task(here.ask("second", name="n1"))
                await hold.reached()
                waiting = asyncio.create_task(here.ask("third", name="n1"))
                await until(lambda: db.inbox.list(state="queued"))
                refused = await here.client.delete(mine)
                error = refused.json()["error"]
                assert (refused.status_code, error["code"]) == (409, "conversation_busy")
                assert "hermes turns cancel" in error["message"]
                hold.release()
                assert [said(await asking), said(await waiting)] == ["Two, three.", "Four."]
                assert {row.state for row in db.inbox.list()} == {"answered"}
                assert (await here.client.delete(mine)).status_code == 200, "as soon as the answer is there"
                assert (await here.client.get(mine)).status_code == 404

    asyncio.run(go())


def test_go_on_with_a_conversation_of_another_platform(door: Open, db: SessionDB, home: Path) -> None:
    async def go() -> None:
        with ScriptedModel(say("Blue, you said."), say("Yes, ", "blue.")) as model:
            async with door(model, key=OWNER_KEY) as here:
                source = SessionSource(platform=Platform.TELEGRAM, chat_id="42", user_id="42")
                route, handle = on_telegram(here, source)
                db.append_message(handle, "user", "my colour is blue")
                db.append_message(handle, "assistant", "Noted.")
                answer = await here.client.post(f"/api/sessions/{handle}/chat", json={"message": "which one?"})
                assert said(answer) == "Blue, you said."
                streamed = await here.client.post(f"/api/sessions/{handle}/chat/stream", json={"message": "sure?"})
                chunks = [data for name, data in events(streamed.text) if not name and data != "[DONE]"]
                text = "".join(c["choices"][0]["delta"].get("content", "") for c in chunks if c["choices"])
                assert text == "Yes, blue."
                assert here.runner.session_store.peek_session_id(route) == handle, "it is still the chat's"
                assert len((await here.get("/api/sessions"))["data"]) == 1
            assert b"my colour is blue" in model.requests[0].body

    asyncio.run(go())


def test_a_fork_leaves_the_original_alone(door: Open, db: SessionDB) -> None:
    async def go() -> None:
        original = mine(db, "hello", "Hi.", title="First")
        with ScriptedModel(say("In the copy.")) as model:
            async with door(model, key=OWNER_KEY) as here:
                fork = (await here.client.post(f"/api/sessions/{original}/fork", json={"title": "Copy"})).json()
                assert fork["id"] != original and fork["title"] == "Copy"
                await here.client.post(f"/api/sessions/{fork['id']}/chat", json={"message": "and on"})
                said_there = said_in(await here.get(f"/api/sessions/{fork['id']}/messages"))
                assert said_there == ["hello", "Hi.", "and on", "In the copy."]
                assert said_in(await here.get(f"/api/sessions/{original}/messages")) == ["hello", "Hi."]

    asyncio.run(go())


def test_compress_keeps_the_conversations_id(door: Open, db: SessionDB) -> None:
    async def go() -> None:
        words = [f"{'question' if n % 2 == 0 else 'answer'} {n} " + "word " * 300 for n in range(60)]
        long = mine(db, *words)
        with ScriptedModel(say("A summary of it all."), say("Going on.")) as model:
            async with door(model, key=OWNER_KEY) as here:
                answer = await here.client.post(f"/api/sessions/{long}/compress", json={"focus": "numbers"})
                assert "ompressed" in said(answer)
                after = await here.get(f"/api/sessions/{long}")
                assert after["id"] == long and after["session_id"] != long
                assert said(await here.client.post(f"/api/sessions/{long}/chat", json={"message": "go on"}))
                assert len((await here.get("/api/sessions"))["data"]) == 1
            assert len(model.requests[-1].body) < len(model.requests[0].body)

    asyncio.run(go())


def said_in(page: dict[str, list[dict[str, str]]]) -> list[str]:
    return [row["content"] for row in page["data"]]


def on_telegram(here: Door, source: SessionSource) -> tuple[str, str]:
    store: SessionStore = here.runner.session_store
    route = store.key(source)
    session_id = store.resolve(source, route).handle.session_id
    own = "UPDATE conversations SET owner_id = ? WHERE id = ?"
    here.db._execute_write(lambda conn: conn.run(own, (LOCAL_OWNER, here.db.get_conversation_root(session_id))))
    return route, session_id
