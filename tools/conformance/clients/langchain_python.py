"""The API through LangChain (`langchain-openai`)."""

from __future__ import annotations

from typing import Any

import openai
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, SystemMessage
from langchain_openai import ChatOpenAI
from report import BASE, KEY, check, is_equal, run


def chat(**more: Any) -> ChatOpenAI:
    return ChatOpenAI(
        **{"base_url": BASE, "api_key": KEY, "model": "hermes-agent", "timeout": 10, "include_response_headers": True}
        | more
    )


model = chat()


def named(name: str, header: str = "X-Hermes-Session-Id", **more: Any) -> ChatOpenAI:
    return chat(default_headers={header: name}, **more)


def session(answer: AIMessage) -> str:
    return str(answer.response_metadata["headers"]["x-hermes-session-id"])


def refused(kind: type[openai.APIStatusError], messages: Any = "hello", through: ChatOpenAI = model) -> Any:
    try:
        through.invoke(messages)
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


def whole(chunks: Any) -> AIMessageChunk:
    """The chunks put together as LangChain does it."""
    found = None
    for chunk in chunks:
        found = chunk if found is None else found + chunk
    assert isinstance(found, AIMessageChunk)
    return found


@check("chat")
def plain() -> None:
    answer = model.invoke("hello")
    is_equal((answer.content, answer.response_metadata["finish_reason"]), ("Hello there.", "stop"))
    assert answer.usage_metadata is not None and answer.usage_metadata["total_tokens"] > 0


@check("content in parts")
def parts() -> None:
    is_equal(model.invoke([HumanMessage([{"type": "text", "text": "hello"}])]).content, "Hello there.")


@check("stream")
def stream() -> None:
    found = whole(chat(stream_usage=False).stream("hello"))
    is_equal((found.content, found.response_metadata["finish_reason"]), ("Hello there.", "stop"))


@check("stream_options.include_usage")
def usage() -> None:
    found = whole(chat(stream_usage=True).stream("hello"))
    assert found.usage_metadata is not None and found.usage_metadata["total_tokens"] > 0


@check("stream with a tool step")
def tool() -> None:
    is_equal(whole(model.stream("use a tool")).content, "Looking. Done.")


@check("cancel in mid-stream, then go on")
def cancel() -> None:
    here = named("cancel-langchain")
    begun = here.stream("never end")
    while not next(begun).content:
        pass
    begun.close()  # type: ignore[attr-defined]
    is_equal(here.invoke("hello").content, "Hello there.")


@check("history sent whole goes on")
def history() -> None:
    first = model.invoke("hello, chain")
    again = model.invoke([HumanMessage("hello, chain"), first, HumanMessage("how many?")])
    is_equal((again.content, session(again)), ("2 messages", session(first)))


@check("conversation by name")
def by_name() -> None:
    here = named("named-langchain")
    here.invoke("hello")
    answer = here.invoke("how many?")
    is_equal((answer.content, session(answer)), ("2 messages", "named-langchain"))


@check("system message")
def system() -> None:
    is_equal(model.invoke([SystemMessage("The word is maple."), HumanMessage("the word?")]).content, "maple")


@check("developer message")
def developer() -> None:
    is_equal(model.invoke([("developer", "The word is maple."), ("user", "the word?")]).content, "maple")


@check("client's own retry, one model call")
def retry() -> None:
    hasty = named("retry-langchain", "Idempotency-Key", timeout=0.5, max_retries=4)
    is_equal(hasty.invoke("slowly, chain").content, "asked once")


@check("same key, another request: refused")
def conflict() -> None:
    here = named("conflict-langchain", "Idempotency-Key")
    here.invoke("hello")
    is_equal(refused(openai.ConflictError, "another", here).code, "idempotency_key_reused")


@check("wrong key")
def wrong_key() -> None:
    other = chat(api_key="not-the-key-of-this-gateway")
    is_equal(refused(openai.AuthenticationError, through=other).code, "invalid_api_key")


@check("bad request names the field")
def bad() -> None:
    error = refused(openai.BadRequestError, [])
    is_equal((error.code, error.param), ("invalid_value", "messages"))


@check("failed turn: an error")
def failed() -> None:
    is_equal(refused(openai.InternalServerError, "fail, chain").code, "agent_incomplete")


@check("failed turn: not run again")
def failed_once() -> None:
    refused(openai.InternalServerError, "fail again, chain")
    is_equal(model.invoke("how often? fail again, chain").content, "1")


@check("failed turn with a key: not run again")
def failed_with_key() -> None:
    for _ in range(2):
        refused(openai.InternalServerError, "fail with a key, chain", named("fail-chain", "Idempotency-Key"))
    is_equal(model.invoke("how often? fail with a key, chain").content, "1")


@check("stream that breaks: an error")
def broken() -> None:
    try:
        whole(model.stream("break, chain"))
    except openai.APIError as error:
        is_equal(error.code, "agent_incomplete")
        return
    raise AssertionError("no APIError")


run()
