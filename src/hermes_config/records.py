"""`@record`: a frozen, slotted dataclass that is cheap to import.

`dataclass(frozen=True, slots=True)` writes and compiles six functions for every class, about half a millisecond each
time. The modules of one turn hold some sixty such classes and build few of them, so that was a fifth of the time from
the start of the process to the first word. Here the standard library does what is cheap (fields, defaults, slots: so
`replace`, `asdict` and `fields` work), comparing, showing and refusing changes are the same few functions for all
classes, and a constructor is compiled when the first instance is made.

Not supported, because nobody needs it: `order`, `InitVar`, `__post_init__`, a record that inherits from a record.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from operator import attrgetter
from typing import Any, TypeVar, dataclass_transform, overload

T = TypeVar("T")


@overload
def record(cls: type[T], /) -> type[T]: ...


@overload
def record(*, kw_only: bool = False) -> Callable[[type[T]], type[T]]: ...


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: type[T] | None = None, /, *, kw_only: bool = False) -> type[T] | Callable[[type[T]], type[T]]:
    """Make a record of the class; what the class defines itself (`__repr__`, `__eq__`) stays."""

    def made(plain: type[T]) -> type[T]:
        own = vars(plain)
        if plain.__doc__ is None:
            plain.__doc__ = plain.__name__  # else a signature is worked out to stand there
        slotted = dataclass(init=False, repr=False, eq=False, slots=True, kw_only=kw_only)(plain)
        for name, function in _SHARED.items():
            if name not in own:
                setattr(slotted, name, function)
        return slotted

    return made if cls is None else made(cls)


def _first_built(self: Any, *args: Any, **values: Any) -> None:
    """The constructor until there is one: compiles it, and from then on is out of the way."""
    cls = type(self)
    cls.__init__ = _constructor(cls)
    cls.__init__(self, *args, **values)


def _constructor(cls: type[Any]) -> Callable[..., None]:
    known: dict[str, Any] = {"_put": object.__setattr__, "_MISSING": MISSING}
    listed = fields(cls)
    ordered = [f for f in listed if not f.kw_only] + [f for f in listed if f.kw_only]
    parameters = ["self"]
    for at, one in enumerate(ordered):
        if one.kw_only and (at == 0 or not ordered[at - 1].kw_only):
            parameters.append("*")
        parameters.append(_parameter(one, known))
    body = [f" _put(self, {one.name!r}, {_value(one)})" for one in ordered] or [" pass"]
    exec("\n".join([f"def __init__({', '.join(parameters)}):", *body]), known)
    made: Callable[..., None] = known["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made


def _parameter(one: Field[Any], known: dict[str, Any]) -> str:
    """How the field stands in the constructor's signature; its default goes into the function's globals."""
    if one.default is not MISSING:
        known[f"_default_{one.name}"] = one.default
        return f"{one.name}=_default_{one.name}"
    if one.default_factory is not MISSING:
        known[f"_make_{one.name}"] = one.default_factory
        return f"{one.name}=_MISSING"
    return one.name


def _value(one: Field[Any]) -> str:
    if one.default_factory is MISSING:
        return one.name
    return f"_make_{one.name}() if {one.name} is _MISSING else {one.name}"


_keys: dict[type[Any], Callable[[Any], Any]] = {}


def _key(self: Any) -> Any:
    """What two records are compared by."""
    cls = type(self)
    found = _keys.get(cls)
    if found is None:
        names = [one.name for one in fields(cls) if one.compare]
        found = _keys[cls] = attrgetter(*names) if names else _nothing
    return found(self)


def _nothing(_self: Any) -> Any:
    return ()


def _equal(self: Any, other: object) -> Any:
    return _key(self) == _key(other) if type(other) is type(self) else NotImplemented


def _hash(self: Any) -> int:
    return hash(_key(self))


def _values(self: Any, names: list[str]) -> tuple[Any, ...]:
    if len(names) < 2:  # for a single name `attrgetter` gives the bare value
        return tuple(attrgetter(name)(self) for name in names)
    found: tuple[Any, ...] = attrgetter(*names)(self)
    return found


def _shown(self: Any) -> str:
    names = [one.name for one in fields(self) if one.repr]
    inside = ", ".join(f"{name}={value!r}" for name, value in zip(names, _values(self, names), strict=True))
    return f"{type(self).__qualname__}({inside})"


def _refuse_set(_self: Any, name: str, _value: Any) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_delete(_self: Any, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> tuple[Any, ...]:
    """For `copy` and `pickle`, whose own way would be to assign."""
    return _values(self, [one.name for one in fields(self)])


def _restore(self: Any, state: tuple[Any, ...]) -> None:
    for one, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, one.name, value)


_SHARED: dict[str, Callable[..., Any]] = {
    "__init__": _first_built,
    "__eq__": _equal,
    "__hash__": _hash,
    "__repr__": _shown,
    "__setattr__": _refuse_set,
    "__delattr__": _refuse_delete,
    "__getstate__": _state,
    "__setstate__": _restore,
}
