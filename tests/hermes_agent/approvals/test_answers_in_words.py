"""The words that answer a question when a message holds nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes_agent.approvals.text import WORDS, answer_in_words

PAGE = Path(__file__).parents[3] / "docs" / "users" / "approvals.md"


@pytest.mark.parametrize(
    "word", ["yes", "Yes", "OK", "ok.", " ja ", "Да!", "好的", "好。", "sí", "va  bene", "D’accord"]
)
def test_a_plain_yes_is_once(word: str) -> None:
    assert answer_in_words(word) == "once"


@pytest.mark.parametrize("word", ["no", "Nein", "нет", "não", "不", "拒绝"])
def test_a_plain_no_is_a_denial(word: str) -> None:
    assert answer_in_words(word) == "deny"


@pytest.mark.parametrize(
    "text",
    ["", "yes please", "ok, but first look", "yes\nno", "always", "да нет", "approve ask_1", "?", "."],
)
def test_everything_longer_means_nothing(text: str) -> None:
    assert answer_in_words(text) is None


def test_ten_languages_and_no_word_means_both() -> None:
    assert len(WORDS) == 10
    yes = {word for found, _ in WORDS.values() for word in found}
    no = {word for _, found in WORDS.values() for word in found}
    assert (
        not yes & no
        and all(answer_in_words(word) == "once" for word in yes)
        and all(answer_in_words(word) == "deny" for word in no)
    )


def test_the_page_lists_them_all() -> None:
    rows = {line.split("|")[1].strip(): line for line in PAGE.read_text().splitlines() if line.startswith("| ")}
    for language, (yes, no) in WORDS.items():
        assert rows[language] == f"| {language} | {', '.join(yes)} | {', '.join(no)} |"
