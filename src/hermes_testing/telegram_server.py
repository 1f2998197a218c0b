"""A strict Telegram Bot API on loopback, with people behind it.

    with FakeTelegram() as telegram:                        # in this process, on a thread and a port of its own
        bot = telegram.Bot(telegram.token, base_url=telegram.base_url, base_file_url=telegram.base_file_url)
        telegram.person("ada").say("hello")

`python -m hermes_testing.telegram_server --port 0 --people ada,mallory` runs one in its own process and prints its
address.

What a bot may ask lies in `telegram_methods` and `telegram_sending`, what people do in `telegram_people`, what goes
wrong in `telegram_faults`. Here is HTTP: tokens, bodies, long polls, cut connections. The control endpoint
(`/control/bot<token>/<verb>`) lies behind the same token, so that no web page can speak for a person.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from hermes_testing import telegram_parameters, telegram_state
from hermes_testing.telegram_answers import NO_SUCH_TOKEN, TOO_LARGE, UNAUTHORIZED, BotApiError, Json
from hermes_testing.telegram_chats import World
from hermes_testing.telegram_client import Telegram
from hermes_testing.telegram_control import Control
from hermes_testing.telegram_faults import Fault, Faults
from hermes_testing.telegram_flood import OFF, FloodControl, FloodRules
from hermes_testing.telegram_journal import Call, Journal, brief
from hermes_testing.telegram_listener import Listener
from hermes_testing.telegram_methods import BotMethods
from hermes_testing.telegram_parameters import Parameters
from hermes_testing.telegram_people import People
from hermes_testing.telegram_polling import Polling

TOKEN = "123456:a-pretend-token-for-tests-and-demos"
_LARGEST_BODY = 52 * 1024 * 1024
"""A file of 50 MB and what stands around it."""
_SAVE_SECONDS = 0.2
_PIECE = 64 * 1024
_STARTING_SECONDS = 10.0


class FakeTelegram(Telegram):
    """The whole fake. Use it as a context manager."""

    platform = "telegram"

    def __init__(
        self,
        *,
        token: str = TOKEN,
        username: str = "hermes_demo_bot",
        flood: FloodRules = OFF,
        faults: Iterable[Fault] = (),
        seed: int = 0,
        state: Path | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.token = token
        self.world = World(token, username=username, now=now)
        self.people = People(self.world)
        self.flood_control = FloodControl(flood)
        self.fault_rules = Faults(faults, seed=seed)
        self.calls = Journal()
        self.address = ""
        self._methods = BotMethods(self.world, self.flood_control)
        self._polling = Polling(self.world)
        self._control = Control(self.world, self.people, self.flood_control, self.fault_rules, self.calls)
        self._state = state
        if state is not None and state.exists():
            telegram_state.load(self.world, state)
        self._server: Listener | None = None
        self._thread: threading.Thread | None = None

    @property
    def base_url(self) -> str:
        """What python-telegram-bot and `platforms.telegram.extra` call `base_url`."""
        return f"{self.address}/bot"

    @property
    def base_file_url(self) -> str:
        return f"{self.address}/file/bot"

    def gateway_settings(self) -> Json:
        """What a gateway's `platforms.telegram` needs to come here instead of to Telegram."""
        return {"extra": {"base_url": self.base_url, "base_file_url": self.base_file_url}}

    def gateway_environment(self, allowed: Sequence[int]) -> dict[str, str]:
        return {"TELEGRAM_BOT_TOKEN": self.token, "TELEGRAM_ALLOWED_USERS": ",".join(map(str, allowed))}

    def requests_seen(self) -> int:
        return self.calls.total

    def call(self, verb: str, /, **fields: Any) -> Any:
        return self._control.perform(verb, fields)

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
        if self._state is not None:
            telegram_state.save(self.world, self._state)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # -- HTTP ------------------------------------------------------------------------------------------------------

    def _app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/bot{token}/{method}", self._bot, methods=["GET", "POST"]),
                Route("/file/bot{token}/{path:path}", self._file, methods=["GET"]),
                Route("/control/bot{token}/{verb}", self._people, methods=["POST"]),
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
        call: Call | None = None
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
        self._keep()
        return answer

    async def _answered(self, request: Request, method: str, parameters: Parameters, call: Call) -> Response:
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
            result = await self._polling.poll(request, parameters, self.fault_rules)
        else:
            result = self._methods.call(method, parameters)
        call.done, call.result = True, brief(result)
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

    async def _people(self, request: Request) -> Response:
        try:
            self._check_token(request.path_params["token"])
            body = await request.body()
            result = await _unless_gone(request, self._control.answer(request.path_params["verb"], body))
        except BotApiError as error:
            return JSONResponse(error.body(), error.code)
        self._keep()
        return JSONResponse({"ok": True, "result": result})

    async def _cut(self, request: Request) -> Response:
        """Close the connection without a byte, and wait until that has happened."""
        if self._server is not None and request.client is not None:
            self._server.cut((request.client.host, request.client.port))
        while (await request.receive())["type"] != "http.disconnect":
            pass
        return Response()

    def _keep(self) -> None:
        if self._state is not None and self._server is not None:
            self._server.later(_SAVE_SECONDS, self._save)

    def _save(self) -> None:
        if self._state is not None:
            telegram_state.save(self.world, self._state)


async def _unless_gone(request: Request, work: Coroutine[Any, Any, Any]) -> Any:
    """The outcome of some work, which ends with the connection of whoever asked for it."""
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
    return telegram_parameters.read(request.url.query, request.headers.get("content-type", ""), bytes(body))


def _broken(status: int) -> Response:
    """What stands before Telegram says: a page, no JSON."""
    words = {500: "Internal Server Error", 502: "Bad Gateway", 503: "Service Unavailable", 504: "Gateway Timeout"}
    title = f"{status} {words.get(status, 'Error')}"
    return Response(
        f"<html><head><title>{title}</title></head><body>{title}</body></html>", status, media_type="text/html"
    )


if __name__ == "__main__":
    from hermes_testing.telegram_command import main

    main()
