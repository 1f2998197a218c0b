"""The prefix of a conversation's requests, and the check that it does not change.

System text and tools are rendered once, at the beginning of an epoch, and stored as bytes. Every later request of the
epoch uses the stored bytes, whatever has changed on disk since: after a restart, in another process, after the agent
was evicted. A new epoch begins only with a stated reason. Equal prefixes are one object in memory, with the heads that
wires made of them.

`Watch` checks the bytes that are really sent: each request must begin with the previous one, without its closing bytes.
It keeps a length and a digest instead of the body and stores them in the turn's note, where the next process finds
them. A request may begin differently after a new epoch, a new segment, an edited transcript (undo) or an announced
event. Anything else is a break: it is counted in a row and logged, and the next request is compared with the new bytes.
Each fallback model is tracked separately.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from weakref import WeakValueDictionary

from hermes_agent.models.base import Endpoint, ToolSpec, Wire
from hermes_config.limits import DEFAULTS
from hermes_config.recent import Recent
from hermes_state.ids import ConversationId, SessionId, TurnId

if TYPE_CHECKING:
    import asyncio

    from hermes_agent.prompt.transcript import Body
    from hermes_state import SessionDB
    from hermes_state.storage.base import Connection

log = logging.getLogger(__name__)

Build = Callable[[], tuple[str, Sequence[ToolSpec]]]
"""Renders (system text, tools). Called only when an epoch begins."""

FIRST_USE = "first use"


class Head(NamedTuple):
    """The bytes of a prefix in an endpoint's wire format, and their digest."""

    content: bytes
    digest: str


class PrefixContent:
    """System text and tools; conversations with equal ones share one object."""

    __slots__ = ("__weakref__", "_heads", "hash", "system", "tools", "weight")

    def __init__(self, rendered: bytes, digest: str) -> None:
        document = json.loads(rendered)
        self.system: str = document["system"]
        self.tools: tuple[ToolSpec, ...] = tuple(document["tools"])
        self.hash = digest
        self.weight = len(rendered)
        """Length in bytes for the token estimate."""
        self._heads: Recent[tuple[str, str], Head] = Recent(DEFAULTS.prefix_heads)

    def head(self, wire: Wire, endpoint: Endpoint) -> Head:
        """The head for a wire and endpoint, made once. It holds no secrets, nor does its cache key."""
        key = (wire.name, repr(endpoint))
        known = self._heads.get(key)
        if known is None:
            content = wire.head(endpoint, self.system, self.tools)
            known = self._heads[key] = Head(content, hashlib.sha256(content).hexdigest())
        return known


@dataclass(frozen=True, slots=True)
class PromptPrefix:
    """The prefix of one epoch."""

    content: PrefixContent
    epoch: int
    told: bool = field(default=False, compare=False)
    """Whether this lookup stored the system text in the segment's row."""


_shared: WeakValueDictionary[str, PrefixContent] = WeakValueDictionary()


def ensure(
    db: SessionDB,
    conversation_id: ConversationId,
    build: Build,
    *,
    reason: str | None = None,
    fence: int | None = None,
    session_id: SessionId | None = None,
) -> PromptPrefix:
    """The stored prefix, byte for byte. With a `reason`, or if none is stored, `build` renders a new one.

    The reason is the announced event: compression, model switch, tools changed, personality. If the new content is the
    same, the epoch continues. The commit that begins an epoch also stores the system text in the segment `session_id`.
    """
    newest = db.prefixes.newest(conversation_id) if reason is None else None
    if newest is not None and (content := _load(db, newest[1])) is not None:
        return PromptPrefix(content, newest[0])
    system, tools = build()
    rendered = canonical(system, tools)
    epoch = db.prefixes.begin(
        conversation_id, rendered, reason=reason or FIRST_USE, fence=fence,
        also=None if session_id is None else db.telling_system_prompt(session_id, system),
    )  # fmt: skip
    return PromptPrefix(_content(rendered, epoch.hash), epoch.epoch, told=session_id is not None)


def stored(db: SessionDB, conversation_id: ConversationId, epoch: int) -> PromptPrefix | None:
    """The prefix of an earlier epoch; None when it is no longer stored."""
    digest = next((one.hash for one in db.prefixes.epochs(conversation_id) if one.epoch == epoch), None)
    content = None if digest is None else _load(db, digest)
    return None if content is None else PromptPrefix(content, epoch)


def canonical(system: str, tools: Sequence[ToolSpec]) -> bytes:
    """The stored form. Keys keep their order, because models read schemas from the top."""
    document = {"system": system, "tools": list(tools)}
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def _load(db: SessionDB, digest: str) -> PrefixContent | None:
    """The stored content with this hash; None when it is no longer stored."""
    known = _shared.get(digest)
    if known is None and (rendered := db.prefixes.bytes_of(digest)) is not None:
        known = _content(rendered, digest)
    return known


def _content(rendered: bytes, digest: str) -> PrefixContent:
    # Always parsed from the stored form, so that the first request uses the same bytes as later ones.
    known = _shared.get(digest)
    if known is None:
        known = _shared[digest] = PrefixContent(rendered, digest)
    return known


# -- checking sent requests --------------------------------------------------------------------------------


class Checked(NamedTuple):
    kind: Literal["first", "extends", "announced", "broke"]
    reason: str = ""


class _Sent(NamedTuple):
    """The record of a sent request: length and digests."""

    epoch: int
    session_id: str
    head: str
    length: int
    digest: str
    head_id: int
    rows: int
    rewinds: int


class Watch:
    """Compares each request of a conversation with the one before. The lease ensures one turn at a time."""

    def __init__(self, db: SessionDB, conversation_id: ConversationId, sent: dict[str, _Sent] | None = None) -> None:
        self._db = db
        self._conversation_id = conversation_id
        self._sent = sent or {}
        self._announced = ""
        self._hashed = hashlib.sha256()
        self._hashed_bytes = 0
        """The hash of the last request without its closing bytes, and their number."""
        self._breaks: list[dict[str, Any]] = []
        """Breaks not stored yet, as arguments of `prefixes.broke_in`."""

    @classmethod
    def load(cls, db: SessionDB, conversation_id: ConversationId) -> Watch:
        """Continue from the note of the conversation's newest turn, whichever process ran it."""
        note = db.turns.last_note(conversation_id) or {}
        # A record of another shape is from another version and is ignored.
        sent = {
            track: _Sent(*row) for track, row in note.get("sent", {}).items() if len(row) == len(_Sent._fields)
        }  # fmt: skip
        return cls(db, conversation_id, sent)

    def announce(self, reason: str) -> None:
        """Allow the next request to begin differently, for example after an option changed."""
        self._announced = reason
        self._sent.clear()

    def check(self, body: Body, endpoint: Endpoint) -> Checked:
        """Compare a request with the previous one and remember it. No input or output; `save` stores breaks."""
        track = f"{body.wire} {endpoint.provider} {endpoint.model}"
        before = self._sent.pop(track, None)
        view = memoryview(body.content)[: len(body.content) - body.tail]
        known = before.length if before is not None and before.length <= len(view) else 0
        running = hashlib.sha256(view[:known])
        so_far = running.hexdigest()
        running.update(view[known:])
        seen = running.hexdigest()
        self._hashed, self._hashed_bytes = running, len(view)
        if before is None:
            outcome = Checked("announced", self._announced) if self._announced else Checked("first")
        else:
            outcome = Checked("extends") if so_far == before.digest else _why(before, body)
            if outcome.kind == "broke":
                broken = {"epoch": body.epoch, "expected": before.digest, "seen": seen, "reason": outcome.reason}
                self._breaks.append(broken)
                log.warning("action=prefix_broke conversation=%s reason=%s", self._conversation_id, outcome.reason)
        self._announced = ""
        self._sent[track] = _Sent(
            body.epoch, body.session_id, body.head.digest, len(view), seen, body.head_id, body.rows, body.rewinds
        )  # fmt: skip
        while len(self._sent) > self._db.limits.prefix_tracks:
            del self._sent[next(iter(self._sent))]
        return outcome

    def hash_of(self, content: bytes) -> str:
        """The SHA-256 of the request that was checked last, with these closing bytes; only these are hashed now."""
        whole = self._hashed.copy()
        whole.update(memoryview(content)[self._hashed_bytes :])
        return whole.hexdigest()

    def note(self) -> dict[str, Any]:
        """The records for `load`, kept under `sent` in the turn's note."""
        return {"sent": {track: list(sent) for track, sent in self._sent.items()}}

    def save(self, turn_id: TurnId, *, fence: int) -> asyncio.Future[None]:
        """Queue the digests and breaks to the store's writer.

        Called right before the rows of the step are queued, it shares their commit. If the process is killed in
        between, the next one compares with the request before, which must match as well.
        """
        from hermes_state.storage import writer

        note, turns, broken = self.note(), self._db.turns, self.breaking()

        def run(conn: Connection) -> None:
            turns.note_in(conn, turn_id, note, fence=fence)
            if broken is not None:
                broken(conn)

        return writer.queued(self._db.engine, run)

    def breaking(self) -> Callable[[Connection], None] | None:
        """A write of the breaks not stored yet, for a transaction that has checked the fence; None without breaks."""
        if not self._breaks:
            return None
        broken, prefixes, whose = tuple(self._breaks), self._db.prefixes, self._conversation_id
        self._breaks.clear()

        def run(conn: Connection) -> None:
            for found in broken:
                prefixes.broke_in(conn, whose, **found)

        return run


def _why(before: _Sent, body: Body) -> Checked:
    """Why a request does not begin with the one before it."""
    if before.epoch != body.epoch:
        return Checked("announced", "a new epoch")
    if before.session_id != body.session_id:
        return Checked("announced", "a new segment")
    if before.head != body.head.digest:
        return Checked("broke", "system text, tools or options moved inside an epoch")
    if before.rewinds != body.rewinds:
        return Checked("announced", "the transcript was edited")
    if body.rows_until(before.head_id) != before.rows:
        return Checked("broke", "an earlier message is missing, or another one stands among them")
    return Checked("broke", "an earlier message is rendered differently")
