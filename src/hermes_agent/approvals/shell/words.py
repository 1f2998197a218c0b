"""A shell word: from its syntax to the text a program will be given, as far as that can be known.

A word is written down with its quoting still in it (characters that quotes made plain stand in a private range), then
braces are expanded, what came from a variable is split, `~` is resolved, and the private characters are turned back.
What only the running shell can know is UNKNOWN in the text. A text may also be a guess (`${x:-rm}` is `rm` unless
somebody set x): good enough to refuse by, never good enough to be the name of a program.

Limits: `{1..9}`, arrays and the editing forms of `${…}` are unknown, as is nearly everything a command prints.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, pairwise

UNKNOWN = "\0"
_PRIVATE = 0xE000
_SPLIT, _VANISHING, _NOTHING = "\uf8fd", "\uf8fe", "\uf8ff"
"""Between two fields of an unquoted variable · an unquoted unknown · a pair of quotes, which keeps an empty word."""
_ACTIVE = frozenset("{},*?[]~ \t\n\\!^-")
_FORTH = {ord(char): chr(_PRIVATE + ord(char)) for char in _ACTIVE}
_BACK = {_PRIVATE + ord(char): char for char in _ACTIVE}
_FIELDS = 64
_BRACES, _LONGEST = 32, 4_096
"""More than this in one word is not expanded: it could take all the time there is."""

_ANSI_C = re.compile(
    r"\\(?:([abeEfnrtv\\'\"?])|([0-7]{1,3})|x\{([0-9a-fA-F]+)\}|x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})"
    r"|U([0-9a-fA-F]{1,8})|c(.))",
    re.DOTALL,
)
_ANSI_C_LETTERS = dict(zip("abeEfnrtv", "\a\b\x1b\x1b\f\n\r\t\v", strict=True))


@dataclass(frozen=True, slots=True)
class Word:
    """One argument as the program gets it, or the value of a variable."""

    text: str
    sure: bool = True
    """False when the running shell may make something else of it."""
    glob: bool = False
    """It holds `*`, `?` or `[…]` outside quotes."""


NOT_KNOWN = Word(UNKNOWN, sure=False)


def names(text: str) -> frozenset[str]:
    """A table of names, written as one text."""
    return frozenset(text.split())


def quoted(text: str) -> str:
    """Text that stood in quotes: nothing in it is special any more, and it is a word even when empty."""
    return _NOTHING + plain(text)


def plain(text: str) -> str:
    """Text in which nothing is special, without saying that there is a word."""
    return text.translate(_FORTH)


def unescaped(text: str) -> str:
    """A word without quotes: what a backslash stands before is plain."""
    return re.sub(r"\\(.)", lambda match: quoted(match[1]), text.replace("\\\n", ""), flags=re.DOTALL)


def value_in_word(value: Word, *, quotes: bool) -> str:
    """What `"$x"` or `$x` leaves in a word: unquoted it is split at blanks and globbed, its braces are only text."""
    if quotes and not value.glob:
        return quoted(value.text)
    if not quotes and (value.text == UNKNOWN or len(value.text) > _LONGEST):
        return _VANISHING
    kept = (char if char in "*?[]" else plain(char) for char in value.text)
    if quotes:
        return _NOTHING + "".join(kept)
    blanks = (plain(" "), plain("\t"), plain("\n"))
    return "".join(_SPLIT if char in blanks else char for char in kept)


def ansi_c(body: str) -> str:
    """The inside of `$'…'`. A NUL ends it, as it does in bash."""

    def one(match: re.Match[str]) -> str:
        letter, octal, braced, byte, short, long, control = match.groups()
        if letter:
            return _ANSI_C_LETTERS.get(letter, letter)
        if control:
            return chr(ord(control) & 0x1F)
        number = int(octal, 8) & 0xFF if octal else int((braced or byte or short or long)[-8:], 16)
        return chr(number) if number < 0x110000 else "\ufffd"

    return _ANSI_C.sub(one, body).partition("\0")[0]


def fields(encoded: str, *, sure: bool, user_home: str) -> list[Word]:
    """The words one written word becomes: none for an unset variable, several for braces or a list in a variable."""
    braces = encoded.count("{")
    if braces > _BRACES or (braces and len(encoded) > _LONGEST):
        return [NOT_KNOWN]
    found: list[Word] = []
    for alternative in islice(_braces(encoded), _FIELDS):
        for part in alternative.split(_SPLIT) if _SPLIT in alternative else (alternative,):
            if part:
                found.append(_finished(part, sure=sure, user_home=user_home))
    if len(found) >= _FIELDS:
        found.append(NOT_KNOWN)
    return found


def assigned(encoded: str, *, sure: bool, user_home: str) -> Word:
    """The value of `x=…`: neither split nor globbed, braces are text."""
    if encoded.startswith("~"):
        encoded, _ = _tilde(encoded, user_home)
    text = encoded.replace(_NOTHING, "").replace(_VANISHING, UNKNOWN).replace(_SPLIT, " ").translate(_BACK)
    return Word(text, sure=sure and UNKNOWN not in text)


def _finished(part: str, *, sure: bool, user_home: str) -> Word:
    if part.startswith("~"):
        part, certain = _tilde(part, user_home)
        sure = sure and certain
    glob = any(char in part for char in "*?[")
    text = part.replace(_NOTHING, "").replace(_VANISHING, UNKNOWN).translate(_BACK)
    return Word(text, sure=sure and UNKNOWN not in text, glob=glob)


def _tilde(encoded: str, user_home: str) -> tuple[str, bool]:
    """`~` is certain; where another person lives is a guess."""
    name, slash, rest = encoded[1:].partition("/")
    if not name:
        return user_home + slash + rest, True
    guess = "/root" if name == "root" else f"{user_home.rpartition('/')[0]}/{name}" if name.isalnum() else UNKNOWN
    return guess + slash + rest, False


def _braces(encoded: str) -> Iterator[str]:
    """`a{b,c}d` → `abd`, `acd`. Braces without a comma are text, a `{1..3}` is unknown."""
    opened = encoded.find("{")
    while opened >= 0:
        found = _closing(encoded, opened)
        if found is not None:
            closing, commas = found
            head, tail = encoded[:opened], encoded[closing + 1 :]
            if commas:
                for start, end in pairwise([opened, *commas, closing]):
                    for inner in _braces(encoded[start + 1 : end]):
                        for rest in _braces(tail):
                            yield head + inner + rest
                return
            if ".." in encoded[opened:closing]:
                for rest in _braces(tail):
                    yield head + UNKNOWN + rest
                return
        opened = encoded.find("{", opened + 1)
    yield encoded


def _closing(encoded: str, opened: int) -> tuple[int, list[int]] | None:
    depth = 0
    commas: list[int] = []
    for match in re.finditer(r"[{},]", encoded[opened:]):
        if match[0] == "{":
            depth += 1
        elif match[0] == "}":
            depth -= 1
            if depth == 0:
                return opened + match.start(), commas
        elif depth == 1:
            commas.append(opened + match.start())
    return None
