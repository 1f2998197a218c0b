"""The table of settings: every key of config.yaml that Hermes reads, and every variable of `.env` or the environment.

`docs/operators/config-reference.md` is made from it, `hermes config check` and `hermes doctor` find mistyped keys and
keys without effect by it, and a test fails when the code reads a key that is not here. How a key is read and checked is
the business of the room that uses it; here is only what there is. `<name>` stands for a name of the person's own.
Every bound is a key of its own under `limits:`; those are in `limits`.

A key that is `kept` comes from existing homes, is accepted and has no effect.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hermes_config import redaction
from hermes_config.settings_table import AREAS, BOUNDS, UNBOUNDED, Setting

_ANY = "<name>"
_OURS = ("gateway", "limits")
"""Sections that are no rows of the table."""
_YES_OR_NO = ("true", "false", "yes", "no", "on", "off", "1", "0")


def settings() -> Iterator[Setting]:
    for rows in AREAS.values():
        yield from rows


def mistyped(tree: Mapping[str, Any]) -> list[str]:
    """Keys of config.yaml that nobody reads and that look like one that is read. Anybody else's are let be."""
    known = {row.key: row for row in settings()}
    top = [((str(key),), _near_section(str(key))) for key in tree]
    below = [(path, _near(known, path)) for path in _paths(tree) if _row(known, path) is None]
    return [f"{'.'.join(path)} is not a known key; did you mean {near}?" for path, near in (*top, *below) if near]


def meant(key: str) -> str:
    """The key that a person who writes this one most likely means; empty when it is known, or like none."""
    path = tuple(key.split("."))
    if is_known(key):
        return ""
    if near := _near_section(path[0]):
        return ".".join((near, *path[1:]))
    return _near({row.key: row for row in settings()}, path)


def refusal(key: str, value: Any) -> str:
    """Why a setting with known choices or bounds cannot be this; empty when it can, or its room alone can tell."""
    row = _row({row.key: row for row in settings()}, tuple(key.split(".")))
    if row is None or value is None or not _names(row.key, key):
        return ""
    if row.key in BOUNDS:
        return _refused_number(row, value)
    choices = _YES_OR_NO if row.kind == "true or false" else tuple(row.kind.split(", "))
    if len(choices) < 2 or not all(word.isidentifier() for word in choices if word not in _YES_OR_NO):
        return ""
    words = ("off", "none", "false") if value is False else ("on", "true") if value is True else (str(value).lower(),)
    said = row.kind if row.kind == "true or false" else f"{', '.join(choices[:-1])} or {choices[-1]}"
    return "" if set(words) & set(choices) else f"must be {said}, not {redaction.shown(value)}"


def refused(tree: Mapping[str, Any]) -> list[str]:
    """Values of config.yaml that cannot be, by the table; who reads them takes the default, or says so much later."""
    found = ((".".join(path), value) for path, value in _values(tree))
    return [f"{key} {why}" for key, value in found if (why := refusal(key, value))]


def _refused_number(row: Setting, value: Any) -> str:
    least, most = BOUNDS[row.key]
    whole = isinstance(least, int)
    number = value
    if row.kind == "tokens" and isinstance(value, str):  # people write 200,000 or auto there, and it is understood
        plain = value.replace("_", "").replace(",", "").strip()
        number = 0 if value in ("", "auto") else int(plain) if plain.isascii() and plain.isdecimal() else value
    counts = isinstance(number, int if whole else int | float) and not isinstance(number, bool)
    fits = counts and least <= number <= most
    bounds = f"of at least {least:,}" if most == UNBOUNDED else f"from {least:,} to {most:,}"
    return "" if fits else f"must be a {'whole ' if whole else ''}number {bounds}, not {redaction.shown(value)}"


def _names(pattern: str, key: str) -> bool:
    """Whether a key is this row's itself, and not one below it."""
    return pattern.count(".") == key.removeprefix("gateway.").count(".")


def idle(tree: Mapping[str, Any]) -> list[str]:
    """Keys of config.yaml that are kept and do nothing."""
    known = {row.key: row for row in settings()}
    found = ((path, _row(known, path)) for path in _paths(tree))
    return [".".join(path) for path, row in found if row is not None and row.kept]


def is_known(key: str) -> bool:
    """Whether a dotted key is one of the table, one of its sections, or below one that is the person's own."""
    return _row({row.key: row for row in settings()}, tuple(key.split("."))) is not None or _is_section(key)


def _row(known: Mapping[str, Setting], path: tuple[str, ...]) -> Setting | None:
    """The row of a key, at the top or under `gateway:`; below a row that has no keys of its own, that row."""
    for start in (path, path[1:] if path[0] == "gateway" else ()):
        for end in range(len(start), 0, -1):
            for names in ((*start[:end],), *_with_names(start[:end])):
                row = known.get(".".join(names))
                if row is not None and (end == len(start) or not _is_section(row.key)):
                    return row
    return None


def _with_names(path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for at in range(1, len(path)):
        yield (*path[:at], _ANY, *path[at + 1 :])


def _is_section(key: str) -> bool:
    start = f"{key.removeprefix('gateway.')}."
    return key in _OURS or any(row.key.startswith(start) for row in settings())


def _near(known: Mapping[str, Setting], path: tuple[str, ...]) -> str:
    """The key that was meant: of the same section, and written nearly so."""
    from difflib import get_close_matches  # only ever needed for a mistake

    section, _, name = ".".join(path).rpartition(".")
    if not section or section == "limits":  # at the top anybody's keys may stand; limits are checked when they are read
        return ""
    under = section.removeprefix("gateway").removeprefix(".")
    beside = {key.rpartition(".")[2] for key in known if key.rpartition(".")[0] == under}
    close = get_close_matches(name, sorted(beside), n=1, cutoff=0.7)
    return f"{section}.{close[0]}" if close else ""


def _near_section(name: str) -> str:
    """The key at the top that this one is nearly; empty when it is one."""
    from difflib import get_close_matches  # only ever needed for a mistake

    sections = sorted({row.key.partition(".")[0] for row in settings()} | set(_OURS))
    close = [] if name in sections else get_close_matches(name, sections, n=1, cutoff=0.8)
    return close[0] if close else ""


def _paths(tree: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    return (path for path, _ in _values(tree))


def _values(tree: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every key that has a value, and no section."""
    for key, value in tree.items():
        path = (*above, str(key))
        if isinstance(value, Mapping):
            yield from _values(value, path)
        elif value is not None:
            yield path, value
