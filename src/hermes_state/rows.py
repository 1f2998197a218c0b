"""How the parts that keep work (inbox, outbox, turns …) turn values into columns, and remove rows in small steps.

Payloads are JSON objects, reasons are short texts, ids from outside are opaque. Everything a caller hands in is made
storable on both engines here (no NUL, no lone surrogate, a bounded size) or refused in one line.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hermes_config.limits import Limits
from hermes_state import values
from hermes_state.errors import InvalidValue
from hermes_state.ids import checked_id
from hermes_state.statements import Statement
from hermes_state.store import Store

DAY = 86_400.0
NO_LIMIT = 2**62
NOTE_CHARS = 2_000
# What an index entry of several ids may hold on PostgreSQL (some 2,700 bytes), with room for the rest of the key.
KEY_BYTES = 2_000
_BATCH = 500
_encode = json.JSONEncoder(ensure_ascii=False, default=str).encode


def to_json(value: Mapping[str, Any] | None, limits: Limits, *, what: str) -> str | None:
    if value is None:
        return None
    text = values.scrub(_encode(value))
    if len(text) > limits.message_bytes // 4 and len(text.encode()) > limits.message_bytes:
        raise InvalidValue(f"{what} is larger than {limits.message_bytes} bytes", hint="Nothing was stored.")
    return text


def from_json(stored: str | None) -> Any:
    return None if stored is None else json.loads(stored)


def decoded(row: Sequence[Any], *at: int) -> list[Any]:
    """The row with the JSON columns at these places decoded."""
    columns = list(row)
    for place in at:
        columns[place] = from_json(columns[place])
    return columns


def note(text: str | None) -> str | None:
    """A reason or an error as a column: storable, and never longer than a screen."""
    return values.scrub(text[:NOTE_CHARS]).replace("\0", "\N{REPLACEMENT CHARACTER}") if text else None


def outside_key(**ids: str) -> None:
    """Refuse ids from outside that cannot stand together in one index entry; an empty one is allowed."""
    for name, value in ids.items():
        if value != "":
            checked_id(value, what=name.replace("_", " "))
    size = sum(len(value.encode()) for value in ids.values())
    if size > KEY_BYTES:
        raise InvalidValue(f"{' and '.join(ids).replace('_', ' ')} are too long together ({size} bytes)")


def numbers(ids: Iterable[int]) -> str:
    """The parameter of `IN {numbers}`."""
    return json.dumps([int(i) for i in ids])


def texts(ids: Iterable[str]) -> str:
    """The parameter of `IN {texts}`."""
    return json.dumps(list(ids))


def remove_in_steps(store: Store, statement: Statement, *params: Any) -> int:
    """Run a bounded DELETE (its last parameter is the bound) until nothing is left; short transactions each."""
    removed = 0
    while True:
        step = store.engine.write(lambda conn: conn.run(statement, (*params, _BATCH)))
        removed += step
        if step < _BATCH:
            return removed
