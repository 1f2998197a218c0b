"""Methods about sessions: create, resume, list, show, change. Stored data is read from the store at each call."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from hermes_agent import mentions, messages, sync_loop
from hermes_agent.commands import about
from hermes_agent.compression import summary
from hermes_agent.messages import text_of
from hermes_config.home import ensure_folder, write_atomic
from hermes_state.errors import InvalidValue
from hermes_state.ids import is_possible_id
from hermes_state.turns.inbox import local_route
from tui_gateway.rpc.command_context import RpcCommandContext
from tui_gateway.rpc.method import COLS, DETAILS, SID, MethodParam, method
from tui_gateway.session import prompt, session_view
from tui_gateway.session.services import RpcCall, RpcServices, Session
from tui_gateway.wire import frames
from tui_gateway.wire.frames import Result, RpcError

if TYPE_CHECKING:
    from hermes_state import SessionDB

_LISTED, _MOST_LISTED = 200, 1_000
_FEW = 4
_FOUND, _LOOKED_AT = 30, 1_000
_ROW = ("id", "title", "preview", "started_at", "last_active", "message_count", "source")
_TOOLSETS = MethodParam("toolsets", "list", "only these tools or toolsets")
_MAX_TURNS = MethodParam("max_turns", "number", "the most model steps for one prompt")
_CLOSE = MethodParam("close_on_disconnect", "flag", "close the session when this connection ends")


@method(
    "session.create", COLS, MethodParam("title", "text", "set with the first answer"),
    MethodParam("cwd", "text", "where tools work"), MethodParam("model", "text"), MethodParam("provider", "text"),
    MethodParam("messages", "list", "earlier messages with role and content"),
    MethodParam("source", "text", "the kind of client; tui"), _TOOLSETS, _MAX_TURNS, _CLOSE,
    result="session_id, stored_session_id, message_count, messages, info", errors=(4004, 4090),
)  # fmt: skip
def _create(call: RpcCall) -> Result:
    """Begin a new conversation. Nothing is stored before the first prompt."""
    services = call.services
    sid, session = session_view.open_session(services, call.params, call.db, messages=_given(call), join=True)
    session["pending_title"] = call.word("title") or None
    services.build(sid, session)
    services.boundary("on_session_reset", session["session_key"], session["source"])
    shown = session_view.displayed(session["history"])
    return {
        "session_id": sid, "stored_session_id": session["session_key"], "message_count": len(shown),
        "messages": shown, "info": session_view.info(session),
    }  # fmt: skip


def _given(call: RpcCall) -> list[dict[str, Any]]:
    """Messages from elsewhere that the conversation begins with."""
    given = call.params.get("messages") or []
    if not all(isinstance(one, dict) and one.get("role") in ("user", "assistant") for one in given):
        raise RpcError(frames.BAD_VALUE, "messages are objects with role (user, assistant) and content")
    return [{"role": one["role"], "content": one.get("content")} for one in given]


@method(
    "session.resume",
    MethodParam("session_id", "text", "a stored id, the beginning of one, or a title", required=True),
    COLS, MethodParam("source", "text"), _TOOLSETS, _MAX_TURNS,
    MethodParam("own_turns", "flag", "run its turns in this process, even if a gateway serves it"),
    MethodParam("limit", "number", "only this many of the newest messages"), DETAILS, _CLOSE,
    result="session_id, resumed, session_key, message_count, first, messages, info, inflight, queued, "
    "waiting (prompts whose turn has not begun), running, status, started_at, driver",
    errors=(4006, 4007, 4090, 5000, 5001), pooled=True,
)  # fmt: skip
def _resume(call: RpcCall) -> Result:
    """Continue a stored conversation at its newest segment. One that is live here keeps its live id."""
    services, db = call.services, call.db
    if not (wanted := call.word("session_id")):
        raise RpcError(frames.NO_TARGET, "which conversation?")
    with services.resume_lock, contextlib.ExitStack() as coming:
        tip = _find_conversation(db, wanted)
        with services.lock:  # a session that is about to be closed for lack of clients is either found or not
            sid, session = _live_on(services, tip) or session_view.open_session(services, call.params, db, key=tip)
            coming.enter_context(session["transport"].expecting())
        if db.get_session(tip) is not None:
            db.ledger.reopen(tip)
        prompt.adopt_prompts(session)
        services.build(sid, session)
        return session_view.join_session(services, sid, session, call.params)


@method("session.activate", SID, COLS, result="as session.resume", errors=(4001,), pooled=True)
def _activate(call: RpcCall) -> Result:
    """Show a live session on this connection, too."""
    with contextlib.ExitStack() as coming:
        with call.services.lock:
            coming.enter_context(call.session["transport"].expecting())
        return session_view.join_session(call.services, call.sid, call.session, call.params)


def _find_conversation(db: SessionDB, wanted: str) -> str:
    """The newest segment of a conversation, named by its id, the beginning of one, or a title.

    A conversation whose process died before its first turn has nothing but the prompt.
    """
    found = db.resolve_session_id(wanted) or db.resolve_session_by_title(wanted)
    if found is None and is_possible_id(wanted) and db.inbox.queued(local_route(wanted), limit=1):
        return wanted
    if found is None:
        raise RpcError(frames.UNKNOWN_SESSION, f"there is no conversation {wanted[:80]!r}")
    return db.resolve_resume_session_id(found)


def _live_on(services: RpcServices, tip: str) -> tuple[str, Session] | None:
    with services.lock:
        return next(((sid, one) for sid, one in services.sessions.items() if one.get("session_key") == tip), None)


@method(
    "session.branch", SID, MethodParam("name", "text", "its title"),
    result="session_id, stored_session_id, title, parent", errors=(4001, 4008, 4022, 4090, 5001), pooled=True,
)  # fmt: skip
def _branch(call: RpcCall) -> Result:
    """Copy the conversation into a new live session; the original stays unchanged."""
    session, db = call.session, call.db
    key = session["session_key"]
    state = db.live_state(key)
    if state is None or not state.message_count:
        raise RpcError(frames.EMPTY, "the conversation has no messages yet")
    current = db.get_session_title(key)
    title = call.word("name") or (db.get_next_title_in_lineage(current, beside=key) if current else None)
    try:
        handle = db.ledger.branch(key, title=title)
    except InvalidValue as error:
        raise RpcError(frames.BAD_TITLE, error.one_line()) from error
    given = {"cols": session["cols"], "cwd": session["cwd"], "source": session["source"]}
    sid, made = session_view.open_session(call.services, given, db, key=handle.session_id, join=True)
    call.services.build(sid, made)
    return {"session_id": sid, "stored_session_id": handle.session_id, "title": title or "", "parent": key}


@method("session.close", SID, result="closed")
def _close(call: RpcCall) -> Result:
    """End the live session; the conversation stays."""
    return {"closed": call.services.close(call.sid)}


# -- lists -----------------------------------------------------------------------------------------------------


@method(
    "session.list", MethodParam("limit", "number", "200"), MethodParam("query", "text", "words of the title or id"),
    MethodParam(
        "deep", "flag",
        "also conversations whose messages contain the words (`found`, from `found_at` on), and their origins",
    ),
    result="sessions: list of {id, title, preview, started_at, last_active, message_count, source, found?, "
    "found_at?, branch_of?}",
    errors=(5001,), pooled=True,
)  # fmt: skip
def _list(call: RpcCall) -> Result:
    """Conversations, newest activity first."""
    rows = call.db.list_sessions_rich(
        exclude_sources=["tool"], limit=frames.whole(call.params, "limit", _LISTED, most=_MOST_LISTED),
        order_by_last_active=True, compact_rows=True, search_query=call.word("query") or None, min_message_count=1,
    )  # fmt: skip
    shown = [{name: row.get(name) for name in _ROW} for row in rows]
    if call.params.get("deep"):
        for row, one in zip(rows, shown, strict=True):
            one |= _origin(call.db, row["root_id"])
        shown += _matching_messages(call.db, call.word("query"), [row["root_id"] for row in rows])
    return {"sessions": shown}


def _matching_messages(db: SessionDB, words: str, listed: Sequence[str]) -> list[dict[str, Any]]:
    """Further conversations whose messages contain the words; `found`: the passage, `found_at`: where in it the words
    begin."""
    if not words:
        return []
    known, shown = set(listed), []
    rows = db.list_sessions_rich(compact_rows=True, order_by_last_active=True, limit=_LOOKED_AT)
    by_root = {row["root_id"]: row for row in rows}
    for hit in db.search_messages(words, limit=_FOUND):
        root = db.get_conversation_root(str(hit["session_id"]))
        if root in known or root not in by_root:
            continue
        known.add(root)
        marked = str(hit.get("snippet") or "")
        found = {"found": marked.replace(">>>", "").replace("<<<", ""), "found_at": max(marked.find(">>>"), 0)}
        shown.append({**{name: by_root[root].get(name) for name in _ROW}, **found})
    return shown


def _origin(db: SessionDB, root: str) -> dict[str, str]:
    """The conversation that this one branched from (`branch_of`): its title, or its id."""
    parent = (db.get_session(root) or {}).get("parent_session_id")
    if not parent:
        return {}
    tip = db.get_compression_tip(str(parent))  # the newest segment has the title
    return {"branch_of": db.get_session_title(tip) or db.get_session_title(str(parent)) or str(parent)}


@method(
    "session.most_recent", result="session_id (null when there is none), title, started_at, source", errors=(5001,)
)  # fmt: skip
def _most_recent(call: RpcCall) -> Result:
    """The conversation that was used last."""
    found = _list(RpcCall(call.services, {"limit": 1}))["sessions"]
    row = found[0] if found else {}
    return {"session_id": row.get("id"), **{name: row.get(name) for name in ("title", "started_at", "source")}}


@method(
    "session.active_list", MethodParam("current_session_id", "text"),
    result="sessions: list of {id, session_key, title, preview, status, model, current, message_count, "
    "started_at, last_active}",
    pooled=True,
)  # fmt: skip
def _active_list(call: RpcCall) -> Result:
    """The sessions that are live in this process."""
    with call.services.lock:
        found = [(sid, one) for sid, one in call.services.sessions.items() if one.get("live") is not None]
    current = call.params.get("current_session_id")
    return {"sessions": [_active(call.db, sid, one, current=sid == current) for sid, one in found]}


def _active(db: SessionDB, sid: str, session: Session, *, current: bool) -> dict[str, Any]:
    row = db.get_session(session["session_key"]) or {}
    return {
        "id": sid, "session_key": session["session_key"], "title": row.get("title") or session["pending_title"] or "",
        "preview": row.get("preview") or "", "status": session_view.status(session), "model": session["live"].model,
        "current": current, "message_count": row.get("message_count") or 0, "started_at": session["created_at"],
        "last_active": session["last_active"],
    }  # fmt: skip


# -- one session -----------------------------------------------------------------------------------------------


@method(
    "session.history", SID, MethodParam("before", "number", "only messages before this number, counted from 0"),
    MethodParam("limit", "number", "only this many of the last ones"), DETAILS,
    result="count, first (the number of the first message), messages", errors=(4001, 5001),
)  # fmt: skip
def _history(call: RpcCall) -> Result:
    """The whole conversation for a screen, also its compressed part. A message names its attached files in `files` and
    its chat in `source`; an incomplete answer says in `cut_off` what stopped it (interrupted, error)."""
    shown = session_view.messages(call.db, call.session, details=bool(call.params.get("details")))
    first, wanted = session_view.page(call.db, shown, call.params)
    return {"count": len(shown), "first": first, "messages": wanted}


@method(
    "session.title", SID, MethodParam("title", "text"), result="title, session_key; when set also pending",
    errors=(4001, 4021, 4022),
)  # fmt: skip
def _title(call: RpcCall) -> Result:
    """Read or set the title. Before the first answer it is kept until then (`pending`)."""
    session, db, key = call.session, call.db, call.session["session_key"]
    if call.params.get("title") is None:
        return {"title": db.get_session_title(key) or session["pending_title"] or "", "session_key": key}
    try:
        title = db.sanitize_title(str(call.params["title"]))
        if not title:
            raise RpcError(frames.NO_TITLE, "a title needs at least one letter")
        stored = db.set_session_title(key, title)
    except InvalidValue as error:
        raise RpcError(frames.BAD_TITLE, error.one_line()) from error
    session["pending_title"] = None if stored else title
    call.services.emit("session.title", call.sid, {"session_id": key, "title": title})
    return {"title": title, "session_key": key, "pending": not stored}


@method(
    "session.usage", SID, errors=(4001,), pooled=True,
    result="model, calls, input, output, reasoning, prompt, completion, total, today, cost_usd?, compressions?, "
    "context_used?, context_max?, context_percent?",
)  # fmt: skip
def _usage(call: RpcCall) -> Result:
    """Tokens and cost so far."""
    return session_view.usage(call.session)


@method("session.status", SID, result="output", errors=(4001,), pooled=True)
def _status(call: RpcCall) -> Result:
    """The state of the conversation, as text."""
    return {"output": about.status(RpcCommandContext(call.live), "")}


@method(
    "session.compress", SID, MethodParam("focus_topic", "text", "the subject to keep"), pooled=True,
    result="status (compressed, aborted), removed, before_messages, after_messages, before_tokens, after_tokens, "
    "summary {headline, token_line, aborted}, usage, info, first, messages",
    errors=(4001, 4009, 5001),
)  # fmt: skip
def _compress(call: RpcCall) -> Result:
    """Summarise the older part now."""
    session, db, live = call.session, call.db, call.idle()
    before = after = _size(db, session)
    said = "There is nothing to compress yet."
    if before.messages >= _FEW:
        call.services.emit("status.update", call.sid, {"kind": "compressing", "text": "summarising the older part"})
        try:
            said = sync_loop.run(live.compress(call.word("focus_topic") or None))
        finally:
            call.services.emit("status.update", call.sid, {"kind": "ready", "text": ""})
        after = _size(db, session)
    done = after.messages < before.messages
    line = f"about {before.tokens:,} → {after.tokens:,} tokens" if done else f"about {before.tokens:,} tokens"
    first, shown = session_view.page(db, session_view.messages(db, session), {})
    return {
        "status": "compressed" if done else "aborted", "removed": before.messages - after.messages if done else 0,
        "before_messages": before.messages, "after_messages": after.messages, "before_tokens": before.tokens,
        "after_tokens": after.tokens, "summary": {"headline": said, "token_line": line, "aborted": not done},
        "usage": session_view.usage(session), "info": session_view.info(session), "first": first, "messages": shown,
    }  # fmt: skip


class _Size(NamedTuple):
    messages: int
    tokens: int


def _size(db: SessionDB, session: Session) -> _Size:
    found = db.live_rows(session["session_key"])
    rows = [] if found is None else found.messages
    return _Size(len(rows), sum(messages.tokens_of(row, session["live"].model) for row in rows))


@method("session.undo", SID, result="removed, text", errors=(4001, 4009, 5001))
def _undo(call: RpcCall) -> Result:
    """Undo the last turn; nothing is deleted."""
    live, key = call.idle(), call.session["session_key"]

    def stays(content: Any) -> bool:
        return summary.body({"role": "user", "content": content}) is not None

    undone = None if call.db.get_session(key) is None else call.db.undo.take_back(key, 1, stays=stays)
    if undone is None:
        return {"removed": 0, "text": ""}
    sync_loop.run(live.changed())
    return {"removed": undone.rows, "text": mentions.words(text_of(undone.content))}


@method(
    "session.delete", MethodParam("session_id", "text", "a stored id", required=True), result="deleted",
    errors=(4006, 4007, 4009, 4023, 5001),
)  # fmt: skip
def _delete(call: RpcCall) -> Result:
    """Erase a stored conversation that is neither live nor held by a turn."""
    db, wanted = call.db, call.word("session_id")
    if not wanted:
        raise RpcError(frames.NO_TARGET, "which conversation?")
    found = db.resolve_session_id(wanted)
    if found is None:
        raise RpcError(frames.UNKNOWN_SESSION, f"there is no conversation {wanted[:80]!r}")
    if _live_on(call.services, db.get_compression_tip(found)) is not None:
        raise RpcError(frames.LIVE, "this conversation is live; close it first")
    return {"deleted": db.ledger.delete(found) > 0}


@method("session.save", SID, result="file", errors=(4001, 5001))
def _save(call: RpcCall) -> Result:
    """Write the conversation to a file below the home."""
    db, key = call.db, call.session["session_key"]
    row = db.get_session(key) or {}
    stamp = time.strftime("%Y%m%d_%H%M%S", time.gmtime(db.clock()))
    folder = ensure_folder("sessions") / "saved"
    folder.mkdir(mode=0o700, exist_ok=True)
    plain = "".join(mark for mark in key[-8:] if mark.isascii() and mark.isalnum())  # an old home's id may be anything
    file = folder / f"hermes_conversation_{stamp}_{plain}.json"
    saved = {
        "model": row.get("model"), "session_id": key, "session_start": row.get("started_at"),
        "system_prompt": row.get("system_prompt"), "messages": db.get_messages_as_conversation(key),
    }  # fmt: skip
    write_atomic(file, json.dumps(saved, ensure_ascii=False, indent=2))
    return {"file": str(file)}


@method(
    "session.cwd.set", SID, MethodParam("cwd", "text", "the folder", required=True), result="cwd",
    errors=(4001, 4004, 4009), pooled=True,
)  # fmt: skip
def _move(call: RpcCall) -> Result:
    """Let the tools of this session work in another folder."""
    folder = session_view.folder_of(call.word("cwd"))
    live = call.idle()
    call.session.update(cwd=str(folder.absolute()), explicit_cwd=True)
    live.drop_agent()
    session_view.tell(call.services, call.sid, call.session)
    return {"cwd": call.session["cwd"]}


@method("terminal.resize", SID, COLS, result="cols", errors=(4001,))
def _resize(call: RpcCall) -> Result:
    """Set the width of the client's screen."""
    call.session["cols"] = session_view.cols_of(call.params)
    return {"cols": call.session["cols"]}
