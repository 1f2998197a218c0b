"""Temporary keys from plug-ins' providers: requested on demand, kept in memory until they expire.

A key is used until a minute before it expires. If the provider refuses a key, the call is repeated once with a new one.
Nothing here is stored; a plug-in must store a credential that should outlive the process.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

from hermes_agent.models.base import Endpoint, ModelError
from hermes_agent.models.provider_table import Credential, table
from hermes_cli import plugins
from hermes_config import config, redaction

_EARLY_SECONDS = 60.0
_REFRESH_SECONDS = 30.0

_kept: dict[str, Credential] = {}
_asking: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, asyncio.Lock]] = WeakKeyDictionary()


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
