"""`ChatCommandContext`: the chat in which a command was typed, and what the command may do there.

It implements `CommandContext` for chats and the API: it stops or starts the lane's turn and switches conversations;
handlers read and write the store themselves. The person has the role in force at this message, and every query is made
for that person, so nobody finds another person's conversations.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gateway.access import authorisation
from gateway.config import Platform, load_gateway_config
from gateway.inbound.stored_message import event_of, source_of
from gateway.turns.running_turn import RunningTurn, Watcher
from hermes_agent.commands.base import STAFF, Surface, Why
from hermes_agent.models import providers
from hermes_agent.text import brief
from hermes_config import config as configuration
from hermes_config.errors import ConfigError, UsageError
from hermes_state.ids import ConversationId, SessionId, SessionKey
from hermes_state.turns.inbox import Address

if TYPE_CHECKING:
    from gateway.access.authorisation import Policy, Principal
    from gateway.chat.commands import ChatCommands
    from gateway.platforms.base import MessageEvent
    from gateway.routes.source import SessionSource
    from gateway.services import Services
    from hermes_agent.models.base import Endpoint
    from hermes_config.config import Config
    from hermes_state import SessionDB
    from hermes_state.conversations.ledger import Handle
    from hermes_state.people.people import Person
    from hermes_state.turns.inbox import InboxRow


Reset = Callable[["MessageEvent"], Awaitable[str]]
"""The handler of /new: gives the route a new conversation and returns the reply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandSender:
    """The person who sent a command, by the policy in force now."""

    principal: Principal
    surface: authorisation.Surface
    person: Person


async def sender_of(services: Services, row: InboxRow) -> CommandSender | None:
    """The sender of a row; None for a bot, or for somebody who lost access since."""
    source = source_of(row)
    principal = authorisation.principal_of(source, account=row.account)
    surface = authorisation.surface_of(source, account=row.account, addressed=True)
    decision = authorisation.decide(principal, surface, "speak", None, await services.policy.fresh())
    if not decision.allowed or principal.kind == "bot":
        return None
    person = await asyncio.to_thread(services.policy.person, principal, decision, source.user_name)
    return CommandSender(principal=principal, surface=surface, person=person)


class ChatCommandContext:
    """The context of one command while it runs."""

    def __init__(self, commands: ChatCommands, row: InboxRow, sender: CommandSender, watcher: Watcher | None) -> None:
        """Use `open`, which also looks up the route's conversation."""
        assert row.route is not None, "an accepted row has a route"
        services = self._services = commands.services
        self._commands, self._watcher = commands, watcher
        self.lanes, self.row, self.sender = commands.lanes, row, sender
        self.approver, self.cards = commands.questions.approver, commands.questions.cards
        self.db: SessionDB = services.db
        self.config: Config = configuration.load_or_last_good(services.home)[0]
        self.person: Person = sender.person
        self.source: SessionSource = source_of(row)
        self.route: SessionKey = row.route
        self.scope: str = services.store.sessions_dir.name
        self.platform: str = self.source.platform.value
        self.surface: Surface = "api" if self.source.platform is Platform.API_SERVER else "gateway"
        self.private = sender.surface.kind != "group"
        self.shared: bool = services.store.is_shared(self.source)
        self.session_id: SessionId | None = None
        self.model = ""
        self.said: list[str] = []
        self.personal = True
        """Whether all of the reply concerns the sender alone."""

    @classmethod
    async def open(
        cls, commands: ChatCommands, row: InboxRow, sender: CommandSender, watcher: Watcher | None
    ) -> ChatCommandContext:
        context = cls(commands, row, sender, watcher)
        await asyncio.to_thread(context._load_conversation)
        return context

    def _load_conversation(self) -> None:
        store = self._services.store
        known = store.peek_session_id(self.route)
        if known is not None and store.leads_to_others(self.source, self.route):
            known = store.resolve(self.source, self.route).handle.session_id  # a new one, as for a message
        self.session_id = None if known is None else SessionId(self.db.get_compression_tip(known))
        source, override = self.source, store.get_model_override(self.route) or {}
        chat = self._services.settings.chat_override(source.platform, source.chat_id, source.thread_id)
        try:
            self.model = providers.primary(
                self.config, model=override.get("model", chat.model), provider=override.get("provider", chat.provider)
            ).model
        except ConfigError as error:
            self.model = error.in_chat()

    # -- called by commands --------------------------------------------------------------------------------

    @property
    def address(self) -> Address:
        row, source = self.row, (self.row.payload or {}).get("source")
        return Address(
            platform=row.platform, account=row.account, chat_id=row.chat_id, route=self.route,
            person_id=self.person.id, source=source,
        )  # fmt: skip

    @property
    def busy(self) -> bool:
        return self.lanes.busy(self.route)

    async def reply(self, text: str, *, personal: bool = False) -> None:
        """Add to the reply, which is stored in one transaction with the command's outcome."""
        self.said.append(text)
        self.personal = self.personal and personal

    async def stop(self) -> bool:
        """Stop the running turn, close open questions and drop waiting messages; False when there were none."""
        dropped = await self.drop("stopped by the person")
        closed = await self.close_questions("it was stopped")
        return await self.lanes.stop(self.route) or dropped + closed > 0

    async def policy(self) -> Policy:
        """The access rules in force now."""
        return await self._services.policy.fresh()

    async def close_questions(self, reason: str) -> int:
        """Cancel this conversation's turns that wait for an answer; returns how many."""
        if self.session_id is None:
            return 0
        root = ConversationId(await asyncio.to_thread(self.db.get_conversation_root, self.session_id))
        return await self.lanes.close_waiting(root, reason)

    async def drop(self, reason: str) -> int:
        """Drop waiting messages, and return how many. In a shared group they belong to others, and stay."""
        if self.shared:
            return 0
        return await self.lanes.drop(self.route, before=self.row.id, reason=reason)

    def check_whose_task_runs(self) -> None:
        """Raise when the running turn is another person's, and this person is no admin."""
        turn = self.lanes.running(self.route)
        others = self.shared and turn is not None and turn.person_id != self.person.id
        if others and self.person.role not in STAFF:
            hint = "They or an admin can stop it; or wait until it is done."
            raise UsageError("Somebody else started the current task.", hint=hint)

    async def show(self, handle: Handle, *, why: Why) -> None:
        await asyncio.to_thread(self._end_permissions)
        self.session_id = handle.session_id
        chosen = await asyncio.to_thread(self.db.chosen_model, handle.session_id)
        await asyncio.to_thread(self._services.store.set_model_override, self.route, chosen)
        self._services.store.moved()

    async def begin_anew(self, title: str) -> str:
        await self.close_questions("a new conversation was begun")
        await asyncio.to_thread(self._end_permissions)
        event = event_of(self.row)
        event.text = f"/new {title}".rstrip()
        return await self._commands.reset(event)

    def _end_permissions(self) -> None:
        """Permissions for a conversation end when its person leaves it."""
        if self.session_id is not None:
            root = ConversationId(self.db.get_conversation_root(self.session_id))
            self.db.approvals.leave_conversation(root, person_id=self.person.id)

    async def changed(self, reason: str) -> None:
        if self.session_id is not None:
            await self.close_questions(f"the conversation was changed (/{reason})")
            self._commands.agents.evict(await asyncio.to_thread(self.db.get_conversation_root, self.session_id))

    async def run_turn(self, content: Any) -> None:
        await self.lanes.run_turn(self._running(content), self._watcher)

    async def prefill(self, text: str) -> bool:
        return False

    async def compress(self, focus: str | None) -> str:
        told = await self.lanes.compress(self._running(None), focus)
        return "There is nothing to compress yet." if told is None else told

    async def use_model(self, name: str) -> str:
        """Choose another model for this conversation, until /new. Raises when this role may not use that model."""
        endpoint = await asyncio.to_thread(self._endpoint, name)
        store, chosen = self._services.store, {"model": endpoint.model, "provider": endpoint.provider}
        if self.session_id is None:
            self.session_id = (await store.aresolve(self.source, self.route)).handle.session_id
        await asyncio.to_thread(store.set_model_override, self.route, chosen)
        # The conversation keeps its model wherever it is opened.
        await asyncio.to_thread(self.db.choose_model, self.session_id, endpoint.model, endpoint.provider)
        return (
            f"From now on here: {endpoint.model} ({endpoint.provider}), {endpoint.context_length:,} tokens of context."
        )

    def _endpoint(self, name: str) -> Endpoint:
        """The model of this name, if this person may choose it. The error names only models that the role may use."""
        role = self.person.role
        listed = load_gateway_config(self.config).model_choice.of(role)
        if role == "owner" or "*" in listed:
            return providers.primary(self.config, model=name)
        offered = providers.offered(self.config, listed)
        wanted = name.strip()
        for one in offered:
            if wanted in (one.model, f"{one.provider}/{one.model}"):
                return one
        names = ", ".join(one.model for one in offered)
        raise UsageError(f"{role}s cannot choose the model {brief(wanted, 40)} here", hint=f"Choose one of: {names}.")

    def _running(self, content: Any) -> RunningTurn:
        return RunningTurn(self.route, self.source, self.person.id, content=content, trace_id=self.row.trace_id)
