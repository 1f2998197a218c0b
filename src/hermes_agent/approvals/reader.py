"""From a command line to the simple commands in it, on the syntax tree of tree-sitter's bash grammar.

`read` walks the whole tree — lists, pipelines, sub-shells, loops, substitutions, here-documents, function bodies — and
gives back every simple command with its words resolved, where it would run and what is on its standard input. Whatever
the grammar or this walk does not understand becomes a trouble, and a line with a trouble is never harmless.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING

from hermes_agent.approvals import words
from hermes_agent.approvals.calls import Call, Reading, Redirect, printed
from hermes_agent.approvals.scope import Scope
from hermes_agent.approvals.syntax import BETWEEN, Syntax
from hermes_agent.approvals.words import NOT_KNOWN, Value, Word

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

_DEPTH = 60
_CALLS = 400
_UNROLLED = 16
_KEYWORDS = words.names("if then elif else fi while until do done for select in case esac")
_SETTERS = frozenset({"read", "mapfile", "readarray", "getopts", "printf"})


@cache
def _parser() -> Parser:
    import tree_sitter_bash  # both only when a command is judged
    from tree_sitter import Language
    from tree_sitter import Parser as BashParser

    return BashParser(Language(tree_sitter_bash.language()))


def read(text: str, scope: Scope, *, user_home: str, stdin: str | None = None) -> Reading:
    """Every simple command of a text, in the order of the text. `scope` is moved to where the line leaves it."""
    reader = _Reader(text, user_home)
    root = _parser().parse(reader.source).root_node
    if root.has_error:
        reader.trouble("its syntax could not be read")
        reader.guess(text, scope)
    reader.sequence(root, scope, stdin)
    return reader.found


class _Reader(Syntax):
    depth = 0

    def sequence(self, node: Node, scope: Scope, stdin: str | None = None) -> None:
        """The children of a node, one after the other; `&` sends one into the background."""
        self.check_gaps(node)
        children = node.children
        for at, child in enumerate(children):
            if not child.is_named:
                if child.type not in BETWEEN and child.type not in _KEYWORDS:
                    self.trouble(f"{child.type!r} is not understood here")
                continue
            behind = at + 1 < len(children) and children[at + 1].type == "&"
            self.statement(child, scope.fork() if behind else scope, stdin=stdin)

    def statement(self, node: Node, scope: Scope, *, piped: bool = False, stdin: str | None = None) -> None:
        if self.depth >= _DEPTH or len(self.found.calls) >= _CALLS:
            self.found.overflow = True
            return
        self.depth += 1
        try:
            self._statement(node, scope, piped, stdin)
        finally:
            self.depth -= 1

    def _statement(self, node: Node, scope: Scope, piped: bool, stdin: str | None) -> None:
        match node.type:
            case "command":
                self.command(node, scope, (), piped, stdin)
            case "list":
                self.alternatives(node, scope)
            case "pipeline":
                self.pipeline([child for child in node.children if child.is_named], scope, stdin=stdin, piped=piped)
            case "redirected_statement":
                self.redirected(node, scope, piped, stdin)
            case "negated_command" | "else_clause" | "elif_clause" | "do_group":
                self.sequence(node, scope, stdin)
            case "compound_statement" if node.children and node.children[0].type == "((":
                self.trouble("it computes with (( ))")
                self.inside(node, scope)
            case "compound_statement":
                self.sequence(node, scope, stdin)
            case "subshell":
                self.sequence(node, scope.fork(), stdin)
            case "variable_assignment":
                self.assignment(node, scope)
            case "variable_assignments":
                for child in node.children:
                    self.assignment(child, scope)
            case "declaration_command":
                self.declaration(node, scope)
            case "unset_command":
                self.unset(node, scope)
            case "test_command":
                self.tested(node, scope)
            case "if_statement" | "while_statement" | "case_statement" | "for_statement" | "c_style_for_statement":
                self.compound(node, scope, stdin)
            case "function_definition":
                self.function(node, scope)
            case "comment":
                self.comment(node)
            case "file_redirect":  # `> file` and `$(< file)`
                self.emit(Call((), scope.fork(), redirects=self.redirect(node, scope)))
            case _:
                self.trouble("its syntax could not be read")
                self.stray(node, scope)

    def stray(self, node: Node, scope: Scope) -> None:
        """A piece without a place in the tree: read what can be read, for the floor alone."""
        self.guess(self.text(node), scope)
        for child in node.children:
            if child.is_named and child.type not in ("word", "command_name", "heredoc_body", "heredoc_start"):
                self.statement(child, scope.fork())

    def guess(self, text: str, scope: Scope) -> None:
        """Without a tree: cut at whatever could end a command, take the quotes off, and let the floor look at it."""
        for piece in re.split(r"[;&|\n()`]", text):
            bare = re.sub(r"['\"\\]", "", piece)
            found = [word for part in bare.split() for word in words.fields(part, sure=False, user_home=self.user_home)]
            while found and re.fullmatch(r"[{!$]|if|then|else|elif|do|while|until|sudo|\w+=.*", found[0].text):
                found = found[1:]
            if found:
                self.emit(Call(tuple(found), scope.fork()))

    def emit(self, call: Call) -> None:
        self.found.calls.append(call)

    def alternatives(self, node: Node, scope: Scope) -> None:
        """`a && b`, `a || b`: the right side may run or not; after `&&` every `cd` on the left has worked."""
        self.check_gaps(node)
        left, operator, right = node.children[0], node.children[1].type, node.children[2]
        self.statement(left, scope)
        way = scope.fork()
        if operator == "&&" and "||" not in self.text(left):
            way.others = frozenset()
        self.statement(right, way)
        before = scope.fork()
        scope.cwd, scope.others, scope.variables, scope.lost = way.cwd, way.others, way.variables, way.lost
        scope.join(before)

    def pipeline(self, parts: Sequence[Node], scope: Scope, *, stdin: str | None, piped: bool = False) -> None:
        for part in parts:
            if part.type == "comment":
                self.comment(part)
                continue
            start = len(self.found.calls)
            self.statement(part, scope.fork(), piped=piped, stdin=stdin)
            made = self.found.calls[start:]
            piped, stdin = (
                True,
                printed(made[-1]) if made and part.type in ("command", "redirected_statement") else None,
            )

    def redirected(self, node: Node, scope: Scope, piped: bool, stdin: str | None) -> None:
        self.check_gaps(node)
        body = node.child_by_field_name("body")
        redirects: list[Redirect] = []
        documents = [child for child in node.children if child.type == "heredoc_redirect"]
        for child in node.children:
            if child.type == "file_redirect":
                redirects += self.redirect(child, scope)
            elif child.type == "herestring_redirect":
                stdin = self.herestring(child, scope)
            elif child.type == "heredoc_redirect":
                redirects += [one for part in child.children_by_field_name("redirect") if part.type == "file_redirect"
                              for one in self.redirect(part, scope)]  # fmt: skip
                stdin = self.heredoc(child, scope)
        if body is None or body.type not in ("command",):
            self.emit(Call((), scope.fork(), redirects=tuple(redirects)))
            if body is not None:
                self.statement(body, scope, piped=piped, stdin=stdin)
        else:
            extra = [word for part in documents for word in self.arguments(part, scope)]
            self.command(body, scope, redirects, piped, stdin, extra)
        made = self.found.calls[-1]
        for document in documents:
            for child in document.children:
                if child.type == "pipeline":
                    self.pipeline(
                        [part for part in child.children if part.is_named], scope, stdin=printed(made), piped=True
                    )
            right = document.child_by_field_name("right")
            if right is not None:
                self.statement(right, scope)

    def compound(self, node: Node, scope: Scope, stdin: str | None) -> None:
        """Loops, conditions and cases: nobody knows which way it goes, nor how often."""
        text = self.text(node)
        variable = node.child_by_field_name("variable")
        if node.type == "c_style_for_statement":
            self.trouble("it computes with (( ))")
        items: list[Value] = []
        if variable is not None:
            items = [Value(word.text, word.sure, word.glob) for word in self.values(node, scope)]
            if not items or len(items) > _UNROLLED:
                items = [NOT_KNOWN]
        if node.type not in ("if_statement", "case_statement"):
            scope.forget_named(text)
        way = scope.fork()
        body = node.child_by_field_name("body")
        if variable is not None and body is not None:
            self.found.assigned.append((self.text(variable), NOT_KNOWN, False))
            for item in items:
                way.assign(self.text(variable), item)
                self.statement(body, way, stdin=stdin)
            way.assign(self.text(variable), NOT_KNOWN)
        elif node.type == "case_statement":
            self.case(node, scope, way, stdin)
        else:
            self.branches(node, way, stdin)
        scope.join(way)

    def branches(self, node: Node, way: Scope, stdin: str | None) -> None:
        self.check_gaps(node)
        for child in node.children:
            if child.type in ("else_clause", "elif_clause"):
                other = way.fork()
                self.branches(child, other, stdin)
                way.join(other)
            elif child.is_named and child.type not in (
                "binary_expression",
                "postfix_expression",
                "variable_assignment",
            ):
                self.statement(child, way, stdin=stdin)
            elif child.is_named:
                self.inside(child, way)

    def case(self, node: Node, scope: Scope, way: Scope, stdin: str | None) -> None:
        for child in node.children:
            if child.type == "case_item":
                branch = scope.fork()
                patterns = child.children_by_field_name("value")
                for part in child.children:
                    if part in patterns:
                        self.inside(part, branch)
                    elif part.is_named:
                        self.statement(part, branch, stdin=stdin)
                way.join(branch)
            elif child.is_named:
                self.inside(child, scope)

    def function(self, node: Node, scope: Scope) -> None:
        name_node = node.child_by_field_name("name")
        name = self.text(name_node) if name_node is not None else ""
        self.trouble(f"it defines the function {name}")
        body = node.child_by_field_name("body")
        start = len(self.found.calls)
        inner = scope.fork()
        inner.forget_named(self.text(node))
        for child in node.children:
            if child is body or child.type in ("compound_statement", "subshell", "file_redirect"):
                self.statement(child, inner)
        again = any(call.name == name for call in self.found.calls[start:])
        if again and body is not None and re.search(r"[|&]", self.text(body)):
            self.found.bombs.append(name)

    def command(
        self,
        node: Node,
        scope: Scope,
        redirects: Iterable[Redirect],
        piped: bool,
        stdin: str | None,
        extra: Sequence[Word] = (),
    ) -> None:
        self.check_gaps(node, arguments=True)
        found: list[Word] = []
        assigned: list[tuple[str, Value]] = []
        kept = list(redirects)
        for child in node.children:
            match child.type:
                case "variable_assignment":
                    assigned.append(self.assigned_value(child, scope))
                case "file_redirect":
                    kept += self.redirect(child, scope)
                case "herestring_redirect":
                    stdin = self.herestring(child, scope)
                case "heredoc_redirect":
                    stdin = self.heredoc(child, scope)
                case "command_name":
                    for part in child.children:
                        found += self.expand(part, scope)
                case "comment":
                    self.comment(child)
                case _ if child.is_named:
                    found += self.expand(child, scope)
                case _:
                    self.trouble(f"{child.type!r} is not understood here")
        self.emit(Call((*found, *extra), scope.fork(), tuple(assigned), tuple(kept), piped, stdin))
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
