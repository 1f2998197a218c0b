"""Logins at MCP servers (OAuth), by the SDK's provider.

Tokens are in `<home>/mcp/tokens/NAME.json` (mode 0600, replaced in one step), which commands, file tools and servers
cannot see. They are refreshed when they expire, and only `hermes mcp remove` or another login replaces them: a refused
refresh makes the server's state *needs login*, and a server that fails does not. Beside the tokens the file keeps when
they expire and where they are refreshed, because the SDK forgets both at a restart.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from hermes_config.home import write_atomic

if TYPE_CHECKING:
    import httpx2
    from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
    from mcp.shared.auth import OAuthClientInformationFull, OAuthToken

    from hermes_agent.mcp.servers import McpServer

Show = Callable[[str], Awaitable[None]]
"""Shows the person the address at which to log in."""
Answer = Callable[[], Awaitable["AuthorizationCodeResult"]]
"""Waits for the server's answer to that login."""


KEY_REFUSED = "the server refuses what `headers` says"


class LoginNeeded(Exception):
    """A person has to log in."""


class LoginTrouble(Exception):
    """Logging in did not work for the moment."""


def token_file(server: McpServer) -> Path:
    server.check_name()
    return server.config.home / "mcp" / "tokens" / f"{server.name}.json"


def _address(server: McpServer) -> str:
    """Where the server is, without a user name or a query, which may hold secrets."""
    parts = urlsplit(server.url())
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def stamp(file: Path) -> tuple[int, int] | None:
    """Something that changes with the file."""
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino


class TokenFile:
    """The stored login of one server, as the SDK's provider wants it."""

    def __init__(self, server: McpServer, *, registers: bool = False) -> None:
        """`registers`: the stored registration cannot be used for the login that begins now."""
        self.file, self._address, self._registers = token_file(server), _address(server), registers
        self.provider: OAuthClientProvider | None = None

    def read(self) -> dict[str, Any]:
        try:
            said = json.loads(self.file.read_text("utf-8"))
        except (OSError, ValueError):
            return {}
        # A login belongs to the address it was made at, not to whatever has the name now.
        return said if isinstance(said, dict) and said.get("server") == self._address else {}

    def _write(self, **changes: Any) -> None:
        self.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomic(self.file, json.dumps({**self.read(), **changes, "server": self._address}))

    async def get_tokens(self) -> OAuthToken | None:
        from mcp.shared.auth import OAuthMetadata, OAuthToken, ProtectedResourceMetadata

        said = await asyncio.to_thread(self.read)
        if not said.get("tokens"):
            return None
        if self.provider is not None:
            context = self.provider.context
            context.token_expiry_time = said.get("expires_at")
            if said.get("metadata"):
                context.oauth_metadata = OAuthMetadata.model_validate(said["metadata"])
            if said.get("resource"):
                context.protected_resource_metadata = ProtectedResourceMetadata.model_validate(said["resource"])
            context.auth_server_url = said.get("issuer")
        return OAuthToken.model_validate(said["tokens"])

    async def set_tokens(self, tokens: OAuthToken) -> None:
        facts: dict[str, Any] = {"tokens": tokens.model_dump(mode="json", exclude_none=True)}
        facts["expires_at"] = None if tokens.expires_in is None else time.time() + tokens.expires_in
        if self.provider is not None:
            context = self.provider.context
            for name, one in (
                ("client", context.client_info), ("metadata", context.oauth_metadata),
                ("resource", context.protected_resource_metadata),
            ):  # fmt: skip
                facts[name] = None if one is None else one.model_dump(mode="json", exclude_none=True)
            facts["issuer"] = context.auth_server_url
        await asyncio.to_thread(self._write, **facts)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        from mcp.shared.auth import OAuthClientInformationFull

        said = None if self._registers else (await asyncio.to_thread(self.read)).get("client")
        return None if not said else OAuthClientInformationFull.model_validate(said)

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Nothing yet: a registration is stored with its tokens. Stored alone, at a server that names another login
        server, or in a login that is broken off, it would make the tokens of the former one useless."""


class LoginAccess:
    """The login of one connection: its provider, and whether the server wants a person to log in.

    Without `show` and `answer` nobody can log in here: then a refused token is a `LoginNeeded`.
    """

    def __init__(
        self, server: McpServer, *, show: Show | None = None, answer: Answer | None = None, port: int = 0
    ) -> None:
        self._server, self._show, self._answer, self._port = server, show, answer, port
        self._storage = TokenFile(server, registers=show is not None and port != stored_port(server))
        self._failed = False
        self.needed = ""
        """Why a person has to log in; empty if nobody has to."""

    def provider(self) -> httpx2.Auth | None:
        """The provider for this server; None without a login, where `saw` notices that one is needed."""
        if self._show is None and not self._storage.read().get("tokens"):
            if self._server.settings.auth == "oauth":
                raise LoginNeeded("nobody has logged in yet")
            return None
        from mcp.client.auth import OAuthClientProvider
        from mcp.shared.auth import OAuthClientMetadata

        metadata = OAuthClientMetadata.model_validate({
            "client_name": "Hermes", "redirect_uris": [f"http://127.0.0.1:{self._port}/callback"],
            "grant_types": ["authorization_code", "refresh_token"], "token_endpoint_auth_method": "none",
        })  # fmt: skip
        made = OAuthClientProvider(
            self._server.url(), metadata, self._storage, redirect_handler=self._redirect, callback_handler=self._called
        )
        self._storage.provider = made
        return made

    def saw(self, response: httpx2.Response) -> None:
        """Look at a response: a refusal means a login is needed, a failed server that nothing is known."""
        if response.status_code == 401 and self._storage.provider is None:
            self.needed = KEY_REFUSED if self._server.settings.headers else "the server wants a login"
        if response.request.method == "POST" and response.request.url != self._server.url():
            self._failed = response.status_code >= 500 or response.status_code == 429

    async def _redirect(self, url: str) -> None:
        if self._show is not None:
            await self._show(url)
            return
        if self._failed:
            raise LoginTrouble("the login server has failed; the stored login is kept")
        used = self._storage.provider.context.current_tokens if self._storage.provider else None
        stored = await self._storage.get_tokens()
        if used is not None and stored is not None and stored.access_token != used.access_token:
            raise LoginTrouble("another process has new tokens")
        self.needed = "the login has ended"
        raise LoginNeeded(self.needed)

    async def _called(self) -> AuthorizationCodeResult:
        assert self._answer is not None
        return await self._answer()


# -- a person logs in --------------------------------------------------------------------------------------------------


class Callback:
    """The address on this machine to which the server sends the person back after the login."""

    def __init__(self, port: int = 0) -> None:
        self.port = port
        self._server: asyncio.Server | None = None
        self._query: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.state = ""

    async def __aenter__(self) -> Callback:
        with suppress(OSError):  # the port of the last login may be in use
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        if self._server is None:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()

    def take(self, said: str) -> None:
        """Use what a person pasted: the address they were sent to, or the code alone."""
        said = said.strip()
        query = urlsplit(said).query if "?" in said else f"code={said}&state={self.state}"
        if said and not self._query.done():
            self._query.set_result(query)

    async def result(self) -> AuthorizationCodeResult:
        from mcp.client.auth import AuthorizationCodeResult

        found = {name: values[0] for name, values in parse_qs(await self._query).items()}
        if "error" in found:
            raise LoginTrouble(f"the server refused the login: {found['error'][:100]}")
        return AuthorizationCodeResult(code=found.get("code", ""), state=found.get("state"), iss=found.get("iss"))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            line = (await asyncio.wait_for(reader.readline(), 10)).decode("latin-1").split(" ")
            target = urlsplit(line[1]) if len(line) == 3 and line[0] == "GET" else None
            ours = (
                target is not None
                and target.path == "/callback"
                and ("code=" in target.query or "error=" in target.query)
            )
            if target is not None and ours and not self._query.done():
                self._query.set_result(target.query)
            text = b"Hermes has the answer. You can close this window.\n" if ours else b"Nothing is here.\n"
            head = f"HTTP/1.1 {'200 OK' if ours else '404 Not Found'}\r\nContent-Type: text/plain\r\n"
            writer.write(f"{head}Content-Length: {len(text)}\r\nConnection: close\r\n\r\n".encode() + text)
            await writer.drain()
        writer.close()


def stored_port(server: McpServer) -> int:
    """The port that the stored registration names; 0 if there is none."""
    uris = (TokenFile(server).read().get("client") or {}).get("redirect_uris") or [""]
    with suppress(ValueError):
        return urlsplit(str(uris[0])).port or 0
    return 0
