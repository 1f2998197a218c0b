"""Files that other programs run when they start: by name, and in a workspace."""

from __future__ import annotations

from pathlib import Path

from hermes_config.protected_files import is_protected, search_path
from hermes_config.secret_files import found_in


def test_protected_by_name(tmp_path: Path) -> None:
    for name in (".git/hooks/pre-commit", ".git/config", "sub/.git/HEAD", ".envrc", "a/.npmrc", ".yarnrc.yml",
                 ".vscode/tasks.json", ".idea/runConfigurations/x.xml", ".husky/pre-commit", ".claude/settings.json",
                 ".mcp.json", ".cursor/mcp.json", ".hermes/plugins/x/plugin.py", ".bashrc"):  # fmt: skip
        assert is_protected(tmp_path / name, tmp_path), name
    for name in (
        "Makefile",
        "package.json",
        ".gitignore",
        ".gitattributes",
        ".github/workflows/x.yml",
        "config",
        "hooks/x",
    ):
        assert not is_protected(tmp_path / name, tmp_path), name
    assert not is_protected(Path("/elsewhere/.envrc"), tmp_path)


def test_a_folder_becomes_no_git_folder_without_a_question(tmp_path: Path) -> None:
    """Its settings may have been written before, when they were ordinary files."""
    assert is_protected(tmp_path / "HEAD", tmp_path) and is_protected(tmp_path / "sub" / "HEAD", tmp_path)


def test_a_bare_repository_is_protected(tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    for name in ("objects", "refs", "hooks"):
        (bare / name).mkdir(parents=True)
    (bare / "HEAD").write_text("ref: refs/heads/main\n")
    (bare / "config").write_text("[core]\n\tbare = true\n")
    assert is_protected(bare / "config", tmp_path) and is_protected(bare / "hooks" / "post-update", tmp_path)
    found = found_in(tmp_path, user_home=Path("/nonexistent"))
    assert set(found.protected) == {bare / "config", bare / "hooks"}
    assert found.pinned == (bare,)


def test_hidden_files_of_a_home_that_is_the_workspace_are_protected(tmp_path: Path) -> None:
    for name in (".bashrc", ".newrc", "notes.md"):
        (tmp_path / name).write_text("x")
    for name in (".config", ".cache", "bin"):
        (tmp_path / name).mkdir()
    found = found_in(tmp_path, user_home=tmp_path)
    assert set(found.protected) == {tmp_path / name for name in (".bashrc", ".newrc", ".config", "bin")}
    assert is_protected(tmp_path / ".config/autostart/x", tmp_path, user_home=tmp_path)
    assert not is_protected(tmp_path / "notes.md", tmp_path, user_home=tmp_path)
    assert not is_protected(tmp_path / ".cache/x", tmp_path, user_home=tmp_path)


def test_programs_are_looked_for_where_commands_cannot_make_any(tmp_path: Path) -> None:
    project, home = tmp_path / "home/project", tmp_path / "home"
    for folder in (project / "venv/bin", home / ".local/bin", home / "scripts"):
        folder.mkdir(parents=True)
    (tmp_path / "link").symlink_to(project / "venv")
    path = f"{project}/venv/bin:{tmp_path}/link/bin:.:bin::{home}/.local/bin:{home}/scripts:/usr/bin"
    found = search_path(path, [project], user_home=home)
    assert found == f"{home}/.local/bin:{home}/scripts:/usr/bin"
    at_home = search_path(path, [home], user_home=home)
    assert at_home == f"{home}/.local/bin:/usr/bin", "hidden folders of a home are read-only for commands"
