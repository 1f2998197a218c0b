"""`make pictures`: the pictures of the terminal window in the docs, taken of the window itself with the demo model.

    python -m hermes_testing.pictures docs/users/images

A throw-away home, a real server process, the scenes below; SVG as Textual exports it. Times in them differ from run to
run, so they are made on demand and not compared.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from hermes_cli import demo_home
from hermes_cli.tui.app import HermesApp
from hermes_cli.tui.launch import Start
from hermes_cli.tui.link import Link
from hermes_config.home import private_open

_SIZE = (90, 24)
_SECONDS = 30.0


async def _take(folder: Path) -> None:
    link = Link()
    link.start()
    app = HermesApp(link, Start())
    try:
        async with app.run_test(size=_SIZE) as pilot:

            async def see(words: str) -> None:
                await _until(lambda: words in _shown(app))

            async def say(text: str) -> None:
                await pilot.press(*({" ": "space"}.get(key, key) for key in text), "enter")

            def keep(name: str) -> None:
                (folder / f"{name}.svg").write_text(app.export_screenshot(title="hermes"), encoding="utf-8")

            await see("ready")
            await say("list the files here")
            await see("delete the folder old”")
            await pilot.press("ctrl+o")
            await see("▾")
            keep("conversation")
            await pilot.press("ctrl+o")
            await say("delete the folder old")
            await see("Hermes wants")
            keep("approval")
            await asyncio.sleep(1.0)
            await pilot.press("d")
            await see("ready")
            await pilot.press("f4", "ctrl+r")
            await see("Enter takes")
            keep("conversations")
    finally:
        await asyncio.to_thread(link.close)


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
        os.chdir(place)
        asyncio.run(_take(folder))
        os.chdir("/")


if __name__ == "__main__":
    main()
