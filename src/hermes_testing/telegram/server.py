"""A strict Telegram Bot API on loopback, with people behind it.

    with FakeTelegram() as telegram:                        # in this process, on a thread and a port of its own
        bot = telegram.Bot(telegram.token, base_url=telegram.base_url, base_file_url=telegram.base_file_url)
        telegram.person("ada").say("hello")

`python -m hermes_testing.telegram --port 0 --people ada,mallory` runs one in its own process and prints its
address.

What a bot may ask lies in `api`, what people do in `people`, what goes wrong in `faults`.
Here is HTTP: tokens, bodies, long polls, cut connections. The control endpoint
(`/control/bot<token>/<verb>`) lies behind the same token, so that no web page can speak for a person.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from pathlib import Path
from typing import Any, Self

import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from hermes_testing.telegram import api
from hermes_testing.telegram.answers import (
    NO_SUCH_TOKEN,
    TOO_LARGE,
    UNAUTHORIZED,
    BotApiError,
    BotCall,
    CallLog,
    Json,
    bad_request,
    brief,
)
from hermes_testing.telegram.api import BotMethods, Parameters, Polling
from hermes_testing.telegram.client import TelegramControl
from hermes_testing.telegram.faults import USUAL, Fault, Faults, FloodControl, FloodRules
from hermes_testing.telegram.people import CannotDo, FakePeople
from hermes_testing.telegram.world import World

TOKEN = "123456:a-pretend-token-for-tests-and-demos"
_LARGEST_BODY = 52 * 1024 * 1024
"""A file of 50 MB and what stands around it."""
_PIECE = 64 * 1024
_STARTING_SECONDS = 10.0


class FakeTelegram(TelegramControl):
    """The fake Telegram. Use it as a context manager."""

    platform = "telegram"

    def __init__(
        self,
        *,
        token: str = TOKEN,
        username: str = "hermes_demo_bot",
        flood: FloodRules = USUAL,
        faults: Iterable[Fault] = (),
        seed: int = 0,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.token = token
        self.world = World(token, username=username, now=now)
        self.fault_rules = Faults(faults, seed=seed)
        self.calls = CallLog()
        self.address = ""
        flood_control = FloodControl(flood)
        self._people = FakePeople(self.world, flood_control, self.fault_rules, self.calls)
        self._methods = BotMethods(self.world, flood_control)
        self._polling = Polling(self.world)
        self._server: Listener | None = None
        self._thread: threading.Thread | None = None

    @property
    def base_url(self) -> str:
        """The `base_url` of python-telegram-bot and of `platforms.telegram.extra`."""
        return f"{self.address}/bot"

    @property
    def base_file_url(self) -> str:
        return f"{self.address}/file/bot"

    def gateway_settings(self) -> Json:
        """Return the settings of `platforms.telegram` that lead a gateway to this fake."""
        return {"extra": {"base_url": self.base_url, "base_file_url": self.base_file_url}}

    def gateway_environment(self, allowed: Sequence[int]) -> dict[str, str]:
        return {"TELEGRAM_BOT_TOKEN": self.token, "TELEGRAM_ALLOWED_USERS": ",".join(map(str, allowed))}

    def requests_seen(self) -> int:
        return self.calls.total

    def call(self, verb: str, /, **fields: Any) -> Any:
        return self._people.perform(verb, fields)

    # -- running ---------------------------------------------------------------------------------------------------

    def start(self, port: int = 0) -> None:
        listening = socket.create_server(("127.0.0.1", port))
        # asyncio does it only for sockets that say TCP, which this one does not: each answer would take 40 ms longer.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        self._server = Listener(self._app())
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [listening]}, name="fake-telegram", daemon=True
        )
        self._thread.start()
        deadline = time.monotonic() + _STARTING_SECONDS
        while not self._server.started:
            if time.monotonic() > deadline or not self._thread.is_alive():
                raise RuntimeError("the fake Telegram did not start")
            time.sleep(0.002)

    def stop(self) -> None:
        if self._server is not None and self._thread is not None:
            self._server.leave()
            self._thread.join(_STARTING_SECONDS)
            self._server = self._thread = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # -- HTTP ------------------------------------------------------------------------------------------------------

    def _app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/bot{token}/{method}", self._bot, methods=["GET", "POST"]),
                Route("/file/bot{token}/{path:path}", self._file, methods=["GET"]),
                Route("/control/bot{token}/{verb}", self._control, methods=["POST"]),
                Route("/{rest:path}", _nothing),
            ]
        )

    def _check_token(self, token: str) -> None:
        number, colon, _secret = token.partition(":")
        if not colon or not number.isascii() or not number.isdigit():
            raise NO_SUCH_TOKEN
        if not secrets.compare_digest(token.encode(), self.token.encode()):
            raise UNAUTHORIZED

    async def _bot(self, request: Request) -> Response:
        method = str(request.path_params["method"])
        began = time.monotonic()
        call: BotCall | None = None
        try:
            self._check_token(request.path_params["token"])
            parameters = await _parameters(request)
            call = self.calls.begin(method, self.world.now(), parameters.values, sorted(parameters.files))
            answer = await self._answered(request, method, parameters, call)
        except ClientDisconnect:
            return Response()  # a bot that was killed in the middle of asking
        except BotApiError as error:
            answer = JSONResponse(error.body(), error.code, error.headers())
            if call is not None:
                call.code, call.description, call.answered = error.code, error.description, True
        if call is not None:
            call.seconds = round(time.monotonic() - began, 6)
        return answer

    async def _answered(self, request: Request, method: str, parameters: Parameters, call: BotCall) -> Response:
        faults = self.fault_rules.on_request(method)
        call.faults = [fault.kind for fault in faults]
        for fault in faults:
            match fault.kind:
                case "delay":
                    await asyncio.sleep(fault.seconds)
                case "drop_before":
                    return await self._cut(request)
                case "error":
                    call.code, call.answered = fault.status, True
                    return _broken(fault.status)
                case "flood":
                    seconds = max(1, int(fault.seconds))
                    raise BotApiError(429, f"Too Many Requests: retry after {seconds}", retry_after=seconds)
        result: object
        if method.lower() == "getupdates":
            result = await _unless_gone(request, self._polling.poll(parameters, self.fault_rules))
        else:
            result = self._methods.call(method, parameters)
        call.done, call.result = True, brief(result)
        await asyncio.sleep(sum(fault.seconds for fault in faults if fault.kind == "late"))
        if result is None or "drop_after" in call.faults:
            return await self._cut(request)
        call.code, call.answered = 200, True
        return JSONResponse({"ok": True, "result": result})

    async def _file(self, request: Request) -> Response:
        try:
            self._check_token(request.path_params["token"])
            content = self.world.contents.get(request.path_params["path"])
            if content is None:
                raise NO_SUCH_TOKEN
        except BotApiError as error:
            return JSONResponse(error.body(), error.code)
        # In pieces and without a length, as Telegram may hand out anything.
        pieces = (content[at : at + _PIECE] for at in range(0, len(content), _PIECE))
        return StreamingResponse(pieces, media_type="application/octet-stream")

    async def _control(self, request: Request) -> Response:
        verb = request.path_params["verb"]
        try:
            self._check_token(request.path_params["token"])
            fields = json.loads(await request.body() or b"{}")
            if verb == "watch":
                result = await _unless_gone(request, self._people.watch(**fields))
            else:
                result = self._people.perform(verb, fields)
        except BotApiError as error:
            return JSONResponse(error.body(), error.code)
        except (CannotDo, TypeError, ValueError) as error:
            return JSONResponse(bad_request(str(error)).body(), 400)
        return JSONResponse({"ok": True, "result": result})

    async def _cut(self, request: Request) -> Response:
        """Close the connection without an answer, and wait until it is closed."""
        if self._server is not None and request.client is not None:
            self._server.cut((request.client.host, request.client.port))
        while (await request.receive())["type"] != "http.disconnect":
            pass
        return Response()


async def _unless_gone(request: Request, work: Coroutine[Any, Any, Any]) -> Any:
    """Return the result of some work; cancel it when the client disconnects."""
    gone = asyncio.ensure_future(request.receive())
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait({gone, task}, return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        gone.cancel()
        task.cancel()


async def _nothing(_request: Request) -> Response:
    return JSONResponse(NO_SUCH_TOKEN.body(), 404)


async def _parameters(request: Request) -> Parameters:
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > _LARGEST_BODY:
            raise TOO_LARGE
    return api.read(request.url.query, request.headers.get("content-type", ""), bytes(body))


def _broken(status: int) -> Response:
    """Answer like a proxy in front of Telegram: with a page instead of JSON."""
    words = {500: "Internal Server Error", 502: "Bad Gateway", 503: "Service Unavailable", 504: "Gateway Timeout"}
    title = f"{status} {words.get(status, 'Error')}"
    return Response(
        f"<html><head><title>{title}</title></head><body>{title}</body></html>", status, media_type="text/html"
    )


class Listener(uvicorn.Server):
    """A web server on its own thread."""

    def __init__(self, app: Starlette) -> None:
        self._connections: dict[tuple[str, int], asyncio.Transport] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        connections = self._connections

        class PeerProtocol(H11Protocol):
            def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
                super().connection_made(transport)
                self.peer = tuple(transport.get_extra_info("peername"))
                connections[self.peer] = transport

            def connection_lost(self, exc: Exception | None) -> None:
                connections.pop(self.peer, None)
                super().connection_lost(exc)

        super().__init__(
            uvicorn.Config(
                app, http=PeerProtocol, ws="none", lifespan="off", log_config=None, access_log=False, loop="asyncio",
                timeout_graceful_shutdown=2,
            )
        )  # fmt: skip

    def cut(self, peer: tuple[str, int]) -> None:
        if transport := self._connections.get(peer):
            transport.abort()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)

    def leave(self) -> None:
        """Cut every connection and end. Callable from any thread."""
        self.should_exit = True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._cut_all)

    def _cut_all(self) -> None:
        for transport in list(self._connections.values()):
            transport.abort()


def announce(path: Path, address: str, token: str) -> None:
    """Write the address of the fake to a private file, for phones."""
    raw = json.dumps({"address": address, "token": token, "pid": os.getpid()})
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as stream:
        stream.write(raw + "\n")
