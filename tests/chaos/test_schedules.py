"""Jobs under kill -9: two gateway processes, a clock that is moved by hand, outages, and every change of a clock.

Whatever happens, at the end each instant of each schedule has exactly one outcome: a row of its own, or the one row of
a gap that says from, to and how many. The expected instants come from the oracle, not from the code that ran.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.processes import Worker
from tests.support.schedule_oracle import Days, Transition, expressions, transitions
from tests.support.stores import ENGINES, EngineName, TestStores

from hermes_agent import jobs, schedules
from hermes_agent.schedules import Schedule
from hermes_config import config as configuration
from hermes_state import SessionDB
from hermes_state.turns.jobs import Job, Occurrence

_SCRIPT = Path(__file__).parent / "workers" / "stepped_gateway.py"
_PRINTED = 8
OUTCOMES = {"answered", "silent", "failed", "missed", "unknown"}


class Pair:
    """Two gateways on one store, each of which may be dead, and the clock that both read."""

    def __init__(self, store: str | Path, folder: Path, now: int) -> None:
        self._store, self._folder, self._clock = store, folder, folder / "clock"
        self.now = now
        self._clock.write_bytes(b"%020d" % now)
        self._workers: list[Worker | None] = [None, None]
        self.kills = 0

    def set(self, now: int) -> None:
        self.now = now
        with self._clock.open("r+b", buffering=0) as file:
            file.write(b"%020d" % now)  # one write of the same length: nobody reads half of it

    @property
    def alive(self) -> bool:
        return any(self._workers)

    def start(self, number: int) -> None:
        if self._workers[number] is None:
            home = self._folder / f"home-{number}"
            made = self._workers[number] = Worker(_SCRIPT, self._store, home, self._clock)
            assert made.line() == "ready"

    def kill(self, number: int) -> None:
        worker, self._workers[number] = self._workers[number], None
        if worker is not None:
            with worker:  # and its pipes are closed
                worker.kill()
            self.kills += 1

    def close(self) -> None:
        for number in (0, 1):
            self.kill(number)


def wait_until(seen: Callable[[], bool], *, seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not seen():
        assert time.monotonic() < until, "the gateways did not get there"
        time.sleep(0.01)


def made_jobs(db: SessionDB, home: Path, wanted: list[str], transition: Transition) -> list[Job]:
    """One job for each expression, most of them reminders; each third that is seldom asks the model."""
    config, owner = configuration.load(home), db.people.owner()
    found = []
    for number, expression in enumerate(wanted):
        address = jobs.address_for(db, config, owner, None, to=f"telegram:{100 + number % 7}", any_chat=True)
        schedule = Schedule("cron", expression, transition.zone, expression)
        seldom = not expression.startswith("*") and " * * " in expression and number % 3 == 0
        task = {"prompt": f"say {number}"} if seldom else {"text": f"reminder {number}"}
        request = jobs.JobRequest(schedule=schedule, name=f"job {number}", **task)  # type: ignore[arg-type]
        found.append(jobs.make(db, config, owner, request, address))
    return found


def checked(db: SessionDB, job: Job, expected: list[int]) -> dict[str, int]:
    """Compare a job's ledger with the instants of its schedule; returns the outcomes counted."""
    left, counts = list(expected), dict.fromkeys(OUTCOMES, 0)
    for row in db.jobs.ledger(job.id, limit=10_000)[::-1]:
        assert row.outcome in OUTCOMES, (job, row)
        gone = row.about.get("missed")
        covered = [int(row.about["instant"])]
        if gone:
            covered = [at for at in expected if gone["first"] <= at <= gone["last"]]
        assert len(covered) == (gone["count"] if gone else 1), (job, row, covered)
        counts[row.outcome] += len(covered)
        for at in covered:
            assert at in left, f"{schedules.written(at)} of {job.expression} has two outcomes, or is no instant"
            left.remove(at)
        if row.outcome == "answered":
            assert row.delivery in ("sent", "pending", "sending"), (job, row)
    assert not left, f"{job.expression} {job.zone}: without an outcome: {[schedules.written(at) for at in left]}"
    return counts


def sweep(store: str | Path, folder: Path, transition: Transition, wanted: list[str], seed: int, *, hours: int) -> str:
    """Move the clock over a change of a zone's clock, with kills and outages; returns what came of it."""
    chance = random.Random(seed)
    days = Days(transition.zone, transition.instant, hours)
    end = days.end - 60
    pair = Pair(store, folder, days.start)
    db = SessionDB(store, clock=lambda: float(pair.now))
    try:
        pair.start(0)
        found = made_jobs(db, folder / "home-0", wanted, transition)
        pair.start(1)
        quiet: dict[str, list[list[float]]] = {job.id: [] for job in found}
        while pair.now < end:
            pair.set(min(end, pair.now + min(chance.choice([61, 300, 900, 3_600, 14_400]), hours * 1_200)))
            storm(pair, db, chance)
            changed(db, found, chance, pair.now, quiet)
        for number in (0, 1):
            pair.start(number)
        wait_until(lambda: is_settled(pair, db))
        wait_until(lambda: not any(row.outcome in ("waiting", "running") for row in ledger(db, found)), seconds=90.0)
        totals = dict.fromkeys(OUTCOMES, 0)
        for job in found:
            expected = [at for at in days.instants(job.expression) if days.start < at <= end]
            expected = [at for at in expected if not any(since < at <= until for since, until in quiet[job.id])]
            for outcome, count in checked(db, job, expected).items():
                totals[outcome] += count
        busy = max(found, key=lambda job: len({row.outcome for row in db.jobs.ledger(job.id, limit=_PRINTED)}))
        for row in db.jobs.ledger(busy.id, limit=_PRINTED)[::-1]:
            print(f"  {busy.expression}  {jobs.outcome_line(row)}")
        counted = ", ".join(f"{count:,} {name}" for name, count in sorted(totals.items()) if count)
        where = f"{transition.zone} {schedules.written(transition.instant)}"
        return f"{where}: {len(found)} schedules, {counted}; kill -9 ×{pair.kills}"
    finally:
        pair.close()
        db.close()


def storm(pair: Pair, db: SessionDB, chance: random.Random) -> None:
    """After a step of the clock: kill gateways wherever they are, or start some and let them settle what is due."""
    happens = chance.random() if pair.kills else 0.2
    if happens < 0.25:
        time.sleep(chance.random() * 0.05)
        pair.kill(chance.randrange(2))
        if happens < 0.08:
            pair.close()  # an outage begins
        return
    if happens < 0.6 or not pair.alive:
        pair.start(chance.randrange(2))
    if chance.random() < 0.8:
        wait_until(lambda: is_settled(pair, db))


def changed(
    db: SessionDB, found: list[Job], chance: random.Random, now: float, quiet: dict[str, list[list[float]]]
) -> None:
    """Pause, resume or remove a job while gateways settle it; `quiet`: from when until when each has no instants."""
    job = db.jobs.get(chance.choice(found).id)
    if job is None or chance.random() < 0.4:
        return
    if job.state == "paused":
        jobs.resume(db, job)
        quiet[job.id][-1][1] = now
    elif chance.random() < 0.9:
        jobs.pause(db, job)
        quiet[job.id].append([now, 1e18])
    else:
        jobs.remove(db, job)
        quiet[job.id].append([now, 1e18])


def is_settled(pair: Pair, db: SessionDB) -> bool:
    return (db.jobs.next_due() or 1e18) > pair.now


def ledger(db: SessionDB, found: list[Job]) -> list[Occurrence]:
    return [row for job in found for row in db.jobs.ledger(job.id, limit=10_000)]


def test_every_instant_has_one_outcome(
    stores: TestStores, tmp_path: Path, seed: int, pytestconfig: pytest.Config
) -> None:
    """In full (`--long`): six changes of a clock with 60 schedules each, on either engine; else one with eight."""
    full, chance = pytestconfig.getoption("--long"), random.Random(seed)
    for number, transition in enumerate(chance.sample(transitions(2027, 2028), 6 if full else 1)):
        engine: EngineName = ENGINES[(seed + number) % 2]
        folder = tmp_path / str(number)
        folder.mkdir()
        wanted = expressions(60 if full else 8, seed + number)
        said = sweep(stores.fresh(engine), folder, transition, wanted, seed + number, hours=18 if full else 2)
        print(f"{engine}: {said}")
