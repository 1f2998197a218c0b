"""What a person can find, and what not. On both engines."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from hermes_config.limits import Limits
from hermes_state.errors import InvalidValue
from hermes_state.session_db import SessionDB

pytestmark = pytest.mark.slow

OpenStore = Callable[..., SessionDB]


@pytest.fixture
def say(db: SessionDB) -> Callable[..., int]:
    """`say("text")` appends to the session "chat", made at first need."""

    def say(content: Any, *, role: str = "user", session: str = "chat", source: str = "cli", **fields: Any) -> int:
        if db.get_session(session) is None:
            db.create_session(session, source)
        return db.append_message(session, role, content, **fields)

    return say


def found(db: SessionDB, query: str, **options: Any) -> set[int]:
    return {hit["id"] for hit in db.search_messages(query, limit=100, **options)}


# -- words, phrases, operators -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("maples", {0, 1}),
        ("MAPLES", {0, 1}),
        ("maples november", {0}),
        ('"late november"', {0}),
        ('"november late"', set()),
        ("maples OR zebra", {0, 1, 2}),
        ("maples AND november", {0}),
        ("maples NOT november", {1}),
        ("maples AND NOT november", {1}),
        ("zeb*", {2}),
        ('"late nov"*', {0}),
        ("cafe", {3}),
        ("CAFÉ", {3}),
        ("ωMEGA", {3}),
        ("chat-send", {4}),
        ("send-chat", set()),
        ("P2.2", {4}),
        ("read_file", {4}),
        ("src/parser.py", {4}),
        ("TODO: fix", {5}),
        ("it's", {5}),
        ("maples november OR zebra NOT striped", {0, 2}),
    ],
)
def test_words_phrases_and_operators(db: SessionDB, say: Callable[..., int], query: str, expected: set[int]) -> None:
    ids = [
        say("Maples peak in late November 🍁"),
        say("maples are trees"),
        say("a zebra crossing"),
        say("naïve café — Ωmega"),
        say("chat-send and P2.2 need read_file of src/parser.py"),
        say("TODO: it's time to fix this"),
    ]
    assert {ids.index(id_) for id_ in found(db, query)} == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("大别山项目", {0, 1}),
        ("大别", {0, 1}),
        ("项", {0, 1}),
        ("目", {0, 1}),
        ("别山 上线", {1}),
        ("上线 OR 天気", {1, 2}),
        ("项目 NOT 上线", {0}),
        ("山大", set()),
        ("部署OK", {1}),
        ("部署", {1}),
        ("OK 部", {1}),
        ("東京", {2}),
        ("한국어", {2}),
        ("국", {2}),
        ("は", {2}),
        ("ガイド", {3}),
        ("ｶﾞｲﾄﾞ", {3}),
        ("สวัสดี", {3}),
    ],
)
def test_scripts_without_spaces_from_one_character_up(
    db: SessionDB, say: Callable[..., int], query: str, expected: set[int]
) -> None:
    ids = [
        say("你好，世界！大别山项目 进展如何？ 🚀"),
        say("大别山项目 昨天已经上线。部署 OK ✅"),
        say("東京の天気は？ 한국어도 가능해? 👩\u200d👩\u200d👧\u200d👦"),
        say("旅行カ\u3099イト\u3099 และ สวัสดีครับ"),
    ]
    assert {ids.index(id_) for id_ in found(db, query)} == expected


@pytest.mark.parametrize(
    "query",
    [
        "", " ", '"', '""', "***", "*", "NOT", "AND OR NOT", "a OR NOT b", "a AND AND b", "()", "{}", ":", "^", "+",
        "-", "👩\u200d👩\u200d👧\u200d👦", "❤️", "\0", "\ud800", "a\0b", "NEAR(a b)", "content:x", "rowid", "\\", "'",
        "'; DROP TABLE messages; --", '"unbalanced', "a" * 5000, "京" * 5000, "a OR " * 400 + "b", "x " * 1000,
        "a* b* c*", "&|!()<->", ":*", "!",
    ],
)  # fmt: skip
def test_no_query_makes_an_error(db: SessionDB, say: Callable[..., int], query: str) -> None:
    say("nothing of the kind")
    assert db.search_messages(query) == []


def test_signs_around_words_do_not_hide_them(db: SessionDB, say: Callable[..., int]) -> None:
    id_ = say("deploy the parser")
    for query in ("deploy ✅", "(deploy)", "^deploy", '"deploy', "deploy AND", "OR deploy", "**deploy", "✅ OR deploy"):
        assert found(db, query) == {id_}, query


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("migration", {0, 1}),
        ("deploying", {0, 2}),
        ("fail deploy", {0}),
        ('"migration"', set()),
        ('"deployed twice"', {2}),
        ("deploym*", {0}),
        ("migrate NOT deploy", {1}),
        ("batteries OR failing", {0, 3}),
    ],
)
def test_an_english_word_is_found_in_all_its_forms(
    db: SessionDB, say: Callable[..., int], query: str, expected: set[int]
) -> None:
    ids = [
        say("The deployment failed: two migrations collided"),
        say("They were migrating"),
        say("Deployed twice"),
        say("the battery"),
    ]
    for _ in range(2):  # an index that follows the transcript, then one that was built from it
        assert {ids.index(id_) for id_ in found(db, query)} == expected
        db.reindex()


def test_a_form_that_matched_is_marked_in_the_snippet(db: SessionDB, say: Callable[..., int]) -> None:
    say("We replaced the batteries of the remote")
    assert db.search_messages("battery replacement")[0]["snippet"] == (
        "We >>>replaced<<< the >>>batteries<<< of the remote"
    )


def test_related_messages_follow_those_with_all_words(db: SessionDB, say: Callable[..., int]) -> None:
    """The answer has none of the words; it stands beside the question that has them."""
    say("good morning")
    question = say("Which vet did we see with the cat?")
    answer = say("Dr. Okafor, in Mill Lane.", role="assistant")
    for i in range(5):
        say(f"nothing of the kind {i}")
    some = say("the cat sleeps", session="other")
    say("not me", session="third")
    assert found(db, "vet cat") == {question}
    ids = [hit["id"] for hit in db.search_messages("vet cat", related=True)]
    assert ids[:2] == [question, answer] and some in ids and len(ids) == 4
    pages = [db.search_messages("vet cat", related=True, limit=1, offset=n)[0]["id"] for n in range(4)]
    assert pages == ids
    assert [hit["id"] for hit in db.search_messages("vet cat", related=True, role_filter=["assistant"])] == []
    assert found(db, "vet cat", related=True, conversation="other") == {some}
    assert found(db, "dentist appointment", related=True) == set()


def test_related_messages_are_the_owners_alone(db: SessionDB, say: Callable[..., int]) -> None:
    mine = [say("the vet called", session="mine"), say("at nine", session="mine")]
    say("a vet of others", session="theirs")
    say("their secret", session="theirs")
    for owner in ("mine", "theirs"):
        db._execute_write(lambda c, o=owner: c.run("UPDATE conversations SET owner_id = ? WHERE id = ?", (o, o)))
    assert found(db, "vet cat", related=True, owner="mine") == set(mine)


# -- which text ----------------------------------------------------------------------------------------------


def test_text_in_tool_calls_is_found_whatever_its_escaping(db: SessionDB, say: Callable[..., int]) -> None:
    arguments = json.dumps({"query": "東京 天気", "deep": [{"note": "Smörgås"}]})  # ASCII-escaped, as models send it
    call = {"id": "call_1", "type": "function", "function": {"name": "web_search", "arguments": arguments}}
    as_list = say("", role="assistant", tool_calls=[call])
    as_text = say("", role="assistant", tool_calls=json.dumps([call]))
    for query in ("東京", "天", "smorgas", "web_search"):
        assert found(db, query) == {as_list, as_text}, query
    assert found(db, "u6771") == set()
    snippet = db.search_messages("東京")[0]["snippet"]
    assert snippet == "web_search query: >>>東京<<< 天気 deep: note: Smörgås"


def test_text_parts_of_a_structure_are_found(db: SessionDB, say: Callable[..., int]) -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,zebra"}}
    id_ = say([{"type": "text", "text": "was ist das für ein Löwe 狮子?"}, picture])
    bare = say([picture])
    assert found(db, "lowe") == found(db, "狮") == {id_}
    assert found(db, "zebra") == set()
    context = db.search_messages("lowe")[0]["context"]
    assert context == [
        {"role": "user", "content": "was ist das für ein Löwe 狮子?"},
        {"role": "user", "content": "[multimodal content]"},
    ]
    assert bare not in found(db, "multimodal")


def test_nul_and_tool_name_are_no_obstacle(db: SessionDB, say: Callable[..., int]) -> None:
    id_ = say("before\0after back\\slash", role="tool", tool_name="read\0file")
    for query in ("before", "after", "backslash OR slash", "read_file"):
        assert found(db, query) == {id_}, query


def test_ten_megabytes_are_found_to_the_last_word(db: SessionDB, say: Callable[..., int]) -> None:
    filler = " ".join(f"w{i}" for i in range(120_000))
    id_ = say(filler + " " + "filler " * 1_300_000 + "the very end")
    say("the end, very much")
    assert found(db, '"very end"') == {id_}
    hit = db.search_messages('"very end"')[0]
    assert hit["snippet"].startswith("...") and hit["snippet"].endswith("the >>>very end<<<")
    assert found(db, "w119999 end") == {id_}
    assert found(db, '"w0 end"') == set()


# -- what is shown -------------------------------------------------------------------------------------------


def test_a_hit_tells_where_it_comes_from(db: SessionDB, say: Callable[..., int]) -> None:
    db.create_session("chat", "telegram", model="some/model")
    say("first")
    id_ = say("the needle", role="assistant", timestamp=1_700_000_000.5)
    say("elsewhere", session="other")
    say("third " + "x" * 300)
    (hit,) = db.search_messages("needle")
    assert {key: hit[key] for key in ("id", "session_id", "role", "source", "model", "timestamp", "tool_name")} == {
        "id": id_, "session_id": "chat", "role": "assistant", "source": "telegram", "model": "some/model",
        "timestamp": 1_700_000_000.5, "tool_name": None,
    }  # fmt: skip
    assert hit["session_started"] == db.get_session("chat")["started_at"]
    assert hit["snippet"] == "the >>>needle<<<"
    assert [message["content"] for message in hit["context"]] == ["first", "the needle", "third " + "x" * 194]


def test_the_marks_of_an_earlier_search_are_not_shown(db: SessionDB, say: Callable[..., int]) -> None:
    say("2026-11-18 · Kyoto · user\n  the >>>needle<<< in >>>hay<<<", role="tool", tool_name="session_search")
    assert db.search_messages("needle")[0]["snippet"].endswith("the >>>needle<<< in hay\nsession_search")


def test_a_snippet_is_cut_around_the_matches(db: SessionDB, say: Callable[..., int]) -> None:
    say(" ".join(f"before{i}" for i in range(100)) + " needle in, needle out " + "after " * 100)
    (hit,) = db.search_messages("needle out")
    assert hit["snippet"].startswith("...before") and hit["snippet"].endswith("after...")
    assert ">>>needle<<< in, >>>needle<<< >>>out<<<" in hit["snippet"]
    assert len(hit["snippet"].split()) == 40


def test_taken_back_rows_hide_replaced_rows_are_gone_compacted_rows_show(
    db: SessionDB, say: Callable[..., int]
) -> None:
    say("live zebra")
    second = say("taken zebra")
    db.rewind_to_message("chat", second)
    assert [h["snippet"] for h in db.search_messages("zebra")] == ["live >>>zebra<<<"]
    assert len(found(db, "zebra", include_inactive=True)) == 2
    assert [m["content"] for m in db.search_messages("live")[0]["context"]] == ["live zebra"]

    say("old words", session="packed")
    db.archive_and_compact("packed", [{"role": "user", "content": "a summary"}])
    assert len(found(db, "words")) == 1

    say("wrong answer", session="edited")
    db.replace_messages("edited", [{"role": "user", "content": "right answer"}])
    assert len(found(db, "answer")) == len(found(db, "answer", include_inactive=True)) == 1


def test_deleted_messages_are_not_found_and_leave_the_index(db: SessionDB, say: Callable[..., int]) -> None:
    say("secret zebra", session="doomed")
    kept = say("public zebra")
    assert len(found(db, "zebra")) == 2
    db.delete_session("doomed")
    assert found(db, "zebra") == {kept}
    assert db.feed(10_000) >= 1
    assert found(db, "zebra") == {kept}
    assert db.engine.read(lambda conn: conn.rows("SELECT count(*) FROM search_forget")) == [(0,)]
    assert db.feed(1_000) == 0


# -- filters and order ---------------------------------------------------------------------------------------


def test_filters_by_source_role_time_and_conversation(db: SessionDB, say: Callable[..., int]) -> None:
    a = say("zebra", session="a", source="cli", timestamp=100.0)
    b = say("zebra", session="b", source="telegram", role="assistant", timestamp=200.0)
    c = say("zebra", session="c", source="tool", role="tool", timestamp=300.0)
    assert found(db, "zebra", source_filter=["cli", "tool"]) == {a, c}
    assert found(db, "zebra", exclude_sources=["tool"]) == {a, b}
    assert found(db, "zebra", role_filter=["assistant"]) == {b}
    assert found(db, "zebra", source_filter=[]) == set()
    assert found(db, "zebra", source_filter=["' OR 1=1 --"]) == set()
    assert found(db, "zebra", since=200.0) == {b, c}
    assert found(db, "zebra", until=200.0) == {a, b}
    assert found(db, "zebra", since=150, until=250) == {b}
    assert found(db, "zebra", conversation="c") == {c}
    assert found(db, "zebra", conversation="nobody") == set()
    assert found(db, "zebra", source_filter=["cli"], since=150) == set()


def test_an_owner_finds_only_their_conversations(db: SessionDB, say: Callable[..., int]) -> None:
    mine, theirs, group = (say("zebra", session=name) for name in ("mine", "theirs", "group"))
    for owner, name in (("ada", "mine"), ("bo", "theirs")):
        db._execute_write(
            lambda c, o=owner, n=name: c.run("UPDATE conversations SET owner_id = ? WHERE id = ?", (o, n))
        )
    assert found(db, "zebra", owner="ada") == {mine}
    assert found(db, "zebra", owner="bo") == {theirs}
    assert found(db, "zebra", owner="ada", conversation="theirs") == set()
    assert found(db, "zebra", owner="nobody") == set()
    assert found(db, "zebra") == {mine, theirs, group}
    assert [h["id"] for h in db.search_messages("zebra", owner="ada", sort="newest")] == [mine]


def test_order_by_time_goes_by_the_clock_not_by_the_id(db: SessionDB, say: Callable[..., int]) -> None:
    """An import stores old messages under new ids, in any order."""
    times = [float((i * 7919) % 1_000) for i in range(600)]
    db.create_session("chat", "cli")
    ids = db.append_messages("chat", [{"role": "user", "content": f"zebra {t}", "timestamp": t} for t in times])
    by_time = [id_ for _, id_ in sorted(zip(times, ids, strict=True))]
    oldest = [hit["id"] for hit in db.search_messages("zebra", sort="oldest", limit=15, offset=5)]
    newest = [hit["id"] for hit in db.search_messages("zebra", sort="newest", limit=15, offset=5)]
    assert oldest == by_time[5:20]
    assert newest == by_time[::-1][5:20]
    assert found(db, "zebra", since=990.0) == {id_ for t, id_ in zip(times, ids, strict=True) if t >= 990}


def test_old_messages_under_new_ids_are_sorted_by_their_times(db: SessionDB, say: Callable[..., int]) -> None:
    """As after an import: the walk by ids must not stop before it has met them."""
    db.create_session("chat", "cli")
    times = [*range(500_000, 500_300), *range(1_000, 1_300), *range(600_000, 600_300)]
    ids = db.append_messages("chat", [{"role": "user", "content": "zebra", "timestamp": float(t)} for t in times])
    db.reindex()
    at = dict(zip(ids, times, strict=True))
    assert [at[hit["id"]] for hit in db.search_messages("zebra", sort="oldest", limit=3)] == [1_000, 1_001, 1_002]
    newest = db.search_messages("zebra", sort="newest", limit=3, offset=299)
    assert [at[hit["id"]] for hit in newest] == [600_000, 500_299, 500_298]
    assert {at[id_] for id_ in found(db, "zebra", until=1_001.0)} == {1_000, 1_001}
    assert {at[id_] for id_ in found(db, "zebra", since=600_298.0)} == {600_298, 600_299}


def test_relevance_is_ranked_among_the_newest_that_pass_the_filters(make_db: OpenStore) -> None:
    db = make_db(limits=Limits(search_rank_window=10))
    db.create_session("chat", "cli")
    db.create_session("noise", "cron")
    best = db.append_message("chat", "user", "zebra zebra zebra")
    ids = [db.append_message("chat", "user", f"a zebra among many other words {i}") for i in range(9)]
    hits = db.search_messages("zebra")
    assert hits[0]["id"] == best and not hits.cut
    for i in range(30):
        db.append_message("noise", "user", f"zebra {i}")
    cut = db.search_messages("zebra", limit=50)
    assert cut.cut and len(cut) == 10 and {hit["source"] for hit in cut} == {"cron"}
    kept = db.search_messages("zebra", exclude_sources=["cron"], limit=50)
    assert {hit["id"] for hit in kept} == {best, *ids} and kept[0]["id"] == best and not kept.cut


def test_pages_follow_each_other(db: SessionDB, say: Callable[..., int]) -> None:
    ids = {say(f"zebra number {i}") for i in range(25)}
    pages = [db.search_messages("zebra", limit=10, offset=offset) for offset in (0, 10, 20, 30)]
    assert [len(page) for page in pages] == [10, 10, 5, 0]
    assert {hit["id"] for page in pages for hit in page} == ids
    assert db.search_messages("zebra", limit=0) == []
    for wrong in ({"limit": -1}, {"offset": -5}):
        with pytest.raises(InvalidValue, match="negative"):
            db.search_messages("zebra", **wrong)
