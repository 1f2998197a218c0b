"""What is kept: for any conversation, however broken, the split is valid and makes it smaller, or there is none."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_agent.compression import summary
from hermes_agent.compression.plan import plan_for
from hermes_agent.compression.policy import ContextWindow
from hermes_agent.messages import tokens_of
from hermes_config.sections import CompressionSection

pytestmark = pytest.mark.slow

WINDOW = ContextWindow(context_length=8_000)


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def said(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def step(*ids: str, output: str = "ok", path: str = "a.txt") -> list[dict[str, Any]]:
    """A step with calls, and their results."""
    function = {"name": "read_file", "arguments": json.dumps({"path": path})}
    calls = [{"id": i, "type": "function", "function": function} for i in ids]
    answers = [{"role": "tool", "tool_call_id": i, "tool_name": "read_file", "content": output} for i in ids]
    return [{"role": "assistant", "content": "", "tool_calls": calls}, *answers]


def long_chat(turns: int = 30, words: int = 300) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for n in range(turns):
        rows += [user(f"question {n} " + "word " * words), said(f"answer {n} " + "word " * words)]
    return rows


# -- any conversation ----------------------------------------------------------------------------------------------

_ids = st.sampled_from(["c1", "c2", "c3", ""])
_text = st.one_of(st.text(max_size=30), st.integers(0, 4_000).map(lambda n: "x" * n))
_call = st.one_of(
    st.fixed_dictionaries(
        {"id": _ids, "function": st.fixed_dictionaries({"name": st.just("t"), "arguments": st.just("{}")})}
    ),
    st.just("broken"),
)
_row = st.one_of(
    st.builds(user, _text),
    st.builds(lambda t: user([{"type": "text", "text": t}, {"type": "image_url", "image_url": {"url": "u"}}]), _text),  # type: ignore[arg-type]
    st.builds(said, st.one_of(_text, st.none())),
    st.builds(lambda t, c: {**said(t), "tool_calls": c}, _text, st.lists(_call, max_size=3)),
    st.builds(lambda t, i: {"role": "tool", "content": t, "tool_call_id": i or None, "tool_name": "t"}, _text, _ids),
    st.builds(lambda t: summary.message(t, "user"), st.text(min_size=1, max_size=200)),
    st.just({"role": "system", "content": "s"}),
)
_windows = st.builds(
    ContextWindow, context_length=st.sampled_from([2_000, 8_000, 64_000]),
    settings=st.builds(CompressionSection, protect_first_n=st.integers(0, 5), protect_last_n=st.integers(0, 30)),
    prefix_tokens=st.sampled_from([0, 500, 50_000]),
)  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(st.lists(_row, max_size=40), _windows, st.booleans(), st.booleans())
def test_every_plan_is_valid_and_makes_progress(
    rows: list[dict[str, Any]], window: ContextWindow, force: bool, must: bool
) -> None:
    origins = {"user": "staff", "tool": "outside:a page"}
    rows = [{**row, "id": n, "origin": origins.get(row["role"])} for n, row in enumerate(rows)]
    plan = plan_for(rows, window, force=force, must=must)
    if plan is None:
        return
    kept = [row["id"] for row in (*plan.head, *plan.tail)]
    assert sorted([*kept, *(row["id"] for row in plan.middle)]) == list(range(len(rows)))  # nothing lost, nothing twice
    assert kept == sorted(kept)
    for role in ("user", "assistant"):
        written = [row["id"] for row in rows if row["role"] == role and summary.body(row) is None]
        assert not written or written[-1] in kept
    for call, answer in pairs(rows):
        assert (call in kept) == (answer in kept)
    written = summary.mechanical_summary(plan.middle, previous=[], focus=None, most_chars=200)
    assert tokens_of(summary.message(written, "user")) <= plan.room or not plan.middle
    after = plan.applied(written)
    made = next((row for row in after if "id" not in row), {})
    outside = [row["origin"] for row in plan.middle if row.get("origin") == "outside:a page"]
    assert made.get("origin") == (outside[0] if outside else None)  # a summary never becomes a person's words
    assert any(row["role"] == "user" for row in after) or not plan.middle
    assert sum(map(tokens_of, after)) < plan.before
    assert sum(map(tokens_of, after)) <= window.target


def pairs(rows: list[dict[str, Any]]) -> list[tuple[int, int]]:
    """(row of the call, row of its result), found without the code under test."""
    found = []
    for place, row in enumerate(rows):
        if row["role"] != "tool" or not row.get("tool_call_id"):
            continue
        for before in range(place - 1, -1, -1):
            earlier = rows[before]
            if earlier["role"] == "tool" and earlier.get("tool_call_id") == row["tool_call_id"]:
                break  # answered already
            ids = [c["id"] for c in earlier.get("tool_calls") or () if isinstance(c, dict)]
            if row["tool_call_id"] in ids:
                found.append((before, place))
                break
    return found


# -- conversations as they are -------------------------------------------------------------------------------------


def test_the_beginning_is_kept_the_first_time_only() -> None:
    rows = long_chat()
    plan = plan_for(rows, ContextWindow(context_length=12_000))
    assert plan is not None
    assert [row["content"][:10] for row in plan.head] == ["question 0", "answer 0 w", "question 1"]
    again = plan_for([*plan.applied("what happened"), *long_chat(20)], ContextWindow(context_length=12_000))
    assert again is not None
    assert again.head == ()
    assert [summary.body(row) for row in again.middle if summary.body(row)] == ["what happened"]


def test_the_newest_stays_by_tokens_and_at_least_eight_messages() -> None:
    window = ContextWindow(context_length=12_000)
    plan = plan_for(long_chat(words=20), ContextWindow(context_length=2_000))
    assert plan is not None and len(plan.tail) >= 8
    large = plan_for(long_chat(words=60), window)
    assert large is not None
    assert sum(map(tokens_of, large.tail)) <= window.tail_budget * 2


def test_roles_take_turns_around_the_summary() -> None:
    plan = plan_for(long_chat(), ContextWindow(context_length=12_000, settings=CompressionSection(protect_first_n=2)))
    assert plan is not None
    roles = [row["role"] for row in plan.applied("text")]
    assert all(a != b for a, b in pairwise(roles)), roles


def test_two_hundred_steps_of_one_turn_keep_the_question() -> None:
    rows = [user("the one question")]
    for n in range(200):
        rows += step(f"c{n}", output="line\n" * 60)
    once = plan_for(rows, WINDOW)
    assert once is not None
    rows = [*once.applied("summary one")]
    for n in range(200, 400):
        rows += step(f"c{n}", output="line\n" * 60)
    twice = plan_for(rows, WINDOW)
    assert twice is not None and twice.head == ()
    assert any(row["content"] == "the one question" for row in twice.tail)
    assert twice.tail[0]["content"] == "the one question"


def test_old_outputs_give_way_before_messages_do() -> None:
    rows = long_chat(6, words=10)
    for n in range(4):
        rows += step(f"c{n}", output=f"out{n} " * 1_500)
    rows += [user("and now?"), said("wait")]
    plan = plan_for(rows, WINDOW)
    assert plan is not None
    outputs = [row["content"] for row in plan.tail if row["role"] == "tool"]
    assert outputs[0].startswith("[Old tool output left out to save room: ")


def test_a_step_that_alone_is_too_large_is_shortened_only_where_it_must() -> None:
    rows = [user("read them all"), *step(*[f"c{n}" for n in range(20)], output="z" * 30_000)]
    assert plan_for(rows, ContextWindow(context_length=64_000)) is None
    plan = plan_for(rows, ContextWindow(context_length=64_000), must=True)
    assert plan is not None and not plan.middle
    assert [row["role"] for row in plan.applied("")] == [row["role"] for row in rows]
    assert "characters left out" in plan.tail[2]["content"]
    assert plan.tail[-1]["content"] == rows[-1]["content"]  # the newest goes last


def test_a_short_conversation_is_left_alone() -> None:
    assert plan_for([user("a"), said("b"), user("c"), said("d"), user("e")], WINDOW, force=True) is None
    assert plan_for([], WINDOW, must=True) is None


def test_images_at_the_beginning_become_a_word() -> None:
    picture = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:x"}}]}
    plan = plan_for([picture, *long_chat()], ContextWindow(context_length=12_000))
    assert plan is not None
    assert plan.head[0]["content"] == [{"type": "text", "text": "[an image]"}]


@pytest.mark.parametrize(("old", "must"), [(True, False), (False, True)])
def test_images_of_short_outputs_become_a_word_too(old: bool, must: bool) -> None:
    shot: Any = [{"type": "text", "text": "A page."}, {"type": "image_url", "image_url": {"url": "data:x"}}]
    looked = [*step(*[f"c{n}" for n in range(20)], output=shot)]
    rows = [*long_chat(2, words=10), user("look"), *looked]
    plan = plan_for([*rows, user("and now?"), said("wait")] if old else rows, WINDOW, must=must)
    assert plan is not None
    first = next(row for row in plan.tail if row["role"] == "tool")
    assert first["content"] == [shot[0], {"type": "text", "text": "[an image]"}]
