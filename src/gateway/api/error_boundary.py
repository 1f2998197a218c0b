"""The error boundary of all HTTP paths: calls a handler, and turns its errors into responses.

A handler takes a request and returns an ASGI response; its exceptions become error objects in OpenAI's shape. Requests
are counted by the pattern of their path, never by a client's values in it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from gateway.api import openai_wire
from gateway.api.auth import App, Receive, Scope, Send
from gateway.api.openai_wire import ApiError
from hermes_agent.agent import ConversationBusy
from hermes_config.errors import HermesError
from hermes_state.errors import InvalidValue, SessionNotFound, StateError

if TYPE_CHECKING:
    from gateway.metrics import Metrics

_log = logging.getLogger("hermes.gateway")

Handle = Callable[[Request], Awaitable[App]]


class Handler:
    """An ASGI application around one handler."""

    def __init__(self, path: str, handle: Handle, metrics: Metrics) -> None:
        self._path, self._handle, self._requests = path, handle, metrics.requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        status, request = 0, Request(scope, receive)

        async def counting(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            response = await self._handle(request)
            await response(scope, receive, counting)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # the error boundary of an HTTP handler
            if status:
                raise  # the response has begun: it can only be broken off
            said = refusal(_told(error, self._path), taken=getattr(request.state, "taken", False))
            await said(scope, receive, counting)
        finally:
            self._requests(self._path, str(status)).inc()


def reply(value: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(openai_wire.encoded(value), status, headers, media_type="application/json")


def refusal(error: ApiError, *, taken: bool = False) -> Response:
    """The response for an error. `taken`: the message was stored, so a repeated request would be a second message."""
    # OpenAI's clients repeat a 409 and every 5xx by themselves: a failed turn would run three times, with its tools.
    repeatable = error.status in (429, 503) and not taken
    headers = {"retry-after": "1"} if repeatable else {"x-should-retry": "false"}
    return reply({**error.body(), **error.more}, error.status, headers)


def _told(error: Exception, path: str) -> ApiError:
    if isinstance(error, ApiError):
        return error
    if isinstance(error, SessionNotFound):
        return ApiError(404, "there is no such conversation", code="session_not_found")
    if isinstance(error, ConversationBusy):
        return ApiError(409, error.in_chat(), code="conversation_busy")
    if isinstance(error, InvalidValue):
        return ApiError(400, error.in_chat(), code="invalid_value")
    if isinstance(error, StateError):
        _log.error("the store failed during an API request: %s", error.one_line(), extra={"action": "api_store"})
        return ApiError(503, error.what, code="store_unavailable")
    if isinstance(error, HermesError):
        _log.error("an API request failed: %s", error.one_line(), extra={"action": "api_failed"})
        return ApiError(500, error.in_chat(), code="server_error")
    _log.error("%s failed because of a defect in Hermes", path, exc_info=error, extra={"action": "api_defect"})
    return ApiError(500, f"something went wrong inside Hermes ({type(error).__name__})", code="server_error")
