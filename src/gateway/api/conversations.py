"""Finds the conversation of an API request.

A client that names its conversation (`X-Hermes-Session-Id`) gets that one, among those of its own key: its stored
history counts, and only the request's last message is new. A client that sends the whole history each time names none;
then the conversation is the one with exactly that history. A fingerprint of the history finds it, in memory for
conversations used lately and by comparison with the store for the rest. An edited history, or one that differs from an
earlier point on, is a new conversation that begins with it.

An API conversation is a route of the platform `api_server`: its chat is `<id of the key>/<name>` for an owner key and
`client/<id of the key>/<name>` for a client key. So a key that changes its role leads to none of its old conversations.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
from collections import OrderedDict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from gateway.api.bodies import Asked, RequestMessage
from gateway.config import Platform
from gateway.routes.source import SessionSource
from hermes_state import SessionDB, columns
from hermes_state.conversations import transcript
from hermes_state.ids import SessionId, SessionKey
from hermes_state.storage.writer import look

if TYPE_CHECKING:
    from gateway.api.auth import KeyRole
    from gateway.services import Services


_ALIKE = 16
"""How many conversations with the same first message are found by their history after a restart; beyond them a client
continues in a copy."""


class ApiConversation(NamedTuple):
    """The conversation of a request."""

    name: str
    source: SessionSource
    route: SessionKey

    @property
    def chat_id(self) -> str:
        return str(self.source.chat_id)


class Conversations:
    """The conversations of one key."""

    def __init__(self, services: Services, key_id: str, role: KeyRole) -> None:
        self._services, self._key_id = services, key_id
        self._chats = f"{key_id}/" if role == "owner" else f"client/{key_id}/"
        self._at: OrderedDict[str, str] = OrderedDict()
        """The fingerprint of each conversation's history, by name; the most recently used is last."""
        self._names: dict[str, str] = {}
        """The name of the conversation, by fingerprint."""

    def owns(self, chat_id: str) -> bool:
        """Whether a chat of the API is one of this key's."""
        return chat_id.startswith(self._chats)

    def of_name(self, name: str) -> ApiConversation:
        source = SessionSource(
            platform=Platform.API_SERVER, chat_id=f"{self._chats}{name}", chat_type="dm", user_id=self._key_id,
            user_name="API",
        )  # fmt: skip
        return ApiConversation(name, source, self._services.store.key(source))

    async def of_request(self, asked: Asked, name: str | None, key: str | None) -> ApiConversation:
        """The conversation of a request that names one or sends its history."""
        if name is not None:
            return await self.named(name, asked)
        found = await self.continued(asked)
        if key is None:
            return found or await self.begun(asked)
        # A repetition has to find the first one, whatever was said there since: the key has a conversation of its own.
        return await self.once(asked, once_name(key), found)

    # -- by name -------------------------------------------------------------------------------------------

    async def named(self, name: str, asked: Asked) -> ApiConversation:
        """The conversation with the client's name. A new one begins with the request's history."""
        conversation = self.of_name(name)
        self._moved(name)
        await self._open(conversation, asked.earlier)
        return conversation

    # -- by what was said ----------------------------------------------------------------------------------

    async def continued(self, asked: Asked) -> ApiConversation | None:
        """The conversation with exactly this history. A concurrent request with the same history gets another one."""
        if not asked.earlier:
            return None
        name = self._names.get(_fingerprint(asked.system, asked.earlier))
        if name is not None:
            self._moved(name)
            return self.of_name(name)
        wanted = _exchanges((said.role, said.text) for said in asked.earlier)
        for conversation in map(self.of_name, _names(asked)):
            if conversation.name in self._at:
                continue
            self._moved(conversation.name)  # from here on nobody else takes it
            session_id = await self._session(conversation)
            if session_id is not None and await asyncio.to_thread(self._stored, session_id) == wanted:
                return conversation
            self._drop(conversation.name)
            if session_id is None:
                return None
        return None

    async def begun(self, asked: Asked, name: str | None = None) -> ApiConversation:
        """A new conversation that begins with the request's history."""
        conversation = self.of_name(await self._free(asked) if name is None else name)
        if not await self._open(conversation, asked.earlier) and name is None:  # another process was quicker
            conversation = self.of_name(_unlike(conversation.name))
            await self._open(conversation, asked.earlier)
        return conversation

    async def once(self, asked: Asked, name: str, found: ApiConversation | None) -> ApiConversation:
        """The conversation of a repeatable request: the one that was found, or a new one.

        The first request opens it; a repetition always goes to the same one.
        """
        if found is None:
            return await self.begun(asked, name)
        conversation = self.of_name(name)
        if await self._session(conversation) is None:
            await self.point(conversation, await self.session(found), only_new=True)
        return conversation

    async def _free(self, asked: Asked) -> str:
        """A name that no conversation has."""
        for name in _names(asked):
            if name in self._at:
                continue
            self._moved(name)  # from here on nobody else takes it
            if await self._session(self.of_name(name)) is None:
                return name
            self._drop(name)
        return _unlike(name)

    def answered(self, name: str, asked: Asked, *answers: str) -> None:
        """Record the new history; a client may have read the answer in more than one form."""
        self._moved(name)
        for answer in dict.fromkeys(answers):
            mark = _fingerprint(asked.system, (*asked.earlier, asked.said, RequestMessage("assistant", answer)))
            self._names[mark] = name
            self._at[name] = f"{self._at[name]} {mark}".strip()

    def _moved(self, name: str) -> None:
        """Forget the fingerprint of a conversation that has new messages."""
        self._drop(name)
        self._at[name] = ""
        while len(self._at) > self._services.db.limits.api_conversations:
            self._drop(next(iter(self._at)))

    def _drop(self, name: str) -> None:
        for mark in self._at.pop(name, "").split():
            self._names.pop(mark, None)

    # -- by id ---------------------------------------------------------------------------------------------

    async def of_session(self, row: dict[str, Any]) -> ApiConversation:
        """The route to a stored conversation of any platform."""
        chat, own = str(row.get("chat_id") or ""), self._chats
        if row["source"] == Platform.API_SERVER.value and chat.startswith(own):
            conversation = self.of_name(chat.removeprefix(own))
            if await self._leads_to(conversation, row["root_id"]):
                self._moved(conversation.name)
                return conversation
        # No name that a client may choose begins like this.
        conversation = self.of_name(f"~{hashlib.sha256(str(row['root_id']).encode()).hexdigest()[:24]}")
        if not await self._leads_to(conversation, row["root_id"]):
            await self.point(conversation, SessionId(row["id"]))
        return conversation

    async def point(self, conversation: ApiConversation, session_id: SessionId, *, only_new: bool = False) -> None:
        """Let its route lead to this segment."""
        await asyncio.to_thread(
            self._services.store.lead, conversation.source, conversation.route, session_id, only_new=only_new
        )

    async def _leads_to(self, conversation: ApiConversation, root_id: str) -> bool:
        session_id = await self._session(conversation)
        if session_id is None:
            return False
        return await look(self._services.db, self._services.db.get_conversation_root, session_id) == root_id

    async def session(self, conversation: ApiConversation) -> SessionId:
        """The newest segment; a new one if there is none."""
        return (await self._services.store.aresolve(conversation.source, conversation.route)).handle.session_id

    async def _session(self, conversation: ApiConversation) -> SessionId | None:
        found = await look(self._services.db, self._services.store.peek_session_id, conversation.route)
        return None if found is None else SessionId(found)

    # -- history -------------------------------------------------------------------------------------------

    async def _open(self, conversation: ApiConversation, earlier: tuple[RequestMessage, ...]) -> bool:
        """Open a conversation with this history on an unused route; False when the route is in use.

        It is one transaction, so that neither a failure nor a concurrent request can lose or repeat the history.
        """
        if not earlier:
            return True
        if await self._session(conversation) is not None:
            return False
        rows = [{"role": said.role, "content": said.text} for said in earlier if said.text]
        return (
            await asyncio.to_thread(self._services.store.resolve, conversation.source, conversation.route, said=rows)
        ).created

    def _stored(self, session_id: SessionId) -> list[tuple[str, str]]:
        shown = history(self._services.db, session_id)
        return _exchanges((str(row["role"]), columns.text_of(row["content"])) for row in shown)


def once_name(key: str) -> str:
    """The name of the conversation for a repeatable request that names none."""
    return f"once-{hashlib.sha256(key.encode()).hexdigest()[:24]}"


def history(db: SessionDB, session_id: str) -> list[dict[str, Any]]:
    """All messages of a conversation, in all its segments, without those of its parent branch. Blocks."""
    segments = db.get_compression_lineage(db.get_compression_tip(session_id))
    return transcript.without_repeats([row for one in segments for row in db.get_messages_as_conversation(one)])


def _exchanges(said: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """The person's messages and the answers, without the model's texts between tool calls."""
    kept: list[tuple[str, str]] = []
    for role, text in said:
        if role not in ("user", "assistant") or not text.strip():
            continue
        if role == "assistant" and kept and kept[-1][0] == "assistant":
            kept.pop()
        kept.append((role, text.strip()))
    return kept


def _names(asked: Asked) -> list[str]:
    """The names for conversations with the same first message, in the order of use."""
    first = (asked.earlier or (asked.said,))[0]
    name = f"chat-{_digest([asked.system, first.text])[:24]}"
    return [name, *(f"{name}-{number}" for number in range(2, _ALIKE + 1))]


def _unlike(name: str) -> str:
    """The name with a random ending."""
    return f"{name}-{secrets.token_hex(4)}"


def _fingerprint(system: str | None, said: Iterable[RequestMessage]) -> str:
    return _digest([system, [(one.role, one.text.strip(), len(one.pictures)) for one in said]])


def _digest(facts: list[Any]) -> str:
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()
