"""Background processes of a terminal without a gateway: it learns of their end, lists them and ends them."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from tests.tui_gateway.client import StdioClient

from hermes_testing.scripted.model import ScriptedModel, call, say, saying

pytestmark = pytest.mark.slow

UNTIL = "until [ -e go ]; do sleep 0.1; done; echo built"


def test_a_terminal_hears_of_the_end_and_ends_what_it_is_told_to(demo_home: Path, tmp_path: Path) -> None:
    model = ScriptedModel(
        say(calls=[call("terminal", {"command": UNTIL, "background": True})]),
        say("It has begun."),
        say("I was told of the end.", when=saying("[Background process")),
        say(calls=[call("terminal", {"command": "sleep 600", "background": True})]),
        say("Another one."),
    )
    (tmp_path / "project").mkdir()
    with model.served() as served:
        settings = {"model": model.settings(served.origin), "auto_title": False}
        (demo_home / "config.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")
        with StdioClient(demo_home, cwd=tmp_path / "project") as client:
            sid = client.call("session.create")["session_id"]
            client.call("prompt.submit", session_id=sid, text="build it")
            assert client.event("message.complete", sid)["text"] == "It has begun."
            (row,) = client.call("process.list", session_id=sid)["processes"]
            assert (row["state"], row["command"]) == ("running", UNTIL)
            (tmp_path / "project" / "go").touch()
            assert client.event("message.complete", sid)["text"] == "I was told of the end."
            client.call("prompt.submit", session_id=sid, text="another")
            assert client.event("message.complete", sid)["text"] == "Another one."
            second = client.call("process.list")["processes"][0]
            assert client.call("process.kill", process_id=second["id"])["state"] == "killed"
            assert client.call("process.stop", session_id=sid) == {"killed": []}
            states = {one["id"]: one["state"] for one in client.call("process.list", session_id=sid)["processes"]}
            assert states == {row["id"]: "exited", second["id"]: "killed"}
