"""`hermes completion bash`, in a real bash: what Tab would offer."""

from __future__ import annotations

import subprocess

import pytest

from .conftest import Run

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
