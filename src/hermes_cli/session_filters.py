"""The filters that `prune` and `archive` share: which conversations are meant, in flags and in the store's words."""

from __future__ import annotations

import argparse
import time
from typing import Any

from hermes_cli import moments
from hermes_cli.parser import Parser

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
        "--older-than", type=moments.days, metavar="AGE", help="silent for longer than 30 (days), 12h, 2w"
    )
    group.add_argument("--newer-than", type=moments.days, metavar="AGE", help="started less long ago than that")
    group.add_argument("--before", type=moments.instant, metavar="DATE", help="started before 2026-11-01")
    group.add_argument("--after", type=moments.instant, metavar="DATE", help="started after 2026-11-01")
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
