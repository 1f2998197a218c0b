"""Several keys of one provider: which one a call uses, and how long a refused one rests.

The first key that does not rest is used. When the provider refuses a call because of its key (401 or 403, 402, 429),
the key rests for a while, and the call is made with the next one. If all rest, the one that rests shortest is tried. A
key is only ever sent to the address its own variable belongs to: all keys of an endpoint come from the same variable,
numbered (`OPENAI_API_KEY`, `OPENAI_API_KEY_2`, …).

`key_rests.json` in the home says until when which key rests, for all processes and for `hermes status`. It names
variables and digests, never a key. It may be lost or overwritten by another process at any time: then a key is refused
once more.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

from hermes_agent.models.base import Endpoint, ModelError, Reply
from hermes_config.errors import HermesError
from hermes_config.home import hermes_home, write_atomic

_FILE = "key_rests.json"
_FILE_BYTES = 64_000
_SECONDS = {"rate_limit": 60.0, "billing": 3_600.0, "auth": 3_600.0}
"""How long a key rests, by the kind of the error, if the provider says nothing else."""
_LONGEST = 86_400.0
_WORDS = {"rate_limit": "the rate limit", "billing": "no credit", "auth": "refused"}


class KeyState(NamedTuple):
    """One key as people see it."""

    key_from: str
    rests_until: float | None
    why: str


async def call_with_keys(endpoint: Endpoint, attempt: Callable[[Endpoint], Awaitable[Reply]]) -> Reply:
    """Make a call with the endpoint's keys, one after the other until one is not refused. Raises `ModelError`."""
    keys = _keyed(endpoint)
    left, refused = list(keys), None
    while True:
        rests = await asyncio.to_thread(_read)
        free = next((one for one in left if _until(rests, one) is None), None)
        keyed = free or min(keys, key=lambda one: _until(rests, one) or 0.0)
        if refused is not None and keyed not in left:
            raise refused
        left.remove(keyed)
        try:
            return await attempt(keyed)
        except ModelError as error:
            if error.kind not in _SECONDS:
                raise
            await asyncio.to_thread(_rest, keyed, error)
            if error.partial is not None or not error.unbilled:
                raise  # the person has seen a part of the answer, or the call may be billed
            if refused is None or refused.kind != "rate_limit":  # a rate limit passes: the caller may try again later
                refused = error
            if free is None or not left:
                raise refused from None


def states(endpoint: Endpoint) -> list[KeyState]:
    """The endpoint's keys, in the order in which they are used."""
    rests = _read()
    return [
        KeyState(one.key_from, until, _WORDS.get(str(rests[_name(one)].get("kind")), "refused") if until else "")
        for one in _keyed(endpoint)
        for until in [_until(rests, one)]
    ]


def described(endpoint: Endpoint) -> list[str]:
    """Where the keys come from, and which ones rest, for a person; empty without a key."""
    return [
        one.key_from
        if one.rests_until is None
        else f"{one.key_from} (rests until {time.strftime('%H:%M', time.localtime(one.rests_until))}: {one.why})"
        for one in states(endpoint)
        if one.key_from
    ]


def _keyed(endpoint: Endpoint) -> list[Endpoint]:
    more = [replace(endpoint, api_key=key, key_from=place, more_keys=()) for key, place in endpoint.more_keys]
    return [replace(endpoint, more_keys=()), *more]


def _name(endpoint: Endpoint) -> str:
    return hashlib.sha256(f"{endpoint.provider} {endpoint.api_key}".encode()).hexdigest()[:16]


def _until(rests: dict[str, Any], endpoint: Endpoint) -> float | None:
    until = rests.get(_name(endpoint), {}).get("until", 0.0)
    return until if until > time.time() else None


def _read() -> dict[str, Any]:
    """What the file says; nothing if it is missing or not ours."""
    with suppress(OSError, ValueError, AttributeError):
        with (hermes_home() / _FILE).open("rb") as file:
            found = json.loads(file.read(_FILE_BYTES)).items()
        return {
            str(name): one for name, one in found if isinstance(one, dict) and isinstance(one.get("until"), int | float)
        }
    return {}


def _rest(endpoint: Endpoint, error: ModelError) -> None:
    """Let a key rest. A home that cannot be written costs only the memory of it."""
    now = time.time()
    seconds = min(error.retry_after or _SECONDS[error.kind], _LONGEST)
    rests = {name: one for name, one in _read().items() if one["until"] > now}
    rests[_name(endpoint)] = {"until": now + seconds, "kind": error.kind, "key_from": endpoint.key_from}
    with suppress(HermesError):
        write_atomic(hermes_home() / _FILE, json.dumps(rests, indent=1) + "\n")
