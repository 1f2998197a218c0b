"""`hermes status`, `hermes logs`, `hermes completion`, and the verbs of `hermes config` that change the file."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gateway import status
from hermes_cli.commands import COMMANDS
from hermes_config import config

from .conftest import Run

HERMES = [sys.executable, "-m", "hermes_cli"]


def test_status_of_nothing_makes_nothing(run: Run, home: Path) -> None:
    shown = run("status").out
    assert f"{home} (not there yet)" in shown and "hermes setup chooses one" in shown
    assert not home.exists()


def test_status_tells_where_what_and_how_much_is_left(run: Run, home: Path) -> None:
    config.set_value("model.default", "demo")
    config.set_value("budget.day.usd", 5)
    assert run("chat", "-q", "hello there").code == 0
    shown = run("status").out
    for words in (str(home / "state.db"), "1 conversation, 2 messages", "demo/demo", "not running", "0 breaks",
                  "$5.00 left today", "hello there"):  # fmt: skip
        assert words in shown
    facts = run("status", "--json").data
    assert facts["database"]["conversations"] == 1 and facts["prefix_breaks"] == 0 and facts["problems"] == []
    assert facts["budget"][0]["used"] == 0 and facts["gateway"]["running"] is False


def test_a_limit_is_told_before_the_first_conversation(run: Run, home: Path) -> None:
    config.set_value("budget.day.usd", 5)
    assert "$5.00 left today" in run("status").out
    assert run("status", "--json").data["budget"][0]["left"] == 5_000_000_000
    used = run("usage")
    assert used.code == 0 and "Nothing was used since" in used.out
    assert "budget.day.usd" in used.out and "$5.00" in used.out
    assert run("usage", "--json").data["limits"][0]["left"] == 5
    assert not (home / "state.db").exists(), "looking makes nothing"


def test_a_limit_is_told_while_the_store_cannot_be_read(run: Run, home: Path) -> None:
    config.set_value("budget.day.usd", 5)
    (home / "state.db").write_text("this is no database")
    shown = run("status").out
    assert "$5.00 a day; what is left is not known" in shown and "no limit a day" not in shown


def test_a_platform_that_was_not_heard_of_says_so_once(run: Run, home: Path) -> None:
    home.mkdir()
    lock = status.acquire_gateway_lock(home)
    silent = {"telegram": {"last_contact": None, "problem": "not connected yet"}}
    status.write_runtime_status(home, started_at=time.time(), platforms=silent)
    try:
        for command in (("status",), ("gateway", "status")):
            (line,) = [line for line in run(*command).out.splitlines() if line.startswith("telegram")]
            assert line.split(maxsplit=1)[1] == "not connected yet"
    finally:
        lock.release()


def test_status_of_a_broken_home_is_a_status(run: Run, home: Path) -> None:
    home.mkdir()
    (home / "config.yaml").write_text("sessions: {retention_days: soon}\n")
    shown = run("status")
    assert shown.code == 0 and "retention_days" in shown.out and "hermes doctor says what to do" in shown.out
    assert shown.out.count("retention_days") == 1


def test_what_a_broken_configuration_would_say_is_not_known(run: Run, home: Path) -> None:
    config.set_value("model.default", "demo")
    config.set_value("budget.day.usd", 5)
    assert run("chat", "-q", "hello there").code == 0
    with (home / "config.yaml").open("a") as file:
        file.write("display: {skin: [\n")
    shown = run("status").out
    for name in ("model", "budget", "database"):
        assert f"{name:<16}not known: the configuration does not load" in shown
    assert "no limit" not in shown and "hermes setup" not in shown
    assert run("status", "--json").data["config_loads"] is False


def test_a_home_that_cannot_be_is_told_as_that(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERMES_HOME", "/proc/nowhere")
    assert "no home can be made" in run("status").out
    ran = subprocess.run([*HERMES, "doctor", "--json"], capture_output=True, text=True, check=False)
    found = {one["check"]: one["says"] for one in json.loads(ran.stdout)["checks"]}
    assert "none can be made" in found["home"] and "disk" not in found


@pytest.mark.parametrize(
    ("key", "near"),
    [("model.defalt", "model.default"), ("display.skn", "display.skin"), ("modle.default", "model.default")],
)
def test_a_mistyped_key_is_not_saved(run: Run, home: Path, key: str, near: str) -> None:
    said = run("config", "set", key, "x")
    assert said.code == 2 and f"Did you mean {near}?" in said.err and "nothing was saved" in said.err
    assert not (home / "config.yaml").exists()


def test_a_key_of_somebody_elses_is_kept_with_a_word(run: Run) -> None:
    said = run("config", "set", "another.program", "x")
    assert said.code == 0 and "Nothing here reads it" in said.out
    assert "Nothing here reads" not in run("config", "set", "plugins.entries.mine.colour", "x").out


# -- config ------------------------------------------------------------------------------------------------------------


def test_what_the_gateway_would_refuse_is_not_saved(run: Run, home: Path) -> None:
    for key, value in (("session_reset.mode", "weekly"), ("gateway.busy_input_mode", "banana")):
        refused = run("config", "set", key, value)
        assert refused.code == 1 and "Nothing was saved" in refused.err and key in refused.err
    assert not (home / "config.yaml").exists()
    assert run("config", "set", "session_reset.mode", "daily").code == 0
    (home / "config.yaml").write_text("session_reset:\n  mode: weekly\ngateway:\n  busy_input_mode: banana\n")
    assert run("config", "set", "session_reset.mode", "monthly").code == 1
    for key, value in (("session_reset.mode", "daily"), ("gateway.busy_input_mode", "queue")):
        assert run("config", "set", key, value).code == 0, "two mistakes are mended one by one"
    assert run("config", "check").code == 0


@pytest.mark.parametrize("value", ["2026-13-45", "!!bool perhaps", "[1, 2", "!!timestamp soon"])
def test_what_is_no_yaml_is_kept_as_text(run: Run, value: str) -> None:
    assert run("config", "set", "note", value).code == 0
    assert run("config", "get", "note").out == f"{value}\n"


@pytest.mark.parametrize("value", ["2026-13-45", "!!bool perhaps", "!!timestamp soon"])
def test_a_value_that_cannot_be_in_the_file_is_told_in_one_line(run: Run, home: Path, value: str) -> None:
    home.mkdir()
    (home / "config.yaml").write_text(f"note: {value}\n")
    for verb in ("check", "show"):
        refused = run("config", verb)
        assert refused.code == 1 and "config.yaml" in refused.err and "a value" in refused.err


def test_what_is_no_key_is_not_looked_for(run: Run) -> None:
    for key in ("", ".", "a..b"):
        assert run("config", "get", key).code == 2
    assert run("config", "set", " ", "1").code == 1
    assert run("config", "set", "note", ".nan").code == 0
    assert run("config", "show", "--json").data == {"note": "nan"}


def test_unset_takes_out_one_key_and_leaves_the_rest_as_it_is(run: Run, home: Path) -> None:
    home.mkdir()
    file = home / "config.yaml"
    file.write_text(
        "# mine\nmodel:\n  default: demo  # small\n\nsessions:\n  # how long\n  retention_days: 30\nfuture: [1]\n"
    )
    assert run("config", "get", "sessions.retention_days").out == "30\n"
    assert run("config", "unset", "sessions.retention_days").code == 0
    assert config.load().sessions.retention_days == 90
    text = file.read_text()
    assert "# mine" in text and "demo  # small" in text and "future: [1]" in text and "sessions" not in text
    gone = run("config", "unset", "sessions.retention_days")
    assert gone.code == 2 and "is not set" in gone.err
    assert run("config", "get", "sessions").code == 2


@pytest.mark.parametrize(
    ("key", "wrong", "right", "choices"),
    [
        ("approvals.mode", "maybe", "off", "manual or off"),
        ("auto_title", "perhaps", "false", "true or false"),
        ("display.tool_progress", "loud", "off", "off, new, all or verbose"),
    ],
)
def test_a_setting_with_known_choices_takes_no_other(
    run: Run, home: Path, key: str, wrong: str, right: str, choices: str
) -> None:
    refused = run("config", "set", key, wrong)
    assert refused.code == 1 and f"{key}: must be {choices}, not '{wrong}'" in refused.err
    assert "Nothing was saved" in refused.err and not (home / "config.yaml").exists()
    assert run("config", "set", key, right).code == 0


def test_a_section_that_is_nearly_ours_is_noticed(run: Run, home: Path) -> None:
    home.mkdir()
    (home / "config.yaml").write_text("aprovals: {mode: 'off'}\nsomebody_elses: {mode: 1}\n")
    shown = run("config", "check").out
    assert "aprovals is not a known key; did you mean approvals?" in shown and "somebody_elses" not in shown


def test_unset_in_braces_keeps_the_rest_of_the_line(run: Run, home: Path) -> None:
    home.mkdir()
    file = home / "config.yaml"
    file.write_text("sessions: {retention_days: 30, auto_prune: true}  # both\n")
    assert "config.yaml.bak" not in run("config", "unset", "sessions.retention_days").out
    assert file.read_text() == "sessions: {auto_prune: true}  # both\n"
    file.write_text("sessions: {auto_prune: true, retention_days: 30}  # both\n")
    run("config", "unset", "sessions.retention_days")
    assert file.read_text() == "sessions: {auto_prune: true}  # both\n"


def test_unset_beside_a_comment_in_braces_keeps_the_old_text_aside(run: Run, home: Path) -> None:
    home.mkdir()
    (home / "config.yaml").write_text("sessions: {retention_days: 30,  # days\n  auto_prune: true}\n")
    done = run("config", "unset", "sessions.retention_days")
    assert "config.yaml.bak" in done.out
    assert "# days" in (home / "config.yaml.bak").read_text()
    assert config.load().sessions.auto_prune is True and config.load().sessions.retention_days == 90


def test_unset_mends_a_file_with_two_mistakes_one_by_one(run: Run, home: Path) -> None:
    home.mkdir()
    (home / "config.yaml").write_text("sessions:\n  retention_days: soon\nstate:\n  synchronous: perhaps\n")
    assert run("config", "unset", "model").code == 2
    for key in ("sessions.retention_days", "state.synchronous"):
        assert run("config", "unset", key).code == 0
    assert run("config", "check").code == 0


def test_edit_keeps_what_loads_and_nothing_else(run: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config.set_value("sessions.retention_days", 30)
    monkeypatch.setenv("EDITOR", "sed -i s/30/31/")
    assert run("config", "edit").code == 0 and config.load().sessions.retention_days == 31
    monkeypatch.setenv("EDITOR", "sed -i s/31/soon/")
    refused = run("config", "edit")
    assert refused.code == 2 and config.load().sessions.retention_days == 31
    monkeypatch.setenv("EDITOR", "true")
    assert run("config", "edit").out == "Nothing was changed.\n"
    monkeypatch.setenv("EDITOR", "no-such-editor")
    assert run("config", "edit").code == 2
    assert not list(home.glob(".edit-*"))


def test_edit_env(run: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config.add_variable("A_TOKEN", "one")
    monkeypatch.setenv("EDITOR", "sed -i s/one/two/")
    assert run("config", "edit", "--env").code == 0
    assert config.load().dotenv["A_TOKEN"] == "two"
    assert (home / ".env").stat().st_mode & 0o777 == 0o600
    assert run("config", "path", "--env").out == f"{home / '.env'}\n"


# -- logs --------------------------------------------------------------------------------------------------------------


def test_logs_show_the_end_over_a_turn_of_the_file(run: Run, home: Path) -> None:
    assert "Nothing was written down yet" in run("logs").out
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


# -- completion --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_other_shells_get_every_command(run: Run, shell: str) -> None:
    script = run("completion", shell).out
    for name in COMMANDS:
        assert f"'{name}" in script
    assert "unset" in script and "json" in script


def test_the_store_is_not_needed_for_completion(run: Run, home: Path) -> None:
    assert run("completion", "bash").code == 0
    assert not home.exists()
