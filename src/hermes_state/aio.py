"""`AsyncSessionDB`: the store for event loops.

Any method of `SessionDB` can be awaited; it runs in a worker thread. Appends, which come in hundreds at once, take a
shorter way: they are queued to the store's writer and share a commit, and no thread waits for them.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hermes_state import messages, transcript
from hermes_state.engine.base import Connection, Engine
from hermes_state.engine.writer import Job, Notify

if TYPE_CHECKING:
    import asyncio

    from hermes_state.session_db import SessionDB


class AsyncSessionDB:
    """Forwards to `_db`: callables become coroutines, everything else passes through."""

    def __init__(self, db: SessionDB) -> None:
        self._db = db

    async def append_message(self, session_id: str, role: str, content: Any = None, **fields: Any) -> int:
        """As `SessionDB.append_message`; many at once share one commit."""
        db = self._db
        fields["role"], fields["content"] = role, content
        row = transcript.encode(fields, db.clock(), db.limits.message_bytes)
        result: int = await queued(db.engine, lambda conn: messages.append(conn, session_id, row), whole=True)
        return result

    async def write(self, fn: Callable[[Connection], Any]) -> Any:
        """`fn(conn)` in a transaction of the writer's, perhaps together with others."""
        return await queued(self._db.engine, fn)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._db, name)
        if not callable(value):
            return value

        async def forwarded(*args: Any, **kwargs: Any) -> Any:
            import asyncio

            return await asyncio.to_thread(value, *args, **kwargs)

        forwarded.__name__ = name
        return forwarded


def queued(engine: Engine, fn: Callable[[Connection], Any], *, whole: bool = False) -> asyncio.Future[Any]:
    """Hand `fn` to the writer's thread; the future is done after the commit that carries it."""
    import asyncio

    loop = asyncio.get_running_loop()
    future = loop.create_future()
    engine.submit(Job(fn, whole=whole, notify=_teller(loop), ticket=future))
    return future


# One for each loop, so that the jobs of a group can be told together.
_tellers: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Notify] = weakref.WeakKeyDictionary()


def _teller(loop: asyncio.AbstractEventLoop) -> Notify:
    found = _tellers.get(loop)
    if found is None:
        found = _tellers[loop] = functools.partial(_tell, weakref.ref(loop))
    return found


def _tell(waiting: weakref.ref[asyncio.AbstractEventLoop], jobs: list[Job]) -> None:
    """From the writer's thread: one wake-up of the loop for all jobs of a group."""
    loop = waiting()
    if loop is None or loop.is_closed():  # nobody waits any more; what was written is stored
        return
    loop.call_soon_threadsafe(_settle, jobs)


def _settle(jobs: list[Job]) -> None:
    for job in jobs:
        future = job.ticket
        if future.done():  # the caller was cancelled; the row is stored all the same
            continue
        if job.error is not None:
            future.set_exception(job.error)
        else:
            future.set_result(job.result)
