"""Anthropic's messages wire from the provider's side: answers, refusals, credentials.

Written after the Messages API reference (streaming, errors, versions). Thinking is signed: the signature depends on the
thought, and the rules refuse one that comes back changed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from hermes_testing.scripted_anthropic_rules import AnthropicRules, signature
from hermes_testing.scripted_request import ScriptedRequest
from hermes_testing.scripted_steps import Fail, Say, ScriptedCall
from hermes_testing.scripted_wire import Checker, Lost, Part, Pause, Refused, chopped, estimate, sse

_KINDS = {
    400: ("invalid_request_error", "Invalid request."),
    401: ("authentication_error", "invalid x-api-key"),
    402: ("billing_error", "Your credit balance is too low to access the Anthropic API."),
    403: ("permission_error", "Your API key does not have permission to use the specified resource."),
    404: ("not_found_error", "model: not found"),
    413: ("request_too_large", "Request exceeds the maximum size"),
    429: ("rate_limit_error", "This request would exceed your account's rate limit. Please try again later."),
    500: ("api_error", "Internal server error"),
    504: ("timeout_error", "The request timed out."),
    529: ("overloaded_error", "Overloaded"),
}
_STOP = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens", "content_filter": "refusal"}
_TEST_VERSIONS = frozenset({"2023-06-01", "2023-01-01"})


class AnthropicProvider:
    """One model behind `/v1/messages`."""

    path = "/v1/messages"

    def __init__(self, model: str, api_key: str, context_length: int, extra_fields: frozenset[str]) -> None:
        self._model, self._key, self._context = model, api_key, context_length
        self._checker = Checker(AnthropicRules(model, extra_fields))

    def admit(self, request: ScriptedRequest) -> None:
        given = request.headers.get("x-api-key")
        if given is None and self._key:
            raise Refused("x-api-key header is required", status=401, kind="authentication_error")
        if self._key and given != self._key:
            raise Refused("invalid x-api-key", status=401, kind="authentication_error")
        version = request.headers.get("anthropic-version")
        if version is None:
            raise Refused("anthropic-version: header is required")
        if version not in _TEST_VERSIONS:
            raise Refused(f'anthropic-version: "{version}" is not a valid version')

    def check(self, request: ScriptedRequest) -> None:
        tokens = len(request.body) // 4
        if tokens > self._context:
            raise self._overflow(tokens)
        self._checker.check(request)

    def _overflow(self, tokens: int) -> Refused:
        return Refused(f"prompt is too long: {tokens} tokens > {self._context} maximum")

    def refusal(self, refused: Refused, number: int) -> bytes:
        return _error(refused.message, refused.kind or "invalid_request_error", number)

    def failure(self, step: Fail, number: int) -> bytes:
        if step.kind == "context_overflow":
            return self.refusal(self._overflow(self._context + 1), number)
        kind, message = _KINDS.get(step.status, ("api_error", "Internal server error"))
        return _error(step.message or message, step.kind or kind, number)

    def answer(self, step: Say, request: ScriptedRequest, number: int) -> tuple[str, list[Part]]:
        if b'"stream":true' not in request.body[:4096] and request.json.get("stream") is not True:
            return "application/json", [self._whole(step, request, number)]
        parts = self._stream(step, request, number)
        return "text/event-stream; charset=utf-8", chopped(parts, step.chop) if step.chop else parts

    def _stream(self, step: Say, request: ScriptedRequest, number: int) -> list[Part]:
        usage = _usage(step, request)
        opening = self._message(number, []) | {"usage": usage | {"output_tokens": 1}}
        parts: list[Part] = [sse("message_start", {"type": "message_start", "message": opening})]
        arrived = 0
        for is_piece, event in _events(step, number):
            if step.breaks and arrived >= step.break_after:
                break
            if step.pace and is_piece:
                parts.append(Pause(step.pace))
            parts.append(sse(event["type"], event))
            arrived += is_piece
            if step.hold and is_piece and arrived == 1:
                parts.append(step.hold)
            if len(parts) == 2:
                parts.append(sse("ping", {"type": "ping"}))
        if step.breaks:
            return parts + _broken(step)
        delta = {"stop_reason": _stop_reason(step), "stop_sequence": None}
        parts.append(sse("message_delta", {"type": "message_delta", "delta": delta, "usage": usage}))
        parts.append(sse("message_stop", {"type": "message_stop"}))
        return parts

    def _whole(self, step: Say, request: ScriptedRequest, number: int) -> bytes:
        blocks: list[dict[str, Any]] = []
        if step.reasoning:
            thought = "".join(step.reasoning)
            blocks.append({"type": "thinking", "thinking": thought, "signature": signature(thought)})
        if step.pieces:
            blocks.append({"type": "text", "text": "".join(step.pieces)})
        for index, call in enumerate(step.calls):
            blocks.append(_use(call, index, number) | {"input": json.loads(call.arguments or "{}")})
        ending = {"stop_reason": _stop_reason(step), "usage": _usage(step, request)}
        return json.dumps(self._message(number, blocks) | ending, ensure_ascii=False).encode()

    def _message(self, number: int, content: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": f"msg_s{number}", "type": "message", "role": "assistant", "model": self._model, "content": content,
            "stop_reason": None, "stop_sequence": None,
        }  # fmt: skip


def _events(step: Say, number: int) -> Iterator[tuple[bool, dict[str, Any]]]:
    """The events of the content blocks, each with whether it carries a piece of the script."""
    index = 0
    if step.reasoning:
        yield False, _start(index, {"type": "thinking", "thinking": "", "signature": ""})
        for piece in step.reasoning:
            yield True, _delta(index, {"type": "thinking_delta", "thinking": piece})
        yield False, _delta(index, {"type": "signature_delta", "signature": signature("".join(step.reasoning))})
        yield False, {"type": "content_block_stop", "index": index}
        index += 1
    if step.pieces:
        yield False, _start(index, {"type": "text", "text": ""})
        for piece in step.pieces:
            yield True, _delta(index, {"type": "text_delta", "text": piece})
        yield False, {"type": "content_block_stop", "index": index}
        index += 1
    for position, call in enumerate(step.calls):
        yield False, _start(index, _use(call, position, number) | {"input": {}})
        for piece in call.pieces:
            yield True, _delta(index, {"type": "input_json_delta", "partial_json": piece})
        yield False, {"type": "content_block_stop", "index": index}
        index += 1


def _start(index: int, block: dict[str, Any]) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def _delta(index: int, delta: dict[str, Any]) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": delta}


def _use(call: ScriptedCall, index: int, number: int) -> dict[str, Any]:
    return {"type": "tool_use", "id": f"toolu_s{number:04d}_{index}" if call.id is None else call.id, "name": call.name}


def _broken(step: Say) -> list[Part]:
    if step.breaks == "disconnect":
        return [Lost()]
    if step.breaks == "error":
        error = {"type": "overloaded_error", "message": "Overloaded"}
        return [sse("error", {"type": "error", "error": error})]
    return []


def _stop_reason(step: Say) -> str:
    finish = step.finish or ("tool_calls" if step.calls else "stop")
    return _STOP.get(finish, finish)


def _usage(step: Say, request: ScriptedRequest) -> dict[str, Any]:
    """`input_tokens` is what was neither read from the cache nor written to it."""
    if step.usage is None:
        given, said = estimate(request, step)
        read = written = 0
    else:
        read, written = step.usage.cache_read_tokens, step.usage.cache_write_tokens
        given, said = step.usage.input_tokens - read - written, step.usage.output_tokens
    return {
        "input_tokens": given,
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": read,
        "output_tokens": said,
        "service_tier": "standard",
    }


def _error(message: str, kind: str, number: int) -> bytes:
    error = {"type": "error", "error": {"type": kind, "message": message}, "request_id": f"req_s{number}"}
    return json.dumps(error).encode()
