"""What `@diff`, `@staged` and `@git:3` stand for: changes that are not staged, those that are, the last three commits.

Git is asked in the person's working folder, for what lies in and below it. Files that may hold secrets are left out, as
they are when they are named themselves, and a last line says how many. Nothing that a repository's settings name is run
(a pager, a differ of its own), and neither a huge change nor a Git that hangs can keep the message: both are refused.
"""

from __future__ import annotations

import re
import subprocess
import threading
from typing import NamedTuple

from hermes_agent.tools import paths
from hermes_agent.tools.environment import child_environment

WORDS = ("diff", "staged", "git:1")
_SECONDS = 10.0
_MOST_COMMITS = 10
_LIST_BYTES = 1_000_000
_PLAIN = ("--no-ext-diff", "--no-textconv", "--no-color", "--relative")


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
    listed = _git((*question.command, *question.names, "-z", "--", "."), desk, most=_LIST_BYTES)
    names = dict.fromkeys(name.strip("\n") for name in listed.split("\0") if name.strip("\n"))
    hidden = [name for name in names if paths.is_private(paths.locate(f"./{name}", desk), desk)]
    left_out = [f":(exclude,literal){name}" for name in hidden]
    said = _git((*question.command, "--", ".", *left_out), desk, most=most)
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


def _git(arguments: tuple[str, ...], desk: paths.Surroundings, *, most: int) -> str:
    environment = child_environment(desk.environ, config={}, identity={}, home=desk.home)
    environment["GIT_OPTIONAL_LOCKS"] = "0"
    command = ["git", "-c", "core.fsmonitor=false", "-c", "core.quotePath=false", "--no-pager", *arguments]
    try:
        asking = subprocess.Popen(
            command, cwd=desk.workdir, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )  # fmt: skip
    except OSError as error:
        raise paths.Refused(f"git cannot be run: {error.strerror}") from error
    late = threading.Timer(_SECONDS, asking.kill)
    late.start()
    with asking:
        assert asking.stdout is not None and asking.stderr is not None
        said = asking.stdout.read(most + 1)
        if len(said) > most:
            asking.kill()
        trouble = asking.stderr.read(10_000).decode("utf-8", "replace").strip()
    in_time = late.is_alive()
    late.cancel()
    if not in_time:
        raise paths.Refused(f"git did not answer within {_SECONDS:.0f} seconds")
    if len(said) > most:
        raise paths.Refused(
            f"what git shows is too long to go along: there is room for {max(most, 0):,} characters",
            hint="Name the files that matter, or ask for it in words, without the @.",
        )
    if asking.returncode:
        raise paths.Refused(_said_of(trouble), hint="To speak of it only, write it without the @.")
    return said.decode("utf-8", "replace")


def _said_of(trouble: str) -> str:
    if "not a git repository" in trouble.lower():
        return "this folder is in no Git repository"
    if "does not have any commits yet" in trouble:
        return "there is no commit yet"
    return f"git: {trouble.splitlines()[0][:200] if trouble else 'it failed without a word'}"
