"""The policy in memory: read from files, environment and store, and fresh at the next message."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.access import policy as policies
from gateway.access.authorisation import Decision, Policy, Principal, Surface, decide
from gateway.access.policy import PolicyKeeper
from hermes_config.errors import ConfigError
from hermes_config.home import hermes_home
from hermes_state.session_db import SessionDB

pytestmark = pytest.mark.slow


def speaks(policy: Policy, native_id: str = "42", place: str = "dm", platform: str = "telegram") -> Decision:
    surface = Surface("dm", platform, native_id) if place == "dm" else Surface("group", platform, place)
    return decide(Principal("user", platform, native_id), surface, "speak", None, policy)


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for platform in ("GATEWAY", "TELEGRAM", "EMAIL", "QQ", "DISCORD"):
        for setting in ("ALLOWED_USERS", "ALLOW_ALL_USERS", "GROUP_ALLOWED_USERS", "GROUP_ALLOWED_CHATS", "ALLOW_BOTS"):
            monkeypatch.delenv(f"{platform}_{setting}", raising=False)


@pytest.fixture
def home(home: Path) -> Path:
    home.mkdir(mode=0o700, exist_ok=True)
    return home


@pytest.fixture
def keeper(db: SessionDB, home: Path) -> PolicyKeeper:
    return PolicyKeeper(db)


WriteConfig = Callable[[str], None]


@pytest.fixture
def write(home: Path) -> WriteConfig:
    return lambda text: (home / "config.yaml").write_text(text, encoding="utf-8") and None


# -- what the files say ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "platforms: {telegram: {allowed_users: [42, '43']}}",
        "platforms: {telegram: {allowed_users: '42, 43'}}",
        "platforms: {telegram: {allowed_users: 42}}",
        "platforms: {telegram: {extra: {allowed_users: ['42']}}}",
        "telegram: {allowed_users: ['42']}",
        "gateway: {platforms: {Telegram: {allowed_users: ['42']}}}",
        "gateway: {allowed_users: ['42']}",
    ],
)
def test_a_list_may_stand_where_existing_homes_have_it(keeper: PolicyKeeper, write: WriteConfig, text: str) -> None:
    write(text)
    policy = keeper.current()
    assert speaks(policy).role == "member" and speaks(policy, place="-100").allowed
    assert not speaks(policy, "44").allowed and not speaks(policy, "4").allowed


def test_the_environment_wins_over_the_file(
    keeper: PolicyKeeper, write: WriteConfig, monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    write("platforms: {telegram: {allowed_users: ['42']}}")
    (home / ".env").write_text("TELEGRAM_ALLOWED_USERS=43\n")
    assert speaks(keeper.current(), "43").allowed and not speaks(keeper.current(), "42").allowed
    monkeypatch.setenv("TELEGRAM_ALLOWED_USERS", " 44 ,45,")
    policy = PolicyKeeper(keeper._db).current()
    assert [name for name in ("42", "43", "44", "45", "") if speaks(policy, name).allowed] == ["44", "45"]


@pytest.mark.parametrize(
    ("variable", "value", "private", "group", "other_group"),
    [
        ("TELEGRAM_ALLOWED_USERS", "*", "guest", "guest", "guest"),
        ("TELEGRAM_ALLOW_ALL_USERS", "true", "guest", "guest", "guest"),
        ("TELEGRAM_ALLOW_ALL_USERS", "0", "", "", ""),
        ("GATEWAY_ALLOWED_USERS", "42", "member", "member", "member"),
        ("GATEWAY_ALLOWED_USERS", "*", "guest", "guest", "guest"),
        ("GATEWAY_ALLOW_ALL_USERS", "yes", "guest", "guest", "guest"),
        ("TELEGRAM_GROUP_ALLOWED_CHATS", "-100", "", "guest", ""),
        ("TELEGRAM_GROUP_ALLOWED_CHATS", "*", "", "guest", "guest"),
        ("TELEGRAM_GROUP_ALLOWED_USERS", "42", "", "member", "member"),
        ("DISCORD_ALLOWED_USERS", "42", "", "", ""),
    ],
)
def test_each_name_of_the_environment(
    keeper: PolicyKeeper, monkeypatch: pytest.MonkeyPatch, variable: str, value: str,
    private: str, group: str, other_group: str,
) -> None:  # fmt: skip
    monkeypatch.setenv(variable, value)
    policy = keeper.current()
    found = [speaks(policy, place=place) for place in ("dm", "-100", "-200")]
    assert [answer.role if answer.allowed else "" for answer in found] == [private, group, other_group]


def test_bots_by_name_of_the_environment(keeper: PolicyKeeper, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TELEGRAM_ALLOW_BOTS", "mentions")
    policy = keeper.current()
    bot = Principal("bot", "telegram", "9")
    assert not decide(bot, Surface("group", "telegram", "-100"), "speak", None, policy).allowed
    assert decide(bot, Surface("group", "telegram", "-100", addressed=True), "speak", None, policy).allowed


def test_groups_of_qq_go_by_their_own_name(keeper: PolicyKeeper, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QQ_GROUP_ALLOWED_USERS", "900")
    policy = keeper.current()
    assert speaks(policy, "1", "900", "qqbot").allowed and not speaks(policy, "1", "901", "qqbot").allowed
    assert not speaks(policy, "900", platform="qqbot").allowed


@pytest.mark.parametrize(
    ("text", "platform", "reply"),
    [
        ("", "telegram", "pair"),
        ("", "email", ""),
        ("platforms: {telegram: {allowed_users: ['7']}}", "telegram", ""),
        ("platforms: {telegram: {allowed_users: ['7']}}", "slack", "pair"),
        ("gateway: {allowed_users: ['7']}", "slack", ""),
        ("unauthorized_dm_behavior: ignore", "telegram", ""),
        ("gateway: {unauthorized_dm_behavior: ignore}", "telegram", ""),
        ("unauthorized_dm_behavior: pair\ngateway: {allowed_users: ['7']}", "telegram", "pair"),
        ("unauthorized_dm_behavior: pair", "email", ""),
        ("platforms: {email: {unauthorized_dm_behavior: pair}}", "email", "pair"),
        ("unauthorized_dm_behavior: pair\ntelegram: {unauthorized_dm_behavior: ignore}", "telegram", ""),
        ("platforms: {telegram: {extra: {unauthorized_dm_behavior: ignore}}}", "telegram", ""),
    ],
)
def test_what_a_stranger_hears(keeper: PolicyKeeper, write: WriteConfig, text: str, platform: str, reply: str) -> None:
    write(text)
    assert speaks(keeper.current(), platform=platform).reply == reply
    assert speaks(keeper.current(), place="-100", platform=platform).reply == ""


def test_roles_from_the_configuration(keeper: PolicyKeeper, write: WriteConfig, db: SessionDB) -> None:
    write("gateway:\n  owners: ['telegram:1']\n  admins: [telegram:2, telegram:1]\n  approvers: telegram:3\n")
    policy = keeper.current()
    assert [speaks(policy, name).role for name in ("1", "2")] == ["owner", "admin"]
    assert not speaks(policy, "3").allowed and policy.approvers == {("telegram", "3")}
    who = Principal("user", "telegram", "1")
    person = keeper.person(who, speaks(policy, "1"), "Ada")
    stored = db.people.get(person.id)
    assert person.role == "owner" and stored is not None and stored.role == "member"
    write("gateway:\n  allowed_users: ['1']\n")
    after = speaks(keeper.current(), "1")
    assert (after.role, after.person_id) == ("member", person.id)


@pytest.mark.parametrize(
    ("text", "line", "key"),
    [
        ("gateway:\n  owners: ['42']\n", 2, "gateway.owners"),
        ("platforms:\n  telegram:\n    allowed_users: {a: 1}\n", 3, "platforms.telegram.allowed_users"),
        ("platforms:\n  telegram:\n    allowed_users: [true]\n", 3, "platforms.telegram.allowed_users"),
        ("platforms:\n  telegram:\n    allow_bots: sometimes\n", 3, "platforms.telegram.allow_bots"),
        ("platforms:\n  telegram:\n    allow_all_users: perhaps\n", 3, "platforms.telegram.allow_all_users"),
        ("unauthorized_dm_behavior: shout\n", 1, "unauthorized_dm_behavior"),
    ],
)
def test_a_bad_value_is_named_and_the_last_good_rules_stay(
    keeper: PolicyKeeper, write: WriteConfig, text: str, line: int, key: str
) -> None:
    write(text)
    with pytest.raises(ConfigError) as caught:
        keeper.current()
    assert (caught.value.line, caught.value.key) == (line, key)
    write("gateway: {allowed_users: ['42']}")
    assert speaks(keeper.current()).allowed and keeper.problem is None
    write(text + "# again\n")
    assert speaks(keeper.current()).allowed
    assert keeper.problem is not None and keeper.problem.key == key


def test_a_bad_variable_is_named(keeper: PolicyKeeper, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TELEGRAM_ALLOW_BOTS", "sometimes")
    with pytest.raises(ConfigError, match="TELEGRAM_ALLOW_BOTS"):
        keeper.current()


# -- fresh at the next message -----------------------------------------------------------------------------------


def test_a_name_taken_off_the_list_is_out_at_the_next_message(keeper: PolicyKeeper, write: WriteConfig) -> None:
    write("platforms: {telegram: {allowed_users: ['42', '43']}}")
    assert speaks(keeper.current()).allowed
    write("platforms: {telegram: {allowed_users: ['43']}}")
    assert not speaks(keeper.current()).allowed and speaks(keeper.current(), "43").allowed


def test_what_another_process_does_holds_at_the_next_message(home: Path) -> None:
    db = SessionDB(home / "state.db")
    keeper = PolicyKeeper(db)

    def hermes(*arguments: str) -> None:
        command = [sys.executable, "-m", "hermes_cli", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    db.people.owner()
    assert not speaks(keeper.current()).allowed
    hermes("people", "link", "owner", "telegram", "42")
    assert speaks(keeper.current()).role == "owner"
    hermes("pairing", "revoke", "telegram", "42")
    assert not speaks(keeper.current()).allowed
    db.close()


def test_nothing_is_made_anew_when_nothing_changed(keeper: PolicyKeeper, db: SessionDB) -> None:
    first = keeper.current()
    db.create_session("s", "cli")
    db.append_message("s", "user", "hello")
    db.people.ensure(platform="telegram", native_id="9", display_name="a guest by an open door")
    assert keeper.current() is first
    db.people.set_role(db.people.ensure(platform="telegram", native_id="9").id, "admin")
    assert keeper.current() is not first


def test_an_event_loop_gets_the_same(keeper: PolicyKeeper, write: WriteConfig) -> None:
    async def ask() -> list[bool]:
        before = await keeper.fresh()
        write("gateway: {allowed_users: ['42']}")
        return [speaks(before).allowed, speaks(await keeper.fresh()).allowed, speaks(await keeper.fresh()).allowed]

    assert asyncio.run(ask()) == [False, True, True]


def test_messages_of_one_moment_share_a_check_and_the_next_one_has_its_own(
    keeper: PolicyKeeper, write: WriteConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, look = [], policies._stamp
    monkeypatch.setattr(policies, "_stamp", lambda home: looks.append(home) or look(home))

    async def ask() -> list[int | bool]:
        keeper.current()
        looks.clear()
        asked = [await keeper.fresh() for _ in range(20)]
        seen = len(looks)
        write("gateway: {allowed_users: ['42']}")
        await asyncio.sleep(0)
        return [seen, speaks(asked[-1]).allowed, speaks(await keeper.fresh()).allowed]

    assert asyncio.run(ask()) == [1, False, True]


def test_a_listed_person_who_was_made_a_guest_is_a_guest(
    keeper: PolicyKeeper, write: WriteConfig, db: SessionDB
) -> None:
    write("platforms: {telegram: {allowed_users: ['42']}}")
    who = Principal("user", "telegram", "42")
    person = keeper.person(who, speaks(keeper.current()), "Ada")
    assert person.role == "member"
    db.people.set_role(person.id, "guest")
    assert speaks(keeper.current()).role == "guest"


def test_a_stranger_with_an_open_door_is_put_down_as_a_guest(keeper: PolicyKeeper, write: WriteConfig) -> None:
    write("platforms: {telegram: {allow_all_users: true}}")
    who = Principal("user", "telegram", "42")
    first = keeper.person(who, speaks(keeper.current()), "Ada")
    assert first.role == "guest" and keeper.person(who, speaks(keeper.current()), "Eve") == first


# -- homes of the reference --------------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", ["platforms/pairing", "pairing"])
def test_who_was_paired_in_an_existing_home_is_a_member(
    keeper: PolicyKeeper, home: Path, db: SessionDB, folder: str
) -> None:
    file = home / folder / "telegram-approved.json"
    file.parent.mkdir(parents=True)
    text = json.dumps({"42": {"user_name": "Ada", "approved_at": 1.0}, "43": {}})
    file.write_text(text)
    assert speaks(keeper.current()).role == "member" and speaks(keeper.current(), "43").allowed
    assert not speaks(keeper.current(), platform="slack").allowed
    db.pairings.revoke(platform="telegram", native_id="42")
    assert not speaks(keeper.current()).allowed and speaks(keeper.current(), "43").allowed
    assert file.read_text() == text
    file.unlink()
    assert not speaks(keeper.current(), "43").allowed


@pytest.mark.parametrize("text", ["", "{", "[42]", '"42"', "42", "[" * 100_000, "\xff"])
def test_a_broken_pairing_file_lets_nobody_in(keeper: PolicyKeeper, home: Path, text: str) -> None:
    folder = home / "pairing"
    folder.mkdir()
    (folder / "telegram-approved.json").write_bytes(text.encode("latin-1"))
    (folder / "slack-approved.json").write_text('{"U1": {}}')
    assert not speaks(keeper.current()).allowed
    assert speaks(keeper.current(), "U1", platform="slack").allowed


def test_the_home_is_the_current_one(db: SessionDB, home: Path) -> None:
    assert hermes_home() == home
    (home / ".env").write_text("TELEGRAM_ALLOWED_USERS=42\n")
    assert speaks(PolicyKeeper(db).current()).allowed
