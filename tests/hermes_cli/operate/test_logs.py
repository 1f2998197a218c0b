"""`hermes logs`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.hermes_cli.conftest import Run

pytestmark = pytest.mark.slow

HERMES = [sys.executable, "-m", "hermes_cli"]


def test_logs_show_the_end_over_a_turn_of_the_file(run: Run, home: Path) -> None:
    assert "There are no logs yet" in run("logs").out
    logs = home / "logs"
    logs.mkdir(parents=True)
    (logs / "agent.log.1").write_text("one\ntwo\n")
    (logs / "agent.log").write_text("three \x1b[2J\n")
    (logs / "gateway.log").write_text("of the gateway\n")
    assert run("logs", "agent", "-n", "2").out.splitlines()[0] == "two"
    both = run("logs").out
    assert "== agent.log ==" in both and "of the gateway" in both and "\x1b" not in both


def test_following_goes_on_in_the_next_file(home: Path) -> None:
    logs = home / "logs"
    logs.mkdir(parents=True)
    file = logs / "agent.log"
    file.write_text("first\n")
    with subprocess.Popen([*HERMES, "logs", "agent", "-f"], stdout=subprocess.PIPE, text=True) as following:
        assert following.stdout is not None
        try:
            assert following.stdout.readline() == "first\n"
            with file.open("a") as opened:
                opened.write("second\n")
            assert following.stdout.readline() == "second\n"
            with file.open("a") as opened:
                opened.write("third\n")
            file.replace(logs / "agent.log.1")
            file.write_text("fourth\n")
            assert [following.stdout.readline() for _ in range(2)] == ["third\n", "fourth\n"]
        finally:
            following.terminate()
