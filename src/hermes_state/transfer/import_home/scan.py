"""Read and check a whole home of hermes-agent before anything is written.

`--dry-run` shows a scan, `write` stores it. Sessions and routes are small and are kept in memory; messages are only
counted here and streamed when they are written. `problems` names everything that cannot be stored, with its reason;
`set_aside` holds the parts that can be saved in files, without credentials.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from hermes_state import columns
from hermes_state.conversations import transcript
from hermes_state.conversations.routes import folder_name
from hermes_state.errors import InvalidValue
from hermes_state.ids import LOCAL_SOURCES, checked_id
from hermes_state.transfer.archive_write import strip_credentials
from hermes_state.transfer.import_home import route_entry, row_mapping
from hermes_state.transfer.import_home.route_entry import text_or_none
from hermes_state.transfer.import_home.source import AgentHome, HomeDatabase

# Their tables that become ours; all others are kept unchanged.
_TAKEN = {
    "schema_version", "sessions", "messages", "session_model_usage", "state_meta", "gateway_routing",
    "compression_locks",
}  # fmt: skip
_LONG_TITLE = 1_000


@dataclass(frozen=True, slots=True)
class ImportProblem:
    """Something that cannot be imported unchanged: what, which, why."""

    kind: str
    which: str
    why: str


@dataclass(frozen=True, slots=True)
class ScannedRoute:
    scope: str
    session_key: str
    session_id: str
    entry: dict[str, Any]
    updated_at: float


@dataclass(slots=True)
class HomeScan:
    home: AgentHome
    source: HomeDatabase | None
    version: int | None = None
    sessions: dict[str, dict[str, Any]] = field(default_factory=dict)
    messages: int = 0
    lost_messages: int = 0
    """Messages whose session is missing."""
    routes: list[ScannedRoute] = field(default_factory=list)
    people: dict[tuple[str, str], str | None] = field(default_factory=dict)
    """(platform, native id) → name, of the people in direct chats."""
    extra_columns: dict[str, list[str]] = field(default_factory=dict)
    extra_tables: dict[str, int] = field(default_factory=dict)
    problems: list[ImportProblem] = field(default_factory=list)
    set_aside: dict[str, Any] = field(default_factory=dict)
    marked: int = 0

    @property
    def by_source(self) -> dict[str, int]:
        return dict(Counter(row["source"] for row in self.sessions.values()).most_common())

    def lineage(self) -> row_mapping.Lineage:
        """The sessions grouped into conversations; a copy, because links are cut in the rows."""
        return row_mapping.arrange({one: dict(row) for one, row in self.sessions.items()}, {})

    def conversations(self) -> int:
        return len(set(self.lineage().roots.values()))

    def note(self, kind: str, which: object, why: str) -> None:
        self.problems.append(ImportProblem(kind, str(which)[:120], why))


def scan_home(home: AgentHome, source: HomeDatabase | None) -> HomeScan:
    """Read everything but the messages."""
    found = HomeScan(home, source)
    if source is not None:
        found.version = source.version
        found.messages = source.message_count
        _sessions(found, source)
        _other_tables(found, source)
    index = _read_index(found)
    if source is not None and source.version < 18:
        _fill_from_index(found, index)
    _routes(found, source, index)
    _people(found)
    return found


def _sessions(found: HomeScan, source: HomeDatabase) -> None:
    activity = source.activity()
    for row in map(row_mapping.session, source.rows("sessions", tuple(row_mapping.SESSION))):
        try:
            checked_id(row["id"])
        except InvalidValue as error:
            found.note("session", row["id"], error.what)
            found.lost_messages += activity.get(row["id"], (0, None))[0]
            continue
        count, newest = activity.get(row["id"], (0, None))
        started = row["started_at"] if row["started_at"] is not None else columns.to_epoch(newest, 0.0)
        row["started_at"] = started
        row["last_active"] = columns.to_epoch(newest, started)
        row["preview"] = None
        row["message_count"] = count if row["message_count"] is None else row["message_count"]
        if row["tool_call_count"] is None:
            row["tool_call_count"] = _count_calls(source, row["id"])
        found.sessions[row["id"]] = row
    for session_id, content in source.first_user_messages():
        if session_id in found.sessions:
            found.sessions[session_id]["preview"] = columns.preview_of(row_mapping.content(content))
    found.lost_messages += sum(count for one, (count, _) in activity.items() if one not in found.sessions)
    found.marked = row_mapping.mark_old_children(found.sessions.values(), source.version)
    _titles(found)


def _count_calls(source: HomeDatabase, session_id: str) -> int:
    rows = source.messages_of(session_id, ("role", "tool_calls"))
    return sum(transcript.calls_of(str(role), calls if isinstance(calls, str) else None) for role, calls in rows)


def _titles(found: HomeScan) -> None:
    """Make titles unique: the newest session keeps one."""
    holders: dict[str, dict[str, Any]] = {}
    for row in sorted(found.sessions.values(), key=lambda row: (row["started_at"], row["id"])):
        if not row["title"]:
            row["title"] = None
            continue
        if len(row["title"]) > _LONG_TITLE:
            found.note("title", row["id"], "it was too long and was cut")
            row["title"] = row["title"][: columns.TITLE_CHARS]
        older = holders.get(row["title"])
        if older is not None:
            older["title"] = None
            found.note("title", older["id"], f"{row['id']}, which is newer, has the same title and keeps it")
        holders[row["title"]] = row


def _other_tables(found: HomeScan, source: HomeDatabase) -> None:
    ours = {"sessions": row_mapping.SESSION, "messages": row_mapping.MESSAGE}
    for table, known in ours.items():
        extra = [name for name in source.tables[table] if name not in known]
        if extra:
            found.extra_columns[table] = extra
    for table in source.tables.keys() - _TAKEN:
        found.extra_tables[table] = source.count(table)


# -- routes ------------------------------------------------------------------------------------------------------


def _read_index(found: HomeScan) -> dict[str, Any]:
    """`sessions.json` without the keys that are only for people."""
    file = found.home.sessions_file
    if file is None:
        return {}
    try:
        index = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        found.note("file", file.name, f"it cannot be read: {str(error)[:100]}")
        return {}
    if not isinstance(index, dict):
        found.note("file", file.name, "it has no index")
        return {}
    return {key: entry for key, entry in index.items() if not key.startswith("_")}


def _routes(found: HomeScan, source: HomeDatabase | None, index: dict[str, Any]) -> None:
    """The database overrides the file; where two folders have the same name, the newest entry counts."""
    stored: list[tuple[str, str, Any, str]] = []
    if source is not None and "gateway_routing" in source.tables:
        rows = source.rows("gateway_routing", ("scope", "session_key", "entry_json", "updated_at"))
        rows.sort(key=lambda row: columns.to_epoch(row[3], 0.0), reverse=True)
        for scope, key, entry, _ in rows:
            stored.append((folder_name(str(scope)), str(key), columns.decode_json(entry), "gateway_routing"))
    stored += [("sessions", key, entry, "sessions.json") for key, entry in index.items()]
    seen: set[tuple[str, str]] = set()
    tips = found.lineage()
    for scope, key, entry, file in stored:
        if (scope, key) in seen:
            continue
        try:
            written = _written(found, key, entry)
        except route_entry.BadEntry as error:
            found.note("route", key, f"in {file}: {error}")
            found.set_aside.setdefault(file, {})[key] = strip_credentials(entry)
            continue
        seen.add((scope, key))
        named = written["session_id"]
        written["session_id"] = tips.tips.get(tips.roots.get(named, ""), named)
        found.routes.append(
            ScannedRoute(scope, key, written["session_id"], written, route_entry.epoch(written["updated_at"]))
        )


def _written(found: HomeScan, key: str, entry: Any) -> dict[str, Any]:
    route_entry.session_key(key)
    try:
        return route_entry.parse(entry)
    except route_entry.BadEntry as error:
        if not str(error).startswith("origin"):
            raise
        # The origin is only needed to send the first message; the route is useful without it.
        found.note("route", key, f"kept without its origin: {error}")
        return route_entry.parse({**entry, "origin": None})


def _fill_from_index(found: HomeScan, index: dict[str, Any]) -> None:
    """Take chats' names and origins from `sessions.json`; files before schema 18 have them only there."""
    for key, entry in index.items():
        row = found.sessions.get(entry.get("session_id", "")) if isinstance(entry, dict) else None
        if row is None:
            continue
        origin = entry.get("origin") if isinstance(entry.get("origin"), dict) else {}
        row["session_key"] = row["session_key"] or key
        row["display_name"] = row["display_name"] or text_or_none(entry.get("display_name"))
        row["chat_type"] = row["chat_type"] or text_or_none(origin.get("chat_type") or entry.get("chat_type"))
        for name in ("chat_id", "thread_id", "user_id"):
            row[name] = row[name] or text_or_none(origin.get(name))
        if origin and not row["origin_json"]:
            row["origin_json"] = columns.encode_json(strip_credentials(origin))
        row["expiry_finalized"] = row["expiry_finalized"] or int(bool(entry.get("expiry_finalized")))


# -- people ------------------------------------------------------------------------------------------------------


def is_direct(row: dict[str, Any]) -> bool:
    """A chat with one known person; a chat that several can read belongs to none of them."""
    return row["source"] not in LOCAL_SOURCES and bool(row["user_id"]) and row["chat_type"] in (None, "dm")


def _people(found: HomeScan) -> None:
    for row in found.sessions.values():
        if is_direct(row):
            name = columns.decode_object(row["origin_json"]).get("user_name")
            key = (row["source"], row["user_id"])
            found.people[key] = found.people.get(key) or text_or_none(name) or row["display_name"]
