"""Checks requests to Anthropic's Messages API, and refuses wrong ones in the provider's words."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2s
from typing import Any, Self

from hermes_testing.scripted.chat import schema_trouble
from hermes_testing.scripted.steps import Say, ScriptedCall, ScriptedRequest
from hermes_testing.scripted.wire import Part, Reject, RequestState, ScriptedProvider, estimate, finish, sse

_KNOWN = frozenset({
    "model", "messages", "max_tokens", "system", "tools", "tool_choice", "stream", "temperature", "top_p", "top_k",
    "stop_sequences", "metadata", "thinking", "output_config", "service_tier", "cache_control", "container",
    "context_management", "mcp_servers", "inference_geo",
})  # fmt: skip
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_ID = re.compile(r"[a-zA-Z0-9_-]+")
_BLOCKS: Mapping[str, frozenset[str]] = {
    "text": frozenset({"type", "text", "cache_control", "citations"}),
    "image": frozenset({"type", "source", "cache_control"}),
    "document": frozenset({"type", "source", "title", "context", "citations", "cache_control"}),
    "tool_use": frozenset({"type", "id", "name", "input", "cache_control"}),
    "tool_result": frozenset({"type", "tool_use_id", "content", "is_error", "cache_control"}),
    "thinking": frozenset({"type", "thinking", "signature"}),
    "redacted_thinking": frozenset({"type", "data"}),
}
_FROM = {
    "user": frozenset({"text", "image", "document", "tool_result"}),
    "assistant": frozenset({"text", "tool_use", "thinking", "redacted_thinking"}),
}
_MARKERS = 4


def signature(thought: str) -> str:
    """Return the signature of a thought."""
    return "scripted-" + blake2s(thought.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(slots=True)
class MessagesState(RequestState):
    index: int = 0
    last: str = ""
    markers: int = 0
    thinking: bool = False
    unthought: str = ""
    """The place where the model called tools without thinking; empty after the next message of the person."""
    pending: tuple[str, ...] = ()
    """The calls of the previous message, which this one must answer."""
    ids: set[str] = field(default_factory=set)

    def copy(self) -> Self:
        return replace(self, ids=set(self.ids))


def _content(state: MessagesState, content: Any, role: str, at: str) -> list[dict[str, Any]]:
    if isinstance(content, str):
        content = [{"type": "text", "text": content}] if content else []
    if not isinstance(content, list):
        raise Reject(f"{at}.content: Input should be a valid list")
    if not content:
        raise Reject(f"{at}: all messages must have non-empty content except for the optional final assistant message")
    for index, block in enumerate(content):
        kind = _block(state, block, f"{at}.content.{index}")
        if kind not in _FROM[role]:
            raise Reject(f"{at}: `{kind}` blocks can only be in `{'assistant' if role == 'user' else 'user'}` messages")
        if kind == "thinking" and block["signature"] != signature(block["thinking"]):
            raise Reject(f"{at}.content.{index}: Invalid `signature` in `thinking` block")
    if role == "assistant":
        uses = any(block["type"] == "tool_use" for block in content)
        first = content[0]["type"]
        state.unthought = f"{at}.content.0.type" if uses and first not in ("thinking", "redacted_thinking") else ""
    elif content[0]["type"] != "tool_result":
        state.unthought = ""  # the person spoke: what the model did before is history
    return content


def _block(state: MessagesState, block: Any, at: str) -> str:
    kind = str(block.get("type")) if isinstance(block, dict) else "None"
    if kind not in _BLOCKS:
        raise Reject(f"{at}: Input tag '{kind}' found using 'type' does not match any of the expected tags")
    for name in block:
        if name not in _BLOCKS[kind]:
            raise Reject(f"{at}.{kind}.{name}: Extra inputs are not permitted")
    if "cache_control" in block:
        _marker(state)
    _FIELDS[kind](state, block, f"{at}.{kind}")
    return kind


def _text(state: MessagesState, block: dict[str, Any], at: str) -> None:
    text = block.get("text")
    if not isinstance(text, str):
        raise Reject(f"{at}.text: Input should be a valid string")
    if not text:
        raise Reject("messages: text content blocks must be non-empty")
    if not text.strip():
        raise Reject("messages: text content blocks must contain non-whitespace text")


def _check_use(state: MessagesState, block: dict[str, Any], at: str) -> None:
    if not isinstance(block.get("id"), str) or not _ID.fullmatch(block["id"]):
        raise Reject(f"{at}.id: String should match pattern '^[a-zA-Z0-9_-]+$'")
    if block["id"] in state.ids:
        raise Reject("messages: `tool_use` ids must be unique")
    state.ids.add(block["id"])
    if not isinstance(block.get("name"), str) or not _NAME.fullmatch(block["name"]):
        raise Reject(f"{at}.name: String should match pattern '^[a-zA-Z0-9_-]{{1,64}}$'")
    if not isinstance(block.get("input"), dict):
        raise Reject(f"{at}.input: Input should be a valid dictionary")


def _result(state: MessagesState, block: dict[str, Any], at: str) -> None:
    if not isinstance(block.get("tool_use_id"), str):
        raise Reject(f"{at}.tool_use_id: Field required")
    content = block.get("content", "")
    if isinstance(content, str):
        return
    if not isinstance(content, list):
        raise Reject(f"{at}.content: Input should be a valid list")
    for index, part in enumerate(content):
        kind = _block(state, part, f"{at}.content.{index}")
        if kind not in ("text", "image", "document"):
            raise Reject(f"{at}.content.{index}: Input tag '{kind}' does not match any of the expected tags")


def _picture(state: MessagesState, block: dict[str, Any], at: str) -> None:
    source = block.get("source")
    kind = source.get("type") if isinstance(source, dict) else None
    wanted = {"base64": ("media_type", "data"), "url": ("url",), "file": ("file_id",), "text": ("media_type", "data")}
    if not isinstance(source, dict) or kind not in wanted:
        raise Reject(f"{at}.source: Input tag '{kind}' found using 'type' does not match any of the expected tags")
    for name in wanted[kind]:
        if not isinstance(source.get(name), str):
            raise Reject(f"{at}.source.{kind}.{name}: Field required")


def _thought(state: MessagesState, block: dict[str, Any], at: str) -> None:
    for name in ("thinking", "signature"):
        if not isinstance(block.get(name), str):
            raise Reject(f"{at}.{name}: Field required")


def _hidden_thought(state: MessagesState, block: dict[str, Any], at: str) -> None:
    if not isinstance(block.get("data"), str):
        raise Reject(f"{at}.data: Field required")


_FIELDS = {
    "text": _text,
    "image": _picture,
    "document": _picture,
    "tool_use": _check_use,
    "tool_result": _result,
    "thinking": _thought,
    "redacted_thinking": _hidden_thought,
}


def _answered(state: MessagesState, role: str, blocks: list[dict[str, Any]], at: str) -> None:
    """Check that the first blocks answer exactly the calls of the previous message."""
    results: list[str] = []
    if role == "user":
        for index, block in enumerate(blocks):
            if block["type"] != "tool_result":
                continue
            if block["tool_use_id"] not in state.pending:
                raise Reject(
                    f"{at}.content.{index}: unexpected `tool_use_id` found in `tool_result` blocks:"
                    f" {block['tool_use_id']}. Each `tool_result` block must have a corresponding `tool_use` block in"
                    " the previous message."
                )
            if block["tool_use_id"] in results:
                raise Reject(
                    f"{at}.content.{index}: each tool_use must have a single result. Found multiple `tool_result`"
                    f" blocks with id: {block['tool_use_id']}"
                )
            if index == len(results):
                results.append(block["tool_use_id"])
    missing = tuple(call for call in state.pending if call not in results)
    if missing:
        raise _unanswered(state.index - 1, missing)


def _unanswered(index: int, missing: tuple[str, ...]) -> Reject:
    return Reject(
        f"messages.{index}: `tool_use` ids were found without `tool_result` blocks immediately after:"
        f" {', '.join(missing)}. Each `tool_use` block must have a corresponding `tool_result` block in the"
        " next message."
    )


def _system(state: MessagesState, system: Any) -> None:
    if system is None or isinstance(system, str):
        return
    if not isinstance(system, list):
        raise Reject("system: Input should be a valid list")
    for index, block in enumerate(system):
        if not isinstance(block, dict) or block.get("type") != "text":
            raise Reject(f"system.{index}.type: Input should be 'text'")
        if not block.get("text"):
            raise Reject("system: text content blocks must be non-empty")
        _block(state, block, f"system.{index}")


def _tools(state: MessagesState, body: Mapping[str, Any]) -> None:
    tools = body.get("tools", [])
    if not isinstance(tools, list):
        raise Reject("tools: Input should be a valid list")
    if "tool_choice" in body and not tools:
        raise Reject("tool_choice may only be specified while providing tools.")
    names: set[str] = set()
    for index, tool in enumerate(tools):
        at = f"tools.{index}"
        if not isinstance(tool, dict):
            raise Reject(f"{at}: Input should be a valid dictionary")
        for name in tool:
            if name not in ("name", "description", "input_schema", "cache_control", "type", "strict"):
                raise Reject(f"{at}.custom.{name}: Extra inputs are not permitted")
        if not isinstance(tool.get("name"), str) or not _NAME.fullmatch(tool["name"]):
            raise Reject(f"{at}.custom.name: String should match pattern '^[a-zA-Z0-9_-]{{1,64}}$'")
        if tool["name"] in names:
            raise Reject("tools: Tool names must be unique.")
        names.add(tool["name"])
        schema = tool.get("input_schema")
        if not isinstance(schema, dict):
            raise Reject(f"{at}.custom.input_schema: Field required")
        if schema.get("type") != "object":
            raise Reject(f"{at}.custom.input_schema.type: Input should be 'object'")
        if combined := {"oneOf", "allOf", "anyOf"} & set(schema):
            raise Reject(
                f"{at}.custom.input_schema: input_schema does not support oneOf, allOf, or anyOf at the top level"
                f" ({min(combined)})"
            )
        if trouble := schema_trouble(schema, ()):
            raise Reject(f"{at}.custom.input_schema: JSON schema is invalid. {trouble}")
        if "cache_control" in tool:
            _marker(state)


def _thinking(body: Mapping[str, Any]) -> bool:
    thinking = body.get("thinking")
    if thinking is None:
        return False
    kind = thinking.get("type") if isinstance(thinking, dict) else None
    if kind not in ("enabled", "disabled", "adaptive"):
        raise Reject(f"thinking: Input tag '{kind}' found using 'type' does not match any of the expected tags")
    if kind != "enabled":
        return False
    _integer(thinking.get("budget_tokens"), "thinking.enabled.budget_tokens", least=1024)
    if body["max_tokens"] <= thinking["budget_tokens"]:
        raise Reject("`max_tokens` must be greater than `thinking.budget_tokens`.")
    return True


def _marker(state: MessagesState) -> None:
    state.markers += 1
    if state.markers > _MARKERS:
        raise Reject(f"A maximum of {_MARKERS} blocks with cache_control may be provided. Found {state.markers}.")


def _integer(value: Any, at: str, *, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise Reject(f"{at}: Input should be a valid integer")
    if value < least:
        raise Reject(f"{at}: Input should be greater than or equal to {least}")


_ERRORS = {
    400: ("invalid_request_error", None, "Invalid request."),
    401: ("authentication_error", None, "invalid x-api-key"),
    402: ("billing_error", None, "Your credit balance is too low to access the Anthropic API."),
    403: ("permission_error", None, "Your API key does not have permission to use the specified resource."),
    404: ("not_found_error", None, "model: not found"),
    413: ("request_too_large", None, "Request exceeds the maximum size"),
    429: ("rate_limit_error", None, "This request would exceed your account's rate limit. Please try again later."),
    500: ("api_error", None, "Internal server error"),
    504: ("timeout_error", None, "The request timed out."),
    529: ("overloaded_error", None, "Overloaded"),
}
_STOP = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens", "content_filter": "refusal"}
_TEST_VERSIONS = frozenset({"2023-06-01", "2023-01-01"})


class AnthropicProvider(ScriptedProvider[MessagesState]):
    """One model behind `/v1/messages`."""

    path = "/v1/messages"
    errors = _ERRORS
    other_error = ("api_error", None, "Internal server error")

    def __init__(self, model: str, api_key: str, context_length: int, extra_fields: frozenset[str]) -> None:
        super().__init__(model, api_key, context_length, _KNOWN | extra_fields)

    def admit(self, request: ScriptedRequest) -> None:
        given = request.headers.get("x-api-key")
        if given is None and self._key:
            raise Reject("x-api-key header is required", status=401, kind="authentication_error")
        if self._key and given != self._key:
            raise Reject("invalid x-api-key", status=401, kind="authentication_error")
        version = request.headers.get("anthropic-version")
        if version is None:
            raise Reject("anthropic-version: header is required")
        if version not in _TEST_VERSIONS:
            raise Reject(f'anthropic-version: "{version}" is not a valid version')

    def overflow(self, tokens: int) -> Reject:
        return Reject(f"prompt is too long: {tokens} tokens > {self._context} maximum")

    def begin(self, body: Mapping[str, Any]) -> MessagesState:
        for name in ("model", "messages", "max_tokens"):
            if name not in body:
                raise Reject(f"{name}: Field required")
        for name in body:
            if name not in self._known:
                raise Reject(f"{name}: Extra inputs are not permitted")
        if body["model"] != self._model:
            raise Reject(f"model: {body['model']}", status=404, kind="not_found_error")
        _integer(body["max_tokens"], "max_tokens", least=1)
        if not isinstance(body.get("stream", False), bool):
            raise Reject("stream: Input should be a valid boolean")
        if not isinstance(body["messages"], list):
            raise Reject("messages: Input should be a valid list")
        if not body["messages"]:
            raise Reject("messages: at least one message is required")
        state = MessagesState(thinking=_thinking(body))
        state.markers += "cache_control" in body
        _system(state, body.get("system"))
        _tools(state, body)
        return state

    def message(self, state: MessagesState, message: Any) -> None:
        at = f"messages.{state.index}"
        if not isinstance(message, dict):
            raise Reject(f"{at}: Input should be a valid dictionary")
        role = message.get("role")
        if role == "system":
            raise Reject(
                'messages: Unexpected role "system". The Messages API accepts a top-level `system` parameter, not'
                ' "system" as an input message role.'
            )
        if role not in _FROM:
            raise Reject(f"{at}.role: Input should be 'user' or 'assistant'")
        if not state.index and role != "user":
            raise Reject('messages: first message must use the "user" role')
        for name in message:
            if name not in ("role", "content"):
                raise Reject(f"{at}.{name}: Extra inputs are not permitted")
        blocks = _content(state, message.get("content"), role, at)
        _answered(state, role, blocks, at)
        state.pending = tuple(block["id"] for block in blocks if block["type"] == "tool_use")
        state.last = role
        state.index += 1

    def end(self, state: MessagesState) -> None:
        if state.pending:
            raise _unanswered(state.index - 1, state.pending)
        if state.thinking and state.unthought:
            raise Reject(
                f"{state.unthought}: Expected `thinking` or `redacted_thinking`, but found something else. When"
                " `thinking` is enabled, a final `assistant` message must start with a thinking block (preceeding the"
                " lastmost set of `tool_use` and `tool_result` blocks)."
            )
        if state.last != "user":
            raise Reject(
                "This model does not support assistant message prefill. The conversation must end with a user message."
            )

    def error(self, message: str, kind: str, param: str | None, code: str | None, number: int) -> bytes:
        error = {"type": "error", "error": {"type": kind, "message": message}, "request_id": f"req_s{number}"}
        return json.dumps(error).encode()

    def opening(self, step: Say, request: ScriptedRequest, number: int) -> bytes:
        message = self._message(number, []) | {"usage": _usage(step, request) | {"output_tokens": 1}}
        return _event("message_start", message=message)

    def events(self, step: Say, request: ScriptedRequest, number: int) -> Iterator[tuple[bool, bytes]]:
        blocks: list[tuple[dict[str, Any], str, str, tuple[str, ...]]] = []
        """For each block: its first event, and the type, field and pieces of its deltas."""
        if step.reasoning:
            empty = {"type": "thinking", "thinking": "", "signature": ""}
            blocks.append((empty, "thinking_delta", "thinking", step.reasoning))
        if step.pieces:
            blocks.append(({"type": "text", "text": ""}, "text_delta", "text", step.pieces))
        for position, call in enumerate(step.calls):
            use = _use(call, position, number) | {"input": {}}
            blocks.append((use, "input_json_delta", "partial_json", call.pieces))
        for index, (block, kind, name, pieces) in enumerate(blocks):
            yield False, _event("content_block_start", index=index, content_block=block)
            if index == 0:
                yield False, _event("ping")
            for piece in pieces:
                yield True, _event("content_block_delta", index=index, delta={"type": kind, name: piece})
            if kind == "thinking_delta":
                signed = {"type": "signature_delta", "signature": signature("".join(pieces))}
                yield False, _event("content_block_delta", index=index, delta=signed)
            yield False, _event("content_block_stop", index=index)

    def ending(self, step: Say, request: ScriptedRequest, number: int) -> list[Part]:
        delta = {"stop_reason": _STOP.get(finish(step), finish(step)), "stop_sequence": None}
        return [_event("message_delta", delta=delta, usage=_usage(step, request)), _event("message_stop")]

    def interruption(self) -> list[Part]:
        return [_event("error", error={"type": "overloaded_error", "message": "Overloaded"})]

    def whole(self, step: Say, request: ScriptedRequest, number: int) -> bytes:
        blocks: list[dict[str, Any]] = []
        if step.reasoning:
            thought = "".join(step.reasoning)
            blocks.append({"type": "thinking", "thinking": thought, "signature": signature(thought)})
        if step.pieces:
            blocks.append({"type": "text", "text": "".join(step.pieces)})
        for index, call in enumerate(step.calls):
            blocks.append(_use(call, index, number) | {"input": json.loads(call.arguments or "{}")})
        ending = {"stop_reason": _STOP.get(finish(step), finish(step)), "usage": _usage(step, request)}
        return json.dumps(self._message(number, blocks) | ending, ensure_ascii=False).encode()

    def _message(self, number: int, content: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": f"msg_s{number}", "type": "message", "role": "assistant", "model": self._model, "content": content,
            "stop_reason": None, "stop_sequence": None,
        }  # fmt: skip


def _event(kind: str, **fields: Any) -> bytes:
    return sse(kind, {"type": kind, **fields})


def _use(call: ScriptedCall, index: int, number: int) -> dict[str, Any]:
    return {"type": "tool_use", "id": f"toolu_s{number:04d}_{index}" if call.id is None else call.id, "name": call.name}


def _usage(step: Say, request: ScriptedRequest) -> dict[str, Any]:
    """Return the usage; `input_tokens` excludes tokens read from or written to the cache."""
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
