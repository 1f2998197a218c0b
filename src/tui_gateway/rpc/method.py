"""A method of the protocol: its parameters, its result, and the function that answers it.

`@method` adds a function to the table; its docstring is the method's description. The table checks requests, and
docs/contributors/rpc.md is generated from it. Types are words: `text`, `number`, `flag`, `list`, `any`. A `?` after a
name in a result: it may be missing.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tui_gateway.session.services import RpcCall
from tui_gateway.wire import frames
from tui_gateway.wire.frames import Params, Result, RpcError

Handler = Callable[[RpcCall], Result]
Kind = Literal["text", "number", "flag", "list", "any"]
_TYPES: dict[Kind, tuple[type, ...]] = {
    "text": (str,), "number": (int, float), "flag": (bool,), "list": (list,), "any": (object,),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class MethodParam:
    name: str
    kind: Kind
    about: str = ""
    required: bool = False


SID = MethodParam("session_id", "text", "the live id that session.create or session.resume gave", required=True)
ANY_SID = MethodParam("session_id", "text")
COLS = MethodParam("cols", "number", "columns of the client's screen; 80")
DETAILS = MethodParam("details", "flag", "tool messages with the tool's output, as `text`")


@dataclass(frozen=True, slots=True)
class RpcMethod:
    handler: Handler
    params: tuple[MethodParam, ...]
    result: str
    errors: tuple[int, ...]
    pooled: bool
    """Whether it may be slow: then a separate thread answers it, out of order."""

    @property
    def about(self) -> str:
        return inspect.cleandoc(self.handler.__doc__ or "").replace("\n", " ")

    def check(self, given: Params) -> None:
        for param in self.params:
            value = given.get(param.name)
            if value is None:
                continue  # a missing parameter has its own error, which names it
            wrong = isinstance(value, bool) and param.kind == "number"
            if wrong or not isinstance(value, _TYPES[param.kind]):
                raise RpcError(frames.BAD_PARAMS, f"{param.name} must be a {param.kind}")


METHODS: dict[str, RpcMethod] = {}


def method(
    name: str, *params: MethodParam, result: str, errors: tuple[int, ...] = (), pooled: bool = False
) -> Callable[[Handler], Handler]:
    """Make the function below answer this method."""

    def add(handler: Handler) -> Handler:
        METHODS[name] = RpcMethod(handler, params, result, errors, pooled)
        return handler

    return add
