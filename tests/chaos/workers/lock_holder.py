"""Worker: ADDRESS. Holds what a writer needs, as a stuck program would, until it is told to let go."""

from __future__ import annotations

import sys

from tests.support.processes import say, wait_for_go

address = sys.argv[1]
if address.startswith("postgresql://"):
    import psycopg

    with psycopg.connect(address) as conn:
        conn.execute("SELECT 1 FROM sessions FOR UPDATE")
        say("locked")
        wait_for_go()
else:
    import apsw

    holder = apsw.Connection(address)
    holder.execute("BEGIN IMMEDIATE")
    say("locked")
    wait_for_go()
    holder.execute("ROLLBACK")
    holder.close()
say("free")
