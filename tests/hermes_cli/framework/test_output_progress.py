"""What long work shows."""

import io
import re

from hermes_cli.framework.output import Progress


class Screen(io.StringIO):
    """A stream that says whether it is a terminal."""

    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


def work(screen: Screen, seconds: float, total: int | None) -> str:
    """A thousand items, evenly over the given time."""
    now = [0.0]
    with Progress("copying", unit="messages", stream=screen, clock=lambda: now[0]) as progress:
        for done in range(1, 1_001):
            now[0] = done * seconds / 1_000
            progress.update(done, total)
    return screen.getvalue()


def test_short_work_shows_nothing() -> None:
    assert work(Screen(terminal=True), 0.2, 1_000) == ""
    assert work(Screen(terminal=False), 4, 1_000) == ""


def test_a_terminal_sees_a_bar_with_rate_and_time_left_that_is_wiped_at_the_end() -> None:
    shown = work(Screen(terminal=True), 10, 1_000)
    assert "█" in shown
    assert re.search(r"50\d of 1,000 messages \(50 %\) · 100/s · 0:0\d left", shown)
    assert shown.endswith("\r\x1b[K")
    assert "\n" not in shown


def test_elsewhere_there_is_a_line_every_few_seconds_without_control_characters() -> None:
    lines = work(Screen(terminal=False), 20, 1_000).splitlines()
    assert 3 <= len(lines) <= 4
    assert lines[0].startswith("copying  250 of 1,000 messages (25 %) · 50/s · 0:1")
    assert not any("\x1b" in line or "\r" in line for line in lines)


def test_work_of_unknown_length_counts() -> None:
    assert "copying  500 messages · 50/s" in work(Screen(terminal=False), 20, None)
