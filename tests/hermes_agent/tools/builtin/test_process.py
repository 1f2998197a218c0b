"""Background commands: what the model can do with them, their limits, and that nothing is left of them."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_agent import processes
from hermes_agent.approvals.gate import CommandGate
from hermes_agent.approvals.types import ApprovalQuestion, Choice
from hermes_agent.execution import executor
from hermes_agent.tools.builtin import terminal
from hermes_config.config import of as config_of
from hermes_state.ids import ConversationId, PersonId, TurnId, new_child_ids
from hermes_state.turns.processes import ProcessRow

from ..conftest import Bench

pytestmark = pytest.mark.slow

SANDBOXES = ("bubblewrap", "landlock", "host")
BEAT = "while :; do echo $((n+=1)) > beat; sleep 0.02; done"
UNTIL_GO = "until [ -e go ]; do sleep 0.02; done"
"""Part of a command that runs until the test says `go`."""


@pytest.fixture(params=SANDBOXES)
def confined(request: pytest.FixtureRequest, bench: Bench) -> Bench:
    """The bench behind each sandbox."""
    if request.param != "host":
        executor.find(request.param)
    return bench.with_(config=config_of(bench.ctx.home, {"executor": request.param}))


@pytest.fixture(autouse=True)
def nothing_runs_on(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Clean up; and a command that is to run on is not watched for a whole second first."""
    monkeypatch.setattr(terminal, "_FIRST_SECONDS", 0.1)
    yield
    for folder in (bench.ctx.home / "processes").glob("*"):
        shutil.rmtree(folder)  # its supervisor notices that


def begun(bench: Bench, command: str, **args: object) -> ProcessRow:
    """Start a command that does not end at once; its row."""
    said = bench.call("terminal", command=command, background=True, **args).content
    found = re.search(r"runs in the background as (proc_[0-9a-f]{8})", said)
    assert found is not None, said
    row = bench.ctx.db.processes.get(found[1])
    assert row is not None
    return row


def go(bench: Bench) -> None:
    (bench.workdir / "go").touch()


def until(seen: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not seen():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def ended(bench: Bench, row: ProcessRow, seconds: float = 15) -> ProcessRow:
    row = processes.wait(bench.ctx.db, bench.ctx.home, row, seconds=seconds)
    assert not row.running
    return row


def supervisor_of(row: ProcessRow) -> int:
    assert row.supervisor is not None
    return int(row.supervisor.partition("/")[0])


def is_still(beat: Path) -> bool:
    seen = beat.read_text()
    time.sleep(0.4)
    return beat.read_text() == seen


def notice(bench: Bench, row: ProcessRow) -> str:
    found = bench.ctx.db.processes.notice(row)
    return "" if found is None or found.payload is None or found.state != "queued" else str(found.payload["text"])


def test_it_runs_on_and_its_output_exit_code_and_notice_are_whole(confined: Bench) -> None:
    row = begun(confined, f"echo line 1; {UNTIL_GO}; for i in $(seq 2 20); do echo line $i; done; exit 7")
    assert row.wall == confined.ctx.config.executor
    until(lambda: processes.read(confined.ctx.home, row.id, most=1).size)
    read = confined.call("process", action="read", id=row.id).content
    assert read.startswith("line 1\n") and "running" in read
    go(confined)
    row = ended(confined, row)
    assert (row.state, row.exit_code) == ("exited", 7)
    text = "".join(f"line {i}\n" for i in range(1, 21))
    assert processes.read(confined.ctx.home, row.id, most=1 << 20).data.decode() == text
    assert row.output_bytes == len(text)
    assert re.search(rf"\[Background process {row.id}: exit code 7, after \d+\.\d s", notice(confined, row))
    assert notice(confined, row).endswith("line 19\nline 20")
    assert confined.gate.asked[0].text.startswith("echo line 1; until")


def test_what_ends_at_once_is_told_at_once_and_only_there(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "_FIRST_SECONDS", 15.0)
    result = bench.call("terminal", command="echo oh no; exit 2", background=True)
    assert result.is_error and "oh no\n[exit code 2]" in result.content
    (row,) = bench.ctx.db.processes.newest()
    assert notice(bench, row) == ""


def test_a_command_that_was_not_approved_leaves_nothing(bench: Bench) -> None:
    bench.gate.refuses = ("command",)
    assert bench.call("terminal", command="echo 1", background=True).is_error
    assert not (bench.ctx.home / "processes").exists() and not bench.ctx.db.processes.newest()


def test_input_is_written_and_closed(confined: Bench) -> None:
    row = begun(confined, "while read -r line; do echo got $line; done; echo the end")
    assert confined.call("process", action="write", id=row.id, text="ünö\nzwei\n").content == "Sent."
    large = "x" * 50_000
    assert confined.call("process", action="write", id=row.id, text=f"{large}\n", close=True).content == "Sent."
    row = ended(confined, row)
    data = processes.read(confined.ctx.home, row.id, most=1 << 20).data.decode()
    assert data == f"got ünö\ngot zwei\ngot {large}\nthe end\n"
    assert "has ended" in confined.call("process", action="write", id=row.id, text="x").content


class Person:
    """An approver that gives these answers, then denies, and remembers what it was asked."""

    def __init__(self, *answers: Choice) -> None:
        self.answers = list(answers)
        self.asked: list[ApprovalQuestion] = []

    async def ask(self, question: ApprovalQuestion) -> Choice:
        self.asked.append(question)
        return self.answers.pop(0) if self.answers else "deny"


def gated(bench: Bench, person: Person) -> Bench:
    """The bench with the real gate and a sandbox."""
    ctx, sandbox = bench.ctx, executor.find("confined").sandbox
    gate = CommandGate(
        db=ctx.db, home=ctx.home, config=ctx.config, sandbox=sandbox, conversation_id=ctx.conversation_id,
        turn_id=ctx.turn_id, person_id=ctx.person_id, approver=person, workspace=ctx.workdir,
    )  # fmt: skip
    return bench.with_(gate=gate.for_call("call_1"))


def test_what_a_process_outside_the_sandbox_reads_is_asked_about_each_time(bench: Bench) -> None:
    person = Person("session", "session")
    asked = gated(bench, person)
    row = begun(asked, "bash", outside=True)
    other = begun(asked, "bash", outside=True)  # the same command: the person has allowed it
    assert asked.call("process", action="write", id=row.id, text="echo one > one\n").content == "Sent."
    assert f"as input of the background process {row.id} (outside the sandbox): bash" in person.asked[-1].detail
    assert asked.call("process", action="write", id=row.id, text="echo two > one\n").is_error
    refused = asked.call("process", action="write", id=other.id, text="echo one > one\n")  # another reader
    assert refused.is_error and refused.content.startswith("Nothing was sent: it was not approved")
    assert [one.command for one in person.asked] == ["bash", "echo one > one\n", "echo two > one\n", "echo one > one\n"]
    for one in (row, other):
        assert asked.call("process", action="write", id=one.id, close=True).content == "Its input is closed."
        assert ended(asked, one).exit_code == 0
    assert (bench.workdir / "one").read_text() == "one\n"


def test_what_a_confined_process_reads_is_asked_about_only_if_its_sandbox_was_opened(bench: Bench) -> None:
    person = Person("once")
    asked = gated(bench, person)
    confined = begun(asked, "cat")
    assert asked.call("process", action="write", id=confined.id, text="hello\n").content == "Sent."
    assert not person.asked and confined.opening == ""
    opened = begun(asked, "curl -m 0.1 http://192.0.2.1/; cat")
    assert opened.opening == "network" and len(person.asked) == 1
    assert asked.call("process", action="write", id=opened.id, text="hello\n").is_error


@pytest.mark.parametrize("sandbox", ["landlock", "host"])  # bubblewrap itself keeps the input open
def test_closed_input_is_noticed(bench: Bench, sandbox: str) -> None:
    bench = bench.with_(config=config_of(bench.ctx.home, {"executor": sandbox}))
    row = begun(bench, "exec <&-; sleep 60")
    assert "has closed its input" in bench.call("process", action="write", id=row.id, text="x").content


def test_input_that_is_not_read_does_not_stop_a_kill(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_FULL_MS", 300)
    row = begun(bench, "sleep 60")
    said = bench.call("process", action="write", id=row.id, text="x" * 500_000).content
    assert "does not read its input" in said
    assert bench.call("process", action="kill", id=row.id).content.startswith("(no output)")


def test_kill_ends_everything_also_a_daemon_that_ignores_it(confined: Bench) -> None:
    daemon = f"trap '' TERM HUP; cd {confined.workdir}; {BEAT}"
    row = begun(confined, f"(setsid bash -c \"{daemon.replace('$', chr(92) + '$')}\" &) ; trap '' TERM; sleep 600")
    until((confined.workdir / "beat").exists)
    result = confined.call("process", action="kill", id=row.id)
    assert f"{row.id}: killed" in result.content
    assert is_still(confined.workdir / "beat")
    found = confined.ctx.db.processes.get(row.id)
    assert found is not None and found.state == "killed" and notice(confined, found) == ""


@pytest.mark.parametrize("victim", ["supervisor", "keeper"])
def test_a_killed_supervisor_takes_the_command_along_and_the_row_says_lost(confined: Bench, victim: str) -> None:
    daemon = f"trap '' TERM HUP; cd {confined.workdir}; {BEAT}"
    row = begun(confined, f'(setsid bash -c "{daemon.replace("$", chr(92) + "$")}" &) ; sleep 600')
    until((confined.workdir / "beat").exists)
    pid = supervisor_of(row)
    if victim == "keeper":
        pid = int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
    os.kill(pid, signal.SIGKILL)
    row = ended(confined, row)
    assert row.state == "lost"
    assert is_still(confined.workdir / "beat")
    assert f"{row.id}: lost" in notice(confined, row)


def test_it_is_ended_when_its_time_is_up(confined: Bench) -> None:
    row = ended(confined, begun(confined, BEAT, timeout=1))
    assert row.state == "timed_out" and is_still(confined.workdir / "beat")
    assert "its time was up" in notice(confined, row)


def test_of_long_output_the_middle_is_dropped_and_marked(bench: Bench) -> None:
    bench.limited(process_output_bytes=64 * 1024)
    row = begun(bench, f"seq 1 200000; {UNTIL_GO}")
    go(bench)
    row = ended(bench, row, seconds=30)
    folder = bench.ctx.home / "processes" / row.id
    assert sum(file.stat().st_size for file in folder.glob("output.*")) <= 64 * 1024
    whole = sum(len(f"{i}\n") for i in range(1, 200_001))
    assert row.output_bytes == whole
    kept = processes.read(bench.ctx.home, row.id, offset=0, most=1 << 20)
    text = kept.data.decode()
    assert text.startswith("1\n2\n3\n") and text.endswith("199999\n200000\n") and "bytes were dropped here" in text
    assert len(re.sub(r"\n\[…[^]]*\]\n", "", text)) + kept.dropped == whole


def test_a_flood_is_slowed_down_and_does_not_stop_a_kill(bench: Bench) -> None:
    bench.limited(process_output_bytes=64 * 1024)
    row = begun(bench, "yes")
    time.sleep(1)
    began = time.monotonic()
    assert "killed" in bench.call("process", action="kill", id=row.id).content
    assert time.monotonic() - began < 6
    assert processes.read(bench.ctx.home, row.id, most=10).size < 64 << 20


def test_one_notice_however_many_look(bench: Bench) -> None:
    row = begun(bench, UNTIL_GO)
    go(bench)
    pid = supervisor_of(row)
    while Path(f"/proc/{pid}/task/{pid}/children").exists() and processes.process_identity.started(pid):
        time.sleep(0.02)
    together = [threading.Thread(target=processes.settle, args=(bench.ctx.db, bench.ctx.home)) for _ in range(8)]
    for one in together:
        one.start()
    for one in together:
        one.join()
    row = ended(bench, row)
    assert row.state == "exited" and "exit code 0" in notice(bench, row)
    assert bench.ctx.db.inbox.counts() == {"queued": 1}


def test_a_waiting_model_is_told_by_its_wait(bench: Bench) -> None:
    row = begun(bench, f"{UNTIL_GO}; echo ready")
    later = threading.Timer(0.3, go, [bench])
    later.start()
    result = bench.call("process", action="wait", id=row.id, timeout=30)
    later.join()
    assert "ready" in result.content and "exit code 0" in result.content
    assert notice(bench, row) == ""


def test_the_end_of_a_process_that_nobody_reads_of_leaves_no_row(bench: Bench) -> None:
    """A child of a job: only its call takes the result, and its lane has no later turn."""
    (child,) = new_child_ids(bench.ctx.db.clock(), 1)
    bench = bench.with_(conversation_id=ConversationId(child))
    row = begun(bench, UNTIL_GO)
    go(bench)
    row = ended(bench, row)
    assert not row.notify and bench.ctx.db.processes.notice(row) is None
    assert bench.ctx.db.inbox.queued_count() == 0


def test_without_notify_only_the_row_knows(bench: Bench) -> None:
    row = begun(bench, UNTIL_GO, notify=False)
    go(bench)
    row = ended(bench, row)
    assert row.state == "exited" and bench.ctx.db.processes.notice(row) is None


def test_only_its_conversation_and_its_person_reach_it(bench: Bench) -> None:
    row = begun(bench, "sleep 60")
    elsewhere = bench.with_(conversation_id=ConversationId("other"))
    assert row.id in elsewhere.call("process", action="list").content  # the same person
    stranger = elsewhere.as_person(PersonId("person_2"))
    for action in ("read", "write", "wait", "kill"):
        assert "There is no process" in stranger.call("process", action=action, id=row.id, text="x").content
    assert stranger.call("process", action="list").content == "There are no background processes."
    assert "There is no process" in bench.call("process", action="read", id="../../etc").content
    assert "killed" in elsewhere.call("process", action="kill", id=row.id).content


def test_a_person_has_only_so_many(bench: Bench) -> None:
    bench.limited(processes_per_person=2)
    rows = [begun(bench, "sleep 60") for _ in range(2)]
    refused = bench.call("terminal", command="echo 1", background=True)
    assert "limits.processes_per_person" in refused.content
    assert len(list((bench.ctx.home / "processes").iterdir())) == 2
    begun(bench.as_person(PersonId("person_2")), "sleep 60")
    for row in (*rows, *bench.ctx.db.processes.running()):
        processes.kill(bench.ctx.db, bench.ctx.home, row, quiet=True)
    assert bench.ctx.db.inbox.counts() == {}


def test_the_process_of_a_deleted_conversation_is_ended(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_NEW_SECONDS", 0.0)
    row = begun(bench, BEAT)
    until((bench.workdir / "beat").exists)
    bench.ctx.db.delete_session(bench.ctx.session_id())
    assert bench.ctx.db.processes.get(row.id) is None
    deadline = time.monotonic() + 15
    while (bench.ctx.home / "processes" / row.id / "lock").exists() and time.monotonic() < deadline:
        processes.settle(bench.ctx.db, bench.ctx.home)
        time.sleep(0.05)
    assert is_still(bench.workdir / "beat")


@pytest.mark.parametrize("sandbox", ["bubblewrap", "landlock"])
def test_a_confined_command_reaches_neither_its_folder_nor_its_supervisor(bench: Bench, sandbox: str) -> None:
    bench = bench.with_(config=config_of(bench.ctx.home, {"executor": sandbox}))
    victim = begun(bench, "sleep 60")
    pid, folder = supervisor_of(victim), bench.ctx.home / "processes"
    attack = f"""
        ls -R {folder}; cat {folder}/*/output.0; echo kill > {folder}/{victim.id}/control
        for f in {folder}/*/; do echo '{{"state":"exited","exit_code":0}}' > $f/status.json; rm -rf $f; done
        kill -9 {pid}; kill -9 $PPID; kill -9 -1; ls -l /proc/self/fd /proc/$PPID/fd
        for fd in 3 4 5 6 7 8 9 10 11 12; do echo x >&$fd; done; {UNTIL_GO}; exit 5"""
    row = begun(bench, attack)
    go(bench)
    row = ended(bench, row)
    assert (row.state, row.exit_code) == ("exited", 5) or row.state == "killed" or row.exit_code in (137, -9)
    same = bench.ctx.db.processes.get(victim.id)
    processes.settle(bench.ctx.db, bench.ctx.home)
    assert same is not None and same.running and (folder / victim.id / "control").exists()
    processes.kill(bench.ctx.db, bench.ctx.home, same, quiet=True)


def test_planted_files_are_undone_also_after_an_overlapping_command(bench: Bench, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    bench = bench.with_(config=config_of(bench.ctx.home, {"executor": "landlock"}), workdir=project)
    (bench.workdir / ".envrc").write_text("export GOOD=1\n")
    row = begun(bench, f"echo evil > .envrc; {UNTIL_GO}")
    until(lambda: (bench.workdir / ".envrc").read_text() == "evil\n")
    settling = threading.Thread(target=processes.wait, args=(bench.ctx.db, bench.ctx.home, row), kwargs={"seconds": 15})
    settling.start()
    # It ends during the next command, which must not take what was planted for the person's own.
    assert bench.call("terminal", command="touch go; sleep 1").content.startswith("(no output)")
    settling.join()
    row = ended(bench, row)
    assert (bench.workdir / ".envrc").read_text() == "export GOOD=1\n"
    assert not (bench.ctx.home / "processes" / row.id / "control").exists()
    assert not list((bench.ctx.home / "processes").glob("*/watch.*"))


def test_folders_without_a_row_and_above_the_limit_are_removed(bench: Bench) -> None:
    rows = [begun(bench, f"seq 1 200000; echo {i}; {UNTIL_GO}") for i in range(2)]
    go(bench)
    rows = [ended(bench, row) for row in rows]
    folder = bench.ctx.home / "processes"
    earlier = time.time() - 10
    os.utime(folder / rows[0].id, (earlier, earlier))  # they ended together
    bench.limited(processes_bytes=2 << 20)
    assert bench.ctx.db.processes.remove_folders(bench.ctx.home) == 1
    assert [one.name for one in folder.iterdir()] == [rows[1].id]
    bench.limited(process_days=1)
    bench.ctx.db.clock = lambda: time.time() + 3 * 86_400
    assert bench.ctx.db.processes.prune() == 2
    os.utime(folder / rows[1].id, (1, 1))
    assert bench.ctx.db.processes.remove_folders(bench.ctx.home) == 1
    assert not list(folder.iterdir())


@pytest.mark.parametrize(
    "record", [b"\x80\x05of another version", b'{"version": 99}', b'{"version": 1, "scope": {}}', b"[]"]
)
def test_a_record_of_another_version_stops_neither_commands_nor_the_end(bench: Bench, record: bytes) -> None:
    row = begun(bench, UNTIL_GO)
    (file,) = (bench.ctx.home / "processes" / row.id).glob("watch.*")
    file.write_bytes(record)
    assert not bench.call("terminal", command="touch go").is_error
    row = ended(bench, row)
    assert row.exit_code == 0 and "exit code 0" in notice(bench, row)


@pytest.mark.parametrize("key", ["wall", "sandbox"])
@pytest.mark.parametrize("sandbox", ["bubblewrap", "landlock"])
def test_a_gateway_older_than_the_supervisor_gets_its_sandbox(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, sandbox: str, key: str
) -> None:
    executor.find(sandbox)
    prepare, requests = executor.Executor.prepare, []

    def prepare_with_key(*args: Any, **options: Any) -> executor.PreparedCommand:
        prepared = prepare(*args, **options)
        prepared.request[key] = prepared.request.pop("sandbox")
        requests.append(prepared.request)
        return prepared

    monkeypatch.setattr(executor.Executor, "prepare", prepare_with_key)
    outside = tmp_path / "outside"
    bench = bench.with_(config=config_of(bench.ctx.home, {"executor": sandbox}))
    row = begun(bench, f"touch {outside}; echo here > inside; {UNTIL_GO}; exit 3")
    ((found,),) = [[(name, one[name]) for name in ("wall", "sandbox") if name in one] for one in requests]
    assert found == (key, sandbox)
    go(bench)
    row = ended(bench, row)
    assert (row.state, row.exit_code, row.trouble or "", row.wall) == ("exited", 3, "", sandbox)
    assert (bench.workdir / "inside").exists() and not outside.exists()


@pytest.mark.parametrize("word", ["wall", "sandbox"])
def test_the_report_of_an_older_supervisor_is_understood(bench: Bench, word: str) -> None:
    row = begun(bench, "sleep 60")
    os.kill(supervisor_of(row), signal.SIGKILL)
    report = {"state": "exited", "exit_code": 125, "trouble": f"{word}: no room", "output_bytes": 0, "ended_at": 1.0}
    (bench.ctx.home / "processes" / row.id / "status.json").write_text(json.dumps(report))
    row = ended(bench, row)
    assert "not run: its sandbox could not be set up" in notice(bench, row)
    assert "not run: its sandbox could not be set up" in bench.call("process", action="list").content


def test_what_is_not_ours_in_the_folder_harms_nothing_and_is_left_alone(bench: Bench) -> None:
    db, home = bench.ctx.db, bench.ctx.home
    row = begun(bench, "sleep 60")
    folder = home / "processes"
    (folder / "stray").write_text("a file")
    others, broken = folder / "proc_00000001", folder / "proc_00000002"
    for one, store in ((others, "elsewhere"), (broken, db.engine.where)):
        one.mkdir()
        (one / "store").write_text(store)
        (one / "lock").touch()
    (others / "control").touch()
    begin = {"conversation_id": bench.ctx.conversation_id, "turn_id": TurnId("t"), "call_id": "c", "person_id": None}
    place = {"machine": "here", "command": "x", "workdir": "/", "wall": "host", "address": None}
    db.processes.begin(broken.name, **begin, **place, notify=False, seconds=9)
    (broken / "status.json").write_text("[]")
    bench.call("process", action="kill", id=row.id)
    processes.settle(db, home)
    assert ended(bench, row).state == "killed", "a defect of one does not keep another from its end"
    assert sorted(one.name for one in others.iterdir()) == ["control", "lock", "store"]
    assert db.processes.remove_folders(home) == 0
    (folder / "stray").unlink()


def test_a_process_whose_home_was_removed_ends(bench: Bench) -> None:
    row = begun(bench, BEAT)
    until((bench.workdir / "beat").exists)
    shutil.rmtree(bench.ctx.home / "processes")
    deadline = time.monotonic() + 15
    while processes.process_identity.started(supervisor_of(row)) and time.monotonic() < deadline:
        processes.settle(bench.ctx.db, bench.ctx.home)
        time.sleep(0.1)
    assert is_still(bench.workdir / "beat")


def test_garbage_in_one_folder_does_not_stop_the_others(bench: Bench) -> None:
    bench = bench.with_(config=config_of(bench.ctx.home, {"executor": "landlock"}))
    first, second = (begun(bench, "sleep 60") for _ in range(2))
    folder = bench.ctx.home / "processes" / first.id
    (watch,) = folder.glob("watch.*")
    watch.write_bytes(b"of another version")
    for row in (first, second):
        os.kill(supervisor_of(row), signal.SIGKILL)
    (folder / "status.json").write_text('["what", "is", "this"]')
    assert [ended(bench, row).state for row in (first, second)] == ["lost", "lost"]


def test_a_home_that_cannot_be_written_starts_nothing(bench: Bench) -> None:
    (bench.ctx.home / "processes").write_text("in the way")
    result = bench.call("terminal", command="touch made", background=True)
    assert result.is_error and "it cannot be started in the background" in result.content
    assert not (bench.workdir / "made").exists() and not bench.ctx.db.processes.newest()


@pytest.fixture
def small_disk(bench: Bench) -> Iterator[Path]:
    """The folder of the processes, on a disk of half a megabyte."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    folder = bench.ctx.home / "processes"
    folder.mkdir(mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k,mode=700", "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        for one in folder.glob("proc_*"):
            shutil.rmtree(one)  # its supervisor notices that
        subprocess.run(["umount", "-l", folder], check=True)


def test_a_full_disk_drops_output_and_nothing_else(bench: Bench, small_disk: Path) -> None:
    pause = "until [ -e {} ]; do sleep 0.1; done"
    row = begun(bench, f"{pause.format('full')}; seq 1 300000; {pause.format('go')}; exit 3")
    filler = small_disk / "filler"
    with pytest.raises(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)
    (bench.workdir / "full").touch()
    until(lambda: processes.read(bench.ctx.home, row.id, most=1 << 20).dropped)
    read = bench.call("process", action="read", id=row.id).content
    assert read.count("bytes were dropped here") == 1 and "running" in read
    filler.unlink()
    go(bench)
    row = ended(bench, row)
    assert (row.state, row.exit_code) == ("exited", 3) and row.output_bytes > 1 << 20


@pytest.mark.usefixtures("small_disk")
def test_the_end_of_a_command_whose_output_fills_the_disk_is_recorded(bench: Bench) -> None:
    row = begun(bench, f"{UNTIL_GO}; seq 1 300000; exit 3")
    go(bench)
    row = ended(bench, row)
    assert (row.state, row.exit_code) == ("exited", 3) and row.output_bytes > 1 << 20


def test_a_process_nobody_hears_of_is_lost_in_the_end(bench: Bench) -> None:
    row = begun(bench, "sleep 60")
    moved = bench.ctx.home / "processes" / row.id
    moved.rename(bench.ctx.home / "elsewhere")
    bench.ctx.db.clock = lambda: time.time() + 2 * 86_400
    bench.ctx.db.processes.prune()
    found = bench.ctx.db.processes.get(row.id)
    assert found is not None and found.state == "lost" and "nothing was heard" in notice(bench, found)
    shutil.rmtree(bench.ctx.home / "elsewhere")


def test_a_length_of_time_has_no_part_that_is_zero() -> None:
    lengths = [processes.span(seconds) for seconds in (3.21, 60, 182, 3_600, 7_500, 86_400)]
    assert lengths == ["3.2 s", "1 min", "3 min 2 s", "1 h", "2 h 5 min", "24 h"]
