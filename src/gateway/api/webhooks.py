"""Webhooks of platforms: requests without an API key, which the platform's adapter verifies.

The guard has checked the Host and limits the body. The body is read, up to `limits.webhook_body_bytes`; then `verify`
gets the raw bytes; only then the handler is called. The inbox recognises a repeated message by its id. When the store
fails, the sender gets a 503 and tries again.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from gateway.api.auth import App
from gateway.api.openai_wire import ApiError
from gateway.platforms.context import PREFIX, WebhookRequest, WebhookResponse, WebhookRoutes
from hermes_cli import plugins
from hermes_state.errors import StateError

if TYPE_CHECKING:
    from hermes_config.limits import Limits

_log = logging.getLogger("hermes.gateway")
_HANDLER_SECONDS = 30.0


class WebhookHandlers:
    def __init__(self, routes: WebhookRoutes, limits: Limits) -> None:
        self._routes, self._limits = routes, limits

    async def handle(self, request: Request) -> App:
        found = self._routes.find(request.url.path)
        if found is None:
            raise ApiError(404, "there is nothing at this path", code="unknown_path")
        verify, handler, rest = found
        platform = request.url.path.removeprefix(PREFIX).partition("/")[0]
        asked = WebhookRequest(
            method=request.method, path=rest, query=dict(request.query_params), headers=dict(request.headers),
            body=await self._body(request),
        )  # fmt: skip
        try:
            genuine = verify(asked) is True
        except Exception as error:  # noqa: BLE001 - boundary: an adapter; what cannot be verified is refused
            _complain(platform, "cannot verify a request", error)
            genuine = False
        if not genuine:
            raise ApiError(401, "this request has no valid signature", code="not_verified")
        try:
            async with asyncio.timeout(_HANDLER_SECONDS):
                answer: WebhookResponse = await handler(asked)
            return Response(answer.body, answer.status, media_type=answer.content_type)
        except StateError:
            raise
        except Exception as error:  # boundary: an adapter
            _complain(platform, "its handler failed", error)
            raise ApiError(500, f"the webhook of {platform} failed", code="webhook_failed") from error

    async def _body(self, request: Request) -> bytes:
        """All of it. Anybody can send one, without a key, so one that comes in drops is not waited for."""
        most, body = self._limits.webhook_body_bytes, bytearray()
        try:
            async with asyncio.timeout(self._limits.api_body_seconds):
                async for part in request.stream():
                    body += part
                    if len(body) > most:
                        raise ApiError(413, f"the body is larger than {most} bytes", code="body_too_large")
        except ClientDisconnect:
            raise ApiError(400, "the body did not arrive", code="no_body") from None
        except TimeoutError:
            raise ApiError(408, "the body did not arrive in time", code="no_body") from None
        return bytes(body)


def _complain(platform: str, what: str, error: Exception) -> None:
    place = plugins.execution.where(error)
    _log.warning("a webhook of %s: %s (%s)", platform, what, place, extra={"action": "webhook", "platform": platform})
