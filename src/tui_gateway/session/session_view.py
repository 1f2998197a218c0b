"""Create live sessions, show them to clients (`info`, usage, the messages of a screen), and add clients to them."""

from __future__ import annotations

import bisect
import os
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_agent import budget, mentions
from hermes_agent.commands import about
from hermes_agent.messages import calls_of, text_of
from hermes_agent.tools import output, registry
from hermes_config import config as configuration
from hermes_config.version import VERSION
from hermes_state.conversations import uncompress
from hermes_state.ids import LOCAL_OWNER, ConversationId, new_session_id
from hermes_state.turns.inbox import BESIDE
from tui_gateway.session import attach
from tui_gateway.session.live_session import LiveSession
from tui_gateway.wire import frames
from tui_gateway.wire.frames import Params, Result, RpcError
from tui_gateway.wire.transports import Audience

if TYPE_CHECKING:
    from hermes_agent.models.base import ToolCall
    from hermes_state import SessionDB
    from tui_gateway.session.services import RpcServices, Session

_CONTRACT = 4
_COLS, _MOST_COLS = 80, 10_000
_COMPRESSED = "The messages above were compressed: the model knows them from a summary."
_RESULT_SHOWN = 60_000
_OF_THE_QUEUE = 4
"""The largest part of a client's queue that the messages of one answer may fill."""
_CUT_OFF = ("interrupted", "error")
"""What stopped an incomplete answer."""


def open_session(
    services: RpcServices,
    params: Params,
    db: SessionDB,
    *,
    key: str | None = None,
    messages: Sequence[Mapping[str, Any]] = (),
    join: bool = False,
) -> tuple[str, Session]:
    """Open a live session on a stored conversation (`key`), or on one that begins with its first prompt.

    `join`: the requesting client joins it at once.
    """
    cwd = folder_of(str(params.get("cwd") or Path.cwd()))
    sid, now = os.urandom(4).hex(), time.time()
    session: Session = {
        "agent": None, "session_key": key or str(new_session_id(now)), "history": [dict(one) for one in messages],
        "history_lock": threading.Lock(), "history_version": 0, "running": False, "attached_images": [],
        "image_counter": 0, "cols": cols_of(params), "slash_worker": None, "show_reasoning": False,
        "tool_progress_mode": "all", "pending_title": None, "agent_ready": threading.Event(), "agent_error": None,
        "agent_build_started": False, "agent_build": None, "created_at": now, "last_active": now, "inflight_turn": None,
        "prompts": [], "steered": [], "left_open": False, "cwd": str(cwd), "explicit_cwd": bool(params.get("cwd")),
        "source": str(params.get("source") or "tui"), "transport": Audience(),
        "close_on_disconnect": bool(params.get("close_on_disconnect")), "tool_started_at": {},
        "_turn_cancel_requested": False, "_sid": sid, "following": None, "looking": threading.Lock(), "told": 0,
        "worked_at": 0.0, "waits": False,
    }  # fmt: skip
    session["live"] = LiveSession(services, sid, session, db, params)
    with services.lock:
        services.make_room(_most(db))
        if len(services.sessions) >= db.limits.rpc_sessions:
            raise RpcError(frames.TOO_MANY, f"{len(services.sessions)} sessions are live; close some")
        services.sessions[sid] = session
        if join:
            services.rebind(sid, session)
    services.follow()
    return sid, session


def folder_of(given: str) -> Path:
    """The folder in which tools work."""
    folder = Path(os.path.expanduser(given))  # noqa: PTH111 - an unknown user is an error of Path's
    if not given or not os.path.isdir(folder):  # noqa: PTH112 - an impossible name is not a folder, and not an error
        raise RpcError(frames.BAD_VALUE, f"there is no folder {str(folder)[:200]!r}")
    return folder


def _most(db: SessionDB) -> int:
    """How many sessions may be live before those without a client are closed."""
    wanted = configuration.load_or_last_good()[0].max_live_sessions or db.limits.rpc_sessions
    return min(wanted, db.limits.rpc_sessions)


def cols_of(params: Params) -> int:
    return frames.whole(params, "cols", _COLS, most=_MOST_COLS)


def info(session: Session) -> dict[str, Any]:
    """`session.info`. A session without a `LiveSession` comes from a seed test and has few facts."""
    live: LiveSession | None = session.get("live")
    agent = session.get("agent")
    shown: dict[str, Any] = {
        "model": str(getattr(agent, "model", "") or ""), "provider": str(getattr(agent, "provider", "") or ""),
        "tools": {}, "skills": {}, "cwd": str(session.get("cwd") or ""), "running": at_work(session),
        "branch": "", "title": "", "stored_session_id": str(session.get("session_key") or ""), "driver": "here",
        "yolo": False,
        "approval_mode": "", "version": VERSION, "usage": {}, "desktop_contract": _CONTRACT, "profile_name": "default",
        "queued": bool(session.get("prompts")),
    }  # fmt: skip
    if live is None:
        return shown
    if agent is None:
        shown["model"], shown["provider"] = live.endpoint()
        shown["lazy"] = True
    else:
        shown["tools"], shown["skills"] = _tools(agent.valid_tool_names), live.skills()
    row = live.db.get_session(session["session_key"])
    shown |= {
        "title": (row or {}).get("title") or session["pending_title"] or "", "yolo": live.yolo,
        "approval_mode": live.config.approvals.mode,
        "usage": usage(session), "driver": driver(session), "branch": _branch(Path(session["cwd"])),
    }  # fmt: skip
    return shown


def tell(services: RpcServices, sid: str, session: Session) -> None:
    """Send the session's present `info` to its clients."""
    services.emit("session.info", sid, info(session))


def driver(session: Session) -> str:
    """Who runs the turns: this process, or the gateway that serves the conversation's chat."""
    live: LiveSession = session["live"]
    return "here" if live.served() is None else "gateway"


def _branch(folder: Path) -> str:
    """The git branch of the tools' folder; empty without one."""
    for parent in (folder, *folder.parents):
        try:
            head = (parent / ".git" / "HEAD").read_text(encoding="utf-8", errors="replace")
        except OSError:  # no repository here, or not readable
            continue
        return head.removeprefix("ref: refs/heads/").strip() if head.startswith("ref: ") else ""
    return ""


def at_work(session: Session) -> bool:
    """Whether a turn runs in this conversation, here or elsewhere."""
    following = session.get("following")
    return bool(session.get("running")) or (
        following is not None and following.turn is not None and not following.abandoned
    )


def status(session: Session) -> str:
    if session["live"].approvals.waiting:
        return "waiting"
    if session["running"]:
        return "streaming" if session["agent"] is not None else "starting"
    return "working" if at_work(session) else "idle"


def _tools(names: frozenset[str]) -> dict[str, list[str]]:
    grouped: dict[str, list[str]] = {}
    for name in sorted(names):
        tool = registry.shared().get(name)
        grouped.setdefault("other" if tool is None else tool.toolset, []).append(name)
    return grouped


def usage(session: Session) -> dict[str, Any]:
    """Tokens of the whole conversation; the context's fill only when it is known."""
    live: LiveSession | None = session.get("live")
    agent, key = session.get("agent"), session["session_key"]
    total, cost = (Counter[str](), None) if live is None else about.totals(live.db, key)
    read, written = total["input_tokens"], total["output_tokens"]
    shown: dict[str, Any] = {
        "model": str(getattr(agent, "model", "") or ""), "calls": total["api_call_count"], "input": read,
        "output": written, "reasoning": total["reasoning_tokens"], "prompt": read, "completion": written,
        "total": read + written,
    }  # fmt: skip
    if cost is not None:
        shown["cost_usd"] = round(cost, 6)
    if live is None:
        return shown
    shown["today"] = budget.spent_today(live.db, live.config, LOCAL_OWNER)
    if (segments := len(live.db.get_compression_lineage(key))) > 1:
        shown["compressions"] = segments - 1
    if agent is not None and (used := agent.spent.last_prompt_tokens):
        most = agent.context_length
        shown |= {"context_used": used, "context_max": most, "context_percent": round(100 * used / most, 1)}
    return shown


def messages(
    db: SessionDB, session: Session, *, details: bool = False, upto: int | None = None
) -> list[dict[str, Any]]:
    """All messages (up to a row), also from before compressions; while nothing is stored, those given to
    session.create."""
    shown: list[dict[str, Any]] = []
    chat = attach.chat_platform(db, session["session_key"])
    for segment in db.get_compression_lineage(session["session_key"]):
        if shown:
            shown.append({"role": "system", "text": _COMPRESSED})
        found = db.live_rows(segment, after=uncompress.carried_up_to(db, segment))
        rows = [] if found is None else found.messages
        if found is not None and upto is not None and segment == session["session_key"]:
            rows = rows[: bisect.bisect_right(found.ids, upto)]
        shown += displayed(rows, details=details, chat=chat)
    if shown and shown[-1]["role"] == "user" and (why := _unanswered(db, session["session_key"])):
        shown.append({"role": "system", "text": why})
    return shown or displayed(session["history"])


def _unanswered(db: SessionDB, session_id: str) -> str:
    """Why the last question has no answer; empty when its turn has not failed.

    A turn that is done although nothing stands after the question, such as a compression, is not the question's.
    """
    turns = db.turns.list(conversation_id=ConversationId(db.get_conversation_root(session_id)), limit=5)
    its = next((turn for turn in turns if turn.state != "done"), None)
    if its is None or its.state != "failed":
        return ""
    return f"not answered: {its.reason or 'its turn failed'} · /retry asks again"


def user_message(text: str, source: str, *, typed: bool = True) -> dict[str, Any]:
    """`message.user`. `typed`: at a terminal, where files can be named."""
    words, files = _text_and_files(text, typed=typed)
    return {"text": words, "source": source, **files}


def _text_and_files(text: str, *, typed: bool) -> tuple[str, dict[str, Any]]:
    """The text, and the names of the attached files. A chat's message is shown unchanged: nobody there can hide text
    from this screen by making it look like a file."""
    files = mentions.files(text) if typed else []
    return (mentions.words(text), {"files": files}) if files else (text, {})


def page(db: SessionDB, shown: list[dict[str, Any]], params: Params) -> tuple[int, list[dict[str, Any]]]:
    """The requested part, and the number of its first message: the last `limit` messages before `before`; fewer if they
    are large, but always one, and complete."""
    end = min(len(shown), frames.whole(params, "before", len(shown), most=max(1, len(shown))))
    wanted = max(0, end - frames.whole(params, "limit", end, most=max(1, end)))
    first, free = end, db.limits.rpc_queue_bytes // _OF_THE_QUEUE
    while first > wanted:
        free -= len(frames.encode(shown[first - 1]))
        if free < 0 and first < end:
            break
        first -= 1
    return first, shown[first:end]


def displayed(rows: Sequence[Mapping[str, Any]], *, details: bool = False, chat: str = "") -> list[dict[str, Any]]:
    """Messages as a screen shows them, without those that have only tool calls.

    `details`: with the tools' results, shortened for a screen. `chat`: the platform whose messages are among them.
    """
    shown: list[dict[str, Any]] = []
    calls: dict[str, tuple[str, str]] = {}
    for row in rows:
        role, text = str(row.get("role")), text_of(row.get("content"))
        if role == "tool":
            name, context = calls.get(str(row.get("tool_call_id")), (str(row.get("tool_name") or "tool"), ""))
            given = {"text": text[-_RESULT_SHOWN:], "is_error": output.looks_failed(name, text)} if details else {}
            shown.append({"role": "tool", "name": name, "context": context, **given})
            continue
        for call in calls_of(row):
            calls[call.id] = (call.name or "tool", call_summary(call))
        reasoning = row.get("reasoning") or row.get("reasoning_content")
        more: dict[str, Any] = {"reasoning": str(reasoning)} if reasoning else {}
        if role == "user":
            typed = str(row.get("message_id") or BESIDE).startswith(BESIDE)
            text, files = _text_and_files(text, typed=typed)
            more |= files if typed or not chat else {**files, "source": chat}
        elif row.get("finish_reason") in _CUT_OFF:
            more["cut_off"] = str(row["finish_reason"])
        if text.strip() or reasoning:
            shown.append({"role": role, "text": text, **more})
    return shown


def call_summary(call: ToolCall) -> str:
    """One line about a stored tool call."""
    tool = registry.shared().get(call.name)
    try:
        given = frames.parse(call.arguments or "{}")
    except RpcError:
        return ""
    return tool.summary(given) if tool is not None and isinstance(given, dict) else ""


def state(
    sid: str, session: Session, shown: list[dict[str, Any]], params: Params, *, info: dict[str, Any]
) -> dict[str, Any]:
    """The state that a joining client gets: `session.resume`, `session.activate`."""
    first, wanted = page(session["live"].db, shown, {"limit": params.get("limit")})
    return {
        "session_id": sid, "resumed": session["session_key"], "session_key": session["session_key"],
        "message_count": len(shown), "first": first, "messages": wanted, "info": info, "inflight": _inflight(session),
        "queued": bool(session["prompts"]), "waiting": [mentions.words(one.text) for one in session["prompts"]],
        "running": at_work(session), "status": status(session),
        "started_at": session["created_at"], "driver": info["driver"],
    }  # fmt: skip


def _inflight(session: Session) -> dict[str, Any] | None:
    """The part of the running turn that is not among the messages: the text since its last row, and before its first
    row the prompt."""
    turn, following = session["inflight_turn"], session["following"]
    if turn is None and following is not None and following.turn is not None:
        return {"user": "", "assistant": following.turn.shown, "streaming": True}
    return None if turn is None else {**turn, "user": "" if session["live"].turn is not None else turn["user"]}


# -- joining -----------------------------------------------------------------------------------------------------

# The answer and the events after it fit together: no event repeats the answer's content, and none is missing. For that
# the follower pauses while the transcript is read, an event of the session's own turn meanwhile causes another read,
# and frames wait until the answer is out. The newcomer also gets the open questions.

_TRIES, _PAUSE_SECONDS = 40, 0.025
"""How long a stored answer may take to be sent; then the client gets the present state."""


def join_session(services: RpcServices, sid: str, session: Session, params: Params) -> Result:
    """For `session.resume` and `session.activate`: make the caller one of the session's clients."""
    if params.get("cols") is not None:
        session["cols"] = cols_of(params)
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
        shown = messages(db, session, details=bool(params.get("details")), upto=upto)
        about = info(session)
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
            return state(sid, session, shown, params, info=about)


def _event_is_due(db: SessionDB, session: Session, shown: list[dict[str, Any]], upto: int | None) -> bool:
    """Whether a stored turn, prompt or end is about to be sent as an event."""
    state = db.live_state(session["session_key"])
    if not at_work(session):
        return upto is not None and state is not None and state.head_id > upto
    turn = session["inflight_turn"]
    last = shown[-1] if shown else {}
    if turn is not None and session["live"].turn is None:
        return bool(last.get("role") == "user" and last["text"] == turn["user"])
    rows = None if state is None else db.live_rows(session["session_key"], after=state.head_id - 1)
    newest = rows.messages[-1] if rows is not None and rows.messages else {}
    return newest.get("role") == "assistant" and not newest.get("tool_calls")  # an answer, not a step of a turn
