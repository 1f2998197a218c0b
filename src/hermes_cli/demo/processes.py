"""The processes of the demo: a fake Telegram, and a gateway that is restarted whenever it ends.

Both are children with a session of their own, so that Ctrl-C reaches only the chat, and both have a pipe of ours as
standard input: it closes when this process ends, however it ends, and then they end too. Their environment holds what a
program needs to run, and nothing that could lead to a real account.

Another command may start a gateway on the demo's home (`hermes gateway restart`): it then serves the demo as long as it
lives, and is stopped with it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import IO, NamedTuple

from gateway import status
from hermes_agent import process_identity
from hermes_cli.operate import gateway_process
from hermes_config.errors import HermesError
from hermes_config.home import private_open
from hermes_config.version import module_command

MARKER = "THIS_IS_A_DEMO"
"""The file that marks a home as a demo's."""
OWNER_ID = 4201
"""Ada's id in the fake Telegram."""
PHONE = "phone.json"
"""Where the fake Telegram writes its address; `make phone` reads it."""
_FIRST_PORT, _PORTS = 8642, 50
_KEPT = frozenset({"PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ", "TMPDIR", "TERM", "VIRTUAL_ENV", "SHELL"})
_ENDING_SECONDS = 6.0
_STARTING_SECONDS = 20.0
_LOOK_SECONDS = 0.2
_YOUNG_SECONDS = 5.0
_MOST_EARLY_DEATHS = 5


class DemoFailed(HermesError):
    """A process of the demo did not start."""


class DemoTelegram(NamedTuple):
    """The address of the fake Telegram, and the bot's token there."""

    address: str
    token: str


class DemoProcesses:
    """Starts the processes once, keeps a gateway running, and ends everything once."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self.port, self._claim = claim_port()
        self._log: IO[bytes] = private_open(home / "gateway.out", "ab")
        self._telegram: subprocess.Popen[bytes] | None = None
        self._gateway: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._ending = False
        self.problem = ""
        """Why the gateway is not restarted any more; empty while it runs or restarts."""

    # -- the fake Telegram ------------------------------------------------------------------------------

    def start_telegram(self) -> None:
        people, announced = f"ada={OWNER_ID},mallory", str(self._home / PHONE)
        self._telegram = self._start(
            "hermes_testing.telegram", "--people", people, "--started", "ada", "--announce", announced
        )

    def telegram(self) -> DemoTelegram:
        """Wait until the fake has printed its address, and return it."""
        child = self._telegram
        assert child is not None and child.stdout is not None, "it was started"
        address = child.stdout.readline().decode().strip()
        if not address:
            raise DemoFailed(f"the fake Telegram did not start: {self._last_words()}", where=str(self._home))
        return DemoTelegram(address, json.loads((self._home / PHONE).read_text(encoding="utf-8"))["token"])

    # -- the gateway ---------------------------------------------------------------------------------------

    def start_gateway(self) -> None:
        threading.Thread(target=self._keep, daemon=True, name="gateway").start()

    def wait(self) -> None:
        """Wait until the gateway serves the phone's chat."""
        until = time.monotonic() + _STARTING_SECONDS
        while not any(one.name == "telegram" for one in status.read_status(self._home).platforms):
            if self.problem or time.monotonic() > until:
                raise DemoFailed(self.problem or "the gateway is not ready in time", where=str(self._home))
            time.sleep(_LOOK_SECONDS / 10)

    def _keep(self) -> None:
        """Start the gateway, wait for its end and restart it; give up when it keeps ending early."""
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
            time.sleep(0.2 * max(0, early - 1))  # the first time without a pause

    def _another_lived(self) -> bool:
        """Wait for the end of a gateway that another command started here; return whether there was one."""
        lived = False
        while not self._ending and status.is_running(self._home):
            lived = True
            time.sleep(_LOOK_SECONDS)
        return lived

    def _next(self) -> subprocess.Popen[bytes] | None:
        with self._lock:
            if self._ending:
                return None
            self._gateway = self._start("hermes_cli", "gateway", "run")
            return self._gateway

    # -- both ----------------------------------------------------------------------------------------------

    def _start(self, module: str, *arguments: str) -> subprocess.Popen[bytes]:
        out = self._log if module == "hermes_cli" else subprocess.PIPE
        return subprocess.Popen(
            [*module_command(module), *arguments, "--attached"], stdin=subprocess.PIPE, stdout=out,
            stderr=self._log, cwd=self._home, env=_environment(self._home), start_new_session=True,
        )  # fmt: skip

    def end(self) -> None:
        """End both processes, and a gateway that another command has started here."""
        with self._lock:
            self._ending = True
        if self._gateway is not None and self._gateway.poll() is not None:
            self._end_anothers()
        children = [one for one in (self._gateway, self._telegram) if one is not None]
        _end(children, signal.SIGTERM)
        _end(children, signal.SIGKILL)
        self._log.close()
        self._claim.close()

    def _end_anothers(self) -> None:
        pid = status.read_pid(self._home)
        if pid is None or not status.is_running(self._home):
            return
        gateway_process.stop(self._home, seconds=_ENDING_SECONDS, force=True)
        until = time.monotonic() + _ENDING_SECONDS
        while (
            process_identity.started(pid) is not None and time.monotonic() < until
        ):  # it releases the lock before it ends
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


def claim_port() -> tuple[int, socket.socket]:
    """Return 8642 or the next free port for the API, and a socket that claims it until it is closed.

    The gateway binds the TCP port only when it is ready. Until then, the claim keeps another demo from choosing the
    same: it is the UDP port of that number, which nobody else uses.
    """
    for number in range(_FIRST_PORT, _FIRST_PORT + _PORTS):
        claim = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with contextlib.suppress(OSError):
            claim.bind(("127.0.0.1", number))
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(("127.0.0.1", number))
            return number, claim
        claim.close()
    raise DemoFailed(f"no port from {_FIRST_PORT} on is free for the API", hint="Stop what listens there.")
