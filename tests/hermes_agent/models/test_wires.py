"""Each wire's own fields: what is written into a request, and what is read out of a stream."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from hermes_agent.models.base import Delta, Endpoint, ModelError, Reply
from hermes_agent.models.provider_table import wire_for

TOOLS = ({"name": "todo", "description": "Keep a list", "parameters": {"type": "object", "properties": {}}},)
CHAT = Endpoint("custom", "chat", "http://127.0.0.1:8000/v1", "m-1", api_key="k")
CLAUDE = Endpoint("anthropic", "anthropic", "https://api.anthropic.com", "claude-sonnet-4-6", api_key="k")
CALL = {"id": "call_abcdefgh", "type": "function", "function": {"name": "todo", "arguments": '{"a": 1}'}}
STEP: list[dict[str, Any]] = [
    {"role": "user", "content": "Go"},
    {"role": "assistant", "content": "Sure", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "call_abcdefgh", "tool_name": "todo", "content": "ok"},
]


def body(
    endpoint: Endpoint, messages: list[dict[str, Any]], system: str = "You are Hermes.", tools: Any = TOOLS
) -> Any:
    wire = wire_for(endpoint)
    return json.loads(wire.join(wire.head(endpoint, system, tools), wire.fragments(messages), wire.ending(endpoint)))


def read(endpoint: Endpoint, *lines: str, on_delta: Any = None) -> Reply:
    async def feed() -> AsyncIterator[str]:
        for line in lines:
            yield line

    return asyncio.run(wire_for(endpoint).read(feed(), on_delta))


def chunks(*deltas: Any, finish: str = "stop", done: bool = True) -> list[str]:
    events = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    events.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    lines = [line for event in events for line in (f"data: {json.dumps(event)}", "")]
    return [*lines, "data: [DONE]", ""] if done else lines


# Chat completions: requests.


def test_a_chat_request_puts_what_never_changes_first() -> None:
    endpoint = replace(CHAT, max_tokens=100, options=(("temperature", 0.5), ("messages", "no"), ("stream", False)))
    request = body(endpoint, STEP)
    assert list(request) == ["model", "stream", "stream_options", "temperature", "tools", "messages", "max_tokens"]
    assert request["stream"] is True
    assert request["tools"] == [{"type": "function", "function": TOOLS[0]}]
    assert [message["role"] for message in request["messages"]] == ["system", "user", "assistant", "tool"]
    assert request["messages"][2] == {"role": "assistant", "content": "Sure", "tool_calls": [CALL]}
    assert request["messages"][3] == {"role": "tool", "tool_call_id": "call_abcdefgh", "content": "ok"}


def test_an_option_can_take_a_field_of_ours_away() -> None:
    assert "stream_options" not in body(replace(CHAT, options=(("stream_options", None),)), STEP)


@pytest.mark.parametrize(
    ("options", "field", "tokens"),
    [
        ((), "max_tokens", 100),
        ((("max_tokens", 50),), "max_tokens", 50),
        ((("max_tokens", None), ("max_completion_tokens", 70)), "max_completion_tokens", 70),
        ((("max_tokens", None),), None, None),
    ],
)
def test_the_length_of_an_answer_is_named_once_behind_the_messages(
    options: tuple[tuple[str, Any], ...], field: str | None, tokens: int | None
) -> None:
    endpoint = replace(CHAT, max_tokens=100, options=options)
    wire = wire_for(endpoint)
    head, said = wire.head(endpoint, "", ()), wire.fragments(STEP)
    whole, cut = (wire.join(head, said, wire.ending(endpoint, longest)) for longest in (None, 7))
    named = {name: value for name, value in json.loads(whole).items() if name.startswith("max_")}
    assert named == ({} if field is None else {field: tokens})
    assert json.loads(cut).get(field or "max_tokens") == (None if field is None else 7)
    assert cut[: len(wire.join(head, said)) - 1] == whole[: len(wire.join(head, said)) - 1]


def test_dialects_differ_where_their_servers_do() -> None:
    openai = replace(CHAT, provider="openai", base_url="https://api.openai.com/v1", max_tokens=9)
    assert body(openai, STEP)["max_completion_tokens"] == 9
    mistral = body(replace(CHAT, provider="mistral", base_url="https://api.mistral.ai/v1"), STEP)
    assert "stream_options" not in mistral
    call_id = mistral["messages"][2]["tool_calls"][0]["id"]
    assert len(call_id) == 9
    assert mistral["messages"][3]["tool_call_id"] == call_id
    router = replace(CHAT, provider="openrouter", base_url="https://openrouter.ai/api/v1", model="anthropic/claude-x")
    assert body(router, STEP)["cache_control"] == {"type": "ephemeral"}
    assert "cache_control" not in body(replace(router, model="openai/gpt-5"), STEP)


def test_reasoning_goes_back_only_where_it_is_wanted() -> None:
    details = [
        {"type": "reasoning.text", "text": "hm", "index": 0},
        {"type": "thinking", "thinking": "x", "signature": "s"},
        {
            "type": "tool_call.extra_content",
            "call": "call_abcdefgh",
            "extra_content": {"google": {"thought_signature": "t"}},
        },
    ]
    rows = [STEP[0], {**STEP[1], "reasoning": "hm", "reasoning_details": details}, STEP[2]]
    router = body(replace(CHAT, provider="openrouter"), rows)["messages"][2]
    assert router["reasoning_details"] == details[:1]
    deepseek = body(replace(CHAT, provider="deepseek"), rows)["messages"][2]
    assert deepseek["reasoning_content"] == "hm"
    assert body(replace(CHAT, provider="deepseek"), STEP)["messages"][2]["reasoning_content"] == ""
    gemini = body(replace(CHAT, provider="gemini"), rows)["messages"][2]["tool_calls"][0]
    assert gemini["extra_content"] == {"google": {"thought_signature": "t"}}
    plain = body(CHAT, rows)["messages"][2]
    assert set(plain) == {"role", "content", "tool_calls"}


# Anthropic: requests.


def test_an_anthropic_request_has_its_markers_in_constant_places() -> None:
    request = body(replace(CLAUDE, max_tokens=500), STEP)
    assert list(request) == ["model", "stream", "cache_control", "tools", "system", "messages", "max_tokens"]
    assert request["system"][0]["cache_control"] == {"type": "ephemeral"}
    assert request["tools"][0]["input_schema"] == TOOLS[0]["parameters"]
    assert "cache_control" not in json.dumps(request["messages"])
    elsewhere = body(replace(CLAUDE, base_url="https://models.example.org"), STEP)
    assert "cache_control" not in elsewhere
    bare = body(CLAUDE, STEP, system="")
    assert "system" not in bare
    assert bare["tools"][-1]["cache_control"] == {"type": "ephemeral"}
    assert bare["max_tokens"] > 0


def test_the_results_of_one_step_share_one_message() -> None:
    two = [{**CALL}, {**CALL, "id": "call_zyxwvuts"}]
    rows = [
        STEP[0],
        {**STEP[1], "tool_calls": two},
        STEP[2],
        {**STEP[2], "tool_call_id": "call_zyxwvuts", "content": ""},
    ]
    messages = body(CLAUDE, rows)["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "user"]
    assert [block["tool_use_id"] for block in messages[2]["content"]] == ["call_abcdefgh", "call_zyxwvuts"]
    assert messages[1]["content"][1] == {"type": "tool_use", "id": "call_abcdefgh", "name": "todo", "input": {"a": 1}}


def test_signed_thinking_goes_back_exactly_and_first() -> None:
    signed = {"type": "thinking", "thinking": "hm\n", "signature": "c2ln=="}
    hidden = {"type": "redacted_thinking", "data": "eA=="}
    unsigned = {"type": "thinking", "thinking": "elsewhere"}
    rows = [STEP[0], {**STEP[1], "reasoning_details": [signed, hidden, unsigned]}, STEP[2]]
    blocks = body(CLAUDE, rows)["messages"][1]["content"]
    assert blocks[:2] == [signed, hidden]
    assert [block["type"] for block in blocks] == ["thinking", "redacted_thinking", "text", "tool_use"]


def test_headers_carry_the_key_and_the_version() -> None:
    claude = wire_for(CLAUDE).headers(replace(CLAUDE, headers=(("anthropic-beta", "x"),)))
    assert (claude["x-api-key"], claude["anthropic-version"], claude["anthropic-beta"]) == ("k", "2023-06-01", "x")
    assert wire_for(CHAT).headers(CHAT)["authorization"] == "Bearer k"
    assert "authorization" not in wire_for(CHAT).headers(replace(CHAT, api_key=""))


def test_pictures_are_passed_also_those_that_a_tool_returned() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/jpg;base64,AA AA"}}
    rows = [{"role": "user", "content": [{"type": "text", "text": "Look"}, picture]}]
    assert body(CHAT, rows)["messages"][1]["content"][1]["image_url"]["url"] == "data:image/jpeg;base64,AAAA"
    source = body(CLAUDE, rows)["messages"][0]["content"][1]["source"]
    assert source == {"type": "base64", "media_type": "image/jpeg", "data": "AAAA"}
    answered = [*STEP[:2], {**STEP[2], "content": [picture]}]
    result, shown = body(CHAT, answered)["messages"][3:5]
    assert result["role"] == "tool" and isinstance(result["content"], str), "a tool's message holds text alone there"
    assert (shown["role"], shown["content"][1]["image_url"]["url"]) == ("user", "data:image/jpeg;base64,AAAA")
    assert body(CLAUDE, answered)["messages"][2]["content"][0]["content"][0]["type"] == "image"


# Chat completions: streams.


def test_tool_calls_arrive_in_pieces() -> None:
    seen: list[Delta] = []
    reply = read(
        CHAT,
        *chunks(
            {"role": "assistant", "content": None},
            {
                "tool_calls": [
                    {
                        "index": 0,
                        "id": "call_aaaaaaaa",
                        "type": "function",
                        "function": {"name": "todo", "arguments": ""},
                    }
                ]
            },
            {"tool_calls": [{"index": 0, "function": {"arguments": '{"a":'}}]},
            {"tool_calls": [{"index": 1, "id": "call_bbbbbbbb", "function": {"name": "memory", "arguments": "{}"}}]},
            {"tool_calls": [{"index": 0, "function": {"arguments": " 1}"}}]},
            finish="tool_calls",
        ),
        on_delta=seen.append,
    )
    assert [(call.id, call.name, call.arguments) for call in reply.tool_calls] == [
        ("call_aaaaaaaa", "todo", '{"a": 1}'),
        ("call_bbbbbbbb", "memory", "{}"),
    ]
    assert [(delta.kind, delta.text) for delta in seen] == [("tool_name", "todo"), ("tool_name", "memory")]


def test_servers_that_number_their_calls_badly() -> None:
    def piece(name: str, **fields: Any) -> dict[str, Any]:
        return {"tool_calls": [{**fields, "function": {"name": name, "arguments": "{}"}}]}

    same_index = read(
        CHAT, *chunks(piece("one", index=0, id="call_aaaaaaaa"), piece("two", index=0, id="call_bbbbbbbb"))
    )
    assert [call.name for call in same_index.tool_calls] == ["one", "two"]
    assert same_index.finish_reason == "tool_calls"
    no_index = read(CHAT, *chunks(piece("one", id="call_aaaaaaaa"), piece("two", id="call_bbbbbbbb")))
    assert [call.name for call in no_index.tool_calls] == ["one", "two"]
    poor = read(CHAT, *chunks(piece("one", index=0, id="call_0"), piece("two", index=1)))
    assert len({call.id for call in poor.tool_calls} | {"call_0", ""}) == 4


@pytest.mark.parametrize(
    "delta",
    [
        {"reasoning": "hm"},
        {"reasoning_content": "hm"},
        {"reasoning": "hm", "reasoning_content": "hm"},
        {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]},
    ],
)
def test_reasoning_by_any_name(delta: dict[str, Any]) -> None:
    seen: list[Delta] = []
    reply = read(CHAT, *chunks(delta, {"content": "Yes"}), on_delta=seen.append)
    assert (reply.content, reply.reasoning) == ("Yes", "hm")
    assert seen[0] == Delta("reasoning", "hm")


def test_reasoning_details_are_put_together_by_block() -> None:
    def detail(**fields: Any) -> dict[str, Any]:
        return {"reasoning_details": [fields]}

    reply = read(
        replace(CHAT, provider="openrouter"),
        *chunks(
            detail(type="reasoning.text", text="Let ", index=0, format="anthropic-claude-v1"),
            detail(type="reasoning.text", text="me", index=0, signature="sig"),
            detail(type="reasoning.encrypted", data="x", index=1),
            detail(type="reasoning.encrypted", data="y", index=1),
        ),
    )
    assert reply.reasoning_details == [
        {"type": "reasoning.text", "text": "Let me", "index": 0, "format": "anthropic-claude-v1", "signature": "sig"},
        {"type": "reasoning.encrypted", "data": "x", "index": 1},
        {"type": "reasoning.encrypted", "data": "y", "index": 1},
    ]


def test_geminis_signature_comes_back_with_the_call_whatever_its_id() -> None:
    endpoint = replace(CHAT, provider="gemini")
    extra = {"google": {"thought_signature": "sig"}}
    piece = {"index": 0, "id": "", "extra_content": extra, "function": {"name": "todo", "arguments": "{}"}}
    reply = read(endpoint, *chunks({"tool_calls": [piece]}))
    call = reply.tool_calls[0]
    row = {
        "role": "assistant", "content": reply.content, "reasoning_details": reply.reasoning_details,
        "tool_calls": [{"id": call.id, "function": {"name": call.name, "arguments": call.arguments}}],
    }  # fmt: skip
    assert body(endpoint, [STEP[0], row])["messages"][2]["tool_calls"][0]["extra_content"] == extra


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"usage": {"prompt_tokens": 10, "completion_tokens": 4}}, (10, 4, 0, 0, 0)),
        ({"usage": {"prompt_tokens": 10, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 6},
                    "completion_tokens_details": {"reasoning_tokens": 3}}}, (10, 4, 6, 0, 3)),
        ({"usage": {"prompt_tokens": 10, "completion_tokens": 4, "prompt_cache_hit_tokens": 8}}, (10, 4, 8, 0, 0)),
        ({"usage": {"prompt_tokens": 10, "completion_tokens": 4,
                    "prompt_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 7}}}, (10, 4, 2, 7, 0)),
        ({"x_groq": {"usage": {"prompt_tokens": 10, "completion_tokens": 4}}}, (10, 4, 0, 0, 0)),
        ({"usage": {"prompt_tokens": None, "completion_tokens": 4, "prompt_tokens_details": None}}, (0, 4, 0, 0, 0)),
        # reasoning beside the output, a prompt without its cached part, and figures that no call has
        ({"usage": {"prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 44,
                    "completion_tokens_details": {"reasoning_tokens": 30}}}, (10, 34, 0, 0, 30)),
        ({"usage": {"prompt_tokens": 10, "completion_tokens": 4, "prompt_cache_hit_tokens": 90}}, (100, 4, 90, 0, 0)),
        ({"usage": {"prompt_tokens": float("inf"), "completion_tokens": 10**25}}, (0, 0, 0, 0, 0)),
        ({"usage": {"prompt_tokens": float("nan"), "completion_tokens": -4}}, (0, 0, 0, 0, 0)),
        ({"usage": {"prompt_tokens": "10", "completion_tokens": True}}, (0, 0, 0, 0, 0)),
    ],
)  # fmt: skip
def test_usage_of_chat_servers(usage: dict[str, Any], expected: tuple[int, ...]) -> None:
    for choices in ([], None):
        lines = chunks({"content": "Hi"}, done=False)
        event = f"data: {json.dumps({'choices': choices, **usage})}"
        found = read(CHAT, *lines, event, "", "data: [DONE]").usage
        assert found is not None
        assert (
            found.input_tokens, found.output_tokens, found.cache_read_tokens, found.cache_write_tokens,
            found.reasoning_tokens,
        ) == expected  # fmt: skip


@pytest.mark.parametrize(
    ("said", "meant"),
    [("stop", "stop"), ("eos", "stop"), ("length", "length"), ("max_tokens", "length"), ("SAFETY", "content_filter"),
     ("content_filter", "content_filter"), ("function_call", "tool_calls")],
)  # fmt: skip
def test_finish_reasons_in_one_vocabulary(said: str, meant: str) -> None:
    assert read(CHAT, *chunks({"content": "Hi"}, finish=said)).finish_reason == meant


def test_a_refusal_is_shown_and_named() -> None:
    reply = read(CHAT, *chunks({"refusal": "I cannot "}, {"refusal": "do that"}))
    assert (reply.content, reply.finish_reason) == ("I cannot do that", "content_filter")


def test_a_stream_without_spaces_comments_or_a_last_blank_line() -> None:
    event = '{"choices":[{"delta":{"content":"Hi"},"finish_reason":"stop"}]}'
    assert read(CHAT, "\ufeff: hello", "id: 1", "retry: 10", f"data:{event}").content == "Hi"
    assert read(CHAT, "data: " + event[:20], "data: " + event[20:], "").content == "Hi"


def test_errors_inside_a_stream_in_their_several_shapes() -> None:
    for event in ('{"error":{"message":"boom"}}', '{"error":"boom"}', '{"object":"error","message":"boom","code":400}'):
        with pytest.raises(ModelError, match="boom"):
            read(CHAT, f"data: {event}", "")


# Anthropic: streams.


def events(*payloads: dict[str, Any]) -> list[str]:
    return [line for one in payloads for line in (f"event: {one['type']}", f"data: {json.dumps(one)}", "")]


def block(index: int, start: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"type": "content_block_start", "index": index, "content_block": start},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def claude(*blocks: list[dict[str, Any]], stop: str = "end_turn") -> list[str]:
    usage = {"input_tokens": 3, "cache_read_input_tokens": 90, "cache_creation_input_tokens": 7, "output_tokens": 1}
    start = {"type": "message_start", "message": {"model": "claude-x", "usage": usage, "content": []}}
    end = {"type": "message_delta", "delta": {"stop_reason": stop}, "usage": {"output_tokens": 12}}
    middle = [payload for one in blocks for payload in one]
    return events(start, {"type": "ping"}, *middle, end, {"type": "message_stop"})


def test_anthropics_blocks_become_a_reply() -> None:
    seen: list[Delta] = []
    reply = read(
        CLAUDE,
        *claude(
            block(
                0,
                {"type": "thinking", "thinking": "", "signature": ""},
                {"type": "thinking_delta", "thinking": "Let me"},
                {"type": "thinking_delta", "thinking": " see"},
                {"type": "signature_delta", "signature": "c2ln"},
            ),
            block(
                1,
                {"type": "text", "text": ""},
                {"type": "text_delta", "text": "I "},
                {"type": "text_delta", "text": "look."},
            ),
            block(
                2,
                {"type": "tool_use", "id": "toolu_01ABCDEFG", "name": "todo", "input": {}},
                {"type": "input_json_delta", "partial_json": ""},
                {"type": "input_json_delta", "partial_json": '{"a":'},
                {"type": "input_json_delta", "partial_json": " 1}"},
            ),
            block(3, {"type": "tool_use", "id": "toolu_02ABCDEFG", "name": "memory", "input": {}}),
            stop="tool_use",
        ),
        on_delta=seen.append,
    )
    assert (reply.content, reply.reasoning, reply.finish_reason, reply.model) == (
        "I look.",
        "Let me see",
        "tool_calls",
        "claude-x",
    )
    assert [(call.name, call.arguments) for call in reply.tool_calls] == [("todo", '{"a": 1}'), ("memory", "{}")]
    assert reply.reasoning_details == [{"type": "thinking", "thinking": "Let me see", "signature": "c2ln"}]
    assert reply.usage is not None
    assert (reply.usage.input_tokens, reply.usage.cache_read_tokens, reply.usage.cache_write_tokens) == (100, 90, 7)
    assert reply.usage.output_tokens == 12
    assert [delta.kind for delta in seen] == ["reasoning", "reasoning", "text", "text", "tool_name", "tool_name"]


@pytest.mark.parametrize(
    ("begun", "ended", "counted"),
    [
        ({}, {"output_tokens": 12}, (100, 12)),
        ({}, {"input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 12}, (100, 12)),  # repeated as zeros
        ({"input_tokens": 0}, {"input_tokens": 3, "output_tokens": 12}, (100, 12)),
        ({}, {}, None),  # the start's output is only a beginning
        ({}, {"output_tokens": 10**12}, None),
        ({"input_tokens": -3}, {"output_tokens": 12}, None),
        ({"input_tokens": "3"}, {"output_tokens": 12}, None),
    ],
)
def test_usage_of_anthropics_servers(
    begun: dict[str, Any], ended: dict[str, Any], counted: tuple[int, int] | None
) -> None:
    usage = {"input_tokens": 3, "cache_read_input_tokens": 90, "cache_creation_input_tokens": 7, "output_tokens": 1}
    start = {"type": "message_start", "message": {"model": "m", "usage": {**usage, **begun}, "content": []}}
    end = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": ended}
    reply = read(CLAUDE, *events(start, *block(0, {"type": "text", "text": "Hi"}), end, {"type": "message_stop"}))
    assert counted == (None if reply.usage is None else (reply.usage.input_tokens, reply.usage.output_tokens))


def test_usage_that_is_reported_twice_counts_where_it_is_larger() -> None:
    full, small = ({"prompt_tokens": a, "completion_tokens": b} for a, b in ((10, 4), (1, 0)))
    for first, second in ((full, small), (small, full)):
        said = {"choices": [{"delta": {"content": "Hi"}, "finish_reason": "stop"}], "usage": first}
        lines = [f"data: {json.dumps(said)}", "", f"data: {json.dumps({'choices': [], 'usage': second})}", ""]
        found = read(CHAT, *lines).usage
        assert found is not None and (found.input_tokens, found.output_tokens) == (10, 4)


@pytest.mark.parametrize(
    ("counted", "expected"), [((1, 0, 0), None), ((1, 2, 0), None), ((1, 2, 9), 9), ((0, 9, 0), None), ((0, 0, 9), 9)]
)
def test_usage_from_before_the_end_of_a_chat_answer_is_not_its_usage(
    counted: tuple[int, ...], expected: int | None
) -> None:
    """Some servers report with each piece; the last report counts all of it, and nothing else does."""
    lines = []
    for delta, output in zip(
        ({"role": "assistant", "content": ""}, {"content": "Hi"}, {"content": "!"}), counted, strict=True
    ):
        said = {"choices": [{"delta": delta}], "usage": {"prompt_tokens": 10, "completion_tokens": output}}
        lines += [f"data: {json.dumps(said if output else {'choices': said['choices']})}", ""]
    found = read(CHAT, *lines, *chunks({}, finish="stop")).usage
    assert (None if found is None else found.output_tokens) == expected


def test_thinking_between_words_goes_back_in_its_own_order() -> None:
    one = {"type": "thinking", "thinking": "a", "signature": "s1"}
    two = {"type": "thinking", "thinking": "b", "signature": "s2"}
    reply = read(
        CLAUDE,
        *claude(
            block(0, one),
            block(1, {"type": "text", "text": ""}, {"type": "text_delta", "text": "\nFirst. "}),
            block(2, two),
            block(3, {"type": "tool_use", "id": "toolu_01ABCDEFG", "name": "todo", "input": {}}),
            stop="tool_use",
        ),
    )
    row = {"role": "assistant", "content": reply.content, "reasoning_details": reply.reasoning_details,
           "tool_calls": [{"id": "toolu_01ABCDEFG", "function": {"name": "todo", "arguments": "{}"}}]}  # fmt: skip
    blocks = body(CLAUDE, [STEP[0], row])["messages"][1]["content"]
    assert [part["type"] for part in blocks] == ["thinking", "text", "thinking", "tool_use"]
    assert (blocks[0], blocks[1]["text"], blocks[2]) == (one, "First.", two)
    edited = {**row, "content": "Something much longer than what the model wrote"}
    assert [part["type"] for part in body(CLAUDE, [STEP[0], edited])["messages"][1]["content"]] == [
        "thinking", "thinking", "text", "tool_use",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("said", "meant"),
    [("end_turn", "stop"), ("max_tokens", "length"), ("stop_sequence", "stop"), ("refusal", "content_filter"),
     ("model_context_window_exceeded", "length"), ("pause_turn", "stop")],
)  # fmt: skip
def test_anthropics_stop_reasons_in_the_common_vocabulary(said: str, meant: str) -> None:
    assert read(CLAUDE, *claude(block(0, {"type": "text", "text": "Hi"}), stop=said)).finish_reason == meant


def test_an_overload_in_the_middle_keeps_what_arrived() -> None:
    lines = claude(block(0, {"type": "text", "text": "Well"}))[:9]
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    with pytest.raises(ModelError) as caught:
        read(CLAUDE, *lines, *events(error))
    assert caught.value.kind == "overloaded"
    assert caught.value.partial is not None
    assert caught.value.partial.content == "Well"


def test_an_anthropic_stream_that_breaks_off_gives_no_tool_call() -> None:
    cut = block(0, {"type": "tool_use", "id": "toolu_01ABCDEFG", "name": "todo", "input": {}},
                {"type": "input_json_delta", "partial_json": '{"a"'})[:-1]  # fmt: skip
    with pytest.raises(ModelError) as caught:
        read(CLAUDE, *events({"type": "message_start", "message": {}}, *cut))
    assert caught.value.kind == "network"
    assert caught.value.partial is None


def test_a_whole_anthropic_message() -> None:
    content = [
        {"type": "text", "text": "Hi"},
        {"type": "tool_use", "id": "toolu_01ABCDEFG", "name": "todo", "input": {"a": 1}},
    ]
    message = {
        "type": "message",
        "model": "claude-x",
        "content": content,
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 2},
    }
    reply = read(CLAUDE, json.dumps(message))
    assert (reply.content, reply.finish_reason) == ("Hi", "tool_calls")
    assert reply.tool_calls[0].arguments == '{"a":1}'
