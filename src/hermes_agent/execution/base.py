"""The words of the executor: a command, the opening a person made in its wall, and the permit that binds the two."""

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
"""Where bubblewrap finds the system-call filter, and where it says how it went."""
BINDS = "--binds"
"""Where in a command line of bubblewrap the mounts go whose sources are opened by descriptor."""

Wall = Literal["bubblewrap", "landlock", "none", "host", "plugin"]
"""What holds a command that nobody approved. `none`: no wall works on this machine, so every command asks. `host`: the
owner's configuration says `executor: host`, so commands run without a wall. `plugin`: it names a plug-in's executor."""


class ExecutorUnavailable(HermesError):
    """The configured executor cannot be used here."""


class CommandChanged(HermesError):
    """What would run is not what was approved."""


@dataclass(frozen=True, slots=True)
class WallOpening:
    """What a person opened in the wall for one command; the default is nothing."""

    network: bool = False
    folders: tuple[str, ...] = ()
    """Absolute real paths of folders outside the workspace that become writable (and readable)."""
    host: bool = False
    """No wall at all. The two other fields mean nothing then."""

    def __bool__(self) -> bool:
        return self.network or bool(self.folders) or self.host

    @property
    def shown(self) -> str:
        """For a person and the log: `network`, `writes to /srv/x`, `outside the wall`; empty for nothing."""
        if self.host:
            return "outside the wall"
        parts = ["network"] if self.network else []
        if self.folders:
            parts.append(f"writes to {', '.join(self.folders)}")
        return " and ".join(parts)


CLOSED = WallOpening()


@dataclass(frozen=True, slots=True)
class ShellCommand:
    """What a child process is made of."""

    argv: tuple[str, ...]
    workdir: Path
    environ: Mapping[str, str] = field(default_factory=dict)
    text: str = ""
    """The shell text that a person approved, when there is one (then `argv` is the shell, -c and this text)."""


@dataclass(frozen=True, slots=True)
class Permit:
    """Permission to run exactly one command with an opening; made by the gate, checked by the executor."""

    digest: str
    opening: WallOpening


class CommandRunner(ABC):
    """What a plug-in's executor is: it runs the commands of the terminal tool in a place of its own.

    It is used only where the owner's config.yaml says `executor: plugin:NAME`. It stands behind the same gate as our
    own walls: a command comes here when nothing in it needs a question, or when a person said yes to `opening`. So the
    place must hold what it is given: no network, and no writing outside the workspace, but for what is open. A command
    that a person lets out of the wall altogether (`WallOpening.host`) does not come here; it runs on this machine.
    """

    said: str = "the executor of a plug-in"
    """Where commands run, for people and in the prompt, in a few words."""

    @abstractmethod
    async def run(
        self,
        command: ShellCommand,
        *,
        workspace: Path,
        opening: WallOpening,
        on_output: Callable[[bytes], None],
    ) -> int:
        """Run a command to its end and return its exit status; negative for a signal. Output goes to `on_output`.

        When it is cancelled (an interruption, a time-out, too much output) everything the command started has ended
        when this returns. An exception is reported as a command that could not be run.
        """


def digest(text: str, workdir: str | Path, opening: WallOpening) -> str:
    """The hash of what the executor is given: the bytes of the command, its folder, and what is open for it."""
    exact = json.dumps([text, str(workdir), opening.network, list(opening.folders), opening.host])
    return hashlib.sha256(exact.encode("utf-8", "surrogatepass")).hexdigest()


def content_digest(path: str | Path, before: bytes | None, after: bytes | None) -> str:
    """The hash of one write: the place, the old content and the new one; None stands for no file."""
    parts: Sequence[bytes] = [b"-" if data is None else hashlib.sha256(data).digest() for data in (before, after)]
    exact = str(path).encode("utf-8", "surrogateescape")
    return hashlib.sha256(b"\0".join([hashlib.sha256(exact).digest(), *parts])).hexdigest()
