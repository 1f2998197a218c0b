"""An Internet on loopback: a name server, sites with public addresses, and the client's connections led to them.

    with FakeInternet() as internet:
        internet.site("news.example", {"/": "<p>Hello</p>"})
        …                                               # web_extract reads http://news.example/

The client's checks stay those of production: a site needs a public address, and loopback is refused as ever. Replaced
are only how names are resolved and where a checked address leads (`hermes_agent.web.client.network`).
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from hermes_agent.web import client

PUBLIC = "93.184.216.34"
_A, _AAAA = 1, 28


@dataclass(frozen=True, slots=True)
class WebVisit:
    """A request as a site received it."""

    host: str
    path: str
    """With its query."""
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class FakePage:
    """An answer. An iterable body is sent piece by piece, without a length, until it ends or the client leaves."""

    body: str | bytes | Iterable[bytes] = ""
    media_type: str = "text/html; charset=utf-8"
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


Site = Mapping[str, "str | FakePage"] | Callable[[WebVisit], FakePage]


class FakeInternet:
    """Use it as a context manager. `certificate`: a PEM file with a certificate and its key, for https."""

    def __init__(self, certificate: Path | None = None) -> None:
        self._certificate = certificate
        self._sites: dict[str, Site] = {}
        self._answers: dict[str, list[tuple[str, ...]]] = {}
        self.visits: list[WebVisit] = []
        """The requests that arrived, in order."""
        self.dialled: list[tuple[str, int]] = []
        """The checked addresses to which a connection was made."""
        self.asked: list[str] = []
        """The names that were resolved, in order."""
        self.closed = threading.Event()
        """Set when a client went away before the end of an answer."""

    def site(self, host: str, pages: Site, *addresses: str | Sequence[str]) -> None:
        """Put a site there. `addresses`: one of them, or one list for each question; the last one stays."""
        self._sites[host] = pages
        answers = [(one,) if isinstance(one, str) else tuple(one) for one in addresses]
        self._answers[host] = answers or [(PUBLIC,)]

    def redirect(self, host: str, path: str, to: str, status: int = 302) -> None:
        self.site(host, {path: FakePage(status=status, headers={"Location": to})})

    def __enter__(self) -> Self:
        self._names = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._names.bind(("127.0.0.1", 0))
        self._servers = [_server(self, None)]
        if self._certificate is not None:
            self._servers.append(_server(self, self._certificate))
        threads = [threading.Thread(target=one.serve_forever, args=(0.02,), daemon=True) for one in self._servers]
        self._threads = [*threads, threading.Thread(target=self._serve_names, daemon=True)]
        for thread in self._threads:
            thread.start()
        self._before = client.network
        trusted = None if self._certificate is None else str(self._certificate)
        client.network = client.Network(self._resolve, self._dial, trusted)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        client.network = self._before
        for server in self._servers:
            server.shutdown()
            server.server_close()
        self._names.sendto(b"", self._names.getsockname())
        for thread in self._threads:
            thread.join()
        self._names.close()

    def _dial(self, address: str, port: int) -> tuple[str, int]:
        self.dialled.append((address, port))
        server = self._servers[-1 if port == 443 else 0]
        return "127.0.0.1", int(server.server_address[1])

    # -- names -----------------------------------------------------------------------------------------------

    async def _resolve(self, host: str, port: int) -> Sequence[str]:
        """Ask the name server, as a system's resolver would; an address is its own answer."""
        try:
            socket.inet_pton(socket.AF_INET6 if ":" in host else socket.AF_INET, host)
            return [host]
        except OSError:
            found = await asyncio.to_thread(_lookup, host, self._names.getsockname())
        if not found:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return found

    def _serve_names(self) -> None:
        while True:
            question, sender = self._names.recvfrom(4096)
            if not question:
                return
            name = _name(question)
            self.asked.append(name)
            answers = self._answers.get(name, [()])
            found = answers.pop(0) if len(answers) > 1 else answers[0]
            records = b"".join(_record(one) for one in found)
            flags = 0x8180 if found else 0x8183
            head = question[:2] + struct.pack(">HHHHH", flags, 1, len(found), 0, 0)
            self._names.sendto(head + question[12:] + records, sender)

    # -- sites -----------------------------------------------------------------------------------------------

    def answer(self, visit: WebVisit) -> FakePage:
        self.visits.append(visit)
        site = self._sites.get(visit.host.rpartition(":")[0] or visit.host) or self._sites.get(visit.host)
        if site is None:
            return FakePage("no such site", status=421)
        if callable(site):
            return site(visit)
        page = site.get(visit.path, site.get(urlsplit(visit.path).path))
        if page is None:
            return FakePage("not found", status=404)
        return page if isinstance(page, FakePage) else FakePage(page)


def _server(internet: FakeInternet, certificate: Path | None) -> ThreadingHTTPServer:
    class PageHandler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            visit = WebVisit(self.headers.get("Host", ""), self.path, dict(self.headers.items()))
            page = internet.answer(visit)
            body = page.body.encode() if isinstance(page.body, str) else page.body
            self.send_response(page.status)
            self.send_header("Connection", "close")
            if page.media_type:
                self.send_header("Content-Type", page.media_type)
            if isinstance(body, bytes):
                self.send_header("Content-Length", str(len(body)))
            for name, value in page.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.close_connection = True
            try:
                for piece in [body] if isinstance(body, bytes) else body:
                    self.wfile.write(piece)
                    self.wfile.flush()
            except OSError:
                internet.closed.set()

        def log_message(self, *args: Any) -> None:
            pass

    class PageServer(ThreadingHTTPServer):
        daemon_threads = True
        block_on_close = False

        def handle_error(self, request: Any, client_address: Any) -> None:
            internet.closed.set()

    server = PageServer(("127.0.0.1", 0), PageHandler)
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    return server


def _lookup(host: str, server: tuple[str, int]) -> list[str]:
    name = b"".join(bytes([len(part)]) + part.encode() for part in host.split(".")) + b"\0"
    query = struct.pack(">HHHHHH", 7, 0x0100, 1, 0, 0, 0) + name + struct.pack(">HH", _A, 1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.settimeout(5)
        asking.sendto(query, server)
        answer = asking.recv(4096)
    count = struct.unpack_from(">H", answer, 6)[0]
    at, found = len(query), []
    for _ in range(count):
        kind, length = struct.unpack_from(">H6xH", answer, at + 2)
        data = answer[at + 12 : at + 12 + length]
        found.append(socket.inet_ntop(socket.AF_INET6 if kind == _AAAA else socket.AF_INET, data))
        at += 12 + length
    return found


def _name(question: bytes) -> str:
    at, parts = 12, list[str]()
    while question[at]:
        parts.append(question[at + 1 : at + 1 + question[at]].decode())
        at += 1 + question[at]
    return ".".join(parts)


def _record(address: str) -> bytes:
    """An answer that points back at the question's name."""
    family, kind = (socket.AF_INET6, _AAAA) if ":" in address else (socket.AF_INET, _A)
    data = socket.inet_pton(family, address)
    return struct.pack(">HHHIH", 0xC00C, kind, 1, 0, len(data)) + data
