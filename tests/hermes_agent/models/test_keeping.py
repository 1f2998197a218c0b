"""The connections under the clients, against real sockets: kept, bounded, given up, and the same over TLS."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from hermes_agent.models.keeping import Connection, Transport

PLAIN = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
Act = Callable[[httpx2.AsyncClient, str, "Server"], Awaitable[Any]]


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
    server: Server, act: Act, *, most: int = 8, tls: tuple[ssl.SSLContext, ssl.SSLContext] | None = None
) -> Any:
    async def run() -> Any:
        listening = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=tls[0] if tls else None)
        port = listening.sockets[0].getsockname()[1]
        transport = Transport(tls[1] if tls else PLAIN, most=most, most_idle=4, idle_seconds=30)
        async with listening, httpx2.AsyncClient(transport=transport, timeout=10) as client:
            return await act(
                client, f"http{'s' if tls else ''}://{'localhost' if tls else '127.0.0.1'}:{port}/", server
            )

    return asyncio.run(run())


async def one_after_another(client: httpx2.AsyncClient, url: str, server: Server) -> list[bytes]:
    answers = []
    for number in range(5):
        answers.append((await client.post(url, content=b"%d" % number)).content)
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
    async def many(client: httpx2.AsyncClient, url: str, server: Server) -> int:
        answers = await asyncio.gather(*(client.post(url, content=b"%d" % number) for number in range(30)))
        assert [answer.content for answer in answers] == [b"%d" % number for number in range(30)]
        async with asyncio.timeout(10):
            while server.open > 4:  # noqa: ASYNC110 - the other side is told of a close by its socket
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        return server.open

    server = Server(wait=0.01)
    assert against(server, many) == 4
    assert server.most_open == 8


def test_a_request_that_is_given_up_costs_its_connection_and_makes_room() -> None:
    async def give_up(client: httpx2.AsyncClient, url: str, server: Server) -> bytes:
        for _ in range(3):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await client.post(url, content=b"slow")
        server.wait = 0.0
        return (await client.post(url, content=b"quick")).content

    assert against(Server(wait=5.0), give_up, most=1) == b"quick"


def test_a_body_of_megabytes_arrives_both_ways() -> None:
    async def large(client: httpx2.AsyncClient, url: str, server: Server) -> int:
        return len((await client.post(url, content=b"x" * 3_000_000)).content)

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


async def got(client: httpx2.AsyncClient, url: str) -> bytes:
    return (await client.get(url)).content


def test_what_a_server_says_beyond_its_answer_is_nobodys_answer() -> None:
    """Read on, it would be taken for the answer to the next request."""
    stray = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nfirstHTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nstray"
    own = b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nsecond"

    async def twice(client: httpx2.AsyncClient, url: str, server: Server) -> list[bytes]:
        return [await got(client, url), await got(client, url)]

    server = Server()
    server.serve = answering(stray, own)  # type: ignore[method-assign]
    assert against(server, twice) == [b"first", b"second"]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\nuntil it hangs up", b"until it hangs up"),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", b"ok"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nin\r\n7\r\n pieces\r\n0\r\n\r\n", b"in pieces"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
    ],
)
def test_every_form_of_an_answer_is_read(answer: bytes, expected: bytes) -> None:
    async def once(client: httpx2.AsyncClient, url: str, server: Server) -> bytes:
        return await got(client, url)

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
    ],
)
def test_what_is_no_answer_is_said_to_be_none(answer: bytes) -> None:
    async def refused(client: httpx2.AsyncClient, url: str, server: Server) -> None:
        with pytest.raises(httpx2.RemoteProtocolError):
            await client.get(url)

    server = Server()
    server.serve = answering(answer)  # type: ignore[method-assign]
    against(server, refused)


@pytest.mark.parametrize("rest", [b"", b"nonsense\r\n"])
def test_what_arrived_before_an_answer_broke_off_is_handed_on_first(rest: bytes) -> None:
    async def read(client: httpx2.AsyncClient, url: str, server: Server) -> list[bytes]:
        heard: list[bytes] = []
        with pytest.raises(httpx2.RemoteProtocolError):
            async with client.stream("GET", url) as answer:
                async for piece in answer.aiter_raw():
                    heard.append(piece)
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

    async def both(client: httpx2.AsyncClient, url: str, server: Server) -> list[bytes]:
        try:
            async with asyncio.timeout(20):
                return [(await client.post(url, content=b"x" * size)).content for size in (16_000_000, 1)]
        finally:
            gone.set()

    gone = asyncio.Event()
    server = Server()
    server.serve = serve  # type: ignore[method-assign]
    assert against(server, both) == [b"large", b"small"]


def test_nobody_there_is_a_connect_error() -> None:
    async def nobody(client: httpx2.AsyncClient, url: str, server: Server) -> None:
        with pytest.raises(httpx2.ConnectError):
            await client.post("http://127.0.0.1:9/", content=b"")

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


def test_the_same_over_tls(certificate: Path) -> None:
    trusting = ssl.create_default_context(cafile=certificate)
    server = Server()
    assert against(server, one_after_another, tls=(server_side(certificate), trusting)) == [b"%d" % n for n in range(5)]
    assert server.connections == 1


def test_a_call_given_up_as_its_handshake_ends_does_not_harm_the_next(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The socket is the event loop's by then, which says goodbye over it in its own time."""
    trusting = ssl.create_default_context(cafile=certificate)
    made = Connection.connection_made

    async def give_up(client: httpx2.AsyncClient, url: str, server: Server) -> list[bytes]:
        call = asyncio.ensure_future(client.post(url, content=b"given up"))

        def connected(self: Connection, transport: asyncio.BaseTransport) -> None:
            made(self, transport)
            call.cancel()

        with monkeypatch.context() as patched:
            patched.setattr(Connection, "connection_made", connected)
            with pytest.raises(asyncio.CancelledError):
                await call
        return await one_after_another(client, url, server)

    assert against(Server(), give_up, tls=(server_side(certificate), trusting)) == [b"%d" % n for n in range(5)]


def test_a_certificate_that_nobody_vouches_for_is_refused(certificate: Path) -> None:
    async def refused(client: httpx2.AsyncClient, url: str, server: Server) -> BaseException | None:
        with pytest.raises(httpx2.ConnectError) as caught:
            await client.post(url, content=b"secret")
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
