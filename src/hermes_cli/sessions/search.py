"""`hermes sessions search`: finds messages by their words, grouped by conversation, with the matching part of each."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from hermes_cli.framework import output, text
from hermes_cli.framework.output import CommandAnswer
from hermes_cli.framework.parser import Verbs, add_offset, instant, natural
from hermes_cli.sessions import lookup
from hermes_cli.sessions.render import content_text

if TYPE_CHECKING:
    from hermes_state import SessionDB
    from hermes_state.search.search import SearchHits

_ROLES = ("user", "assistant", "tool", "system")
_LABEL = 11
_AGE = 7


def add(verbs: Verbs) -> None:
    search = verbs.add(
        "search", _search, "find messages by their words",
        "京都", "ryokan OR hotel --source {platform} --newest", "'\"no nuts\"' -C 1 --since 2w",
        db=True, json=True, limit=20,
    )  # fmt: skip
    words = 'words (all of them), "a phrase", begin*, AND, OR, NOT'
    search.add_argument("query", nargs="+", metavar="WORDS", help=words)
    add_offset(search)
    search.add_argument("--source", action="append", metavar="NAME", help="only from this source (repeatable)")
    search.add_argument("--role", action="append", choices=_ROLES, help="only of this role (repeatable)")
    search.add_argument("--since", type=instant, metavar="WHEN", help="only since 2026-11-01, or since 7d ago")
    search.add_argument("--until", type=instant, metavar="WHEN", help="only up to this date or age")
    search.add_argument("--in", dest="conversation", metavar="ID", help="only in this conversation")
    order = search.add_mutually_exclusive_group()
    for name, about in (("newest", "newest first instead of best first"), ("oldest", "oldest first")):
        order.add_argument(f"--{name}", action="store_const", dest="sort", const=name, help=about)
    around = "show N messages before and after each hit"
    search.add_argument("-C", "--context", type=natural, default=0, metavar="N", help=around)
    search.add_argument("--include-taken-back", action="store_true", help="also find undone messages")


def _search(args: argparse.Namespace, db: SessionDB) -> CommandAnswer:
    inside = None if args.conversation is None else lookup.find(db, args.conversation, guess=True)["root_id"]
    hits = db.search_messages(
        " ".join(args.query), source_filter=args.source, role_filter=args.role, limit=args.limit,
        offset=args.offset, sort=args.sort, include_inactive=args.include_taken_back, conversation=inside,
        since=args.since, until=args.until,
    )  # fmt: skip
    groups = grouped(db, hits, context=args.context)
    document = {
        "hits": list(hits),
        "index_lag": hits.index_lag,
        "unread": hits.unread,
        "cut": hits.cut,
        "index_note": hits.index_note,
    }
    notes = _how_sure(hits, full=len(hits) == args.limit)
    if not groups:
        return CommandAnswer(document, "Nothing found.", notes=notes)
    return CommandAnswer(document, drawn=lambda: results(groups, columns=output.window()), notes=notes)


def _how_sure(hits: SearchHits, *, full: bool) -> Iterator[str]:
    """Say why the results may be incomplete."""
    if hits.index_note:
        yield f"The search index cannot be used in full ({hits.index_note}); messages were read one by one instead."
    elif hits.unread:
        yield (
            f"The index is {hits.index_lag:,} messages behind; {hits.unread:,} of them, the oldest, were not searched. "
            "Search again later, or build the index now: hermes state reindex."
        )
    elif hits.index_lag:
        yield f"The index is {hits.index_lag:,} messages behind; those were read one by one."
    if hits.cut and not hits.unread:
        yield "There are too many matches to rank all of them; only the newest were ranked. --newest lists by time."
    elif full:
        yield "There may be more matches; --limit or --offset shows them."


Group = tuple[dict[str, Any], list[dict[str, Any]]]


def grouped(db: SessionDB, hits: Sequence[dict[str, Any]], *, context: int = 0) -> list[Group]:
    """Group hits by conversation, best conversation first, each with its row for lists.

    Each hit gets `context` messages `before` and `after` it.
    """
    found: dict[str, Group] = {}
    tips: dict[str, str] = {}
    for hit in hits:
        session_id = hit["session_id"]
        if session_id not in tips:
            tips[session_id] = db.get_compression_tip(session_id)
        tip = tips[session_id]
        row = found[tip][0] if tip in found else db.get_session(tip)
        if row is not None:
            found.setdefault(tip, (row, []))[1].append({**hit, **_around(db, hit, context)})
    return list(found.values())


def _around(db: SessionDB, hit: dict[str, Any], count: int) -> dict[str, list[dict[str, Any]]]:
    window = db.get_messages_around(hit["session_id"], hit["id"], count)["window"] if count else []
    shown = [message for message in window if message["active"] or message["compacted"]]
    return {
        "before": [message for message in shown if message["id"] < hit["id"]],
        "after": [message for message in shown if message["id"] > hit["id"]],
    }


def results(groups: Sequence[Group], *, columns: int | None) -> str:
    """Draw the groups; with `columns` None, lines are not cut."""
    blocks = []
    for row, hits in groups:
        title, place = text.harmless(lookup.title_of(row)), text.harmless(f" · {row['source']} · {row['id']}")
        if columns is not None:
            title = text.shorten(title, max(columns - text.width(place), 20))
        lines = [output.style(title, "bold") + output.style(place, "dim")]
        for hit in hits:
            lines += [_neighbour(message, columns) for message in hit["before"]]
            lines.append(_hit(hit, columns))
            lines += [_neighbour(message, columns) for message in hit["after"]]
        blocks.append("\n".join(lines))
    count, where = sum(len(hits) for _, hits in groups), len(groups)
    total = f"{text.counted(count, 'hit')} in {text.counted(where, 'conversation')}"
    return "\n\n".join([*blocks, output.style(total, "dim")])


def _hit(hit: dict[str, Any], columns: int | None) -> str:
    head = f"  {hit['role']:<{_LABEL}}{text.ago(hit['timestamp']):>{_AGE}}  "
    said = text.harmless(" ".join(hit["snippet"].split()))
    if columns is not None:
        room = max(columns - text.width(head), 20) + len(">>><<<")  # the signs are not shown
        said = text.cut_around(said, max(said.find(">>>"), 0), room)  # with the first match in it
    return output.style(text.harmless(head), "dim") + _marked(said)


def _neighbour(message: dict[str, Any], columns: int | None) -> str:
    head = f"  {message['role']:<{_LABEL}}{'':>{_AGE}}  "
    said = text.harmless(" ".join(content_text(message["content"]).split()) or "(no text)")
    if columns is not None:
        said = text.shorten(said, max(columns - text.width(head), 20))
    return output.style(text.harmless(head) + said, "dim")


def _marked(said: str) -> str:
    """Replace the signs >>> and <<< around matches by a colour; where there are no colours, by nothing."""
    parts = said.split(">>>")
    shown = [parts[0]]
    for part in parts[1:]:
        match, sign, rest = part.partition("<<<")
        shown.append(f"{output.style(match, 'red')}{rest}" if sign else f">>>{part}")
    return "".join(shown)
