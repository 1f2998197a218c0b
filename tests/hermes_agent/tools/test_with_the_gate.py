"""The tools and the real gate together, with nobody there to ask."""

from __future__ import annotations

import pytest

from hermes_agent.approvals.gate import CommandGate
from hermes_config.config import of as config_of

from .conftest import Bench


@pytest.fixture
def alone(bench: Bench) -> Bench:
    gate = CommandGate(
        db=bench.ctx.db, home=bench.ctx.home, config=config_of(bench.ctx.home, {}), sandbox="bubblewrap",
        conversation_id=bench.ctx.conversation_id,
        turn_id=bench.ctx.turn_id, person_id=bench.ctx.person_id, approver=None,
    )  # fmt: skip
    return bench.with_(gate=gate.for_call("call_1"))


def test_work_inside_the_workspace_needs_nobody(alone: Bench) -> None:
    assert "created" in alone.call("write_file", path="notes/a.txt", content="one\n").content
    assert not alone.call("patch", path="notes/a.txt", old_string="one", new_string="two").is_error
    assert "two" in alone.call("read_file", path="notes/a.txt").content
    assert alone.call("terminal", command="ls notes").content == "a.txt\n[exit code 0]"
    assert "notes/a.txt" in alone.call("search_files", pattern="two").content


def test_harm_secrets_and_places_outside_are_refused_when_nobody_can_be_asked(alone: Bench) -> None:
    kept = alone.write("old/keep.txt", "x")
    alone.write(".env", "TOKEN=canary")
    outside = alone.ctx.home.parent / "outside.txt"
    (alone.workdir / "way-out").symlink_to(outside)
    for name, args in (
        ("terminal", {"command": "rm -r old"}),
        ("terminal", {"command": "rm -rf /"}),
        ("read_file", {"path": ".env"}),
        ("read_file", {"path": str(alone.ctx.home / "config.yaml")}),
        ("write_file", {"path": str(outside), "content": "x"}),
        ("write_file", {"path": "way-out", "content": "x"}),
        ("write_file", {"path": str(alone.ctx.home / "config.yaml"), "content": "x"}),
        ("patch", {"path": ".env", "old_string": "canary", "new_string": "x"}),
    ):
        result = alone.call(name, **args)
        assert result.is_error and "canary" not in result.content, (name, args)
    assert kept.exists() and not outside.exists() and not (alone.ctx.home / "config.yaml").exists()
