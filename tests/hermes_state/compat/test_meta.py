"""Named values of the store."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hermes_state.errors import InvalidValue
from hermes_state.session_db import SessionDB


def test_a_value_is_kept_and_replaced(db: SessionDB, reopen: Callable[[SessionDB], SessionDB]) -> None:
    assert db.get_meta("k") is None
    db.set_meta("k", "one")
    db.set_meta("k", "two\0 \ud800")
    db.set_meta("it's", "% _")
    db = reopen(db)
    assert db.get_meta("k") == "two \ufffd"
    assert db.get_meta("it's") == "% _"


def test_impossible_keys(db: SessionDB) -> None:
    for bad in ("", "x" * 10_000, "a\0b"):
        assert db.get_meta(bad) is None
        with pytest.raises(InvalidValue):
            db.set_meta(bad, "v")
