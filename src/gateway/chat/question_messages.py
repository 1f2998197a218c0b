"""The messages of questions in chats: who receives them, their text, and their edit at the end.

The person of the turn is asked if they may decide, else the owners and named approvers, in private. Text from others is
shown in a code block, so that nobody takes it for text of Hermes. When a question is closed, its message is edited in
place and loses its buttons.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from gateway.access import authorisation
from gateway.config import Platform
from gateway.inbound.stored_message import source_of
from gateway.outbound import notices, send_item
from gateway.platforms.connections import adapter_of
from gateway.routes.source import SessionSource
from gateway.turns.running_turn import RunningTurn
from gateway.turns.user_message import clean_name
from hermes_agent import context
from hermes_agent.approvals import text as approval_text
from hermes_agent.approvals.types import ApprovalQuestion, Choice
from hermes_agent.text import brief, fenced
from hermes_state.ids import PersonId, SessionKey
from hermes_state.turns.outbox import NewOutboxItem

if TYPE_CHECKING:
    from gateway.access.authorisation import Policy, Principal
    from gateway.inbound.lanes import Lanes
    from gateway.platforms.base import BasePlatformAdapter
    from gateway.services import Services
    from hermes_state import SessionDB
    from hermes_state.turns.outbox import OutboxItem

_log = logging.getLogger("hermes.gateway")


Adapters = Mapping[Platform, "BasePlatformAdapter"]
_MOST = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class AskingTurn:
    """The turn that asks: where, and for whom."""

    running: RunningTurn
    source: SessionSource
    account: str
    person_id: PersonId | None

    @property
    def who(self) -> str:
        """The person's name and platform id."""
        name = clean_name(self.source.user_name) or "somebody"
        return f"{name} ({self.source.platform.value}:{self.source.user_id or 'unknown'})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipient:
    """A chat in which a person is asked."""

    key: str
    """The person's key, part of the outbox key: nobody is asked twice."""
    name: str
    adapter: BasePlatformAdapter
    chat_id: str
    thread_id: str | None = None
    here: bool = False
    """This is the chat of the turn itself."""
    native_id: str = ""
    """The person's id on the platform, for a chat that has to be opened."""

    def item(self, key: str, text: str, buttons: Sequence[Sequence[Mapping[str, Any]]], **more: Any) -> NewOutboxItem:
        """The outbox item of a question in this chat; with the buttons, where the platform has some."""
        shown = buttons if self.adapter.supports_buttons else ()
        return NewOutboxItem(
            dedup_key=key, platform=self.adapter.platform.value, account=self.adapter.account, chat_id=self.chat_id,
            payload=notices.payload(text, "question", buttons=shown, thread_id=self.thread_id, **more),
        )  # fmt: skip


def asking(lanes: Lanes, adapters: Adapters) -> AskingTurn | None:
    """The turn that calls this, by its bound identity; None outside of a lane's turn."""
    bound = context.current()
    identity = None if bound is None else bound.identity
    running = None if identity is None else lanes.running(SessionKey(identity.session_key))
    if running is None:
        return None
    rows = running.work.inbox if running.work is not None and running.work.inbox else running.rows
    if rows:
        last = rows[-1]
        return AskingTurn(running=running, source=source_of(last), account=last.account, person_id=last.person_id)
    adapter = adapters.get(running.source.platform)
    account = "" if adapter is None else adapter.account
    return AskingTurn(running=running, source=running.source, account=account, person_id=running.person_id)


def asking_child(db: SessionDB, question: ApprovalQuestion) -> AskingTurn | None:
    """The chat of a child whose parent's turn no longer waits for it; None for other turns. Blocks."""
    child = db.children.get(question.conversation_id)
    address = None if child is None else child.address
    if address is None or address.source is None:
        return None
    source = SessionSource.from_dict(dict(address.source))
    running = RunningTurn(address.route, source, address.person_id)
    return AskingTurn(running=running, source=source, account=address.account, person_id=address.person_id)


async def recipients(
    services: Services, adapters: Adapters, turn: AskingTurn, question: authorisation.Question
) -> list[Recipient]:
    """The chats to ask in, best first; empty when nobody can be reached."""
    policy = await services.policy.fresh()
    return await _reached(services, await asyncio.to_thread(_recipients, services, adapters, turn, question, policy))


async def deciders(
    services: Services, adapters: Adapters, question: authorisation.Question, *, near: str = ""
) -> list[Recipient]:
    """The private chats of everybody who may decide, owners first and then those `near` that platform or account;
    empty when nobody can be reached."""
    policy = await services.policy.fresh()
    return await _reached(services, await asyncio.to_thread(_deciders, services, adapters, question, policy, near))


async def _reached(services: Services, found: list[Recipient]) -> list[Recipient]:
    reached: dict[str, Recipient] = {}
    for one in found:
        if one.key not in reached and len(reached) < _MOST:
            recipient = one if one.here else await _in_private_chat(one, services)
            reached |= {one.key: recipient} if recipient.chat_id else {}
    return list(reached.values())


async def _in_private_chat(one: Recipient, services: Services) -> Recipient:
    """The same person in the private chat that the adapter opens, else in the chat where they last wrote."""
    try:
        async with asyncio.timeout(services.db.limits.send_seconds):
            opened = await one.adapter.open_private_chat(one.native_id)
    except Exception as error:  # noqa: BLE001 - boundary: an adapter
        _log.warning("cannot open a private chat (%s)", type(error).__name__, extra={"action": "open_private_chat"})
        opened = None
    return one if opened is None else replace(one, chat_id=opened)


def _recipients(
    services: Services, adapters: Adapters, turn: AskingTurn, question: authorisation.Question, policy: Policy
) -> list[Recipient]:
    source, adapter = turn.source, adapters.get(turn.source.platform)
    principal = authorisation.principal_of(source, account=turn.account)
    surface = authorisation.surface_of(source, account=turn.account)
    own = authorisation.decide(principal, surface, "approve", question, policy)
    if own.allowed and adapter is not None:
        key, name = _named(services, principal, own.person_id)
        return [
            Recipient(
                key=key, name=name, adapter=adapter, chat_id=str(source.chat_id), thread_id=source.thread_id, here=True
            )
        ]
    return _deciders(services, adapters, question, policy, source.platform.value)


def _deciders(
    services: Services, adapters: Adapters, question: authorisation.Question, policy: Policy, near: str
) -> list[Recipient]:
    asked = authorisation.approvers(question, policy, near=near)
    others = (_private(services, adapters, who, policy) for who in asked)
    return [one for one in others if one is not None]


def _private(services: Services, adapters: Adapters, who: Principal, policy: Policy) -> Recipient | None:
    """A person who may decide, if the gateway is on their platform; `chat_id` is where they last wrote, or empty."""
    adapter = adapter_of(adapters, who.platform)
    if adapter is None or who.account not in ("", adapter.account):
        return None
    known = policy.known(who)
    person_id = None if known is None else known.person_id
    key, name = _named(services, who, person_id)
    last = _last_chat(services, who, person_id) or ""
    return Recipient(key=key, name=name, adapter=adapter, chat_id=last, native_id=who.native_id)


def _last_chat(services: Services, who: Principal, person_id: PersonId | None) -> str | None:
    """The private chat in which this person last wrote to the gateway."""
    if person_id is None:
        return None
    rows = services.db.list_sessions_rich(
        owner=person_id, source=who.platform, order_by_last_active=True, limit=20, min_message_count=1
    )
    mine = (row for row in rows if row.get("chat_type") == "dm" and row.get("user_id") == who.native_id)
    return next((str(row["chat_id"]) for row in mine if row.get("chat_id")), None)


def _named(services: Services, who: Principal, person_id: PersonId | None) -> tuple[str, str]:
    person = None if person_id is None else services.db.people.get(person_id)
    name = "" if person is None else clean_name(person.display_name)
    return str(person_id or ":".join(who.key)), f"{name or 'the owner'} ({who.platform}:{who.native_id})"


LONGEST = 12_000
"""The longest command, as shown, that people are asked about in a chat; they must be able to read all of it."""
_TYPED: dict[Choice, str] = {"session": "conversation"}
"""The word that a person types instead of the stored one."""
_SHOWN_AGAIN = 300


def is_too_long(question: ApprovalQuestion) -> bool:
    return sum(len(line) + 1 for line in approval_text.exactly(question.command)) > LONGEST


def approval(question: ApprovalQuestion, *, who: str, buttons: bool) -> str:
    """The text of an approval question: all facts a person needs to decide, and how to answer."""
    return "\n\n".join([*_asked(question, who=who), _how(question, buttons=buttons)])


def approval_parts(question: ApprovalQuestion, *, who: str, buttons: bool) -> tuple[str, str]:
    """The two texts of a question that fills several messages: the whole, and the text with the buttons. The second
    repeats the start of the command with its length and hash, because the first may have scrolled away."""
    measure = approval_text.measure(question.command)
    facts = _lines([("why", question.why), ("sandbox", question.sandbox)])
    again = "\n\n".join([
        f"**{approval_text.heading(question.kind)}**: the one above, {measure}. It begins",
        fenced(approval_text.beginning(question.command, _SHOWN_AGAIN)),
        fenced("\n".join(line[:_SHOWN_AGAIN] for line in facts)),
        _how(question, buttons=buttons),
    ])  # fmt: skip
    return "\n\n".join(_asked(question, who=who)), again


def _asked(question: ApprovalQuestion, *, who: str) -> list[str]:
    shown = [f"**{approval_text.heading(question.kind)}**", fenced("\n".join(approval_text.exactly(question.command)))]
    if question.content:
        shown.append(fenced(question.content))
    return [*shown, fenced("\n".join(_lines(approval_text.facts(question, whom=who))))]


def _lines(facts: list[tuple[str, str]]) -> list[str]:
    return [f"{name:<7} {value}" for name, value in facts]


def _how(question: ApprovalQuestion, *, buttons: bool) -> str:
    allow = [_TYPED.get(choice, choice) for choice in question.choices if choice != "deny"]
    offered = f"`/approve {question.id} {'|'.join(allow)}` or `/deny {question.id}`"
    if buttons:
        return f"Or reply to this message with yes (once) or no, or send {offered}"
    grants = [f"{_TYPED.get(one, one)}: {question.label(one)}" for one in question.choices if one != "deny"]
    return "\n\n".join([fenced("\n".join(grants)), f"Reply: {offered}"])


def settled(question: ApprovalQuestion, *, who: str, outcome: str, brief: bool = False) -> str:
    """The text that replaces a closed question."""
    lines = (
        [approval_text.beginning(question.command, _SHOWN_AGAIN)] if brief else approval_text.exactly(question.command)
    )
    command = fenced("\n".join(lines))
    return f"**{approval_text.heading(question.kind)}**\n\n{command}\n\n{fenced(f'for     {who}')}\n\n→ {outcome}"


def approval_buttons(question: ApprovalQuestion) -> list[list[dict[str, Any]]]:
    return [[notices.button(question.label(one), "approval", question.id, one)] for one in question.choices]


def clarification(question: str, choices: tuple[str, ...], *, buttons: bool) -> str:
    lines = [question.strip()]
    if choices and not buttons:
        lines += ["", *(f"{number}. {choice}" for number, choice in enumerate(choices, start=1)), ""]
        lines.append("Answer with a number or in your own words.")
    return "\n".join(lines)


def clarify_buttons(question_id: str, choices: tuple[str, ...]) -> list[list[dict[str, Any]]]:
    return [[notices.button(brief(one), "clarify", question_id, str(at))] for at, one in enumerate(choices)]


def asked_after(item: OutboxItem) -> int:
    """The newest inbox row when a question was asked. A greater id came after it, whatever the clocks say."""
    return int(item.payload.get("after") or 0)


_LOOKS, _PAUSE = 100, 0.1


async def rewrite(db: SessionDB, adapter: BasePlatformAdapter, item: OutboxItem, text: str, *, end: str) -> None:
    """Edit a question's message, if the platform can edit. If it took several parts, the last one shows only `end`."""
    shown = await sent(db, item) if adapter.supports_edit else None
    if shown is None:
        return
    piece = send_item.pieces(adapter, text if len(shown.platform_ids) == 1 else end)[0]
    chat, message, thread = shown.chat_id, shown.platform_ids[-1], send_item.thread_of(shown.payload)
    await asyncio.sleep(min(adapter.flood.left(chat), db.limits.send_seconds))
    edit = partial(adapter.edit_message, chat, message, piece, thread_id=thread, finalize=True)
    result = await send_item.request(adapter, chat, edit, seconds=db.limits.send_seconds)
    if not result.success:
        extra = {"action": "question_not_rewritten", "trace_id": shown.trace_id, "error": result.error}
        _log.info("a closed question still shows its buttons", extra=extra)


async def sent(db: SessionDB, item: OutboxItem) -> OutboxItem | None:
    """Wait until the item is sent and return it; None when it was not sent."""
    for _ in range(_LOOKS):
        found = await asyncio.to_thread(db.outbox.get, item.id)
        if found is None or found.state not in ("pending", "sending"):
            return found if found is not None and found.state == "sent" and found.platform_ids else None
        await asyncio.sleep(_PAUSE)
    return None
