"""A tool, what it is given, and what it gives back.

A tool's schema is data and is never computed at request time. Its handler is a coroutine; work that blocks goes to a
thread inside it. A handler never decides whether it may run: whatever executes or changes something asks `ctx.gate`
first, and the turn marks the call started and finished around it.
"""

from __future__ import annotations

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
    from hermes_agent.models.base import ToolSpec
    from hermes_config.config import Config
    from hermes_state import SessionDB


@dataclass(frozen=True, slots=True)
class Action:
    """Something a tool is about to do, as the gate judges it and a person is asked about it."""

    kind: str
    """command | write | read | network | plugin …"""
    text: str
    """The exact command or the exact path: what the person sees and what an approval is bound to."""
    workdir: str
    detail: str = ""
    outside: bool = False
    """A command: the model asks to run it outside the wall. A write: the file is not the workspace's own (outside it, a
    secret, or one that other programs run), so a person is asked."""
    before: bytes | None = None
    """Of a write: what the file holds now; None for no file."""
    after: bytes | None = None
    """Of a write: what it will hold; None when it is removed."""

    @property
    def is_write(self) -> bool:
        return self.kind == "write"


@dataclass(frozen=True, slots=True)
class GateDecision:
    allowed: bool
    reason: str = ""
    """Why not; told to the model, which must not try again."""
    permit: Permit | None = None
    """What is open for exactly this command or write; None: it stays strictly behind the wall."""


class Gate(Protocol):
    """The one way to permission."""

    async def permit(self, action: Action) -> GateDecision: ...


class PersonWait:
    """How long a call has waited for people's answers: no part of the time that a tool may take."""

    def __init__(self) -> None:
        self._seconds, self._since = 0.0, 0.0

    @property
    def asked(self) -> bool:
        """A person is being asked now."""
        return bool(self._since)

    @property
    def seconds(self) -> float:
        return self._seconds + (time.monotonic() - self._since if self._since else 0.0)

    def __enter__(self) -> None:
        self._since = time.monotonic()

    def __exit__(self, *_: object) -> None:
        self._seconds, self._since = self.seconds, 0.0


Ask = Callable[[str, tuple[str, ...]], Awaitable[str | None]]
"""(question, choices) → the person's answer; None when nobody can be asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileContext:
    """What a path is judged against: for a tool's call, or for a file that a person names."""

    db: SessionDB
    home: Path
    workdir: Path
    conversation_id: ConversationId
    environ: Mapping[str, str]
    """What a child process gets: an allow-list, never a provider key, with the turn's identity in it."""
    config: Config


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext(FileContext):
    """What a running call may use. Frozen: nothing reaches up."""

    session_id: Callable[[], SessionId]
    """The segment that is current now: a compression in the middle of the turn moves it."""
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
    agent: MutableMapping[str, Any] = field(default_factory=dict)
    """Small state that lives as long as the conversation's agent: the to-do list."""
    person_wait: PersonWait = field(default_factory=PersonWait)
    """How long its questions have waited for a person."""


@dataclass(frozen=True, slots=True)
class ToolImage:
    """A picture among a tool's results, for models that see."""

    data: bytes
    mime: str
    """image/png, image/jpeg, image/gif or image/webp."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    content: str = ""
    """What the model reads."""
    is_error: bool = False
    shown: str = ""
    """One line for people; the content's beginning when empty."""
    data: Any = None
    """Structured data, which the model reads as JSON behind the content."""
    images: tuple[ToolImage, ...] = ()


Handler = Callable[[dict[str, Any], ToolContext], Awaitable["ToolResult | str"]]


def parameters(*required: str, **properties: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of a tool: an object with these properties, some of them required."""
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    return {**schema, "required": list(required)} if required else schema


def value(kind: str, description: str, **rules: Any) -> dict[str, Any]:
    """The schema of one parameter; `rules` are further keys of JSON Schema."""
    return {"type": kind, **rules, "description": description}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    name: str
    toolset: str
    description: str
    parameters: Mapping[str, Any]
    handler: Handler
    changes: bool = True
    """False for what only looks: such a call may simply be repeated after a crash."""
    roles: frozenset[str] = frozenset({"owner", "admin", "member", "guest"})
    available: Callable[[Config], bool] = lambda config: True
    on_platform: Callable[[str], bool] = lambda platform: True
    """Whether it is of use on a platform."""
    summary: Callable[[Mapping[str, Any]], str] = lambda args: ""
    """One line for a person: what this call does."""
    own_timeout: bool = False
    """True: the handler keeps its own time-out and watches `ctx.stop`; it is cancelled only when it does not."""
    spec: ToolSpec = field(init=False, repr=False, compare=False)
    """As the model is told; one object for all agents."""

    def __post_init__(self) -> None:
        schema = self.parameters
        if "properties" not in schema or schema.get("type") != "object":  # providers insist on both
            schema = {**schema, "type": "object", "properties": schema.get("properties") or {}}
        object.__setattr__(self, "spec", {"name": self.name, "description": self.description, "parameters": schema})


class ToolSource(ABC):
    """Tools that may appear and disappear while the process runs: of a server, of a plug-in.

    `ctx.register_tool_source(name, source)` adds one. When its list changes it raises `generation`; a conversation is
    told of the change at its next turn, which begins a new, announced prefix. So raise it only when the list, a
    description or a schema is another one, not at each reconnect.
    """

    generation: int = 0

    @abstractmethod
    def tools(self) -> Sequence[Tool]:
        """The tools there are now. Quick, and the same objects until `generation` changes."""

    def names(self) -> Sequence[str]:
        """In the order in which the model sees them."""
        return [tool.name for tool in self.tools()]

    def get(self, name: str) -> Tool | None:
        return next((tool for tool in self.tools() if tool.name == name), None)
