"""`docs/architecture.md` against real runs: a message takes the path that the page describes, and no other.

Each run is a program of ours with a recorder in it (`tests/support/traced.py`). The modules that the page lists for a
path are entered in that order and call forwards only; every other module that is entered is named as plumbing.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest

from gateway import status
from hermes_testing.scenario import Scenario
from hermes_testing.scripted.model import ScriptedModel
from hermes_testing.scripted.steps import Hold, always, call, say
from hermes_testing.telegram.server import FakeTelegram

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
TRACED = str(ROOT / "tests" / "support" / "traced.py")
MOST_MODULES = 20
_WITHIN = 30.0


class Trace(NamedTuple):
    entered: list[tuple[str, str]]
    """Each module with the first function that was called in it."""
    calls: list[tuple[str, str, str]]


def path_of(title: str) -> list[str]:
    """The modules that the page lists below this title, in order."""
    section = re.search(rf"^### {re.escape(title)}\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert section is not None, f"the page has no path {title!r}"
    return re.findall(r"^\d+\. `([\w.]+)`", section[1], re.MULTILINE)


def plumbing() -> list[str]:
    section = re.search(r"^## Plumbing\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert section is not None
    return re.findall(r"^\| `([\w.]+)` \|", section[1], re.MULTILINE)


PATHS = ("A Telegram message", "An API stream", "A terminal prompt", "Recovery after a crash")


def check(title: str, trace: Trace) -> None:
    listed = path_of(title)
    place = {module: at for at, module in enumerate(listed)}
    assert [module for module, _ in trace.entered if module in place] == listed
    backwards = [
        f"{caller} → {called}: {what}"
        for caller, called, what in trace.calls
        if caller in place and called in place and place[called] < place[caller]
    ]
    assert not backwards
    known = tuple(plumbing())
    strange = [
        f"{module} ({what})"
        for module, what in trace.entered
        if module not in place and not any(module == name or module.startswith(f"{name}.") for name in known)
    ]
    assert not strange, f"entered, but neither listed for {title!r} nor named as plumbing: {strange}"


def written(out: Path, process: int) -> Trace:
    """Have the recorder write what it saw."""
    os.kill(process, signal.SIGUSR2)
    deadline = time.monotonic() + _WITHIN
    while not out.exists():
        assert time.monotonic() < deadline, "the recorder wrote nothing"
        time.sleep(0.02)
    found = json.loads(out.read_text(encoding="utf-8"))
    return Trace([tuple(one) for one in found["entered"]], [tuple(one) for one in found["calls"]])


def recorded(scene: Scenario, out: Path, act: Callable[[], object]) -> Trace:
    os.kill(scene.pid, signal.SIGUSR1)
    act()
    scene.wait(lambda: settled(scene), "everything is delivered")
    return written(out, scene.pid)


def settled(scene: Scenario) -> bool:
    listed = json.loads(scene.hermes("outbox", "list", "--json"))
    rows: list[dict[str, Any]] = listed["items"] if isinstance(listed, dict) else listed
    return not [row for row in rows if row["state"] in ("pending", "sending")]


def scenario(out: Path, model: ScriptedModel, **config: Any) -> Scenario:
    command = [sys.executable, TRACED, str(out), "hermes_cli", "gateway", "run"]
    return Scenario(FakeTelegram(), model, command=command, config={"auto_title": False, **config})


def test_the_page_names_few_modules() -> None:
    decided = {module for title in PATHS for module in path_of(title)}
    assert len(decided) <= MOST_MODULES, sorted(decided)
    there = {
        ".".join(path.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")
        for path in (ROOT / "src").rglob("*.py")
    }
    assert decided <= there
    assert set(plumbing()) <= there, "each chapter of the plumbing is there"


def test_a_telegram_message(tmp_path: Path) -> None:
    out = tmp_path / "trace.json"
    model = ScriptedModel(
        say("First."), say(calls=[call("memory", {"action": "add", "content": "Ada likes tea"})]), say("Noted.")
    )
    with scenario(out, model) as scene:
        ada = scene.owner("ada")
        scene.start()
        ada.say("hello")
        ada.expect("First.")
        scene.wait(lambda: settled(scene), "the first answer is delivered")

        def act() -> None:
            ada.say("remember that I like tea")
            ada.expect("Noted.")

        check("A Telegram message", recorded(scene, out, act))


def test_an_api_stream(tmp_path: Path) -> None:
    out = tmp_path / "trace.json"
    with scenario(out, ScriptedModel(always(say("One, ", "two."))), api_server={"enabled": True, "port": 0}) as scene:
        scene.start()
        key = scene.hermes("api", "key").strip()
        scene.wait(lambda: bool(status.read_status(scene.home).api), "the API listens")
        address = f"http://{status.read_status(scene.home).api}"
        body = {"model": "any", "stream": True, "messages": [{"role": "user", "content": "count"}]}

        def act() -> None:
            answer = httpx2.post(
                f"{address}/v1/chat/completions", json=body, headers={"authorization": f"Bearer {key}"}, timeout=20
            )
            assert "two." in answer.text and "[DONE]" in answer.text

        act()
        scene.wait(lambda: settled(scene), "the first answer is delivered")
        check("An API stream", recorded(scene, out, act))


def test_a_terminal_prompt(tmp_path: Path, home: Path) -> None:
    out = tmp_path / "trace.json"
    home.mkdir(mode=0o700)
    (home / "config.yaml").write_text("model: demo\ndemo: {tokens_per_second: 0}\nauto_title: false\n")
    with subprocess.Popen(
        [sys.executable, TRACED, str(out), "tui_gateway.entry"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True, cwd=tmp_path, env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as process:  # fmt: skip
        assert process.stdin is not None and process.stdout is not None

        def ask(number: int, method: str, **params: Any) -> None:
            assert process.stdin is not None
            process.stdin.write(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}) + "\n")
            process.stdin.flush()

        def until(seen: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
            assert process.stdout is not None
            for line in process.stdout:
                frame = json.loads(line)
                if seen(frame):
                    return dict(frame)
            raise AssertionError("the server ended")

        def over(frame: dict[str, Any]) -> bool:
            return frame.get("method") == "event" and frame["params"]["type"] == "message.complete"

        ask(1, "session.create", cols=80)
        sid = until(lambda frame: frame.get("id") == 1)["result"]["session_id"]
        ask(2, "prompt.submit", session_id=sid, text="hello")
        until(over)
        time.sleep(0.5)  # the first turn's thread ends behind its last frame
        os.kill(process.pid, signal.SIGUSR1)
        ask(3, "prompt.submit", session_id=sid, text="hello again")
        until(over)
        time.sleep(0.5)
        check("A terminal prompt", written(out, process.pid))
        process.stdin.close()
        process.wait(20)


def test_recovery_after_a_crash(tmp_path: Path) -> None:
    out = tmp_path / "trace.json"
    hold = Hold()
    with scenario(out, ScriptedModel(say("Never.", hold=hold), always(say("Back again.")))) as scene:
        ada = scene.owner("ada")
        scene.start()
        ada.say("hello")
        scene.wait(lambda: hold.is_reached, "the model is asked")
        scene.kill()
        hold.release()
        scene.environment["TRACE_FROM_START"] = "1"
        scene.start()
        ada.expect("Back again.")
        scene.wait(lambda: settled(scene), "the answer is delivered")
        check("Recovery after a crash", written(out, scene.pid))


@pytest.mark.parametrize("title", PATHS)
def test_every_step_is_explained(title: str) -> None:
    section = re.search(rf"^### {re.escape(title)}\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert section is not None
    steps = re.findall(r"^\d+\. `[\w.]+` (.*)$", section[1], re.MULTILINE)
    assert len(steps) == len(path_of(title)) and all(len(step.split()) > 3 for step in steps)
