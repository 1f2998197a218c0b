"""The paths of the server, on one screen. Each key has an application of its own, with its own conversations.

A bare router: every handler is its own boundary (`handling`), so the layers of an application, which would catch what
handlers raise and which each request would pay for, are left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from starlette.routing import BaseRoute, Route, Router, WebSocketRoute
from starlette.websockets import WebSocketClose

from gateway import authorisation
from gateway.api import handling, sockets
from gateway.api.asking import Asking
from gateway.api.chat import Chat
from gateway.api.conversations import Conversations
from gateway.api.guard import App, Receive, Scope, Send
from gateway.api.handling import Handle, Handler
from gateway.api.keys import KeyRole, key_id
from gateway.api.sessions import Sessions
from gateway.api.shapes import ApiError

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.websockets import WebSocket

    from gateway.api.adapter import ApiAdapter
    from gateway.api.health import Health
    from gateway.run_parts import Parts

DEFAULT_MODEL = "hermes-agent"


def bare(parts: Parts, health: Health) -> App:
    """What is answered without a key."""
    paths: tuple[tuple[str, str, Handle], ...] = (
        ("GET", "/health", health.alive),
        ("GET", "/v1/health", health.alive),
        ("GET", "/readyz", health.ready),
    )
    return Router(_routes(parts, paths), default=_no_path)


def app(parts: Parts, adapter: ApiAdapter, role: KeyRole, key: str, health: Health) -> App:
    """The whole application of one key. The guard has compared the key."""
    board = parts.board
    settings, limits = board.settings.api_server, board.db.limits
    conversations = Conversations(board, key_id(key), role)
    asking = Asking(board, parts.intake, parts.lanes, adapter, conversations)
    chat = Chat(
        asking, conversations, model=settings.model_name or DEFAULT_MODEL, keep_alive=limits.api_keep_alive_seconds
    )
    sessions = Sessions(board, parts.agents, chat, key_id(key))

    async def is_shut_out() -> bool:
        who, where = authorisation.api_client(key_id(key))
        return not authorisation.decide(who, where, "speak", None, await board.policy.fresh()).allowed

    def checked(handle: Handle) -> Handle:
        """For what asks nobody else whether the key was shut out by hand."""

        async def handled(request: Request) -> App:
            if await is_shut_out():
                raise ApiError(403, "this key opens nothing here", code="not_allowed")
            return await handle(request)

        return handled

    def checked_socket(handle: sockets.Handle) -> sockets.Handle:
        async def handled(socket: WebSocket) -> None:
            if await is_shut_out():
                await socket.close()
            else:
                await handle(socket)

        return handled

    paths: tuple[tuple[str, str, Handle], ...] = (  # looked through in this order
        ("POST", "/v1/chat/completions", chat.completions),
        ("GET", "/health/detailed", checked(health.detailed)),
        ("GET", "/metrics", checked(health.metrics)),
        ("GET", "/v1/models", checked(chat.models)),
        ("GET", "/v1/models/{model:path}", checked(chat.one_model)),
        ("GET", "/api/sessions", sessions.listing),
        ("POST", "/api/sessions", sessions.create),
        ("GET", "/api/sessions/{id}", sessions.show),
        ("PATCH", "/api/sessions/{id}", sessions.rename),
        ("DELETE", "/api/sessions/{id}", sessions.delete),
        ("GET", "/api/sessions/{id}/messages", sessions.messages),
        ("POST", "/api/sessions/{id}/chat", sessions.chat),
        ("POST", "/api/sessions/{id}/chat/stream", sessions.chat_stream),
        ("POST", "/api/sessions/{id}/compress", sessions.compress),
        ("POST", "/api/sessions/{id}/fork", sessions.fork),
    )
    sockets_here = sockets.over(parts) if role == "owner" else {}
    opened = [WebSocketRoute(path, checked_socket(handle)) for path, handle in sockets_here.items()]
    return Router([*_routes(parts, paths), *opened], default=_no_path)


def _routes(parts: Parts, paths: Iterable[tuple[str, str, Handle]]) -> list[BaseRoute]:
    metrics = parts.board.metrics
    return [
        _Path(path, Handler(f"{method} {path}", handle, metrics), methods=[method]) for method, path, handle in paths
    ]


class _Path(Route):
    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.methods and scope["method"] not in self.methods:
            refusal = handling.refusal(ApiError(405, "this path does not take that method", code="wrong_method"))
            await refusal(scope, receive, send)
        else:
            await self.app(scope, receive, send)


async def _no_path(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await WebSocketClose()(scope, receive, send)
        return
    await handling.refusal(ApiError(404, "there is nothing at this path", code="unknown_path"))(scope, receive, send)
