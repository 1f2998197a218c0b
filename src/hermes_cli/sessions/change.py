"""`hermes sessions rename`, `archive`, `unarchive`, `delete`, `prune`: everything that changes what is stored.

These take ids, beginnings of ids and whole titles, never a part of a title. Verbs that erase ask first, list exactly
what would go, and have a `--dry-run`.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hermes_cli.framework import output, prompts, store, text
from hermes_cli.framework.parser import Parser, Verbs, days, instant
from hermes_cli.sessions import lookup
from hermes_cli.sessions.list import listing
from hermes_config.errors import UsageError
from hermes_config.home import hermes_home

if TYPE_CHECKING:
    from hermes_state import SessionDB
    from hermes_state.conversations.lineage import Member
    from hermes_state.errors import ConversationHeld


_SHOWN = 20
_PRUNE_AFTER_DAYS = 90
_FORGET_MS = 2_000


def add(verbs: Verbs) -> None:
    rename = verbs.add("rename", _rename, "give a conversation a title", "20261109 Trip to Kyoto")
    lookup.add_id(rename)
    rename.add_argument("title", nargs="+", metavar="TITLE", help="the new title")
    archive = verbs.add(
        "archive", _archive, "hide conversations from lists; nothing is removed",
        '"Bike repair"', "--source cron --older-than 30", json=True, yes=True,
    )  # fmt: skip
    lookup.add_id(archive, many="*")
    unarchive = verbs.add("unarchive", _unarchive, "show archived conversations again", '"Bike repair"', json=True)
    lookup.add_id(unarchive, many="+")
    delete = verbs.add(
        "delete", _delete, "erase conversations for good", '"Bike repair"', "20261109 20261110 --yes", yes=True
    )
    lookup.add_id(delete, many="+")
    prune = verbs.add(
        "prune", _prune, "erase ended conversations, by default those older than 90 days", "--dry-run",
        "--source cron --older-than 30", "--max-messages 2 --before 2026-01-01 --yes", json=True, yes=True,
    )  # fmt: skip
    prune.add_argument("--include-archived", action="store_true", help="archived ones too")
    for verb in (archive, delete, prune):
        verb.add_argument("--dry-run", action="store_true", help="only show what would be done")
    _add_filters(archive)
    _add_filters(prune)


def _rename(args: argparse.Namespace) -> None:
    title = " ".join(args.title)
    with store.open_store() as db:
        row = lookup.find(db, args.id)
        if db.sanitize_title(title) is None:
            raise UsageError("a title needs at least one visible character")
        tip = db.get_compression_tip(row["id"])
        db.set_session_title(tip, title)
        print(text.harmless(f'{tip} is now called "{db.get_session_title(tip)}".'))


def _archive(args: argparse.Namespace) -> None:
    filters = _filters(args)
    if bool(args.ids) == bool(filters):
        raise UsageError(
            "name conversations, or give filters such as --older-than 30, one of the two",
            hint="See hermes sessions archive --help.",
        )
    with store.open_store() as db:
        if args.ids:
            _set_archived(db, args, archived=True, dry_run=args.dry_run)
            return
        rows = _matching(db, {"archived": False, **filters})
        if _agreed(args, rows, "archive"):
            for row in rows:
                db.set_session_archived(row["id"], True)
            _done(args, rows, "archived")


def _unarchive(args: argparse.Namespace) -> None:
    with store.open_store() as db:
        _set_archived(db, args, archived=False, dry_run=False)


def _set_archived(db: SessionDB, args: argparse.Namespace, *, archived: bool, dry_run: bool) -> None:
    rows = [lookup.find(db, name) for name in args.ids]
    for row in [] if dry_run else rows:
        db.set_session_archived(row["id"], archived)
    if args.json:
        output.print_json({"matched": [row["id"] for row in rows], "changed": 0 if dry_run else len(rows)})
        return
    did = ("Would archive" if dry_run else "Archived") if archived else "Unarchived"
    for row in rows:
        print(text.harmless(f'{did} "{lookup.title_of(row)}" ({row["id"]}).'))


def _delete(args: argparse.Namespace) -> None:
    from hermes_state.conversations import lineage

    with store.open_store() as db:
        found = [lineage.of(db, lookup.find(db, name)["id"]) for name in args.ids]
        roots = list({one.root.id: one.root for one in found if one is not None}.values())
        for root in roots:
            print(text.harmless(f"{'Would erase' if args.dry_run else 'To erase'}: {_described(root)}"))
        if args.dry_run:
            return
        prompts.confirm("Erase this for good?", yes=args.yes)
        held = _erase(db, [root.tip_id for root in roots])
    if len(held) < len(roots):
        print(f"Erased {text.counted(len(roots) - len(held), 'conversation')}.")
        _name_backups()
    _tell_held(held)


def _tell_held(held: dict[str, ConversationHeld]) -> None:
    """Name the conversations that stayed because somebody works on them; the last one is the error."""
    for error in list(held.values())[:-1]:
        print(text.harmless(f"hermes: {error}"), file=sys.stderr)
    if held:
        raise next(reversed(held.values()))


def _described(root: Member) -> str:
    said = sum(segment["message_count"] for segment in root.segments)
    title = root.title or lookup.title_of(root.segments[-1])
    parts = [text.counted(len(root.segments), "segment"), text.counted(said, "message")]
    delegated = sum(child.kind == "delegate" for children in root.began_in.values() for child in children)
    if delegated:
        parts.append(text.counted(delegated, "delegation"))
    return f'"{title}" ({root.tip_id}), {", ".join(parts)}'


def _prune(args: argparse.Namespace) -> None:
    filters = _filters(args) or {"older_than_days": _PRUNE_AFTER_DAYS}
    filters["archived"] = None if args.include_archived else False
    with store.open_store() as db:
        rows = _matching(db, filters)
        if _agreed(args, rows, "erase"):
            # Somebody may have continued one of them while we asked.
            agreed = {row["id"] for row in rows}
            rows = [row for row in _matching(db, filters) if row["id"] in agreed]
            held = _erase(db, [row["id"] for row in rows])
            _done(args, [row for row in rows if row["id"] not in held], "erased")
            _name_backups()
            _tell_held(held)


def _matching(db: SessionDB, filters: dict[str, Any]) -> list[dict[str, Any]]:
    """Ended conversations that match, by their newest segment.

    The store matches segments one by one; here a conversation goes or stays as a whole.
    """
    rows = db.list_prune_candidates(**{"older_than_days": None, **filters})
    return [row for row in rows if db.get_compression_tip(row["id"]) == row["id"]]


def _erase(db: SessionDB, session_ids: Sequence[str]) -> dict[str, ConversationHeld]:
    """Erase whole conversations: their rows, the files other tools keep beside them, and their words in the index.

    Returns those that stay because somebody works on them, each with its error.
    """
    from hermes_state.conversations import lineage
    from hermes_state.errors import ConversationHeld

    held: dict[str, ConversationHeld] = {}
    for session_id in session_ids:
        found = lineage.of(db, session_id)
        if found is not None:
            try:
                db.delete_sessions([segment["id"] for segment in found.root.segments], hermes_home() / "sessions")
            except ConversationHeld as error:
                held[session_id] = error
    db.feed(_FORGET_MS)
    return held


def _name_backups() -> None:
    """Name the backups that still hold what was erased."""
    from hermes_state.transfer import backup

    names = [found.path.name for found in backup.existing(hermes_home())]
    if names:
        more = f" and {len(names) - 5} more" if len(names) > 5 else ""
        print(text.harmless(f"Backups made before still hold it: {', '.join(names[:5])}{more}."), file=sys.stderr)


def _agreed(args: argparse.Namespace, rows: list[dict[str, Any]], verb: str) -> bool:
    """Show the matches and ask; False when there is nothing to do."""
    if args.dry_run or not rows:
        if args.json:
            output.print_json({"matched": [row["id"] for row in rows], "changed": 0})
        else:
            print(_matches(rows, verb))
        return False
    if not args.json:
        print(_matches(rows, verb))
    prompts.confirm(f"{verb.capitalize()} {text.counted(len(rows), 'conversation')}?", yes=args.yes)
    return True


def _matches(rows: list[dict[str, Any]], verb: str) -> str:
    if not rows:
        one = "delete" if verb == "erase" else verb
        return (
            f"Nothing to {verb}: no ended conversation matches. One ends with /new, by a reset,\n"
            f"or when its window is closed; hermes sessions {one} ID takes any other."
        )
    shown = listing([{"preview": None, **row} for row in rows[:_SHOWN]])
    more = f"\n… and {len(rows) - _SHOWN:,} more" if len(rows) > _SHOWN else ""
    return f"{shown}{more}\n{text.counted(len(rows), 'conversation')} to {verb}."


def _done(args: argparse.Namespace, rows: list[dict[str, Any]], word: str) -> None:
    if args.json:
        output.print_json({"matched": [row["id"] for row in rows], "changed": len(rows)})
    else:
        print(f"{text.counted(len(rows), 'conversation')} {word}.")


_TEXTS = {
    "--source": ("source", "from this source: cli, telegram …"),
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
    group = parser.add_argument_group("filters (all that are given must match)")
    group.add_argument("--older-than", type=days, metavar="AGE", help="inactive for longer than 30 (days), 12h, 2w")
    group.add_argument("--newer-than", type=days, metavar="AGE", help="started more recently than that")
    group.add_argument("--before", type=instant, metavar="DATE", help="started before 2026-11-01")
    group.add_argument("--after", type=instant, metavar="DATE", help="started after 2026-11-01")
    for flag, (name, meaning) in _TEXTS.items():
        group.add_argument(flag, dest=name, metavar="TEXT", help=meaning)
    for noun, kind in _BOUNDS.items():
        counted = "that cost {} N dollars" if noun == "cost" else f"with {{}} N {noun.replace('-', ' ')}"
        for side, words in (("min", "at least"), ("max", "at most")):
            group.add_argument(f"--{side}-{noun}", type=_amount(kind), metavar="N", help=counted.format(words))


def _filters(args: argparse.Namespace) -> dict[str, Any]:
    """The given filters under the store's names; empty when none was given."""
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
