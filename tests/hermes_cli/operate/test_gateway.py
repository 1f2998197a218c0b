"""`hermes gateway` as a person uses it: real processes, started, looked at and ended."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.stores import transact

from gateway import status
from hermes_cli.operate import gateway_process
from hermes_config.errors import UsageError
from hermes_config.limits import DEFAULTS
from hermes_state import SessionDB
from hermes_state.ids import ConversationId
from hermes_testing.telegram.server import FakeTelegram

pytestmark = pytest.mark.slow


def hermes(*words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "hermes_cli", *words], capture_output=True, text=True, check=False, timeout=60
    )
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.fixture
def demo(home: Path) -> Iterator[Path]:
    home.mkdir(mode=0o700, exist_ok=True)
    (home / "config.yaml").write_text("model: demo\n")
    yield home
    if (pid := status.read_pid(home)) is not None:
        os.kill(pid, signal.SIGKILL)


def test_it_is_started_seen_and_ended(demo: Path) -> None:
    assert "not running" in hermes("gateway", "status", check=False).stdout
    assert hermes("gateway", "status", check=False).returncode == 1
    started = hermes("gateway", "start").stdout
    pid = status.read_pid(demo)
    assert f"process {pid}" in started
    seen = hermes("gateway", "status").stdout
    assert f"process {pid}" in seen and "0 waiting" in seen
    assert json.loads(hermes("gateway", "status", "--json").stdout)["pid"] == pid
    again = hermes("gateway", "start", check=False)
    assert again.returncode == 1 and "already" in again.stderr and again.stderr.count("\n") == 1
    run = hermes("gateway", "run", check=False)
    assert run.returncode == 1 and f"process {pid}" in run.stderr
    assert "is running; platforms:" in hermes("gateway", "logs").stdout
    assert "has stopped" in hermes("gateway", "stop").stdout
    assert status.read_pid(demo) is None and not status.is_running(demo)
    assert "No gateway" in hermes("gateway", "stop").stdout


@pytest.mark.parametrize(
    ("good", "said", "seen"), [(True, "telegram: connected", "heard"), (False, "telegram: ", "token")]
)
def test_start_waits_for_the_first_state_of_the_platforms(demo: Path, good: bool, said: str, seen: str) -> None:
    with FakeTelegram() as fake:
        extra = {"base_url": fake.base_url, "base_file_url": f"{fake.address}/file/bot"}
        settings = {"model": "demo", "platforms": {"telegram": {"enabled": True, "extra": extra}}}
        (demo / "config.yaml").write_text(json.dumps(settings))
        token = fake.token if good else "123456:this-is-not-the-token-of-any-bot"
        (demo / ".env").write_text(f"TELEGRAM_BOT_TOKEN={token}\n")
        for verb in ("start", "restart"):
            (line,) = hermes("gateway", verb).stdout.splitlines()[1:]
            assert line.startswith(said) and "not connected yet" not in line
            assert good or "token" in line
            (line,) = [line for line in hermes("gateway", "status").stdout.splitlines() if line.startswith("telegram")]
            assert seen in line
        hermes("gateway", "stop")


def test_what_it_prints_in_the_background_is_bounded_and_not_what_it_logs(demo: Path) -> None:
    plugin = demo / "plugins" / "loud"
    plugin.mkdir(parents=True)
    (plugin / "plugin.yaml").write_text("name: loud\nversion: '1'\n")
    said = "print('the plug-in leaves', flush=True)"
    (plugin / "__init__.py").write_text(f"import atexit\n\n\ndef register(ctx):\n    atexit.register(lambda: {said})\n")
    (demo / "config.yaml").write_text("model: demo\nplugins: {enabled: [loud]}\n")
    hermes("gateway", "start")
    printed = demo / "logs" / "gateway.out"
    with printed.open("ab") as file:
        file.write(b"a plug-in says something\n" * (DEFAULTS.log_bytes // 20) + b"its last words\n")
    until = time.monotonic() + 20
    half = range(DEFAULTS.log_bytes // 3, DEFAULTS.log_bytes)
    while printed.stat().st_size not in half:  # for a moment, while what stays is put to the front, less
        assert time.monotonic() < until, printed.stat().st_size
        time.sleep(0.05)
    hermes("gateway", "stop")
    said = printed.read_text(encoding="utf-8")
    assert said.startswith("a plug-in says something\n")
    assert said.endswith("its last words\nthe plug-in leaves\n")
    assert "stopping: running turns" in (demo / "logs" / "gateway.log").read_text(encoding="utf-8")


def test_a_broken_configuration_is_said_and_nothing_runs(demo: Path) -> None:
    (demo / "config.yaml").write_text("model: demo\ngateway:\n  drain_seconds: soon\n")
    failed = hermes("gateway", "start", check=False)
    assert failed.returncode == 1
    assert "drain_seconds" in failed.stderr and "Traceback" not in failed.stderr
    assert not status.is_running(demo)


@pytest.mark.parametrize("broken", ["model: [", "model: demo\ngateway:\n  drain_seconds: soon\n"])
def test_status_and_stop_work_whatever_was_written_into_the_configuration(demo: Path, broken: str) -> None:
    hermes("gateway", "start")
    (demo / "config.yaml").write_text(broken)
    seen = hermes("gateway", "status")
    assert f"process {status.read_pid(demo)}" in seen.stdout and "config.yaml:" in seen.stdout
    assert json.loads(hermes("gateway", "status", "--json").stdout)["config_problem"]
    refused = hermes("gateway", "restart", check=False)
    assert refused.returncode == 1 and status.is_running(demo), "what could not start again is not ended"
    ended = hermes("gateway", "stop")
    assert "has stopped" in ended.stdout and "config.yaml" in ended.stderr and not status.is_running(demo)


def test_status_says_what_is_missing_and_what_a_lost_process_left(demo: Path) -> None:
    (demo / "config.yaml").write_text("")
    lines = hermes("gateway", "status", check=False).stdout
    assert "no model is chosen" in lines and "hermes gateway setup telegram" in lines
    with contextlib.closing(SessionDB(demo / "state.db")) as db:
        session = db.ledger.open(source="cli").session_id
        conversation = ConversationId(db.get_conversation_root(session))
        lease = db.leases.acquire(conversation, holder="elsewhere/1/0/x", ttl=60)
        assert lease is not None
        transact(db.turns.begin_in, conversation_id=conversation, session_id=session, fence=lease.fence)
        db.leases.release(lease)
    said = hermes("gateway", "status", check=False).stdout
    assert "0 being answered, 1 left by a dead terminal; hermes --resume continues it" in said
    assert "next start" not in said
    with contextlib.closing(SessionDB(demo / "state.db")) as db:
        db.engine.write(lambda conn: conn.run("UPDATE turns SET route = 'agent:main:telegram:dm:1'"))
    assert "1 left by a dead process; the next start recovers them" in hermes("gateway", "status", check=False).stdout


def test_who_waits_for_the_end_is_told_for_how_long_and_force_does_not_wait(demo: Path) -> None:
    hermes("gateway", "start")
    pid = status.read_pid(demo)
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)  # as one that is busy
    command = [sys.executable, "-m", "hermes_cli", "gateway", "stop"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as waiting:
        assert waiting.stderr is not None
        assert "up to 30 s. --force stops the gateway now" in waiting.stderr.readline()
        assert "has stopped" in hermes("gateway", "stop", "--force").stdout
        assert waiting.wait(10) == 0, "the other one, which waits up to 45 s, sees the end as well"


def test_one_that_was_killed_leaves_nothing_in_the_way(demo: Path) -> None:
    hermes("gateway", "start")
    first = status.read_pid(demo)
    assert first is not None
    os.kill(first, signal.SIGKILL)
    until = time.monotonic() + 10
    while status.is_running(demo) and time.monotonic() < until:
        time.sleep(0.02)
    assert "not running" in hermes("gateway", "status", check=False).stdout
    hermes("gateway", "start")
    assert status.read_pid(demo) not in (None, first)
    hermes("gateway", "stop")


def test_ctrl_c_ends_the_one_in_the_terminal(demo: Path) -> None:
    command = [sys.executable, "-m", "hermes_cli", "gateway", "run"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        until = time.monotonic() + 20
        while status.read_status(demo).started_at is None and time.monotonic() < until:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=20)
    assert process.returncode == 0, said
    assert "Traceback" not in said


def test_the_unit_names_this_home_and_nothing_is_written_by_printing_it(demo: Path) -> None:
    text = hermes("gateway", "install", "--print").stdout
    assert f"Environment=HERMES_HOME={demo}" in text and "gateway run" in text
    assert not gateway_process.unit_file().exists()
    hermes("gateway", "install")
    assert gateway_process.unit_file().read_text() == text
    assert gateway_process.installed(demo)
    hermes("gateway", "uninstall")
    assert not gateway_process.unit_file().exists()


def test_a_unit_names_an_odd_home_as_one_word_and_refuses_what_could_add_lines() -> None:
    text = gateway_process.unit_text(Path('/home/a "b" $x %h'), drain=5)
    assert '\nEnvironment="HERMES_HOME=/home/a \\"b\\" $x %%h"\n' in text
    assert '\nWorkingDirectory=/home/a "b" $x %%h\n' in text
    for name in ("/home/x\nExecStartPre=/bin/false", "/home/x\\", "/home/\u2028x"):
        with pytest.raises(UsageError):
            gateway_process.unit_text(Path(name), drain=5)
