"""Methods about turns: prompts, steer, interrupt, answers to questions, and slash commands.

A command about the running turn goes to the process that drives the conversation: a gateway gets it like a prompt, and
its answer comes as `notification.show`. All other commands act on the store directly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gateway.outbound import notices
from hermes_agent import mentions, sync_loop
from hermes_agent.commands import registry
from hermes_config import config as configuration
from tui_gateway.rpc import inventory
from tui_gateway.rpc.command_context import RpcCommandContext
from tui_gateway.rpc.method import ANY_SID, SID, MethodParam, method
from tui_gateway.session import prompt, session_view
from tui_gateway.session.live_session import child_facts
from tui_gateway.session.services import RpcCall
from tui_gateway.wire import frames
from tui_gateway.wire.frames import Result, RpcError

if TYPE_CHECKING:
    from hermes_state.turns.processes import ProcessRow

_OF_THE_DRIVER = frozenset({"stop", "model", "retry", "compress", "steer", "queue", "approve", "deny"})
_REQUEST = MethodParam("request_id", "text", required=True)
_NAME = MethodParam("name", "text", required=True)


@method(
    "prompt.submit", SID,
    MethodParam(
        "text", "any",
        "text, or a list of content parts: {type: text, text}, {type: image_url, image_url: {url: data:…}}",
        required=True,
    ),
    MethodParam(
        "truncate_before_user_ordinal", "number", "edit and resend: undo from this user message on, counted from 0"
    ),
    MethodParam("program", "flag", "a program wrote it: it waits behind a running turn, and `@` names no file"),
    MethodParam("key", "text", "the client's own key of this prompt: under it nothing is stored twice"),
    result="status (streaming, queued, steered, known: it was stored before), driver (here, gateway), "
    "row? (its number in the inbox), files? (attached)",
    errors=(4001, 4004, 4009, 4018),
)  # fmt: skip
def _submit(call: RpcCall) -> Result:
    """Submit a prompt. It is stored when this is answered; its results come as events. While a turn runs,
    display.busy_input_mode decides: steer, queue or interrupt. Files that the text names with `@` are attached:
    `@notes.md`, `@notes.md:10-20`, `@"two words.txt"`, `@src/`; a file that cannot be attached refuses the prompt
    (4004)."""
    return prompt.submit(call)


@method(
    "session.recover", SID, errors=(4001,),
    result="status (streaming; elsewhere: another process has it; idle: there is none, or the gateway recovers it)",
)  # fmt: skip
def _recover(call: RpcCall) -> Result:
    """Recover the turn and prompts of a dead process now, without waiting for the next prompt."""
    return prompt.recover(call)


@method(
    "session.interrupt", SID, MethodParam("only_waiting", "flag", "let the turn continue"),
    MethodParam("row", "number", "only this prompt: it is dropped, or its turn stopped; others stay"), result="status",
    errors=(4001,),
)  # fmt: skip
def _interrupt(call: RpcCall) -> Result:
    """Stop the running turn and drop waiting prompts; finished work is kept."""
    session, services = call.session, call.services
    if not (row := frames.whole(call.params, "row", 0, most=2**62)):
        prompt.forget(session)
    elif prompt.withdraw(session, row):
        return {"status": "interrupted"}
    elif (found := call.db.inbox.get(row)) is None or call.live.turn not in (None, found.turn_id):
        return {"status": "over"}
    if call.params.get("only_waiting"):
        return {"status": "interrupted"}
    session["_turn_cancel_requested"] = True
    agent, live = session.get("agent"), session.get("live")
    if session["running"] and agent is not None:
        agent.interrupt()
    if live is not None:
        live.approvals.leave()
        chat = None if session["running"] else live.served()
        if chat is not None and live.has_open_turn():
            live.known_notices.append(notices.reply_key(chat.hand_in(live.db, "/stop").id))  # the turn's end reports it
        elif chat is None and not session["running"] and session_view.at_work(session):
            said = "this turn runs elsewhere; stop it there"
            services.emit("status.update", call.sid, {"kind": "lifecycle", "text": said})
            session_view.tell(services, call.sid, session)
    return {"status": "interrupted"}


@method(
    "session.steer", SID, MethodParam("text", "text", required=True), result="status (queued, rejected), text",
    errors=(4001, 4004),
)  # fmt: skip
def _steer(call: RpcCall) -> Result:
    """Send a message into the running turn."""
    text, live = call.word("text"), call.live
    if not text:
        raise RpcError(frames.BAD_VALUE, "text is empty")
    chat = None if live.busy() else live.served()
    if chat is not None:
        live.handed_in[chat.hand_in(live.db, f"/steer {text}").id] = call.services.transport()
        return {"status": "queued", "text": text}
    return {"status": "queued" if prompt.steer(call.session, text) else "rejected", "text": text}


# -- delegated work --------------------------------------------------------------------------------------------


@method(
    "delegation.status", SID, errors=(4001,),
    result="active [as subagent.start], max_depth, max_concurrent_children",
)  # fmt: skip
def _delegation(call: RpcCall) -> Result:
    """The children of the conversation that wait or work."""
    live, settings = call.live, call.live.config.delegation
    children = [] if live.session_id is None else live.db.children.of_parent(live.conversation())
    return {
        "active": [child_facts(one) for one in children if one.is_open], "max_depth": settings.max_depth,
        "max_concurrent_children": settings.max_concurrent_children,
    }  # fmt: skip


@method(
    "subagent.interrupt", MethodParam("subagent_id", "text", "of subagent.start", required=True),
    result="status (interrupted, over)",
)  # fmt: skip
def _stop_child(call: RpcCall) -> Result:
    """Stop one child; its parent and the others go on."""
    child = call.db.children.get(call.word("subagent_id"))
    stopped = child is not None and child.is_open and call.db.children.stop(child, reason="stopped by the person")
    return {"status": "interrupted" if stopped else "over"}


# -- questions -------------------------------------------------------------------------------------------------


@method(
    "approval.respond", SID,
    MethodParam("choice", "text", "task, once, session (the conversation), always or deny; deny"),
    MethodParam("all", "flag"), MethodParam("approval_id", "text", "the id of one question"),
    result="resolved", errors=(4001, 4004),
)  # fmt: skip
def _approve(call: RpcCall) -> Result:
    """Answer the oldest open approval question, or all."""
    choice, everything = str(call.params.get("choice") or "deny"), bool(call.params.get("all"))
    db = call.services.get_db()
    resolved = call.live.approvals.respond(db, choice, everything=everything, only=call.word("approval_id"))
    return {"resolved": resolved}


@method("clarify.respond", _REQUEST, MethodParam("answer", "text"), result="status", errors=(4009,))
def _clarify(call: RpcCall) -> Result:
    """Answer clarify.request."""
    number, answer = str(call.params.get("request_id") or ""), str(call.params.get("answer") or "")
    with call.services.lock:
        open_now = [live for one in call.services.sessions.values() if (live := one.get("live")) is not None]
    if not any(live.approvals.answered(number, answer) for live in open_now):
        raise RpcError(frames.BUSY, "nothing is pending under that request_id")
    return {"status": "ok"}


@method("sudo.respond", _REQUEST, MethodParam("password", "text"), result="status (expired)")
def _sudo(call: RpcCall) -> Result:
    """For clients of hermes-agent: Hermes asks for no password."""
    return {"status": "expired"}


@method("secret.respond", _REQUEST, MethodParam("value", "text"), result="status (expired)")
def _secret(call: RpcCall) -> Result:
    """For clients of hermes-agent: Hermes asks for no secret."""
    return {"status": "expired"}


# -- background processes --------------------------------------------------------------------------------------


@method(
    "process.list", ANY_SID, pooled=True,
    result="processes [{id, session_id, command, workdir, state, exit_code, output_bytes, started_at, ended_at}]",
)  # fmt: skip
def _processes(call: RpcCall) -> Result:
    """The newest background processes: of a session, or all."""
    names = ("id", "command", "workdir", "state", "exit_code", "output_bytes", "started_at", "ended_at")
    return {
        "processes": [
            {**{name: getattr(row, name) for name in names}, "session_id": row.conversation_id}
            for row in _process_rows(call)
        ]
    }


@method(
    "process.kill", MethodParam("process_id", "text", required=True), result="process_id, state", errors=(4004,),
    pooled=True,
)  # fmt: skip
def _kill_process(call: RpcCall) -> Result:
    """End a background process and everything it started."""
    row = call.db.processes.get(call.word("process_id"))
    if row is None:
        raise RpcError(frames.BAD_VALUE, "there is no such process")
    return {"process_id": row.id, "state": _killed(call, row).state}


@method("process.stop", ANY_SID, result="killed (the ids)", pooled=True)
def _stop_processes(call: RpcCall) -> Result:
    """End the running background processes: of a session, or all."""
    return {"killed": [row.id for row in _process_rows(call) if row.running and not _killed(call, row).running]}


def _process_rows(call: RpcCall) -> tuple[ProcessRow, ...]:
    from hermes_agent import processes

    processes.settle(call.db, configuration.load_or_last_good()[0].home)
    if not call.word("session_id"):
        return call.db.processes.newest()
    return call.db.processes.of_conversation(call.live.conversation())


def _killed(call: RpcCall, row: ProcessRow) -> ProcessRow:
    from hermes_agent import processes

    return processes.kill(call.db, configuration.load_or_last_good()[0].home, row, quiet=True)


# -- slash commands --------------------------------------------------------------------------------------------


@method(
    "slash.exec", SID, MethodParam("command", "text", "with or without its /", required=True), pooled=True,
    result="output, message? (send it as a prompt), prefill? (put it into the input), session? (as "
    "session.resume: the session shows another conversation)",
    errors=(4001, 4011),
)  # fmt: skip
def _exec(call: RpcCall) -> Result:
    """Run a slash command in a session."""
    session, live = call.session, call.live
    typed = f"/{call.word('command').removeprefix('/')}"
    invoked = registry.parse(typed)
    if invoked is None:
        raise RpcError(frames.NO_COMMAND, "not a command")
    chat = live.served() if invoked.name in _OF_THE_DRIVER else None
    if chat is not None:
        live.handed_in[chat.hand_in(live.db, typed).id] = call.services.transport()
        return {"output": ""}
    visit = RpcCommandContext(live)
    command = registry.find("tui", invoked.name)
    if command is None and not inventory.is_skill(invoked.name):
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
        result["session"] = session_view.state(call.sid, session, shown, {}, info=session_view.info(session))
    if visit.turned or (command is not None and command.name in ("model", "title", "compress")):
        session_view.tell(call.services, call.sid, session)
    return result


@method(
    "command.dispatch", _NAME, MethodParam("arg", "text"), SID, pooled=True,
    result="type (exec, send, prefill), output, message?, notice?", errors=(4001, 4011),
)  # fmt: skip
def _dispatch(call: RpcCall) -> Result:
    """Run a slash command by its name."""
    command = f"{call.word('name').removeprefix('/')} {call.params.get('arg') or ''}".strip()
    done = _exec(RpcCall(call.services, {"session_id": call.sid, "command": command}))
    for name, kind in (("message", "send"), ("prefill", "prefill")):
        if name in done:
            return {"type": kind, "message": done[name], "output": done["output"], "notice": done["output"]}
    return {"type": "exec", "output": done["output"]}


@method("command.resolve", _NAME, result="canonical, description, category", errors=(4011,))
def _resolve(call: RpcCall) -> Result:
    """The command of a name or alias."""
    found = registry.find("tui", call.word("name").removeprefix("/").lower())
    if found is None:
        raise RpcError(frames.NO_COMMAND, "there is no such command")
    return {"canonical": found.name, "description": found.description, "category": found.category}


@method(
    "commands.catalog",
    result="pairs [[name, description]], categories [{name, pairs}], canon {alias: name}, sub, skill_count, warning",
)
def _catalog(call: RpcCall) -> Result:
    """All commands."""
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
