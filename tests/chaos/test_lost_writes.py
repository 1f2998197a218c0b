"""The lost-write probe: whatever looks at the files of an open store, a committed row survives a kill -9.

The way to lose one is quiet. Any second descriptor of the database file in the process that has it open, once
closed, drops the locks of all of them; the next process to leave believes it was the last and removes the
write-ahead log; later commits go to a file without a name. So the probe runs every command we ship, from outside
and inside the very process that holds the store, lets another process open, read and leave, writes on, kills.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.old_homes import OldHome
from tests.support.processes import Worker

from hermes_cli.commands import COMMANDS, Command
from hermes_cli.framework.parser import parser_of
from hermes_state.errors import WriteLost
from hermes_state.session_db import SessionDB

WORKERS = Path(__file__).parent / "workers"

# Every verb of every command, as somebody would use it beside a running store. A new one needs its line here.
# `other` is a conversation that nobody waits for; {tmp} is a folder, {home} the home; `;` parts two commands of one
# probe; what begins with `!` must be refused while the store is in use.
PROBES: dict[str, tuple[str, ...]] = {
    "sessions": (
        "sessions list",
        "sessions stats",
        "sessions show probed",
        "sessions lineage probed",
        "sessions search lost",
        "sessions export {tmp}/all.zip ; sessions import {tmp}/all.zip",
        "!sessions import {home}/state.db",
        "!sessions export {home}/state.db",
        "sessions rename other Another",
        "sessions archive other --yes ; sessions unarchive other",
        "sessions delete other --yes",
        "sessions prune --yes",
        "!sessions compress nothing",
        "!sessions uncompress probed",
    ),
    "chat": ("chat --model demo -z hello", "chat --model demo -q hello --json"),
    "model": ("!model",),
    "tools": ("tools",),
    "approvals": (
        "approvals list",
        "approvals log",
        "approvals add --network --hours 1",
        "!approvals revoke nothing",
    ),
    "memory": ("memory show", "memory path", "!memory forget nothing --yes", "!memory edit", "!memory confirm nothing"),
    "skills": ("skills list", "!skills show nothing", "!skills install nothing", "!skills undo nothing"),
    "proposals": (
        "proposals list",
        *(f"!proposals {verb} nothing" for verb in ("show", "accept", "refuse", "edit", "undo")),
    ),
    "mcp": (
        "mcp list",
        "!mcp add x --command nothing-there ; !mcp test x ; !mcp login x ; mcp remove x --yes",
        "!mcp serve --nothing",  # it reads its orders from stdin; tests/tui_gateway/test_mcp_stdio.py runs it
    ),
    "demo": ("demo --home {tmp}/demo", "!demo crash --home {tmp}/nowhere", "!demo phone --home {tmp}/nowhere"),
    "backup": (
        "backup create ; backup list",
        "backup create {tmp}/copy.db ; backup verify {tmp}/copy.db",
        "backup create {tmp}/copy.zip ; backup verify {tmp}/copy.zip",
        "backup create {tmp}/copy.db ; !backup restore {tmp}/copy.db --yes",
        "backup verify {home}/state.db",
        "!backup create {home}/state.db",
        "!backup restore {home}/state.db --yes",
    ),
    "state": (
        "state check",
        "state check --fix",
        "state maintain",
        "state reindex",
        "state move --to sqlite:///{tmp}/moved.db",
        "!state move --to sqlite:///{home}/state.db",
        "!state upgrade --yes",
    ),
    "config": (
        "!config acknowledge nothing",
        "config show",
        "config path",
        "config check",
        "config limits",
        "config set limits.title_chars 90 ; config get limits.title_chars ; config unset limits.title_chars",
        "config set SOME_API_KEY x1 ; config get SOME_API_KEY ; config unset SOME_API_KEY",
        "!config edit",
        "config repair",
    ),
    "setup": ("setup --non-interactive --model demo", "!setup"),
    "doctor": ("setup --non-interactive --model demo ; doctor --fix",),
    "status": ("status",),
    "logs": ("logs",),
    "completion": ("completion bash",),
    "pairing": (
        "pairing list",
        "!pairing approve telegram WRONGONE",
        "!pairing revoke telegram 42",
        "pairing clear-pending",
    ),
    "people": (
        "people list",
        "people show owner",
        "people link owner telegram 42 ; people role telegram:42 owner ; people unlink telegram 42",
        "people zone owner Europe/Lisbon",
    ),
    "plugins": ("plugins list", "!plugins enable nothing", "!plugins disable nothing"),
    "usage": ("usage", "usage --by conversation --since 7d --json"),
    "outbox": (
        "outbox list",
        "!outbox show 1",
        "!outbox retry 1",
        "!outbox drop 1 --yes",
        "!outbox send 1",
        "!outbox edit 1 hello",
    ),
    "inbox": ("inbox list", "!inbox show 1"),
    "gateway": (
        "gateway start ; gateway status ; gateway logs ; !gateway run ; gateway restart ; gateway stop",
        "!gateway setup nowhere",
        "gateway install --print ; gateway uninstall",
    ),
    "cron": (
        "cron list ; cron ledger",
        "cron add 2h hello --name one ; cron show one ; cron pause one ; cron resume one ; cron run one ; cron ledger",
        "cron add 2h --script true --name two ; cron remove two --yes",
        "cron import {tmp}/jobs.json --yes",
        "!cron import {tmp}/nothing --yes",
        "!cron add never hello",
        "!cron remove nothing --yes",
    ),
    "turns": ("turns list", "!turns show nothing", "!turns cancel nothing"),
    "process": ("process list", "!process show nothing", "!process log nothing", "!process kill nothing"),
    "send": ("!send nowhere:1 hello",),
    "api": ("api key", "api key --rotate --json"),
    "trace": ("!trace last", "!trace nothing", "!trace nothing --request 1"),
    "replay": ("!replay nothing --model demo",),
    "import": ("import hermes {tmp}/reference --yes", "!import hermes {home} --yes"),
}


def _verbs(command: Command) -> set[str]:
    parser = parser_of(command)
    groups = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return {f"{command.name} {verb}" for group in groups for verb in group.choices} or {command.name}


def test_every_verb_of_every_command_is_probed() -> None:
    shipped = {verb for command in COMMANDS.values() for verb in _verbs(command)}
    lines = [line.lstrip(" !") for probe in PROBES.values() for text in probe for line in text.split(";")]
    missing = {verb for verb in shipped if not any(f"{line} ".startswith(f"{verb} ") for line in lines)}
    assert not missing, "a command was added: give it its line in PROBES"
    assert set(PROBES) == set(COMMANDS)


@pytest.fixture
def owner(home: Path) -> Iterator[Worker]:
    """A process that holds the home's store open."""
    with Worker(WORKERS / "owner.py", home) as worker:
        assert worker.line() == "ready"
        yield worker


def _tell(worker: Worker, order: str) -> str:
    worker.tell(order)
    return worker.line(timeout=60)


@pytest.fixture(scope="module")
def visitors() -> Iterator[Worker]:
    """Starts a process for each visit of a store, quickly, because it has read the code already."""
    with Worker(WORKERS / "passer_by.py") as worker:
        yield worker


def _let_somebody_pass_by(home: Path, visitors: Worker) -> None:
    assert _tell(visitors, str(home / "state.db")) == "0"


def _lost(home: Path, acknowledged: str) -> set[int]:
    """Which acknowledged rows a fresh look does not find."""
    db = SessionDB(home / "state.db")
    try:
        return {int(row) for row in acknowledged.split()} - {row["id"] for row in db.get_messages("probed")}
    finally:
        db.close()


def _probe(home: Path, owner: Worker, visitors: Worker, disturb: Callable[[], None]) -> set[int]:
    acknowledged = _tell(owner, "append 20")
    disturb()
    _let_somebody_pass_by(home, visitors)
    assert (home / "state.db-wal").exists(), "the owner's locks are gone: its log was removed under it"
    acknowledged += " " + _tell(owner, "append 20")
    owner.kill()
    return _lost(home, acknowledged)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every probe, inside the process that holds the store; beside it a drawn eighth of them, and all with `--long`.

    Beside it, a command would have to reach into another process to drop its locks.
    """
    if "probe" not in metafunc.fixturenames:
        return
    probes = [line for lines in PROBES.values() for line in lines]
    if metafunc.function is test_a_command_beside_the_store and not metafunc.config.getoption("--long"):
        probes = probes[metafunc.config.option.seed % 8 :: 8]
    metafunc.parametrize("probe", probes)


@pytest.fixture
def orders(probe: str, home: Path, tmp_path: Path) -> list[list[str]]:
    """The commands of a probe, word by word, with the files they need."""
    if "reference" in probe:
        old = OldHome(tmp_path / "reference")
        old.session("old")
        old.message("old", "user", "from the old home")
        old.close()
    if "jobs.json" in probe:
        row = {"id": "one", "prompt": "x", "schedule": {"kind": "cron", "expr": "0 8 * * *"}}
        (tmp_path / "jobs.json").write_text(json.dumps({"jobs": [row]}))
    return [[word.format(tmp=tmp_path, home=home) for word in line.split()] for line in probe.split(" ; ")]


def _bare(words: list[str]) -> list[str]:
    return [words[0].lstrip("!"), *words[1:]]


def _as_expected(words: list[str], code: int) -> bool:
    """Done, or refused in a civil way: 70 is an internal error."""
    return code not in (0, 70) if words[0].startswith("!") else code == 0


def test_a_command_beside_the_store(home: Path, owner: Worker, visitors: Worker, orders: list[list[str]]) -> None:
    def run() -> None:
        for words in orders:
            command = [sys.executable, "-m", "hermes_cli", *_bare(words)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert _as_expected(words, done.returncode), done.stdout + done.stderr

    assert _probe(home, owner, visitors, run) == set()


def test_a_command_inside_the_process_that_holds_the_store(
    home: Path, owner: Worker, visitors: Worker, orders: list[list[str]]
) -> None:
    def run() -> None:
        for words in orders:
            said = _tell(owner, f"run {' '.join(_bare(words))}")
            assert _as_expected(words, int(said.removeprefix("exit "))), said

    assert _probe(home, owner, visitors, run) == set()


def test_the_probe_notices_what_it_is_for(home: Path, owner: Worker, visitors: Worker) -> None:
    """A plain open() of the file in the owner's process: the locks are gone, and the store says so or saves."""
    acknowledged = _tell(owner, "append 20")
    assert _tell(owner, "touch") == "touched"
    _let_somebody_pass_by(home, visitors)
    assert not (home / "state.db-wal").exists()
    after = _tell(owner, "append 20").split()
    owner.kill()
    acknowledged += " " + " ".join(word for word in after if word.isdigit())
    assert _lost(home, acknowledged) == set()


@pytest.mark.parametrize("fate", ["removed", "replaced", "replaced by an older copy"])
def test_the_log_is_taken_away_while_we_write(tmp_path: Path, fate: str) -> None:
    """What was acknowledged is there, or the store said that something was lost; and it goes on by itself."""
    path, log = tmp_path / "state.db", tmp_path / "state.db-wal"
    db = SessionDB(path)
    db.create_session("s", "cli")
    db.close()
    db = SessionDB(path)
    kept = ["the first"]
    db.append_message("s", "user", "the first")
    older = log.read_bytes()  # the log only: the database file itself is never opened by anybody else
    kept += [f"before {n}" for n in range(5) if db.append_message("s", "user", f"before {n}")]
    if fate == "removed":
        log.unlink()
    else:
        other = tmp_path / "other"
        other.write_bytes(b"" if fate == "replaced" else older)
        other.replace(log)
    reported = []
    for n in range(5):
        try:
            db.append_message("s", "user", f"after {n}")
            kept.append(f"after {n}")
        except WriteLost as error:
            assert str(log) in error.one_line()
            reported.append(n)
    assert reported in ([], [0]), "the store did not go on by itself"
    db.close()
    again = SessionDB(path)
    found = [row["content"] for row in again.get_messages("s")]
    assert len(found) == len(set(found))
    assert found[-4:] == kept[-4:]
    if not reported:
        assert found == kept
    assert fate != "removed" or not reported, "nothing stood in the log's place: it could have been saved"
    assert again.engine.read(lambda conn: conn.rows("PRAGMA integrity_check")) == [("ok",)]
    again.close()
