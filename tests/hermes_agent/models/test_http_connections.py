"""The connections under the clients, against real sockets: kept, bounded, given up, and the same over TLS."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import subprocess
import tracemalloc
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
import uvloop
from tests.support.localhost import needs_localhost

from hermes_agent.models.http import ConnectionPool, HttpAnswer, HttpConnection

pytestmark = pytest.mark.slow


class Caller:
    """Calls an address, and reads what it hears to the end."""

    def __init__(self, transport: ConnectionPool) -> None:
        self._transport = transport

    def idle(self) -> list[HttpConnection]:
        return list(self._transport._idle)

    async def open(self, url: str, content: bytes = b"", headers: dict[str, str] | None = None) -> HttpAnswer:
        headers = {"content-type": "text/plain", **(headers or {})}
        return await self._transport.post(httpx2.URL(url), headers, content, seconds=10)

    async def post(self, url: str, content: bytes = b"", headers: dict[str, str] | None = None) -> bytes:
        answer = await self.open(url, content, headers)
        try:
            return b"".join([piece async for piece in answer.decoded()])
        finally:
            await answer.close()


Act = Callable[[Caller, str, "Server"], Awaitable[Any]]


class Server:
    """Answers with the body it got. Counts its connections and how many pieces a request came in."""

    def __init__(self, *, hang_up: bool = False, wait: float = 0.0) -> None:
        self.connections, self.pieces, self.open, self.most_open = 0, list[int](), 0, 0
        self.hang_up, self.wait = hang_up, wait

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        self.most_open = max(self.open, self.most_open)
        try:
            while got := await reader.read(65_536):
                pieces = 1
                while not self._whole(got):
                    got += await reader.read(65_536)
                    pieces += 1
                self.pieces.append(pieces)
                await asyncio.sleep(self.wait)
                body = got.partition(b"\r\n\r\n")[2]
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
                await writer.drain()
                if self.hang_up:
                    return
        except ConnectionError:
            return
        finally:
            self.open -= 1
            writer.close()

    @staticmethod
    def _whole(got: bytes) -> bool:
        head, end, body = got.partition(b"\r\n\r\n")
        at = head.lower().find(b"content-length: ")
        return bool(end) and at >= 0 and len(body) >= int(head[at + 16 :].partition(b"\r\n")[0])


def against(
    server: Server,
    act: Act,
    *,
    most: int = 8,
    tls: tuple[ssl.SSLContext, ssl.SSLContext] | None = None,
    run_on: Callable[..., Any] = asyncio.run,
) -> Any:
    at_work: set[asyncio.Task[Any]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        at_work.add(task)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await server.serve(reader, writer)
        writer.close()
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            await writer.wait_closed()

    async def run() -> Any:
        listening = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls[0] if tls else None)
        port = listening.sockets[0].getsockname()[1]
        transport = ConnectionPool(tls[1] if tls else None, most=most, most_idle=4, idle_seconds=30)
        async with listening:
            try:
                url = f"http{'s' if tls else ''}://{'localhost' if tls else '127.0.0.1'}:{port}/"
                return await act(Caller(transport), url, server)
            finally:
                await transport.aclose()
                if at_work:
                    await asyncio.wait(at_work, timeout=0.2)
                    for task in at_work:
                        task.cancel()
                    await asyncio.wait(at_work)

    return run_on(run())


async def one_after_another(client: Caller, url: str, server: Server) -> list[bytes]:
    answers = []
    for number in range(5):
        answers.append(await client.post(url, b"%d" % number))
        await asyncio.sleep(0.01)
    return answers


def test_one_connection_serves_one_request_after_another_each_in_one_piece() -> None:
    server = Server()
    assert against(server, one_after_another) == [b"0", b"1", b"2", b"3", b"4"]
    assert server.connections == 1
    assert server.pieces == [1] * 5


def test_a_server_that_hangs_up_between_requests_is_called_anew() -> None:
    server = Server(hang_up=True)
    assert against(server, one_after_another) == [b"0", b"1", b"2", b"3", b"4"]
    assert server.connections == 5


def test_no_more_connections_than_allowed_and_few_are_kept() -> None:
    async def many(client: Caller, url: str, server: Server) -> int:
        answers = await asyncio.gather(*(client.post(url, b"%d" % number) for number in range(30)))
        assert answers == [b"%d" % number for number in range(30)]
        async with asyncio.timeout(10):
            while server.open > 4:  # noqa: ASYNC110 - the other side is told of a close by its socket
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        return server.open

    server = Server(wait=0.01)
    assert against(server, many) == 4
    assert server.most_open == 8


def test_a_request_that_is_given_up_costs_its_connection_and_makes_room() -> None:
    async def give_up(client: Caller, url: str, server: Server) -> bytes:
        for _ in range(3):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await client.post(url, b"slow")
        server.wait = 0.0
        return await client.post(url, b"quick")

    assert against(Server(wait=5.0), give_up, most=1) == b"quick"


def test_a_body_of_megabytes_arrives_both_ways() -> None:
    async def large(client: Caller, url: str, server: Server) -> int:
        return len(await client.post(url, b"x" * 3_000_000))

    assert against(Server(), large) == 3_000_000


def answering(*answers: bytes) -> Any:
    """A server that gives each request the next of these answers, whatever was asked, and hangs up behind the last."""
    left = list(answers)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while left and await reader.readuntil(b"\r\n\r\n"):
            writer.write(left.pop(0))
            await writer.drain()
        writer.close()

    return serve


def test_what_a_server_says_beyond_its_answer_is_nobodys_answer() -> None:
    """Read on, it would be taken for the answer to the next request."""
    stray = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nfirstHTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nstray"
    own = b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nsecond"

    async def twice(client: Caller, url: str, server: Server) -> list[bytes]:
        return [await client.post(url), await client.post(url)]

    server = Server()
    server.serve = answering(stray, own)  # type: ignore[method-assign]
    assert against(server, twice) == [b"first", b"second"]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\nuntil it hangs up", b"until it hangs up"),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", b"ok"),
        (b"HTTP/1.0 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", b"ok"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nin\r\n7\r\n pieces\r\n0\r\n\r\n", b"in pieces"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
        (b"HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 3\r\n\r\nold", b"old"),
        (b"HTTP/1.1 200 OK\ncontent-length: 8\n\nunixlike", b"unixlike"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n6  \r\npadded\r\n0\r\n\r\n", b"padded"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\ntransfer-encoding: chunked\r\n\r\n3\r\ntwo\r\n0\r\n\r\n", b"two"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4;a=b\r\nmore\r\n0\r\nx-sum: 1\r\n\r\n", b"more"),
        (b"HTTP/1.1 200 OK\r\nupgrade: h2\r\nconnection: upgrade\r\ncontent-length: 4\r\n\r\nstay", b"stay"),
    ],
)
def test_every_form_of_an_answer_is_read(answer: bytes, expected: bytes) -> None:
    async def once(client: Caller, url: str, server: Server) -> bytes:
        return await client.post(url)

    server = Server()
    server.serve = answering(answer)  # type: ignore[method-assign]
    assert against(server, once) == expected


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\ncontent-le",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        b"220 mail.example ready\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 200_000,
        b"HTTP/1.1 100 Continue\r\n\r\n" * 10_000,
        b"HTTP/1.1 099 ?\r\ncontent-length: 3\r\n\r\nbadHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked \r\n\r\n5\r\nshort\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nshort\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\nx: " + b"y" * 900_000,
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5;" + b"y" * 900_000,
    ],
)
def test_what_is_no_answer_is_said_to_be_none(answer: bytes) -> None:
    async def refused(client: Caller, url: str, server: Server) -> None:
        with pytest.raises(httpx2.RemoteProtocolError):
            await client.post(url)

    server = Server()
    server.serve = answering(answer)  # type: ignore[method-assign]
    against(server, refused)


@pytest.mark.parametrize("rest", [b"", b"nonsense\r\n"])
def test_what_arrived_before_an_answer_broke_off_is_handed_on_first(rest: bytes) -> None:
    async def read(client: Caller, url: str, server: Server) -> list[bytes]:
        heard: list[bytes] = []
        with pytest.raises(httpx2.RemoteProtocolError):
            answer = await client.open(url)
            try:
                async for piece in answer.decoded():
                    heard.append(piece)
            finally:
                await answer.close()
        return heard

    server = Server()
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    server.serve = answering(head + b"5\r\nhello\r\n" + rest)  # type: ignore[method-assign]
    assert b"".join(against(server, read)) == b"hello"


def test_a_server_that_answers_before_it_has_read_gets_the_next_request_on_another_line() -> None:
    """A request too large is refused at once; behind the rest of it the next one would never be read."""
    refusal = b"HTTP/1.1 413 Content Too Large\r\ncontent-length: 5\r\n\r\nlarge"
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nsmall"

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        writer.write(answer if b"content-length: 1\r\n" in head.lower() else refusal)
        await writer.drain()
        await gone.wait()
        writer.close()

    async def both(client: Caller, url: str, server: Server) -> list[bytes]:
        try:
            async with asyncio.timeout(20):
                return [await client.post(url, b"x" * size) for size in (16_000_000, 1)]
        finally:
            gone.set()

    gone = asyncio.Event()
    server = Server()
    server.serve = serve  # type: ignore[method-assign]
    assert against(server, both) == [b"large", b"small"]


def test_what_an_idle_server_says_is_no_answer_either() -> None:
    """A server that gives up waiting says so before it hangs up."""
    first = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nfirst"
    late = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 4\r\n\r\nlate"
    own = b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nsecond"
    lines = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal lines
        lines += 1
        await reader.readuntil(b"\r\n\r\n")
        writer.write(first if lines == 1 else own)
        await asyncio.wait_for(said.wait(), 10)
        if lines == 1:
            writer.write(late)
        await writer.drain()
        await asyncio.wait_for(gone.wait(), 10)
        writer.close()

    async def twice(client: Caller, url: str, server: Server) -> list[bytes]:
        heard = [await client.post(url)]
        said.set()
        (idle,) = client.idle()
        async with asyncio.timeout(10):
            while idle.is_fresh(0.0):  # noqa: ASYNC110 - it is the kernel that brings it
                await asyncio.sleep(0.005)
        heard.append(await client.post(url))
        gone.set()
        return heard

    said, gone = asyncio.Event(), asyncio.Event()
    server = Server()
    server.serve = serve  # type: ignore[method-assign]
    assert against(server, twice) == [b"first", b"second"]
    assert lines == 2


def test_a_host_of_ones_own_is_the_one_that_is_named() -> None:
    async def named(client: Caller, url: str, server: Server) -> list[bytes]:
        return [
            line.lower() for headers in ({}, {"Host": "models.example"})
            for line in (await client.post(url, b"x", headers)).splitlines() if line.lower().startswith(b"host:")
        ]  # fmt: skip

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(2):
            head = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(1)
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(head) + head)
        writer.close()

    server = Server()
    server.serve = echo  # type: ignore[method-assign]
    default, own = against(server, named)
    assert default.startswith(b"host: 127.0.0.1:")
    assert own == b"host: models.example"


@pytest.mark.parametrize("run_on", [asyncio.run, uvloop.run])
@pytest.mark.parametrize("stays", [False, True])
def test_who_is_busy_may_say_so_before_it_is_asked(run_on: Callable[..., Any], stays: bool) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 503 Busy\r\nconnection: close\r\ncontent-length: 4\r\n\r\nbusy")
        if stays:
            await reader.read()
        writer.close()

    async def thrice(client: Caller, url: str, server: Server) -> list[bytes]:
        async with asyncio.timeout(10):
            return [await client.post(url) for _ in range(3)]

    server = Server()
    server.serve = serve  # type: ignore[method-assign]
    assert against(server, thrice, most=1, run_on=run_on) == [b"busy"] * 3


@pytest.mark.parametrize("whose", ["request", "answer"])
def test_the_last_of_a_connection_is_the_last(whose: str) -> None:
    class Closing(Server):
        async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.connections += 1
            await reader.readuntil(b"\r\n\r\n")
            said = b"connection: close\r\n" if whose == "answer" else b""
            writer.write(b"HTTP/1.1 200 OK\r\n%bcontent-length: 2\r\n\r\nok" % said)
            await reader.read()  # and stays, as if it could be asked again

    async def thrice(client: Caller, url: str, server: Server) -> list[bytes]:
        headers = {"Connection": "close"} if whose == "request" else {}
        async with asyncio.timeout(10):
            return [await client.post(url, b"", headers) for _ in range(3)]

    server = Closing()
    assert against(server, thrice) == [b"ok"] * 3
    assert server.connections == 3


def test_an_answer_that_is_all_head_does_not_spoil_the_next() -> None:
    long = b"HTTP/1.1 429 Slow\r\nx: " + b"y" * 110_000 + b"\r\ncontent-length: 0\r\n\r\n"

    async def twice(client: Caller, url: str, server: Server) -> list[bytes]:
        return [await client.post(url), await client.post(url)]

    server = Server()
    server.serve = answering(long, b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")  # type: ignore[method-assign]
    assert against(server, twice) == [b"", b"ok"]


def test_a_call_that_waits_keeps_no_copy_of_its_request() -> None:
    size = 8_000_000

    class Swallowing(Server):
        async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(size)
            self.pieces.append(1)
            await reader.read()

    async def held(client: Caller, url: str, server: Server) -> int:
        body = b"x" * size
        tracemalloc.start()
        try:
            call = asyncio.ensure_future(client.post(url, body))
            async with asyncio.timeout(20):
                while not server.pieces:  # noqa: ASYNC110 - the other side has no way to tell
                    await asyncio.sleep(0.01)
            keeps, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        call.cancel()
        await asyncio.wait([call])
        return keeps

    assert against(Swallowing(), held) < size / 2


def test_how_a_body_is_sent_is_not_for_a_header_to_say() -> None:
    async def sent(client: Caller, url: str, server: Server) -> bytes:
        return await client.post(url, b"body", {"Transfer-Encoding": "chunked", "Content-Length": "9"})

    assert against(Server(), sent) == b"body"


def test_nobody_there_is_a_connect_error() -> None:
    async def nobody(client: Caller, url: str, server: Server) -> None:
        with pytest.raises(httpx2.ConnectError):
            await client.post("http://127.0.0.1:9/")

    against(Server(), nobody)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate and its key in one file, for localhost."""
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
            "-addext", "subjectAltName=DNS:localhost", "-keyout", folder / "key", "-out", folder / "cert",
        ],
        check=True, capture_output=True,
    )  # fmt: skip
    both = folder / "both"
    both.write_bytes((folder / "key").read_bytes() + (folder / "cert").read_bytes())
    return both


def server_side(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


@needs_localhost
def test_the_same_over_tls(certificate: Path) -> None:
    trusting = ssl.create_default_context(cafile=certificate)
    server = Server()
    assert against(server, one_after_another, tls=(server_side(certificate), trusting)) == [b"%d" % n for n in range(5)]
    assert server.connections == 1


@needs_localhost
def test_a_call_given_up_as_its_handshake_ends_does_not_harm_the_next(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The socket is the event loop's by then, which says goodbye over it in its own time."""
    trusting = ssl.create_default_context(cafile=certificate)
    made = HttpConnection.connection_made

    async def give_up(client: Caller, url: str, server: Server) -> list[bytes]:
        call = asyncio.ensure_future(client.post(url, b"given up"))

        def connected(self: HttpConnection, transport: asyncio.BaseTransport) -> None:
            made(self, transport)
            call.cancel()

        with monkeypatch.context() as patched:
            patched.setattr(HttpConnection, "connection_made", connected)
            with pytest.raises(asyncio.CancelledError):
                await call
        return await one_after_another(client, url, server)

    assert against(Server(), give_up, tls=(server_side(certificate), trusting)) == [b"%d" % n for n in range(5)]


@needs_localhost
def test_a_certificate_that_nobody_vouches_for_is_refused(certificate: Path) -> None:
    async def refused(client: Caller, url: str, server: Server) -> BaseException | None:
        with pytest.raises(httpx2.ConnectError) as caught:
            await client.post(url, b"secret")
        chain: list[BaseException] = []
        error: BaseException | None = caught.value
        while error is not None:
            chain.append(error)
            error = error.__cause__ or error.__context__
        return next((one for one in chain if isinstance(one, ssl.SSLCertVerificationError)), None)

    server = Server()
    found = against(server, refused, tls=(server_side(certificate), ssl.create_default_context()))
    assert found is not None
    assert server.pieces == []
