"""Questions of a turn, one after the other: each is a modal screen, and its answer goes back to the server.

A question that was answered in another place, or that nobody waits for any more, is taken off the screen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from textual.app import App

if TYPE_CHECKING:
    from hermes_cli.tui.asking import Approval, Question

Answer = Callable[[str, dict[str, Any]], None]
"""(method, its parameters)."""
_Made = Callable[[], "Approval | Question"]


class Questions:
    def __init__(self, app: App[int], answer: Answer) -> None:
        self._app, self._answer = app, answer
        self._waiting: list[tuple[str, _Made, Callable[[str], None]]] = []
        self._asking: Approval | Question | None = None

    def leave(self, question: Mapping[str, Any], *, by_gateway: bool) -> None:
        """May this run?"""
        number = str(question.get("approval_id"))

        def made() -> Approval:
            from hermes_cli.tui.asking import Approval

            return Approval(question, "in the gateway" if by_gateway else "on this machine, as you")

        def answered(choice: str) -> None:
            if choice:
                self._answer("approval.respond", {"approval_id": number, "choice": choice})

        self._put(number, made, answered)

    def person(self, question: str, choices: Sequence[str], *, secret: bool, method: str, number: str) -> None:
        """`method` names the method of the answer and the field that it has there."""
        name, _, field = method.partition(" ")

        def made() -> Question:
            from hermes_cli.tui.asking import Question

            return Question(question, choices, secret=secret, number=number)

        self._put(number, made, lambda said: self._answer(name, {"request_id": number, field: said}))

    def withdraw(self, number: str) -> None:
        self._waiting = [one for one in self._waiting if one[0] != number]
        asking = self._asking
        if asking is not None and asking.number == number and asking.is_current:
            asking.dismiss(None)

    def clear(self) -> None:
        self._waiting.clear()

    def _put(self, number: str, made: _Made, answered: Callable[[str], None]) -> None:
        self._waiting.append((number, made, answered))
        if self._asking is None:
            self._next()

    def _next(self) -> None:
        if not self._waiting:
            return
        _, made, answered = self._waiting.pop(0)
        self._asking = made()

        def done(said: str | None) -> None:
            self._asking = None
            if said is not None:
                answered(said)
            self._next()

        self._app.push_screen(self._asking, done)
