"""A gateway to measure: a child process on a throw-away home, with the API on a port of its own and a model server."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from bench._gateway_floors import Wire, host_and_port, post

KEY = "bench-key-that-is-long-enough-0123456789"
READY_SECONDS = 90.0


class Gateway:
    """`hermes gateway run`. `environment`: further lines of its `.env`.

    `ready` is how long it took from its start until it answered.
    """

    def __init__(self, home: Path, model: str, environment: str = "", **config: Any) -> None:
        self.home, self.port = home, _free_port()
        self.address = f"http://127.0.0.1:{self.port}"
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        settings: dict[str, Any] = {
            "auto_title": False,
            "model": {
                "provider": "custom", "default": "scripted-1", "base_url": f"{model}/v1", "api_key": "scripted-key",
                "context_length": 100_000_000,
            },
            "api_server": {"enabled": True, "host": "127.0.0.1", "port": self.port},
            **config,
        }  # fmt: skip
        (home / "config.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")
        (home / ".env").touch(mode=0o600)
        (home / ".env").write_text(f"API_SERVER_OWNER_KEY={KEY}\n{environment}", encoding="utf-8")
        self._child: subprocess.Popen[bytes] | None = None
        self.ready = 0.0

    @property
    def pid(self) -> int:
        assert self._child is not None
        return self._child.pid

    command: tuple[str, ...] = ("-m", "hermes_cli", "gateway", "run")

    def start(self) -> None:
        environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        with (self.home / "bench.log").open("ab") as log:
            began = time.perf_counter()
            self._child = subprocess.Popen(
                [sys.executable, *self.command],
                env={**environ, "HERMES_HOME": str(self.home), "PYTHONPYCACHEPREFIX": str(self.home.parent / "code")},
                cwd=self.home, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        while not self._answers():
            if self._child.poll() is not None or time.perf_counter() - began > READY_SECONDS:
                self._child.kill()
                self._child.wait()
                said = (self.home / "bench.log").read_text(encoding="utf-8", errors="replace")[-2_000:]
                raise SystemExit(f"bench: the gateway does not come up:\n{said}")
            time.sleep(0.002)
        self.ready = time.perf_counter() - began

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as line:
                line.sendall(b"GET /readyz HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n")
                return line.recv(64).startswith(b"HTTP/1.1 200")
        except OSError:
            return False

    def stop(self) -> None:
        if self._child is not None:
            self._child.send_signal(signal.SIGTERM)
            self._child.wait(60)
            self._child = None

    def cpu(self) -> float:
        """Seconds of processor time it has used."""
        words = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    def rss(self) -> float:
        """Megabytes it has in memory."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def request(chat: int | str, text: str = "hello") -> bytes:
    """A turn of a chat, over the API."""
    body = json.dumps({"model": "hermes", "messages": [{"role": "user", "content": text}]}).encode()
    headers = {
        "authorization": f"Bearer {KEY}", "content-type": "application/json", "x-hermes-session-id": f"bench-{chat}",
    }  # fmt: skip
    return post("/v1/chat/completions", body, headers)


async def asked(wire: Wire, what: bytes) -> float:
    """How long it took, in seconds. Whatever is not answered well ends the bench: speed of errors is worth nothing."""
    began = time.perf_counter()
    status, body = await wire.ask(what)
    took = time.perf_counter() - began
    if status != 200:
        raise SystemExit(f"bench: a turn was answered with {status}: {body[:300]!r}")
    return took


def wire_to(address: str) -> Wire:
    return Wire(*host_and_port(address))


@contextmanager
def running(home: Path, model: str, environment: str = "", **config: Any) -> Iterator[Gateway]:
    gateway = Gateway(home, model, environment, **config)
    gateway.start()
    try:
        yield gateway
    finally:
        gateway.stop()


@contextmanager
def child(*command: str) -> Iterator[str]:
    """A server that prints its address first."""
    with subprocess.Popen([sys.executable, "-m", *command], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.terminate()
            process.wait(10)


def model_server(delay: float = 0.0) -> Any:
    return child("hermes_testing.scripted.server", "--delay", str(delay))


async def together(wires: list[Wire], requests: list[bytes]) -> list[float]:
    """One request on each wire, all at once; how long each took."""
    return await asyncio.gather(*(asked(wire, what) for wire, what in zip(wires, requests, strict=True)))


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])
