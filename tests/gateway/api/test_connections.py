"""Connections that keep the server waiting: real sockets that send nothing, a part, or one byte at a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest
from starlette.websockets import WebSocket
from tests.gateway.api.door import KEY, OWNER_KEY, Door
from websockets.asyncio.client import connect

from gateway.api import server
from hermes_config.limits import Limits
from hermes_state import SessionDB

pytestmark = pytest.mark.slow

MakeDb = Callable[..., SessionDB]
BEARER = f"Authorization: Bearer {KEY}\r\n".encode()


class Line:
    """One connection, byte by byte."""

    def __init__(self, here: Door) -> None:
        self._host, _, self._port = here.api.address.rpartition(":")

    async def __aenter__(self) -> Self:
        self.reader, self.writer = await asyncio.open_connection(self._host, int(self._port))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.writer.transport.abort()

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def status(self) -> int:
        async with asyncio.timeout(5):
            return int((await self.reader.readline()).split()[1])

    async def closed(self, within: float) -> float:
        """Seconds until the server closed it; what it sent until then is read."""
        began = time.monotonic()
        try:
            async with asyncio.timeout(within):
                while await self.reader.read(65_536):
                    pass
        except ConnectionError:
            pass
        return time.monotonic() - began

    async def is_open(self) -> bool:
        try:
            async with asyncio.timeout(0.2):
                while await self.reader.read(65_536):
                    pass
                return False
        except TimeoutError:
            return True
        except ConnectionError:
            return False


@pytest.mark.parametrize(
    "part",
    [b"", b"GET", b"GET /health HTTP/1.1\r\nHost: localhost\r\n", b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: "],
    ids=["nothing", "a word", "a head without its end", "a header without its end"],
)
def test_a_connection_without_a_whole_request_is_closed(make_db: MakeDb, home: Path, part: bytes) -> None:
    async def go() -> None:
        async with Door(make_db(limits=Limits(api_head_seconds=1)), home) as here, Line(here) as line:
            line.send(part)
            assert 0.5 < await line.closed(within=5) < 3
            assert (await here.client.get("/health")).status_code == 200

    asyncio.run(go())


def test_one_byte_now_and_then_does_not_put_it_off(make_db: MakeDb, home: Path) -> None:
    async def go() -> None:
        async with Door(make_db(limits=Limits(api_head_seconds=1)), home) as here, Line(here) as line:
            line.send(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: ")

            async def drip() -> None:
                while True:
                    await asyncio.sleep(0.1)
                    line.send(b"x")

            dripping = asyncio.create_task(drip())
            assert await line.closed(within=5) < 3
            dripping.cancel()

    asyncio.run(go())


def test_a_body_that_stands_still_is_closed_and_a_slow_one_is_not(make_db: MakeDb, home: Path) -> None:
    limits = Limits(api_head_seconds=1, api_body_seconds=1)
    head = b"POST /api/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 12\r\n"

    async def go() -> None:
        async with Door(make_db(limits=limits), home) as here:
            async with Line(here) as still:
                still.send(head + BEARER + b"\r\n{")
                assert await still.closed(within=5) < 3
            async with Line(here) as slow:
                slow.send(head + BEARER + b"\r\n")
                for byte in b'{"name":"a"}':
                    slow.send(bytes([byte]))
                    await asyncio.sleep(0.2)  # longer than both bounds in all
                assert await slow.status() == 201

    asyncio.run(go())


@pytest.mark.parametrize("head", [b"X: ", b"Transfer-Encoding: chunked\r\n" + BEARER + b"\r\n1\r\n{\r\n0\r\nX: "])
def test_a_head_or_trailers_without_end_are_refused(make_db: MakeDb, home: Path, head: bytes) -> None:
    async def go() -> None:
        async with Door(make_db(), home) as here, Line(here) as line:
            line.send(b"POST /api/sessions HTTP/1.1\r\nHost: localhost\r\n" + head)
            for _ in range(8):
                line.send(b"a" * 16_000)
                await asyncio.sleep(0.01)
            assert await line.closed(within=5) < 5

    asyncio.run(go())


def test_trailers_do_not_change_the_headers(make_db: MakeDb, home: Path) -> None:
    async def go() -> None:
        async with Door(make_db(), home) as here, Line(here) as line:
            line.send(
                b"POST /api/sessions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n"
                + BEARER
                + b"\r\n"
            )
            assert await line.status() == 401

    asyncio.run(go())


def test_a_request_that_offers_another_protocol_keeps_its_body(make_db: MakeDb, home: Path) -> None:
    offer = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n"
    head = b"POST /api/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 12\r\n"

    async def go() -> None:
        async with Door(make_db(), home) as here, Line(here) as line:
            line.send(head + offer + BEARER + b'\r\n{"na')
            await asyncio.sleep(0.05)
            line.send(b'me":"a"}GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n')
            assert await line.status() == 201
            async with asyncio.timeout(5):
                assert b"HTTP/1.1 200" in await line.reader.readuntil(b"HTTP/1.1 200")

    asyncio.run(go())


def test_many_offers_of_another_protocol_in_one_packet_are_refused(
    make_db: MakeDb, home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    offer = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"

    async def go() -> None:
        async with Door(make_db(), home) as here, Line(here) as line, Line(here) as other:
            line.send(offer * 700)
            async with asyncio.timeout(5):
                assert b"HTTP/1.1 400" in await line.reader.read()
            other.send(offer)
            assert await other.status() == 200

    asyncio.run(go())
    assert "RecursionError" not in caplog.text


def test_whoever_is_refused_and_goes_on_sending_is_closed(make_db: MakeDb, home: Path) -> None:
    async def go() -> None:
        async with Door(make_db(limits=Limits(api_head_seconds=1)), home) as here, Line(here) as line:
            line.send(b"POST /api/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n")
            assert await line.status() == 401

            async def drip() -> None:
                while True:
                    await asyncio.sleep(0.1)
                    line.send(b"x")

            dripping = asyncio.create_task(drip())
            assert await line.closed(within=5) < 3
            dripping.cancel()

    asyncio.run(go())


def test_connections_that_are_of_use_stay_open(make_db: MakeDb, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two requests, and as a WebSocket that says nothing."""

    async def echo(socket: WebSocket) -> None:
        await socket.accept()
        await socket.send_text(await socket.receive_text())

    monkeypatch.setattr(server, "_added", {"/api/echo": lambda parts: echo})

    async def go() -> None:
        async with Door(make_db(limits=Limits(api_head_seconds=1)), home) as here, Line(here) as line:
            async with connect(f"ws://{here.api.address}/api/echo?token={OWNER_KEY}") as socket:
                for _ in range(2):
                    line.send(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
                    assert await line.status() == 200
                    async with asyncio.timeout(5):
                        await line.reader.readuntil(b'"}')
                    await asyncio.sleep(1.5)
                await socket.send("still there")
                async with asyncio.timeout(5):
                    assert await socket.recv() == "still there"
            line.send(b"GET /hea")  # and a second request that does not end
            assert await line.closed(within=5) < 3

    asyncio.run(go())


def test_three_hundred_half_open_connections_shut_nobody_out(make_db: MakeDb, home: Path) -> None:
    """Only so many stay, and whoever asks something is answered."""

    async def go() -> None:
        async with Door(make_db(limits=Limits(api_connections=20)), home) as here, Line(here) as first:
            first.send(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert await first.status() == 200
            lines = [Line(here) for _ in range(300)]
            for line in lines:
                await line.__aenter__()
                line.send(b"GET")
            await asyncio.sleep(0.2)
            left = sum([await line.is_open() for line in lines[-40:]])
            assert left <= 20
            for _ in range(30):
                assert (await here.client.get("/v1/models")).status_code == 200
            first.send(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            async with asyncio.timeout(5):
                await first.reader.readuntil(b"HTTP/1.1 200")
            for line in lines:
                await line.__aexit__(None, None, None)

    asyncio.run(go())


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST /api/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n{",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\nGET /health HTT",
    ],
    ids=["refused", "answered", "refused, and a body to come", "answered, and half a second one"],
)
def test_connections_that_were_answered_and_stay_shut_nobody_out(make_db: MakeDb, home: Path, sent: bytes) -> None:
    """Without a key: whoever asks once by each connection and keeps it holds no place against the next."""

    async def go() -> None:
        async with Door(make_db(limits=Limits(api_connections=5)), home) as here:
            lines = [Line(here) for _ in range(20)]
            for line in lines:
                await line.__aenter__()
                line.send(sent)
                assert await line.status() in (200, 401)
            assert (await here.client.get("/v1/models")).status_code == 200
            assert sum([await line.is_open() for line in lines]) <= 5
            for line in lines:
                await line.__aexit__(None, None, None)

    asyncio.run(go())


def test_when_all_connections_are_of_use_the_next_one_is_refused(make_db: MakeDb, home: Path) -> None:
    head = b"POST /api/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\n"

    async def go() -> None:
        async with Door(make_db(limits=Limits(api_connections=3)), home) as here:
            lines = [Line(here) for _ in range(3)]
            for line in lines:
                await line.__aenter__()
                line.send(head + BEARER + b"\r\n{")
            await asyncio.sleep(0.2)
            async with Line(here) as late:
                assert await late.closed(within=5) < 1
            for line in lines:
                line.send(b"}")
                assert await line.status() == 201
                await line.__aexit__(None, None, None)

    asyncio.run(go())
