"""Forgiving coercions: what `from_dict` makes of values that other programs or older files wrote.

Nothing here raises. Whoever reads a file that a person edits uses `config_read`, which names every bad value.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

_TRUE = frozenset({"true", "1", "yes", "on"})
_FALSE = frozenset({"false", "0", "no", "off"})


def flag(value: object, default: bool) -> bool:
    """A yes or no as people write it; anything else is the default."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float) and value in (0, 1):
        return bool(value)
    word = value.strip().lower() if isinstance(value, str) else ""
    return word in _TRUE if word in _TRUE or word in _FALSE else default


def text(value: object, default: str | None = None) -> str | None:
    """A non-empty text, trimmed; numbers are ids somebody did not quote."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return default
    return str(value).strip() or default


def number(value: object, default: float, *, least: float = 0.0) -> float:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return default
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return default
    return found if math.isfinite(found) and found >= least else default


def days(value: object, default: int) -> int:
    """Whole days from 0 up: a negative number is 0, what is no number is the default."""
    if value is None or isinstance(value, bool):
        return default
    try:
        return max(0, int(value))  # type: ignore[call-overload,no-any-return]
    except (TypeError, ValueError, OverflowError):
        return default


def positive_whole(value: object) -> int | None:
    """A whole number above 0, else None, which stands for no bound."""
    if isinstance(value, str) and value.strip().isdecimal() and len(value) < 20:
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def names(value: object, default: Iterable[str] = ()) -> tuple[str, ...]:
    """A list of texts, or one text with commas between."""
    parts: Iterable[object]
    if isinstance(value, str):
        parts = value.split(",")
    elif isinstance(value, list | tuple | set | frozenset):
        parts = value
    else:
        return tuple(default)
    return tuple(found for part in parts if (found := text(part)))


def mapping(value: object) -> dict[str, Any]:
    """A plain, changeable copy with text keys; {} for anything else."""
    return {str(key): plain(item) for key, item in value.items()} if isinstance(value, Mapping) else {}


def plain(value: Any) -> Any:
    """Frozen configuration as ordinary dictionaries and lists."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value
