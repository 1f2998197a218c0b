"""Who gets in by HTTP, and what becomes of requests that make no sense."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.gateway.api.conftest import Open
from tests.gateway.api.door import KEY, Door

from gateway.config import load_gateway_config
from hermes_config import config as configuration
from hermes_config.errors import ConfigError
from hermes_config.limits import Limits
from hermes_state import SessionDB

pytestmark = pytest.mark.slow

CHAT = "/v1/chat/completions"
PROTECTED = (
    ("GET", "/v1/models"), ("GET", "/v1/models/hermes-agent"), ("POST", CHAT), ("GET", "/metrics"),
    ("GET", "/health/detailed"), ("GET", "/api/sessions"), ("POST", "/api/sessions"), ("GET", "/api/sessions/x"),
    ("DELETE", "/api/sessions/x"), ("GET", "/nothing"),
)  # fmt: skip


def test_everything_needs_the_key_but_two_bare_words(door: Open, caplog: pytest.LogCaptureFixture) -> None:
    async def go() -> None:
        async with door() as here, httpx2.AsyncClient(base_url=here.url) as stranger:
            for path in ("/health", "/v1/health", "/readyz"):
                answer = await stranger.get(path)
                assert answer.status_code == 200 and list(answer.json()) == ["status"]
            for method, path in PROTECTED:
                for shown in ("", f"Bearer {KEY[:-1]}", f"Bearer {KEY}x", f"Basic {KEY}", "Bearer", "Bearer \xe9"):
                    headers = {"authorization": shown.encode("latin-1")} if shown else {}
                    answer = await stranger.request(method, path, headers=headers)
                    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key"), path
                    assert answer.headers["x-should-retry"] == "false"
                    assert answer.headers["www-authenticate"] == "Bearer"
                    wrong = shown.startswith("Bearer ")
                    assert ("not a key of this home" in answer.json()["error"]["message"]) == wrong
            assert (await here.client.get("/nothing")).status_code == 404
            assert (await here.client.put(CHAT)).status_code == 405
            assert here.db.inbox.counts() == {} and here.db.session_count() == 0

    with caplog.at_level(logging.DEBUG):
        asyncio.run(go())
    assert KEY not in caplog.text


def test_a_name_that_was_pointed_at_this_machine_gets_nowhere(door: Open) -> None:
    async def go() -> None:
        async with door() as here:
            port = here.api.address.rpartition(":")[2]
            for host, status in (
                (f"127.0.0.1:{port}", 200), ("localhost", 200), (f"LOCALHOST:{port}", 200), ("[::1]:80", 200),
                ("evil.example", 421), (f"evil.example:{port}", 421), ("127.0.0.1.evil.example", 421), ("", 421),
            ):  # fmt: skip
                answer = await here.client.get("/v1/models", headers={"host": host})
                assert answer.status_code == status, host

    asyncio.run(go())


def test_the_host_is_checked_whatever_address_is_bound(door: Open) -> None:
    """As in a container, where it listens on all addresses."""

    async def go() -> None:
        for address, hosts, known in (
            ("0.0.0.0", [], set[str]()),
            ("0.0.0.0", ["Hermes.example", "10.1.2.3", "fd00::7"], {
                "hermes.example", "HERMES.EXAMPLE:443", "10.1.2.3:80", "[fd00::7]", "[fd00:0:0::7]:8642"}),
            ("127.0.0.1", ["hermes.example"], {"hermes.example"}),
            *([("::", ["hermes.example"], {"hermes.example"})] if _has_ipv6() else []),
        ):  # fmt: skip
            async with door(api_server={"host": address, "hosts": hosts}) as here:
                port = here.api.address.rpartition(":")[2]
                here_too = f"http://{'[::1]' if address == '::' else '127.0.0.1'}:{port}"
                async with httpx2.AsyncClient(base_url=here_too, headers=here.client.headers) as mine:
                    for host in {"localhost", f"127.0.0.1:{port}", "[::1]:80", *known}:
                        assert (await mine.get("/v1/models", headers={"host": host})).status_code == 200, host
                    for host in (
                        "evil.example", "evil.com", "hermes.example.evil.com", "192.168.1.5", "10.1.2.3.evil.com",
                        "[fd00::8]", "localhost:80:80", "", "*", "[::1]evil.com", "[::1]:evil",
                        "localhost:evil", "evil@localhost", "0.0.0.0",
                    ):  # fmt: skip
                        for path in ("/v1/models", "/health", "/nothing"):
                            answer = await mine.get(path, headers={"host": host})
                            assert (answer.status_code, answer.json()["error"]["code"]) == (421, "wrong_host"), host

    asyncio.run(go())


def _has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


@pytest.mark.parametrize("name", ["*", "http://hermes.example", "hermes.example:443", "a/b", "*.example", "a b"])
def test_a_host_that_is_no_name_is_refused_where_it_is_written(home: Path, name: str) -> None:
    home.mkdir(mode=0o700)
    (home / "config.yaml").write_text(f"api_server:\n  hosts: ['{name}']\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="must be a list of host names") as wrong:
        load_gateway_config(configuration.load(home))
    assert wrong.value.key == "api_server.hosts"


def test_pages_of_other_origins_get_nowhere(door: Open) -> None:
    async def go() -> None:
        async with door(api_server={"cors_origins": ["https://app.example"]}) as here:
            for origin in ("https://evil.example", "null", "https://app.example.evil.example", "http://app.example"):
                answer = await here.client.get("/v1/models", headers={"origin": origin})
                assert answer.status_code == 403 and "access-control-allow-origin" not in answer.headers
            mine = {"origin": "https://app.example"}
            answer = await here.client.get("/v1/models", headers=mine)
            assert answer.status_code == 200
            assert answer.headers["access-control-allow-origin"] == "https://app.example"
            # What openai-js in a browser asks for.
            wanted = "authorization, content-type, idempotency-key, x-hermes-session-id, x-stainless-os"
            before = {"access-control-request-method": "POST", "access-control-request-headers": wanted}
            asked = await here.client.request("OPTIONS", CHAT, headers={**mine, **before})
            assert asked.status_code == 200 and asked.headers["access-control-allow-headers"] == wanted
            assert "x-should-retry" in answer.headers["access-control-expose-headers"]

    asyncio.run(go())


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "a/b", "..", "a..b", "", "-x", "é", "x" * 129, "x" * 8000, "~owner", "a b", "%00"]
)
def test_hostile_names_of_conversations(door: Open, name: str) -> None:
    async def go() -> None:
        async with door() as here:
            body = {"messages": [{"role": "user", "content": "hi"}]}
            answer = await here.client.post(CHAT, json=body, headers={b"x-hermes-session-id": name.encode()})
            assert answer.status_code == 400 and answer.json()["error"]["code"] == "invalid_session_id"
            assert here.db.inbox.counts() == {} and here.db.session_count() == 0

    asyncio.run(go())


def test_what_http_itself_refuses(door: Open) -> None:
    """NUL, and a header of a megabyte: the server answers 400 before anybody of ours sees them."""

    async def go() -> None:
        async with door() as here:
            host, _, port = here.api.address.rpartition(":")
            for name in (b"a\0b", b"x" * 1_000_000):
                reader, writer = await asyncio.open_connection(host, int(port))
                head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nX-Hermes-Session-Id: "
                writer.write(head + name + b"\r\n\r\n")
                assert (await reader.readline()).split()[1] == b"400"
                writer.close()
            assert (await here.client.get("/health")).status_code == 200

    asyncio.run(go())


BAD: list[tuple[Any, str | None]] = [
    ({}, "messages"),
    ({"messages": []}, "messages"),
    ({"messages": "hello"}, "messages"),
    ({"messages": ["hello"]}, "messages[0]"),
    ({"messages": [{"role": "root", "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "user"}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": 7}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": [{"type": "video"}]}]}, "messages[0].content[0]"),
    ({"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]}, "messages"),
    ({"messages": [{"role": "user", "content": ""}]}, "messages"),
    ({"messages": [{"role": "user", "content": "x"}], "stream": "yes"}, "stream"),
    ({"messages": [{"role": "user", "content": "x"}], "n": 2}, "n"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://10.0.0.1/x.png"}}]}]},
     "messages[0].content[0].image_url"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "file:///etc/passwd"}]}]},
     "messages[0].content[0].image_url"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "data:image/png;base64,"}] * 101}]},
     "messages[0].content"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "data:image/png;base64,x"}]}]},
     "messages[0].content[0].image_url"),
    ({"messages": [{"role": "user", "content": "x"}], "response_format": {"type": "json_object"}}, "response_format"),
    ({"messages": [{"role": "user", "content": "x"}], "tool_choice": "required"}, "tool_choice"),
    ({"messages": [{"role": "user", "content": "x"}], "tool_choice": {"type": "function"}}, "tool_choice"),
    ([1], None),
    ("text", None),
]  # fmt: skip


def test_bodies_that_make_no_sense_name_the_field(door: Open) -> None:
    async def go() -> None:
        async with door() as here:
            for body, param in BAD:
                answer = await here.client.post(CHAT, json=body)
                error = answer.json()["error"]
                assert (answer.status_code, error["param"]) == (400, param), body
                assert error["type"] == "invalid_request_error" and error["message"]
            for raw in (b"", b"{", b'{"messages": [\xff]}', b"[" * 100_000, b"null", b'{"a": "\xe9"}'):
                answer = await _post(here, raw)
                assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_json"), raw[:20]
            wrong = await _post(here, b"{}", kind="text/plain")
            assert (wrong.status_code, wrong.json()["error"]["code"]) == (415, "wrong_content_type")
            assert here.db.inbox.counts() == {}

    asyncio.run(go())


def test_a_body_that_is_too_large_is_not_read(make_db: Callable[..., SessionDB], home: Path) -> None:
    async def go() -> None:
        async with Door(make_db(limits=Limits(api_body_bytes=4096)), home) as here:
            large = json.dumps({"messages": [{"role": "user", "content": "x" * 10_000}]}).encode()

            async def pieces() -> Any:
                for at in range(0, len(large), 1000):
                    yield large[at : at + 1000]

            for content in (large, pieces()):
                answer = await _post(here, content)
                assert (answer.status_code, answer.json()["error"]["code"]) == (413, "body_too_large")

    asyncio.run(go())


def test_a_key_that_was_shut_out_by_hand_opens_nothing(door: Open) -> None:
    async def go() -> None:
        from gateway.api.auth import key_id

        async with door() as here:
            here.db.pairings.revoke(platform="api_server", native_id=key_id(KEY))
            answer = await here.ask("hello")
            assert (answer.status_code, answer.json()["error"]["code"]) == (403, "not_allowed")
            assert (await here.client.get("/api/sessions")).status_code == 403

    asyncio.run(go())


async def _post(here: Door, content: Any, kind: str = "application/json") -> httpx2.Response:
    return await here.client.post(CHAT, content=content, headers={"content-type": kind})
