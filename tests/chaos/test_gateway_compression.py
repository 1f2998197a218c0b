"""/compress in a chat, killed at every point at which it touches the store: afterwards it has happened or it has not.

Whichever it is, the conversation has the same id, title, place and approvals, is listed once, and once it is
compressed the next prompt is small.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.support.gateways import PretendGateway
from tests.support.kill_points import Points, in_child

from hermes_state import SessionDB
from hermes_testing.scripted.model import ScriptedModel, ScriptedRequest, Step, say
from hermes_testing.scripted.steps import text_of

ROUTE = "agent:main:telegram:dm:42"
LONG = "The maples in Kyoto peak in late November, so book the small inn near the river early. " * 8
KILLS = 8


def improvise(request: ScriptedRequest) -> Step:
    if "Write a summary" in request.last_user_text or "summar" in request.system.lower()[:400]:
        return say("## Goal\nA trip to Kyoto in November.\n## Completed actions\nThe inn near the river was booked.")
    return say(LONG)


def model() -> ScriptedModel:
    return ScriptedModel(improvise=improvise)


class Facts(NamedTuple):
    """What compression must not change."""

    conversation: str
    title: str | None
    listed: tuple[tuple[Any, ...], ...]
    approvals: tuple[Any, ...]


def facts(db: SessionDB) -> Facts:
    handle = db.engine.write(db.ledger.resolving(ROUTE, scope="sessions")).handle
    listed = tuple((row["title"], db.get_conversation_root(row["id"])) for row in db.list_sessions_rich())
    person = db.ledger.owner(handle.conversation_id)
    assert person is not None
    title = (db.get_session(handle.session_id) or {}).get("title")
    return Facts(handle.conversation_id, title, listed, db.approvals.grants(person_id=person))


async def begin(home: Path) -> None:
    """A long conversation with a title and a standing approval."""
    db = SessionDB(home / "state.db")
    with model() as chat_model:
        async with PretendGateway(db, home, chat_model) as gateway:
            for number in range(30):
                await gateway.chat.say(f"question {number}: {LONG}")
                await gateway.quiet()
            await gateway.chat.say("/title Trip to Kyoto")
            await gateway.quiet()
    handle = db.engine.write(db.ledger.resolving(ROUTE, scope="sessions")).handle
    person, turn = db.ledger.owner(handle.conversation_id), db.turns.list(limit=1)[0]
    asked = db.approvals.ask(
        conversation_id=handle.conversation_id, turn_id=turn.id, call_hash="abc", call={"command": "make"},
        requester_id=person, approver_id=person, seconds=600,
    )  # fmt: skip
    assert db.approvals.decide(asked.id, "session", approver_id=person) is not None
    db.close()


async def compress(home: Path, points: Points, fatal: int) -> int:
    """A gateway that is told /compress, and dies at the n-th point from there on; how many points there were."""
    db = SessionDB(home / "state.db")
    with model() as chat_model:
        gateway = PretendGateway(db, home, chat_model)
        await gateway.start()
        before = points.count
        points.fatal = before + fatal if fatal else 0
        await gateway.chat.say("/compress", message_id="compress-1")
        await gateway.quiet()
        return points.count - before


def gateway_in_child(home: Path, fatal: int) -> tuple[int, int]:
    """(exit status, points) of a gateway in a process of its own."""

    def watched() -> int:
        points = Points()
        points.watch()
        return asyncio.run(compress(home, points, fatal))

    status, met = in_child(watched)
    return status, met or 0


async def go_on(home: Path, expected: Facts) -> str:
    """The next gateway: all is as it was; `before` or `after`, whichever the kill left."""
    db = SessionDB(home / "state.db")
    with model() as chat_model:
        async with PretendGateway(db, home, chat_model) as gateway:
            await gateway.quiet()
            assert facts(db) == expected
            happened = len(db.get_compression_lineage(expected.conversation)) > 1
            if not happened:
                await gateway.chat.say("/compress", message_id="compress-2")
                await gateway.quiet()
            await gateway.chat.say("and now?", message_id="now")
            await gateway.quiet()
            asked = chat_model.requests[-1]
            assert asked.last_user_text.endswith("and now?")
            spoken = sum(len(text_of(said["content"])) for said in asked.messages if said["role"] != "system")
            assert spoken < 60 * len(LONG) / 2, gateway.chat.chat()
            assert facts(db) == expected
            assert len(db.get_compression_lineage(expected.conversation)) == 2
            assert not db.inbox.counts().keys() & {"queued", "claimed"}
            assert not db.turns.list(state="running")
    db.close()
    return "after" if happened else "before"


def test_compress_is_killed_at_every_point(
    home: Path, seed: int, pytestconfig: pytest.Config, record_property: Callable[[str, object], None]
) -> None:
    home.mkdir(mode=0o700)
    asyncio.run(begin(home))
    db = SessionDB(home / "state.db")
    expected = facts(db)
    db.close()
    assert expected.title == "Trip to Kyoto"
    assert len(expected.listed) == len(expected.approvals) == 1
    kept = shutil.copytree(home, home.with_name("kept"))

    def again() -> None:
        shutil.rmtree(home)
        shutil.copytree(kept, home)

    status, points = gateway_in_child(home, 0)
    assert (status, points > 30) == (0, True), points
    assert asyncio.run(go_on(home, expected)) == "after"

    step = 1 if pytestconfig.getoption("--long") else max(1, points // KILLS)
    found: list[str] = []
    for fatal in (1, *range(2 + seed % step, points, step), points):
        again()
        status, _ = gateway_in_child(home, fatal)
        # Which point is the last one differs by a few from run to run; a run that has none left ends by itself.
        assert status in (signal.SIGKILL, 0), f"point {fatal}: status {status}"
        found.append(asyncio.run(go_on(home, expected)))
    assert {"before", "after"} == set(found), "the kills lie on both sides of the commit"
    record_property("kill points", f"/compress in a gateway: killed at {len(found)} of {points} points")
