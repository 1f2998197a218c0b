"""The reference's own answers about a home it made, asked of us after we brought that home over.

`reference_expected.json` was computed by hermes-agent on `reference_home`. Every answer in it that belongs to the
store is asked here again, on both engines; where ours differs on purpose, the table `DIFFERENCES` says what theirs
was, what ours is, and which weak point of theirs or which rule of ours is behind it. A row of the table that no
longer differs fails as well. The parts of the gateway (`config*`, `store_entries_after_load`) come with it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.support.example_home import FIXTURES, needs_example_home

from hermes_state.session_db import SessionDB
from hermes_state.transfer.import_home import scan, source, write
from hermes_testing.clock import Clock

pytestmark = needs_example_home

LATER = 1782900000.0 + 200 * 86400  # their clock stood at the first number; all of it is long past by then
ROOT, MIDDLE, TIP = "20260701_101000_c0de01", "20260701_111000_c0de02", "20260701_121000_c0de03"
CLI = "20260701_100000_c11a01"
TELEGRAM, PICTURE = "20260701_153320_6513270e", "20260701_153640_9531985d"
CHANNEL, THREAD = "20260701_154140_8d116ece", "20260701_154320_90c192cf"
ELSEWHERE = ("config", "config_platforms", "store_entries_after_load")

# path in the file → (theirs, ours, why)
DIFFERENCES: dict[str, tuple[Any, Any, str]] = {
    "schema_version": (22, "ours", "the number says whose file it is: ours starts at 100"),
    "pragmas": (..., "ours", "how a file is opened is the engine's; PostgreSQL has none of it"),
    "tables": (..., "ours", "routes instead of gateway_routing, no full-text tables inside the store (§9.7, §9.10)"),
    "list_rich_default.7.preview": ("", "what is on this picture?", "§2.5: theirs is lost behind the NUL prefix"),
    "prune_candidates_90d_n": (
        7,
        4,
        "two of theirs are earlier segments of a live conversation, one is what a route points at",
    ),
    "routing_scopes.0.0": ("/home/user/.hermes/sessions", "sessions", "§9.10: a folder counts by its name"),
}

# query → (what only they find, what only we find, why)
FOUND_MORE = {
    "東京": ([], [18], "§9.7: text inside tool calls is stored escaped by them and cannot be found"),
    "天气 OR 天気": ([], [18], "§9.7, the same tool call"),
}


@pytest.fixture
def expected() -> dict[str, Any]:
    answers: dict[str, Any] = json.loads((FIXTURES / "reference_expected.json").read_text(encoding="utf-8"))
    return answers


@pytest.fixture
def imported(db: SessionDB, clock: Clock) -> SessionDB:
    clock.advance(LATER - clock())
    home = source.find(FIXTURES / "reference_home")
    assert home.database is not None
    with source.HomeDatabase(home.database) as opened:
        done = write.write_home(db, scan.scan_home(home, opened))
    assert (done.sessions, done.messages, done.routes, done.offset) == (23, 57, 9, 0)
    return db


def per_session(db: SessionDB, ids: list[str]) -> dict[str, Any]:
    found = {}
    for one in ids:
        row = db.get_session(one)
        assert row is not None, one
        found[one] = {
            "source": row["source"],
            "title": row["title"],
            "message_count": row["message_count"],
            "tool_call_count": row["tool_call_count"],
            "ended": row["ended_at"] is not None,
            "end_reason": row["end_reason"],
            "parent": row["parent_session_id"],
            "rows": len(db.get_messages(one, include_inactive=True)),
            "active_rows": len(db.get_messages(one)),
        }
    return found


def lists(db: SessionDB) -> dict[str, Any]:
    shown = ("id", "_lineage_root_id", "title", "preview", "message_count", "source")

    def ids(**options: Any) -> list[str]:
        return [row["id"] for row in db.list_sessions_rich(limit=100, **options)]

    return {
        "sessions_total": db.session_count(include_archived=True),
        "messages_total": db.message_count(),
        "list_rich_default": [{name: row[name] for name in shown} for row in db.list_sessions_rich(limit=100)],
        "list_rich_last_active": ids(order_by_last_active=True),
        "list_rich_raw_roots": ids(project_compression_tips=False),
        "list_rich_children": len(ids(include_children=True)),
        "list_rich_telegram": ids(source="telegram"),
        "list_rich_archived_only": ids(archived_only=True),
        "search_query_title_plan": ids(order_by_last_active=True, search_query="plan"),
        "session_count": {
            "all": db.session_count(),
            "cli": db.session_count(source="cli"),
            "incl_archived": db.session_count(include_archived=True),
            "listable": db.session_count(exclude_children=True),
        },
        "message_count_all": db.message_count(),
    }


def lookups(db: SessionDB, expected: dict[str, Any]) -> dict[str, Any]:
    asked: dict[str, Callable[[str], Any]] = {
        "compression_tip": db.get_compression_tip,
        "lineage": db.get_compression_lineage,
        "resolve_resume": db.resolve_resume_session_id,
        "resolve_title": db.resolve_session_by_title,
        "next_title": db.get_next_title_in_lineage,
        "resolve_id": db.resolve_session_id,
    }
    return {name: {one: ask(one) for one in expected[name]} for name, ask in asked.items()}


def transcripts(db: SessionDB) -> dict[str, Any]:
    kept = ("role", "content", "timestamp", "message_id", "tool_calls", "tool_call_id", "tool_name")

    def said(session_id: str) -> list[dict[str, Any]]:
        turns = db.get_messages_as_conversation(session_id)
        return [{name: turn[name] for name in kept if name in turn} for turn in turns]

    picture = next(row["content"] for row in db.get_messages(PICTURE) if isinstance(row["content"], list))
    return {
        "conversation_tg": said(TELEGRAM),
        "conversation_tip_with_ancestors_len": len(db.get_messages_as_conversation(TIP, include_ancestors=True)),
        "conversation_dc_thread": said(THREAD),
        "conversation_dc_channel_active": [row["content"] for row in db.get_messages(CHANNEL)],
        "multimodal": picture,
    }


def gateway(db: SessionDB) -> dict[str, Any]:
    columns = (
        "session_id", "model", "billing_provider", "task", "api_call_count", "input_tokens", "output_tokens",
        "cache_read_tokens", "estimated_cost_usd",
    )  # fmt: skip
    peer = db.find_latest_gateway_session_for_peer(
        "telegram", "43", "agent:main:telegram:group:-1001234:43", "-1001234", "group", None
    )
    ask = f"SELECT {', '.join(columns)} FROM session_model_usage ORDER BY session_id"
    usage = db.engine.read(lambda conn: conn.rows(ask))
    scopes = db.engine.read(lambda conn: conn.rows("SELECT scope, count(*) FROM routes GROUP BY scope"))
    return {
        "list_gateway_sessions_active": [[row["session_key"], row["id"]] for row in db.list_gateway_sessions()],
        "find_latest_peer_group_u43": None if peer is None else peer["id"],
        "model_usage": [dict(zip(columns, row, strict=True)) for row in usage],
        "lock_holder_now": db.get_compression_lock_holder(TIP),
        "routing_scopes": [list(row) for row in scopes],
    }


def changes(db: SessionDB) -> dict[str, Any]:
    """What they did to the home last, in their order."""
    found: dict[str, Any] = {"errors": {}}
    attempts: dict[str, Callable[[], Any]] = {
        "dup_title": lambda: db.set_session_title(CLI, "Trip plan"),
        "long_title": lambda: db.set_session_title(CLI, "x" * 101),
        "rewind_non_user": lambda: db.rewind_to_message(CLI, 2),
    }
    for name, attempt in attempts.items():
        with pytest.raises(ValueError) as raised:
            attempt()
        found["errors"][name] = str(raised.value)
    found["tip_takes_root_title"] = db.set_session_title(TIP, "Trip plan")
    found["root_title_after"] = db.get_session_title(ROOT)
    found["finalize_orphaned"] = db.finalize_orphaned_compression_sessions()
    ghost = db.get_session("tui_ghost_0002")
    assert ghost is not None
    found["ghost_after"] = {"end_reason": ghost["end_reason"]}
    found["prune_empty_ghost"] = db.prune_empty_ghost_sessions()
    found["count_empty"] = db.count_empty_sessions()
    found["prune_candidates_90d_n"] = len(db.list_prune_candidates(older_than_days=90))
    found["delete_parent"] = db.delete_session(CLI)
    left = {one: db.get_session(one) for one in ("sub_0004", "branch_0005")}
    found["after_delete"] = {one: row is not None for one, row in left.items()}
    branch = left["branch_0005"]
    found["branch_parent_after_delete"] = branch["parent_session_id"] if branch else "gone"
    return found


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for name, item in value.items():
            yield from leaves(item, f"{path}.{name}" if path else name)
    elif isinstance(value, list) and value:
        yield f"{path}.length", len(value)
        for at, item in enumerate(value):
            yield from leaves(item, f"{path}.{at}")
    else:
        yield path, value


def test_every_answer_of_the_reference_is_ours_too(imported: SessionDB, expected: dict[str, Any]) -> None:
    db = imported
    ours: dict[str, Any] = {"schema_version": "ours", "pragmas": "ours", "tables": "ours"}
    ours |= {"per_session": per_session(db, list(expected["per_session"]))}
    ours |= lists(db) | lookups(db, expected) | transcripts(db) | gateway(db) | changes(db)
    assert ours.keys() == expected.keys() - set(ELSEWHERE) - {"search"}, "an answer is not asked"

    differing = {}
    for name, answer in ours.items():
        theirs, mine = dict(leaves(expected[name], name)), dict(leaves(answer, name))
        if DIFFERENCES.get(name, ("",))[0] is ...:
            continue
        for path in theirs.keys() | mine.keys():
            if theirs.get(path) != mine.get(path):
                differing[path] = (theirs.get(path), mine.get(path))
    listed = {path: row[:2] for path, row in DIFFERENCES.items() if row[0] is not ...}
    assert differing == listed


def test_what_they_find_we_find(imported: SessionDB, expected: dict[str, Any]) -> None:
    differing, unmarked = {}, []
    for asked, hits in expected["search"].items():
        query = asked.removesuffix(" (rewound)").removesuffix("/include_inactive").removesuffix(" include_inactive")
        if query.startswith("discord question"):
            query = f'"{query}"'
        found = imported.search_messages(query, limit=50, include_inactive="inactive" in asked)
        ours = {hit["id"]: hit for hit in found}
        theirs = {hit["id"]: hit for hit in hits}
        if theirs.keys() != ours.keys():
            differing[asked] = (sorted(theirs.keys() - ours.keys()), sorted(ours.keys() - theirs.keys()))
        for one, hit in theirs.items():
            same = {name: ours[one][name] for name in ("session_id", "role")} if one in ours else None
            assert same is None or same == {name: hit[name] for name in same}
            if one in ours and ">>>" not in ours[one]["snippet"]:
                unmarked.append(asked)
    assert differing == {asked: row[:2] for asked, row in FOUND_MORE.items()}
    assert not unmarked, "a match is shown without its marks"


# The hand-made old index


def test_an_index_without_a_database_keeps_what_the_reference_keeps(db: SessionDB) -> None:
    home = source.find(FIXTURES / "reference_legacy")
    found = scan.scan_home(home, None)
    write.write_home(db, found)
    expected = json.loads((FIXTURES / "reference_legacy" / "expected.json").read_text(encoding="utf-8"))
    stored = {key: json.loads(entry) for key, entry in db.load_gateway_routing_entries(scope="sessions").items()}
    kept = {key: {name: stored[key].get(name) for name in entry} for key, entry in expected.items()}
    assert kept == expected
    assert stored.keys() == expected.keys()
    refused = {problem.which for problem in found.problems}
    assert refused == {"bad-not-a-dict", "bad-missing-session-id", "bad-traversal", "bad-date"}
    assert "SECRET" not in json.dumps([stored, found.set_aside, [str(p) for p in found.problems]])
