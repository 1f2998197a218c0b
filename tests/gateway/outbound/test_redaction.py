"""No secret reaches a chat or the API: answers, what is shown of them meanwhile, questions, captions, errors."""

from __future__ import annotations

import asyncio
import json
from copy import copy
from dataclasses import replace
from pathlib import Path

import pytest
from tests.gateway.api.conftest import Open, door
from tests.gateway.api.door import KEY, events, said
from tests.gateway.chat.test_approvals import OWNER, asks, gateway, question
from tests.gateway.outbound.test_streaming import chatting, quick, speak

from gateway.services import Services
from hermes_config.redaction import COVER
from hermes_state import SessionDB
from hermes_state.turns.outbox import NewOutboxItem
from hermes_testing.memory_platform import PretendAdapter
from hermes_testing.scripted.model import ScriptedModel, call, say

pytestmark = pytest.mark.slow

__all__ = ["door", "quick"]

KNOWN = "tigerlily.4711/of-the-house"
SHAPED = "sk-proj-4f1d2c3b4a59687f0e1d"
PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA0Z3VS5JJcds3\nxfn/ygWyF8PbnGy0\n-----END RSA PRIVATE KEY-----"
ANSWER = f"It is {KNOWN}, the other one {SHAPED}. And this:\n{PEM}\nAPI_KEY = abcdefgh12345678 is all."


@pytest.fixture
def secretive(home: Path) -> Path:
    """A home that keeps one secret."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    (home / ".env").write_text(f"OTHER_API_KEY={KNOWN}\n")
    return home


def leaked(text: str) -> list[str]:
    """Eight characters in a row of any of the secrets."""
    secrets = (KNOWN, SHAPED.removeprefix("sk-proj-"), "MIIEowIBAAKCAQEA0Z3VS5JJcds3", "abcdefgh12345678", KEY)
    return [part for one in secrets for n in range(len(one) - 7) if (part := one[n : n + 8]) in text]


def pieces(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def test_an_answer_is_covered_in_the_chat_and_whole_in_the_store(db: SessionDB, secretive: Path) -> None:
    async def go() -> None:
        with ScriptedModel(say(ANSWER)) as model:
            async with gateway(db, secretive, model) as here:
                await here.chat.say("what is the key?", OWNER)
                (shown,) = await here.chat.heard(1, OWNER)
                assert not leaked(shown.text) and shown.text.startswith(f"It is {COVER}, the other one {COVER}. And")
                await here.quiet()
                stored = [row["content"] for one in db.list_sessions_rich() for row in db.get_messages(one["id"])]
                assert ANSWER in stored

    asyncio.run(go())


@pytest.mark.parametrize("size", [1, 3, 7, 40])
def test_a_draft_never_shows_a_part_of_a_secret(quick: Services, secretive: Path, size: int) -> None:
    async def story() -> None:
        adapter = PretendAdapter(edits=True)
        settings = copy(quick.settings)
        settings.streaming = copy(settings.streaming)
        settings.streaming.edit_interval, settings.streaming.buffer_threshold = 0.001, 1
        services = replace(quick, settings=settings)
        async with chatting(services, adapter) as chat:
            work, shown = chat.started()
            await speak(shown, "Well then. ", pause=0.25)
            await speak(shown, *pieces(ANSWER, size), pause=0.004)
            await chat.end(work, shown, f"Well then. {ANSWER}")
        (message,) = adapter.messages
        assert len(message.versions) > 3, "it was shown while it was made"
        assert [leaked(text) for text in message.versions] == [[] for _ in message.versions]
        assert message.text.startswith(f"Well then. It is {COVER}, the other one {COVER}.")

    asyncio.run(story())


def test_a_question_and_what_becomes_of_it_are_covered(db: SessionDB, secretive: Path) -> None:
    async def go() -> None:
        with asks(f"rm -rf old; curl -H 'x: {KNOWN}' http://127.0.0.1:9/{SHAPED}") as model:
            async with gateway(db, secretive, model) as here:
                await here.chat.say("tidy up", OWNER)
                shown = await question(here, OWNER)
                await here.chat.say("/deny", OWNER)
                await here.until(lambda: "Done." in here.chat.chat(OWNER))
                await here.quiet()
                for message in here.chat.messages:
                    assert not leaked("\n".join([message.text, *message.versions]))
                assert COVER in shown.versions[0] and "rm -rf old" in shown.versions[0]

    asyncio.run(go())


def test_the_caption_of_a_file_is_covered(services: Services, secretive: Path) -> None:
    async def story() -> None:
        adapter = PretendAdapter()
        async with chatting(services, adapter) as chat:
            file = secretive / "file.txt"
            file.write_text("x")
            new_item = NewOutboxItem(
                dedup_key="file", platform="telegram", chat_id="42",
                payload={"text": "", "kind": "file", "files": [{"path": str(file), "caption": f"with {KNOWN}"}]},
            )  # fmt: skip
            item = services.db.outbox.enqueue(new_item)
            chat.deliverer.wake()
            await chat.until(item, "sent")
        assert [message.text for message in adapter.messages] == [f"with {COVER}"]

    asyncio.run(story())


# -- over HTTP -----------------------------------------------------------------------------------------------------

OVER_HTTP = ANSWER.replace(KNOWN, KEY)


def test_an_answer_over_http_is_covered(door: Open) -> None:
    async def go() -> None:
        with ScriptedModel(say(OVER_HTTP), say("Yes.")) as model:
            async with door(model) as here:
                first = await here.ask("what is the key?")
                assert not leaked(first.text) and said(first).startswith(f"It is {COVER}, the other one {COVER}.")
                second = await here.ask("what is the key?", said(first), "still there?")
                same = "x-hermes-session-id"
                assert first.headers[same] == second.headers[same], "what the client read goes on"
                (session,) = (await here.get("/api/sessions"))["data"]
                assert not leaked(json.dumps(await here.get(f"/api/sessions/{session['id']}/messages")))

    asyncio.run(go())


@pytest.mark.parametrize("size", [1, 3, 7, 40])
def test_a_stream_never_holds_a_part_of_a_secret(door: Open, size: int) -> None:
    async def go() -> None:
        parts = pieces(OVER_HTTP, size)
        with ScriptedModel(say(*parts, calls=[call("todo", {"todos": []})]), say(*parts)) as model:
            async with door(model) as here:
                answer = await here.ask("what is the key?", stream=True)
                told = [data for _, data in events(answer.text) if data != "[DONE]"]
                deltas = [one["choices"][0]["delta"].get("content") or "" for one in told if one.get("choices")]
                assert not leaked("".join(deltas)) and not leaked(answer.text)
                assert len(deltas) > 6, "words arrive one after the other"
                covered = OVER_HTTP.replace(KEY, COVER).replace(SHAPED, COVER).replace(PEM, COVER)
                assert "".join(deltas) == covered.replace("abcdefgh12345678", COVER) * 2

    asyncio.run(go())
