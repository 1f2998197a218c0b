"""`hermes sessions`: everything a person does with stored conversations, one module a group of verbs."""

from __future__ import annotations

from hermes_cli import (
    cmd_sessions_change,
    cmd_sessions_compress,
    cmd_sessions_export,
    cmd_sessions_import,
    cmd_sessions_list,
    cmd_sessions_search,
    cmd_sessions_show,
)
from hermes_cli.parser import Parser, Verbs


def register(parser: Parser) -> None:
    verbs = Verbs(parser)
    cmd_sessions_list.add(verbs)
    cmd_sessions_show.add(verbs)
    cmd_sessions_search.add(verbs)
    cmd_sessions_export.add(verbs)
    cmd_sessions_import.add(verbs)
    cmd_sessions_change.add(verbs)
    cmd_sessions_compress.add(verbs)
