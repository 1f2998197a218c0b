"""Makes one user message for the model from stored messages.

In a group each message begins with a line that names its author and the author's stable id; a line in a text that looks
like one is escaped, so that nobody can pretend to be another author. Names are cleaned: no line breaks, no direction
marks. The person's text is stored as it is (`persist`); lines for the model are added around it.

Files are fetched here, after authorisation and for a turn that will run. Pictures become parts of the message, and a
voice message becomes its words; for all other files one line says what was sent. A file that cannot be fetched or heard
becomes a line, and the turn goes on.
"""

from __future__ import annotations

import asyncio
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gateway.inbound.stored_message import attachment_of
from gateway.inbound.terminal_messages import is_from_terminal
from gateway.outbound import notices
from gateway.platforms.base import BasePlatformAdapter, CannotFetch, MessageType
from gateway.turns import attachments
from hermes_agent.media.transcription import NotHeard, VoiceListener
from hermes_config.errors import HermesError
from hermes_state.conversations.origins import QUOTED

if TYPE_CHECKING:
    from gateway.routes.source import SessionSource
    from hermes_state.turns.inbox import InboxRow

_QUOTED = 500
_NAME = 64
_NAMED = re.compile(r"(\([a-z_0-9]+:[^\s)]+\))\]")
_QUOTED_END = r"\1\\]"
"""The end of a line that names an author; in a quote it is only quoted."""
_ESCAPED = r"\\"
_BREAK = r"\n\r\v\f\x1c-\x1e\x85\u2028\u2029"
# Whatever a reader may take for a line that names an author: after any line break, with marks or blanks before it, with
# other blanks or wide brackets in it. Each part is bounded or stops where the next begins, so no text makes it slow.
_FRAME = re.compile(
    rf"(?:^|(?<=[{_BREAK}]))(?=[^\w\[［{_BREAK}]*[\[［][^\]］{_BREAK}]*"
    r"[(（]\s{0,3}\w{1,40}\s{0,3}[:：]\s{0,3}[^\s()（）\]］]{1,128}\s{0,3}[)）]\s{0,3}[\]］])"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    content: str | list[Any]
    """For the model."""
    persist: str | None
    """The text that is stored for the person; None when it is the content itself."""
    heard: Sequence[tuple[InboxRow, str]] = ()
    """For the chat: what voice messages said, or why they were not heard."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSetting:
    """The chat and model that a message is prepared for."""

    shared: bool
    """Several people write in this conversation."""
    has_files: bool
    """The model may read files."""
    home: Path
    media: attachments.MediaLimits
    listener: VoiceListener | None = None
    """Who makes text of voice messages."""


async def prepare(
    rows: Sequence[InboxRow], setting: MessageSetting, *, adapter: BasePlatformAdapter | None, note: str = ""
) -> Prepared:
    """Make the user message of a turn from its rows. Only the model sees `note`."""
    texts, framed, pictures = [], [], []
    heard: list[tuple[InboxRow, str]] = []
    for row in rows:
        kept: Mapping[str, Any] = row.payload or {}
        text = str(kept.get("text") or "")
        files = [await _file(row, one, setting, adapter) for one in kept.get("attachments") or ()]
        lines = [_unframed(file.line, setting) for file in files]
        pictures += [file.picture for file in files if file.picture is not None]
        heard += [(row, file.heard) for file in files if file.heard]
        texts.append("\n".join(filter(None, (text, *lines))))
        framed.append("\n".join(filter(None, (*_before(row, kept, setting), _unframed(text, setting), *lines))))
    words, plain = "\n\n".join(filter(None, (note, *framed))), "\n\n".join(texts)
    persist = None if words == plain else plain
    if pictures:
        return Prepared(content=[{"type": "text", "text": words}, *pictures], persist=persist, heard=heard)
    return Prepared(content=words, persist=persist, heard=heard)


def again(content: str | list[Any], setting: MessageSetting, *, source: SessionSource) -> Prepared:
    """Repeat an earlier message (`/retry`), in a group under the name of the person who repeats it."""
    if not setting.shared:
        return Prepared(content=content, persist=None)
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    plain = "\n\n".join(str(part.get("text") or "") for part in parts if part.get("type") == "text")
    others = [part for part in parts if part.get("type") != "text"]
    who = _named(source.platform.value, source.user_name, source.user_id)
    words = f"[{who}]\n[asks once more what was said before:]\n{_unframed(plain, setting)}"
    return Prepared(content=[{"type": "text", "text": words}, *others] if others else words, persist=plain)


def added(row: InboxRow, *, shared: bool) -> str:
    """The text of a message for a running turn (steering)."""
    text = str((row.payload or {}).get("text") or "")
    return f"[{speaker(row)}]\n{_FRAME.sub(_ESCAPED, text)}" if shared and text.strip() else text


def clean_name(name: str | None) -> str:
    """A person's chosen name on one line, without brackets and control characters."""
    kept = "".join(
        mark if not unicodedata.category(mark).startswith("C") else " " for mark in (name or "") if mark not in "[]()"
    )
    return " ".join(kept.split())[:_NAME]


def speaker(row: InboxRow) -> str:
    """The author's name and platform id, such as `Ada (slack:U42)`."""
    source = (row.payload or {}).get("source") or {}
    return _named(row.platform, source.get("user_name"), source.get("user_id"))


def _named(platform: str, name: str | None, user_id: str | None) -> str:
    return f"{clean_name(name) or 'somebody'} ({platform}:{user_id or 'unknown'})"


def _before(row: InboxRow, kept: Mapping[str, Any], setting: MessageSetting) -> list[str]:
    lines = []
    if setting.shared:
        lines.append(f"[{speaker(row)}]")
    if row.version:
        lines.append("[This is a new version of a message that was edited.]")
    reply = kept.get("reply_to") or {}
    if quoted := " ".join(str(reply.get("text") or "").split()):
        author = clean_name(reply.get("author_name")) or "somebody"
        begins = "[In reply to your message" if reply.get("own") else f"{QUOTED}{author}"
        short = quoted if len(quoted) <= _QUOTED else f"{quoted[:_QUOTED]}…"
        lines.append(f"{begins}: “{_NAMED.sub(_QUOTED_END, short)}”]")
    return lines


def _unframed(text: str, setting: MessageSetting) -> str:
    """Escape lines that look like the line that names an author."""
    return _FRAME.sub(_ESCAPED, text) if setting.shared else text


class _File(NamedTuple):
    line: str
    """For the model."""
    picture: dict[str, object] | None = None
    heard: str = ""
    """For the chat."""


async def _file(
    row: InboxRow, kept: Mapping[str, Any], setting: MessageSetting, adapter: BasePlatformAdapter | None
) -> _File:
    """Fetch a file of a message, and see or hear it."""
    attachment = attachment_of(kept)
    try:
        if is_from_terminal(row):
            stored = await asyncio.to_thread(attachments.stored_here, setting.home, attachment)
        elif adapter is None:
            raise CannotFetch("its platform is not connected")
        else:
            stored = await attachments.take(adapter, attachment, home=setting.home, limits=setting.media)
    except HermesError as error:
        return _File(attachments.refusal_line(attachment, error))
    if stored.kind is MessageType.VOICE and setting.listener is not None:
        try:
            words = await setting.listener.words(stored.path)
        except NotHeard as error:
            return _File(attachments.not_heard_line(stored, error), heard=notices.not_heard(error))
        return _File(attachments.heard_line(stored, words), heard=notices.heard(words))
    picture = await asyncio.to_thread(attachments.image_part, stored) if stored.is_picture else None
    if is_from_terminal(row):
        return _File("", picture)  # its text names it
    return _File(attachments.line(stored, has_files=setting.has_files), picture)
