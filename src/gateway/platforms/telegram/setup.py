"""Set-up of a bot: checks the token, and finds out which account is the owner's.

For set-up, while no gateway polls. Owners prove that they sit at this machine by sending the code that its terminal
shows. What other people write meanwhile is read but not acknowledged, so the gateway still gets it.
"""

from __future__ import annotations

import asyncio
import hmac
import re
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from gateway.platforms.base import PlatformConfig
from gateway.platforms.registry import ProbeFailed
from gateway.platforms.telegram import errors, updates
from gateway.platforms.telegram.client import BotClient
from gateway.platforms.telegram.updates import Malformed
from hermes_config.errors import HermesError

_START = re.compile(r"/start(?:@\w+)?\s+(\S+)\s*", re.IGNORECASE)
_WRONG_CODES = 5
_BATCH = 100
_POLL_SECONDS = 10
_LISTEN_SECONDS = 3  # another program that asks for the same messages comes back within that


class BotSetupFailed(HermesError):
    """Telegram could not be set up."""


class UnknownToken(BotSetupFailed):
    """Telegram does not know this token."""

    default_hint = "Copy it from @BotFather again: /mybots, API Token."


@dataclass(frozen=True, slots=True)
class Bot:
    id: int
    username: str
    name: str
    webhook: str
    """Where Telegram sends the bot's messages instead of handing them out; empty: nowhere."""


@dataclass(frozen=True, slots=True)
class Owner:
    id: str
    chat_id: str
    name: str
    username: str


async def find_bot(token: str, extra: Mapping[str, Any]) -> Bot:
    """The bot that this token belongs to. Raises `BotSetupFailed`."""
    async with _client(token, extra) as client:
        me = await client.bot.get_me()
        hook = await client.bot.get_webhook_info()
    return Bot(me.id, me.username or "", me.full_name, hook.url or "")


async def listen(token: str, extra: Mapping[str, Any], *, seconds: int) -> None:
    """Ask for messages for a moment, and acknowledge none. Raises `BotSetupFailed` when another program does, too."""
    async with _client(token, extra) as client:
        await client.updates(offset=None, seconds=seconds, kinds=updates.ALLOWED)


async def probe(config: PlatformConfig, running: bool) -> str:
    """For the doctor: who the bot is, and that nobody else gets its messages. Raises an error of ours."""
    token, setup = config.token or "", f"hermes gateway setup {config.name or 'telegram'}"
    try:
        bot = await find_bot(token, config.extra)
        if not bot.webhook and not running:
            await listen(token, config.extra, seconds=_LISTEN_SECONDS)
    except UnknownToken as error:
        raise ProbeFailed(error.what, fix=setup, hint=f"It asks for another. {error.hint}") from None
    if bot.webhook:
        says = f"Telegram sends the messages of @{bot.username} elsewhere: {bot.webhook}"
        raise ProbeFailed(says, fix=f"{setup} --no-pair --yes")
    return f"Telegram knows it as @{bot.username}"


async def remove_webhook(token: str, extra: Mapping[str, Any]) -> None:
    async with _client(token, extra) as client:
        await client.bot.delete_webhook(drop_pending_updates=False)


async def meet_owner(
    token: str, extra: Mapping[str, Any], *, code: str, seconds: float, name: str = "telegram"
) -> Owner | None:
    """Wait until somebody sends `/start CODE` in private; None when nobody does in time. Raises `BotSetupFailed`."""
    deadline = time.monotonic() + seconds
    wrong: set[int] = set()
    async with _client(token, extra) as client:
        while (left := deadline - time.monotonic()) > 0:
            found = await client.updates(offset=None, seconds=min(_POLL_SECONDS, int(left) + 1), kinds=updates.ALLOWED)
            for place, update in enumerate(found):
                sent, number = _code(update)
                if sent is None:
                    continue
                if hmac.compare_digest(sent.upper().encode(), code.encode()):
                    if place == 0:  # nothing of anybody else's lies before it
                        await client.updates(offset=number + 1, seconds=0, kinds=updates.ALLOWED)
                    return await _greeted(client, update["message"])
                wrong.add(number)
            if len(wrong) >= _WRONG_CODES:
                raise BotSetupFailed("too many wrong codes were sent to the bot", hint="Start again to get a new code.")
            if len(found) >= _BATCH:
                raise BotSetupFailed(
                    "so many messages wait for this bot that yours could not be found",
                    hint=f"Run the gateway, write to the bot, then: hermes pairing approve {name} CODE --owner",
                )
            if found:
                await asyncio.sleep(1.0)  # they are handed out again at once, as they are not acknowledged
    return None


def _code(update: Any) -> tuple[str | None, int]:
    """The code in a private `/start CODE` of a person, and the number of the update."""
    try:
        number = updates.update_id(update)
    except Malformed:
        return None, 0
    message = update.get("message")
    if not isinstance(message, Mapping):
        return None, number
    chat, sender, text = message.get("chat"), message.get("from"), message.get("text")
    if not (isinstance(chat, Mapping) and isinstance(sender, Mapping) and isinstance(text, str)):
        return None, number
    if chat.get("type") != "private" or sender.get("is_bot") is not False or not isinstance(sender.get("id"), int):
        return None, number
    found = _START.fullmatch(text)
    return (found[1] if found and "forward_origin" not in message else None), number


async def _greeted(client: BotClient, message: Mapping[str, Any]) -> Owner:
    from telegram.error import TelegramError

    sender = message["from"]
    name = " ".join(str(sender.get(key) or "") for key in ("first_name", "last_name")).strip()
    owner = Owner(str(sender["id"]), str(message["chat"]["id"]), name, str(sender.get("username") or ""))
    welcome = "That is you: this machine's owner. Write to me when I am running."
    try:
        await client.bot.send_message(owner.chat_id, welcome)
    except TelegramError as error:
        raise BotSetupFailed(f"the bot cannot write to you: {errors.said(error, client.token)}") from None
    return owner


@asynccontextmanager
async def _client(token: str, extra: Mapping[str, Any]) -> AsyncIterator[BotClient]:
    """A client whose errors are ours."""
    from telegram.error import Conflict, InvalidToken, TelegramError

    client = await BotClient.open(token, extra)
    try:
        yield client
    except InvalidToken:
        raise UnknownToken from None
    except Conflict:
        raise BotSetupFailed(
            "another program asks for this bot's messages", hint="Stop it (hermes gateway stop), then set up again."
        ) from None
    except TelegramError as error:
        raise BotSetupFailed(errors.unreachable(error, client)) from None
    finally:
        await client.close()
