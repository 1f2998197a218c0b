"""`hermes inbox`: what came in, and what became of each message."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING

from hermes_cli.framework import output, store, text
from hermes_cli.framework.parser import Parser, Verbs, add_json, add_limit, positive
from hermes_config.errors import HermesError

if TYPE_CHECKING:
    from hermes_state.turns.inbox import InboxRow

STATES = ("queued", "claimed", "answered", "error", "silent", "dropped", "superseded", "refused")
_COLUMNS = output.columns("Came", "Reason")


class NoSuchMessage(HermesError):
    """There is no such message."""

    default_hint = "hermes inbox list shows them."


def register(parser: Parser) -> None:
    verbs = Verbs(parser)
    listing = verbs.add(
        "list",
        _list,
        help="list messages that came in, newest first",
        example="""hermes inbox list
                   hermes inbox list --state queued
                   hermes inbox list --route agent:main:telegram:dm:42 --json""",
    )
    listing.add_argument("--state", choices=STATES, help="only those in this state")
    listing.add_argument("--route", metavar="KEY", help="only those of one route")
    listing.add_argument("--before", type=positive, metavar="ID", help="only older ones: the next page")
    add_limit(listing, 20)
    add_json(listing)
    show = verbs.add("show", _show, help="show one message and its outcome", example="hermes inbox show 17")
    show.add_argument("id", type=positive, metavar="ID", help="as hermes inbox list shows it")
    add_json(show)


def _list(args: argparse.Namespace) -> None:
    from hermes_state.ids import SessionKey

    with store.open_store() as db:
        route = None if args.route is None else SessionKey(args.route)
        rows = db.inbox.list(state=args.state, route=route, before=args.before, limit=args.limit)
        counts = db.inbox.counts()
    if args.json:
        output.print_json({"messages": [asdict(row) for row in rows], "counts": counts})
        return
    if not rows:
        print("Nothing matches." if args.state or args.route or args.before else "No message ever came in.")
        return
    output.list_page(_COLUMNS, [_cells(row) for row in rows], counts=counts, full=args.limit)


def _cells(row: InboxRow) -> tuple[str, ...]:
    said = output.beginning(str((row.payload or {}).get("text") or "—"))
    return (str(row.id), row.state, text.ago(row.received_at), f"{row.platform}:{row.chat_id}", said, row.reason or "—")


def _show(args: argparse.Namespace) -> None:
    with store.open_store() as db:
        row = db.inbox.get(args.id)
    if row is None:
        raise NoSuchMessage(f"there is no message {args.id}")
    if args.json:
        output.print_json(asdict(row))
        return
    rows = (
        ("message", row.id),
        ("state", row.state),
        ("reason", row.reason),
        ("from", f"{row.platform}:{row.chat_id}"),
        ("its id there", f"{row.message_id}" + (f", version {row.version}" if row.version else "")),
        ("route", row.route),
        ("person", row.person_id),
        ("came", output.moment(row.received_at)),
        ("ended", output.moment(row.ended_at)),
        ("turn", row.turn_id),
        ("trace", row.trace_id),
    )
    output.page(output.facts(rows, str((row.payload or {}).get("text") or "")))
