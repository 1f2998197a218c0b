"""The README's opening, played at real terminals: every screen it prints is what a newcomer sees.

One demo, one after the other as the page tells it: the desk, the phone, a stranger's phone, the crash, the trace, then
the API with curl and with the official client. What differs from run to run is made equal on both sides (`settled`).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hermes_cli import text
from hermes_testing.terminal import Terminal

pytestmark = pytest.mark.xdist_group("demo")

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
_FRAME = re.compile(r"\x1b\[\?25l\x1b\[H")
_SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_DIFFERS = (
    (r"(?<=│ where   ).*?(?=\n│ for)", "PATH"),
    (r"127\.0\.0\.1:\d+", "127.0.0.1:PORT"),
    (r"\d\d:\d\d:\d\d\.\d{3}", "TIME"),
    (r"[\d.,]+ (ms|s|tokens)\b", r"N \1"),
    (r"^ +(Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day .*$", "DAY"),
    (r" +\d\d:\d\d( edited)?$", " HH:MM"),  # a slow machine shows an answer before it is whole, and edits it
    (r"\d\d:\d\d( ✓|$)", r"HH:MM\1"),
    (r"kill -9 \d+", "kill -9 PID"),
    (r"process \d+", "process PID"),
    (r"\btrace [0-9a-f]{16} · \S+", "trace ID · DATE"),
    (r"\btrace [0-9a-f]{16}$", "trace ID"),
    (r"prefix [0-9a-f]{4}…", "prefix HASH…"),
    (r"fence \d+", "fence N"),  # how many turns this home had before
    (r"\b[A-Z0-9]{8}\b", "CODE"),
    (r"(messages?) [\d, ]+\d", r"\1 N"),
)


def settled(shown: str) -> str:
    """A screen without what differs from run to run."""
    for pattern, word in _DIFFERS:
        shown = re.sub(pattern, word, shown, flags=re.DOTALL if "where" in pattern else re.MULTILINE)
    return "\n".join(line.rstrip() for line in shown.strip("\n").splitlines())


def printed(heading: str, *, fence: str = "text", which: int = 0) -> str:
    """A block of this kind below a heading of the README."""
    below = README.partition(f"\n### {heading}")[2].partition("\n### ")[0].partition("\n## ")[0]
    blocks = re.findall(rf"^```{fence}\n(.*?)^```", below, re.DOTALL | re.MULTILINE)
    assert len(blocks) > which, f"the README has no such {fence} below {heading!r}"
    return str(blocks[which])


def until(seen: Callable[[], object], what: str, *, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not seen():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.05)


class Phone(Terminal):
    """`make phone`: a whole window, drawn again at each change."""

    def __init__(self, name: str, *, lines: int) -> None:
        super().__init__(
            [sys.executable, "-m", "hermes_testing.phone", "--as", name], env={"NO_COLOR": "1"}, columns=80, lines=lines
        )

    def frame(self) -> str:
        """The window as it stands."""
        last = _SEQUENCE.sub("", _FRAME.split(self.raw)[-1])
        return "\n".join(line.rstrip() for line in last.replace("\r", "").splitlines())

    def wait(self, words: str) -> str:
        """Until the words stand there and nothing is being written any more."""

        def rests() -> bool:
            self._read(time.monotonic() + 0.1)
            shown = self.frame()
            return words in shown and "▉" not in shown and "typing" not in shown

        until(rests, words)
        return self.frame()


class Demo:
    """A clone with a running demo in it."""

    def __init__(self, folder: Path, desk: Terminal) -> None:
        self.folder, self.desk = folder, desk

    def shell(self, script: str) -> str:
        """In a second terminal of the same folder, with the line that the demo prints for it."""
        line = 'export HERMES_HOME="$PWD/.demo" PATH="$PWD/.venv/bin:$PATH"'
        ran = subprocess.run(
            ["/bin/bash", "-euc", f"{line}\n{script}"], capture_output=True, text=True, check=False, cwd=self.folder,
            env={"PATH": "/usr/bin:/bin", "HOME": os.environ["HOME"], "NO_COLOR": "1", "LANG": "C.UTF-8"},
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    @property
    def port(self) -> str:
        found = re.search(r"127\.0\.0\.1:(\d+)", self.desk.shown)
        assert found is not None
        return found[1]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    folder = tmp_path_factory.mktemp("five") / "hermes"
    folder.mkdir()
    (folder / ".venv").symlink_to(sys.prefix)
    (folder / "Makefile").touch()
    environment = {"NO_COLOR": "1", "PATH": "/usr/bin:/bin", "HOME": str(folder.parent)}
    with Terminal([sys.executable, "-m", "hermes_cli", "demo", "--plain"], cwd=folder, env=environment) as desk:
        desk.ready()
        yield Demo(folder, desk)


def test_minutes_one_and_two_it_works_and_it_asks(demo: Demo) -> None:
    desk = demo.desk
    desk.type("list the files here")
    desk.see("of $1.00")
    desk.ready()
    desk.type("delete the folder old")
    desk.see("(Enter) >")
    desk.press("enter")
    desk.see("of $1.00", times=2)
    shown = desk.ready()
    assert settled(shown) == settled(printed("Minutes 1 and 2"))
    assert max(map(text.width, shown.splitlines())) <= 80
    assert (demo.folder / ".demo" / "workspace" / "old").is_dir()


def test_minute_three_phone_and_desk_are_one_conversation(demo: Demo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(demo.folder)
    before = demo.desk.ready()
    with Phone("ada", lines=12) as phone:
        phone.see("Enter sends")
        phone.type("what is 17 * 4?")
        window = phone.wait("17 * 4 = 68")
    demo.desk.see("of $1.00", times=before.count("of $1.00") + 1)
    desk = demo.desk.ready().removeprefix(before.removesuffix("> "))
    assert settled(window) == settled(printed("Minute 3"))
    assert settled(desk) == settled(printed("Minute 3", which=1))


def test_a_stranger_gets_no_further_than_a_code(demo: Demo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(demo.folder)
    before = demo.desk.shown
    with Phone("mallory", lines=18) as phone:
        phone.see("Enter sends")
        phone.type("what did Ada say?")
        window = phone.wait("to anybody else")
    assert settled(window) == settled(printed("A stranger"))
    assert demo.desk.shown == before


def test_minute_four_kill_it(demo: Demo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(demo.folder)
    with Phone("ada", lines=14) as phone:
        phone.see("Enter sends")
        phone.type("tell me the long story")
        phone.see("harbour town")
        config = demo.folder / ".demo" / "config.yaml"
        config.write_text(config.read_text().replace("tokens_per_second: 60", "tokens_per_second: 0"))  # not all night
        shown = demo.shell(
            'echo "$ make crash"; hermes demo crash; echo; echo "$ hermes trace last"; hermes trace last'
        )
    assert settled(shown) == settled(printed("Minute 4"))
    back = re.search(r"back after ([\d.]+) s", shown)
    assert back is not None and float(back[1]) < 5


def test_minute_five_curl(demo: Demo) -> None:
    command = printed("Minute 5", fence="sh").replace("8642", demo.port)
    said = re.findall(r'"content":"([^"]*)"', demo.shell(command))
    assert "".join(said) == "17 * 4 = 68"


def test_minute_five_the_official_client(demo: Demo) -> None:
    program = printed("Minute 5", fence="python").replace("8642", demo.port)
    (demo.folder / "ask.py").write_text(program, encoding="utf-8")
    assert demo.shell("python ask.py").strip() == "17 * 4 = 68"


def test_the_end(demo: Demo) -> None:
    demo.desk.ready()
    demo.desk.press("ctrl-d")
    assert demo.desk.end() == 0
    shown = "".join(demo.desk.shown.partition("Go on in this shell:")[1:])
    assert settled(shown) == settled(printed("The end"))
