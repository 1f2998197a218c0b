"""The executor: starts every child process that Hermes runs for an agent, inside the machine's sandbox.

`executor:` in config.yaml chooses the sandbox: `confined` (the default) uses bubblewrap if it works, else Landlock,
else none, and then a person must approve every command; `bubblewrap` or `landlock` require that one; `host` runs
commands without a sandbox; `plugin:NAME` passes them to a plug-in's `CommandRunner`, which only the owner can name. The
sandbox is determined once in a process. If it breaks later, commands fail: nothing ever falls back to the host. A
command runs outside the sandbox, or with an opening in it, only with a permit for exactly this command."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hermes_agent.execution import base, bubblewrap, landlock, seccomp
from hermes_agent.execution.base import (
    CLOSED,
    CommandChanged,
    CommandRunner,
    ExecutorUnavailable,
    Permit,
    SandboxKind,
    SandboxOpening,
    ShellCommand,
)
from hermes_agent.execution.process import ChildProcess, PluginProcess
from hermes_agent.execution.protection import (
    Protection,
    WatchScope,
    WorkspaceWatch,
    files_in,
    kept_watches,
    protection_of_background,
)
from hermes_agent.execution.view import FilesystemView, too_wide, view
from hermes_agent.tools import descriptors
from hermes_cli import plugins
from hermes_cli.plugins import PluginExecutor
from hermes_config import protected_files, secret_files, version
from hermes_config.limits import Limits
from hermes_config.sections import EXECUTORS, PLUGIN

if TYPE_CHECKING:
    from hermes_config.config import Config


_DROPPED = frozenset({"XDG_RUNTIME_DIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"})
_PROXIES = frozenset({"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy"})


_DRAIN_SECONDS = 5.0
_RESERVED_PART = 32
"""A command that leaves less than this part of the machine's memory, and took most of the rest, is ended."""
_DEEPEST = 100
"""Folders within each other that a command sees: the sandbox has a mount for each folder around a secret."""
_LEAST_ENTRIES = 10_000
"""A command that leaves fewer free entries on the disk is ended, as for the bytes of `command_disk_reserve_bytes`."""


class CommandOutput(NamedTuple):
    """What `Executor.collect` found."""

    status: int | None
    """The exit status; None if the command was ended."""
    data: bytes
    cut: bool
    """Whether it printed too much, and was ended for that."""
    trouble: str
    """The limit that ended it, or the failure to build its sandbox."""


@dataclass(frozen=True, slots=True)
class ExecutorChoice:
    """The sandbox of this machine, and the bubblewrap that builds it."""

    sandbox: SandboxKind
    program: str = ""
    way: tuple[str, ...] = ()
    why: str = ""
    """If the sandbox is not the best one: why the better one does not work."""
    runner: CommandRunner | None = None
    """For `plugin`: the runner of commands."""

    @property
    def advice(self) -> str:
        """How to get a better sandbox."""
        if "not installed" in self.why:
            return f"Install bubblewrap: apt install bubblewrap, or {version.adding(extra='sandbox')}"
        if "keeps bubblewrap" in self.why:
            return (
                "In a container that is as good as it gets; on Ubuntu 24.04 let programs make user namespaces:"
                " sysctl -w kernel.apparmor_restrict_unprivileged_userns=0."
            )
        return ""

    @property
    def said(self) -> str:
        """The sandbox in a few words, for a person."""
        if self.runner is not None:
            return self.runner.said
        return {"none": "no sandbox: every command asks", "host": "no sandbox: executor is host"}.get(
            self.sandbox, self.sandbox
        )


def chosen(config: Config) -> str:
    """The setting `executor:`. Raises for an unknown value."""
    if (unfit := config.problem("executor")) is not None:
        raise ExecutorUnavailable(
            f"executor {str(unfit.value.raw)[:40]!r} in config.yaml is not supported",
            hint=f"Use one of {', '.join(EXECUTORS)}, or {PLUGIN}NAME for one of a plug-in.",
        )
    return config.executor


@lru_cache(maxsize=8)
def find(setting: str) -> ExecutorChoice:
    """Find the sandbox for a setting by trying it. Raises `ExecutorUnavailable` if the required one fails."""
    if setting == "host":
        return ExecutorChoice("host")
    if sys.platform != "linux" or not seccomp.supported(os.uname().machine):
        why = "there is no sandbox for this system yet"
        if setting != "confined":
            raise ExecutorUnavailable(f"executor: {setting} cannot be used: {why}", hint="Use `executor: confined`.")
        return ExecutorChoice("none", why=why)
    programs = bubblewrap.programs() if setting != "landlock" else []
    for program in programs:
        way = bubblewrap.probe(program)
        if way is not None:
            return ExecutorChoice("bubblewrap", program, way)
    why = "bubblewrap is not installed" if not programs else "the kernel or the container keeps bubblewrap from working"
    if setting == "bubblewrap":
        raise ExecutorUnavailable(
            f"executor: bubblewrap cannot be used: {why}", hint=ExecutorChoice("none", why=why).advice
        )
    version = landlock.version()
    if version >= landlock.NEEDED:
        return ExecutorChoice("landlock", why="config.yaml asks for it" if setting == "landlock" else why)
    why += f"; the kernel's Landlock has version {version}, and {landlock.NEEDED} is needed"
    if setting == "landlock":
        raise ExecutorUnavailable(f"executor: landlock cannot be used: {why}", hint="Use `executor: confined`.")
    return ExecutorChoice("none", why=why)


def sandbox_of(config: Config) -> ExecutorChoice:
    """The sandbox of this configuration; raises if it cannot be used. Entry points call this at their start."""
    setting = chosen(config)
    return _of_plugin(setting.removeprefix(PLUGIN), config) if setting.startswith(PLUGIN) else find(setting)


_runners: dict[tuple[PluginExecutor, Path], CommandRunner] = {}


def _of_plugin(name: str, config: Config) -> ExecutorChoice:
    """The plug-in's executor that the owner named; there is no fallback."""
    row = plugins.get_executors().get(name)
    if row is None:
        plugins.discover_plugins()  # not every command has loaded them
        row = plugins.get_executors().get(name)
    if row is None:
        raise ExecutorUnavailable(
            f"executor: {PLUGIN}{name} cannot be used: no loaded plug-in provides it",
            hint="hermes plugins list says what is loaded, and why the others are not.",
        )
    key = (row, config.home)
    if key not in _runners:
        try:
            made = row.make(config)
            if not isinstance(made, CommandRunner):
                raise TypeError(f"{type(made).__name__} is not a CommandRunner")
        except Exception as error:  # boundary: a plug-in
            plugins.complain(error, plugin=row.plugin, action="executor_failed")
            said = f"executor: {PLUGIN}{name} cannot be used: {plugins.execution.said(error)}"
            raise ExecutorUnavailable(said, hint="hermes plugins list names the plug-in.") from error
        _runners.clear()
        _runners[key] = made
    return ExecutorChoice("plugin", runner=_runners[key])


@dataclass(frozen=True, slots=True)
class Executor:
    """Starts commands for one home and configuration."""

    home: Path
    config: Config
    limits: Limits

    @property
    def sandbox(self) -> SandboxKind:
        return sandbox_of(self.config).sandbox

    @asynccontextmanager
    async def run(
        self,
        command: ShellCommand,
        *,
        workspace: Path,
        on_output: Callable[[bytes], None],
        permit: Permit | None = None,
        grace: float = 1.0,
        with_errors: bool = True,
        ours: bool = False,
        reads: tuple[Path, ...] = (),
        streams: tuple[int, int] | None = None,
    ) -> AsyncIterator[ChildProcess | PluginProcess]:
        """Start a command. After the block, none of its processes runs, and `undone` lists the restored files.

        `ours`: a fixed program of Hermes, not a model's text. It also runs if no sandbox works, and sees hidden files,
        so the caller must remove secrets from its output. `reads`: further paths that it reads. `streams`: descriptors
        for its input and its output; `on_output` gets only what it writes to its errors then."""
        runner = sandbox_of(self.config).runner
        if runner is not None and streams is not None and not (permit is not None and permit.opening.host):
            raise ExecutorUnavailable("the plug-in's executor cannot run a program that needs input")
        if runner is not None and not ours and not (permit is not None and permit.opening.host):
            opening = await asyncio.to_thread(_opening_in, workspace, command, permit)
            running = PluginProcess(runner.run(command, workspace=workspace, opening=opening, on_output=on_output))
            try:
                yield running
            finally:
                await _finish_despite_cancel(running.end())
            return
        prepared = await asyncio.to_thread(
            self.prepare, command, workspace=workspace, permit=permit, ours=ours, reads=reads
        )
        request = {**prepared.request, "grace": grace, "with_errors": with_errors}
        try:
            folder = await asyncio.to_thread(self.working_folder, command, permit)
            try:
                child = ChildProcess(request, folder=folder, on_output=on_output, streams=streams)
            finally:
                os.close(folder)
        except BaseException:
            await _finish_despite_cancel(asyncio.to_thread(prepared.undo))
            raise
        try:
            yield child
        finally:
            await _finish_despite_cancel(_finish(child, prepared))

    async def collect(
        self, command: ShellCommand, *, workspace: Path, seconds: float, most: int, **options: Any
    ) -> CommandOutput:
        """Run a command to its end, or until it has printed more than `most` bytes. `options`: those of `run`."""
        out, full = bytearray(), asyncio.Event()

        def take(data: bytes) -> None:
            out.extend(data)
            if len(out) > most:
                full.set()

        async with self.run(command, workspace=workspace, on_output=take, **options) as child:
            status = await child.ended(seconds, full)
            if status is not None and not full.is_set():
                await child.drained(min(seconds, _DRAIN_SECONDS))
        return CommandOutput(status, bytes(out), full.is_set(), child.trouble)

    def explanation(self, workspace: Path) -> str:
        """One line for a model whose confined command failed: the sandbox, and what it hides and forbids."""
        found = sandbox_of(self.config)
        if found.sandbox == "host":
            return "without a sandbox"
        if found.runner is not None:
            return f"in {found.runner.said}; outside=true asks a person to run exactly this on the host instead"
        network = "no network but its own loopback"
        if found.sandbox == "landlock":
            network = (
                "no sockets, no shared memory; new files beside a secret one are readable from the next command on,"
                " and none can be made beside Hermes' own home or program"
            )
        return (
            f"inside {found.sandbox}: {network}; writable is {workspace}; /tmp and the home are private and vanish with"
            " the command; secret files and the rest of the home are hidden; git's settings and hooks and start-up"
            " files are read-only. If that is why it failed, outside=true asks a person to run exactly this outside"
        )

    @staticmethod
    def working_folder(command: ShellCommand, permit: Permit | None) -> int:
        """A descriptor of the command's folder. Raises if the approved folder was replaced by a link meanwhile."""
        if permit is None:  # the sandbox holds it wherever it starts
            return os.open(command.workdir, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return descriptors.folder_at(command.workdir)
        except OSError as error:
            said = "the folder for which it was approved is not there any more; nothing was run"
            raise CommandChanged(said) from error

    def prepare(
        self,
        command: ShellCommand,
        *,
        workspace: Path,
        permit: Permit | None = None,
        ours: bool = False,
        reads: tuple[Path, ...] = (),
    ) -> PreparedCommand:
        """The request to the supervisor. Blocks on the file system. Raises if the command must not run."""
        opening = _checked_opening(command, permit)
        found = sandbox_of(self.config)
        if found.sandbox == "plugin" and not opening.host:
            found = find("confined")  # a program of ours works on this machine's files
        if opening.host or found.sandbox == "host" or (found.sandbox == "none" and ours):
            environ = dict(command.environ)
            if found.sandbox not in ("host", "none"):  # there commands can make programs anywhere
                environ["PATH"] = self._search_path(environ, workspace)
            return PreparedCommand({"argv": command.argv, "environ": environ})
        if found.sandbox == "none":
            raise ExecutorUnavailable(f"no sandbox works here ({found.why}), so a person has to approve each command")
        # An approved change of the workspace (`rm -r project`) covers everything in it, git folders included.
        return self._confined(
            found, command, workspace, opening, ours, reads, changes=permit is not None and not opening
        )

    def _search_path(self, environ: Mapping[str, str], workspace: Path) -> str:
        user_home, path = Path(os.path.realpath(environ.get("HOME") or Path.home())), environ.get("PATH") or os.defpath
        if too_wide(Path(os.path.realpath(workspace)), user_home):  # no command runs there unasked
            return path
        writable = (workspace, *_folders(self.config.sandbox.write))
        return protected_files.search_path(path, writable, user_home=user_home)

    def program(self, name: str, environ: Mapping[str, str], workspace: Path) -> str | None:
        """A program for Hermes itself, from no folder that commands can write to."""
        return shutil.which(name, path=self._search_path(environ, workspace))

    def _confined(
        self, found: ExecutorChoice, command: ShellCommand, workspace: Path, opening: SandboxOpening, ours: bool,
        reads: tuple[Path, ...], *, changes: bool,
    ) -> PreparedCommand:  # fmt: skip
        environ = {name: value for name, value in command.environ.items() if name not in _DROPPED}
        if not opening.network:
            environ = {name: value for name, value in environ.items() if name not in _PROXIES}
        user_home = Path(os.path.realpath(environ.get("HOME") or Path.home()))
        root = Path(os.path.realpath(workspace))
        if too_wide(root, user_home):
            raise ExecutorUnavailable(f"{root} is too wide for a workspace", hint="Start Hermes in a project's folder.")
        sandbox = self.config.sandbox
        own, read, write = sandbox.secrets, _folders(sandbox.read), _folders(sandbox.write)
        inside = secret_files.found_in(root, user_home=user_home, own=own, deepest=_DEEPEST)
        seen = view(
            workspace=root, home=self.home, environ=environ, opening=opening, write=write,
            read=(*read, *reads), hidden=(*inside.secrets, *inside.unseen),
            own=own, git_writable=found.sandbox == "bubblewrap",
            secrets_in=lambda folder: _secrets(folder, user_home, own),
        )  # fmt: skip
        if ours:
            seen = replace(seen, hidden=())
        # Other writable folders, and git folders outside the workspace, have protected files too.
        folders = (root, *(folder for folder in seen.write if folder != root))
        before = files_in(folders, user_home, own, deepest=_DEEPEST) if len(folders) > 1 else inside
        seen = replace(seen, protected=(*before.protected, *protected_files.own_program(folders)))
        where = Path(os.path.realpath(command.workdir))
        if not seen.holds(where):
            raise ExecutorUnavailable(f"{command.workdir} is outside the workspace", hint=_ASK_OUTSIDE)
        if os.geteuid() == 0:
            environ["TAR_OPTIONS"] = "--no-same-owner"  # users of an archive do not exist inside
        request: dict[str, Any] = {
            "sandbox": found.sandbox, "limits": self._bounds(), "rlimits": self._rlimits(),
            "disks": [str(folder) for folder in folders],
        }  # fmt: skip
        if found.sandbox == "bubblewrap":
            environ |= {"TMPDIR": "/tmp", "HOME": str(user_home)}
            request |= {
                "sockets": "private", "own_network": not opening.network,
                "argv": bubblewrap.argv(
                    found.program, found.way, seen, command.argv, workdir=where, empty=self._empty_file(),
                    tmp_bytes=self.limits.command_tmp_bytes,
                ),
                "binds": [] if changes else bubblewrap.binds(seen, before),
            }  # fmt: skip
        else:
            request |= self._landlocked(seen, command, opening, environ)
            request["disks"].append(request["scratch"])
        request["environ"] = environ
        mounted = frozenset(seen.protected) if found.sandbox == "bubblewrap" and not changes else frozenset()
        home = Path(os.path.realpath(self.home))
        if ours:
            return PreparedCommand(request)
        scope = WatchScope(folders, user_home, own, home, mounted, changes, opening.network)
        watch = _watches.begin(
            scope, lambda: Protection(before, root=root, user_home=user_home, home=home, mounted=mounted)
        )
        return PreparedCommand(request, lambda: _watches.end(watch), watch)

    def _landlocked(
        self, seen: FilesystemView, command: ShellCommand, opening: SandboxOpening, environ: dict[str, str]
    ) -> dict[str, Any]:
        if seen.user_home.is_relative_to(seen.workspace):
            raise ExecutorUnavailable(
                "with Landlock a home cannot be the workspace", hint="Start Hermes in a project's folder."
            )
        scratch = tempfile.mkdtemp(prefix="hermes-")
        environ |= {"TMPDIR": scratch, "HOME": scratch}
        for name, folder in (("PYENV_ROOT", ".pyenv"), ("RUSTUP_HOME", ".rustup"), ("NVM_DIR", ".nvm")):
            if (seen.user_home / folder).is_dir():
                environ.setdefault(name, str(seen.user_home / folder))
        if (seen.user_home / ".gitconfig") in seen.read:
            environ["GIT_CONFIG_GLOBAL"] = str(seen.user_home / ".gitconfig")
        read, write, hidden = ([str(path) for path in paths] for paths in (seen.read, seen.write, seen.hidden))
        kept = [str(path) for path in (*protected_files.own_program(seen.write), Path(os.path.realpath(self.home)))]
        return {
            "argv": command.argv, "scratch": scratch, "sockets": "network" if opening.network else "none",
            "rules": landlock.rules(read, write, hidden, kept, scratch=scratch),
        }  # fmt: skip

    def _bounds(self) -> dict[str, int]:
        return {
            "memory": self.limits.command_memory_bytes or _machine_memory() * 3 // 4,
            "memory_reserve": _machine_memory() // _RESERVED_PART,
            "processes": self.limits.command_processes,
            "disk_reserve": self.limits.command_disk_reserve_bytes,
            "entries_reserve": _LEAST_ENTRIES,
        }

    def _rlimits(self) -> dict[str, int]:
        return {
            "RLIMIT_CORE": 0,
            "RLIMIT_FSIZE": self.limits.command_file_bytes,
            "RLIMIT_DATA": self.limits.command_memory_bytes or _machine_memory() * 3 // 4,
        }

    def _empty_file(self) -> Path:
        """An unreadable file, which replaces hidden ones."""
        path = self.home / "sandbox" / "hidden"
        if not path.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.touch(mode=0o000)
        return path


_ASK_OUTSIDE = "With outside=true a person is asked."


def _checked_opening(command: ShellCommand, permit: Permit | None) -> SandboxOpening:
    """The opening for exactly this command. Raises if the command differs from the approved one."""
    if permit is None:
        return CLOSED
    same = base.digest(command.text, command.workdir, permit.opening) == permit.digest
    if not same or command.argv[1:] != ("-c", command.text):
        raise CommandChanged("the command is not the one that was approved; nothing was run")
    if any(os.path.realpath(folder) != folder for folder in permit.opening.folders):
        raise CommandChanged("a folder that was approved leads elsewhere by now; nothing was run")
    return permit.opening


def _opening_in(workspace: Path, command: ShellCommand, permit: Permit | None) -> SandboxOpening:
    """Like `_checked_opening`, for a command that must stay in the workspace."""
    if not Path(os.path.realpath(command.workdir)).is_relative_to(os.path.realpath(workspace)):
        raise ExecutorUnavailable(f"{command.workdir} is outside the workspace", hint=_ASK_OUTSIDE)
    return _checked_opening(command, permit)


async def _finish(child: ChildProcess, prepared: PreparedCommand) -> None:
    await child.end()
    child.undone = await asyncio.to_thread(prepared.undo)


async def _finish_despite_cancel(work: Coroutine[Any, Any, None] | Awaitable[Any]) -> None:
    """Wait until the work is done, even if the waiting task is cancelled meanwhile."""
    task = asyncio.ensure_future(work)
    cancelled = False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            cancelled = True
    task.result()
    if cancelled:
        raise asyncio.CancelledError


def _secrets(folder: Path, user_home: Path, own: tuple[str, ...]) -> tuple[Path, ...]:
    """The files to hide in a visible folder other than the workspace."""
    found = secret_files.found_in(
        folder, user_home=user_home, own=own, deepest=_DEEPEST, most_entries=200_000, seconds=3.0
    )
    return (*found.secrets, *found.unseen)


class _WorkspaceRecords:
    """The state of each workspace before its commands; commands that overlap share one record.

    A command that starts while another runs must not take the other's changes for the person's. The record of a
    background command is kept in a file, because it outlives this process.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users: dict[Path, tuple[Protection, int]] = {}

    def begin(self, scope: WatchScope, make: Callable[[], Protection]) -> WorkspaceWatch:
        with self._lock:
            protection, users = self._users.get(scope.root) or (protection_of_background(scope) or make(), 0)
            self._users[scope.root] = (protection, users + 1)
            return WorkspaceWatch(scope, protection)

    def end(self, watch: WorkspaceWatch) -> list[str]:
        now = watch.look()
        with self._lock:
            return watch.undo(now, alone=not self._left(watch.scope.root) and not any(kept_watches(watch.scope)))

    def hand_over(self, watch: WorkspaceWatch, folder: Path) -> None:
        """Keep the record in the folder of a background command, which goes on with it."""
        watch.keep(folder)
        with self._lock:
            self._left(watch.scope.root)

    def _left(self, root: Path) -> int:
        protection, users = self._users.pop(root)
        if users > 1:
            self._users[root] = (protection, users - 1)
        return users - 1


_watches = _WorkspaceRecords()


@dataclass(slots=True)
class PreparedCommand:
    request: dict[str, Any]
    undo: Callable[[], list[str]] = field(default=list)
    watch: WorkspaceWatch | None = None

    def hand_over(self, folder: Path) -> None:
        """Leave the undoing to whoever records the end of this background command."""
        if self.watch is not None:
            _watches.hand_over(self.watch, folder)


@lru_cache(maxsize=1)
def _machine_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def shell() -> str | None:
    """The shell that commands are written for: the system's, because PATH may begin in a workspace."""
    system = os.defpath if sys.platform == "linux" else None
    return shutil.which("bash", path=system) or shutil.which("bash") or shutil.which("sh")


def _folders(named: Iterable[str]) -> list[Path]:
    return [Path(one).expanduser() for one in named]
