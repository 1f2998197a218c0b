"""Chat over HTTP: which conversation a request belongs to, what comes back, and what happens when it does not."""

from __future__ import annotations

import asyncio
import base64
import json

import httpx2
import pytest
from tests.gateway.api.conftest import Open
from tests.gateway.api.door import Door, events, said, until
from tests.support.processes import GONE

from hermes_state import SessionDB
from hermes_state.conversations import transcript
from hermes_state.errors import StoreBusy, StoreFull
from hermes_state.turns.inbox import Inbox, InboxRow
from hermes_state.turns.journal import Journal
from hermes_testing.scripted.model import Hold, ScriptedModel, always, call, fail, in_system, say, saying

pytestmark = [pytest.mark.both_engines, pytest.mark.slow]

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
)


def test_an_answer_in_openais_shape(door: Open) -> None:
    async def go() -> None:
        with ScriptedModel(say("Hi.")) as model:
            async with door(model) as here:
                answer = await here.ask("hello")
                body = answer.json()
                assert said(answer) == "Hi." and body["object"] == "chat.completion"
                assert body["choices"][0]["finish_reason"] == "stop" and body["usage"]["completion_tokens"] > 0
                assert body["id"] == f"chatcmpl-{answer.headers['x-hermes-trace-id']}"
                rows = here.db.inbox.list()
                assert [(row.state, row.trace_id) for row in rows] == [
                    ("answered", answer.headers["x-hermes-trace-id"])
                ]
            assert [item.platform_ids for item in here.db.outbox.list(state="sent")] == [("collected",)]

    asyncio.run(go())


def test_what_has_no_effect_is_named_as_ignored_and_a_developers_message_is_an_instruction(door: Open) -> None:
    async def go() -> None:
        with ScriptedModel(always(say("Hi."))) as model:
            async with door(model) as here:
                messages = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "hello"}]
                tools = [{"type": "function", "function": {"name": "look", "parameters": {}}}]
                for stream in (False, True):
                    body = {"messages": messages, "tools": tools, "tool_choice": "auto", "stream": stream}
                    answer = await here.client.post("/v1/chat/completions", json=body)
                    assert (answer.status_code, answer.headers["x-hermes-ignored"]) == (200, "tools")
                more = {"temperature": 0, "stop": ["x"], "logprobs": True, "max_tokens": 5, "odd\r\nname": 1}
                answer = await here.client.post("/v1/chat/completions", json={"messages": messages, **more})
                assert answer.headers["x-hermes-ignored"] == "temperature, stop, logprobs, max_tokens"
                nothing = {"model": "hermes-agent", "tools": [], "logprobs": False, "stop": None, "user": "me", "n": 1}
                plain = await here.client.post("/v1/chat/completions", json={"messages": messages, **nothing})
                assert "x-hermes-ignored" not in plain.headers
            assert all(b"Be brief." in request.body for request in model.requests)

    asyncio.run(go())


# -- which conversation ----------------------------------------------------------------------------------------------


def test_a_history_that_was_said_here_goes_on_and_the_prefix_stays(door: Open) -> None:
    async def go() -> None:
        with ScriptedModel(say("Hi."), say("Yes."), say("Bye.")) as model:
            async with door(model) as here:
                first = await here.ask("hello")
                second = await here.ask("hello", "Hi.", "still there?")
                await here.ask("hello", "Hi.", "still there?", "Yes.", "bye")
                assert first.headers["x-hermes-session-id"] == second.headers["x-hermes-session-id"]
                assert len(await sessions(here)) == 1 and here.db.prefixes.break_count() == 0
                assert len(here.runner.parts.agents.entries) == 1
            assert model.requests[2].body.startswith(model.requests[1].body.rstrip(b"]}")[:200])

    asyncio.run(go())


def test_it_goes_on_after_a_restart(door: Open) -> None:
    async def go() -> None:
        with ScriptedModel(say("looking", calls=[call("todo")]), say("Hi."), say("Yes.")) as model:
            async with door(model) as here:
                assert said(await here.ask("hello")) == "Hi."
            async with door(model) as here:
                assert said(await here.ask("hello", "Hi.", "still there?")) == "Yes."
                assert len(await sessions(here)) == 1

    asyncio.run(go())


def test_each_of_several_with_the_same_first_words_goes_on_after_a_restart(door: Open) -> None:
    async def go() -> None:
        answers = [say(f"Hi {number}.") for number in range(3)]
        with ScriptedModel(*answers, say("New."), always(say("Yes."))) as model:
            async with door(model) as here:
                began = [await here.ask("hello") for _ in answers]
            async with door(model) as here:
                assert said(await here.ask("hello")) == "New.", "which takes none of them away"
                for number, first in enumerate(began):
                    went_on = await here.ask("hello", f"Hi {number}.", "still there?")
                    assert went_on.headers["x-hermes-session-id"] == first.headers["x-hermes-session-id"]
                assert len(await sessions(here)) == 4

    asyncio.run(go())


def test_an_edited_history_is_another_conversation_that_begins_with_it(door: Open) -> None:
    async def go() -> None:
        with ScriptedModel(say("Hi."), say("Yes."), say("Fork.")) as model:
            async with door(model) as here:
                await here.ask("hello")
                await here.ask("hello", "Hi.", "one way")
                forked = await here.ask("hello", "Hi, edited.", "another way")
                assert said(forked) == "Fork." and len(await sessions(here)) == 2
            last = model.requests[-1].body.decode()
            assert "Hi, edited." in last and "one way" not in last

    asyncio.run(go())


def test_the_same_first_words_many_times_at_once_are_as_many_conversations(door: Open) -> None:
    async def go() -> None:
        holds = [Hold() for _ in range(8)]
        with ScriptedModel(*(say("4", hold=hold) for hold in holds)) as model:
            async with door(model) as here:
                asking = asyncio.gather(*(here.ask("2 + 2?") for _ in holds))
                for hold in holds:  # all of them stand at the model: none waits for another
                    await hold.reached()
                for hold in holds:
                    hold.release()
                answers = await asking
                assert {said(answer) for answer in answers} == {"4"}
                assert len({answer.headers["x-hermes-session-id"] for answer in answers}) == 8
            assert all(request.body.count(b"2 + 2?") == 1 for request in model.requests)

    asyncio.run(go())


def test_two_ways_on_from_one_point_at_once_do_not_meet(door: Open) -> None:
    async def go() -> None:
        with ScriptedModel(say("Hi."), always(say("Yes.", delay=0.2))) as model:
            async with door(model) as here:
                await here.ask("hello")
                await asyncio.gather(here.ask("hello", "Hi.", "left"), here.ask("hello", "Hi.", "right"))
                assert len(await sessions(here)) == 2
            last = [request.body for request in model.requests[1:]]
            assert sorted((b'"left"' in body, b'"right"' in body) for body in last) == [(False, True), (True, False)]

    asyncio.run(go())


def test_a_named_conversation_has_its_stored_history(door: Open) -> None:
    async def go() -> None:
        with ScriptedModel(say("Noted."), say("Blue."), say("No idea.")) as model:
            async with door(model) as here:
                await here.ask("my colour is blue", name="colours")
                answer = await here.ask("which one?", name="colours")
                assert said(answer) == "Blue." and answer.headers["x-hermes-session-id"] == "colours"
                await here.ask("which one?", name="other")
            assert b"my colour is blue" in model.requests[1].body
            assert b"my colour is blue" not in model.requests[2].body

    asyncio.run(go())


def test_a_new_named_conversation_begins_with_the_history_that_came_along(door: Open) -> None:
    async def go() -> None:
        with ScriptedModel(say("Yes."), say("Still.")) as model:
            async with door(model) as here:
                await here.ask("I am Ada", "Hello Ada", "remember?", name="ada")
                await here.ask("I am Bob", "Hello Bob", "and now?", name="ada")
            assert b"Hello Ada" in model.requests[0].body
            assert b"Hello Ada" in model.requests[1].body and b"Hello Bob" not in model.requests[1].body

    asyncio.run(go())


def test_instructions_of_the_client_stay_with_their_conversation(door: Open) -> None:
    async def go() -> None:
        pirate, poet = in_system("Talk like a pirate."), in_system("Talk in verse.")
        with ScriptedModel(say("Arr.", when=pirate), say("Aye.", when=pirate), say("O!", when=poet)) as model:
            async with door(model) as here:
                assert said(await here.ask("hi", name="a", system="Talk like a pirate.")) == "Arr."
                assert said(await here.ask("again", name="a")) == "Aye."
            async with door(model) as here:
                assert said(await here.ask("and now", name="a", system="Talk in verse.")) == "O!"
                assert here.db.prefixes.break_count() == 0, "a change of instructions is announced"

    asyncio.run(go())


def test_messages_of_one_conversation_wait_for_each_other(door: Open) -> None:
    async def go() -> None:
        with ScriptedModel(say("first", delay=0.3), say("second")) as model:
            async with door(model) as here:
                one = asyncio.create_task(here.ask("one", name="x"))
                await until(lambda: model.requests)
                two = await here.ask("two", name="x")
                assert (said(await one), said(two)) == ("first", "second")
            assert model.requests[1].body.rindex(b"first") < model.requests[1].body.rindex(b"two")

    asyncio.run(go())


def test_a_picture_reaches_a_model_that_sees(door: Open) -> None:
    async def go() -> None:
        url = "data:image/png;base64," + base64.b64encode(PNG).decode()
        content = [{"type": "text", "text": "what is it?"}, {"type": "image_url", "image_url": {"url": url}}]
        with ScriptedModel(say("A dot.")) as model:
            async with door(model, model={"vision": True}) as here:
                body = {"messages": [{"role": "user", "content": content}]}
                assert said(await here.client.post("/v1/chat/completions", json=body)) == "A dot."
            assert url.encode() in model.requests[0].body

    asyncio.run(go())


def test_a_command_is_answered_and_never_sent_to_the_model(door: Open) -> None:
    async def go() -> None:
        with ScriptedModel() as model:
            async with door(model) as here:
                assert "member" in said(await here.ask("/whoami"))
                assert "nonsense" in said(await here.ask("/nonsense", stream=False))

    asyncio.run(go())


# -- streams ---------------------------------------------------------------------------------------------------------


def test_a_stream_shows_words_and_tools_and_ends_with_the_stored_text(door: Open) -> None:
    async def go() -> None:
        with ScriptedModel(say("Let me ", "look.", calls=[call("todo")]), say("Do", "ne."), say("More.")) as model:
            async with door(model) as here:
                answer = await here.ask("go", stream=True, stream_options={"include_usage": True})
                found = events(answer.text)
                chunks = [data for name, data in found if not name and data != "[DONE]"]
                text = "".join(c["choices"][0]["delta"].get("content", "") for c in chunks if c["choices"])
                assert text == "Let me look.Done."
                # OpenAI's clients and others read each event as a chunk, whatever its name, and look into its choices.
                assert all(data["choices"][0]["delta"] == {} for name, data in found if name)
                assert [d["event"] for n, d in found if n == "hermes.tool.progress"] == [
                    "tool.started", "tool.completed",
                ]  # fmt: skip
                assert chunks[-2]["choices"][0]["finish_reason"] == "stop" and chunks[-1]["usage"]["total_tokens"] > 0
                assert found[-1] == ("", "[DONE]") and answer.headers["content-type"].startswith("text/event-stream")
                assert [item.payload["text"] for item in here.db.outbox.list()] == ["Done."]
                # A client that read the stream sends back what it read.
                again = await here.ask("go", text, "more?", stream=True)
                assert again.headers["x-hermes-session-id"] == answer.headers["x-hermes-session-id"]

    asyncio.run(go())


def test_words_arrive_while_the_model_is_still_speaking(door: Open) -> None:
    async def go() -> None:
        hold = Hold()
        with ScriptedModel(say("Once ", "upon a time.", hold=hold)) as model:
            async with door(model) as here:
                body = {"messages": [{"role": "user", "content": "a story"}], "stream": True}
                async with here.client.stream("POST", "/v1/chat/completions", json=body) as answer:
                    read = ""
                    async for piece in answer.aiter_text():
                        read += piece
                        if "Once " in read:
                            hold.release()
                assert "upon a time." in read and read.endswith("data: [DONE]\n\n")

    asyncio.run(go())


# -- what goes wrong -------------------------------------------------------------------------------------------------


def test_a_turn_that_fails_is_a_502_also_where_a_stream_was_asked_for(door: Open) -> None:
    async def go() -> None:
        with ScriptedModel(always(fail(400, "no such thing"))) as model:
            model.allow_rejections = True
            async with door(model) as here:
                for stream in (False, True):
                    answer = await here.ask("hello", name="x", stream=stream)
                    error = answer.json()
                    assert answer.status_code == 502 and error["error"]["code"] == "agent_incomplete"
                    assert error["hermes"]["failed"] is True and "no such thing" in error["error"]["message"]
                    assert answer.headers["x-should-retry"] == "false"

    asyncio.run(go())


def test_no_model_at_all_is_told_in_words(door: Open) -> None:
    async def go() -> None:
        async with door(None, model={"provider": "nowhere", "default": "x"}) as here:
            answer = await here.ask("hello")
            assert answer.status_code == 502 and "nowhere" in answer.json()["error"]["message"]

    asyncio.run(go())


def test_an_answer_that_was_cut_short_says_so(door: Open) -> None:
    async def go() -> None:
        with ScriptedModel(always(say("half a sen", finish="length"))) as model:
            async with door(model) as here:
                answer = await here.ask("hello")
                assert said(answer) == "half a sen" and answer.json()["choices"][0]["finish_reason"] == "length"
                assert answer.headers["x-hermes-completed"] == "false"

    asyncio.run(go())


def test_a_turn_that_was_stopped_is_an_error_that_clients_do_not_answer_by_asking_again(door: Open) -> None:
    async def go() -> None:
        hold = Hold()
        with ScriptedModel(say("Once ", "upon a time.", hold=hold)) as model:
            async with door(model) as here:
                task = asyncio.create_task(here.ask("a story", name="x"))
                await hold.reached()
                await here.ask("/stop", name="x")
                answer = await task
                assert answer.status_code == 502 and answer.json()["hermes"]["interrupted"] is True
                assert answer.headers["x-should-retry"] == "false"

    asyncio.run(go())


def test_a_client_that_leaves_interrupts_its_turn(door: Open) -> None:
    async def go() -> None:
        with ScriptedModel(say("never heard", delay=20)) as model:
            async with door(model) as here:
                task = asyncio.create_task(here.ask("hello"))
                await until(lambda: here.runner.parts.lanes.active)
                await until(lambda: model.requests)
                task.cancel()
                await until(lambda: here.db.inbox.list()[0].state not in ("queued", "claimed"))
                assert here.db.outbox.counts() == {}, "nothing is owed to nobody"
                assert here.db.turns.list()[0].reason == "the client had gone"

    asyncio.run(go())


def test_a_client_that_leaves_while_it_waits_is_not_answered(door: Open) -> None:
    async def go() -> None:
        hold = Hold()
        with ScriptedModel(say("fir", "st", hold=hold)) as model:
            async with door(model) as here:
                one = asyncio.create_task(here.ask("one", name="x"))
                await until(lambda: model.requests)
                two = asyncio.create_task(here.ask("two", name="x"))
                await until(lambda: len(here.db.inbox.list()) == 2)
                two.cancel()
                await until(lambda: here.db.inbox.list()[0].state == "dropped")
                hold.release()
                assert said(await one) == "first"
                assert here.db.inbox.list()[0].reason == "the client had gone"

    asyncio.run(go())


def test_after_a_crash_what_nobody_can_fetch_is_dropped_and_does_not_hold_up_the_next(door: Open) -> None:
    async def go() -> None:
        with ScriptedModel(say("Hi."), say("With a key."), say("Next.")) as model:
            async with door(model) as here:
                await here.ask("hello", name="x")
                first = here.db.inbox.list()[0]
            begun, waiting, kept = (again(here.db, first, number) for number in ("req-1", "req-2", "order-17"))
            session = str(here.runner.parts.services.store.peek_session_id(first.route))
            lost = await Journal.open(
                here.db, session, holder=GONE, ttl=600, user={"role": "user", "content": "lost"}, route=first.route,
                claim=(begun.id,),
            )  # fmt: skip
            assert lost is not None
            async with door(model) as here:
                assert said(await here.ask("and now?", name="x")) == "Next."
                ended = {row.id: (row.state, row.reason) for row in here.db.inbox.list()}
                assert ended[begun.id] == ended[waiting.id] == ("dropped", "the client had gone")
                assert ended[kept.id][0] == "answered", "its client can come back for it"
                assert here.db.turns.counts().get("running", 0) == 0

    asyncio.run(go())


def again(db: SessionDB, row: InboxRow, number: str) -> InboxRow:
    """A request like that one, as a process that was lost a moment later had stored it."""
    payload = {**(row.payload or {}), **({} if number.startswith("req-") else {"digest": "d"})}
    return db.inbox.accept(
        platform=row.platform, account=row.account, chat_id=row.chat_id, message_id=number, route=row.route,
        payload=payload, person_id=row.person_id,
    ).row  # fmt: skip


def test_a_client_that_waits_when_the_gateway_ends_is_told_what_becomes_of_its_request(door: Open) -> None:
    async def go() -> None:
        with ScriptedModel(always(say("slow", hold=Hold()))) as model:
            async with door(model, gateway={"drain_seconds": 0.1}) as here:
                plain = asyncio.create_task(here.ask("one"))
                keyed = asyncio.create_task(here.ask("two", headers=ONCE))
                await until(lambda: len(model.requests) == 2)
                await here.runner.stop()
                errors = [(await one).json()["error"] for one in (plain, keyed)]
                assert [error["code"] for error in errors] == ["ending", "ending"]
                assert errors[0]["message"].endswith("ask again in a moment")
                assert "with the same Idempotency-Key" in errors[1]["message"]

    asyncio.run(go())


# -- the same request again ------------------------------------------------------------------------------------------

ONCE = {"idempotency-key": "order-17"}


def test_the_same_key_gives_the_same_answer_and_asks_the_model_once(door: Open) -> None:
    async def go() -> None:
        with ScriptedModel(say("Done.", delay=0.2)) as model:
            async with door(model) as here:
                both = await asyncio.gather(here.ask("order", headers=ONCE), here.ask("order", headers=ONCE))
                assert [said(answer) for answer in both] == ["Done.", "Done."]
                again = await here.ask("order", headers=ONCE)
            async with door(model) as here:
                after = await here.ask("order", headers=ONCE)
            used = both[0].json()["usage"]
            assert used["total_tokens"] > 0
            for answer in (*both, again, after):  # after a restart, too
                assert said(answer) == "Done." and answer.json()["usage"] == used
                assert answer.json()["hermes"] == both[0].json()["hermes"]
            assert len(model.requests) == 1

    asyncio.run(go())


def test_the_same_key_with_another_body_is_a_conflict(door: Open) -> None:
    async def go() -> None:
        with ScriptedModel(say("Done."), say("Named.")) as model:
            async with door(model) as here:
                await here.ask("order", headers=ONCE)
                other = await here.ask("something else", headers=ONCE)
                assert other.status_code == 409 and other.json()["error"]["code"] == "idempotency_key_reused"
                assert said(await here.ask("order", headers=ONCE, name="n")) == "Named.", "another conversation"

    asyncio.run(go())


def test_a_repeated_request_in_the_middle_of_a_conversation(door: Open) -> None:
    async def go() -> None:
        with ScriptedModel(say("Hi."), say("Booked."), say("Later.")) as model:
            async with door(model) as here:
                await here.ask("hello")
                for _ in range(2):
                    assert said(await here.ask("hello", "Hi.", "book it", headers=ONCE)) == "Booked."
                assert said(await here.ask("hello", "Hi.", "book it", "Booked.", "and?")) == "Later."
                assert said(await here.ask("hello", "Hi.", "book it", headers=ONCE)) == "Booked."
                assert len(await sessions(here)) == 1
            assert len(model.requests) == 3

    asyncio.run(go())


def test_a_repeated_request_brings_its_history_once(door: Open) -> None:
    async def go() -> None:
        with ScriptedModel(say("Booked.", delay=0.2)) as model:
            async with door(model) as here:
                both = await asyncio.gather(
                    *(here.ask("hello", "Hi.", "book it", headers=ONCE) for _ in range(2))
                )  # fmt: skip
                assert [said(answer) for answer in both] == ["Booked.", "Booked."]
                assert len(await sessions(here)) == 1
            assert heard(model) == ["hello", "Hi.", "book it"]

    asyncio.run(go())


def test_a_request_that_found_the_store_busy_brings_its_history_once_when_repeated(
    door: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def go() -> None:
        with ScriptedModel(say("Booked."), say("It is 7.")) as model:
            async with door(model) as here:
                for before, asked, name in (
                    (("hello", "Hi."), "book it", None),
                    (("my number is 7", "Noted."), "which?", "n1"),
                ):
                    with monkeypatch.context() as patch:
                        patch.setattr(Inbox, "aaccept", _busy)  # its place is open by then
                        assert (await here.ask(*before, asked, name=name, headers=ONCE)).status_code == 503
                    assert (await here.ask(*before, asked, name=name, headers=ONCE)).status_code == 200
                    assert heard(model) == [*before, asked]

    asyncio.run(go())


def test_a_conversation_whose_history_could_not_be_stored_begins_with_it_when_asked_again(
    door: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def go() -> None:
        with ScriptedModel(say("It is 7.")) as model:
            async with door(model) as here:
                with monkeypatch.context() as patch:
                    for name in ("insert_rows", "append"):  # wherever a row is stored
                        patch.setattr(transcript, name, _full)
                    first = await here.ask("my number is 7", "Noted.", "which?", name="n1")
                    assert first.status_code == 503
                assert said(await here.ask("my number is 7", "Noted.", "which?", name="n1")) == "It is 7."
            assert heard(model) == ["my number is 7", "Noted.", "which?"]

    asyncio.run(go())


def heard(model: ScriptedModel) -> list[str]:
    """What the model was sent last, but for the system's words."""
    sent = json.loads(model.requests[-1].body)["messages"]
    return [message["content"] for message in sent if message["role"] != "system"]


async def _busy(*_: object, **__: object) -> None:
    raise StoreBusy


def _full(*_: object, **__: object) -> None:
    raise StoreFull


def test_a_client_with_a_key_may_leave_and_come_back(door: Open) -> None:
    async def go() -> None:
        with ScriptedModel(say("Done.", delay=0.4)) as model:
            async with door(model) as here:
                task = asyncio.create_task(here.ask("order", headers=ONCE))
                await until(lambda: model.requests)
                task.cancel()
                await asyncio.sleep(0.1)
                assert said(await here.ask("order", headers=ONCE)) == "Done."
            assert len(model.requests) == 1

    asyncio.run(go())


def test_a_failed_request_stays_failed_under_its_key(door: Open) -> None:
    async def go() -> None:
        with ScriptedModel(fail(400, "no", when=saying("order"))) as model:
            model.allow_rejections = True
            async with door(model) as here:
                codes = [(await here.ask("order", headers=ONCE)).status_code for _ in range(2)]
                assert codes == [502, 502]

    asyncio.run(go())


# -- helpers ---------------------------------------------------------------------------------------------------------


async def sessions(here: Door) -> list[httpx2.Response]:
    return list((await here.get("/api/sessions"))["data"])
