"""Run a workload once for every point at which it could be killed, and judge what each kill left behind.

    python -m tests.support.sweep WORKLOAD.py --engine sqlite
    python -m tests.support.sweep WORKLOAD.py --power-cut 1234

A workload is a Python file with `work(db, journal)`, which does each operation by `journal.do(name, fn)` and,
if it likes, `check(db, effects) -> list of complaints`. It must do the same each time: the clock is ours and
stands still but for one second an operation, and `os.urandom` is seeded.

It first runs to its end, and the content of every table is noted after each operation. Then it is run again
and again in child processes, killed (SIGKILL) at its 1st, 2nd, 3rd … point, until it completes. After each
kill another process opens the store: its content must be, table by table and column by column, what it was
before the operation in flight or what it was to be after it, and not before the last acknowledged one. So
nothing acknowledged is lost, nothing is doubled, nothing is half done; and the next write must work.

`--power-cut SEED` (SQLite only): each kill also drops a random part of what was written and not flushed
(`tests.support.lossy_disk`), drawn from the seed. With `--synchronous NORMAL` the last operations may then be
lost, as the setting says, and nothing else.

Columns the server's clock fills cannot be compared; a workload names them in `MASKED`. The search index is
derived and lies outside the comparison.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import os
import pkgutil
import random
import runpy
import shutil
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tests.support.kill_points import Points
from tests.support.lossy_disk import LossyDisk
from tests.support.stores import EngineName, TestStores, scratch

import hermes_state
from hermes_config.limits import Limits
from hermes_state.errors import StateError
from hermes_state.session_db import SessionDB
from hermes_state.storage.base import Connection
from hermes_state.storage.statements import Queries
from hermes_testing.clock import Clock

Content = dict[str, list[str]]
# Small enough that a workload of a few dozen operations meets several checkpoints.
LIMITS = Limits(checkpoint_pages=16)


class Journal:
    """What the workload tells the outside world, line by line, in a way that survives it."""

    def __init__(self, out: int, points: Points, clock: Clock, after: Callable[[], None] | None = None) -> None:
        self._out, self._points, self._clock, self._after = out, points, clock, after

    def do(self, name: str, fn: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """One operation: acknowledged when `fn` has returned."""
        self._say("started", name)
        result = fn(*args, **options)
        self._say("done", name)
        self._clock.advance(1)
        if self._after is not None:
            self._after()
        return result

    def effect(self, name: str) -> None:
        """Something happens outside that no rollback takes back."""
        self._points.reached("effect")
        self._say("effect", name)
        self._points.reached("effect")

    def _say(self, word: str, name: str) -> None:
        os.write(self._out, f"{word} {name}\n".encode())


@dataclass
class Workload:
    """The file, loaded."""

    path: Path
    work: Callable[[SessionDB, Journal], None]
    check: Callable[[SessionDB, list[str]], list[str]]
    masked: frozenset[str]
    from_nothing: bool

    @classmethod
    def load(cls, path: Path) -> Workload:
        names = runpy.run_path(str(path))
        masked = frozenset(names.get("MASKED", ())) | {"xid"}
        return cls(path, names["work"], names.get("check", _no_complaints), masked, names.get("FROM_NOTHING", False))


@dataclass(frozen=True)
class Conditions:
    """How a sweep opens the store and kills it."""

    synchronous: str = "FULL"
    power_cut: int | None = None
    """The seed of what a kill takes from the disk; None: the kernel lives on, and so does what it was given."""

    def points(self, fatal: int) -> Points:
        return Points(fatal, None if self.power_cut is None else LossyDisk(f"{self.power_cut}-{fatal}"))

    def open(self, address: str | Path, clock: Clock) -> SessionDB:
        return SessionDB(address, clock=clock, limits=LIMITS, synchronous=self.synchronous)

    @property
    def forgets(self) -> bool:
        """Whether the last operations may be lost, although they were acknowledged."""
        return self.power_cut is not None and self.synchronous == "NORMAL"


@dataclass
class Report:
    """What a sweep found."""

    points: int = 0
    kills: int = 0
    kinds: dict[str, int] = field(default_factory=dict)
    complaints: list[str] = field(default_factory=list)


def sweep(
    workload: Workload,
    engine: EngineName,
    stores: TestStores,
    conditions: Conditions,
    *,
    stride: int = 1,
    first: int = 1,
) -> Report:
    """Kill the workload at every `stride`-th point, from the `first` on."""
    _import_everything()
    fresh = _prepared(workload, engine, stores)
    contents = _contents(workload, fresh())
    to_count = fresh()
    counted = _run_child(partial(_count, workload, to_count, conditions))
    report = Report(points=int(counted["points"]), kinds=counted["kinds"])
    for fatal in range(first, report.points + 1, stride):
        address = fresh()
        lines, killed = _fork(partial(_work, workload, address, conditions, conditions.points(fatal)))
        if not killed:
            report.complaints.append(f"point {fatal}: not reached; the workload is not the same each time")
            break
        report.kills += 1
        if isinstance(address, str):
            stores.server.wait_until_left(address)
        verdict = _run_child(partial(_judge, workload, address, conditions, lines, contents))
        report.complaints += [f"point {fatal}: {complaint}" for complaint in verdict["complaints"]]
        stores.discard(address)
    return report


# -- in the children ------------------------------------------------------------


def _work(workload: Workload, address: str | Path, conditions: Conditions, points: Points, out: int) -> Points:
    points.watch()
    seeded = random.Random(7)
    os.urandom = seeded.randbytes
    clock = Clock()
    db = conditions.open(address, clock)
    workload.work(db, Journal(out, points, clock))
    db.close()
    return points


def _count(workload: Workload, address: str | Path, conditions: Conditions, out: int) -> None:
    silent = os.open(os.devnull, os.O_WRONLY)
    points = _work(workload, address, conditions, Points(), silent)
    os.write(out, json.dumps({"points": points.count, "kinds": Counter(points.met)}).encode())


def _contents(workload: Workload, address: str | Path) -> list[Content]:
    """The store's content before the first operation and after each."""

    def child(out: int) -> None:
        os.urandom = random.Random(7).randbytes
        clock, silent = Clock(), os.open(os.devnull, os.O_WRONLY)
        db = SessionDB(address, clock=clock, limits=LIMITS)
        found = [content(db, workload.masked)]
        note = Journal(silent, Points(), clock, lambda: found.append(content(db, workload.masked)))
        workload.work(db, note)
        db.close()
        with os.fdopen(out, "w", closefd=False) as file:
            json.dump(found, file)

    result: list[Content] = _run_child(child)
    return result


def _judge(
    workload: Workload, address: str | Path, conditions: Conditions, said: list[str], contents: list[Content], out: int
) -> None:
    done = sum(line.startswith("done ") for line in said)
    in_flight = said[-1].removeprefix("started ") if said and said[-1].startswith("started ") else "nothing"
    complaints = []
    try:
        db = conditions.open(address, Clock())
        found = content(db, workload.masked)
        legal = contents[0 if conditions.forgets else done : done + 2]
        if found not in legal:
            complaints.append(_difference(found, legal))
        complaints += _damage(db)
        if not conditions.forgets:
            complaints += workload.check(
                db, [line.removeprefix("effect ") for line in said if line.startswith("effect ")]
            )
        db._execute_write(lambda conn: conn.run("INSERT INTO state_meta VALUES ('after the kill', 'works')"))
        db.close()
    except StateError as error:
        complaints.append(error.one_line())
    when = f"{done} operations acknowledged, {in_flight} in flight"
    os.write(out, json.dumps({"complaints": [f"{when}: {complaint}" for complaint in complaints]}).encode())


def content(db: SessionDB, masked: frozenset[str] = frozenset()) -> Content:
    """Every row of every table of the store, as text, without the columns named in `masked`."""

    def read(conn: Connection) -> Content:
        found: Content = {}
        for (table,) in conn.rows(_TABLES[conn.dialect]):
            result = conn.execute(f'SELECT * FROM "{table}"')
            rows = ({k: v for k, v in row.items() if k not in masked} for row in result.dicts())
            found[table] = sorted(json.dumps(row, sort_keys=True, default=str) for row in rows)
        return found

    return db.engine.read(read, snapshot=True)


_TABLES = {
    "sqlite": "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'",
    "postgresql": "SELECT table_name FROM information_schema.tables"
    " WHERE table_schema = current_schema() AND table_type = 'BASE TABLE'",
}


def _difference(found: Content, legal: list[Content]) -> str:
    nearest = legal[-1]
    for table in sorted(found.keys() | nearest.keys()):
        extra = set(found.get(table, ())) - set(nearest.get(table, ()))
        missing = set(nearest.get(table, ())) - set(found.get(table, ()))
        if extra or missing:
            return f"table {table}: unexpected {sorted(extra)[:2]}, missing {sorted(missing)[:2]}"
    return "rows are doubled"


def _damage(db: SessionDB) -> list[str]:
    if db.engine.dialect != "sqlite":
        return []
    found = db.engine.read(lambda conn: conn.rows("PRAGMA integrity_check"))
    return [] if found == [("ok",)] else [f"integrity_check: {found[:3]}"]


def _no_complaints(_db: SessionDB, _effects: list[str]) -> list[str]:
    return []


# -- stores and processes ------------------------------------------------------------


def _prepared(workload: Workload, engine: EngineName, stores: TestStores) -> Callable[[], str | Path]:
    """Makes fresh addresses; the schema is there already, unless the workload wants to begin with nothing."""
    if engine == "postgresql" or workload.from_nothing:
        return lambda: stores.fresh(engine, empty=workload.from_nothing)
    model = stores.sqlite()
    _fork(lambda _out: SessionDB(model).close())

    def copy() -> Path:
        target = stores.sqlite()
        shutil.copyfile(model, target)  # nobody has it open
        return target

    return copy


def _import_everything() -> None:
    """The store imports its parts and reads its SQL at first use; done once here, no child has to do it again."""
    for module in pkgutil.walk_packages(hermes_state.__path__, "hermes_state."):
        for value in vars(importlib.import_module(module.name)).values():
            if isinstance(value, Queries):
                hasattr(value, "anything")  # which makes it read its file
    gc.freeze()  # no child's collector then touches what it shares with us, which would copy it page by page


def _run_child(fn: Callable[[int], None]) -> Any:
    """`fn(pipe)` in a process of its own; the JSON it wrote."""
    lines, killed = _fork(fn)
    if killed or not lines:
        raise RuntimeError("a child process of the sweep failed; its error stands above")
    return json.loads("\n".join(lines))


def _fork(fn: Callable[[int], Any]) -> tuple[list[str], bool]:
    """`fn(pipe)` in a forked process: the lines it wrote, and whether it was killed. We have no threads."""
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(receive)
            fn(send)
        except BaseException:  # noqa: BLE001 - boundary: nothing may return into the parent's code
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    os.close(send)
    with os.fdopen(receive, encoding="utf-8") as pipe:
        lines = pipe.read().splitlines()
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        raise RuntimeError("a child process of the sweep failed; its error stands above")
    return lines, os.WIFSIGNALED(status)


@contextmanager
def _stores() -> Iterator[TestStores]:
    with tempfile.TemporaryDirectory(prefix="hermes-sweep-", dir=scratch()) as folder:
        stores = TestStores(Path(folder))
        try:
            yield stores
        finally:
            stores.close()


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.sweep", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("workload", type=Path, help="a Python file with work(db, journal)")
    parser.add_argument("--engine", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument("--stride", type=int, default=1, metavar="N", help="kill at every N-th point only")
    parser.add_argument("--first", type=int, default=1, metavar="N", help="the first of them")
    parser.add_argument("--power-cut", type=int, metavar="SEED", help="a kill drops what was not flushed")
    parser.add_argument("--synchronous", choices=("FULL", "NORMAL", "OFF"), default="FULL", help="of SQLite")
    args = parser.parse_args(argv)
    workload = Workload.load(args.workload)
    with _stores() as stores:
        conditions = Conditions(args.synchronous, args.power_cut)
        report = sweep(workload, args.engine, stores, conditions, stride=args.stride, first=args.first)
    kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(report.kinds.items()))
    how = "killed" if args.power_cut is None else f"power cut (synchronous {args.synchronous}, seed {args.power_cut})"
    print(f"{workload.path.stem} on {args.engine}: {how} at {report.kills} of {report.points} points ({kinds})")
    for complaint in report.complaints:
        print(complaint)
    return 1 if report.complaints else 0


if __name__ == "__main__":
    sys.exit(main())
