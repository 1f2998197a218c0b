"""Routes: what it costs to find a conversation among a hundred thousand places, in time, memory and start-up.

The floor is the bare indexed read of the same row, in the same run. `--size` takes fewer routes; the targets are for a
hundred thousand.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from gateway.config import GatewayConfig, Platform, SessionResetPolicy
from gateway.session import SessionSource, SessionStore
from hermes_state.session_db import SessionDB
from hermes_state.storage.base import Connection

ROUTE = "INSERT INTO routes (scope, session_key, session_id, entry_json, updated_at) VALUES ('sessions', ?, ?, ?, ?)"
SESSION = """
INSERT INTO sessions (id, source, session_key, started_at, last_active, root_id) VALUES (?, 'telegram', ?, ?, ?, ?)
"""
CONVERSATION = "INSERT INTO conversations (id, tip_id, origin_kind, created_at) VALUES (?, ?, 'new', ?)"
READ = "SELECT session_id, entry_json FROM routes WHERE scope = 'sessions' AND session_key = ?"
ASKED = 3_000


def source(number: int | str) -> SessionSource:
    return SessionSource(Platform.TELEGRAM, str(number), chat_name="Somebody", user_id=str(number))


def fill(db: SessionDB, store: SessionStore, size: int) -> None:
    now = db.clock()

    def run(conn: Connection) -> None:
        for number in range(size):
            place = source(number)
            key, session = store.key(place), f"s{number}"
            entry = {"session_id": session, "platform": "telegram", "chat_type": "dm", "origin": place.to_dict()}
            conn.run(ROUTE, (key, session, json.dumps(entry), now - number))
            conn.run(SESSION, (session, key, now - number, now - number, session))
            conn.run(CONVERSATION, (session, session, now))

    db.engine.write(run)


def spread(ask: Callable[[int], object], size: int) -> tuple[float, float]:
    """Median and 99th percentile of asking for a random place, in microseconds."""
    rng, took = random.Random(7), []
    for _ in range(ASKED):
        number = rng.randrange(size)
        started = time.perf_counter()
        ask(number)
        took.append(time.perf_counter() - started)
    took.sort()
    return took[ASKED // 2] * 1e6, took[ASKED * 99 // 100] * 1e6


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def measure(folder: Path, size: int) -> list[tuple[str, float, float | None, str]]:
    db = SessionDB(folder / "state.db")
    fill(db, SessionStore(folder / "sessions", GatewayConfig(), db=db), size)
    before = resident_mb()
    store = SessionStore(folder / "sessions", GatewayConfig(), db=db)
    started = time.perf_counter()
    store._ensure_loaded()
    loading = (time.perf_counter() - started) * 1e3
    floor, _ = spread(
        lambda number: db.engine.read(lambda conn: conn.rows(READ, (f"agent:main:telegram:dm:{number}",))), size
    )
    middle, worst = spread(lambda number: store.resolve(source(number)), size)
    spread(lambda number: store._entries[store.key(source(number))], size)
    grown = resident_mb() - before
    store.config.default_reset_policy = SessionResetPolicy(mode="idle", idle_minutes=60 * 24 * 30)
    started = time.perf_counter()
    assert store.due_entries() == []
    looking = (time.perf_counter() - started) * 1e3
    store.close()
    db.close()
    return [
        ("resolve a route, median", middle, 1_000, "µs"),
        ("resolve a route, 99 of 100", worst, 1_000, "µs"),
        ("… against the bare read", middle / floor, None, "×"),
        ("loading at start", loading, 5, "ms"),
        ("memory for having asked", grown, 16, "MB"),
        ("is anything due", looking, None, "ms"),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=100_000)
    size = parser.parse_args().size
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HERMES_HOME"] = folder
        lines = measure(Path(folder), size)
    print(f"{size:,} routes")
    for what, measured, target, unit in lines:
        wanted = "" if target is None else f"at most {target:,} {unit}  {'ok' if measured <= target else 'MISSED'}"
        print(f"  {what:<28}{measured:>10,.1f} {unit:<3} {wanted}".rstrip())
    return 1 if any(target is not None and measured > target for _, measured, target, _ in lines) else 0


if __name__ == "__main__":
    sys.exit(main())
