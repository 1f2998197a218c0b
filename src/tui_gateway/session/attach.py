"""Decide who drives a conversation: this process, or the gateway that serves its chat.

One conversation has one driver. When a gateway runs on the home and a private chat of the owner leads to the
conversation, a prompt typed here becomes a row of the gateway's inbox, exactly like a message from that chat; `follow`
reads the results from the store. The decision is made anew at each prompt, so a gateway that starts later takes over at
the next turn, and one that has ended leaves the conversation to us. A turn that it left unfinished is then finished
here, and its answer stays in the outbox of its chat: the next gateway sends it.

Limits: conversations of groups, of other people, of the API and of terminals are driven here, under their lease; only
text can be handed to a gateway.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gateway import status
from gateway.access import authorisation
from gateway.config import Platform, load_gateway_config
from gateway.inbound import terminal_messages
from gateway.inbound.stored_message import source_of
from gateway.routes.source import SessionSource
from gateway.turns import reply
from hermes_agent.turn.request import TurnEnd, TurnRequest
from hermes_config import config as configuration
from hermes_state.conversations.routes import Routes
from hermes_state.ids import LOCAL_OWNER, PersonId, SessionKey

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gateway.access.policy import PolicyKeeper
    from hermes_agent.prompt.transcript import Content
    from hermes_state import SessionDB
    from hermes_state.conversations.routes import Route
    from hermes_state.turns.inbox import InboxRow
    from hermes_state.turns.outbox import NewOutboxItem
    from hermes_state.turns.turns import Work

_NO_CHATS = (Platform.API_SERVER, Platform.LOCAL)


@dataclass(frozen=True, slots=True)
class ServedChat:
    """The chat through which a running gateway serves a conversation."""

    source: SessionSource
    person: PersonId

    def hand_in(
        self, db: SessionDB, content: Content, *, instead_of: Sequence[int] = (), key: str | None = None
    ) -> InboxRow:  # fmt: skip
        """Store a prompt for the gateway, which answers it, also after a restart. `instead_of`: rows it replaces."""
        home = configuration.load_or_last_good()[0].home
        return terminal_messages.hand_in(
            db, self.source, content, home=home, person_id=self.person, instead_of=instead_of, key=key
        )  # fmt: skip


def served(db: SessionDB, session_id: str, policy: PolicyKeeper) -> ServedChat | None:
    """The chat whose gateway drives this conversation now; None when this process does."""
    config = configuration.load_or_last_good()[0]
    if not status.is_running(config.home):
        return None
    route = _route(db, session_id)
    source = None if route is None else _source(route)
    if route is None or source is None or source.chat_type != "dm" or source.platform in _NO_CHATS:
        return None
    names = {one.name for one in status.read_status(config.home).platforms}
    if source.platform.value not in names or terminal_messages.route_of(source) != route.session_key:
        return None
    if authorisation.role_of(source, policy.current()) != "owner":
        return None
    return ServedChat(source, db.ledger.owner(db.get_conversation_root(session_id)) or LOCAL_OWNER)


def turn_request(
    db: SessionDB,
    session_id: str | None,
    *,
    began: Callable[[Work], None] = lambda work: None,
    claim: tuple[int, ...] = (),
    lane: SessionKey | None = None,
) -> TurnRequest:
    """A turn at a terminal: it has no route, so its answer goes to no chat. `claim`: its prompts, in this `lane`.

    An unfinished turn that it recovers may belong to a chat.
    """
    sources = {} if session_id is None else _running_sources(db, session_id)

    def make_reply(work: Work, ending: TurnEnd) -> NewOutboxItem | None:
        if work.turn.route is None:
            return None
        source = source_of(work.inbox[-1]) if work.inbox else sources.get(work.turn.route)
        # The chat's present content is unknown here; the delivery replaces it with the answer.
        return reply.make_reply(work, ending, source=source, shown=ending.text or "")

    return TurnRequest(route=None, claim=claim, lane=lane, make_reply=make_reply, began=began, person_id=LOCAL_OWNER)


def has_route(db: SessionDB, session_id: str) -> bool:
    """Whether a route leads here: then a terminal that leaves does not end the conversation."""
    return _route(db, session_id) is not None


def chat_platform(db: SessionDB, session_id: str) -> str:
    """The platform of the conversation's present or former chat; empty without one."""
    route, row = _route(db, session_id), db.get_session(session_id)
    source = None if route is None else _source(route)
    platform = Platform.find((row or {}).get("source")) if source is None else source.platform
    return "" if platform is None or platform in _NO_CHATS else platform.value


def _running_sources(db: SessionDB, session_id: str) -> dict[SessionKey, SessionSource]:
    """The sources of the conversation's running turns, also of those whose process died."""
    root = db.get_conversation_root(session_id)
    keys = [turn.route for turn in db.turns.running() if turn.conversation_id == root and turn.route is not None]
    found = [(key, _routes(db).look(key)) for key in keys]
    return {key: source for key, route in found if route is not None and (source := _source(route)) is not None}


def _routes(db: SessionDB) -> Routes:
    config = configuration.load_or_last_good()[0]
    return Routes(db, load_gateway_config(config).sessions_dir.name)


def _route(db: SessionDB, session_id: str) -> Route | None:
    routes = _routes(db)
    key = routes.of_session(db.get_compression_tip(session_id))
    return None if key is None else routes.look(key)


def _source(route: Route) -> SessionSource | None:
    origin = route.entry.get("origin")
    if not isinstance(origin, dict) or Platform.find(origin.get("platform")) is None or origin.get("chat_id") is None:
        return None
    return SessionSource.from_dict(origin)
