"""`parse_mode=HTML`, read as Telegram reads it: a handful of tags, four named entities, and exact complaints.

Tags nest and must be closed in order; `</>` closes the innermost. A link to an address that is none is left out, its
text stays. Byte offsets in complaints count the UTF-8 bytes of the text that was sent.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from hermes_testing.telegram_entities import Entity, Formatted, byte_offset, cannot_parse, linked, units

_STYLES = {
    "b": "bold", "strong": "bold", "i": "italic", "em": "italic", "u": "underline", "ins": "underline",
    "s": "strikethrough", "strike": "strikethrough", "del": "strikethrough", "tg-spoiler": "spoiler", "span": "spoiler",
    "code": "code", "pre": "pre", "blockquote": "blockquote", "a": "text_link", "tg-emoji": "custom_emoji",
}  # fmt: skip
_REFERENCE = re.compile(r"&(?:#x(?P<hex>[0-9a-f]{1,8})|#(?P<number>[0-9]{1,9})|(?P<name>lt|gt|amp|quot));?", re.I)
_NAMED = {"lt": "<", "gt": ">", "amp": "&", "quot": '"'}
_PLAIN_VALUE = re.compile(r"[A-Za-z0-9.\-]+")
_SPACE = " \t\r\n\f\v"


@dataclass(frozen=True, slots=True)
class _Open:
    tag: str
    argument: str
    """A link's address, a language, an emoji's id, `expandable`."""
    at: int
    """Where its text begins, in UTF-16 units."""
    index: int
    """The same in characters."""


def parse(text: str) -> Formatted:
    return _Parser(text).parsed()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._out: list[str] = []
        self._units = 0
        self._open: list[_Open] = []
        self._entities: list[Entity] = []

    def parsed(self) -> Formatted:
        text = self._text
        while self._at < len(text):
            character = text[self._at]
            if character == "&" and (reference := _REFERENCE.match(text, self._at)):
                self._write(_decoded(reference))
                self._at = reference.end()
            elif character != "<":
                self._write(character)
                self._at += 1
            elif text.startswith("</", self._at):
                self._close()
            else:
                self._start()
        if self._open:
            raise cannot_parse(f'Can\'t find end tag corresponding to start tag "{self._open[-1].tag}"')
        return Formatted("".join(self._out), _joined(self._entities))

    def _write(self, piece: str) -> None:
        self._out.append(piece)
        self._units += units(piece)

    def _offset(self, place: int) -> int:
        return byte_offset(self._text, place)

    def _spaces(self) -> None:
        while self._at < len(self._text) and self._text[self._at] in _SPACE:
            self._at += 1

    def _until(self, stops: str) -> str:
        begin = self._at
        while self._at < len(self._text) and self._text[self._at] not in stops:
            self._at += 1
        return self._text[begin : self._at]

    def _start(self) -> None:
        begin = self._at
        self._at += 1
        tag = self._until(_SPACE + ">").lower()
        if self._at >= len(self._text):
            raise cannot_parse(f"Unclosed start tag at byte offset {self._offset(begin)}")
        if tag not in _STYLES:
            raise cannot_parse(f'Unsupported start tag "{tag}" at byte offset {self._offset(begin)}')
        attributes = self._attributes(tag, begin)
        self._open.append(_Open(tag, self._argument(tag, attributes, begin), self._units, len(self._out)))

    def _attributes(self, tag: str, begin: int) -> dict[str, str]:
        attributes: dict[str, str] = {}
        while True:
            self._spaces()
            if self._at >= len(self._text):
                raise cannot_parse(f'Unclosed start tag "{tag}" at byte offset {self._offset(begin)}')
            if self._text[self._at] == ">":
                self._at += 1
                return attributes
            name = self._until(_SPACE + "=>").lower()
            if not name:
                raise cannot_parse(f'Empty attribute name in the tag "{tag}" at byte offset {self._offset(begin)}')
            self._spaces()
            if not self._text.startswith("=", self._at):
                attributes[name] = ""
                continue
            self._at += 1
            self._spaces()
            attributes[name] = self._value(tag, begin)

    def _value(self, tag: str, begin: int) -> str:
        if self._at >= len(self._text):
            raise cannot_parse(f'Unclosed start tag "{tag}" at byte offset {self._offset(begin)}')
        quote = self._text[self._at]
        if quote in "\"'":
            end = self._text.find(quote, self._at + 1)
            if end < 0:
                raise cannot_parse(f"Unclosed start tag at byte offset {self._offset(begin)}")
            raw = self._text[self._at + 1 : end]
            self._at = end + 1
            return _REFERENCE.sub(_decoded, raw)
        value = _PLAIN_VALUE.match(self._text, self._at)
        end = value.end() if value else self._at
        if value is None or (end < len(self._text) and self._text[end] not in _SPACE + ">") or end >= len(self._text):
            raise cannot_parse(f"Unexpected end of name token at byte offset {self._offset(self._at)}")
        self._at = end
        return value[0]

    def _argument(self, tag: str, attributes: dict[str, str], begin: int) -> str:
        if tag == "span" and attributes.get("class") != "tg-spoiler":
            raise cannot_parse(f'Tag "span" must have class "tg-spoiler" at byte offset {self._offset(begin)}')
        if tag == "tg-emoji":
            if not re.fullmatch(r"[1-9][0-9]*", attributes.get("emoji-id", "")):
                raise cannot_parse("Invalid custom emoji identifier specified")
            return attributes["emoji-id"]
        if tag == "code" and attributes.get("class", "").startswith("language-"):
            return attributes["class"].removeprefix("language-")
        if tag == "blockquote":
            return "expandable" if "expandable" in attributes else ""
        return attributes.get("href", "") if tag == "a" else ""

    def _close(self) -> None:
        begin = self._at
        if not self._open:
            raise cannot_parse(f"Unexpected end tag at byte offset {self._offset(begin)}")
        self._at += 2
        tag = self._until(_SPACE + ">").lower()
        self._spaces()
        if not self._text.startswith(">", self._at):
            raise cannot_parse(f"Unclosed end tag at byte offset {self._offset(begin)}")
        self._at += 1
        opened = self._open.pop()
        if tag and tag != opened.tag:
            raise cannot_parse(
                f'Unmatched end tag at byte offset {self._offset(begin)}, expected "</{opened.tag}>", found "</{tag}>"'
            )
        if entity := self._entity(opened):
            self._entities.append(entity)

    def _entity(self, opened: _Open) -> Entity | None:
        length = self._units - opened.at
        kind = _STYLES[opened.tag]
        more: tuple[tuple[str, str], ...] = ()
        if length == 0:
            return None
        if kind == "text_link":
            found = linked(opened.argument or "".join(self._out[opened.index :]))
            if found is None:
                return None
            kind, more = found
        elif kind == "custom_emoji":
            more = (("custom_emoji_id", opened.argument),)
        elif kind == "blockquote" and opened.argument:
            kind = "expandable_blockquote"
        elif kind == "code" and opened.argument:
            more = (("language", opened.argument),)
        return Entity(kind, opened.at, length, more)


def _decoded(reference: re.Match[str]) -> str:
    if reference["name"]:
        return _NAMED[reference["name"].lower()]
    code = int(reference["hex"], 16) if reference["hex"] else int(reference["number"])
    if 0xD800 <= code <= 0xDFFF:
        raise cannot_parse(
            "Text contains invalid Unicode characters after decoding HTML entities, check for unmatched surrogate code "
            "units"
        )
    return chr(code) if 0 < code <= 0x10FFFF else reference[0]


def _joined(entities: list[Entity]) -> tuple[Entity, ...]:
    """`pre` and a `code` with a language over exactly the same text are one `pre` with that language."""
    languages = {(one.offset, one.length): one.more for one in entities if one.type == "code" and one.more}
    joined = []
    for one in entities:
        span = (one.offset, one.length)
        if one.type == "pre" and span in languages:
            joined.append(Entity("pre", *span, languages[span]))
        elif one.type == "code" and one.more:
            if not any(other.type == "pre" and (other.offset, other.length) == span for other in entities):
                joined.append(Entity("code", *span))
        else:
            joined.append(one)
    return tuple(joined)
