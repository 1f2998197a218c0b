"""WebSockets that rooms above put into the API server: `add` a path before the gateway is put together.

The guard lets a client in before its handler is called. A handler is made for the gateway's parts, once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.websockets import WebSocket

    from gateway.run_parts import Parts

Handle = Callable[["WebSocket"], Awaitable[None]]
_added: dict[str, Callable[[Parts], Handle]] = {}


def add(path: str, make: Callable[[Parts], Handle]) -> None:
    _added[path] = make


def over(parts: Parts) -> dict[str, Handle]:
    """The handlers by their path, for this gateway."""
    return {path: make(parts) for path, make in _added.items()}
