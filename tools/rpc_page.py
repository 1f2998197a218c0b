"""`docs/contributors/rpc.md`, made from the tables: `python -m tools.rpc_page`. All that a client has to know."""

from __future__ import annotations

from dataclasses import dataclass

from tui_gateway import server  # noqa: F401 - with it every method is in the table
from tui_gateway.rpc.method import METHODS, MethodParam, RpcMethod
from tui_gateway.wire import frames

_HEAD = """\
# The JSON-RPC protocol

*Made from the methods in `tui_gateway/rpc/` and the tables in `tools/rpc_page.py` by `make docs`; do not edit.*

A client talks to Hermes in JSON-RPC 2.0. Everything here is done with the rights of the home's owner: whoever can start
the process, or has the API's owner key, reads every conversation, answers questions of permission, and changes every
setting. A client key is refused here (403, `owner_key_needed`).

- **stdio**: start `python -m tui_gateway.entry`; one JSON object a line, UTF-8, both ways. Its stderr is for people.
  What was asked before its input ends is answered, if that takes no longer than a second.
- **WebSocket**: `ws://HOST:PORT/api/ws` of the API server (`hermes api key --role owner` prints the key); one JSON
  object a text message (a binary one is read the same way). The key comes as `Authorization: Bearer KEY`, or, from a
  browser, as the subprotocols `hermes.v1` and `bearer.KEY`, or as `?token=KEY`.

A request is `{"jsonrpc": "2.0", "id": 1, "method": "session.create", "params": {}}`. Its response has the same `id` and
either `result` or `error` with `code` and `message`. Parameters that are not listed here are ignored. Methods marked
*later* may be answered after requests that came behind them; all others are answered in order. An event is
`{"jsonrpc": "2.0", "method": "event", "params": {"type": …, "session_id": …, "payload": …}}`; `session_id` and
`payload` are left out when there are none. The first frame is the event `gateway.ready`.

A conversation in five frames: `session.create` gives a `session_id`; `prompt.submit` with it and a `text` is answered
at once; then come `message.start`, any number of `message.delta`, and `message.complete` with the whole text. The next
`prompt.submit` goes on from there. `session.resume` with the `stored_session_id` does so in another process, on another
day. When `approval.request` comes, the turn waits for `approval.respond`.

Who drives: a conversation that a running gateway serves in a chat is answered by that gateway (`driver: gateway`), and
what happens there, also what others say, comes as the same events. All others are answered by the process you talk to
(`driver: here`). Partial text is an event and nothing else: what counts is `message.complete`, and what is stored.

Several clients may look at one session: all get its events, and `message.user` tells each what the others typed. A
client that comes by `session.resume` or `session.activate`, also in the middle of a turn, gets `messages` (what is
stored), `inflight` (of a turn that runs: its `assistant` text since the last stored row, and its `user` prompt while
that is not stored), and behind the answer exactly what happens from there on; questions that are open are put to
it, too. It loses nothing by going away: a session without a client is closed after 20 s, unless a turn runs in it or
waits for a person, and the conversation is resumed from the store.

Messages come from the newest back: at most `limit` of them, and no more than fill a quarter of
`limits.rpc_queue_bytes`, but always one. `first` is the number of the first that came, counted from 0; when it is not
0, `session.history` with it as `before` gives those before.

Frames of a session keep their order. Deltas that follow each other within 33 ms come as one. A client that reads so
slowly that `limits.rpc_queue_bytes` wait for it behind the frame that is next is disconnected; nothing is lost by that,
and it can resume.

"""


_CHILD = "subagent_id, parent_id, child_session_id, goal, task_index, task_count, depth, model, status"


@dataclass(frozen=True, slots=True, kw_only=True)
class PageEvent:
    about: str
    payload: str = ""
    fields: str = ""
    """Names of the payload; a `?` behind one that may be missing."""


EVENTS: dict[str, PageEvent] = {
    "gateway.ready": PageEvent(
        about="The first frame. No session id. A request of more than `request_bytes` is refused, with no id.",
        fields="skin, request_bytes",
    ),
    "session.info": PageEvent(
        about="The session has changed: its model, title, whether a turn runs. `rewound`: undo or redo, here or in "
        "another place, so what is shown must be read anew.",
        payload="as `info` of session.create",
        fields=(
            "model, provider, tools, skills, cwd, branch, running, queued, title, stored_session_id, "
            "driver, yolo, approval_mode, version, usage, lazy?, rewound?, config_warning?, "
            "desktop_contract, profile_name"
        ),
    ),
    "session.title": PageEvent(about="The conversation has got a title.", fields="session_id, title"),
    "message.start": PageEvent(
        about="A turn begins. `recovered`: one that a lost process left behind; `elsewhere`: one with nothing that was "
        "said at this session. What waits is not part of either.",
        fields="recovered?, elsewhere?",
    ),
    "message.user": PageEvent(
        about="Somebody said something in this conversation in another place: a phone, another terminal. `own`: it was "
        "this client, with a command that a gateway has taken up now (`/queue WORDS`).",
        fields="text, source, files?, own?",
    ),
    "message.delta": PageEvent(about="More of the answer.", fields="text, rendered?"),
    "message.interim": PageEvent(
        about="What was said before tool calls; the answer proper may begin anew.", fields="text, already_streamed"
    ),
    "message.complete": PageEvent(
        about="The turn has ended. `status`: complete, interrupted or error.",
        fields="text, usage, status, reasoning?, warning?, rendered?, response_previewed?",
    ),
    "reasoning.delta": PageEvent(about="More of what the model thinks.", fields="text"),
    "tool.generating": PageEvent(about="The model writes a call of this tool.", fields="name"),
    "tool.start": PageEvent(about="A tool runs.", fields="tool_id, name, context, args_text?"),
    "tool.output": PageEvent(
        about="What it prints. Control sequences are in it as they came: show them harmlessly.", fields="text"
    ),
    "tool.complete": PageEvent(
        about="It has ended.", fields="tool_id, name, args, result, duration_s?, summary?, is_error?"
    ),
    "subagent.start": PageEvent(about="A child conversation begins to work.", fields=_CHILD),
    "subagent.tool": PageEvent(about="It runs a tool.", fields=f"{_CHILD}, tool_name, text"),
    "subagent.complete": PageEvent(
        about="It has ended. `status`: done, failed or cancelled; `summary`: the beginning of its report.",
        fields=f"{_CHILD}, summary, duration_seconds",
    ),
    "approval.request": PageEvent(
        about="May this run? Answer with approval.respond; after `expires_in` seconds it is a denial.",
        fields=(
            "approval_id, command, description, pattern_key, pattern_keys, allow_permanent, choices, "
            "labels, kind, workdir, detail, sandbox, content, measure, requester, expires_in"
        ),
    ),
    "approval.closed": PageEvent(
        about="A question is no longer open: answered elsewhere, expired, or the turn was stopped.",
        fields="approval_id",
    ),
    "clarify.request": PageEvent(
        about="The model asks. Answer with clarify.respond.", fields="question, choices, request_id"
    ),
    "clarify.expire": PageEvent(about="It is answered, or not needed any more.", fields="request_id"),
    "status.update": PageEvent(
        about="A line for the person. `kind`: lifecycle, warn, compressing, ready.", fields="kind, text"
    ),
    "notification.show": PageEvent(
        about=(
            "What the gateway itself says in the chat: the answer of a command, a notice; and a question of the model "
            "(`kind`: question), which the next prompt answers."
        ),
        fields="text, level, kind",
    ),
    "error": PageEvent(
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


def page() -> str:
    return f"{_HEAD}{_methods()}\n{_events()}\n{_errors()}"


def _methods() -> str:
    parts = ["## Methods\n"]
    for name, method in METHODS.items():
        parts.append(f"### `{name}`{' · later' if method.pooled else ''}\n\n{method.about}\n\n{_of(method)}")
    return "\n".join(parts)


def _of(method: RpcMethod) -> str:
    lines = [f"- {_param(param)}" for param in method.params]
    lines.append(f"- gives: {method.result}")
    if method.errors:
        lines.append(f"- errors: {', '.join(map(str, method.errors))}")
    return "\n".join(lines) + "\n"


def _param(param: MethodParam) -> str:
    about = f": {param.about}" if param.about else ""
    return f"`{param.name}` ({param.kind}{'' if param.required else ', optional'}){about}"


def _events() -> str:
    lines = ["## Events\n", "| event | payload | |", "|---|---|---|"]
    for name, event in EVENTS.items():
        lines.append(f"| `{name}` | {event.payload or event.fields or '–'} | {event.about} |")
    return "\n".join(lines) + "\n"


def _errors() -> str:
    lines = ["## Errors\n", "| code | |", "|--:|---|"]
    lines += [f"| {code} | {about} |" for code, about in ERRORS.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")
