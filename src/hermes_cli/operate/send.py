"""`hermes send`: a message to a chat from the command line or a script, through the outbox like everything else.

It is stored when the command says so; the gateway delivers it. The exit code tells: 0 delivered (or stored, with
`--wait 0`), 1 it could not be delivered or nobody knows, 3 it still waits.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING, NamedTuple

from hermes_cli.framework import output, store, text
from hermes_cli.framework.parser import Parser, add_json, natural
from hermes_cli.operate.outbox import gateway_runs
from hermes_config.errors import HermesError, UsageError

if TYPE_CHECKING:
    from gateway.config import GatewayConfig, Platform
    from hermes_state import SessionDB
    from hermes_state.turns.outbox import OutboxItem

_LOOK_SECONDS = 0.1
_WHOLE_IDS = ("matrix", "signal", "email", "whatsapp")
"""Platforms whose chat ids may hold a colon; of these only Matrix has threads, which begin with `$`."""


class NotDelivered(HermesError):
    """The message was not delivered."""


class StillWaiting(HermesError):
    """The message is stored and not delivered yet."""

    exit_code = 3


class Target(NamedTuple):
    platform: str
    chat_id: str
    thread_id: str | None


def register(parser: Parser) -> None:
    examples = ("telegram 'The backup is done.'", "telegram:42 hello", "telegram:-1001:7 - < report.txt")
    parser.epilog = "examples:\n" + "\n".join(f"  hermes send {one}" for one in examples)
    parser.add_argument("target", metavar="TARGET", help="PLATFORM (its home channel), PLATFORM:CHAT or …:CHAT:THREAD")
    parser.add_argument("text", metavar="TEXT", help="what to say; - reads it from the standard input")
    parser.add_argument(
        "--wait", type=natural, default=15, metavar="SECONDS", help="for the outcome (default 15; 0: do not wait)"
    )
    add_json(parser)
    parser.set_defaults(run=_send)


def _send(args: argparse.Namespace) -> None:
    from gateway.config import load_gateway_config

    words = sys.stdin.read() if args.text == "-" else args.text
    if not words.strip():
        raise UsageError("there is nothing to say in an empty message")
    target = find_target(args.target, load_gateway_config())
    with store.open_store(create=True) as db:
        item = _store(db, target, words)
        runs = gateway_runs()
        if runs:
            item = _wait(db, item, args.wait)
    if args.json:
        output.print_json({"id": item.id, "state": item.state, "error": item.error, "gateway": runs,
                           "message_ids": item.platform_ids, "trace_id": item.trace_id})  # fmt: skip
    _say(item, target, runs=runs, waited=args.wait, quiet=args.json)


def _store(db: SessionDB, target: Target, words: str) -> OutboxItem:
    from hermes_state.ids import new_trace_id
    from hermes_state.turns.outbox import Parcel

    trace = new_trace_id()
    payload = {"text": words, "kind": "notice"}
    if target.thread_id is not None:
        payload["thread_id"] = target.thread_id
    return db.outbox.enqueue(
        Parcel(
            dedup_key=f"send:{trace}", platform=target.platform, chat_id=target.chat_id, payload=payload, trace_id=trace
        )
    )


def _wait(db: SessionDB, item: OutboxItem, seconds: int) -> OutboxItem:
    deadline = time.monotonic() + seconds
    while item.state in ("pending", "sending") and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
        item = db.outbox.get(item.id) or item
    return item


def _say(item: OutboxItem, target: Target, *, runs: bool, waited: int, quiet: bool) -> None:
    chat = f"{target.platform}:{text.harmless(target.chat_id)}"
    if item.state == "sent":
        if not quiet:
            print(f"Delivered to {chat}.")
    elif item.state in ("pending", "sending"):
        if not waited:
            note = "" if runs else " No gateway is running: it goes out when one does (hermes gateway start)."
            if not quiet:
                print(f"Stored as delivery {item.id} to {chat}.{note}")
            return
        hint = f"hermes outbox show {item.id} follows it." if runs else "hermes gateway start delivers it."
        why = item.error or ("not yet delivered" if runs else "no gateway is running")
        raise StillWaiting(f"stored as delivery {item.id}, and it waits: {why}", where=chat, hint=hint)
    else:
        raise NotDelivered(f"{item.state}: {item.error}", where=chat, hint=f"hermes outbox show {item.id} says more.")


# -- targets ----------------------------------------------------------------------------------------------------------


def find_target(given: str, settings: GatewayConfig) -> Target:
    """`platform`, `platform:chat` or `platform:chat:thread`, of a platform that is set up."""
    from gateway.config import Platform

    name, _, rest = given.strip().partition(":")
    platform = Platform.find(name)
    if platform is None:
        raise UsageError(f"no platform is called {name!r:.40}", hint=_known(settings))
    if not rest:
        return _home(platform, settings)
    if platform not in settings.platforms or not settings.platforms[platform].enabled:
        raise UsageError(f"{platform.value} is not set up on this home", hint=_known(settings))
    chat, thread = _split(platform.value, rest)
    if chat.startswith("#") and platform.value != "matrix":
        raise UsageError(f"{chat!r:.80} is a name; chats are known by their ids", hint="hermes inbox list shows ids.")
    return Target(platform.value, chat, thread)


def _home(platform: Platform, settings: GatewayConfig) -> Target:
    home = settings.get_home_channel(platform)
    if home is None:
        variable = f"{platform.value.upper()}_HOME_CHANNEL"
        raise UsageError(
            f"{platform.value} has no home channel", hint=f"Name the chat ({platform.value}:ID), or set {variable}."
        )
    return Target(platform.value, home.chat_id, home.thread_id)


def _split(platform: str, rest: str) -> tuple[str, str | None]:
    if platform in _WHOLE_IDS:
        chat, mark, thread = rest.partition(":$")
        return (chat, f"${thread}") if mark else (rest, None)
    chat, _, thread = rest.partition(":")
    if not chat or thread.count(":"):
        raise UsageError(f"{rest!r:.80} is no chat", hint="Write PLATFORM:CHAT or PLATFORM:CHAT:THREAD.")
    return chat, thread or None


def _known(settings: GatewayConfig) -> str:
    names = sorted(platform.value for platform, one in settings.platforms.items() if one.enabled)
    return f"Set up are: {', '.join(names)}." if names else "None is set up; hermes gateway setup telegram does it."
