"""`hermes outbox`: what is owed to chats, what became of it, and what to do about what could not be delivered."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection
from dataclasses import asdict
from typing import TYPE_CHECKING

from hermes_cli.framework import output, store, text
from hermes_cli.framework.parser import Parser, Verbs, add_json, add_limit, add_yes, positive
from hermes_config.errors import ConfigError, HermesError, UsageError

if TYPE_CHECKING:
    from hermes_state import SessionDB
    from hermes_state.turns.outbox import OutboxItem

STATES = ("draft", "pending", "sending", "sent", "failed", "unknown", "dropped")
_COLUMNS = output.columns("Made", "Problem")


class NoSuchItem(HermesError):
    """There is no such delivery."""

    default_hint = "hermes outbox list shows them."


def register(parser: Parser) -> None:
    verbs = Verbs(parser)
    listing = verbs.add(
        "list",
        _list,
        help="list what is owed to chats and what became of it, newest first",
        example="""hermes outbox list
                   hermes outbox list --stuck
                   hermes outbox list --state pending --before 1200 --json""",
    )
    which = listing.add_mutually_exclusive_group()
    which.add_argument("--state", choices=STATES, help="only those in this state")
    which.add_argument("--stuck", action="store_true", help="only dead letters: failed, or nobody knows")
    listing.add_argument("--before", type=positive, metavar="ID", help="only older ones: the next page")
    add_limit(listing, 20)
    add_json(listing)
    show = verbs.add("show", _show, help="show one delivery and its text", example="hermes outbox show 17")
    _add_id(show)
    add_json(show)
    retry = verbs.add(
        "retry",
        _retry,
        help="send dead letters again; one that may have arrived says so",
        example="""hermes outbox retry 17
                   hermes outbox retry 17 18 19""",
    )
    retry.add_argument("ids", type=positive, nargs="+", metavar="ID", help="as hermes outbox list shows it")
    add_json(retry)
    drop = verbs.add(
        "drop",
        _drop,
        help="give up on deliveries that are not under way",
        example="hermes outbox drop 17 --yes",
    )
    drop.add_argument("ids", type=positive, nargs="+", metavar="ID", help="as hermes outbox list shows it")
    add_yes(drop)
    add_json(drop)


def _add_id(parser: Parser) -> None:
    parser.add_argument("id", type=positive, metavar="ID", help="as hermes outbox list shows it")


def _list(args: argparse.Namespace) -> None:
    with store.open_store() as db:
        if args.stuck:
            items = db.outbox.dead_letters(before=args.before, limit=args.limit)
        else:
            items = db.outbox.list(state=args.state, before=args.before, limit=args.limit)
        counts = db.outbox.counts()
    if args.json:
        output.print_json({"items": [asdict(item) for item in items], "counts": counts})
        return
    if not items:
        print("Nothing matches." if args.state or args.stuck or args.before else "Nothing was ever owed to a chat.")
        return
    served = _served()
    output.list_page(_COLUMNS, [_cells(row, served) for row in items], counts=counts, full=args.limit)


def _cells(item: OutboxItem, served: Collection[str] | None) -> tuple[str, ...]:
    chat = f"{item.platform}:{item.chat_id}"
    said = str(item.payload.get("text") or item.payload.get("kind") or "—")
    return (
        str(item.id),
        item.state,
        text.ago(item.created_at),
        chat,
        output.beginning(said),
        _problem(item, served) or "—",
    )


def _served() -> Collection[str] | None:
    """The platforms a gateway of this home would serve; None when the configuration does not say."""
    from gateway.config import load_gateway_config
    from hermes_config import config

    try:
        found = load_gateway_config(config.load())
    except ConfigError:
        return None  # every other command says what is wrong with it
    return {platform.value for platform in found.get_connected_platforms()}


def _problem(item: OutboxItem, served: Collection[str] | None) -> str | None:
    return f"waits: {item.platform} is off or not set up" if _is_unserved(item, served) else item.error


def _is_unserved(item: OutboxItem, served: Collection[str] | None) -> bool:
    return item.state == "pending" and served is not None and item.platform not in served


def _show(args: argparse.Namespace) -> None:
    with store.open_store() as db:
        item = _get(db, args.id)
    if args.json:
        output.print_json(asdict(item))
        return
    served = _served()
    rows = (
        ("delivery", item.id),
        ("state", item.state),
        ("problem", _problem(item, served)),
        ("to", f"{item.platform}:{item.chat_id}"),
        ("thread", item.payload.get("thread_id")),
        ("kind", item.payload.get("kind")),
        ("key", item.dedup_key),
        ("attempts", f"{item.attempts} of {item.give_up_after}"),
        ("made", output.moment(item.created_at)),
        ("next attempt", _next_attempt(item)),
        ("ended", output.moment(item.ended_at)),
        ("sender", item.sender if item.state == "sending" else None),
        ("messages", ", ".join(item.platform_ids)),
        ("conversation", item.conversation_id),
        ("turn", item.turn_id),
        ("trace", item.trace_id),
        ("do", _advice(item, served)),
    )
    output.page(output.facts(rows, str(item.payload.get("text") or "")))


def _advice(item: OutboxItem, served: Collection[str] | None) -> str:
    if _is_unserved(item, served):
        return f"hermes gateway setup {item.platform}, or hermes outbox drop {item.id}"
    if item.state == "unknown":
        return f"look into the chat; if it is not there, hermes outbox retry {item.id}"
    return f"hermes outbox retry {item.id}, or hermes outbox drop {item.id}" if item.state == "failed" else ""


def _next_attempt(item: OutboxItem) -> str | None:
    if item.state != "pending":
        return None
    return output.moment(item.next_attempt_at) if item.next_attempt_at else "at once"


def _get(db: SessionDB, item_id: int) -> OutboxItem:
    item = db.outbox.get(item_id)
    if item is None:
        raise NoSuchItem(f"there is no delivery {item_id}")
    return item


def _retry(args: argparse.Namespace) -> None:
    with store.open_store() as db:
        before = [_get(db, item_id) for item_id in args.ids]
        for item in before:
            if item.state not in ("failed", "unknown"):
                raise UsageError(f"delivery {item.id} is {item.state}; only failed and unknown ones are sent again")
        done = [item for item in before if db.outbox.retry(item.id)]
    if args.json:
        output.print_json({"queued": [item.id for item in done]})
        return
    for item in done:
        note = " It may have arrived before, so it says that it is sent again." if item.state == "unknown" else ""
        print(f"Delivery {item.id} to {item.platform}:{text.harmless(item.chat_id)} is due now.{note}")
    if not gateway_runs():
        print("No gateway is running: it goes out when one does (hermes gateway start).", file=sys.stderr)


def _drop(args: argparse.Namespace) -> None:
    with store.open_store() as db:
        before = [_get(db, item_id) for item_id in args.ids]
        names = ", ".join(str(item.id) for item in before)
        noun = "delivery" if len(before) == 1 else "deliveries"
        if not output.confirm(f"Give up on {noun} {names}?", yes=args.yes):
            print("Nothing was changed.")
            return
        done = [item.id for item in before if db.outbox.drop(item.id)]
    if args.json:
        output.print_json({"dropped": done})
        return
    if done:
        print(f"Dropped: {', '.join(map(str, done))}.")
    left = [item for item in before if item.id not in done]
    if left:
        raise UsageError(f"delivery {left[0].id} is {left[0].state} and cannot be dropped")


def gateway_runs() -> bool:
    from gateway import status
    from hermes_config.home import hermes_home

    return status.is_running(hermes_home())
