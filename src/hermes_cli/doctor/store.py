"""What `hermes doctor` looks at in the store and around the gateway: is it sound, is anything stuck, who holds it."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_cli.doctor import fixes
from hermes_cli.doctor.fixes import Mark, Patient, Seen, ok, problem_of
from hermes_cli.framework import store, text
from hermes_config.errors import HermesError
from hermes_state.errors import ForeignHome, NotADatabase, StateError, StoreBusy, StoreDamaged

if TYPE_CHECKING:
    from hermes_state import SessionDB
    from hermes_state.maintenance.check import Finding


_MENDS = "hermes state check --fix"
_OLD_BACKUP = 30 * 86_400
_LEFT_SECONDS = 60.0
_CLOCK_SECONDS = 300.0
_MOST = 20


def database(patient: Patient) -> Iterator[Seen]:
    """Opens, is sound (SQLite's quick check), says nothing that contradicts itself; its log is not too long."""
    from hermes_state.maintenance import check

    if not patient.has_store:
        if patient.config is not None:
            yield ok("database", "there are no conversations yet")
        return
    try:
        with store.open_store() as db:
            found = check.check(db, quick=True)
            where = db.engine.where
    except ForeignHome as error:
        says = f"{error.what} ({error.where})"
        yield Seen(check="database", mark="problem", says=says, fix="hermes state upgrade --yes", advice=error.hint)
        return
    except StoreDamaged:
        yield _damaged(patient, "the database file is damaged")
        return
    except NotADatabase as error:
        yield _damaged(patient, error.what)
        return
    except HermesError as error:
        yield problem_of("database", error)
        return
    seen = [_finding(patient, one) for one in found if not _told_elsewhere(one)]
    yield from seen or [ok("database", f"{where} is sound")]


def _told_elsewhere(one: Finding) -> bool:
    """By the checks of files and turns; or it is nothing that anybody has to do something about."""
    return one.code in ("mode", "turn-left") or (one.note and one.fix.startswith("nothing:"))


def _finding(patient: Patient, one: Finding) -> Seen:
    if one.code == "damaged":
        return _damaged(patient, "the database file is damaged")
    says = f"{one.what} ({one.count:,})" if one.count > 1 else one.what
    check = {"log": "wal", "index": "search-index"}.get(one.code, "database")
    mark: Mark = "warning" if one.note or one.code == "log" else "problem"
    if one.mendable:
        return Seen(check=check, mark=mark, says=says, fix=_MENDS, mend=_mend)
    if one.code == "index":
        return Seen(check=check, mark=mark, says=says, fix="hermes state reindex", mend=_reindex)
    return Seen(check=check, mark=mark, says=says, advice=one.fix)


def _damaged(patient: Patient, what: str) -> Seen:
    from hermes_state.transfer import backup

    copies = [
        one for one in backup.existing(patient.home) if one.path.suffix == ".db" and "damaged" not in one.path.name
    ]
    says = f"{what} ({patient.database})"
    if not copies:
        fix = f"hermes gateway stop; {_aside(patient)}"
        saves = "before it, hermes sessions export rescue.zip saves what can be read."
        advice = f"There is no backup. That starts anew and deletes nothing; {saves}"
        return Seen(check="database", mark="problem", says=says, fix=fix, advice=advice)
    newest = copies[0]
    fix = f"hermes gateway stop; hermes backup restore {shlex.quote(newest.path.name)} --yes"
    advice = f"That backup was made {text.when(newest.made_at)}; what is replaced is kept."
    return Seen(check="database", mark="problem", says=says, fix=fix, advice=advice)


def _aside(patient: Patient) -> str:
    """The command that moves the database, its log and its index out of the way."""
    assert patient.database is not None
    place = patient.home / time.strftime("damaged-%Y%m%d-%H%M%S", time.gmtime())
    files = f"{shlex.quote(str(patient.database.with_suffix('')))}.*"
    return f"mkdir -m 700 {shlex.quote(str(place))} && mv {files} {shlex.quote(str(place))}"


def _mend() -> None:
    from hermes_state.maintenance import check

    with store.open_store() as db:
        check.fix(db)


def _reindex() -> None:
    with store.open_store() as db:
        db.reindex(lambda *_: None)


def clock(patient: Patient) -> Iterator[Seen]:
    """A clock that is behind what was stored: of a machine that forgets the time when it is off, most likely."""
    if not patient.has_store:
        return
    try:
        with store.open_store() as db:
            newest = db.list_sessions_rich(order_by_last_active=True, compact_rows=True, limit=1)
    except StateError:
        return  # told by the check of the database
    if newest and newest[0]["last_active"] > time.time() + _CLOCK_SECONDS:
        says = f"the clock is behind: the latest conversation was active {text.when(newest[0]['last_active'])}"
        advice = "Or it was ahead when that was stored; then only time helps, and nothing is lost."
        fix = fixes.with_rights("timedatectl set-ntp true")
        yield Seen(check="clock", mark="warning", says=says, fix=fix, advice=advice)


def turns(patient: Patient) -> Iterator[Seen]:
    """Turns that a process which is gone has left running: nobody else may work on their conversations."""
    from hermes_cli.operate import turns as cmd_turns

    if not patient.has_store:
        return
    try:
        with store.open_store() as db:
            old = time.time() - _LEFT_SECONDS
            running = [turn for turn in db.turns.list(state="running", limit=1_000) if turn.started_at < old]
            left = [turn for turn in running if cmd_turns.holder_of(db, turn) is None]
    except StateError:
        return  # told by the check of the database
    if not left:
        yield ok("turns", "none is stuck")
        return
    says = f"{text.counted(len(left), 'turn')} left unfinished by a process that is gone"
    drop = " && ".join(f"hermes turns cancel {turn.id}" for turn in left[:_MOST])
    if any(turn.route for turn in left) and _platform_is_on(patient):
        advice = f"The gateway takes them up where they were. To drop them instead: {drop}"
        yield Seen(check="turns", mark="problem", says=says, fix="hermes gateway start", advice=advice)
        return
    advice = "What it had in hand is dropped; hermes --resume with its conversation goes on with it instead."
    yield Seen(check="turns", mark="problem", says=says, fix=drop, advice=advice)


def _platform_is_on(patient: Patient) -> bool:
    from gateway.config import load_gateway_config

    return patient.config is not None and bool(load_gateway_config(patient.config).get_connected_platforms())


def deliveries(patient: Patient) -> Iterator[Seen]:
    if not patient.has_store:
        return
    try:
        with store.open_store() as db:
            dead = db.outbox.dead_letters(limit=_MOST)
            count = db.outbox.dead_count()
    except StateError:
        return  # told by the check of the database
    if not dead:
        yield ok("deliveries", "no dead letters")
        return
    says = f"{text.counted(count, 'answer')} could not be delivered: {text.harmless(dead[0].error or 'not known why')}"
    ids = " ".join(str(one.id) for one in dead)
    advice = "Look first: hermes outbox list --stuck. To give up on them: hermes outbox drop, with the same numbers."
    yield Seen(check="deliveries", mark="problem", says=says, fix=f"hermes outbox retry {ids}", advice=advice)


def gateway(patient: Patient) -> Iterator[Seen]:
    from gateway import status

    if not patient.home.is_dir():
        return
    seen = status.read_status(patient.home)
    if seen.silent:
        says = f"a gateway (process {seen.pid or '?'}) holds the lock and is silent: it hangs, or its disk does"
        yield Seen(check="gateway", mark="problem", says=says, fix="hermes gateway restart --force")
        return
    for one in seen.platforms:
        if one.problem:
            says, fix = f"{one.name}: {text.harmless(one.problem)}", f"hermes gateway setup {one.name}"
            yield Seen(check="gateway", mark="warning", says=says, fix=fix, advice="hermes logs gateway tells more.")
    waiting = 0 if seen.running else _waiting(patient)
    if waiting:
        says = f"{text.counted(waiting, 'message')} wait, and no gateway runs"
        yield Seen(check="gateway", mark="warning", says=says, fix="hermes gateway start")
    elif not any(one.problem for one in seen.platforms):
        yield ok(
            "gateway", f"runs (process {seen.pid})" if seen.running else "does not run; hermes gateway start starts it"
        )


def _waiting(patient: Patient) -> int:
    if not patient.has_store:
        return 0
    try:
        with store.open_store() as db:
            return db.inbox.queued_count()
    except StateError:
        return 0  # told by the check of the database


def backups(patient: Patient) -> Iterator[Seen]:
    from hermes_state.transfer import backup

    if patient.database is None or not patient.has_store:
        return
    newest = next((one.made_at for one in backup.existing(patient.home)), None)
    if newest is not None and time.time() - newest < _OLD_BACKUP:
        yield ok("backups", f"the newest was made {text.when(newest)}")
        return
    try:
        with store.open_store() as db:
            said = _conversations(db)
    except StateError:
        return  # told by the check of the database
    if not said:
        yield ok("backups", "nothing to back up yet")
        return
    says = "there is no backup" if newest is None else f"the newest backup is {text.ago(newest)} old"
    yield Seen(check="backups", mark="warning", says=says, fix="hermes backup create")


def _conversations(db: SessionDB) -> int:
    return db.session_count(exclude_children=True)


_PATIENCE_MS = 2_000  # a program that is well needs a fraction of that
_WRITE_LOCK = "120"  # the byte of the -shm file that SQLite locks for writing
_TABLE = Path("/proc/locks")


def writing(patient: Patient) -> Iterator[Seen]:
    from hermes_state import SessionDB

    if patient.config is None or patient.database is None or not patient.has_store:
        return
    limits = replace(patient.config.limits, write_wait_ms=_PATIENCE_MS)
    try:
        db = SessionDB(patient.database, limits=limits)
        try:
            db.engine.write(lambda _: None)
        finally:
            db.close()
    except StoreBusy:
        yield _held(patient.database)
    except StateError:
        return  # told by the check of the database
    else:
        yield ok("writing", "the database can be written")


def _held(database: Path) -> Seen:
    says = f"another program holds the database and lets nobody write ({database})"
    pid = _holder(database)
    if pid is None:
        return Seen(check="writing", mark="problem", says=says, advice=f"fuser -v {database} shows which; end it.")
    name = Path(f"/proc/{pid}/comm")
    called = name.read_text(encoding="utf-8", errors="replace").strip() if name.exists() else "a program"
    says = f"{says}: {called}, process {pid}"
    advice = "What it had not yet committed is not stored then; close it by its own means if you can."
    return Seen(check="writing", mark="problem", says=says, fix=f"kill {pid}", advice=advice)


def _holder(database: Path) -> int | None:
    """The process that the kernel names as the writer; None where it names none."""
    shared = database.with_name(f"{database.name}-shm")
    if not _TABLE.exists() or not shared.exists():
        return None
    ours = f":{shared.stat().st_ino}"
    for line in _TABLE.read_text(encoding="ascii", errors="replace").splitlines():
        words = line.split()
        if len(words) == 8 and words[3] == "WRITE" and words[5].endswith(ours) and words[6] == _WRITE_LOCK:
            return int(words[4]) if int(words[4]) > 0 else None
    return None
