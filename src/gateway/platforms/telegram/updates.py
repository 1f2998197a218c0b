"""Converts Telegram's updates (JSON) into `MessageEvent`s.

Pure, and without Telegram's library: an update is read field by field with its type checked, so one that makes no
sense is a `Malformed` with the reason and costs nothing but itself. Ids are numbers there and texts here. Names, texts
and file names stay as they came, line breaks and all; whoever shows them cleans them.

In a group we listen when we are named, replied to, or given a command with our name. Channel posts, service messages
and people who write as a channel or as the group itself (they have no stable id) get no answer. Nor do edits of a live
location: Telegram itself makes one every few seconds while somebody shares it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from gateway.platforms.base import FORWARDED, Answer, Attachment, MessageEvent, MessageType

if TYPE_CHECKING:
    from gateway.session import SessionSource


ALLOWED = ("message", "edited_message", "callback_query", "my_chat_member")
"""The kinds of update we ask for."""

MakeSource = Callable[..., "SessionSource"]
ReadAnswer = Callable[[str, str], Answer | None]
"""(chat id, callback data) → the answer it stands for, None when it is not ours."""


@dataclass(frozen=True, slots=True)
class Me:
    """The bot's identity on Telegram."""

    id: int
    username: str
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingContext:
    """The facts that are needed to read an update."""

    me: Me
    source: MakeSource
    answer: ReadAnswer
    require_mention: bool = True


def update_id(update: object) -> int:
    if not isinstance(update, Mapping):
        raise Malformed("the update is no object")
    return whole(update, "update_id")


def chat_of(update: Json) -> object:
    """What tells the chat of an update, as far as it can be told: updates of one chat are taken in order."""
    query = update.get("callback_query")
    holder = query if isinstance(query, Mapping) else update
    message = next((holder[kind] for kind in ("message", "edited_message", "my_chat_member") if kind in holder), None)
    chat = message.get("chat") if isinstance(message, Mapping) else None
    number = chat.get("id") if isinstance(chat, Mapping) else None
    return number if isinstance(number, int) else None


def read(update: Json, context: ReadingContext) -> MessageEvent | None:
    """The message or pressed button in an update; None when it is not for us. Raises `Malformed`."""
    if (query := maybe_object(update, "callback_query")) is not None:
        return _pressed(query, context)
    if (message := maybe_object(update, "message")) is not None:
        return _message(message, context, version=0)
    message = maybe_object(update, "edited_message")
    if message is None or "location" in message:
        return None
    return _message(message, context, version=_version(whole(message, "edit_date"), update_id(update)))


def open_again(update: Json) -> str | None:
    """The chat in which we may write again: we were unblocked, let back in, are no longer muted, or a topic is open."""
    message = maybe_object(update, "message")
    if message is not None and "forum_topic_reopened" in message:
        return str(whole(needed_object(message, "chat"), "id"))
    if (change := maybe_object(update, "my_chat_member")) is None:
        return None
    was, now = (_may_write(needed_object(change, side)) for side in ("old_chat_member", "new_chat_member"))
    return str(whole(needed_object(change, "chat"), "id")) if now and not was else None


def moved(update: Json) -> tuple[str, str] | None:
    """The old and the new id of a group that became a supergroup. Telegram says it in both chats, in no order."""
    if (message := maybe_object(update, "message")) is None:
        return None
    chat = whole(needed_object(message, "chat"), "id")
    old, new = maybe_whole(message, "migrate_from_chat_id"), maybe_whole(message, "migrate_to_chat_id")
    if old is None and new is None:
        return None
    return (str(old), str(chat)) if old is not None else (str(chat), str(new))


def _may_write(member: Json) -> bool:
    status = text(member, "status")
    if status == "restricted":
        return member.get("is_member") is True and member.get("can_send_messages") is True
    return status in ("member", "administrator", "creator")


def _version(edited: int, update: int) -> int:
    """Two edits may fall into one second; the number of the update orders them, and stays when it comes again."""
    return (edited & 0xFFFF_FFFF) << 31 | update & 0x7FFF_FFFF


def _message(message: Json, context: ReadingContext, *, version: int) -> MessageEvent | None:
    chat = needed_object(message, "chat")
    kind = text(chat, "type")
    sender = maybe_object(message, "from")
    if kind not in ("private", "group", "supergroup") or sender is None or "sender_chat" in message:
        return None
    found = read_content(message)
    if found is None:
        return None
    addressed = _names_us(found, context.me) or _replies_to_us(message, context.me)
    if kind != "private" and context.require_mention and not addressed:
        return None
    event = MessageEvent(
        text=_without_our_name(found, context.me) if kind != "private" else found.text,
        source=_source(message, chat, sender, context),
        message_type=found.kind,
        message_id=str(whole(message, "message_id")),
        attachments=found.attachments,
        version=version,
        album=maybe_text(message, "media_group_id"),
        mentions_us=addressed,
        timestamp=_moment(whole(message, "date")),
        raw_message=message,
    )
    _quote(event, message, context.me)
    _forwarded(event, message)
    if event.message_type is MessageType.TEXT and event.is_command():
        event.message_type = MessageType.COMMAND
    return event


def _pressed(query: Json, context: ReadingContext) -> MessageEvent | None:
    """A pressed button. Who pressed is the sender; a button that is not ours starts nothing."""
    message = maybe_object(query, "message")
    data = maybe_text(query, "data")
    if message is None or data is None:
        return None
    chat, sender = needed_object(message, "chat"), needed_object(query, "from")
    answer = context.answer(str(whole(chat, "id")), data)
    if answer is None:
        return None
    return MessageEvent(
        text="",
        source=_source(message, chat, sender, context),
        message_id=f"press:{text(query, 'id')}",
        reply_to_message_id=str(whole(message, "message_id")),
        reply_to_is_own_message=True,
        mentions_us=True,
        answer=answer,
        raw_message=query,
    )


def _source(message: Json, chat: Json, sender: Json, context: ReadingContext) -> SessionSource:
    is_private = chat.get("type") == "private"
    name = _name(sender)
    # Replies in an ordinary group have a thread number, too; only in a topic is it a place of its own.
    in_topic = message.get("is_topic_message") is True
    return context.source(
        str(whole(chat, "id")),
        chat_name=name if is_private else maybe_text(chat, "title"),
        chat_type="dm" if is_private else "group",
        user_id=str(whole(sender, "id")),
        user_name=name,
        thread_id=str(whole(message, "message_thread_id")) if in_topic else None,
        is_bot=sender.get("is_bot") is True,
        message_id=str(whole(message, "message_id")),
    )


# -- is it for us ------------------------------------------------------------------------------------------------------


def _names_us(found: Content, me: Me) -> bool:
    return any(_is_our_name(entity, me) for entity in found.entities)


def _is_our_name(entity: MessageEntity, me: Me) -> bool:
    ours = f"@{me.username}".lower()
    match entity.kind:
        case "mention":
            return entity.text.lower() == ours
        case "text_mention":
            return entity.user_id == me.id
        case "bot_command":
            return entity.text.lower().endswith(ours)
    return False


def _replies_to_us(message: Json, me: Me) -> bool:
    replied = maybe_object(message, "reply_to_message")
    if replied is None or "forum_topic_created" in replied:
        return False  # every message of a topic "replies" to the one that opened it
    author = maybe_object(replied, "from")
    return author is not None and author.get("id") == me.id


def _without_our_name(found: Content, me: Me) -> str:
    """`@hermes_bot what is up` is `what is up`: to name us at the beginning is how one calls us."""
    for entity in found.entities:
        if entity.offset == 0 and entity.kind in ("mention", "text_mention") and _is_our_name(entity, me):
            return found.text[len(entity.text) :].lstrip(" ,:\n") or found.text
    return found.text


# -- what it refers to -------------------------------------------------------------------------------------------------


def _quote(event: MessageEvent, message: Json, me: Me) -> None:
    """What the message replies to: the words that were marked, else the whole of it."""
    replied = maybe_object(message, "reply_to_message")
    quote = maybe_object(message, "quote")
    if replied is None or "forum_topic_created" in replied:
        if quote is not None:
            event.reply_to_text = maybe_text(quote, "text")
        return
    author = maybe_object(replied, "from")
    event.reply_to_message_id = str(whole(replied, "message_id"))
    event.reply_to_text = (
        maybe_text(quote or {}, "text") or maybe_text(replied, "text") or maybe_text(replied, "caption")
    )
    if author is not None:
        event.reply_to_author_id = str(whole(author, "id"))
        event.reply_to_author_name = _name(author)
        event.reply_to_is_own_message = author.get("id") == me.id


def _forwarded(event: MessageEvent, message: Json) -> None:
    """Somebody else's words: said so in the text, which also keeps a forwarded `/stop` from being a command."""
    origin = maybe_object(message, "forward_origin")
    if origin is None:
        return
    author = maybe_object(origin, "sender_user")
    place = maybe_object(origin, "sender_chat") or maybe_object(origin, "chat")
    name = (
        (_name(author) if author is not None else None)
        or maybe_text(origin, "sender_user_name")
        or maybe_text(place or {}, "title")
        or "somebody"
    )
    shown = "".join(mark if mark.isprintable() else " " for mark in name if mark not in "[]()")
    event.text = f"{FORWARDED}{' '.join(shown.split()) or 'somebody'}]\n{event.text}"


def _name(user: Json) -> str | None:
    parts = [maybe_text(user, "first_name"), maybe_text(user, "last_name")]
    return " ".join(part for part in parts if part) or maybe_text(user, "username")


def _moment(seconds: int) -> datetime:
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        raise Malformed("date is no moment") from None


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
_ENDINGS = {
    "audio/ogg": ".ogg", "audio/mpeg": ".mp3", "video/mp4": ".mp4", "image/jpeg": ".jpg", "image/webp": ".webp",
}  # fmt: skip


class Malformed(ValueError):
    """An update that makes no sense: a field is missing, or of another type than Telegram says."""


class MessageEntity(NamedTuple):
    kind: str
    offset: int
    """In characters, as Python counts them."""
    text: str
    user_id: int | None = None


class Content(NamedTuple):
    text: str
    kind: MessageType = MessageType.TEXT
    entities: tuple[MessageEntity, ...] = ()
    attachments: tuple[Attachment, ...] = ()


def read_content(message: Json) -> Content | None:
    """What a message consists of: its text and entities, and what is attached; None for a service message.

    Media become `Attachment`s whose `ref` is Telegram's file id; nothing is downloaded here. What is no file (a place,
    a contact, a poll) becomes a line of text.
    """
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
    return _attachment(best, "photo", MessageType.PHOTO, "image/jpeg")


def _attachment(file: Json, name: str, kind: MessageType, mime: str) -> Attachment:
    said = maybe_text(file, "mime_type") or mime
    name = maybe_text(file, "file_name") or f"{name}{_ENDINGS.get(said, '')}"
    return Attachment(ref=text(file, "file_id"), kind=kind, name=name, mime=said, size=maybe_whole(file, "file_size"))


def _sticker(sticker: Json) -> Content:
    emoji = maybe_text(sticker, "emoji") or ""
    line = f"[sticker {emoji}]" if emoji else "[sticker]"
    moves = sticker.get("is_animated") is True or sticker.get("is_video") is True
    if moves:
        return Content(line, MessageType.STICKER)
    file = _attachment(sticker, "sticker", MessageType.STICKER, "image/webp")
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


def _entities(message: Json, name: str, written: str) -> tuple[MessageEntity, ...]:
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
        found.append(MessageEntity(text(entity, "type"), len(before), inside, maybe_whole(user or {}, "id")))
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
        raise Malformed(f"{name} is not a whole number")
    return value


def whole(data: Json, name: str) -> int:
    value = maybe_whole(data, name)
    if value is None:
        raise Malformed(f"{name} is missing")
    return value
