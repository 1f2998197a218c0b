"""The end of background processes whose folder holds something else than their supervisor's report."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes_agent import process_identity, processes
from hermes_state import SessionDB
from hermes_state.ids import ConversationId, PersonId, TurnId
from hermes_state.turns.processes import FOLDER, LOCK

pytestmark = pytest.mark.both_engines
REPORTS = (
    b"[]", b"{}", b"\xff", b'{"state": "bogus"}', b'{"state": "exited", "output_bytes": "x", "ended_at": 1}',
    b'{"state": "exited", "exit_code": 1e999, "output_bytes": 1, "ended_at": 1}',
)  # fmt: skip


def test_a_report_that_cannot_be_read_means_lost_and_stops_no_other(db: SessionDB, home: Path) -> None:
    good = b'{"state": "exited", "exit_code": 3, "trouble": "", "output_bytes": 5, "ended_at": 9.0}'
    for number, report in enumerate((*REPORTS, good)):
        name = f"proc_0000000{number}"
        db.processes.begin(
            name, conversation_id=ConversationId("c"), turn_id=TurnId("turn_1"), call_id=name,
            person_id=PersonId(name), machine=process_identity.machine(), command="x", workdir="/", wall="host",
            address=None, notify=False, seconds=60,
        )  # fmt: skip
        (home / FOLDER / name).mkdir(parents=True)
        (home / FOLDER / name / LOCK).touch()
        (home / FOLDER / name / "status.json").write_bytes(report)
    processes.settle(db, home)
    found = {row.id: (row.state, row.exit_code) for row in db.processes.newest()}
    assert found.pop(f"proc_0000000{len(REPORTS)}") == ("exited", 3)
    assert set(found.values()) == {("lost", None)} and len(found) == len(REPORTS)


def test_what_is_no_folder_of_a_process_is_left_alone(db: SessionDB, home: Path, tmp_path: Path) -> None:
    folder, other = home / FOLDER, tmp_path / "other"
    for made in (folder, other):
        made.mkdir(parents=True)
    (other / "kept").touch()
    (folder / "file").touch()
    (folder / "nowhere").symlink_to(tmp_path / "missing")
    (folder / "elsewhere").symlink_to(other)
    processes.settle(db, home)
    assert db.processes.remove_folders(home) == 0
    assert (other / "kept").exists()
