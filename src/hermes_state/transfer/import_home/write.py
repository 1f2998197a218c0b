"""A survey written into a store, in one transaction.

One transaction, because then there is nothing to resume and nothing to clean up: a kill at any instant leaves the
store as it was, and a second run does all of it. (The log grows as large as the import and is given back at the next
checkpoint; other writers wait, so a big home is best brought over while nothing runs.) Ids of sessions stay; ids of
messages stay where the store has none yet that could clash, else the messages are numbered on in their order.

Sessions that the store has already are left alone, whatever they say: `compare` tells which differ.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hermes_config.home import private_open
from hermes_state import columns
from hermes_state.conversations import chain
from hermes_state.ids import LOCAL_OWNER, LOCAL_SOURCES, new_person_id
from hermes_state.storage.base import Connection, Store, scalar
from hermes_state.storage.statements import Queries
from hermes_state.transfer import tables
from hermes_state.transfer.archive_import import NO_CHAT
from hermes_state.transfer.import_home import row_mapping
from hermes_state.transfer.import_home.home_files import HomeFile
from hermes_state.transfer.import_home.scan import HomeScan, is_direct
from hermes_state.transfer.import_home.source import HomeDatabase
from hermes_state.transfer.sqlite_copy import quoted

Q = Queries("import_home")
Tick = Callable[[int, int | None], None]


@dataclass(slots=True)
class ImportOutcome:
    """What an import did."""

    sessions: int = 0
    conversations: int = 0
    messages: int = 0
    offset: int = 0
    routes: int = 0
    routes_kept: int = 0
    """Routes of ours that stood already and count."""
    people: int = 0
    usage: int = 0
    tables: dict[str, int] = field(default_factory=dict)
    columns: int = 0
    skipped: list[str] = field(default_factory=list)
    titles_taken: list[str] = field(default_factory=list)
    cut: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Difference:
    """A session that both have, and that does not say the same."""

    session_id: str
    here: int
    there: int
    how: str


def write_home(store: Store, found: HomeScan, *, routes: bool = True, tick: Tick | None = None) -> ImportOutcome:
    """Write everything; all of it is there when this returns, nothing when it raises.

    Without `routes` no chat leads to what came over, and no search for a lost route finds it.
    """

    def run(conn: Connection) -> ImportOutcome:
        done = ImportOutcome()
        fresh = _fresh(conn, found, done)
        if not routes:
            for row in fresh.values():
                row |= dict.fromkeys(row.keys() & NO_CHAT.keys() - {"user_id", "chat_type"})
        outside = _outside(conn, fresh)
        family = row_mapping.arrange(fresh, outside)
        done.cut = family.cut
        _free_taken_titles(conn, fresh, done)
        owners = _people(conn, found, done, store.clock())
        _sessions(conn, fresh, family, owners, done)
        if found.source is not None:
            _messages(conn, found.source, fresh, done, store.clock(), tick)
            _extra_columns(conn, found, fresh, done)
            _side_rows(conn, found, fresh, done, store.clock())
            _tables(conn, found, done)
        for root in {root for root in family.roots.values() if root not in fresh}:
            chain.settle(conn, root)
        if routes:
            _routes(conn, found, done)
        if found.source is not None:
            found.source.require_unchanged()
        return done

    return store.engine.write(run)


def compare(store: Store, found: HomeScan) -> list[Difference]:
    """Sessions that both have and that say different things."""
    source = found.source
    if source is None:
        return []
    known = store.engine.read(lambda conn: conn.rows(Q.known_ids, (json.dumps(list(found.sessions)),)))
    differences = []
    for (session_id,) in known:
        there = [_said(*row) for row in source.messages_of(session_id, ("role", "content"))]
        here = _stored(store, session_id)
        if here == there:
            continue
        how = "says something else"
        if here[: len(there)] == there:
            how = "went on here"
        elif there[: len(here)] == here:
            how = "went on there; the new part was not brought over"
        differences.append(Difference(session_id, len(here), len(there), how))
    return differences


def _stored(store: Store, session_id: str) -> list[tuple[str, Any]]:
    rows = store.engine.read(lambda conn: conn.rows(Q.said_in, (session_id,)))
    return [(role, columns.decode_content(content, kind)) for role, content, kind in rows]


def _said(role: object, content: object) -> tuple[str, Any]:
    text, kind = columns.encode_content(row_mapping.content(content))
    return str(role), columns.decode_content(text, kind)


# -- the parts of the transaction --------------------------------------------------------------------------------


def _fresh(conn: Connection, found: HomeScan, done: ImportOutcome) -> dict[str, dict[str, Any]]:
    known = {row[0] for row in conn.rows(Q.known_ids, (json.dumps(list(found.sessions)),))}
    done.skipped = sorted(known)
    # Copies: the transaction may be run again, and lineage cuts links in the rows.
    return {one: dict(row) for one, row in found.sessions.items() if one not in known}


def _outside(conn: Connection, fresh: dict[str, dict[str, Any]]) -> dict[str, row_mapping.ParentHere]:
    parents = {row["parent_session_id"] for row in fresh.values()} - {None} - fresh.keys()
    rows = conn.rows(Q.parents, (json.dumps(sorted(parents)),))
    return {one: row_mapping.ParentHere(root, reason) for one, root, reason in rows}


def _free_taken_titles(conn: Connection, fresh: dict[str, dict[str, Any]], done: ImportOutcome) -> None:
    """A title that one of our conversations has stays there."""
    wanted = [row["title"] for row in fresh.values() if row["title"]]
    taken = {row[0] for row in conn.rows(Q.taken_titles, (json.dumps(wanted),))}
    for row in fresh.values():
        if row["title"] in taken:
            done.titles_taken.append(row["id"])
            row["title"] = None


def _people(conn: Connection, found: HomeScan, done: ImportOutcome, now: float) -> dict[tuple[str, str], str]:
    """Everybody who had a direct chat becomes a person without rights; the local user is the owner."""
    conn.run(Q.insert_person, (LOCAL_OWNER, None, "owner", now))
    conn.run(Q.insert_identity, ("local", "owner", LOCAL_OWNER, None, now))
    owners: dict[tuple[str, str], str] = {}
    for (platform, native_id), name in found.people.items():
        known = scalar(conn.rows(Q.person_of, (platform, native_id)))
        if known is None:
            known = new_person_id()
            conn.run(Q.insert_person, (known, name, "guest", now))
            conn.run(Q.insert_identity, (platform, native_id, known, name, now))
            done.people += 1
        owners[platform, native_id] = known
    return owners


def _sessions(
    conn: Connection,
    fresh: dict[str, dict[str, Any]],
    family: row_mapping.Lineage,
    owners: dict[tuple[str, str], str],
    done: ImportOutcome,
) -> None:
    rows, conversations = [], []
    for one in family.order:
        row, root = fresh[one], family.roots[one]
        tip = family.tips.get(root)
        listed = int(tip == one and family.kinds[root] in row_mapping.LISTED)
        rows.append((*(row[name] for name in row_mapping.SESSION), root, row["last_active"], row["preview"], listed))
        if root == one:
            owner = str(LOCAL_OWNER) if row["source"] in LOCAL_SOURCES else None
            if is_direct(row):
                owner = owners.get((row["source"], row["user_id"]))
            conversations.append((one, tip, owner, family.kinds[one], row["parent_session_id"], row["started_at"]))
    if rows:
        conn.many(tables.insert(tables.named("sessions"), (*row_mapping.SESSION, *row_mapping.ADDED)), rows)
        conn.many(Q.insert_conversation, conversations)
    done.sessions, done.conversations = len(rows), len(conversations)


def _messages(
    conn: Connection,
    source: HomeDatabase,
    fresh: dict[str, dict[str, Any]],
    done: ImportOutcome,
    now: float,
    tick: Tick | None,
) -> None:
    if not fresh or not source.message_count:
        return
    highest = int(scalar(conn.rows(Q.highest_message_id)) or 0)
    done.offset = 0 if source.first_id > highest else highest + 1 - source.first_id
    if conn.dialect == "postgresql":
        conn.rows(Q.reserve_message_ids, (max(highest, source.last_id + done.offset),))
    seen = 0
    for batch in source.messages(row_mapping.MESSAGE):
        rows = [row_mapping.message(row, done.offset, now) for row in batch if row[1] in fresh]
        if rows:
            conn.many(tables.insert(tables.named("messages"), row_mapping.INSERTED), rows)
        done.messages += len(rows)
        seen += len(batch)
        if tick is not None:
            tick(seen, source.message_count)


def _extra_columns(conn: Connection, found: HomeScan, fresh: dict[str, dict[str, Any]], done: ImportOutcome) -> None:
    """Columns we have no name for, beside their rows."""
    source = found.source
    if source is None or not found.extra_columns:
        return
    kept: list[tuple[Any, ...]] = []
    names = found.extra_columns.get("sessions", [])
    for one, *extra in source.rows("sessions", ("id", *names)) if names else ():
        if one in fresh:
            kept += [(one, None, *pair) for pair in _named(names, extra)]
    names = found.extra_columns.get("messages", [])
    for batch in source.messages(("id", "session_id", *names)) if names else ():
        for one, session_id, *extra in batch:
            if session_id in fresh:
                kept += [(None, one + done.offset, *pair) for pair in _named(names, extra)]
    if kept:
        for statement in (Q.make_kept_columns, Q.index_kept_of_sessions, Q.index_kept_of_messages):
            conn.run(statement)
        conn.many(Q.insert_kept, kept)
    done.columns = len(kept)


def _named(names: list[str], extra: list[Any]) -> Iterator[tuple[str, str]]:
    """(column, value as JSON) of those that have one."""
    for name, value in zip(names, extra, strict=True):
        if value is not None:
            yield name, columns.scrub(json.dumps(value.hex() if isinstance(value, bytes) else value))


def _side_rows(
    conn: Connection, found: HomeScan, fresh: dict[str, dict[str, Any]], done: ImportOutcome, now: float
) -> None:
    """Use by model, named values, locks that still hold."""
    source = found.source
    if source is None:
        return
    if source.version >= 20 and "session_model_usage" in source.tables:
        rows = source.rows("session_model_usage", tuple(row_mapping.USAGE))
        usage = [row_mapping.usage(row) for row in rows if row[0] in fresh]
    else:
        usage = [row for row in map(row_mapping.usage_of_totals, fresh.values()) if row is not None]
    if usage:
        conn.many(Q.insert_usage, usage)
    done.usage = len(usage)
    if "state_meta" in source.tables:
        for key, value in source.rows("state_meta", ("key", "value")):
            conn.run(Q.insert_meta, (str(key), None if value is None else str(value)))
    if "compression_locks" in source.tables:
        for row in source.rows("compression_locks", ("session_id", "holder", "acquired_at", "expires_at")):
            if row[0] in fresh and columns.to_epoch(row[3], 0.0) > now:
                conn.run(Q.insert_lock, row)


def _tables(conn: Connection, found: HomeScan, done: ImportOutcome) -> None:
    """Tables that nothing of ours uses, under their own names (SQLite; see `aside` for PostgreSQL)."""
    source = found.source
    if source is None or conn.dialect != "sqlite":
        return
    ours = tables.present(conn)
    for table, count in found.extra_tables.items():
        if table in ours or not count:
            continue
        kinds = source.tables[table]
        declared = ", ".join(f"{quoted(name)} {_affinity(kind)}" for name, kind in kinds.items())
        conn.run(Q.make_table.on(quoted(table)).sqlite.replace("{columns}", declared))
        marks = ", ".join("?" for _ in kinds)
        fill = Q.fill_table.on(quoted(table)).sqlite.replace("{columns}", marks)
        conn.many(fill, source.rows(table, tuple(kinds)))
        done.tables[table] = count


def _affinity(declared: str) -> str:
    """One of SQLite's own five words for a type that somebody declared."""
    upper = declared.upper()
    for part, word in (("INT", "INTEGER"), ("CHAR", "TEXT"), ("CLOB", "TEXT"), ("TEXT", "TEXT"), ("BLOB", "BLOB")):
        if part in upper:
            return word
    return "REAL" if any(part in upper for part in ("REAL", "FLOA", "DOUB")) else "NUMERIC" if upper else "BLOB"


def _routes(conn: Connection, found: HomeScan, done: ImportOutcome) -> None:
    for route in found.routes:
        # What is here by now may have been compressed since: the route leads to where it goes on.
        tip = str(chain.tip(conn, route.session_id))
        entry = json.dumps({**route.entry, "session_id": tip}, ensure_ascii=False)
        row = (route.scope, route.session_key, tip, columns.scrub(entry), route.updated_at)
        added = conn.run(Q.insert_route, row)
        done.routes += added
        done.routes_kept += 1 - added


def keep(folder: Path, found: HomeScan, done: ImportOutcome, report: dict[str, Any]) -> list[Path]:
    """Write the files that have something to say; which ones."""
    folder.mkdir(mode=0o700, parents=True)
    written = []
    if found.set_aside:
        written.append(_write(folder / "set-aside.json", [json.dumps(found.set_aside, ensure_ascii=True, indent=1)]))
    source = found.source
    if source is not None and found.lost_messages:
        lost = (row for batch in source.messages(row_mapping.MESSAGE) for row in batch if row[1] not in found.sessions)
        lines = (_line(row_mapping.MESSAGE, row) for row in lost)
        written.append(_write(folder / "lost-messages.jsonl", lines))
    for number, (table, count) in enumerate(found.extra_tables.items() if source is not None else ()):
        if count and table not in done.tables and source is not None:
            names = tuple(source.tables[table])
            plain = "".join(char if char.isalnum() or char == "_" else "-" for char in table)[:60]
            name = f"table-{number}-{plain}.jsonl"
            written.append(_write(folder / name, (_line(names, row) for row in source.rows(table, names))))
    written.append(_write(folder / "report.json", [json.dumps(report, ensure_ascii=True, indent=1)]))
    return written


def _line(names: Iterable[str], row: Iterable[Any]) -> str:
    plain = (value.hex() if isinstance(value, bytes) else value for value in row)
    return json.dumps(dict(zip(names, plain, strict=True)), ensure_ascii=True)


def _write(path: Path, lines: Iterable[str]) -> Path:
    with private_open(path, "x") as file:
        file.writelines(f"{line}\n" for line in lines)
    return path


def facts(
    found: HomeScan,
    *,
    done: ImportOutcome | None = None,
    differences: list[Difference] | None = None,
    files: list[HomeFile] | None = None,
    unread: dict[str, str] | None = None,
) -> dict[str, Any]:
    """Everything worth knowing. Without `done` it says what would come over."""
    problems = [asdict(problem) for problem in found.problems]
    if done is not None:
        problems += [{"kind": "link", "which": one, "why": why} for one, why in done.cut.items()]
        problems += [
            {"kind": "title", "which": one, "why": "a conversation of yours has the title and keeps it"}
            for one in done.titles_taken
        ]
    if found.lost_messages:
        problems.append({"kind": "messages", "which": str(found.lost_messages), "why": "their session is not there"})
    size = 0 if found.home.database is None else found.home.database.stat().st_size
    return {
        "home": str(found.home.folder),
        "schema": found.version,
        "database_bytes": size,
        "found": {
            "sessions": len(found.sessions),
            "conversations": found.conversations(),
            "by_source": found.by_source,
            "messages": found.messages,
            "routes": len(found.routes),
            "people": len(found.people),
        },
        "brought": None if done is None else _brought(done),
        "skipped": [] if done is None else done.skipped,
        "different": [asdict(difference) for difference in differences or []],
        "problems": problems,
        "other_tables": found.extra_tables,
        "other_columns": found.extra_columns,
        "left": _left(found, files or []),
        "files": [asdict(item) for item in files or [] if not item.left],
        "unread": unread or {},
    }


def _brought(done: ImportOutcome) -> dict[str, Any]:
    return {
        "sessions": done.sessions,
        "conversations": done.conversations,
        "messages": done.messages,
        "messages_renumbered_by": done.offset,
        "routes": done.routes,
        "routes_kept": done.routes_kept,
        "people": done.people,
        "tables": done.tables,
        "columns": done.columns,
    }


def _left(found: HomeScan, files: list[HomeFile]) -> dict[str, str]:
    """What does not come, and why."""
    left = {item.name: item.left for item in files if item.left}
    if found.source is not None and found.source.indexes:
        left["full-text indexes"] = "ours are built from the messages"
    return left
