"""`getUpdates`: acknowledges, waits, and lets only one poller wait.

A poller that waits is sent away with 409 as soon as another one comes; a closed connection ends the wait. Telegram's
longest wait is 50 seconds.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from starlette.requests import Request

from hermes_testing.telegram_answers import Json, bad_request, conflict
from hermes_testing.telegram_chats import World
from hermes_testing.telegram_faults import Faults
from hermes_testing.telegram_parameters import Parameters

LONGEST_SECONDS = 50
_OTHER = "terminated by other getUpdates request; make sure that only one bot instance is running"
_WEBHOOK = "can't use getUpdates method while webhook is active; use deleteWebhook to delete the webhook first"


class Polling:
    def __init__(self, world: World) -> None:
        self._world = world
        self._current: object = None

    async def poll(self, request: Request, parameters: Parameters, faults: Faults) -> list[Json] | None:
        """The updates for one request; None when whoever asked has gone."""
        kinds = _allowed(parameters)
        deadline = time.monotonic() + parameters.between("timeout", 0, 0, LONGEST_SECONDS)
        me = self._current = object()
        with self._world.lock:
            if self._world.webhook:
                raise conflict(_WEBHOOK)
            self._world.updates.allow(kinds)
        self._world.bell.ring()  # whoever waited learns that it no longer should
        gone = asyncio.ensure_future(request.receive())
        try:
            while True:
                rung = self._world.bell.listen()
                batch = self._taken(me, parameters, faults)
                if batch or time.monotonic() >= deadline:
                    return batch
                await _first(rung, gone, deadline)
                if gone.done():
                    return None
        finally:
            gone.cancel()

    def _taken(self, me: object, parameters: Parameters, faults: Faults) -> list[Json]:
        if self._current is not me:
            raise conflict(_OTHER)
        with self._world.lock:
            if self._world.webhook:
                raise conflict("terminated by setWebhook request")
            now = self._world.now()
            queue = self._world.updates
            taken = queue.take(parameters.integer("offset"), parameters.between("limit", 100, 1, 100), now)
            batch = [update.json() for update in taken]
            return faults.on_updates(queue, batch, now) if batch else batch


async def _first(rung: asyncio.Event, gone: asyncio.Future[Any], deadline: float) -> None:
    waiting: asyncio.Future[Any] = asyncio.ensure_future(rung.wait())
    left = max(0.0, deadline - time.monotonic())
    await asyncio.wait({waiting, gone}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()


def _allowed(parameters: Parameters) -> list[str] | None:
    raw = parameters.parsed("allowed_updates", "allowed_updates")
    if raw is None:
        return None
    if not isinstance(raw, list):
        raise bad_request("expected an Array of String as allowed_updates")
    return [str(kind) for kind in raw]
