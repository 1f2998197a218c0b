"""What a message of Telegram consists of: its text and entities, and what is attached.

Media are read to `Attachment`s whose `ref` is Telegram's file id; nothing is downloaded here. What is no file (a place,
a contact, a poll) becomes a line of text. A service message has no content, and `read` says None.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from gateway.platforms.base import Attachment, MessageType

Json = Mapping[str, Any]

DOWNLOAD_BYTES = 20 * 1024 * 1024
"""The most that Telegram's own servers hand out of a file."""

_LARGEST = 1 << 53  # Telegram promises that its ids stay below

_FILES: tuple[tuple[str, MessageType, str], ...] = (
    ("voice", MessageType.VOICE, "audio/ogg"),
    ("audio", MessageType.AUDIO, "audio/mpeg"),
    ("video", MessageType.VIDEO, "video/mp4"),
    ("video_note", MessageType.VIDEO, "video/mp4"),
    ("animation", MessageType.VIDEO, "video/mp4"),  # comes with a document of the same file
    ("document", MessageType.DOCUMENT, "application/octet-stream"),
)
_ENDINGS = {"audio/ogg": ".ogg", "audio/mpeg": ".mp3", "video/mp4": ".mp4"}


class Malformed(ValueError):
    """An update that makes no sense: a field is missing, or of another type than Telegram says."""


class Entity(NamedTuple):
    kind: str
    offset: int
    """In characters, as Python counts them."""
    text: str
    user_id: int | None = None


class Content(NamedTuple):
    text: str
    kind: MessageType = MessageType.TEXT
    entities: tuple[Entity, ...] = ()
    attachments: tuple[Attachment, ...] = ()


def read(message: Json) -> Content | None:
    """The content of a message; None when there is nothing a person said."""
    if (written := maybe_text(message, "text")) is not None:
        return Content(written, MessageType.TEXT, _entities(message, "entities", written))
    caption = maybe_text(message, "caption") or ""
    entities = _entities(message, "caption_entities", caption)
    if (photo := _photo(message)) is not None:
        return Content(caption, MessageType.PHOTO, entities, (photo,))
    for name, kind, mime in _FILES:
        if (file := maybe_object(message, name)) is not None:
            return Content(caption, kind, entities, (_attachment(file, name, kind, mime),))
    if (sticker := maybe_object(message, "sticker")) is not None:
        return _sticker(sticker)
    line = _place(message) or _other(message)
    if line is None:
        return None
    is_place = "location" in message or "venue" in message
    return Content(line, MessageType.LOCATION if is_place else MessageType.TEXT)


def _photo(message: Json) -> Attachment | None:
    """The largest size that can be downloaded."""
    sizes = message.get("photo")
    if not isinstance(sizes, list) or not sizes:
        return None
    found = [size for size in sizes if isinstance(size, Mapping)]
    fitting = [size for size in found if (maybe_whole(size, "file_size") or 0) <= DOWNLOAD_BYTES] or found
    if not fitting:
        raise Malformed("photo has no sizes")
    best = max(fitting, key=lambda size: (maybe_whole(size, "width") or 0) * (maybe_whole(size, "height") or 0))
    return Attachment(
        ref=text(best, "file_id"),
        kind=MessageType.PHOTO,
        name="photo.jpg",
        mime="image/jpeg",
        size=maybe_whole(best, "file_size"),
    )


def _attachment(file: Json, name: str, kind: MessageType, mime: str) -> Attachment:
    said = maybe_text(file, "mime_type") or mime
    return Attachment(
        ref=text(file, "file_id"),
        kind=kind,
        name=maybe_text(file, "file_name") or f"{name}{_ENDINGS.get(said, '')}",
        mime=said,
        size=maybe_whole(file, "file_size"),
    )


def _sticker(sticker: Json) -> Content:
    emoji = maybe_text(sticker, "emoji") or ""
    line = f"[sticker {emoji}]" if emoji else "[sticker]"
    moves = sticker.get("is_animated") is True or sticker.get("is_video") is True
    if moves:
        return Content(line, MessageType.STICKER)
    file = Attachment(
        ref=text(sticker, "file_id"),
        kind=MessageType.STICKER,
        name="sticker.webp",
        mime="image/webp",
        size=maybe_whole(sticker, "file_size"),
    )
    return Content(line, MessageType.STICKER, (), (file,))


def _place(message: Json) -> str | None:
    venue = maybe_object(message, "venue")
    place = maybe_object(venue or message, "location")
    if place is None:
        return None
    latitude, longitude = place.get("latitude"), place.get("longitude")
    if not isinstance(latitude, int | float) or not isinstance(longitude, int | float):
        raise Malformed("location has no coordinates")
    name = ", ".join(filter(None, (maybe_text(venue or {}, "title"), maybe_text(venue or {}, "address"))))
    return f"[location: {latitude:.6f}, {longitude:.6f}{f' ({name})' if name else ''}]"


def _other(message: Json) -> str | None:
    if (contact := maybe_object(message, "contact")) is not None:
        name = " ".join(filter(None, (maybe_text(contact, "first_name"), maybe_text(contact, "last_name"))))
        return f"[contact: {name}, {maybe_text(contact, 'phone_number') or 'no number'}]"
    if (poll := maybe_object(message, "poll")) is not None:
        return f"[poll: {maybe_text(poll, 'question') or ''}]"
    if (dice := maybe_object(message, "dice")) is not None:
        return f"[{maybe_text(dice, 'emoji') or 'dice'}: {maybe_whole(dice, 'value')}]"
    return None


def _entities(message: Json, name: str, written: str) -> tuple[Entity, ...]:
    """Entities in characters; Telegram counts UTF-16 units. One that does not fit the text is left out."""
    given = message.get(name)
    if given is None:
        return ()
    if not isinstance(given, list):
        raise Malformed(f"{name} is no list")
    coded = written.encode("utf-16-le", "surrogatepass")
    found = []
    for entity in given:
        if not isinstance(entity, Mapping):
            raise Malformed(f"{name} holds something else than objects")
        offset, length = whole(entity, "offset"), whole(entity, "length")
        if offset < 0 or length <= 0 or (offset + length) * 2 > len(coded):
            continue
        before = coded[: offset * 2].decode("utf-16-le", "replace")
        inside = coded[offset * 2 : (offset + length) * 2].decode("utf-16-le", "replace")
        user = maybe_object(entity, "user")
        found.append(Entity(text(entity, "type"), len(before), inside, maybe_whole(user or {}, "id")))
    return tuple(found)


# -- fields ------------------------------------------------------------------------------------------------------------


def maybe_object(data: Json, name: str) -> Json | None:
    value = data.get(name)
    if value is not None and not isinstance(value, Mapping):
        raise Malformed(f"{name} is no object")
    return value


def needed_object(data: Json, name: str) -> Json:
    value = maybe_object(data, name)
    if value is None:
        raise Malformed(f"{name} is missing")
    return value


def maybe_text(data: Json, name: str) -> str | None:
    value = data.get(name)
    if value is not None and not isinstance(value, str):
        raise Malformed(f"{name} is no text")
    return value


def text(data: Json, name: str) -> str:
    value = maybe_text(data, name)
    if not value:
        raise Malformed(f"{name} is missing")
    return value


def maybe_whole(data: Json, name: str) -> int | None:
    value = data.get(name)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or abs(value) >= _LARGEST):
        raise Malformed(f"{name} is no whole number")
    return value


def whole(data: Json, name: str) -> int:
    value = maybe_whole(data, name)
    if value is None:
        raise Malformed(f"{name} is missing")
    return value
