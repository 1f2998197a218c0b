"""Accounts of a platform (`telegram@work`): names, settings, secrets, rights, and what they share with nobody."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from prometheus_client import generate_latest
from tests.gateway.access.test_policy import speaks
from tests.support.gateways import PretendGateway

from gateway.access.policy import PolicyKeeper
from gateway.config import GatewayConfig, Platform, load_gateway_config
from gateway.outbound import streaming
from gateway.platforms import registry
from gateway.routes.keys import build_session_key
from gateway.routes.source import SessionEntry, SessionSource
from hermes_agent import home_inventory, jobs
from hermes_agent.knowledge import skills
from hermes_agent.tools.registry import choose_toolsets
from hermes_config import config, redaction
from hermes_config.errors import ConfigError, UsageError
from hermes_state import SessionDB
from hermes_state.turns.held_answers import is_listed
from hermes_testing.memory_platform import PretendAdapter
from hermes_testing.plugins import plugin_home
from hermes_testing.scripted.model import ScriptedModel, say

WORK = "telegram@work"


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BOT_TOKEN", "ALLOWED_USERS", "HOME_CHANNEL", "REQUIRE_MENTION"):
        monkeypatch.delenv(f"TELEGRAM_{name}", raising=False)


@pytest.fixture
def home(home: Path) -> Path:
    home.mkdir(mode=0o700, exist_ok=True)
    return home


def load(home: Path, text: str) -> GatewayConfig:
    (home / "config.yaml").write_text(text, encoding="utf-8")
    return load_gateway_config(config.load(home))


# -- names -----------------------------------------------------------------------------------------------------------


def test_an_account_is_a_platform_of_its_own_with_one_object_for_its_name() -> None:
    work = Platform(" Telegram@Work ")
    assert work is Platform(WORK) is not Platform.TELEGRAM and work.value == WORK
    assert work not in Platform, "the list has the platforms that there are, each once"


@pytest.mark.parametrize(
    "name",
    [
        "telegram@", "telegram@a b", "telegram@a:b", "telegram@ä", "telegram@a@b", "telegram@a/b",
        "telegram@" + "a" * 33, "local@work", "api_server@work", "futurenet@work", "@work",
    ],
)  # fmt: skip
def test_a_bad_name_is_no_platform(name: str) -> None:
    assert Platform.find(name) is None


def test_the_configuration_names_a_bad_account_with_its_place(home: Path) -> None:
    with pytest.raises(ConfigError, match=r"telegram@my bot: 'my bot' is not the name of an account") as caught:
        load(home, "platforms:\n  telegram@my bot: {enabled: true}\n")
    assert caught.value.line == 2 and "telegram@work" in caught.value.hint and "\n" not in caught.value.one_line()


def test_an_account_of_an_unknown_platform_is_reported_and_stops_nothing(home: Path) -> None:
    bad = "{enabled: true, allowed_users: [1]}"
    settings = load(home, f"platforms: {{telegarm@work: {bad}, telegram: {{enabled: true, token: '1:a'}}}}")
    assert settings.unknown_platforms == ("telegarm@work",)
    assert [one.value for one in settings.get_connected_platforms()] == ["telegram"]
    with pytest.raises(registry.PlatformUnusable, match="there is no platform 'telegarm'"):
        registry.descriptor("telegarm@work")
    entries = [one for one in home_inventory.of(config.load(home)) if "telegarm" in one.name]
    assert {one.use for one in entries} == {"harmless"}, "and none that Hermes would not start with"
    assert all(one.about.startswith("there is no platform telegarm") for one in entries)


def test_routes_of_accounts_differ_and_read_back() -> None:
    private, work = (SessionSource(Platform(name), "42", user_id="42") for name in ("telegram", WORK))
    keys = [build_session_key(one) for one in (private, work)]
    assert keys == ["agent:main:telegram:dm:42", "agent:main:telegram@work:dm:42"]
    now = "2026-07-01T10:00:00"
    entry = SessionEntry.from_dict(
        {"session_key": keys[1], "session_id": "s1", "created_at": now, "updated_at": now, "platform": WORK,
         "origin": work.to_dict()}
    )  # fmt: skip
    assert entry.platform is Platform(WORK) and entry.origin == work
    assert SessionEntry.from_dict(json.loads(json.dumps(entry.to_dict()))) == entry


# -- settings and secrets --------------------------------------------------------------------------------------------


def test_an_account_has_its_own_block_and_variables_and_takes_nothing_from_the_first(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TELEGRAM_BOT_TOKEN", "1:first")
    monkeypatch.setenv("TELEGRAM_HOME_CHANNEL", "42")
    monkeypatch.setenv("TELEGRAM_REQUIRE_MENTION", "false")
    text = "platforms: {telegram@work: {reply_to_mode: all}, telegram: {extra: {base_url: http://own}}}"
    settings = load(home, text)
    work = settings.platforms[Platform(WORK)]
    assert (work.enabled, work.token, work.home_channel, work.extra) == (False, None, None, {})
    assert work.reply_to_mode == "all" and settings.platforms[Platform.TELEGRAM].reply_to_mode == "first"
    (home / ".env").write_text("TELEGRAM_BOT_TOKEN__WORK=2:second\n")
    monkeypatch.setenv("TELEGRAM_HOME_CHANNEL__WORK", "7")
    monkeypatch.setenv("TELEGRAM_REQUIRE_MENTION__WORK", "true")
    settings = load(home, text)
    work = settings.platforms[Platform(WORK)]
    assert (work.enabled, work.token, work.extra) == (True, "2:second", {"require_mention": "true"} | work.extra)
    assert work.home_channel is not None and work.home_channel.chat_id == "7"
    assert work.home_channel.platform is Platform(WORK)
    assert [one.value for one in settings.get_connected_platforms()] == ["telegram", WORK]
    assert not load(home, "platforms: {telegram@work: {enabled: false}}").platforms[Platform(WORK)].enabled
    assert load(home, "telegram@work: {base_url: http://own}").platforms[Platform(WORK)].extra == {
        "base_url": "http://own", "require_mention": True,
    }  # fmt: skip


def test_a_token_alone_makes_no_account(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TELEGRAM_BOT_TOKEN__WORK", "2:second")
    assert Platform(WORK) not in load(home, "").platforms


def test_two_accounts_with_one_token_or_one_set_of_variables_are_refused(home: Path) -> None:
    text = (
        "platforms: {telegram@b: {enabled: true, token: '1:a'}, telegram@a: {enabled: true, token: '1:a'},"
        " telegram@a-b: {enabled: true, token: '2:b'}, telegram@a_b: {enabled: true, token: '3:c'},"
        " telegram@off: {enabled: false, token: '1:a'}, telegram: {enabled: true, token: '4:d'}}"
    )
    settings = load(home, text)
    connected = [one.value for one in settings.get_connected_platforms()]
    assert connected == ["telegram", "telegram@a", "telegram@a-b"]
    problems = {name.value: one.problem for name, one in settings.platforms.items() if one.problem}
    assert problems == {
        "telegram@b": "it has the same token as telegram@a; each account needs its own",
        "telegram@a_b": "it would have the variables of telegram@a-b; choose another name",
    }
    with pytest.raises(registry.PlatformUnusable, match="same token"):
        registry.make(Platform("telegram@b"), settings.platforms[Platform("telegram@b")])


@pytest.mark.parametrize("account", ["work", "home", "id", "name", "url", "users", "my-file", "a__b", "_"])
def test_the_token_of_any_account_is_known_as_a_secret(home: Path, account: str) -> None:
    (home / "config.yaml").write_text(f"platforms: {{telegram@{account}: {{enabled: true}}}}\n")
    variable = registry.descriptor(f"telegram@{account}").fields[0].env
    secret = f"{account}-correct-horse-battery"
    (home / ".env").write_text(f"{variable}={secret}\nPIGEON_LOGIN__EMAIL=pigeons-are-not-shy\n")
    assert load_gateway_config(config.load(home)).platforms[Platform(f"telegram@{account}")].token == secret
    assert redaction.is_covered_name(variable)
    assert secret not in redaction.redacted(f"it is {secret}", home)
    assert "pigeons" not in redaction.redacted("it is pigeons-are-not-shy", home), "a secret of another name, too"


def test_config_check_knows_the_keys_and_variables_of_accounts(home: Path) -> None:
    (home / "config.yaml").write_text(
        "platforms:\n  telegram@work: {enabled: true, allow_bots: all, extra: {base_url: x, pet: y}}\n"
        "telegram@play: {allowed_chats: [1]}\n"
    )
    (home / ".env").write_text(
        "TELEGRAM_BOT_TOKEN__WORK=1:a\nTELEGRAM_ALLOWED_USERS__WORK=1\nTELEGRAM_ALLOWED_USERS__NOWHERE=1\n"
    )
    found = {one.name: (one.use, one.about) for one in home_inventory.of(config.load(home))}
    assert {name: use for name, (use, _) in found.items()} == {
        "platforms.telegram@work.enabled": "used",
        "platforms.telegram@work.allow_bots": "used",
        "platforms.telegram@work.extra.base_url": "used",
        "platforms.telegram@work.extra.pet": "harmless",
        "telegram@play.allowed_chats": "unsafe",
        ".env TELEGRAM_BOT_TOKEN__WORK": "used",
        ".env TELEGRAM_ALLOWED_USERS__WORK": "used",
        ".env TELEGRAM_ALLOWED_USERS__NOWHERE": "harmless",
    }
    assert found[".env TELEGRAM_ALLOWED_USERS__NOWHERE"][1] == "config.yaml has no such account of telegram"
    (home / "config.yaml").write_text("platforms: {telegram@work: {token: '2:b', allowed_users: [1]}}\n")
    found = {one.name: (one.use, one.about) for one in home_inventory.of(config.load(home))}
    assert "TELEGRAM_BOT_TOKEN__WORK is set, and counts above it" in found["platforms.telegram@work.token"][1]


def test_what_is_said_about_a_platform_counts_for_its_accounts_unless_they_have_their_own(home: Path) -> None:
    (home / "config.yaml").write_text(
        "platform_toolsets: {telegram: [web], telegram@play: [file]}\n"
        "skills: {platform_disabled: {telegram: [juggling]}}\n"
        "reset_by_platform: {telegram: {mode: daily}, telegram@play: {mode: idle}}\n"
        "display: {platforms: {telegram: {tool_progress: all}}}\n"
        "delivery: {hold: [telegram, 'telegram@play:7']}\n"
    )
    loaded, settings = config.load(home), load_gateway_config(config.load(home))

    def tools(platform: str) -> frozenset[str]:
        return choose_toolsets(loaded, platform=platform, enabled=None, disabled=()).on

    assert tools(WORK) == tools("telegram") != tools("telegram@play")
    modes = [settings.get_reset_policy(Platform(name)).mode for name in ("telegram", WORK, "telegram@play", "slack")]
    assert modes == ["daily", "daily", "idle", "none"]
    assert is_listed(settings.delivery.hold, WORK, "42") and is_listed(settings.delivery.hold, "telegram", "42")
    assert not is_listed(("telegram@play",), "telegram", "42") and not is_listed((WORK,), "telegram@play", "42")
    skill = home / "skills" / "juggling" / "SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: juggling\ndescription: throws balls\n---\nThrow.\n")
    offered = {name: len(skills.discover(loaded, platform=name).skills) for name in ("telegram", WORK, "slack")}
    assert offered == {"telegram": 0, WORK: 0, "slack": 1}


# -- rights ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_nothing_that_opens_one_account_opens_another(
    db: SessionDB, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "config.yaml").write_text(
        "platforms:\n"
        "  telegram: {enabled: true, allowed_users: ['42'], group_allowed_chats: ['-100']}\n"
        "  telegram@work: {enabled: true}\n"
        "gateway: {owners: ['telegram:1']}\n"
    )
    keeper = PolicyKeeper(db, home)

    def may(native_id: str, place: str = "dm") -> tuple[bool, bool]:
        both = [speaks(keeper.current(), native_id, place, name).allowed for name in ("telegram", WORK)]
        return both[0], both[1]

    assert [may("42"), may("1"), may("9", "-100")] == [(True, False)] * 3
    assert speaks(keeper.current(), "42", platform=WORK).reply == "pair", "a stranger there"
    db.pairings.link(db.people.owner().id, platform="telegram", native_id="5")
    assert may("5") == (True, False), "not even the owner's other account"
    monkeypatch.setenv("TELEGRAM_ALLOWED_USERS__WORK", "7")
    monkeypatch.setenv("TELEGRAM_GROUP_ALLOWED_CHATS__WORK", "-200")
    keeper = PolicyKeeper(db, home)
    assert [may("7"), may("9", "-200"), may("42")] == [(False, True), (False, True), (True, False)]
    db.pairings.revoke(platform="telegram", native_id="42")
    assert may("42") == (False, False) and may("7") == (False, True)


@pytest.mark.slow
def test_a_question_goes_first_to_the_account_that_asks(db: SessionDB, home: Path) -> None:
    from gateway.access.authorisation import Question, approvers

    (home / "config.yaml").write_text(f"gateway: {{owners: ['telegram:42', '{WORK}:42'], approvers: ['{WORK}:7']}}\n")
    (home / ".env").write_text("TELEGRAM_ALLOWED_USERS__WORK=7\n")
    with (home / "config.yaml").open("a") as file:
        file.write("platforms: {telegram@work: {enabled: true}}\n")
    policy = PolicyKeeper(db, home).current()

    def asked(near: str) -> list[str]:
        return [f"{who.platform}:{who.native_id}" for who in approvers(Question(None), policy, near=near)]

    assert asked("telegram") == ["telegram:42", "telegram@work:42", "telegram@work:7"]
    assert asked(WORK) == ["telegram@work:42", "telegram:42", "telegram@work:7"], "owners before others, wherever"


# -- what the rest of Hermes makes of an account ----------------------------------------------------------------------


def test_a_job_finds_the_chat_of_the_account_that_it_names(db: SessionDB, home: Path) -> None:
    (home / "config.yaml").write_text("platforms: {telegram@work: {home_channel: {chat_id: '7'}}}\n")
    loaded, owner = config.load(home), db.people.owner()
    named = jobs.address_for(db, loaded, owner, None, to=f"{WORK}:42", any_chat=True)
    assert (named.platform, named.chat_id, named.route) == (WORK, "42", "agent:main:telegram@work:dm:42")
    assert jobs.address_for(db, loaded, owner, None).platform == WORK, "the only home chat"
    assert jobs.address_for(db, loaded, owner, None, to=WORK).chat_id == "7"
    for wrong in ("telegram@:42", "telegram:", "telegarm@work:42"):
        with pytest.raises(UsageError, match="no chat of yours"):
            jobs.address_for(db, loaded, owner, None, to=wrong, any_chat=True)


PIGEON = """
from hermes_testing.memory_platform import PretendAdapter

class Pigeon(PretendAdapter):
    pass

def register(ctx):
    ctx.register_platform(
        "pigeon", title="Pigeon post", adapter=f"{__name__}:Pigeon", prompt_hint="You write on small paper.",
        fields=({"key": "token", "env": "PIGEON_TOKEN", "help": "the loft's key", "secret": True, "required": True},),
    )
"""


@pytest.mark.slow
def test_a_plugins_platform_has_accounts_without_knowing_of_them(
    db: SessionDB, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIGEON_TOKEN", "coo")
    monkeypatch.setenv("PIGEON_TOKEN__LOFT", "croo")

    async def go(adapter: PretendAdapter) -> None:
        own = {"owners": ["pigeon@loft:42"]}
        with ScriptedModel(say("Coo.")) as model:
            async with PretendGateway(db, home, model, adapter=adapter, gateway=own) as here:
                assert streaming.of(here.parts.services, adapter).tool_lines == "new"
                await here.chat.say("hello")
                assert (await here.chat.heard(1))[0].text == "Coo."
                await here.quiet()
            assert "You write on small paper." in model.requests[0].system
            counted = generate_latest(here.parts.services.metrics.registry).decode()
            assert 'hermes_turns_total{outcome="done",platform="pigeon@loft"} 1.0' in counted

    with plugin_home(home) as plugged:
        plugged.add("birds", PIGEON)
        plugged.load("birds")
        config.set_value("platforms.pigeon@loft.enabled", True, home)
        settings = load_gateway_config(config.load(home))
        assert [one.value for one in settings.get_connected_platforms()] == ["pigeon", "pigeon@loft"]
        loft = Platform("pigeon@loft")
        adapter = registry.make(loft, settings.platforms[loft])
        assert isinstance(adapter, PretendAdapter) and adapter.config.token == "croo" and adapter.platform is loft
        assert registry.descriptor("pigeon@loft").title == "Pigeon post (loft)"
        asyncio.run(go(adapter))
        assert [row.platform for row in db.inbox.list(state="answered")] == ["pigeon@loft"]
