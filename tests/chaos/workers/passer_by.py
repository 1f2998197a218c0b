"""Worker: for each PATH it is told, a process that opens the store, reads, leaves, and does so once more as some tool
with Python's own SQLite would. It says the process's exit status.

The last one out removes the write-ahead log. Which of the two believes to be the last when locks were dropped
depends on the SQLite: older ones look at the locks of the database file alone.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import traceback

from tests.support.processes import say

from hermes_state.session_db import SessionDB


def pass_by(path: str) -> None:
    db = SessionDB(path)
    db.message_count()
    db.close()
    tool = sqlite3.connect(path)  # our own connections to the file are closed by now
    tool.execute("SELECT count(*) FROM messages").fetchall()
    tool.close()


for line in sys.stdin:
    child = os.fork()  # this process has neither threads nor anything open
    if child == 0:
        try:
            pass_by(line.rstrip("\n"))
        except BaseException:  # noqa: BLE001 - boundary: nothing may return into the parent's loop
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    say(str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])))
