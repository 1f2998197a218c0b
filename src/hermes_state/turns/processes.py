"""Background processes: one row each, from before its start until some days after its end.

`running` → exactly one of `exited`, `killed`, `timed_out`, `lost`. The end is recorded once, by whoever sees it first,
and in the same transaction the chat gets an inbox row of Hermes's own, if the process was started with `notify`. What
runs is known from the folder of the process, in the home of its machine; this module does not look there.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from hermes_state import columns
from hermes_state.conversations import origins
from hermes_state.errors import TooManyProcesses
from hermes_state.ids import ConversationId, PersonId, SessionKey, TurnId, is_possible_id
from hermes_state.storage.base import Connection, StorePart, in_transaction, scalar
from hermes_state.storage.statements import Queries
from hermes_state.turns.inbox import OWN, Address, Inbox, InboxRow

FOLDER = "processes"
"""The folder in the home that holds a folder for each process."""
LOCK = "lock"
"""The file in a process's folder that is locked while it runs, and is there until its end is recorded."""
End = Literal["exited", "killed", "timed_out", "lost"]
_NEW_SECONDS = 60.0
"""A younger folder without a row may be one that is just being made."""
_UNSEEN_SECONDS = 3_600.0
"""How long after its time limit a process that no machine has reported on counts as lost."""


@dataclass(frozen=True, slots=True)
class ProcessRow:
    id: str
    conversation_id: ConversationId
    turn_id: TurnId
    call_id: str
    person_id: PersonId | None
    route: SessionKey | None
    machine: str
    supervisor: str | None
    command: str
    workdir: str
    wall: str
    opening: str
    """What it may do beyond its sandbox, in words; empty: nothing."""
    address: Mapping[str, Any] | None
    notify: bool
    state: str
    exit_code: int | None
    trouble: str | None
    output_bytes: int
    started_at: float
    ends_by: float
    ended_at: float | None

    @property
    def running(self) -> bool:
        return self.state == "running"


_row = columns.RowType(ProcessRow)
Q = Queries("processes", columns=_row.columns)


def new_process_id() -> str:
    return f"proc_{os.urandom(4).hex()}"


class Processes(StorePart):
    """Records the start and the end of background processes."""

    @in_transaction
    def begin(
        self,
        conn: Connection,
        process_id: str,
        *,
        conversation_id: ConversationId,
        turn_id: TurnId,
        call_id: str,
        person_id: PersonId | None,
        machine: str,
        command: str,
        workdir: str,
        wall: str,
        opening: str = "",
        address: Address | None,
        notify: bool,
        seconds: float,
    ) -> ProcessRow:
        """Store a process before it starts. Raises `TooManyProcesses` if the person has too many."""
        most, now = self._store.limits.processes_per_person, self._store.clock()
        if int(scalar(conn.rows(Q.running_of_person, (person_id,)))) >= most:
            raise TooManyProcesses(
                f"{most} background processes of this person run already (limits.processes_per_person)",
                hint="Wait for one of them, or kill it.",
            )
        known = None if address is None else columns.to_json(address.to_dict(), self._store.limits, what="the address")
        conn.run(
            Q.begin,
            (process_id, conversation_id, turn_id, call_id, person_id, None if address is None else address.route,
             machine, columns.clean(command), columns.clean(workdir), wall, columns.clean(opening), known,
             int(notify and address is not None), now, now + seconds),
        )  # fmt: skip
        return _row(conn.rows(Q.get, (process_id,))[0])

    def supervised(self, process_id: str, supervisor: str) -> None:
        """Record the process id and start of its supervisor."""
        self._run(Q.supervised, (supervisor, process_id))

    def silence(self, process_id: str) -> None:
        """Its end starts no turn: a person ends it, and knows."""
        self._run(Q.silence, (process_id,))

    @in_transaction
    def end(
        self,
        conn: Connection,
        process_id: str,
        state: End,
        *,
        exit_code: int | None = None,
        trouble: str = "",
        output_bytes: int = 0,
        ended_at: float | None = None,
        notice: str = "",
    ) -> bool:
        """Record the end; False if it is recorded already. With `notify`, the chat gets the `notice` as a row."""
        at = self._store.clock() if ended_at is None else ended_at
        if conn.run(Q.end, (state, exit_code, columns.note(trouble), output_bytes, at, process_id)) != 1:
            return False
        row = _row(conn.rows(Q.get, (process_id,))[0])
        if row.notify and row.address is not None and notice:
            inbox = Inbox(self._store)
            asked_by = inbox.asked_by_in(conn, row.turn_id, row.conversation_id)
            about = {
                "kind": "process", "id": process_id, "state": state, "exit_code": exit_code,
                "origin": origins.outside("a background command"), **asked_by,
            }  # fmt: skip
            inbox.accept_own_in(
                conn, Address(**row.address), message_id=f"{OWN}process:{process_id}", text=notice, about=about
            )
        return True

    def notice(self, row: ProcessRow) -> InboxRow | None:
        """The inbox row about its end; None without one."""
        if row.address is None:
            return None
        at = row.address
        found = Inbox(self._store).versions(
            platform=at["platform"], account=at["account"], chat_id=at["chat_id"], message_id=f"{OWN}process:{row.id}"
        )
        return found[0] if found else None

    def take_notice(self, row: ProcessRow) -> None:
        """End the row about its end, if no turn has begun with it: a tool tells the model now."""
        found = self.notice(row)
        if found is not None and found.state == "queued":
            Inbox(self._store).finish([found.id], "silent", reason="the model has read it in another turn")

    # -- reads -------------------------------------------------------------------------------------------

    def get(self, process_id: str) -> ProcessRow | None:
        return self._one(_row, Q.get, (process_id,)) if is_possible_id(process_id) else None

    def of_call(self, turn_id: TurnId, call_id: str) -> ProcessRow | None:
        """The process that a tool call started."""
        return self._one(_row, Q.of_call, (turn_id, call_id))

    def running(self) -> tuple[ProcessRow, ...]:
        return tuple(map(_row, self._rows(Q.running)))

    def running_count(self) -> int:
        return int(scalar(self._rows(Q.running_count)))

    def runs_on_route(self, route: str) -> bool:
        """Whether a process that was started from this route runs."""
        return bool(self._rows(Q.runs_on_route, (route,)))

    def newest(self, *, limit: int = 50, offset: int = 0) -> tuple[ProcessRow, ...]:
        return tuple(map(_row, self._rows(Q.newest, (limit, offset))))

    def of_conversation(self, conversation_id: ConversationId, *, limit: int = 50) -> tuple[ProcessRow, ...]:
        """The newest processes of a conversation."""
        return tuple(map(_row, self._rows(Q.of_conversation, (conversation_id, limit))))

    def remove_folders(self, home: Path) -> int:
        """Remove the folders of processes without a row, and the oldest ones above `limits.processes_bytes`."""
        settled: list[tuple[float, Path, int]] = []
        for folder in (home / FOLDER).glob("*"):
            with contextlib.suppress(OSError):  # no folder, or one that somebody else removes now
                if not (folder / LOCK).exists() and not folder.is_symlink():
                    size = sum(file.lstat().st_size for file in folder.iterdir())
                    settled.append((folder.stat().st_mtime, folder, size))
        total, removed = sum(size for _, _, size in settled), 0
        for age, folder, size in sorted(settled):
            forgotten = self.get(folder.name) is None and age < time.time() - _NEW_SECONDS
            if forgotten or total > self._store.limits.processes_bytes:
                shutil.rmtree(folder, ignore_errors=True)
                total, removed = total - size, removed + 1
        return removed

    def prune(self) -> int:
        """Remove ended rows older than `limits.process_days`; record as lost what no machine reported in time."""
        now = self._store.clock()
        for row in self.running():
            if now > row.ends_by + _UNSEEN_SECONDS:
                said = f"[The background process {row.id} on {row.machine} is lost: nothing was heard of it.]"
                self.end(row.id, "lost", notice=f"{said}\n{row.command[:300]}")
        return self._remove_old(self._store.limits.process_days, Q.prune)
