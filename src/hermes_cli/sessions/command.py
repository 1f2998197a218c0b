"""`hermes sessions`: maps each verb to its module.

Only the module of the given verb is imported, which saves a fifth of the start-up time. The help and an unknown verb
import all of them.
"""

from __future__ import annotations

from importlib import import_module

from hermes_cli.framework.parser import Parser, Verbs

_VERBS = {
    "list": ("list", "stats"),
    "show": ("show", "lineage"),
    "search": ("search",),
    "transfer": ("export", "import"),
    "change": ("rename", "archive", "unarchive", "delete", "prune"),
    "compress": ("compress", "uncompress"),
}
"""By module, in the order of the help."""


def register(parser: Parser) -> None:
    verbs = Verbs(parser)
    wanted = [name for name, known in _VERBS.items() if parser.given[:1] and parser.given[0] in known]
    for name in wanted or _VERBS:
        import_module(f"hermes_cli.sessions.{name}").add(verbs)
