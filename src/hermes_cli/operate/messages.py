"""`hermes inbox`, `outbox` and `send`: incoming messages, deliveries to chats, and sending a message.

`send` stores its message in the outbox; the gateway delivers it. Its exit codes: 0 delivered (or stored, with
`--wait 0`), 1 not delivered or unknown, 3 still pending.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Collection, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, NamedTuple

from gateway import status
from gateway.config import GatewayConfig, Platform, load_gateway_config
from hermes_cli.framework import output, prompts, store, text
from hermes_cli.framework.output import CommandAnswer
from hermes_cli.framework.parser import Parser, Verbs, add_json, example_platform, natural, positive
from hermes_config import accounts
from hermes_config.errors import ConfigError, HermesError, UsageError
from hermes_config.home import hermes_home
from hermes_state import SessionDB
from hermes_state.ids import new_trace_id
from hermes_state.turns.outbox import NewOutboxItem, OutboxItem

STATES_INBOX = ("queued", "claimed", "answered", "error", "silent", "missed", "dropped", "superseded", "refused")
STATES_OUTBOX = ("draft", "held", "pending", "sending", "sent", "failed", "unknown", "dropped")


class NoSuchMessage(HermesError):
    """There is no such message."""

    default_hint = "hermes inbox list shows them."


class NoSuchItem(HermesError):
    """There is no such delivery."""

    default_hint = "hermes outbox list shows them."


def _list_answer(
    args: argparse.Namespace, document: dict[str, Any], columns: tuple[str, str], cells: Sequence[Sequence[str]], *,
    nothing: str,
) -> CommandAnswer:  # fmt: skip
    """Make a page of messages or deliveries, with the counts per state and the option for older ones below it."""
    moment, last = columns
    shown = output.columns(">ID", "State", f">{moment}", "Chat…14", "Text…16", f"{last}…")
    notes = [f"In all: {output.tally(document['counts'])}."]
    if len(cells) == args.limit:
        notes.append(f"--before {cells[-1][0]} shows older ones.")
    return output.list_answer(document, shown, cells, nothing=nothing, notes=notes)


def register_inbox(parser: Parser) -> None:
    verbs = Verbs(parser)
    listing = verbs.add(
        "list", _list_inbox, "list incoming messages, newest first",
        "", "--state queued", "--route agent:main:{platform}:dm:42 --json", db=True, json=True, limit=20,
    )  # fmt: skip
    listing.add_argument("--state", choices=STATES_INBOX, help="only those in this state")
    listing.add_argument("--route", metavar="KEY", help="only those of one route")
    listing.add_argument("--before", type=positive, metavar="ID", help="only older ones: the next page")
    show = verbs.add("show", _show_inbox, "show one message and its outcome", "17", db=True, json=True)
    show.add_argument("id", type=positive, metavar="ID", help="as hermes inbox list shows it")


def _list_inbox(args: argparse.Namespace, db: SessionDB) -> CommandAnswer:
    rows = db.inbox.list(state=args.state, route=args.route, before=args.before, limit=args.limit)
    cells = [
        (str(row.id), row.state, text.ago(row.received_at), f"{row.platform}:{row.chat_id}",
         output.beginning(str((row.payload or {}).get("text") or "—")), row.reason or "—")
        for row in rows
    ]  # fmt: skip
    narrowed = args.state or args.route or args.before
    nothing = "Nothing matches." if narrowed else "No message has come in yet."
    document = {"messages": [asdict(row) for row in rows], "counts": db.inbox.counts()}
    return _list_answer(args, document, ("Came", "Reason"), cells, nothing=nothing)


def _show_inbox(args: argparse.Namespace, db: SessionDB) -> CommandAnswer:
    row = db.inbox.get(args.id)
    if row is None:
        raise NoSuchMessage(f"there is no message {args.id}")
    rows = (
        ("message", row.id),
        ("state", row.state),
        ("reason", row.reason),
        ("from", f"{row.platform}:{row.chat_id}"),
        ("platform id", f"{row.message_id}" + (f", version {row.version}" if row.version else "")),
        ("route", row.route),
        ("person", row.person_id),
        ("came", text.moment_and_age(row.received_at)),
        ("ended", text.moment_and_age(row.ended_at)),
        ("turn", row.turn_id),
        ("trace", row.trace_id),
    )
    return CommandAnswer(asdict(row), drawn=output.facts(rows, str((row.payload or {}).get("text") or "")))


def register_outbox(parser: Parser) -> None:
    verbs = Verbs(parser)
    listing = verbs.add(
        "list", _list_outbox, "list deliveries and their state, newest first",
        "", "--stuck", "--state pending --before 1200 --json", db=True, json=True, limit=20,
    )  # fmt: skip
    which = listing.add_mutually_exclusive_group()
    which.add_argument("--state", choices=STATES_OUTBOX, help="only those in this state")
    which.add_argument("--stuck", action="store_true", help="only those that failed or whose outcome is unknown")
    listing.add_argument("--before", type=positive, metavar="ID", help="only older ones: the next page")
    show = verbs.add("show", _show_outbox, "show one delivery and its text", "17", db=True, json=True)
    show.add_argument("id", type=positive, metavar="ID", help="as hermes outbox list shows it")
    retry = verbs.add(
        "retry", _retry_outbox, "send failed deliveries again; one that may have arrived is marked as sent again",
        "17", "17 18 19", db=True, json=True,
    )  # fmt: skip
    drop = verbs.add(
        "drop", _drop_outbox, "give up on deliveries that are not being sent", "17 --yes", db=True, json=True, yes=True
    )
    for verb in (retry, drop):
        verb.add_argument("ids", type=positive, nargs="+", metavar="ID", help="as hermes outbox list shows it")
    send = verbs.add("send", _send_held, "send an answer that is held", "17", db=True, json=True)
    about = "send an answer that is held, with another text; the model learns of it"
    edit = verbs.add("edit", _edit_held, about, "17 'We open at nine.'", "17 - < answer.txt", db=True, json=True)
    for verb in (send, edit):
        verb.add_argument("id", type=positive, metavar="ID", help="as hermes outbox list --state held shows it")
    edit.add_argument("text", metavar="TEXT", help="the text to send instead; - reads a pipe")


def _list_outbox(args: argparse.Namespace, db: SessionDB) -> CommandAnswer:
    if args.stuck:
        items = db.outbox.dead_letters(before=args.before, limit=args.limit)
    else:
        items = db.outbox.list(state=args.state, before=args.before, limit=args.limit)
    served = _served()
    cells = [
        (str(item.id), item.state, text.ago(item.created_at), f"{item.platform}:{item.chat_id}",
         output.beginning(str(item.payload.get("text") or item.payload.get("kind") or "—")),
         _problem(item, served) or "—")
        for item in items
    ]  # fmt: skip
    narrowed = args.state or args.stuck or args.before
    nothing = "Nothing matches." if narrowed else "There were no deliveries yet."
    document = {"items": [asdict(item) for item in items], "counts": db.outbox.counts()}
    return _list_answer(args, document, ("Made", "Problem"), cells, nothing=nothing)


def _served() -> Collection[str] | None:
    """Return the platforms of this home's gateway; None when the configuration does not load."""
    try:
        return {platform.value for platform in load_gateway_config().get_connected_platforms()}
    except ConfigError:
        return None


def _problem(item: OutboxItem, served: Collection[str] | None) -> str | None:
    return f"waiting: {item.platform} is disabled or not set up" if _is_unserved(item, served) else item.error


def _is_unserved(item: OutboxItem, served: Collection[str] | None) -> bool:
    return item.state == "pending" and served is not None and item.platform not in served


def _show_outbox(args: argparse.Namespace, db: SessionDB) -> CommandAnswer:
    item, served = _get_outbox(db, args.id), _served()
    next_attempt = text.moment_and_age(item.next_attempt_at) if item.next_attempt_at else "at once"
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
        ("next attempt", next_attempt if item.state == "pending" else None),
        ("ended", text.moment_and_age(item.ended_at)),
        ("sender", item.sender if item.state == "sending" else None),
        ("messages", ", ".join(filter(None, item.platform_ids))),
        ("conversation", item.conversation_id),
        ("turn", item.turn_id),
        ("trace", item.trace_id),
        ("do", _advice(item, served)),
    )
    return CommandAnswer(asdict(item), drawn=output.facts(rows, str(item.payload.get("text") or "")))


def _advice(item: OutboxItem, served: Collection[str] | None) -> str:
    if _is_unserved(item, served):
        return f"hermes gateway setup {item.platform}, or hermes outbox drop {item.id}"
    if item.state == "held":
        return f"hermes outbox send {item.id}, hermes outbox edit {item.id} TEXT, or hermes outbox drop {item.id}"
    if item.state == "unknown":
        return f"check the chat; if the message is not there: hermes outbox retry {item.id}"
    return f"hermes outbox retry {item.id}, or hermes outbox drop {item.id}" if item.state == "failed" else ""


def _get_outbox(db: SessionDB, item_id: int) -> OutboxItem:
    item = db.outbox.get(item_id)
    if item is None:
        raise NoSuchItem(f"there is no delivery {item_id}")
    return item


def _retry_outbox(args: argparse.Namespace, db: SessionDB) -> CommandAnswer:
    before = [_get_outbox(db, item_id) for item_id in args.ids]
    for item in before:
        if item.state not in ("failed", "unknown"):
            raise UsageError(f"delivery {item.id} is {item.state}; only failed and unknown ones are sent again")
    done = [item for item in before if db.outbox.retry(item.id)]
    again = " It may have arrived before, so its text will say that it is a repetition."
    said = [
        f"Delivery {item.id} to {item.platform}:{item.chat_id} is due now.{again if item.state == 'unknown' else ''}"
        for item in done
    ]
    return CommandAnswer({"queued": [item.id for item in done]}, *said, notes=() if gateway_runs() else [_NO_GATEWAY])


def _drop_outbox(args: argparse.Namespace, db: SessionDB) -> CommandAnswer:
    before = [_get_outbox(db, item_id) for item_id in args.ids]
    names = ", ".join(str(item.id) for item in before)
    noun = "delivery" if len(before) == 1 else "deliveries"
    prompts.confirm(f"Give up on {noun} {names}?", yes=args.yes)
    done = [item.id for item in before if _dropped(db, item)]
    said = [f"Dropped: {', '.join(map(str, done))}."] if done else []
    left = [UsageError(f"delivery {i.id} is {i.state} and cannot be dropped") for i in before if i.id not in done]
    return CommandAnswer({"dropped": done}, *said, error=left[0] if left else None)


def _dropped(db: SessionDB, item: OutboxItem) -> bool:
    if item.state == "held":
        return db.held_answers.decide(item.id, "drop", by=_OWNER).outcome == "dropped"
    return db.outbox.drop(item.id)


def _send_held(args: argparse.Namespace, db: SessionDB) -> CommandAnswer:
    return _decide_held(db, args.id, "send")


def _edit_held(args: argparse.Namespace, db: SessionDB) -> CommandAnswer:
    words = sys.stdin.read() if args.text == "-" else args.text
    if not words.strip():
        raise UsageError("the text is empty", hint=f"hermes outbox drop {args.id} sends nothing.")
    return _decide_held(db, args.id, "edit", words.strip())


def _decide_held(db: SessionDB, item_id: int, choice: Literal["send", "edit"], words: str = "") -> CommandAnswer:
    item = _get_outbox(db, item_id)
    done = db.held_answers.decide(item_id, choice, by=_OWNER, text=words)
    if done.outcome not in ("sent", "edited"):
        from hermes_agent.commands.held_answers import said as reason

        raise UsageError(reason(done, item_id).rstrip("."), hint="hermes outbox list --state held")
    said = f"Delivery {item_id} to {item.platform}:{item.chat_id} is due now{', with your text' if words else ''}."
    return CommandAnswer({"id": item_id, "outcome": done.outcome}, said, notes=() if gateway_runs() else [_NO_GATEWAY])


def gateway_runs() -> bool:
    return status.is_running(hermes_home())


_NO_GATEWAY = "No gateway is running; the next one sends it (hermes gateway start)."
_LOOK_SECONDS = 0.1
_OWNER = "the owner"
_WHOLE_IDS = ("matrix", "signal", "email", "whatsapp")
"""Platforms whose chat ids may contain a colon; of these only Matrix has threads, which begin with `$`."""


class NotDelivered(HermesError):
    """The message was not delivered."""


class StillWaiting(HermesError):
    """The message is stored and not delivered yet."""

    exit_code = 3


class Target(NamedTuple):
    platform: str
    chat_id: str
    thread_id: str | None


def register_send(parser: Parser) -> None:
    parser.add_examples(
        "{platform} 'The backup is done.'", "{platform}:42 hello", "{platform}:-1001:7 - < report.txt",
        "-t {platform}:42 -s Report -f report.txt", "--list",
    )  # fmt: skip
    target = "PLATFORM (its home channel), PLATFORM:CHAT or …:CHAT:THREAD"
    parser.add_argument(
        "words", nargs="*", default=[], metavar="TARGET TEXT", help=f"{target}; then the message, - reads a pipe"
    )
    parser.add_argument("-t", "--target", metavar="TARGET", help="the target as an option; all words are the message")
    parser.add_argument("-f", "--file", metavar="FILE", help="the message is the text of this file; -: of a pipe")
    parser.add_argument("-s", "--subject", metavar="LINE", help="a line above the message")
    parser.add_argument(
        "-l", "--list", action="store_true", help="only list the targets that can be named without a chat"
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="print nothing after a delivery")
    wait = "seconds to wait for the outcome (default 15; 0: do not wait)"
    parser.add_argument("--wait", type=natural, default=15, metavar="SECONDS", help=wait)
    add_json(parser)
    parser.set_defaults(run=_send)


def _send(args: argparse.Namespace) -> CommandAnswer:
    settings = load_gateway_config()
    if args.list:
        return _targets(settings)
    named, words = _message(args)
    if not words.strip():
        raise UsageError("the message is empty", hint="Write hermes send TARGET TEXT, or pipe the TEXT in.")
    if args.subject:
        words = f"{args.subject}\n\n{words}"
    target = find_target(named, settings)
    trace = new_trace_id()
    payload = {"text": words, "kind": "notice"}
    if target.thread_id is not None:
        payload["thread_id"] = target.thread_id
    with store.open_store(create=True) as db:
        item = db.outbox.enqueue(
            NewOutboxItem(
                dedup_key=f"send:{trace}", platform=target.platform, chat_id=target.chat_id, payload=payload,
                trace_id=trace,
            )
        )  # fmt: skip
        runs = gateway_runs()
        if runs:
            item = _wait(db, item, args.wait)
    said, error = _outcome(item, target, runs=runs, waited=args.wait)
    document = {
        "id": item.id, "state": item.state, "error": item.error, "gateway": runs, "message_ids": item.platform_ids,
        "trace_id": item.trace_id,
    }  # fmt: skip
    return CommandAnswer(document, *([] if args.quiet else said), error=error)


def _targets(settings: GatewayConfig) -> CommandAnswer:
    """List the platforms that are set up; one with a home channel is a target by itself."""
    homes = {one.value: settings.get_home_channel(one) for one in settings.get_connected_platforms()}
    rows = [(name, "no home channel" if home is None else f"chat {home.chat_id}") for name, home in homes.items()]
    document = {name: None if home is None else home.chat_id for name, home in homes.items()}
    return output.list_answer(document, output.columns("Target", "Leads to…"), rows, nothing="No platform is set up.")


def _message(args: argparse.Namespace) -> tuple[str, str]:
    """Return the target and the text, from words, a file or a pipe."""
    words = list(args.words)
    target = args.target or (words.pop(0) if words else "")
    if not target:
        raise UsageError(
            "there is no TARGET", hint=f"hermes send {example_platform()}:42 'hello', or hermes send --list."
        )
    if args.file is not None and words:
        raise UsageError("the message is given twice: as TEXT and with --file", hint="Give one of them.")
    if len(words) > 1:
        raise UsageError(f"the message is more than one word: {words[1][:40]!r}", hint="Write it in quotes.")
    source = args.file or (words[0] if words else "-")
    if args.file is None and words and source != "-":
        return target, source
    if source != "-":
        return target, _text_of(source)
    if not words and args.file is None and sys.stdin.isatty():
        raise UsageError("there is no TEXT", hint=f"hermes send {target[:60]} 'hello', or pipe it in.")
    return target, sys.stdin.read()


def _text_of(file: str) -> str:
    try:
        return Path(file).expanduser().read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UsageError("the file is not UTF-8 text", where=file) from error
    except OSError as error:
        raise UsageError(f"the file cannot be read: {error.strerror}", where=file) from error


def _wait(db: SessionDB, item: OutboxItem, seconds: int) -> OutboxItem:
    deadline = time.monotonic() + seconds
    while item.state in ("pending", "sending") and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
        item = db.outbox.get(item.id) or item
    return item


def _outcome(item: OutboxItem, target: Target, *, runs: bool, waited: int) -> tuple[list[str], HermesError | None]:
    """Return the sentences about a stored message, and the error if it was not delivered."""
    chat = f"{target.platform}:{text.harmless(target.chat_id)}"
    if item.state == "sent":
        return [f"Delivered to {chat}."], None
    if item.state not in ("pending", "sending"):
        hint = f"hermes outbox show {item.id} shows more."
        return [], NotDelivered(f"{item.state}: {item.error}", where=chat, hint=hint)
    if not waited:
        return [f"Stored as delivery {item.id} to {chat}.{'' if runs else f' {_NO_GATEWAY}'}"], None
    hint = f"hermes outbox show {item.id} follows it." if runs else "hermes gateway start delivers it."
    why = item.error or ("not yet delivered" if runs else "no gateway is running")
    return [], StillWaiting(f"stored as delivery {item.id}, still pending: {why}", where=chat, hint=hint)


# -- targets ----------------------------------------------------------------------------------------------------------


def find_target(given: str, settings: GatewayConfig) -> Target:
    """Parse `platform`, `platform:chat` or `platform:chat:thread`; the platform must be set up."""
    name, _, rest = given.strip().partition(":")
    platform = Platform.find(name)
    if platform is None:
        raise UsageError(f"no platform is called {name!r:.40}", hint=_known(settings))
    if not rest:
        return _home(platform, settings)
    if platform not in settings.platforms or not settings.platforms[platform].enabled:
        raise UsageError(f"{platform.value} is not set up on this home", hint=_known(settings))
    chat, thread = _split(platform.value, rest)
    if chat.startswith("#") and accounts.platform_of(platform.value) != "matrix":
        raise UsageError(f"{chat!r:.80} is a name; give the id of the chat", hint="hermes inbox list shows ids.")
    return Target(platform.value, chat, thread)


def _home(platform: Platform, settings: GatewayConfig) -> Target:
    home = settings.get_home_channel(platform)
    if home is None:
        start = accounts.platform_of(platform.value).upper()
        variable = accounts.variable(f"{start}_HOME_CHANNEL", platform.value)
        raise UsageError(
            f"{platform.value} has no home channel", hint=f"Name the chat ({platform.value}:ID), or set {variable}."
        )
    return Target(platform.value, home.chat_id, home.thread_id)


def _split(platform: str, rest: str) -> tuple[str, str | None]:
    if accounts.platform_of(platform) in _WHOLE_IDS:
        chat, mark, thread = rest.partition(":$")
        return (chat, f"${thread}") if mark else (rest, None)
    chat, _, thread = rest.partition(":")
    if not chat or thread.count(":"):
        raise UsageError(f"{rest!r:.80} is not a chat", hint="Write PLATFORM:CHAT or PLATFORM:CHAT:THREAD.")
    return chat, thread or None


def _known(settings: GatewayConfig) -> str:
    names = sorted(platform.value for platform, one in settings.platforms.items() if one.enabled)
    return (
        f"These are set up: {', '.join(names)}."
        if names
        else f"No platform is set up; hermes gateway setup {example_platform()} sets one up."
    )
