"""The guard around `~/.hermes`: a test that looks there, or makes it, fails and says why."""

from __future__ import annotations

import re
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


COMPLAINTS = {
    "looks": (LOOKS, "nothing may touch ~/.hermes"),
    "makes": (MAKES, "the test made ~/.hermes"),
    "opens": (OPENS_THE_DEFAULT_STORE, "the test opened"),
    "behaves": (BEHAVES, ""),
}


def test_the_guard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {name: tmp_path / f"test_{name}.py" for name in COMPLAINTS}
    for name, file in files.items():
        file.write_text(COMPLAINTS[name][0])
    monkeypatch.setenv("PYTHONPATH", str(PROJECT))
    monkeypatch.chdir(tmp_path)
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "tests.conftest", "-p", "no:cacheprovider"]
    done = subprocess.run([*command, *map(str, files.values())], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    for name, (_, complaint) in COMPLAINTS.items():
        found = re.findall(rf"^_+ ERROR at teardown of test_{name} _+$(.*?)^[_=]{{9}}", done.stdout, re.M | re.S)
        assert [complaint in one for one in found] == [True] * bool(complaint), done.stdout
