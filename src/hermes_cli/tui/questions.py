"""Questions of a turn, one after the other: each is a modal screen, and its answer goes back to the server.

A question that was answered in another place, or that nobody waits for any more, is taken off the screen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from textual.app import App
from textual.screen import Screen

if TYPE_CHECKING:
    from hermes_cli.tui.asking import ApprovalDialog, QuestionDialog

Answer = Callable[[str, dict[str, Any]], None]
"""(method, its parameters)."""
Payload = Mapping[str, Any]
_Made = Callable[[], "ApprovalDialog | QuestionDialog"]


class Dialogs:
    """`by_gateway` says whether the gateway drives the conversation, and so runs what is asked about."""

    def __init__(self, app: App[int], answer: Answer, *, by_gateway: Callable[[], bool]) -> None:
        self._app, self._answer, self._by_gateway = app, answer, by_gateway
        self._waiting: list[tuple[str, _Made, Callable[[str], None]]] = []
        self._asking: ApprovalDialog | QuestionDialog | None = None
        self.heard: dict[str, Callable[[Payload], None]] = {
            "approval.request": self._leave, "approval.closed": self._closed, "clarify.request": self._clarify,
            "secret.request": self._secret, "sudo.request": self._sudo, "secret.expire": self._closed,
            "sudo.expire": self._closed, "clarify.expire": self._closed,
        }  # fmt: skip
        """By event."""

    def is_asked(self, screen: Screen[Any]) -> bool:
        """Whether it is a question of a turn."""
        return screen is self._asking

    def clear(self) -> None:
        self._waiting.clear()

    def _leave(self, question: Payload) -> None:
        """May this run?"""
        number, by_gateway = str(question.get("approval_id")), self._by_gateway()

        def made() -> ApprovalDialog:
            from hermes_cli.tui.asking import ApprovalDialog

            return ApprovalDialog(question, "in the gateway" if by_gateway else "on this machine, as you")

        def answered(choice: str) -> None:
            if choice:
                self._answer("approval.respond", {"approval_id": number, "choice": choice})

        self._put(number, made, answered)

    def _clarify(self, payload: Payload) -> None:
        choices = tuple(str(one) for one in payload.get("choices") or ())
        self._person(payload, str(payload.get("question") or ""), "clarify.respond", "answer", choices=choices)

    def _secret(self, payload: Payload) -> None:
        question = f"{payload.get('prompt') or 'A secret is needed'} ({payload.get('env_var') or ''})"
        self._person(payload, question, "secret.respond", "value", secret=True)

    def _sudo(self, payload: Payload) -> None:
        self._person(payload, "A command asks for your password", "sudo.respond", "password", secret=True)

    def _person(
        self, payload: Payload, question: str, method: str, field: str, *, choices: tuple[str, ...] = (),
        secret: bool = False,
    ) -> None:  # fmt: skip
        """`method` takes the answer, in its `field`."""
        number = str(payload.get("request_id"))

        def made() -> QuestionDialog:
            from hermes_cli.tui.asking import QuestionDialog

            return QuestionDialog(question, choices, secret=secret, number=number)

        self._put(number, made, lambda said: self._answer(method, {"request_id": number, field: said}))

    def _closed(self, payload: Payload) -> None:
        """Answered elsewhere, or too late."""
        number = str(payload.get("approval_id") or payload.get("request_id"))
        self._waiting = [one for one in self._waiting if one[0] != number]
        asking = self._asking
        if asking is not None and asking.number == number and asking.is_current:
            asking.dismiss(None)

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
