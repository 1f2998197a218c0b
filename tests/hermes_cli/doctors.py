"""What tests of faults share: a shell to run advice in, what the doctor found, worlds in which a place is at fault."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.support.processes import bubblewrap_works, works
from tests.support.terminal import Terminal

from hermes_state.session_db import SessionDB

_ROOT = os.getuid() == 0
MOUNTS = ["unshare", "-m" if _ROOT else "-rm"]
"""A command in front of another: mounts that it makes are its own, and gone with it."""
PLAIN = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search,-fowner"] if _ROOT else []
"""The same, without root's right to pass by permissions."""
needs_mounts = pytest.mark.skipif(
    not works(*MOUNTS, "mount", "-t", "tmpfs", "none", "/tmp"),
    reason="needs unshare, and the right to mount in a namespace of one's own",
)
needs_plain = pytest.mark.skipif(not works(*PLAIN, "true"), reason="needs setpriv: this runs as root")
READ_ONLY = 'mount --bind "$HERMES_HOME" "$HERMES_HOME" && mount -o remount,bind,ro "$HERMES_HOME"'


def shell(line: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", line], capture_output=True, text=True, check=False, timeout=60,
        stdin=subprocess.DEVNULL, env={**os.environ, **environment},
    )  # fmt: skip


def typed(command: str, *answers: tuple[str, str]) -> None:
    """Run the command as it was printed, at a terminal, and answer what it asks."""
    with Terminal(["bash", "-c", command], columns=120) as window:
        for question, answer in answers:
            window.see(question)
            window.type(answer)
        assert window.end() == 0, window.shown


MODEL = "Type a number, a model"
THE_REST = (("Paste the bot's token", ""), ("does something risky?", ""), ("on models per day?", ""))
"""The questions of `hermes setup`: the first, and Enter for those that follow on the model."""


def doctor(*flags: str) -> dict[str, Any]:
    ran = shell(f"hermes doctor --json {' '.join(flags)}")
    assert ran.stderr == "", ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout)
    assert ran.returncode == (0 if found["ok"] else 1)
    return found


def wrong(found: dict[str, Any]) -> list[dict[str, Any]]:
    """What the doctor names, except that bubblewrap does not work here, where that is so."""
    expected = set() if bubblewrap_works() else {"executor"}
    return [one for one in found["checks"] if one["mark"] != "ok" and one["check"] not in expected]


class Opened:
    def __init__(self, home: Path) -> None:
        self._db = SessionDB(home / "state.db")

    def __enter__(self) -> SessionDB:
        return self._db

    def __exit__(self, *_: object) -> None:
        self._db.close()
