"""What config.yaml says of an MCP server: how it is reached, and what its confinement lets through.

A server that runs here is started by the executor, in the same sandbox as a command that nobody approved: no network,
no secrets, nothing writable but a folder of its own (`<home>/mcp/files/NAME`). `needs` in its settings opens more, and
the owner confirms it by name: `network`, a folder, `read:` and a folder, or `host` (no sandbox). Nothing opens by
itself."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_agent.execution import base
from hermes_agent.execution.base import Permit, SandboxOpening, ShellCommand
from hermes_agent.tools.environment import child_environment
from hermes_config.errors import HermesError

if TYPE_CHECKING:
    from hermes_config.config import Config
    from hermes_config.sections import McpServerSection

NETWORK, HOST, READ = "network", "host", "read:"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_SYSTEM = ("/bin", "/sbin")
_FETCHERS = {"npx", "bunx", "pnpx", "uvx", "pipx", "uv", "npm", "docker", "podman"}
"""Programs that fetch the server before they run it."""


class ServerUnusable(HermesError):
    """The settings of this MCP server cannot be used."""


@dataclass(frozen=True, slots=True)
class McpServer:
    """One entry of `mcp_servers`, with the configuration it stands in."""

    name: str
    settings: McpServerSection
    config: Config

    @property
    def folder(self) -> Path:
        """The server's own folder, the only one that it can write to without a need."""
        self.check_name()
        return Path(os.path.realpath(self.config.home / "mcp" / "files" / self.name))

    @property
    def reached(self) -> str:
        """The program or the host, for people; never arguments, variables or a password."""
        if self.settings.url:
            return re.sub(r"^(\w+://)(?:[^/@]*@)?([^/?#]*).*$", r"\1\2", self.settings.url, flags=re.DOTALL)[:60]
        return (self.settings.command or "?")[:60]

    @property
    def place(self) -> str:
        """Where it runs, and what confines it there, for the person who is asked about a call."""
        if self.settings.url:
            return f"it runs elsewhere, at {self.reached}: the arguments go there"
        if HOST in self.settings.needs or self.config.executor == HOST:
            which = "its needs name host" if HOST in self.settings.needs else "executor: host"
            return f"no sandbox ({which}): it runs with all your rights"
        return f"it runs confined; beyond its own folder it has {', '.join(self.settings.needs) or 'nothing'}"

    def check(self) -> None:
        """Raise `ServerUnusable` if the settings cannot be used."""
        self.check_name()
        if bool(self.settings.command) == bool(self.settings.url):
            raise self._unusable("it needs either a command or a url")
        if self.settings.url and not re.match(r"https?://[^/\s]", self.settings.url):
            raise self._unusable("its url must begin with https:// or http://")

    def check_name(self) -> None:
        """Raise `ServerUnusable` if the name cannot be the name of a file."""
        if not NAME.fullmatch(self.name):
            what = "its name may hold letters, digits, dashes and underscores, 40 at most"
            raise self._unusable(what, hint="Give it another name.")

    def values(self) -> tuple[Any, ...]:
        """All that a connection is made of, also the variables that the settings name: it changes when one does."""
        texts = (self.settings.url, *self.settings.headers.values(), *self.settings.env.values())
        named = {name for text in texts if text for name in _VARIABLE.findall(str(text))}
        return self.settings, self.config.home, {name: self.config.environ(name) for name in named}

    @property
    def mark(self) -> str:
        """Differs when the settings do: what was said of the server under others is out of date."""
        said = (self.settings, dict(self.settings.env), dict(self.settings.headers))
        return hashlib.sha256(repr(said).encode()).hexdigest()[:16]

    def url(self) -> str:
        return self._filled(self.settings.url or "")

    def headers(self) -> dict[str, str]:
        return {str(name): self._filled(value) for name, value in self.settings.headers.items()}

    def program(self) -> tuple[str, dict[str, str]]:
        """The path of its program, and its environment; raises `ServerUnusable` if there is none."""
        environ = child_environment(os.environ, passed=(), identity={}, home=self.config.home)
        del environ["HERMES_HOME"]
        environ |= {str(name): self._filled(value) for name, value in self.settings.env.items()}
        program = shutil.which(os.path.expanduser(self.settings.command or ""), path=environ.get("PATH"))  # noqa: PTH111
        if program is None:
            hint = "Install it, or name its whole path."
            raise self._unusable(f"there is no program {self.settings.command}", hint=hint)
        return program, environ

    def command(self) -> tuple[ShellCommand, Permit | None, tuple[Path, ...]]:
        """The command to start, the permit for what it needs, and the paths that it reads."""
        program, environ = self.program()
        text = f"exec {shlex.join([program, *self.settings.args])}"
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        command = ShellCommand((shutil.which("sh") or "/bin/sh", "-c", text), self.folder, environ, text)
        opening, reads = self.opening()
        permit = Permit(base.digest(text, self.folder, opening), opening) if opening else None
        return command, permit, (*reads, *_program_folders(Path(program), environ.get("PATH", ""), self.config.home))

    def opening(self) -> tuple[SandboxOpening, tuple[Path, ...]]:
        """What `needs` opens in the sandbox, and the folders to read."""
        folders: list[Path] = []
        reads: list[Path] = []
        for need in self.settings.needs:
            if need in (NETWORK, HOST):
                continue
            path = Path(need.removeprefix(READ)).expanduser()
            if not path.is_absolute():
                raise self._unusable(f"the need {need[:60]!r} is not known: network, host, /folder or read:/folder")
            (reads if need.startswith(READ) else folders).append(Path(os.path.realpath(path)))
        needs = self.settings.needs
        return SandboxOpening(NETWORK in needs, tuple(map(str, folders)), HOST in needs), tuple(reads)

    def _filled(self, value: Any) -> str:
        """A value with the variables it names."""

        def variable(match: re.Match[str]) -> str:
            if (found := self.config.environ(match[1])) is None:
                raise self._unusable(f"the variable {match[1]} is not set", hint=f"Add {match[1]}=… to .env.")
            return found

        return _VARIABLE.sub(variable, str(value))

    def _unusable(self, why: str, *, hint: str = "") -> ServerUnusable:
        return ServerUnusable(why, where=f"mcp_servers.{self.name}", hint=hint)


def configured(config: Config) -> dict[str, McpServer]:
    """The servers of a configuration by name, also those that are off."""
    return {name: McpServer(name, settings, config) for name, settings in config.mcp_servers.items()}


def proposed_needs(command: str, args: Sequence[str], env: Mapping[str, str]) -> dict[str, str]:
    """What a program will probably need, each with the reason; for the owner to confirm."""
    found: dict[str, str] = {}
    if Path(command).name in _FETCHERS:
        found[NETWORK] = f"{Path(command).name} fetches the server's program"
    for word in (*args, *env.values()):
        word = word.partition("=")[2] if word.startswith("-") and "=" in word else word
        path = Path(word).expanduser()
        if re.match(r"https?://", word):
            found.setdefault(NETWORK, "an argument is an address")
        elif path.is_absolute() and path.is_dir():
            found[str(path)] = "an argument names this folder"
        elif path.is_absolute() and path.is_file():
            found[f"{READ}{path.parent}"] = f"an argument names {path.name} in it"
    return found


def _program_folders(program: Path, search: str, home: Path) -> tuple[Path, ...]:
    """The folders that a program is installed in, but for those that every command sees: of the system, PATH, ours.

    Of a program that lies beside what Hermes keeps itself, such as other servers' logins, the file alone.
    """
    found, own = [], Path(os.path.realpath(home / "mcp" / "tokens"))
    for path in (program, Path(os.path.realpath(program))):
        seen = any(path.is_relative_to(one) for one in ("/usr", sys.prefix, sys.base_prefix))
        if seen or str(path.parent) in (*_SYSTEM, *search.split(os.pathsep)):
            continue
        prefix = path.parent.parent
        # ~/.local and the home itself hold far more than programs.
        whole = path.parent.name in ("bin", "Scripts") and prefix.name != ".local" and prefix != Path.home()
        folders = [prefix, path.parent] if whole else [path.parent]
        found.append(next((one for one in folders if not own.is_relative_to(os.path.realpath(one))), path))
    return tuple(dict.fromkeys(one for one in found if one not in (one.parent, Path.home())))
