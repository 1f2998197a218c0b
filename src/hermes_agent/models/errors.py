"""From what a provider or the network said to a `ModelError` with one kind and one clear line.

What is quoted from an answer is one short line without keys; the hint says what the person can do now. How the kind is
found stands in `error_kinds`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from hermes_agent.models import error_kinds
from hermes_agent.models.base import Endpoint, ErrorKind, ModelError

_QUOTE_CHARS = 300

_WHAT: dict[ErrorKind, str] = {
    "auth": "refused the key",
    "billing": "refused the call: the account has no credit left",
    "rate_limit": "asks to slow down",
    "overloaded": "is overloaded",
    "context_overflow": "says the conversation is too long for the model",
    "payload_too_large": "says the request is too large",
    "bad_request": "did not accept the request",
    "model_not_found": "does not know the model",
    "policy": "refused the content",
    "network": "could not be reached",
    "timeout": "did not answer in time",
    "server": "had an internal error",
    "protocol": "gave an answer that cannot be read",
    "budget": "was not called",
}
_SECRET = (
    r"(?i)\b(?:sk|pk|rk|gsk|xai|hf|nvapi|pplx|csk|or|key|ak)[-_][A-Za-z0-9*._-]{5,}|\bAIza[A-Za-z0-9*_-]{6,}"
    r"|\bbearer\s+\S+|(?<=key=)[^\s&]+|\b[A-Za-z0-9_-]*\*{3,}[A-Za-z0-9_*-]*"
)


def from_response(endpoint: Endpoint, status: int, headers: Mapping[str, str], body: bytes) -> ModelError:
    """An answer that is no success."""
    said = error_kinds.read_body(body)
    if 300 <= status < 400:
        error = ModelError("bad_request", f"{_name(endpoint)} sends the call elsewhere ({status})", status=status)
        error.hint = "Set model.base_url to the final address."
        return _placed(error, endpoint)
    kind = error_kinds.kind_of(status, said)
    message = f"{_name(endpoint)} {_WHAT[kind]} ({status})"
    wait = error_kinds.retry_after(headers, said)
    return _placed(_with_quote(ModelError(kind, message, status=status, retry_after=wait), said, endpoint), endpoint)


def from_event(payload: Mapping[str, Any]) -> ModelError:
    """An error inside a stream that began well. `placed` adds whose it is."""
    said = error_kinds.read_payload(payload)
    status = next((int(code) for code in said.codes if code.isdecimal() and len(code) == 3), None)
    kind = error_kinds.kind_of(status or 500, said)
    return _with_quote(
        ModelError(kind, f"the model {_WHAT[kind]} in the middle of its answer", status=status), said, None
    )


def from_network(endpoint: Endpoint, error: Exception) -> ModelError:
    """What the transport raised, or a time-out. The original is not quoted where it might hold the key."""
    import ssl

    import httpx2

    name, host = _name(endpoint), urlsplit(endpoint.base_url).hostname or endpoint.base_url
    cause = next((one for one in _chain(error) if isinstance(one, ssl.SSLCertVerificationError)), None)
    if cause is not None:
        found = ModelError("bad_request", f"the certificate of {host} cannot be trusted: {cause.verify_message}")
        found.hint = "Check model.base_url, or name your own authority's file in SSL_CERT_FILE."
    elif isinstance(error, httpx2.ConnectTimeout | TimeoutError | httpx2.TimeoutException):
        found = ModelError("timeout", f"{name} {_WHAT['timeout']}")
        found.hint = "Try again, or raise limits.model_first_byte_ms when the model is slow to start."
    elif isinstance(error, httpx2.ConnectError):
        found = ModelError("network", f"{host} cannot be reached: {_reason(error)}")
        found.hint = _hint_unreachable(endpoint)
    elif isinstance(error, httpx2.LocalProtocolError | httpx2.InvalidURL | httpx2.UnsupportedProtocol | UnicodeError):
        found = ModelError("bad_request", f"the address or a header of {name} is not valid")
        found.hint = "Check model.base_url, model.headers and the key for stray characters."
    elif isinstance(error, httpx2.DecodingError):
        found = ModelError("protocol", f"{name} sent a compressed answer that is damaged")
    else:
        found = ModelError("network", f"the connection to {name} broke off")
        found.hint = "Try again."
    return _placed(found, endpoint)


def placed(error: ModelError, endpoint: Endpoint) -> ModelError:
    """An error of a wire, which does not know whom it reads, with the endpoint's name and a hint."""
    if not error.where:
        error.what = clean(error.what, endpoint)
        _placed(error, endpoint)
    return error


def clean(text: str, endpoint: Endpoint | None) -> str:
    """One short line that holds no key, whoever wrote it."""
    if endpoint is not None:
        for secret in (endpoint.api_key, *(value for _, value in endpoint.headers)):
            if len(secret) >= 4:
                text = text.replace(secret, "[key]")
    text = re.sub(_SECRET, "[key]", text)
    text = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return text if len(text) <= _QUOTE_CHARS else text[: _QUOTE_CHARS - 1] + "…"


def _with_quote(error: ModelError, said: error_kinds.Said, endpoint: Endpoint | None) -> ModelError:
    quoted = clean(said.message, endpoint)
    if quoted:
        error.what = f"{error.what}: {quoted}"
    return error


def _placed(error: ModelError, endpoint: Endpoint) -> ModelError:
    error.where = endpoint.where
    error.hint = error.hint or _hint(error, endpoint)
    error.args = (error.what,)
    return error


def _hint(error: ModelError, endpoint: Endpoint) -> str:
    key = f"Check {endpoint.key_from}." if endpoint.key_from else "It wants a key: hermes setup asks for it."
    wait = f" in {_spoken(error.retry_after)}" if error.retry_after else " in a moment"
    hints: dict[ErrorKind, str] = {
        "auth": key,
        "billing": "Add credit at the provider, or choose another model with --model.",
        "rate_limit": f"Try again{wait}, or add fallback_providers to config.yaml.",
        "overloaded": f"Try again{wait}, or add fallback_providers to config.yaml.",
        "context_overflow": "Run /compress, or start afresh with /new.",
        "payload_too_large": "Run /compress, or send less at once.",
        "model_not_found": "Check model.default and model.base_url, or choose another with --model.",
        "policy": "Say it differently, or choose another model with --model.",
        "timeout": "Try again.",
        "server": f"Try again{wait}.",
        "protocol": "Try again; if it stays, check model.base_url.",
    }
    return hints.get(error.kind, "")


def _spoken(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _hint_unreachable(endpoint: Endpoint) -> str:
    parts = urlsplit(endpoint.base_url)
    host = parts.hostname or ""
    if host in ("localhost", "::1") or host.startswith("127."):
        return f"Start the model server at {parts.netloc.rpartition('@')[2]}, or change model.base_url."
    return "Check the network connection and model.base_url."


def _name(endpoint: Endpoint) -> str:
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
    """The operating system's own words for it, without the wrapping of three libraries."""
    import socket

    chain = _chain(error)
    if any(isinstance(one, socket.gaierror) for one in chain) or "getaddrinfo" in str(error):
        return "its name is not known (DNS)"
    if any(isinstance(one, ConnectionRefusedError) for one in chain):
        return "connection refused"
    strings = [one.strerror for one in chain if isinstance(one, OSError) and one.strerror]
    return strings[-1].lower() if strings else "no connection"
