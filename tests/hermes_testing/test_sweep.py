"""The kill sweep finds what it is for: work that can be left half done."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.stores import EngineName, TestStores

pytestmark = pytest.mark.slow

Run = Callable[[str], tuple[int, str]]

SOUND = """
def work(db, journal):
    for name in ("one", "two"):
        journal.do(name, lambda: db._execute_write(lambda conn: put(conn, name)))
        journal.effect(name)

def put(conn, name):
    conn.run("INSERT INTO state_meta VALUES (?, 'first half')", (name,))
    conn.run("UPDATE state_meta SET value = 'whole' WHERE key = ?", (name,))
"""
HALF_DONE = """
def work(db, journal):
    def in_two_transactions():
        db._execute_write(lambda conn: conn.run("INSERT INTO state_meta VALUES ('a', 'first half')"))
        db._execute_write(lambda conn: conn.run("UPDATE state_meta SET value = 'whole' WHERE key = 'a'"))
    journal.do("both", in_two_transactions)
"""


@pytest.fixture
def run(
    tmp_path: Path,
    engine: EngineName,
    stores: TestStores,
    monkeypatch: pytest.MonkeyPatch,
) -> Run:
    """What the sweep's command prints for a workload, and its exit code."""
    if engine == "postgresql":
        monkeypatch.setenv("HERMES_TEST_POSTGRES", stores.server.url)

    def run(text: str) -> tuple[int, str]:
        file = tmp_path / "workload.py"
        file.write_text(text)
        # A process of its own: it forks at every point, and this one has become large.
        command = [sys.executable, "-m", "tests.support.sweep", str(file), "--engine", engine]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        return done.returncode, done.stdout

    return run


def test_sound_work_survives_every_point(run: Run, engine: EngineName) -> None:
    code, said = run(SOUND)
    assert code == 0, said
    assert f"workload on {engine}: killed at " in said
    kinds = ("effect 4", "file write", "committed") if engine == "sqlite" else ("effect 4", "sent", "answered")
    assert all(kind in said for kind in kinds)


def test_an_operation_in_two_transactions_is_found(run: Run) -> None:
    code, said = run(HALF_DONE)
    assert code == 1
    assert "0 operations acknowledged, both in flight: table state_meta: unexpected" in said
