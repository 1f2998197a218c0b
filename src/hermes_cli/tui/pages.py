"""The stored part of a conversation, read a page at a time: its end first, older pages as the reader goes up."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hermes_cli.tui.blocks import ScreenBlock, ToolBlock, of_history
from hermes_cli.tui.link import RpcClient
from hermes_cli.tui.transcript import Transcript

PAGE = 60
"""Messages that are asked for at a time."""


class StoredPages:
    """`remember` gets what the person said in the page that is read first."""

    def __init__(self, link: RpcClient, transcript: Transcript, remember: Callable[[Sequence[str]], None]) -> None:
        self._link, self._transcript, self._remember = link, transcript, remember
        self._first = 0
        """The number of the oldest message that is on the screen."""
        self._fetching = False
        self._shown = 0
        """How often the screen was filled anew."""
        self.count = 0
        """How many messages the conversation has, as far as is known here."""
        self.said_last = ""
        """By the person, of what was stored when the screen was filled."""

    def show(self, state: Mapping[str, Any]) -> None:
        """Another conversation, or the same one read anew: its last page."""
        messages = self._taken(state)
        self._shown += 1
        self._transcript.replace(_blocks_of(messages), more=self._first > 0)
        said = [str(one["text"]) for one in messages if one.get("role") == "user"]
        self.said_last = said[-1] if said else ""
        self._remember(said)

    async def older(self, session_id: str) -> None:
        """The page above the oldest message that is on the screen."""
        if self._fetching or not self._first or not session_id:
            return
        self._fetching, shown = True, self._shown
        try:
            wanted = {"before": self._first, "limit": PAGE, "details": True}
            page = await self._link.ask("session.history", session_id=session_id, **wanted)
            if shown == self._shown:
                self._transcript.put_above(_blocks_of(self._taken(page)), more=self._first > 0)
        finally:
            self._fetching = False

    async def reread(self, session_id: str, *, wanted: Callable[[], bool]) -> None:
        """`wanted` is asked when the answer is there."""
        state = await self._link.ask("session.history", session_id=session_id, limit=PAGE, details=True)
        if wanted():
            self.show(state)

    def _taken(self, state: Mapping[str, Any]) -> list[dict[str, Any]]:
        messages = [dict(one) for one in state.get("messages") or ()]
        self._first = int(state.get("first") or 0)
        self.count = int(state.get("message_count") or state.get("count") or len(messages))
        return messages


def _blocks_of(messages: Sequence[Mapping[str, Any]]) -> list[ScreenBlock]:
    blocks: list[ScreenBlock] = []
    for block in (block for message in messages for block in of_history(message)):
        if isinstance(block, ToolBlock):
            block.margin = not blocks or not isinstance(blocks[-1], ToolBlock)
        blocks.append(block)
    return blocks
