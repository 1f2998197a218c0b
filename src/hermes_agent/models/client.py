"""One keep-alive HTTP client an endpoint and event loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import httpx2

TransportFactory = Callable[[], "httpx2.AsyncBaseTransport"]


def register_transport(where: str, factory: TransportFactory) -> Callable[[], None]:
    """Serve a scheme (`"demo"`) or everything below a base URL (`"http://127.0.0.1:1"`) from this process.

    The factory is called once for each event loop that calls there. What is returned takes the registration back.
    """
    raise NotImplementedError


async def close_clients() -> None:
    """Close the clients of the running loop. A later call opens new ones."""
    raise NotImplementedError
