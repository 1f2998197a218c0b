"""The executor's types: a command, an opening in its sandbox, and the permit that binds the two."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from hermes_config.errors import HermesError

FILTER_FD, STATUS_FD = 8, 9
"""Descriptors from which bubblewrap reads the system-call filter, and to which it reports its status."""
BINDS = "--binds"
"""The placeholder in bubblewrap's command line for mounts whose sources are opened by descriptor."""

SandboxKind = Literal["bubblewrap", "landlock", "none", "host", "plugin"]
"""The sandbox around a command that nobody approved. `none`: no sandbox works on this machine, so every command asks.
`host`: the configuration says `executor: host`, so commands run without a sandbox. `plugin`: it names a plug-in's
executor."""


class ExecutorUnavailable(HermesError):
    """The configured executor cannot be used here."""


class CommandChanged(HermesError):
    """The command to run differs from the approved one."""


@dataclass(frozen=True, slots=True)
class SandboxOpening:
    """The access that a person granted to one command beyond its sandbox; by default none."""

    network: bool = False
    folders: tuple[str, ...] = ()
    """Absolute real paths of folders outside the workspace that become writable (and readable)."""
    host: bool = False
    """No sandbox at all; the two other fields are then ignored."""

    def __bool__(self) -> bool:
        return self.network or bool(self.folders) or self.host

    @property
    def shown(self) -> str:
        """The opening in words, for people and the log (`network`, `writes to /srv/x`, `outside the sandbox`)."""
        if self.host:
            return "outside the sandbox"
        parts = ["network"] if self.network else []
        if self.folders:
            parts.append(f"writes to {', '.join(self.folders)}")
        return " and ".join(parts)


CLOSED = SandboxOpening()


@dataclass(frozen=True, slots=True)
class ShellCommand:
    """The arguments, folder and environment of a child process."""

    argv: tuple[str, ...]
    workdir: Path
    """With a permit the real path: no link in it is followed."""
    environ: Mapping[str, str] = field(default_factory=dict)
    text: str = ""
    """The approved shell text, if any (then `argv` is the shell, -c and this text)."""


@dataclass(frozen=True, slots=True)
class Permit:
    """Permission to run exactly one command with an opening; the gate makes it, the executor checks it."""

    digest: str
    opening: SandboxOpening


class CommandRunner(ABC):
    """The base class of a plug-in's executor, which runs the terminal tool's commands in its own sandbox.

    It is used only if the owner's config.yaml says `executor: plugin:NAME`. The same gate precedes it as our own
    sandboxes: it gets a command if nothing in it needs a question, or if a person approved `opening`. So it must
    confine the command: no network, and no writing outside the workspace, except for the opening. A command that a
    person lets out of the sandbox altogether (`SandboxOpening.host`) runs on this machine instead."""

    said: str = "the executor of a plug-in"
    """A few words on where commands run, for people and the prompt."""

    @abstractmethod
    async def run(
        self,
        command: ShellCommand,
        *,
        workspace: Path,
        opening: SandboxOpening,
        on_output: Callable[[bytes], None],
    ) -> int:
        """Run a command to its end and return its exit status; negative for a signal. Output goes to `on_output`.

        If it is cancelled (an interruption, a time-out, too much output), it must end everything the command started
        before it returns. An exception is reported as a command that could not be run.
        """


def digest(text: str, workdir: str | Path, opening: SandboxOpening) -> str:
    """The hash of the executor's input: the command's bytes, its folder, and its opening."""
    exact = json.dumps([text, str(workdir), opening.network, list(opening.folders), opening.host])
    return hashlib.sha256(exact.encode("utf-8", "surrogatepass")).hexdigest()


def content_digest(path: str | Path, before: bytes | None, after: bytes | None) -> str:
    """The hash of one write: path, old and new content; None stands for no file."""
    parts: Sequence[bytes] = [b"-" if data is None else hashlib.sha256(data).digest() for data in (before, after)]
    exact = str(path).encode("utf-8", "surrogateescape")
    return hashlib.sha256(b"\0".join([hashlib.sha256(exact).digest(), *parts])).hexdigest()
