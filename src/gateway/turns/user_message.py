"""Makes one user message for the model from stored messages.

In a group each message begins with a line that names its author and the author's stable id; a line in a text that looks
like one is escaped, so that nobody can pretend to be another author. Names are cleaned: no line breaks, no direction
marks. The person's text is stored as it is (`persist`); lines for the model are added around it.

Files are fetched here, after authorisation and for a turn that will run. Models with vision get pictures; for all other
files one line says what was sent. A file that cannot be fetched becomes a line, and the turn goes on.
"""

from __future__ import annotations

import asyncio
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gateway.platforms.base import Attachment, BasePlatformAdapter, CannotFetch, MessageType
from gateway.turns import attachments
from hermes_config.errors import HermesError

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


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSetting:
    """The chat and model that a message is prepared for."""

    shared: bool
    """Several people write in this conversation."""
    sees: bool
    """The model accepts pictures."""
    has_files: bool
    """The model may read files."""
    home: Path
    media: attachments.MediaLimits


async def prepare(
    rows: Sequence[InboxRow], setting: MessageSetting, *, adapter: BasePlatformAdapter | None, note: str = ""
) -> Prepared:
    """Make the user message of a turn from its rows. Only the model sees `note`."""
    texts, framed, pictures = [], [], []
    for row in rows:
        kept: Mapping[str, Any] = row.payload or {}
        text = str(kept.get("text") or "")
        files = [await _file(one, setting, adapter) for one in kept.get("attachments") or ()]
        lines = [line for line, _ in files]
        pictures += [part for _, part in files if part is not None]
        texts.append("\n".join(filter(None, (text, *lines))))
        framed.append("\n".join(filter(None, (*_before(row, kept, setting), _unframed(text, setting), *lines))))
    words, plain = "\n\n".join(filter(None, (note, *framed))), "\n\n".join(texts)
    persist = None if words == plain else plain
    if pictures:
        return Prepared(content=[{"type": "text", "text": words}, *pictures], persist=persist)
    return Prepared(content=words, persist=persist)


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
        whose = "your message" if reply.get("own") else f"{clean_name(reply.get('author_name')) or 'a message'}"
        short = quoted if len(quoted) <= _QUOTED else f"{quoted[:_QUOTED]}…"
        lines.append(f"[In reply to {whose}: “{_NAMED.sub(_QUOTED_END, short)}”]")
    return lines


def _unframed(text: str, setting: MessageSetting) -> str:
    """Escape lines that look like the line that names an author."""
    return _FRAME.sub(_ESCAPED, text) if setting.shared else text


async def _file(
    kept: Mapping[str, Any], setting: MessageSetting, adapter: BasePlatformAdapter | None
) -> tuple[str, dict[str, object] | None]:
    """Fetch a file; returns (a line for the model, the picture if the model accepts pictures)."""
    attachment = Attachment(
        ref=str(kept["ref"]), kind=MessageType(kept["kind"]), name=str(kept.get("name") or ""),
        mime=str(kept.get("mime") or ""), size=kept.get("size"),
    )  # fmt: skip
    if adapter is None:
        return attachments.refusal_line(attachment, CannotFetch("its platform is not connected")), None
    try:
        stored = await attachments.take(adapter, attachment, home=setting.home, limits=setting.media)
    except HermesError as error:
        return attachments.refusal_line(attachment, error), None
    line = attachments.line(stored, sees=setting.sees, has_files=setting.has_files)
    if stored.is_picture and setting.sees:
        return line, await asyncio.to_thread(attachments.image_part, stored)
    return line, None
