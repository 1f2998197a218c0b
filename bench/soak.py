"""`make soak`: a gateway under steady load for a while; what it needs of the machine must not grow.

Fifty chats write to it through the fake Telegram: plain questions, tools, stories that stream. Each begins a new
conversation now and then, so that transcripts stay of a size and whatever grows all the same is ours. Sampled from
outside: resident memory, the write-ahead log, descriptors, threads; from its metrics: tasks of the event loop and kept
agents. All settings are as they come. The first fifth of the time is left out, in which caches fill: the writer's
pages (`limits.writer_cache_kib`), an agent a chat with its transcript, the pool of threads. It fails when the line
through the rest rises by more than is said in `BOUNDS`, or a message was left without an outcome. On a machine that is
busy with other things turns take longer, so more of them run at once: that shows in `tasks`, and in memory.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import socket
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import httpx2
from tests.support.storm import Storm

BOUNDS: Mapping[str, tuple[float, float]] = {
    # figure: by how much of its level it may rise, and by how much in any case
    "rss MB": (0.05, 4.0),
    "wal MB": (0.25, 4.0),
    "descriptors": (0.10, 4.0),
    "threads": (0.10, 4.0),
    "tasks": (0.25, 25.0),
    "agents": (0.25, 10.0),
}
_KINDS = ("plain", "plain", "plain", "tool", "story")
_NEW_EVERY = 30
_KEY = "soak-key-that-is-long-enough-0123456789"
_SAMPLES = 240
_LINE_EVERY = 60.0


class Soak:
    """The load and the samples."""

    def __init__(self, storm: Storm, port: int, rate: float) -> None:
        self._storm, self._rate = storm, rate
        self._dice = random.Random(1)
        self._metrics = httpx2.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=30)
        self.samples: list[tuple[float, dict[str, float]]] = []
        self.said = 0

    def run(self, seconds: float, chats: int) -> None:
        began, every = time.monotonic(), seconds / _SAMPLES
        counts, next_at, line_at = [0] * chats, began, began + _LINE_EVERY
        while (now := time.monotonic()) - began < seconds:
            if now >= next_at:
                next_at += every
                self.samples.append((now - began, self._sample()))
            if now >= line_at:
                line_at += _LINE_EVERY
                print(self._so_far(now - began, seconds), flush=True)  # whoever follows a file sees it at once, too
            number = self._dice.randrange(chats)
            counts[number] += 1
            if counts[number] % _NEW_EVERY == 0:
                self._storm.people[number].say("/new")
            self._storm.say(number, self._dice.choice(_KINDS))
            self.said += 1
            time.sleep(self._dice.expovariate(self._rate))
        self._metrics.close()

    def _so_far(self, gone: float, seconds: float) -> str:
        figures = ", ".join(f"{name} {value:.1f}" for name, value in self.samples[-1][1].items())
        return f"{gone / 60:.0f} of {seconds / 60:.0f} min: {self.said} messages, {figures}"

    def _sample(self) -> dict[str, float]:
        pid, home = self._storm.scene.pid, self._storm.scene.home
        proc = Path(f"/proc/{pid}")
        wal = home / "state.db-wal"
        text = self._metrics.get("/metrics", headers={"authorization": f"Bearer {_KEY}"}).text
        return {
            "rss MB": int((proc / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20,
            "wal MB": wal.stat().st_size / 2**20 if wal.exists() else 0.0,
            "descriptors": float(len(list((proc / "fd").iterdir()))),
            "threads": float(len(list((proc / "task").iterdir()))),
            "tasks": _figure(text, "hermes_tasks"),
            "agents": _figure(text, "hermes_agents_cached"),
        }


def _figure(text: str, name: str) -> float:
    found = re.search(rf"^{name} (\S+)$", text, re.MULTILINE)
    return float(found[1]) if found else float("nan")


def slope(points: list[tuple[float, float]]) -> tuple[float, float]:
    """The straight line through them: where it begins and where it ends."""
    count = len(points)
    middle_x, middle_y = sum(x for x, _ in points) / count, sum(y for _, y in points) / count
    spread = sum((x - middle_x) ** 2 for x, _ in points) or 1.0
    rise = sum((x - middle_x) * (y - middle_y) for x, y in points) / spread
    return middle_y + rise * (points[0][0] - middle_x), middle_y + rise * (points[-1][0] - middle_x)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--chats", type=int, default=50)
    parser.add_argument("--rate", type=float, default=15.0, help="messages a second")
    args = parser.parse_args()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    config = {"api_server": {"enabled": True, "host": "127.0.0.1", "port": port}}
    with (
        tempfile.TemporaryDirectory(dir=Path(), prefix=".bench-") as folder,
        Storm(chats=args.chats, faults=(), modes=("queue",), home=Path(folder).resolve(), config=config) as storm,
    ):
        storm.scene.environment["API_SERVER_OWNER_KEY"] = _KEY
        storm.scene.config["display"] = {"busy_input_mode": "queue"}
        storm.scene.start()
        soak = Soak(storm, port, args.rate)
        soak.run(args.minutes * 60, args.chats)
        storm.settled(60.0)
        storm.scene.stop()
        open_rows = storm.unsettled()
    return _report(soak, open_rows)


def _report(soak: Soak, open_rows: int) -> int:
    kept = soak.samples[len(soak.samples) // 5 :]
    print(f"{soak.said} messages, {len(kept)} samples over {(kept[-1][0] - kept[0][0]) / 60:.1f} min")
    print(f"    {'':<12} {'first':>9} {'last':>9} {'highest':>9}   {'line from':>9} {'to':>9}")
    held = open_rows == 0
    for name, (share, least) in BOUNDS.items():
        values = [figures[name] for _, figures in kept]
        begins, ends = slope([(at, figures[name]) for at, figures in kept])
        good = ends - begins <= max(share * begins, least)
        held = held and good
        mark = "✓" if good else "✗"
        print(f"  {mark} {name:<12} {values[0]:9.1f} {values[-1]:9.1f} {max(values):9.1f}   {begins:9.1f} {ends:9.1f}")
    print(f"  {'✓' if not open_rows else '✗'} messages without an outcome: {open_rows}")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
