"""An MCP server over HTTP that wants a login, with the SDK's own OAuth server in memory. It imports nothing of Hermes.

`/authorize` sends the person back at once. `GET /test/lose` forgets every token, `/test/expire` the access tokens,
`/test/down` makes the token's address fail, `/test/redirect-PORT` sends those who want a token elsewhere,
`/test/move` names a login server that does not exist, `/test/imposter` one whose metadata name another issuer,
`/test/up` ends all that; `/test/count` says how many tokens were issued.
"""

from __future__ import annotations

import secrets
import sys
import time

import uvicorn
from mcp.server import MCPServer
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    OAuthAuthorizationServerProvider,
    RefreshToken,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

SECONDS = 3_600


class Memory(OAuthAuthorizationServerProvider[AuthorizationCode, RefreshToken, AccessToken]):
    def __init__(self) -> None:
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.access: dict[str, AccessToken] = {}
        self.refresh: dict[str, RefreshToken] = {}
        self.issued = 0

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        self.clients[str(client_info.client_id)] = client_info

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        code = secrets.token_urlsafe(16)
        self.codes[code] = AuthorizationCode(
            code=code, scopes=[], expires_at=time.time() + 60, client_id=str(client.client_id),
            code_challenge=params.code_challenge, redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly, resource=params.resource,
        )  # fmt: skip
        return construct_redirect_uri(str(params.redirect_uri), code=code, state=params.state)

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        del self.codes[authorization_code.code]
        return self._issue(str(client.client_id), authorization_code.resource)

    async def load_refresh_token(self, client: OAuthClientInformationFull, refresh_token: str) -> RefreshToken | None:
        return self.refresh.get(refresh_token)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        del self.refresh[refresh_token.token]  # it is used once
        return self._issue(str(client.client_id), refresh_token.resource)

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self.access.get(token)

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        self.access.pop(token.token, None)

    def _issue(self, client_id: str, resource: str | None) -> OAuthToken:
        access, refresh = secrets.token_urlsafe(16), secrets.token_urlsafe(16)
        self.access[access] = AccessToken(token=access, client_id=client_id, scopes=[], resource=resource)
        self.refresh[refresh] = RefreshToken(token=refresh, client_id=client_id, scopes=[], resource=resource)
        self.issued += 1
        return OAuthToken(access_token=access, token_type="Bearer", expires_in=SECONDS, refresh_token=refresh)


def main(port: int) -> None:
    memory, address = Memory(), f"http://127.0.0.1:{port}"
    server = MCPServer(
        "guarded", auth_server_provider=memory,
        auth=AuthSettings.model_validate({
            "issuer_url": address, "resource_server_url": f"{address}/mcp", "validate_token_resource": True,
            "client_registration_options": ClientRegistrationOptions(enabled=True),
        }),
    )  # fmt: skip
    how = "up"

    @server.tool()
    def secret() -> str:
        """Only for those who logged in."""
        return "42"

    @server.custom_route("/test/{what}", methods=["GET"])
    async def control(request: Request) -> Response:
        nonlocal how
        what = request.path_params["what"]
        if what in ("lose", "expire"):
            memory.access.clear()
        if what == "lose":
            memory.refresh.clear()
        if what in ("up", "down", "move", "imposter") or what.startswith("redirect-"):
            how = what
        return PlainTextResponse(str(memory.issued))

    app: ASGIApp = server.streamable_http_app()

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        if how == "down" and path == "/token":
            await PlainTextResponse("down", 503)(scope, receive, send)
        elif how.startswith("redirect-") and path == "/token":
            elsewhere = f"http://127.0.0.1:{how.partition('-')[2]}/token"
            await RedirectResponse(elsewhere, 307)(scope, receive, send)
        elif how in ("move", "imposter") and path.startswith("/.well-known/oauth-protected-resource"):
            named = f"http://localhost:{port}{'/nowhere' if how == 'move' else ''}"
            said = {"resource": f"{address}/mcp", "authorization_servers": [named]}
            await JSONResponse(said)(scope, receive, send)
        elif how == "move" and path.startswith("/.well-known/"):
            await PlainTextResponse("nothing", 404)(scope, receive, send)
        else:
            await app(scope, receive, send)

    uvicorn.run(guarded, host="127.0.0.1", port=port, log_level="error")


if __name__ == "__main__":
    main(int(sys.argv[1]))
