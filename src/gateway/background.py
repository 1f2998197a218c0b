"""`BackgroundTasks`: tasks that nobody awaits. They are kept until they end, and the log has their errors."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

_log = logging.getLogger("hermes.gateway")
_CANCEL_SECONDS = 1.0


class BackgroundTasks(set[asyncio.Task[Any]]):
    """The running tasks of one part of the gateway."""

    def start(self, work: Coroutine[Any, Any, Any], *, name: str | None = None) -> asyncio.Task[Any]:
        task = asyncio.create_task(work, name=name)
        self.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a background task failed", exc_info=error, extra={"action": "background_defect"})

    async def finish(self, seconds: float, *, cancel: bool = False) -> bool:
        """Wait for all tasks, also for those that they start; False: not all ended in time.

        `cancel`: cancel those that are late.
        """
        clock = asyncio.get_running_loop().time
        until = clock() + seconds
        while self and (left := until - clock()) > 0:
            await asyncio.wait(self, timeout=left)
        late = set(self)
        if late and cancel:
            for task in late:
                task.cancel()
            await asyncio.wait(late, timeout=_CANCEL_SECONDS)
        return not late
