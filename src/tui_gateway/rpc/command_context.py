"""A slash command in a live session: its `CommandContext`, and the actions that the command asks of the client."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Literal

from hermes_agent.models import model_list
from hermes_agent.text import close_names
from hermes_state.ids import SessionId

if TYPE_CHECKING:
    from hermes_config.config import Config
    from hermes_state import SessionDB
    from hermes_state.conversations.ledger import Handle
    from hermes_state.people.people import Person
    from tui_gateway.session.live_session import LiveSession


class RpcCommandContext:
    surface: Literal["tui"] = "tui"
    private = True
    shared = False
    route = None
    address = None
    scope = ""

    def __init__(self, live: LiveSession) -> None:
        self._live = live
        self.db: SessionDB = live.db
        self.config: Config = live.config
        self.person: Person = live.db.people.owner()
        self.platform = live.platform
        self.said: list[str] = []
        self.to_send: list[Any] = []
        """A prompt that the client has to submit, as for /retry."""
        self.to_prefill: list[str] = []
        self.turned = False
        """Whether the session shows another conversation now."""

    @property
    def session_id(self) -> SessionId | None:
        return self._live.session_id

    @property
    def busy(self) -> bool:
        return self._live.busy()

    @property
    def model(self) -> str:
        return self._live.model

    async def reply(self, text: str, *, personal: bool = False) -> None:
        self.said.append(text)

    async def stop(self) -> bool:
        return await self._live.stop()

    async def show(self, handle: Handle, *, why: str) -> None:
        self._live.move(handle.session_id)
        self.turned = True

    async def changed(self, reason: str) -> None:
        await self._live.changed()

    async def run_turn(self, content: Any) -> None:
        self.to_send.append(content)

    async def prefill(self, text: str) -> bool:
        self.to_prefill.append(text)
        return True

    async def compress(self, focus: str | None) -> str:
        return await self._live.compress(focus)

    async def use_model(self, name: str) -> str:
        said, endpoint = await self._live.use_model(name), self._live.asked_endpoint()
        names = await asyncio.to_thread(model_list.listed, endpoint)
        if not names or endpoint.model in names:
            return said
        # A server may accept names that it does not list, so this is only a hint.
        near = close_names(endpoint.model, names)
        meant = f"; did you mean {' or '.join(near)}?" if near else "."
        return f"{said}\nIts server does not list that{meant}"
