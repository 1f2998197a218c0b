"""Skills from elsewhere: a folder, or a pinned commit of a git repository, as the files that would be installed.

Git runs with the network and nothing else, in a temporary folder: no hooks, no filters, no submodules, no prompts. Only
a whole commit id is accepted, because a branch or tag may name something else tomorrow. Files that are not text, too
large, or links are left out and named.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_agent.execution import supervisor
from hermes_agent.knowledge import skills
from hermes_config.errors import HermesError

if TYPE_CHECKING:
    from hermes_config.config import Config

_GIT = re.compile(
    r"(?P<url>(?:https|ssh|file|git)://[^\s@]*(?:@[^\s@]+)?|[\w.-]+@[\w.-]+:[^\s@]+)@(?P<commit>[0-9a-f]{40})"
)
_SECONDS = 120.0
_OUTPUT_BYTES = 1_000_000
_FILES = 200
_SAFE = (
    "core.hooksPath=/dev/null", "core.fsmonitor=false", "protocol.allow=never", "protocol.https.allow=always",
    "protocol.ssh.allow=always", "protocol.file.allow=always", "submodule.recurse=false",
)  # fmt: skip


class SkillSourceError(HermesError):
    """The skill cannot be taken from there."""


@dataclass(frozen=True, slots=True)
class FoundSkill:
    name: str
    """The name of its folder here."""
    files: dict[str, str]
    """Text by path inside the skill."""
    left_out: tuple[str, ...]


@contextmanager
def opened(source: str, config: Config, *, within: str = "") -> Iterator[list[FoundSkill]]:
    """The skills of a folder, or of `URL@COMMIT`. `within`: a folder of the repository. Raises `SkillSourceError`."""
    pinned = _GIT.fullmatch(source)
    if pinned is None and re.search("@[0-9a-f]{40}$", source):
        hint = "Use https://…@COMMIT, ssh://…@COMMIT, or file:///…@COMMIT for a repository on this machine."
        raise SkillSourceError(f"{source[:100]} is not an address that git may fetch from here", hint=hint)
    if pinned is None and ("://" in source or source.endswith(".git")):
        hint = "Name the commit: URL@COMMIT, with all its 40 digits."
        raise SkillSourceError(f"{source[:100]} is not pinned to a commit", hint=hint)
    folder = Path(os.path.realpath(tempfile.mkdtemp(prefix="hermes-skill-")))
    try:
        root = (
            Path(source).expanduser() if pinned is None else _fetched(pinned["url"], pinned["commit"], folder, config)
        )
        start = (root / within).resolve()
        if not start.is_dir() or not start.is_relative_to(root.resolve()):
            raise SkillSourceError(f"there is no folder {within or source}"[:120])
        yield _skills_in(start, config)
    finally:
        with suppress(OSError):
            supervisor.remove_folder(str(folder))


def _fetched(url: str, commit: str, folder: Path, config: Config) -> Path:
    git = shutil.which("git")
    if git is None:
        raise SkillSourceError("git is not installed")
    reads = (Path(url.removeprefix("file://")),) if url.startswith("file:///") else ()
    safe = [word for setting in _SAFE for word in ("-c", setting)]
    steps = (
        ("init", "--quiet", "--template=", "."), ("fetch", "--quiet", "--depth=1", "--no-tags", "--", url, commit),
        ("checkout", "--quiet", "--detach", commit),
    )  # fmt: skip
    for step in steps:
        if step[0] == "checkout":  # this file counts above the repository's own .gitattributes
            (folder / ".git" / "info").mkdir(exist_ok=True)
            (folder / ".git" / "info" / "attributes").write_text("* -filter -ident -text -working-tree-encoding\n")
        said = _run((git, *safe, *step), folder, config, reads=reads)
        if said is not None:
            last = " ".join(said.split())[-200:]
            hint = "Is the address right, and does it have this commit? For a private one, name a clone."
            raise SkillSourceError(f"git {step[0]} failed: {last or 'no answer in time'}", hint=hint)
    shutil.rmtree(folder / ".git", ignore_errors=True)
    return folder


def _run(argv: tuple[str, ...], folder: Path, config: Config, *, reads: tuple[Path, ...]) -> str | None:
    """What a git command said when it failed, else None. The owner typed the address, so git has the network."""
    import asyncio

    from hermes_agent.execution import executor
    from hermes_agent.execution.base import Permit, SandboxOpening, ShellCommand, digest
    from hermes_agent.tools.environment import child_environment

    opening = SandboxOpening(network=True, folders=())
    environ = child_environment(os.environ, passed=(), identity={}, home=config.home)
    text, shell = shlex.join(argv), executor.shell()
    if shell is None:
        raise SkillSourceError("there is no shell here")
    command = ShellCommand(
        (shell, "-c", text), folder, {**environ, "GIT_TERMINAL_PROMPT": "0", "GIT_ASKPASS": "true"}, text
    )
    run = executor.Executor(config.home, config, config.limits)
    permit = Permit(digest(text, folder, opening), opening)
    ran = asyncio.run(
        run.collect(command, workspace=folder, seconds=_SECONDS, most=_OUTPUT_BYTES, permit=permit, reads=reads)
    )
    return None if ran.status == 0 else ran.data.decode("utf-8", "replace")


def _skills_in(root: Path, config: Config) -> list[FoundSkill]:
    """The skill in a folder, or those in the folders directly in it."""
    if (root / skills.MAIN).is_file():
        return [_skill(root, config)]
    folders = [one for one in sorted(root.iterdir()) if not one.is_symlink()]  # a link may lead out of it
    found = [_skill(one, config) for one in folders if (one / skills.MAIN).is_file()]
    if not found:
        raise SkillSourceError(f"there is no {skills.MAIN} in it, and none in a folder directly in it")
    return found


def _skill(folder: Path, config: Config) -> FoundSkill:
    files: dict[str, str] = {}
    left_out: list[str] = []
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(one for one in folders if not one.startswith(".") and one != "__pycache__")
        for name in sorted(names):
            path = Path(parent) / name
            inside = path.relative_to(folder).as_posix()
            text = None if name.startswith(".") or len(files) == _FILES else _text(path, config.limits.skill_file_bytes)
            if text is None:
                left_out.append(inside)
            else:
                files[inside] = text
    main = files.get(skills.MAIN)
    if main is None or (wrong := skills.problem_of(main)):
        raise SkillSourceError(f"{folder.name}/{skills.MAIN}: {'it is not text' if main is None else wrong}")
    return FoundSkill(folder.name, files, tuple(left_out))


def _text(path: Path, most: int) -> str | None:
    status = path.lstat()
    if not stat.S_ISREG(status.st_mode) or status.st_size > most:
        return None
    data = path.read_bytes()
    try:
        return None if b"\0" in data else data.decode()
    except UnicodeDecodeError:
        return None
