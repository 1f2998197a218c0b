"""Whose words a conversation holds."""

from __future__ import annotations

from hermes_state import SessionDB
from hermes_state.conversations import origins
from hermes_state.ids import ConversationId, PersonId, TurnId

HERE = ConversationId("here")
ADA = PersonId("ada")


def test_a_source_is_one_bounded_line() -> None:
    assert origins.outside("a\nb\u202ec" + "x" * 500).startswith("outside:a b c")
    assert len(origins.outside("x" * 500)) < 220
    assert origins.outside("") == "outside:an unnamed source"
    assert origins.source_of("outside:bill.txt") == "bill.txt" and origins.source_of("staff") == ""


def test_a_text_made_from_rows_is_outside_if_one_of_them_is_and_never_a_persons() -> None:
    assert origins.inherited(["staff", None, "person"]) is None
    assert origins.inherited(["staff", "outside:a.txt", "outside:b.txt", "outside:a.txt"]) == "outside:a.txt, b.txt"


def test_the_words_of_a_person_and_of_staff_in_every_segment(db: SessionDB) -> None:
    db.ledger.open(source="cli", owner=None, session_id="here")
    db.append_messages("here", [
        {"role": "user", "content": "of Ada", "origin": "person", "person_id": "ada"},
        {"role": "user", "content": [{"type": "text", "text": "of staff"}], "origin": "staff", "person_id": "bob"},
        {"role": "user", "content": "of Eve \0", "origin": "person", "person_id": "eve"},
        {"role": "tool", "content": "read", "origin": "outside:a.txt", "tool_name": "read_file"},
        {"role": "assistant", "content": "said"},
    ])  # fmt: skip
    newest = db.ledger.rotate("here", [{"role": "user", "content": "a summary", "origin": "outside:a.txt"}]).session_id
    db.append_messages(newest, [{"role": "user", "content": "later", "origin": "person", "person_id": "ada"}])
    assert sorted(db.origins.trusted(HERE, ADA)) == ["later", "of Ada", "of staff"]
    assert sorted(db.origins.trusted(HERE, None)) == ["of staff"]
    eve = db.origins.first_seen(HERE, ADA, lambda source, tool, text: "Eve" in text)
    assert eve is not None and (eve.source, eve.steps) == ("", None)
    seen = db.origins.first_seen(HERE, ADA, lambda source, tool, text: tool == "read_file")
    assert seen is not None and seen.source == "a.txt"
    assert db.origins.has_outside(HERE) and not db.origins.has_outside(ConversationId("elsewhere"))


def test_the_rows_of_a_turn_and_how_many_steps_ago_a_value_was_read(db: SessionDB) -> None:
    db.ledger.open(source="cli", owner=None, session_id="here")
    turn = TurnId("turn_1")
    db.append_messages("here", [
        {"role": "user", "content": "go", "origin": "staff", "turn_id": turn},
        {"role": "assistant", "content": "", "turn_id": turn},
        {"role": "tool", "content": "42", "origin": "outside:a.txt", "turn_id": turn},
        {"role": "assistant", "content": "", "turn_id": turn},
        {"role": "assistant", "content": "", "turn_id": turn},
    ])  # fmt: skip
    assert db.origins.in_turn(HERE, turn) == [("outside:a.txt", "42"), ("staff", "go")]
    seen = db.origins.first_seen(HERE, ADA, lambda source, tool, text: text == "42", turn)
    assert seen is not None and (seen.source, seen.steps) == ("a.txt", 2)


def test_more_outside_rows_than_a_page_are_searched(db: SessionDB) -> None:
    db.ledger.open(source="cli", owner=None, session_id="here")
    db.append_messages("here", [{"role": "tool", "content": str(at), "origin": f"outside:{at}"} for at in range(120)])
    seen = db.origins.first_seen(HERE, ADA, lambda source, tool, text: text == "119")
    assert seen is not None and seen.source == "119"


def test_rows_that_were_not_searched_count_as_outside(db: SessionDB) -> None:
    db.ledger.open(source="cli", owner=None, session_id="here")
    db.append_messages("here", [{"role": "tool", "content": "x", "origin": "outside:a.txt"} for _ in range(2_001)])
    seen = db.origins.first_seen(HERE, ADA, lambda source, tool, text: False)
    assert seen is not None and (seen.source, seen.is_found) == ("an earlier message", False)


def test_a_copy_keeps_the_origin_and_a_file_of_other_people_makes_no_persons_words(db: SessionDB) -> None:
    db.ledger.open(source="cli", owner=None, session_id="here")
    rows = [("staff", "a"), ("outside:a.txt", "b")]
    db.append_messages("here", [{"role": "user", "content": text, "origin": origin} for origin, text in rows])
    branch = db.ledger.branch("here").session_id
    assert [row["origin"] for row in db.get_messages(branch)] == ["staff", "outside:a.txt"]
    exported = db.export_session("here")
    assert exported is not None and [row["origin"] for row in exported["messages"]] == ["staff", "outside:a.txt"]
    db.import_sessions([{**exported, "id": "imported"}])
    assert [row["origin"] for row in db.get_messages("imported")] == [None, "outside:a.txt"]
