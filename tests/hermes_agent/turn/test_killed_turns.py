"""A turn with three effects, killed at every point at which it touches the store, and taken up again.

The model is a real server in this process; the turn runs in a child that is gone at its n-th point (SIGKILL). Then
another process takes the conversation up: every effect happened at most once, the answer arrives, and the transcript
is one a provider accepts (the scripted model is strict about that).
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.kill_points import Points
from tests.support.stores import TestStores

from hermes_agent import AIAgent
from hermes_config import config as configuration
from hermes_state import SessionDB
from hermes_testing.scripted.model import ScriptedModel, ScriptedRequest, always, call, say

pytestmark = pytest.mark.slow

EFFECTS = ("one", "two", "three")
CALLS = [call("terminal", {"command": f"echo {word} >> effects.txt"}) for word in EFFECTS]
KILLS = 24


def waits_for_tools(request: ScriptedRequest) -> bool:
    return request.messages[-1]["role"] == "tool"


def model() -> ScriptedModel:
    """Three calls for a question, and the answer when their results are there."""
    asked = always(say("I will do it.", calls=CALLS, when=lambda request: not waits_for_tools(request)))
    return ScriptedModel(asked, always(say("All done.", when=waits_for_tools)))


def turn(address: str | Path, endpoint: Any, home: Path, work: Path, fatal: int = 0) -> tuple[dict[str, Any], int]:
    """Take up what is unfinished, or ask for the first time; the result and how many points were met."""
    points = Points(fatal)
    points.watch()
    db = SessionDB(address)
    agent = AIAgent(
        session_db=db, session_id="chat", config=configuration.load(home), endpoint=endpoint, workdir=work, yolo=True
    )

    async def go() -> dict[str, Any]:
        result = await agent.resume_unfinished()
        if result is None and db.message_count("chat") == 0:
            result = await agent.arun_conversation("do it")
        return result or {}

    result = asyncio.run(go())
    db.close()
    return {"text": result.get("final_response")}, points.count


def in_child(*args: Any) -> tuple[int, int]:
    """(exit status, points met) of a turn in a process of its own."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(read)
            _, count = turn(*args)
            os.write(write, str(count).encode())
            os._exit(0)
        except BaseException:  # noqa: BLE001 - a forked child must never return into pytest
            import traceback

            traceback.print_exc(file=sys.stderr)
            os._exit(3)
    os.close(write)
    with os.fdopen(read) as pipe:
        met = pipe.read()
    return os.waitpid(child, 0)[1], int(met or 0)


@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
def test_every_effect_at_most_once_whenever_it_is_killed(
    engine: Any,
    stores: TestStores,
    quiet_home: Path,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    record_property: Any,
) -> None:
    with model().served() as server:
        endpoint = server.endpoint()

        def fresh(name: str) -> tuple[str | Path, Path]:
            work = tmp_path / name
            work.mkdir()
            return stores.fresh(engine), work

        address, work = fresh("whole")
        status, points = in_child(address, endpoint, quiet_home, work)
        assert status == 0
        stride = 1 if request.config.getoption("--long") else max(points // KILLS, 1)
        killed = 0
        for fatal in range(1, points, stride):
            address, work = fresh(f"at-{fatal}")
            status, _ = in_child(address, endpoint, quiet_home, work, fatal)
            if os.WIFSIGNALED(status):
                assert os.WTERMSIG(status) == signal.SIGKILL
                killed += 1
            status, _ = in_child(address, endpoint, quiet_home, work)
            assert status == 0, f"point {fatal}: the turn could not be taken up"
            judge(address, work, fatal)
            stores.discard(address)
        record_property("killed", f"{killed} of {points} points")
        assert killed >= min(points - 1, KILLS - 4)


def judge(address: str | Path, work: Path, fatal: int) -> None:
    file = work / "effects.txt"
    happened = file.read_text().split() if file.exists() else []
    assert len(happened) == len(set(happened)), f"point {fatal}: an effect was repeated: {happened}"
    db = SessionDB(address)
    rows = [(m["role"], m["content"], m) for m in db.get_messages("chat")]
    db.close()
    roles = [role for role, _, _ in rows]
    assert roles == ["user", "assistant", "tool", "tool", "tool", "assistant"], f"point {fatal}: {roles}"
    assert rows[-1][1] == "All done.", f"point {fatal}"
    ids = [c["id"] for c in rows[1][2]["tool_calls"]]
    assert [m["tool_call_id"] for role, _, m in rows if role == "tool"] == ids
    unknown = [content for role, content, _ in rows if role == "tool" and "outcome is unknown" in content]
    not_run = [content for role, content, _ in rows if role == "tool" and content.startswith("Not run: the outcome")]
    assert not not_run or unknown, f"point {fatal}: calls wait only behind one whose outcome is unknown"
    told = len(unknown) + len(not_run)
    assert len(happened) >= len(EFFECTS) - told, f"point {fatal}: an effect is missing without a word"
    assert len(unknown) <= 1


@pytest.mark.parametrize("attempts", [4])
def test_a_turn_that_kills_its_process_again_and_again_is_set_aside(
    attempts: int, stores: TestStores, quiet_home: Path, tmp_path: Path
) -> None:
    with model().served() as server:
        address = stores.fresh("sqlite")
        work = tmp_path / "work"
        work.mkdir()
        _, points = in_child(stores.fresh("sqlite"), server.endpoint(), quiet_home, work)
        for _ in range(attempts):
            in_child(address, server.endpoint(), quiet_home, work, points // 3)
        assert in_child(address, server.endpoint(), quiet_home, work)[0] == 0
    db = SessionDB(address)
    counts = db.turns.counts()
    db.close()
    assert counts.get("running", 0) == 0
