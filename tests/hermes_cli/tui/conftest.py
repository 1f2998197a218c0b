"""A window in this process, without a terminal, on a real server process with the demo model."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
from textual.pilot import Pilot

from hermes_cli.tui.app import HermesApp
from hermes_cli.tui.rpc_client import ChatOptions, RpcClient

_SECONDS = 45.0
"""Long enough for a machine that is busy with other things; nobody waits for it on one that is not."""


class Person:
    """Somebody who sits before the window."""

    def __init__(self, app: HermesApp, link: RpcClient, pilot: Pilot[int]) -> None:
        self.app, self.link, self.pilot = app, link, pilot

    @property
    def lines(self) -> list[str]:
        return [strip.text.rstrip() for strip in self.app.screen._compositor.render_strips()]

    @property
    def screen(self) -> str:
        return "\n".join(self.lines)

    @property
    def letters(self) -> str:
        """Without spaces, line ends and boxes: for what may be broken where a line is full, such as a path."""
        return re.sub(r"[\s│]", "", self.screen)

    async def see(self, words: str, *, seconds: float = _SECONDS) -> str:
        return await self.until(lambda screen: words in screen, words, seconds=seconds)

    async def until(self, seen: Callable[[str], bool], what: str = "", *, seconds: float = _SECONDS) -> str:
        deadline = asyncio.get_running_loop().time() + seconds
        while not seen(self.screen):
            assert asyncio.get_running_loop().time() < deadline, f"not seen: {what}\n{self.screen}"
            assert self.app.failure is None, self.app.failure
            await asyncio.sleep(0.02)
        return self.screen

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)

    async def write(self, text: str) -> None:
        """Without Enter."""
        await self.pilot.press(
            *({" ": "space", "/": "slash", "@": "at", ".": "full_stop"}.get(key, key) for key in text)
        )

    async def say(self, text: str) -> None:
        self.app._editor.put(text)
        await self.pilot.press("enter")

    async def ready(self) -> None:
        await self.until(lambda screen: " ready" in screen.splitlines()[-1], "ready")


Sit = Callable[..., AbstractAsyncContextManager[Person]]


@pytest.fixture
def place(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the person's shell stands."""
    folder = tmp_path / "place"
    (folder / "old").mkdir(parents=True)
    (folder / "notes.md").write_text("# Notes\n")
    monkeypatch.chdir(folder)
    configure(home)
    return folder


def configure(home: Path, *, pace: int = 0, more: str = "") -> None:
    home.mkdir(exist_ok=True, mode=0o700)
    (home / "config.yaml").write_text(f"model: demo\nauto_title: false\ndemo:\n  tokens_per_second: {pace}\n{more}")


@pytest.fixture
def sit(place: Path) -> Sit:
    """`async with sit() as person`."""

    @asynccontextmanager
    async def down(session_id: str | None = None, size: tuple[int, int] = (80, 24)) -> AsyncIterator[Person]:
        link = RpcClient()
        link.start()
        app = HermesApp(link, ChatOptions(session_id=session_id))
        try:
            async with app.run_test(size=size, notifications=True) as pilot:
                yield Person(app, link, pilot)
            if app.failure is not None:
                raise app.failure
        finally:
            await asyncio.to_thread(link.close)

    return down
