"""The Makefile: when it builds `.venv`."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

_MAKEFILE = Path(__file__).parents[1] / "Makefile"


@pytest.mark.parametrize(("made_in", "builds"), [("", False), ("{}", False), ("/elsewhere", True)])
def test_a_clone_that_was_moved_builds_its_programs_anew(tmp_path: Path, made_in: str, builds: bool) -> None:
    shutil.copy(_MAKEFILE, tmp_path)
    for name in ("requirements-dev.txt", "pyproject.toml"):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (0, 0))
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv/.ready").write_text(made_in.format(tmp_path))
    # This runs below `make test`, whose variables change what make prints.
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    said = subprocess.run(
        ["make", "-n", "run"], cwd=tmp_path, env=ours, capture_output=True, text=True, check=True
    ).stdout
    assert ("-m venv --clear .venv" in said) is builds
    assert said.splitlines()[-1] == ".venv/bin/hermes demo"
