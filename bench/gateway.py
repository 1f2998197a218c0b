"""The gateway against its floors, measured in the same run (`_gateway_floors`): a raw durable turn, and our libraries.

Turns go over the API, from keep-alive connections of a bare client, and through the fake Telegram; the model is the
strict scripted server in a process of its own. Lag is measured from outside: how long `/health` takes, asked fifty
times a second by a process that does nothing else. `--quick` takes smaller numbers, `--only NAME` runs one part,
`--long` adds the crowd. `--flush-ms=0.4` runs on a disk whose flushes take so much longer, as an ordinary one's do.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import _gateway_homes as homes
from bench import routes
from bench._gateway_floors import ASKED, JSON, Wire, post
from bench._slow_disk import slow_disk

from gateway.config import GatewayConfig
from gateway.session import SessionStore
from hermes_state.session_db import SessionDB
from hermes_testing.telegram.server import TOKEN

Row = tuple[str, str, str, bool]
TURN = post("/turn", ASKED, JSON)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.gateway", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller numbers: a look, not a verdict")
    parser.add_argument("--long", action="store_true", help="also the crowd: a thousand conversations at once")
    parser.add_argument("--only", choices=sorted(PARTS | LONG), help="one part")
    parser.add_argument("--flush-ms", type=float, default=0.0, metavar="MS", help="how much longer a flush takes")
    args = parser.parse_args()
    rows: list[Row] = []
    for name, part in (PARTS | LONG).items():
        if args.only == name or (args.only is None and (name in PARTS or args.long)):
            with (
                tempfile.TemporaryDirectory(dir=Path(), prefix=".bench-") as folder,
                slow_disk(args.flush_ms, Path(folder).resolve()),
            ):
                rows += part(Path(folder).resolve(), args.quick)
    width, middle = max(len(row[0]) for row in rows), max(len(row[1]) for row in rows)
    for what, measured, target, held in rows:
        print(f"  {'✓' if held else '✗'} {what:<{width}}  {measured:>{middle}}   {target}")
    return 0 if all(row[3] for row in rows) else 1


# -- turns ------------------------------------------------------------------------------------------------------------


def turns(folder: Path, quick: bool) -> list[Row]:
    """One after the other, the three of them in turn."""
    count = 60 if quick else 300

    async def measure(servers: dict[str, tuple[str, bytes]]) -> dict[str, float]:
        wires = {name: homes.wire_to(address) for name, (address, _) in servers.items()}
        took: dict[str, list[float]] = {name: [] for name in servers}
        for _ in range(count + 20):
            for name, (_, what) in servers.items():
                took[name].append(await homes.asked(wires[name], what))
        for wire in wires.values():
            wire.close()
        return {name: statistics.median(times[20:]) * 1000 for name, times in took.items()}

    with (
        homes.model_server() as model,
        homes.child("bench._gateway_floors", "raw", model, str(folder)) as raw,
        homes.child("bench._gateway_floors", "stack", model, str(folder)) as stack,
        homes.running(folder / "home", model) as ours,
    ):
        servers = {"raw": (raw, TURN), "stack": (stack, TURN), "ours": (ours.address, homes.request(1))}
        p50 = asyncio.run(measure(servers))
    ratio, floor = p50["ours"] / p50["raw"], p50["stack"] / p50["raw"]
    return [
        ("a turn, zero-delay model (p50)", f"{ratio:.2f}× of {p50['raw']:.2f} ms", "<= 4× the raw floor", ratio <= 4),
        ("  the stack floor, for comparison", f"{floor:.2f}×", "", True),
    ]


def telegram(folder: Path, quick: bool) -> list[Row]:
    """From a message in the chat to its answer there, beside a bare bot. No flood control: our time is measured."""
    count, people = 60 if quick else 300, [f"person{number}" for number in range(10)]

    async def answered(wire: Wire, name: str) -> float:
        async def control(verb: str, **fields: Any) -> Any:
            status, body = await wire.ask(post(f"/control/bot{TOKEN}/{verb}", json.dumps(fields).encode(), JSON))
            assert status == 200, body
            return json.loads(body)["result"]

        began = time.perf_counter()
        sent = (await control("say", name=name, text="hello"))["message"]
        version = -1
        while True:
            seen = await control("watch", name=name, version=version)
            if any(one["bot"] and one["id"] > sent for one in seen["messages"]):
                return time.perf_counter() - began
            version = seen["version"]

    async def measure(fakes: dict[str, str]) -> dict[str, float]:
        wires = {name: homes.wire_to(address) for name, address in fakes.items()}
        took: dict[str, list[float]] = {name: [] for name in fakes}
        for number in range(count + len(people)):
            for name, wire in wires.items():
                took[name].append(await answered(wire, people[number % len(people)]))
        for wire in wires.values():
            wire.close()
        return {name: statistics.median(times[len(people) :]) * 1000 for name, times in took.items()}

    named = ",".join(f"{name}={4200 + number}" for number, name in enumerate(people))
    fake = ("hermes_testing.telegram", "--flood", "off", "--people", named)
    with homes.model_server() as model, homes.child(*fake) as theirs, homes.child(*fake) as ours:
        base = {"base_url": f"{ours}/bot", "base_file_url": f"{ours}/file/bot"}
        env = f"TELEGRAM_BOT_TOKEN={TOKEN}\nTELEGRAM_ALLOWED_USERS={','.join(re.findall('=([0-9]+)', named))}\n"
        with (
            homes.child("bench._gateway_floors", "telegram", model, str(folder), theirs),
            homes.running(folder / "home", model, env, platforms={"telegram": {"extra": base}}),
        ):
            p50 = asyncio.run(measure({"raw": theirs, "ours": ours}))
    ratio = p50["ours"] / p50["raw"]
    return [("a Telegram turn (p50)", f"{ratio:.2f}× of {p50['raw']:.2f} ms", "<= 4× a bare bot", ratio <= 4)]


CHATS = (1, 8, 32, 128)


def many(folder: Path, quick: bool) -> list[Row]:
    """Chats that ask again as soon as they have their answer; the three servers in turn, three rounds."""
    seconds = 0.7 if quick else 2.5

    async def load(
        address: str, requests: list[bytes], gateway: homes.Gateway
    ) -> tuple[float, list[list[float]], float]:
        wires = [homes.wire_to(address) for _ in requests]  # new ones: a server hangs up on those that are idle
        await homes.together(wires, requests)
        until = time.perf_counter() + seconds

        async def chat(wire: Wire, what: bytes) -> list[float]:
            took = []
            while time.perf_counter() < until:
                took.append(await homes.asked(wire, what))
            return took

        began, cpu = time.perf_counter(), gateway.cpu()
        each = await asyncio.gather(*(chat(wire, what) for wire, what in zip(wires, requests, strict=True)))
        seconds_taken, turns = time.perf_counter() - began, sum(map(len, each))
        for wire in wires:
            wire.close()
        return turns / seconds_taken, each, (gateway.cpu() - cpu) / turns * 1000

    async def measure(
        servers: dict[str, str], gateway: homes.Gateway
    ) -> tuple[dict[tuple[str, int], float], list[list[float]]]:
        rates: dict[tuple[str, int], list[float]] = {(name, chats): [] for name in servers for chats in CHATS}
        waits: list[list[float]] = [[] for _ in range(32)]
        for turn in range(3):
            for chats in CHATS:
                for name, address in servers.items():
                    own = [homes.request(f"{turn}-{chats}-{number}") for number in range(chats)]  # without a long past
                    asks = own if name == "ours" else [TURN] * chats
                    rate, each, cpu = await load(address, asks, gateway)
                    rates[name, chats].append(rate)
                    if name == "ours":
                        rates.setdefault(("cpu", chats), []).append(cpu)
                    if name == "ours" and chats == 32:
                        waits = [[*old, *new] for old, new in zip(waits, each, strict=True)]
        return {key: statistics.median(found) for key, found in rates.items()}, waits

    with (
        homes.model_server() as model,
        homes.child("bench._gateway_floors", "raw", model, str(folder)) as raw,
        homes.child("bench._gateway_floors", "stack", model, str(folder)) as stack,
        homes.running(folder / "home", model) as ours,
    ):
        rates, waits = asyncio.run(measure({"raw": raw, "stack": stack, "ours": ours.address}, ours))
    rows: list[Row] = []
    for chats in CHATS:
        rate, raw_rate, stack_rate = (rates[name, chats] for name in ("ours", "raw", "stack"))
        of_floors = f"{rate / raw_rate:.2f} of {raw_rate:.0f}; {rate / stack_rate:.2f} of {stack_rate:.0f}"
        measured = f"{rate:.0f}; {of_floors}; {rates['cpu', chats]:.2f} ms"
        target, held = (">= 0.4 raw", rate / raw_rate >= 0.4) if chats == 32 else ("", True)
        if chats == 128:
            target, held = ">= 0.9 of 32 chats", rate >= 0.9 * rates["ours", 32]
        who = "1 chat" if chats == 1 else f"{chats} chats"
        rows.append((f"{who}: turns/s; of the raw floor; of the stack; processor time", measured, target, held))
    middle = statistics.median(one for chat in waits for one in chat)
    worst = max(max(chat) for chat in waits) / middle
    longest = f"{worst:.1f}× of {middle * 1000:.0f} ms"
    return [*rows, ("  the longest wait of any of 32", longest, "<= 5× the median", worst <= 5)]


def waiting(folder: Path, quick: bool) -> list[Row]:
    """64 chats at once on a model that takes half a second; their second turn, and their very first."""

    async def measure(gateway: homes.Gateway) -> list[float]:
        wires = [homes.wire_to(gateway.address) for _ in range(64)]
        requests = [homes.request(number) for number in range(64)]
        await asyncio.gather(*(wire.open() for wire in wires))
        took = []
        for _ in range(2 if quick else 4):
            began = time.perf_counter()
            await homes.together(wires, requests)
            took.append(time.perf_counter() - began)
        return took

    with homes.model_server(0.5) as model, homes.running(folder / "home", model) as gateway:
        first, *later = asyncio.run(measure(gateway))
    second = statistics.median(later)
    return [
        ("64 chats on a model that takes 0.5 s", f"{second:.2f} s", "<= 0.75 s", second <= 0.75),
        ("  their very first turns", f"{first:.2f} s", "", True),
    ]


# -- standing still ---------------------------------------------------------------------------------------------------


def finding(folder: Path, quick: bool) -> list[Row]:
    """A route among 100,000, and what a start has to do with how many there are."""
    size = 10_000 if quick else 100_000
    db = SessionDB(folder / "state.db")
    store = SessionStore(folder / "sessions", GatewayConfig(), db=db)
    routes.fill(db, store, size)
    middle, worst = routes.spread(lambda number: store.resolve(routes.source(number)), size)
    store.close()
    db.close()
    return [
        (
            f"resolving a route among {size:,} (p50, p99)",
            f"{middle / 1000:.2f}, {worst / 1000:.2f} ms",
            "<= 1 ms",
            worst <= 1_000,
        )
    ]


def standing(folder: Path, quick: bool) -> list[Row]:
    """A start, an idle process, and what a conversation that nobody writes to costs."""
    talks = 100 if quick else 400

    async def talk(gateway: homes.Gateway, first: int, count: int) -> None:
        wires = [homes.wire_to(gateway.address) for _ in range(8)]

        async def some(wire: Wire, numbers: range) -> None:
            for number in numbers:
                await homes.asked(wire, homes.request(number))

        await asyncio.gather(
            *(some(wire, range(first + at, first + count, len(wires))) for at, wire in enumerate(wires))
        )
        for wire in wires:
            wire.close()

    async def one(gateway: homes.Gateway) -> float:
        wire = homes.wire_to(gateway.address)
        await wire.open()
        took = await homes.asked(wire, homes.request(0))
        wire.close()
        return took * 1000

    with homes.model_server() as model:
        ready, firsts, idle = [], [], []
        for _ in range(4 if quick else 8):
            with homes.running(folder / "home", model) as gateway:
                ready.append(gateway.ready * 1000)
                time.sleep(0.3)
                idle.append(gateway.rss())
                firsts.append(asyncio.run(one(gateway)))
        with homes.running(folder / "home", model) as gateway:
            # So many that what a working process needs at all is there, and caches that shrink are full.
            asyncio.run(talk(gateway, 0, 50))
            before = gateway.rss()
            asyncio.run(talk(gateway, 50, talks))
            each = (gateway.rss() - before) * 1024 / talks
    start, first, memory = statistics.median(ready[1:]), statistics.median(firsts[1:]), statistics.median(idle)
    return [
        ("ready after its start", f"{start:.0f} ms", "<= 600 ms", start <= 600),
        ("  the first turn after it", f"{first:.0f} ms", "<= 50 ms", first <= 50),
        ("  memory, idle", f"{memory:.0f} MB", "<= 70 MB", memory <= 70),
        ("  for each conversation more", f"{each:.0f} KB", "<= 60 KB", each <= 60),
    ]


# -- a crowd ----------------------------------------------------------------------------------------------------------

_EVERY = 0.02
_PROBE = """
import socket, sys, time
line = socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=60)
line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
until = time.perf_counter() + float(sys.argv[2])
while (began := time.perf_counter()) < until:
    line.sendall(b"GET /health HTTP/1.1\\r\\nhost: 127.0.0.1\\r\\n\\r\\n")
    if not line.recv(4096):
        break
    took = time.perf_counter() - began
    print(took, flush=True)
    time.sleep(max(0.0, 0.02 - took))
"""


def crowd(folder: Path, quick: bool) -> list[Row]:
    """A thousand conversations, each waiting long on the model: begun over a while, and all at once."""
    count, spread, delay = (200, 2.0, 3.0) if quick else (1_000, 10.0, 30.0)

    async def measure(gateway: homes.Gateway, over: float, offset: int) -> None:
        async def chat(number: int) -> None:
            await asyncio.sleep(over * number / count)
            wire = homes.wire_to(gateway.address)
            await homes.asked(wire, homes.request(offset + number))
            wire.close()

        await asyncio.gather(*(chat(number) for number in range(count)))

    def lag(gateway: homes.Gateway, over: float, offset: int) -> tuple[float, float]:
        seconds = over + delay + 2.0
        probe = [sys.executable, "-c", _PROBE, str(gateway.port), str(seconds)]
        with subprocess.Popen(probe, stdout=subprocess.PIPE, text=True) as process:
            asyncio.run(measure(gateway, over, offset))
            seen = [float(line) for line in process.communicate(timeout=seconds + 60)[0].split()]
        # Whoever waits for one answer asks no other: a long wait stands for all that would have been asked meanwhile.
        times = sorted(took - passed * _EVERY for took in seen for passed in range(max(1, round(took / _EVERY))))
        return times[len(times) * 99 // 100] * 1000, times[-1] * 1000

    with homes.model_server(delay) as model, homes.running(folder / "home", model) as gateway:
        slowly = lag(gateway, spread, 0)
        at_once = lag(gateway, 0.0, count)
    what = f"{count:,} conversations, each waiting {delay:.0f} s"
    return [
        (
            f"{what}, over {spread:.0f} s: lag (p99, worst)",
            f"{slowly[0]:.0f}, {slowly[1]:.0f} ms",
            "< 50 ms",
            slowly[0] < 50,
        ),
        ("  at once: lag (p99, worst)", f"{at_once[0]:.0f}, {at_once[1]:.0f} ms", "< 1,000 ms", at_once[0] < 1_000),
    ]


Part = Callable[[Path, bool], list[Row]]
PARTS: dict[str, Part] = {
    "turns": turns, "telegram": telegram, "many": many, "waiting": waiting, "finding": finding, "standing": standing
}  # fmt: skip
LONG: dict[str, Part] = {"crowd": crowd}

if __name__ == "__main__":
    sys.exit(main())
