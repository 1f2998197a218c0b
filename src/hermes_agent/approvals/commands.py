"""Simple commands: their words, where their input and output go, and what they change for the rest of the line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hermes_agent.approvals.calls import Call, Redirect
from hermes_agent.approvals.scope import Scope
from hermes_agent.approvals.syntax import Syntax
from hermes_agent.approvals.words import NOT_KNOWN, Value, Word

if TYPE_CHECKING:
    from tree_sitter import Node

_SETTERS = frozenset({"read", "mapfile", "readarray", "getopts", "printf"})


@dataclass(slots=True)
class Plumbing:
    """The redirections of one statement, and what the grammar hangs on them although it belongs elsewhere."""

    piped: bool = False
    stdin: str | None = None
    redirects: list[Redirect] = field(default_factory=list)
    behind: list[Word] = field(default_factory=list)
    """Arguments that stand behind a redirection."""
    documents: list[Node] = field(default_factory=list)
    """Here-documents: the rest of their first line is a part of their node."""


class Commands(Syntax):
    """What is done with the parts of a simple command."""

    def emit(self, call: Call) -> None:
        self.found.calls.append(call)

    def connect(self, children: Iterable[Node], scope: Scope, plumbing: Plumbing) -> None:
        """Take the redirections among the children of a statement."""
        for child in children:
            if child.type == "file_redirect":
                redirects, behind = self.redirect(child, scope)
                plumbing.redirects += redirects
                plumbing.behind += behind
            elif child.type == "herestring_redirect":
                plumbing.stdin = self.herestring(child, scope)
            elif child.type == "heredoc_redirect":
                plumbing.documents.append(child)
                plumbing.behind += self.arguments(child, scope)
                self.connect(child.children_by_field_name("redirect"), scope, plumbing)
                plumbing.stdin = self.heredoc(child, scope)

    def command(self, node: Node, scope: Scope, plumbing: Plumbing) -> None:
        self.check_gaps(node, arguments=True)
        found: list[Word] = []
        assigned: list[tuple[str, Value]] = []
        for child in node.children:
            match child.type:
                case "variable_assignment":
                    assigned.append(self.assigned_value(child, scope))
                case "file_redirect" | "herestring_redirect":
                    inner = Plumbing()
                    self.connect((child,), scope, inner)
                    found += inner.behind
                    plumbing.redirects += inner.redirects
                    plumbing.stdin = inner.stdin if child.type == "herestring_redirect" else plumbing.stdin
                case "command_name":
                    for part in child.children:
                        found += self.expand(part, scope)
                case "comment":
                    self.comment(child)
                case _ if child.is_named and child.type != "heredoc_redirect":
                    found += self.expand(child, scope)
                case _:
                    self.trouble(f"{child.type!r} is not understood here")
        found += plumbing.behind
        redirects = tuple(plumbing.redirects)
        self.emit(Call(tuple(found), scope.fork(), tuple(assigned), redirects, plumbing.piped, plumbing.stdin))
        self.after(found, scope)

    def after(self, found: Sequence[Word], scope: Scope) -> None:
        """What a builtin changes for the rest of the line."""
        names = [word.text for word in found]
        while names and names[0] in ("command", "builtin") and len(names) > 1:
            names, found = names[1:], found[1:]
        if not names or not found[0].sure:
            return
        arguments = [word for word in found[1:] if not (word.sure and word.text in ("-P", "-L", "-e", "--"))]
        if names[0] == "cd":
            plain = len(arguments) == 1 and arguments[0].text != "-"
            scope.enter(arguments[0] if plain else Word(self.user_home) if not arguments else None)
        elif names[0] in ("pushd", "popd"):
            scope.enter(None)
        elif names[0] in ("eval", "source", ".", "trap", "alias", "shopt"):
            scope.forget()
        elif names[0] in _SETTERS:
            for word in found[1:]:
                scope.assign(word.text, NOT_KNOWN)
                if names[0] != "printf":
                    self.found.assigned.append((word.text, NOT_KNOWN, False))
            if not all(word.sure for word in found):
                scope.lost = scope.lost or names[0] != "printf" or "-v" in names

    def assignment(self, node: Node, scope: Scope, *, exported: bool = False) -> None:
        if node.type != "variable_assignment":
            self.trouble("its syntax could not be read")
            return
        name, value = self.assigned_value(node, scope)
        scope.assign(name, value)
        self.found.assigned.append((name, value, exported))

    def declaration(self, node: Node, scope: Scope) -> None:
        self.check_gaps(node, arguments=True)
        exported = node.children[0].type == "export"
        options = [self.text(child) for child in node.children if child.type == "word"]
        exported |= any(option.startswith("-") and "x" in option for option in options)
        if any(not re.fullmatch(r"-[arx]+", option) for option in options) or node.child_count == 1:
            self.trouble(f"{node.children[0].type} is used in a way that is not understood")
        for child in node.children[1:]:
            if child.type == "variable_assignment":
                self.assignment(child, scope, exported=exported)
            elif child.type == "variable_name":
                self.found.assigned.append((self.text(child), scope.value(self.text(child)), exported))
            elif child.type != "word":
                self.trouble(f"{node.children[0].type} is used in a way that is not understood")
                self.inside(child, scope)

    def unset(self, node: Node, scope: Scope) -> None:
        for child in node.children[1:]:
            if child.type == "variable_name":
                scope.assign(self.text(child), NOT_KNOWN)
                self.found.assigned.append((self.text(child), NOT_KNOWN, False))
            elif child.type != "word" or not re.fullmatch(r"-[fv]", self.text(child)):
                self.trouble("unset is used in a way that is not understood")
