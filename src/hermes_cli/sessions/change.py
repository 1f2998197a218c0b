"""`hermes sessions rename`, `archive`, `unarchive`, `delete`, `prune`: the verbs that change stored conversations.

They take ids, beginnings of ids and whole titles, never a part of a title. Verbs that erase list the conversations, ask
first and have a `--dry-run`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Sequence
from typing import Any

from hermes_cli.framework import prompts, text
from hermes_cli.framework.output import CommandAnswer
from hermes_cli.framework.parser import Parser, Verbs, days, instant
from hermes_cli.sessions import lookup
from hermes_cli.sessions.list import listing
from hermes_config.errors import UsageError
from hermes_config.home import hermes_home
from hermes_state import SessionDB
from hermes_state.conversations import lineage
from hermes_state.conversations.lineage import Member
from hermes_state.errors import ConversationHeld
from hermes_state.transfer import backup

_SHOWN = 20
_PRUNE_AFTER_DAYS = 90
_FORGET_MS = 2_000


def add(verbs: Verbs) -> None:
    rename = verbs.add("rename", _rename, "give a conversation a title", "20261109 Trip to Kyoto", db=True)
    lookup.add_id(rename)
    rename.add_argument("title", nargs="+", metavar="TITLE", help="the new title")
    archive = verbs.add(
        "archive", _archive, "hide conversations from lists; nothing is removed",
        '"Bike repair"', "--source cron --older-than 30", db=True, json=True, yes=True,
    )  # fmt: skip
    lookup.add_id(archive, many="*")
    about = "show archived conversations again"
    unarchive = verbs.add("unarchive", _unarchive, about, '"Bike repair"', db=True, json=True)
    lookup.add_id(unarchive, many="+")
    delete = verbs.add(
        "delete", _delete, "erase conversations for good",
        '"Bike repair"', "20261109 20261110 --yes", db=True, yes=True,
    )  # fmt: skip
    lookup.add_id(delete, many="+")
    prune = verbs.add(
        "prune", _prune, "erase ended conversations, by default those older than 90 days", "--dry-run",
        "--source cron --older-than 30", "--max-messages 2 --before 2026-01-01 --yes",
        db=True, json=True, yes=True,
    )  # fmt: skip
    prune.add_argument("--include-archived", action="store_true", help="also erase archived conversations")
    for verb in (archive, delete, prune):
        verb.add_argument("--dry-run", action="store_true", help="only show what would be done")
    _add_filters(archive)
    _add_filters(prune)


def _rename(args: argparse.Namespace, db: SessionDB) -> CommandAnswer:
    title, row = " ".join(args.title), lookup.find(db, args.id)
    if db.sanitize_title(title) is None:
        raise UsageError("a title needs at least one visible character")
    tip = db.get_compression_tip(row["id"])
    db.set_session_title(tip, title)
    return CommandAnswer(None, f'{tip} is now called "{db.get_session_title(tip)}".')


def _archive(args: argparse.Namespace, db: SessionDB) -> CommandAnswer:
    filters = _filters(args)
    if bool(args.ids) == bool(filters):
        raise UsageError(
            "name conversations or give filters such as --older-than 30, but not both",
            hint="See hermes sessions archive --help.",
        )
    if args.ids:
        return _set_archived(db, args.ids, "Would archive" if args.dry_run else "Archived", archived=True)
    rows = _matching(db, {"archived": False, **filters})
    if unchanged := _show_and_ask(args, rows, "archive"):
        return unchanged
    for row in rows:
        db.set_session_archived(row["id"], True)
    return _changed(rows, f"{text.counted(len(rows), 'conversation')} archived.")


def _unarchive(args: argparse.Namespace, db: SessionDB) -> CommandAnswer:
    return _set_archived(db, args.ids, "Unarchived", archived=False)


def _set_archived(db: SessionDB, names: Iterable[str], did: str, *, archived: bool) -> CommandAnswer:
    rows = [lookup.find(db, name) for name in names]
    said = [f'{did} "{lookup.title_of(row)}" ({row["id"]}).' for row in rows]
    if did.startswith("Would"):
        return _changed(rows, *said, count=0)
    for row in rows:
        db.set_session_archived(row["id"], archived)
    return _changed(rows, *said)


def _changed(rows: list[dict[str, Any]], *said: str, count: int | None = None, **more: Any) -> CommandAnswer:
    """Make the answer of a verb that changed these conversations (`count` of them, by default all)."""
    document = {"matched": [row["id"] for row in rows], "changed": len(rows) if count is None else count}
    return CommandAnswer(document, *said, **more)


def _delete(args: argparse.Namespace, db: SessionDB) -> CommandAnswer:
    found = [lineage.of(db, lookup.find(db, name)["id"]) for name in args.ids]
    roots = list({one.root.id: one.root for one in found if one is not None}.values())
    listed = [f"{'Would erase' if args.dry_run else 'To erase'}: {_described(root)}" for root in roots]
    if args.dry_run:
        return CommandAnswer(None, *listed)
    CommandAnswer(None, *listed).print(as_json=False)
    prompts.confirm("Erase this for good?", yes=args.yes)
    held = _erase(db, [root.tip_id for root in roots])
    erased = len(roots) - len(held)
    said = [f"Erased {text.counted(erased, 'conversation')}."] if erased else []
    return CommandAnswer(None, *said, notes=_notes(held, erased=bool(erased)), error=_last(held))


def _notes(held: Sequence[ConversationHeld], *, erased: bool) -> list[str]:
    """Name the backups that still hold erased conversations, and the reasons why others were not erased."""
    names = [found.path.name for found in backup.existing(hermes_home())] if erased else []
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    backups = [f"Older backups still contain it: {', '.join(names[:5])}{more}."] if names else []
    return [*backups, *(f"hermes: {error}" for error in held[:-1])]


def _last(held: Sequence[ConversationHeld]) -> ConversationHeld | None:
    return held[-1] if held else None


def _described(root: Member) -> str:
    said = sum(segment["message_count"] for segment in root.segments)
    title = root.title or lookup.title_of(root.segments[-1])
    parts = [text.counted(len(root.segments), "segment"), text.counted(said, "message")]
    delegated = sum(child.kind == "delegate" for children in root.began_in.values() for child in children)
    if delegated:
        parts.append(text.counted(delegated, "delegation"))
    return f'"{title}" ({root.tip_id}), {", ".join(parts)}'


def _prune(args: argparse.Namespace, db: SessionDB) -> CommandAnswer:
    filters = _filters(args) or {"older_than_days": _PRUNE_AFTER_DAYS}
    filters["archived"] = None if args.include_archived else False
    rows = _matching(db, filters)
    if unchanged := _show_and_ask(args, rows, "erase"):
        return unchanged
    # A person may have continued one of them during the question.
    agreed = {row["id"] for row in rows}
    rows = [row for row in _matching(db, filters) if row["id"] in agreed]
    held = _erase(db, [row["id"] for row in rows])
    erased = [row for row in rows if db.get_session(row["id"]) is None]
    said = f"{text.counted(len(erased), 'conversation')} erased."
    return _changed(erased, said, notes=_notes(held, erased=True), error=_last(held))


def _matching(db: SessionDB, filters: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the ended conversations whose newest segment matches.

    The store matches single segments; a conversation is erased or kept as a whole.
    """
    rows = db.list_prune_candidates(**{"older_than_days": None, **filters})
    return [row for row in rows if db.get_compression_tip(row["id"]) == row["id"]]


def _erase(db: SessionDB, session_ids: Iterable[str]) -> list[ConversationHeld]:
    """Erase whole conversations: their rows, the files that other tools keep beside them, and their index entries.

    Returns an error for each conversation that is in use and so was kept.
    """
    held = []
    for session_id in session_ids:
        found = lineage.of(db, session_id)
        if found is not None:
            try:
                db.delete_sessions([segment["id"] for segment in found.root.segments], hermes_home() / "sessions")
            except ConversationHeld as error:
                held.append(error)
    db.feed(_FORGET_MS)
    return held


def _show_and_ask(args: argparse.Namespace, rows: list[dict[str, Any]], verb: str) -> CommandAnswer | None:
    """Show the matches and ask for confirmation; return an answer when there is nothing to do."""
    shown = _changed(rows, drawn=_matches(rows, verb), pages=False, count=0)
    if args.dry_run or not rows:
        return shown
    if not args.json:
        shown.print(as_json=False)
    prompts.confirm(f"{verb.capitalize()} {text.counted(len(rows), 'conversation')}?", yes=args.yes)
    return None


def _matches(rows: list[dict[str, Any]], verb: str) -> str:
    if not rows:
        one = "delete" if verb == "erase" else verb
        return (
            f"Nothing to {verb}: no ended conversation matches. A conversation ends with /new, with a reset,\n"
            f"or when its window is closed; hermes sessions {one} ID takes any conversation."
        )
    shown = listing([{"preview": None, **row} for row in rows[:_SHOWN]])
    more = f"\n… and {len(rows) - _SHOWN:,} more" if len(rows) > _SHOWN else ""
    return f"{shown}{more}\n{text.counted(len(rows), 'conversation')} to {verb}."


_TEXTS = {
    "--source": ("source", "from this source: cli, {platform} …"),
    "--title": ("title_like", "whose title contains this"),
    "--end-reason": ("end_reason", "that ended for this reason"),
    "--cwd": ("cwd_prefix", "whose working folder begins with this"),
    "--model": ("model_like", "whose model's name contains this"),
    "--provider": ("provider", "billed by this provider"),
    "--user": ("user_id", "of this user"),
    "--chat-id": ("chat_id", "of this chat"),
    "--chat-type": ("chat_type", "of this kind of chat: dm, group …"),
    "--branch": ("branch_like", "whose git branch contains this"),
}
_BOUNDS = {"messages": int, "tokens": int, "tool-calls": int, "cost": float}


def _add_filters(parser: Parser) -> None:
    group = parser.add_argument_group("filters (all given filters must match)")
    group.add_argument("--older-than", type=days, metavar="AGE", help="inactive for longer than 30 (days), 12h, 2w")
    group.add_argument("--newer-than", type=days, metavar="AGE", help="started within the last 30 (days), 12h, 2w")
    group.add_argument("--before", type=instant, metavar="DATE", help="started before 2026-11-01")
    group.add_argument("--after", type=instant, metavar="DATE", help="started after 2026-11-01")
    for flag, (name, meaning) in _TEXTS.items():
        group.add_argument(flag, dest=name, metavar="TEXT", help=meaning)
    for noun, kind in _BOUNDS.items():
        counted = "that cost {} N dollars" if noun == "cost" else f"with {{}} N {noun.replace('-', ' ')}"
        for side, words in (("min", "at least"), ("max", "at most")):
            group.add_argument(f"--{side}-{noun}", type=_amount(kind), metavar="N", help=counted.format(words))


def _filters(args: argparse.Namespace) -> dict[str, Any]:
    """Return the given filters under the store's names."""
    names = [name for name, _ in _TEXTS.values()]
    names += [f"{side}_{noun.replace('-', '_')}" for noun in _BOUNDS for side in ("min", "max")]
    given = vars(args)
    found = {name: given[name] for name in names if given[name] is not None}
    if args.older_than is not None:
        found["older_than_days"] = args.older_than
    if args.before is not None:
        found["started_before"] = args.before
    after = [] if args.after is None else [args.after]
    if args.newer_than is not None:
        after.append(time.time() - args.newer_than * 86_400)
    if after:
        found["started_after"] = max(after)
    return found


def _amount(kind: type[int] | type[float]) -> Any:
    def amount(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            value = -1
        if not 0 <= value < 2**62:
            raise argparse.ArgumentTypeError(f"must be a number from 0 up, not {text[:40]!r}")
        return value

    return amount
