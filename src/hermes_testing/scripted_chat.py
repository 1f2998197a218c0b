"""The chat-completions wire from the provider's side: answers, refusals, credentials.

Written after OpenAI's reference (chat completion object and chunk object, error codes); reasoning comes in the field
that DeepSeek, vLLM and OpenRouter use.
"""

from __future__ import annotations

import json
from typing import Any

from hermes_testing.scripted_chat_rules import ChatRules
from hermes_testing.scripted_request import ScriptedRequest
from hermes_testing.scripted_steps import Fail, Say, ScriptedCall
from hermes_testing.scripted_wire import Checker, Lost, Part, Pause, Refused, chopped, estimate, sse

_CREATED = 1_790_000_000
_KINDS = {
    401: ("invalid_request_error", "invalid_api_key", "Incorrect API key provided."),
    402: ("insufficient_quota", "insufficient_quota", "Insufficient credits."),
    403: (
        "invalid_request_error",
        "unsupported_country_region_territory",
        "Country, region, or territory not supported",
    ),
    404: ("invalid_request_error", "model_not_found", "The model does not exist or you do not have access to it."),
    413: ("invalid_request_error", None, "Request Entity Too Large"),
    429: ("requests", "rate_limit_exceeded", "Rate limit reached for requests. Please slow down."),
    500: ("server_error", None, "The server had an error while processing your request. Sorry about that!"),
    502: ("server_error", None, "Bad gateway."),
    503: ("service_unavailable", None, "The engine is currently overloaded, please try again later."),
    529: ("overloaded_error", None, "Overloaded"),
}


class ChatProvider:
    """One model behind `/chat/completions`."""

    path = "/v1/chat/completions"

    def __init__(
        self, model: str, api_key: str, context_length: int, extra_fields: frozenset[str], reasoning_field: str
    ) -> None:
        self._model, self._key, self._context = model, api_key, context_length
        self._reasoning = reasoning_field
        self._checker = Checker(ChatRules(model, extra_fields))

    def admit(self, request: ScriptedRequest) -> None:
        given = request.headers.get("authorization", "")
        if not given and self._key:
            raise Refused(
                "You didn't provide an API key. You need to provide your API key in an Authorization header using"
                " Bearer auth (i.e. Authorization: Bearer YOUR_KEY).",
                status=401,
            )
        if self._key and given != f"Bearer {self._key}":
            raise Refused("Incorrect API key provided.", status=401, code="invalid_api_key")

    def check(self, request: ScriptedRequest) -> None:
        tokens = len(request.body) // 4
        if tokens > self._context:
            raise self._overflow(tokens)
        self._checker.check(request)

    def _overflow(self, tokens: int) -> Refused:
        return Refused(
            f"This model's maximum context length is {self._context} tokens. However, your messages resulted in"
            f" {tokens} tokens. Please reduce the length of the messages.",
            param="messages",
            code="context_length_exceeded",
        )

    def refusal(self, refused: Refused, number: int) -> bytes:
        kind = refused.kind or "invalid_request_error"
        return _error(refused.message, kind, refused.param, refused.code)

    def failure(self, step: Fail, number: int) -> bytes:
        if step.kind == "context_overflow":
            return self.refusal(self._overflow(self._context + 1), number)
        kind, code, message = _KINDS.get(step.status, ("invalid_request_error", None, "The request was refused."))
        return _error(step.message or message, step.kind or kind, None, step.code or code)

    def answer(self, step: Say, request: ScriptedRequest, number: int) -> tuple[str, list[Part]]:
        asked = _asked(request)
        if not asked["stream"]:
            return "application/json", [self._whole(step, request, number)]
        parts = self._stream(step, request, number, with_usage=asked["usage"])
        return "text/event-stream; charset=utf-8", chopped(parts, step.chop) if step.chop else parts

    def _stream(self, step: Say, request: ScriptedRequest, number: int, *, with_usage: bool) -> list[Part]:
        opening = (
            f'data: {{"id":"chatcmpl-s{number}","object":"chat.completion.chunk","created":{_CREATED},"model":'
            f'{json.dumps(self._model)},"system_fingerprint":null,'
        )
        usage = ',"usage":null' if with_usage else ""

        def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
            said = json.dumps(delta, ensure_ascii=False, separators=(",", ":"))
            ending = json.dumps(finish)
            return (
                f'{opening}"choices":[{{"index":0,"delta":{said},"logprobs":null,"finish_reason":{ending}}}]{usage}}}\n\n'
            ).encode()

        parts: list[Part] = [chunk({"role": "assistant", "content": ""})]
        pieces: list[tuple[bool, dict[str, Any]]] = [(False, {self._reasoning: piece}) for piece in step.reasoning]
        pieces += [(False, {"content": piece}) for piece in step.pieces]
        for index, call in enumerate(step.calls):
            pieces.append((True, {"tool_calls": [_opened(call, index, number)]}))
            pieces += [
                (False, {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}) for piece in call.pieces
            ]
        arrived = 0
        for is_opening, delta in pieces:
            if step.breaks and arrived >= step.break_after:
                break
            if step.pace:
                parts.append(Pause(step.pace))
            parts.append(chunk(delta))
            arrived += not is_opening
            if step.hold and arrived == 1 and not is_opening:
                parts.append(step.hold)
        if step.breaks:
            return parts + _broken(step)
        parts.append(chunk({}, step.finish or ("tool_calls" if step.calls else "stop")))
        if with_usage:
            counted = json.dumps(_usage(step, request), separators=(",", ":"))
            parts.append(f'{opening}"choices":[],"usage":{counted}}}\n\n'.encode())
        parts.append(b"data: [DONE]\n\n")
        return parts

    def _whole(self, step: Say, request: ScriptedRequest, number: int) -> bytes:
        message: dict[str, Any] = {"role": "assistant", "content": "".join(step.pieces) or None, "refusal": None}
        if step.reasoning:
            message[self._reasoning] = "".join(step.reasoning)
        if step.calls:
            message["tool_calls"] = [
                {
                    "id": _call_id(call, index, number),
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for index, call in enumerate(step.calls)
            ]
        finish = step.finish or ("tool_calls" if step.calls else "stop")
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
        answer = {
            "id": f"chatcmpl-s{number}", "object": "chat.completion", "created": _CREATED, "model": self._model,
            "choices": [choice], "usage": _usage(step, request), "system_fingerprint": None,
        }  # fmt: skip
        return json.dumps(answer, ensure_ascii=False).encode()


def _asked(request: ScriptedRequest) -> dict[str, bool]:
    """Stream, and usage in it? Looked up in the bytes: parsing a long conversation for two flags would be felt."""
    head = request.body[:4096]
    if b'"stream":true' in head and b'"include_usage":true' in head:
        return {"stream": True, "usage": True}
    body = request.json
    options = body.get("stream_options") or {}
    return {"stream": body.get("stream") is True, "usage": options.get("include_usage") is True}


def _broken(step: Say) -> list[Part]:
    if step.breaks == "disconnect":
        return [Lost()]
    if step.breaks == "error":
        error = {
            "message": "The server had an error while processing your request.",
            "type": "server_error",
            "code": 502,
        }
        return [sse("", {"error": error}), b"data: [DONE]\n\n"]
    return []


def _opened(call: ScriptedCall, index: int, number: int) -> dict[str, Any]:
    opened: dict[str, Any] = {"index": index}
    if call.id != "":
        opened["id"] = _call_id(call, index, number)
    return opened | {"type": "function", "function": {"name": call.name, "arguments": ""}}


def _call_id(call: ScriptedCall, index: int, number: int) -> str:
    return f"call_s{number:04d}_{index}" if call.id is None else call.id


def _usage(step: Say, request: ScriptedRequest) -> dict[str, Any]:
    if step.usage is None:
        given, said = estimate(request, step)
        cached = reasoned = 0
    else:
        given, said = step.usage.input_tokens, step.usage.output_tokens
        cached, reasoned = step.usage.cache_read_tokens, step.usage.reasoning_tokens
    return {
        "prompt_tokens": given,
        "completion_tokens": said,
        "total_tokens": given + said,
        "prompt_tokens_details": {"cached_tokens": cached, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": reasoned, "audio_tokens": 0},
    }


def _error(message: str, kind: str, param: str | None, code: str | None) -> bytes:
    return json.dumps({"error": {"message": message, "type": kind, "param": param, "code": code}}).encode()
