"""Check a store: its file, its single rows, and how rows fit together.

The ledger cannot leave a half-made rotation or a wrong tip; other programs that write to the same tables, old homes and
damaged disks can. Each rule is a statement that lists faulty rows (`sql/check.sql`) and, where a repair cannot lose
anything, a function that fixes one of them. `check` only reads; `fix` makes the safe repairs, in short transactions,
and leaves the rest to a person.

The files of a SQLite store are only checked by name: opening a database file beside SQLite would drop its locks.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hermes_state.columns import TITLE_CHARS
from hermes_state.conversations import chain, routes, sessions, transcript
from hermes_state.errors import StoreDamaged
from hermes_state.maintenance import retention
from hermes_state.storage.base import Connection, Row, first, set_columns
from hermes_state.storage.sqlite import SqliteEngine
from hermes_state.storage.statements import Queries, Statement
from hermes_state.turns import leases

if TYPE_CHECKING:
    from hermes_state.session_db import SessionDB


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault in the store; or, as a *note*, a harmless fact worth knowing."""

    code: str
    what: str
    fix: str
    """The remedy."""
    count: int = 1
    examples: list[str] = field(default_factory=list)
    mendable: bool = False
    note: bool = False


Q = Queries("check")

_MOST = 1_000
_EXAMPLES = 5
_GRACE = 3_600.0
_ROUNDS = 50


class CheckRule(NamedTuple):
    code: str
    what: str
    fix: str
    find: Statement
    repair: Callable[[Connection, str, float], object] | None = None
    note: bool = False


def check(db: SessionDB, *, quick: bool = False) -> list[Finding]:
    """All faults and notes; changes nothing. `quick` skips rules that read the whole file."""
    found = list(_soundness(db, quick=quick))
    if any(one.code == "damaged" for one in found):
        return found  # relations between the rows of a damaged file mean nothing
    for rule in rules():
        rows = db.engine.read(partial(_find, db=db, rule=rule))
        if rows:
            found.append(_finding(rule, rows))
    found += check_files(db)
    found += _search(db)
    return found


def fix(db: SessionDB) -> dict[str, int]:
    """Make all repairs that lose nothing; returns their number by the code of the finding."""
    fixed: dict[str, int] = {}
    for rule in rules():
        if rule.repair is None:
            continue
        # One repair may uncover the next (a chain is fixed link by link), so each rule runs until it finds nothing.
        for _ in range(_ROUNDS):
            count = db.engine.write(partial(_repair_some, db=db, rule=rule))
            if not count:
                break
            fixed[rule.code] = fixed.get(rule.code, 0) + count
    fixed |= fix_files(db)
    return fixed


def _find(conn: Connection, db: SessionDB, rule: CheckRule) -> list[Row]:
    return conn.rows(rule.find, _parameters(db, rule))


def _repair_some(conn: Connection, db: SessionDB, rule: CheckRule) -> int:
    assert rule.repair is not None
    found = _find(conn, db, rule)
    for row in found:
        rule.repair(conn, row[0], db.clock())
    return len(found)


def rules() -> tuple[CheckRule, ...]:
    """The rules in the order of their repairs: first missing rows, then links, then values derived from links."""
    return (
        CheckRule("parent-missing", "sessions name a parent that does not exist", "--fix forgets the parent",
             Q.parent_missing, _forget_parent),
        CheckRule("root-missing", "conversations have lost their first segment",
             "--fix makes the oldest remaining segment the first", Q.root_missing, _promote_oldest),
        CheckRule("chain-broken", "segments belong to a conversation that does not lead to them",
             "--fix makes each a conversation of its own", Q.chain_broken, _detach),
        CheckRule("conversation-missing", "sessions belong to a conversation that has no row", "--fix makes the row",
             Q.conversation_missing, _make_conversation),
        CheckRule("conversation-empty", "conversations have no sessions", "--fix removes the row",
             Q.conversation_empty, lambda conn, root, now: conn.run(chain.Q.delete_conversation, (root,))),
        CheckRule("half-rotation", "sessions were ended by a compression that never made a continuation",
             "--fix opens them again", Q.half_rotation, sessions.reopen),
        CheckRule("parent-open", "sessions were continued but never ended", "--fix ends them by compression",
             Q.parent_open, _close_parent),
        CheckRule("tip", "conversations point at the wrong newest segment", "--fix points them at the right one",
             Q.tip_wrong, lambda conn, root, now: chain.settle(conn, root)),
        CheckRule("listed", "conversations are listed more than once, or not at all", "--fix lists each one once",
             Q.listed_wrong, lambda conn, root, now: chain.settle(conn, root)),
        CheckRule("route-behind", "routes lead to a segment that was compressed", "--fix moves them to the newest one",
             Q.route_behind, _move_routes),
        CheckRule("counters", "sessions count fewer messages than they have", "--fix counts them again",
             Q.counters, lambda conn, session, now: _recount(conn, session)),
        CheckRule("title", f"titles are longer than {TITLE_CHARS} characters", "rename them: hermes sessions rename",
             Q.titles, note=True),
        CheckRule("route-nowhere", "routes name a session that is not stored",
             "nothing: the next message there creates it", Q.route_nowhere, note=True),
        CheckRule("turn-left", "turns were left running by a process that is gone",
             "start the gateway: it recovers them", Q.turns, note=True),
    )  # fmt: skip


def _parameters(db: SessionDB, rule: CheckRule) -> tuple[Any, ...]:
    before = db.clock() - _GRACE
    extra: dict[str, tuple[Any, ...]] = {
        "half-rotation": (before,),
        "title": (TITLE_CHARS,),
        "turn-left": (before, leases.shared_now(db)),
    }
    return (*extra.get(rule.code, ()), _MOST)


def _finding(rule: CheckRule, rows: list[Row]) -> Finding:
    examples = [str(row[0])[:80] for row in rows[:_EXAMPLES]]
    return Finding(rule.code, rule.what, rule.fix, len(rows), examples, rule.repair is not None, rule.note)


def _soundness(db: SessionDB, *, quick: bool) -> Iterator[Finding]:
    if db.engine.dialect != "sqlite":
        return  # the server checks its pages as it reads them, and its links as they are written
    try:
        told = db.engine.read(lambda conn: conn.rows(Q.quickly_sound if quick else Q.sound))
        wrong = [str(row[0]) for row in told if row[0] != "ok"]
    except StoreDamaged as error:  # so badly that the check itself fails
        wrong = [error.what]
    if wrong:
        fix = "stop Hermes and restore a backup: hermes backup list, then hermes backup restore"
        yield Finding("damaged", "the database file is damaged", fix, len(wrong), wrong[:_EXAMPLES])
        return
    yield from _foreign(db)
    links = [str(row[0]) for row in db.engine.read(lambda conn: conn.rows(Q.broken_links))]
    if links:
        fix = "export what can be read (hermes sessions export), then restore a backup"
        yield Finding("links", "rows name rows of another table that do not exist", fix, len(links), links[:_EXAMPLES])


def _foreign(db: SessionDB) -> Iterator[Finding]:
    from hermes_state.transfer import sqlite_copy

    found = db.engine.read(sqlite_copy.foreign_objects)
    if found.acting:
        what = "triggers, views or tables of another program act on our rows"
        fix = "stop Hermes and restore a backup without them: hermes backup list"
        yield Finding("foreign", what, fix, len(found.acting), found.acting[:_EXAMPLES])
    if found.inert:
        what = "tables or indexes belong to another program; Hermes does not use them"
        fix, examples = "nothing: they do no harm", found.inert[:_EXAMPLES]
        yield Finding("others", what, fix, len(found.inert), examples, note=True)


def _search(db: SessionDB) -> Iterator[Finding]:
    status = db.search_status()
    if status["note"]:
        yield Finding("index", f"the search index cannot be used: {status['note']}", "hermes state reindex", note=True)
    elif status["behind"]:
        what = "messages are not in the search index yet; searches read them from the transcript"
        yield Finding("index", what, "nothing: the next search takes them in", status["behind"], note=True)


# -- repairs of one row each ------------------------------------------------------------------------------------------


def _forget_parent(conn: Connection, session_id: str, now: float) -> None:
    set_columns(conn, "sessions", session_id, parent_session_id=None)


def _recount(conn: Connection, session_id: str) -> None:
    conn.run(Q.recount, (session_id,))
    transcript.settle_minute(conn, session_id)


def _make_conversation(conn: Connection, root: str, now: float) -> None:
    row = sessions.fetch(conn, root)
    if row is not None:
        owner, kind = sessions.owner_for(conn, row), sessions.relation(row)
        chain.found(conn, root, kind, row["parent_session_id"], owner, row["started_at"])


def _promote_oldest(conn: Connection, root: str, now: float) -> None:
    """Make the oldest remaining segment the first, and give the conversation its id."""
    heir = conn.rows(chain.Q.segments, (root,))[0][0]
    old = first(conn.rows(chain.Q.conversation, (root,)))
    conn.run(chain.Q.move_root, (heir, root))
    if old is not None:
        _, _, owner, kind, origin, began = old
        conn.run(chain.Q.delete_conversation, (root,))
        chain.found(conn, heir, kind, origin, owner, began)


def _detach(conn: Connection, session_id: str, now: float) -> None:
    """Make the segment and its continuations a separate, listed conversation."""
    row = sessions.fetch(conn, session_id)
    if row is None:
        return
    former = row["root_id"]
    links = conn.rows(chain.Q.segments, (former,))
    moving = [session_id]
    for parent in moving:
        moving += [child for child, of in links if of == parent and child not in moving and child != former]
    for segment in moving:
        set_columns(conn, "sessions", segment, root_id=session_id)
    chain.found(conn, session_id, "new", None, sessions.owner_for(conn, row), row["started_at"])
    chain.settle(conn, former)


def _close_parent(conn: Connection, session_id: str, now: float) -> None:
    conn.run(Q.close_parent, (session_id,))
    row = sessions.fetch(conn, session_id)
    if row is not None:
        chain.settle(conn, row["root_id"])


def _move_routes(conn: Connection, session_id: str, now: float) -> None:
    conn.run(routes.Q.move_routes, (chain.tip(conn, session_id), session_id))


_PARTS = ("", "-wal", "-shm")


def check_files(db: SessionDB) -> Iterator[Finding]:
    """Faults of the store's files."""
    if not isinstance(db.engine, SqliteEngine):
        return
    path = db.engine.path
    readable = [str(one) for one in _open_to_others(path)]
    if readable:
        what = "files of the store can be read by other users"
        yield Finding("mode", what, "--fix closes them", len(readable), readable[:5], mendable=True)
    size = _log_size(path)
    if size > db.limits.wal_bytes:
        what = f"the write-ahead log has {size:,} bytes, more than wal_bytes allows"
        yield Finding("log", what, "--fix empties it; if it grows again, a reader stays open for long", mendable=True)


def fix_files(db: SessionDB) -> dict[str, int]:
    """Make files private; truncate a log that is too large."""
    if not isinstance(db.engine, SqliteEngine):
        return {}
    fixed: dict[str, int] = {}
    for path in _open_to_others(db.engine.path):
        path.chmod(0o700 if path.is_dir() else 0o600)
        fixed["mode"] = fixed.get("mode", 0) + 1
    if _log_size(db.engine.path) > db.limits.wal_bytes and retention.empty_log(db):
        fixed["log"] = 1
    return fixed


def _open_to_others(path: Path) -> Iterator[Path]:
    beside = [path.with_name(f"{stem}{end}") for stem in (path.name, f"{path.stem}.search.db") for end in _PARTS]
    for one in (*beside, path.parent / "backups"):
        try:
            status = one.stat()
        except FileNotFoundError:
            continue
        if stat.S_IMODE(status.st_mode) & 0o077 and status.st_uid == os.getuid():
            yield one


def _log_size(path: Path) -> int:
    log = path.with_name(f"{path.name}-wal")
    return log.stat().st_size if log.exists() else 0
