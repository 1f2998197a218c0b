"""Keeps the platforms connected, each on its own, so that one that is down does not affect the others.

A platform that cannot be reached is tried again forever, with growing pauses up to its adapter's `connect_pause`. Its
`Health` says when it was last reached and what is wrong now.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from gateway.config import Platform
from gateway.platforms.base import BasePlatformAdapter, Health
from gateway.retry import pause_after
from hermes_config.errors import HermesError

_log = logging.getLogger("hermes.gateway")

FIRST_PAUSE = 1.0
CONNECT_SECONDS = 60.0
_DISCONNECT_SECONDS = 5.0


def adapter_of(adapters: Mapping[Platform, BasePlatformAdapter], name: str) -> BasePlatformAdapter | None:
    """The adapter of a platform by its name; None when there is none."""
    platform = Platform.find(name)
    return None if platform is None else adapters.get(platform)


class Connections:
    """Connects all platforms. `start` returns at once; `connected` is called each time a platform connects."""

    def __init__(
        self, adapters: Mapping[Platform, BasePlatformAdapter], connected: Callable[[Platform], None] = lambda _: None
    ) -> None:
        self._adapters = adapters
        self._connected = connected
        self._tasks: dict[Platform, asyncio.Task[None]] = {}
        self._trouble: dict[Platform, Health] = {}
        self._silent: set[Platform] = set()
        """Platforms whose adapter failed when it was last asked for its health."""

    def start(self) -> None:
        for platform, adapter in self._adapters.items():
            self._tasks[platform] = asyncio.create_task(self._keep(platform, adapter), name=f"connect {platform.value}")

    async def settled(self, seconds: float) -> None:
        """Wait until every platform was tried once, or the time is over."""
        if self._tasks:
            await asyncio.wait(self._tasks.values(), timeout=seconds)

    async def stop(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        await asyncio.gather(*(self._leave(p, adapter) for p, adapter in self._adapters.items()))

    def health(self) -> dict[str, Health]:
        found = {}
        for platform, adapter in self._adapters.items():
            trouble = self._trouble.get(platform)
            own = self._asked(platform, adapter)
            found[platform.value] = own if trouble is None else replace(trouble, last_contact=own.last_contact)
        return found

    def _asked(self, platform: Platform, adapter: BasePlatformAdapter) -> Health:
        """An adapter's own health. An adapter that cannot report it has a problem; the others are still asked."""
        try:
            own = adapter.health()
            if not isinstance(own, Health):
                raise TypeError(f"health() gave {type(own).__name__}")
        except Exception as error:  # noqa: BLE001 - boundary: an adapter
            if platform not in self._silent:  # it is asked every few seconds, and logged once
                self._silent.add(platform)
                extra = {"action": "health", "platform": platform.value}
                _log.warning("%s cannot say its health", platform.value, exc_info=error, extra=extra)
            return Health(problem=f"the adapter cannot say its health ({type(error).__name__})")
        self._silent.discard(platform)
        return own

    async def _keep(self, platform: Platform, adapter: BasePlatformAdapter) -> None:
        """Try until the platform is connected. After that the adapter maintains its connection."""
        attempt = 0
        while not await self._try(platform, adapter, again=attempt > 0):
            attempt += 1
            pause = pause_after(attempt, first=FIRST_PAUSE, longest=adapter.connect_pause)
            trouble = self._trouble[platform]
            self._trouble[platform] = replace(trouble, retry_at=time.time() + pause)
            await asyncio.sleep(pause)
        self._trouble.pop(platform, None)
        self._connected(platform)

    async def _try(self, platform: Platform, adapter: BasePlatformAdapter, *, again: bool) -> bool:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                if await adapter.connect(is_reconnect=again):
                    return True
            problem = self._asked(platform, adapter).problem or "it did not connect"
        except TimeoutError:
            problem = f"it did not answer within {CONNECT_SECONDS:.0f} s"
        except HermesError as error:
            problem = error.one_line()
        except Exception as error:  # noqa: BLE001 - boundary: an adapter
            problem = f"the adapter failed ({type(error).__name__})"
            _log.exception("an adapter failed", extra={"action": "connect", "platform": platform.value})
        known = self._trouble.get(platform)
        if known is None or known.problem != problem:  # it is tried several times a minute, and logged once
            _log.warning("%s: %s", platform.value, problem, extra={"action": "connect", "platform": platform.value})
        self._trouble[platform] = Health(problem=problem)
        return False

    async def _leave(self, platform: Platform, adapter: BasePlatformAdapter) -> None:
        try:
            async with asyncio.timeout(_DISCONNECT_SECONDS):
                await adapter.disconnect()
        except Exception as error:  # noqa: BLE001 - boundary: an adapter
            kind = type(error).__name__
            _log.warning(
                "%s did not disconnect (%s)", platform.value, kind, extra={"action": "disconnect", "error": kind}
            )
