"""Periodic work of the gateway: close expired conversations, recover turns of dead processes, stop turns on request or
after a long silence, run delegated work of dead processes, delete old data, and update the search index.

The loop over expired conversations is `GatewayRunner._session_expiry_watcher`, whose name and shape the seeds fix; this
module finds the expired ones. A conversation that cannot be closed is marked closed after a few rounds, so that it does
not come up forever.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gateway.access import authorisation
from gateway.routes.source import SessionSource
from hermes_config import config as configuration
from hermes_state.errors import StateError
from hermes_state.turns.inbox import LOCAL
from hermes_state.turns.processes import FOLDER

if TYPE_CHECKING:
    from gateway.inbound.lanes import Lanes
    from gateway.routes.source import SessionEntry
    from gateway.services import Services
    from gateway.turns.running_turn import RunningTurn
    from hermes_agent.approvals.types import Approver
    from hermes_state import SessionDB
    from hermes_state.ids import TurnId
    from hermes_state.turns.children import Child
    from hermes_state.turns.turns import Turn


_log = logging.getLogger("hermes.gateway")

FIRST_EXPIRY_SECONDS = 60
PRUNE_SECONDS = 3_600.0
_RECOVER_SECONDS = 20.0
_FIRST_CHILDREN_SECONDS = 1.0
"""The lanes recover turns first; a turn that waited for its children runs them itself."""
_FIRST_TIDY_SECONDS = 1_800.0
_TIDY_SECONDS = 3_600.0
"""How often retention is checked; it runs once in `sessions.min_interval_hours`."""
EXPIRY_TRIES = 3
NO_ACCESS = "its person no longer has access"


def expired(store: Any, due: Callable[[], Iterable[SessionEntry]] | None) -> list[SessionEntry]:
    """Expired entries that were not closed yet. `due` finds candidates by an index; without it all are checked."""
    if due is not None:
        found = list(due())
    else:
        store._ensure_loaded()
        with store._lock:
            found = list(store._entries.values())
    return [entry for entry in found if not entry.expiry_finalized and store._is_session_expired(entry)]


async def every(seconds: float, work: Callable[[], Awaitable[object]], action: str, *, first: float = 0.0) -> None:
    """Repeat `work`, `first` seconds after the start. A number that it returns is the pause before the next round.

    An error skips one round; a defect is logged once.
    """
    await asyncio.sleep(first or seconds)
    defect = ""
    while True:
        pause: object = None
        try:
            pause = await work()
        except (StateError, OSError) as error:
            _log.warning("trying again in %g s: %s", seconds, error, extra={"action": action})
        except Exception as error:  # noqa: BLE001 - boundary: one bad row or file must not end this work for good
            if repr(error) != defect:
                _log.error("trying again in %g s after a defect", seconds, exc_info=error, extra={"action": action})
            defect = repr(error)
        await asyncio.sleep(pause if isinstance(pause, float) else seconds)


async def tidy_up(services: Services) -> None:
    """Delete old data by the table of limits, and old conversations if `sessions.auto_prune` is set."""
    from hermes_state.maintenance import retention

    async def tidied() -> None:
        sessions, folder = configuration.load_or_last_good(services.home)[0].sessions, services.store.sessions_dir
        for one in await asyncio.to_thread(
            retention.run_when_due, services.db, sessions, home=services.home, sessions_dir=folder
        ):
            if one.count:
                _log.info("%d %s", one.count, one.what, extra={"action": "maintenance", "step": one.step})

    await every(_TIDY_SECONDS, tidied, "maintenance", first=_FIRST_TIDY_SECONDS)


_FEED_SECONDS = 5.0
_FEED_MS = 50


async def feed_search_index(db: SessionDB) -> None:
    """Add new messages to the search index. After a large import this takes minutes, with pauses that leave two thirds
    of the time to turns."""

    async def feed() -> None:
        fed = await asyncio.to_thread(db.feed, _FEED_MS)
        while fed:
            await asyncio.sleep(2 * _FEED_MS / 1000)
            fed = await asyncio.to_thread(db.feed, _FEED_MS)

    await every(_FEED_SECONDS, feed, "search.feed")


async def recover_lost_turns(lanes: Lanes) -> None:
    """Recover turns of processes that died on other machines, after their leases have run out."""
    await every(_RECOVER_SECONDS, lanes.recover, "recover")


async def recover_children(services: Services, approver: Approver) -> None:
    """Run delegated work that nobody works on any more, and return results that no call took.

    Without such work this is one indexed read in twenty seconds.
    """

    async def recovered() -> None:
        if children := await asyncio.to_thread(services.db.children.open):
            from hermes_agent import delegation

            await _stop_shut_out(services, children)
            await delegation.recover(services.db, configuration.load_or_last_good(services.home)[0], approver=approver)

    await every(_RECOVER_SECONDS, recovered, "delegation", first=_FIRST_CHILDREN_SECONDS)


async def _stop_shut_out(services: Services, children: Sequence[Child]) -> None:
    """Stop delegated work whose person has lost access since."""
    policy = await services.policy.fresh()
    for child in children:
        address = child.address
        if not child.is_open or address is None or address.platform == LOCAL or address.source is None:
            continue
        source = SessionSource.from_dict(dict(address.source))
        if authorisation.is_shut_out(source, policy, account=address.account):
            await asyncio.to_thread(services.db.children.stop, child, reason=NO_ACCESS)


async def leave_children() -> None:
    """The process ends: leave delegated work that no turn waits for to the next process."""
    if (delegation := sys.modules.get("hermes_agent.delegation")) is not None:  # nothing was delegated otherwise
        await delegation.leave_open()


async def watch_answers(db: SessionDB, lanes: Lanes, *, seconds: float = 1.0) -> None:
    """Continue waiting turns whose question another process (a terminal, a command) has answered, and end those whose
    conversation was reset or compressed without their step."""
    seen: set[tuple[TurnId, str]] = set()

    async def look() -> None:
        found = set(await asyncio.to_thread(db.turns.answered))
        new = found - seen
        seen.intersection_update(found)
        if new:
            await lanes.recover()
            seen.update(new)  # also those that only another machine may continue: they are no reason to look again

    await every(seconds, look, "turn.answered")


async def watch_stop_requests(db: SessionDB, lanes: Lanes, *, seconds: float = 1.0) -> None:
    """Stop turns on request of another process (`hermes turns cancel` stores the request), as `/stop` does.

    This is one indexed read of the few running turns a second. Other processes stop their own turns.
    """
    followed: set[TurnId] = set()

    async def stop_asked() -> None:
        asked = await asyncio.to_thread(db.turns.asked_to_stop)
        followed.intersection_update(turn.id for turn in asked)
        for turn in asked:
            running = None if turn.route is None else lanes.running(turn.route)
            if turn.route is None or running is None or running.work is None or running.work.turn.id != turn.id:
                continue
            if turn.id not in followed:
                followed.add(turn.id)
                _log.info("another process stops a turn", extra={"action": "turn.stop_wish", "trace_id": turn.trace_id})
                await lanes.stop(turn.route, reason=turn.reason)

    await every(seconds, stop_asked, "turn.stop_wish")


_RESTS = 9
"""While no process runs, only every tenth look goes through their folders: another program may have started one."""


async def watch_processes(db: SessionDB, home: Path, *, seconds: float = 1.0) -> None:
    """Record the end of background processes; the chat's own row about it is then run like any other."""
    folder, rests = home / FOLDER, 0

    async def settle() -> None:
        nonlocal rests
        if not folder.exists():
            return
        from hermes_agent import processes  # needed only where a process was started

        rests -= 1
        if rests < 0 or processes.any_started():
            runs = await asyncio.to_thread(processes.settle, db, home)
            rests = 0 if runs else _RESTS

    await every(seconds, settle, "process.settle")


_LONGEST_PAUSE = 30.0
_ROUNDS = 4
"""How many checks in the time that a turn may be silent."""


async def watch_silent_turns(lanes: Lanes, *, seconds: float) -> None:
    """Stop turns that gave no sign of life for `agent.gateway_timeout` seconds; 0: no turn is stopped.

    A sign of life is any call to the agent's watchers: a piece of text, a tool that begins, prints or ends, a retry.
    Waiting for a person, for a slot or for the store is not silence. Models and tools have time limits of their own;
    this one covers everything else.
    """

    async def stop_silent() -> None:
        for running in lanes.turns:
            if _is_silent(running, seconds) and running.work is not None:
                await _stop(lanes, running, running.work.turn, seconds)

    if seconds > 0:
        await every(min(_LONGEST_PAUSE, seconds / _ROUNDS), stop_silent, "turn.silent")


def _is_silent(running: RunningTurn, seconds: float) -> bool:
    """Whether a turn is silent. A turn that has not begun, or that waits for a person, is not."""
    if running.work is None or running.agent is None or running.stopped or running.asks:
        return False
    return time.monotonic() - max(running.begun_at, running.agent.heard_at, running.asked_until) > seconds


async def _stop(lanes: Lanes, running: RunningTurn, turn: Turn, seconds: float) -> None:
    span = f"{seconds / 60:.0f} minutes" if seconds >= 120 else f"{seconds:g} seconds"
    reason = f"no sign of life for {span}"
    _log.warning("stopping a turn: %s", reason, extra={"action": "turn.silent", "trace_id": turn.trace_id})
    await lanes.stop(running.route, reason=reason)
    said = f"I stopped: the model and the tools were silent for {span}. The work so far is kept; /retry asks again."
    await lanes.tell(running.source, said, what="silent", occasion=turn.id, account=running.account)
