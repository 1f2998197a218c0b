"""What the agent knows of a model: where it is, what one call gives back, how it can fail.

A request is bytes: a head (model, options, tools, system text), the conversation's fragments, and a tail that closes
it. A `Wire` makes those bytes from stored messages by pure functions, and reads the streamed answer back. Nobody
else knows what a provider's JSON looks like.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

from hermes_config.errors import HermesError

WireName = Literal["chat", "anthropic"]
Message = Mapping[str, Any]
"""As `get_messages_as_conversation` gives it: role, content, tool_calls, tool_call_id, tool_name, api_content …"""
ToolSpec = Mapping[str, Any]
"""{"name", "description", "parameters"}: the neutral form; a wire writes it as its provider wants it."""


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars for a million tokens."""

    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None
    source: str = ""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A model at a place. `api_key` never appears in a repr, a log or an error."""

    provider: str
    wire: WireName
    base_url: str
    model: str
    api_key: str = field(default="", repr=False)
    context_length: int = 128_000
    max_tokens: int | None = None
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    options: tuple[tuple[str, Any], ...] = ()
    """Further keys of the request body (temperature, reasoning …), in a fixed order."""
    key_from: str = ""
    """Where the key was found, for people: "OPENAI_API_KEY in .env"; empty when the place needs none."""
    refreshed: bool = field(default=False, repr=False)
    """The provider's row gives the key (`provider_table.Credential`), at the moment of a call."""

    @property
    def where(self) -> str:
        """For errors."""
        return self.model if self.model == self.provider else f"{self.provider}, {self.model}"


@dataclass(frozen=True, slots=True)
class ToolCall:
    id: str
    name: str
    arguments: str
    """The JSON text exactly as the model wrote it; it may be broken."""


@dataclass(frozen=True, slots=True)
class TokenUsage:
    input_tokens: int = 0
    """All input, cached or not."""
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0

    def __add__(self, more: TokenUsage) -> TokenUsage:
        ours, others = self.as_dict(), more.as_dict()
        return TokenUsage(**{name: ours[name] + others[name] for name in ours})

    def as_dict(self) -> dict[str, Any]:
        return {
            "input_tokens": self.input_tokens, "output_tokens": self.output_tokens,
            "cache_read_tokens": self.cache_read_tokens, "cache_write_tokens": self.cache_write_tokens,
            "reasoning_tokens": self.reasoning_tokens,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Reply:
    """One finished model step."""

    content: str | None
    tool_calls: tuple[ToolCall, ...]
    finish_reason: str
    """stop | tool_calls | length | content_filter | … in the chat-completions vocabulary, whatever the wire."""
    reasoning: str | None = None
    reasoning_details: Any = None
    """What must be sent back verbatim with the next request (signed thinking blocks)."""
    usage: TokenUsage | None = None
    model: str = ""


@dataclass(frozen=True, slots=True)
class Delta:
    """A piece of a step while it streams."""

    kind: Literal["text", "reasoning", "tool_name"]
    text: str


OnDelta = Callable[[Delta], None]

ErrorKind = Literal[
    "auth", "billing", "rate_limit", "overloaded", "context_overflow", "payload_too_large", "bad_request",
    "model_not_found", "policy", "network", "timeout", "server", "protocol", "budget",
]  # fmt: skip


class ModelError(HermesError):
    """The model could not answer."""

    RETRYABLE: ClassVar[frozenset[str]] = frozenset(
        {"rate_limit", "overloaded", "network", "timeout", "server", "protocol"}
    )

    def __init__(
        self,
        kind: ErrorKind,
        message: str,
        *,
        status: int | None = None,
        retry_after: float | None = None,
        hint: str = "",
        where: str = "",
        partial: Reply | None = None,
        unbilled: bool = False,
    ) -> None:
        super().__init__(message, where=where, hint=hint)
        self.kind = kind
        self.status = status
        self.retry_after = retry_after
        self.unbilled = unbilled
        """The provider refused the call, or never got it: it costs nothing."""
        self.partial = partial
        """What had arrived when a stream broke off: text and reasoning, never a tool call. None when nothing had."""

    @property
    def retryable(self) -> bool:
        return self.kind in self.RETRYABLE


class AnswerLength(NamedTuple):
    field: str
    """The name of the request's field that bounds it; empty where `extra_body` takes the field away."""
    tokens: int | None
    """None: nobody said."""


class Wire(Protocol):
    """One provider format. All but `read` are pure functions of their arguments, with a version in `name`."""

    @property
    def name(self) -> str: ...

    def head(self, endpoint: Endpoint, system: str, tools: Sequence[ToolSpec]) -> bytes:
        """The body up to where the first message of the conversation begins."""

    def fragments(self, messages: Sequence[Message]) -> list[bytes]:
        """The messages, encoded: one fragment a message of the wire (the tool results of one step may share one).

        Appending complete steps never changes earlier fragments, and what is appended may be rendered by itself:
        `fragments(a + b) == fragments(a) + fragments(b)` wherever `a` ends with a complete step. Pairing of tool
        calls and results is repaired here and only here: every stored state renders to a request the provider
        accepts.
        """

    def join(self, head: bytes, fragments: Sequence[bytes], ending: bytes = b"]}") -> bytes:
        """The whole body. Fragments before the last may be passed as one, already joined by commas."""

    def ending(self, endpoint: Endpoint, longest: int | None = None) -> bytes:
        """What closes the body: how long the answer may be, which is `longest`, else what the endpoint says.

        It stands behind the messages: it may differ from call to call, and the bytes before it stay as they were.
        """

    def longest_answer(self, endpoint: Endpoint) -> AnswerLength:
        """What the endpoint says about the length of an answer."""

    def path(self) -> str:
        """Below the base URL."""

    def headers(self, endpoint: Endpoint) -> dict[str, str]: ...

    async def read(self, lines: AsyncIterator[str], on_delta: OnDelta | None) -> Reply:
        """The streamed answer."""
