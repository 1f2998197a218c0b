"""`cron/jobs.json` of hermes-agent: taking its jobs over, also after a crash, without touching the rest of the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hermes_agent import jobs_file
from hermes_config import config as configuration
from hermes_state import SessionDB


def row(**more: Any) -> dict[str, Any]:
    schedule = {"kind": "cron", "expr": "0 8 * * *"}
    return {"name": "News", "prompt": "The news.", "schedule": schedule, "deliver": "local", **more}


def test_only_what_was_taken_is_marked_in_the_file(db: SessionDB, home: Path, tmp_path: Path) -> None:
    file = tmp_path / "jobs.json"
    before = {"updated_at": "2026-11-16", "jobs": [row(), "a note", row(name="Off", enabled=False)], "version": 2}
    file.write_text(json.dumps(before))
    done = jobs_file.take(db, configuration.load(home), file)
    assert (done.names, done.left) == (["News", "Off"], [])
    now = json.loads(file.read_text())
    assert now == before | {"jobs": [row(taken=True), "a note", row(name="Off", enabled=False, taken=True)]}
    assert {job.name: (job.state, job.next_at is None) for job in db.jobs.list()} == {
        "News": ("active", False), "Off": ("paused", True),
    }  # fmt: skip


def test_a_file_that_is_read_twice_makes_no_job_twice(db: SessionDB, home: Path, tmp_path: Path) -> None:
    file = tmp_path / "jobs.json"
    file.write_text(json.dumps([row(), row(id="7"), row(id="0123456789ab")]))
    for _ in range(2):  # the first time, the process died before the file was written
        assert jobs_file.take(db, configuration.load(home), file, keep=True).left == []
    found = [job.id for job in db.jobs.list()]
    assert len(found) == 3 and "0123456789ab" in found
