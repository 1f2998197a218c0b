"""The page of the first five minutes, played at real terminals: every screen it prints is what a newcomer sees.

One demo, one after the other as the page tells it: the window, the phone, a stranger's phone, the crash, the trace,
then what a shell beside it can do, and a home of one's own. What differs from run to run is made equal on both sides
(`settled`); a screen of the page may be a part of the window, cut out whole lines at a time.
"""

from __future__ import annotations

import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests.hermes_cli.model_server import ModelServer
from tests.support.old_homes import OldHome
from tests.support.screen_terminal import ScreenTerminal
from tests.support.terminal import Terminal

from hermes_cli.framework import text
from hermes_state import SessionDB

pytestmark = pytest.mark.xdist_group("demo")

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "users" / "first-five-minutes.md").read_text(encoding="utf-8")
_DIFFERS = (
    (r"\b\d{8}_\d{6}_[0-9a-f]{8}\b", "ID"),
    (r"/\S+/\.(demo|hermes\S*)", r"/PATH/.\1"),
    (r"[\d.]+ (kB|MB)", "N kB"),
    (r"\d+ messages", "N messages"),
    (r"up [^)]*\)", "up N)"),
    (r"\b(now|\d+ (min|h|d))\b", "AGE"),
    (r"127\.0\.0\.1:\d+", "127.0.0.1:PORT"),
    (r"\d\d:\d\d:\d\d\.\d{3}", "TIME"),
    (r"[\d.,]+ m?s\b", "N s"),
    (r"[\d.,]+ tokens\b", "N tokens"),
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
        shown = re.sub(pattern, word, shown, flags=re.MULTILINE)
    return "\n".join(line.rstrip() for line in shown.strip("\n").splitlines())


def printed(heading: str, *, fence: str = "text", which: int = 0) -> str:
    """A block of this kind below a heading of the page."""
    below = PAGE.partition(f"\n## {heading}")[2].partition("\n## ")[0]
    blocks = re.findall(rf"^```{fence}\n(.*?)^```", below, re.DOTALL | re.MULTILINE)
    assert len(blocks) > which, f"the page has no such {fence} below {heading!r}"
    return str(blocks[which])


def window_of(screen: str) -> str:
    """A window's screen without its scroll bar, which stands in the last column."""
    return "\n".join(line[:-1].rstrip() if text.width(line) == 80 else line for line in screen.splitlines())


def box_of(screen: str) -> str:
    """The box that stands above everything else in the window; nothing until all four corners are painted."""
    if not all(corner in screen for corner in "╭╮╰╯"):
        return ""
    lines = screen.splitlines()
    top = next(at for at, line in enumerate(lines) if "╭" in line)
    end = next(at for at, line in enumerate(lines) if "╰" in line)
    left, right = lines[top].index("╭"), lines[top].index("╮")
    return "\n".join(line[left : right + 1] for line in lines[top : end + 1])


def until(seen: Callable[[], object], what: str, *, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not seen():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.05)


class Phone(ScreenTerminal):
    """`make phone`, in a terminal of 80 columns."""

    def __init__(self, name: str, *, lines: int) -> None:
        super().__init__([sys.executable, "-m", "hermes_testing.phone", "--as", name], lines=lines)

    def wait(self, words: str) -> str:
        """Until the words stand there and nothing is being written any more."""

        def rests() -> bool:
            self._read(time.monotonic() + 0.1)
            shown = self.shown
            return words in shown and "▉" not in shown and "typing" not in shown

        until(rests, words)
        return self.shown


class Demo:
    """A clone with a running demo in it."""

    def __init__(self, folder: Path, desk: ScreenTerminal) -> None:
        self.folder, self.desk = folder, desk

    def window(self, words: str) -> str:
        """The window once it shows the words and rests."""
        self.desk.see(words)
        self.desk.see("\n ready · ")
        return settled(window_of(self.desk.shown))

    def shows(self, screen: str, part: Callable[[str], str] = window_of) -> None:
        """Waits until this stands in the window; what is painted comes in pieces."""
        wanted, deadline = settled(screen), time.monotonic() + 30
        while wanted not in (shown := settled(part(self.desk.shown))):
            assert time.monotonic() < deadline, f"not seen:\n{wanted}\nbut:\n{shown}"
            self.desk._read(time.monotonic() + 0.1)

    def at_rest(self) -> str:
        """The window once all that was on its way is painted."""
        self.desk.see("\n ready · ")
        while self.desk._read(time.monotonic() + 1.0):
            pass
        return self.desk.shown

    def delivered(self) -> None:
        """Wait until nothing is owed to a chat any more."""
        db = SessionDB(self.folder / ".demo" / "state.db")
        try:
            for _ in range(100):
                if not db.outbox.owed_count():
                    return
                time.sleep(0.2)
        finally:
            db.close()

    def shell(self, script: str, **environment: str) -> str:
        """In a second terminal of the same folder, with the line that the demo prints for it."""
        line = 'export HERMES_HOME="$PWD/.demo" PATH="$PWD/.venv/bin:$PATH"'
        return at_a_terminal(f"{line}\n{script}", folder=self.folder, **environment).end()

    @property
    def port(self) -> str:
        found = re.search(r"127\.0\.0\.1:(\d+)", self.desk.raw)
        assert found is not None
        return found[1]


class Shell(Terminal):
    """A script, typed into a terminal of 80 columns."""

    def end(self) -> str:  # type: ignore[override]
        assert super().end() == 0, self.shown
        return self.shown


def at_a_terminal(script: str, *, folder: Path, **environment: str) -> Shell:
    given = {"PATH": "/usr/bin:/bin", "HOME": str(folder.parent), "NO_COLOR": "1", "LANG": "C.UTF-8", **environment}
    return Shell(["/usr/bin/env", "-i", *(f"{name}={value}" for name, value in given.items()), "TERM=xterm",
                  "/bin/bash", "-euc", script], cwd=folder)  # fmt: skip


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    folder = tmp_path_factory.mktemp("five") / "hermes"
    folder.mkdir()
    (folder / ".venv").symlink_to(sys.prefix)
    (folder / "Makefile").touch()
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(folder.parent)}
    with ScreenTerminal([sys.executable, "-m", "hermes_cli", "demo"], cwd=folder, env=environment) as desk:
        desk.see("gateway answers")
        yield Demo(folder, desk)


def test_minute_one_it_works(demo: Demo) -> None:
    demo.shows(printed("Minute 1"))
    demo.desk.type("list the files here")
    demo.shows(printed("Minute 1", which=1))


@pytest.mark.needs_bubblewrap
def test_minute_two_it_asks(demo: Demo) -> None:
    demo.desk.type("delete the folder old")
    demo.shows(printed("Minute 2"), box_of)
    time.sleep(0.7)  # keys that were on their way when the box appeared do not answer it
    demo.desk.press("enter")
    demo.shows(printed("Minute 2", which=1))
    assert (demo.folder / ".demo" / "workspace" / "old").is_dir()


@pytest.mark.needs_bubblewrap
def test_minute_three_phone_and_desk_are_one_conversation(demo: Demo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(demo.folder)
    demo.delivered()  # what was said at the desk comes to the phone at the platform's own pace
    with Phone("ada", lines=12) as phone:
        phone.see("Enter sends")
        phone.type("what is 17 * 4?")
        assert settled(phone.wait("17 * 4 = 68")) == settled(printed("Minute 3"))
    demo.shows(printed("Minute 3", which=1))


def test_a_stranger_gets_no_further_than_a_code(demo: Demo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(demo.folder)
    before = demo.at_rest()
    with Phone("mallory", lines=18) as phone:
        phone.see("Enter sends")
        phone.type("what did Ada say?")
        window = phone.wait("to anybody else")
    assert settled(window) == settled(printed("A stranger"))
    assert demo.at_rest() == before


@pytest.mark.needs_bubblewrap
def test_minute_four_kill_it(demo: Demo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(demo.folder)
    with Phone("ada", lines=14) as phone:
        phone.see("Enter sends")
        phone.type("what is 3 * 4?")  # the trace tells of a conversation that has begun
        phone.wait("3 * 4 = 12")
        phone.type("tell me the long story")
        demo.desk.see("harbour town")
        config = demo.folder / ".demo" / "config.yaml"
        config.write_text(
            config.read_text().replace("tokens_per_second: 60", "tokens_per_second: 500")
        )  # not all night
        crash = at_a_terminal(
            'export HERMES_HOME="$PWD/.demo" PATH="$PWD/.venv/bin:$PATH"\n'
            'echo "$ make crash"; hermes demo crash | cat; echo; echo "$ hermes trace last"; hermes trace last',
            folder=demo.folder,
        )
        demo.desk.see("another one continues where it stopped")
        shown = crash.end()
    assert settled(shown) == settled(printed("Minute 4"))
    back = re.search(r"back after ([\d.]+) s", shown)
    assert back is not None and float(back[1]) < 5
    demo.window("It is also written down.")


def test_the_moving_picture_ends_as_the_page_says() -> None:
    svg = "{http://www.w3.org/2000/svg}"
    picture = ElementTree.parse(ROOT / "docs" / "images" / "crash.svg").getroot()
    rows = {f"#{row.get('id')}": "".join(row.itertext()) for row in picture.findall(f"{svg}defs/{svg}g")}
    shell = picture.findall(f"{svg}svg")[-1].findall(f"{svg}g/{svg}g")
    shown = "\n".join(rows[str(use.get("href"))] for use in shell[-1])
    told = printed("Minute 4").partition("\n\n")[0]
    assert settled(shown).removesuffix("\n$") == "\n".join(line.strip() for line in settled(told).splitlines())


@pytest.mark.needs_bubblewrap
def test_minute_five_what_is_there(demo: Demo) -> None:
    for which, command in enumerate(("hermes sessions search 京都", "hermes status")):
        said, block = settled(demo.shell(command)), settled(printed("Minute 5", which=which))
        assert block.startswith(f"$ {command}\n")
        assert block.partition("\n")[2] in said


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl, which this minute of the guide runs")
def test_minute_five_curl(demo: Demo) -> None:
    command = printed("Minute 5", fence="sh").replace("8642", demo.port)
    said = re.findall(r'"content":"([^"]*)"', demo.shell(command))
    assert "".join(said) == "17 * 4 = 68"


def test_minute_five_the_official_client(demo: Demo) -> None:
    program = printed("Minute 5", fence="python").replace("8642", demo.port)
    (demo.folder / "ask.py").write_text(program, encoding="utf-8")
    assert demo.shell("python ask.py").strip() == "17 * 4 = 68"


def test_the_end(demo: Demo) -> None:
    demo.desk.press("ctrl-d")
    assert demo.desk.end() == 0
    shown = "".join(demo.desk.shown.partition("Continue in this shell:")[1:])
    assert settled(shown) == settled(printed("The end"))


# -- a home of one's own -----------------------------------------------------------------------------------------


def test_set_up_asks_five_questions_and_tries_the_model_it_found(tmp_path: Path) -> None:
    server = ModelServer()
    try:
        with at_a_terminal(
            f'export PATH="{sys.prefix}/bin:$PATH"; hermes setup', folder=_folder(tmp_path), OLLAMA_HOST=server.address
        ) as shell:
            for question in re.findall(r"\(Enter[^)]*\)", printed("Your own")):
                shell.see(question)
                shell.press("enter")
            assert settled(shell.end()) == settled(printed("Your own").partition("\n")[2])
    finally:
        server.close()
    assert server.asked, "it was tried"


def test_a_home_of_the_reference_is_read_and_told(tmp_path: Path) -> None:
    theirs = OldHome(tmp_path / ".hermes")
    theirs.conversation("trip", 2, title="Trip plan")
    theirs.conversation("chat", 1, source="telegram", user_id="42", chat_type="dm")
    theirs.route("agent:main:telegram:dm:42", "chat")
    theirs.close()
    first, _, told = printed("Your own", which=1).partition("\n")
    shell = at_a_terminal(f'export PATH="{sys.prefix}/bin:$PATH"; {first.removeprefix("$ ")}', folder=_folder(tmp_path))
    assert settled(shell.end()) == settled(told)
    assert not (tmp_path / ".hermes-new" / "state.db").exists()


def _folder(home: Path) -> Path:
    made = home / "hermes"
    made.mkdir()
    return made
