"""Shell words: computes the text that a program will get, as far as it can be known.

A word is encoded with its quoting (quoted characters move to a private range), then braces are expanded, values of
variables are split, `~` is resolved, and the private characters are decoded. Parts that only the running shell can know
are UNKNOWN. A text may also be a guess (`${x:-rm}` is `rm` unless x is set): good enough to refuse a call, never good
enough to name a program.

Limits: `{1..9}`, arrays and the editing forms of `${…}` are unknown, as is nearly everything a command prints.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

UNKNOWN = "\0"
_PRIVATE = 0xE000
_SPLIT, _VANISHING, _NOTHING = "\uf8fd", "\uf8fe", "\uf8ff"
"""Between two fields of an unquoted variable · an unquoted unknown · a pair of quotes, which keeps an empty word."""
_ACTIVE = "{},*?[]~ \t\n\\!^-"
_FORTH = {ord(char): chr(_PRIVATE + ord(char)) for char in _ACTIVE}
_BACK = {_PRIVATE + ord(char): char for char in _ACTIVE} | {
    ord(_NOTHING): "",
    ord(_VANISHING): UNKNOWN,
    ord(_SPLIT): " ",
}
_IN_VARIABLE = {code: char for code, char in _FORTH.items() if chr(code) not in "*?[]"}
_SPLITTING = _IN_VARIABLE | dict.fromkeys(map(ord, " \t\n"), _SPLIT)
_FIELDS, _BRACES, _LONGEST = 64, 32, 4_096
"""The most expansions of one word, because more could take very long."""
_ANSI_C = re.compile(
    r"\\(?:([abeEfnrtv\\'\"?])|([0-7]{1,3})|(?:x\{0*|x|u|U)((?<=\{)[0-9a-fA-F]{1,8}(?=\})|(?<=x)[0-9a-fA-F]{1,2}"
    r"|(?<=u)[0-9a-fA-F]{1,4}|(?<=U)[0-9a-fA-F]{1,8})\}?|c(.))",
    re.DOTALL,
)
_ANSI_C_LETTERS = dict(zip("abeEfnrtv", "\a\b\x1b\x1b\f\n\r\t\v", strict=True))


@dataclass(frozen=True, slots=True)
class Word:
    """One argument as the program gets it, or the value of a variable."""

    text: str
    sure: bool = True
    """False if the running shell may give it another value."""
    glob: bool = False
    """Whether it holds `*`, `?` or `[…]` outside quotes."""


NOT_KNOWN = Word(UNKNOWN, sure=False)


def names(text: str) -> frozenset[str]:
    """A table of names, written as one text."""
    return frozenset(text.split())


def quoted(text: str) -> str:
    """Encode quoted text: nothing in it is special, and it is a word even if empty."""
    return _NOTHING + text.translate(_FORTH)


def plain(text: str) -> str:
    """Encode text without special characters; unlike `quoted`, an empty one is not a word."""
    return text.translate(_FORTH)


def unescaped(text: str) -> str:
    """Encode an unquoted word: characters after a backslash are plain."""
    return re.sub(r"\\(.)", lambda match: quoted(match[1]), text.replace("\\\n", ""), flags=re.DOTALL)


def value_in_word(value: Word, *, quotes: bool) -> str:
    """Encode the value of `"$x"` or `$x`: unquoted, it is split at blanks and globbed; its braces stay text."""
    if quotes:
        return _NOTHING + value.text.translate(_IN_VARIABLE if value.glob else _FORTH)
    if value.text == UNKNOWN or len(value.text) > _LONGEST:
        return _VANISHING
    return value.text.translate(_SPLITTING)


def ansi_c(body: str) -> str:
    """The text of `$'…'`. A NUL ends it, as in bash."""

    def one(match: re.Match[str]) -> str:
        letter, octal, hexadecimal, control = match.groups()
        if letter or control:
            return _ANSI_C_LETTERS.get(letter, letter) if letter else chr(ord(control) & 0x1F)
        number = int(octal, 8) & 0xFF if octal else int(hexadecimal, 16)
        return chr(number) if number < 0x110000 else "\ufffd"

    return _ANSI_C.sub(one, body).partition("\0")[0]


def fields(encoded: str, *, sure: bool, user_home: str) -> list[Word]:
    """The words that one written word expands to: none for an unset variable, several for braces or a list."""
    braces = encoded.count("{")
    if braces > _BRACES or (braces and len(encoded) > _LONGEST):
        return [NOT_KNOWN]
    sure = sure and not re.search(r"\{[^}]*\{", encoded)  # the order of nested ones is a guess
    found = [part for whole in _braces(encoded) for part in whole.split(_SPLIT) if part]
    made = [_finished(part, sure=sure, user_home=user_home) for part in found[:_FIELDS]]
    return [*made, NOT_KNOWN] if len(found) >= _FIELDS else made


def assigned(encoded: str, *, sure: bool, user_home: str) -> Word:
    """The value of `x=…`: neither split nor globbed, braces are text."""
    return Word((word := _finished(encoded, sure=sure, user_home=user_home)).text, word.sure)


def _finished(part: str, *, sure: bool, user_home: str) -> Word:
    """Decode a word. `~` is certain; the home of another user is a guess."""
    if part.startswith("~"):
        name, slash, rest = part[1:].partition("/")
        neighbour = f"{user_home.rpartition('/')[0]}/{name}" if name.isalnum() else UNKNOWN
        place = user_home if not name else "/root" if name == "root" else neighbour
        part, sure = place + slash + rest, sure and not name
    text = part.translate(_BACK)
    return Word(text, sure and UNKNOWN not in text, any(char in part for char in "*?["))


def _braces(encoded: str) -> list[str]:
    """`a{b,c}d` → `abd`, `acd`. Braces without a comma are text, a `{1..3}` is unknown."""
    waiting: list[str] = [encoded]
    done: list[str] = []
    while waiting and len(done) < _FIELDS:
        one = waiting.pop()
        match = re.search(r"\{([^{}]*,[^{}]*)\}", one)
        if match:
            parts = match[1].split(",")[:_FIELDS]
            waiting += [one[: match.start()] + part + one[match.end() :] for part in reversed(parts)]
        else:
            done.append(re.sub(r"\{[^{}]*\.\.[^{}]*\}", UNKNOWN, one))
    return done
