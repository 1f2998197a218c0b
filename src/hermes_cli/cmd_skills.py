"""`hermes skills`: what the model can look up when a task calls for it, and what is wrong with the rest."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING

from hermes_cli import output, text
from hermes_cli.parser import Parser, Verbs, add_json
from hermes_config import config

if TYPE_CHECKING:
    from hermes_agent.skills import Skills

_COLUMNS = (output.Column("Skill"), output.Column("Category"), output.Column("What for", shrinks=True))


def register(parser: Parser) -> None:
    parser.set_defaults(run=_list, json=False)
    verbs = Verbs(parser)
    add_json(verbs.add("list", _list, help="list the skills", example="hermes skills list"))
    show = verbs.add("show", _show, help="show what a skill tells the model", example="hermes skills show deploy")
    show.add_argument("name", metavar="NAME", help="as hermes skills list shows it")
    show.add_argument("file", nargs="?", metavar="FILE", help="a file beside it")


def _found() -> Skills:
    from hermes_agent import skills
    from hermes_cli import plugins

    loaded = config.load()  # first: a configuration that cannot be read is told once, not by the plug-ins as well
    plugins.discover_plugins()
    return skills.discover(loaded.home, loaded.tree, platform="cli")


def _list(args: argparse.Namespace) -> None:
    found = _found()
    if args.json:
        rows = [{**asdict(skill), "folder": str(skill.folder)} for skill in found.skills]
        output.print_json({"skills": rows, "problems": found.problems})
        return
    if not found.skills and not found.problems:
        print(f"There are no skills. They are folders with a SKILL.md in {config.load().home / 'skills'}.")
        return
    parts = []
    if found.skills:
        cells = [(skill.name, skill.category, skill.description) for skill in found.skills]
        parts.append(output.table(_COLUMNS, cells))
    if found.problems:
        parts.append("\n".join(map(text.harmless, found.problems)))
    output.page("\n\n".join(parts))


def _show(args: argparse.Namespace) -> None:
    viewed = _found().view(args.name, args.file, listed_by="hermes skills list")
    more = f"\n\nBeside it: {', '.join(map(text.harmless, viewed.files))}" if viewed.files else ""
    output.page(f"{text.harmless_block(viewed.content).rstrip()}{more}")
