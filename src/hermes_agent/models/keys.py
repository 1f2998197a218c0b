"""The key of a call: which of several keys of one provider it uses, or a temporary one that a plug-in gives.

When the provider refuses a call because of its key (401 or 403, 402, 429), the key *rests*: it is not used for a while,
and the call is made with the next one. A call uses the first key that does not rest. If all rest, the one that rests
shortest is tried. A key is only ever sent to the address its own variable belongs to: all keys of an endpoint come from
the same variable, numbered (`OPENAI_API_KEY`, `OPENAI_API_KEY_2`, …).

`key_rests.json` in the home says until when which key rests, for all processes and for `hermes status`. It names
variables and digests, never a key. It may be lost or overwritten by another process at any time: then a key is refused
once more.

A temporary key is requested on demand and kept in memory until a minute before it expires. If the provider refuses it,
the call is repeated once with a new one. A plug-in must store a credential that should outlive the process.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

from hermes_agent.models.base import Endpoint, ModelError, Reply
from hermes_agent.models.provider_table import Credential, table
from hermes_cli import plugins
from hermes_config import config, redaction
from hermes_config.errors import HermesError
from hermes_config.home import hermes_home, write_atomic

_FILE = "key_rests.json"
_FILE_BYTES = 64_000
_SECONDS = {"rate_limit": 60.0, "billing": 3_600.0, "auth": 3_600.0}
"""How long a key rests, by the kind of the error, if the provider says nothing else."""
_LONGEST = 86_400.0
_WORDS = {"rate_limit": "the rate limit", "billing": "no credit", "auth": "refused"}


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


def described(endpoint: Endpoint) -> list[str]:
    """Where the keys come from, and which ones rest, for a person; empty without a key."""
    rests, found = _read(), []
    for one in _keyed(endpoint):
        state = ""
        if until := _until(rests, one):
            why = _WORDS.get(str(rests[_name(one)].get("kind")), "refused")
            state = f" (rests until {time.strftime('%H:%M', time.localtime(until))}: {why})"
        found += [f"{one.key_from}{state}"] if one.key_from else []
    return found


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


# -- temporary keys ------------------------------------------------------------------------------------------------

_EARLY_SECONDS = 60.0
_REFRESH_SECONDS = 30.0

_kept: dict[str, Credential] = {}
_asking: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, asyncio.Lock]] = WeakKeyDictionary()


async def call_with_credential(endpoint: Endpoint, attempt: Callable[[Endpoint], Awaitable[Reply]]) -> Reply:
    """Make a call with the provider's temporary key; once more with a new one if it is refused. Raises `ModelError`."""
    keyed = await with_key(endpoint)
    try:
        return await attempt(keyed)
    except ModelError as error:
        if error.kind != "auth" or not error.unbilled:
            raise
        renewed = await with_key(endpoint, refused=keyed.api_key)
        if renewed.api_key == keyed.api_key:
            raise
        return await attempt(renewed)


async def with_key(endpoint: Endpoint, *, refused: str = "") -> Endpoint:
    """The endpoint with a valid key; `refused` is a key that the provider refused. Raises `ModelError`."""
    name = endpoint.provider
    locks = _asking.setdefault(asyncio.get_running_loop(), {})
    async with locks.setdefault(name, asyncio.Lock()):
        found = _kept.get(name)
        over = found is None or (found.expires_at is not None and found.expires_at - time.time() < _EARLY_SECONDS)
        if found is None or over or found.key == refused:
            found = _kept[name] = await _request_credential(endpoint)
    return replace(endpoint, api_key=found.key)


async def _request_credential(endpoint: Endpoint) -> Credential:
    row = table().get(endpoint.provider)
    give = None if row is None else row.credential
    try:
        if give is None:
            raise LookupError("the plug-in of this provider is not loaded any more")
        loaded = config.load_or_last_good()[0]
        given = _checked(await plugins.call_plugin(give, loaded, seconds=_REFRESH_SECONDS))
    except Exception as error:  # boundary: a plug-in
        plugins.complain(error, plugin=endpoint.provider, action="credential_failed")
        said = f"{endpoint.provider} gave no key ({type(error).__name__})"
        raise ModelError("auth", said, where=endpoint.where, unbilled=True) from error
    redaction.keep_out(given.key)
    return given


def _checked(given: Any) -> Credential:
    key, expires_at = given if isinstance(given, Credential) else (None, None)
    if not isinstance(key, str) or not key:
        raise TypeError(f"it gave {type(given).__name__}, not a Credential with a key")
    if not isinstance(expires_at, int | float | None):
        raise TypeError(f"expires_at is {type(expires_at).__name__}, not seconds since 1970")
    return Credential(key, expires_at)
