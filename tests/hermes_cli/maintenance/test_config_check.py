"""What `hermes config check`, `set`, `status` and `doctor` say of settings that weaken or change little at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.hermes_cli.conftest import Run


def write(home: Path, text: str) -> None:
    home.mkdir(mode=0o700, exist_ok=True)
    (home / "config.yaml").write_text(text, encoding="utf-8")


def test_an_executor_that_there_is_not_fails_the_check_in_one_line(run: Run, home: Path) -> None:
    write(home, "model: demo\nexecutor: docker\n")
    checked = run("config", "check")
    assert checked.code == 1 and checked.out == ""
    said = "executor: must be confined, bubblewrap, landlock, host or plugin:NAME, not 'docker'"
    assert checked.err == f"hermes: {said} ({home}/config.yaml:2)\n"


def _unwrapped(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("command", [("status",), ("doctor",)])
def test_no_sandbox_and_no_questions_are_warned_of(run: Run, home: Path, command: tuple[str, ...]) -> None:
    write(home, "model: demo\n")
    calm = _unwrapped(run(*command).out)
    assert "without a sandbox" not in calm and "without a question" not in calm
    write(home, "model: demo\nexecutor: host\napprovals: {mode: off}\n")
    said = _unwrapped(run(*command).out)
    assert "commands run without a sandbox" in said
    assert "rm -r and the like run in the sandbox without a question" in said


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("agent.max_turns", "5", ""),
        ("limits.title_chars", "80", "are restarted"),
        ("gateway.drain_seconds", "5", "are restarted"),
        ("platforms.telegram.enabled", "false", "are restarted"),
        ("gateway.busy_input_mode", "queue", ""),
        ("reset_triggers", "[/new]", "does not use it"),
        ("shop.colour", "blue", "Hermes does not read it"),
    ],
)
def test_setting_a_key_says_when_it_takes_effect(run: Run, home: Path, key: str, value: str, says: str) -> None:
    done = run("config", "set", key, value)
    assert done.code == 0
    first, *more = done.out.splitlines()
    assert first == f"{key} is set in {home / 'config.yaml'}"
    assert (len(more) == 1 and says in more[0]) if says else more == []
