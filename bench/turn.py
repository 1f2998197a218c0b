"""A turn against its floor: two commits and between them one non-streamed, keep-alive model call over a bare socket.

The model is the strict scripted server, in a process of its own, with no delay. `--quick` takes smaller numbers,
`--only NAME` runs one part.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench import _floor
from bench._gateway_floors import Wire, durable_turn, host_and_port

Row = tuple[str, str, str, bool]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.turn", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller numbers: a look, not a verdict")
    parser.add_argument("--only", choices=sorted(PARTS), help="one part")
    args = parser.parse_args()
    rows: list[Row] = []
    for name, part in PARTS.items():
        if args.only in (None, name):
            with tempfile.TemporaryDirectory(dir=Path(), prefix=".bench-") as folder:
                rows += part(Path(folder).resolve(), args.quick)
    width, middle = max(len(row[0]) for row in rows), max(len(row[1]) for row in rows)
    for what, measured, target, held in rows:
        print(f"  {'✓' if held else '✗'} {what:<{width}}  {measured:>{middle}}   {target}")
    return 0 if all(row[3] for row in rows) else 1


@contextmanager
def served(delay: float = 0.0) -> Iterator[str]:
    """The model server; its base URL."""
    child = subprocess.Popen(
        [sys.executable, "-m", "hermes_testing.scripted.server", "--delay", str(delay)],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert child.stdout is not None
        yield f"{child.stdout.readline().strip()}/v1"
    finally:
        child.terminate()
        child.wait(10)


def endpoint(url: str) -> Any:
    from hermes_agent.models.base import Endpoint

    return Endpoint(
        provider="custom", wire="chat", base_url=url, model="scripted-1", api_key="scripted-key",
        context_length=100_000_000,
    )  # fmt: skip


def agent(folder: Path, url: str, db: Any, session_id: str | None = None) -> Any:
    from hermes_agent import AIAgent
    from hermes_config import config as configuration

    home = folder / "home"
    home.mkdir(exist_ok=True)
    (home / "config.yaml").write_text("auto_title: false\n")
    work = folder / "work"
    work.mkdir(exist_ok=True)
    return AIAgent(
        session_db=db, config=configuration.load(home), endpoint=endpoint(url), workdir=work, session_id=session_id
    )


def turns(folder: Path, quick: bool) -> list[Row]:
    from hermes_state import SessionDB

    count = 60 if quick else 300

    async def measure(url: str) -> tuple[float, float, float]:
        raw = _floor.raw_store(folder / "raw.db")
        wire = Wire(*host_and_port(url))
        db = SessionDB(folder / "state.db")
        short, long = agent(folder, url, db), agent(folder, url, db)
        for chat, rows in ((short, 10), (long, 1_000)):
            await chat.arun_conversation("hello")
            texts = [{"role": ("user", "assistant")[i % 2], "content": f"{i} {_floor.TEXT}"} for i in range(rows)]
            db.append_messages(chat.session_id, texts)
            await chat.arun_conversation("hello")
        took: dict[str, list[float]] = {"floor": [], "short": [], "long": []}
        for _ in range(count):
            start = time.perf_counter()
            await durable_turn(raw, wire)
            took["floor"].append(time.perf_counter() - start)
            for name, chat in (("short", short), ("long", long)):
                start = time.perf_counter()
                await chat.arun_conversation("and now?")
                took[name].append(time.perf_counter() - start)
        wire.close()
        db.close()
        floor, ten, thousand = (statistics.median(took[name]) * 1000 for name in ("floor", "short", "long"))
        return floor, ten, thousand

    with served() as url:
        floor, ten, thousand = asyncio.run(measure(url))
    return [
        (
            "a turn, 10 messages of history (p50)",
            f"{ten / floor:.2f}× of {floor:.2f} ms",
            "<= 3.5×",
            ten / floor <= 3.5,
        ),
        ("  the same with 1,000", f"{thousand / ten:.2f}× of it", "< 2×", thousand / ten < 2),
    ]


_COLD = """
import sys, time
there = set(sys.modules)
import asyncio
from pathlib import Path
from hermes_agent import AIAgent
from hermes_agent.models.base import Endpoint
from hermes_config import config as configuration
from hermes_state import SessionDB
folder, url = Path(sys.argv[1]), sys.argv[2]
folder.joinpath("config.yaml").write_text("auto_title: false\\n")
first = []
async def go():
    chat = AIAgent(session_db=SessionDB(folder / "state.db"), config=configuration.load(folder), workdir=folder,
        endpoint=Endpoint("custom", "chat", url, "scripted-1", "scripted-key", context_length=100_000_000))
    await chat.arun_conversation("hello", stream_callback=lambda text: first or first.append(time.time()))
asyncio.run(go())
print(first[0], *(name for name, module in sys.modules.items() if name not in there and getattr(module, "__spec__", 0)))
"""


def cold(folder: Path, quick: bool) -> list[Row]:
    """A process that has one turn. Its imports are all modules that are there when the turn is over.

    Byte code comes from a cache, as with any installed program; the first run fills one that is ours.
    """
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environ["PYTHONPYCACHEPREFIX"] = str(folder / "bytecode")

    def python(code: str, *args: str) -> str:
        done = subprocess.run([sys.executable, "-c", code, *args], env=environ, stdout=subprocess.PIPE, check=True)
        return done.stdout.decode()

    def importing(*names: str) -> float:
        """By the process's own clock: neither its start nor its end is an import."""
        lines = "\n".join(f"import {name}" for name in names)
        code = f"import time; began = time.perf_counter()\n{lines}\nprint(time.perf_counter() - began)"
        return statistics.median(float(python(code)) * 1000 for _ in range(9))

    times, modules = [], [""]
    with served() as url:
        for i in range(6 if quick else 12):
            place = folder / str(i)
            place.mkdir()
            began = time.time()
            said, *modules = python(_COLD, str(place), url).split()
            times.append((float(said) - began) * 1000)
    first = statistics.median(times[1:])
    imports, package = importing(*modules), importing("hermes_agent")
    sdks = {"openai", "anthropic"} & set(modules)
    return [
        ("process start to first token", f"{first:.0f} ms", "<= 450 ms", first <= 450),
        (f"  imports of a turn, {len(modules)} modules", f"{imports:.0f} ms", "<= 220 ms", imports <= 220),
        ("  import hermes_agent", f"{package:.0f} ms", "<= 120 ms", package <= 120),
        ("  model SDKs imported", ", ".join(sdks) or "none", "none", not sdks),
    ]


def many(folder: Path, quick: bool) -> list[Row]:
    from hermes_state import SessionDB

    count = 100 if quick else 500

    async def measure(url: str) -> tuple[float, float]:
        db = SessionDB(folder / "state.db")
        chats = [agent(folder, url, db) for _ in range(count)]
        await chats[0].arun_conversation("warm")
        idle = _rss()
        start = time.perf_counter()
        results = await asyncio.gather(*(chat.arun_conversation("wait") for chat in chats))
        took = time.perf_counter() - start
        failed = [result.get("error") for result in results if not result["completed"]]
        assert not failed, f"{len(failed)} turns failed: {failed[0]}"
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        db.close()
        return took, peak - idle

    with served(delay=1.0) as url:
        took, grown = asyncio.run(measure(url))
    return [
        (f"{count} turns in flight, each waiting 1 s", f"{took:.2f} s", "< 4 s", took < 4),
        ("  memory above idle", f"{grown:.0f} MB", "<= 80 MB", grown <= 80),
    ]


def _rss() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


PARTS: dict[str, Callable[[Path, bool], list[Row]]] = {"turns": turns, "cold": cold, "many": many}

if __name__ == "__main__":
    sys.exit(main())
