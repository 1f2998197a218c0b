"""The JSON-RPC server: live sessions, methods, and the functions that the seed tests replace.

Requests come in by `dispatch` (a small pool answers slow ones later) or `handle_request` (everything inline); frames go
out by `write_json`. The seed tests read and replace the names that begin with an underscore, so callers look them up at
the time of the call. A live session is a view of a stored conversation.
"""

from __future__ import annotations

import contextlib
import contextvars
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TextIO

from hermes_agent import sync_loop
from hermes_agent.agent import ConversationBusy
from hermes_agent.mentions import FileRefused
from hermes_cli import plugins
from hermes_config import config as configuration
from hermes_config.errors import HermesError
from hermes_config.limits import DEFAULTS
from hermes_state.errors import ConversationHeld, SessionNotFound
from hermes_state.turns import processes
from tui_gateway.rpc import inventory, sessions, settings, turns  # noqa: F401 - each adds its methods to the table
from tui_gateway.rpc.method import METHODS, Handler
from tui_gateway.session import attach, follow, idle_sessions, prompt
from tui_gateway.session.services import RpcCall, RpcServices, Session
from tui_gateway.wire import frames
from tui_gateway.wire.frames import Frame, Params, RpcError
from tui_gateway.wire.transports import FrameTransport, StdioTransport

if TYPE_CHECKING:
    from hermes_state import SessionDB

_log = logging.getLogger("hermes.rpc")
_LEAVE_OPEN_SECONDS = 0.8
_PROCESS_SECONDS = 1.0
"""For turns that are released when the process ends; one that takes longer is lost with the process."""
_Thread = threading.Thread  # as in `transports`

_sessions: dict[str, Session] = {}
_sessions_lock = threading.RLock()
_session_resume_lock = threading.Lock()
_db_lock = threading.Lock()
_db: SessionDB | None = None
_db_error: str | None = None
_real_stdout: TextIO | None = None
_stdio_transport = StdioTransport(lambda: _real_stdout or sys.stdout)
_bound: contextvars.ContextVar[FrameTransport | None] = contextvars.ContextVar("hermes_rpc_transport", default=None)
_behind: contextvars.ContextVar[list[Callable[[], None]] | None] = contextvars.ContextVar(
    "hermes_rpc_behind", default=None
)
_event_lock = threading.RLock()
_workers = os.environ.get("HERMES_TUI_RPC_POOL_WORKERS", "")
_pool = ThreadPoolExecutor(max(2, int(_workers) if _workers.isdecimal() else 8), thread_name_prefix="rpc")
_pooled = threading.BoundedSemaphore(DEFAULTS.rpc_waiting)

_DESKTOP, _DESKTOP_TERMINAL = "HERMES_DESKTOP", "HERMES_DESKTOP_TERMINAL"
_CODES: dict[type[HermesError], int] = {
    ConversationBusy: frames.BUSY,
    ConversationHeld: frames.BUSY,
    SessionNotFound: frames.UNKNOWN_SESSION,
    FileRefused: frames.BAD_VALUE,
}
"""The codes of these errors for a client; all others are FAILED."""
_TURNS = frozenset({
    "message.start", "message.user", "message.interim", "message.complete", "tool.start", "tool.complete", "error",
})  # fmt: skip


# -- requests ----------------------------------------------------------------------------------------------


def handle_request(req: Any) -> Frame:
    """Run any method inline and return its response."""
    rid = req.get("id") if isinstance(req, dict) else None
    try:
        request = frames.request(req)
        if request.method not in _methods:
            raise RpcError(frames.UNKNOWN_METHOD, f"unknown method: {request.method[:80]}")
        known = METHODS.get(request.method)
        if known is not None:
            known.check(request.params)
        return _methods[request.method](rid, request.params)
    except RpcError as error:
        return frames.failure(rid, error.code, error.message)
    except HermesError as error:
        code = next((code for kind, code in _CODES.items() if isinstance(error, kind)), frames.FAILED)
        return frames.failure(rid, code, error.one_line())
    except Exception as error:  # noqa: BLE001 - boundary: a request must not end the server
        _log.exception("a request failed in our own code", extra={"action": "rpc_defect"})
        return frames.failure(rid, frames.CRASH, f"something went wrong inside Hermes ({type(error).__name__})")


def dispatch(req: Any, transport: FrameTransport | None = None) -> Frame | None:
    """The response, or None when a pooled method will write it."""
    token = _bound.set(transport)
    try:
        name = req.get("method") if isinstance(req, dict) else None
        known = METHODS.get(name) if isinstance(name, str) else None
        if known is None or not known.pooled:
            return handle_request(req)
        if not _pooled.acquire(blocking=False):
            return frames.failure(req.get("id"), frames.FAILED, "too many requests wait; send fewer at once")
        context = contextvars.copy_context()
        _pool.submit(context.run, _answer_later, req)
        return None
    finally:
        _bound.reset(token)


def serve(req: Any, transport: FrameTransport) -> None:
    """`dispatch` for a client that may disconnect at any time, also while its request runs."""
    answer = dispatch(req, transport)
    if answer is not None and not transport.write(answer):
        _idle_sessions.left(transport)  # once more: the request may have joined it to a session after it disconnected


def _answer_later(req: Any) -> None:
    behind: list[Callable[[], None]] = []
    _behind.set(behind)
    try:
        transport = _bound.get()
        if write_json(handle_request(req)) is False and transport is not None:
            _idle_sessions.left(transport)  # as in `serve`
    finally:
        _pooled.release()
        for step in behind:
            step()


def settle(seconds: float) -> None:
    """Give pooled requests this long to be answered; the pool accepts no more."""
    until = time.monotonic() + seconds
    for _ in range(DEFAULTS.rpc_waiting):
        if not _pooled.acquire(timeout=max(0.0, until - time.monotonic())):
            return


def _afterwards(step: Callable[[], None]) -> None:
    """Run `step` after the answer was written; at once for a request whose answer is only returned."""
    behind = _behind.get()
    if behind is None:
        step()
    else:
        behind.append(step)


def method(name: str) -> Callable[[Callable[[Any, Params], Frame]], Callable[[Any, Params], Frame]]:
    """Add a handler `(id, params) → response`."""

    def add(handler: Callable[[Any, Params], Frame]) -> Callable[[Any, Params], Frame]:
        _methods[name] = handler
        return handler

    return add


# -- frames ------------------------------------------------------------------------------------------------


def write_json(obj: Frame) -> bool:
    """Send to the clients of the event's session, else to the requesting client, else to stdio."""
    params = obj.get("params")
    sid = params.get("session_id") if obj.get("method") == "event" and isinstance(params, dict) else None
    session = _sessions.get(sid) if isinstance(sid, str) else None
    transport = None if session is None else session.get("transport")
    return (transport or _bound.get() or _stdio_transport).write(obj)


def _emit(event: str, sid: str, payload: Mapping[str, Any] | None = None) -> None:
    with _event_lock:
        session = _sessions.get(sid)
        if session is not None and event in _TURNS:
            session["told"] = session.get("told", 0) + 1
        write_json(frames.event(event, sid, payload))


def make_stream_renderer(cols: int) -> Any:
    """Clients render Markdown themselves; the server has no renderer."""
    return None


def render_message(text: str, cols: int) -> Any:
    return None


# -- the store ---------------------------------------------------------------------------------------------


def _get_db() -> SessionDB | None:
    """The home's store, opened at first need; None when it cannot be opened, and the next call tries again."""
    global _db, _db_error  # noqa: PLW0603 - the names are the specification's
    with _db_lock:
        if _db is None:
            from hermes_state import SessionDB

            try:
                config = configuration.load()
                where = config.database_url() or config.home / "state.db"
                _db = SessionDB(where, synchronous=config.state.synchronous.upper(), limits=config.limits)
                _db_error = None
            except (HermesError, OSError) as error:
                _db_error = error.one_line() if isinstance(error, HermesError) else str(error.strerror)
                _log.error("the store cannot be opened: %s", _db_error, extra={"action": "rpc_store"})
        return _db


def _notify_session_boundary(event_type: str, session_id: str | None, platform: str | None = None) -> None:
    """Tell plug-ins that a session begins or ends; their errors are only logged."""
    desktop = os.environ.get(_DESKTOP) == "1" and not os.environ.get(_DESKTOP_TERMINAL)
    try:
        plugins.invoke_hook(event_type, session_id=session_id, platform=platform or ("desktop" if desktop else "tui"))
    except Exception as error:  # noqa: BLE001 - boundary: plug-ins
        _log.error("hook %s failed (%s)", event_type, type(error).__name__, extra={"action": "hook_failed"})


def _sync_session_key_after_compress(
    sid: str, session: Session, *, clear_pending_title: bool = True, restart_slash_worker: bool = True
) -> None:
    """Move the session's key to the new segment after a compression.

    Leases and approvals belong to the conversation and need not move. Commands run in this process, so there is no
    worker to restart, whatever the flag says.
    """
    new = str(getattr(session.get("agent"), "session_id", None) or "")
    if not new or new == session.get("session_key"):
        return
    session["session_key"] = new
    if clear_pending_title:
        session["pending_title"] = None


def _finalize_session(session: Session | None, end_reason: str = "tui_close") -> None:
    """End a live session once: call the hooks, and end its conversation unless another route leads to it."""
    if session is None or session.get("_finalized"):
        return
    session["_finalized"] = True
    agent = session.get("agent")
    history = list(session.get("history") or ())
    commit = getattr(agent, "commit_memory_session", None)
    session_id = str(getattr(agent, "session_id", None) or session.get("session_key") or "")
    db = _get_db()
    steps: list[Callable[[], object]] = [
        lambda: commit(history) if commit is not None and history else None,
        lambda: _notify_session_boundary("on_session_finalize", session_id, session.get("source")),
        lambda: None if db is None or attach.has_route(db, session_id) else db.end_session(session_id, end_reason),
    ]
    for step in steps:
        try:
            step()
        except Exception as error:  # noqa: BLE001 - boundary: one step that fails must not keep the others from running
            _log.error("closing a session: %s", type(error).__name__, extra={"action": "rpc_close"})


def _teardown(sid: str, end_reason: str = "tui_close") -> bool:
    """Remove the session and finalise it; False when it does not exist."""
    with _sessions_lock:
        session = _sessions.pop(sid, None)
    if session is not None:
        _end_session(sid, session, end_reason)
    return session is not None


def _end_session(sid: str, session: Session, end_reason: str) -> None:
    """Finalise a session that was already removed."""
    live = session.get("live")
    with _sessions_lock:
        agent = session.get("agent")
        if not session.get("running"):
            session["agent_build"] = None  # discard an agent that is being made
    if live is not None:
        if end_reason == "tui_close":  # also for a turn that is about to begin
            prompt.forget(session, reason="the session was closed")
            session["_turn_cancel_requested"] = True
        # Otherwise prompts stay in the store: the process that opens the conversation next answers them.
        session.update(prompts=[], left_open=end_reason != "tui_close")
        if session["running"] and agent is not None:
            if end_reason == "tui_close":
                agent.interrupt()
            else:  # nobody stopped it: the process that opens the conversation next continues it
                agent.leave_open()
        live.approvals.leave()
    _finalize_session(session, end_reason)
    if agent is not None and live is not None:
        agent.close()


def _close_all(end_reason: str) -> None:
    live = list(_sessions.items())
    for sid, _ in live:
        _teardown(sid, end_reason)
    until = time.monotonic() + _LEAVE_OPEN_SECONDS
    while any(session.get("running") for _, session in live) and time.monotonic() < until:
        time.sleep(0.01)
    if (delegation := sys.modules.get("hermes_agent.delegation")) is not None:  # else nothing was delegated
        with contextlib.suppress(TimeoutError):
            sync_loop.submit(delegation.leave_open()).result(_LEAVE_OPEN_SECONDS)


# -- agents ------------------------------------------------------------------------------------------------


def _start_agent_build(sid: str, session: Session) -> None:
    """Make the session's agent on its own thread, once. An agent that was dropped meanwhile is not used."""
    with _sessions_lock:
        if session["agent_build_started"] or session["agent"] is not None:
            return
        this = object()
        session.update(agent_build_started=True, agent_build=this, agent_error=None)
        session["agent_ready"].clear()

    def build() -> None:
        agent, trouble = None, None
        try:
            agent = session["live"].build()
        except HermesError as error:
            trouble = error.one_line()
        except Exception as error:  # noqa: BLE001 - boundary: the turn that waits for the agent must hear of it
            _log.exception("an agent could not be made", extra={"action": "rpc_agent"})
            trouble = f"something went wrong inside Hermes ({type(error).__name__})"
        with _sessions_lock:
            wanted = session["agent_build"] is this
            if wanted:
                session.update(agent=agent, agent_error=trouble, agent_build_started=trouble is None)
                session["agent_ready"].set()
        if agent is not None and not wanted:
            agent.close()

    _Thread(target=build, daemon=True, name="rpc-agent").start()


def _start_turn(body: Callable[[], None]) -> None:
    threading.Thread(target=body, daemon=True).start()  # looked up now: a seed test replaces it


def _lookup(name: str) -> Callable[..., Any]:
    """A function of this module, looked up when it is called: a test may have replaced it."""

    def call(*args: Any, **more: Any) -> Any:
        return globals()[name](*args, **more)

    return call


_services = RpcServices(
    sessions=_sessions, lock=_sessions_lock, resume_lock=_session_resume_lock, event_lock=_event_lock,
    emit=_lookup("_emit"), get_db=_lookup("_get_db"), db_trouble=lambda: _db_error or "",
    sync=_lookup("_sync_session_key_after_compress"),
    boundary=_lookup("_notify_session_boundary"), stream_renderer=_lookup("make_stream_renderer"),
    rendered=_lookup("render_message"), thread=_start_turn, transport=lambda: _bound.get() or _stdio_transport,
    build=_lookup("_start_agent_build"), follow=_lookup("_follow"), still=_lookup("_still"), close=_lookup("_teardown"),
    make_room=_lookup("_make_room"), afterwards=_afterwards,
)  # fmt: skip
_idle_sessions = idle_sessions.IdleSessions(_services, _end_session)
_make_room = _idle_sessions.make_room


_processes_checked = 0.0


def _between_checks() -> None:
    """Called often by the follower: close idle sessions, and at intervals record the end of background processes, so
    that a terminal without a gateway learns of it."""
    global _processes_checked  # noqa: PLW0603 - the one thread of the follower
    _idle_sessions.reap()
    if time.monotonic() - _processes_checked < _PROCESS_SECONDS:
        return
    _processes_checked = time.monotonic()
    home = configuration.load_or_last_good()[0].home
    if (home / processes.FOLDER).exists() and (db := _get_db()) is not None:
        from hermes_agent.processes import settle

        try:
            settle(db, home)
        except (HermesError, OSError) as error:
            _log.warning("trying again: %s", error, extra={"action": "process.settle"})


_followers = follow.FollowThread(_services, _between_checks)
_follow, _still = _followers.start, _followers.still
_methods: dict[str, Callable[[Any, Params], Frame]] = {}


def _served(handler: Handler) -> Callable[[Any, Params], Frame]:
    return lambda rid, params: frames.response(rid, handler(RpcCall(_services, params)))


for _name, _known in METHODS.items():
    method(_name)(_served(_known.handler))


def ready() -> Frame:
    """The first frame that a client gets."""
    config = configuration.load_or_last_good()[0]
    skin = config.display.skin or "default"
    return frames.event("gateway.ready", None, {"skin": skin, "request_bytes": config.limits.rpc_frame_bytes})
