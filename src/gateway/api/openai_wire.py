"""Responses in the shapes of OpenAI's API, as plain dictionaries and bytes, without I/O."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from hermes_config import redaction


class ApiError(Exception):
    """An error that becomes an error object in the response."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        kind: str | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> None:
        """`more` stands beside the error object."""
        super().__init__(message)
        self.status, self.message, self.code, self.param = status, message, code, param
        self.more: Mapping[str, Any] = more or {}
        self.kind = kind or ("invalid_request_error" if status < 500 else "server_error")

    def body(self) -> dict[str, Any]:
        return {"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}}


_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def encoded(value: Mapping[str, Any]) -> bytes:
    """A value as JSON with secrets redacted. Every response of the API passes here."""
    return redaction.current()(_JSON.encode(value)).encode("utf-8", "replace")


def event(value: Mapping[str, Any], *, name: str = "") -> bytes:
    """One server-sent event."""
    head = f"event: {name}\n".encode() if name else b""
    return head + b"data: " + encoded(value) + b"\n\n"


DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b": still working\n\n"


def completion(reply_id: str, model: str, result: Mapping[str, Any], text: str) -> dict[str, Any]:
    """The response body with a whole answer."""
    return {
        "id": reply_id, "object": "chat.completion", "created": int(time.time()), "model": model,
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish_reason(result),
             "logprobs": None}
        ],
        "usage": usage(result), "hermes": about(result),
    }  # fmt: skip


def chunk(reply_id: str, model: str, delta: Mapping[str, Any], *, finish: str | None = None) -> dict[str, Any]:
    """A streamed part of an answer."""
    return {
        "id": reply_id, "object": "chat.completion.chunk", "created": int(time.time()), "model": model,
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}],
    }  # fmt: skip


def usage(result: Mapping[str, Any]) -> dict[str, Any]:
    asked, said = int(result.get("input_tokens") or 0), int(result.get("output_tokens") or 0)
    return {
        "prompt_tokens": asked, "completion_tokens": said, "total_tokens": asked + said,
        "prompt_tokens_details": {"cached_tokens": int(result.get("cache_read_tokens") or 0)},
    }  # fmt: skip


def finish_reason(result: Mapping[str, Any]) -> str:
    """The finish reason of an answer, in the words that clients know."""
    length = "finish_reason=length" in str(result.get("turn_exit_reason"))
    return "length" if length or result.get("partial") or result.get("interrupted") else "stop"


def is_incomplete(result: Mapping[str, Any], text: str | None) -> bool:
    """Whether the turn failed, or broke off before there was any text."""
    return bool(result.get("failed")) or (not text and bool(result.get("partial") or result.get("interrupted")))


def incomplete(result: Mapping[str, Any], text: str | None) -> ApiError:
    said = str(result.get("error") or "") or text or "the turn broke off"
    return ApiError(502, said, code="agent_incomplete", more={"hermes": about(result)})


def headers(result: Mapping[str, Any]) -> dict[str, str]:
    """Headers of an incomplete answer."""
    if finish_reason(result) == "stop":
        return {}
    return {"x-hermes-completed": "false", "x-hermes-partial": str(bool(result.get("partial"))).lower()}


def about(result: Mapping[str, Any]) -> dict[str, Any]:
    """Our own facts beside OpenAI's fields."""
    told = {name: bool(result.get(name)) for name in ("completed", "partial", "failed", "interrupted")}
    return {**told, "model": result.get("model"), "error": result.get("error")}
