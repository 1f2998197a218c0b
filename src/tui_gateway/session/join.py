"""Join a live session: the client gets its present state, and every event from exactly there on.

The answer and the events after it fit together: no event repeats the answer's content, and none is missing. For that
the follower pauses while the transcript is read, an event of the session's own turn meanwhile causes another read, and
frames wait until the answer is out. The newcomer also gets the open questions.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from tui_gateway.session import session_view

if TYPE_CHECKING:
    from hermes_state import SessionDB
    from tui_gateway.session.services import RpcServices, Session
    from tui_gateway.wire.frames import Params, Result

_TRIES, _PAUSE_SECONDS = 40, 0.025
"""How long a stored answer may take to be sent; then the client gets the present state."""


def join_session(services: RpcServices, sid: str, session: Session, params: Params) -> Result:
    """For `session.resume` and `session.activate`: make the caller one of the session's clients."""
    if params.get("cols") is not None:
        session["cols"] = session_view.cols_of(params)
    for left in reversed(range(_TRIES)):
        found = _try_join(services, sid, session, params, patient=left > 0)
        if found is not None:
            return found
        time.sleep(_PAUSE_SECONDS)
    raise AssertionError("the last try takes what there is")


def _try_join(services: RpcServices, sid: str, session: Session, params: Params, *, patient: bool) -> Result | None:
    db, told = services.db(), session["told"]
    with services.still(sid, session) as following:
        upto = None if following is None or session["live"].turn is not None else following.upto
        shown = session_view.messages(db, session, details=bool(params.get("details")), upto=upto)
        about = session_view.info(session)
        waits = following is not None and following.waits
        if patient and (waits or _event_is_due(db, session, shown, upto)):
            return None
        with services.event_lock:
            if patient and session["told"] != told:
                return None
            held = session["transport"].join_later(services.transport())
            for asked in session["live"].approvals.open_requests():
                held.write(asked)
            services.afterwards(held.release)
            return session_view.state(sid, session, shown, params, info=about)


def _event_is_due(db: SessionDB, session: Session, shown: list[dict[str, Any]], upto: int | None) -> bool:
    """Whether a stored turn, prompt or end is about to be sent as an event."""
    state = db.live_state(session["session_key"])
    if not session_view.at_work(session):
        return upto is not None and state is not None and state.head_id > upto
    turn = session["inflight_turn"]
    last = shown[-1] if shown else {}
    if turn is not None and session["live"].turn is None:
        return bool(last.get("role") == "user" and last["text"] == turn["user"])
    rows = None if state is None else db.live_rows(session["session_key"], after=state.head_id - 1)
    newest = rows.messages[-1] if rows is not None and rows.messages else {}
    return newest.get("role") == "assistant" and not newest.get("tool_calls")  # an answer, not a step of a turn
