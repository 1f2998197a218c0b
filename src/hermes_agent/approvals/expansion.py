"""What quotes, variables and substitutions leave in a word; see `words` for how that is written down."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol

from hermes_agent.approvals import words
from hermes_agent.approvals.calls import Reading
from hermes_agent.approvals.scope import Scope
from hermes_agent.approvals.words import NOT_KNOWN, UNKNOWN, Value

if TYPE_CHECKING:
    from tree_sitter import Node

_PLAIN_WORD = re.compile(r"""(?:\\.|[^\s\\'"`$;|&<>()])*""", re.DOTALL)
_HIDDEN = re.compile(r"(?<!\\)(?:\\\\)*(?:`|\$[({\[\w@*#?!$-])")
_DEFAULTS = (":-", "-", ":=", "=")


class Walk(Protocol):
    """The part of the reader that a word needs."""

    source: bytes
    found: Reading

    def text(self, node: Node) -> str: ...
    def trouble(self, what: str) -> None: ...
    def inside(self, node: Node, scope: Scope) -> None: ...
    def substituted(self, node: Node, scope: Scope) -> None: ...
    def computed(self, node: Node, scope: Scope) -> None: ...


def encode(walk: Walk, node: Node, scope: Scope, *, quotes: bool) -> tuple[str, bool]:
    """The encoded text of a node, and whether it is certain. Commands inside it are read on the way."""
    text = walk.text(node)
    match node.type:
        case "word" | "number" | "variable_name" | "test_operator" if not node.named_children:
            return _word(walk, text), True
        case "raw_string":
            return words.quoted(text[1:-1]), True
        case "ansi_c_string":
            return words.quoted(words.ansi_c(text[2:-1])), True
        case "string" | "translated_string":
            return _string(walk, node, scope)
        case "concatenation" | "command_name":
            return _joined(walk, node, scope, quotes)
        case "simple_expansion":
            return _value(scope.value(text[1:]), quotes)
        case "expansion":
            return _expansion(walk, node, scope, quotes)
        case "command_substitution":
            walk.substituted(node, scope)
            return _value(NOT_KNOWN, quotes)
        case "process_substitution":
            walk.substituted(node, scope)
            return "/dev/fd/63", True
        case "arithmetic_expansion":
            walk.computed(node, scope)
            walk.inside(node, scope)
            return _value(NOT_KNOWN, quotes=True)
        case "brace_expression":
            return UNKNOWN, False
        case _:
            walk.trouble("a word could not be read")
            walk.inside(node, scope)
            return UNKNOWN, False


def _value(value: Value, quotes: bool) -> tuple[str, bool]:
    return (words.quoted_value(value) if quotes else words.unquoted_value(value)), value.sure


def _word(walk: Walk, text: str) -> str:
    if not _PLAIN_WORD.fullmatch(text):
        walk.trouble("a word could not be read")
    text = text.replace("\\\n", "")
    return re.sub(r"\\(.)", lambda match: words.quoted(match[1]), text, flags=re.DOTALL)


def _joined(walk: Walk, node: Node, scope: Scope, quotes: bool) -> tuple[str, bool]:
    parts, sure, at = [], True, node.start_byte
    for child in node.children:
        if child.start_byte != at:
            walk.trouble("a word could not be read")
        part, certain = encode(walk, child, scope, quotes=quotes)
        parts.append(part)
        sure, at = sure and certain, child.end_byte
    return "".join(parts), sure


def _string(walk: Walk, node: Node, scope: Scope) -> tuple[str, bool]:
    """`"…"`: what lies between the expansions is text, whatever the grammar calls it."""
    parts, sure = [words.quoted("")], True
    end = node.end_byte - 1
    at = walk.source.index(b'"', node.start_byte) + 1
    for child in node.children:
        if child.type in ("simple_expansion", "expansion", "command_substitution", "arithmetic_expansion"):
            parts.append(_literal(walk, walk.source[at : child.start_byte]))
            part, certain = encode(walk, child, scope, quotes=True)
            parts.append(part)
            sure, at = sure and certain, child.end_byte
    parts.append(_literal(walk, walk.source[at:end]))
    return "".join(parts), sure


def _literal(walk: Walk, raw: bytes) -> str:
    text = raw.decode("utf-8", "replace")
    if _HIDDEN.search(text):
        walk.trouble("a quoted text holds a substitution that could not be read")
    return words.plain(re.sub(r'\\([$`"\\\n])', lambda match: "" if match[1] == "\n" else match[1], text))


def _expansion(walk: Walk, node: Node, scope: Scope, quotes: bool) -> tuple[str, bool]:
    """`${…}`: the value, or the word that stands in for it."""
    inner = node.children[1:-1]
    if len(inner) == 1 and inner[0].type == "variable_name":
        return _value(scope.value(walk.text(inner[0])), quotes)
    operator = inner[1].type if len(inner) > 1 else ""
    if inner and inner[0].type == "variable_name" and operator in (*_DEFAULTS, ":+", "+"):
        name = walk.text(inner[0])
        known, value = scope.known(name), scope.value(name)
        parts = [encode(walk, child, scope, quotes=quotes)[0] for child in inner[2:]]
        if operator in (":=", "="):
            scope.assign(name, NOT_KNOWN)
            walk.found.assigned.append((name, NOT_KNOWN, False))
        if operator in _DEFAULTS and known and value.text:
            return _value(value, quotes)
        return "".join(parts), False
    if operator == "@" or any(child.type == "!" for child in inner[:1]):
        walk.trouble("a variable is used in a way that is not understood")
    for child in inner:
        walk.inside(child, scope)
    return _value(NOT_KNOWN, quotes)
