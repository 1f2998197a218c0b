"""What a scripted model can be told to do: one step answers one request.

    say("Hello ", "there")                              text, in these pieces
    say(calls=[call("terminal", {"command": "ls"})])    a tool call
    say("a", "b", breaks="disconnect", break_after=1)   the connection is lost behind the first piece
    fail(429, headers={"retry-after": "2"})             refused, with the body the provider would send
    raw(b"<html>", content_type="text/html")            whatever a broken proxy says

A step is a value and knows no wire; `chat` and `anthropic` put it into their provider's bytes.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from hermes_agent.models.base import TokenUsage

When = Callable[["ScriptedRequest"], bool]
Breaks = Literal["disconnect", "end", "error"]
"""How a stream stops half-way: the connection is lost, it simply ends, or the provider says so inside it."""


class Hold:
    """A gate inside an answer: the model waits there until the test releases it. Usable from any thread."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self._reached = threading.Event()

    def release(self) -> None:
        self._open.set()

    @property
    def is_reached(self) -> bool:
        return self._reached.is_set()

    async def reached(self, within: float = 10.0) -> None:
        """Wait until an answer has reached the gate. Raises `TimeoutError`."""
        async with asyncio.timeout(within):
            await _until(self._reached)

    async def wait(self) -> None:
        self._reached.set()
        await _until(self._open)


async def _until(event: threading.Event) -> None:
    # Polled, because the two sides may live in different threads and a test may leave at any time.
    while not event.is_set():  # noqa: ASYNC110
        await asyncio.sleep(0.002)


@dataclass(frozen=True, slots=True)
class ScriptedCall:
    """A tool call, its arguments as the pieces in which they are streamed. They need not be valid JSON."""

    name: str
    pieces: tuple[str, ...]
    id: str | None = None
    """None: a new id in the provider's format. Empty: no id, as some servers do."""

    @property
    def arguments(self) -> str:
        return "".join(self.pieces)


def call(
    name: str, arguments: Mapping[str, Any] | str | Sequence[str] = "{}", *, call_id: str | None = None
) -> ScriptedCall:
    """A tool call. A mapping is sent as JSON in two pieces, a string in one, a list of strings piece by piece."""
    if isinstance(arguments, Mapping):
        text = json.dumps(arguments, ensure_ascii=False)
        middle = len(text) // 2
        return ScriptedCall(name, (text[:middle], text[middle:]), call_id)
    return ScriptedCall(name, (arguments,) if isinstance(arguments, str) else tuple(arguments), call_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    delay: float = 0.0
    """Seconds before the first byte."""
    when: When | None = None
    """Which requests it answers; None: any."""
    repeat: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Say(_Step):
    """An answer that streams (or comes as one JSON text, where the request does not ask for a stream)."""

    pieces: tuple[str, ...] = ()
    calls: tuple[ScriptedCall, ...] = ()
    reasoning: tuple[str, ...] = ()
    finish: str = ""
    """The finish reason in chat-completions terms, for both wires; empty: the one that fits the answer."""
    usage: TokenUsage | None = None
    """None: an estimate from the bytes."""
    pace: float = 0.0
    """Seconds before each piece."""
    hold: Hold | None = None
    """The gate at which the answer waits, after its first piece."""
    breaks: Breaks | None = None
    break_after: int = 1
    """How many pieces (of reasoning, text and arguments) arrive before it breaks."""
    chop: int = 0
    """Cut the bytes into pieces of this size, also inside lines and characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fail(_Step):
    """A refusal."""

    status: int
    message: str = ""
    kind: str = ""
    """`error.type`; empty: what the provider uses for this status."""
    code: str | None = None
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Raw(_Step):
    """Unchanged bytes."""

    parts: tuple[bytes, ...]
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    disconnect: bool = False
    """Lose the connection after the last part; without parts, before the answer's first byte."""


Step = Say | Fail | Raw


def say(*pieces: str, calls: Sequence[ScriptedCall] = (), reasoning: str | Sequence[str] = (), **more: Any) -> Say:
    """Text in the given pieces, then the calls. `more` are other fields of `Say`: `hold`, `breaks`, `when` …"""
    thoughts = (reasoning,) if isinstance(reasoning, str) else tuple(reasoning)
    return Say(pieces=pieces, calls=tuple(calls), reasoning=thoughts, **more)


def fail(status: int, message: str = "", *, headers: Mapping[str, str] | None = None, **more: Any) -> Fail:
    """A refusal. `more` are other fields of `Fail`: `kind`, `code`, `delay`, `when`."""
    return Fail(status=status, message=message, headers=tuple((headers or {}).items()), **more)


def overflow(*, when: When | None = None) -> Fail:
    """The request is larger than the model's window, in the provider's own words."""
    return Fail(status=400, kind="context_overflow", when=when)


def raw(
    *parts: bytes, content_type: str = "text/event-stream", headers: Mapping[str, str] | None = None, **more: Any
) -> Raw:
    """Bytes as they are. `more` are other fields of `Raw`: `status`, `disconnect`, `delay`, `when`."""
    every = (("content-type", content_type), *(headers or {}).items())
    return Raw(parts=parts, headers=every, **more)


def disconnect(*, delay: float = 0.0, when: When | None = None) -> Raw:
    """The connection is lost before a byte of the answer."""
    return Raw(parts=(), disconnect=True, delay=delay, when=when)


def garbage(*, when: When | None = None) -> Raw:
    """A stream whose data is not JSON."""
    return raw(b'data: {"choices": [{"del\n\n', b"data: \xff\xfe\n\n", when=when)


def always(step: Step) -> Step:
    """Make a step that answers every request it fits, any number of times."""
    return replace(step, repeat=True)


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
        """The parsed body. Raises `ValueError` when it is not JSON."""
        if self._json is None:
            self._json = json.loads(self.body)
        return self._json

    def keep(self, parsed: Any) -> None:
        """Store the parsed body, so that it is parsed only once."""
        self._json = parsed

    @property
    def model(self) -> str:
        return str(self.json["model"])

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages in the wire's own form."""
        found: list[dict[str, Any]] = self.json["messages"]
        return found

    @property
    def tools(self) -> list[str]:
        """The names of the offered tools."""
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
        """The last message of the person, without tool results."""
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
    """Return the text of a content: a string, or the text parts of a list."""
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
