"""Floors for a turn through the gateway, as servers of their own.

`raw`: the least that could be called a durable turn. A request over HTTP, a commit, one keep-alive call of the model, a
commit, the response; sockets and `apsw`, nothing else, on asyncio's own loop. `telegram`: the same for a bot: an update
from `getUpdates`, a commit, the model, a commit, `sendMessage`. `stack`: what the gateway stands on with nothing
between: starlette on uvicorn (httptools) on uvloop, our connections to models, our writer with its group commit, and as
many commits as the gateway makes before its answer.

`python -m bench._gateway_floors raw|stack|telegram MODEL_URL FOLDER [TELEGRAM_URL]` prints its address.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from pathlib import Path

import apsw
from bench import _floor

ASKED = json.dumps({"model": "scripted-1", "messages": [{"role": "user", "content": "hello"}]}).encode()
JSON = {"content-type": "application/json"}
HEADERS = {"authorization": "Bearer scripted-key", **JSON}


class Wire:
    """A keep-alive connection, one request at a time. Reads bodies with a length and chunked ones."""

    def __init__(self, host: str, port: int) -> None:
        self._at = (host, port)
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def open(self) -> None:
        self._reader, self._writer = await asyncio.open_connection(*self._at)

    async def ask(self, request: bytes) -> tuple[int, bytes]:
        """The response's status and body."""
        if self._writer is None:
            await self.open()
        assert self._reader is not None
        assert self._writer is not None
        self._writer.write(request)
        head = await self._reader.readuntil(b"\r\n\r\n")
        status = int(head[9:12])
        lower = head.lower()
        at = lower.find(b"content-length:")
        if at >= 0:
            length = int(lower[at + 15 : lower.index(b"\r\n", at)])
            return status, await self._reader.readexactly(length)
        body = bytearray()
        while size := int(await self._reader.readuntil(b"\r\n"), 16):
            body += await self._reader.readexactly(size)
            await self._reader.readexactly(2)
        await self._reader.readexactly(2)
        return status, bytes(body)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def post(path: str, body: bytes, headers: dict[str, str]) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n{lines}content-length: {len(body)}\r\n\r\n".encode() + body


def host_and_port(url: str) -> tuple[str, int]:
    host, _, port = url.removeprefix("http://").partition("/")[0].partition(":")
    return host, int(port)


# -- raw --------------------------------------------------------------------------------------------------------------


async def durable_turn(store: apsw.Connection, model: Wire) -> str:
    """What was asked is stored, the model answers, the answer is stored."""
    _floor.append_each(store, 1)
    _status, answer = await model.ask(post("/v1/chat/completions", ASKED, HEADERS))
    text: str = json.loads(answer)["choices"][0]["message"]["content"]
    _floor.append_each(store, 1)
    return text


class Raw(asyncio.Protocol):
    def __init__(self, store: apsw.Connection, model: tuple[str, int], free: list[Wire]) -> None:
        self._store, self._model, self._free = store, model, free
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        head = bytes(self._buffer[:end]).lower()
        at = head.index(b"content-length:")
        after = end + 4 + int(head[at + 15 :].partition(b"\r\n")[0])
        if len(self._buffer) < after:
            return
        json.loads(self._buffer[end + 4 : after])
        del self._buffer[:after]
        self._task = asyncio.ensure_future(self._turn())

    async def _turn(self) -> None:
        wire = self._free.pop() if self._free else Wire(*self._model)
        text = await durable_turn(self._store, wire)
        self._free.append(wire)
        body = json.dumps({"text": text}).encode()
        head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        if self._transport is not None:
            self._transport.write(head.encode() + body)


async def raw(model: str, folder: Path) -> None:
    store, free = _floor.raw_store(folder / "raw.db"), list[Wire]()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Raw(store, host_and_port(model), free), "127.0.0.1", 0)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


async def telegram(model: str, folder: Path, bot_api: str) -> None:
    """A bot that answers one message after the other."""
    from hermes_testing.telegram.server import TOKEN

    store, talks, polls, sends = _floor.raw_store(folder / "bot.db"), *map(_wire_to, (model, bot_api, bot_api))
    print("ready", flush=True)
    offset = 0
    while True:
        asked = json.dumps({"offset": offset, "timeout": 30}).encode()
        _status, body = await polls.ask(post(f"/bot{TOKEN}/getUpdates", asked, JSON))
        for update in json.loads(body)["result"]:
            offset = update["update_id"] + 1
            text = await durable_turn(store, talks)
            said = json.dumps({"chat_id": update["message"]["chat"]["id"], "text": text}).encode()
            await sends.ask(post(f"/bot{TOKEN}/sendMessage", said, JSON))


def _wire_to(url: str) -> Wire:
    return Wire(*host_and_port(url))


# -- stack ------------------------------------------------------------------------------------------------------------


async def stack(model: str, folder: Path) -> None:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    from hermes_agent.models import http
    from hermes_agent.models.base import Endpoint
    from hermes_config.limits import DEFAULTS
    from hermes_state.storage.base import Connection
    from hermes_state.storage.sqlite import SqliteEngine
    from hermes_state.storage.writer import queued

    _floor.raw_store(folder / "stack.db").close()
    engine = SqliteEngine(folder / "stack.db")
    endpoint = Endpoint("custom", "chat", f"{model}/v1", "scripted-1")

    def append(conn: Connection) -> None:
        conn.run(_floor.INSERT, _floor.row())
        conn.run(_floor.COUNT, (_floor.SESSION,))

    async def turn(request: Request) -> JSONResponse:
        await request.json()
        for _stored in ("message", "turn"):
            await queued(engine, append, no_savepoint=True)
        answer = await http.post(endpoint, "/chat/completions", HEADERS, ASKED, DEFAULTS)
        text = json.loads(b"".join([piece async for piece in answer.pieces]))["choices"][0]["message"]["content"]
        await answer.close()
        await queued(engine, append, no_savepoint=True)
        return JSONResponse({"text": text})

    app = Starlette(routes=[Route("/turn", turn, methods=["POST"])])
    listening = socket.create_server(("127.0.0.1", 0))
    # asyncio does it only for sockets that say TCP, which this one does not: each answer would take 40 ms longer.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
    server = uvicorn.Server(uvicorn.Config(app, http="httptools", log_level="warning", access_log=False))
    await server.serve(sockets=[listening])


if __name__ == "__main__":
    kind, url, where, *more = sys.argv[1:]
    if kind == "stack":
        import uvloop

        uvloop.run(stack(url, Path(where)))
    else:
        asyncio.run(raw(url, Path(where)) if kind == "raw" else telegram(url, Path(where), *more))
