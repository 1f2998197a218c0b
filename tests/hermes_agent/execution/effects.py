"""A throw-away world that notices what a command does to it.

    with World() as world:
        for effect in world.attempt("echo x > {V}", run):
            print(effect)

`run` is called with the text of the command and returns what it printed; it may be a plain shell, an executor or a
whole gateway. Whatever then happened outside the workspace is reported: files made, changed or removed (mode, times
and links included), connections to listeners, secrets in the output, signals to the gateway, files in the workspace
that other programs run when they start, and processes that were left running. Afterwards the world is as it was before.

The world does not lie below /tmp, because a sandbox with a /tmp of its own would hide it for free.

Placeholders of a line:

| | |
|---|---|
| {V} {OUT} | a file and its folder, both outside the workspace |
| {S} {HOME} {HERMES} | a secret file; the home of the person; the home of Hermes |
| {WS} {GIT} | the workspace, and the git folder it belongs to |
| {SOCK} {DSOCK} {ABS} | unix sockets of the host: a stream, a datagram, the name of an abstract one |
| {LATE} | a unix socket of the host that is made shortly after the command began |
| {PORT} {ADDRESS} | a TCP and UDP port of the host's 127.0.0.1, and another address of the host with the same port |
| {GW} | the process id of the gateway, whose environment holds a secret |
| {PTS} | a terminal of the host on which a person is typing a secret |
| {TMP} | the beginning of names in the host's /tmp and /dev/shm that nobody else uses |
| {MARK} | a word that the line prints only when something forbidden worked; write it outside single quotes |
| {NEXT} | parts two commands of which the second starts when the first has ended |
| {HOST} | nothing; after such a line the host itself uses git in the workspace, as a person's prompt or editor does |
| {LATER} | seconds; a line with it is looked at once more after that time: the file `survivor` must not appear |
"""

from __future__ import annotations

import ast
import base64
import contextlib
import os
import re
import resource
import secrets
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
LATER = 0.6
_LATE = 0.15

Run = Callable[[str], bytes]


@dataclass(frozen=True, slots=True)
class Effect:
    """One thing that must not have happened."""

    kind: str
    """created, changed (a file's content or its links), touched (no more than its mode, owner, times or attributes),
    deleted, connection, secret, signal, worked, settings, running, hung"""
    detail: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.detail}"


SECRETS = (
    ".ssh/id_rsa",
    ".ssh/id_ed25519",
    ".ssh/config",
    ".env",
    ".envrc",
    ".netrc",
    ".npmrc",
    ".pypirc",
    ".pgpass",
    ".my.cnf",
    ".boto",
    ".s3cfg",
    ".vault-token",
    ".git-credentials",
    ".bash_history",
    ".aws/credentials",
    ".aws/config",
    ".kube/config",
    ".docker/config.json",
    ".gnupg/secring.gpg",
    ".gnupg/private-keys-v1.d/key",
    ".cargo/credentials.toml",
    ".terraform.d/credentials.tfrc.json",
    ".huggingface/token",
    ".cache/huggingface/token",
    ".codex/auth.json",
    ".claude/.credentials.json",
    ".config/gh/hosts.yml",
    ".config/rclone/rclone.conf",
    ".config/google-chrome/Default/Cookies",
    ".config/gcloud/application_default_credentials.json",
    ".local/share/keyrings/login.keyring",
    ".mozilla/firefox/x/logins.json",
    "other/.env",
    ".hermes/.env",
    ".hermes/config.yaml",
    ".hermes/state.db",
    ".hermes/state.db-wal",
    ".hermes/logs/agent.log",
    ".hermes/backups/one.tar",
    ".hermes/media/x",
)
"""Below the home of the person."""

ENVIRONMENT_SECRETS = ("OPENAI_API_KEY", "TELEGRAM_BOT_TOKEN", "AWS_SECRET_ACCESS_KEY")

SETTINGS = (
    ".git/config",
    ".git/hooks",
    ".git/config.worktree",
    ".envrc",
    ".npmrc",
    ".mcp.json",
    ".claude",
    ".vscode",
    ".idea",
    ".cursor",
    ".devcontainer",
    ".husky",
    "src/.vscode",
    "src/lib/.envrc",
    ".bashrc",
    ".bash_profile",
    ".profile",
    ".zshrc",
    ".zshenv",
    ".gitconfig",
    ".helix",
    ".windsurf",
    ".Rprofile",
    ".Renviron",
    ".RData",
    ".pdbrc",
    ".irbrc",
    ".dir-locals-2.el",
    "opencode.jsonc",
    "crush.json",
)
"""Below the workspace: what shells, editors, git and agents run or obey when they start there."""

GIT_SETTINGS = ("config", "config.worktree", "hooks", "commondir")
"""Below a git folder that is not in the workspace."""

_HOSTILE_SCRIPT = """#!/bin/sh
echo ran >> {V}
touch {OUT}/ran
cat {S}
echo "$OPENAI_API_KEY"
"""

_GATEWAY = """
import os, signal
def note(number, _):
    os.write(1, b"%d\\n" % number)
for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}:
    signal.signal(number, note)
os.write(1, b"ready\\n")
while os.read(0, 1):  # the dummy gateway ends when the test does
    os.write(1, b"here\\n")
"""

_DEVICES = ("/dev/null", "/dev/full")
Snapshot = dict[str, tuple[int, ...]]


def groups(path: Path) -> list[tuple[str, str]]:
    """The command lines of a corpus, each with the heading above it. A line that begins with ! is a Python literal."""
    found, heading = [], ""
    for line in path.read_text(encoding="utf-8").split("\n"):
        if line.startswith("#"):
            heading = line.removeprefix("#").strip()
        elif line.startswith("!"):
            found.append((heading, str(ast.literal_eval(line[1:]))))
        elif line:
            found.append((heading, line))
    return found


def lines(path: Path) -> list[str]:
    """The command lines of a corpus."""
    return [line for _, line in groups(path)]


class World:
    """Files, listeners and a gateway that a command must leave alone, and a workspace that is its own."""

    def __init__(self, base: Path | None = None, repository: str = "own") -> None:
        """Make the world below `base`, which must not lie below /tmp; by default in /srv, or in /var/tmp for a user.

        `repository` says where the git folder of the workspace is: "own", "above" (the workspace is a folder of a
        repository) or "linked" (it is a worktree of a repository beside it). Git writes to all of them; what it obeys
        there counts as settings.
        """
        token = secrets.token_hex(6)
        if base is None:
            base = Path("/srv" if os.access("/srv", os.W_OK) else "/var/tmp")
        self.root = Path(tempfile.mkdtemp(prefix="hermes-effects-", dir=base))
        self.root.chmod(0o755)
        self.outside = self.root / "outside"
        self.home = self.root / "home"
        self.hermes = self.home / ".hermes"
        self.workspace = self.root / "projects" / "space"
        places = {"own": self.workspace, "above": self.workspace.parent, "linked": self.workspace.parent / "main"}
        self.git = places[repository] / ".git"
        self.temporary = f"/tmp/hermes-effects-{token}-"
        self._shared = f"/dev/shm/hermes-effects-{token}-"
        self._token = "".join(secrets.choice("bcdfghjkmnpqrstvwxz") for _ in range(14))
        self._mark = secrets.token_hex(8)
        self._names: list[str] = ["what a person typed"]
        self._listeners: list[tuple[str, socket.socket]] = []
        self._late: socket.socket | None = None
        self._template = Path(tempfile.mkdtemp(prefix="hermes-template-", dir=base))
        self._kept = Path(tempfile.mkdtemp(prefix="hermes-kept-", dir=base))
        self._make_tree()
        self._listen()
        self._make_workspace()
        shutil.copytree(self.workspace, self._template / "space", symlinks=True)
        shutil.copytree(self.git, self._template / "git", symlinks=True)
        self._worktrees = list(self.git.glob("worktrees/*"))
        self._start_gateway()
        self._remember()
        self._clean = _walk(self.workspace)
        self._settings = self._settings_now()

    def __enter__(self) -> World:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the gateway, close the listeners and remove the world."""
        for _, listener in self._listeners:
            listener.close()
        if self._late is not None:
            self._late.close()
        os.close(self._master)
        os.close(self._slave)
        self._end_gateway()
        for folder in (self.root, self._template, self._kept):
            _remove(folder)
        for name in self._temporaries():
            _remove(Path(name))

    # -- the parts

    def secret(self, name: str) -> str:
        """A new secret that `attempt` will recognise in an output, also encoded."""
        self._names.append(name)
        return f"{self._token}{len(self._names) - 1:04d}{self._token}"

    def environment(self) -> dict[str, str]:
        """The environment of the gateway: a home full of secrets, and more of them in variables."""
        return {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": str(self.home),
            "HERMES_HOME": str(self.hermes),
            "LANG": "C.UTF-8",
            **{name: self._environment_secrets[name] for name in ENVIRONMENT_SECRETS},
        }

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Make the environment of the world the one of this process, as a gateway would have it."""
        before = dict(os.environ)
        os.environ.update(self.environment())
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)

    def fill(self, line: str) -> str:
        """The line with its placeholders replaced."""
        half = len(self._mark) // 2
        for name, value in {
            "V": self.outside / "victim",
            "OUT": self.outside,
            "S": self.home / ".ssh" / "id_rsa",
            "HOME": self.home,
            "HERMES": self.hermes,
            "WS": self.workspace,
            "GIT": self.git,
            "SOCK": self.outside / "service.sock",
            "DSOCK": self.outside / "datagram.sock",
            "LATE": self.outside / "late.sock",
            "ABS": self._abstract,
            "PORT": self.port,
            "ADDRESS": self.address,
            "GW": self.gateway.pid,
            "TMP": self.temporary,
            "LATER": LATER,
            "HOST": "",
            "PTS": self._terminal,
            # The two halves meet when the shell or Python reads them, not in an error that quotes the line.
            "MARK": f'{self._mark[:half]}""{self._mark[half:]}',
        }.items():
            line = line.replace(f"{{{name}}}", str(value))
        return line

    def attempt(self, line: str, run: Run) -> list[Effect]:
        """Run one line and tell what it did; then put everything back."""
        command = self.fill(line)
        late = threading.Timer(_LATE, self._listen_late) if "{LATE}" in line else None
        if "{PTS}" in line:
            os.write(self._master, f"{self._token}0000{self._token}\n".encode())
        if late is not None:
            late.start()
        try:
            output = b"".join([run(part) for part in command.split("{NEXT}")])
        finally:
            if late is not None:
                late.join()
        effects = self._running()
        if "{LATER}" in line:
            survivor = self.workspace / "survivor"
            survivor.unlink(missing_ok=True)
            time.sleep(LATER + 0.4)
            if survivor.exists():
                effects.append(Effect("running", "the file `survivor` appeared after the command had ended"))
        if "{HOST}" in line:
            effects += self.use_git()
        if "{PTS}" in line:
            with contextlib.suppress(OSError):
                if os.read(self._master, 4096):
                    effects.append(Effect("connection", "a terminal of the host was written to"))
            with contextlib.suppress(OSError):
                os.read(self._slave, 4096)
        effects += (
            self._files() + self._changed_devices() + self._connections() + self._secrets(output) + self._signals()
        )
        if self._mark.encode() in output:
            effects.append(Effect("worked", "the line says that something forbidden worked"))
        effects += [
            Effect("settings", name)
            for name, value in self._settings_now().items()
            if self._settings.get(name) != value
        ]
        if effects:
            self._restore()
        if _walk(self.workspace) != self._clean:
            self._restore_workspace()
        if self._late is not None:
            self._late.close()
            self._late = None
            (self.outside / "late.sock").unlink(missing_ok=True)
            self._remember()
        return effects

    def use_git(self) -> list[Effect]:
        """What the host does later in the workspace: a prompt, an editor and a person use git."""
        clean = {"PATH": os.defpath, "HOME": str(self.home), "GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0"}
        name = ["git", "-c", "user.name=A", "-c", "user.email=a@example.com"]
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        for folder in (self.workspace, self.workspace / "w"):
            for words in ("status", "diff", "log -1", "checkout -q -b later", "commit -q --allow-empty -m later"):
                try:
                    if folder.is_dir():
                        subprocess.run([*name, *words.split()], cwd=folder, env=clean, check=False, timeout=4, **quiet)
                except subprocess.TimeoutExpired:
                    return [Effect("hung", f"git {words} of the host in {folder.name}")]
        return []

    # -- making it

    def _make_tree(self) -> None:
        # Some have the names of files that an executor protects in a workspace: it must not put these "back".
        names = (
            "config",
            "hooks/post-checkout",
            ".vscode/tasks.json",
            ".envrc",
            ".git/config",
            ".git/HEAD",
            ".git/refs/x",
        )
        modes = {"victim": 0o644, "private": 0o600, "script.sh": 0o755, "folder/inside": 0o644} | dict.fromkeys(
            names, 0o644
        )
        for name, mode in modes.items():
            path = self.outside / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{name} as it was\n")
            path.chmod(mode)
            os.utime(path, (1_600_000_000, 1_600_000_000))
        (self.outside / "empty").mkdir()
        for name in SECRETS:
            path = self.home / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"key = {self.secret(f'~/{name}')}\n")
            path.chmod(0o600)
        for name in (".bashrc", ".profile", "notes.txt"):
            (self.home / name).write_text("# mine\n")
        (self.home / "bin").mkdir()
        (self.hermes / "sandbox").mkdir()  # the executor keeps a file of its own there
        # Names that lines reach by ../ from the workspace.
        (self.root / "victim").write_text("victim as it was\n")
        self.workspace.parent.mkdir()
        (self.workspace.parent / "victim").write_text("victim as it was\n")
        (self.workspace.parent / "neighbour").mkdir()
        (self.workspace.parent / "neighbour" / "file").write_text("a neighbour's\n")
        Path(f"{self.temporary}victim").write_text("victim as it was\n")
        Path(f"{self._shared}victim").write_text("victim as it was\n")
        self._environment_secrets = {name: self.secret(f"${name}") for name in ENVIRONMENT_SECRETS}
        shutil.copytree(self.home, self._kept / "home")
        shutil.copytree(self.outside, self._kept / "outside")

    def _listen(self) -> None:
        self._master, slave = os.openpty()
        self._terminal = os.ttyname(slave)
        mode = termios.tcgetattr(slave)
        mode[3] &= ~(termios.ECHO | termios.ICANON)
        termios.tcsetattr(slave, termios.TCSANOW, mode)
        os.set_blocking(self._master, False)
        os.set_blocking(slave, False)
        self._slave = slave
        self._abstract = f"hermes-effects-{secrets.token_hex(6)}"
        for kind, name in ((socket.SOCK_STREAM, "service.sock"), (socket.SOCK_DGRAM, "datagram.sock")):
            self._add(f"unix {name}", socket.AF_UNIX, kind, str(self.outside / name))
            (self.outside / name).chmod(0o777)
        self._add("abstract unix", socket.AF_UNIX, socket.SOCK_STREAM, f"\0{self._abstract}")
        self.port = self._add("TCP 127.0.0.1", socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)).getsockname()[1]
        self._add("UDP 127.0.0.1", socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", self.port))
        with contextlib.suppress(OSError):
            self._add("TCP ::1", socket.AF_INET6, socket.SOCK_STREAM, ("::1", self.port))
            self._add("UDP ::1", socket.AF_INET6, socket.SOCK_DGRAM, ("::1", self.port))
        self.address = _other_address()
        if self.address != "127.0.0.1":
            self._add(f"TCP {self.address}", socket.AF_INET, socket.SOCK_STREAM, (self.address, self.port))
            self._add(f"UDP {self.address}", socket.AF_INET, socket.SOCK_DGRAM, (self.address, self.port))

    def _add(self, name: str, family: int, kind: int, address: object) -> socket.socket:
        listener = socket.socket(family, kind)
        listener.bind(address)
        listener.setblocking(False)
        if kind == socket.SOCK_STREAM:
            listener.listen(64)
        self._listeners.append((name, listener))
        return listener

    def _listen_late(self) -> None:
        late = socket.socket(socket.AF_UNIX)
        late.bind(str(self.outside / "late.sock"))
        (self.outside / "late.sock").chmod(0o777)
        late.listen(8)
        late.setblocking(False)
        self._late = late

    def _make_workspace(self) -> None:
        self.workspace.mkdir()
        files = {
            "a": "one\ntwo\n",
            "b": "two\nthree\n",
            "c": f'url = "http://127.0.0.1:{self.port}/"\n',
            "f": f"a[$(touch {self.outside}/evaluated)]\n",
            "p": "p\n",
            "im": "im\n",
            "payload": "payload\n",
            "list": f"payload {self.outside}/victim\n",
            ".env": f"KEY={self.secret('workspace .env')}\n",
            ".env.example": "KEY=\n",
            "sub/.env": f"KEY={self.secret('workspace sub/.env')}\n",
            "s": f"w {self.outside}/sed\n",
            "x.cnf": "[default]\n",
            "x.py": "print('x')\n",
            "src/app.py": "print('app')\n",
            "src/.vscode/tasks.json": "{}\n",
            "src/lib/.envrc": "# mine\n",
            "evil.py": f"open({str(self.outside / 'victim')!r}, 'w').write('ran')\n",
            "evil.js": f"require('fs').writeFileSync({str(self.outside / 'victim')!r}, 'ran')\n",
            "evil.ini": "[pytest]\naddopts = -p evil\n",
            "Makefile": f"test:\n\techo ran > {self.outside}/victim\n",
            "package.json": f'{{"scripts": {{"test": "echo ran > {self.outside}/victim"}}}}\n',
            "test_evil.py": f"open({str(self.outside / 'victim')!r}, 'w').write('ran')\n",
        }
        script = self.fill_script()
        for name in ("x", "evil", "x.sh"):
            files[name] = script
        for program in (HERE / "programs").glob("*.py"):
            files[program.name] = program.read_text()
        for name, text in files.items():
            path = self.workspace / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        for name in ("x", "evil", "x.sh"):
            (self.workspace / name).chmod(0o755)
        (self.workspace / "link").symlink_to(self.outside / "folder")
        (self.workspace / "lin1").symlink_to(self.outside / "victim")
        if self.git.parent.name == "main":
            kept = self.workspace.rename(self.workspace.with_name("kept"))
            self.git.parent.mkdir()
            (self.git.parent / "a").write_text("one\ntwo\n")
            self._run_git(self.git.parent, "init -q -b main", "add a", "commit -q -m First")
            self._run_git(self.git.parent, f"worktree add -q -b space {self.workspace}")
            for entry in kept.iterdir():
                entry.replace(self.workspace / entry.name)
            kept.rmdir()
        else:
            self._run_git(self.git.parent, "init -q -b main")
            self._run_git(self.workspace, "add a b src", "commit -q -m First")
        # As `git sparse-checkout` does; with it git obeys config.worktree, too.
        self._run_git(self.git.parent, "config extensions.worktreeConfig true")
        (self.git / "hooks").mkdir(exist_ok=True)

    def _run_git(self, folder: Path, *commands: str) -> None:
        options = ["-c", "user.name=A", "-c", "user.email=a@example.com", "-c", "init.templateDir="]
        clean = {"PATH": os.defpath, "HOME": "/nowhere", "GIT_CONFIG_NOSYSTEM": "1"}
        for words in commands:
            argv = ["git", *options, *words.split()]
            subprocess.run(argv, cwd=folder, env=clean, check=True, timeout=60, stdout=subprocess.DEVNULL)

    def fill_script(self) -> str:
        """A program that tries to do harm when something runs it."""
        return (
            _HOSTILE_SCRIPT.replace("{V}", str(self.outside / "victim"))
            .replace("{OUT}", str(self.outside))
            .replace("{S}", str(self.home / ".ssh" / "id_rsa"))
        )

    def _start_gateway(self) -> None:
        self.gateway = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _GATEWAY],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env=self.environment(),
            cwd="/",
            start_new_session=True,
        )
        assert self.gateway.stdout is not None
        assert self.gateway.stdout.readline() == b"ready\n"
        self._gateway_state = self._gateway_now()

    def _end_gateway(self) -> None:
        self.gateway.kill()
        self.gateway.wait()
        assert self.gateway.stdin is not None
        assert self.gateway.stdout is not None
        self.gateway.stdin.close()
        self.gateway.stdout.close()

    # -- looking

    def _temporaries(self) -> list[str]:
        return [
            entry.path
            for folder, prefix in (("/tmp", self.temporary), ("/dev/shm", self._shared))
            for entry in os.scandir(folder)
            if entry.path.startswith(prefix)
        ]

    def _snapshot(self) -> Snapshot:
        found = _walk(self.root, (str(self.workspace), str(self.git), str(self.hermes / "sandbox")))
        for name in self._temporaries():
            found[name] = _state(os.lstat(name))
        return found

    def _remember(self) -> None:
        self._before = self._snapshot()
        self._contents = {name: _content(name, state[0]) for name, state in self._before.items()}
        self._devices = {name: os.stat(name) for name in _DEVICES}  # noqa: PTH116

    def _files(self) -> list[Effect]:
        effects = self._opened_folders()
        now, before = self._snapshot(), dict(self._before)
        if self._late is not None:
            now.pop(f"{self.outside}/late.sock", None)
        for name in (*(effect.detail for effect in effects), *([str(self.outside)] if self._late is not None else ())):
            if name in now:
                before[name] = now[name]
        if now == before:
            return effects
        effects += [Effect("created", name) for name in now if name not in before]
        effects += [Effect("deleted", name) for name in before if name not in now]
        above = {os.path.dirname(effect.detail) for effect in effects}  # noqa: PTH120 - plain strings
        for name, state in now.items():
            if name in before and before[name] != state and name not in above:
                same = (state[1], state[3], state[4]) == (before[name][1], before[name][3], before[name][4])
                if stat.S_ISREG(state[0]):
                    Path(name).chmod(0o600)  # whatever its mode is now, we look; everything is put back afterwards
                same = same and _content(name, state[0]) == self._contents.get(name, b"")
                effects.append(Effect("touched" if same else "changed", name))
        return effects

    def _changed_devices(self) -> list[Effect]:
        """Devices of the machine whose mode or owner was changed; they have the old ones again."""
        effects = []
        for name, before in self._devices.items():
            now = os.stat(name)  # noqa: PTH116
            if (now.st_mode, now.st_uid, now.st_gid) != (before.st_mode, before.st_uid, before.st_gid):
                os.chown(name, before.st_uid, before.st_gid)
                Path(name).chmod(stat.S_IMODE(before.st_mode))
                effects.append(Effect("touched", name))
        return effects

    def _opened_folders(self) -> list[Effect]:
        """Folders whose mode was changed, with the old mode again: otherwise we might not see into them."""
        effects = []
        for name, state in self._before.items():
            if stat.S_ISDIR(state[0]):
                with contextlib.suppress(OSError):
                    if os.lstat(name).st_mode != state[0] and stat.S_ISDIR(os.lstat(name).st_mode):
                        Path(name).chmod(stat.S_IMODE(state[0]))
                        effects.append(Effect("touched", name))
        return effects

    def _connections(self) -> list[Effect]:
        effects = []
        late = [("unix late.sock", self._late)] if self._late is not None else []
        for name, listener in [*self._listeners, *late]:
            while True:
                try:
                    if listener.type == socket.SOCK_DGRAM:
                        listener.recv(65536)
                    else:
                        listener.accept()[0].close()
                except BlockingIOError:
                    break
                effects.append(Effect("connection", name))
        return effects

    def _secrets(self, output: bytes) -> list[Effect]:
        """Look for the secrets, plain or turned round, in hex or base64, and cut to pieces by a dump."""
        token = self._token.encode()
        pieces = [token[n : n + 8] for n in range(len(token) - 7)]
        found = any(piece in output for piece in pieces)
        if not found:
            squeezed = b"".join(output.split())
            forms = [token[::-1], token.hex().encode(), token.hex().upper().encode()]
            forms += [base64.b64encode(b"x" * shift + token)[(shift * 4 + 2) // 3 + 1 : -5] for shift in range(3)]
            found = any(form in squeezed for form in (token, *forms))
        if not found:
            return []
        names = sorted(
            {self._names[int(number)] for number in _numbers(output, token) if int(number) < len(self._names)}
        )
        return [Effect("secret", name) for name in names] or [Effect("secret", "one, encoded or in pieces")]

    def _signals(self) -> list[Effect]:
        """The gateway is asked whether it is there: what was sent to it before has reached it when it answers."""
        effects = []
        assert self.gateway.stdin is not None and self.gateway.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self.gateway.stdin.write(b"?")
        while self.gateway.poll() is None and self._gateway_now() == self._gateway_state:
            if select.select([self.gateway.stdout], [], [], 0.01)[0]:
                line = self.gateway.stdout.readline()
                if line in (b"", b"here\n"):
                    break
                effects.append(Effect("signal", signal.Signals(int(line)).name))
        if self.gateway.poll() is not None:
            effects.append(Effect("signal", f"the gateway ended with {self.gateway.returncode}"))
        elif self._gateway_now() != self._gateway_state:
            effects.append(Effect("signal", f"the gateway changed: {self._gateway_now()}, was {self._gateway_state}"))
        return effects

    def _gateway_now(self) -> tuple[object, ...]:
        pid = self.gateway.pid
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        traced = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("TracerPid")]
        return (
            state.replace("R", "S"),
            os.getpriority(os.PRIO_PROCESS, pid),
            Path(f"/proc/{pid}/oom_score_adj").read_text().strip(),
            resource.prlimit(pid, resource.RLIMIT_NOFILE),
            tuple(sorted(os.sched_getaffinity(pid))),
            *traced,
        )

    def _settings_now(self) -> dict[str, tuple[int, bytes]]:
        """Their modes and contents. What was set aside under another name is obeyed by nobody."""
        found = {}
        outside = [] if self.git.parent == self.workspace else [self.git / name for name in GIT_SETTINGS]
        # A worktree that the command makes is its own; whether the host obeys something in it, {HOST} shows.
        outside += [path / name for path in self._worktrees for name in ("config.worktree", "commondir")]
        for place in [*(self.workspace / name for name in SETTINGS), *outside]:
            with contextlib.suppress(OSError):
                for inner, state in _walk(place).items():
                    if not re.search(r"\.(set-aside\d*|sample)$", inner):
                        content = _content(inner, state[0])
                        if content != b"../..\n":  # what `git worktree add` writes
                            found[inner.removeprefix(f"{self.workspace}/")] = (state[0], content)
        return found

    def _running(self) -> list[Effect]:
        """Processes that still work in the workspace; they are ended here."""
        found = self._in_workspace()
        for _ in range(20):
            if not found:
                return []
            time.sleep(0.01)
            found = self._in_workspace()
        effects = []
        for pid in found:
            with contextlib.suppress(OSError):
                text = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                effects.append(Effect("running", f"{pid}: {text.strip()}"))
        return effects

    def _in_workspace(self) -> list[int]:
        prefix = str(self.workspace)
        found = []
        for name in os.listdir("/proc"):  # noqa: PTH208 - a thousand times a second
            if name.isdigit():
                with contextlib.suppress(OSError):
                    if os.readlink(f"/proc/{name}/cwd").startswith(prefix):  # noqa: PTH115 - likewise
                        found.append(int(name))
        return found

    # -- putting it back

    def _restore(self) -> None:
        for pid in self._in_workspace():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        for _, listener in self._listeners[:2]:
            listener.close()
        for name in self._temporaries():
            _remove(Path(name))
        for entry in list(self.root.iterdir()):
            if entry != self.workspace.parent:
                _remove(entry)
        for entry in list(self.workspace.parent.iterdir()):
            if entry not in (self.workspace, self.git, self.git.parent):
                _remove(entry)
        self.root.chmod(0o755)
        self.workspace.parent.chmod(0o755)
        shutil.copytree(self._kept / "home", self.home)
        shutil.copytree(self._kept / "outside", self.outside)
        (self.root / "victim").write_text("victim as it was\n")
        (self.workspace.parent / "victim").write_text("victim as it was\n")
        (self.workspace.parent / "neighbour").mkdir()
        (self.workspace.parent / "neighbour" / "file").write_text("a neighbour's\n")
        Path(f"{self.temporary}victim").write_text("victim as it was\n")
        Path(f"{self._shared}victim").write_text("victim as it was\n")
        others = self._listeners[2:]
        self._listeners = []
        for kind, name in ((socket.SOCK_STREAM, "service.sock"), (socket.SOCK_DGRAM, "datagram.sock")):
            self._add(f"unix {name}", socket.AF_UNIX, kind, str(self.outside / name))
            (self.outside / name).chmod(0o777)
        self._listeners += others
        if self.gateway.poll() is not None or self._gateway_now() != self._gateway_state:
            self._end_gateway()
            self._start_gateway()
        self._restore_workspace()
        self._remember()

    def _restore_workspace(self) -> None:
        if self.workspace.is_symlink() or not self.workspace.is_dir():
            self.workspace.unlink(missing_ok=True)
            self.workspace.mkdir()
        self.workspace.chmod(0o755)
        for entry in list(self.workspace.iterdir()):
            _remove(entry)
        for entry in (self._template / "space").iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.copytree(entry, self.workspace / entry.name, symlinks=True)
            else:
                shutil.copy2(entry, self.workspace / entry.name, follow_symlinks=False)
        if self.git.parent != self.workspace:
            _remove(self.git)
            shutil.copytree(self._template / "git", self.git, symlinks=True)
        self._clean = _walk(self.workspace)
        self._settings = self._settings_now()
        self._remember()


def _state(status: os.stat_result) -> tuple[int, ...]:
    """What a change of content, mode, owner, times or links moves. The change time is set by the kernel alone."""
    return (status.st_mode, status.st_ino, status.st_ctime_ns, status.st_size, status.st_nlink, status.st_mtime_ns)


def _content(path: str, mode: int) -> bytes:
    """At most the beginning of a file, or the target of a link."""
    try:
        if stat.S_ISLNK(mode):
            return os.readlink(path).encode("utf-8", "surrogateescape")  # noqa: PTH115 - plain strings
        if stat.S_ISREG(mode):
            return Path(path).read_bytes()[:65536]
    except OSError:
        return b"unreadable"
    return b""


def _walk(folder: Path, leave_out: tuple[str, ...] = ()) -> Snapshot:
    found: Snapshot = {str(folder): _state(os.lstat(folder))}
    waiting = [str(folder)]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.path not in leave_out:
                        status = entry.stat(follow_symlinks=False)
                        found[entry.path] = _state(status)
                        if stat.S_ISDIR(status.st_mode):
                            waiting.append(entry.path)
        except OSError:
            continue
    return found


def _remove(path: Path) -> None:
    """Remove a file or a tree, whatever modes a command gave to it."""
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        return

    def open_up(function: Callable[[str], object], name: str, _: object) -> None:
        for one in (os.path.dirname(name), name):  # noqa: PTH120 - shutil gives strings
            with contextlib.suppress(OSError):
                os.chmod(one, 0o700)  # noqa: PTH101
        with contextlib.suppress(OSError):
            if function in (os.scandir, os.open, os.listdir):
                shutil.rmtree(name, ignore_errors=True)
            else:
                function(name)

    for _ in range(3):
        try:
            shutil.rmtree(path, onerror=open_up)
        except RecursionError:
            subprocess.run(["rm", "-rf", path], check=False)
        if not path.exists():
            return


def _numbers(output: bytes, token: bytes) -> Iterator[str]:
    for part in output.split(token)[1:]:
        if part[:4].isdigit():
            yield part[:4].decode()


def _other_address() -> str:
    """An address of this machine that is not the loopback; nothing is sent to find it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])
