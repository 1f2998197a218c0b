"""Four processes append to one conversation and compress it at once: nothing lost, doubled or astray."""

from __future__ import annotations

from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import pytest
from tests.support.processes import Worker

from hermes_state.session_db import SessionDB

WORKER = Path(__file__).parent / "workers" / "append_and_rotate.py"
OPERATIONS = 10_000
PROCESSES = 4


@pytest.fixture
def spoken(address: str | Path) -> list[list[str]]:
    """What the workers were promised, in each one's order: (append | rotate, label, …)."""
    db = SessionDB(address)
    db.ledger.open(source="telegram", route="agent:main:telegram:dm:42", session_id="first", fields={"title": "One"})
    db.close()
    with ExitStack() as stack:
        each = OPERATIONS // PROCESSES
        workers = [stack.enter_context(Worker(WORKER, address, "first", f"p{n}", each)) for n in range(PROCESSES)]
        for worker in workers:
            assert worker.line() == "ready"
        for worker in workers:
            worker.go()
        return [[*worker.finish(timeout=240)] for worker in workers]


def test_four_processes_one_conversation(address: str | Path, spoken: list[list[str]]) -> None:
    promised = [[line.split() for line in lines] for lines in spoken]
    assert sum(map(len, promised)) == OPERATIONS
    db = SessionDB(address)
    rows = db.engine.read(lambda conn: conn.rows("SELECT id, session_id, content FROM messages ORDER BY id"))
    parents = dict(db.engine.read(lambda conn: conn.rows("SELECT id, parent_session_id FROM sessions")))
    ends = dict(db.engine.read(lambda conn: conn.rows("SELECT id, end_reason FROM sessions")))
    counts = dict(db.engine.read(lambda conn: conn.rows("SELECT id, message_count FROM sessions")))
    tip = db.engine.write(db.ledger.resolving("agent:main:telegram:dm:42")).handle.session_id
    title = db.get_session(tip)["title"]
    db.close()

    # every acknowledged append once, with the id and in the segment that its process was told, and no other
    appended = {
        (int(row), session, f"said {label}")
        for lines in promised
        for kind, label, row, session in lines
        if kind == "append"
    }
    stored = [(row, session, content) for row, session, content in rows if content.startswith("said ")]
    assert len(stored) == len(set(stored))
    assert set(stored) == appended

    # the processes really took turns
    writers = [content.split()[1].split("-")[0] for _, _, content in stored]
    assert sum(here != there for here, there in pairwise(writers)) > 100

    # every acknowledged rotation once, and together they are one chain without forks
    rotations = {child: parent for lines in promised for kind, _, parent, child in lines if kind == "rotate"}
    assert {child: parent for child, parent in parents.items() if parent} == rotations
    assert len(rotations) > 50
    order = [tip]
    while parents[order[-1]]:
        order.append(parents[order[-1]])
    order.reverse()
    assert order[0] == "first"
    assert len(order) == len(parents) == len(rotations) + 1
    assert [ends[segment] for segment in order] == ["compression"] * len(rotations) + [None]
    assert title == "One"

    # one total order: along the chain ids only grow, so nothing was written to a parent after its child began
    spans = [[row for row, session, _ in rows if session == segment] for segment in order]
    assert all(earlier[-1] < later[0] for earlier, later in pairwise(filter(None, spans)))
    for lines in promised:
        own = [int(row) for kind, _, row, _ in lines if kind == "append"]
        assert own == sorted(own)
    assert [counts[segment] for segment in order] == [len(span) for span in spans]
