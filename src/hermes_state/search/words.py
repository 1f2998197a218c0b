"""Split text into searchable words: the only module that defines a word.

A word is a run of letters, digits and the marks that belong to them, without case and without accents. Scripts written
without spaces (Han, kana, Hangul, and Thai, Lao, Burmese, Khmer) have no such runs; there every pair of neighbouring
characters is a word, and so is the last character alone: `東京都` is 東京, 京都, 都. A text of two or more
characters is then found as a phrase of pairs, a single character as the beginning of a pair.

Both engines get these words and split nothing themselves, so the indexes, the scan of rows that are not indexed yet and
the marks in a snippet always agree. SQLite's `ascii` tokenizer does just what `_WORD` does, so it gets plain ASCII,
most of all text, unchanged.

An English word is found in all its forms: a text is indexed with its words and with the stem of each word that has
another one. A stem is marked by a character that no word contains, so phrases and prefixes still match the words
themselves.

Limits: a word longer than 255 characters is known by its first 255. Emoji and punctuation are not words.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Callable, Iterable

from hermes_state.search.stem import stem

MAX_WORD = 255
_STEM_MARK = "\x80"

_WORD = re.compile(r"[0-9A-Za-z\x80-\U0010ffff]+")
_OVERLONG = re.compile(rf"[0-9A-Za-z\x80-\U0010ffff]{{{MAX_WORD + 1},}}")
_ASCII_WORD = re.compile(r"[0-9A-Za-z]+")  # the same on ASCII, and faster
_RUN = re.compile(r"w[wm]*|c[cm]*")
_HALFWIDTH_VOICED = re.compile("[\uff66-\uff9d][\uff9e\uff9f]")

_SPACELESS_RANGES = (
    "\u0e01-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
    "\u1100-\u11ff\u3130-\u318f\ua960-\ua97f\uac00-\ud7ff\uffa0-\uffdc"  # Hangul
    "\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f\U0001b000-\U0001b16f"  # kana
    "\u3005-\u3007\u3021-\u3029\u3031-\u3035\u3038-\u303c\u3105-\u312f\u31a0-\u31bf\u3200-\u33ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Han
)
_SPACELESS = re.compile(f"[{_SPACELESS_RANGES}]+")
_is_spaceless = re.compile(f"[{_SPACELESS_RANGES}]").match

# Accents and vowel points that people leave out when they type; variation selectors and the like.
_is_dropped = re.compile(
    "[\u0300-\u036f\u0483-\u0489\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u1ab0-\u1aff\u1dc0-\u1dff"
    "\u20d0-\u20ff\ufe00-\ufe0f\ufe20-\ufe2f\U000e0100-\U000e01ef]"
).match


def _kind(char: str) -> str:
    """`w` part of a word, `c` a character of a script without spaces, `m` an ignored mark, or a space."""
    category = unicodedata.category(char)
    if category[0] in "LMN" and _is_spaceless(char):
        return "c"
    if _is_dropped(char) or (category == "Cf" and char != "\u200b"):
        return "m"
    return "w" if category[0] in "LMN" and _folded_word(char) else " "


def _folded_word(char: str) -> str:
    plain = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", char).casefold())
    kept = "".join(c for c in plain if unicodedata.category(c)[0] in "LMN" and not _is_dropped(c))
    return char if _is_spaceless(kept) else kept


def _folded(char: str) -> str:
    kind = _kind(char)
    if kind == "w":
        return _folded_word(char)
    if kind == "c":
        plain = unicodedata.normalize("NFKC", char)
        return plain if len(plain) == 1 and _is_spaceless(plain) else char
    return "" if kind == "m" else " "


class _Table(dict[int, str]):
    """The table of `str.translate`; filled as characters occur."""

    def __init__(self, meaning: Callable[[str], str]) -> None:
        super().__init__({code: meaning(chr(code)) for code in range(128)})
        self._meaning = meaning

    def __missing__(self, code: int) -> str:
        found = self[code] = self._meaning(chr(code))
        return found


_FOLD = _Table(_folded)
_KIND = _Table(_kind)


def composed(text: str) -> str:
    """`text` with the pieces of each character put together (file names of some systems, half-width kana)."""
    if text.isascii():
        return text
    if not unicodedata.is_normalized("NFC", text):
        text = unicodedata.normalize("NFC", text)
    return _HALFWIDTH_VOICED.sub(lambda pair: unicodedata.normalize("NFKC", pair[0]), text)


def indexed(text: str) -> str:
    """The text for the index: `text` and its stems. Both engines' words are those that `_WORD` finds in it."""
    return f"{_prepared(text)} {' '.join(stems(words(text)))}"


def stems(found: Iterable[str]) -> list[str]:
    """The marked stems of the words that are not their own stem."""
    return [f"{_STEM_MARK}{short}" for word in found if (short := stem(word)) != word]


def marked_stem(word: str) -> str:
    return f"{_STEM_MARK}{stem(word)}"


def _prepared(text: str) -> str:
    """A text in which `_WORD` finds its words."""
    if not text.isascii():
        text = _SPACELESS.sub(_pairs, composed(text).translate(_FOLD))
    # Splitting at spaces first is three times as fast as the pattern, which then hardly ever runs.
    if len(text) > MAX_WORD and max(map(len, text.split()), default=0) > MAX_WORD:
        text = _OVERLONG.sub(lambda word: word[0][:MAX_WORD], text)
    return text


def _pairs(run: re.Match[str]) -> str:
    chars = run[0]
    return " ".join(["", *(chars[i : i + 2] for i in range(len(chars))), ""])


def words(text: str) -> list[str]:
    """The words of `text`, in order."""
    if not text.isascii():
        return _WORD.findall(_prepared(text))
    found = _ASCII_WORD.findall(text.lower())
    if len(text) > MAX_WORD and max(map(len, found), default=0) > MAX_WORD:
        found = [word[:MAX_WORD] for word in found]
    return found


def positions(text: str, count: int) -> list[tuple[int, int]]:
    """The positions of the first `count` words of a composed `text`: (start, end)."""
    if text.isascii():
        return [match.span() for match in itertools.islice(_ASCII_WORD.finditer(text), count)]
    found: list[tuple[int, int]] = []
    kinds = text.translate(_KIND)
    for run in _RUN.finditer(kinds):
        start, end = run.span()
        if kinds[start] == "w":
            found.append((start, end))
        else:
            chars = [i for i in range(start, end) if kinds[i] == "c"]
            found += [(char, after + 1) for char, after in zip(chars, [*chars[1:], chars[-1]], strict=True)]
        if len(found) >= count:
            break
    return found[:count]


def is_spaceless(word: str) -> bool:
    """True for a character or pair of a script written without spaces."""
    return _is_spaceless(word) is not None
