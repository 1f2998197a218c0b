"""`hermes gateway` as a person uses it: real processes, started, looked at and ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway import status
from hermes_cli import gateway_process
from hermes_config.errors import UsageError


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
    assert "the gateway runs on" in hermes("gateway", "logs").stdout
    assert "has ended" in hermes("gateway", "stop").stdout
    assert status.read_pid(demo) is None and not status.is_running(demo)
    assert "No gateway" in hermes("gateway", "stop").stdout


def test_a_broken_configuration_is_said_and_nothing_runs(demo: Path) -> None:
    (demo / "config.yaml").write_text("model: demo\ngateway:\n  drain_seconds: soon\n")
    failed = hermes("gateway", "start", check=False)
    assert failed.returncode == 1
    assert "drain_seconds" in failed.stderr and "Traceback" not in failed.stderr
    assert not status.is_running(demo)


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
