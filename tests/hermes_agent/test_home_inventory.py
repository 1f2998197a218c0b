"""What Hermes makes of each entry of a home: used, harmless, or unsafe to ignore."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.platforms import registry
from hermes_agent import AIAgent, home_inventory
from hermes_cli.main import main
from hermes_config import config
from hermes_config.sections import UNUSED


def uses(home: Path, tree: dict[str, Any], variables: dict[str, str] | None = None) -> dict[str, str]:
    return {one.name: one.use for one in home_inventory.inventory(home, tree, variables or {})}


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        ({"agent": {"max_turns": 5}}, {"agent.max_turns": "used"}),
        ({"gateway": {"drain_seconds": 5}}, {"gateway.drain_seconds": "used"}),
        ({"gateway": {"always_log_local": True}}, {"gateway.always_log_local": "harmless"}),
        ({"stt": {"enabled": True, "provider": "x"}}, {"stt.enabled": "used", "stt.provider": "harmless"}),
        ({"shop": {"colour": "blue"}}, {"shop.colour": "harmless"}),
        ({"shop": {"deny_list": ["a"]}}, {"shop.deny_list": "unsafe"}),
        ({"shop": {"deny_list": []}}, {"shop.deny_list": "harmless"}),
        ({"aprovals": {"mode": "manual"}}, {"aprovals.mode": "harmless"}),
        ({"security": {"anything": True}}, {"security.anything": "unsafe"}),
        ({"privacy": {"redact_pii": True}}, {"privacy.redact_pii": "unsafe"}),
        ({"privacy": {"redact_pii": "off"}}, {"privacy.redact_pii": "harmless"}),
        (
            {"security": {"website_blocklist": {"enabled": True, "domains": ["a"], "shared_files": ["x"]}}},
            {"security.website_blocklist.enabled": "used", "security.website_blocklist.domains": "used",
             "security.website_blocklist.shared_files": "unsafe"},
        ),
        ({"terminal": {"backend": "local"}}, {"terminal.backend": "used"}),
        ({"terminal": {"backend": "ssh"}}, {"terminal.backend": "unsafe"}),
        ({"terminal": {"backend": "ssh"}, "executor": "host"}, {"terminal.backend": "harmless", "executor": "used"}),
        ({"hooks": {"pre_tool_call": {"command": "x", "timeout": 0}}}, {"hooks.pre_tool_call": "unsafe"}),
        ({"hooks": {"pre_tool_call": []}}, {"hooks.pre_tool_call": "harmless"}),
        ({"hooks": {"on_session_end": ["x"]}}, {"hooks.on_session_end": "harmless"}),
        ({"telegram": {"allowed_chats": [-1]}}, {"telegram.allowed_chats": "unsafe"}),
        ({"gateway": {"telegram": {"allowed_chats": [-1]}}}, {"gateway.telegram.allowed_chats": "unsafe"}),
        (
            {"platforms": {"telegram": {"extra": {"allowed_chats": [-1], "allowed_users": [1]}}}},
            {"platforms.telegram.extra.allowed_chats": "unsafe", "platforms.telegram.extra.allowed_users": "used"},
        ),
        ({"platforms": {"telegram": {"extra": {"base_url": "x"}}}}, {"platforms.telegram.extra.base_url": "used"}),
        ({"platforms": {"slack": {"enabled": True, "allowed_users": [1]}}}, {"platforms.slack": "harmless"}),
        ({"slack": {"allowed_users": [1]}}, {"platforms.slack": "harmless"}),
        (
            {"platforms": {"webhook": {"extra": {"routes": {"deploys": {"secret": "x"}}}}}},
            {"webhooks/deploys": "unsafe"},
        ),
        (
            {"platforms": {"telegram": {"channel_overrides": {"-1001": {"model": "x", "system_prompt": "y"}}}}},
            {"platforms.telegram.channel_overrides.-1001.model": "used",
             "platforms.telegram.channel_overrides.-1001.system_prompt": "used"},
        ),
        (  # one name with a dot is no setting, and does not hide behind the one it looks like
            {"approvals.deny": ["rm *"], "approvals": {"deny": ["git *"]}, "agent.max_turns": 5},
            {"approvals.deny": "unsafe", "agent.max_turns": "harmless"},
        ),
        ({"models": {"gpt-4.1": {"context_length": 9000}}}, {"models.gpt-4.1.context_length": "used"}),
        ({"provider_routing": {"data_collection": "deny", "sort": "price"}},
         {"provider_routing.data_collection": "unsafe", "provider_routing.sort": "harmless"}),
        ({"telegram": {"ignored_threads": [3]}}, {"telegram.ignored_threads": "unsafe"}),
        ({"platforms": {"api_server": {"enabled": True, "extra": {"port": 9000}}}},
         {"platforms.api_server.enabled": "used", "platforms.api_server.extra.port": "harmless"}),
        ({"acknowledged": ["a"]}, {}),
    ],
)  # fmt: skip
def test_each_setting_has_one_verdict(tmp_path: Path, tree: dict[str, Any], expected: dict[str, str]) -> None:
    assert uses(tmp_path, tree) == expected


def test_every_known_key_without_effect_is_reported(tmp_path: Path) -> None:
    for key, why in UNUSED.items():
        tree: Any = True
        for name in reversed(key.replace("<name>", "telegram").split(".")):
            tree = {name: tree}
        found = home_inventory.inventory(tmp_path, tree, {})
        assert [(one.name, one.about) for one in found] == [(key.replace("<name>", "telegram"), why.reason)]
        assert found[0].use == ("unsafe" if why.unsafe else "harmless"), key


@pytest.mark.parametrize(
    ("name", "value", "use"),
    [
        ("ANTHROPIC_API_KEY", "x", "used"),
        ("API_SERVER_KEY", "x", "used"),
        ("TELEGRAM_BOT_TOKEN", "x", "used"),
        ("TELEGRAM_HOME_CHANNEL_NAME", "x", "used"),
        ("MY_KEY", "x", "used"),
        ("SLACK_ALLOWED_USERS", "x", "harmless"),
        ("TELEGRAM_ALLOWED_TOPICS", "7", "unsafe"),
        ("TELEGRAM_ALLOWED_TOPICS", "", "harmless"),
        ("HERMES_REDACT_THINGS", "true", "unsafe"),
        ("HERMES_MEDIA_DELIVERY_STRICT", "1", "harmless"),  # send_file is that strict anyway
        ("HERMES_AGENT_TIMEOUT", "60", "harmless"),
        ("SOMETHING", "x", "harmless"),
    ],
)
def test_each_variable_has_one_verdict(tmp_path: Path, name: str, value: str, use: str) -> None:
    tree = {"custom_providers": [{"name": "mine", "key_env": "MY_KEY"}]}
    assert uses(tmp_path, tree, {name: value})[f".env {name}"] == use


def test_our_platforms_are_those_of_the_registry() -> None:
    assert {*registry.built_in(), "api_server", "local"} == set(home_inventory.own_platforms())
    assert not home_inventory.other_platforms() & set(home_inventory.own_platforms())


@pytest.mark.parametrize("text", ["no json", '"text"', "\udcff"])
def test_jobs_that_cannot_be_read_are_unsafe(tmp_path: Path, text: str) -> None:
    (tmp_path / "cron").mkdir()
    (tmp_path / "cron" / "jobs.json").write_text(text, encoding="utf-8", errors="surrogateescape")
    assert uses(tmp_path, {}) == {"cron/jobs.json": "unsafe"}


def test_jobs_may_be_a_bare_list_and_share_a_name(tmp_path: Path) -> None:
    (tmp_path / "cron").mkdir()
    rows = [{"id": "1", "name": "a"}, {"id": "2", "name": "a", "enabled": False}, {"id": "3"}, "x"]
    (tmp_path / "cron" / "jobs.json").write_text(json.dumps(rows))
    assert uses(tmp_path, {}) == {"jobs/a 1": "unsafe", "jobs/3": "unsafe", "jobs/a 2": "harmless"}


def test_a_short_text_of_aliases_does_not_grow_into_an_endless_table(home: Path) -> None:
    home.mkdir()
    bomb = "a0: &a0 {x: 1, y: 1}\n" + "".join(f"a{i}: &a{i} {{x: *a{i - 1}, y: *a{i - 1}}}\n" for i in range(1, 40))
    (home / "config.yaml").write_text(bomb)
    found = home_inventory.of(config.load(home))
    assert found[0].name == "config.yaml" and found[0].stops_start


def test_an_agent_is_not_made_before_the_acknowledgement(home: Path) -> None:
    home.mkdir(mode=0o700)
    (home / "config.yaml").write_text("model: demo\nprivacy: {redact_pii: true}\n")
    with pytest.raises(home_inventory.NotAcknowledged, match=r"hermes config acknowledge privacy\.redact_pii"):
        AIAgent()
    (home / "config.yaml").write_text("model: demo\nprivacy: {redact_pii: true}\nacknowledged: [privacy.redact_pii]\n")
    AIAgent().close()
    (home / "config.yaml").write_text("model: demo\nprivacy: {redact_pii: true}\nacknowledged: []\n")
    with pytest.raises(home_inventory.NotAcknowledged):
        AIAgent()


def test_a_value_that_changes_must_be_acknowledged_again(home: Path) -> None:
    home.mkdir(mode=0o700)
    file = home / "config.yaml"
    file.write_text("model: demo\nterminal: {backend: docker}\nprivacy: {redact_pii: true}\n")
    assert main(["config", "acknowledge", "terminal.backend", "privacy.redact_pii"]) == 0
    AIAgent().close()
    file.write_text(file.read_text().replace("backend: docker", "backend: ssh"))
    with pytest.raises(home_inventory.NotAcknowledged, match=r"terminal\.backend.*acknowledged with another value"):
        AIAgent()
    assert main(["config", "acknowledge", "terminal.backend"]) == 0
    AIAgent().close()
    marks = config.load(home).acknowledged
    assert [home_inventory.name_of(one) for one in marks] == ["privacy.redact_pii", "terminal.backend"], "once each"
    file.write_text("model: demo\nterminal: {backend: modal}\nacknowledged: [terminal.backend]\n")
    AIAgent().close()  # a name that a person wrote is good for every value


def test_a_job_whose_name_ends_like_a_mark_can_be_acknowledged(home: Path) -> None:
    (home / "cron").mkdir(mode=0o700, parents=True)
    job = {"id": "a", "name": "Digest #20261119", "enabled": True, "schedule": {"kind": "cron", "expr": "0 9 * * *"}}
    (home / "cron" / "jobs.json").write_text(json.dumps({"jobs": [job]}))
    (home / "config.yaml").write_text("model: demo\n")
    for _ in range(2):
        assert main(["config", "acknowledge", "jobs/Digest #20261119"]) == 0
        AIAgent().close()
    assert config.load(home).acknowledged == ("jobs/Digest #20261119",)


def test_a_value_of_gateway_json_that_changes_must_be_acknowledged_again(home: Path) -> None:
    home.mkdir(mode=0o700)
    (home / "config.yaml").write_text("model: demo\n")
    for chats in ([-1], [-1, -2]):
        said = {"platforms": {"telegram": {"extra": {"allowed_chats": chats}}}}
        (home / "gateway.json").write_text(json.dumps(said))
        assert main(["config", "check"]) == 1
        assert main(["config", "acknowledge", "gateway.json platforms.telegram.extra.allowed_chats"]) == 0
        assert main(["config", "check"]) == 0


def test_an_older_homes_gateway_json_is_a_part_of_the_table(tmp_path: Path) -> None:
    extra = {"allowed_users": [1], "allowed_chats": [-1]}
    said = {"platforms": {"telegram": {"extra": extra}}, "profile_routes": [{"a": 1}], "group_sessions_per_user": True}
    (tmp_path / "gateway.json").write_text(json.dumps(said))
    assert uses(tmp_path, {}) == {
        "gateway.json platforms.telegram.extra.allowed_chats": "unsafe",
        "gateway.json platforms.telegram.extra.allowed_users": "used",
        "gateway.json profile_routes": "harmless",
        "gateway.json group_sessions_per_user": "used",
    }
    for text in ("[1]", "{", ""):
        (tmp_path / "gateway.json").write_text(text)
        assert uses(tmp_path, {}) == {}


def test_an_event_hook_that_cannot_be_loaded_is_not_called_used(tmp_path: Path) -> None:
    (tmp_path / "hooks" / "odd").mkdir(parents=True)
    (tmp_path / "hooks" / "odd" / "HOOK.yaml").write_text(": : :")
    assert uses(tmp_path, {"hooks": {"enabled": ["odd"]}})["hooks/odd"] == "harmless"


def test_an_event_hook_says_which_of_its_events_is_never_called(tmp_path: Path) -> None:
    folder = tmp_path / "hooks" / "greet"
    folder.mkdir(parents=True)
    (folder / "HOOK.yaml").write_text('name: greet\nevents: [agent:start, agent:end, "agent:*", agent:step]\n')
    (found,) = (one for one in home_inventory.inventory(tmp_path, {"hooks": {"enabled": ["greet"]}}, {})
                if one.name == "hooks/greet")  # fmt: skip
    assert (found.use, found.about) == ("used", "never called for agent:step")
