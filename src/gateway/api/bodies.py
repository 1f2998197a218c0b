"""Reads and checks request bodies. Every error names the field and what is wrong with it.

A request cannot name a path, a query or a role: names are short and plain, pictures come inside the request and are
never fetched from an address.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from starlette.requests import ClientDisconnect, Request

from gateway.api.openai_wire import ApiError

SESSION_HEADER, IDEMPOTENCY_HEADER = "x-hermes-session-id", "idempotency-key"
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_:@+-]|\.(?!\.)){0,127}")
_KEY = re.compile(r"[\x21-\x7e]{1,200}")
_PICTURE = re.compile(r"data:image/(png|jpeg|gif|webp);base64,([A-Za-z0-9+/=\s]*)", re.ASCII)
_ENDINGS = {"png": ".png", "jpeg": ".jpg", "gif": ".gif", "webp": ".webp"}
_TEXT_TYPES, _PICTURE_TYPES = ("text", "input_text"), ("image_url", "input_image")
_MOST_PICTURES = 100
"""The most pictures in one message: each is stored and checked before its turn begins."""
_LARGE = 256 * 1024
_EXPECTED = {
    "messages", "model", "stream", "stream_options", "n", "response_format", "tool_choice", "function_call", "user",
    "metadata", "store",
}  # fmt: skip
"""Fields that are read, or that ask for nothing in the answer."""
_FIELD = re.compile(r"[A-Za-z0-9_]{1,64}")
_MOST_IGNORED = 20
_SYSTEM, _LEFT_OUT = ("system", "developer"), ("tool", "function")


class RequestPicture(NamedTuple):
    content: bytes
    ending: str


class RequestMessage(NamedTuple):
    """One message of a request."""

    role: str
    text: str
    pictures: tuple[RequestPicture, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request for an answer."""

    said: RequestMessage
    """The person's last message, which is new."""
    earlier: tuple[RequestMessage, ...] = ()
    """The earlier messages of user and assistant."""
    system: str | None = None
    stream: bool = False
    with_usage: bool = False
    ignored: tuple[str, ...] = ()
    """Fields of the request that have no effect here; the answer names them."""


# -- reading -------------------------------------------------------------------------------------------------------


async def raw_body(request: Request) -> bytes:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ApiError(415, "the body must be JSON: Content-Type: application/json", code="wrong_content_type")
    try:
        return await request.body()
    except ClientDisconnect as error:
        raise ApiError(400, "the body did not arrive", code="cut_off") from error


def parsed(raw: bytes) -> dict[str, Any]:
    try:
        found = json.loads(raw)
    except RecursionError as error:
        raise ApiError(400, "the body is nested too deeply", code="invalid_json") from error
    except ValueError as error:  # broken JSON, or not UTF-8
        where = f" (line {error.lineno}, column {error.colno})" if isinstance(error, json.JSONDecodeError) else ""
        raise ApiError(400, f"the body is not valid JSON{where}", code="invalid_json") from error
    if not isinstance(found, dict):
        raise ApiError(400, "the body must be a JSON object", code="invalid_json")
    return found


async def read(raw: bytes, make: Callable[[Mapping[str, Any]], Asked]) -> Asked:
    """Read a body. A large one is read in a thread: the pictures of a long history take a while to decode."""
    if len(raw) < _LARGE:
        return make(parsed(raw))
    return await asyncio.to_thread(lambda: make(parsed(raw)))


async def body_of(request: Request) -> dict[str, Any]:
    """The JSON object in a body; an empty body is an empty object."""
    if request.headers.get("content-length") == "0" or "content-type" not in request.headers:
        return {}
    return parsed(await raw_body(request) or b"{}")


def session_name(request: Request) -> str | None:
    """Check the client's name for a conversation."""
    given = request.headers.get(SESSION_HEADER)
    return None if given is None else checked_name(given, param="X-Hermes-Session-Id")


def checked_name(name: object, *, param: str) -> str:
    if isinstance(name, str) and _NAME.fullmatch(name):
        return name
    rule = "1 to 128 letters, digits or . _ : @ + -, beginning with a letter or digit, without two dots in a row"
    raise ApiError(400, f"{param} must be {rule}", code="invalid_session_id", param=param)


def idempotency_key(request: Request) -> str | None:
    given = request.headers.get(IDEMPOTENCY_HEADER)
    if given is None or _KEY.fullmatch(given):
        return given
    raise ApiError(400, "Idempotency-Key must be 1 to 200 visible ASCII characters", code="invalid_idempotency_key",
                   param="Idempotency-Key")  # fmt: skip


# -- chat ----------------------------------------------------------------------------------------------------------


def asked(body: Mapping[str, Any]) -> Asked:
    """Read a body of `/v1/chat/completions`. Fields without effect are named in the answer; wrong types are refused."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise _wrong("messages", "must be a list with at least one message")
    system, spoken = [], []
    for at, message in enumerate(messages):
        said = _said(message, f"messages[{at}]")
        if said.role in _SYSTEM:
            system.append(said.text)
        elif said.role not in _LEFT_OUT and (said.text or said.pictures):
            spoken.append(said)
    if not spoken or spoken[-1].role != "user":
        raise _wrong("messages", "must end with a message of the user")
    options = body.get("stream_options") or {}
    if not isinstance(options, dict):
        raise _wrong("stream_options", "must be an object")
    if (body.get("n") or 1) != 1:
        raise _wrong("n", "must be 1: there is one answer")
    return Asked(
        said=spoken[-1], earlier=tuple(spoken[:-1]), system="\n\n".join(filter(None, system)) if system else None,
        stream=flag(body, "stream"), with_usage=options.get("include_usage") is True, ignored=_ignored(body),
    )  # fmt: skip


def _ignored(body: Mapping[str, Any]) -> tuple[str, ...]:
    """The fields that have no effect, such as `tools` and `stop`. Raises if the client requires a call or a format."""
    form = body.get("response_format")
    if form is not None and not (isinstance(form, Mapping) and form.get("type") == "text"):
        raise _wrong("response_format", 'must be left out, or {"type": "text"}: ask for JSON in words')
    for name in ("tool_choice", "function_call"):
        if body.get(name) not in (None, "auto", "none"):
            raise _wrong(name, "must be auto or none: the agent calls its own tools, never a client's")
    wanted = (name for name, value in body.items() if value is not False and value not in (None, "", [], {}))
    return tuple(name for name in wanted if name not in _EXPECTED and _FIELD.fullmatch(name))[:_MOST_IGNORED]


def one_message(body: Mapping[str, Any]) -> Asked:
    """Read a body of `/api/sessions/{id}/chat`: `message` (or `input`), a text or parts."""
    name = "message" if "message" in body else "input"
    if name not in body:
        raise _wrong("message", "is missing")
    said = _content(body[name], name)
    if not (said.text or said.pictures):
        raise _wrong(name, "must not be empty")
    instructions = body.get("instructions")
    if instructions is not None and not isinstance(instructions, str):
        raise _wrong("instructions", "must be a text")
    return Asked(said=said, system=instructions, with_usage=True)


def flag(body: Mapping[str, Any], name: str) -> bool:
    value = body.get(name)
    if value is None or isinstance(value, bool):
        return bool(value)
    raise _wrong(name, "must be true or false")


def text_field(body: Mapping[str, Any], name: str) -> str | None:
    value = body.get(name)
    if value is None or isinstance(value, str):
        return value
    raise _wrong(name, "must be a text")


def whole(request: Request, name: str, default: int, *, least: int, most: int) -> int:
    """Read a number in the query string."""
    given = request.query_params.get(name)
    if given is None:
        return default
    if given.isascii() and given.isdecimal() and len(given) < 10 and least <= int(given) <= most:
        return int(given)
    raise _wrong(name, f"must be a number from {least} to {most}")


def _said(message: object, where: str) -> RequestMessage:
    if not isinstance(message, dict):
        raise _wrong(where, "must be an object with role and content")
    role = message.get("role")
    if role not in (*_SYSTEM, "user", "assistant", *_LEFT_OUT):
        raise _wrong(f"{where}.role", "must be system, developer, user, assistant or tool")
    content = message.get("content")
    if content is None and role not in ("assistant", *_LEFT_OUT):
        raise _wrong(f"{where}.content", "is missing")
    said = _content("" if content is None else content, f"{where}.content")
    return said._replace(role=str(role))


def _content(content: object, where: str) -> RequestMessage:
    if isinstance(content, str):
        return RequestMessage("user", content)
    if not isinstance(content, Sequence) or isinstance(content, bytes):
        raise _wrong(where, "must be a text or a list of parts")
    texts: list[str] = []
    pictures: list[RequestPicture] = []
    for at, part in enumerate(content):
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind in _TEXT_TYPES and isinstance(text := part.get("text"), str):
            texts.append(text)
        elif kind in _PICTURE_TYPES and len(pictures) == _MOST_PICTURES:
            raise _wrong(where, f"must not hold more than {_MOST_PICTURES} pictures")
        elif kind in _PICTURE_TYPES:
            pictures.append(_picture(part.get("image_url"), f"{where}[{at}].image_url"))
        else:
            raise _wrong(f"{where}[{at}]", "must be a text or an image_url part")
    return RequestMessage("user", "\n\n".join(texts), tuple(pictures))


def _picture(given: object, where: str) -> RequestPicture:
    url = given.get("url") if isinstance(given, Mapping) else given
    found = _PICTURE.fullmatch(url) if isinstance(url, str) else None
    if found is None:
        hint = "must be a data: URL of a png, jpeg, gif or webp picture in base64; addresses are not fetched"
        raise _wrong(where, hint)
    try:
        content = base64.b64decode(found[2])
    except (binascii.Error, ValueError) as error:
        raise _wrong(where, "is not valid base64") from error
    return RequestPicture(content, _ENDINGS[found[1]])


def _wrong(param: str, problem: str) -> ApiError:
    return ApiError(400, f"{param} {problem}", code="invalid_value", param=param)
