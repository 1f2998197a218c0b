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
    faults: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        return self.answered and self.code == 200

    def json(self) -> Json:
        return asdict(self)


class Journal:
    """The last `keep` calls; `total` counts all there ever were."""

    def __init__(self, keep: int = 200_000) -> None:
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
