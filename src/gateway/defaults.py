"""Attributes with a default of their own: made when they are first looked at, so an object that was never initialised
still has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar, overload

T = TypeVar("T")


class Lazy(Generic[T]):
    """`seen: set[str] = Lazy(set)` on a class: each instance gets its own at first need, and may be given another."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Lazy[T]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> T | Lazy[T]:
        if instance is None:
            return self
        # Not a data descriptor: from now on the instance's own attribute is found first.
        made: T = vars(instance).setdefault(self._name, self._make())
        return made
