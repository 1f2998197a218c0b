"""Encode values as columns, and decode columns to values.

A message's content is text or a structure (a list of parts, a dict). Its column `content_kind` says which:
`text` is the text itself, `json` is JSON, `escaped` is text in which NUL, which PostgreSQL cannot hold, is written
`\\0` and a backslash `\\\\`. Other text columns use the same escape and are then named in the column `escaped`.
Text from outside may carry lone surrogates; neither engine can store them, so they become U+FFFD. hermes-agent marked
structures with a NUL prefix; the import of old homes reads that prefix, and nothing writes it.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from hermes_config.limits import Limits
from hermes_state.errors import InvalidValue
from hermes_state.ids import checked_id


class MessageColumn(NamedTuple):
    """One column of `messages`. A new column is one line of `MESSAGE_COLUMNS` and a migration."""

    name: str
    kind: Literal["state", "own", "text", "json", "id", "plain"] = "text"
    """`state`: not part of the message's text; `own`: `transcript` has code for it; `plain`: stored unchanged."""
    shown: Literal["never", "always", "assistant"] = "never"
    """In a provider message: never, whenever it has a value, or only in the assistant's messages."""
    key: str = ""
    """The key in a provider message, where it differs from the column's name."""
    type: Literal["text", "bigint", "float8"] = "text"
    """The PostgreSQL type; SQLite needs none."""


MESSAGE_COLUMNS = (
    MessageColumn("id", "state", type="bigint"),
    MessageColumn("session_id", "state"),
    MessageColumn("role", "own", "always"),
    MessageColumn("content", "own", "always"),
    MessageColumn("content_kind", "own", "always"),
    MessageColumn("tool_call_id", shown="always"),
    MessageColumn("tool_calls", "json", "always"),
    MessageColumn("tool_name", shown="always"),
    MessageColumn("effect_disposition", shown="always"),
    MessageColumn("timestamp", "own", "always", type="float8"),
    MessageColumn("token_count", "plain", type="bigint"),
    MessageColumn("finish_reason", shown="assistant"),
    MessageColumn("reasoning", shown="assistant"),
    MessageColumn("reasoning_content", shown="assistant"),
    MessageColumn("reasoning_details", "json", "assistant"),
    MessageColumn("codex_reasoning_items", "json", "assistant"),
    MessageColumn("codex_message_items", "json", "assistant"),
    MessageColumn("platform_message_id", "id", "always", key="message_id"),
    MessageColumn("observed", "own", "always", type="bigint"),
    MessageColumn("active", "state", type="bigint"),
    MessageColumn("compacted", "state", type="bigint"),
    MessageColumn("api_content", shown="always"),
    MessageColumn("escaped", "own", "always"),
    MessageColumn("turn_id", "plain"),
    MessageColumn("person_id", "plain"),
    MessageColumn("origin"),
)
SAID = tuple(column for column in MESSAGE_COLUMNS if column.kind != "state")
"""The columns that hold a message's content, in the order of `transcript.Encoded`."""
_SHOWN_OWN = ("role", "content", "content_kind", "timestamp", "observed", "escaped")
SHOWN_FIELDS = tuple(column for column in SAID if column.shown != "never" and column.name not in _SHOWN_OWN)
SHOWN = (*_SHOWN_OWN, *(column.name for column in SHOWN_FIELDS))
"""The columns that make up a provider message, in the order in which `transcript.as_conversation` takes them."""

TITLE_CHARS = 100
PREVIEW_CHARS = 60
_JOINER = "\u200d"
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_dumps = json.JSONEncoder(ensure_ascii=False, default=str).encode
_loads = json.JSONDecoder().decode


def scrub(text: str) -> str:
    """`text` without lone surrogates; a surrogate pair that arrived in two pieces becomes its character."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def clean(value: Any) -> Any:
    """Text that both engines can store: no lone surrogate, no NUL. Other values stay unchanged."""
    return scrub(value).replace("\0", "") if isinstance(value, str) else value


def escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\0", "\\0")


def unescape(text: str) -> str:
    return _ESCAPE.sub(lambda m: "\0" if m[1] == "0" else m[1], text)


def encode_content(content: Any) -> tuple[str | None, str]:
    """The content as (column value, kind)."""
    if content is None:
        return None, "text"
    if not isinstance(content, str):
        return scrub(_dumps(content)), "json"
    if "\0" in content:
        return escape(content), "escaped"
    return content, "text"


def decode_content(stored: str | None, kind: str) -> Any:
    if kind == "text" or stored is None:
        return stored
    if kind == "json":
        try:
            return json.loads(stored)
        except ValueError:  # a row that other software wrote: show it unchanged
            return stored
    return unescape(stored)


def encode_json(value: Any) -> str | None:
    """A structured column. A text is assumed to be JSON already, as third-party callers pass it."""
    if value is None:
        return None
    return value if isinstance(value, str) else _dumps(value)


def decode_json(stored: str | None, *, broken: Any = None) -> Any:
    if not stored:
        return None
    try:
        return _loads(stored)
    except ValueError:
        return broken


def decode_object(stored: str | None) -> dict[str, Any]:
    """A column that should hold a JSON object; empty when it holds anything else."""
    found = decode_json(stored)
    return found if isinstance(found, dict) else {}


def to_epoch(value: Any, now: float) -> float:
    """Seconds since 1970 from a number or a datetime; the present time for anything else."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        number = float(value)
        return number if math.isfinite(number) else now
    if isinstance(value, dt.datetime):
        return value.timestamp()
    return now


def number(
    name: str, value: object, *, least: float = -math.inf, most: float = math.inf, what: str = "a number"
) -> float:
    """`value` when it is a finite number within the bounds; else raise `InvalidValue`."""
    if not isinstance(value, (int, float)) or not math.isfinite(value) or not least <= value <= most:
        raise InvalidValue(f"{name} must be {what}, not {value!r:.60}")
    return float(value)


def seconds(name: str, value: object) -> float:
    return max(number(name, value, what="a number of seconds"), 0.0)


def preview_of(content: Any) -> str | None:
    """The beginning of a user text for lists; for a structure, the beginning of its text parts."""
    text = content if isinstance(content, str) else text_of(content)
    start = text[: PREVIEW_CHARS * 4]
    if not start.isprintable():  # line breaks and the like; most texts have none
        start = scrub(start).replace("\r", " ").replace("\n", " ").replace("\0", "")
    line = start.strip()
    if len(line) <= PREVIEW_CHARS:
        return line or None
    return line[:PREVIEW_CHARS] + "..."


def text_of(content: Any) -> str:
    """All text that a person sees in a content value."""
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        part = content.get("text")
        return part if isinstance(part, str) else text_of(content.get("content"))
    if isinstance(content, list):
        return " ".join(t for t in map(text_of, content) if t)
    return ""


def _is_emoji(char: str) -> bool:
    """Whether the character is an emoji, a skin tone or the selector of the coloured form."""
    import unicodedata

    return unicodedata.category(char) in ("So", "Sk") or char == "\ufe0f"


def sanitize_title(title: str | None, *, most: int = TITLE_CHARS) -> str | None:
    """A title for lists: one line, no control or invisible characters; None for an empty one.

    The joiner inside an emoji (a family, a profession) stays: without it the emoji falls apart into several.
    """
    if not title:
        return None
    import unicodedata

    kept: list[str] = []
    scrubbed = scrub(title)
    for char, following in zip(scrubbed, f"{scrubbed[1:]} ", strict=True):
        if char.isspace():
            kept.append(" ")
        elif char == _JOINER:
            if kept and _is_emoji(kept[-1]) and _is_emoji(following):
                kept.append(char)
        elif unicodedata.category(char) not in ("Cc", "Cf", "Cs") and char != "\ufffc":
            kept.append(char)
    clean = " ".join("".join(kept).split())
    if not clean:
        return None
    if len(clean) > most:
        raise InvalidValue(f"Title too long ({len(clean)} chars, max {most})")
    return clean


DAY = 86_400.0
NO_LIMIT = 2**62
NOTE_CHARS = 2_000
# The size of an index entry of several ids on PostgreSQL (about 2,700 bytes), less the rest of the key.
KEY_BYTES = 2_000


def to_json(value: Mapping[str, Any] | None, limits: Limits, *, what: str) -> str | None:
    if value is None:
        return None
    text = scrub(_dumps(value))
    if len(text) > limits.message_bytes // 4 and len(text.encode()) > limits.message_bytes:
        raise InvalidValue(f"{what} is larger than {limits.message_bytes} bytes", hint="Nothing was stored.")
    return text


def from_json(stored: str | None) -> Any:
    return None if stored is None else json.loads(stored)


T = TypeVar("T")
_FROM_COLUMN: dict[str, Callable[[Any], Any]] = {
    "dict": from_json, "Mapping": from_json, "tuple": lambda stored: tuple(json.loads(stored)), "bool": bool,
}  # fmt: skip


class RowType(Generic[T]):
    """Makes objects of a dataclass from rows: its fields are the columns, in their order.

    A dict or a tuple is stored as JSON, a bool as 0 or 1.
    """

    def __init__(self, kind: type[T], **names: str) -> None:
        """`names`: the columns that have another name than their field."""
        found = fields(kind)  # type: ignore[arg-type]
        self._kind = kind
        self.columns = ", ".join(names.get(one.name, one.name) for one in found)
        """For the SELECT of such rows."""
        kinds = [_FROM_COLUMN.get(str(one.type).partition("[")[0]) for one in found]
        self._convert = [(at, convert) for at, convert in enumerate(kinds) if convert is not None]

    def __call__(self, row: Sequence[Any]) -> T:
        values = list(row)
        for at, convert in self._convert:
            values[at] = convert(values[at])
        return self._kind(*values)


def note(text: str | None) -> str | None:
    """A reason or an error as a column: storable and never longer than a screen."""
    return clean(text[:NOTE_CHARS]) if text else None


def outside_key(**ids: str) -> None:
    """Refuse outside ids that are too long together for one index entry; an empty id is allowed."""
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
