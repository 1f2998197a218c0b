"""`hermes sessions rename`, `archive`, `unarchive`, `delete`, `prune`: everything that changes what is stored.

These take ids, beginnings of ids and whole titles, never a part of a title. What erases asks first, says what exactly
would go, and has a `--dry-run`.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hermes_cli.framework import output, store, text
from hermes_cli.framework import parser as arguments
from hermes_cli.framework.parser import Parser, Verbs, add_json, add_yes
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
    rename = verbs.add(
        "rename", _rename, help="give a conversation a title", example="hermes sessions rename 20261109 Trip to Kyoto"
    )
    rename.add_argument("id", metavar="ID", help="an id, the beginning of one, or its title")
    rename.add_argument("title", nargs="+", metavar="TITLE", help="the new title")
    archive = verbs.add(
        "archive",
        _archive,
        help="hide conversations from lists; nothing is removed",
        example="""hermes sessions archive "Bike repair"
                   hermes sessions archive --source cron --older-than 30""",
    )
    archive.add_argument("ids", nargs="*", metavar="ID", help="ids, beginnings of ids, or titles")
    add_filters(archive)
    _add_safety(archive)
    unarchive = verbs.add(
        "unarchive",
        _unarchive,
        help="show archived conversations again",
        example='hermes sessions unarchive "Bike repair"',
    )
    unarchive.add_argument("ids", nargs="+", metavar="ID", help="ids, beginnings of ids, or titles")
    delete = verbs.add(
        "delete",
        _delete,
        help="erase conversations for good",
        example="""hermes sessions delete "Bike repair"
                   hermes sessions delete 20261109 20261110 --yes""",
    )
    delete.add_argument("ids", nargs="+", metavar="ID", help="ids, beginnings of ids, or titles")
    _add_safety(delete)
    prune = verbs.add(
        "prune",
        _prune,
        help="erase ended conversations, by default those older than 90 days",
        example="""hermes sessions prune --dry-run
                   hermes sessions prune --source cron --older-than 30
                   hermes sessions prune --max-messages 2 --before 2026-01-01 --yes""",
    )
    add_filters(prune)
    prune.add_argument("--include-archived", action="store_true", help="archived ones too")
    _add_safety(prune)
    for verb in (archive, prune):
        add_json(verb)


def _add_safety(parser: Parser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="only say what would be done")
    add_yes(parser)


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
    filters = chosen(args)
    if bool(args.ids) == bool(filters):
        raise UsageError(
            "name conversations, or give filters such as --older-than 30, one of the two",
            hint="See hermes sessions archive --help.",
        )
    with store.open_store() as db:
        if args.ids:
            _set_archived(db, args.ids, archived=True, dry_run=args.dry_run)
            return
        rows = _matching(db, {"archived": False, **filters})
        if _agreed(args, rows, "archive"):
            for row in rows:
                db.set_session_archived(row["id"], True)
            _done(args, rows, "archived")


def _unarchive(args: argparse.Namespace) -> None:
    with store.open_store() as db:
        _set_archived(db, args.ids, archived=False, dry_run=False)


def _set_archived(db: SessionDB, wanted: Sequence[str], *, archived: bool, dry_run: bool) -> None:
    rows = [lookup.find(db, name) for name in wanted]
    did = ("Would archive" if dry_run else "Archived") if archived else "Unarchived"
    for row in rows:
        if not dry_run:
            db.set_session_archived(row["id"], archived)
        print(text.harmless(f'{did} "{lookup.title_of(row)}" ({row["id"]}).'))


def _delete(args: argparse.Namespace) -> int:
    from hermes_state.conversations import lineage

    with store.open_store() as db:
        found = [lineage.of(db, lookup.find(db, name)["id"]) for name in args.ids]
        roots = list({one.root.id: one.root for one in found if one is not None}.values())
        for root in roots:
            print(text.harmless(f"{'Would erase' if args.dry_run else 'To erase'}: {_described(root)}"))
        if args.dry_run:
            return 0
        if not output.confirm("Erase this for good?", yes=args.yes):
            print("Nothing was changed.")
            return 1
        held = _erase(db, [root.tip_id for root in roots])
    if len(held) < len(roots):
        print(f"Erased {text.counted(len(roots) - len(held), 'conversation')}.")
        _name_backups()
    for error in list(held.values())[:-1]:
        print(text.harmless(f"hermes: {error}"), file=sys.stderr)
    if held:
        raise next(reversed(held.values()))
    return 0


def _described(root: Member) -> str:
    said = sum(segment["message_count"] for segment in root.segments)
    title = root.title or lookup.title_of(root.segments[-1])
    parts = [text.counted(len(root.segments), "segment"), text.counted(said, "message")]
    delegated = sum(child.kind == "delegate" for children in root.began_in.values() for child in children)
    if delegated:
        parts.append(text.counted(delegated, "delegation"))
    return f'"{title}" ({root.tip_id}), {", ".join(parts)}'


def _prune(args: argparse.Namespace) -> None:
    filters = chosen(args) or {"older_than_days": _PRUNE_AFTER_DAYS}
    filters["archived"] = None if args.include_archived else False
    with store.open_store() as db:
        rows = _matching(db, filters)
        if _agreed(args, rows, "erase"):
            # Somebody may have gone on with one of them while we asked.
            agreed = {row["id"] for row in rows}
            rows = [row for row in _matching(db, filters) if row["id"] in agreed]
            held = _erase(db, [row["id"] for row in rows])
            _done(args, [row for row in rows if row["id"] not in held], "erased")
            _name_backups()


def _matching(db: SessionDB, filters: dict[str, Any]) -> list[dict[str, Any]]:
    """Conversations that ended and match, by the row that stands for each: its newest segment.

    The store judges segments one by one; here a conversation goes as a whole or stays as a whole.
    """
    rows = db.list_prune_candidates(**{"older_than_days": None, **filters})
    return [row for row in rows if db.get_compression_tip(row["id"]) == row["id"]]


def _erase(db: SessionDB, session_ids: Sequence[str]) -> dict[str, ConversationHeld]:
    """Whole conversations: their rows, the files other tools keep beside them, and their words in the index.

    Those that somebody is at work on stay, each with what to do about it.
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
    """A backup keeps what was in it; whoever erases wants to know which ones there are."""
    from hermes_state.transfer import backup

    names = [found.path.name for found in backup.existing(hermes_home())]
    if names:
        more = f" and {len(names) - 5} more" if len(names) > 5 else ""
        print(text.harmless(f"Backups made before still hold it: {', '.join(names[:5])}{more}."), file=sys.stderr)


def _agreed(args: argparse.Namespace, rows: list[dict[str, Any]], verb: str) -> bool:
    """Show what matches and ask; False when nothing is to be done."""
    if args.dry_run or not rows:
        if args.json:
            output.print_json({"matched": [row["id"] for row in rows], "changed": 0})
        else:
            print(_matches(rows, verb))
        return False
    if not args.json:
        print(_matches(rows, verb))
    if output.confirm(f"{verb.capitalize()} {text.counted(len(rows), 'conversation')}?", yes=args.yes):
        return True
    print("Nothing was changed.")
    return False


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
    "--cwd": ("cwd_prefix", "whose working folder begins so"),
    "--model": ("model_like", "whose model's name contains this"),
    "--provider": ("provider", "billed by this provider"),
    "--user": ("user_id", "of this user"),
    "--chat-id": ("chat_id", "of this chat"),
    "--chat-type": ("chat_type", "of this kind of chat: dm, group …"),
    "--branch": ("branch_like", "whose git branch contains this"),
}
_BOUNDS = {"messages": int, "tokens": int, "tool-calls": int, "cost": float}


def add_filters(parser: Parser) -> None:
    """Add the flags; all that are given must hold."""
    group = parser.add_argument_group("which ones (all that are given must hold)")
    group.add_argument(
        "--older-than", type=arguments.days, metavar="AGE", help="silent for longer than 30 (days), 12h, 2w"
    )
    group.add_argument("--newer-than", type=arguments.days, metavar="AGE", help="started less long ago than that")
    group.add_argument("--before", type=arguments.instant, metavar="DATE", help="started before 2026-11-01")
    group.add_argument("--after", type=arguments.instant, metavar="DATE", help="started after 2026-11-01")
    for flag, (name, meaning) in _TEXTS.items():
        group.add_argument(flag, dest=name, metavar="TEXT", help=meaning)
    for noun, kind in _BOUNDS.items():
        counted = "that cost {} N dollars" if noun == "cost" else f"with {{}} N {noun.replace('-', ' ')}"
        for side, words in (("min", "at least"), ("max", "at most")):
            group.add_argument(f"--{side}-{noun}", type=_amount(kind), metavar="N", help=counted.format(words))


def chosen(args: argparse.Namespace) -> dict[str, Any]:
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
