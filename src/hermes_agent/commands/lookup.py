"""Finds the conversation that a command means: this chat's, or one of the person's own.

Nobody sees, or learns the existence of, another person's conversation: every lookup goes through the store's owner
filter, and a conversation of somebody else is treated as missing. The owner at the terminal UI is the one exception:
its list shows every conversation of the store, and commands there find each of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hermes_agent.commands.base import STAFF, CommandContext
from hermes_agent.text import ago, named
from hermes_state.ids import ConversationId, PersonId, SessionId

if TYPE_CHECKING:
    from hermes_state import SessionDB
    from hermes_state.people.people import Person
    from hermes_state.turns.processes import ProcessRow

_LOOKED_AT = 200


def here(ctx: CommandContext) -> SessionId | None:
    """The newest segment of this chat's conversation; another process may have compressed it meanwhile."""
    session_id = ctx.session_id
    return None if session_id is None else SessionId(ctx.db.get_compression_tip(session_id))


def background(ctx: CommandContext) -> list[ProcessRow]:
    """The running background processes of this conversation that the person may end. Blocks."""
    if ctx.session_id is None:
        return []
    root = ConversationId(ctx.db.get_conversation_root(ctx.session_id))
    found = [row for row in ctx.db.processes.of_conversation(root) if row.running]
    return [row for row in found if ctx.person.role in STAFF or row.person_id == ctx.person.id]


def still_running(running: list[ProcessRow]) -> str:
    """The sentence about background processes of a conversation that a person leaves; empty without any."""
    ids = ", ".join(row.id for row in running)
    return f" Background processes of the old one keep running: {ids}." if running else ""


def owner_filter(ctx: CommandContext) -> PersonId | None:
    """The person whose conversations a command here can name; None: everybody's."""
    return None if ctx.surface == "tui" and ctx.person.role == "owner" else ctx.person.id


def newest(db: SessionDB, owner: PersonId | None, *, words: str = "", limit: int) -> list[dict[str, Any]]:
    """The conversations this person owns alone, newest activity first; `words` filters by title or id, and finds the
    runs of scheduled jobs, too."""
    return db.list_sessions_rich(
        owner=owner,
        exclude_sources=None if words else ["cron"],
        search_query=words or None,
        order_by_last_active=True,
        compact_rows=True,
        min_message_count=1,
        limit=limit,
    )


def matching(db: SessionDB, person: Person, wanted: str, *, owner: PersonId | None) -> list[dict[str, Any]]:
    """The best matches of `wanted` among the `owner`'s conversations: by id or whole title, number in the person's
    list, beginning of an id, part of a title, or first words of an untitled conversation."""
    found = newest(db, owner, words=wanted, limit=_LOOKED_AT)
    root = db.get_conversation_root(wanted)
    words = wanted.casefold()
    exact = [row for row in found if row["root_id"] == root or (row["title"] or "").casefold() == words]
    if exact:
        return exact
    if wanted.isdecimal() and len(wanted) < 4:
        listed = _numbered(db, person)
        place = int(wanted)
        if 0 < place <= len(listed):
            return [listed[place - 1]]
    by_id = [row for row in found if row["id"].startswith(wanted)]
    by_title = [row for row in found if words in (row["title"] or "").casefold()]
    if by_id or by_title or wanted.isdecimal():
        return by_id or by_title
    untitled = [row for row in newest(db, owner, limit=_LOOKED_AT) if not row["title"]]
    return [row for row in untitled if " ".join(row["preview"].split()).casefold().startswith(words)]


def listing(db: SessionDB, person: Person, rows: list[dict[str, Any]], *, here: str | None) -> str:
    """One line a conversation, with the number that `matching` accepts; the conversation of this chat is marked."""
    places = {row["root_id"]: at for at, row in enumerate(_numbered(db, person), start=1)}
    lines, now = [], db.clock()
    for row in rows:
        mark = "▸" if row["root_id"] == here else " "
        place = f"{places[row['root_id']]:>2}." if row["root_id"] in places else "  ·"
        lines.append(f"{mark}{place} {named(row)} · {row['source']} · {ago(row['last_active'], now)} · {row['id']}")
    return "\n".join(lines)


def _numbered(db: SessionDB, person: Person) -> list[dict[str, Any]]:
    """The numbered conversations: the person's newest."""
    return newest(db, person.id, limit=db.limits.listed_conversations)
