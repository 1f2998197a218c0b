"""Two threads, one terminal: what is shown, and how Ctrl-C leaves."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Iterator

import pytest

from hermes_cli.chat.terminal_loop import TerminalLoop, UserQuit


@pytest.fixture
def stage() -> Iterator[TerminalLoop]:
    made = TerminalLoop()
    yield made
    made.close()


def press_ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_what_is_posted_is_shown_in_order_on_the_main_thread(stage: TerminalLoop) -> None:
    shown: list[tuple[int, bool]] = []

    async def work() -> str:
        for number in range(100):
            here = threading.current_thread()
            stage.post(lambda n=number, t=here: shown.append((n, threading.current_thread() is not t)))  # type: ignore[misc]
            await asyncio.sleep(0)
        return "done"

    assert stage.drive(work(), interrupt=lambda: None) == "done"
    assert shown == [(number, True) for number in range(100)]


def test_an_error_of_the_work_comes_through(stage: TerminalLoop) -> None:
    async def work() -> None:
        raise LookupError("lost")

    with pytest.raises(LookupError, match="lost"):
        stage.drive(work(), interrupt=lambda: None)


def test_one_ctrl_c_is_handed_on_and_the_work_goes_on(stage: TerminalLoop) -> None:
    stopped = threading.Event()

    async def work() -> str:
        press_ctrl_c()
        await asyncio.to_thread(stopped.wait)
        return "kept"

    assert stage.drive(work(), interrupt=stopped.set) == "kept"


def test_the_second_ctrl_c_leaves_and_the_work_may_write_down_its_end(stage: TerminalLoop) -> None:
    written: list[str] = []

    async def stubborn() -> None:
        try:
            press_ctrl_c()
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.2)
            written.append("the end")

    with pytest.raises(UserQuit):
        stage.drive(stubborn(), interrupt=press_ctrl_c)
    assert written == ["the end"]


def test_a_terminal_that_goes_away_ends_the_work(stage: TerminalLoop) -> None:
    written: list[str] = []

    def broken() -> None:
        raise BrokenPipeError

    async def work() -> None:
        stage.post(broken)
        try:
            await asyncio.sleep(60)
        finally:
            written.append("the end")

    with pytest.raises(BrokenPipeError):
        stage.drive(work(), interrupt=lambda: None)
    assert written == ["the end"]
