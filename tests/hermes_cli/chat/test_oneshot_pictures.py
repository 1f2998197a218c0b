"""`--image`: only pictures are taken, and they reach the model."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from hermes_testing.scripted.model import ScriptedModel, say

pytestmark = pytest.mark.slow


def ask(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hermes_cli", "-q", "what is this?", "--model", "demo", *arguments]
    environ = {**os.environ, "HERMES_HOME": str(home)}
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(("name", "data"), [("fake.png", b"text"), ("missing.png", None)])
def test_what_is_no_picture_is_refused(home: Path, tmp_path: Path, name: str, data: bytes | None) -> None:
    if data is not None:
        (tmp_path / name).write_bytes(data)
    said = ask(home, "--image", str(tmp_path / name))
    assert said.returncode == 2 and "--image" in said.stderr and name in said.stderr


def test_a_picture_goes_along(home: Path, tmp_path: Path) -> None:
    """The demo model does not see; the model that does, and describes it, was sent the picture."""
    (tmp_path / "a b.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"0" * 64)
    eyes = ScriptedModel(say("A cat."))
    with eyes.served() as server:
        vision = {**eyes.settings(server.origin), "model": eyes.model}
        config = {"auto_title": False, "demo": {"tokens_per_second": 0}, "auxiliary": {"vision": vision}}
        home.mkdir(mode=0o700)
        (home / "config.yaml").write_text(yaml.safe_dump(config))
        said = ask(home, "--image", str(tmp_path / "a b.png"), "--json")
    assert said.returncode == 0, said.stderr
    assert "data:image/png;base64," in eyes.requests[0].body.decode()
