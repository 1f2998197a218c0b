"""Long texts in pieces: whatever the text, each piece fits, nothing is lost but white space, code stays code."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.platforms.base import SHORT, first_sentence
from gateway.platforms.splitting import split_blocks, split_plain, units

pytestmark = pytest.mark.slow

_WORDS = st.text(alphabet=st.sampled_from("ab é漢\n\t😀👩🇯🇵\u200d\u0301\ufe0f `~.#"), max_size=600)
_FENCE = re.compile(r"^ {0,3}(?:`{3,}|~{3,}).*$", re.MULTILINE)


def _solid(text: str) -> str:
    return "".join(text.split())


@given(_WORDS | st.text(max_size=400), st.integers(2, 120))
@settings(max_examples=300, deadline=None)
def test_each_piece_fits_and_nothing_but_white_space_is_lost(text: str, limit: int) -> None:
    pieces = split_plain(text, limit)
    assert all(units(piece) <= limit and piece.strip() for piece in pieces)
    assert _solid("".join(pieces)) == _solid(text)


_LINES = st.lists(
    st.sampled_from(
        ["```python", "```", "~~~", "````", "x = 1", "", "a longer line of words " * 4, "漢字" * 40, "  - item"]
    ),
    max_size=60,
).map("\n".join)


@given(_LINES, st.integers(140, 400))
@settings(max_examples=300, deadline=None)
def test_code_blocks_are_closed_and_reopened(text: str, limit: int) -> None:
    pieces = split_blocks(text, limit)
    assert all(units(piece) <= limit for piece in pieces)
    assert _solid(_FENCE.sub("", "\n".join(pieces))) == _solid(_FENCE.sub("", text))
    if len(pieces) > 1:
        assert all(_closed(piece) for piece in pieces[:-1])


def _closed(piece: str) -> bool:
    """As a reader of Markdown sees it: no block is open at the end."""
    open_with = ""
    for line in piece.split("\n"):
        found = re.fullmatch(r" {0,3}(`{3,}|~{3,})([^`]*)", line)
        if found is None:
            continue
        if not open_with:
            open_with = found[1]
        elif not found[2].strip() and found[1].startswith(open_with):
            open_with = ""
    return not open_with


def test_a_block_keeps_its_language_in_the_next_piece() -> None:
    code = "\n".join(f"print({number})" for number in range(60))
    pieces = split_blocks(f"Look:\n```python\n{code}\n```\nThat is all.", 300)
    assert len(pieces) > 2
    assert pieces[0].startswith("Look:\n```python\n") and pieces[0].endswith("\n```")
    assert all(piece.startswith("```python\n") for piece in pieces[1:])
    assert pieces[-1].endswith("That is all.")


def test_cuts_fall_on_lines_then_on_words() -> None:
    assert split_plain("one two\nthree four", 12) == ["one two", "three four"]
    assert split_plain("one two three", 9) == ["one two", "three"]
    assert split_plain("abcdefghij", 4) == ["abcd", "efgh", "ij"]


@pytest.mark.parametrize("cluster", ["👩‍👩‍👧", "🇯🇵", "e\u0301", "👍🏽", "❤️"])
def test_what_a_reader_sees_as_one_character_stays_whole(cluster: str) -> None:
    for before in range(12):
        for piece in split_plain("x" * before + cluster * 6, 16):
            assert _solid(piece).replace("x", "").replace(cluster, "") == ""


def test_length_is_counted_in_utf_16_units() -> None:
    assert units("a😀é") == 4
    assert [units(piece) for piece in split_plain("😀" * 10, 7)] == [6, 6, 6, 2]


def test_five_megabytes_are_cut_quickly_and_whole() -> None:
    text = "some words of a long story\n" * 200_000
    pieces = split_blocks("```\n" + text, 4096)
    assert sum(piece.count("story") for piece in pieces) == 200_000


def test_a_blank_text_has_no_pieces() -> None:
    assert split_plain(" \n ", 10) == [] and split_blocks("", 200) == []


MORE = " More of it follows." * 20


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("The answer is 42." + MORE, "The answer is 42."),
        ("1. Do this.\n2. Do that." + MORE, "1. Do this."),
        ("12. Do this." + MORE, "12. Do this."),
        ("Take a tool, e.g. grep, and look." + MORE, "Take a tool, e.g. grep, and look."),
        ("Nimm ein Werkzeug, z. B. Grep." + MORE, "Nimm ein Werkzeug, z. B. Grep."),
        ("Dr. Smith agrees." + MORE, "Dr. Smith agrees."),
        ("See https://example.com/a.b for version 3.11.2 of it." + MORE,
         "See https://example.com/a.b for version 3.11.2 of it."),
        ("\n\nA heading\n\nThe text." + MORE, "A heading"),
        ("———\n\nThe text is here." + MORE, "———\n\nThe text is here."),
        ("这是第一句话。这是第二句话。" * 30, "这是第一句话。"),
        ("यह पहला वाक्य है। यह दूसरा है। " * 20, "यह पहला वाक्य है।"),
        ("嗨 " + "没有标点" * 100, "嗨 " + "没有标点" * 49 + "没…"),
        ("word " * 100, ("word " * 39 + "word…")),
        ("Short. " * 5, ("Short. " * 5).strip()),
    ],
    ids=range(14),
)  # fmt: skip
def test_the_first_sentence_says_something(text: str, first: str) -> None:
    assert first_sentence(text) == first


@given(_WORDS | st.text(max_size=400))
@settings(max_examples=300, deadline=None)
def test_the_first_sentence_begins_the_text_and_is_short(text: str) -> None:
    first = first_sentence(text)
    assert len(first) <= SHORT and text.strip().startswith(first.removesuffix("…"))
    assert first or not text.strip()
