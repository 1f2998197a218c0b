"""Live sessions without a client: kept for a client that comes back, and closed after a while.

A session without a client is parked, for whatever reason it has none: its audience is asked at every check, and no
other state exists. One that was to be closed with its connection is closed at the first check. Any other is closed
after a grace period (`HERMES_TUI_WS_ORPHAN_REAP_GRACE_S`, 20 s; 0: never), at the latest when it was idle for
`HERMES_TUI_SESSION_TTL_S` (6 h), and earlier when a new session needs its slot: the one parked longest is closed first.
A session that works or waits for a person stays. Nothing is lost: the conversation is in the store, and can be resumed.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from tui_gateway.wire.transports import Audience

if TYPE_CHECKING:
    from tui_gateway.session.services import RpcServices, Session
    from tui_gateway.wire.transports import FrameTransport

_Thread = threading.Thread  # as in `transports`
_GRACE, _GRACE_SECONDS = "HERMES_TUI_WS_ORPHAN_REAP_GRACE_S", 20.0
_IDLE, _IDLE_SECONDS = "HERMES_TUI_SESSION_TTL_S", 6 * 3_600.0
_LOOK_SECONDS = 0.25
_DISCONNECTED = "ws_disconnect"
End = Callable[[str, "Session", str], None]
"""Finalises a session that was already removed, for a reason."""


class IdleSessions:
    """The idle sessions of one server. `end` may be slow."""

    def __init__(self, services: RpcServices, end: End) -> None:
        self._services, self._end = services, end
        self._looked = 0.0

    def left(self, transport: FrameTransport) -> None:
        """A connection has ended, or had ended before it joined: close the sessions that were to be closed with it."""
        with self._services.lock:
            for session in self._services.sessions.values():
                if isinstance(audience := session.get("transport"), Audience):
                    audience.leave(transport)
            closing = [(sid, self._services.sessions.pop(sid)) for sid in self._disconnected()]
        for sid, session in closing:
            self._end(sid, session, _DISCONNECTED)

    def reap(self) -> None:
        """Close expired sessions; called often, checks at intervals."""
        now = time.monotonic()
        if now - self._looked < _LOOK_SECONDS:
            return
        self._looked = now
        grace, idle = _seconds(_GRACE, _GRACE_SECONDS), _seconds(_IDLE, _IDLE_SECONDS)
        with self._services.lock:
            self._close([(sid, _DISCONNECTED) for sid in self._disconnected()])
            over = []
            for sid, session, since in self._parked():
                if _at_work(session):
                    session["worked_at"] = now
                elif 0 < grace <= now - since:
                    over.append((sid, "ws_orphan_reap"))
                elif 0 < idle <= now - since:
                    over.append((sid, "idle_timeout"))
            self._close(over)

    def make_room(self, most: int) -> None:
        """Before one more is opened, close surplus sessions, those parked longest first."""
        with self._services.lock:
            free = [(since, sid) for sid, session, since in self._parked() if not _at_work(session)]
            too_many = max(0, len(self._services.sessions) - most + 1)
            self._close([(sid, "lru_evict") for _, sid in sorted(free)[:too_many]])

    def _parked(self) -> Iterator[tuple[str, Session, float]]:
        """Parked sessions, each with the time since when it has no client and no activity."""
        for sid, session in self._services.sessions.items():
            audience = session.get("transport")
            if isinstance(audience, Audience) and session.get("live") is not None:
                since = audience.gone_since
                if since is not None:
                    yield sid, session, max(since, session["worked_at"])

    def _disconnected(self) -> list[str]:
        return [sid for sid, session, _ in self._parked() if session["close_on_disconnect"]]

    def _close(self, over: list[tuple[str, str]]) -> None:
        """Remove them in the same step as the check: a client may be coming back."""
        for sid, reason in over:
            session = self._services.sessions.pop(sid)
            _Thread(target=self._end, args=(sid, session, reason), daemon=True, name="rpc-end").start()


def _at_work(session: Session) -> bool:
    live = session["live"]
    return bool(session["running"] or session["waits"] or live.compressing or live.approvals.waiting)


def _seconds(variable: str, default: float) -> float:
    given = os.environ.get(variable, "")
    return float(given) if given.replace(".", "", 1).isdecimal() else default
