"""Checks of the store and the gateway: a sound database, no stuck turns or deliveries, no foreign lock."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator
from pathlib import Path

from gateway import status
from gateway.config import load_gateway_config
from hermes_cli.doctor import fixes
from hermes_cli.doctor.fixes import CheckContext, CheckResult, ok, problem, problem_of, warning
from hermes_cli.framework import store, text
from hermes_cli.operate.turns import holder_of
from hermes_config.errors import HermesError
from hermes_state import SessionDB
from hermes_state.errors import ForeignHome, NotADatabase, StateError, StoreBusy, StoreDamaged
from hermes_state.maintenance import check
from hermes_state.maintenance.check import Finding
from hermes_state.transfer import backup

WRITE_WAIT_MS = 2_000
"""How long a check waits for the write lock: a healthy program holds it for a fraction of that."""
_FIX = "hermes state check --fix"
_OLD_BACKUP = 30 * 86_400
_LEFT_SECONDS = 60.0
_CLOCK_SECONDS = 300.0
_MOST = 20
_WRITE_LOCK = "120"  # the byte of the -shm file that SQLite locks for writing
_LOCKS = Path("/proc/locks")


def database(context: CheckContext) -> Iterator[CheckResult]:
    """Check that the database opens, is consistent and has no overlong write-ahead log."""
    if not context.has_store:
        if context.config is not None:
            yield ok("database", "there are no conversations yet")
        return
    try:
        if context.db is None:
            assert context.store_error is not None, "opening it has failed"
            raise context.store_error
        found = check.check(context.db, quick=True)
    except ForeignHome as error:
        new, old = shlex.quote(f"{context.home}-new"), shlex.quote(str(context.home))
        advice = (
            "This copies the home into a new one and does not change it. hermes state upgrade converts it in place"
            " instead; hermes-agent cannot use it afterwards."
        )
        fix = f"HERMES_HOME={new} hermes import hermes {old}"
        yield problem("database", f"{error.what} ({error.where})", fix, advice)
        return
    except StoreDamaged:
        yield _damaged(context, "the database file is damaged")
        return
    except NotADatabase as error:
        yield _damaged(context, error.what)
        return
    except StoreBusy as error:
        yield _held(context.database) if context.database else problem_of("writing", error)
        return
    except HermesError as error:
        yield problem_of("database", error)
        return
    results = [_finding(context, one) for one in found if not _reported_elsewhere(one)]
    yield from results or [ok("database", f"{context.db.engine.where} is sound")]


def _reported_elsewhere(one: Finding) -> bool:
    """Whether the checks of files and turns report this finding, or it needs no action."""
    return one.code in ("mode", "turn-left") or (one.note and one.fix.startswith("nothing:"))


def _finding(context: CheckContext, one: Finding) -> CheckResult:
    if one.code == "damaged":
        return _damaged(context, "the database file is damaged")
    says = f"{one.what} ({one.count:,})" if one.count > 1 else one.what
    name = {"log": "wal", "index": "search-index"}.get(one.code, "database")
    result = warning if one.note or one.code == "log" else problem
    if one.mendable:
        return result(name, says, _FIX, repair=_fix_store)
    if one.code == "index":
        return result(name, says, "hermes state reindex", repair=_reindex)
    return result(name, says, advice=one.fix)


def _damaged(context: CheckContext, what: str) -> CheckResult:
    says = f"{what} ({context.database})"
    copies = [one for one in backup.existing(context.home) if one.path.suffix == ".db"]
    copies.sort(key=lambda one: "auto-replaced" in one.path.name)  # somebody wanted another in its place
    newest = next((one for one in copies if "damaged" not in one.path.name), None)
    if newest is None:
        saves = "Run hermes sessions export rescue.zip first to save every conversation that can still be read."
        advice = f"There is no backup. This command moves the store aside and deletes nothing. {saves}"
        return problem("database", says, f"hermes gateway stop; {_aside(context)}", advice)
    fix = f"hermes gateway stop; hermes backup restore {shlex.quote(newest.path.name)} --yes"
    return problem(
        "database", says, fix, f"The backup was made {text.when(newest.made_at)}; Hermes keeps the replaced store."
    )


def _aside(context: CheckContext) -> str:
    """Return the command that moves the database, its log and its index aside."""
    assert context.database is not None
    folder = context.home / time.strftime("damaged-%Y%m%d-%H%M%S", time.gmtime())
    files = f"{shlex.quote(str(context.database.with_suffix('')))}.*"
    return f"mkdir -m 700 {shlex.quote(str(folder))} && mv {files} {shlex.quote(str(folder))}"


def _fix_store() -> None:
    with store.open_store() as db:
        check.fix(db)


def _reindex() -> None:
    with store.open_store() as db:
        db.reindex(lambda *_: None)


# -- checks of an open store -------------------------------------------------------------------------------------------


def clock(context: CheckContext, db: SessionDB) -> Iterator[CheckResult]:
    """Check for a clock behind the stored times, as on a machine without a battery for its clock."""
    newest = db.list_sessions_rich(order_by_last_active=True, compact_rows=True, limit=1)
    if newest and newest[0]["last_active"] > time.time() + _CLOCK_SECONDS:
        says = f"the clock is behind: the latest conversation was active {text.when(newest[0]['last_active'])}"
        advice = "Or the clock was ahead when that was stored; then wait, nothing is lost."
        yield warning("clock", says, fixes.with_rights("timedatectl set-ntp true"), advice)


def writing(context: CheckContext, db: SessionDB) -> Iterator[CheckResult]:
    if context.database is None:
        return
    try:
        db.engine.write(lambda _: None)
    except StoreBusy:
        yield _held(context.database)
    else:
        yield ok("writing", "nothing blocks writing to the database")


def _held(database: Path) -> CheckResult:
    says = f"another program holds the write lock of the database ({database})"
    pid = _holder(database)
    if pid is None:
        return problem("writing", says, advice=f"fuser -v {database} shows the program; stop it.")
    name = Path(f"/proc/{pid}/comm")
    called = name.read_text(encoding="utf-8", errors="replace").strip() if name.exists() else "a program"
    advice = "The program loses its uncommitted work; close it normally if you can."
    return problem("writing", f"{says}: {called}, process {pid}", f"kill {pid}", advice)


def _holder(database: Path) -> int | None:
    """Return the process that holds the write lock according to the kernel; None if unknown."""
    shared = database.with_name(f"{database.name}-shm")
    if not _LOCKS.exists() or not shared.exists():
        return None
    ours = f":{shared.stat().st_ino}"
    for line in _LOCKS.read_text(encoding="ascii", errors="replace").splitlines():
        words = line.split()
        if len(words) == 8 and words[3] == "WRITE" and words[5].endswith(ours) and words[6] == _WRITE_LOCK:
            return int(words[4]) if int(words[4]) > 0 else None
    return None


def backups(context: CheckContext, db: SessionDB) -> Iterator[CheckResult]:
    if context.database is None:
        return
    newest = next((one.made_at for one in backup.existing(context.home)), None)
    if newest is not None and time.time() - newest < _OLD_BACKUP:
        yield ok("backups", f"the newest backup was made {text.when(newest)}")
    elif not db.session_count(exclude_children=True):
        yield ok("backups", "nothing to back up yet")
    else:
        says = "there is no backup" if newest is None else f"the newest backup is {text.ago(newest)} old"
        yield warning("backups", says, "hermes backup create")


def turns(context: CheckContext, db: SessionDB) -> Iterator[CheckResult]:
    """Check for turns of dead processes: they block their conversations."""
    old = time.time() - _LEFT_SECONDS
    running = [turn for turn in db.turns.list(state="running", limit=1_000) if turn.started_at < old]
    left = [turn for turn in running if holder_of(db, turn) is None]
    if not left:
        yield ok("turns", "no turn is stuck")
        return
    says = f"{text.counted(len(left), 'turn')} left unfinished by a process that died"
    drop = " && ".join(f"hermes turns cancel {turn.id}" for turn in left[:_MOST])
    if any(turn.route for turn in left) and _platform_is_on(context):
        advice = f"The gateway recovers them. To drop them instead: {drop}"
        yield problem("turns", says, "hermes gateway start", advice)
        return
    advice = "This drops the unfinished work; hermes --resume with the id of the conversation continues it instead."
    yield problem("turns", says, drop, advice)


def _platform_is_on(context: CheckContext) -> bool:
    return context.config is not None and bool(load_gateway_config(context.config).get_connected_platforms())


def deliveries(context: CheckContext, db: SessionDB) -> Iterator[CheckResult]:
    dead = db.outbox.dead_letters(limit=_MOST)
    if not dead:
        yield ok("deliveries", "no failed deliveries")
        return
    count = text.counted(db.outbox.dead_count(), "answer")
    says = f"{count} could not be delivered: {text.harmless(dead[0].error or 'the reason is unknown')}"
    advice = "hermes outbox list --stuck shows them. To give them up: hermes outbox drop with the same numbers."
    yield problem("deliveries", says, f"hermes outbox retry {' '.join(str(one.id) for one in dead)}", advice)


def gateway(context: CheckContext) -> Iterator[CheckResult]:
    if not context.home.is_dir():
        return
    seen = status.read_status(context.home)
    if seen.silent:
        says = f"a gateway (process {seen.pid or '?'}) holds the lock but does not respond: it hangs, or its disk does"
        yield problem("gateway", says, "hermes gateway restart --force")
        return
    faulty = [one for one in seen.platforms if one.problem]
    for one in faulty:
        yield warning(
            "gateway", f"{one.name}: {text.harmless(one.problem)}", _fix_for(one), "hermes logs gateway shows more."
        )
    waiting, jobs = (0, 0) if seen.running else _left_alone(context)
    if waiting:
        says = f"no gateway runs, and messages wait: {waiting:,}"
        yield warning("gateway", says, "hermes gateway start")
    elif jobs:
        says = f"no gateway runs, so {text.counted(jobs, 'job')} will not run"
        yield warning("gateway", says, "hermes gateway start")
    elif seen.lost_at is not None:
        says = f"the gateway died {text.span(seen.at - seen.lost_at)} ago: it was killed, or the machine went down"
        yield warning("gateway", says, "hermes gateway start", "hermes logs gateway shows its last lines.")
    elif not faulty:
        runs, stopped = f"running (process {seen.pid})", "not running; hermes gateway start starts it"
        yield ok("gateway", runs if seen.running else stopped)


def _fix_for(faulty: status.PlatformStatus) -> str:
    if faulty.name != "api_server":
        return f"hermes gateway setup {faulty.name}"
    if "is taken" not in faulty.problem:
        return "hermes gateway restart"
    from hermes_cli.demo.processes import claim_port  # needed for this advice only

    port, claim = claim_port()
    claim.close()
    return f"hermes config set api_server.port {port} && hermes gateway restart"


def _left_alone(context: CheckContext) -> tuple[int, int]:
    """Count the messages and the jobs that wait for a gateway."""
    try:
        return (0, 0) if context.db is None else (context.db.inbox.queued_count(), context.db.jobs.active_count())
    except StateError:
        return 0, 0  # the check of the database reports it
