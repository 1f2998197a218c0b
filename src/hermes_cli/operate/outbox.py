"""`hermes outbox`: deliveries to chats, what became of them, and what to do about failed ones."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection
from dataclasses import asdict
from typing import TYPE_CHECKING

from hermes_cli.framework import output, prompts, store, text
from hermes_cli.framework.parser import Parser, Verbs, positive
from hermes_config.errors import ConfigError, HermesError, UsageError

if TYPE_CHECKING:
    from hermes_state import SessionDB
    from hermes_state.turns.outbox import OutboxItem

STATES = ("draft", "pending", "sending", "sent", "failed", "unknown", "dropped")
_COLUMNS = output.message_columns("Made", "Problem")
_AS_LISTED = "as hermes outbox list shows it"


class NoSuchItem(HermesError):
    """There is no such delivery."""

    default_hint = "hermes outbox list shows them."


def register(parser: Parser) -> None:
    verbs = Verbs(parser)
    listing = verbs.add(
        "list", _list, "list deliveries and what became of them, newest first",
        "", "--stuck", "--state pending --before 1200 --json", json=True, limit=20,
    )  # fmt: skip
    which = listing.add_mutually_exclusive_group()
    which.add_argument("--state", choices=STATES, help="only those in this state")
    which.add_argument("--stuck", action="store_true", help="only those that failed or whose outcome is unknown")
    listing.add_argument("--before", type=positive, metavar="ID", help="only older ones: the next page")
    show = verbs.add("show", _show, "show one delivery and its text", "17", json=True)
    show.add_argument("id", type=positive, metavar="ID", help=_AS_LISTED)
    retry = verbs.add(
        "retry", _retry, "send failed deliveries again; one that may have arrived is marked as sent again",
        "17", "17 18 19", json=True,
    )  # fmt: skip
    drop = verbs.add("drop", _drop, "give up on deliveries that are not being sent", "17 --yes", json=True, yes=True)
    for verb in (retry, drop):
        verb.add_argument("ids", type=positive, nargs="+", metavar="ID", help=_AS_LISTED)


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
        print("Nothing matches." if args.state or args.stuck or args.before else "There were no deliveries yet.")
        return
    served = _served()
    output.list_page(_COLUMNS, [_cells(row, served) for row in items], counts=counts, full=args.limit)


def _cells(item: OutboxItem, served: Collection[str] | None) -> tuple[str, ...]:
    said = output.beginning(str(item.payload.get("text") or item.payload.get("kind") or "—"))
    problem = _problem(item, served) or "—"
    return str(item.id), item.state, text.ago(item.created_at), f"{item.platform}:{item.chat_id}", said, problem


def _served() -> Collection[str] | None:
    """The platforms that a gateway of this home serves; None when the configuration does not load."""
    from gateway.config import load_gateway_config
    from hermes_config import config

    try:
        found = load_gateway_config(config.load())
    except ConfigError:
        return None
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
        ("made", text.moment_and_age(item.created_at)),
        ("next attempt", _next_attempt(item)),
        ("ended", text.moment_and_age(item.ended_at)),
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
    return text.moment_and_age(item.next_attempt_at) if item.next_attempt_at else "at once"


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
        prompts.confirm(f"Give up on {noun} {names}?", yes=args.yes)
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
