"""A small wire of our own, so that tests of the bytes do not depend on a provider's format."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

from hermes_agent.models.base import AnswerLength, Endpoint, Message, OnDelta, Reply, ToolSpec

ENDPOINT = Endpoint(provider="test", wire="chat", base_url="http://127.0.0.1:1", model="plain-1")


class PlainWire:
    """One JSON object a row; a call without a result directly behind it gets one that says so."""

    name = "plain/1"

    def head(self, endpoint: Endpoint, system: str, tools: Sequence[ToolSpec]) -> bytes:
        return _dump({"model": endpoint.model, "tools": list(tools), "system": system})[:-1] + b',"messages":['

    def fragments(self, messages: Sequence[Message]) -> list[bytes]:
        made: list[bytes] = []
        waiting: list[str] = []
        for message in messages:
            if message["role"] == "tool":
                if message.get("tool_call_id") in waiting:
                    waiting.remove(message["tool_call_id"])
                    made.append(_dump({"result": message["content"], "at": message["timestamp"]}))
                continue
            made += [_dump({"result": None}) for _ in waiting]
            waiting = [call["id"] for call in message.get("tool_calls") or ()]
            text = message.get("api_content") or message["content"]
            made.append(_dump({"role": message["role"], "text": text, "calls": waiting, "at": message["timestamp"]}))
        return [*made, *(_dump({"result": None}) for _ in waiting)]

    def join(self, head: bytes, fragments: Sequence[bytes], ending: bytes = b"]}") -> bytes:
        return b"".join((head, b",".join(fragments), ending))

    def ending(self, endpoint: Endpoint, longest: int | None = None) -> bytes:
        return b"]}"

    def longest_answer(self, endpoint: Endpoint) -> AnswerLength:
        return AnswerLength("", None)

    def path(self) -> str:
        return "/plain"

    def headers(self, endpoint: Endpoint) -> dict[str, str]:
        return {}

    async def read(self, lines: AsyncIterator[str], on_delta: OnDelta | None) -> Reply:
        raise AssertionError("nothing is sent in these tests")


def call(call_id: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": "look", "arguments": "{}"}}


def _dump(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
