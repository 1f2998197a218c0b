"""The demo model: scripted, offline, and honest about it.

It is reached like any provider — the same client, the same chat-completions bytes, streamed — over a transport that
answers inside this process. So everything on its path is real: prefix, journal, budget, approvals, tools. It knows
nothing but the request: it reads what the person said and what the tools gave back, matches a few dozen phrases, and
says what it can do when none fits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes_agent.models.base import Endpoint

if TYPE_CHECKING:
    import httpx2

PROVIDER = "demo"
MODEL = "demo"
SCHEME = "demo"
BASE_URL = "demo://local/v1"
TOKENS_PER_SECOND = 30.0
PACE_HEADER = "x-demo-tokens-per-second"
"""The pace travels as a header, not in the body: it must not be part of the prompt's prefix."""


def endpoint(*, tokens_per_second: float = TOKENS_PER_SECOND, context_length: int = 32_000) -> Endpoint:
    """The demo model's place. `tokens_per_second` 0 answers at once."""
    return Endpoint(
        provider=PROVIDER, wire="chat", base_url=BASE_URL, model=MODEL, context_length=context_length, max_tokens=4_096,
        headers=((PACE_HEADER, f"{max(0.0, tokens_per_second):g}"),),
    )  # fmt: skip


def transport() -> httpx2.AsyncBaseTransport:
    """What answers below `BASE_URL`; `client.register_transport(SCHEME, transport)`."""
    raise NotImplementedError
