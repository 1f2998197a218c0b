"""OpenAI's own Python client against the server: sync, async, streams, and its errors."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import openai
import pytest
from tests.gateway.api.conftest import Open
from tests.gateway.api.door import KEY, Door

from hermes_testing.scripted.model import ScriptedModel, always, fail, say

T = TypeVar("T")
ASK: Any = {"model": "hermes-agent", "messages": [{"role": "user", "content": "hello"}]}


async def with_client(here: Door, use: Callable[[openai.OpenAI], T], key: str = KEY) -> T:
    """The sync client, in a thread of its own as a script would be in a process of its own."""

    def run() -> T:
        with openai.OpenAI(base_url=f"{here.url}/v1", api_key=key, max_retries=0) as client:
            return use(client)

    return await asyncio.to_thread(run)


def test_the_sync_client(door: Open) -> None:
    async def go() -> None:
        with ScriptedModel(say("Hi.")) as model:
            async with door(model) as here:
                answer = await with_client(here, lambda client: client.chat.completions.create(**ASK))
                assert answer.choices[0].message.content == "Hi." and answer.choices[0].finish_reason == "stop"
                assert answer.usage is not None and answer.usage.total_tokens > 0
                models = await with_client(here, lambda client: client.models.list().data)
                assert [one.id for one in models] == ["hermes-agent"]
                one = await with_client(here, lambda client: client.models.retrieve("hermes-agent"))
                assert one.owned_by == "hermes"

    asyncio.run(go())


def test_a_stream_of_the_sync_client(door: Open) -> None:
    def read(client: openai.OpenAI) -> tuple[str, int]:
        text, used = "", 0
        for chunk in client.chat.completions.create(**ASK, stream=True, stream_options={"include_usage": True}):
            if chunk.choices:
                text += chunk.choices[0].delta.content or ""
            if chunk.usage is not None:
                used = chunk.usage.total_tokens
        return text, used

    async def go() -> None:
        with ScriptedModel(say("One, ", "two, ", "three.")) as model:
            async with door(model) as here:
                text, used = await with_client(here, read)
                assert text == "One, two, three." and used > 0

    asyncio.run(go())


def test_the_async_client(door: Open) -> None:
    async def go() -> None:
        with ScriptedModel(say("Hi."), say("Hi ", "again.")) as model:
            async with (
                door(model) as here,
                openai.AsyncOpenAI(base_url=f"{here.url}/v1", api_key=KEY, max_retries=0) as client,
            ):
                named: Any = {"extra_headers": {"X-Hermes-Session-Id": "mine"}}
                answer = await client.chat.completions.with_raw_response.create(**ASK, **named)
                assert answer.parse().choices[0].message.content == "Hi."
                assert answer.headers["x-hermes-session-id"] == "mine"
                stream = await client.chat.completions.create(**ASK, **named, stream=True)
                text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])
                assert text == "Hi again."

    asyncio.run(go())


def test_errors_are_the_clients_own(door: Open) -> None:
    async def go() -> None:
        with ScriptedModel(always(fail(400, "no"))) as model:
            model.allow_rejections = True
            async with door(model) as here:
                await _raises(here, openai.AuthenticationError, lambda c: c.models.list(), key="not-the-key-at-all-0")
                await _raises(here, openai.NotFoundError, lambda c: c.models.retrieve("gpt-9"))
                await _raises(here, openai.BadRequestError, lambda c: c.chat.completions.create(model="x", messages=[]))
                hostile: Any = {"extra_headers": {"X-Hermes-Session-Id": "../../etc/passwd"}}
                error = await _raises(
                    here, openai.BadRequestError, lambda c: c.chat.completions.create(**ASK, **hostile)
                )
                assert error.code == "invalid_session_id" and "X-Hermes-Session-Id" in error.message
                failed = await _raises(here, openai.InternalServerError, lambda c: c.chat.completions.create(**ASK))
                assert failed.status_code == 502 and failed.code == "agent_incomplete"

    asyncio.run(go())


def test_a_stream_that_breaks_in_the_middle_raises(door: Open) -> None:
    def read(client: openai.OpenAI) -> str:
        return "".join(
            chunk.choices[0].delta.content or ""
            for chunk in client.chat.completions.create(**ASK, stream=True)
            if chunk.choices
        )

    async def go() -> None:
        broken = say("some words", breaks="disconnect")
        with ScriptedModel(broken, always(fail(400, "no"))) as model:
            model.allow_rejections = True
            async with door(model) as here:
                with pytest.raises(openai.APIError):
                    await with_client(here, read)

    asyncio.run(go())


async def _raises(here: Door, kind: type[T], use: Callable[[openai.OpenAI], object], key: str = KEY) -> T:
    with pytest.raises(kind) as caught:  # type: ignore[type-var]
        await with_client(here, use, key)
    return caught.value  # type: ignore[no-any-return]
