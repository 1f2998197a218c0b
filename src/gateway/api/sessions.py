"""`/api/sessions`: the conversations of the key's person, on all platforms.

Every query is made for that person: another person's conversation gets the same answer as a missing one. A conversation
has the id of its first segment, which never changes; the id of any of its segments finds it.
"""

from __future__ import annotations

import asyncio
import dataclasses
import secrets
from typing import TYPE_CHECKING, Any

from starlette.requests import Request

from gateway.access import authorisation
from gateway.api import bodies, error_boundary
from gateway.api.auth import App, key_of
from gateway.api.bodies import Asked, RequestMessage
from gateway.api.conversations import history
from gateway.api.openai_wire import ApiError
from hermes_agent import hooks
from hermes_state import columns
from hermes_state.errors import ConversationHeld
from hermes_state.ids import ConversationId, PersonId, SessionId, is_possible_id

if TYPE_CHECKING:
    from gateway.api.chat import ChatHandlers
    from gateway.services import Services
    from gateway.turns.agents import Agents
    from hermes_state import SessionDB

_SHOWN = (
    "title", "source", "model", "preview", "started_at", "last_active", "message_count", "tool_call_count",
    "input_tokens", "output_tokens", "archived",
)  # fmt: skip
_SAID = ("role", "content", "timestamp", "tool_calls", "tool_call_id", "tool_name", "finish_reason")
_PAGE = 20


class SessionHandlers:
    def __init__(self, services: Services, agents: Agents, chat: ChatHandlers) -> None:
        self._services, self._agents, self._chat, self._db = services, agents, chat, services.db

    # -- reading ---------------------------------------------------------------------------------------------

    async def listing(self, request: Request) -> App:
        """List conversations by `limit` and `offset`; `q` searches messages, `title` titles and ids."""
        person = await self._person(request)
        limit = bodies.whole(request, "limit", _PAGE, least=1, most=self._db.limits.api_page)
        offset = bodies.whole(request, "offset", 0, least=0, most=10**9)
        words = request.query_params.get("q")
        if words is not None:
            found, more = await asyncio.to_thread(searched, self._db, person, words, limit, offset)
        else:
            title = request.query_params.get("title")
            found = await asyncio.to_thread(listed, self._db, person, title, limit + 1, offset)
            more = len(found) > limit
        return error_boundary.reply({"object": "list", "data": found[:limit], "has_more": more})

    async def show(self, request: Request) -> App:
        return error_boundary.reply(_shown(await self._mine(request)))

    async def messages(self, request: Request) -> App:
        row = await self._mine(request)
        limit = bodies.whole(request, "limit", self._db.limits.api_page, least=1, most=self._db.limits.api_page)
        offset = bodies.whole(request, "offset", 0, least=0, most=10**9)
        said = await asyncio.to_thread(history, self._db, row["id"])
        page = [{name: one[name] for name in _SAID if name in one} for one in said[offset : offset + limit]]
        more = len(said) > offset + limit
        return error_boundary.reply({"object": "list", "data": page, "total": len(said), "has_more": more})

    # -- changing --------------------------------------------------------------------------------------------

    async def create(self, request: Request) -> App:
        await self._person(request)
        body = await bodies.body_of(request)
        name = body.get("name")
        chosen = f"s-{secrets.token_hex(8)}" if name is None else bodies.checked_name(name, param="name")
        title = self._title(body)
        conversations = key_of(request).conversations
        session_id = await conversations.session(conversations.of_name(chosen))
        if title:
            await asyncio.to_thread(self._db.set_session_title, session_id, title)
        row = await asyncio.to_thread(self._row, session_id)
        assert row is not None, "it was opened a moment ago"
        return error_boundary.reply({**_shown(row), "name": chosen}, 201)

    async def rename(self, request: Request) -> App:
        row = await self._mine(request)
        body = await bodies.body_of(request)
        if "title" not in body:
            raise ApiError(400, "title is missing", code="invalid_value", param="title")
        await asyncio.to_thread(self._db.set_session_title, row["id"], self._title(body))
        renamed = await asyncio.to_thread(self._row, row["id"])
        return error_boundary.reply(_shown(renamed or row))

    async def delete(self, request: Request) -> App:
        row = await self._mine(request)
        root = ConversationId(row["root_id"])
        try:
            await asyncio.to_thread(self._db.ledger.delete, row["id"])
        except ConversationHeld as error:
            raise ApiError(409, error.in_chat(), code="conversation_busy") from error
        self._agents.evict(root)
        await hooks.conversation_left(session_id=SessionId(row["id"]), platform=str(row["source"]))
        return error_boundary.reply({"object": "hermes.session.deleted", "id": root, "deleted": True})

    async def fork(self, request: Request) -> App:
        row = await self._mine(request)
        title = self._title(await bodies.body_of(request))
        handle = await asyncio.to_thread(self._db.ledger.branch, row["id"], title=title)
        new = await asyncio.to_thread(self._row, handle.session_id)
        assert new is not None, "it was made a moment ago"
        return error_boundary.reply(_shown(new), 201)

    # -- going on --------------------------------------------------------------------------------------------

    async def chat(self, request: Request) -> App:
        return await self._asked(request, stream=False)

    async def chat_stream(self, request: Request) -> App:
        return await self._asked(request, stream=True)

    async def compress(self, request: Request) -> App:
        """Compress a conversation, as `/compress` does in a chat, and return the result."""
        row = await self._mine(request)
        focus = bodies.text_field(await bodies.body_of(request), "focus") or ""
        asked = Asked(said=RequestMessage("user", f"/compress {' '.join(focus.split())}".rstrip()))
        return await self._put(request, row, asked)

    async def _asked(self, request: Request, *, stream: bool) -> App:
        row = await self._mine(request)
        asked = await bodies.read(await bodies.raw_body(request), bodies.one_message)
        return await self._put(request, row, dataclasses.replace(asked, stream=stream))

    async def _put(self, request: Request, row: dict[str, Any], asked: Asked) -> App:
        conversation = await key_of(request).conversations.of_session(row)
        exchange = await self._chat.ask(conversation, asked)
        return await self._chat.answer(request, conversation, asked, exchange)

    # -- whose -----------------------------------------------------------------------------------------------

    async def _person(self, request: Request) -> PersonId:
        """The person of the key, by the current policy."""
        who, where = authorisation.api_client(key_of(request).id)
        decision = authorisation.decide(who, where, "speak", None, await self._services.policy.fresh())
        if not decision.allowed or decision.person_id is None:
            raise ApiError(403, "this key has no access here", code="not_allowed")
        return decision.person_id

    async def _mine(self, request: Request) -> dict[str, Any]:
        person = await self._person(request)
        wanted = request.path_params["id"]
        row = await asyncio.to_thread(self._row, wanted) if is_possible_id(wanted) else None
        if row is None or await asyncio.to_thread(self._db.ledger.owner, row["root_id"]) != person:
            raise ApiError(404, "there is no such conversation", code="session_not_found")
        return row

    def _row(self, session_id: str) -> dict[str, Any] | None:
        return _newest(self._db, session_id)

    def _title(self, body: dict[str, Any]) -> str | None:
        return columns.sanitize_title(bodies.text_field(body, "title"))


def listed(
    db: SessionDB, owner: PersonId | None, title: str | None, limit: int, offset: int
) -> list[dict[str, Any]]:  # fmt: skip
    """A page of a person's conversations, newest activity first; everybody's without an owner. Blocks."""
    rows = db.list_sessions_rich(
        owner=owner, order_by_last_active=True, search_query=title or None, limit=limit, offset=offset
    )
    return [_shown(row) for row in rows]


def searched(
    db: SessionDB, owner: PersonId | None, words: str, limit: int, offset: int
) -> tuple[list[dict[str, Any]], bool]:  # fmt: skip
    """A page of the conversations in which these words were said, each with its `matches`; whether there are more."""
    found: dict[str, dict[str, Any]] = {}
    hits = db.search_messages(words, owner=owner, limit=limit + 1, offset=offset)
    for hit in hits[:limit]:
        row = _newest(db, hit["session_id"])
        if row is not None:
            entry = found.setdefault(row["root_id"], {**_shown(row), "matches": []})
            entry["matches"].append({name: hit[name] for name in ("id", "role", "snippet", "timestamp")})
    return [*found.values()], len(hits) > limit


def _newest(db: SessionDB, session_id: str) -> dict[str, Any] | None:
    return db.get_session(db.get_compression_tip(session_id))


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    facts = {name: row.get(name) for name in _SHOWN}
    return {"object": "hermes.session", "id": row["root_id"], "session_id": row["id"], **facts}
