"""`AsyncSessionDB`: the store for event loops.

Any method of `SessionDB` can be awaited; it runs in a worker thread. Appends, which come in hundreds at once, take a
shorter way: they are queued to the store's writer and share a commit, and no thread waits for them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hermes_state import messages, transcript
from hermes_state.engine.base import Connection
from hermes_state.engine.writer import Job, Notify

if TYPE_CHECKING:
    import asyncio

    from hermes_state.session_db import SessionDB


class AsyncSessionDB:
    """Forwards to `_db`: callables become coroutines, everything else passes through."""

    def __init__(self, db: SessionDB) -> None:
        self._db = db
        self._loop: asyncio.AbstractEventLoop | None = None
        self._notify: Notify | None = None

    async def append_message(self, session_id: str, role: str, content: Any = None, **fields: Any) -> int:
        """As `SessionDB.append_message`; many at once share one commit."""
        db = self._db
        fields["role"], fields["content"] = role, content
        row = transcript.encode(fields, db.clock(), db.limits.message_bytes)
        result: int = await self._queued(lambda conn: messages.append(conn, session_id, row), whole=True)
        return result

    async def write(self, fn: Callable[[Connection], Any]) -> Any:
        """`fn(conn)` in a transaction of the writer's, perhaps together with others."""
        return await self._queued(fn, whole=False)

    def _queued(self, fn: Callable[[Connection], Any], *, whole: bool) -> asyncio.Future[Any]:
        import asyncio

        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._notify = loop, functools.partial(_tell, loop)
        future = loop.create_future()
        self._db.engine.submit(Job(fn, whole=whole, notify=self._notify, ticket=future))
        return future

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._db, name)
        if not callable(value):
            return value

        async def forwarded(*args: Any, **kwargs: Any) -> Any:
            import asyncio

            return await asyncio.to_thread(value, *args, **kwargs)

        forwarded.__name__ = name
        return forwarded


def _tell(loop: asyncio.AbstractEventLoop, jobs: list[Job]) -> None:
    """From the writer's thread: one wake-up of the loop for all jobs of a group."""
    try:
        loop.call_soon_threadsafe(_settle, jobs)
    except RuntimeError:  # the loop is closed: nobody waits any more, and what was written is stored
        return


def _settle(jobs: list[Job]) -> None:
    for job in jobs:
        future = job.ticket
        if future.done():  # the caller was cancelled; the row is stored all the same
            continue
        if job.error is not None:
            future.set_exception(job.error)
        else:
            future.set_result(job.result)
