"""A record behaves as the frozen, slotted dataclass it stands for."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from dataclasses import FrozenInstanceError, asdict, dataclass, replace
from dataclasses import field as standard_field
from typing import Any

import pytest

from hermes_config import records
from hermes_config.records import field, record


@record
class Stop:
    """A stop on a line."""

    name: str
    zone: int = 1
    lines: list[str] = field(default_factory=list)
    key: str = field(default="", repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class PlainStop:
    """The same in the standard library's words."""

    name: str
    zone: int = 1
    lines: list[str] = standard_field(default_factory=list)
    key: str = standard_field(default="", repr=False, compare=False)


@record(kw_only=True)
class Ticket:
    price: int = 3
    zone: int


@record
class Pair:
    """Comparable by hash as well."""

    left: int
    right: str


@record
class Nothing:
    """A record without fields."""


@pytest.mark.parametrize("kind", [Stop, PlainStop])
def test_defaults_replace_and_asdict(kind: Any) -> None:
    first, second = kind("Harbour"), kind("Harbour", 2, ["4"])
    assert (first.zone, first.lines) == (1, [])
    assert first.lines is not kind("Mill").lines
    assert replace(first, zone=2, lines=["4"]) == second
    assert kind is PlainStop or records.replace(first, zone=2, lines=["4"]) == second
    assert asdict(second) == {"name": "Harbour", "zone": 2, "lines": ["4"], "key": ""}


@pytest.mark.parametrize("kind", [Stop, PlainStop])
def test_nothing_can_be_changed_or_added(kind: Any) -> None:
    stop = kind("Harbour")
    with pytest.raises(FrozenInstanceError):
        stop.zone = 2
    with pytest.raises(FrozenInstanceError):
        del stop.name
    # The standard library trips over its own `super()` here and says TypeError.
    with pytest.raises((FrozenInstanceError, TypeError)):
        stop.other = 1
    assert not hasattr(stop, "__dict__")


@pytest.mark.parametrize("kind", [Stop, PlainStop])
def test_what_is_shown_and_what_is_compared(kind: Any) -> None:
    assert repr(kind("Mill", key="secret")) == f"{kind.__name__}(name='Mill', zone=1, lines=[])"
    assert kind("Mill", key="a") == kind("Mill", key="b")
    assert kind("Mill") != kind("Harbour")
    assert kind("Mill") != "Mill"


@pytest.mark.parametrize("kind", [Stop, PlainStop])
@pytest.mark.parametrize(("args", "values"), [((), {}), (("a", 1, [], "", 5), {}), (("a",), {"colour": "red"})])
def test_a_wrong_call_is_refused_each_time(kind: Any, args: tuple[Any, ...], values: dict[str, Any]) -> None:
    for _ in range(2):
        with pytest.raises(TypeError, match=r"__init__\(\)"):
            kind(*args, **values)


def test_keywords_only_in_any_order() -> None:
    assert Ticket(zone=2) == Ticket(zone=2, price=3)
    with pytest.raises(TypeError):
        Ticket(3, 2)  # type: ignore[misc]


def test_equal_records_are_one_key() -> None:
    assert {Pair(1, "a"): "x"}[Pair(1, "a")] == "x"
    assert len({Pair(1, "a"), Pair(1, "b"), Pair(1, "a")}) == 2
    assert Nothing() == Nothing()
    match Pair(1, "a"):
        case Pair(left, right):
            assert (left, right) == (1, "a")


def test_copies_and_pickles() -> None:
    stop = Stop("Mill", 2, ["4", "7"])
    for again in (copy.copy(stop), copy.deepcopy(stop), pickle.loads(pickle.dumps(stop))):
        assert again == stop and again is not stop


def test_a_default_that_all_would_share_is_refused() -> None:
    shared: list[str] = []
    for default in (shared, standard_field(default_factory=list)):
        with pytest.raises(TypeError, match="would be shared"):
            record(type("Bad", (), {"__annotations__": {"lines": "list[str]"}, "lines": default}))


def test_records_do_without_the_import_they_save() -> None:
    """A short command reads the configuration and lists conversations; `inspect` alone would be a tenth of its time."""
    asked = "import sys, hermes_config.config, hermes_state.session_db; print('dataclasses' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
