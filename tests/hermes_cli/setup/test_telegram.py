"""`hermes gateway setup telegram`, against the strict fake: from a token to a paired owner."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.hermes_cli.conftest import Run

from gateway.config import load_gateway_config
from hermes_cli.framework.store import open_store
from hermes_config import config
from hermes_state.ids import LOCAL_OWNER
from hermes_testing.telegram.client import SentByPerson
from hermes_testing.telegram.server import FakeTelegram

pytestmark = pytest.mark.slow


def piped(monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(words))


@contextmanager
def setting_up(telegram: FakeTelegram, *more: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command in a process of its own, at the point where it waits for the code it shows."""
    command = [sys.executable, "-m", "hermes_cli", "gateway", "setup", "telegram", "--token", "-", *more]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ)
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{telegram.token}\n")
        process.stdin.close()
        try:
            for line in process.stdout:
                if found := re.search(r"/start (\w{8}) ", line):
                    break
            else:
                pytest.fail(f"it showed no code: {process.stderr.read() if process.stderr else ''}")
            yield process, found[1]
        finally:
            process.kill()


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    assert process.stdout is not None
    assert process.stderr is not None
    said = process.stdout.read() + process.stderr.read()
    return process.wait(20), said


def test_the_owner_is_whoever_sends_the_code_that_the_terminal_shows(telegram: FakeTelegram, home: Path) -> None:
    ada, mallory = telegram.person("ada"), telegram.person("mallory")
    with setting_up(telegram) as (process, code):
        mallory.say("/start")
        mallory.say("/start AAAAAAAA")
        said = ada.say(f"/start {code}")
        answer = ada.expect("That is you")
        code_of_exit, shown = ended(process)
    assert code_of_exit == 0
    assert f"id {ada.id}" in shown
    assert answer.id > said.message
    assert telegram.token not in shown
    assert (home / ".env").read_text() == f"TELEGRAM_BOT_TOKEN={telegram.token}\n"
    assert (home / ".env").stat().st_mode & 0o777 == 0o600
    with open_store() as db:
        person = db.people.find(platform="telegram", native_id=str(ada.id))
        assert person is not None
        assert (person.id, person.role) == (LOCAL_OWNER, "owner")
        assert db.people.find(platform="telegram", native_id=str(mallory.id)) is None
    waiting = [update["id"] for update in telegram.updates() if update["acknowledged_at"] is None]
    assert len(waiting) == 3, "what others wrote is left for the gateway"
    assert mallory.replies() == []


def test_a_code_alone_is_acknowledged(telegram: FakeTelegram) -> None:
    with setting_up(telegram) as (process, code):
        telegram.person("ada").say(f"/start {code.lower()}")
        assert ended(process)[0] == 0
    assert telegram.facts()["pending"] == 0


def test_guessing_ends_it(telegram: FakeTelegram) -> None:
    with setting_up(telegram) as (process, _):
        said: list[SentByPerson] = [telegram.person("mallory").say(f"/start WRONG{number:03}") for number in range(5)]
        code, shown = ended(process)
    assert said
    assert code != 0
    assert "too many wrong codes" in shown


def test_nobody_answers(telegram: FakeTelegram, home: Path) -> None:
    with setting_up(telegram, "--wait", "1") as (process, _):
        code, shown = ended(process)
    assert code != 0
    assert "nobody sent the code in time" in shown
    assert (home / ".env").exists()


def test_without_a_person_at_all(telegram: FakeTelegram, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    piped(monkeypatch, telegram.token)
    done = run("gateway", "setup", "telegram", "--token", "-", "--owner", "42")
    assert done.code == 0
    assert telegram.token not in done.out + done.err
    with open_store() as db:
        owner = db.people.find(platform="telegram", native_id="42")
        assert owner is not None
        assert owner.role == "owner"
    again = run("gateway", "setup", "telegram", "--no-pair")
    assert again.code == 0
    assert "@hermes_demo_bot" in again.out


def test_somebody_we_met_before_becomes_the_owner(
    telegram: FakeTelegram, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(create=True) as db:
        before = db.people.ensure(platform="telegram", native_id="42", role="guest")
    piped(monkeypatch, telegram.token)
    assert run("gateway", "setup", "telegram", "--token", "-", "--owner", "42").code == 0
    with open_store() as db:
        now = db.people.find(platform="telegram", native_id="42")
        assert now is not None
        assert (now.id, now.role) == (before.id, "owner")


@pytest.mark.parametrize("owner", ["ada", "042", "4 2", "٤٢", "-5", "1" * 30])
def test_an_owner_is_named_by_a_number(
    telegram: FakeTelegram, run: Run, monkeypatch: pytest.MonkeyPatch, owner: str
) -> None:
    piped(monkeypatch, telegram.token)
    failed = run("gateway", "setup", "telegram", "--token", "-", f"--owner={owner}")
    assert failed.code == 2
    assert "is not a Telegram id" in failed.err


def test_a_token_that_telegram_does_not_know(
    telegram: FakeTelegram, run: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = "123456:this-is-not-the-token-of-any-bot"
    piped(monkeypatch, wrong)
    failed = run("gateway", "setup", "telegram", "--token", "-")
    assert "Telegram does not know this token" in failed.err
    assert wrong not in failed.err
    assert not (home / ".env").exists()
    piped(monkeypatch, "hunter2")
    assert "not a valid bot token" in run("gateway", "setup", "telegram", "--token", "-").err


def test_another_token_in_env_is_not_touched(
    telegram: FakeTelegram, run: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / ".env").write_text("TELEGRAM_BOT_TOKEN=999:the-old-one-that-somebody-wrote # mine\n")
    piped(monkeypatch, telegram.token)
    failed = run("gateway", "setup", "telegram", "--token", "-")
    assert "already holds another token" in failed.err
    assert (home / ".env").read_text() == "TELEGRAM_BOT_TOKEN=999:the-old-one-that-somebody-wrote # mine\n"


def test_a_webhook_is_taken_over_only_with_leave(
    telegram: FakeTelegram, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    telegram.world.webhook = {"url": "https://elsewhere.example/hook"}
    piped(monkeypatch, telegram.token)
    assert "Add --yes" in run("gateway", "setup", "telegram", "--token", "-", "--no-pair").err
    assert telegram.world.webhook
    assert run("gateway", "setup", "telegram", "--no-pair", "--yes").code == 0
    assert not telegram.world.webhook


def test_which_platforms_there_are(run: Run) -> None:
    assert "telegram" in run("gateway", "setup").out
    assert "no platform 'pigeon'" in run("gateway", "setup", "pigeon").err


WORK_TOKEN = "654321:the-token-of-the-bot-for-work-is-another"


def test_another_account_has_a_token_a_block_and_an_owner_of_its_own(
    telegram: FakeTelegram, run: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    piped(monkeypatch, telegram.token)
    assert run("gateway", "setup", "telegram", "--token", "-", "--owner", "42").code == 0
    with FakeTelegram(token=WORK_TOKEN, username="hermes_work_bot") as work:
        config.set_value("platforms.telegram@work.extra.base_url", work.base_url)
        config.set_value("platforms.telegram@work.enabled", False)
        piped(monkeypatch, WORK_TOKEN)
        done = run("gateway", "setup", "telegram@work", "--token", "-", "--owner", "42")
        assert done.code == 0 and "@hermes_work_bot" in done.out + done.err
    assert f"TELEGRAM_BOT_TOKEN__WORK={WORK_TOKEN}\n" in (home / ".env").read_text()
    settings = load_gateway_config()
    assert [one.value for one in settings.get_connected_platforms()] == ["telegram", "telegram@work"]
    assert [one.token for one in settings.platforms.values()] == [telegram.token, WORK_TOKEN]
    with open_store() as db:
        owners = [db.people.find(platform=name, native_id="42") for name in ("telegram", "telegram@work")]
        assert [owner.id for owner in owners if owner] == [LOCAL_OWNER] * 2, "the same person, by their own proof"


def test_a_fresh_account_is_named_in_the_configuration(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch, telegram: FakeTelegram
) -> None:
    monkeypatch.setattr("gateway.platforms.telegram.client.API_URL", telegram.base_url)
    piped(monkeypatch, telegram.token)
    assert run("gateway", "setup", "telegram@work", "--token", "-", "--no-pair").code == 0
    assert [one.value for one in load_gateway_config().get_connected_platforms()] == ["telegram@work"]
    assert "TELEGRAM_BOT_TOKEN=" not in (home / ".env").read_text()


def test_a_bot_that_another_account_has_is_not_taken(
    telegram: FakeTelegram, run: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    piped(monkeypatch, telegram.token)
    assert run("gateway", "setup", "telegram", "--token", "-", "--no-pair").code == 0
    config.set_value("platforms.telegram@work.extra.base_url", telegram.base_url)
    kept = (home / ".env").read_text()
    piped(monkeypatch, telegram.token)
    refused = run("gateway", "setup", "telegram@work", "--token", "-", "--no-pair")
    assert "@hermes_demo_bot is the bot of telegram already; nothing was saved" in refused.err
    assert (home / ".env").read_text() == kept


@pytest.mark.parametrize("name", ["telegram@", "telegram@my bot", "telegarm@work", "local@work"])
def test_a_name_that_no_account_can_have_is_one_line(run: Run, name: str) -> None:
    refused = run("gateway", "setup", name)
    assert refused.code != 0 and refused.err.count("\n") == 1 and "Traceback" not in refused.err
