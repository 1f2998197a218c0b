"""The types of tools: tool, context of a call, result, permission gate.

A tool's schema is data and is never computed at request time. A handler that only blocks (on the store, on files) is a
plain function and runs in a thread; any other is a coroutine function. A handler does not decide about permission:
before it executes or changes something it asks `ctx.gate`, and the turn marks the call as begun and finished.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from hermes_agent.execution.base import Permit
from hermes_agent.turn.control import Stop
from hermes_state.ids import ConversationId, PersonId, SessionId, TurnId

if TYPE_CHECKING:
    from hermes_agent.delegation import Delegation
    from hermes_agent.models.base import ToolSpec
    from hermes_config.config import Config
    from hermes_state import SessionDB
    from hermes_state.storage.base import Connection


@dataclass(frozen=True, slots=True)
class Action:
    """A planned effect of a tool, which the gate judges or a person approves."""

    kind: str
    """command | write | read | network | plugin | mcp …"""
    text: str
    """The exact command or path, which the person sees and an approval covers."""
    workdir: str
    detail: str = ""
    outside: bool = False
    """For a command: the model asks to run it outside the sandbox. For a write: a person must be asked, because the
    file is outside the workspace, a secret, or run by other programs."""
    before: bytes | None = None
    """For a write: the file's present content; None without a file."""
    after: bytes | None = None
    """For a write: the new content; None removes the file."""
    targets: tuple[tuple[str, str], ...] = ()
    """(argument, value): whom or what a tool's call reaches. A value that nobody here has written asks a person."""
    reads: bool = False
    """Whether the call only reads; then addresses alone are checked."""
    place: str = ""
    """Where a call of the kind mcp runs and what confines it, for the person who is asked."""

    @property
    def is_write(self) -> bool:
        return self.kind == "write"


@dataclass(frozen=True, slots=True)
class GateDecision:
    allowed: bool
    reason: str = ""
    """The reason for a denial, for the model, which must not try again."""
    permit: Permit | None = None
    """The access granted to exactly this command or write; None: it stays strictly in the sandbox."""


class Gate(Protocol):
    """Decides whether a tool may do something; the only source of permission."""

    async def permit(self, action: Action) -> GateDecision: ...


class PersonWait:
    """Measures how long a call waits for people's answers; that time does not count towards the tool's time-out."""

    def __init__(self) -> None:
        self._seconds, self._since = 0.0, 0.0

    @property
    def asked(self) -> bool:
        """Whether a person is being asked now."""
        return bool(self._since)

    @property
    def seconds(self) -> float:
        return self._seconds + (time.monotonic() - self._since if self._since else 0.0)

    def __enter__(self) -> None:
        self._since = time.monotonic()

    def __exit__(self, *_: object) -> None:
        self._seconds, self._since = self.seconds, 0.0


Ask = Callable[[str, tuple[str, ...]], Awaitable[str | None]]
"""(question, choices) → the person's answer; None if nobody can be asked."""


async def _nothing() -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class FileContext:
    """The folders and variables against which a path is judged, for a tool's call or a mentioned file."""

    db: SessionDB
    home: Path
    workdir: Path
    conversation_id: ConversationId
    environ: Mapping[str, str]
    """The environment of child processes: allowed variables and the turn's identity, never a provider key."""
    config: Config


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext(FileContext):
    """Everything a running call may use. Frozen, so that a call cannot change the turn."""

    session_id: Callable[[], SessionId]
    """Returns the current segment, which a compression during the turn changes."""
    turn_id: TurnId
    call_id: str
    person_id: PersonId | None
    platform: str
    gate: Gate
    ask: Ask | None
    emit: Callable[[str], None]
    """Live output for watchers; never seen by the model."""
    stop: Stop
    """Set when the person interrupts."""
    notify: Callable[[str], None] = lambda text: None
    """Tells the person something beside the answer."""
    agent: MutableMapping[str, Any] = field(default_factory=dict)
    """Small state that lives as long as the conversation's agent (the to-do list)."""
    person_wait: PersonWait = field(default_factory=PersonWait)
    """How long this call has waited for people's answers."""
    tools: Mapping[str, Tool] = field(default_factory=dict)
    """The tools that the conversation has now, by name."""
    delegation: Callable[[], Delegation] | None = None
    """Makes the call's child conversations."""
    begin: Callable[[], Awaitable[None]] = _nothing
    """Marks that the call acts from now on: if the process is lost after it, nobody knows what the call did."""


@dataclass(frozen=True, slots=True)
class ToolImage:
    """A picture in a tool's result, for models that accept images."""

    data: bytes
    mime: str
    """image/png, image/jpeg, image/gif or image/webp."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    content: str = ""
    """The text for the model."""
    is_error: bool = False
    shown: str = ""
    """One line for people; if empty, they see the content's beginning."""
    data: Any = None
    """Structured data, appended to the content as JSON."""
    images: tuple[ToolImage, ...] = ()
    source: str = ""
    """Where other people's words in the content come from, for people: `https://…`, `bill.txt`, `MCP server git`.
    Empty: the content is Hermes's own."""
    is_answer: bool = False
    """Whether the content is what the person answered; then it counts as the person's words."""
    stored: Callable[[Connection], None] | None = None
    """A small write of the transaction that stores the result."""


Handler = Callable[[dict[str, Any], ToolContext], "Awaitable[ToolResult | str] | ToolResult | str"]


def parameters(*required: str, **properties: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of a tool: an object with these properties, some of them required."""
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    return {**schema, "required": list(required)} if required else schema


def value(kind: str, description: str, **rules: Any) -> dict[str, Any]:
    """The schema of one parameter; `rules` are further keys of JSON Schema."""
    return {"type": kind, **rules, "description": description}


_SCHEMA_CHARS = 8_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    name: str
    toolset: str
    description: str
    parameters: Mapping[str, Any]
    handler: Handler
    changes: bool = True
    """False for a tool that only reads; its calls may be repeated after a crash."""
    begins: bool = False
    """True for a tool that asks for permission before it acts: its handler calls `ctx.begin` in between. For the other
    tools the call begins with the handler."""
    repeatable: bool = False
    """True for a tool that changes something and whose calls may be repeated nevertheless: it finds what it did."""
    roles: frozenset[str] = frozenset({"owner", "admin", "member", "guest"})
    available: Callable[[Config], bool] = lambda config: True
    on_platform: Callable[[str], bool] = lambda platform: True
    """Whether the tool is offered on a platform."""
    summary: Callable[[Mapping[str, Any]], str] = lambda args: ""
    """Describes a call in one line for a person."""
    targets: tuple[str, ...] = ()
    """The arguments that say whom or what a call reaches: a recipient, an account, an address, a host, a path."""
    listed: bool = True
    """False: the prompt does not list it; the model finds it with `find_tool` and calls it with `use_tool`. Only
    built-in tools are listed."""
    source: str = ""
    """Where a tool that is not built in comes from, for people and for `find_tool`: `MCP server git`."""
    place: str = ""
    """Where a tool of an MCP server runs and what confines it, for a person; empty: it runs inside Hermes."""
    own_timeout: bool = False
    """True: the handler keeps its own time-out and watches `ctx.stop`; it is cancelled only if it fails to."""
    spec: ToolSpec = field(init=False, repr=False, compare=False)
    """The specification sent to the model; one object for all agents."""

    def __post_init__(self) -> None:
        schema = self.parameters
        known = schema.get("properties")
        if not isinstance(known, Mapping) or schema.get("type") != "object":  # providers require both
            schema = {**schema, "type": "object", "properties": known if isinstance(known, Mapping) else {}}
        object.__setattr__(self, "spec", {"name": self.name, "description": self.description, "parameters": schema})

    async def run(self, args: dict[str, Any], ctx: ToolContext) -> ToolResult | str:
        """Call the handler, in a thread if it is a plain function."""
        plain = not inspect.iscoroutinefunction(self.handler)
        made = await asyncio.to_thread(self.handler, args, ctx) if plain else self.handler(args, ctx)
        return await made if inspect.isawaitable(made) else made

    @property
    def schema_text(self) -> str:
        """The schema of the arguments in one line, for the model."""
        text = json.dumps(_untitled(self.parameters), ensure_ascii=False, separators=(",", ":"))
        return text if len(text) <= _SCHEMA_CHARS else f"{text[:_SCHEMA_CHARS]} … (cut: it is longer)"


def _untitled(schema: Any) -> Any:
    """A schema without titles, which programs make from the names beside them."""
    if isinstance(schema, Mapping):
        return {
            name: _untitled(part) for name, part in schema.items() if name != "title" or not isinstance(part, str)
        }  # fmt: skip
    return [_untitled(part) for part in schema] if isinstance(schema, list | tuple) else schema


class ToolSource(ABC):
    """A source of tools that may appear and disappear while the process runs: a server's, a plug-in's.

    `ctx.register_tool_source(name, source)` adds one. When its list changes it raises `generation`. The prompt does not
    list these tools (`Tool.listed`), so a change never moves its prefix; `find_tool` and `use_tool` know the new list
    at once.
    """

    generation: int = 0

    @abstractmethod
    def tools(self) -> Sequence[Tool] | None:
        """The current tools; None: not known yet, so the former list stays. Quick."""
