"""What a method and an event of the protocol are, as data: requests are checked by it, the document is made from it.

The tables are in `methods` and `events`. Types are words: `text`, `number`, `flag`, `list`, `object`, `any`. A `?`
behind a name in a result or payload: it may be missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from tui_gateway.wire import frames
from tui_gateway.wire.frames import Params, RpcError

Kind = Literal["text", "number", "flag", "list", "object", "any"]
_TYPES: dict[Kind, tuple[type, ...]] = {
    "text": (str,), "number": (int, float), "flag": (bool,), "list": (list,), "object": (dict,), "any": (object,),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class MethodParam:
    name: str
    kind: Kind
    about: str = ""
    required: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RpcMethod:
    about: str
    params: tuple[MethodParam, ...] = ()
    result: str
    errors: tuple[int, ...] = ()
    pooled: bool = False
    """It may take its time: it is answered out of order, from a thread of its own."""

    def check(self, given: Params) -> None:
        for param in self.params:
            value = given.get(param.name)
            if value is None:
                continue  # what is missing has its own error, which names what is missing
            wrong = isinstance(value, bool) and param.kind == "number"
            if wrong or not isinstance(value, _TYPES[param.kind]):
                raise RpcError(frames.BAD_PARAMS, f"{param.name} must be a {param.kind}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RpcEvent:
    about: str
    payload: str = ""
    fields: str = ""
    """Names of the payload; a `?` behind one that may be missing."""

    def fits(self, payload: dict[str, Any] | None) -> bool:
        names, fields = set(payload or ()), self.fields.split(", ") if self.fields else []
        known = {name.rstrip("?") for name in fields}
        return names <= known and {name for name in fields if not name.endswith("?")} <= names
