"""`hermes setup`: with a real server on loopback, at a terminal and without one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.hermes_cli.conftest import Run
from tests.hermes_cli.model_server import KEY, ModelServer
from tests.support.terminal import Terminal

from hermes_config import config

pytestmark = pytest.mark.slow

KeyFile = Callable[[str], str]


@pytest.fixture
def key_file(tmp_path: Path) -> KeyFile:
    """What `--key` is given for a key that lies in a file."""

    def written(key: str) -> str:
        (tmp_path / "key.txt").write_text(f"{key}\n")
        return f"@{tmp_path / 'key.txt'}"

    return written


def test_a_server_on_this_machine_is_found_and_tried(run: Run, server: ModelServer, home: Path) -> None:
    done = run("setup", "--non-interactive")
    assert done.code == 0 and "ollama/little-model. The model answers." in done.out
    assert server.asked == ["little-model"]
    entry = config.load().tree["model"]
    assert (entry["default"], entry["provider"]) == ("little-model", "ollama")
    assert home.stat().st_mode & 0o777 == 0o700
    again = run("setup", "--non-interactive")
    assert "kept" in again.out and server.asked == ["little-model"], "what is set is kept, and not asked again"


def test_a_key_is_tried_and_goes_into_env_alone(
    run: Run, keyed: ModelServer, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import io
    import sys

    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{KEY}\n"))
    done = run("setup", "--non-interactive", "--provider", "openai", "--key", "-", "--budget-day", "2.5")
    assert done.code == 0 and "openai/gpt-5. The model answers." in done.out
    assert (home / ".env").read_text() == f"OPENAI_API_KEY={KEY}\n"
    assert (home / ".env").stat().st_mode & 0o777 == 0o600
    assert KEY not in (home / "config.yaml").read_text() + done.out + done.err
    assert config.load().budget.day.usd == 2.5


def test_a_limit_that_no_price_can_keep_is_said(run: Run, keyed: ModelServer, key_file: KeyFile) -> None:
    address = f"http://{keyed.address}/v1"
    flags = ("--base-url", address, "--model", "mine", "--key", key_file(KEY), "--budget-day", "5")
    done = run("setup", "--non-interactive", *flags)
    assert done.code == 0 and "Ready." not in done.out
    assert "the price of mine is not known, so budget.day.usd cannot be kept" in done.out
    assert "models.mine.price" in done.out
    config.set_value("models.mine.price", {"input": 1, "output": 2})
    assert "Ready." in run("setup", "--non-interactive", *flags).out


def test_the_price_that_a_limit_needs_is_asked_for(run: Run, keyed: ModelServer, key_file: KeyFile, home: Path) -> None:
    flags = ("--base-url", f"http://{keyed.address}/v1", "--model", "mine.2", "--key", key_file(KEY))
    assert run("setup", "--non-interactive", *flags, "--budget-day", "5").code == 0
    with Terminal([sys.executable, "-m", "hermes_cli", "setup"], columns=120) as window:
        for question in (
            "Type a number, a model",
            "Paste the bot's token",
            "does something risky?",
            "on models per day?",
        ):
            window.see(question)
            window.type("")
        window.see("What does mine.2 cost")
        window.type("3 dollars")
        window.see("Two amounts are needed")
        window.type("3 15")
        assert window.end() == 0 and "Ready." in window.shown
    assert config.load(home).tree["models"]["mine.2"]["price"] == {"input": 3, "output": 15}


def test_a_limit_is_saved_after_the_price_that_it_needs(
    run: Run, keyed: ModelServer, key_file: KeyFile, home: Path
) -> None:
    flags = ("--base-url", f"http://{keyed.address}/v1", "--model", "mine", "--key", key_file(KEY))
    assert run("setup", "--non-interactive", *flags).code == 0
    with Terminal([sys.executable, "-m", "hermes_cli", "setup"], columns=120) as window:
        for question, answer in (
            ("Type a number, a model", ""),
            ("Paste the bot's token", ""),
            ("does something risky?", ""),
            ("on models per day?", "5"),
        ):
            window.see(question)
            window.type(answer)
        window.see("What does mine cost")
        window.press("ctrl-c")
        assert window.end() == 130
    assert config.load(home).budget.day.usd is None


def test_a_limit_of_nothing_is_not_taken_for_no_limit(run: Run, home: Path) -> None:
    done = run("setup", "--non-interactive", "--model", "demo", "--budget-day", "0")
    assert "at most $0 per day. Only a model that costs nothing answers; none removes the limit." in done.out
    assert config.load(home).budget.day.usd == 0
    assert run("setup", "--non-interactive", "--model", "demo", "--budget-day", "none").code == 0
    assert config.load(home).budget.day.usd is None


def test_a_key_that_is_no_good_is_not_kept(run: Run, keyed: ModelServer, home: Path, key_file: KeyFile) -> None:
    done = run("setup", "--non-interactive", "--provider", "openai", "--key", key_file("sk-" + "wrong" * 9))
    assert done.code == 1 and done.err.count("\n") == 1
    assert not (home / ".env").exists() and not (home / "config.yaml").exists()


def test_a_server_of_ones_own_with_a_key(run: Run, keyed: ModelServer, home: Path, key_file: KeyFile) -> None:
    address = f"http://{keyed.address}/v1"
    config.set_value("model.context_length", 1234)
    done = run("setup", "--non-interactive", "--base-url", address, "--model", "mine", "--key", key_file(KEY))
    assert done.code == 0, done.err
    entry = config.load().tree["model"]
    assert dict(entry) == {"default": "mine", "provider": "custom", "base_url": address, "key_env": "HERMES_MODEL_KEY"}
    assert KEY in (home / ".env").read_text()


def test_nothing_found_and_nothing_given(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hermes_cli.setup.model.local_servers", lambda loaded: [])
    done = run("setup", "--non-interactive")
    assert done.code == 2 and "no model server answers" in done.err


@pytest.mark.parametrize("flags", [["--budget-day", "lots"], ["--provider", "nobody"], ["--base-url", "ftp://x"]])
def test_a_wrong_flag_is_one_line(run: Run, flags: list[str]) -> None:
    done = run(
        "setup", "--non-interactive", "--no-test", *(["--model", "demo"] if "--budget-day" in flags else []), *flags
    )
    assert done.code == 2 and done.err.count("\n") == 1


def test_without_a_terminal_it_does_not_ask(run: Run) -> None:
    done = run("setup")
    assert done.code == 2 and "--non-interactive" in done.err


def test_a_key_is_not_taken_from_the_command_line(run: Run, home: Path, tmp_path: Path) -> None:
    """Everybody on the machine could read it there, in the list of processes."""
    done = run("setup", "--non-interactive", "--provider", "openai", "--key", KEY)
    assert done.code == 2 and "--key -" in done.err and "@FILE" in done.err and "OPENAI_API_KEY" in done.err
    assert KEY not in done.err and not (home / ".env").exists()
    refused = run("gateway", "setup", "telegram", "--token", "123456:abcdefghijklmnopqrstuvwxyz")
    assert refused.code == 2 and "TELEGRAM_BOT_TOKEN" in refused.err
    gone = run("setup", "--non-interactive", "--provider", "openai", "--key", f"@{tmp_path / 'gone'}")
    assert gone.code == 2 and str(tmp_path / "gone") in gone.err


def test_a_key_of_the_environment_needs_no_flag(run: Run, keyed: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    done = run("setup", "--non-interactive", "--provider", "openai")
    assert done.code == 0 and "openai/gpt-5. The model answers." in done.out
