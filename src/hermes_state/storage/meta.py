"""Small facts about the store itself, such as when maintenance last ran."""

from __future__ import annotations

import math

from hermes_state.conversations.sessions import clean
from hermes_state.ids import checked_id, is_possible_id
from hermes_state.storage.base import Connection, Store, scalar
from hermes_state.storage.statements import Queries

Q = Queries("meta")


class Meta(Store):
    """The part of `SessionDB` that keeps named values."""

    def get_meta(self, key: str) -> str | None:
        if not is_possible_id(key):
            return None
        return self.engine.read(lambda conn: get(conn, key))

    def set_meta(self, key: str, value: str | None) -> None:
        checked_id(key, what="meta key")
        self.engine.write(lambda conn: put(conn, key, value))


def get(conn: Connection, key: str) -> str | None:
    found: str | None = scalar(conn.rows(Q.get, (key,)))
    return found


def put(conn: Connection, key: str, value: str | None) -> None:
    conn.run(Q.put, (key, None if value is None else clean(str(value))))


def claim_run(conn: Connection, stamp: str, *, now: float, hours: float) -> bool:
    """True for the process whose turn it is to do what is done every so many hours, and stamps it.

    A stamp that is no time, or from the future, is none.
    """
    try:
        last = float(get(conn, stamp) or "nan")
    except ValueError:
        last = math.nan
    if 0 <= now - last < hours * 3600:
        return False
    put(conn, stamp, repr(now))
    return True
