"""`hermes`, `hermes --plain`, `hermes -q TEXT`, `hermes -z TEXT`: talking to Hermes from a shell.

With a terminal and no text it is the window (`tui`), or the line chat (`chat_line`) where no window can open or none is
wanted; with a text, or with text in a pipe, it is one turn (`chat_once`). Who sits down to talk before a model was
chosen is asked the questions of `hermes setup` first. This module reads the command line, finds the conversation that
is meant, and opens the store.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from hermes_cli.framework import store
from hermes_cli.framework.parser import Parser, add_json, positive
from hermes_cli.sessions import lookup
from hermes_config import config
from hermes_config.errors import UsageError

if TYPE_CHECKING:
    from hermes_cli.chat_desk import Wishes
    from hermes_state import SessionDB

_EXAMPLES = """examples:
  hermes                                     talk
  hermes -q "what is in this folder?"        one question, then back to the shell
  git diff | hermes -z "a commit message"    the bare answer, for scripts
  hermes --continue                          go on with the latest conversation
  hermes --resume "Trip to Kyoto"            with this one: a title, an id, or its beginning
  hermes --model demo                        the built-in model: offline, scripted
  hermes chat -q "hello" --json              the answer and its figures, for programs

exit codes:
  0 answered · 1 the model or the turn failed · 2 a wrong command line · 130 interrupted"""


def register(parser: Parser) -> None:
    parser.epilog = _EXAMPLES
    asking = parser.add_mutually_exclusive_group()
    asking.add_argument("-q", "--query", metavar="TEXT", help="one turn: the answer on stdout, the rest on stderr")
    asking.add_argument("-z", "--oneshot", metavar="TEXT", help="one turn: the bare answer on stdout, nothing else")
    asking.add_argument("--plain", action="store_true", help="talk line by line, without the window")
    parser.add_argument("-m", "--model", metavar="NAME", help="another model, for example anthropic/claude-sonnet-4.6")
    parser.add_argument("--provider", metavar="NAME", help="whose model it is")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("-r", "--resume", metavar="ID", help="go on with a conversation: id, title or their beginning")
    which.add_argument(
        "-c", "--continue", dest="go_on", nargs="?", const="", metavar="TITLE", help="go on with the latest one"
    )
    parser.add_argument("-t", "--toolsets", metavar="A,B", help="only these tools or toolsets (see hermes tools)")
    parser.add_argument("--max-turns", type=positive, metavar="N", help="at most N model steps for one question")
    parser.add_argument(
        "--yolo", action="store_true", help="ask for no permission; what is never done and deny rules still hold"
    )
    parser.add_argument("--source", metavar="NAME", help="file a new conversation under this source (default cli)")
    add_json(parser)
    parser.set_defaults(run=_chat)


def _chat(args: argparse.Namespace) -> int:
    from hermes_agent.execution import executor
    from hermes_cli.chat import oneshot

    asked = args.query if args.query is not None else args.oneshot
    talks = asked is None and sys.stdin.isatty()
    if talks and args.json:
        raise UsageError("--json answers one question", hint='Add the question: hermes -q "…" --json.')
    text = "" if talks else oneshot.whole_question(asked)
    if talks and not args.model and not config.load().model.default:
        from hermes_cli.setup import command

        command.before_talking()
    executor.wall_of(config.load())  # raises when the configured one cannot be used
    if talks and not args.plain and _has_window():
        return _open_window(args)
    wishes = _wishes(args)
    loaded = config.load()
    with store.open_store(create=True, says_waits=not talks) as db:
        session_id = _meant(db, args)
        if talks and session_id is not None and not _wants_its_own(args) and _is_served(db, session_id):
            from hermes_cli.chat import repl

            return repl.talk(db, session_id)
        if talks:
            from hermes_cli import chat_line

            return chat_line.talk(db, loaded, wishes, session_id=session_id)
        form = oneshot.AnswerForm(json=args.json, bare=args.oneshot is not None)
        return oneshot.answer(db, loaded, wishes, text, form=form, session_id=session_id)


def _wants_its_own(args: argparse.Namespace) -> bool:
    """A turn of this process, which can have what a gateway's has not."""
    return bool(args.model or args.provider or args.yolo or args.toolsets or args.max_turns)


def _is_served(db: SessionDB, session_id: str) -> bool:
    """Whether a gateway answers there: then what is typed here is handed to it."""
    from gateway.access.policy import PolicyKeeper
    from tui_gateway.session import attach

    return attach.served(db, session_id, PolicyKeeper(db)) is not None


def _has_window() -> bool:
    from hermes_cli.tui import launch

    return launch.can_open()


def _open_window(args: argparse.Namespace) -> int:
    """The terminal UI. Which conversation is meant is looked up here, so that a wrong name ends in a line."""
    from hermes_cli.tui import launch

    def wanted() -> launch.Start:
        session_id = None
        if args.resume is not None or args.go_on is not None:
            with store.open_store(create=True) as db:
                session_id = _meant(db, args)
        return launch.Start(
            session_id=session_id, model=args.model, provider=args.provider, yolo=args.yolo, source=args.source,
            toolsets=_toolsets(args), max_turns=args.max_turns,
        )  # fmt: skip

    return launch.open_window(wanted)


def _toolsets(args: argparse.Namespace) -> tuple[str, ...] | None:
    """What `-t` names. A typing mistake would leave the model without tools, and nobody the wiser."""
    if not args.toolsets:
        return None
    from hermes_agent.tools import registry
    from hermes_cli import plugins

    plugins.discover_plugins()
    wanted = tuple(name.strip() for name in args.toolsets.split(",") if name.strip())
    tools = registry.shared().tools()
    if unknown := registry.unknown_toolsets(wanted, tools):
        there_are = ", ".join(registry.toolset_names(tools))
        raise UsageError(f"there is no toolset {' or '.join(unknown)}; there are {there_are}", where="--toolsets")
    return wanted


def _wishes(args: argparse.Namespace) -> Wishes:
    from hermes_cli.chat_desk import Wishes  # brings the agent

    return Wishes(
        model=args.model, provider=args.provider, yolo=args.yolo, source=args.source, toolsets=_toolsets(args),
        max_turns=args.max_turns,
    )  # fmt: skip


def _meant(db: SessionDB, args: argparse.Namespace) -> str | None:
    """The newest segment of the conversation to go on with; None for a new one."""
    named = args.resume or args.go_on
    if named:
        found = lookup.find(db, named, guess=True)["id"]
    elif args.resume == "":
        raise UsageError("--resume needs an id or a title", hint="hermes sessions list shows them.")
    elif args.go_on is None:
        return None
    else:
        found = _latest(db, args.source)
    return str(db.ledger.reopen(db.get_compression_tip(found)).session_id)


def _latest(db: SessionDB, source: str | None) -> str:
    """What the person of this terminal was last talking about."""
    from hermes_state.ids import LOCAL_OWNER

    rows = db.list_sessions_rich(
        owner=LOCAL_OWNER, source=source, order_by_last_active=True, compact_rows=True, min_message_count=1, limit=1
    )
    if not rows:
        raise UsageError("there is no conversation of yours to go on with", hint="hermes begins one.")
    return str(rows[0]["id"])
