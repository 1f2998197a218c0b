"""Any stored conversation renders to a request a strict provider accepts, and growing it never moves earlier bytes."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_agent.models.base import Endpoint, Message, Wire
from hermes_agent.models.provider_table import wire_for

pytestmark = pytest.mark.slow

TOOLS = ({"name": "todo", "description": "Keep a list", "parameters": {"type": "object", "properties": {}}},)
PLACES = {
    "openrouter": "https://openrouter.ai/api/v1", "openai": "https://api.openai.com/v1",
    "deepseek": "https://api.deepseek.com/v1", "mistral": "https://api.mistral.ai/v1",
    "gemini": "https://generativelanguage.googleapis.com/v1beta/openai", "custom": "http://127.0.0.1:8000/v1",
}  # fmt: skip


def place(name: str) -> Endpoint:
    if name == "anthropic":
        return Endpoint("anthropic", "anthropic", "https://api.anthropic.com", "claude-sonnet-4-6", max_tokens=1000)
    return Endpoint(name, "chat", PLACES[name], "anthropic/claude-sonnet-4.6")


# What a strict chat-completions server insists on.


def check_chat(body: bytes, *, nine: bool = False) -> None:
    request = json.loads(body, parse_constant=_no_constant)
    assert list(request)[-1] == "messages"
    messages = request["messages"]
    if messages[0]["role"] == "system":
        assert messages.pop(0)["content"].strip()
    assert messages[0]["role"] == "user"
    assert messages[-1]["role"] != "assistant"
    waiting: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            assert set(message) == {"role", "tool_call_id", "content"}
            assert message["content"].strip()
            waiting.remove(message["tool_call_id"])
            continue
        assert not waiting, "a call without its result"
        if message["role"] == "user":
            assert set(message) == {"role", "content"}
            _check_chat_content(message["content"])
        else:
            waiting = _check_chat_assistant(message, nine=nine)
    assert not waiting


def _check_chat_content(content: Any) -> None:
    if isinstance(content, str):
        assert content.strip()
        return
    assert content
    for part in content:
        if part["type"] == "text":
            assert part["text"].strip()
        else:
            assert re.match(r"data:image/[\w.+-]+;base64,|https?://", part["image_url"]["url"])


def _check_chat_assistant(message: dict[str, Any], *, nine: bool) -> list[str]:
    assert message["role"] == "assistant"
    assert set(message) <= {"role", "content", "tool_calls", "reasoning_details", "reasoning_content"}
    calls = message.get("tool_calls", [])
    assert "tool_calls" not in message or calls
    assert (message["content"] is None and calls) or message["content"].strip()
    ids = []
    for call in calls:
        assert call["type"] == "function"
        assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", call["function"]["name"])
        assert isinstance(json.loads(call["function"]["arguments"], parse_constant=_no_constant), dict)
        assert call["id"]
        assert not nine or re.fullmatch(r"[a-zA-Z0-9]{9}", call["id"])
        ids.append(call["id"])
    assert len(ids) == len(set(ids))
    return ids


def _no_constant(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")


# What Anthropic insists on.


def check_anthropic(body: bytes) -> None:
    request = json.loads(body, parse_constant=_no_constant)
    assert list(request)[-2:] == ["messages", "max_tokens"]
    assert request["max_tokens"] > 0
    messages = request["messages"]
    assert messages[0]["role"] == "user"
    assert messages[-1]["role"] == "user"
    waiting: list[str] = []
    for message in messages:
        assert set(message) == {"role", "content"}
        blocks = message["content"]
        assert blocks
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        assert sorted(results) == sorted(waiting), "results belong into the message right behind their calls"
        waiting = []
        if message["role"] == "user":
            for block in blocks:
                _check_block(block, {"text", "image", "tool_result"})
        else:
            waiting = _check_anthropic_assistant(blocks)
    assert not waiting
    assert body.count(b'"cache_control"') <= 4


def _check_anthropic_assistant(blocks: list[dict[str, Any]]) -> list[str]:
    for block in blocks:
        _check_block(block, {"text", "thinking", "redacted_thinking", "tool_use"})
    assert any(block["type"] in ("text", "tool_use") for block in blocks)
    ids = [block["id"] for block in blocks if block["type"] == "tool_use"]
    assert len(ids) == len(set(ids))
    kinds = [block["type"] for block in blocks]
    if ids:
        assert kinds[-1] == "tool_use"
    return ids


def _check_block(block: dict[str, Any], allowed: set[str]) -> None:
    kind = block["type"]
    assert kind in allowed
    if kind == "text":
        assert block["text"].strip()
    elif kind == "tool_use":
        assert re.fullmatch(r"[a-zA-Z0-9_-]+", block["id"])
        assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", block["name"])
        assert isinstance(block["input"], dict)
    elif kind == "tool_result":
        assert block["content"]
        for inner in block["content"]:
            _check_block(inner, {"text", "image"})
    elif kind == "thinking":
        assert block["signature"]
    elif kind == "image":
        source = block["source"]
        assert source["type"] == "url" or source["media_type"] in ("image/png", "image/jpeg", "image/gif", "image/webp")


# Anything a store might hold.

words = st.one_of(st.text(max_size=12), st.sampled_from(["", " ", "\n\t", "Hello", "naïve 🙂", "\u2028", "\ud800"]))
ids = st.sampled_from(
    ["", "call_0", "call_1", "0", "toolu_01ABCDEFGH", "call_abcdefgh", "functions.todo:0", "späte id"]
)
numbers = st.one_of(st.floats(), st.integers(-5, 5))
arguments = st.one_of(
    st.sampled_from(['{"a": 1}', "", "{", "[1]", '"x"', "NaN", '{"a": NaN}', "null", '{"a":1,"a":2}', "[" * 3000]),
    st.dictionaries(words, numbers, max_size=2), st.none(), words,
)  # fmt: skip
calls = st.one_of(
    st.builds(
        lambda call_id, name, args: {"id": call_id, "type": "function", "function": {"name": name, "arguments": args}},
        ids, st.sampled_from(["todo", "", "read file", None, "x" * 90, "größe"]), arguments,
    ),
    st.builds(lambda call_id, args: {"id": call_id, "name": "todo", "input": args}, ids, arguments),
    st.sampled_from([None, "text", 7, {}]),
)  # fmt: skip
parts = st.one_of(
    st.builds(lambda text: {"type": "text", "text": text}, words),
    st.sampled_from([
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
        {"type": "image_url", "image_url": {"url": "data:image/tiff;base64,AAAA"}},
        {"type": "image_url", "image_url": "https://example.org/a.png"},
        {"type": "image_url", "image_url": {"url": "file:///etc/passwd"}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/jpg", "data": "AAAA"}},
        {"type": "input_audio", "input_audio": {}}, {"odd": 1}, {"type": 5}, "loose text", None, 3,
    ]),
)  # fmt: skip
contents = st.one_of(words, st.none(), st.lists(parts, max_size=3), numbers, st.just({"type": "text", "text": "x"}))
details = st.lists(
    st.sampled_from([
        {"type": "thinking", "thinking": "hm", "signature": "c2ln"}, {"type": "thinking", "thinking": "unsigned"},
        {"type": "redacted_thinking", "data": "eA=="}, {"type": "reasoning.text", "text": "hm", "index": 0},
        {"type": "reasoning.encrypted", "data": "x"},
        {"type": "block_order", "order": ["thinking", 3, "tool_use", None]},
        {"type": "block_order", "order": [2, "thinking", "tool_use"]},
        {"type": "tool_call.extra_content", "call": "call_abcdefgh", "extra_content": {"google": 1}}, "odd", {},
    ]),
    max_size=3,
)  # fmt: skip
optional = {
    "api_content": words, "timestamp": st.floats(1e9, 2e9), "reasoning": words, "reasoning_content": words,
    "reasoning_details": st.one_of(details, st.none(), words),
}  # fmt: skip
rows = st.one_of(
    st.fixed_dictionaries({"role": st.sampled_from(["user", "system", "session_meta"]), "content": contents},
                          optional={"api_content": words}),
    st.fixed_dictionaries({"role": st.just("assistant"), "content": contents},
                          optional={**optional, "tool_calls": st.one_of(st.lists(calls, max_size=3), words)}),
    st.fixed_dictionaries({"role": st.just("tool"), "content": contents},
                          optional={"tool_call_id": ids, "tool_name": st.sampled_from(["todo", "other"])}),
)  # fmt: skip
conversations = st.lists(rows, max_size=12)
systems = st.sampled_from(["", "  ", "You are Hermes."])


def complete(messages: Sequence[Message], k: int) -> bool:
    """Whether what stands before `k` ends with a complete step: no result of it can still come."""
    return k == len(messages) or messages[k]["role"] != "tool"


def render(wire: Wire, endpoint: Endpoint, system: str, messages: Sequence[Message]) -> bytes:
    return wire.join(wire.head(endpoint, system, TOOLS), wire.fragments(messages), wire.ending(endpoint))


@pytest.mark.parametrize("name", [*PLACES, "anthropic"])
@settings(max_examples=150, deadline=None)
@given(messages=conversations, system=systems)
def test_every_stored_state_is_a_request_a_strict_provider_accepts(
    name: str, messages: list[dict[str, Any]], system: str
) -> None:
    endpoint = place(name)
    body = render(wire_for(endpoint), endpoint, system, messages)
    if endpoint.wire == "anthropic":
        check_anthropic(body)
    else:
        check_chat(body, nine=name == "mistral")


@pytest.mark.parametrize("name", ["openrouter", "mistral", "anthropic"])
@settings(max_examples=150, deadline=None)
@given(messages=conversations)
def test_appending_complete_steps_never_moves_earlier_bytes(name: str, messages: list[dict[str, Any]]) -> None:
    endpoint = place(name)
    wire = wire_for(endpoint)
    whole = wire.fragments(messages)
    body = render(wire, endpoint, "S", messages)
    for k in range(len(messages) + 1):
        if complete(messages, k):
            before = wire.fragments(messages[:k])
            assert whole == before + wire.fragments(messages[k:])
            if before and not before[-1].startswith(b'{"role":"assistant"'):
                earlier = render(wire, endpoint, "S", messages[:k])
                assert body.startswith(earlier.removesuffix(wire.ending(endpoint)))


@settings(max_examples=100, deadline=None)
@given(messages=conversations)
def test_fragments_joined_beforehand_give_the_same_body(messages: list[dict[str, Any]]) -> None:
    for name in ("custom", "anthropic"):
        wire = wire_for(place(name))
        fragments = wire.fragments(messages)
        if len(fragments) > 1:
            head = wire.head(place(name), "S", ())
            assert wire.join(head, [b",".join(fragments[:-1]), fragments[-1]]) == wire.join(head, fragments)


def test_a_late_result_does_not_change_what_was_sent() -> None:
    call = {"id": "call_abcdefgh", "type": "function", "function": {"name": "todo", "arguments": "{}"}}
    sent: list[dict[str, Any]] = [
        {"role": "user", "content": "Go"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "user", "content": "Stop"},
    ]
    late = [*sent, {"role": "tool", "tool_call_id": "call_abcdefgh", "content": "done"}]
    for name in ("custom", "anthropic"):
        wire = wire_for(place(name))
        assert wire.fragments(late) == wire.fragments(sent)
        assert b"no result was recorded" in b"".join(wire.fragments(sent))


def test_what_was_sent_instead_of_the_text_is_sent_again() -> None:
    row = {"role": "user", "content": "Hello", "api_content": "[Monday] Hello  "}
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    for name in ("custom", "anthropic"):
        wire = wire_for(place(name))
        assert b"[Monday] Hello  " in wire.fragments([row])[0]
        with_picture = wire.fragments([{**row, "content": [{"type": "text", "text": "Hello"}, picture]}])[0]
        assert b"AAAA" in with_picture
        assert b"[Monday] Hello  " in with_picture


def test_a_row_renders_the_same_before_and_after_it_was_stored(db: Any) -> None:
    row = {"role": "user", "content": "  Hello\n"}
    db.create_session("s", source="cli")
    db.append_message("s", "user", row["content"])
    stored = db.get_messages_as_conversation("s")
    for name in ("custom", "anthropic"):
        wire = wire_for(place(name))
        assert wire.fragments(stored) == wire.fragments([row])
