"""`Intake`: decides whether to accept an incoming message, stores it, and gives it to its lane.

Nothing happens before the decision: no row, no download, no reply. When `receive` returns, the message is stored or
refused, and the adapter may confirm it to the platform. When `receive` raises, the store failed and the platform keeps
the message for another try. Only structure makes a message a command or an answer (a leading slash,
`MessageEvent.answer`); no marker inside its text does.
"""

from __future__ import annotations

import asyncio
import logging
import time
from functools import partial
from typing import TYPE_CHECKING

from gateway.access import authorisation
from gateway.access.authorisation import Decision, Policy, Principal
from gateway.inbound.stored_message import is_stale, payload, source_of
from gateway.outbound import notices, send_item
from gateway.platforms.base import BasePlatformAdapter, MessageEvent, Outgoing, Receipt
from hermes_agent import hooks as plugin_hooks
from hermes_cli import plugins
from hermes_config.recent import Recent
from hermes_state.errors import StateError
from hermes_state.ids import PersonId, new_trace_id
from hermes_state.turns.inbox import BESIDE, OWN, InboxRow

if TYPE_CHECKING:
    from gateway.access.pairing import Pairing
    from gateway.inbound.lanes import Lanes
    from gateway.services import Services
    from gateway.turns.running_turn import Watcher
    from hermes_state.turns.cursors import CursorMove

_log = logging.getLogger("hermes.gateway")
_TROUBLE_SECONDS = 600.0
_TROUBLE_CHATS = 1_024


class Intake:
    """Receives the messages of every platform."""

    def __init__(self, services: Services, lanes: Lanes, *, pairing: Pairing | None = None) -> None:
        self._services, self._lanes, self._pairing = services, lanes, pairing
        self._troubled: Recent[tuple[str, str], float] = Recent(_TROUBLE_CHATS)

    async def receive(
        self,
        event: MessageEvent,
        *,
        adapter: BasePlatformAdapter,
        watcher: Watcher | None = None,
        cursor: CursorMove | None = None,
    ) -> Receipt:
        """Decide about a message, store it and give it to its lane. Raises `StateError` when the store fails.

        `cursor`: the adapter's position after the message, stored in the transaction that stores or refuses it.
        """
        try:
            receipt = await self._receive(event, adapter, watcher, cursor)
        except StateError as error:
            await self._trouble(event, adapter, error)
            raise
        self._services.metrics.received(event.source.platform.value, receipt.state).inc()
        return receipt

    async def _receive(
        self, event: MessageEvent, adapter: BasePlatformAdapter, watcher: Watcher | None, cursor: CursorMove | None
    ) -> Receipt:
        source, account = event.source, adapter.account
        principal = authorisation.principal_of(source, account=account)
        decision = _decided(event, account, await self._services.policy.fresh())
        if not decision.allowed:
            return await self._refused(event, account, principal, decision, cursor)
        if not event.internal and plugins.has_hook("pre_gateway_dispatch") and not await self._dispatched(event):
            if cursor is not None:
                await self._services.db.cursors.move(cursor)
            return Receipt(state="ignored", reason="a plug-in handled it")
        person = decision.person_id
        if person is None and principal.kind != "bot":
            keeper = self._services.policy
            person = (await asyncio.to_thread(keeper.person, principal, decision, source.user_name)).id
        if adapter.opens_threads and source.thread_id is None:
            source.thread_id = await self._thread(event, adapter, person)
        return await self._accept(event, adapter, person, watcher, cursor)

    async def _thread(self, event: MessageEvent, adapter: BasePlatformAdapter, person: PersonId | None) -> str | None:
        """The thread for the answer to a new message for the model; None: the answer goes to the chat itself.

        A message that is stored already, or an edit of one, has the thread of its row.
        """
        coming = self._coming(event, adapter, person)
        known = await asyncio.to_thread(
            self._services.db.inbox.versions, platform=coming.platform, account=coming.account, chat_id=coming.chat_id,
            message_id=coming.message_id,
        )  # fmt: skip
        if known and known[-1].payload is not None:
            return source_of(known[-1]).thread_id
        if self._lanes.kind(coming) != "turn":
            return None
        try:
            async with asyncio.timeout(self._services.db.limits.send_seconds):
                return await adapter.open_thread(event)
        except Exception as error:  # noqa: BLE001 - boundary: an adapter
            _log.warning("cannot open a thread (%s)", type(error).__name__, extra={"action": "open_thread"})
            return None

    async def _accept(
        self,
        event: MessageEvent,
        adapter: BasePlatformAdapter,
        person: PersonId | None,
        watcher: Watcher | None,
        cursor: CursorMove | None,
    ) -> Receipt:
        settings, db, coming = self._services.settings, self._services.db, self._coming(event, adapter, person)
        if waiting := self._lanes.too_many(coming):
            return await self._no_room(event, adapter, waiting, cursor)
        assert coming.route is not None, "every message that comes in has a route"
        accepted = await db.inbox.aaccept(
            platform=coming.platform, account=coming.account, chat_id=coming.chat_id, message_id=coming.message_id,
            version=coming.version, route=coming.route, payload=coming.payload or {},
            person_id=person, trace_id=coming.trace_id, cursor=cursor,
        )  # fmt: skip
        row = accepted.row
        if not accepted.new:
            if row.state == "queued" and not is_stale(row, now=db.clock(), most=settings.max_message_age):
                self._lanes.take(row)  # the call that stored it may have been cut off before its lane got it
            return Receipt(state="duplicate", inbox_id=row.id, trace_id=row.trace_id)
        if accepted.before is not None:
            self._lanes.edited(row, accepted.before, watcher=watcher)
        elif not event.internal and is_stale(row, now=db.clock(), most=settings.max_message_age):
            self._lanes.hold(row)
        else:
            self._lanes.put(row, watcher=watcher, wait=adapter.queues_only)
        return Receipt(state="accepted", inbox_id=row.id, trace_id=row.trace_id)

    def _coming(self, event: MessageEvent, adapter: BasePlatformAdapter, person: PersonId | None) -> InboxRow:
        """The row that a message will have, before it has a number."""
        source, now = event.source, self._services.db.clock()
        return InboxRow(
            0, source.platform.value, adapter.account, str(source.chat_id), _message_id(event), event.version,
            self._services.store.key(source), person, new_trace_id(), payload(event, now=now), "queued", None, None,
            now, None,
        )  # fmt: skip

    # -- refusals ----------------------------------------------------------------------------------------

    async def _refused(
        self,
        event: MessageEvent,
        account: str,
        principal: Principal,
        decision: Decision,
        cursor: CursorMove | None,
    ) -> Receipt:
        """Store that a message was refused, and why. A stranger may be told how to get access."""
        source = event.source
        await self._note_refusal(event, account, decision.reason, cursor)
        if decision.reply == "pair" and self._pairing is not None and event.answer is None:
            said = await asyncio.to_thread(self._pairing.request, principal, display_name=source.user_name)
            if said is not None:
                await self._lanes.tell(source, said, what="pairing", occasion=notices.words(said), account=account)
        return Receipt(state="refused", reason=decision.reason)

    async def _no_room(
        self, event: MessageEvent, adapter: BasePlatformAdapter, waiting: int, cursor: CursorMove | None
    ) -> Receipt:
        await self._note_refusal(event, adapter.account, "too many messages of this chat are waiting", cursor)
        await self._say(event, adapter.account, "full", notices.refused_full(waiting))
        return Receipt(state="refused", reason="too many messages of this chat are waiting")

    async def _note_refusal(self, event: MessageEvent, account: str, reason: str, cursor: CursorMove | None) -> None:
        source = event.source
        await asyncio.to_thread(
            self._services.db.inbox.refuse, platform=source.platform.value, account=account,
            chat_id=str(source.chat_id), message_id=_message_id(event), version=event.version, reason=reason,
            cursor=cursor,
        )  # fmt: skip

    async def _trouble(self, event: MessageEvent, adapter: BasePlatformAdapter, error: StateError) -> None:
        """Tell a chat that its message could not be stored: directly, because the outbox is in the same store.

        At most once in a while, and only for people who may speak by the policy that was read last.
        """
        _log.error("a message was not stored: %s", error.one_line(), extra={"action": "not_stored"})
        chat = (event.source.platform.value, str(event.source.chat_id))
        now = time.monotonic()
        if now - self._troubled.get(chat, -_TROUBLE_SECONDS) < _TROUBLE_SECONDS or not self._may_speak(event, adapter):
            return
        self._troubled[chat] = now
        said = f"I cannot store messages right now: {error.what}. Yours is not lost; I will read it once this is fixed."
        seconds = self._services.db.limits.send_seconds
        for piece in send_item.pieces(adapter, said):
            send = partial(adapter.send, chat[1], Outgoing(text=piece, thread_id=event.source.thread_id))
            if (await send_item.request(adapter, chat[1], send, seconds=seconds)).not_sent:
                self._troubled.pop(chat, None)  # the platform wants a pause; it repeats the message, and then we tell

    def _may_speak(self, event: MessageEvent, adapter: BasePlatformAdapter) -> bool:
        policy = self._services.policy.last
        return policy is not None and _decided(event, adapter.account, policy).allowed

    # -- helpers -----------------------------------------------------------------------------------------

    async def _dispatched(self, event: MessageEvent) -> bool:
        """Let plug-ins handle a message or change its text before it is stored; False: a plug-in handled it."""
        answers = await plugin_hooks.fire(
            "pre_gateway_dispatch", event=event, gateway=None, session_store=self._services.store
        )
        for answer in answers:
            action = answer.get("action") if isinstance(answer, dict) else None
            if action == "skip":
                return False
            if action == "rewrite" and isinstance(text := answer.get("text"), str):
                event.text = text
        return True

    async def _say(self, event: MessageEvent, account: str, what: str, text: str) -> None:
        occasion = f"{event.source.platform.value}:{account}:{event.source.chat_id}:{_message_id(event)}"
        await self._lanes.tell(event.source, text, what=what, occasion=occasion, account=account)


def _decided(event: MessageEvent, account: str, policy: Policy) -> Decision:
    principal = authorisation.principal_of(event.source, account=account)
    surface = authorisation.surface_of(event.source, account=account, addressed=event.mentions_us)
    return authorisation.decide(principal, surface, "speak", None, policy)


def _message_id(event: MessageEvent) -> str:
    if event.message_id is None:
        event.message_id = f"none-{new_trace_id()}"
    if event.message_id.startswith((BESIDE, OWN)):  # reserved for messages that no platform sends
        return f"id:{event.message_id}"
    return event.message_id
