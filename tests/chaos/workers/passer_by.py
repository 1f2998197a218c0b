"""Worker: PATH. Opens the store, reads, and leaves; then once more as some tool with Python's own SQLite would.

The last one out removes the write-ahead log. Which of the two believes to be the last when locks were dropped
depends on the SQLite: older ones look at the locks of the database file alone.
"""

from __future__ import annotations

import sqlite3
import sys

from hermes_state.session_db import SessionDB

db = SessionDB(sys.argv[1])
db.message_count()
db.close()
tool = sqlite3.connect(sys.argv[1])  # our own connections to the file are closed by now
tool.execute("SELECT count(*) FROM messages").fetchall()
tool.close()
