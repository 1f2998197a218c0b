"""Live sessions that nobody looks at: kept for a client that comes back, and closed after a while.

A session whose last connection has ended is parked. It is closed after a grace (`HERMES_TUI_WS_ORPHAN_REAP_GRACE_S`,
20 s; 0: never), at the latest when it was idle for `HERMES_TUI_SESSION_TTL_S` (6 h), and earlier when a new session
needs its place: the one parked longest goes first. A session at work, or one that waits for a person, stays. Nothing is
lost by any of this: the conversation is in the store, and can be resumed.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tui_gateway.host import Host, Session
    from tui_gateway.transports import Transport

_GRACE, _GRACE_SECONDS = "HERMES_TUI_WS_ORPHAN_REAP_GRACE_S", 20.0
_IDLE, _IDLE_SECONDS = "HERMES_TUI_SESSION_TTL_S", 6 * 3_600.0
_LOOK_SECONDS = 0.25
Later = Callable[[], None]
End = Callable[[str, "Session", str], None]
"""Finalises a session that was taken out already, for a reason."""


class Parking:
    """Of one server. `end` may take its time; `started` runs it on a thread of its own."""

    def __init__(self, host: Host, end: End, started: Callable[[Later], None]) -> None:
        self._host, self._end, self._started = host, end, started
        self._looked = 0.0

    def left(self, transport: Transport) -> None:
        """A connection has ended: what was to be closed with it is closed, what nobody else looks at is parked."""
        closing: list[tuple[str, Session]] = []
        with self._host.lock:
            for sid, session in list(self._host.sessions.items()):
                audience = session.get("transport")
                if audience is None or not audience.leave(transport):
                    continue
                session["parked_at"] = time.monotonic()
                if session.get("close_on_disconnect"):
                    closing.append((sid, self._host.sessions.pop(sid)))
        for sid, session in closing:
            self._end(sid, session, "ws_disconnect")

    def reap(self) -> None:
        """Close those whose time is up; called often, looks now and then."""
        now = time.monotonic()
        if now - self._looked < _LOOK_SECONDS:
            return
        self._looked = now
        grace, idle = _seconds(_GRACE, _GRACE_SECONDS), _seconds(_IDLE, _IDLE_SECONDS)
        with self._host.lock:
            over = []
            for sid, session in self._parked():
                if self._at_work(sid, session):
                    session["parked_at"] = now
                elif 0 < grace <= now - session["parked_at"]:
                    over.append((sid, "ws_orphan_reap"))
                elif 0 < idle <= now - session["parked_at"]:
                    over.append((sid, "idle_timeout"))
            self._close(over)

    def make_room(self, most: int) -> None:
        """Before one more is opened: as many as are too many, those first that were parked longest."""
        with self._host.lock:
            free = [sid for sid, session in self._parked() if not self._at_work(sid, session)]
            free.sort(key=lambda sid: float(self._host.sessions[sid]["parked_at"]))
            self._close([(sid, "lru_evict") for sid in free[: max(0, len(self._host.sessions) - most + 1)]])

    def _parked(self) -> list[tuple[str, Session]]:
        found = self._host.sessions.items()
        return [(sid, one) for sid, one in found if one.get("parked_at") and one["transport"].gone]

    def _at_work(self, sid: str, session: Session) -> bool:
        place = session["place"]
        if session["running"] or session["waits"] or place.compressing:
            return True
        return bool(place.questions.waiting or self._host.open_requests(sid))

    def _close(self, over: list[tuple[str, str]]) -> None:
        """Taken out with the look that found nobody: somebody may be coming back just now."""
        for sid, reason in over:
            session = self._host.sessions.pop(sid)
            self._started(functools.partial(self._end, sid, session, reason))


def _seconds(variable: str, default: float) -> float:
    given = os.environ.get(variable, "")
    return float(given) if given.replace(".", "", 1).isdecimal() else default
