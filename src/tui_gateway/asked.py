"""Requests to a session's clients that somebody waits for: a question of the model, a password, a secret.

Whoever asks waits on a thread of its own. The first answer counts, is handed over once, and is kept nowhere; whoever
comes to the session meanwhile is asked, too. A session that ends answers with nothing.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tui_gateway import frames

if TYPE_CHECKING:
    from tui_gateway.frames import Frame
    from tui_gateway.host import Emit

_OVER = {"sudo.request": "sudo.expire", "secret.request": "secret.expire", "clarify.request": "clarify.expire"}


@dataclass(slots=True)
class _Request:
    sid: str
    frame: Frame
    """As it was put."""
    rung: threading.Event = field(default_factory=threading.Event)
    answer: str = field(default="", repr=False)


class ClientRequests:
    """Of one server."""

    def __init__(self, emit: Emit, telling: threading.RLock) -> None:
        self._emit, self._telling = emit, telling
        self._lock = threading.Lock()
        self._open: dict[str, _Request] = {}

    def block(self, event: str, sid: str, payload: Mapping[str, Any], timeout: float = 300) -> str:
        """Ask the clients and wait; the answer, or nothing when none came in time."""
        rid = uuid.uuid4().hex[:8]
        shown = {**payload, "request_id": rid}
        request = _Request(sid, frames.event(event, sid, shown))
        with self._telling:  # whoever comes now either hears of it or finds it
            with self._lock:
                self._open[rid] = request
            self._emit(event, sid, shown)
        request.rung.wait(timeout)
        with self._lock:
            self._open.pop(rid, None)
        self._emit(_OVER[event], sid, {"request_id": rid})
        return request.answer

    def open_requests(self, sid: str) -> list[Frame]:
        with self._lock:
            return [request.frame for request in self._open.values() if request.sid == sid]

    def answered(self, request_id: str, answer: str) -> bool:
        """False when nobody waits under that id, or an answer was quicker."""
        with self._lock:  # all of it: a wait that ends at this moment must not miss what was taken
            request = self._open.pop(request_id, None)
            if request is None:
                return False
            request.answer = answer
            request.rung.set()
            return True

    def release(self, sid: str) -> None:
        """Whoever waits for an answer in this session gets an empty one."""
        with self._lock:
            mine = [rid for rid, request in self._open.items() if request.sid == sid]
        for rid in mine:
            self.answered(rid, "")
