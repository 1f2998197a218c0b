"""From an update, as Telegram's JSON says it, to a `MessageEvent`.

Pure, and without Telegram's library: an update is read field by field with its type checked, so one that makes no
sense is a `Malformed` with the reason and costs nothing but itself. Ids are numbers there and texts here. Names, texts
and file names stay as they came, line breaks and all; whoever shows them cleans them.

In a group we listen when we are named, replied to, or given a command with our name. Channel posts, service messages
and people who write as a channel or as the group itself (they have no stable id) are not ours to answer. Nor are the
edits of a place: Telegram makes one every few seconds while somebody shares where they are, and no person does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from gateway.platforms.base import Answer, MessageEvent, MessageType
from gateway.platforms.telegram import contents
from gateway.platforms.telegram.contents import Json, Malformed, maybe_object, maybe_text, needed_object, text, whole

if TYPE_CHECKING:
    from gateway.session import SessionSource

ALLOWED = ("message", "edited_message", "callback_query")
"""The kinds of update we ask for."""

MakeSource = Callable[..., "SessionSource"]
ReadAnswer = Callable[[str, str], Answer | None]
"""(chat id, callback data) → the answer it stands for, None when it is not ours."""


@dataclass(frozen=True, slots=True)
class Me:
    """Who we are on Telegram."""

    id: int
    username: str
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ears:
    """What reading an update needs to know."""

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
    message = next((holder[kind] for kind in ("message", "edited_message") if kind in holder), None)
    chat = message.get("chat") if isinstance(message, Mapping) else None
    number = chat.get("id") if isinstance(chat, Mapping) else None
    return number if isinstance(number, int) else None


def read(update: Json, ears: Ears) -> MessageEvent | None:
    """The message or pressed button in an update; None when it is not for us. Raises `Malformed`."""
    number = update_id(update)
    if (query := maybe_object(update, "callback_query")) is not None:
        event = _pressed(query, ears)
    elif (message := maybe_object(update, "message")) is not None:
        event = _message(message, ears, version=0)
    elif (message := maybe_object(update, "edited_message")) is not None:
        version = _version(whole(message, "edit_date"), number)
        event = None if "location" in message else _message(message, ears, version=version)
    else:
        return None
    if event is not None:
        event.platform_update_id = number
    return event


def _version(edited: int, update: int) -> int:
    """Two edits may fall into one second; the number of the update orders them, and stays when it comes again."""
    return (edited & 0xFFFF_FFFF) << 31 | update & 0x7FFF_FFFF


def _message(message: Json, ears: Ears, *, version: int) -> MessageEvent | None:
    chat = needed_object(message, "chat")
    kind = text(chat, "type")
    sender = maybe_object(message, "from")
    if kind not in ("private", "group", "supergroup") or sender is None or "sender_chat" in message:
        return None
    found = contents.read(message)
    if found is None:
        return None
    addressed = _names_us(found, ears.me) or _replies_to_us(message, ears.me)
    if kind != "private" and ears.require_mention and not addressed:
        return None
    event = MessageEvent(
        text=_without_our_name(found, ears.me) if kind != "private" else found.text,
        source=_source(message, chat, sender, ears),
        message_type=found.kind,
        message_id=str(whole(message, "message_id")),
        attachments=found.attachments,
        version=version,
        album=maybe_text(message, "media_group_id"),
        mentions_us=addressed,
        timestamp=_moment(whole(message, "date")),
        raw_message=message,
    )
    _quote(event, message, ears.me)
    _forwarded(event, message)
    if event.message_type is MessageType.TEXT and event.is_command():
        event.message_type = MessageType.COMMAND
    return event


def _pressed(query: Json, ears: Ears) -> MessageEvent | None:
    """A pressed button. Who pressed is the sender; a button that is not ours starts nothing."""
    message = maybe_object(query, "message")
    data = maybe_text(query, "data")
    if message is None or data is None:
        return None
    chat, sender = needed_object(message, "chat"), needed_object(query, "from")
    answer = ears.answer(str(whole(chat, "id")), data)
    if answer is None:
        return None
    return MessageEvent(
        text="",
        source=_source(message, chat, sender, ears),
        message_id=f"press:{text(query, 'id')}",
        reply_to_message_id=str(whole(message, "message_id")),
        reply_to_is_own_message=True,
        mentions_us=True,
        answer=answer,
        raw_message=query,
    )


def _source(message: Json, chat: Json, sender: Json, ears: Ears) -> SessionSource:
    is_private = chat.get("type") == "private"
    name = _name(sender)
    # Replies in an ordinary group have a thread number, too; only in a topic is it a place of its own.
    in_topic = message.get("is_topic_message") is True
    return ears.source(
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


def _names_us(found: contents.Content, me: Me) -> bool:
    return any(_is_our_name(entity, me) for entity in found.entities)


def _is_our_name(entity: contents.Entity, me: Me) -> bool:
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


def _without_our_name(found: contents.Content, me: Me) -> str:
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
    event.text = f"[forwarded, written by {' '.join(shown.split()) or 'somebody'}]\n{event.text}"


def _name(user: Json) -> str | None:
    parts = [maybe_text(user, "first_name"), maybe_text(user, "last_name")]
    return " ".join(part for part in parts if part) or maybe_text(user, "username")


def _moment(seconds: int) -> datetime:
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        raise Malformed("date is no moment") from None
