"""A call against a real server on loopback: what comes back, and how each fault ends."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
from collections.abc import Awaitable, Callable
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest

from hermes_agent.models.base import Delta, Endpoint, ModelError, Reply
from hermes_agent.models.call import Retry, call, retried
from hermes_agent.models.http import close_clients

pytestmark = pytest.mark.slow

Handler = Callable[[Any], Awaitable[None]]
CANARY = "sk-secret-canary-1234567890"
STOP = '{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}'


def text(piece: str | None, finish: str | None = None, **delta: Any) -> str:
    return json.dumps({"model": "m-1", "choices": [{"delta": {"content": piece, **delta}, "finish_reason": finish}]})


def streams(*events: str, done: bool = True) -> Handler:
    async def handle(exchange: Any) -> None:
        await exchange.stream(*events, done=done)

    return handle


def says(body: Any, status: int = 200, **headers: str) -> Handler:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()

    async def handle(exchange: Any) -> None:
        await exchange.answer(raw, status, **headers)

    return handle


def ask(loopback: Any, *handlers: Handler, on_delta: Any = None, **changes: Any) -> Reply:
    async def run() -> Reply:
        async with loopback(*handlers) as server:
            return await call(server.endpoint(**changes), b'{"messages":[]}', on_delta)

    return asyncio.run(run())


def fails(loopback: Any, *handlers: Handler, on_delta: Any = None, **changes: Any) -> ModelError:
    with pytest.raises(ModelError) as caught:
        ask(loopback, *handlers, on_delta=on_delta, **changes)
    line = caught.value.one_line()
    assert "\n" not in line
    assert CANARY not in line
    assert CANARY not in repr(caught.value)
    return caught.value


def test_text_streams_and_comes_back_whole(loopback: Any) -> None:
    seen: list[Delta] = []
    usage = (
        '{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":5}}}'
    )
    reply = ask(loopback, streams(text("Hel"), text("lo"), STOP, usage), on_delta=seen.append)
    assert (reply.content, reply.finish_reason, reply.model) == ("Hello", "stop", "m-1")
    assert [(delta.kind, delta.text) for delta in seen] == [("text", "Hel"), ("text", "lo")]
    assert reply.usage is not None
    assert (reply.usage.input_tokens, reply.usage.output_tokens, reply.usage.cache_read_tokens) == (7, 2, 5)


def test_the_connection_is_kept_for_the_next_call(loopback: Any) -> None:
    async def run() -> int:
        async with loopback(streams(text("Hi"), STOP)) as server:
            for _ in range(5):
                await call(server.endpoint(), b"{}")
            return int(server.connections)

    assert asyncio.run(run()) == 1


def test_a_cancelled_call_closes_its_connection(loopback: Any) -> None:
    async def slow(exchange: Any) -> None:
        await exchange.begin()
        await exchange.chunk(f"data: {text('Once')}\n\n".encode())
        await asyncio.sleep(30)

    async def run() -> None:
        async with loopback(slow) as server:
            begun = asyncio.Event()
            task = asyncio.ensure_future(call(server.endpoint(), b"{}", lambda delta: begun.set()))
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.wait_for(server.lost.wait(), 5)

    asyncio.run(run())


def test_a_wrong_key_names_where_it_came_from(loopback: Any) -> None:
    body = {"error": {"message": f"Incorrect API key provided: {CANARY}.", "code": "invalid_api_key"}}
    error = fails(loopback, says(body, 401))
    assert (error.kind, error.status, error.retryable) == ("auth", 401, False)
    assert "CANARY_KEY in .env" in error.one_line()


def test_an_unknown_model(loopback: Any) -> None:
    error = fails(
        loopback, says({"error": {"message": "The model `m-1` does not exist", "code": "model_not_found"}}, 404)
    )
    assert error.kind == "model_not_found"
    assert "model.default" in error.hint


def test_nobody_listens(loopback: Any) -> None:
    async def run() -> Endpoint:
        async with loopback() as server:
            return server.endpoint()  # type: ignore[no-any-return]

    gone = asyncio.run(run())
    with pytest.raises(ModelError) as caught:
        asyncio.run(call(gone, b"{}"))
    assert caught.value.kind == "network"
    assert "connection refused" in caught.value.one_line()
    assert "Start the model server" in caught.value.hint


def test_a_name_that_is_not_known(loopback: Any) -> None:
    lost = Endpoint("custom", "chat", "http://models.invalid/v1", "m", api_key=CANARY)
    with pytest.raises(ModelError) as caught:
        asyncio.run(call(lost, b"{}"))
    assert caught.value.kind == "network"
    assert "models.invalid cannot be reached" in caught.value.one_line()


@pytest.mark.parametrize(
    ("status", "kind"), [(500, "server"), (502, "server"), (503, "overloaded"), (529, "overloaded"), (408, "timeout")]
)
def test_faults_of_the_server_may_be_tried_again(loopback: Any, status: int, kind: str) -> None:
    error = fails(loopback, says(b"<html>bad gateway</html>", status, content_type="text/html"))
    assert (error.kind, error.retryable) == (kind, True)
    assert "html" not in error.one_line()


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"retry_after": "7"}, 7.0),
        ({"retry_after_ms": "1500"}, 1.5),
        ({"retry_after": formatdate(4102444800, usegmt=True)}, None),
        ({"retry_after": "soon"}, None),
        ({}, None),
    ],
)
def test_a_rate_limit_with_and_without_a_time(loopback: Any, headers: dict[str, str], wait: float | None) -> None:
    error = fails(loopback, says({"error": {"message": "Slow down"}}, 429, **headers))
    assert error.kind == "rate_limit"
    if "GMT" in headers.get("retry_after", ""):
        assert error.retry_after is not None
        assert error.retry_after > 1e9
    else:
        assert error.retry_after == wait


def test_a_disconnect_in_the_middle_gives_what_arrived_and_no_tool_call(loopback: Any) -> None:
    async def break_off(exchange: Any) -> None:
        half = [{"index": 0, "id": "call_abcdefgh", "function": {"name": "terminal", "arguments": '{"command": "rm'}}]
        await exchange.begin()
        await exchange.chunk(f"data: {text('Let me ')}\n\ndata: {text('see')}\n\n".encode())
        await exchange.chunk(f"data: {text(None, tool_calls=half)}\n\n".encode())
        exchange.hang_up()

    error = fails(loopback, break_off)
    assert (error.kind, error.retryable) == ("network", True)
    assert error.partial is not None
    assert (error.partial.content, error.partial.tool_calls) == ("Let me see", ())


def test_a_stream_that_ends_without_an_end(loopback: Any) -> None:
    error = fails(loopback, streams(text("Half an ans"), done=False))
    assert error.kind == "network"
    assert error.partial is not None
    assert error.partial.content == "Half an ans"


def test_half_a_tool_call_at_the_length_limit_is_never_used(loopback: Any) -> None:
    calls = [
        {"index": 0, "id": "call_firstfirst", "function": {"name": "todo", "arguments": '{"a": 1}'}},
        {"index": 1, "id": "call_secondsecond", "function": {"name": "terminal", "arguments": '{"command": "rm -rf'}},
    ]
    reply = ask(loopback, streams(text(None, tool_calls=calls), text(None, "length")))
    assert reply.finish_reason == "length"
    assert [one.name for one in reply.tool_calls] == ["todo"]


def test_broken_json_in_the_stream(loopback: Any) -> None:
    error = fails(loopback, streams('{"choices": [{"delta"'))
    assert (error.kind, error.retryable) == ("protocol", True)


def test_an_error_inside_a_stream_of_status_200(loopback: Any) -> None:
    event = json.dumps(
        {"error": {"code": 502, "message": "Provider disconnected"}, "choices": [{"finish_reason": "error"}]}
    )
    error = fails(loopback, streams(text("Well, "), event))
    assert (error.kind, error.status) == ("server", 502)
    assert error.partial is not None
    assert "Provider disconnected" in error.one_line()


@pytest.mark.parametrize(
    "events",
    [
        (text(""), STOP),
        (text(None), STOP),
        (text("  \n "), STOP),
        (text(None, reasoning="hm"), STOP),
    ],
    ids=["empty", "null", "whitespace", "reasoning only"],
)
def test_an_empty_reply_is_a_reply_without_content(loopback: Any, events: tuple[str, ...]) -> None:
    reply = ask(loopback, streams(*events))
    assert reply.content is None
    assert reply.tool_calls == ()
    assert reply.finish_reason == "stop"


def test_an_answer_of_nothing_is_a_fault(loopback: Any) -> None:
    assert fails(loopback, says(b"", content_type="text/event-stream")).kind == "protocol"


def test_a_slow_first_byte_and_a_silent_stream_end_in_time(loopback: Any, home: Path) -> None:
    home.mkdir()
    (home / "config.yaml").write_text("limits:\n  model_first_byte_ms: 1500\n  model_idle_ms: 200\n")

    async def never(exchange: Any) -> None:
        await asyncio.sleep(30)

    async def silent(exchange: Any) -> None:
        await exchange.begin()
        await exchange.chunk(f"data: {text('Hm')}\n\n".encode())
        await asyncio.sleep(30)

    assert fails(loopback, never).kind == "timeout"
    fell_silent = fails(loopback, silent)
    assert fell_silent.kind == "timeout"
    assert fell_silent.partial is not None
    assert fell_silent.partial.content == "Hm"


def test_comments_keep_a_slow_stream_alive(loopback: Any, home: Path) -> None:
    home.mkdir()
    (home / "config.yaml").write_text("limits:\n  model_idle_ms: 1500\n")

    async def patient(exchange: Any) -> None:
        await exchange.begin()
        for _ in range(18):
            await exchange.chunk(b": OPENROUTER PROCESSING\n\n")
            await asyncio.sleep(0.1)
        await exchange.chunk(f"data: {text('There')}\n\ndata: {STOP}\n\ndata: [DONE]\n\n".encode())
        await exchange.end()

    assert ask(loopback, patient).content == "There"


def test_a_huge_line_and_a_huge_answer_are_given_up(loopback: Any, home: Path) -> None:
    home.mkdir()
    (home / "config.yaml").write_text("limits:\n  model_line_bytes: 65536\n  model_reply_bytes: 200000\n")

    async def endless(exchange: Any) -> None:
        await exchange.begin()
        while True:
            await exchange.chunk(b"data: " + b"x" * 30000)

    async def many(exchange: Any) -> None:
        await exchange.begin()
        while True:
            await exchange.chunk(f"data: {text('x' * 20000)}\n\n".encode())

    assert "model_line_bytes" in fails(loopback, endless).one_line()
    assert "model_reply_bytes" in fails(loopback, many).one_line()


def test_a_long_line_below_the_limit_arrives(loopback: Any) -> None:
    reply = ask(loopback, streams(text("y" * 1_000_000), STOP))
    assert reply.content == "y" * 1_000_000


def test_a_server_that_ignores_stream(loopback: Any) -> None:
    calls = [{"id": "call_abcdefgh", "type": "function", "function": {"name": "todo", "arguments": {"x": 1}}}]
    message = {"role": "assistant", "content": "Done", "tool_calls": calls}
    body = {
        "model": "m-2",
        "choices": [{"message": message, "finish_reason": "tool_calls"}],
        "usage": {"prompt_tokens": 3},
    }
    for raw in (json.dumps(body).encode(), b"\n\n" + json.dumps(body, indent=2).encode()):
        reply = ask(loopback, says(raw))
        assert (reply.content, reply.finish_reason, reply.model) == ("Done", "tool_calls", "m-2")
        assert reply.tool_calls[0].arguments == '{"x":1}'


def test_a_compressed_answer(loopback: Any) -> None:
    raw = gzip.compress(f"data: {text('Zipped')}\n\ndata: {STOP}\n\ndata: [DONE]\n\n".encode())
    assert ask(loopback, says(raw, content_encoding="gzip", content_type="text/event-stream")).content == "Zipped"
    damaged = raw[:12] + b"\0\1\2" + raw[15:]
    assert fails(loopback, says(damaged, content_encoding="gzip")).kind == "protocol"


def test_letters_that_only_look_like_line_ends_stay_in_the_text(loopback: Any) -> None:
    odd = "a\u2028b\u0085c\x0bd"
    event = '{"choices":[{"delta":{"content":"a\u2028b\u0085c\\u000bd"},"finish_reason":"stop"}]}'
    assert ask(loopback, streams(event)).content == odd


def test_a_web_page_instead_of_a_model(loopback: Any) -> None:
    error = fails(loopback, says(b"<!doctype html><p>Welcome", content_type="text/html"))
    assert (error.kind, "model.base_url" in error.hint) == ("protocol", True)


def test_a_redirect_is_not_followed_with_the_key(loopback: Any) -> None:
    error = fails(loopback, says(b"", 307, location="http://elsewhere.invalid/"))
    assert error.kind == "bad_request"
    assert "final address" in error.hint


@pytest.mark.parametrize("key", [f"{CANARY}\n", f"{CANARY} x\u200b", "schlüssel-geheim-geheim"])
def test_a_key_that_no_header_can_carry_is_not_quoted(loopback: Any, key: str) -> None:
    error = fails(loopback, streams(STOP), api_key=key)
    assert error.kind == "auth"
    assert "geheim" not in error.one_line()
    assert "CANARY_KEY in .env" in error.hint


def retry(loopback: Any, *handlers: Handler, **options: Any) -> tuple[Reply | ModelError, list[Retry], int]:
    async def run() -> tuple[Reply | ModelError, list[Retry], int]:
        told: list[Retry] = []
        async with loopback(*handlers) as server:
            try:
                found: Reply | ModelError = await retried(
                    lambda: call(server.endpoint(), b"{}"), on_retry=told.append, first_wait=0.01, **options
                )
            except ModelError as error:
                found = error
            return found, told, len(server.requests)

    return asyncio.run(run())


def test_a_passing_fault_is_tried_again_and_told(loopback: Any) -> None:
    busy = says({"error": {"message": "busy"}}, 503)
    found, told, requests = retry(loopback, busy, says({}, 500), streams(text("At last"), STOP))
    assert isinstance(found, Reply)
    assert found.content == "At last"
    assert [(one.attempt, one.error.kind) for one in told] == [(1, "overloaded"), (2, "server")]
    assert requests == 3


def test_retries_are_bounded(loopback: Any) -> None:
    found, told, requests = retry(loopback, says({}, 500), max_retries=2)
    assert isinstance(found, ModelError)
    assert (len(told), requests) == (2, 3)


def test_what_will_not_pass_is_not_tried_again(loopback: Any) -> None:
    found, _, requests = retry(loopback, says({"error": {"message": "no"}}, 401))
    assert isinstance(found, ModelError)
    assert requests == 1


def test_a_pause_the_provider_asks_for_is_kept(loopback: Any) -> None:
    found, told, _ = retry(loopback, says({}, 429, retry_after_ms="80"), streams(text("Now"), STOP))
    assert isinstance(found, Reply)
    assert told[0].wait >= 0.08


def test_a_pause_beyond_the_limit_fails_at_once_and_says_when(loopback: Any) -> None:
    found, told, requests = retry(loopback, says({}, 429, retry_after="1200"))
    assert isinstance(found, ModelError)
    assert (told, requests) == ([], 1)
    assert "20 min" in found.hint


def test_an_answer_that_breaks_off_is_asked_for_again(loopback: Any) -> None:
    found, told, requests = retry(loopback, streams(text("One, "), done=False), streams(text("One, two"), STOP))
    assert isinstance(found, Reply)
    assert (found.content, requests) == ("One, two", 2)
    assert told[0].error.partial is not None and told[0].error.partial.content == "One,"


def test_the_request_carries_the_key_and_the_body_as_they_are(loopback: Any) -> None:
    async def run() -> Any:
        async with loopback(streams(STOP)) as server:
            await call(server.endpoint(headers=(("x-team", "blue"),)), b'{"a": "\xc3\xa9"}')
            return server.requests[0]

    request = asyncio.run(run())
    assert request.line == "POST /v1/chat/completions HTTP/1.1"
    assert request.headers["authorization"] == f"bearer {CANARY}"
    assert (request.headers["x-team"], request.headers["accept-encoding"]) == ("blue", "identity")
    assert request.body == b'{"a": "\xc3\xa9"}'


def test_clients_can_be_closed_twice_and_used_again(loopback: Any) -> None:
    async def run() -> str | None:
        async with loopback(streams(text("Hi"), STOP)) as server:
            await call(server.endpoint(), b"{}")
            await close_clients()
            await close_clients()
            return (await call(server.endpoint(), b"{}")).content

    assert asyncio.run(run()) == "Hi"


def test_at_debug_level_no_log_line_holds_a_secret(loopback: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        async with loopback(
            streams(text("Hi"), STOP), says({"error": {"message": f"bad key {CANARY}"}}, 401)
        ) as server:
            address = f"http://user:{CANARY}@127.0.0.1:{server.port}/v1"
            hidden = server.endpoint(base_url=address, headers=(("x-token", CANARY),))
            await call(hidden, b"{}")
            with pytest.raises(ModelError) as caught:
                await call(hidden, b"{}")
            logging.getLogger("hermes").error("failed", exc_info=caught.value)

    with caplog.at_level(logging.DEBUG):
        asyncio.run(run())
    assert "failed" in caplog.text
    assert CANARY not in caplog.text
