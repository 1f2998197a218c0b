"""From a command line to its simple commands, on the syntax tree of tree-sitter's bash grammar.

`read` walks the tree (lists, pipelines, sub-shells, loops, substitutions, here-documents, functions that are called) in
the order of the text and hands every simple command on as it is found, its words resolved as far as they are known.

The grammar is not bash. Where the two are known to differ the tree is checked against the text: nothing but blanks may
stand between nodes, a plain word holds no character that would end it, a here-document ends at the first line that is
its delimiter. What does not fit, and what the walk does not know, is doubt: the line then counts as not understood.

The grammar is not linear either (16 kB of `a|` take it a second), so it is given a bounded window of the text at a
time, and all of the work is counted.
"""

from __future__ import annotations

import posixpath
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from hermes_agent.approvals.shell import words
from hermes_agent.approvals.shell.words import NOT_KNOWN, UNKNOWN, Word, names

if TYPE_CHECKING:
    from tree_sitter import Language, Node

_STEPS, _DEPTH, _UNROLLED = 5_000, 40, 8
_HEAVY, _LIGHT = 256, 2_048
"""Tokens in a window: those in which the grammar is quadratic, and all."""
_TOKEN = re.compile(
    r"""\\.|'[^']*+'|"(?:[^"\\]++|\\.)*+"|(?P<line>\n)|<<(?P<tabs>-?)[ \t]*+(?P<mark>(?:[\w-]|\\.|'[^'\n]*'|"[^"\n]*")++)
    |(?P<heavy>[({|<\[=]|\b(?:case|function|select|for)\b)|\w++|[^\w\s]|\s""",
    re.DOTALL | re.VERBOSE,
)
_PRIVATE_USE = re.compile("[\ue000-\uf8ff]")
_BLANK = re.compile(r"(?:[ \t\n]|\\\n)*")
_PLAIN_WORD = re.compile(r"""(?:\\.|[^\s\\'"`$;|&<>()])*""", re.DOTALL)
_HIDDEN = re.compile(r"(?<!\\)(?:\\\\)*(?:`|\$[({\[\w@*#?!$-])")
_RUNS = re.compile(r"`|[$<>]\(|\$\{")
_TEMPORARY = re.compile(r"\$\(\s*mktemp(?:\s+(?:-[dqu]+|-t\s+[\w.-]+|/tmp/[\w.-]+))*\s*\)")
_BETWEEN = frozenset(
    ["&&", "||", ";", "&", "|", "|&", "\n", "(", ")", "{", "}", "!", ";;", ";&", ";;&", "$(", "`", "<(", ">("]
)
_KEYWORDS = names("if then elif else fi while until do done for select in case esac function")
_STATEMENTS = names(
    "command list pipeline redirected_statement negated_command compound_statement subshell variable_assignment "
    "variable_assignments declaration_command unset_command test_command if_statement while_statement case_statement "
    "for_statement c_style_for_statement function_definition comment"
)
_QUOTING = names(
    "string raw_string ansi_c_string command_substitution process_substitution expansion arithmetic_expansion"
)
_COMPARING = names("-eq -ne -lt -le -gt -ge")
_DEFAULTS = (":-", "-", ":=", "=")


class Enough(Exception):
    """The line is larger, or nested deeper, than what is read of one."""


class Work:
    """What one judgement may cost, and whether the line was understood so far."""

    def __init__(self, seconds: float) -> None:
        self.end = time.monotonic() + seconds
        self.steps = self.depth = 0
        self.understood = True

    def step(self) -> None:
        self.steps += 1
        if self.steps > _STEPS or (self.steps % 32 == 0 and time.monotonic() > self.end):
            raise Enough

    def doubt(self) -> None:
        self.understood = False


@dataclass(slots=True)
class Scope:
    """What is known while a line is read from left to right."""

    cwd: str | None
    """None when it depends on the running shell."""
    variables: dict[str, Word] = field(default_factory=dict)
    functions: dict[str, tuple[Reader, Node]] = field(default_factory=dict)
    maybe: bool = False
    """What is assigned here may not happen, or not once: it is a guess."""

    def fork(self, *, maybe: bool = False) -> Scope:
        return Scope(self.cwd, dict(self.variables), dict(self.functions), self.maybe or maybe)

    def value(self, name: str) -> Word:
        if name == "PWD" and self.cwd is not None:
            return Word(self.cwd, sure=not self.maybe)
        return self.variables.get(name, NOT_KNOWN)

    def assign(self, name: str, value: Word) -> None:
        self.variables[name] = Word(value.text, value.sure and not self.maybe, value.glob)

    def enter(self, folder: Word) -> None:
        """`cd folder`; it is taken to work."""
        known = UNKNOWN not in folder.text and not folder.glob
        self.cwd = posixpath.join(self.cwd or "", folder.text) if known else None
        if self.cwd is not None and not self.cwd.startswith("/"):
            self.cwd = None


@dataclass(frozen=True, slots=True)
class Call:
    """One simple command as it would run."""

    words: tuple[Word, ...]
    scope: Scope
    """Live: what a builtin changes is changed in it."""
    writes: tuple[Word, ...] = ()
    """Where its redirections write."""
    reads: tuple[Word, ...] = ()
    stdin: str | None = None
    """What comes in by a here-document or from `echo`, where that is known."""
    guess: bool = False
    """A piece of a line that could not be read: good enough for the floor alone."""


@cache
def _language() -> Language:
    import tree_sitter_bash  # both only when a command is judged
    from tree_sitter import Language as BashLanguage

    return BashLanguage(tree_sitter_bash.language())


def read(
    text: str, scope: Scope, work: Work, emit: Callable[[Call], None], *, user_home: str, stdin: str | None = None
) -> None:
    """Hand on every simple command of a text. `scope` is moved to where the line leaves it."""
    from tree_sitter import Parser

    parser = Parser(_language())  # of its own: a parser is not for two threads
    text, at = _PRIVATE_USE.sub("\ufffd", text), 0
    while True:
        work.step()
        if time.monotonic() > work.end:
            raise Enough
        end = _window(text, at)
        reader = Reader(text[at:end], work, emit, user_home)
        root = parser.parse(reader.source).root_node
        children = root.children
        done = _complete(children) if end < len(text) else 0
        if done and children[done].start_byte * 2 < len(reader.source):
            done = 0  # it goes on too slowly to be worth another window
        if not done:
            if root.has_error or end < len(text):
                work.doubt()
                reader.guess(text[at:end], scope)
            reader.sequence(children, scope, stdin)
            return
        reader.sequence(children[:done], scope, stdin)
        at += len(reader.source[: children[done].start_byte].decode("utf-8", "surrogatepass"))


def _window(text: str, start: int) -> int:
    """Where to cut so that the grammar is quick: before the token that is one too many."""
    at, heavy, light, endless = start, 0, 0, False
    documents: list[tuple[str, bool]] = []
    while match := _TOKEN.match(text, at):
        light += 1
        found = match[0]
        if match["heavy"] or match["mark"]:
            heavy += 1
        elif found[0] == '"':
            heavy += found.count("$") + found.count("`")
        if heavy > _HEAVY or light > _LIGHT:
            return at
        at = match.end()
        if match["mark"] and not endless:
            documents.append((match["mark"], bool(match["tabs"])))
        elif match["line"] and documents:
            for mark, tabs in documents:
                delimiter = re.sub(r"['\"\\]", "", mark)
                ending = re.compile(rf"^{chr(9) + '*' if tabs else ''}{re.escape(delimiter)}$", re.M).search(text, at)
                if ending is None:
                    endless = True
                    break
                if mark == delimiter:
                    heavy += text.count("$", at, ending.end()) + text.count("`", at, ending.end())
                at = ending.end()
            documents = []
    return len(text) if at == start else at


def _complete(children: Sequence[Node]) -> int:
    """How many of the first parts of a text that was cut are whole statements with something behind them."""
    done = 0
    for at, child in enumerate(children):
        if child.is_named and (child.type not in _STATEMENTS or child.has_error):
            break
        if not child.is_named:
            if child.type not in (";", "\n", "&"):
                break
            done = at
    return done


class Reader:
    """One text and its tree."""

    def __init__(self, text: str, work: Work, emit: Callable[[Call], None], user_home: str) -> None:
        self.source = text.encode("utf-8", "surrogatepass")
        self.work, self.emit, self.user_home = work, emit, user_home
        self.active: set[str] = set()

    def text(self, node: Node) -> str:
        return self.source[node.start_byte : node.end_byte].decode("utf-8", "replace")

    # --- statements -----------------------------------------------------------------------------------------------

    def sequence(self, children: Sequence[Node], scope: Scope, stdin: str | None = None) -> None:
        """One after the other; `&` sends one into the background."""
        self.check_gaps(children)
        for at, child in enumerate(children):
            if not child.is_named:
                if child.type not in _BETWEEN and child.type not in _KEYWORDS:
                    self.work.doubt()
                continue
            behind = at + 1 < len(children) and children[at + 1].type == "&"
            self.statement(child, scope.fork() if behind else scope, stdin)

    def check_gaps(self, children: Sequence[Node], *, arguments: bool = False) -> None:
        """Nothing but blanks between the parts; two arguments without a blank between them are one word to bash."""
        previous: Node | None = None
        for child in children:
            self.work.step()
            if previous is not None:
                gap = self.source[previous.end_byte : child.start_byte].decode("utf-8", "replace")
                if child.type == "heredoc_redirect" and gap.strip() == "-":
                    gap = " "  # `python - <<E`: the grammar drops the word
                touching = arguments and not gap.replace("\\\n", "")
                if not _BLANK.fullmatch(gap) or (touching and "redirect" not in previous.type + child.type):
                    self.work.doubt()
            if child.is_missing:
                self.work.doubt()
            previous = child

    def statement(self, node: Node, scope: Scope, stdin: str | None = None) -> str | None:
        """What it prints, where that is known."""
        work = self.work
        work.step()
        if work.depth >= _DEPTH:
            raise Enough
        work.depth += 1
        try:
            return self._statement(node, scope, stdin)
        finally:
            work.depth -= 1

    def _statement(self, node: Node, scope: Scope, stdin: str | None) -> str | None:
        match node.type:
            case "command":
                return self.command(node, scope, _Plumbing(stdin))
            case "redirected_statement":
                return self.redirected(node, scope, stdin)
            case "list":
                self.alternatives(node, scope)
            case "pipeline":
                self.check_gaps(node.children)
                return self.pipeline(node.named_children, scope, stdin)
            case "compound_statement" if node.children and node.children[0].type == "((":
                self.computed(node, scope)
                self.inside(node, scope)
            case "negated_command" | "compound_statement" | "do_group":
                self.sequence(node.children, scope, stdin)
            case "subshell":
                self.sequence(node.children, scope.fork(), stdin)
            case "variable_assignment" | "variable_assignments":
                for child in [node] if node.type == "variable_assignment" else node.named_children:
                    self.assignment(child, scope)
            case "declaration_command":
                self.declaration(node, scope)
            case "unset_command":
                for child in node.named_children:
                    scope.assign(self.text(child), NOT_KNOWN)
                    scope.functions.pop(self.text(child), None)
                    self.inside(child, scope)
            case "test_command":
                self.tested(node, scope)
            case "if_statement" | "while_statement" | "case_statement" | "for_statement" | "c_style_for_statement":
                self.compound(node, scope, stdin)
            case "function_definition":
                name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
                if name is not None and body is not None:
                    scope.functions[self.text(name)] = (self, node)
                if scope.maybe:
                    self.work.doubt()
            case "comment":
                before = self.source[max(0, node.start_byte - 2) : node.start_byte]
                if before == b"\\\n" or (before and before[-1:] not in b" \t\n;&|()"):
                    self.work.doubt()
            case "file_redirect":  # `> file` and `$(< file)`
                plumbing = _Plumbing()
                self.connect([node], scope, plumbing)
                self.emit(plumbing.call(plumbing.behind, scope))
            case _:
                self.work.doubt()
                self.guess(self.text(node), scope)
                for child in node.named_children:
                    if child.type in _STATEMENTS or child.type == "ERROR":
                        self.statement(child, scope.fork(maybe=True))
        return None

    def guess(self, text: str, scope: Scope) -> None:
        """Without a tree: cut at whatever could end a command, take the quotes off, and let the floor look at it."""
        for piece in re.split(r"[;&|\n()`]", text[:8_192]):
            self.work.step()
            bare = re.sub(r"['\"\\]", "", piece[:512])
            found = [word for part in bare.split() for word in words.fields(part, sure=False, user_home=self.user_home)]
            while found and re.fullmatch(r"[{!$]|if|then|else|elif|do|while|until|sudo|\w+=.*", found[0].text):
                found = found[1:]
            if found:
                self.emit(Call(tuple(found), scope, guess=True))

    def alternatives(self, node: Node, scope: Scope) -> None:
        """`a && b || c`: a `list` nests to the left, as deep as it is long."""
        chain = [node]
        while chain[-1].children and chain[-1].children[0].type == "list":
            chain.append(chain[-1].children[0])
        self.statement(chain[-1].children[0], scope)
        before = scope.maybe
        for one in reversed(chain):
            self.check_gaps(one.children)
            for child in one.children[1:]:
                if child.is_named:
                    scope.maybe = True
                    self.statement(child, scope)
        scope.maybe = before

    def pipeline(self, parts: Iterable[Node], scope: Scope, stdin: str | None) -> str | None:
        for part in parts:
            if part.type != "comment":
                stdin = self.statement(part, scope.fork(), stdin)
        return stdin

    def redirected(self, node: Node, scope: Scope, stdin: str | None) -> str | None:
        """A statement with redirections. What follows a here-document on its first line hangs below that document."""
        self.check_gaps(node.children)
        body = node.child_by_field_name("body")
        plumbing = _Plumbing(stdin)
        self.connect(node.children, scope, plumbing)
        printed: str | None = None
        if body is not None and body.type == "command":
            printed = self.command(body, scope, plumbing)
        else:
            self.emit(plumbing.call(plumbing.behind, scope))
            if body is not None:
                printed = self.statement(body, scope, plumbing.stdin)
            if plumbing.behind:
                self.work.doubt()
        for document in plumbing.documents:
            for child in document.children:
                if child.type == "pipeline":
                    printed = self.pipeline(child.named_children, scope, printed)
            right = document.child_by_field_name("right")
            if right is not None:
                self.statement(right, scope)
        return printed

    def compound(self, node: Node, scope: Scope, stdin: str | None) -> None:
        """Loops, conditions and cases: nobody knows which way it goes, nor how often."""
        before, loop = scope.maybe, node.type not in ("if_statement", "case_statement")
        if loop and not before:  # the second time round, what the body assigns has another value
            named = set(re.findall(r"(?<![\w$])[A-Za-z_]\w*", self.text(node)))
            for name in named & scope.variables.keys():
                scope.variables[name] = Word(scope.variables[name].text, sure=False)
        variable, body = node.child_by_field_name("variable"), node.child_by_field_name("body")
        if variable is not None and body is not None:
            parts = node.children_by_field_name("value")
            items = [word for part in parts for word in self.expand(part, scope)]
            scope.maybe = True
            for item in items if 0 < len(items) <= _UNROLLED else [NOT_KNOWN]:
                # In the body, for once, the value is certain.
                scope.variables[self.text(variable)] = item
                self.statement(body, scope, stdin)
            scope.assign(self.text(variable), NOT_KNOWN)
        else:
            if node.type == "c_style_for_statement":
                self.computed(node, scope, but="do_group")
            scope.maybe = True
            self.branches(node, scope, stdin)
        scope.maybe = before

    def branches(self, node: Node, scope: Scope, stdin: str | None) -> None:
        self.check_gaps(node.children)
        patterns = node.children_by_field_name("value")
        for child in node.children:
            if child.type in ("else_clause", "elif_clause", "case_item"):
                self.branches(child, scope, stdin)
            elif child in patterns or child.type.endswith("expression"):
                self.inside(child, scope)
            elif child.is_named:
                self.statement(child, scope, stdin)

    def run_function(self, name: str, arguments: Sequence[Word], scope: Scope, stdin: str | None) -> bool:
        """The body of a function, with the words it is called with. True when it starts itself again, without end."""
        reader, node = scope.functions[name]
        body = node.child_by_field_name("body")
        if body is None:
            return False
        if name in reader.active:
            return bool(re.search(r"[|&]", reader.text(body)))
        reader.active.add(name)
        kept = {key: value for key, value in scope.variables.items() if key.isdigit() or key in "@*"}
        for at, word in enumerate(arguments, start=1):
            scope.variables[str(at)] = word
        if len(arguments) == 1:
            scope.variables["@"] = arguments[0]
        for child in node.children:
            if child == body or child.type.endswith("redirect"):
                reader.statement(child, scope, stdin)
        scope.variables.update(kept)
        reader.active.discard(name)
        return False

    # --- simple commands ------------------------------------------------------------------------------------------

    def connect(self, children: Iterable[Node], scope: Scope, plumbing: _Plumbing) -> None:
        """Take the redirections among the children of a statement."""
        for child in children:
            match child.type:
                case "file_redirect":
                    self.check_gaps(child.children)
                    operator = next((part.type for part in child.children if not part.is_named), "")
                    parts = child.children_by_field_name("destination")
                    targets = [word for part in parts[:1] for word in self.expand(part, scope)]
                    if len(targets) != 1 and operator not in (">&-", "<&-"):
                        self.work.doubt()
                    copied = operator.endswith("&") and all(re.fullmatch(r"\d+|-", word.text) for word in targets)
                    if not copied:
                        (plumbing.reads if operator in ("<", "<&") else plumbing.writes).extend(targets)
                    # The grammar takes arguments behind a redirection for more of its targets.
                    plumbing.behind += [word for part in parts[1:] for word in self.expand(part, scope)]
                case "herestring_redirect":
                    made = [word for part in child.named_children for word in self.expand(part, scope)]
                    if len(child.named_children) != 1:
                        self.work.doubt()
                    plumbing.stdin = made[0].text if len(made) == 1 and UNKNOWN not in made[0].text else None
                case "heredoc_redirect":
                    plumbing.documents.append(child)
                    arguments = child.children_by_field_name("argument")
                    plumbing.behind += [word for part in arguments for word in self.expand(part, scope)]
                    self.connect(child.children_by_field_name("redirect"), scope, plumbing)
                    plumbing.stdin = self.heredoc(child, scope)

    def command(self, node: Node, scope: Scope, plumbing: _Plumbing) -> str | None:
        self.check_gaps(node.children, arguments=True)
        found: list[Word] = []
        for child in node.children:
            match child.type:
                case "variable_assignment":
                    self.assigned_value(child, scope)
                case "file_redirect" | "herestring_redirect":
                    self.connect((child,), scope, plumbing)
                    found += plumbing.behind
                    plumbing.behind = []
                case "command_name":
                    for part in child.children:
                        found += self.expand(part, scope)
                case "comment":
                    self.statement(child, scope)
                case "-":
                    found.append(Word("-"))
                case _ if child.is_named and child.type != "heredoc_redirect":
                    found += self.expand(child, scope)
                case _:
                    self.work.doubt()
        call = plumbing.call(found + plumbing.behind, scope)
        self.emit(call)
        return _printed(call)

    def assignment(self, node: Node, scope: Scope) -> None:
        if node.type == "variable_assignment":
            scope.assign(*self.assigned_value(node, scope))
        else:
            self.work.doubt()

    def assigned_value(self, node: Node, scope: Scope) -> tuple[str, Word]:
        self.check_gaps(node.children)
        target, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        name = self.text(target) if target is not None else ""
        if target is None or target.type != "variable_name" or any(child.type == "+=" for child in node.children):
            self.computed(node, scope, but="array")  # the subscript of a[x]=1
            self.inside(node, scope)
            return name.partition("[")[0], NOT_KNOWN
        if value is None:
            return name, Word("")
        if value.type == "array":
            self.inside(value, scope)
            return name, NOT_KNOWN
        encoded, sure = self.encode(value, scope, quotes=False)
        made = words.assigned(encoded, sure=sure, user_home=self.user_home)
        temporary = made.text == UNKNOWN and _TEMPORARY.fullmatch(self.text(value).strip('"'))
        return name, Word("/tmp/" + UNKNOWN, sure=False) if temporary else made

    def declaration(self, node: Node, scope: Scope) -> None:
        """`export`, `local`, `declare` …; `-i` would make every later value arithmetic, `-n` another name."""
        for child in node.children[1:]:
            if child.type == "variable_assignment":
                self.assignment(child, scope)
            elif child.type == "word":
                if not re.fullmatch(r"-[aAfgprx]+", self.text(child)):
                    self.work.doubt()
            elif child.type != "variable_name":
                self.work.doubt()
                self.inside(child, scope)

    # --- words ----------------------------------------------------------------------------------------------------

    def expand(self, node: Node, scope: Scope) -> list[Word]:
        encoded, sure = self.encode(node, scope, quotes=False)
        return words.fields(encoded, sure=sure, user_home=self.user_home)

    def encode(self, node: Node, scope: Scope, *, quotes: bool) -> tuple[str, bool]:
        """The encoded text of a node, and whether it is certain. Commands inside it are read on the way."""
        self.work.step()
        text = self.text(node)
        match node.type:
            case "word" | "number" | "variable_name" | "test_operator" if not node.named_children:
                if not _PLAIN_WORD.fullmatch(text):
                    self.work.doubt()
                return words.unescaped(text), True
            case "raw_string":
                return words.quoted(text[1:-1]), True
            case "ansi_c_string":
                return words.quoted(words.ansi_c(text[2:-1])), True
            case "string" | "translated_string":
                return self.string(node, scope)
            case "concatenation" | "command_name":
                self.check_gaps(node.children)
                if any(
                    one.end_byte != two.start_byte for one, two in zip(node.children, node.children[1:], strict=False)
                ):
                    self.work.doubt()
                parts = [self.encode(child, scope, quotes=quotes) for child in node.children]
                return "".join(part for part, _ in parts), all(sure for _, sure in parts)
            case "simple_expansion":
                return self.value(scope.value(text[1:]), quotes=quotes)
            case "expansion":
                return self.expansion(node, scope, quotes=quotes)
            case "command_substitution":
                self.substituted(node, scope)
                return self.value(NOT_KNOWN, quotes=quotes)
            case "process_substitution":
                self.substituted(node, scope)
                return "/dev/fd/63", True
            case "arithmetic_expansion":
                self.computed(node, scope)
                self.inside(node, scope, parts=True)
                return "0", False
            case "brace_expression":
                return UNKNOWN, False
            case _:
                self.work.doubt()
                self.inside(node, scope)
                return UNKNOWN, False

    def value(self, value: Word, *, quotes: bool) -> tuple[str, bool]:
        return words.value_in_word(value, quotes=quotes), value.sure

    def string(self, node: Node, scope: Scope) -> tuple[str, bool]:
        """`"…"`: what lies between the expansions is text, whatever the grammar calls it."""
        parts, sure = [words.quoted("")], True
        end = node.end_byte - 1
        at = self.source.index(b'"', node.start_byte) + 1
        for child in node.children:
            if child.type in ("simple_expansion", "expansion", "command_substitution", "arithmetic_expansion"):
                parts.append(self.literal(self.source[at : child.start_byte]))
                part, certain = self.encode(child, scope, quotes=True)
                parts.append(part)
                sure, at = sure and certain, child.end_byte
        parts.append(self.literal(self.source[at:end]))
        return "".join(parts), sure

    def literal(self, raw: bytes) -> str:
        text = raw.decode("utf-8", "replace")
        if _HIDDEN.search(text):
            self.work.doubt()
        return words.plain(re.sub(r'\\([$`"\\\n])', lambda match: "" if match[1] == "\n" else match[1], text))

    def expansion(self, node: Node, scope: Scope, *, quotes: bool) -> tuple[str, bool]:
        """`${…}`: the value, or the word that stands in for it."""
        inner = node.children[1:-1]
        if len(inner) == 1 and inner[0].type == "variable_name":
            return self.value(scope.value(self.text(inner[0])), quotes=quotes)
        operator = inner[1].type if len(inner) > 1 else ""
        if inner and inner[0].type == "variable_name" and operator in (*_DEFAULTS, ":+", "+"):
            name = self.text(inner[0])
            value = scope.value(name)
            parts = [self.encode(child, scope, quotes=quotes)[0] for child in inner[2:]]
            if operator in (":=", "="):
                scope.assign(name, NOT_KNOWN)
            if operator in _DEFAULTS and value.sure and value.text:
                return self.value(value, quotes=quotes)
            return "".join(parts), False
        if operator == "@" or (inner and inner[0].type == "!" and len(inner) == 2):
            self.work.doubt()  # ${x@P} and ${!x}: text that is read again
        if operator == ":" or any(child.type == "subscript" for child in inner):
            self.computed(node, scope)
        for child in inner:
            self.inside(child, scope)
        return self.value(NOT_KNOWN, quotes=quotes)

    def inside(self, node: Node, scope: Scope, *, parts: bool = False) -> None:
        """Run through a piece whose text does not matter, for the commands that are run inside it."""
        self.work.step()
        match node.type:
            case "command_substitution" | "process_substitution":
                self.substituted(node, scope)
            case "expansion" | "string" | "concatenation" | "arithmetic_expansion" if not parts:
                self.encode(node, scope, quotes=True)
            case "raw_string" | "ansi_c_string" | "comment":
                pass
            case _ if node.children:
                for child in node.children:
                    self.inside(child, scope)
            case _ if node.is_named and _RUNS.search(self.text(node)):
                # Patterns and regular expressions are one leaf to the grammar, whatever stands in them.
                self.work.doubt()

    def substituted(self, node: Node, scope: Scope) -> None:
        """`$(…)`, `<(…)` and backquotes. Backquotes take off a layer of backslashes before they are read."""
        if self.source[node.start_byte : node.start_byte + 1] == b"`" and "\\" in self.text(node):
            self.work.doubt()
        self.sequence(node.children, scope.fork())

    def computed(self, node: Node, scope: Scope, *, but: str = "") -> None:
        """Arithmetic evaluates the text of its variables again: one that the line sets must hold a number."""
        for part in (node, *self.descendants(node, but=frozenset({but}))):
            if part.parent is not None and part == part.parent.child_by_field_name("name"):
                continue  # the array's own name
            if part.type in ("variable_name", "word"):
                value = scope.variables.get(self.text(part))
                if value is not None and not re.fullmatch(r"\s*-?\d*\s*", value.text):
                    self.work.doubt()
            elif part.type in ("raw_string", "string", "ansi_c_string") and _RUNS.search(self.text(part)):
                self.work.doubt()

    def tested(self, node: Node, scope: Scope) -> None:
        """`[ … ]` and `[[ … ]]`. Bash runs what it finds in a[…] after -v, and what it computes beside -eq in `[[`."""
        self.inside(node, scope)
        double = self.text(node).startswith("[[")
        if not double and any(re.search(r"[\n;&|<>]", piece) for piece in self.between(node)):
            self.work.doubt()
        for part in self.descendants(node):
            if part.type == "test_operator":
                text = self.text(part)
                if text in ("-v", "-R") or (double and text in _COMPARING):
                    self.computed(part.parent or node, scope)

    def between(self, node: Node) -> Iterator[str]:
        """The text of a node outside strings and substitutions."""
        at = node.start_byte
        for part in self.descendants(node, but=_QUOTING):
            if part.type in _QUOTING:
                yield self.source[at : part.start_byte].decode("utf-8", "replace")
                at = part.end_byte
        yield self.source[at : node.end_byte].decode("utf-8", "replace")

    def descendants(self, node: Node, *, but: frozenset[str] = frozenset()) -> Iterator[Node]:
        stack = list(reversed(node.children))
        while stack:
            self.work.step()
            child = stack.pop()
            yield child
            if child.type not in but:
                stack.extend(reversed(child.children))

    def heredoc(self, node: Node, scope: Scope) -> str | None:
        """The text of a here-document; its end and its substitutions are checked against the source."""
        parts = {child.type: child for child in node.children}
        start, body, end = (parts.get(f"heredoc_{name}") for name in ("start", "body", "end"))
        if start is None or body is None or end is None:
            self.work.doubt()
            return None
        mark = self.text(start)
        delimiter = re.sub(r"['\"\\]", "", mark)
        first = self.source.find(b"\n", start.end_byte) + 1
        lines = self.source[first : end.end_byte].decode("utf-8", "replace").split("\n")
        endings = [at for at, line in enumerate(lines) if (line.lstrip("\t") if "<<-" in parts else line) == delimiter]
        if endings != [len(lines) - 1] or not delimiter.isidentifier():
            self.work.doubt()
        raw = "\n".join(lines[:-1])
        if mark != delimiter:  # quoted: nothing in it is run
            return raw
        self.inside(body, scope)
        if any(_RUNS.search(re.sub(r"\\.", "", piece)) for piece in self.between(body)):
            self.work.doubt()
        return raw if "$" not in raw and "`" not in raw else None


@dataclass(slots=True)
class _Plumbing:
    """The redirections of one statement, and what the grammar hangs on them although it belongs elsewhere."""

    stdin: str | None = None
    writes: list[Word] = field(default_factory=list)
    reads: list[Word] = field(default_factory=list)
    behind: list[Word] = field(default_factory=list)
    """Arguments that stand behind a redirection."""
    documents: list[Node] = field(default_factory=list)
    """Here-documents: the rest of their first line is a part of their node."""

    def call(self, found: Iterable[Word], scope: Scope) -> Call:
        return Call(tuple(found), scope, tuple(self.writes), tuple(self.reads), self.stdin)


def _printed(call: Call) -> str | None:
    """What a call prints, where it only repeats what is known."""
    texts = [word.text for word in call.words]
    if texts == ["cat"]:
        return call.stdin
    if not texts or texts[0] not in ("echo", "printf") or any(UNKNOWN in text for text in texts):
        return None
    arguments = texts[1:]
    while arguments and arguments[0] in ("-n", "-e", "-ne", "-en", "-E", "--", "%s", "%s\\n", "%b"):
        arguments = arguments[1:]
    return " ".join(arguments).replace("\\n", "\n")
