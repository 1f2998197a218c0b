"""The gateway's configuration: forgiving in code, strict in files, the reference's answers about its own home."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.example_home import FIXTURES, needs_example_home

from gateway.config import (
    GatewayConfig,
    HomeChannel,
    Platform,
    PlatformConfig,
    SessionResetPolicy,
    StreamingConfig,
    load_gateway_config,
)
from hermes_cli.plugins import get_plugin_manager
from hermes_cli.plugins.api import PluginPlatform
from hermes_config.errors import ConfigError
from hermes_config.sections import table


def load(home: Path, text: str) -> GatewayConfig:
    home.mkdir(exist_ok=True)
    (home / "config.yaml").write_text(text, encoding="utf-8")
    return load_gateway_config()


@needs_example_home
def test_the_reference_home_reads_as_the_reference_reads_it(home: Path) -> None:
    expected: dict[str, Any] = json.loads((FIXTURES / "reference_expected.json").read_text(encoding="utf-8"))
    home.mkdir()
    shutil.copy(FIXTURES / "reference_home" / "config.yaml", home)
    loaded = load_gateway_config().to_dict()
    for section in (loaded["streaming"], *expected["config_platforms"].values()):
        section.pop("mode", None)  # another name of `transport`
        section.pop("gateway_restart_notification", None)
    named = {
        name: {key: one for key, one in value.items() if key in loaded[name]} if isinstance(value, dict) else value
        for name, value in expected["config"].items()
        if name in loaded
    }
    assert {name: loaded[name] for name in named} == named
    gone = {"reset_triggers", "quick_commands", "unauthorized_dm_behavior"}
    assert expected["config"].keys() - named.keys() == gone, "settings without effect; the last is read by the policy"
    assert loaded["platforms"] == expected["config_platforms"]


# -- in code ---------------------------------------------------------------------------------------------------------


def test_platforms_are_found_by_any_spelling_and_strangers_are_refused() -> None:
    assert Platform("telegram") is Platform.TELEGRAM is Platform(" Telegram ")
    assert Platform("IRC") is Platform("irc")
    assert Platform("irc").value == "irc"
    with pytest.raises(ValueError, match="futurenet"):
        Platform("futurenet")
    assert Platform.find(None) is None
    assert Platform.SLACK in Platform and Platform.SLACK.name == "SLACK"


def test_a_platform_that_a_plugin_registers_becomes_a_member() -> None:
    with pytest.raises(ValueError, match="pigeon_post"):
        Platform("pigeon_post")
    registered = get_plugin_manager().registries.platforms
    registered["pigeon_post"] = PluginPlatform("birds", "pigeon_post", {}, "birds")
    try:
        assert Platform("Pigeon_Post") is Platform("pigeon_post")
        config = GatewayConfig.from_dict({"platforms": {"pigeon_post": {"enabled": True}}})
        assert config.platforms[Platform("pigeon_post")].enabled
    finally:
        del registered["pigeon_post"]


def test_a_plugins_platform_connects_with_the_variables_of_its_fields(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = (
        {"key": "token", "env": "PIGEON_TOKEN", "help": "the loft's key", "secret": True, "required": True},
        {"key": "extra.loft", "env": "PIGEON_LOFT", "help": "which loft"},
    )
    about = {"title": "Pigeon post", "adapter": "pigeon_post.adapter:PigeonAdapter", "fields": fields}
    registered = get_plugin_manager().registries.platforms
    registered["pigeon_mail"] = PluginPlatform("birds", "pigeon_mail", about, "birds")
    monkeypatch.setenv("PIGEON_LOFT", "north")
    try:
        assert not load(home, "platforms: {pigeon_mail: {enabled: true, extra: {a: 1}}}\n").get_connected_platforms()
        assert load(home, "platforms: {pigeon_mail: {enabled: false}}\n").get_connected_platforms() == []
        monkeypatch.setenv("PIGEON_TOKEN", "coo")
        config = load(home, "platforms: {pigeon_mail: {enabled: true, extra: {a: 1}}}\n")
        pigeon = config.platforms[Platform("pigeon_mail")]
        assert (pigeon.token, pigeon.extra) == ("coo", {"a": 1, "loft": "north"})
        assert config.get_connected_platforms() == [Platform("pigeon_mail")]
    finally:
        del registered["pigeon_mail"]


def test_code_is_forgiven_everything() -> None:
    bad = {"mode": "banana", "at_hour": "x", "idle_minutes": None, "notify": "maybe"}
    for given in (bad, "nonsense"):
        assert GatewayConfig.from_dict({"session_reset": given}).default_reset_policy == SessionResetPolicy()
    assert PlatformConfig.from_dict({"home_channel": {"name": "no chat"}}).home_channel is None
    assert PlatformConfig.from_dict([1]) == PlatformConfig()
    config = GatewayConfig.from_dict(
        {"platforms": {"futurenet": {}, "telegram": 7}, "streaming": 3, "max_concurrent_sessions": True}
    )
    assert list(config.platforms) == [Platform.TELEGRAM]
    assert (config.streaming.enabled, config.max_concurrent_sessions) == (False, None)


@pytest.mark.parametrize(
    ("given", "days"), [("30", 30), (1.9, 1), (-5, 0), ("nope", 90), (None, 90), (True, 90), (float("inf"), 90)]
)
def test_days_of_the_session_store(given: object, days: int) -> None:
    assert GatewayConfig.from_dict({"session_store_max_age_days": given}).session_store_max_age_days == days


@pytest.mark.parametrize(
    ("given", "enabled", "transport"),
    [
        ({}, False, "auto"),
        ({"mode": "edit"}, True, "edit"),
        ({"mode": "off"}, False, "off"),
        ({"mode": False}, False, "off"),
        ({"mode": True}, True, "auto"),
        ({"mode": "edit", "enabled": False}, False, "edit"),
        ({"enabled": True, "transport": "draft"}, True, "draft"),
        ({"edit_interval": "soon", "enabled": "yes"}, True, "auto"),
        (None, False, "auto"),
    ],
)
def test_streaming(given: object, enabled: bool, transport: str) -> None:
    alone = StreamingConfig.from_dict(given)
    assert (alone.enabled, alone.transport, alone.to_dict()["edit_interval"]) == (enabled, transport, 0.8)
    found = GatewayConfig.from_dict({"streaming": given}).streaming
    assert (found.enabled, found.transport, found.edit_interval) == (enabled, transport, 0.8)


def test_what_is_written_reads_back() -> None:
    config = GatewayConfig(
        platforms={
            Platform.TELEGRAM: PlatformConfig(
                enabled=True,
                token="t",
                home_channel=HomeChannel(Platform.TELEGRAM, "42"),
                extra={"base_url": "http://x"},
            )
        },
        default_reset_policy=SessionResetPolicy(mode="daily", at_hour=6),
        reset_by_type={"group": SessionResetPolicy(mode="idle", idle_minutes=5)},
        reset_by_platform={Platform.SLACK: SessionResetPolicy(mode="both")},
        timezone="Europe/Lisbon",
        busy_input_mode="queue",
    )
    assert GatewayConfig.from_dict(config.to_dict()) == config


def test_a_rule_is_read_and_written_alone() -> None:
    rule = SessionResetPolicy.from_dict({"mode": "idle", "at_hour": None, "notify": "no"})
    assert (rule.mode, rule.at_hour, rule.notify) == ("idle", 4, False)
    assert SessionResetPolicy.from_dict(rule.to_dict()).to_dict() == rule.to_dict()
    assert SessionResetPolicy.from_dict("idle").mode == "none"


def test_whose_rule_counts() -> None:
    slack, group = SessionResetPolicy(mode="both"), SessionResetPolicy(mode="idle")
    config = GatewayConfig(reset_by_platform={Platform.SLACK: slack}, reset_by_type={"group": group})
    assert config.get_reset_policy(Platform.SLACK, "group") is slack
    assert config.get_reset_policy(Platform.TELEGRAM, "group") is group
    assert config.get_reset_policy(Platform.TELEGRAM, "dm").mode == "none"


def test_who_is_connected() -> None:
    config = GatewayConfig(
        platforms={
            Platform.TELEGRAM: PlatformConfig(enabled=True, token="t"),
            Platform.DISCORD: PlatformConfig(enabled=True),
            Platform.SLACK: PlatformConfig(enabled=False, token="t"),
            Platform.EMAIL: PlatformConfig(enabled=True, extra={"address": "a@example.org"}),
        }
    )
    assert config.get_connected_platforms() == [Platform.EMAIL, Platform.TELEGRAM]


def test_secrets_are_never_shown() -> None:
    config = GatewayConfig(
        platforms={
            Platform.TELEGRAM: PlatformConfig(token="123:SECRET", api_key="SECRET", extra={"password": "SECRET"})
        }
    )
    assert "SECRET" not in repr(config)


# -- from a home -----------------------------------------------------------------------------------------------------


def test_an_empty_home_resets_nothing(home: Path) -> None:
    config = load_gateway_config()
    assert config.default_reset_policy.mode == "none"
    assert config.sessions_dir == home / "sessions"
    assert (config.max_message_age, config.drain_seconds, config.busy_input_mode) == (3600, 30.0, "interrupt")


SETTINGS = """
session_reset: {mode: idle, idle_minutes: 10}
reset_by_type: {group: {mode: daily, at_hour: 5}}
reset_by_platform: {slack: {mode: both}}
session_store_max_age_days: 30
group_sessions_per_user: no
thread_sessions_per_user: yes
max_concurrent_sessions: 7
streaming: {mode: edit}
write_sessions_json: false
timezone: Europe/Lisbon
max_message_age: 60
drain_seconds: 2.5
busy_input_mode: queue
media_bytes: 1000
platforms: {telegram: {enabled: true, token: abc, home_channel: {chat_id: 42}}}
api_server: {enabled: true, port: 9000}
"""


@pytest.mark.parametrize("below", [False, True], ids=["top", "gateway"])
def test_every_setting_stands_at_the_top_or_under_gateway(home: Path, below: bool) -> None:
    text = "gateway:" + SETTINGS.replace("\n", "\n  ").rstrip() + "\n" if below else SETTINGS
    config = load(home, text)
    assert config.default_reset_policy == SessionResetPolicy(mode="idle", idle_minutes=10)
    assert config.reset_by_type == {"group": SessionResetPolicy(mode="daily", at_hour=5)}
    assert config.reset_by_platform == {Platform.SLACK: SessionResetPolicy(mode="both")}
    assert (config.session_store_max_age_days, config.max_concurrent_sessions) == (30, 7)
    assert (config.group_sessions_per_user, config.thread_sessions_per_user) == (False, True)
    assert (config.streaming.enabled, config.streaming.transport) == (True, "edit")
    assert config.write_sessions_json is False
    assert (config.timezone, config.max_message_age, config.drain_seconds) == ("Europe/Lisbon", 60, 2.5)
    assert (config.busy_input_mode, config.media_bytes) == ("queue", 1000)
    assert (config.api_server.enabled, config.api_server.port) == (True, 9000)
    telegram = config.platforms[Platform.TELEGRAM]
    assert (telegram.enabled, telegram.token) == (True, "abc")
    assert telegram.home_channel == HomeChannel(Platform.TELEGRAM, "42")


def test_the_top_counts_before_gateway_and_both_before_the_older_file(home: Path) -> None:
    home.mkdir()
    older = {"session_store_max_age_days": 1, "default_reset_policy": {"mode": "daily"}, "max_message_age": 1}
    (home / "gateway.json").write_text(json.dumps(older))
    config = load(home, "session_store_max_age_days: 3\ngateway: {session_store_max_age_days: 2, max_message_age: 2}")
    assert (config.session_store_max_age_days, config.max_message_age) == (3, 2)
    assert config.default_reset_policy.mode == "daily"


def test_a_token_in_the_environment_switches_its_platform_on(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TELEGRAM_BOT_TOKEN", "1:env")
    monkeypatch.setenv("API_SERVER_PORT", "1234")
    monkeypatch.setenv("API_SERVER_HOSTS", "hermes, hermes.example")
    config = load(home, "telegram: {reply_to_mode: all, base_url: http://127.0.0.1:1}\ngateway: {token: x}")
    telegram = config.platforms[Platform.TELEGRAM]
    assert (telegram.enabled, telegram.token, telegram.reply_to_mode) == (True, "1:env", "all")
    assert telegram.extra == {"base_url": "http://127.0.0.1:1"}
    assert config.api_server.port == 1234
    assert config.api_server.hosts == ("hermes", "hermes.example"), "as the page on containers writes it"
    assert not load(home, "platforms: {telegram: {enabled: false}}").platforms[Platform.TELEGRAM].enabled


def test_settings_of_other_packages_that_the_gateway_uses(home: Path) -> None:
    config = load(
        home,
        "agent: {restart_drain_timeout: 12, gateway_timeout: 60, gateway_auto_continue_freshness: 5}\n"
        "display: {busy_input_mode: steer}\n",
    )
    assert (config.drain_seconds, config.turn_seconds, config.resume_window) == (12.0, 60.0, 5.0)
    assert config.busy_input_mode == "steer"
    assert load(home, "agent: {restart_drain_timeout: 0}\n").drain_seconds == 30.0, "hermes-agent wrote it into homes"


@pytest.mark.parametrize(
    ("text", "key", "line", "reason"),
    [
        (
            "session_reset:\n  mode: banana\n",
            "session_reset.mode",
            2,
            "must be none, idle, daily or both, not 'banana'",
        ),
        ("session_reset:\n  at_hour: x\n", "session_reset.at_hour", 2, "must be a whole number from 0 to 23, not 'x'"),
        ("session_reset:\n  at_hour: 24\n", "session_reset.at_hour", 2, "from 0 to 23"),
        ("session_reset: 5\n", "session_reset", 1, "must be a section"),
        ("gateway:\n  reset_by_type:\n    dm: {mode: 7}\n", "gateway.reset_by_type.dm.mode", 3, "must be none"),
        ("reset_by_platform: {futurenet: {mode: idle}}\n", "reset_by_platform.futurenet", 1, "not a known platform"),
        ("session_store_max_age_days: nope\n", "session_store_max_age_days", 1, "must be a whole number"),
        ("max_concurrent_sessions: 2.5\n", "max_concurrent_sessions", 1, "must be a whole number"),
        ("gateway: 7\n", "gateway", 1, "must be a section"),
        ("group_sessions_per_user: maybe\n", "group_sessions_per_user", 1, "must be true or false"),
        ("timezone: Middle/Earth\n", "timezone", 1, "no such time zone"),
        ("display: {busy_input_mode: shout}\n", "display.busy_input_mode", 1, "must be interrupt, queue or steer"),
        ("streaming: {transport: pigeon}\n", "streaming.transport", 1, "must be auto, draft, edit or off"),
        ("platforms:\n  telegram:\n    home_channel: {name: x}\n", "platforms.telegram.home_channel", 3, "chat_id"),
        ("platforms: {telegram: {extra: 3}}\n", "platforms.telegram.extra", 1, "must be a section"),
        ("platforms: {telegram: {token: [a]}}\n", "platforms.telegram.token", 1, "must be a text"),
        (
            "session_reset: {idle_minute: 5}\n",
            "session_reset.idle_minute",
            1,
            "Did you mean session_reset.idle_minutes?",
        ),
        ("gateway:\n  max_mesage_age: 5\n", "gateway.max_mesage_age", 2, "Did you mean gateway.max_message_age?"),
        ("streaming: {edit_intervall: 5}\n", "streaming.edit_intervall", 1, "Did you mean streaming.edit_interval?"),
        ("api_server: {port: 70000}\n", "api_server.port", 1, "from 0 to 65,535"),
    ],
)
def test_a_bad_value_is_named_with_its_place(home: Path, text: str, key: str, line: int, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(home, text)
    error = caught.value
    assert (error.file, error.key, error.line) == (str(home / "config.yaml"), key, line)
    assert reason in error.one_line()
    assert "\n" not in error.one_line()


def test_keys_of_others_are_left_alone(home: Path) -> None:
    load(home, "gateway: {restart_loop_guard: {max_restarts: 3}, something_else: 5}\nsession_reset: {comment: mine}\n")


def test_config_check_names_what_the_gateway_could_not_use(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from hermes_cli.main import main

    home.mkdir()
    (home / "config.yaml").write_text("session_reset:\n  mode: banana\n")
    assert main(["config", "check"]) == 1
    said = capsys.readouterr().err
    assert "session_reset.mode" in said and "config.yaml:2" in said


def test_a_broken_older_file_is_named(home: Path) -> None:
    home.mkdir()
    (home / "gateway.json").write_text("{")
    with pytest.raises(ConfigError, match=r"gateway\.json"):
        load_gateway_config()
    (home / "gateway.json").write_text(json.dumps({"session_store_max_age_days": "x"}))
    with pytest.raises(ConfigError, match="session_store_max_age_days"):
        load_gateway_config()


def test_the_operators_page_shows_only_settings_that_exist() -> None:
    page = (Path(__file__).parents[2] / "docs" / "operators" / "configuration.md").read_text(encoding="utf-8")
    section = page.split("## The gateway")[1].split("\n## ")[0]
    shown = yaml.safe_load("\n".join(line for line in section.splitlines() if line.startswith("    ")))
    assert len(shown) > 3
    assert not [name for name in shown if not table().is_known(f"gateway.{name}")]


def test_a_held_chat_that_is_misspelt_is_refused(home: Path) -> None:
    with pytest.raises(ConfigError, match="'4202' is neither PLATFORM nor PLATFORM:CHAT"):
        load(home, "delivery:\n  hold: ['4202', 'telegram:7']\n")
    assert load(home, "delivery:\n  hold: [telegram:7, telegram]\n").delivery.hold == ("telegram:7", "telegram")
