"""Webhooks of platforms: verified before they are handled, bounded, stored before they are acknowledged."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.gateway.api.conftest import Open
from tests.gateway.api.door import Door
from tests.gateway.api.test_connections import Line

from gateway.api import webhooks
from gateway.config import Platform
from gateway.platforms.base import WebhookRequest, WebhookResponse, signed_with
from gateway.platforms.context import WebhookRoutes, Webhooks, WebhookUnusable
from hermes_config.limits import DEFAULTS, Limits
from hermes_state import SessionDB
from hermes_testing.memory_platform import PretendAdapter
from hermes_testing.scripted.model import ScriptedModel, say

pytestmark = pytest.mark.slow
SECRET = "between the two of us"


class Hooked(PretendAdapter):
    """A platform that calls us."""

    handled = 0

    async def connect(self, *, is_reconnect: bool = False) -> bool:
        self.path = self.context.http.add("/events/", self.verify, self.handle)
        return await super().connect(is_reconnect=is_reconnect)

    def verify(self, request: WebhookRequest) -> bool:
        return signed_with(SECRET, request.body, request.headers["x-signature"])

    async def handle(self, request: WebhookRequest) -> WebhookResponse:
        self.handled += 1
        told = json.loads(request.body)
        receipt = await self.receive(self.event(told["text"], told["user"], message_id=told["id"]))
        return WebhookResponse(status=200, body=f"{request.path}: {receipt.state}".encode())


def body(number: int, user: str = "42") -> bytes:
    return json.dumps({"id": f"m{number}", "user": user, "text": "hello"}).encode()


async def post(url: str, content: bytes, *, signature: str | None = None, **headers: str) -> httpx2.Response:
    made = hmac.new(SECRET.encode(), content, hashlib.sha256).hexdigest() if signature is None else signature
    given = {**headers, **({"x-signature": made} if made else {})}
    async with httpx2.AsyncClient() as client:
        return await client.post(url, content=content, headers=given)


@pytest.mark.parametrize("name", ["telegram", "telegram@work"])
def test_a_signed_request_is_a_message_and_the_same_one_again_is_none(door: Open, name: str) -> None:
    async def go() -> None:
        chat = Hooked(platform=Platform(name))
        with ScriptedModel(say("Hi.")) as model:
            async with door(model, adapters=(chat,), gateway={"owners": [f"{name}:42"]}) as here:
                url = f"{here.url}{chat.path}"
                assert chat.path == f"/webhooks/{name}/events"
                first, again = [await post(f"{url}/7", body(1)) for _ in range(2)]
                assert (first.status_code, first.text) == (200, "7: accepted")
                assert (again.status_code, again.text) == (200, "7: duplicate")
                assert [shown.text for shown in await chat.heard(1)] == ["Hi."]
                stranger = await post(url, body(2, user="666"))
                assert (stranger.status_code, stranger.text) == (200, ": refused")
        assert [row.message_id for row in here.db.inbox.list()] == ["m2", "m1"]

    asyncio.run(go())


@pytest.mark.parametrize(
    ("signature", "more", "status"),
    [
        ("0" * 64, {}, 401),
        ("", {}, 401),  # `verify` raises: the header is missing
        (None, {"host": "evil.example"}, 421),
        (None, {"content": b"x" * (DEFAULTS.webhook_body_bytes + 1)}, 413),
    ],
)
def test_whatever_is_not_right_reaches_no_handler(
    door: Open, signature: str | None, more: dict[str, Any], status: int
) -> None:
    async def go() -> None:
        chat = Hooked()
        async with door(None, adapters=(chat,)) as here:
            url, headers = f"{here.url}{chat.path}", {name: value for name, value in more.items() if name == "host"}
            refused = await post(url, more.get("content", body(1)), signature=signature, **headers)
            assert refused.status_code == status and chat.handled == 0
            nowhere = await post(f"{here.url}/webhooks/telegram/other", body(1))
            assert nowhere.status_code == 404
            keyless = await post(f"{here.url}/v1/models", b"")
            assert keyless.status_code == 401, "no other path has lost its key"
        assert here.db.inbox.list() == ()

    asyncio.run(go())


def test_a_body_in_drops_is_not_waited_for(make_db: Callable[..., SessionDB], home: Path) -> None:
    """Nobody needs a key to send one, and each would hold a connection for as long as it likes."""

    async def drip(line: Line) -> None:
        while True:
            await asyncio.sleep(0.1)
            line.send(b"x")

    async def go() -> None:
        chat, db = Hooked(), make_db(limits=Limits(api_body_seconds=1))
        async with Door(db, home, adapters=(chat,)) as here, Line(here) as line:
            line.send(f"POST {chat.path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n".encode())
            dripping = asyncio.create_task(drip(line))
            assert await line.status() == 408 and chat.handled == 0
            dripping.cancel()

    asyncio.run(go())


@pytest.mark.parametrize("sent", [b"no JSON", b"wait"])
def test_a_handler_that_fails_is_told_as_its_platforms(
    door: Open, sent: bytes, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing(Hooked):
        async def handle(self, request: WebhookRequest) -> WebhookResponse:
            if request.body == b"wait":
                await asyncio.sleep(60)
            return await super().handle(request)

    async def go() -> None:
        chat = Failing()
        async with door(None, adapters=(chat,)) as here:
            failed = await post(f"{here.url}{chat.path}", sent)
            assert failed.status_code == 500
            assert failed.json()["error"]["message"] == "the webhook of telegram failed"

    monkeypatch.setattr(webhooks, "_HANDLER_SECONDS", 0.2)
    asyncio.run(go())
    assert "a webhook of telegram: its handler failed" in caplog.text and "our own code" not in caplog.text


def test_without_a_server_a_platform_is_told_so() -> None:
    with pytest.raises(WebhookUnusable, match="HTTP server"):
        Webhooks(WebhookRoutes(), "pigeon").add("events", lambda _: True, Hooked().handle)
