"""The stored messages of a segment as the bytes of a request: appended to, never rebuilt.

The transcript is cut into blocks, each of which a wire can render by itself: a model's step with its tool results, or
one message. Rows only ever join the last block, so all others are final bytes. A block's bytes are a pure function of
its rows and the wire, and the cut is a pure function of the rows; a conversation that was appended to and one that was
loaded a moment ago are therefore the same bytes.

Kept: one buffer with the encoded blocks, the rows' ids, and the rows of the last block. The messages themselves stay
in the store. All of it can be dropped (`release`) and read again. The bytes of a prefix are shared (`prefix`).
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from hermes_agent import tokens
from hermes_agent.models.base import Endpoint, Message, Wire
from hermes_agent.prefix import Head, Prefix
from hermes_state.errors import SessionNotFound
from hermes_state.ids import SessionId

if TYPE_CHECKING:
    from hermes_state import SessionDB
    from hermes_state.conversations.transcript import LiveRows, LiveState
    from hermes_state.turns.journal import Begun

_COMMA = b","
"""What stands between fragments, on every wire."""


class Body(NamedTuple):
    """A request's bytes, and what the watch and the estimate need to know of them."""

    content: bytes
    head: Head
    tail: int
    """How many closing bytes the next body will not repeat."""
    weight: int
    """Bytes as far as tokens are concerned."""
    wire: str
    epoch: int
    session_id: SessionId
    ids: array[int]
    rows: int

    @property
    def head_id(self) -> int:
        return self.ids[self.rows - 1] if self.rows else 0

    def rows_until(self, row_id: int) -> int:
        """How many of the rows are not newer than that one."""
        return bisect_right(self.ids, row_id, 0, self.rows)


class Conversation:
    """The rows of one segment, for one wire."""

    def __init__(self, db: SessionDB, session_id: SessionId, wire: Wire, prefix: Prefix) -> None:
        """Nothing is read before it is needed. `prefix` may be exchanged when a new epoch begins."""
        self._db = db
        self.session_id = session_id
        self.wire = wire
        self.prefix = prefix
        self._measured: tuple[str, int, int] | None = None
        self._headed: tuple[Prefix, Endpoint, Head] | None = None
        self._forget()

    def _forget(self) -> None:
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
    def head_id(self) -> int:
        """Of the newest live row; 0 when there is none."""
        self._load_once()
        return self._ids[-1] if self._ids else 0

    def __len__(self) -> int:
        """How many live rows there are."""
        self._load_once()
        return len(self._ids)

    @property
    def message_count(self) -> int | None:
        """How many messages the store counts for the segment, as far as we have read and written them; None: unread."""
        return None if self._known is None else self._known.message_count

    def is_current(self) -> bool:
        """Whether the store holds exactly the rows we know, in this segment. One small read."""
        state = self._db.live_state(self.session_id)
        return state is not None and state == self._known and not state.compressed

    def take_in(self, begun: Begun) -> bool:
        """Append the row a turn was opened with, when it is all that is new; False, and nothing done, when it is not.

        Nothing is read.
        """
        known = self._known
        if known is None or begun.live != known._replace(message_count=known.message_count + 1):
            return False
        self.append([begun.row], [begun.row_id])
        return True

    def refresh(self) -> bool:
        """Bring the bytes up to the store: newer rows are appended, anything else is loaded again. True: it changed."""
        known = self._known
        if known is None:
            self._load_once()
            return True
        if self.is_current():
            return False
        self._catch_up(known)
        return True

    def append(self, messages: Sequence[Message], ids: Sequence[int]) -> None:
        """After own writes, in order. `ids` are the rows' ids, as the store gave them.

        Nothing is read, provided that the messages name their `timestamp`: it is part of what a wire may render.
        """
        known = self._known
        if known is None or not ids:
            return  # when nothing is loaded yet, whoever asks next reads them with the rest
        if any("timestamp" not in message for message in messages):
            self._catch_up(known)
            return
        for message, row_id in zip(messages, ids, strict=True):
            self._add(self._db.as_stored(message), row_id)
        self._known = known._replace(message_count=known.message_count + len(ids), head_id=ids[-1])

    def messages(self) -> list[dict[str, Any]]:
        """The live rows as the model is shown them, read from the store."""
        return self._read().messages

    def release(self) -> None:
        """Drop the bytes; the next use reads them again."""
        self._forget()

    @property
    def nbytes(self) -> int:
        """What this conversation keeps in memory, without the shared prefix."""
        last = sum(map(len, (*self._recent, *(self._rendered or ()))))
        return len(self._final) + 2 * last + len(self._ids) * self._ids.itemsize

    def _load_once(self) -> None:
        if self._known is None:
            self._extend(self._read())

    def _catch_up(self, known: LiveState) -> None:
        """Take in what was added; start over when that is not all that happened."""
        found = self._read(after=known.head_id)
        appended = found.state.message_count - known.message_count == len(found.ids)
        if appended and found.state.rewind_count == known.rewind_count:
            self._extend(found)
            return
        self._forget()
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
        """A step of the model always does. What came in while its tools were running stays with the step."""
        role = message["role"]
        return bool(role == "assistant" or (role != "tool" and not self._open_calls))

    def _close_block(self) -> None:
        fragments = self._fragments()
        if fragments:
            self._settle()
            self._recent = fragments
        self._block = []
        self._open_calls = set()
        self._rendered = None

    def _settle(self) -> None:
        """Move the block before the last into the buffer. It waits that long, for `join` looks at the last fragment."""
        for fragment in self._recent:
            if self._final:
                self._final += _COMMA
            self._final += fragment
            self._final_weight += tokens.weight(fragment)
        self._recent = []

    def _fragments(self) -> list[bytes]:
        """The last block. A result belongs directly behind its call, whatever was said while the tool was running."""
        if self._rendered is None:
            self._rendered = self.wire.fragments(sorted(self._block, key=_place_in_step))
        return self._rendered

    # -- requests ----------------------------------------------------------------------------------------

    def body(self, endpoint: Endpoint) -> Body:
        """The whole request. Its cost is one copy of the bytes, however many messages they are."""
        self._load_once()
        head, last = self._head(endpoint), [*self._recent, *self._fragments()]
        # The buffer is handed on as it is: `join` makes the one copy that is sent.
        before = [cast(bytes, self._final)] if self._final else []
        content = self.wire.join(head.content, [*before, *last])
        return Body(
            content=content,
            head=head,
            tail=len(content) - (content.rindex(last[-1]) + len(last[-1]) if last else len(head.content)),
            weight=self._weight(head),
            wire=self.wire.name,
            epoch=self.prefix.epoch,
            session_id=self.session_id,
            ids=self._ids,
            rows=len(self._ids),
        )

    def _head(self, endpoint: Endpoint) -> Head:
        """As the prefix knows it; an agent asks with one endpoint, several times a turn."""
        known = self._headed
        if known is None or known[0] is not self.prefix or known[1] is not endpoint:
            known = self._headed = (self.prefix, endpoint, self.prefix.content.head(self.wire, endpoint))
        return known[2]

    def _weight(self, head: Head) -> int:
        last = (*self._recent, *self._fragments())
        return len(head.content) + self._final_weight + sum(map(tokens.weight, last))

    def estimate_tokens(self, endpoint: Endpoint) -> int:
        """Input of the next request: what the provider counted for the last one, and an estimate for the rest."""
        self._load_once()
        weight = self._weight(self._head(endpoint))
        if self._measured is not None:
            model, then, counted = self._measured
            if model == endpoint.model and then <= weight:
                return counted + tokens.estimate(weight - then, model)
        return tokens.estimate(weight, endpoint.model)

    def measured(self, body: Body, endpoint: Endpoint, input_tokens: int) -> None:
        """The provider counted this many for that request."""
        tokens.learn(endpoint.model, body.weight, input_tokens)
        if input_tokens > 0 and body.session_id == self.session_id:
            self._measured = (endpoint.model, body.weight, input_tokens)


def _place_in_step(message: Message) -> int:
    return {"assistant": 0, "tool": 1}.get(message["role"], 2)
