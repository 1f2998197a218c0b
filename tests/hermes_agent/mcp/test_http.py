"""Servers over HTTP: calls, bounds, a server that goes and comes back, and logins (OAuth) on loopback."""

from __future__ import annotations

import asyncio
import http.server
import json
import socket
import stat
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.hermes_agent.mcp.conftest import PROGRAM, McpBench
from tests.support.localhost import needs_localhost

from hermes_agent.mcp import connection, login
from hermes_agent.mcp.servers import configured
from hermes_cli.operate import mcp

pytestmark = pytest.mark.slow


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


class HttpServer:
    def __init__(self, program: str, *before: str) -> None:
        self.port = free_port()
        self._command = [sys.executable, str(PROGRAM.with_name(program)), *before, str(self.port)]
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    def start(self) -> None:
        self.process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                assert time.monotonic() < deadline
                time.sleep(0.05)

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()

    def tell(self, what: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/test/{what}", timeout=10) as said:
            return str(said.read().decode())


@pytest.fixture(scope="module")
def open_server() -> Iterator[HttpServer]:
    made = HttpServer("mcp_server.py", "--http")
    yield made
    made.stop()


@pytest.fixture(scope="module")
def guarded() -> Iterator[HttpServer]:
    made = HttpServer("mcp_oauth_server.py")
    yield made
    made.stop()


def test_calls_bounds_changes_and_a_restart(
    open_server: HttpServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_AWAY_SECONDS", 0.3)
    bench = McpBench(tmp_path / "home", {"web": {"url": open_server.url}})
    try:
        assert bench.connected()["web"].protocol == "2026-07-28"
        assert bench.call("mcp__web__add", a=2, b=3).content == "5"
        assert "Ada" in bench.call("mcp__web__who").content
        assert bench.call("mcp__web__read_resource", uri="note://today").content == "milk"
        large = bench.call("mcp__web__big", size=50_000_000)
        assert large.is_error
        assert bench.call("mcp__web__add", a=1, b=1).content == "2"
        bench.call("mcp__web__grow")
        bench.until(lambda states: bench.tool("mcp__web__grown") is not None)
        open_server.stop()
        bench.until(lambda states: states["web"].state == "retrying")
        away = bench.call("mcp__web__add", a=1, b=1)
        assert away.is_error
        assert "the MCP server web is away (retrying:" in away.content
        open_server.start()
        bench.until(lambda states: bench.call("mcp__web__add", a=1, b=1).content == "2")
    finally:
        bench.close()


def test_a_login_is_made_used_refreshed_lost_and_made_again(guarded: HttpServer, tmp_path: Path) -> None:
    settings = {"web": {"url": guarded.url, "auth": "oauth"}}
    bench = McpBench(tmp_path / "home", settings)
    server = configured(bench.config)["web"]
    try:
        state = bench.until(lambda states: states["web"].state == "needs login")["web"]
        assert state.reason == "nobody has logged in yet"
        log_in(bench)
        bench.connected()
        assert bench.call("mcp__web__secret").content == "42"
        file = login.token_file(server)
        assert stat.S_IMODE(file.stat().st_mode) == 0o600

        # At a restart the access token has expired: it is refreshed, also if the token's address was down at first.
        bench.source.close()
        guarded.tell("expire")
        kept = json.loads(file.read_text())
        file.write_text(json.dumps({**kept, "expires_at": time.time() - 1}))
        guarded.tell("down")
        bench.source = type(bench.source)()
        bench.use(settings)
        down = bench.until(lambda states: states["web"].state == "retrying" and "login" in states["web"].reason)["web"]
        assert down.reason == "the login server has failed; the stored login is kept"
        guarded.tell("up")
        bench.until(lambda states: bench.call("mcp__web__secret").content == "42")
        refreshed = json.loads(file.read_text())
        assert refreshed["tokens"]["refresh_token"] != kept["tokens"]["refresh_token"]

        # The server forgets everything: a state, not a loop, and the file stays.
        guarded.tell("lose")
        bench.source.close()
        file.write_text(json.dumps({**refreshed, "expires_at": time.time() - 1}))
        bench.source = type(bench.source)()
        bench.use(settings)
        bench.until(lambda states: states["web"].reason == "the login has ended")
        assert json.loads(file.read_text())["tokens"] == refreshed["tokens"]
        lost = bench.call("mcp__web__secret")
        assert "needs login: the login has ended" in lost.content
        assert "hermes mcp login web" in lost.content
        log_in(bench)
        bench.until(lambda states: bench.call("mcp__web__secret").content == "42")
    finally:
        bench.close()


def test_a_server_that_wants_a_login_nobody_announced(guarded: HttpServer, tmp_path: Path) -> None:
    bench = McpBench(tmp_path / "home", {"web": {"url": guarded.url}})
    try:
        state = bench.until(lambda states: states["web"].state == "needs login")["web"]
        assert state.reason == "the server wants a login"
        assert "hermes mcp login web" in connection.away("web", state)
        bench.use({"web": {"url": guarded.url, "headers": {"Authorization": "Bearer stale"}}})
        state = bench.until(lambda states: states["web"].reason == login.KEY_REFUSED)["web"]
        assert "The owner puts the right key in .env." in connection.away("web", state)
    finally:
        bench.close()


@contextmanager
def person() -> Iterator[asyncio.Queue[str]]:
    """A person who reads what `hermes mcp login` shows: the addresses in it."""
    shown: asyncio.Queue[str] = asyncio.Queue()

    def tell(words: str) -> None:
        for word in words.split():
            if "://" in word:
                shown.put_nowait(word)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mcp.prompts, "tell", tell)
        patch.setattr(mcp, "_paste", lambda loop, callback: None)
        yield shown


def log_in(bench: McpBench) -> None:
    """What `hermes mcp login` does, with a person whose browser follows the address."""

    async def go() -> None:
        with person() as shown:
            task = asyncio.ensure_future(mcp._logged_in(configured(bench.config)["web"], browser=False))
            address = await asyncio.wait_for(shown.get(), 30)
            await asyncio.to_thread(urllib.request.urlopen, address, timeout=10)
            state, _ = await task
        assert state.state == "connected", state

    asyncio.run(go())


def test_a_login_is_not_shown_to_another_address(guarded: HttpServer, tmp_path: Path) -> None:
    bench = McpBench(tmp_path / "home", {"web": {"url": guarded.url, "auth": "oauth"}})
    try:
        bench.until(lambda states: states["web"].state == "needs login")
        log_in(bench)
        bench.connected()
        token = json.loads(login.token_file(configured(bench.config)["web"]).read_text())["tokens"]["access_token"]
        with Listening() as other:
            bench.use({"web": {"url": other.url, "auth": "oauth"}})
            state = bench.until(lambda states: states["web"].state == "needs login" or bool(other.heard))["web"]
        assert token not in "".join(other.heard)
        assert state.reason == "nobody has logged in yet"
    finally:
        bench.close()


@pytest.fixture
def logged_in(guarded: HttpServer, tmp_path: Path) -> Iterator[tuple[McpBench, Path]]:
    """A server at which somebody has logged in, and the file of the login. The token has ended at the server."""
    bench = McpBench(tmp_path / "home", {"web": {"url": guarded.url, "auth": "oauth"}})
    try:
        bench.until(lambda states: states["web"].state == "needs login")
        log_in(bench)
        bench.connected()
        bench.source.close()
        guarded.tell("expire")
        yield bench, login.token_file(configured(bench.config)["web"])
    finally:
        guarded.tell("up")
        bench.close()


def again(bench: McpBench, file: Path, *, refresh: bool) -> None:
    """Connect anew. `refresh`: the token has ended by the clock, too."""
    bench.source.close()
    kept = json.loads(file.read_text())
    file.write_text(json.dumps({**kept, "expires_at": time.time() - 1 if refresh else time.time() + 999}))
    bench.source = type(bench.source)()
    bench.source.use(bench.config, connect=True)


@needs_localhost
def test_a_server_that_names_another_login_server_for_a_while_costs_no_login(
    guarded: HttpServer, logged_in: tuple[McpBench, Path]
) -> None:
    bench, file = logged_in
    before = json.loads(file.read_text())
    guarded.tell("move")
    again(bench, file, refresh=False)
    bench.until(lambda states: states["web"].state == "needs login")
    assert json.loads(file.read_text())["client"] == before["client"], "the tokens belong to this registration"
    guarded.tell("up")
    again(bench, file, refresh=True)
    bench.until(lambda states: bench.call("mcp__web__secret").content == "42")


def test_a_login_that_is_broken_off_leaves_the_former_one(logged_in: tuple[McpBench, Path]) -> None:
    bench, file = logged_in
    before, server = file.read_text(), configured(bench.config)["web"]

    async def go() -> None:
        with person() as shown:
            task = asyncio.ensure_future(mcp._logged_in(server, browser=False))
            await asyncio.wait_for(shown.get(), 30)
            task.cancel()
            await asyncio.wait({task})

    with socket.create_server(("127.0.0.1", login.stored_port(server))):  # so the login registers another one
        asyncio.run(go())
    assert file.read_text() == before
    again(bench, file, refresh=True)
    bench.until(lambda states: bench.call("mcp__web__secret").content == "42")


@needs_localhost
def test_a_login_server_with_the_name_of_another_and_a_redirected_token_get_nothing(
    guarded: HttpServer, logged_in: tuple[McpBench, Path]
) -> None:
    bench, file = logged_in
    before = json.loads(file.read_text())
    guarded.tell("imposter")
    again(bench, file, refresh=False)
    state = bench.until(lambda states: "issuer" in states["web"].reason)["web"]
    assert state.state == "retrying"
    with Listening() as other:
        guarded.tell(f"redirect-{other.port}")
        again(bench, file, refresh=True)
        bench.until(lambda states: states["web"].state == "needs login")
        assert not other.heard, "neither the refresh token nor anything else"
    assert json.loads(file.read_text())["tokens"] == before["tokens"]


class Listening:
    """A server that only keeps the requests that come."""

    def __enter__(self) -> Listening:
        heard = self.heard = list[str]()

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                heard.append(str(self.headers))
                self.send_error(500)

            def do_GET(self) -> None:
                self.do_POST()

            def log_message(self, *_: object) -> None: ...

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
