"""The sign that something is being done, while a turn runs.

Shown again every few seconds, because platforms let it fade; held back while the turn waits for a person, so that
nobody waits for us who is waited for. Best effort: a sign that fails or hangs is given up, and nothing else notices.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from gateway.platforms.base import BasePlatformAdapter

log = logging.getLogger("hermes.gateway")

_FIRST_SECONDS = 0.3
"""A turn that is over by then shows no sign at all, and costs the platform no request."""
_EVERY = 4.0
_ONE_CALL = 1.5


class TypingSign:
    """`sign.start()` … `sign.stop()`; both are quick and may be called twice."""

    def __init__(
        self,
        adapter: BasePlatformAdapter,
        chat_id: str,
        metadata: Mapping[str, Any] | None = None,
        *,
        most_seconds: float,
        every: float = _EVERY,
    ) -> None:
        self._adapter = adapter
        self._chat_id = chat_id
        self._metadata = metadata
        self._most_seconds = most_seconds
        self._every = every
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._held = False

    def start(self) -> None:
        if self._timer is None and self._adapter.supports_typing and self._adapter.config.typing_indicator:
            self._timer = asyncio.get_running_loop().call_later(min(_FIRST_SECONDS, self._every), self._begin)

    def _begin(self) -> None:
        self._task = asyncio.create_task(self._go_on(), name="typing sign")

    def hold(self, held: bool) -> None:
        """Held back while the turn waits for somebody."""
        self._held = held

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _go_on(self) -> None:
        clock = asyncio.get_running_loop().time
        end = clock() + self._most_seconds
        while clock() < end:
            if not self._held:
                await self._show()
            await asyncio.sleep(self._every)

    async def _show(self) -> None:
        """The named boundary around an adapter's call that nobody waits for."""
        try:
            async with asyncio.timeout(_ONE_CALL):
                await self._adapter.send_typing(self._chat_id, self._metadata)
        except TimeoutError:
            log.debug("a sign of typing took too long", extra={"action": "typing.slow"})
        except Exception as error:
            log.debug("a sign of typing failed", exc_info=error, extra={"action": "typing.failed"})
