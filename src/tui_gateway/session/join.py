"""Coming to a live session: what a client is shown of it, and from exactly there on what happens.

The answer and the events behind it fit together: what the answer holds is not told again, and what it does not hold is
told behind it. For that the follower stands still while the transcript is read, what the session's own turn tells
meanwhile makes us read again, and frames that come before the answer is out wait for it. Questions that are open are
put to the newcomer, too.
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
"""As long as an answer that is stored may take to be told; then the client is shown what there is."""


def come(services: RpcServices, sid: str, session: Session, params: Params) -> Result:
    """For `session.resume` and `session.activate`: the caller is one of the session's clients from now on."""
    if params.get("cols") is not None:
        session["cols"] = session_view.cols_of(params)
    for left in reversed(range(_TRIES)):
        found = _tried(services, sid, session, params, patient=left > 0)
        if found is not None:
            return found
        time.sleep(_PAUSE_SECONDS)
    raise AssertionError("the last try takes what there is")


def _tried(services: RpcServices, sid: str, session: Session, params: Params, *, patient: bool) -> Result | None:
    db, told = services.db(), session["told"]
    with services.still(sid, session) as following:
        upto = None if following is None or session["live"].turn is not None else following.upto
        shown = session_view.messages(db, session, details=bool(params.get("details")), upto=upto)
        about = session_view.info(session)
        waits = following is not None and following.waits
        if patient and (waits or _is_between(db, session, shown, upto)):
            return None
        with services.event_lock:
            if patient and session["told"] != told:
                return None
            held = session["transport"].join_later(services.transport())
            for asked in session["live"].approvals.open_requests():
                held.write(asked)
            services.afterwards(held.release)
            return session_view.state(sid, session, shown, params, info=about)


def _is_between(db: SessionDB, session: Session, shown: list[dict[str, Any]], upto: int | None) -> bool:
    """Something is stored and about to be told: a turn, its prompt, or its end."""
    state = db.live_state(session["session_key"])
    if not session_view.at_work(session):
        return upto is not None and state is not None and state.head_id > upto
    turn = session["inflight_turn"]
    last = shown[-1] if shown else {}
    if turn is not None and session["live"].turn is None:
        return bool(last.get("role") == "user" and last["text"] == turn["user"])
    rows = None if state is None else db.live_rows(session["session_key"], after=state.head_id - 1)
    newest = rows.messages[-1] if rows is not None and rows.messages else {}
    return newest.get("role") == "assistant" and not newest.get("tool_calls")  # an answer, and not a step of a turn
