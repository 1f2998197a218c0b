"""The stored messages of a segment as the bytes of a request; new messages are appended.

The transcript is cut into blocks that a wire can render separately: a model's step with its tool results, or one
message. New rows only join the last block, so the bytes of all other blocks are final. A block's bytes are a pure
function of its rows and the wire, and the cut is a pure function of the rows. Appending to a conversation and loading
it anew therefore give the same bytes.

The object keeps one buffer with the encoded blocks, the rows' ids, and the rows of the last block. The messages
themselves stay in the store. All of it can be dropped and read again. The bytes of a prefix are shared (`prefix`).
"""

from __future__ import annotations

import asyncio
import json
from array import array
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from hermes_agent.compression import policy
from hermes_agent.messages import USE_TOOL, text_of
from hermes_agent.models import normalise, provider_table
from hermes_agent.models.base import Endpoint, Message, Wire
from hermes_agent.prompt import prefix, system_prompt, tokens
from hermes_agent.prompt.prefix import Head, PromptPrefix
from hermes_agent.tools import registry
from hermes_state.errors import SessionNotFound
from hermes_state.ids import ConversationId, SessionId

if TYPE_CHECKING:
    from hermes_agent.turn.state import Setup
    from hermes_state import SessionDB
    from hermes_state.conversations.transcript import LiveRows, LiveState
    from hermes_state.turns.journal import Begun


_AROUND = 256
"""The most bytes that open and close a request; they are not part of its weight."""
_COMMA = b","
"""The separator of fragments, on every wire."""


class Body(NamedTuple):
    """A request's bytes, with the figures that `Watch` and the token estimate need."""

    content: bytes
    head: Head
    tail: int
    """The number of closing bytes, which the next body does not repeat."""
    weight: int
    """Length in bytes for the token estimate."""
    wire: str
    epoch: int
    session_id: SessionId
    ids: array[int]
    rows: int
    rewinds: int
    """How often the transcript was edited (undone or replaced)."""
    ending: int
    """The number of bytes that close the request and limit the answer."""
    most_tokens: int
    """The most input tokens a provider can count: a token has at least one byte."""

    def ended(self, ending: bytes) -> bytes:
        """The request with another limit for its answer."""
        return self.content[: -self.ending] + ending

    @property
    def head_id(self) -> int:
        return self.ids[self.rows - 1] if self.rows else 0

    def rows_until(self, row_id: int) -> int:
        """The number of rows up to and including this one."""
        return bisect_right(self.ids, row_id, 0, self.rows)


class EncodedTranscript:
    """The encoded rows of one segment, for one wire."""

    def __init__(self, db: SessionDB, session_id: SessionId, wire: Wire, prefix: PromptPrefix) -> None:
        """Rows are read on first use. `prefix` may be replaced when a new epoch begins."""
        self._db = db
        self.session_id = session_id
        self.wire = wire
        self.prefix = prefix
        self._measured: tuple[str, int, int] | None = None
        self._reset()

    def _reset(self) -> None:
        self._known: LiveState | None = None
        self._ids: array[int] = array("q")
        self._final = bytearray()
        self._final_weight = 0
        self._recent: list[bytes] = []
        self._block: list[Message] = []
        self._open_calls: set[Any] = set()
        self._rendered: list[bytes] | None = None

    # -- the rows ----------------------------------------------------------------------------------------

    @property
    def message_count(self) -> int | None:
        """The segment's message count, as of our last read or write; None if the segment is unread."""
        return None if self._known is None else self._known.message_count

    def is_current(self) -> bool:
        """Whether the store holds exactly the rows encoded here. One small read."""
        state = self._db.live_state(self.session_id)
        return state is not None and state == self._known and not state.compressed

    def take_in(self, begun: Begun) -> bool:
        """Append the row with which a turn was opened, if nothing else is new; else do nothing and return False.

        Reads nothing.
        """
        known = self._known
        if known is None or begun.live != known._replace(message_count=known.message_count + 1):
            return False
        self.append([begun.row], [begun.row_id])
        return True

    def refresh(self) -> bool:
        """Update from the store: append newer rows, or load everything again after other changes. True if changed."""
        known = self._known
        if known is None:
            self._load_once()
            return True
        if self.is_current():
            return False
        self._catch_up(known)
        return True

    def append(self, messages: Sequence[Message], ids: Sequence[int]) -> None:
        """Append rows that this process has just stored; `ids` are their ids in the store.

        Reads nothing, but the messages must have their `timestamp`, which a wire may render.
        """
        known = self._known
        if known is None or not ids:
            return  # nothing is loaded yet; the next use reads these rows, too
        if any("timestamp" not in message for message in messages):
            self._catch_up(known)
            return
        for message, row_id in zip(messages, ids, strict=True):
            self._add(self._db.as_stored(message), row_id)
        self._known = known._replace(message_count=known.message_count + len(ids), head_id=ids[-1])

    @property
    def nbytes(self) -> int:
        """Bytes that this conversation keeps in memory, without the shared prefix."""
        last = sum(map(len, (*self._recent, *(self._rendered or ()))))
        return len(self._final) + 2 * last + len(self._ids) * self._ids.itemsize

    def _load_once(self) -> None:
        if self._known is None:
            self._extend(self._read())

    def take_rows(self, found: LiveRows) -> None:
        """Take these rows instead of reading the live ones, to render a request of the past."""
        self._reset()
        self._extend(found)

    def _catch_up(self, known: LiveState) -> None:
        """Append new rows; load everything again if other rows changed."""
        found = self._read(after=known.head_id)
        appended = found.state.message_count - known.message_count == len(found.ids)
        if appended and found.state.rewind_count == known.rewind_count:
            self._extend(found)
            return
        self._reset()
        self._measured = None
        self._load_once()

    def _read(self, *, after: int = 0) -> LiveRows:
        found = self._db.live_rows(self.session_id, after=after)
        if found is None:
            raise SessionNotFound(f"no session {self.session_id!r:.80}")
        return found

    def _extend(self, found: LiveRows) -> None:
        for message, row_id in zip(found.messages, found.ids, strict=True):
            self._add(message, row_id)
        self._known = found.state

    # -- blocks ------------------------------------------------------------------------------------------

    def _add(self, message: Message, row_id: int) -> None:
        if self._block and self._starts_block(message):
            self._close_block()
        self._block.append(message)
        self._rendered = None
        self._ids.append(row_id)
        if message["role"] == "assistant":
            calls = message.get("tool_calls") or ()
            self._open_calls = {call.get("id") for call in calls if isinstance(call, dict)}
        elif message["role"] == "tool":
            self._open_calls.discard(message.get("tool_call_id"))

    def _starts_block(self, message: Message) -> bool:
        """Whether a message starts a block. A model's step does; messages added while its tools ran stay with it."""
        role = message["role"]
        return bool(role == "assistant" or (role != "tool" and not self._open_calls))

    def _close_block(self) -> None:
        fragments = self._fragments()
        if fragments:
            self._flush_block()
            self._recent = fragments
        self._block = []
        self._open_calls = set()
        self._rendered = None

    def _flush_block(self) -> None:
        """Move the block before the last into the buffer; not earlier, because `join` inspects the last fragment."""
        for fragment in self._recent:
            if self._final:
                self._final += _COMMA
            self._final += fragment
            self._final_weight += tokens.weight(fragment)
        self._recent = []

    def _fragments(self) -> list[bytes]:
        """The encoded last block. A result directly follows its call, whatever was said while the tool ran."""
        if self._rendered is None:
            self._rendered = self.wire.fragments(sorted(self._block, key=_place_in_step))
        return self._rendered

    # -- requests ----------------------------------------------------------------------------------------

    def body(self, endpoint: Endpoint) -> Body:
        """The whole request, made by copying the bytes once, however many messages there are."""
        self._load_once()
        head, last = self._head(endpoint), [*self._recent, *self._fragments()]
        # The buffer is passed without a copy; `join` makes the one copy that is sent.
        before = [cast(bytes, self._final)] if self._final else []
        ending = self.wire.ending(endpoint)
        content = self.wire.join(head.content, [*before, *last], ending)
        weight = self._weight(head)
        counted, then = self._counted(endpoint, weight)
        return Body(
            content=content,
            head=head,
            tail=len(content) - (content.rindex(last[-1]) + len(last[-1]) if last else len(head.content)),
            weight=weight,
            wire=self.wire.name,
            epoch=self.prefix.epoch,
            session_id=self.session_id,
            ids=self._ids,
            rows=len(self._ids),
            rewinds=0 if self._known is None else self._known.rewind_count,
            ending=len(ending),
            most_tokens=counted + weight - then + len(self._ids) + _AROUND,
        )

    def _head(self, endpoint: Endpoint) -> Head:
        return self.prefix.content.head(self.wire, endpoint)

    def _weight(self, head: Head) -> int:
        last = (*self._recent, *self._fragments())
        return len(head.content) + self._final_weight + sum(map(tokens.weight, last))

    def estimate_tokens(self, endpoint: Endpoint) -> int:
        """Input tokens of the next request: the provider's count for the last one, plus an estimate of the rest."""
        self._load_once()
        weight = self._weight(self._head(endpoint))
        counted, then = self._counted(endpoint, weight)
        return counted + tokens.estimate(weight - then, endpoint.model)

    def _counted(self, endpoint: Endpoint, weight: int) -> tuple[int, int]:
        """The provider's token count for the last request, and that request's weight; zeros if unknown."""
        if self._measured is not None:
            model, then, counted = self._measured
            if model == endpoint.model and then <= weight:
                return counted, then
        return 0, 0

    def measured(self, body: Body, endpoint: Endpoint, input_tokens: int) -> None:
        """Remember the provider's token count for a request."""
        tokens.learn(endpoint.model, body.weight, input_tokens)
        if input_tokens > 0 and body.session_id == self.session_id:
            self._measured = (endpoint.model, body.weight, input_tokens)


def _place_in_step(message: Message) -> int:
    return {"assistant": 0, "tool": 1}.get(message["role"], 2)


_RIGHTS = "rights were taken away"
_TOOLS = "the tools changed"


class TranscriptCache:
    """The encoded transcripts and prefix of one conversation, cached in this process."""

    def __init__(self, setup: Setup, conversation_id: ConversationId) -> None:
        self._setup = setup
        self.conversation_id = conversation_id
        self._prefix: prefix.PromptPrefix | None = None
        self._watch: prefix.Watch | None = None
        self._bytes: dict[str, EncodedTranscript] = {}
        self._session_id: SessionId | None = None
        self._announced: str | None = None
        self.pace = policy.Pace()

    @property
    def watch(self) -> prefix.Watch:
        assert self._watch is not None, "call ready() first"
        return self._watch

    async def ready(self, session_id: SessionId, *, fence: int, begun: Begun | None = None) -> None:
        """Update everything from the store; called at the beginning of a turn (`begun`) and after a rotation."""
        if self._session_id != session_id:
            self._bytes.clear()
            self._session_id = session_id
        if begun is None or not self._continues(begun):
            await asyncio.to_thread(self._ready, fence)

    def _continues(self, begun: Begun) -> bool:
        """Whether only the turn's own row was added since the last turn, as usual. Reads nothing."""
        known = self._prefix
        if known is None or self._watch is None or self._announced is not None or not self._bytes:
            return False
        if begun.prefix != (known.epoch, known.content.hash) or begun.row.get("timestamp") is None:
            return False
        return all(conversation.take_in(begun) for conversation in self._bytes.values())

    def _ready(self, fence: int) -> None:
        setup, reason, known = self._setup, self._announced, self._prefix
        if self._watch is None:
            self._watch = prefix.Watch.load(setup.db, self.conversation_id)
        # Read every time: another process may have begun a new epoch.
        self._prefix = self._stored_prefix(reason, fence)
        if reason is None and (found := self._tools_outdated_reason(self._prefix)):
            self._watch.announce(found)
            self._prefix = self._stored_prefix(found, fence)
        self._announced = None
        if known is None or known.content != self._prefix.content:
            if not self._prefix.told:
                setup.db.update_system_prompt(str(self._session_id), self._prefix.content.system, fence=fence)
            self._bytes.clear()
        self.of(setup.endpoint)  # reads the rows of the turn's first request here, in a thread
        for conversation in self._bytes.values():
            conversation.refresh()

    def _stored_prefix(self, reason: str | None, fence: int) -> prefix.PromptPrefix:
        setup = self._setup
        return prefix.ensure(
            setup.db, self.conversation_id, lambda: system_prompt.gather(setup), reason=reason, fence=fence,
            session_id=self._session_id,
        )  # fmt: skip

    def _tools_outdated_reason(self, stored: prefix.PromptPrefix) -> str:
        """Why the stored list of tools is out of date: rights were taken away, a plug-in replaced one of the tools, one
        does not exist any more, or the list is older than `use_tool`. Tools that are merely switched off stay in it.
        """
        known, role = registry.shared(), self._setup.role
        named = {str(spec["name"]): spec for spec in stored.content.tools}
        tools = [known.get(name) for name in named]
        if any(tool is not None and role not in tool.roles for tool in tools):
            return _RIGHTS
        added = (spec for spec in self._setup.specs if known.is_added(spec["name"]))
        came = any(named.get(spec["name"]) != json.loads(normalise.encode(spec)) for spec in added)
        gone = any(tool is None for tool in tools)
        older = USE_TOOL not in named and any(spec["name"] == USE_TOOL for spec in self._setup.specs)
        return _TOOLS if came or gone or older else ""

    def announce(self, reason: str) -> None:
        """Begin a new epoch with the next request, because of an event that may change the prefix."""
        self._announced = reason
        if self._watch is not None:
            self._watch.announce(reason)

    def of(self, endpoint: Endpoint) -> EncodedTranscript:
        """The conversation's bytes in the format of this endpoint."""
        assert self._prefix is not None and self._session_id is not None, "call ready() first"
        wire = provider_table.wire_for(endpoint)
        found = self._bytes.get(wire.name)
        if found is None:
            found = self._bytes[wire.name] = EncodedTranscript(self._setup.db, self._session_id, wire, self._prefix)
        return found

    def prefix_tokens(self, endpoint: Endpoint) -> int:
        """Tokens of the prefix, which every request carries."""
        assert self._prefix is not None, "call ready() first"
        return tokens.estimate(self._prefix.content.weight, endpoint.model)

    def append(self, messages: Sequence[Mapping[str, Any]], ids: Sequence[int]) -> None:
        """Append rows that this process has just stored."""
        for conversation in self._bytes.values():
            conversation.append(messages, ids)

    def message_count(self, session_id: SessionId) -> int | None:
        """The segment's message count, without reading the store; None if another segment is cached."""
        if session_id != self._session_id:
            return None
        return next((conversation.message_count for conversation in self._bytes.values()), None)

    def release(self) -> None:
        """Free the memory; everything can be read again."""
        self._bytes.clear()

    @property
    def nbytes(self) -> int:
        return sum(conversation.nbytes for conversation in self._bytes.values())


Content = str | list[Any]


def user_message(message: Content, *, persist: Content | None, added: str, **columns: Any) -> dict[str, Any]:
    """The row of a person's message. `persist` is stored instead of `message`; `added` is only for the model."""
    words, stored = text_of(message), message if persist is None else persist
    if persist is not None and (pictures := _pictures(message)):
        # Pictures are sent from the row's content, so it must hold them.
        stored = [{"type": "text", "text": text_of(persist)}, *pictures]
    row: dict[str, Any] = {"role": "user", "content": stored, **columns}
    if added or words != text_of(stored):
        row["api_content"] = f"{words}\n\n{added}" if added else words
    return row


def _pictures(content: Content) -> list[Any]:
    parts = () if isinstance(content, str) else content
    return [part for part in parts if isinstance(part, Mapping) and "text" not in part]
