"""How `.env` is read."""

import pytest

from hermes_config import dotenv
from hermes_config.errors import ConfigError

LINES = [
    ("A=1", "1"),
    ("export A=1", "1"),
    ("A = spaced ", "spaced"),
    ("A=", ""),
    ("A= # only a comment", ""),
    ("A=#general", "#general"),
    ("A=x#y", "x#y"),
    ("A=x # comment", "x"),
    ("A='x # y'", "x # y"),
    ('A="x # y" # comment', "x # y"),
    (r"""A="a\n\"b\"\\" """, 'a\n"b"\\'),
    (r"A='a\n\'b'", r"a\n'b"),
    ('A="two\nlines"', "two\nlines"),
    ("A=$HOME/${B}", "$HOME/${B}"),
    ("A=it's", "it's"),
    ("A=1\r\n", "1"),
    ("A=a=b", "a=b"),
    ("A=first\nA=second", "second"),
    ("\ufeffA=1", "1"),
]


@pytest.mark.parametrize(("text", "value"), LINES)
def test_a_line_gives_its_value(text: str, value: str) -> None:
    assert dotenv.parse(text, file=".env") == {"A": value}


def test_order_is_kept_and_comments_and_bare_names_set_nothing() -> None:
    text = "# a comment\n\nB=2\n  # another\nNAME_ONLY\nA=1\n"
    assert list(dotenv.parse(text, file=".env").items()) == [("B", "2"), ("A", "1")]


@pytest.mark.parametrize("bad", ["=hunter2", "two words=hunter2", 'A="hunter2', "A='hunter2' more", "%%hunter2"])
def test_a_bad_line_is_named_by_number_and_its_text_is_not_shown(bad: str) -> None:
    with pytest.raises(ConfigError) as caught:
        dotenv.parse(f"GOOD=1\n# comment\n{bad}\n", file="/h/.env")
    assert caught.value.line == 3
    assert "/h/.env:3" in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "value", ["12:AA-b_c", "", "with space", "it's", 'a"b', "back\\slash", "#hash", "two\nlines", "ünï", "$HOME", " x "]
)
def test_a_line_that_is_written_is_read_back(value: str) -> None:
    written = f"A=1\n{dotenv.line('KEY', value)}\nB=2\n"
    assert dotenv.parse(written, file=".env") == {"A": "1", "KEY": value, "B": "2"}
