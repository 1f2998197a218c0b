"""What a slash command is, and what it may ask of the place it was typed in.

A handler works on a `CommandContext`: it reads and changes the store itself, and asks the surface only for what no
store can do (stop a running turn, show another conversation, run a turn). So one handler serves the line chat, the
terminal UI, every chat platform and the API. One that asks the surface for nothing is a plain function, run in a
thread.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from hermes_state.ids import SessionId, SessionKey

if TYPE_CHECKING:
    from hermes_config.config import Config
    from hermes_state import SessionDB
    from hermes_state.conversations.ledger import Handle
    from hermes_state.people.people import Person

Surface = Literal["cli", "tui", "gateway", "api"]
Why = Literal["new", "resume", "branch"]
SURFACES: frozenset[Surface] = frozenset({"cli", "tui", "gateway", "api"})
EVERYONE = frozenset({"owner", "admin", "member", "guest"})
STAFF = frozenset({"owner", "admin"})
"""Those who run the place."""


class CommandContext(Protocol):
    """Where and by whom a command was typed. Properties are read at the moment of use; ids are never kept."""

    @property
    def db(self) -> SessionDB: ...
    @property
    def config(self) -> Config: ...
    @property
    def person(self) -> Person: ...
    @property
    def surface(self) -> Surface: ...
    @property
    def platform(self) -> str:
        """cli or a platform's name: what hooks are told."""

    @property
    def private(self) -> bool:
        """Only this person reads the answer. False in a room of several people."""

    @property
    def shared(self) -> bool:
        """Several people talk in this conversation: what changes it changes it for all of them."""

    @property
    def session_id(self) -> SessionId | None:
        """The current segment; None while nothing was said yet and no row exists."""

    @property
    def route(self) -> SessionKey | None:
        """The place's own route; None where a surface simply holds a conversation, as the line chat does."""

    @property
    def scope(self) -> str:
        """The routes' scope."""

    @property
    def busy(self) -> bool:
        """A turn of this conversation is running."""

    @property
    def model(self) -> str:
        """The model the next turn will ask."""

    async def reply(self, text: str) -> None:
        """Plain text for the person."""

    async def stop(self) -> bool:
        """Interrupt the running turn and see it end; False when there is none."""

    async def show(self, handle: Handle, *, why: Why) -> None:
        """The place shows another conversation from now on. The store has committed it already."""

    async def changed(self, reason: str) -> None:
        """The transcript was changed under the agent (`undo`, `uncompress`): it looks again before its next request."""

    async def run_turn(self, content: Any) -> None:
        """A turn with this user message, as if the person had sent it."""

    async def prefill(self, text: str) -> bool:
        """Put the text where the person types; False where a surface cannot."""

    async def compress(self, focus: str | None) -> str:
        """Compress the conversation now; what was done, in a sentence."""

    async def use_model(self, name: str) -> str:
        """Use another model in this conversation; what was done, in a sentence. Raises our errors."""


Handler = Callable[[CommandContext, str], "Awaitable[str | None] | str | None"]
"""(context, what was typed after the name) → the answer; None when the handler has answered by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlashCommand:
    """One row of the table."""

    name: str
    description: str
    category: str
    handler: Handler
    aliases: tuple[str, ...] = ()
    args_hint: str = ""
    surfaces: frozenset[Surface] = SURFACES
    roles: frozenset[str] = EVERYONE
    private: bool = False
    """Its answer is for this person's eyes: refused in a room of several people."""
    alters: Literal["", "always", "with words"] = ""
    """It changes what was said, or how it is answered. Where several people share a conversation, that is for those
    who run the place; without words it only shows."""
    idle: bool = False
    """It changes what a running turn works on: refused while one runs."""
    stops: bool = False
    """It ends a running turn first."""
    plugin: str = ""
    """The key of the plug-in it comes from."""
