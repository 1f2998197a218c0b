"""`parse_mode=MarkdownV2`, and the legacy `Markdown`, read as Telegram reads them.

Outside of code every one of ``_*[]()~`>#+-=|{}.!`` must be escaped or mean something; the complaint names the
character or the entity that was not closed, with the byte offset at which it began.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from hermes_testing.telegram_entities import Entity, Formatted, byte_offset, cannot_parse, linked, units

_RESERVED = "_*[]()~`>#+-=|{}.!"
_NAMES = {
    "bold": "Bold", "italic": "Italic", "underline": "Underline", "strikethrough": "Strikethrough",
    "spoiler": "Spoiler", "code": "Code", "pre": "Pre", "text_link": "TextUrl", "custom_emoji": "CustomEmoji",
}  # fmt: skip
_MARKS = {
    "bold": "*", "italic": "_", "underline": "__", "strikethrough": "~", "spoiler": "||", "code": "`", "pre": "```",
    "text_link": "]", "custom_emoji": "]",
}  # fmt: skip
_BEGINNINGS = (
    ("__", "underline"), ("_", "italic"), ("*", "bold"), ("~", "strikethrough"), ("||", "spoiler"), ("```", "pre"),
    ("`", "code"), ("![", "custom_emoji"), ("[", "text_link"),
)  # fmt: skip
_LANGUAGE = re.compile(r"([^\s`]+)(?=[^`])")
_QUOTED = re.compile(r"\*\*>|>")
_NEW_LINE = re.compile(r"\r\n|\n\r|\n|\r")
_EMOJI = re.compile(r"tg:(?://)?emoji/?\?(?:[^#]*&)?id=([1-9][0-9]*)(?:[&#].*)?", re.IGNORECASE)


@dataclass(slots=True)
class _Open:
    type: str
    begin: int
    """Where its mark stands in the text that was sent."""
    at: int
    """Where its text begins, in UTF-16 units."""
    index: int
    """The same, in pieces written."""
    language: str = ""


def parse(text: str) -> Formatted:
    return _Parser(text).parsed()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._out: list[str] = []
        self._units = 0
        self._open: list[_Open] = []
        self._quote: _Open | None = None
        self._entities: list[Entity] = []

    def parsed(self) -> Formatted:
        while self._at < len(self._text):
            self._step()
        if self._quote is not None:
            self._end_quote()
        self._nothing_open()
        return Formatted("".join(self._out), tuple(self._entities))

    def _step(self) -> None:
        text, character = self._text, self._text[self._at]
        if character == "\\" and self._at + 1 < len(text) and "\x00" < text[self._at + 1] < "\x7f":
            self._write(text[self._at + 1])
            self._at += 2
            return
        inside = self._open[-1].type if self._open else ""
        if inside in ("code", "pre"):
            if text.startswith(_MARKS[inside], self._at):
                self._close()
            elif character == "`":
                self._begin(character)
            else:
                self._plain(character)
        elif self._at_line_start() and (mark := _QUOTED.match(text, self._at)) and (self._quote or not self._open):
            self._start_quote(mark[0])
        elif self._ends(inside):
            self._close()
        elif character in _RESERVED:
            self._begin(character)
        else:
            self._plain(character)

    def _plain(self, character: str) -> None:
        self._write(character)
        self._at += 1
        if character == "\n" and self._quote is not None and not self._text.startswith(">", self._at):
            self._end_quote()

    def _write(self, piece: str) -> None:
        self._out.append(piece)
        self._units += units(piece)

    def _at_line_start(self) -> bool:
        return self._at == 0 or self._text[self._at - 1] in "\r\n"

    def _start_quote(self, mark: str) -> None:
        if mark == "**>" and self._quote is not None:
            self._end_quote()
        if self._quote is None:
            self._quote = _Open("blockquote", self._at, self._units, len(self._out))
        self._at += len(mark)

    def _end_quote(self) -> None:
        kind = "blockquote"
        if self._open and self._open[-1].type == "spoiler" and not "".join(self._out[self._open[-1].index :]).strip():
            self._open.pop()  # `||` at a quote's end makes it expandable
            kind = "expandable_blockquote"
        self._nothing_open()
        if self._quote is not None and self._units > self._quote.at:
            self._entities.append(Entity(kind, self._quote.at, self._units - self._quote.at))
        self._quote = None

    def _nothing_open(self) -> None:
        if self._open:
            last = self._open[-1]
            name = "PreCode" if last.language else _NAMES[last.type]
            begin = byte_offset(self._text, last.begin)
            if last.type == "text_link":
                raise cannot_parse(f"Can't find end of TextUrl entity at byte offset {begin}")
            raise cannot_parse(f"Can't find end of {name} entity at byte offset {begin}")

    def _ends(self, inside: str) -> bool:
        if not inside or not self._text.startswith(_MARKS[inside], self._at):
            return False
        return inside != "italic" or not self._text.startswith("__", self._at)

    def _begin(self, character: str) -> None:
        for mark, kind in _BEGINNINGS:
            if self._text.startswith(mark, self._at):
                opened = _Open(kind, self._at, self._units, len(self._out))
                self._at += len(mark)
                if kind == "pre":
                    self._language(opened)
                self._open.append(opened)
                return
        raise cannot_parse(f"Character '{character}' is reserved and must be escaped with the preceding '\\'")

    def _language(self, opened: _Open) -> None:
        if language := _LANGUAGE.match(self._text, self._at):
            opened.language = language[1]
            self._at = language.end()
        if new_line := _NEW_LINE.match(self._text, self._at):
            self._at = new_line.end()

    def _close(self) -> None:
        opened = self._open.pop()
        self._at += len(_MARKS[opened.type])
        kind = opened.type
        more: tuple[tuple[str, str], ...] = (("language", opened.language),) if opened.language else ()
        if kind == "text_link":
            found = linked(self._address("a URL") or "".join(self._out[opened.index :]))
            if found is None:
                return
            kind, more = found
        elif kind == "custom_emoji":
            more = (("custom_emoji_id", self._emoji()),)
        if self._units > opened.at:
            self._entities.append(Entity(kind, opened.at, self._units - opened.at, more))

    def _address(self, what: str) -> str | None:
        """What stands in parentheses behind a link's text; None without any."""
        if not self._text.startswith("(", self._at):
            return None
        self._at += 1
        begin = self._at
        address = []
        while self._at < len(self._text) and self._text[self._at] != ")":
            if self._text[self._at] == "\\" and "\x00" < self._text[self._at + 1 : self._at + 2] < "\x7f":
                self._at += 1
            address.append(self._text[self._at])
            self._at += 1
        if self._at >= len(self._text):
            raise cannot_parse(f"Can't find end of {what} at byte offset {byte_offset(self._text, begin)}")
        self._at += 1
        return "".join(address) or "-"

    def _emoji(self) -> str:
        address = self._address("a custom emoji URL")
        if address is None:
            raise cannot_parse("Custom emoji entity must contain a tg://emoji URL")
        found = _EMOJI.fullmatch(address)
        if found is None:
            raise cannot_parse("Invalid custom emoji identifier specified")
        return found[1]


_LEGACY = {"*": "bold", "_": "italic", "`": "code", "```": "pre", "[": "text_link"}


def parse_legacy(text: str) -> Formatted:
    """`parse_mode=Markdown`: no nesting, and a backslash escapes only what may begin something."""
    out: list[str] = []
    entities: list[Entity] = []
    size = at = 0
    while at < len(text):
        character = text[at]
        if character == "\\" and text[at + 1 : at + 2] in ("_", "*", "`", "["):
            piece, at = text[at + 1], at + 2
        elif character not in "*_`[":
            piece, at = character, at + 1
        else:
            mark = "```" if text.startswith("```", at) else character
            piece, more, kind, at = _legacy_entity(text, at, mark)
            if piece and kind:
                entities.append(Entity(kind, size, units(piece), more))
        out.append(piece)
        size += units(piece)
    return Formatted("".join(out), tuple(entities))


def _legacy_entity(text: str, at: int, mark: str) -> tuple[str, tuple[tuple[str, str], ...], str, int]:
    closing = "]" if mark == "[" else mark
    end = text.find(closing, at + len(mark))
    if end < 0:
        begin = byte_offset(text, at)
        raise cannot_parse(f"Can't find end of the entity starting at byte offset {begin}")
    piece, after = text[at + len(mark) : end], end + len(closing)
    if mark == "```":
        first, new_line, rest = piece.partition("\n")
        if new_line and re.fullmatch(r"[^\s`]*", first):
            return rest, (("language", first),) if first else (), "pre", after
    if mark != "[":
        return piece, (), _LEGACY[mark], after
    if not text.startswith("(", after):
        return piece, (), "", after
    close = text.find(")", after)
    if close < 0:
        raise cannot_parse(f"Can't find end of the entity starting at byte offset {byte_offset(text, at)}")
    found = linked(text[after + 1 : close])
    kind, more = found or ("", ())
    return piece, more, kind, close + 1
