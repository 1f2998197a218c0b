"""Naming a conversation, and what changes it: rename, archive, delete, prune. Hostile input never hits a wrong row."""

from __future__ import annotations

import io
import sys
import time

import pytest
from tests.support.stores import transact

from hermes_cli.main import main
from hermes_state import SessionDB
from hermes_state.ids import ConversationId, SessionId
from hermes_testing.clock import Clock

pytestmark = [pytest.mark.usefixtures("named_store"), pytest.mark.slow]

DAY = 86_400.0


@pytest.fixture
def clock() -> Clock:
    return Clock(time.time() - 100 * DAY)


@pytest.fixture
def talks(db: SessionDB, clock: Clock) -> list[str]:
    """Four conversations; the ids of two begin alike, and one was compressed."""
    for session_id, title in (("aa11", "Garden"), ("aa22", "Garden fence"), ("bb33", "Bike"), ("cc44", None)):
        db.ledger.open(source="cli", session_id=session_id)
        db.set_session_title(session_id, title)
        db.append_message(session_id, "user", f"about {session_id}")
        clock.advance(60)
    db.ledger.rotate("bb33", [{"role": "user", "content": "so far"}], new_id="bb44")
    return ["aa11", "aa22", "bb44", "cc44"]


def ids(db: SessionDB) -> set[str]:
    return {row["id"] for row in db.list_sessions_rich(include_archived=True)}


# Naming one


@pytest.mark.parametrize(
    ("wanted", "shown"),
    [
        ("aa11", "aa11"),
        ("aa2", "aa22"),
        ("Garden", "aa11"),
        ("garden FENCE", "aa22"),
        ("fence", "aa22"),
        ("bb", "bb44"),
    ],
)
def test_an_id_its_beginning_a_title_or_a_part_of_one_name_a_conversation(run, talks, wanted, shown) -> None:
    assert run("sessions", "show", wanted, "--json").data["segments"][0]["id"] == shown


@pytest.mark.parametrize("verb", ["show", "lineage", "delete"])
def test_what_fits_several_is_listed_with_ids_and_titles_and_refused(run, db, talks, verb) -> None:
    ran = run("sessions", verb, "aa")
    assert ran.code == 2
    assert "fits 2 conversations" in ran.err
    for words in (("aa11", "Garden"), ("aa22", "Garden fence")):
        assert any(all(word in line for word in words) for line in ran.err.splitlines())
    assert ids(db) == set(talks)


def test_an_unknown_name_is_answered_with_the_nearest_titles(run, talks) -> None:
    ran = run("sessions", "show", "Gardn")
    assert ran.code == 1
    assert ran.err.count("\n") == 1
    assert 'no conversation "Gardn"' in ran.err
    assert '"Garden"' in ran.err
    assert "hermes sessions list" in run("sessions", "show", "zzz").err


def test_an_untitled_conversation_that_is_listed_by_its_first_words_is_to_be_named_by_its_id(run, db, talks) -> None:
    db.create_session("bare", source="cli")
    db.append_message("bare", "user", "hello there")
    said = run("sessions", "delete", "hello", "--yes")
    assert said.code == 1 and "takes it by its id" in said.err and "bare" in ids(db)


def test_a_verb_that_changes_something_does_not_guess_from_a_part_of_a_title(run, db, talks) -> None:
    for arguments in (("rename", "fence", "x"), ("archive", "fence"), ("delete", "fence", "--yes")):
        ran = run("sessions", *arguments)
        assert ran.code == 1
        assert '"Garden fence"' in ran.err
    assert db.get_session_title("aa22") == "Garden fence"


HOSTILE = [
    "../../x", "../../../etc/passwd", "aa11' OR '1'='1", 'aa11"; DROP TABLE sessions; --', "%", "aa%", "_a11", "a___",
    "aa11\0", "\udcff", "\x1b[31maa11", "a" * 10_000, "", " ", "aa11\n", "*", "💥", "\u202eaa11",
]  # fmt: skip


@pytest.mark.parametrize("verb", ["show", "lineage", "delete", "archive", "unarchive", "rename"])
def test_a_hostile_name_finds_nothing_and_changes_nothing(run, db, talks, verb) -> None:
    more = {"delete": ["--yes"], "rename": ["new title"]}.get(verb, [])
    for wanted in HOSTILE:
        ran = run("sessions", verb, wanted, *more)
        assert ran.code == 1, wanted
        assert ran.err.count("\n") == 1, wanted
        assert len(ran.err) < 400, wanted
        assert not set(ran.err) & set("\x1b\0\u202e"), wanted
        assert ids(db) == set(talks), wanted
    assert db.get_session_title("aa11") == "Garden"


def test_a_hostile_id_that_exists_is_an_opaque_value(run, db, talks) -> None:
    for session_id in ("../../x", "o'brien", 'say "hi"', "100%", "a_b", "-dash"):
        db.ledger.open(source="cli", session_id=session_id)
        db.append_message(session_id, "user", f"I am {session_id}")
        assert f"I am {session_id}" in run("sessions", "show", "--", session_id).out
        assert run("sessions", "delete", "--yes", "--", session_id).code == 0
        assert db.get_session(session_id) is None
    assert ids(db) == set(talks)


# Rename


def test_rename_moves_the_title_of_the_newest_segment(run, db, talks) -> None:
    assert run("sessions", "rename", "bb33", "Bike", "repair").out == 'bb44 is now called "Bike repair".\n'
    assert db.get_session_title("bb44") == "Bike repair"


def test_control_characters_are_dropped_from_a_title_and_what_is_stored_is_told(run, db, talks) -> None:
    ran = run("sessions", "rename", "aa11", "Gar\x1b[31mden\0 \udcff\u202e plan")
    assert ran.code == 0
    title = db.get_session_title("aa11")
    assert title == "Gar[31mden \ufffd plan"
    assert title in ran.out


@pytest.mark.parametrize(
    ("title", "complaint"),
    [("x" * 101, "too long"), ("y" * 10_000, "too long"), ("\x07\u200b", "visible"), ("Bike", "already in use")],
)
def test_a_title_that_cannot_be_is_refused_in_one_line(run, db, talks, title, complaint) -> None:
    ran = run("sessions", "rename", "aa11", title)
    assert ran.code in (1, 2)
    assert complaint in ran.err
    assert ran.err.count("\n") == 1
    assert db.get_session_title("aa11") == "Garden"


# Archive


def test_archive_hides_and_unarchive_shows_again_the_whole_conversation(run, db, talks) -> None:
    assert 'Archived "Bike"' in run("sessions", "archive", "Bike").out
    assert "bb44" not in run("sessions", "list").out
    assert db.get_session("bb33")["archived"] == 1
    run("sessions", "unarchive", "Bike")
    assert "bb44" in run("sessions", "list").out


def test_a_program_gets_a_document_or_an_error(run, db, talks, monkeypatch, capsys) -> None:
    done = run("sessions", "archive", "Bike", "--json").data
    assert (done["matched"], done["changed"]) == (["bb44"], 1)
    db.ledger.end("aa11", "cli_close")
    person = io.StringIO("no\nno\n")
    person.isatty = lambda: True
    monkeypatch.setattr(sys, "stdin", person)
    for verb in (("sessions", "prune"), ("state", "maintain", "--prune-days", "1")):
        assert main([*verb, "--json"]) == 1
        assert capsys.readouterr().out == "", "a no is no document"


def test_archive_by_filter_asks_and_takes_ended_conversations_only(run, db, talks) -> None:
    db.ledger.end("aa11", "cli_close")
    assert run("sessions", "archive", "--source", "cli").code == 2  # nobody there to answer
    ran = run("sessions", "archive", "--source", "cli", "--yes")
    assert ran.out.endswith("1 conversation archived.\n")
    assert [row["id"] for row in run("sessions", "list", "--archived", "--json").data] == ["aa11"]
    assert run("sessions", "archive").code == 2
    assert run("sessions", "archive", "aa11", "--source", "cli").code == 2


# Delete


def test_delete_erases_the_whole_conversation_and_only_that(run, db, talks) -> None:
    ran = run("sessions", "delete", "Bike", "--yes")
    assert ran.code == 0
    assert '"Bike" (bb44), 2 segments, 2 messages' in ran.out
    assert db.get_session("bb33") is None
    assert ids(db) == {"aa11", "aa22", "cc44"}
    assert "bb33" not in run("sessions", "search", "about").out


def test_what_was_erased_is_found_by_no_search_and_backups_that_hold_it_are_named(run, home, talks) -> None:
    (home / "backups").mkdir(parents=True)
    (home / "backups" / "hermes-20260101-000000.db").touch()
    assert "about aa11" in run("sessions", "search", "aa11").out
    ran = run("sessions", "delete", "aa11", "--yes")
    assert "hermes-20260101-000000.db" in ran.err
    assert run("sessions", "search", "aa11").out == "Nothing found.\n"


def test_delete_without_a_terminal_needs_yes_and_a_dry_run_changes_nothing(run, db, talks) -> None:
    refused = run("sessions", "delete", "aa11")
    assert refused.code == 2
    assert "--yes" in refused.err
    assert "Would erase" in run("sessions", "delete", "aa11", "--dry-run").out
    assert ids(db) == set(talks)


def test_at_a_terminal_it_asks_and_only_yes_erases(terminal, db, talks) -> None:
    assert "Erase this for good?" in terminal("sessions", "delete", "aa11", answer="\n")
    assert ids(db) == set(talks)
    assert "Erased 1 conversation." in terminal("sessions", "delete", "aa11", answer="y\n")
    assert ids(db) == set(talks) - {"aa11"}


def test_one_unknown_name_among_several_erases_none(run, db, talks) -> None:
    assert run("sessions", "delete", "aa11", "nonsense", "--yes").code == 1
    assert ids(db) == set(talks)


def test_what_somebody_is_at_work_on_stays_and_it_is_said_how_to_stop_it(run, db, talks) -> None:
    root = ConversationId("aa11")
    lease = db.leases.acquire(root, holder="elsewhere", ttl=10**4)
    work = transact(db.turns.begin_in, conversation_id=root, session_id=SessionId("aa11"), fence=lease.fence)
    ran = run("sessions", "delete", "aa11", "cc44", "--yes")
    assert ran.code == 1 and "Erased 1 conversation.\n" in ran.out
    assert ran.err == (
        "hermes: a turn is running in conversation aa11; nothing was deleted."
        f" Stop it first: /stop where it runs, or hermes turns cancel {work.turn.id}.\n"
    )
    assert ids(db) == {"aa11", "aa22", "bb44"}
    db.leases.release(lease)
    assert run("turns", "cancel", work.turn.id).code == 0
    assert run("sessions", "delete", "aa11", "--yes").code == 0
    assert ids(db) == {"aa22", "bb44"}


# Prune


@pytest.fixture
def ended(db: SessionDB, talks: list[str], clock: Clock) -> list[str]:
    """All ended but one; `aa22` spoke yesterday."""
    for session_id in ("aa11", "aa22", "bb44"):
        db.ledger.end(session_id, "cli_close")
    db.append_message("aa22", "user", "again", timestamp=time.time() - DAY)
    return talks


def test_prune_takes_by_default_what_ended_and_was_silent_for_ninety_days(run, db, ended) -> None:
    listed = run("sessions", "prune", "--dry-run")
    assert "aa11" in listed.out
    assert "aa22" not in listed.out
    assert "cc44" not in listed.out
    assert run("sessions", "prune").code == 2
    assert ids(db) == set(ended)
    run("sessions", "prune", "--yes")
    assert ids(db) == {"aa22", "cc44"}


@pytest.mark.parametrize(
    ("filters", "gone"),
    [
        (["--title", "fence"], {"aa22"}),
        (["--title", "bike"], {"bb44"}),
        (["--title", "%"], set()),
        (["--title", "_arden"], set()),
        (["--source", "cli' OR 1=1 --"], set()),
        (["--end-reason", "cli_close", "--older-than", "2w"], {"aa11", "bb44"}),
        (["--min-messages", "2", "--max-messages", "2"], {"aa22"}),
        (["--newer-than", "30"], set()),
        (["--before", "2001-01-01"], set()),
    ],
)
def test_prune_filters_are_values_and_all_of_them_must_hold(run, db, ended, filters, gone) -> None:
    matched = run("sessions", "prune", "--dry-run", "--json", *filters).data["matched"]
    run("sessions", "prune", "--yes", *filters)
    assert ids(db) == set(ended) - gone
    assert gone <= set(matched)


@pytest.mark.parametrize(
    "filters",
    [["--older-than", "-5"], ["--older-than", "soon"], ["--before", "tomorrow"], ["--min-messages", "-1"],
     ["--max-cost", "nan"], ["--before", "9" * 30], ["--max-tokens", "1e400"]],
)  # fmt: skip
def test_a_filter_that_is_no_value_is_refused_before_anything_is_erased(run, db, ended, filters) -> None:
    ran = run("sessions", "prune", "--yes", *filters)
    assert ran.code == 2
    assert ids(db) == set(ended)
