"""Finding conversations: lists, counts, ids by prefix, and the newest segment of any segment.

A list shows one row per conversation however often it was compressed: its tip, with last activity, counts, preview and
title, and the start time of its root. The column `listed` marks that row, so a list is one indexed query whatever the
number of conversations.
"""

from __future__ import annotations

import re
from typing import Any

from hermes_state import columns
from hermes_state.conversations import chain
from hermes_state.conversations.titles import like
from hermes_state.storage.base import Connection, Store, scalar
from hermes_state.storage.statements import Queries, Statement

Q = Queries("lists")

_LISTED_KINDS = "('new', 'branch', 'reset')"
_NEWEST = "t.active_minute DESC, t.last_active DESC"  # in the index's order, then exactly


class Lists(Store):
    """The part of `SessionDB` that finds conversations."""

    def list_sessions_rich(
        self,
        source: str | None = None,
        exclude_sources: list[str] | None = None,
        cwd_prefix: str | None = None,
        limit: int = 20,
        offset: int = 0,
        include_children: bool = False,
        min_message_count: int = 0,
        project_compression_tips: bool = True,
        order_by_last_active: bool = False,
        include_archived: bool = False,
        archived_only: bool = False,
        id_query: str | None = None,
        search_query: str | None = None,
        compact_rows: bool = False,
        owner: str | None = None,
    ) -> list[dict[str, Any]]:
        """Session columns plus preview and last_active; one row per conversation unless the options say otherwise."""
        projected = project_compression_tips and not include_children
        where = _Where("r" if projected else "t", source, exclude_sources, cwd_prefix, min_message_count)
        where.archived(include_archived, archived_only)
        if owner is not None:
            where.add("t.root_id IN (SELECT id FROM conversations WHERE owner_id = ?)", owner)
        if order_by_last_active:
            where.chain_has(id_query, titles=False)
            where.chain_has(search_query, titles=True)
        if projected:
            statement = Q.by_activity if order_by_last_active else Q.by_start
            where.add("t.listed = 1")
        elif include_children:
            statement = Q.all_rows
        else:
            statement = Q.raw_roots
            where.add(f"c.origin_kind IN {_LISTED_KINDS}")
        start = "r.started_at" if projected else "t.started_at"
        order = f"{_NEWEST}, t.id DESC" if order_by_last_active else f"{start} DESC, t.id DESC"
        sql, params = where.apply(statement)
        page = (f"{sql} ORDER BY {order} LIMIT ? OFFSET ?", (*params, max(limit, 0), max(offset, 0)))
        rows = self.engine.read(lambda conn: conn.execute(*page).dicts())
        return [shown(row, compact=compact_rows) for row in rows]

    def session_count(
        self,
        source: str | None = None,
        cwd_prefix: str | None = None,
        min_message_count: int = 0,
        include_archived: bool = False,
        archived_only: bool = False,
        exclude_children: bool = False,
        exclude_sources: list[str] | None = None,
    ) -> int:
        plain = not (source or cwd_prefix or min_message_count or exclude_children or exclude_sources)
        if plain and not include_archived and not archived_only:
            return int(scalar(self.engine.read(lambda conn: conn.rows(Q.count_all))))
        where = _Where("t", source, exclude_sources, cwd_prefix, min_message_count)
        where.archived(include_archived, archived_only)
        if exclude_children:
            where.add("t.listed = 1")
        return int(scalar(self.engine.read(lambda conn: conn.rows(*where.apply(Q.count)))))

    # -- find a session by a person's input or by an old id ------------------------------------------------

    def resolve_session_id(self, session_id_or_prefix: str) -> str | None:
        """The session with this id, or the only one whose id has this prefix."""
        found = self.matching_session_ids(session_id_or_prefix, limit=2)
        return found[0] if len(found) == 1 else None

    def matching_session_ids(self, prefix: str, limit: int = 20) -> list[str]:
        """The exact id alone, or all ids with this prefix."""

        def run(conn: Connection) -> list[str]:
            if chain.root(conn, prefix) is not None:
                return [prefix]
            return [row[0] for row in conn.rows(Q.by_prefix, (prefix, prefix + "\U0010ffff", limit))]

        return self.look(prefix, run, [])

    def get_compression_tip(self, session_id: str) -> str:
        return self.look(session_id, lambda conn: chain.tip(conn, session_id), session_id, snapshot=True)

    def get_compression_lineage(self, session_id: str) -> list[str]:
        """The segments of the conversation, root to tip."""
        return self.look(session_id, lambda conn: chain.lineage(conn, session_id), [], snapshot=True)

    def get_conversation_root(self, session_id: str) -> str:
        return self.look(session_id, lambda conn: chain.root(conn, session_id), None) or session_id

    def resolve_resume_session_id(self, session_id: str) -> str:
        """The segment to resume for somebody who asks for `session_id`."""
        return self.look(session_id, lambda conn: chain.resume_point(conn, session_id), session_id, snapshot=True)


class _Where:
    """Conditions of a query: fixed fragments, with every value as a parameter."""

    def __init__(
        self, table: str, source: str | None, excluded: list[str] | None, folder: str | None, least_messages: int
    ) -> None:
        """Start with the filters that every list has; `table` is the one with the source."""
        self._fragments: list[str] = []
        self._params: list[Any] = []
        if source:
            self.add(f"{table}.source = ?", columns.clean(source))
        for name in excluded or ():
            self.add(f"{table}.source <> ?", columns.clean(name))
        if folder:
            self.add("t.cwd LIKE ? ESCAPE '\\'", like(columns.clean(folder)) + "%")
        if least_messages > 0:
            self.add("t.message_count >= ?", least_messages)

    def add(self, fragment: str, *params: Any) -> None:
        self._fragments.append(fragment)
        self._params += params

    def archived(self, include: bool, only: bool) -> None:
        if only:
            self.add("t.archived <> 0")
        elif not include:
            self.add("t.archived = 0")

    def chain_has(self, query: str | None, *, titles: bool) -> None:
        """Require that a segment's id (or title) contains the words, punctuation aside."""
        wanted = columns.clean(query or "").strip().lower()
        if not wanted:
            return
        patterns = {wanted, re.sub(r"[^\w]+", " ", wanted).strip()} - {""}
        searched = ("s.id", "s.title") if titles else ("s.id",)
        tests = [f"lower({column}) LIKE ? ESCAPE '\\'" for column in searched for _ in patterns]
        self.add(
            f"EXISTS (SELECT 1 FROM sessions s WHERE s.root_id = t.root_id AND ({' OR '.join(tests)}))",  # noqa: S608 - fixed
            *(f"%{like(pattern)}%" for _ in searched for pattern in patterns),
        )

    def apply(self, statement: Statement) -> tuple[str, list[Any]]:
        base = statement.sqlite
        return (f"{base} WHERE {' AND '.join(self._fragments)}" if self._fragments else base), self._params


def shown(row: dict[str, Any], *, compact: bool = False) -> dict[str, Any]:
    """A row for people and tools: the conversation starts when its root did."""
    if "root_started_at" in row:
        row["started_at"] = row.pop("root_started_at")
        row["source"] = row.pop("root_source")
    row["_lineage_root_id"] = row["root_id"] if row["root_id"] != row["id"] else None
    row["preview"] = row["preview"] or ""
    if compact:
        row.pop("system_prompt", None)
    return row
