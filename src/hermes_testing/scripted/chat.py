"""Checks chat-completions requests, and refuses wrong ones in the words of OpenAI (or, where OpenAI is more lenient,
of vLLM, Mistral or llama.cpp).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from hermes_testing.scripted.steps import Say, ScriptedCall, ScriptedRequest
from hermes_testing.scripted.wire import Part, Reject, RequestState, ScriptedProvider, estimate, finish, sse

_KNOWN = frozenset({
    "model", "messages", "stream", "stream_options", "tools", "tool_choice", "parallel_tool_calls", "temperature",
    "top_p", "top_k", "min_p", "n", "stop", "seed", "max_tokens", "max_completion_tokens", "presence_penalty",
    "frequency_penalty", "repetition_penalty", "logit_bias", "logprobs", "top_logprobs", "response_format",
    "reasoning", "reasoning_effort", "verbosity", "service_tier", "store", "metadata", "user", "prompt_cache_key",
    "prompt_cache_retention", "safety_identifier", "modalities", "prediction", "provider", "models", "route",
    "transforms", "plugins", "usage", "cache_control", "chat_template_kwargs", "thinking",
})  # fmt: skip
_MESSAGE_FIELDS: Mapping[str, frozenset[str]] = {
    "system": frozenset({"role", "content", "name"}),
    "developer": frozenset({"role", "content", "name"}),
    "user": frozenset({"role", "content", "name"}),
    "assistant": frozenset(
        {"role", "content", "name", "tool_calls", "refusal", "reasoning", "reasoning_content", "reasoning_details"}
    ),
    "tool": frozenset({"role", "content", "tool_call_id", "name"}),
}
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_LONGEST_ID = 40


@dataclass(slots=True)
class ChatState(RequestState):
    index: int = 0
    last: str = ""
    has_user: bool = False
    waiting: dict[str, None] = field(default_factory=dict)
    """Calls without a result, in order."""
    calls_at: int = 0

    def copy(self) -> Self:
        return type(self)(self.index, self.last, self.has_user, dict(self.waiting), self.calls_at)


def _system(state: ChatState, message: dict[str, Any], at: str) -> None:
    if state.last not in ("", "system", "developer"):
        raise Reject("System message must be at the beginning.", param=f"{at}.role")
    _content(message.get("content"), f"{at}.content", parts=("text",))


def _user(state: ChatState, message: dict[str, Any], at: str) -> None:
    state.has_user = True
    _content(message.get("content"), f"{at}.content", parts=("text", "image_url", "input_audio", "file"))


def _assistant(state: ChatState, message: dict[str, Any], at: str) -> None:
    if not state.has_user:
        raise Reject("Conversation roles must alternate user/assistant/user/assistant/...", param=f"{at}.role")
    calls = message.get("tool_calls")
    if calls is None:
        if "tool_calls" in message:
            raise _type(f"{at}.tool_calls", "an array of objects", None)
        if message.get("content") is None:
            raise Reject("Invalid value for 'content': expected a string, got null.", param=f"{at}.content")
        _content(message["content"], f"{at}.content", parts=("text", "refusal"))
        return
    if message.get("content"):
        _content(message["content"], f"{at}.content", parts=("text", "refusal"))
    if not isinstance(calls, list):
        raise _type(f"{at}.tool_calls", "an array of objects", calls)
    if not calls:
        raise _empty(f"{at}.tool_calls")
    for index, call in enumerate(calls):
        _call(state, call, f"{at}.tool_calls[{index}]")
    state.calls_at = state.index


_ORDER = {"system": _system, "developer": _system, "user": _user, "assistant": _assistant}


def _call(state: ChatState, call: Any, at: str) -> None:
    if not isinstance(call, dict):
        raise _type(at, "an object", call)
    if extra := set(call) - {"id", "type", "function", "extra_content"}:
        raise _unknown(f"{at}.{min(extra)}")
    call_id, function = call.get("id"), call.get("function")
    if not isinstance(call_id, str) or not call_id:
        raise _missing(f"{at}.id")
    if len(call_id) > _LONGEST_ID:
        raise Reject(
            f"Invalid '{at}.id': string too long. Expected a string with maximum length {_LONGEST_ID}, but got a string"
            f" with length {len(call_id)} instead.",
            param=f"{at}.id", code="string_above_max_length",
        )  # fmt: skip
    if call_id in state.waiting:
        raise Reject(f"Duplicate tool_call id: {call_id}", param=f"{at}.id")
    if call.get("type") != "function" or not isinstance(function, dict):
        raise _missing(f"{at}.function", at)
    if extra := set(function) - {"name", "arguments"}:
        raise _unknown(f"{at}.function.{min(extra)}")
    _name(function.get("name"), f"{at}.function.name")
    if not isinstance(function.get("arguments"), str):
        raise _type(f"{at}.function.arguments", "a string", function.get("arguments"))
    try:
        value = json.loads(function["arguments"])
    except ValueError:
        value = None
    if not isinstance(value, dict):
        # OpenAI itself takes any text; Mistral, Gemini and the templates of vLLM parse it.
        raise Reject(f"Invalid '{at}.function.arguments': not a JSON object.", param=f"{at}.function.arguments")
    state.waiting[call_id] = None


def _result(state: ChatState, message: dict[str, Any], at: str) -> None:
    call_id = message.get("tool_call_id")
    if not isinstance(call_id, str):
        raise _missing(f"{at}.tool_call_id")
    if call_id not in state.waiting:
        raise Reject(
            "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with"
            " 'tool_calls'.",
            param=f"messages.[{state.index}].role",
        )
    del state.waiting[call_id]
    _content(message.get("content"), f"{at}.content", parts=("text",))


def _all_answered(state: ChatState) -> None:
    if state.waiting:
        raise Reject(
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each"
            " 'tool_call_id'."
            f" The following tool_call_ids did not have response messages: {', '.join(state.waiting)}",
            param=f"messages.[{state.calls_at}].role",
        )


def _content(content: Any, at: str, *, parts: tuple[str, ...]) -> None:
    if isinstance(content, str):
        if not content.strip():
            # OpenAI takes a blank text; Moonshot, Bedrock and whatever forwards to Anthropic do not.
            raise Reject(f"Invalid '{at}': the message must not be empty.", param=at)
        return
    if not isinstance(content, list):
        raise _type(at, "one of a string or array of objects", content)
    if not content:
        raise _empty(at)
    for index, part in enumerate(content):
        kind = part.get("type") if isinstance(part, dict) else None
        if kind not in parts:
            raise Reject(
                f"Invalid value: {kind!r}. Supported values are: {', '.join(parts)}.",
                param=f"{at}[{index}].type", code="invalid_value",
            )  # fmt: skip
        if kind == "text" and not (isinstance(part.get("text"), str) and part["text"].strip()):
            raise Reject(f"Invalid '{at}[{index}].text': the text must not be empty.", param=f"{at}[{index}].text")
        if kind == "image_url" and not isinstance((part.get("image_url") or {}).get("url"), str):
            raise _missing(f"{at}[{index}].image_url.url", f"{at}[{index}]")


def _options(body: Mapping[str, Any]) -> None:
    for name in ("stream", "parallel_tool_calls", "store", "logprobs"):
        if name in body and not isinstance(body[name], bool):
            raise _type(name, "a boolean", body[name])
    if "stream_options" in body and body.get("stream") is not True:
        raise Reject("The 'stream_options' parameter is only allowed when 'stream' is enabled.", param="stream_options")
    for name in ("max_tokens", "max_completion_tokens", "seed", "n"):
        value = body.get(name, 1)
        if not isinstance(value, int) or isinstance(value, bool):
            raise _type(name, "an integer", value)
        if name != "seed" and value < 1:
            raise Reject(
                f"Invalid '{name}': integer below minimum value. Expected a value >= 1, but got {value} instead.",
                param=name, code="integer_below_min_value",
            )  # fmt: skip
    if "max_tokens" in body and "max_completion_tokens" in body:
        raise Reject("Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.")
    for name, high in (("temperature", 2), ("top_p", 1)):
        value = body.get(name, 1)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise _type(name, "a decimal", value)
        if not 0 <= value <= high:
            raise Reject(f"Invalid '{name}': {value} is not between 0 and {high}.", param=name)


def _tools(tools: Any) -> None:
    if not isinstance(tools, list):
        raise _type("tools", "an array of objects", tools)
    if not tools:
        raise _empty("tools")
    if len(tools) > 128:
        raise Reject(
            "Invalid 'tools': array too long. Expected an array with maximum length 128, but got an array with length"
            f" {len(tools)} instead.",
            param="tools", code="array_above_max_length",
        )  # fmt: skip
    names: set[str] = set()
    for index, tool in enumerate(tools):
        at = f"tools[{index}]"
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(function, dict) or tool.get("type") != "function":
            raise _missing(f"{at}.function", at)
        if extra := set(function) - {"name", "description", "parameters", "strict"}:
            raise _unknown(f"{at}.function.{min(extra)}")
        _name(function.get("name"), f"{at}.function.name")
        if function["name"] in names:
            raise Reject(f"Duplicate function definition found: {function['name']}", param=f"{at}.function.name")
        names.add(function["name"])
        if not isinstance(function.get("description", ""), str):
            raise _type(f"{at}.function.description", "a string", function["description"])
        if "parameters" in function:
            _schema(function["parameters"], function["name"], f"{at}.function.parameters")


def _schema(schema: Any, name: str, at: str) -> None:
    kind = schema.get("type") if isinstance(schema, dict) else None
    if kind != "object":
        raise Reject(
            f"Invalid schema for function '{name}': schema must be a JSON Schema of 'type: \"object\"', got 'type:"
            f" \"{kind}\"'.",
            param=at, code="invalid_function_parameters",
        )  # fmt: skip
    if trouble := schema_trouble(schema, ()):
        raise Reject(f"Invalid schema for function '{name}': {trouble}", param=at, code="invalid_function_parameters")


def schema_trouble(schema: Any, context: tuple[str, ...]) -> str | None:
    """Describe a fault that providers refuse in a tool's JSON schema; None when it has none."""
    if not isinstance(schema, dict):
        return f"In context={context}, {schema!r} is not a schema."
    if schema.get("type") == "array" and "items" not in schema:
        return f"In context={context}, array schema missing items."
    properties = schema.get("properties", {})
    if not isinstance(properties, dict):
        return f"In context={context}, 'properties' is not an object."
    missing = [name for name in schema.get("required", ()) if name not in properties]
    if missing:
        return f"In context={context}, 'required' names {missing[0]!r}, which is not in 'properties'."
    below = [((*context, "properties", name), child) for name, child in properties.items()]
    if "items" in schema:
        below.append(((*context, "items"), schema["items"]))
    return next((found for where, child in below if (found := schema_trouble(child, where))), None)


def _name(name: Any, at: str) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise Reject(
            f"Invalid '{at}': string does not match pattern. Expected a string that matches the pattern"
            " '^[a-zA-Z0-9_-]+$'.",
            param=at, code="invalid_value",
        )  # fmt: skip


def _type(at: str, wanted: str, got: Any) -> Reject:
    kinds = {
        bool: "a boolean",
        int: "an integer",
        float: "a decimal",
        str: "a string",
        list: "an array",
        dict: "an object",
    }
    return Reject(
        f"Invalid type for '{at}': expected {wanted}, but got {kinds.get(type(got), 'null')} instead.",
        param=at, code="invalid_type",
    )  # fmt: skip


def _missing(at: str, param: str = "") -> Reject:
    words = f"Missing required parameter: '{at}'."
    return Reject(words, param=param or at, code="missing_required_parameter")


def _unknown(at: str) -> Reject:
    return Reject(f"Unknown parameter: '{at}'.", param=at, code="unknown_parameter")


def _empty(at: str) -> Reject:
    return Reject(
        f"Invalid '{at}': empty array. Expected an array with minimum length 1, but got an empty array instead.",
        param=at, code="empty_array",
    )  # fmt: skip


_CREATED = 1_790_000_000
_DONE = b"data: [DONE]\n\n"
_ERRORS = {
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


class ChatProvider(ScriptedProvider[ChatState]):
    """One model behind `/chat/completions`."""

    path = "/v1/chat/completions"
    errors = _ERRORS
    other_error = ("invalid_request_error", None, "The request was refused.")

    def __init__(self, model: str, api_key: str, context_length: int, extra_fields: frozenset[str]) -> None:
        super().__init__(model, api_key, context_length, _KNOWN | extra_fields)

    def admit(self, request: ScriptedRequest) -> None:
        given = request.headers.get("authorization", "")
        if not given and self._key:
            raise Reject(
                "You didn't provide an API key. You need to provide your API key in an Authorization header using"
                " Bearer auth (i.e. Authorization: Bearer YOUR_KEY).",
                status=401,
            )
        if self._key and given != f"Bearer {self._key}":
            raise Reject("Incorrect API key provided.", status=401, code="invalid_api_key")

    def overflow(self, tokens: int) -> Reject:
        return Reject(
            f"This model's maximum context length is {self._context} tokens. However, your messages resulted in"
            f" {tokens} tokens. Please reduce the length of the messages.",
            param="messages",
            code="context_length_exceeded",
        )

    def begin(self, body: Mapping[str, Any]) -> ChatState:
        for name in body:
            if name not in self._known:
                raise Reject(f"Unrecognized request argument supplied: {name}", code="unknown_parameter")
        if not isinstance(body.get("model"), str):
            raise Reject("you must provide a model parameter")
        if body["model"] != self._model:
            raise Reject(
                f"The model `{body['model']}` does not exist or you do not have access to it.",
                status=404, param="model", code="model_not_found",
            )  # fmt: skip
        messages = body.get("messages")
        if messages is None:
            raise _missing("messages")
        if not isinstance(messages, list):
            raise _type("messages", "an array of objects", messages)
        if not messages:
            raise _empty("messages")
        _options(body)
        if "tools" in body:
            _tools(body["tools"])
        elif "tool_choice" in body:
            raise Reject("'tool_choice' is only allowed when 'tools' are specified.", param="tool_choice")
        return ChatState()

    def message(self, state: ChatState, message: Any) -> None:
        at = f"messages[{state.index}]"
        if not isinstance(message, dict):
            raise _type(at, "an object", message)
        role = str(message.get("role"))
        if role not in _MESSAGE_FIELDS:
            known = "', '".join(_MESSAGE_FIELDS)
            raise Reject(
                f"Invalid value: {role!r}. Supported values are: '{known}'.", param=f"{at}.role", code="invalid_value"
            )
        for name in message:
            if name not in _MESSAGE_FIELDS[role]:
                raise _unknown(f"{at}.{name}")
        if role == "tool":
            _result(state, message, at)
        else:
            _all_answered(state)
            _ORDER[role](state, message, at)
        state.last = role
        state.index += 1

    def end(self, state: ChatState) -> None:
        _all_answered(state)
        if not state.has_user:
            raise Reject("No user query found in messages.", param="messages")
        if state.last not in ("user", "tool"):
            raise Reject(f"Expected last role User or Tool for serving but got {state.last}", param="messages")

    def error(self, message: str, kind: str, param: str | None, code: str | None, number: int) -> bytes:
        return json.dumps({"error": {"message": message, "type": kind, "param": param, "code": code}}).encode()

    def opening(self, step: Say, request: ScriptedRequest, number: int) -> bytes:
        return self._chunks(request, number)({"role": "assistant", "content": ""})

    def events(self, step: Say, request: ScriptedRequest, number: int) -> Iterator[tuple[bool, bytes]]:
        chunk = self._chunks(request, number)
        for piece in step.reasoning:
            yield True, chunk({"reasoning_content": piece})
        for piece in step.pieces:
            yield True, chunk({"content": piece})
        for index, call in enumerate(step.calls):
            yield False, chunk({"tool_calls": [_opened(call, index, number)]})
            for piece in call.pieces:
                yield True, chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})

    def ending(self, step: Say, request: ScriptedRequest, number: int) -> list[Part]:
        parts: list[Part] = [self._chunks(request, number)({}, finish(step))]
        if _wants_usage(request):
            counted = json.dumps(_usage(step, request), separators=(",", ":"))
            parts.append(f'{self._head(number)}"choices":[],"usage":{counted}}}\n\n'.encode())
        return [*parts, _DONE]

    def interruption(self) -> list[Part]:
        words = "The server had an error while processing your request."
        return [sse("", {"error": {"message": words, "type": "server_error", "code": 502}}), _DONE]

    def _head(self, number: int) -> str:
        return (
            f'data: {{"id":"chatcmpl-s{number}","object":"chat.completion.chunk","created":{_CREATED},"model":'
            f'{json.dumps(self._model)},"system_fingerprint":null,'
        )

    def _chunks(self, request: ScriptedRequest, number: int) -> Callable[..., bytes]:
        head = self._head(number)
        usage = ',"usage":null' if _wants_usage(request) else ""

        def chunk(delta: dict[str, Any], finish_reason: str | None = None) -> bytes:
            said = json.dumps(delta, ensure_ascii=False, separators=(",", ":"))
            choice = f'{{"index":0,"delta":{said},"logprobs":null,"finish_reason":{json.dumps(finish_reason)}}}'
            return f'{head}"choices":[{choice}]{usage}}}\n\n'.encode()

        return chunk

    def whole(self, step: Say, request: ScriptedRequest, number: int) -> bytes:
        message: dict[str, Any] = {"role": "assistant", "content": "".join(step.pieces) or None, "refusal": None}
        if step.reasoning:
            message["reasoning_content"] = "".join(step.reasoning)
        if step.calls:
            message["tool_calls"] = [
                {
                    "id": _call_id(call, index, number),
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for index, call in enumerate(step.calls)
            ]
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish(step)}
        answer = {
            "id": f"chatcmpl-s{number}", "object": "chat.completion", "created": _CREATED, "model": self._model,
            "choices": [choice], "usage": _usage(step, request), "system_fingerprint": None,
        }  # fmt: skip
        return json.dumps(answer, ensure_ascii=False).encode()


def _wants_usage(request: ScriptedRequest) -> bool:
    return b'"include_usage":true' in request.body[:4096] or (
        (request.json.get("stream_options") or {}).get("include_usage") is True
    )


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
