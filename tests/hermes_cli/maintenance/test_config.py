"""The verbs of `hermes config` that change the file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.hermes_cli.conftest import Run

from hermes_config import config


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
    assert said.code == 0 and "Hermes does not read it" in said.out
    assert "Hermes does not read" not in run("config", "set", "plugins.entries.mine.colour", "x").out


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


def test_a_text_that_reads_as_something_else_is_refused_with_the_form_that_works(run: Run, home: Path) -> None:
    refused = run("config", "set", "stt.command", "false")
    assert refused.code == 1 and """hermes config set stt.command '"false"'""" in refused.err
    assert run("config", "set", "stt.command", '"false"').code == 0
    assert run("config", "set", "model", "5").code == 1
    (home / "config.yaml").write_text("model: 5\n")
    checked = run("config", "check")
    assert checked.code == 1 and "must be a model's name" in checked.err


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


def test_a_key_that_is_set_twice_is_noticed(run: Run, home: Path) -> None:
    home.mkdir()
    (home / "config.yaml").write_text("model: demo\nagent:\n  max_turns: 3\n  max_turns: 4\nmodel: other\n")
    shown = run("config", "check").out
    assert "the key model is set more than once; the last one counts (line 5)" in shown
    assert "the key agent.max_turns is set more than once; the last one counts (line 4)" in shown
    (home / "config.yaml").write_text("fallback_providers:\n  - {model: a, model: b}\n")
    assert "the key fallback_providers.0.model is set more than once" in run("config", "check").out
    (home / "config.yaml").write_text("a: &a {x: 1}\nb: {<<: *a, x: 2}\nmodel: demo\n")
    assert "more than once" not in run("config", "check").out


def test_a_section_that_is_nearly_ours_is_noticed(run: Run, home: Path) -> None:
    home.mkdir()
    (home / "config.yaml").write_text("aprovals: {mode: 'off'}\nsomebody_elses: {mode: 1}\n")
    shown = run("config", "check").out
    assert "aprovals is not a known key; did you mean approvals?" in shown
    notes, table = shown.split("Entry", 1)
    assert "somebody_elses" not in notes
    assert re.search(r"somebody_elses\.mode +not used \(harmless\)", table), "no key is passed over in silence"


@pytest.mark.parametrize(
    "text",
    [
        "model: {default: a/b, provider: openrouter, extra_body: {n: 4}}",
        "fallback_providers: [{provider: openrouter, model: a/b, extra_body: {n: 4}}]",
        "custom_providers:\n- {name: mine, base_url: http://127.0.0.1:1/v1, extra_body: {n: 4}}",
        "auxiliary: {title: {provider: openrouter, model: a/b, extra_body: {n: 4}}}",
    ],
)
def test_a_field_that_only_hermes_sets_is_found_before_a_turn_fails(run: Run, home: Path, text: str) -> None:
    assert "Nothing was saved" in run("config", "set", "model.extra_body.stream", "false").err
    assert run("config", "set", "model.extra_body.top_k", "3").code == 0
    (home / "config.yaml").write_text(text)
    checked = run("config", "check")
    assert checked.code == 1 and "extra_body.n: only Hermes sets this field" in checked.err


def test_set_in_braces_keeps_the_rest_of_the_file(run: Run, home: Path) -> None:
    home.mkdir()
    file = home / "config.yaml"
    file.write_text(
        "# mine\nmcp_servers:\n  notes: {command: n}  # of the team\nsessions: {  # both\n  auto_prune: true,\n}\n"
    )
    for key, value in (
        ("mcp_servers.notes.needs", '["read:/srv/a, b"]'),
        ("mcp_servers.notes.env.NAME", "'x: y'"),
        ("sessions.retention_days", "30"),
    ):
        assert "config.yaml.bak" not in run("config", "set", key, value).out
    assert file.read_text() == (
        "# mine\nmcp_servers:\n  notes: {command: n, needs: ['read:/srv/a, b'], env: {NAME: 'x: y'}}  # of the team\n"
        "sessions: {  # both\n  auto_prune: true, retention_days: 30,\n}\n"
    )


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


def test_a_model_in_the_short_form_is_shown_by_its_key(run: Run, home: Path) -> None:
    home.mkdir(mode=0o700, exist_ok=True)
    (home / "config.yaml").write_text("model: demo\n")
    assert run("config", "get", "model.default").out == "demo\n"
