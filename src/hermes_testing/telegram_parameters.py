"""What a request carries: names and strings, whichever of Telegram's ways they came, and files.

A query string, a form, `multipart/form-data` and JSON mean the same here as there: numbers and booleans become their
text, lists and objects their JSON, and unknown names are ignored.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

from hermes_testing.telegram_answers import Json, bad_request

_DISPOSITION = re.compile(r'(?P<name>\w+\*?)="(?P<value>(?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True)
class Upload:
    name: str
    content: bytes
    mime: str = "application/octet-stream"


@dataclass(frozen=True, slots=True)
class Parameters:
    values: dict[str, str] = field(default_factory=dict)
    files: dict[str, Upload] = field(default_factory=dict)

    def text(self, name: str) -> str:
        return self.values.get(name, "")

    def integer(self, name: str, default: int = 0) -> int:
        """Telegram takes what is no number for the default."""
        raw = self.values.get(name, "").strip()
        return int(raw) if re.fullmatch(r"[+-]?[0-9]{1,18}", raw) else default

    def between(self, name: str, default: int, low: int, high: int) -> int:
        """Too small or too large is no error: the nearest allowed value counts."""
        return min(max(self.integer(name, default), low), high)

    def flag(self, name: str) -> bool:
        return self.values.get(name, "").strip().lower() in ("true", "yes", "1")

    def parsed(self, name: str, what: str) -> Any:
        """A value that is JSON; None without one."""
        if not (raw := self.values.get(name, "")):
            return None
        try:
            return json.loads(raw)
        except ValueError:
            raise bad_request(f"can't parse {what} JSON object") from None


def read(query: str, content_type: str, body: bytes) -> Parameters:
    """Raises `BotApiError` for a body that cannot be read."""
    values = dict(parse_qsl(query, keep_blank_values=True))
    files: dict[str, Upload] = {}
    kind, _semicolon, rest = content_type.partition(";")
    match kind.strip().lower():
        case "application/json" if body:
            values |= _from_json(body)
        case "application/x-www-form-urlencoded":
            values |= dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))
        case "multipart/form-data":
            more, files = _from_multipart(rest, body)
            values |= more
    return Parameters(values, files)


def _from_json(body: bytes) -> dict[str, str]:
    try:
        raw = json.loads(body)
    except ValueError:
        raise bad_request("can't parse JSON object") from None
    if not isinstance(raw, dict):
        raise bad_request("JSON object expected")
    return {name: text for name, value in raw.items() if (text := _as_text(value)) is not None}


def _as_text(value: object) -> str | None:
    if value is None:
        return None
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _from_multipart(rest: str, body: bytes) -> tuple[dict[str, str], dict[str, Upload]]:
    boundary = re.search(r'boundary="?([^";]+)"?', rest)
    if boundary is None:
        raise bad_request("boundary field not found")
    values: dict[str, str] = {}
    files: dict[str, Upload] = {}
    mark = b"--" + boundary[1].encode("latin-1")
    # The first part needs no line break before its mark; with one in front, all marks look alike.
    for part in (b"\r\n" + body).split(b"\r\n" + mark)[1:]:
        if part.startswith(b"--"):
            break
        head, _blank, content = part.partition(b"\r\n\r\n")
        headers = _headers(head)
        facts = {
            found["name"]: found["value"] for found in _DISPOSITION.finditer(headers.get("content-disposition", ""))
        }
        if "filename" in facts:
            mime = headers.get("content-type", "application/octet-stream")
            files[facts.get("name", "")] = Upload(facts["filename"], content, mime)
        elif "name" in facts:
            values[facts["name"]] = content.decode("utf-8", "replace")
    return values, files


def _headers(head: bytes) -> dict[str, str]:
    lines = head.decode("utf-8", "replace").split("\r\n")
    pairs = (line.partition(":") for line in lines if ":" in line)
    return {name.strip().lower(): value.strip() for name, _colon, value in pairs}


def keyboard(parameters: Parameters) -> list[list[Json]] | None:
    """The rows of an inline keyboard in `reply_markup`; other markups are accepted and ignored."""
    markup = parameters.parsed("reply_markup", "reply keyboard markup")
    if markup is None:
        return None
    if not isinstance(markup, dict):
        raise bad_request("object expected as reply markup")
    if "inline_keyboard" not in markup:
        return None
    rows = markup["inline_keyboard"]
    if not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
        raise bad_request('field "inline_keyboard" must be of type Array')
    checked = [[_button(button) for button in row] for row in rows if row]
    if sum(len(row) for row in checked) > 100:
        raise bad_request("reply markup is too long")
    return checked


def _button(raw: object) -> Json:
    if not isinstance(raw, dict):
        raise bad_request("can't parse inline keyboard button: expected an Object")
    text = raw.get("text")
    if not isinstance(text, str):
        raise bad_request("can't parse inline keyboard button: can't find field \"text\"")
    if not text.strip():
        raise bad_request("inline keyboard button text is empty")
    if isinstance(data := raw.get("callback_data"), str):
        if not 1 <= len(data.encode()) <= 64:
            raise bad_request("BUTTON_DATA_INVALID")
        return {"text": text, "callback_data": data}
    if isinstance(url := raw.get("url"), str):
        if not re.match(r"(?:https?|tg)://\S+$", url) and "." not in url:
            raise bad_request(f"inline keyboard button URL '{url}' is invalid: Wrong HTTP URL")
        return {"text": text, "url": url}
    raise bad_request("can't parse inline keyboard button: Text buttons are unallowed in the inline keyboard")
