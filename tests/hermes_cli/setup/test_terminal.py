"""`hermes setup` with a person at the terminal: what is asked, what is kept, and what a slip or a stop does."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from tests.hermes_cli.conftest import Run
from tests.hermes_cli.model_server import KEY, ModelServer
from tests.support.terminal import Terminal

from hermes_cli.framework.store import open_store
from hermes_config import config
from hermes_state.ids import LOCAL_OWNER
from hermes_testing.telegram.server import FakeTelegram

pytestmark = pytest.mark.slow

MODEL, PHONE, RISK, COST = (
    "Type a number, a model",
    "Paste the bot's token",
    "does something risky?",
    "on models per day?",
)
THE_KEY = "Your key for"


def _setup(*flags: str) -> Terminal:
    return Terminal([sys.executable, "-m", "hermes_cli", "setup", *flags], columns=120)


def _answered(window: Terminal, **answers: str) -> None:
    """Answer each question when it stands there."""
    for name, answer in answers.items():
        window.see({"model": MODEL, "key": THE_KEY, "phone": PHONE, "risk": RISK, "cost": COST}[name])
        window.type(answer)


def test_five_questions_and_then_hermes_talks(server: ModelServer, home: Path, run: Run) -> None:
    with _setup() as window:
        _answered(window, model="1", phone="", risk="no", cost="3")
        assert window.end() == 0
        shown = window.shown
    assert "ollama" in shown and "little-model" in shown and "Ready." in shown
    assert shown.count("?") <= 5
    loaded = config.load(home)
    assert loaded.tree["model"]["provider"] == "ollama"
    assert loaded.tree["approvals"]["mode"] == "off" and loaded.budget.day.usd == 3
    assert run("-z", "hello").out.strip() == "ok", "the model that was chosen answers at once"
    before = (home / "config.yaml").read_text()
    with _setup() as again:
        _answered(again, model="", phone="", risk="", cost="")
        assert again.end() == 0
        assert "Enter keeps ollama/little-model" in again.shown and "$3, as now" in again.shown
        assert "The model answers." in again.shown
    assert (home / "config.yaml").read_text() == before


def test_an_answer_that_is_no_choice_is_asked_again(server: ModelServer, home: Path) -> None:
    with _setup() as window:
        _answered(window, model="99")
        window.see("There is no 99 in the list.")
        window.type("1")
        _answered(window, phone="", risk="", cost="")
        assert window.end() == 0
    assert config.load(home).tree["model"]["provider"] == "ollama"


def test_a_wrong_key_is_asked_for_again_and_none_is_shown(keyed: ModelServer, home: Path) -> None:
    wrong = "sk-" + "wr0n9" * 9
    with _setup() as window:
        _answered(window, model="openai/gpt-5", key=wrong)
        window.see("Another key")
        assert not (home / ".env").exists(), "a key that does not work is not kept"
        window.type(KEY)
        _answered(window, phone="", risk="", cost="")
        assert window.end() == 0
        assert KEY not in window.raw and wrong not in window.raw
    assert (home / ".env").read_text() == f"OPENAI_API_KEY={KEY}\n"


def test_no_key_is_told_to_somebody_who_is_in_set_up(keyed: ModelServer, home: Path) -> None:
    with _setup() as window:
        _answered(window, model="openai/gpt-5", key="")
        window.see("That did not work: openai needs a key, but none was given")
        window.see("Your key, sent only to")
        window.type(KEY)
        _answered(window, phone="", risk="", cost="")
        assert window.end() == 0
        assert "hermes setup asks" not in window.shown


def test_the_first_line_for_a_newcomer_fits_a_narrow_terminal(server: ModelServer, home: Path) -> None:
    with Terminal([sys.executable, "-m", "hermes_cli", "--plain"], columns=80) as window:
        window.see("No model is set up yet: a few questions first. hermes --model demo skips them.")


def test_a_key_that_is_no_good_any_more_is_replaced(keyed: ModelServer, home: Path) -> None:
    config.set_value("model.default", "gpt-5")
    config.set_value("model.provider", "openai")
    config.add_variable("OPENAI_API_KEY", "sk-" + "0ld0" * 10)
    with _setup() as window:
        _answered(window, model="")
        window.see(f"Another key for {keyed.address}; sent only there, not shown (Enter keeps the old one)")
        window.type(KEY)
        _answered(window, phone="", risk="", cost="")
        assert window.end() == 0
    assert (home / ".env").read_text() == f"OPENAI_API_KEY={KEY}\n"


def test_without_a_network_no_key_is_blamed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with _setup() as window:
        _answered(window, model="openai/gpt-5")
        window.see(MODEL, times=2)
        window.press("ctrl-c")
        assert window.end() == 130
        shown = window.shown
    assert "That did not work" in shown and "127.0.0.1:9" in shown and "Another key" not in shown
    assert not (home / "config.yaml").exists()


def test_a_slip_ends_nothing(server: ModelServer, telegram: FakeTelegram, home: Path) -> None:
    """Each question is asked again until its answer can be."""
    with _setup("--owner", "42") as window:
        _answered(window, model="banana")
        window.see("Which provider has banana?")
        window.type("1")
        _answered(window, phone="not-a-token")
        window.see("not a valid bot token")
        window.see(PHONE, times=2)  # what is typed before a question for a secret stands there is thrown away
        window.type("999:" + "a" * 35)
        window.see("Telegram does not know this token")
        window.see(PHONE, times=3)
        window.type(telegram.token)
        _answered(window, risk="maybe")
        window.see("Please type yes or no.")
        window.type("no")
        _answered(window, cost="five")
        window.see("is not an amount of dollars")
        window.type("5")
        assert window.end() == 0
    loaded = config.load(home)
    assert loaded.tree["approvals"]["mode"] == "off" and loaded.budget.day.usd == 5
    assert loaded.dotenv["TELEGRAM_BOT_TOKEN"] == telegram.token


def test_a_key_is_asked_for_by_the_name_of_whose_it_is(keyed: ModelServer, home: Path) -> None:
    with _setup() as window:
        _answered(window, model="openai/gpt-5")
        window.see(f"Your key for openai; sent only to {keyed.address}, not shown:")
        window.press("ctrl-c")
        assert window.end() == 130


def test_a_configuration_that_does_not_load_is_repaired_with_leave(server: ModelServer, home: Path) -> None:
    home.mkdir()
    broken = "display: {skin: dark}\nbudget: [\n"
    (home / "config.yaml").write_text(broken)
    with _setup() as window:
        window.see("not valid YAML")
        window.see("Repair it?")
        window.type("")
        _answered(window, model="1", phone="", risk="", cost="")
        assert window.end() == 0
    assert config.load(home).tree["display"]["skin"] == "dark"
    assert (home / "config.yaml.bak").read_text() == broken


QUESTIONS = {"model": MODEL, "phone": PHONE, "risk": RISK, "cost": COST}


@pytest.mark.parametrize("stop", QUESTIONS)
def test_ctrl_c_at_a_question_keeps_what_was_answered(stop: str, server: ModelServer, home: Path) -> None:
    with _setup() as window:
        for name, words in QUESTIONS.items():
            window.see(words)
            if name == stop:
                window.press("ctrl-c")
                break
            window.type({"model": "1", "phone": "", "risk": "no", "cost": "3"}[name])
        assert window.end() == 130
        said = "Nothing was changed" if stop == "model" else "Your answers so far are saved"
        assert said in window.shown and "Traceback" not in window.shown
    kept = config.load(home).tree
    assert ("model" in kept) == (stop != "model")
    assert ("approvals" in kept) == (stop == "cost")
    assert "budget" not in kept


@pytest.mark.parametrize("stop", ["model", "key", "phone", "risk"])
def test_ctrl_d_is_no_answer_at_any_question(stop: str, keyed: ModelServer, home: Path) -> None:
    before = {"model": "openai/gpt-5", "key": KEY, "phone": "", "risk": ""}
    with _setup() as window:
        _answered(window, **{name: before[name] for name in list(before)[: list(before).index(stop)]})
        window.see({**QUESTIONS, "key": THE_KEY}[stop])
        window.press("ctrl-d")
        assert window.end() == 2
        assert window.shown.endswith(
            "\nhermes: No answer: the input ended. Earlier answers are saved; run the same command to continue.\n"
        )
    assert config.load(home).environ("OPENAI_API_KEY") == (KEY if stop in ("phone", "risk") else None)


def test_ctrl_d_at_the_token_of_a_platform_is_no_defect(home: Path) -> None:
    with Terminal([sys.executable, "-m", "hermes_cli", "gateway", "setup", "telegram"], columns=120) as window:
        window.see("Token: ")
        window.press("ctrl-d")
        assert window.end() == 2
        assert "No answer: the input ended" in window.shown


def test_the_phone_is_connected_and_its_owner_paired(server: ModelServer, telegram: FakeTelegram, home: Path) -> None:
    ada = telegram.person("ada")
    with _setup() as window:
        _answered(window, model="1", phone=telegram.token)
        found = re.search(r"/start (\w{8}) ", window.see("to @hermes_demo_bot."))
        assert found is not None
        ada.say(f"/start {found[1]}")
        _answered(window, risk="", cost="")
        assert window.end() == 0
        assert telegram.token not in window.raw
    with open_store() as db:
        person = db.people.find(platform="telegram", native_id=str(ada.id))
        assert person is not None and (person.id, person.role) == (LOCAL_OWNER, "owner")


def test_a_token_that_is_no_good_any_more_is_replaced(telegram: FakeTelegram, home: Path) -> None:
    (home / ".env").write_text("TELEGRAM_BOT_TOKEN=999:the-old-one-that-was-revoked-long-ago\n")
    command = [sys.executable, "-m", "hermes_cli", "gateway", "setup", "telegram", "--owner", "42"]
    with Terminal(command, columns=120) as window:
        window.see("Telegram does not know this token.")
        window.see("Token: ")
        window.type(telegram.token)
        assert window.end() == 0
    assert (home / ".env").read_text() == f"TELEGRAM_BOT_TOKEN={telegram.token}\n"


def test_a_wrong_token_of_a_platform_is_asked_for_again_and_lines_fit(telegram: FakeTelegram, home: Path) -> None:
    command = [sys.executable, "-m", "hermes_cli", "gateway", "setup", "telegram", "--owner", "42"]
    with Terminal(command, columns=60) as window:
        for question, token, said in (
            ("Token: ", "hunter2", "Not a valid bot token."),
            ("Token again:", "123456:this-is-not-the-token-of-any-bot", "Telegram does not know this token."),
        ):
            window.see(question)
            window.type(token)
            window.see(said)
        window.see("Token again:", times=2)
        window.type(telegram.token)
        assert window.end() == 0
        assert (
            max(len(line) for line in window.shown.splitlines() if " " in line.strip() and str(home) not in line) < 60
        )
    assert (home / ".env").read_text() == f"TELEGRAM_BOT_TOKEN={telegram.token}\n"


def test_the_third_wrong_token_of_a_platform_ends_it(telegram: FakeTelegram, home: Path) -> None:
    with Terminal([sys.executable, "-m", "hermes_cli", "gateway", "setup", "telegram"], columns=120) as window:
        window.see("Token: ")
        window.type("hunter2")
        for times in (1, 2):
            window.see("Token again:", times=times)
            window.type("hunter2")
        assert window.end() == 2
        assert window.shown.count("ot a valid bot token") == 3
    assert not (home / ".env").exists()
