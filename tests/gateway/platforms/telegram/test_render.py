"""Markdown to Telegram: every piece is accepted by a parser that is as strict as Telegram's, and nothing is lost."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.platforms.telegram import render
from hermes_testing.telegram import text as telegram_entities

pytestmark = pytest.mark.slow

_MARKDOWN = st.lists(
    st.sampled_from(
        [
            "word", "**bold**", "*it*", "~~no~~", "`code`", "```py\nx = 1\n```", "\n\n", "\n", " ", "- ", "1. ", "> ",
            "# ", "[a](https://x.y)", "[b](rel.md)", "![p](http://i/j.png)", "<b>", "</b>", "&amp;", "<", "&", "|",
            "**", "_", "`", "```", "~~", "[", "](", ")", "| a | b |\n|---|---|\n| 1 | 2 |\n", "    indented\n", "京都",
            "👩‍👩‍👧", "---\n", "\\", "\t", "é", "https://e.xyz/?a=1&b=2",
        ]
    ),
    max_size=60,
).map("".join)  # fmt: skip
_WORDS = ("word", "bold", "it", "no", "code", "indented", "京都")


def shown(pieces: list[str]) -> list[telegram_entities.Formatted]:
    """The pieces as Telegram would store them; raises what it would complain about."""
    return [telegram_entities.formatted(piece, "HTML") for piece in pieces]


def kinds(text: str) -> set[tuple[str, str]]:
    """The entities of a text that fits one message: (kind, the text under it)."""
    (found,) = shown(render.pieces(text))
    coded = found.text.encode("utf-16-le")
    return {(e.type, coded[e.offset * 2 : e.end * 2].decode("utf-16-le")) for e in found.entities}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("**bold** and *it*", {("bold", "bold"), ("italic", "it")}),
        ("**bold *and it***", {("bold", "bold and it"), ("italic", "and it")}),
        ("~~gone~~", {("strikethrough", "gone")}),
        ("# Title", {("bold", "Title")}),
        ("say `x < 1`", {("code", "x < 1")}),
        ("**see `x`**", {("bold", "see "), ("code", "x")}),
        ("[here](https://example.org/a?b=1&c=2)", {("text_link", "here")}),
        ("![a cat](https://example.org/cat.png)", {("text_link", "a cat")}),
        ("> said **so**", {("blockquote", "said so"), ("bold", "so")}),
        ("```python\nx = 1\n```", {("pre", "x = 1")}),
    ],
)
def test_formatting_becomes_telegrams_own(text: str, expected: set[tuple[str, str]]) -> None:
    assert {(kind, words.rstrip("\n")) for kind, words in kinds(text)} == {
        (kind, words.rstrip("\n")) for kind, words in expected
    }


def test_lists_tables_and_rules_are_written_with_what_there_is() -> None:
    text = "Two things:\n- one\n- two\n  - inner\n\n3. three\n\n| a | 京都 |\n|---|---|\n| longer | 1 |\n\n---\nend"
    (found,) = shown(render.pieces(text))
    assert found.text == (
        "Two things:\n• one\n• two\n  • inner\n\n3. three\n\na      │ 京都\n───────┼─────\nlonger │ 1\n\n———\nend"
    )


def test_raw_html_and_markers_are_text() -> None:
    text = "<script>alert(1)</script> <b>not bold</b> MEDIA:/etc/passwd [[as_document]] &lt;"
    (found,) = shown(render.pieces(text))
    assert found.text == "<script>alert(1)</script> <b>not bold</b> MEDIA:/etc/passwd [[as_document]] <"
    assert not [entity for entity in found.entities if entity.type == "bold"]


@pytest.mark.parametrize("address", ["javascript:alert(1)", "notes/plan.md", "file:///etc/passwd"])
def test_an_address_that_is_no_link_is_shown(address: str) -> None:
    (found,) = shown(render.pieces(f"[click]({address})"))
    assert "click" in found.text
    assert address in found.text
    assert not [entity for entity in found.entities if entity.type == "text_link"]


@pytest.mark.parametrize("text", ["", "   \n ", "\x00\x07", "[a]: http://x.y", "```\n```", "<!-- -->"])
def test_there_is_always_something_to_send(text: str) -> None:
    (found,) = shown(render.pieces(text))
    assert found.text.strip() or text == "```\n```"


def test_lone_surrogates_and_control_characters_can_be_sent() -> None:
    (piece,) = render.pieces("half \ud83d of\x00 a **pair**\r\nnext")
    piece.encode()
    assert shown([piece])[0].text == "half ? of a pair\nnext"


def test_a_code_block_that_is_too_long_is_one_on_both_sides() -> None:
    lines = "\n".join(f"line_{number} = {number}" for number in range(600))
    found = shown(render.pieces(f"Look:\n\n```python\n{lines}\n```\n\nDone."))
    assert len(found) > 2
    for part in found[1:-1]:
        (entity,) = [entity for entity in part.entities if entity.type == "pre"]
        assert (entity.offset, entity.end) == (0, telegram_entities.units(part.text))
        assert entity.json()["language"] == "python"
    code = "\n".join(part.text for part in found).split("Look:\n")[1].split("\n\nDone.")[0].split("\nDone.")[0]
    assert code.split() == lines.split()


def test_words_behind_a_fence_are_shown_unless_they_name_a_language() -> None:
    assert render.to_plain(render.pieces("```here it is\n```")[0]) == "here it is"
    assert render.to_plain(render.pieces("~~~~no~~")[0]) == "no~~"
    assert render.pieces("```py x\n1\n```") == ['<pre><code class="language-py">1</code></pre>']


def test_a_block_that_fits_is_not_divided() -> None:
    code = "\n".join(["x = 1"] * 400)
    text = f"{'word ' * 500}\n\n```\n{code}\n```\n\nend"
    found = shown(render.pieces(text))
    assert [code in part.text for part in found] == [False, True]


def test_pieces_are_counted_in_utf16_units() -> None:
    found = shown(render.pieces("😀" * 5000))
    assert [telegram_entities.units(part.text) for part in found] == [4096, 4096, 1808]
    assert "".join(part.text for part in found) == "😀" * 5000


def test_a_family_is_not_torn_apart() -> None:
    family = "👩‍👩‍👧‍👦"
    for piece in shown(render.pieces(family * 600)):
        assert piece.text == family * (len(piece.text) // len(family))


@settings(max_examples=400, deadline=None)
@given(_MARKDOWN)
def test_whatever_is_written_telegram_takes_it_and_no_word_is_lost(text: str) -> None:
    for limit in (4096, 60):
        pieces = render.pieces(text, limit)
        assert pieces == render.pieces(text, limit)
        found = shown(pieces)
        assert all(telegram_entities.units(part.text) <= limit for part in found)
        if limit == 4096 and not any(mark in text for mark in ("[", "```", "~~~")):
            said = "".join(part.text for part in found)
            assert {word: said.count(word) for word in _WORDS} == {word: text.count(word) for word in _WORDS}


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=300))
def test_any_text_can_be_sent(text: str) -> None:
    for piece in render.pieces(text, 50):
        assert telegram_entities.units(telegram_entities.formatted(piece, "HTML").text) <= 50
        assert render.to_plain(piece) or piece == render.EMPTY or not text.strip()


@settings(max_examples=200, deadline=None)
@given(st.from_regex(render._PLAIN, fullmatch=True))
def test_the_short_way_for_plain_sentences_is_the_same_as_the_long_one(text: str) -> None:
    clean = render._clean(text)
    if not render._PLAIN.fullmatch(clean) or render._NUMBERED.match(clean) or len(clean) > 2000:
        return
    (block,) = render._blocks(clean)
    assert render.to_html(block.runs) == clean == render.pieces(text)[0]


@pytest.mark.parametrize(
    "bomb",
    [
        "[" * 200_000, "*" * 200_000, "`" * 200_000, "> " * 100_000, "- " * 100_000, "![" * 1_500, "[a](" * 1_000,
        "a**b" * 1_500, "<" * 200_000, "- a\n" * 50_000, "".join("  " * depth + "- a\n" for depth in range(300)),
        "| a " * 700 + "\n" + "|---" * 700 + "\n", "1. a\n" * 1_900, "x" * 200_000, "word " * 40_000, "_a " * 2_900,
    ],
)  # fmt: skip
def test_a_hostile_text_is_sent_soon(bomb: str) -> None:
    render.pieces("**warm** up")
    began = time.perf_counter()
    pieces = render.pieces(bomb)
    assert time.perf_counter() - began < 10.0, "it hangs"
    assert all(telegram_entities.units(part.text) <= 4096 for part in shown(pieces))


def test_what_telegram_does_not_understand_can_be_said_plainly() -> None:
    (piece,) = render.pieces('**2 < 3** & [x](https://a.b/?c="d") `<b>`')
    assert render.to_plain(piece) == "2 < 3 & x <b>"
    assert render.to_plain("a < b and c > d") == "a < b and c > d"


@pytest.mark.parametrize(
    ("text", "row"),
    [
        ("| a | b |\n|---|---|\nword||word", "word │ word"),
        ("| a | b |\n|---|---|\n| 1 | 2 | 3 \\| 4 |", "1 │ 2 3 | 4"),
        ("> | a | b |\n> |---|---|\n> | 1 | 2 |", "1 │ 2"),
    ],
)
def test_a_row_with_more_cells_than_its_table_loses_none(text: str, row: str) -> None:
    said = "".join(run.text for block in render._blocks(text) for run in block.runs)
    assert said.splitlines()[-1].split() == row.split()
