"""What Telegram's errors mean: for a piece that was sent, and for the operator.

The one question that matters after a failed send is whether the message may be in the chat nevertheless. Telegram's
own "no" (any 4xx) means that it does not. So does a connection that could not be made, and a 3xx or 4xx page of a proxy
before Telegram, which is tried again because it says nothing about the chat. Everything else, a time-out, a connection
that broke, any 5xx, leaves the question open.

The token is part of every address, so it is removed from every error text that leaves this module.
"""

from __future__ import annotations

import datetime
import json
import re
from typing import TYPE_CHECKING, Any

from gateway.platforms.base import ErrorKind, SendResult

if TYPE_CHECKING:
    from telegram.error import TelegramError

    from gateway.platforms.telegram.client import BotClient

HOST = "api.telegram.org"
_PAUSE = 5
"""Seconds to wait after a refusal that names no time."""
_NO = re.compile(rb'\s*\{\s*"ok"\s*:\s*false\b')
_KNOWN = (400, 401, 403, 404, 409, 429)
"""The refusals that python-telegram-bot knows."""
_NOT_MODIFIED = "message is not modified"
_BAD_HTML = "can't parse entities"
# Beginnings of Telegram's descriptions, in lower case as its library may have changed their first letter.
_MEANINGS: tuple[tuple[str, ErrorKind], ...] = (
    (_BAD_HTML, "bad_format"),
    ("message is too long", "too_long"),
    ("message caption is too long", "too_long"),
    ("message text is empty", "bad_format"),
    ("message to edit not found", "not_found"),
    ("message to delete not found", "not_found"),
    ("message can't be edited", "not_found"),
    ("message_id_invalid", "not_found"),
    ("message thread not found", "not_found"),
    ("topic_closed", "forbidden"),
    ("chat not found", "not_found"),
    ("peer_id_invalid", "not_found"),
    ("user is deactivated", "forbidden"),
    ("not enough rights", "forbidden"),
    ("have no rights", "forbidden"),
    ("chat_write_forbidden", "forbidden"),
    ("need administrator rights", "forbidden"),
)


class NotTelegram(Exception):
    """Something before Telegram refused the request."""


def answered(code: int, payload: bytes) -> tuple[int, bytes]:
    """An answer as python-telegram-bot expects it, which takes every other refusal for a connection that broke, and the
    page of a proxy for what Telegram says. Raises for those."""
    from telegram import error as kinds

    if code >= 500 or (code < 300 and _NO.match(payload) is None):
        return code, payload
    try:
        body = json.loads(payload)
    except ValueError:
        body = None
    if not isinstance(body, dict) or "ok" not in body:
        if code == 413:
            raise kinds.BadRequest("Request Entity Too Large")
        if code == 429:
            raise kinds.RetryAfter(_PAUSE)
        text = f"HTTP {code}, which is no answer of Telegram's"
        raise kinds.NetworkError(text) from NotTelegram(text)
    if isinstance(body.get("error_code"), int):
        code = body["error_code"]
    if code == 429 and not (body.get("parameters") or {}).get("retry_after"):
        raise kinds.RetryAfter(_PAUSE)
    if 400 <= code < 500 and code not in _KNOWN:
        raise kinds.BadRequest(str(body.get("description") or code))
    return code, payload


def refused(name: str) -> str:
    """For the operator: Telegram does not know the token of `name`, which is telegram or an account of it."""
    return f"Telegram refuses the bot's token; get it from @BotFather and run hermes gateway setup {name}"


def said(error: BaseException, token: str) -> str:
    """An error in one line, without the token."""
    text = " ".join((str(error) or type(error).__name__).split())
    return (text.replace(token, "[token]") if token else text)[:300]


def unreachable(error: BaseException, line: BotClient) -> str:
    """For the operator: what cannot be reached, in words, and what to look at."""
    where = line.host
    if not was_written(error):
        own = "platforms.telegram.extra.base_url" if where != HOST else "the network of this machine, or its proxy"
        return f"Telegram cannot be reached: no connection to {where}; see {own}"
    if isinstance(error.__cause__, TimeoutError) or "Timed out" in str(error):
        return f"Telegram cannot be reached: {where} did not answer in time"
    return f"Telegram cannot be reached: {where} said: {said(error, line.token)}"


def is_not_modified(error: BaseException) -> bool:
    return _NOT_MODIFIED in str(error).lower()


def was_written(error: BaseException) -> bool:
    """Whether any of the request may have reached Telegram: False when no connection could be had at all."""
    import httpx

    never = httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout | httpx.ProxyError
    return not isinstance(error.__cause__, never)


def retry_after(error: Any) -> float:
    """The pause Telegram asks for, in seconds."""
    pause = error.retry_after
    return pause.total_seconds() if isinstance(pause, datetime.timedelta) else float(pause)


def as_result(error: TelegramError, token: str, name: str) -> SendResult:
    """What a failed call means for the piece it carried."""
    from telegram import error as kinds

    text = said(error, token)
    match error:
        case kinds.RetryAfter():
            return _no("rate_limited", text, retryable=True, retry_after=retry_after(error))
        case kinds.Forbidden():
            return _no("forbidden", text)
        case kinds.ChatMigrated():
            return _no("not_found", f"the group has become a supergroup with the id {error.new_chat_id}")
        case kinds.BadRequest():
            return _no(_meaning(text), text)
        case kinds.InvalidToken():
            # The operator can fix it (a new token), and then the message can still go out.
            return _no("transient", refused(name), retryable=True)
        case kinds.Conflict():
            return _no("transient", text, retryable=True)
        case kinds.NetworkError() if isinstance(error.__cause__, NotTelegram):
            return _no("unknown", text, retryable=True, retry_after=_PAUSE)
        case kinds.NetworkError() if not was_written(error):
            return _no("transient", "no connection to Telegram could be made", retryable=True)
        case kinds.TimedOut():
            text = "Telegram did not answer in time"
        case kinds.NetworkError() if _is_broken(error):
            text = "the connection to Telegram broke before it answered"
    return SendResult(success=False, error=text, error_kind="transient")


def _is_broken(error: BaseException) -> bool:
    import httpx

    return isinstance(error.__cause__, httpx.TransportError)


def _no(kind: ErrorKind, text: str, *, retryable: bool = False, retry_after: float | None = None) -> SendResult:
    return SendResult(
        success=False, error=text, error_kind=kind, retryable=retryable, retry_after=retry_after, not_sent=True
    )


def _meaning(text: str) -> ErrorKind:
    lower = text.lower()
    return next((kind for start, kind in _MEANINGS if start in lower), "unknown")
