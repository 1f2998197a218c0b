"""From a command line to the simple commands in it, on the syntax tree of tree-sitter's bash grammar.

`read` walks the whole tree — lists, pipelines, sub-shells, loops, substitutions, here-documents, function bodies — and
gives back every simple command with its words resolved, where it would run and what is on its standard input. Whatever
the grammar or this walk does not understand becomes a trouble, and a line with a trouble is never harmless.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from hermes_agent.approvals import words
from hermes_agent.approvals.calls import Call, Reading, printed
from hermes_agent.approvals.commands import Commands, Plumbing
from hermes_agent.approvals.scope import Scope
from hermes_agent.approvals.syntax import BETWEEN
from hermes_agent.approvals.words import NOT_KNOWN, Value

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

_DEPTH = 60
_CALLS = 400
_UNROLLED = 16
_KEYWORDS = words.names("if then elif else fi while until do done for select in case esac")


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


class _Reader(Commands):
    """Control flow: who runs after, beside, inside or instead of whom."""

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
                self.command(node, scope, Plumbing(piped, stdin))
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
                redirects, behind = self.redirect(node, scope)
                self.emit(Call(tuple(behind), scope.fork(), redirects=tuple(redirects)))
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
        """A statement with redirections. What follows a here-document on its first line hangs below that document."""
        self.check_gaps(node)
        body = node.child_by_field_name("body")
        plumbing = Plumbing(piped, stdin)
        self.connect(node.children, scope, plumbing)
        if body is not None and body.type == "command":
            self.command(body, scope, plumbing)
        else:
            self.emit(Call(tuple(plumbing.behind), scope.fork(), redirects=tuple(plumbing.redirects)))
            if body is not None:
                self.statement(body, scope, piped=piped, stdin=plumbing.stdin)
            if plumbing.behind:
                self.trouble("words stand behind a redirection in a way that is not understood")
        out = printed(self.found.calls[-1])
        for document in plumbing.documents:
            for child in document.children:
                if child.type == "pipeline":
                    self.pipeline([part for part in child.children if part.is_named], scope, stdin=out, piped=True)
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
