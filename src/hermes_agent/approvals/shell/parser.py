"""Splits a command line into its simple commands, on the syntax tree of tree-sitter's bash grammar.

`read` walks the tree (lists, pipelines, sub-shells, loops, substitutions, here-documents, called functions) in text
order and emits every simple command, its words resolved as far as they are known.

The grammar is not bash. Where the two are known to differ, the tree is checked against the text: only blanks may stand
between nodes, a plain word holds no character that would end it, a here-document ends at the first line that is its
delimiter. Any mismatch, and any node the walk does not know, is a doubt: the line then counts as not understood.

The grammar is not linear either (16 kB of `a|` take it a second), so it is given a bounded window of the text at a
time, and all of the work is counted.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from hermes_agent.approvals.shell import words
from hermes_agent.approvals.shell.words import NOT_KNOWN, UNKNOWN, Word, names, value_in_word

if TYPE_CHECKING:
    from tree_sitter import Node

_STEPS, _UNROLLED = 5_000, 8
_HEAVY, _LIGHT = 320, 2_048
"""Tokens in a window: those in which the grammar is quadratic, and all."""
_TOKEN = re.compile(
    r"""\\.|'[^']*'|"[^"\\]*(?:\\.[^"\\]*)*"|(?P<line>\n)|<<(?P<tabs>-?)[ \t]*"""
    r"""(?P<mark>(?:[\w-]+|\\.|'[^'\n]*'|"[^"\n]*")+)|(?P<heavy>[(){}|<\[=\0]|\b(?:case|function|select|for)\b)"""
    r"""|\w+|[^\w\s]|\s""",
    re.DOTALL,
)
_PRIVATE_USE = re.compile("[\ue000-\uf8ff]")
_BLANK = re.compile(r"(?:[ \t\n]|\\\n)*")
_PLAIN_WORD = re.compile(r"""(?:\\.|[^\s\\'"`$;|&<>()])*""", re.DOTALL)
_HIDDEN = re.compile(r"(?<!\\)(?:\\\\)*(?:`|\$[({\[\w@*#?!$-])")
_RUNS = re.compile(r"`|[$<>]\(|\$\{")
_TEMPORARY = re.compile(r"\"?\$\(\s*mktemp(?:\s+(?:-[dqu]+|-t\s+[\w.-]+|/tmp/[\w.-]+))*\s*\)\"?")
_BETWEEN = names(
    "&& || ; & | |& ( ) { } ! ;; ;& ;;& $( ` <( >( if then elif else fi while until do done for select in case esac"
) | {"\n"}
_STATEMENTS = names(
    "command list pipeline redirected_statement negated_command compound_statement subshell variable_assignment "
    "variable_assignments declaration_command unset_command test_command if_statement while_statement case_statement "
    "for_statement c_style_for_statement function_definition comment"
)
_ENDS = {";", "\n", "&"}
_WHOLE = _STATEMENTS | _ENDS
_EXPANSIONS = names("simple_expansion expansion command_substitution arithmetic_expansion")
_WORDS = names("string raw_string ansi_c_string process_substitution concatenation") | _EXPANSIONS


class Enough(Exception):
    """The line is too long, or nested too deeply, to be read to its end."""


class WorkBudget:
    """The work limit of one judgement, and whether the line was understood so far. Seconds are CPU time of this thread,
    so that a busy machine does not change the judgement."""

    def __init__(self, seconds: float) -> None:
        self.end = time.thread_time() + seconds
        self.steps = 0
        self.understood = True

    def step(self, count: int = 1) -> None:
        self.steps += count
        if self.steps > _STEPS or (self.steps % 16 == 0 and time.thread_time() > self.end):
            raise Enough

    def doubt(self, really: object = True) -> None:
        self.understood = self.understood and not really


@dataclass(slots=True)
class Scope:
    """The known variables and folder at a point of the line, read from left to right."""

    cwd: str | None  # None when it depends on the running shell
    variables: dict[str, Word] = field(default_factory=dict)
    functions: dict[str, tuple[ShellReader, Node]] = field(default_factory=dict)
    maybe: bool = False  # assignments here may not happen, or more than once: values are guesses

    def fork(self, *, maybe: bool = False) -> Scope:
        return Scope(self.cwd, dict(self.variables), dict(self.functions), self.maybe or maybe)

    def value(self, name: str) -> Word:
        if name == "PWD" and self.cwd is not None:
            return Word(self.cwd, sure=not self.maybe)
        return self.variables.get(name, NOT_KNOWN)

    def assign(self, name: str, value: Word) -> None:
        self.variables[name] = Word(value.text, value.sure and not self.maybe, value.glob)


@dataclass(slots=True)
class ShellCall:
    """One simple command as it would run."""

    scope: Scope  # live: what a builtin changes is changed in it
    words: list[Word] = field(default_factory=list)
    stdin: str | None = None  # known input from a here-document or `echo`
    writes: list[Word] = field(default_factory=list)  # where its redirections write
    reads: list[Word] = field(default_factory=list)
    guess: bool = False  # a piece of a line that could not be read: good enough for the floor alone
    behind: list[Word] = field(default_factory=list)  # arguments that the grammar hangs on a redirection before them

    def printed(self) -> str | None:
        """The command's output, if it only repeats known text."""
        texts = [word.text for word in self.words]
        if texts == ["cat"]:
            return self.stdin
        if texts[:1] not in (["echo"], ["printf"]) or any(UNKNOWN in text for text in texts):
            return None
        while len(texts) > 1 and texts[1] in ("-n", "-e", "-ne", "-en", "-E", "--", "%s", "%s\\n", "%b"):
            del texts[1]
        return " ".join(texts[1:]).replace("\\n", "\n")


def read(
    text: str,
    scope: Scope,
    work: WorkBudget,
    emit: Callable[[ShellCall], None],
    *,
    user_home: str,
    stdin: str | None = None,
) -> None:
    """Emit every simple command of a text. `scope` is updated to the state after the line."""
    import tree_sitter_bash  # both only when a command is judged
    from tree_sitter import Language, Parser

    parser = Parser(Language(tree_sitter_bash.language()))  # a new one, because threads cannot share a parser
    text, at = _PRIVATE_USE.sub("\ufffd", text), 0
    while True:
        work.step()
        if time.thread_time() > work.end:
            raise Enough
        end = _window(text, at)
        reader = ShellReader(text[at:end], work, emit, user_home)
        root = parser.parse(reader.source).root_node
        children = root.children
        # Of a text that was cut: how many of the first parts are whole statements with something behind them.
        broken = (at for at, child in enumerate(children) if child.type not in _WHOLE or child.has_error)
        whole = range(next(broken, len(children)) if end < len(text) else 0)
        done = max((at for at in whole if children[at].type in _ENDS), default=0)
        if not done or children[done].start_byte * 2 < len(reader.source):  # too slow to be worth another window
            if root.has_error or end < len(text):
                work.doubt()
                reader.guess(text[at:end], scope)
            reader.sequence(children, scope, stdin)
            return
        reader.sequence(children[:done], scope, stdin)
        at += len(reader.source[: children[done].start_byte].decode("utf-8", "surrogatepass"))


def _window(text: str, start: int) -> int:
    """Where to cut the text so that the grammar stays quick."""
    at, heavy, light, endless = start, 0, 0, False
    documents: list[tuple[str, str]] = []
    while match := _TOKEN.match(text, at):
        light += 1
        heavy += bool(match["heavy"] or match["mark"])
        if match[0][0] == '"':
            heavy += match[0].count("$") + match[0].count("`")
        if heavy > _HEAVY or light > _LIGHT:
            return at
        at = match.end()
        if match["mark"]:
            documents.append((match["mark"], "\t*" if match["tabs"] else ""))
        while match["line"] and documents and not endless:  # the bodies of here-documents are nothing to count
            mark, tabs = documents.pop(0)
            delimiter = re.sub(r"['\"\\]", "", mark)
            ending = re.compile(f"^{tabs}{re.escape(delimiter)}$", re.M).search(text, at)
            endless = ending is None
            if ending is not None:
                heavy += (
                    0 if mark != delimiter else text.count("$", at, ending.end()) + text.count("`", at, ending.end())
                )
                at = ending.end()
    return at


class ShellReader:
    """One text and its tree."""

    def __init__(self, text: str, work: WorkBudget, emit: Callable[[ShellCall], None], user_home: str) -> None:
        self.source = text.encode("utf-8", "surrogatepass")
        self.work, self.emit, self.user_home = work, emit, user_home
        self.active: set[str] = set()
        self.doubt = work.doubt

    def text(self, node: Node) -> str:
        return self.source[node.start_byte : node.end_byte].decode("utf-8", "replace")

    def sequence(self, children: Sequence[Node], scope: Scope, stdin: str | None = None) -> None:
        """Read statements in order; `&` runs one in the background."""
        self.check_gaps(children)
        for at, child in enumerate(children):
            if child.is_named:
                behind = at + 1 < len(children) and children[at + 1].type == "&"
                self.statement(child, scope.fork() if behind else scope, stdin)
            else:
                self.doubt(child.type not in _BETWEEN)

    def check_gaps(self, children: Sequence[Node], *, arguments: bool = False) -> None:
        """Check that only blanks separate the parts; to bash, two arguments without a blank are one word."""
        for child, following in pairwise((*children, None)):
            self.work.step()
            self.doubt(child is not None and child.is_missing)
            if child is not None and following is not None:
                gap = self.source[child.end_byte : following.start_byte].decode("utf-8", "replace")
                if following.type == "heredoc_redirect" and gap.strip() == "-":
                    gap = " "  # `python - <<E`: the grammar drops the word
                touching = arguments and not gap.replace("\\\n", "") and "redirect" not in child.type + following.type
                self.doubt(touching or not _BLANK.fullmatch(gap))

    def statement(self, node: Node, scope: Scope, stdin: str | None = None) -> str | None:
        """Read a statement; return its output if known."""
        self.work.step()
        match node.type:
            case "command":
                return self.command(node, ShellCall(scope, stdin=stdin))
            case "redirected_statement":
                return self.redirected(node, scope, stdin)
            case "list":
                self.check_gaps(node.children)
                self.statement(node.children[0], scope)
                before, scope.maybe = scope.maybe, True
                for child in node.named_children[1:]:
                    self.statement(child, scope)
                scope.maybe = before
            case "pipeline":
                self.check_gaps(node.children)
                return self.pipeline(node, scope, stdin)
            case "compound_statement" if node.children and node.children[0].type == "((":
                self.computed(node, scope)
                self.inside(node, scope)
            case "negated_command" | "compound_statement" | "do_group":
                self.sequence(node.children, scope, stdin)
            case "subshell":
                self.sequence(node.children, scope.fork(), stdin)
            case "variable_assignment":
                scope.assign(*self.assigned_value(node, scope))
            case "variable_assignments" | "declaration_command":
                self.declaration(node, scope)
            case "unset_command":
                for name in map(self.text, node.named_children):
                    scope.assign(name, NOT_KNOWN)
                    scope.functions.pop(name, None)
                self.inside(node, scope)
            case "test_command":
                self.tested(node, scope)
            case "if_statement" | "while_statement" | "case_statement" | "for_statement" | "c_style_for_statement":
                self.compound(node, scope, stdin)
            case "function_definition":
                scope.functions[self.text(node.named_children[0])] = (self, node)
                self.doubt(scope.maybe)
            case "comment":
                ahead = self.source[max(0, node.start_byte - 2) : node.start_byte]
                self.doubt(ahead == b"\\\n" or (ahead and ahead[-1:] not in b" \t\n;&|()"))
            case "file_redirect":  # `> file` and `$(< file)`
                self.connect([node], call := ShellCall(scope))
                self.emit(replace(call, words=call.behind))
            case _:
                self.doubt()
                self.guess(self.text(node), scope)
                for child in node.named_children:
                    if child.type in _STATEMENTS or child.type == "ERROR":
                        self.statement(child, scope.fork(maybe=True))
        return None

    def guess(self, text: str, scope: Scope) -> None:
        """Without a tree: cut wherever a command could end, remove the quotes, and check the pieces by the floor."""
        for piece in re.split(r"[;&|\n()`]", text[:8_192]):
            self.work.step()
            bare = re.sub(r"['\"\\]", "", piece[:512]).split()
            found = [word for part in bare for word in words.fields(part, sure=False, user_home=self.user_home)]
            while found and re.fullmatch(r"[{!$]|if|then|else|elif|do|while|until|sudo|\w+=.*", found[0].text):
                del found[0]
            if found:
                self.emit(ShellCall(scope, found, guess=True))

    def pipeline(self, node: Node, scope: Scope, stdin: str | None) -> str | None:
        for part in node.named_children:
            if part.type != "comment":
                stdin = self.statement(part, scope.fork(), stdin)
        return stdin

    def redirected(self, node: Node, scope: Scope, stdin: str | None) -> str | None:
        """Read a statement with redirections. The rest of a here-document's first line is below its node."""
        self.check_gaps(node.children)
        body, call = node.child_by_field_name("body"), ShellCall(scope, stdin=stdin)
        self.connect(node.children, call)
        printed: str | None = None
        if body is not None and body.type == "command":
            printed = self.command(body, call)
        else:
            self.doubt(call.behind)
            self.emit(call)
            if body is not None:
                printed = self.statement(body, scope, call.stdin)
        for document in node.children:
            for child in document.children if document.type == "heredoc_redirect" else ():
                if child.type == "pipeline":
                    printed = self.pipeline(child, scope, printed)
                elif child == document.child_by_field_name("right"):
                    self.statement(child, scope)
        return printed

    def compound(self, node: Node, scope: Scope, stdin: str | None) -> None:
        """Read loops, conditions and cases, whose path and repetitions are unknown."""
        before = scope.maybe
        if node.type not in ("if_statement", "case_statement") and not before:
            # In the second iteration, variables assigned in the body have other values.
            for name in scope.variables.keys() & set(re.findall(r"(?<![\w$])[A-Za-z_]\w*", self.text(node))):
                scope.variables[name] = Word(scope.variables[name].text, sure=False)
        variable, body = node.child_by_field_name("variable"), node.child_by_field_name("body")
        scope.maybe = True
        if variable is not None and body is not None:
            items = self.expand_all(node.children_by_field_name("value"), scope)
            for item in items if 0 < len(items) <= _UNROLLED else [NOT_KNOWN]:
                scope.variables[self.text(variable)] = item  # in the body, for once, the value is certain
                self.statement(body, scope, stdin)
            scope.assign(self.text(variable), NOT_KNOWN)
        else:
            if node.type == "c_style_for_statement":
                self.computed(node, scope, but="do_group")
            self.branches(node, scope, stdin)
        scope.maybe = before

    def branches(self, node: Node, scope: Scope, stdin: str | None) -> None:
        self.check_gaps(node.children)
        patterns = node.children_by_field_name("value")
        for child in node.named_children:
            if child.type in ("else_clause", "elif_clause", "case_item"):
                self.branches(child, scope, stdin)
            elif child in patterns or child.type.endswith("expression"):
                self.inside(child, scope)
            else:
                self.statement(child, scope, stdin)

    def run_function(self, node: Node, name: str, call: ShellCall) -> bool:
        """Read the body of a function, with unknown arguments. True if it calls itself endlessly."""
        if name in self.active:
            return bool(re.search(r"[|&]", self.text(node)))
        self.active.add(name)
        for child in node.named_children[1:]:
            self.statement(child, call.scope, call.stdin)
        self.active.discard(name)
        return False

    def connect(self, children: Iterable[Node], call: ShellCall) -> None:
        """Read the redirections among the children of a statement."""
        for child in children:
            if child.type == "file_redirect":
                self.check_gaps(child.children)
                operator = next((part.type for part in child.children if not part.is_named), "")
                parts = child.children_by_field_name("destination")
                targets = self.expand_all(parts[:1], call.scope)
                self.doubt(len(targets) != 1 and operator not in (">&-", "<&-"))
                if not (operator.endswith("&") and all(re.fullmatch(r"\d+|-", word.text) for word in targets)):
                    (call.reads if operator in ("<", "<&") else call.writes).extend(targets)
                # The grammar takes arguments after a redirection for more of its targets.
                call.behind += self.expand_all(parts[1:], call.scope)
            elif child.type == "herestring_redirect":
                made = self.expand_all(child.named_children, call.scope)
                self.doubt(len(child.named_children) != 1)
                call.stdin = made[0].text if len(made) == 1 and UNKNOWN not in made[0].text else None
            elif child.type == "heredoc_redirect":
                call.behind += self.expand_all(child.children_by_field_name("argument"), call.scope)
                self.connect(child.children_by_field_name("redirect"), call)
                call.stdin = self.heredoc(child, call.scope)

    def command(self, node: Node, call: ShellCall) -> str | None:
        self.check_gaps(node.children, arguments=True)
        behind, call.behind = call.behind, []
        for child in node.children:
            match child.type:
                case "variable_assignment":
                    self.assigned_value(child, call.scope)
                case "file_redirect" | "herestring_redirect":
                    self.connect((child,), call)
                    call.words += call.behind
                    call.behind = []
                case "command_name":
                    call.words += self.expand_all(child.children, call.scope)
                case "comment":
                    self.statement(child, call.scope)
                case "-":
                    call.words.append(Word("-"))
                case _ if child.is_named and child.type != "heredoc_redirect":
                    call.words += self.expand_all((child,), call.scope)
                case _:
                    self.doubt()
        call.words += behind
        self.emit(call)
        return call.printed()

    def assigned_value(self, node: Node, scope: Scope) -> tuple[str, Word]:
        self.check_gaps(node.children)
        target, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        name = self.text(target) if target is not None else ""
        plain = target is not None and target.type == "variable_name" and all(one.type != "+=" for one in node.children)
        if not plain or (value is not None and value.type == "array"):
            self.computed(node, scope, but="array")  # the subscript of a[x]=1
            self.inside(node, scope)
            return name.partition("[")[0], NOT_KNOWN
        if value is None:
            return name, Word("")
        encoded, sure = self.encode(value, scope, quotes=False)
        if _TEMPORARY.fullmatch(self.text(value)):
            return name, Word("/tmp/" + UNKNOWN, sure=False)
        return name, words.assigned(encoded, sure=sure, user_home=self.user_home)

    def declaration(self, node: Node, scope: Scope) -> None:
        """`export`, `local`, `declare` …; `-i` would make every later value arithmetic, `-n` another name."""
        for child in node.named_children:
            if child.type == "variable_assignment":
                scope.assign(*self.assigned_value(child, scope))
            elif child.type == "word":
                self.doubt(not re.fullmatch(r"-[aAfgprx]+", self.text(child)))
            else:
                self.doubt(child.type != "variable_name")
                self.inside(child, scope)

    def expand_all(self, nodes: Iterable[Node], scope: Scope) -> list[Word]:
        found: list[Word] = []
        for node in nodes:
            encoded, sure = self.encode(node, scope, quotes=False)
            found += words.fields(encoded, sure=sure, user_home=self.user_home)
        return found

    def encode(self, node: Node, scope: Scope, *, quotes: bool) -> tuple[str, bool]:
        """The encoded text of a node, and whether it is certain. Also reads the commands inside it."""
        self.work.step()
        text = self.text(node)
        match node.type:
            case "word" | "number" | "variable_name" | "test_operator" if not node.named_children:
                self.doubt(not _PLAIN_WORD.fullmatch(text))
                return words.unescaped(text), True
            case "raw_string":
                return words.quoted(text[1:-1]), True
            case "ansi_c_string":
                return words.quoted(words.ansi_c(text[2:-1])), True
            case "string" | "translated_string":
                return self.string(node, scope)
            case "concatenation" | "command_name":
                self.doubt(any(one.end_byte != two.start_byte for one, two in pairwise(node.children)))
                parts = [self.encode(child, scope, quotes=quotes) for child in node.children]
                return "".join(part for part, _ in parts), all(sure for _, sure in parts)
            case "simple_expansion":
                value = scope.value(text[1:])
                return value_in_word(value, quotes=quotes), value.sure
            case "expansion":
                return self.expansion(node, scope, quotes=quotes)
            case "command_substitution" | "process_substitution":
                self.doubt(text[0] == "`" and re.search(r"\\|<<", text))  # backquotes take off a layer of backslashes
                self.sequence(node.children, scope.fork())
                if node.type == "process_substitution":
                    return "/dev/fd/63", True
                return value_in_word(NOT_KNOWN, quotes=quotes), False
            case "arithmetic_expansion":
                self.computed(node, scope)
                for child in node.children:
                    self.inside(child, scope)
                return "0", False
            case "brace_expression":
                return UNKNOWN, False
        self.doubt()
        self.inside(node, scope)
        return UNKNOWN, False

    def string(self, node: Node, scope: Scope) -> tuple[str, bool]:
        """Read `"…"`: everything between the expansions is text, whatever the grammar calls it."""
        made, sure = words.quoted(""), True
        at = self.source.index(b'"', node.start_byte) + 1
        for child in (*(child for child in node.children if child.type in _EXPANSIONS), None):
            end = node.end_byte - 1 if child is None else child.start_byte
            text = self.source[at:end].decode("utf-8", "replace")
            self.doubt(_HIDDEN.search(text))
            made += words.plain(re.sub(r'\\([$`"\\\n])', lambda match: match[1].strip("\n"), text))
            if child is not None:
                part, certain = self.encode(child, scope, quotes=True)
                made, sure, at = made + part, sure and certain, child.end_byte
        return made, sure

    def expansion(self, node: Node, scope: Scope, *, quotes: bool) -> tuple[str, bool]:
        """Read `${…}`: the value, or its replacement word."""
        inner = node.children[1:-1]
        operator = inner[1].type if len(inner) > 1 else ""
        if inner and inner[0].type == "variable_name" and operator in ("", ":-", "-", ":=", "=", ":+", "+"):
            name = self.text(inner[0])
            value = scope.value(name)
            parts = [self.encode(child, scope, quotes=quotes)[0] for child in inner[2:]]
            if operator in (":=", "="):
                scope.assign(name, NOT_KNOWN)
            if not operator or ("+" not in operator and value.sure and value.text):
                return value_in_word(value, quotes=quotes), value.sure
            return "".join(parts), False
        self.doubt(operator == "@" or (inner and inner[0].type == "!" and len(inner) == 2))  # text that is read again
        if operator == ":" or any(child.type == "subscript" for child in inner):
            self.computed(node, scope)
        for child in inner:
            self.inside(child, scope)
        return value_in_word(NOT_KNOWN, quotes=quotes), False

    def inside(self, node: Node, scope: Scope) -> None:
        """Read only the commands inside a piece whose text does not matter."""
        self.work.step()
        if node.type in _WORDS:
            self.encode(node, scope, quotes=True)
        elif node.children:
            for child in node.children:
                self.inside(child, scope)
        else:  # patterns and regular expressions are one leaf to the grammar, whatever stands in them
            self.doubt(node.is_named and _RUNS.search(self.text(node)))

    def computed(self, node: Node, scope: Scope, *, but: str = "") -> None:
        """Check arithmetic: it evaluates its variables' text again, so one that the line sets must hold a number."""
        for part in (node, *self.descendants(node, but=but)):
            if part.parent is not None and part == part.parent.child_by_field_name("name"):
                continue  # the array's own name
            if part.type in ("variable_name", "word"):
                value = scope.variables.get(self.text(part))
                self.doubt(value is not None and not re.fullmatch(r"\s*-?\d*\s*", value.text))
            elif part.type in ("raw_string", "string", "ansi_c_string"):
                self.doubt(_RUNS.search(self.text(part)))

    def tested(self, node: Node, scope: Scope) -> None:
        """Read `[ … ]` and `[[ … ]]`. Bash runs commands in a[…] after -v, and evaluates operands of -eq in `[[`."""
        self.inside(node, scope)
        double = self.text(node).startswith("[[")
        bare = re.sub(r"""\\.|'[^']*'|"[^"]*"|\$\([^()]*\)|`[^`]*`""", "", self.text(node), flags=re.DOTALL)
        self.doubt(not double and re.search(r"[\n;&|<>]", bare))
        for part in self.descendants(node):
            if part.type == "test_operator" and re.fullmatch(
                "-[vR]|-(eq|ne|[lg][te])" if double else "-[vR]", self.text(part)
            ):
                self.computed(part.parent or node, scope)

    def descendants(self, node: Node, *, but: str = "") -> Iterator[Node]:
        for child in node.children:
            self.work.step()
            yield child
            if child.type != but:
                yield from self.descendants(child, but=but)

    def heredoc(self, node: Node, scope: Scope) -> str | None:
        """The text of a here-document; its end and its substitutions are checked against the source."""
        parts = {child.type: child for child in node.children}
        start, body, end = (parts.get(f"heredoc_{name}") for name in ("start", "body", "end"))
        if start is None or body is None or end is None:
            self.doubt()
            return None
        mark = self.text(start)
        delimiter = re.sub(r"['\"\\]", "", mark)
        first = self.source.find(b"\n", start.end_byte) + 1
        lines = self.source[first : end.end_byte].decode("utf-8", "replace").split("\n")
        endings = [at for at, line in enumerate(lines) if (line.lstrip("\t") if "<<-" in parts else line) == delimiter]
        self.doubt(endings != [len(lines) - 1] or not delimiter.isidentifier())
        raw = "\n".join(lines[:-1])
        if mark != delimiter:  # quoted: nothing in it is run
            return raw
        self.inside(body, scope)
        written, seen = re.findall(r"\$[({]|`", re.sub(r"\\.", "", raw)), [part.type for part in self.descendants(body)]
        self.doubt("`" in written or len(written) != sum(kind in _EXPANSIONS - {"simple_expansion"} for kind in seen))
        return raw if "$" not in raw and "`" not in raw else None
