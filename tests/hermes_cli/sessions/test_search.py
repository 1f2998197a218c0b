"""`hermes sessions search`: hits grouped by conversation, marked, filtered, on both engines."""

from __future__ import annotations

import time

import pytest

from hermes_state import SessionDB
from hermes_testing.clock import Clock

pytestmark = [pytest.mark.usefixtures("named_store"), pytest.mark.both_engines]

DAY = 86_400.0


@pytest.fixture
def clock() -> Clock:
    return Clock(time.time() - 10 * DAY - 100)


@pytest.fixture
def talks(db: SessionDB, clock: Clock) -> None:
    db.ledger.open(source="telegram", session_id="trip_1")
    db.set_session_title("trip_1", "Trip to Kyoto")
    db.append_message("trip_1", "user", "A quiet ryokan in 京都 please")
    db.append_message("trip_1", "assistant", "Yanagi has four rooms")
    clock.advance(5 * DAY)
    db.ledger.rotate("trip_1", [{"role": "user", "content": "summary: Yanagi is booked"}], new_id="trip_2")
    db.append_message("trip_2", "assistant", "The ryokan answered")
    db.ledger.open(source="cli", session_id="desk")
    db.append_message("desk", "user", "what does ryokan mean?")


def hits(ran) -> list[tuple[str, str]]:
    return [(hit["session_id"], hit["role"]) for hit in ran.data["hits"]]


def test_hits_are_grouped_by_conversation_under_its_title_and_newest_id(run, talks) -> None:
    out = run("sessions", "search", "ryokan", "--oldest").out
    assert out == (
        "Trip to Kyoto · telegram · trip_2\n"
        "  user          10 d  A quiet ryokan in 京都 please\n"
        "  assistant      5 d  The ryokan answered\n"
        "\n"
        "what does ryokan mean? · cli · desk\n"
        "  user           5 d  what does ryokan mean?\n"
        "\n"
        "3 hits in 2 conversations\n"
    )


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["京都"], [("trip_1", "user")]),
        (["京"], [("trip_1", "user")]),
        (["ryokan", "--source", "cli"], [("desk", "user")]),
        (["ryokan", "--role", "assistant"], [("trip_2", "assistant")]),
        (["ryokan", "--until", "7d"], [("trip_1", "user")]),
        (["ryokan", "--since", "7d", "--in", "trip"], [("trip_2", "assistant")]),
        (["ryokan", "NOT", "quiet", "--role", "assistant"], [("trip_2", "assistant")]),
        (['"four rooms"'], [("trip_1", "assistant")]),
        (["ryok*", "--newest", "--limit", "1", "--offset", "2"], [("trip_1", "user")]),
    ],
)
def test_words_phrases_scripts_and_filters_find_what_they_should(run, talks, arguments, expected) -> None:
    assert hits(run("sessions", "search", *arguments, "--json")) == expected


def test_context_shows_the_messages_around_a_hit(run, talks) -> None:
    lines = run("sessions", "search", "rooms", "-C", "1").out.splitlines()
    assert lines[1].split(maxsplit=1) == ["user", "A quiet ryokan in 京都 please"]
    assert "rooms" in lines[2]


def test_a_taken_back_message_is_found_only_when_asked_for(run, db, talks) -> None:
    db.rewind_to_message("desk", db.append_message("desk", "user", "oops wrong window"))
    assert run("sessions", "search", "oops").out == "Nothing found.\n"
    assert hits(run("sessions", "search", "oops", "--include-taken-back", "--json")) == [("desk", "user")]


@pytest.mark.parametrize(
    "query",
    ["'; DROP TABLE messages; --", '"unbalanced', "AND OR NOT", "((((", "%", "*", "a" * 10_000, "\udcff", "a\0b", " ",
     "NEAR(x y, 2)", "col:umn", "-x", "^"],
)  # fmt: skip
def test_a_query_that_says_nothing_or_looks_like_syntax_is_no_error(run, talks, query) -> None:
    ran = run("sessions", "search", "--", query)
    assert ran.code == 0
    assert ran.out == "Nothing found.\n"


@pytest.mark.parametrize(
    "arguments",
    [["x", "--limit", "-1"], ["x", "--since", "whenever"], ["x", "--role", "robot"], ["x", "-C", "-2"], []],
)
def test_arguments_that_make_no_sense_are_refused_in_one_line(run, talks, arguments) -> None:
    ran = run("sessions", "search", *arguments)
    assert ran.code == 2
    assert ran.err.count("\n") == 1


def test_a_stored_escape_sequence_is_shown_harmlessly(run, db, talks) -> None:
    db.append_message("desk", "user", "needle \x1b[2J\x9b31m\x07 end")
    out = run("sessions", "search", "needle", "-C", "1").out
    assert "needle" in out
    assert not set(out) & set("\x1b\x9b\x07")


def test_at_a_terminal_the_match_is_coloured_and_lines_fit(terminal, db, talks) -> None:
    db.append_message("desk", "user", "before " * 30 + "needle " + "after " * 30)
    shown = terminal("sessions", "search", "needle")
    assert "\x1b[31mneedle\x1b[0m" in shown
    assert ">>>" not in shown
    (line,) = [line for line in shown.splitlines() if "needle" in line]
    assert len(line) - line.count("\x1b") * 4 <= 84


def test_an_index_that_is_behind_costs_no_hit_and_is_told(run, db, talks, home) -> None:
    home.mkdir()
    (home / "config.yaml").write_text("limits:\n  search_catch_up_ms: 0\n")
    db.append_messages("desk", [{"role": "user", "content": f"needle {n}"} for n in range(2_000)])
    ran = run("sessions", "search", "needle", "--newest", "--limit", "3")
    assert "needle 1999" in ran.out
    assert "messages behind" in ran.err


def test_a_segment_with_many_hits_is_looked_up_once(run, db, talks, monkeypatch) -> None:
    asked, tip = [], SessionDB.get_compression_tip
    monkeypatch.setattr(SessionDB, "get_compression_tip", lambda self, one: asked.append(one) or tip(self, one))
    db.append_messages("desk", [{"role": "user", "content": f"ryokan {n}"} for n in range(9)])
    assert len(hits(run("sessions", "search", "ryokan", "--json"))) == 12
    assert sorted(asked) == ["desk", "trip_1", "trip_2"]
