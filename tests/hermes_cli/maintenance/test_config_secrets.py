"""`hermes config` and secrets: what is shown covers them, and what is set goes where they are kept."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.hermes_cli.conftest import Run
from tests.support.terminal import Terminal

from hermes_config import config
from tui_gateway import server

pytestmark = pytest.mark.slow

PLANTED = {
    "GITHUB_PAT": "ghp_canary0123456789abcdefghij",
    "model": {
        "default": "demo",
        "base_url": "http://bob:canary1x@127.0.0.1:9/v1",
        "headers": {
            "Authorization": "Bearer sk-ant-api03-canary0123456789",
            "X-Team": "canary blue",
            "X-Retry": 83719201,
        },
    },
    "hub": {
        "url": "https://hub.example/v1?api_key=CANARYquery&page=canary2#canary3",
        "mirrors": [
            "https://canarytoken@mirror.example/x",
            "see https://a.example/?k=canary and http://b.example/plain",
        ],
        "extra_headers": {"Cookie": "session=canary"},
        "auth": {"bearer": "canaryvalue", "realm": ["canary realm"]},
        "cookies": "canary=1",
    },
    "door2": {"auth": "oauth", "url": "http://plain.example:80/v1"},
    "mcp_servers": {"hub": {"args": ["--as", "sk-proj-canary0123456789abcd"], "env": {"dbpassword": "canary pass"}}},
    "secrets": {"alice": "canary of alice"},
    "door": {"password": 83719201, "key": "canary-key-7"},
    "shop": {"token_rates": 1000, "tokens": "many"},
}


@pytest.fixture
def planted(home: Path) -> None:
    for key, value in PLANTED.items():
        config.set_value(key, value)


def _over_rpc() -> Any:
    answer = server.handle_request({"jsonrpc": "2.0", "id": 1, "method": "config.get", "params": {"key": "full"}})
    assert answer is not None
    return answer["result"]["value"]


@pytest.mark.usefixtures("planted")
def test_the_command_and_the_protocol_show_the_same_and_no_secret(run: Run) -> None:
    shown = run("config", "show", "--json").data
    assert shown == _over_rpc()
    assert shown["model"]["base_url"] == "http://bob:[secret]@127.0.0.1:9/v1"
    assert shown["model"]["headers"] == dict.fromkeys(("Authorization", "X-Team", "X-Retry"), "[secret]")
    assert shown["hub"] == {
        "url": "https://hub.example/v1?api_key=[secret]&page=[secret]#[secret]",
        "mirrors": ["https://[secret]@mirror.example/x", "see https://a.example/?k=[secret] and http://b.example/plain"],
        "extra_headers": {"Cookie": "[secret]"}, "auth": {"bearer": "[secret]", "realm": ["[secret]"]},
        "cookies": "[secret]",
    }  # fmt: skip
    assert shown["door2"] == PLANTED["door2"], "a way to log in and an address without a secret are none"
    assert shown["mcp_servers"]["hub"]["args"] == ["--as", "[secret]"]
    assert shown["shop"] == PLANTED["shop"], "a number of tokens is none"
    said = run("config", "show").out + str(shown)
    assert "canary" not in said and "83719201" not in said


@pytest.mark.usefixtures("planted")
@pytest.mark.parametrize(
    "key",
    [
        "GITHUB_PAT", "model.headers.Authorization", "model.headers.X-Team", "model.headers.X-Retry",
        "hub.extra_headers.Cookie", "hub.auth.bearer", "hub.cookies", "secrets.alice", "door.password", "door.key",
    ],
)  # fmt: skip
def test_one_key_of_it_is_covered_as_well(run: Run, key: str) -> None:
    assert run("config", "get", key).out == "[secret]\n"


@pytest.mark.usefixtures("planted")
@pytest.mark.parametrize("key", ["hub", "hub.url", "hub.mirrors", "hub.extra_headers", "hub.auth", "model"])
def test_a_part_of_it_is_covered_as_well(run: Run, key: str) -> None:
    """The review's address, cookie and token, each asked for by itself."""
    said = run("config", "get", key)
    assert said.code == 0 and "[secret]" in said.out and "canary" not in said.out.lower()


@pytest.mark.parametrize("key", ["budget.day.usd", "session_reset.mode", "agent.reasoning_effort"])
def test_a_key_that_was_put_into_the_wrong_place_is_not_quoted(run: Run, home: Path, key: str) -> None:
    said = run("config", "set", key, "sk-proj-canary0123456789abcd")
    assert "canary" not in said.out + said.err
    for verb in ("check", "show"):
        said = run("config", verb)
        assert "canary" not in said.out + said.err


@pytest.mark.usefixtures("planted")
def test_a_stored_direction_mark_does_not_reach_the_terminal(run: Run) -> None:
    config.set_value("note", {"text": "abc\u202edef"})
    assert "\u202e" not in run("config", "show").out


# -- setting one -------------------------------------------------------------------------------------------------------


@pytest.fixture
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def _private(home: Path) -> str:
    """What `.env` says, which nobody else can read; the other file has none of it."""
    assert (home / ".env").stat().st_mode & 0o777 == 0o600
    assert not (home / "config.yaml").exists() or "canary" not in (home / "config.yaml").read_text()
    return (home / ".env").read_text()


@pytest.mark.usefixtures("no_key")
@pytest.mark.parametrize("name", ["OPENAI_API_KEY", "openai_api_key"])
def test_a_variable_goes_to_env_with_a_word_about_the_history(run: Run, home: Path, name: str) -> None:
    said = run("config", "set", name, "sk-canary-0123456789")
    assert said.code == 0 and "history" in said.out and "canary" not in said.out
    assert _private(home) == "OPENAI_API_KEY=sk-canary-0123456789\n"
    assert run("config", "get", name).out == "[secret]\n"
    assert run("config", "get", name, "--json").data == "[secret]"
    assert run("config", "unset", name).code == 0 and _private(home) == ""
    for verb in ("get", "unset"):
        assert "OPENAI_API_KEY is not set in .env" in run("config", verb, name).err


@pytest.mark.usefixtures("no_key")
def test_a_secret_comes_piped_or_from_a_file_without_that_word(
    run: Run, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("sk-canary-piped-1\n"))
    said = run("config", "set", "OPENAI_API_KEY", "-")
    assert "history" not in said.out and "sk-canary-piped-1" in _private(home)
    (tmp_path / "key").write_text("sk-canary-filed-1\n")
    said = run("config", "set", "OPENAI_API_KEY", f"@{tmp_path / 'key'}")
    assert "history" not in said.out and _private(home) == "OPENAI_API_KEY=sk-canary-filed-1\n"
    for pointer, words in (("-", "got no value"), (f"@{tmp_path}", "cannot be read"), ("", "got no value")):
        refused = run("config", "set", "OPENAI_API_KEY", pointer)
        assert refused.code == 2 and words in refused.err
    assert run("config", "set", "OPENAI_API_KEY").code == 2, "there is nobody to ask"
    assert _private(home) == "OPENAI_API_KEY=sk-canary-filed-1\n"


@pytest.mark.usefixtures("no_key")
def test_a_secret_is_asked_for_unseen(home: Path) -> None:
    with Terminal([sys.executable, "-m", "hermes_cli", "config", "set", "OPENAI_API_KEY"], columns=120) as window:
        window.see("OPENAI_API_KEY; it is not shown: ")
        window.type("sk-canary-typed-1")
        assert window.end() == 0
        assert "canary" not in window.raw and "history" not in window.shown
    assert _private(home) == "OPENAI_API_KEY=sk-canary-typed-1\n"


def test_a_copy_that_stood_in_the_other_file_goes(run: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config.set_value("OPENAI_API_KEY", "sk-canary-old-1")
    config.set_value("note", "mine")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-another-one-1")
    said = run("config", "set", "OPENAI_API_KEY", "sk-canary-new-1").out
    assert "removed there" in said and "the environment sets OPENAI_API_KEY to another value" in said
    assert _private(home) == "OPENAI_API_KEY=sk-canary-new-1\n" and config.load().tree["note"] == "mine"


def test_other_variables_are_kept_there_too_and_other_keys_are_not(run: Run, home: Path) -> None:
    assert "history" not in run("config", "set", "TELEGRAM_ALLOWED_USERS", "42").out
    assert config.load().dotenv == {"TELEGRAM_ALLOWED_USERS": "42"}
    assert run("config", "get", "TELEGRAM_ALLOWED_USERS").out == "42\n"
    assert "history" in run("config", "set", "model.api_key", "sk-canary-0123456789").out
    assert config.load().tree["model"] == {"api_key": "sk-canary-0123456789"}
    config.set_value("my_secrets", {"alice": "canary of alice"})
    assert run("config", "get", "my_secrets").out == "alice: '[secret]'\n"


@pytest.mark.usefixtures("no_key")
def test_a_key_can_be_set_while_the_other_file_does_not_load(run: Run, home: Path) -> None:
    home.mkdir()
    (home / "config.yaml").write_text("model: [\n")
    assert run("config", "set", "OPENAI_API_KEY", "sk-canary-0123456789").code == 0
    assert "canary" in _private(home)


def test_a_secret_that_is_no_text_is_refused(run: Run, home: Path) -> None:
    refused = run("config", "set", "SOME_API_KEY", "canary\udcff")
    assert refused.code == 1 and "cannot hold this value" in refused.err and "canary" not in refused.err
    assert not (home / ".env").exists()
