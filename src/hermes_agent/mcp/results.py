"""Makes a server's texts safe and short: descriptions, schemas, results, questions.

Strangers write a server's texts. Control characters and invisible characters are removed from descriptions, long ones
are cut, and those that read like orders to the model are left out. Results keep their text, pictures and structured
data.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hermes_agent.prompt import injection_scan
from hermes_agent.tools import output
from hermes_agent.tools.base import ToolImage, ToolResult

if TYPE_CHECKING:
    from hermes_config.limits import Limits

_HIDDEN = re.compile("[\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]")
_DEEPEST = 32
_LEFT_OUT = "(the server's description is left out: {})"
_SIMPLE = ("string", "number", "integer", "boolean")
_MOST_LISTED = 100


def plain(text: str, most: int) -> str:
    """A server's words in one line of at most `most` characters; left out if they read like orders to the model."""
    why = injection_scan.suspicion(text)
    if why:
        return _LEFT_OUT.format(why)
    said = " ".join(_HIDDEN.sub("", output.clean(text)).split())
    return said if len(said) <= most else f"{said[: most - 1]}…"


def plain_record(record: Mapping[str, Any], limits: Limits) -> dict[str, Any]:
    """A tool of a server, with a safe description and a bounded schema."""
    schema: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": True}
    said = record["schema"]
    if isinstance(said, Mapping) and len(json.dumps(said)) <= limits.mcp_schema_bytes:
        schema = _plain_schema(said, limits.mcp_description_chars)
        if not isinstance(schema.get("properties", {}), Mapping):
            schema["properties"] = {}
    about = plain(str(record["description"] or record["name"]), limits.mcp_description_chars)
    return {"name": str(record["name"])[:200], "description": about, "schema": schema}


def _plain_schema(schema: Any, most: int, depth: int = 0) -> Any:
    if depth > _DEEPEST:
        return {}
    if isinstance(schema, Mapping):
        return {
            _HIDDEN.sub("", output.clean(str(key)))[:200]: plain(value, most)
            if key in ("description", "title") and isinstance(value, str)
            else _plain_schema(value, most, depth + 1)
            for key, value in schema.items()
        }
    if isinstance(schema, str):
        return _HIDDEN.sub("", output.clean(schema))[:most]
    if isinstance(schema, Sequence):
        return [_plain_schema(one, most, depth + 1) for one in schema]
    return schema


# -- results -----------------------------------------------------------------------------------------------------------


def of_call(server: str, result: Any) -> ToolResult:
    """The result of a tool's call. Structured data is left out if the text says it already, as servers should."""
    texts, images = _parts(result.content)
    data = None if any(texts) else result.structured_content
    return _made(server, texts, images, data=data, is_error=bool(result.is_error))


def of_resource(server: str, result: Any) -> ToolResult:
    texts: list[str] = []
    images: list[ToolImage] = []
    for one in result.contents:
        _embedded(one, texts, images)
    return _made(server, texts, images)


def of_prompt(server: str, result: Any) -> ToolResult:
    texts: list[str] = []
    images: list[ToolImage] = []
    for message in result.messages:
        said, seen = _parts([message.content])
        texts.append(f"{message.role}: {' '.join(said)}")
        images += seen
    return _made(server, texts, images)


def of_error(server: str, error: Exception) -> ToolResult:
    """The result of a call that the server refused, or answered wrongly."""
    return _made(server, [f"The server answers with an error: {plain(str(error), 1_000)}"], [], is_error=True)


def listed(server: str, rows: Sequence[tuple[str, str]], what: str, limits: Limits) -> ToolResult:
    """A list of a server's resources or prompts."""
    most = limits.mcp_description_chars
    lines = [f"{name[:500]}: {plain(about, most // 4)}" if about else name[:500] for name, about in rows[:_MOST_LISTED]]
    more = len(rows) - len(lines)
    lines += [f"… and {more:,} more"] if more > 0 else []
    return _made(server, lines or [f"It has no {what}."], [])


def _parts(content: Sequence[Any]) -> tuple[list[str], list[ToolImage]]:
    texts: list[str] = []
    images: list[ToolImage] = []
    for block in content:
        if block.type == "text":
            texts.append(block.text)
        elif block.type == "image":
            _image(block.data, block.mime_type, texts, images)
        elif block.type == "resource":
            _embedded(block.resource, texts, images)
        elif block.type == "resource_link":
            texts.append(f"[resource {block.uri}{f': {block.name}' if block.name else ''}]")
        else:
            texts.append(f"[{block.type}, {getattr(block, 'mime_type', '') or 'unknown kind'}; not shown]")
    return texts, images


def _embedded(resource: Any, texts: list[str], images: list[ToolImage]) -> None:
    if (text := getattr(resource, "text", None)) is not None:
        texts.append(text)
    elif (resource.mime_type or "").startswith("image/"):
        _image(resource.blob, resource.mime_type, texts, images)
    else:
        texts.append(f"[{resource.uri}: {resource.mime_type or 'binary data'}, {len(resource.blob) * 3 // 4:,} bytes]")


def _image(data: str, mime: str, texts: list[str], images: list[ToolImage]) -> None:
    try:
        images.append(ToolImage(base64.b64decode(data, validate=True), mime))
    except (binascii.Error, ValueError):
        texts.append("[a picture that cannot be decoded]")


def _made(
    server: str, texts: Sequence[str], images: Sequence[ToolImage], *, data: Any = None, is_error: bool = False
) -> ToolResult:
    content = "\n".join(text for text in texts if text)
    if not content and data is None:
        content = f"[{len(images)} pictures]" if images else "The server gave no content."
    return ToolResult(content, is_error=is_error, data=data, images=tuple(images), source=f"MCP server {server}")


# -- a server's question to the person ---------------------------------------------------------------------------------


def is_simple_form(fields: Any, *, most: int) -> bool:
    """Whether a person can answer a server's form field by field."""
    return (
        isinstance(fields, Mapping)
        and len(fields) <= most
        and all(
            isinstance(one, Mapping) and one.get("type") in _SIMPLE and isinstance(one.get("enum") or [], list)
            for one in fields.values()
        )
    )


def question(server: str, message: str, name: str, field: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    """The words for one field of a server's form, and the choices."""
    about = plain(str(field.get("description") or field.get("title") or name), 300)
    asked = f"The MCP server {server} asks: {plain(message, 500)}{f' ({about})' if about else ''}"
    choices = field.get("enum") or (("yes", "no") if field.get("type") == "boolean" else ())
    return asked, tuple(str(one)[:80] for one in choices[:_MOST_LISTED])


def answer(field: Mapping[str, Any], said: str) -> str | int | float | bool | None:
    """The person's words as the field's type; None if they do not fit."""
    said, kind = said.strip(), field.get("type")
    if kind == "boolean":
        return {"yes": True, "y": True, "true": True, "no": False, "n": False, "false": False}.get(said.lower())
    if kind == "string":
        return said if not field.get("enum") or said in map(str, field["enum"]) else None
    try:
        number = int(said) if kind == "integer" else float(said)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
