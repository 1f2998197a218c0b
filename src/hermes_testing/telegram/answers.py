"""What the fake answers and keeps: refusals in Telegram's own words, and a log of every request for checkers.

Every refusal of the fake is a `BotApiError`; the server turns it into the body that Telegram sends. The log says what
the bot asked, what it was told and which faults it met.
"""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass, field
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


@dataclass(slots=True)
class BotCall:
    number: int
    method: str
    at: float
    parameters: dict[str, str]
    files: list[str] = field(default_factory=list)
    """Names of the files that came with it."""
    done: bool = False
    """Whether it had its effect, even if the bot got no answer."""
    answered: bool = False
    """Whether an answer was sent: False when the connection was cut or the bot was gone."""
    code: int = 0
    description: str = ""
    """Telegram's words, for a refusal."""
    result: object = None
    """The result in short form: ids of messages and updates, or a small value itself."""
    faults: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        return self.answered and self.code == 200

    def json(self) -> Json:
        return asdict(self)


def brief(result: object) -> object:
    """Shorten a result for the log: a long run must not keep every text twice."""
    if isinstance(result, list):
        return [brief(one) for one in result]
    if isinstance(result, dict):
        return next((result[name] for name in ("message_id", "update_id", "file_id", "id") if name in result), None)
    return result


class CallLog:
    """The last `keep` calls; `total` counts all of them."""

    def __init__(self, keep: int = 100_000) -> None:
        self.calls: deque[BotCall] = deque(maxlen=keep)
        self.total = 0

    def begin(self, method: str, at: float, parameters: dict[str, str], files: list[str]) -> BotCall:
        self.total += 1
        call = BotCall(self.total, method, at, parameters, files)
        self.calls.append(call)
        return call

    def after(self, number: int, method: str = "") -> list[BotCall]:
        wanted = method.lower()
        return [call for call in self.calls if call.number > number and wanted in ("", call.method.lower())]
