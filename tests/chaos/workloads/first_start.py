"""Workload: a store is opened where there is none, and takes its first message."""

from __future__ import annotations

from tests.support.sweep import Journal

from hermes_state.session_db import SessionDB

FROM_NOTHING = True


def work(db: SessionDB, journal: Journal) -> None:
    journal.do("open", lambda: db.ledger.open(source="cli", session_id="first"))
    journal.do("append", lambda: db.append_message("first", "user", "hello"))
