"""Protected files: files that other programs run as soon as a folder is opened.

Git, editors, shell prompts and other agents run such files, and Hermes runs its own program. A confined command may
read them but not change them; a file tool asks before it writes one. Files that a person runs on purpose (a Makefile,
package.json, conftest.py, a virtual environment) are part of the project and not protected, because an agent must be
able to change them. Files that a command creates itself are not protected either, only those that exist when it starts.
`secret_files.found_in` lists the protected files of a workspace together with its secrets, in one walk.
"""

# Strings and not paths: this runs before every command, and pathlib would take most of the time.
# ruff: noqa: PTH110, PTH117, PTH118, PTH120

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

PROTECTED_FOLDERS: frozenset[str] = frozenset({
    ".vscode", ".idea", ".fleet", ".zed", ".devcontainer", ".husky", ".claude", ".cursor", ".codex", ".gemini",
    ".hermes", ".qwen", ".kiro", ".opencode", ".roo", ".helix", ".theia", ".vs", ".nova", ".windsurf", ".continue",
    ".amazonq", ".augment", ".junie", ".trae", ".kilocode", ".factory", ".mise",
})  # fmt: skip
"""Settings folders of editors and agents, with tasks, hooks, servers and plug-ins that start when a folder is opened.
The whole folder is protected, because a new file does the same harm as a changed one."""

PROTECTED_FILES: frozenset[str] = frozenset({
    "opencode.json", "lefthook.yaml", "lefthook-local.yml", ".mise.local.toml", ".dir-locals.el", ".aider.conf.yml",
    ".envrc", ".npmrc", ".yarnrc", ".yarnrc.yml", ".pnpmfile.cjs", ".mcp.json", ".devcontainer.json", ".mise.toml",
    "mise.toml", ".pre-commit-config.yaml", "lefthook.yml", ".lefthook.yml", ".exrc", ".vimrc", ".nvimrc", ".nvim.lua",
    ".lvimrc", ".gdbinit", ".lldbinit", ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases",
    ".profile", ".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".kshrc", ".cshrc", ".tcshrc", ".inputrc",
    ".gitconfig", ".tmux.conf", ".screenrc", ".pythonrc.py", "authorized_keys", "hgrc", "opencode.jsonc", "crush.json",
    ".crush.json", ".dir-locals-2.el", "mise.local.toml", ".pnpmfile.mjs", ".lazy.lua", ".lite_project.lua",
    ".ycm_extra_conf.py", ".rvmrc", ".autoenv", ".autoenv.zsh", ".gdbearlyinit", ".irbrc", ".pryrc", ".Rprofile",
    ".ghci", ".ocamlinit", ".iex.exs", ".octaverc", ".Renviron", ".RData", ".pdbrc",
})  # fmt: skip

GIT_FILES = ("config", "config.worktree", "hooks", "commondir")
GIT_MARKS = frozenset({"HEAD", "objects", "refs"})
WORKTREE_MARKS = frozenset({"HEAD", "commondir"})
"""Of the git folder of a linked worktree; `commondir` names the git folder whose settings it obeys."""
_WRITABLE_IN_HOME = frozenset({".cache"})


def own_program(folders: Iterable[Path]) -> list[Path]:
    """The folders of Hermes' own program that lie below one of these: its source code and its Python environment.

    Hermes runs outside the sandbox and loads modules at any time, so that a changed one would let a command out.
    """
    within = tuple(f"{folder}/" for folder in folders)
    return [Path(place) for place in _own_program() if place.startswith(within)]


@lru_cache(maxsize=1)
def _own_program() -> tuple[str, ...]:
    source = os.path.dirname(os.path.dirname(__file__))
    return tuple(dict.fromkeys(map(os.path.realpath, (source, sys.prefix))))


def is_protected(path: Path, workspace: Path, *, user_home: Path | None = None) -> bool:
    """Whether a file of the workspace is protected, by its name.

    All of a `.git` is, because only git changes it, and so is every `HEAD`, which makes a folder a git folder. If the
    workspace is the person's home, so are all hidden files in it, and `bin`.
    """
    if not path.is_relative_to(workspace):
        return False
    parts = path.relative_to(workspace).parts
    if not parts:
        return False
    in_home = user_home is not None and workspace in (user_home, Path(os.path.realpath(user_home)))
    if in_home and is_protected_at_home(parts[0]):
        return True
    if any(path.is_relative_to(own) for own in own_program([workspace])):
        return True
    if parts[-1] in {"HEAD", *PROTECTED_FILES} or not PROTECTED_FOLDERS.isdisjoint(parts) or ".git" in parts:
        return True
    folders = [workspace.joinpath(*parts[:-1]), *([workspace.joinpath(*parts[:-2])] if len(parts) > 1 else [])]
    names = (parts[-1], parts[-2] if len(parts) > 1 else "")
    return any(name in GIT_FILES and _is_git_folder(folder) for folder, name in zip(folders, names, strict=False))


def search_path(path: str, writable: Iterable[Path], *, user_home: Path) -> str:
    """A `PATH` without relative folders, and without those in which a command can make programs.

    Hermes looks there for programs that see more than a command does: its own, and those of a command that a person let
    out of the sandbox, who read `git` and did not mean a file of that name in a project's virtual environment.
    """
    roots = [Path(os.path.realpath(folder)) for folder in writable]

    def is_fixed(folder: str) -> bool:
        inside = Path(os.path.realpath(folder)) / "program"
        within = [root for root in roots if inside.is_relative_to(root)]
        return os.path.isabs(folder) and all(is_protected(inside, root, user_home=user_home) for root in within)

    return os.pathsep.join(filter(is_fixed, path.split(os.pathsep)))


def is_protected_at_home(name: str) -> bool:
    return name == "bin" or (name.startswith(".") and name not in _WRITABLE_IN_HOME)


def _is_git_folder(folder: Path) -> bool:
    return all(os.path.lexists(folder / mark) for mark in GIT_MARKS)


_HOOKS_PATH = re.compile(r"^\s*hookspath\s*=\s*\"?([^\"\n#;]+)", re.IGNORECASE | re.MULTILINE)
_INCLUDED = re.compile(r"^\s*path\s*=\s*\"?([^\"\n#;]+)", re.IGNORECASE | re.MULTILINE)


def plain_content(path: str | Path, most: int) -> bytes | None:
    """The beginning of a plain file; None for anything else. A command may have put a pipe there, which never ends."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(handle, "rb", buffering=0) as file:
        return (file.read(most) or b"") if stat.S_ISREG(os.fstat(handle).st_mode) else None


def git_files(folder: str, roots: Iterable[str], user_home: str) -> list[str]:
    """The files that git runs or reads settings from: its own, and those below `roots` that settings name.

    The person's own settings count too: they may name hooks by a path relative to each repository.
    """
    found = [f"{folder}/{name}" for name in GIT_FILES if os.path.lexists(f"{folder}/{name}")]
    top = folder.rpartition("/")[0] if folder.endswith("/.git") else folder
    within = tuple(f"{root}/" for root in roots)
    for file in (f"{folder}/config", f"{user_home}/.gitconfig", f"{user_home}/.config/git/config"):
        settings = (plain_content(file, 100_000) or b"").decode("utf-8", "replace")
        named = [(top, path) for path in _HOOKS_PATH.findall(settings)]
        named += [(file.rpartition("/")[0], path) for path in _INCLUDED.findall(settings)]
        for base, name in named:
            name = re.sub("^~(?=/)", lambda _: user_home, name.strip())
            path = os.path.realpath(os.path.join(base, name))
            if path.startswith(within) and os.path.exists(path) and not folder.startswith(f"{path}/"):
                found.append(path)
    return found
