"""A home that cannot be used: every command says what, where and what to do now, in one line, and harms nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.hermes_cli.conftest import Run
from tests.hermes_cli.doctors import MOUNTS, PLAIN, READ_ONLY, needs_mounts, needs_plain

from hermes_cli.main import main
from hermes_config import config
from hermes_state.session_db import SessionDB

pytestmark = pytest.mark.slow

# One of every kind of command: talking, reading, changing, the gateway, set-up. {tmp}: a folder that is well.
COMMANDS = """
chat --model demo -z hello | chat -q hello | sessions list | sessions show one | sessions search hello
sessions export {tmp}/all.zip | sessions rename one Another | sessions delete one --yes | sessions prune --yes | usage
gateway status | gateway start | gateway run | gateway stop | gateway logs | gateway install --print | api key
send telegram:1 hello | inbox list | turns list | trace last | outbox list | backup create | backup list | state check
state check --fix | state maintain | state reindex | setup --non-interactive --model demo | doctor | doctor --fix
status | logs | config show | config check | config path | config limits | config set limits.title_chars 90
config set SOME_API_KEY x1 | config edit | config unset model.default
model | tools | approvals list | memory show | skills list | pairing list
people list | people link owner telegram 42 | plugins list | plugins enable nothing
"""
LINES = [line.strip() for row in COMMANDS.strip().splitlines() for line in row.split("|")]


def home_is_a_file(home: Path) -> None:
    home.rename(home.with_name("before"))
    home.write_text("x")


def config_is_a_folder(home: Path) -> None:
    (home / "config.yaml").unlink()
    (home / "config.yaml").mkdir()


def env_is_a_folder(home: Path) -> None:
    (home / ".env").mkdir(mode=0o700)


def broken_yaml(home: Path) -> None:
    (home / "config.yaml").write_text("model: {default: demo\n")


def not_utf8(home: Path) -> None:
    (home / "config.yaml").write_bytes(b"model: \xff\xfe\n")


def garbage(home: Path) -> None:
    (home / "state.db").write_bytes(b"no database at all " * 1_000)


def database_is_a_folder(home: Path) -> None:
    for file in home.glob("state.*"):
        file.unlink()
    (home / "state.db").mkdir()


FAULTS: tuple[Callable[[Path], None], ...] = (
    home_is_a_file, config_is_a_folder, env_is_a_folder, broken_yaml, not_utf8, garbage, database_is_a_folder,
)  # fmt: skip


@pytest.fixture
def lived_in(home: Path) -> Path:
    home.mkdir(mode=0o700)
    config.set_value("model.default", "demo")
    db = SessionDB(home / "state.db")
    db.create_session("one", source="cli")
    db.append_message("one", "user", "hello")
    db.close()
    return home


def _look_at(line: str, code: int, err: str) -> None:
    assert "Traceback" not in err and "internal error" not in err, (line, err)
    assert code in (0, 1, 2), (line, code, err)
    said = [one for one in err.splitlines() if one.startswith("hermes: ")]
    if code and not line.startswith(("gateway status", "doctor")):
        assert len(said) == 1 and err.strip() == said[0], (line, err)
        assert said[0].endswith(".") and ". " in said[0], f"{line} does not say what to do now: {said[0]}"


@pytest.mark.parametrize("plant", FAULTS, ids=lambda plant: plant.__name__)
def test_every_command_says_it_in_one_line(
    plant: Callable[[Path], None], lived_in: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plant(lived_in)
    failed = 0
    for line in LINES:
        capsys.readouterr()
        code = main(line.format(tmp=tmp_path).split())
        _look_at(line, code, capsys.readouterr().err)
        failed += code != 0
    assert failed > 10


# -- worlds of their own: one process runs all commands there and writes down what each said ---------------------------

ALL = """
import contextlib, io, json, sys
from hermes_cli.main import main
said = []
for line in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as err:
        code = main(line.split())
    said.append((line, code, err.getvalue()))
print(json.dumps(said))
"""
WORLDS = {
    "no home possible": ("export HERMES_HOME=/proc/nohome", []),
    "the home of nobody": ("export HERMES_HOME='~no-such-person/x'", []),
    "a name that is no text": ("export HERMES_HOME=\"$HERMES_HOME\"$'\\xff'", []),
    "a name that is too long": ('export HERMES_HOME="$HERMES_HOME/$(printf %0300d 1)"', []),
    "a read-only mount": (READ_ONLY, MOUNTS),
    "a home closed to writing": ('chmod -R a-w "$HERMES_HOME"', PLAIN),
    "a home closed to everything": ('chmod 000 "$HERMES_HOME"', PLAIN),
    "a full disk": (
        """cp -a "$HERMES_HOME" "$HERMES_HOME.before"; mount -t tmpfs -o size=1m none "$HERMES_HOME"
        cp -a "$HERMES_HOME.before"/. "$HERMES_HOME"; head -c 2000000 /dev/zero > "$HERMES_HOME/fill" || true""",
        MOUNTS,
    ),
}


NEEDS = {"unshare": needs_mounts, "setpriv": needs_plain}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[NEEDS[world[0]]] if world else []) for name, (_, world) in WORLDS.items()]
)
def test_every_command_in_such_a_world(name: str, lived_in: Path, tmp_path: Path) -> None:
    plant, world = WORLDS[name]
    # `gateway start` has a process of its own, which says the same.
    lines = json.dumps([line.format(tmp=tmp_path) for line in LINES if line != "gateway start"])
    script = f'{plant}\nexec "{sys.executable}" -c "$0" "$1"'
    ran = subprocess.run(
        [*world, "bash", "-c", script, ALL, lines], capture_output=True, text=True, check=False, timeout=120,
        stdin=subprocess.DEVNULL, env=dict(os.environ),
    )  # fmt: skip
    (lived_in if lived_in.exists() else tmp_path).chmod(0o700)
    assert ran.returncode == 0, ran.stderr
    for line, code, err in json.loads(ran.stdout.splitlines()[-1]):
        _look_at(line, code, err)


def test_a_database_that_another_program_holds(lived_in: Path, run: Run) -> None:
    """Reading goes on; whoever wants to write is told by whom it is held up, and nothing is written."""
    import apsw

    config.set_value("limits.write_wait_ms", 1_000)
    held = apsw.Connection(str(lived_in / "state.db"))
    held.execute("BEGIN IMMEDIATE")
    try:
        assert "hello" in run("sessions", "show", "one").out
        refused = run("sessions", "rename", "one", "Another")
    finally:
        held.close()
    assert refused.code == 1 and "nothing was written" in refused.err and "fuser" in refused.err
    assert run("sessions", "rename", "one", "Another").code == 0


def test_a_command_that_waits_for_another_program_says_so_once(lived_in: Path) -> None:
    import apsw

    held = apsw.Connection(str(lived_in / "state.db"))
    held.execute("BEGIN IMMEDIATE")
    line = [sys.executable, "-m", "hermes_cli", "sessions", "rename", "one", "Another"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as command:
        assert command.stderr is not None
        said = command.stderr.readline()
        held.close()
        out, more = command.communicate(timeout=60)
    where = lived_in / "state.db"
    assert said == f"hermes: another program holds the database ({where}); waiting up to 30 s for it\n"
    assert command.returncode == 0 and not more
    assert "Another" in out and "holds" not in out
