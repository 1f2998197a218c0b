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

from hermes_agent.models.keeping import Pool, Transport

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
        pool = Pool(tls[1] if tls else PLAIN, most=most, most_idle=4, idle_seconds=30)
        async with listening, httpx2.AsyncClient(transport=Transport(pool), timeout=10) as client:
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
