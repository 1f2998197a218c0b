"""A platform that a plug-in brings is found, connected and answered on like our own."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.support.gateways import PretendGateway

from gateway.config import load_gateway_config
from gateway.platforms import registry
from hermes_config import config
from hermes_state import SessionDB
from hermes_testing.memory_platform import PretendAdapter
from hermes_testing.plugins import plugin_home

PIGEON = """
from hermes_testing.memory_platform import PretendAdapter

class Pigeon(PretendAdapter):
    pass

def register(ctx):
    ctx.register_platform(
        "pigeon", title="Pigeon post", adapter=f"{__name__}:Pigeon", means="edit",
        fields=({"key": "token", "env": "PIGEON_TOKEN", "help": "the loft's key", "secret": True, "required": True},),
    )
"""


def test_a_plugins_platform_connects_and_answers(db: SessionDB, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def go(adapter: PretendAdapter) -> None:
        async with PretendGateway(db, home, adapter=adapter, gateway={"owners": ["pigeon:42"]}) as here:
            await here.chat.say("hello")
            assert (await here.chat.heard(1))[0].text
            await here.quiet()

    with plugin_home(home) as plugged:
        plugged.add("birds", PIGEON)
        plugged.load("birds")
        config.set_value("platforms.pigeon.enabled", True, home)
        monkeypatch.setenv("PIGEON_TOKEN", "coo")
        settings = load_gateway_config(config.load(home))
        (platform,) = settings.get_connected_platforms()
        adapter = registry.make(platform, settings.platforms[platform])
        assert isinstance(adapter, PretendAdapter) and adapter.means == "edit" and adapter.config.token == "coo"
        asyncio.run(go(adapter))
        assert [row.platform for row in db.inbox.list(state="answered")] == ["pigeon"]


def test_a_secret_that_would_be_kept_in_the_configuration_is_refused(home: Path) -> None:
    with plugin_home(home) as plugged:
        plugged.add("birds", PIGEON.replace('"env": "PIGEON_TOKEN", ', ""))
        plugged.load("birds")
        with pytest.raises(registry.PlatformUnusable, match="the field token is a secret and names no variable"):
            registry.descriptor("pigeon")
