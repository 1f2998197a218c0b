"""Times and sizes as people say them."""

import pytest

from hermes_cli import text

NOW = 1_782_900_000.0


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "now"),
        (59, "now"),
        (60, "1 min"),
        (3_599, "59 min"),
        (3_600, "1 h"),
        (86_399, "23 h"),
        (86_400, "1 d"),
        (29 * 86_400, "29 d"),
        (45 * 86_400, "1 mo"),
        (800 * 86_400, "2 y"),
        (-30, "now"),
        (-7_200, "in 2 h"),
    ],
)
def test_an_instant_is_told_relative_to_now(seconds: float, said: str) -> None:
    assert text.ago(NOW - seconds, now=NOW) == said


def test_an_instant_that_never_was_is_a_dash() -> None:
    assert text.ago(None) == "–"


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1_000, "1.0 kB"),
        (12_345, "12 kB"),
        (3_400_000, "3.4 MB"),
        (2.5e12, "2.5 TB"),
    ],
)
def test_a_size_is_told_in_its_unit(count: float, said: str) -> None:
    assert text.size(count) == said


@pytest.mark.parametrize(
    ("content", "columns", "shown"),
    [
        ("abc", 3, "abc"),
        ("abcd", 3, "ab…"),
        ("京都に行く", 5, "京都…"),
        ("京都", 3, "京…"),
        ("e\u0301e\u0301e\u0301", 2, "e\u0301…"),
    ],
)
def test_a_cut_text_fits_its_columns(content: str, columns: int, shown: str) -> None:
    assert text.shorten(content, columns) == shown
    assert text.width(shown) <= columns
