"""The API through OpenAI's client for Python. Answers must satisfy the client's own types, without exception."""

from __future__ import annotations

import asyncio
from typing import Any

import openai
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from report import BASE, KEY, check, is_equal, run

client = openai.OpenAI(base_url=BASE, api_key=KEY, timeout=10)
MODEL = "hermes-agent"


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def ask(*messages: Any, through: openai.OpenAI = client, **more: Any) -> tuple[ChatCompletion, Any]:
    """A whole answer, checked by its type, and the headers."""
    said = [user(one) if isinstance(one, str) else one for one in messages]
    raw = through.chat.completions.with_raw_response.create(model=MODEL, messages=said, **more)
    return ChatCompletion.model_validate_json(raw.text), raw.headers


def text_of(answer: ChatCompletion) -> str | None:
    return answer.choices[0].message.content


def stream(text: str, **more: Any) -> list[ChatCompletionChunk]:
    """All chunks, each checked by its type."""
    chunks = client.chat.completions.create(model=MODEL, messages=[user(text)], stream=True, **more)  # type: ignore
    return [ChatCompletionChunk.model_validate(chunk.to_dict()) for chunk in chunks]


def joined(chunks: list[ChatCompletionChunk]) -> str:
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


def refused(kind: type[openai.APIStatusError], through: openai.OpenAI = client, **body: Any) -> openai.APIStatusError:
    try:
        through.chat.completions.create(**{"model": MODEL, "messages": [user("hello")], **body})
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


@check("models: list, and one")
def models() -> None:
    is_equal([one.id for one in client.models.list()], [MODEL])
    is_equal(client.models.retrieve(MODEL).object, "model")


@check("chat")
def chat() -> None:
    answer, _ = ask("hello")
    is_equal((text_of(answer), answer.choices[0].finish_reason), ("Hello there.", "stop"))
    assert answer.usage is not None and answer.usage.total_tokens > answer.usage.completion_tokens > 0


@check("content in parts")
def parts() -> None:
    is_equal(text_of(ask({"role": "user", "content": [{"type": "text", "text": "hello"}]})[0]), "Hello there.")


@check("stream")
def streamed() -> None:
    chunks = stream("hello")
    is_equal((joined(chunks), chunks[-1].choices[0].finish_reason), ("Hello there.", "stop"))


@check("stream_options.include_usage")
def usage() -> None:
    *_, last = stream("hello", stream_options={"include_usage": True})
    assert last.usage is not None and last.usage.total_tokens > 0 and not last.choices


@check("stream with a tool step")
def tool() -> None:
    chunks = stream("use a tool")
    # Every chunk has a choice: whoever reads `chunk.choices[0]` meets no surprise.
    is_equal("".join(chunk.choices[0].delta.content or "" for chunk in chunks), "Looking. Done.")


@check("cancel in mid-stream, then go on")
def cancel() -> None:
    async def go() -> None:
        async with openai.AsyncOpenAI(base_url=BASE, api_key=KEY, timeout=10) as here:
            more: Any = {"model": MODEL, "extra_headers": {"X-Hermes-Session-Id": "cancel-openai-python"}}
            begun = await here.chat.completions.create(messages=[user("never end")], stream=True, **more)
            async for chunk in begun:
                if chunk.choices[0].delta.content:
                    break
            await begun.close()
            answer = await here.chat.completions.create(messages=[user("hello")], **more)
            is_equal(answer.choices[0].message.content, "Hello there.")

    asyncio.run(go())


@check("history sent whole goes on")
def history() -> None:
    first, headers = ask("hello, python")
    again, later = ask("hello, python", {"role": "assistant", "content": text_of(first)}, "how many?")
    is_equal((text_of(again), later["x-hermes-session-id"]), ("2 messages", headers["x-hermes-session-id"]))


@check("conversation by name")
def named() -> None:
    name: Any = {"extra_headers": {"X-Hermes-Session-Id": "named-openai-python"}}
    ask("hello", **name)
    answer, headers = ask("how many?", **name)
    is_equal((text_of(answer), headers["x-hermes-session-id"]), ("2 messages", "named-openai-python"))


@check("system message")
def system() -> None:
    is_equal(text_of(ask({"role": "system", "content": "The word is maple."}, "the word?")[0]), "maple")


@check("developer message")
def developer() -> None:
    is_equal(text_of(ask({"role": "developer", "content": "The word is maple."}, "the word?")[0]), "maple")


@check("client's own retry, one model call")
def retry() -> None:
    hasty = client.with_options(timeout=0.5, max_retries=4)
    answer, _ = ask("slowly, python", through=hasty, extra_headers={"Idempotency-Key": "retry-python"})
    is_equal(text_of(answer), "asked once")


@check("same key, another request: refused")
def conflict() -> None:
    key: Any = {"extra_headers": {"Idempotency-Key": "conflict-python"}}
    ask("hello", **key)
    is_equal(refused(openai.ConflictError, messages=[user("another")], **key).code, "idempotency_key_reused")


@check("wrong key")
def wrong_key() -> None:
    other = openai.OpenAI(base_url=BASE, api_key="not-the-key-of-this-gateway")
    is_equal(refused(openai.AuthenticationError, through=other).code, "invalid_api_key")


@check("bad request names the field")
def bad() -> None:
    error = refused(openai.BadRequestError, messages=[])
    is_equal((error.code, error.param), ("invalid_value", "messages"))


@check("failed turn: an error")
def failed() -> None:
    is_equal(refused(openai.InternalServerError, messages=[user("fail, python")]).code, "agent_incomplete")


@check("failed turn: not run again")
def failed_once() -> None:
    refused(openai.InternalServerError, messages=[user("fail again, python")])
    is_equal(text_of(ask("how often? fail again, python")[0]), "1")


@check("failed turn with a key: not run again")
def failed_with_key() -> None:
    for _ in range(2):
        key = {"Idempotency-Key": "fail-python"}
        refused(openai.InternalServerError, messages=[user("fail with a key, python")], extra_headers=key)
    is_equal(text_of(ask("how often? fail with a key, python")[0]), "1")


@check("stream that breaks: an error")
def broken() -> None:
    try:
        stream("break, python")
    except openai.APIError as error:
        is_equal(error.code, "agent_incomplete")
        return
    raise AssertionError("no APIError")


run()
