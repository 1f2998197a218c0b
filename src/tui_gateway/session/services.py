"""What the parts of the server share: the live sessions, and the functions of `server` that the seed tests replace.

`RpcServices` is made once by `server` and handed down. Its callables look their target up in `server` at the moment of
the call, because tests of the specification (and plug-ins' tests) put their own in its place.
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
    """Two who ask for one conversation get one live session."""
    emit: Callable[[str, str, Mapping[str, Any] | None], object]
    """A kind, a session and a payload."""
    get_db: Callable[[], SessionDB | None]
    db_trouble: Callable[[], str]
    sync: Callable[..., None]
    """`_sync_session_key_after_compress`."""
    boundary: Callable[..., None]
    """`_notify_session_boundary`."""
    stream_renderer: Callable[[int], Any]
    rendered: Callable[[str, int], Any]
    thread: Callable[[Callable[[], None]], None]
    """Start the one thread of a turn."""
    transport: Callable[[], FrameTransport]
    """Of the request that is being answered."""
    build: Callable[[str, Session], None]
    """Start to make a session's agent, where it has none."""
    follow: Callable[[], None]
    """Start to look at the conversations of live sessions."""
    still: Callable[[str, Session], AbstractContextManager[Follower | None]]
    """`FollowThread.still`."""
    close: Callable[[str], bool]
    """Take a session out and finalise it."""
    make_room: Callable[[int], None]
    """Close what nobody looks at, as far as needed to open one more session of at most so many."""
    afterwards: Callable[[Callable[[], None]], None]
    """Done when the answer to this request is on its way."""
    event_lock: threading.RLock
    """Held while an event is sent, and to keep events from being sent."""

    def db(self) -> SessionDB:
        """The store; raises what a client is told when there is none."""
        found = self.get_db()
        if found is None:
            raise RpcError(frames.UNAVAILABLE, f"state.db unavailable: {self.db_trouble()}")
        return found

    def rebind(self, sid: str, session: Session) -> None:
        """From now on the session's frames also go to the client that makes this request."""
        with self.lock:
            if self.sessions.get(sid) is not session:  # closed since it was found, because nobody was there
                raise RpcError(frames.NO_SESSION, "session not found")
            session.setdefault("transport", Audience()).join(self.transport())

    def typed(
        self, sid: str, session: Session, said: Mapping[str, Any], *, by: FrameTransport, shown: bool = True
    ) -> None:  # fmt: skip
        """The session's clients hear what was typed; the client that typed it does only when it has not `shown` it,
        as its own."""
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
    """One request, with what it is about: looked up once, at first need. What is not there is the request's error."""

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
        """For what must not happen while the agent is at work."""
        if self.session["running"]:
            raise RpcError(frames.BUSY, "a turn runs; interrupt it first")
        if self.live.compressing:
            raise RpcError(frames.BUSY, "the conversation is being compressed already")
        return self.live

    def word(self, name: str) -> str:
        return str(self.params.get(name) or "").strip()
