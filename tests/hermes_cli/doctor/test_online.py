"""`hermes doctor --online`, against a model server and a Telegram on loopback; its advice, run at a terminal, mends."""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.hermes_cli.doctors import MODEL, THE_REST, doctor, shell, typed, wrong
from tests.hermes_cli.model_server import KEY, ModelServer
from tests.support.terminal import Terminal

from gateway.platforms.telegram import setup
from hermes_config import config
from hermes_testing.telegram.server import FakeTelegram

pytestmark = [pytest.mark.usefixtures("healthy"), pytest.mark.slow]


def _only(check: str) -> dict[str, Any]:
    (seen,) = [one for one in wrong(doctor("--online")) if one["check"] == check]
    assert seen["mark"] == "problem"
    return seen


def test_a_key_that_the_server_refuses(keyed: ModelServer) -> None:
    config.set_value("model.default", "gpt-5")
    config.set_value("model.provider", "openai")
    config.add_variable("OPENAI_API_KEY", "sk-" + "0ld0" * 10)
    assert doctor()["ok"], "without --online nobody is asked"
    seen = _only("model")
    assert "does not answer" in seen["says"]
    typed(seen["fix"], (MODEL, ""), ("Another key", KEY), *THE_REST)
    assert doctor("--online")["ok"]


def test_a_server_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:9")
    config.set_value("model.default", "little-model")
    config.set_value("model.provider", "ollama")
    seen = _only("model")
    assert "does not answer" in seen["says"] and seen["fix"] == "hermes setup"


@pytest.fixture
def telegram(healthy: Path) -> Iterator[FakeTelegram]:
    """A Telegram that this home is connected to."""
    with FakeTelegram() as fake:
        config.set_value("platforms.telegram.enabled", True)
        config.set_value("platforms.telegram.extra.base_url", fake.base_url)
        config.add_variable("TELEGRAM_BOT_TOKEN", fake.token)
        yield fake


@pytest.mark.parametrize("held", ["", "999:the-old-one-that-was-revoked-long-ago"], ids=["missing", "revoked"])
def test_a_token_that_is_no_good(telegram: FakeTelegram, held: str) -> None:
    config.put_variable("TELEGRAM_BOT_TOKEN", held)
    seen = _only("platform telegram")
    with Terminal(["bash", "-c", seen["fix"]], columns=120) as window:
        window.see("Token: ")
        window.type(telegram.token)
        code = re.search(r"/start (\w{8}) ", window.see("to @hermes_demo_bot."))
        assert code is not None
        telegram.person("ada").say(f"/start {code[1]}")
        assert window.end() == 0, window.shown
    assert doctor("--online")["ok"]


def test_messages_that_go_to_a_webhook(telegram: FakeTelegram) -> None:
    telegram.world.webhook = {"url": "https://elsewhere.example/hook"}
    seen = _only("platform telegram")
    assert "elsewhere.example" in seen["says"]
    assert shell(seen["fix"]).returncode == 0
    assert doctor("--online")["ok"]


def test_an_account_is_tested_and_fixed_under_its_own_name(telegram: FakeTelegram) -> None:
    with FakeTelegram(token="654321:the-token-of-the-bot-for-work", username="hermes_work_bot") as work:
        config.set_value("platforms.telegram@work.enabled", True)
        config.set_value("platforms.telegram@work.extra.base_url", work.base_url)
        assert "telegram@work" in _only("platform telegram@work")["fix"]
        config.add_variable("TELEGRAM_BOT_TOKEN__WORK", work.token)
        work.world.webhook = {"url": "https://elsewhere.example/hook"}
        seen = _only("platform telegram@work")
        assert "elsewhere.example" in seen["says"]
        assert shell(seen["fix"]).returncode == 0 and not work.world.webhook
        assert doctor("--online")["ok"]


def test_another_program_asks_for_the_same_messages(telegram: FakeTelegram) -> None:
    stopped = threading.Event()

    def asks() -> None:
        while not stopped.is_set():
            with contextlib.suppress(setup.BotSetupFailed):
                asyncio.run(setup.listen(telegram.token, {"base_url": telegram.base_url}, seconds=2))

    other = threading.Thread(target=asks)
    other.start()
    try:
        seen = _only("platform telegram")
        assert "another program" in seen["says"] and seen["advice"]
    finally:
        stopped.set()
        other.join()
    assert doctor("--online")["ok"]
