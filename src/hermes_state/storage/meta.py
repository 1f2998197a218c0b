"""Small facts about the store itself, such as the time of the last maintenance."""

from __future__ import annotations

import math

from hermes_state import columns
from hermes_state.storage.base import Connection, scalar
from hermes_state.storage.statements import Queries

Q = Queries("meta")


def get(conn: Connection, key: str) -> str | None:
    found: str | None = scalar(conn.rows(Q.get, (key,)))
    return found


def put(conn: Connection, key: str, value: str | None) -> None:
    conn.run(Q.put, (key, None if value is None else columns.clean(str(value))))


def claim_run(conn: Connection, stamp: str, *, now: float, hours: float) -> bool:
    """Whether this process should do the work that is due every `hours` hours; if so, set the stamp.

    An invalid or future stamp counts as none. Of two processes that read the same stamp, only one gets True.
    """
    stored = get(conn, stamp)
    try:
        last = float(stored or "nan")
    except ValueError:
        last = math.nan
    return not 0 <= now - last < hours * 3600 and conn.run(Q.swap, (stamp, repr(now), stored)) == 1
