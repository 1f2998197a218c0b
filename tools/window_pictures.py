"""The docs' pictures of the terminal window, taken of the window itself with the demo model.

    python -m tools.window_pictures docs/users/images

A throw-away home, a real server process, the scenes below; SVG as Textual exports it. Times in them differ from run to
run, so they are made on demand and not compared.
"""

from __future__ import annotations

import asyncio
import html
import os
import re
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from textual.pilot import Pilot

from hermes_cli.demo import command
from hermes_cli.demo import home as demo_home
from hermes_cli.framework import store, text
from hermes_cli.sessions import lookup
from hermes_cli.tui.app import HermesApp
from hermes_cli.tui.rpc_client import ChatOptions, RpcClient
from hermes_config.home import private_open

_SIZE = (90, 24)
_SECONDS = 30.0
_FONT_FACES = re.compile(r"\s*@font-face \{[^}]*\}")
"""Textual's pictures name fonts on a server of somebody else; without them the reader's own monospace font is used."""
_STRETCHED = re.compile(r'textLength="[\d.]+"([^>]*)>([^<]*)</text>')
_CELL = 12.2


def _wide(found: re.Match[str]) -> str:
    """A text as wide as its cells: Textual counts a wide character as one, and squeezes it."""
    return f'textLength="{text.width(html.unescape(found[2])) * _CELL:g}"{found[1]}>{found[2]}</text>'


class _Scene:
    """A window that is talked to, and of which pictures are kept."""

    def __init__(self, app: HermesApp, pilot: Pilot[int], folder: Path) -> None:
        self._app, self._folder = app, folder
        self.press = pilot.press

    async def see(self, words: str) -> None:
        await _until(lambda: words in _shown(self._app))

    async def say(self, text: str) -> None:
        await self.press(*({" ": "space"}.get(key, key) for key in text), "enter")

    def keep(self, name: str) -> None:
        picture = _FONT_FACES.sub("", self._app.export_screenshot(title="hermes"))
        picture = _STRETCHED.sub(_wide, picture)
        (self._folder / f"{name}.svg").write_text(picture, encoding="utf-8")


@asynccontextmanager
async def _window(folder: Path, start: ChatOptions) -> AsyncIterator[_Scene]:
    link = RpcClient()
    link.start()
    app = HermesApp(link, start)
    try:
        async with app.run_test(size=_SIZE) as pilot:
            scene = _Scene(app, pilot, folder)
            await scene.see("ready")
            yield scene
    finally:
        await asyncio.to_thread(link.close)


async def _take(folder: Path, demo: ChatOptions) -> None:
    async with _window(folder, demo) as scene:
        await scene.see("long story")
        scene.keep("demo")
    async with _window(folder, ChatOptions()) as scene:
        await scene.say("list the files here")
        await scene.see("delete the folder old”")
        await scene.press("ctrl+o")
        await scene.see("▾")
        scene.keep("conversation")
        await scene.press("ctrl+o")
        await scene.say("delete the folder old")
        await scene.see("Hermes wants")
        await asyncio.sleep(1.0)
        scene.keep("approval")
        await scene.press("d")
        await scene.see("ready")
        await scene.press("f4", "ctrl+r")
        await scene.see("Enter chooses")
        scene.keep("conversations")
        await scene.press("escape")
        await scene.say("run head -3 notes.md")
        await scene.see("ran.")
        await scene.say("what did I just say? See @notes.md")
        await scene.see("You just said")
        await scene.see("ready")
        scene.keep("light")


async def _until(seen: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _SECONDS
    while not seen():
        if time.monotonic() > deadline:
            raise SystemExit("pictures: the window did not show what was waited for")
        await asyncio.sleep(0.05)


def _shown(app: HermesApp) -> str:
    return "\n".join(strip.text for strip in app.screen._compositor.render_strips())


def main() -> None:
    folder = Path(sys.argv[1]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="hermes-pictures-") as name:
        home, place = Path(name) / "home", Path(name) / "trip"
        home.mkdir(mode=0o700)
        (place / "old").mkdir(parents=True)
        (place / "notes.md").write_text("# Notes\n")
        (place / "packing.txt").write_text("passport\n")
        with private_open(home / "config.yaml") as file:
            file.write("model: demo\ndemo:\n  tokens_per_second: 0\n")
        demo_home.build(home / "state.db", time.time(), phone=1)
        os.environ["HERMES_HOME"], os.environ["HOME"] = str(home), name
        os.environ.pop("HERMES_DATABASE_URL", None)
        with store.open_store() as db:
            card = command.card(db, "./.demo", 8642)
            demo = ChatOptions(session_id=lookup.find(db, demo_home.TRIP)["id"], card=card)
        os.chdir(place)
        asyncio.run(_take(folder, demo))
        os.chdir("/")


if __name__ == "__main__":
    main()
