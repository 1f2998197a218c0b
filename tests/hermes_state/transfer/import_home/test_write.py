"""Bringing over a home of hermes-agent: it is not touched, nothing is lost, nothing is doubled.

The homes are made by hand (`tests.support.old_homes`), of every age; the store is SQLite and PostgreSQL.
"""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.old_homes import OldHome, entry
from tests.support.processes import Worker

from hermes_state.errors import FutureSchema, NotADatabase, StateError, StoreUnavailable
from hermes_state.ids import LOCAL_OWNER
from hermes_state.session_db import SessionDB
from hermes_state.transfer.import_home import scan, source, write

pytestmark = pytest.mark.slow


def bring(db: SessionDB, folder: Path) -> tuple[scan.HomeScan, write.ImportOutcome]:
    home = source.find(folder)
    opened = None if home.database is None else source.HomeDatabase(home.database)
    try:
        found = scan.scan_home(home, opened)
        return found, write.write_home(db, found)
    finally:
        if opened is not None:
            opened.close()


def fingerprint(folder: Path) -> dict[str, Any]:
    """Names, sizes, times and bytes of everything in a folder, and the times of the folders."""
    found: dict[str, Any] = {}
    for path in sorted([folder, *folder.rglob("*")]):
        status = path.stat()
        content = path.read_bytes() if path.is_file() else None
        found[str(path.relative_to(folder))] = (status.st_size, status.st_mtime_ns, status.st_mode, content)
    return found


def texts(db: SessionDB, session_id: str, **options: Any) -> list[Any]:
    return [row["content"] for row in db.get_messages(session_id, **options)]


# The other home is only read


@pytest.mark.parametrize("log", [False, True], ids=["at rest", "with a log"])
def test_not_a_byte_of_the_other_home_changes(db: SessionDB, tmp_path: Path, log: bool) -> None:
    made = OldHome(tmp_path / "made")
    made.conversation("a", 3)
    folder = made.leave_log(tmp_path / "theirs") if log else made.close()
    assert (folder / "state.db-wal").exists() == log
    (folder / "state.db-shm").unlink(missing_ok=True)
    for path in (*folder.rglob("*"), folder):
        path.chmod(0o555 if path.is_dir() else 0o444)
    before = fingerprint(folder)
    _, done = bring(db, folder)
    assert done.messages == 6
    assert fingerprint(folder) == before


def test_committed_rows_that_are_only_in_the_log_come_over(db: SessionDB, tmp_path: Path) -> None:
    made = OldHome(tmp_path / "made")
    made.session("a")
    made.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    made.message("a", "user", "written just before the crash")
    folder = made.leave_log(tmp_path / "theirs")
    bring(db, folder)
    assert texts(db, "a") == ["written just before the crash"]


def test_a_home_that_is_written_to_meanwhile_is_refused_and_nothing_is_stored(db: SessionDB, tmp_path: Path) -> None:
    made = OldHome(tmp_path / "made")
    made.conversation("a", 3)
    home = source.find(made.close())
    assert home.database is not None
    with source.HomeDatabase(home.database) as opened:
        found = scan.scan_home(home, opened)
        with sqlite3.connect(home.database) as other:
            other.execute("INSERT INTO messages (session_id, role, timestamp) VALUES ('a', 'user', 1)")
        other.close()
        with pytest.raises(StateError, match="written to while"):
            write.write_home(db, found)
    assert db.session_count() == 0


# Every age


@pytest.mark.parametrize("version", [0, 2, 9, 10, 15, 17, 19, 21, 22])
def test_homes_of_every_age_come_over_whole(db: SessionDB, tmp_path: Path, version: int) -> None:
    made = OldHome(tmp_path / "made", version)
    made.conversation("first", 2)
    made.end("first", "compression")
    made.conversation("second", 1, parent_session_id="first")
    calls = json.dumps([{"id": "c1", "function": {"name": "look", "arguments": '{"at": "大别山"}'}}])
    made.message("second", "assistant", None, tool_calls=calls)
    made.message("second", "tool", "seen", tool_call_id="c1", tool_name="look")
    if version >= 2:
        made.db.execute("UPDATE sessions SET input_tokens = 70, output_tokens = 7 WHERE id = 'second'")
    found, done = bring(db, made.close())
    assert (found.version, done.sessions, done.conversations, done.messages) == (version, 2, 1, 8)
    assert [row["id"] for row in db.get_messages("first")] == [1, 2, 3, 4]
    assert db.get_compression_tip("first") == "second"
    listed = db.list_sessions_rich()
    assert [(row["id"], row["preview"], row["message_count"]) for row in listed] == [("second", "second asks 0", 4)]
    second = db.get_session("second")
    assert second is not None
    assert second["last_active"] == db.get_messages("second")[-1]["timestamp"]
    assert [hit["session_id"] for hit in db.search_messages("大别山")] == ["second"]
    db.append_message("second", "user", "and on")
    assert texts(db, "second")[-1] == "and on"


def test_use_is_seeded_from_totals_where_it_was_not_kept_by_model(db: SessionDB, tmp_path: Path) -> None:
    made = OldHome(tmp_path / "made", 19)
    made.session("a", model="m1", input_tokens=70, output_tokens=7)
    made.session("b", model="m1")
    bring(db, made.close())
    rows = db.engine.read(lambda conn: conn.rows("SELECT session_id, model, input_tokens FROM session_model_usage"))
    assert rows == [("a", "m1", 70)]


def test_files_from_before_the_marks_tell_delegations_from_branches_by_their_times(
    db: SessionDB, tmp_path: Path
) -> None:
    made = OldHome(tmp_path / "made", 15)
    made.conversation("chat", 1)
    made.conversation("errand", 1, parent_session_id="chat")
    made.end("chat", "branched")
    made.conversation("fork", 1, parent_session_id="chat")
    bring(db, made.close())
    assert {row["id"] for row in db.list_sessions_rich()} == {"chat", "fork"}


# Refusals


def _empty(folder: Path) -> Path:
    (folder / "state.db").write_bytes(b"")
    return folder


def _text(folder: Path) -> Path:
    (folder / "state.db").write_text("dear diary")
    return folder


def _future(folder: Path) -> Path:
    made = OldHome(folder)
    made.db.execute("UPDATE schema_version SET version = 23")
    return made.close()


def _other(folder: Path) -> Path:
    with sqlite3.connect(folder / "state.db") as other:
        other.execute("CREATE TABLE recipes (id INTEGER)")
    other.close()
    return folder


def _ours(folder: Path) -> Path:
    SessionDB(folder / "state.db").close()
    return folder


@pytest.mark.parametrize(
    ("make", "kind", "words"),
    [
        (lambda folder: folder / "nowhere", StoreUnavailable, "folder does not exist"),
        (lambda folder: folder, NotADatabase, "not a home of hermes-agent"),
        (_empty, NotADatabase, "empty"),
        (_text, NotADatabase, "not a database"),
        (_future, FutureSchema, "schema 23"),
        (_other, NotADatabase, "belongs to another program"),
        (_ours, NotADatabase, "belongs to Hermes, not to hermes-agent"),
    ],
)
def test_what_is_no_home_of_theirs_is_refused_in_one_line(
    tmp_path: Path, make: Callable[[Path], Path], kind: type[StateError], words: str
) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir()
    path = make(folder)
    before = fingerprint(folder)
    with pytest.raises(kind, match=words) as refused:
        home = source.find(path)
        assert home.database is not None
        source.HomeDatabase(home.database).close()
    assert "\n" not in str(refused.value)
    assert str(folder) in str(refused.value)
    assert fingerprint(folder) == before


# What a message says and where it stands


def test_states_kinds_and_odd_values_come_over(db: SessionDB, tmp_path: Path) -> None:
    made = OldHome(tmp_path / "made")
    made.session("a")
    parts = [{"type": "text", "text": "què és això? 大"}, {"type": "image_url", "image_url": {"url": "data:,"}}]
    made.message("a", "user", parts)
    made.message("a", "user", "a NUL \0 inside, and a back\\slash")
    made.message("a", "user", "\0json:{broken")
    made.message("a", "assistant", "taken back", active=0)
    made.message("a", "assistant", "summarised", active=0, compacted=1)
    made.message("a", "assistant", "thought", reasoning="with \0 in it", reasoning_content="", observed=1)
    made.db.execute(
        "INSERT INTO messages (session_id, role, content, timestamp) VALUES ('a', 'user', CAST(x'ff41' AS TEXT), 'x')"
    )
    bring(db, made.close())
    said = texts(db, "a")
    assert said[:3] == [parts, "a NUL \0 inside, and a back\\slash", "\0json:{broken"]
    assert said[4] == "\ufffdA"
    every = db.get_messages("a", include_inactive=True)
    assert [(row["active"], row["compacted"]) for row in every[3:5]] == [(0, 0), (0, 1)]
    thought = db.get_messages_as_conversation("a")[3]
    assert (thought["reasoning"], thought["reasoning_content"], thought["observed"]) == ("with \0 in it", "", True)
    assert db.list_sessions_rich()[0]["preview"] == "què és això? 大"
    assert [hit["id"] for hit in db.search_messages("això")] == [1]


def test_a_duplicate_title_stays_with_the_newest(db: SessionDB, tmp_path: Path) -> None:
    made = OldHome(tmp_path / "made")
    made.session("old", title="Trip")
    made.session("new", title="Trip")
    found, _ = bring(db, made.close())
    assert (db.get_session_title("old"), db.get_session_title("new")) == (None, "Trip")
    assert [(problem.kind, problem.which) for problem in found.problems] == [("title", "old")]


def test_messages_without_a_session_are_reported_and_the_rest_comes(db: SessionDB, tmp_path: Path) -> None:
    made = OldHome(tmp_path / "made")
    made.conversation("a", 1)
    made.message("gone", "user", "whose am I")
    made.session("b", parent_session_id="never")
    found, done = bring(db, made.close())
    assert (done.messages, found.lost_messages) == (2, 1)
    assert done.cut == {"b": "its parent never is missing"}


def test_unknown_columns_and_tables_are_kept_and_columns_go_with_their_row(
    db: SessionDB, engine: str, tmp_path: Path
) -> None:
    made = OldHome(tmp_path / "made")
    made.extra_column("sessions", "mood")
    made.extra_column("messages", "weather")
    made.session("a", mood="merry")
    made.message("a", "user", "hello", weather=21.5)
    made.db.execute('CREATE TABLE "odd ""name" (id INTEGER PRIMARY KEY, note VARCHAR(9))')
    made.db.execute('INSERT INTO "odd ""name" VALUES (7, \'kept\')')
    found, done = bring(db, made.close())
    kept = "SELECT session_id, message_id, name, value FROM kept_columns ORDER BY name"
    assert db.engine.read(lambda conn: conn.rows(kept)) == [
        ("a", None, "mood", '"merry"'),
        (None, 1, "weather", "21.5"),
    ]
    assert found.extra_tables == {'odd "name': 1}
    if engine == "sqlite":
        assert done.tables == {'odd "name': 1}
        assert db.engine.read(lambda conn: conn.rows('SELECT id, note FROM "odd ""name"')) == [(7, "kept")]
    else:
        assert done.tables == {}
    db.delete_session("a")
    assert db.engine.read(lambda conn: conn.rows(kept)) == []


# Conversations


@pytest.mark.parametrize("seed", range(4))
def test_forks_rings_and_strays_get_the_tips_the_chain_gives_them(db: SessionDB, tmp_path: Path, seed: int) -> None:
    """Worked out for a whole home at once, and row by row from what was stored: the same."""
    dice = random.Random(seed)
    made = OldHome(tmp_path / "made")
    ids: list[str] = []
    for number in range(120):
        parent = dice.choice(ids) if ids and dice.random() < 0.8 else None
        marks = dice.choice([None] * 6 + ["_branched_from", "_delegate_from"])
        config = json.dumps({marks: parent}) if marks and parent else None
        source_name = "tool" if dice.random() < 0.1 else "cli"
        one = made.session(f"s{number:03}", source_name, parent_session_id=parent, model_config=config)
        if dice.random() < 0.7:
            made.message(one, "user", one, timestamp=dice.choice([5.0, 6.0, 7.0]))
        if dice.random() < 0.6:
            made.end(one, dice.choice(["compression", "compression", "session_reset"]))
        ids.append(one)
    made.db.execute("UPDATE sessions SET parent_session_id = 's001', end_reason = 'compression' WHERE id = 's000'")
    made.db.execute("UPDATE sessions SET parent_session_id = 's000', end_reason = 'compression' WHERE id = 's001'")
    bring(db, made.close())
    conversations = db.engine.read(lambda conn: conn.rows("SELECT id, tip_id, origin_kind FROM conversations"))
    assert {root: tip for root, tip, _ in conversations} == {
        root: db.get_compression_tip(root) for root, _, _ in conversations
    }
    shown = {row["id"] for row in db.list_sessions_rich(limit=1_000)}
    assert shown == {tip for _, tip, kind in conversations if kind in ("new", "branch", "reset")}
    assert db.session_count() == 120


# Routes and people


def test_routes_heal_to_the_tip_the_database_counts_and_broken_ones_are_set_aside(
    db: SessionDB, tmp_path: Path
) -> None:
    made = OldHome(tmp_path / "made")
    made.conversation("first", 1, source="telegram")
    made.end("first", "compression")
    made.conversation("second", 1, source="telegram", parent_session_id="first")
    made.session("other", "telegram")
    made.route("agent:main:telegram:dm:1", "other", scope="/old/place/sessions", at=1)
    made.route("agent:main:telegram:dm:1", "first", scope="C:\\Users\\ana\\sessions", at=2)
    secret = {"model": "m", "api_key": "hunter2"}
    made.index(
        {
            "agent:main:telegram:dm:1": entry("agent:main:telegram:dm:1", "other"),
            "agent:main:telegram:dm:2": entry("agent:main:telegram:dm:2", "never-stored", model_override=secret),
            "agent:main:moon:dm:3": entry("agent:main:moon:dm:3", "other", origin={"platform": "moon", "chat_id": 1}),
            "agent:main:telegram:dm:4": {"session_id": "other", "model_override": secret},
        }
    )
    found, done = bring(db, made.close())
    stored = {key: json.loads(text) for key, text in db.load_gateway_routing_entries(scope="sessions").items()}
    assert {key: one["session_id"] for key, one in stored.items()} == {
        "agent:main:telegram:dm:1": "second",
        "agent:main:telegram:dm:2": "never-stored",
        "agent:main:moon:dm:3": "other",
    }
    assert done.routes == 3
    assert stored["agent:main:telegram:dm:2"]["model_override"] == {"model": "m"}
    assert [problem.which for problem in found.problems] == ["agent:main:moon:dm:3", "agent:main:telegram:dm:4"]
    assert list(found.set_aside["sessions.json"]) == ["agent:main:telegram:dm:4"]
    assert "hunter2" not in json.dumps([stored, found.set_aside])


def test_direct_chats_get_a_person_without_rights_groups_none_and_the_terminal_its_owner(
    db: SessionDB, tmp_path: Path
) -> None:
    made = OldHome(tmp_path / "made")
    origin = json.dumps({"user_name": "Ana"})
    made.session("dm", "telegram", user_id="42", chat_type="dm", origin_json=origin)
    made.session("topic", "telegram", user_id="42", chat_type="dm", thread_id="7")
    made.session("group", "telegram", user_id="42", chat_type="group")
    made.session("shell")
    bring(db, made.close())
    owners = dict(db.engine.read(lambda conn: conn.rows("SELECT id, owner_id FROM conversations")))
    person = db.people.find(platform="telegram", native_id="42")
    assert person is not None
    assert (person.display_name, person.role) == ("Ana", "guest")
    assert owners == {"dm": person.id, "topic": person.id, "group": None, "shell": LOCAL_OWNER}


# Again, and into a home that has data


def test_a_second_import_doubles_nothing_and_tells_what_differs(db: SessionDB, tmp_path: Path) -> None:
    made = OldHome(tmp_path / "made")
    for one in ("same", "on-here", "on-there", "changed"):
        made.conversation(one, 1)
    made.route("agent:main:telegram:dm:1", "same")
    bring(db, made.close())
    before = db.message_count()
    db.append_message("on-here", "user", "more")
    again = sqlite3.connect(made.database)
    again.execute("INSERT INTO messages (session_id, role, content, timestamp) VALUES ('on-there', 'user', 'more', 9)")
    again.execute("UPDATE messages SET content = 'rewritten' WHERE session_id = 'changed' AND role = 'user'")
    again.commit()
    again.close()
    home = source.find(made.folder)
    assert home.database is not None
    with source.HomeDatabase(home.database) as opened:
        found = scan.scan_home(home, opened)
        differences = {one.session_id: one.how for one in write.compare(db, found)}
        done = write.write_home(db, found)
    assert (done.sessions, done.messages, done.routes, done.routes_kept) == (0, 0, 0, 1)
    assert sorted(done.skipped) == ["changed", "on-here", "on-there", "same"]
    assert db.message_count() == before + 1
    assert texts(db, "changed")[0] == "changed asks 0"
    assert differences == {
        "on-here": "was continued here",
        "on-there": "was continued there; the new part was not imported",
        "changed": "has other messages",
    }


def test_into_a_home_with_data_messages_are_numbered_on_and_ours_stays(db: SessionDB, tmp_path: Path) -> None:
    db.create_session("ours", "cli")
    db.set_session_title("ours", "Trip")
    own = [db.append_message("ours", "user", f"mine {n}") for n in range(3)]
    db.search_messages("mine")  # the index has caught up: what comes must come behind it
    made = OldHome(tmp_path / "made")
    made.conversation("theirs", 2, title="Trip")
    _, done = bring(db, made.close())
    assert texts(db, "ours") == ["mine 0", "mine 1", "mine 2"]
    ids = [row["id"] for row in db.get_messages("theirs")]
    assert ids == sorted(ids)
    assert ids[0] > max(own)
    assert done.titles_taken == ["theirs"]
    assert (db.get_session_title("ours"), db.get_session_title("theirs")) == ("Trip", None)
    assert len(db.search_messages("theirs asks")) == 2
    assert db.append_message("ours", "user", "next") > max(ids)


def test_a_continuation_that_came_later_joins_the_conversation_that_is_here(db: SessionDB, tmp_path: Path) -> None:
    made = OldHome(tmp_path / "made")
    made.conversation("first", 1)
    made.end("first", "compression")
    bring(db, made.close())
    later = OldHome(tmp_path / "later")
    later.conversation("first", 1)
    later.end("first", "compression")
    later.conversation("second", 1, parent_session_id="first")
    bring(db, later.close())
    assert db.get_compression_tip("first") == "second"
    assert [row["id"] for row in db.list_sessions_rich()] == ["second"]


# Killed


def test_a_kill_in_the_middle_leaves_nothing_and_a_second_run_brings_everything(
    db: SessionDB, address: str | Path, reopen: Callable[[SessionDB], SessionDB], tmp_path: Path
) -> None:
    made = OldHome(tmp_path / "made")
    made.db.execute("BEGIN")
    for number in range(60):
        made.conversation(f"s{number}", 60)
    made.db.execute("COMMIT")
    folder = made.close()
    db.create_session("ours", "cli")
    with Worker(Path(__file__).parent / "workers" / "import_and_stop.py", address, folder) as worker:
        assert worker.line() == "half"
        worker.kill()
    db = reopen(db)
    assert [row["id"] for row in db.list_sessions_rich()] == ["ours"]
    assert db.message_count() == 0
    _, done = bring(db, folder)
    assert (done.sessions, done.messages) == (60, 7_200)
    assert db.message_count() == 7_200
