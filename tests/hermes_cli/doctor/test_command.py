"""`hermes doctor`: each planted fault is found, and the advised command, run as it stands, mends it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.hermes_cli.doctors import MODEL, THE_REST, Opened, doctor, shell, typed, wrong
from tests.hermes_cli.model_server import KEY, ModelServer
from tests.support.old_homes import OldHome
from tests.support.stores import transact

from gateway import status
from hermes_config import config
from hermes_config.limits import Limits
from hermes_config.schema import Whole
from hermes_state.ids import ConversationId, SessionId, SessionKey
from hermes_state.session_db import SessionDB
from hermes_state.turns.outbox import NewOutboxItem

pytestmark = [pytest.mark.usefixtures("healthy"), pytest.mark.slow]
Fault = Callable[[Path], None]


# -- the faults --------------------------------------------------------------------------------------------------------


def home_open(home: Path) -> None:
    home.chmod(0o755)


def env_open(home: Path) -> None:
    (home / ".env").write_text("OPENAI_API_KEY=nobody\n")
    (home / ".env").chmod(0o644)


def database_open(home: Path) -> None:
    (home / "state.db").chmod(0o644)


def value_that_cannot_be(home: Path) -> None:
    config.set_value("sessions.retention_days", 30)
    file = home / "config.yaml"
    file.write_text(file.read_text().replace("30", "soon"))


def mistyped_key(home: Path) -> None:
    config.set_value("model.contxt_length", 1000)


def env_line(home: Path) -> None:
    (home / ".env").write_text("A=1\n'this is no line\n")
    (home / ".env").chmod(0o600)


def broken_yaml(home: Path) -> None:
    (home / "config.yaml").write_text("model: {default: demo\nsessions:\n  retention_days: 30\n")


def not_utf8(home: Path) -> None:
    (home / "config.yaml").write_bytes(b"model:\n  default: demo  # caf\xe9\n")


def folder_for_a_file(home: Path) -> None:
    (home / "config.yaml").unlink()
    (home / "config.yaml").mkdir()


def broken_gateway_json(home: Path) -> None:
    (home / "gateway.json").write_text("{")


def home_is_a_file(home: Path) -> None:
    home.rename(home.with_name("before"))
    home.write_text("what is this?")


def garbage(home: Path) -> None:
    (home / "state.db").write_bytes(os.urandom(50_000))


def garbage_alone(home: Path) -> None:
    garbage(home)
    no_backup(home)


def old_database(home: Path) -> None:
    for file in home.glob("state*"):
        file.unlink()
    old = OldHome(home)
    old.session("old")
    old.message("old", "user", "from before")
    old.close()
    for file in home.glob("state*"):
        file.chmod(0o600)


def wrong_counter(home: Path) -> None:
    import apsw

    raw = apsw.Connection(str(home / "state.db"))
    raw.execute("UPDATE sessions SET message_count = 0")
    raw.close()


def damaged(home: Path) -> None:
    with (home / "state.db").open("r+b") as file:
        file.seek(4096)
        file.write(b"\x00\xff" * 20_000)


def dead_letter(home: Path) -> None:
    with Opened(home) as db:
        db.outbox.enqueue(NewOutboxItem(dedup_key="k", platform="telegram", chat_id="42", payload={"text": "hi"}))
        (item,) = transact(db.outbox.claim_due_in, sender="somebody")
        transact(db.outbox.close_in, item, "unknown", error="timed out")


def broken_plugin(home: Path) -> None:
    folder = home / "plugins" / "sour"
    folder.mkdir(parents=True)
    (folder / "plugin.yaml").write_text("name: sour\n")
    (folder / "__init__.py").write_text("raise RuntimeError('sour')\n")
    config.set_value("plugins.enabled", ["sour"])


def missing_plugin(home: Path) -> None:
    config.set_value("plugins.enabled", ["gone"])


def no_backup(home: Path) -> None:
    for file in (home / "backups").iterdir():
        file.unlink()


def damaged_after_a_restore(home: Path) -> None:
    assert shell(f"hermes backup restore {next((home / 'backups').glob('*.db')).name} --yes").returncode == 0
    assert list((home / "backups").glob("auto-replaced-*.db"))
    damaged(home)


MENDED_BY_A_COMMAND: dict[str, tuple[Fault, str, str]] = {
    "home": (home_open, "home", "chmod 700"),
    "env-file": (env_open, "env-file", "chmod"),
    "files": (database_open, "files", "chmod"),
    "config-value": (value_that_cannot_be, "config", "hermes config unset sessions.retention_days"),
    "config-key": (mistyped_key, "config", "hermes config unset model.contxt_length"),
    "env-line": (env_line, "config", "hermes config repair"),
    "yaml": (broken_yaml, "config", "hermes config repair"),
    "encoding": (not_utf8, "config", "hermes config repair"),
    "gateway-json": (broken_gateway_json, "config", "hermes config repair"),
    "config-folder": (folder_for_a_file, "config", "hermes config repair"),
    "home-is-a-file": (home_is_a_file, "home", "mv "),
    "garbage": (garbage, "database", "hermes backup restore"),
    "garbage-without-a-backup": (garbage_alone, "database", "mkdir"),
    "counter": (wrong_counter, "database", "hermes state check --fix"),
    "damaged": (damaged, "database", "hermes backup restore"),
    "damaged-after-a-restore": (damaged_after_a_restore, "database", "hermes backup restore hermes-"),
    "dead-letter": (dead_letter, "deliveries", "hermes outbox retry 1"),
    "broken-plugin": (broken_plugin, "plugins", "hermes plugins disable sour"),
    "missing-plugin": (missing_plugin, "plugins", "hermes config set plugins.enabled"),
    "no-backup": (no_backup, "backups", "hermes backup create"),
}


@pytest.mark.needs_bubblewrap
def test_a_healthy_home_has_nothing_wrong(healthy: Path) -> None:
    found = doctor()
    assert found["ok"] and wrong(found) == [] and found["home"] == str(healthy)
    assert len(found["checks"]) >= 15
    shown = shell("hermes doctor").stdout
    assert shown.count("✓") == len(found["checks"]) and "No problems found." in shown


@pytest.mark.parametrize("name", MENDED_BY_A_COMMAND)
def test_a_planted_fault_is_found_and_the_advice_mends_it(name: str, healthy: Path) -> None:
    plant, check, command = MENDED_BY_A_COMMAND[name]
    plant(healthy)
    found = wrong(doctor())
    seen = next((one for one in found if one["check"] == check), None)
    assert seen is not None, found
    assert command in seen["fix"]
    ran = shell(seen["fix"])
    assert ran.returncode == 0, ran.stderr
    left = [one for one in wrong(doctor()) if one["check"] == check]
    assert [one["mark"] for one in left] == (["warning"] if name == "home-is-a-file" else []), "no home yet is no fault"


def test_a_home_of_hermes_agent_is_to_be_copied_not_converted(healthy: Path) -> None:
    old_database(healthy)
    (seen,) = [one for one in wrong(doctor()) if one["check"] == "database"]
    assert seen["fix"] == f"HERMES_HOME={healthy}-new hermes import hermes {healthy}"
    assert "hermes state upgrade converts it in place" in seen["advice"]
    before = (healthy / "state.db").read_bytes()
    ran = shell(f"{seen['fix']} --yes --take all")
    assert ran.returncode == 0, ran.stderr
    assert (healthy / "state.db").read_bytes() == before
    assert shell(f"HERMES_HOME={healthy}-new hermes sessions list").returncode == 0


def test_a_turn_that_a_dead_process_left(healthy: Path) -> None:
    script = "from hermes_agent import process_identity; print(process_identity.new_holder())"
    dead = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.strip()
    db = SessionDB(healthy / "state.db", clock=lambda: time.time() - 600)
    route = SessionKey("agent:main:telegram:dm:42")
    db.create_session("left", source="telegram")
    db.inbox.accept(platform="telegram", chat_id="42", message_id="1", route=route, payload={"text": "hello"})
    lease = db.leases.acquire(ConversationId("left"), holder=dead, ttl=60)
    assert lease is not None
    work = transact(
        db.turns.begin_in,
        conversation_id=ConversationId("left"),
        session_id=SessionId("left"),
        fence=lease.fence,
        route=route,
        claim=1,
    )
    db.close()
    assert work is not None
    drop = f"hermes turns cancel {work.turn.id}"
    config.set_value("platforms.telegram.token", "1234567890:" + "a" * 35)
    config.set_value("platforms.telegram.enabled", True)
    (seen,) = [one for one in wrong(doctor()) if one["check"] == "turns"]
    assert seen["fix"] == "hermes gateway start" and drop in seen["advice"]
    config.set_value("platforms.telegram.enabled", False)
    (seen,) = [one for one in wrong(doctor()) if one["check"] == "turns"]
    assert seen["fix"] == drop, "no gateway could go on with it"
    assert shell(drop).returncode == 0
    assert doctor()["ok"]


def test_a_gateway_that_hangs_is_replaced(healthy: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from gateway import status\n"
        "home = Path(sys.argv[1]); lock = status.acquire_gateway_lock(home); status.write_pid_file(home)\n"
        "status.write_runtime_status(home, started_at=1.0)\n"
        "import json; file = home / 'gateway_state.json'\n"
        "file.write_text(json.dumps({**json.loads(file.read_text()), 'updated_at': 1.0}))\n"
        "print('held', flush=True); time.sleep(120)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(healthy)], stdout=subprocess.PIPE, text=True) as hanging:
        try:
            assert hanging.stdout is not None and hanging.stdout.readline() == "held\n"
            (seen,) = [one for one in wrong(doctor()) if one["check"] == "gateway"]
            assert str(hanging.pid) in seen["says"]
            ran = shell(seen["fix"])
            assert ran.returncode == 0, ran.stderr
            hanging.wait(10)
            _until(lambda: status.read_status(healthy).heard_at is not None)
            assert "gateway" not in {one["check"] for one in wrong(doctor())}
        finally:
            hanging.kill()
            shell("hermes gateway stop --force")


def test_a_gateway_that_was_killed_and_a_port_that_is_taken(healthy: Path) -> None:
    assert shell("hermes api key").returncode == 0
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        config.set_value("api_server.port", taken.getsockname()[1])
        assert shell("hermes gateway start").returncode == 0
        try:
            _until(lambda: any(one.problem for one in status.read_status(healthy).platforms))
            (seen,) = [one for one in wrong(doctor()) if one["check"] == "gateway"]
            assert "is taken" in seen["says"]
            assert shell(seen["fix"]).returncode == 0
            _until(lambda: bool(status.read_status(healthy).api))
            assert "gateway" not in {one["check"] for one in wrong(doctor())}
            pid = status.read_pid(healthy)
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            _until(lambda: not status.is_running(healthy))
            (seen,) = [one for one in wrong(doctor()) if one["check"] == "gateway"]
            assert "the gateway died" in seen["says"] and "it died" in shell("hermes gateway status").stdout
            assert shell(seen["fix"]).returncode == 0
            assert "gateway" not in {one["check"] for one in wrong(doctor())}
        finally:
            shell("hermes gateway stop --force")
    assert "gateway" not in {one["check"] for one in wrong(doctor())}, "one that was stopped is not lost"


def test_another_program_that_holds_the_database(healthy: Path) -> None:
    code = (
        "import apsw, sys, time; held = apsw.Connection(sys.argv[1]); held.execute('BEGIN IMMEDIATE');"
        "print('held', flush=True); time.sleep(120)"
    )
    database = str(healthy / "state.db")
    with subprocess.Popen([sys.executable, "-c", code, database], stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout is not None and other.stdout.readline() == "held\n"
            (seen,) = wrong(doctor())
            assert seen["check"] == "writing" and seen["fix"] == f"kill {other.pid}" and "python" in seen["says"]
            assert shell(seen["fix"]).returncode == 0
            other.wait(10)
            assert wrong(doctor()) == []
        finally:
            other.kill()


def _until(holds: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_without_a_model_setup_is_the_advice_and_mends_it(healthy: Path) -> None:
    config.unset_value("model.default")
    (seen,) = wrong(doctor())
    assert (seen["check"], seen["mark"], seen["fix"]) == ("model", "problem", "hermes setup")
    typed(seen["fix"], (MODEL, "demo"), *THE_REST)
    assert doctor()["ok"]


def test_a_key_that_is_missing_is_named(healthy: Path, keyed: ModelServer) -> None:
    config.set_value("model.default", "gpt-5")
    config.set_value("model.provider", "openai")
    (seen,) = wrong(doctor())
    assert "OPENAI_API_KEY is not set" in seen["says"] and seen["fix"] == "hermes setup"
    typed(seen["fix"], (MODEL, "openai/gpt-5"), ("Your key for openai", KEY), *THE_REST)
    assert doctor()["ok"]


def test_a_platform_without_its_token(healthy: Path) -> None:
    config.set_value("platforms.telegram.enabled", True)
    (seen,) = wrong(doctor())
    assert seen["check"] == "platform telegram" and seen["fix"] == "hermes gateway setup telegram"
    assert shell(seen["advice"].removeprefix("or ")).returncode == 0
    assert doctor()["ok"]


def test_two_accounts_with_one_bot_and_a_platform_that_there_is_not(healthy: Path) -> None:
    for name in ("telegram", "telegram@work"):
        config.set_value(f"platforms.{name}.enabled", True)
        config.set_value(f"platforms.{name}.token", "1234567890:" + "a" * 35)
    (seen,) = wrong(doctor())
    assert (seen["check"], seen["says"].partition(";")[0]) == (
        "platform telegram@work", "it has the same token as telegram",
    )  # fmt: skip
    assert shell(seen["fix"]).returncode == 0 and doctor()["ok"]
    config.set_value("platforms.telegarm@play.enabled", True)
    (seen,) = wrong(doctor())
    assert seen["says"] == "there is no platform 'telegarm'"
    assert shell(seen["fix"]).returncode == 0 and doctor()["ok"]
    (healthy / "config.yaml").write_text(
        (healthy / "config.yaml").read_text() + "display: {platforms: {telegram@work: {tool_preview_length: long}}}\n"
    )
    fixes = [one["fix"] for one in doctor()["checks"] if "tool_preview_length" in one["says"]]
    assert fixes == ["hermes config unset display.platforms.telegram@work.tool_preview_length"]


def test_a_log_that_grew_too_long(healthy: Path) -> None:
    """Somebody reads for long while others write; the log cannot be emptied until they are done."""
    kind = Limits.settings["wal_bytes"].kind
    assert isinstance(kind, Whole)
    least = int(kind.least)
    config.set_value("limits.wal_bytes", least)
    with Opened(healthy) as db:
        reader = SessionDB(healthy / "state.db", True)
        db.append_message("one", "user", "x" * (least + 100_000))
        (seen,) = wrong(doctor())
        reader.close()
    assert seen["check"] == "wal"
    assert shell(seen["fix"]).returncode == 0
    assert doctor()["checks"] and wrong(doctor()) == []


def test_broken_yaml_can_be_mended_in_the_editor_as_well(healthy: Path) -> None:
    file = healthy / "config.yaml"
    file.write_text("model: {default: demo\n")
    (seen,) = [one for one in wrong(doctor()) if one["check"] == "config"]
    assert "hermes config edit" in seen["advice"] and "config.yaml:" in seen["says"]
    ran = shell("hermes config edit", EDITOR="sed -i s/demo/demo}/")
    assert ran.returncode == 0, ran.stderr
    assert doctor()["ok"]


def test_a_limit_with_a_model_whose_price_nobody_knows_is_a_problem(healthy: Path) -> None:
    (healthy / "config.yaml").write_text(
        "model: {default: mock, provider: custom, base_url: 'http://127.0.0.1:1/v1', api_key: none-needed}\n"
        "budget: {month: {usd: 5}}\n"
    )
    (found,) = wrong(doctor())
    assert found["check"] == "budget" and found["mark"] == "problem"
    assert "the price of mock is not known, so budget.month.usd cannot be kept" in found["says"]
    assert "models.mock.price" in found["advice"]
    with (healthy / "config.yaml").open("a") as file:
        file.write("models: {mock: {price: {input: 0, output: 0}}}\n")
    assert wrong(doctor()) == []


@pytest.mark.parametrize(
    ("more", "says", "mended"),
    [
        (
            "budget: {day: {usd: 5}}\nauxiliary: {vision: {model: eyes, provider: custom, base_url: 'http://10.0.0.1/v1'}}",
            "the price of eyes is not known, so budget.day.usd cannot be kept",
            "models: {eyes: {price: {input: 0, output: 0}}}",
        ),
        (
            "delegation: {budget_usd: 1}\nfallback_providers: [{model: other, provider: custom, base_url: 'http://10.0.0.1/v1'}]",
            "the price of other is not known, so delegation.budget_usd cannot be kept",
            "models: {other: {price: {input: 0, output: 0}}}",
        ),
    ],
)  # fmt: skip
def test_a_limit_with_another_model_whose_price_nobody_knows_is_a_problem(
    healthy: Path, more: str, says: str, mended: str
) -> None:
    config = f"{(healthy / 'config.yaml').read_text()}\n{more}\n"
    (healthy / "config.yaml").write_text(config)
    (found,) = [one for one in wrong(doctor()) if one["check"] == "budget"]
    assert says in found["says"]
    (healthy / "config.yaml").write_text(f"{config}{mended}\n")
    assert not [one for one in wrong(doctor()) if one["check"] == "budget"]


def test_a_limit_with_a_transcriber_whose_price_nobody_knows_is_a_problem(healthy: Path) -> None:
    with (healthy / "config.yaml").open("a") as file:
        file.write("\nbudget: {day: {usd: 5}}\nstt: {base_url: 'https://speech.invalid/v1'}\n")
    (found,) = [one for one in wrong(doctor()) if one["check"] == "budget"]
    assert "a transcription by https://speech.invalid/v1 is not known" in found["says"]
    assert found["fix"] == "hermes config set stt.usd_per_message 0.01"
    assert shell(found["fix"]).returncode == 0
    assert not [one for one in wrong(doctor()) if one["check"] == "budget"]


def test_repair_keeps_what_was_there(healthy: Path) -> None:
    broken_yaml(healthy)
    ran = shell("hermes config repair")
    assert "line 1 is a comment now" in ran.stdout and "config.yaml.bak" in ran.stdout
    assert config.load(healthy).sessions.retention_days == 30, "the rest holds"
    assert "demo" in (healthy / "config.yaml.bak").read_text()
    assert (healthy / "config.yaml.bak").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "second", ("budget: {day: {usd: lots}}\n", "budget: {day: {usd: lots,  # many\n  tokens: 5}}\n")
)
def test_a_line_that_became_a_comment_stays_when_a_second_step_changes_the_file(healthy: Path, second: str) -> None:
    file = healthy / "config.yaml"
    file.write_text(broken := f"model:\n  default: demo\n provider: [demo\n{second}")
    ran = shell("hermes config repair")
    assert ran.returncode == 0 and "line 3 is a comment now" in ran.stdout and "budget.day.usd" in ran.stdout
    assert "#  provider: [demo" in file.read_text().splitlines()
    assert "default: demo" in file.read_text() and config.load(healthy).budget.day.usd is None
    (copy,) = healthy.glob("config.yaml.*")
    assert str(copy) in ran.stdout and copy.read_text() == broken


def test_fix_mends_what_cannot_lose_anything(healthy: Path) -> None:
    for plant in (home_open, env_open, database_open, wrong_counter):
        plant(healthy)
    assert len(wrong(doctor())) == 4
    found = doctor("--fix")
    assert found["ok"] and len(found["mended"]) == 4


def test_hermes_agent_in_the_same_environment(healthy: Path, tmp_path: Path) -> None:
    beside = tmp_path / "site" / "hermes_agent-0.9.dist-info"
    beside.mkdir(parents=True)
    (beside / "METADATA").write_text("Metadata-Version: 2.1\nName: hermes-agent\nVersion: 0.9\n")
    ran = shell("hermes doctor --json", PYTHONPATH=str(beside.parent))
    (seen,) = [one for one in json.loads(ran.stdout)["checks"] if one["check"] == "hermes-agent"]
    assert ran.returncode == 1 and seen["mark"] == "problem" and seen["fix"].startswith("pipx install --force ")


@pytest.mark.needs_bubblewrap
def test_a_zone_that_does_not_exist(healthy: Path) -> None:
    found = json.loads(shell("hermes doctor --json", TZ="Europe/Atlantis").stdout)
    (seen,) = wrong(found)
    assert seen["check"] == "clock" and found["ok"], "a warning alone is no problem"
    assert "No problems found" in shell(f"export TZ=Europe/Atlantis; {seen['fix']}; hermes doctor").stdout


def test_a_clock_that_went_back(healthy: Path) -> None:
    db = SessionDB(healthy / "state.db", clock=lambda: time.time() + 86_400)
    db.append_message("one", "user", "from tomorrow")
    db.close()
    (seen,) = wrong(doctor())
    assert seen["check"] == "clock" and seen["mark"] == "warning" and "timedatectl" in seen["fix"]


def test_no_home_yet(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERMES_HOME", str(home / "nowhere"))
    found = doctor()
    assert {one["check"] for one in wrong(found)} == {"home", "model"}
    assert not (home / "nowhere").exists(), "looking makes nothing"
    (fix,) = {one["fix"] for one in wrong(found)}
    typed(fix, (MODEL, "demo"), *THE_REST)
    assert wrong(doctor()) == []


def test_no_secret_is_shown(healthy: Path) -> None:
    secret = "sk-" + "a1b2c3d4" * 5
    config.add_variable("OPENAI_API_KEY", secret)
    config.set_value("model.default", "gpt-5")
    ran = shell("hermes doctor; hermes doctor --json; hermes status; hermes status --json")
    assert "OPENAI_API_KEY in .env" in ran.stdout and secret not in ran.stdout + ran.stderr
