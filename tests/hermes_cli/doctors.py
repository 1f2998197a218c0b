"""What the tests of `hermes doctor` share: a home with nothing wrong, a shell to run advice in, and what was found."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from hermes_state.session_db import SessionDB


def shell(line: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", line], capture_output=True, text=True, check=False, timeout=60,
        stdin=subprocess.DEVNULL, env={**os.environ, **environment},
    )  # fmt: skip


def doctor(*flags: str) -> dict[str, Any]:
    ran = shell(f"hermes doctor --json {' '.join(flags)}")
    assert ran.stderr == "", ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout)
    assert ran.returncode == (0 if found["ok"] else 1)
    return found


def wrong(found: dict[str, Any]) -> list[dict[str, Any]]:
    return [one for one in found["checks"] if one["mark"] != "ok"]


class Opened:
    def __init__(self, home: Path) -> None:
        self._db = SessionDB(home / "state.db")

    def __enter__(self) -> SessionDB:
        return self._db

    def __exit__(self, *_: object) -> None:
        self._db.close()
