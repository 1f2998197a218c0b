"""What was typed and sent, and with which no turn has begun yet: it is kept nowhere but here.

Either a turn takes it up, or it goes back to where it was typed, once, whoever notices first that it cannot be taken
up; or the window is left, and says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from hermes_cli.tui.bars import Waiting
from hermes_cli.tui.blocks import Said


class Pending:
    """`bar` shows what waits behind a turn; `give_back` gets words that were not taken up."""

    def __init__(self, bar: Waiting, give_back: Callable[[str], None]) -> None:
        self._bar, self._give_back = bar, give_back
        self.sent: Said | None = None
        """On the screen already; the turn it begins has not begun."""
        self._queue: list[Said] = []
        self._answered: set[Said] = set()
        """Of the queue: what the server knows of."""

    @property
    def queue(self) -> list[Said]:
        return list(self._queue)

    @property
    def known(self) -> list[Said]:
        """What waits at the server."""
        return [said for said in self._queue if said in self._answered]

    @property
    def all(self) -> list[Said]:
        return [*([] if self.sent is None else [self.sent]), *self._queue]

    def wait(self, said: Said) -> None:
        self._queue.append(said)
        self._show()

    def queued(self, said: Said) -> None:
        """The server has it, and it waits there."""
        if said in self._queue:
            self._answered.add(said)

    def take(self, words: Iterable[Said]) -> list[Said]:
        """Those of them that are still here; they are not, any more."""
        given = set(words)
        taken = [said for said in self.all if said in given]
        if self.sent in given:
            self.sent = None
        self._queue = [said for said in self._queue if said not in given]
        self._answered -= given
        self._show()
        return taken

    def back(self, words: Iterable[Said]) -> None:
        """To where they were typed, those that are still here."""
        if taken := self.take(words):
            self._give_back("\n\n".join(said.text for said in taken))

    def _show(self) -> None:
        self._bar.show([said.text for said in self._queue], "next")
