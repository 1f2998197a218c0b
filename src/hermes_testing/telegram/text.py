"""Text as Telegram keeps it: characters, and entities that count UTF-16 units.

`formatted` takes a text with its `parse_mode` and gives what is stored and sent back: parsed, trimmed, with the
entities that Telegram finds on its own. Errors carry Telegram's words.

Limits: only the HTML that Hermes sends is parsed: its tags, attributes in double quotes, numeric references and
`lt gt amp quot`. Both kinds of Markdown are refused. Of the entities found on their own only commands, mentions,
hashtags, mail addresses and links with `http(s)://` are known. Telegram also cuts formats at code; Hermes nests none.
"""

from __future__ import annotations

import html
import re
from dataclasses import dataclass

from hermes_testing.telegram.answers import Json, bad_request

_FOUND = re.compile(
    r"(?P<url>https?://[^\s<>\"]+[^\s<>\".,;:!?)\]}'])"
    r"|(?P<email>[\w.+-]+@[\w-]+\.[\w.-]*\w)"
    r"|(?<![\w/])(?P<bot_command>/[A-Za-z0-9_]{1,64}(?:@\w{3,32})?)(?![\w/])"
    r"|(?<!\w)(?P<mention>@[A-Za-z]\w{3,31})\b"
    r"|(?<!\w)(?P<hashtag>#\w*[^\W\d]\w*)",
)
_KINDS = {
    "blockquote": "blockquote", "pre": "pre", "code": "code", "a": "text_link", "b": "bold", "strong": "bold",
    "i": "italic", "em": "italic", "u": "underline", "s": "strikethrough",
}  # fmt: skip
"""The entity of each tag. Of entities that begin and end together, Telegram names the earlier one here first."""
_ORDER = list(_KINDS.values())
_CLOSED = ("pre", "code", "text_link")
"""Inside these Telegram finds nothing on its own."""
_TOKEN = re.compile(r"<(?P<end>/?)(?P<tag>[^\s<>/]+)(?P<attributes>[^<>]*)>|(?P<words>[^<]+)|<")
_ATTRIBUTE = re.compile(r'([\w-]+)="([^"]*)"')
_REFERENCE = re.compile(r"&(?:lt|gt|amp|quot|#\d{1,7}|#x[0-9a-f]{1,6});", re.IGNORECASE)
_DOMAIN = re.compile(r"(?P<scheme>https?://)?(?P<domain>(?:[\w-]+\.)+[^\W\d]{2,}(?::\d+)?)(?P<rest>[/?#]\S*)?", re.I)


@dataclass(frozen=True, slots=True)
class TextEntity:
    """`offset` and `length` in UTF-16 units; `more` is what its type needs (url, language)."""

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


def cannot_parse(words: str) -> Exception:
    return bad_request(f"can't parse entities: {words}")


def formatted(text: str, parse_mode: str = "") -> Formatted:
    """Return a text as Telegram stores it."""
    match parse_mode.lower():
        case "html":
            parsed = _parsed(text.replace("\r", ""))
        case "markdownv2" | "markdown":
            raise bad_request("this fake parses HTML only, because that is what Hermes sends")
        case "":
            parsed = Formatted(text.replace("\r", ""))
        case _:
            raise bad_request("unsupported parse_mode")
    entities = sorted([*parsed.entities, *_found(parsed)], key=_place)
    return _trimmed(Formatted(parsed.text, tuple(entities)))


def _place(entity: TextEntity) -> tuple[int, int, int]:
    return entity.offset, -entity.length, _ORDER.index(entity.type) if entity.type in _ORDER else 0


def _parsed(text: str) -> Formatted:
    """Read HTML. Raises a refusal for anything that Telegram would not take."""
    written = ""
    opened: list[tuple[str, dict[str, str], int]] = []
    entities: list[TextEntity] = []
    for token in _TOKEN.finditer(text):
        where = f"at byte offset {len(text[: token.start()].encode('utf-8', 'surrogatepass'))}"
        if token["words"]:
            written += _REFERENCE.sub(lambda found: html.unescape(found[0]), token["words"])
            continue
        if token["tag"] is None:
            raise cannot_parse(f"Unclosed start tag {where}")
        tag = token["tag"].lower()
        if not token["end"]:
            if tag not in _KINDS:
                raise cannot_parse(f'Unsupported start tag "{tag}" {where}')
            opened.append((tag, dict(_ATTRIBUTE.findall(html.unescape(token["attributes"]))), units(written)))
            continue
        if not opened:
            raise cannot_parse(f"Unexpected end tag {where}")
        expected, attributes, start = opened.pop()
        if tag != expected:
            raise cannot_parse(f'Unmatched end tag {where}, expected "</{expected}>", found "</{tag}>"')
        _add(entities, tag, attributes, start, units(written) - start)
    if opened:
        raise cannot_parse(f'Can\'t find end tag corresponding to start tag "{opened[-1][0]}"')
    return Formatted(written, tuple(entities))


def _add(entities: list[TextEntity], tag: str, attributes: dict[str, str], start: int, length: int) -> None:
    """Add the entity of a closed tag, if Telegram would keep one."""
    kind, last = _KINDS[tag], entities[-1] if entities else None
    more: tuple[tuple[str, str], ...] = ()
    if length == 0:
        return
    if tag == "a":
        address = linked(attributes.get("href", ""))
        if address is None:
            return
        more = (("url", address),)
    elif tag == "code" and attributes.get("class", "").startswith("language-"):
        more = (("language", attributes["class"].removeprefix("language-")),)
    elif tag == "pre" and last is not None and last.more and (last.offset, last.length) == (start, length):
        more = entities.pop().more  # a `pre` and a `code` with a language over the same text are one
    entities.append(TextEntity(kind, start, length, more))


def linked(address: str) -> str | None:
    """Return a link's address as Telegram writes it; None when it would drop the link."""
    if address.lower().startswith("tg://"):
        return address
    found = _DOMAIN.fullmatch(address.strip())
    if found is None:
        return None
    rest = found["rest"] or "/"
    return f"{(found['scheme'] or 'http://').lower()}{found['domain']}{rest if rest.startswith('/') else f'/{rest}'}"


def _found(parsed: Formatted) -> list[TextEntity]:
    """Return the entities that Telegram finds itself."""
    closed = [entity for entity in parsed.entities if entity.type in _CLOSED]
    found = []
    for match in _FOUND.finditer(parsed.text):
        kind = str(match.lastgroup)
        entity = TextEntity(kind, units(parsed.text[: match.start(kind)]), units(match[kind]))
        if not any(entity.offset < other.end and other.offset < entity.end for other in closed):
            found.append(entity)
    return found


def _trimmed(whole: Formatted) -> Formatted:
    """Remove white space at both ends."""
    shift = units(whole.text) - units(whole.text.lstrip())
    text = whole.text.strip()
    end = units(text)
    moved = []
    for entity in whole.entities:
        start, stop = max(entity.offset - shift, 0), min(entity.end - shift, end)
        if start < stop:
            moved.append(TextEntity(entity.type, start, stop - start, entity.more))
    return Formatted(text, tuple(moved))
