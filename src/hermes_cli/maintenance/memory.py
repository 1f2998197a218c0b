"""`hermes memory`: show, edit and delete the entries that Hermes remembers about the owner."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from hermes_agent.knowledge.memory import SEPARATOR, Memory, MemoryRefused, MemoryStore, Target
from hermes_cli.framework import output, prompts, text
from hermes_cli.framework.output import CommandAnswer
from hermes_cli.framework.parser import Parser, Verbs
from hermes_config import config
from hermes_config.home import ensure_home, private_open
from hermes_state.ids import LOCAL_OWNER

_HEADINGS: dict[Target, str] = {"memory": "Notes", "user": "About you", "shared": "Known to everybody"}
_OWN: tuple[Target, ...] = ("memory", "user")


def register_memory(parser: Parser) -> None:
    parser.set_defaults(run=_show, json=False)
    verbs = Verbs(parser)
    verbs.add("show", _show, "show the remembered entries", json=True)
    forget = verbs.add("forget", _forget, "forget one entry", '"allergic to nuts"', "nuts --yes", json=True, yes=True)
    forget.add_argument("piece", metavar="TEXT", help="a part of the entry that no other entry contains")
    confirm = verbs.add("confirm", _confirm, "confirm an entry that came from outside", '"opens at nine"', json=True)
    confirm.add_argument("piece", metavar="TEXT", help="a part of the entry that no other entry contains")
    edit = verbs.add("edit", _edit, "open the entries in $EDITOR; a line with § alone separates them", "", "user")
    about = "memory: notes (default); user: facts about you; shared: known to everybody"
    edit.add_argument("target", nargs="?", choices=tuple(_HEADINGS), default="memory", help=about)
    verbs.add("path", _path, "print the paths of the files; you may edit them")


def _store() -> MemoryStore:
    loaded = config.load()
    return MemoryStore(loaded.home, LOCAL_OWNER, settings=loaded.memory, limits=loaded.limits)


def _show(args: argparse.Namespace) -> CommandAnswer:
    store = _store()
    kept = {target: store.read(target) for target in _HEADINGS}
    document = {
        name: {"file": str(store.path(name)), "entries": one.entries, "used": one.used, "limit": one.limit}
        for name, one in kept.items()
    }
    parts = []
    for target, memory in kept.items():
        if memory.entries:
            entries = [f"· {text.harmless_block(entry)}".replace("\n", "\n  ") for entry in memory.entries]
            parts.append("\n".join([f"{output.style(_HEADINGS[target], 'bold')} ({_used(memory)})", *entries]))
    nothing = "Nothing is remembered yet. Say “remember that …” in a chat."
    return CommandAnswer(document, drawn="\n\n".join(parts) or nothing)


def _used(memory: Memory) -> str:
    return f"{memory.used:,} of {memory.limit:,} characters"


def _forget(args: argparse.Namespace) -> CommandAnswer:
    store = _store()
    target, entry = store.find(args.piece)
    prompts.confirm(f"Forget “{entry}”?", yes=args.yes)
    store.apply(target, [{"action": "remove", "old_text": entry}])
    said = "Forgotten. Open conversations keep it until they are reset or compressed."
    return CommandAnswer({"target": target, "forgotten": entry}, drawn=said)


def _confirm(args: argparse.Namespace) -> CommandAnswer:
    said = _store().confirm(args.piece)
    return CommandAnswer({"confirmed": said}, drawn=f"Confirmed: {text.harmless(said)}")


def _edit(args: argparse.Namespace) -> None:
    store, home = _store(), ensure_home()
    seen = store.read(args.target)
    with tempfile.TemporaryDirectory(prefix=".edit-", dir=home) as folder:
        draft = Path(folder) / store.path(args.target).name
        with private_open(draft, "wb") as file:
            file.write(f"{SEPARATOR.join(seen.entries)}\n".encode())
        prompts.open_editor(draft, instead="edit the files that hermes memory path prints")
        try:
            kept = store.rewrite(args.target, _written(draft), seen=seen)
        except MemoryRefused as error:
            left = draft.replace(home / f"{draft.name}.edited")
            raise MemoryRefused(error.what, where=error.where, hint=f"What you wrote is in {left}.") from error
    if kept.entries == seen.entries:
        print("Nothing was changed.")
        return
    over = ". That is over the limit: Hermes can add nothing until it is shorter" if kept.used > kept.limit else ""
    entries = "1 entry" if len(kept.entries) == 1 else f"{len(kept.entries)} entries"
    print(f"Saved: {entries}, {_used(kept)}{over}.")


def _written(draft: Path) -> str:
    try:
        return draft.read_text("utf-8")
    except UnicodeDecodeError:
        raise MemoryRefused("the text is not UTF-8, so nothing was saved") from None


def _path(_: argparse.Namespace) -> None:
    store = _store()
    print("\n".join(str(store.path(target)) for target in _OWN))
