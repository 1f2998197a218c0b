"""Methods about sessions: made, resumed, listed, looked at, changed. What is stored is asked of the store each time."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from hermes_agent import mentions, messages, sync_loop
from hermes_agent.agent import ConversationBusy
from hermes_agent.commands import about
from hermes_agent.compression import summary
from hermes_agent.messages import text_of
from hermes_config.home import ensure_folder, write_atomic
from hermes_state.errors import ConversationHeld, InvalidValue, SessionNotFound
from hermes_state.ids import is_possible_id
from hermes_state.turns.inbox import local_route
from tui_gateway.rpc.command_context import RpcCommandContext
from tui_gateway.session import join, prompt, session_view
from tui_gateway.session.services import RpcServices, Session
from tui_gateway.session.services import word_of as word
from tui_gateway.wire import frames
from tui_gateway.wire.frames import Params, Result, RpcError

if TYPE_CHECKING:
    from hermes_state import SessionDB
    from tui_gateway.session.follow import FollowThread
    from tui_gateway.session.live_session import LiveSession


Handler = Callable[[RpcServices, Params], Result]
_LISTED, _MOST_LISTED = 200, 1_000
_FEW = 4


def handlers(build: Callable[[str, Session], None], followers: FollowThread) -> dict[str, Handler]:
    """`build` starts the making of an agent; `looker` follows stored conversations."""

    def create(services: RpcServices, params: Params) -> Result:
        sid, session = session_view.open_session(services, params, services.db(), messages=_given(params), join=True)
        session["pending_title"] = word(params, "title") or None
        build(sid, session)
        followers.start()
        services.boundary("on_session_reset", session["session_key"], session["source"])
        shown = session_view.displayed(session["history"])
        return {
            "session_id": sid, "stored_session_id": session["session_key"], "message_count": len(shown),
            "messages": shown, "info": session_view.info(session),
        }  # fmt: skip

    def resume(services: RpcServices, params: Params) -> Result:
        db, wanted = services.db(), word(params, "session_id")
        if not wanted:
            raise RpcError(frames.NO_TARGET, "which conversation?")
        tip = _meant(db, wanted)
        with contextlib.ExitStack() as coming:
            with services.lock:  # one that is about to be closed, because nobody came back, is either found or not
                sid, session = _live_on(services, tip) or session_view.open_session(services, params, db, key=tip)
                coming.enter_context(session["transport"].expecting())
            followers.start()
            if db.get_session(tip) is not None:
                db.ledger.reopen(tip)
            prompt.recover(session)
            build(sid, session)
            return join.come(services, followers, sid, session, params)

    def activate(services: RpcServices, params: Params) -> Result:
        with contextlib.ExitStack() as coming:
            with services.lock:
                sid, session = services.session(params)
                coming.enter_context(session["transport"].expecting())
            return join.come(services, followers, sid, session, params)

    def branch(services: RpcServices, params: Params) -> Result:
        _, session = services.session(params)
        db = services.db()
        state = db.live_state(session["session_key"])
        if state is None or not state.message_count:
            raise RpcError(frames.EMPTY, "nothing was said here yet")
        key = session["session_key"]
        current = db.get_session_title(key)
        title = word(params, "name") or (db.get_next_title_in_lineage(current, beside=key) if current else None)
        try:
            handle = db.ledger.branch(key, title=title)
        except InvalidValue as error:
            raise RpcError(frames.BAD_TITLE, error.one_line()) from error
        given = {"cols": session["cols"], "cwd": session["cwd"], "source": session["source"]}
        sid, made = session_view.open_session(services, given, db, key=handle.session_id, join=True)
        build(sid, made)
        followers.start()
        return {
            "session_id": sid, "stored_session_id": handle.session_id, "title": title or "",
            "parent": session["session_key"],
        }  # fmt: skip

    return {
        **_PLAIN, "session.create": create, "session.resume": resume, "session.branch": branch,
        "session.activate": activate,
    }  # fmt: skip


def _given(params: Params) -> list[dict[str, Any]]:
    """What was said before, somewhere else."""
    given = params.get("messages") or []
    if not all(isinstance(one, dict) and one.get("role") in ("user", "assistant") for one in given):
        raise RpcError(frames.BAD_VALUE, "messages are objects with role (user, assistant) and content")
    return [{"role": one["role"], "content": one.get("content")} for one in given]


def _meant(db: SessionDB, wanted: str) -> str:
    """The newest segment of what was named: an id, the beginning of one, or a title.

    A conversation whose process was lost before its first turn began has nothing but the prompt.
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


def _list(services: RpcServices, params: Params) -> Result:
    most = frames.whole(params, "limit", _LISTED, most=_MOST_LISTED)
    rows = services.db().list_sessions_rich(
        exclude_sources=["tool"], limit=most, order_by_last_active=True, compact_rows=True,
        search_query=word(params, "query") or None, min_message_count=1,
    )  # fmt: skip
    names = ("id", "title", "preview", "started_at", "last_active", "message_count", "source")
    shown = [{name: row.get(name) for name in names} for row in rows]
    if params.get("deep"):
        found = said(services.db(), word(params, "query"), [row["root_id"] for row in rows], names)
        add_origins(services.db(), rows, shown)
        shown += found
    return {"sessions": shown}


def _most_recent(services: RpcServices, params: Params) -> Result:
    found = _list(services, {"limit": 1})["sessions"]
    if not found:
        return {"session_id": None, "title": None, "started_at": None, "source": None}
    row = found[0]
    return {"session_id": row["id"], **{name: row[name] for name in ("title", "started_at", "source")}}


def _active_list(services: RpcServices, params: Params) -> Result:
    db = services.db()
    with services.lock:
        found = [(sid, one) for sid, one in services.sessions.items() if one.get("live") is not None]
    return {"sessions": [_active(db, sid, one, current=sid == params.get("current_session_id")) for sid, one in found]}


def _active(db: SessionDB, sid: str, session: Session, *, current: bool) -> dict[str, Any]:
    row = db.get_session(session["session_key"]) or {}
    live: LiveSession = session["live"]
    return {
        "id": sid, "session_key": session["session_key"], "title": row.get("title") or session["pending_title"] or "",
        "preview": row.get("preview") or "", "status": session_view.status(session), "model": live.model,
        "current": current,
        "message_count": row.get("message_count") or 0, "started_at": session["created_at"],
        "last_active": session["last_active"],
    }  # fmt: skip


def _history(services: RpcServices, params: Params) -> Result:
    _, session = services.session(params)
    db = services.db()
    shown = session_view.messages(db, session, details=bool(params.get("details")))
    first, wanted = session_view.part(db, shown, params)
    return {"count": len(shown), "first": first, "messages": wanted}


def _title(services: RpcServices, params: Params) -> Result:
    sid, session = services.session(params)
    db, key = services.db(), session["session_key"]
    if params.get("title") is None:
        return {"title": db.get_session_title(key) or session["pending_title"] or "", "session_key": key}
    try:
        title = db.sanitize_title(str(params["title"]))
        if not title:
            raise RpcError(frames.NO_TITLE, "a title has at least one letter")
        stored = db.set_session_title(key, title)
    except InvalidValue as error:
        raise RpcError(frames.BAD_TITLE, error.one_line()) from error
    session["pending_title"] = None if stored else title
    services.emit("session.title", sid, {"session_id": key, "title": title})
    return {"title": title, "session_key": key, "pending": not stored}


def _usage(services: RpcServices, params: Params) -> Result:
    return session_view.usage(services.session(params)[1])


def _status(services: RpcServices, params: Params) -> Result:
    _, session = services.session(params)
    return {"output": about.status(RpcCommandContext(session["live"]), "")}


def _compress(services: RpcServices, params: Params) -> Result:
    sid, session = services.session(params)
    db, live = services.db(), _idle(session)
    before = _size(db, session)
    if before.messages < _FEW:
        return _compressed(session, db, before, before, "There is nothing to compress yet.")
    services.emit("status.update", sid, {"kind": "compressing", "text": "summarising the older part"})
    try:
        said = sync_loop.run(live.compress(word(params, "focus_topic") or None))
    except ConversationBusy as error:
        raise RpcError(frames.BUSY, error.one_line()) from error
    finally:
        services.emit("status.update", sid, {"kind": "ready", "text": ""})
    return _compressed(session, db, before, _size(db, session), said)


class _Size(NamedTuple):
    messages: int
    tokens: int


def _size(db: SessionDB, session: Session) -> _Size:
    found = db.live_rows(session["session_key"])
    rows = [] if found is None else found.messages
    return _Size(len(rows), sum(messages.tokens_of(row, session["live"].model) for row in rows))


def _compressed(session: Session, db: SessionDB, before: _Size, after: _Size, said: str) -> Result:
    done = after.messages < before.messages
    line = f"about {before.tokens:,} → {after.tokens:,} tokens" if done else f"about {before.tokens:,} tokens"
    first, shown = session_view.part(db, session_view.messages(db, session), {})
    return {
        "status": "compressed" if done else "aborted", "removed": before.messages - after.messages if done else 0,
        "before_messages": before.messages, "after_messages": after.messages, "before_tokens": before.tokens,
        "after_tokens": after.tokens, "summary": {"headline": said, "token_line": line, "aborted": not done},
        "usage": session_view.usage(session), "info": session_view.info(session), "first": first, "messages": shown,
    }  # fmt: skip


def _idle(session: Session) -> LiveSession:
    if session["running"]:
        raise RpcError(frames.BUSY, "a turn runs; interrupt it first")
    live: LiveSession = session["live"]
    if live.compressing:
        raise RpcError(frames.BUSY, "the conversation is being compressed already")
    return live


def _undo(services: RpcServices, params: Params) -> Result:
    _, session = services.session(params)
    live, db = _idle(session), services.db()
    if db.get_session(session["session_key"]) is None:
        return {"removed": 0, "text": ""}

    def stays(content: Any) -> bool:
        return summary.body({"role": "user", "content": content}) is not None

    try:
        undone = db.undo.take_back(session["session_key"], 1, stays=stays)
    except ConversationHeld as error:
        raise RpcError(frames.BUSY, error.one_line()) from error
    if undone is None:
        return {"removed": 0, "text": ""}
    sync_loop.run(live.changed())
    return {"removed": undone.rows, "text": mentions.words(text_of(undone.content))}


def _delete(services: RpcServices, params: Params) -> Result:
    db, wanted = services.db(), word(params, "session_id")
    if not wanted:
        raise RpcError(frames.NO_TARGET, "which conversation?")
    found = db.resolve_session_id(wanted)
    if found is None:
        raise RpcError(frames.UNKNOWN_SESSION, f"there is no conversation {wanted[:80]!r}")
    if _live_on(services, db.get_compression_tip(found)) is not None:
        raise RpcError(frames.LIVE, "this conversation is live; close it first")
    try:
        return {"deleted": db.ledger.delete(found) > 0}
    except ConversationHeld as error:
        raise RpcError(frames.BUSY, error.one_line()) from error
    except SessionNotFound as error:
        raise RpcError(frames.UNKNOWN_SESSION, error.one_line()) from error


def _save(services: RpcServices, params: Params) -> Result:
    """The conversation as a file of its own, for people who want to keep or show it."""
    _, session = services.session(params)
    db, key = services.db(), session["session_key"]
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


def _resize(services: RpcServices, params: Params) -> Result:
    _, session = services.session(params)
    session["cols"] = session_view.cols_of(params)
    return {"cols": session["cols"]}


_PLAIN: dict[str, Handler] = {
    "session.list": _list,
    "session.most_recent": _most_recent,
    "session.active_list": _active_list,
    "session.history": _history,
    "session.title": _title,
    "session.usage": _usage,
    "session.status": _status,
    "session.compress": _compress,
    "session.undo": _undo,
    "session.delete": _delete,
    "session.save": _save,
    "terminal.resize": _resize,
}


_FOUND, _LOOKED_AT = 30, 1_000


def said(db: SessionDB, words: str, listed: Sequence[str], names: Sequence[str]) -> list[dict[str, Any]]:
    """Conversations in which the words were said and that are not listed already; `found`: the place, `found_at`: where
    in it they begin."""
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
        shown.append({**{name: by_root[root].get(name) for name in names}, **found})
    return shown


def add_origins(db: SessionDB, rows: Sequence[dict[str, Any]], shown: Sequence[dict[str, Any]]) -> None:
    """What a conversation branched from (`branch_of`): its title, or its id."""
    for row, one in zip(rows, shown, strict=True):
        parent = (db.get_session(row["root_id"]) or {}).get("parent_session_id")
        if parent:
            tip = db.get_compression_tip(str(parent))  # a title goes with the newest segment
            one["branch_of"] = db.get_session_title(tip) or db.get_session_title(str(parent)) or str(parent)
