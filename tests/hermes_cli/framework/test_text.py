"""Times and sizes as people say them."""

import json

import pytest

from hermes_cli.framework import text

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


UNSEEN = "\u200e\u200f\u061c\u202e\u2066\u3164\u2800\u115f\uffa0\u180e\u2062\u200b\ufeff\u00ad\U000e0041"


def test_direction_marks_and_invisible_letters_do_not_reach_a_terminal() -> None:
    for clean in (text.harmless, text.harmless_block, text.harmless_json):
        said = clean(f"rm{UNSEEN} -rf")
        assert not set(UNSEEN) & set(said)
        assert said.startswith("rm") and said.endswith(" -rf")
    assert text.harmless("a\u3164b\u2800c") == "a\ufffdb\ufffdc", "what looks like nothing is shown"
    assert text.harmless("\u200fשלום\u200e") == "שלום"
    document = json.dumps({"said": f"a{UNSEEN}\x7fb"}, ensure_ascii=False)
    assert json.loads(text.harmless_json(document)) == json.loads(document), "nothing of it is lost"
    family = "👩\u200d👩\u200d👧 नमस्ते\u200c"
    assert text.harmless(family) == family, "joiners belong to emoji and scripts"
