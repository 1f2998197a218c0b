"""`hermes sessions`: everything a person does with stored conversations, one module a group of verbs."""

from __future__ import annotations

from hermes_cli import (
    cmd_sessions_list,
    cmd_sessions_show,
)
from hermes_cli.parser import Parser, Verbs


def register(parser: Parser) -> None:
    verbs = Verbs(parser)
    cmd_sessions_list.add(verbs)
    cmd_sessions_show.add(verbs)
