"""The client against hostile servers: redirects, names that change, bombs, pages without an end."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import itertools
import threading
import time
import tracemalloc
import zlib
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.support.localhost import needs_localhost
from tests.support.web.internet import PUBLIC, FakeInternet, FakePage, WebVisit

from hermes_agent.web import client
from hermes_agent.web.addresses import AddressRefused, WebPolicy
from hermes_agent.web.client import USER_AGENT, FetchFailed, WebClient, WebRequest, WebResponse
from hermes_config.errors import HermesError
from hermes_config.limits import DEFAULTS, Limits

CERTIFICATE = Path(__file__).with_name("site.example.pem")
QUICK = DEFAULTS.changed(web_host_pause_ms=0)
PRIVATE = ["127.0.0.1", "10.0.0.7", "169.254.169.254", "192.168.1.1", "::1", "::ffff:127.0.0.1", "fd00::1", "0.0.0.0"]


@pytest.fixture
def internet() -> Iterator[FakeInternet]:
    with FakeInternet(CERTIFICATE) as one:
        yield one


def get(url: str, limits: Limits = QUICK, policy: WebPolicy | None = None, **options: object) -> WebResponse:
    return asyncio.run(WebClient(limits, policy or WebPolicy(), **options).get(url))  # type: ignore[arg-type]


def private_dials(internet: FakeInternet) -> list[tuple[str, int]]:
    return [one for one in internet.dialled if one[0] != PUBLIC]


def test_a_page_is_fetched_and_nothing_but_the_address_is_sent(
    internet: FakeInternet, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    netrc = tmp_path / "netrc"
    netrc.write_text("machine news.example login me password secret\n")
    monkeypatch.setenv("NETRC", str(netrc))
    internet.site("news.example", {"/a?b=c": FakePage("hi", headers={"Set-Cookie": "id=1; Path=/"})})
    for _ in range(2):
        response = get("http://news.example/a?b=c#d")
        assert (response.status, response.body, response.url) == (200, b"hi", "http://news.example/a?b=c")
    assert {name.lower() for name in internet.visits[1].headers} == {
        "host", "user-agent", "accept", "accept-encoding", "connection",
    }  # fmt: skip
    assert internet.visits[1].headers["User-Agent"] == USER_AGENT and USER_AGENT.startswith("Hermes/")
    assert internet.visits[1].headers["Host"] == "news.example" and internet.dialled == [(PUBLIC, 80)] * 2


def test_tls_names_the_host_and_checks_its_certificate(internet: FakeInternet) -> None:
    internet.site("site.example", {"/": "secure"})
    internet.site("other.example", {"/": "not its certificate"})
    assert get("https://site.example/").body == b"secure"
    with pytest.raises(FetchFailed, match="cannot be reached"):
        get("https://other.example/")
    assert [one.host for one in internet.visits] == ["site.example"]


@pytest.mark.parametrize("address", PRIVATE)
def test_a_name_with_a_private_address_is_refused(internet: FakeInternet, address: str) -> None:
    internet.site("inside.example", {"/": "secret"}, [PUBLIC, address])
    with pytest.raises(AddressRefused, match="private"):
        get("http://inside.example/")
    assert internet.visits == [] and internet.dialled == []


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize(
    "to",
    ["http://127.0.0.1/", "http://[::1]/", "http://169.254.169.254/latest/meta-data/", "//10.0.0.1/x",
     "http://inside.example/", "http://0x7f.1/", "http://localhost:8080/", "file:///etc/passwd", "ftp://site.example/",
     "http://user:pw@site.example/", "http://site.example:25/", "http://[::ffff:7f00:1]/", "http://2130706433/",
     "http://[", "javascript:1"],
)  # fmt: skip
def test_a_redirect_to_a_private_address_is_refused(internet: FakeInternet, to: str, status: int) -> None:
    internet.site("inside.example", {"/": "secret"}, "192.168.0.1")
    internet.redirect("site.example", "/", to, status)
    with pytest.raises(AddressRefused):
        get("http://site.example/")
    assert [one.host for one in internet.visits] == ["site.example"] and private_dials(internet) == []


def test_every_hop_of_redirects_is_checked_and_counted(internet: FakeInternet) -> None:
    for number in range(8):
        internet.redirect(f"r{number}.site.example", "/", f"https://r{number + 1}.site.example/")
    with pytest.raises(FetchFailed, match="redirects more than 5 times"):
        get("http://r0.site.example/")
    assert len(internet.visits) == 6
    internet.site("r4.site.example", {"/": FakePage(status=302, headers={"Location": "http://inside.example/"})})
    internet.site("inside.example", {"/": "secret"}, "10.1.1.1")
    with pytest.raises(AddressRefused):
        get("http://r0.site.example/")
    assert private_dials(internet) == []


def test_a_public_page_cannot_lead_to_a_private_host_that_the_owner_opened(internet: FakeInternet) -> None:
    policy = WebPolicy(private_hosts=frozenset({"nas.lan"}))
    internet.site("nas.lan", {"/": FakePage(status=302, headers={"Location": "/b"}), "/b": "files"}, "192.168.1.5")
    assert get("http://nas.lan/", policy=policy).body == b"files"
    internet.redirect("site.example", "/", "http://nas.lan/delete?all=1")
    with pytest.raises(AddressRefused, match="redirects to the private host"):
        get("http://site.example/", policy=policy)
    assert [one.path for one in internet.visits] == ["/", "/b", "/"]


@pytest.mark.parametrize("private", PRIVATE)
def test_a_name_that_answers_differently_the_second_time_changes_nothing(internet: FakeInternet, private: str) -> None:
    """DNS rebinding: one question a request, and the connection goes to the address that was checked."""
    internet.site("rebind.example", {"/": "public"}, PUBLIC, private)
    assert get("http://rebind.example/").body == b"public"
    assert internet.asked == ["rebind.example"] and internet.dialled == [(PUBLIC, 80)]
    with pytest.raises(AddressRefused, match="private"):
        get("http://rebind.example/")
    assert len(internet.visits) == 1


def test_a_redirect_to_itself_meets_the_changed_answer_and_is_refused(internet: FakeInternet) -> None:
    pages = {"/": FakePage(status=302, headers={"Location": "/secret"}), "/secret": "secret"}
    internet.site("rebind.example", pages, PUBLIC, "127.0.0.1")
    with pytest.raises(AddressRefused, match="private"):
        get("http://rebind.example/")
    assert [one.path for one in internet.visits] == ["/"] and private_dials(internet) == []


def test_extra_headers_go_to_their_host_alone(internet: FakeInternet) -> None:
    internet.redirect("site.example", "/", "http://other.example/")
    internet.site("other.example", {"/": "hi"})
    fetch = WebClient(QUICK, WebPolicy()).get("http://site.example/", {"X-Subscription-Token": "secret"})
    assert asyncio.run(fetch).body == b"hi"
    assert ["X-Subscription-Token" in one.headers for one in internet.visits] == [True, False]


def _deflate_raw(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


PACKED = {
    "gzip": ("gzip", gzip.compress), "deflate": ("deflate", zlib.compress), "raw deflate": ("deflate", _deflate_raw),
    "two members": ("gzip", lambda data: gzip.compress(data[:3]) + gzip.compress(data[3:])),
}  # fmt: skip


@pytest.mark.parametrize("how", PACKED)
def test_a_packed_page_is_unpacked(internet: FakeInternet, how: str) -> None:
    encoding, pack = PACKED[how]
    body = pack(b"hello world" * 100)
    internet.site("site.example", {"/": FakePage(body, headers={"Content-Encoding": encoding})})
    assert get("http://site.example/").body == b"hello world" * 100
    pieces = FakePage((bytes([one]) for one in body), headers={"Content-Encoding": encoding})
    internet.site("site.example", {"/": pieces})
    assert get("http://site.example/").body == b"hello world" * 100


@pytest.mark.parametrize(("encoding", "bits"), [("gzip", 31), ("deflate", 15), ("deflate", -15)])
def test_a_compression_bomb_is_cut_at_the_limit(internet: FakeInternet, encoding: str, bits: int) -> None:
    packer, zeros = zlib.compressobj(level=1, wbits=bits), b"\0" * 1_000_000
    bomb = b"".join(packer.compress(zeros) for _ in range(100)) + packer.flush()
    assert len(bomb) < 1_000_000
    internet.site("site.example", {"/": FakePage(bomb, headers={"Content-Encoding": encoding})})
    tracemalloc.start()
    response = get("http://site.example/", QUICK.changed(web_page_bytes=1_000_000))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert response.cut and len(response.body) == 1_000_000
    assert peak < 20_000_000, "of 100,000,000 that it holds; pieces and buffers are several times the limit"


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, gzip", "compress"])
def test_what_was_not_asked_for_is_not_unpacked(internet: FakeInternet, encoding: str) -> None:
    internet.site("site.example", {"/": FakePage(b"\x0b\x02\x80", headers={"Content-Encoding": encoding})})
    with pytest.raises(FetchFailed, match="although Hermes did not ask for that"):
        get("http://site.example/")


def test_broken_packed_data_is_an_error(internet: FakeInternet) -> None:
    internet.site("site.example", {"/": FakePage(b"not gzip", headers={"Content-Encoding": "gzip"})})
    with pytest.raises(FetchFailed, match="broken"):
        get("http://site.example/")


def test_an_endless_page_is_cut_and_its_connection_closed(internet: FakeInternet) -> None:
    internet.site("site.example", {"/": FakePage(itertools.repeat(b"x" * 65_536))})
    response = get("http://site.example/", QUICK.changed(web_page_bytes=1_000_000))
    assert response.cut and len(response.body) == 1_000_000
    assert internet.closed.wait(10)


def _drip() -> Iterator[bytes]:
    while True:
        yield b"."
        time.sleep(0.05)


def test_a_page_that_drips_is_given_up_in_time(internet: FakeInternet) -> None:
    internet.site("site.example", {"/": FakePage(_drip())})
    with pytest.raises(FetchFailed, match="took longer than 1 s"):
        get("http://site.example/", QUICK.changed(web_seconds=1))
    assert internet.closed.wait(10)


def test_headers_without_an_end_are_an_error(internet: FakeInternet) -> None:
    internet.site("site.example", {"/": FakePage("x", headers={"X-Long": "y" * 1_000_000})})
    with pytest.raises(FetchFailed):
        get("http://site.example/")


def test_a_body_of_another_type_is_not_loaded(internet: FakeInternet) -> None:
    internet.site("site.example", {"/": FakePage(itertools.repeat(b"x" * 65_536), "video/mp4")})
    with pytest.raises(FetchFailed, match="video/mp4"):
        get("http://site.example/", takes=lambda kind: kind == "text/html")


def test_the_next_address_is_tried_when_one_cannot_be_reached(internet: FakeInternet) -> None:
    internet.site("site.example", {"/": "hi"}, ["8.8.8.8", PUBLIC])

    def dial(address: str, port: int) -> tuple[str, int]:
        return ("127.0.0.1", 1) if address == "8.8.8.8" else internet._dial(address, port)

    client.network = replace(client.network, dial=dial)
    assert get("http://site.example/").body == b"hi"


def test_unknown_names_and_refused_connections_are_told(internet: FakeInternet) -> None:
    with pytest.raises(FetchFailed, match="nowhere.example was not found".replace(".", r"\.")):
        get("http://nowhere.example/")
    client.network = replace(client.network, dial=lambda address, port: ("127.0.0.1", 1))
    with pytest.raises(FetchFailed, match=r"8\.8\.8\.8 cannot be reached"):
        get("http://8.8.8.8/")


def test_a_name_server_that_does_not_answer_holds_no_other_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = threading.Event()
    monkeypatch.setattr("socket.getaddrinfo", lambda *_, **__: answer.wait(20) and [])

    async def go() -> float:
        one = WebClient(QUICK, WebPolicy())
        hanging = [asyncio.ensure_future(one.get(f"http://s{number}.example/")) for number in range(40)]
        await asyncio.sleep(0.1)
        began = time.monotonic()
        await asyncio.to_thread(int)  # as a write of the store does
        took = time.monotonic() - began
        answer.set()
        await asyncio.gather(*hanging, return_exceptions=True)
        return took

    assert asyncio.run(go()) < 5


def test_a_host_is_asked_by_so_many_at_once(internet: FakeInternet) -> None:
    running, most = 0, 0

    def slow(visit: WebVisit) -> FakePage:
        nonlocal running, most
        running += 1
        most = max(most, running)
        time.sleep(0.1)
        running -= 1
        return FakePage("hi")

    internet.site("site.example", slow)

    async def go() -> None:
        one = WebClient(QUICK, WebPolicy())
        await asyncio.gather(*(one.get(f"http://site.example/{number}") for number in range(6)))

    asyncio.run(go())
    assert most == 2 and len(internet.visits) == 6


def test_a_proxy_is_given_the_address_that_was_checked(internet: FakeInternet) -> None:
    """`web.proxy`: a proxy of this test, which leads every connection to the servers of the Internet above."""
    asked: list[str] = []

    async def go(url: str) -> WebResponse:
        opened: list[asyncio.StreamWriter] = []

        async def proxied(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            head = await reader.readuntil(b"\r\n\r\n")
            line = head.split(b"\r\n")[0].decode()
            asked.append(line)
            secure = line.startswith("CONNECT")
            there = await asyncio.open_connection(*internet._dial("", 443 if secure else 80))
            opened.extend((writer, there[1]))
            if secure:
                writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            else:
                there[1].write(head.replace(b"http://93.184.216.34/", b"/"))
            await asyncio.gather(_pump(reader, there[1]), _pump(there[0], writer))

        server = await asyncio.start_server(proxied, "127.0.0.1", 0)
        client.network = replace(client.network, dial=lambda address, port: (address, port))
        policy = WebPolicy(proxy=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        try:
            return await WebClient(QUICK, policy).get(url)
        finally:
            server.close()
            for one in opened:
                one.close()
                with contextlib.suppress(OSError):
                    await one.wait_closed()

    internet.site("site.example", {"/": "hi"})
    assert asyncio.run(go("https://site.example/")).body == b"hi"
    assert asyncio.run(go("http://site.example/")).body == b"hi"
    assert asked == [f"CONNECT {PUBLIC}:443 HTTP/1.1", f"GET http://{PUBLIC}/ HTTP/1.1"]
    internet.site("inside.example", {"/": "secret"}, "10.0.0.1")
    with pytest.raises(AddressRefused):
        asyncio.run(go("http://inside.example/"))
    assert len(asked) == 2


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
        writer.close()


def test_each_request_is_reported(internet: FakeInternet) -> None:
    seen: list[WebRequest] = []

    async def done(request: WebRequest) -> None:
        seen.append(request)

    internet.redirect("site.example", "/", "http://other.example/")
    internet.site("other.example", {"/": FakePage(gzip.compress(b"x" * 5_000), headers={"Content-Encoding": "gzip"})})
    get("http://site.example/", done=done)
    with pytest.raises(HermesError):
        get("http://nowhere.example/", done=done)
    internet.site("site.example", {"/": FakePage(_drip())})
    with pytest.raises(FetchFailed):
        get("http://site.example/", QUICK.changed(web_seconds=1), done=done)
    assert [(one.url, one.status) for one in seen] == [
        ("http://site.example/", 302), ("http://other.example/", 200), ("http://site.example/", 200),
    ]  # fmt: skip
    assert 0 < seen[1].bytes < 100 and not seen[1].error and seen[2].error


def test_the_network_is_the_systems_unless_a_test_says_otherwise() -> None:
    """The seam for tests is one assignment in tests/support; nothing in the sources makes it."""
    assert client.network.resolve is client._system_resolve and client.network.certificates is None
    assert client.network.dial("8.8.8.8", 80) == ("8.8.8.8", 80)
    sources = Path(client.__file__).parents[2]
    named = [file for file in sources.rglob("*.py") if "client.network" in file.read_text()]
    assert named == []
    with pytest.raises(AddressRefused):
        get("http://127.0.0.1/")


@needs_localhost
def test_a_real_fetch_with_the_systems_own_network() -> None:
    """Nothing replaced: a server of this machine, which the owner opened by its name and port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(self.headers["Host"].encode())

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        port = server.server_address[1]
        opened = WebPolicy(private_hosts=frozenset({f"127.0.0.1:{port}", f"localhost:{port}"}))
        for host in ("127.0.0.1", "localhost"):
            assert get(f"http://{host}:{port}/", policy=opened).body == f"{host}:{port}".encode()
            with pytest.raises(AddressRefused):
                get(f"http://{host}:{port}/")
        server.shutdown()
