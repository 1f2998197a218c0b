"""What an error answer says: its words, its codes, its kind, and how long to wait.

The provider's own error type or code is asked first, then phrases of its message (a context overflow has no code at
half of them), then the HTTP status.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple

from hermes_agent.models.base import ErrorKind

_CODES: dict[str, ErrorKind] = {
    "context_length_exceeded": "context_overflow",
    "exceed_context_size_error": "context_overflow",
    "model_context_window_exceeded": "context_overflow",
    "insufficient_quota": "billing",
    "billing_error": "billing",
    "enforced_spend_limit_reached": "billing",
    "credit_balance_exhausted": "billing",
    "invalid_api_key": "auth",
    "authentication_error": "auth",
    "permission_error": "auth",
    "model_not_found": "model_not_found",
    "not_found_error": "model_not_found",
    "rate_limit_error": "rate_limit",
    "rate_limit_exceeded": "rate_limit",
    "resource_exhausted": "rate_limit",
    "overloaded_error": "overloaded",
    "server_is_overloaded": "overloaded",
    "service_unavailable_error": "overloaded",
    "slow_down": "rate_limit",
    "request_too_large": "payload_too_large",
    "timeout_error": "timeout",
    "content_policy_violation": "policy",
    "content_filter": "policy",
}
# Text, compiled by `re` when an error is to be read: most processes never see one.
_PHRASES: tuple[tuple[ErrorKind, str], ...] = (
    (
        "context_overflow",
        (
            r"maximum context length|context[ _]length|context window|context size|context limit|prompt is too long"
            r"|prompt exceeds|input is too long|input length.*exceed|input token count.*exceeds"
            r"|reduce the length of the (messages|prompt|input)|too many (input )?tokens in"
        ),
    ),
    (
        "billing",
        (
            r"credit balance|insufficient (credits?|balance|funds|quota)|exceeded your current quota|out of credits"
            r"|(more|requires?) credits|payment required|spend(ing)? limit"
        ),
    ),
    (
        "model_not_found",
        (
            r"not a valid model|unknown model|invalid model|\bmodel\b.{0,80}?(not found|does not exist|no longer)"
            r"|no (allowed providers|endpoints found)|try pulling it"
        ),
    ),
    ("auth", r"(invalid|incorrect|missing|expired|no) (api|auth)[ -]?(key|credentials)"),
    ("policy", r"content policy|usage polic|flagged|moderation|safety (system|filter)"),
    ("overloaded", r"overloaded|at capacity|server is busy|temporarily unavailable"),
)
_STATUS: dict[int, ErrorKind] = {
    401: "auth", 402: "billing", 403: "auth", 404: "model_not_found", 408: "timeout", 413: "payload_too_large",
    429: "rate_limit", 503: "overloaded", 504: "timeout", 529: "overloaded",
}  # fmt: skip
# A limit on tokens a minute speaks of tokens too, and a refused key may mention the model: there the status decides.
_STATUS_FIRST = frozenset({401, 402, 413, 429, 529})

_RETRY_PHRASE = r"(?:try again|retry) (?:in|after) (\d+(?:\.\d+)?) ?(ms|s|m)?"


class Said(NamedTuple):
    message: str
    codes: tuple[str, ...]


def read_body(body: bytes) -> Said:
    text = body.decode("utf-8", "replace")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        # A proxy's page says nothing a person wants to read.
        return Said("" if text.lstrip().startswith("<") else text, ())
    if isinstance(value, list) and value:
        value = value[0]
    return read_payload(value) if isinstance(value, Mapping) else Said(str(value), ())


def read_payload(payload: Mapping[str, Any]) -> Said:
    inner = payload.get("error")
    error: Mapping[str, Any] = inner if isinstance(inner, Mapping) else payload
    message = inner if isinstance(inner, str) else error.get("message") or error.get("detail") or ""
    metadata = error.get("metadata")
    if isinstance(metadata, Mapping) and isinstance(metadata.get("raw"), str):
        message = f"{message}: {metadata['raw']}"  # OpenRouter: what the provider behind it said
    details = error.get("details")
    more = (details.get("error_code"),) if isinstance(details, Mapping) else ()
    names = (error.get("type"), error.get("code"), error.get("status"), *more)
    codes = tuple(str(name).lower() for name in names if isinstance(name, str | int))
    return Said(message if isinstance(message, str) else json.dumps(message), codes)


def kind_of(status: int, said: Said) -> ErrorKind:
    for code in said.codes:
        if code in _CODES:
            return _CODES[code]
    for kind, phrase in _PHRASES:
        if (status not in _STATUS_FIRST or kind == "billing") and re.search(phrase, said.message, re.IGNORECASE):
            return kind
    if status in _STATUS:
        return _STATUS[status]
    return "server" if status >= 500 else "bad_request"


def retry_after(headers: Mapping[str, str], said: Said | None = None, *, now: datetime | None = None) -> float | None:
    """Seconds the server asks to wait: `retry-after-ms`, `Retry-After` (seconds or a date), or words."""
    if (milliseconds := _number(headers.get("retry-after-ms"))) is not None:
        return milliseconds / 1000
    header = headers.get("retry-after")
    if (seconds := _number(header)) is not None:
        return seconds
    if header:
        try:
            at = parsedate_to_datetime(header)
        except ValueError:
            at = None
        if at is not None:
            at = at if at.tzinfo else at.replace(tzinfo=UTC)
            return max(0.0, (at - (now or datetime.now(UTC))).total_seconds())
    if said is not None and (found := re.search(_RETRY_PHRASE, said.message, re.IGNORECASE)):
        return float(found[1]) * {"ms": 0.001, "m": 60.0}.get((found[2] or "s").lower(), 1.0)
    return None


def _number(text: str | None) -> float | None:
    try:
        value = float(text) if text else None
    except ValueError:
        return None
    return value if value is not None and 0 <= value < 1e9 else None
