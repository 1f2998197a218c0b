"""The demo model's answer as chat-completions bytes: chunks of a stream, or one JSON text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from hashlib import blake2s
from typing import Any

from hermes_agent.models.demo.replies import DemoReply
from hermes_agent.models.demo_request import DemoRequest

_PIECE = re.compile(r"\s*\S{1,12}\s*")
DONE = b"data: [DONE]\n\n"


class Encoder:
    """One answer. Everything in it follows from the request, so the same request is answered by the same bytes."""

    def __init__(self, request: DemoRequest, body: bytes, reply: DemoReply) -> None:
        self._request, self._reply = request, reply
        self._seed = blake2s(body).hexdigest()
        self._input_tokens = max(1, len(body) // 4)
        self._pieces = _PIECE.findall(reply.text)
        limit = request.max_tokens
        self._cut = limit is not None and len(self._pieces) > limit
        if self._cut:
            del self._pieces[limit:]

    @property
    def finish(self) -> str:
        return "length" if self._cut else "tool_calls" if self._reply.calls else "stop"

    def chunks(self) -> Iterator[tuple[int, bytes]]:
        """(tokens, bytes) in order: the role, words, tool calls in pieces, the ending, the usage."""
        yield 0, self._chunk({"role": "assistant", "content": ""})
        for piece in self._pieces:
            yield 1, self._chunk({"content": piece})
        for index, (call_id, name, arguments) in enumerate(() if self._cut else self._calls()):
            function = {"name": name, "arguments": ""}
            yield (
                1,
                self._chunk(
                    {"tool_calls": [{"index": index, "id": call_id, "type": "function", "function": function}]}
                ),
            )
            for at in range(0, len(arguments), 12):
                piece = arguments[at : at + 12]
                yield 1, self._chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
        yield 0, self._chunk({}, self.finish)
        if self._request.with_usage:
            yield 0, _event(self._envelope("chat.completion.chunk") | {"choices": [], "usage": self._usage()})
        yield 0, DONE

    def whole(self) -> bytes:
        """For a client that does not stream."""
        message: dict[str, Any] = {"role": "assistant", "content": "".join(self._pieces) or None}
        if self.finish == "tool_calls":
            message["tool_calls"] = [
                {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
                for call_id, name, arguments in self._calls()
            ]
        choice = {"index": 0, "message": message, "finish_reason": self.finish}
        answer = self._envelope("chat.completion") | {"choices": [choice], "usage": self._usage()}
        return json.dumps(answer, ensure_ascii=False).encode()

    def _calls(self) -> list[tuple[str, str, str]]:
        return [
            (f"call_{self._seed[:20]}{index:02d}", name, json.dumps(arguments, ensure_ascii=False))
            for index, (name, arguments) in enumerate(self._reply.calls)
        ]

    def _usage(self) -> dict[str, Any]:
        said = max(1, len(self._pieces) + sum(len(arguments) // 4 for _id, _name, arguments in self._calls()))
        return {
            "prompt_tokens": self._input_tokens,
            "completion_tokens": said,
            "total_tokens": self._input_tokens + said,
        }

    def _chunk(self, delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return _event(self._envelope("chat.completion.chunk") | {"choices": [choice]})

    def _envelope(self, kind: str) -> dict[str, Any]:
        return {"id": f"chatcmpl-demo-{self._seed[:16]}", "object": kind, "created": 0, "model": "demo"}


def _event(data: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


def error(message: str, *, kind: str, code: str | None = None) -> bytes:
    """The body of a refusal."""
    return json.dumps({"error": {"message": message, "type": kind, "param": None, "code": code}}).encode()
