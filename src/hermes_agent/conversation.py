"""The conversation's encoded bytes. (Signatures; the bodies follow.)"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from hermes_agent.models.base import Endpoint, Message, Wire
from hermes_state.ids import SessionId

if TYPE_CHECKING:
    from hermes_agent.prefix import Prefix
    from hermes_state import SessionDB


class Body(NamedTuple):
    """A request's bytes, and what the watch and the estimate need to know of them."""

    content: bytes
    tail: int
    """How many closing bytes the next body will not repeat."""
    weight: int
    """Bytes for the token estimate (an image's data does not count by its length)."""
    head_id: int
    rows: int
    session_id: SessionId


class Conversation:
    def __init__(self, db: SessionDB, session_id: SessionId, wire: Wire, prefix: Prefix) -> None:
        """Nothing is read before it is needed."""
        raise NotImplementedError

    head_id: int
    """Of the newest live row; 0 when there is none."""

    def is_current(self) -> bool:
        """Whether the store holds exactly the rows we know. One small read."""
        raise NotImplementedError

    def refresh(self) -> bool:
        """Bring the bytes up to the store: newer rows are appended, anything else reloads. True when it changed."""
        raise NotImplementedError

    def append(self, messages: Sequence[Message], ids: Sequence[int]) -> None:
        """After own writes, in order: no read. `ids` as the journal gave them."""
        raise NotImplementedError

    def body(self, endpoint: Endpoint) -> Body:
        raise NotImplementedError

    def messages(self) -> list[dict[str, Any]]:
        """The live rows as the model is shown them, read from the store."""
        raise NotImplementedError

    def estimate_tokens(self, endpoint: Endpoint) -> int:
        """Of the next request, input only."""
        raise NotImplementedError

    def release(self) -> None:
        """Drop the bytes; they are read again at the next use."""
        raise NotImplementedError

    @property
    def nbytes(self) -> int:
        raise NotImplementedError
