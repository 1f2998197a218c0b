"""Who can be asked for permission, and where: the owner or a named approver, each in their own private chat.

The rule itself is `authorisation.approvers`; here the people it names become places that can be written to: the private
chat whose id follows from theirs, or the one they last wrote from. Whoever asked and may decide is asked right there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gateway import authorisation
from gateway.config import Platform
from gateway.intake import source_of
from gateway.prepared import clean_name
from hermes_agent import context
from hermes_state.ids import PersonId, SessionKey

if TYPE_CHECKING:
    from gateway.authorisation import Policy, Principal
    from gateway.board import Board
    from gateway.entries import SessionSource
    from gateway.lanes import Lanes
    from gateway.platforms.base import BasePlatformAdapter
    from gateway.running import Running

Adapters = Mapping[Platform, "BasePlatformAdapter"]
_MOST = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """The turn that asks: where, and for whom."""

    running: Running
    source: SessionSource
    account: str
    person_id: PersonId | None

    @property
    def who(self) -> str:
        """The name for people, the id for certainty."""
        name = clean_name(self.source.user_name) or "somebody"
        return f"{name} ({self.source.platform.value}:{self.source.user_id or 'unknown'})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A private chat in which somebody is asked."""

    key: str
    """Of the person, for the question's key: nobody is asked twice."""
    name: str
    adapter: BasePlatformAdapter
    chat_id: str
    thread_id: str | None = None
    here: bool = False
    """It is the chat of the turn itself."""


def asking(lanes: Lanes, adapters: Adapters) -> Asking | None:
    """The turn this is called from, by the identity it is bound to; None outside of a lane's turn."""
    bound = context.current()
    identity = None if bound is None else bound.identity
    running = None if identity is None else lanes.running(SessionKey(identity.session_key))
    if running is None:
        return None
    rows = running.work.inbox if running.work is not None and running.work.inbox else running.rows
    if rows:
        last = rows[-1]
        return Asking(running=running, source=source_of(last), account=last.account, person_id=last.person_id)
    adapter = adapters.get(running.source.platform)
    account = "" if adapter is None else adapter.account
    return Asking(running=running, source=running.source, account=account, person_id=running.person_id)


async def places(board: Board, adapters: Adapters, turn: Asking, question: authorisation.Question) -> list[Place]:
    """Where to ask, best first; nothing when nobody can be reached."""
    policy = await board.policy.fresh()
    return await asyncio.to_thread(_places, board, adapters, turn, question, policy)


def _places(
    board: Board, adapters: Adapters, turn: Asking, question: authorisation.Question, policy: Policy
) -> list[Place]:
    source, adapter = turn.source, adapters.get(turn.source.platform)
    principal = authorisation.principal_of(source, account=turn.account)
    surface = authorisation.surface_of(source, account=turn.account)
    own = authorisation.decide(principal, surface, "approve", question, policy)
    if own.allowed and adapter is not None:
        key, name = _named(board, principal, own.person_id)
        return [
            Place(
                key=key, name=name, adapter=adapter, chat_id=str(source.chat_id), thread_id=source.thread_id, here=True
            )
        ]
    found: dict[str, Place] = {}
    for who in authorisation.approvers(question, policy):
        place = _private(board, adapters, who, policy)
        if place is not None and len(found) < _MOST:
            found.setdefault(place.key, place)
    return list(found.values())


def _private(board: Board, adapters: Adapters, who: Principal, policy: Policy) -> Place | None:
    """The private chat of somebody who may decide, on a platform that we are on."""
    platform = Platform.find(who.platform)
    adapter = None if platform is None else adapters.get(platform)
    if adapter is None or who.account not in ("", adapter.account):
        return None
    known = policy.known(who)
    person_id = None if known is None else known.person_id
    chat_id = adapter.private_chat(who.native_id) or _last_chat(board, who, person_id)
    if chat_id is None:
        return None
    key, name = _named(board, who, person_id)
    return Place(key=key, name=name, adapter=adapter, chat_id=chat_id)


def _last_chat(board: Board, who: Principal, person_id: PersonId | None) -> str | None:
    """Where they last talked to us in private."""
    if person_id is None:
        return None
    rows = board.db.list_sessions_rich(
        owner=person_id, source=who.platform, order_by_last_active=True, limit=20, min_message_count=1
    )
    mine = (row for row in rows if row.get("chat_type") == "dm" and row.get("user_id") == who.native_id)
    return next((str(row["chat_id"]) for row in mine if row.get("chat_id")), None)


def _named(board: Board, who: Principal, person_id: PersonId | None) -> tuple[str, str]:
    person = None if person_id is None else board.db.people.get(person_id)
    name = "" if person is None else clean_name(person.display_name)
    return str(person_id or ":".join(who.key)), f"{name or 'the owner'} ({who.platform}:{who.native_id})"
