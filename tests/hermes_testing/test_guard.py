"""The guard around `~/.hermes`: a test that looks there, or makes it, fails and says why."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

PROJECT = Path(__file__).parents[2]
LOOKS = """
import contextlib, pathlib
def test_looks():
    with contextlib.suppress(OSError):
        (pathlib.Path.home() / ".hermes" / "config.yaml").open()
"""
MAKES = """
import pathlib
def test_makes():
    (pathlib.Path.home() / ".hermes").mkdir()
"""
OPENS_THE_DEFAULT_STORE = """
import os
from hermes_state.session_db import SessionDB
def test_opens():
    del os.environ["HERMES_HOME"]
    SessionDB().close()
"""
BEHAVES = """
from hermes_state.session_db import SessionDB
def test_behaves(home):
    SessionDB().close()
    assert (home / "state.db").exists()
"""


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (LOOKS, "nothing may touch ~/.hermes"),
        (MAKES, "the test made ~/.hermes"),
        (OPENS_THE_DEFAULT_STORE, "the test opened"),
        (BEHAVES, ""),
    ],
)
def test_the_guard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, complaint: str) -> None:
    file = tmp_path / "test_guarded.py"
    file.write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(PROJECT))
    monkeypatch.chdir(tmp_path)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "-p", "no:cacheprovider", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == (1 if complaint else 0), done.stdout + done.stderr
    assert complaint in done.stdout
