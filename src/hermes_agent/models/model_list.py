"""The models that a server offers: its answer to `GET /models`.

A key is sent to the address it belongs to and to no other: redirects are not followed.
"""

from __future__ import annotations

import json
import time
import urllib.request
from functools import lru_cache
from typing import Any

from hermes_agent.models.base import Endpoint, is_own_machine

_MOST_BYTES = 1_000_000
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
    """The body of a server's answer. Raises `OSError` and `ValueError`."""
    request = urllib.request.Request(f"{address}/models")
    if key:
        request.add_unredirected_header("Authorization", f"Bearer {key}")
    for name, value in headers:
        request.add_unredirected_header(name, value)
    handlers: list[urllib.request.BaseHandler] = [_NoRedirect()]
    if is_own_machine(address):
        handlers.append(urllib.request.ProxyHandler({}))  # a proxy does not know this machine's loopback
    with urllib.request.build_opener(*handlers).open(request, timeout=seconds) as answer:
        return bytes(answer.read(_MOST_BYTES))


def ids(body: bytes) -> list[str]:
    """The model ids in an answer; empty if it is not a list of models."""
    try:
        return [str(one["id"]) for one in json.loads(body)["data"]]
    except (ValueError, LookupError, TypeError):
        return []


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Do not follow redirects, so that no key goes to another host."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None
