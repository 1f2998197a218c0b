"""A request that reached a scripted model, byte for byte, with what tests ask of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class ScriptedRequest:
    method: str
    path: str
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes
    number: int = 0
    """From 0, in the order of arrival."""
    rejected: str | None = None
    """Why it was refused as invalid; None when it was accepted."""
    _json: Any = field(default=None, repr=False)

    @property
    def json(self) -> Any:
        """The body, parsed at first need. Raises `ValueError` when it is not JSON."""
        if self._json is None:
            self._json = json.loads(self.body)
        return self._json

    def keep(self, parsed: Any) -> None:
        """Spare the second parsing."""
        self._json = parsed

    @property
    def model(self) -> str:
        return str(self.json["model"])

    @property
    def messages(self) -> list[dict[str, Any]]:
        """As sent, in the wire's own form."""
        found: list[dict[str, Any]] = self.json["messages"]
        return found

    @property
    def tools(self) -> list[str]:
        """The names of the tools that are offered."""
        return [(tool.get("function") or tool)["name"] for tool in self.json.get("tools", ())]

    @property
    def system(self) -> str:
        """The system text, on either wire."""
        top = self.json.get("system")
        if top is not None:
            return text_of(top)
        return "\n".join(text_of(m["content"]) for m in self.messages if m["role"] in ("system", "developer"))

    @property
    def last_user_text(self) -> str:
        """What the person said last; tool results do not count."""
        for message in reversed(self.messages):
            if message["role"] == "user" and (text := text_of(message["content"])):
                return text
        return ""

    @property
    def results(self) -> dict[str, str]:
        """Tool results in the request: call id → text."""
        found: dict[str, str] = {}
        for message in self.messages:
            if message["role"] == "tool":
                found[message["tool_call_id"]] = text_of(message["content"])
            elif isinstance(message["content"], list):
                for block in message["content"]:
                    if block.get("type") == "tool_result":
                        found[block["tool_use_id"]] = text_of(block.get("content", ""))
        return found


def text_of(content: Any) -> str:
    """The words of a content: a string, or the text parts of a list."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "\n".join(part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str))


def saying(words: str) -> Callable[[ScriptedRequest], bool]:
    """A predicate for steps: the person's last message contains these words."""
    return lambda request: words in request.last_user_text


def in_system(words: str) -> Callable[[ScriptedRequest], bool]:
    """A predicate for steps: the system text contains these words (a title, a summary)."""
    return lambda request: words in request.system
