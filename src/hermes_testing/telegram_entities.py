"""Text as Telegram keeps it: characters, and entities that count UTF-16 units.

`formatted` takes a text with its `parse_mode` or `entities` and gives what is stored and sent back: parsed, trimmed,
with the entities Telegram finds on its own (commands, mentions, links). Errors carry Telegram's words.

Limits: of the entities found on their own only commands, mentions, hashtags, links and mail addresses are known,
links only with `http(s)://`. Overlapping entities are cut at code and pre, as Telegram does, and otherwise left
alone.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from hermes_testing.telegram_answers import Json, bad_request

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
class Entity:
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
    entities: tuple[Entity, ...] = ()

    def json(self) -> list[Json]:
        return [entity.json() for entity in self.entities]


def units(text: str) -> int:
    """Length as Telegram counts it: UTF-16 code units."""
    return len(text) + sum(character > "\uffff" for character in text)


def byte_offset(text: str, place: int) -> int:
    return len(text[:place].encode("utf-8", "surrogatepass"))


def cannot_parse(words: str) -> Exception:
    return bad_request(f"can't parse entities: {words}")


def formatted(text: str, parse_mode: str = "", entities: str = "") -> Formatted:
    """What Telegram makes of a text. `entities` is the parameter of that name: JSON, and ignored beside a mode."""
    parsed = _parsed(text, parse_mode, entities)
    return _trimmed(Formatted(parsed.text, settled((*parsed.entities, *_found(parsed)))))


def _parsed(text: str, parse_mode: str, entities: str) -> Formatted:
    # Here because the parsers stand on this module.
    from hermes_testing import telegram_html, telegram_markdown

    match parse_mode.lower():
        case "html":
            return telegram_html.parse(text)
        case "markdownv2":
            return telegram_markdown.parse(text)
        case "markdown":
            return telegram_markdown.parse_legacy(text)
        case "":
            return Formatted(text, _given(text, entities) if entities else ())
    raise bad_request("unsupported parse_mode")


def _given(text: str, raw: str) -> tuple[Entity, ...]:
    try:
        listed = json.loads(raw)
    except ValueError as error:
        raise bad_request(f"can't parse entities JSON object: {error}") from None
    if not isinstance(listed, list):
        raise bad_request("object expected as a message entity array")
    given = []
    for one in listed:
        if (
            not isinstance(one, dict)
            or not isinstance(one.get("offset"), int)
            or not isinstance(one.get("length"), int)
        ):
            raise bad_request('can\'t parse MessageEntity: Field "offset" must be of type Number')
        kind = str(one.get("type", ""))
        if kind not in _ORDER and kind not in ("url", "email", *_FOUND.groupindex):
            raise bad_request("can't parse MessageEntity: Unsupported type specified")
        if one["offset"] < 0 or one["length"] <= 0 or one["offset"] + one["length"] > units(text):
            raise bad_request(f"entity beginning at UTF-16 offset {one['offset']} ends after the end of the text")
        if kind in _ORDER:  # what Telegram finds on its own it does not take from the sender
            more = tuple((name, one[name]) for name in ("url", "language", "user", "custom_emoji_id") if name in one)
            given.append(Entity(kind, one["offset"], one["length"], more))
    return tuple(given)


def _found(parsed: Formatted) -> list[Entity]:
    """What Telegram marks on its own, outside of code and of links."""
    closed = [entity for entity in parsed.entities if entity.type in (*_SOLID, "text_link", "text_mention")]
    found = []
    for match in _FOUND.finditer(parsed.text):
        kind = str(match.lastgroup)
        entity = Entity(kind, units(parsed.text[: match.start(kind)]), units(match[kind]))
        if not any(entity.offset < other.end and other.offset < entity.end for other in closed):
            found.append(entity)
    return found


def settled(entities: tuple[Entity, ...]) -> tuple[Entity, ...]:
    """Sorted, without empty ones, and with nothing laid over code and pre."""
    solid = [entity for entity in entities if entity.type in _SOLID]
    kept = list(solid)
    for entity in entities:
        if entity.type in _SOLID:
            continue
        kept += [entity] if entity.type in _QUOTES else _beside(entity, solid)
    present = [entity for entity in kept if entity.length > 0]
    return tuple(sorted(present, key=lambda one: (one.offset, -one.length, _ORDER.get(one.type, 50))))


def _beside(entity: Entity, solid: list[Entity]) -> list[Entity]:
    """The parts of it that lie outside of code and pre."""
    parts = [(entity.offset, entity.end)]
    for block in solid:
        cut = []
        for start, end in parts:
            if block.end <= start or end <= block.offset:
                cut.append((start, end))
                continue
            cut += [(start, min(end, block.offset)), (max(start, block.end), end)]
        parts = [(start, end) for start, end in cut if start < end]
    return [Entity(entity.type, start, end - start, entity.more) for start, end in parts]


def _trimmed(whole: Formatted) -> Formatted:
    """Without white space around it, as it is shown."""
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
            moved.append(Entity(entity.type, start, stop - start, entity.more))
    return Formatted(text, tuple(moved))


def _without_returns(entity: Entity, text: str) -> Entity:
    raw = text.encode("utf-16-le", "surrogatepass")
    before = raw[: entity.offset * 2].decode("utf-16-le", "surrogatepass").count("\r")
    inside = raw[entity.offset * 2 : entity.end * 2].decode("utf-16-le", "surrogatepass").count("\r")
    return Entity(entity.type, entity.offset - before, entity.length - inside, entity.more)


def linked(url: str) -> tuple[str, tuple[tuple[str, str], ...]] | None:
    """The entity type and fields for a link's address; None when Telegram would leave the link out."""
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
