"""A model's server behind the proxy that the environment names, which is a real server on loopback."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from hermes_agent.models.base import Endpoint, ModelError
from hermes_agent.models.call import call

FAR = "model.example.invalid"
"""Nobody's name: only a proxy answers for it."""
NAMES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


async def proxy(exchange: Any) -> None:
    if exchange.line.startswith("CONNECT"):
        await exchange.answer(b"", 403)
    else:
        await exchange.stream('{"choices":[{"delta":{"content":"by proxy"},"finish_reason":"stop"}]}')


async def server(exchange: Any) -> None:
    await exchange.stream('{"choices":[{"delta":{"content":"straight"},"finish_reason":"stop"}]}')


async def answer_of(base_url: str) -> str | None:
    return (await call(Endpoint("custom", "chat", base_url, "m"), b"{}")).content


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"])
@pytest.mark.parametrize("scheme", ["http://", ""], ids=["url", "host"])
def test_a_call_goes_through_the_proxy(name: str, scheme: str, loopback: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def go() -> None:
        async with loopback(proxy) as there:
            monkeypatch.setenv(name, f"{scheme}127.0.0.1:{there.port}")
            assert [await answer_of(f"http://{FAR}/v1") for _ in range(2)] == ["by proxy"] * 2
        assert [one.line for one in there.requests] == [f"POST http://{FAR}/v1/chat/completions HTTP/1.1"] * 2
        assert there.connections == 1, "which is kept"

    asyncio.run(go())


def test_what_is_secret_goes_through_a_tunnel_or_not_at_all(loopback: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def go() -> None:
        async with loopback(proxy) as plain, loopback(proxy) as secret:
            monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{plain.port}")
            monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{secret.port}")
            with pytest.raises(ModelError):
                await answer_of(f"https://{FAR}/v1")
        assert not plain.requests
        assert {one.line for one in secret.requests} == {f"CONNECT {FAR}:443 HTTP/1.1"}

    asyncio.run(go())


def test_this_machine_and_what_no_proxy_names_are_called_straight(
    loopback: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def go() -> None:
        async with loopback(proxy) as between, loopback(server) as here, loopback(server) as another:
            monkeypatch.setenv("ALL_PROXY", f"http://127.0.0.1:{between.port}")
            assert await answer_of(f"http://127.0.0.1:{here.port}/v1") == "straight"
            assert await answer_of(f"http://0.0.0.0:{here.port}/v1") == "by proxy", "a name like any other"
            monkeypatch.setenv("NO_PROXY", f"{FAR},0.0.0.0")
            assert await answer_of(f"http://0.0.0.0:{another.port}/v1") == "straight"
        assert len(between.requests) == len(here.requests) == len(another.requests) == 1

    asyncio.run(go())
