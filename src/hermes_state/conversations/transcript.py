"""The transcript of a session: encode and decode messages, append and read rows.

A message comes in as the agent, an archive or a third-party tool has it. It goes out in two forms: the full row for
tools, and the provider message for the model, which has no empty keys. Only `columns.MESSAGE_COLUMNS` lists the
columns.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from hermes_state import columns
from hermes_state.columns import MESSAGE_COLUMNS, SAID, SHOWN, SHOWN_FIELDS, MessageColumn
from hermes_state.conversations import chain
from hermes_state.errors import IntegrityError, InvalidValue, SessionEnded
from hermes_state.ids import SessionId, TurnId, checked_id, is_possible_id
from hermes_state.storage.base import Connection, Row, Store, first, set_columns
from hermes_state.storage.statements import Queries, Statement

Q = Queries("transcript")

_LEAKED = re.compile(r"<memory-context\b[^>]*>.*?</memory-context>", re.DOTALL | re.IGNORECASE)
_NAMES = [column.name for column in SAID]
_ROLE, _CONTENT, _KIND, _TIMESTAMP, _OBSERVED, _ESCAPED = map(
    _NAMES.index, ("role", "content", "content_kind", "timestamp", "observed", "escaped")
)
_FIELDS = {
    name: (at, column)
    for at, column in enumerate(SAID)
    if column.kind != "own"
    for name in (column.name, column.key or column.name)
}
_SHOWN_AT = [_NAMES.index(name) for name in SHOWN]
_NO_VALUES = [None] * len(SAID)


# -- messages and rows -----------------------------------------------------------------------------------------


class Encoded(list[Any]):
    """A message as the parameters of `insert` after session_id, with the figures for its session's counters."""

    __slots__ = ("calls", "preview")
    calls: int
    preview: str | None

    @property
    def timestamp(self) -> float:
        at: float = self[_TIMESTAMP]
        return at


def encode(message: Mapping[str, Any], now: float, max_bytes: int) -> Encoded:
    """Encode a message of the agent, an archive or a third-party tool for storage."""
    get = message.get
    role, content = message["role"], get("content")
    if isinstance(content, str):
        content = columns.scrub(content)
    row = Encoded(_NO_VALUES)
    row.preview = columns.preview_of(content) if role == "user" else None
    row.calls = calls_of(role, get("tool_calls"))
    row[_ROLE] = columns.clean(str(role))
    row[_CONTENT], row[_KIND] = stored, _ = columns.encode_content(content)
    if stored is not None and len(stored) * 4 > max_bytes:
        _check_size(stored, max_bytes)
    at = get("timestamp")
    row[_TIMESTAMP] = now if at is None else columns.to_epoch(at, now)
    row[_OBSERVED] = 1 if get("observed") else 0
    escaped = []
    for name, value in message.items():  # only a few of the many columns have a value
        if value is None or name not in _FIELDS:
            continue
        index, column = _FIELDS[name]
        if name == column.key and message.get(column.name) is not None:
            continue
        if column.kind != "plain":
            value = _text(column, value)
            if "\0" in value:
                value = columns.escape(value)
                escaped.append(column.name)
        row[index] = value
    row[_ESCAPED] = ",".join(escaped) or None
    return row


def _text(column: MessageColumn, value: Any) -> str:
    if column.kind == "json":
        value = columns.encode_json(value)
    elif column.kind == "id":
        value = checked_id(str(value), what=column.name.replace("_", " "))
    return columns.scrub(str(value))


def _check_size(content: str, max_bytes: int) -> None:
    if len(content.encode()) > max_bytes:
        raise InvalidValue(
            f"a message of {len(content)} characters is larger than the limit of {max_bytes} bytes",
            hint="Send it as a file, or raise limits.message_bytes.",
        )


def calls_of(role: str, calls: Any) -> int:
    """How many tool calls a row makes; a tool's result makes none."""
    if calls is None or role == "tool":
        return 0
    if isinstance(calls, str):
        calls = columns.decode_json(calls, broken=calls)
    return len(calls) if isinstance(calls, list) else 1


def decode(row: Row) -> dict[str, Any]:
    """A full row for other tools: content decoded, tool calls parsed."""
    message = {column.name: value for column, value in zip(MESSAGE_COLUMNS, row, strict=True)}
    for name in (message.pop("escaped") or "").split(","):
        if name:
            message[name] = columns.unescape(message[name])
    message["content"] = columns.decode_content(message["content"], message.pop("content_kind"))
    if message["tool_calls"] is not None:
        message["tool_calls"] = columns.decode_json(message["tool_calls"], broken=[])
    return message


def _unescaped(escaped: str, values: Sequence[Any]) -> list[Any]:
    """The values of SHOWN_FIELDS without the escapes of those that `escaped` names."""
    names = escaped.split(",")
    return [
        columns.unescape(value) if value is not None and column.name in names else value
        for column, value in zip(SHOWN_FIELDS, values, strict=True)
    ]


def _list_of(stored: str) -> Any:
    return columns.decode_json(stored, broken=[])


_AS_CONVERSATION = """
def as_conversation(rows):
    turns = []
    for role, content, kind, timestamp, observed, escaped, {names} in rows:
        if kind != "text":
            content = decode_content(content, kind)
        if (role == "user" or role == "assistant") and type(content) is str:
            if "<memory-context" in content:  # a memory block that leaked into the transcript
                content = leaked.sub("", content)
            content = content.strip()
        if escaped:
            {names} = unescaped(escaped, ({names}))
        turn = {{"role": role, "content": content}}
        if timestamp is not None:
            turn["timestamp"] = timestamp
        if observed:
            turn["observed"] = True
        {fields}
        turns.append(turn)
    return turns
"""


def _compiled() -> Callable[[Iterable[Sequence[Any]]], list[dict[str, Any]]]:
    """`as_conversation`, written out from the table of columns: a loop over the columns of every row takes twice as
    long. `dataclasses` makes its methods the same way."""
    fields = []
    for column in SHOWN_FIELDS:
        decode = "" if column.kind != "json" else "list_of" if column.name == "tool_calls" else "decode_json"
        only = " and role == 'assistant'" if column.shown == "assistant" else ""
        fields.append(
            f"if {column.name} is not None{only}: turn[{column.key or column.name!r}] = {decode}({column.name})"
        )
    names = ", ".join(column.name for column in SHOWN_FIELDS)
    scope: dict[str, Any] = {
        "decode_content": columns.decode_content, "decode_json": columns.decode_json, "leaked": _LEAKED,
        "list_of": _list_of, "unescaped": _unescaped,
    }  # fmt: skip
    exec(_AS_CONVERSATION.format(names=names, fields="\n        ".join(fields)), scope)
    made: Callable[[Iterable[Sequence[Any]]], list[dict[str, Any]]] = scope["as_conversation"]
    return made


as_conversation = _compiled()
"""Rows of `{shown}` columns as provider messages, without empty keys."""


def as_stored(message: Mapping[str, Any], now: float, max_bytes: int) -> dict[str, Any]:
    """The message as `as_conversation` will return it once stored: encoded and decoded without a database."""
    row = encode(message, now, max_bytes)
    return as_conversation([[row[index] for index in _SHOWN_AT]])[0]


def without_repeats(turns: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Drop a user text that repeats the previous one with no answer between: a compression copied it."""
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
    """The messages with alternating roles: neighbours of one role merged, tool results without a call dropped."""
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


# -- reads -----------------------------------------------------------------------------------------------------


class LiveState(NamedTuple):
    """Tells a running conversation whether it knows the current transcript: equal states mean equal rows."""

    message_count: int
    rewind_count: int
    head_id: int
    """The id of the newest live row; 0 when there is none."""
    compressed: bool
    """Whether the conversation continues in another segment."""


class LiveRows(NamedTuple):
    state: LiveState
    ids: list[int]
    messages: list[dict[str, Any]]
    """The messages, as `get_messages_as_conversation` returns them."""
    turns: list[TurnId | None]
    """The turn of each message; None for one without a turn."""


class StoredTranscripts(Store):
    """The part of `SessionDB` that stores transcripts."""

    def append_messages(self, session_id: str, messages: Iterable[Mapping[str, Any]]) -> list[int]:
        """Append several rows in one commit, in order; returns their ids. They are durable when this returns."""
        rows = [encode(message, self.clock(), self.limits.message_bytes) for message in messages]
        return self.engine.write(lambda conn: [append(conn, session_id, row) for row in rows])

    def get_messages(
        self, session_id: str, include_inactive: bool = False, limit: int | None = None, offset: int = 0
    ) -> list[dict[str, Any]]:
        """Full rows, in order; only live ones unless `include_inactive`."""
        most = columns.NO_LIMIT if limit is None else max(limit, 0)
        params = (session_id, 0 if include_inactive else 1, most, max(offset, 0))
        return [decode(row) for row in self._rows(session_id, Q.of_session, params)]

    def get_messages_as_conversation(
        self,
        session_id: str,
        include_ancestors: bool = False,
        include_inactive: bool = False,
        repair_alternation: bool = False,
    ) -> list[dict[str, Any]]:
        """Provider messages; with ancestors, the messages of earlier segments come first."""
        active = 0 if include_inactive else 1

        def read(conn: Connection) -> list[Row]:
            segments = chain.ancestors(conn, session_id) if include_ancestors else [session_id]
            return [row for segment in segments for row in conn.rows(Q.conversation, (segment, active))]

        turns = as_conversation(self.look(session_id, read, [], snapshot=include_ancestors))
        if include_ancestors:
            turns = without_repeats(turns)
        return repaired(turns) if repair_alternation else turns

    def get_messages_around(self, session_id: str, around_message_id: int, window: int = 5) -> dict[str, Any]:
        """The message and up to `window` on each side, in any state; empty when it is not in the session."""
        nothing: dict[str, Any] = {"window": [], "messages_before": 0, "messages_after": 0}
        size, anchor = max(window, 0), row_id(around_message_id)

        def read(conn: Connection) -> dict[str, Any]:
            found = [decode(row) for row in conn.rows(Q.from_on, (session_id, anchor, size + 1))]
            if not found or found[0]["id"] != around_message_id:
                return nothing
            before = [decode(row) for row in conn.rows(Q.before, (session_id, anchor, size))][::-1]
            return {"window": before + found, "messages_before": len(before), "messages_after": len(found) - 1}

        return self.look(session_id, read, nothing, snapshot=True)

    def live_state(self, session_id: str) -> LiveState | None:
        """The present state; None when the session does not exist."""
        return self.look(session_id, lambda conn: state_in(conn, session_id), None)

    def live_rows(self, session_id: str, *, after: int = 0) -> LiveRows | None:
        """The live rows with a higher id than `after`, and the state they belong to, in one snapshot."""

        def read(conn: Connection) -> LiveRows | None:
            state = state_in(conn, session_id)
            if state is None:
                return None
            rows = conn.rows(Q.rows, (session_id, after))
            said = as_conversation([row[:-2] for row in rows])
            return LiveRows(state, [row[-1] for row in rows], said, [row[-2] for row in rows])

        return self.look(session_id, read, None, snapshot=True)

    def rows_until(self, session_id: str, head_id: int, count: int) -> LiveRows:
        """The `count` rows that were live when `head_id` was the newest one, as well as the store can tell.

        Rows that were undone since are live again here: /undo takes back the newest rows.
        """
        found = self._rows(session_id, Q.rows_until, (session_id, head_id))
        undone = [row for row in found if not (row[-2] or row[-1])]
        missing = count - (len(found) - len(undone))
        left_out = {row[-3] for row in (undone[:-missing] if missing > 0 else undone)}
        rows = [row for row in found if row[-3] not in left_out]
        state = LiveState(len(rows), 0, head_id, False)
        said = as_conversation([row[:-4] for row in rows])
        return LiveRows(state, [row[-3] for row in rows], said, [row[-4] for row in rows])

    def turn_rows(self, session_id: str, turn_id: TurnId) -> list[dict[str, Any]]:
        """The full rows that a turn wrote in one segment, in order, also those that were undone."""
        return [decode(row) for row in self._rows(session_id, Q.of_turn, (session_id, turn_id))]

    def said_in_turn(self, session_id: str, turn_id: TurnId, *, after: int = 0) -> dict[str, Any] | None:
        """The first user content of a turn, among the rows with a higher id than `after`; None without one."""
        found = self._rows(session_id, Q.said_in_turn, (session_id, turn_id, after))
        return as_conversation(found)[0] if found else None

    def as_stored(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """A message as it will be read back once stored. Nothing is read or written."""
        return as_stored(message, self.clock(), self.limits.message_bytes)

    def _rows(self, session_id: str, statement: Statement, params: tuple[Any, ...]) -> list[Row]:
        return self.look(session_id, lambda conn: conn.rows(statement, params), [])


def state_in(conn: Connection, session_id: str, *, below: int = columns.NO_LIMIT) -> LiveState | None:
    """`live_state`, in the caller's transaction; `below`: ignore rows from this id on when finding the head."""
    row = first(conn.rows(Q.state, (below, session_id)))
    return None if row is None else LiveState(row[0], row[1], row[2], bool(row[3]))


# -- rows in a larger transaction ------------------------------------------------------------------------------


def append(conn: Connection, session_id: str, row: Encoded) -> int:
    """Append one row to an open session; returns its id. It fails before its first write or not at all."""
    if is_possible_id(session_id):
        at = row.timestamp
        if conn.dialect == "postgresql":
            ids = conn.rows(Q.append, (row.calls, at, at, row.preview, session_id, *row))
            if ids:
                return int(ids[0][0])
        elif conn.run(Q.bump_within, (row.calls, at, row.preview, session_id, int(at // 60))) or conn.run(
            Q.bump, (row.calls, at, at, at, at, row.preview, session_id)
        ):
            conn.run(Q.insert, (session_id, *row))
            return conn.last_id()  # RETURNING would cost a third of the statement
    if not conn.rows(chain.Q.node, (checked_id(session_id),)):
        raise IntegrityError(f"no session {session_id!r:.80}", hint="Create it first.")
    raise SessionEnded(session_id, chain.tip(conn, SessionId(session_id)))


def insert_rows(
    conn: Connection, session_id: str, rows: Sequence[Encoded], *, started_at: float, preview: str | None = None
) -> None:
    """Insert rows and set the session's counters to exactly these rows; `preview` overrides theirs."""
    if rows:
        conn.many(Q.insert, [(session_id, *row) for row in rows])
    last_active = max((row.timestamp for row in rows), default=started_at)
    preview = preview or next((row.preview for row in rows if row.preview), None)
    counts = {"message_count": len(rows), "tool_call_count": sum(row.calls for row in rows)}
    set_columns(conn, "sessions", session_id, **counts, last_active=last_active, preview=preview)
    settle_minute(conn, session_id)


def live_counts(conn: Connection, session_id: str, *, after: int = 0) -> tuple[int, int, float | None]:
    """(rows, tool calls, newest time) of the live rows with a higher id than `after`."""
    found = conn.rows(Q.live_after, (session_id, after))
    calls = sum(calls_of(role, tool_calls) for role, tool_calls, _ in found)
    return len(found), calls, max((timestamp for _, _, timestamp in found), default=None)


def settle_minute(conn: Connection, session_id: str) -> None:
    """Recompute the minute of `last_active`, which lists sort by first, after that column was set directly."""
    if conn.dialect == "sqlite":
        conn.run(Q.settle_minute, (session_id,))


def row_id(value: Any) -> int:
    """A message id from outside as a number; an impossible one matches nothing."""
    return value if isinstance(value, int) and -(2**63) <= value < 2**63 else -1
