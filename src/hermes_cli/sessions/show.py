"""`hermes sessions show` and `lineage`: one conversation as text or as a tree."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from hermes_cli.framework import output, text
from hermes_cli.framework.output import CommandAnswer
from hermes_cli.framework.parser import Verbs, positive
from hermes_cli.sessions import lookup, render
from hermes_cli.sessions.lookup import title_of
from hermes_state import SessionDB
from hermes_state.conversations import lineage as family
from hermes_state.conversations.lineage import Family, Member
from hermes_state.errors import SessionNotFound

_PIPE_FOLD = 100


def add(verbs: Verbs) -> None:
    show = verbs.add(
        "show", _show, "print the transcript of a conversation",
        '"Trip to Kyoto"', "20261109 --lineage", "kyoto --full --limit 10", db=True, json=True,
    )  # fmt: skip
    lookup.add_id(show)
    show.add_argument("-n", "--limit", type=positive, metavar="N", help="only the newest N messages")
    show.add_argument("--full", action="store_true", help="show tool calls and their results uncut")
    show.add_argument("--lineage", action="store_true", help="show all segments of the conversation, from the first")
    show.add_argument("--include-taken-back", action="store_true", help="also show undone and summarised messages")
    about = "draw the tree of a conversation"
    lineage = verbs.add("lineage", _lineage, about, '"Trip to Kyoto"', "20261109 --json", db=True, json=True)
    lookup.add_id(lineage)


def _show(args: argparse.Namespace, db: SessionDB) -> CommandAnswer:
    named = lookup.find(db, args.id, guess=True)
    path = db.get_compression_lineage(named["id"]) or [named["id"]]
    wanted = path if args.lineage else [named["id"]]
    segments = [_segment(db, session_id, inactive=args.include_taken_back) for session_id in wanted]
    named["title"] = named["title"] or db.get_session_title(path[-1])  # a compression moves it to the new segment
    if args.limit:
        _keep_newest(segments, args.limit)

    def drawn() -> str:
        blocks = [_header(named, path, all_shown=args.lineage)]
        for segment in segments:
            if args.lineage and len(path) > 1:
                blocks.append(_rule(segment, path))
            said = render.transcript(segment["messages"], full=args.full, columns=output.window() or _PIPE_FOLD)
            blocks.append(said or output.style("(no messages)", "dim"))
        return "\n\n".join(blocks)

    return CommandAnswer({"conversation": named["root_id"], "title": named["title"], "segments": segments}, drawn=drawn)


def _segment(db: SessionDB, session_id: str, *, inactive: bool) -> dict[str, Any]:
    row = db.get_session(session_id)
    if row is None:  # deleted meanwhile
        raise SessionNotFound(f"session {session_id} is gone")
    return {**row, "messages": db.get_messages(session_id, include_inactive=inactive)}


def _keep_newest(segments: list[dict[str, Any]], limit: int) -> None:
    """Keep only the newest messages over all segments, and the segments that have some."""
    left = limit
    for segment in reversed(segments):
        segment["messages"] = segment["messages"][max(len(segment["messages"]) - left, 0) :] if left else []
        left -= len(segment["messages"])
    segments[:-1] = [segment for segment in segments[:-1] if segment["messages"]]


def _header(row: dict[str, Any], path: list[str], *, all_shown: bool) -> str:
    said = text.counted(row["message_count"] or 0, "message")
    facts = [row["source"], said, f"active {text.moment(row['last_active'])}"]
    if row["ended_at"] is not None:
        facts.append(f"{ended(row['end_reason'])} {text.moment(row['ended_at'])}")
    if row["archived"]:
        facts.append("archived")
    lines = [
        output.style(text.harmless(title_of(row)), "bold"),
        output.style(text.harmless(f"{row['id']} · {' · '.join(facts)}"), "dim"),
    ]
    if len(path) > 1 and row["id"] in path and not all_shown:
        number = path.index(row["id"]) + 1
        lines.append(output.style(f"segment {number} of {len(path)}; --lineage shows all of them", "dim"))
    return "\n".join(lines)


def _rule(segment: dict[str, Any], path: list[str]) -> str:
    number = path.index(segment["id"]) + 1
    ended = "" if segment["ended_at"] is None else f" · ended {text.moment(segment['ended_at'])}"
    return output.style(text.harmless(f"── segment {number} of {len(path)} · {segment['id']}{ended} ──"), "dim")


def _lineage(args: argparse.Namespace, db: SessionDB) -> CommandAnswer:
    named = lookup.find(db, args.id, guess=True)
    found = family.of(db, named["id"])
    if found is None:
        raise SessionNotFound(f"session {named['id']} is gone")
    document = {**_member(found.root), "origin_title": found.origin_title, "cut": found.cut}
    return CommandAnswer(document, drawn=tree(found, asked=named["id"], columns=output.window()))


def _member(member: Member) -> dict[str, Any]:
    data = asdict(member)
    data["title"] = member.title
    data["began_in"] = {segment: list(map(_member, children)) for segment, children in member.began_in.items()}
    return data


# -- the tree: segments downwards, branches and delegations of each segment to the right -------------------------------
#
#     ○ 20261109_071502_5b1f0c2a  12 messages · began 6 d ago · compressed 4 d ago
#     ├─ branch  Kyoto in winter
#     │  ● 20261112_090000_1d2e3f40  8 messages · active 3 d ago
#     ● 20261111_080000_9a8b7c6d  14 messages · active 2 min ago
#
# A filled circle is an open segment, an empty circle an ended one. A reset is one line; its past is not in this tree.

_KINDS = {"branch": "branch", "delegate": "delegated", "reset": "reset to", "child": "child"}
_REASONS = {
    "compression": "compressed", "uncompressed": "set aside as its compression was undone", "session_reset": "reset",
    "session_switch": "left for another", "cli_close": "left", "tui_close": "left", "tui_shutdown": "left",
}  # fmt: skip


def ended(reason: str | None) -> str:
    """Describe why a segment ended; an unknown reason is shown unchanged."""
    return _REASONS.get(reason, f"ended ({reason})") if reason else "ended"


def tree(family: Family, *, asked: str, columns: int | None) -> str:
    """Draw the tree. `asked` is the named segment; it is marked when there are others."""
    root = family.root
    lines = [_title_line(root)]
    if root.kind != "new":
        lines.append(output.style(text.harmless(_origin(family)), "dim"))
    lines += _drawn(root, "", asked if asked != root.tip_id else "", columns)
    if family.cut:
        lines.append(output.style("… and more than 200 conversations in all; the rest is not drawn", "dim"))
    return "\n".join(lines)


def _title_line(root: Member) -> str:
    count, said = len(root.segments), sum(segment["message_count"] for segment in root.segments)
    title = output.style(text.harmless(root.title or title_of(root.segments[-1])), "bold")
    counts = f"{text.counted(count, 'segment')}, {text.counted(said, 'message')}"
    facts = f" · {root.segments[0]['source']} · {counts}"
    return title + output.style(text.harmless(facts), "dim")


def _origin(family: Family) -> str:
    root = family.root
    kind = {"branch": "branched from", "delegate": "delegated by", "reset": "follows"}.get(root.kind, "began in")
    title = f'"{family.origin_title}" · ' if family.origin_title else ""
    return f"{kind} {title}{root.origin_session_id or 'a conversation that is gone'}"


def _drawn(member: Member, rail: str, asked: str, columns: int | None) -> Iterator[str]:
    """Draw one conversation, each line after `rail`."""
    for place, segment in enumerate(member.segments):
        last = place == len(member.segments) - 1
        children = member.began_in.get(segment["id"], [])
        yield _drawn_segment(rail, segment, asked, columns, began=place == 0)
        for number, child in enumerate(children):
            ends = last and number == len(children) - 1
            elbow = f"{rail}{'└─' if ends else '├─'} {_KINDS.get(child.kind, child.kind)}"
            title = child.title or title_of(child.segments[-1])
            yield output.style(elbow, "dim") + _fitted(f"  {title}", text.width(elbow), columns)
            below = rail + ("   " if ends else "│  ")
            if child.kind == "reset":
                yield _drawn_segment(below, child.segments[-1], asked, columns, began=True)
            else:
                yield from _drawn(child, below, asked, columns)
        if not last and not children:
            yield output.style(f"{rail}│", "dim")


def _drawn_segment(rail: str, segment: dict[str, Any], asked: str, columns: int | None, *, began: bool) -> str:
    facts, is_open = [text.counted(segment["message_count"], "message")], segment["ended_at"] is None
    if began and not is_open:
        facts.append(f"began {text.when(segment['started_at'])}")
    if is_open:
        facts.append(f"active {text.when(segment['last_active'])}")
    else:
        facts.append(f"{ended(segment['end_reason'])} {text.when(segment['ended_at'])}")
    if segment["archived"]:
        facts.append("archived")
    if segment["id"] == asked:
        facts.append("← this one")
    name, circle = text.harmless(segment["id"]), output.style("●", "green") if is_open else "○"
    tail = _fitted(f"  {' · '.join(facts)}", text.width(f"{rail}○ {name}"), columns)
    return f"{output.style(rail, 'dim') if rail else ''}{circle} {name}{output.style(tail, 'dim')}"


def _fitted(tail: str, taken: int, columns: int | None) -> str:
    """Shorten the rest of a line in which `taken` columns are used."""
    shown = text.harmless(tail)
    return shown if columns is None else text.shorten(shown, max(columns - taken, 8))
