"""`hermes model`, `tools`, `skills`: what is there, without a secret."""

from __future__ import annotations

from pathlib import Path

import pytest

CANARY = "sk-canary-0123456789abcdef"


@pytest.fixture(autouse=True)
def configured(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENROUTER_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    home.mkdir()
    (home / ".env").write_text(f"ANTHROPIC_API_KEY={CANARY}\nOPENAI_API_KEY={CANARY}2\n")
    (home / "config.yaml").write_text(
        "model:\n  default: claude-sonnet-4.6\n  provider: anthropic\n"
        "fallback_providers:\n  - {provider: openai, model: gpt-5}\n"
        "agent: {disabled_toolsets: [terminal]}\n"
    )


def test_model_tells_where_the_key_comes_from_and_never_the_key(run) -> None:
    ran = run("model")
    assert ran.code == 0
    assert "claude-sonnet-4-6" in ran.out, "the id that Anthropic itself knows"
    assert "ANTHROPIC_API_KEY in .env" in ran.out
    assert "$3 in, $15 out for a million tokens" in ran.out
    assert "openai/gpt-5" in ran.out
    for shown in (ran.out, run("model", "--json").out):
        assert CANARY not in shown


def test_model_tells_what_another_one_would_mean(run) -> None:
    found = run("model", "--model", "demo", "--json").data
    assert (found["provider"], found["model"], found["key_from"]) == ("demo", "demo", "")
    missing = run("model", "--model", "mistral/codestral-latest")
    assert missing.code == 1
    assert "MISTRAL_API_KEY" in missing.err


def test_a_mistyped_key_of_the_model_is_named(run, home: Path) -> None:
    assert run("config", "check", "--json").data["notes"] == []
    (home / "config.yaml").write_text("model: {default: demo, contxt_length: 5, base-url: 'http://x', colour: red}\n")
    notes = run("config", "check", "--json").data["notes"]
    assert [note.partition(";")[2] for note in notes] == [
        " did you mean model.context_length?",
        " did you mean model.base_url?",
    ]
    assert "model.contxt_length is not a known key" in run("config", "check").out


def test_tools_tell_what_is_on_and_off(run) -> None:
    states = {row["name"]: row["state"] for row in run("tools", "--json").data}
    assert states["terminal"] == "off"
    assert states["read_file"] == "on"
    assert "terminal" in run("tools").out


def test_skills_are_listed_shown_and_broken_ones_told(run, home: Path) -> None:
    assert "There are no skills" in run("skills").out
    (home / "skills" / "deploy").mkdir(parents=True)
    (home / "skills" / "deploy" / "SKILL.md").write_text(
        "---\nname: deploy\ndescription: How to ship.\n---\nPush it.\n"
    )
    (home / "skills" / "broken").mkdir()
    (home / "skills" / "broken" / "SKILL.md").write_text("---\nname: [\n---\n")
    shown = run("skills", "list").out
    assert "How to ship." in shown
    assert "broken" in shown
    assert "Push it." in run("skills", "show", "deploy").out
    assert "hermes skills list shows what there is" in run("skills", "show", "nope").err
    lost = run("skills", "show", "deplyo")
    assert lost.code == 1
    assert "Did you mean deploy?" in lost.err
