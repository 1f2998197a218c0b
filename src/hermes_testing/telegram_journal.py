"""Every request the bot made, in order: what it asked, what it was told, which fault it met. For checkers."""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass, field

from hermes_testing.telegram_answers import Json


@dataclass(slots=True)
class Call:
    number: int
    method: str
    at: float
    parameters: dict[str, str]
    files: list[str] = field(default_factory=list)
    """Names of the files that came with it."""
    done: bool = False
    """It had its effect, whether or not the bot got to know."""
    answered: bool = False
    """An answer was sent: False when the connection was cut or the bot had gone."""
    code: int = 0
    description: str = ""
    """Telegram's words, for a refusal."""
    result: object = None
    """What came of it, in short: ids of messages and updates, or the value itself where it is small."""
    faults: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        return self.answered and self.code == 200

    def json(self) -> Json:
        return asdict(self)


def brief(result: object) -> object:
    """A result as the journal keeps it: a long run must not keep every text twice."""
    if isinstance(result, list):
        return [brief(one) for one in result]
    if isinstance(result, dict):
        return next((result[name] for name in ("message_id", "update_id", "file_id", "id") if name in result), None)
    return result


class Journal:
    """The last `keep` calls; `total` counts all there ever were."""

    def __init__(self, keep: int = 100_000) -> None:
        self.calls: deque[Call] = deque(maxlen=keep)
        self.total = 0

    def begin(self, method: str, at: float, parameters: dict[str, str], files: list[str]) -> Call:
        self.total += 1
        call = Call(self.total, method, at, parameters, files)
        self.calls.append(call)
        return call

    def after(self, number: int, method: str = "") -> list[Call]:
        wanted = method.lower()
        return [call for call in self.calls if call.number > number and wanted in ("", call.method.lower())]
