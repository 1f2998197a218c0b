"""`PlatformContext`: the gateway's services for an adapter: durable cursors, slash commands, and webhooks.

An adapter has one as `self.context` before `connect`. Only the cursors use the store.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from hermes_config.errors import HermesError
from hermes_state.turns.cursors import CursorMove, CursorPosition

if TYPE_CHECKING:
    from gateway.platforms.base import BasePlatformAdapter
    from hermes_state import SessionDB


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookRequest:
    """A request to a path that an adapter added; `verify` and then the handler get it, with the raw body."""

    method: str
    path: str
    """The rest of the path after the added one, without a leading slash."""
    query: Mapping[str, str]
    headers: Mapping[str, str]
    """The headers, with names in lower case."""
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookResponse:
    status: int = 200
    body: bytes = b""
    content_type: str = "text/plain; charset=utf-8"


def signed_with(secret: str, body: bytes, shown: str) -> bool:
    """Whether `shown` is the HMAC-SHA256 of the body in hexadecimal, compared in constant time."""
    made = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    return hmac.compare_digest(made.encode(), shown.strip().lower().encode("utf-8", "replace"))


Verify = Callable[[WebhookRequest], bool]
"""Whether the request is the platform's: a signature over `body`, and how old it is. Pure and quick."""
Handle = Callable[[WebhookRequest], Awaitable[WebhookResponse]]

PREFIX = "/webhooks/"


class WebhookUnusable(HermesError):
    """A platform cannot be reached from outside."""


class NativeCommand(NamedTuple):
    """A slash command as a platform may show it in a menu. It comes in as the text `/name arguments`."""

    name: str
    description: str
    args_hint: str
    """Its arguments for people: `[…]` may be left out."""
    in_groups: bool = True
    """False: it is refused in a group, so a menu there may leave it out."""
    shows: bool = False
    """It only shows something, so in a group its answer is `only_for` its sender. Other commands may get either."""


class Cursor:
    """A position in a feed, stored with the inbox row: `await self.receive(event, cursor=cursor.at(value))`."""

    def __init__(self, db: SessionDB, platform: str, account: Callable[[], str], name: str) -> None:
        self._db, self._platform, self._account, self._name = db, platform, account, name

    async def read(self) -> CursorPosition | None:
        """The value and when it moved there; None while the feed was never read."""
        return await asyncio.to_thread(self._db.cursors.get, self._platform, self._account(), self._name)

    def at(self, value: str) -> CursorMove:
        """For `receive`: the position after the message."""
        return CursorMove(self._platform, self._account(), self._name, value)

    async def move(self, value: str) -> None:
        """Move past an update that is no message; durable when this returns."""
        await self._db.cursors.move(self.at(value))


class WebhookRoutes:
    """The webhooks of all platforms of this gateway, by path; served by the API server."""

    def __init__(self) -> None:
        self.routes: dict[str, tuple[Verify, Handle]] = {}
        self.served = False
        """Whether a server serves the webhooks."""

    def find(self, path: str) -> tuple[Verify, Handle, str] | None:
        """The webhook of a path (the longest match), and the rest of the path."""
        known = path
        while known.startswith(PREFIX):
            if (found := self.routes.get(known)) is not None:
                return *found, path[len(known) :].strip("/")
            known = known.rpartition("/")[0]
        return None


class Webhooks:
    """`self.context.http`: paths of one platform."""

    def __init__(self, routes: WebhookRoutes, platform: str) -> None:
        self._routes, self._platform = routes, platform

    def add(self, path: str, verify: Verify, handler: Handle) -> str:
        """Answer requests to `/webhooks/PLATFORM/PATH`, and to what lies below it; returns that path.

        `verify` is called first, with the raw body; when it does not return True the handler is not called and the
        sender gets 401. A path that is added again is replaced.
        """
        if not self._routes.served:
            raise WebhookUnusable(
                "webhooks need the HTTP server, which does not run",
                hint="Name `webhooks=True` in the platform's descriptor, or set api_server.enabled.",
            )
        full = f"{PREFIX}{self._platform}/{path.strip('/')}".rstrip("/")
        self._routes.routes[full] = (verify, handler)
        return full


class PlatformContext:
    """The gateway's services for one adapter."""

    def __init__(
        self,
        db: SessionDB,
        adapter: BasePlatformAdapter,
        routes: WebhookRoutes,
        reachable: Callable[[str, str, str], Awaitable[object]] | None = None,
        moved: Callable[[str, str, str], Awaitable[object]] | None = None,
    ) -> None:
        self._db, self._adapter, self._reachable, self._moved = db, adapter, reachable, moved
        self.http = Webhooks(routes, adapter.platform.value)

    def cursor(self, name: str = "") -> Cursor:
        """The durable position in a feed of this account; `name` where it has several (mail folders, rooms)."""
        return Cursor(self._db, self._adapter.platform.value, lambda: self._adapter.account, name)

    async def connected_as(self, native_id: str) -> None:
        """Say which account of the platform this is, before messages are read, if `account` does not name it.

        Where another one was connected before (a new bot), the numbers of its messages do not count any more.
        """
        platform, account = self._adapter.platform.value, self._adapter.account
        await asyncio.to_thread(self._db.cursors.connected_as, platform, account, native_id)

    async def reachable_again(self, chat_id: str) -> None:
        """Say that a chat can be written to again: somebody unblocked us, or let us back into a group.

        What the chat did not get meanwhile is then sent, in order, once each, if it is not too old. When this returns
        it is durable; when it raises, say it again. Saying it without need does nothing.
        """
        if self._reachable is not None:
            await self._reachable(self._adapter.platform.value, self._adapter.account, str(chat_id))

    async def chat_moved(self, old_chat_id: str, new_chat_id: str) -> None:
        """Say that a chat has a new id, before you pass on a message from there: its conversations go along.

        Only for what the platform itself says. Who may write there is decided by the new id. When this returns it is
        durable; when it raises, say it again. Saying it twice does nothing.
        """
        if self._moved is not None:
            await self._moved(self._adapter.platform.value, str(old_chat_id), str(new_chat_id))

    def commands(self, *, role: str = "owner") -> tuple[NativeCommand, ...]:
        """The slash commands that people with this role can use in chats, ours and those of plug-ins."""
        from hermes_agent.commands import registry

        rows = registry.table("gateway").values()
        shown = (row for row in rows if role in row.roles)
        return tuple(
            NativeCommand(row.name, row.description, row.args_hint, in_groups=not row.private, shows=row.shows)
            for row in shown
        )
