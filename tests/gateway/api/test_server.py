"""The server's life inside the gateway: ports, keys, readiness, figures, the end."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import socket
import threading
from pathlib import Path

import pytest
from tests.gateway.api.conftest import Open
from tests.gateway.api.door import KEY, Door, said, until

from gateway import metrics
from gateway.api import auth, bodies, server
from gateway.config import load_gateway_config
from gateway.inbound.lanes import Lanes
from hermes_config import config as configuration
from hermes_state import SessionDB
from hermes_testing.scripted.model import ScriptedModel, call, say

pytestmark = pytest.mark.slow


def test_a_port_that_is_taken_is_named_and_tried_again(door: Open) -> None:
    async def go() -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            async with door(api_server={"port": port}, patience=0.2) as here:
                problem = here.runner.parts.connections.health()["api_server"].problem
                assert f"port {port} of 127.0.0.1 is taken" in problem and "API_SERVER_PORT" in problem
                assert here.runner.parts.lanes.is_open, "chats go on"
                taken.close()
                await until(lambda: here.api.address)
                assert here.runner.parts.connections.health()["api_server"].problem == ""

    asyncio.run(go())


def test_it_is_off_until_somebody_wants_it(home: Path, db: SessionDB, monkeypatch: pytest.MonkeyPatch) -> None:
    home.mkdir(mode=0o700)
    assert _made(home, db) is None and not (home / ".env").exists()
    monkeypatch.setenv("API_SERVER_ENABLED", "true")
    first = _made(home, db)
    assert first is not None
    key = auth.configured(configuration.load(home))
    assert key is not None and len(key) >= 16, "it made itself a key"
    monkeypatch.delenv("API_SERVER_ENABLED")
    assert _made(home, db) is not None, "a key is a switch, too"


def test_another_key_counts_from_the_next_request_on_and_has_its_own_conversations(door: Open) -> None:
    async def go() -> None:
        with ScriptedModel(say("One."), say("Two."), say("Three.")) as model:
            async with door(model) as here:
                assert said(await here.ask("hello", name="mine")) == "One."
                new = auth.replace(here.home)
                assert (await here.ask("hello", name="mine")).status_code == 401
                headers = {"authorization": f"Bearer {new}"}
                assert said(await here.ask("again", name="mine", headers=headers)) == "Two."
                assert "hello" not in str(model.requests[-1].messages)
                (here.home / ".env").write_text("API_SERVER_KEY=short\n", encoding="utf-8")
                assert said(await here.ask("more", name="mine", headers=headers)) == "Three.", "the last good one stays"

    asyncio.run(go())


def _made(home: Path, db: SessionDB) -> server.ApiServer | None:
    config = configuration.load(home)
    return server.make(config, load_gateway_config(config), db)


def test_figures(door: Open) -> None:
    async def go() -> None:
        with ScriptedModel(say("Hi.")) as model:
            async with door(model) as here:
                delivered = 'hermes_delivery_seconds_count{platform="api_server"} 2.0'
                answer = await here.ask("hello", name="a-very-private-name")
                await here.client.get("/api/sessions/some-id")
                await here.ask("/help", name="a-very-private-name")
                for _ in range(200):  # what is counted behind the answer may come a moment after it
                    text = (await here.client.get("/metrics")).text
                    if 'hermes_turns_total{outcome="done"' in text and delivered in text:
                        break
                    await asyncio.sleep(0.02)
        for line in (
            'hermes_turns_total{outcome="done",platform="api_server"} 1.0',
            'hermes_messages_received_total{platform="api_server",state="accepted"} 2.0',
            'hermes_commands_total{outcome="answered"} 1.0',
            'hermes_api_requests_total{path="POST /v1/chat/completions",status="200"} 2.0',
            'hermes_api_requests_total{path="GET /api/sessions/{id}",status="404"} 1.0',
            'hermes_turn_seconds_count{platform="api_server"} 1.0', "hermes_inbox_queued 0.0",
            "hermes_inbox_oldest_seconds 0.0", "hermes_agents_cached 1.0", "hermes_prefix_breaks 0.0",
            "hermes_compressions_total 0.0", "hermes_outbox_dead 0.0",
        ):  # fmt: skip
            assert line in text, line
        assert delivered in text
        for private in ("a-very-private-name", "some-id", KEY, answer.headers["x-hermes-trace-id"]):
            assert private not in text

    asyncio.run(go())


def test_whoever_still_waits_at_the_end_is_told_to_come_back(door: Open, db: SessionDB) -> None:
    async def go() -> None:
        once = {"idempotency-key": "order-1"}
        with ScriptedModel(say("too late", delay=30), say("too late", delay=30), say("Done.")) as model:
            here: Door = door(model, gateway={"drain_seconds": 2.0, "owners": []})
            async with here:
                waiting = asyncio.create_task(here.ask("order", headers=once))
                keyless = asyncio.create_task(here.ask("order this too"))
                await until(lambda: len(model.requests) == 2)
                stopping = asyncio.create_task(here.runner.stop())
                while (await here.client.get("/readyz")).status_code != 503:  # noqa: ASYNC110 - over HTTP, as others do
                    await asyncio.sleep(0.01)
                late = await here.ask("me too")
                assert (late.status_code, late.headers["retry-after"]) == (503, "1")
                assert "x-should-retry" not in late.headers
                answer = await waiting
                assert answer.status_code == 503 and answer.json()["error"]["code"] == "ending"
                assert answer.headers["retry-after"] == "1" and "x-should-retry" not in answer.headers
                broken = await keyless
                assert broken.status_code == 503 and "retry-after" not in broken.headers
                assert broken.headers["x-should-retry"] == "false", "its turn has begun: once more would be twice"
                await stopping
            async with door(model) as again:
                assert said(await again.ask("order", headers=once)) == "Done.", "the turn was taken up"

    asyncio.run(go())


def test_every_line_of_the_log_carries_the_trace_of_its_message(door: Open, caplog: pytest.LogCaptureFixture) -> None:
    caplog.handler.addFilter(metrics.TraceFilter())
    caplog.set_level(logging.DEBUG, "hermes")

    async def go() -> tuple[str, str]:
        broken = say(calls=[call("read_file", {"path": "/nowhere"})])
        with ScriptedModel(broken, broken, say("a"), say("b")) as model:
            async with door(model) as here:
                both = await asyncio.gather(here.ask("one", name="x"), here.ask("two", name="y"))
                log = logging.getLogger("hermes.gateway")
                log.info("nobody's")
                return both[0].headers["x-hermes-trace-id"], both[1].headers["x-hermes-trace-id"]

    one, two = asyncio.run(go())
    marks = {vars(record).get("trace_id") for record in caplog.records if "delivered" in record.message}
    assert marks == {one, two}
    assert all("trace_id" not in vars(record) for record in caplog.records if record.message == "nobody's")


def test_metrics_look_at_the_lanes_on_the_event_loop(door: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lane that comes or goes meanwhile would make a look from another thread fail."""
    looked: list[int] = []

    def active(self: Lanes) -> int:
        looked.append(threading.get_ident())
        return 3

    async def go() -> None:
        async with door() as here:
            monkeypatch.setattr(Lanes, "active", property(active))
            text = (await here.client.get("/metrics")).text
            assert "hermes_turns_running 3.0" in text
            assert set(looked) == {threading.get_ident()}

    asyncio.run(go())


def test_a_large_body_is_read_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its JSON is parsed there, and its pictures are decoded there."""
    threads: list[int] = []
    parsed, decoded = bodies.parsed, base64.b64decode

    def seen(raw: bytes) -> dict[str, object]:
        threads.append(threading.get_ident())
        return parsed(raw)

    def unpacked(text: str) -> bytes:
        threads.append(threading.get_ident())
        return decoded(text)

    async def go() -> None:
        monkeypatch.setattr(bodies, "parsed", seen)
        monkeypatch.setattr(base64, "b64decode", unpacked)
        for content in (b"small", b"x" * 1_000_000):
            url = f"data:image/png;base64,{base64.b64encode(content).decode()}"
            parts = [{"type": "image_url", "image_url": {"url": url}}]
            raw = json.dumps({"messages": [{"role": "user", "content": parts}]}).encode()
            assert (await bodies.read(raw, bodies.asked)).said.pictures[0].content == content
        here = threading.get_ident()
        assert threads[:2] == [here, here] and len(threads) == 4 and here not in threads[2:]

    asyncio.run(go())
