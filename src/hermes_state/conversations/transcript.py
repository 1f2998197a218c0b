"""How a row becomes a message and back: pure functions, no database.

A message comes in as the agent, an archive or a third-party tool has it, and goes out in two forms: the full row
that tools know, and the provider's message that the model is shown, whose keys are there only when they say something.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from hermes_state import columns
from hermes_state.conversations import chain
from hermes_state.errors import IntegrityError, InvalidValue, SessionEnded
from hermes_state.ids import SessionId, TurnId, checked_id, is_possible_id
from hermes_state.storage.base import Connection, Row, Store, first, scalar
from hermes_state.storage.sqlite import SqliteConnection
from hermes_state.storage.statements import Queries

COLUMNS = (
    "id", "session_id", "role", "content", "content_kind", "tool_call_id", "tool_calls", "tool_name",
    "effect_disposition", "timestamp", "token_count", "finish_reason", "reasoning", "reasoning_content",
    "reasoning_details", "codex_reasoning_items", "codex_message_items", "platform_message_id", "observed",
    "active", "compacted", "api_content", "escaped", "turn_id", "person_id",
)  # fmt: skip
_LEAKED = re.compile(r"<memory-context\b[^>]*>.*?</memory-context>", re.DOTALL | re.IGNORECASE)

# The columns between `timestamp`/`token_count` and the state, as `insert` lists them.
_NOTHING = (None,) * 12
_OTHERS = (
    "tool_call_id", "tool_calls", "tool_name", "effect_disposition", "finish_reason", "reasoning",
    "reasoning_content", "reasoning_details", "codex_reasoning_items", "codex_message_items", "platform_message_id",
    "api_content",
)  # fmt: skip
# Where `insert` has the columns that `as_conversation` takes, in its order.
_AS_SHOWN = (0, 1, 2, 4, 7, 3, 5, 6, 17, 15, 16, 9, 10, 11, 12, 13, 14, 18)
_ROLES = frozenset({"user", "assistant", "system", "tool"})
_STRUCTURED = frozenset({"tool_calls", "reasoning_details", "codex_reasoning_items", "codex_message_items"})


class Encoded(list[Any]):
    """A message as the parameters of `insert` after session_id, with what its session's counters need to know."""

    __slots__ = ("calls", "preview")
    calls: int
    preview: str | None

    @property
    def timestamp(self) -> float:
        at: float = self[7]
        return at


def is_text(role: Any, content: Any, max_bytes: int) -> bool:
    """Whether a message with this role and content, and nothing else, is stored as it stands. See `text_row`."""
    return (
        type(content) is str
        and content.isascii()
        and "\0" not in content
        and len(content) <= max_bytes
        and type(role) is str
        and role in _ROLES
    )


def text_row(role: str, content: str, at: float) -> Encoded:
    """`pack` for what `is_text`."""
    row = Encoded((role, content, "text", *_NOTHING[:4], at, None, *_NOTHING[:7], 0, None, None, None, None))
    row.calls = 0
    row.preview = columns.preview_of(content) if role == "user" else None
    return row


def encode(message: Mapping[str, Any], now: float, max_bytes: int) -> Encoded:
    """A message as the agent, an archive or a third-party tool has it, ready to be stored."""
    get = message.get
    platform_id = get("platform_message_id")
    return pack(
        message["role"], get("content"), get("tool_name"), get("tool_calls"), get("tool_call_id"), get("token_count"),
        get("finish_reason"), get("reasoning"), get("reasoning_content"), get("reasoning_details"),
        get("codex_reasoning_items"), get("codex_message_items"),
        get("message_id") if platform_id is None else platform_id,  # its name in a conversation
        get("observed"), get("effect_disposition"), get("timestamp"), get("api_content"), get("turn_id"),
        get("person_id"), now, max_bytes,
    )  # fmt: skip


def pack(
    role: str,
    content: Any,
    tool_name: str | None,
    tool_calls: Any,
    tool_call_id: str | None,
    token_count: int | None,
    finish_reason: str | None,
    reasoning: str | None,
    reasoning_content: str | None,
    reasoning_details: Any,
    codex_reasoning_items: Any,
    codex_message_items: Any,
    platform_message_id: Any,
    observed: Any,
    effect_disposition: str | None,
    timestamp: Any,
    api_content: str | None,
    turn_id: str | None,
    person_id: str | None,
    now: float,
    max_bytes: int,
) -> Encoded:
    """`encode` by position: the hot path, where most columns are empty."""
    kind = "text"
    if type(content) is str:
        if not content.isascii():
            content = columns.scrub(content)
        preview = columns.preview_of(content) if role == "user" else None
        if "\0" in content:
            content, kind = columns.escape(content), "escaped"
    else:
        preview = columns.preview_of(content) if role == "user" else None
        content, kind = columns.encode_content(content)
    if content is not None and len(content) * 4 > max_bytes:
        _check_size(content, max_bytes)
    others: Any = (
        tool_call_id, tool_calls, tool_name, effect_disposition, finish_reason, reasoning, reasoning_content,
        reasoning_details, codex_reasoning_items, codex_message_items, platform_message_id, api_content,
    )  # fmt: skip
    escaped = None
    if others != _NOTHING:
        others, escaped = _pack_others(others)
    row = Encoded((
        _column(str(role)), content, kind, *others[:4], now if timestamp is None else columns.to_epoch(timestamp, now),
        token_count, *others[4:11], 1 if observed else 0, others[11], escaped, turn_id, person_id,
    ))  # fmt: skip
    row.calls = 0 if tool_calls is None else calls_of(role, tool_calls)
    row.preview = preview
    return row


def _pack_others(given: tuple[Any, ...]) -> tuple[list[str | None], str | None]:
    """(column values, names of the columns in which NUL had to be escaped)."""
    packed: list[str | None] = list(given)
    escaped = []
    for at, value in enumerate(given):
        if value is None:  # most of them
            continue
        name = _OTHERS[at]
        if name in _STRUCTURED:
            value = columns.encode_json(value)
        elif name == "platform_message_id":
            value = checked_id(str(value), what="platform message id")
        value = columns.scrub(str(value))
        if "\0" in value:
            value = columns.escape(value)
            escaped.append(name)
        packed[at] = value
    return packed, ",".join(escaped) or None


def _column(text: str) -> str:
    """A short text that is no content: what no engine can hold is left out."""
    return text if text.isascii() and "\0" not in text else columns.scrub(text).replace("\0", "")


def _check_size(content: str, max_bytes: int) -> None:
    if len(content.encode()) > max_bytes:
        raise InvalidValue(
            f"a message of {len(content)} characters is larger than the limit of {max_bytes} bytes",
            hint="Send it as a file, or raise limits.message_bytes.",
        )


def calls_of(role: str, calls: Any) -> int:
    """How many tool calls a row makes; the answer of a tool makes none."""
    if calls is None or role == "tool":
        return 0
    if isinstance(calls, str):
        calls = columns.decode_json(calls, broken=calls)
    return len(calls) if isinstance(calls, list) else 1


def decode(row: Row) -> dict[str, Any]:
    """A full row as other tools know it: content decoded, tool calls parsed."""
    message = dict(zip(COLUMNS, row, strict=True))
    for name in (message.pop("escaped") or "").split(","):
        if name:
            message[name] = columns.unescape(message[name])
    message["content"] = columns.decode_content(message["content"], message.pop("content_kind"))
    if message["tool_calls"] is not None:
        message["tool_calls"] = columns.decode_json(message["tool_calls"], broken=[])
    return message


def as_conversation(rows: list[Row]) -> list[dict[str, Any]]:
    """Rows of `conversation` as provider messages; keys are there only when they say something."""
    turns = []
    for (
        role, content, kind, calls, timestamp, call_id, tool_name, effect, api_content, platform_id, observed,
        finish, reasoning, reasoning_content, details, codex_items, codex_messages, escaped,
    ) in rows:  # fmt: skip
        if kind != "text":
            content = columns.decode_content(content, kind)
        if (role == "user" or role == "assistant") and type(content) is str:
            content = _cleaned(content)
        turn = {"role": role, "content": content}
        if timestamp is not None:
            turn["timestamp"] = timestamp
        if calls is not None:
            turn["tool_calls"] = columns.decode_json(calls, broken=[])
        if call_id is not None:
            turn["tool_call_id"] = call_id
        if tool_name is not None:
            turn["tool_name"] = tool_name
        if effect is not None:
            turn["effect_disposition"] = effect
        if api_content is not None:
            turn["api_content"] = api_content
        if platform_id is not None:
            turn["message_id"] = platform_id
        if observed:
            turn["observed"] = True
        if role == "assistant":
            if finish is not None:
                turn["finish_reason"] = finish
            if reasoning is not None:
                turn["reasoning"] = reasoning
            if reasoning_content is not None:
                turn["reasoning_content"] = reasoning_content
            if details is not None:
                turn["reasoning_details"] = columns.decode_json(details)
            if codex_items is not None:
                turn["codex_reasoning_items"] = columns.decode_json(codex_items)
            if codex_messages is not None:
                turn["codex_message_items"] = columns.decode_json(codex_messages)
        if escaped is not None:
            _unescape_turn(turn, escaped)
        turns.append(turn)
    return turns


def as_stored(message: Mapping[str, Any], now: float, max_bytes: int) -> dict[str, Any]:
    """What `as_conversation` will give for a message once it is stored: encoded and read back, without a database."""
    row = encode(message, now, max_bytes)
    return as_conversation([tuple([row[place] for place in _AS_SHOWN])])[0]


def _unescape_turn(turn: dict[str, Any], escaped: str) -> None:
    for name in escaped.split(","):
        shown = "message_id" if name == "platform_message_id" else name
        if isinstance(turn.get(shown), str):
            turn[shown] = columns.unescape(turn[shown])


def _cleaned(text: str) -> str:
    """Without memory blocks that leaked into the transcript."""
    if "<memory-context" in text:
        text = _LEAKED.sub("", text)
    return text.strip()


def without_repeats(turns: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Drop a user text that repeats the one before it with no answer between: a compression carried it over."""
    kept: list[dict[str, Any]] = []
    last_user: Any = None
    for turn in turns:
        if turn["role"] == "assistant":
            last_user = None
        elif turn["role"] == "user":
            if last_user is not None and turn["content"] == last_user:
                continue
            last_user = turn["content"]
        kept.append(turn)
    return kept


def repaired(turns: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The list with roles alternating: neighbours of one role merged, tool results without a call dropped."""
    fixed: list[dict[str, Any]] = []
    open_calls: set[Any] = set()
    for turn in turns:
        role, before = turn["role"], fixed[-1] if fixed else None
        if role == "tool":
            if turn.get("tool_call_id") in open_calls:
                open_calls.discard(turn["tool_call_id"])
                fixed.append(turn)
            continue
        if before is not None and before["role"] == role and role in ("user", "assistant") and _plain(before, turn):
            merged = "\n\n".join(t for t in (before["content"], turn["content"]) if t)
            fixed[-1] = {**before, "content": merged}
            continue
        if role == "assistant":
            open_calls = {call.get("id") for call in turn.get("tool_calls") or () if isinstance(call, dict)}
        fixed.append(turn)
    return fixed


def _plain(*turns: dict[str, Any]) -> bool:
    return all(isinstance(t["content"], str) and not t.get("tool_calls") for t in turns)


Q = Queries("transcript")
_BUMP, _BUMP_WITHIN, _INSERT = Q.bump.sqlite, Q.bump_within.sqlite, Q.insert.sqlite
_BUMP_TEXT, _INSERT_TEXT = Q.bump_text.sqlite, Q.insert_text.sqlite

_NO_LIMIT = 2**62
_NO_FIELDS = (None,) * 16  # what `append_message` is told besides a text, mostly


class Messages(Store):
    """The part of `SessionDB` that holds transcripts."""

    def append_message(
        self,
        session_id: str,
        role: str,
        content: Any = None,
        tool_name: str | None = None,
        tool_calls: Any = None,
        tool_call_id: str | None = None,
        token_count: int | None = None,
        finish_reason: str | None = None,
        reasoning: str | None = None,
        reasoning_content: str | None = None,
        reasoning_details: Any = None,
        codex_reasoning_items: Any = None,
        codex_message_items: Any = None,
        platform_message_id: str | None = None,
        observed: bool = False,
        effect_disposition: str | None = None,
        timestamp: Any = None,
        api_content: str | None = None,
        turn_id: str | None = None,
        person_id: str | None = None,
    ) -> int:
        """Store one row; its id. Durable when this returns."""
        others = (
            tool_name, tool_calls, tool_call_id, token_count, finish_reason, reasoning, reasoning_content,
            reasoning_details, codex_reasoning_items, codex_message_items, platform_message_id, effect_disposition,
            timestamp, api_content, turn_id, person_id,
        )  # fmt: skip
        if others == _NO_FIELDS and not observed and is_text(role, content, self.limits.message_bytes):
            return self.engine.write(append_text, session_id, role, content, self.clock(), single=True)
        row = pack(
            role, content, tool_name, tool_calls, tool_call_id, token_count, finish_reason, reasoning,
            reasoning_content, reasoning_details, codex_reasoning_items, codex_message_items, platform_message_id,
            observed, effect_disposition, timestamp, api_content, turn_id, person_id, self.clock(),
            self.limits.message_bytes,
        )  # fmt: skip
        return self.engine.write(append, session_id, row, single=True)

    def append_messages(self, session_id: str, messages: Iterable[Mapping[str, Any]]) -> list[int]:
        """Several rows in one commit, in order."""
        now, top = self.clock(), self.limits.message_bytes
        rows = [encode(message, now, top) for message in messages]
        return self.engine.write(lambda conn: [append(conn, session_id, row) for row in rows])

    def get_messages(
        self, session_id: str, include_inactive: bool = False, limit: int | None = None, offset: int = 0
    ) -> list[dict[str, Any]]:
        """Full rows in order; live ones unless asked."""
        window = (_NO_LIMIT if limit is None else max(limit, 0), max(offset, 0))
        params = (session_id, 0 if include_inactive else 1, *window)
        return [decode(row) for row in self._rows(session_id, Q.of_session, params)]

    def get_messages_as_conversation(
        self,
        session_id: str,
        include_ancestors: bool = False,
        include_inactive: bool = False,
        repair_alternation: bool = False,
    ) -> list[dict[str, Any]]:
        """The transcript as the model is shown it."""
        active = 0 if include_inactive else 1
        if include_ancestors:
            found = self.engine.read(
                lambda conn: [
                    row
                    for segment in chain.ancestors(conn, session_id)
                    for row in conn.rows(Q.conversation, (segment, active))
                ],
                snapshot=True,
            )
            turns = without_repeats(as_conversation(found))
        else:
            turns = as_conversation(self._rows(session_id, Q.conversation, (session_id, active)))
        return repaired(turns) if repair_alternation else turns

    def replace_messages(
        self, session_id: str, messages: Iterable[Mapping[str, Any]], active_only: bool = False
    ) -> None:
        """The transcript is now `messages`. The old rows are hidden at once and removed by retention."""
        self._rewrite(
            session_id,
            messages,
            lambda conn: conn.run(Q.replace_all, (int(self.clock()), session_id, int(active_only))),
        )

    def archive_and_compact(self, session_id: str, messages: Iterable[Mapping[str, Any]]) -> int:
        """Live rows count as summarised; `messages` stand in their place. How many were put in."""
        return self._rewrite(session_id, messages, lambda conn: conn.run(Q.summarise_all, (session_id,)))

    def clear_messages(self, session_id: str) -> None:
        self._rewrite(session_id, (), lambda conn: conn.run(Q.replace_all, (int(self.clock()), session_id, 0)))

    def _rewrite(self, session_id: str, messages: Iterable[Mapping[str, Any]], put_away: Any) -> int:
        now = self.clock()
        rows = [encode(message, now, self.limits.message_bytes) for message in messages]

        def run(conn: Connection) -> int:
            began = scalar(conn.rows(Q.began, (session_id,)))
            if began is None:
                raise IntegrityError(f"no session {session_id!r:.80}")
            put_away(conn)
            insert_rows(conn, session_id, rows, started_at=began)
            return len(rows)

        return self.engine.write(run)

    def rewind_to_message(self, session_id: str, target_message_id: int) -> dict[str, Any]:
        """Take back a user message and everything after it."""

        def run(conn: Connection) -> dict[str, Any]:
            target = first(conn.rows(Q.one, (row_id(target_message_id),)))
            if target is None or target[1] != session_id:
                raise InvalidValue(f"message {target_message_id} is not part of session {session_id}")
            if target[2] != "user":
                raise InvalidValue(f"rewind target must be a 'user' message (got role='{target[2]}', id={target[0]})")
            rewound = conn.run(Q.take_back, (session_id, target[0]))
            conn.run(Q.count_rewind, (session_id,))
            full = conn.rows(Q.from_on, (session_id, target[0], 1))
            return {
                "rewound_count": rewound,
                "target_message": decode(full[0]),
                "new_head_id": scalar(conn.rows(Q.head, (session_id,))),
            }

        return self.engine.write(run)

    def restore_rewound(self, session_id: str, since_message_id: int) -> int:
        return self.engine.write(lambda conn: conn.run(Q.bring_back, (session_id, row_id(since_message_id))))

    def list_recent_user_messages(
        self, session_id: str, limit: int = 20, include_inactive: bool = False
    ) -> list[dict[str, Any]]:
        rows = self._rows(session_id, Q.recent_user, (session_id, 0 if include_inactive else 1, max(limit, 0)))
        found = []
        for message_id, timestamp, content, kind in rows:
            text = columns.text_of(columns.decode_content(content, kind)).replace("\n", " ").strip()
            found.append({"id": message_id, "timestamp": timestamp, "preview": text[:80]})
        return found

    def has_platform_message_id(self, session_id: str, platform_message_id: str) -> bool:
        return bool(self._rows(session_id, Q.has_platform_id, (session_id, str(platform_message_id))))

    def has_archived_messages(self, session_id: str) -> bool:
        return bool(self._rows(session_id, Q.has_archived, (session_id,)))

    def set_latest_user_api_content(self, session_id: str, content: Any, api_content: str) -> bool:
        """Note what was really sent for the newest user row, if it still is the one with that content."""

        def run(conn: Connection) -> bool:
            newest = first(conn.rows(Q.recent_user, (session_id, 1, 1)))
            if newest is None or columns.decode_content(newest[2], newest[3]) != content:
                return False
            return conn.run(Q.set_api_content, (columns.scrub(api_content), newest[0])) == 1

        return self.engine.write(run)

    def message_count(self, session_id: str | None = None) -> int:
        """All rows, taken-back ones too (the column of that name counts appends instead)."""
        if session_id is None:
            return int(self.engine.read(lambda conn: scalar(conn.rows(Q.count_all))))
        rows = self._rows(session_id, Q.count_of, (session_id,))
        return int(scalar(rows) or 0)

    def _rows(self, session_id: str, statement: Any, params: tuple[Any, ...]) -> list[Row]:
        if not is_possible_id(session_id):
            return []
        return self.engine.read(lambda conn: conn.rows(statement, params))


# -- rows in a bigger transaction ------------------------------------------------------------------------------


def append(conn: Connection, session_id: str, row: Encoded) -> int:
    """Add one row to a session that still takes rows; its id. Fails before its first write or not at all."""
    at = row[7]
    if isinstance(conn, SqliteConnection):
        raw = conn.raw
        try:
            raw.execute(_BUMP_WITHIN, (row.calls, at, row.preview, session_id, int(at // 60)))
            if raw.changes() != 1:
                raw.execute(_BUMP, (row.calls, at, at, at, at, row.preview, session_id))
        except UnicodeEncodeError:
            raise why_not(conn, session_id) from None
        if raw.changes() == 1:
            raw.execute(_INSERT, (session_id, *row))
            return raw.last_insert_rowid()
    elif is_possible_id(session_id):
        ids = conn.rows(Q.append, (row.calls, at, at, row.preview, session_id, *row))
        if ids:
            return int(ids[0][0])
    raise why_not(conn, session_id)


def append_text(conn: Connection, session_id: str, role: str, content: str, at: float) -> int:
    """`append` for what `is_text`, as most rows are: not packing and binding the 18 columns they leave empty
    makes an append on SQLite a twentieth quicker, and the rows of a group commit a quarter."""
    if isinstance(conn, SqliteConnection):
        raw = conn.raw
        try:
            raw.execute(_BUMP_TEXT, (at, session_id, int(at // 60)))
        except UnicodeEncodeError:
            raise why_not(conn, session_id) from None
        if raw.changes() == 1:
            raw.execute(_INSERT_TEXT, (session_id, role, content, at))
            return raw.last_insert_rowid()
    return append(conn, session_id, text_row(role, content, at))


def why_not(conn: Connection, session_id: str) -> Exception:
    """The reason a session took no row."""
    if not conn.rows(chain.Q.node, (checked_id(session_id),)):
        return IntegrityError(f"no session {session_id!r:.80}", hint="Create it first.")
    return SessionEnded(session_id, chain.tip(conn, SessionId(session_id)))


def insert_rows(conn: Connection, session_id: str, rows: Sequence[Encoded], *, started_at: float) -> None:
    """Put rows in and set the session's counters to exactly these rows."""
    if rows:
        conn.many(Q.insert, [(session_id, *row) for row in rows])
    last_active = max((row.timestamp for row in rows), default=started_at)
    preview = next((row.preview for row in rows if row.preview), None)
    conn.run(Q.set_counts, (len(rows), sum(row.calls for row in rows), last_active, preview, session_id))
    settle_minute(conn, session_id)


def settle_minute(conn: Connection, session_id: str) -> None:
    """After `last_active` was set outright: lists are ordered by its minute first."""
    if conn.dialect == "sqlite":
        conn.run(Q.settle_minute, (session_id,))


def row_id(value: Any) -> int:
    """A message id from outside; what cannot be one matches nothing."""
    return value if isinstance(value, int) and -(2**63) <= value < 2**63 else -1


_ABOVE_ALL = 2**62


class LiveState(NamedTuple):
    """Equal states, equal live rows (see above)."""

    message_count: int
    rewind_count: int
    head_id: int
    """Of the newest live row; 0 when there is none."""
    compressed: bool
    """The conversation goes on in another segment."""


class LiveRows(NamedTuple):
    state: LiveState
    ids: list[int]
    messages: list[dict[str, Any]]
    """As `get_messages_as_conversation` gives them."""
    turns: list[TurnId | None]
    """Which turn each belongs to; None for what was not said in one."""


class Live(Store):
    """The part of `SessionDB` that running conversations read."""

    def live_state(self, session_id: str) -> LiveState | None:
        """None when there is no such session."""
        if not is_possible_id(session_id):
            return None
        return self.engine.read(lambda conn: state_in(conn, session_id))

    def live_rows(self, session_id: str, *, after: int = 0) -> LiveRows | None:
        """The live rows with a higher id than `after`, and the state they belong to, seen at one moment."""
        if not is_possible_id(session_id):
            return None

        def run(conn: Connection) -> LiveRows | None:
            state = state_in(conn, session_id)
            if state is None:
                return None
            rows = conn.rows(Q.rows, (session_id, after))
            said = as_conversation([row[:-2] for row in rows])
            return LiveRows(state, [row[-1] for row in rows], said, [row[-2] for row in rows])

        return self.engine.read(run, snapshot=True)

    def said_in_turn(self, session_id: str, turn_id: TurnId, *, after: int = 0) -> dict[str, Any] | None:
        """What was said to a turn first, among the rows with a higher id than `after`; None when nothing was."""
        found = self.engine.read(lambda conn: conn.rows(Q.said_in_turn, (session_id, turn_id, after)))
        return as_conversation(found)[0] if found else None

    def as_stored(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """A message as it will be read back once it is stored. Nothing is read or written."""
        return as_stored(message, self.clock(), self.limits.message_bytes)


def state_in(conn: Connection, session_id: str, *, below: int = _ABOVE_ALL) -> LiveState | None:
    """`live_state`, in a transaction of the caller's; `below`: as if rows from this id on were not the head."""
    row = first(conn.rows(Q.state, (below, session_id)))
    return None if row is None else LiveState(row[0], row[1], row[2], bool(row[3]))


class Windows(Store):
    """The part of `SessionDB` that cuts windows out of transcripts."""

    def get_messages_around(self, session_id: str, around_message_id: int, window: int = 5) -> dict[str, Any]:
        """The message and up to `window` on each side, whatever their state; empty when it is not in the session."""
        return self._read_if(session_id, lambda conn: around(conn, session_id, around_message_id, window)) or _nothing()

    def get_anchored_view(
        self,
        session_id: str,
        around_message_id: int,
        window: int = 5,
        bookend: int = 3,
        keep_roles: Sequence[str] | None = ("user", "assistant"),
    ) -> dict[str, Any]:
        """`get_messages_around` between the first and the last few messages that say something."""

        def run(conn: Connection) -> dict[str, Any]:
            view = around(conn, session_id, around_message_id, window)
            shown = view["window"]
            view["bookend_start"], view["bookend_end"] = [], []
            if not shown:
                return view
            first, last = shown[0]["id"], shown[-1]["id"]
            view["window"] = [m for m in shown if m["id"] == around_message_id or _kept(m, keep_roles)]
            start = map(decode, conn.rows(Q.from_on, (session_id, 0, _reach(bookend))))
            end = map(decode, conn.rows(Q.newest, (session_id, last, _reach(bookend))))
            heads = [m for m in start if m["id"] < first and _kept(m, keep_roles) and _says(m)]
            tails = [m for m in end if _kept(m, keep_roles) and _says(m)]
            view["bookend_start"] = heads[: max(bookend, 0)]
            view["bookend_end"] = tails[: max(bookend, 0)][::-1]
            return view

        return self._read_if(session_id, run) or {**_nothing(), "bookend_start": [], "bookend_end": []}

    def get_resume_conversations(self, session_id: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """(what the model goes on from, what the person is shown: ancestors too)."""

        def run(conn: Connection) -> dict[str, Any]:
            own = conn.rows(Q.conversation, (session_id, 1))
            before = [
                row for part in chain.ancestors(conn, session_id)[:-1] for row in conn.rows(Q.conversation, (part, 1))
            ]
            return {"own": own, "before": before}

        found = self._read_if(session_id, run) or {"own": [], "before": []}
        shown = without_repeats(as_conversation(found["before"] + found["own"]))
        return repaired(as_conversation(found["own"])), shown

    def get_ancestor_display_prefix(self, session_id: str) -> list[dict[str, Any]]:
        """What was said before this segment began."""
        own, shown = self.get_resume_conversations(session_id)
        return shown[: max(len(shown) - len(own), 0)]

    def _read_if(self, session_id: str, fn: Any) -> dict[str, Any] | None:
        if not is_possible_id(session_id):
            return None
        found: dict[str, Any] = self.engine.read(fn, snapshot=True)
        return found


def around(conn: Connection, session_id: str, message_id: int, window: int) -> dict[str, Any]:
    size = max(window, 0)
    from_anchor = [decode(row) for row in conn.rows(Q.from_on, (session_id, row_id(message_id), size + 1))]
    if not from_anchor or from_anchor[0]["id"] != message_id:
        return _nothing()
    before = [decode(row) for row in conn.rows(Q.before, (session_id, message_id, size))][::-1]
    return {
        "window": before + from_anchor,
        "messages_before": len(before),
        "messages_after": len(from_anchor) - 1,
    }


def _nothing() -> dict[str, Any]:
    return {"window": [], "messages_before": 0, "messages_after": 0}


def _reach(bookend: int) -> int:
    """How many rows to look at to find `bookend` that say something."""
    return max(bookend, 0) * 10


def _kept(message: dict[str, Any], roles: Sequence[str] | None) -> bool:
    return roles is None or message["role"] in roles


def _says(message: dict[str, Any]) -> bool:
    return bool(columns.text_of(message["content"]).strip())
