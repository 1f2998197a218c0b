"""Requests to Telegram that are never broken off half-way. A module of its own, because it imports the library.

httpcore loses the connection of a request whose task is cancelled at the wrong moment: it counts as busy for good, and
when all of a pool are lost that way nothing is sent any more. A sign of typing is given up at the end of every turn. So
each request runs in a task of its own: whoever gives up waiting does so at once, and the request comes to its end, at
the latest by its own time-outs. Imported with python-telegram-bot only.
"""

from __future__ import annotations

import asyncio
from typing import Any

from telegram.request import HTTPXRequest


class WholeRequest(HTTPXRequest):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._begun: set[asyncio.Task[tuple[int, bytes]]] = set()

    async def do_request(self, *args: Any, **options: Any) -> tuple[int, bytes]:
        task = asyncio.create_task(super().do_request(*args, **options))
        self._begun.add(task)
        task.add_done_callback(self._over)
        return await asyncio.shield(task)

    async def shutdown(self) -> None:
        for task in self._begun:
            task.cancel()
        await asyncio.gather(*self._begun, return_exceptions=True)
        await super().shutdown()

    def _over(self, task: asyncio.Task[tuple[int, bytes]]) -> None:
        self._begun.discard(task)
        if not task.cancelled():
            task.exception()  # known to whoever waited; nobody else wants to hear of it
