"""One turn from a shell: `-q`, `-z`, pipes, `--json`, exit codes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.hermes_cli.model_server import ModelServer

from hermes_state import SessionDB

pytestmark = pytest.mark.slow

HERMES = [sys.executable, "-m", "hermes_cli"]
Ask = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def folder(tmp_path: Path, home: Path) -> Path:
    home.mkdir()
    (home / "config.yaml").write_text("model: demo\ndemo:\n  tokens_per_second: 0\nauto_title: false\n")
    place = tmp_path / "place"
    (place / "old").mkdir(parents=True)
    return place


@pytest.fixture
def ask(folder: Path) -> Ask:
    def run(*arguments: str, piped: str | bytes = "") -> subprocess.CompletedProcess[str]:
        data = piped if isinstance(piped, bytes) else piped.encode()
        ran = subprocess.run(
            [*HERMES, *arguments], input=data, capture_output=True, cwd=folder, check=False, timeout=60
        )
        assert b"Traceback" not in ran.stderr
        return subprocess.CompletedProcess(ran.args, ran.returncode, ran.stdout.decode(), ran.stderr.decode())

    return run


def test_z_is_the_bare_answer_and_nothing_else(ask: Ask) -> None:
    ran = ask("-z", "what is 6 * 7?")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "6 * 7 = 42\n", "")


def test_the_demo_model_schedules_a_job_and_delegates(ask: Ask, home: Path) -> None:
    ran = ask("-q", "every day at 8: what is 6 * 7?", "--model", "demo")
    assert ran.stdout.startswith("Done: "), ran.stdout
    with contextlib.closing(SessionDB(home / "state.db")) as db:
        assert [(job.schedule, job.task["prompt"]) for job in db.jobs.list()] == [("every day at 8", "what is 6 * 7?")]
    both = ask("-q", "compare tea and coffee", "--model", "demo")
    assert "- One thing speaks for coffee: " in both.stdout


def test_q_has_the_answer_on_stdout_and_the_rest_on_stderr(ask: Ask) -> None:
    ran = ask("-q", "list the files here")
    assert ran.returncode == 0
    assert ran.stdout.startswith("I looked: 1 folder here.\n")
    assert "✓ terminal  ls -1p · " in ran.stderr
    assert "demo · " in ran.stderr
    assert "session " in ran.stderr
    assert "\x1b" not in ran.stdout + ran.stderr


def test_what_is_piped_in_comes_after_the_question(ask: Ask, home: Path) -> None:
    assert ask("-z", "what is this?", piped="line 1\nline 2\n").returncode == 0
    db = SessionDB(home / "state.db")
    session = db.list_sessions_rich(limit=1)[0]["id"]
    assert db.get_messages_as_conversation(session)[0]["content"] == "what is this?\n\nline 1\nline 2"
    db.close()


def test_a_pipe_alone_is_the_question(ask: Ask) -> None:
    assert ask(piped="what is 6 * 7?\n").stdout == "6 * 7 = 42\n"
    assert ask("--plain", piped="what is 6 * 7?\n").stdout == "6 * 7 = 42\n"


def test_json_is_one_document_with_the_figures(ask: Ask) -> None:
    ran = ask("-q", "what is 6 * 7?", "--json")
    found = json.loads(ran.stdout)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert found["text"] == "6 * 7 = 42"
    assert found["completed"] is True
    assert found["total_tokens"] > 0
    assert found["cost_usd"] == 0.0


def test_nobody_is_asked_so_what_needs_leave_is_denied(ask: Ask, folder: Path) -> None:
    for flag in ("-q", "-z"):
        ran = ask(flag, "delete the folder old")
        assert ran.returncode == 0
        assert "there is nobody here who could be asked" in ran.stdout
    assert (folder / "old").is_dir()


def test_yolo_is_explicit(ask: Ask, folder: Path) -> None:
    assert ask("-z", "delete the folder old", "--yolo").returncode == 0
    assert not (folder / "old").exists()


def test_a_model_that_fails_is_exit_code_1_and_one_line(ask: Ask) -> None:
    for flag in ("-q", "-z"):
        ran = ask(flag, "fail with 401")
        assert ran.returncode == 1
        assert ran.stdout == ""
        assert ran.stderr.startswith("hermes: demo wants a key (401)") and ran.stderr.count("(demo)") == 1
        assert ran.stderr.count("\n") == 1
    found = json.loads((ran := ask("-q", "fail with 401", "--json")).stdout)
    assert ran.returncode == 1
    assert found["failed"] is True
    assert "401" in found["error"]
    logged = ask("logs").stdout
    assert logged.count("a model call failed: auth 401 (demo)") == 3 and "fail with" not in logged


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-q"], "expected one argument"),
        (["-q", ""], "there is no question"),
        (["-q", "a", "-z", "b"], "not allowed with"),
        (["--nonsense"], "--nonsense"),
        (["-q", "hi", "--resume", ""], "--resume needs"),
        (["-q", "hi", "--continue"], "no conversation to continue"),
        (["-q", "hi", "--max-turns", "0"], "whole number"),
    ],
)
def test_a_wrong_command_line_is_exit_code_2(ask: Ask, arguments: list[str], words: str) -> None:
    ran = ask(*arguments)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert words in ran.stderr
    assert ran.stderr.count("\n") == 1


def test_a_pipe_that_is_no_text_or_too_much_is_refused(ask: Ask) -> None:
    assert "not text" in ask("-q", "what is it?", piped=b"\x89PNG\0\0").stderr
    assert "the piped text is over" in ask("-q", "what is it?", piped=b"x" * 4_200_000).stderr


def test_resume_and_continue_go_on_and_unknown_ones_are_told(ask: Ask, home: Path) -> None:
    first = json.loads(ask("-q", "what is 6 * 7?", "--json").stdout)["session_id"]
    again = json.loads(ask("-q", "what did I just say?", "--json", "--resume", first[:18]).stdout)
    assert again["session_id"] == first
    assert "what is 6 * 7?" in again["text"]
    assert json.loads(ask("-q", "hello", "--json", "--continue").stdout)["session_id"] == first
    assert json.loads(ask("-q", "hello", "--json").stdout)["session_id"] != first
    db = SessionDB(home / "state.db")
    db.set_session_title(first, "Trip to Kyoto")
    db.close()
    assert json.loads(ask("-q", "hello", "--json", "--resume", "Trip").stdout)["session_id"] == first
    assert f"continues Trip to Kyoto ({first})\n" in ask("-z", "hello", "--resume", "trip").stderr
    assert "continues" not in ask("-z", "hello", "--resume", first).stderr
    other = json.loads(ask("-q", "say nope to him", "--json").stdout)["session_id"]
    for wanted in ("nothing of the kind", "nope", "Kyoto"):  # words in the middle are no name
        lost = ask("-q", "hello", "--resume", wanted)
        assert (lost.returncode, lost.stdout) == (1, "")
        assert "no conversation" in lost.stderr
    assert json.loads(ask("-q", "hello", "--json", "--resume", "say nope").stdout)["session_id"] == other


def test_one_question_is_one_call_and_a_conversation_keeps_its_model(ask: Ask, home: Path) -> None:
    with contextlib.closing(ModelServer(models=("mock", "slow"))) as server:
        (home / "config.yaml").write_text(
            f"model: {{default: mock, provider: custom, base_url: 'http://{server.address}/v1'}}\n"
        )
        assert ask("-z", "hello").stdout == "ok\n"
        assert server.asked == ["mock"], "nobody waits for a title"
        begun = json.loads(ask("-q", "hello", "--model", "slow", "--json").stdout)["session_id"]
        ask("-z", "and?", "--resume", begun)
        assert server.asked == ["mock", "slow", "slow"]


def test_a_conversation_that_was_left_has_ended_unless_a_chat_leads_to_it(ask: Ask, home: Path) -> None:
    first = json.loads(ask("-q", "hello", "--json").stdout)["session_id"]
    with contextlib.closing(SessionDB(home / "state.db")) as db:
        assert (db.get_session(first) or {})["end_reason"] == "cli_close"
        db.ledger.switch("agent:main:telegram:dm:42", first, scope="sessions")
    assert json.loads(ask("-q", "and now?", "--json", "--continue").stdout)["session_id"] == first
    with contextlib.closing(SessionDB(home / "state.db")) as db:
        row = db.get_session(first) or {}
        assert (row["ended_at"], row["message_count"]) == (None, 4)


def test_source_files_a_conversation_elsewhere(ask: Ask, home: Path) -> None:
    ask("-z", "hello", "--source", "nightly")
    db = SessionDB(home / "state.db")
    assert [row["source"] for row in db.list_sessions_rich()] == ["nightly"]
    db.close()


def test_a_toolset_that_is_not_there_is_refused(ask: Ask) -> None:
    ran = ask("-t", "nosuch,terminl", "-q", "list the files here")
    assert ran.returncode == 2 and ran.stdout == ""
    assert "there is no toolset nosuch or terminl; there are " in ran.stderr and "terminal" in ran.stderr
    for known in ("terminal", "read_file", "coding", "hermes-cli"):
        assert ask("-t", known, "-z", "what is 6 * 7?").stdout == "6 * 7 = 42\n"


def test_a_model_that_demo_does_not_have_is_refused(ask: Ask, home: Path) -> None:
    (home / "config.yaml").write_text("model: {default: demo, provider: demo}\n")
    for arguments in (("-m", "gpt-5", "-q", "hello"), ("model", "--model", "gpt-5")):
        ran = ask(*arguments)
        assert ran.returncode == 1 and ran.stdout == ""
        assert ran.stderr == "hermes: demo has no model gpt-5. Write openai/gpt-5.\n"
    for known in (("-m", "demo"), ("-m", "demo/demo"), ("--provider", "demo")):
        assert ask(*known, "-z", "what is 6 * 7?").stdout == "6 * 7 = 42\n"


@pytest.mark.parametrize(
    ("written", "told"),
    [("model: demo\n", " for demo, the configured provider"), ("", ", and no provider is configured")],
)
def test_a_model_whose_provider_nobody_named_is_unknown(ask: Ask, home: Path, written: str, told: str) -> None:
    (home / "config.yaml").write_text(written)
    ran = ask("--model", "nosuch/xyz", "-q", "hello")
    assert ran.returncode == 1 and ran.stdout == ""
    assert ran.stderr == (
        f"hermes: the model nosuch/xyz is unknown{told}. Write PROVIDER/MODEL, such as openai/gpt-5 or ollama/llama3;"
        " hermes setup asks for a key.\n"
    )


def test_toolsets_narrow_what_the_model_may_call(ask: Ask) -> None:
    assert "not offered to me here" in ask("-z", "remember that it rains", "--toolsets", "file,todo").stdout


def test_ctrl_c_is_130_and_the_question_is_kept(folder: Path, home: Path) -> None:
    running = subprocess.Popen(
        [*HERMES, "-z", "be slow 60"],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    _wait_for_question(home)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=30)
    assert (running.returncode, out, err) == (130, b"", b"")


def _wait_for_question(home: Path) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if (home / "state.db").exists():
            db = SessionDB(home / "state.db")
            try:
                if any(row["message_count"] for row in db.list_sessions_rich()):
                    return
            finally:
                db.close()
        time.sleep(0.05)
    raise AssertionError("the question was never stored")


def test_no_configuration_at_all_names_the_ways_on(folder: Path, home: Path, ask: Ask) -> None:
    (home / "config.yaml").unlink()
    ran = ask("-q", "hello")
    assert ran.returncode == 1
    assert ran.stderr.startswith("hermes: model.default: no model is chosen")
    assert ask("-z", "what is 6 * 7?", "--model", "demo").stdout == "6 * 7 = 42\n"


def test_a_closed_stdin_is_no_question_and_no_defect(folder: Path) -> None:
    ran = subprocess.run(
        ["/bin/sh", "-c", f'exec "{sys.executable}" -m hermes_cli -z "what is 6 * 7?" <&-'],
        cwd=folder, capture_output=True, text=True, check=False, env=dict(os.environ), timeout=60,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "6 * 7 = 42\n", "")
