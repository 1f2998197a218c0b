"""The contract of a chat platform: incoming events, outgoing messages, and the duties of an adapter.

An adapter turns a platform's updates into `MessageEvent`s and passes each to `self.receive`, which returns when the
message is durably stored or refused: only then may the adapter acknowledge it to the platform. It sends the deliverer's
messages, one piece at a time, and reports each exact outcome in a `SendResult`. It knows nothing of sessions, turns or
the store; the gateway's services for it (a durable cursor, webhooks, the list of commands) are `self.context`. An
adapter is a subclass of `BasePlatformAdapter` and uses nothing but this module. `register(ctx)` in its folder's
`__init__.py` makes it known, with a `registry.Descriptor`.

Control is structure, never text: a pressed button arrives as `MessageEvent.answer`, a file goes out through
`send_file`. No marker inside a text means anything here.
"""

from __future__ import annotations

import re
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from gateway.config import Platform, PlatformConfig
from gateway.platforms.context import (
    Cursor,
    NativeCommand,
    PlatformContext,
    WebhookRequest,
    WebhookResponse,
    signed_with,
)
from gateway.platforms.splitting import cut, split_blocks, units
from gateway.retry import pause_after
from hermes_config.errors import HermesError
from hermes_state.conversations import origins
from hermes_state.turns.cursors import CursorMove

if TYPE_CHECKING:
    from gateway.session import SessionSource

__all__ = [  # `cut`, `units` and `pause_after` are for adapters that split or poll by themselves
    "Answer", "Attachment", "BasePlatformAdapter", "Button", "CannotFetch", "Cursor", "CursorMove", "ErrorKind",
    "Health", "Means", "MessageEvent", "MessageType", "NativeCommand", "Outgoing", "OutgoingFile", "Platform",
    "PlatformConfig", "PlatformContext", "Receipt", "SendResult", "WebhookRequest", "WebhookResponse", "cut",
    "first_sentence", "pause_after", "signed_with", "units",
]  # fmt: skip

ErrorKind = Literal[
    "too_long", "bad_format", "forbidden", "not_found", "rate_limited", "expired", "transient", "unknown"
]
Means = Literal["key", "edit", "lookup", "none"]
"""How a platform prevents a second copy of a message after a send without an answer; `outbound.send_item` uses it.
`key`: the platform accepts two sends with the same `Outgoing.key` as one. `edit`: a message can be edited.
`lookup`: `find_sent` finds it. `none`: nothing helps."""
ToolLines = Literal["off", "new", "all"]
SHORT = 200
"""A text of at most this length is sent whole; of a longer one a platform with `edit` gets the first sentence first."""
_SENTENCE = re.compile(r"(?<!\b\w)\.(?=\s)(?!\s+[a-z])|[!?…؟](?=\s)|[。！？।۔]|\n")
"""The end of a sentence or line. A dot behind one letter or before a small one belongs to a word, as in "z. B."."""
_SAYS_NOTHING = 3
"""So many letters and digits, such as "1." or "Dr.", are no sentence."""
_DASHES = re.compile(r"(?<!\S)[—–](?=[A-Za-z])")


FORWARDED = origins.FORWARDED
"""Begins the text of a forwarded message, before its author's name: the words are not the sender's."""


class MessageType(StrEnum):
    TEXT = "text"
    LOCATION = "location"
    PHOTO = "photo"
    VIDEO = "video"
    AUDIO = "audio"
    VOICE = "voice"
    DOCUMENT = "document"
    STICKER = "sticker"
    COMMAND = "command"


class CannotFetch(HermesError):
    """The file could not be fetched from the platform."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """A file on the platform. The adapter can fetch it by `ref` alone, also after a restart."""

    ref: str
    kind: MessageType
    name: str = ""
    mime: str = ""
    size: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A pressed button: which question, and what was chosen. Never made from a text."""

    kind: Literal["approval", "clarify", "command"]
    id: str
    choice: str


@dataclass(slots=True)
class MessageEvent:
    """One message of a person, as the platform reports it. All fields but `text` and `source` may be missing.

    `platform_update_id`, `media_urls`, `media_types`, `auto_skill`, `channel_context` and `metadata` have no effect:
    adapters written for hermes-agent fill them.
    """

    text: str
    source: SessionSource
    message_type: MessageType = MessageType.TEXT
    raw_message: Any = None
    message_id: str | None = None
    platform_update_id: int | None = None
    media_urls: list[str] = field(default_factory=list)
    media_types: list[str] = field(default_factory=list)
    reply_to_message_id: str | None = None
    reply_to_text: str | None = None
    reply_to_author_id: str | None = None
    reply_to_author_name: str | None = None
    reply_to_is_own_message: bool = False
    auto_skill: str | None = None
    channel_prompt: str | None = None
    channel_context: str | None = None
    internal: bool = False
    metadata: dict[str, Any] = field(default_factory=dict)
    timestamp: datetime | None = None
    attachments: tuple[Attachment, ...] = ()
    version: int = 0
    """Greater than 0: an edit of a message; the platform's edit time or count."""
    album: str | None = None
    """Messages with the same album belong together."""
    mentions_us: bool = False
    """In a group: by our name, a reply to us, or a command with our name."""
    answer: Answer | None = None
    digest: str | None = None
    """A digest of the content, where senders choose message ids: the same id with other content is another message."""

    def is_command(self) -> bool:
        return self.get_command() is not None

    def get_command(self) -> str | None:
        """The first word after `/`, lower case, without `@bot`; None for a path such as `/usr/bin`."""
        if not self.text.startswith("/"):
            return None
        word = self.text[1:].split(maxsplit=1)[0] if self.text[1:].strip() else ""
        name = word.partition("@")[0].lower()
        return name if name and "/" not in name else None

    def get_command_args(self) -> str:
        """What follows the command; dashes that a phone made of `--` are turned back."""
        parts = self.text.split(maxsplit=1)
        return _DASHES.sub("--", parts[1]) if self.is_command() and len(parts) > 1 else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SendResult:
    """The outcome of one piece. `error_kind` `transient`: it may have arrived, unless `not_sent`."""

    success: bool
    message_id: str | None = None
    error: str | None = None
    raw_response: Any = None
    retryable: bool = False
    retry_after: float | None = None
    continuation_message_ids: tuple[str, ...] = ()
    error_kind: ErrorKind | None = None
    not_sent: bool = False
    """The platform certainly did nothing: the connection failed before the request was written, or it refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Button:
    label: str
    answer: Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingFile:
    """A file of the agent, already checked to be in the workspace."""

    path: Path
    name: str = ""
    """The name that people see; the path's own name when empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """One message for an adapter to send: a piece of text with its buttons and ids, or a file with its caption."""

    text: str = ""
    thread_id: str | None = None
    reply_to: str | None = None
    """The id of the person's message that this one answers."""
    buttons: tuple[tuple[Button, ...], ...] = ()
    """Rows of buttons; only where `supports_buttons`."""
    file: OutgoingFile | None = None
    """For `send_file`; the text is its caption."""
    key: str = ""
    """The same at every attempt to send this message, and of no other message, of this store or a former one."""
    only_for: str | None = None
    """The id of the one person in the group who may see it; only where `shows_to_one`. Never shown to others instead:
    when it is no longer possible, the result has `error_kind="expired"`."""
    trace_id: str = ""
    plain: bool = False
    """The platform refused its formatting: send it as plain text."""


def first_sentence(text: str) -> str:
    """The first sentence or line of a text, of at most `SHORT` characters; the text itself when it is that short."""
    text = text.strip()
    if len(text) <= SHORT:
        return text
    return whole_sentence(text) or f"{text[: cut(text, 0, SHORT - 1)[0]].rstrip()}…"


def whole_sentence(text: str) -> str:
    """The first sentence or line of a text that may go on; empty while none of at most `SHORT` characters has ended."""
    for end in _SENTENCE.finditer(text[:SHORT]):
        first = text[: end.end()].rstrip()
        if sum(map(str.isalnum, first)) > _SAYS_NOTHING:
            return first
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """The outcome of an incoming message. After this the adapter may acknowledge it."""

    state: Literal["accepted", "duplicate", "refused", "ignored"]
    inbox_id: int | None = None
    trace_id: str | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The health of an adapter: its last contact with the platform, and its present problem."""

    last_contact: float | None = None
    problem: str = ""
    """One line for the operator with what to do; empty when all is well."""
    retry_at: float | None = None


Receive = Callable[..., Awaitable[Receipt]]


class FloodWindow:
    """The pauses that a platform asks for, for one chat or all chats. One object for each connection."""

    _PAUSE = 1.0
    _TOGETHER = 2.0

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until: dict[str, float] = {}
        self._all_until = 0.0
        self._last: tuple[str, float] = ("", -self._TOGETHER)

    def left(self, chat_id: str) -> float:
        """How many seconds nothing may be sent to this chat."""
        now = self._clock()
        return max(0.0, self._until.get(chat_id, 0.0) - now, self._all_until - now)

    def refused(self, chat_id: str, seconds: float | None) -> None:
        """Note a refusal, which names no chat: if two chats are refused at the same time, pause the whole account."""
        now, pause = self._clock(), self._PAUSE if seconds is None else max(0.0, seconds)
        self._until = {chat: until for chat, until in self._until.items() if until > now}
        self._until[chat_id] = now + pause
        other, at = self._last
        if other != chat_id and now - at < self._TOGETHER:
            self._all_until = max(self._all_until, min(self._until.get(other, now), now + pause))
        self._last = (chat_id, now)


class BasePlatformAdapter(ABC):
    """The adapter of one account on one platform."""

    MAX_MESSAGE_LENGTH: int = 4096
    means: Means = "none"
    """From the platform's descriptor; `registry.make` sets this and the next one."""
    tool_lines: ToolLines = "new"
    """Which tool calls a streaming answer shows, unless the configuration says otherwise."""
    connect_pause: float = 300.0
    """The longest pause, in seconds, before `connect` is tried again."""
    supports_edit: bool = False
    """`edit_message` works, so answers may stream."""
    edit_seconds: float = 1.0
    """The least seconds between two edits of one message."""
    supports_typing: bool = False
    supports_buttons: bool = False
    shows_to_one: bool = False
    """`send` can show a message in a group to one person (`Outgoing.only_for`), and it arrives as surely as others."""
    queues_only: bool = False
    """A message waits for the one before it, whatever `busy_input_mode` says: its sender cannot see a running turn."""
    opens_threads: bool = False
    """`open_thread` works: a message outside a thread may be answered in one of its own."""
    context: PlatformContext
    """The gateway's services; set before `connect`."""

    def __init__(self, config: PlatformConfig, platform: Platform) -> None:
        self.config = config
        self.platform = platform
        self.flood = FloodWindow()
        self._receive: Receive | None = None

    @property
    def account(self) -> str:
        """The id of our account, stable over restarts; empty where a platform has only one."""
        return ""

    def set_message_handler(self, handler: Receive) -> None:
        self._receive = handler

    async def receive(self, event: MessageEvent, *, cursor: CursorMove | None = None) -> Receipt:
        """Give the gateway a message. When this returns it is stored or refused; if it raises, do not acknowledge it.

        `cursor`: `self.context.cursor().at(value)`, which becomes durable in the transaction that stores the message.
        """
        assert self._receive is not None, "an adapter is wired before it connects"
        return await (self._receive(event) if cursor is None else self._receive(event, cursor=cursor))

    def build_source(self, chat_id: str, **facts: Any) -> SessionSource:
        """The source of a message on this platform; the facts are the fields of `SessionSource`."""
        from gateway.session import SessionSource

        return SessionSource(platform=self.platform, chat_id=chat_id, **facts)

    # -- life --------------------------------------------------------------------------------------------

    @abstractmethod
    async def connect(self, *, is_reconnect: bool = False) -> bool:
        """Start receiving; True when it works. After False or an exception the gateway tries again later."""

    @abstractmethod
    async def disconnect(self) -> None:
        """Stop receiving. Bounded, and harmless when called twice."""

    def health(self) -> Health:
        return Health()

    def edit_pause(self, chat_id: str) -> float:
        """The least seconds between two edits in this chat, if it differs from `edit_seconds`."""
        return self.edit_seconds

    async def open_private_chat(self, user_id: str) -> str | None:
        """The id of the private chat with this person, opened if needed; None if that is impossible."""
        return None

    async def open_thread(self, event: MessageEvent) -> str | None:
        """The id of a thread for this message and its answer; only where `opens_threads`, after authorisation.

        The same message may come again after a crash, and must get the same thread. None: it stays where it is.
        """
        return None

    # -- out ---------------------------------------------------------------------------------------------

    def pieces(self, text: str) -> list[str]:
        """The messages of a stored text, in order: rendered, split, never empty. The same text gives the same result.

        Leave space for the 50 characters of the mark on a repeated message.
        """
        most = self.MAX_MESSAGE_LENGTH
        return split_blocks(text, most - 50 if most >= 500 else most)

    def beginning(self, piece: str) -> str:
        """The first sentence of a piece, of at most `SHORT` characters, which a phone shows as the notification."""
        return first_sentence(piece)

    @abstractmethod
    async def send(self, chat_id: str, message: Outgoing) -> SendResult:
        """Send one piece. Never raises for an error of the platform or network."""

    async def edit_message(
        self, chat_id: str, message_id: str, content: str, *, thread_id: str | None = None, finalize: bool = False
    ) -> SendResult:
        """Replace the text of a message of ours. A platform that says "not modified" has succeeded.

        `thread_id`: what the message was sent with, as for `delete_message`. `finalize`: it is not edited again.
        """
        return SendResult(success=False, error="this platform cannot edit", error_kind="unknown", not_sent=True)

    async def find_sent(self, chat_id: str, message: Outgoing, *, since: float) -> SendResult:
        """Whether a message that was sent with this key is there. Only where the means is `lookup`.

        A success has its id; `not_sent`: it is certainly not there; anything else: ask again later.
        """
        return SendResult(success=False, error="this platform cannot be asked", error_kind="unknown")

    async def delete_message(self, chat_id: str, message_id: str, *, thread_id: str | None = None) -> bool:
        return False

    async def send_file(self, chat_id: str, message: Outgoing) -> SendResult:
        """Send `message.file` with the text as its caption."""
        return SendResult(success=False, error="this platform takes no files", error_kind="unknown", not_sent=True)

    def together(self, files: Sequence[OutgoingFile]) -> int:
        """How many of these files, from the first on, `send_files` takes at once. The same files give the same number.

        1: the file is sent by `send_file`. Called in a thread, so it may look at the files.
        """
        return 1

    async def send_files(self, chat_id: str, messages: Sequence[Outgoing]) -> Sequence[SendResult]:
        """Send files as one batch (an album): the outcomes in order, up to and including the first failure.

        A failure means that neither this file nor one after it is there; if in doubt, it is `transient`.
        """
        results = [await self.send_file(chat_id, messages[0])]
        while results[-1].success and len(results) < len(messages):
            results.append(await self.send_file(chat_id, messages[len(results)]))
        return results

    async def send_typing(self, chat_id: str, thread_id: str | None = None) -> None:
        """Show the typing indicator for a few seconds. Errors are ignored."""
        return

    # -- look --------------------------------------------------------------------------------------------

    async def fetch(self, attachment: Attachment, target: Path, *, limit: int) -> None:
        """Download to `target` (a new file), at most `limit` bytes. Called after authorisation only.

        Raises `CannotFetch` for every error of the platform or network.
        """
        raise NotImplementedError
