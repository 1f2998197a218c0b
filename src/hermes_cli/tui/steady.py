"""An application that can always be left in order, and that hears what is typed before it stands.

A signal to end, or a terminal that is gone, ends it like Ctrl-D; a defect of ours ends it with the terminal restored,
and `failure` is for whoever ran it. SIGINT, from a program and not from a key, is a Ctrl-C.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from typing import Any

from textual import events
from textual.app import App
from textual.driver import Driver

_DEFECT = 70


def _driver() -> type[Driver] | None:
    if sys.platform == "win32":
        return None
    from hermes_cli.tui.driver import TolerantDriver

    return TolerantDriver


class SteadyApp(App[int]):
    def __init__(self) -> None:
        super().__init__(driver_class=_driver(), ansi_color="NO_COLOR" in os.environ)
        self._early: list[events.Event] | None = []
        """What was typed before there was somewhere to type; afterwards None."""
        self.failure: Exception | None = None

    async def action_stop_or_leave(self) -> None:
        """What Ctrl-C does."""
        self.exit(0)

    def on_load(self) -> None:
        """Before the terminal is touched."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._went_wrong)
        if sys.platform != "win32":
            for number in (signal.SIGTERM, signal.SIGHUP):
                loop.add_signal_handler(number, self.exit, 128 + number)
            loop.add_signal_handler(signal.SIGINT, lambda: self.call_later(self.action_stop_or_leave))

    # -- keys ----------------------------------------------------------------------------------------------

    async def on_event(self, event: events.Event) -> None:
        """A key pressed while the window opens waits for it."""
        if self._early is not None and isinstance(event, (events.Key, events.Paste)):
            self._early.append(event)
        else:
            await super().on_event(event)

    async def listen(self) -> None:
        """There is somewhere to type from now on."""
        early, self._early = self._early or [], None
        for event in early:
            await self.on_event(event)

    # -- the terminal --------------------------------------------------------------------------------------

    def is_behind(self) -> bool:
        """The terminal is slower than we paint."""
        if sys.platform == "win32":
            return False
        from hermes_cli.tui.driver import TolerantDriver

        return isinstance(self._driver, TolerantDriver) and self._driver.is_behind

    # -- what goes wrong -----------------------------------------------------------------------------------

    def fail(self, error: Exception) -> None:
        """It ends with this."""
        if self.failure is None:
            self.failure = error
        self.exit(_DEFECT)

    def _handle_exception(self, error: Exception) -> None:
        """Textual would print a traceback over the restored terminal; ours becomes a line and a report."""
        self.fail(error)

    def _went_wrong(self, loop: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
        """In what the loop itself calls, such as an event of the server."""
        if isinstance(error := context.get("exception"), Exception):
            self.fail(error)
        else:
            loop.default_exception_handler(dict(context))
