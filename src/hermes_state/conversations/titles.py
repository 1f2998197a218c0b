"""Titles: one line, unique for each owner; they move with the conversation when it is compressed.

Two people can use the same title, and neither learns of the other's. The owner of the machine searches the titles of
the whole store, and finds their own first.
"""

from __future__ import annotations

import re
from typing import Any

from hermes_state import columns
from hermes_state.conversations import chain
from hermes_state.errors import InvalidValue
from hermes_state.ids import is_possible_id
from hermes_state.storage.base import Connection, Store, first, in_transaction, scalar, set_columns
from hermes_state.storage.statements import Queries

Q = Queries("titles")

_NUMBER = re.compile(r" #(\d+)$")


class Titles(Store):
    """The part of `SessionDB` that names conversations."""

    @staticmethod
    def sanitize_title(title: str | None) -> str | None:
        return columns.sanitize_title(title)

    def set_session_title(self, session_id: str, title: str | None) -> bool:
        """Set the title; False without such a session, an error when the owner uses the title elsewhere."""
        clean = columns.sanitize_title(title, most=self.limits.title_chars)
        if not is_possible_id(session_id):
            return False
        return self.engine.write(lambda conn: set_title(conn, session_id, clean))

    @in_transaction
    def set_auto_title_if_empty(self, conn: Connection, session_id: str, title: str | None) -> bool:
        clean = columns.sanitize_title(title, most=self.limits.title_chars)
        if clean is None or not is_possible_id(session_id):
            return False
        current = first(conn.rows(Q.get, (session_id,)))
        return current is not None and current[0] is None and set_title(conn, session_id, clean)

    def get_session_title(self, session_id: str) -> str | None:
        title: str | None = self.look(session_id, lambda conn: scalar(conn.rows(Q.get, (session_id,))), None)
        return title

    def sessions_by_title(self, title: str) -> list[dict[str, Any]]:
        """All sessions with exactly this title; those of the machine's owner come first."""
        return self.look(title, lambda conn: conn.execute(Q.by_title, (title,)).dicts(), [])

    def get_next_title_in_lineage(self, base_title: str, *, beside: str | None = None) -> str:
        """`base`, or `base #N` with the next free number; a bare title counts as number 1.

        With `beside`, a session, only the titles of its owner count.
        """
        base = _NUMBER.sub("", base_title)

        def run(conn: Connection) -> str:
            pattern = f"{like(base)} #%"
            if beside is None:
                first_one, numbered = conn.rows(Q.holder, (base,)), conn.rows(Q.numbered, (pattern,))
            else:
                first_one = conn.rows(Q.holder_beside, (base, "", beside))
                numbered = conn.rows(Q.numbered_beside, (pattern, beside))
            taken = [1] if first_one else []
            for _, title, _ in numbered:
                number = _NUMBER.search(title)
                if number is not None and title[: number.start()] == base:
                    taken.append(int(number[1]))
            return f"{base} #{max(taken) + 1}" if taken else base

        return self.engine.read(run)

    def resolve_session_by_title(self, title: str) -> str | None:
        """The newest `title #…`, else the one with exactly this title."""

        def run(conn: Connection) -> str | None:
            numbered = conn.rows(Q.numbered, (f"{like(title)} #%",))
            # SQLite's LIKE ignores case; titles do not.
            same = [row for row in numbered if row[1].startswith(f"{title} #")]
            found = first(same) or first(conn.rows(Q.by_title, (title,)))
            return None if found is None else str(found[0])

        return self.look(title, run, None)


def set_title(conn: Connection, session_id: str, title: str | None) -> bool:
    """Set a sanitised title. If an earlier segment of the same conversation has it, the title moves from there."""
    if title is not None:
        if conn.dialect == "postgresql":
            conn.rows(Q.lock, (title,))
        holder = first(conn.rows(Q.holder_beside, (title, session_id, session_id)))
        if holder is not None:
            if holder[0] not in chain.ancestors(conn, session_id) or holder[1] != chain.root(conn, session_id):
                raise InvalidValue(f"Title '{title}' is already in use by session {holder[0]}")
            set_columns(conn, "sessions", holder[0], title=None)
    return set_columns(conn, "sessions", session_id, title=title)


def like(text: str) -> str:
    """`text` as a literal part of a LIKE pattern."""
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
