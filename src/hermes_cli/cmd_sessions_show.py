"""`hermes sessions show` and `lineage`: one conversation, read as text or seen as a tree."""

from __future__ import annotations

import argparse
import shutil
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from hermes_cli import finding, lineage_view, output, store, text, transcript_view
from hermes_cli.parser import Verbs, add_json, positive
from hermes_state.errors import SessionNotFound

if TYPE_CHECKING:
    from hermes_state import SessionDB
    from hermes_state.conversations.lineage import Family, Member

_PIPE_FOLD = 100


def add(verbs: Verbs) -> None:
    show = verbs.add(
        "show",
        _show,
        help="print the transcript of a conversation",
        example="""hermes sessions show "Trip to Kyoto"
                   hermes sessions show 20261109 --lineage
                   hermes sessions show kyoto --full --limit 10""",
    )
    show.add_argument("id", metavar="ID", help="an id, the beginning of one, or a title")
    show.add_argument("-n", "--limit", type=positive, metavar="N", help="only the newest N messages")
    show.add_argument("--full", action="store_true", help="show tool calls and their results whole")
    show.add_argument("--lineage", action="store_true", help="from the first segment on, not only the named one")
    show.add_argument("--include-taken-back", action="store_true", help="show undone and summarised messages too")
    add_json(show)
    lineage = verbs.add(
        "lineage",
        _lineage,
        help="draw the tree of a conversation",
        example="""hermes sessions lineage "Trip to Kyoto"
                   hermes sessions lineage 20261109 --json""",
    )
    lineage.add_argument("id", metavar="ID", help="an id, the beginning of one, or a title")
    add_json(lineage)


def _show(args: argparse.Namespace) -> None:
    with store.open_store() as db:
        named = finding.find(db, args.id, guess=True)
        path = db.get_compression_lineage(named["id"]) or [named["id"]]
        wanted = path if args.lineage else [named["id"]]
        segments = [_segment(db, session_id, inactive=args.include_taken_back) for session_id in wanted]
        named["title"] = named["title"] or db.get_session_title(path[-1])  # a compression takes the title along
    if args.limit:
        _keep_newest(segments, args.limit)
    if args.json:
        output.print_json({"conversation": named["root_id"], "title": named["title"], "segments": segments})
        return
    columns = shutil.get_terminal_size().columns if output.is_terminal() else _PIPE_FOLD
    blocks = [_header(named, path)]
    for segment in segments:
        if args.lineage and len(path) > 1:
            blocks.append(_rule(segment, path))
        said = transcript_view.transcript(segment["messages"], full=args.full, columns=columns)
        blocks.append(said or output.style("(no messages)", "dim"))
    output.page("\n\n".join(blocks))


def _segment(db: SessionDB, session_id: str, *, inactive: bool) -> dict[str, Any]:
    row = db.get_session(session_id)
    if row is None:  # deleted by somebody else while we were looking
        raise SessionNotFound(f"session {session_id} is gone")
    return {**row, "messages": db.get_messages(session_id, include_inactive=inactive)}


def _keep_newest(segments: list[dict[str, Any]], limit: int) -> None:
    """Leave the newest messages over all segments, and the segments that still have some."""
    left = limit
    for segment in reversed(segments):
        segment["messages"] = segment["messages"][max(len(segment["messages"]) - left, 0) :] if left else []
        left -= len(segment["messages"])
    segments[:-1] = [segment for segment in segments[:-1] if segment["messages"]]


def _header(row: dict[str, Any], path: list[str]) -> str:
    facts = [
        row["source"],
        text.counted(row["message_count"] or 0, "message"),
        f"active {transcript_view.moment(row['last_active'])}",
    ]
    if row["ended_at"] is not None:
        facts.append(f"{lineage_view.ended(row['end_reason'])} {transcript_view.moment(row['ended_at'])}")
    if row["archived"]:
        facts.append("archived")
    lines = [
        output.style(text.harmless(finding.title_of(row)), "bold"),
        output.style(text.harmless(f"{row['id']} · {' · '.join(facts)}"), "dim"),
    ]
    if len(path) > 1 and row["id"] in path:
        number = path.index(row["id"]) + 1
        lines.append(output.style(f"segment {number} of {len(path)}; --lineage shows all of them", "dim"))
    return "\n".join(lines)


def _rule(segment: dict[str, Any], path: list[str]) -> str:
    number = path.index(segment["id"]) + 1
    ended = "" if segment["ended_at"] is None else f" · ended {transcript_view.moment(segment['ended_at'])}"
    return output.style(text.harmless(f"── segment {number} of {len(path)} · {segment['id']}{ended} ──"), "dim")


def _lineage(args: argparse.Namespace) -> None:
    from hermes_state.conversations import lineage as family

    with store.open_store() as db:
        named = finding.find(db, args.id, guess=True)
        found = family.of(db, named["id"])
    if found is None:
        raise SessionNotFound(f"session {named['id']} is gone")
    if args.json:
        output.print_json(_as_data(found))
        return
    columns = shutil.get_terminal_size().columns if output.is_terminal() else None
    output.page(lineage_view.tree(found, asked=named["id"], columns=columns))


def _as_data(found: Family) -> dict[str, Any]:
    return {**_member(found.root), "origin_title": found.origin_title, "cut": found.cut}


def _member(member: Member) -> dict[str, Any]:
    data = asdict(member)
    data["title"] = member.title
    data["began_in"] = {segment: list(map(_member, children)) for segment, children in member.began_in.items()}
    return data
