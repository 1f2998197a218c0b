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
from hermes_testing.terminal import Terminal

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


def settled(shown: str) -> str:
    """A screen without what differs from run to run."""
    shown = re.sub(r"(?<=│ where   ).*?(?=\n│ for)", "PATH", shown, flags=re.DOTALL)
    shown = re.sub(r"[\d.,]+ (ms|s|tokens)\b", r"N \1", _ID.sub("ID", shown))
    return "\n".join(line.rstrip() for line in shown.strip().splitlines())


def test_the_readme_shows_exactly_the_first_two_minutes(folder: Path) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    printed = readme.partition("```text\n")[2].partition("```")[0]
    with Terminal([sys.executable, "-m", "hermes_cli", "demo"], env={"NO_COLOR": "1"}) as chat:
        chat.ready()
        chat.type("list the files here")
        chat.see("of $1.00")
        chat.ready()
        chat.type("delete the folder old")
        chat.see("(Enter) >")
        chat.press("enter")
        chat.see("of $1.00", times=2)
        chat.ready()
        chat.press("ctrl-d")
        assert chat.end() == 0
        assert settled(chat.shown) == settled(printed)
        assert max(map(text.width, chat.shown.splitlines())) <= 80
    assert (folder / ".demo" / "workspace" / "old").is_dir()


def test_without_a_terminal_it_plays_one_turn_in_plain_text(folder: Path) -> None:
    shown = hermes("demo")
    assert shown.startswith("Hermes · demo home ./.demo   (throw-away; ~/.hermes is not touched)\n")
    assert re.search(r"^> list the files here\n.*^✓ terminal  ls -1p · .*^- Files: `notes.md`", shown, re.M | re.S)
    assert "today $0.00 of $1.00" in shown
    assert "\x1b" not in shown
    assert stat.S_IMODE((folder / ".demo").stat().st_mode) == 0o700


def test_yes_deletes_in_the_demos_own_workspace_only(folder: Path) -> None:
    (folder / "old").mkdir()
    with Terminal([sys.executable, "-m", "hermes_cli", "demo"]) as chat:
        chat.ready()
        chat.type("delete the folder old")
        chat.see("(Enter) >")
        chat.type("o")
        chat.see("It is gone.")
    assert not (folder / ".demo" / "workspace" / "old").exists()
    assert (folder / "old").is_dir()


def test_what_was_said_in_its_conversations_is_found_and_others_is_not(folder: Path) -> None:
    hermes("demo")
    found = hermes("-z", "search our chats for 京都", HERMES_HOME=str(folder / ".demo"))
    assert "Trip to Kyoto" in found
    assert "北京" not in found  # Lin's, not the owner's


def test_the_commands_it_proposes_work_as_they_stand(folder: Path) -> None:
    lines = hermes("demo").partition("Go on in this shell:\n")[2].splitlines()
    commands = [re.split(r"\s{3,}", line.strip())[0] for line in lines]
    assert len(commands) == 7
    script = "\n".join(commands).replace("hermes --continue", "echo hello | hermes --continue")
    ran = subprocess.run(
        ["/bin/sh", "-ec", script], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    assert ran.returncode == 0, ran.stderr
    assert "17 * 4 = 68" in ran.stdout
    assert (folder / "trip.zip").exists()


def test_a_database_named_by_the_environment_does_not_get_in_the_way(folder: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere.db"
    shown = hermes("demo", HERMES_DATABASE_URL=f"sqlite:///{elsewhere}")
    assert "HERMES_DATABASE_URL= " in shown
    assert not elsewhere.exists()


def test_it_can_be_run_again_and_starts_afresh(folder: Path) -> None:
    hermes("demo")
    (folder / ".demo" / "leftover").mkdir()
    hermes("sessions", "delete", "Parser refactor", "--yes", HERMES_HOME=str(folder / ".demo"))
    assert "Parser refactor" in hermes("demo")
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
