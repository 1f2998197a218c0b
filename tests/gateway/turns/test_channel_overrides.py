"""A model and instructions for one chat: they hold from the next turn on, and `/model` counts above them."""

from __future__ import annotations

import time
from contextlib import closing
from typing import Any

import pytest
import yaml

from gateway.config import Platform, PlatformConfig, load_gateway_config
from hermes_config import config as configuration
from hermes_config.errors import ConfigError
from hermes_state import SessionDB
from hermes_testing.scenario import Scenario
from hermes_testing.scripted.model import ScriptedModel, always, say
from hermes_testing.telegram.server import FakeTelegram

pytestmark = pytest.mark.slow


def write(scene: Scenario, overrides: dict[Any, Any]) -> None:
    """Change the running gateway's config.yaml."""
    file = scene.home / "config.yaml"
    tree = yaml.safe_load(file.read_text())
    tree["platforms"]["telegram"]["channel_overrides"] = overrides
    file.write_text(yaml.safe_dump(tree))
    time.sleep(1.1)  # the configuration is looked at once a second


def test_instructions_and_model_of_a_chat_hold_from_the_next_turn_on() -> None:
    main, small = (
        ScriptedModel(always(say("From the large one."))),
        ScriptedModel(always(say("From the small one.")), model="small-1"),
    )
    with small.served() as server, Scenario(FakeTelegram(), main, config={"auto_title": False}) as scene:
        own = {"name": "small", "base_url": f"{server.origin}/v1", "api_key": small.api_key}
        scene.config["custom_providers"] = [own]
        ada, bob = scene.owner("ada"), scene.owner("bob")
        scene.start()
        ada.say("one")
        ada.expect("From the large one.")
        chosen = {"model": "small-1", "provider": "small", "system_prompt": "Answer in rhymes."}
        write(scene, {ada.id: chosen})
        ada.say("two")
        ada.expect("From the small one.")
        assert "# Instructions for this chat\n\nAnswer in rhymes." in small.requests[-1].messages[0]["content"]
        bob.say("hello")
        bob.expect("From the large one.")
        assert "rhymes" not in str(main.requests[-1].messages)
        ada.say("/model")
        ada.expect("small-1")
        ada.say(f"/model {main.model}")
        ada.expect(f"From now on here: {main.model}")
        ada.say("three")
        ada.expect("From the large one.", after=ada.replies()[-1].id)
        assert "Answer in rhymes." in str(main.requests[-1].messages[0])
        scene.restart()  # with a config.yaml that says nothing about the chat
        ada.say("four")
        ada.expect("From the large one.", after=ada.replies()[-1].id)
        assert "Instructions for this chat" not in str(main.requests[-1].messages[0])
        with closing(SessionDB(scene.home / "state.db")) as db:
            (session,) = [one["id"] for one in db.list_sessions_rich() if "one" in str(one["preview"])]
            reasons = [epoch.reason for epoch in db.prefixes.epochs(db.get_conversation_root(session))]
            assert reasons == ["first use", *["the chat's instructions changed"] * 2]
            assert db.prefixes.break_count() == 0


def test_which_entry_counts(home: Any) -> None:
    listed = {
        "*": {"model": "m-all", "system_prompt": "all"},
        -7: {"model": "m-chat"},
        "-7:3": {"system_prompt": "thread"},
    }
    home.mkdir()
    (home / "config.yaml").write_text(yaml.safe_dump({"platforms": {"telegram": {"channel_overrides": listed}}}))
    settings = load_gateway_config(configuration.load(home))

    def found(*chat: Any) -> tuple[str | None, str | None]:
        one = settings.chat_override(Platform.TELEGRAM, *chat)
        return one.model, one.instructions

    assert (found("1"), found(-7), found("-7", "3")) == (("m-all", "all"), ("m-chat", "all"), ("m-chat", "thread"))
    again = PlatformConfig.from_dict(settings.platforms[Platform.TELEGRAM].to_dict())
    assert again.channel_overrides["-7:3"].instructions == "thread"
    (home / "config.yaml").write_text("platforms: {telegram: {channel_overrides: {'1': {system_prompt: [a]}}}}\n")
    with pytest.raises(ConfigError, match="system_prompt"):
        load_gateway_config(configuration.load(home))
