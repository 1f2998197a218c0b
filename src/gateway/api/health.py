"""Health probes and metrics.

`/health` (the process runs) and `/readyz` (it can work) need no key and answer only yes or no. `/health/detailed` and
`/metrics` need the key. Figures from the store are read on request, off the event loop.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from gateway.api import error_boundary
from gateway.api.auth import App
from hermes_config.version import VERSION
from hermes_state.errors import StateError

if TYPE_CHECKING:
    from gateway.services import Parts

_READY_SECONDS = 5.0


class HealthHandlers:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._probe = asyncio.Lock()
        self._turns_running = 0
        self._ask()

    async def alive(self, request: Request) -> App:
        return error_boundary.reply({"status": "ok"})

    async def ready(self, request: Request) -> App:
        ready = await self._is_ready()
        return error_boundary.reply({"status": "ready" if ready else "no"}, 200 if ready else 503)

    async def detailed(self, request: Request) -> App:
        parts, db = self._parts, self._parts.services.db
        queued, pending, dead = await asyncio.to_thread(
            lambda: (db.inbox.queued_count(), db.outbox.owed_count(), db.outbox.dead_count())
        )
        platforms = {
            name: {"last_contact": one.last_contact, "problem": one.problem}
            for name, one in parts.connections.health().items()
        }
        ready = await self._is_ready()
        return error_boundary.reply({
            "status": "ready" if ready else "no", "version": VERSION, "turns_running": parts.lanes.active,
            "queued": queued, "pending": pending, "dead_letters": dead, "platforms": platforms,
        })  # fmt: skip

    async def metrics(self, request: Request) -> App:
        self._turns_running = self._parts.lanes.active  # here: the lanes are the event loop's, and `text` is not
        content = await asyncio.to_thread(self._parts.services.metrics.text)
        return Response(content, media_type="text/plain; version=0.0.4; charset=utf-8")

    async def _is_ready(self) -> bool:
        """Whether lanes work and the store can be written. Concurrent requests share one check."""
        if not self._parts.lanes.is_open:
            return False
        try:
            async with asyncio.timeout(_READY_SECONDS), self._probe:
                await asyncio.to_thread(self._parts.services.db.engine.write, lambda conn: None)
        except (StateError, TimeoutError):
            return False
        return True

    def _ask(self) -> None:
        """Add the gauges that are computed when they are read."""
        parts, db = self._parts, self._parts.services.db
        metrics, agents = parts.services.metrics, parts.agents
        loop = asyncio.get_running_loop()

        def oldest() -> float:
            return max(0.0, db.clock() - found) if (found := db.inbox.oldest()) is not None else 0.0

        ask = metrics.ask
        ask("hermes_inbox_queued", "Messages that wait for their turn", db.inbox.queued_count)
        ask("hermes_inbox_oldest_seconds", "For how long the oldest of them has waited", oldest)
        ask("hermes_tasks", "Tasks of the event loop", lambda: len(asyncio.all_tasks(loop)))
        ask("hermes_turns_running", "Turns that run now", lambda: self._turns_running)
        ask("hermes_outbox_owed", "Deliveries that wait or are under way", db.outbox.owed_count)
        ask("hermes_outbox_dead", "Dead letters", db.outbox.dead_count)
        ask("hermes_outbox_held", "Answers that wait for the owner", db.held_answers.count)
        ask("hermes_agents_cached", "Agents that are kept between turns", lambda: len(agents.entries))
        ask("hermes_agents_bytes", "What they hold", lambda: agents.nbytes)
        ask("hermes_prefix_breaks", "Prompt prefixes that moved without an announcement", db.prefixes.break_count)
