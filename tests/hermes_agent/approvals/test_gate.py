"""The one way to permission: what it asks, whom it believes, and what stays denied."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from hermes_agent.approvals.base import ApprovalQuestion, Choice, Yolo
from hermes_agent.approvals.gate import CommandGate
from hermes_agent.approvals.policy import read_policy
from hermes_agent.tools.base import Action, Verdict
from hermes_cli.main import main
from hermes_state.errors import StaleFence
from hermes_state.ids import ConversationId, PersonId, TurnId
from hermes_state.session_db import SessionDB
from hermes_testing.clock import Clock
from hermes_testing.plugins import plugin_home
from hermes_testing.processes import Worker

from .test_judge import lines

CHAT, OTHER_CHAT = ConversationId("c1"), ConversationId("c2")
ANA, BEN, OWNER = PersonId("ana"), PersonId("ben"), PersonId("owner")
WORKDIR = "/home/ada/project"
RM = "rm -r build"


class Person:
    """An approver that says what it is told to, and remembers what it was asked."""

    def __init__(self, *answers: Choice) -> None:
        self.answers = list(answers)
        self.asked: list[ApprovalQuestion] = []

    async def ask(self, question: ApprovalQuestion) -> Choice:
        self.asked.append(question)
        return self.answers.pop(0) if self.answers else "deny"


def gate(
    db: SessionDB, approver: Any = None, *, config: Mapping[str, Any] | None = None, turn: str = "t1",
    chat: ConversationId = CHAT, person: PersonId | None = ANA, yolo: bool = False, fence: int | None = None,
) -> CommandGate:  # fmt: skip
    return CommandGate(
        db=db, home=Path("/home/ada/.hermes"), config=config or {}, conversation_id=chat, turn_id=TurnId(turn),
        person_id=person, approver=approver, approver_id=OWNER, yolo=Yolo(yolo), fence=fence, platform="cli",
    ).for_call("call_1")  # fmt: skip


def permit(made: CommandGate, text: str = RM, *, kind: str = "command", workdir: str = WORKDIR) -> Verdict:
    return asyncio.run(made.permit(Action(kind, text, workdir)))


@pytest.fixture(autouse=True)
def at_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")


class TestTheTable:
    def test_with_a_person_there(self, db: SessionDB) -> None:
        for number, (level, command) in enumerate(lines()):
            person = Person("once")
            verdict = permit(gate(db, person, turn=f"t{number}"), command)
            assert verdict.allowed == (level != "never"), command
            assert len(person.asked) == (level not in ("run", "never")), command

    def test_with_nobody_there(self, db: SessionDB) -> None:
        for level, command in lines():
            verdict = permit(gate(db, None), command)
            assert verdict.allowed == (level == "run"), command
            assert verdict.allowed or "not retry" in verdict.reason

    @pytest.mark.parametrize("switch", [{"yolo": True}, {"config": {"approvals": {"mode": "off"}}}])
    def test_without_questions_the_floor_holds(self, db: SessionDB, switch: dict[str, Any]) -> None:
        for level, command in lines():
            assert permit(gate(db, Person(), **switch), command).allowed == (level != "never"), command
        assert db.approvals.pending() == ()


class TestRules:
    @pytest.mark.parametrize("mode", ["manual", "smart", "nonsense", None, True, 7])
    def test_every_mode_but_off_asks(self, db: SessionDB, mode: Any) -> None:
        assert not permit(gate(db, None, config={"approvals": {"mode": mode}})).allowed

    @pytest.mark.parametrize("mode", ["off", False, " OFF "])
    def test_off_does_not(self, db: SessionDB, mode: Any) -> None:
        assert permit(gate(db, None, config={"approvals": {"mode": mode}})).allowed

    def test_deny_rules_hold_under_yolo_and_against_disguises(self, db: SessionDB) -> None:
        config = {"approvals": {"deny": ["git push*", "*/secret-plans*"], "mode": "off"}}
        refused = (
            "git push origin",
            "git  push",
            "x=push; env g'it' $x --force",
            "true; git push",
            "cat /a/secret-plans",
        )
        for command in refused:
            verdict = permit(gate(db, Person("always"), config=config, yolo=True), command)
            assert not verdict.allowed and "approvals.deny" in verdict.reason, command
        assert permit(gate(db, None, config=config), "git status").allowed

    def test_ask_rules_take_back_what_is_harmless(self, db: SessionDB) -> None:
        person = Person("once")
        made = gate(db, person, config={"approvals": {"ask": ["python *"]}})
        assert permit(made, "python x.py").allowed and permit(made, "ls").allowed
        assert [question.command for question in person.asked] == ["python x.py"]
        assert "approvals.ask" in person.asked[0].why

    def test_the_old_allowlist(self, db: SessionDB) -> None:
        config = {"command_allowlist": ["rm -r build", "terraform plan*", "rm *"]}
        assert permit(gate(db, None, config=config), "rm -r build").allowed, "an exact entry"
        assert permit(gate(db, None, config=config), "frob; terraform plan").allowed is False
        assert not permit(gate(db, None, config=config), "rm -r other").allowed, "a pattern does not allow a danger"
        assert not permit(gate(db, None, config=config), "terraform plan > /etc/motd").allowed
        assert not permit(gate(db, None, config={"command_allowlist": ["*"]}), "rm -rf /").allowed
        assert permit(gate(db, None, config={"command_allowlist": ["frob*"]}), "frobnicate --all").allowed

    def test_what_is_not_taken_as_written_is_said(self) -> None:
        notes = read_policy(
            {"approvals": {"mode": "smart", "timeout": "soon", "deny": [1]}, "command_allowlist": "ls"}
        ).notes
        assert [note.split()[0] for note in notes] == ["approvals.mode", "approvals.timeout", "approvals.deny"]
        assert read_policy({"approvals": ["mode"]}).notes and not read_policy({}).notes

    def test_config_check_says_so(self, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
        home.mkdir()
        (home / "config.yaml").write_text("approvals:\n  mode: smart\n")
        assert main(["config", "check"]) == 0
        assert "approvals.mode smart is read as manual" in capsys.readouterr().out


class TestAnswers:
    def test_the_question_says_everything(self, db: SessionDB, clock: Clock) -> None:
        person = Person("deny")
        verdict = permit(gate(db, person, config={"approvals": {"timeout": 45}}))
        (asked,) = person.asked
        assert (asked.command, asked.workdir, asked.person_id, asked.call_id) == (RM, WORKDIR, ANA, "call_1")
        assert "deletes" in asked.why and asked.expires_at == clock() + 45 and asked.seconds == 45
        assert asked.choices == ("once", "session", "always", "deny")
        assert not verdict.allowed and "said no" in verdict.reason and "not retry" in verdict.reason

    def test_once_is_once(self, db: SessionDB) -> None:
        person = Person("once", "once", "deny")
        made = gate(db, person)
        assert [permit(made).allowed for _ in range(3)] == [True, True, False]
        assert len(person.asked) == 3
        assert not permit(made).allowed and len(person.asked) == 3, "a denial holds for the rest of the turn"

    def test_session_holds_for_this_person_this_chat_this_exact_call(self, db: SessionDB) -> None:
        assert permit(gate(db, Person("session"))).allowed
        assert permit(gate(db, None, turn="t2")).allowed
        assert not permit(gate(db, None, turn="t2"), RM + " ").allowed
        assert not permit(gate(db, None, turn="t2"), workdir="/home/ada/other").allowed
        assert not permit(gate(db, None, turn="t2", chat=OTHER_CHAT)).allowed
        assert not permit(gate(db, None, turn="t2", person=BEN)).allowed
        assert not permit(gate(db, None, turn="t2", person=None)).allowed

    def test_always_holds_in_every_chat_until_revoked(self, db: SessionDB) -> None:
        assert permit(gate(db, Person("always"))).allowed
        assert permit(gate(db, None, turn="t2", chat=OTHER_CHAT)).allowed
        assert not permit(gate(db, None, turn="t2", chat=OTHER_CHAT, person=BEN)).allowed
        (rule,) = db.approvals.rules(ANA)
        db.approvals.revoke(rule.id)
        assert not permit(gate(db, None, turn="t3")).allowed

    def test_somebody_unknown_has_no_standing_rules(self, db: SessionDB) -> None:
        person = Person("always")
        assert permit(gate(db, person, person=None)).allowed, "less than was meant: this once"
        assert person.asked[0].choices == ("once", "deny")
        assert not permit(gate(db, None, person=None, turn="t2")).allowed

    @pytest.mark.parametrize("answer", ["yes", "", None, 1])
    def test_an_answer_nobody_understands_is_a_denial(self, db: SessionDB, answer: Any) -> None:
        assert not permit(gate(db, Person(answer))).allowed

    def test_an_approver_that_fails_is_a_denial(self, db: SessionDB, caplog: pytest.LogCaptureFixture) -> None:
        class Broken:
            async def ask(self, question: ApprovalQuestion) -> Choice:
                raise OSError(f"cannot show {question.command}")

        assert not permit(gate(db, Broken())).allowed
        assert "OSError" in caplog.text and RM not in caplog.text

    def test_silence_is_a_denial_and_leaves_a_question_that_lapses(self, db: SessionDB, clock: Clock) -> None:
        class Silent:
            async def ask(self, question: ApprovalQuestion) -> Choice:
                await asyncio.sleep(60)
                return "always"

        verdict = permit(gate(db, Silent(), config={"approvals": {"timeout": 0.05}}))
        assert not verdict.allowed and "in time" in verdict.reason
        clock.advance(1)
        assert [row.state for row in db.approvals.lapse()] == ["lapsed"]

    def test_an_answer_that_comes_too_late_counts_for_nothing(self, db: SessionDB, clock: Clock) -> None:
        class Late:
            async def ask(self, question: ApprovalQuestion) -> Choice:
                clock.advance(61)
                return "always"

        assert not permit(gate(db, Late())).allowed
        assert not permit(gate(db, None, turn="t2")).allowed

    def test_a_plugin_can_ask_for_a_person(self, db: SessionDB) -> None:
        person = Person("once")
        made = gate(db, person).for_call("call_2", extra_reasons=("the plug-in wants to know",))
        assert permit(made, "ls").allowed and person.asked[0].why == "the plug-in wants to know"
        assert permit(gate(db, None), "ls").allowed

    def test_one_question_at_a_time(self, db: SessionDB) -> None:
        open_now: list[int] = []

        class Slow(Person):
            async def ask(self, question: ApprovalQuestion) -> Choice:
                open_now.append(1)
                await asyncio.sleep(0.02)
                assert len(open_now) == 1
                open_now.pop()
                return await super().ask(question)

        person = Slow("once", "once", "deny")
        made = gate(db, person)

        async def together() -> list[Verdict]:
            calls = [made.for_call(f"call_{n}").permit(Action("command", RM, WORKDIR)) for n in range(3)]
            return await asyncio.gather(*calls)

        assert sorted(verdict.allowed for verdict in asyncio.run(together())) == [False, True, True]
        assert len(person.asked) == 3, "each of three equal calls needs its own leave"


class TestRows:
    def test_a_question_is_found_again_after_a_restart(self, db: SessionDB, reopen: Callable[..., SessionDB]) -> None:
        class Killed:
            async def ask(self, question: ApprovalQuestion) -> Choice:
                raise asyncio.CancelledError

        with pytest.raises(asyncio.CancelledError):
            permit(gate(db, Killed()))
        (pending,) = db.approvals.pending()
        db = reopen(db)
        person = Person("once")
        assert permit(gate(db, person)).allowed
        assert [question.id for question in person.asked] == [pending.id]

    def test_leave_given_while_the_turn_was_away_is_used(self, db: SessionDB, reopen: Callable[..., SessionDB]) -> None:
        asked = asyncio.run(_left_open(db))
        db = reopen(db)
        assert db.approvals.decide(asked, "once", approver_id=OWNER) is not None
        assert permit(gate(db, None)).allowed
        assert not permit(gate(db, None)).allowed

    def test_a_question_that_lapsed_over_a_restart_stays_denied(self, db: SessionDB, clock: Clock) -> None:
        asyncio.run(_left_open(db))
        clock.advance(61)
        person = Person("once")
        assert not permit(gate(db, person)).allowed and person.asked == []
        assert permit(gate(db, person, turn="t2")).allowed, "the next turn may ask again"

    def test_another_surface_may_answer(self, db: SessionDB, make_db: Callable[..., SessionDB]) -> None:
        elsewhere = make_db()

        class Shown:
            async def ask(self, question: ApprovalQuestion) -> Choice:
                await asyncio.to_thread(elsewhere.approvals.decide, question.id, "session", approver_id=OWNER)
                await asyncio.sleep(60)
                return "deny"

        assert permit(gate(db, Shown())).allowed
        assert permit(gate(db, None, turn="t2")).allowed

    def test_an_overtaken_turn_gets_nothing(self, db: SessionDB, clock: Clock) -> None:
        old = db.leases.acquire(CHAT, holder="a", ttl=10)
        clock.advance(11)
        new = db.leases.acquire(CHAT, holder="b", ttl=10)
        assert old is not None and new is not None
        with pytest.raises(StaleFence):
            permit(gate(db, Person("always"), fence=old.fence))
        assert permit(gate(db, Person("once"), fence=new.fence)).allowed

    def test_two_processes_cannot_use_one_leave_twice(self, db: SessionDB, address: str | Path) -> None:
        asked = asyncio.run(_left_open(db))
        db.approvals.decide(asked, "once", approver_id=OWNER)
        script = Path(__file__).parent / "workers" / "use_leave.py"
        with Worker(script, address, RM, WORKDIR) as one, Worker(script, address, RM, WORKDIR) as two:
            assert (one.line(), two.line()) == ("ready", "ready")
            one.go()
            two.go()
            assert sorted([*one.finish(), *two.finish()]) == ["allowed", *["denied"] * 7]


async def _left_open(db: SessionDB) -> str:
    """A turn that went away while its question was open."""
    shown: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    class Waiting:
        async def ask(self, question: ApprovalQuestion) -> Choice:
            shown.set_result(question.id)
            await asyncio.sleep(60)
            return "deny"

    waiting = asyncio.ensure_future(gate(db, Waiting()).permit(Action("command", RM, WORKDIR)))
    asked = await shown
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    return asked


def test_a_call_that_runs_elsewhere_does_not_take_its_workspace_along(db: SessionDB) -> None:
    made = CommandGate(
        db=db, home=Path("/home/ada/.hermes"), config={}, conversation_id=CHAT, turn_id=TurnId("t1"), person_id=ANA,
        approver=None, workspace=Path(WORKDIR),
    )  # fmt: skip
    assert permit(made, "touch x").allowed and permit(made, "touch x", workdir=f"{WORKDIR}/sub").allowed
    assert permit(made, "ls", workdir="/home/bob").allowed
    assert not permit(made, "touch x", workdir="/home/bob").allowed
    assert permit(made, "python x.py", workdir="/home/bob").allowed, "it runs confined"
    assert not permit(made, "/home/bob/x", kind="write", workdir="/home/bob").allowed


class TestFiles:
    @pytest.mark.parametrize(
        ("path", "level"),
        [
            (f"{WORKDIR}/src/a.py", "harmless"),
            ("/home/ada/.hermes/workspace/a.txt", "harmless"),
            ("/home/ada/notes.txt", "ask"),
            ("/etc/hosts", "ask"),
            ("/home/ada/.bashrc", "ask"),
            ("/home/ada/.ssh/authorized_keys", "ask"),
            (f"{WORKDIR}/.envrc", "ask"),
            (f"{WORKDIR}/.git/hooks/pre-commit", "ask"),
            ("/home/ada/.hermes/config.yaml", "never"),
            ("/home/ada/.hermes/state.db", "never"),
            ("/home/ada/.hermes/state.db-wal", "never"),
            ("/dev/sda", "never"),
        ],
    )
    def test_writes_are_judged_by_where_they_go(self, db: SessionDB, path: str, level: str) -> None:
        person = Person("once")
        assert permit(gate(db, person), path, kind="write").allowed == (level != "never")
        assert len(person.asked) == (level == "ask")
        assert permit(gate(db, None, yolo=True), path, kind="write").allowed == (level != "never")

    def test_leave_to_write_is_for_what_is_written(self, db: SessionDB) -> None:
        made = gate(db, Person("always"))
        first, second = (Action("write", "/etc/hosts", WORKDIR, detail) for detail in ("+ a", "+ b"))
        assert asyncio.run(made.permit(first)).allowed and asyncio.run(made.permit(first)).allowed
        assert not asyncio.run(made.permit(second)).allowed

    @pytest.mark.parametrize("kind", ["read", "network", "plugin", "anything"])
    def test_what_is_neither_command_nor_write_asks(self, db: SessionDB, kind: str) -> None:
        assert not permit(gate(db, None), "x", kind=kind).allowed
        assert permit(gate(db, Person("once")), "x", kind=kind).allowed


def test_plugins_hear_of_questions_and_answers(db: SessionDB, home: Path, tmp_path: Path) -> None:
    heard = tmp_path / "heard"
    code = f"""
    def note(name):
        def said(**facts):
            with open({str(heard)!r}, "a") as out:
                print(name, facts["command"], facts["surface"], facts.get("choice"), file=out)
        return said

    def register(ctx):
        for name in ("pre_approval_request", "post_approval_response"):
            ctx.register_hook(name, note(name))
    """
    with plugin_home(home) as plugged:
        plugged.add("ear", code)
        plugged.load("ear")
        permit(gate(db, Person("once")))
        permit(gate(db, Person()), "ls")
    assert heard.read_text().splitlines() == [
        f"pre_approval_request {RM} cli None",
        f"post_approval_response {RM} cli once",
    ]


class TestALostProcess:
    """What a turn that is taken up may believe of a call that had been started."""

    @pytest.mark.parametrize(
        ("answer", "waiting"),
        [
            pytest.param(None, True, id="still open"),
            pytest.param("deny", True, id="denied: nothing was done"),
            pytest.param("once", False, id="allowed once and used: nobody knows"),
            pytest.param("session", False, id="a standing rule may have served: nobody knows"),
        ],
    )
    def test_a_call_that_only_asked_had_not_begun(self, db: SessionDB, answer: Choice | None, waiting: bool) -> None:
        class Silent:
            async def ask(self, question: ApprovalQuestion) -> Choice:
                await asyncio.sleep(60)
                raise AssertionError("the process is lost before")

        made = gate(db, Silent() if answer is None else Person(answer)).for_call("call_1", mark="7:0")

        async def go() -> None:
            asking = asyncio.ensure_future(made.permit(Action("command", RM, WORKDIR)))
            await asyncio.wait({asking}, timeout=0.3 if answer is None else None)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            assert await made.was_waiting("7:0") is waiting
            assert not await made.was_waiting("9:0"), "another call, whatever the provider calls it"
            assert not await made.was_waiting("")

        asyncio.run(go())
