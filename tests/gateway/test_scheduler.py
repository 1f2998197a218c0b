"""Jobs through a whole gateway: reminders, turns, scripts, silence, outages, and what their chat learns of them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.support.gateways import PretendGateway

from gateway.scheduler import Scheduler
from hermes_agent import jobs
from hermes_agent.jobs import JobRequest
from hermes_agent.schedules import Schedule
from hermes_agent.tools import environment
from hermes_config import config as configuration
from hermes_config.errors import UsageError
from hermes_state import SessionDB
from hermes_state.ids import LOCAL_OWNER, ConversationId
from hermes_state.turns.jobs import Job, lane_of
from hermes_testing.clock import Clock
from hermes_testing.scripted.model import ScriptedModel, call, say

pytestmark = [pytest.mark.both_engines, pytest.mark.slow]
OWNER, FRIEND = "42", "7"
MORNING = 1_790_064_000.0  # Tue 22 Sep 2026 08:00 UTC


@pytest.fixture(autouse=True)
def at_seven(clock: Clock) -> None:
    clock.set(MORNING - 3_600)


async def tick(here: PretendGateway) -> None:
    await Scheduler(here.parts.services, here.parts.deliverer.wake).tick()
    await here.until(lambda: not {"waiting", "running"}.intersection(outcomes(here.db)))
    await here.quiet()


async def ask(here: PretendGateway, text: str, user: str = OWNER, **more: Any) -> str:
    """What a command answers."""
    before = len(here.chat.messages)
    await here.chat.say(text, user, **more)
    await here.until(lambda: len(here.chat.messages) > before)
    await here.quiet()
    return here.chat.messages[before].text


def only(db: SessionDB) -> Job:
    (job,) = db.jobs.list(done=True)
    return job


def outcomes(db: SessionDB) -> list[str]:
    return [row.outcome for row in db.jobs.ledger()][::-1]


def test_a_reminder_arrives_once_and_asks_no_model(db: SessionDB, home: Path, clock: Clock) -> None:
    async def go() -> None:
        with ScriptedModel() as model:
            async with PretendGateway(db, home, model) as here:
                assert "I will remind you here: Tue 22 Sep 07:20" in await ask(here, "/remind in 20 minutes the pizza")
                assert "which job? /cron lists them." in await ask(here, "/cron show")
                said = await ask(here, "/remind me every day at 9 to stand up")
                assert "remind you here: every day at 9, first on Tue 22 Sep 09:00 (" in said
                await ask(here, "/cron remove stand up")
                here.chat.messages.clear()
                clock.advance(1_199)
                await tick(here)
                assert outcomes(db) == []
                clock.advance(2)
                await asyncio.gather(*(tick(here) for _ in range(4)))
                assert here.chat.chat(OWNER) == ["the pizza"]
                assert (outcomes(db), only(db).state) == (["answered"], "done")
                why = await ask(here, "/why", reply_to_message_id=here.chat.messages[-1].id)
                assert why == (
                    "This is a reminder (once, Tue 22 Sep 2026 07:20). No model was asked. /cron show"
                    f" {only(db).id[:6]} shows its runs."
                )

    asyncio.run(go())


def test_a_job_runs_in_a_conversation_of_its_own_and_its_chat_learns_of_it(
    db: SessionDB, home: Path, clock: Clock
) -> None:
    async def go() -> None:
        steps = (say("Hi."), say("Rain at noon."), say("I wrote: rain at noon."), say("Nothing new."))
        with ScriptedModel(*steps) as model:
            async with PretendGateway(db, home, model) as here:
                await ask(here, "hello")
                said = await ask(here, "/cron add every day at 8 Tell me the weather.")
                assert said.startswith("Added: ") and "Tell me the weather.: every day at 8 (" in said
                assert said.endswith("), next Tue 22 Sep 08:00. Its answers come here.")
                clock.set(MORNING + 1)
                await tick(here)
                assert here.chat.chat(OWNER)[-1] == "[Tell me the weather.]\nRain at noon."
                why = await ask(here, "/why", reply_to_message_id=here.chat.messages[-1].id)
                assert why.splitlines()[0].endswith("for Hermes itself (job “Tell me the weather.”)")
                asked = model.requests[1].json
                assert [one["role"] for one in asked["messages"]] == ["system", "user"], "it knows nothing of the chat"
                assert asked["messages"][1]["content"].endswith("Tell me the weather.")
                assert "[SILENT]" in asked["messages"][1]["content"]
                tools = {one["function"]["name"] for one in asked["tools"]}
                assert "terminal" in tools and not tools & {"cronjob", "clarify"}
                (row,) = db.jobs.ledger()
                assert row.session_id == f"cron_{only(db).id}_20260922_080000" and row.outcome == "answered"
                clock.advance(60)
                await ask(here, "what did you write?")
                read = model.requests[2].json["messages"]
                assert [one["role"] for one in read] == ["system", "user", "assistant", "user"]
                assert read[:2] == model.requests[0].json["messages"][:2], "the prefix has not moved"
                assert "Rain at noon." in read[3]["content"] and read[3]["content"].endswith("what did you write?")
                await ask(here, "and now?")
                assert "scheduled jobs sent" not in model.requests[3].json["messages"][-1]["content"]
                assert only(db).id not in await ask(here, "/sessions"), "a run is none of the chat's conversations"
                keys = list(here.parts.services.store._entries)
                assert keys == ["agent:main:telegram:dm:42"], "no route leads to a job's conversation"

    asyncio.run(go())


def test_what_a_job_left_running_returns_to_its_own_conversation_with_its_limits(
    db: SessionDB, home: Path, clock: Clock
) -> None:
    start = call("terminal", {"command": "until [ -e go ]; do sleep 0.05; done; echo built", "background": True})

    async def go() -> None:
        steps = (say("Hi."), say(calls=[start]), say("It builds."), say("It is built."), say("Hello again."))
        with ScriptedModel(*steps) as model:
            async with PretendGateway(db, home, model, approvals={"mode": "off"}) as here:
                await ask(here, "hello")
                await ask(here, "/cron add every day at 8 Build it.")
                clock.set(MORNING + 1)
                await tick(here)
                (home / "workspace" / "go").touch()
                await here.until(lambda: len(here.chat.chat(OWNER)) > 3, seconds=30)
                assert here.chat.chat(OWNER)[-1] == "[Build it.]\nIt is built."
                first, then = model.requests[1].json, model.requests[3].json
                assert then["messages"][: len(first["messages"])] == first["messages"], "the job's conversation goes on"
                assert "[Background process" in then["messages"][-1]["content"]
                assert first["tools"] == then["tools"]
                (row,) = db.jobs.ledger()
                assert len(db.turns.last_ended(ConversationId(row.session_id or ""))) == 2
                await ask(here, "hello?")
                assert len(model.requests[4].json["messages"]) == 4, "the chat's conversation has not moved"

    asyncio.run(go())


@pytest.mark.parametrize(
    ("script", "prompt", "outcome", "said"),
    [
        ("true", "Look.", "silent", []),
        ("echo disk full", "", "answered", ["disk full"]),
        ("echo broken >&2; exit 3", "Look.", "failed", ["The script of “check” failed: exit code 3: broken"]),
        ("echo 93 %", "Is that much?", "answered", ["[check]\nYes."]),
        ("cat $HERMES_HOME/config.yaml", "Look.", "failed", None),
    ],
)
def test_a_script_runs_first_and_confined(
    db: SessionDB, home: Path, clock: Clock, script: str, prompt: str, outcome: str, said: list[str] | None
) -> None:
    async def go() -> None:
        steps = [say("Yes.")] if said == ["[check]\nYes."] else []
        with ScriptedModel(*steps) as model:
            async with PretendGateway(db, home, model) as here:
                config, owner = configuration.load(home), db.people.owner()
                address = jobs.address_for(db, config, owner, None, to="telegram:42", any_chat=True)
                wanted = JobRequest(schedule="every day at 8", name="check", prompt=prompt, script=script)
                jobs.make(db, config, owner, wanted, address)
                clock.set(MORNING + 5)
                await tick(here)
                assert outcomes(db) == [outcome]
                if said is not None:
                    assert here.chat.chat(OWNER) == said
                assert not any("pretend" in text for text in here.chat.chat(OWNER)), "no secret of the home"
                if model.requests:
                    assert "93 %" in model.requests[0].json["messages"][-1]["content"]

    asyncio.run(go())


def test_of_two_gateways_one_runs_the_script(db: SessionDB, home: Path, clock: Clock) -> None:
    async def go() -> None:
        homes = (home, home.with_name("second"))
        async with PretendGateway(db, homes[0]) as here, PretendGateway(db, homes[1]) as there:
            config, owner = configuration.load(home), db.people.owner()
            address = jobs.address_for(db, config, owner, None, to="telegram:42", any_chat=True)
            wanted = JobRequest(schedule="every day at 8", name="check", script="echo run | tee -a runs; sleep 0.7")
            jobs.make(db, config, owner, wanted, address)
            clock.set(MORNING + 5)
            await tick(here)
            await there.quiet()
            assert outcomes(db) == ["answered"]
            runs = [file.read_text() for one in homes if (file := one / "workspace" / "runs").exists()]
            assert "".join(runs) == "run\n"
            clock.set(MORNING + 3_600)
            db.jobs.prune()
            count = "SELECT count(*) FROM leases WHERE conversation_id LIKE 'script:%'"
            assert db.engine.read(lambda conn: conn.rows(count)) == [(0,)]

    asyncio.run(go())


def test_silence_is_an_outcome(db: SessionDB, home: Path, clock: Clock) -> None:
    async def go() -> None:
        with ScriptedModel(say("[SILENT]")) as model:
            async with PretendGateway(db, home, model) as here:
                await ask(here, "/cron add every day at 8 Anything new?")
                clock.set(MORNING)
                await tick(here)
                assert outcomes(db) == ["silent"]
                assert len(here.chat.chat(OWNER)) == 1

    asyncio.run(go())


def test_after_an_outage_one_row_one_notice_and_catchup(db: SessionDB, home: Path, clock: Clock) -> None:
    async def go() -> None:
        with ScriptedModel(say("The news of Friday.")) as model:
            async with PretendGateway(db, home, model) as here:
                await ask(here, "/cron add every day at 8 The news.")
                await ask(here, "/remind tomorrow at 9 call mum")
            clock.set(MORNING + 3 * 86_400 + 5 * 3_600)
            async with PretendGateway(db, home, model, adapter=here.chat) as here:
                await tick(here)
                job = db.jobs.list()[0]
                rows = db.jobs.ledger(job.id)
                assert [row.outcome for row in rows] == ["missed"]
                assert rows[0].about["missed"]["count"] == 4
                notice = here.chat.chat(OWNER)[-1]
                assert notice.count("I was offline") == 1 and "the reminder “call mum”" in notice
                assert "4 runs, Tue 22 Sep 08:00 to Fri 25 Sep 08:00" in notice
                listed = await ask(here, "/catchup list")
                assert "missed: The news., Fri 25 Sep 08:00" in listed
                await ask(here, "/catchup")
                await here.until(lambda: "[The news.]\nThe news of Friday." in here.chat.chat(OWNER))
                assert here.chat.chat(OWNER).count("call mum") == 1
                assert await ask(here, "/catchup") == "There is nothing to catch up on."
                assert db.jobs.list()[0].next_at == MORNING + 4 * 86_400

    asyncio.run(go())


def test_an_occurrence_that_was_stored_and_found_late_is_missed(db: SessionDB, home: Path, clock: Clock) -> None:
    async def go() -> None:
        with ScriptedModel() as model:
            async with PretendGateway(db, home, model) as here:
                await ask(here, "/cron add every day at 8 The news.")
            job = only(db)
            clock.set(MORNING)
            steps = [_step_of(job, clock())]
            assert db.jobs.settle(steps) == 1, "and then the process died"
            clock.advance(3 * 3_600)
            async with PretendGateway(db, home, model, adapter=here.chat) as here:
                await here.until(lambda: outcomes(db) == ["missed"])
                await here.quiet()
                assert "missed" in here.chat.chat(OWNER)[-1]

    asyncio.run(go())


def test_a_job_that_ends_is_kept_while_its_last_run_waits(db: SessionDB, home: Path, clock: Clock) -> None:
    async def go() -> None:
        with ScriptedModel(say("Happy birthday!")) as model:
            async with PretendGateway(db, home, model) as here:
                await ask(here, "/cron add 2026-11-01T08:00 Wish me well.")
            job = only(db)
            assert job.next_at is not None
            clock.set(job.next_at)
            assert db.jobs.settle([_step_of(job, clock())]) == 1, "and then the process died"
            assert (only(db).state, db.jobs.prune()) == ("done", 0)
            async with PretendGateway(db, home, model, adapter=here.chat) as here:
                await here.until(lambda: outcomes(db) == ["answered"])
            clock.advance(20 * 86_400)
            assert db.jobs.prune() == 0, "it ended less than 30 days ago"
            clock.advance(11 * 86_400)
            assert db.jobs.prune() == 1

    asyncio.run(go())


@pytest.mark.parametrize("expression", ["61 * * * *", "not cron"])
def test_a_schedule_that_cannot_be_read_pauses_its_job_only(
    db: SessionDB, home: Path, clock: Clock, expression: str
) -> None:
    async def go() -> None:
        with ScriptedModel() as model:
            async with PretendGateway(db, home, model) as here:
                config, owner = configuration.load(home), db.people.owner()
                address = jobs.address_for(db, config, owner, None, to="telegram:42", any_chat=True)
                wanted = JobRequest(schedule=Schedule("cron", "0 8 * * *", "UTC", "?"), text="never", name="odd")
                odd = jobs.make(db, config, owner, wanted, address)
                _spoil(db, odd, f"expression = '{expression}'")
                await ask(here, "/remind at 8:00 tea")
                clock.set(MORNING)
                await tick(here)
                assert sorted(outcomes(db)) == ["answered", "failed"]
                assert "tea" in here.chat.chat(OWNER)
                assert any("“odd” is paused: it cannot be scheduled" in text for text in here.chat.chat(OWNER))
                (row,) = db.jobs.ledger(odd.id)
                assert "not a schedule" in (row.reason or "") and "is paused" in (row.reason or "")
                odd = jobs.find(db, "odd")
                assert jobs.when(odd) == "paused"
                with pytest.raises(UsageError, match="not a schedule"):
                    jobs.resume(db, odd)

    asyncio.run(go())


def test_a_member_without_a_chat_makes_no_job(db: SessionDB, home: Path) -> None:
    """A client of the API, say: the gateway could not see that its person lost access."""
    home.mkdir(mode=0o700)
    member = db.people.ensure(platform="telegram", native_id=FRIEND, display_name="Bob")
    with pytest.raises(UsageError, match="a job of yours needs a chat"):
        jobs.address_for(db, configuration.load(home), member, None)


def test_the_model_names_no_chat_of_somebody_else(db: SessionDB, home: Path, clock: Clock) -> None:
    async def go() -> None:
        wanted = {"action": "add", "schedule": "in 5 minutes", "reminder": "buy this"}
        calls = [call("cronjob", wanted | {"to": to}) for to in ("telegram:7", "telegram:99", "telegram:42")]
        steps = (say("Hi."), say("Hi."), say(calls=calls), say("Done."))
        with ScriptedModel(*steps) as model:
            async with PretendGateway(db, home, model) as here:
                db.pairings.link(db.people.owner().id, platform="telegram", native_id=OWNER)
                await ask(here, "hello", FRIEND)
                await ask(here, "hello")
                await ask(here, "remind telegram:7, telegram:99 and telegram:42")
                results = [one["content"] for one in model.requests[3].json["messages"][-3:]]
                assert ["no chat of yours" in one for one in results] == [True, True, False]
                assert (only(db).person_id, jobs.goes_to(only(db))) == (LOCAL_OWNER, "telegram:42")

    asyncio.run(go())


@pytest.mark.parametrize("verb", ["pause", "remove"])
def test_what_is_due_has_an_outcome_when_its_job_is_paused_or_removed(
    db: SessionDB, home: Path, clock: Clock, verb: str
) -> None:
    async def go() -> None:
        with ScriptedModel() as model:
            async with PretendGateway(db, home, model) as here:
                await ask(here, "/cron add 0 8-10 * * * The news.")
                job = only(db)
                assert "is not paused" in await ask(here, "/cron resume the news.")
                clock.set(MORNING + 2 * 3_600 + 60)
                await ask(here, f"/cron {verb} the news.")
                await here.until(lambda: all(row.outcome != "waiting" for row in db.jobs.ledger(job.id)))
                late, gone = db.jobs.ledger(job.id)
                assert (gone.outcome, gone.about["missed"]["count"]) == ("missed", 2)
                assert (late.outcome, late.about["instant"]) == ("silent", MORNING + 2 * 3_600)
                assert late.reason == f"the job was {verb}d before it ran"
                if verb == "pause":
                    clock.advance(86_400)
                    assert "next Thu 24 Sep 08:00" in await ask(here, "/cron resume the news.")
                    assert len(db.jobs.ledger(job.id)) == 2

    asyncio.run(go())


@pytest.mark.parametrize(("rule", "runs"), [("latest", 0), ("2", 2), ("skip", 0)])
def test_catchup_is_offered_only_if_there_is_something_to_run(
    db: SessionDB, home: Path, clock: Clock, rule: str, runs: int
) -> None:
    async def go() -> None:
        with ScriptedModel() as model:
            async with PretendGateway(db, home, model) as here:
                config, owner = configuration.load(home), db.people.owner()
                address = jobs.address_for(db, config, owner, None, to="telegram:42", any_chat=True)
                wanted = JobRequest(schedule="0 * * * *", text="drink", missed=rule)
                jobs.make(db, config, owner, wanted, address)
            clock.set(MORNING + 2 * 3_600 + 60)  # 8:00 and 9:00 are missed, 10:00 is not
            async with PretendGateway(db, home, model, adapter=here.chat) as here:
                await tick(here)
                notice = next(text for text in here.chat.chat(OWNER) if "missed:" in text)
                assert ("/catchup" in notice) == bool(runs)
                said = await ask(here, "/catchup list")
                assert said.count("drink, Tue 22 Sep") == runs, said

    asyncio.run(go())


def test_the_chat_learns_of_a_held_answer_when_it_was_sent(db: SessionDB, home: Path, clock: Clock) -> None:
    async def go() -> None:
        with ScriptedModel(say("Secret plans."), say("Hello."), say("I did.")) as model:
            async with PretendGateway(db, home, model) as here:
                await ask(here, "/cron add every day at 8 Tell me the plans.")
                db.held_answers.hold_chat("telegram", OWNER, True, by=None)
                clock.set(MORNING + 1)
                await tick(here)
                assert len(db.held_answers.list()) == 1
                await here.chat.say("hello", OWNER)
                await here.until(lambda: len(db.held_answers.list()) == 2)
                assert "Secret plans." not in str(model.requests[1].json["messages"])
                clock.advance(60)
                for one in db.held_answers.list():
                    db.held_answers.decide(one.id, "send", by="Ada")
                db.held_answers.hold_chat("telegram", OWNER, False, by=None)
                here.parts.deliverer.wake()
                await here.until(lambda: "Hello." in here.chat.chat(OWNER))
                await here.quiet()
                await ask(here, "did you write?")
                assert "Secret plans." in model.requests[2].json["messages"][-1]["content"]

    asyncio.run(go())


def test_a_reminder_and_an_answer_to_a_held_chat_are_held(db: SessionDB, home: Path, clock: Clock) -> None:
    async def go() -> None:
        with ScriptedModel(say("Hi."), say("Secret plans."), say("Hello.")) as model:
            async with PretendGateway(db, home, model) as here:
                await ask(here, "hello")
                await ask(here, "/remind at 8:00 the pizza")
                await ask(here, "/cron add at 8:00 The plans.")
                db.held_answers.hold_chat("telegram", OWNER, True, by=None)
                clock.set(MORNING + 1)
                await tick(here)
                pizza, plans = db.held_answers.list()
                assert (pizza.payload["text"], plans.payload["text"]) == ("the pizza", "[The plans.]\nSecret plans.")
                db.held_answers.decide(pizza.id, "drop", by="Ada")
                db.held_answers.decide(plans.id, "edit", by="Ada", text="No plans.")
                db.held_answers.hold_chat("telegram", OWNER, False, by=None)
                await here.quiet()
                clock.advance(60)
                await ask(here, "and now?")
                read = model.requests[2].json["messages"][-1]["content"]
                assert "“the pizza” was not sent" in read and "The person read this instead:]\nNo plans." in read
                assert "the pizza" not in here.chat.chat(OWNER)

    asyncio.run(go())


def test_what_waits_too_long_for_the_run_before_is_told_once(db: SessionDB, home: Path, clock: Clock) -> None:
    async def go() -> None:
        with ScriptedModel() as model:
            async with PretendGateway(db, home, model) as here:
                config, owner = configuration.load(home), db.people.owner()
                address = jobs.address_for(db, config, owner, None, to="telegram:42", any_chat=True)
                waits = "touch begun; for i in $(seq 400); do [ -e go ] && break; sleep 0.05; done; echo done"
                wanted = JobRequest(schedule="0 * * * *", name="Look", script=waits)
                go_on = environment.working_directory(home, started_in=None) / "go"
                jobs.make(db, config, owner, wanted, address)
                scheduler = Scheduler(here.parts.services, here.parts.deliverer.wake)
                for hour in range(4):
                    clock.set(MORNING + hour * 3_600)
                    await scheduler.tick()
                    if not hour:
                        await here.until(go_on.with_name("begun").exists)
                go_on.touch()
                await here.until(lambda: outcomes(db) == ["answered", "missed", "missed", "answered"])
                await here.quiet()
                told = [text for text in here.chat.chat(OWNER) if text != "done"]
                line = "· “Look”: 2 runs, Tue 22 Sep 09:00 to Tue 22 Sep 10:00"
                assert told == [f"A run took so long that I left out what was due meanwhile:\n{line}"]

    asyncio.run(go())


def test_a_script_needs_the_present_role_of_its_person(db: SessionDB, home: Path, clock: Clock) -> None:
    async def go() -> None:
        with ScriptedModel(say("Hi.")) as model:
            async with PretendGateway(db, home, model) as here:
                await ask(here, "hello", FRIEND)
                friend = next(one for one in db.people.list() if one.role == "member")
                friend = db.people.set_role(friend.id, "admin") or friend
                config = configuration.load(home)
                address = jobs.address_for(db, config, friend, None, to=f"telegram:{FRIEND}")
                wanted = JobRequest(schedule="every day at 8", script=f"touch {home}/ran; echo ran")
                job = jobs.make(db, config, db.people.get(friend.id) or friend, wanted, address)
                db.people.set_role(friend.id, "member")
                assert jobs.run_now(db, job)
                await here.until(lambda: outcomes(db) == ["failed"])
                assert db.jobs.ledger()[0].reason == "its person may no longer run scripts"

    asyncio.run(go())


def test_a_job_whose_budget_cannot_be_kept_says_so(db: SessionDB, home: Path, clock: Clock) -> None:
    async def go() -> None:
        with ScriptedModel() as model:
            async with PretendGateway(db, home, model) as here:
                config, owner = configuration.load(home), db.people.owner()
                address = jobs.address_for(db, config, owner, None, to="telegram:42", any_chat=True)
                wanted = JobRequest(schedule="every day at 8", prompt="Look.", budget_usd=0.5)
                jobs.make(db, config, owner, wanted, address)
                clock.set(MORNING)
                await tick(here)
                assert outcomes(db) == ["failed"] and not model.requests
                assert "is not known, so the budget of this job cannot be kept" in here.chat.chat(OWNER)[0]

    asyncio.run(go())


def _step_of(job: Job, now: float) -> Any:
    from gateway import scheduler
    from gateway.access.authorisation import Policy

    return scheduler._step(job, now, Policy(roles={("telegram", OWNER): "owner"}))


def test_a_person_who_lost_access_gets_nothing(db: SessionDB, home: Path, clock: Clock) -> None:
    async def go() -> None:
        with ScriptedModel() as model:
            async with PretendGateway(db, home, model) as here:
                await ask(here, "/remind in 20 minutes tea", FRIEND)
                db.pairings.revoke(platform="telegram", native_id=FRIEND)
                clock.advance(1_200)
                await tick(here)
                (row,) = db.jobs.ledger()
                assert (row.outcome, row.reason) == ("failed", "its person no longer has access")
                assert "tea" not in here.chat.chat(FRIEND)

    asyncio.run(go())


def test_nobody_sees_or_changes_the_jobs_of_others(db: SessionDB, home: Path, clock: Clock) -> None:
    async def go() -> None:
        with ScriptedModel() as model:
            async with PretendGateway(db, home, model) as here:
                await ask(here, "/remind in 20 minutes my secret")
                number = only(db).id
                assert "secret" not in await ask(here, "/cron", FRIEND)
                for verb in ("show", "pause", "run", "remove", "ledger"):
                    assert "/cron lists them." in await ask(here, f"/cron {verb} {number}", FRIEND)
                assert only(db).state == "active"

    asyncio.run(go())


def test_a_paused_or_removed_job_does_not_run(db: SessionDB, home: Path, clock: Clock) -> None:
    async def go() -> None:
        with ScriptedModel() as model:
            async with PretendGateway(db, home, model) as here:
                await ask(here, "/cron add every day at 8 The news.")
                await ask(here, f"/cron pause {only(db).id[:6]}")
                clock.set(MORNING + 10)
                await tick(here)
                assert outcomes(db) == []
                assert "next Wed 23 Sep 08:00" in await ask(here, "/cron resume the news.")
                await ask(here, "/cron remove the news.")
                clock.advance(86_400)
                await tick(here)
                assert outcomes(db) == [] and not db.jobs.list(done=True)

    asyncio.run(go())


def test_the_model_makes_a_job_and_its_words_are_no_commands(db: SessionDB, home: Path, clock: Clock) -> None:
    async def go() -> None:
        made = call("cronjob", {"action": "add", "schedule": "tomorrow at 8", "prompt": "/stop", "name": "odd"})
        with ScriptedModel(say(calls=[made]), say("Done."), say("It says /stop.")) as model:
            async with PretendGateway(db, home, model) as here:
                await ask(here, "do it tomorrow")
                await here.until(lambda: "Done." in here.chat.chat(OWNER))
                result = model.requests[1].json["messages"][-1]["content"]
                assert "once, Wed 23 Sep 2026 08:00" in result and "telegram:42" in result
                clock.set(MORNING + 86_400)
                await tick(here)
                await here.until(lambda: "[odd]\nIt says /stop." in here.chat.chat(OWNER))

    asyncio.run(go())


def test_a_job_without_a_chat_keeps_its_answer_in_its_conversation(db: SessionDB, home: Path, clock: Clock) -> None:
    async def go() -> None:
        with ScriptedModel(say("All is well.")) as model:
            async with PretendGateway(db, home, model) as here:
                config, owner = configuration.load(home), db.people.owner()
                address = jobs.address_for(db, config, owner, None)
                assert (address.platform, owner.id) == ("local", LOCAL_OWNER)
                jobs.make(db, config, owner, JobRequest(schedule="every day at 8", prompt="Look."), address)
                clock.set(MORNING)
                await tick(here)
                (row,) = db.jobs.ledger()
                assert row.session_id is not None and row.outcome == "answered"
                assert db.get_messages(row.session_id)[-1]["content"] == "All is well."
                assert not here.chat.messages and not db.outbox.list()

    asyncio.run(go())


def test_a_second_run_waits_for_the_first(db: SessionDB, home: Path, clock: Clock) -> None:
    async def go() -> None:
        with ScriptedModel(say("one", delay=0.5), say("two")) as model:
            async with PretendGateway(db, home, model, display={"busy_input_mode": "steer"}) as here:
                await ask(here, "/cron add every hour Look.")
                job = only(db)
                assert jobs.run_now(db, job)
                clock.advance(5)
                assert jobs.run_now(db, job)
                await here.until(lambda: outcomes(db) == ["answered", "answered"])
                assert len({row.session_id for row in db.jobs.ledger()}) == 2
                assert lane_of(job.id) not in here.parts.services.store._entries

    asyncio.run(go())


def test_rows_that_cannot_be_read_stop_no_other_job(db: SessionDB, home: Path, clock: Clock) -> None:
    async def go() -> None:
        async with PretendGateway(db, home, ScriptedModel()) as here:
            for minutes in (20, 21, 22):
                await ask(here, f"/remind in {minutes} minutes the pizza {minutes}")
            one, two, _ = sorted(db.jobs.list(), key=lambda job: job.name)
            _spoil(db, one, "kind = 'interval', expression = '0@1'")
            _spoil(db, two, 'address = \'{"chat_id": "42"}\'')
            clock.advance(1_330)
            await tick(here)
            told, reminded = here.chat.chat(OWNER)[3:]
            assert "“the pizza 20” is paused" in told and reminded == "the pizza 22"
            assert sorted(job.state for job in db.jobs.list(done=True)) == ["done", "paused", "paused"]

    asyncio.run(go())


def _spoil(db: SessionDB, job: Job, what: str) -> None:
    db.engine.write(lambda conn: conn.run(f"UPDATE jobs SET {what} WHERE id = ?", (job.id,)))


def test_a_clock_that_was_wrong_for_a_moment_delays_no_job(db: SessionDB, home: Path, clock: Clock) -> None:
    async def go() -> None:
        with ScriptedModel(say("Rain."), say("Sun.")) as model:
            async with PretendGateway(db, home, model) as here:
                await ask(here, "/cron add every day at 8 Tell me the weather.")
                scheduler = Scheduler(here.parts.services, here.parts.deliverer.wake)
                clock.set(MORNING + 1)
                await scheduler.tick()
                await here.until(lambda: outcomes(db) == ["answered"])
                clock.set(MORNING + 3_650.3 * 86_400)
                await scheduler.tick()
                clock.set(MORNING + 60)
                await scheduler.tick()
                assert only(db).next_at == MORNING + 86_400
                clock.set(MORNING - 600)
                await scheduler.tick()
                clock.set(MORNING + 61)
                await tick(here)
                assert outcomes(db).count("answered") == 1, "an instant that has an outcome keeps it"
                clock.set(MORNING + 86_401)  # this one is missed already
                await tick(here)
                clock.set(MORNING + 2 * 86_400 + 1)
                await tick(here)
                assert outcomes(db) == ["answered", "missed", "answered"]

    asyncio.run(go())


def test_what_is_held_back_was_not_sent_to_the_chat(db: SessionDB, home: Path, clock: Clock) -> None:
    async def go() -> None:
        with ScriptedModel(say("Secret plans."), say("Hello.")) as model:
            async with PretendGateway(db, home, model) as here:
                await ask(here, "/cron add every day at 8 Tell me the plans.")
                db.held_answers.hold_chat("telegram", OWNER, True, by=None)
                clock.set(MORNING + 1)
                await tick(here)
                (item,) = db.held_answers.list()
                db.held_answers.decide(item.id, "drop", by="Ada")
                db.held_answers.hold_chat("telegram", OWNER, False, by=None)
                await ask(here, "hello")
                read = model.requests[-1].json["messages"][-1]["content"]
                assert "scheduled jobs sent" not in read

    asyncio.run(go())


def test_the_notice_of_many_long_reminders_is_short(db: SessionDB, home: Path, clock: Clock) -> None:
    async def go() -> None:
        async with PretendGateway(db, home, ScriptedModel()) as here:
            for number in range(5):
                await ask(here, f"/remind in 20 minutes {number} {'word ' * 3_000}")
            clock.advance(86_400)
            before = len(here.chat.messages)
            await tick(here)
            (told,) = here.chat.messages[before:]
            assert told.text.startswith("I was offline and missed:") and len(told.text) < 1_500

    asyncio.run(go())


def test_a_schedule_that_cannot_be_read_pauses_its_job_alone(db: SessionDB, home: Path, clock: Clock) -> None:
    async def go() -> None:
        with ScriptedModel() as model:
            async with PretendGateway(db, home, model) as here:
                config, owner = configuration.load(home), db.people.owner()
                address = jobs.address_for(db, config, owner, None, to="telegram:42", any_chat=True)
                for name, zone in (("lost", "Mars/Olympus"), ("fine", "UTC")):
                    schedule = Schedule("interval", f"3600@{int(MORNING)}", zone, "hourly")
                    job = jobs.make(db, config, owner, JobRequest(schedule=schedule, text=name, name=name), address)
                    if name == "lost":
                        db._execute_write(
                            lambda conn, job=job: conn.run(
                                "UPDATE jobs SET kind = 'cron', expression = '0 * * * *' WHERE id = ?", (job.id,)
                            )
                        )
                clock.set(MORNING)
                await tick(here)
                said = here.chat.chat(OWNER)
                assert "“lost” is paused: it cannot be scheduled" in said[0] and "Mars/Olympus" in said[0]
                assert said[1:] == ["fine"]
                assert {job.name: job.state for job in db.jobs.list()} == {"lost": "paused", "fine": "active"}

    asyncio.run(go())
