"""One idea of what a word is: the index of either engine and a plain reading of the texts give the same answers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.support.stores import TestStores

from hermes_state.search import words
from hermes_state.search.query import parse
from hermes_state.session_db import SessionDB

pytestmark = pytest.mark.slow

# Few enough letters that random texts and queries meet, from every corner the rules know.
LETTERS = "aAbé e\u0301ßΩωИй٤ِहि部署京東かガカ\u3099ｶﾞ한국어ก็ 1①ﬁ.-_'\"*❤️\u200d\u00ad\u200b\0\n"
texts = st.text(st.sampled_from(LETTERS), max_size=14) | st.text(max_size=8)
terms = st.text(st.sampled_from(LETTERS), min_size=1, max_size=3)
queries = st.lists(terms | st.sampled_from(["AND", "OR", "NOT", "*"]), min_size=1, max_size=4).map(" ".join)


@given(st.text() | texts)
@example("e\u0301\u0301x İ ŉ ǅ ﷺ ㍿ 🈁 \U000e0101 ᏣᎳᎩ ꮳ")
def test_the_words_of_a_text_and_their_places_agree(text: str) -> None:
    composed = words.composed(text)
    found = words.words(text)
    assert words.words(composed) == found
    positions = words.positions(composed, len(found) + 1)
    for word, (start, end) in zip(found, positions, strict=True):
        assert words.words(composed[start:end])[0] == word
    assert words.positions(composed, 2) == positions[:2]


@given(texts)
def test_words_are_stable(text: str) -> None:
    """The words of words are the same words: what was folded once is not folded differently again."""
    plain = [word for word in words.words(text) if not words.is_spaceless(word)]
    assert words.words(" ".join(plain)) == plain


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SessionDB, SessionDB]]:
    stores = TestStores(tmp_path_factory.mktemp("words"))
    pair = (SessionDB(stores.sqlite(), synchronous="OFF"), SessionDB.connect(stores.postgresql()))
    yield pair
    for db in pair:
        db.close()
    stores.close()


numbers = itertools.count()
told: list[str] = []


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(texts, min_size=1, max_size=6), st.lists(queries, min_size=1, max_size=5))
@example(["部署OK", "部署 OK", "OK部署", "部", "署ok"], ["部署OK", "OK部", "部OK", "署 NOT 部", '"部署 ok"*'])
@example(
    ["Deployed", "deployments of it", "deploys", "a deploy", "deplore", "deploy-it", "Queries", "query\u200b"],
    ["deploy", "deploying NOT it", '"deploy"', "deploy*", "deployi*", "queries", '"query" OR deplored', '"deploys it"'],
)
@example(["a-b", "a b", "ab", "b a", "a\0b"], ["a-b", "a.b*", "a NOT b", "b OR a", '"b a"'])
def test_both_engines_and_a_plain_reading_find_the_same(
    both: tuple[SessionDB, SessionDB], fresh: list[str], asked: list[str]
) -> None:
    session = f"s{next(numbers)}"
    for db in both:
        db.create_session(session, "cli")
        db.append_messages(session, [{"role": "user", "content": text} for text in fresh])
    told.extend(fresh)
    for query in asked:
        parsed = parse(query, 2048)
        here = {i for i, text in enumerate(fresh) if parsed and parsed.matches(words.words(text))}
        everywhere = sum(1 for text in told if parsed and parsed.matches(words.words(text)))
        for db in both:
            first = db.get_messages(session)[0]["id"]
            hits = db.search_messages(query, conversation=session)
            assert {hit["id"] - first for hit in hits} == here, (query, db.engine.dialect)
            assert len(db.search_messages(query, limit=100_000)) == everywhere, (query, db.engine.dialect)
            assert len(db.search_messages(query, limit=100_000, sort="newest")) == everywhere
