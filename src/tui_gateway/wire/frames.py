"""The frames of the protocol: JSON-RPC 2.0 requests and responses, and events as notifications of the method `event`.

One JSON object per line (stdio) or text message (WebSocket), UTF-8, with as few escapes as possible.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Frame = dict[str, Any]
Params = Mapping[str, Any]
Result = dict[str, Any]

UNPARSABLE, INVALID, UNKNOWN_METHOD, BAD_PARAMS, CRASH, FAILED = -32700, -32600, -32601, -32602, -32603, -32000
NO_SESSION, UNKNOWN_KEY, BAD_VALUE = 4001, 4002, 4004
NO_TARGET, UNKNOWN_SESSION, EMPTY, BUSY = 4006, 4007, 4008, 4009
NO_COMMAND, NOT_HERE, NO_TITLE, BAD_TITLE, LIVE = 4011, 4018, 4021, 4022, 4023
TOO_MANY, UNAVAILABLE, FAILED_RESUME, AGENT_FAILED = 4090, 5001, 5000, 5032


class RpcError(Exception):
    """A request that is answered with an error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


@dataclass(frozen=True, slots=True)
class RpcRequest:
    id: Any
    method: str
    params: Params


def whole(params: Params, name: str, default: int, *, most: int) -> int:
    """A number of a request as an integer of at least 1; JSON allows fractions and any size."""
    given = params.get(name)
    return default if not given else int(min(max(1, given), most))


def response(rid: Any, result: Result) -> Frame:
    return {"jsonrpc": "2.0", "id": rid, "result": result}


def failure(rid: Any, code: int, message: str) -> Frame:
    return {"jsonrpc": "2.0", "id": rid, "error": {"code": code, "message": message}}


def event(kind: str, sid: str | None, payload: Mapping[str, Any] | None = None) -> Frame:
    params: Frame = {"type": kind}
    if sid:
        params["session_id"] = sid
    if payload is not None:
        params["payload"] = dict(payload)
    return {"jsonrpc": "2.0", "method": "event", "params": params}


def encode(frame: Mapping[str, Any]) -> str:
    """One line. A value that is not JSON (a plug-in's object in a tool's arguments) is written as its text."""
    try:
        text = json.dumps(frame, ensure_ascii=False, separators=(",", ":"), default=str, allow_nan=False)
    except ValueError:  # NaN and Infinity: Python reads and writes them, JSON does not have them
        text = json.dumps(_numbers(frame), ensure_ascii=False, separators=(",", ":"), default=str)
    # A lone surrogate, which a client may send as an escape, cannot be encoded as UTF-8.
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _numbers(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _numbers(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_numbers(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def parse(text: str | bytes) -> Any:
    try:
        return json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:  # invalid UTF-8 is a ValueError, too
        raise RpcError(UNPARSABLE, "this line is not JSON") from error


def request(given: Any) -> RpcRequest:
    """Raises `RpcError` when it is not a valid request."""
    if not isinstance(given, dict):
        raise RpcError(INVALID, "a request must be an object")
    name = given.get("method")
    if not isinstance(name, str) or not name:
        raise RpcError(INVALID, "a request must name its method")
    params = given.get("params")
    if params is None:
        params = {}
    if not isinstance(params, dict):
        raise RpcError(BAD_PARAMS, "params must be an object")
    return RpcRequest(given.get("id"), name, params)
