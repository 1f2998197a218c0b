"""`/mcp`: the MCP server over streamable HTTP, for the API's keys; off unless `api_server.mcp` is set.

The guard has checked key, Host, Origin and size before a request comes here. A message of an agent is a message of the
API: the intake stores it for the key's person, a lane runs its turn. The SDK is imported in a thread at the first
request, and one task owns its sessions: starlette does not run the lifespan of an application inside another.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import secrets
from typing import TYPE_CHECKING, Any

from gateway.access import authorisation
from gateway.api.auth import App, Receive, Scope, Send, key_of
from gateway.api.bodies import Asked, RequestMessage
from gateway.api.conversations import once_name
from gateway.api.openai_wire import ApiError
from gateway.config import Platform
from gateway.mcp_server.asks import CANCELLED, AskRefused
from hermes_config import version
from hermes_state.storage.writer import look

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
    from starlette.requests import Request

    from gateway.access.authorisation import Policy
    from gateway.api.auth import ApiKey
    from gateway.api.chat import ChatHandlers
    from gateway.api.exchange import ApiAdapter
    from gateway.services import Parts
    from hermes_agent.approvals.types import ApprovalQuestion, Choice
    from hermes_state.ids import PersonId
    from hermes_state.turns.inbox import InboxRow

_log = logging.getLogger("hermes.gateway")


class KeyCaller:
    """The holder of an API key, for one request."""

    def __init__(self, parts: Parts, chat: ChatHandlers, key: ApiKey) -> None:
        self._parts, self._chat, self._key = parts, chat, key
        self.db, self.who = parts.services.db, authorisation.api_client(key.id)

    async def policy(self) -> Policy:
        return await self._parts.services.policy.fresh()

    async def submit(self, message: str, conversation: str | None, key: str | None) -> InboxRow:
        conversations, own = self._key.conversations, None if key is None else f"mcp:{key}"
        if conversation is not None:
            row = await look(self.db, lambda: self.db.get_session(self.db.get_compression_tip(conversation)))
            assert row is not None, "the caller may read it"
            where = await conversations.of_session(row)
        else:
            where = conversations.of_name(f"mcp-{secrets.token_hex(8)}" if own is None else once_name(own))
        digest = None if own is None else hashlib.sha256(json.dumps([message, conversation]).encode()).hexdigest()
        try:
            exchange = await self._chat.ask(where, Asked(said=RequestMessage("user", message)), key=own, digest=digest)
        except ApiError as error:
            said = "this key was used with another message" if error.code == "idempotency_key_reused" else str(error)
            raise AskRefused(said) from error
        self._chat.done(exchange)  # nobody waits for the response of it: the row says what becomes of it
        found = await look(self.db, self.db.inbox.get, exchange.inbox_id)
        assert found is not None, "it was stored a moment ago"
        return found

    def is_own(self, row: InboxRow) -> bool:
        return row.platform == Platform.API_SERVER.value and self._key.conversations.owns(row.chat_id)

    async def follow(self, row: InboxRow) -> None:
        """Nothing to do: the lanes of this gateway work on it."""

    async def cancel(self, row: InboxRow) -> None:
        """Stop the turn of that message, as `/stop` does; other messages of the conversation stay."""
        if not await self._cancelled(row):
            await self._cancelled(row)  # a turn has taken it meanwhile

    async def _cancelled(self, row: InboxRow) -> bool:
        """Stop it as it stands now; False if it was waiting for a turn, and is not any more."""
        lanes = self._parts.lanes
        now = await look(self.db, self.db.inbox.get, row.id)
        turn_id = None if now is None else now.turn_id
        running = None if row.route is None else lanes.running(row.route)
        if running is not None and any(one.id == row.id for one in running.rows):
            running.interrupt(reason=CANCELLED)
        elif turn_id is None:
            return bool(await asyncio.to_thread(self.db.inbox.finish, [row.id], "dropped", reason=CANCELLED))
        elif (turn := await look(self.db, self.db.turns.get, turn_id)) is not None:
            await lanes.close_waiting(turn.conversation_id, CANCELLED)
            await asyncio.to_thread(self.db.turns.ask_to_stop, turn.id, reason=CANCELLED)
        return True

    async def answer(self, question: ApprovalQuestion, choice: Choice, person: PersonId | None) -> None:
        raise AskRefused("a program cannot approve")  # `authorisation` has said so before


class McpHandlers:
    """The path's handler, and the task that owns the SDK's sessions."""

    def __init__(self, parts: Parts, chat: ChatHandlers, adapter: ApiAdapter) -> None:
        self._parts, self._chat, self._adapter = parts, chat, adapter
        self._opening: asyncio.Future[StreamableHTTPSessionManager] | None = None
        self._owner: asyncio.Task[None] | None = None

    async def handle(self, request: Request) -> App:
        if self._owner is None or self._owner.done():
            self._opening = asyncio.get_running_loop().create_future()
            self._owner = asyncio.create_task(self._own(self._opening), name="mcp sessions")
        assert self._opening is not None
        manager = await asyncio.shield(self._opening)
        key = key_of(request)

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
            from mcp.server.auth.provider import AccessToken

            # Blanks around a value are no part of it, but the HTTP parser leaves them, and the SDK compares.
            scope["headers"] = [(name, value.strip(b" \t")) for name, value in scope["headers"]]
            # The SDK binds a session of the older protocol to this user.
            scope["user"] = AuthenticatedUser(AccessToken(token=key.id, client_id=key.id, scopes=[]))
            await manager.handle_request(scope, receive, send)

        return answer

    async def _own(self, opening: asyncio.Future[StreamableHTTPSessionManager]) -> None:
        """Open the server, and close it with the port."""
        try:
            manager = await asyncio.to_thread(self._made)
            async with manager.run():
                opening.set_result(manager)
                await self._adapter.closed.wait()
        except ImportError:
            what = f"the MCP server needs the extra mcp: {version.adding(extra='mcp')}"
            _log.error("%s", what, extra={"action": "mcp_missing"})
            error = ApiError(501, what, code="mcp_not_installed")
        except Exception as failure:  # noqa: BLE001 - boundary: the SDK; the next request opens it again
            _log.exception("the MCP server failed", extra={"action": "mcp_failed"})
            error = ApiError(500, f"the MCP server failed: {type(failure).__name__}", code="mcp_failed")
        else:
            return
        if not opening.done():
            opening.set_exception(error)

    def _made(self) -> StreamableHTTPSessionManager:
        from mcp.server.transport_security import TransportSecuritySettings

        from gateway.mcp_server import tools

        server, limits = tools.make(self._caller), self._parts.services.db.limits
        server.streamable_http_app(
            max_request_body_size=limits.api_body_bytes, session_idle_timeout=limits.mcp_session_seconds,
            max_sessions=limits.mcp_sessions,
            # The guard checks Host and Origin for all paths.
            transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        )  # fmt: skip
        return server.session_manager

    def _caller(self, request: Any) -> KeyCaller:
        return KeyCaller(self._parts, self._chat, key_of(request))
