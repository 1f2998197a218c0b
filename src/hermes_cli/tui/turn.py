"""What is on the screen of the turn that runs: its words as they come, and its tool calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hermes_cli.tui.blocks import AnswerBlock, ToolBlock
from hermes_cli.tui.transcript import Transcript


class TurnView:
    """One at a time; the next begins with `forget`."""

    def __init__(self, transcript: Transcript) -> None:
        self._transcript = transcript
        self._answer: AnswerBlock | None = None
        """The part that grows."""
        self._began: AnswerBlock | None = None
        """The part with which the answer began."""
        self._streamed = ""
        """Of what is being said, since the last tool call."""
        self._parts: list[AnswerBlock] = []
        """The blocks it is in."""
        self._calls: dict[str, ToolBlock] = {}

    def forget(self) -> None:
        self._answer, self._streamed, self._calls = None, "", {}

    def has_said(self, text: str) -> bool:
        return not text.strip() or text.strip() == self._streamed.strip()

    def more(self, piece: str) -> None:
        """More words. Empty lines that a model begins with are left out."""
        if self._answer is None:
            piece = piece.lstrip("\n")
            if not piece.strip():
                return
            self._answer = self._began = AnswerBlock()
            self._parts = [self._answer]
            self._transcript.blocks.append(self._answer)
        self._streamed += piece
        if self._began is not None:
            self._began.said = self._streamed
        self._answer.add(piece)
        while (rest := self._answer.rest()) is not None:
            self._answer = rest
            self._parts.append(rest)
            self._transcript.blocks.append(rest)
        self._transcript.grew()

    def interim(self, payload: Mapping[str, Any]) -> None:
        """What was said before tool calls is whole."""
        if not payload.get("already_streamed") and self._answer is None:
            self.more(str(payload.get("text") or ""))
        self._answer, self._streamed = None, ""

    def end(self, text: str, status: str) -> None:
        """The turn is over; `text` is its answer, of which some or all was seen."""
        for call in self._calls.values():
            call.stopped()
        if status != "error" and not self.has_said(text) and (not self._streamed or status == "complete"):
            self._take_back()
            self.more(text)
        self.forget()
        self._transcript.show_change()

    def _take_back(self) -> None:
        """What was streamed is not what was said: a plug-in changed it, or it was said anew after a crash."""
        gone = {id(part) for part in self._parts} if self._streamed else set()
        self._transcript.blocks[:] = [block for block in self._transcript.blocks if id(block) not in gone]
        self._answer, self._streamed = None, ""

    # -- tool calls ----------------------------------------------------------------------------------------

    def call(self, payload: Mapping[str, Any]) -> None:
        self._answer, self._streamed = None, ""
        call = ToolBlock(str(payload.get("name")), str(payload.get("context") or ""), tool_id=str(payload["tool_id"]))
        last = self._transcript.blocks[-1] if self._transcript.blocks else None
        call.margin = not isinstance(last, ToolBlock)
        self._calls[call.tool_id] = call
        self._transcript.add(call)

    def call_said(self, payload: Mapping[str, Any]) -> None:
        """What a tool prints does not say whose it is: it is the one that began last."""
        running = [call for call in self._calls.values() if call.running]
        if running:
            running[-1].heard(str(payload.get("text") or ""))
            self._transcript.grew()

    def call_ended(self, payload: Mapping[str, Any]) -> None:
        call = self._calls.pop(str(payload.get("tool_id")), None)
        if call is not None:
            seconds = float(payload.get("duration_s") or 0.0)
            call.ended(str(payload.get("result") or ""), seconds=seconds, failed=bool(payload.get("is_error")))
            self._transcript.show_change()
