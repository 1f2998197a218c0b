"""Clients: one an origin and loop, no TLS for plain http, and transports in the network's place."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import httpx2
import pytest

from hermes_agent.models import http
from hermes_agent.models.base import Endpoint
from hermes_agent.models.call import call
from hermes_config.limits import DEFAULTS

pytestmark = pytest.mark.slow

ANSWER = b'data: {"choices":[{"delta":{"content":"Hi"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


class Echo(httpx2.AsyncBaseTransport):
    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=ANSWER)


def place(base_url: str) -> Endpoint:
    return Endpoint("custom", "chat", base_url, "m")


def test_one_client_an_origin_and_loop() -> None:
    async def clients() -> list[Any]:
        found = [http.client_for(place(url), DEFAULTS) for url in ("http://a/v1", "http://a/v2", "http://a:81/v1")]
        await http.close_clients()
        return found

    first, second = asyncio.run(clients()), asyncio.run(clients())
    assert first[0] is first[1]
    assert first[0] is not first[2]
    assert first[0] is not second[0]
    assert first[0].is_closed


def test_a_callers_own_loop_takes_its_clients_with_it() -> None:
    async def opened() -> list[Any]:
        early = http.client_for(place("http://a/v1"), DEFAULTS)
        await http.close_clients()
        return [early, *(http.client_for(place(url), DEFAULTS) for url in ("http://a/v1", "http://b/v1"))]

    for _ in range(2):
        found = asyncio.run(opened())
        assert found[0] is not found[1] and all(one.is_closed for one in found)


def test_a_transport_stands_for_the_network_until_it_is_taken_back() -> None:
    async def ask(url: str) -> str | None:
        try:
            return (await call(place(url), b"{}")).content
        finally:
            await http.close_clients()

    made: list[Echo] = []

    def factory() -> Echo:
        made.append(Echo())
        return made[-1]

    undo = [http.register_transport("echo", factory), http.register_transport("http://127.0.0.1:1", factory)]
    try:
        assert asyncio.run(ask("echo://here/v1")) == "Hi"
        assert asyncio.run(ask("http://127.0.0.1:1/v1")) == "Hi"
        assert len(made) == 2
    finally:
        for take_back in undo:
            take_back()
    assert not {"echo", "http://127.0.0.1:1"} & set(http._transports)


def test_an_address_is_not_taken_for_another_that_begins_like_it() -> None:
    async def kinds() -> list[type]:
        urls = ("http://127.0.0.1:1", "http://127.0.0.1:1/v1", "http://127.0.0.1:12/v1")
        return [type(http.client_for(place(url), DEFAULTS)) for url in urls]

    take_back = http.register_transport("http://127.0.0.1:1", Echo)
    try:
        assert asyncio.run(kinds()) == [http.TransportClient, http.TransportClient, http.ConnectionPool]
    finally:
        take_back()


def test_plain_http_reads_no_certificates_and_imports_stay_lazy() -> None:
    script = """
import sys, asyncio
from hermes_agent.models import call, provider_table, providers
assert "httpx2" not in sys.modules, "httpx2 is imported at the first call"
from hermes_agent.models.base import Endpoint, ModelError
async def main():
    try:
        await call.call(Endpoint("custom", "chat", "http://127.0.0.1:1/v1", "m"), b"{}")
    except ModelError as error:
        assert error.kind == "network", error
    await http.close_clients()
from hermes_agent.models import http
asyncio.run(main())
assert http.tls_context.cache_info().currsize == 0
assert not {"openai", "anthropic", "tiktoken", "pydantic"} & set(sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_many_calls_at_once_share_a_loop(loopback: Any) -> None:
    async def slow(exchange: Any) -> None:
        await asyncio.sleep(0.3)
        await exchange.stream('{"choices":[{"delta":{"content":"Hi"},"finish_reason":"stop"}]}')

    async def run() -> tuple[float, set[str | None]]:
        async with loopback(slow) as server:
            began = asyncio.get_running_loop().time()
            replies = await asyncio.gather(*(call(server.endpoint(), b"{}") for _ in range(100)))
            return asyncio.get_running_loop().time() - began, {reply.content for reply in replies}

    took, said = asyncio.run(run())
    assert said == {"Hi"}
    assert took < 10, "a hundred calls of 0.3 s one after the other would take 30"
