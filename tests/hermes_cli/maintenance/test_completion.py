"""`hermes completion`: what Tab offers in a real bash, and the scripts of the other shells."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.hermes_cli.conftest import Run

from hermes_cli.commands import COMMANDS

pytestmark = pytest.mark.slow

_TAB = """
source /dev/stdin <<< "$SCRIPT"
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
_hermes
echo "${COMPREPLY[*]}"
"""


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("hermes se", "sessions send setup"),
        ("hermes --cont", "--continue"),
        ("hermes config u", "unset"),
        ("hermes config set --", "--help"),
        ("hermes sessions show 42 --j", "--json"),
        ("hermes completion ", "--help bash zsh fish"),
        ("hermes nonsense ", ""),
    ],
)
def test_tab(run: Run, typed: str, offered: str) -> None:
    script = run("completion", "bash").out
    ran = subprocess.run(
        ["bash", "--norc", "-c", _TAB, "bash", *typed.split(" ")],
        capture_output=True, text=True, check=True, env={"SCRIPT": script, "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert ran.stdout.strip() == offered and ran.stderr == ""


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_other_shells_get_every_command(run: Run, shell: str) -> None:
    script = run("completion", shell).out
    for name in COMMANDS:
        assert f"'{name}" in script
    assert "unset" in script and "json" in script


def test_the_store_is_not_needed_for_completion(run: Run, home: Path) -> None:
    assert run("completion", "bash").code == 0
    assert not home.exists()
