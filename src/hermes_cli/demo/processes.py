"""The processes behind the demo: a pretend Telegram, and a gateway that is started again whenever it is gone.

Both are children with a session of their own, so that Ctrl-C is the chat's alone, and both hold our end of a pipe as
their standard input: it closes when this process ends, however it ends, and then they end too. Of the environment they
get what a program needs to run, and nothing that could lead to a real account.

Somebody else may start a gateway on the demo's home (`hermes gateway restart`): then that one is the demo's for as
long as it lives, and is ended with it.
"""

from __future__ import annotations

import getpass
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple

from gateway import status
from hermes_agent import process_identity
from hermes_cli.operate import gateway_process
from hermes_config.errors import HermesError
from hermes_config.home import private_open

MARKER = "THIS_IS_A_DEMO"
"""The file by which a home is known to be a demo's."""
OWNER_ID = 4201
"""Ada's number in the pretend Telegram."""
PHONE = "phone.json"
"""Where the pretend Telegram says how to reach it; `make phone` reads it."""
_FIRST_PORT, _PORTS = 8642, 50
_KEPT = frozenset({"PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ", "TMPDIR", "TERM", "VIRTUAL_ENV", "SHELL"})
_ENDING_SECONDS = 6.0
_STARTING_SECONDS = 20.0
_LOOK_SECONDS = 0.2
_YOUNG_SECONDS = 5.0
_MOST_EARLY_DEATHS = 5


class CannotShow(HermesError):
    """A process of the demo did not start."""


class Telegram(NamedTuple):
    """Where the pretend one is, and the bot's token there."""

    address: str
    token: str


class Backstage:
    """Started once, ended once; between the two it keeps a gateway running."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._log: IO[bytes] = private_open(home / "gateway.out", "ab")
        self._telegram: subprocess.Popen[bytes] | None = None
        self._gateway: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._over = False
        self.problem = ""
        """Why there is no gateway any more; empty as long as there is one, or will be in a moment."""

    # -- the pretend Telegram ------------------------------------------------------------------------------

    def start_telegram(self) -> None:
        people = f"ada={OWNER_ID},mallory"
        state, announced = str(self._home / "telegram.json"), str(self._home / PHONE)
        self._telegram = self._start(
            "hermes_testing.telegram", "--people", people, "--started", "ada", "--state", state,
            "--announce", announced,
        )  # fmt: skip

    def telegram(self) -> Telegram:
        """Once it answers. Its first line is its address."""
        child = self._telegram
        assert child is not None and child.stdout is not None, "it was started"
        address = child.stdout.readline().decode().strip()
        if not address:
            raise CannotShow(f"the pretend Telegram did not start: {self._last_words()}", where=str(self._home))
        return Telegram(address, json.loads((self._home / PHONE).read_text(encoding="utf-8"))["token"])

    # -- the gateway ---------------------------------------------------------------------------------------

    def start_gateway(self) -> None:
        threading.Thread(target=self._keep, daemon=True, name="gateway").start()

    def wait(self) -> None:
        """Until it serves the phone's chat."""
        until = time.monotonic() + _STARTING_SECONDS
        while not any(one.name == "telegram" for one in status.read_status(self._home).platforms):
            if self.problem or time.monotonic() > until:
                raise CannotShow(self.problem or "the gateway does not get ready", where=str(self._home))
            time.sleep(_LOOK_SECONDS / 10)

    def _keep(self) -> None:
        """Start it, wait for its end, start it again; give up when it does not live."""
        early = 0
        while (child := self._next()) is not None:
            began = time.monotonic()
            child.wait()
            early = early + 1 if time.monotonic() - began < _YOUNG_SECONDS else 0
            if self._another_lived():
                early = 0
            if early == _MOST_EARLY_DEATHS:
                self.problem = f"the gateway does not start: {self._last_words()}"
                return
            time.sleep(0.2 * max(0, early - 1))  # the first time at once

    def _another_lived(self) -> bool:
        """Whether somebody else's gateway had the home; then this returns when that one has ended."""
        lived = False
        while not self._over and status.is_running(self._home):
            lived = True
            time.sleep(_LOOK_SECONDS)
        return lived

    def _next(self) -> subprocess.Popen[bytes] | None:
        with self._lock:
            if self._over:
                return None
            self._gateway = self._start("hermes_cli", "gateway", "run")
            return self._gateway

    # -- both ----------------------------------------------------------------------------------------------

    def _start(self, module: str, *arguments: str) -> subprocess.Popen[bytes]:
        out = subprocess.PIPE if module == "hermes_testing.telegram" else self._log
        return subprocess.Popen(
            [sys.executable, "-m", module, *arguments, "--attached"], stdin=subprocess.PIPE, stdout=out,
            stderr=self._log, cwd=self._home, env=_environment(self._home), start_new_session=True,
        )  # fmt: skip

    def end(self) -> None:
        """Both are gone when this returns, and so is a gateway that somebody else has started here."""
        with self._lock:
            self._over = True
        if self._gateway is not None and self._gateway.poll() is not None:
            self._end_anothers()
        children = [one for one in (self._gateway, self._telegram) if one is not None]
        _end(children, signal.SIGTERM)
        _end(children, signal.SIGKILL)
        self._log.close()

    def _end_anothers(self) -> None:
        pid = status.read_pid(self._home)
        if pid is None or not status.is_running(self._home):
            return
        gateway_process.stop(self._home, seconds=_ENDING_SECONDS, force=True)
        until = time.monotonic() + _ENDING_SECONDS
        while (
            process_identity.started(pid) is not None and time.monotonic() < until
        ):  # the lock is let go of before the end
            time.sleep(_LOOK_SECONDS / 10)

    def _last_words(self) -> str:
        lines = (self._home / "gateway.out").read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"


def _end(children: Iterable[subprocess.Popen[bytes]], how: signal.Signals) -> None:
    left = [child for child in children if child.poll() is None]
    for child in left:
        child.send_signal(how)
    until = time.monotonic() + _ENDING_SECONDS
    for child in left:
        try:
            child.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            continue


def _environment(home: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name in _KEPT or name.startswith("LC_")}
    return {**kept, "HERMES_HOME": str(home)}


class Port:
    """8642 or the next port that nobody listens on and no other demo is about to; ours until `close`."""

    def __init__(self) -> None:
        for number in range(_FIRST_PORT, _FIRST_PORT + _PORTS):
            file = _claimed(number)
            if file is not None and _is_free(number):
                self.number, self._file = number, file
                return
            if file is not None:
                file.close()
        raise CannotShow(f"no port from {_FIRST_PORT} on is free for the API", hint="End what listens there.")

    def close(self) -> None:
        self._file.close()


def _claimed(number: int) -> IO[bytes] | None:
    """Between looking whether a port is free and listening on it another demo may look too."""
    file = private_open(_runtime_folder() / f"port-{number}.lock", "ab")
    if sys.platform != "win32":
        import fcntl

        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            return None
    return file


def _runtime_folder() -> Path:
    """A folder of ours alone. Anybody can put a link or a folder of that name into the one for temporary files."""
    number = os.getuid() if sys.platform != "win32" else getpass.getuser()
    folder = Path(tempfile.gettempdir()) / f"hermes-demo-{number}"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    ours = sys.platform == "win32" or (found.st_uid == os.getuid() and not found.st_mode & 0o077)
    if not stat.S_ISDIR(found.st_mode) or not ours:
        hint = "Remove it, or set TMPDIR to another folder."
        raise CannotShow(f"{folder} is not a private folder of yours", hint=hint)
    return folder


def _is_free(number: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", number))
        except OSError:
            return False
    return True
