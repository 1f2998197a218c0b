"""`hermes demo`: what a newcomer meets first, and the same screen in the README."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from hermes_cli import text

ROOT = Path(__file__).parents[2]
_ID = re.compile(r"\d{8}_\d{6}_[0-9a-f]{8}")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clone as far as the demo can tell: the folder it is run in has the .venv it runs from."""
    clone = tmp_path / "clone"
    clone.mkdir()
    (clone / ".venv").symlink_to(sys.prefix)
    monkeypatch.chdir(clone)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    return clone


def hermes(*arguments: str, **environment: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-m", "hermes_cli", *arguments],
        capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL, env={**os.environ, **environment},
    )  # fmt: skip
    assert ran.stderr == ""
    return ran.stdout


def screens(shown: str) -> dict[str, str]:
    """What stands under each command."""
    parts = shown.split("\n\n$ ")[1:]
    last, _, _ = parts[-1].partition("\n\nGo on")
    return dict(part.split("\n", 1) for part in [*parts[:-1], last])


def test_the_readme_shows_exactly_what_the_demo_prints(folder: Path) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    printed = readme.partition("```text\n")[2].partition("```")[0]
    assert _ID.sub("ID", hermes("demo")) == _ID.sub("ID", printed)


def test_it_is_plain_in_a_pipe_fits_80_columns_and_names_its_home_first(folder: Path) -> None:
    shown = hermes("demo")
    assert shown.startswith("Hermes · demo home ./.demo   (throw-away; ~/.hermes is not touched)\n")
    assert "\x1b" not in shown
    assert max(map(text.width, shown.splitlines())) <= 80
    assert stat.S_IMODE((folder / ".demo").stat().st_mode) == 0o700


def test_each_screen_is_what_the_command_above_it_prints_at_a_terminal(folder: Path, terminal, monkeypatch) -> None:
    shown = screens(hermes("demo"))
    assert len(shown) == 4
    monkeypatch.setenv("HERMES_HOME", str(folder / ".demo"))
    monkeypatch.setenv("NO_COLOR", "1")
    for command, screen in shown.items():
        arguments = [word.strip('"') for word in re.findall(r'"[^"]*"|\S+', command)]
        assert terminal(*arguments[1:]).rstrip("\n") == screen, command


def test_the_commands_it_proposes_work_as_they_stand(folder: Path) -> None:
    lines = hermes("demo").partition("Go on in this shell:\n")[2].splitlines()
    commands = [re.split(r"\s{3,}", line.strip())[0] for line in lines]
    assert len(commands) == 6
    ran = subprocess.run(
        ["/bin/sh", "-ec", "\n".join(commands)], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    assert ran.returncode == 0, ran.stderr
    assert (folder / "trip.zip").exists()


def test_a_database_named_by_the_environment_does_not_get_in_the_way(folder: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere.db"
    shown = hermes("demo", HERMES_DATABASE_URL=f"sqlite:///{elsewhere}")
    assert "HERMES_DATABASE_URL= " in shown
    assert not elsewhere.exists()


def test_it_can_be_run_again_and_starts_afresh(folder: Path) -> None:
    hermes("demo")
    (folder / ".demo" / "leftover").mkdir()
    hermes("sessions", "delete", "Invoice 2231", "--yes", HERMES_HOME=str(folder / ".demo"))
    assert "Invoice 2231" in hermes("demo")
    assert not (folder / ".demo" / "leftover").exists()


@pytest.mark.parametrize("kind", ["folder", "file", "link"])
def test_what_no_demo_made_is_left_alone(folder: Path, tmp_path: Path, run, kind: str) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "state.db").write_text("mine")
    target = folder / ".demo"
    if kind == "folder":
        precious.rename(target)
        precious = target
    elif kind == "file":
        target.write_text("mine")
    else:
        (precious / "THIS_IS_A_DEMO").write_text("")
        target.symlink_to(precious)
    ran = run("demo")
    assert ran.code == 2
    assert "left alone" in ran.err
    assert (precious / "state.db").read_text() == "mine"
    assert ran.out == ""
