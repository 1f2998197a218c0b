"""How the Bot API says no: an error code, Telegram's own words, and for a flood how long to wait.

Every refusal of the fake is a `BotApiError`; the server turns it into the body that Telegram sends.
"""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


class BotApiError(Exception):
    """A request that Telegram would refuse."""

    def __init__(
        self, code: int, description: str, *, retry_after: int | None = None, migrate_to: int | None = None
    ) -> None:
        super().__init__(description)
        self.code = code
        self.description = description
        self.retry_after = retry_after
        self.migrate_to = migrate_to

    def body(self) -> Json:
        body: Json = {"ok": False, "error_code": self.code, "description": self.description}
        if self.retry_after is not None:
            body["parameters"] = {"retry_after": self.retry_after}
        if self.migrate_to is not None:
            body["parameters"] = {"migrate_to_chat_id": self.migrate_to}
        return body

    def headers(self) -> dict[str, str]:
        return {} if self.retry_after is None else {"retry-after": str(self.retry_after)}


def bad_request(words: str) -> BotApiError:
    return BotApiError(400, f"Bad Request: {words}")


def forbidden(words: str) -> BotApiError:
    return BotApiError(403, f"Forbidden: {words}")


def conflict(words: str) -> BotApiError:
    return BotApiError(409, f"Conflict: {words}")


def too_many_requests(seconds: int) -> BotApiError:
    return BotApiError(429, f"Too Many Requests: retry after {seconds}", retry_after=seconds)


UNAUTHORIZED = BotApiError(401, "Unauthorized")
NO_SUCH_TOKEN = BotApiError(404, "Not Found")
NO_SUCH_METHOD = BotApiError(404, "Not Found: method not found")
TOO_LARGE = BotApiError(413, "Request Entity Too Large")
