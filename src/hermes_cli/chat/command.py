"""`hermes`, `hermes --plain`, `hermes -q TEXT`, `hermes -z TEXT`: talking to Hermes from a shell.

With a terminal and no text it opens the window (`tui`), or the line chat (`repl`) with `--plain` or where no window can
open; with a text, or with text in a pipe, it runs one turn (`oneshot`). Without a configured model, `hermes setup` runs
first. This module reads the command line, finds the conversation and opens the store.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_cli.framework import store
from hermes_cli.framework import text as words
from hermes_cli.framework.parser import Parser, add_json, positive
from hermes_cli.sessions import lookup
from hermes_cli.tui import launch
from hermes_cli.tui.rpc_client import ChatOptions
from hermes_config import config
from hermes_config.errors import UsageError

if TYPE_CHECKING:
    from hermes_state import SessionDB

_EXAMPLES = """examples:
  hermes                                     start a chat
  hermes -q "what is in this folder?"        ask one question, then return to the shell
  git diff | hermes -z "a commit message"    print only the answer, for scripts
  hermes -q "what is this?" --image a.png    ask about a picture (in the chat: @a.png, or drop it on the window)
  hermes --continue                          continue the latest conversation
  hermes --resume "Trip to Kyoto"            continue this one: id, title or their beginning
  hermes --model demo                        use the built-in model: offline, scripted
  hermes chat -q "hello" --json              print the answer and its figures, for programs

exit codes:
  0 answered · 1 the model or the turn failed · 2 invalid command line · 130 interrupted"""


def register(parser: Parser) -> None:
    parser.epilog = _EXAMPLES
    asking = parser.add_mutually_exclusive_group()
    asking.add_argument("-q", "--query", metavar="TEXT", help="run one turn: the answer on stdout, the rest on stderr")
    asking.add_argument("-z", "--oneshot", metavar="TEXT", help="run one turn: print only the answer")
    asking.add_argument("--plain", "--cli", action="store_true", help="talk line by line, without the window")
    parser.add_argument("-m", "--model", metavar="NAME", help="another model, for example anthropic/claude-sonnet-4.6")
    parser.add_argument("--provider", metavar="NAME", help="the provider of the model")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("-r", "--resume", metavar="ID", help="continue a conversation: id, title or their beginning")
    which.add_argument(
        "-c", "--continue", dest="go_on", nargs="?", const="", metavar="TITLE", help="continue the latest conversation"
    )
    parser.add_argument("-t", "--toolsets", metavar="A,B", help="use only these tools or toolsets (see hermes tools)")
    parser.add_argument("--max-turns", type=positive, metavar="N", help="at most N model steps for one question")
    parser.add_argument(
        "--yolo", action="store_true", help="do not ask for permission; forbidden commands and deny rules still apply"
    )
    parser.add_argument("--source", metavar="NAME", help="the source of a new conversation (default cli)")
    parser.add_argument(
        "-Q", "--quiet", action="store_true", help="with one turn: only the answer on stdout, session_id: ID on stderr"
    )
    parser.add_argument("--usage-file", metavar="FILE", help="with one turn: write its figures to this file, as JSON")
    parser.add_argument("--image", action="append", default=[], metavar="FILE", help="with one turn: add a picture")
    add_json(parser)
    parser.set_defaults(run=_chat)


def _chat(args: argparse.Namespace) -> int:
    from hermes_agent import home_inventory
    from hermes_agent.execution import executor

    home_inventory.require_acknowledged(config.load())
    asked = args.query if args.query is not None else args.oneshot
    talks = asked is None and sys.stdin.isatty()
    if talks and (args.json or args.quiet or args.usage_file or args.image):
        flag = "--json" if args.json else "--quiet" if args.quiet else "--image FILE" if args.image else "--usage-file"
        raise UsageError(f"{flag} needs one question", hint=f'Add the question: hermes -q "…" {flag}.')
    if not talks:
        from hermes_agent import mentions
        from hermes_cli.chat import oneshot

        text = oneshot.whole_question(asked) + mentions.picture_names(_pictures(args.image))
        bare = args.oneshot is not None
        executor.sandbox_of(config.load())  # raises when the configured executor cannot be used
        with store.open_store(create=True) as db:
            options = _options(args, db)
            _say_which(db, options.session_id, args.resume or args.go_on)
            return oneshot.answer(
                db, config.load(), options, text, as_json=args.json, bare=bare, quiet=args.quiet,
                usage_file=args.usage_file,
            )  # fmt: skip
    model = config.load().model
    if not (args.model or model.default or model.base_url or model.provider != "auto"):
        from hermes_cli.setup import command

        command.before_talking()
    executor.sandbox_of(config.load())
    if not args.plain and launch.can_open():
        return launch.open_window(lambda: _options(args))
    from hermes_agent.models import providers
    from hermes_cli.chat.repl import LineChat

    providers.primary(config.load(), model=args.model, provider=args.provider)  # raises when there is no model
    with store.open_store(create=True, says_waits=False) as db:
        options = _options(args, db)
        remarks = _remarks(db, options.session_id)
    return LineChat(options, remarks=remarks).talk()


def _pictures(paths: list[str]) -> list[str]:
    """Return the files of `--image`. Raises a `UsageError` for one that is not a picture."""
    from hermes_agent.media.pictures import picture_type

    for path in paths:
        try:
            with Path(path).open("rb") as file:
                head = file.read(16)
        except OSError as error:
            raise UsageError(f"{path} cannot be read: {error.strerror}", where="--image") from error
        if picture_type(head) is None or '"' in path:
            raise UsageError(f"{path} is not a picture", where="--image", hint="PNG, JPEG, GIF and WebP are taken.")
    return paths


def _options(args: argparse.Namespace, db: SessionDB | None = None) -> ChatOptions:
    """Build the options, and find the conversation here so that a wrong name gives a one-line error."""
    session_id = None
    if args.resume is not None or args.go_on is not None:
        with contextlib.nullcontext(db) if db is not None else store.open_store(create=True) as opened:
            session_id = _meant(opened, args)
    return ChatOptions(
        session_id=session_id, model=args.model, provider=args.provider, yolo=args.yolo, source=args.source,
        toolsets=_toolsets(args), max_turns=args.max_turns,
    )  # fmt: skip


def _say_which(db: SessionDB, session_id: str | None, named: str | None) -> None:
    """Name the conversation that one turn continues, unless the person gave its id."""
    row = None if session_id is None or (named and db.get_session(named)) else db.get_session(session_id)
    if row is not None:
        title = words.shorten(words.harmless(lookup.title_of(row)), 60)
        print(f"continues {title} ({row['id']})", file=sys.stderr)


def _remarks(db: SessionDB, session_id: str | None) -> list[str]:
    """Return the remarks that are shown before the chat."""
    from hermes_agent import process_identity

    if session_id is not None:
        shared = "other people read this conversation, so Hermes does not use its memory about you here"
        return [] if lookup.is_own(db, session_id) else [shared]
    for turn in db.turns.list(state="running"):
        if not process_identity.at_work(db, turn.conversation_id) and lookup.is_own(db, turn.conversation_id):
            where = db.get_compression_tip(turn.conversation_id)
            return [f"the process of a turn died; to recover the turn: hermes --resume {where}"]
    return []


def _toolsets(args: argparse.Namespace) -> tuple[str, ...] | None:
    """Return the toolsets of `-t`. An unknown name is an error: it would silently leave the model without tools."""
    if not args.toolsets:
        return None
    from hermes_cli.maintenance.inspect import check_toolsets

    wanted = tuple(name.strip() for name in args.toolsets.split(",") if name.strip())
    check_toolsets(wanted, where="--toolsets")
    return wanted


def _meant(db: SessionDB, args: argparse.Namespace) -> str | None:
    """Return the newest segment of the conversation to continue; None for a new one."""
    named = args.resume or args.go_on
    if named:
        found = lookup.find(db, named, begins=True)["id"]
    elif args.resume == "":
        raise UsageError("--resume needs an id or a title", hint="hermes sessions list shows all conversations.")
    elif args.go_on is None:
        return None
    else:
        found = _latest(db, args.source)
    return str(db.ledger.reopen(db.get_compression_tip(found)).session_id)


def _latest(db: SessionDB, source: str | None) -> str:
    """Return the latest conversation of the person at this terminal."""
    from hermes_state.ids import LOCAL_OWNER

    rows = db.list_sessions_rich(
        owner=LOCAL_OWNER, source=source, exclude_sources=None if source else ["cron"], order_by_last_active=True,
        compact_rows=True, min_message_count=1, limit=1,
    )  # fmt: skip
    if not rows:
        raise UsageError("you have no conversation to continue", hint="hermes starts one.")
    return str(rows[0]["id"])
