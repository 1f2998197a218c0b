"""Finds a conversation by id or title.

Every verb takes an id, the beginning of an id, or a title. Verbs that only read, or can be undone, also take a part of
a title. `--resume` takes the beginning of a title, or of the first message of an untitled conversation. Verbs that
erase take neither, because a guess may be wrong. Several matches are listed and refused; without a match the error
names the nearest titles. Typed text is never used as a pattern, a path or SQL.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from hermes_cli.framework import output, text
from hermes_config.errors import UsageError
from hermes_state.errors import SessionNotFound
from hermes_state.ids import LOCAL_OWNER

if TYPE_CHECKING:
    from hermes_cli.framework.parser import Parser
    from hermes_state import SessionDB

_LISTED = 12
_LOOKED_AT = 500


def add_id(parser: Parser, *, many: str = "", note: str = "") -> None:
    """Add the argument ID: one conversation, or several with `many` as argparse's `nargs`."""
    if many:
        # With a default, argparse does not name an ID that may be left out among the missing arguments.
        default: list[str] | None = [] if many == "*" else None
        parser.add_argument(
            "ids", nargs=many, default=default, metavar="ID", help=f"ids, beginnings of ids, or titles{note}"
        )
    else:
        parser.add_argument("id", metavar="ID", help="an id, the beginning of an id, or a title")


def find(db: SessionDB, wanted: str, *, guess: bool = False, begins: bool = False) -> dict[str, Any]:
    """Find the session row for `wanted`. With `guess` a part of a title is enough; with `begins` its beginning.

    The id of an earlier segment gives that segment; a title, or a prefix that several segments of one conversation
    share, gives its newest segment.
    """
    exact = db.get_session(wanted)
    if exact is not None:
        return exact
    if by_title := db.sessions_by_title(wanted):  # several people may use the same title
        return _only(db, wanted, [row["id"] for row in by_title])
    rows = [row for row in map(db.get_session, db.matching_session_ids(wanted, limit=200)) if row is not None]
    if len(rows) == 1:
        return rows[0]
    if rows:
        return _only(db, wanted, {row["root_id"]: db.get_compression_tip(row["id"]) for row in rows}.values())
    titled = _titled(db, wanted)
    same = [row["id"] for row in titled if row["title"].casefold() == wanted.strip().casefold()]
    fits = [row["id"] for row in titled if guess or (begins and _begins(row["title"], wanted))]
    if same or fits:
        return _only(db, wanted, same or fits)
    if (guess or begins) and (begun := _begun_with(db, wanted)):
        return _only(db, wanted, begun)
    hint = _suggestion(db, wanted, titled)
    if not (guess or begins) and _begun_with(db, wanted):
        hint = "One without a title begins so; this command takes it by its id, which hermes sessions list shows."
    raise SessionNotFound(f"no conversation {_named(wanted)}", hint=hint)


def _titled(db: SessionDB, wanted: str) -> list[dict[str, Any]]:
    """Find conversations whose title contains the words, in any case."""
    words = wanted.strip().casefold()
    if not words or len(words) > 1_000:
        return []
    found = db.list_sessions_rich(
        search_query=wanted, order_by_last_active=True, include_archived=True, compact_rows=True, limit=_LOOKED_AT
    )
    # The store also matches ids and ignores punctuation; here only the exact words count.
    return [row for row in found if row["title"] and words in row["title"].casefold()]


def _begun_with(db: SessionDB, wanted: str) -> list[str]:
    """Find untitled conversations, which lists show by their first words."""
    if not wanted.strip():
        return []
    found = db.list_sessions_rich(order_by_last_active=True, include_archived=True, limit=_LOOKED_AT)
    return [row["id"] for row in found if not row["title"] and _begins(str(row.get("preview") or ""), wanted)]


def _begins(whole: str, wanted: str) -> bool:
    return whole.strip().casefold().startswith(wanted.strip().casefold())


def _only(db: SessionDB, wanted: str, ids: Iterable[str]) -> dict[str, Any]:
    found = [row for row in map(db.get_session, ids) if row is not None]
    if len(found) == 1:
        return found[0]
    columns = output.columns("ID", "Title…", ">Last active")
    found.sort(key=lambda row: -row["last_active"])
    rows = [(row["id"], title_of(row), text.ago(row["last_active"])) for row in found[:_LISTED]]
    print(output.table(columns, rows), file=sys.stderr)
    count = f"{len(found)}" if len(found) <= _LISTED else f"more than {_LISTED}"
    raise UsageError(f"{_named(wanted)} fits {count} conversations", hint="Give the whole id or the whole title.")


def _suggestion(db: SessionDB, wanted: str, titled: list[dict[str, Any]]) -> str:
    from difflib import get_close_matches

    near = [row["title"] for row in titled[:3]]
    if not near and len(wanted) <= 200:
        recent = db.list_sessions_rich(
            order_by_last_active=True, include_archived=True, compact_rows=True, limit=_LOOKED_AT
        )
        titles = {row["title"].casefold(): row["title"] for row in recent if row["title"]}
        near = [titles[found] for found in get_close_matches(wanted.casefold(), titles, n=3, cutoff=0.5)]
    if near:
        quoted = [f'"{title}"' for title in near]
        return f"Did you mean {' or '.join(quoted)}?"
    return "hermes sessions list shows all conversations."


def _named(wanted: str) -> str:
    return f'"{text.shorten(text.harmless(wanted), 60)}"'


def way_back(session_id: str, title: str | None) -> list[str]:
    """Return the commands that continue a conversation, by its id and by its title."""
    by_title = [f'              or: hermes --resume "{text.harmless(title)}"'] if title else []
    return [f"{output.style('Continue it with:', 'dim')} hermes --resume {text.harmless(session_id)}", *by_title]


def is_own(db: SessionDB, session_id: str) -> bool:
    """Whether only the owner reads the conversation: the owner's memory stays out of shared ones."""
    return bool(db.ledger.owner(db.get_conversation_root(session_id)) == LOCAL_OWNER)


def title_of(row: dict[str, Any]) -> str:
    """Return the title of a conversation, or its first words."""
    return row["title"] or row["preview"] or "(untitled)"
