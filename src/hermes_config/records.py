"""`@record`: a frozen, slotted dataclass that is cheap to import.

`dataclass(frozen=True, slots=True)` writes and compiles six functions for every class, about half a millisecond each
time, and the module itself brings in `inspect`, whose import takes a short command a tenth of its time. The modules of
one turn hold some sixty such classes and build few of them. Here comparing, showing and refusing changes are the same
few functions for all classes, and a constructor is compiled when the first instance is made. To the standard library a
record is a dataclass all the same (`dataclasses.replace`, `asdict`, `match`): what it looks at is made when it looks.

Not supported, because nobody needs it: `order`, `InitVar`, `__post_init__`, a record that inherits from a record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, TypeVar, cast, dataclass_transform, overload

T = TypeVar("T")


class _Missing:
    """No default."""


class Field:
    """One field of a record: its name, and what `field` said of it."""

    __slots__ = ("compare", "default", "default_factory", "kw_only", "metadata", "name", "repr")

    def __init__(self, default: Any, factory: Any, shown: bool, compare: bool, metadata: Mapping[str, Any]) -> None:
        self.name = ""
        self.kw_only = False
        self.default = default
        self.default_factory = factory
        self.repr = shown
        self.compare = compare
        self.metadata = metadata


@overload
def field(*, default: T, repr: bool = True, compare: bool = True, metadata: Mapping[str, Any] = ...) -> T: ...


@overload
def field(
    *, default_factory: Callable[[], T], repr: bool = True, compare: bool = True, metadata: Mapping[str, Any] = ...
) -> T: ...


@overload
def field(*, repr: bool = True, compare: bool = True, metadata: Mapping[str, Any] = ...) -> Any: ...


def field(
    *,
    default: Any = _Missing,
    default_factory: Any = _Missing,
    repr: bool = True,  # noqa: A002  # the name it has in the standard library
    compare: bool = True,
    metadata: Mapping[str, Any] = {},  # it is only ever read
) -> Any:
    """As `dataclasses.field`: a default made anew for each record, or a field that is not shown or not compared."""
    return Field(default, default_factory, repr, compare, metadata)


def fields(of: Any) -> tuple[Field, ...]:
    """The fields of a record, or of its class, in their order."""
    listed: tuple[Field, ...] = of.__record_fields__
    return listed


def replace(one: T, **changes: Any) -> T:
    """The record with some of its fields changed."""
    return type(one)(**{row.name: getattr(one, row.name) for row in fields(one)} | changes)


@overload
def record(cls: type[T], /) -> type[T]: ...


@overload
def record(*, kw_only: bool = False) -> Callable[[type[T]], type[T]]: ...


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: type[T] | None = None, /, *, kw_only: bool = False) -> type[T] | Callable[[type[T]], type[T]]:
    """Make a record of the class; what the class defines itself (`__repr__`, `__eq__`) stays."""

    def made(plain: type[T]) -> type[T]:
        inside = {name: value for name, value in vars(plain).items() if name not in ("__dict__", "__weakref__")}
        listed = tuple(
            _field(name, inside.pop(name, _Missing), kw_only)
            for name, kind in plain.__annotations__.items()
            if not str(kind).startswith("ClassVar")
        )
        inside["__slots__"] = tuple(one.name for one in listed)
        inside["__match_args__"] = () if kw_only else inside["__slots__"]
        inside["__record_fields__"] = listed
        inside["__dataclass_fields__"] = _StandardFields()
        slotted = cast(Any, type(plain))(plain.__name__, plain.__bases__, {**_SHARED, **inside})
        slotted.__qualname__ = plain.__qualname__
        return cast(type[T], slotted)

    return made if cls is None else made(cls)


def _field(name: str, said: Any, kw_only: bool) -> Field:
    one = said if isinstance(said, Field) else Field(said, _Missing, True, True, {})
    if isinstance(one.default, (list, dict, set)) or type(one.default).__module__ == "dataclasses":
        raise TypeError(f"the default of {name} would be shared; use records.field(default_factory=…)")
    one.name, one.kw_only = name, kw_only
    return one


class _StandardFields:
    """`__dataclass_fields__` of a record: what the functions of `dataclasses` go by, made when one of them asks."""

    def __get__(self, _instance: object, owner: type[Any]) -> dict[str, Any]:
        import dataclasses

        rows = []
        for one in fields(owner):
            default: Any = dataclasses.MISSING if one.default is _Missing else one.default
            factory: Any = dataclasses.MISSING if one.default_factory is _Missing else one.default_factory
            standard = dataclasses.field(
                default=default, default_factory=factory, repr=one.repr, compare=one.compare, kw_only=one.kw_only,
                metadata=one.metadata,
            )  # fmt: skip
            rows.append((one.name, owner.__annotations__[one.name], standard))
        alike = dataclasses.make_dataclass(owner.__name__, rows, init=False, repr=False, eq=False)
        made: dict[str, Any] = alike.__dataclass_fields__  # type: ignore[attr-defined]
        owner.__dataclass_fields__ = made
        return made


def _first_built(self: Any, *args: Any, **values: Any) -> None:
    """The constructor until there is one: compiles it, and from then on is out of the way."""
    cls = type(self)
    cls.__init__ = _constructor(cls)
    cls.__init__(self, *args, **values)


def _constructor(cls: type[Any]) -> Callable[..., None]:
    listed = fields(cls)
    # A slot's own way to be set, which is quicker than looking it up by its name each time.
    known: dict[str, Any] = {f"_put_{one.name}": getattr(cls, one.name).__set__ for one in listed}
    known["_MISSING"] = _Missing
    ordered = [f for f in listed if not f.kw_only] + [f for f in listed if f.kw_only]
    parameters = ["self"]
    for at, one in enumerate(ordered):
        if one.kw_only and (at == 0 or not ordered[at - 1].kw_only):
            parameters.append("*")
        parameters.append(_parameter(one, known))
    body = [f" _put_{one.name}(self, {_value(one)})" for one in ordered] or [" pass"]
    exec("\n".join([f"def __init__({', '.join(parameters)}):", *body]), known)
    made: Callable[..., None] = known["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made


def _parameter(one: Field, known: dict[str, Any]) -> str:
    """How the field stands in the constructor's signature; its default goes into the function's globals."""
    if one.default is not _Missing:
        known[f"_default_{one.name}"] = one.default
        return f"{one.name}=_default_{one.name}"
    if one.default_factory is not _Missing:
        known[f"_make_{one.name}"] = one.default_factory
        return f"{one.name}=_MISSING"
    return one.name


def _value(one: Field) -> str:
    if one.default_factory is _Missing:
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
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_delete(_self: Any, name: str) -> None:
    from dataclasses import FrozenInstanceError

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
