"""`hermes memory`: what is remembered is shown, edited and forgotten."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def remembered(home: Path) -> Path:
    (home / "memories").mkdir(parents=True)
    (home / "memories" / "USER.md").write_text("Ada likes tea.\n§\nAda lives in Lisbon.")
    return home / "memories"


def test_memory_shows_entries_and_files(run, home: Path) -> None:
    (home / "memories" / "USER.md").unlink()
    assert "Nothing is remembered yet" in run("memory").out
    (home / "memories" / "MEMORY.md").write_text("Ada is allergic to nuts.\n§\nThe printer is \x1b[31mred")
    shown = run("memory", "show").out
    assert "· Ada is allergic to nuts." in shown
    assert "\x1b" not in shown
    assert run("memory", "show", "--json").data["memory"]["entries"][0] == "Ada is allergic to nuts."
    assert run("memory", "path").out.splitlines()[0] == str(home / "memories" / "MEMORY.md")


def test_forget_removes_the_one_entry_that_is_meant(run, remembered: Path) -> None:
    ambiguous = run("memory", "forget", "Ada", "--yes")
    assert ambiguous.code == 2 and "2 entries contain 'Ada'" in ambiguous.err
    assert run("memory", "forget", "coffee", "--yes").code == 2
    assert run("memory", "forget", "", "--yes").code == 2
    assert run("memory", "forget", "tea").code == 2, "nobody is there to confirm it"
    assert run("memory", "forget", "tea", "--yes", "--json").data == {"target": "user", "forgotten": "Ada likes tea."}
    assert (remembered / "USER.md").read_text() == "Ada lives in Lisbon."


def test_confirm_takes_the_mark_from_an_entry_that_came_from_outside(run, remembered: Path) -> None:
    (remembered / "MEMORY.md").write_text("[from https://x.org, not confirmed] The shop opens at nine.")
    assert run("memory", "confirm", "coffee").code == 2
    assert run("memory", "confirm", "nine", "--json").data == {"confirmed": "The shop opens at nine."}
    assert (remembered / "MEMORY.md").read_text() == "The shop opens at nine."


def test_edit_replaces_the_entries_by_what_the_editor_wrote(run, remembered: Path, monkeypatch) -> None:
    monkeypatch.setenv("EDITOR", "sed -i s/tea/coffee/")
    assert "Saved: 2 entries" in run("memory", "edit", "user").out
    assert (remembered / "USER.md").read_text() == "Ada likes coffee.\n§\nAda lives in Lisbon."
    assert run("memory", "edit", "user").out == "Nothing was changed.\n"
    assert (remembered / "USER.md").stat().st_mode & 0o777 == 0o600


def test_edit_saves_nothing_when_somebody_else_wrote_meanwhile_or_the_editor_failed(
    run, remembered: Path, monkeypatch, tmp_path: Path
) -> None:
    editor = tmp_path / "editor"
    editor.write_text(f"#!/bin/sh\nprintf 'Ada likes water.' > {remembered}/USER.md\nprintf mine > $1\n")
    editor.chmod(0o755)
    monkeypatch.setenv("EDITOR", str(editor))
    refused = run("memory", "edit", "user")
    assert refused.code == 1 and "changed meanwhile" in refused.err
    left = remembered.parent / "USER.md.edited"
    assert str(left) in refused.err and left.read_text() == "mine", "what the person wrote is not lost"
    monkeypatch.setenv("EDITOR", "false")
    assert run("memory", "edit", "user").code == 2
    assert (remembered / "USER.md").read_text() == "Ada likes water."


def test_an_entry_that_is_a_piece_of_another_one_can_be_forgotten(run, remembered: Path) -> None:
    (remembered / "USER.md").write_text("tea\n§\ntea with milk")
    assert run("memory", "forget", "tea", "--yes").code == 0
    assert (remembered / "USER.md").read_text() == "tea with milk"


def test_edit_leaves_a_file_alone_that_is_not_utf_8(run, remembered: Path, monkeypatch) -> None:
    (remembered / "USER.md").write_bytes(before := "Zoë likes tea.".encode("latin-1"))
    for editor in ("true", "sed -i s/tea/coffee/"):
        monkeypatch.setenv("EDITOR", editor)
        assert "not UTF-8" in run("memory", "edit", "user").err
    assert (remembered / "USER.md").read_bytes() == before
