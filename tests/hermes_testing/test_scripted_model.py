"""The scripted model: says what the script says, refuses what a provider would refuse, keeps every byte."""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import re
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Literal

import httpx2
import pytest

from hermes_agent.models import call as model_call
from hermes_agent.models import provider_table
from hermes_agent.models.base import Delta, Endpoint, ModelError, Reply, TokenUsage
from hermes_agent.models.http import close_clients
from hermes_testing.scripted.model import (
    Hold,
    ScriptedModel,
    always,
    call,
    disconnect,
    fail,
    garbage,
    overflow,
    raw,
    say,
    saying,
)

pytestmark = pytest.mark.slow

Wire = Literal["chat", "anthropic"]
Place = Literal["in process", "server"]
WIRES: tuple[Wire, ...] = ("chat", "anthropic")
TOOL = {"name": "terminal", "description": "Run.", "parameters": {"type": "object", "properties": {}}}
USER = {"role": "user", "content": "hello"}


def run(work: Coroutine[Any, Any, Any]) -> Any:
    async def whole() -> Any:
        try:
            return await work
        finally:
            await close_clients()

    return asyncio.run(whole())


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(2_000):
        if condition():
            return
        await asyncio.sleep(0.002)
    raise AssertionError("it did not happen")


def body_of(endpoint: Endpoint, *messages: dict[str, Any], system: str = "", tools: tuple[Any, ...] = (TOOL,)) -> bytes:
    wire = provider_table.wire_for(endpoint)
    return wire.join(wire.head(endpoint, system, tools), wire.fragments(messages or (USER,)), wire.ending(endpoint))


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> Wire:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(params=("in process", "server"))
def place(request: pytest.FixtureRequest) -> Place:
    return request.param  # type: ignore[no-any-return]


def ask(model: ScriptedModel, place: Place, body: bytes | None = None, on_delta: Any = None) -> Reply:
    """One call to the model at its place, through the real client."""

    async def once(endpoint: Endpoint) -> Reply:
        return await model_call.call(endpoint, body or body_of(endpoint), on_delta)

    if place == "server":
        with model.served() as server:
            return run(once(server.endpoint()))  # type: ignore[no-any-return]
    with model:
        return run(once(model.endpoint()))  # type: ignore[no-any-return]


def test_says_what_the_script_says_piece_by_piece(wire: Wire, place: Place) -> None:
    usage = TokenUsage(input_tokens=120, output_tokens=7, cache_read_tokens=100)
    model = ScriptedModel(say("Hel", "lo 京", "都", reasoning=("hm", "m"), usage=usage, chop=1), wire=wire)
    heard: list[Delta] = []
    reply = ask(model, place, on_delta=heard.append)
    assert (reply.content, reply.reasoning, reply.finish_reason) == ("Hello 京都", "hmm", "stop")
    assert reply.usage is not None
    assert (reply.usage.input_tokens, reply.usage.cache_read_tokens, reply.usage.output_tokens) == (120, 100, 7)
    assert [delta.text for delta in heard if delta.kind == "text"] == ["Hel", "lo 京", "都"]


def test_calls_tools_in_the_given_pieces(wire: Wire, place: Place) -> None:
    calls = [call("terminal", {"command": "ls"}), call("todo", ['{"to', 'dos": []}'], call_id="call_mine")]
    reply = ask(ScriptedModel(say("Look.", calls=calls), wire=wire), place)
    assert [(one.name, json.loads(one.arguments)) for one in reply.tool_calls] == [
        ("terminal", {"command": "ls"}),
        ("todo", {"todos": []}),
    ]
    assert reply.tool_calls[1].id == "call_mine"
    assert reply.finish_reason == "tool_calls"


def test_keeps_every_byte(wire: Wire, place: Place) -> None:
    model = ScriptedModel(say("ok"), wire=wire)
    body = body_of(model.endpoint(), {"role": "user", "content": "naïve 京都 \N{PILE OF POO}"}, system="Be good.")
    ask(model, place, body)
    (request,) = model.requests
    assert request.body == body
    assert (model.calls, model.received, request.rejected) == (1, 1, None)
    assert request.last_user_text == "naïve 京都 \N{PILE OF POO}"
    assert (request.system, request.tools, request.model) == ("Be good.", ["terminal"], "scripted-1")


def test_answers_a_client_that_does_not_stream(wire: Wire) -> None:
    model = ScriptedModel(say("Hello", calls=[call("terminal", {"a": 1})]), wire=wire)
    endpoint = model.endpoint()
    body = json.loads(body_of(endpoint))
    body.pop("stream_options", None)
    body["stream"] = False

    async def post() -> Any:
        headers = provider_table.wire_for(endpoint).headers(endpoint)
        async with httpx2.AsyncClient(transport=model.transport()) as http:
            url = endpoint.base_url + provider_table.wire_for(endpoint).path()
            return (await http.post(url, json=body, headers=headers)).json()

    answer = run(post())
    if wire == "chat":
        message = answer["choices"][0]["message"]
        assert (message["content"], message["tool_calls"][0]["function"]["name"]) == ("Hello", "terminal")
    else:
        assert [block["type"] for block in answer["content"]] == ["text", "tool_use"]
        assert answer["stop_reason"] == "tool_use"


@pytest.mark.parametrize(
    ("step", "kind", "status"),
    [
        (fail(401), "auth", 401),
        (fail(429, headers={"retry-after": "7"}), "rate_limit", 429),
        (fail(500), "server", 500),
        (fail(529), "overloaded", 529),
        (fail(404), "model_not_found", 404),
        (overflow(), "context_overflow", 400),
        (disconnect(), "network", None),
        (garbage(), "protocol", None),
        (say("one", "two", breaks="disconnect"), "network", None),
        (say("one", "two", breaks="end"), "network", None),
        (raw(b"<html>sorry</html>", content_type="text/html"), "protocol", None),
    ],
    ids=str,
)
def test_fails_as_told(step: Any, kind: str, status: int | None, wire: Wire, place: Place) -> None:
    with pytest.raises(ModelError) as caught:
        ask(ScriptedModel(step, wire=wire), place)
    assert (caught.value.kind, caught.value.status) == (kind, status)
    if status == 429:
        assert caught.value.retry_after == 7


def test_a_stream_that_breaks_off_leaves_what_had_arrived(wire: Wire, place: Place) -> None:
    model = ScriptedModel(say("one", " two", " three", breaks="disconnect", break_after=2), wire=wire)
    with pytest.raises(ModelError) as caught:
        ask(model, place)
    assert caught.value.partial is not None
    assert caught.value.partial.content == "one two"


def test_an_error_inside_the_stream(wire: Wire, place: Place) -> None:
    with pytest.raises(ModelError) as caught:
        ask(ScriptedModel(say("one", "two", breaks="error"), wire=wire), place)
    assert caught.value.retryable


def test_steps_left_over_are_a_failure(wire: Wire, place: Place) -> None:
    with pytest.raises(AssertionError, match=r"1 steps were not used.*never"):
        ask(ScriptedModel(say("first"), say("never"), wire=wire), place)


def test_a_request_without_a_step_is_a_failure() -> None:
    model = ScriptedModel(say("only this"))

    async def twice() -> None:
        body = body_of(model.endpoint(), {"role": "user", "content": "and again"})
        await model_call.call(model.endpoint(), body)
        await model_call.call(model.endpoint(), body)

    with pytest.raises(ModelError) as caught, model:
        run(twice())
    assert "found no step" in "".join(caught.value.__notes__)
    assert "and again" in "".join(caught.value.__notes__)
    with pytest.raises(AssertionError, match="request 1 found no step"):
        model.verify()


def test_steps_find_their_request_among_many_at_once() -> None:
    names = [f"person {number:02d}" for number in range(40)]
    steps = [say(f"hello {name}", delay=0.01, when=saying(name)) for name in reversed(names)]

    async def everybody(endpoint: Endpoint) -> list[str | None]:
        bodies = [body_of(endpoint, {"role": "user", "content": f"I am {name}"}) for name in names]
        return [reply.content for reply in await asyncio.gather(*(model_call.call(endpoint, body) for body in bodies))]

    with ScriptedModel(*steps) as model:
        assert run(everybody(model.endpoint())) == [f"hello {name}" for name in names]
        assert model.calls == 40
        assert not model.unused


def test_an_answer_can_be_held(place: Place) -> None:
    hold = Hold()
    heard: list[str] = []

    async def held(endpoint: Endpoint) -> None:
        task = asyncio.create_task(model_call.call(endpoint, body_of(endpoint), lambda delta: heard.append(delta.text)))
        await hold.reached()
        await until(lambda: bool(heard))
        assert heard == ["one"]
        hold.release()
        assert (await task).content == "one two"

    model = ScriptedModel(say("one", " two", hold=hold))
    if place == "server":
        with model.served() as server:
            run(held(server.endpoint()))
    else:
        with model:
            run(held(model.endpoint()))


def test_one_connection_serves_many_calls(wire: Wire) -> None:
    async def many(endpoint: Endpoint) -> None:
        for _ in range(20):
            await model_call.call(endpoint, body_of(endpoint))

    with ScriptedModel(always(say("a", "b")), wire=wire).served() as server:
        run(many(server.endpoint()))
        assert (server.connections_made, server.model.calls) == (1, 20)


def test_a_client_that_goes_away_is_noticed() -> None:
    async def leave(model: ScriptedModel) -> None:
        async with model.served() as server:
            endpoint = server.endpoint()
            task = asyncio.create_task(model_call.call(endpoint, body_of(endpoint)))
            await until(lambda: model.calls == 1)
            assert server.open_connections == 1
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await until(lambda: not server.open_connections)

    run(leave(ScriptedModel(say("slow", delay=60))))


# -- what is refused -----------------------------------------------------------------------------------------------

Change = Callable[[dict[str, Any]], Any]
ASSISTANT = {"role": "assistant", "content": "yes"}
CALLS = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "call_a", "type": "function", "function": {"name": "terminal", "arguments": "{}"}}],
}
RESULT = {"role": "tool", "tool_call_id": "call_a", "content": "ok"}
SPEC = {"type": "function", "function": {"name": "terminal", "description": "", "parameters": {"type": "object"}}}


def put(**fields: Any) -> Change:
    return lambda body: body.update(fields)


def without(name: str) -> Change:
    return lambda body: body.pop(name)


def said(*messages: Any) -> Change:
    return lambda body: body.update(messages=list(messages))


CHAT_REFUSED: list[tuple[Change, str]] = [
    (said(USER, RESULT), "must be a response to a preceeding message"),
    (said(USER, CALLS), "did not have response messages: call_a"),
    (said(USER, CALLS, USER), "did not have response messages: call_a"),
    (said(USER, CALLS, RESULT, RESULT), "must be a response to a preceeding message"),
    (said(USER, CALLS | {"tool_calls": []}), "empty array"),
    (said(USER, ASSISTANT), "Expected last role User or Tool"),
    (said(ASSISTANT, USER), "roles must alternate"),
    (said(USER, {"role": "system", "content": "late"}, USER), "must be at the beginning"),
    (said({"role": "system", "content": "alone"}), "No user query"),
    (said({"role": "user", "content": ""}), "must not be empty"),
    (said({"role": "user", "content": []}), "empty array"),
    (said({"role": "user", "content": 7}), "expected one of a string or array of objects, but got an integer"),
    (said({"role": "user", "content": [{"type": "text", "text": " "}]}), "must not be empty"),
    (said(USER, {"role": "assistant", "content": None}, USER), "expected a string, got null"),
    (said(USER, {"role": "robot", "content": "x"}), "Supported values are"),
    (said(USER | {"timestamp": 1}), "Unknown parameter: 'messages[0].timestamp'"),
    (said(USER, CALLS, RESULT | {"tool_name": "terminal"}), "Unknown parameter: 'messages[2].tool_name'"),
    (said(), "empty array"),
    (said("hello"), "expected an object"),
    (put(tools=[SPEC, SPEC]), "Duplicate function definition found: terminal"),
    (put(tools=[]), "empty array"),
    (put(tools=[{"type": "function", "function": {"name": "no spaces"}}]), "does not match pattern"),
    (put(tools=[{"type": "function", "function": {"name": "a", "parameters": {}}}]), "schema must be a JSON Schema"),
    (put(tool_choice="auto"), "only allowed when 'tools'"),
    (put(max_tokens="many"), "Invalid type for 'max_tokens'"),
    (put(max_tokens=0), "below minimum"),
    (put(temperature=3), "not between 0 and 2"),
    (put(stream="yes"), "expected a boolean"),
    (put(nonsense=1), "Unrecognized request argument supplied: nonsense"),
    (put(model="another"), "does not exist"),
    (without("messages"), "Missing required parameter: 'messages'"),
    (without("model"), "you must provide a model"),
]


def _call(**changes: Any) -> dict[str, Any]:
    return CALLS | {"tool_calls": [CALLS["tool_calls"][0] | changes]}  # type: ignore[index]


CHAT_REFUSED += [
    (said(USER, _call(id="x" * 41), RESULT), "maximum length 40"),
    (said(USER, _call(id=None), RESULT), "Missing required parameter"),
    (said(USER, _call(function={"name": "a", "arguments": "{"}), RESULT), "not a JSON object"),
    (said(USER, _call(function={"name": "a", "arguments": {}}), RESULT), "expected a string, but got an object"),
]

USE = {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_a", "name": "terminal", "input": {}}]}
USED = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_a", "content": "ok"}]}
THOUGHT = {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "forged"}]}
CUSTOM = {"name": "terminal", "description": "", "input_schema": {"type": "object"}}
MARK = {"type": "ephemeral"}

ANTHROPIC_REFUSED: list[tuple[Change, str]] = [
    (without("max_tokens"), "max_tokens: Field required"),
    (put(max_tokens=0), "greater than or equal to 1"),
    (put(max_tokens="8"), "valid integer"),
    (said(USER, USE), "`tool_use` ids were found without `tool_result` blocks immediately after: toolu_a"),
    (said(USER, USE, USER), "messages.1: `tool_use` ids were found without"),
    (said(USER, USED), "unexpected `tool_use_id` found"),
    (said(USER, USE, {"role": "user", "content": [{"type": "text", "text": "first"}, *USED["content"]]}), "without"),
    (said(USER, USE, USED, USE, USED), "ids must be unique"),
    (said(ASSISTANT, USER), "first message must use"),
    (said(USER, ASSISTANT), "does not support assistant message prefill"),
    (said({"role": "user", "content": ""}), "non-empty content"),
    (said({"role": "user", "content": [{"type": "text", "text": ""}]}), "text content blocks must be non-empty"),
    (said({"role": "user", "content": " \n"}), "non-whitespace"),
    (said({"role": "system", "content": "be good"}, USER), "Unexpected role"),
    (said(USER | {"name": "Ada"}), "messages.0.name: Extra inputs are not permitted"),
    (said(USER, USE | {"content": [USE["content"][0] | {"text": "x"}]}, USED), "tool_use.text: Extra inputs"),
    (said(USER, THOUGHT, USER), "Invalid `signature`"),
    (said(), "at least one message"),
    (put(tools=[CUSTOM, CUSTOM]), "Tool names must be unique"),
    (put(tools=[{"name": "a"}]), "input_schema: Field required"),
    (put(tools=[CUSTOM | {"parameters": {}}]), "Extra inputs"),
    (put(tools=[CUSTOM | {"cache_control": MARK, "name": f"t{n}"} for n in range(5)]), "A maximum of 4 blocks"),
    (put(system=[{"type": "text", "text": ""}]), "system: text content blocks must be non-empty"),
    (put(stream_options={"include_usage": True}), "stream_options: Extra inputs are not permitted"),
    (put(model="another"), "model: another"),
    (put(thinking={"type": "enabled", "budget_tokens": 9000}, max_tokens=8000), "must be greater than"),
    (
        lambda body: body.update(
            thinking={"type": "enabled", "budget_tokens": 1024}, max_tokens=9000, messages=[USER, USE, USED]
        ),
        "Expected `thinking`",
    ),
]


async def refusal(model: ScriptedModel, content: bytes, **headers: str | None) -> httpx2.Response:
    endpoint = model.endpoint()
    shape = provider_table.wire_for(endpoint)
    every = {**shape.headers(endpoint), **{name.replace("_", "-"): value for name, value in headers.items()}}
    sent = {name: value for name, value in every.items() if value is not None}
    async with httpx2.AsyncClient(transport=model.transport()) as http:
        return await http.post(endpoint.base_url + shape.path(), content=content, headers=sent)


def _refused(wire: Wire, change: Change, words: str) -> None:
    model = ScriptedModel(say("never"), wire=wire, allow_rejections=True)
    plain = (
        {"model": "scripted-1", "stream": True, "messages": [USER]}
        if wire == "chat"
        else {"model": "scripted-1", "max_tokens": 8, "stream": True, "messages": [USER]}
    )
    assert run(refusal(ScriptedModel(say("fine"), wire=wire), json.dumps(plain).encode())).status_code == 200
    change(plain)
    answer = run(refusal(model, json.dumps(plain).encode()))
    assert answer.status_code in (400, 404)
    error = answer.json()["error"]
    assert words in error["message"]
    assert error["type"] in ("invalid_request_error", "not_found_error")
    assert model.rejections[0].rejected == error["message"]
    assert (model.calls, len(model.unused)) == (0, 1)


@pytest.mark.parametrize(("change", "words"), CHAT_REFUSED, ids=[words for _, words in CHAT_REFUSED])
def test_chat_refuses(change: Change, words: str) -> None:
    _refused("chat", change, words)


@pytest.mark.parametrize(("change", "words"), ANTHROPIC_REFUSED, ids=[words for _, words in ANTHROPIC_REFUSED])
def test_anthropic_refuses(change: Change, words: str) -> None:
    _refused("anthropic", change, words)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"\xff{}", b'{"model": NaN}', b'{"model": "\\ud800"}', b"nothing"], ids=repr
)
def test_refuses_what_is_not_json(content: bytes, wire: Wire) -> None:
    model = ScriptedModel(wire=wire, allow_rejections=True)
    assert run(refusal(model, content)).status_code == 400


def test_refuses_bad_credentials() -> None:
    chat = ScriptedModel(allow_rejections=True)
    assert run(refusal(chat, b"{}", authorization="Bearer wrong")).status_code == 401
    assert run(refusal(chat, b"{}", authorization=None)).status_code == 401
    messages = ScriptedModel(wire="anthropic", allow_rejections=True)
    answer = run(refusal(messages, b"{}", x_api_key="wrong"))
    assert (answer.status_code, answer.json()["error"]["type"]) == (401, "authentication_error")
    answer = run(refusal(messages, b"{}", anthropic_version=None))
    assert "anthropic-version: header is required" in answer.json()["error"]["message"]
    assert run(refusal(messages, b"{}", content_type="text/plain")).status_code == 415
    assert all("wrong" not in (request.rejected or "") for request in (*chat.requests, *messages.requests))


def test_a_refusal_nobody_expected_is_a_failure(wire: Wire) -> None:
    model = ScriptedModel(wire=wire)
    run(refusal(model, b"{}"))
    with pytest.raises(AssertionError, match="request 0 was refused"):
        model.verify()


def test_refuses_more_than_the_window_holds(wire: Wire, place: Place) -> None:
    model = ScriptedModel(wire=wire, context_length=500, allow_rejections=True)
    body = body_of(model.endpoint(), {"role": "user", "content": "x" * 3000})
    with pytest.raises(ModelError) as caught:
        ask(model, place, body)
    assert caught.value.kind == "context_overflow"


def test_thinking_goes_back_as_it_came() -> None:
    model = ScriptedModel(say(reasoning="let me see", calls=[call("terminal", {})]), say("done"), wire="anthropic")

    async def loop(endpoint: Endpoint) -> str | None:
        first = await model_call.call(endpoint, body_of(endpoint))
        (made,) = first.tool_calls
        step = {
            "role": "assistant",
            "content": first.content,
            "reasoning_details": first.reasoning_details,
            "tool_calls": [{"id": made.id, "function": {"name": made.name, "arguments": made.arguments}}],
        }
        result = {"role": "tool", "tool_call_id": made.id, "content": "ok"}
        return (await model_call.call(endpoint, body_of(endpoint, USER, step, result))).content

    thinking = (("thinking", {"type": "enabled", "budget_tokens": 1024}),)
    with model:
        assert run(loop(model.endpoint(options=thinking, max_tokens=4096))) == "done"
    assert model.requests[1].results == {"toolu_s0001_0": "ok"}


# -- strict at flat cost -------------------------------------------------------------------------------------------


def _grown(wire: Wire, endpoint: Endpoint, steps: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for number in range(steps):
        asked = [{"id": f"call_{wire}_{number}", "function": {"name": "terminal", "arguments": "{}"}}]
        rows += [
            {"role": "user", "content": f"message {number}"},
            {"role": "assistant", "content": "", "tool_calls": asked},
            {"role": "tool", "tool_call_id": f"call_{wire}_{number}", "content": "output"},
            {"role": "assistant", "content": "answer"},
        ]
    return rows


def test_a_conversation_that_grows_is_checked_to_its_end(wire: Wire) -> None:
    """A request that continues an accepted one is checked from there on; a mistake behind it is found all the same."""
    model = ScriptedModel(always(say("ok")), wire=wire, allow_rejections=True)
    endpoint = model.endpoint()
    rows = _grown(wire, endpoint, 30)

    async def grow() -> None:
        for length in range(4, len(rows), 4):
            body = body_of(endpoint, *rows[:length], USER)
            assert (await refusal(model, body)).status_code == 200
        good = body_of(endpoint, *rows, USER)
        orphan = {"role": "tool", "tool_call_id": "nobody", "content": "x"}
        if wire == "anthropic":
            orphan = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "nobody", "content": "x"}]}
        assert (await refusal(model, good)).status_code == 200
        bad = good[:-2] + b"," + json.dumps(orphan).encode() + b"]}"
        assert (await refusal(model, bad)).status_code == 400
        assert (await refusal(model, good[:-2] + b',{"role":"user"}]}')).status_code == 400
        assert (await refusal(model, good[:-2] + b'],"model":[]}')).status_code in (400, 404)
        assert (await refusal(model, good[:-2] + b"]]}")).status_code == 400

    run(grow())
    assert len(model.rejections) == 4


def test_a_long_conversation_costs_no_more_than_a_short_one(wire: Wire) -> None:
    """In ratios, since machines differ: checking the 2,001st message must not mean checking the 2,000 before it."""
    model = ScriptedModel(always(say("ok")), wire=wire, keep=2, context_length=10_000_000)
    endpoint = model.endpoint()
    rows = _grown(wire, endpoint, 500)

    async def timed(body: bytes) -> float:
        await refusal(model, body)
        ending = provider_table.wire_for(endpoint).ending(endpoint)
        more = body[: -len(ending)] + b',{"role":"user","content":"more"}' + ending
        best = 1.0
        for _ in range(20):
            began = time.perf_counter()
            assert (await refusal(model, more)).status_code == 200
            best = min(best, time.perf_counter() - began)
        return best

    short = run(timed(body_of(endpoint, *rows[:4], USER)))
    long = run(timed(body_of(endpoint, *rows, USER)))
    assert long < 4 * short
    assert len(model.requests) == 2


# -- the page about it ---------------------------------------------------------------------------------------------

_PAGE = Path(__file__).parents[2] / "docs" / "contributors" / "scripted-model.md"
_BLOCKS = re.findall(r"^```python\n(.*?)^```$", _PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("block", _BLOCKS, ids=range(len(_BLOCKS)))
def test_what_the_page_shows_works(block: str) -> None:
    async def shown() -> None:
        code = compile(block, str(_PAGE), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        outcome = eval(code, {})
        if inspect.isawaitable(outcome):
            await outcome

    run(shown())
    assert len(_BLOCKS) == 3
