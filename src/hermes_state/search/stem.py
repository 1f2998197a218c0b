"""English stems (Porter, 1980, with his later rule for y): `deploy`, `deployed` and `deployments` have the same one.

A stem is not a word, only a common name of a word's forms. Words of other languages sometimes lose an ending too; texts
and queries lose the same one, so they still match.
"""

from __future__ import annotations

import re
from functools import lru_cache

_CONSONANT_Y = re.compile(r"(^|[aeiou])y")
_MEASURE = re.compile(r"[aeiouy][^aeiouy]")
_VOWEL = re.compile(r"[aeiouy]")
_DOUBLE = re.compile(r"([^aeioulsyz])\1$")
_CVC = re.compile(r"[^aeiouy][aeiouy][^aeiouwxyY]$")

_STEP_2 = (
    ("ational", "ate"), ("tional", "tion"), ("enci", "ence"), ("anci", "ance"), ("izer", "ize"), ("abli", "able"),
    ("alli", "al"), ("entli", "ent"), ("eli", "e"), ("ousli", "ous"), ("ization", "ize"), ("ation", "ate"),
    ("ator", "ate"), ("alism", "al"), ("iveness", "ive"), ("fulness", "ful"), ("ousness", "ous"), ("aliti", "al"),
    ("iviti", "ive"), ("biliti", "ble"),
)  # fmt: skip
_STEP_3 = (
    ("icate", "ic"), ("ative", ""), ("alize", "al"), ("iciti", "ic"), ("ical", "ic"), ("ful", ""), ("ness", ""),
)  # fmt: skip
_STEP_4 = (
    "al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "sion", "tion", "ou", "ism", "ate",
    "iti", "ous", "ive", "ize",
)  # fmt: skip

_NO = ("", "")


def stem(word: str) -> str:
    """The stem of a folded word; the word itself when it is too short, too long or not of plain letters. Both begin
    with the same letter."""
    # The cache is for words of a language: numbers and pairs of Han characters would fill it at once.
    return _stem(word) if word.isascii() and word.isalpha() and 2 < len(word) < 31 else word


@lru_cache(maxsize=1 << 16)
def _stem(word: str) -> str:
    word = _CONSONANT_Y.sub(r"\1Y", word)
    word = _replaced(_without_ed(_without_s(word)), _STEP_2)
    word = _without_suffix(_replaced(word, _STEP_3))
    if word.endswith("e") and (_measure(word[:-1]) > 1 or (_measure(word[:-1]) == 1 and not _CVC.search(word[:-1]))):
        word = word[:-1]
    return (word[:-1] if word.endswith("ll") and _measure(word[:-1]) > 1 else word).lower()


def _measure(begin: str) -> int:
    """How many times consonants follow vowels: roughly the syllables before the ending."""
    return len(_MEASURE.findall(begin))


def _without_s(word: str) -> str:
    if word.endswith(("sses", "ies")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def _without_ed(word: str) -> str:
    if word.endswith("eed"):
        word = word[:-1] if _measure(word[:-3]) else word
    else:
        for ending in ("ed", "ing"):
            begin = word.removesuffix(ending)
            if begin != word and _VOWEL.search(begin):
                word = _repaired(begin)
                break
    return f"{word[:-1]}i" if word.endswith("y") and _VOWEL.search(word[:-1]) else word


def _repaired(begin: str) -> str:
    """The repaired beginning: `hop` of hopping, `hope` of hoping."""
    if begin.endswith(("at", "bl", "iz")):
        return f"{begin}e"
    if _DOUBLE.search(begin):
        return begin[:-1]
    return f"{begin}e" if _measure(begin) == 1 and _CVC.search(begin) else begin


def _replaced(word: str, endings: tuple[tuple[str, str], ...]) -> str:
    ending, other = max(
        (pair for pair in endings if word.endswith(pair[0])), key=lambda pair: len(pair[0]), default=_NO
    )
    begin = word.removesuffix(ending)
    return f"{begin}{other}" if ending and _measure(begin) else word


def _without_suffix(word: str) -> str:
    ending = max((ending for ending in _STEP_4 if word.endswith(ending)), key=len, default="")
    begin = word.removesuffix(ending)
    if ending in ("sion", "tion"):
        begin += ending[0]
    return begin if ending and _measure(begin) > 1 else word
