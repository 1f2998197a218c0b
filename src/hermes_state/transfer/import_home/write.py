"""Write a scan of a home into a store, in one transaction.

With one transaction there is nothing to resume or clean up: a kill at any time leaves the store unchanged, and a second
run does all of it. (The log grows as large as the import and shrinks at the next checkpoint; other writers wait, so a
big home is best imported while nothing runs.) Session ids stay; message ids stay if the store has none that could
clash, else the messages get the next numbers in their order.

Sessions that the store already has stay unchanged; `compare` finds those that differ.

`keep` saves the report and the rows that could not be stored in `<home>/import/<stamp>/`: `report.json`,
`set-aside.json` (damaged entries), `lost-messages.jsonl` (messages whose session is missing) and one `.jsonl` for each
table that the store cannot hold. All of it is private (0600), and none of it holds a credential of a routing entry.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hermes_config.home import private_open
from hermes_state import columns
from hermes_state.conversations import chain, delete, sessions
from hermes_state.people import people
from hermes_state.storage.base import Connection, Store, insert_statement, put, scalar
from hermes_state.storage.statements import Queries
from hermes_state.transfer import kept, tables
from hermes_state.transfer.archive_import import NO_CHAT
from hermes_state.transfer.import_home import row_mapping
from hermes_state.transfer.import_home.home_files import HomeFile
from hermes_state.transfer.import_home.scan import HomeScan
from hermes_state.transfer.import_home.source import HomeDatabase
from hermes_state.transfer.tables import quoted

Q = Queries("import_home")
_BROUGHT = (
    "sessions", "conversations", "messages", "offset", "routes", "routes_kept", "people", "tables", "columns",
)  # fmt: skip
_SAID = {"offset": "messages_renumbered_by"}
Tick = Callable[[int, int | None], None]


@dataclass(slots=True)
class ImportOutcome:
    """The result of an import."""

    sessions: int = 0
    conversations: int = 0
    messages: int = 0
    offset: int = 0
    routes: int = 0
    routes_kept: int = 0
    """Routes that our store already had, which stay."""
    people: int = 0
    tables: dict[str, int] = field(default_factory=dict)
    columns: int = 0
    skipped: list[str] = field(default_factory=list)
    titles_taken: list[str] = field(default_factory=list)
    cut: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Difference:
    """A session that both have with different messages."""

    session_id: str
    here: int
    there: int
    how: str


def write_home(store: Store, found: HomeScan, *, routes: bool = True, tick: Tick | None = None) -> ImportOutcome:
    """Write everything: all of it is stored when this returns, nothing when it raises.

    Without `routes` no chat leads to the imported conversations, and no search for a lost route finds them.
    """
    return store.engine.write(lambda conn: _ImportTransaction(store, conn, found, tick).run(routes=routes))


def compare(store: Store, found: HomeScan) -> list[Difference]:
    """Sessions that both have with different messages."""
    source = found.source
    if source is None:
        return []
    known = store.engine.read(lambda conn: conn.rows(delete.Q.among, (json.dumps(list(found.sessions)),)))
    differences = []
    for (session_id,) in known:
        there = [_said(*row) for row in source.messages_of(session_id, ("role", "content"))]
        here = _stored(store, session_id)
        if here == there:
            continue
        how = "has other messages"
        if here[: len(there)] == there:
            how = "was continued here"
        elif there[: len(here)] == here:
            how = "was continued there; the new part was not imported"
        differences.append(Difference(session_id, len(here), len(there), how))
    return differences


def _stored(store: Store, session_id: str) -> list[tuple[str, Any]]:
    rows = store.engine.read(lambda conn: conn.rows(Q.said_in, (session_id,)))
    return [(role, columns.decode_content(content, kind)) for role, content, kind in rows]


def _said(role: object, content: object) -> tuple[str, Any]:
    text, kind = columns.encode_content(row_mapping.content(content))
    return str(role), columns.decode_content(text, kind)


# -- the transaction -----------------------------------------------------------------------------------------------


class _ImportTransaction:
    """One run of the transaction; on a retry the engine needs a new one."""

    def __init__(self, store: Store, conn: Connection, found: HomeScan, tick: Tick | None) -> None:
        self._store, self._conn, self._found, self._tick = store, conn, found, tick
        self._now = store.clock()
        self._done = ImportOutcome()
        known = {row[0] for row in conn.rows(delete.Q.among, (json.dumps(list(found.sessions)),))}
        self._done.skipped = sorted(known)
        # Copies: links are cut in the rows.
        self._fresh = {one: dict(row) for one, row in found.sessions.items() if one not in known}

    def run(self, *, routes: bool) -> ImportOutcome:
        if not routes:
            for row in self._fresh.values():
                row |= dict.fromkeys(row.keys() & NO_CHAT.keys() - {"user_id", "chat_type"})
        family = row_mapping.arrange(self._fresh, self._parents_here())
        self._done.cut = family.cut
        self._free_taken_titles()
        self._people()
        self._sessions(family)
        source = self._found.source
        if source is not None:
            self._messages(source)
            self._extra_columns(source)
            self._usage(source)
            self._named_values_and_locks(source)
            if self._conn.dialect == "sqlite":
                self._tables(source)
        for root in {root for root in family.roots.values() if root not in self._fresh}:
            chain.settle(self._conn, root)
        if routes:
            self._routes()
        if source is not None:
            source.require_unchanged()
        return self._done

    def _parents_here(self) -> dict[str, row_mapping.ParentHere]:
        parents = {row["parent_session_id"] for row in self._fresh.values()} - {None} - self._fresh.keys()
        rows = self._conn.rows(Q.parents, (json.dumps(sorted(parents)),))
        return {one: row_mapping.ParentHere(root, reason) for one, root, reason in rows}

    def _free_taken_titles(self) -> None:
        """Our conversation keeps a title that both have."""
        wanted = [row["title"] for row in self._fresh.values() if row["title"]]
        taken = {row[0] for row in self._conn.rows(Q.taken_titles, (json.dumps(wanted),))}
        for row in self._fresh.values():
            if row["title"] in taken:
                self._done.titles_taken.append(row["id"])
                row["title"] = None

    def _people(self) -> None:
        """Make everybody with a direct chat a person without rights; the local user is the owner."""
        known = people.People(self._store)
        known.owner_in(self._conn)
        for (platform, native_id), name in self._found.people.items():
            key = (platform, "", native_id)
            self._done.people += not self._conn.rows(people.Q.by_identity, key)
            known.ensure_in(self._conn, key, name, "guest")

    def _sessions(self, family: row_mapping.Lineage) -> None:
        rows, conversations = [], []
        for one in family.order:
            row, root = self._fresh[one], family.roots[one]
            tip = family.tips.get(root)
            row |= {"root_id": root, "listed": int(tip == one and family.kinds[root] in row_mapping.LISTED)}
            rows.append(tuple(row[name] for name in (*row_mapping.SESSION, *row_mapping.ADDED)))
            if root == one:
                owner = sessions.owner_for(self._conn, row)
                conversations.append((one, tip, owner, family.kinds[one], row["parent_session_id"], row["started_at"]))
        if rows:
            names = (*row_mapping.SESSION, *row_mapping.ADDED)
            self._conn.many(insert_statement("sessions", names), rows)
            names = ("id", "tip_id", "owner_id", "origin_kind", "origin_session_id", "created_at")
            self._conn.many(insert_statement("conversations", names), conversations)
        self._done.sessions, self._done.conversations = len(rows), len(conversations)

    def _messages(self, source: HomeDatabase) -> None:
        if not self._fresh or not source.message_count:
            return
        conn, done = self._conn, self._done
        highest = int(scalar(conn.rows(Q.highest_message_id)) or 0)
        done.offset = 0 if source.first_id > highest else highest + 1 - source.first_id
        if conn.dialect == "postgresql":
            conn.rows(Q.reserve_message_ids, (max(highest, source.last_id + done.offset),))
        insert = insert_statement("messages", row_mapping.INSERTED)
        seen = 0
        for batch in source.messages(row_mapping.MESSAGE):
            rows = [row_mapping.message(row, done.offset, self._now) for row in batch if row[1] in self._fresh]
            if rows:
                conn.many(insert, rows)
            done.messages += len(rows)
            seen += len(batch)
            if self._tick is not None:
                self._tick(seen, source.message_count)

    def _extra_columns(self, source: HomeDatabase) -> None:
        """Store unknown columns beside their rows."""
        found: list[tuple[Any, ...]] = []
        names = self._found.extra_columns.get("sessions", [])
        for one, *extra in source.rows("sessions", ("id", *names)) if names else ():
            if one in self._fresh:
                found += [(one, None, *pair) for pair in _named(names, extra)]
        names = self._found.extra_columns.get("messages", [])
        for batch in source.messages(("id", "session_id", *names)) if names else ():
            for one, session_id, *extra in batch:
                if session_id in self._fresh:
                    found += [(None, one + self._done.offset, *pair) for pair in _named(names, extra)]
        if found:
            kept.make_columns(self._conn)
            self._conn.many(kept.Q.insert_column, found)
        self._done.columns = len(found)

    def _usage(self, source: HomeDatabase) -> None:
        if source.version >= 20 and "session_model_usage" in source.tables:
            rows = source.rows("session_model_usage", tuple(row_mapping.USAGE))
            usage = [row_mapping.usage(row) for row in rows if row[0] in self._fresh]
        else:
            usage = [row for row in map(row_mapping.usage_of_totals, self._fresh.values()) if row is not None]
        if usage:
            self._conn.many(insert_statement("session_model_usage", row_mapping.USAGE, skip_known=True), usage)

    def _named_values_and_locks(self, source: HomeDatabase) -> None:
        if "state_meta" in source.tables:
            for key, value in source.rows("state_meta", ("key", "value")):
                put(self._conn, "state_meta", {"key": str(key), "value": None if value is None else str(value)})
        if "compression_locks" in source.tables:
            names = ("session_id", "holder", "acquired_at", "expires_at")
            for row in source.rows("compression_locks", names):
                if row[0] in self._fresh and columns.to_epoch(row[3], 0.0) > self._now:
                    put(self._conn, "compression_locks", dict(zip(names, row, strict=True)))

    def _tables(self, source: HomeDatabase) -> None:
        """Store unknown tables under their own names (SQLite; elsewhere `keep` writes them to files)."""
        ours = tables.present(self._conn)
        for table, count in self._found.extra_tables.items():
            if table in ours or not count:
                continue
            kinds = source.tables[table]
            declared = ", ".join(f"{quoted(name)} {_affinity(kind)}" for name, kind in kinds.items())
            self._conn.run(Q.make_table.on(quoted(table)).sqlite.replace("{columns}", declared))
            fill = Q.fill_table.on(quoted(table)).sqlite.replace("{columns}", ", ".join("?" for _ in kinds))
            self._conn.many(fill, source.rows(table, tuple(kinds)))
            self._done.tables[table] = count

    def _routes(self) -> None:
        for route in self._found.routes:
            # The session may have been compressed here since: the route leads to its newest segment.
            tip = str(chain.tip(self._conn, route.session_id))
            entry = json.dumps({**route.entry, "session_id": tip}, ensure_ascii=False)
            row = {
                "scope": route.scope, "session_key": route.session_key, "session_id": tip,
                "entry_json": columns.scrub(entry), "updated_at": route.updated_at,
            }  # fmt: skip
            added = put(self._conn, "routes", row)
            self._done.routes += added
            self._done.routes_kept += 1 - added


def _named(names: list[str], extra: list[Any]) -> Iterator[tuple[str, str]]:
    """(column, value as JSON) of the columns with a value."""
    for name, value in zip(names, extra, strict=True):
        if value is not None:
            yield name, columns.scrub(json.dumps(value.hex() if isinstance(value, bytes) else value))


def _affinity(declared: str) -> str:
    """One of SQLite's five type names for a declared type."""
    upper = declared.upper()
    for part, word in (("INT", "INTEGER"), ("CHAR", "TEXT"), ("CLOB", "TEXT"), ("TEXT", "TEXT"), ("BLOB", "BLOB")):
        if part in upper:
            return word
    return "REAL" if any(part in upper for part in ("REAL", "FLOA", "DOUB")) else "NUMERIC" if upper else "BLOB"


# -- files beside the store, and the report ----------------------------------------------------------------------------


def keep(folder: Path, found: HomeScan, done: ImportOutcome, report: dict[str, Any]) -> list[Path]:
    """Write the files that have content; returns their names."""
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
    """The whole report. Without `done` it says what an import would do."""
    problems = [asdict(problem) for problem in found.problems]
    if done is not None:
        problems += [{"kind": "link", "which": one, "why": why} for one, why in done.cut.items()]
        problems += [
            {"kind": "title", "which": one, "why": "one of your conversations has the title and keeps it"}
            for one in done.titles_taken
        ]
    if found.lost_messages:
        problems.append({"kind": "messages", "which": str(found.lost_messages), "why": "their session is missing"})
    left = {item.name: item.left for item in files or [] if item.left}
    if found.source is not None and found.source.indexes:
        left["full-text indexes"] = "Hermes builds its own from the messages"
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
        "brought": None if done is None else {_SAID.get(name, name): getattr(done, name) for name in _BROUGHT},
        "skipped": [] if done is None else done.skipped,
        "different": [asdict(difference) for difference in differences or []],
        "problems": problems,
        "other_tables": found.extra_tables,
        "other_columns": found.extra_columns,
        "left": left,
        "files": [asdict(item) for item in files or [] if not item.left],
        "unread": unread or {},
    }
