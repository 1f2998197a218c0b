"""The small parts of the grammar: words, values, tests, here-documents — and the checks of the tree against the text.

The grammar is not bash. Where the two are known to differ the tree is checked against the text: nothing but blanks may
stand between nodes, a plain word holds no character that would end it, a comment begins where one may begin, and
a here-document ends at the first line that is its delimiter. What does not fit is a trouble.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING

from hermes_agent.approvals import expansion, words
from hermes_agent.approvals.calls import Reading, Redirect
from hermes_agent.approvals.scope import Scope
from hermes_agent.approvals.words import NOT_KNOWN, UNKNOWN, Value, Word

if TYPE_CHECKING:
    from tree_sitter import Node

BETWEEN = frozenset({"&&", "||", ";", "&", "|", "|&", "\n", "(", ")", "{", "}", "!", ";;", ";&", ";;&"})
_BLANK = re.compile(r"(?:[ \t\n]|\\\n)*")
_RUNS = re.compile(r"`|[$<>]\(|\$\{")
_ENDING = re.compile(r"[\n;&|<>]")
_QUOTING = words.names(
    "string raw_string ansi_c_string command_substitution process_substitution expansion arithmetic_expansion"
)
_COMPUTING = frozenset({"-eq", "-ne", "-lt", "-le", "-gt", "-ge"})


class Syntax(ABC):
    """One text and its tree. `statement` is the reader's; commands inside words are handed to it."""

    def __init__(self, text: str, user_home: str) -> None:
        self.source = text.encode("utf-8", "surrogatepass")
        self.user_home = user_home
        self.found = Reading()

    @abstractmethod
    def statement(self, node: Node, scope: Scope, *, piped: bool = False, stdin: str | None = None) -> None: ...

    def trouble(self, what: str) -> None:
        if what not in self.found.troubles:
            self.found.troubles.append(what)

    def text(self, node: Node) -> str:
        return self.source[node.start_byte : node.end_byte].decode("utf-8", "replace")

    def check_gaps(self, node: Node, *, arguments: bool = False) -> None:
        """Nothing but blanks between the parts; two arguments without a blank between them are one word to bash."""
        at = node.start_byte
        previous: Node | None = None
        for child in node.children:
            gap = self.source[at : child.start_byte].decode("utf-8", "replace")
            if not _BLANK.fullmatch(gap) or child.is_missing:
                self.trouble("its syntax could not be read")
            glued = arguments and previous is not None and not gap.replace("\\\n", "")
            if glued and previous is not None and "redirect" not in previous.type + child.type:
                self.trouble("two words touch in a way that is not understood")
            at, previous = child.end_byte, child

    def comment(self, node: Node) -> None:
        before = self.source[max(0, node.start_byte - 2) : node.start_byte]
        if before == b"\\\n" or (before and before[-1:] not in b" \t\n;&|()"):
            self.trouble("a # stands where it may not begin a comment")

    def expand(self, node: Node, scope: Scope) -> list[Word]:
        encoded, sure = self.encode(node, scope, quotes=False)
        return words.fields(encoded, sure=sure, user_home=self.user_home)

    def encode(self, node: Node, scope: Scope, *, quotes: bool) -> tuple[str, bool]:
        return expansion.encode(self, node, scope, quotes=quotes)

    def arguments(self, node: Node, scope: Scope) -> list[Word]:
        return [word for child in node.children_by_field_name("argument") for word in self.expand(child, scope)]

    def values(self, node: Node, scope: Scope) -> list[Word]:
        return [word for child in node.children_by_field_name("value") for word in self.expand(child, scope)]

    def inside(self, node: Node, scope: Scope) -> None:
        """Run through a piece whose text does not matter, for the commands that are run inside it."""
        match node.type:
            case "command_substitution" | "process_substitution":
                self.substituted(node, scope)
            case "expansion" | "string" | "concatenation":
                self.encode(node, scope, quotes=True)
            case "arithmetic_expansion":
                self.computed(node, scope)
                self.parts_of(node, scope)
            case "raw_string" | "ansi_c_string" | "comment":
                pass
            case _ if node.children:
                self.parts_of(node, scope)
            case _ if node.is_named and _RUNS.search(self.text(node)):
                # Patterns and regular expressions are one leaf to the grammar, whatever stands in them.
                self.trouble("a pattern holds a substitution that could not be read")

    def parts_of(self, node: Node, scope: Scope) -> None:
        for child in node.children:
            self.inside(child, scope)

    def substituted(self, node: Node, scope: Scope) -> None:
        """`$(…)`, `<(…)` and backquotes. Backquotes take off a layer of backslashes before they are read."""
        text = self.text(node)
        if text.startswith("`") and "\\" in text:
            self.trouble("backslashes stand inside backquotes")
        inner = scope.fork()
        self.check_gaps(node)
        for at, child in enumerate(node.children):
            if child.is_named:
                self.statement(child, inner)
            elif child.type not in BETWEEN and child.type not in ("$(", "`", "<(", ">(") and at:
                self.trouble(f"{child.type!r} is not understood here")

    def computed(self, node: Node, scope: Scope) -> None:
        """Arithmetic evaluates the text of its variables again, so that text must be known to be a number."""
        for part in (node, *_descendants(node)):
            if part.type in ("variable_name", "word") and not self.number(self.text(part), scope):
                self.trouble("it computes with a value that only the running shell knows")

    def number(self, name: str, scope: Scope) -> bool:
        value = scope.value(name)
        return bool(re.fullmatch(r"-?\d+", name) or (value.sure and re.fullmatch(r"\s*-?\d*\s*", value.text)))

    def tested(self, node: Node, scope: Scope) -> None:
        """`[ … ]` and `[[ … ]]`. Bash runs what it finds in a[…] after -v, and what it computes beside -eq in `[[`."""
        self.inside(node, scope)
        double = self.text(node).startswith("[[")
        if not double and any(_ENDING.search(piece) for piece in self.between(node)):
            self.trouble("a test ends before its bracket")
        for part in _descendants(node):
            text = self.text(part)
            if part.type in ("raw_string", "ansi_c_string", "string") and re.search(r"\[.*(\$\(|`)", text, re.DOTALL):
                self.trouble("a test holds text that the shell would run")
            elif part.type == "test_operator" and (text in ("-v", "-R") or (double and text in _COMPUTING)):
                self.computed(part.parent or node, scope)

    def between(self, node: Node) -> Iterable[str]:
        """The text of a node outside strings and substitutions."""
        at = node.start_byte
        for part in _descendants(node, but=_QUOTING):
            if part.type in _QUOTING:
                yield self.source[at : part.start_byte].decode("utf-8", "replace")
                at = part.end_byte
        yield self.source[at : node.end_byte].decode("utf-8", "replace")

    def assigned_value(self, node: Node, scope: Scope) -> tuple[str, Value]:
        self.check_gaps(node)
        target, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        name = self.text(target) if target is not None else ""
        if target is None or target.type != "variable_name" or any(child.type == "+=" for child in node.children):
            self.inside(node, scope)
            return name.partition("[")[0], NOT_KNOWN
        if value is None:
            return name, Value("")
        if value.type == "array":
            self.inside(value, scope)
            return name, NOT_KNOWN
        encoded, sure = self.encode(value, scope, quotes=False)
        text = words.assigned_text(encoded, user_home=self.user_home)
        return name, Value(text, sure=sure and UNKNOWN not in text)

    def redirect(self, node: Node, scope: Scope) -> tuple[list[Redirect], list[Word]]:
        """A redirection, and the arguments behind it that the grammar takes for more of its targets."""
        self.check_gaps(node)
        operator = next((child.type for child in node.children if not child.is_named), "")
        parts = node.children_by_field_name("destination")
        targets = [word for part in parts[:1] for word in self.expand(part, scope)]
        if len(targets) != 1 and operator not in (">&-", "<&-"):
            self.trouble("a redirection has no one target")
        behind = [word for part in parts[1:] for word in self.expand(part, scope)]
        return [Redirect(operator, target) for target in targets], behind

    def herestring(self, node: Node, scope: Scope) -> str | None:
        made = [word for child in node.children if child.is_named for word in self.expand(child, scope)]
        if sum(child.is_named for child in node.children) != 1:
            self.trouble("a here-string is not one word")
        return made[0].text if len(made) == 1 and UNKNOWN not in made[0].text else None

    def heredoc(self, node: Node, scope: Scope) -> str | None:
        """The text of a here-document; its end and its substitutions are checked against the source."""
        start = next((child for child in node.children if child.type == "heredoc_start"), None)
        body = next((child for child in node.children if child.type == "heredoc_body"), None)
        end = next((child for child in node.children if child.type == "heredoc_end"), None)
        if start is None or body is None or end is None:
            self.trouble("a here-document has no end")
            return None
        mark = self.text(start)
        delimiter = re.sub(r"['\"\\]", "", mark)
        tabs = any(child.type == "<<-" for child in node.children)
        first = self.source.find(b"\n", start.end_byte) + 1
        lines = self.source[first : end.end_byte].decode("utf-8", "replace").split("\n")
        endings = [at for at, line in enumerate(lines) if (line.lstrip("\t") if tabs else line) == delimiter]
        if endings != [len(lines) - 1] or not delimiter.isidentifier():
            self.trouble("the end of a here-document is not clear")
        raw = "\n".join(lines[:-1])
        if mark != delimiter:  # quoted: nothing in it is run
            return raw
        self.parts_of(body, scope)
        if any(_RUNS.search(re.sub(r"\\.", "", piece)) for piece in self.between(body)):
            self.trouble("a here-document holds substitutions that could not be read")
        return raw if "$" not in raw and "`" not in raw else None


def _descendants(node: Node, *, but: frozenset[str] = frozenset()) -> Iterable[Node]:
    for child in node.children:
        yield child
        if child.type not in but:
            yield from _descendants(child, but=but)
