"""The models that a server offers: its answer to `GET /models`.

A key is sent to the address it belongs to and to no other: redirects are not followed.
"""

from __future__ import annotations

import http.client
import json
import time
import urllib.request
from functools import lru_cache
from typing import Any

from hermes_agent.models.base import Endpoint, is_own_machine

_MOST_BYTES = 8_000_000
_SECONDS = 5.0
_KEPT_SECONDS = 60


def listed(endpoint: Endpoint) -> tuple[str, ...]:
    """The model ids of this endpoint's server, requested at most once a minute; empty if it lists none. Blocks."""
    if endpoint.provider == "demo":
        return (endpoint.model,)
    address, headers = endpoint.base_url, endpoint.headers
    if endpoint.wire == "anthropic":
        address = f"{address}/v1"
        headers = (*headers, ("x-api-key", endpoint.api_key), ("anthropic-version", "2023-06-01"))
    return _listed(address, endpoint.api_key, headers, int(time.monotonic() // _KEPT_SECONDS))


@lru_cache(maxsize=16)
def _listed(address: str, key: str, headers: tuple[tuple[str, str], ...], minute: int) -> tuple[str, ...]:
    try:
        return tuple(ids(fetch(address, key, _SECONDS, headers)))
    except (OSError, ValueError):
        return ()


def fetch(address: str, key: str, seconds: float, headers: tuple[tuple[str, str], ...] = ()) -> bytes:
    """The body of a server's answer. Raises `OSError`, and `ValueError` if that is not HTTP or too long.

    `seconds`: for each step of the connection; the whole body may take three times as long.
    """
    request = urllib.request.Request(f"{address}/models")
    if key:
        request.add_unredirected_header("Authorization", f"Bearer {key}")
    for name, value in headers:
        request.add_unredirected_header(name, value)
    handlers: list[urllib.request.BaseHandler] = [_NoRedirect()]
    if is_own_machine(address):
        handlers.append(urllib.request.ProxyHandler({}))  # a proxy does not know this machine's loopback
    body = bytearray()
    try:
        with urllib.request.build_opener(*handlers).open(request, timeout=seconds) as answer:
            until = time.monotonic() + 3 * seconds
            while part := answer.read1(1 << 16):
                body += part
                if time.monotonic() > until:
                    raise TimeoutError("the list takes too long")
                if len(body) > _MOST_BYTES:
                    raise ValueError("the list is too long")
    except http.client.HTTPException as error:
        raise ValueError("the answer is not HTTP") from error
    return bytes(body)


def ids(body: bytes) -> list[str]:
    """The model ids in an answer; empty if it is not a list of models."""
    try:
        found = json.loads(body)["data"]
        return [one["id"] for one in found if isinstance(one, dict) and isinstance(one.get("id"), str)]
    except (ValueError, LookupError, TypeError):
        return []


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Do not follow redirects, so that no key goes to another host."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None
