"""Estimates are careful at first and follow what the provider counts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hermes_agent.prompt import tokens


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    tokens._rates.clear()
    yield
    tokens._rates.clear()


def test_a_first_estimate_is_near_and_rather_too_high() -> None:
    english = "The quick brown fox jumps over the lazy dog. " * 100  # about 1,000 tokens with common tokenizers
    assert 1_000 <= tokens.of_text(english) <= 1_500
    chinese = "会话永远不会丢失也不会重复" * 100  # 1,300 characters
    assert 900 <= tokens.of_text(chinese) <= 2_000
    assert tokens.of_text("") == 0 and tokens.of_text("a") == 1 and tokens.of_text("\ud800") == 1


def test_what_the_provider_counts_corrects_it_for_that_model() -> None:
    for _ in range(20):
        tokens.learn("m", 100_000, 20_000)
    assert abs(tokens.estimate(50_000, "m") - 10_000) < 200
    assert tokens.estimate(50_000, "other") == tokens.estimate(50_000)
    tokens.learn("m", 100_000, 40_000)
    assert 10_000 < tokens.estimate(50_000, "m") < 20_000, "one report does not turn it over"


@pytest.mark.parametrize(("nbytes", "counted"), [(100, 5_000), (100_000, 0), (100_000, -5), (0, 10)])
def test_reports_that_say_nothing_are_ignored(nbytes: int, counted: int) -> None:
    tokens.learn("m", nbytes, counted)
    assert tokens.estimate(7_000, "m") == tokens.estimate(7_000)


def test_a_mad_report_is_bounded() -> None:
    tokens.learn("m", 10_000, 10_000_000)
    assert tokens.estimate(1_000, "m") <= 1_000
    tokens.learn("n", 10_000_000, 1)
    assert tokens.estimate(12_000, "n") >= 1_000


def test_an_image_counts_as_an_image() -> None:
    picture = b'{"type":"image_url","image_url":{"url":"data:image/png;base64,' + b"iVBORw0KGgo" * 50_000 + b'"}}'
    assert tokens.estimate(tokens.weight(picture)) < 2_000
    source = b'{"type":"image","source":{"type":"base64","data":"' + b"A" * 100_000 + b'"}}'
    assert tokens.estimate(tokens.weight(source)) < 2_000
    text = b'{"content":"' + b"word " * 10_000 + b'"}'
    assert tokens.weight(text) == len(text)


def test_only_so_many_models_are_remembered() -> None:
    for number in range(300):
        tokens.learn(f"m{number}", 10_000, 5_000)
    assert tokens.estimate(1_000, "m0") == tokens.estimate(1_000)
    assert tokens.estimate(1_000, "m299") == 500
