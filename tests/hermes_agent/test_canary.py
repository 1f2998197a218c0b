"""A secret that is planted everywhere a person might have one leaves through none of our doors."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hermes_agent import AIAgent
from hermes_config import config as configuration
from hermes_state import SessionDB
from hermes_testing.scripted_model import ScriptedModel, call, fail, say

KEY = "sk-canary-4f1d2c3b4a59687f0e1d"
OTHER = "xoxb-canary-998877665544"


@pytest.fixture
def planted(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The secret as the configured key, in `.env`, and in the environment of the process."""
    home.mkdir(mode=0o700)
    (home / "config.yaml").write_text(
        "auto_title: false\nmodel:\n  default: scripted-1\n  provider: custom\n"
        f"  base_url: http://127.0.0.1:9/v1\n  api_key: {KEY}\n"
    )
    (home / ".env").write_text(f"SLACK_BOT_TOKEN={OTHER}\n")
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
    everything += [repr(agent._setup), repr(model.endpoint()), json.dumps(db.export_all(), default=str)]
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
