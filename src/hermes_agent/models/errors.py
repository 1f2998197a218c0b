"""Turns provider and network errors into a `ModelError` with one kind and one clear line.

The error quotes at most one short line of the answer, without keys; its hint says what the person can do now. The kind
comes from the provider's error type or code, else from phrases of its message (half of the providers have no code for a
context overflow), else from the HTTP status.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from hermes_agent.models.base import Endpoint, ErrorKind, ModelError, is_own_machine

_QUOTE_CHARS = 300
# The provider computed nothing for these statuses. After other errors (500, 502, 504, 408) a call may be billed.
_REFUSED = frozenset({*range(400, 500), 501, 503, 529} - {408})

_FALLBACK = "Try again{wait}, or add fallback_providers to config.yaml."
_KINDS: dict[ErrorKind, tuple[str, str]] = {
    "auth": ("refused the key", "{key}"),
    "billing": (
        "refused the call: the account has no credit left",
        "Add credit at the provider, or choose another model with /model (--model at a shell).",
    ),
    "rate_limit": ("asks to slow down", _FALLBACK),
    "overloaded": ("is overloaded", _FALLBACK),
    "context_overflow": (
        "says the conversation is too long for the model",
        "Run /compress, or start afresh with /new.",
    ),
    "payload_too_large": ("says the request is too large", "Run /compress, or send less at once."),
    "bad_request": ("did not accept the request", ""),
    "model_not_found": (
        "does not know the model",
        "Check model.default and model.base_url, or choose another with /model (--model at a shell).",
    ),
    "policy": ("refused the content", "Say it differently, or choose another model with /model (--model at a shell)."),
    "network": ("could not be reached", ""),
    "timeout": ("did not answer in time", "Try again."),
    "server": ("had an internal error", "Try again{wait}."),
    "protocol": ("gave an answer that cannot be read", "Try again; if it stays, check model.base_url."),
    "budget": ("was not called", ""),
}
"""Kind → (the provider's action, the hint for the person)."""
_SECRET = (
    r"(?i)\b(?:sk|pk|rk|gsk|xai|hf|nvapi|pplx|csk)[-_][A-Za-z0-9*._-]{5,}|\bAIza[A-Za-z0-9*_-]{6,}"
    r"|\b(?:or|key|ak)[-_](?=[A-Za-z*._-]*\d)[A-Za-z0-9*._-]{5,}|\bbearer\s+(?=\D{0,40}\d)\S{8,}"
    r"|(?<=key=)[^\s&]+|\b[A-Za-z0-9_-]*\*{3,}[A-Za-z0-9_*-]*"
)


def from_response(endpoint: Endpoint, status: int, headers: Mapping[str, str], body: bytes) -> ModelError:
    """The error of an unsuccessful HTTP response."""
    said = read_body(body)
    if 300 <= status < 400:
        error = ModelError("bad_request", f"{_name(endpoint)} sends the call elsewhere ({status})", status=status)
        error.hint, error.unbilled = "Set model.base_url to the final address.", True
        return _placed(error, endpoint)
    kind = kind_of(status, said)
    verb = "wants a key" if kind == "auth" and not endpoint.api_key else _KINDS[kind][0]
    message = f"{_name(endpoint)} {verb} ({status})"
    error = ModelError(
        kind, message, status=status, retry_after=retry_after(headers, said), unbilled=status in _REFUSED
    )
    return _placed(_with_quote(error, said, endpoint), endpoint)


def from_event(payload: Mapping[str, Any]) -> ModelError:
    """An error event inside a successful stream. `placed` adds the endpoint's name."""
    said = read_payload(payload)
    status = next((int(code) for code in said.codes if code.isdecimal() and len(code) == 3), None)
    kind = kind_of(status or 500, said)
    return _with_quote(
        ModelError(kind, f"the model {_KINDS[kind][0]} in the middle of its answer", status=status), said, None
    )


def from_network(endpoint: Endpoint, error: Exception) -> ModelError:
    """The error of the transport, or a time-out. The original is not quoted if it might hold the key."""
    import ssl

    import httpx2

    name, host = _name(endpoint), urlsplit(endpoint.base_url).hostname or endpoint.base_url
    cause = next((one for one in _chain(error) if isinstance(one, ssl.SSLCertVerificationError)), None)
    kind: ErrorKind = "network"
    sent = True
    if cause is not None:
        sent = False
        kind, what = "bad_request", f"the certificate of {host} cannot be trusted: {cause.verify_message}"
        hint = "Check model.base_url, or name your own authority's file in SSL_CERT_FILE."
    elif isinstance(error, TimeoutError | httpx2.TimeoutException):
        sent = not isinstance(error, httpx2.ConnectTimeout)
        kind, what = "timeout", f"{name} {_KINDS['timeout'][0]}"
        hint = "Try again, or raise limits.model_first_byte_ms when the model is slow to start."
    elif isinstance(error, httpx2.ConnectError):
        sent = False
        what, hint = f"{host} cannot be reached: {_reason(error)}", _hint_unreachable(endpoint)
    elif isinstance(error, httpx2.LocalProtocolError | httpx2.InvalidURL | httpx2.UnsupportedProtocol | UnicodeError):
        sent = False
        kind, what = "bad_request", f"the address or a header of {name} is not valid"
        hint = "Check model.base_url, model.headers and the key for stray characters."
    elif isinstance(error, httpx2.DecodingError):
        kind, what, hint = "protocol", f"{name} sent a compressed answer that is damaged", ""
    else:
        what, hint = f"the connection to {name} broke off", "Try again."
    return _placed(ModelError(kind, what, hint=hint, unbilled=not sent), endpoint)


def placed(error: ModelError, endpoint: Endpoint) -> ModelError:
    """Add the endpoint's name and a hint to a wire's error; a wire does not know its endpoint."""
    if not error.where:
        error.what = clean(error.what, endpoint)
        _placed(error, endpoint)
    return error


def clean(text: str, endpoint: Endpoint | None) -> str:
    """The text as one short line without keys."""
    if endpoint is not None:
        for secret in (
            endpoint.api_key,
            *(key for key, _ in endpoint.more_keys),
            *(text for _, text in endpoint.headers),
        ):
            if len(secret) >= 4:
                text = text.replace(secret, "[key]")
    text = re.sub(_SECRET, "[key]", text)
    text = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return text if len(text) <= _QUOTE_CHARS else text[: _QUOTE_CHARS - 1] + "…"


def _with_quote(error: ModelError, said: ErrorText, endpoint: Endpoint | None) -> ModelError:
    quoted = clean(said.message, endpoint).rstrip(".")
    if quoted:
        error.what = f"{error.what}: {quoted}"
    return error


def _placed(error: ModelError, endpoint: Endpoint) -> ModelError:
    error.where = endpoint.where
    error.hint = error.hint or _hint(error, endpoint)
    error.args = (error.what,)
    return error


def _hint(error: ModelError, endpoint: Endpoint) -> str:
    key = f"Check {endpoint.key_from}." if endpoint.key_from else "hermes setup asks for one."
    wait, seconds = " in a moment", error.retry_after
    if seconds:
        wait = f" in {seconds:.0f} s" if seconds < 120 else f" in {seconds / 60:.0f} min"
    return _KINDS[error.kind][1].format(key=key, wait=wait)


def _hint_unreachable(endpoint: Endpoint) -> str:
    if is_own_machine(endpoint.base_url):
        return f"Start {_local(endpoint)}, or change model.base_url."
    return "Check the network connection and model.base_url."


def _local(endpoint: Endpoint) -> str:
    return f"the model server at {urlsplit(endpoint.base_url).netloc.rpartition('@')[2]}"


def _name(endpoint: Endpoint) -> str:
    if endpoint.provider == "custom" and is_own_machine(endpoint.base_url):
        return _local(endpoint)
    if endpoint.provider == "custom":
        return urlsplit(endpoint.base_url).hostname or "the model server"
    return endpoint.provider


def _chain(error: BaseException | None) -> list[BaseException]:
    found: list[BaseException] = []
    while error is not None and error not in found:
        found.append(error)
        error = error.__cause__ or error.__context__
    return found


def _reason(error: Exception) -> str:
    """The operating system's message, without the wrapping of three libraries."""
    import socket

    chain = _chain(error)
    if any(isinstance(one, socket.gaierror) for one in chain) or "getaddrinfo" in str(error):
        return "its name is not known (DNS)"
    if any(isinstance(one, ConnectionRefusedError) for one in chain):
        return "connection refused"
    strings = [one.strerror for one in chain if isinstance(one, OSError) and one.strerror]
    return strings[-1].lower() if strings else "no connection"


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
# Kept as text and compiled on the first error: most processes never see one.
_PHRASES: dict[ErrorKind, str] = {
    "context_overflow": (
        r"maximum context length|context[ _]length|context window|context size|context limit|prompt is too long"
        r"|prompt exceeds|input is too long|input length.*exceed|input token count.*exceeds"
        r"|reduce the length of the (messages|prompt|input)|too many (input )?tokens in"
    ),
    "billing": (
        r"credit balance|insufficient (credits?|balance|funds|quota)|exceeded your current quota|out of credits"
        r"|(more|requires?) credits|payment required|spend(ing)? limit"
    ),
    "model_not_found": (
        r"not a valid model|unknown model|invalid model|\bmodel\b.{0,80}?(not found|does not exist|no longer)"
        r"|no (allowed providers|endpoints found)|try pulling it"
    ),
    "auth": r"(invalid|incorrect|missing|expired|no) (api|auth)[ -]?(key|credentials)",
    "policy": r"content policy|usage polic|flagged|moderation|safety (system|filter)",
    "overloaded": r"overloaded|at capacity|server is busy|temporarily unavailable",
}
_STATUS: dict[int, ErrorKind] = {
    401: "auth", 402: "billing", 403: "auth", 404: "model_not_found", 408: "timeout", 413: "payload_too_large",
    429: "rate_limit", 503: "overloaded", 504: "timeout", 529: "overloaded",
}  # fmt: skip
# A limit on tokens a minute speaks of tokens too, and a refused key may mention the model: there the status decides.
_STATUS_FIRST = frozenset({401, 402, 413, 429, 529})

_RETRY_PHRASE = r"(?:try again|retry) (?:in|after) (\d+(?:\.\d+)?) ?(ms|s|m)?"


class ErrorText(NamedTuple):
    message: str
    codes: tuple[str, ...]


def read_body(body: bytes) -> ErrorText:
    text = body.decode("utf-8", "replace")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        # A proxy's page says nothing a person wants to read.
        return ErrorText("" if text.lstrip().startswith("<") else text, ())
    if isinstance(value, list) and value:
        value = value[0]
    return read_payload(value) if isinstance(value, Mapping) else ErrorText(str(value), ())


def read_payload(payload: Mapping[str, Any]) -> ErrorText:
    inner = payload.get("error")
    error: Mapping[str, Any] = inner if isinstance(inner, Mapping) else payload
    message = inner if isinstance(inner, str) else error.get("message") or error.get("detail") or ""
    metadata = error.get("metadata")
    if isinstance(metadata, Mapping) and isinstance(metadata.get("raw"), str):
        message = f"{message}: {metadata['raw']}"  # OpenRouter quotes the error of the provider behind it here
    details = error.get("details")
    more = (details.get("error_code"),) if isinstance(details, Mapping) else ()
    names = (error.get("type"), error.get("code"), error.get("status"), *more)
    codes = tuple(str(name).lower() for name in names if isinstance(name, str | int))
    return ErrorText(message if isinstance(message, str) else json.dumps(message), codes)


def kind_of(status: int, said: ErrorText) -> ErrorKind:
    for code in said.codes:
        if code in _CODES:
            return _CODES[code]
    for kind, phrase in _PHRASES.items():
        if (status not in _STATUS_FIRST or kind == "billing") and re.search(phrase, said.message, re.IGNORECASE):
            return kind
    if status in _STATUS:
        return _STATUS[status]
    return "server" if status >= 500 else "bad_request"


def retry_after(
    headers: Mapping[str, str], said: ErrorText | None = None, *, now: datetime | None = None
) -> float | None:
    """Seconds the server asks to wait: from `retry-after-ms`, `Retry-After` (seconds or a date), or its message."""
    if (milliseconds := _number(headers.get("retry-after-ms"))) is not None:
        return milliseconds / 1000
    header = headers.get("retry-after")
    if (seconds := _number(header)) is not None:
        return seconds
    if header:
        from email.utils import parsedate_to_datetime  # late: few answers have a date

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
