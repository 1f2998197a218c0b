"""Reads `.env`: one KEY=VALUE a line, in order; and writes single lines for `config.add_variable`.

Understood: blank lines, `#` comments, an `export ` prefix, 'single' quotes (literal but for \\\\ and \\'),
"double" quotes (with the usual backslash escapes), quoted values over several lines, a comment after
whitespace. There is no interpolation: `$` is a character. A key without `=` sets nothing. A later line wins.

A line that is none of these is an error that names the line and never shows its text, which may be a secret.
Why not python-dotenv: docs/decisions/reading-dotenv.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from hermes_config.errors import ConfigError

_NOTHING = re.compile(r"[^\S\n]*(?:#[^\n]*)?(?:\n|\Z)")
_ENTRY = re.compile(
    r"""
    [^\S\n]* (?:export[^\S\n]+)? (?P<key>[A-Za-z_][A-Za-z0-9_.-]*) [^\S\n]*
    (?: = [^\S\n]*
        (?: '(?P<single>(?:[^'\\]|\\.)*)'
          | "(?P<double>(?:[^"\\]|\\.)*)"
          | (?P<bare>(?!['"])[^\n]*?)
        )
    )?
    [^\S\n]* (?: (?<![^\s'"]) \#[^\n]* )? (?:\n|\Z)
    """,
    re.VERBOSE | re.DOTALL,
)
_BARE_VALUE = re.compile(r"[A-Za-z0-9_:./@%+,=-]+")
_DOUBLE_ESCAPE = re.compile(r"\\([\\'\"abfnrtv$])")
_SINGLE_ESCAPE = re.compile(r"\\([\\'])")
_MEANING = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def parse(text: str, *, file: str) -> dict[str, str]:
    """The entries of a `.env` text, in the order of their first line."""
    entries: dict[str, str] = {}
    for entry in _entries(_plain(text), file=file):
        value = _value(entry)
        if value is not None:
            entries[entry["key"]] = value
    return entries


def without(key: str, text: str, *, file: str) -> str:
    """The text without the lines that set `key`."""
    plain = _plain(text)
    kept, position = [], 0
    for entry in _entries(plain, file=file):
        if entry["key"] == key:
            kept.append(plain[position : entry.start()])
            position = entry.end()
    return "".join((*kept, plain[position:])) if position else text


def _plain(text: str) -> str:
    return text.removeprefix("\ufeff").replace("\r\n", "\n")


def _entries(text: str, *, file: str) -> Iterator[re.Match[str]]:
    position = 0
    while position < len(text):
        if nothing := _NOTHING.match(text, position):
            position = nothing.end()
            continue
        entry = _ENTRY.match(text, position)
        if entry is None:
            raise ConfigError(
                "this line is not KEY=VALUE",
                file=file,
                line=text.count("\n", 0, position) + 1,
                hint="Write KEY=VALUE, quote a value that has quotes or several lines, or start with #.",
            )
        yield entry
        position = entry.end()


def line(key: str, value: str) -> str:
    """`KEY=value`, quoted if necessary, without a line break."""
    if _BARE_VALUE.fullmatch(value):
        return f"{key}={value}"
    quoted = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"{key}='{quoted}'"


def _value(entry: re.Match[str]) -> str | None:
    if entry["double"] is not None:
        return _DOUBLE_ESCAPE.sub(lambda found: _MEANING.get(found[1], found[1]), entry["double"])
    if entry["single"] is not None:
        return _SINGLE_ESCAPE.sub(r"\1", entry["single"])
    return entry["bare"]
