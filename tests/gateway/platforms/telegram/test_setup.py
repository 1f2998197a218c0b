"""What a home says about Telegram, in its files and in variables, is what the adapter gets."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.config import GatewayConfig, Platform, load_gateway_config
from hermes_config import config


@pytest.fixture
def settings(home: Path) -> GatewayConfig:
    home.mkdir(exist_ok=True)
    (home / ".env").write_text(
        "TELEGRAM_BOT_TOKEN=12:AA\nTELEGRAM_HOME_CHANNEL=-1009\nTELEGRAM_HOME_CHANNEL_NAME=Ops\n"
        "TELEGRAM_HOME_CHANNEL_THREAD_ID=7\nTELEGRAM_REPLY_TO_MODE=all\nTELEGRAM_REQUIRE_MENTION=false\n"
    )
    (home / "config.yaml").write_text(
        "platforms:\n  telegram:\n    home_channel: {chat_id: 5}\n    extra: {base_url: 'http://127.0.0.1:1/bot'}\n"
    )
    return load_gateway_config(config.load(home))


def test_variables_of_existing_homes_are_understood(settings: GatewayConfig) -> None:
    found = settings.platforms[Platform.TELEGRAM]
    assert (found.enabled, found.token, found.reply_to_mode) == (True, "12:AA", "all")
    assert found.extra == {"base_url": "http://127.0.0.1:1/bot", "require_mention": False}
    home = settings.get_home_channel(Platform.TELEGRAM)
    assert home is not None
    assert (home.chat_id, home.name, home.thread_id) == ("-1009", "Ops", "7")
    assert "12:AA" not in repr(settings)


def test_without_a_token_there_is_no_platform(home: Path) -> None:
    home.mkdir(exist_ok=True)
    (home / ".env").write_text("TELEGRAM_HOME_CHANNEL=5\n")
    assert Platform.TELEGRAM not in load_gateway_config(config.load(home)).platforms
