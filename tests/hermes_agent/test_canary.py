"""A secret that is planted everywhere a person might have one leaves through none of our doors."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
import zipfile
from contextlib import closing
from pathlib import Path

import pytest

from hermes_agent import AIAgent
from hermes_config import config as configuration
from hermes_state import SessionDB
from hermes_testing.scripted.model import ScriptedModel, call, fail, say

pytestmark = pytest.mark.slow

KEY = "sk-canary-4f1d2c3b4a59687f0e1d"
OTHER = "xoxb-canary-998877665544"
# One that only the person and a file know, by its shape; and one without a shape, which only `.env` knows.
SPOKEN = "ghp_canary0123456789abcdefghijklmn"
PLAIN = "correct horse canary staple"
ALL = (KEY, OTHER, SPOKEN, PLAIN)


@pytest.fixture
def planted(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The secret as the configured key, in `.env`, and in the environment of the process."""
    home.mkdir(mode=0o700)
    (home / "config.yaml").write_text(
        "auto_title: false\nmodel:\n  default: scripted-1\n  provider: custom\n"
        f"  base_url: http://127.0.0.1:9/v1\n  api_key: {KEY}\n"
    )
    (home / ".env").write_text(f"SLACK_BOT_TOKEN={OTHER}\nDOOR_PASSWORD='{PLAIN}'\n")
    (home / ".env").chmod(0o600)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("SOME_SERVICE_TOKEN", OTHER)
    return home


def test_no_log_result_or_child_sees_it(
    db: SessionDB, planted: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    work = tmp_path / "work"
    work.mkdir()
    with ScriptedModel(
        say("", calls=[call("terminal", {"command": "env; echo done"})]), say("Looked."), fail(401), api_key=KEY
    ) as model:
        agent = AIAgent(
            session_db=db, config=configuration.load(planted), endpoint=model.endpoint(), workdir=work, yolo=True
        )
        told: list[str] = []
        agent.status_callback = lambda kind, text: told.append(text)
        first = asyncio.run(agent.arun_conversation("what is in the environment?"))
        second = asyncio.run(agent.arun_conversation("and again"))
        sent = [request.body.decode() for request in model.requests]
    assert first["final_response"] == "Looked."
    assert second["failed"]
    everything = [json.dumps(first, default=str), json.dumps(second, default=str), *told, *sent, caplog.text]
    everything += [
        repr(agent._setup),
        repr(model.endpoint()),
        json.dumps(db.export_session(agent.session_id), default=str),
    ]
    everything += [str(m["content"]) for m in db.get_messages(agent.session_id)]
    for text in everything:
        assert KEY not in text
        assert OTHER not in text


def test_no_file_of_the_home_has_it_but_the_ones_it_was_put_into(planted: Path) -> None:
    """Through the real command, at debug level, with a model that cannot be reached: errors, logs, crash reports."""
    environ = {**os.environ, "HERMES_HOME": str(planted), "HERMES_DEBUG": "1"}
    for arguments in (["-q", "hello"], ["model"], ["config", "show"], ["sessions", "list"], ["state", "check"]):
        done = subprocess.run(
            [sys.executable, "-m", "hermes_cli", *arguments], env=environ, capture_output=True, text=True, timeout=60,
            stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
        assert KEY not in done.stdout + done.stderr, arguments
        assert OTHER not in done.stdout + done.stderr, arguments
    for path in planted.rglob("*"):
        if path.is_file() and path.name not in ("config.yaml", ".env"):
            content = path.read_bytes()
            assert KEY.encode() not in content, path
            assert OTHER.encode() not in content, path


def _refuse(*args: object, **_: object) -> None:
    raise RuntimeError(f"this callback quotes all it was given: {args}")


def test_what_is_said_and_what_tools_say_reaches_model_tool_and_store_but_no_log(
    db: SessionDB, planted: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    work = tmp_path / "work"
    work.mkdir()
    spoken = "\n".join(ALL)
    (work / "notes.txt").write_text(spoken)
    steps = [
        say("", calls=[call("write_file", {"path": "copy.txt", "content": spoken})]),
        say("", calls=[call("read_file", {"path": "notes.txt"})]),
        say(f"They are {spoken}"),
    ]
    with ScriptedModel(*steps, api_key=KEY) as model:
        agent = AIAgent(
            session_db=db, config=configuration.load(planted), endpoint=model.endpoint(), workdir=work, yolo=True
        )
        agent.tool_start_callback = agent.tool_complete_callback = agent.stream_delta_callback = _refuse
        result = asyncio.run(agent.arun_conversation(f"keep these: {spoken}"))
        last = json.loads(model.requests[-1].body)["messages"]
    assert result["final_response"] == f"They are {spoken}"
    assert (work / "copy.txt").read_text() == spoken
    assert any(spoken in str(message["content"]) for message in last if message["role"] == "user")
    kept = {message["role"]: str(message["content"]) for message in db.get_messages(agent.session_id)}
    assert spoken in kept["user"]
    for secret in ALL:
        assert any(secret in str(message["content"]) for message in last if message["role"] == "tool")
        assert secret in kept["tool"]
        assert secret not in caplog.text
    assert "a callback failed" in caplog.text
    assert caplog.text.count("[secret]") >= 3 * len(ALL)


def _hermes(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "HERMES_HOME": str(home)}
    return subprocess.run(
        [sys.executable, "-m", "hermes_cli", *arguments], env=environ, capture_output=True, text=True, timeout=60,
        stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("ending", ["zip", "jsonl", "md"])
def test_no_export_has_what_was_said(planted: Path, tmp_path: Path, ending: str) -> None:
    spoken = "\n".join(ALL)
    with closing(SessionDB(planted / "state.db")) as db:
        db.create_session("desk", "cli", system_prompt=f"The key is {KEY}", model_config={"api_key": "no-shape"})
        db.set_session_title("desk", f"About {OTHER}")
        db.append_message("desk", "user", f"keep these: {spoken}")
        arguments = json.dumps({"command": f"echo\n{spoken}"})
        calls = [{"id": "c1", "type": "function", "function": {"name": "terminal", "arguments": arguments}}]
        db.append_message("desk", "assistant", None, tool_calls=calls, reasoning=f"so {spoken}")
        db.append_message("desk", "tool", spoken, tool_name="terminal", tool_call_id="c1")
        db.append_message("desk", "user", [{"type": "text", "text": f"again {spoken}"}])
        stored = db.export_session("desk")
    file = tmp_path / f"out.{ending}"
    ran = _hermes(planted, "sessions", "export", str(file))
    assert "Secrets were covered in " in ran.stdout, ran.stderr
    content = _content(file)
    for secret in ALL:
        assert secret not in content
    assert "no-shape" not in content
    assert "keep these: [secret]" in content

    ran = _hermes(planted, "sessions", "export", str(file), "--keep-secrets", "--yes")
    assert "overed" not in ran.stdout
    for secret in ALL:
        assert secret in _content(file)
    with closing(SessionDB(planted / "state.db")) as db:
        assert db.export_session("desk") == stored  # an export changes nothing here


def _content(file: Path) -> str:
    if file.suffix != ".zip":
        return file.read_text(encoding="utf-8")
    with zipfile.ZipFile(file) as archive:
        return "".join(archive.read(name).decode() for name in archive.namelist())


@pytest.mark.parametrize("debug", ["", "1"])
def test_no_crash_report_or_traceback_has_what_was_said(planted: Path, tmp_path: Path, debug: str) -> None:
    """A defect that quotes what it worked on."""
    program = tmp_path / "defect.py"
    program.write_text(
        "import sys\nfrom hermes_cli import commands, main\n"
        "sys.modules['hermes_cli.defect'] = sys.modules['__main__']\n"
        "def register(parser): parser.set_defaults(run=run)\n"
        f"def run(args): raise ValueError({chr(10).join(ALL)!r})\n"
        "commands.COMMANDS['defect'] = commands.Command('defect', 'a defect', 'defect')\n"
        "sys.exit(main.main(['defect']))\n"
    )
    environ = {**os.environ, "HERMES_HOME": str(planted), "HERMES_DEBUG": debug}
    ran = subprocess.run(
        [sys.executable, str(program)], env=environ, capture_output=True, text=True, timeout=60, check=False
    )
    reports = [path.read_text() for path in (planted / "logs").glob("*")]
    assert len(reports) == (0 if debug else 1)
    assert "ValueError" in ran.stderr
    for text in (ran.stdout + ran.stderr, *reports):
        for secret in ALL:
            assert secret not in text
    assert all("[secret]" in text for text in (ran.stderr, *reports))
