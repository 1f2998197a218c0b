"""`docs/contributors/rpc.md`, made from the tables: `python -m tools.rpc_page`. All that a client has to know."""

from __future__ import annotations

from tui_gateway.protocol.events import ERRORS, EVENTS
from tui_gateway.protocol.methods import METHODS
from tui_gateway.protocol.schema import MethodParam, RpcMethod

_HEAD = """\
# The JSON-RPC protocol

*Made from `tui_gateway/protocol/methods.py` and `tui_gateway/protocol/events.py` by `make docs`; do not edit.*

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
