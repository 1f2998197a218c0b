"""`hermes tools`: what the model may call, and what is switched off."""

from __future__ import annotations

import argparse

from hermes_cli import output
from hermes_cli.parser import Parser, add_json
from hermes_config import config

_COLUMNS = (
    output.Column("Tool"),
    output.Column("Toolset"),
    output.Column("State"),
    output.Column("What it does", shrinks=True),
)


def register(parser: Parser) -> None:
    parser.epilog = (
        "examples:\n  hermes tools\n  hermes tools --platform telegram --json"
        "\n  hermes config set agent.disabled_toolsets '[terminal]'"
    )
    parser.add_argument("--platform", default="cli", metavar="NAME", help="as seen from there (default: cli)")
    add_json(parser)
    parser.set_defaults(run=_tools)


def _tools(args: argparse.Namespace) -> None:
    from hermes_agent.tools import registry
    from hermes_cli import plugins

    tree = config.load().tree
    plugins.discover_plugins()
    rows = registry.tool_rows(tree, platform=args.platform)
    if args.json:
        output.print_json(rows)
        return
    cells = [(row["name"], row["toolset"], row["state"], row["description"]) for row in rows]
    output.page(output.table(_COLUMNS, cells))
