"""Reading one section of the configuration with types, bounds and good errors.

A section knows its keys. A key it does not know passes untouched, for another room or another program may
own it; but one that is nearly a known key is a mistake, and is refused with "did you mean". Values are
coerced the way people write them (`"30"`, `yes`), and a key without a value means the default.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

from hermes_config.errors import ConfigError
from hermes_config.yaml_file import Document

_TRUE = ("true", "yes", "on", "1")
_FALSE = ("false", "no", "off", "0")


_FEW = 12
"""As many names fit into an error that is read."""


class Section:
    """One section of a document, `name` being its dotted path. `closed` sections are ours alone: there, every
    unknown key is a mistake."""

    def __init__(self, document: Document, name: str, *, known: Collection[str], closed: bool = False) -> None:
        self._document = document
        self._name = name
        self._values: Mapping[Any, Any] = {}
        values = _found(document.data, name)
        if values is None:
            return
        if not isinstance(values, dict):
            raise self._error("", f"must be a section with keys such as {next(iter(known))}")
        self._values = values
        for key in values:
            if key not in known:
                self._judge_unknown(str(key), known, closed)

    def _judge_unknown(self, key: str, known: Collection[str], closed: bool) -> None:
        from difflib import get_close_matches  # only ever needed for a mistake

        near = get_close_matches(key, known, n=1, cutoff=0.5 if closed else 0.85)
        if near:
            raise self._error(key, "is not a known key", hint=f"Did you mean {self._name}.{near[0]}?")
        if closed:
            few = len(known) <= _FEW
            shown = sorted(known) if few else get_close_matches(key, known, n=3, cutoff=0.0)
            hint = f"{'Known' if few else 'The nearest'}: {', '.join(shown)}."
            raise self._error(key, "is not a known key", hint=hint)

    def _error(self, key: str, reason: str, *, hint: str = "") -> ConfigError:
        path = [*self._name.split("."), key] if key else self._name.split(".")
        line = self._document.line(path)
        return ConfigError(reason, file=self._document.file, line=line, key=".".join(path), hint=hint)

    def flag(self, key: str, default: bool) -> bool:
        value = self._values.get(key)
        if value is None or isinstance(value, bool):
            return default if value is None else value
        word = str(value).strip().lower()
        if word in _TRUE or word in _FALSE:
            return word in _TRUE
        raise self._error(key, f"must be true or false, not {_shown(value)}")

    def whole(self, key: str, default: int, *, minimum: int, maximum: int = 2**53) -> int:
        number = self.maybe_whole(key, minimum=minimum, maximum=maximum)
        return default if number is None else number

    def maybe_whole(self, key: str, *, minimum: int, maximum: int = 2**53) -> int | None:
        """A whole number, or None where none is written."""
        value = self._values.get(key)
        if value is None:
            return None
        number = _whole_number(value)
        if number is None:
            raise self._error(key, f"must be a whole number, not {_shown(value)}")
        if not minimum <= number <= maximum:
            bound = f"at least {minimum:,}" if number < minimum else f"at most {maximum:,}"
            raise self._error(key, f"must be {bound}, not {number:,}")
        return number

    def amount(self, key: str, *, maximum: float) -> float | None:
        """A sum of money from 0 up (5, 0.25, "$5"), or None where none is written."""
        value = self._values.get(key)
        if value is None:
            return None
        number = _amount(value)
        if number is None:
            raise self._error(key, f"must be an amount in dollars such as 5 or 0.25, not {_shown(value)}")
        if not 0 <= number <= maximum:
            bound = "at least 0" if number < 0 else f"at most {maximum:,}"
            raise self._error(key, f"must be {bound}, not {number:,}")
        return number

    def choice(self, key: str, default: str, options: Collection[str]) -> str:
        value = self._values.get(key)
        if value is None:
            return default
        word = str(value).strip().lower()
        if word not in options:
            raise self._error(key, f"must be {' or '.join(options)}, not {_shown(value)}")
        return word

    def url(self, key: str, schemes: Collection[str]) -> str | None:
        """A URL of one of the schemes. It may hold a password, so an error never shows it."""
        value = self._values.get(key)
        if value is None or value == "":
            return None
        if not isinstance(value, str) or not value.startswith(tuple(schemes)):
            raise self._error(key, f"must start with {' or '.join(schemes)}")
        return value


def _found(data: Mapping[Any, Any], name: str) -> Any:
    """What stands under a dotted path; None when anything on the way is missing or no section."""
    value: Any = data
    for part in name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _amount(value: object) -> float | None:
    if isinstance(value, str):
        try:
            value = float(value.strip().removeprefix("$").replace("_", ""))
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _whole_number(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    if isinstance(value, str):
        text = value.strip().replace("_", "")
        return int(text) if text.removeprefix("-").isdecimal() and len(text) < 20 else None
    return None


def _shown(value: object) -> str:
    from hermes_config import redaction

    return redaction.shown(value)
