"""An answer as it is made, in a chat: the watcher of a turn that draws it.

What is drawn is a projection of one outbox item (`drafts`): first a beginning, then edits of the same message, also
across tool calls, whose lines stand between what was said before and after. At the end the message is brought to
exactly the stored text by the deliverer. Where a platform cannot edit, or streaming is off, only the typing sign is
shown.
"""

from __future__ import annotations

import re
from typing import Any

from gateway import display, replies, sending
from gateway.board import Board
from gateway.delivery import Deliverer
from gateway.drafts import Draft
from gateway.platforms.base import BasePlatformAdapter
from gateway.typing_signs import TypingSign
from hermes_state.turns.outbox import Parcel
from hermes_state.turns.turns import Work

_SENTENCE = re.compile(r"[.!?…。！？]\s|\n")


class Projection:
    """A `Watcher`, one for each turn. `began` may be told of a left-behind turn first, and then of the own."""

    def __init__(
        self,
        board: Board,
        adapter: BasePlatformAdapter,
        deliverer: Deliverer,
        *,
        chat_id: str,
        account: str = "",
        thread_id: str | None = None,
        reply_to: str | None = None,
    ) -> None:
        self._board = board
        self._adapter = adapter
        self._deliverer = deliverer
        self._display = display.of(board, adapter)
        self._place = {"chat_id": chat_id, "platform": adapter.platform.value, "account": account}
        self._payload = {"kind": "answer", "thread_id": thread_id, "reply_to": reply_to}
        metadata = {} if thread_id is None else {"thread_id": thread_id}
        self._sign = TypingSign(adapter, chat_id, metadata, most_seconds=board.db.limits.typing_seconds)
        self._key = ""
        self._draft: Draft | None = None
        self._story = _Story(self._display)

    @property
    def shown(self) -> str:
        """What of the answer is, or may be, in the chat; empty when nothing is."""
        stands = self._draft is not None and self._draft.stands
        return (self._story.said() or "…") if stands else ""

    def asking(self, waits: bool, here: bool) -> None:
        """The turn waits for a person (or no more): no sign of typing meanwhile, and nothing above their question."""
        self._sign.hold(waits)
        if here and self._draft is not None:
            self._draft.give_way(waits)

    # -- as a watcher ------------------------------------------------------------------------------------

    def began(self, work: Work) -> None:
        self._sign.start()
        if self._draft is not None:
            self._deliverer.beside(_settled(self._draft))
        self._story = _Story(self._display)
        self._key = replies.answer_key(work.turn.id)
        self._draft = None
        if not (self._display.streams and self._is_place_of(work)):
            return
        parcel = Parcel(
            dedup_key=self._key,
            conversation_id=work.turn.conversation_id,
            turn_id=work.turn.id,
            trace_id=work.turn.trace_id,
            payload={"text": "", **{name: value for name, value in self._payload.items() if value is not None}},
            **self._place,
        )
        self._draft = Draft(self._board, self._adapter, parcel, self._display, self._story.text)
        self._deliverer.showing(self._key, self._draft)

    def delta(self, text: str) -> None:
        self._story.say(text)
        self._changed()

    def step(self) -> None:
        self._story.close()

    def tool(self, event: str, name: str, preview: str, *, duration: float | None, failed: bool) -> None:
        if self._story.tool(event, name, preview, duration=duration, failed=failed):
            self._changed()

    def status(self, kind: str, text: str) -> None:
        if self._display.tool_lines == "verbose":
            self._story.line(f"_{_plain(text, 200)}_")
            self._changed()

    def ended(self, result: dict[str, Any]) -> None:
        self._sign.stop()
        if self._draft is None or result.get("outbox_item") is not None:
            return  # the deliverer settles it
        self._deliverer.forget(self._key)
        self._deliverer.beside(self._leave(self._draft, self._story.said()))

    def left(self) -> None:
        """The turn broke off without an end, which another process may bring it to: show nothing more."""
        self._sign.stop()
        if self._draft is not None:
            self._deliverer.forget(self._key)
            self._deliverer.beside(_settled(self._draft))

    def _is_place_of(self, work: Work) -> bool:
        """Whether it is answered here: one place may have two chats, where a platform has two names for a person."""
        row = work.inbox[-1] if work.inbox else None
        return row is None or row.chat_id == self._place["chat_id"]

    def _changed(self) -> None:
        if self._draft is not None:
            self._draft.changed()

    async def _leave(self, draft: Draft, said: str) -> None:
        """Nothing is owed for this turn: what was shown stays, as something that was broken off."""
        standing = await draft.settle()
        if standing is None or not standing.ids:
            return
        chat, seconds = self._place["chat_id"], self._board.db.limits.send_seconds
        pieces = sending.pieces(self._adapter, said)
        for number, message_id in enumerate(standing.ids):
            if number < len(pieces):
                call = self._adapter.edit_message(chat, message_id, pieces[number], finalize=True)
                await sending.bounded(call, seconds=seconds)
            else:
                await sending.deleted(self._adapter, chat, message_id, seconds=seconds)


class _Story:
    """What there is to show of a turn: texts and tool lines, in order."""

    def __init__(self, how: display.Display) -> None:
        self._how = how
        self._before: list[str] = []
        self._current: list[str] = []
        self._last_tool = ""
        self._ready = False

    def say(self, text: str) -> None:
        self._current.append(text)

    def close(self) -> None:
        """What was said so far stands before the next tool calls."""
        text = "".join(self._current).strip()
        self._current.clear()
        self._last_tool = ""
        if text:
            self._before.append(text)

    def line(self, text: str) -> None:
        self.close()
        self._before.append(text)

    def tool(self, event: str, name: str, preview: str, *, duration: float | None, failed: bool) -> bool:
        """Whether there is something new to show."""
        how = self._how.tool_lines
        if how == "off" or event not in ("tool.started", "tool.completed"):
            return False
        if event == "tool.completed":
            if not failed and how != "verbose":
                return False
            took = "" if duration is None else f" · {duration:.1f} s"
            return self._tool_line(f"{'✗' if failed else '✓'} {_plain(name, 40)}{took}", name)
        if how == "new" and name == self._last_tool:
            return False
        shown = _plain(preview, self._how.preview_chars)
        return self._tool_line(f"⚙ {_plain(name, 40)}" + (f" `{shown}`" if shown else ""), name)

    def _tool_line(self, text: str, name: str) -> bool:
        together = bool(self._last_tool) and not self._current
        self.close()
        if together:
            self._before[-1] += f"\n{text}"
        else:
            self._before.append(text)
        self._last_tool = name
        return True

    def said(self) -> str:
        """Everything, but not a marker of silence or the beginning of one."""
        current = "".join(self._current).strip()
        parts = [*self._before, *([current] if current and not replies.may_be_silence(current) else [])]
        return "\n\n".join(parts)

    def text(self) -> str:
        """What is worth showing now; empty as long as there is too little of it."""
        text = self.said()
        if not self._ready:
            enough = bool(self._before) or len(text) >= self._how.threshold or _SENTENCE.search(text) is not None
            self._ready = bool(text) and enough
        return text if self._ready else ""


async def _settled(draft: Draft) -> None:
    await draft.settle()


def _plain(text: str, most: int) -> str:
    """One harmless line: no markup of ours, no line breaks."""
    line = " ".join(text.replace("`", "'").split())
    return line if len(line) <= most else f"{line[: most - 1]}…"
