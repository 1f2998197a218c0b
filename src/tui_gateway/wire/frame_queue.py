"""The bounded queue of frames for one client: no producer of frames ever waits for a slow reader.

Frames leave in the order in which they were put. Consecutive deltas of one session are merged into one frame while they
wait, at most `BATCH_SECONDS`; any other frame sends them off first. A client with more than `limits.rpc_queue_bytes` (a
character counts as one) waiting behind the next frame is disconnected: the frames it missed are in the store, and it
can resume. One large frame does not count: its client has had no time to read it.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from tui_gateway.wire import frames
from tui_gateway.wire.frames import Frame

BATCH_SECONDS = 0.033
_DELTAS = frozenset({"message.delta", "reasoning.delta", "thinking.delta"})
_FRAME_BYTES = 120


@dataclass(slots=True)
class _Delta:
    kind: str
    sid: str
    since: float
    parts: list[str] = field(default_factory=list)
    size: int = _FRAME_BYTES

    def text(self) -> str:
        return frames.encode(frames.event(self.kind, self.sid, {"text": "".join(self.parts)}))


class FrameQueue:
    """Any thread puts frames, one writer takes them. `wake` is called when there is something to take."""

    def __init__(self, wake: Callable[[], None], *, most_bytes: int, clock: Callable[[], float] = time.monotonic):
        self._wake, self._most, self._clock = wake, most_bytes, clock
        self._lock = threading.Lock()
        self._waiting: deque[str | _Delta] = deque()
        self._bytes = 0
        self.closed = False
        self.overfull = False

    def put(self, frame: Frame) -> bool:
        """False when this client gets no more frames."""
        delta = _delta(frame)
        text = "" if delta else frames.encode(frame)  # outside the lock
        with self._lock:
            if self.closed:
                return False
            last = self._waiting[-1] if self._waiting else None
            if delta is None:
                self._waiting.append(text)
                self._bytes += len(text)
            elif isinstance(last, _Delta) and (last.kind, last.sid) == delta[:2]:
                last.parts.append(delta[2])
                last.size += len(delta[2])
                self._bytes += len(delta[2])
            else:
                self._waiting.append(_Delta(delta[0], delta[1], self._clock(), [delta[2]]))
                self._bytes += _FRAME_BYTES + len(delta[2])
            first = self._waiting[0]
            if self._bytes - (0 if isinstance(first, _Delta) else len(first)) > self._most:
                self.closed = self.overfull = True
        self._wake()
        return not self.overfull

    def take(self) -> tuple[list[str], float | None]:
        """The frames to write now, and in how many seconds there are more; None when `wake` will be called."""
        ready: list[str] = []
        with self._lock:
            while self._waiting:
                first = self._waiting[0]
                if isinstance(first, _Delta):
                    left = first.since + BATCH_SECONDS - self._clock()
                    if left > 0 and len(self._waiting) == 1 and not self.closed:
                        return ready, left
                    ready.append(first.text())
                    self._bytes -= first.size
                else:
                    ready.append(first)
                    self._bytes -= len(first)
                self._waiting.popleft()
        return ready, None

    def close(self) -> None:
        """Accept no more frames; waiting ones can still be taken."""
        with self._lock:
            self.closed = True
        self._wake()


def _delta(frame: Frame) -> tuple[str, str, str] | None:
    """(kind, session, text) of a delta that has only a text."""
    params = frame.get("params")
    if not isinstance(params, dict) or params.get("type") not in _DELTAS:
        return None
    payload = params.get("payload")
    if not isinstance(payload, dict) or payload.keys() != {"text"} or not isinstance(payload["text"], str):
        return None
    return params["type"], str(params.get("session_id") or ""), payload["text"]
