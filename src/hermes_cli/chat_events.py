"""What happens in a conversation, as a server tells of it (`docs/contributors/rpc.md`), put on the screen in lines.

Words come as they are made; while the person sits at the prompt they are kept until they are whole, because a line
that is being typed stands below them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hermes_cli.chat_screen import Screen
from hermes_cli.framework import text

Payload = Mapping[str, Any]
_PLACES = {"tui": "another window"}


class Events:
    """Of one conversation. `at_prompt` says whether somebody types; `ended` is called at the end of each turn."""

    def __init__(self, screen: Screen, *, at_prompt: Callable[[], bool], ended: Callable[[], None]) -> None:
        self._screen, self._at_prompt, self._ended = screen, at_prompt, ended
        self.turning = False
        """A turn runs."""
        self.status = ""
        """Of the last turn that ended."""
        self._model = ""
        self._used = 0
        """Tokens of the conversation before the turn that runs."""
        self._said = self._held = ""
        """What was streamed since the last tool call; what is kept until it is whole."""
        self._calls: dict[str, str] = {}

    def begin(self, info: Payload) -> None:
        """What is known when the conversation is opened."""
        self._model, self._used = str(info.get("model") or ""), int((info.get("usage") or {}).get("total") or 0)

    def show(self, kind: str, payload: Payload) -> None:
        if self._held and kind != "message.delta":
            held, self._held = self._held, ""
            self._screen.answer(held)
        show: Callable[[Payload], None] | None = {
            "message.start": self._began, "message.user": self._said_elsewhere, "message.delta": self._delta,
            "message.interim": self._whole, "message.complete": self._completed, "tool.start": self._tool_began,
            "tool.complete": self._tool_ended, "status.update": self._updated, "notification.show": self._notified,
            "session.info": self._informed, "error": self._failed,
        }.get(kind)  # fmt: skip
        if show is not None:
            show(payload)

    def _began(self, payload: Payload) -> None:
        self._said, self.turning = "", True

    def _said_elsewhere(self, payload: Payload) -> None:
        self.turning = True
        source = str(payload.get("source") or "")
        words = text.harmless_block(str(payload.get("text") or ""))
        who = "you" if payload.get("own") else text.harmless(_PLACES.get(source, source))
        self._screen.say(f"{who} > {words}", style="bold")

    def _delta(self, payload: Payload) -> None:
        piece = str(payload.get("text") or "")
        self._said += piece
        if self._at_prompt():
            self._held += piece
        else:
            self._screen.answer(piece)

    def _whole(self, payload: Payload) -> None:
        self._said = ""
        self._screen.end_answer()

    def _completed(self, payload: Payload) -> None:
        said, self.status = str(payload.get("text") or ""), str(payload.get("status") or "")
        if self.status == "error":
            self._screen.trouble(said.removeprefix("Error: "))
        elif self.status == "complete" and said.strip() != self._said.strip():
            self._screen.end_answer()
            self._screen.answer(said)  # it is not what was streamed
        self._screen.end_answer()
        if self.status == "interrupted":
            self._screen.note("interrupted; what was done so far is kept")
        self._foot(payload.get("usage") or {})
        self._said, self.turning = "", False
        self._ended()

    def _foot(self, usage: Payload) -> None:
        before, self._used = self._used, int(usage.get("total") or 0)
        if self._used > before:
            tokens = text.counted(self._used - before, "token")
            self._screen.say(f"\n{self._model} · {tokens} · {usage.get('today') or ''}", style="dim")

    def _tool_began(self, payload: Payload) -> None:
        name, summary = str(payload.get("name")), str(payload.get("context") or "")
        self._calls[str(payload.get("tool_id"))] = summary
        self._said = ""
        if not self._at_prompt():
            self._screen.tool_started(name, summary)

    def _tool_ended(self, payload: Payload) -> None:
        self._screen.tool_ended(
            str(payload.get("name")), self._calls.pop(str(payload.get("tool_id")), ""),
            seconds=float(payload.get("duration_s") or 0.0), failed=bool(payload.get("is_error")),
            why=str(payload.get("result") or ""),
        )  # fmt: skip

    def _updated(self, payload: Payload) -> None:
        if payload.get("kind") != "ready" and payload.get("text"):
            self._screen.note(str(payload["text"]))

    def _notified(self, payload: Payload) -> None:
        said = str(payload.get("text") or "")
        if payload.get("kind") == "notice":
            self._screen.note(said)
        else:
            self._screen.say(said)

    def _informed(self, payload: Payload) -> None:
        self._model = str(payload.get("model") or self._model)

    def _failed(self, payload: Payload) -> None:
        self._screen.trouble(str(payload.get("message") or "something went wrong"))
        self._ended()
