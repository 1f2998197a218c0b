"""`hermes memory`: what is remembered of the person at this terminal, and in which files."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from hermes_cli import output, text
from hermes_cli.parser import Parser, Verbs, add_json
from hermes_config import config

if TYPE_CHECKING:
    from hermes_agent.memory import MemoryStore, Target

_TARGETS: tuple[tuple[Target, str], ...] = (
    ("memory", "Notes"),
    ("user", "About you"),
    ("shared", "Known to everybody"),
)


def register(parser: Parser) -> None:
    parser.set_defaults(run=_show, json=False)
    verbs = Verbs(parser)
    add_json(verbs.add("show", _show, help="show what is remembered", example="hermes memory show"))
    verbs.add(
        "path",
        _path,
        help="print the files, which you may edit",
        example="""hermes memory path
                   "$EDITOR" $(hermes memory path)""",
    )


def _store() -> MemoryStore:
    from hermes_agent.memory import MemoryStore
    from hermes_state.ids import LOCAL_OWNER

    loaded = config.load()
    return MemoryStore(loaded.home, LOCAL_OWNER, config=loaded.tree, limits=loaded.limits)


def _show(args: argparse.Namespace) -> None:
    store = _store()
    kept = {target: store.read(target) for target, _ in _TARGETS}
    if args.json:
        output.print_json({
            name: {"file": str(store.path(name)), "entries": one.entries, "used": one.used, "limit": one.limit}
            for name, one in kept.items()
        })  # fmt: skip
        return
    parts = []
    for target, heading in _TARGETS:
        memory = kept[target]
        if memory.entries:
            used = f"{memory.used:,} of {memory.limit:,} characters"
            entries = [f"· {text.harmless_block(entry)}".replace("\n", "\n  ") for entry in memory.entries]
            parts.append("\n".join([f"{output.style(heading, 'bold')} ({used})", *entries]))
    output.page("\n\n".join(parts) or "Nothing is remembered yet. Say “remember that …” in a chat.")


def _path(_: argparse.Namespace) -> None:
    store = _store()
    print("\n".join(str(store.path(target)) for target, _heading in _TARGETS if target != "shared"))
