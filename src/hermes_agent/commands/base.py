"""The definition of a slash command, and the context in which its handler runs.

A handler reads and changes the store itself, and asks the surface (`CommandContext`) only for what the store cannot do:
stop a running turn, show another conversation, run a turn. So one handler serves the line chat, the terminal UI, every
chat platform and the API. A handler that needs only the store is a plain function and runs in a thread.
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
    from hermes_state.turns.inbox import Address

Surface = Literal["cli", "tui", "gateway", "api"]
Why = Literal["new", "resume", "branch"]
SURFACES: frozenset[Surface] = frozenset({"cli", "tui", "gateway", "api"})
EVERYONE = frozenset({"owner", "admin", "member", "guest"})
STAFF = frozenset({"owner", "admin"})
"""The roles that administer Hermes."""


class CommandContext(Protocol):
    """The chat and person of a typed command. Read properties when needed; do not keep ids."""

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
        """`cli` or a platform's name, as passed to hooks."""

    @property
    def private(self) -> bool:
        """Whether only this person reads the answer; False in a group."""

    @property
    def shared(self) -> bool:
        """Whether several people share this conversation, so that a change affects all of them."""

    @property
    def session_id(self) -> SessionId | None:
        """The current segment; None before the first message, while no row exists."""

    @property
    def route(self) -> SessionKey | None:
        """The chat's route; None if the surface holds a conversation without one, as the line chat does."""

    @property
    def address(self) -> Address | None:
        """The chat, for later messages to it; None at a terminal."""

    @property
    def scope(self) -> str:
        """The routes' scope."""

    @property
    def busy(self) -> bool:
        """Whether a turn of this conversation is running."""

    @property
    def model(self) -> str:
        """The model of the next turn."""

    async def reply(self, text: str, *, personal: bool = False) -> None:
        """Send plain text to the person. `personal`: it concerns nobody else who reads along."""

    async def stop(self) -> bool:
        """Interrupt the running turn and wait for its end; False if none is running."""

    async def show(self, handle: Handle, *, why: Why) -> None:
        """Show another conversation in this chat. The store has committed the change already."""

    async def changed(self, reason: str) -> None:
        """Make the agent read the transcript again, because a command (`undo`, `uncompress`) changed it."""

    async def run_turn(self, content: Any) -> None:
        """Run a turn with this user message, as if the person had sent it."""

    async def prefill(self, text: str) -> bool:
        """Put the text into the input field; False if the surface has none."""

    async def compress(self, focus: str | None) -> str:
        """Compress the conversation now; return a sentence about the result."""

    async def use_model(self, name: str) -> str:
        """Use another model in this conversation; return a sentence about the result. Raises `HermesError`."""


Handler = Callable[[CommandContext, str], "Awaitable[str | None] | str | None"]
"""(context, arguments) → the answer; None if the handler has replied itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlashCommand:
    """One row of the command table."""

    name: str
    description: str
    category: str
    handler: Handler
    aliases: tuple[str, ...] = ()
    args_hint: str = ""
    surfaces: frozenset[Surface] = SURFACES
    roles: frozenset[str] = EVERYONE
    private: bool = False
    """Whether the answer is only for this person; such a command is refused in a group."""
    alters: Literal["", "always", "with words"] = ""
    """Whether the command changes the conversation. In a shared conversation only owners and admins may do that.
    "with words": without arguments the command only shows something."""
    shows: bool = False
    """Whether the command only shows something, so that in a group its answer concerns its sender alone."""
    idle: bool = False
    """Whether the command is refused while a turn runs, because it changes the turn's input."""
    stops: bool = False
    """Whether the command first ends a running turn."""
    plugin: str = ""
    """The key of the plug-in that provides the command."""

    def is_personal(self, args: str) -> bool:
        """Whether the answer concerns its sender alone: it shows something, or how the command is used."""
        needs_words = bool(self.args_hint) and not self.args_hint.startswith("[")
        return self.shows or (not args.strip() and (needs_words or self.alters == "with words"))
