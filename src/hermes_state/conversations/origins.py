"""Whose words a message holds: the column `origin` of `messages`.

    person            words of the person who wrote the row (`person_id`)
    staff             words of an owner or admin
    outside:SOURCE    other people's words that a tool, a file or a forwarded message brought in
    NULL              Hermes's own words, or not known (a row from before the column, an import)

Whoever makes a row sets its origin; copies (compression, branch, archive) keep it. A delegated task and a job's
occurrence are conversations of their own, and the words of the conversation that asked for them count there, too: the
model wrote the task, so its text proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from hermes_state import columns
from hermes_state.ids import ConversationId, PersonId, TurnId
from hermes_state.storage.base import Connection, StorePart, scalar
from hermes_state.storage.statements import Queries

Q = Queries("origins")

PERSON, STAFF, OUTSIDE = "person", "staff", "outside:"
STAFF_ROLES = frozenset({"owner", "admin"})
FORWARDED = "[forwarded, written by "
"""Begins the text of a forwarded message: its words are not those of the person who sent it."""
QUOTED, SCRIPT = "[In reply to a message of ", "[Its script printed:]"
"""Begin other people's words that the model reads beside a person's (`api_content`): origins.sql looks for both."""
SEARCH = "a web search"
"""Begins the source of search results."""
_SOURCE_CHARS = 200
_PAGE, _PAGES = 50, 40
"""How many outside rows are searched for a value, and how many are in memory at a time."""
_DEPTH = 5


def outside(source: str) -> str:
    """The origin of a row with other people's words; a source is one line for people."""
    line = " ".join("".join(mark if mark.isprintable() else " " for mark in source).split())
    return f"{OUTSIDE}{line[:_SOURCE_CHARS] or 'an unnamed source'}"


def of_words(text: str, role: str) -> str:
    """The origin of a message that a person of this role sent."""
    if FORWARDED in text:
        return outside("a forwarded message")
    return STAFF if role in STAFF_ROLES else PERSON


def source_of(origin: str | None) -> str:
    """The source of outside words; empty for any other origin."""
    return origin.removeprefix(OUTSIDE) if origin is not None and origin.startswith(OUTSIDE) else ""


def inherited(origins: Iterable[str | None]) -> str | None:
    """The origin of a text that Hermes made from these rows: it never becomes a person's words."""
    sources = list(dict.fromkeys(found for origin in origins if (found := source_of(origin))))
    return outside(", ".join(sources)) if sources else None


class FirstSeen(NamedTuple):
    """The oldest row, not of the person, in which a value stands."""

    source: str
    """Empty: another person's message."""
    steps: int | None
    """How many of the model's steps ago, in this turn; None: in an earlier turn."""
    is_found: bool = True
    """False: there are more rows than are searched, and the value may stand in any of the rest."""


class Origins(StorePart):
    def trusted(self, conversation_id: ConversationId, person_id: PersonId | None) -> list[str]:
        """What staff and this person wrote in the conversation, and in those that asked for it."""

        def read(conn: Connection) -> list[str]:
            roots = columns.texts(_lineage(conn, conversation_id))
            return [
                columns.text_of(columns.decode_content(*row)) for row in conn.rows(Q.trusted, (roots, person_id or ""))
            ]

        return self._store.engine.read(read)

    def first_seen(
        self,
        conversation_id: ConversationId,
        person_id: PersonId | None,
        holds: Callable[[str, str, str], bool],
        turn_id: TurnId | None = None,
    ) -> FirstSeen | None:
        """The oldest row, not of the person, of which `holds(source, tool, text)` is true; None: in none of them."""

        def read(conn: Connection) -> FirstSeen | None:
            roots, after = columns.texts(_lineage(conn, conversation_id)), 0
            for _ in range(_PAGES):
                rows = conn.rows(Q.others, (roots, person_id or "", after, _PAGE))
                for row_id, session_id, origin, turn, tool, content, kind in rows:
                    said = columns.text_of(columns.decode_content(content, kind))
                    if holds(source_of(origin), tool or "", said):
                        now = turn is not None and turn == turn_id
                        steps = scalar(conn.rows(Q.steps_since, (session_id, turn, row_id))) if now else None
                        return FirstSeen(source_of(origin), steps)
                if len(rows) < _PAGE:
                    return None
                after = rows[-1][0]
            return FirstSeen("an earlier message", None, is_found=False)

        return self._store.engine.read(read)

    def has_outside(self, conversation_id: ConversationId) -> bool:
        """Whether the conversation, or one that asked for it, holds other people's words."""
        return self._store.engine.read(
            lambda conn: bool(conn.rows(Q.any_outside, (columns.texts(_lineage(conn, conversation_id)),)))
        )

    def in_turn(self, conversation_id: ConversationId, turn_id: TurnId) -> list[tuple[str, str]]:
        """(origin, text) of the rows of a turn that people or outside sources wrote, newest first."""
        rows = self._rows(Q.in_turn, (conversation_id, turn_id))
        return [(origin, columns.text_of(columns.decode_content(*content))) for origin, *content in rows]


def _lineage(conn: Connection, conversation_id: ConversationId) -> list[str]:
    """The conversation, and those that delegated it or made the job that it is an occurrence of."""
    found = [str(conversation_id)]
    while len(found) <= _DEPTH:
        asked = scalar(conn.rows(Q.child_parent, (found[-1],))) or scalar(conn.rows(Q.job_parent, (found[-1],)))
        if asked is None or asked in found:
            break
        found.append(asked)
    return found
