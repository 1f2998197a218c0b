"""The types of a model call: endpoint, reply, error, and the wire format interface.

A request is bytes: a head (model, options, tools, system text), the conversation's fragments, and a tail that closes
it. A `Wire` makes those bytes from stored messages by pure functions, and reads the streamed answer. Only wires know
the JSON of a provider.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple
from urllib.parse import urlsplit

from hermes_config.errors import HermesError

WireName = Literal["chat", "anthropic"]
Message = Mapping[str, Any]
"""A row of `get_messages_as_conversation`: role, content, tool_calls, tool_call_id, tool_name, api_content …"""
ToolSpec = Mapping[str, Any]
"""{"name", "description", "parameters"}: the neutral form of a tool; a wire converts it for its provider."""


_LOOPBACK = re.compile(r"127(\.\d{1,3}){3}")
"""An address, and not a name such as 127.example.org."""


def is_own_machine(address: str) -> bool:
    """Whether a server is on this machine, where it costs nothing and no proxy is in between."""
    host = (urlsplit(address).hostname or "").lower()
    return host in ("localhost", "::1") or _LOOPBACK.fullmatch(host) is not None


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
    """A model at an address, with its key and options. `api_key` never appears in a repr, a log or an error."""

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
    """The source of the key, for people: "OPENAI_API_KEY in .env"; empty if no key is needed."""
    more_keys: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Further keys of the same variable, each with its source (`models.keys`)."""
    refreshed: bool = field(default=False, repr=False)
    """Whether the provider's row gives the key (`provider_table.Credential`) at the time of a call."""

    @property
    def where(self) -> str:
        """The endpoint's name in errors and logs."""
        return self.model if self.model == self.provider else f"{self.provider}, {self.model}"

    @property
    def thinking_tokens(self) -> int:
        """The part of an answer that the options reserve for thinking; the provider refuses a shorter answer."""
        options = dict(self.options)
        sections = (
            (options.get("thinking"), "budget_tokens"),
            (options.get("reasoning"), "max_tokens"),
        )  # OpenRouter's
        found = [given.get(name) for given, name in sections if isinstance(given, Mapping)]
        return max([tokens for tokens in found if isinstance(tokens, int)], default=0)


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
        return TokenUsage(*(getattr(self, name) + getattr(more, name) for name in self.__slots__))

    def largest(self, other: TokenUsage | None) -> TokenUsage:
        """Each count as the larger of two reports of one call."""
        if other is None:
            return self
        return TokenUsage(*(max(getattr(self, name), getattr(other, name)) for name in self.__slots__))

    def as_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Reply:
    """One finished model step."""

    content: str | None
    tool_calls: tuple[ToolCall, ...]
    finish_reason: str
    """stop | tool_calls | length | content_filter | … in the chat-completions vocabulary, whatever the wire."""
    reasoning: str | None = None
    reasoning_details: Any = None
    """Blocks that the next request must send back verbatim (signed thinking)."""
    usage: TokenUsage | None = None
    model: str = ""


@dataclass(frozen=True, slots=True)
class Delta:
    """A streamed piece of a step."""

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
        unbilled: bool = False,
    ) -> None:
        super().__init__(message, where=where, hint=hint)
        self.kind = kind
        self.status = status
        self.retry_after = retry_after
        self.unbilled = unbilled
        """Whether the call costs nothing: the provider refused it or never received it."""
        self.partial: Reply | None = None
        """The text and reasoning (never tool calls) that arrived before a stream broke off; None if nothing did."""

    @property
    def retryable(self) -> bool:
        return self.kind in self.RETRYABLE

    @property
    def refuses_thinking(self) -> bool:
        """Whether the server refused the signature of a thinking block, which another host may have made."""
        said = self.what.lower()
        return self.kind == "bad_request" and "thinking" in said and "signature" in said


class AnswerLength(NamedTuple):
    field: str
    """The name of the request's field that limits the answer; empty if `extra_body` removes the field."""
    tokens: int | None
    """None: nobody said."""


_USER, _ASSISTANT = b'{"role":"user"', b'{"role":"assistant"'


class Wire(ABC):
    """One provider format. All but `read` are pure functions of their arguments, with a version in `name`."""

    __slots__ = ()
    opening: ClassVar[bytes]
    """The message before a conversation that would begin with one of the model."""
    closing: ClassVar[bytes]
    """The message after a conversation that would end with one of the model."""

    @property
    @abstractmethod
    def name(self) -> str: ...

    @abstractmethod
    def head(self, endpoint: Endpoint, system: str, tools: Sequence[ToolSpec]) -> bytes:
        """The body up to the first message of the conversation."""

    @abstractmethod
    def fragments(self, messages: Sequence[Message]) -> list[bytes]:
        """The encoded messages, one fragment a message of the wire (the tool results of one step may share one).

        Appending complete steps never changes earlier fragments, and the new steps can be rendered separately:
        `fragments(a + b) == fragments(a) + fragments(b)` wherever `a` ends with a complete step. Pairing of tool
        calls and results is repaired here and only here: every stored state renders to a request the provider
        accepts.
        """

    def join(self, head: bytes, fragments: Sequence[bytes], ending: bytes = b"]}") -> bytes:
        """The whole body. Fragments before the last may be passed as one, already joined by commas."""
        parts = list(fragments)
        if not parts or not parts[0].startswith(_USER):
            parts.insert(0, self.opening)
        if parts[-1].startswith(_ASSISTANT):
            parts.append(self.closing)
        pieces = [head] if head.endswith(b"[") else [head, b","]
        for part in parts:
            pieces += (part, b",")
        pieces[-1] = ending
        return b"".join(pieces)  # the only copy of a body that may be long

    def ending(self, endpoint: Endpoint, longest: int | None = None) -> bytes:
        """The bytes that close the body, with the answer's limit: `longest`, or else the endpoint's.

        They follow the messages, so they may differ from call to call without changing the bytes before them.
        """
        field, tokens = self.longest_answer(endpoint)
        tokens = tokens if longest is None else longest
        return b"]}" if not field or tokens is None else b'],"%s":%d}' % (field.encode(), tokens)

    @abstractmethod
    def longest_answer(self, endpoint: Endpoint) -> AnswerLength:
        """The endpoint's limit for an answer."""

    @abstractmethod
    def path(self) -> str:
        """The path of a request below the base URL."""

    @abstractmethod
    def headers(self, endpoint: Endpoint) -> dict[str, str]: ...

    @abstractmethod
    async def read(self, lines: AsyncIterator[str], on_delta: OnDelta | None) -> Reply:
        """Read a streamed answer."""
