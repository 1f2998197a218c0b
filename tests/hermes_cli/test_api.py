"""`hermes api key`: the one place that shows the key."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


def test_a_key_is_made_once_and_printed_alone(run: Callable[..., Any], home: Path) -> None:
    made = run("api", "key")
    key = made.out.strip()
    assert len(key) >= 16 and made.out == f"{key}\n" and "gateway restart" in made.err
    assert (home / ".env").read_text(encoding="utf-8") == f"API_SERVER_KEY={key}\n"
    assert stat.S_IMODE((home / ".env").stat().st_mode) == 0o600
    again = run("api", "key", "--json").data
    assert again["key"] == key and again["new"] is False and again["base_url"] == "http://127.0.0.1:8642/v1"


def test_another_key_takes_its_place_and_other_lines_stay(run: Callable[..., Any], home: Path) -> None:
    home.mkdir(mode=0o700)
    before = "# mine\nTELEGRAM_BOT_TOKEN='1:a b'\nAPI_SERVER_KEY=an-old-key-of-my-own\n\nexport LAST=1\n"
    (home / ".env").write_text(before, encoding="utf-8")
    assert run("api", "key").out == "an-old-key-of-my-own\n"
    new = run("api", "key", "--rotate").out.strip()
    after = (home / ".env").read_text(encoding="utf-8")
    assert new != "an-old-key-of-my-own" and run("api", "key").out.strip() == new
    assert after == before.replace("API_SERVER_KEY=an-old-key-of-my-own\n", "") + f"API_SERVER_KEY={new}\n"


def test_a_key_that_is_too_short_is_refused_and_not_shown(run: Callable[..., Any], home: Path) -> None:
    home.mkdir(mode=0o700)
    (home / ".env").write_text("API_SERVER_KEY=hunter2\n", encoding="utf-8")
    refused = run("api", "key")
    assert refused.code != 0 and "fewer than 16 characters" in refused.err and "hunter2" not in refused.err


def test_a_key_of_the_environment_is_not_changed_here(
    run: Callable[..., Any], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_SERVER_KEY", "from-the-environment-0123")
    assert run("api", "key").out == "from-the-environment-0123\n"
    refused = run("api", "key", "--rotate")
    assert refused.code == 2 and "environment" in refused.err and not (home / ".env").exists()
