"""Methods about what runs: steer, interrupt, answers to questions, and slash commands.

A command that is about the running turn goes to the process that drives the conversation: to a gateway it is handed
in like a prompt and its answer comes as `notification.show`. All others act on the store, from here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gateway.outbound import notices
from hermes_agent import mentions, sync_loop
from hermes_agent.commands import registry
from tui_gateway.rpc import inventory
from tui_gateway.rpc.command_context import RpcCommandContext
from tui_gateway.session import prompt, session_view
from tui_gateway.session.services import RpcServices, Session
from tui_gateway.session.services import word_of as word
from tui_gateway.wire import frames
from tui_gateway.wire.frames import Params, Result, RpcError

if TYPE_CHECKING:
    from tui_gateway.rpc.sessions import Handler
    from tui_gateway.session.live_session import LiveSession

_OF_THE_DRIVER = frozenset({"stop", "model", "retry", "compress", "steer", "queue", "approve", "deny"})


def interrupt(services: RpcServices, session: Session, *, only_waiting: bool = False) -> None:
    """Stop what runs, and forget what waits, or only that. Questions are denied."""
    prompt.forget(session)
    if only_waiting:
        return
    session["_turn_cancel_requested"] = True
    agent, live = session.get("agent"), session.get("live")
    if session["running"] and agent is not None:
        agent.interrupt()
    if live is not None:
        live.approvals.leave()
        chat = None if session["running"] else live.served()
        if chat is not None and live.db.turns.list(state="running", conversation_id=live.conversation(), limit=1):
            live.known_notices.append(notices.reply_key(chat.hand_in(live.db, "/stop").id))  # the turn's end tells it
        elif chat is None and not session["running"] and session_view.at_work(session):
            said = "this turn runs in another place, and can be stopped there"
            services.emit("status.update", session["_sid"], {"kind": "lifecycle", "text": said})
            services.emit("session.info", session["_sid"], session_view.info(session))


def _steer(services: RpcServices, params: Params) -> Result:
    _, session = services.session(params)
    text = word(params, "text")
    if not text:
        raise RpcError(frames.BAD_VALUE, "text is empty")
    live: LiveSession = session["live"]
    chat = None if session["running"] else live.served()
    if chat is not None:
        live.handed_in[chat.hand_in(live.db, f"/steer {text}").id] = services.transport()
        return {"status": "queued", "text": text}
    taken = prompt.steer(session, text)
    return {"status": "queued" if taken else "rejected", "text": text}


def _approve(services: RpcServices, params: Params) -> Result:
    _, session = services.session(params)
    live: LiveSession = session["live"]
    resolved = live.approvals.respond(
        services.get_db(), str(params.get("choice") or "deny"), everything=bool(params.get("all")),
        only=word(params, "approval_id"),
    )  # fmt: skip
    return {"resolved": resolved}


# -- slash commands --------------------------------------------------------------------------------------------


def _exec(services: RpcServices, params: Params) -> Result:
    sid, session = services.session(params)
    typed = f"/{word(params, 'command').removeprefix('/')}"
    invoked = registry.parse(typed)
    if invoked is None:
        raise RpcError(frames.NO_COMMAND, "not a command")
    live: LiveSession = session["live"]
    chat = live.served() if invoked.name in _OF_THE_DRIVER else None
    if chat is not None:
        live.handed_in[chat.hand_in(live.db, typed).id] = services.transport()
        return {"output": ""}
    visit = RpcCommandContext(live)
    command = registry.find("tui", invoked.name)
    if command is None:
        raise RpcError(frames.NO_COMMAND, registry.unknown(invoked.name, visit))
    sync_loop.run(registry.run(visit, typed))
    result: Result = {"output": "\n\n".join(visit.said)}
    if visit.to_send:
        again = visit.to_send[-1]  # with its files as they are now
        result["message"] = mentions.words(again) if isinstance(again, str) else again
    if visit.to_prefill:
        result["prefill"] = visit.to_prefill[-1]
    if visit.turned:
        shown = session_view.messages(live.db, session)
        result["session"] = session_view.state(sid, session, shown, {}, info=session_view.info(session))
    if visit.turned or command.name in ("model", "title", "compress"):
        services.emit("session.info", sid, session_view.info(session))
    return result


def _dispatch(services: RpcServices, params: Params) -> Result:
    name, arg = word(params, "name").removeprefix("/"), str(params.get("arg") or "")
    done = _exec(services, {"session_id": params.get("session_id"), "command": f"{name} {arg}".strip()})
    if "message" in done:
        return {"type": "send", "message": done["message"], "output": done["output"], "notice": done["output"]}
    if "prefill" in done:
        return {"type": "prefill", "message": done["prefill"], "output": done["output"], "notice": done["output"]}
    return {"type": "exec", "output": done["output"]}


def _resolve(services: RpcServices, params: Params) -> Result:
    found = registry.find("tui", word(params, "name").removeprefix("/").lower())
    if found is None:
        raise RpcError(frames.NO_COMMAND, "there is no such command")
    return {"canonical": found.name, "description": found.description, "category": found.category}


def _catalog(services: RpcServices, params: Params) -> Result:
    table, found = registry.table("tui"), inventory.found_skills()
    grouped: dict[str, list[list[str]]] = {}
    for row in table.values():
        grouped.setdefault(row.category, []).append([f"/{row.name}", row.description])
    pairs: list[Any] = [pair for group in grouped.values() for pair in group]
    return {
        "pairs": pairs, "categories": [{"name": name, "pairs": group} for name, group in grouped.items()],
        "canon": {f"/{alias}": f"/{row.name}" for row in table.values() for alias in row.aliases}, "sub": {},
        "skill_count": len(found.skills), "warning": "; ".join(found.problems),
    }  # fmt: skip


HANDLERS: dict[str, Handler] = {
    "session.steer": _steer,
    "approval.respond": _approve,
    "slash.exec": _exec,
    "command.dispatch": _dispatch,
    "command.resolve": _resolve,
    "commands.catalog": _catalog,
}
