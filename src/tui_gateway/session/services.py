"""Objects that the parts of the server share: the live sessions, and the functions of `server` that seed tests replace.

`server` makes one `RpcServices` and passes it on. Its callables look up their target in `server` at the time of the
call, because tests of the specification (and plug-ins' tests) replace it.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tui_gateway.wire import frames
from tui_gateway.wire.frames import Params, RpcError
from tui_gateway.wire.transports import Audience

if TYPE_CHECKING:
    from hermes_state import SessionDB
    from tui_gateway.session.follow import Follower
    from tui_gateway.session.live_session import LiveSession
    from tui_gateway.wire.transports import FrameTransport

Session = dict[str, Any]
"""A live session. Its keys are the specification's; ours are `live` (`LiveSession`) and `following`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RpcServices:
    sessions: dict[str, Session]
    lock: threading.RLock
    resume_lock: threading.Lock
    """Makes two requests for one conversation get one live session."""
    emit: Callable[[str, str, Mapping[str, Any] | None], object]
    """Sends a kind, a session and a payload."""
    get_db: Callable[[], SessionDB | None]
    db_trouble: Callable[[], str]
    sync: Callable[..., None]
    """`_sync_session_key_after_compress`."""
    boundary: Callable[..., None]
    """`_notify_session_boundary`."""
    stream_renderer: Callable[[int], Any]
    rendered: Callable[[str, int], Any]
    thread: Callable[[Callable[[], None]], None]
    """Starts the one thread of a turn."""
    transport: Callable[[], FrameTransport]
    """The transport of the present request."""
    build: Callable[[str, Session], None]
    """Starts to make a session's agent, if it has none."""
    follow: Callable[[], None]
    """Starts to follow the conversations of live sessions."""
    still: Callable[[str, Session], AbstractContextManager[Follower | None]]
    """`FollowThread.still`."""
    close: Callable[[str], bool]
    """Removes a session and finalises it."""
    make_room: Callable[[int], None]
    """Closes sessions without clients, as needed to open one more within the given maximum."""
    afterwards: Callable[[Callable[[], None]], None]
    """Runs when the answer to the present request was sent."""
    event_lock: threading.RLock
    """Held while an event is sent, and to hold events back."""

    def db(self) -> SessionDB:
        """The store; raises the client's error when there is none."""
        found = self.get_db()
        if found is None:
            raise RpcError(frames.UNAVAILABLE, f"state.db unavailable: {self.db_trouble()}")
        return found

    def rebind(self, sid: str, session: Session) -> None:
        """Also send the session's frames to the requesting client from now on."""
        with self.lock:
            if self.sessions.get(sid) is not session:  # closed since it was found, because it had no client
                raise RpcError(frames.NO_SESSION, "session not found")
            session.setdefault("transport", Audience()).join(self.transport())

    def typed(
        self, sid: str, session: Session, said: Mapping[str, Any], *, by: FrameTransport, shown: bool = True
    ) -> None:  # fmt: skip
        """Show the session's clients what was typed; the client that typed it gets it only if it has not `shown` it."""
        with self.event_lock:
            session["told"] = session.get("told", 0) + 1
            session["transport"].write(frames.event("message.user", sid, said), but=by)
            if not shown:
                session["transport"].write_to(by, frames.event("message.user", sid, {**said, "own": True}))

    def session(self, sid: str) -> Session:
        with self.lock:
            found = self.sessions.get(sid)
        if found is None:
            raise RpcError(frames.NO_SESSION, "session not found")
        return found


class RpcCall:
    """One request with its session and store, looked up at first need. A missing one is the request's error."""

    def __init__(self, services: RpcServices, params: Params) -> None:
        self.services, self.params = services, params
        self.sid = str(params.get("session_id") or "")

    @functools.cached_property
    def session(self) -> Session:
        return self.services.session(self.sid)

    @functools.cached_property
    def db(self) -> SessionDB:
        return self.services.db()

    @property
    def live(self) -> LiveSession:
        live: LiveSession = self.session["live"]
        return live

    def idle(self) -> LiveSession:
        """The live session, for methods that must not run while the agent works."""
        if self.session["running"]:
            raise RpcError(frames.BUSY, "a turn runs; interrupt it first")
        if self.live.compressing:
            raise RpcError(frames.BUSY, "the conversation is already being compressed")
        return self.live

    def word(self, name: str) -> str:
        return str(self.params.get(name) or "").strip()
