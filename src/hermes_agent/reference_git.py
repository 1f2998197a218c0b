"""What `@diff`, `@staged` and `@git:3` stand for: changes that are not staged, those that are, the last three commits.

Git is asked in the person's working folder, for what lies in and below it. Files that may hold secrets are left out, as
they are when they are named themselves, and a last line says how many. Nothing that a repository's settings name is
run: no pager, differ, text conversion, filter, monitor, hook or signature check, no git in a submodule, and nothing
that would fetch missing objects. Neither a huge change nor a Git that hangs can keep the message: both are refused.
"""

from __future__ import annotations

import re
import shutil
from typing import NamedTuple

from hermes_agent.execution.base import Command
from hermes_agent.execution.executor import Executor
from hermes_agent.tools import paths
from hermes_agent.tools.environment import child_environment

WORDS = ("diff", "staged", "git:1")
_SECONDS = 10.0
_MOST_COMMITS = 10
_LIST_BYTES = 1_000_000
# A submodule is told by its commit alone: to look at its files, git starts itself there, with that one's settings.
_PLAIN = (
    "--no-ext-diff", "--no-textconv", "--no-color", "--relative", "--ignore-submodules=dirty", "--submodule=short",
    "--no-renames",
)  # fmt: skip
_SAFE = (
    "core.fsmonitor=false", "core.hooksPath=/dev/null", "core.attributesFile=/dev/null", "core.quotePath=false",
    "log.showSignature=false", "protocol.allow=never", "safe.bareRepository=explicit",
)  # fmt: skip
_SAFE_ENVIRON = {"GIT_OPTIONAL_LOCKS": "0", "GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none"}


class _Question(NamedTuple):
    command: tuple[str, ...]
    names: tuple[str, ...]
    """Further flags that make it name the files instead."""


def asked(word: str) -> bool:
    """Whether the word stands for something that Git is asked for."""
    return word in ("diff", "staged") or re.fullmatch(r"git:\d{1,4}", word) is not None


def text(word: str, desk: paths.Surroundings, *, most: int) -> str:
    """What Git says; raises `paths.Refused`. Blocks on a process."""
    question = _question(word)
    safe = _without_filters(desk)
    listed = _git((*safe, *question.command, *question.names, "-z", "--", "."), desk, most=_LIST_BYTES)
    names = dict.fromkeys(name.strip("\n") for name in listed.split("\0") if name.strip("\n"))
    hidden = [name for name in names if paths.is_private(paths.locate(f"./{name}", desk), desk)]
    left_out = [f":(exclude,literal){name}" for name in hidden]
    said = _git((*safe, *question.command, "--", ".", *left_out), desk, most=most)
    if hidden:
        files = (
            "1 file that may hold secrets is" if len(hidden) == 1 else f"{len(hidden)} files that may hold secrets are"
        )
        said = f"{said}[{files} left out]\n"
    return said


def _question(word: str) -> _Question:
    if word.startswith("git:"):
        count = int(word.removeprefix("git:"))
        if not 1 <= count <= _MOST_COMMITS:
            raise paths.Refused(f"@{word}: from 1 to {_MOST_COMMITS} commits go along")
        return _Question(("log", f"--max-count={count}", "--patch", *_PLAIN), ("--name-only", "--format="))
    staged = ("--staged",) if word == "staged" else ()
    return _Question(("diff", *staged, *_PLAIN), ("--name-only",))


def _without_filters(desk: paths.Surroundings) -> tuple[str, ...]:
    """Options that empty every filter there is: git runs them when it compares files with what is committed."""
    listed = _git(("config", "-z", "--name-only", "--get-regexp", r"^filter\."), desk, most=_LIST_BYTES, none=1)
    names = dict.fromkeys(key.removeprefix("filter.").rpartition(".")[0] for key in listed.split("\0") if key)
    if any("=" in name or "\n" in name for name in names):
        raise paths.Refused("this repository has a filter that cannot be switched off", hint="Look at its .git/config.")
    emptied = [f"filter.{name}.{key}" for name in names for key in ("clean=", "smudge=", "process=", "required=false")]
    return tuple(word for setting in emptied for word in ("-c", setting))


def _git(arguments: tuple[str, ...], desk: paths.Surroundings, *, most: int, none: int = 0) -> str:
    """What git prints; `none` is a status that says that there is nothing, and is no failure."""
    environment = child_environment(desk.environ, config={}, identity={}, home=desk.home) | _SAFE_ENVIRON
    safe = [word for setting in _SAFE for word in ("-c", setting)]
    git = shutil.which("git", path=environment.get("PATH"))
    if git is None:
        raise paths.Refused("git cannot be run: it is not installed")
    run = Executor(desk.home, desk.config, desk.db.limits)
    command = Command((git, *safe, "--no-pager", *arguments), desk.workdir, environment)
    status, said = run.output(command, workspace=desk.workdir, seconds=_SECONDS, most=most)
    if status is None:
        raise paths.Refused(f"git did not answer within {_SECONDS:.0f} seconds")
    if len(said) > most:
        raise paths.Refused(
            f"what git shows is too long to go along: there is room for {max(most, 0):,} characters",
            hint="Name the files that matter, or ask for it in words, without the @.",
        )
    if status not in (0, none):
        # Asked again for its errors, which would only disturb what it says otherwise.
        _, trouble = run.output(command, workspace=desk.workdir, seconds=_SECONDS, most=10_000, with_errors=True)
        said_of = _said_of(trouble.decode("utf-8", "replace").strip())
        raise paths.Refused(said_of, hint="To speak of it only, write it without the @.")
    return said.decode("utf-8", "replace")


def _said_of(trouble: str) -> str:
    if "not a git repository" in trouble.lower():
        return "this folder is in no Git repository"
    if "does not have any commits yet" in trouble:
        return "there is no commit yet"
    return f"git: {trouble.splitlines()[0][:200] if trouble else 'it failed without a word'}"
