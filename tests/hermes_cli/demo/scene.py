"""What the tests of `hermes demo` share: a clone, commands on its home, and who lives there."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest


def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clone as far as the demo can tell: the folder it is run in has the .venv it runs from."""
    made = tmp_path / "clone"
    made.mkdir()
    (made / ".venv").symlink_to(sys.prefix)
    (made / "Makefile").touch()
    monkeypatch.chdir(made)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    return made


def hermes(*arguments: str, **environment: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-m", "hermes_cli", *arguments],
        capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL, env={**os.environ, **environment},
    )  # fmt: skip
    assert ran.stderr == ""
    return ran.stdout


def processes(folder: Path) -> list[int]:
    """Every living process that works in the demo's home, as the gateway and the pretend Telegram do."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and (entry / "cwd").readlink().is_relative_to(folder / ".demo"):
                found.append(int(entry.name))
        except OSError:  # it has ended meanwhile
            continue
    return found


def until(seen: Callable[[], object], what: str, *, seconds: float = 15.0) -> None:
    deadline = time.monotonic() + seconds
    while not seen():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.02)
