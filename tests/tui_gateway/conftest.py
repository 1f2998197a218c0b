"""Homes with the demo model, and real gateways with an API on them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway import status
from tui_gateway import server
from tui_gateway.wire.frames import Frame

KEY = "hk-0123456789abcdef0123456789abcdef"
"""The owner key: the one that opens `/api/ws`."""
CLIENT_KEY = "hk-client-0123456789abcdef012345678"
CONFIG = "model: demo\ndemo:\n  tokens_per_second: 0\nauto_title: false\n"


@pytest.fixture
def demo_home(home: Path) -> Path:
    """A home whose model answers at once."""
    home.mkdir(mode=0o700, exist_ok=True)
    (home / "config.yaml").write_text(CONFIG, encoding="utf-8")
    return home


@pytest.fixture
def api(demo_home: Path) -> Iterator[str]:
    """A gateway with an API, as a process of its own: the address."""
    yield from _served(demo_home, CONFIG)


@pytest.fixture
def slow_api(demo_home: Path) -> Iterator[str]:
    """One whose model takes its time."""
    yield from _served(demo_home, CONFIG.replace("tokens_per_second: 0", "tokens_per_second: 40"))


def said(demo_home: Path) -> Path:
    """What the gateway said to whoever started it."""
    return demo_home / "gateway.out"


def _served(demo_home: Path, config: str) -> Iterator[str]:
    (demo_home / "config.yaml").write_text(f"{config}api_server:\n  enabled: true\n  port: 0\n", encoding="utf-8")
    (demo_home / ".env").write_text(f"API_SERVER_KEY={CLIENT_KEY}\nAPI_SERVER_OWNER_KEY={KEY}\n", encoding="utf-8")
    with said(demo_home).open("wb") as out, subprocess.Popen(
        [sys.executable, "-m", "hermes_cli", "gateway", "run"], stdin=subprocess.DEVNULL, stdout=out,
        stderr=subprocess.STDOUT, env={**os.environ, "HERMES_TUI_WS_ORPHAN_REAP_GRACE_S": "2"},
    ) as process:  # fmt: skip
        until = time.monotonic() + 30
        while not (address := status.read_status(demo_home).api):
            assert time.monotonic() < until and process.poll() is None, "the gateway did not start"
            time.sleep(0.05)
        yield address
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


class Kept:
    """A client in this process that keeps every frame."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []

    def write(self, frame: Frame) -> bool:
        self.frames.append(frame)
        return True

    def asks(self, method: str, **params: Any) -> None:
        assert server.dispatch({"id": 1, "method": method, "params": params}, self) is None


def waited(done: Callable[[], bool]) -> None:
    until = time.monotonic() + 20
    while not done():
        assert time.monotonic() < until
        time.sleep(0.002)
