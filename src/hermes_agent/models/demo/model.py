"""The demo model: scripted, offline, and honest about it.

It is called like any provider (same client, same streamed chat completions) over a transport that answers inside this
process. So everything around it is real: prefix, journal, budget, approvals, tools. It reads only the request: it
matches the person's text and the tool results with some phrases (`replies`), and lists its abilities if none fits.
Equal requests get equal bytes.

A transport only remembers how often a request has failed on demand ("fail once with 429").
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import replace
from hashlib import blake2s
from typing import Any

import httpx2

from hermes_agent.messages import inner_call, text_of
from hermes_agent.models import http
from hermes_agent.models.base import Endpoint, ToolCall
from hermes_agent.models.demo import replies
from hermes_agent.models.demo.replies import DemoReply, DemoRequest, DemoResult
from hermes_agent.models.normalise import json_object
from hermes_agent.turn import control
from hermes_config.recent import Recent

PROVIDER = "demo"
MODEL = "demo"
BASE_URL = "demo://local/v1"
TOKENS_PER_SECOND = 30.0
PACE_HEADER = "x-demo-tokens-per-second"
"""The pace travels as a header, not in the body: it must not be part of the prompt's prefix."""

_CONTEXT = 32_000
_REMEMBERED = 256
_DONE = b"data: [DONE]\n\n"
_WAITED = re.compile(r"\[About the call \S+ that waited for permission \((\S+)\):\]\n(.*)", re.DOTALL)
_COMPACTION = "[CONTEXT COMPACTION"
"""The beginning of a compression's summary, which is a user message but not the person's text."""


def endpoint(*, tokens_per_second: float = TOKENS_PER_SECOND, context_length: int = _CONTEXT) -> Endpoint:
    """The demo model's endpoint. `tokens_per_second` 0 answers at once."""
    return Endpoint(
        provider=PROVIDER, wire="chat", base_url=BASE_URL, model=MODEL, context_length=context_length, max_tokens=4_096,
        headers=((PACE_HEADER, f"{max(0.0, tokens_per_second):g}"),),
    )  # fmt: skip


class DemoTransport(httpx2.AsyncBaseTransport):
    """Answers everything below `BASE_URL`."""

    def __init__(self) -> None:
        self._failed: Recent[bytes, int] = Recent(_REMEMBERED)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        body = await request.aread()
        if request.method != "POST" or not request.url.path.endswith("/chat/completions"):
            return _refused(404, "The demo model answers POST /chat/completions and nothing else.")
        try:
            value = json.loads(body)
            asked = _read(value)
        except ValueError as error:
            return _refused(400, f"The demo model cannot read this request: {error}.")
        reply = replies.reply(asked)
        if reply.wait:
            await asyncio.sleep(reply.wait)
        chunks = _chunks(reply, value, body)
        if reply.fault and self._fails(reply.fails, body):
            return _failure(reply.fault, chunks)
        pace = float(request.headers.get(PACE_HEADER, TOKENS_PER_SECOND)) * reply.pace
        return _streamed(_Stream(_paced(chunks, pace)))

    def _fails(self, times: int | None, body: bytes) -> bool:
        """Whether this attempt should fail on demand. Repeated attempts have the same bytes."""
        if times is None:
            return True
        key = blake2s(body).digest()
        failed = self._failed.pop(key, 0)
        if failed < times:
            self._failed[key] = failed + 1
        return failed < times


http.register_transport(PROVIDER, DemoTransport)


# -- the request ---------------------------------------------------------------------------------------------------


def _read(value: Any) -> DemoRequest:
    """Parse a request. Raises `ValueError` with a text for its sender."""
    messages = value.get("messages") if isinstance(value, dict) else None
    if not isinstance(messages, list) or not messages or not all(isinstance(one, dict) for one in messages):
        raise ValueError("the body needs messages, a list of objects")
    first_added = len(messages)
    while first_added and _is_added(messages[first_added - 1]):
        first_added -= 1
    said = [_text(one) for one in messages if one.get("role") == "user"]
    functions = [tool.get("function") or {} for tool in value.get("tools") or ()]
    return DemoRequest(
        system="\n".join(_text(one) for one in messages if one.get("role") in ("system", "developer")),
        said=tuple(one for one in said if not one.startswith((_COMPACTION, control.ADDED)) and not _WAITED.match(one)),
        tools={str(one.get("name")): frozenset(one.get("parameters", {}).get("properties") or ()) for one in functions},
        results=_waited(messages[:first_added]) or _results(messages[:first_added]),
        added="\n".join(_text(one).removeprefix(control.ADDED).strip() for one in messages[first_added:]),
    )


def _is_added(message: Mapping[str, Any]) -> bool:
    """Whether the person added this message while the tools ran."""
    return message.get("role") == "user" and _text(message).startswith(control.ADDED)


def _waited(messages: list[dict[str, Any]]) -> tuple[DemoResult, ...]:
    """The result of a call that was permitted or denied later, if the conversation ends with it."""
    found = _WAITED.match(_text(messages[-1])) if messages else None
    if found is None:
        return ()
    asked = (at for at, one in enumerate(messages) if one.get("role") == "tool" and found[1] in _text(one))
    step = _results(messages[: next(asked, -1) + 1])
    said = re.sub(r"^(?:It was not run|.*, but it was not run): ?\n?", "The command was not run: ", found[2])
    return tuple(replace(one, text=re.sub(r"^.* Its result:\n", "", said)) for one in step[-1:])


def _results(messages: list[dict[str, Any]]) -> tuple[DemoResult, ...]:
    """The results at the end of the conversation, in order, each with its call."""
    behind: list[DemoResult] = []
    calls: dict[Any, dict[str, Any]] = {}
    first = len(messages)
    while first and messages[first - 1].get("role") == "tool":
        first -= 1
    if first:
        calls = {call.get("id"): call.get("function") or {} for call in messages[first - 1].get("tool_calls") or ()}
    for message in messages[first:]:
        function = calls.get(message.get("tool_call_id"), {})
        call = inner_call(ToolCall("", str(function.get("name", "")), function.get("arguments") or "{}"))
        behind.append(DemoResult(call.name, json_object(call.arguments) or {}, _text(message)))
    return tuple(behind)


def _text(message: Mapping[str, Any]) -> str:
    return text_of(message.get("content"), image="[a picture]")


# -- the answer ----------------------------------------------------------------------------------------------------


def _chunks(reply: DemoReply, request: Mapping[str, Any], body: bytes) -> Iterator[tuple[int, bytes]]:
    """(tokens, bytes) in order: the role, words, tool calls in pieces, the ending, the usage."""
    seed = blake2s(body).hexdigest()
    limit = request.get("max_tokens", request.get("max_completion_tokens"))
    pieces = re.findall(r"\s*\S{1,12}\s*", reply.text)
    cut = isinstance(limit, int) and len(pieces) > limit
    pieces = pieces[:limit] if cut else pieces
    calls = [] if cut else [(name, json.dumps(arguments, ensure_ascii=False)) for name, arguments in reply.calls]
    envelope = {"id": f"chatcmpl-demo-{seed[:16]}", "object": "chat.completion.chunk", "created": 0, "model": MODEL}

    def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
        return _event(envelope | {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    yield 0, chunk({"role": "assistant", "content": ""})
    for piece in pieces:
        yield 1, chunk({"content": piece})
    for index, (name, arguments) in enumerate(calls):
        call_id = f"call_{seed[:20]}{index:02d}"
        function = {"name": name, "arguments": ""}
        yield 1, chunk({"tool_calls": [{"index": index, "id": call_id, "type": "function", "function": function}]})
        for at in range(0, len(arguments), 12):
            yield 1, chunk({"tool_calls": [{"index": index, "function": {"arguments": arguments[at : at + 12]}}]})
    yield 0, chunk({}, "length" if cut else "tool_calls" if calls else "stop")
    said, asked = max(1, len(pieces) + sum(len(arguments) // 4 for _, arguments in calls)), max(1, len(body) // 4)
    usage = {"prompt_tokens": asked, "completion_tokens": said, "total_tokens": asked + said}
    yield 0, _event(envelope | {"choices": [], "usage": usage})
    yield 0, _DONE


def _event(data: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


async def _paced(chunks: Iterator[tuple[int, bytes]], per_second: float) -> AsyncIterator[bytes]:
    """The chunks at a reading pace; 0 sends them at once."""
    clock = asyncio.get_running_loop().time
    due = clock()
    for tokens, data in chunks:
        if per_second and tokens:
            due += tokens / per_second
            await asyncio.sleep(max(0.0, due - clock()))
        yield data


async def _lost(chunks: Iterator[tuple[int, bytes]]) -> AsyncIterator[bytes]:
    """A few words, then a lost connection."""
    for _at, (_tokens, data) in zip(range(4), chunks, strict=False):
        yield data
    raise httpx2.RemoteProtocolError("the demo model dropped the connection, as it was asked to")


class _Stream(httpx2.AsyncByteStream):
    def __init__(self, pieces: AsyncIterator[bytes]) -> None:
        self._pieces = pieces

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._pieces


def _failure(how: str, chunks: Iterator[tuple[int, bytes]]) -> httpx2.Response:
    if how == "disconnect":
        return _streamed(_Stream(_lost(chunks)))
    if how == "garbage":
        return _streamed(httpx2.ByteStream(b'data: {"choices": [{"delta": {"con\n\ndata: \xf0\x9f\n\n'))
    if how == "empty":
        return _streamed(httpx2.ByteStream(_DONE))
    if how == "overflow":
        message = f"This model's maximum context length is {_CONTEXT} tokens."
        return _refused(400, message, code="context_length_exceeded")
    return _refused(int(how), f"The demo model fails with {how}, as you asked.")


def _streamed(stream: httpx2.AsyncByteStream) -> httpx2.Response:
    return httpx2.Response(200, headers={"content-type": "text/event-stream; charset=utf-8"}, stream=stream)


def _refused(status: int, message: str, *, code: str | None = None) -> httpx2.Response:
    kind = "server_error" if status >= 500 else "demo_error"
    content = json.dumps({"error": {"message": message, "type": kind, "param": None, "code": code}}).encode()
    headers = {"content-type": "application/json"} | ({"retry-after": "1"} if status == 429 else {})
    # As a stream, because a response made with `content` counts as already read, unlike one from a network.
    return httpx2.Response(status, headers=headers, stream=httpx2.ByteStream(content))
