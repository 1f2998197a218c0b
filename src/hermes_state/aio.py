"""`AsyncSessionDB`: the store for event loops.

Any method of `SessionDB` can be awaited; it runs in a worker thread. Appends, which come in hundreds at once, take a
shorter way: they are queued to the store's writer and share a commit, and no thread waits for them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hermes_state import messages, transcript

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
        row = transcript.encode({"role": role, "content": content, **fields}, db.clock(), db.limits.message_bytes)
        result: int = await self._queued(lambda conn: messages.append(conn, session_id, row))
        return result

    async def write(self, fn: Callable[[Any], Any]) -> Any:
        """`fn(conn)` in a transaction of the writer's, perhaps together with others."""
        return await self._queued(fn)

    def _queued(self, fn: Callable[[Any], Any]) -> asyncio.Future[Any]:
        import asyncio

        loop = asyncio.get_running_loop()
        future = loop.create_future()

        def settle(result: Any, error: BaseException | None) -> None:
            if future.done():  # the caller was cancelled; the row is stored all the same
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)

        def done(result: Any, error: BaseException | None) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(settle, result, error)

        self._db.engine.submit(fn, done)
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
