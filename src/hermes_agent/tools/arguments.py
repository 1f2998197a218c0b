"""Parses and checks the arguments that a model wrote for a call; errors tell the model how to correct them.

Parsing is lenient where no misunderstanding is possible (an empty text, raw line breaks inside strings, a code fence
around the object, an object that was encoded twice) and strict otherwise: it never guesses a value. Values are checked
against the tool's schema. The supported part of JSON Schema is what tool schemas use: type,
properties, required, additionalProperties, items, enum, const, minimum, maximum, minLength, maxLength, maxItems, anyOf,
oneOf, allOf, and `$ref` to a part of the same schema; other keys are ignored. Scalars written as text ("5", "true") are
converted to the schema's type, because that loses nothing and models often write them; an alternative that takes the
value as it is comes first.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from hermes_agent.text import close_names

_FENCE = re.compile(r"\A```(?:json)?\s*\n(.*)\n```\Z", re.DOTALL)
_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


_LONGEST_CHAIN = 16
"""The most references to follow in a row, so that a circle ends."""
_MOST_CHECKS = 20_000
"""So many steps a check may take: alternatives within alternatives double them, and a server wrote the schema."""


class BadArguments(Exception):
    """The error in a call's arguments, worded for the model."""


def parse(raw: str, parameters: Mapping[str, Any], *, longest: int) -> dict[str, Any]:
    """The arguments in `raw`, checked against the schema `parameters`. Raises `BadArguments`."""
    if len(raw) > longest:
        raise BadArguments(f"the arguments are {len(raw):,} characters long; at most {longest:,} are taken")
    value = _read(raw)
    try:
        found = _Schema(parameters).checked(value, parameters, "")
    except RecursionError:
        raise BadArguments("the arguments, or the tool's schema, are nested too deeply") from None
    return found if isinstance(found, dict) else value


def _read(raw: str) -> dict[str, Any]:
    text = raw.strip()
    fenced = _FENCE.match(text)
    if fenced:
        text = fenced[1].strip()
    if text in ("", "null"):
        return {}
    value = _load(text)
    if isinstance(value, str):
        value = _load(value)
    if not isinstance(value, dict):
        raise BadArguments(f"the arguments must be one JSON object, not {_kind(value)}")
    return value


def _load(text: str) -> Any:
    try:
        return json.loads(text, strict=False, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        near = text[max(0, error.pos - 30) : error.pos + 30]
        raise BadArguments(
            f"the arguments are not valid JSON: {error.msg} at character {error.pos}, near {near!r}."
            " Call the tool again with one complete JSON object"
        ) from None
    except RecursionError:
        raise BadArguments("the arguments are nested too deeply") from None


def _no_constant(name: str) -> Any:
    raise BadArguments(f"{name} is not valid JSON")


class _Schema:
    """The checks of one tool; references point into `root`."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._converts = True
        self._checks = 0

    def checked(self, value: Any, schema: Any, where: str) -> Any:
        """The value, converted to the schema's type. Raises `BadArguments`; `RecursionError` if it takes too long."""
        self._checks += 1
        if self._checks > _MOST_CHECKS:
            raise RecursionError
        schema = self._resolved(schema)
        for part in schema.get("allOf") or ():
            value = self.checked(value, part, where)
        if choices := schema.get("anyOf") or schema.get("oneOf"):
            value = self._any_of(value, choices, where)
        wanted = schema.get("type")
        if wanted is not None:
            kinds = (wanted,) if isinstance(wanted, str) else tuple(wanted)
            value = _as_kind(value, kinds, where, converts=self._converts)
        allowed = schema.get("enum", [schema["const"]] if "const" in schema else None)
        if allowed is not None and value not in allowed:
            raise BadArguments(f"{where} must be one of {', '.join(map(str, allowed))}, not {_shown(value)}")
        if isinstance(value, dict):
            return self._object(value, schema, where)
        if isinstance(value, list):
            return self._list(value, schema, where)
        if isinstance(value, str):
            _check_text(value, schema, where)
        if isinstance(value, int | float) and not isinstance(value, bool):
            _check_range(value, schema, where)
        return value

    def _resolved(self, schema: Any) -> Mapping[str, Any]:
        """The schema with its reference resolved; a schema that is not an object allows everything."""
        for _ in range(_LONGEST_CHAIN):
            if not isinstance(schema, Mapping) or not isinstance(ref := schema.get("$ref"), str):
                break
            target: Any = self._root
            for part in ref.removeprefix("#").split("/")[1:]:
                step = part.replace("~1", "/").replace("~0", "~")
                target = target.get(step) if isinstance(target, Mapping) else None
            beside = {name: rule for name, rule in schema.items() if name != "$ref"}
            schema = {**target, **beside} if isinstance(target, Mapping) and ref.startswith("#") else beside
        return schema if isinstance(schema, Mapping) else {}

    def _any_of(self, value: Any, choices: Any, where: str) -> Any:
        """The value as the first alternative takes it unchanged, else converted; else an error with the failures."""
        failures: list[str] = []
        for converts in (False, True) if self._converts else (False,):
            failures.clear()
            for one in choices:
                before, self._converts = self._converts, converts
                try:
                    return self.checked(value, one, where)
                except BadArguments as error:
                    failures.append(str(error))
                finally:
                    self._converts = before
        told = "; or ".join(dict.fromkeys(failures[:3]))
        raise BadArguments(f"{where or 'the arguments'}: none of the {len(failures)} alternatives fits ({told})")

    def _object(self, value: dict[str, Any], schema: Mapping[str, Any], where: str) -> dict[str, Any]:
        known: Mapping[str, Any] = schema.get("properties") or {}
        unknown = [name for name in value if name not in known]
        combined = any(name in schema for name in ("anyOf", "oneOf", "allOf"))
        free = "properties" not in schema or combined or (bool(where) and not known)
        others = schema.get("additionalProperties", free)
        if unknown and others is False:
            raise BadArguments("; ".join(_unknown_parameter(name, known, where) for name in unknown[:5]))
        # Models write null for an optional parameter without a value; where null is refused, that means leaving it out.
        required = schema.get("required") or ()
        nulls = {name for name, item in value.items() if item is None and name in known and name not in required}
        left_out = {name for name in nulls if self._refuses_null(known[name])}
        given = {name: item for name, item in value.items() if name not in left_out}
        missing = [name for name in required if name not in given]
        if missing:
            raise BadArguments(f"missing: {', '.join(_path(where, name) for name in missing)}")
        return {name: self.checked(item, known.get(name, others), _path(where, name)) for name, item in given.items()}

    def _refuses_null(self, schema: Any) -> bool:
        try:
            self.checked(None, schema, "")
        except BadArguments:
            return True
        return False

    def _list(self, value: list[Any], schema: Mapping[str, Any], where: str) -> list[Any]:
        if len(value) > schema.get("maxItems", len(value)):
            raise BadArguments(f"{where} has {len(value)} items; at most {schema['maxItems']} are taken")
        items = schema.get("items")
        return [self.checked(item, items, f"{where}[{at}]") for at, item in enumerate(value)] if items else value


def _unknown_parameter(name: str, known: Mapping[str, Any], where: str) -> str:
    near = close_names(name, known, most=1)
    hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(known) or 'none'}"
    return f"unknown parameter {_path(where, name[:60])} ({hint})"


def _as_kind(value: Any, kinds: tuple[str, ...], where: str, *, converts: bool) -> Any:
    if any(_is(value, kind) for kind in kinds):
        return value
    if converts and isinstance(value, float) and value.is_integer() and "integer" in kinds:
        return int(value)
    if converts and isinstance(value, str):
        for kind in kinds:
            if kind in ("integer", "number", "boolean", "array", "object"):
                try:
                    meant = json.loads(value)
                except (ValueError, RecursionError):
                    continue
                if _is(meant, kind):
                    return meant
    raise BadArguments(f"{where} must be {' or '.join(kinds)}, not {_kind(value)} ({_shown(value)})")


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, _TYPES.get(kind, (object,)))


def _check_text(value: str, schema: Mapping[str, Any], where: str) -> None:
    if len(value) < schema.get("minLength", 0):
        raise BadArguments(f"{where} must not be empty")
    if len(value) > schema.get("maxLength", len(value)):
        raise BadArguments(f"{where} has {len(value):,} characters; at most {schema['maxLength']:,} are taken")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise BadArguments(f"{where} holds half a character (a lone surrogate)") from None


def _check_range(value: float, schema: Mapping[str, Any], where: str) -> None:
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and value < low:
        raise BadArguments(f"{where} must be at least {low}, not {value}")
    if high is not None and value > high:
        raise BadArguments(f"{where} must be at most {high}, not {value}")


def _path(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    return next((kind for kind, types in _TYPES.items() if isinstance(value, types)), type(value).__name__)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:60] + "…"
