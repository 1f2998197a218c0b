"""What a child process is told, and what it never learns."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes_agent.tools import environment
from hermes_config.config import of as config_of

from .conftest import Bench

HOME = Path("/home/ada/.hermes")


def _child(environ: dict[str, str], **config: object) -> dict[str, str]:
    passed = config_of(HOME, {"terminal": config}).terminal.env_passthrough
    return environment.child_environment(environ, passed=passed, identity={}, home=HOME)


@pytest.mark.parametrize("name", ["PATH", "HOME", "LANG", "LC_ALL", "TERM", "TMPDIR", "USER", "SHELL", "TZ"])
def test_what_a_shell_needs_is_passed(name: str) -> None:
    assert _child({name: "value"})[name] == "value"


@pytest.mark.parametrize(
    "name",
    [
        "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GITHUB_TOKEN", "AWS_SECRET_ACCESS_KEY", "DB_PASSWORD", "MY_SECRET",
        "NPM_PAT", "PGPASS", "TELEGRAM_BOT_TOKEN", "HERMES_DATABASE_URL", "RANDOM_THING", "LD_PRELOAD", "BASH_ENV",
        "openai_api_key",
    ],
)  # fmt: skip
def test_everything_else_stays_here(name: str) -> None:
    assert name not in _child({name: "value"})


@pytest.mark.parametrize(
    "name", ["OPENAI_API_KEY", "GITHUB_TOKEN", "DB_PASSWORD", "SESSION_COOKIE", "AWS_ACCESS_KEY_ID"]
)
def test_a_secret_stays_here_even_when_it_is_named(name: str) -> None:
    child = _child({name: "hunter2", "EDITION": "pro"}, env_passthrough=[name, "EDITION"])
    assert "hunter2" not in child.values() and child["EDITION"] == "pro"


@pytest.mark.parametrize(
    "value",
    ["postgresql://ada:hunter2@db/x", "http://ada:hunter2@proxy:3128", "sk-abcdefghijklmnop", "ghp_0123456789abcdef"],
)
def test_a_secret_value_stays_here_whatever_it_is_called(value: str) -> None:
    child = _child({"HTTPS_PROXY": value, "LANG": value, "SERVICE": value}, env_passthrough=["SERVICE"])
    assert value not in child.values()


def test_a_plain_proxy_and_a_named_agent_socket_pass() -> None:
    child = _child(
        {"HTTPS_PROXY": "http://proxy:3128", "SSH_AUTH_SOCK": "/s"}, env_passthrough="SSH_AUTH_SOCK, NOT_SET"
    )
    assert child["HTTPS_PROXY"] == "http://proxy:3128" and child["SSH_AUTH_SOCK"] == "/s"
    assert "SSH_AUTH_SOCK" not in _child({"SSH_AUTH_SOCK": "/s"})


def test_the_turns_identity_and_the_home_are_told() -> None:
    identity = {"HERMES_SESSION_ID": "s1", "HERMES_SESSION_KEY": "agent:main:cli"}
    child = environment.child_environment({"HERMES_HOME": "/other"}, passed=(), identity=identity, home=HOME)
    assert child["HERMES_SESSION_ID"] == "s1" and child["HERMES_SESSION_KEY"] == "agent:main:cli"
    assert child["HERMES_HOME"] == str(HOME)


@pytest.mark.parametrize("config", [{}, {"terminal": None}, {"terminal": {"env_passthrough": True}}, {"terminal": "x"}])
def test_a_malformed_list_passes_nothing(config: dict[str, object]) -> None:
    assert config_of(HOME, config).terminal.env_passthrough == ()


def test_tools_start_where_the_person_is_or_in_the_workspace(tmp_path: Path) -> None:
    here = tmp_path / "project"
    here.mkdir()
    assert environment.working_directory(tmp_path / "h", started_in=here) == here
    made = environment.working_directory(tmp_path / "h", started_in=None)
    assert made == tmp_path / "h" / "workspace" and made.stat().st_mode & 0o777 == 0o700
    assert environment.working_directory(tmp_path / "h", started_in=tmp_path / "gone") == made


def test_a_real_child_does_not_find_a_key(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary-canary")
    environ = environment.child_environment(os.environ, passed=(), identity={}, home=bench.ctx.home)
    seen = bench.with_(environ=environ).call("terminal", command="env; cat /proc/$$/environ | tr '\\0' '\\n'")
    assert "PATH=" in seen.content and "canary" not in seen.content
