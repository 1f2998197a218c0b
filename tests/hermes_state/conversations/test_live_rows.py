"""What a running conversation reads: has anything changed, what was added, and how a message will be read back."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hermes_state.session_db import SessionDB

TEXT = st.text(st.characters(), max_size=20)  # NUL and lone surrogates too
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
MESSAGES = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "tool", "system"]), "content": st.none() | TEXT | JSON},
    optional={
        "tool_calls": st.lists(st.dictionaries(TEXT, JSON, max_size=2), max_size=2),
        "tool_call_id": TEXT,
        "tool_name": TEXT,
        "api_content": TEXT,
        "reasoning": TEXT,
        "reasoning_details": JSON,
        "finish_reason": TEXT,
        "observed": st.booleans(),
        "timestamp": st.floats(1, 2**31),
    },
)


@given(MESSAGES)
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_message_is_read_back_as_foretold(db: SessionDB, message: dict[str, Any]) -> None:
    db.create_session("s", "cli")
    foretold = db.as_stored(message)
    db.append_message("s", **message)
    assert db.get_messages_as_conversation("s")[-1] == foretold
    db.clear_messages("s")


def test_every_change_changes_the_state(db: SessionDB) -> None:
    db.create_session("s", "cli")
    seen = [db.live_state("s")]
    one = db.append_message("s", "user", "one")
    seen.append(db.live_state("s"))
    two = db.append_message("s", "user", "two")
    seen.append(db.live_state("s"))
    db.rewind_to_message("s", two)
    seen.append(db.live_state("s"))
    db.replace_messages("s", [{"role": "user", "content": "one"}])
    seen.append(db.live_state("s"))
    db.ledger.rotate("s", [])
    seen.append(db.live_state("s"))
    assert len(set(seen)) == len(seen) and None not in seen
    assert seen[1] is not None and seen[1].head_id == one


def test_only_what_is_newer(db: SessionDB) -> None:
    db.create_session("s", "cli")
    ids = db.append_messages("s", [{"role": "user", "content": text} for text in "abc"])
    found = db.live_rows("s", after=ids[0])
    assert found is not None and found.ids == ids[1:] and found.state == db.live_state("s")
    assert [message["content"] for message in found.messages] == ["b", "c"]
    everything = db.live_rows("s")
    assert everything is not None and everything.messages == db.get_messages_as_conversation("s")


def test_a_session_that_is_not_there(db: SessionDB) -> None:
    for name in ("nope", "", "a\0b", "x" * 5000):
        assert db.live_state(name) is None and db.live_rows(name) is None
