"""`hermes sessions list | show | lineage | stats`: what a person reads, on both engines."""

from __future__ import annotations

import os
import time
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest
from tests.hermes_cli.conftest import Run

from hermes_state import SessionDB
from hermes_testing.clock import Clock

pytestmark = [pytest.mark.usefixtures("named_store"), pytest.mark.both_engines, pytest.mark.slow]

DAY = 86_400.0


@pytest.fixture
def clock() -> Clock:
    return Clock(time.time() - 10 * DAY - 100)


@pytest.fixture
def trip(db: SessionDB, clock: Clock) -> dict[str, str]:
    """A conversation that was compressed twice, with a branch off its second segment and a delegation in it."""
    first = db.ledger.open(source="telegram", session_id="trip_1").session_id
    db.set_session_title(first, "Trip to Kyoto")
    db.append_message(first, "user", "Plan a week in Kyoto")
    db.append_message(first, "assistant", "Gladly")
    clock.advance(2 * DAY)
    second = db.ledger.rotate(first, [{"role": "user", "content": "summary one"}], new_id="trip_2").session_id
    branch = db.ledger.branch(second, title="Kyoto in winter", new_id="winter").session_id
    clock.advance(60)
    db.create_session("noodles", "telegram", parent_session_id=second, model_config={"_delegate_from": second})
    db.append_message("noodles", "user", "Find a noodle place")
    db.end_session("noodles", "done")
    clock.advance(2 * DAY)
    third = db.ledger.rotate(second, [{"role": "user", "content": "summary two"}], new_id="trip_3").session_id
    clock.advance(DAY)
    db.append_message(third, "user", "Is the palace open?")
    return {"first": first, "second": second, "third": third, "branch": branch}


def test_an_answer_that_was_stopped_says_so(run, db, trip) -> None:
    db.append_message(trip["third"], "assistant", "It is open from", finish_reason="interrupted")
    assert "(interrupted)\n  It is open from" in run("sessions", "show", trip["third"]).out


@pytest.mark.parametrize("reason", ["cli_close", "tui_close", "tui_shutdown"])
def test_a_conversation_that_was_left_says_so_in_words(run, db, trip, reason) -> None:
    db.end_session(trip["third"], reason)
    shown = run("sessions", "show", trip["third"]).out
    assert " · left " in shown and reason not in shown


# List


def test_a_compressed_conversation_is_one_line_with_its_title_first_words_and_newest_activity(run, trip) -> None:
    lines = run("sessions", "list").out.splitlines()
    assert lines[0].split() == ["Title", "Preview", "Active", "Src", "ID"]
    (line,) = [line for line in lines if "Trip to Kyoto" in line]
    assert "Plan a week in Kyoto" in line
    assert line.split()[-1] == "trip_3"
    assert "5 d" in line
    assert len(lines) == 3  # the titles, the trip, its branch; the delegation is not on its own


def test_the_newest_activity_comes_first_and_filters_narrow(run, db, clock, trip) -> None:
    db.ledger.open(source="cli", session_id="desk")
    clock.advance(60)
    db.append_message("desk", "user", "hello")
    assert [row["id"] for row in run("sessions", "list", "--json").data] == ["desk", "trip_3", "winter"]
    assert [row["id"] for row in run("sessions", "list", "--source", "cli", "--json").data] == ["desk"]
    assert [row["id"] for row in run("sessions", "list", "-n", "1", "--json").data] == ["desk"]
    assert [row["id"] for row in run("sessions", "list", "-n", "1", "--offset", "1", "--json").data] == ["trip_3"]


def test_a_shortened_list_says_how_many_there_are_and_all_shows_them(run, trip) -> None:
    ran = run("sessions", "list", "--limit", "1")
    assert "1 of 2" in ran.err
    everything = run("sessions", "list", "--limit", "1", "--all")
    assert "winter" in everything.out
    assert everything.err == ""


def test_archived_conversations_are_listed_only_when_asked_for(run, db, trip) -> None:
    db.set_session_archived(trip["branch"], True)
    assert "winter" not in run("sessions", "list").out
    assert [row["id"] for row in run("sessions", "list", "--archived", "--json").data] == ["winter"]


@pytest.mark.parametrize("source", ["telegram' OR '1'='1", "%", "tele%", "_" * 8, "x" * 10_000, "\udcff", "a\0b", ""])
def test_a_filter_is_a_value_and_never_a_pattern_or_sql(run, trip, source) -> None:
    ran = run("sessions", "list", "--source", source)
    assert ran.code == 0
    if source:
        assert ran.out == "No conversation matches.\n"


@pytest.mark.parametrize("limit", ["-1", "0", "many", "1e3", "9" * 40])
def test_a_limit_that_is_no_number_from_one_up_is_refused(run, trip, limit) -> None:
    ran = run("sessions", "list", "--limit", limit)
    assert ran.code == 2
    assert "whole number" in ran.err


def test_an_empty_store_says_so(run, db) -> None:
    assert run("sessions", "list").out == "There are no conversations yet.\n"
    assert run("sessions", "list", "--json").data == []


# Show


def test_show_prints_who_said_what(run, db, trip) -> None:
    out = run("sessions", "show", "Trip to Kyoto").out
    assert out.splitlines()[0] == "Trip to Kyoto"
    assert "trip_3 · telegram" in out
    assert "  summary two\n" in out
    assert "  Is the palace open?\n" in out
    assert "Gladly" not in out
    assert "segment 3 of 3" in out


def test_show_lineage_prints_every_segment_from_the_first(run, trip) -> None:
    out = run("sessions", "show", "trip_1", "--lineage").out
    assert "--lineage shows" not in out and "--lineage shows" in run("sessions", "show", "trip_1").out
    places = [out.index(text) for text in ("Plan a week", "Gladly", "summary one", "summary two", "palace")]
    assert places == sorted(places)
    assert out.splitlines()[0] == "Trip to Kyoto"


def test_show_folds_a_tool_call_and_its_result_to_one_line_and_full_unfolds_it(run, db, trip) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "read_file", "arguments": '{"path": "notes.txt"}'}}
    db.append_message("trip_3", "assistant", None, tool_calls=[call])
    db.append_message("trip_3", "tool", "line one\nline two " + "x" * 400, tool_name="read_file", tool_call_id="c1")
    folded = [line for line in run("sessions", "show", "trip_3").out.splitlines() if "read_file" in line]
    assert len(folded) == 1
    assert "path=notes.txt → line one line two" in folded[0]
    assert folded[0].endswith("…")
    unfolded = run("sessions", "show", "trip_3", "--full").out
    assert "x" * 400 in unfolded
    assert "→ line one\n" in unfolded


def test_a_taken_back_message_is_hidden_unless_asked_for(run, db, trip) -> None:
    row = db.append_message("trip_3", "user", "wrong chat")
    db.rewind_to_message("trip_3", row)
    assert "wrong chat" not in run("sessions", "show", "trip_3").out
    shown = run("sessions", "show", "trip_3", "--include-taken-back").out
    assert "(taken back)\n  wrong chat" in shown


def test_show_can_be_limited_to_the_newest_messages(run, trip) -> None:
    segments = run("sessions", "show", "trip_1", "--lineage", "--limit", "2", "--json").data["segments"]
    assert [m["content"] for segment in segments for m in segment["messages"]] == ["summary two", "Is the palace open?"]


@pytest.mark.parametrize("nasty", ["\x1b[2J\x1b]0;owned\x07", "\x9b31m", "\u202egnp.exe", "a\rb", "\x08" * 9, "a\0b"])
def test_a_stored_escape_sequence_reaches_no_terminal(run, db, trip, nasty) -> None:
    db.append_message("trip_3", "user", f"look: {nasty} end")
    db.append_message(
        "trip_3", "assistant", None, tool_calls=[{"id": nasty, "function": {"name": nasty, "arguments": nasty}}]
    )
    for arguments in (("show", "trip_3"), ("show", "trip_3", "--full"), ("list",), ("lineage", "trip_3")):
        out = run("sessions", *arguments).out
        assert not set(out) & set("\x1b\x9b\x07\x08\0\r\u202e")
    assert "look: " in run("sessions", "show", "trip_3").out


def test_a_message_of_ten_megabytes_is_shown_whole(run, db, trip) -> None:
    db.append_message("trip_3", "user", "京都" + "x" * 10_000_000)
    out = run("sessions", "show", "trip_3", "--limit", "1").out
    assert "京都" + "x" * 10_000_000 in out
    assert len(run("sessions", "list").out) < 2_000


def test_parts_that_are_no_text_are_named(run, db, trip) -> None:
    parts = [{"type": "text", "text": "what is this?"}, {"type": "image_url", "image_url": {"url": "data:…"}}]
    db.append_message("trip_3", "user", parts)
    assert "  what is this?\n  [image]" in run("sessions", "show", "trip_3").out


# Lineage


def test_lineage_draws_segments_branches_and_delegations_with_when_and_why_each_ended(run, trip) -> None:
    assert run("sessions", "lineage", "Trip to Kyoto").out == (
        "Trip to Kyoto · telegram · 3 segments, 5 messages\n"
        "○ trip_1  2 messages · began 10 d ago · compressed 8 d ago\n"
        "│\n"
        "○ trip_2  1 message · compressed 6 d ago\n"
        "├─ branch  Kyoto in winter\n"
        "│  ● winter  1 message · active 8 d ago\n"
        "├─ delegated  Find a noodle place\n"
        "│  ○ noodles  1 message · began 8 d ago · ended (done) 8 d ago\n"
        "● trip_3  2 messages · active 5 d ago\n"
    )


def test_lineage_of_a_branch_says_where_it_came_from_and_an_old_segment_is_pointed_out(run, trip) -> None:
    assert 'branched from "Trip to Kyoto" · trip_2' in run("sessions", "lineage", "winter").out
    assert "← this one" in run("sessions", "lineage", "trip_1").out.splitlines()[1]


def test_a_reset_is_named_in_the_lineage_and_not_followed(run, db) -> None:
    db.ledger.open(source="telegram", route="r", session_id="monday")
    db.ledger.reset("r", session_id="tuesday")
    db.ledger.reset("r", session_id="wednesday")
    out = run("sessions", "lineage", "monday").out
    assert "└─ reset to" in out
    assert "tuesday" in out
    assert "wednesday" not in out


def test_lineage_as_data_is_the_same_tree(run, trip) -> None:
    data = run("sessions", "lineage", "trip_2", "--json").data
    assert [segment["id"] for segment in data["segments"]] == ["trip_1", "trip_2", "trip_3"]
    assert {child["id"]: child["kind"] for child in data["began_in"]["trip_2"]} == {
        "winter": "branch",
        "noodles": "delegate",
    }


def test_rows_whose_counters_other_programs_left_empty_can_be_read(run, db, trip) -> None:
    db._execute_write(lambda conn: conn.run("UPDATE sessions SET message_count = NULL, tool_call_count = NULL"))
    for arguments in (
        ["list"],
        ["show", "trip_3"],
        ["lineage", "trip_3"],
        ["stats"],
        ["delete", "trip_3", "--dry-run"],
    ):
        assert run("sessions", *arguments).code == 0


# Stats, and where the data is


def test_stats_count_conversations_segments_and_messages_by_source(run, db, trip) -> None:
    db.ledger.open(source="cli", session_id="desk")
    db.append_message("desk", "user", "hello")
    facts = run("sessions", "stats", "--json").data
    assert (facts["conversations"], facts["segments"], facts["messages"]) == (3, 6, 8)
    assert {row["source"]: (row["conversations"], row["messages"]) for row in facts["sources"]} == {
        "telegram": (2, 7),
        "cli": (1, 1),
    }
    assert facts["database_bytes"] > 0
    assert "conversations 3 (0 archived)" in " ".join(run("sessions", "stats").out.split())


def test_stats_say_where_the_store_is_without_the_password_of_a_server(run, named_store, trip, monkeypatch) -> None:
    if isinstance(named_store, str):  # the test's server takes any password
        parts = urlsplit(named_store)
        place = parts.netloc.rpartition("@")[2]
        secret = parts._replace(netloc=f"{parts.username or 'postgres'}:hunter22@{place}")
        monkeypatch.setenv("HERMES_DATABASE_URL", urlunsplit(secret))
    out = run("sessions", "stats").out
    assert ("SQLite" if isinstance(named_store, Path) else "PostgreSQL") in out
    assert "hunter22" not in out
    assert not isinstance(named_store, Path) or str(named_store) in out


def test_a_home_without_a_database_is_told_and_nothing_is_made(run, monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("HERMES_DATABASE_URL", f"sqlite:///{tmp_path}/none/state.db")
    ran = run("sessions", "list")
    assert ran.code == 1
    assert "no conversations yet" in ran.err
    assert not os.path.lexists(tmp_path / "none")


def test_an_address_that_is_no_database_is_refused_without_its_password(run, monkeypatch) -> None:
    monkeypatch.setenv("HERMES_DATABASE_URL", "mysql://me:hunter22@host/db")
    ran = run("sessions", "list")
    assert ran.code == 2
    assert "mysql" in ran.err
    assert "hunter22" not in ran.err


def test_it_refuses_to_work_where_the_reference_is_installed_as_well(run, trip, tmp_path, monkeypatch) -> None:
    installed = tmp_path / "site" / "hermes_agent-0.18.2.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: hermes-agent\nVersion: 0.18.2\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    ran = run("sessions", "list")
    assert ran.code == 1
    assert "hermes-agent 0.18.2" in ran.err


def test_direction_marks_and_invisible_letters_are_not_printed(db: SessionDB, run: Run) -> None:
    hidden = "\u200e\u200f\u061c\u3164\u2800"
    session = db.ledger.open(source="cli").session_id
    db.append_message(session, "user", f"gnp{hidden}.exe")
    for command in (["show", session], ["list"], ["search", "gnp"], ["show", session, "--json"], ["list", "--json"]):
        said = run("sessions", *command).out
        assert "gnp" in said
        assert not set(hidden) & set(said), command


def test_a_conversation_without_a_title_is_found_by_the_words_that_lists_show(run: Run, db: SessionDB) -> None:
    session = db.ledger.open(source="cli").session_id
    db.append_message(session, "user", "what is 17 * 4?")
    db.append_message(session, "assistant", "68")
    assert "what is 17 * 4?" in run("sessions", "list").out
    assert "68" in run("sessions", "show", "what is 17").out
    assert run("sessions", "delete", "what is 17", "--yes").code != 0, "what loses something does not guess"
