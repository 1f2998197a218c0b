"""The page of all commands is what the commands say of themselves, and leaves none of them out."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tools import commands_page

from hermes_cli.commands import COMMANDS

PAGE = Path(__file__).parents[2] / "docs" / "users" / "commands.md"


@pytest.mark.parametrize("columns", ["40", "200"])
def test_the_page_is_current_in_a_terminal_of_any_width(columns: str) -> None:
    made = subprocess.run(
        [sys.executable, "-m", "tools.commands_page"],
        env={**os.environ, "COLUMNS": columns},
        capture_output=True,
        text=True,
        check=True,
    )
    assert made.stdout == PAGE.read_text(encoding="utf-8"), "make docs brings the page up to date"


def test_every_command_and_verb_is_there_with_an_example() -> None:
    sections = dict(section.split("`\n", 1) for section in commands_page.page().split("# `")[1:])
    assert set(COMMANDS) == {name.split()[1] for name in sections}
    nouns = {name.rpartition(" ")[0] for name in sections}
    silent = [name for name, says in sections.items() if name not in nouns and f"\n{name.split()[0]} " not in says]
    assert not silent, "a verb without an example"


def test_what_help_shows_is_on_the_page() -> None:
    said = subprocess.run(
        [sys.executable, "-m", "hermes_cli", "backup", "restore", "--help"], capture_output=True, text=True, check=True
    ).stdout
    section = commands_page.page().partition("`hermes backup restore`\n")[2].partition("\n#")[0]
    for words in ("Replace the store and files by a backup", "--yes", "do not ask", "hermes backup restore hermes-"):
        assert words in said and words in section
