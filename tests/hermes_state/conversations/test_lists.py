"""Lists, counts, ids and titles (contract §2.4, §2.5)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hermes_config.limits import Limits
from hermes_state import SessionDB
from hermes_state.errors import InvalidValue
from hermes_testing.clock import Clock


def ids(rows: list[dict[str, object]]) -> list[object]:
    return [row["id"] for row in rows]


def chained(db: SessionDB, clock: Clock) -> None:
    """Three segments, as another program writes them one call at a time."""
    for name, parent in (("one", None), ("two", "one"), ("three", "two")):
        db.create_session(name, "cli", parent_session_id=parent)
        db.set_session_title(name, f"Trip {name}")
        db.append_message(name, "user", f"in {name}")
        clock.advance(10)
        if name != "three":
            db.end_session(name, "compression")


def test_a_chain_is_one_entry_with_the_tips_words_and_the_roots_start(db: SessionDB, clock: Clock) -> None:
    start = clock()
    chained(db, clock)
    (row,) = db.list_sessions_rich()
    assert (row["id"], row["title"], row["preview"], row["started_at"]) == ("three", "Trip three", "in three", start)
    assert row["_lineage_root_id"] == "one"
    (raw,) = db.list_sessions_rich(project_compression_tips=False)
    assert (raw["id"], raw["title"]) == ("one", "Trip one")
    assert len(db.list_sessions_rich(include_children=True)) == 3


def test_an_old_conversation_that_went_on_today_is_on_top(db: SessionDB, clock: Clock) -> None:
    chained(db, clock)
    db.create_session("newer", "cli")
    db.append_message("newer", "user", "x")
    clock.advance(10)
    assert ids(db.list_sessions_rich(order_by_last_active=True)) == ["newer", "three"]
    db.append_message("three", "user", "back again")
    assert ids(db.list_sessions_rich(order_by_last_active=True)) == ["three", "newer"]
    assert ids(db.list_sessions_rich()) == ["newer", "three"]


def test_branches_show_and_delegations_do_not(db: SessionDB) -> None:
    db.create_session("parent", "cli")
    db.create_session("sub", "cli", parent_session_id="parent", model_config={"_delegate_from": "parent"})
    db.create_session("branch", "cli", parent_session_id="parent", model_config={"_branched_from": "parent"})
    db.create_session("stray", "cli", parent_session_id="parent")
    assert set(ids(db.list_sessions_rich())) == {"parent", "branch"}
    db.end_session("parent", "compression")
    assert db.get_compression_tip("parent") == "stray"
    assert set(ids(db.list_sessions_rich())) == {"stray", "branch"}


def test_filters_narrow_and_never_surprise(db: SessionDB) -> None:
    for name, source, cwd, words in (
        ("a", "cli", "/w/100%_x", 2),
        ("b", "telegram", "/w/100zzx", 0),
        ("c", "tool", None, 1),
    ):
        db.create_session(name, source, cwd=cwd)
        for _ in range(words):
            db.append_message(name, "user", "x")
    assert ids(db.list_sessions_rich(source="cli")) == ["a"]
    assert set(ids(db.list_sessions_rich(exclude_sources=["tool"]))) == {"a", "b"}
    assert ids(db.list_sessions_rich(cwd_prefix="/w/100%_")) == ["a"]
    assert ids(db.list_sessions_rich(min_message_count=2)) == ["a"]
    assert db.list_sessions_rich(source="' OR 1=1 --") == []
    assert db.list_sessions_rich(limit=-1) == []
    assert db.list_sessions_rich(limit=5, offset=99) == []
    assert len(db.list_sessions_rich(offset=-3)) == 3
    assert db.session_count() == 3
    assert db.session_count(source="cli") == db.session_count(min_message_count=2) == 1


def test_titles_and_ids_of_any_segment_find_the_conversation(db: SessionDB, clock: Clock) -> None:
    chained(db, clock)
    db.create_session("else", "cli")
    db.set_session_title("else", "What's up, doc?")
    find = lambda **kw: ids(db.list_sessions_rich(order_by_last_active=True, **kw))  # noqa: E731
    assert find(id_query="tw") == ["three"]
    assert find(search_query="trip one") == ["three"]
    assert find(search_query="TRIP") == ["three"]
    assert find(search_query="what's") == ["else"]
    assert find(search_query="%") == []
    assert find(search_query="\0") == find(search_query=" \0 ") == find()
    assert ids(db.search_sessions_by_id("one")) == ["three"]
    assert ids(db.search_sessions_by_id("e")) == ["else", "three"]
    for name in ("ten", "tenth", "often"):  # the last two are newer, and so come first otherwise
        db.create_session(name, "cli")
        clock.advance(10)
    assert ids(db.search_sessions_by_id("ten")) == ["ten", "tenth", "often"], "the id itself, then those that begin so"


def test_archiving_any_segment_hides_the_conversation(db: SessionDB, clock: Clock) -> None:
    chained(db, clock)
    assert db.set_session_archived("three", True)
    assert db.list_sessions_rich() == []
    assert db.session_count() == 0
    assert ids(db.list_sessions_rich(archived_only=True)) == ["three"]
    assert db.session_count(archived_only=True) == 3
    assert db.set_session_archived("one", False)
    assert ids(db.list_sessions_rich()) == ["three"]
    assert db.set_session_archived("nobody", True) is False


def test_prefixes_find_one_or_none(db: SessionDB) -> None:
    for name in ("pfx_aa1", "pfx_aa2", "pfx_bb1", "pfx%x"):
        db.create_session(name, "cli")
    found = {p: db.resolve_session_id(p) for p in ("pfx_", "pfx_a", "pfx_b", "pfx%", "pfx_aa1", "nope", "")}
    assert found == {
        "pfx_": None, "pfx_a": None, "pfx_b": "pfx_bb1", "pfx%": "pfx%x", "pfx_aa1": "pfx_aa1", "nope": None, "": None,
    }  # fmt: skip
    assert db.matching_session_ids("pfx_a") == ["pfx_aa1", "pfx_aa2"]


def test_numbered_titles(db: SessionDB, clock: Clock) -> None:
    for name, title in (
        ("1", "my chat"),
        ("2", "my chat #2"),
        ("3", "my chat #3"),
        ("4", "100% _done"),
        ("5", "100x ydone #9"),
    ):
        db.create_session(name, "cli")
        db.set_session_title(name, title)
        clock.advance(1)
    assert db.resolve_session_by_title("my chat") == "3"
    assert db.get_next_title_in_lineage("my chat") == db.get_next_title_in_lineage("my chat #2") == "my chat #4"
    assert db.get_next_title_in_lineage("100% _done") == "100% _done #2"
    assert db.resolve_session_by_title("100% _done") == "4"
    assert db.get_next_title_in_lineage("fresh") == "fresh"
    assert db.get_next_title_in_lineage("my chat (2)") == "my chat (2)"


def test_titles_are_one_line_and_unique(db: SessionDB) -> None:
    db.create_session("a", "cli")
    db.create_session("b", "cli")
    assert db.set_session_title("a", "  Trip\tto \u202e\u200bKyoto\x07\n2026 ") is True
    assert db.get_session_title("a") == "Trip to Kyoto 2026"
    with pytest.raises(ValueError, match="Title 'Trip to Kyoto 2026' is already in use by session a"):
        db.set_session_title("b", "Trip to Kyoto 2026")
    with pytest.raises(ValueError, match=r"Title too long \(101 chars, max 100\)"):
        db.set_session_title("b", "x" * 101)
    assert db.set_session_title("b", "日本語 🎌 ñ") is True
    assert db.set_session_title("nobody", "t") is False
    assert db.set_session_title("a", "") is True
    assert db.get_session_title("a") is None
    assert db.set_auto_title_if_empty("a", "Auto") is True
    assert db.set_auto_title_if_empty("a", "Second") is False
    assert db.get_session_by_title("Auto")["id"] == "a"
    assert db.sanitize_title("a\ud800b") == "a\ufffdb"


def test_a_tip_may_take_its_ancestors_title(db: SessionDB, clock: Clock) -> None:
    chained(db, clock)
    assert db.set_session_title("three", "Trip one") is True
    assert db.get_session_title("one") is None


def test_where_to_resume(db: SessionDB, clock: Clock) -> None:
    db.create_session("head", "cli")
    db.end_session("head", "compression")
    for name in ("older", "newer"):
        clock.advance(1)
        db.create_session(name, "cli", parent_session_id="head")
    db.append_message("newer", "user", "x")
    assert db.resolve_resume_session_id("head") == "newer"
    assert db.resolve_resume_session_id("unknown") == "unknown"
    assert db.resolve_resume_session_id("") == ""
    assert db.get_compression_lineage("unknown") == []


def test_a_cycle_in_an_old_home_does_not_hang(db: SessionDB) -> None:
    db.create_session("a", "cli")
    db.create_session("b", "cli", parent_session_id="a")
    db._execute_write(
        lambda conn: conn.run("UPDATE sessions SET parent_session_id = 'b', end_reason = 'compression', root_id = 'a'")
    )
    db._execute_write(lambda conn: conn.run("UPDATE sessions SET parent_session_id = 'a' WHERE id = 'b'"))
    assert db.get_compression_tip("a") in ("a", "b")
    assert len(db.get_messages_as_conversation("a", include_ancestors=True)) == 0
    assert db.get_compression_lineage("b")


def test_how_long_a_title_may_be_is_a_limit(make_db: Callable[..., SessionDB]) -> None:
    db = make_db(limits=Limits(title_chars=10))
    chat = db.ledger.open(source="cli").session_id
    assert db.set_session_title(chat, "ten chars.")
    for name in (
        lambda: db.set_session_title(chat, "eleven char"),
        lambda: db.set_auto_title_if_empty(chat, "eleven char"),
        lambda: db.ledger.branch(chat, title="eleven char"),
    ):
        with pytest.raises(InvalidValue, match="max 10"):
            name()
    assert db.get_session_title(chat) == "ten chars."


def test_a_title_is_unique_for_its_owner_and_in_its_room(db: SessionDB) -> None:
    ada, bob = (db.people.ensure(platform="p", native_id=name).id for name in ("ada", "bob"))
    for name, owner in (("a", ada), ("a2", ada), ("b", bob)):
        db.ledger.open(source="p", owner=owner, session_id=name)
    for name, chat in (("r", "1"), ("r2", "1"), ("other", "2")):
        db.ledger.open(source="p", session_id=name, fields={"chat_id": chat, "chat_type": "group"})
    for free in ("a", "b", "r", "other"):
        assert db.set_session_title(free, "Plan")
    for taken, holder in (("a2", "a"), ("r2", "r")):
        with pytest.raises(ValueError, match=f"already in use by session {holder}"):
            db.set_session_title(taken, "Plan")
        assert db.get_next_title_in_lineage("Plan", beside=taken) == "Plan #2"
        db.set_session_title(taken, "Plan #2")
    assert db.get_next_title_in_lineage("Plan", beside="b") == "Plan #2", "numbers of others do not count"
    assert db.get_next_title_in_lineage("Plan") == "Plan #3"
    db.create_session("mine", "cli")
    db.set_session_title("mine", "Plan")
    assert db.get_session_by_title("Plan")["id"] == "mine"  # type: ignore[index]
    assert len(db.sessions_by_title("Plan")) == 5
