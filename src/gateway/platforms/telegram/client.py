"""The connection to Telegram: one HTTP client for python-telegram-bot's `Bot`, and one for each file.

Opening it imports the library and reads the machine's certificates, which takes a fifth of a second, so it is done in
a thread. At INFO the libraries log the address of each request, which contains the token; at DEBUG, everything we
send; and a traceback for each error page of a proxy. So their loggers are limited to what nobody else reports.
"""

from __future__ import annotations

import asyncio
import json
import logging
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

from gateway.platforms.telegram import errors

if TYPE_CHECKING:
    import ssl

    import httpx
    from telegram import Bot
    from telegram.request import BaseRequest, HTTPXRequest


_CONNECTIONS = 64
_KEEP_SECONDS = 55.0
_CONNECT_SECONDS = 10.0
_ANSWER_SECONDS = 20.0
_UPLOAD_SECONDS = 120.0
_DOWNLOAD_SECONDS = 120.0
_TALKATIVE = {"httpx": logging.WARNING, "httpcore": logging.WARNING, "telegram": logging.CRITICAL}
API_URL = "https://api.telegram.org/bot"
FILE_URL = "https://api.telegram.org/file/bot"


class BotClient:
    """An open line. `bot` is for everything but updates and the content of files, which it would hold in memory."""

    def __init__(self, bot: Bot, request: BaseRequest, verify: ssl.SSLContext | bool, *, token: str) -> None:
        self.bot = bot
        self.token = token
        self._request = request
        self._verify = verify

    @classmethod
    async def open(cls, token: str, extra: Mapping[str, Any]) -> BotClient:
        """Nothing is sent yet; `extra` may name a Bot API server of one's own."""
        _quieten()
        line = await asyncio.to_thread(_make, token, extra)
        await line._request.initialize()
        return line

    @property
    def host(self) -> str:
        """What it leads to, for people: without the token, which is a part of the address."""
        return urlsplit(self.bot.base_url).netloc.rpartition("@")[2]

    async def close(self) -> None:
        await self._request.shutdown()

    def file_client(self) -> httpx.AsyncClient:
        """For one file. One for all of them would lose a connection with each download that is given up."""
        import httpx

        return httpx.AsyncClient(verify=self._verify, timeout=_DOWNLOAD_SECONDS)

    async def updates(self, *, offset: int | None, seconds: int, kinds: tuple[str, ...]) -> list[Any]:
        """`getUpdates`, as JSON: the library's own call gives up on all updates when one of them makes no sense."""
        from telegram.error import TelegramError

        wanted: dict[str, Any] = {"timeout": seconds, "limit": 100, "allowed_updates": json.dumps(kinds)}
        if offset is not None:
            wanted["offset"] = offset
        answer: Any = await self._request.post(
            url=f"{self.bot.base_url}/getUpdates?{urlencode(wanted)}", read_timeout=seconds + _ANSWER_SECONDS
        )
        if not isinstance(answer, list):
            raise TelegramError("getUpdates was not answered with a list")
        return answer


def _quieten() -> None:
    for name, level in _TALKATIVE.items():
        logger = logging.getLogger(name)
        if logger.level < level:  # 0: whatever the root says, which may be anything
            logger.setLevel(level)


def _make(token: str, extra: Mapping[str, Any]) -> BotClient:
    import httpx
    from telegram import Bot
    from telegram.warnings import PTBDeprecationWarning

    # Said at each flood, about a type that `errors.retry_after` takes in either form.
    warnings.filterwarnings("ignore", message="(?s).*retry_after", category=PTBDeprecationWarning)
    base_url = str(extra.get("base_url") or API_URL)
    base_file_url = str(extra.get("base_file_url") or _beside(base_url))
    verify: ssl.SSLContext | bool = False  # there is nothing to verify, and reading the certificates takes a while
    if not (base_url.startswith("http://") and base_file_url.startswith("http://")):
        verify = httpx.create_ssl_context()  # once for all clients
    limits = httpx.Limits(
        max_connections=_CONNECTIONS, max_keepalive_connections=_CONNECTIONS, keepalive_expiry=_KEEP_SECONDS
    )
    request = _whole_request()(
        connect_timeout=_CONNECT_SECONDS,
        read_timeout=_ANSWER_SECONDS,
        write_timeout=_ANSWER_SECONDS,
        pool_timeout=_CONNECT_SECONDS,
        media_write_timeout=_UPLOAD_SECONDS,
        httpx_kwargs={"limits": limits, "verify": verify},
    )
    bot = Bot(
        token,
        base_url=base_url,
        base_file_url=base_file_url,
        request=request,
        get_updates_request=request,
        local_mode=extra.get("local_mode") is True,
    )
    return BotClient(bot, request, verify, token=token)


def _whole_request() -> type[HTTPXRequest]:
    """The class of requests that always run to their end. Imports the library.

    httpcore loses the connection of a request whose task is cancelled at the wrong moment: it counts as busy for good,
    and when all of a pool are lost that way nothing is sent any more. Every turn ends by cancelling its typing
    indicator. So each request runs in a task of its own: a caller that stops waiting does so at once, and the request
    runs to its end, at the latest until its own time-outs.
    """
    from telegram.request import HTTPXRequest

    class WholeRequest(HTTPXRequest):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self._begun: set[asyncio.Task[tuple[int, bytes]]] = set()

        async def do_request(self, *args: Any, **options: Any) -> tuple[int, bytes]:
            task = asyncio.create_task(super().do_request(*args, **options))
            self._begun.add(task)
            task.add_done_callback(self._over)
            return errors.answered(*await asyncio.shield(task))

        async def shutdown(self) -> None:
            for task in self._begun:
                task.cancel()
            await asyncio.gather(*self._begun, return_exceptions=True)
            await super().shutdown()

        def _over(self, task: asyncio.Task[tuple[int, bytes]]) -> None:
            self._begun.discard(task)
            if not task.cancelled():
                task.exception()  # known to whoever waited; nobody else wants to hear of it

    return WholeRequest


def _beside(base_url: str) -> str:
    """Where a server hands out files, when only its address for calls is given: `…/bot` and `…/file/bot`."""
    if base_url == API_URL:
        return FILE_URL
    head, bot, rest = base_url.rpartition("/bot")
    return f"{head}/file/bot{rest}" if bot else base_url
