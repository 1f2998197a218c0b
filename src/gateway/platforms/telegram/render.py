"""Markdown, as models write it, to messages in Telegram's HTML.

Bold, italic, struck, code, code blocks with their language, links and quotes are Telegram's own. What Telegram lacks
is written with what it has: a heading is bold, a list has bullets and numbers, a table is an aligned code block, a
picture is a link with its text. Raw HTML is text. Blank lines stand where the author left them, line breaks stay.

Every text becomes something: one that renders to nothing, or that would keep a parser busy, is sent as it is.
`pieces` is pure and repeatable.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from gateway.platforms.base import cut, units

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token


LIMIT = 4096
EMPTY = "(an empty message)"
# Beyond these a text is sent as it is. Together they keep a rendering below some 150 ms, whatever is written.
_LONGEST = 60_000
_LINES = 2_000
_DELIMITERS = 3_000  # characters that open or close something: for some sequences of them a parser takes long
_DEEPEST = 60  # the parser leaves out what is nested deeper
_DELIMITER = re.compile(r"[*_~`\[\]<>!|]")
_PLAIN = re.compile(r"[^\s*_`~\[\]<>&#|\\!+-][^\n\t*_`~\[\]<>&\\!|]*")
_NUMBERED = re.compile(r"\d{1,9}[.)]")
_LINKABLE = re.compile(r"(?:https?|tg|mailto|tel):", re.IGNORECASE)
_LANGUAGE = re.compile(r"[A-Za-z0-9+#_.-]{1,30}")
_CONTROLS: dict[int, str | None] = dict.fromkeys((*range(9), 11, 12, *range(14, 32), 127)) | {13: "\n"}
_TAGS = {"strong": "b", "em": "i", "s": "s"}


def pieces(text: str, limit: int = LIMIT) -> list[str]:
    """The messages a text becomes, as HTML, none of them empty."""
    text = _clean(text)
    if _PLAIN.fullmatch(text) and not _NUMBERED.match(text) and len(text) * 2 <= limit:
        return [text]  # most of what people say: nothing to render, nothing to escape
    blocks = list(_blocks(text)) if _is_reasonable(text) else []
    filled = fill(blocks or _as_it_is(text), limit)
    return [to_html(piece) for piece in filled] or [EMPTY]


def _clean(text: str) -> str:
    """What Telegram would refuse or drop: characters that are no text, halves of characters."""
    text = text.replace("\r\n", "\n").translate(_CONTROLS)
    return (text if text.isascii() else text.encode("utf-8", "replace").decode()).strip()


def _is_reasonable(text: str) -> bool:
    if len(text) > _LONGEST or text.count("\n") > _LINES:
        return False
    return sum(1 for _ in _DELIMITER.finditer(text)) <= _DELIMITERS


def _as_it_is(text: str) -> list[Block]:
    return [Block((Run(text),))] if text.strip() else []


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark", {"html": False, "maxNesting": _DEEPEST}).enable(["table", "strikethrough"])


def _blocks(text: str) -> Iterator[Block]:
    """The blocks of a text. A gap is as wide as it was written: a blank line, or none."""
    tokens = _parser().parse(text)
    if any(token.level >= _DEEPEST - 1 for token in tokens):
        yield from _as_it_is(text)
        return
    end = 0
    for start, stop, found in _Reader(tokens, text.split("\n")).read():
        if found:
            yield Block(found, "\n" if start <= end else "\n\n")
        end = stop


class _List:
    __slots__ = ("number", "ordered")

    def __init__(self, *, ordered: bool, number: int) -> None:
        self.ordered = ordered
        self.number = number

    def next_label(self) -> str:
        self.number += 1
        return f"{self.number - 1}. " if self.ordered else "• "


class _Reader:
    """Walks the tokens of a document: which lists and quotes are open, and what the next block begins with."""

    def __init__(self, tokens: Sequence[Token], lines: Sequence[str]) -> None:
        self._tokens, self._lines = tokens, lines
        self._lists: list[_List] = []
        self._label = ""
        self._quotes = 0
        self._serial = 0
        self._heading = False

    def read(self) -> Iterator[tuple[int, int, tuple[Run, ...]]]:
        """Each block with its first line and the line behind its last."""
        rows: list[list[str]] = []
        table, line = (0, 0), 0
        for token in self._tokens:
            start, stop = token.map or (0, 0)
            match token.type:
                case "inline" if rows:
                    rows[-1].append(_flat(token))
                case "inline":
                    yield start, stop, self._text(token)
                case "fence" | "code_block":
                    yield start, stop, self._code(token.content, token.info)
                case "hr":
                    yield start, stop, self._labelled([Run("———", self._around())])
                case "table_open":
                    table = (start, stop)
                case "tr_open":
                    rows.append([])
                    line = start
                case "tr_close" if line < len(self._lines):
                    rows[-1][-1:] = [" ".join([*rows[-1][-1:], *_left_out(self._lines[line], len(rows[-1]))]).strip()]
                case "table_close":
                    yield *table, self._code(_aligned(rows), "")
                    rows = []
                case _:
                    self._enter_or_leave(token)

    def _enter_or_leave(self, token: Token) -> None:
        match token.type:
            case "heading_open" | "heading_close":
                self._heading = token.nesting == 1
            case "blockquote_open":
                self._serial += not self._quotes
                self._quotes += 1
            case "blockquote_close":
                self._quotes -= 1
            case "bullet_list_open":
                self._lists.append(_List(ordered=False, number=1))
            case "ordered_list_open":
                self._lists.append(_List(ordered=True, number=int(token.attrGet("start") or 1)))
            case "bullet_list_close" | "ordered_list_close":
                self._lists.pop()
            case "list_item_open":
                self._label = self._lists[-1].next_label()
            case "list_item_close":
                self._label = ""

    def _around(self) -> tuple[Mark, ...]:
        """The marks of the place: Telegram has no quotes within quotes."""
        return (Mark("blockquote", "", self._serial),) if self._quotes else ()

    def _labelled(self, found: list[Run]) -> tuple[Run, ...]:
        """The block behind its bullet or number, or in line with the block that has it."""
        if self._lists:
            start = "  " * (len(self._lists) - 1)
            found.insert(0, Run(start + (self._label or "  "), self._around()))
            self._label = ""
        return tuple(run for run in found if run.text)

    def _text(self, token: Token) -> tuple[Run, ...]:
        around = self._around()
        if self._heading:
            around = (*around, Mark("b"))
        found = list(_inline(token.children or (), around, newline="\n" + "  " * len(self._lists)))
        return self._labelled(found) if any(run.text.strip() for run in found) else ()

    def _code(self, content: str, info: str) -> tuple[Run, ...]:
        language = (info.split() or [""])[0]
        if info and not (content.strip() and _LANGUAGE.fullmatch(language)):
            content, language = f"{info}\n{content}", ""  # a sentence behind the fence, or nothing below it: shown
        self._serial += 1
        mark = Mark("pre", language, self._serial)
        code = Run(content.rstrip("\n") or " ", (*self._around(), mark))
        if not self._label:
            return (code,)
        label = self._labelled([])
        return (*label, Run("\n", self._around()), code)


def _inline(tokens: Iterable[Token], around: tuple[Mark, ...], *, newline: str) -> Iterator[Run]:
    """The runs of one paragraph."""
    marks = list(around)
    address = ""
    for token in tokens:
        match token.type:
            case "softbreak" | "hardbreak":
                yield Run(newline, tuple(marks))
            case "code_inline":
                # Code takes no other formatting; in a link the link is worth more.
                alone = tuple(mark for mark in marks if mark.tag in ("blockquote", "a"))
                yield Run(token.content, alone if any(m.tag == "a" for m in alone) else (*alone, Mark("code")))
            case "image":
                yield from _link(token.content or "picture", str(token.attrGet("src") or ""), tuple(marks))
            case "link_open":
                address = str(token.attrGet("href") or "")
                if _LINKABLE.match(address):
                    marks.append(Mark("a", address))
            case "link_close":
                if marks and marks[-1].tag == "a":
                    marks.pop()
                elif address and token.info != "auto":
                    yield Run(f" ({address})", tuple(marks))
            case _ if token.nesting == 1 and token.tag in _TAGS:
                marks.append(Mark(_TAGS[token.tag], "", sum(mark.tag == _TAGS[token.tag] for mark in marks)))
            case _ if token.nesting == -1 and token.tag in _TAGS:
                marks.pop()
            case _:
                yield Run(token.content, tuple(mark for mark in marks if not _is_again(mark)))


def _is_again(mark: Mark) -> bool:
    """Bold within bold is bold."""
    return mark.tag in _TAGS.values() and mark.serial > 0


def _link(text: str, address: str, marks: tuple[Mark, ...]) -> Iterator[Run]:
    if _LINKABLE.match(address) and not any(mark.tag == "a" for mark in marks):
        yield Run(text, (*marks, Mark("a", address)))
    else:
        yield Run(text, marks)


_QUOTE_OR_LIST = re.compile(r"^[\s>]*(?:(?:[-*+]|\d+[.)])\s+)?")


def _left_out(line: str, columns: int) -> list[str]:
    """The cells of a row beyond its table's columns: the parser drops them, we keep the words."""
    cells = re.split(r"(?<!\\)\|", _QUOTE_OR_LIST.sub("", line).strip())
    if cells and not cells[0].strip():
        cells.pop(0)
    if cells and not cells[-1].strip():
        cells.pop()
    return [cell.strip().replace("\\|", "|") for cell in cells[columns:] if cell.strip()]


def _flat(token: Token) -> str:
    """A cell of a table: text alone, in one line."""
    parts = (" " if child.type in ("softbreak", "hardbreak") else child.content for child in token.children or ())
    return " ".join("".join(parts).split())


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    """A table as lines whose columns stand below each other, with a rule under the head."""
    widths = [max(map(_width, column)) for column in zip(*rows, strict=True)]
    lines = [" │ ".join(_padded(cell, wide) for cell, wide in zip(row, widths, strict=True)) for row in rows]
    lines.insert(1, "─┼─".join("─" * wide for wide in widths))
    return "\n".join(line.rstrip() for line in lines)


def _padded(cell: str, wide: int) -> str:
    return cell + " " * (wide - _width(cell))


def _width(text: str) -> int:
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


_OUR_TAGS = re.compile(r"</?(?:b|i|s|u|code|pre|blockquote|a)(?: [^<>]*)?>")


class Mark(NamedTuple):
    """One formatting. `serial` tells two quotes or code blocks apart that stand next to each other."""

    tag: str
    value: str = ""
    serial: int = 0


class Run(NamedTuple):
    """A stretch of text under the same marks.

    Pieces are cut from runs by UTF-16 units and each is written as HTML on its own, so no cut can leave a tag open: a
    code block that has to be divided is a code block of the same language on both sides.
    """

    text: str
    marks: tuple[Mark, ...] = ()
    """Outermost first."""


class Block(NamedTuple):
    """A paragraph, a list item or a code block, kept whole where it fits into one message."""

    runs: tuple[Run, ...]
    gap: str = "\n\n"
    """What stands between it and the block before, in the same message."""


def to_html(runs: Iterable[Run]) -> str:
    """Runs as Telegram's HTML: everything escaped, tags nested properly."""
    out: list[str] = []
    under: tuple[Mark, ...] = ()
    for run in runs:
        shared = _shared(under, run.marks)
        out += [_end(mark) for mark in reversed(under[shared:])]
        out += [_start(mark) for mark in run.marks[shared:]]
        out.append(html.escape(run.text, quote=False))
        under = run.marks
    out += [_end(mark) for mark in reversed(under)]
    return "".join(out)


def to_plain(piece: str) -> str:
    """A piece of ours without its tags: what is sent when Telegram does not understand the HTML."""
    return html.unescape(_OUR_TAGS.sub("", piece))


def fill(blocks: Iterable[Block], limit: int) -> list[list[Run]]:
    """Blocks as messages of at most `limit` units, in order; nothing is lost but white space at cuts."""
    pieces: list[list[Run]] = []
    current: list[Run] = []
    size = 0
    for block in blocks:
        length = _length(block.runs)
        if current and size + len(block.gap) + length <= limit:
            quote = current[-1].marks[: _shared(current[-1].marks, block.runs[0].marks)]
            current += [Run(block.gap, quote), *block.runs]
            size += len(block.gap) + length
            continue
        if current:
            pieces.append(current)
        rest = list(block.runs)
        while length > limit:
            head, rest = _cut(rest, limit)
            pieces.append(head)
            length = _length(rest)
        current, size = rest, length
    if current:
        pieces.append(current)
    return [piece for piece in pieces if any(run.text.strip() for run in piece)]


def _length(runs: Sequence[Run]) -> int:
    return sum(units(run.text) for run in runs)


def _shared(first: tuple[Mark, ...], second: tuple[Mark, ...]) -> int:
    """How many of the outermost marks are the same."""
    count = 0
    for one, other in zip(first, second, strict=False):
        if one != other:
            break
        count += 1
    return count


def _start(mark: Mark) -> str:
    if mark.tag == "a":
        return f'<a href="{html.escape(mark.value)}">'
    if mark.tag == "pre" and mark.value:
        return f'<pre><code class="language-{html.escape(mark.value)}">'
    return f"<{mark.tag}>"


def _end(mark: Mark) -> str:
    return "</code></pre>" if mark.tag == "pre" and mark.value else f"</{mark.tag}>"


def _cut(runs: list[Run], limit: int) -> tuple[list[Run], list[Run]]:
    """Divide before `limit` units, where `splitting` would cut a plain text."""
    end, following = cut("".join(run.text for run in runs), 0, limit)
    return _divide(runs, end)[0], _divide(runs, following)[1]


def _divide(runs: Sequence[Run], place: int) -> tuple[list[Run], list[Run]]:
    """The runs before and after a place, counted in characters."""
    for index, run in enumerate(runs):
        if place < len(run.text):
            head = [*runs[:index], Run(run.text[:place], run.marks)] if place else list(runs[:index])
            return head, [Run(run.text[place:], run.marks), *runs[index + 1 :]]
        place -= len(run.text)
    return list(runs), []
