"""Every event that is sent, and what an error's code means."""

from __future__ import annotations

from tui_gateway.protocol.schema import RpcEvent
from tui_gateway.wire import frames

EVENTS: dict[str, RpcEvent] = {
    "gateway.ready": RpcEvent(
        about="The first frame. No session id. A request of more than `request_bytes` is refused, with no id.",
        fields="skin, request_bytes",
    ),
    "session.info": RpcEvent(
        about="The session has changed: its model, title, whether a turn runs. `rewound`: undo or redo, here or in "
        "another place, so what is shown must be read anew.",
        payload="as `info` of session.create",
        fields=(
            "model, provider, tools, skills, cwd, branch, running, queued, title, stored_session_id, "
            "driver, yolo, approval_mode, version, usage, lazy?, rewound?, config_warning?, "
            "desktop_contract, profile_name"
        ),
    ),
    "session.title": RpcEvent(about="The conversation has got a title.", fields="session_id, title"),
    "message.start": RpcEvent(
        about="A turn begins. `taken_up`: one that a lost process left behind; `elsewhere`: one with nothing that was "
        "said at this session. What waits is not part of either.",
        fields="taken_up?, elsewhere?",
    ),
    "message.user": RpcEvent(
        about="Somebody said something in this conversation in another place: a phone, another terminal. `own`: it was "
        "this client, with a command that a gateway has taken up now (`/queue WORDS`).",
        fields="text, source, files?, own?",
    ),
    "message.delta": RpcEvent(about="More of the answer.", fields="text, rendered?"),
    "message.interim": RpcEvent(
        about="What was said before tool calls; the answer proper may begin anew.", fields="text, already_streamed"
    ),
    "message.complete": RpcEvent(
        about="The turn has ended. `status`: complete, interrupted or error.",
        fields="text, usage, status, reasoning?, warning?, rendered?, response_previewed?",
    ),
    "reasoning.delta": RpcEvent(about="More of what the model thinks.", fields="text"),
    "tool.generating": RpcEvent(about="The model writes a call of this tool.", fields="name"),
    "tool.start": RpcEvent(about="A tool runs.", fields="tool_id, name, context, args_text?"),
    "tool.output": RpcEvent(
        about="What it prints. Control sequences are in it as they came: show them harmlessly.", fields="text"
    ),
    "tool.complete": RpcEvent(
        about="It has ended.", fields="tool_id, name, args, result, duration_s?, summary?, is_error?"
    ),
    "approval.request": RpcEvent(
        about="May this run? Answer with approval.respond; after `expires_in` seconds it is a denial.",
        fields=(
            "approval_id, command, description, pattern_key, pattern_keys, allow_permanent, choices, "
            "labels, kind, workdir, detail, wall, content, measure, requester, expires_in"
        ),
    ),
    "approval.closed": RpcEvent(
        about="A question is no longer open: answered elsewhere, lapsed, or the turn was stopped.", fields="approval_id"
    ),
    "clarify.request": RpcEvent(
        about="The model asks. Answer with clarify.respond.", fields="question, choices, request_id"
    ),
    "clarify.expire": RpcEvent(about="It is answered, or not needed any more.", fields="request_id"),
    "status.update": RpcEvent(
        about="A line for the person. `kind`: lifecycle, warn, compressing, ready.", fields="kind, text"
    ),
    "notification.show": RpcEvent(
        about=(
            "What the gateway itself says in the chat: the answer of a command, a notice; and a question of the model "
            "(`kind`: question), which the next prompt answers."
        ),
        fields="text, level, kind",
    ),
    "error": RpcEvent(
        about="The turn could not be run, or the session is in trouble. One line, with what to do.", fields="message"
    ),
}

ERRORS: dict[int, str] = {
    frames.UNPARSABLE: "the line is not JSON (the id is null)",
    frames.INVALID: "not an object, or no method",
    frames.UNKNOWN_METHOD: "no such method",
    frames.BAD_PARAMS: "params is not an object, or one of them has the wrong type",
    frames.CRASH: "a defect of the server",
    frames.FAILED: "a pooled method failed",
    frames.NO_SESSION: "no live session of that id",
    frames.UNKNOWN_KEY: "no such setting",
    frames.BAD_VALUE: "a value that cannot be used",
    frames.NO_TARGET: "nothing was named",
    frames.UNKNOWN_SESSION: "no stored conversation of that name",
    frames.EMPTY: "nothing was said yet",
    frames.BUSY: "a turn runs, or nothing is pending",
    frames.NO_COMMAND: "no such command",
    frames.NOT_HERE: "out of range",
    frames.NO_TITLE: "an empty title",
    frames.BAD_TITLE: "a title that is taken or cannot be used",
    frames.LIVE: "the conversation is live: close it first",
    frames.TOO_MANY: "too many live sessions",
    frames.FAILED_RESUME: "the conversation could not be opened",
    frames.UNAVAILABLE: "the store cannot be used; the message begins with `state.db unavailable`",
    frames.AGENT_FAILED: "the agent could not be made",
}
