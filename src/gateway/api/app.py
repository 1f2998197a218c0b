"""The paths of the server, on one screen.

A bare router: every handler is its own boundary (`handling`), so the layers of an application, which would catch what
handlers raise and which each request would pay for, are left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.routing import Route, Router, WebSocketRoute
from starlette.websockets import WebSocketClose

from gateway.api import handling, sockets
from gateway.api.asking import Asking
from gateway.api.chat import Chat
from gateway.api.conversations import Conversations
from gateway.api.guard import App, Guard, Receive, Scope, Send
from gateway.api.handling import Handle, Handler
from gateway.api.keys import key_id
from gateway.api.sessions import Sessions
from gateway.api.shapes import ApiError

if TYPE_CHECKING:
    from gateway.api.adapter import ApiAdapter
    from gateway.api.health import Health
    from gateway.run_parts import Parts

DEFAULT_MODEL = "hermes-agent"


def app(parts: Parts, adapter: ApiAdapter, key: str, health: Health) -> App:
    """The whole application of one key, guarded."""
    board = parts.board
    settings, limits = board.settings.api_server, board.db.limits
    conversations = Conversations(board, key_id(key))
    asking = Asking(board, parts.intake, parts.lanes, adapter, conversations)
    chat = Chat(
        asking, conversations, model=settings.model_name or DEFAULT_MODEL, keep_alive=limits.api_keep_alive_seconds
    )
    sessions = Sessions(board, parts.agents, chat, key_id(key))
    paths: tuple[tuple[str, str, Handle], ...] = (  # looked through in this order
        ("POST", "/v1/chat/completions", chat.completions),
        ("GET", "/health", health.alive),
        ("GET", "/v1/health", health.alive),
        ("GET", "/readyz", health.ready),
        ("GET", "/health/detailed", health.detailed),
        ("GET", "/metrics", health.metrics),
        ("GET", "/v1/models", chat.models),
        ("GET", "/v1/models/{model:path}", chat.one_model),
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
    routes = [
        *(
            _Path(path, Handler(f"{method} {path}", handle, board.metrics), methods=[method])
            for method, path, handle in paths
        ),
        *(WebSocketRoute(path, handle) for path, handle in sockets.over(parts).items()),
    ]
    return Guard(
        Router(routes, default=_no_path), key=key, settings=settings, body_bytes=limits.api_body_bytes,
        refused=lambda status: board.metrics.requests("refused", str(status)).inc(),
    )  # fmt: skip


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
