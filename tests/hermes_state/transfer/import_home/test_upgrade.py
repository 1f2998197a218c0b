"""A home of hermes-agent converted in place: backed up, compared, swapped at one instant, and never under anybody."""

from __future__ import annotations

import fcntl
import importlib
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from tests.support.old_homes import OldHome, entry
from tests.support.processes import Worker
from tests.support.stores import scratch

from hermes_state.errors import ForeignHome, NotADatabase, StoreDamaged
from hermes_state.session_db import SessionDB
from hermes_state.transfer.import_home import in_use, upgrade

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent / "workers"


@pytest.fixture
def made(tmp_path: Path) -> OldHome:
    made = OldHome(tmp_path / "theirs")
    made.conversation("first", 2, title="Trip")
    made.end("first", "compression")
    made.conversation("second", 2, parent_session_id="first")
    made.route("agent:main:telegram:dm:1", "first")
    return made


def version(database: Path) -> int:
    with sqlite3.connect(database) as db:
        found: int = db.execute("SELECT version FROM schema_version").fetchone()[0]
    db.close()
    return found


def test_the_home_is_ours_afterwards_and_the_backup_is_the_old_one(made: OldHome) -> None:
    made.index({"agent:main:telegram:dm:2": entry("agent:main:telegram:dm:2", "elsewhere")})
    home = made.close()
    with pytest.raises(ForeignHome, match="upgrade"):
        SessionDB(home / "state.db")
    upgraded = upgrade.upgrade(home)
    db = SessionDB(home / "state.db")
    assert [row["id"] for row in db.list_sessions_rich()] == ["second"]
    assert len(db.get_messages_as_conversation("second", include_ancestors=True)) == 8
    assert set(db.load_gateway_routing_entries(scope="sessions")) == {
        "agent:main:telegram:dm:1",
        "agent:main:telegram:dm:2",
    }
    db.append_message("second", "user", "and on")
    db.close()
    assert version(upgraded.backup) == 22
    assert upgraded.backup.stat().st_mode & 0o777 == 0o600
    assert (home / "state.db").stat().st_mode & 0o777 == 0o600
    assert {path.name for path in home.iterdir()} == {"state.db", "sessions", "backups"}


def test_the_way_back_is_to_put_the_backup_in_place(made: OldHome) -> None:
    home = made.close()
    upgraded = upgrade.upgrade(home)
    upgraded.backup.replace(home / "state.db")
    with sqlite3.connect(home / "state.db") as theirs:
        assert theirs.execute("SELECT count(*) FROM messages").fetchone() == (8,)
        assert theirs.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    theirs.close()


def test_what_a_crash_left_in_the_log_is_converted_too(made: OldHome, tmp_path: Path) -> None:
    made.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    made.message("second", "user", "just before the crash")
    home = made.leave_log(tmp_path / "crashed")
    assert (home / "state.db-wal").stat().st_size > 0
    upgrade.upgrade(home)
    assert not (home / "state.db-wal").exists()
    db = SessionDB(home / "state.db")
    assert db.get_messages("second")[-1]["content"] == "just before the crash"
    db.close()


def test_a_home_of_ours_and_a_damaged_one_are_refused(made: OldHome, tmp_path: Path) -> None:
    (tmp_path / "ours").mkdir()
    SessionDB(tmp_path / "ours" / "state.db").close()
    with pytest.raises(NotADatabase, match="nothing to upgrade"):
        upgrade.upgrade(tmp_path / "ours")
    made.conversation("long", 400)
    home = made.close()
    with (home / "state.db").open("r+b") as file:
        file.seek(5 * 4096)
        file.write(os.urandom(3 * 4096))
    damaged = (home / "state.db").read_bytes()
    with pytest.raises(StoreDamaged):
        upgrade.upgrade(home)
    assert (home / "state.db").read_bytes() == damaged


# Never under anybody


def test_a_home_whose_database_is_open_elsewhere_is_refused(made: OldHome, tmp_path: Path) -> None:
    home = made.close()
    script = tmp_path / "holder.py"
    script.write_text(
        "import sqlite3, sys, time\ndb = sqlite3.connect(sys.argv[1])\n"
        "db.execute('SELECT 1 FROM sessions').fetchall()\nprint('open', flush=True)\ntime.sleep(60)\n"
    )
    with Worker(script, home / "state.db") as worker:
        assert worker.line() == "open"
        with pytest.raises(in_use.HomeInUse, match=f"process {worker.pid}"):
            upgrade.upgrade(home)
    assert version(home / "state.db") == 22
    upgrade.upgrade(home)


def test_a_home_whose_gateway_runs_is_refused_and_an_old_pid_file_is_not_believed(
    made: OldHome, tmp_path: Path
) -> None:
    home = made.close()
    gateway = tmp_path / "hermes-gateway.py"
    gateway.write_text("import time\nprint('up', flush=True)\ntime.sleep(60)\n")
    with Worker(gateway) as worker:
        assert worker.line() == "up"
        (home / "gateway.pid").write_text(json.dumps({"pid": worker.pid, "kind": "hermes-gateway"}))
        with pytest.raises(in_use.HomeInUse, match=f"process {worker.pid}"):
            upgrade.upgrade(home)
    assert in_use.describe_user(home) is None, "that process has ended"
    with subprocess.Popen(["sleep", "60"]) as another:
        (home / "gateway.pid").write_text(json.dumps({"pid": another.pid, "start_time": 12345}))
        assert in_use.describe_user(home) is None, "that process is somebody else"
        another.kill()


def test_a_home_whose_lock_is_held_is_refused(made: OldHome) -> None:
    home = made.close()
    with (home / "gateway.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(in_use.HomeInUse, match=r"gateway\.lock"):
            upgrade.upgrade(home)
    assert in_use.describe_user(home) is None


@pytest.mark.parametrize("moment", ["backing up", "converting", "comparing"])
def test_nobody_can_write_to_the_home_while_it_is_being_converted(made: OldHome, moment: str) -> None:
    home = made.close()
    told: list[str] = []
    code = (
        "import sqlite3, sys\n"
        "try:\n    sqlite3.connect(sys.argv[1], timeout=0.1).execute('DELETE FROM messages').fetchall()\n"
        "except sqlite3.OperationalError as error:\n    print(error)\n"
    )

    def step(what: str) -> None:
        if what == moment:
            asked = [sys.executable, "-c", code, str(home / "state.db")]
            told.append(subprocess.run(asked, check=True, timeout=30, capture_output=True, text=True).stdout)

    upgrade.upgrade(home, step=step)
    assert told == ["database is locked\n"]
    db = SessionDB(home / "state.db")
    assert db.message_count() == 8
    db.close()


def test_killed_anywhere_the_home_is_the_old_one_or_the_new_one(
    made: OldHome, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    home = made.leave_log(tmp_path / "crashed")
    stride = 1 if request.config.getoption("--long") else 61
    with (
        tempfile.TemporaryDirectory(dir=scratch(), prefix="hermes-upgrade-") as folder,
        Worker(HERE / "upgrade_and_die.py", home, folder, stride) as worker,
    ):
        *complaints, summary = worker.finish(timeout=550)
    print(summary)
    assert complaints == []
    killed = [int(word) for word in summary.replace(",", "").split() if word.isdigit()]
    assert killed[0] > 3_000 // stride
    assert all(killed[1:]), "both the old and the new home were met"


def test_the_reference_in_the_same_environment_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert in_use.hermes_agent_installed() is None
    in_use.refuse_hermes_agent_installed()
    info = tmp_path / "hermes_agent-0.19.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hermes-agent\nVersion: 0.19.0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    assert in_use.hermes_agent_installed() == "0.19.0"
    with pytest.raises(in_use.HermesAgentInstalled, match=r"hermes-agent 0\.19\.0") as refused:
        in_use.refuse_hermes_agent_installed()
    assert "its own environment" in str(refused.value)
