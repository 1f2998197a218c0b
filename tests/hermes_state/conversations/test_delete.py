"""Erasing sessions: everything of theirs goes, everything else stays whole."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.support.stores import TestStores, transact

from hermes_state.conversations import delete
from hermes_state.errors import ConversationHeld, IntegrityError
from hermes_state.ids import ConversationId, PersonId, SessionId, SessionKey
from hermes_state.session_db import SessionDB
from hermes_state.storage.base import Connection
from hermes_testing.clock import Clock


def talk(db: SessionDB, session_id: str, *texts: str, source: str = "cli", **fields: Any) -> None:
    db.create_session(session_id, source, **fields)
    for text in texts or (f"words of {session_id}",):
        db.append_message(session_id, "user", text)


def compress(db: SessionDB, parent: str, child: str) -> None:
    db.end_session(parent, "compression")
    talk(db, child, parent_session_id=parent)


def route(db: SessionDB, key: str, session_id: str) -> None:
    db.save_gateway_routing_entry(key, json.dumps({"session_key": key, "session_id": session_id}))


def leads_to(db: SessionDB, key: str) -> str | None:
    entry = db.load_gateway_routing_entries().get(key)
    return None if entry is None else json.loads(entry)["session_id"]


def row(db: SessionDB, session_id: str) -> dict[str, Any]:
    found = db.get_session(session_id)
    assert found is not None, f"{session_id} is gone"
    return found


def tables(db: SessionDB) -> dict[str, list[dict[str, Any]]]:
    """Every row of the store, by table."""
    names = {
        "sqlite": "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'",
        "postgresql": "SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()",
    }[db.engine.dialect]
    return db.engine.read(
        lambda conn: {name: conn.execute(f'SELECT * FROM "{name}"').dicts() for (name,) in conn.rows(names)}
    )


def mentions(db: SessionDB, needle: str) -> list[str]:
    """Tables with a row that still says `needle` anywhere."""
    return sorted(name for name, rows in tables(db).items() if any(needle in str(r.values()) for r in rows))


def consistent(db: SessionDB) -> None:
    """Every session has its conversation, whose tip is its newest segment; one row stands for it in lists."""
    all_rows = tables(db)
    conversations = {c["id"]: c for c in all_rows["conversations"]}
    segments: dict[str, list[dict[str, Any]]] = {}
    for session in all_rows["sessions"]:
        segments.setdefault(session["root_id"], []).append(session)
    assert set(conversations) == set(segments)
    for root, parts in segments.items():
        ids = {part["id"] for part in parts}
        assert root in ids
        assert conversations[root]["tip_id"] in ids
        assert db.get_compression_tip(root) == conversations[root]["tip_id"]
        for part in parts:
            if part["id"] != root:
                assert part["parent_session_id"] in ids
            if part["end_reason"] == "compression":
                assert any(other["parent_session_id"] == part["id"] for other in parts)
        listed = [part["id"] for part in parts if part["listed"]]
        hidden = conversations[root]["origin_kind"] in ("delegate", "child")
        assert listed == ([] if hidden else [conversations[root]["tip_id"]])


def test_everything_of_a_session_goes(db: SessionDB, clock: Clock) -> None:
    talk(db, "other", "kept words")
    talk(db, "s", "secret-words", "more", model="m")
    db.set_session_title("s", "secret title")
    db.update_token_counts("s", 10, model="m", api_call_count=1)
    db.try_acquire_compression_lock("s", "holder")
    route(db, "k", "s")
    lease = db.leases.acquire(ConversationId("s"), holder="me", ttl=60)
    assert lease is not None and db.leases.release(lease)
    ids = [m["id"] for m in db.get_messages("s")]
    assert db.delete_session("s")
    assert db.get_session("s") is None
    assert db.get_messages("s") == []
    assert db.get_session_by_title("secret title") is None
    forgotten = {"message_id": ids[0]}, {"message_id": ids[1]}
    assert sorted(tables(db)["search_forget"], key=str) == sorted(forgotten, key=str)
    assert mentions(db, "secret") == []
    assert mentions(db, "'s'") == []
    assert [m["content"] for m in db.get_messages("other")] == ["kept words"]
    consistent(db)
    talk(db, "s", "a new life")  # the id is free again
    db.set_session_title("s", "secret title")


# -- while somebody is at work on it


Erase = Callable[[SessionDB], object]
DOORS: tuple[Erase, ...] = (
    lambda db: db.delete_session("s"),
    lambda db: db.delete_sessions(["other", "s"]),
    lambda db: db.ledger.delete("s"),
)


def kept(db: SessionDB, says: str) -> None:
    """Whoever asks for it, nothing goes, and it is said why."""
    for erase in DOORS:
        with pytest.raises(ConversationHeld, match=says):
            erase(db)
    assert [row["id"] for row in db.list_sessions_rich(order_by_last_active=True)] == ["s", "other"]


@pytest.fixture
def pair(db: SessionDB, clock: Clock) -> SessionDB:
    talk(db, "other")
    clock.advance(1)
    talk(db, "s")
    return db


def test_a_conversation_is_kept_while_a_turn_runs_or_was_left_running(pair: SessionDB, clock: Clock) -> None:
    db, root = pair, ConversationId("s")
    lease = db.leases.acquire(root, holder="me", ttl=60)
    assert lease is not None
    kept(db, "somebody is working on conversation s; nothing was deleted")
    work = transact(db.turns.begin_in, conversation_id=root, session_id=SessionId("s"), fence=lease.fence)
    assert work is not None
    kept(db, f"a turn is running .* hermes turns cancel {work.turn.id}")
    clock.advance(61)  # its process is lost: it will be taken up
    kept(db, "a turn is running")
    lease = db.leases.acquire(root, holder="another", ttl=60)
    assert lease is not None
    db.turns.cancel(work.turn.id, fence=lease.fence, reason="enough")
    db.leases.release(lease)
    assert db.delete_session("s")
    assert mentions(db, "'s'") == []


def test_a_conversation_is_kept_while_what_it_delegated_runs(pair: SessionDB) -> None:
    db = pair
    talk(db, "errand", parent_session_id="s", model_config={"_delegate_from": "s"})
    lease = db.leases.acquire(ConversationId("errand"), holder="me", ttl=60)
    assert lease is not None
    kept(db, "somebody is working on conversation errand")
    db.leases.release(lease)
    assert db.ledger.delete("s") == 1


def test_a_conversation_is_kept_while_a_message_waits_but_not_for_one_that_waits_for_somebody_to_ask(
    pair: SessionDB, clock: Clock
) -> None:
    db = pair
    route(db, "k", "s")
    compress(db, "s", "t")  # the route still names the first segment
    waiting = db.inbox.accept(
        platform="telegram", chat_id="1", message_id="1", route=SessionKey("k"), payload={"text": "hello"}
    ).row  # fmt: skip
    for erase in (*DOORS, lambda db: db.delete_session("t")):
        with pytest.raises(ConversationHeld, match="a message waits for its answer"):
            erase(db)
    clock.advance(3601)
    assert db.ledger.delete("s") == 2
    assert [row.id for row in db.inbox.list(state="queued")] == [waiting.id]


def test_no_turn_begins_while_a_conversation_is_erased(stores: TestStores, clock: Clock) -> None:
    """PostgreSQL: between the look and the commit nobody gets the lease."""
    address = stores.postgresql()
    with closing(SessionDB(address, clock=clock)) as db, closing(SessionDB(address, clock=clock)) as other:
        talk(db, "s")
        taken = threading.Event()

        def take() -> None:
            other.leases.acquire(ConversationId("s"), holder="b", ttl=10)
            taken.set()

        thread = threading.Thread(target=take)

        def run(conn: Connection) -> bool:
            delete.remove_idle(db, conn, ["s"])
            thread.start()
            return taken.wait(0.5)

        assert db._execute_write(run) is False
        assert taken.wait(5)
        thread.join()


def test_unknown_repeated_and_impossible_ids_count_nothing(db: SessionDB) -> None:
    talk(db, "it's %_")
    talk(db, "kept")
    assert not db.delete_session("nobody")
    hostile: list[Any] = ["it's", "%", "_", "' OR 1=1 --", "../../x", "x" * 10_000, "a\0b", "\ud800", "", None, 7]
    assert db.delete_sessions(hostile) == 0
    assert db.delete_sessions(["it's %_", "it's %_", "nobody", *hostile]) == 1
    assert db.get_session("kept") is not None
    assert db.session_count() == 1


def test_more_than_one_batch(db: SessionDB) -> None:
    ids = [f"s{n}" for n in range(130)]
    for session_id in ids:
        db.create_session(session_id, "cli")
    assert db.delete_sessions(ids[:-1]) == 129
    assert [s["id"] for s in db.list_sessions_rich()] == ["s129"]


def test_delegations_go_along_branches_stay(db: SessionDB) -> None:
    talk(db, "parent")
    talk(db, "delegate", parent_session_id="parent", model_config={"_delegate_from": "parent"})
    talk(db, "deeper", parent_session_id="delegate", model_config={"_delegate_from": "delegate"})
    compress(db, "delegate", "delegate-continued")
    talk(db, "branch", parent_session_id="parent", model_config={"_branched_from": "parent"})
    talk(db, "child", parent_session_id="parent")
    assert "delegate" not in [s["id"] for s in db.list_sessions_rich()]
    assert db.delete_session("parent")
    for gone in ("parent", "delegate", "deeper", "delegate-continued"):
        assert db.get_session(gone) is None, gone
    for kept in ("branch", "child"):
        assert row(db, kept)["parent_session_id"] is None
        assert [m["content"] for m in db.get_messages(kept)] == [f"words of {kept}"]
    assert sorted(s["id"] for s in db.list_sessions_rich()) == ["branch", "child"]
    consistent(db)


def test_a_delegation_marked_later_goes_along_too(db: SessionDB) -> None:
    talk(db, "parent")
    talk(db, "late", parent_session_id="parent")
    db.update_session_meta("late", json.dumps({"_delegate_from": "parent"}))
    assert db.delete_session("parent")
    assert db.get_session("late") is None


def test_a_cycle_of_delegations_ends(db: SessionDB) -> None:
    talk(db, "a")
    talk(db, "b", parent_session_id="a", model_config={"_delegate_from": "a"})
    db._execute_write(lambda conn: conn.run("UPDATE sessions SET parent_session_id = 'b' WHERE id = 'a'"))
    db._execute_write(lambda conn: conn.run("UPDATE conversations SET origin_kind = 'delegate' WHERE id = 'a'"))
    assert db.delete_session("a")
    assert db.session_count() == 0


@pytest.fixture
def chain(db: SessionDB, clock: Clock) -> SessionDB:
    """a → b → c, with a route and work on it, owned by Ann."""
    talk(db, "a", source="telegram", session_key="k", chat_id="1", chat_type="dm")
    for parent, child in (("a", "b"), ("b", "c")):
        clock.advance(100)
        compress(db, parent, child)
    db._execute_write(lambda conn: conn.run("UPDATE conversations SET owner_id = 'ann', rotations = 2 WHERE id = 'a'"))
    db.set_session_title("c", "Trip")
    route(db, "k", "c")
    return db


def test_without_its_first_segment_a_conversation_goes_on_under_the_next(chain: SessionDB) -> None:
    db = chain
    lease = db.leases.acquire(ConversationId("a"), holder="me", ttl=600)
    assert lease is not None and db.leases.release(lease)
    transact(db.events.append_in, ConversationId("a"), "noted", detail={"what": "kept"})
    assert db.delete_session("a")
    consistent(db)
    assert row(db, "b")["parent_session_id"] is None
    assert {row(db, s)["root_id"] for s in ("b", "c")} == {"b"}
    (conversation,) = tables(db)["conversations"]
    assert (conversation["id"], conversation["tip_id"], conversation["owner_id"]) == ("b", "c", PersonId("ann"))
    assert conversation["rotations"] == 2
    assert leads_to(db, "k") == "c"
    assert [(s["id"], s["title"]) for s in db.list_sessions_rich()] == [("c", "Trip")]
    assert mentions(db, "'a'") == []  # nothing is keyed by the old id any more
    assert db.leases.get(ConversationId("b")) is None, "erasing gave back what it held meanwhile"
    held = db.leases.acquire(ConversationId("b"), holder="me", ttl=600)
    assert held is not None and held.fence > lease.fence
    assert [event.kind for event in db.events.since(conversation_id=ConversationId("b")).events] == ["noted"]


def test_without_a_middle_segment_it_stays_one_conversation(chain: SessionDB) -> None:
    db = chain
    route(db, "left behind", "b")
    assert db.delete_session("b")
    consistent(db)
    assert row(db, "c")["parent_session_id"] == "a"
    assert db.get_compression_tip("a") == "c"
    assert leads_to(db, "k") == leads_to(db, "left behind") == "c"
    assert len(db.list_sessions_rich()) == 1


def test_without_its_newest_segment_the_one_before_can_be_written_again(chain: SessionDB) -> None:
    db = chain
    assert db.delete_session("c")
    consistent(db)
    assert leads_to(db, "k") is None
    assert db.get_compression_tip("a") == "b"
    assert row(db, "b")["ended_at"] is not None
    db.append_message("b", "user", "and on we go")


def test_two_continuations_of_an_erased_root(db: SessionDB, clock: Clock) -> None:
    talk(db, "root")
    compress(db, "root", "one")
    clock.advance(10)
    talk(db, "two", parent_session_id="root")
    assert db.get_compression_tip("root") == "two"
    assert db.delete_session("root")
    consistent(db)
    assert [s["id"] for s in db.list_sessions_rich()] == ["two"]
    assert row(db, "one")["parent_session_id"] is None


def test_any_part_of_a_chain_can_go(db: SessionDB, clock: Clock) -> None:
    parts = ["p0", "p1", "p2", "p3"]
    for choice in range(1, 2 ** len(parts)):
        gone = [part for n, part in enumerate(parts) if choice >> n & 1]
        kept = [part for part in parts if part not in gone]
        talk(db, "p0")
        for parent, child in itertools.pairwise(parts):
            clock.advance(1)
            compress(db, parent, child)
        assert db.delete_sessions(gone) == len(gone)
        consistent(db)
        assert db.get_compression_lineage(kept[0]) == kept if kept else db.session_count() == 0
        assert db.delete_sessions(kept) == len(kept)
        assert tables(db)["conversations"] == []


def test_an_empty_untitled_childless_session_is_discarded(db: SessionDB, tmp_path: Path) -> None:
    for name in ("empty", "titled", "said", "parent", "cleared"):
        db.create_session(name, "cli")
        (tmp_path / f"{name}.jsonl").write_text("{}")
    db.set_session_title("titled", "T")
    db.append_message("said", "user", "hi")
    db.create_session("child", "cli", parent_session_id="parent")
    db.append_message("cleared", "user", "hi")
    db.clear_messages("cleared")
    for name, discarded in (("empty", True), ("titled", False), ("said", False), ("parent", False), ("cleared", True)):
        assert db.delete_session_if_empty(name, tmp_path) is discarded, name
        assert (db.get_session(name) is None) is discarded
        assert (tmp_path / f"{name}.jsonl").exists() is not discarded
    assert not db.delete_session_if_empty("nobody")
    assert not db.delete_session_if_empty("x" * 10_000)


def test_only_files_of_exactly_that_session_go(db: SessionDB, tmp_path: Path) -> None:
    folder = tmp_path / "sessions"
    folder.mkdir()
    talk(db, "a")
    talk(db, "a_b")
    talk(db, "a_b_c")
    mine = ["a_b.json", "a_b.jsonl", "request_dump_a_b_20260701_101112_000001.json", "request_dump_a_b_x.json"]
    others = [
        "a.json", "a_bb.json", "a_b.txt", "request_dump_a_20260701_101112.json", "request_dump_a_b_c_2026.json",
        "request_dump_a_b.json", "sessions.json", "%.json", "a_b",
    ]  # fmt: skip
    for name in mine + others:
        (folder / name).write_text("{}")
    (folder / "sub").mkdir()
    (folder / "sub" / "a_b.json").write_text("{}")
    assert db.delete_session("a_b", folder)
    assert sorted(p.name for p in folder.iterdir()) == sorted([*others, "sub"])
    assert (folder / "sub" / "a_b.json").exists()


@pytest.mark.parametrize("hostile", ["../victim", "sub/victim", "..", ".", "/etc/victim", "..\\victim", "*", "?ictim"])
def test_an_id_never_becomes_a_path(db: SessionDB, tmp_path: Path, hostile: str) -> None:
    folder = tmp_path / "sessions"
    (folder / "sub").mkdir(parents=True)
    kept = [tmp_path / "victim.json", folder / "sub" / "victim.json", folder / "victim.json", folder / "victim.jsonl"]
    for path in kept:
        path.write_text("{}")
    talk(db, hostile)
    assert db.delete_session(hostile, folder)
    assert all(path.exists() for path in kept)


def test_a_link_in_the_folder_is_removed_not_followed(db: SessionDB, tmp_path: Path) -> None:
    folder = tmp_path / "sessions"
    folder.mkdir()
    precious = tmp_path / "precious.json"
    precious.write_text("{}")
    (folder / "s.json").symlink_to(precious)
    (folder / "s.jsonl").mkdir()  # not a file: left alone
    talk(db, "s")
    assert db.delete_session("s", folder)
    assert precious.exists()
    assert not (folder / "s.json").is_symlink()
    assert db.delete_session("nobody", tmp_path / "no such folder") is False


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_erased_words_cannot_be_read_in_the_files(
    db: SessionDB, address: Path, reopen: Callable[[SessionDB], SessionDB]
) -> None:
    word = "xylophonquark"
    talk(db, "kept", *(f"nothing special {n}" for n in range(50)))
    talk(db, "s", f"the {word} is here", f"{word} " * 2000, f"and {word}", cwd=f"/home/{word}")
    db.set_session_title("s", f"About {word}")
    db.update_system_prompt("s", f"You know {word}. " * 500)
    for n in range(100):  # pages are split and rows moved about
        db.append_message("s", "assistant", f"{word} {n}")
        db.create_session(f"other {n}", "cli", cwd="/home/somebody")
    db.rewind_to_message("s", db.get_messages("s")[2]["id"])
    assert len(db.search_messages(word)) == 2
    assert db.delete_session("s")
    assert db.search_messages(word) == []
    db = reopen(db)
    assert word.encode() not in _bytes(db, address)
    db = reopen(db)
    assert db.optimize_fts() == 1
    db.vacuum()
    db.close()
    left = {file.name: word.encode() in file.read_bytes() for file in address.parent.iterdir()}
    assert left and not any(left.values()), left
    assert b"nothing special" in address.read_bytes()


def _bytes(db: SessionDB, address: Path) -> bytes:
    db.close()  # reading an open database would drop its locks
    return address.read_bytes()


def test_appends_that_race_a_deletion_leave_nothing_behind(db: SessionDB, make_db: Callable[..., SessionDB]) -> None:
    other = make_db()
    refused: list[Exception] = []

    def keep_writing() -> None:
        while not refused:
            try:
                other.append_message("s", "user", "more")
            except IntegrityError as error:
                refused.append(error)

    for pause in (0.0, 0.002, 0.005, 0.01, 0.02):
        talk(db, "s")
        refused.clear()
        writer = threading.Thread(target=keep_writing)
        writer.start()
        time.sleep(pause)
        assert db.delete_session("s")
        writer.join(timeout=30)
        assert "no session" in str(refused[0])
        assert db.message_count() == 0
