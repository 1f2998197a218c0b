"""Text as Telegram keeps it: characters, and entities that count UTF-16 units.

`formatted` takes a text with its `parse_mode` and gives what is stored and sent back: parsed, trimmed, with the
entities Telegram finds on its own (commands, mentions, links). Errors carry Telegram's words.

Limits: only HTML is parsed, which is what Hermes sends; both kinds of Markdown are refused. Of the entities found on
their own only commands, mentions, hashtags, links and mail addresses are known, links only with `http(s)://`.
Overlapping entities are cut at code and pre, as Telegram does, and otherwise left alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from hermes_testing.telegram.answers import Json, bad_request

# Which comes first among entities that begin and end together; Telegram's own order.
_ORDER = {
    "blockquote": 0, "expandable_blockquote": 1, "pre": 11, "code": 20, "text_link": 49, "text_mention": 49,
    "bold": 90, "italic": 91, "underline": 92, "strikethrough": 93, "spoiler": 94, "custom_emoji": 99,
}  # fmt: skip
_FOUND = re.compile(
    r"(?P<url>https?://[^\s<>\"]+[^\s<>\".,;:!?)\]}'])"
    r"|(?P<email>[\w.+-]+@[\w-]+\.[\w.-]*\w)"
    r"|(?<![\w/])(?P<bot_command>/[A-Za-z0-9_]{1,64}(?:@\w{3,32})?)(?![\w/])"
    r"|(?<!\w)(?P<mention>@[A-Za-z]\w{3,31})\b"
    r"|(?<!\w)(?P<hashtag>#\w*[^\W\d]\w*)",
)
_SOLID = ("pre", "code")
_QUOTES = ("blockquote", "expandable_blockquote")
_DOMAIN = re.compile(r"(?:[\w-]+\.)+[^\W\d]{2,}(?::\d+)?(?P<rest>[/?#].*)?", re.DOTALL)
_LINK = re.compile(r"(?P<scheme>https?|ton|tonsite)://(?P<place>.+)", re.IGNORECASE | re.DOTALL)
_USER = re.compile(r"tg:(?://)?user\?id=(\d+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class TextEntity:
    """`offset` and `length` in UTF-16 units; `more` is what its type needs (url, language, user …)."""

    type: str
    offset: int
    length: int
    more: tuple[tuple[str, str], ...] = ()

    @property
    def end(self) -> int:
        return self.offset + self.length

    def json(self) -> Json:
        return {"type": self.type, "offset": self.offset, "length": self.length, **dict(self.more)}


@dataclass(frozen=True, slots=True)
class Formatted:
    text: str
    entities: tuple[TextEntity, ...] = ()

    def json(self) -> list[Json]:
        return [entity.json() for entity in self.entities]


def units(text: str) -> int:
    """Length as Telegram counts it: UTF-16 code units."""
    return len(text) + sum(character > "\uffff" for character in text)


def byte_offset(text: str, place: int) -> int:
    return len(text[:place].encode("utf-8", "surrogatepass"))


def cannot_parse(words: str) -> Exception:
    return bad_request(f"can't parse entities: {words}")


def formatted(text: str, parse_mode: str = "") -> Formatted:
    """Return a text as Telegram stores it."""
    parsed = _parsed(text, parse_mode)
    return _trimmed(Formatted(parsed.text, settled((*parsed.entities, *_found(parsed)))))


def _parsed(text: str, parse_mode: str) -> Formatted:
    match parse_mode.lower():
        case "html":
            return _HtmlParser(text).parsed()
        case "markdownv2" | "markdown":
            raise bad_request("this fake parses HTML only, because that is what Hermes sends")
        case "":
            return Formatted(text)
    raise bad_request("unsupported parse_mode")


def _found(parsed: Formatted) -> list[TextEntity]:
    """Return the entities that Telegram finds itself, outside code and links."""
    closed = [entity for entity in parsed.entities if entity.type in (*_SOLID, "text_link", "text_mention")]
    found = []
    for match in _FOUND.finditer(parsed.text):
        kind = str(match.lastgroup)
        entity = TextEntity(kind, units(parsed.text[: match.start(kind)]), units(match[kind]))
        if not any(entity.offset < other.end and other.offset < entity.end for other in closed):
            found.append(entity)
    return found


def settled(entities: tuple[TextEntity, ...]) -> tuple[TextEntity, ...]:
    """Sort entities, drop empty ones, and cut them at code and pre."""
    solid = [entity for entity in entities if entity.type in _SOLID]
    kept = list(solid)
    for entity in entities:
        if entity.type in _SOLID:
            continue
        kept += [entity] if entity.type in _QUOTES else _beside(entity, solid)
    present = [entity for entity in kept if entity.length > 0]
    return tuple(sorted(present, key=lambda one: (one.offset, -one.length, _ORDER.get(one.type, 50))))


def _beside(entity: TextEntity, solid: list[TextEntity]) -> list[TextEntity]:
    """Return the parts of an entity outside code and pre."""
    parts = [(entity.offset, entity.end)]
    for block in solid:
        cut = []
        for start, end in parts:
            if block.end <= start or end <= block.offset:
                cut.append((start, end))
                continue
            cut += [(start, min(end, block.offset)), (max(start, block.end), end)]
        parts = [(start, end) for start, end in cut if start < end]
    return [TextEntity(entity.type, start, end - start, entity.more) for start, end in parts]


def _trimmed(whole: Formatted) -> Formatted:
    """Remove white space at both ends."""
    text = whole.text.replace("\r", "")
    if text != whole.text:  # carriage returns are dropped; positions behind them move
        kept = [_without_returns(entity, whole.text) for entity in whole.entities]
        whole = Formatted(text, tuple(entity for entity in kept if entity.length > 0))
    shift = units(text) - units(text.lstrip())
    text = text.strip()
    end = units(text)
    moved = []
    for entity in whole.entities:
        start, stop = max(entity.offset - shift, 0), min(entity.end - shift, end)
        if start < stop:
            moved.append(TextEntity(entity.type, start, stop - start, entity.more))
    return Formatted(text, tuple(moved))


def _without_returns(entity: TextEntity, text: str) -> TextEntity:
    raw = text.encode("utf-16-le", "surrogatepass")
    before = raw[: entity.offset * 2].decode("utf-16-le", "surrogatepass").count("\r")
    inside = raw[entity.offset * 2 : entity.end * 2].decode("utf-16-le", "surrogatepass").count("\r")
    return TextEntity(entity.type, entity.offset - before, entity.length - inside, entity.more)


def linked(url: str) -> tuple[str, tuple[tuple[str, str], ...]] | None:
    """Return the entity type and fields for a link's address; None when Telegram would drop the link."""
    url = url.strip()
    if user := _USER.fullmatch(url):
        return "text_mention", (("user", user[1]),)
    scheme, place = "http", url
    if whole := _LINK.fullmatch(url):
        scheme, place = whole["scheme"].lower(), whole["place"]
    elif url.lower().startswith("tg://"):
        return "text_link", (("url", url),)
    domain = _DOMAIN.fullmatch(place)
    if domain is None or re.search(r"\s", place):
        return None
    rest = domain["rest"] or "/"
    address = place[: len(place) - len(domain["rest"] or "")] + (rest if rest.startswith("/") else f"/{rest}")
    return "text_link", (("url", f"{scheme}://{address}"),)


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
class _OpenTag:
    tag: str
    argument: str
    """A link's address, a language, an emoji's id, `expandable`."""
    at: int
    """Where its text begins, in UTF-16 units."""
    index: int
    """The same in characters."""


class _HtmlParser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._out: list[str] = []
        self._units = 0
        self._open: list[_OpenTag] = []
        self._entities: list[TextEntity] = []

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
        self._open.append(_OpenTag(tag, self._argument(tag, attributes, begin), self._units, len(self._out)))

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

    def _entity(self, opened: _OpenTag) -> TextEntity | None:
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
        return TextEntity(kind, opened.at, length, more)


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


def _joined(entities: list[TextEntity]) -> tuple[TextEntity, ...]:
    """`pre` and a `code` with a language over exactly the same text are one `pre` with that language."""
    languages = {(one.offset, one.length): one.more for one in entities if one.type == "code" and one.more}
    joined = []
    for one in entities:
        span = (one.offset, one.length)
        if one.type == "pre" and span in languages:
            joined.append(TextEntity("pre", *span, languages[span]))
        elif one.type == "code" and one.more:
            if not any(other.type == "pre" and (other.offset, other.length) == span for other in entities):
                joined.append(TextEntity("code", *span))
        else:
            joined.append(one)
    return tuple(joined)
